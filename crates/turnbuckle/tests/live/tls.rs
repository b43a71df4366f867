//! TLS at all three ports, with certificates that `turnbuckle certificates` makes: who is served, who is not, what a listener on the line learns, and certificates that are renewed.
use crate::cluster::{Cluster, patient, text, wait_until};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use turnbuckle_server::admin::AdminClient;

const WAIT: Duration = Duration::from_secs(60);

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
    stream.set_read_timeout(Some(WAIT)).expect("a timeout");
    stream
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Sends commands, and reads as many bytes as are expected.
fn exchange(stream: &mut (impl Read + Write), sent: &[u8], expected: &[u8]) {
    stream.write_all(sent).expect("it is sent");
    stream.flush().expect("it is sent");
    let mut read = vec![0; expected.len()];
    stream.read_exact(&mut read).expect("an answer");
    assert!(
        read == expected,
        "{} bytes, and others were expected: {:?}..",
        read.len(),
        String::from_utf8_lossy(&read[..read.len().min(80)])
    );
}

/// What a server sends to a stranger before it closes the connection.
fn learns(mut stream: impl Read + Write, says: &[u8]) -> Vec<u8> {
    let _ = stream.write_all(says).and_then(|()| stream.flush());
    let mut learned = Vec::new();
    // A refused client may see that the connection was reset.
    let _ = stream.read_to_end(&mut learned);
    learned
}

#[test]
fn all_three_ports_serve_those_with_certificates_and_tell_others_nothing() {
    let mut cluster = Cluster::new(1, "interval(10ms)", patient());
    cluster.protect("");
    cluster.start_all();
    let mut client = cluster
        .authority()
        .protect(connect(cluster.ports(0).resp), "localhost")
        .expect("a name");
    let long: Vec<u8> = (0..900_000_u32).map(|number| (number % 251) as u8).collect();
    exchange(&mut client, &command(&[b"SET", b"long", &long]), b"+OK\r\n");
    let mut one = format!("${}\r\n", long.len()).into_bytes();
    one.extend_from_slice(&long);
    one.extend_from_slice(b"\r\n");
    exchange(
        &mut client,
        &command(&[b"GET", b"long"]).repeat(20),
        &one.repeat(20),
    );
    exchange(
        &mut client,
        &command(&[b"SET", b"k", b"v"]).repeat(20_000),
        &b"+OK\r\n".repeat(20_000),
    );
    cluster.settle();
    // A site that has received it over a protected link.
    let mut other = cluster
        .authority()
        .protect(connect(cluster.ports(2).resp), "localhost")
        .expect("a name");
    exchange(&mut other, &command(&[b"GET", b"long"]), &one);

    // An alert of TLS, and nothing else.
    for port in [
        cluster.ports(0).resp,
        cluster.ports(0).peer,
        cluster.ports(0).admin,
    ] {
        let learned = learns(connect(port), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(
            learned.len() <= 7 && learned.first().is_none_or(|first| *first == 21),
            "{learned:?}"
        );
    }
    let without = cluster
        .authority()
        .protect(connect(cluster.ports(0).peer), "a1")
        .expect("a name");
    assert_eq!(
        learns(without, b"TBUCKPER"),
        b"",
        "the peer port wants a certificate"
    );
    let wrong_name = cluster
        .authority()
        .protect(connect(cluster.ports(0).resp), "b1")
        .expect("a name");
    assert_eq!(learns(wrong_name, b"PING\r\n"), b"", "the certificate is for a1");
    let plain = AdminClient::new(format!("127.0.0.1:{}", cluster.ports(0).admin), WAIT);
    assert!(plain.status().is_err(), "the admin HTTP is HTTPS");
}

#[test]
fn a_client_that_says_goodbye_with_its_last_command_is_answered_and_ended() {
    let mut cluster = Cluster::new(1, "interval(10ms)", patient());
    cluster.protect("links = false\nadmin = false");
    cluster.start_node(0);
    let mut client = cluster
        .authority()
        .protect(connect(cluster.ports(0).resp), "localhost")
        .expect("a name");
    exchange(&mut client, &command(&[b"ECHO", b"x"]), b"$1\r\nx\r\n");
    // Both arrive together, and the connection stays open at this end.
    client
        .conn
        .writer()
        .write_all(&command(&[b"ECHO", b"y"]))
        .expect("it is kept");
    client.conn.send_close_notify();
    client.flush().expect("it is sent");
    let mut answer = Vec::new();
    client
        .read_to_end(&mut answer)
        .expect("the node ends the connection");
    assert_eq!(answer, b"$1\r\ny\r\n");
}

#[test]
fn clients_may_need_a_certificate_and_links_may_be_plain() {
    let mut cluster = Cluster::new(1, "interval(10ms)", patient());
    cluster.protect("clients = \"certificate\"\nlinks = false\nadmin = false");
    cluster.start_node(0);
    let without = cluster
        .authority()
        .protect(connect(cluster.ports(0).resp), "localhost")
        .expect("a name");
    assert_eq!(learns(without, b"PING\r\n"), b"");
    let plain = AdminClient::new(format!("127.0.0.1:{}", cluster.ports(0).admin), WAIT);
    assert!(plain.status().is_ok(), "the admin HTTP is not HTTPS");
}

#[test]
fn a_node_of_another_authority_gets_no_link() {
    let mut cluster = Cluster::new(1, "interval(10ms)", patient());
    cluster.protect("");
    cluster.start_node(0);
    // The same names and the same secret, and another authority.
    let mut others = Cluster::new(1, "interval(10ms)", patient());
    others.protect("");
    let tls = |cluster: &Cluster| cluster.file().with_file_name("tls");
    for file in ["b1.crt", "b1.key", "authority.crt"] {
        std::fs::copy(tls(&others).join(file), tls(&cluster).join(file)).expect("it is copied");
    }
    cluster.start_node(1);
    wait_until("a1 says why it has no link to b1", || {
        let status = cluster.admin(0).status().expect("the node says how it is");
        status.links.iter().any(|link| {
            let why = link.reason.as_deref().unwrap_or_default();
            link.peer == "b1" && !link.up && why.contains("TLS")
        })
    });
}

/// Passes bytes on in both directions, and keeps them. Once it is told to, it changes one byte of what the dialer sends.
fn listen_in(to: u16, heard: Arc<Mutex<Vec<u8>>>, changes: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for dialled in listener.incoming().flatten() {
            let Ok(target) = TcpStream::connect(("127.0.0.1", to)) else {
                continue;
            };
            let pairs = [
                (dialled.try_clone(), target.try_clone(), true),
                (target.try_clone(), dialled.try_clone(), false),
            ];
            for (from, to, is_dialer) in pairs {
                let (Ok(mut from), Ok(mut to)) = (from, to) else {
                    continue;
                };
                let (heard, changes) = (Arc::clone(&heard), Arc::clone(&changes));
                thread::spawn(move || {
                    let mut buffer = [0; 1 << 16];
                    loop {
                        let read = match from.read(&mut buffer) {
                            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                            Ok(0) | Err(_) => break,
                            Ok(read) => read,
                        };
                        heard.lock().expect("no panic").extend_from_slice(&buffer[..read]);
                        if is_dialer && read > 40 && changes.swap(false, Ordering::Relaxed) {
                            buffer[read - 1] ^= 1;
                        }
                        if to.write_all(&buffer[..read]).is_err() {
                            break;
                        }
                    }
                    let _ = from.shutdown(Shutdown::Both);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    port
}

#[test]
fn who_listens_on_a_link_learns_no_value_and_can_change_none() {
    let mut cluster = Cluster::new(1, "interval(10ms)", patient());
    cluster.protect("clients = \"plain\"\nadmin = false");
    let (heard, changes) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let proxy = listen_in(cluster.ports(1).peer, Arc::clone(&heard), Arc::clone(&changes));
    // a1 reaches b1 through the listener only.
    let configuration = std::fs::read_to_string(cluster.file()).expect("the configuration");
    let peer = format!("127.0.0.1:{}", cluster.ports(1).peer);
    assert!(configuration.contains(&peer));
    let through = cluster.file().with_file_name("through.toml");
    std::fs::write(
        &through,
        configuration.replace(&peer, &format!("127.0.0.1:{proxy}")),
    )
    .expect("it is written");
    let mut command_of_a = std::process::Command::new(env!("CARGO_BIN_EXE_turnbuckle"));
    command_of_a
        .args(["start", "--node", "a1", "--config"])
        .arg(&through);
    command_of_a
        .env("TURNBUCKLE_LOG", "warn")
        .stdout(std::process::Stdio::piped());
    cluster.start_node_as(0, command_of_a);
    cluster.start_node(1);
    cluster.start_node(2);
    let mut a = connect(cluster.ports(0).resp);
    wait_until("a serves", || {
        let answer = cluster.client(0).call(&[b"SET", b"warm", b"up"]);
        text(&answer) == "OK"
    });
    exchange(&mut a, &command(&[b"SET", b"pay", b"PAY-ALICE"]), b"+OK\r\n");
    let arrived = |value: &str| {
        let mut b = cluster.client(1);
        wait_until("b has it", || text(&b.call(&[b"GET", b"pay"])) == value);
    };
    arrived("PAY-ALICE");
    changes.store(true, Ordering::Relaxed);
    exchange(&mut a, &command(&[b"SET", b"pay", b"PAY-BOB"]), b"+OK\r\n");
    // The changed bytes break the link, and what was sent comes again over the next one.
    arrived("PAY-BOB");
    assert!(!changes.load(Ordering::Relaxed), "a byte was changed");
    let heard = heard.lock().expect("no panic");
    assert!(heard.len() > 1_000, "{} bytes", heard.len());
    for secret in [&b"PAY-"[..], b"pay"] {
        assert!(
            !heard.windows(secret.len()).any(|bytes| bytes == secret),
            "it is not encrypted"
        );
    }
}

#[test]
fn certificates_are_renewed_while_a_node_serves() {
    let mut cluster = Cluster::new(1, "interval(10ms)", patient());
    cluster.protect("links = false\nadmin = false");
    cluster.start_node(0);
    let authority = cluster.authority().clone();
    let port = cluster.ports(0).resp;
    let certificate = || {
        let mut client = authority.protect(connect(port), "localhost").expect("a name");
        exchange(&mut client, &command(&[b"ECHO", b"x"]), b"$1\r\nx\r\n");
        let certificates = client.conn.peer_certificates().expect("a certificate");
        certificates[0].to_vec()
    };
    // The certificates are valid for a year.
    let admin = AdminClient::new(format!("127.0.0.1:{}", cluster.ports(0).admin), WAIT);
    let expires = || {
        let status = admin.status().expect("the node says how it is");
        status
            .certificate_expires_unix_seconds
            .expect("it has a certificate")
    };
    let days_left = |expires: u64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        (expires - now.as_secs()).div_ceil(86_400)
    };
    let (before, old) = (certificate(), expires());
    assert_eq!(days_left(old), 365);
    let mut open = authority.protect(connect(port), "localhost").expect("a name");
    exchange(&mut open, &command(&[b"ECHO", b"x"]), b"$1\r\nx\r\n");
    cluster.make_certificates(&["--renew"]);
    wait_until("the new certificate is used", || certificate() != before);
    assert!(expires() >= old && days_left(expires()) == 365);
    exchange(&mut open, &command(&[b"ECHO", b"x"]), b"$1\r\nx\r\n");
}
