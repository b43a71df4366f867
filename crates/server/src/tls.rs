//! TLS: certificates of nodes, and the streams that they protect.
//!
//! All nodes of a cluster have certificates that one *authority* has signed, and each certificate is for the name of its node.
//!
//! ```text
//!   [tls]
//!   certificate = "tls/{node}.crt"     a file of each node: its certificate, and those between it and the authority
//!   key = "tls/{node}.key"
//!   authority = "tls/authority.crt"    the same for all
//!
//!   link    a1 ---- certificate of a1 ----> b1      b1 checks that the authority has signed it
//!           a1 <--- certificate of b1 ----- b1      a1 checks that, and that it is for the name b1
//!           then the handshake with the cluster's secret (peer/handshake.rs), and b1 checks that the certificate is for the name that a1 says
//! ```
//!
//! Clients and operators check the node's certificate as they check that of any server. If `clients = "certificate"`, a client needs one, too, that the same authority has signed.
//!
//! **New certificates.** A node looks at its files every few seconds. If they have changed, connections that begin from then on use what is there now. Connections that are open go on with the old
//! certificates. If the new files cannot be used, the node says why and goes on with the old ones.
//!
//! **Caveats.** Certificates are not revoked: a key that was stolen can be used until its certificate expires. Whoever has a client's certificate cannot be taken for a node without the cluster's secret.
use crate::config::read_bounded;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::WebPkiClientVerifier,
};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    pin::Pin,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use webpki::{EndEntityCert, KeyUsage};

/// How often a node looks whether its files have changed.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long it may take until a connection is protected.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// How long before its certificate expires a node warns, in days.
const WARN_DAYS: u64 = 14;

/// A certificate that is valid for longer counts as one that is valid for this time.
const LONGEST_DAYS: u64 = 36_525;

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The `[tls]` table of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The path of the node's certificate. `{node}` stands for the node's name.
    pub certificate: PathBuf,
    /// The path of the node's key, likewise.
    pub key: PathBuf,
    /// The path of the authority's certificate.
    pub authority: PathBuf,
    /// Whether the links between nodes are protected.
    pub links: bool,
    /// How clients connect.
    pub clients: ClientTls,
    /// Whether the admin HTTP is HTTPS.
    pub admin: bool,
}

/// How clients connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientTls {
    /// Without TLS.
    Plain,
    /// With TLS.
    Tls,
    /// With TLS, and with a certificate that the authority has signed.
    Certificate,
}

impl FromStr for ClientTls {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ClientTls, &'static str> {
        match text {
            "plain" => Ok(ClientTls::Plain),
            "tls" => Ok(ClientTls::Tls),
            "certificate" => Ok(ClientTls::Certificate),
            _ => Err("expected \"plain\", \"tls\" or \"certificate\""),
        }
    }
}

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file has no certificate or key.
    #[error("{}: expected {expected} in PEM, found {found}", file.display())]
    NotPem {
        /// The file.
        file: PathBuf,
        /// What it should have.
        expected: &'static str,
        /// What is wrong.
        found: String,
    },
    /// The certificates do not fit each other, the key, the node or the time.
    #[error("{}: {why}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// What connections that begin now use.
struct Loaded {
    /// The last second at which peers accept the certificate, since 1970.
    valid_until: u64,
    accepts_links: Arc<ServerConfig>,
    dials_links: Arc<ClientConfig>,
    clients: Option<Arc<ServerConfig>>,
    admin: Option<Arc<ServerConfig>>,
}

/// What the three files have.
#[derive(PartialEq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authority: Vec<u8>,
}

/// A node's certificates.
pub struct Tls {
    node: String,
    config: TlsConfig,
    loaded: Mutex<(Files, Arc<Loaded>)>,
    /// What was last said about files that cannot be used.
    said: Mutex<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl TlsConfig {
    fn path(&self, path: &Path, node: &str) -> PathBuf {
        PathBuf::from(path.to_string_lossy().replace("{node}", node))
    }
}

impl Tls {
    /// Reads a node's files.
    ///
    /// # Errors
    /// If they cannot be used.
    pub(crate) fn open(node: &str, config: &TlsConfig) -> Result<Tls, TlsError> {
        let files = Files::read(node, config)?;
        let loaded = files.load(node, config)?;
        Ok(Tls {
            node: node.to_string(),
            config: config.clone(),
            loaded: Mutex::new((files, Arc::new(loaded))),
            said: Mutex::default(),
        })
    }

    fn loaded(&self) -> Arc<Loaded> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&loaded.1)
    }

    /// Looks whether the files have changed. If so, connections that begin from now on use what they have now.
    pub(crate) fn look(&self) {
        let read = Files::read(&self.node, &self.config);
        let loaded = read.and_then(|files| {
            let is_same = {
                let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
                loaded.0 == files
            };
            match is_same {
                true => Ok(None),
                false => {
                    let loaded = files.load(&self.node, &self.config)?;
                    Ok(Some((files, Arc::new(loaded))))
                }
            }
        });
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded {
            Ok(None) => {
                let why = match self.loaded().expires_soon() {
                    true => format!("the certificate expires within {WARN_DAYS} days"),
                    false => String::new(),
                };
                if *said != why && !why.is_empty() {
                    tracing::warn!(node = self.node, "{why}");
                }
                *said = why;
            }
            Ok(Some(new)) => {
                said.clear();
                *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = new;
                tracing::info!(node = self.node, "new certificates are used");
            }
            Err(error) => {
                let why = error.to_string();
                if *said != why {
                    tracing::error!(
                        node = self.node,
                        "the certificates have changed and cannot be used, so the old ones stay: {why}"
                    );
                    *said = why;
                }
            }
        }
    }

    /// The last second at which peers accept the certificate, since 1970.
    pub(crate) fn valid_until(&self) -> u64 {
        self.loaded().valid_until
    }

    /// What clients' connections use. `None`: they are plain.
    pub(crate) fn for_clients(&self) -> Option<Arc<ServerConfig>> {
        self.loaded().clients.clone()
    }

    /// Protects a connection to the admin HTTP, if it is HTTPS.
    ///
    /// # Errors
    /// If the other side does not speak TLS, or is too slow.
    pub(crate) async fn accept_admin(&self, stream: TcpStream) -> io::Result<Link> {
        let Some(config) = self.loaded().admin.clone() else {
            return Ok(Link::Plain(stream));
        };
        let stream = in_time(TlsAcceptor::from(config).accept(stream)).await?;
        Ok(Link::Protected(Box::new(stream.into())))
    }

    /// By what this node knows the admin HTTP of other nodes. `None`: it is not HTTPS.
    pub(crate) fn authority(&self) -> Option<TlsAuthority> {
        let loaded = self.loaded();
        let is_https = loaded.admin.is_some();
        is_https.then(|| TlsAuthority(Arc::clone(&loaded.dials_links)))
    }

    /// Protects a link that a peer has dialled.
    ///
    /// # Errors
    /// If the peer has no certificate that the authority has signed, or is too slow.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Link> {
        if !self.config.links {
            return Ok(Link::Plain(stream));
        }
        let acceptor = TlsAcceptor::from(Arc::clone(&self.loaded().accepts_links));
        let stream = in_time(acceptor.accept(stream)).await?;
        Ok(Link::Protected(Box::new(stream.into())))
    }

    /// Protects a link to the peer of this name.
    ///
    /// # Errors
    /// If the peer has no certificate for this name that the authority has signed, or is too slow.
    pub(crate) async fn connect(&self, stream: TcpStream, peer: &str) -> io::Result<Link> {
        if !self.config.links {
            return Ok(Link::Plain(stream));
        }
        let connector = TlsConnector::from(Arc::clone(&self.loaded().dials_links));
        let stream = in_time(connector.connect(name_of(peer)?, stream)).await?;
        Ok(Link::Protected(Box::new(stream.into())))
    }
}

/// Who has signed the certificates of the servers that a program connects to.
#[derive(Debug, Clone)]
pub struct TlsAuthority(Arc<ClientConfig>);

impl TlsAuthority {
    /// Reads the authority's certificate.
    ///
    /// # Errors
    /// If the file cannot be read, or has no certificate of an authority.
    pub fn read(file: &Path) -> Result<TlsAuthority, TlsError> {
        let text = read_bounded(file, MAX_BYTES).map_err(|source| TlsError::Unreadable {
            file: file.to_owned(),
            source,
        })?;
        let roots = roots(&text, file.to_owned())?;
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(|error| TlsError::Unusable {
            file: file.to_owned(),
            why: error.to_string(),
        })?;
        Ok(TlsAuthority(Arc::new(
            config.with_root_certificates(roots).with_no_client_auth(),
        )))
    }

    /// Protects a connection to the server of this name or address.
    ///
    /// # Errors
    /// If the server has no certificate for this name that the authority has signed, or is too slow.
    pub async fn connect(&self, stream: TcpStream, server: &str) -> io::Result<Link> {
        let connector = TlsConnector::from(Arc::clone(&self.0));
        let stream = in_time(connector.connect(name_of(server)?, stream)).await?;
        Ok(Link::Protected(Box::new(stream.into())))
    }

    /// The same, for a blocking connection. The handshake takes place with the first bytes.
    ///
    /// # Errors
    /// If no server can have such a name.
    pub fn protect<S: io::Read + io::Write>(
        &self,
        stream: S,
        server: &str,
    ) -> io::Result<rustls::StreamOwned<ClientConnection, S>> {
        let connection = ClientConnection::new(Arc::clone(&self.0), name_of(server)?);
        let connection = connection.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(rustls::StreamOwned::new(connection, stream))
    }
}

fn roots(text: &[u8], file: PathBuf) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(text, file.clone())? {
        roots.add(certificate).map_err(|error| TlsError::Unusable {
            file: file.clone(),
            why: format!("expected the certificate of an authority: {error}"),
        })?;
    }
    Ok(Arc::new(roots))
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(HANDSHAKE_TIME, work)
        .await
        .unwrap_or_else(|_| {
            let why = format!("no TLS handshake within {} s", HANDSHAKE_TIME.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        })
}

/// The name of a node or a server, or its address, as certificates have it.
fn name_of(node: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(node.to_string()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

impl Loaded {
    fn expires_soon(&self) -> bool {
        self.valid_until < UnixTime::now().as_secs() + WARN_DAYS * 86_400
    }
}

/// The last second, since 1970, at which peers accept a certificate that they accept now. It is found by bisection: what ends first, the certificate or one between it and the authority, is what
/// counts, and the library that checks them does not say when that is.
fn valid_until(chain: &[CertificateDer<'_>], roots: &RootCertStore) -> u64 {
    let is_valid = |seconds: u64| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verify(chain, roots, time).is_ok()
    };
    let mut valid = UnixTime::now().as_secs();
    let mut over = valid + LONGEST_DAYS * 86_400;
    while over - valid > 1 {
        let middle = valid.midpoint(over);
        match is_valid(middle) {
            true => valid = middle,
            false => over = middle,
        }
    }
    valid
}

impl Files {
    fn read(node: &str, config: &TlsConfig) -> Result<Files, TlsError> {
        let read = |path: &Path| {
            let file = config.path(path, node);
            read_bounded(&file, MAX_BYTES).map_err(|source| TlsError::Unreadable { file, source })
        };
        Ok(Files {
            certificate: read(&config.certificate)?,
            key: read(&config.key)?,
            authority: read(&config.authority)?,
        })
    }

    fn load(&self, node: &str, config: &TlsConfig) -> Result<Loaded, TlsError> {
        let file = |path: &Path| config.path(path, node);
        let chain = certificates(&self.certificate, file(&config.certificate))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| TlsError::NotPem {
            file: file(&config.key),
            expected: "a private key",
            found: error.to_string(),
        })?;
        let roots = roots(&self.authority, file(&config.authority))?;
        check_own(node, &chain, &roots).map_err(|why| TlsError::Unusable {
            file: file(&config.certificate),
            why,
        })?;
        let wrong_key = |error: rustls::Error| TlsError::Unusable {
            file: file(&config.key),
            why: format!("the key does not fit the certificate: {error}"),
        };
        let provider = provider();
        let verifier = || {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
            verifier.build().map_err(|error| TlsError::Unusable {
                file: file(&config.authority),
                why: error.to_string(),
            })
        };
        let server = |needs_certificate: bool| -> Result<Arc<ServerConfig>, TlsError> {
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .map_err(wrong_key)?;
            let builder = match needs_certificate {
                true => builder.with_client_cert_verifier(verifier()?),
                false => builder.with_no_client_auth(),
            };
            let config = builder.with_single_cert(chain.clone(), key.clone_key());
            Ok(Arc::new(config.map_err(wrong_key)?))
        };
        let dials = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(wrong_key)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(wrong_key)?;
        Ok(Loaded {
            valid_until: valid_until(&chain, &roots),
            accepts_links: server(true)?,
            dials_links: Arc::new(dials),
            clients: match config.clients {
                ClientTls::Plain => None,
                ClientTls::Tls => Some(server(false)?),
                ClientTls::Certificate => Some(server(true)?),
            },
            admin: config.admin.then(|| server(false)).transpose()?,
        })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(text: &[u8], file: PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let not_pem = |found: String| TlsError::NotPem {
        file: file.clone(),
        expected: "a certificate",
        found,
    };
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| not_pem(error.to_string()))?;
    match found.is_empty() {
        true => Err(not_pem("none".to_string())),
        false => Ok(found),
    }
}

/// Checks that the node's own certificate would be accepted by its peers: now, for its name, both when it dials and when it is dialled.
fn check_own(node: &str, chain: &[CertificateDer<'_>], roots: &RootCertStore) -> Result<(), String> {
    let certificate = verify(chain, roots, UnixTime::now())?;
    let name =
        name_of(node).map_err(|error| format!("a certificate cannot be for the name '{node}': {error}"))?;
    certificate.verify_is_valid_for_subject_name(&name).map_err(|_| {
        format!("expected a certificate for the name '{node}' of the node, found one for other names")
    })
}

/// Checks that peers would accept the certificate at this time.
fn verify<'a>(
    chain: &'a [CertificateDer<'_>],
    roots: &RootCertStore,
    time: UnixTime,
) -> Result<EndEntityCert<'a>, String> {
    let (first, between) = chain.split_first().ok_or("no certificate")?;
    let certificate = EndEntityCert::try_from(first).map_err(|error| error.to_string())?;
    let algorithms = provider().signature_verification_algorithms.all;
    for usage in [KeyUsage::server_auth(), KeyUsage::client_auth()] {
        certificate
            .verify_for_usage(algorithms, &roots.roots, between, time, usage, None, None)
            .map_err(|error| format!("peers would not accept the certificate: {error}"))?;
    }
    Ok(certificate)
}

/// Whether an error of a connection is one of TLS: what the other side has sent, or its certificate, is wrong.
pub(crate) fn is_of_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// A connection that may be protected: a link between two nodes, or one to a server.
#[derive(Debug)]
pub enum Link {
    /// It is not.
    Plain(TcpStream),
    /// It is.
    Protected(Box<TlsStream<TcpStream>>),
}

/// The two halves of a link.
pub(crate) type Halves = (Box<dyn AsyncRead + Unpin>, Box<dyn AsyncWrite + Unpin>);

impl Link {
    pub(crate) fn into_split(self) -> Halves {
        match self {
            Link::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Box::new(writer))
            }
            Link::Protected(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                (Box::new(reader), Box::new(writer))
            }
        }
    }

    /// The peer's certificate, if the link is protected.
    pub(crate) fn certificate(&self) -> PeerCertificate {
        let Link::Protected(stream) = self else {
            return PeerCertificate(None);
        };
        let (_, connection) = stream.get_ref();
        let certificates = connection.peer_certificates().unwrap_or_default();
        PeerCertificate(Some(certificates.first().map(|first| first.clone().into_owned())))
    }
}

/// The certificate of the other side of a link. `None`: the link is plain.
pub(crate) struct PeerCertificate(Option<Option<CertificateDer<'static>>>);

impl PeerCertificate {
    /// Checks that it is for this name. A plain link has none.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_name(&self, peer: &str) -> Result<(), String> {
        let Some(certificate) = &self.0 else {
            return Ok(());
        };
        let certificate = certificate.as_ref().ok_or("no certificate")?;
        let certificate = EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        let name = name_of(peer).map_err(|error| error.to_string())?;
        certificate
            .verify_is_valid_for_subject_name(&name)
            .map_err(|_| format!("expected a certificate for the name '{peer}', found one for other names"))
    }
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Link::Protected(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Link::Protected(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Link::Protected(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Link::Protected(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
