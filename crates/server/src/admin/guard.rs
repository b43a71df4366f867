//! Which requests the admin HTTP answers at all. A request with the right token always. Else these are checked, in this order:
//!
//! - **The host.** A web page can let its name point to the address of a node (DNS rebinding). For a browser, page and node are then one origin. But the
//!   browser still sends the name of the page as `Host`. So the host must be an IP address, `localhost`, or a name that the configuration has for a node
//!   or lists in `admin_hosts`. A request without a host passes: no browser sends one. `/healthz` is shown for any host: it tells nothing.
//! - **The origin.** A page of another origin may send requests to a node that change something, although it cannot read the answers. The browser names
//!   the page's origin, so these requests are refused.
//! - **The token.** A request that changes something (any method but `GET` and `HEAD`) needs the operators' token. If none is configured, it must come over
//!   a loopback connection, and not through a proxy that says that it is one.
//!
//! Nodes tell each other of changes of the WAN with a token of their own, which follows from the cluster's secret. It is good for nothing else.
//!
//! A refusal is counted, and logged. At most one is logged every ten seconds, with the number of those that were left out.
//!
//! **Caveats.** Without TLS, a token can be read on its way. What only shows something needs no token. If a proxy on the node's machine passes requests on
//! and adds no header, they seem to come from that machine: then configure a token. A proxy that sets `Host` by itself hides the host from the check.
use super::{AdminToken, Refusal};
use crate::seldom::Seldom;
use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, uri::Authority},
};
use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use turnbuckle_core::{ClusterSecret, Micros};

/// How often refusals are logged, at most.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// The only route that takes the token of the cluster's nodes.
pub(super) const LINKS_ROUTE: &str = "/wan/links";

/// Headers by which a proxy says for whom it asks.
const OF_PROXIES: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// The two ends of the connection over which a request came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

impl Ends {
    /// Whether the connection does not leave the machine. The address of the other end alone does not tell: what publishes the ports of a container often
    /// puts an address of its own in the place of the client's.
    fn are_loopback(self) -> bool {
        [self.from, self.to]
            .iter()
            .all(|end| end.ip().to_canonical().is_loopback())
    }
}

/// Decides which requests are answered. See the top of the file.
pub struct Guard {
    /// The name of the node, for the log.
    node: String,
    /// The names by which requests may address the node, beside IP addresses and `localhost`. In lower case.
    hosts: BTreeSet<String>,
    /// Tokens are compared by what they sign, so that the time which a comparison takes tells nothing.
    secret: ClusterSecret,
    /// What the operators' token signs, if they have one.
    operators: Option<[u8; 32]>,
    /// What the token of the cluster's nodes signs.
    nodes: [u8; 32],
    refused: AtomicU64,
    log: Mutex<Seldom>,
    started: Instant,
}

impl Guard {
    /// A guard for a node of the cluster with this secret. Host names must be in lower case.
    pub fn new(
        node: &str,
        secret: &ClusterSecret,
        token: Option<&AdminToken>,
        hosts: impl IntoIterator<Item = String>,
    ) -> Guard {
        let sign = |token: &AdminToken| secret.sign(token.text().as_bytes());
        Guard {
            node: node.to_string(),
            hosts: hosts.into_iter().collect(),
            operators: token.map(sign),
            nodes: sign(&AdminToken::of_nodes(secret)),
            secret: secret.clone(),
            refused: AtomicU64::new(0),
            log: Mutex::new(Seldom::new(SAY_EVERY)),
            started: Instant::now(),
        }
    }

    /// How many requests were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Logs how many refusals were not logged, if there are any and it is time.
    pub(crate) fn sum_up(&self) {
        let more = self.log().sum_up(self.now());
        if let Some(more) = more {
            tracing::warn!(
                node = self.node,
                "the admin HTTP refused requests that were left out of the log: {more}"
            );
        }
    }

    fn say(&self, request: &Request, ends: Ends, refusal: &Refusal) {
        let may_say = self.log().may_say(self.now());
        if let Some(left_out) = may_say {
            let (method, path) = (request.method().as_str(), request.uri().path());
            let (method, path, from) = (start_of(method), start_of(path), ends.from);
            let why = &refusal.error;
            tracing::warn!(
                node = self.node,
                "the admin HTTP refused {method:?} {path:?} from {from}: {why}{left_out}"
            );
        }
    }

    fn now(&self) -> Micros {
        Micros(self.started.elapsed().as_micros() as u64)
    }

    fn log(&self) -> MutexGuard<'_, Seldom> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks a request. If it is refused, that is counted and logged.
    pub(super) fn check(&self, request: &Request, ends: Ends) -> Result<(), Refusal> {
        if self.has_token(request) {
            return Ok(());
        }
        let checked = self
            .check_host(request)
            .and_then(|()| check_origin(request.headers()))
            .and_then(|()| self.check_change(request, ends));
        checked.inspect_err(|refusal| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.say(request, ends, refusal);
        })
    }

    /// Whether the request has the operators' token, or that of the nodes where it is good for something.
    fn has_token(&self, request: &Request) -> bool {
        let Some(token) =
            only(request.headers(), header::AUTHORIZATION).and_then(|given| bearer(given.as_bytes()))
        else {
            return false;
        };
        let signs = |signature: &[u8; 32]| {
            token.len() <= AdminToken::MAX_BYTES && self.secret.verifies(token, signature)
        };
        let of_nodes = request.method() == Method::PUT && request.uri().path() == LINKS_ROUTE;
        self.operators.as_ref().is_some_and(signs) || of_nodes && signs(&self.nodes)
    }

    fn check_host(&self, request: &Request) -> Result<(), Refusal> {
        if shows(request.method()) && request.uri().path() == "/healthz" {
            return Ok(());
        }
        let in_headers = request
            .headers()
            .get_all(header::HOST)
            .iter()
            .map(HeaderValue::as_bytes);
        let in_uri = request
            .uri()
            .authority()
            .map(|authority| authority.as_str().as_bytes());
        let foreign = in_headers.chain(in_uri).find(|host| !self.is_own(host));
        let Some(foreign) = foreign else {
            return Ok(());
        };
        // The answer names no host of the cluster: a foreign page can read it.
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            format!(
                "the request is for the host {:?}",
                start_of(&String::from_utf8_lossy(foreign))
            ),
            "an IP address, localhost, or a name that the configuration has for a node or lists in admin_hosts",
        ))
    }

    /// Whether the node may be addressed by this host, with or without a port.
    fn is_own(&self, host: &[u8]) -> bool {
        let Ok(authority) = Authority::try_from(host) else {
            return false;
        };
        let host = authority.host().to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        address.unwrap_or(host).parse::<IpAddr>().is_ok() || host == "localhost" || self.hosts.contains(host)
    }

    /// What changes something must come from the node's own machine, if the operators have no token.
    fn check_change(&self, request: &Request, ends: Ends) -> Result<(), Refusal> {
        let (method, headers) = (request.method(), request.headers());
        if shows(method) {
            return Ok(());
        }
        let came = match headers.contains_key(header::AUTHORIZATION) {
            true => "with an Authorization header that is not right",
            false => "without a token",
        };
        let proxy = OF_PROXIES.iter().find(|name| headers.contains_key(**name));
        let (place, expected) = match self.operators {
            Some(_) => (
                String::new(),
                "the header Authorization: Bearer TOKEN with the token of admin_token_file (turnbuckle wan and turnbuckle cluster: --token-file)",
            ),
            None if ends.are_loopback() && proxy.is_none() => return Ok(()),
            None => (
                match proxy {
                    Some(header) => format!(", through a proxy (its header {header})"),
                    None => ", and not over a loopback connection".to_string(),
                },
                "a request to a loopback address of the node's own machine, or a token, which has to be configured first (admin_token_file)",
            ),
        };
        let error = format!("this request changes something, and came {came}{place}");
        Err(Refusal::new(StatusCode::UNAUTHORIZED, error, expected))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// Whether a request with this method changes nothing.
fn shows(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// The beginning of a text from outside, for messages.
fn start_of(text: &str) -> String {
    text.chars().take(100).collect()
}

/// A header, if there is one of it and not several.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&HeaderValue> {
    let mut all = headers.get_all(name).iter();
    all.next().filter(|_| all.next().is_none())
}

/// The token of an `Authorization` header, if it is one of the scheme `Bearer`, in whatever case.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

/// Refuses what a browser sends for a page of another origin than the host of the request.
fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let host = only(headers, header::HOST).map(HeaderValue::as_bytes);
    let is_own = |origin: &&HeaderValue| {
        let authority = origin.as_bytes().strip_prefix(b"http://");
        authority.is_some() && authority == host
    };
    match headers
        .get_all(header::ORIGIN)
        .iter()
        .find(|origin| !is_own(origin))
    {
        None => Ok(()),
        Some(foreign) => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            format!(
                "the request was made by a web page of {:?}",
                start_of(&String::from_utf8_lossy(foreign.as_bytes()))
            ),
            "requests of this origin, or of no web page",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    const FAR: &str = "10.0.0.9:5000 10.0.0.1:7101";
    const SAME_ADDRESS: &str = "10.0.0.1:5000 10.0.0.1:7101";
    const LOOPBACK: &str = "[::ffff:127.0.0.1]:5000 [::ffff:127.0.0.1]:7101";

    fn guard(token: Option<&str>) -> Guard {
        let token = token.map(|token| token.parse().expect("a token"));
        let hosts = ["a1.shop.example".to_string(), "node_2".to_string()];
        Guard::new("a1", &secret(), token.as_ref(), hosts)
    }

    fn secret() -> ClusterSecret {
        ClusterSecret::new("a secret of 16 bytes or more")
    }

    /// What a request's refusal says, with its status.
    fn refusal(guard: &Guard, ends: &str, to: &str, headers: &[(&str, &str)]) -> Option<(u16, String)> {
        let (from, at) = ends.split_once(' ').expect("two addresses");
        let ends = Ends {
            from: from.parse().expect(from),
            to: at.parse().expect(at),
        };
        let (method, path) = to.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let refusal = guard.check(&request, ends).err()?;
        Some((refusal.status.as_u16(), format!("{refusal:?}")))
    }

    /// The status of a request's refusal; 0 if it is not refused.
    fn status(guard: &Guard, ends: &str, to: &str, headers: &[(&str, &str)]) -> u16 {
        refusal(guard, ends, to, headers).map_or(0, |(status, _)| status)
    }

    #[test]
    fn a_request_must_address_the_node_by_a_name_of_its_own() {
        let guard = guard(Some("sixteen-letters."));
        for (host, expected) in [
            ("10.0.0.1:7101", 0),
            ("10.0.0.1", 0),
            ("[::1]:7101", 0),
            ("LocalHost:7101", 0),
            ("A1.shop.example:7101", 0),
            ("a1.shop.example.:7101", 0),
            ("node_2", 0),
            ("evil.example:7101", 403),
            ("a1.shop.example.evil.example", 403),
            ("localhost.evil.example", 403),
            ("a1.shop.example@evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("", 403),
            ("a b", 403),
        ] {
            assert_eq!(
                status(&guard, LOOPBACK, "GET /status", &[("host", host)]),
                expected,
                "{host:?}"
            );
            for to in ["GET /healthz", "HEAD /healthz"] {
                assert_eq!(status(&guard, LOOPBACK, to, &[("host", host)]), 0, "{host:?}");
            }
        }
        // Two names: both must be right. A request of HTTP 1.0 may have none.
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(&guard, LOOPBACK, "GET /status", &two), 403);
        assert_eq!(status(&guard, LOOPBACK, "GET /status", &[]), 0);
        assert_eq!(
            status(
                &guard,
                LOOPBACK,
                "GET http://evil.example/status",
                &[("host", "localhost")]
            ),
            403
        );
        assert_eq!(guard.refused(), 9);
        let (_, said) =
            refusal(&guard, FAR, "GET /status", &[("host", "evil.example")]).expect("it is refused");
        assert!(said.contains("evil.example") && !said.contains("shop"), "{said}");
        let with_token = [
            ("host", "evil.example"),
            ("authorization", "Bearer sixteen-letters."),
        ];
        assert_eq!(status(&guard, FAR, "GET /status", &with_token), 0);
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let guard = guard(None);
        for (origin, expected) in [
            ("http://10.0.0.1:7101", 0),
            ("http://10.0.0.1:7102", 403),
            ("https://10.0.0.1:7101", 403),
            ("null", 403),
        ] {
            let headers = [("host", "10.0.0.1:7101"), ("origin", origin)];
            assert_eq!(
                status(&guard, LOOPBACK, "POST /wan", &headers),
                expected,
                "{origin}"
            );
        }
        assert_eq!(
            status(&guard, LOOPBACK, "POST /wan", &[("origin", "http://x")]),
            403
        );
        let two = [
            ("host", "10.0.0.1"),
            ("origin", "http://10.0.0.1"),
            ("origin", "http://x"),
        ];
        assert_eq!(status(&guard, LOOPBACK, "POST /wan", &two), 403);
    }

    #[test]
    fn without_a_configured_token_only_loopback_connections_change_anything() {
        let guard = guard(None);
        let of_nodes = format!("bearer {}", AdminToken::of_nodes(&secret()).text());
        for (ends, header, expected) in [
            (LOOPBACK, None, 0),
            (LOOPBACK, Some(("authorization", "Basic Zm9vOmJhcg==")), 0),
            (LOOPBACK, Some(("x-forwarded-for", "10.0.0.9")), 401),
            (LOOPBACK, Some(("via", "1.1 proxy")), 401),
            (SAME_ADDRESS, None, 401),
            (FAR, None, 401),
            (FAR, Some(("authorization", "Bearer sixteen-letters.")), 401),
            (FAR, Some(("authorization", of_nodes.as_str())), 401),
            (FAR, Some(("authorization", "Bear")), 401),
        ] {
            for to in [
                "POST /wan",
                "PUT /wan",
                "DELETE /wan",
                "OPTIONS /wan",
                "TRACE /wan",
                "QUERY /wan",
                "FOO /wan",
            ] {
                assert_eq!(
                    status(&guard, ends, to, header.as_slice()),
                    expected,
                    "{ends} {to} {header:?}"
                );
            }
        }
        for to in ["GET /wan", "HEAD /wan"] {
            assert_eq!(status(&guard, FAR, to, &[]), 0);
        }
        let said = |ends, headers: &[_]| {
            refusal(&guard, ends, "POST /wan", headers)
                .expect("it is refused")
                .1
        };
        assert!(said(LOOPBACK, &[("via", "1.1 proxy")]).contains("through a proxy (its header via)"));
        assert!(said(FAR, &[]).contains("without a token, and not over a loopback connection"));
    }

    #[test]
    fn with_a_configured_token_every_change_needs_it() {
        let guard = guard(Some("sixteen-letters."));
        let right = ("authorization", "Bearer sixteen-letters.");
        let long = format!("Bearer {}", "a".repeat(100_000));
        for ends in [LOOPBACK, SAME_ADDRESS, FAR] {
            for wrong in [
                "Bearer sixteen-letters,",
                "Bearer ",
                "",
                "Basic sixteen-letters.",
                &long,
            ] {
                assert_eq!(
                    status(&guard, ends, "POST /wan", &[("authorization", wrong)]),
                    401
                );
            }
            assert_eq!(status(&guard, ends, "POST /wan", &[]), 401);
            assert_eq!(status(&guard, ends, "POST /wan", &[right]), 0);
            assert_eq!(
                status(&guard, ends, "POST /wan", &[right, right]),
                401,
                "two tokens"
            );
            assert_eq!(status(&guard, ends, "GET /wan", &[]), 0);
        }
    }

    #[test]
    fn the_token_of_the_nodes_is_good_for_what_nodes_tell_each_other_alone() {
        let of_nodes = format!("Bearer {}", AdminToken::of_nodes(&secret()).text());
        let headers = [("authorization", of_nodes.as_str()), ("host", "an.older.name")];
        for guard in [guard(None), guard(Some("sixteen-letters."))] {
            assert_eq!(status(&guard, FAR, "PUT /wan/links", &headers), 0);
            for to in ["POST /wan/links", "PUT /wan", "POST /members", "POST /lead"] {
                assert_ne!(status(&guard, FAR, to, &headers), 0, "{to}");
                assert_eq!(status(&guard, FAR, to, &headers[..1]), 401, "{to}");
            }
        }
    }
}
