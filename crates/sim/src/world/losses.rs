//! What a node loses when it loses more than its process.
use super::index;
use crate::{
    Loss, World,
    judge::{Judge, Rule},
    keyspaces::keyspace_of,
};
use std::collections::BTreeSet;
use turnbuckle_core::{
    Chain, Key, KeyspaceLevels, Micros, Protocol, Rank, ReplicaId, ServerId, Session, Versions,
};
use turnbuckle_node::{Durability, KeyspaceStatus, NodeId, StreamStatus};
use turnbuckle_store::Store;

impl<S: Session> World<S> {
    /// A node is about to lose something: the judge is told what may be missing from now on.
    pub(super) fn excuse(&mut self, node: NodeId, loss: Loss) {
        let place = index(node);
        if loss == Loss::Process || self.judge.is_asleep() {
            return;
        }
        let (synced_at, time) = (self.machines[place].synced_at, self.time);
        // The judge is taken out of the world meanwhile, because the world is borrowed below.
        let mut judge = std::mem::replace(
            &mut self.judge,
            Judge::new(self.topology.clone(), KeyspaceLevels::of(S::LEVELS)),
        );
        let survives =
            |server, key: &Key, version, is_deleted| self.survives(node, server, key, version, is_deleted);
        judge.look_at_spared(self.time, survives);
        for server in self.servers_of(node) {
            let of_site = ServerId { member: 0, ..server };
            let stamping = match S::Protocol::DESCRIPTOR.agrees_by_site {
                true => of_site,
                false => server,
            };
            match loss {
                Loss::Process => {}
                Loss::Power if self.options.durability == Durability::Fsync => {}
                Loss::Power => judge.excuse(server, time, synced_at),
                Loss::Directory => judge.lose_directory((server, stamping), time, Micros(0), survives),
                Loss::Old => {
                    let backup = self.machines[place].backup.as_ref();
                    let kept_until = backup.map_or(Micros(0), |backup| backup.at);
                    judge.lose_directory((server, stamping), time, kept_until, survives);
                }
            }
        }
        self.judge = judge;
    }

    pub(super) fn servers_of(&self, node: NodeId) -> Vec<ServerId> {
        let site = self.placement.site_of(node);
        let partitions = 0..self.options.partitions;
        let servers = partitions.flat_map(|partition| {
            (0..self.options.members.at(site)).map(move |member| ServerId {
                site,
                partition,
                member,
            })
        });
        servers
            .filter(|&server| self.topology.contains(server) && self.placement.node_of(server) == node)
            .collect()
    }

    /// Whether a running peer of a server, on another node than the one that loses its directory, has a version or something newer.
    /// `is_deleted`: the version is a delete, or was deleted since.
    fn survives(&self, lost: NodeId, server: ServerId, key: &Key, version: Rank, is_deleted: bool) -> bool {
        // Also the server itself: another one of its site may be the one that loses its directory.
        let all = self.topology.replicas_of(server.partition).iter();
        let mut peers = all.map(|replica| server.peer(replica));
        peers.any(|peer| {
            let node = self.placement.node_of(peer);
            node != lost && self.has(node, peer, key, version, is_deleted)
        })
    }

    /// Whether a node has a version or something newer. A newer version of another site proves nothing by itself: the version may never
    /// have come here. It has come if the node covers the version in its own site's stream. If there is no version of the key, the node can
    /// only have had a delete, which it has forgotten and covers. To cover a value is not enough: a node that was empty when it heard a
    /// writer that had lost its directory covers versions that neither of the two has.
    fn has(&self, node: NodeId, server: ServerId, key: &Key, version: Rank, is_deleted: bool) -> bool {
        let covers =
            |&(replica, until): &(ReplicaId, _)| replica == version.id.replica && version.id.at <= until;
        let found = self.inspect_key(node, server, key, |protocol, versions| {
            let is_covered = || protocol.cut().iter().any(covers);
            match versions.is_empty() {
                true => is_deleted && is_covered(),
                false => {
                    let mut newer = versions.iter().filter(|(newer, _)| *newer >= version);
                    newer.any(|(newer, _)| newer.id.replica == version.id.replica || is_covered())
                }
            }
        });
        found.unwrap_or(false)
    }

    /// Looks at the versions that a node has of a key, newest first, each with whether it has a value. `None` if the node does not run, or has
    /// no such keyspace.
    fn inspect_key<T>(
        &self,
        node: NodeId,
        server: ServerId,
        key: &Key,
        look: impl FnOnce(&S::Protocol, &[(Rank, bool)]) -> T,
    ) -> Option<T> {
        let process = self.machines[index(node)].process.as_ref()?;
        let keyspace = process.keyspaces.get(&keyspace_of(&self.options, key))?;
        keyspace.inspect(server, |protocol, store| {
            let versions = |chain: &Chain<_>| {
                let versions = chain
                    .iter()
                    .map(|known| (known.rank(), !known.content.is_delete()));
                versions.collect::<Vec<_>>()
            };
            let found = if store.is_resident(key.as_ref()) {
                store.chain(key.as_ref()).map(versions)
            } else {
                let row =
                    Store::<<S::Protocol as Protocol>::Meta>::fetch(&*store.table(), key, store.epoch());
                row.ok().and_then(|row| row.chain().map(versions))
            };
            look(protocol, &found.unwrap_or_default())
        })
    }

    // ---- one directory at a time ----------------------------------------------------------------------------

    /// Whether a fault may take a node's data directory. The store promises to survive one lost directory at a time: the operator must wait
    /// until the last node has everything again. Otherwise something that only one site knows would be lost, above all that another site's
    /// directory is an old copy. Two nodes of a site have different partitions, and do not wait for each other.
    pub fn may_lose(&mut self, node: NodeId) -> bool {
        if !self.options.one_loss_at_a_time {
            return true;
        }
        let site = self.placement.site_of(node);
        let others: Vec<NodeId> = self
            .nodes()
            .filter(|&other| self.placement.site_of(other) != site)
            .collect();
        others.iter().for_each(|&other| self.look_at_loss(index(other)));
        others
            .iter()
            .all(|&other| self.machines[index(other)].lost_at.is_none())
    }

    /// If a node has got back everything that it lost with its directory, this is noted.
    pub(super) fn look_at_loss(&mut self, node: usize) {
        if let Some(since) = self.machines[node].lost_at
            && self.has_all_again(NodeId(node as u16), since)
        {
            self.machines[node].lost_at = None;
        }
    }

    /// Whether a node that lost its directory serves again, is neither an old copy nor being filled, and has exchanged with all other sites
    /// everything from before its start. Then all of them have also told it what was forgotten: that is the first thing that is sent on a
    /// link.
    fn has_all_again(&self, node: NodeId, since: Micros) -> bool {
        let site = self.placement.site_of(node);
        let here: BTreeSet<u16> = self
            .servers_of(node)
            .iter()
            .map(|server| server.partition)
            .collect();
        let is_here = |partition| here.contains(&partition);
        let has_come = |stream: &StreamStatus| {
            let is_copied = stream.state == "streaming" && !stream.receiving_copy;
            is_copied && stream.lag <= self.time.since(since)
        };
        let is_filled = |status: &KeyspaceStatus| {
            let vitals = &status.vitals;
            let is_given_back = status.lost.is_empty() && status.damaged.is_empty();
            !vitals.is_outdated && !vitals.is_filling && is_given_back && status.streams.iter().all(has_come)
        };
        let has_sent = |other: NodeId| {
            let statuses = self.statuses(other);
            let mut to_here = statuses.iter().flat_map(|status| &status.streams);
            self.is_running(other)
                && to_here.all(|stream| {
                    let peer = ServerId::of(stream.partition, stream.peer);
                    self.placement.node_of(peer) != node || !is_here(stream.partition) || has_come(stream)
                })
        };
        let mut others = self
            .nodes()
            .filter(|&other| self.placement.site_of(other) != site);
        self.is_running(node)
            && self.machines[index(node)].left_out.is_empty()
            && self.statuses(node).iter().all(is_filled)
            && others.all(has_sent)
    }

    // ---- old copies -----------------------------------------------------------------------------------------

    /// Empties the directories of nodes that ask for it because they were started with an old copy, and starts them again. If a node asks
    /// without a reason, that is reported.
    pub fn empty_old_directories(&mut self) {
        for node in self.nodes() {
            if self.is_outdated(node) {
                if !self.machines[index(node)].is_old {
                    let name = self.node_name(node);
                    let words =
                        format!("node {name} says that its data directory is an old copy, and it is not");
                    self.judge.report(Rule::Service, words);
                }
                self.crash(node, Loss::Directory);
                self.restart(node);
            }
        }
    }

    /// Whether a node asks for its directory to be emptied.
    pub fn is_outdated(&self, node: NodeId) -> bool {
        let mut statuses = self.statuses(node).into_iter();
        statuses.any(|status| status.vitals.is_outdated)
    }

    /// The newest version of a key that a server has in memory, if no clock within its bound can have stamped it by now, by more than a
    /// second. Only if the server's own clock keeps its bound: then the server can know that a clock lies.
    pub(super) fn seen_to_be_ahead(&self, server: ServerId, key: &Key) -> Option<Rank> {
        let machine = &self.machines[index(self.placement.node_of(server))];
        let process = machine.process.as_ref()?;
        let keyspace = process.keyspaces.get(&keyspace_of(&self.options, key))?;
        let newest = keyspace.inspect(server, |_, store| {
            let is_there = store.is_resident(key.as_ref());
            is_there
                .then(|| store.chain(key.as_ref()))?
                .map(|chain| chain.newest().rank())
        });
        let horizon =
            self.time + self.options.clock_bound + self.options.clock_bound + Micros::from_millis(1_000);
        newest
            .flatten()
            .filter(|rank| machine.clock.is_honest(self.time) && rank.id.at.wall() > horizon)
    }
}
