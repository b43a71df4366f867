//! How far a receiver is, and what it is sent next.
use super::{Entry, StreamPosition, lives::Lives};
use bytes::Bytes;
use std::collections::VecDeque;
use turnbuckle_core::ReplicaId;
use turnbuckle_log::Position;

/// How far one peer is.
#[derive(Default)]
pub struct Cursor {
    /// What the peer is being sent.
    pub state: CursorState,
    /// The number of the last entry that the peer has said it holds durably.
    pub acked: u64,
    /// What was sent and not yet acknowledged: (last number of a frame, its bytes).
    in_flight: VecDeque<(u64, usize)>,
    in_flight_bytes: usize,
    /// The mark that is sent next, and the entry it travels behind.
    mark: Option<(u64, Bytes)>,
    /// The newest mark, if another one still waits for entries in front of it. If the newest took its place each time, none would be sent while entries come
    /// in as fast as they are sent.
    newest_mark: Option<(u64, Bytes)>,
    /// Where in the log to read on, for a peer that is behind the tail.
    pub cold: Option<Position>,
    /// The position up to which the peer has sent back, in this incarnation, what it held through full copies from third sites.
    pub gave: StreamPosition,
    /// If this is set, the receiver is told first that the stream continues from this position, because what was lost is taken back. The message goes
    /// the way of the entries: one that is sent by itself could come behind them.
    pub begins: Option<StreamPosition>,
    /// The number of the last [`ResumeFrame`](crate::ResumeFrame) that came from the peer.
    pub heard_word: u64,
}

impl CursorState {
    /// Whether the peer sends back what was lost here.
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
    /// Nothing: there is no link, or the peer has not reported its position.
    #[default]
    Silent,
    /// Nothing: the peer sends back what was lost here. Afterwards it counts as being at this number, or gets a full copy.
    TakingBack {
        /// The number at which it counts as being afterwards; `None` if it gets a full copy.
        end: Option<u64>,
    },
    /// Nothing: the peer sends back what it holds of this stream up to `held`, through full copies from third sites. Afterwards it reports once more
    /// that it is at `at`.
    TakingHeld {
        /// The position that it has reported.
        at: StreamPosition,
        /// How far in the stream what it holds may reach.
        held: StreamPosition,
    },
    /// A full copy. The log behind this number is kept for what follows.
    Copying {
        /// Entries follow behind this number.
        resume: u64,
    },
    /// Entries behind `sent`.
    Streaming {
        /// The number of the last entry that was sent.
        sent: u64,
    },
}

/// What to send next.
pub enum Step {
    /// Nothing now.
    Idle,
    /// Entries.
    Entries {
        /// The incarnation that they belong to.
        incarnation: u64,
        /// They continue behind this number.
        previous: u64,
        /// The number of the last one, or of the last one that is skipped.
        last: u64,
        /// The entries, encoded.
        entries: Vec<Bytes>,
        /// The entries' numbers, if some are skipped.
        numbers: Vec<u64>,
        /// The bytes that the entries take at the receiver.
        weight: usize,
    },
    /// A mark.
    Mark {
        /// The incarnation of the source.
        incarnation: u64,
        /// The number of the entry that it travels behind.
        after: u64,
        /// The message, encoded.
        body: Bytes,
    },
    /// The entries behind this number must be read from the log, from this position on.
    ReadLog {
        /// The number of the last entry that was sent.
        after: u64,
        /// The position to read on from.
        from: Position,
    },
    /// A full copy: the entries are no longer in the log.
    Copy,
}

impl Cursor {
    /// Sets what the peer is sent from now on.
    pub fn set_state(&mut self, state: CursorState) {
        self.state = state;
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.cold = None;
        self.begins = None;
    }

    /// The last entry that may be sent now. Entries go no further than the mark that waits, so that it does not starve behind a stream that never
    /// ends.
    pub(super) fn mark_or(&self, ready: u64) -> u64 {
        self.mark.as_ref().map_or(ready, |&(after, _)| after.min(ready))
    }

    /// The receiver holds everything up to `number` durably.
    pub(super) fn acknowledge(&mut self, number: u64) {
        self.acked = self.acked.max(number);
        while let Some(&(last, bytes)) = self.in_flight.front()
            && last <= self.acked
        {
            self.in_flight.pop_front();
            self.in_flight_bytes -= bytes;
        }
    }

    /// Sets the newest mark, behind the entry `after`. One that can be sent before it is kept.
    pub(super) fn set_mark(&mut self, after: u64, body: Bytes) {
        let is_first = match (&self.state, &self.mark) {
            (CursorState::Streaming { sent }, Some((waits_for, _))) => *sent < after && *waits_for < after,
            _ => false,
        };
        let mark = Some((after, body));
        match is_first {
            true => self.newest_mark = mark,
            false => (self.mark, self.newest_mark) = (mark, None),
        }
    }

    /// Drops the marks that are not sent yet.
    pub(super) fn withdraw_marks(&mut self) {
        (self.mark, self.newest_mark) = (None, None);
    }

    /// The mark that is next, if all entries in front of it are sent.
    pub(super) fn take_mark(&mut self, sent: u64) -> Option<(u64, Bytes)> {
        let mark = self.mark.take_if(|(after, _)| *after <= sent)?;
        self.mark = self.newest_mark.take();
        Some(mark)
    }

    /// The number of bytes that were sent and are not acknowledged.
    pub(super) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Notes that a frame is sent.
    pub(super) fn sent(&mut self, frame: &Step) {
        let Step::Entries {
            last,
            entries,
            weight,
            ..
        } = frame
        else {
            return;
        };
        let bytes = weight + 16 * entries.len();
        self.in_flight.push_back((*last, bytes));
        self.in_flight_bytes += bytes;
        self.state = CursorState::Streaming { sent: *last };
    }
}

/// The entries of a frame may weigh this many times the limit of its bytes. If they might only weigh as much as that limit, a receiver that lags would get large shares one by one, and the log is read anew for each frame.
const WEIGHS_TIMES: usize = 16;

/// One frame of consecutive entries: of one incarnation, for one receiver. It gets no further entry once it has `max_bytes`, or once its entries weigh [`WEIGHS_TIMES`] as much.
pub(super) fn gather<'a>(
    lives: &Lives,
    replica: ReplicaId,
    sent: u64,
    entries: impl Iterator<Item = &'a Entry>,
    max_bytes: usize,
) -> Step {
    let (incarnation, until) = (lives.of(sent + 1), lives.last_of(sent + 1));
    let (mut last, mut gathered, mut numbers) = (sent, Vec::new(), Vec::new());
    let (mut bytes, mut weight) = (0, 0);
    for entry in entries.take_while(|entry| entry.number <= until) {
        if bytes >= max_bytes || weight >= WEIGHS_TIMES * max_bytes {
            break;
        }
        assert_eq!(entry.number, last + 1, "stream entries are sent without gaps");
        last = entry.number;
        if entry.to.contains(replica) {
            bytes += entry.bytes.len();
            weight = entry.weight.max(entry.bytes.len()).saturating_add(weight);
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
        weight,
    }
}
