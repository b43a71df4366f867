//! Rows on their way to a peer: those of a full copy, or versions that the peer has lost and that are restored.
use crate::entry::encode_entry;
use bytes::BytesMut;
use std::collections::VecDeque;
use turnbuckle_core::{Hlc, Key, Meta, ReplicaId, Version, VersionId};
use turnbuckle_replication::{CopyBeginFrame, CopyRowsFrame, NamedRecord, Purpose};
use turnbuckle_store::{RowCursor, Snapshot, StoreError, rows};

/// The number of bytes of rows that are read at a time for a peer. If one row is larger, that row.
const PAGE_BYTES: usize = 256 << 10;

/// The number of bytes of entries in one frame. If one version is larger, that version.
const FRAME_BYTES: usize = 1 << 20;

/// Rows on their way to a peer, read from a snapshot of the store.
pub(super) struct RowsOut<M> {
    snapshot: Box<dyn Snapshot>,
    /// Where the next rows begin in the snapshot.
    cursor: Option<RowCursor>,
    /// Versions that were read and not yet sent: a hot key may have more of them than one frame takes.
    unsent: VecDeque<(Key, Version<M>)>,
    /// Whether there are no more rows behind `unsent`.
    is_read: bool,
    /// The frame that is sent in front of a full copy's rows, until it is sent.
    pub begin: Option<CopyBeginFrame>,
    pub purpose: Purpose,
    /// The named state of the protocol that is not yet sent. It is sent before the rows.
    named: VecDeque<NamedRecord>,
    /// Everything up to this time is closed here: what is over in shares up to then says so.
    closed: Hlc,
    /// Sent behind the rows that are restored: for each site, its newest delete that has kept a version from being restored.
    pub withheld: Vec<(ReplicaId, Hlc)>,
}

impl<M: Meta> RowsOut<M> {
    pub fn new(
        snapshot: Box<dyn Snapshot>,
        named: Vec<NamedRecord>,
        begin: Option<CopyBeginFrame>,
        purpose: Purpose,
        closed: Hlc,
    ) -> RowsOut<M> {
        RowsOut {
            snapshot,
            cursor: None,
            unsent: VecDeque::new(),
            is_read: false,
            begin,
            purpose,
            named: named.into(),
            closed,
            withheld: Vec::new(),
        }
    }

    /// The next frame for a peer, with about the entries of `max_rows` rows.
    pub fn next(&mut self, replica: ReplicaId, max_rows: usize) -> Result<CopyRowsFrame, StoreError> {
        if self.unsent.is_empty() {
            self.read(replica, max_rows)?;
        }
        let (mut arena, mut entries, mut bytes) = (BytesMut::new(), Vec::new(), 0);
        let mut named = Vec::new();
        while bytes < FRAME_BYTES
            && let Some(piece) = self.named.pop_front()
        {
            bytes += piece.bytes();
            named.push(piece);
        }
        while bytes < FRAME_BYTES
            && let Some((key, version)) = self.unsent.pop_front()
        {
            let entry = encode_entry(key, version, &mut arena);
            bytes += entry.len();
            entries.push(entry);
        }
        let end = self.is_read && self.unsent.is_empty() && self.named.is_empty();
        Ok(CopyRowsFrame { entries, end, named })
    }

    fn read(&mut self, replica: ReplicaId, max_rows: usize) -> Result<(), StoreError> {
        let page = rows::<M>(&*self.snapshot, self.cursor.as_ref(), max_rows, PAGE_BYTES)?;
        self.is_read = page.next.is_none();
        self.cursor = page.next;
        for (key, chain) in page.rows {
            // A delete has removed all older versions that are still here, except siblings. So has a value that expired.
            let deletes = chain
                .iter()
                .filter(|version| !M::SIBLINGS && may_be_forgotten(self.purpose, version));
            let deleted = deletes.max_by_key(|version| version.rank());
            if let Some(deleted) = deleted
                && chain
                    .iter()
                    .any(|version| is_asked(self.purpose, replica, version.id) && deleted.removes(version))
            {
                note_newest(&mut self.withheld, deleted.id);
            }
            let floor = chain.floor(self.closed);
            let wanted = chain
                .iter()
                .filter(|version| wants(self.purpose, replica, version, deleted));
            let wanted = wanted.map(|version| (key.clone(), version.clone().under_floor(floor)));
            match M::SIBLINGS && matches!(self.purpose, Purpose::Return(_)) {
                // The oldest first: whoever has a version of a replica must have the earlier ones of that replica.
                true => self.unsent.extend(wanted.collect::<Vec<_>>().into_iter().rev()),
                false => self.unsent.extend(wanted),
            }
        }
        Ok(())
    }
}

/// Keeps the newest time of each site in `cut`.
fn note_newest(cut: &mut Vec<(ReplicaId, Hlc)>, id: VersionId) {
    match cut.iter_mut().find(|(replica, _)| *replica == id.replica) {
        Some((_, at)) => *at = id.at.max(*at),
        None => cut.push((id.replica, id.at)),
    }
}

/// Whether a peer is sent this version. `deleted` is the key's newest delete that some site may have forgotten already. Versions that it
/// deleted are not restored: their owner would send them to that site, where they would be visible again.
fn wants<M: Meta>(
    purpose: Purpose,
    replica: ReplicaId,
    version: &Version<M>,
    deleted: Option<&Version<M>>,
) -> bool {
    match purpose {
        Purpose::Copy => true,
        Purpose::Return(_) => {
            let is_removed = deleted.is_some_and(|deleted| deleted.removes(version));
            is_asked(purpose, replica, version.id) && !is_removed
        }
    }
}

/// Whether the peer may have lost this version.
fn is_asked(purpose: Purpose, replica: ReplicaId, id: VersionId) -> bool {
    match purpose {
        Purpose::Copy => false,
        Purpose::Return(lost) => id.replica == replica && id.at > lost.since,
    }
}

fn may_be_forgotten<M: Meta>(purpose: Purpose, version: &Version<M>) -> bool {
    match purpose {
        Purpose::Copy => false,
        Purpose::Return(lost) => version.gone().is_some_and(|gone| gone.at <= lost.forgettable),
    }
}
