use crate::{Micros, RequestId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Requests parked on lines, with deadlines.
///
/// A line is a number that only rises. A request waits for it to reach a point; `advance` wakes exactly those
/// whose point was reached, in the order of their points, and costs nothing for the others.
pub(crate) struct Waiting<Line, Request> {
    reached: BTreeMap<Line, u64>,
    parked: BTreeMap<(Line, u64, u64), Parked<Request>>,
    deadlines: BTreeSet<(Micros, (Line, u64, u64))>,
    ready: VecDeque<Ready<Request>>,
    sequence: u64,
}

struct Parked<Request> {
    deadline: Micros,
    since: Micros,
    id: RequestId,
    request: Request,
}

/// A request whose point was reached: it is to run again.
pub struct Ready<Request> {
    /// Its name.
    pub id: RequestId,
    /// The request as it was parked.
    pub request: Request,
    /// When it was first parked, in monotonic time.
    pub since: Micros,
}

impl<Line: Copy + Ord, Request> Waiting<Line, Request> {
    pub fn new() -> Self {
        Waiting {
            reached: BTreeMap::new(),
            parked: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            sequence: 0,
        }
    }

    pub fn park(
        &mut self,
        line: Line,
        point: u64,
        deadline: Micros,
        since: Micros,
        id: RequestId,
        request: Request,
    ) {
        if self.reached.get(&line).is_some_and(|&reached| reached >= point) {
            self.ready.push_back(Ready { id, request, since });
            return;
        }
        self.sequence += 1;
        let place = (line, point, self.sequence);
        self.deadlines.insert((deadline, place));
        self.parked.insert(
            place,
            Parked {
                deadline,
                since,
                id,
                request,
            },
        );
    }

    pub fn again(&mut self, since: Micros, id: RequestId, request: Request) {
        self.ready.push_back(Ready { id, request, since });
    }

    pub fn advance(&mut self, line: Line, point: u64) {
        let reached = self.reached.entry(line).or_default();
        *reached = point.max(*reached);
        let reached = *reached;
        while let Some(entry) = self.parked.range((line, 0, 0)..=(line, reached, u64::MAX)).next() {
            let place = *entry.0;
            let parked = self.parked.remove(&place).expect("just found");
            self.deadlines.remove(&(parked.deadline, place));
            self.ready.push_back(Ready {
                id: parked.id,
                request: parked.request,
                since: parked.since,
            });
        }
    }

    pub fn next_deadline(&self) -> Option<Micros> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    pub fn take_expired(&mut self, monotonic: Micros) -> Option<(RequestId, Request, Micros)> {
        let &(deadline, place) = self
            .deadlines
            .first()
            .filter(|(deadline, _)| *deadline <= monotonic)?;
        self.deadlines.remove(&(deadline, place));
        let parked = self
            .parked
            .remove(&place)
            .expect("a deadline belongs to a parked request");
        Some((parked.id, parked.request, parked.since))
    }

    pub fn take_ready(&mut self) -> Option<Ready<Request>> {
        self.ready.pop_front()
    }

    pub fn len(&self) -> usize {
        self.parked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_wakes_exactly_those_whose_point_was_reached() {
        let mut waiting = Waiting::new();
        for (line, point) in [('a', 5), ('a', 7), ('b', 5), ('a', 6)] {
            waiting.park(
                line,
                point,
                Micros(100),
                Micros(0),
                RequestId(point),
                (line, point),
            );
        }
        waiting.advance('a', 6);
        let woken: Vec<_> = std::iter::from_fn(|| waiting.take_ready())
            .map(|ready| ready.request)
            .collect();
        assert_eq!(woken, [('a', 5), ('a', 6)]);
        waiting.advance('a', 3);
        assert!(waiting.take_ready().is_none(), "a line never goes back");
        waiting.park('a', 6, Micros(100), Micros(0), RequestId(1), ('a', 6));
        assert!(
            waiting.take_ready().is_some(),
            "a point already reached does not wait"
        );
    }

    #[test]
    fn a_deadline_takes_a_request_out_once() {
        let mut waiting = Waiting::new();
        waiting.park('a', 5, Micros(10), Micros(0), RequestId(1), "early");
        waiting.park('a', 5, Micros(20), Micros(0), RequestId(2), "late");
        assert!(waiting.take_expired(Micros(9)).is_none());
        assert_eq!(waiting.take_expired(Micros(10)).unwrap().1, "early");
        assert_eq!(waiting.next_deadline(), Some(Micros(20)));
        waiting.advance('a', 5);
        assert_eq!(waiting.take_ready().unwrap().request, "late");
        assert!(waiting.take_expired(Micros(99)).is_none() && waiting.len() == 0);
    }
}
