//! A client: a thread that asks, waits, and writes down what it was told.
//!
//! It is a session of one keyspace. It moves between nodes and sites, with its token; a connection that is lost ends the session, and a
//! new one begins, for what was under way may or may not have happened. In a pipeline several operations are under way at once: each is
//! written down for a session of its own (`c3~2`), because operations of one session may not overlap in a trace.
use crate::{
    Connection, Stamp,
    cluster::{Cluster, Keyspace, NODES, SITES, node_of_server, site_of},
    recorder::Recorder,
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use turnbuckle_resp::Value;
use turnbuckle_workload::{
    ClientId, Octets, Op, Random, Received, Record, RunTag, SnapshotRead, Status, ValueSize, Values, label,
    split_receipt,
};

mod actions;

/// How long an answer may take: longer than an operation may.
const PATIENCE: Duration = Duration::from_secs(6);

/// How many nodes a client that moves tries before it gives its session up.
const TRIES: usize = 3;

/// What a client has told others by a value: the state of a key that whoever reads the value has to see.
#[derive(Debug, Clone)]
pub struct Told {
    /// About which key.
    pub key: Bytes,
    /// Its version, at least.
    pub version: Stamp,
    /// Whether that version is a delete.
    pub is_delete: bool,
    /// Which node acknowledged it.
    pub node: usize,
    /// When, in the recorder's time.
    pub at_ns: i64,
}

/// Somebody read a value and did not find what it tells.
#[derive(Debug, Clone)]
pub struct Untrue {
    /// What was told.
    pub told: Told,
    /// Who read it, and where, in words.
    pub what: String,
}

/// What all clients of a keyspace share.
pub struct Shared<'a> {
    /// Where they connect.
    pub cluster: &'a Cluster,
    /// Which of its keyspaces they use.
    pub keyspace: &'a Keyspace,
    /// Their clock.
    pub recorder: Recorder,
    /// The round.
    pub round: u32,
    /// Whether they are to end.
    pub stop: &'a AtomicBool,
    /// Whether they are to write as fast as they can.
    pub hurry: &'a AtomicUsize,
    /// What values tell, by their labels.
    pub told: Mutex<HashMap<Bytes, Told>>,
}

/// What became of a client's round.
#[derive(Default)]
pub struct Round {
    /// The trace.
    pub records: Vec<Record>,
    /// Causal pairs that were read, and those that were broken.
    pub pairs: u64,
    /// Those that were broken.
    pub untrue: Vec<Untrue>,
    /// How often each error was met, by its first word.
    pub errors: BTreeMap<String, u64>,
    /// Sessions that moved.
    pub moves: u64,
}

/// See the module.
pub struct Client<'a> {
    shared: &'a Shared<'a>,
    number: u16,
    random: Random,
    small: Values,
    medium: Values,
    large: Values,
    is_bulk: bool,
    node: usize,
    connection: Option<Connection>,
    sessions: u32,
    last_ns: i64,
    churned: u64,
    /// Keys of this client that it has written once and not deleted yet.
    ripe: VecDeque<Bytes>,
    /// Keys of an earlier round that are to be deleted.
    sweep: Vec<Bytes>,
    /// The keys of the ballast that it has still to write.
    ballast: Range<u64>,
    round: Round,
}

/// An operation that is to be done.
struct Job {
    op: Op,
    key: Bytes,
    /// What is written, and its label.
    value: Option<(Bytes, Octets)>,
}

/// What an operation was answered.
struct Answer {
    status: Status,
    value: Option<Octets>,
    version: Option<Stamp>,
    node: Option<usize>,
    at_ns: i64,
}

/// The connection is lost.
struct Lost;

impl<'a> Client<'a> {
    /// A client of that number, of all clients of the round.
    pub fn new(shared: &'a Shared<'a>, seed: u64, number: u16, is_bulk: bool) -> Client<'a> {
        let stream = u64::from(shared.round) << 16 | u64::from(number);
        let values = |part: u16, bytes: u64| {
            let size = ValueSize::new(bytes).expect("long enough for a label");
            // Labels differ within a key as long as they differ within a round.
            Values::new(RunTag::of_seed(seed), ClientId::new(3 * number + part), size)
        };
        Client {
            random: Random::new(seed, stream),
            small: values(0, 60),
            medium: values(1, 300),
            large: values(2, 24 << 10),
            is_bulk,
            node: usize::from(number) % NODES,
            connection: None,
            sessions: 0,
            last_ns: 0,
            churned: 0,
            ripe: VecDeque::new(),
            sweep: Vec::new(),
            ballast: 0..0,
            round: Round::default(),
            shared,
            number,
        }
    }

    /// Sets which lasting keys it writes before anything else.
    pub fn load(&mut self, ballast: Range<u64>) {
        self.ballast = ballast;
    }

    /// Has it delete these keys, beside what it does anyway.
    pub fn sweep(&mut self, keys: Vec<Bytes>) {
        self.sweep = keys;
    }

    /// Asks until it is told to stop.
    pub fn work(mut self) -> Round {
        while !self.is_over() {
            if self.connection.is_none() && !self.connect() {
                continue;
            }
            if self.act().is_err() {
                self.connection = None;
            }
            self.think();
        }
        self.round
    }

    fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    fn is_hurried(&self) -> bool {
        self.shared.hurry.load(Ordering::Acquire) > 0
    }

    fn think(&mut self) {
        let max_us = match (self.is_bulk, self.is_hurried()) {
            (true, true) => 4_000,
            (true, false) => 30_000,
            (false, _) => 25_000,
        };
        std::thread::sleep(Duration::from_micros(self.random.below(max_us)));
    }

    // ---- connections ------------------------------------------------------------------------------------------

    /// A new session at some node. False if that one is away; then another one is tried next.
    fn connect(&mut self) -> bool {
        self.sessions += 1;
        match self.greet(self.node, None) {
            Ok(connection) => {
                self.connection = Some(connection);
                true
            }
            Err(_) => {
                self.node = self.random.below(NODES as u64) as usize;
                std::thread::sleep(Duration::from_millis(20 + self.random.below(100)));
                false
            }
        }
    }

    fn greet(&self, node: usize, token: Option<&[u8]>) -> io::Result<Connection> {
        let mut connection = Connection::open(self.shared.cluster.resp_port(node), PATIENCE)?;
        let keyspace = self.shared.keyspace.name.as_bytes();
        let mut commands: Vec<Vec<&[u8]>> = vec![
            vec![b"HELLO", b"3"],
            vec![b"RECEIPTS", b"ON"],
            vec![b"SELECT", keyspace],
        ];
        if let Some(token) = token {
            commands.push(vec![b"SESSION", b"RESUME", token]);
        }
        for command in commands {
            if let Value::Error(why) = connection.call(&command)? {
                let why = String::from_utf8_lossy(&why).into_owned();
                return Err(io::Error::other(why));
            }
        }
        Ok(connection)
    }

    /// Takes the session to another node, mostly at another site.
    fn move_on(&mut self) -> Result<(), Lost> {
        let connection = self.connection.as_mut().ok_or(Lost)?;
        let reply = connection.call(&["SESSION", "TOKEN"]).map_err(|_| Lost)?;
        let (Value::Bulk(token), _) = split_receipt(reply) else {
            return Err(Lost);
        };
        self.connection = None;
        for _ in 0..TRIES {
            let to = self.random.below(NODES as u64) as usize;
            if let Ok(connection) = self.greet(to, Some(&token)) {
                self.round.moves += u64::from(site_of(to) != site_of(self.node));
                (self.node, self.connection) = (to, Some(connection));
                return Ok(());
            }
        }
        Err(Lost)
    }

    // ---- operations -------------------------------------------------------------------------------------------

    /// `r2-c3`, then `r2-c3-1` after one session that was lost.
    fn session(&self) -> String {
        format!("r{}-c{}-{}", self.shared.round, self.number, self.sessions)
    }

    /// The next moment: later than all that this client has done before, for equal times overlap.
    fn now_ns(&mut self) -> i64 {
        self.last_ns = self.shared.recorder.now_ns().max(self.last_ns + 1);
        self.last_ns
    }

    fn one(&mut self, job: Job) -> Result<Answer, Lost> {
        self.pipeline(vec![job])?.pop().ok_or(Lost)
    }

    /// Sends operations at once, and takes their answers as they come.
    fn pipeline(&mut self, jobs: Vec<Job>) -> Result<Vec<Answer>, Lost> {
        let commands: Vec<Vec<Bytes>> = jobs.iter().map(Job::command).collect();
        let sent_ns = self.now_ns();
        let connection = self.connection.as_mut().ok_or(Lost)?;
        let mut is_lost = connection.send(&commands).is_err();
        let mut answers = Vec::with_capacity(jobs.len());
        for (lane, job) in jobs.into_iter().enumerate() {
            let reply = match (is_lost, &mut self.connection) {
                (false, Some(connection)) => connection.read().ok(),
                _ => None,
            };
            is_lost |= reply.is_none();
            answers.push(self.write_down(lane, job, sent_ns, reply));
        }
        if is_lost { Err(Lost) } else { Ok(answers) }
    }

    /// Writes down what became of an operation.
    fn write_down(&mut self, lane: usize, job: Job, sent_ns: i64, reply: Option<Value>) -> Answer {
        let at_ns = self.now_ns();
        let (reply, receipt) = match reply {
            Some(reply) => {
                let (reply, receipt) = split_receipt(reply);
                (Some(reply), receipt)
            }
            None => (None, None),
        };
        let (status, value, op) = self.judge(&job, reply.as_ref());
        let answer = Answer {
            status,
            version: version_of(&receipt),
            node: receipt
                .as_ref()
                .and_then(|(claim, _)| node_of_server(claim.server.as_deref()?)),
            value,
            at_ns,
        };
        if status == Status::Ok || job.op != Op::Read {
            let mut session = self.session();
            if lane > 0 {
                session += &format!("~{lane}");
            }
            let (receipt, version) = receipt.unzip();
            let written = job.value.as_ref().map(|(_, label)| label.clone());
            self.round.records.push(Record {
                client: session,
                site: SITES[site_of(self.node)].to_owned(),
                op,
                key: Octets(job.key),
                value: written.or_else(|| answer.value.clone()),
                start_ns: sent_ns,
                finish_ns: (status != Status::Unknown).then_some(at_ns),
                status,
                version: version.flatten(),
                level: None,
                receipt,
                recorder: None,
                pipelined: false,
                existed: op == Op::Delete && status == Status::Ok,
                reads: None,
            });
        }
        answer
    }

    /// How an operation ended, what was read, and what it was after all: a delete that found nothing has read.
    fn judge(&mut self, job: &Job, reply: Option<&Value>) -> (Status, Option<Octets>, Op) {
        match (job.op, reply) {
            (op, None) => {
                self.count("(no answer)");
                (Status::Unknown, None, op)
            }
            (op, Some(Value::Error(why))) => {
                let why = String::from_utf8_lossy(why);
                let word = why.split_whitespace().next().unwrap_or_default();
                self.count(word);
                // Only this one may have happened; every other error says that it certainly has not.
                let status = if word == "TIMEOUT" {
                    Status::Unknown
                } else {
                    Status::Fail
                };
                (status, None, op)
            }
            (Op::Read, Some(Value::Bulk(value))) => (Status::Ok, Some(named(value)), Op::Read),
            (Op::Read, Some(Value::Null)) => (Status::Ok, None, Op::Read),
            (Op::Delete, Some(Value::Integer(0))) => (Status::Ok, None, Op::Read),
            (Op::Delete, Some(Value::Integer(_))) => (Status::Ok, None, Op::Delete),
            (Op::Write, Some(Value::Simple(word))) if word == "OK" => (Status::Ok, None, Op::Write),
            (op, Some(_)) => {
                self.count("(no answer to that)");
                (Status::Unknown, None, op)
            }
        }
    }

    /// Reads several keys as one snapshot.
    fn snapshot(&mut self, keys: &[Bytes]) -> Result<(), Lost> {
        let command = if self.random.below(2) == 0 { "MGET" } else { "ROTX" };
        let mut words = vec![Bytes::from_static(command.as_bytes())];
        words.extend_from_slice(keys);
        let start_ns = self.now_ns();
        let connection = self.connection.as_mut().ok_or(Lost)?;
        let (reply, receipt) = split_receipt(connection.call(&words).map_err(|_| Lost)?);
        let finish_ns = self.now_ns();
        let values = match reply {
            Value::Array(values) => values,
            Value::Error(why) => {
                let why = String::from_utf8_lossy(&why);
                self.count(why.split_whitespace().next().unwrap_or_default());
                return Ok(());
            }
            _ => return Err(Lost),
        };
        let reads = keys.iter().zip(values).map(|(key, value)| SnapshotRead {
            key: Octets(key.clone()),
            value: match value {
                Value::Bulk(value) => Some(named(&value)),
                _ => None,
            },
            version: None,
        });
        let record = Record {
            client: self.session(),
            site: SITES[site_of(self.node)].to_owned(),
            op: Op::Snapshot,
            key: Octets(Bytes::new()),
            value: None,
            start_ns,
            finish_ns: Some(finish_ns),
            status: Status::Ok,
            version: None,
            level: None,
            receipt: receipt.map(|(claim, _)| claim),
            recorder: None,
            pipelined: false,
            existed: false,
            reads: Some(reads.collect()),
        };
        self.round.records.push(record);
        Ok(())
    }

    fn count(&mut self, word: &str) {
        let mut word = word.to_owned();
        word.truncate(32);
        *self.round.errors.entry(word).or_default() += 1;
    }
}

impl Job {
    fn read(key: Bytes) -> Job {
        Job {
            op: Op::Read,
            key,
            value: None,
        }
    }

    fn delete(key: Bytes) -> Job {
        Job {
            op: Op::Delete,
            key,
            value: None,
        }
    }

    fn write(key: Bytes, value: Bytes) -> Job {
        let named = named(&value);
        Job {
            op: Op::Write,
            key,
            value: Some((value, named)),
        }
    }

    fn command(&self) -> Vec<Bytes> {
        let word = |word: &'static str| Bytes::from_static(word.as_bytes());
        match (self.op, &self.value) {
            (Op::Write, Some((value, _))) => vec![word("SET"), self.key.clone(), value.clone()],
            (Op::Delete, _) => vec![word("DEL"), self.key.clone()],
            _ => vec![word("GET"), self.key.clone()],
        }
    }
}

/// A value by the name of its write. What is not whole has none, and shows as what nobody wrote.
pub(crate) fn named(value: &Bytes) -> Octets {
    match label(value) {
        Some(label) => label.into(),
        None => {
            let begin: String = String::from_utf8_lossy(value).chars().take(24).collect();
            let text = format!("damaged: {} bytes that begin with {begin:?}", value.len());
            text.as_str().into()
        }
    }
}

fn version_of(receipt: &Option<Received>) -> Option<Stamp> {
    receipt.as_ref()?.1.as_deref()?.parse().ok()
}
