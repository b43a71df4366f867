//! Looks at all nodes a few times a second: how much they have handed on, how much memory they take, and whether they still run.
use crate::{
    cluster::{Cluster, NODES, PARTITIONS, SITES, Start, lock, node_name, nodes_of, site_of},
    recorder::Recorder,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use turnbuckle_server::status::Status;

/// How often nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The beginning of the last words of a node whose engine takes no more writes.
const BROKEN_ENGINE: &str = "the storage engine takes no more writes";

/// A node may acknowledge a write a little before its stream counts it. This is the allowance for that.
const SLACK_NS: i64 = 500_000_000;

/// What was seen of the nodes.
#[derive(Default)]
pub struct Watch {
    /// For each node and each other site: the latest time up to which everything that the node had acknowledged was at that site.
    handed_on_ns: Mutex<[[i64; SITES.len()]; NODES]>,
    /// Nodes that ended by themselves, each with the last lines of its log.
    ended: Mutex<Vec<String>>,
    /// Nodes that ended because their engine met the damage in their directory. They are to be started again.
    met_damage: Mutex<BTreeSet<usize>>,
    /// The number of times that this happened.
    damage_met: AtomicU64,
    /// The number of full copies put in place, by node: in lives that are over, and in this one.
    copies: Mutex<BTreeMap<usize, (u64, u64)>>,
}

impl Watch {
    /// Looks at one node until it is told to stop. Each node has a thread of its own, because a node that is paused answers late.
    pub fn run(&self, cluster: &Cluster, recorder: &Recorder, node: usize, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.look(cluster, recorder, node);
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    fn look(&self, cluster: &Cluster, recorder: &Recorder, node: usize) {
        if let Some(words) = cluster.ended_by_itself(node) {
            match cluster.is_damaged(node) && words.contains(BROKEN_ENGINE) {
                true => {
                    self.damage_met.fetch_add(1, Ordering::Relaxed);
                    lock(&self.met_damage).insert(node);
                }
                false => lock(&self.ended).push(format!("{} ended by itself: {words}", node_name(node))),
            }
        }
        self.start_again(cluster, node);
        cluster.note_memory(node);
        let begun_ns = recorder.now_ns();
        let Some(status) = cluster.status(node) else {
            return;
        };
        self.note_copies(node, status.copies_received_total);
        for site in (0..SITES.len()).filter(|&site| site != site_of(node)) {
            if let Some(lag_ns) = lag_ns(&status, site) {
                let known = &mut lock(&self.handed_on_ns)[node][site];
                *known = (*known).max(begun_ns - lag_ns - SLACK_NS);
            }
        }
    }

    /// Starts a node again whose engine met the damage in its directory, as its error asks for, once no fault has claimed it.
    fn start_again(&self, cluster: &Cluster, node: usize) {
        if !lock(&self.met_damage).contains(&node) || !cluster.claim(node) {
            return;
        }
        // The fault that had claimed the node may have started it.
        if !cluster.is_wanted(node) {
            let started = cluster.start(node);
            if !matches!(started, Ok(Start::Ready)) {
                let name = node_name(node);
                lock(&self.ended).push(format!(
                    "{name} met damage, ended, and did not start again: {started:?}"
                ));
            }
        }
        lock(&self.met_damage).remove(&node);
        cluster.release(node);
    }

    fn note_copies(&self, node: usize, now: u64) {
        let mut copies = lock(&self.copies);
        let (before, last) = copies.entry(node).or_default();
        if now < *last {
            *before += *last;
        }
        *last = now;
    }

    /// The time up to which everything that a node had acknowledged was at some other site.
    pub fn handed_on_ns(&self, node: usize) -> i64 {
        let sites = lock(&self.handed_on_ns)[node];
        sites.into_iter().max().unwrap_or(0)
    }

    /// Whether a node has handed on everything from before this time to all other sites, and has everything from before it from them.
    pub fn is_whole(&self, node: usize, since_ns: i64) -> bool {
        let handed_on_ns = *lock(&self.handed_on_ns);
        let home = site_of(node);
        let others = || (0..SITES.len()).filter(|&site| site != home);
        others().all(|site| handed_on_ns[node][site] >= since_ns)
            && others()
                .flat_map(nodes_of)
                .all(|from| handed_on_ns[from][home] >= since_ns)
    }

    /// Takes the nodes that ended by themselves since the last call, with the last lines of their logs.
    pub fn take_ended(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.ended))
    }

    /// How many times a node ended because its engine met damage, and was started again.
    pub fn damage_met(&self) -> u64 {
        self.damage_met.load(Ordering::Relaxed)
    }

    /// The number of full copies that were put in place, as far as they were seen.
    pub fn copies(&self) -> u64 {
        lock(&self.copies)
            .values()
            .map(|(before, last)| before + last)
            .sum()
    }
}

/// How far the streams to a site are behind, in nanoseconds. `None` if one of them does not run.
fn lag_ns(status: &Status, site: usize) -> Option<i64> {
    let to_site = status.streams.iter().filter(|stream| stream.to == SITES[site]);
    let lags =
        to_site.map(|stream| (stream.state == "streaming").then_some((stream.lag_seconds * 1e9) as i64));
    lags.collect::<Option<Vec<i64>>>()?.into_iter().max()
}

/// The reason why the cluster is not at rest. `None` if it is: every node serves, is linked with all others, and has handed on everything,
/// nothing waits and nothing is hidden.
pub fn unrest(cluster: &Cluster) -> Option<String> {
    let expected =
        cluster.keyspaces().len() * usize::from(PARTITIONS) / nodes_of(0).len() * (SITES.len() - 1);
    for node in 0..NODES {
        let name = node_name(node);
        let Some(status) = cluster.status(node) else {
            return Some(format!("{name} does not answer"));
        };
        if let Some(link) = status.links.iter().find(|link| !link.up) {
            let why = link.reason.as_deref().unwrap_or("no reason");
            return Some(format!("{name} has no link to {}: {why}", link.peer));
        }
        if status.streams.len() != expected {
            let found = status.streams.len();
            return Some(format!("{name} has {found} streams of {expected}"));
        }
        let busy = |stream: &&turnbuckle_server::status::StreamStatus| {
            stream.state != "streaming" || stream.lag_entries > 0
        };
        if let Some(stream) = status.streams.iter().find(busy) {
            return Some(format!(
                "{name}: {} of partition {} to {}: {}, {} entries behind",
                stream.keyspace, stream.partition, stream.to, stream.state, stream.lag_entries
            ));
        }
        let waits = |keyspace: &&turnbuckle_server::status::KeyspaceStatus| {
            keyspace.parked_operations + keyspace.count("hidden_versions") > 0
        };
        if let Some(keyspace) = status.keyspaces.iter().find(waits) {
            return Some(format!(
                "{name}: {} has {} operations that wait and {} versions hidden",
                keyspace.name,
                keyspace.parked_operations,
                keyspace.count("hidden_versions")
            ));
        }
        if let Ok(Err(why)) = cluster.admin(node).readiness() {
            return Some(format!("{name} is not ready: {why}"));
        }
    }
    None
}
