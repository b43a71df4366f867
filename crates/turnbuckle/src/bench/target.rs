//! The servers under test, and how a connection to one is set up.

use crate::connection::{Connection, Trouble};
use std::str::FromStr;
use turnbuckle_core::Wanted;
use turnbuckle_resp::Value;
use turnbuckle_server::TlsAuthority;

/// `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) String);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let expected = || format!("'{text}' is no address; expected HOST:PORT, such as 127.0.0.1:6379");
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let is_bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        match port.parse::<u16>() {
            Ok(port) if port > 0 && !host.is_empty() && !is_bare_v6 => Ok(Address(text.into())),
            _ => Err(expected()),
        }
    }
}

/// A server.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: String,
    /// Its name in the trace: its site if the server tells it, else its address.
    pub(crate) site: String,
}

/// The settings with which every connection begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Greeting {
    pub(crate) keyspace: Option<String>,
    pub(crate) read: Option<Wanted>,
    pub(crate) write: Option<Wanted>,
    /// Whether a receipt is wanted with each reply.
    pub(crate) receipts: bool,
    /// If the servers speak TLS: who has signed their certificates.
    pub(crate) authority: Option<TlsAuthority>,
}

impl Greeting {
    /// Opens a connection and sets it up. With a token, it continues the token's session.
    pub(crate) async fn connect(&self, address: &str, token: Option<&[u8]>) -> Result<Connection, Trouble> {
        let mut connection = Connection::open(address, self.authority.as_ref()).await?;
        self.set_up(&mut connection, token)
            .await
            .map_err(|trouble| match trouble {
                Trouble::Refused(why) => Trouble::Refused(format!("{address} refuses {why}")),
                Trouble::Broken(why) => Trouble::Broken(format!("{address}: {why}")),
                Trouble::Late => Trouble::Late,
            })?;
        Ok(connection)
    }

    async fn set_up(&self, connection: &mut Connection, token: Option<&[u8]>) -> Result<(), Trouble> {
        if self.receipts {
            // A server that has neither command gives no receipts.
            let hello = connection.call(&["HELLO", "3"]).await?;
            if !matches!(hello, Value::Error(_)) {
                connection.call(&["RECEIPTS", "ON"]).await?;
            }
        }
        if let Some(keyspace) = &self.keyspace {
            demand(connection, &["SELECT", keyspace]).await?;
        }
        if self.read.is_some() || self.write.is_some() {
            let mut command = vec!["CONSISTENCY".to_owned()];
            for (word, level) in [("READ", &self.read), ("WRITE", &self.write)] {
                if let Some(level) = level {
                    command.extend([word.to_owned(), level.to_string()]);
                }
            }
            demand(connection, &command).await?;
        }
        if let Some(token) = token {
            let command: [&[u8]; 3] = [b"SESSION", b"RESUME", token];
            demand(connection, &command).await?;
        }
        Ok(())
    }
}

/// The token of a connection's session.
pub(crate) async fn session_token(connection: &mut Connection) -> Result<Vec<u8>, Trouble> {
    let command = ["SESSION", "TOKEN"];
    match without_attribute(demand(connection, &command).await?) {
        Value::Bulk(token) | Value::Simple(token) => Ok(token.to_vec()),
        other => Err(Trouble::Broken(format!(
            "SESSION TOKEN: {other:?}, expected a token"
        ))),
    }
}

/// The site that a server says it is at.
pub(crate) async fn site_name(connection: &mut Connection) -> Result<Option<String>, Trouble> {
    let info = match without_attribute(connection.call(&["INFO"]).await?) {
        Value::Bulk(text) | Value::Verbatim(_, text) => text,
        // Some servers refuse this command.
        _ => return Ok(None),
    };
    Ok(String::from_utf8_lossy(&info)
        .lines()
        .find_map(|line| line.strip_prefix("site:"))
        .map(|site| site.trim().to_owned())
        .filter(|site| !site.is_empty()))
}

async fn demand<A: AsRef<[u8]>>(connection: &mut Connection, command: &[A]) -> Result<Value, Trouble> {
    match connection.call(command).await? {
        Value::Error(why) => {
            // A token would only fill the screen.
            let words: Vec<_> = command
                .iter()
                .map(|word| String::from_utf8_lossy(word.as_ref()))
                .map(|word| if word.len() > 40 { "..".into() } else { word })
                .collect();
            let why = String::from_utf8_lossy(&why);
            Err(Trouble::Refused(format!("{}: {why}", words.join(" "))))
        }
        value => Ok(value),
    }
}

fn without_attribute(value: Value) -> Value {
    match value {
        Value::Attribute(_, value) => without_attribute(*value),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["127.0.0.1:6379", "localhost:1", "[::1]:6379"] {
            assert_eq!(good.parse(), Ok(Address(good.into())));
        }
        for bad in [
            "",
            "localhost",
            ":6379",
            "localhost:",
            "localhost:0",
            "a:65536",
            "::1:6379",
            "a:b",
        ] {
            let error = bad.parse::<Address>().expect_err(bad);
            assert!(error.contains("expected HOST:PORT"), "{error}");
        }
    }
}
