//! Scenarios as TOML files.
//!
//! ```toml
//! # Site c is cut off from a for a while; b hears both.
//! protocol = "eventual"            # default eventual
//! seed = 1                         # default 1
//! duration = "5s"                  # how long clients and faults go on
//! sites = ["a", "b", "c"]
//! nodes_per_site = 1               # default 1
//! members = 1                      # replicas of each partition at each site, on nodes of their own: one number, or { a = 2, b = 1 }; default 1
//! partitions = 2                   # default 1
//! keyspaces = 2                    # default 1, at most 9; `mixed` clients are in all of them, others in the first
//! durability = "interval(10ms)"    # fsync (default), interval(TIME) or none
//! sync = "1ms"                     # how long a disk takes to sync; default 1ms
//! parameters = { heartbeat = "50ms", theta = "5ms" } # of protocols that have them (docs/configuration.md); default: theirs
//! clock_bound = "1ms"              # how far the nodes assume that clocks are off at most
//! clock_offsets = ["0ms", "-1ms"]  # node by node, ahead of true time; those left out are exact
//! clock_spread = "2ms"             # the most by which the clocks that are left out are off, ahead or back; drawn from the seed
//! clock_drifts_ppm = [0, 50]       # node by node
//! steady_clocks = false            # wall clocks that are set count at once; true (default): as in the server, nodes follow them slowly
//! cores = 2                        # of each node; 0 (default): work takes no time
//! service = { read = "10us", write = "15us", frame = "10us", kib = "0us" }
//!
//! [network]
//! delay = "40ms"                   # one way, between any two sites except for
//! delays = { "a->c" = "80ms" }
//! jitter = { exponential = "2ms" } # or uniform = TIME, normal = TIME, spikes = { by = TIME, one_in = 100 }
//! bandwidth = 1000000              # bytes per second and direction
//! loss_ppm = 0                     # of a million frames that may be lost
//! give_up = "1s"                   # a connection that is cut in one direction
//!
//! [load]
//! workload = "a"                   # a letter of YCSB, "mixed" (default) or "ping-pong"
//! clients_per_node = 4             # default 2
//! at = ["a", "b"]                  # the nodes that have clients; default: all
//! after = "0ms"                    # how long after the nodes clients begin; default: at once
//! think = "5ms"                    # on average; default 5ms
//! roam_every = 10                  # requests; default: clients stay
//! amplification = 1                # operations of a request
//! pipeline = 1                     # the most operations of a request that are open at once
//! away = 0                         # of a hundred requests, how many a client makes at a node of another site
//! visits = 0                       # of a hundred requests that end with a write, how many are followed by a visit to the next node
//! requests = 1000                  # the run ends after this number of requests of all clients; default: only after its duration
//! read = "eventual"                # levels; default: the keyspace's own
//! write = "eventual"
//!
//! [workload]                       # instead of load.workload: properties of YCSB, as in a file that bench reads
//! read_proportion = 0.8
//! update_proportion = 0.2
//!
//! [load.mixed]                     # instead of load.workload: everything a client can ask, on few keys
//! keys = 20                        # default 20
//! writes = 50                      # percentage of operations that write or delete; default 50
//! deletes = 10                     # percentage of those that delete; default 10
//! value_bytes = 100                # the longest value; default 100
//! careless = 0                     # percentage of reads at level eventual; default 0
//! fresh = 0                        # percentage of reads at level bounded(t), for different t; default 0
//! hot = 0                          # percentage of operations on one key; default 0
//! deletes_of_read = 0              # percentage of deletes of the key that their client has read last; default 0
//! many_keys = 5                    # the most keys that are read at once; default 5
//! once = 0                         # percentage of operations on pairs of keys that are written once; default 0
//!
//! [load.hot]                       # instead of load.workload: few keys, written in turn, partition after partition
//! keys_per_partition = 1           # default 1
//! value_bytes = 64                 # default 64
//! writers_per_node = 1             # default: all clients; the others read
//! many_percent = 50                # percentage of reads that are of several keys; default 0
//! many_keys = 3                    # how many keys those read; default 3
//! apart = 0                        # the partition whose reads of several keys are counted apart; default: none
//!
//! [[fault]]
//! kind = "cut"
//! a = "a"
//! b = "c"
//! at = "1s"                        # after clients have begun
//! for = "2s"
//! every = "10s"                    # once more after this time, until the run ends; default: only once
//! ```
//!
//! | kind | takes |
//! |---|---|
//! | `crash` | `node`, `loss`: `process` (the default), `power`, `lost` (an empty data directory) or `old` (the last copy of it) |
//! | `crash-within-write` | `node`, `changes` (0) |
//! | `crash-all` | `loss` |
//! | `cut` | `a`, `b` |
//! | `one-way-cut` | `from`, `to` |
//! | `isolate` | `node` |
//! | `slow-link` | `from`, `to`, `percent` |
//! | `loss` | `from`, `to`, `ppm` |
//! | `pause` | `node` |
//! | `clock-step`, `clock-jump` | `node`, `by` (may be negative); a jump is right again when a process starts there |
//! | `clock-drift` | `node`, `ppm` (may be negative) |
//! | `slow-disk` | `node`, `percent` |
//! | `sync-fails`, `checkpoint`, `backup` | `node` |
//! | `disk-full` | `node`, `free` (the bytes that other files leave, default 0) |
//! | `slow-partition` | `partition`, `percent` |
//! | `late` | `node`, `by` |
//!
//! A node is named by its site, with a number where the site has several: `a`, or `a1` and `a2`.
use crate::{Kind, LevelMix, Load, Mixed, Random, Scenario, Service, Span, WorldOptions};
use serde::Deserialize;
use std::{collections::BTreeMap, ops::Range};
use toml::Spanned;
use turnbuckle_core::{Level, Members, Micros, ReplicaId, Settings, Value};
use turnbuckle_document::{ByName, Document, Misplaced, Name, Number, Tagged, Word, WrongFile, quote};
use turnbuckle_node::Durability;
use turnbuckle_workload::WorkloadTable;

mod faults;
use faults::{FaultTable, node_named};
mod kinds;
use kinds::{HotTable, NamedKind, workload_kind};
mod offset;
pub use offset::Offset;
pub(crate) use offset::offset_us;

/// A scenario from a file, and the protocol that it names.
#[derive(Debug, Clone)]
pub struct ScenarioFile {
    /// The scenario.
    pub scenario: Scenario,
    /// The protocol's name, if the file says one.
    pub protocol: Option<String>,
}

/// A scenario as it is written in a file, or in a table of one. It is not checked yet.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct ScenarioTable(Spanned<File>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    protocol: Option<String>,
    seed: Option<u64>,
    duration: Option<Word<Micros>>,
    #[serde(default)]
    sites: Vec<Word<Name>>,
    nodes_per_site: Option<Number<1, 16>>,
    members: Option<ByName>,
    partitions: Option<Number<1, 1_024>>,
    keyspaces: Option<Number<1, 9>>,
    durability: Option<Word<Durability>>,
    sync: Option<Word<Micros>>,
    #[serde(default)]
    parameters: BTreeMap<String, Parameter>,
    clock_bound: Option<Word<Micros>>,
    #[serde(default)]
    clock_offsets: Vec<Word<Offset>>,
    clock_spread: Option<Word<Micros>>,
    #[serde(default)]
    clock_drifts_ppm: Vec<i64>,
    steady_clocks: Option<bool>,
    cores: Option<Number<0, 1_024>>,
    #[serde(default)]
    service: Service,
    #[serde(default)]
    network: NetworkTable,
    #[serde(default)]
    load: LoadTable,
    workload: Option<Spanned<WorkloadTable>>,
    #[serde(default)]
    fault: Vec<FaultTable>,
}

/// The value of a protocol's parameter. A file may be for several protocols. So the caller, which knows the protocols, must check whether
/// one of them has such a parameter.
#[derive(Deserialize)]
#[serde(try_from = "toml::Value")]
struct Parameter(Value);

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct NetworkTable {
    delay: Option<Word<Micros>>,
    delays: BTreeMap<Spanned<String>, Word<Micros>>,
    jitter: Option<crate::Jitter>,
    bandwidth: Option<Number<1>>,
    loss_ppm: Option<Number<0, 1_000_000>>,
    give_up: Option<Word<Micros>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct LoadTable {
    workload: Option<Word<NamedKind>>,
    clients_per_node: Option<Number<1, 150>>,
    at: Vec<Word<String>>,
    hot: Option<Spanned<HotTable>>,
    mixed: Option<Spanned<Mixed>>,
    after: Option<Word<Micros>>,
    think: Option<Word<Micros>>,
    roam_every: Option<Number<1>>,
    amplification: Option<Number<1, 10_000>>,
    pipeline: Option<Number<1, 10_000>>,
    visits: Option<Number<0, 100>>,
    away: Option<Number<0, 100>>,
    requests: Option<Number<1>>,
    read: Option<Word<Level>>,
    read_mix: Option<Word<LevelMix>>,
    write: Option<Word<Level>>,
}

impl ScenarioFile {
    /// Reads a scenario. Its name is that of its file.
    ///
    /// # Errors
    /// What is wrong with the file, what was expected, and where.
    pub fn read(document: &Document<'_>) -> Result<ScenarioFile, WrongFile> {
        let table: ScenarioTable = document.decode_tagged(ScenarioTable::FAULTS)?;
        let name = document.file().file_stem().unwrap_or_default().to_string_lossy();
        table.check(&name).map_err(|wrong| document.report(wrong))
    }
}

impl ScenarioTable {
    /// How to decode a document that contains a scenario.
    pub const FAULTS: Tagged = Tagged {
        list: "fault",
        tag: "kind",
        shared: &["at", "for", "every"],
    };

    /// Checks the table, and makes the scenario.
    ///
    /// # Errors
    /// What is wrong with it, what was expected, and where in the file's text.
    pub fn check(self, name: &str) -> Result<ScenarioFile, Misplaced> {
        let place = self.0.span();
        let mut file = self.0.into_inner();
        let world = file.world(&place)?;
        let safety = file.duration.map_or(Micros::from_millis(5_000), Word::get);
        let mut faults = Vec::new();
        for fault in file.fault {
            faults.extend(fault.check(&world, safety)?);
        }
        let mut parameters = Settings::default();
        for (name, Parameter(value)) in file.parameters {
            parameters.set(name, value);
        }
        Ok(ScenarioFile {
            scenario: Scenario {
                name: name.into(),
                safety,
                parameters,
                faults,
                load: file.load.check(&world, file.workload)?,
                world,
            },
            protocol: file.protocol,
        })
    }
}

impl File {
    fn world(&mut self, place: &Range<usize>) -> Result<WorldOptions, Misplaced> {
        let sites = self.sites(place)?;
        let delay = self.network.delay.take();
        let mut world = WorldOptions::plain(sites, delay.map_or(Micros::from_millis(40), Word::get));
        world.seed = self.seed.unwrap_or(1);
        self.nodes(&mut world)?;
        world.partitions = self.partitions.as_ref().map_or(1, |count| **count as u16);
        world.keyspaces = self.keyspaces.as_ref().map_or(1, |count| **count as usize);
        world.durability = self.durability.as_deref().copied().unwrap_or(world.durability);
        world.sync = self.sync.as_ref().map_or(world.sync, |time| Span::fixed(**time));
        self.clocks(&mut world);
        world.cores = self.cores.as_ref().map_or(0, |count| **count as usize);
        world.service = self.service;
        std::mem::take(&mut self.network).apply(&mut world)?;
        Ok(world)
    }

    fn sites(&self, place: &Range<usize>) -> Result<Vec<String>, Misplaced> {
        const MAX_SITES: usize = 64;
        let expected = || format!("1 to {MAX_SITES} names of sites");
        match self.sites.len() {
            0 => return Err(Misplaced::missing(place.clone(), "sites", expected())),
            1..=MAX_SITES => {}
            many => {
                let found = format!("{many} sites");
                return Err(Misplaced::of_field(place.clone(), &["sites"], found, expected()));
            }
        }
        for (place, site) in self.sites.iter().enumerate() {
            if self.sites[..place]
                .iter()
                .any(|other| other.text() == site.text())
            {
                return Err(site.wrong("a name that no other site has"));
            }
        }
        Ok(self.sites.iter().map(|site| site.text().to_string()).collect())
    }

    fn nodes(&mut self, world: &mut WorldOptions) -> Result<(), Misplaced> {
        const MAX_NODES: u64 = 64;
        let max = MAX_NODES / world.sites.len() as u64;
        let nodes = self.nodes_per_site.take().map(|count| count.within(1..=max));
        world.nodes_per_site = nodes.transpose()?.unwrap_or(1) as usize;
        let max = u64::from(ReplicaId::MAX_MEMBERS).min(world.nodes_per_site as u64);
        let Some(members) = self.members.take() else {
            return Ok(());
        };
        let counts = members.of("site", world.sites.iter().map(String::as_str))?;
        let numbers: Option<Vec<u16>> = counts
            .iter()
            .map(|&count| u16::try_from(count).ok().filter(|_| count <= max))
            .collect();
        let found = numbers.and_then(|numbers| Members::of(&numbers));
        let expected =
            || format!("a whole number from 1 to {max}, or one for each site, of which some may be 0");
        world.members = found.ok_or_else(|| members.wrong(expected()))?;
        Ok(())
    }

    fn clocks(&self, world: &mut WorldOptions) {
        world.clock_bound = self.clock_bound.as_deref().copied().unwrap_or(world.clock_bound);
        let offsets = self.clock_offsets.iter().map(|offset| offset.0);
        world.clock_offsets_us = offsets.collect();
        if let Some(spread) = &self.clock_spread {
            spread_clocks(world, **spread);
        }
        world.clock_drifts_ppm.clone_from(&self.clock_drifts_ppm);
        world.steady_clocks = self.steady_clocks.unwrap_or(true);
    }
}

impl NetworkTable {
    fn apply(self, world: &mut WorldOptions) -> Result<(), Misplaced> {
        for (way, delay) in self.delays {
            let ends = way.get_ref().split_once("->").and_then(|(from, to)| {
                let place = |name: &str| world.sites.iter().position(|site| site == name.trim());
                Some((place(from)?, place(to)?))
            });
            let expected = "two sites, such as \"a->b\"";
            let (from, to) = ends.ok_or_else(|| Misplaced::at(way.span(), quote(way.get_ref()), expected))?;
            world.delays[from][to] = delay.get();
        }
        world.jitter = self.jitter.unwrap_or(world.jitter);
        world.bandwidth = self.bandwidth.map(Number::get);
        world.loss_ppm = self.loss_ppm.map_or(0, Number::get);
        if let Some(give_up) = self.give_up {
            world.give_up = Span::fixed(give_up.get());
        }
        Ok(())
    }
}

impl LoadTable {
    fn check(
        mut self,
        world: &WorldOptions,
        table: Option<Spanned<WorkloadTable>>,
    ) -> Result<Load, Misplaced> {
        let clients_per_node = self.clients_per_node.take().map_or(2, Number::get);
        let think = self.think.take().map_or(Micros::from_millis(5), Word::get);
        let at = self.at.iter().map(|node| node_named(world, node));
        Ok(Load {
            clients_per_node: clients_per_node as usize,
            at: at.collect::<Result<_, _>>()?,
            kind: self.kind(world, clients_per_node, table)?,
            think: Span {
                min: Micros(0),
                max: Micros(think.0.saturating_mul(2)),
            },
            roam_every: self.roam_every.map(Number::get),
            amplification: self.amplification.map_or(1, Number::get),
            pipeline: self.pipeline.map_or(1, Number::get) as usize,
            visits: self.visits.map_or(0, Number::get),
            away: self.away.map_or(0, Number::get),
            after: self.after.map_or(Micros(0), Word::get),
            requests: self.requests.map(Number::get),
            read: self.read.map(Word::get),
            read_mix: self.read_mix.map(Word::get),
            write: self.write.map(Word::get),
        })
    }

    /// What clients do. At most one place of the file may say it.
    fn kind(
        &mut self,
        world: &WorldOptions,
        clients: u64,
        table: Option<Spanned<WorkloadTable>>,
    ) -> Result<Kind, Misplaced> {
        match (self.workload.take(), table, self.hot.take(), self.mixed.take()) {
            (None, None, None, None) => Ok(Kind::Mixed(Mixed::default())),
            (Some(name), None, None, None) => Ok(name.get().0),
            (None, Some(table), None, None) => workload_kind(table),
            (None, None, Some(hot), None) => hot.into_inner().kind(world, clients),
            (None, None, None, Some(mixed)) => Ok(Kind::Mixed(mixed.into_inner())),
            (name, table, hot, mixed) => {
                let name = name.map(|name| name.place());
                let tables = [
                    table.map(|it| it.span()),
                    hot.map(|it| it.span()),
                    mixed.map(|it| it.span()),
                ];
                let places = name.into_iter().chain(tables.into_iter().flatten());
                let found = "more than one of them";
                let expected = "one of load.workload, load.hot, load.mixed and workload";
                Err(Misplaced::at(places.last().unwrap_or_default(), found, expected))
            }
        }
    }
}

impl TryFrom<toml::Value> for Parameter {
    type Error = String;

    fn try_from(given: toml::Value) -> Result<Parameter, String> {
        let value = match &given {
            toml::Value::Integer(number) => usize::try_from(*number).ok().map(Value::Count),
            toml::Value::String(text) => {
                let time = text.parse().ok().filter(|time| *time > Micros(0));
                time.map(Value::Interval)
            }
            _ => None,
        };
        let expected = "a time in quotes, such as \"5ms\", or a whole number";
        value
            .map(Parameter)
            .ok_or_else(|| format!("{given}, expected {expected}"))
    }
}

/// Sets the offsets of the clocks that the file does not name to drawn values.
fn spread_clocks(world: &mut WorldOptions, spread: Micros) {
    // Not from the world's own draws.
    let mut random = Random::new(world.seed ^ 0xC10C);
    let max = spread.0.min(1 << 40);
    for _ in world.clock_offsets_us.len()..world.sites.len() * world.nodes_per_site {
        let drawn = random.below(2 * max + 1) as i64 - max as i64;
        world.clock_offsets_us.push(drawn);
    }
}
