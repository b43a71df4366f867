//! The file's shape: which fields each table has, and what each field must be by itself. What depends on other fields is checked in `check.rs`.
use super::{
    Address, ClientTls, Durability, HostName, MAX_DB, MAX_PARTITIONS, limits::LimitsTable, wan::WanTable,
};
use serde::{Deserialize, Deserializer, de::Error};
use std::{collections::BTreeMap, str::FromStr};
use toml::{Spanned, Value};
use turnbuckle_core::Conditional;
use turnbuckle_document::{ByName, Name, Number, Word};
use turnbuckle_protocols::KnownProtocol;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterTable {
    pub(super) cluster: Word<Name>,
    pub(super) secret: Option<Spanned<SecretText>>,
    pub(super) secret_file: Option<Word<String>>,
    pub(super) admin_token: Option<Spanned<SecretText>>,
    pub(super) admin_token_file: Option<Word<String>>,
    #[serde(default)]
    pub(super) admin_hosts: Vec<Word<HostName>>,
    pub(super) cluster_mode: Option<Spanned<bool>>,
    pub(super) tls: Option<TlsTable>,
    pub(super) users_file: Option<Word<FilePath>>,
    pub(super) protected: Option<Spanned<bool>>,
    #[serde(default)]
    pub(super) site: Vec<Spanned<SiteTable>>,
    #[serde(default)]
    pub(super) node: Vec<Spanned<NodeTable>>,
    #[serde(default)]
    pub(super) keyspace: Vec<Spanned<KeyspaceTable>>,
    pub(super) limits: Option<Spanned<LimitsTable>>,
    #[serde(default)]
    pub(super) wan: WanTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsTable {
    pub(super) certificate: Word<String>,
    pub(super) key: Word<String>,
    pub(super) authority: Word<String>,
    pub(super) links: Option<bool>,
    pub(super) clients: Option<Word<ClientTls>>,
    pub(super) admin: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteTable {
    pub(super) name: Word<Name>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTable {
    pub(super) name: Word<Name>,
    /// It must be one of the sites. The sites are not known here, so `check.rs` also reports a missing one.
    pub(super) site: Option<Word<String>>,
    pub(super) resp: Word<Address>,
    pub(super) peer: Word<Address>,
    pub(super) admin: Word<Address>,
    pub(super) data: Word<Directory>,
    pub(super) loops: Option<Number<1, 256>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyspaceTable {
    pub(super) name: Word<Name>,
    pub(super) protocol: Word<KnownProtocol>,
    pub(super) partitions: Number<1, MAX_PARTITIONS>,
    pub(super) members: Option<ByName>,
    pub(super) replica_sites: Option<Number<0>>,
    pub(super) prefer: Option<Word<String>>,
    pub(super) durability: Option<Word<Durability>>,
    #[serde(default)]
    pub(super) parameters: BTreeMap<Spanned<String>, Spanned<Value>>,
    pub(super) read: Option<Word<String>>,
    pub(super) write: Option<Word<String>>,
    pub(super) conditional: Option<Word<Conditional>>,
    pub(super) default: Option<Spanned<bool>>,
    pub(super) db: Option<Number<1, MAX_DB>>,
}

/// The path of a directory, which need not exist.
pub(super) struct Directory;

impl FromStr for Directory {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Directory, &'static str> {
        let is_path = !text.is_empty() && !text.contains('\0');
        is_path
            .then_some(Directory)
            .ok_or("expected the path of a directory")
    }
}

/// The path of a file, which may be missing on the machine that only checks the configuration.
pub(super) struct FilePath;

impl FromStr for FilePath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FilePath, &'static str> {
        let is_path = !text.is_empty() && !text.contains('\0');
        is_path.then_some(FilePath).ok_or("expected the path of a file")
    }
}

/// A secret. Errors about it do not show it.
pub(crate) struct SecretText(pub String);

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SecretText, D::Error> {
        match Value::deserialize(deserializer) {
            Ok(Value::String(text)) => Ok(SecretText(text)),
            _ => Err(D::Error::custom("something else, expected text in quotes")),
        }
    }
}
