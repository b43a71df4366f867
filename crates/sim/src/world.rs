use crate::{
    OperationId, Random, Record, WorldOptions,
    judge::Judge,
    link::{self, Link},
    machine::{KEYSPACE, Machine},
};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};
use turnbuckle_core::{Answered, Micros, Now, Operation, Protocol, ServerId, Session, SiteId, Topology};
use turnbuckle_node::{Durability, KeyspaceStatus, NodeId, Placement};

mod links;
mod nodes;
mod rest;

/// A cluster, its network, its disks and its clients, in one thread and on one calendar.
///
/// The nodes are those of the server, [`turnbuckle_node::Node`] behind [`turnbuckle_gateway::Gateway`]; only what the
/// operating system does there is done by the calendar here. Time stands still while an event is handled.
///
/// Everything follows from the options, above all the seed, and from the calls made: [`World::hash`] tells two runs apart.
pub struct World<S: Session> {
    pub(crate) options: WorldOptions,
    protocol: <S::Protocol as Protocol>::Config,
    pub(crate) topology: Topology,
    pub(crate) placement: Placement,
    pub(crate) random: Random,
    time: Micros,
    calendar: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    events: u64,
    hash: u32,
    pub(crate) machines: Vec<Machine<S>>,
    /// By the two nodes' numbers, the smaller first.
    links: Vec<Link>,
    /// Each client's node.
    clients: Vec<NodeId>,
    pub(crate) history: Vec<Record>,
    open: BTreeSet<OperationId>,
    /// Whom the last answers belong to.
    answered: Vec<OperationId>,
    pub(crate) judge: Judge,
}

/// True time when a world begins: some day in 2001.
pub const BEGINNING: Micros = Micros(1_000_000_000_000_000);

/// How often a node looks for work that nobody told it of, as the server's threads do.
const LOOK_EVERY: Micros = Micros::from_millis(100);

/// A kind of thing that happens. Those with a life concern the process of that life only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Turn { node: usize, life: u64 },
    Tick { node: usize, life: u64 },
    Look { node: usize, life: u64 },
    Work { node: usize, life: u64 },
    Sync { node: usize, life: u64 },
    Interval { node: usize, life: u64 },
    Pump { link: usize, end: usize, life: u64 },
    Arrive { link: usize, to: usize, life: u64 },
    Notice { link: usize, end: usize, life: u64 },
    Connect { link: usize },
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
    pub fn new(options: WorldOptions, protocol: <S::Protocol as Protocol>::Config) -> World<S> {
        let topology = Topology::new(options.sites.clone(), options.partitions, 1);
        let sites = topology.sites();
        let nodes = sites.flat_map(|site| std::iter::repeat_n(site, options.nodes_per_site));
        let placement = Placement::new(nodes);
        let offset = |node: NodeId| options.clock_offsets_us.get(usize::from(node.0)).copied();
        let machines: Vec<Machine<S>> = placement
            .nodes()
            .map(|node| Machine::new(node, placement.site_of(node), offset(node).unwrap_or(0)))
            .collect();
        let links = (0..machines.len() * machines.len())
            .map(|_| Link::new())
            .collect();
        let mut world = World {
            random: Random::new(options.seed),
            protocol,
            topology,
            placement,
            time: BEGINNING,
            calendar: BinaryHeap::new(),
            sequence: 0,
            events: 0,
            hash: 0,
            machines,
            links,
            clients: Vec::new(),
            history: Vec::new(),
            open: BTreeSet::new(),
            answered: Vec::new(),
            judge: Judge::default(),
            options,
        };
        for node in 0..world.machines.len() {
            world.restart(NodeId(node as u16));
        }
        world
    }

    // ---- what can be seen -----------------------------------------------------------------------------------

    /// True time.
    pub fn time(&self) -> Micros {
        self.time
    }

    /// How many events have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// A checksum over every event, every frame and every answer so far, with their times.
    pub fn hash(&self) -> u32 {
        self.hash
    }

    /// What it was made with.
    pub fn options(&self) -> &WorldOptions {
        &self.options
    }

    /// Where the keyspace's replicas stand.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Who checks the answers.
    pub fn judge(&self) -> &Judge {
        &self.judge
    }

    /// All operations so far.
    pub fn history(&self) -> &[Record] {
        &self.history
    }

    /// One operation.
    pub fn record(&self, id: OperationId) -> &Record {
        &self.history[id.0]
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<S> {
        self.placement.nodes()
    }

    /// The nodes of a site.
    pub fn nodes_at(&self, site: SiteId) -> &[NodeId] {
        self.placement.nodes_at(site)
    }

    /// Whether a process runs on a node's machine.
    pub fn is_running(&self, node: NodeId) -> bool {
        self.machines[index(node)].process.is_some()
    }

    /// A node's numbers, if it runs.
    pub fn status(&self, node: NodeId) -> Option<KeyspaceStatus> {
        let machine = &self.machines[index(node)];
        let process = machine.process.as_ref()?;
        process.node.status(self.now(index(node))).pop()
    }

    /// Looks into a replica, if its node runs.
    pub fn inspect<R>(&self, server: ServerId, look: impl FnOnce(&S::Protocol) -> R) -> Option<R> {
        let node = self.placement.node_of(server);
        let process = self.machines[index(node)].process.as_ref()?;
        process.keyspace.inspect(server, |protocol, _| look(protocol))
    }

    fn now(&self, node: usize) -> Now {
        self.machines[node].now(self.time, self.options.clock_bound)
    }

    // ---- clients --------------------------------------------------------------------------------------------

    /// A new client of a node.
    pub fn add_client(&mut self, node: NodeId) -> usize {
        self.clients.push(node);
        self.clients.len() - 1
    }

    /// A client asks its node. Without a process there, nobody answers.
    pub fn invoke(&mut self, client: usize, operation: Operation) -> OperationId {
        let id = OperationId(self.history.len());
        let node = self.clients[client];
        let site = self.placement.site_of(node);
        let (topology, judge) = (&self.topology, &self.judge);
        let mut record = Record {
            client,
            node,
            operation: operation.clone(),
            invoked: self.time,
            returned: None,
            floor: None,
        };
        record.floor = record.key().map(|key| {
            let server = ServerId {
                site,
                partition: topology.partition_of_slot(key.slot()),
                member: 0,
            };
            (server, judge.floor(key, server))
        });
        self.history.push(record);
        let now = self.now(index(node));
        let Some(process) = &mut self.machines[index(node)].process else {
            return id;
        };
        self.judge.invoked(&operation);
        self.open.insert(id);
        let gateway = &mut process.gateway;
        let door = *process.doors.entry(client).or_insert_with(|| {
            let opened = gateway.open(KEYSPACE, None);
            opened.expect("the world's keyspace is there, and no token is shown")
        });
        let mut answers = Vec::new();
        process
            .gateway
            .operate(now, door, id.0 as u64, operation, &mut answers);
        self.take_answers(answers);
        self.want_turn(index(node));
        self.look_after(index(node));
        id
    }

    fn take_answers(&mut self, answers: Vec<(turnbuckle_gateway::DoorId, u64, Answered)>) {
        for (_, tag, answered) in answers {
            let id = OperationId(tag as usize);
            self.open.remove(&id);
            self.note(format!("{tag} {answered:?}").as_bytes());
            let record = &mut self.history[id.0];
            assert!(record.returned.is_none(), "an operation is answered once");
            record.returned = Some((self.time, answered));
            self.judge.returned(id, record);
            self.answered.push(id);
        }
    }

    /// The operations answered since the last call.
    pub fn take_answered(&mut self) -> Vec<OperationId> {
        std::mem::take(&mut self.answered)
    }

    /// Whether [`World::take_answered`] would give anything.
    pub fn has_answered(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Whether an operation may still be answered.
    pub fn is_open(&self, id: OperationId) -> bool {
        self.open.contains(&id)
    }

    // ---- faults ---------------------------------------------------------------------------------------------

    /// `kill -9`, or with `power` also everything in the node's machine that is not on disk. Nothing if it does not run.
    pub fn crash(&mut self, node: NodeId, power: bool) {
        let place = index(node);
        if self.machines[place].process.is_none() {
            return;
        }
        let seed = self.random.bits();
        if power && self.options.durability != Durability::Fsync {
            let synced_at = self.machines[place].synced_at;
            for partition in 0..self.options.partitions {
                let site = self.placement.site_of(node);
                let server = ServerId {
                    site,
                    partition,
                    member: 0,
                };
                if self.placement.node_of(server) == node {
                    self.judge.excuse(server, self.time, synced_at);
                }
            }
        }
        match power {
            true => self.machines[place].cut_power(seed),
            false => self.machines[place].kill(),
        }
        let (history, clients) = (&self.history, &self.clients);
        self.open.retain(|id| clients[history[id.0].client] != node);
        for other in (0..self.machines.len()).filter(|&other| other != place) {
            let link = self.link_of(place, other);
            self.links[link].up[end_of(place, other)] = false;
            self.links[link].ways[end_of(other, place)] = link::Way::default();
            self.break_link(link);
        }
    }

    /// `kill -9` in the middle of one of the next changes to the log's files: `changes` after this one.
    pub fn crash_within_write(&mut self, node: NodeId, changes: u64) {
        let seed = self.random.bits();
        let machine = &mut self.machines[index(node)];
        if machine.process.is_some() {
            machine.dying = true;
            machine.disk.stop_after(changes, seed);
        }
    }

    /// Starts a process on a node's machine, if none runs there. One that was to end in the middle of a write and has not written
    /// ends now.
    pub fn restart(&mut self, node: NodeId) {
        let place = index(node);
        if self.machines[place].dying {
            self.crash(node, false);
        }
        if self.machines[place].process.is_some() {
            return;
        }
        let started = self.machines[place].start(
            self.time,
            &self.options,
            &self.placement,
            &self.topology,
            &self.protocol,
        );
        if let Err(error) = started {
            let name = self.node_name(node);
            return self.judge.report(format!("node {name} does not open: {error}"));
        }
        let life = self.machines[place].lives;
        self.schedule(LOOK_EVERY, Event::Look { node: place, life });
        if let Durability::Interval(every) = self.options.durability {
            self.schedule(every, Event::Interval { node: place, life });
        }
        self.want_turn(place);
        self.look_after(place);
        for other in (0..self.machines.len()).filter(|&other| other != place) {
            self.try_link(self.link_of(place, other));
        }
    }

    /// Cuts or heals the way between two nodes.
    pub fn set_cut(&mut self, a: NodeId, b: NodeId, cut: bool) {
        let link = self.link_of(index(a), index(b));
        self.links[link].cut = cut;
        match cut {
            true => self.break_link(link),
            false => self.try_link(link),
        }
    }

    /// Cuts or heals the ways between all nodes of two sites.
    pub fn set_sites_cut(&mut self, a: SiteId, b: SiteId, cut: bool) {
        for &left in self.placement.clone().nodes_at(a) {
            for &right in self.placement.clone().nodes_at(b) {
                self.set_cut(left, right, cut);
            }
        }
    }

    /// Makes a node take a checkpoint now, if it runs.
    pub fn checkpoint(&mut self, node: NodeId) {
        let now = self.now(index(node));
        let Some(process) = &self.machines[index(node)].process else {
            return;
        };
        if let Err(error) = process.node.checkpoint_now(now) {
            if self.machines[index(node)].dying {
                return self.crash(node, false);
            }
            let name = self.node_name(node);
            self.judge
                .report(format!("the checkpoint of node {name} failed: {error}"));
        }
        self.want_turn(index(node));
        self.look_after(index(node));
    }

    /// A node's name: its site's, with a number where the site has several.
    pub fn node_name(&self, node: NodeId) -> String {
        let site = self.placement.site_of(node);
        let nodes = self.placement.nodes_at(site);
        let name = self.topology.site_name(site);
        match nodes.iter().position(|&other| other == node) {
            Some(place) if nodes.len() > 1 => format!("{name}{}", place + 1),
            _ => name.to_string(),
        }
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

    fn note(&mut self, bytes: &[u8]) {
        self.hash = crc32c::crc32c_append(self.hash, &self.time.0.to_le_bytes());
        self.hash = crc32c::crc32c_append(self.hash, bytes);
    }

    /// Lets everything happen that is due up to a time, or until `enough` says so. Returns whether it did.
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
            self.happen(entry.event);
        }
        true
    }

    /// Lets time pass.
    pub fn advance(&mut self, time: Micros) {
        self.run_until(self.time + time, |_| false);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn { node, life } if self.lives(node, life) => self.turn(node),
            Event::Tick { node, life } if self.lives(node, life) => self.tick(node),
            Event::Look { node, life } if self.lives(node, life) => self.look(node, life),
            Event::Work { node, life } if self.lives(node, life) => self.work(node),
            Event::Sync { node, life } if self.lives(node, life) => self.sync(node),
            Event::Interval { node, life } if self.lives(node, life) => self.interval(node, life),
            Event::Pump { link, end, life } if self.links[link].life == life => self.pump(link, end),
            Event::Arrive { link, to, life } if self.links[link].life == life => self.arrive(link, to),
            Event::Notice { link, end, life } if self.links[link].life == life => self.notice(link, end),
            Event::Connect { link } => self.connect(link),
            // Of a process or a connection that is gone.
            _ => {}
        }
    }
}

fn index(node: NodeId) -> usize {
    usize::from(node.0)
}

/// Which end of the link between them a node is.
fn end_of(node: usize, other: usize) -> usize {
    usize::from(node > other)
}
