use super::{ClusterConfig, Durability, Limits, MAX_DB};
use crate::wan::{LinkDelay, WanDelays};
use std::{fmt::Write, path::PathBuf};
use turnbuckle_core::SiteId;
use turnbuckle_document::WrongFile;

/// A cluster on this machine with the same number of nodes at every site, as `turnbuckle demo` and tests start it.
///
/// It is written as the text of a configuration file. This text goes through the same checks as any other. It can also be given to one process for
/// each node.
#[derive(Debug, Clone)]
pub struct Demo {
    /// The cluster's name.
    pub cluster: String,
    /// Its secret. It should be random.
    pub secret: String,
    /// The ports of each node, site by site. Their number is the number of sites in `wan`, or a multiple of it.
    pub ports: Vec<DemoPorts>,
    /// How many partitions each keyspace has.
    pub partitions: u16,
    /// The keyspaces. A new connection is in the first one.
    pub keyspaces: Vec<DemoKeyspace>,
    /// The directory of the configuration file. Each node's data directory is inside it.
    pub data_root: PathBuf,
    /// How many event loops each node runs.
    pub loops: usize,
    /// The sites, and the delays between them.
    pub wan: WanDelays,
    /// The limits of each node.
    pub limits: Limits,
}

/// A keyspace of the demo.
#[derive(Debug, Clone)]
pub struct DemoKeyspace {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// When its writes are acknowledged.
    pub durability: Durability,
    /// How many replicas each partition has at each site.
    pub members: u16,
}

impl DemoKeyspace {
    /// A keyspace named after its protocol, with the default durability and one replica at each site.
    pub fn of(protocol: &str) -> DemoKeyspace {
        DemoKeyspace {
            name: protocol.to_owned(),
            protocol: protocol.to_owned(),
            durability: Durability::default(),
            members: 1,
        }
    }
}

/// The ports of one node, all on 127.0.0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoPorts {
    /// The port for clients (RESP).
    pub resp: u16,
    /// The port for other nodes.
    pub peer: u16,
    /// The port for operators and monitoring (admin HTTP).
    pub admin: u16,
}

impl DemoPorts {
    /// The ports of `sites` nodes from `base` on: clients at `base + i`, admin at `base + 100 + i`, peers at `base + 200 + i`. `None` if the last
    /// port would be above 65,535, if `base` is 0, or if the blocks would overlap (more than 100 nodes).
    pub fn block(base: u16, sites: usize) -> Option<Vec<DemoPorts>> {
        let last = u16::try_from(sites).ok().filter(|&sites| sites <= 100)?;
        base.checked_add(200 + last.saturating_sub(1))
            .filter(|_| base != 0)?;
        let ports = (0..last).map(|i| DemoPorts {
            resp: base + i,
            admin: base + 100 + i,
            peer: base + 200 + i,
        });
        Some(ports.collect())
    }
}

impl Demo {
    /// The text of the cluster's configuration file, which belongs in `data_root`. The first node of site `a` is called `a1`. Its data directory,
    /// beside the file, has the same name.
    ///
    /// # Panics
    /// If there are no ports, or the sites cannot have the same number of nodes each.
    pub fn to_toml(&self) -> String {
        let sites = self.wan.sites();
        assert!(
            !self.ports.is_empty() && self.ports.len().is_multiple_of(sites.len()),
            "as many nodes in every site"
        );
        let nodes_of_a_site = self.ports.len() / sites.len();
        let mut text = format!(
            "cluster = {}\nsecret = {}\n",
            quoted(&self.cluster),
            quoted(&self.secret)
        );
        for (site, nodes) in sites.iter().zip(self.ports.chunks(nodes_of_a_site)) {
            write!(text, "\n[[site]]\nname = {}\n", quoted(site)).expect(CANNOT_FAIL);
            for (number, DemoPorts { resp, peer, admin }) in (1..).zip(nodes) {
                write!(
                    text,
                    "\n[[node]]\nname = {node_name}\nsite = {site_name}\n\
                     resp = \"127.0.0.1:{resp}\"\npeer = \"127.0.0.1:{peer}\"\nadmin = \"127.0.0.1:{admin}\"\n\
                     data = {node_name}\nloops = {loops}\n",
                    site_name = quoted(site),
                    node_name = quoted(&format!("{site}{number}")),
                    loops = self.loops,
                )
                .expect(CANNOT_FAIL);
            }
        }
        for (place, keyspace) in self.keyspaces.iter().enumerate() {
            write!(
                text,
                "\n[[keyspace]]\nname = {}\nprotocol = {}\npartitions = {}\ndurability = \"{}\"\n",
                quoted(&keyspace.name),
                quoted(&keyspace.protocol),
                self.partitions,
                keyspace.durability
            )
            .expect(CANNOT_FAIL);
            // The first one is the default, and so has the number 0.
            if place > 0 && place <= MAX_DB as usize {
                writeln!(text, "db = {place}").expect(CANNOT_FAIL);
            }
            if keyspace.members > 1 {
                writeln!(text, "members = {}", keyspace.members).expect(CANNOT_FAIL);
            }
        }
        text + &self.limits_table() + &self.wan_table()
    }

    /// The cluster, checked like any other.
    ///
    /// # Errors
    /// If a field is wrong. The error's line is a line of [`Demo::to_toml`].
    ///
    /// # Panics
    /// As [`Demo::to_toml`].
    pub fn config(&self) -> Result<ClusterConfig, WrongFile> {
        ClusterConfig::parse(&self.data_root.join("cluster.toml"), &self.to_toml())
    }

    fn limits_table(&self) -> String {
        let lines = self
            .limits
            .entries()
            .into_iter()
            .map(|(name, value, _)| format!("{name} = {value}\n"));
        "\n[limits]\n".to_owned() + &lines.collect::<String>()
    }

    fn wan_table(&self) -> String {
        let name = |site: SiteId| &self.wan.sites()[usize::from(site.0)];
        let lines = self.wan.pairs().filter_map(|(from, to)| {
            let delay = self.wan.link(from, to);
            let line = || {
                format!(
                    "{} = \"{delay}\"\n",
                    quoted(&format!("{}->{}", name(from), name(to)))
                )
            };
            (delay != LinkDelay::NONE).then(line)
        });
        "\n[wan]\n".to_owned() + &lines.collect::<String>()
    }
}

const CANNOT_FAIL: &str = "writing to a string does not fail";

/// Text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
