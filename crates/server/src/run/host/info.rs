//! What a node says of itself to Redis clients: `INFO`, and `CONFIG GET`.
use super::{Host, lock};
use crate::{
    admin::AdminSource,
    metrics::{ClientTotals, CommandTotals, Process},
    status::{LinkStatus, Status},
};
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::Micros;
use turnbuckle_resp::InfoSection;

/// The shortest time over which rates are averaged.
const RATES_OVER: Micros = Micros::from_millis(1_000);

/// What clients do per second: on average since an earlier `INFO`, which was at least [`RATES_OVER`] ago, or since the node's start. So nothing has to be
/// sampled while nobody asks.
pub(super) struct Rates {
    at: Micros,
    totals: ClientTotals,
    shown: PerSecond,
}

/// What clients do per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct PerSecond {
    commands: f64,
    received_bytes: f64,
    sent_bytes: f64,
}

impl Rates {
    /// Nothing was done before this time.
    pub fn since(at: Micros) -> Rates {
        Rates {
            at,
            totals: ClientTotals::default(),
            shown: PerSecond::default(),
        }
    }

    /// The rates at a time, on a clock that is never set back. `totals` is what clients have done until then.
    fn of(&mut self, now: Micros, totals: ClientTotals) -> PerSecond {
        let span = now.since(self.at);
        if span < RATES_OVER {
            return self.shown;
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 * 1e6 / span.0 as f64;
        let before = std::mem::replace(&mut self.totals, totals);
        self.at = now;
        self.shown = PerSecond {
            commands: rate(totals.commands, before.commands),
            received_bytes: rate(totals.received_bytes, before.received_bytes),
            sent_bytes: rate(totals.sent_bytes, before.sent_bytes),
        };
        self.shown
    }
}

impl Host {
    /// The sections of `INFO`.
    pub fn about_node(&self) -> Vec<InfoSection> {
        let line = |name: &str, value: String| (name.to_string(), value);
        let status = self.status();
        let uptime = status.uptime_seconds;
        let (clients, process) = (self.metrics.client_totals(), Process::now());
        let rates = lock(&self.rates).of(self.clock.monotonic(), clients);
        // What the system does not tell has no line.
        let known = |name: &str, value: Option<f64>| value.map(|value| (name.to_string(), value.to_string()));
        let keyspaces = status.keyspaces.iter().map(|keyspace| {
            (
                keyspace.name.clone(),
                format!(
                    "protocol={},partitions={},durability={}",
                    keyspace.protocol, keyspace.partitions, keyspace.durability
                ),
            )
        });
        vec![
            InfoSection {
                title: "Server".into(),
                lines: vec![
                    line("turnbuckle_version", status.version.clone()),
                    line("cluster", status.cluster.clone()),
                    line("site", status.site.clone()),
                    line("node", status.node.clone()),
                    line("os", std::env::consts::OS.to_string()),
                    line("arch_bits", usize::BITS.to_string()),
                    line("process_id", std::process::id().to_string()),
                    line("run_id", self.redis_id(&format!("run {}", self.identity.run))),
                    line("tcp_port", self.config.node(self.id).resp.port().to_string()),
                    line("uptime_in_seconds", format!("{uptime:.0}")),
                    line("uptime_in_days", format!("{:.0}", (uptime / 86_400.0).floor())),
                ],
            },
            InfoSection {
                title: "Replication".into(),
                lines: replication(&status),
            },
            InfoSection {
                title: "Clients".into(),
                lines: vec![
                    line("connected_clients", status.clients.connected.to_string()),
                    line("maxclients", self.config.limits.max_clients.to_string()),
                    // No command of Turnbuckle blocks.
                    line("blocked_clients", "0".into()),
                    line("client_memory", status.clients.memory_bytes.to_string()),
                    line(
                        "client_memory_limit",
                        status.clients.memory_limit_bytes.to_string(),
                    ),
                    line(
                        "client_memory_refusals",
                        status.clients.memory_refusals_total.to_string(),
                    ),
                    // As in Redis, where `maxmemory-clients` is the same idea.
                    line(
                        "evicted_clients",
                        status.clients.disconnected_for_memory_total.to_string(),
                    ),
                ],
            },
            InfoSection {
                title: "Memory".into(),
                lines: vec![
                    line("used_memory", status.memory.bytes.to_string()),
                    line("maxmemory", status.memory.limit_bytes.to_string()),
                    line("maxmemory_policy", "noeviction".into()),
                    line("mem_clients_normal", status.clients.memory_bytes.to_string()),
                ]
                .into_iter()
                .chain(known("used_memory_rss", process.resident_bytes))
                .collect(),
            },
            InfoSection {
                title: "Stats".into(),
                lines: vec![
                    line("total_connections_received", clients.accepted.to_string()),
                    line("rejected_connections", clients.refused.to_string()),
                    line("total_commands_processed", clients.commands.to_string()),
                    line("total_net_input_bytes", clients.received_bytes.to_string()),
                    line("total_net_output_bytes", clients.sent_bytes.to_string()),
                    line("keyspace_hits", clients.values_found.to_string()),
                    line("keyspace_misses", clients.values_missing.to_string()),
                    line("instantaneous_ops_per_sec", format!("{:.0}", rates.commands)),
                    line(
                        "instantaneous_input_kbps",
                        format!("{:.2}", rates.received_bytes / 1024.0),
                    ),
                    line(
                        "instantaneous_output_kbps",
                        format!("{:.2}", rates.sent_bytes / 1024.0),
                    ),
                    line("expired_keys", status.expired_keys_removed_total.to_string()),
                    // Nothing is evicted.
                    line("evicted_keys", "0".into()),
                    line("pubsub_channels", self.channels.names().len().to_string()),
                    line("pubsub_patterns", self.channels.count_patterns().to_string()),
                ],
            },
            InfoSection {
                title: "CPU".into(),
                lines: known("used_cpu_sys", process.system_seconds)
                    .into_iter()
                    .chain(known("used_cpu_user", process.user_seconds))
                    .collect(),
            },
            InfoSection {
                title: "Commandstats".into(),
                lines: self.command_stats(),
            },
            InfoSection {
                title: "Keyspace".into(),
                lines: self.numbered_keyspaces(&status),
            },
            InfoSection {
                title: "Keyspaces".into(),
                lines: keyspaces.collect(),
            },
        ]
    }

    /// The commands that were sent, in the form of Redis: refused ones are counted apart. Its `usec` is the time until operations were answered, which
    /// may be by other nodes.
    fn command_stats(&self) -> Vec<(String, String)> {
        let totals = turnbuckle_resp::command_names().zip(self.metrics.command_totals());
        let sent = totals.filter(|(_, totals)| totals.calls > 0);
        let line = |(name, totals): (&str, CommandTotals)| {
            let calls = totals.calls.saturating_sub(totals.refused);
            let each = totals.micros as f64 / calls.max(1) as f64;
            let stats = format!(
                "calls={calls},usec={},usec_per_call={each:.2},rejected_calls={},failed_calls={}",
                totals.micros, totals.refused, totals.failed
            );
            (format!("cmdstat_{name}"), stats)
        };
        sent.map(line).collect()
    }

    /// The keyspaces that have a number and keys, with how many keys this node holds. Where the site has several nodes, each of them holds some.
    fn numbered_keyspaces(&self, status: &Status) -> Vec<(String, String)> {
        let keys = |name: &str| {
            let keyspace = status.keyspaces.iter().find(|keyspace| keyspace.name == name);
            keyspace.map_or((0, 0), |keyspace| (keyspace.keys, keyspace.expiring_keys))
        };
        let numbered = self.config.keyspaces().filter_map(|(id, entry)| {
            let (keys, expires) = Some(keys(&entry.name)).filter(|&(keys, _)| keys > 0)?;
            let stats = format!("keys={keys},expires={expires},avg_ttl=0");
            Some((self.config.db(id)?, stats))
        });
        let by_number: BTreeMap<u16, String> = numbered.collect();
        let lines = by_number.into_iter();
        lines.map(|(db, stats)| (format!("db{db}"), stats)).collect()
    }

    /// The settings that `CONFIG GET` shows.
    pub fn about_config(&self) -> Vec<(String, String)> {
        let fsync = if self.syncs_by_interval {
            "everysec"
        } else {
            "always"
        };
        let numbers = self.config.keyspaces().filter_map(|(id, _)| self.config.db(id));
        let max_db = numbers.max().unwrap_or(0);
        let mut lines = vec![
            ("appendonly".to_string(), "yes".to_string()),
            ("appendfsync".to_string(), fsync.to_string()),
            ("databases".to_string(), (1 + max_db).to_string()),
            // Neither slow commands nor delays are logged: `SLOWLOG` and `LATENCY` answer as a Redis in which that is switched off.
            ("slowlog-log-slower-than".to_string(), "-1".to_string()),
            ("slowlog-max-len".to_string(), "0".to_string()),
            ("latency-monitor-threshold".to_string(), "0".to_string()),
            (
                "maxclients".to_string(),
                self.config.limits.max_clients.to_string(),
            ),
            (
                "maxmemory".to_string(),
                self.config.limits.memory_limit_bytes().to_string(),
            ),
            (
                "maxmemory-clients".to_string(),
                self.config.limits.client_memory_bytes().to_string(),
            ),
            (
                "proto-max-bulk-len".to_string(),
                self.config.limits.max_value_bytes.to_string(),
            ),
            ("save".to_string(), String::new()),
        ];
        lines.extend(
            self.config
                .limits
                .entries()
                .into_iter()
                .map(|(name, value, _)| (name.to_string(), value.to_string())),
        );
        lines
    }
}

/// A short form of `/status`: the links to the other sites, how far these are behind, and what waits at this node.
fn replication(status: &Status) -> Vec<(String, String)> {
    let sites: BTreeSet<&str> = status.links.iter().map(|link| link.site.as_str()).collect();
    let others = sites.into_iter().filter(|site| *site != status.site);
    let sites = others.map(|site| {
        let links: Vec<_> = status.links.iter().filter(|link| link.site == site).collect();
        let up = links.iter().filter(|link| link.up).count();
        let streams = || {
            let ours = status.streams.iter().filter(|stream| stream.from == status.site);
            ours.filter(|stream| stream.to == site)
        };
        let entries: u64 = streams().map(|stream| stream.lag_entries).sum();
        let seconds = streams().map(|stream| stream.lag_seconds).fold(0.0, f64::max);
        let links = links.len();
        (
            format!("site_{site}"),
            format!("links_up={up},links={links},lag_entries={entries},lag_seconds={seconds:.3}"),
        )
    });
    let near = status.links.iter().filter(|link| link.site == status.site);
    let near = near.map(|link| {
        let up = u8::from(link.up);
        (
            format!("node_{}", link.peer),
            format!("site={},link_up={up}", link.site),
        )
    });
    let keyspaces = status.keyspaces.iter().flat_map(|keyspace| {
        let parked = keyspace.parked_operations;
        let lacks = |link: &&LinkStatus| link.missing_there.contains(&keyspace.name);
        let without = status.links.iter().filter(lacks).count();
        let mut lines = keyspace.metric_lines();
        let of_node = lines.entry(format!("keyspace_{}", keyspace.name)).or_default();
        of_node.push(format!("parked_operations={parked},nodes_without={without}"));
        lines.into_iter().map(|(name, fields)| (name, fields.join(",")))
    });
    near.chain(sites).chain(keyspaces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{KeyspaceStatus, MetricStatus, MetricValue, MetricValues, StreamStatus};

    #[test]
    fn rates_are_averages_since_an_earlier_question() {
        let start = 30 * 86_400_000;
        let mut rates = Rates::since(Micros::from_millis(start));
        let totals = |commands| ClientTotals {
            commands,
            received_bytes: 10 * commands,
            sent_bytes: 100 * commands,
            ..ClientTotals::default()
        };
        let mut commands_at = |ms, commands| {
            rates
                .of(Micros::from_millis(start + ms), totals(commands))
                .commands
        };
        assert_eq!(commands_at(500, 9), 0.0, "too early");
        assert_eq!(commands_at(2_000, 10), 5.0);
        assert_eq!(commands_at(2_999, 900), 5.0, "too soon after that");
        assert_eq!(commands_at(4_000, 1_010), 500.0);
        let last = rates.of(Micros::from_millis(start + 14_000), totals(1_010));
        assert_eq!(last, PerSecond::default());
    }

    #[test]
    fn clients_are_told_of_links_lags_and_what_protocols_count() {
        let count = MetricValue::Count;
        let durations = MetricValue::Durations {
            count: 2,
            sum: 0.5,
            buckets: vec![(1.0, 2)],
        };
        let of_b = |value| MetricValues::BySite(BTreeMap::from([("b".to_string(), value)]));
        let metric = |values| MetricStatus {
            help: String::new(),
            values,
        };
        let link = |site: &str, up| LinkStatus {
            site: site.into(),
            up,
            ..LinkStatus::default()
        };
        let stream = |from: &str, to: &str, lag_entries, lag_seconds| StreamStatus {
            from: from.into(),
            to: to.into(),
            lag_entries,
            lag_seconds,
            ..StreamStatus::default()
        };
        let status = Status {
            site: "a".into(),
            links: vec![
                LinkStatus {
                    peer: "a2".into(),
                    ..link("a", true)
                },
                link("c", false),
                LinkStatus {
                    missing_there: vec!["carts".into()],
                    missing_here: vec!["list".into()],
                    ..link("b", true)
                },
                link("b", false),
            ],
            streams: vec![
                stream("a", "b", 2, 0.5),
                stream("a", "b", 3, 1.25),
                stream("b", "a", 9, 9.0),
            ],
            keyspaces: vec![KeyspaceStatus {
                name: "carts".into(),
                parked_operations: 1,
                metrics: BTreeMap::from([
                    ("elections_total".into(), metric(MetricValues::One(count(7)))),
                    ("hints_queued".into(), metric(of_b(count(3)))),
                    ("exchange_seconds".into(), metric(of_b(durations))),
                ]),
                ..KeyspaceStatus::default()
            }],
            ..Status::default()
        };
        let lines: Vec<String> = replication(&status)
            .into_iter()
            .map(|(name, value)| format!("{name}:{value}"))
            .collect();
        assert_eq!(
            lines,
            [
                "node_a2:site=a,link_up=1",
                "site_b:links_up=1,links=2,lag_entries=5,lag_seconds=1.250",
                "site_c:links_up=0,links=1,lag_entries=0,lag_seconds=0.000",
                "keyspace_carts:elections_total=7,parked_operations=1,nodes_without=1",
                "keyspace_carts_from_b:exchange_seconds_count=2,exchange_seconds_sum=0.500,hints_queued=3",
            ]
        );
    }
}
