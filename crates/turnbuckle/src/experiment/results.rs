//! The runs of an experiment.
use super::{file::Experiment, measure::Counted};
use crate::{
    failure::{Failure, usage},
    progress::Progress,
};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use turnbuckle_core::Micros;
use turnbuckle_sim::{Keep, Scenario};
use turnbuckle_simulated::Simulated;

/// What was counted, by protocol and point.
#[derive(Default)]
pub struct Results {
    counted: BTreeMap<(usize, Vec<usize>), Counted>,
    /// The errors of runs.
    pub violations: Vec<String>,
}

/// The longest time that a quick run lasts.
const QUICK: Micros = Micros::from_millis(2_000);

struct Job {
    protocol: usize,
    point: Vec<usize>,
    scenario: Scenario,
}

impl Results {
    /// Runs each protocol at each point, on all cores. The results depend on neither their number nor their order.
    pub fn of(experiment: &Experiment, is_quick: bool) -> Result<Results, Failure> {
        let jobs = jobs(experiment, is_quick)?;
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Results::default());
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let progress = Progress::new(&experiment.name, jobs.len() as u64);
        thread::scope(|scope| {
            for _ in 0..cores.min(jobs.len()) {
                scope.spawn(|| {
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let run = || run(experiment, job);
                        // What the panic said has been printed.
                        let over = catch_unwind(AssertUnwindSafe(run)).map_err(|_| ());
                        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                        results.add(experiment, job, over);
                        progress.step();
                    }
                });
            }
        });
        drop(progress);
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.violations.sort();
        Ok(results)
    }

    /// What was counted at a point.
    pub fn counted(&self, protocol: usize, point: &[usize]) -> Option<&Counted> {
        self.counted.get(&(protocol, point.to_vec()))
    }

    fn add(&mut self, experiment: &Experiment, job: &Job, over: Result<(Counted, Vec<String>), ()>) {
        let place = || {
            let values = experiment.axes.iter().zip(&job.point);
            let values: Vec<String> = values
                .map(|(axis, &place)| format!("{} {}", axis.name, axis.values[place].label))
                .collect();
            format!(
                "{}, {}",
                experiment.protocols[job.protocol].name,
                values.join(", ")
            )
        };
        let (counted, mut violations) = match over {
            Ok(over) => over,
            Err(()) => return self.violations.push(format!("{}: it panics: see above", place())),
        };
        let tally = &counted.tally;
        if tally.failed() > 0 {
            violations.push(format!(
                "{} operations failed: {:?}",
                tally.failed(),
                tally.failures
            ));
        }
        let words = violations
            .iter()
            .map(|violation| format!("{}: {violation}", place()));
        self.violations.extend(words);
        self.counted.insert((job.protocol, job.point.clone()), counted);
    }
}

fn jobs(experiment: &Experiment, is_quick: bool) -> Result<Vec<Job>, Failure> {
    let mut jobs = Vec::new();
    for point in experiment.points() {
        let scenario = experiment.scenario(&point);
        let mut scenario = scenario.map_err(|error| usage(&format!("{}:{error}", experiment.name)))?;
        if is_quick {
            scenario.safety = scenario.safety.min(QUICK);
        }
        jobs.extend((0..experiment.protocols.len()).map(|protocol| Job {
            protocol,
            point: point.clone(),
            scenario: scenario.clone(),
        }));
    }
    Ok(jobs)
}

/// The judge is off: promises are checked by `turnbuckle sim`.
fn run(experiment: &Experiment, job: &Job) -> (Counted, Vec<String>) {
    let protocol = experiment.protocols[job.protocol].known;
    let mut measures = experiment.measures.iter();
    let keep = Keep {
        judge: false,
        trace: measures.any(|measure| measure.what.needs_trace()),
        messages: false,
    };
    let outcome = protocol.run(&job.scenario, &[], keep);
    let violations = outcome.violations.iter().map(ToString::to_string).collect();
    let counted = Counted::of(outcome, job.scenario.world.sites.clone());
    (counted.expect("the trace of a world is valid"), violations)
}
