//! The source of a client's operations.

use super::shared::Shared;
use bytes::Bytes;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};
use turnbuckle_workload::{Arrival, Generator, Op, Population, Step, Timetable};

/// One operation to send.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) op: Op,
    pub(crate) key: Bytes,
    /// What to write.
    pub(crate) value: Option<Bytes>,
    /// What to write to the same key after a read.
    pub(crate) then: Option<Bytes>,
    /// The record that is inserted or loaded.
    pub(crate) record: Option<u64>,
    /// The time from which its latency counts.
    pub(crate) intended_ns: u64,
}

/// What a client is to do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this operation now.
    Job(Job),
    /// Send nothing before this time.
    At(u64),
    /// Send nothing more.
    Nothing,
}

/// A source: see the module.
pub(crate) enum Source {
    /// Every record once. A client takes the next record when it is free.
    Load(Rc<RefCell<LoadQueue>>),
    /// The workload.
    Run(Box<Run>),
}

/// The records that are still to be loaded.
#[derive(Debug)]
pub(crate) struct LoadQueue {
    next: u64,
    records: u64,
    /// The records whose write failed, and how often.
    failed: BTreeMap<u64, u32>,
    again: Vec<u64>,
    /// The records that were given up.
    lost: u64,
}

impl LoadQueue {
    /// How often a record is tried.
    const TRIES: u32 = 5;

    pub(crate) fn new(records: u64) -> LoadQueue {
        LoadQueue {
            next: 0,
            records,
            failed: BTreeMap::new(),
            again: Vec::new(),
            lost: 0,
        }
    }

    /// How many records could not be written, when all clients are done.
    pub(crate) fn missing(&self) -> u64 {
        self.lost + self.again.len() as u64 + (self.records - self.next)
    }

    fn take(&mut self) -> Option<u64> {
        if let Some(record) = self.again.pop() {
            return Some(record);
        }
        (self.next < self.records).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// A record's write failed, or may have.
    pub(crate) fn fail(&mut self, record: u64) {
        let failures = self.failed.entry(record).or_default();
        *failures += 1;
        if *failures < LoadQueue::TRIES {
            self.again.push(record);
        } else {
            self.lost += 1;
        }
    }
}

/// One client's part of the workload.
pub(crate) struct Run {
    pub(crate) timetable: Option<Timetable>,
    /// The next intended start of an open loop, since the run began.
    pub(crate) next_start_ns: Option<u64>,
}

impl Run {
    pub(crate) fn new(mut timetable: Option<Timetable>) -> Run {
        let next_start_ns = timetable.as_mut().map(Timetable::next_start_ns);
        Run {
            timetable,
            next_start_ns,
        }
    }

    /// The intended start of the next operation, by the clock. `idle_ns` is since when the client could have begun it.
    fn intended_ns(&self, shared: &Shared, idle_ns: u64) -> u64 {
        match self.next_start_ns {
            Some(start_ns) => shared.begin_ns.get().saturating_add(start_ns),
            None => idle_ns,
        }
    }

    /// How many operations were meant to begin before `end_ns` and have not: in an open loop, operations that were never sent.
    pub(crate) fn unsent(&self, shared: &Shared, end_ns: u64) -> u64 {
        let (Some(start_ns), Arrival::Open { rate, .. }) = (self.next_start_ns, shared.arrival) else {
            return 0;
        };
        let next_ns = shared.begin_ns.get().saturating_add(start_ns);
        starts_until(
            end_ns,
            next_ns,
            1e9 / rate.per_second() * f64::from(shared.clients),
        )
    }
}

impl Source {
    /// What a client does next that has been free since `idle_ns`.
    pub(crate) fn next(
        &mut self,
        shared: &Shared,
        generator: &mut Generator,
        idle_ns: u64,
        now_ns: u64,
    ) -> Next {
        if shared.is_over(now_ns) {
            return Next::Nothing;
        }
        match self {
            Source::Load(queue) => match queue.borrow_mut().take() {
                Some(record) => Next::Job(Job {
                    op: Op::Write,
                    key: Population::key(record),
                    value: Some(generator.next_value()),
                    then: None,
                    record: Some(record),
                    intended_ns: now_ns,
                }),
                None => Next::Nothing,
            },
            Source::Run(run) => {
                let intended_ns = run.intended_ns(shared, idle_ns);
                if intended_ns > now_ns {
                    return match shared.end_ns.get() {
                        Some(end_ns) if intended_ns >= end_ns => Next::Nothing,
                        _ => Next::At(intended_ns),
                    };
                }
                if !shared.take_step() {
                    return Next::Nothing;
                }
                run.next_start_ns = run.timetable.as_mut().map(Timetable::next_start_ns);
                let step = generator.next_step(&mut shared.population.borrow_mut());
                // In a closed loop an operation has no intended start: it is on time whenever it is sent.
                let intended_ns = if run.timetable.is_some() {
                    intended_ns
                } else {
                    now_ns
                };
                Next::Job(job(step, intended_ns))
            }
        }
    }
}

/// How many starts lie before `end_ns`, where the first is at `next_ns` and the others follow `gap_ns` apart on average.
fn starts_until(end_ns: u64, next_ns: u64, gap_ns: f64) -> u64 {
    (end_ns.saturating_sub(next_ns) as f64 / gap_ns).ceil() as u64
}

fn job(step: Step, intended_ns: u64) -> Job {
    let (op, key, value, then, record) = match step {
        Step::Read { key } => (Op::Read, key, None, None, None),
        Step::Update { key, value } => (Op::Write, key, Some(value), None, None),
        Step::Insert { record, key, value } => (Op::Write, key, Some(value), None, Some(record)),
        Step::ReadModifyWrite { key, value } => (Op::Read, key, None, Some(value), None),
    };
    Job {
        op,
        key,
        value,
        then,
        record,
        intended_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_tried_five_times_and_then_missing() {
        let mut queue = LoadQueue::new(3);
        assert_eq!([queue.take(), queue.take()], [Some(0), Some(1)]);
        for _ in 0..4 {
            queue.fail(1);
            assert_eq!(queue.take(), Some(1), "a failed record comes before a new one");
        }
        queue.fail(1);
        assert_eq!([queue.take(), queue.take()], [Some(2), None]);
        assert_eq!(queue.missing(), 1);
    }

    #[test]
    fn what_nobody_came_for_is_missing() {
        let mut queue = LoadQueue::new(10);
        queue.take();
        queue.fail(0);
        assert_eq!(queue.missing(), 10);
    }

    #[test]
    fn starts_are_counted_up_to_the_end_and_without_it() {
        for (end_ns, next_ns, starts) in [
            (100, 100, 0),
            (100, 90, 1),
            (100, 80, 2),
            (100, 85, 2),
            (100, 150, 0),
        ] {
            assert_eq!(
                starts_until(end_ns, next_ns, 10.0),
                starts,
                "from {next_ns} to {end_ns}"
            );
        }
    }
}
