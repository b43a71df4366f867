use super::{Exposition, Family, Kind, LevelLabel, LoopCounts, OperationKind, Snapshot, process};
use crate::status::{KeyspaceStatus, MetricStatus, MetricValue, MetricValues, Status, StreamStatus};
use std::{collections::BTreeMap, sync::Arc};

/// All families of a node, in a fixed order.
pub(super) fn render(
    keyspaces: &[String],
    loops: &[Arc<LoopCounts>],
    start_time_seconds: f64,
    status: &Status,
) -> String {
    let mut text = Exposition::new();
    text.family(
        "turnbuckle_info",
        Kind::Gauge,
        "The cluster, node, site and version, as labels; always 1.",
    )
    .sample(
        &[
            ("cluster", &status.cluster),
            ("node", &status.node),
            ("site", &status.site),
            ("version", &status.version),
        ],
        1.0,
    );
    text.family(
        "turnbuckle_ready",
        Kind::Gauge,
        "Whether the node is ready, as /readyz says it: 1 or 0.",
    )
    .sample(&[], f64::from(u8::from(status.ready)));
    operations(&mut text, keyspaces, loops);
    durations(&mut text, keyspaces, loops);
    clients(&mut text, loops);
    client_memory(&mut text, status);
    strangers(&mut text, status);
    users(&mut text, status);
    streams(&mut text, &status.streams);
    keyspaces_state(&mut text, status);
    own_metrics(&mut text, status);
    written(&mut text, status);
    links(&mut text, status);
    clock(&mut text, status);
    storage(&mut text, status);
    process::render(&mut text, start_time_seconds);
    text.finish()
}

fn operations(text: &mut Exposition, keyspaces: &[String], loops: &[Arc<LoopCounts>]) {
    let mut sums = BTreeMap::new();
    for (keyspace, kind, level, outcome, count) in loops.iter().flat_map(|counts| counts.operations()) {
        let (_, _, _, sum) = sums
            .entry((keyspace, kind as usize, level as usize, outcome as usize))
            .or_insert((kind, level, outcome, 0));
        *sum += count;
    }
    let help = "Operations that ended, by what they did, the level they named and how they ended.";
    let mut family = text.family("turnbuckle_operations_total", Kind::Counter, help);
    for ((keyspace, ..), (kind, level, outcome, count)) in sums {
        let [keyspace, operation, level] = labels(keyspaces, keyspace, kind, level);
        family.sample(
            &[keyspace, operation, level, ("outcome", outcome.label())],
            count as f64,
        );
    }
}

fn durations(text: &mut Exposition, keyspaces: &[String], loops: &[Arc<LoopCounts>]) {
    let mut sums = BTreeMap::new();
    for (keyspace, kind, level, histogram) in loops.iter().flat_map(|counts| counts.durations()) {
        let (_, _, sum) = sums.entry((keyspace, kind as usize, level as usize)).or_insert((
            kind,
            level,
            Snapshot::default(),
        ));
        histogram.add_to(sum);
    }
    let help = "How long operations took, from the command's arrival to its reply.";
    let mut family = text.family("turnbuckle_operation_duration_seconds", Kind::Histogram, help);
    for ((keyspace, ..), (kind, level, sum)) in sums {
        family.histogram(&labels(keyspaces, keyspace, kind, level), &sum);
    }
}

fn labels(
    keyspaces: &[String],
    keyspace: usize,
    kind: OperationKind,
    level: LevelLabel,
) -> [(&'static str, &str); 3] {
    [
        ("keyspace", &keyspaces[keyspace]),
        ("operation", kind.label()),
        ("level", level.label()),
    ]
}

fn clients(text: &mut Exposition, loops: &[Arc<LoopCounts>]) {
    let sum = |value: fn(&LoopCounts) -> u64| loops.iter().map(|counts| value(counts)).sum::<u64>() as f64;
    let mut family = |name, kind, help, value| {
        text.family(name, kind, help).sample(&[], value);
    };
    family(
        "turnbuckle_connected_clients",
        Kind::Gauge,
        "Clients that are connected.",
        sum(LoopCounts::connected_clients),
    );
    family(
        "turnbuckle_clients_total",
        Kind::Counter,
        "Clients that have connected.",
        sum(|counts| counts.clients_accepted.value()),
    );
    family(
        "turnbuckle_clients_refused_total",
        Kind::Counter,
        "Clients that were refused because max_clients were connected, or because the node has no users and is protected.",
        sum(|counts| counts.clients_refused.value()),
    );
    family(
        "turnbuckle_commands_total",
        Kind::Counter,
        "Commands of clients that were executed or refused.",
        sum(|counts| counts.commands.value()),
    );
    family(
        "turnbuckle_client_received_bytes_total",
        Kind::Counter,
        "Bytes that came from clients.",
        sum(|counts| counts.received_bytes.value()),
    );
    family(
        "turnbuckle_client_sent_bytes_total",
        Kind::Counter,
        "Bytes that went to clients.",
        sum(|counts| counts.sent_bytes.value()),
    );
    family(
        "turnbuckle_messages_total",
        Kind::Counter,
        "Messages to channels that clients were sent.",
        sum(|counts| counts.messages.value()),
    );
    family(
        "turnbuckle_messages_lost_total",
        Kind::Counter,
        "Messages to channels that were lost at this node: its site did not have in time what their publishers had seen, too many waited, or another node could not be reached (once for each).",
        sum(|counts| counts.lost_messages.value()),
    );
}

fn client_memory(text: &mut Exposition, status: &Status) {
    let clients = &status.clients;
    for (name, kind, help, value) in [
        (
            "turnbuckle_client_memory_bytes",
            Kind::Gauge,
            "Memory for unfinished commands and unread replies of all clients.",
            clients.memory_bytes,
        ),
        (
            "turnbuckle_client_memory_limit_bytes",
            Kind::Gauge,
            "The most memory that the process may use for that. Clients are given two thirds of it.",
            clients.memory_limit_bytes,
        ),
        (
            "turnbuckle_client_memory_refusals_total",
            Kind::Counter,
            "How often a client had to wait, or was refused a reply, because this memory had no room.",
            clients.memory_refusals_total,
        ),
        (
            "turnbuckle_clients_disconnected_for_memory_total",
            Kind::Counter,
            "Clients that were disconnected to free memory for other clients.",
            clients.disconnected_for_memory_total,
        ),
    ] {
        text.family(name, kind, help).sample(&[], value as f64);
    }
}

fn strangers(text: &mut Exposition, status: &Status) {
    let strangers = &status.strangers;
    for (name, kind, help, value) in [
        (
            "turnbuckle_strangers",
            Kind::Gauge,
            "Connections to the port for peers that have not proven yet that they come from a peer.",
            strangers.unknown,
        ),
        (
            "turnbuckle_strangers_refused_total",
            Kind::Counter,
            "Connections to the port for peers that were refused.",
            strangers.refused_total,
        ),
        (
            "turnbuckle_strangers_evicted_total",
            Kind::Counter,
            "Connections to the port for peers that were closed to make room for newer ones.",
            strangers.evicted_total,
        ),
        (
            "turnbuckle_admin_refused_total",
            Kind::Counter,
            "Requests to the admin address that were refused: for a foreign host, of a foreign web page, or without the right token.",
            status.admin_refused_total,
        ),
    ] {
        text.family(name, kind, help).sample(&[], value as f64);
    }
}

fn users(text: &mut Exposition, status: &Status) {
    let help = "What was refused to clients because of their user, by the reason.";
    let mut family = text.family("turnbuckle_refused_total", Kind::Counter, help);
    for (reason, count) in &status.refused_total {
        family.sample(&[("reason", reason)], *count as f64);
    }
    let help = "Times the file of the users was read again and refused for a mistake, so that the users stayed as they were.";
    text.family("turnbuckle_users_file_refused_total", Kind::Counter, help)
        .sample(&[], status.users_file_refused_total as f64);
}

/// The partitions of a keyspace together: the age of the oldest entry of all, and the number of entries.
fn streams(text: &mut Exposition, streams: &[StreamStatus]) {
    let mut lags: BTreeMap<[&str; 3], (f64, u64)> = BTreeMap::new();
    for stream in streams {
        let lag = lags
            .entry([&stream.keyspace, &stream.from, &stream.to])
            .or_default();
        lag.0 = lag.0.max(stream.lag_seconds);
        lag.1 += stream.lag_entries;
    }
    let help = "Age of the oldest entry that the other site has not acknowledged; 0 if there is none.";
    let mut family = text.family("turnbuckle_replication_lag_seconds", Kind::Gauge, help);
    for ([keyspace, from, to], (seconds, _)) in &lags {
        family.sample(&[("keyspace", keyspace), ("from", from), ("to", to)], *seconds);
    }
    let help = "Entries that the other site has not acknowledged.";
    let mut family = text.family("turnbuckle_replication_lag_entries", Kind::Gauge, help);
    for ([keyspace, from, to], (_, entries)) in &lags {
        family.sample(
            &[("keyspace", keyspace), ("from", from), ("to", to)],
            *entries as f64,
        );
    }
}

fn keyspaces_state(text: &mut Exposition, status: &Status) {
    let help = "Operations that wait: for something to become visible, for a clock, or for a key from disk.";
    let mut family = text.family("turnbuckle_parked_operations", Kind::Gauge, help);
    for keyspace in &status.keyspaces {
        family.sample(&[("keyspace", &keyspace.name)], keyspace.parked_operations as f64);
    }
    let help = "How far back deletes are remembered, because some site may not show them yet. It grows while a site is away.";
    let mut family = text.family("turnbuckle_deletes_kept_seconds", Kind::Gauge, help);
    for keyspace in &status.keyspaces {
        if let Some(seconds) = keyspace.deletes_kept_seconds {
            family.sample(&[("keyspace", &keyspace.name)], seconds);
        }
    }
    let help = "Keys whose delete is remembered until every site shows it and a checkpoint has followed.";
    let mut family = text.family("turnbuckle_deletes_waiting", Kind::Gauge, help);
    for keyspace in &status.keyspaces {
        family.sample(&[("keyspace", &keyspace.name)], keyspace.deletes_waiting as f64);
    }
    let help =
        "Keys of this node's partitions that have a value. One that has expired counts until it is removed.";
    let mut family = text.family("turnbuckle_keys", Kind::Gauge, help);
    for keyspace in &status.keyspaces {
        family.sample(&[("keyspace", &keyspace.name)], keyspace.keys as f64);
    }
    let help = "Keys of this node's partitions whose value expires at some time. One that has expired counts until it is removed.";
    let mut family = text.family("turnbuckle_expiring_keys", Kind::Gauge, help);
    for keyspace in &status.keyspaces {
        family.sample(&[("keyspace", &keyspace.name)], keyspace.expiring_keys as f64);
    }
    let help = "1 if the data directory is an old copy, so that nothing is served: empty it and start the node again.";
    let mut family = text.family("turnbuckle_directory_outdated", Kind::Gauge, help);
    for keyspace in &status.keyspaces {
        let outdated = f64::from(u8::from(keyspace.directory_outdated));
        family.sample(&[("keyspace", &keyspace.name)], outdated);
    }
    let help = "Partitions of this node with damaged rows on disk that other sites have not restored yet.";
    let mut family = text.family("turnbuckle_damaged_partitions", Kind::Gauge, help);
    for keyspace in &status.keyspaces {
        family.sample(&[("keyspace", &keyspace.name)], keyspace.damage.len() as f64);
    }
}

/// The metrics that protocols count themselves. Two protocols may count the same: a family has the samples of all keyspaces.
fn own_metrics(text: &mut Exposition, status: &Status) {
    let mut families: BTreeMap<&str, Vec<(&str, &MetricStatus)>> = BTreeMap::new();
    for keyspace in &status.keyspaces {
        for (name, metric) in &keyspace.metrics {
            families.entry(name).or_default().push((&keyspace.name, metric));
        }
    }
    for (name, metrics) in families {
        let (_, first) = metrics[0];
        let full_name = format!("turnbuckle_{name}");
        let mut family = text.family(&full_name, kind_of(name, first), &first.help);
        for (keyspace, metric) in metrics {
            for (site, value) in metric.values() {
                let mut labels = vec![("keyspace", keyspace)];
                let here = status.site.as_str();
                labels.extend(site.into_iter().flat_map(|site| match metric.values {
                    MetricValues::ToSite(_) => [("from", here), ("to", site)],
                    _ => [("from", site), ("to", here)],
                }));
                sample(&mut family, &labels, value);
            }
        }
    }
}

fn kind_of(name: &str, metric: &MetricStatus) -> Kind {
    match metric.values().first() {
        Some((_, MetricValue::Durations { .. })) => Kind::Histogram,
        _ if name.ends_with("_total") => Kind::Counter,
        _ => Kind::Gauge,
    }
}

fn sample(family: &mut Family<'_>, labels: &[(&str, &str)], value: &MetricValue) {
    match value {
        MetricValue::Count(count) => {
            family.sample(labels, *count as f64);
        }
        MetricValue::Seconds(seconds) => {
            family.sample(labels, *seconds);
        }
        MetricValue::Durations { count, sum, buckets } => family.cumulative(labels, buckets, *sum, *count),
    }
}

fn written(text: &mut Exposition, status: &Status) {
    let mut family = |name, help, value: fn(&KeyspaceStatus) -> u64| {
        let mut family = text.family(name, Kind::Counter, help);
        for keyspace in &status.keyspaces {
            family.sample(&[("keyspace", &keyspace.name)], value(keyspace) as f64);
        }
    };
    family(
        "turnbuckle_versions_written_total",
        "Versions that were written on this node, deletes among them.",
        |keyspace| keyspace.versions_written_total,
    );
    family(
        "turnbuckle_version_metadata_bytes_total",
        "Bytes that the protocol keeps with the versions that were written on this node, as they are stored and sent.",
        |keyspace| keyspace.metadata_bytes_total,
    );
}

fn links(text: &mut Exposition, status: &Status) {
    let mut family = |name, kind, help, value: fn(&crate::status::LinkStatus) -> f64| {
        let mut family = text.family(name, kind, help);
        for link in &status.links {
            family.sample(&[("peer", &link.peer)], value(link));
        }
    };
    family(
        "turnbuckle_link_up",
        Kind::Gauge,
        "Whether the peer is connected.",
        |link| f64::from(u8::from(link.up)),
    );
    family(
        "turnbuckle_link_missing_keyspaces",
        Kind::Gauge,
        "Keyspaces that this node has and the connected peer does not.",
        |link| link.missing_there.len() as f64,
    );
    family(
        "turnbuckle_link_connections_total",
        Kind::Counter,
        "Connections to the peer that were made.",
        |link| link.connections_total as f64,
    );
    family(
        "turnbuckle_link_sent_bytes_total",
        Kind::Counter,
        "Bytes sent to the peer.",
        |link| link.sent_bytes_total as f64,
    );
    family(
        "turnbuckle_link_received_bytes_total",
        Kind::Counter,
        "Bytes that came from the peer.",
        |link| link.received_bytes_total as f64,
    );
    family(
        "turnbuckle_link_held_bytes",
        Kind::Gauge,
        "Bytes for the peer that are held back, for the WAN delay or because it does not keep up.",
        |link| link.held_bytes as f64,
    );
}

fn clock(text: &mut Exposition, status: &Status) {
    let help = "How far the machine's wall clock is from the time that the node uses; more than clock_bound_ms is wrong.";
    text.family("turnbuckle_clock_away_seconds", Kind::Gauge, help)
        .sample(&[], status.clock.away_seconds);
    let help = "How often the machine's wall clock was set by more than clock_bound_ms.";
    text.family("turnbuckle_clock_jumps_total", Kind::Counter, help)
        .sample(&[], status.clock.jumps_total as f64);
}

fn storage(text: &mut Exposition, status: &Status) {
    let Status {
        log,
        memory,
        checkpoint,
        ..
    } = status;
    let mut family = |name, kind, help, value| {
        text.family(name, kind, help).sample(&[], value);
    };
    family(
        "turnbuckle_expired_keys_removed_total",
        Kind::Counter,
        "Keys that were removed because their value had expired.",
        status.expired_keys_removed_total as f64,
    );
    family(
        "turnbuckle_partitions_repaired_total",
        Kind::Counter,
        "Partitions whose damaged rows other sites have restored.",
        status.partitions_repaired_total as f64,
    );
    family(
        "turnbuckle_copies_received_total",
        Kind::Counter,
        "Full copies of other replicas' data that the node has put in place.",
        status.copies_received_total as f64,
    );
    family(
        "turnbuckle_copy_bytes_received_total",
        Kind::Counter,
        "Rows of full copies that have arrived, in bytes.",
        status.copy_bytes_received_total as f64,
    );
    if let Some(expires) = status.certificate_expires_unix_seconds {
        family(
            "turnbuckle_certificate_expires_seconds",
            Kind::Gauge,
            "The last second at which peers accept the node's certificate, since 1970.",
            expires as f64,
        );
    }
    if let Some(free) = status.disk_free_bytes {
        family(
            "turnbuckle_disk_free_bytes",
            Kind::Gauge,
            "Free bytes of the disk that the data directory is on.",
            free as f64,
        );
    }
    family(
        "turnbuckle_log_bytes",
        Kind::Gauge,
        "Size of the commit log that is kept.",
        log.bytes as f64,
    );
    family(
        "turnbuckle_log_appended_bytes_total",
        Kind::Counter,
        "Bytes appended to the commit log.",
        log.appended_bytes_total as f64,
    );
    family(
        "turnbuckle_log_syncs_total",
        Kind::Counter,
        "How often the commit log was synced to disk.",
        log.syncs_total as f64,
    );
    family(
        "turnbuckle_memory_bytes",
        Kind::Gauge,
        "Memory taken by versions.",
        memory.bytes as f64,
    );
    family(
        "turnbuckle_memory_limit_bytes",
        Kind::Gauge,
        "Memory that versions may take.",
        memory.limit_bytes as f64,
    );
    family(
        "turnbuckle_checkpoints_total",
        Kind::Counter,
        "Checkpoints that were completed.",
        checkpoint.completed_total as f64,
    );
    family(
        "turnbuckle_checkpoint_failures_total",
        Kind::Counter,
        "Checkpoints that failed.",
        checkpoint.failed_total as f64,
    );
    family(
        "turnbuckle_checkpoint_running",
        Kind::Gauge,
        "Whether a checkpoint is being written.",
        f64::from(u8::from(checkpoint.running)),
    );
    family(
        "turnbuckle_checkpoint_duration_seconds",
        Kind::Gauge,
        "How long the last checkpoint took.",
        checkpoint.last_duration_seconds,
    );
    if let Some(age_seconds) = checkpoint.age_seconds {
        family(
            "turnbuckle_checkpoint_age_seconds",
            Kind::Gauge,
            "How long ago the last checkpoint was completed.",
            age_seconds,
        );
    }
}
