//! The file's shape: what may stand where, and of which type. Everything else is checked in `check.rs`, so fields that
//! must be there are optional here: our message says what is expected, not only the name.
use super::limits::RawLimits;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// Text that remembers where it stood.
pub(super) type Text = Spanned<String>;

/// A number as TOML has them; its range is checked later, so that the message can name the bounds.
pub(super) type Number = Spanned<i64>;

/// What a protocol is set to.
pub(super) type RawParameters = BTreeMap<Text, Spanned<toml::Value>>;

/// Pairs of sites and the delays between them.
pub(super) type RawWan = BTreeMap<Text, Text>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCluster {
    pub(super) cluster: Option<Text>,
    pub(super) secret: Option<Text>,
    pub(super) secret_file: Option<Text>,
    #[serde(default)]
    pub(super) site: Vec<Spanned<RawSite>>,
    #[serde(default)]
    pub(super) node: Vec<Spanned<RawNode>>,
    #[serde(default)]
    pub(super) keyspace: Vec<Spanned<RawKeyspace>>,
    #[serde(default)]
    pub(super) limits: RawLimits,
    #[serde(default)]
    pub(super) wan: RawWan,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSite {
    pub(super) name: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNode {
    pub(super) name: Option<Text>,
    pub(super) site: Option<Text>,
    pub(super) resp: Option<Text>,
    pub(super) peer: Option<Text>,
    pub(super) admin: Option<Text>,
    pub(super) data: Option<Text>,
    pub(super) loops: Option<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawKeyspace {
    pub(super) name: Option<Text>,
    pub(super) protocol: Option<Text>,
    pub(super) partitions: Option<Number>,
    pub(super) members: Option<Number>,
    pub(super) replica_sites: Option<Number>,
    pub(super) durability: Option<Text>,
    #[serde(default)]
    pub(super) parameters: RawParameters,
    pub(super) read: Option<Text>,
    pub(super) write: Option<Text>,
    pub(super) default: Option<Spanned<bool>>,
}
