//! `turnbuckle cluster`: the leaders of partitions.
use crate::failure::{Failure, environment, say, usage};
use clap::{Args, Subcommand};
use comfy_table::{Table, presets::NOTHING};
use std::time::Duration;
use turnbuckle_server::admin::{AdminClient, AdminClientError, Lead};
use turnbuckle_server::status::Status;

/// Shows how far replicas are, and moves leaders.
///
/// Each node says what it knows: of the leaders that its replicas follow, and of how far others are behind it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  turnbuckle cluster status --admin 127.0.0.1:7100,127.0.0.1:7101\n  \
                        turnbuckle cluster lead consensus --admin 127.0.0.1:7102"
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
    },
}

pub fn run(options: &Cluster) -> Result<(), Failure> {
    let client = |address: &String| AdminClient::new(address.clone(), Duration::from_secs(5));
    match &options.action {
        Action::Status => {
            let (mut all, mut silent) = (Vec::new(), None);
            for address in &options.admin {
                match client(address).status() {
                    Ok(status) => all.push(status),
                    Err(error) => silent = Some(error),
                }
            }
            // What the other nodes know is shown in any case.
            match options.json {
                true => say(&json(&all)?)?,
                false if all.is_empty() => {}
                false => say(&show(&all))?,
            }
            silent.map_or(Ok(()), |error| Err(failure(error)))
        }
        Action::Lead { keyspace, partition } => {
            let [address] = &options.admin[..] else {
                return Err(usage(
                    &"--admin: found several addresses; expected that of the node that is to lead",
                ));
            };
            let lead = Lead {
                keyspace: keyspace.clone(),
                partition: *partition,
            };
            let asked = client(address).lead(&lead).map_err(failure)?;
            match options.json {
                true => say(&json(&asked)?),
                false => say(&format!(
                    "{} replicas ask their leaders to let them lead; 'turnbuckle cluster status' shows who leads",
                    asked.replicas
                )),
            }
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| environment(&error))
}

fn failure(error: AdminClientError) -> Failure {
    match error {
        AdminClientError::Refused {
            status: 400..=407 | 409..=499,
            ..
        } => usage(&error.to_string()),
        error => environment(&error),
    }
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
            let leader = group.leader.clone().unwrap_or_else(|| "none".into());
            groups.add_row([
                group.keyspace.clone(),
                group.partition.to_string(),
                status.node.clone(),
                leader,
                group.term.to_string(),
                group.committed.to_string(),
                group.committed.saturating_sub(group.applied).to_string(),
            ]);
        }
        let own = status.streams.iter().filter(|stream| stream.from == status.site);
        for stream in own.filter(|stream| {
            !status
                .groups
                .iter()
                .any(|group| group.keyspace == stream.keyspace)
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
