//! The line of connections that have done a share of work and have more to do. It limits how much work is done in one turn.
//!
//! Sixty connections with long commands, each read from whenever bytes have come, would make every turn of the loop last as long as sixty reads: some
//! milliseconds, for which all other clients wait. So a connection whose read or write was as long as it may be joins the line. A turn serves the
//! line until [`TURN_BYTES`] have been read, copied and written. A connection that still has more goes to the end of the line. A share that asks
//! replicas for something counts as a whole turn.
use std::collections::VecDeque;

/// The most that is read, copied or written for one connection at a time.
pub(super) const SHARE_BYTES: usize = 64 << 10;

/// After this many bytes the line waits for the next turn. They take about a tenth of a millisecond.
pub(super) const TURN_BYTES: usize = 256 << 10;

/// Slots of clients, first come, first served.
#[derive(Default)]
pub(super) struct Line {
    slots: VecDeque<usize>,
    /// How many bytes were done in this turn.
    bytes: usize,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn join(&mut self, slot: usize) {
        self.slots.push_back(slot);
    }

    pub fn begin_turn(&mut self) {
        self.bytes = 0;
    }

    /// The next client to do a share. `None` if enough was done in this turn, or the line is empty.
    pub fn next(&mut self) -> Option<usize> {
        match self.bytes < TURN_BYTES {
            true => self.slots.pop_front(),
            false => None,
        }
    }

    /// Notes that the client has read, copied and written this many bytes.
    pub fn did(&mut self, bytes: usize) {
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns in which every client reads a share and has more to do. Returns the bytes by turn and by client.
    fn turns(line: &mut Line, turns: usize, clients: usize, share: usize) -> (Vec<usize>, Vec<usize>) {
        let (mut by_turn, mut by_client) = (Vec::new(), vec![0; clients]);
        for _ in 0..turns {
            line.begin_turn();
            let mut bytes = 0;
            while let Some(slot) = line.next() {
                line.did(share);
                by_client[slot] += share;
                bytes += share;
                line.join(slot);
            }
            by_turn.push(bytes);
        }
        (by_turn, by_client)
    }

    #[test]
    fn a_turn_is_bounded_however_many_want_more_and_everybody_gets_the_same() {
        let mut line = Line::default();
        (0..60).for_each(|slot| line.join(slot));
        let (by_turn, by_client) = turns(&mut line, 150, 60, SHARE_BYTES);
        assert!(by_turn.iter().all(|&bytes| bytes == TURN_BYTES), "{by_turn:?}");
        assert!(
            by_client.iter().all(|&bytes| bytes == 10 * SHARE_BYTES),
            "{by_client:?}"
        );
    }

    #[test]
    fn what_counts_as_a_turn_is_done_once_in_it() {
        let mut line = Line::default();
        (0..3).for_each(|slot| line.join(slot));
        let (by_turn, by_client) = turns(&mut line, 6, 3, TURN_BYTES);
        assert_eq!(
            (by_turn, by_client),
            (vec![TURN_BYTES; 6], vec![2 * TURN_BYTES; 3])
        );
    }

    #[test]
    fn who_has_nothing_more_leaves_the_turn_to_others() {
        let mut line = Line::default();
        (0..3).for_each(|slot| line.join(slot));
        line.begin_turn();
        for slot in 0..3 {
            assert_eq!(line.next(), Some(slot));
            line.did(0);
        }
        assert_eq!((line.next(), line.is_empty()), (None, true));
    }
}
