//! The lives of a stream's source, and what a receiver's place says about them.
use super::StreamPosition;
use turnbuckle_core::{BadFrame, Hlc};

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

/// How many incarnations are remembered; a receiver that comes from before them gets a full copy.
const MAX_INCARNATIONS: usize = 64;

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

/// The lives that a source remembers, oldest first. Their numbers rise, and none begins before the one in front of it.
#[derive(Default)]
pub(super) struct Lives(Vec<Incarnation>);

impl Lives {
    /// As a checkpoint remembered them.
    pub fn restore(lives: Vec<Incarnation>) -> Lives {
        Lives(lives)
    }

    /// All of them.
    pub fn all(&self) -> &[Incarnation] {
        &self.0
    }

    /// The number of the newest; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.0.last().map_or(0, |last| last.number)
    }

    /// The number of the life that an entry belongs to.
    pub fn of(&self, entry: u64) -> u64 {
        let place = self.0.partition_point(|life| life.start <= entry);
        self.0.get(place.max(1) - 1).map_or(0, |life| life.number)
    }

    /// The number of the last entry of the life that an entry belongs to.
    pub fn last_of(&self, entry: u64) -> u64 {
        let place = self.0.partition_point(|life| life.start <= entry);
        self.0.get(place).map_or(u64::MAX, |next| next.start - 1)
    }

    /// A new life begins with the entry `start`. Its number is at least `number`.
    pub fn begin(&mut self, number: u64, start: u64, clock: Hlc) -> Incarnation {
        let number = number.max(self.newest() + 1);
        let incarnation = Incarnation { number, start, clock };
        self.push(incarnation);
        incarnation
    }

    /// A life found in the log. It begins where the one before has come to, which is at most `next`.
    pub fn replay(&mut self, incarnation: Incarnation, next: u64) -> Result<(), BadFrame> {
        let last = self.0.last().copied();
        if last.is_some_and(|last| incarnation.number <= last.number) {
            return Ok(());
        }
        let earliest = last.map_or(1, |last| last.start);
        if !(earliest..=next).contains(&incarnation.start) {
            let found = format!("one from entry {} to {next}", incarnation.start);
            return Err(BadFrame::new(
                "an incarnation that begins where the stream is",
                found,
            ));
        }
        self.push(incarnation);
        Ok(())
    }

    fn push(&mut self, incarnation: Incarnation) {
        self.0.push(incarnation);
        if self.0.len() > MAX_INCARNATIONS {
            self.0.remove(0);
        }
    }

    /// Whether a position lies in a life that is not among them, and never was.
    pub fn lack(&self, at: StreamPosition) -> bool {
        let is_known = |life: &Incarnation| life.number == at.incarnation;
        let may_be_known = at == StreamPosition::default() || self.0.len() == MAX_INCARNATIONS;
        !may_be_known && !self.0.iter().any(is_known)
    }

    /// What becomes of a receiver that is at a place in a stream whose next entry has the number `next`.
    pub fn resumption(&self, at: StreamPosition, next: u64) -> Resumption {
        if at == StreamPosition::default() {
            return Resumption::Stream;
        }
        let Some(newest) = self.0.last() else {
            return Resumption::FromTheFuture;
        };
        if at.incarnation > newest.number {
            return Resumption::FromTheFuture;
        }
        let place = match self.0.binary_search_by_key(&at.incarnation, |life| life.number) {
            Ok(place) => place,
            // So long ago that it is forgotten.
            Err(0) if self.0.len() == MAX_INCARNATIONS => return Resumption::Copy,
            // From a life of which this side knows nothing: its directory was lost.
            Err(0) => return self.take_back(at.incarnation, 0, Hlc::ZERO),
            // And this one is an old copy. It may have been made before numbers began anew in an empty one: what the receiver has of the lives
            // before is not known.
            Err(_) => {
                let (since, end) = (Hlc::ZERO, None);
                return Resumption::TakeBack { since, end };
            }
        };
        match self.0.get(place + 1) {
            // It stopped where that life ended, or before.
            Some(after) if at.number < after.start => Resumption::Stream,
            // It has entries that this side lost.
            Some(after) => self.take_back(at.incarnation, place + 1, after.clock),
            None if at.number < next => Resumption::Stream,
            None => Resumption::FromTheFuture,
        }
    }

    /// Afterwards the receiver counts as having stopped where the life at `next` begins.
    fn take_back(&self, incarnation: u64, next: usize, since: Hlc) -> Resumption {
        let number = self.0[next].start - 1;
        Resumption::TakeBack {
            since,
            end: Some(StreamPosition { incarnation, number }),
        }
    }
}
