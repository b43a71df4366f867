//! A client for a node's admin HTTP, as `turnbuckle wan` needs it: blocking, with one connection per request, and with only the HTTP that our own
//! server speaks. A library would add pools, redirects and cookies for a few requests.
use super::{AdminToken, Asked, ChangeMembers, Lead, LinkName, SetDelay, WanLink, WanView};
use crate::{status::Status, tls::TlsAuthority};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};
use thiserror::Error;

/// The longest answer that is read, in bytes.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Sends requests to one node.
#[derive(Debug, Clone)]
pub struct AdminClient {
    address: String,
    max_time: Duration,
    token: Option<AdminToken>,
    /// If the admin HTTP is HTTPS: who has signed its certificate, and the name that the certificate is for.
    authority: Option<(TlsAuthority, String)>,
}

/// Why a request was not answered as expected.
#[derive(Debug, Error)]
pub enum AdminClientError {
    /// Nothing answers at the address, or not in time. Unless the connection was refused, a change may have been made all the same.
    #[error("{address}: no answer from the admin HTTP: {source}")]
    Unreachable {
        /// The address, as `host:port`.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Something answers at the address, but it is not a node's admin HTTP.
    #[error("{address}: found {found}; expected the admin HTTP of a node")]
    NotAdmin {
        /// The address, as `host:port`.
        address: String,
        /// What it answered.
        found: String,
    },
    /// The node refused the request.
    #[error("{address}: {error}; expected {expected}")]
    Refused {
        /// The address, as `host:port`.
        address: String,
        /// The HTTP status.
        status: u16,
        /// What was wrong.
        error: String,
        /// What would have been right.
        expected: String,
    },
}

impl AdminClient {
    /// A client of the node whose admin HTTP is at `address`, a `host:port`. A request takes at most `max_time`.
    pub fn new(address: impl Into<String>, max_time: Duration) -> AdminClient {
        AdminClient {
            address: address.into(),
            max_time,
            token: None,
            authority: None,
        }
    }

    /// The same client, with a token in every request.
    #[must_use]
    pub fn with_token(self, token: Option<AdminToken>) -> AdminClient {
        AdminClient { token, ..self }
    }

    /// The same client, over HTTPS if there is an authority. The node's certificate must be for this name or, without one, for the host of the address.
    #[must_use]
    pub fn with_authority(self, authority: Option<TlsAuthority>, name: Option<&str>) -> AdminClient {
        let host = self
            .address
            .rsplit_once(':')
            .map_or(&self.address[..], |(host, _)| host);
        let name = name.unwrap_or_else(|| host.trim_matches(['[', ']'])).to_string();
        let authority = authority.map(|authority| (authority, name));
        AdminClient { authority, ..self }
    }

    /// Returns the WAN matrix: delays and cuts.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn wan(&self) -> Result<WanView, AdminClientError> {
        self.json("GET", "/wan", None::<&()>)
    }

    /// Sets a delay.
    ///
    /// # Errors
    /// If there is no answer, or a site or the delay is not valid.
    pub fn set_delay(&self, delay: &SetDelay) -> Result<WanView, AdminClientError> {
        self.json("POST", "/wan", Some(delay))
    }

    /// Cuts the link between two sites, in both directions.
    ///
    /// # Errors
    /// If there is no answer, or a site does not exist.
    pub fn cut(&self, link: &LinkName) -> Result<WanView, AdminClientError> {
        self.json("POST", "/wan/cut", Some(link))
    }

    /// Ends the cut of one link, or all cuts if `link` is `None`.
    ///
    /// # Errors
    /// If there is no answer, or a site does not exist.
    pub fn heal(&self, link: Option<&LinkName>) -> Result<WanView, AdminClientError> {
        self.json("POST", "/wan/heal", link)
    }

    /// The node's replicas are to lead their partitions.
    ///
    /// # Errors
    /// If there is no answer, or the node has no such replicas.
    pub fn lead(&self, lead: &Lead) -> Result<Asked, AdminClientError> {
        self.json("POST", "/lead", Some(lead))
    }

    /// Those of the node's replicas that lead are to change the members of their groups.
    ///
    /// # Errors
    /// If there is no answer, or the node knows no such keyspace, site or partition.
    pub fn change_members(&self, change: &ChangeMembers) -> Result<Asked, AdminClientError> {
        self.json("POST", "/members", Some(change))
    }

    /// Tells a node another node's matrix. The node takes over each direction that was changed later there than in its own matrix.
    pub(super) fn adopt(&self, links: &Vec<WanLink>) -> Result<WanView, AdminClientError> {
        self.json("PUT", "/wan/links", Some(links))
    }

    /// What the node says about itself.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn status(&self) -> Result<Status, AdminClientError> {
        self.json("GET", "/status", None::<&()>)
    }

    /// The node's numbers, in the text format of Prometheus.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn metrics(&self) -> Result<String, AdminClientError> {
        let (status, body) = self.request("GET", "/metrics", &[])?;
        let text = String::from_utf8(body).map_err(|_| self.not_admin("bytes that are not UTF-8"))?;
        if status == 200 {
            Ok(text)
        } else {
            Err(self.not_admin(format!("status {status}")))
        }
    }

    /// Whether the node serves clients. If not, the inner error is the reason.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn readiness(&self) -> Result<Result<(), String>, AdminClientError> {
        #[derive(Deserialize)]
        struct Readiness {
            ready: bool,
            #[serde(default)]
            reason: String,
        }
        let (_, body) = self.request("GET", "/readyz", &[])?;
        let Readiness { ready, reason } = self.decode(&body)?;
        Ok(if ready { Ok(()) } else { Err(reason) })
    }

    fn json<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, AdminClientError> {
        let body = body.map(|body| serde_json::to_vec(body).expect("our own types are JSON"));
        let (status, answer) = self.request(method, path, &body.unwrap_or_default())?;
        if status == 200 {
            return self.decode(&answer);
        }
        #[derive(Deserialize)]
        struct Refusal {
            error: String,
            expected: serde_json::Value,
        }
        let Refusal { error, expected } = self.decode(&answer)?;
        let expected = match expected {
            serde_json::Value::String(one) => one,
            other => other.to_string(),
        };
        Err(AdminClientError::Refused {
            address: self.address.clone(),
            status,
            error,
            expected,
        })
    }

    fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, AdminClientError> {
        serde_json::from_slice(body)
            .map_err(|error| self.not_admin(format!("an answer that does not fit: {error}")))
    }

    /// Sends one request on a connection of its own. Returns status and body.
    fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>), AdminClientError> {
        let address = &self.address;
        let token = self.token.as_ref();
        let token = token.map(|token| format!("authorization: Bearer {}\r\n", token.text()));
        let mut message = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {}content-length: {}\r\n\r\n",
            token.unwrap_or_default(),
            body.len()
        )
        .into_bytes();
        message.extend_from_slice(body);
        let answer = self
            .exchange(&message)
            .map_err(|source| AdminClientError::Unreachable {
                address: address.clone(),
                source,
            })?;
        read_answer(&answer).map_err(|found| self.not_admin(found))
    }

    /// Sends a message and reads until the other side closes the connection, all before the deadline.
    fn exchange(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + self.max_time;
        let stream = InTime {
            stream: connect(&self.address, deadline)?,
            deadline,
        };
        match &self.authority {
            None => exchange(stream, message),
            Some((authority, name)) => exchange(authority.protect(stream, name)?, message),
        }
    }

    fn not_admin(&self, found: impl Into<String>) -> AdminClientError {
        AdminClientError::NotAdmin {
            address: self.address.clone(),
            found: found.into(),
        }
    }
}

fn exchange(mut stream: impl Read + Write, message: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(message).map_err(plain_timeout)?;
    stream.flush().map_err(plain_timeout)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            // Whether the answer is whole is seen by its length.
            Ok(0) => return Ok(answer),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(answer),
            Ok(n) => answer.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(plain_timeout(error)),
        }
        if answer.len() > MAX_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer does not end",
            ));
        }
    }
}

/// A connection, each of whose reads and writes ends at the deadline.
struct InTime {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for InTime {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(buffer)
    }
}

impl Write for InTime {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.deadline)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Connects to the first address of the host that accepts.
fn connect(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The time that is left until the deadline. It is never zero, because zero means no limit to a socket.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(timed_out())
    } else {
        Ok(left)
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "timed out")
}

/// Gives a socket's timeout a clear text. On Linux it reads "resource temporarily unavailable".
fn plain_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        timed_out()
    } else {
        error
    }
}

/// The status and body of an answer that was read to its end, or what is wrong with it.
fn read_answer(answer: &[u8]) -> Result<(u16, Vec<u8>), String> {
    // An alert of TLS.
    if answer.first() == Some(&21) {
        return Err("TLS: the node has certificates, and the file of their authority is needed".to_owned());
    }
    let not_http = || "no HTTP".to_owned();
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or_else(not_http)?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| not_http())?;
    let body = &answer[end + 4..];
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let mut words = status_line.split(' ');
    if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err(not_http());
    }
    let status = words
        .next()
        .and_then(|status| status.parse().ok())
        .ok_or_else(not_http)?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find_map(|(name, value)| {
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())
        });
    match length {
        Some(Some(length)) if length == body.len() => Ok((status, body.to_vec())),
        Some(Some(length)) => Err(format!("{} of {length} bytes", body.len())),
        Some(None) | None => Err("an answer without its length".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        let good = b"HTTP/1.1 503 Service Unavailable\r\nX: y\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(read_answer(good), Ok((503, b"{}".to_vec())));
        for end in 0..good.len() {
            read_answer(&good[..end]).expect_err("a part of an answer was taken for the whole");
        }
        for bad in [
            &b"-ERR unknown command\r\n\r\n"[..],
            b"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"\xff\xff\r\n\r\n",
        ] {
            read_answer(bad).expect_err("rubbish was taken for an answer");
        }
    }
}
