//! What a node says about itself: to clients, and to operators.
use super::{Host, free_bytes, lock};
use crate::{
    admin::{Admin, AdminSource, ChangeMembers, Lead, Unknown},
    config::KeyspaceEntry,
    status::{
        CheckpointStatus, ClientsStatus, ClockStatus, GroupStatus, KeyspaceStatus, LinkStatus, LogStatus,
        MemoryStatus, MetricStatus, Status, StreamStatus,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};
use turnbuckle_core::{
    MemberChange, MemberRefusal, Membership, ReplicaId, ReplicaSet, Replication, ServerId, SiteId, Topology,
    Wish,
};
use turnbuckle_gateway::Gateway;
use turnbuckle_node::{NodeId, Placement};
use turnbuckle_resp::{ClusterNode, Keyspace};

/// For each partition, the node of a site that clients should ask: the node of the first member that can be reached, or of the first member if none
/// can be. If the site has no replica of a partition, the node passes on what is asked.
fn holders(
    topology: &Topology,
    placement: &Placement,
    site: SiteId,
    is_here: impl Fn(NodeId) -> bool,
) -> Vec<NodeId> {
    let holder = |partition| {
        let node_of = |member| {
            placement.node_of(ServerId {
                site,
                partition,
                member,
            })
        };
        let mut nodes = (0..topology.members().at(site)).map(node_of);
        nodes.find(|&node| is_here(node)).unwrap_or_else(|| node_of(0))
    };
    (0..topology.partitions()).map(holder).collect()
}

impl Host {
    /// What the operator should do if the data directory is an old copy.
    fn outdated(&self) -> Option<String> {
        let states = self.node.status(self.clock.now());
        let outdated = states.into_iter().find(|state| state.vitals.is_outdated)?;
        Some(format!(
            "the data directory of this node is an old copy, and keyspace '{}' is not served: stop the node, empty its data directory \
             and start it again",
            outdated.name
        ))
    }

    pub fn about_keyspaces(&self, gateway: &Gateway) -> Vec<Keyspace> {
        let entries = self.config.keyspaces().zip(gateway.keyspaces());
        entries
            .map(|((id, entry), about)| Keyspace {
                name: about.name,
                kind: entry.protocol.kind().to_string(),
                protocol: entry.protocol.to_string(),
                levels: about.levels,
                db: self.config.db(id),
                partitions: about.partitions,
                details: vec![
                    ("durability".into(), entry.durability.to_string()),
                    ("conditional".into(), entry.decides().into()),
                ],
            })
            .collect()
    }

    pub fn about_nodes(&self, keyspace: &str) -> Vec<ClusterNode> {
        let Some(keyspace) = self.config.keyspace_named(keyspace) else {
            return Vec::new();
        };
        let topology = &self.config.keyspace(keyspace).topology;
        let is_here = |id| id == self.id || self.node.is_link_up(id);
        let holders = holders(topology, &self.config.placement(), self.site(), is_here);
        let nodes = self.config.nodes_of(self.site()).iter().map(|&id| {
            let held = (0..).zip(&holders).filter(|(_, holder)| **holder == id);
            let slots = held.map(|(partition, _)| topology.slots_of(partition));
            let entry = self.config.node(id);
            ClusterNode {
                id: self.redis_id(&entry.name),
                host: entry.resp.host().to_string(),
                port: entry.resp.port(),
                slots: slots
                    .filter(|slots| !slots.is_empty())
                    .map(|slots| slots.start..=slots.end - 1)
                    .collect(),
                is_me: id == self.id,
                is_up: is_here(id),
            }
        });
        nodes.collect()
    }

    /// The node's id for Redis clients: forty hexadecimal digits that stay the same for a node's name.
    pub(super) fn redis_id(&self, name: &str) -> String {
        let digest = self.config.secret.sign(name.as_bytes());
        digest[..20].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn admin(self: &Arc<Host>) -> Admin {
        Admin {
            source: Arc::clone(self) as _,
            metrics: Arc::clone(&self.metrics),
            wan: self.wan.clone(),
            others: Arc::clone(&self.others),
            guard: Arc::clone(&self.guard),
            tls: self.tls.clone(),
        }
    }

    /// The data that is damaged or was lost, and has not come back from other sites yet.
    fn missing(&self) -> impl Iterator<Item = String> {
        let keyspaces = self.node.status(self.clock.now()).into_iter();
        keyspaces.flat_map(|keyspace| {
            let missing = by_partition(&keyspace.damaged).chain(by_partition(&keyspace.lost));
            let named = missing.map(|missing| format!("keyspace {}, {missing}", keyspace.name));
            named.collect::<Vec<_>>()
        })
    }

    /// Whether requests wait because the node has just started.
    fn waiting(&self) -> Option<String> {
        let states = self.node.status(self.clock.now()).into_iter();
        let mut waiting = states.filter(|keyspace| !keyspace.waiting.is_empty());
        waiting.next().map(|keyspace| {
            format!(
                "keyspace {}: {} partitions have just started and wait to hear from other sites",
                keyspace.name,
                keyspace.waiting.len()
            )
        })
    }

    /// Why no node has a link to this one, if that is because links are refused.
    fn is_alone(&self) -> Option<String> {
        let (mut refused, mut had_link) = (None, false);
        for peer in self.peers() {
            let link = self.link(peer);
            if link.up {
                return None;
            }
            had_link |= link.life > 0;
            if link.is_refused {
                refused = refused.or(link.reason.clone());
            }
        }
        // A node with another secret is a stranger to the others, and they are to it. Once it has had a link, its secret is right.
        let has_strangers = self.peers().next().is_some() && self.strangers.status().refused_total > 0;
        let strangers = (has_strangers && !had_link)
            .then(|| "connections to its port for peers are refused; its log says why".to_string());
        let why = refused.or(strangers)?;
        Some(format!("this node has no link to any other: {why}"))
    }

    /// A partition that has too few replicas within reach to be served.
    fn unreached(&self) -> Option<String> {
        let placement = self.config.placement();
        let is_reached = |server| {
            let node = placement.node_of(server);
            node == self.id || self.node.is_link_up(node)
        };
        self.config.keyspaces().find_map(|(_, keyspace)| {
            let topology = &keyspace.topology;
            (0..topology.partitions()).find_map(|partition| {
                let of_site = keyspace.protocol.descriptor().agrees_by_site;
                let replicas = topology.replicas_of(partition);
                // Where each site has a group of its own, that of this node's site counts.
                let is_meant = |replica: &ReplicaId| !of_site || replica.site() == self.site();
                let servers = || {
                    let meant = replicas.iter().filter(is_meant);
                    meant.map(|replica| ServerId::of(partition, replica))
                };
                let all = servers().count();
                if all == 0 {
                    return None;
                }
                let levels = [keyspace.levels.read, keyspace.levels.write];
                let by_level = levels.map(|level| level.replicas_needed(all)).into_iter().max();
                let needed = match keyspace.protocol.descriptor().replication {
                    Replication::Majority | Replication::Consensus => all / 2 + 1,
                    Replication::Streams => by_level.unwrap_or(1),
                };
                let reached = servers().filter(|&server| is_reached(server)).count();
                (reached < needed).then(|| {
                    format!(
                        "keyspace {}, partition {partition}: {reached} of its {} replicas can be reached, and {needed} are needed",
                        keyspace.name,
                        servers().count()
                    )
                })
            })
        })
    }

    fn groups_of(&self, keyspace: &turnbuckle_node::KeyspaceStatus) -> Vec<GroupStatus> {
        let groups = keyspace.groups.iter();
        let placement = self.config.placement();
        let name = |replica: ReplicaId| replica.name(self.config.site_name(replica.site()));
        let node = |partition, replica| {
            let node = placement.node_of(ServerId::of(partition, replica));
            self.config.node(node).name.clone()
        };
        // Operators name nodes where all replicas of a group are at one site.
        let by_node = self.agrees_by_site(&keyspace.name);
        let called = |partition, replica| match by_node {
            true => node(partition, replica),
            false => name(replica),
        };
        let names = |replicas: ReplicaSet| replicas.iter().map(name).collect();
        let group = groups.map(|(partition, group)| GroupStatus {
            keyspace: keyspace.name.clone(),
            partition: *partition,
            leader: group.leader.map(name),
            term: group.term,
            committed: group.committed,
            applied: group.applied,
            leads: group.leads,
            takes_no_part: !group.is_member,
            replicas: group
                .replicas
                .iter()
                .map(|replica| (name(replica), node(*partition, replica)))
                .collect(),
            voters: names(group.voters),
            voters_before: names(group.outgoing),
            learners: names(group.learners),
            refused_for_good: group.refusal.is_some_and(MemberRefusal::is_final),
            refusal: group
                .refusal
                .map(|refusal| refusal_in_words(refusal, |replica| called(*partition, replica))),
        });
        group.collect()
    }

    /// Keyspaces with partitions whose replicas here know no leader, or take no writes yet.
    fn leaderless(&self) -> Vec<String> {
        let statuses = self.node.status(self.clock.now()).into_iter();
        let words = statuses.flat_map(|status| {
            let groups = status.groups.iter();
            let leaderless = groups.filter(|(_, group)| group.is_member && group.leader.is_none());
            let count = leaderless.count();
            let leaderless = (count > 0).then(|| {
                format!(
                    "{count} partitions of {} have no leader that is known here: they take no writes",
                    status.name
                )
            });
            let awaited: BTreeMap<SiteId, usize> =
                (status.groups.iter()).fold(BTreeMap::new(), |mut counts, (_, group)| {
                    group.awaits.iter().for_each(|&site| *counts.entry(site).or_default() += 1);
                    counts
                });
            let awaiting = awaited.into_iter().map(|(site, count)| {
                format!(
                    "{count} partitions of {} take no writes yet: they first have to learn from site {} which writes of this site there are",
                    status.name,
                    self.config.site_name(site)
                )
            });
            leaderless.into_iter().chain(awaiting).collect::<Vec<_>>()
        });
        words.collect()
    }

    /// The keyspace of this name, if its partitions elect leaders, and those of its partitions that are meant.
    fn groups_named(
        &self,
        name: &str,
        partition: Option<u16>,
    ) -> Result<(&KeyspaceEntry, Vec<u16>), Unknown> {
        let elects =
            |known: &KeyspaceEntry| known.protocol.descriptor().replication == Replication::Consensus;
        let elect = || {
            self.config
                .keyspaces()
                .map(|(_, known)| known)
                .filter(|known| elects(known))
        };
        let Some(keyspace) = elect().find(|known| known.name == name) else {
            let names: Vec<&str> = elect().map(|known| &*known.name).collect();
            return Err(Unknown {
                found: format!("keyspace {:?}", name.chars().take(64).collect::<String>()),
                expected: match names.is_empty() {
                    true => "a keyspace whose partitions elect leaders; there is none".into(),
                    false => format!("a keyspace whose partitions elect leaders: {}", names.join(", ")),
                },
            });
        };
        let topology = &keyspace.topology;
        match partition {
            Some(partition) if partition >= topology.partitions() => Err(Unknown {
                found: format!("partition {partition}"),
                expected: format!("a partition of {name} below {}", topology.partitions()),
            }),
            Some(partition) => Ok((keyspace, vec![partition])),
            None => Ok((keyspace, (0..topology.partitions()).collect())),
        }
    }

    fn site_named(&self, name: &str) -> Result<SiteId, Unknown> {
        let sites = self.config.sites();
        let place = sites.iter().position(|site| site == name);
        place.map(|place| SiteId(place as u16)).ok_or_else(|| Unknown {
            found: format!("site {:?}", name.chars().take(64).collect::<String>()),
            expected: format!("one of {}", sites.join(", ")),
        })
    }

    /// The replicas that an operator means by the name of a site or of a node. A name of both is the site's.
    fn replicas_named(&self, name: &str) -> Result<ReplicasOf, Unknown> {
        if let Ok(site) = self.site_named(name) {
            return Ok(ReplicasOf::Site(site));
        }
        let node = self.config.node_named(name).map(ReplicasOf::Node);
        node.ok_or_else(|| {
            let nodes = self.config.nodes().map(|(_, node)| &*node.name);
            Unknown {
                found: format!("{:?}", name.chars().take(64).collect::<String>()),
                expected: format!(
                    "one of the sites {}, or of the nodes {}",
                    self.config.sites().join(", "),
                    nodes.collect::<Vec<_>>().join(", ")
                ),
            }
        })
    }

    fn agrees_by_site(&self, name: &str) -> bool {
        let mut known = self.config.keyspaces().filter(|(_, known)| known.name == name);
        known.any(|(_, known)| known.protocol.descriptor().agrees_by_site)
    }

    fn streams_of(&self, keyspace: &turnbuckle_node::KeyspaceStatus) -> Vec<StreamStatus> {
        if self.agrees_by_site(&keyspace.name) {
            // The streams between replicas carry full copies only.
            let forwards = keyspace.forwards.iter();
            return forwards
                .map(|(partition, forwarding)| StreamStatus {
                    keyspace: keyspace.name.clone(),
                    partition: *partition,
                    from: self.config.site_name(self.site()).to_string(),
                    to: self.config.site_name(forwarding.to).to_string(),
                    lag_entries: forwarding.entries,
                    lag_seconds: forwarding.lag.0 as f64 / 1e6,
                    state: forwarding.state.into(),
                })
                .collect();
        }
        let streams = keyspace.streams.iter().map(|stream| StreamStatus {
            keyspace: keyspace.name.clone(),
            partition: stream.partition,
            from: self.config.site_name(self.site()).to_string(),
            to: stream.peer.name(self.config.site_name(stream.peer.site())),
            lag_entries: stream.ready.saturating_sub(stream.acked),
            lag_seconds: stream.lag.0 as f64 / 1e6,
            state: if stream.held {
                "held: clock ahead".into()
            } else {
                stream.state.to_string()
            },
        });
        streams.collect()
    }

    fn metrics_of(&self, keyspace: &turnbuckle_node::KeyspaceStatus) -> BTreeMap<String, MetricStatus> {
        let site_of = |peer: ReplicaId| peer.name(self.config.site_name(peer.site()));
        let measured = keyspace.measured.iter();
        measured
            .filter_map(|(name, measured)| Some((name.to_string(), MetricStatus::new(measured, site_of)?)))
            .collect()
    }
}

/// Replicas that an operator means.
#[derive(Debug, Clone, Copy)]
enum ReplicasOf {
    /// Those at a site.
    Site(SiteId),
    /// Those on a node.
    Node(NodeId),
}

impl ReplicasOf {
    fn site(self, placement: &Placement) -> SiteId {
        match self {
            ReplicasOf::Site(site) => site,
            ReplicasOf::Node(node) => placement.site_of(node),
        }
    }

    fn has(self, placement: &Placement, server: ServerId) -> bool {
        match self {
            ReplicasOf::Site(site) => server.site == site,
            ReplicasOf::Node(node) => placement.node_of(server) == node,
        }
    }
}

/// Why a leader has not changed the members. `name` names a replica.
fn refusal_in_words(refusal: MemberRefusal, name: impl Fn(ReplicaId) -> String) -> String {
    match refusal {
        MemberRefusal::Unknown(replica) => format!("the partition has no replica {}", name(replica)),
        MemberRefusal::NoVoters => "no voter would be left".into(),
        MemberRefusal::Busy => "another change of members or leaders is under way".into(),
        MemberRefusal::Silent(replica) => format!("{} is a learner, and is not heard", name(replica)),
        MemberRefusal::TakesCopy(replica) => format!("{} is a learner, and takes a full copy", name(replica)),
        MemberRefusal::Lags(replica, entries) => {
            format!("{} is a learner, and lacks {entries} entries", name(replica))
        }
        MemberRefusal::NoMajority { voters, heard } => {
            format!("only {heard} of the {voters} voters that there would be are heard, and no majority")
        }
    }
}

fn by_partition(found: &[(u16, String)]) -> impl Iterator<Item = String> {
    let found = found.iter();
    found.map(|(partition, why)| format!("partition {partition}: {why}"))
}

impl AdminSource for Host {
    fn lead(&self, lead: &Lead) -> Result<usize, Unknown> {
        let Lead { keyspace, partition } = lead;
        self.groups_named(keyspace, *partition)?;
        let now = self.clock.now();
        let told = self.node.wish(now, Some(keyspace), *partition, Wish::Lead);
        told.filter(|&told| told > 0).ok_or_else(|| Unknown {
            found: partition.map_or(format!("keyspace {keyspace}"), |partition| {
                format!("partition {partition}")
            }),
            expected: "one that this node has a replica of".into(),
        })
    }

    fn change_members(&self, change: &ChangeMembers) -> Result<usize, Unknown> {
        let (keyspace, partitions) = self.groups_named(&change.keyspace, change.partition)?;
        let topology = &keyspace.topology;
        let placement = self.config.placement();
        let has = |partition, of: ReplicasOf| {
            let mut replicas = topology.replicas_of(partition).iter();
            replicas.any(|replica| of.has(&placement, ServerId::of(partition, replica)))
        };
        let mut wanted = Vec::new();
        for (name, word) in &change.replicas_of {
            let membership: Membership = word.parse().map_err(|expected: &str| Unknown {
                found: format!("{:?} for {name}", word.chars().take(64).collect::<String>()),
                expected: expected.into(),
            })?;
            let of = self.replicas_named(name)?;
            if !partitions.iter().any(|&partition| has(partition, of)) {
                return Err(Unknown {
                    found: name.clone(),
                    expected: format!("a site or a node with replicas of {}", change.keyspace),
                });
            }
            wanted.push((of, membership));
        }
        let sites: BTreeSet<SiteId> = wanted.iter().map(|(of, _)| of.site(&placement)).collect();
        if keyspace.protocol.descriptor().agrees_by_site && sites.len() > 1 {
            let names: Vec<&str> = change.replicas_of.keys().map(String::as_str).collect();
            return Err(Unknown {
                found: names.join(" and "),
                expected: format!(
                    "replicas of one site: in {} each site has groups of its own",
                    change.keyspace
                ),
            });
        }
        // Where one replica is to take the place of another, each group must have both: else a voter would go, and none would come.
        let goes = |membership| membership == Membership::None;
        let (leave, come) = wanted
            .iter()
            .partition::<Vec<_>, _>(|(_, membership)| goes(*membership));
        if !leave.is_empty() && !come.is_empty() {
            let is_lopsided = |&&partition: &&u16| {
                let any = |of: &[(ReplicasOf, Membership)]| of.iter().any(|&(of, _)| has(partition, of));
                any(&leave) != any(&come)
            };
            if let Some(partition) = partitions.iter().find(is_lopsided) {
                let names: Vec<&str> = change.replicas_of.keys().map(String::as_str).collect();
                return Err(Unknown {
                    found: names.join(" and "),
                    expected: format!(
                        "two that both have a replica of each partition, or of none: partition {partition} has a replica of one of them only"
                    ),
                });
            }
        }
        let (now, mut told) = (self.clock.now(), 0);
        for partition in partitions {
            let replicas = topology.replicas_of(partition);
            let changes = wanted.iter().flat_map(|&(of, wanted)| {
                let placement = &placement;
                let meant = replicas
                    .iter()
                    .filter(move |&replica| of.has(placement, ServerId::of(partition, replica)));
                meant.map(move |replica| MemberChange { replica, wanted })
            });
            let wish = Wish::Members(changes.collect());
            let replicas = self.node.wish(now, Some(&change.keyspace), Some(partition), wish);
            told += replicas.unwrap_or(0);
        }
        Ok(told)
    }

    fn readiness(&self) -> Result<(), String> {
        match lock(&self.failure).as_ref() {
            Some(why) if self.stopping.load(Ordering::Acquire) || self.node.is_log_failing() => {
                Err(why.clone())
            }
            _ if self.stopping.load(Ordering::Acquire) => Err("the node is stopping".into()),
            _ if !self.node.has_room() => Err(format!(
                "the disk has less than {} MiB free: writes are refused",
                self.config.limits.min_free_disk_mb
            )),
            _ => {
                let wrong = self.outdated().or_else(|| self.missing().next());
                let wrong = wrong.or_else(|| self.is_alone()).or_else(|| self.unreached());
                let wrong = wrong.or_else(|| self.waiting());
                wrong.map_or(Ok(()), Err)
            }
        }
    }

    fn degraded(&self) -> Vec<String> {
        let refused = self.peers().filter_map(|peer| {
            let link = self.link(peer);
            let why = link.reason.as_ref().filter(|_| link.is_refused && !link.up)?;
            Some(format!("no link to node {}: {why}", self.node_name(peer)))
        });
        let away = self.peers().filter(|&peer| {
            let is_here = self.config.node(peer).site == self.site();
            let link = self.link(peer);
            is_here && !link.up && !link.is_refused
        });
        let away = away.map(|peer| {
            format!(
                "node {} of this site cannot be reached: other replicas of its partitions are asked where that is possible",
                self.node_name(peer)
            )
        });
        refused.chain(away).chain(self.leaderless()).collect()
    }

    fn missing_keyspaces(&self) -> BTreeMap<String, Vec<String>> {
        let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for peer in self.peers() {
            for keyspace in &self.link(peer).agreement.only_here {
                let nodes = missing.entry(keyspace.clone()).or_default();
                nodes.push(self.node_name(peer).to_string());
            }
        }
        missing
    }

    fn status(&self) -> Status {
        let now = self.clock.now();
        let states = self.node.status(now);
        let entry = self.config.node(self.id);
        let links = self.peers().map(|peer| {
            let link = self.link(peer);
            LinkStatus {
                peer: self.node_name(peer).to_string(),
                site: self.config.site_name(self.config.node(peer).site).to_string(),
                up: link.up,
                reason: link.reason.clone(),
                missing_there: link.agreement.only_here.clone(),
                missing_here: link.agreement.only_there.clone(),
                connections_total: link.life,
                sent_bytes_total: link.sent_bytes,
                received_bytes_total: link.received_bytes,
                held_bytes: link.held_bytes,
            }
        });
        let state_of = |name: &str| states.iter().find(|state| state.name == name);
        let keyspaces = self.config.keyspaces().map(|(_, keyspace)| KeyspaceStatus {
            name: keyspace.name.clone(),
            protocol: keyspace.protocol.to_string(),
            partitions: keyspace.topology.partitions(),
            durability: keyspace.durability.to_string(),
            levels: keyspace
                .protocol
                .levels()
                .all()
                .map(turnbuckle_core::Level::form)
                .collect(),
            parked_operations: state_of(&keyspace.name).map_or(0, |state| state.parked),
            deletes_kept_seconds: state_of(&keyspace.name).and_then(|state| {
                let until = state.vitals.deletes_until?.wall();
                Some(now.wall.reading.since(until).0 as f64 / 1e6)
            }),
            deletes_waiting: state_of(&keyspace.name).map_or(0, |state| state.deleted_keys),
            keys: state_of(&keyspace.name).map_or(0, |state| state.live_keys),
            expiring_keys: state_of(&keyspace.name).map_or(0, |state| state.expiring_keys),
            damage: state_of(&keyspace.name)
                .map_or_else(Vec::new, |found| by_partition(&found.damaged).collect()),
            directory_outdated: state_of(&keyspace.name).is_some_and(|state| state.vitals.is_outdated),
            directory_filling: state_of(&keyspace.name).is_some_and(|state| state.vitals.is_filling),
            versions_written_total: state_of(&keyspace.name).map_or(0, |state| state.written.versions),
            metadata_bytes_total: state_of(&keyspace.name).map_or(0, |state| state.written.metadata_bytes),
            metrics: state_of(&keyspace.name).map_or_else(BTreeMap::new, |state| self.metrics_of(state)),
        });
        let (checkpoints, jumps) = (self.node.checkpoints(), self.clock.jumps());
        Status {
            cluster: self.config.name.clone(),
            node: entry.name.clone(),
            site: self.config.site_name(entry.site).to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            uptime_seconds: now.monotonic.since(self.started).0 as f64 / 1e6,
            ready: self.readiness().is_ok(),
            disk_free_bytes: free_bytes(&entry.data),
            keyspaces: keyspaces.collect(),
            links: links.collect(),
            streams: states.iter().flat_map(|state| self.streams_of(state)).collect(),
            groups: states.iter().flat_map(|state| self.groups_of(state)).collect(),
            log: LogStatus {
                bytes: self.node.log_bytes(),
                appended_bytes_total: self.node.appended_bytes(),
                syncs_total: self.syncs.load(Ordering::Relaxed),
            },
            memory: MemoryStatus {
                bytes: states.iter().map(|state| state.memory_bytes).sum(),
                limit_bytes: self.config.limits.memory_limit_bytes(),
            },
            clients: ClientsStatus {
                connected: self.clients.load(Ordering::Relaxed) as u64,
                memory_bytes: self.client_memory.used_bytes(),
                memory_limit_bytes: self.client_memory.limit_bytes(),
                memory_refusals_total: self.client_memory.refusals(),
                disconnected_for_memory_total: self.client_memory.shed(),
            },
            strangers: self.strangers.status(),
            admin_refused_total: self.guard.refused(),
            refused_total: self.audit.counts(),
            certificate_expires_unix_seconds: self.tls.as_ref().map(|tls| tls.valid_until()),
            users_file_refused_total: self.audit.bad_files(),
            clock: ClockStatus {
                away_seconds: jumps.away.0 as f64 / 1e6,
                jumps_total: jumps.total,
            },
            copies_received_total: self.node.copies_placed(),
            copy_bytes_received_total: self.node.copy_bytes_received(),
            partitions_repaired_total: self.node.partitions_repaired(),
            expired_keys_removed_total: self.node.expired_keys_removed(),
            checkpoint: CheckpointStatus {
                running: checkpoints.running,
                completed_total: checkpoints.completed,
                failed_total: checkpoints.failed,
                last_duration_seconds: checkpoints.last_took.0 as f64 / 1e6,
                age_seconds: checkpoints
                    .last_at
                    .map(|at| now.monotonic.since(at).0 as f64 / 1e6),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_sent_to_a_member_that_is_there() {
        let placement = Placement::new([0, 1, 0, 0].map(SiteId));
        let topology = Topology::new(vec!["a", "b"], 4, 2);
        let ask = |away: &[u16]| {
            let is_here = |node: NodeId| !away.contains(&node.0);
            let holders = holders(&topology, &placement, SiteId(0), is_here);
            holders.into_iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(ask(&[]), [0, 2, 3, 0]);
        assert_eq!(
            ask(&[2]),
            [0, 3, 3, 0],
            "the second member of partition 1 is on node 3"
        );
        assert_eq!(ask(&[2, 3]), [0, 2, 0, 0], "nobody is there for partition 1");
    }
}
