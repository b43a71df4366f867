//! How many answers were judged, and why the others were not.
use serde::Serialize;
use std::collections::BTreeMap;

/// Why an answer or a claim is not called wrong although it breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Excuse {
    /// It was read at level `eventual` in a keyspace that offers more: it may be older than what its client has seen.
    LevelEventual,
    /// A clock had been outside the bound that its node believes in.
    Clock,
    /// A node that is away may have seen a clock that was ahead of true time.
    NodeAway,
    /// A power loss may have taken what is missing.
    PowerLoss,
    /// A node of the site was started again since. What is stable at a site is found out anew then, so that other sessions see less for a while.
    Restart,
    /// It is a snapshot of the site at which what is missing was written. Snapshots of other sessions may be as of a moment before.
    Snapshot,
    /// Only a write whose outcome is unknown explains it, or it shows such a write, whose version is unknown.
    UnknownOutcome,
}

impl Excuse {
    /// The excuse in a few words, for counts.
    pub fn words(self) -> &'static str {
        match self {
            Excuse::LevelEventual => "level eventual",
            Excuse::Clock => "clock out of bound",
            Excuse::NodeAway => "node away",
            Excuse::PowerLoss => "power loss",
            Excuse::Restart => "node restarted",
            Excuse::Snapshot => "snapshot of an earlier moment",
            Excuse::UnknownOutcome => "write of unknown outcome",
        }
    }
}

/// How many answers or claims were judged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Judged {
    /// The number that were found right or wrong.
    pub judged: u64,
    /// The numbers of the others, by their excuse.
    pub not_judged: BTreeMap<Excuse, u64>,
}

impl Judged {
    /// Counts one more.
    pub(super) fn count(&mut self, excuse: Option<Excuse>) {
        match excuse {
            None => self.judged += 1,
            Some(excuse) => *self.not_judged.entry(excuse).or_default() += 1,
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Judged) {
        self.judged += other.judged;
        for (&excuse, count) in &other.not_judged {
            *self.not_judged.entry(excuse).or_default() += count;
        }
    }

    /// The number of all of them.
    pub fn all(&self) -> u64 {
        self.judged + self.not_judged()
    }

    /// The number that were not judged.
    pub fn not_judged(&self) -> u64 {
        self.not_judged.values().sum()
    }
}
