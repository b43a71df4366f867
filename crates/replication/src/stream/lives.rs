//! The incarnations of a stream's source, and what a receiver's position says about them.
use super::StreamPosition;
use turnbuckle_core::{BadFrame, Hlc};

/// One incarnation of a stream's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incarnation {
    /// Its number. Numbers rise from each incarnation to the next.
    pub number: u64,
    /// The number of its first entry.
    pub start: u64,
    /// When the incarnation began, the source knew everything that it had stamped up to this time, and nothing that it may have stamped later.
    pub clock: Hlc,
}

/// The most incarnations that are remembered. A receiver whose position is in an earlier one gets a full copy.
const MAX_INCARNATIONS: usize = 64;

/// How a stream continues with a receiver that reports its position.
#[derive(Debug, PartialEq, Eq)]
pub enum Resumption {
    /// Entries follow.
    Stream,
    /// The receiver has more than the source. First it sends back what was stamped after `since`. Once the source holds that durably, the receiver
    /// counts as being at `end`. If that position is not known, it gets a full copy.
    TakeBack {
        /// The time after which the versions were stamped that are sent back.
        since: Hlc,
        /// The position at which the receiver counts as being then, if that is known.
        end: Option<StreamPosition>,
    },
    /// A full copy: the log does not reach back to the receiver's position.
    Copy,
    /// The receiver has more of the stream than there ever was, as far as the source knows: the source's directory was lost, or replaced by an older
    /// one.
    BeyondSource,
}

/// The incarnations that a source remembers, oldest first. Their numbers rise, and none begins before the one in front of it.
#[derive(Default)]
pub(super) struct Lives(Vec<Incarnation>);

impl Lives {
    /// The incarnations as a checkpoint remembered them.
    pub fn restore(lives: Vec<Incarnation>) -> Lives {
        Lives(lives)
    }

    /// All incarnations, oldest first.
    pub fn all(&self) -> &[Incarnation] {
        &self.0
    }

    /// The number of the newest incarnation; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.0.last().map_or(0, |last| last.number)
    }

    /// The number of the incarnation that an entry belongs to.
    pub fn of(&self, entry: u64) -> u64 {
        let place = self.0.partition_point(|life| life.start <= entry);
        self.0.get(place.max(1) - 1).map_or(0, |life| life.number)
    }

    /// The number of the last entry of the incarnation that an entry belongs to.
    pub fn last_of(&self, entry: u64) -> u64 {
        let place = self.0.partition_point(|life| life.start <= entry);
        self.0.get(place).map_or(u64::MAX, |next| next.start - 1)
    }

    /// Begins a new incarnation with the entry `start`. Its number is at least `number`.
    pub fn begin(&mut self, number: u64, start: u64, clock: Hlc) -> Incarnation {
        let number = number.max(self.newest() + 1);
        let incarnation = Incarnation { number, start, clock };
        self.push(incarnation);
        incarnation
    }

    /// Takes in an incarnation that was found in the log. It begins where the one before it had come to, which is at most `next`.
    pub fn replay(&mut self, incarnation: Incarnation, next: u64) -> Result<(), BadFrame> {
        let last = self.0.last().copied();
        if last.is_some_and(|last| incarnation.number <= last.number) {
            return Ok(());
        }
        let earliest = last.map_or(1, |last| last.start);
        if !(earliest..=next).contains(&incarnation.start) {
            let found = format!(
                "one that begins with entry {}, where entry {next} is the next",
                incarnation.start
            );
            return Err(BadFrame::new(
                "an incarnation that begins inside the stream",
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

    /// Whether a position is in an incarnation that is not among them and never was.
    pub fn lack(&self, at: StreamPosition) -> bool {
        let is_known = |life: &Incarnation| life.number == at.incarnation;
        let may_be_known = at == StreamPosition::default() || self.0.len() == MAX_INCARNATIONS;
        !may_be_known && !self.0.iter().any(is_known)
    }

    /// How the stream continues with a receiver at this position. `next` is the number of the stream's next entry.
    pub fn resumption(&self, at: StreamPosition, next: u64) -> Resumption {
        if at == StreamPosition::default() {
            return Resumption::Stream;
        }
        let Some(newest) = self.0.last() else {
            return Resumption::BeyondSource;
        };
        if at.incarnation > newest.number {
            return Resumption::BeyondSource;
        }
        let place = match self.0.binary_search_by_key(&at.incarnation, |life| life.number) {
            Ok(place) => place,
            // That incarnation is so old that it is forgotten.
            Err(0) if self.0.len() == MAX_INCARNATIONS => return Resumption::Copy,
            // The source knows nothing of that incarnation, which is older than all that it knows: its directory was lost.
            Err(0) => return self.take_back(at.incarnation, 0, Hlc::ZERO),
            // The source knows older incarnations and newer ones, but not that one: its directory is an old copy. It may have been made before
            // numbers began anew in an empty directory, so it is not known what the receiver has of the incarnations before.
            Err(_) => {
                let (since, end) = (Hlc::ZERO, None);
                return Resumption::TakeBack { since, end };
            }
        };
        match self.0.get(place + 1) {
            // The receiver stopped where that incarnation ended, or before.
            Some(after) if at.number < after.start => Resumption::Stream,
            // The receiver has entries that the source lost.
            Some(after) => self.take_back(at.incarnation, place + 1, after.clock),
            None if at.number < next => Resumption::Stream,
            None => Resumption::BeyondSource,
        }
    }

    /// A take-back. Afterwards the receiver counts as having stopped where the incarnation at index `next` begins.
    fn take_back(&self, incarnation: u64, next: usize, since: Hlc) -> Resumption {
        let number = self.0[next].start - 1;
        Resumption::TakeBack {
            since,
            end: Some(StreamPosition { incarnation, number }),
        }
    }
}
