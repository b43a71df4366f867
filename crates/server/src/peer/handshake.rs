//! What two nodes say to each other before anything else.
//!
//! ```text
//!   dialer                                            acceptor
//!     | -- magic, Greeting: version of the wire, nonce ---> |
//!     | <------------------- Greeting, or why not --------- |
//!     | -- Proof: HMAC of both greetings -----------------> |  refused unless it has the cluster's secret
//!     | <-------------------- Proof, or why not ----------- |
//!     | -- Hello: cluster, layout, from, to, keyspaces, run, HMAC > |  refused unless all of it fits
//!     | <--------------------- Hello, or why not ---------- |
//! ```
//!
//! The nodes may have different keyspaces. What the two of them can do for each other is their [`Agreement`].
//!
//! Two processes may say that they are the same node, each with a data directory of its own. They would take each other's place at their peers by
//! turns, and lose writes that they acknowledged. So each process says which run of the node it is: a number that it drew when it opened the node. A
//! run is refused ([`HandshakeError::Twice`]) while another run of that node has a link and was heard from within `DEAD_AFTER`, whichever of the two
//! is older. A process that has ended does not block the next run: its connections end with it. After a power loss of its machine, the next run is
//! refused for at most `DEAD_AFTER`.
//!
//! Each side proves over the other's fresh nonce that it has the secret, so nothing from an earlier connection can be used again. A side tells names
//! only after the other side has proven that. A stranger learns the version of the wire and nothing else, whether it connects or listens where a node
//! used to be. Whatever the other side says is bounded, and is escaped before it is logged. Without TLS ([`crate::tls`]), the frames that
//! follow are neither encrypted nor authenticated: then the traffic between peers belongs on a trusted network.
use crate::tls;
use bytes::{Bytes, BytesMut};
use prost::Message;
use std::{io, time::Duration};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use turnbuckle_core::{ClusterSecret, Members, ReplicaId};
use turnbuckle_document::Name;
use turnbuckle_node::{Agreement, KeyspaceTerms, WIRE_VERSION};

/// How long the whole handshake may take.
const TIME: Duration = Duration::from_secs(5);

/// The longest message before the other side has proven itself, and the longest one after that, in bytes.
const MAX_STRANGER_BYTES: usize = 1 << 10;
const MAX_BYTES: usize = 256 << 10;

/// The most keyspaces that a node can have.
const MAX_KEYSPACES: usize = 256;

const NONCE_BYTES: usize = 16;

const MAGIC: &[u8; 8] = b"TBUCKPER";

/// What a node says of itself, and compares with what its peers say.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub cluster: String,
    pub layout: String,
    pub keyspaces: Vec<KeyspaceTerms>,
    pub node: String,
    /// Drawn when the node was opened. It distinguishes this process from another one that says it is the same node.
    pub run: u64,
    pub secret: ClusterSecret,
}

/// The other side, once both have said hello.
#[derive(Debug, PartialEq)]
pub(crate) struct Met {
    pub node: String,
    /// See [`Identity::run`].
    pub run: u64,
    pub agreement: Agreement,
}

/// Why there is no link.
#[derive(Debug, Error)]
pub(crate) enum HandshakeError {
    #[error("the connection failed: {0}")]
    Connection(io::Error),
    /// There is no protected connection: see [`crate::tls`].
    #[error("TLS: {0}")]
    Tls(String),
    #[error("no connection within {} s", .0.as_secs())]
    NotConnected(Duration),
    #[error("the handshake took longer than {} s", TIME.as_secs())]
    Slow,
    /// Something is wrong at a side that has not proven that it has the secret.
    #[error("expected {expected}, found {found}")]
    Wrong { expected: String, found: String },
    /// Something is wrong at a node that has the cluster's secret.
    #[error("{0}")]
    Peer(String),
    #[error("the peer refused: {0}")]
    Refused(String),
    /// Another run of the dialer has a link to the acceptor.
    #[error(
        "another process says that it is node {node}, too, and has a link to this node: one of the two must be stopped"
    )]
    Twice {
        /// The dialer's name, quoted.
        node: String,
        /// The number of the other run.
        linked: u64,
    },
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        match tls::is_of_tls(&error) {
            true => HandshakeError::Tls(error.to_string()),
            false => HandshakeError::Connection(error),
        }
    }
}

impl HandshakeError {
    /// Whether both sides are there and one of them does not want the link. It will not be otherwise before somebody changes something.
    pub fn is_refusal(&self) -> bool {
        use HandshakeError::{Connection, NotConnected, Slow};
        !matches!(self, Connection(_) | NotConnected(_) | Slow)
    }
}

/// The first message. Fields that a later release adds to it are ignored.
#[derive(Clone, PartialEq, Message)]
struct Greeting {
    #[prost(uint32, tag = "1")]
    wire_version: u32,
    #[prost(bytes = "bytes", tag = "6")]
    nonce: Bytes,
    #[prost(string, optional, tag = "7")]
    refused: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Proof {
    #[prost(bytes = "bytes", tag = "1")]
    mac: Bytes,
    #[prost(string, optional, tag = "2")]
    refused: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Hello {
    #[prost(string, tag = "1")]
    cluster: String,
    #[prost(string, tag = "2")]
    layout: String,
    #[prost(string, tag = "3")]
    from: String,
    #[prost(string, tag = "4")]
    to: String,
    #[prost(string, optional, tag = "5")]
    refused: Option<String>,
    /// The HMAC of all other fields and of both greetings.
    #[prost(bytes = "bytes", tag = "6")]
    mac: Bytes,
    #[prost(message, repeated, tag = "7")]
    keyspaces: Vec<KeyspaceSaid>,
    #[prost(fixed64, tag = "8")]
    run: u64,
    /// If this side refuses the other with [`HandshakeError::Twice`]: the run that has a link.
    #[prost(fixed64, optional, tag = "9")]
    linked: Option<u64>,
}

/// A keyspace that a node has.
#[derive(Clone, PartialEq, Message)]
struct KeyspaceSaid {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    protocol: String,
    #[prost(uint32, tag = "3")]
    partitions: u32,
    /// The number of members at every site; `None` means one.
    #[prost(uint32, optional, tag = "4")]
    members: Option<u32>,
    /// The number of sites; `None` means all.
    #[prost(uint32, optional, tag = "5")]
    replica_sites: Option<u32>,
    /// The number of members of each site, if they differ.
    #[prost(uint32, repeated, tag = "6")]
    members_by_site: Vec<u32>,
}

/// One connection's handshake: this node's identity, and the greetings of both sides.
struct Talk<'a> {
    me: &'a Identity,
    dialer: Greeting,
    acceptor: Greeting,
}

/// The handshake of the side that connects, to the node called `to`.
pub(crate) async fn dial(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    me: &Identity,
    to: &str,
    nonce: [u8; NONCE_BYTES],
) -> Result<Met, HandshakeError> {
    within(async {
        stream.write_all(MAGIC).await?;
        let dialer = greeting(nonce);
        send(stream, &dialer).await?;
        let acceptor: Greeting = receive(stream, MAX_STRANGER_BYTES).await?;
        not_refused(acceptor.refused.as_deref())?;
        check_greeting(&acceptor)?;
        let talk = Talk { me, dialer, acceptor };
        send(stream, &talk.prove("dialer")).await?;
        let proof: Proof = receive(stream, MAX_STRANGER_BYTES).await?;
        not_refused(proof.refused.as_deref())?;
        talk.verify("acceptor", &proof.mac)?;
        send(stream, &talk.hello("dialer", to, None)).await?;
        let theirs: Hello = receive(stream, MAX_BYTES).await?;
        talk.verify_hello("acceptor", &theirs)?;
        if let Some(linked) = theirs.linked {
            let node = quoted(&me.node);
            return Err(HandshakeError::Twice { node, linked });
        }
        not_refused(theirs.refused.as_deref())?;
        let met = talk.check(&theirs)?;
        expect("a hello of the node that was dialled", to, &met.node)?;
        Ok(met)
    })
    .await
}

/// The handshake of the side that accepts. `certified` checks that the dialer's certificate is for the name that it says. `another_run` returns another run of a node that has a link already, if there is one. `claimed` is set to
/// the name that the dialer gave, if the dialer has the cluster's secret.
pub(crate) async fn accept(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    me: &Identity,
    nonce: [u8; NONCE_BYTES],
    certified: impl FnOnce(&str) -> Result<(), String>,
    another_run: impl FnOnce(&str, u64) -> Option<u64>,
    claimed: &mut Option<String>,
) -> Result<Met, HandshakeError> {
    within(async {
        let mut magic = [0; MAGIC.len()];
        stream.read_exact(&mut magic).await?;
        if magic != *MAGIC {
            return Err(wrong(
                "a node of a Turnbuckle cluster",
                magic.escape_ascii().to_string(),
            ));
        }
        let dialer: Greeting = receive(stream, MAX_STRANGER_BYTES).await?;
        let fits = check_greeting(&dialer);
        let mut acceptor = greeting(nonce);
        acceptor.refused = fits.as_ref().err().map(ToString::to_string);
        send(stream, &acceptor).await?;
        fits?;
        let talk = Talk { me, dialer, acceptor };
        let proof: Proof = receive(stream, MAX_STRANGER_BYTES).await?;
        let proven = talk.verify("dialer", &proof.mac);
        let answer = match &proven {
            Ok(()) => talk.prove("acceptor"),
            // A dialer that could not prove anything is not given a proof.
            Err(error) => Proof {
                mac: Bytes::new(),
                refused: Some(error.to_string()),
            },
        };
        send(stream, &answer).await?;
        proven?;
        let theirs: Hello = receive(stream, MAX_BYTES).await?;
        talk.verify_hello("dialer", &theirs)?;
        *claimed = Some(theirs.from.clone());
        let fits = talk.check(&theirs).and_then(|met| {
            expect("a hello for this node", &me.node, &theirs.to)?;
            certified(&met.node).map_err(HandshakeError::Tls)?;
            match another_run(&met.node, met.run) {
                Some(linked) => Err(HandshakeError::Twice {
                    node: quoted(&met.node),
                    linked,
                }),
                None => Ok(met),
            }
        });
        send(stream, &talk.hello("acceptor", &theirs.from, fits.as_ref().err())).await?;
        fits
    })
    .await
}

async fn within<T>(work: impl Future<Output = Result<T, HandshakeError>>) -> Result<T, HandshakeError> {
    timeout(TIME, work).await.unwrap_or(Err(HandshakeError::Slow))
}

fn greeting(nonce: [u8; NONCE_BYTES]) -> Greeting {
    Greeting {
        wire_version: WIRE_VERSION,
        nonce: Bytes::copy_from_slice(&nonce),
        refused: None,
    }
}

fn check_greeting(theirs: &Greeting) -> Result<(), HandshakeError> {
    if theirs.wire_version != WIRE_VERSION {
        return Err(wrong(
            &format!("wire version {WIRE_VERSION}"),
            format!("version {}", theirs.wire_version),
        ));
    }
    if theirs.nonce.len() != NONCE_BYTES {
        return Err(wrong(
            &format!("a nonce of {NONCE_BYTES} bytes"),
            format!("{} bytes", theirs.nonce.len()),
        ));
    }
    Ok(())
}

impl Talk<'_> {
    /// What a side signs: the subject, its role, both greetings, and `more`.
    fn signed(&self, what: &str, role: &str, more: &[u8]) -> Vec<u8> {
        let mut said = format!("{what} {role} ").into_bytes();
        for greeting in [&self.dialer, &self.acceptor] {
            said.extend_from_slice(&greeting.encode_length_delimited_to_vec());
        }
        said.extend_from_slice(more);
        said
    }

    fn prove(&self, role: &str) -> Proof {
        let mac = self.me.secret.sign(&self.signed("proof", role, &[]));
        Proof {
            mac: Bytes::copy_from_slice(&mac),
            refused: None,
        }
    }

    fn verify(&self, role: &str, mac: &[u8]) -> Result<(), HandshakeError> {
        match self.me.secret.verifies(&self.signed("proof", role, &[]), mac) {
            true => Ok(()),
            false => Err(wrong(
                "a node that has the cluster's secret",
                "one that has another".into(),
            )),
        }
    }

    fn hello(&self, role: &str, to: &str, refused: Option<&HandshakeError>) -> Hello {
        let mut hello = Hello {
            cluster: self.me.cluster.clone(),
            layout: self.me.layout.clone(),
            from: self.me.node.clone(),
            to: to.to_string(),
            refused: refused.map(ToString::to_string),
            mac: Bytes::new(),
            keyspaces: self.me.keyspaces.iter().map(KeyspaceSaid::from).collect(),
            run: self.me.run,
            linked: match refused {
                Some(HandshakeError::Twice { linked, .. }) => Some(*linked),
                _ => None,
            },
        };
        let mac = self
            .me
            .secret
            .sign(&self.signed("hello", role, &hello.encode_to_vec()));
        hello.mac = Bytes::copy_from_slice(&mac);
        hello
    }

    fn verify_hello(&self, role: &str, theirs: &Hello) -> Result<(), HandshakeError> {
        let said = Hello {
            mac: Bytes::new(),
            ..theirs.clone()
        };
        let said = self.signed("hello", role, &said.encode_to_vec());
        match self.me.secret.verifies(&said, &theirs.mac) {
            true => Ok(()),
            false => Err(wrong("a hello as it was said", "one that was changed".into())),
        }
    }

    fn check(&self, theirs: &Hello) -> Result<Met, HandshakeError> {
        expect("a node of the cluster", &self.me.cluster, &theirs.cluster)?;
        expect("the same sites and nodes", &self.me.layout, &theirs.layout)?;
        let found = theirs.keyspaces.len();
        if found > MAX_KEYSPACES {
            let why = format!("expected at most {MAX_KEYSPACES} keyspaces, found {found}");
            return Err(HandshakeError::Peer(why));
        }
        let keyspaces = theirs.keyspaces.iter().map(KeyspaceSaid::check);
        let keyspaces = keyspaces.collect::<Result<Vec<_>, _>>()?;
        let agreement = Agreement::between(&self.me.keyspaces, &keyspaces)
            .map_err(|differs| HandshakeError::Peer(differs.to_string()))?;
        Ok(Met {
            node: theirs.from.clone(),
            run: theirs.run,
            agreement,
        })
    }
}

impl From<&KeyspaceTerms> for KeyspaceSaid {
    fn from(terms: &KeyspaceTerms) -> KeyspaceSaid {
        let numbers = terms.members.numbers().iter().map(|&number| u32::from(number));
        let (members, members_by_site) = match terms.members.numbers() {
            [same] => (Some(u32::from(*same)), Vec::new()),
            _ => (None, numbers.collect()),
        };
        KeyspaceSaid {
            name: terms.name.clone(),
            protocol: terms.protocol.clone(),
            partitions: terms.partitions,
            members,
            replica_sites: terms.replica_sites,
            members_by_site,
        }
    }
}

impl KeyspaceSaid {
    fn check_members(&self) -> Result<Members, HandshakeError> {
        const MAX: usize = ReplicaId::MAX_SITES as usize;
        let same = [self.members.unwrap_or(1)];
        let said = match self.members_by_site.is_empty() {
            true => &same[..],
            false => &self.members_by_site[..],
        };
        let numbers: Option<Vec<u16>> = said.iter().map(|&number| u16::try_from(number).ok()).collect();
        let members = numbers.and_then(|numbers| Members::of(&numbers));
        members.ok_or_else(|| {
            let (name, few) = (&self.name, &said[..said.len().min(MAX + 1)]);
            HandshakeError::Peer(format!(
                "expected numbers of members for keyspace {name}, found {few:?}"
            ))
        })
    }

    /// The keyspace's terms, if they have valid names: the names are shown to operators.
    fn check(&self) -> Result<KeyspaceTerms, HandshakeError> {
        if let Some(found) = [&self.name, &self.protocol]
            .into_iter()
            .find(|name| name.parse::<Name>().is_err())
        {
            let why = format!(
                "expected the name of a keyspace and of its protocol, found {}",
                quoted(found)
            );
            return Err(HandshakeError::Peer(why));
        }
        Ok(KeyspaceTerms {
            name: self.name.clone(),
            protocol: self.protocol.clone(),
            partitions: self.partitions,
            members: self.check_members()?,
            replica_sites: self.replica_sites,
        })
    }
}

fn expect(what: &str, expected: &str, found: &str) -> Result<(), HandshakeError> {
    match expected == found {
        true => Ok(()),
        false => Err(HandshakeError::Peer(format!(
            "expected {what} {}, found {}",
            quoted(expected),
            quoted(found)
        ))),
    }
}

/// What the other side said, in quotes: bounded, on one line, and without anything that a terminal would obey.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", plain(text))
}

fn plain(text: &str) -> String {
    const MAX_CHARS: usize = 500;
    let chars = text.chars().take(MAX_CHARS);
    chars
        .flat_map(|one| {
            let is_plain = !one.is_control() && !matches!(one, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
            let escaped = (!is_plain).then(|| one.escape_unicode());
            escaped.into_iter().flatten().chain(is_plain.then_some(one))
        })
        .collect()
}

fn wrong(expected: &str, found: String) -> HandshakeError {
    HandshakeError::Wrong {
        expected: expected.to_string(),
        found,
    }
}

fn not_refused(refused: Option<&str>) -> Result<(), HandshakeError> {
    refused.map_or(Ok(()), |why| Err(HandshakeError::Refused(plain(why))))
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), message: &impl Message) -> Result<(), HandshakeError> {
    let mut out = BytesMut::new();
    out.extend_from_slice(&(message.encoded_len() as u32).to_be_bytes());
    message.encode(&mut out).expect("a BytesMut grows");
    Ok(stream.write_all(&out).await?)
}

async fn receive<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin),
    max_bytes: usize,
) -> Result<M, HandshakeError> {
    let len = stream.read_u32().await? as usize;
    if len > max_bytes {
        return Err(wrong("a message of the handshake", format!("{len} bytes")));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await?;
    M::decode(&bytes[..]).map_err(|error| wrong("a message of the handshake", plain(&error.to_string())))
}

#[cfg(test)]
mod tests;
