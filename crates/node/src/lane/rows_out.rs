//! Rows on their way to a peer: of a full copy, or of what it has lost and is given back.
use crate::entry::encode_entry;
use bytes::BytesMut;
use std::collections::VecDeque;
use turnbuckle_core::{Hlc, Key, ReplicaId, Version, VersionId, Wire};
use turnbuckle_replication::{CopyBeginFrame, CopyRowsFrame, NamedRecord, Purpose};
use turnbuckle_store::{RowCursor, Snapshot, StoreError, rows};

/// How many bytes of rows are read at a time for a peer, unless one row is larger.
const PAGE_BYTES: usize = 256 << 10;

/// How much of them goes into one frame, unless one version is larger.
const FRAME_BYTES: usize = 1 << 20;

/// Something on its way to a peer, row by row, from a snapshot of the store.
pub(super) struct RowsOut<M> {
    snapshot: Box<dyn Snapshot>,
    /// Where the next rows begin.
    cursor: Option<RowCursor>,
    /// What has been read of them and not sent: the versions of a hot key may be more than one frame takes.
    unsent: VecDeque<(Key, Version<M>)>,
    /// There are no more rows behind those.
    is_read: bool,
    /// What a full copy says in front of its rows.
    pub begin: Option<CopyBeginFrame>,
    pub purpose: Purpose,
    /// What the protocol keeps by name, as far as it is not sent: it goes in front of the rows.
    named: VecDeque<NamedRecord>,
    /// What is said behind the rows that are given back: the newest delete of each site that has kept a version from being given back.
    pub withheld: Vec<(ReplicaId, Hlc)>,
}

impl<M: Wire + Clone> RowsOut<M> {
    pub fn new(
        snapshot: Box<dyn Snapshot>,
        named: Vec<NamedRecord>,
        begin: Option<CopyBeginFrame>,
        purpose: Purpose,
    ) -> RowsOut<M> {
        RowsOut {
            snapshot,
            cursor: None,
            unsent: VecDeque::new(),
            is_read: false,
            begin,
            purpose,
            named: named.into(),
            withheld: Vec::new(),
        }
    }

    /// The next frame for a peer, with the entries of about `max_rows` rows.
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
            let entry = encode_entry(&key, &version, &mut arena);
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
            let deletes = chain
                .iter()
                .filter(|version| may_be_forgotten(self.purpose, version));
            let deleted = deletes.map(|version| version.id).max();
            if let Some(deleted) = deleted
                && chain
                    .iter()
                    .any(|version| is_asked(self.purpose, replica, version.id) && version.id < deleted)
            {
                note_newest(&mut self.withheld, deleted);
            }
            let wanted = chain
                .iter()
                .filter(|version| wants(self.purpose, replica, version.id, deleted));
            let wanted = wanted.map(|version| (key.clone(), version.clone()));
            self.unsent.extend(wanted);
        }
        Ok(())
    }
}

/// The newest time of each site.
fn note_newest(cut: &mut Vec<(ReplicaId, Hlc)>, id: VersionId) {
    match cut.iter_mut().find(|(replica, _)| *replica == id.replica) {
        Some((_, at)) => *at = id.at.max(*at),
        None => cut.push((id.replica, id.at)),
    }
}

/// Whether a peer is sent this version. `deleted` is the key's newest delete that some site may have forgotten already. What it
/// deleted is not given back: its owner would send it to that site, where it would be back.
fn wants(purpose: Purpose, replica: ReplicaId, id: VersionId, deleted: Option<VersionId>) -> bool {
    match purpose {
        Purpose::Copy => true,
        Purpose::Return(_) => is_asked(purpose, replica, id) && Some(id) >= deleted,
    }
}

/// Whether a peer may have lost this version.
fn is_asked(purpose: Purpose, replica: ReplicaId, id: VersionId) -> bool {
    match purpose {
        Purpose::Copy => false,
        Purpose::Return(lost) => id.replica == replica && id.at > lost.since,
    }
}

fn may_be_forgotten<M>(purpose: Purpose, version: &Version<M>) -> bool {
    match purpose {
        Purpose::Copy => false,
        Purpose::Return(lost) => version.value.is_none() && version.id.at <= lost.forgettable,
    }
}
