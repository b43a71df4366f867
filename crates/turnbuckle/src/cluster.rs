//! `turnbuckle cluster`: the leaders and the members of partitions that elect leaders.
//!
//! What is asked for takes time: a leader hands over when the next one has everything, and a new voter first takes everything. So the command asks again every 200 ms, and looks at what the nodes
//! know, until that is what was wanted.
use crate::admin::{Access, client, failure};
use crate::bench::parse_duration;
use crate::failure::{Failure, environment, say, tell, usage};
use clap::{Args, Subcommand};
use comfy_table::{Table, presets::NOTHING};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_server::admin::{AdminClient, AdminClientError, ChangeMembers, Lead};
use turnbuckle_server::status::{GroupStatus, Status};

/// How often a node is asked whether something has happened.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Shows how far replicas are, moves leaders, and changes who votes.
///
/// Each node says what it knows: of the leaders that its replicas follow, and of how far others are behind it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  turnbuckle cluster status --admin 127.0.0.1:7100,127.0.0.1:7101\n  \
                        turnbuckle cluster lead consensus --admin 127.0.0.1:7102\n  \
                        turnbuckle cluster member remove c --keyspace consensus --admin 127.0.0.1:7100,127.0.0.1:7101\n  \
                        turnbuckle cluster member remove a3 --keyspace regional --admin 127.0.0.1:7100,127.0.0.1:7101"
)]
pub struct Cluster {
    /// The admin addresses of nodes. 'lead' takes one.
    #[arg(
        long,
        value_name = "HOST:PORT,..",
        value_delimiter = ',',
        default_value = "127.0.0.1:7100",
        env = "TURNBUCKLE_ADMIN",
        global = true
    )]
    admin: Vec<String>,
    #[command(flatten)]
    access: Access,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows the leader of each partition that elects one, and the lag of each replication stream.
    Status,
    /// Makes the node's replicas of a keyspace lead their partitions.
    Lead {
        /// The keyspace.
        keyspace: String,
        /// The partition; without it, all that the node has.
        #[arg(long)]
        partition: Option<u16>,
        #[command(flatten)]
        patience: Patience,
    },
    /// Changes which replicas take part in the groups of a keyspace, while they serve: those of a site, or those of a node.
    Member {
        #[command(subcommand)]
        change: Change,
    },
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Makes the replicas of a site or node voters, or learners: these take all writes, and no write waits for them.
    Add {
        /// The site, or the node.
        #[arg(value_name = "SITE|NODE")]
        of: String,
        /// As learners.
        #[arg(long)]
        learner: bool,
        #[command(flatten)]
        groups: Groups,
    },
    /// Lets the replicas of a site or node take no part any more. Their clients are served by other replicas.
    Remove {
        /// The site, or the node.
        #[arg(value_name = "SITE|NODE")]
        of: String,
        #[command(flatten)]
        groups: Groups,
    },
    /// Puts the replicas of one site or node in the place of another's, in one step.
    Replace {
        /// The site or node whose replicas take no part any more.
        #[arg(value_name = "SITE|NODE")]
        old: String,
        /// The site or node whose replicas vote from then on.
        #[arg(value_name = "SITE|NODE")]
        new: String,
        #[command(flatten)]
        groups: Groups,
    },
}

#[derive(Debug, Args)]
struct Groups {
    /// The keyspace.
    #[arg(long)]
    keyspace: String,
    /// The partition; without it, all.
    #[arg(long)]
    partition: Option<u16>,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Debug, Args)]
struct Patience {
    /// How long to wait for it, such as 90s or 5m.
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = parse_duration)]
    within: Duration,
}

pub fn run(options: &Cluster) -> Result<(), Failure> {
    let access = options.access.open()?;
    let nodes = options.admin.iter().map(|address| client(address, &access));
    let nodes: Vec<AdminClient> = nodes.collect();
    match &options.action {
        Action::Status => {
            let (all, silent) = ask_all(&nodes);
            // What the other nodes know is shown in any case.
            match options.json {
                true => say(&json(&all)?)?,
                false if all.is_empty() => {}
                false => say(&show(&all))?,
            }
            silent.map_or(Ok(()), |error| Err(failure(error)))
        }
        Action::Lead {
            keyspace,
            partition,
            patience,
        } => lead(options, &nodes, keyspace, *partition, patience),
        Action::Member { change } => change_members(options, &nodes, change),
    }
}

/// What all nodes say that answer, and why one did not.
fn ask_all(nodes: &[AdminClient]) -> (Vec<Status>, Option<AdminClientError>) {
    let (mut all, mut silent) = (Vec::new(), None);
    for node in nodes {
        match node.status() {
            Ok(status) => all.push(status),
            Err(error) => silent = Some(error),
        }
    }
    (all, silent)
}

/// The leaders are moved to one node.
fn lead(
    options: &Cluster,
    nodes: &[AdminClient],
    keyspace: &str,
    partition: Option<u16>,
    patience: &Patience,
) -> Result<(), Failure> {
    let [node] = nodes else {
        return Err(usage(
            &"--admin: found several addresses; expected that of the node that is to lead",
        ));
    };
    let wanted = Lead {
        keyspace: keyspace.to_string(),
        partition,
    };
    let groups = until(patience, || {
        node.lead(&wanted).map_err(failure)?;
        let status = node.status().map_err(failure)?;
        let here = |group: &GroupStatus| {
            group.keyspace == keyspace && partition.is_none_or(|one| one == group.partition)
        };
        let groups: Vec<GroupStatus> = status
            .groups
            .iter()
            .filter(|group| here(group))
            .cloned()
            .collect();
        let others = groups.iter().filter(|group| !group.leads);
        let others: Vec<String> = others.map(|group| not_leading(&status, group)).collect();
        Ok(match others.is_empty() {
            true => Ok(groups),
            false => Err(others.join("; ")),
        })
    })?;
    match options.json {
        true => say(&json(&groups)?),
        false => say(&format!("the node leads {}", count(groups.len(), "partition"))),
    }
}

fn not_leading(status: &Status, group: &GroupStatus) -> String {
    let partition = group.partition;
    match &group.leader {
        Some(leader) => format!(
            "partition {partition} is led from {}",
            called(status, group, leader)
        ),
        None if group.takes_no_part => {
            format!("partition {partition}: the replica of this node takes no part in its group")
        }
        None => format!("partition {partition} has no leader that this node knows"),
    }
}

/// The name of a replica for operators: that of its node, where each site has groups of its own. There, commands are given nodes.
fn called<'a>(status: &Status, group: &'a GroupStatus, replica: &'a str) -> &'a str {
    let mut keyspaces = status.keyspaces.iter();
    let keyspace = keyspaces.find(|keyspace| keyspace.name == group.keyspace);
    let protocol = keyspace.and_then(|keyspace| KnownProtocol::named(&keyspace.protocol));
    let node = group.replicas.get(replica);
    match protocol.is_some_and(|protocol| protocol.descriptor().agrees_by_site) {
        true => node.map_or(replica, |node| node),
        false => replica,
    }
}

fn change_members(options: &Cluster, nodes: &[AdminClient], change: &Change) -> Result<(), Failure> {
    let (changes, named) = match change {
        Change::Add { of, learner, groups } => {
            let what = if *learner { "learner" } else { "voter" };
            (vec![(of, what)], groups)
        }
        Change::Remove { of, groups } => (vec![(of, "none")], groups),
        Change::Replace { old, new, .. } if old == new => {
            return Err(usage(
                &"expected two sites or two nodes; found the same one twice",
            ));
        }
        Change::Replace { old, new, groups } => (vec![(old, "none"), (new, "voter")], groups),
    };
    let changes: BTreeMap<String, String> = changes
        .iter()
        .map(|(of, what)| (of.to_string(), what.to_string()))
        .collect();
    let wanted = ChangeMembers {
        keyspace: named.keyspace.clone(),
        partition: named.partition,
        replicas_of: changes.clone(),
    };
    // Where each site has a group of its own, the groups of other sites are not meant.
    let is_meant = |group: &GroupStatus| {
        group.keyspace == named.keyspace
            && named.partition.is_none_or(|one| one == group.partition)
            && changes.keys().any(|of| !replicas_of(group, of).is_empty())
    };
    // The word of the leaders counts, and a refused request is refused at once.
    let look = || {
        let (all, silent) = ask_all(nodes);
        if all.is_empty() {
            return Err(silent.map_or(usage(&"--admin: expected an address"), failure));
        }
        let known = all
            .iter()
            .flat_map(|status| &status.groups)
            .filter(|group| is_meant(group));
        let groups: BTreeSet<GroupName> = known.clone().map(GroupName::of).collect();
        let mut leaders: BTreeMap<GroupName, GroupStatus> = BTreeMap::new();
        for group in known.filter(|group| group.leads) {
            let newest = leaders
                .entry(GroupName::of(group))
                .or_insert_with(|| group.clone());
            if newest.term < group.term {
                *newest = group.clone();
            }
        }
        Ok((groups, leaders))
    };
    let ask_for_it = || {
        let (mut is_begun, mut refused) = (false, None);
        for node in nodes {
            match node.change_members(&wanted) {
                Ok(_) => is_begun = true,
                Err(error @ AdminClientError::Refused { .. }) => refused = Some(error),
                // The leaders may be on other nodes.
                Err(_) => {}
            }
        }
        match refused {
            Some(error) if is_begun => Err(usage(&format!(
                "{error}. Other nodes took the request, so the change may have begun"
            ))),
            Some(error) => Err(failure(error)),
            None => Ok(()),
        }
    };
    let (groups, leaders) = look()?;
    let is_done = |group: &GroupStatus| is_done(group, &changes);
    // A name without replicas is refused below, by the nodes.
    let has_replicas = |of: &String| leaders.values().any(|group| !replicas_of(group, of).is_empty());
    let are_named = !leaders.is_empty() && changes.keys().all(has_replicas);
    if are_named && groups.iter().all(|one| leaders.get(one).is_some_and(is_done)) {
        return Err(usage(&format!(
            "nothing to change: in every partition of {} that these nodes have, {}",
            named.keyspace,
            words(&changes)
        )));
    }
    // A voter that is to take another's place must not be one already: the group would have one voter less.
    if let Change::Replace { new, .. } = change {
        let votes = |group: &&GroupStatus| {
            let replicas = replicas_of(group, new);
            !replicas.is_empty() && replicas.iter().all(|replica| group.voters.contains(replica))
        };
        if let Some(group) = leaders.values().filter(|group| !is_done(group)).find(votes) {
            return Err(usage(&format!(
                "partition {}: {new} votes already; expected one that does not, or 'member remove'",
                group.partition
            )));
        }
    }
    let leaders = until(&named.patience, || {
        ask_for_it()?;
        let (groups, leaders) = look()?;
        if groups.is_empty() {
            let names: Vec<&str> = changes.keys().map(String::as_str).collect();
            return Err(usage(&format!(
                "--admin: these nodes have no replica of a group with replicas of {}; expected the addresses of nodes that have",
                names.join(", ")
            )));
        }
        let refused = leaders
            .values()
            .find(|leader| leader.refused_for_good && !is_done(leader));
        if let Some((leader, why)) = refused.and_then(|leader| Some((leader, leader.refusal.as_ref()?))) {
            return Err(usage(&format!("partition {}: {why}", leader.partition)));
        }
        let waits = groups.iter().filter_map(|name| match leaders.get(name) {
            Some(leader) if is_done(leader) => None,
            Some(leader) => Some(match &leader.refusal {
                Some(why) => format!("partition {}: {why}", name.partition),
                None => format!("partition {} is being changed", name.partition),
            }),
            None => Some(format!(
                "partition {} has no leader on these nodes: --admin has to name the node of the leader",
                name.partition
            )),
        });
        let waits: Vec<String> = waits.collect();
        Ok(match waits.is_empty() {
            true => Ok(leaders),
            false => Err(waits.join("; ")),
        })
    })?;
    match options.json {
        true => say(&json(&leaders.values().collect::<Vec<_>>())?)?,
        false => say(&format!(
            "{}: {}",
            count(leaders.len(), "partition"),
            words(&changes)
        ))?,
    }
    if let Some(warning) = warning(leaders.values()) {
        tell(&warning);
    }
    Ok(())
}

/// What an operator should know of groups that have one voter left.
fn warning<'a>(leaders: impl Iterator<Item = &'a GroupStatus>) -> Option<String> {
    let alone = leaders.filter(|group| group.voters.len() == 1).count();
    (alone > 0).then(|| {
        format!(
            "warning: one voter is left in {}{}: if its data directory is lost, acknowledged writes that no other replica has are lost, or the partition \
             never serves again",
            if alone == 1 { "" } else { "each of " },
            count(alone, "partition")
        )
    })
}

/// What tells a group from others: where each site has one of its own, a partition has several.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupName {
    partition: u16,
    /// The first of its replicas.
    first: Option<String>,
}

impl GroupName {
    fn of(group: &GroupStatus) -> GroupName {
        GroupName {
            partition: group.partition,
            first: group.replicas.keys().next().cloned(),
        }
    }
}

/// The replicas of a group that are at a site of this name; without one, those on a node of this name.
fn replicas_of<'a>(group: &'a GroupStatus, name: &str) -> Vec<&'a String> {
    let at_site = group.replicas.keys();
    let at_site: Vec<&String> = at_site
        .filter(|replica| replica.split('/').next() == Some(name))
        .collect();
    if !at_site.is_empty() {
        return at_site;
    }
    let on_node = group.replicas.iter().filter(|(_, node)| *node == name);
    on_node.map(|(replica, _)| replica).collect()
}

/// Whether the replicas are what they are to be.
fn is_done(group: &GroupStatus, changes: &BTreeMap<String, String>) -> bool {
    let is_so = |(of, what): (&String, &String)| {
        let replicas = replicas_of(group, of);
        let all = |names: &[String], are: bool| replicas.iter().all(|replica| names.contains(replica) == are);
        all(&group.voters, what == "voter") && all(&group.learners, what == "learner")
    };
    group.voters_before.is_empty() && changes.iter().all(is_so)
}

fn words(changes: &BTreeMap<String, String>) -> String {
    let words = changes.iter().map(|(of, what)| match &**what {
        "voter" => format!("{of} votes"),
        "learner" => format!("{of} learns and does not vote"),
        _ => format!("{of} takes no part"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

/// Asks again and again until it is so. The inner error says what it waits for.
fn until<T>(
    patience: &Patience,
    mut ask: impl FnMut() -> Result<Result<T, String>, Failure>,
) -> Result<T, Failure> {
    let end = Instant::now() + patience.within;
    loop {
        match ask()? {
            Ok(found) => return Ok(found),
            Err(why) if Instant::now() >= end => {
                let within = patience.within;
                return Err(environment(&format!("not done within {within:?}: {why}")));
            }
            Err(_) => std::thread::sleep(ASK_EVERY),
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| environment(&error))
}

/// Two tables: the groups, and the streams.
fn show(all: &[Status]) -> String {
    let mut groups = Table::new();
    groups.load_style(NOTHING);
    groups.set_header([
        "keyspace",
        "partition",
        "at",
        "leader",
        "term",
        "committed",
        "to apply",
        "voters",
        "learners",
    ]);
    let mut streams = Table::new();
    streams.load_style(NOTHING);
    streams.set_header([
        "keyspace",
        "partition",
        "from",
        "to",
        "state",
        "entries behind",
        "seconds behind",
    ]);
    for status in all {
        for group in &status.groups {
            let leader = match &group.leader {
                _ if group.takes_no_part => "takes no part",
                Some(leader) => called(status, group, leader),
                None => "none",
            };
            let names = |replicas: &[String]| {
                let names = replicas.iter().map(|replica| called(status, group, replica));
                names.collect::<Vec<_>>().join(" ")
            };
            let mut voters = names(&group.voters);
            if !group.voters_before.is_empty() {
                voters = format!("{voters}, and before {}", names(&group.voters_before));
            }
            groups.add_row([
                group.keyspace.clone(),
                group.partition.to_string(),
                status.node.clone(),
                leader.to_string(),
                group.term.to_string(),
                group.committed.to_string(),
                group.committed.saturating_sub(group.applied).to_string(),
                voters,
                names(&group.learners),
            ]);
        }
        let own = status.streams.iter().filter(|stream| stream.from == status.site);
        for stream in own.filter(|stream| {
            // Between the replicas of a group, streams carry full copies only.
            let of_group = |group: &&GroupStatus| group.keyspace == stream.keyspace;
            let mut groups = status.groups.iter().filter(of_group);
            !groups.any(|group| !replicas_of(group, &stream.to).is_empty())
        }) {
            streams.add_row([
                stream.keyspace.clone(),
                stream.partition.to_string(),
                stream.from.clone(),
                stream.to.clone(),
                stream.state.clone(),
                stream.lag_entries.to_string(),
                format!("{:.3}", stream.lag_seconds),
            ]);
        }
    }
    let tables = [("groups", groups), ("streams", streams)];
    let shown = tables
        .iter()
        .filter(|(_, table)| !table.is_empty())
        .map(|(name, table)| format!("{name}\n{}", table.trim_fmt()));
    shown.collect::<Vec<_>>().join("\n\n")
}
