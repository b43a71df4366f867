//! From what the file says to what it means. Every function takes a piece of the raw file and either gives the checked
//! piece or says what is wrong with it and where.
use super::{
    Address, ClusterConfig, Durability, KeyspaceEntry, KeyspaceId, MOST_PARTITIONS, NodeEntry, NodeId,
    WrongConfig,
    document::{Document, read_bounded},
    limits::within,
    name,
    raw::{RawCluster, RawKeyspace, RawNode, RawParameters, RawSite, Text},
    wan::check_wan,
};
use std::{
    collections::HashMap,
    ops::Range,
    path::{Component, Path, PathBuf},
};
use toml::Spanned;
use turnbuckle_core::{
    ClusterSecret, Given, KeyspaceLevels, Level, Levels, ReplicaId, Settings, SiteId, Topology,
};
use turnbuckle_protocols::KnownProtocol;

/// How long a secret is, in bytes. Shorter ones can be guessed.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=1024;

const MOST_NODES: usize = 1024;
const MOST_KEYSPACES: usize = 256;
const MOST_LOOPS: u64 = 256;

pub(super) fn check(document: &Document<'_>) -> Result<ClusterConfig, WrongConfig> {
    let raw: RawCluster = document.decode()?;
    let cluster = required(document, raw.cluster.as_ref(), 0..0, "cluster", name::EXPECTED)?;
    let cluster_name = checked_name(document, cluster)?;
    let secret = check_secret(document, &raw)?;
    let sites = check_sites(document, &raw.site)?;
    let nodes = check_nodes(document, &raw.node, &sites)?;
    let nodes_of_site = group_by_site(document, &raw.site, &nodes)?;
    let (keyspaces, default_keyspace) = check_keyspaces(document, &raw.keyspace, &sites, &nodes_of_site)?;
    let limits = raw.limits.check(document)?;
    check_limits_together(document, &raw, &limits)?;
    let wan = check_wan(document, &raw.wan, &sites)?;
    Ok(ClusterConfig {
        name: cluster_name,
        secret,
        limits,
        wan,
        sites,
        nodes,
        nodes_of_site,
        keyspaces,
        default_keyspace,
    })
}

fn check_secret(document: &Document<'_>, raw: &RawCluster) -> Result<ClusterSecret, WrongConfig> {
    let expected = format!("{} to {} bytes", SECRET_BYTES.start(), SECRET_BYTES.end());
    let (span, secret) = match (&raw.secret, &raw.secret_file) {
        (Some(secret), None) => (secret.span(), secret.get_ref().clone().into_bytes()),
        (None, Some(file)) => (file.span(), read_secret(document, file)?),
        (Some(_), Some(file)) => {
            return Err(document.wrong(file.span(), "secret as well as secret_file", "one of them"));
        }
        (None, None) => {
            let expected = format!("a secret of {expected}, or secret_file with the path of one");
            return Err(document.missing(0..0, "secret", expected));
        }
    };
    if !SECRET_BYTES.contains(&secret.len()) {
        return Err(document.wrong(span, format!("a secret of {} bytes", secret.len()), expected));
    }
    Ok(ClusterSecret::new(secret))
}

/// The bytes of the secret's file, without the line end that editors put there.
fn read_secret(document: &Document<'_>, file: &Text) -> Result<Vec<u8>, WrongConfig> {
    let path = document.resolve(file.get_ref());
    let mut secret = read_bounded(&path, 2 + *SECRET_BYTES.end() as u64).map_err(|error| {
        let found = format!("{:?}, which cannot be read: {error}", path.display().to_string());
        document.wrong(file.span(), found, "the path of a file with the secret")
    })?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    Ok(secret)
}

fn check_sites(document: &Document<'_>, raw: &[Spanned<RawSite>]) -> Result<Vec<String>, WrongConfig> {
    let most = usize::from(ReplicaId::MOST_SITES);
    let Some(first) = raw.first() else {
        return Err(document.missing(0..0, "site", "at least one [[site]]"));
    };
    if raw.len() > most {
        return Err(too_many(document, first.span(), "sites", raw.len(), most));
    }
    let mut names = Names::new("site");
    for site in raw {
        names.take(document, site.get_ref().name.as_ref(), site.span())?;
    }
    Ok(names.in_order)
}

fn check_nodes(
    document: &Document<'_>,
    raw: &[Spanned<RawNode>],
    sites: &[String],
) -> Result<Vec<NodeEntry>, WrongConfig> {
    let Some(first) = raw.first() else {
        return Err(document.missing(0..0, "node", "at least one [[node]] at every site"));
    };
    if raw.len() > MOST_NODES {
        return Err(too_many(document, first.span(), "nodes", raw.len(), MOST_NODES));
    }
    let mut names = Names::new("node");
    let mut addresses = Addresses::default();
    let mut nodes: Vec<NodeEntry> = Vec::new();
    for entry in raw {
        let node = check_node(document, entry, sites, &mut names, &mut addresses)?;
        if let Some(other) = nodes.iter().find(|other| share_data(other, &node)) {
            let at = entry
                .get_ref()
                .data
                .as_ref()
                .expect("checked with the node")
                .span();
            let found = format!(
                "{:?}, in use by node {}",
                node.data.display().to_string(),
                other.name
            );
            return Err(document.wrong(at, found, "a directory of its own"));
        }
        nodes.push(node);
    }
    Ok(nodes)
}

fn check_node(
    document: &Document<'_>,
    entry: &Spanned<RawNode>,
    sites: &[String],
    names: &mut Names,
    addresses: &mut Addresses,
) -> Result<NodeEntry, WrongConfig> {
    let (raw, span) = (entry.get_ref(), entry.span());
    let name = names.take(document, raw.name.as_ref(), span.clone())?;
    let one_of_sites = || format!("one of the sites {}", sites.join(", "));
    let site = required(document, raw.site.as_ref(), span.clone(), "site", one_of_sites())?;
    let place = sites.iter().position(|known| known == site.get_ref());
    let place = place.ok_or_else(|| document.wrong(site.span(), quote(site), one_of_sites()))?;
    let mut address = |text: &Option<Text>, field: &'static str| {
        let text = required(document, text.as_ref(), span.clone(), field, Address::EXPECTED)?;
        addresses.take(document, text, &name, field)
    };
    let resp = address(&raw.resp, "resp")?;
    let peer = address(&raw.peer, "peer")?;
    let admin = address(&raw.admin, "admin")?;
    let data = required(
        document,
        raw.data.as_ref(),
        span,
        "data",
        "the path of a directory",
    )?;
    if data.get_ref().is_empty() || data.get_ref().contains('\0') {
        return Err(document.wrong(data.span(), quote(data), "the path of a directory"));
    }
    Ok(NodeEntry {
        name,
        site: SiteId(place as u16),
        resp,
        peer,
        admin,
        data: document.resolve(data.get_ref()),
        loops: within(document, raw.loops.as_ref(), 1, 1, MOST_LOOPS)? as usize,
    })
}

/// Whether two nodes of one host have the same directory, or one inside the other's. On different hosts equal paths
/// are different places.
fn share_data(one: &NodeEntry, other: &NodeEntry) -> bool {
    let (a, b) = (normal(&one.data), normal(&other.data));
    one.peer.is_same_host(&other.peer) && (a.starts_with(&b) || b.starts_with(&a))
}

/// The path without `.` and `..`, by its letters alone: the directories need not exist yet.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

fn group_by_site(
    document: &Document<'_>,
    sites: &[Spanned<RawSite>],
    nodes: &[NodeEntry],
) -> Result<Vec<Vec<NodeId>>, WrongConfig> {
    let mut groups = vec![Vec::new(); sites.len()];
    for (place, node) in nodes.iter().enumerate() {
        groups[usize::from(node.site.0)].push(NodeId(place as u16));
    }
    match groups.iter().position(Vec::is_empty) {
        None => Ok(groups),
        Some(empty) => {
            let name = sites[empty]
                .get_ref()
                .name
                .as_ref()
                .expect("checked with the sites");
            let expected = format!("a [[node]] with site = {}", quote(name));
            Err(document.wrong(name.span(), "a site without a node", expected))
        }
    }
}

fn check_keyspaces(
    document: &Document<'_>,
    raw: &[Spanned<RawKeyspace>],
    sites: &[String],
    nodes_of_site: &[Vec<NodeId>],
) -> Result<(Vec<KeyspaceEntry>, KeyspaceId), WrongConfig> {
    let Some(first) = raw.first() else {
        return Err(document.missing(0..0, "keyspace", "at least one [[keyspace]]"));
    };
    if raw.len() > MOST_KEYSPACES {
        return Err(too_many(
            document,
            first.span(),
            "keyspaces",
            raw.len(),
            MOST_KEYSPACES,
        ));
    }
    let least_nodes = nodes_of_site.iter().map(Vec::len).min().unwrap_or(0);
    let mut names = Names::new("keyspace");
    let mut default: Option<(usize, usize)> = None;
    let mut keyspaces = Vec::new();
    for (place, entry) in raw.iter().enumerate() {
        keyspaces.push(check_keyspace(document, entry, (sites, least_nodes), &mut names)?);
        match (&entry.get_ref().default, default) {
            (Some(flag), Some((_, line))) if *flag.get_ref() => {
                let found = format!("a second default; the first is on line {line}");
                return Err(document.wrong(flag.span(), found, "one default keyspace"));
            }
            (Some(flag), None) if *flag.get_ref() => default = Some((place, document.line(flag.span()))),
            _ => {}
        }
    }
    let default = default.map_or(0, |(place, _)| place);
    Ok((keyspaces, KeyspaceId(default as u16)))
}

fn check_keyspace(
    document: &Document<'_>,
    entry: &Spanned<RawKeyspace>,
    (sites, least_nodes): (&[String], usize),
    names: &mut Names,
) -> Result<KeyspaceEntry, WrongConfig> {
    let (raw, span) = (entry.get_ref(), entry.span());
    let name = names.take(document, raw.name.as_ref(), span.clone())?;
    let protocol = check_protocol(document, raw, span.clone())?;
    let in_range = format!("a whole number from 1 to {MOST_PARTITIONS}");
    let partitions = required(document, raw.partitions.as_ref(), span, "partitions", in_range)?;
    let partitions = within(document, Some(partitions), 1, 1, MOST_PARTITIONS)? as u16;
    let durability = match &raw.durability {
        None => Durability::default(),
        Some(text) => text
            .get_ref()
            .parse()
            .map_err(|_| document.wrong(text.span(), quote(text), Durability::EXPECTED))?,
    };
    let members = check_members(document, raw, protocol, least_nodes)?;
    let replica_sites = check_replica_sites(document, raw, protocol, sites.len())?;
    Ok(KeyspaceEntry {
        name,
        protocol,
        topology: Topology::new(sites, partitions, members).at_some_sites(replica_sites),
        durability,
        parameters: check_parameters(document, &raw.parameters, protocol)?,
        levels: check_levels(document, raw, protocol)?,
    })
}

/// How many members each partition has at each site, each on a node of its own.
fn check_members(
    document: &Document<'_>,
    raw: &RawKeyspace,
    protocol: KnownProtocol,
    least_nodes: usize,
) -> Result<u16, WrongConfig> {
    let most = protocol.descriptor().most_members;
    let Some(members) = &raw.members else { return Ok(1) };
    let found = members.get_ref().to_string();
    let count = u16::try_from(*members.get_ref()).ok();
    let expected = match count {
        Some(count) if (1..=most).contains(&count) && usize::from(count) <= least_nodes => return Ok(count),
        Some(count) if (1..=most).contains(&count) => {
            format!("at most as many members as every site has nodes: {least_nodes}")
        }
        _ if most == 1 => format!("1: a site has one replica of each partition with {protocol}"),
        _ => format!("a whole number from 1 to {most}"),
    };
    Err(document.wrong(members.span(), found, expected))
}

/// At how many sites each partition stands.
fn check_replica_sites(
    document: &Document<'_>,
    raw: &RawKeyspace,
    protocol: KnownProtocol,
    sites: usize,
) -> Result<u16, WrongConfig> {
    let Some(given) = &raw.replica_sites else {
        return Ok(sites as u16);
    };
    let count = u16::try_from(*given.get_ref()).ok();
    let expected = match count {
        Some(count) if usize::from(count) == sites => return Ok(count),
        _ if !protocol.descriptor().leaves_sites_out => {
            format!("{sites}: with {protocol} each partition stands at all sites")
        }
        Some(count) if (1..sites).contains(&usize::from(count)) => return Ok(count),
        _ => format!("a whole number from 1 to {sites}, which is how many sites there are"),
    };
    Err(document.wrong(given.span(), given.get_ref().to_string(), expected))
}

/// The levels of operations that name none, if they are not the protocol's defaults.
fn check_levels(
    document: &Document<'_>,
    raw: &RawKeyspace,
    protocol: KnownProtocol,
) -> Result<KeyspaceLevels, WrongConfig> {
    let mut levels = KeyspaceLevels::of(protocol.levels());
    let Levels { reads, writes } = levels.offered;
    for (given, offered, default) in [
        (&raw.read, reads, &mut levels.read),
        (&raw.write, writes, &mut levels.write),
    ] {
        let Some(text) = given else { continue };
        let level = text.get_ref().parse::<Level>().ok();
        *default = level.filter(|level| level.is_among(offered)).ok_or_else(|| {
            let names: Vec<String> = offered.iter().map(|level| level.form()).collect();
            let expected = format!("a level that {protocol} offers: {}", names.join(", "));
            document.wrong(text.span(), quote(text), expected)
        })?;
    }
    Ok(levels)
}

fn check_protocol(
    document: &Document<'_>,
    raw: &RawKeyspace,
    span: Range<usize>,
) -> Result<KnownProtocol, WrongConfig> {
    let one_of_them = || {
        let names: Vec<&str> = KnownProtocol::names().map(|(name, _)| name).collect();
        format!("one of the protocols {}", names.join(", "))
    };
    let protocol = required(document, raw.protocol.as_ref(), span, "protocol", one_of_them())?;
    let known = KnownProtocol::named(protocol.get_ref());
    known.ok_or_else(|| document.wrong(protocol.span(), quote(protocol), one_of_them()))
}

/// What the protocol is set to.
fn check_parameters(
    document: &Document<'_>,
    raw: &RawParameters,
    protocol: KnownProtocol,
) -> Result<Settings, WrongConfig> {
    let mut settings = Settings::default();
    for (name, given) in raw {
        let value = match given.get_ref() {
            toml::Value::String(text) => protocol.read(name.get_ref(), Given::Text(text)),
            toml::Value::Integer(number) => protocol.read(name.get_ref(), Given::Number(*number)),
            other => protocol.read(name.get_ref(), Given::Other(other.type_str())),
        };
        let value = value.map_err(|bad| match bad.is_unknown {
            true => {
                let expected = format!("a parameter of {protocol}: {}", bad.expected);
                document.wrong(name.span(), bad.found, expected)
            }
            false => document.wrong(given.span(), bad.found, bad.expected),
        })?;
        settings.set(name.get_ref(), value);
    }
    Ok(settings)
}

/// Limits that make no sense beside each other.
fn check_limits_together(
    document: &Document<'_>,
    raw: &RawCluster,
    limits: &super::Limits,
) -> Result<(), WrongConfig> {
    // The name and the rest of a SET beside its key and value.
    const REST_BYTES: u64 = 1024;
    let least = limits.max_key_bytes + limits.max_value_bytes + REST_BYTES;
    if limits.max_command_bytes < least {
        let at = ["max_command_bytes", "max_value_bytes", "max_key_bytes"];
        let span = at.iter().find_map(|name| raw.limits.span(name));
        let span = span.expect("the defaults fit together, so one of them is in the file");
        return Err(document.wrong(
            span,
            format!("max_command_bytes = {}", limits.max_command_bytes),
            format!("at least {least}: max_key_bytes + max_value_bytes + {REST_BYTES}"),
        ));
    }
    // Two thirds are shared out, of which no client gets more than half. The longest command must find room there, with where its arguments are, what is
    // read beyond it, and the replies before it that were not read.
    const AHEAD_BYTES: u64 = 1 << 20;
    const ARGUMENT_BYTES: u64 = 16;
    let one_client = limits.max_command_bytes
        + ARGUMENT_BYTES * limits.max_arguments
        + limits.max_client_backlog_bytes
        + AHEAD_BYTES;
    let least = 3 * one_client.div_ceil(1 << 20);
    if limits.client_memory_mb < least {
        let at = [
            "client_memory_mb",
            "max_command_bytes",
            "max_arguments",
            "max_client_backlog_bytes",
        ];
        let span = at.iter().find_map(|name| raw.limits.span(name));
        let span = span.expect("the defaults fit together, so one of them is in the file");
        return Err(document.wrong(
            span,
            format!("client_memory_mb = {}", limits.client_memory_mb),
            format!(
                "at least {least}: three times (max_command_bytes + {ARGUMENT_BYTES} max_arguments + max_client_backlog_bytes + 1 MiB)"
            ),
        ));
    }
    Ok(())
}

/// The names of one kind of thing so far.
struct Names {
    kind: &'static str,
    in_order: Vec<String>,
    lines: HashMap<String, usize>,
}

impl Names {
    fn new(kind: &'static str) -> Names {
        Names {
            kind,
            in_order: Vec::new(),
            lines: HashMap::new(),
        }
    }

    /// The next name, which must be one and new.
    fn take(
        &mut self,
        document: &Document<'_>,
        text: Option<&Text>,
        table: Range<usize>,
    ) -> Result<String, WrongConfig> {
        let text = required(document, text, table, "name", name::EXPECTED)?;
        let name = checked_name(document, text)?;
        if let Some(line) = self.lines.insert(name.clone(), document.line(text.span())) {
            let found = format!("{}, which is on line {line} already", quote(text));
            let expected = format!("a name that no other {} has", self.kind);
            return Err(document.wrong(text.span(), found, expected));
        }
        self.in_order.push(name.clone());
        Ok(name)
    }
}

/// The addresses in use so far, and whose they are.
#[derive(Default)]
struct Addresses(HashMap<(String, u16), (String, &'static str, usize)>);

impl Addresses {
    /// The next address, which must be one and free.
    fn take(
        &mut self,
        document: &Document<'_>,
        text: &Text,
        node: &str,
        field: &'static str,
    ) -> Result<Address, WrongConfig> {
        let address: Address = text
            .get_ref()
            .parse()
            .map_err(|_| document.wrong(text.span(), quote(text), Address::EXPECTED))?;
        let user = (node.to_owned(), field, document.line(text.span()));
        if let Some((node, field, line)) = self.0.insert(address.place(), user) {
            let found = format!(
                "{}, which is the {field} address of node {node} on line {line}",
                quote(text)
            );
            return Err(document.wrong(text.span(), found, "an address that is not in use"));
        }
        Ok(address)
    }
}

fn checked_name(document: &Document<'_>, text: &Text) -> Result<String, WrongConfig> {
    if name::is_name(text.get_ref()) {
        Ok(text.get_ref().clone())
    } else {
        Err(document.wrong(text.span(), quote(text), name::EXPECTED))
    }
}

fn required<'a, T>(
    document: &Document<'_>,
    value: Option<&'a T>,
    table: Range<usize>,
    field: &str,
    expected: impl Into<String>,
) -> Result<&'a T, WrongConfig> {
    value.ok_or_else(|| document.missing(table, field, expected))
}

fn too_many(document: &Document<'_>, at: Range<usize>, what: &str, found: usize, most: usize) -> WrongConfig {
    document.wrong(at, format!("{found} {what}"), format!("at most {most}"))
}

/// Text as it stood in the file, cut to a length that fits a message.
pub(super) fn quote(text: &Text) -> String {
    const MOST: usize = 80;
    let start: String = text.get_ref().chars().take(MOST).collect();
    let rest = if start.len() < text.get_ref().len() {
        ".."
    } else {
        ""
    };
    format!("{start:?}{rest}")
}
