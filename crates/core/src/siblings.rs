use crate::{Vector, VersionId};
use bytes::Bytes;
use std::{cmp::Reverse, collections::BTreeMap};

/// All siblings of a key: its versions of which none replaces another, because their writers did not know of each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Siblings {
    /// The causal context: it covers these versions, and all that they have replaced. A put with this context ([`crate::PutOptions::replaces`]) replaces
    /// them.
    pub context: Vector,
    /// The versions, newest first, and their values. A delete has none, and is listed only if it is the newest version.
    pub versions: Vec<(VersionId, Option<Bytes>)>,
}

impl Siblings {
    /// These versions, newest first, without the deletes that are not listed.
    pub fn new(context: Vector, versions: impl IntoIterator<Item = (VersionId, Option<Bytes>)>) -> Siblings {
        let versions = versions.into_iter().enumerate();
        let listed = versions.filter(|(place, (_, value))| *place == 0 || value.is_some());
        Siblings {
            context,
            versions: listed.map(|(_, version)| version).collect(),
        }
    }

    /// The version that [`crate::Operation::Get`] returns: the newest one. `None` if the key has no version.
    pub fn newest(&self) -> Option<&(VersionId, Option<Bytes>)> {
        self.versions.first()
    }

    /// The siblings that are left when what two answers show comes together. A version that only one of them has is left if the other one's context does not
    /// cover it: else the other one knows of a version that has replaced it.
    pub fn merge(&mut self, other: &Siblings) {
        let has = |one: &Siblings, id| one.versions.iter().any(|(held, _)| *held == id);
        let mut versions: BTreeMap<_, (VersionId, Option<Bytes>)> = BTreeMap::new();
        for (one, another) in [(&*self, other), (other, &*self)] {
            let is_left = |id| has(another, id) || !another.context.covers_id(id);
            let left = one.versions.iter().filter(|(id, _)| is_left(*id));
            versions.extend(left.map(|(id, value)| (Reverse(id.stamp()), (*id, value.clone()))));
        }
        *self = Siblings::new(
            self.context.clone().merged(&other.context),
            versions.into_values(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hlc, ReplicaId};

    fn version(replica: u16, at: u64) -> VersionId {
        VersionId {
            at: Hlc(at),
            replica: ReplicaId(replica),
        }
    }

    fn siblings(context: &[(u16, u64)], versions: &[(u16, u64)]) -> Siblings {
        let context = context.iter().map(|&(replica, at)| (ReplicaId(replica), Hlc(at)));
        let value = Some(Bytes::from_static(b"v"));
        let versions = versions
            .iter()
            .map(|&(replica, at)| (version(replica, at), value.clone()));
        Siblings {
            context: context.collect(),
            versions: versions.collect(),
        }
    }

    #[test]
    fn what_the_other_one_has_replaced_is_left_out_and_what_it_does_not_know_stays() {
        // b@7 has replaced a@5. Nobody has replaced c@6, of which only the first one knows.
        let mut merged = siblings(&[(0, 5), (2, 6)], &[(2, 6), (0, 5)]);
        let other = siblings(&[(0, 5), (1, 7)], &[(1, 7)]);
        merged.merge(&other);
        let expected = siblings(&[(0, 5), (1, 7), (2, 6)], &[(1, 7), (2, 6)]);
        assert_eq!(merged, expected);
        let mut other_way = other.clone();
        other_way.merge(&siblings(&[(0, 5), (2, 6)], &[(2, 6), (0, 5)]));
        assert_eq!(other_way, expected);
        merged.merge(&other);
        assert_eq!(merged, expected);
        merged.merge(&Siblings::default());
        assert_eq!(merged, expected);
        // An older delete is not listed.
        let mut deleted = siblings(&[(0, 5)], &[(0, 5)]);
        deleted.versions[0].1 = None;
        deleted.merge(&siblings(&[(1, 7)], &[(1, 7)]));
        assert_eq!(deleted, siblings(&[(0, 5), (1, 7)], &[(1, 7)]));
    }
}
