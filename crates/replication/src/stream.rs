//! The durable stream of one lane: what `replicate` means.
//!
//! Every lane is the **source** of one stream and a **receiver** of one from each other site. The entries of a stream are
//! versions, numbered from 1 without gaps; they lie in the source's commit log, and nowhere else on disk.
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
//! *Exactly once*: the receiver's position commits in the same record as what the entry wrote; a frame says which
//! position it continues from, and one that does not fit is refused. When a link comes up the receiver says where it
//! is ([`Outgoing::resume`]), and the source goes on from there: from memory, from its log, or, where the log does not
//! reach back so far, with a full copy.
//!
//! *Incarnations*: when a node is opened its streams begin a new incarnation, synced before anything else. If the end of the log
//! was lost (a power cut under `interval` or `none`), numbers are used again; the incarnation tells the old 101 from the new one.
//! A receiver that is further than the source remembers gives the difference back first ([`Resumption::TakeBack`]); so does
//! one that knows a life of which the source, having lost its directory, knows nothing. A receiver may also hold what the stream never brought
//! it: the full copy of a third site did. So it says how far that goes, beside where it is ([`Outgoing::lost`]).
//!
//! *Marks* travel behind the entries that came before them, once those are synced. Only the newest one is kept, so a slow peer
//! costs one.
//!
//! *Memory*: the newest entries are kept in memory up to a limit, for all peers together; a peer that lags further is fed
//! from the log. A peer is never sent more than a window ahead of its acknowledgement.
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{BadFrame, Hlc, Micros, ReplicaId, ReplicaSet};
use turnbuckle_log::Position;

/// A place in a stream: everything up to and including `number` of `incarnation`. (0, 0) is before everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StreamPosition {
    /// Which life of the source wrote it.
    pub incarnation: u64,
    /// The entry's number.
    pub number: u64,
}

/// One life of a stream's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incarnation {
    /// 1 for the first.
    pub number: u64,
    /// The number of its first entry.
    pub start: u64,
    /// The source had stamped nothing that it still knew of above this when the incarnation began, and knew everything below.
    pub clock: Hlc,
}

/// How far memory and frames may go.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// Newest entries kept in memory for peers, in bytes.
    pub tail_bytes: usize,
    /// How far a peer is sent ahead of its acknowledgement, in bytes.
    pub window_bytes: usize,
    /// The most of one frame, in bytes, unless a single entry is larger.
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

/// How many incarnations are remembered; a receiver that comes from before them gets a full copy.
const MOST_INCARNATIONS: usize = 64;

/// How finely lag is measured, and over how many steps: 20 ms to a minute and a half. A longer lag counts as that much.
const LAG_RESOLUTION: Micros = Micros::from_millis(20);
const MOST_TIMES: usize = 4096;

/// How many bytes of log lie between two entries of the index.
const INDEX_EVERY_BYTES: u64 = 64 << 10;

/// The source's side of a stream.
pub struct Outgoing {
    limits: StreamLimits,
    incarnations: Vec<Incarnation>,
    next: u64,
    /// The last entry that is durable here.
    ready: u64,
    /// The newest entries; the last one is `ready`.
    tail: VecDeque<Entry>,
    tail_bytes: usize,
    /// (n, p): the log holds entry n, and those after it, at or behind p. Sparse, rising.
    index: VecDeque<(u64, Position)>,
    /// The index is that of a checkpoint.
    is_restored: bool,
    cursors: BTreeMap<ReplicaId, Cursor>,
    /// (n, t): entry n was ready at t, in monotonic time. Sparse, rising: what lag is measured by.
    times: VecDeque<(u64, Micros)>,
}

/// An entry on its way.
#[derive(Clone)]
pub struct Entry {
    /// Its place among those of its source, counted from 1.
    pub number: u64,
    /// The sites it goes to.
    pub to: ReplicaSet,
    /// What it is, encoded.
    pub bytes: Bytes,
}

/// How far one peer is.
#[derive(Default)]
pub struct Cursor {
    /// What the peer is being sent.
    pub state: CursorState,
    /// What the peer has said it holds durably.
    pub acked: u64,
    /// What was sent and not yet acknowledged: (last number of a frame, its bytes).
    in_flight: VecDeque<(u64, usize)>,
    in_flight_bytes: usize,
    /// The newest mark not yet sent, and the entry it travels behind.
    mark: Option<(u64, Bytes)>,
    /// Where in the log to read on, for a peer that is behind the tail.
    pub cold: Option<Position>,
    /// In this life the peer has given back what it held up to here by copies of third sites.
    pub gave: StreamPosition,
    /// The receiver is told first that the stream goes on from here, since what was lost is taken back. It goes the way of the entries: what is sent
    /// one by one could come behind them.
    pub begins: Option<StreamPosition>,
    /// The number of the last [`ResumeFrame`](crate::ResumeFrame) that came from the peer.
    pub heard_word: u64,
}

impl CursorState {
    /// Whether the peer gives back what was lost here.
    pub fn takes_back(self) -> bool {
        matches!(
            self,
            CursorState::TakingBack { .. } | CursorState::TakingHeld { .. }
        )
    }
}

/// What a peer is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CursorState {
    /// Nothing: no link, or it has not said where it is.
    #[default]
    Silent,
    /// It gives back what was lost here; afterwards it counts as being at this number, or gets a full copy.
    TakingBack {
        /// Where it counts as being afterwards; none if it gets a full copy.
        end: Option<u64>,
    },
    /// It gives back what it holds of this up to `held`, by full copies of third sites; afterwards it says once more that it is at `at`.
    TakingHeld {
        /// Where it has said that it is.
        at: StreamPosition,
        /// How far what it holds may go.
        held: StreamPosition,
    },
    /// A full copy; the log behind this number is kept for what follows.
    Copying {
        /// Entries follow behind this number.
        resume: u64,
    },
    /// Entries behind `sent`.
    Streaming {
        /// The last one that was sent.
        sent: u64,
    },
}

/// How to go on with a receiver that says where it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Resumption {
    /// Entries follow.
    Stream,
    /// It knows more than the source: first it gives back what was stamped after `since`; once the source holds that durably,
    /// it counts as being at `end`. If nobody knows where that is, it gets a full copy.
    TakeBack {
        /// What was stamped after this is given back.
        since: Hlc,
        /// Where the receiver counts as being then, if that is known.
        end: Option<StreamPosition>,
    },
    /// The log does not reach back to it.
    Copy,
    /// It has seen more of the stream than there ever was, as far as this side knows: the source's directory was lost, or
    /// replaced by an older one.
    FromTheFuture,
}

/// What to send next.
pub enum Step {
    /// Nothing now.
    Idle,
    /// Entries, from the tail.
    Entries {
        /// Of this life.
        incarnation: u64,
        /// They continue behind this number.
        previous: u64,
        /// The number of the last one, or of the last that is skipped.
        last: u64,
        /// The entries, encoded.
        entries: Vec<Bytes>,
        /// The entries' numbers, if some are skipped.
        numbers: Vec<u64>,
    },
    /// A mark.
    Mark {
        /// Of this life.
        incarnation: u64,
        /// It travels behind this entry.
        after: u64,
        /// The message, encoded.
        body: Bytes,
    },
    /// The entries behind this number have to be read from the log, from this position on.
    ReadLog {
        /// The last entry that was sent.
        after: u64,
        /// Where to read on.
        from: Position,
    },
    /// They are no longer in the log.
    Copy,
}

impl Outgoing {
    /// A source that has written nothing, with receivers at these sites.
    pub fn new(limits: StreamLimits, sites: impl Iterator<Item = ReplicaId>) -> Outgoing {
        Outgoing {
            limits,
            incarnations: Vec::new(),
            next: 1,
            ready: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
            index: VecDeque::new(),
            is_restored: false,
            cursors: sites.map(|replica| (replica, Cursor::default())).collect(),
            times: VecDeque::new(),
        }
    }

    // ---- recovery -------------------------------------------------------------------------------------------

    /// Continues from what a checkpoint remembered.
    pub fn restore(&mut self, next: u64, incarnations: Vec<Incarnation>) {
        (self.next, self.ready, self.incarnations) = (next.max(1), next.max(1) - 1, incarnations);
    }

    /// Where entries lie in the log, for a checkpoint to remember.
    pub fn index(&self) -> impl Iterator<Item = (u64, Position)> + '_ {
        self.index.iter().copied()
    }

    /// The index that a checkpoint remembered. Call [`Outgoing::purged`] when the log is open.
    pub fn restore_index(&mut self, index: impl Iterator<Item = (u64, Position)>) {
        self.index = index.collect();
        self.is_restored = true;
    }

    /// An entry found in the log at `position` is at hand for peers. Those before `next` were in the checkpoint.
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
            // What the checkpoint remembered may have been purged since, and with it the only place from which this one is found.
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

    /// A life found in the log. It begins where the one before has come to.
    pub fn replay_incarnation(&mut self, incarnation: Incarnation) -> Result<(), BadFrame> {
        let last = self.incarnations.last().copied();
        if last.is_some_and(|last| incarnation.number <= last.number) {
            return Ok(());
        }
        let earliest = last.map_or(1, |last| last.start);
        if !(earliest..=self.next).contains(&incarnation.start) {
            let found = format!("one from entry {} to {}", incarnation.start, self.next);
            return Err(BadFrame::new(
                "an incarnation that begins where the stream is",
                found,
            ));
        }
        self.push_incarnation(incarnation);
        Ok(())
    }

    /// Begins a new life; the caller writes the returned incarnation down, synced, before anything else. Its number is at
    /// least `number`, which is the time of day: so it is a new one even where the directory with the old ones was lost.
    pub fn begin(&mut self, number: u64, clock: Hlc) -> Incarnation {
        let number = number.max(self.incarnation() + 1);
        let incarnation = Incarnation {
            number,
            start: self.next,
            clock,
        };
        self.push_incarnation(incarnation);
        incarnation
    }

    fn push_incarnation(&mut self, incarnation: Incarnation) {
        self.incarnations.push(incarnation);
        if self.incarnations.len() > MOST_INCARNATIONS {
            self.incarnations.remove(0);
        }
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

    /// The number of this life; 0 before the first.
    pub fn incarnation(&self) -> u64 {
        self.incarnations.last().map_or(0, |last| last.number)
    }

    /// The incarnation that an entry belongs to.
    pub fn incarnation_of(&self, number: u64) -> u64 {
        let place = self.incarnations.partition_point(|life| life.start <= number);
        self.incarnations
            .get(place.max(1) - 1)
            .map_or(0, |life| life.number)
    }

    /// The lives that are remembered, oldest first.
    pub fn incarnations(&self) -> &[Incarnation] {
        &self.incarnations
    }

    /// The number of the next entry.
    pub fn assign(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The log holds entry `number` and what follows at or behind `position`.
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
        self.note_time(monotonic);
        self.trim();
        self.cursors
            .values()
            .any(|cursor| matches!(cursor.state, CursorState::Streaming { .. }))
    }

    fn note_time(&mut self, monotonic: Micros) {
        if self
            .times
            .back()
            .is_none_or(|&(_, at)| monotonic.since(at) >= LAG_RESOLUTION)
        {
            self.times.push_back((self.ready, monotonic));
            if self.times.len() > MOST_TIMES {
                self.times.pop_front();
            }
        }
    }

    /// For how long the oldest entry that a peer has not acknowledged has been ready: zero if there is none.
    pub fn lag(&self, replica: ReplicaId, monotonic: Micros) -> Micros {
        let acked = self.cursors.get(&replica).map_or(0, |cursor| cursor.acked);
        if acked >= self.ready {
            return Micros(0);
        }
        let place = self.times.partition_point(|&(number, _)| number <= acked);
        self.times
            .get(place)
            .or(self.times.back())
            .map_or(Micros(0), |&(_, at)| monotonic.since(at))
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

    /// A mark for these sites, behind every entry so far. Returns whether anybody can be sent it.
    pub fn set_mark(&mut self, to: ReplicaSet, body: &Bytes) {
        for (&replica, cursor) in &mut self.cursors {
            if to.contains(replica) {
                cursor.mark = Some((self.ready, body.clone()));
            }
        }
    }

    /// Drops the marks that wait to be sent: what they promise may not be true.
    pub fn withdraw_marks(&mut self) {
        self.cursors.values_mut().for_each(|cursor| cursor.mark = None);
    }

    // ---- peers ----------------------------------------------------------------------------------------------

    /// How far the receiver at a site is.
    pub fn cursor(&mut self, replica: ReplicaId) -> Option<&mut Cursor> {
        self.cursors.get_mut(&replica)
    }

    /// How far all receivers are.
    pub fn cursors(&self) -> impl Iterator<Item = (ReplicaId, &Cursor)> {
        self.cursors.iter().map(|(&replica, cursor)| (replica, cursor))
    }

    /// The link to the receiver at a site is down.
    pub fn silence(&mut self, replica: ReplicaId) {
        if let Some(cursor) = self.cursors.get_mut(&replica) {
            cursor.set_state(CursorState::Silent);
        }
    }

    /// A receiver says where it is. `forgets`: this side may have forgotten deletes, of any site.
    pub fn resume(&mut self, replica: ReplicaId, at: StreamPosition, forgets: bool) -> Resumption {
        // One that has nothing is new, or has lost its directory, or waits for a full copy since it gave back what was lost here. The log may still
        // hold what the receiver itself deleted since, and nobody would give it that delete.
        let has_nothing = at.number == 0 && at.incarnation < self.incarnation();
        let resumption = match has_nothing && self.next > 1 && forgets && !self.is_of_another_life(at) {
            true => Resumption::Copy,
            false => self.resumption(at),
        };
        let oldest = self.oldest();
        let Some(cursor) = self.cursors.get_mut(&replica) else {
            return Resumption::FromTheFuture;
        };
        let (state, resumption) = match resumption {
            Resumption::Stream if at.number + 1 >= oldest => {
                (CursorState::Streaming { sent: at.number }, Resumption::Stream)
            }
            Resumption::Stream => (CursorState::Silent, Resumption::Copy),
            Resumption::TakeBack { since, end } => {
                let number = end.map(|end| end.number);
                (
                    CursorState::TakingBack { end: number },
                    Resumption::TakeBack { since, end },
                )
            }
            other => (CursorState::Silent, other),
        };
        cursor.set_state(state);
        if let CursorState::Streaming { sent } = state {
            cursor.acked = sent;
        }
        resumption
    }

    /// A receiver that has taken in the stream up to `has` is to be sent a full copy, and then what follows `resume`.
    pub fn copy(&mut self, replica: ReplicaId, has: u64, resume: u64) {
        if let Some(cursor) = self.cursors.get_mut(&replica) {
            cursor.acked = cursor.acked.min(has);
            cursor.set_state(CursorState::Copying { resume });
        }
    }

    /// Whether a position lies in a life of which this side knows nothing: its directory was lost since.
    pub fn is_of_another_life(&self, at: StreamPosition) -> bool {
        let is_known = |life: &Incarnation| life.number == at.incarnation;
        let may_be_known = at == StreamPosition::default() || self.incarnations.len() == MOST_INCARNATIONS;
        !may_be_known && !self.incarnations.iter().any(is_known)
    }

    /// A receiver may hold, by full copies of third sites, what was written up to `held`. If some of that was lost here: what was stamped
    /// after this is to be given back.
    pub fn lost(&self, replica: ReplicaId, held: StreamPosition) -> Option<Hlc> {
        if self
            .cursors
            .get(&replica)
            .is_some_and(|cursor| cursor.gave >= held)
        {
            return None;
        }
        match self.resumption(held) {
            Resumption::TakeBack { since, .. } => Some(since),
            Resumption::FromTheFuture => Some(Hlc::ZERO),
            Resumption::Stream | Resumption::Copy => None,
        }
    }

    /// Whether a receiver that is there has entries that this side lost.
    pub fn has_lost(&self, at: StreamPosition) -> bool {
        matches!(
            self.resumption(at),
            Resumption::TakeBack { .. } | Resumption::FromTheFuture
        )
    }

    fn resumption(&self, at: StreamPosition) -> Resumption {
        if at == StreamPosition::default() {
            return Resumption::Stream;
        }
        let Some(newest) = self.incarnations.last() else {
            return Resumption::FromTheFuture;
        };
        if at.incarnation > newest.number {
            return Resumption::FromTheFuture;
        }
        let place = match self
            .incarnations
            .binary_search_by_key(&at.incarnation, |life| life.number)
        {
            Ok(place) => place,
            // So long ago that it is forgotten.
            Err(0) if self.incarnations.len() == MOST_INCARNATIONS => return Resumption::Copy,
            // From a life of which this side knows nothing: its directory was lost.
            Err(0) => return self.take_back(at.incarnation, 0, Hlc::ZERO),
            // And this one is an old copy. It may have been made before numbers began anew in an empty one: what the receiver has of the lives
            // before is not known.
            Err(_) => {
                let (since, end) = (Hlc::ZERO, None);
                return Resumption::TakeBack { since, end };
            }
        };
        match self.incarnations.get(place + 1) {
            // It stopped where that life ended, or before.
            Some(after) if at.number < after.start => Resumption::Stream,
            // It has entries that this side lost.
            Some(after) => self.take_back(at.incarnation, place + 1, after.clock),
            None if at.number < self.next => Resumption::Stream,
            None => Resumption::FromTheFuture,
        }
    }

    /// Afterwards the receiver counts as having stopped where the life at `next` begins.
    fn take_back(&self, incarnation: u64, next: usize, since: Hlc) -> Resumption {
        let number = self.incarnations[next].start - 1;
        Resumption::TakeBack {
            since,
            end: Some(StreamPosition { incarnation, number }),
        }
    }

    /// The oldest entry that memory or the log still holds.
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
        cursor.acked = cursor.acked.max(number);
        while let Some(&(last, bytes)) = cursor.in_flight.front()
            && last <= cursor.acked
        {
            cursor.in_flight.pop_front();
            cursor.in_flight_bytes -= bytes;
        }
        self.trim();
    }

    /// The next thing to send to a site, at most one frame.
    pub fn step(&mut self, replica: ReplicaId) -> Step {
        let Outgoing {
            limits,
            incarnations,
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
        if let Some((after, _)) = cursor.mark
            && after <= sent
        {
            let (after, body) = cursor.mark.take().expect("just seen");
            let incarnation = incarnations.last().map_or(0, |life| life.number);
            return Step::Mark {
                incarnation,
                after,
                body,
            };
        }
        if sent >= *ready || cursor.in_flight_bytes >= limits.window_bytes {
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
        let until = mark_or(cursor, *ready);
        let entries = tail
            .range((sent + 1 - first) as usize..)
            .take_while(|entry| entry.number <= until);
        let frame = gather(incarnations, replica, sent, entries, limits.frame_bytes);
        cursor.sent(&frame);
        frame
    }

    /// The next frame from entries read from the log; `next` is where to read on. The entries may begin before what is
    /// needed and end after what is durable.
    pub fn step_from_log(&mut self, replica: ReplicaId, read: &[Entry], next: Position) -> Step {
        let Outgoing {
            limits,
            incarnations,
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
        let until = mark_or(cursor, *ready);
        let entries = read
            .iter()
            .filter(|entry| entry.number > sent)
            .take_while(|entry| entry.number <= until);
        let frame = gather(incarnations, replica, sent, entries, limits.frame_bytes);
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

    /// From which log position on records may still be needed, by peers that are fed or, if `absent` counts, by all.
    pub fn needed(&self, absent: bool) -> Option<Position> {
        let needs = self.cursors.values().filter_map(|cursor| match cursor.state {
            // A row may be damaged before the copy is there, and nobody else has it: what the log has of it can be streamed.
            CursorState::Copying { resume } if !absent => Some(resume),
            CursorState::Silent if !absent => None,
            _ => Some(cursor.acked),
        });
        let after = needs.min()?;
        // What is appended and not durable yet counts: the index may name only what comes before and after it.
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
        // The first index entry must stay true: what it names, and all that follows, is still there.
        while self.index.front().is_some_and(|&(_, position)| position < start) {
            self.index.pop_front();
        }
    }
}

/// Entries go no further than the mark that waits, so that it does not starve behind a stream that never ends.
fn mark_or(cursor: &Cursor, ready: u64) -> u64 {
    cursor.mark.as_ref().map_or(ready, |&(after, _)| after.min(ready))
}

/// One frame of consecutive entries: of one incarnation, for one site, not much larger than `most_bytes`.
fn gather<'a>(
    incarnations: &[Incarnation],
    replica: ReplicaId,
    sent: u64,
    entries: impl Iterator<Item = &'a Entry>,
    most_bytes: usize,
) -> Step {
    let place = incarnations.partition_point(|life| life.start <= sent + 1);
    let incarnation = incarnations[place.max(1) - 1].number;
    let until = incarnations.get(place).map_or(u64::MAX, |next| next.start - 1);
    let (mut last, mut bytes, mut gathered, mut numbers) = (sent, 0, Vec::new(), Vec::new());
    for entry in entries.take_while(|entry| entry.number <= until) {
        if bytes >= most_bytes {
            break;
        }
        assert_eq!(entry.number, last + 1, "stream entries are sent without gaps");
        last = entry.number;
        if entry.to.contains(replica) {
            bytes += entry.bytes.len();
            gathered.push(entry.bytes.clone());
            numbers.push(entry.number);
        }
    }
    if last == sent {
        return Step::Idle;
    }
    if gathered.len() as u64 == last - sent {
        numbers.clear();
    }
    Step::Entries {
        incarnation,
        previous: sent,
        last,
        entries: gathered,
        numbers,
    }
}

impl Cursor {
    /// From now on the peer is sent something else.
    pub fn set_state(&mut self, state: CursorState) {
        self.state = state;
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.cold = None;
        self.begins = None;
    }

    fn sent(&mut self, frame: &Step) {
        let Step::Entries { last, entries, .. } = frame else {
            return;
        };
        let bytes = entries.iter().map(|entry| entry.len() + 16).sum();
        self.in_flight.push_back((*last, bytes));
        self.in_flight_bytes += bytes;
        self.state = CursorState::Streaming { sent: *last };
    }
}

#[cfg(test)]
mod tests;
