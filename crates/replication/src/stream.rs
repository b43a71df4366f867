//! The durable stream of one lane: what `replicate` means.
//!
//! Every lane is the **source** of one stream and a **receiver** of one from each other site. The entries of a stream are versions, numbered from 1
//! without gaps. They are in the source's commit log, and nowhere else on disk.
//!
//! ```text
//!   source, site a                                        receiver, site b
//!   log:  .. 7 8 9 10 11 | 12 13 (not yet durable)         received: 9
//!   sent to b: 10    acked by b: 8      -- entries 10 -->
//!                                       <-- ack 9 ----     (after 9 is durable here)
//!
//!   acked <= received <= sent <= ready < next
//! ```
//!
//! *Exactly once*: the receiver's position commits in the same record as what the entry wrote. A frame says which position it continues from, and one
//! that does not fit is refused. When a link comes up, the receiver reports its position ([`Outgoing::resume`]), and the source continues from there:
//! from memory, from its log or, if the log does not reach back as far, with a full copy.
//!
//! *Incarnations*: when a node is opened, its streams begin a new incarnation, synced before anything else. If the end of the log was lost (a power
//! cut under `interval` or `none`), numbers are used again; the incarnation tells the old 101 from the new one. A receiver that is further than the
//! source remembers first sends the difference back ([`Resumption::TakeBack`]). So does a receiver that knows an incarnation of which the source,
//! having lost its directory, knows nothing. A receiver may also hold versions that the stream never brought it, but the full copy of a third site
//! did. So it reports how far those reach, beside its own position ([`Outgoing::lost`]).
//!
//! *Marks* travel behind the entries that came before them, once those are synced. Only the next one and the newest are kept, so a slow peer costs the memory of
//! two marks.
//!
//! *Memory*: the newest entries are kept in memory up to a limit, for all peers together. A peer that is further behind gets its entries from the
//! log. A peer is never sent more than a window ahead of its acknowledgement.
mod cursor;
mod lives;
mod resume;
mod times;
pub use cursor::{Cursor, CursorState, Step};
pub use lives::{Incarnation, Resumption};

use bytes::Bytes;
use cursor::gather;
use lives::Lives;
use std::collections::{BTreeMap, VecDeque};
use times::ReadyTimes;
use turnbuckle_core::{BadFrame, Hlc, Micros, ReplicaId, ReplicaSet};
use turnbuckle_log::Position;

/// A place in a stream: everything up to and including `number` of `incarnation`. (0, 0) is before everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StreamPosition {
    /// The incarnation of the source that wrote the entry.
    pub incarnation: u64,
    /// The entry's number.
    pub number: u64,
}

/// Limits of memory and frames.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// Newest entries kept in memory for peers, in bytes.
    pub tail_bytes: usize,
    /// The most that a peer is sent ahead of its acknowledgement, in bytes.
    pub window_bytes: usize,
    /// A frame that has this many bytes gets no further entry.
    pub frame_bytes: usize,
}

impl Default for StreamLimits {
    fn default() -> StreamLimits {
        StreamLimits {
            tail_bytes: 16 << 20,
            window_bytes: 8 << 20,
            frame_bytes: 64 << 10,
        }
    }
}

/// The least number of bytes of log between two entries of the index.
const INDEX_EVERY_BYTES: u64 = 64 << 10;

/// The source's side of a stream.
pub struct Outgoing {
    limits: StreamLimits,
    lives: Lives,
    next: u64,
    /// The last entry that is durable here.
    ready: u64,
    /// The newest entries; the last one is `ready`.
    tail: VecDeque<Entry>,
    tail_bytes: usize,
    /// (n, p): the log holds entry n, and those after it, at or behind p. Sparse, rising.
    index: VecDeque<(u64, Position)>,
    /// Whether the index is that of a checkpoint.
    is_restored: bool,
    cursors: BTreeMap<ReplicaId, Cursor>,
    times: ReadyTimes,
}

/// An entry of a stream.
#[derive(Clone)]
pub struct Entry {
    /// Its number among the entries of its source, counted from 1.
    pub number: u64,
    /// The replicas that it goes to.
    pub to: ReplicaSet,
    /// The entry, encoded.
    pub bytes: Bytes,
    /// The bytes that it takes at its receiver. A difference to an earlier version becomes a whole one there. Windows are limited by this, and frames by that and by their bytes.
    pub weight: usize,
}

impl Outgoing {
    /// A source that has written nothing, with these receivers.
    pub fn new(limits: StreamLimits, sites: impl Iterator<Item = ReplicaId>) -> Outgoing {
        Outgoing {
            limits,
            lives: Lives::default(),
            next: 1,
            ready: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
            index: VecDeque::new(),
            is_restored: false,
            cursors: sites.map(|replica| (replica, Cursor::default())).collect(),
            times: ReadyTimes::default(),
        }
    }

    // ---- recovery -------------------------------------------------------------------------------------------

    /// Continues from what a checkpoint remembered.
    pub fn restore(&mut self, next: u64, incarnations: Vec<Incarnation>) {
        (self.next, self.ready) = (next.max(1), next.max(1) - 1);
        self.lives = Lives::restore(incarnations);
    }

    /// Where entries are in the log, for a checkpoint to remember.
    pub fn index(&self) -> impl Iterator<Item = (u64, Position)> + '_ {
        self.index.iter().copied()
    }

    /// The index that a checkpoint remembered. Call [`Outgoing::purged`] when the log is open.
    pub fn restore_index(&mut self, index: impl Iterator<Item = (u64, Position)>) {
        self.index = index.collect();
        self.is_restored = true;
    }

    /// Takes in an entry that was found in the log at `position`, so that peers can be sent it. Those before `next` were in the checkpoint.
    pub fn replay(&mut self, entry: Entry, position: Position) -> Result<(), BadFrame> {
        if entry.number > self.next {
            let found = format!("entry {}", entry.number);
            return Err(BadFrame::new(
                "a record that continues the stream without a gap",
                found,
            ));
        }
        let is_new = entry.number == self.next;
        let is_behind = self
            .index
            .back()
            .is_some_and(|&(last, at)| last < entry.number && at < position);
        match is_new && is_behind && std::mem::take(&mut self.is_restored) {
            // The positions that the checkpoint remembered may have been purged since. Then this is the only one from which the entry is found.
            true => self.index.push_back((entry.number, position)),
            false => self.note_position(entry.number, position),
        }
        if entry.number == self.next {
            self.next = entry.number + 1;
            self.ready = entry.number;
            self.keep(entry);
        }
        Ok(())
    }

    /// Takes in an incarnation that was found in the log. It begins where the one before it had come to.
    pub fn replay_incarnation(&mut self, incarnation: Incarnation) -> Result<(), BadFrame> {
        self.lives.replay(incarnation, self.next)
    }

    /// Begins a new incarnation. The caller must write the returned incarnation down, synced, before anything else. Its number is at least `number`,
    /// which is the time of day: so it is new even if the directory with the old ones was lost.
    pub fn begin(&mut self, number: u64, clock: Hlc) -> Incarnation {
        self.lives.begin(number, self.next, clock)
    }

    // ---- the source writes ----------------------------------------------------------------------------------

    /// The number of the next entry, without taking it.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The number of the last entry that is durable.
    pub fn ready(&self) -> u64 {
        self.ready
    }

    /// The number of this incarnation; 0 before the first.
    pub fn incarnation(&self) -> u64 {
        self.lives.newest()
    }

    /// The incarnation that an entry belongs to.
    pub fn incarnation_of(&self, number: u64) -> u64 {
        self.lives.of(number)
    }

    /// The incarnations that are remembered, oldest first.
    pub fn incarnations(&self) -> &[Incarnation] {
        self.lives.all()
    }

    /// Takes the number of the next entry.
    pub fn assign(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Notes that the log holds entry `number` and what follows at or behind `position`.
    pub fn note_position(&mut self, number: u64, position: Position) {
        if self
            .index
            .back()
            .is_none_or(|&(last, at)| last < number && at.0 + INDEX_EVERY_BYTES <= position.0)
        {
            self.index.push_back((number, position));
        }
    }

    /// These entries are durable: they may be sent. Returns whether any peer waits for them.
    pub fn make_ready(&mut self, monotonic: Micros, entries: Vec<Entry>) -> bool {
        for entry in entries {
            assert_eq!(
                entry.number,
                self.ready + 1,
                "stream entries become durable in order"
            );
            self.ready = entry.number;
            self.keep(entry);
        }
        self.times.note(self.ready, monotonic);
        self.trim();
        self.cursors
            .values()
            .any(|cursor| matches!(cursor.state, CursorState::Streaming { .. }))
    }

    /// For how long the oldest entry that a peer has not acknowledged has been ready: zero if there is none.
    pub fn lag(&self, replica: ReplicaId, monotonic: Micros) -> Micros {
        let acked = self.cursors.get(&replica).map_or(0, |cursor| cursor.acked);
        match acked < self.ready {
            true => self.times.passed_since(acked + 1, monotonic),
            false => Micros(0),
        }
    }

    fn keep(&mut self, entry: Entry) {
        self.tail_bytes += entry.bytes.len();
        self.tail.push_back(entry);
        while self.tail_bytes > self.limits.tail_bytes {
            self.drop_oldest();
        }
    }

    /// Drops from memory what every connected peer has acknowledged.
    fn trim(&mut self) {
        let needed = self
            .cursors
            .values()
            .filter(|cursor| cursor.state != CursorState::Silent);
        let Some(acked) = needed.map(|cursor| cursor.acked).min() else {
            return;
        };
        while self.tail.front().is_some_and(|entry| entry.number <= acked) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.tail.pop_front() {
            self.tail_bytes -= entry.bytes.len();
        }
    }

    /// Sets the mark for these replicas, behind every durable entry so far. It replaces a mark that was not sent yet, unless that waits for entries in front of
    /// it: then both are sent.
    pub fn set_mark(&mut self, to: ReplicaSet, body: &Bytes) {
        for (&replica, cursor) in &mut self.cursors {
            if to.contains(replica) {
                cursor.set_mark(self.ready, body.clone());
            }
        }
    }

    /// Drops the marks that wait to be sent: what they promise may not be true.
    pub fn withdraw_marks(&mut self) {
        self.cursors.values_mut().for_each(Cursor::withdraw_marks);
    }

    // ---- peers ----------------------------------------------------------------------------------------------

    /// How far a receiver is.
    pub fn cursor(&mut self, replica: ReplicaId) -> Option<&mut Cursor> {
        self.cursors.get_mut(&replica)
    }

    /// How far all receivers are.
    pub fn cursors(&self) -> impl Iterator<Item = (ReplicaId, &Cursor)> {
        self.cursors.iter().map(|(&replica, cursor)| (replica, cursor))
    }

    /// The link to a receiver is down.
    pub fn silence(&mut self, replica: ReplicaId) {
        if let Some(cursor) = self.cursors.get_mut(&replica) {
            cursor.set_state(CursorState::Silent);
        }
    }

    /// The number of the oldest entry that memory or the log still holds.
    pub fn oldest(&self) -> u64 {
        let in_log = self.index.front().map(|&(number, _)| number);
        let in_memory = self.tail.front().map(|entry| entry.number);
        [in_log, in_memory]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.next)
    }

    /// The receiver holds everything up to `number` durably.
    pub fn acknowledge(&mut self, replica: ReplicaId, number: u64) {
        let ready = self.ready;
        let Some(cursor) = self.cursors.get_mut(&replica) else {
            return;
        };
        if !matches!(cursor.state, CursorState::Streaming { sent } if number <= sent && number <= ready) {
            return;
        }
        cursor.acknowledge(number);
        self.trim();
    }

    /// The next thing to send to a receiver, at most one frame.
    pub fn step(&mut self, replica: ReplicaId) -> Step {
        let Outgoing {
            limits,
            lives,
            ready,
            tail,
            index,
            cursors,
            ..
        } = self;
        let Some(cursor) = cursors.get_mut(&replica) else {
            return Step::Idle;
        };
        let CursorState::Streaming { sent } = cursor.state else {
            return Step::Idle;
        };
        if let Some((after, body)) = cursor.take_mark(sent) {
            let incarnation = lives.newest();
            return Step::Mark {
                incarnation,
                after,
                body,
            };
        }
        if sent >= *ready || cursor.in_flight_bytes() >= limits.window_bytes {
            return Step::Idle;
        }
        let first = tail.front().map_or(*ready + 1, |entry| entry.number);
        if sent + 1 < first {
            let from = match cursor.cold {
                Some(position) => position,
                None => match index.partition_point(|&(number, _)| number <= sent + 1) {
                    0 => return Step::Copy,
                    place => index[place - 1].1,
                },
            };
            return Step::ReadLog { after: sent, from };
        }
        cursor.cold = None;
        let until = cursor.mark_or(*ready);
        let entries = tail
            .range((sent + 1 - first) as usize..)
            .take_while(|entry| entry.number <= until);
        let frame = gather(lives, replica, sent, entries, limits.frame_bytes);
        cursor.sent(&frame);
        frame
    }

    /// The next frame from entries that were read from the log; `next` is the position to read on from. The entries may begin before what is needed
    /// and end after what is durable.
    pub fn step_from_log(&mut self, replica: ReplicaId, read: &[Entry], next: Position) -> Step {
        let Outgoing {
            limits,
            lives,
            ready,
            cursors,
            ..
        } = self;
        let Some(cursor) = cursors.get_mut(&replica) else {
            return Step::Idle;
        };
        let CursorState::Streaming { sent } = cursor.state else {
            return Step::Idle;
        };
        let until = cursor.mark_or(*ready);
        let entries = read
            .iter()
            .filter(|entry| entry.number > sent)
            .take_while(|entry| entry.number <= until);
        let frame = gather(lives, replica, sent, entries, limits.frame_bytes);
        match &frame {
            Step::Entries { last, .. } => {
                let all_sent = read.last().is_none_or(|entry| entry.number <= *last);
                if all_sent {
                    cursor.cold = Some(next);
                }
            }
            _ => cursor.cold = Some(next),
        }
        cursor.sent(&frame);
        frame
    }

    /// The log position from which on records may still be needed: by peers that are sent something or, if `absent`, by all peers. `None` if none are
    /// needed.
    pub fn needed(&self, absent: bool) -> Option<Position> {
        let needs = self.cursors.values().filter_map(|cursor| match cursor.state {
            // If `absent`, entries before the copy are kept: a row may be damaged before the copy is there, and no other replica may have it. What
            // the log has of it can still be streamed.
            CursorState::Copying { resume } if !absent => Some(resume),
            CursorState::Silent if !absent => None,
            _ => Some(cursor.acked),
        });
        let after = needs.min()?;
        // Entries that are appended and not durable yet count: the index may name only what comes before and after them.
        if after + 1 >= self.next {
            return None;
        }
        let place = self.index.partition_point(|&(number, _)| number <= after + 1);
        Some(
            self.index
                .get(place.saturating_sub(1))
                .map_or(Position(0), |&(_, position)| position),
        )
    }

    /// The log begins at `start` now.
    pub fn purged(&mut self, start: Position) {
        // The first index entry must stay true: the entry that it names, and all that follow, are still there.
        while self.index.front().is_some_and(|&(_, position)| position < start) {
            self.index.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
