//! What a node takes with it when it loses more than its process.
use super::index;
use crate::{Loss, World};
use turnbuckle_core::{Key, Protocol, ServerId, Session, SiteId, VersionId, Versions};
use turnbuckle_node::{Durability, NodeId};

impl<S: Session> World<S> {
    /// A node is about to lose something: the judge is told what may be missing from now on.
    pub(super) fn excuse(&mut self, node: NodeId, loss: Loss) {
        let place = index(node);
        let (synced_at, time) = (self.machines[place].synced_at, self.time);
        for server in self.servers_of(node) {
            match loss {
                Loss::Process => return,
                Loss::Power if self.options.durability == Durability::Fsync => {}
                Loss::Power => self.judge.excuse(server, time, synced_at),
                Loss::Directory => self.judge.lose_directory(server, time, None),
                Loss::Old => {
                    let backup = self.machines[place].backup.as_ref();
                    let since = backup.map(|backup| backup.at);
                    self.judge.lose_directory(server, time, since);
                }
            }
        }
        // What another node lost before may have been here alone, and not synced.
        let mut judge = std::mem::take(&mut self.judge);
        judge.excuse_what_is_gone(|server, key, version| self.survives(node, server, key, version));
        self.judge = judge;
    }

    fn servers_of(&self, node: NodeId) -> Vec<ServerId> {
        let site = self.placement.site_of(node);
        let servers = (0..self.options.partitions).map(|partition| ServerId {
            site,
            partition,
            member: 0,
        });
        servers
            .filter(|&server| self.placement.node_of(server) == node)
            .collect()
    }

    /// Whether a running peer of a server, on another node than the one that is lost now, has a version or something newer.
    fn survives(&self, lost: NodeId, server: ServerId, key: &Key, version: VersionId) -> bool {
        let others = self.topology.sites().filter(|&site| site != server.site);
        let mut peers = others.map(|site| self.topology.peer_at(server, site));
        peers.any(|peer| {
            let node = self.placement.node_of(peer);
            node != lost && self.has(node, peer, key, version)
        })
    }

    fn has(&self, node: NodeId, server: ServerId, key: &Key, version: VersionId) -> bool {
        let Some(process) = &self.machines[index(node)].process else {
            return false;
        };
        let covers = |&(site, until): &(SiteId, _)| site == version.site && version.at <= until;
        let found = process.keyspace.inspect(server, |protocol, store| {
            let newest = store.is_resident(key.as_ref()).then(|| store.chain(key.as_ref()));
            protocol.cut().iter().any(covers)
                || newest.flatten().is_some_and(|chain| chain.newest().id >= version)
        });
        found.unwrap_or(false)
    }

    /// Does what nodes ask for that were started with an old copy of their directory: empties it, and starts them again.
    pub fn empty_old_directories(&mut self) {
        for node in self.nodes() {
            let status = self.status(node);
            if status.is_some_and(|status| status.vitals.is_outdated) {
                self.crash(node, Loss::Directory);
                self.restart(node);
            }
        }
    }
}
