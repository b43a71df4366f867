//! The clients of a world, and what they do.
//!
//! A client makes *requests*, one after the other. A request is one operation, or a read and a write, or (with amplification) many
//! operations one after the other, as when a web page is built. Between two requests the client thinks. If operations come at a rate, it
//! waits for its next turn.
//!
//! In a *pipeline* the operations of a request are sent without waiting for answers, up to a limit of open ones. They take effect in the
//! order in which they were sent. In a keyspace with sessions, each follows the one before it as if that had been answered. In others, each
//! follows those before it on its key. If the node crashes, the client does not know of each open operation whether it happened.
//!
//! | kind | what |
//! |---|---|
//! | [`Kind::Workload`] | a workload of `bench`: one of YCSB's, or one from a file |
//! | [`Kind::Mixed`] | everything a client can ask, on few keys, with the same number of clients in each keyspace: it finds bugs |
//! | [`Kind::Hot`] | few keys in each partition: some clients write them, partition after partition, and others read them |
//! | [`Kind::PingPong`] | pairs of clients at two nodes that take turns: each writes what the other waits to read, like two people who edit one text |
//!
//! There are clients at all nodes, or at some. They stay at their node, or roam: after a number of requests they go on at the next node,
//! with their session. Or a percentage of their requests is made *away*, at a node of another site. Or they make *visits*: right after a write the client goes to the next node, reads there what it wrote, makes one
//! more request, and comes back.
use crate::{
    OperationId, Random, Record, Rule, Span, World, element, keyspaces::key_in, ledger, number, text,
};
use bytes::Bytes;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    str::FromStr,
};
use turnbuckle_core::{
    Answer, Condition, Expiry, Key, Level, Levels, Message as ChannelMessage, Micros, Operation, Proof,
    PutOptions, Retimes, Session, SiteId, Topology, Vector, VersionId, Wanted,
};
use turnbuckle_document::number as within;
use turnbuckle_node::NodeId;
use turnbuckle_workload::{ClientId, Generator, Latencies, Plan, Population, Step, Timetable, Workload};

mod elements;
mod hot;
mod ledgers;
pub use hot::Hot;
mod numbers;
mod texts;
use numbers::Numbers;
mod once;
mod twins;
use once::Pairs;

/// What clients do.
#[derive(Debug, Clone)]
pub struct Load {
    /// The number of clients at each node that has clients.
    pub clients_per_node: usize,
    /// The nodes that have clients. If it is empty, all have.
    pub at: Vec<NodeId>,
    /// Clients, and the writing of records, begin this long after everything else: by then links are up and sites have heard of each other.
    pub after: Micros,
    /// How long a client thinks between two requests.
    pub think: Span,
    /// What they do.
    pub kind: Kind,
    /// The level that reads name, if any.
    pub read: Option<Level>,
    /// Of the clients of a workload: the levels that reads name in its place, each with its share.
    pub read_mix: Option<LevelMix>,
    /// The level that writes name, if any.
    pub write: Option<Level>,
    /// The number of requests after which a client goes on at the next node. `None`: it stays.
    pub roam_every: Option<u64>,
    /// The number of operations of a request.
    pub amplification: u64,
    /// The most operations of a request that are open at the same time. 1: each waits for the answer to the one before.
    pub pipeline: usize,
    /// The percentage of requests ending with a write that are followed by a visit to the next node.
    pub visits: u64,
    /// The percentage of requests that a client makes at a node of another site than its own, with its session.
    pub away: u64,
    /// The run ends after this number of requests of all clients together, even if its time is not over.
    pub requests: Option<u64>,
}

impl Load {
    /// Whether some reads are at level `eventual` or `bounded(t)`, whatever level the others are at.
    pub fn is_careless(&self) -> bool {
        matches!(self.kind, Kind::Mixed(mixed) if mixed.careless > 0 || mixed.fresh > 0)
    }
}

/// Levels, and by how many percent of the reads each is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelMix(Vec<(u64, Level)>);

/// Parses `10% linearizable, 90% eventual`.
impl FromStr for LevelMix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<LevelMix, &'static str> {
        let one = |part: &str| {
            let (percent, level) = part.trim().split_once("% ")?;
            Some((percent.parse().ok()?, level.trim().parse().ok()?))
        };
        let levels: Option<Vec<(u64, Level)>> = text.split(',').map(one).collect();
        let is_whole =
            |levels: &Vec<(u64, Level)>| levels.iter().map(|(percent, _)| *percent).sum::<u64>() == 100;
        let expected =
            "expected levels with percentages that add up to 100, such as \"10% linearizable, 90% eventual\"";
        levels.filter(is_whole).map(LevelMix).ok_or(expected)
    }
}

impl LevelMix {
    fn draw(&self, random: &mut Random) -> Option<Level> {
        let mut left = random.below(100);
        let drawn = self.0.iter().find(|(percent, _)| {
            let is_it = left < *percent;
            left = left.saturating_sub(*percent);
            is_it
        });
        drawn.map(|&(_, level)| level)
    }
}

/// The kind of the clients.
#[derive(Debug, Clone)]
pub enum Kind {
    /// The clients of a workload. If operations come at a rate, the clients do not think.
    Workload {
        /// The workload.
        workload: Box<Workload>,
        /// Whether every record is written before the run begins.
        load: bool,
    },
    /// Everything that can be asked.
    Mixed(Mixed),
    /// Few keys in each partition.
    Hot(Hot),
    /// Pairs that take turns.
    PingPong,
}

/// A mix of everything.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mixed {
    /// The number of keys.
    #[serde(deserialize_with = "within::<_, 1, 1_000_000>")]
    pub keys: u64,
    /// The percentage of operations that write or delete.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub writes: u64,
    /// The percentage of writes that delete.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub deletes: u64,
    /// The longest value, in bytes.
    #[serde(deserialize_with = "within::<_, 1, 1_000_000>")]
    pub value_bytes: u64,
    /// The percentage of reads at level `eventual`, whatever level the others are at. They do not count as seen by their client.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub careless: u64,
    /// The percentage of reads at level `bounded(t)`, for different t from 10 ms to 10 s. Half of them name the default level as well, and a time after which
    /// that is given.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub fresh: u64,
    /// The percentage of writes of values that say when these expire: soon, in an hour, or when the value before would have. Only for protocols that take
    /// that.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub expires: u64,
    /// The percentage of writes that only change when a value expires. Only for protocols that take that.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub retimes: u64,
    /// The percentage of writes that have a condition, or that ask for the value before. Only for protocols that take such puts.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub conditions: u64,
    /// The percentage of operations on one key, which all clients share.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub hot: u64,
    /// The percentage of deletes that delete the key that their client has read last.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub deletes_of_read: u64,
    /// The most keys of a read of several keys.
    #[serde(deserialize_with = "within::<_, 0, 1_000>")]
    pub many_keys: u64,
    /// The percentage of reads that ask for siblings.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub siblings: u64,
    /// The percentage of writes that name a context: of the siblings that their client has asked for last. With 100, a client that has none names the empty
    /// one.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub contexts: u64,
    /// The percentage of operations on *ledgers*: transactions and values that are computed. Only for protocols that have them.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub ledgers: u64,
    /// The percentage of operations on *numbers*, to which clients add. Only for protocols that keep counts.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub numbers: u64,
    /// The percentage of operations on *twins*: transactions that write two keys alike. Only for protocols that have transactions without conditions.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub twins: u64,
    /// The percentage of operations on *elements* of hashes and sets. Only for protocols that keep elements.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub elements: u64,
    /// The percentage of operations that wait for other sites, or send a message to a channel. Only for protocols whose sessions say what a site must have.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub waits: u64,
    /// The percentage of operations on *texts*, to which clients append and which they overwrite. Only for protocols whose keyspaces may let one site decide.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub texts: u64,
    /// The percentage of operations on *pairs*: two keys that one client writes once, the second after the first. Other clients ask for
    /// them in the other order: they delete the second, which they have never read, and then read the first.
    #[serde(deserialize_with = "within::<_, 0, 100>")]
    pub once: u64,
}

impl Default for Mixed {
    /// The default values of `mixed` in a scenario's file.
    fn default() -> Mixed {
        Mixed {
            keys: 20,
            writes: 50,
            deletes: 10,
            value_bytes: 100,
            careless: 0,
            fresh: 0,
            expires: 0,
            retimes: 0,
            conditions: 0,
            hot: 0,
            deletes_of_read: 0,
            many_keys: 5,
            siblings: 0,
            contexts: 0,
            ledgers: 0,
            numbers: 0,
            twins: 0,
            elements: 0,
            waits: 0,
            texts: 0,
            once: 0,
        }
    }
}

/// The operations of a run: how long they took, and how many failed.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Answered reads, of one key or of several.
    pub reads: Latencies,
    /// Answered writes.
    pub writes: Latencies,
    /// Requests whose operations were all answered, counted from when they should have begun.
    pub requests: Latencies,
    /// Reads of several keys, without those that are counted in `many_apart`.
    pub many: Latencies,
    /// Reads of several keys that touch the partition that is counted apart ([`Hot::apart`]).
    pub many_apart: Latencies,
    /// The time from when one player of a pair first asked to write a turn until the other was told of that turn.
    pub visibility: Latencies,
    /// The answered reads and writes of the clients at each site, by the site's number.
    pub sites: Vec<OfSite>,
    /// The number of answered reads for which one replica was enough, as their receipts say.
    pub alone: u64,
    /// The number of answered reads for which another replica was asked before, which was behind or did not lead.
    pub redirected: u64,
    /// The staleness that receipts of reads prove, for those that prove one.
    pub staleness: Latencies,
    /// How long the clients went on.
    pub took: Micros,
    /// The number of failures, by their first word. `CONNECTION`: the node crashed during the operation.
    pub failures: BTreeMap<&'static str, u64>,
}

/// The operations of the clients at one site.
#[derive(Debug, Clone, Default)]
pub struct OfSite {
    /// Answered reads.
    pub reads: Latencies,
    /// Answered writes.
    pub writes: Latencies,
}

impl Tally {
    /// Of no operations, in a world with this number of sites.
    fn of_sites(sites: usize) -> Tally {
        Tally {
            sites: vec![OfSite::default(); sites],
            ..Tally::default()
        }
    }

    /// The number of operations that were answered.
    pub fn answered(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }

    /// The number of operations that failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    fn add(&mut self, record: &Record, site: SiteId, is_apart: bool) {
        let Some((at, (answer, receipt))) = &record.returned else {
            *self.failures.entry("CONNECTION").or_default() += 1;
            return;
        };
        if let Answer::Failed(failure) = answer {
            *self.failures.entry(failure.word()).or_default() += 1;
            return;
        }
        let took_ns = at.since(record.invoked).0 * 1_000;
        let of_site = &mut self.sites[usize::from(site.0)];
        if record.operation.is_write() {
            self.writes.record_ns(took_ns);
            of_site.writes.record_ns(took_ns);
            return;
        }
        self.reads.record_ns(took_ns);
        of_site.reads.record_ns(took_ns);
        if let Some(receipt) = receipt {
            self.alone += u64::from(receipt.copies() == 1);
            let redirects = match &receipt.proof {
                Proof::Consensus(proof) => proof.redirects,
                Proof::Regional(proof) => proof.redirects,
                _ => 0,
            };
            self.redirected += u64::from(redirects > 0);
            if let Some(staleness) = receipt.staleness {
                self.staleness.record_ns(staleness.0 * 1_000);
            }
        }
        match (&record.operation, is_apart) {
            (Operation::ReadMany { .. }, true) => self.many_apart.record_ns(took_ns),
            (Operation::ReadMany { .. }, false) => self.many.record_ns(took_ns),
            _ => {}
        }
    }
}

/// The clients of a run.
pub(crate) struct Clients {
    load: Load,
    nodes: Vec<NodeId>,
    /// By partition. Only for [`Kind::Hot`].
    hot_keys: Vec<Vec<Key>>,
    /// By keyspace.
    pairs: BTreeMap<usize, Pairs>,
    /// By keyspace and kind.
    numbers: BTreeMap<(usize, number::Kind), Numbers>,
    /// By keyspace.
    elements: BTreeMap<usize, elements::Elements>,
    /// The number of appends to texts of one site, by keyspace and site.
    texts: BTreeMap<(usize, SiteId), u64>,
    topology: Topology,
    /// The levels that the keyspaces offer.
    offered: Levels,
    random: Random,
    population: Population,
    /// By the world's number of the client, which begins at `first`.
    all: Vec<Client>,
    first: usize,
    /// The number of values that were written, for kinds that number them.
    written: u64,
    began: Micros,
    /// Whether no new request begins.
    stopped: bool,
    pub tally: Tally,
}

struct Client {
    steps: Option<Generator>,
    timetable: Option<Timetable>,
    /// The operations of the request under way that were not sent yet.
    left: VecDeque<Operation>,
    open: BTreeSet<OperationId>,
    /// The list of a ledger that the client has read last, and its version.
    list: Option<(Key, VersionId)>,
    /// The key that the client has read last, if that had a value.
    read: Option<Key>,
    /// The key whose siblings the client has read last, and their context.
    context: Option<(Key, Vector)>,
    /// The key that the request under way has written last.
    wrote_key: Option<Key>,
    /// The node to which the client comes back after its visit.
    home: Option<NodeId>,
    /// When the request under way should have begun.
    due: Micros,
    requests: u64,
    /// The record that is being inserted.
    inserting: Option<u64>,
    /// The client's keyspace.
    keyspace: usize,
    failed: bool,
    /// For a player of a pair: the turn that it writes next, and the last turn that it has read.
    next_turn: u64,
    attempt: u64,
    seen_turn: Option<u64>,
    /// The last turn that it asked to write, and when it first did.
    wrote: Option<(u64, Micros)>,
    /// The number of hot keys that the client has written.
    rounds: u64,
}

/// How long a client waits until it tries again, if its node does not serve it.
const RETRY: Micros = Micros::from_millis(20);

/// The number of clients that write the records before the run begins.
const LOADERS: usize = 16;

impl Clients {
    /// Clients at the load's nodes. They have not begun.
    pub fn new<S: Session>(load: Load, seed: u64, world: &mut World<S>) -> Clients {
        let nodes: Vec<NodeId> = match load.at.is_empty() {
            true => world.nodes().collect(),
            false => load.at.clone(),
        };
        let in_each = load.clients_per_node * nodes.len();
        let keyspaces = match load.kind {
            Kind::Mixed(_) => world.options().keyspaces,
            _ => 1,
        };
        let count = in_each * keyspaces;
        let plan = match &load.kind {
            Kind::Workload { workload, .. } => Some(Plan::new((**workload).clone(), seed)),
            _ => None,
        };
        let mut clients = Clients {
            population: plan.as_ref().map_or(Population::new(1), Plan::population),
            random: Random::new(!seed),
            all: Vec::new(),
            first: 0,
            written: 0,
            began: world.time(),
            stopped: false,
            tally: Tally::of_sites(world.options().sites.len()),
            hot_keys: match &load.kind {
                Kind::Hot(hot) => hot.keys(world.topology()),
                _ => Vec::new(),
            },
            pairs: BTreeMap::new(),
            numbers: BTreeMap::new(),
            elements: BTreeMap::new(),
            texts: BTreeMap::new(),
            topology: world.topology().clone(),
            offered: S::LEVELS,
            nodes,
            load,
        };
        for number in 0..count {
            let node = clients.nodes[number % clients.nodes.len()];
            let keyspace = number / in_each;
            let client = world.add_client_in(keyspace, node);
            if number == 0 {
                clients.first = client;
            }
            let id = u16::try_from(number).unwrap_or(u16::MAX).min(ClientId::MAX - 1);
            clients.all.push(Client {
                steps: plan.as_ref().map(|plan| plan.generator(ClientId::new(id))),
                timetable: plan
                    .as_ref()
                    .and_then(|plan| plan.timetable(ClientId::new(id), count as u16)),
                left: VecDeque::new(),
                open: BTreeSet::new(),
                list: None,
                read: None,
                context: None,
                wrote_key: None,
                home: None,
                due: Micros(0),
                requests: 0,
                inserting: None,
                keyspace,
                failed: false,
                next_turn: number as u64 % 2,
                attempt: 0,
                seen_turn: None,
                wrote: None,
                rounds: 0,
            });
        }
        clients
    }

    /// If the load wants it, writes every record, and waits until all sites have them.
    pub fn load_records<S: Session>(&mut self, world: &mut World<S>) {
        let Kind::Workload { workload, load: true } = &self.load.kind else {
            return;
        };
        let mut values: Vec<(Bytes, Bytes)> = Vec::new();
        let count = self.all.len();
        for record in 0..workload.records.get() {
            let steps = self.all[record as usize % count].steps.as_mut();
            let steps = steps.expect("clients of a workload have steps");
            values.push((Population::key(record), steps.next_value()));
        }
        let loaders: Vec<usize> = (0..LOADERS).map(|_| world.add_client(self.nodes[0])).collect();
        for batch in values.chunks(LOADERS) {
            let ids: Vec<OperationId> = batch
                .iter()
                .zip(&loaders)
                .map(|((key, value), &loader)| {
                    let put = Operation::put(Key(key.clone()), value.clone());
                    world.invoke(loader, put.at(self.load.write))
                })
                .collect();
            let until = world.time() + world.options().deadline + RETRY;
            world.run_until(until, |world| ids.iter().all(|&id| !world.is_open(id)));
            let is_written =
                |id: &OperationId| matches!(world.record(*id).answer(), Some(Answer::Written { .. }));
            if !ids.iter().all(is_written) {
                let words = "a record could not be written before the run".to_string();
                return world.judge.report(Rule::Service, words);
            }
        }
        if !world.settle(Micros::from_millis(60_000)) {
            let words = "the records did not reach all sites within a minute".to_string();
            world.judge.report(Rule::Service, words);
        }
        world.take_over();
    }

    /// Lets all clients begin, each after a short time of its own.
    pub fn begin<S: Session>(&mut self, world: &mut World<S>) {
        self.began = world.time();
        for number in 0..self.all.len() {
            let after = self.next_after(number, world.time());
            self.all[number].due = world.time() + after;
            world.wake(self.first + number, after);
        }
    }

    /// Whether the number of requests has been reached that the load names.
    pub fn are_done(&self) -> bool {
        let done = self.tally.requests.count();
        self.load.requests.is_some_and(|enough| done >= enough)
    }

    /// Stops the clients: no new request begins. Open operations may still be answered.
    pub fn stop(&mut self, time: Micros) {
        self.tally.took = time.since(self.began);
        self.stopped = true;
    }

    /// Handles what is new in the world, and lets clients go on.
    pub fn go_on<S: Session>(&mut self, world: &mut World<S>) {
        for id in world.take_over() {
            self.over(world, id);
        }
        for client in world.take_awake() {
            if !self.stopped {
                self.wake(world, client - self.first);
            }
        }
    }

    fn over<S: Session>(&mut self, world: &mut World<S>, id: OperationId) {
        let record = world.record(id);
        let Some(number) = record
            .client
            .checked_sub(self.first)
            .filter(|&n| n < self.all.len())
        else {
            return;
        };
        if !self.all[number].open.remove(&id) {
            return;
        }
        let site = world.site_of(record.node);
        self.tally
            .add(record, site, is_apart(&self.load.kind, &self.topology, record));
        let is_answered = record
            .answer()
            .is_some_and(|answer| !matches!(answer, Answer::Failed(_)));
        if matches!(self.load.kind, Kind::PingPong) {
            self.look_at_turn(number, record);
        }
        let at = record.returned.as_ref().map_or(world.time(), |&(at, _)| at);
        let client = &mut self.all[number];
        client.failed |= !is_answered;
        if let (Operation::Get { key, .. }, Some((_, (Answer::Value(Some(_)), Some(receipt))))) =
            (&record.operation, &record.returned)
            && ledger::is_list(key)
        {
            client.list = receipt.version.map(|version| (key.clone(), version));
        }
        match (&record.operation, record.answer()) {
            (Operation::Get { key, .. }, Some(Answer::Value(_)))
                if ledger::is_in_one(key)
                    || number::is_one(key)
                    || text::is_one(key)
                    || element::is_one(key) => {}
            (Operation::Get { key, .. }, Some(Answer::Value(Some(_)))) => client.read = Some(key.clone()),
            (Operation::Siblings { key, .. }, Some(Answer::Siblings(siblings))) => {
                client.context = Some((key.clone(), siblings.context.clone()));
            }
            (Operation::Put { key, .. }, Some(Answer::Written { .. })) => {
                client.wrote_key = Some(key.clone())
            }
            _ => client.wrote_key = None,
        }
        let is_last = client.left.is_empty() && client.open.is_empty();
        if let Some(inserted) = client.inserting.take_if(|_| is_last) {
            self.population.finish(inserted);
        }
        let goes_on = !self.stopped && world.is_served(self.first + number);
        if goes_on {
            self.send(world, number);
        }
        if self.all[number].open.is_empty() {
            self.request_over(world, number, at);
        }
    }

    /// Sends operations of the request under way, up to the limit of open ones.
    fn send<S: Session>(&mut self, world: &mut World<S>, number: usize) {
        while self.all[number].open.len() < self.load.pipeline.max(1) {
            let Some(next) = self.all[number].left.pop_front() else {
                return;
            };
            self.ask(world, number, next);
        }
    }

    /// The next request is made at the client's own node, or at a node of another site.
    fn go_away<S: Session>(&mut self, world: &mut World<S>, number: usize, own: NodeId) {
        let elsewhere = |&node: &NodeId| world.site_of(node) != world.site_of(own);
        let others: Vec<NodeId> = self.nodes.iter().copied().filter(elsewhere).collect();
        let is_away = !others.is_empty() && self.random.percent(self.load.away);
        let next = match is_away {
            true => *self.random.pick(&others),
            false => own,
        };
        self.all[number].home = is_away.then_some(own);
        world.move_client(self.first + number, next);
    }

    fn request_over<S: Session>(&mut self, world: &mut World<S>, number: usize, at: Micros) {
        let client = &mut self.all[number];
        client.left.clear();
        if !std::mem::take(&mut client.failed) {
            let took = at.since(client.due);
            self.tally.requests.record_ns(took.0 * 1_000);
        }
        client.requests += 1;
        let is_to_roam = self
            .load
            .roam_every
            .is_some_and(|every| client.requests.is_multiple_of(every));
        let (home, wrote) = (client.home.take(), client.wrote_key.take());
        let here = world.node_of_client(self.first + number);
        let place = self.nodes.iter().position(|&node| node == here).unwrap_or(0);
        let next = self.nodes[(place + 1) % self.nodes.len()];
        if self.load.away > 0 {
            self.go_away(world, number, home.unwrap_or(here));
        } else if let Some(home) = home {
            world.move_client(self.first + number, home);
        } else if let Some(key) =
            wrote.filter(|_| self.load.visits > 0 && self.random.percent(self.load.visits))
        {
            let client = &mut self.all[number];
            client.home = Some(here);
            let level = self.load.read;
            client.left.push_back(Operation::Get { key, level });
            world.move_client(self.first + number, next);
        } else if is_to_roam {
            world.move_client(self.first + number, next);
        }
        let after = self.next_after(number, world.time());
        self.all[number].due = world.time() + after;
        world.wake(self.first + number, after);
    }

    /// The time until a client's next request is due. If it was due before, 0.
    fn next_after(&mut self, number: usize, now: Micros) -> Micros {
        match &mut self.all[number].timetable {
            Some(timetable) => {
                let due = self.began + Micros(timetable.next_start_ns() / 1_000);
                due.since(now)
            }
            // At least a microsecond: where work takes no time, a client that does not think would otherwise stay at one moment forever.
            None => self.random.span(self.load.think).max(Micros(1)),
        }
    }

    fn wake<S: Session>(&mut self, world: &mut World<S>, number: usize) {
        if !self.all[number].open.is_empty() {
            return;
        }
        if !world.is_served(self.first + number) {
            return world.wake(self.first + number, RETRY);
        }
        let mut request = std::mem::take(&mut self.all[number].left);
        let times = match self.load.kind {
            // What a player does next depends on what it has read.
            Kind::PingPong => 1,
            _ => self.load.amplification.max(1),
        };
        for _ in 0..times {
            let site = world.site_of(world.node_of_client(self.first + number));
            self.operations(number, &mut request, world.time(), site);
        }
        self.all[number].left = request;
        self.send(world, number);
    }

    fn ask<S: Session>(&mut self, world: &mut World<S>, number: usize, operation: Operation) {
        let client = &mut self.all[number];
        if let (Kind::PingPong, Operation::Put { .. }) = (&self.load.kind, &operation)
            && client.wrote.is_none_or(|(turn, _)| turn != client.next_turn)
        {
            client.wrote = Some((client.next_turn, world.time()));
        }
        let id = world.invoke(self.first + number, operation);
        self.all[number].open.insert(id);
    }

    fn operations(&mut self, number: usize, request: &mut VecDeque<Operation>, now: Micros, site: SiteId) {
        match &self.load.kind {
            Kind::Workload { .. } => self.step(number, request),
            Kind::Mixed(mixed) if mixed.once > 0 && self.random.percent(mixed.once) => {
                self.once(number, request)
            }
            Kind::Mixed(mixed) if mixed.waits > 0 && self.random.percent(mixed.waits) => {
                request.push_back(match self.random.below(2) {
                    0 => Operation::Wait {
                        sites: self.random.of(1..=3) as u16,
                        timeout: Some(Micros(self.random.of(1..=100_000))),
                    },
                    _ => Operation::Publish {
                        message: Box::new(ChannelMessage {
                            channel: Bytes::from_static(b"news"),
                            text: self.random.below(1 << 62).to_string().into(),
                        }),
                    },
                });
            }
            Kind::Mixed(mixed) if mixed.ledgers > 0 && self.random.percent(mixed.ledgers) => {
                let operation = self.on_ledger(number);
                request.push_back(operation);
            }
            Kind::Mixed(mixed) if mixed.numbers > 0 && self.random.percent(mixed.numbers) => {
                let operation = self.on_number(*mixed, number, now);
                request.push_back(operation);
            }
            Kind::Mixed(mixed) if mixed.twins > 0 && self.random.percent(mixed.twins) => {
                let operation = self.on_twins(*mixed, number);
                request.push_back(operation);
            }
            Kind::Mixed(mixed) if mixed.elements > 0 && self.random.percent(mixed.elements) => {
                let operation = self.on_elements(*mixed, number, now);
                request.push_back(operation);
            }
            Kind::Mixed(mixed) if mixed.texts > 0 && self.random.percent(mixed.texts) => {
                let operation = self.on_text(*mixed, number, site, now);
                request.push_back(operation);
            }
            Kind::Mixed(mixed) => request.push_back(self.anything(*mixed, number, now)),
            Kind::Hot(hot) => request.push_back(self.hot(*hot, number)),
            Kind::PingPong => request.push_back(self.turn(number)),
        }
    }

    fn step(&mut self, number: usize, request: &mut VecDeque<Operation>) {
        let mix = self.load.read_mix.as_ref();
        let read = mix.map_or(self.load.read, |mix| mix.draw(&mut self.random));
        let write = self.load.write;
        let client = &mut self.all[number];
        let steps = client.steps.as_mut().expect("clients of a workload have steps");
        let get = |key| Operation::Get {
            key: Key(key),
            level: read,
        };
        let put = |key, value: Bytes| Operation::put(Key(key), value).at(write);
        match steps.next_step(&mut self.population) {
            Step::Read { key } => request.push_back(get(key)),
            Step::Update { key, value } => request.push_back(put(key, value)),
            Step::ReadModifyWrite { key, value } => request.extend([get(key.clone()), put(key, value)]),
            Step::Insert { record, key, value } => {
                if let Some(before) = client.inserting.replace(record) {
                    // With amplification: the operation before will be over by then.
                    self.population.finish(before);
                }
                request.push_back(put(key, value));
            }
        }
    }

    fn anything(&mut self, mixed: Mixed, number: usize, now: Micros) -> Operation {
        let keyspace = self.all[number].keyspace;
        let key = |random: &mut Random| match mixed.hot > 0 && random.percent(mixed.hot) {
            true => key_in(keyspace, "k0"),
            false => key_in(keyspace, &format!("k{}", random.below(mixed.keys))),
        };
        let write = self.load.write;
        if self.random.percent(mixed.writes) {
            if mixed.retimes > 0 && self.random.percent(mixed.retimes) {
                let key = key(&mut self.random);
                return Operation::delete(key).with(self.retime(now)).at(write);
            }
            self.written += 1;
            let padding = self.random.below(mixed.value_bytes) as usize;
            let value = (!self.random.percent(mixed.deletes))
                .then(|| Bytes::from(format!("w{}{}", self.written, ".".repeat(padding))));
            let read = self.all[number].read.clone();
            let read = read.filter(|_| {
                let may_be = value.is_none() && mixed.deletes_of_read > 0;
                may_be && self.random.percent(mixed.deletes_of_read)
            });
            let names_context = mixed.contexts > 0 && self.random.percent(mixed.contexts);
            let known = self.all[number].context.clone().filter(|_| names_context);
            let (key, context) = match known {
                Some((key, context)) => (key, Some(context)),
                None => {
                    let key = read.unwrap_or_else(|| key(&mut self.random));
                    (key, (mixed.contexts == 100).then_some(Vector::ZERO))
                }
            };
            let expires = value.is_some() && mixed.expires > 0 && self.random.percent(mixed.expires);
            let options = PutOptions {
                replaces: context,
                expiry: expires.then(|| self.expiry(now)),
                ..self.condition(mixed, value.is_none())
            };
            return Operation::put(key, value).with(options).at(write);
        }
        let read = self.read_level(mixed);
        if mixed.siblings > 0 && self.random.percent(mixed.siblings) {
            return Operation::siblings(key(&mut self.random)).wanting(read);
        }
        match self.random.below(20) {
            0 => Operation::Count,
            1 => Operation::Scan {
                cursor: 0,
                count: self.random.of(1..=50) as u32,
            },
            2..=4 => Operation::ReadMany {
                keys: (0..self.random.of(0..=mixed.many_keys))
                    .map(|_| key(&mut self.random))
                    .collect(),
                level: None,
            }
            .wanting(read),
            _ => Operation::get(key(&mut self.random)).wanting(read),
        }
    }

    /// When a value expires: mostly soon, so that a run of two seconds sees it.
    fn expiry(&mut self, now: Micros) -> Expiry {
        let soon = Micros(self.random.of(1..=600_000));
        match self.random.below(10) {
            0 => Expiry::Kept,
            1 => Expiry::After(Micros::from_millis(3_600_000)),
            2 => Expiry::At(now),
            3 => Expiry::At(now + soon),
            4 => Expiry::After(Micros(self.random.of(1..=2_000))),
            _ => Expiry::After(soon),
        }
    }

    /// What a put wants of the value before, if anything: `NX`, `XX` or `GET`, or both a condition and `GET`; of a delete, `GETDEL`.
    fn condition(&mut self, mixed: Mixed, is_delete: bool) -> PutOptions {
        if mixed.conditions == 0 || !self.random.percent(mixed.conditions) {
            return PutOptions::default();
        }
        let condition = match self.random.below(5) {
            _ if is_delete => None,
            0 => None,
            1 | 2 => Some(Condition::Present),
            _ => Some(Condition::Absent),
        };
        PutOptions {
            condition,
            returns_previous: condition.is_none() || self.random.percent(40),
            ..PutOptions::default()
        }
    }

    /// A change of when a value expires: half of them to an hour later or never, so that there are values whose expiry can be changed.
    fn retime(&mut self, now: Micros) -> PutOptions {
        let expiry = match self.random.below(4) {
            0 => None,
            1 => Some(Expiry::After(Micros::from_millis(3_600_000))),
            _ => Some(self.expiry(now)).filter(|expiry| *expiry != Expiry::Kept),
        };
        let retimes = match self.random.percent(60) {
            true => Retimes::Any,
            false => *self.random.pick(&Retimes::ALL),
        };
        PutOptions {
            expiry,
            retimes: Some(retimes),
            returns_previous: self.random.percent(30),
            ..PutOptions::default()
        }
    }

    /// The level of a read. A level that the keyspace does not offer is not drawn.
    fn read_level(&mut self, mixed: Mixed) -> Option<Wanted> {
        let offers = |level: Level| level.is_among(self.offered.reads);
        if mixed.careless > 0 && offers(Level::Eventual) && self.random.percent(mixed.careless) {
            return Some(Level::Eventual.into());
        }
        if mixed.fresh > 0 && offers(Level::Bounded(Micros(0))) && self.random.percent(mixed.fresh) {
            let bound = *self.random.pick(&[10, 50, 200, 1_000, 10_000]);
            let bounded = Level::Bounded(Micros::from_millis(bound));
            if self.random.percent(50) {
                return Some(bounded.into());
            }
            // Some are given up before they are answered.
            let within = Micros::from_millis(*self.random.pick(&[1, 20, 500]));
            let chain = format!("{bounded} within {within} or {}", self.offered.reads[0]);
            return Some(chain.parse().expect("it is a chain"));
        }
        self.load.read.map(Wanted::Level)
    }

    /// Turn t of a pair is written by its first player if t is even, otherwise by the second, once that player has read turn t - 1. Until
    /// then it reads.
    fn turn(&mut self, number: usize) -> Operation {
        let client = &self.all[number];
        let key = Key::from(format!("pair{}", number / 2).as_str());
        match client.next_turn == 0 || client.seen_turn.is_some_and(|seen| seen + 1 >= client.next_turn) {
            true => {
                let value = format!("turn {} {}", client.next_turn, client.attempt);
                Operation::put(key, Bytes::from(value)).at(self.load.write)
            }
            false => Operation::Get {
                key,
                level: self.load.read,
            },
        }
    }

    /// A player takes note of the turn that was read, or of the outcome of its write. A write that may have happened is not repeated as it
    /// was.
    fn look_at_turn(&mut self, number: usize, record: &Record) {
        // A player without a partner only reads its own turns.
        let partner = self.all.get(number ^ 1).and_then(|partner| partner.wrote);
        let client = &mut self.all[number];
        match (&record.operation, record.answer()) {
            (Operation::Put { .. }, Some(Answer::Failed(failure))) if failure.is_definite() => {}
            (Operation::Put { .. }, Some(Answer::Written { .. })) => client.next_turn += 2,
            // The turn may have been written, and the other player may go on from it. Otherwise it is written once more, with another
            // attempt number.
            (Operation::Put { .. }, _) => client.attempt += 1,
            (Operation::Get { .. }, Some(Answer::Value(Some(value)))) => {
                let text = std::str::from_utf8(value).unwrap_or_default();
                let turn = text.split(' ').nth(1).and_then(|turn| turn.parse().ok());
                if turn > client.seen_turn
                    && let (Some((wrote, since)), Some((until, _))) = (partner, &record.returned)
                    && turn == Some(wrote)
                {
                    self.tally.visibility.record_ns(until.since(since).0 * 1_000);
                }
                client.seen_turn = client.seen_turn.max(turn);
            }
            _ => {}
        }
    }
}

/// Whether an operation is one of those that are counted apart.
fn is_apart(kind: &Kind, topology: &Topology, record: &Record) -> bool {
    match (kind, &record.operation) {
        (Kind::Hot(hot), Operation::ReadMany { keys, .. }) => keys
            .iter()
            .any(|key| Some(topology.partition_of_slot(key.slot())) == hot.apart),
        _ => false,
    }
}
