use crate::{
    Action, Arrival, Chooser, ClientId, Mix, Population, Random, RunTag, Schedule, Values, Workload,
};
use bytes::Bytes;

/// A run's seed and what all its clients share. Make one, and from it a [`Generator`] for each client.
#[derive(Debug, Clone)]
pub struct Plan {
    workload: Workload,
    seed: u64,
    /// Cloned for each client, because making it may take a while.
    chooser: Chooser,
}

impl Plan {
    /// The plan of a run.
    pub fn new(workload: Workload, seed: u64) -> Plan {
        let chooser = Chooser::new(workload.distribution, workload.records.get());
        Plan {
            workload,
            seed,
            chooser,
        }
    }

    /// The workload of the clients.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The tag that tells this run's values from those of other runs.
    pub fn run(&self) -> RunTag {
        RunTag::of_seed(self.seed)
    }

    /// The records as they are before the run. All clients share one population.
    pub fn population(&self) -> Population {
        Population::new(self.workload.records.get())
    }

    /// The steps of one client.
    pub fn generator(&self, client: ClientId) -> Generator {
        Generator {
            mix: self.workload.mix,
            random: Random::new(self.seed, 2 * u64::from(client.number())),
            chooser: self.chooser.clone(),
            values: Values::new(self.run(), client, self.workload.value_size),
        }
    }

    /// The intended starts of one client of `clients`. `None` if the loop is closed.
    pub fn timetable(&self, client: ClientId, clients: u16) -> Option<Timetable> {
        let Arrival::Open { rate, spacing } = self.workload.arrival else {
            return None;
        };
        Some(Timetable {
            schedule: Schedule::new(rate, spacing, client.number().into(), clients.into()),
            random: Random::new(self.seed, 2 * u64::from(client.number()) + 1),
        })
    }
}

/// What a client does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Reads a key.
    Read {
        /// The key.
        key: Bytes,
    },
    /// Writes a key that exists.
    Update {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Writes a key that does not exist. [`Population::finish`] must be called once it is over.
    Insert {
        /// The number of the record.
        record: u64,
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Reads a key, and writes it when the answer is there. The value does not depend on what was read: all values of a
    /// trace must differ.
    ReadModifyWrite {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
}

/// The steps of one client. The same seed gives the same steps if the population is the same.
#[derive(Debug, Clone)]
pub struct Generator {
    mix: Mix,
    random: Random,
    chooser: Chooser,
    values: Values,
}

impl Generator {
    /// The next step.
    pub fn next_step(&mut self, population: &mut Population) -> Step {
        match self.mix.choose(&mut self.random) {
            Action::Read => Step::Read {
                key: self.choose_key(population),
            },
            Action::Update => Step::Update {
                key: self.choose_key(population),
                value: self.values.next_value(),
            },
            Action::ReadModifyWrite => Step::ReadModifyWrite {
                key: self.choose_key(population),
                value: self.values.next_value(),
            },
            Action::Insert => {
                let record = population.take();
                Step::Insert {
                    record,
                    key: Population::key(record),
                    value: self.values.next_value(),
                }
            }
        }
    }

    /// A value to load a record with. Like all values, it is unique.
    pub fn next_value(&mut self) -> Bytes {
        self.values.next_value()
    }

    fn choose_key(&mut self, population: &Population) -> Bytes {
        Population::key(self.chooser.choose(&mut self.random, population))
    }
}

/// The intended starts of one client. They have a random stream of their own, so that what a client does is the same in a
/// closed and in an open loop.
#[derive(Debug, Clone)]
pub struct Timetable {
    schedule: Schedule,
    random: Random,
}

impl Timetable {
    /// The next intended start, in nanoseconds since the run began.
    pub fn next_start_ns(&mut self) -> u64 {
        self.schedule.next_start_ns(&mut self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rate, Spacing};
    use std::collections::{BTreeMap, BTreeSet};

    fn plan(letter: &str, seed: u64) -> Plan {
        Plan::new(Workload::core(letter).expect("a core workload"), seed)
    }

    /// Three clients that take turns. Each insert is over at once.
    fn steps(plan: &Plan, each: usize) -> Vec<Step> {
        let mut population = plan.population();
        let mut clients = [0, 1, 2].map(|client| plan.generator(ClientId::new(client)));
        let mut steps = Vec::new();
        for _ in 0..each {
            for client in &mut clients {
                let step = client.next_step(&mut population);
                if let Step::Insert { record, .. } = &step {
                    population.finish(*record);
                }
                steps.push(step);
            }
        }
        steps
    }

    #[test]
    fn a_seed_means_the_same_steps_and_another_seed_means_others() {
        for letter in ["a", "b", "c", "d", "f"] {
            let first = steps(&plan(letter, 1), 500);
            assert_eq!(first, steps(&plan(letter, 1), 500), "workload {letter}");
            assert_ne!(first, steps(&plan(letter, 2), 500), "workload {letter}");
        }
    }

    #[test]
    fn a_clients_steps_do_not_depend_on_how_many_others_there_are() {
        let plan = plan("a", 1);
        let mut population = plan.population();
        let mut alone = plan.generator(ClientId::new(1));
        let together: Vec<Step> = steps(&plan, 100).into_iter().skip(1).step_by(3).collect();
        for step in together {
            assert_eq!(alone.next_step(&mut population), step);
        }
    }

    #[test]
    fn the_core_workloads_have_the_proportions_of_ycsb() {
        for (letter, expected) in [
            ("a", [0.5, 0.5, 0.0, 0.0]),
            ("b", [0.95, 0.05, 0.0, 0.0]),
            ("c", [1.0, 0.0, 0.0, 0.0]),
            ("d", [0.95, 0.0, 0.05, 0.0]),
            ("f", [0.5, 0.0, 0.0, 0.5]),
        ] {
            let mut counts = [0.0f64; 4];
            for step in steps(&plan(letter, 4), 10_000) {
                counts[match step {
                    Step::Read { .. } => 0,
                    Step::Update { .. } => 1,
                    Step::Insert { .. } => 2,
                    Step::ReadModifyWrite { .. } => 3,
                }] += 1.0 / 30_000.0;
            }
            for (found, expected) in counts.iter().zip(expected) {
                assert!((found - expected).abs() < 0.012, "workload {letter}: {counts:?}");
            }
        }
    }

    #[test]
    fn no_value_is_written_twice_and_no_record_inserted_twice() {
        for letter in ["a", "d", "f"] {
            let plan = plan(letter, 6);
            let mut values = BTreeSet::new();
            let mut inserted = BTreeSet::new();
            for step in steps(&plan, 5_000) {
                match step {
                    Step::Read { .. } => {}
                    Step::Update { value, .. } | Step::ReadModifyWrite { value, .. } => {
                        assert!(values.insert(value));
                    }
                    Step::Insert { record, key, value } => {
                        assert!(record >= 1_000 && inserted.insert(record));
                        assert_eq!(key, Population::key(record));
                        assert!(values.insert(value));
                    }
                }
            }
            assert!(values.len() > 500, "{}", values.len());
        }
    }

    #[test]
    fn workload_d_reads_only_what_was_inserted_before_and_mostly_what_is_new() {
        let mut known: BTreeMap<Bytes, usize> =
            (0..1_000).map(|n| (Population::key(n), n as usize)).collect();
        let (mut reads, mut recent) = (0, 0);
        for step in steps(&plan("d", 6), 5_000) {
            match step {
                Step::Insert { record, key, .. } => {
                    known.insert(key, record as usize);
                }
                Step::Read { key } => {
                    reads += 1;
                    recent += usize::from(known[&key] + 100 >= known.len());
                }
                other => panic!("workload d does not do this: {other:?}"),
            }
        }
        assert!(recent * 2 > reads, "{recent} of {reads}");
    }

    #[test]
    fn the_steps_are_the_same_in_a_closed_and_in_an_open_loop() {
        let mut workload = Workload::core("a").expect("a core workload");
        assert!(
            Plan::new(workload.clone(), 1)
                .timetable(ClientId::new(0), 1)
                .is_none()
        );
        workload.arrival = Arrival::Open {
            rate: Rate::new(10.0).expect("a rate"),
            spacing: Spacing::Poisson,
        };
        let open = Plan::new(workload, 1);
        let mut timetable = open.timetable(ClientId::new(0), 1).expect("the loop is open");
        assert!(timetable.next_start_ns() > 0);
        assert_eq!(steps(&open, 100), steps(&plan("a", 1), 100));
    }
}
