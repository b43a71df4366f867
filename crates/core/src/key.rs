use bytes::Bytes;
use std::{borrow::Borrow, fmt};

/// The number of hash slots that a keyspace is divided into, as in Redis Cluster.
pub const HASH_SLOTS: u16 = 16_384;

/// A key: any bytes, the empty string included, up to the configured limit. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(pub Bytes);

impl Key {
    /// The key's hash slot, `0..HASH_SLOTS`.
    pub fn slot(&self) -> u16 {
        hash_slot(&self.0)
    }

    /// A copy of the key in its own memory, which does not keep the buffer alive that the key was read into.
    pub fn compact(&self) -> Key {
        Key(Bytes::copy_from_slice(&self.0))
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<Bytes> for Key {
    fn from(bytes: Bytes) -> Key {
        Key(bytes)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// The hash slot of a key exactly as Redis Cluster computes it: CRC16 (XMODEM) modulo 16,384 of the key or, if it
/// has a `{tag}` that is not empty, of the first such tag.
pub fn hash_slot(key: &[u8]) -> u16 {
    let hashed = match key.iter().position(|&b| b == b'{') {
        Some(open) => match key[open + 1..].iter().position(|&b| b == b'}') {
            Some(len) if len > 0 => &key[open + 1..open + 1 + len],
            _ => key,
        },
        None => key,
    };
    crc16(hashed) % HASH_SLOTS
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // From the Redis Cluster specification and `CLUSTER KEYSLOT` of a Redis 7 server.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(hash_slot(b"123456789"), 12739);
        assert_eq!(hash_slot(b"foo"), 12182);
        assert_eq!(hash_slot(b""), 0);
        assert_eq!(
            hash_slot(b"{user1000}.following"),
            hash_slot(b"{user1000}.followers")
        );
        assert_eq!(hash_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % HASH_SLOTS);
        assert_eq!(hash_slot(b"foo{{bar}}zap"), hash_slot(b"{bar"));
        assert_eq!(hash_slot(b"foo{bar}{zap}"), hash_slot(b"bar"));
    }
}
