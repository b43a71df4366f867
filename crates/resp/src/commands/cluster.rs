use super::{PLAIN, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::{ClusterNode, Writer, call::Call, refusal::Refusal};
use turnbuckle_core::{HASH_SLOTS, hash_slot};

pub(super) const CLUSTER: Spec = Spec {
    name: "cluster",
    arity: -2,
    flags: &["loading", "stale"],
    group: "cluster",
    syntax: "subcommand [argument ...]",
    summary: "Which node of this site holds which hash slots of the selected keyspace.",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    if !call.backend.cluster_mode() {
        return Err(Refusal::err(
            "This instance has cluster support disabled: cluster_mode is false in the configuration",
        ));
    }
    let name = call.text(1).to_lowercase();
    let full = format!("cluster|{name}");
    let check = |call: &Call<'_>, len| check_subcommand(call, &full, len);
    match name.as_str() {
        "slots" => {
            check(call, 2..=2)?;
            with_nodes(call, write_slots)
        }
        "shards" => {
            check(call, 2..=2)?;
            with_nodes(call, write_shards)
        }
        "nodes" => {
            check(call, 2..=2)?;
            with_nodes(call, write_nodes)
        }
        "info" => {
            check(call, 2..=2)?;
            with_nodes(call, write_info)
        }
        "myid" => {
            check(call, 2..=2)?;
            with_nodes(call, |nodes, writer| {
                let me = nodes.iter().find(|node| node.is_me);
                writer.bulk_or_null(me.map(|me| me.id.as_bytes()));
            })
        }
        "keyslot" => {
            check(call, 3..=3)?;
            let slot = hash_slot(call.arguments.at(2));
            call.reply(|writer| writer.integer(i64::from(slot)))
        }
        "links" => {
            check(call, 2..=2)?;
            call.reply(|writer| writer.array(0))
        }
        "replicas" | "slaves" => {
            check(call, 3..=3)?;
            replicas(call)
        }
        "countkeysinslot" | "getkeysinslot" => Err(Refusal::unsupported(format_args!(
            "CLUSTER {}: keys are not listed by slot; SCAN lists all",
            name.to_uppercase()
        ))),
        "addslots"
        | "addslotsrange"
        | "bumpepoch"
        | "count-failure-reports"
        | "delslots"
        | "delslotsrange"
        | "failover"
        | "flushslots"
        | "forget"
        | "meet"
        | "replicate"
        | "reset"
        | "saveconfig"
        | "set-config-epoch"
        | "setslot" => Err(Refusal::unsupported(format_args!(
            "CLUSTER {}: nodes and slots are set in the configuration",
            name.to_uppercase()
        ))),
        "help" => reply_help(call, "CLUSTER", &HELP),
        _ => Err(unknown_subcommand(call, "CLUSTER")),
    }
}

const HELP: [&str; 12] = [
    "INFO",
    "    Return information about the cluster.",
    "KEYSLOT <key>",
    "    Return the hash slot for <key>.",
    "MYID",
    "    Return the node id.",
    "NODES",
    "    Return the nodes of this site, in Redis's format.",
    "SHARDS",
    "    Return information about slot range mappings and the nodes associated with them.",
    "SLOTS",
    "    Return information about slots range mappings.",
];

fn with_nodes(call: &mut Call<'_>, write: fn(&[ClusterNode], &mut Writer<'_>)) -> Result<(), Refusal> {
    let nodes = call.backend.cluster(&call.connection.state.keyspace);
    call.reply(|writer| write(&nodes, writer))
}

/// Each hash slot is shown at one node of the site, so there are no replicas in the sense of Redis.
fn replicas(call: &mut Call<'_>) -> Result<(), Refusal> {
    let asked = call.text(2).into_owned();
    let nodes = call.backend.cluster(&call.connection.state.keyspace);
    if nodes.iter().any(|node| node.id == asked) {
        return call.reply(|writer| writer.array(0));
    }
    let short: String = asked.chars().take(64).collect();
    Err(Refusal::err(format_args!("Unknown node {short}")))
}

fn write_slots(nodes: &[ClusterNode], writer: &mut Writer<'_>) {
    writer.array(nodes.iter().map(|node| node.slots.len()).sum());
    for node in nodes {
        for range in &node.slots {
            writer.array(3);
            writer.integer(i64::from(*range.start()));
            writer.integer(i64::from(*range.end()));
            writer.array(4);
            writer.bulk(node.host.as_bytes());
            writer.integer(i64::from(node.port));
            writer.bulk(node.id.as_bytes());
            writer.map(0);
        }
    }
}

fn write_shards(nodes: &[ClusterNode], writer: &mut Writer<'_>) {
    writer.array(nodes.len());
    for node in nodes {
        writer.map(2);
        writer.bulk(b"slots");
        writer.array(2 * node.slots.len());
        for range in &node.slots {
            writer.integer(i64::from(*range.start()));
            writer.integer(i64::from(*range.end()));
        }
        writer.bulk(b"nodes");
        writer.array(1);
        writer.map(7);
        let text = |writer: &mut Writer<'_>, name: &str, value: &str| {
            writer.bulk(name.as_bytes());
            writer.bulk(value.as_bytes());
        };
        text(writer, "id", &node.id);
        writer.bulk(b"port");
        writer.integer(i64::from(node.port));
        text(writer, "ip", &node.host);
        text(writer, "endpoint", &node.host);
        text(writer, "role", "master");
        writer.bulk(b"replication-offset");
        writer.integer(0);
        text(writer, "health", if node.is_up { "online" } else { "failed" });
    }
}

/// One line for each node: id, address, flags, its master, pings, epoch, link, slots. The port of Redis's own cluster protocol does not exist, so it
/// is 0.
fn write_nodes(nodes: &[ClusterNode], writer: &mut Writer<'_>) {
    let mut text = String::new();
    for node in nodes {
        let (flags, link) = match (node.is_me, node.is_up) {
            (true, _) => ("myself,master", "connected"),
            (false, true) => ("master", "connected"),
            (false, false) => ("master,fail", "disconnected"),
        };
        text += &format!("{} {}:{}@0 {flags} - 0 0 0 {link}", node.id, node.host, node.port);
        for range in &node.slots {
            text += &if range.start() == range.end() {
                format!(" {}", range.start())
            } else {
                format!(" {}-{}", range.start(), range.end())
            };
        }
        text.push('\n');
    }
    writer.verbatim(&text);
}

fn write_info(nodes: &[ClusterNode], writer: &mut Writer<'_>) {
    let slots_of = |is_up: bool| -> usize {
        let nodes = nodes.iter().filter(|node| node.is_up == is_up);
        nodes
            .flat_map(|node| &node.slots)
            .map(ExactSizeIterator::len)
            .sum()
    };
    let (up, failed) = (slots_of(true), slots_of(false));
    let held = up + failed;
    let size = nodes.iter().filter(|node| !node.slots.is_empty()).count();
    let state = if up == usize::from(HASH_SLOTS) {
        "ok"
    } else {
        "fail"
    };
    writer.verbatim(&format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{held}\r\ncluster_slots_ok:{up}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:{failed}\r\ncluster_known_nodes:{}\r\ncluster_size:{size}\r\n\
         cluster_current_epoch:0\r\ncluster_my_epoch:0\r\n",
        nodes.len(),
    ));
}
