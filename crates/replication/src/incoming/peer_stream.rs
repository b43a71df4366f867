//! Where a lane is in the stream of one peer, and how what arrives of it is checked.
use crate::{
    EntriesFrame, MarkFrame, NamedRecord, StreamPosition, add_named,
    pending::{Item, Pending},
};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{BadFrame, Hlc, Recovered, ReplicaId};

/// Where a lane is in the stream of one peer.
///
/// `logged <= received <= arrived`: what has arrived waits until it is handed to the protocol, and the log is told how far that is.
pub struct PeerStream<E, M> {
    /// Handed to the protocol up to here.
    pub(super) received: StreamPosition,
    /// What the log was last told.
    pub(super) logged: StreamPosition,
    /// Full copies of third sites may have brought what the source wrote up to here.
    pub(super) held: StreamPosition,
    /// What has arrived up to here.
    arrived: u64,
    /// Everything that the source stamped up to here was in the store already, through a copy of another site's data.
    pub(super) covered: Hlc,
    /// Since the link is up, the source has been told where we are: what comes continues from there.
    pub(super) is_resumed: bool,
    /// How often it has been told.
    pub(super) words: u64,
    pub(super) pending: Pending<E, M>,
    /// What a peer that gives back keeps by name, as far as it has come.
    returned_named: BTreeMap<String, Bytes>,
}

impl<E, M> PeerStream<E, M> {
    pub(super) fn new(received: StreamPosition, pending: Pending<E, M>) -> PeerStream<E, M> {
        PeerStream {
            received,
            logged: received,
            held: received,
            arrived: received.number,
            covered: Hlc::ZERO,
            is_resumed: false,
            words: 0,
            pending,
            returned_named: BTreeMap::new(),
        }
    }

    /// The log says that everything up to here was handed on.
    pub(super) fn replay(&mut self, position: StreamPosition) {
        (self.received, self.logged, self.arrived) = (position, position, position.number);
    }

    /// Handed to the protocol up to here.
    pub fn received(&self) -> StreamPosition {
        self.received
    }

    /// Everything that the source stamped up to here was in the store already, through a copy of another site's data.
    pub fn covered(&self) -> Hlc {
        self.covered
    }

    /// What the log was last told.
    pub fn logged(&self) -> StreamPosition {
        self.logged
    }

    /// How far in this stream rows may go that are here, if the stream itself has not come so far.
    pub(super) fn held_beyond(&self) -> Option<StreamPosition> {
        Some(self.held).filter(|held| *held > self.received)
    }

    pub(super) fn resume(&mut self) {
        self.pending.drop_stream();
        self.arrived = self.received.number;
        self.is_resumed = true;
    }

    pub(super) fn silence(&mut self) {
        self.is_resumed = false;
        self.pending.clear();
        self.returned_named.clear();
    }

    /// Whether a full copy answers the last word that the source was told. If that word crossed with the copy, the source answers again, with
    /// another copy or with entries: were the first one taken too, the source would be told twice where its stream goes on, and what it sends after the
    /// first time would not fit the second.
    pub fn is_answered_by(&self, word: u64) -> bool {
        self.words == word
    }

    /// The source has taken back what it had lost, and goes on behind `position`. Returns whether that was only what copies of third sites had brought
    /// here: where the stream goes on is still to be agreed then.
    pub fn rewind(&mut self, position: StreamPosition) -> bool {
        let is_held = self.held_beyond().is_some() && self.received == position;
        self.received = position;
        is_held
    }

    /// Entries that continue behind what has arrived.
    ///
    /// # Errors
    /// If they do not, or one is bad.
    pub fn arrive(
        &mut self,
        frame: EntriesFrame,
        decode: impl Fn(Bytes) -> Result<E, BadFrame>,
    ) -> Result<(), BadFrame> {
        self.check_continues(&frame)?;
        let decode = |entry: Bytes| {
            let bytes = entry.len();
            Ok((decode(entry)?, bytes))
        };
        // All or none of them.
        let entries = frame.entries.into_iter().map(decode);
        let entries = entries.collect::<Result<Vec<_>, BadFrame>>()?;
        let incarnation = frame.incarnation;
        for (place, (entry, bytes)) in entries.into_iter().enumerate() {
            let number = frame.numbers.get(place).copied();
            let number = number.unwrap_or(frame.previous + 1 + place as u64);
            let at = StreamPosition { incarnation, number };
            self.pending.push(Item::Entry { entry, at }, bytes)?;
        }
        let number = frame.last;
        let last = StreamPosition { incarnation, number };
        self.pending.push(Item::Reached(last), 0)?;
        self.arrived = number;
        Ok(())
    }

    fn check_continues(&self, frame: &EntriesFrame) -> Result<(), BadFrame> {
        let EntriesFrame {
            incarnation,
            previous,
            last,
            entries,
            numbers,
        } = frame;
        if *previous != self.arrived || last < previous || *incarnation < self.received.incarnation {
            let found = format!(
                "those behind {previous} up to {last} of incarnation {incarnation}, where {} has arrived and {} of incarnation {} is taken in",
                self.arrived, self.received.number, self.received.incarnation
            );
            return Err(BadFrame::new("entries that continue the stream", found));
        }
        let all = entries.len() as u64 == last - previous && numbers.is_empty();
        let is_inside = |number: &u64| (previous + 1..=*last).contains(number);
        let rising = numbers.is_sorted_by(|a, b| a < b) && numbers.iter().all(is_inside);
        if !all && (numbers.len() != entries.len() || !rising) {
            let found = format!("{} numbers for {}", numbers.len(), entries.len());
            return Err(BadFrame::new("a number for each stream entry", found));
        }
        Ok(())
    }

    /// A mark behind an entry.
    ///
    /// # Errors
    /// If that entry has not arrived.
    pub fn arrive_mark(&mut self, frame: &MarkFrame, mark: M) -> Result<(), BadFrame> {
        let (incarnation, number) = (frame.incarnation, frame.after);
        if number > self.arrived {
            let found = format!("one behind {number} when {} has arrived", self.arrived);
            return Err(BadFrame::new("a mark behind its entries", found));
        }
        // Whoever has heard of a source that has written nothing yet is not taken for one that has lost everything.
        if self.received == StreamPosition::default() && number == 0 {
            let at = StreamPosition { incarnation, number };
            self.pending.push(Item::Reached(at), 0)?;
        }
        self.pending.push(Item::Mark(mark), 0)
    }

    /// Something is given back, which came in so many bytes.
    ///
    /// # Errors
    /// If the source is further ahead than any source goes.
    pub fn arrive_returned(&mut self, entry: E, bytes: usize) -> Result<(), BadFrame> {
        self.pending.push(Item::Returned(entry), bytes)
    }

    /// What the peer that gives back keeps by name, or a part of that.
    ///
    /// # Errors
    /// If it is more than a peer takes.
    pub fn arrive_named(&mut self, named: Vec<NamedRecord>) -> Result<(), BadFrame> {
        add_named(&mut self.returned_named, named)
    }

    /// Everything is given back but what deletes up to the times of `cut` have replaced.
    ///
    /// # Errors
    /// If the source is further ahead than any source goes.
    pub fn arrive_end(&mut self, cut: Vec<(ReplicaId, Hlc)>) -> Result<(), BadFrame> {
        let named = std::mem::take(&mut self.returned_named);
        let returned = Recovered {
            cut,
            named,
            ..Recovered::default()
        };
        self.pending.push(Item::ReturnedEnd(returned), 0)
    }
}
