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
    /// Entries up to this position were handed to the protocol.
    pub(super) received: StreamPosition,
    /// The position that the log was last told.
    pub(super) logged: StreamPosition,
    /// Full copies from third sites may have brought what the source wrote up to this position.
    pub(super) held: StreamPosition,
    /// Entries up to this number have arrived.
    arrived: u64,
    /// Everything that the source stamped up to this time was in the store already, through a full copy of another site's data.
    pub(super) covered: Hlc,
    /// Whether the source has been told this lane's position since the link came up. What arrives continues from there.
    pub(super) is_resumed: bool,
    /// The source was told to go on at an earlier place than what had arrived. What it has sent before it hears of that is left over, and is skipped.
    skips_left_over: bool,
    /// How many times the source has been told.
    pub(super) words: u64,
    pub(super) pending: Pending<E, M>,
    /// What a peer that sends back lost versions keeps by name, as far as it has arrived.
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
            skips_left_over: false,
            words: 0,
            pending,
            returned_named: BTreeMap::new(),
        }
    }

    /// The log says that everything up to this position was handed to the protocol.
    pub(super) fn replay(&mut self, position: StreamPosition) {
        (self.received, self.logged, self.arrived) = (position, position, position.number);
    }

    /// Entries up to this position were handed to the protocol.
    pub fn received(&self) -> StreamPosition {
        self.received
    }

    /// Everything that the source stamped up to this time was in the store already, through a full copy of another site's data.
    pub fn covered(&self) -> Hlc {
        self.covered
    }

    /// The position that the log was last told.
    pub fn logged(&self) -> StreamPosition {
        self.logged
    }

    /// How far in this stream the rows here may reach, if the stream itself has not come as far.
    pub(super) fn held_beyond(&self) -> Option<StreamPosition> {
        Some(self.held).filter(|held| *held > self.received)
    }

    pub(super) fn resume(&mut self) {
        self.pending.drop_stream();
        self.skips_left_over |= self.is_resumed && self.arrived > self.received.number;
        self.arrived = self.received.number;
        self.is_resumed = true;
    }

    pub(super) fn silence(&mut self) {
        (self.is_resumed, self.skips_left_over) = (false, false);
        self.pending.clear();
        self.returned_named.clear();
    }

    /// Whether a full copy answers the last word that the source was sent. If that word crossed with the copy, the source answers again, with another
    /// copy or with entries. If the first copy were taken too, the source would be told twice where its stream continues, and what it sends after the
    /// first time would not fit the second.
    pub fn is_answered_by(&self, word: u64) -> bool {
        self.words == word
    }

    /// The source has taken back what it had lost, and continues behind `position`. Returns whether that was only what full copies from third sites
    /// had brought here. In that case it is still to be agreed where the stream continues.
    pub fn rewind(&mut self, position: StreamPosition) -> bool {
        let is_held = self.held_beyond().is_some() && self.received == position;
        self.received = position;
        is_held
    }

    /// Whether a frame that follows the entry `previous` is left over from before the source was told to go on at an earlier place.
    fn is_left_over(&self, previous: u64) -> bool {
        self.skips_left_over && previous > self.arrived
    }

    /// Adds entries that continue behind what has arrived.
    ///
    /// # Errors
    /// If they do not continue there, or if one does not decode.
    pub fn arrive(
        &mut self,
        frame: EntriesFrame,
        decode: impl Fn(Bytes) -> Result<E, BadFrame>,
    ) -> Result<(), BadFrame> {
        if self.is_left_over(frame.previous) {
            return Ok(());
        }
        self.check_continues(&frame)?;
        self.skips_left_over = false;
        let decode = |entry: Bytes| {
            let bytes = entry.len();
            Ok((decode(entry)?, bytes))
        };
        // All entries are taken or none.
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
                "entries after {previous} up to {last} of incarnation {incarnation}, where entry {} has arrived, and entry {} of \
                 incarnation {} was handled",
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

    /// Adds a mark behind an entry.
    ///
    /// # Errors
    /// If that entry has not arrived.
    pub fn arrive_mark(&mut self, frame: &MarkFrame, mark: M) -> Result<(), BadFrame> {
        let (incarnation, number) = (frame.incarnation, frame.after);
        if self.is_left_over(number) {
            return Ok(());
        }
        if number > self.arrived {
            let found = format!(
                "a mark after entry {number} when entry {} has arrived",
                self.arrived
            );
            return Err(BadFrame::new("a mark after entries that have arrived", found));
        }
        // The incarnation is noted although the source has no entries yet. Otherwise the source would take this receiver for one that has lost
        // everything.
        if self.received == StreamPosition::default() && number == 0 {
            let at = StreamPosition { incarnation, number };
            self.pending.push(Item::Reached(at), 0)?;
        }
        self.pending.push(Item::Mark(mark), 0)
    }

    /// Adds a version that the peer sends back, which came in `bytes` bytes.
    ///
    /// # Errors
    /// If the source is further ahead than any source goes.
    pub fn arrive_returned(&mut self, entry: E, bytes: usize) -> Result<(), BadFrame> {
        self.pending.push(Item::Returned(entry), bytes)
    }

    /// Adds what the peer that sends back lost versions keeps by name, or a part of that.
    ///
    /// # Errors
    /// If it is more than a peer accepts ([`add_named`]).
    pub fn arrive_named(&mut self, named: Vec<NamedRecord>) -> Result<(), BadFrame> {
        add_named(&mut self.returned_named, named)
    }

    /// The peer has sent back everything but what others have replaced there: versions that were stamped up to `replaced`, among them deletes up to the
    /// times of `cut`.
    ///
    /// # Errors
    /// If the source is further ahead than any source goes.
    pub fn arrive_end(&mut self, cut: Vec<(ReplicaId, Hlc)>, replaced: Hlc) -> Result<(), BadFrame> {
        let named = std::mem::take(&mut self.returned_named);
        let returned = Recovered {
            cut,
            named,
            replaced,
            ..Recovered::default()
        };
        self.pending.push(Item::ReturnedEnd(returned), 0)
    }
}
