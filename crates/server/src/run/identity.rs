//! Which node's data a directory holds. This is written when the directory is new, and checked at every later start.
use crate::config::{ClusterConfig, NodeId};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};
use thiserror::Error;
use turnbuckle_core::Members;

/// The version of the directory's format. Each change to what is found again in log or tables must change it. Otherwise an older directory would be
/// taken for an empty one.
const FORMAT: u32 = 11;

/// What must be the same each time the directory is opened. It determines where keys are placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    /// The directory's own number, in hexadecimal. Its commit log carries the number, too.
    identity: String,
    cluster: String,
    node: String,
    sites: Vec<String>,
    nodes_of_site: Vec<String>,
    keyspaces: Vec<KeyspaceIdentity>,
}

impl Identity {
    fn has(&self, keyspace: &str) -> bool {
        self.keyspaces.iter().any(|of| of.name == keyspace)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KeyspaceIdentity {
    name: String,
    protocol: String,
    partitions: u16,
    #[serde(default)]
    members: KeptMembers,
    /// The number of sites; `None` means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replica_sites: Option<u16>,
}

/// The numbers of members, as they are written in the file: one for all sites, or one for each. If the file says nothing of members, each site has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum KeptMembers {
    Same(u16),
    BySite(Vec<u16>),
}

impl Default for KeptMembers {
    fn default() -> KeptMembers {
        KeptMembers::Same(1)
    }
}

impl From<&Members> for KeptMembers {
    fn from(members: &Members) -> KeptMembers {
        match members.numbers() {
            [same] => KeptMembers::Same(*same),
            by_site => KeptMembers::BySite(by_site.to_vec()),
        }
    }
}

/// Why a directory cannot be used as this node's.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// It cannot be read or written.
    #[error("{path}: {source}")]
    Disk {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is damaged, or was written by a release whose format this one does not read.
    #[error("{path}: expected the identity of a data directory in format {FORMAT}, found {found}")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// The directory holds the data of another node, or of a cluster with another layout.
    #[error("{path}: the directory holds data for {what} {found}; the configuration says {expected}")]
    Elsewhere {
        /// The path of the file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// What the configuration says.
        expected: String,
        /// What the directory says.
        found: String,
    },
}

/// A directory that is this node's.
#[derive(Debug)]
pub(super) struct Checked {
    /// The number that marks its commit log.
    pub number: u128,
    /// Whether the directory was new.
    pub is_new: bool,
    /// The keyspaces that are configured and were never in the directory. Empty if the directory was new.
    pub added: BTreeSet<String>,
}

/// Checks that the directory is new, or that it is this node's. A new directory is marked with the number `fresh`.
///
/// Keyspaces may be added to the configuration or left out of it. A keyspace that is in the directory keeps its protocol and partitions, also while
/// it is left out. The file is written only if its content changes, so that a node starts on a full disk. If the content changes and there is
/// no room, the node goes on with the old file.
pub(super) fn check(
    directory: &Path,
    config: &ClusterConfig,
    id: NodeId,
    fresh: u128,
) -> Result<Checked, IdentityError> {
    let path = directory.join("node.json");
    let mut mine = identity(config, id, fresh);
    let known = match fs::read(&path) {
        Ok(bytes) => Some(compare(&path, &bytes, &mine)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(IdentityError::Disk { path, source }),
    };
    let added = |known: &Identity| {
        let added = config.keyspaces().map(|(_, keyspace)| keyspace.name.clone());
        added.filter(|name| !known.has(name)).collect()
    };
    let added = known.as_ref().map_or_else(BTreeSet::new, added);
    if let Some(known) = &known {
        mine.identity.clone_from(&known.identity);
        // A keyspace that the configuration leaves out is still there, and keeps its protocol and partitions.
        let left_out = known.keyspaces.iter().filter(|known| !mine.has(&known.name));
        let left_out: Vec<_> = left_out.cloned().collect();
        mine.keyspaces.extend(left_out);
    }
    let number = u128::from_str_radix(&mine.identity, 16).map_err(|_| IdentityError::Unreadable {
        path: path.clone(),
        found: format!("the identity '{}'", mine.identity),
    })?;
    let checked = Checked {
        number,
        is_new: known.is_none(),
        added,
    };
    if known.as_ref() == Some(&mine) {
        return Ok(checked);
    }
    match write(directory, &path, &mine) {
        Err(source) if known.is_some() && is_lack_of_room(&source) => {
            tracing::warn!(
                node = mine.node,
                "{}: it could not be brought up to date ({source}): the node goes on, and tries again at its next start",
                path.display()
            );
            Ok(checked)
        }
        Err(source) => Err(IdentityError::Disk { path, source }),
        Ok(()) => Ok(checked),
    }
}

fn identity(config: &ClusterConfig, id: NodeId, fresh: u128) -> Identity {
    let node = config.node(id);
    let keyspaces = config.keyspaces().map(|(_, keyspace)| KeyspaceIdentity {
        name: keyspace.name.clone(),
        protocol: keyspace.protocol.to_string(),
        partitions: keyspace.topology.partitions(),
        members: keyspace.topology.members().into(),
        replica_sites: keyspace.topology.some_sites(),
    });
    Identity {
        format: FORMAT,
        identity: format!("{fresh:032x}"),
        cluster: config.name.clone(),
        node: node.name.clone(),
        sites: config.sites().to_vec(),
        nodes_of_site: config
            .nodes_of(node.site)
            .iter()
            .map(|&id| config.node(id).name.clone())
            .collect(),
        keyspaces: keyspaces.collect(),
    }
}

/// Whether a write failed because the disk takes no more data: it may succeed another time.
fn is_lack_of_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Returns the identity that the directory has, if it is this node's.
fn compare(path: &Path, bytes: &[u8], mine: &Identity) -> Result<Identity, IdentityError> {
    let unreadable = |found: String| IdentityError::Unreadable {
        path: path.to_path_buf(),
        found,
    };
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
    if let Some(format) = value.get("format").and_then(serde_json::Value::as_u64)
        && format != u64::from(FORMAT)
    {
        return Err(unreadable(format!(
            "format {format}, of another release: open it with that one, and copy its keys to a new cluster"
        )));
    }
    let theirs: Identity = serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))?;
    let same = |what, expected: String, found: String| match expected == found {
        true => Ok(()),
        false => Err(IdentityError::Elsewhere {
            path: path.to_path_buf(),
            what,
            expected,
            found,
        }),
    };
    let quoted = |name: &str| format!("'{name}'");
    same("cluster", quoted(&mine.cluster), quoted(&theirs.cluster))?;
    same("node", quoted(&mine.node), quoted(&theirs.node))?;
    same("the sites", mine.sites.join(" "), theirs.sites.join(" "))?;
    same(
        "a site with the nodes",
        mine.nodes_of_site.join(" "),
        theirs.nodes_of_site.join(" "),
    )?;
    for keyspace in &theirs.keyspaces {
        if let Some(now) = mine.keyspaces.iter().find(|now| now.name == keyspace.name) {
            let describe = |it: &KeyspaceIdentity| {
                let KeyspaceIdentity {
                    name,
                    partitions,
                    members,
                    replica_sites,
                    protocol,
                } = it;
                let of_members = match members {
                    KeptMembers::Same(1) => String::new(),
                    KeptMembers::Same(members) => format!(" of {members} members at each site"),
                    KeptMembers::BySite(members) => format!(" of {members:?} members, site by site,"),
                };
                let at_sites = replica_sites.map(|sites| format!(", each at {sites} of the sites,"));
                let at_sites = at_sites.unwrap_or_default();
                format!("'{name}' of {partitions} partitions{of_members}{at_sites} with protocol {protocol}")
            };
            same("a keyspace", describe(now), describe(keyspace))?;
        } else {
            tracing::warn!(
                node = mine.node,
                "{}: the keyspace '{}' is not in the configuration any more: its data is kept, and not served",
                path.display(),
                keyspace.name
            );
        }
    }
    Ok(theirs)
}

/// Writes the file completely or not at all.
fn write(directory: &Path, path: &Path, identity: &Identity) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let new = directory.join("node.json.new");
    let written = write_new(&new, &serde_json::to_vec_pretty(identity)?);
    if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
        // A part of the file is of no use.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    fs::File::open(directory)?.sync_all()
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_upgrades_names_the_numbers_of_today() {
        let page = include_str!("../../../../docs/operating.md");
        let wire = turnbuckle_node::WIRE_VERSION;
        for row in [
            format!("| data format (`format` in `node.json`) | {FORMAT} |"),
            format!(
                "| wire version (`WIRE_VERSION` in `crates/node/src/frame.rs`; no command shows it) | {wire} |"
            ),
        ] {
            assert!(page.contains(&row), "expected: {row}");
        }
    }

    fn config(cluster: &str, partitions: u16) -> ClusterConfig {
        config_of(cluster, partitions, "eventual")
    }

    fn config_of(cluster: &str, partitions: u16, protocol: &str) -> ClusterConfig {
        config_with(cluster, "k", partitions, protocol)
    }

    fn config_with(cluster: &str, keyspace: &str, partitions: u16, protocol: &str) -> ClusterConfig {
        let text = format!(
            "cluster = \"{cluster}\"\nsecret = \"0123456789abcdef0123456789abcdef\"\n[[site]]\nname = \"a\"\n[[node]]\nname = \"a1\"\n\
             site = \"a\"\nresp = \"127.0.0.1:1\"\npeer = \"127.0.0.1:2\"\nadmin = \"127.0.0.1:3\"\ndata = \"d1\"\n[[node]]\nname = \"a2\"\n\
             site = \"a\"\nresp = \"127.0.0.1:4\"\npeer = \"127.0.0.1:5\"\nadmin = \"127.0.0.1:6\"\ndata = \"d2\"\n\
             [[keyspace]]\nname = \"{keyspace}\"\nprotocol = \"{protocol}\"\npartitions = {partitions}\n"
        );
        ClusterConfig::parse(Path::new("cluster.toml"), &text).expect("the configuration is right")
    }

    #[test]
    fn a_directory_is_opened_by_the_node_that_it_belongs_to_and_by_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let begun = check(path, &config("shop", 4), NodeId(0), 7).unwrap();
        assert!(begun.is_new && begun.added.is_empty() && begun.number == 7);
        let again = check(path, &config("shop", 4), NodeId(0), 8).unwrap();
        assert!(!again.is_new && again.added.is_empty());
        assert_eq!(again.number, 7, "the first number stays");
        let error = check(path, &config("shop", 4), NodeId(1), 9)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("holds data for node 'a1'; the configuration says 'a2'"),
            "{error}"
        );
        let error = check(path, &config("bank", 4), NodeId(0), 9)
            .unwrap_err()
            .to_string();
        assert!(error.contains("cluster 'shop'"), "{error}");
        let error = check(path, &config("shop", 8), NodeId(0), 9)
            .unwrap_err()
            .to_string();
        assert!(error.contains("'k' of 4 partitions"), "{error}");
    }

    #[test]
    fn the_file_is_written_only_where_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let modified = || fs::metadata(path.join("node.json")).unwrap().modified().unwrap();
        check(path, &config("shop", 4), NodeId(0), 7).unwrap();
        // From here on the file cannot be written. A check that changes nothing must not try.
        let blocked = path.join("node.json.new");
        fs::create_dir(&blocked).unwrap();
        let before = modified();
        assert_eq!(check(path, &config("shop", 4), NodeId(0), 8).unwrap().number, 7);
        assert_eq!(modified(), before);
        let file = path.join("node.json");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(
            &file,
            text.replace("\"eventual\"", "\"other\"")
                .replace("\"k\"", "\"gone\""),
        )
        .unwrap();
        let error = check(path, &config("shop", 4), NodeId(0), 8)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("node.json"),
            "it is to be written, and cannot be: {error}"
        );
        fs::remove_dir(&blocked).unwrap();
        let checked = check(path, &config("shop", 4), NodeId(0), 8).unwrap();
        assert_eq!(
            checked.added,
            BTreeSet::from(["k".to_string()]),
            "'gone' was there alone"
        );
        let checked = check(path, &config("shop", 4), NodeId(0), 8).unwrap();
        assert!(checked.added.is_empty());
        assert!(fs::read_to_string(&file).unwrap().contains("\"k\""));
    }

    #[test]
    fn a_keyspace_that_was_left_out_comes_back_as_it_was_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        check(path, &config("shop", 4), NodeId(0), 7).unwrap();
        let file = path.join("node.json");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("\"k\"", "\"gone\"")).unwrap();
        // Twice: a keyspace that was left out once may be left out again.
        for _ in 0..2 {
            check(path, &config("shop", 4), NodeId(0), 8).unwrap();
        }
        let gone = |protocol| config_with("shop", "gone", 4, protocol);
        check(path, &gone("eventual"), NodeId(0), 8).unwrap();
        let error = check(path, &gone("cops"), NodeId(0), 8).unwrap_err().to_string();
        assert!(
            error.contains("a keyspace 'gone' of 4 partitions with protocol eventual"),
            "{error}"
        );
    }

    #[test]
    fn lack_of_room_is_told_from_other_errors() {
        for (code, is_lack) in [
            (28, true),
            (122, true),
            (27, true),
            (30, true),
            (13, false),
            (5, false),
        ] {
            assert_eq!(
                is_lack_of_room(&io::Error::from_raw_os_error(code)),
                is_lack,
                "error {code}"
            );
        }
    }

    #[test]
    fn a_kind_of_keyspace_and_its_usual_protocol_are_the_same_data() {
        for (first, then) in [("causal", "causalspartanx"), ("causalspartanx", "causal")] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            check(path, &config_of("shop", 4, first), NodeId(0), 7).unwrap();
            let file = path.join("node.json");
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains("\"causalspartanx\""), "{text}");
            check(path, &config_of("shop", 4, then), NodeId(0), 8).unwrap();
            let error = check(path, &config_of("shop", 4, "cops"), NodeId(0), 8).unwrap_err();
            let told = "with protocol causalspartanx; the configuration says";
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn another_format_or_a_damaged_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("node.json");
        let format = |number| format!("{{\"format\": {number}}}");
        let of_another = |number| format!("found format {number}, of another release");
        let (older, newer) = (FORMAT - 1, FORMAT + 1);
        for (text, found) in [
            (format(older), of_another(older)),
            (format(newer), of_another(newer)),
            ("{".to_string(), "EOF".to_string()),
            (String::new(), "EOF".to_string()),
            (format(FORMAT), "missing field".to_string()),
        ] {
            fs::write(&file, text).unwrap();
            let error = check(directory.path(), &config("shop", 4), NodeId(0), 9)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("expected the identity") && error.contains(&found),
                "{error}"
            );
        }
    }
}
