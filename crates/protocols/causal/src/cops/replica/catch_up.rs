use std::collections::BTreeSet;
use turnbuckle_core::{Micros, ReplicaId, Vector};

/// A partition that begins: it may have lost what it had shown before, in a power loss or with its directory.
///
/// Sessions do not name what every site shows ([`super::Cops`]'s `everywhere`), and rely on it. So whoever begins must
/// first show as much as its peers say they show. It cannot tell by itself whether anything was lost, so it waits until it has heard of
/// every site. What a site says comes behind what it has to bring, which may be a full copy: a site that is linked is waited for, however long that takes. One
/// that is not linked may be away, and is waited for only as long as a request may wait.
pub(super) struct CatchUp {
    is_done: bool,
    /// Sites that have not been heard of.
    missing: BTreeSet<ReplicaId>,
    /// Sites to which there is a link.
    linked: BTreeSet<ReplicaId>,
    patience: Micros,
    /// Since the last link of a site that was not heard of went, or since the beginning, this long.
    patient_until: Micros,
    /// What the others showed when they were first heard of.
    floor: Vector,
}

impl CatchUp {
    pub(super) fn new(
        may_have_lost: bool,
        others: impl Iterator<Item = ReplicaId>,
        patience: Micros,
    ) -> CatchUp {
        CatchUp {
            is_done: !may_have_lost,
            missing: others.collect(),
            linked: BTreeSet::new(),
            patience,
            patient_until: Micros::MAX,
            floor: Vector::ZERO,
        }
    }

    /// Sites that are away are waited for from now on.
    pub(super) fn begin(&mut self, now: Micros) {
        self.patient_until = now + self.patience;
    }

    /// The link to a site came up, or went down.
    pub(super) fn link(&mut self, replica: ReplicaId, up: bool, now: Micros) {
        match up {
            true => {
                self.linked.insert(replica);
            }
            false => {
                self.linked.remove(&replica);
                if self.missing.contains(&replica) {
                    self.begin(now);
                }
            }
        }
    }

    /// A site shows this.
    pub(super) fn heard(&mut self, replica: ReplicaId, visible: &Vector) {
        if self.missing.remove(&replica) {
            self.floor.merge(visible);
        }
    }

    /// Whether readers are answered.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether it has just caught up.
    pub(super) fn look(&mut self, visible: &Vector, now: Micros) -> bool {
        let is_patient = now < self.patient_until;
        let is_waited_for = |replica| is_patient || self.linked.contains(replica);
        let is_done = visible.covers(&self.floor) && !self.missing.iter().any(is_waited_for);
        is_done && !std::mem::replace(&mut self.is_done, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Hlc;

    #[test]
    fn who_began_with_nothing_answers_when_it_shows_what_the_others_did() {
        let (here, there) = (Vector::filled(3, Hlc(5)), Vector::filled(3, Hlc(9)));
        let mut empty = CatchUp::new(true, [ReplicaId(1), ReplicaId(2)].into_iter(), Micros(100));
        empty.begin(Micros(0));
        empty.heard(ReplicaId(1), &there);
        assert!(!empty.look(&there, Micros(10)), "one was not heard of");
        assert!(!empty.look(&here, Micros(100)), "it shows less than another");
        assert!(
            empty.look(&there, Micros(100)) && empty.is_done(),
            "it waits no longer"
        );
        assert!(!empty.look(&there, Micros(101)), "once");
        assert!(CatchUp::new(false, std::iter::empty(), Micros(100)).is_done());
    }

    #[test]
    fn a_site_that_is_linked_is_waited_for_until_it_is_heard_of_or_has_been_away_for_long() {
        let (one, two) = (ReplicaId(1), ReplicaId(2));
        let mut empty = CatchUp::new(true, [one, two].into_iter(), Micros(100));
        empty.begin(Micros(0));
        empty.link(one, true, Micros(1));
        empty.link(two, true, Micros(1));
        empty.heard(one, &Vector::ZERO);
        assert!(!empty.look(&Vector::ZERO, Micros(5_000)), "a copy is under way");
        empty.link(one, false, Micros(5_000));
        empty.link(two, false, Micros(5_010));
        assert!(!empty.look(&Vector::ZERO, Micros(5_109)), "it may come back");
        assert!(empty.look(&Vector::ZERO, Micros(5_110)));
    }
}
