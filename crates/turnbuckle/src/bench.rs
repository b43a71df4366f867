//! `turnbuckle bench`: drives servers with a workload, and reports throughput and latencies.
//!
//! ```text
//!   one thread:  client c0 --- connection ---> target 0        every client is a task with one connection
//!                client c1 --- connection ---> target 1
//!                client c2 --- connection ---> target 0        ...
//!                    |
//!                  Tally: latencies, errors, receipts, trace
//! ```
//!
//! It speaks the Redis protocol and nothing else, so that the same run measures Redis, too. Keyspaces, levels, sessions and
//! receipts, which only Turnbuckle has, are used only if the command line asks for them.
//!
//! Operations are sorted by how they ended: answered (in the latencies), refused by an error (in `errors`, by its first
//! word), or without an answer. In `errors` three words are our own; `errors.rs` says what each word means, in the report too.
//!
//! # Caveats
//!
//! - One thread sends at most some hundred thousand operations per second. If it uses a whole core, the server is not what
//!   is being measured.
//! - A trace has the time when an operation was really sent; latencies count from its intended start. Only the former shows
//!   which operations the server may have reordered.
//! - Receipts cost bytes, so they are asked for only together with `--trace`.
//! - The checker can judge a trace fully only if the trace has every write. Reads of what an earlier run wrote are reads of
//!   values from before the trace, and it cannot judge all of them. `--load` avoids that, and so does an empty keyspace.
//!   Otherwise the report counts such reads.

mod alarm;
mod client;
mod clock;
mod errors;
mod options;
mod receipts;
mod report;
mod shared;
mod shown;
mod source;
mod tally;
mod target;

pub(crate) use options::{Arguments, parse_duration};

use crate::admin::authority;
use crate::{
    connection::Trouble,
    failure::{Failure, say, show, tell},
};
use client::{Client, Over};
use clock::Clock;
use options::SessionKind;
use report::{Report, grouped, span};
use shared::Shared;
use source::{LoadQueue, Run, Source};
use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::IsTerminal,
    num::NonZeroU64,
    path::Path,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tally::{Numbers, Tally};
use target::{Greeting, Target, session_token, site_name};
use tokio::{
    runtime,
    sync::watch,
    task::{LocalSet, spawn_local},
    time::{MissedTickBehavior, interval},
};
use turnbuckle_workload::{ClientId, Packing, Plan, TraceWriter, Workload};

/// Carries out the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let workload = arguments.resolve_workload()?;
    let seed = arguments.seed.unwrap_or_else(seed_of_the_day);
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Environment(format!("cannot start: {error}")))?;
    let bench = Bench {
        arguments,
        plan: Plan::new(workload, seed),
        seed,
    };
    LocalSet::new().block_on(&runtime, bench.run())
}

/// The seed of a run that names none. It differs from run to run.
fn seed_of_the_day() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Small enough to be typed again.
    (since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()) << 32) % 1_000_000_000
}

struct Bench<'a> {
    arguments: &'a Arguments,
    plan: Plan,
    seed: u64,
}

impl Bench<'_> {
    async fn run(&self) -> Result<(), Failure> {
        let greeting = Greeting {
            keyspace: self.arguments.keyspace.clone(),
            authority: authority(self.arguments.authority_file.as_deref())?,
            read: self.arguments.read.clone(),
            write: self.arguments.write.clone(),
            receipts: self.arguments.trace.is_some(),
        };
        let targets = self.look_up_targets(&greeting).await?;
        let shared = self.share(greeting, targets)?;
        let clients = self.connect_clients(&shared).await?;
        stop_on_interrupt(&shared);
        let (clients, was_loaded) = match self.arguments.load {
            true => match self.refuse_old_inserts(&shared).await {
                Ok(()) => self.load(&shared, clients).await,
                Err(failure) => (clients, Err(failure)),
            },
            false => (clients, Ok(())),
        };
        let measured = match was_loaded {
            Ok(()) => self.measure(&shared, clients).await,
            Err(failure) => Err(failure),
        };
        let traced = shared.tally.borrow_mut().finish_trace();
        if let (Err(error), Some(path)) = (traced, &self.arguments.trace) {
            return Err(Failure::Environment(format!(
                "cannot write {}: {error}",
                path.display()
            )));
        }
        measured
    }

    fn workload(&self) -> &Workload {
        self.plan.workload()
    }

    fn clients(&self) -> u16 {
        self.arguments.clients.or(self.workload().clients).unwrap_or(32)
    }

    /// Checks that each target answers and has what the command line asks for, and asks for the name of its site.
    async fn look_up_targets(&self, greeting: &Greeting) -> Result<Vec<Target>, Failure> {
        let mut targets = Vec::new();
        for address in &self.arguments.target {
            let address = &address.0;
            let mut connection = greeting.connect(address, None).await.map_err(failure)?;
            if self.arguments.session == SessionKind::Roam {
                session_token(&mut connection)
                    .await
                    .map_err(|trouble| match failure(trouble) {
                        Failure::Usage(why) => {
                            Failure::Usage(format!("--session roam: {address} refuses {why}"))
                        }
                        other => other,
                    })?;
            }
            let site = site_name(&mut connection).await.map_err(failure)?;
            targets.push(Target {
                address: address.clone(),
                site: site.unwrap_or_else(|| address.clone()),
            });
        }
        Ok(targets)
    }

    fn share(&self, greeting: Greeting, targets: Vec<Target>) -> Result<Rc<Shared>, Failure> {
        let clock = Clock::new();
        let run = self.plan.run().to_string();
        let recorder = format!("bench-{run}-{}", std::process::id());
        let trace = self.arguments.trace.as_deref().map(create_trace).transpose()?;
        Ok(Rc::new(Shared {
            clock,
            targets,
            greeting,
            clients: self.clients(),
            pipeline: usize::from(self.arguments.pipeline),
            timeout_ns: nanos(self.arguments.timeout),
            retry_ns: self.arguments.retry.map_or(0, nanos),
            roams: self.arguments.session == SessionKind::Roam,
            arrival: self.workload().arrival,
            run: run.clone(),
            tally: RefCell::new(Tally::new(clock, recorder, run, trace)),
            population: RefCell::new(self.plan.population()),
            begin_ns: Cell::new(0),
            end_ns: Cell::new(None),
            steps_left: Cell::new(None),
            stop: watch::Sender::new(false),
        }))
    }

    /// Connects all clients at once: one after the other would take minutes if the server is far away.
    async fn connect_clients(&self, shared: &Rc<Shared>) -> Result<Vec<Client>, Failure> {
        let mut connecting = Vec::new();
        for number in 0..self.clients() {
            let id = ClientId::new(number);
            let client = Client::new(shared.clone(), id, self.plan.generator(id), self.seed);
            let mut client = client.map_err(|error| {
                Failure::Environment(format!("client {number} of {}: {error}", self.clients()))
            })?;
            connecting.push(spawn_local(
                async move { client.connect().await.map(|()| client) },
            ));
        }
        let mut clients = Vec::new();
        for task in connecting {
            clients.push(task.await.expect("connecting does not panic").map_err(failure)?);
        }
        Ok(clients)
    }

    /// Whether the trace of this run begins with its load phase.
    fn traces_what_it_loads(&self) -> bool {
        self.arguments.load && self.arguments.trace.is_some()
    }

    /// Refuses a keyspace that has keys which this run inserts: a read of such a key would read a value from before the trace.
    async fn refuse_old_inserts(&self, shared: &Rc<Shared>) -> Result<(), Failure> {
        if !self.traces_what_it_loads() || !self.workload().mix.inserts() {
            return Ok(());
        }
        let records = self.workload().records.get();
        match shown::inserted_before(shared, records).await.map_err(failure)? {
            None => Ok(()),
            Some((key, target)) => Err(Failure::Environment(format!(
                "{} ({}) has {}, which this workload inserts: its trace would have reads of values from before the trace. Expected an \
                 empty keyspace, or --keys above every number that was ever used there",
                target.address,
                target.site,
                String::from_utf8_lossy(&key)
            ))),
        }
    }

    /// Writes every record once. If there is a trace, every target shows all of them then.
    async fn load(&self, shared: &Rc<Shared>, clients: Vec<Client>) -> (Vec<Client>, Result<(), Failure>) {
        let records = self.workload().records.get();
        let queue = Rc::new(RefCell::new(LoadQueue::new(records)));
        let begin_ns = shared.clock.now_ns();
        let source = |_: &Client| Source::Load(queue.clone());
        let over = work(shared, clients, source, "loading").await;
        let seconds = (shared.clock.now_ns() - begin_ns) as f64 / 1e9;
        let numbers = std::mem::take(&mut shared.tally.borrow_mut().numbers);
        let missing = queue.borrow().missing();
        if missing > 0 {
            let of_errors = || match numbers.errors.is_empty() {
                true => "interrupted".to_owned(),
                false => report::counts(&numbers.errors),
            };
            let why = trouble_of(&over).unwrap_or_else(of_errors);
            let message = format!("loading: {missing} of {records} keys could not be written: {why}");
            return (Vec::new(), Err(Failure::Environment(message)));
        }
        if !self.arguments.json {
            tell(&format!("loaded {} keys in {seconds:.1} s", grouped(records)));
        }
        let was_shown = match self.traces_what_it_loads() {
            true => shown::wait_until_shown(shared, records).await,
            false => Ok(()),
        };
        let clients = over.into_iter().map(|over| over.client).collect();
        let loading = |why| Failure::Environment(format!("loading: {why}"));
        (clients, was_shown.map_err(loading))
    }

    /// Runs the workload and reports.
    async fn measure(&self, shared: &Rc<Shared>, clients: Vec<Client>) -> Result<(), Failure> {
        let begin_ns = shared.clock.now_ns();
        shared.begin_ns.set(begin_ns);
        shared
            .end_ns
            .set(self.duration().map(|span| begin_ns.saturating_add(nanos(span))));
        shared
            .steps_left
            .set(self.workload().operations.map(NonZeroU64::get));
        let source = |client: &Client| {
            Source::Run(Box::new(Run::new(
                self.plan.timetable(client.id(), self.clients()),
            )))
        };
        let over = work(shared, clients, source, "running").await;
        let seconds = (shared.clock.now_ns() - begin_ns) as f64 / 1e9;
        let tally = shared.tally.borrow();
        self.print(&Report::new(&tally.numbers, seconds))?;
        match trouble_of(&over) {
            Some(why) => Err(Failure::Environment(format!("at the end, {why}"))),
            None => Ok(()),
        }
    }

    /// How long the run takes. `None` if the workload ends by count and `--for` is not given.
    fn duration(&self) -> Option<Duration> {
        let of_workload = self
            .workload()
            .seconds
            .map(|seconds| Duration::from_secs(seconds.get()));
        let by_default = self
            .workload()
            .operations
            .is_none()
            .then_some(Duration::from_secs(30));
        self.arguments.duration.or(of_workload).or(by_default)
    }

    fn print(&self, report: &Report) -> Result<(), Failure> {
        let text = if self.arguments.json {
            serde_json::to_string(report).expect("numbers and names are JSON")
        } else {
            format!("{}\n\n{report}", self.title())
        };
        say(text.trim_end())
    }

    fn title(&self) -> String {
        let workload = self.workload();
        format!(
            "workload {}: {} keys, {}, {} bytes; {} clients, {}; seed {}",
            self.arguments.workload,
            grouped(workload.records.get()),
            workload.distribution,
            workload.value_size.bytes(),
            self.clients(),
            match workload.arrival {
                turnbuckle_workload::Arrival::Closed { .. } => "closed loop".to_owned(),
                turnbuckle_workload::Arrival::Open { rate, .. } =>
                    format!("{} per second", rate.per_second()),
            },
            self.seed
        )
    }
}

/// Lets all clients work until each has nothing more to do.
async fn work(
    shared: &Rc<Shared>,
    clients: Vec<Client>,
    source: impl Fn(&Client) -> Source,
    phase: &'static str,
) -> Vec<Over> {
    let progress = std::io::stderr()
        .is_terminal()
        .then(|| spawn_local(show_progress(shared.clone(), phase)));
    let working: Vec<_> = clients
        .into_iter()
        .map(|client| {
            let source = source(&client);
            spawn_local(client.work(source))
        })
        .collect();
    let mut over = Vec::new();
    for task in working {
        over.push(task.await.expect("a client's bug is the benchmark's"));
    }
    if let Some(progress) = progress {
        progress.abort();
        show("\r\x1b[K");
    }
    over
}

/// One line, once a second, on a terminal.
async fn show_progress(shared: Rc<Shared>, phase: &'static str) {
    let begin_ns = shared.clock.now_ns();
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut before = 0;
    loop {
        second.tick().await;
        let tally = shared.tally.borrow();
        let Numbers {
            reads,
            writes,
            errors,
            ..
        } = &tally.numbers;
        let operations = tally.numbers.operations();
        show(&format!(
            "\r\x1b[K{phase}: {} s, {} per second, p99 of reads {} and writes {}, {} errors",
            (shared.clock.now_ns() - begin_ns) / 1_000_000_000,
            grouped(operations - before),
            span(reads.summary().p99),
            span(writes.summary().p99),
            grouped(errors.values().sum()),
        ));
        before = operations;
    }
}

/// The first Ctrl-C ends the run and reports; the second ends the process.
fn stop_on_interrupt(shared: &Rc<Shared>) {
    let shared = shared.clone();
    spawn_local(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            shared.stop_all();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
}

fn create_trace(path: &Path) -> Result<TraceWriter<File>, Failure> {
    File::create(path)
        .and_then(|file| TraceWriter::new(file, Packing::of(path)))
        .map_err(|error| Failure::Environment(format!("cannot write {}: {error}", path.display())))
}

/// The reason why a client had no connection at the end, if one had none.
fn trouble_of(over: &[Over]) -> Option<String> {
    let without: Vec<&Trouble> = over.iter().filter_map(|over| over.trouble.as_ref()).collect();
    let first = without.first()?;
    Some(format!(
        "{} of {} clients had no connection: {first}",
        without.len(),
        over.len()
    ))
}

fn failure(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Refused(why) => Failure::Usage(why),
        broken => Failure::Environment(broken.to_string()),
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
