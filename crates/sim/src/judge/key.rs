//! The knowledge about one key: its versions, the replicas that have shown them, and what may be shown next.
use super::floor::{Floor, Floors, Witness};
use crate::OperationId;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{Micros, Rank, ServerId, SiteId};

/// What an answer shows of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// This version: a value, or the delete that a receipt names.
    Version(Rank),
    /// A value that this version wrote, with the expiry that it gave or with a changed one.
    ValueOf(Rank),
    /// No value and no version.
    Nothing {
        /// Whether the receipt would have named a delete if it were remembered.
        is_forgotten: bool,
    },
    /// A delete of this version found a value.
    ValueBelow(Rank),
}

/// Whether an answer is new enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    Yes,
    /// Yes, if a write whose version is not known made it so.
    Perhaps,
    No,
}

/// A version that has been acknowledged or shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// When it was asked for; 0 if that is not known.
    pub begun: Micros,
    /// When it first became known: by then its own replica had it in its log.
    pub seen: Micros,
}

/// An acknowledged write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    pub at: Micros,
    pub version: Rank,
    /// The number of replicas that had it.
    pub copies: usize,
    /// The newest version acknowledged up to here, and when it was acknowledged.
    newest: (Rank, Micros),
}

#[derive(Debug, Default)]
pub(super) struct OfKey {
    /// In the order of their acknowledgement.
    pub acknowledged: Vec<Acknowledged>,
    pub values: BTreeMap<Rank, Known>,
    pub deletes: BTreeMap<Rank, Known>,
    /// The value of each version whose value is known.
    pub contents: BTreeMap<Rank, Bytes>,
    /// When each version expires, as receipts say. Only where values may expire.
    pub until: BTreeMap<Rank, Option<Micros>>,
    /// No node's clock has passed this time when the answer at hand was given: what expires later was not seen to be expired.
    pub clocks: Micros,
    /// Deletes, and puts of values that expire, which were asked for and not answered. They may have happened.
    pub open_deletes: BTreeMap<OperationId, OpenDelete>,
    /// Changes of an expiry that were asked for and not answered. They may have happened.
    pub open_retimes: BTreeSet<OperationId>,
    /// The number of writes of values whose version is not known.
    pub unknown_values: u32,
    pub floors: BTreeMap<Witness, Floors>,
    /// The versions that each replica has shown, and when it first did.
    pub shown: BTreeMap<ServerId, BTreeMap<Rank, Micros>>,
    /// Floors for all replicas, from deletes that were forgotten.
    pub forgotten: Floors,
    /// Floors for all replicas, from clients that have waited until all sites had what they had seen.
    pub waited: Floors,
    /// Floors for the replicas of each site, from messages that its clients have heard.
    pub heard: BTreeMap<SiteId, Floors>,
}

/// A write of unknown outcome that may be why nothing is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenDelete {
    /// When it was asked for.
    pub begun: Micros,
    /// The earliest time by a reader's clock at which its key has no value because of it.
    pub gone_from: Micros,
}

/// A read of nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nothing {
    /// The highest floor that it had to meet.
    pub floor: Floor,
    /// No node's clock had passed this time when it was answered.
    pub clocks: Micros,
}

impl OfKey {
    pub fn acknowledge(&mut self, at: Micros, version: Rank, copies: usize) {
        let newest = self.acknowledged.last().map(|last| last.newest);
        self.acknowledged.push(Acknowledged {
            at,
            version,
            copies,
            newest: newest
                .filter(|&(known, _)| known > version)
                .unwrap_or((version, at)),
        });
    }

    /// The writes that were acknowledged up to a time.
    pub fn acknowledged_until(&self, until: Micros) -> &[Acknowledged] {
        let count = self.acknowledged.partition_point(|write| write.at <= until);
        &self.acknowledged[..count]
    }

    /// A version was acknowledged or shown.
    pub fn know(&mut self, version: Rank, is_value: bool, begun: Option<Micros>, now: Micros) {
        let versions = if is_value {
            &mut self.values
        } else {
            &mut self.deletes
        };
        let known = versions.entry(version).or_insert(Known {
            begun: Micros(0),
            seen: now,
        });
        known.begun = known.begun.max(begun.unwrap_or(Micros(0)));
    }

    pub fn known(&self, version: Rank) -> Option<Known> {
        let value = self.values.get(&version);
        value.or_else(|| self.deletes.get(&version)).copied()
    }

    /// When a value expires that this version wrote, at the latest: its expiry may have been changed. `None`: never, or it is not known.
    pub fn expires_by(&self, base: Rank) -> Option<Micros> {
        self.until.get(&base)?;
        let versions = self.until.range(base..);
        let of_base = versions.take_while(|(version, _)| version.base == base.base);
        let latest = of_base.map(|(_, until)| until.unwrap_or(Micros::MAX)).max();
        latest.filter(|latest| *latest < Micros::MAX && self.open_retimes.is_empty())
    }

    /// All versions that are known.
    pub fn versions(&self) -> impl Iterator<Item = Rank> {
        self.values.keys().chain(self.deletes.keys()).copied()
    }

    /// Whether a version is a delete or has expired by now, or is older than one that is or has.
    pub fn is_deleted(&self, version: Rank, now: Micros) -> bool {
        let mut from = self.deletes.range(version..);
        from.any(|(version, _)| self.is_gone(*version, now))
    }

    /// Whether readers at this time see no value of a version, which is a delete or expires at some time.
    fn is_gone(&self, version: Rank, now: Micros) -> bool {
        let until = self.until.get(&version).copied().flatten();
        until.is_none_or(|until| until <= now)
    }

    /// Whether a write of unknown outcome may be why nothing was shown.
    fn may_be_deleted(&self) -> bool {
        let mut open = self.open_deletes.values();
        open.any(|open| open.gone_from <= self.clocks)
    }

    /// The oldest known delete that a floor admits.
    fn delete_from(&self, floor: Floor) -> Option<Rank> {
        let mut from = self.deletes.range(floor.version..);
        from.find(|(version, _)| floor.admits(**version) && self.is_gone(**version, self.clocks))
            .map(|(&version, _)| version)
    }

    /// Whether what is shown meets a floor. Without a floor: whether such an answer is possible at all.
    pub fn is_met(&self, shown: Shown, floor: Option<Floor>) -> Met {
        let perhaps = |is_possible| if is_possible { Met::Perhaps } else { Met::No };
        match (shown, floor) {
            (Shown::Version(version), Some(floor)) if !floor.admits(version) => Met::No,
            (Shown::ValueOf(base), Some(floor)) if !floor.admits(base) => {
                perhaps(floor.admits_change_of(base))
            }
            (Shown::Version(_) | Shown::ValueOf(_), _) | (Shown::Nothing { .. }, None) => Met::Yes,
            (Shown::Nothing { .. }, Some(floor)) => match self.delete_from(floor) {
                Some(_) => Met::Yes,
                None => perhaps(self.may_be_deleted()),
            },
            (Shown::ValueBelow(version), floor) => {
                let newest = self.values.range(..version).next_back();
                match newest.is_some_and(|(&value, _)| floor.is_none_or(|floor| floor.admits(value))) {
                    true => Met::Yes,
                    false => perhaps(self.unknown_values > 0),
                }
            }
        }
    }

    /// The floor that follows from an answer, given the highest floor that it had to meet.
    pub fn floor_of(&self, shown: Shown, met: Option<Floor>) -> Option<Floor> {
        match (shown, met) {
            (Shown::Version(version) | Shown::ValueOf(version), _) => Some(Floor::at_least(version)),
            // It was a delete that meets the floor: at least the oldest one, if all are known.
            (Shown::Nothing { .. }, Some(floor)) if !self.may_be_deleted() => {
                self.delete_from(floor).map(Floor::at_least)
            }
            // At least a delete of that value, unless its expiry was changed and it may have expired. All changes are older than such a delete.
            (Shown::Nothing { .. }, Some(floor))
                if self.values.contains_key(&floor.version) && self.open_retimes.is_empty() =>
            {
                let gone = self.delete_from(floor);
                let expired = gone.filter(|gone| gone.base == floor.version.base);
                Some(expired.map_or(Floor::above(floor.version), Floor::at_least))
            }
            (Shown::Nothing { .. }, floor) => floor,
            (Shown::ValueBelow(_), _) => None,
        }
    }

    /// The only delete that a read of nothing can have seen, if it was over at time `over`. `None` if there are or may be several.
    pub fn only_delete(&self, read: Nothing, over: Micros) -> Option<Rank> {
        let Nothing { floor, clocks } = read;
        let mut open = self.open_deletes.values();
        if open.any(|open| open.begun <= over && open.gone_from <= clocks) {
            return None;
        }
        let candidates = self.deletes.range(floor.version..);
        let mut candidates = candidates.filter(|(version, known)| {
            floor.admits(**version) && known.begun <= over && self.is_gone(**version, clocks)
        });
        let only = candidates.next().map(|(&version, _)| version);
        only.filter(|_| candidates.next().is_none())
    }
}

impl Acknowledged {
    /// The newest version acknowledged up to this write, and when it was acknowledged.
    pub fn newest(&self) -> (Rank, Micros) {
        self.newest
    }
}
