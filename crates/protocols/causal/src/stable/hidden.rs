use std::collections::VecDeque;
use turnbuckle_core::{Hlc, Micros, ReplicaId, Spans, Vector, VersionId};

/// Versions that have arrived and cannot be seen yet: each in the queue of the first site of which more must become stable.
#[derive(Default)]
pub struct HiddenVersions {
    queues: Vec<VecDeque<Waiting>>,
    waiting: usize,
    spans: Vec<Spans>,
}

struct Waiting {
    /// The time that the queue's site must have reached.
    point: Hlc,
    id: VersionId,
    ds: Vector,
}

/// The most hidden versions that are looked after. While a site is unreachable, what depends on it may pile up: beyond this limit, the count is a
/// lower bound.
const MAX: usize = 1 << 16;

impl HiddenVersions {
    /// No hidden version yet, for this number of sites.
    pub fn new(sites: usize) -> HiddenVersions {
        HiddenVersions {
            queues: (0..sites).map(|_| VecDeque::new()).collect(),
            waiting: 0,
            spans: vec![Spans::default(); sites],
        }
    }

    /// A version of another site arrives.
    pub fn arrive(&mut self, id: VersionId, ds: &Vector, me: ReplicaId, dsv: &Vector, wall: Micros) {
        if self.waiting < MAX && usize::from(id.replica.0) < self.queues.len() {
            self.waiting += 1;
            let ds = ds.clone();
            self.place(Waiting { point: id.at, id, ds }, me, dsv, wall);
        }
    }

    /// The entry of `replica` in what is stable has risen.
    pub fn raised(&mut self, replica: ReplicaId, me: ReplicaId, dsv: &Vector, wall: Micros) {
        let place = usize::from(replica.0);
        while let Some(queue) = self.queues.get_mut(place)
            && queue.front().is_some_and(|first| first.point <= dsv.at(replica))
            && let Some(waiting) = queue.pop_front()
        {
            self.place(waiting, me, dsv, wall);
        }
    }

    fn place(&mut self, mut waiting: Waiting, me: ReplicaId, dsv: &Vector, wall: Micros) {
        let own = (waiting.id.replica, waiting.id.at);
        let mut needs = std::iter::once(own).chain(waiting.ds.entries());
        let need = needs.find(|&(replica, h)| replica != me && h > dsv.at(replica));
        let Some((replica, point)) = need.filter(|(replica, _)| usize::from(replica.0) < self.queues.len())
        else {
            self.waiting -= 1;
            let took = wall.since(waiting.id.at.wall());
            return self.spans[usize::from(waiting.id.replica.0)].add(took);
        };
        drop(needs);
        waiting.point = point;
        let queue = &mut self.queues[usize::from(replica.0)];
        // Versions of a site come in its order: nearly always this is the last.
        match queue.back().is_none_or(|last| last.point <= point) {
            true => queue.push_back(waiting),
            false => queue.insert(queue.partition_point(|other| other.point <= point), waiting),
        }
    }

    /// The number of hidden versions, at least.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no version is hidden.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// How long versions of a site took until they could be seen.
    pub fn spans(&self, replica: ReplicaId) -> Spans {
        self.spans
            .get(usize::from(replica.0))
            .cloned()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(entries: &[(u16, u64)]) -> Vector {
        entries
            .iter()
            .map(|&(replica, at)| (ReplicaId(replica), Hlc(at)))
            .collect()
    }

    #[test]
    fn each_is_seen_when_its_own_time_and_what_it_depends_on_are_stable() {
        let (me, wall) = (ReplicaId(2), Micros(0));
        let mut hidden = HiddenVersions::new(3);
        let id = |replica, at| VersionId {
            replica: ReplicaId(replica),
            at: Hlc(at),
        };
        let mut dsv = Vector::ZERO;
        hidden.arrive(id(0, 10), &vector(&[(1, 30), (2, 99)]), me, &dsv, wall);
        hidden.arrive(id(0, 20), &Vector::ZERO, me, &dsv, wall);
        // Out of order, like versions that are sent back after a power loss.
        hidden.arrive(id(0, 5), &Vector::ZERO, me, &dsv, wall);
        assert_eq!(hidden.len(), 3);
        dsv.raise(ReplicaId(0), Hlc(10));
        hidden.raised(ReplicaId(0), me, &dsv, wall);
        assert_eq!(
            hidden.len(),
            2,
            "5 is seen, 10 waits for site 1, 20 for its own time"
        );
        dsv.raise(ReplicaId(1), Hlc(30));
        hidden.raised(ReplicaId(1), me, &dsv, wall);
        dsv.raise(ReplicaId(0), Hlc(20));
        hidden.raised(ReplicaId(0), me, &dsv, wall);
        assert!(hidden.is_empty());
        assert_eq!(hidden.spans(ReplicaId(0)).count(), 3);
    }

    #[test]
    fn what_piles_up_is_bounded() {
        let mut hidden = HiddenVersions::new(2);
        for at in 0..2 * MAX as u64 {
            let id = VersionId {
                replica: ReplicaId(0),
                at: Hlc(at + 1),
            };
            hidden.arrive(id, &Vector::ZERO, ReplicaId(1), &Vector::ZERO, Micros(0));
        }
        assert_eq!(hidden.len(), MAX);
    }
}
