//! The pasts of a key's writes: which versions each write has replaced, directly or through what it has replaced.
//!
//! Every answer asks this about many pairs of versions. So each past is kept whole, as a set of bits: a bit for each version, in the order in which the
//! versions became known.
use fixedbitset::FixedBitSet;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::Rank;

/// What a write has replaced, as far as that is known.
#[derive(Debug, Clone)]
pub(super) enum Past {
    /// It had a context: the versions that its client was shown with that. Their pasts are in its past, too.
    Seen(BTreeSet<Rank>),
    /// It had none: all older versions may be in its past.
    Blind,
}

/// Versions, each with its whole past.
#[derive(Debug, Default, Clone)]
pub(super) struct Union {
    /// What is in one of the pasts for certain.
    certain: FixedBitSet,
    /// The newest version of which the past is not known. All older versions may be in that past.
    newest_blind: Option<Rank>,
}

/// The pasts of the writes of a key.
#[derive(Debug, Default)]
pub(super) struct Pasts {
    /// The place of each version in the sets of bits.
    places: BTreeMap<Rank, usize>,
    /// The writes whose versions are known.
    writes: BTreeMap<Rank, (Past, Union)>,
    /// The writes whose clients were shown a version.
    after: BTreeMap<Rank, Vec<Rank>>,
}

impl Union {
    fn add(&mut self, other: &Union) {
        self.certain.union_with(&other.certain);
        self.newest_blind = self.newest_blind.max(other.newest_blind);
    }
}

impl Pasts {
    /// The version of a write has become known. What is known of its past first stays.
    pub fn learn(&mut self, version: Rank, past: Past) {
        if self.writes.contains_key(&version) {
            return;
        }
        let seen = match &past {
            Past::Seen(seen) => seen.clone(),
            Past::Blind => BTreeSet::new(),
        };
        for &seen in &seen {
            self.place(seen);
            self.after.entry(seen).or_default().push(version);
        }
        let union = self.whole(version, &past);
        self.writes.insert(version, (past, union));
        if self.after.contains_key(&version) {
            self.renew_above(version);
        }
    }

    /// A delete may be shown before its client is answered. Until then its past is not known. Then the pasts above it are.
    fn renew_above(&mut self, version: Rank) {
        let above: Vec<Rank> = self.writes.range(version..).map(|(&above, _)| above).collect();
        // A version is newer than all in its past. So the pasts below each are renewed before it.
        for above in above {
            let Some((past, _)) = self.writes.get(&above) else {
                continue;
            };
            let renewed = self.whole(above, past);
            if let Some((_, union)) = self.writes.get_mut(&above) {
                *union = renewed;
            }
        }
    }

    fn place(&mut self, version: Rank) -> usize {
        let next = self.places.len();
        *self.places.entry(version).or_insert(next)
    }

    fn whole(&self, version: Rank, past: &Past) -> Union {
        let Past::Seen(seen) = past else {
            return Union {
                certain: FixedBitSet::new(),
                newest_blind: Some(version),
            };
        };
        let mut union = self.union(seen.iter().copied());
        for place in seen.iter().filter_map(|seen| self.places.get(seen)) {
            union.certain.grow_and_insert(*place);
        }
        union
    }

    /// The pasts of several versions.
    pub fn union(&self, of: impl IntoIterator<Item = Rank>) -> Union {
        let mut union = Union::default();
        for version in of {
            match self.writes.get(&version) {
                Some((_, past)) => union.add(past),
                // A delete whose client was never answered.
                None => union.newest_blind = union.newest_blind.max(Some(version)),
            }
        }
        union
    }

    /// Whether a version may be in one of these pasts.
    pub fn may_be_in(&self, union: &Union, version: Rank) -> bool {
        union.newest_blind.is_some_and(|blind| blind > version) || self.is_in(union, version)
    }

    fn is_in(&self, union: &Union, version: Rank) -> bool {
        let place = self.places.get(&version);
        place.is_some_and(|&place| union.certain.contains(place))
    }

    /// The oldest of these versions that a write has in its past for certain.
    pub fn first_of_past(&self, write: Rank, among: &BTreeSet<Rank>) -> Option<Rank> {
        let (_, past) = self.writes.get(&write)?;
        among.iter().copied().find(|&version| self.is_in(past, version))
    }

    /// The writes whose clients were shown this one.
    pub fn after(&self, version: Rank) -> impl Iterator<Item = Rank> {
        self.after.get(&version).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use turnbuckle_core::{Hlc, ReplicaId, VersionId};

    /// The oracle: it follows each past, version by version.
    fn may_have(pasts: &BTreeMap<Rank, Past>, from: Rank, other: Rank, unknown: bool) -> bool {
        match pasts.get(&from) {
            _ if from <= other => false,
            Some(Past::Seen(seen)) => {
                let mut seen = seen.range(other..);
                seen.any(|&seen| seen == other || may_have(pasts, seen, other, unknown))
            }
            Some(Past::Blind) | None => unknown,
        }
    }

    fn version(at: u64) -> Rank {
        Rank::of(VersionId {
            at: Hlc(at),
            replica: ReplicaId(0),
        })
    }

    /// Versions that become known in any order, each with a few older ones in its past, and some with a past that stays unknown.
    #[test]
    fn sets_of_bits_say_the_same_as_a_walk_through_the_pasts() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (mut pasts, mut oracle) = (Pasts::default(), BTreeMap::new());
            let mut order: Vec<u64> = (1..=24).collect();
            for place in (1..order.len()).rev() {
                // Only some become known late.
                if random.percent(30) {
                    order.swap(place, random.below(place as u64 + 1) as usize);
                }
            }
            for at in order {
                let is_blind = random.below(12) == 0;
                let seen = (0..random.below(4)).map(|_| random.below(at));
                let seen = seen.filter(|&seen| seen > 0).map(version).collect();
                let past = if is_blind { Past::Blind } else { Past::Seen(seen) };
                pasts.learn(version(at), past.clone());
                oracle.insert(version(at), past);
                for from in (1..=24).map(version) {
                    let union = pasts.union([from]);
                    for other in (1..=24).map(version) {
                        let may = may_have(&oracle, from, other, true);
                        let must = may_have(&oracle, from, other, false);
                        let is_same = pasts.may_be_in(&union, other) == may;
                        assert!(is_same, "seed {seed}: {other} in the past of {from}: {may}");
                        let first = pasts.first_of_past(from, &BTreeSet::from([other]));
                        assert_eq!(
                            first.is_some(),
                            must,
                            "seed {seed}: {other} in the past of {from}"
                        );
                    }
                }
            }
        }
    }
}
