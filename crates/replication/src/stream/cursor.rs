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
    /// What the peer has said it holds durably.
    pub acked: u64,
    /// What was sent and not yet acknowledged: (last number of a frame, its bytes).
    in_flight: VecDeque<(u64, usize)>,
    in_flight_bytes: usize,
    /// The newest mark not yet sent, and the entry it travels behind.
    pub(super) mark: Option<(u64, Bytes)>,
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

impl Cursor {
    /// From now on the peer is sent something else.
    pub fn set_state(&mut self, state: CursorState) {
        self.state = state;
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.cold = None;
        self.begins = None;
    }

    /// Entries go no further than the mark that waits, so that it does not starve behind a stream that never ends.
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

    /// The mark that is next, if all entries in front of it are sent.
    pub(super) fn take_mark(&mut self, sent: u64) -> Option<(u64, Bytes)> {
        self.mark.take_if(|(after, _)| *after <= sent)
    }

    /// How many bytes were sent and are not acknowledged.
    pub(super) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// A frame goes out.
    pub(super) fn sent(&mut self, frame: &Step) {
        let Step::Entries { last, entries, .. } = frame else {
            return;
        };
        let bytes = entries.iter().map(|entry| entry.len() + 16).sum();
        self.in_flight.push_back((*last, bytes));
        self.in_flight_bytes += bytes;
        self.state = CursorState::Streaming { sent: *last };
    }
}

/// One frame of consecutive entries: of one incarnation, for one site, not much larger than `max_bytes`.
pub(super) fn gather<'a>(
    lives: &Lives,
    replica: ReplicaId,
    sent: u64,
    entries: impl Iterator<Item = &'a Entry>,
    max_bytes: usize,
) -> Step {
    let (incarnation, until) = (lives.of(sent + 1), lives.last_of(sent + 1));
    let (mut last, mut bytes, mut gathered, mut numbers) = (sent, 0, Vec::new(), Vec::new());
    for entry in entries.take_while(|entry| entry.number <= until) {
        if bytes >= max_bytes {
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
