use std::collections::BTreeSet;
use turnbuckle_core::{Micros, ReplicaId, Vector};

/// A partition that starts. It may have lost what it had shown before, in a power loss or with its directory.
///
/// Sessions do not name what every site shows ([`super::Cops`]'s `everywhere`), and rely on it. So a partition that starts must first show everything
/// that its peers report as shown. It cannot tell by itself whether anything was lost, so it waits until it has heard from every site. A site's
/// report comes behind what the site has to bring, which may be a full copy. So the partition waits for a site with a link, however long that takes.
/// A site without a link may be unreachable: the partition waits for it only as long as a request may wait.
pub(super) struct CatchUp {
    is_done: bool,
    /// Sites that have not been heard from.
    missing: BTreeSet<ReplicaId>,
    /// Sites to which there is a link.
    linked: BTreeSet<ReplicaId>,
    patience: Micros,
    /// Until this time the partition waits for sites without a link. It is counted from the start, or from when the last link of a site that was not
    /// heard from went down.
    patient_until: Micros,
    /// What the other sites showed when they were first heard from.
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

    /// From now on it waits for sites without a link.
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

    /// A site reports what it shows.
    pub(super) fn heard(&mut self, replica: ReplicaId, visible: &Vector) {
        if self.missing.remove(&replica) {
            self.floor.merge(visible);
        }
    }

    /// Whether readers are answered.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether it has caught up just now.
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
