//! Session tokens: what a client carries from one connection, gateway or site to another.
use crate::{BadFrame, Key, Vector, Wire};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use thiserror::Error;

/// The secret that all nodes of a cluster share; it signs session tokens.
#[derive(Clone)]
pub struct ClusterSecret(Bytes);

impl ClusterSecret {
    /// The secret of these bytes.
    pub fn new(secret: impl Into<Bytes>) -> ClusterSecret {
        ClusterSecret(secret.into())
    }

    /// The HMAC-SHA-256 of `message`: a proof that it was signed with the secret.
    pub fn sign(&self, message: &[u8]) -> [u8; 32] {
        self.mac().chain_update(message).finalize().into_bytes().into()
    }

    /// Whether `signature` is that of `message`. Takes the same time whatever is wrong with the signature.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.mac().chain_update(message).verify_slice(signature).is_ok()
    }

    fn mac(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length")
    }
}

/// Never printed.
impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

/// What a token says about where it belongs. The rest of it is the session's state, which no other code reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHeader {
    /// The cluster's name.
    pub cluster: String,
    /// The keyspace's name.
    pub keyspace: String,
}

/// A token that cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadToken {
    /// Not a token, or cut short.
    #[error("not a session token: expected {}, found {}", .0.expected, .0.found)]
    Malformed(#[from] BadFrame),
    /// The token has a version of the format that this release does not read.
    #[error(
        "not a session token that this release reads: expected version {}, found version {found}",
        TokenHeader::VERSION
    )]
    Version {
        /// The version that the token carries.
        found: u8,
    },
    /// The token was changed on its way, or signed by another cluster.
    #[error("the session token was not signed with this cluster's secret, or was changed")]
    Signature,
    /// A token of another cluster or keyspace.
    #[error("the session token belongs to {what} '{found}'; expected '{expected}'")]
    Elsewhere {
        /// `cluster` or `keyspace`.
        what: &'static str,
        /// The name here.
        expected: String,
        /// The name in the token.
        found: String,
    },
    /// The session has no room for both what it knows and what the token knows.
    #[error(
        "the session token cannot be added to what this session has seen, because both together are too large: {0}"
    )]
    NoRoom(String),
}

impl BadToken {
    /// For sessions that remember nothing: their state is empty.
    ///
    /// # Errors
    /// If it is not.
    pub fn unless_empty(state: &[u8]) -> Result<(), BadToken> {
        match state.len() {
            0 => Ok(()),
            bytes => {
                let expected = "the empty state of a session that remembers nothing";
                Err(BadFrame::new(expected, format!("{bytes} bytes")).into())
            }
        }
    }
}

const SIGNATURE_BYTES: usize = 16;

impl TokenHeader {
    /// The version of the format that this release writes and reads.
    pub const VERSION: u8 = 1;

    /// The longest token that is accepted, in bytes.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// A signed token with the session's `state` inside.
    ///
    /// ```text
    ///   version u8 | cluster length u8, name | keyspace length u8, name | state .. | first 16 bytes of HMAC-SHA-256
    /// ```
    ///
    /// # Panics
    /// If a name is longer than 255 bytes: the configuration is checked before.
    pub fn seal(&self, secret: &ClusterSecret, state: &[u8]) -> Bytes {
        let mut token = BytesMut::with_capacity(
            3 + self.cluster.len() + self.keyspace.len() + state.len() + SIGNATURE_BYTES,
        );
        token.put_u8(Self::VERSION);
        for name in [&self.cluster, &self.keyspace] {
            token.put_u8(u8::try_from(name.len()).expect("names have at most 255 bytes"));
            token.put_slice(name.as_bytes());
        }
        token.put_slice(state);
        let signature = secret.mac().chain_update(&token).finalize().into_bytes();
        token.put_slice(&signature[..SIGNATURE_BYTES]);
        token.freeze()
    }

    /// The state inside a token, if it was sealed with the same secret for this cluster and keyspace.
    pub fn open(&self, secret: &ClusterSecret, token: &[u8]) -> Result<Bytes, BadToken> {
        let malformed = |found: &str| BadFrame::new("a signed token", found);
        if token.len() > Self::MAX_BYTES {
            return Err(malformed("more than 64 KiB").into());
        }
        let version = *token.first().ok_or_else(|| malformed("nothing"))?;
        if token.len() < 3 + SIGNATURE_BYTES {
            return Err(malformed("too few bytes").into());
        }
        if version != Self::VERSION {
            return Err(BadToken::Version { found: version });
        }
        let (signed, signature) = token.split_at(token.len() - SIGNATURE_BYTES);
        secret
            .mac()
            .chain_update(signed)
            .verify_truncated_left(signature)
            .map_err(|_| BadToken::Signature)?;
        let mut rest = Bytes::copy_from_slice(&signed[1..]);
        for (what, expected) in [("cluster", &self.cluster), ("keyspace", &self.keyspace)] {
            let found = take_name(&mut rest)?;
            if found != *expected {
                return Err(BadToken::Elsewhere {
                    what,
                    expected: expected.clone(),
                    found,
                });
            }
        }
        Ok(rest)
    }
}

/// The causal context of a key as clients carry it: signed, for its key alone. A context that is made up, or a part of one, could replace a version and not
/// what that version had replaced. Then replicas that receive the versions in different orders would differ permanently.
impl TokenHeader {
    /// A signed context: the vector ([`Vector::put`]), then the first 16 bytes of an HMAC-SHA-256 of it, with the names of cluster, keyspace and key.
    pub fn seal_context(&self, secret: &ClusterSecret, key: &Key, context: &Vector) -> Bytes {
        let mut sealed = BytesMut::new();
        context.put(&mut sealed);
        let signature = self.context_mac(secret, key, &sealed).finalize().into_bytes();
        sealed.put_slice(&signature[..SIGNATURE_BYTES]);
        sealed.freeze()
    }

    /// The context, if it was sealed with the same secret for this key of this cluster and keyspace.
    pub fn open_context(&self, secret: &ClusterSecret, key: &Key, sealed: &[u8]) -> Option<Vector> {
        let (vector, signature) = sealed.split_at_checked(sealed.len().checked_sub(SIGNATURE_BYTES)?)?;
        let mac = self.context_mac(secret, key, vector);
        mac.verify_truncated_left(signature).ok()?;
        Vector::decode(Bytes::copy_from_slice(vector)).ok()
    }

    fn context_mac(&self, secret: &ClusterSecret, key: &Key, vector: &[u8]) -> Hmac<Sha256> {
        let mut mac = secret.mac().chain_update(b"causal context");
        for part in [self.cluster.as_bytes(), self.keyspace.as_bytes(), key.as_ref()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.chain_update(vector)
    }
}

fn take_name(rest: &mut Bytes) -> Result<String, BadFrame> {
    let cut_short = || BadFrame::new("a name", "the end of the token");
    let len = usize::from(rest.try_get_u8().map_err(|_| cut_short())?);
    if rest.len() < len {
        return Err(cut_short());
    }
    String::from_utf8(rest.split_to(len).into()).map_err(|_| BadFrame::new("a name in UTF-8", "other bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(keyspace: &str) -> TokenHeader {
        TokenHeader {
            cluster: "demo".into(),
            keyspace: keyspace.into(),
        }
    }

    #[test]
    fn a_context_opens_for_its_key_and_nowhere_else() {
        let secret = ClusterSecret::new(&b"one"[..]);
        let (key, other) = (Key::from("k"), Key::from("l"));
        let context = Vector::filled(3, crate::Hlc(7));
        let sealed = header("cart").seal_context(&secret, &key, &context);
        assert_eq!(header("cart").open_context(&secret, &key, &sealed), Some(context));
        assert_eq!(header("cart").open_context(&secret, &other, &sealed), None);
        assert_eq!(header("other").open_context(&secret, &key, &sealed), None);
        let changed = ClusterSecret::new(&b"two"[..]);
        assert_eq!(header("cart").open_context(&changed, &key, &sealed), None);
        for len in 0..sealed.len() {
            assert_eq!(header("cart").open_context(&secret, &key, &sealed[..len]), None);
        }
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(header("cart").open_context(&secret, &key, &flipped), None);
        }
        // A session's token is no context.
        let token = header("cart").seal(&secret, &[0]);
        assert_eq!(header("cart").open_context(&secret, &key, &token), None);
    }

    #[test]
    fn a_token_opens_where_it_was_sealed_and_nowhere_else() {
        let secret = ClusterSecret::new(&b"one"[..]);
        let token = header("causal").seal(&secret, b"state");
        assert_eq!(header("causal").open(&secret, &token).unwrap(), &b"state"[..]);
        assert!(matches!(
            header("eventual").open(&secret, &token),
            Err(BadToken::Elsewhere { what: "keyspace", .. })
        ));
        let other = ClusterSecret::new(&b"two"[..]);
        assert_eq!(header("causal").open(&other, &token), Err(BadToken::Signature));
    }

    #[test]
    fn what_is_too_short_is_no_token_of_another_version() {
        let secret = ClusterSecret::new(&b"one"[..]);
        let opened = header("causal").open(&secret, b"abc");
        assert!(matches!(opened, Err(BadToken::Malformed(_))), "{opened:?}");
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let secret = ClusterSecret::new(&b"one"[..]);
        let token = header("causal").seal(&secret, b"state");
        for place in 0..token.len() {
            let mut changed = token.to_vec();
            changed[place] ^= 0x40;
            header("causal")
                .open(&secret, &changed)
                .expect_err("a changed token opened");
            header("causal")
                .open(&secret, &token[..place])
                .expect_err("a token cut short opened");
        }
    }
}
