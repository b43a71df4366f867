//! Scenarios as TOML files.
//!
//! ```toml
//! # Site c is cut off from a for a while; b hears both.
//! protocol = "eventual"            # default eventual
//! seed = 1                         # default 1
//! duration = "5s"                  # how long clients and faults go on
//! sites = ["a", "b", "c"]
//! nodes_per_site = 1               # default 1
//! members = 1                      # replicas of each partition at each site, on nodes of their own; default 1
//! partitions = 2                   # default 1
//! keyspaces = 2                    # default 1, at most 9; `mixed` clients are in all of them, others in the first
//! durability = "interval(10ms)"    # fsync (default), interval(TIME) or none
//! parameters = { heartbeat = "50ms", theta = "5ms" } # of protocols that have them (docs/configuration.md); default: theirs
//! clock_bound = "1ms"              # what nodes believe of their clocks
//! clock_offsets = ["0ms", "-1ms"]  # node by node, ahead of true time; those left out are exact
//! clock_spread = "2ms"             # those left out are off by at most so much, either way, as the seed has it
//! clock_drifts_ppm = [0, 50]       # node by node
//! steady_clocks = false            # wall clocks that are set count at once; true (default): as in the server, they are followed slowly
//! cores = 2                        # of each node; 0 (default): work takes no time
//! service = { read = "10us", write = "15us", frame = "10us", kib = "0us" }
//!
//! [network]
//! delay = "40ms"                   # one way, between any two sites but for
//! delays = { "a->c" = "80ms" }
//! jitter = { exponential = "2ms" } # or uniform = TIME, normal = TIME, spikes = TIME (with one_in = 100)
//! bandwidth = 1000000              # bytes per second and direction
//! loss_ppm = 0                     # of a million frames that may be lost
//! give_up = "1s"                   # a connection that is cut in one direction
//!
//! [load]
//! workload = "a"                   # a letter of YCSB, "mixed" (default) or "ping-pong"
//! clients_per_node = 4             # default 2
//! at = ["a", "b"]                  # the nodes that have clients; default: all
//! after = "0ms"                    # clients begin so long after the nodes; default: at once
//! think = "5ms"                    # on average; default 5ms
//! roam_every = 10                  # requests; default: clients stay
//! amplification = 1                # operations of a request
//! pipeline = 1                     # so many of them are open at once
//! errands = 0                      # of a hundred requests that end with a write: the client goes to the next node, and comes back
//! requests = 1000                  # the run ends after so many of all clients; default: after its duration alone
//! read = "eventual"                # levels; default: the keyspace's own
//! write = "eventual"
//!
//! [workload]                       # instead of load.workload: properties of YCSB, as in a file that bench reads
//! read_proportion = 0.8
//! update_proportion = 0.2
//!
//! [load.mixed]                     # instead of load.workload: everything a client can ask, on few keys
//! keys = 20                        # default 20
//! writes = 50                      # of a hundred operations so many write or delete; default 50
//! deletes = 10                     # of a hundred of those so many delete; default 10
//! value_bytes = 100                # the longest value; default 100
//! careless = 0                     # of a hundred reads so many are at level eventual; default 0
//! hot = 0                          # of a hundred operations so many are on one key; default 0
//! deletes_of_read = 0              # of a hundred deletes so many delete what their client has read last; default 0
//! many_keys = 5                    # the most keys that are read at once; default 5
//! once = 0                         # of a hundred operations so many are about pairs of keys that are written once; default 0
//!
//! [load.hot]                       # instead of load.workload: few keys, written in turn, partition after partition
//! keys_per_partition = 1           # default 1
//! value_bytes = 64                 # default 64
//! writers_per_node = 1             # default: all clients; the others read
//! many_percent = 50                # of a hundred reads so many are of several keys; default 0
//! many_keys = 3                    # of so many; default 3
//! apart = 0                        # the partition whose reads of several keys are counted apart; default: none
//!
//! [[fault]]
//! kind = "cut"
//! a = "a"
//! b = "c"
//! at = "1s"                        # after clients have begun
//! for = "2s"
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
//! | `disk-full` | `node`, `free` (the bytes that others leave, default 0) |
//! | `slow-partition` | `partition`, `percent` |
//! | `late` | `node`, `by` |
//!
//! A node is named by its site, with a number where the site has several: `a`, or `a1` and `a2`.
use crate::{Fault, Hot, Jitter, Kind, Load, Mixed, Random, Scenario, Service, Span, WorldOptions};
use serde::Deserialize;
use std::{collections::BTreeMap, ops::Range, str::FromStr};
use toml::Spanned;
use turnbuckle_core::{Micros, ReplicaId, Settings, Value};
use turnbuckle_workload::{Arrival, BadFile, Misplaced, Workload, WorkloadTable};

mod faults;
mod mixed;
use faults::{FaultTable, node_named};
use mixed::{MixedTable, mixed_kind};

/// A scenario from a file, and the protocol that it names.
#[derive(Debug, Clone)]
pub struct ScenarioFile {
    /// The scenario.
    pub scenario: Scenario,
    /// The protocol's name, if the file says one.
    pub protocol: Option<String>,
}

/// A scenario that is a table of another file, not checked yet.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct ScenarioTable(File);

impl ScenarioTable {
    /// The scenario.
    ///
    /// # Errors
    /// What is wrong with it, what was expected, and where in the file's text.
    pub fn check(self, name: &str) -> Result<ScenarioFile, Misplaced> {
        self.0.check(name)
    }
}

/// Something with a place in the text.
type Placed<T> = Option<Spanned<T>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    protocol: Option<String>,
    seed: Option<u64>,
    duration: Placed<String>,
    sites: Spanned<Vec<String>>,
    nodes_per_site: Placed<usize>,
    members: Placed<u16>,
    partitions: Placed<u16>,
    keyspaces: Placed<usize>,
    durability: Placed<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Spanned<ParameterText>>,
    clock_bound: Placed<String>,
    clock_offsets: Option<Vec<Spanned<String>>>,
    clock_spread: Placed<String>,
    clock_drifts_ppm: Option<Vec<i64>>,
    steady_clocks: Option<bool>,
    cores: Placed<usize>,
    service: Option<ServiceTable>,
    network: Option<NetworkTable>,
    load: Option<LoadTable>,
    workload: Option<Spanned<WorkloadTable>>,
    #[serde(default)]
    fault: Vec<Spanned<FaultTable>>,
}

/// What a parameter of a protocol is set to.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a time in quotes, such as \"5ms\", or a whole number")]
enum ParameterText {
    Count(usize),
    Interval(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceTable {
    read: Placed<String>,
    write: Placed<String>,
    frame: Placed<String>,
    kib: Placed<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct NetworkTable {
    delay: Placed<String>,
    delays: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    jitter: Option<Spanned<JitterTable>>,
    bandwidth: Placed<u64>,
    loss_ppm: Placed<u64>,
    give_up: Placed<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JitterTable {
    uniform: Placed<String>,
    exponential: Placed<String>,
    normal: Placed<String>,
    spikes: Placed<String>,
    one_in: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LoadTable {
    workload: Placed<String>,
    clients_per_node: Placed<usize>,
    at: Option<Vec<Spanned<String>>>,
    hot: Option<Spanned<HotTable>>,
    mixed: Option<Spanned<MixedTable>>,
    after: Placed<String>,
    think: Placed<String>,
    roam_every: Placed<u64>,
    amplification: Placed<u64>,
    pipeline: Placed<usize>,
    errands: Placed<u64>,
    requests: Placed<u64>,
    read: Placed<String>,
    write: Placed<String>,
}

impl ScenarioFile {
    /// Reads a scenario.
    ///
    /// # Errors
    /// What is wrong with the text, what was expected, and where.
    pub fn parse(name: &str, text: &str) -> Result<ScenarioFile, BadFile> {
        let file: File = BadFile::parse(text)?;
        file.check(name)
            .map_err(|(place, message)| BadFile::at(text, place, &message))
    }
}

impl File {
    fn check(self, name: &str) -> Result<ScenarioFile, Misplaced> {
        let world = self.world()?;
        let safety = time(&self.duration, "duration")?.unwrap_or(Micros::from_millis(5_000));
        let faults: Result<Vec<Fault>, Misplaced> = self
            .fault
            .iter()
            .map(|fault| fault.get_ref().check(&world, safety))
            .collect();
        Ok(ScenarioFile {
            scenario: Scenario {
                name: name.into(),
                load: self.load.unwrap_or_default().check(&world, self.workload)?,
                safety,
                parameters: settings(&self.parameters)?,
                faults: faults?,
                world,
            },
            protocol: self.protocol,
        })
    }

    fn world(&self) -> Result<WorldOptions, Misplaced> {
        self.check_sites()?;
        let sites = self.sites.get_ref();
        let network = self.network.as_ref();
        let delay = match network {
            Some(network) => time(&network.delay, "delay")?,
            None => None,
        };
        let mut world = WorldOptions::plain(sites.clone(), delay.unwrap_or(Micros::from_millis(40)));
        world.seed = self.seed.unwrap_or(1);
        world.nodes_per_site = at_most(&self.nodes_per_site, "nodes_per_site", 1..17)?.unwrap_or(1);
        self.check_nodes(&world)?;
        let most = ReplicaId::MOST_MEMBERS.min(world.nodes_per_site as u16);
        world.members = at_most(&self.members, "members", 1..most + 1)?.unwrap_or(1);
        world.partitions = at_most(&self.partitions, "partitions", 1..1025)?.unwrap_or(1);
        world.keyspaces = at_most(&self.keyspaces, "keyspaces", 1..10)?.unwrap_or(1);
        if let Some(durability) = &self.durability {
            world.durability = parsed(durability, "durability")?;
        }
        self.clocks(&mut world)?;
        world.steady_clocks = self.steady_clocks.unwrap_or(true);
        world.cores = at_most(&self.cores, "cores", 0..1025)?.unwrap_or(0);
        if let Some(service) = &self.service {
            let usual = Service::default();
            world.service = Service {
                read: time(&service.read, "service.read")?.unwrap_or(usual.read),
                write: time(&service.write, "service.write")?.unwrap_or(usual.write),
                frame: time(&service.frame, "service.frame")?.unwrap_or(usual.frame),
                kib: time(&service.kib, "service.kib")?.unwrap_or(usual.kib),
            };
        }
        if let Some(network) = network {
            network.apply(&mut world)?;
        }
        Ok(world)
    }

    fn check_sites(&self) -> Result<(), Misplaced> {
        const MOST_SITES: usize = 64;
        let sites = self.sites.get_ref();
        let wrong = |message: String| Err((self.sites.span(), message));
        if sites.is_empty() || sites.len() > MOST_SITES {
            return wrong(format!(
                "sites: {}; expected 1 to {MOST_SITES} names",
                sites.len()
            ));
        }
        for (place, site) in sites.iter().enumerate() {
            let is_name = !site.is_empty() && site.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            if !is_name {
                return wrong(format!("sites: '{site}'; expected letters, digits and dashes"));
            }
            if sites[..place].contains(site) {
                return wrong(format!("sites: '{site}' twice; expected different names"));
            }
        }
        Ok(())
    }

    fn check_nodes(&self, world: &WorldOptions) -> Result<(), Misplaced> {
        const MOST_NODES: usize = 64;
        let count = world.sites.len() * world.nodes_per_site;
        match (&self.nodes_per_site, count > MOST_NODES) {
            (Some(given), true) => Err((
                given.span(),
                format!("nodes_per_site: {count} nodes in all; expected at most {MOST_NODES}"),
            )),
            _ => Ok(()),
        }
    }

    fn clocks(&self, world: &mut WorldOptions) -> Result<(), Misplaced> {
        if let Some(bound) = time(&self.clock_bound, "clock_bound")? {
            world.clock_bound = bound;
        }
        for offset in self.clock_offsets.iter().flatten() {
            world.clock_offsets_us.push(signed(offset, "clock_offsets")?);
        }
        if let Some(spread) = time(&self.clock_spread, "clock_spread")? {
            spread_clocks(world, spread);
        }
        world.clock_drifts_ppm = self.clock_drifts_ppm.clone().unwrap_or_default();
        Ok(())
    }
}

impl NetworkTable {
    fn apply(&self, world: &mut WorldOptions) -> Result<(), Misplaced> {
        for (way, delay) in self.delays.iter().flatten() {
            let ends = way.get_ref().split_once("->").and_then(|(from, to)| {
                let place = |name: &str| world.sites.iter().position(|site| site == name.trim());
                Some((place(from)?, place(to)?))
            });
            let Some((from, to)) = ends else {
                let message = format!(
                    "delays: '{}'; expected two sites, such as \"a->b\"",
                    way.get_ref()
                );
                return Err((way.span(), message));
            };
            world.delays[from][to] = parsed(delay, "delays")?;
        }
        if let Some(jitter) = &self.jitter {
            world.jitter = jitter.get_ref().check(jitter.span())?;
        }
        world.bandwidth = at_most(&self.bandwidth, "bandwidth", 1..u64::MAX)?;
        world.loss_ppm = at_most(&self.loss_ppm, "loss_ppm", 0..1_000_001)?.unwrap_or(0);
        if let Some(give_up) = time(&self.give_up, "give_up")? {
            world.give_up = Span::fixed(give_up);
        }
        Ok(())
    }
}

impl JitterTable {
    fn check(&self, place: Range<usize>) -> Result<Jitter, Misplaced> {
        let uniform = time(&self.uniform, "uniform")?.map(Jitter::Uniform);
        let exponential = time(&self.exponential, "exponential")?.map(Jitter::Exponential);
        let normal = time(&self.normal, "normal")?.map(Jitter::Normal);
        let one_in = self.one_in.unwrap_or(100).max(1);
        let spikes = time(&self.spikes, "spikes")?.map(|by| Jitter::Spikes { one_in, by });
        let mut given = [uniform, exponential, normal, spikes].into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(jitter), None) => Ok(jitter),
            _ => Err((
                place,
                "jitter: expected one of uniform, exponential, normal and spikes".into(),
            )),
        }
    }
}

impl LoadTable {
    fn check(self, world: &WorldOptions, table: Option<Spanned<WorkloadTable>>) -> Result<Load, Misplaced> {
        let think = time(&self.think, "think")?.unwrap_or(Micros::from_millis(5));
        let level = |given: &Placed<String>, name| match given {
            Some(given) => parsed(given, name).map(Some),
            None => Ok(None),
        };
        let clients_per_node = at_most(&self.clients_per_node, "clients_per_node", 1..151)?.unwrap_or(2);
        let at = self.at.iter().flatten();
        Ok(Load {
            clients_per_node,
            at: at
                .map(|node| node_named(world, node, "at"))
                .collect::<Result<_, _>>()?,
            think: Span {
                least: Micros(0),
                most: Micros(think.0.saturating_mul(2)),
            },
            roam_every: at_most(&self.roam_every, "roam_every", 1..u64::MAX)?,
            amplification: at_most(&self.amplification, "amplification", 1..10_001)?.unwrap_or(1),
            pipeline: at_most(&self.pipeline, "pipeline", 1..10_001)?.unwrap_or(1),
            errands: at_most(&self.errands, "errands", 0..101)?.unwrap_or(0),
            after: time(&self.after, "after")?.unwrap_or(Micros(0)),
            requests: at_most(&self.requests, "requests", 1..u64::MAX)?,
            read: level(&self.read, "read")?,
            write: level(&self.write, "write")?,
            kind: match (self.hot, self.mixed) {
                (Some(hot), None) => hot_kind(&hot, world, clients_per_node, self.workload, table)?,
                (None, Some(mixed)) => mixed_kind(&mixed, self.workload, table)?,
                (None, None) => kind(self.workload, table)?,
                (Some(hot), Some(_)) => {
                    let message = "hot: there is a table [load.mixed], too; expected one of them";
                    return Err((hot.span(), message.into()));
                }
            },
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HotTable {
    keys_per_partition: Placed<u64>,
    value_bytes: Placed<u64>,
    writers_per_node: Placed<usize>,
    many_percent: Placed<u64>,
    many_keys: Placed<u64>,
    apart: Placed<u16>,
}

/// Few keys in each partition.
fn hot_kind(
    table: &Spanned<HotTable>,
    world: &WorldOptions,
    clients_per_node: usize,
    name: Placed<String>,
    workload: Option<Spanned<WorkloadTable>>,
) -> Result<Kind, Misplaced> {
    if name.is_some() || workload.is_some() {
        let message = "hot: there is a workload, too; expected one of them";
        return Err((table.span(), message.into()));
    }
    let hot = table.get_ref();
    let partitions = u64::from(world.partitions);
    let keys = at_most(&hot.keys_per_partition, "keys_per_partition", 1..1_001)?.unwrap_or(1);
    let all = keys * partitions;
    let writers = at_most(&hot.writers_per_node, "writers_per_node", 0..clients_per_node + 1)?;
    Ok(Kind::Hot(Hot {
        keys_per_partition: keys,
        value_bytes: at_most(&hot.value_bytes, "value_bytes", 1..1_000_001)?.unwrap_or(64),
        writers_per_node: writers.unwrap_or(clients_per_node),
        many_percent: at_most(&hot.many_percent, "many_percent", 0..101)?.unwrap_or(0),
        many_keys: at_most(&hot.many_keys, "many_keys", 1..all + 1)?.unwrap_or(all.min(3)),
        apart: at_most(&hot.apart, "apart", 0..world.partitions)?,
    }))
}

/// Clocks that nobody has set are off by something.
fn spread_clocks(world: &mut WorldOptions, spread: Micros) {
    // Not the world's own draws.
    let mut random = Random::new(world.seed ^ 0xC10C);
    let most = spread.0.min(1 << 40);
    for _ in world.clock_offsets_us.len()..world.sites.len() * world.nodes_per_site {
        let drawn = random.below(2 * most + 1) as i64 - most as i64;
        world.clock_offsets_us.push(drawn);
    }
}

fn kind(name: Placed<String>, table: Option<Spanned<WorkloadTable>>) -> Result<Kind, Misplaced> {
    let workload = match (name, table) {
        (None, None) => return Ok(Kind::Mixed(Mixed::default())),
        (None, Some(table)) => {
            let place = table.span();
            let workload = table.into_inner().check()?;
            check_size(&workload).map_err(|message| (place, message))?;
            workload
        }
        (Some(name), Some(_)) => {
            let message = "workload: there is a table [workload], too; expected one of them";
            return Err((name.span(), message.into()));
        }
        (Some(name), None) => match name.get_ref().as_str() {
            "mixed" => return Ok(Kind::Mixed(Mixed::default())),
            "ping-pong" => return Ok(Kind::PingPong),
            letter => Workload::core(letter)
                .map_err(|error| (name.span(), format!("workload: {error}, mixed or ping-pong")))?,
        },
    };
    Ok(Kind::Workload {
        workload: Box::new(workload),
        load: true,
    })
}

/// A world is in memory.
fn check_size(workload: &Workload) -> Result<(), String> {
    const MOST_RECORDS: u64 = 10_000_000;
    const MOST_A_SECOND: f64 = 10_000_000.0;
    let records = workload.records.get();
    if records > MOST_RECORDS {
        return Err(format!(
            "record_count: {records}; expected at most {MOST_RECORDS} in a world in memory"
        ));
    }
    match workload.arrival {
        Arrival::Open { rate, .. } if rate.per_second() > MOST_A_SECOND => Err(format!(
            "target: {}; expected at most {MOST_A_SECOND} operations a second",
            rate.per_second()
        )),
        _ => Ok(()),
    }
}

fn given<T: Copy>(placed: &Placed<T>) -> Option<T> {
    placed.as_ref().map(|placed| *placed.get_ref())
}

fn span<T>(placed: &Placed<T>) -> Option<Range<usize>> {
    placed.as_ref().map(Spanned::span)
}

fn parsed<T>(given: &Spanned<String>, name: &str) -> Result<T, Misplaced>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    given
        .get_ref()
        .parse()
        .map_err(|error| (given.span(), format!("{name}: '{}': {error}", given.get_ref())))
}

fn time(given: &Placed<String>, name: &str) -> Result<Option<Micros>, Misplaced> {
    given.as_ref().map(|given| parsed(given, name)).transpose()
}

/// What protocols are set to. A file may be for several of them: whether each of these is a parameter of one is for those who know them.
fn settings(given: &BTreeMap<String, Spanned<ParameterText>>) -> Result<Settings, Misplaced> {
    let mut settings = Settings::default();
    for (name, given) in given {
        let value = match given.get_ref() {
            ParameterText::Count(count) => Value::Count(*count),
            ParameterText::Interval(text) => match text.parse() {
                Ok(Micros(0)) => Err((
                    given.span(),
                    format!("{name}: 0; expected some time, such as 5ms"),
                )),
                Ok(interval) => Ok(Value::Interval(interval)),
                Err(error) => Err((given.span(), format!("{name}: '{text}': {error}"))),
            }?,
        };
        settings.set(name, value);
    }
    Ok(settings)
}

/// A time that may be negative, in microseconds.
fn signed(given: &Spanned<String>, name: &str) -> Result<i64, Misplaced> {
    let (sign, rest) = match given.get_ref().strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, given.get_ref().as_str()),
    };
    let span: Micros = rest
        .parse()
        .map_err(|error| (given.span(), format!("{name}: '{}': {error}", given.get_ref())))?;
    Ok(sign * i64::try_from(span.0).unwrap_or(i64::MAX))
}

fn at_most<T>(given: &Placed<T>, name: &str, range: Range<T>) -> Result<Option<T>, Misplaced>
where
    T: Copy + PartialOrd + std::fmt::Display,
{
    match given {
        Some(given) if !range.contains(given.get_ref()) => Err((
            given.span(),
            format!(
                "{name}: {}; expected {} to less than {}",
                given.get_ref(),
                range.start,
                range.end
            ),
        )),
        _ => Ok(given.as_ref().map(|given| *given.get_ref())),
    }
}
