//! Every order of events of a small world.
//!
//! Drawn worlds are large, and each seed shows only one of the orders in which their events could come. Here the world is small, and all
//! orders are tried: everything that goes wrong within a number of steps is found, by a shortest way to it.
//!
//! # What is chosen
//!
//! Time does not pass while steps are taken. It passes by a step of its own. At each point one of these comes next:
//!
//! ```text
//!   what is due      a node commits, begins or ends a sync, meets its timers, takes in what another one has sent,
//!                    notices that a link is gone; two nodes connect
//!   a client         asks for its next operation, or moves to another site
//!   time             STEP passes; what is due is late
//!   a fault          the process of a node ends, or its power fails; two sites are cut off from each other; both are put right
//! ```
//!
//! So a message may be under way as long as time may pass, and a node may take as long for a step. Only messages on one connection keep
//! their order. Time may pass only a few times, and there is one crash and one cut. So the world ends, and a sufficient depth reaches all
//! of it.
//!
//! A *schedule* is the numbers of the choices, one for each step. What comes after it has only one order: faults are put right, clients do
//! what is left, and the world comes to rest. The judge looks at every answer. In the end all sites must have the same data. If the
//! protocol is causal, the checker reads the trace.
//!
//! # How it is searched
//!
//! A node cannot be copied. So a schedule is run from the beginning each time. The schedules of n steps come before those of n + 1: so the
//! first schedule that goes wrong is a shortest one.
//!
//! Most orders differ in nothing that a client or node could notice: two nodes take a step each, in either order. A node is a function of
//! what has happened to it and when. So the *state* has two parts. One is, for each node, the sequence of what has happened to it, with
//! times. The other is the sequence of answers, with what had been asked before each of them, because the judge is a function of that. What
//! is under way follows from these. If a schedule leads to a state that was seen before, it is not continued: everything that could follow
//! has been tried, or will be. Only a checksum of 64 bits is kept of a state.
//!
//! # Limits
//!
//! - What a node does at once after a step of its own is no step: it gives frames to a link, and does background work other than syncs. A
//!   power loss takes everything that was not synced. The drawn worlds try parts of it.
//! - Writes are acknowledged under `fsync`. Under `interval` and `none`, what a power loss may take is excused by the time at which it was
//!   written, and here many writes and syncs have the same time.
//! - All clocks are exact, and nodes believe that they are right within a millisecond.
use crate::{Span, WorldOptions};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};
use turnbuckle_core::{Micros, Protocol, Session};
use turnbuckle_node::Durability;

mod program;
mod run;
pub use program::{Action, Program};
use run::Run;

/// A small world, and how far it is explored.
#[derive(Debug, Clone)]
pub struct Exhaust {
    /// The world. Its delays and disk times are zero.
    pub world: WorldOptions,
    /// What its clients do.
    pub clients: Vec<Program>,
    /// The most times that time passes.
    pub passes: usize,
    /// The most crashes.
    pub crashes: usize,
    /// The most cuts.
    pub cuts: usize,
    /// The number of steps that are chosen.
    pub depth: usize,
    /// The most executions that are run.
    pub executions: u64,
    /// Whether a state that was seen is not explored again.
    pub prunes: bool,
}

/// The result of an exploration.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    /// The number of executions that were run to the end and judged.
    pub executions: u64,
    /// The number of different states that they reached by their schedules.
    pub states: u64,
    /// The number of schedules that were not continued, because their state had been seen.
    pub pruned: u64,
    /// The different outcomes, as checksums: what clients were told, in all executions.
    pub outcomes: BTreeSet<u64>,
    /// The length of the longest schedule that was run.
    pub depth: usize,
    /// The number of schedules that were not tried because a limit was reached. Each is one step longer than one that was run.
    pub left: u64,
    /// What went wrong, by the name of the rule that is broken.
    pub found: BTreeMap<String, Found>,
    /// The number of executions that reached the same state as an earlier one and ended differently: if there are any, the state leaves
    /// something out. Only counted without pruning.
    pub unlike: u64,
}

/// Executions in which one rule was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The number of executions.
    pub executions: u64,
    /// The first of the shortest schedules, as numbers of choices.
    pub schedule: Vec<usize>,
    /// What happened in it, as text.
    pub words: String,
}

/// A rule that an execution broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The rule's name, in a word.
    pub rule: String,
    /// What happened, as text.
    pub words: String,
}

impl Broken {
    fn new(rule: &str, words: &str) -> Broken {
        Broken {
            rule: rule.to_string(),
            words: words.to_string(),
        }
    }
}

/// One execution, step by step.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The steps that were chosen.
    pub steps: Vec<Step>,
    /// The choices for the next step, as text.
    pub next: Vec<String>,
    /// What clients were told, up to the end.
    pub told: Vec<String>,
    /// The rules that were broken.
    pub broken: Vec<Broken>,
}

/// One step of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The number of the choice.
    pub choice: usize,
    /// The number of choices that there were.
    pub of: usize,
    /// The choice, as text.
    pub words: String,
}

/// A schedule that names a choice that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSchedule {
    /// The number of the step, from 0.
    pub step: usize,
    /// The number of the choice that it names.
    pub choice: usize,
    /// The choices that are there, as text.
    pub expected: Vec<String>,
}

impl fmt::Display for BadSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadSchedule {
            step,
            choice,
            expected,
        } = self;
        write!(f, "step {step} of the schedule is {choice}; ")?;
        if expected.is_empty() {
            return write!(f, "expected the end, because nothing is left to choose");
        }
        write!(f, "expected one of these:")?;
        for (number, words) in expected.iter().enumerate() {
            write!(f, "\n  {number}  {words}")?;
        }
        Ok(())
    }
}

impl std::error::Error for BadSchedule {}

/// A small world that cannot be explored: the reason, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSmallWorld(String);

impl fmt::Display for BadSmallWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSmallWorld {}

/// A schedule, and the number of choices for its next step.
struct Open {
    schedule: Vec<u16>,
    choices: usize,
}

/// The result of trying a schedule.
enum Tried {
    /// Its state had been seen.
    Seen,
    /// The state is `None` if a node has panicked.
    Run { state: Option<u64>, end: End },
}

/// The end of an execution.
struct End {
    /// The number of choices for the next step of the schedule.
    choices: usize,
    outcome: u64,
    broken: Vec<Broken>,
}

/// The states that were seen, each with the number of its choices and the outcome.
type Seen = BTreeMap<u64, (usize, u64)>;

/// The number of schedules that are run between two updates of the seen states.
const BATCH: usize = 64;

/// The most steps of a schedule.
const MAX_DEPTH: usize = 1_000;

/// The most clients of a small world.
const MAX_CLIENTS: usize = 8;

impl Exhaust {
    /// The time that passes in one step. Replicas are configured to send as often.
    pub const STEP: Micros = Micros::from_millis(10);

    /// Two clients, two keys of different partitions: each reads what the other writes, and both write one of the keys.
    pub const USUAL: [&'static str; 2] = ["a put x, put y, get x", "b get y, get x, put x"];

    /// A world of this number of sites, with one node each, as small as is useful.
    pub fn new(sites: usize) -> Exhaust {
        let names = (b'a'..=b'z').map(|letter| char::from(letter).to_string());
        let mut world = WorldOptions::plain(names.take(sites), Micros(0));
        let nothing = Span::fixed(Micros(0));
        world
            .delays
            .iter_mut()
            .flatten()
            .for_each(|delay| *delay = Micros(0));
        (world.turn, world.sync, world.work, world.disk, world.backoff) =
            (nothing, nothing, nothing, nothing, nothing);
        world.partitions = 2;
        world.segment_bytes = 16 << 10;
        let clients = Exhaust::USUAL
            .iter()
            .map(|text| text.parse().expect("they are programs"));
        Exhaust {
            world,
            clients: clients.collect(),
            passes: 2,
            crashes: 1,
            cuts: 1,
            depth: 6,
            executions: u64::MAX,
            prunes: true,
        }
    }

    /// Checks whether the world can be explored.
    ///
    /// # Errors
    /// If it cannot: what was expected.
    pub fn check(&self) -> Result<(), BadSmallWorld> {
        let bad = |words: String| Err(BadSmallWorld(words));
        if self.depth > MAX_DEPTH {
            return bad(format!("a depth of {}; expected at most {MAX_DEPTH}", self.depth));
        }
        if self.world.durability != Durability::Fsync {
            return bad(format!("durability {}; expected fsync", self.world.durability));
        }
        if self.clients.is_empty() || self.clients.len() > MAX_CLIENTS {
            return bad(format!(
                "{} clients; expected 1 to {MAX_CLIENTS}",
                self.clients.len()
            ));
        }
        let sites = &self.world.sites;
        for program in &self.clients {
            let moves = program.actions.iter().filter_map(|action| match action {
                Action::Move(site) => Some(site),
                _ => None,
            });
            let unknown = moves.chain([&program.site]).find(|site| !sites.contains(site));
            if let Some(site) = unknown {
                return bad(format!(
                    "there is no site '{site}' for '{program}'; expected {}",
                    sites.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Tries all schedules, the shorter ones first.
    ///
    /// # Panics
    /// If it cannot be explored. [`Exhaust::check`] finds that out before.
    pub fn explore<S: Session>(&self, protocol: &<S::Protocol as Protocol>::Config) -> Explored {
        let mut explored = Explored::default();
        let mut seen = Seen::new();
        let mut level: Vec<Open> = Vec::new();
        for depth in 0..=self.depth {
            let mut next = Vec::new();
            // The empty schedule comes before all others.
            let first = (depth == 0).then(Vec::new);
            let mut schedules = first.into_iter().chain(level.iter().flat_map(Open::continued));
            loop {
                let max = (self.executions - explored.executions).min(BATCH as u64) as usize;
                let batch: Vec<Vec<u16>> = schedules.by_ref().take(max).collect();
                if batch.is_empty() {
                    break;
                }
                explored.depth = depth;
                let tried = self.try_all::<S>(protocol, &batch, &seen);
                for (schedule, tried) in batch.into_iter().zip(tried) {
                    let Tried::Run { state, end } = tried else {
                        explored.pruned += 1;
                        continue;
                    };
                    let ended = (end.choices, end.outcome);
                    let like = state.and_then(|state| seen.insert(state, ended));
                    // Two schedules of one batch may have come to the same state.
                    if self.prunes && like.is_some() {
                        explored.pruned += 1;
                        continue;
                    }
                    explored.unlike += u64::from(like.is_some_and(|like| like != ended));
                    explored.take(schedule, end, &mut next);
                }
            }
            explored.left = schedules.count() as u64;
            level = next;
            if explored.executions >= self.executions {
                break;
            }
        }
        explored.left += level.iter().map(|open| open.choices as u64).sum::<u64>();
        explored.states = seen.len() as u64;
        explored
    }

    /// Runs all of these schedules, on all cores.
    fn try_all<S: Session>(
        &self,
        protocol: &<S::Protocol as Protocol>::Config,
        schedules: &[Vec<u16>],
        seen: &Seen,
    ) -> Vec<Tried> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let share = schedules.len().div_ceil(cores).max(1);
        thread::scope(|scope| {
            let shares = schedules.chunks(share).map(|share| {
                let one = |schedule: &Vec<u16>| self.try_one::<S>(protocol.clone(), schedule, seen);
                scope.spawn(move || share.iter().map(one).collect::<Vec<Tried>>())
            });
            let shares: Vec<_> = shares.collect();
            let tried = shares
                .into_iter()
                .flat_map(|share| share.join().expect("panics are caught"));
            tried.collect()
        })
    }

    fn try_one<S: Session>(
        &self,
        protocol: <S::Protocol as Protocol>::Config,
        schedule: &[u16],
        seen: &Seen,
    ) -> Tried {
        let run = || {
            let mut run = Run::<S>::new(self, protocol);
            for &number in schedule {
                let choices = run.choices();
                run.take(&choices[usize::from(number)]);
            }
            let state = run.state();
            if self.prunes && seen.contains_key(&state) {
                return Tried::Seen;
            }
            // An execution that broke a rule is not explored any further.
            let choices = match run.judged().is_empty() {
                true => run.choices().len(),
                false => 0,
            };
            run.end();
            let broken = run.broken();
            let outcome = run.outcome(&broken);
            let end = End {
                choices,
                outcome,
                broken,
            };
            Tried::Run {
                state: Some(state),
                end,
            }
        };
        // The panic's message has been printed already.
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Tried::Run {
            state: None,
            end: End {
                choices: 0,
                outcome: 0,
                broken: vec![Broken::new("panic", "a node panics")],
            },
        })
    }

    /// Runs one schedule, and describes what happens.
    ///
    /// # Errors
    /// If the schedule names a choice that is not there.
    pub fn replay<S: Session>(
        &self,
        protocol: <S::Protocol as Protocol>::Config,
        schedule: &[usize],
    ) -> Result<Replayed, BadSchedule> {
        let mut run = Run::<S>::new(self, protocol);
        let mut steps = Vec::new();
        for (step, &number) in schedule.iter().enumerate() {
            let choices = run.choices();
            let Some(choice) = choices.get(number) else {
                return Err(BadSchedule {
                    step: step + 1,
                    choice: number,
                    expected: choices.iter().map(|choice| run.words(choice)).collect(),
                });
            };
            steps.push(Step {
                choice: number,
                of: choices.len(),
                words: run.words(choice),
            });
            run.take(choice);
        }
        let next = run.choices().iter().map(|choice| run.words(choice)).collect();
        run.end();
        Ok(Replayed {
            steps,
            next,
            told: run.told(),
            broken: run.broken(),
        })
    }
}

impl Open {
    /// The schedules that are one step longer.
    fn continued(&self) -> impl Iterator<Item = Vec<u16>> {
        let schedule = &self.schedule;
        (0..self.choices as u16).map(|choice| {
            let mut longer = Vec::with_capacity(schedule.len() + 1);
            longer.extend_from_slice(schedule);
            longer.push(choice);
            longer
        })
    }
}

impl Explored {
    /// Whether all schedules were tried.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    fn take(&mut self, schedule: Vec<u16>, end: End, next: &mut Vec<Open>) {
        self.executions += 1;
        self.outcomes.insert(end.outcome);
        let mut rules: BTreeMap<String, String> = BTreeMap::new();
        for Broken { rule, words } in end.broken {
            rules.entry(rule).or_insert(words);
        }
        for (rule, words) in rules {
            let first = || Found {
                executions: 0,
                schedule: schedule.iter().map(|&choice| usize::from(choice)).collect(),
                words,
            };
            self.found.entry(rule).or_insert_with(first).executions += 1;
        }
        let choices = end.choices;
        next.push(Open { schedule, choices });
    }
}
