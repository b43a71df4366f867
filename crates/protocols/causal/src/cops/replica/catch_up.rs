use std::collections::BTreeSet;
use turnbuckle_core::{Micros, SiteId, Vector};

/// A partition that begins: it may have lost what it had shown before, in a power loss or with its directory.
///
/// Sessions do not name what every site shows ([`super::Cops`]'s `everywhere`), and rely on it. So whoever begins must
/// first show as much as its peers say they show. It cannot tell by itself whether anything was lost, so it waits until it has heard of
/// every site, but not for long: one may be away.
pub(super) struct CatchUp {
    is_done: bool,
    /// Sites that have not been heard of.
    missing: BTreeSet<SiteId>,
    patient_until: Micros,
    /// What the others showed when they were first heard of.
    floor: Vector,
}

impl CatchUp {
    pub(super) fn new(may_have_lost: bool, others: impl Iterator<Item = SiteId>) -> CatchUp {
        CatchUp {
            is_done: !may_have_lost,
            missing: others.collect(),
            patient_until: Micros(0),
            floor: Vector::ZERO,
        }
    }

    /// It is not waited for longer than until then.
    pub(super) fn begin(&mut self, patient_until: Micros) {
        self.patient_until = patient_until;
    }

    /// A site shows this.
    pub(super) fn heard(&mut self, site: SiteId, visible: &Vector) {
        if self.missing.remove(&site) {
            self.floor.merge(visible);
        }
    }

    /// Whether readers are answered.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether it has just caught up.
    pub(super) fn look(&mut self, visible: &Vector, now: Micros) -> bool {
        let is_done = (self.missing.is_empty() || now >= self.patient_until) && visible.covers(&self.floor);
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
        let mut empty = CatchUp::new(true, [SiteId(1), SiteId(2)].into_iter());
        empty.begin(Micros(100));
        empty.heard(SiteId(1), &there);
        assert!(!empty.look(&there, Micros(10)), "one was not heard of");
        assert!(!empty.look(&here, Micros(100)), "it shows less than another");
        assert!(
            empty.look(&there, Micros(100)) && empty.is_done(),
            "it waits no longer"
        );
        assert!(!empty.look(&there, Micros(101)), "once");
        assert!(CatchUp::new(false, std::iter::empty()).is_done());
    }
}
