//! The receiver's side of one peer's stream.
use crate::entry::decode_entry;
use crate::{
    entry::encode_entry,
    pending::{Item, Pending},
};
use bytes::{Bytes, BytesMut};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, VecDeque},
};
use turnbuckle_core::{
    BadFrame, Chain, Hlc, Key, Protocol, Recovered, ReplicaId, Topology, Version, VersionId, Wire,
};
use turnbuckle_replication::{CopyBeginFrame, CopyRowsFrame, NamedRecord, StreamPosition};
use turnbuckle_store::{RowCursor, Snapshot, StoreError, compare_rows, rows};

/// How many bytes of rows are read at a time for a peer, unless one row is larger.
const PAGE_BYTES: usize = 256 << 10;

/// How much of them goes into one frame, unless one version is larger.
const FRAME_BYTES: usize = 1 << 20;

/// Where a lane is in the stream of another site, and what has arrived and waits for its turn.
pub(crate) struct Incoming<P: Protocol> {
    /// Handed to the protocol up to here.
    pub received: StreamPosition,
    /// What the log was last told.
    pub logged: StreamPosition,
    /// Full copies of third sites may have brought what the source wrote up to here.
    held: StreamPosition,
    /// What has arrived up to here.
    arrived: u64,
    /// Everything that the source stamped up to here was in the store already, through a copy of another site's data.
    pub covered: Hlc,
    /// Since the link is up, the source has been told where we are: what comes continues from there.
    resumed: bool,
    /// How often it has been told.
    words: u64,
    pub pending: Pending<P>,
    /// What a peer that gives back keeps by name, as far as it has come.
    pub returned_named: BTreeMap<String, Bytes>,
    /// A full copy on its way.
    pub copy: Option<CopyIn<P::Meta>>,
    /// A full copy was offered while that of another site was under way: it is asked for again afterwards.
    pub declined: bool,
}

/// A full copy that is being received.
#[derive(Debug, Clone)]
pub(crate) struct CopyIn<M> {
    /// Where the stream goes on afterwards.
    pub resume: StreamPosition,
    /// What the copy covers, and what its source keeps beside its versions.
    pub copied: Recovered,
    /// How far its source had taken in the streams of other sites.
    pub received: BTreeMap<ReplicaId, StreamPosition>,
    /// How far its rows may go in the streams of other sites.
    pub held: BTreeMap<ReplicaId, StreamPosition>,
    /// Rows are missing there as well.
    pub is_partial: bool,
    /// The last row so far: the next frame may go on with it.
    pub open: Option<OpenRow<M>>,
    /// How far it is.
    pub state: CopyState,
}

/// How far a full copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CopyState {
    /// Its rows arrive and are staged.
    Arriving,
    /// All rows are staged: it can be put in place.
    Whole,
    /// It is being put in place. Entries of other streams that it covers wait.
    Placing,
    /// It is in place, and its staged rows are being removed. Until they are, no other copy may begin.
    Placed,
}

/// How large a row of a copy may be, in bytes: all versions of a key.
const MOST_ROW_BYTES: usize = 1 << 30;

/// What a version costs beside its bytes.
const VERSION_BYTES: usize = 128;

/// A row of a full copy, of which there may be more in the next frame.
#[derive(Debug, Clone)]
pub(crate) struct OpenRow<M> {
    key: Key,
    versions: Vec<Version<M>>,
    bytes: usize,
}

impl<M> CopyIn<M> {
    /// Takes the next version. Returns the row before it, if it begins another. Rows come in the engine's order, each once: a
    /// second part of a row would replace what is staged of it.
    ///
    /// # Errors
    /// If the rows are in another order, or the row is larger than any.
    pub fn take(
        &mut self,
        key: Key,
        version: Version<M>,
        bytes: usize,
    ) -> Result<Option<(Key, Chain<M>)>, BadFrame> {
        let bytes = bytes + VERSION_BYTES;
        if let Some(open) = self.open.as_mut().filter(|open| open.key == key) {
            open.versions.push(version);
            open.bytes += bytes;
            return match open.bytes > MOST_ROW_BYTES {
                true => Err(BadFrame::new("a key whose versions take at most 1 GiB", "more")),
                false => Ok(None),
            };
        }
        let before = self
            .open
            .as_ref()
            .map(|open| compare_rows(open.key.as_ref(), key.as_ref()));
        if before.is_some_and(|order| order != Ordering::Less) {
            return Err(BadFrame::new(
                "rows of a full copy in their order",
                key.to_string(),
            ));
        }
        let versions = vec![version];
        Ok(self
            .open
            .replace(OpenRow { key, versions, bytes })
            .map(OpenRow::close))
    }
}

impl<M> OpenRow<M> {
    /// The row as it is stored.
    pub fn close(self) -> (Key, Chain<M>) {
        let OpenRow {
            key, mut versions, ..
        } = self;
        // The oldest first: each of the others then goes to the end.
        versions.sort_unstable_by_key(|version| version.id);
        let mut versions = versions.into_iter();
        let mut chain = Chain::new(versions.next().expect("a row begins with a version"));
        for version in versions {
            chain.insert(version);
        }
        (key, chain)
    }
}

impl<P: Protocol> Incoming<P> {
    pub fn new(received: StreamPosition, pending: Pending<P>) -> Incoming<P> {
        Incoming {
            received,
            logged: received,
            held: received,
            arrived: received.number,
            covered: Hlc::ZERO,
            resumed: false,
            words: 0,
            pending,
            returned_named: BTreeMap::new(),
            copy: None,
            declined: false,
        }
    }

    /// The log says that everything up to here was handed on.
    pub fn replay(&mut self, position: StreamPosition) {
        (self.received, self.logged, self.arrived) = (position, position, position.number);
    }

    /// Rows that are here, or are about to be, may go so far in this stream.
    pub fn hold(&mut self, position: StreamPosition) {
        self.held = self.held.max(position);
    }

    /// How far in this stream rows may go that are here.
    pub fn held(&self) -> StreamPosition {
        self.held.max(self.logged)
    }

    /// The same, if the stream itself has not come so far.
    pub fn held_beyond(&self) -> Option<StreamPosition> {
        Some(self.held).filter(|held| *held > self.received)
    }

    /// The link is up, or a copy is in place: from here on the stream continues from the position returned, which the source is told.
    pub fn resume(&mut self) -> StreamPosition {
        self.drop_stream();
        self.arrived = self.received.number;
        self.resumed = true;
        (self.copy, self.declined) = (None, false);
        self.received
    }

    /// The source is told where we are: the number of that word.
    pub fn next_word(&mut self) -> u64 {
        self.words += 1;
        self.words
    }

    /// Whether a copy answers the last word. One that answers an earlier word was under way when the source was asked again. The source answers again, with
    /// another copy or with entries: were the first one taken too, the source would be told twice where its stream goes on, and what it sends after the
    /// first time would not fit the second.
    pub fn is_answered_by(&self, word: u64) -> bool {
        self.words == word
    }

    /// Forgets what has arrived of the stream and waits; what was given back belongs to the other direction and stays.
    pub fn drop_stream(&mut self) {
        self.pending.drop_stream();
    }

    /// The link is down.
    pub fn silence(&mut self) {
        self.resumed = false;
        // A copy that has arrived whole is put in place all the same.
        self.copy = self.copy.take().filter(|copy| copy.state >= CopyState::Whole);
        self.pending.clear();
        self.returned_named.clear();
    }

    /// Whether the source has been told where to go on.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Whether entries and marks are expected now. Others are left over from before a resume and are passed over.
    pub fn is_streaming(&self) -> bool {
        self.resumed && self.copy.is_none() && !self.declined
    }

    /// Entries that continue behind `previous`, up to `last`, of the stream of `source`. They are its own versions, also those that
    /// it had lost and was given back; those of other sites come from there.
    pub fn arrive(
        &mut self,
        topology: &Topology,
        source: ReplicaId,
        previous: u64,
        last: StreamPosition,
        entries: Vec<Bytes>,
        numbers: &[u64],
    ) -> Result<(), BadFrame> {
        if previous != self.arrived || last.number < previous || last.incarnation < self.received.incarnation
        {
            let found = format!(
                "those behind {previous} up to {} of incarnation {}, where {} has arrived and {} of incarnation {} is taken in",
                last.number, last.incarnation, self.arrived, self.received.number, self.received.incarnation
            );
            return Err(BadFrame::new("entries that continue the stream", found));
        }
        let all = entries.len() as u64 == last.number - previous && numbers.is_empty();
        let rising = numbers.is_sorted_by(|a, b| a < b)
            && numbers
                .iter()
                .all(|number| (previous + 1..=last.number).contains(number));
        if !all && (numbers.len() != entries.len() || !rising) {
            let found = format!("{} numbers for {}", numbers.len(), entries.len());
            return Err(BadFrame::new("a number for each stream entry", found));
        }
        let decode = |entry: Bytes| {
            let (key, version) = decode_entry::<P::Meta>(entry.clone(), topology)?;
            match version.id.replica == source {
                true => Ok((entry, key, version)),
                false => Err(BadFrame::new(
                    "versions of the stream's own site",
                    version.id.to_string(),
                )),
            }
        };
        // All or none of them.
        let entries = entries
            .into_iter()
            .map(decode)
            .collect::<Result<Vec<_>, BadFrame>>()?;
        for (place, (entry, key, version)) in entries.into_iter().enumerate() {
            let number = numbers.get(place).copied().unwrap_or(previous + 1 + place as u64);
            self.pending.push(Item::Entry {
                key,
                version,
                encoded: entry,
                at: StreamPosition {
                    incarnation: last.incarnation,
                    number,
                },
            })?;
        }
        self.pending.push(Item::Reached(last))?;
        self.arrived = last.number;
        Ok(())
    }

    /// A mark behind an entry.
    pub fn arrive_mark(&mut self, after: StreamPosition, message: P::Message) -> Result<(), BadFrame> {
        if after.number > self.arrived {
            let found = format!("one behind {} when {} has arrived", after.number, self.arrived);
            return Err(BadFrame::new("a mark behind its entries", found));
        }
        // Whoever has heard of a source that has written nothing yet is not taken for one that has lost everything.
        if self.received == StreamPosition::default() && after.number == 0 {
            self.pending.push(Item::Reached(after))?;
        }
        self.pending.push(Item::Mark(message))
    }
}

/// What a take-back asks for: versions of `site` stamped after `since`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakeBack {
    pub since: Hlc,
    /// Deletes up to here may be forgotten elsewhere.
    pub forgettable: Hlc,
}

/// Rows that a peer has asked for and that wait for a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errand {
    pub purpose: Purpose,
    /// The checkpoint under way began after they were asked for: it has them.
    pub in_checkpoint: bool,
    /// The peer lacks rows itself: its stream is to be taken in up to here before such a checkpoint begins. Others are given nothing while rows
    /// are missing here and can still come: what comes with a copy is not streamed to them any more.
    pub behind: Option<StreamPosition>,
    /// How many entries of this lane's stream the peer has taken in.
    pub has: u64,
}

impl Errand {
    /// Of a peer whose rows are all there.
    pub fn new(purpose: Purpose, has: u64) -> Errand {
        Errand {
            purpose,
            in_checkpoint: false,
            behind: None,
            has,
        }
    }
}

/// Something on its way to a peer, row by row, from a snapshot of the store.
pub(crate) struct RowsOut<M> {
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

    /// The next frame for a peer, with the entries of about `most_rows` rows.
    pub fn next(&mut self, replica: ReplicaId, most_rows: usize) -> Result<CopyRowsFrame, StoreError> {
        if self.unsent.is_empty() {
            self.read(replica, most_rows)?;
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

    fn read(&mut self, replica: ReplicaId, most_rows: usize) -> Result<(), StoreError> {
        let page = rows::<M>(&*self.snapshot, self.cursor.as_ref(), most_rows, PAGE_BYTES)?;
        self.is_read = page.next.is_none();
        self.cursor = page.next;
        for (key, chain) in page.rows {
            let deletes = chain
                .iter()
                .filter(|version| self.purpose.may_be_forgotten(version));
            let deleted = deletes.map(|version| version.id).max();
            if let Some(deleted) = deleted
                && chain
                    .iter()
                    .any(|version| self.purpose.is_asked(replica, version.id) && version.id < deleted)
            {
                note_newest(&mut self.withheld, deleted);
            }
            let wanted = chain
                .iter()
                .filter(|version| self.purpose.wants(replica, version.id, deleted));
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

/// What rows are sent for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// A full copy.
    Copy,
    /// Giving back what the peer lost.
    Return(TakeBack),
}

impl Purpose {
    /// Whether a peer at `site` is sent this version. `deleted` is the key's newest delete that some site may have forgotten already. What it
    /// deleted is not given back: its owner would send it to that site, where it would be back.
    fn wants(self, replica: ReplicaId, id: VersionId, deleted: Option<VersionId>) -> bool {
        match self {
            Purpose::Copy => true,
            Purpose::Return(_) => self.is_asked(replica, id) && Some(id) >= deleted,
        }
    }

    /// Whether a peer at `site` may have lost this version.
    fn is_asked(self, replica: ReplicaId, id: VersionId) -> bool {
        match self {
            Purpose::Copy => false,
            Purpose::Return(lost) => id.replica == replica && id.at > lost.since,
        }
    }

    fn may_be_forgotten<M>(self, version: &Version<M>) -> bool {
        let Purpose::Return(lost) = self else { return false };
        version.value.is_none() && version.id.at <= lost.forgettable
    }
}
