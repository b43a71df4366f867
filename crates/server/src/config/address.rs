use std::{fmt, net::IpAddr, str::FromStr};
use thiserror::Error;

/// The address where a node listens and where other nodes find it: `host:port`. The host is a name, an IPv4 address, or an IPv6 address in brackets.
/// `TcpListener::bind` and `TcpStream::connect` take its [`Display`](fmt::Display).
///
/// One file serves all nodes, so one node binds the address and the other nodes connect to it. A wildcard such as `0.0.0.0` is no address to connect
/// to, and port 0 would be a different port for each node. Both are refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

/// An address that does not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", Address::EXPECTED)]
pub struct BadAddress;

impl Address {
    /// What an address looks like, for messages.
    pub const EXPECTED: &str =
        "host:port that other nodes can connect to, such as \"127.0.0.1:7001\" (no wildcard, no port 0)";

    /// The host: a name or an address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether both are on one machine, as far as the text of the hosts tells.
    pub fn is_same_host(&self, other: &Address) -> bool {
        self.endpoint().0 == other.endpoint().0
    }

    /// The host and port by which addresses are compared. `localhost` and `::1` count as `127.0.0.1`.
    pub(super) fn endpoint(&self) -> (String, u16) {
        let host = match self.host.as_str() {
            "localhost" | "::1" => "127.0.0.1",
            host => host,
        };
        (host.to_owned(), self.port)
    }

    /// The port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(BadAddress)?;
        // `u16` would also parse "+7001".
        if !port.bytes().all(|c| c.is_ascii_digit()) {
            return Err(BadAddress);
        }
        let port = port.parse().ok().filter(|&port| port != 0).ok_or(BadAddress)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => {
                let inner = rest.strip_suffix(']').ok_or(BadAddress)?;
                let ip: std::net::Ipv6Addr = inner.parse().map_err(|_| BadAddress)?;
                ip.to_string()
            }
            None if is_host_name(host) => host.to_ascii_lowercase(),
            None => return Err(BadAddress),
        };
        if host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_unspecified() || ip.is_multicast())
        {
            return Err(BadAddress);
        }
        Ok(Address { host, port })
    }
}

/// Whether the text can be a host name, as in DNS: parts of letters, digits, hyphens and underscores, with dots between them. IPv4 addresses have
/// this shape, too: a text of digits and dots only must be one.
fn is_host_name(host: &str) -> bool {
    let is_part = |part: &str| {
        (1..=63).contains(&part.len())
            && part
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let numeric = host.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    host.len() <= 253
        && host.split('.').all(is_part)
        && (!numeric || host.parse::<std::net::Ipv4Addr>().is_ok())
}

/// A host's name, in lower case, without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostName(pub String);

impl FromStr for HostName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<HostName, &'static str> {
        is_host_name(text)
            .then(|| HostName(text.to_ascii_lowercase()))
            .ok_or("expected the name of a host, such as \"ops.example.com\", without a port")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_parses_as_it_prints() {
        for text in [
            "127.0.0.1:7001",
            "localhost:1",
            "node-1.example.com:65535",
            "[::1]:7001",
        ] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        assert_eq!("Node:80".parse::<Address>().unwrap().host(), "node");
    }

    #[test]
    fn what_nobody_could_connect_to_is_refused() {
        for text in [
            "",
            ":",
            "7001",
            "localhost",
            "localhost:",
            "localhost:0",
            "localhost:65536",
            "localhost:+7001",
            "localhost:-1",
            "0.0.0.0:7001",
            "[::]:7001",
            "::1:7001",
            "[::1:7001",
            "256.0.0.1:7001",
            "1.2.3:7001",
            "a b:7001",
            "-a:7001",
            "a..b:7001",
            "224.0.0.1:7001",
            "[127.0.0.1]:7001",
            "host:7001:7002",
            "é:7001",
        ] {
            assert_eq!(text.parse::<Address>(), Err(BadAddress), "{text}");
        }
    }
}
