//! `turnbuckle certificates`: an authority, and certificates that it signs, for the nodes of a configuration and for clients.
//!
//! It is for clusters whose operators have no authority of their own. Nodes take certificates from any source, if one authority has signed all of them and each is for the name of its node.
use crate::failure::{Failure, environment, say, usage};
use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use turnbuckle_server::config::{ClusterConfig, NodeEntry};

/// Makes TLS certificates for the nodes of a configuration, and for clients.
///
/// The first time, an authority is made, too: `authority.crt`, which nodes and clients need, and `authority.key`, with which more certificates can be signed. Keep the key where no node is.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  turnbuckle certificates --config cluster.toml --into tls --client app\n\n\
                  Files that exist are left as they are. With --renew, the certificates and keys of the nodes, and of the clients that are named, are\n\
                  made again; a node takes new files within seconds. See docs/tls.md."
)]
pub struct Certificates {
    /// The cluster's configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The directory for the files.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Also make a certificate for a client of this name. May be given more than once.
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// For how many days the certificates are valid. The authority's is valid for ten years.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=3_650))]
    days: u64,
    /// Make the certificates and keys of the nodes again, and of the clients that are named.
    #[arg(long)]
    renew: bool,
}

/// The clocks of other machines may be behind: certificates are valid from this long before now.
const EARLIER: Duration = Duration::from_secs(24 * 3_600);

const AUTHORITY_DAYS: u64 = 3_650;

/// The name of the authority's files.
const AUTHORITY: &str = "authority";

/// Who signs certificates.
type Authority = Issuer<'static, KeyPair>;

pub fn run(options: &Certificates) -> Result<(), Failure> {
    let config = ClusterConfig::read(&options.config).map_err(|error| usage(&error))?;
    for client in &options.clients {
        let is_name = client.parse::<turnbuckle_document::Name>().is_ok();
        if !is_name || config.node_named(client).is_some() || client == AUTHORITY {
            return Err(usage(&format!(
                "expected the name of a client, of letters, digits, - and _, which is no node's and not {AUTHORITY:?}; found {client:?}"
            )));
        }
    }
    if config.node_named(AUTHORITY).is_some() {
        return Err(usage(&format!(
            "the files of a node called {AUTHORITY:?} would be those of the authority"
        )));
    }
    fs::create_dir_all(&options.into)
        .map_err(|error| environment(&format!("{}: {error}", options.into.display())))?;
    let authority = authority(&options.into, &config.name)?;
    for (_, node) in config.nodes() {
        let names = names_of(node);
        make(options, &authority, &node.name, names.into_iter().collect(), true)?;
    }
    for client in &options.clients {
        make(options, &authority, client, vec![client.clone()], false)?;
    }
    Ok(())
}

/// By which names and addresses a node is called: its name, and the hosts of its addresses.
fn names_of(node: &NodeEntry) -> BTreeSet<String> {
    let hosts = [&node.resp, &node.peer, &node.admin].map(|address| address.host().to_string());
    // Whoever listens on all addresses says none.
    let hosts = hosts
        .into_iter()
        .filter(|host| !matches!(host.parse(), Ok(ip) if std::net::IpAddr::is_unspecified(&ip)));
    let mut names: BTreeSet<String> = hosts.collect();
    if names.contains("127.0.0.1") {
        names.insert("localhost".to_string());
    }
    names.insert(node.name.clone());
    names
}

/// The authority in the directory, which is made if there is none.
fn authority(into: &Path, cluster: &str) -> Result<Authority, Failure> {
    let (certificate, key) = (
        into.join(format!("{AUTHORITY}.crt")),
        into.join(format!("{AUTHORITY}.key")),
    );
    let read = |file: &Path| match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(environment(&format!("{}: {error}", file.display()))),
    };
    match (read(&certificate)?, read(&key)?) {
        (Some(certificate_text), Some(key_text)) => {
            let key_pair = KeyPair::from_pem(&key_text).map_err(|error| cannot(&key, &error))?;
            Issuer::from_ca_cert_pem(&certificate_text, key_pair)
                .map_err(|error| cannot(&certificate, &error))
        }
        (None, None) => {
            let mut params =
                CertificateParams::new(Vec::new()).map_err(|error| cannot(&certificate, &error))?;
            // Each authority has another name: so whoever meets a certificate of another one can say that.
            let key_pair = KeyPair::generate().map_err(|error| cannot(&key, &error))?;
            let number = crc32c::crc32c(key_pair.public_key_raw());
            params.distinguished_name.push(
                DnType::CommonName,
                format!("Turnbuckle cluster {cluster}, {number:08x}"),
            );
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            set_days(&mut params, AUTHORITY_DAYS);
            let text = key_pair.serialize_pem();
            let made = CertifiedIssuer::self_signed(params, key_pair)
                .map_err(|error| cannot(&certificate, &error))?;
            write(&key, text.as_bytes(), 0o600)?;
            write(&certificate, made.pem().as_bytes(), 0o644)?;
            say(&format!("{}: a new authority", certificate.display()))?;
            let key_pair = KeyPair::from_pem(&text).map_err(|error| cannot(&key, &error))?;
            Issuer::from_ca_cert_pem(&made.pem(), key_pair).map_err(|error| cannot(&certificate, &error))
        }
        (Some(_), None) => Err(usage(&format!(
            "{} is there, and its key {} is not: without it nothing can be signed",
            certificate.display(),
            key.display()
        ))),
        (None, Some(_)) => Err(usage(&format!(
            "{} is there, and its certificate {} is not",
            key.display(),
            certificate.display()
        ))),
    }
}

/// Makes a certificate and its key, unless they are there.
fn make(
    options: &Certificates,
    authority: &Authority,
    name: &str,
    names: Vec<String>,
    is_node: bool,
) -> Result<(), Failure> {
    let certificate = options.into.join(format!("{name}.crt"));
    let key = options.into.join(format!("{name}.key"));
    if !options.renew && certificate.exists() && key.exists() {
        return say(&format!("{}: left as it is", certificate.display()));
    }
    let mut params = CertificateParams::new(names.clone()).map_err(|error| cannot(&certificate, &error))?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if is_node {
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params.use_authority_key_identifier_extension = true;
    set_days(&mut params, options.days);
    let key_pair = KeyPair::generate().map_err(|error| cannot(&key, &error))?;
    let signed = params
        .signed_by(&key_pair, authority)
        .map_err(|error| cannot(&certificate, &error))?;
    write(&key, key_pair.serialize_pem().as_bytes(), 0o600)?;
    write(&certificate, signed.pem().as_bytes(), 0o644)?;
    say(&format!(
        "{}: for {}, {} days",
        certificate.display(),
        names.join(", "),
        options.days
    ))
}

fn set_days(params: &mut CertificateParams, days: u64) {
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + Duration::from_secs(days * 24 * 3_600)).into();
}

/// Writes a file in one step: a node may read it at any time.
fn write(file: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let part = file.with_extension("part");
    // One that is left from before may have another mode.
    let removed = match fs::remove_file(&part) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let open = || {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&part)
    };
    let written = removed
        .and_then(|()| open())
        .and_then(|mut open| open.write_all(bytes).and_then(|()| open.sync_all()))
        .and_then(|()| fs::rename(&part, file));
    written.map_err(|error| environment(&format!("{}: {error}", file.display())))
}

fn cannot(file: &Path, error: &rcgen::Error) -> Failure {
    environment(&format!("{}: {error}", file.display()))
}
