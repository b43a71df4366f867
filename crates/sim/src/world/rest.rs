//! Detects when a world has come to rest, and compares what its sites have then.
use super::{LOOK_EVERY, name_of};
use crate::{Rule, World, keyspaces::keyspace_of, machine::Worker};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{
    Answer, Answered, Hlc, Key, Level, Micros, Operation, Protocol, Replication, Session, VersionId,
};
use turnbuckle_node::{KeyspaceStatus, NodeId, StreamStatus};

/// The state of a stream to a site whose node does not have the keyspace.
pub(super) const LEFT_OUT: &str = "left-out";

/// The most keys that are read at the same time when sites are compared.
const MAX_OPEN_SURVEYS: u64 = 32;
/// How often an operation that needs other replicas is repeated.
const ANSWERED_WITHIN: usize = 8;
/// The number of steps of disks and workers for which a read may have to wait.
const STEPS_OF_A_READ: u64 = 20;

/// A site is listed in about this number of pages, or in pages of ten keys.
const MAX_FULL_PAGES: u32 = 20;

/// A scan with more pages than this counts as one that does not end.
const MAX_PAGES: u64 = 1_000_000;

impl<S: Session> World<S> {
    /// Whether every node runs, every link is up, nothing that was sent over a slow road is still under way, no disk still does what it began
    /// while it was slow, and nothing is left to send, to take in or to copy. What waits for nodes that do not have the keyspace does not count.
    pub fn is_quiet(&self) -> bool {
        let is_still = |stream: &StreamStatus| {
            let has_come = stream.state == "streaming" && stream.acked == stream.ready;
            (has_come || stream.state == LEFT_OUT) && !stream.receiving_copy
        };
        self.open.is_empty()
            && self.links_are_up()
            && self.nodes().all(|node| {
                let mut statuses = self.statuses(node).into_iter();
                self.is_running(node)
                    && !self.is_syncing_long(node)
                    && statuses.all(|status| {
                        status.parked == 0
                            && status.vitals.under_way == 0
                            && status.lost.is_empty()
                            && status.streams.iter().all(is_still)
                    })
            })
    }

    /// Whether a sync is under way that takes longer than a sync that begins now could take: the disk was slower when it began. Answers may wait for it.
    fn is_syncing_long(&self, node: NodeId) -> bool {
        let machine = &self.machines[super::index(node)];
        let is_syncing = machine
            .process
            .as_ref()
            .is_some_and(|process| process.jobs.contains_key(&Worker::Sync));
        let began = machine.stepped_at.get(&Worker::Sync).copied().unwrap_or_default();
        let step = self.options.sync.max.max(self.options.disk.max);
        let longest =
            Micros(2 * step.0.saturating_mul(machine.slow_disk_percent) / 100) + Micros::from_millis(100);
        is_syncing && self.time.since(began) > longest
    }

    fn links_are_up(&self) -> bool {
        let count = self.machines.len();
        let mut pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        pairs.all(|(a, b)| {
            let link = &self.links[self.link_of(a, b)];
            // Everything that is sent now arrives behind it.
            let is_slow = link.ways.iter().any(|way| way.slow_until > self.time);
            link.up == [true, true] && !is_slow
        })
    }

    /// Lets time pass until the world is quiet and stays quiet. Returns whether that happened within `limit`.
    pub fn settle(&mut self, limit: Micros) -> bool {
        let end = self.time() + limit;
        // Quiet for a while, because what is under way counts, too. And everything stamped by then must be visible everywhere.
        let (mut quiet, mut stamped) = (0, Hlc::ZERO);
        while (quiet < 3 || !self.is_seen(stamped)) && self.time() < end {
            self.advance(Micros::from_millis(200));
            quiet = if self.is_quiet() { quiet + 1 } else { 0 };
            if quiet == 1 {
                stamped = self.stamped();
            }
        }
        quiet >= 3 && self.is_seen(stamped)
    }

    /// The newest timestamp that any node may have stamped.
    pub(crate) fn stamped(&self) -> Hlc {
        let clocks = self.nodes().flat_map(|node| self.statuses(node));
        clocks.map(|status| status.clock).max().unwrap_or(Hlc::ZERO)
    }

    /// Whether everything stamped up to a time is visible everywhere, as far as the protocol delays visibility.
    pub(crate) fn is_seen(&self, stamped: Hlc) -> bool {
        let is_everywhere =
            |status: &KeyspaceStatus| status.streams.iter().all(|stream| stream.state != LEFT_OUT);
        let statuses = self.nodes().flat_map(|node| self.statuses(node));
        statuses.filter(is_everywhere).all(|status| {
            let until = status.vitals.stable_until;
            until.is_none_or(|until| until >= stamped)
        })
    }

    /// Asks every site for every key that was ever written, and compares. The judge is told what differs, and what is missing although it
    /// was acknowledged.
    ///
    /// With a protocol of majorities, a write that was not acknowledged may be at some site: one read does not see it, the next one does,
    /// and from then on all do. So there all keys are read once before sites are compared.
    ///
    /// Where a read may ask one replica alone (level `one`), that is done: what each replica has is compared, and no read repairs it.
    ///
    /// Values that expire within a minute are waited for: of two sites that are asked one after the other, one would still show them.
    pub fn compare_sites(&mut self) {
        if let Some(until) = self.judge.expire_until(self.time, Micros::from_millis(60_000)) {
            let clocks = self.options.clock_bound + self.options.clock_bound;
            self.advance((until + clocks).since(self.time));
        }
        for keyspace in 0..self.options.keyspaces {
            if S::Protocol::DESCRIPTOR.replication == Replication::Majority {
                self.read_everywhere(keyspace);
            }
            let found = self.read_everywhere(keyspace);
            self.compare_found(&found);
        }
    }

    /// What the nodes know of the group that a key is in, as text. Empty if there are no groups.
    fn groups_of(&self, keyspace: usize, key: &Key) -> String {
        let partition = self.topology.partition_of_slot(key.slot());
        let mut words = String::new();
        for node in self.topology.sites().flat_map(|site| self.nodes_at(site)) {
            let statuses = self.statuses(*node).into_iter();
            let mut statuses = statuses.filter(|status| status.name == name_of(keyspace));
            let groups = statuses.next().map(|status| status.groups).unwrap_or_default();
            if let Some((_, group)) = groups.into_iter().find(|(of, _)| *of == partition) {
                words += &format!("; {node:?}: {group:?}");
            }
        }
        words
    }

    /// What each site has of each key, as text.
    fn read_everywhere(&mut self, keyspace: usize) -> Vec<(String, Vec<String>)> {
        let keys = self.judge.keys().into_iter();
        let keys: Vec<Key> = keys
            .filter(|key| keyspace_of(&self.options, key) == keyspace)
            .collect();
        let mut of_sites = Vec::new();
        for site in self.topology.clone().sites() {
            let name = self.topology.site_name(site).to_string();
            let client = self.add_client_in(keyspace, self.nodes_at(site)[0]);
            let (mut found, mut alive_keys, mut expired) = (Vec::new(), BTreeSet::new(), 0);
            let level = Some(Level::One).filter(|one| one.is_among(S::LEVELS.reads));
            let gets = keys.iter().map(|key| Operation::get(key.clone()).at(level));
            let answers = self.ask_patiently(client, gets.collect());
            let siblings = self.siblings_of(client, &name, &keys, level);
            for (key, answered) in keys.iter().zip(answers) {
                let Some((answer, Some(receipt))) = answered else {
                    let groups = self.groups_of(keyspace, key);
                    let words = format!("site {name} does not answer a read of {key}: {answered:?}{groups}");
                    self.judge.report(Rule::Service, words);
                    break;
                };
                self.judge.ends_with(&name, key, receipt.rank());
                if let Answer::Value(value) = &answer {
                    self.judge.ends_with_number(&name, key, value.as_ref());
                }
                self.judge.ends_with_elements(&name, key, &answer);
                // The replica that answers may have forgotten the value, and the one that counts may not.
                expired += u64::from(answer == Answer::Value(None) && self.judge.may_expire(key));
                // A forgotten delete and a remembered one look the same to clients.
                let alive = receipt.version.filter(|_| answer != Answer::Value(None));
                let siblings = siblings
                    .get(key)
                    .map_or(String::new(), |versions| format!(" {versions:?}"));
                found.push(format!("{key} {alive:?} {answer:?}{siblings}"));
                if answer != Answer::Value(None) {
                    alive_keys.insert(key.clone());
                }
            }
            self.compare_list(&name, client, &alive_keys, expired);
            of_sites.push((name, found));
        }
        of_sites
    }

    /// The siblings of each key at a site, where they are kept.
    fn siblings_of(
        &mut self,
        client: usize,
        site: &str,
        keys: &[Key],
        level: Option<Level>,
    ) -> BTreeMap<Key, Vec<(VersionId, Option<Bytes>)>> {
        if !S::Protocol::DESCRIPTOR.keeps_siblings {
            return BTreeMap::new();
        }
        let reads = keys.iter().map(|key| Operation::siblings(key.clone()).at(level));
        let answers = self.ask_patiently(client, reads.collect());
        let mut found = BTreeMap::new();
        for (key, answered) in keys.iter().zip(answers) {
            let Some((Answer::Siblings(siblings), _)) = answered else {
                let words =
                    format!("site {site} does not answer a read of the siblings of {key}: {answered:?}");
                self.judge.report(Rule::Service, words);
                continue;
            };
            self.judge.ends_with_siblings(site, key, &siblings);
            let has_value = siblings.versions.iter().any(|(_, value)| value.is_some());
            found.insert(
                key.clone(),
                siblings.versions.into_iter().filter(|_| has_value).collect(),
            );
        }
        found
    }

    fn compare_found(&mut self, found: &[(String, Vec<String>)]) {
        for pair in found.windows(2) {
            let [(left, left_found), (right, right_found)] = pair else {
                continue;
            };
            for (here, there) in left_found
                .iter()
                .zip(right_found)
                .filter(|(here, there)| here != there)
            {
                self.judge.report(
                    Rule::Convergence,
                    format!("the sites differ: {left} has {here}, {right} has {there}"),
                );
            }
        }
    }

    /// The keys that a site lists and counts must be the keys that have a value there. Those that have expired there may be counted, until they are
    /// forgotten.
    fn compare_list(&mut self, site: &str, client: usize, alive: &BTreeSet<Key>, expired: u64) {
        let has_all = S::Protocol::DESCRIPTOR.replication != Replication::Majority;
        if self.judge.is_asleep() || !has_all {
            return;
        }
        let listed = self.list(client, (alive.len() as u32 / MAX_FULL_PAGES).max(10));
        if listed != *alive {
            let words = format!("site {site} has a value for {alive:?}, and lists {listed:?}");
            self.judge.report(Rule::Convergence, words);
        }
        let counted = self.ask(client, Operation::Count).map(|answered| answered.0);
        let right = alive.len() as u64..=alive.len() as u64 + expired;
        if !matches!(counted, Some(Answer::Count(count)) if right.contains(&count)) {
            let words = format!(
                "site {site} has {} keys with a value, and counts {counted:?}",
                alive.len()
            );
            self.judge.report(Rule::Convergence, words);
        }
    }

    /// Asks these operations in order, as many at a time as disks can answer, and waits for the answers.
    fn ask_all(&mut self, client: usize, operations: Vec<Operation>) -> Vec<Option<Answered>> {
        let step = self.options.slowest_disk().max(self.options.work.max);
        let in_time = self.options.deadline.0 / (STEPS_OF_A_READ * step.0).max(1);
        let mut answers = Vec::new();
        for some in operations.chunks(in_time.clamp(1, MAX_OPEN_SURVEYS) as usize) {
            if some.len() > 1 {
                // The trace has room for a thousand events in one microsecond.
                self.advance(Micros(1));
            }
            let ids: Vec<_> = some
                .iter()
                .map(|operation| self.invoke(client, operation.clone()))
                .collect();
            // One after the other, if a client's operations do not overlap.
            let rounds = if S::OVERLAPS { 1 } else { some.len() as u64 };
            let deadline = Micros(self.options.deadline.0 * rounds);
            let until = self.time + deadline + LOOK_EVERY + LOOK_EVERY;
            self.run_until(until, |world| ids.iter().all(|&id| !world.is_open(id)));
            let returned = ids.iter().map(|&id| self.record(id).returned.as_ref());
            answers.extend(returned.map(|returned| returned.map(|(_, answered)| answered.clone())));
        }
        answers
    }

    /// The same, but operations that need a majority are repeated if they fail: a connection may break meanwhile, on a road that loses
    /// frames.
    fn ask_patiently(&mut self, client: usize, operations: Vec<Operation>) -> Vec<Option<Answered>> {
        let mut answers = self.ask_all(client, operations.clone());
        let is_failed = |answer: &Option<Answered>| matches!(answer, None | Some((Answer::Failed(_), _)));
        for _ in 0..ANSWERED_WITHIN {
            let places = 0..answers.len();
            let failed: Vec<usize> = places.filter(|&place| is_failed(&answers[place])).collect();
            if failed.is_empty() || S::Protocol::DESCRIPTOR.replication == Replication::Streams {
                break;
            }
            for place in failed {
                answers[place] = self.ask(client, operations[place].clone());
            }
        }
        answers
    }

    /// Asks an operation, and waits for the answer.
    pub fn ask(&mut self, client: usize, operation: Operation) -> Option<Answered> {
        self.ask_all(client, vec![operation]).pop().flatten()
    }

    /// Lists all keys of a site, about `count` at a time.
    fn list(&mut self, client: usize, count: u32) -> BTreeSet<Key> {
        let (mut all, mut cursor) = (BTreeSet::new(), 0);
        // A page has at least one key, unless a slot is empty.
        for _ in 0..MAX_PAGES {
            match self.ask(client, Operation::Scan { cursor, count }) {
                Some((Answer::Keys { cursor: next, keys }, _)) => {
                    all.extend(keys);
                    cursor = next;
                }
                other => {
                    self.judge
                        .report(Rule::Service, format!("a scan was answered with {other:?}"));
                    return all;
                }
            }
            if cursor == 0 {
                return all;
            }
        }
        let words = format!("a scan has not ended after {MAX_PAGES} pages");
        self.judge.report(Rule::Service, words);
        all
    }
}
