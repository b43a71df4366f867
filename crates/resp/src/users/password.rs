//! The hash of a password: `sha256:SALT:HASH`, where HASH is the HMAC-SHA256 of the password with the salt as its key, both in hexadecimal digits.
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::{fmt, ops::RangeInclusive, str::FromStr};
use thiserror::Error;

/// How long a salt may be, in bytes. All lengths up to the block of SHA-256 cost the same time.
const SALT_BYTES: RangeInclusive<usize> = 8..=64;

/// What is kept of a password. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    salt: Vec<u8>,
    hash: [u8; 32],
}

/// A text that is no hash of a password. The text is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", PasswordHash::EXPECTED)]
pub struct BadPasswordHash;

impl PasswordHash {
    /// What a hash looks like, for messages.
    pub const EXPECTED: &str = "the hash of a password, as turnbuckle user hash prints it: sha256:SALT:HASH, with a salt of 8 to 64 bytes and a hash \
        of 32 bytes, both in hexadecimal digits";

    /// The fewest bytes of a new password. The hash is fast, so shorter passwords can be guessed from the hash.
    pub const MIN_PASSWORD_BYTES: usize = 16;

    /// The hash of a password with this salt.
    ///
    /// # Panics
    /// If the salt is not of 8 to 64 bytes.
    pub fn of(password: &[u8], salt: &[u8]) -> PasswordHash {
        assert!(SALT_BYTES.contains(&salt.len()), "a salt of {} bytes", salt.len());
        let salt = salt.to_vec();
        let hash = mac(&salt).chain_update(password).finalize().into_bytes().into();
        PasswordHash { salt, hash }
    }

    /// Whether this is the password. Takes the same time whatever is wrong with it.
    pub(crate) fn verifies(&self, password: &[u8]) -> bool {
        let mac = mac(&self.salt).chain_update(password);
        mac.verify_slice(&self.hash).is_ok()
    }

    /// A hash that no password has, as far as is known. To verify it costs as much as any other hash.
    pub(crate) fn none() -> &'static PasswordHash {
        static NONE: PasswordHash = PasswordHash {
            salt: Vec::new(),
            hash: [0; 32],
        };
        &NONE
    }
}

fn mac(salt: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(salt).expect("HMAC takes a key of any length")
}

impl FromStr for PasswordHash {
    type Err = BadPasswordHash;

    fn from_str(text: &str) -> Result<PasswordHash, BadPasswordHash> {
        let parts = text.strip_prefix("sha256:").and_then(|rest| rest.split_once(':'));
        let (salt, hash) = parts.ok_or(BadPasswordHash)?;
        let salt = from_hex(salt).filter(|salt| SALT_BYTES.contains(&salt.len()));
        let hash = from_hex(hash).and_then(|hash| hash.try_into().ok());
        salt.zip(hash)
            .map(|(salt, hash)| PasswordHash { salt, hash })
            .ok_or(BadPasswordHash)
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}:{}", to_hex(&self.salt), to_hex(&self.hash))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    pairs.iter().map(byte).collect()
}
