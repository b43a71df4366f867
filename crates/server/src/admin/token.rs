use crate::config::read_bounded;
use std::{fmt, io, ops::RangeInclusive, path::Path, str::FromStr};
use thiserror::Error;
use turnbuckle_core::ClusterSecret;

/// The token that a request needs if it changes something, as `Authorization: Bearer ..`. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(String);

/// A text that is no token. The text is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", AdminToken::EXPECTED)]
pub struct BadAdminToken;

impl AdminToken {
    /// The longest token, in bytes.
    pub(crate) const MAX_BYTES: usize = 1024;

    /// How long a token may be, in bytes. Shorter ones can be guessed.
    const BYTES: RangeInclusive<usize> = 16..=AdminToken::MAX_BYTES;

    /// What a token looks like, for messages.
    pub const EXPECTED: &str = "a token of 16 to 1024 letters, digits and characters of - . _ ~ + / =";

    /// The token of the cluster's nodes, by which they tell each other of changes of the WAN. It follows from the secret that only they have, and does not
    /// give the secret away.
    pub fn of_nodes(secret: &ClusterSecret) -> AdminToken {
        let signature = secret.sign(b"the admin token of the cluster's nodes");
        AdminToken(signature.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads a file with a token. Line ends at its end are ignored.
    ///
    /// # Errors
    /// If the file cannot be read, is not a regular file, or has no token.
    pub fn read(file: &Path) -> io::Result<AdminToken> {
        let bytes = read_bounded(file, 2 + AdminToken::MAX_BYTES as u64)?;
        let text = String::from_utf8_lossy(&bytes);
        let token = text.trim_end_matches(['\r', '\n']).parse();
        token.map_err(|bad: BadAdminToken| io::Error::new(io::ErrorKind::InvalidData, bad))
    }

    /// The token itself, for a request.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// RFC 6750 allows these characters.
impl FromStr for AdminToken {
    type Err = BadAdminToken;

    fn from_str(text: &str) -> Result<AdminToken, BadAdminToken> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let fits = AdminToken::BYTES.contains(&text.len()) && text.bytes().all(is_allowed);
        fits.then(|| AdminToken(text.to_owned())).ok_or(BadAdminToken)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_into_a_header_cannot_be_guessed_and_is_not_printed() {
        let good = "abcdefgh-._~+/=1";
        let token: AdminToken = good.parse().expect(good);
        assert_eq!(
            (token.text(), format!("{token:?}").as_str()),
            (good, "AdminToken(..)")
        );
        for bad in [
            "",
            "fifteen-letters",
            "a b c d e f g h i",
            "sixteen-letters\n",
            "é".repeat(20).as_str(),
        ] {
            assert_eq!(bad.parse::<AdminToken>(), Err(BadAdminToken), "{bad:?}");
        }
        assert!("a".repeat(1025).parse::<AdminToken>().is_err());
        let secret = ClusterSecret::new("a secret of 16 bytes or more");
        let of_nodes = AdminToken::of_nodes(&secret);
        assert_eq!(of_nodes.text().parse(), Ok(of_nodes.clone()));
        assert_ne!(
            of_nodes,
            AdminToken::of_nodes(&ClusterSecret::new("another secret of 16 bytes"))
        );
    }

    #[test]
    fn a_file_has_a_token_or_the_error_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let read = |content: &[u8]| {
            let file = folder.path().join("token");
            std::fs::write(&file, content).unwrap();
            AdminToken::read(&file).map_err(|error| error.to_string())
        };
        assert_eq!(read(b"sixteen-letters!"), Err(BadAdminToken.to_string()));
        assert_eq!(
            read(b"sixteen-letters.\r\n"),
            Ok("sixteen-letters.".parse().unwrap())
        );
        assert_eq!(read(b"\xff\xff"), Err(BadAdminToken.to_string()));
        assert!(read(&[b'a'; 5000]).unwrap_err().contains("larger than"));
        let no_file = AdminToken::read(folder.path()).unwrap_err();
        assert_eq!(no_file.to_string(), "not a regular file");
    }
}
