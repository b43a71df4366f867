//! Worlds drawn from a seed: topology, delays, limits, load and faults; then peace, and the cluster must converge.
use crate::{BEGINNING, Random, Span, World, WorldOptions};
use bytes::Bytes;
use std::fmt;
use turnbuckle_core::{Key, Micros, Operation, Protocol, Session};
use turnbuckle_node::{Durability, NodeId, Planted, StreamLimits};

/// Everything that was drawn for a run. Printed when the run fails.
#[derive(Debug, Clone)]
pub struct Draw {
    /// The world.
    pub world: WorldOptions,
    /// How long clients and faults go on.
    pub safety: Micros,
    /// How many clients there are at each node.
    pub clients_per_node: usize,
    /// How long a client thinks between two operations.
    pub think: Span,
    /// How many keys there are.
    pub keys: u64,
    /// Shares of operations in percent: writes, deletes; the rest reads in one way or another.
    pub writes: u64,
    /// Of the writes, how many are deletes, in percent.
    pub deletes: u64,
    /// The longest value, in bytes.
    pub value_bytes: u64,
    /// The mean time between two faults, or `None`: no faults.
    pub fault_every: Option<Micros>,
    /// How long what a fault took away is away.
    pub outage: Span,
    /// Whether power fails, too.
    pub power: bool,
}

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What was drawn.
    pub draw: Draw,
    /// What was wrong, if anything.
    pub violations: Vec<String>,
    /// How many events there were.
    pub events: u64,
    /// How many operations were answered, and how many of them with a failure.
    pub answered: u64,
    /// Of these, failures.
    pub failed: u64,
    /// How many receipts' claims of staleness were checked.
    pub audited: u64,
    /// How many crashes, cuts and checkpoints there were.
    pub faults: u64,
    /// The checksum of everything that happened.
    pub hash: u32,
}

/// How long a cluster may take after the last fault.
const LIVENESS: Micros = Micros::from_millis(120_000);

impl Draw {
    /// What follows from a seed.
    pub fn new(seed: u64) -> Draw {
        let mut random = Random::new(seed);
        let site_count = random.of(2..=4) as usize;
        let names = ["ant", "bee", "cat", "dog"];
        let nodes_per_site = if random.percent(25) { 2 } else { 1 };
        let mut world = WorldOptions::plain(names[..site_count].iter().copied(), Micros(0));
        world.seed = seed;
        world.nodes_per_site = nodes_per_site;
        world.partitions = if nodes_per_site == 2 {
            2
        } else {
            *random.pick(&[1, 1, 3])
        };
        world.durability = *random.pick(&[
            Durability::Fsync,
            Durability::Interval(Micros::from_millis(10)),
            Durability::Interval(Micros::from_millis(200)),
            Durability::None,
        ]);
        for from in 0..site_count {
            for to in 0..site_count {
                if from != to {
                    world.delays[from][to] = Micros(random.of(100..=80_000));
                }
            }
        }
        world.jitter = Micros(*random.pick(&[50, 1_000, 20_000]));
        world.turn = Span::us(1, *random.pick(&[20, 2_000]));
        world.sync = Span::us(100, *random.pick(&[2_000, 50_000]));
        world.work = Span::us(100, *random.pick(&[2_000, 100_000]));
        world.backoff = Span::us(1_000, *random.pick(&[20_000, 500_000]));
        world.clock_bound = Micros(*random.pick(&[500, 20_000, 500_000]));
        let bound = world.clock_bound.0;
        world.clock_offsets_us = (0..site_count * nodes_per_site)
            .map(|_| random.of(0..=2 * bound) as i64 - bound as i64)
            .collect();
        world.memory_limit_bytes = *random.pick(&[4 << 10, 32 << 10, 8 << 20]);
        world.retained_log_bytes = *random.pick(&[0, 20 << 10, 8 << 20]);
        world.checkpoint_log_bytes = *random.pick(&[5 << 10, 40 << 10, 8 << 20]);
        world.segment_bytes = *random.pick(&[1 << 10, 8 << 10, 1 << 20]);
        world.chunk_bytes = *random.pick(&[64, 2 << 10, 64 << 10]);
        if random.percent(50) {
            world.stream = StreamLimits {
                tail_bytes: random.of(100..=5_000) as usize,
                window_bytes: random.of(200..=20_000) as usize,
                frame_bytes: random.of(50..=2_000) as usize,
            };
        }
        Draw {
            world,
            safety: Micros::from_millis(random.of(400..=2_000)),
            clients_per_node: random.of(1..=3) as usize,
            think: Span::us(0, *random.pick(&[5_000, 60_000])),
            keys: random.of(2..=60),
            writes: *random.pick(&[20, 50, 80]),
            deletes: *random.pick(&[5, 30, 60]),
            value_bytes: *random.pick(&[10, 100, 600]),
            fault_every: random
                .percent(90)
                .then_some(Micros::from_millis(random.of(50..=400))),
            outage: Span::us(1_000, *random.pick(&[100_000, 2_000_000])),
            power: random.percent(50),
        }
    }
}

/// Runs what follows from a seed.
pub fn swarm<S: Session>(
    seed: u64,
    protocol: <S::Protocol as Protocol>::Config,
    planted: Planted,
) -> Outcome {
    let mut draw = Draw::new(seed);
    draw.world.planted = planted;
    run::<S>(draw, protocol)
}

/// Runs what was drawn.
pub fn run<S: Session>(draw: Draw, protocol: <S::Protocol as Protocol>::Config) -> Outcome {
    let mut run = Run::<S> {
        world: World::new(draw.world.clone(), protocol),
        // Not the world's own draws: more load would otherwise change the network.
        random: Random::new(!draw.world.seed),
        faults: 0,
        draw,
    };
    run.safety();
    run.liveness();
    run.outcome()
}

struct Run<S: Session> {
    world: World<S>,
    random: Random,
    faults: u64,
    draw: Draw,
}

/// Something that is put right again.
enum Repair {
    Restart(NodeId),
    Heal(NodeId, NodeId),
}

impl<S: Session> Run<S> {
    fn safety(&mut self) {
        let nodes: Vec<NodeId> = self.world.nodes().collect();
        let mut clients = Vec::new();
        for _ in 0..self.draw.clients_per_node {
            for &node in &nodes {
                let first = BEGINNING + self.random.span(self.draw.think);
                clients.push((first, self.world.add_client(node), None));
            }
        }
        let mut repairs: Vec<(Micros, Repair)> = Vec::new();
        let mut next_fault = self.next_fault();
        let end = BEGINNING + self.draw.safety;
        while self.world.time() < end {
            let thinking = clients.iter().filter(|(.., open)| open.is_none());
            let next_client = thinking.map(|&(at, ..)| at).min().unwrap_or(end);
            let next_repair = repairs.iter().map(|&(at, _)| at).min().unwrap_or(end);
            let until = next_client.min(next_repair).min(next_fault).min(end);
            self.world.run_until(until, |world| world.has_answered());
            for id in self.world.take_answered() {
                let client = &mut clients[self.world.record(id).client];
                if client.2 == Some(id) {
                    client.2 = None;
                    client.0 = self.world.time() + self.random.span(self.draw.think);
                }
            }
            let now = self.world.time();
            for client in &mut clients {
                // Whose node crashed under it asks again.
                if client.2.is_some_and(|open| !self.world.is_open(open)) {
                    *client = (now + self.random.span(self.draw.think), client.1, None);
                }
                if client.2.is_none() && client.0 <= now {
                    let operation = self.operation();
                    let id = self.world.invoke(client.1, operation);
                    client.2 = Some(id);
                    client.0 = now + Micros(1) + self.random.span(self.draw.think);
                }
            }
            for (_, repair) in repairs.extract_if(.., |(at, _)| *at <= now) {
                self.world.repair(&repair);
            }
            if next_fault <= now {
                self.fault(&nodes, &mut repairs);
                next_fault = self.next_fault();
            }
        }
    }

    fn next_fault(&mut self) -> Micros {
        self.draw.fault_every.map_or(Micros::MAX, |every| {
            self.world.time() + Micros(self.random.of(1..=2 * every.0))
        })
    }

    fn operation(&mut self) -> Operation {
        let key = |random: &mut Random, keys| Key::from(format!("k{}", random.below(keys)).as_str());
        let keys = self.draw.keys;
        if self.random.percent(self.draw.writes) {
            let number = self.world.history().len();
            let padding = self.random.below(self.draw.value_bytes) as usize;
            let value = (!self.random.percent(self.draw.deletes))
                .then(|| Bytes::from(format!("w{number}{}", ".".repeat(padding))));
            return Operation::Put {
                key: key(&mut self.random, keys),
                value,
                level: None,
            };
        }
        match self.random.below(20) {
            0 => Operation::Count,
            1 => Operation::Scan {
                cursor: 0,
                count: self.random.of(1..=50) as u32,
            },
            2..=4 => Operation::ReadMany {
                keys: (0..self.random.of(0..=5))
                    .map(|_| key(&mut self.random, keys))
                    .collect(),
                level: None,
            },
            _ => Operation::Get {
                key: key(&mut self.random, keys),
                level: None,
            },
        }
    }

    fn fault(&mut self, nodes: &[NodeId], repairs: &mut Vec<(Micros, Repair)>) {
        self.faults += 1;
        let until = self.world.time() + self.random.span(self.draw.outage);
        let node = *self.random.pick(nodes);
        let other = *self.random.pick(nodes);
        match self.random.below(8) {
            0 if self.random.percent(50) => {
                let changes = self.random.below(12);
                self.world.crash_within_write(node, changes);
                repairs.push((until, Repair::Restart(node)));
            }
            0..=2 => {
                let power = self.draw.power && self.random.percent(60);
                self.world.crash(node, power);
                repairs.push((until, Repair::Restart(node)));
            }
            3 if self.random.percent(30) => {
                // The whole cluster.
                for &node in nodes {
                    self.world.crash(node, self.draw.power);
                    repairs.push((until, Repair::Restart(node)));
                }
            }
            3..=5 if node != other => {
                self.world.set_cut(node, other, true);
                repairs.push((until, Repair::Heal(node, other)));
            }
            6 => {
                // A whole node is cut off.
                for &other in nodes.iter().filter(|&&other| other != node) {
                    self.world.set_cut(node, other, true);
                    repairs.push((until, Repair::Heal(node, other)));
                }
            }
            _ => self.world.checkpoint(node),
        }
    }

    fn liveness(&mut self) {
        let nodes: Vec<NodeId> = self.world.nodes().collect();
        for &node in &nodes {
            self.world.restart(node);
            for &other in nodes.iter().filter(|&&other| other != node) {
                self.world.set_cut(node, other, false);
            }
        }
        let end = self.world.time() + LIVENESS;
        // Quiet for a while: what is on its way counts, too.
        let mut quiet = 0;
        while quiet < 3 && self.world.time() < end {
            self.world.advance(Micros::from_millis(250));
            quiet = if self.world.is_quiet() { quiet + 1 } else { 0 };
        }
        if quiet < 3 {
            let states: Vec<String> = nodes
                .iter()
                .map(|&node| format!("{}: {:?}", self.world.node_name(node), self.world.status(node)))
                .collect();
            let text = format!("not quiet {LIVENESS} after the last fault: {}", states.join("; "));
            self.world.judge.report(text);
        }
        self.world.compare_sites();
    }

    fn outcome(self) -> Outcome {
        let answers = self.world.history().iter().filter_map(|record| record.answer());
        let (mut answered, mut failed) = (0, 0);
        for answer in answers {
            answered += 1;
            failed += u64::from(matches!(answer, turnbuckle_core::Answer::Failed(_)));
        }
        Outcome {
            violations: self.world.judge().violations().to_vec(),
            events: self.world.events(),
            answered,
            failed,
            audited: self.world.judge().audited,
            faults: self.faults,
            hash: self.world.hash(),
            draw: self.draw,
        }
    }
}

impl<S: Session> World<S> {
    fn repair(&mut self, repair: &Repair) {
        match *repair {
            Repair::Restart(node) => self.restart(node),
            Repair::Heal(a, b) => self.set_cut(a, b, false),
        }
    }
}

impl Outcome {
    /// # Panics
    /// If anything was wrong. Says what, what was drawn, and how to run it again.
    pub fn expect_right(&self) {
        assert!(self.violations.is_empty(), "{self}");
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:#?}", self.draw.world.seed, self.draw)?;
        writeln!(f, "{} violations, the first of them:", self.violations.len())?;
        for violation in self.violations.iter().take(5) {
            writeln!(f, "  {violation}")?;
        }
        write!(
            f,
            "REPRODUCE WITH: SEEDS={}..{} cargo test -p turnbuckle-sim --test swarm",
            self.draw.world.seed,
            self.draw.world.seed + 1
        )
    }
}
