//! What two nodes say to each other before anything else.
//!
//! ```text
//!   dialer                                            acceptor
//!     | -- Hello: versions, cluster, layout, who, nonce --> |  refused unless all of it fits
//!     | <------------- Hello, or why not ------------------ |
//!     | -- proof: HMAC of both nonces ---------------------> |  refused unless it has the cluster's secret
//!     | <------------ proof, or why not ------------------- |
//! ```
//!
//! Each side proves that it has the secret over the other's fresh nonce, so nothing said in an earlier connection can be
//! said again. Frames that follow are not encrypted: peers' traffic belongs on a network that is trusted.
use bytes::{Bytes, BytesMut};
use prost::Message;
use std::{io, time::Duration};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use turnbuckle_core::ClusterSecret;
use turnbuckle_node::WIRE_VERSION;

/// The whole handshake must be done by then.
const TIME: Duration = Duration::from_secs(10);

/// The longest message of a handshake.
const MOST_BYTES: usize = 64 << 10;

const MAGIC: &[u8; 8] = b"TBUCKPER";

/// What a node knows of itself and expects of others.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub cluster: String,
    pub layout: String,
    pub node: String,
    pub secret: ClusterSecret,
}

/// Why there is no link.
#[derive(Debug, Error)]
pub(crate) enum HandshakeError {
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    #[error("the handshake took longer than {} s", TIME.as_secs())]
    Slow,
    #[error("expected {expected}, found {found}")]
    Wrong { expected: String, found: String },
    #[error("the peer refused: {0}")]
    Refused(String),
}

#[derive(Clone, PartialEq, Message)]
struct Hello {
    #[prost(uint32, tag = "1")]
    wire_version: u32,
    #[prost(string, tag = "2")]
    cluster: String,
    #[prost(string, tag = "3")]
    layout: String,
    #[prost(string, tag = "4")]
    from: String,
    #[prost(string, tag = "5")]
    to: String,
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

/// The side that connected, to the node called `to`.
pub(crate) async fn dial(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    me: &Identity,
    to: &str,
    nonce: [u8; 16],
) -> Result<(), HandshakeError> {
    within(async {
        stream.write_all(MAGIC).await?;
        let mine = hello(me, to, nonce);
        send(stream, &mine).await?;
        let theirs: Hello = receive(stream).await?;
        not_refused(theirs.refused.as_deref())?;
        check(me, &theirs)?;
        expect("a hello of the node that was dialled", to, &theirs.from)?;
        send(stream, &prove(me, "dialer", &mine, &theirs)).await?;
        let proof: Proof = receive(stream).await?;
        not_refused(proof.refused.as_deref())?;
        verify(me, "acceptor", &mine, &theirs, &proof)
    })
    .await
}

/// The side that was connected to. Returns the name of the node that did; `claimed` is the name that it gave, proven or not.
pub(crate) async fn accept(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    me: &Identity,
    nonce: [u8; 16],
    claimed: &mut Option<String>,
) -> Result<String, HandshakeError> {
    within(async {
        let mut magic = [0; MAGIC.len()];
        stream.read_exact(&mut magic).await?;
        if magic != *MAGIC {
            return Err(wrong(
                "a node of a Turnbuckle cluster",
                magic.escape_ascii().to_string(),
            ));
        }
        let theirs: Hello = receive(stream).await?;
        *claimed = Some(theirs.from.clone());
        let mut mine = hello(me, &theirs.from, nonce);
        let fits = check(me, &theirs).and_then(|()| expect("a hello for this node", &me.node, &theirs.to));
        mine.refused = fits.as_ref().err().map(ToString::to_string);
        send(stream, &mine).await?;
        fits?;
        let proof: Proof = receive(stream).await?;
        let proven = verify(me, "dialer", &theirs, &mine, &proof);
        let mut answer = prove(me, "acceptor", &theirs, &mine);
        if let Err(error) = &proven {
            // Who could not prove anything is not given a proof.
            answer = Proof {
                mac: Bytes::new(),
                refused: Some(error.to_string()),
            };
        }
        send(stream, &answer).await?;
        proven.map(|()| theirs.from)
    })
    .await
}

async fn within<T>(work: impl Future<Output = Result<T, HandshakeError>>) -> Result<T, HandshakeError> {
    timeout(TIME, work).await.unwrap_or(Err(HandshakeError::Slow))
}

fn hello(me: &Identity, to: &str, nonce: [u8; 16]) -> Hello {
    Hello {
        wire_version: WIRE_VERSION,
        cluster: me.cluster.clone(),
        layout: me.layout.clone(),
        from: me.node.clone(),
        to: to.to_string(),
        nonce: Bytes::copy_from_slice(&nonce),
        refused: None,
    }
}

fn check(me: &Identity, theirs: &Hello) -> Result<(), HandshakeError> {
    if theirs.wire_version != WIRE_VERSION {
        return Err(wrong(
            &format!("wire version {WIRE_VERSION}"),
            format!("version {}", theirs.wire_version),
        ));
    }
    expect("a node of the cluster", &me.cluster, &theirs.cluster)?;
    expect("the same configuration", &me.layout, &theirs.layout)?;
    if theirs.nonce.len() != 16 {
        return Err(wrong(
            "a nonce of 16 bytes",
            format!("{} bytes", theirs.nonce.len()),
        ));
    }
    Ok(())
}

fn expect(what: &str, expected: &str, found: &str) -> Result<(), HandshakeError> {
    let short = |text: &str| text.chars().take(300).collect::<String>();
    match expected == found {
        true => Ok(()),
        false => Err(wrong(
            &format!("{what} '{}'", short(expected)),
            format!("'{}'", short(found)),
        )),
    }
}

fn wrong(expected: &str, found: String) -> HandshakeError {
    HandshakeError::Wrong {
        expected: expected.to_string(),
        found,
    }
}

fn not_refused(refused: Option<&str>) -> Result<(), HandshakeError> {
    refused.map_or(Ok(()), |why| {
        Err(HandshakeError::Refused(why.chars().take(500).collect()))
    })
}

/// What a side signs: its role and everything that both have said.
fn signed(role: &str, dialer: &Hello, acceptor: &Hello) -> Vec<u8> {
    let mut said = role.as_bytes().to_vec();
    let acceptor = Hello {
        refused: None,
        ..acceptor.clone()
    };
    for hello in [dialer, &acceptor] {
        said.extend_from_slice(&hello.encode_length_delimited_to_vec());
    }
    said
}

fn prove(me: &Identity, role: &str, dialer: &Hello, acceptor: &Hello) -> Proof {
    let mac = me.secret.sign(&signed(role, dialer, acceptor));
    Proof {
        mac: Bytes::copy_from_slice(&mac),
        refused: None,
    }
}

fn verify(
    me: &Identity,
    role: &str,
    dialer: &Hello,
    acceptor: &Hello,
    proof: &Proof,
) -> Result<(), HandshakeError> {
    match me.secret.verifies(&signed(role, dialer, acceptor), &proof.mac) {
        true => Ok(()),
        false => Err(wrong(
            "a node that has the cluster's secret",
            "one that has another".into(),
        )),
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), message: &impl Message) -> Result<(), HandshakeError> {
    let mut out = BytesMut::new();
    out.extend_from_slice(&(message.encoded_len() as u32).to_be_bytes());
    message.encode(&mut out).expect("a BytesMut grows");
    Ok(stream.write_all(&out).await?)
}

async fn receive<M: Message + Default>(stream: &mut (impl AsyncRead + Unpin)) -> Result<M, HandshakeError> {
    let len = stream.read_u32().await? as usize;
    if len > MOST_BYTES {
        return Err(wrong("a message of the handshake", format!("{len} bytes")));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await?;
    M::decode(&bytes[..]).map_err(|error| wrong("a message of the handshake", error.to_string()))
}

#[cfg(test)]
mod tests;
