//! The least that an answer may show of a key.
use crate::OperationId;
use std::fmt;
use turnbuckle_core::{Micros, Rank, ServerId};

/// A lower bound in the order of a key's versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Floor {
    pub version: Rank,
    /// Whether the version itself is too old as well.
    above: bool,
}

impl Floor {
    pub fn at_least(version: Rank) -> Floor {
        Floor {
            version,
            above: false,
        }
    }

    pub fn above(version: Rank) -> Floor {
        Floor { version, above: true }
    }

    /// Whether a change of the expiry of what this version wrote may be new enough.
    pub fn admits_change_of(self, base: Rank) -> bool {
        !self.above && self.version.base == base.id
    }

    /// Whether a version is new enough.
    pub fn admits(self, version: Rank) -> bool {
        version > self.version || version == self.version && !self.above
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.above {
            false => write!(f, "version {}", self.version),
            true => write!(f, "a delete of version {}", self.version),
        }
    }
}

/// The replica or session whose answers must not go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    /// All answers of a replica.
    Replica(ServerId),
    /// All answers to one session of a client, as (client, session).
    Session(usize, u32),
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Witness::Replica(server) => write!(f, "replica {server} had shown"),
            Witness::Session(client, session) => write!(f, "session {session} of client {client} had seen"),
        }
    }
}

/// One answer that raised a floor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raised {
    pub floor: Floor,
    /// The judge's number of the answer.
    pub number: u64,
    /// The operation that it answers.
    pub id: OperationId,
    pub client: usize,
    /// The time by which the replica is known to have had it.
    pub at: Micros,
}

/// The floors of one witness, the highest last.
#[derive(Debug, Clone, Default)]
pub(super) struct Floors {
    raised: Vec<Raised>,
    /// The highest floor that a power loss may have taken.
    pub excused: Option<Floor>,
}

impl Floors {
    /// Adds a floor, unless a higher one is there that `is_firm`.
    pub fn raise(&mut self, raised: Raised, is_firm: impl Fn(&Raised) -> bool) {
        let place = self.raised.partition_point(|known| known.floor < raised.floor);
        if !self.raised[place..].iter().any(is_firm) {
            self.raised.insert(place, raised);
        }
    }

    /// The floors from the highest down.
    pub fn iter(&self) -> impl Iterator<Item = &Raised> {
        self.raised.iter().rev()
    }

    /// What was shown after this time may be gone.
    pub fn excuse_after(&mut self, kept_until: Micros) {
        let (kept, gone): (Vec<Raised>, Vec<Raised>) =
            self.raised.iter().partition(|raised| raised.at <= kept_until);
        let highest = gone.iter().map(|raised| raised.floor).max();
        self.excused = self.excused.max(highest);
        self.raised = kept;
    }
}
