//! What comes in over a node's sockets may be anything: it ends its own connection at most, costs bounded memory, and the
//! node goes on serving everybody else.
use crate::cluster::{Client, Cluster, PATIENCE, patient, raise_limit_of_open_files, text, wait_until};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};
use turnbuckle_resp::Value;
use turnbuckle_server::config::Limits;

const MIB: usize = 1 << 20;

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the node listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    stream
}

/// Sends bytes, and nothing after them; what comes back until the node closes.
fn say(port: u16, bytes: &[u8]) -> String {
    let mut stream = connect(port);
    // The node may have closed before it has read all of it.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Bytes without sense, the same every time.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_u32;
    let step = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    std::iter::repeat_with(step).take(bytes).collect()
}

#[test]
fn what_is_not_resp_ends_only_its_own_connection() {
    let mut cluster = Cluster::start("interval(10ms)", patient());
    let mut bystander = cluster.client(0);
    bystander.call(&[b"SET", b"k", b"v"]);
    let before = cluster.resident_bytes(0);
    let million = [b"*1000000\r\n".to_vec(), b"$1\r\na\r\n".repeat(1_000_000)].concat();
    let nested = b"*1\r\n".repeat(100_000);
    let cases: [(&str, &[u8], &str); 15] = [
        ("noise", &noise(300_000), "-ERR"),
        (
            "a bulk of 4 GiB",
            b"*1\r\n$4294967296\r\n",
            "-ERR Protocol error: invalid bulk length",
        ),
        (
            "a negative bulk",
            b"*1\r\n$-1\r\n",
            "-ERR Protocol error: invalid bulk length",
        ),
        (
            "a million arguments",
            &million,
            "-TOOBIG the command has 1000000 arguments",
        ),
        (
            "two million arguments",
            b"*2000000\r\n",
            "-ERR Protocol error: invalid multibulk length",
        ),
        (
            "arrays in arrays",
            &nested,
            "-ERR Protocol error: expected '$', got '*'",
        ),
        (
            "a number that is none",
            b"*1x\r\n",
            "-ERR Protocol error: invalid multibulk length",
        ),
        (
            "a number too large",
            b"*99999999999999999999\r\n",
            "-ERR Protocol error: invalid multibulk length",
        ),
        (
            "a line without end",
            &[b'a'; 100_000],
            "-ERR Protocol error: too big inline request",
        ),
        ("half a command", b"*2\r\n$3\r\nGET\r\n$10\r\nabc", ""),
        ("half a number", b"*2\r\n$1", ""),
        ("nothing", b"", ""),
        ("a reply", b"+OK\r\n", "-ERR unknown command '+OK'"),
        (
            "a client of TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            "",
        ),
        (
            "a browser",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "-ERR wrong number of arguments for 'get' command",
        ),
    ];
    for (what, bytes, expected) in cases {
        let answer = say(cluster.ports(0).resp, bytes);
        assert!(answer.starts_with(expected), "{what}: {:.200}", answer);
        assert_eq!(text(&bystander.call(&[b"GET", b"k"])), "v", "after {what}");
    }
    for _ in 0..50 {
        say(cluster.ports(0).resp, &million[..3 * MIB]);
    }
    assert!(cluster.runs(0));
    let grown = cluster.resident_bytes(0).saturating_sub(before) / MIB;
    assert!(grown < 64, "it grew by {grown} MiB");
}

#[test]
fn keys_and_values_up_to_the_limits_are_taken_and_beyond_them_refused() {
    let cluster = Cluster::start("interval(10ms)", patient());
    let mut client = cluster.client(0);
    let limits = Limits::default();
    let (key, value) = (
        vec![0xFF; limits.max_key_bytes as usize],
        vec![0; limits.max_value_bytes as usize],
    );
    assert_eq!(text(&client.call(&[b"SET", &key, &value])), "OK");
    assert_eq!(text(&client.call(&[b"SET", b"", b""])), "OK", "an empty key");
    let (longer_key, longer_value) = ([&key[..], b"x"].concat(), [&value[..], b"x"].concat());
    for refused in [
        client.call(&[b"SET", &longer_key, b"v"]),
        client.call(&[b"GET", &longer_key]),
        client.call(&[b"SET", b"k", &longer_value]),
    ] {
        assert!(text(&refused).starts_with("TOOBIG"), "{:.200}", text(&refused));
    }
    assert_eq!(
        text(&client.call(&[b"PING"])),
        "PONG",
        "the connection goes on behind what was skipped"
    );
    cluster.settle();
    let mut far = cluster.client(2);
    let Value::Bulk(found) = far.call(&[b"GET", &key]) else {
        panic!("the largest value is at the other site too")
    };
    assert!(found == value);
    assert_eq!(text(&far.call(&[b"GET", b""])), "");
    assert_eq!(far.call(&[b"GET", b"k"]), Value::Null);
}

/// It asks for a gigabyte, and reads nothing of it.
#[test]
fn a_client_that_never_reads_costs_no_more_than_its_backlog() {
    const ASKED: usize = 1_000;
    let cluster = Cluster::start("interval(10ms)", patient());
    let mut bystander = cluster.client(0);
    bystander.call(&[b"SET", b"k", &vec![b'v'; MIB]]);
    let before = cluster.resident_bytes(0);
    let mut idlers: Vec<TcpStream> = (0..8).map(|_| connect(cluster.ports(0).resp)).collect();
    for idler in &mut idlers {
        idler
            .write_all(&b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(ASKED))
            .expect("commands are sent");
    }
    for _ in 0..200 {
        assert_eq!(bystander.call(&[b"STRLEN", b"k"]), Value::Integer(MIB as i64));
    }
    let grown = cluster.resident_bytes(0).saturating_sub(before) / MIB;
    assert!(grown < 96, "8 clients with a backlog of 1 MiB each: {grown} MiB");
    // Whoever reads in the end gets every answer.
    let mut reader = Client::over(idlers.remove(0));
    for _ in 0..ASKED {
        assert!(matches!(reader.read(), Value::Bulk(value) if value.len() == MIB));
    }
    drop(idlers);
    assert_eq!(text(&bystander.call(&[b"PING"])), "PONG");
}

#[test]
fn idle_clients_are_cheap_and_one_too_many_is_told() {
    const CLIENTS: usize = 2_000;
    raise_limit_of_open_files();
    let limits = Limits {
        max_clients: CLIENTS as u64,
        ..patient()
    };
    let cluster = Cluster::start("interval(10ms)", limits);
    let before = cluster.resident_bytes(0);
    let port = cluster.ports(0).resp;
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(port)).collect();
    // The last one has been accepted once it is answered.
    for client in clients.iter_mut().rev() {
        assert_eq!(text(&client.call(&[b"PING"])), "PONG");
    }
    let each = cluster.resident_bytes(0).saturating_sub(before) / CLIENTS;
    assert!(each < 16 << 10, "{each} bytes for each idle client");
    assert_eq!(say(port, b""), "-ERR max number of clients reached\r\n");
    clients.truncate(CLIENTS - 1);
    wait_until("there is room for one again", || {
        say(port, b"PING\r\n") == "+PONG\r\n"
    });
}

#[test]
fn strangers_at_the_port_of_peers_are_turned_away() {
    raise_limit_of_open_files();
    let mut cluster = Cluster::start("interval(10ms)", patient());
    cluster.settle();
    let before = cluster.resident_bytes(0);
    let hello = [b"TBUCKPER".to_vec(), noise(100_000)].concat();
    let long = [b"TBUCKPER".to_vec(), 0xFFFF_FFFF_u32.to_be_bytes().to_vec()].concat();
    for bytes in [
        &noise(300_000)[..],
        b"",
        b"TBUCK",
        b"GET / HTTP/1.1\r\n\r\n",
        &hello,
        &long,
    ] {
        for _ in 0..20 {
            let answer = say(cluster.ports(0).peer, bytes);
            assert!(answer.len() < 1_000, "{} bytes for a stranger", answer.len());
        }
    }
    // More at once than may be in their handshake: the rest is closed, and links that are there stay.
    let silent: Vec<TcpStream> = (0..1_000).map(|_| connect(cluster.ports(0).peer)).collect();
    let mut client = cluster.client(0);
    assert_eq!(text(&client.call(&[b"SET", b"k", b"v"])), "OK");
    cluster.settle();
    assert_eq!(text(&cluster.client(1).call(&[b"GET", b"k"])), "v");
    drop(silent);
    let status = cluster.admin(0).status().expect("the node says how it is");
    assert!(
        status
            .links
            .iter()
            .all(|link| link.up && link.connections_total == 1)
    );
    let grown = cluster.resident_bytes(0).saturating_sub(before) / MIB;
    assert!(cluster.runs(0) && grown < 64, "it grew by {grown} MiB");
}

/// Strangers who connect and say nothing do not keep a peer out.
#[test]
fn silent_strangers_make_room_for_a_node_that_comes_back() {
    raise_limit_of_open_files();
    let mut cluster = Cluster::start("interval(10ms)", patient());
    cluster.settle();
    cluster.kill(0);
    // Node a1 dials the two others. They hear from more strangers than there are places for.
    let silent: Vec<TcpStream> = [1, 2]
        .into_iter()
        .flat_map(|node| std::iter::repeat_n(cluster.ports(node).peer, 300))
        .map(connect)
        .collect();
    let strangers = |node: usize| {
        let status = cluster.admin(node).status().expect("the node says how it is");
        status.strangers
    };
    wait_until("the places are taken", || {
        [1, 2].iter().all(|&node| strangers(node).evicted_total >= 236)
    });
    cluster.start_node(0);
    wait_until("the node that came back is linked", || {
        let status = cluster.admin(0).status().expect("the node says how it is");
        status.links.iter().all(|link| link.up)
    });
    drop(silent);
    cluster.settle();
}

/// Requests that are not finished do not keep the admin HTTP from answering others.
#[test]
fn unfinished_requests_do_not_hold_up_the_health_check() {
    let cluster = Cluster::start("interval(10ms)", patient());
    let mut unfinished: Vec<TcpStream> = (0..200).map(|_| connect(cluster.ports(0).admin)).collect();
    for stream in &mut unfinished {
        // Those that made room for later ones are closed already.
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n");
    }
    for _ in 0..20 {
        let mut stream = connect(cluster.ports(0).admin);
        let request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
        stream.write_all(request).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// What a node stores is for its own user.
#[test]
fn no_other_user_can_read_what_a_node_stores() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = Cluster::start("interval(10ms)", patient());
    cluster.client(0).call(&[b"SET", b"k", b"v"]);
    let mut found = vec![cluster.data_directory(0)];
    let mut seen = 0;
    while let Some(path) = found.pop() {
        let mode = std::fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
        seen += 1;
        if path.is_dir() {
            let inside = std::fs::read_dir(&path).expect("it can be read");
            found.extend(inside.map(|entry| entry.expect("an entry").path()));
        }
    }
    assert!(seen > 5, "{seen} files");
}
