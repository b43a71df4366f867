//! A world, its clients and its faults, run from beginning to end.
//!
//! ```text
//!   before    links come up, sites hear of each other, if the load wants that
//!   load      every record is written, and reaches all sites
//!   safety    clients ask while faults come and go; the judge looks at every answer
//!   liveness  all faults are put right; what is on its way arrives, and all sites must have the same
//! ```
use crate::{
    Fault, Judged, Load, MessageLog, Random, Rule, Violation, World, WorldOptions, load::Clients,
    load::Tally, trace::Lost,
};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    fmt,
};
use turnbuckle_check::{BadTrace, HistoryBuilder, Orders, Report};
use turnbuckle_core::{Level, Membership, Micros, Protocol, Replication, Session, Settings};
use turnbuckle_node::Written;
use turnbuckle_workload::{Op, Record};

/// The memory limit of the checker's search for one order of a whole trace. It decides only small traces. No judged property depends on it.
const SEQUENTIAL_NUMBERS: usize = 1 << 14;

/// Everything that a run depends on, beside the protocol. The seed is the world's.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The scenario's name.
    pub name: String,
    /// The world.
    pub world: WorldOptions,
    /// What its clients do.
    pub load: Load,
    /// How long clients and faults go on.
    pub safety: Micros,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The protocol's parameters, as far as it has them. The caller configures the protocol with them.
    pub parameters: Settings,
}

/// What is kept of a run. What is not kept costs no memory, however long the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Whether the judge looks at every answer. It remembers every value that was written.
    pub judge: bool,
    /// Whether what clients saw is kept, for the checker.
    pub trace: bool,
    /// Whether the messages between nodes are kept.
    pub messages: bool,
}

impl Keep {
    /// The usual choice for tests.
    pub const JUDGE_AND_TRACE: Keep = Keep {
        judge: true,
        trace: true,
        messages: false,
    };
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The violations of the judge's rules.
    pub violations: Vec<Violation>,
    /// The number of events.
    pub events: u64,
    /// The number of faults that were left out because they take a data directory while another one was not whole
    /// ([`WorldOptions::one_loss_at_a_time`]).
    pub losses_left_out: u64,
    /// The clients' operations.
    pub tally: Tally,
    /// How many answers were judged. Each key of a read of several counts by itself.
    pub answers: Judged,
    /// How many receipts' claims of staleness were judged.
    pub claims: Judged,
    /// How many reads of values that expire, and changes of when they do, were judged.
    pub expiries: Judged,
    /// The number of versions that were written, and the size of what the protocol kept with them.
    pub written: Written,
    /// Whether all sites had the same data in the end, with everything that was acknowledged.
    pub converged: bool,
    /// The number of deletes that were remembered in the end and waited for something other than checkpoints.
    pub deletes_waiting: u64,
    /// Whether all clocks kept their bounds: then every receipt can be compared with the trace.
    pub trusts_clocks: bool,
    /// What power losses may have taken.
    pub lost: Lost,
    /// How long it took in the world's time: load, safety and liveness.
    pub took: Micros,
    /// The checksum of everything that happened.
    pub hash: u32,
    /// What clients saw, if it was kept.
    pub trace: Vec<Record>,
    /// The messages between nodes, if they were kept.
    pub messages: Option<MessageLog>,
    /// The nodes' names.
    pub nodes: Vec<String>,
}

/// How long a cluster may take to come to rest after the last fault. A peer whose clock was minutes ahead is held until time has caught up.
const LIVENESS: Micros = Micros::from_millis(900_000);

/// The longest step of a disk with which a cluster keeps to that time. A cluster with a slower disk gets more time: thousands of keys that
/// are not in memory are read from it one after the other.
const USUAL_STEP: Micros = Micros::from_millis(10);

/// The largest factor for that time.
const MAX_PATIENCE: u64 = 16;

/// How often the nodes that do not run are started.
const RESTART_EVERY: Micros = Micros::from_millis(10_000);

/// The number of events after which a run that keeps no trace forgets finished operations.
const FORGET_EVERY: u64 = 10_000;

impl Scenario {
    /// Runs the scenario.
    pub fn run<S: Session>(&self, protocol: <S::Protocol as Protocol>::Config, keep: Keep) -> Outcome {
        let mut world = World::<S>::new(self.world.clone(), protocol);
        if !keep.judge {
            world.judge_nothing();
        }
        if keep.messages {
            world.log_messages();
        }
        // Not from the world's own draws: more load would otherwise change the network.
        let mut clients = Clients::new(self.load.clone(), self.world.seed, &mut world);
        world.advance(self.load.after);
        clients.load_records(&mut world);
        let losses_left_out = self.safety(&mut world, &mut clients, keep);
        clients.stop(world.time());
        let converged = liveness(&mut world, &mut clients);
        let forgets = S::Protocol::DESCRIPTOR.replication == Replication::Streams;
        let is_asked = keep.judge && converged && forgets && self.world.must_forget;
        let deletes_waiting = if is_asked { world.forget_deletes() } else { 0 };
        Outcome {
            violations: world.judge().violations().to_vec(),
            events: world.events(),
            losses_left_out,
            answers: world.judge().answers(),
            claims: world.judge().claims(),
            expiries: world.judge().expiries(),
            written: world.written(),
            converged,
            deletes_waiting,
            trusts_clocks: world.judge().trusts_clocks(),
            lost: world.lost(),
            took: world.time().since(crate::BEGINNING),
            hash: world.hash(),
            trace: if keep.trace {
                world.trace().collect()
            } else {
                Vec::new()
            },
            messages: world.messages().cloned(),
            nodes: world.nodes().map(|node| world.node_name(node)).collect(),
            tally: clients.tally,
        }
    }

    /// Returns the number of faults that were left out.
    fn safety<S: Session>(&self, world: &mut World<S>, clients: &mut Clients, keep: Keep) -> u64 {
        let begin = world.time();
        let end = begin + self.safety;
        // What is to be done when: faults begin in their order, and each ends after its beginning.
        let mut agenda: BinaryHeap<Reverse<(Micros, usize, bool)>> = BinaryHeap::new();
        for (number, fault) in self.faults.iter().enumerate() {
            agenda.push(Reverse((begin + fault.at, number, false)));
            agenda.push(Reverse((begin + fault.at + fault.span, number, true)));
        }
        let mut active: BTreeSet<usize> = BTreeSet::new();
        let mut left_out = 0;
        clients.begin(world);
        let mut forget_at = world.events() + FORGET_EVERY;
        while world.time() < end && !clients.are_done() {
            let next = agenda.peek().map_or(end, |Reverse((at, ..))| *at);
            world.run_until(next.min(end), World::has_news);
            clients.go_on(world);
            while let Some(&Reverse((at, number, is_end))) = agenda.peek()
                && at <= world.time()
                && world.time() < end
            {
                agenda.pop();
                match is_end {
                    false if world.begin(&self.faults[number]) => {
                        active.insert(number);
                    }
                    false => left_out += 1,
                    true => self.end_fault(world, &mut active, number),
                }
            }
            if !keep.trace && world.events() >= forget_at {
                world.forget_history();
                forget_at = world.events() + FORGET_EVERY;
            }
        }
        // From here on there are no faults.
        for number in active {
            world.end(&self.faults[number]);
        }
        left_out
    }

    /// Ends a fault, if it was not left out. Other faults that still last may concern the same node or link.
    fn end_fault<S: Session>(&self, world: &mut World<S>, active: &mut BTreeSet<usize>, number: usize) {
        if !active.remove(&number) {
            return;
        }
        world.end(&self.faults[number]);
        for &other in active.iter() {
            world.sustain(&self.faults[other]);
        }
    }
}

fn liveness_of(world: &WorldOptions) -> Micros {
    let step = world.slowest_disk();
    Micros(LIVENESS.0 * (step.0 / USUAL_STEP.0).clamp(1, MAX_PATIENCE))
}

/// All faults are put right. The cluster must come to rest with the same data everywhere.
fn liveness<S: Session>(world: &mut World<S>, clients: &mut Clients) -> bool {
    for node in world.nodes() {
        for other in world.nodes().filter(|&other| other != node) {
            world.set_cut(node, other, false);
        }
    }
    let limit = liveness_of(&world.options);
    let end = world.time() + limit;
    let mut is_quiet = false;
    while !is_quiet && world.time() < end {
        // Also those that end only now because of what their disk did before.
        world.nodes().for_each(|node| world.restart(node));
        world.empty_old_directories();
        // A node that finds out meanwhile that its directory is an old copy serves nothing until it is emptied.
        is_quiet = world.settle(RESTART_EVERY) && !world.nodes().any(|node| world.is_outdated(node));
        // Operators let every replica vote again.
        if !world.all_vote() {
            is_quiet = false;
            world
                .nodes()
                .for_each(|node| world.want_members(node, Membership::Voter, 1));
            world.advance(Micros::from_millis(100));
        }
    }
    clients.go_on(world);
    if !is_quiet {
        let states: Vec<String> = world
            .nodes()
            .map(|node| format!("{}: {:?}", world.node_name(node), world.statuses(node)))
            .collect();
        let text = format!("not quiet {limit} after the last fault: {}", states.join("; "));
        world.judge.report(Rule::Convergence, text);
    }
    let before = world.judge().violations().len();
    world.compare_sites();
    is_quiet && world.judge().violations().len() == before
}

impl Outcome {
    /// What the checker says of the trace, seen from outside. Versions that a power loss may have taken are left out, with all reads of
    /// them.
    ///
    /// # Errors
    /// If the trace is not valid: a mistake of the simulator.
    pub fn check(&self) -> Result<Report, BadTrace> {
        self.report(|record| Some(record.clone()))
    }

    /// The same without reads at other levels than this one that promise no causal order, such as `eventual` and `bounded(t)`. They do not count as seen by their
    /// clients.
    ///
    /// # Errors
    /// If the trace is not valid: a mistake of the simulator.
    pub fn check_careful(&self, kept: Level) -> Result<Report, BadTrace> {
        let is_careless = |record: &Record| {
            let given = record.receipt.as_ref().map(|receipt| &receipt.given);
            let level = record.level.as_ref().map(|named| given.unwrap_or(named));
            let level = level.and_then(|level| level.parse::<Level>().ok());
            level.is_some_and(|level| level != kept && !level.promise().is_causal())
        };
        self.report(|record| match record.op {
            Op::Read | Op::Snapshot => (!is_careless(record)).then(|| record.clone()),
            Op::Write | Op::Delete => Some(Record {
                existed: record.existed && !is_careless(record),
                ..record.clone()
            }),
        })
    }

    fn report(&self, what_counts: impl Fn(&Record) -> Option<Record>) -> Result<Report, BadTrace> {
        let mut history = HistoryBuilder::new();
        for record in self.trace.iter().filter_map(what_counts) {
            if self.lost.is_empty() {
                history.add(&record)?;
            } else if let Some(rest) = self.lost.taken_from(record) {
                history.add(&rest)?;
            }
        }
        let history = history.finish()?;
        Ok(Report::with(
            &history,
            &[],
            &Orders::within(&history, SEQUENTIAL_NUMBERS),
        ))
    }

    /// The number of operations in the trace that concern what a power loss may have taken. Each key of a snapshot counts by itself.
    pub fn left_out(&self) -> u64 {
        let operations = |record: &Record| record.reads.as_ref().map_or(1, Vec::len);
        let left = |record: &Record| {
            self.lost
                .taken_from(record.clone())
                .as_ref()
                .map_or(0, operations)
        };
        let records = self.trace.iter().filter(|_| !self.lost.is_empty());
        records
            .map(|record| (operations(record) - left(record)) as u64)
            .sum()
    }
}

/// A run that went wrong, and the faults that are enough to make it go wrong in the same way.
#[derive(Debug)]
pub struct Failed {
    /// The scenario as it was drawn or written.
    pub scenario: Scenario,
    /// The violations.
    pub violations: Vec<Violation>,
    /// The faults that are needed for it to go wrong in that way.
    pub needed: Vec<Fault>,
    /// What goes wrong with these faults alone.
    pub then: String,
}

/// The most runs that are spent on finding out which faults are needed.
const MAX_TRIALS: usize = 60;

impl Scenario {
    /// Leaves out faults, one after the other, while the run still goes wrong in the same way.
    pub fn explain<S: Session>(
        &self,
        protocol: &<S::Protocol as Protocol>::Config,
        outcome: &Outcome,
    ) -> Failed {
        let mut min = self.clone();
        let mut then = outcome.violations.first().cloned();
        let rule = then.as_ref().map(|violation| violation.rule);
        let mut place = min.faults.len();
        for _ in 0..MAX_TRIALS {
            let Some(before) = place.checked_sub(1) else { break };
            place = before;
            let mut without = min.clone();
            without.faults.remove(place);
            let keep = Keep {
                trace: false,
                ..Keep::JUDGE_AND_TRACE
            };
            let again = without.run::<S>(protocol.clone(), keep);
            let found = again
                .violations
                .into_iter()
                .find(|found| Some(found.rule) == rule);
            if found.is_some() {
                (min, then) = (without, found);
            }
        }
        Failed {
            scenario: self.clone(),
            violations: outcome.violations.clone(),
            needed: min.faults,
            then: then.map(|violation| violation.words).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario { world, name, .. } = &self.scenario;
        writeln!(f, "scenario {name}, seed {}", world.seed)?;
        writeln!(f, "  {world:?}")?;
        writeln!(f, "  {:?}", self.scenario.load)?;
        writeln!(f, "{} violations, the first of them:", self.violations.len())?;
        for violation in self.violations.iter().take(5) {
            writeln!(f, "  {violation}")?;
        }
        writeln!(
            f,
            "of {} faults these {} are enough:",
            self.scenario.faults.len(),
            self.needed.len()
        )?;
        for fault in &self.needed {
            writeln!(f, "  at {} for {}: {:?}", fault.at, fault.span, fault.kind)?;
        }
        write!(f, "then: {}", self.then)
    }
}

/// Draws for everything except the world itself.
pub(crate) fn random_of(seed: u64) -> Random {
    Random::new(seed.rotate_left(32) ^ 0x5C3A_4210)
}
