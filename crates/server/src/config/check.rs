//! Checks what fields of a file are together. Each function takes a piece of the file. It returns the checked piece, or what is wrong with it and
//! where.
use super::{
    ClientTls, ClusterConfig, KeyspaceEntry, KeyspaceId, Limits, NodeEntry, NodeId,
    limits::LimitsTable,
    read::read_bounded,
    tables::{ClusterTable, KeyspaceTable, NodeTable, SecretText, SiteTable, TlsTable},
    wan::check_wan,
};
use crate::admin::AdminToken;
use crate::tls::TlsConfig;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    path::{Component, Path, PathBuf},
};
use toml::{Spanned, Value};
use turnbuckle_core::{
    ClusterSecret, Conditional, Given, KeyspaceLevels, Level, Levels, Members, ReplicaId, Replication,
    Settings, SiteId, Topology,
};
use turnbuckle_document::{ByName, Document, Misplaced, Name, Number, Word, quote};
use turnbuckle_protocols::KnownProtocol;

/// How long a secret may be, in bytes. Shorter secrets can be guessed.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=1024;

/// The largest file that is read for a secret or a token, in bytes: the longest of both, and a line end.
const MAX_HIDDEN_BYTES: u64 = 1024 + 2;

const MAX_NODES: usize = 1024;
const MAX_KEYSPACES: usize = 256;

pub(super) fn check(document: &Document<'_>, table: &ClusterTable) -> Result<ClusterConfig, Misplaced> {
    let secret = check_secret(document, table)?;
    let sites = check_sites(document, &table.site)?;
    let nodes = check_nodes(document, &table.node, &sites)?;
    let nodes_of_site = group_by_site(&table.site, &nodes)?;
    let (keyspaces, default_keyspace) = check_keyspaces(document, &table.keyspace, &sites, &nodes_of_site)?;
    Ok(ClusterConfig {
        name: table.cluster.text().into(),
        secret,
        admin_token: check_admin_token(document, table)?,
        admin_hosts: table.admin_hosts.iter().map(|host| host.0.clone()).collect(),
        limits: table
            .limits
            .as_ref()
            .map_or_else(|| Ok(Limits::default()), check_limits)?,
        cluster_mode: table.cluster_mode.as_ref().is_none_or(|mode| *mode.get_ref()),
        users_file: table
            .users_file
            .as_ref()
            .map(|file| resolve(document, file.text())),
        protected: table.protected.as_ref().is_none_or(|given| *given.get_ref()),
        wan: check_wan(document, &table.wan, &sites)?,
        tls: table.tls.as_ref().map(|tls| check_tls(document, tls)),
        sites,
        nodes,
        nodes_of_site,
        keyspaces,
        default_keyspace,
    })
}

/// Whether the files can be used depends on the node, and is checked when it starts.
fn check_tls(document: &Document<'_>, table: &TlsTable) -> TlsConfig {
    TlsConfig {
        certificate: resolve(document, table.certificate.text()),
        key: resolve(document, table.key.text()),
        authority: resolve(document, table.authority.text()),
        links: table.links.unwrap_or(true),
        clients: table.clients.as_ref().map_or(ClientTls::Tls, |clients| **clients),
        admin: table.admin.unwrap_or(true),
    }
}

fn check_secret(document: &Document<'_>, table: &ClusterTable) -> Result<ClusterSecret, Misplaced> {
    let expected = format!("{} to {} bytes", SECRET_BYTES.start(), SECRET_BYTES.end());
    let given = check_hidden(document, "secret", &table.secret, &table.secret_file)?;
    let Some((place, secret)) = given else {
        let expected = format!("a secret of {expected}, or secret_file with the path of one");
        return Err(Misplaced::missing(0..0, "secret", expected));
    };
    if !SECRET_BYTES.contains(&secret.len()) {
        return Err(Misplaced::at(
            place,
            format!("a secret of {} bytes", secret.len()),
            expected,
        ));
    }
    Ok(ClusterSecret::new(secret))
}

fn check_admin_token(document: &Document<'_>, table: &ClusterTable) -> Result<Option<AdminToken>, Misplaced> {
    let given = check_hidden(
        document,
        "admin_token",
        &table.admin_token,
        &table.admin_token_file,
    )?;
    let Some((place, token)) = given else {
        return Ok(None);
    };
    let parsed = std::str::from_utf8(&token)
        .ok()
        .and_then(|token| token.parse().ok());
    let found = format!("{} bytes that are no token", token.len());
    parsed
        .map(Some)
        .ok_or_else(|| Misplaced::at(place, found, AdminToken::EXPECTED))
}

/// Bytes that must not be shown, and the place in the file at which they are given.
type Hidden = (Range<usize>, Vec<u8>);

/// A secret or a token: in the file itself, in the field of this name, or in another file.
fn check_hidden(
    document: &Document<'_>,
    name: &str,
    text: &Option<Spanned<SecretText>>,
    file: &Option<Word<String>>,
) -> Result<Option<Hidden>, Misplaced> {
    match (text, file) {
        (Some(_), Some(file)) => {
            let found = format!("{name} as well as {name}_file");
            Err(Misplaced::at(file.place(), found, "one of them"))
        }
        (Some(text), None) => Ok(Some((text.span(), text.get_ref().0.clone().into_bytes()))),
        (None, Some(file)) => Ok(Some((file.place(), read_hidden(document, name, file)?))),
        (None, None) => Ok(None),
    }
}

/// The bytes of a file with a secret or a token, without the line end that editors add. The caller checks how many they are.
fn read_hidden(document: &Document<'_>, name: &str, file: &Word<String>) -> Result<Vec<u8>, Misplaced> {
    let path = resolve(document, file.text());
    let mut secret = read_bounded(&path, MAX_HIDDEN_BYTES).map_err(|error| {
        let found = format!("{:?}, which cannot be read: {error}", path.display().to_string());
        Misplaced::at(file.place(), found, format!("the path of a file with the {name}"))
    })?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    Ok(secret)
}

/// A path written in the file: a relative one starts at the file's directory.
fn resolve(document: &Document<'_>, path: &str) -> PathBuf {
    document.file().parent().unwrap_or(Path::new("")).join(path)
}

fn check_sites(document: &Document<'_>, tables: &[Spanned<SiteTable>]) -> Result<Vec<String>, Misplaced> {
    check_count(
        tables,
        "site",
        usize::from(ReplicaId::MAX_SITES),
        "at least one [[site]]",
    )?;
    let mut names = Names::new(document, "site");
    tables
        .iter()
        .map(|site| names.take(&site.get_ref().name))
        .collect()
}

fn check_nodes(
    document: &Document<'_>,
    tables: &[Spanned<NodeTable>],
    sites: &[String],
) -> Result<Vec<NodeEntry>, Misplaced> {
    check_count(tables, "node", MAX_NODES, "at least one [[node]] at every site")?;
    let mut names = Names::new(document, "node");
    let mut addresses = Addresses(HashMap::new());
    let mut nodes: Vec<NodeEntry> = Vec::new();
    for table in tables {
        let node = check_node(document, table, sites, &mut names)?;
        let table = table.get_ref();
        addresses.take(document, table)?;
        if let Some(other) = nodes.iter().find(|other| share_data(other, &node)) {
            let data = node.data.display().to_string();
            let found = format!("{data:?}, in use by node {}", other.name);
            return Err(Misplaced::at(table.data.place(), found, "a directory of its own"));
        }
        nodes.push(node);
    }
    Ok(nodes)
}

fn check_node(
    document: &Document<'_>,
    table: &Spanned<NodeTable>,
    sites: &[String],
    names: &mut Names<'_>,
) -> Result<NodeEntry, Misplaced> {
    let (place, table) = (table.span(), table.get_ref());
    let name = names.take(&table.name)?;
    let one_of_sites = || format!("one of the sites {}", sites.join(", "));
    let Some(site) = &table.site else {
        return Err(Misplaced::missing(place, "site", one_of_sites()));
    };
    let place = sites.iter().position(|known| known == site.text());
    let place = place.ok_or_else(|| site.wrong(one_of_sites()))?;
    Ok(NodeEntry {
        name,
        site: SiteId(place as u16),
        resp: (*table.resp).clone(),
        peer: (*table.peer).clone(),
        admin: (*table.admin).clone(),
        data: resolve(document, table.data.text()),
        loops: table.loops.as_ref().map_or(1, |loops| **loops as usize),
    })
}

/// Whether two nodes of one host have the same directory, or one directory inside the other. On different hosts, equal paths are different
/// directories.
fn share_data(one: &NodeEntry, other: &NodeEntry) -> bool {
    let (a, b) = (normal(&one.data), normal(&other.data));
    one.peer.is_same_host(&other.peer) && (a.starts_with(&b) || b.starts_with(&a))
}

/// The path without `.` and `..`, computed from its text: the directories need not exist yet.
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

fn group_by_site(sites: &[Spanned<SiteTable>], nodes: &[NodeEntry]) -> Result<Vec<Vec<NodeId>>, Misplaced> {
    let mut groups = vec![Vec::new(); sites.len()];
    for (place, node) in nodes.iter().enumerate() {
        groups[usize::from(node.site.0)].push(NodeId(place as u16));
    }
    let Some(empty) = groups.iter().position(Vec::is_empty) else {
        return Ok(groups);
    };
    let name = &sites[empty].get_ref().name;
    let expected = format!("a [[node]] with site = {}", quote(name.text()));
    Err(Misplaced::at(name.place(), "a site without a node", expected))
}

fn check_keyspaces(
    document: &Document<'_>,
    tables: &[Spanned<KeyspaceTable>],
    sites: &[String],
    nodes_of_site: &[Vec<NodeId>],
) -> Result<(Vec<KeyspaceEntry>, KeyspaceId), Misplaced> {
    check_count(tables, "keyspace", MAX_KEYSPACES, "at least one [[keyspace]]")?;
    let nodes: Vec<usize> = nodes_of_site.iter().map(Vec::len).collect();
    let mut names = Names::new(document, "keyspace");
    let mut default: Option<(usize, usize)> = None;
    let mut numbers = BTreeMap::new();
    let mut keyspaces = Vec::new();
    for (place, table) in tables.iter().map(Spanned::get_ref).enumerate() {
        keyspaces.push(check_keyspace(table, sites, &nodes, &mut names)?);
        if let Some(db) = &table.db
            && let Some(other) = numbers.insert(**db, table.name.text())
        {
            return Err(db.wrong(format!(
                "a number that no other keyspace has; {} has it",
                quote(other)
            )));
        }
        let flag = table.default.as_ref().filter(|flag| *flag.get_ref());
        match (flag, default) {
            (Some(flag), Some((_, line))) => {
                let found = format!("a second default; the first is on line {line}");
                return Err(Misplaced::at(flag.span(), found, "one default keyspace"));
            }
            (Some(flag), None) => default = Some((place, document.line(flag.span()))),
            (None, _) => {}
        }
    }
    let default = default.map_or(0, |(place, _)| place);
    if let Some(db) = &tables[default].get_ref().db {
        return Err(db.wrong("no number: this is the keyspace in which connections begin, which is 0"));
    }
    Ok((keyspaces, KeyspaceId(default as u16)))
}

fn check_keyspace(
    table: &KeyspaceTable,
    sites: &[String],
    nodes: &[usize],
    names: &mut Names<'_>,
) -> Result<KeyspaceEntry, Misplaced> {
    let members = table.members.as_ref();
    let replica_sites = table.replica_sites.as_ref();
    let members = members.map_or(Ok(Members::from(1)), |given| {
        check_members(given, *table.protocol, sites, nodes)
    })?;
    let replica_sites = replica_sites.map_or(Ok(sites.len() as u16), |given| {
        check_replica_sites(given, *table.protocol, sites.len(), &members)
    })?;
    let topology = Topology::new(sites, *table.partitions as u16, members).at_some_sites(replica_sites);
    let replicas = topology.replicas_of(0).len();
    Ok(KeyspaceEntry {
        name: names.take(&table.name)?,
        protocol: *table.protocol,
        durability: table.durability.as_deref().copied().unwrap_or_default(),
        prefer: check_prefer(table, sites)?,
        parameters: check_parameters(table)?,
        conditional: check_conditional(table, &topology)?,
        topology,
        levels: check_levels(table, replicas)?,
        db: table.db.as_ref().map(|db| **db as u16),
    })
}

/// Checks the number of members that each partition has at each site. Every member needs a node of its own.
fn check_members(
    given: &ByName,
    protocol: KnownProtocol,
    sites: &[String],
    nodes: &[usize],
) -> Result<Members, Misplaced> {
    let counts = given.of("site", sites.iter().map(String::as_str))?;
    let members = protocol
        .members(&counts)
        .map_err(|expected| given.wrong(expected))?;
    let too_many =
        (sites.iter().zip(nodes).zip(&counts)).find(|((_, nodes), count)| **count > **nodes as u64);
    if let Some(((site, nodes), _)) = too_many {
        return Err(given.wrong(format!(
            "at most as many members as site {site} has nodes: {nodes}"
        )));
    }
    Ok(members)
}

/// Checks what is done with conditional writes. One site can decide if its replica of a partition is the only one there, and if there is one at each site.
fn check_conditional(table: &KeyspaceTable, topology: &Topology) -> Result<Conditional, Misplaced> {
    let Some(given) = table
        .conditional
        .as_ref()
        .filter(|given| ***given == Conditional::Site)
    else {
        return Ok(Conditional::Refuse);
    };
    let protocol = *table.protocol;
    let descriptor = protocol.descriptor();
    if descriptor.takes_conditions {
        let why = format!(
            "no conditional = \"site\": {protocol} decides conditions exactly, at all sites together"
        );
        return Err(given.wrong(why));
    }
    if !descriptor.decides_at_site {
        return Err(given.wrong(format!("\"refuse\": {protocol} takes no conditions")));
    }
    if topology.members().max() > 1 || !topology.is_everywhere() {
        let why =
            "\"refuse\", or one member of each partition at every site: several members would decide apart";
        return Err(given.wrong(why));
    }
    Ok(Conditional::Site)
}

/// Checks the site at which leaders are to be.
fn check_prefer(table: &KeyspaceTable, sites: &[String]) -> Result<Option<SiteId>, Misplaced> {
    let Some(given) = &table.prefer else {
        return Ok(None);
    };
    let protocol = *table.protocol;
    if protocol.descriptor().replication != Replication::Consensus {
        return Err(given.wrong(format!("no preferred site: {protocol} has no leaders")));
    }
    if protocol.descriptor().agrees_by_site {
        return Err(given.wrong(format!(
            "no preferred site: with {protocol} each site has leaders of its own"
        )));
    }
    let place = sites.iter().position(|site| site == given.text());
    match place {
        Some(place) => Ok(Some(SiteId(place as u16))),
        None => Err(given.wrong(format!("one of the sites {}", sites.join(", ")))),
    }
}

/// Checks the number of sites that each partition is placed at.
fn check_replica_sites(
    given: &Number<0>,
    protocol: KnownProtocol,
    sites: usize,
    members: &Members,
) -> Result<u16, Misplaced> {
    let leaves_sites_out = protocol.descriptor().leaves_sites_out;
    if members.numbers().len() > 1 {
        let why = match leaves_sites_out {
            true => "no replica_sites beside members of different numbers".to_string(),
            false => format!("no replica_sites: with {protocol} each partition is at all sites"),
        };
        return Err(given.wrong(why));
    }
    let expected = match usize::try_from(**given).unwrap_or(usize::MAX) {
        count if count == sites => return Ok(count as u16),
        _ if !leaves_sites_out => {
            format!("{sites}: with {protocol} each partition is at all sites")
        }
        count if (1..sites).contains(&count) => return Ok(count as u16),
        _ => format!("a whole number from 1 to {sites}, the number of sites"),
    };
    Err(given.wrong(expected))
}

/// The levels of operations that name none: those of the file, or else the protocol's defaults. A key has this many replicas.
fn check_levels(table: &KeyspaceTable, replicas: usize) -> Result<KeyspaceLevels, Misplaced> {
    let protocol = *table.protocol;
    let mut levels = KeyspaceLevels::of(protocol.levels());
    let Levels { reads, writes } = levels.offered;
    for (given, offered, default) in [
        (&table.read, reads, &mut levels.read),
        (&table.write, writes, &mut levels.write),
    ] {
        let Some(word) = given else { continue };
        let level = word.text().parse::<Level>().ok();
        *default = level.filter(|level| level.is_among(offered)).ok_or_else(|| {
            let names: Vec<String> = offered.iter().map(|level| level.form()).collect();
            word.wrong(format!("a level that {protocol} offers: {}", names.join(", ")))
        })?;
        if default.replicas_needed(replicas) > replicas {
            let expected = format!(
                "a level that needs at most {replicas} replicas: each key of this keyspace has no more"
            );
            return Err(word.wrong(expected));
        }
    }
    Ok(levels)
}

/// The protocol's parameters, as the file sets them.
fn check_parameters(table: &KeyspaceTable) -> Result<Settings, Misplaced> {
    let protocol = *table.protocol;
    let mut settings = Settings::default();
    for (name, given) in &table.parameters {
        let value = match given.get_ref() {
            Value::String(text) => protocol.read(name.get_ref(), Given::Text(text)),
            Value::Integer(number) => protocol.read(name.get_ref(), Given::Number(*number)),
            other => protocol.read(name.get_ref(), Given::Other(other.type_str())),
        };
        let value = value.map_err(|bad| match bad.is_unknown {
            true => {
                let expected = format!("a parameter of {protocol}: {}", bad.expected);
                Misplaced::at(name.span(), bad.found, expected)
            }
            false => Misplaced::at(given.span(), bad.found, bad.expected),
        })?;
        settings.set(name.get_ref(), value);
    }
    protocol.check(&settings).map_err(|misfit| {
        // If the one that does not fit has its default, the other one is in the file.
        let mut given = table.parameters.iter();
        let named = given.clone().find(|(name, _)| name.get_ref() == misfit.parameter);
        let place = named.or_else(|| given.next()).map(|(_, given)| given.span());
        let found = format!("{} = \"{}\"", misfit.parameter, misfit.found);
        Misplaced::at(place.unwrap_or_default(), found, misfit.expected)
    })?;
    Ok(settings)
}

/// Refuses limits that contradict each other.
fn check_limits(table: &Spanned<LimitsTable>) -> Result<Limits, Misplaced> {
    let limits = table.get_ref().limits();
    let usual = Limits::default();
    let wrong = |field, found: u64, usual: u64, expected| {
        let found = match found == usual {
            true => format!("{found}, the default"),
            false => found.to_string(),
        };
        Err(Misplaced::of_field(table.span(), &[field], found, expected))
    };
    // What a SET has beside its key and value: its name and its options.
    const REST_BYTES: u64 = 1024;
    let min = limits.max_key_bytes + limits.max_value_bytes + REST_BYTES;
    if limits.max_command_bytes < min {
        let expected = format!("at least {min}: max_key_bytes + max_value_bytes + {REST_BYTES}");
        let (found, usual) = (limits.max_command_bytes, usual.max_command_bytes);
        return wrong("max_command_bytes", found, usual, expected);
    }
    // Two thirds of the memory are shared out, and no client gets more than half of that. The longest command must fit there. So must the places of
    // its arguments, the bytes that are read beyond it, and the replies before it that the client has not read.
    const AHEAD_BYTES: u64 = 1 << 20;
    const ARGUMENT_BYTES: u64 = 16;
    let one_client = limits.max_command_bytes
        + ARGUMENT_BYTES * limits.max_arguments
        + limits.max_client_backlog_bytes
        + AHEAD_BYTES;
    let min = 3 * one_client.div_ceil(1 << 20);
    if limits.client_memory_mb < min {
        let expected = format!(
            "at least {min}: three times (max_command_bytes + {ARGUMENT_BYTES} max_arguments + max_client_backlog_bytes + 1 MiB)"
        );
        let (found, usual) = (limits.client_memory_mb, usual.client_memory_mb);
        return wrong("client_memory_mb", found, usual, expected);
    }
    Ok(limits)
}

/// Refuses a list of tables that is empty or too long.
fn check_count<T>(tables: &[Spanned<T>], field: &str, max: usize, expected: &str) -> Result<(), Misplaced> {
    match tables {
        [] => Err(Misplaced::missing(0..0, field, expected)),
        [first, ..] if tables.len() > max => {
            let found = format!("{} {field}s", tables.len());
            Err(Misplaced::at(first.span(), found, format!("at most {max}")))
        }
        _ => Ok(()),
    }
}

/// The names of one kind that were taken so far, and their lines.
struct Names<'a> {
    document: &'a Document<'a>,
    kind: &'static str,
    lines: HashMap<String, usize>,
}

impl<'a> Names<'a> {
    fn new(document: &'a Document<'a>, kind: &'static str) -> Names<'a> {
        Names {
            document,
            kind,
            lines: HashMap::new(),
        }
    }

    /// Takes the next name, which must be new.
    fn take(&mut self, name: &Word<Name>) -> Result<String, Misplaced> {
        let line = self.document.line(name.place());
        if let Some(line) = self.lines.insert(name.text().into(), line) {
            let found = format!("{}, which is on line {line} already", quote(name.text()));
            let expected = format!("a name that no other {} has", self.kind);
            return Err(Misplaced::at(name.place(), found, expected));
        }
        Ok(name.text().into())
    }
}

/// The addresses that were taken so far, each with a description of its user.
struct Addresses(HashMap<(String, u16), String>);

impl Addresses {
    /// Takes the addresses of the next node, which must be free.
    fn take(&mut self, document: &Document<'_>, node: &NodeTable) -> Result<(), Misplaced> {
        for (field, address) in [("resp", &node.resp), ("peer", &node.peer), ("admin", &node.admin)] {
            let line = document.line(address.place());
            let user = format!("the {field} address of node {} on line {line}", node.name.text());
            if let Some(user) = self.0.insert(address.endpoint(), user) {
                let found = format!("{}, which is {user}", quote(address.text()));
                return Err(Misplaced::at(
                    address.place(),
                    found,
                    "an address that is not in use",
                ));
            }
        }
        Ok(())
    }
}
