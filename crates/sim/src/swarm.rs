//! Scenarios drawn from a seed: topology, delays, limits, load and faults.
use crate::{
    Fault, FaultKind, Jitter, Load, Loss, Random, Scenario, Span, WorldOptions, load::Kind, load::Mixed,
    scenario::random_of,
};
use turnbuckle_core::{
    Conditional, Descriptor, Level, Levels, Members, Membership, Micros, Replication, Settings, Transactions,
    Value,
};
use turnbuckle_node::{Durability, NodeId, StreamLimits};

/// What is drawn first: the kind of world, load and faults. [`Draw::scenario`] draws the faults one by one.
#[derive(Debug, Clone)]
pub struct Draw {
    /// The world.
    pub world: WorldOptions,
    /// How long clients and faults go on.
    pub safety: Micros,
    /// What clients do.
    pub load: Load,
    /// How often replicas tell each other how far they are.
    pub heartbeat: Micros,
    /// How often a site works out what is stable.
    pub theta: Micros,
    /// The mean time between two faults, or `None`: no faults.
    pub fault_every: Option<Micros>,
    /// How long a fault lasts.
    pub outage: Span,
    /// Whether power fails, too.
    pub power: bool,
    /// Whether data directories are lost, or replaced by old copies. Only under `fsync`: together with power losses that take what was
    /// acknowledged, a lost directory still leads to sites that differ (docs/standing.md).
    pub directories: bool,
    /// If set, many faults are about data directories, and this percentage of the others are cuts. While two sites do not hear each other,
    /// no delete is forgotten.
    pub deletes: Option<u64>,
    /// The site at which rows on disks are damaged.
    pub damaged_site: Option<usize>,
    /// Whether clocks leave the bounds that nodes believe in.
    pub clocks_lie: bool,
    /// Whether a clock jumps by an hour for a moment.
    pub clock_jumps: bool,
    /// Whether the replicas of a partition elect a leader.
    pub elects: bool,
    /// Whether those of each site do.
    pub agrees_by_site: bool,
}

/// The longest patience of nodes, in worlds that need it: how long they wait for peers that may hold what they lost.
const LONGEST_PATIENCE: Micros = Micros::from_millis(5_000);

/// The longest one-way delay where replicas elect a leader. A read of another site's replica takes two round trips: to its leader, and from there to a majority.
const LONGEST_DELAY_WITH_LEADERS: Micros = Micros::from_millis(200);

/// The theme of a world. It combines options that independent draws hardly ever bring together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    /// Anything.
    Any,
    /// Nodes are away for longer than logs reach back, so that full copies follow each other, while disks and some links are slow.
    Copies,
    /// Power fails again and again before disks have what was acknowledged, and peers restore what they have of it.
    PowerLosses,
    /// There are many deletes, forgotten early, while two sites do not hear each other for a long time and data directories are lost.
    Deletes,
    /// Rows are damaged at one site, in tables that are read again and again.
    Damage,
    /// Hardly anything is in memory, disks are slow, and many clients ask for the same keys.
    Cold,
}

impl Draw {
    /// The draws that follow from a seed.
    pub fn new(seed: u64) -> Draw {
        let mut random = Random::new(seed);
        let theme = match random.below(10) {
            // Not from the draws of everything else.
            0..6 => *of_theme(seed).pick(&[
                Theme::Any,
                Theme::Any,
                Theme::Deletes,
                Theme::Deletes,
                Theme::Damage,
                Theme::Cold,
            ]),
            6..8 => Theme::Copies,
            _ => Theme::PowerLosses,
        };
        let mut draw = Draw::without_theme(seed, &mut random);
        match theme {
            Theme::Any => {}
            Theme::Copies => draw.bend_to_copies(&mut random),
            Theme::PowerLosses => draw.bend_to_power_losses(&mut random),
            Theme::Deletes => draw.bend_to_deletes(&mut random),
            Theme::Damage => draw.bend_to_damage(&mut random),
            Theme::Cold => draw.bend_to_cold(&mut random),
        }
        // Not from the draws of everything else.
        if draw.clocks_lie && of_theme(!seed).percent(50) {
            draw.set_a_clock_far_ahead(&mut of_theme(!seed));
        }
        draw.world.fills_in_halves = of_fills(seed).percent(20);
        let is_damaged = draw.damaged_site.is_some();
        if matches!(draw.load.kind, Kind::Mixed(_)) && !is_damaged && of_keyspaces(seed).percent(20) {
            draw.world.keyspaces = 2;
        }
        draw
    }

    /// Uses what the protocol allows: several members of each partition at each site, or partitions that are not at all sites, in some worlds; and siblings in
    /// all.
    pub fn suited_to(mut self, protocol: Descriptor) -> Draw {
        if let Kind::Mixed(mixed) = &mut self.load.kind
            && protocol.keeps_siblings
        {
            let mut random = of_option(self.world.seed, 0x7369_626C);
            mixed.siblings = *random.pick(&[30, 60]);
            // Without contexts, a write may replace anything that is older. So in half of the worlds all writes have one.
            mixed.contexts = *random.pick(&[70, 100]);
        }
        if let Kind::Mixed(mixed) = &mut self.load.kind
            && protocol.takes_expiry
        {
            let mut random = of_option(self.world.seed, 0x6578_7069);
            mixed.expires = *random.pick(&[0, 0, 30, 70]);
            if mixed.expires > 0 {
                mixed.retimes = *random.pick(&[0, 20, 40]);
            }
        }
        if let Kind::Mixed(mixed) = &mut self.load.kind
            && protocol.transactions == Transactions::All
        {
            let mut random = of_option(self.world.seed, 0x6C65_6467);
            mixed.ledgers = *random.pick(&[0, 0, 20, 60]);
        }
        if let Kind::Mixed(mixed) = &mut self.load.kind
            && protocol.counts
        {
            let mut random = of_option(self.world.seed, 0x6E75_6D62);
            mixed.numbers = match self.deletes.is_some() {
                // Many of them are over, and are written again.
                true => *random.pick(&[0, 60, 60, 80]),
                false => *random.pick(&[0, 0, 20, 60]),
            };
            if self.deletes.is_some() {
                let mut random = of_theme(self.world.seed.rotate_left(8));
                let node = random.below(self.world.sites.len() as u64) as u16;
                self.world.late_checkpoints = random.percent(60).then_some(NodeId(node));
            }
        }
        if let Kind::Mixed(mixed) = &mut self.load.kind
            && protocol.keeps_elements
        {
            let mut random = of_option(self.world.seed, 0x656C_656D);
            mixed.elements = *random.pick(&[0, 0, 20, 60]);
        }
        if let Kind::Mixed(mixed) = &mut self.load.kind
            && protocol.confirms_sites
        {
            let mut random = of_option(self.world.seed, 0x7761_6974);
            mixed.waits = *random.pick(&[0, 0, 2, 10]);
        }
        if let Kind::Mixed(mixed) = &mut self.load.kind
            && protocol.transactions == Transactions::WithoutConditions
        {
            let mut random = of_option(self.world.seed, 0x7477_696E);
            mixed.twins = *random.pick(&[0, 0, 20, 60]);
        }
        if let Kind::Mixed(mixed) = &mut self.load.kind
            && protocol.decides_at_site
        {
            let mut random = of_option(self.world.seed, 0x636F_6E64);
            mixed.conditions = *random.pick(&[0, 0, 30, 70]);
            mixed.texts = *random.pick(&[0, 0, 20, 40]);
            self.world.conditional = Conditional::Site;
        }
        if protocol.replication == Replication::Consensus {
            self.elects = true;
            for delay in self.world.delays.iter_mut().flatten() {
                *delay = (*delay).min(LONGEST_DELAY_WITH_LEADERS);
            }
        }
        if protocol.agrees_by_site {
            self.agrees_by_site = true;
            self.world.members = Members::from([3, 3, 2, 1][self.world.seed as usize % 4]);
            let members = usize::from(self.world.members.max());
            self.world.nodes_per_site = self.world.nodes_per_site.max(members);
            return self;
        }
        self.placed_for(protocol)
    }

    fn placed_for(mut self, protocol: Descriptor) -> Draw {
        let mut random = of_placement(self.world.seed);
        // Worlds that depend on one node of each site stay as they are.
        let is_apart = self.deletes.is_some() || self.damaged_site.is_some() || self.world.keyspaces > 1;
        if is_apart || random.percent(80) {
            return self;
        }
        let world = &mut self.world;
        if protocol.max_members > 1 {
            world.members = Members::from(*random.pick(&[1, 2, 3]).min(&protocol.max_members));
            world.nodes_per_site = world.nodes_per_site.max(usize::from(world.members.max()));
        }
        if protocol.leaves_sites_out && world.sites.len() > 2 && random.percent(50) {
            world.replica_sites = Some(random.of(2..=world.sites.len() as u64 - 1) as u16);
            world.partitions = world.partitions.max(world.sites.len() as u16);
            return self;
        }
        let mut random = of_placement(!world.seed);
        if protocol.max_members > 1 && protocol.leaves_sites_out && random.percent(30) {
            let drawn = world
                .sites
                .iter()
                .map(|_| random.of(0..=u64::from(world.members.max())) as u16);
            let drawn: Vec<u16> = drawn.collect();
            // At least two replicas, so that there is something to replicate.
            if let Some(members) = Members::of(&drawn).filter(|_| drawn.iter().sum::<u16>() > 1) {
                world.members = members;
            }
        }
        self
    }

    /// Lets half of the worlds use another level than the protocol's default, if operations choose how many replicas take part. With fewer levels, clients mix
    /// them in every world.
    pub fn at_levels(mut self, offered: Levels) -> Draw {
        let mut random = Random::new(self.world.seed.rotate_left(24) ^ 0x6C65_7665);
        let asks_several = |level: &Level| level.replicas_needed(3) > 1;
        if !offered.reads.iter().any(asks_several) || random.percent(50) {
            return self;
        }
        let level = match *random.pick(offered.reads) {
            Level::Bounded(_) => Level::Bounded(Micros::from_millis(*random.pick(&[20, 200, 2_000]))),
            Level::Delay(_) => Level::Delay(Micros::from_millis(20)),
            Level::Replicas(_) => Level::Replicas(2),
            Level::Cpq(_) => Level::Cpq(500_000),
            level => level,
        };
        self.load.read = Some(level);
        self.load.write = level.is_among(offered.writes).then_some(level);
        self
    }

    fn bend_to_copies(&mut self, random: &mut Random) {
        let world = &mut self.world;
        world.retained_log_bytes = 0;
        world.checkpoint_log_bytes = *random.pick(&[1 << 10, 4 << 10]);
        world.segment_bytes = 1 << 10;
        world.stream.tail_bytes = 200;
        world.work = Span::us(100, 5_000);
        world.disk = Span::us(0, *random.pick(&[500, 5_000, 40_000]));
        world.batch_keys = *random.pick(&[1, 5, 40]);
        let count = world.sites.len() * world.nodes_per_site;
        world.disk_percents = (0..count).map(|_| *random.pick(&[100, 100, 1_000])).collect();
        // A site that is far from another one hears of everything from the other sites first.
        for _ in 0..random.below(3) {
            set_far(world, random, 1_500_000);
        }
        self.outage = Span::us(20_000, *random.pick(&[300_000, 1_500_000]));
        self.fault_every = Some(Micros::from_millis(random.of(60..=300)));
        self.hurry(random);
    }

    fn bend_to_power_losses(&mut self, random: &mut Random) {
        let world = &mut self.world;
        world.durability = *random.pick(&[
            Durability::Interval(Micros::from_millis(200)),
            Durability::Interval(Micros::from_millis(2_000)),
            Durability::None,
        ]);
        world.disk = Span::us(0, *random.pick(&[2_000, 40_000]));
        world.batch_keys = *random.pick(&[1, 5, 512]);
        world.checkpoint_interval = Micros::from_millis(*random.pick(&[10, 100]));
        world.backoff = Span::us(1_000, 20_000);
        let (near, far) = (Micros(200), Micros(random.of(1_000..=40_000)));
        for (from, delays) in world.delays.iter_mut().enumerate() {
            for (to, delay) in delays.iter_mut().enumerate().filter(|&(to, _)| to != from) {
                *delay = if (from + to) % 2 == 0 { near } else { far };
            }
        }
        self.power = true;
        self.outage = Span::us(1_000, *random.pick(&[30_000, 400_000]));
        self.fault_every = Some(Micros::from_millis(random.of(60..=300)));
        self.hurry(random);
    }

    /// Sets the clock of one node ahead from the beginning on: by more than any message is under way, so that all other nodes can see it.
    fn set_a_clock_far_ahead(&mut self, random: &mut Random) {
        let offsets = &mut self.world.clock_offsets_us;
        let node = random.below(offsets.len() as u64) as usize;
        offsets[node] += random.of(3_000_000..=6_000_000) as i64;
    }

    fn bend_to_deletes(&mut self, random: &mut Random) {
        let world = &mut self.world;
        world.durability = Durability::Fsync;
        world.sync = Span::us(100, 2_000);
        // A node that has lost one of two partitions may show a session less than the session has seen (docs/standing.md).
        world.nodes_per_site = 1;
        world.clock_offsets_us.truncate(world.sites.len());
        world.checkpoint_interval = Micros::from_millis(*random.pick(&[10, 50]));
        world.work = Span::us(100, 5_000);
        world.shrink = *random.pick(&[10, 100]);
        for (from, delays) in world.delays.iter_mut().enumerate() {
            for (_, delay) in delays.iter_mut().enumerate().filter(|&(to, _)| to != from) {
                *delay = Micros(random.of(200..=20_000));
            }
        }
        // In half of these worlds one way between two sites is slow for a long time: the site that does not hear forgets nothing, and other
        // sites do.
        if random.percent(50) {
            set_far(world, random, 2_000_000);
        }
        world.patience = Micros::from_millis([100, 1_000, 5_000][(world.seed % 3) as usize]);
        self.directories = true;
        self.deletes = Some(*random.pick(&[0, 0, 40]));
        self.heartbeat = Micros::from_millis(*random.pick(&[10, 20]));
        self.theta = Micros::from_millis(*random.pick(&[2, 10]));
        self.outage = Span::us(10_000, *random.pick(&[50_000, 500_000, 2_000_000]));
        self.fault_every = Some(Micros::from_millis(random.of(150..=500)));
        self.safety = Micros::from_millis(random.of(1_500..=4_000));
        self.load.think = Span::us(1_000, *random.pick(&[10_000, 60_000]));
        if let Kind::Mixed(mixed) = &mut self.load.kind {
            // With many keys, some are not written any more once they are deleted.
            mixed.keys = *random.pick(&[5, 60, 200]);
            mixed.writes = *random.pick(&[40, 80]);
            mixed.deletes_of_read = *random.pick(&[0, 50]);
            mixed.deletes = *random.pick(&[40, 60]);
        }
    }

    /// Rows that are damaged before any peer has them, and that are no longer in the log, are lost. So the log reaches back, and only one
    /// site is damaged. A keyspace that was left out has no log, so there is only one keyspace.
    fn bend_to_damage(&mut self, random: &mut Random) {
        let world = &mut self.world;
        world.durability = Durability::Fsync;
        world.sync = Span::us(100, 2_000);
        world.memory_limit_bytes = *random.pick(&[1 << 10, 8 << 10]);
        world.retained_log_bytes = 8 << 20;
        world.checkpoint_interval = Micros::from_millis(*random.pick(&[30, 200]));
        world.segment_bytes = 1 << 10;
        world.disk = Span::us(0, *random.pick(&[0, 2_000, 20_000]));
        self.damaged_site = Some(random.below(world.sites.len() as u64) as usize);
        self.directories = false;
        self.outage = Span::us(1_000, *random.pick(&[100_000, 600_000]));
        self.fault_every = Some(Micros::from_millis(random.of(60..=250)));
        self.safety = Micros::from_millis(random.of(1_000..=3_000));
        self.load.think = Span::us(1_000, *random.pick(&[10_000, 60_000]));
        if let Kind::Mixed(mixed) = &mut self.load.kind {
            mixed.keys = *random.pick(&[40, 300]);
            mixed.deletes = *random.pick(&[5, 40]);
        }
    }

    fn bend_to_cold(&mut self, random: &mut Random) {
        let world = &mut self.world;
        world.memory_limit_bytes = *random.pick(&[200, 1 << 10]);
        world.disk = Span::us(0, *random.pick(&[10_000, 40_000]));
        world.work = Span::us(100, 2_000);
        world.checkpoint_interval = Micros::from_millis(*random.pick(&[10, 50]));
        world.batch_keys = *random.pick(&[1, 5]);
        world.clock_bound = Micros(500);
        let count = world.clock_offsets_us.len();
        world.clock_offsets_us = (0..count).map(|_| random.below(500) as i64 - 250).collect();
        self.heartbeat = Micros::from_millis(20);
        self.safety = self.safety.min(Micros::from_millis(1_000));
        self.load.clients_per_node = 3;
        self.load.think = Span::us(0, *random.pick(&[10_000, 20_000]));
        self.load.amplification = self.load.amplification.min(5);
        if let Kind::Mixed(mixed) = &mut self.load.kind {
            mixed.keys = *random.pick(&[5, 12]);
            mixed.value_bytes = *random.pick(&[100, 600]);
        }
    }

    /// Clients do not think for long, and mostly write keys that are never overwritten: so lost versions stay lost.
    fn hurry(&mut self, random: &mut Random) {
        // In a long world, clients would think for longer.
        self.safety = self.safety.min(Micros::from_millis(2_000));
        self.load.think = Span::us(0, *random.pick(&[2_000, 10_000]));
        if let Kind::Mixed(mixed) = &mut self.load.kind {
            mixed.keys = *random.pick(&[12, 100, 1_000]);
        }
    }

    fn without_theme(seed: u64, random: &mut Random) -> Draw {
        let world = draw_world(seed, random);
        // Some go on longer than a node waits for peers that are away, with clients that think for longer.
        let is_long = random.percent(5);
        let safety = if is_long { 6_000..=12_000 } else { 400..=2_000 };
        let safety = Micros::from_millis(random.of(safety));
        let mut load = draw_load(random);
        draw_habits(&mut load, seed);
        if is_long {
            load.think = Span::us(20_000, 200_000);
        }
        Draw {
            world,
            safety,
            load,
            heartbeat: Micros::from_millis(*random.pick(&[20, 50, 150])),
            // As many faults in a long world as in others: each restart moves a node's clock ahead by up to three seconds.
            fault_every: random.percent(90).then_some(Micros::from_millis(
                random.of(50..=400) * if is_long { 6 } else { 1 },
            )),
            outage: Span::us(1_000, *random.pick(&[100_000, 2_000_000])),
            power: random.percent(50),
            directories: random.percent(20),
            deletes: None,
            damaged_site: None,
            clocks_lie: random.percent(10),
            clock_jumps: of_clock_jumps(seed).percent(10),
            elects: false,
            agrees_by_site: false,
            theta: Micros::from_millis(*random.pick(&[2, 10, 70])),
        }
    }

    /// The scenario with its faults.
    pub fn scenario(&self) -> Scenario {
        let mut random = random_of(self.world.seed);
        let mut of_disks = of_disks(!self.world.seed);
        let mut of_losses = of_losses(self.world.seed);
        let count = self.world.sites.len() * self.world.nodes_per_site;
        let nodes: Vec<NodeId> = (0..count as u16).map(NodeId).collect();
        let mut faults = Vec::new();
        let mut at = Micros(0);
        while let Some(every) = self.fault_every {
            at = at + Micros(random.of(1..=2 * every.0));
            if at >= self.safety {
                break;
            }
            let mut kind = self.draw_fault(&mut random, &nodes);
            if let FaultKind::DiskFull { free_bytes, .. } = &mut kind {
                let max = *of_disks.pick(&[1, 500, 4 << 10, 32 << 10]);
                *free_bytes = of_disks.below(max);
            }
            if let FaultKind::Crash {
                node,
                loss: Loss::Old,
            } = kind
                && self.deletes.is_some()
            {
                // So there is a copy to be put back.
                let (at, span) = (Micros(random.below(at.0)), Micros(0));
                let kind = FaultKind::Backup { node };
                faults.push(Fault { at, span, kind });
            }
            let span = random.span(self.outage);
            let span = match kind {
                // Until a node has heard of a peer, it does not know that its directory is an old copy, and stamps by its wall clock. It
                // has to stamp above what it stamped in lives that the copy does not know. It does if the copy took longer to put in place
                // than a restart moves a clock ahead (docs/standing.md).
                FaultKind::Crash { loss: Loss::Old, .. } => span.max(Micros::from_millis(4_000)),
                _ => span,
            };
            if let FaultKind::Crash {
                node,
                loss: Loss::Directory,
            } = kind
            {
                self.draw_cuts(node, (at, span), &nodes, &mut of_losses, &mut faults);
            }
            faults.push(Fault { at, span, kind });
        }
        if self.elects && self.fault_every.is_some() {
            self.draw_leaders(&nodes, &mut faults);
            self.draw_members(&nodes, &mut faults);
        }
        if self.world.keyspaces > 1 {
            self.draw_left_out(&nodes, &mut faults);
        }
        if self.clock_jumps && self.fault_every.is_some() {
            faults.push(self.draw_clock_jump(&nodes));
        }
        if self.agrees_by_site {
            self.spare_groups(&mut faults);
            if self.fault_every.is_some() {
                self.draw_rifts(&nodes, &mut faults);
                self.draw_lost_sites(&nodes, &mut faults);
            }
        }
        let mut world = self.world.clone();
        let takes_directory =
            |fault: &Fault| matches!(fault.kind, FaultKind::Crash { loss, .. } if loss.takes_directory());
        if faults.iter().any(takes_directory) {
            // A node whose directory was lost promises too much if the only site that knows of it is away for longer than the patience
            // (docs/standing.md).
            world.patience = LONGEST_PATIENCE;
        }
        Scenario {
            name: "swarm".into(),
            world,
            load: self.load.clone(),
            safety: self.safety,
            faults,
            parameters: self.parameters(),
        }
    }

    /// A write is at one site until it is sent to others. So of the replicas of a site that agree on it, at most one loses what it had, and none that is the only one. No directory is replaced by an
    /// old copy: a replica cannot know that.
    fn spare_groups(&self, faults: &mut Vec<Fault>) {
        let is_first = |node: NodeId| usize::from(node.0).is_multiple_of(self.world.nodes_per_site);
        let may_lose = |node| self.world.members.max() > 1 && is_first(node);
        faults.retain(|fault| match &fault.kind {
            FaultKind::Crash { loss: Loss::Old, .. } | FaultKind::CrashAll { loss: Loss::Old } => false,
            FaultKind::Crash {
                loss: Loss::Directory,
                node,
            }
            | FaultKind::Damage { node, .. } => may_lose(*node),
            _ => true,
        });
    }

    /// Nodes that do not hear the other nodes of their site, and go on hearing other sites; and, in some worlds, a site that hears no other one from the beginning on.
    fn draw_rifts(&self, nodes: &[NodeId], faults: &mut Vec<Fault>) {
        let mut random = of_rifts(self.world.seed);
        let site = |node: NodeId| usize::from(node.0) / self.world.nodes_per_site;
        let mut cut = |node: NodeId, is_other: &dyn Fn(NodeId) -> bool, at: Micros, span: Micros| {
            for &other in nodes.iter().filter(|&&other| other != node && is_other(other)) {
                let kind = FaultKind::Cut { a: node, b: other };
                faults.push(Fault { at, span, kind });
            }
        };
        for _ in 0..random.below(4) {
            let node = *random.pick(nodes);
            let at = Micros(random.below(self.safety.0));
            let span = Micros(random.of(20_000..=1_500_000));
            cut(node, &|other| site(other) == site(node), at, span);
        }
        if random.percent(15) {
            let late = random.below(self.world.sites.len() as u64) as usize;
            let span = Micros(random.of(100_000..=3_000_000));
            for &node in nodes.iter().filter(|&&node| site(node) == late) {
                cut(node, &|other| site(other) != late, Micros(0), span);
            }
        }
    }

    /// In some worlds a site loses its directories: all, or a majority of those that agree on a write. Only under `fsync`, as all lost directories. Often nobody else has heard of what these nodes did in the time before.
    fn draw_lost_sites(&self, nodes: &[NodeId], faults: &mut Vec<Fault>) {
        let mut random = of_lost_sites(self.world.seed);
        if self.world.durability != Durability::Fsync || random.percent(70) {
            return;
        }
        let (there, members) = (self.world.nodes_per_site, usize::from(self.world.members.max()));
        for _ in 0..random.of(1..=2) {
            let site = random.below(self.world.sites.len() as u64) as usize;
            let majority = members / 2 + 1;
            let count = match there == members && random.percent(50) {
                true => majority,
                false => there,
            };
            let at = Micros(random.below(self.safety.0));
            // The first node is the first that loses: what it had stamped is excused once no node has it any more.
            let (spared, unheard) = (site * there + count, Micros(random.of(50_000..=1_000_000)));
            let is_unheard = random.percent(70);
            for &node in nodes.iter().skip(site * there).take(count) {
                let is_elsewhere = |other: &&NodeId| !(site * there..spared).contains(&usize::from(other.0));
                let since = Micros(at.0.saturating_sub(unheard.0));
                for &other in nodes.iter().filter(|other| is_unheard && is_elsewhere(other)) {
                    let kind = FaultKind::Cut { a: node, b: other };
                    faults.push(Fault {
                        at: since,
                        span: unheard,
                        kind,
                    });
                }
                let span = random.span(self.outage);
                let loss = Loss::Directory;
                let kind = FaultKind::Crash { node, loss };
                faults.push(Fault { at, span, kind });
            }
        }
    }

    /// A protocol uses those that it has.
    fn parameters(&self) -> Settings {
        let mut random = of_statuses(self.world.seed);
        let mut drawn = Settings::from([
            ("heartbeat", self.heartbeat),
            ("theta", self.theta),
            ("status", Micros::from_millis(*random.pick(&[1, 10, 10, 50]))),
            (
                "status_age",
                Micros::from_millis(*random.pick(&[0, 20, 500, 5_000])),
            ),
        ]);
        if random.percent(30) {
            drawn.set("status_covers", Value::Count(1));
        }
        // A leader that must be heard in less time than a few votes take, with their syncs, is never elected for long.
        let least = Micros::from_millis(*random.pick(&[20, 100, 300]));
        let slow = Micros(2 * self.world.sync.max.0) + Micros(4 * self.world.turn.max.0);
        let round_trip = self.world.longest_round_trip();
        let election = Micros(3 * (round_trip + slow).0).max(least);
        drawn.set("election", Value::Interval(election));
        if self.elects {
            // A world is over after a few seconds. A client that waits for a leader for most of that shows nothing. But in the end there must be
            // time for an election.
            let most = Micros::from_millis(4_000);
            let patience = Micros::from_millis([150, 500, 4_000][(self.world.seed % 3) as usize]);
            let patience = patience
                .max(Micros(6 * election.0))
                .max(Micros(6 * round_trip.0))
                .min(most);
            drawn.set("patience", Value::Interval(patience));
            drawn.set(
                "heartbeat",
                Value::Interval(self.heartbeat.min(Micros(election.0 / 5))),
            );
        }
        drawn
    }

    /// In half of the worlds operators move leaders.
    fn draw_leaders(&self, nodes: &[NodeId], faults: &mut Vec<Fault>) {
        let mut random = of_leaders(self.world.seed);
        if random.percent(50) {
            return;
        }
        for _ in 0..random.of(1..=10) {
            let node = *random.pick(nodes);
            let kind = match random.percent(70) {
                true => FaultKind::Lead { node },
                false => FaultKind::HandOver { node },
            };
            let (at, span) = (Micros(random.below(self.safety.0)), Micros(0));
            faults.push(Fault { at, span, kind });
        }
    }

    /// In half of the worlds operators change members: a replica leaves its group, or becomes a learner or a voter. Operators repeat what they want, because a change takes several steps.
    fn draw_members(&self, nodes: &[NodeId], faults: &mut Vec<Fault>) {
        let mut random = of_members(self.world.seed);
        if random.percent(50) {
            return;
        }
        for _ in 0..random.of(1..=8) {
            let node = *random.pick(nodes);
            let wanted = match random.below(5) {
                0 | 1 => Membership::None,
                2 => Membership::Learner,
                _ => Membership::Voter,
            };
            let (mut at, span) = (Micros(random.below(self.safety.0)), Micros(0));
            for _ in 0..random.of(1..=4) {
                let kind = FaultKind::Member { node, wanted };
                faults.push(Fault { at, span, kind });
                at = at + Micros(random.of(1..=self.safety.0 / 10));
            }
        }
        faults.retain(|fault| fault.at < self.safety);
    }

    /// Restarts nodes without one of the keyspaces, and later with it again. About half of the nodes begin without it.
    fn draw_left_out(&self, nodes: &[NodeId], faults: &mut Vec<Fault>) {
        let mut random = of_keyspaces(!self.world.seed);
        let mut left_out = |at: Micros, node: NodeId, random: &mut Random| {
            let kind = FaultKind::LeftOut {
                node,
                keyspace: usize::from(random.percent(80)),
            };
            let span = Micros(random.of(1..=self.safety.0 / 2));
            faults.push(Fault { at, span, kind });
        };
        for &node in nodes {
            if random.percent(50) {
                left_out(Micros(0), node, &mut random);
            }
            let at = Micros(random.below(self.safety.0));
            left_out(at, node, &mut random);
        }
    }

    /// So the last writes of a node before it loses its directory have reached only some sites, and when it is back it hears from others
    /// first.
    fn draw_cuts(
        &self,
        node: NodeId,
        (at, span): (Micros, Micros),
        nodes: &[NodeId],
        random: &mut Random,
        faults: &mut Vec<Fault>,
    ) {
        if random.percent(50) {
            return;
        }
        let site = |node: NodeId| usize::from(node.0) / self.world.nodes_per_site;
        for &other in nodes.iter().filter(|&&other| site(other) != site(node)) {
            let before = Micros(random.below(400_000).min(at.0));
            let after = Micros(random.below(2_000_000));
            let (from, until) = match random.percent(50) {
                true => (at.0 - before.0, at.0 + span.0),
                false => (at.0, at.0 + span.0 + after.0),
            };
            let kind = FaultKind::Cut { a: node, b: other };
            faults.push(Fault {
                at: Micros(from),
                span: Micros(until - from),
                kind,
            });
        }
    }

    fn draw_clock_jump(&self, nodes: &[NodeId]) -> Fault {
        const HOUR_US: i64 = 3_600_000_000;
        let mut random = of_clock_jumps(!self.world.seed);
        let node = *random.pick(nodes);
        let by_us = *random.pick(&[HOUR_US, HOUR_US, -HOUR_US]);
        Fault {
            at: Micros(random.below(self.safety.0)),
            span: Micros(random.of(1_000..=1_000_000)),
            kind: FaultKind::ClockJump { node, by_us },
        }
    }

    fn draw_fault(&self, random: &mut Random, nodes: &[NodeId]) -> FaultKind {
        let node = *random.pick(nodes);
        let other = *random.pick(nodes);
        let loss = match self.power && random.percent(60) {
            true => Loss::Power,
            false => Loss::Process,
        };
        let percent_of_directories = if self.deletes.is_some() { 30 } else { 15 };
        if self.directories
            && self.world.durability == Durability::Fsync
            && random.percent(percent_of_directories)
        {
            return match random.below(4) {
                0 => FaultKind::Crash {
                    node,
                    loss: Loss::Directory,
                },
                1 => FaultKind::Crash {
                    node,
                    loss: Loss::Old,
                },
                _ => FaultKind::Backup { node },
            };
        }
        if let Some(percent) = self.deletes
            && node != other
            && random.percent(percent)
        {
            return FaultKind::Cut { a: node, b: other };
        }
        if let Some(site) = self.damaged_site
            && random.percent(30)
        {
            let first = site * self.world.nodes_per_site;
            let node = nodes[first + random.below(self.world.nodes_per_site as u64) as usize];
            let rows = *random.pick(&[1, 5, 1_000]);
            return FaultKind::Damage { node, rows };
        }
        let percent = *random.pick(&[200, 1_000, 10_000]);
        match random.below(20) {
            0 | 1 => FaultKind::CrashWithinWrite {
                node,
                changes: random.below(12),
            },
            2..=4 => FaultKind::Crash { node, loss },
            5 => FaultKind::CrashAll { loss },
            6..=8 if node != other => FaultKind::Cut { a: node, b: other },
            9 => FaultKind::Isolate { node },
            10 if node != other => FaultKind::OneWayCut {
                from: node,
                to: other,
            },
            11 if node != other => FaultKind::SlowLink {
                from: node,
                to: other,
                percent,
            },
            12 if node != other => FaultKind::Loss {
                from: node,
                to: other,
                ppm: *random.pick(&[10_000, 300_000, 1_000_000]),
            },
            13 => FaultKind::Pause { node },
            14 => self.draw_clock_fault(random, node),
            15 => FaultKind::SlowDisk { node, percent },
            16 => FaultKind::SyncFails { node },
            // The number of bytes that are left is drawn apart.
            17 => FaultKind::DiskFull { node, free_bytes: 0 },
            18 => FaultKind::SlowPartition {
                partition: random.below(self.world.partitions.into()) as u16,
                percent,
            },
            _ => FaultKind::Checkpoint { node },
        }
    }

    /// Clocks that do not lie stay within their bound: the part of the bound that a step may add was kept free.
    fn draw_clock_fault(&self, random: &mut Random, node: NodeId) -> FaultKind {
        let bound = self.world.clock_bound.0;
        let max = if self.clocks_lie { 2_000_000 } else { bound / 4 };
        let by_us = random.below(max + 1) as i64;
        match random.below(3) {
            0 => FaultKind::ClockStep { node, by_us },
            1 => FaultKind::ClockStep { node, by_us: -by_us },
            _ => FaultKind::ClockDrift {
                node,
                ppm: if self.clocks_lie {
                    50_000
                } else {
                    random.below(100) as i64 - 50
                },
            },
        }
    }
}

/// The draws of what a protocol may offer, each with a number of its own. They are not those of everything else, so that other worlds stay as they are.
fn of_option(seed: u64, option: u64) -> Random {
    Random::new(seed.rotate_left(24) ^ option)
}

/// Draws for the theme of a world.
fn of_theme(seed: u64) -> Random {
    Random::new(seed.rotate_left(24) ^ 0x6D6F_6F64)
}

/// Draws for the placement of partitions.
fn of_placement(seed: u64) -> Random {
    Random::new(seed.rotate_left(48) ^ 0x6D65_6D62)
}

/// Draws for what exists only in worlds with several keyspaces.
fn of_keyspaces(seed: u64) -> Random {
    Random::new(seed.rotate_left(40) ^ 0x6B_6579_7370)
}

/// Draws for statuses.
fn of_statuses(seed: u64) -> Random {
    Random::new(seed.rotate_left(32) ^ 0x7374_6174)
}

/// Draws for nodes that are asked for frames in two steps.
fn of_fills(seed: u64) -> Random {
    Random::new(seed.rotate_left(56) ^ 0x6669_6C6C)
}

/// Draws for leaders that are moved.
fn of_leaders(seed: u64) -> Random {
    Random::new(seed.rotate_left(56) ^ 0x6C65_6164)
}

/// Draws for members that change.
fn of_members(seed: u64) -> Random {
    Random::new(seed.rotate_left(40) ^ 0x6D65_6D62)
}

/// Draws for clocks that jump by an hour.
fn of_clock_jumps(seed: u64) -> Random {
    Random::new(seed.rotate_left(48) ^ 0x6A75_6D70)
}

/// Draws for links that are cut around a lost directory.
fn of_losses(seed: u64) -> Random {
    Random::new(seed.rotate_left(40) ^ 0x6C6F_7373)
}

/// Draws for sites that fall apart.
fn of_rifts(seed: u64) -> Random {
    Random::new(seed.rotate_left(16) ^ 0x7269_6674)
}

/// Draws for sites that lose their directories.
fn of_lost_sites(seed: u64) -> Random {
    Random::new(seed.rotate_left(24) ^ 0x7369_7465)
}

/// Draws for how much space disks have, and how much is to be kept free.
fn of_disks(seed: u64) -> Random {
    Random::new(seed.rotate_left(48) ^ 0x726F_6F6D)
}

fn draw_world(seed: u64, random: &mut Random) -> WorldOptions {
    let site_count = random.of(2..=4) as usize;
    let names = ["ant", "bee", "cat", "dog"];
    let mut world = WorldOptions::plain(names[..site_count].iter().copied(), Micros(0));
    world.seed = seed;
    world.must_forget = true;
    world.one_loss_at_a_time = true;
    (world.nodes_per_site, world.partitions) = match random.percent(35) {
        true => (2, *random.pick(&[2, 2, 3, 5])),
        false => (1, *random.pick(&[1, 1, 3])),
    };
    world.durability = *random.pick(&[
        Durability::Fsync,
        Durability::Interval(Micros::from_millis(10)),
        Durability::Interval(Micros::from_millis(200)),
        Durability::None,
    ]);
    for from in 0..site_count {
        for to in (0..site_count).filter(|&to| to != from) {
            world.delays[from][to] = Micros(random.of(100..=80_000));
        }
    }
    let spread = Micros(*random.pick(&[50, 1_000, 20_000]));
    world.jitter = *random.pick(&[
        Jitter::Uniform(spread),
        Jitter::Exponential(Micros(spread.0 / 4)),
        Jitter::Normal(Micros(spread.0 / 2)),
        Jitter::Spikes {
            one_in: 20,
            by: Micros(spread.0 * 10),
        },
    ]);
    world.bandwidth = random.percent(20).then_some(random.of(50_000..=5_000_000));
    world.loss_ppm = *random.pick(&[0, 0, 0, 10_000, 200_000]);
    world.give_up = Span::us(10_000, *random.pick(&[50_000, 1_000_000]));
    world.cores = *random.pick(&[0, 0, 1, 2]);
    world.turn = Span::us(1, *random.pick(&[20, 2_000]));
    world.sync = Span::us(100, *random.pick(&[2_000, 50_000]));
    world.work = Span::us(100, *random.pick(&[2_000, 100_000]));
    world.disk = Span::us(0, *random.pick(&[0, 100, 2_000, 40_000]));
    world.backoff = Span::us(1_000, *random.pick(&[20_000, 500_000]));
    draw_clocks(&mut world, random);
    draw_limits(&mut world, random);
    world
}

/// Draws clock offsets. Half of the bound is kept for steps and drifts.
fn draw_clocks(world: &mut WorldOptions, random: &mut Random) {
    world.clock_bound = Micros(*random.pick(&[500, 20_000, 500_000]));
    let half = world.clock_bound.0 / 2;
    let mut offset = || random.of(0..=2 * half) as i64 - half as i64;
    let count = world.sites.len() * world.nodes_per_site;
    world.clock_offsets_us = (0..count).map(|_| offset()).collect();
}

/// One site hears late from another one. Or the nodes of one site hear late from each other, but by no more than a command has time for.
fn set_far(world: &mut WorldOptions, random: &mut Random, max: u64) {
    let count = world.sites.len() as u64;
    let (from, to) = (random.below(count) as usize, random.below(count) as usize);
    let delay = random.of(100_000..=max);
    let share = if from == to { 20 } else { 1 };
    world.delays[from][to] = Micros(delay / share);
}

fn draw_limits(world: &mut WorldOptions, random: &mut Random) {
    world.memory_limit_bytes = *random.pick(&[4 << 10, 32 << 10, 8 << 20]);
    world.retained_log_bytes = *random.pick(&[0, 20 << 10, 8 << 20]);
    world.checkpoint_log_bytes = *random.pick(&[5 << 10, 40 << 10, 8 << 20]);
    world.checkpoint_interval = Micros::from_millis(*random.pick(&[30, 200, 60_000]));
    world.batch_keys = *random.pick(&[1, 5, 512]);
    world.patience = Micros::from_millis(*random.pick(&[100, 5_000]));
    world.shrink = *random.pick(&[1, 10, 100, 1_000, 10_000]);
    world.min_free_bytes = *of_disks(world.seed).pick(&[0, 200, 2 << 10, 16 << 10]);
    world.segment_bytes = *random.pick(&[1 << 10, 8 << 10, 1 << 20]);
    world.chunk_bytes = *random.pick(&[64, 2 << 10, 64 << 10]);
    if random.percent(50) {
        world.stream = StreamLimits {
            tail_bytes: random.of(100..=5_000) as usize,
            window_bytes: random.of(200..=20_000) as usize,
            frame_bytes: random.of(50..=2_000) as usize,
        };
    }
}

fn draw_load(random: &mut Random) -> Load {
    let mixed = Kind::Mixed(Mixed {
        keys: random.of(2..=60),
        writes: *random.pick(&[20, 50, 80]),
        deletes: *random.pick(&[0, 5, 30, 60]),
        value_bytes: *random.pick(&[10, 100, 600]),
        careless: *random.pick(&[0, 0, 0, 20]),
        ..Mixed::default()
    });
    Load {
        at: Vec::new(),
        requests: None,
        after: Micros(0),
        clients_per_node: random.of(1..=3) as usize,
        think: Span::us(0, *random.pick(&[5_000, 60_000])),
        kind: match random.percent(10) {
            true => Kind::PingPong,
            false => mixed,
        },
        read: None,
        read_mix: None,
        write: None,
        roam_every: random.percent(25).then_some(random.of(1..=10)),
        amplification: *random.pick(&[1, 1, 1, 5]),
        pipeline: 1,
        visits: 0,
        away: 0,
    }
}

/// Draws what clients do besides asking one thing after the other: pipelines, visits, keys that all clients use, deletes of what was just
/// read, reads of many keys. Not from the draws of everything else.
fn draw_habits(load: &mut Load, seed: u64) {
    let mut random = Random::new(seed.rotate_left(16) ^ 0x4AB1_7500);
    load.visits = *random.pick(&[0, 0, 10, 40]);
    load.pipeline = *random.pick(&[1, 1, 1, 3, 16]);
    if load.pipeline > 1 {
        load.amplification = *random.pick(&[3, 8, 20]);
    }
    if let Kind::Mixed(mixed) = &mut load.kind {
        mixed.hot = *random.pick(&[0, 0, 30]);
        mixed.deletes_of_read = *random.pick(&[0, 0, 50]);
        mixed.many_keys = *random.pick(&[5, 5, 20]);
        // Not from the draws of everything else.
        let mut random = Random::new(seed.rotate_left(48) ^ 0x6F6E_6365);
        mixed.once = *random.pick(&[0, 0, 0, 0, 0, 0, 20]);
        mixed.fresh = *Random::new(seed.rotate_left(32) ^ 0x6672_6573).pick(&[0, 0, 0, 20]);
    }
}
