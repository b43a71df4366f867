//! `turnbuckle sim`: simulated worlds with all kinds of faults, drawn from a seed.
use crate::exhaust::{self, Exhaustive};
use crate::failure::{Failure, environment, say, tell, usage};
use crate::hunt::Hunt;
use crate::progress::Progress;
use crate::protocols::{check_members, check_parameters, protocol_named};
use clap::Args;
use serde::Serialize;
use std::{
    any::Any,
    collections::BTreeMap,
    fmt::Write,
    fs::{self, File},
    ops::{ControlFlow, RangeInclusive},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};
use turnbuckle_check::Report;
use turnbuckle_core::{Level, Levels, Micros, Promise};
use turnbuckle_document::Document;
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_sim::{BEGINNING, Diagram, Draw, Judged, Keep, Outcome, Scenario, ScenarioFile};
use turnbuckle_simulated::Simulated;
use turnbuckle_workload::{Packing, TraceWriter};

/// Runs a cluster in a simulated world, with faults, and reports whether it kept its promises.
///
/// Without a scenario, everything is drawn from the seed: sites, delays, limits, clients and faults. The same seed gives the same run, byte for byte.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  turnbuckle sim --seeds 1..1000\n  \
                  turnbuckle sim scenarios/one-way-cut.toml --trace run.jsonl\n  \
                  turnbuckle sim --exhaust --protocol causal --depth 5\n\n\
                  Ends with 1 if a promise was broken: an acknowledged write lost, an answer undone, a false receipt, sites that \
                  differ in the end. What the level allows, such as stale reads, is counted and is no violation.")]
pub struct Sim {
    /// The file of the scenario to run; default: the seed draws everything.
    scenario: Option<PathBuf>,
    /// The protocol; default: the scenario's, or eventual.
    #[arg(long)]
    protocol: Option<String>,
    /// The level that all operations name for which it is offered (no write is at bounded(t)); default: the scenario's.
    #[arg(long)]
    level: Option<Level>,
    /// The seed; default: the scenario's, or 1.
    #[arg(long, conflicts_with = "seeds", value_parser = parse_seed)]
    seed: Option<u64>,
    /// Run every seed from the first to the last.
    #[arg(long, value_name = "FIRST..LAST")]
    seeds: Option<Seeds>,
    /// Stop at the first seed that goes wrong.
    #[arg(long)]
    until_broken: bool,
    /// Keep also the drawn faults that the protocol does not claim to tolerate.
    #[arg(long)]
    all_faults: bool,
    /// Plant a bug, to see that it is found: a rule of the nodes or of the protocol is left out. May be given more than once.
    #[arg(long, value_name = "BUG")]
    plant: Vec<String>,
    /// Write what clients saw to a trace, for `turnbuckle check`. One seed only.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Draw the messages between nodes: as a picture if the file ends in .svg, else as text. One seed only.
    #[arg(long, value_name = "FILE")]
    diagram: Option<PathBuf>,
    /// The part of the run that --diagram shows. If it does not fit into the picture, its first part is drawn and the rest is counted.
    #[arg(long, value_name = "FROM..UNTIL", default_value = "0s..1s")]
    window: Window,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hunt: Hunt,
    #[command(flatten)]
    exhaustive: Exhaustive,
}

/// A span of a run's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    from: Micros,
    until: Micros,
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Window, String> {
        let ends = text.split_once("..").and_then(|(from, until)| {
            let (from, until) = (from.parse().ok()?, until.parse().ok()?);
            Some(Window { from, until })
        });
        ends.filter(|window| window.from <= window.until).ok_or_else(|| {
            format!("expected two times, the earlier first, such as 1s..1500ms; found '{text}'")
        })
    }
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let expected = |_| format!("expected a whole number from 0 to {}", u64::MAX);
    text.parse().map_err(expected)
}

/// A range of seeds, with the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seeds(RangeInclusive<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let ends = text.split_once("..").and_then(|(first, last)| {
            let last = last.strip_prefix('=').unwrap_or(last);
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        match ends {
            Some((first, last)) if first <= last => Ok(Seeds(first..=last)),
            _ => Err(format!(
                "expected two numbers, the smaller first, such as 1..1000; found '{text}'"
            )),
        }
    }
}

/// How many seeds that went wrong are listed at most.
const MAX_BROKEN_LISTED: usize = 50;

/// The sum of many runs.
#[derive(Debug, Default, Serialize)]
struct Summary {
    protocol: String,
    level: Option<String>,
    scenario: String,
    seeds: u64,
    operations: u64,
    failed: u64,
    /// The operations that failed, by the first word of the failure. `CONNECTION`: the node ended during the operation.
    failures: BTreeMap<&'static str, u64>,
    faults: u64,
    /// Faults that were drawn and left out, because the protocol does not claim to tolerate them.
    faults_left_out: u64,
    /// Losses of a data directory that were left out, because another data directory was not complete at the time.
    losses_left_out: u64,
    events: u64,
    /// Events per second on each core that was used.
    events_per_second: u64,
    /// Versions that clients and loads wrote, deletes included.
    versions_written: u64,
    /// The bytes that the protocol kept with these versions, besides its stamp and site.
    metadata_bytes: u64,
    /// A checksum of the hashes of all seeds, in their order.
    trace_hash: String,
    /// The first seeds that went wrong.
    broken: Vec<u64>,
    /// How often each rule was broken, by the rule's name.
    violations: BTreeMap<String, u64>,
    /// Answers, compared with what really happened. Each key of a read of several keys counts by itself.
    answers: Judged,
    expiries: Judged,
    /// Deletes that were still remembered at the end, when the world had come to rest, and that waited for something other than checkpoints.
    deletes_waiting: u64,
    receipts: Receipts,
    /// What clients observed that one copy of the data would not have shown.
    observed: Observed,
    converged: bool,
    /// The command that runs the first seed that went wrong again.
    #[serde(skip_serializing_if = "Option::is_none")]
    reproduce: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Receipts {
    /// Claims of freshness, compared with what really happened.
    #[serde(flatten)]
    claims: Judged,
    #[serde(rename = "false")]
    wrong: u64,
    /// Receipts that the checker compared with the trace. The trace has only what clients saw.
    audited: u64,
    /// Claims of freshness that the checker found false in worlds in which a clock was outside the bound that its node assumes.
    excused: u64,
}

/// Sums over all traces.
#[derive(Debug, Default, Serialize)]
struct Observed {
    /// The number of traces that were judged.
    traces: u64,
    /// The number of operations in them that could be judged.
    operations: u64,
    /// Operations that were left out: a power loss may have taken what they wrote or read.
    lost: u64,
    /// Reads of no value that were left out: it cannot be known which delete they saw.
    doubtful_reads: u64,
    /// The number of traces that one copy of the data explains.
    atomic: u64,
    stale_reads: u64,
    max_staleness_ns: i64,
    removed_ops: u64,
    read_your_writes: u64,
    monotonic_reads: u64,
    monotonic_writes: u64,
    writes_follow_reads: u64,
    /// Reads that do not show what they depend on, in the traces for which that was decided.
    causal: u64,
    /// Traces that should be causal, and for which that was not decided.
    undecided: u64,
}

impl Observed {
    fn add(&mut self, report: &Report) {
        self.traces += 1;
        self.operations += report.counted_ops;
        self.doubtful_reads += report.doubtful_reads;
        self.atomic += u64::from(report.atomic);
        self.stale_reads += report.stale_reads;
        self.max_staleness_ns = self.max_staleness_ns.max(report.max_staleness_ns);
        self.removed_ops += report.removed_ops;
        self.read_your_writes += report.session_violations.ryw;
        self.monotonic_reads += report.session_violations.mr;
        self.monotonic_writes += report.session_violations.mw;
        self.writes_follow_reads += report.session_violations.wfr;
        self.causal += report.causal_violations.unwrap_or(0);
    }
}

/// The result of one seed's run.
struct Done {
    seed: u64,
    /// The level of the operations.
    level: Level,
    outcome: Outcome,
    report: Result<Report, String>,
    /// How many operations of the trace concern data that a power loss may have taken.
    left_out: u64,
    /// The same report, without the reads below the level.
    careful: Result<Report, String>,
    scenario: Scenario,
}

pub fn run(options: &Sim) -> Result<(), Failure> {
    if options.hunt.is_asked() {
        let seeds = options.seeds.as_ref().map(|Seeds(seeds)| seeds.clone());
        return options
            .hunt
            .run(&options.plant, options.protocol.as_deref(), seeds, options.json);
    }
    let asked = options.protocol.as_deref();
    let file = options.scenario.as_deref().map(|path| read(path, asked));
    let file = file.transpose()?;
    let name = name_of_protocol(asked, file.as_ref());
    let protocol = protocol_named("--protocol", &name)?;
    if let Some(bug) = options.plant.iter().find(|bug| !protocol.has_bug(bug)) {
        return Err(usage(&format!(
            "--plant: there is no bug '{bug}' in {name}; expected one of {}, or another one of docs/simulation.md. --protocol names another protocol",
            protocol.bug_names().join(", ")
        )));
    }
    if options.exhaustive.is_asked() {
        return exhaust::run(&options.exhaustive, &name, protocol, &options.plant, options.json);
    }
    if let Some(level) = options.level {
        let levels = protocol.levels();
        if !levels.all().any(|offered| level.is_among(&[offered])) {
            let forms: Vec<String> = levels.all().map(Level::form).collect();
            let message = format!("{name} cannot give {level}; it offers {}", forms.join(", "));
            return Err(usage(&message));
        }
    }
    let usual = file.as_ref().map_or(1, |file| file.scenario.world.seed);
    let seeds = match (&options.seeds, options.seed.unwrap_or(usual)) {
        (Some(Seeds(seeds)), _) => seeds.clone(),
        (None, seed) => seed..=seed,
    };
    if (options.trace.is_some() || options.diagram.is_some()) && seeds.start() != seeds.end() {
        return Err(usage(&"--trace and --diagram: expected one seed; found several"));
    }
    let keep = Keep {
        messages: options.diagram.is_some(),
        ..Keep::JUDGE_AND_TRACE
    };
    let left_out = AtomicU64::new(0);
    let scenario_of = |seed| {
        let mut scenario = scenario(file.as_ref(), protocol, seed, options.level);
        // The faults of a file are meant, so none is left out.
        if file.is_none() && !options.all_faults {
            left_out.fetch_add(leave_out(protocol, &mut scenario), Ordering::Relaxed);
        }
        scenario
    };
    let started = Instant::now();
    let mut summary = Summary {
        protocol: name,
        level: options.level.map(|level| level.to_string()),
        scenario: file
            .as_ref()
            .map_or("swarm".into(), |file| file.scenario.name.clone()),
        converged: true,
        ..Summary::default()
    };
    let (mut hash, mut first_wrong) = (0, None);
    let panicked = |Panicked { seed, words }| {
        let line = options.reproduce(seed);
        Failure::Broken(format!(
            "seed {seed} panics, see above: {words}\nREPRODUCE WITH: {line}"
        ))
    };
    let run = |scenario: &Scenario| protocol.run(scenario, &options.plant, keep);
    let threads = run_all(seeds, protocol, &scenario_of, &run, |done| {
        let done = done.map_err(panicked)?;
        if let Some(path) = &options.trace {
            write_trace(path, &done.outcome)?;
        }
        if let Some(path) = &options.diagram {
            draw(path, options.window, &done.outcome)?;
        }
        hash = crc32c::crc32c_append(hash, &done.outcome.hash.to_le_bytes());
        let is_right = summary.add(&done);
        if !is_right && summary.broken.len() < MAX_BROKEN_LISTED {
            summary.broken.push(done.seed);
        }
        if first_wrong.is_none() && !is_right {
            first_wrong = Some(done);
        }
        Ok(match options.until_broken && !is_right {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })?;
    let seconds = started.elapsed().as_secs_f64() * threads as f64;
    summary.events_per_second = (summary.events as f64 / seconds.max(1e-9)) as u64;
    summary.faults_left_out = left_out.load(Ordering::Relaxed);
    summary.trace_hash = format!("{hash:08x}");
    summary.reproduce = first_wrong.as_ref().map(|done| options.reproduce(done.seed));
    match options.json {
        true => say(&serde_json::to_string(&summary).map_err(|error| environment(&error))?)?,
        false => say(&summary.to_string())?,
    }
    match first_wrong {
        None => Ok(()),
        Some(done) => {
            // The judge looks at each answer by itself. What several answers mean together is seen only in the trace.
            let failed = match done.outcome.violations.is_empty() {
                true => "what clients saw, all together, breaks a promise: see above".to_string(),
                false => protocol
                    .explain(&done.scenario, &options.plant, &done.outcome)
                    .to_string(),
            };
            let line = options.reproduce(done.seed);
            Err(Failure::Broken(format!(
                "seed {}: {failed}\nREPRODUCE WITH: {line}\nSEE WHY WITH:   {line} --trace run.jsonl; turnbuckle check --began-empty --explain run.jsonl",
                done.seed,
            )))
        }
    }
}

impl Sim {
    fn reproduce(&self, seed: u64) -> String {
        let mut line = String::from("turnbuckle sim");
        if let Some(path) = &self.scenario {
            write!(line, " {}", path.display()).expect("a String grows");
        }
        if let Some(protocol) = &self.protocol {
            write!(line, " --protocol {protocol}").expect("a String grows");
        }
        if let Some(level) = self.level {
            write!(line, " --level '{level}'").expect("a String grows");
        }
        if self.all_faults {
            line.push_str(" --all-faults");
        }
        for bug in &self.plant {
            write!(line, " --plant {bug}").expect("a String grows");
        }
        write!(line, " --seed {seed}").expect("a String grows");
        line
    }
}

/// A world whose run did not come to its end: a panic.
struct Panicked {
    seed: u64,
    /// The message of the panic.
    words: String,
}

impl Panicked {
    fn new(seed: u64, panic: &(dyn Any + Send)) -> Panicked {
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Panicked {
            seed,
            words: text.unwrap_or_else(|| "without a message".into()),
        }
    }
}

/// The name of the protocol that is asked for, or that of the file.
fn name_of_protocol(asked: Option<&str>, file: Option<&ScenarioFile>) -> String {
    let of_file = file.and_then(|file| file.protocol.as_deref());
    asked.or(of_file).unwrap_or("eventual").to_string()
}

fn read(path: &Path, protocol: Option<&str>) -> Result<ScenarioFile, Failure> {
    let text =
        fs::read_to_string(path).map_err(|error| environment(&format!("{}: {error}", path.display())))?;
    let document = Document::parse(path, &text).map_err(|wrong| usage(&wrong))?;
    let file = ScenarioFile::read(&document).map_err(|wrong| usage(&wrong))?;
    let checked = check_parameters(&file.scenario.parameters, &["parameters"]);
    checked.map_err(|wrong| usage(&document.report(wrong)))?;
    let place = match protocol {
        Some(_) => "--protocol".to_string(),
        None => format!("{}: protocol", path.display()),
    };
    let protocol = protocol_named(&place, &name_of_protocol(protocol, Some(&file)))?;
    let checked = check_members(protocol, &file.scenario, &["members"]);
    checked.map_err(|wrong| usage(&document.report(wrong)))?;
    Ok(file)
}

fn scenario(
    file: Option<&ScenarioFile>,
    protocol: KnownProtocol,
    seed: u64,
    level: Option<Level>,
) -> Scenario {
    let mut scenario = match file {
        Some(file) => file.scenario.clone(),
        None => {
            let draw = Draw::new(seed).suited_to(protocol.descriptor());
            match level {
                Some(_) => draw.scenario(),
                None => draw.at_levels(protocol.levels()).scenario(),
            }
        }
    };
    scenario.world.seed = seed;
    let Levels { reads, writes } = protocol.levels();
    if let Some(level) = level.filter(|level| level.is_among(reads)) {
        scenario.load.read = Some(level);
    }
    if let Some(level) = level.filter(|level| level.is_among(writes)) {
        scenario.load.write = Some(level);
    }
    scenario
}

/// Leaves out faults that the protocol does not claim to tolerate. Returns how many were left out.
fn leave_out(protocol: KnownProtocol, scenario: &mut Scenario) -> u64 {
    let drawn = scenario.faults.len();
    scenario.faults.retain(|fault| protocol.allows(&fault.kind));
    (drawn - scenario.faults.len()) as u64
}

/// A drawn world that went wrong.
#[derive(Debug)]
pub(crate) struct First {
    pub seed: u64,
    /// The first finding of the judge, or else that of the checker; or the message of a panic.
    pub words: String,
}

/// The first drawn world that goes wrong with these bugs planted.
pub(crate) fn first_broken(
    protocol: KnownProtocol,
    bugs: &[String],
    seeds: RangeInclusive<u64>,
) -> Result<Option<First>, Failure> {
    let scenario_of = |seed| {
        let mut scenario = scenario(None, protocol, seed, None);
        leave_out(protocol, &mut scenario);
        scenario
    };
    let run = |scenario: &Scenario| protocol.run(scenario, bugs, Keep::JUDGE_AND_TRACE);
    first_wrong(protocol, seeds, &scenario_of, &run)
}

/// The first world that goes wrong when it is run like this, or that panics.
fn first_wrong(
    protocol: KnownProtocol,
    seeds: RangeInclusive<u64>,
    scenario_of: &(impl Fn(u64) -> Scenario + Sync),
    run: &(impl Fn(&Scenario) -> Outcome + Sync),
) -> Result<Option<First>, Failure> {
    let mut first = None;
    run_all(seeds, protocol, scenario_of, run, |done| {
        let done = match done {
            Ok(done) => done,
            Err(Panicked { seed, words }) => {
                let words = format!("it panics: {words}");
                first = Some(First { seed, words });
                return Ok(ControlFlow::Break(()));
            }
        };
        let mut summary = Summary::default();
        if summary.add(&done) {
            return Ok(ControlFlow::Continue(()));
        }
        let judged = done
            .outcome
            .violations
            .first()
            .map(|violation| violation.words.clone());
        let words = judged.unwrap_or_else(|| format!("the checker says: {}", summary.counts()));
        first = Some(First {
            seed: done.seed,
            words,
        });
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

/// Runs all seeds on all cores, and passes the results to `take` in the order of the seeds, also those of worlds that panic. Returns the number of cores
/// that were used.
fn run_all(
    seeds: RangeInclusive<u64>,
    protocol: KnownProtocol,
    scenario_of: &(impl Fn(u64) -> Scenario + Sync),
    run: &(impl Fn(&Scenario) -> Outcome + Sync),
    mut take: impl FnMut(Result<Done, Panicked>) -> Result<ControlFlow<()>, Failure>,
) -> Result<usize, Failure> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let count = seeds.end().saturating_sub(*seeds.start()).saturating_add(1);
    let threads = cores.min(usize::try_from(count).unwrap_or(usize::MAX));
    let next = AtomicU64::new(0);
    let progress = Progress::new(protocol.name(), count);
    let one = |offset: u64| {
        let seed = seeds.start() + offset;
        let scenario = scenario_of(seed);
        // The message of a panic has been printed already.
        let mut outcome = catch_unwind(AssertUnwindSafe(|| run(&scenario)))
            .map_err(|panic| Panicked::new(seed, &*panic))?;
        let level = scenario.load.read.unwrap_or(protocol.levels().reads[0]);
        let report = outcome.check().map_err(|error| error.to_string());
        // Without a load that mixes levels, the two reports are the same.
        let is_of_sessions =
            level.promise().is_causal() || matches!(level.promise(), Promise::Session { .. });
        let careful = match is_of_sessions && scenario.load.is_careless() {
            true => outcome.check_careful(level).map_err(|error| error.to_string()),
            false => report.clone(),
        };
        let left_out = outcome.left_out();
        if count > 1 {
            outcome.trace = Vec::new();
        }
        Ok(Done {
            seed,
            level,
            outcome,
            report,
            left_out,
            careful,
            scenario,
        })
    };
    // The most results that may wait in the channel.
    let (sender, receiver) = std::sync::mpsc::sync_channel(4 * threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, one) = (sender.clone(), &next, &one);
            scope.spawn(move || {
                loop {
                    let offset = next.fetch_add(1, Ordering::Relaxed);
                    if offset >= count || sender.send((offset, one(offset))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut turn, mut early) = (0, BTreeMap::new());
        for (offset, done) in receiver {
            early.insert(offset, done);
            while let Some(done) = early.remove(&turn) {
                turn += 1;
                progress.step();
                if take(done)?.is_break() {
                    return Ok(threads);
                }
            }
        }
        Ok(threads)
    })
}

fn draw(path: &Path, window: Window, outcome: &Outcome) -> Result<(), Failure> {
    let log = outcome.messages.as_ref().expect("messages were kept");
    let diagram = Diagram::new(log, &outcome.nodes).window(BEGINNING + window.from, BEGINNING + window.until);
    let drawn = match path.extension().is_some_and(|extension| extension == "svg") {
        true => diagram.svg(),
        false => diagram.text(),
    };
    fs::write(path, drawn).map_err(|error| environment(&format!("cannot write {}: {error}", path.display())))
}

fn write_trace(path: &Path, outcome: &Outcome) -> Result<(), Failure> {
    let failed = |error: std::io::Error| environment(&format!("cannot write {}: {error}", path.display()));
    let file = File::create(path).map_err(failed)?;
    let mut writer = TraceWriter::new(file, Packing::of(path)).map_err(failed)?;
    for record in &outcome.trace {
        writer.write(record).map_err(failed)?;
    }
    writer.finish().map(|_| ()).map_err(failed)
}

impl Summary {
    /// Adds a run. Returns whether nothing was wrong with it.
    fn add(&mut self, done: &Done) -> bool {
        let before: u64 = self.violations.values().sum();
        let Done {
            outcome,
            report,
            careful,
            ..
        } = done;
        self.seeds += 1;
        self.operations += outcome.tally.answered();
        self.failed += outcome.tally.failed();
        for (word, count) in &outcome.tally.failures {
            *self.failures.entry(word).or_default() += count;
        }
        self.faults += done.scenario.faults.len() as u64;
        self.losses_left_out += outcome.losses_left_out;
        self.events += outcome.events;
        self.versions_written += outcome.written.versions;
        self.metadata_bytes += outcome.written.metadata_bytes;
        self.converged &= outcome.converged;
        self.deletes_waiting += outcome.deletes_waiting;
        self.answers.add(&outcome.answers);
        self.expiries.add(&outcome.expiries);
        self.receipts.claims.add(&outcome.claims);
        self.observed.lost += done.left_out;
        for violation in &outcome.violations {
            *self.violations.entry(violation.rule.name().into()).or_default() += 1;
        }
        match (report, careful) {
            (Ok(report), Ok(careful)) => {
                self.observed.add(careful);
                self.audit(done, report);
                self.hold_to_level(done, careful);
            }
            (Err(error), _) | (_, Err(error)) => {
                tell(&format!("seed {}: the trace is not valid: {error}", done.seed));
                *self.violations.entry("trace".into()).or_default() += 1;
            }
        }
        let of = |name| self.violations.get(name).copied().unwrap_or(0);
        self.receipts.wrong = of("receipt") + of("audit");
        self.violations.values().sum::<u64>() == before
    }
}

impl Summary {
    /// How often each rule was broken, as text.
    fn counts(&self) -> String {
        let counts = self
            .violations
            .iter()
            .map(|(rule, count)| format!("{rule} {count}"));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// Compares what clients saw with what the level promises, whatever the receipts say. The report leaves out what a power loss may have taken.
    fn hold_to_level(&mut self, done: &Done, report: &Report) {
        for (promise, count) in report.against(done.level) {
            tell(&format!(
                "seed {}: the checker says: {count} against {promise}",
                done.seed
            ));
            *self.violations.entry(promise.into()).or_default() += count;
        }
        self.observed.undecided += u64::from(!report.decides(done.level));
    }

    /// Adds what the checker found false from the outside, unless a wrong clock excuses it. The report leaves out what a power loss may have taken.
    fn audit(&mut self, done: &Done, report: &Report) {
        let receipts = report.audit.receipts;
        self.receipts.audited += receipts.not_contradicted + receipts.broken;
        let impossible = report.phantom_reads + report.future_reads;
        if impossible > 0 {
            tell(&format!(
                "seed {}: the checker says: {impossible} reads of values that no client had written",
                done.seed
            ));
            *self.violations.entry("phantom".into()).or_default() += impossible;
        }
        if !done.outcome.trusts_clocks {
            let freshness = report.audit.claims.get("staleness");
            self.receipts.excused += freshness.map_or(0, |verdicts| verdicts.broken);
        } else if receipts.broken > 0 {
            for broken in report.audit.broken.iter().take(3) {
                tell(&format!("seed {}: the checker says: {broken:?}", done.seed));
            }
            *self.violations.entry("audit".into()).or_default() += receipts.broken;
        }
    }
}

/// How many were judged, and the reasons why the others were not.
fn share(judged: &Judged, what: &str) -> String {
    let not = judged.not_judged();
    let percent = 100.0 * not as f64 / judged.all().max(1) as f64;
    let reasons: Vec<String> = judged
        .not_judged
        .iter()
        .map(|(reason, count)| format!("{} {count}", reason.words()))
        .collect();
    match reasons.is_empty() {
        true => format!("{} {what}, all of them judged", judged.judged),
        false => format!(
            "{} {what}; {not} ({percent:.2} %) could not be judged: {}",
            judged.judged,
            reasons.join(", ")
        ),
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {}, {} seeds: {} operations ({} failed), {} faults",
            self.scenario, self.protocol, self.seeds, self.operations, self.failed, self.faults
        )?;
        if self.losses_left_out > 0 {
            write!(
                f,
                " ({} left out: they would take a data directory while another one is not complete)",
                self.losses_left_out
            )?;
        }
        match self.faults_left_out {
            0 => writeln!(f)?,
            count => writeln!(
                f,
                "; {count} more are left out, because the protocol does not claim to tolerate them"
            )?,
        }
        let failures: Vec<String> = self
            .failures
            .iter()
            .map(|(word, count)| format!("{count} {word}"))
            .collect();
        if !failures.is_empty() {
            writeln!(f, "  failed      {}", failures.join(", "))?;
        }
        writeln!(
            f,
            "  events      {} ({} a second and core), hash {}",
            self.events, self.events_per_second, self.trace_hash
        )?;
        writeln!(
            f,
            "  metadata    {:.1} bytes in each of {} versions, besides its stamp and site",
            self.metadata_bytes as f64 / self.versions_written.max(1) as f64,
            self.versions_written
        )?;
        let converged = if self.converged { "every time" } else { "no" };
        writeln!(f, "  converged   {converged}")?;
        if self.deletes_waiting > 0 {
            writeln!(
                f,
                "              {} deletes were still remembered in the end, because a site had not reported that it shows them",
                self.deletes_waiting
            )?;
        }
        writeln!(
            f,
            "  answers     {}",
            share(&self.answers, "compared with what happened")
        )?;
        if self.expiries.all() > 0 {
            writeln!(
                f,
                "  expiry      {}",
                share(
                    &self.expiries,
                    "reads of values that expire and changes of when they do, compared with what was asked for"
                )
            )?;
        }
        writeln!(
            f,
            "  receipts    {}",
            share(
                &self.receipts.claims,
                "claims of freshness compared with what happened"
            )
        )?;
        writeln!(
            f,
            "              {} false; {} receipts compared with the traces; {} more excused, because a clock was out of bound",
            self.receipts.wrong, self.receipts.audited, self.receipts.excused
        )?;
        let observed = &self.observed;
        writeln!(
            f,
            "  observed    {} of {} traces look like one copy; in {} operations that can be judged {} stale reads, by at most \
             {:.3} ms",
            observed.atomic,
            observed.traces,
            observed.operations,
            observed.stale_reads,
            observed.max_staleness_ns as f64 / 1e6
        )?;
        if observed.lost + observed.doubtful_reads > 0 {
            writeln!(
                f,
                "              left out: {} operations on data that a power loss may have taken, {} reads of nothing where it is not \
                 known which delete they saw",
                observed.lost, observed.doubtful_reads
            )?;
        }
        writeln!(
            f,
            "              reads against read your writes {}, monotonic reads {}, monotonic writes {}, writes follow reads {}, \
             causal {}",
            observed.read_your_writes,
            observed.monotonic_reads,
            observed.monotonic_writes,
            observed.writes_follow_reads,
            observed.causal
        )?;
        match self.violations.is_empty() {
            true => write!(f, "  violations  none"),
            false => {
                writeln!(f, "  violations  {}", self.counts())?;
                let seeds: Vec<String> = self.broken.iter().map(u64::to_string).collect();
                write!(f, "  broken      seeds {}", seeds.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_that_panics_is_the_first_that_goes_wrong() {
        let protocol = KnownProtocol::Eventual;
        let scenario_of = |seed| {
            let mut scenario = scenario(None, protocol, seed, None);
            leave_out(protocol, &mut scenario);
            scenario
        };
        let run = |scenario: &Scenario| {
            let seed = scenario.world.seed;
            assert!(seed != 2 && seed != 3, "seed {seed} is not liked");
            protocol.run(scenario, &[], Keep::JUDGE_AND_TRACE)
        };
        let first = |seeds| first_wrong(protocol, seeds, &scenario_of, &run).expect("nothing fails");
        let found = first(1..=4).expect("two worlds panic");
        assert_eq!((found.seed, &*found.words), (2, "it panics: seed 2 is not liked"));
        assert!(first(1..=1).is_none() && first(4..=4).is_none());
    }
}
