//! A client: a thread that asks, waits, and records what it was told.
//!
//! It is a session of one keyspace. It moves between nodes and sites, with its token. A lost connection ends the session, and a new one
//! begins, because what was under way may or may not have happened. In a pipeline several operations are under way at once. Each is
//! recorded for a session of its own (`c3~2`), because operations of one session may not overlap in a trace.
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

/// How long an answer may take: longer than an operation's deadline.
const PATIENCE: Duration = Duration::from_secs(6);

/// The number of nodes that a client that moves tries before it gives its session up.
const TRIES: usize = 3;

/// What a value tells its readers: the state of a key that every reader of the value must see.
#[derive(Debug, Clone)]
pub struct Told {
    /// The key.
    pub key: Bytes,
    /// The key must have at least this version.
    pub version: Stamp,
    /// Whether that version is a delete.
    pub is_delete: bool,
    /// The node that acknowledged it.
    pub node: usize,
    /// When it was acknowledged, in the recorder's time.
    pub at_ns: i64,
}

/// A read of a value whose reader did not find what the value tells.
#[derive(Debug, Clone)]
pub struct Untrue {
    /// What the value tells.
    pub told: Told,
    /// The reader, the place of the read and what it found, as text.
    pub what: String,
}

/// State that all clients of a keyspace share.
pub struct Shared<'a> {
    /// The cluster to which they connect.
    pub cluster: &'a Cluster,
    /// Their keyspace.
    pub keyspace: &'a Keyspace,
    /// Their clock.
    pub recorder: Recorder,
    /// The round's number.
    pub round: u32,
    /// Whether the clients are to end.
    pub stop: &'a AtomicBool,
    /// If it is more than 0, the clients write as fast as they can.
    pub hurry: &'a AtomicUsize,
    /// What values tell, by the values' labels.
    pub told: Mutex<HashMap<Bytes, Told>>,
}

/// The result of a client's round.
#[derive(Default)]
pub struct Round {
    /// The trace.
    pub records: Vec<Record>,
    /// The number of causal pairs that were read, including the broken ones.
    pub pairs: u64,
    /// The broken pairs.
    pub untrue: Vec<Untrue>,
    /// The number of errors, by their first word.
    pub errors: BTreeMap<String, u64>,
    /// The number of times that the session moved to another site.
    pub moves: u64,
}

/// A client: see the module.
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
    /// Keys that this client has written once and not deleted yet.
    ripe: VecDeque<Bytes>,
    /// Keys of an earlier round that the client is to delete.
    sweep: Vec<Bytes>,
    /// The ballast keys that the client has not written yet.
    ballast: Range<u64>,
    round: Round,
}

/// An operation that is to be carried out.
struct Job {
    op: Op,
    key: Bytes,
    /// The value that is written, and its label.
    value: Option<(Bytes, Octets)>,
}

/// The answer to an operation.
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
    /// The client with this number, of all clients of the round.
    pub fn new(shared: &'a Shared<'a>, seed: u64, number: u16, is_bulk: bool) -> Client<'a> {
        let stream = u64::from(shared.round) << 16 | u64::from(number);
        let values = |part: u16, bytes: u64| {
            let size = ValueSize::new(bytes).expect("long enough for a label");
            // Labels need to differ only within a key. They do if they differ within a round.
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

    /// Sets the ballast keys that the client writes before anything else.
    pub fn load(&mut self, ballast: Range<u64>) {
        self.ballast = ballast;
    }

    /// Makes the client delete these keys, beside its other operations.
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

    /// Opens a new session at the current node. Returns false if that node is away; then another one is tried next.
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

    /// Moves the session to another node, mostly at another site.
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

    /// `r2-c3-1`: the round, the client, and the number of the client's session.
    fn session(&self) -> String {
        format!("r{}-c{}-{}", self.shared.round, self.number, self.sessions)
    }

    /// The next time: later than everything that this client has done before, because operations with equal times would overlap.
    fn now_ns(&mut self) -> i64 {
        self.last_ns = self.shared.recorder.now_ns().max(self.last_ns + 1);
        self.last_ns
    }

    fn one(&mut self, job: Job) -> Result<Answer, Lost> {
        self.pipeline(vec![job])?.pop().ok_or(Lost)
    }

    /// Sends several operations at once, and takes their answers as they come.
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

    /// Records how an operation ended.
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

    /// How an operation ended, what was read, and what the operation counts as: a delete that found nothing is a read.
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
                // Only after this error may the operation have happened. Every other error says that it certainly has not.
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
                self.count("(a reply of the wrong type)");
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

/// A value by its label, the name of its write. A damaged value has none, and shows as a value that was never written.
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
