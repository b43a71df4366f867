use crate::{
    MessageLog, OperationId, Random, Record, WorldOptions, clock::Clock, history::History, judge::Judge,
    keyspaces::name_of, link::Link, machine::Machine, machine::Worker,
};
use bytes::Bytes;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};
use turnbuckle_core::{KeyspaceLevels, Micros, Now, Protocol, ServerId, Session, SiteId, Topology};
use turnbuckle_node::{KeyspaceStatus, NodeId, Placement, Written};

mod choices;
mod clients;
mod faults;
mod forgetting;
mod links;
mod losses;
mod nodes;
mod rest;
mod workers;
pub(crate) use choices::Due;

/// A cluster, its network, its disks and its clients, in one thread and on one calendar.
///
/// The nodes are those of the server, [`turnbuckle_node::Node`] behind [`turnbuckle_gateway::Gateway`]. Only what the operating system does
/// there is done by the calendar here. Time does not pass while an event is handled.
///
/// Everything follows from the options, above all the seed, and from the calls: two runs that differ have different values of
/// [`World::hash`].
pub struct World<S: Session> {
    pub(crate) options: WorldOptions,
    protocol: <S::Protocol as Protocol>::Config,
    pub(crate) topology: Topology,
    pub(crate) placement: Placement,
    pub(crate) random: Random,
    time: Micros,
    /// The number of questions and answers so far at this moment.
    moment: (Micros, u32),
    calendar: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    events: u64,
    hash: u32,
    pub(crate) machines: Vec<Machine<S>>,
    /// By the two nodes' numbers, the smaller one first.
    links: Vec<Link>,
    clients: Vec<Client>,
    history: History,
    open: BTreeSet<OperationId>,
    /// Operations that are over, and that the caller was not told of yet.
    over: Vec<OperationId>,
    /// Clients whose time has come, and that the caller was not told of yet.
    awake: Vec<usize>,
    pub(crate) judge: Judge,
    messages: Option<MessageLog>,
    /// The messages to channels that nodes' clients could hear: the node, the channel and the message.
    heard: Vec<(NodeId, Bytes, Bytes)>,
    /// For slow partitions: the time that work takes, in percent of the usual.
    slow_partitions: BTreeMap<u16, u64>,
}

/// A client of a node.
struct Client {
    node: NodeId,
    keyspace: usize,
    session: u32,
    /// The token of its last session, if it was asked for before that session ended.
    token: Option<Bytes>,
    /// When its node comes to the last operation that waits for a core.
    busy_until: Micros,
}

/// True time when a world begins: a day in 2001.
pub const BEGINNING: Micros = Micros(1_000_000_000_000_000);

/// How often a node looks for work of which it was not told, as the server's threads do.
const LOOK_EVERY: Micros = Micros::from_millis(100);

/// A kind of event. Those with a life concern only the process of that life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Turn {
        node: usize,
        life: u64,
    },
    /// A deadline has come, if no earlier one has been put on the calendar since.
    Tick {
        node: usize,
        life: u64,
        deadline: Micros,
    },
    Look {
        node: usize,
        life: u64,
    },
    Work {
        node: usize,
        life: u64,
        worker: Worker,
    },
    Interval {
        node: usize,
        life: u64,
    },
    Pump {
        link: usize,
        end: usize,
        life: u64,
    },
    /// `taken`: a core has been busy with it, and now it is handled.
    Arrive {
        link: usize,
        to: usize,
        life: u64,
        taken: bool,
    },
    Notice {
        link: usize,
        end: usize,
        life: u64,
    },
    Connect {
        link: usize,
    },
    GiveUp {
        link: usize,
        life: u64,
    },
    Operate {
        node: usize,
        life: u64,
        id: OperationId,
    },
    Wake {
        client: usize,
    },
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: Micros,
    sequence: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<S: Session> World<S> {
    /// A world whose nodes all start now, with empty disks.
    pub fn new(options: WorldOptions, mut protocol: <S::Protocol as Protocol>::Config) -> World<S> {
        S::Protocol::shrink(&mut protocol, options.shrink);
        let topology = Topology::new(options.sites.clone(), options.partitions, options.members.clone());
        let topology = match options.replica_sites {
            Some(sites) => topology.at_some_sites(sites),
            None => topology,
        };
        let sites = topology.sites();
        let nodes = sites.flat_map(|site| std::iter::repeat_n(site, options.nodes_per_site));
        let of_site = |site: &String| {
            (1..=options.nodes_per_site)
                .map(|number| format!("{site}{number}"))
                .collect()
        };
        let names: Vec<Vec<String>> = options.sites.iter().map(of_site).collect();
        let placement = Placement::new(nodes).with_names(names.concat());
        let of = |all: &[i64], node: NodeId| all.get(usize::from(node.0)).copied().unwrap_or(0);
        let clock = |node| {
            let (offset, drift) = (
                of(&options.clock_offsets_us, node),
                of(&options.clock_drifts_ppm, node),
            );
            Clock::new(BEGINNING, offset, drift, options.clock_bound)
        };
        let machine = |node| Machine::new(node, placement.site_of(node), clock(node), options.cores);
        let machines: Vec<Machine<S>> = placement.nodes().map(machine).collect();
        let links = (0..machines.len() * machines.len())
            .map(|_| Link::new())
            .collect();
        let judge = Judge::new(topology.clone(), KeyspaceLevels::of(S::LEVELS))
            .telling_losses(S::Protocol::DESCRIPTOR.tells_losses);
        let judge = judge
            .with_several_nodes(options.nodes_per_site > 1)
            .with_siblings(S::Protocol::DESCRIPTOR.keeps_siblings)
            .deciding_at_site(S::Protocol::DESCRIPTOR.decides_at_site)
            .with_expiry(S::Protocol::DESCRIPTOR.takes_expiry, options.clock_bound);
        let mut world = World {
            random: Random::new(options.seed),
            protocol,
            topology,
            placement,
            time: BEGINNING,
            moment: (BEGINNING, 0),
            calendar: BinaryHeap::new(),
            sequence: 0,
            events: 0,
            hash: 0,
            machines,
            links,
            clients: Vec::new(),
            history: History::default(),
            open: BTreeSet::new(),
            over: Vec::new(),
            awake: Vec::new(),
            judge,
            messages: None,
            heard: Vec::new(),
            slow_partitions: BTreeMap::new(),
            options,
        };
        for node in 0..world.machines.len() {
            world.set_slow_disk(NodeId(node as u16), 100);
            world.restart(NodeId(node as u16));
        }
        world
    }

    // ---- what can be seen -----------------------------------------------------------------------------------

    /// True time.
    pub fn time(&self) -> Micros {
        self.time
    }

    /// The number of events that have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// A checksum over every event, every frame and every answer so far, with their times.
    pub fn hash(&self) -> u32 {
        self.hash
    }

    /// The options that the world was made with.
    pub fn options(&self) -> &WorldOptions {
        &self.options
    }

    /// The sites, partitions and members of the keyspaces.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The judge, which checks the answers.
    pub fn judge(&self) -> &Judge {
        &self.judge
    }

    /// From now on nothing is judged. For runs that are long and test something else.
    pub fn judge_nothing(&mut self) {
        self.judge.sleep();
    }

    /// All operations so far that were not forgotten.
    pub fn history(&self) -> impl Iterator<Item = (OperationId, &Record)> {
        self.history.iter()
    }

    /// One operation.
    ///
    /// # Panics
    /// If it was forgotten.
    pub fn record(&self, id: OperationId) -> &Record {
        self.history.get(id)
    }

    /// Forgets operations from before the oldest that is still open, so that a long run needs no more memory than a short one. A forgotten
    /// operation can neither be asked for nor be written into a trace.
    pub fn forget_history(&mut self) {
        let oldest = self.open.first().copied().unwrap_or(self.history.next());
        let oldest = self.over.iter().copied().min().unwrap_or(oldest).min(oldest);
        self.history.forget_before(oldest);
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<S> {
        self.placement.nodes()
    }

    /// The nodes of a site.
    pub fn nodes_at(&self, site: SiteId) -> &[NodeId] {
        self.placement.nodes_at(site)
    }

    /// The site of a node.
    pub fn site_of(&self, node: NodeId) -> SiteId {
        self.placement.site_of(node)
    }

    /// Whether a process runs on a node's machine.
    pub fn is_running(&self, node: NodeId) -> bool {
        self.machines[index(node)].process.is_some()
    }

    /// The status of each keyspace of a node that runs.
    pub fn statuses(&self, node: NodeId) -> Vec<KeyspaceStatus> {
        let process = self.machines[index(node)].process.as_ref();
        process.map_or(Vec::new(), |process| process.node.status(self.now(index(node))))
    }

    /// The status of the first keyspace, if the node serves it.
    pub fn status(&self, node: NodeId) -> Option<KeyspaceStatus> {
        let mut statuses = self.statuses(node).into_iter();
        statuses.find(|status| status.name == name_of(0))
    }

    /// The number of checkpoints that a node has completed in this life.
    pub fn checkpoints(&self, node: NodeId) -> u64 {
        let process = self.machines[index(node)].process.as_ref();
        process.map_or(0, |process| process.node.checkpoints().completed)
    }

    /// What all nodes have written so far, in all their lives.
    pub fn written(&self) -> Written {
        let mut written = Written::default();
        for machine in &self.machines {
            written.add(machine.written(self.time));
        }
        written
    }

    /// Looks into a replica of the first keyspace, if its node serves it.
    pub fn inspect<R>(&self, server: ServerId, look: impl FnOnce(&S::Protocol) -> R) -> Option<R> {
        let node = self.placement.node_of(server);
        let process = self.machines[index(node)].process.as_ref()?;
        let keyspace = process.keyspaces.get(&0)?;
        keyspace.inspect(server, |protocol, _| look(protocol))
    }

    fn now(&self, node: usize) -> Now {
        self.machines[node].now(self.time)
    }

    /// A node's name: the name of its site, with a number if the site has several nodes.
    pub fn node_name(&self, node: NodeId) -> String {
        let site = self.placement.site_of(node);
        let nodes = self.placement.nodes_at(site);
        let name = self.topology.site_name(site);
        match nodes.iter().position(|&other| other == node) {
            Some(place) if nodes.len() > 1 => format!("{name}{}", place + 1),
            _ => name.to_string(),
        }
    }

    /// From now on, the messages between nodes are logged.
    pub fn log_messages(&mut self) {
        self.messages.get_or_insert_default();
    }

    /// The log of messages so far, if there is one.
    pub fn messages(&self) -> Option<&MessageLog> {
        self.messages.as_ref()
    }

    // ---- the calendar ---------------------------------------------------------------------------------------

    fn schedule(&mut self, after: Micros, event: Event) {
        self.sequence += 1;
        let entry = Entry {
            at: self.time + after,
            sequence: self.sequence,
            event,
        };
        self.calendar.push(Reverse(entry));
    }

    /// Logs what happens at a node, if messages are logged.
    pub(crate) fn log(&mut self, node: NodeId, words: impl FnOnce() -> String) {
        if let Some(log) = &mut self.messages {
            log.note(node, self.time, words());
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hash = crc32c::crc32c_append(self.hash, &self.time.0.to_le_bytes());
        self.hash = crc32c::crc32c_append(self.hash, bytes);
    }

    /// Handles everything that is due up to a time, or until `enough` returns true. Returns whether `enough` did.
    pub fn run_until(&mut self, until: Micros, mut enough: impl FnMut(&Self) -> bool) -> bool {
        while !enough(self) {
            let due = self.calendar.peek().is_some_and(|Reverse(next)| next.at <= until);
            if !due {
                self.time = self.time.max(until);
                return enough(self);
            }
            let Some(Reverse(entry)) = self.calendar.pop() else {
                return false;
            };
            self.time = entry.at;
            self.events += 1;
            match self.paused_until(&entry.event) {
                Some(until) => self.schedule(until.since(self.time), entry.event),
                None => self.happen(entry.event),
            }
        }
        true
    }

    /// Lets time pass.
    pub fn advance(&mut self, time: Micros) {
        self.run_until(self.time + time, |_| false);
    }

    /// Until when the node of an event does nothing. Events of the node are delayed until then, and keep their order.
    fn paused_until(&self, event: &Event) -> Option<Micros> {
        let node = match *event {
            Event::Turn { node, .. }
            | Event::Tick { node, .. }
            | Event::Look { node, .. }
            | Event::Work { node, .. }
            | Event::Interval { node, .. }
            | Event::Operate { node, .. } => node,
            Event::Pump { link, end, .. } | Event::Notice { link, end, .. } => self.ends(link)[end],
            Event::Arrive { link, to, .. } => self.ends(link)[to],
            Event::Connect { .. } | Event::GiveUp { .. } | Event::Wake { .. } => return None,
        };
        let until = self.machines[node].paused_until;
        (until > self.time).then_some(until)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn { node, life } if self.lives(node, life) => self.turn(node),
            Event::Tick { node, life, deadline } if self.lives(node, life) => {
                self.tick(node, deadline);
            }
            Event::Look { node, life } if self.lives(node, life) => self.look(node, life),
            Event::Work { node, life, worker } if self.lives(node, life) => self.work(node, worker),
            Event::Interval { node, life } if self.lives(node, life) => self.interval(node, life),
            Event::Pump { link, end, life } if self.links[link].life == life => self.pump(link, end),
            Event::Arrive {
                link,
                to,
                life,
                taken,
            } if self.links[link].life == life => {
                self.arrive(link, to, taken);
            }
            Event::Notice { link, end, life } if self.links[link].life == life => self.notice(link, end),
            Event::Connect { link } => self.connect(link),
            Event::GiveUp { link, life } if self.links[link].life == life => self.give_up(link),
            Event::Operate { node, life, id } if self.lives(node, life) => self.operate(node, id),
            Event::Wake { client } => self.awake.push(client),
            // The event belongs to a process or a connection that is gone.
            _ => {}
        }
    }
}

pub(crate) fn index(node: NodeId) -> usize {
    usize::from(node.0)
}

/// The end of the link between two nodes at which `node` is.
fn end_of(node: usize, other: usize) -> usize {
    usize::from(node > other)
}
