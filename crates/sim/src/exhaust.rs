//! Every order of events of a small world.
//!
//! Drawn worlds are large, and of all orders in which their events could come each seed shows one. Here the world is small, and all of them
//! are tried: whatever goes wrong within so many steps is found, by the shortest way to it.
//!
//! # What is chosen
//!
//! Time stands still while steps are taken, and passes by a step of its own. At each point one of these comes next:
//!
//! ```text
//!   what is due      a node commits, begins or ends a sync, meets its timers, takes in what another one has sent,
//!                    notices that a link is gone; two nodes connect
//!   a client         asks for its next operation, or moves to another site
//!   time             STEP passes; what is due is late
//!   a fault          the process of a node ends, or its power fails; two sites are cut off from each other; both are put right
//! ```
//!
//! So a message may be under way for as long as time may pass, and a node may take as long for a step. Only what is sent on one connection
//! keeps its order. Time may pass a few times only, and there is one crash and one cut: therefore the world ends, and a depth that is great enough
//! reaches all of it.
//!
//! A *schedule* is the numbers of the choices, one for each step. What comes behind it follows in one order: faults are put right, clients do
//! what is left, and the world comes to rest. The judge looks at every answer; in the end all sites must have the same, and where the
//! protocol is causal the checker reads the trace.
//!
//! # How it is searched
//!
//! A node cannot be copied. So a schedule is run from the beginning each time, and the schedules of n steps come before those of n + 1: the first one
//! that goes wrong is a shortest one.
//!
//! Most orders differ in nothing that anybody could notice: two nodes that take a step each, one after the other or the other way round. A
//! node is a function of what has happened to it and when. So the *state* is, for each node, the sequence of what has happened to it, with times; and the
//! sequence of answers, with what had been asked before each of them, because the judge is a function of that. What is under way
//! follows from these. A schedule that leads to a state that was seen is not continued: everything that could follow has been tried, or will be. Of a state, a
//! checksum of 64 bits is kept.
//!
//! # Caveats
//!
//! - What a node does at once after a step of its own, such as giving frames to a link and background work other than syncs, is no step. A
//!   power loss takes all that was not synced; the drawn worlds try parts of it.
//! - Writes are acknowledged under `fsync`. What a power loss takes under `interval` and `none` is excused by when it was written, and here
//!   much is written and synced at one moment.
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
pub use program::{Errand, Program};
use run::Run;

/// A small world, and how far it is explored.
#[derive(Debug, Clone)]
pub struct Exhaust {
    /// The world. What takes time there takes none.
    pub world: WorldOptions,
    /// What its clients do.
    pub clients: Vec<Program>,
    /// How often time passes, at most.
    pub passes: usize,
    /// How many crashes there are, at most.
    pub crashes: usize,
    /// How many cuts, at most.
    pub cuts: usize,
    /// How many steps are chosen.
    pub depth: usize,
    /// So many executions are run, at most.
    pub executions: u64,
    /// A state that was seen is not explored again.
    pub prunes: bool,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    /// Executions that were run to the end and judged.
    pub executions: u64,
    /// Different states that they reached by their schedules.
    pub states: u64,
    /// Schedules that were not continued, because their state had been seen.
    pub pruned: u64,
    /// Different outcomes: what clients were told, in all executions.
    pub outcomes: BTreeSet<u64>,
    /// The longest schedule that was run.
    pub depth: usize,
    /// Schedules, one step longer than those that were run, that were not tried because a limit was reached.
    pub left: u64,
    /// What went wrong, by the rule that is broken.
    pub found: BTreeMap<String, Found>,
    /// Executions that were in the same state as an earlier one and ended otherwise: the state leaves something out. Only without pruning.
    pub unlike: u64,
}

/// Executions in which one rule was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// How many.
    pub executions: u64,
    /// The first of the shortest.
    pub schedule: Vec<usize>,
    /// What happened in it.
    pub words: String,
}

/// A rule that an execution broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which, in a word.
    pub rule: String,
    /// What happened.
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
    /// What was chosen.
    pub steps: Vec<Step>,
    /// What could be chosen next.
    pub next: Vec<String>,
    /// What clients were told, also in the end.
    pub told: Vec<String>,
    /// What was wrong.
    pub broken: Vec<Broken>,
}

/// One step of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The number of the choice.
    pub choice: usize,
    /// Of how many.
    pub of: usize,
    /// What it was.
    pub words: String,
}

/// A schedule that asks for what is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSchedule {
    /// At which step.
    pub step: usize,
    /// What it asks for.
    pub choice: usize,
    /// What could be chosen there.
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

/// A small world that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSmallWorld(String);

impl fmt::Display for BadSmallWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSmallWorld {}

/// A schedule, and how many choices there are behind it.
struct Open {
    schedule: Vec<u16>,
    choices: usize,
}

/// What became of a schedule.
enum Tried {
    /// Its state had been seen.
    Seen,
    /// The state, unless a node has panicked.
    Run { state: Option<u64>, end: End },
}

/// How an execution ended.
struct End {
    /// How many choices there were behind the schedule.
    choices: usize,
    outcome: u64,
    broken: Vec<Broken>,
}

/// The states that were seen, with how many choices there were and the outcome.
type Seen = BTreeMap<u64, (usize, u64)>;

/// So many schedules are run between two looks at what was seen.
const BATCH: usize = 64;

/// The most steps of a schedule.
const MAX_DEPTH: usize = 1_000;

/// The most clients of a small world.
const MAX_CLIENTS: usize = 8;

impl Exhaust {
    /// How much time passes in a step. Replicas are to speak as often.
    pub const STEP: Micros = Micros::from_millis(10);

    /// Two clients, two keys of different partitions: what one writes the other reads, and both write one of them.
    pub const USUAL: [&'static str; 2] = ["a put x, put y, get x", "b get y, get x, put x"];

    /// A world of so many sites, with one node each, as small as it is useful.
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

    /// Whether it can be explored.
    ///
    /// # Errors
    /// Says what was expected.
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
            let moves = program.errands.iter().filter_map(|errand| match errand {
                Errand::Move(site) => Some(site),
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

    /// Goes through all schedules, the shorter ones first.
    ///
    /// # Panics
    /// If it cannot be explored: [`Exhaust::check`] says so before.
    pub fn explore<S: Session>(&self, protocol: &<S::Protocol as Protocol>::Config) -> Explored {
        let mut explored = Explored::default();
        let mut seen = Seen::new();
        let mut level: Vec<Open> = Vec::new();
        for depth in 0..=self.depth {
            let mut next = Vec::new();
            // Before all others comes the empty one.
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
                    // Two of one batch may have come to the same state.
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

    /// Runs all of them, on all cores.
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
            // What is broken is not explored any further.
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
        // What the panic said has been printed.
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Tried::Run {
            state: None,
            end: End {
                choices: 0,
                outcome: 0,
                broken: vec![Broken::new("panic", "a node panics")],
            },
        })
    }

    /// Runs one schedule, and says what happens.
    ///
    /// # Errors
    /// If the schedule asks for what is not there.
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
    /// Whether everything was tried that there is.
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
