//! Users of a node: passwords, rights, the file that is read again, and a node without users.
use crate::cluster::{Client, Cluster, patient, text, wait_until};
use redis::Commands;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{Read, Write},
    net::{IpAddr, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Command, Stdio},
};

const NOAUTH: &str = "NOAUTH Authentication required.";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Runs a command with this standard input. Its exit code, its output, and what it says.
fn turnbuckle(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = process.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = process.wait_with_output().expect("it ends");
    let text = |bytes| {
        String::from_utf8(bytes)
            .expect("it is text")
            .trim_end()
            .to_owned()
    };
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A cluster with a file of users, and the path of the file. Nothing of it runs.
fn with_users(users: &str) -> (Cluster, PathBuf) {
    let cluster = Cluster::new(1, "fsync", patient());
    let file = cluster.file().with_file_name("users.toml");
    std::fs::write(&file, users).expect("it can be written");
    configure(&cluster, "users_file = \"users.toml\"\n");
    (cluster, file)
}

fn configure(cluster: &Cluster, lines: &str) {
    let text = std::fs::read_to_string(cluster.file()).expect("the configuration is there");
    std::fs::write(cluster.file(), format!("{lines}{text}")).expect("it can be written");
}

fn call(client: &mut Client, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    text(&client.call(&words))
}

fn text_of(client: &mut Client, command: &[&[u8]]) -> String {
    text(&client.call(command))
}

fn reload(cluster: &Cluster) {
    let process = Pid::from_raw(cluster.process_id(0) as i32).expect("it has a number");
    kill_process(process, Signal::HUP).expect("it can be told");
}

fn refused_files(cluster: &Cluster) -> u64 {
    let status = cluster.admin(0).status().expect("the node says how it is");
    status.users_file_refused_total
}

#[test]
fn passwords_rights_and_a_file_that_is_read_again() {
    let (code, hash, said) = turnbuckle(&["user", "hash"], "the first password\n");
    assert!(code == Some(0) && hash.starts_with("sha256:"), "{said}");
    let (code, _, said) = turnbuckle(&["user", "hash"], "short password\n");
    assert!(
        code == Some(2) && said.contains("found a password of 14 bytes; expected 16 to 1024"),
        "{said}"
    );
    let users = format!(
        "[users.default]\n[users.ann]\npasswords = [\"{hash}\"]\nkeyspaces = [\"eventual\"]\nkeys = [\"session:\"]\n\
         commands = [\"read\", \"write\", \"connection\", \"-getdel\"]\n\
         [users.one]\npasswords = [\"{hash}\"]\nconnections = 1\n"
    );
    let (mut cluster, file) = with_users(&users);
    let (code, password, said) = turnbuckle(
        &[
            "user",
            "add",
            "ops",
            "--users",
            file.to_str().expect("a path in UTF-8"),
        ],
        "",
    );
    assert!(
        code == Some(0) && password.len() == 32 && said.contains("without rights"),
        "{password} {said}"
    );
    let users = std::fs::read_to_string(&file).expect("it is there");
    let users = users.replace(
        "keyspaces = []\ncommands = []",
        "keyspaces = [\"*\"]\ncommands = [\"*\"]",
    );
    std::fs::write(&file, &users).expect("it can be written");
    cluster.start_all();

    // Without a password, with a wrong one, and with the right one.
    let mut ann = cluster.client(0);
    assert_eq!(call(&mut ann, "GET session:1"), NOAUTH);
    assert_eq!(call(&mut ann, "AUTH ann the-wrong-password"), WRONGPASS);
    assert_eq!(call(&mut ann, "AUTH nobody the-wrong-password"), WRONGPASS);
    let auth: [&[u8]; 3] = [b"AUTH", b"ann", b"the first password"];
    assert_eq!(text_of(&mut ann, &auth), "OK");
    assert_eq!(call(&mut ann, "SET session:1 one"), "OK");
    assert_eq!(call(&mut ann, "GET session:1"), "one");
    // A command, a key, all keys, and a keyspace that are not hers.
    for (line, expected) in [
        (
            "GETDEL session:1",
            "NOPERM User ann has no permissions to run the 'getdel' command",
        ),
        (
            "MSET session:1 two other two",
            "NOPERM No permissions to access a key",
        ),
        (
            "SELECT causal",
            "NOPERM User ann has no permissions to access the keyspace 'causal'",
        ),
    ] {
        assert_eq!(call(&mut ann, line), expected, "{line}");
    }
    assert!(
        call(&mut ann, "DBSIZE")
            .starts_with("NOPERM User ann has no permissions to run the 'dbsize' command: ")
    );
    assert_eq!(call(&mut ann, "GET session:1"), "one");

    let mut ops = cluster.client(0);
    assert_eq!(call(&mut ops, &format!("AUTH ops {password}")), "OK");
    assert_eq!(call(&mut ops, "DBSIZE"), "Integer(1)");
    assert!(call(&mut ops, "CLIENT LIST").contains(" user=ann "));
    assert_eq!(call(&mut ops, "ACL GENPASS").len(), 64);
    let refused = cluster
        .admin(0)
        .status()
        .expect("the node says how it is")
        .refused_total;
    let expected = [
        ("noauth", 1),
        ("wrongpass", 2),
        ("command", 1),
        ("key", 2),
        ("keyspace", 1),
        ("protected", 0),
    ];
    for (reason, count) in expected {
        assert_eq!(refused[reason], count, "{reason}: {refused:?}");
    }

    // The most connections of a user, until one of them ends.
    let mut one = cluster.client(0);
    assert_eq!(call(&mut one, &format!("AUTH one {password}")), WRONGPASS);
    let auth: [&[u8]; 3] = [b"AUTH", b"one", b"the first password"];
    assert_eq!(text_of(&mut one, &auth), "OK");
    let mut other = cluster.client(0);
    assert!(text_of(&mut other, &auth).starts_with("TOOMANY User one has 1 connections"));
    drop(one);
    wait_until("the connection has ended", || text_of(&mut other, &auth) == "OK");

    // A client library, unchanged.
    let url = format!("redis://ops:{password}@127.0.0.1:{}/", cluster.ports(0).resp);
    let library = redis::Client::open(url).expect("an address");
    let mut library = library.get_connection().expect("the password is right");
    assert_eq!(library.get("session:1"), Ok(Some("one".to_owned())));
    let url = format!("redis://ops:wrong@127.0.0.1:{}/", cluster.ports(0).resp);
    assert!(
        redis::Client::open(url)
            .expect("an address")
            .get_connection()
            .is_err()
    );

    // A file with a mistake changes nothing.
    std::fs::write(&file, format!("{users}nonsense = 1\n")).expect("it can be written");
    reload(&cluster);
    wait_until("the file is refused", || refused_files(&cluster) == 1);
    assert_eq!(call(&mut ann, "SET session:1 two"), "OK");
    let metrics = cluster.admin(0).metrics().expect("the node answers");
    assert!(
        metrics.contains("\nturnbuckle_users_file_refused_total 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("\nturnbuckle_refused_total{reason=\"wrongpass\"} 4\n"),
        "{metrics}"
    );

    // Other rights count from the next command, and a user whose password has gone is disconnected.
    std::fs::write(&file, users.replace("\"write\", ", "")).expect("it can be written");
    reload(&cluster);
    wait_until("ann may not write", || {
        call(&mut ann, "SET session:1 two") == "NOPERM User ann has no permissions to run the 'set' command"
    });
    assert_eq!(call(&mut ann, "GET session:1"), "two");
    let (code, second, said) = turnbuckle(
        &[
            "user",
            "add",
            "ann",
            "--users",
            file.to_str().expect("a path in UTF-8"),
        ],
        "",
    );
    assert!(code == Some(0) && said.contains("beside the others"), "{said}");
    reload(&cluster);
    wait_until("ann has another password", || {
        call(&mut cluster.client(0), &format!("AUTH ann {second}")) == "OK"
    });
    assert_eq!(call(&mut ann, "GET session:1"), "two");
    let users = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, users.replace(&format!(", \"{hash}\""), "")).expect("it can be written");
    reload(&cluster);
    wait_until("the first password is gone", || {
        call(&mut cluster.client(0), "AUTH ann the-first-password") == WRONGPASS
            && matches!(ann.try_call(&[b"GET", b"session:1"]), Some(value) if text(&value) == NOAUTH)
    });
    assert!(
        ann.try_call(&[b"GET", b"session:1"]).is_none(),
        "the connection is closed"
    );
    // The node still ends when it is told to.
    assert_eq!(cluster.terminate(0), Some(0));
}

#[test]
fn a_file_of_users_with_a_mistake_at_the_start() {
    let (cluster, _) = with_users("[users.ann]\nenabled = false\nkeyspaces = [\"cart\"]\n");
    let output = cluster
        .start_command(0)
        .stderr(Stdio::piped())
        .output()
        .expect("it ends");
    let said = String::from_utf8(output.stderr).expect("it is text");
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected = "users.toml:3: users.ann.keyspaces[1]: found \"cart\"; expected \"*\", or one of the keyspaces eventual, causal";
    assert!(said.contains(expected), "{said}");
}

/// An address of this machine that is no loopback address, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn a_node_without_users_serves_its_own_machine_only() {
    let Some(address) = own_address() else {
        return eprintln!("this machine has loopback addresses only: nothing is tested");
    };
    for is_protected in [true, false] {
        let mut cluster = Cluster::new(1, "fsync", patient());
        let port = cluster.ports(0).resp;
        let text = std::fs::read_to_string(cluster.file()).expect("the configuration is there");
        let text = text.replace(&format!("127.0.0.1:{port}"), &format!("{address}:{port}"));
        std::fs::write(cluster.file(), text).expect("it can be written");
        configure(&cluster, if is_protected { "" } else { "protected = false\n" });
        cluster.start_node(0);
        let mut socket = TcpStream::connect((address, port)).expect("the node listens");
        if is_protected {
            let mut answer = String::new();
            socket.read_to_string(&mut answer).expect("it is closed");
            assert!(
                answer.starts_with("-DENIED This node has no users")
                    && answer.ends_with("(docs/security.md).\r\n"),
                "{answer:?}"
            );
            let status = cluster.admin(0).status().expect("the node says how it is");
            assert_eq!(status.refused_total["protected"], 1);
        } else {
            assert_eq!(call(&mut Client::over(socket), "PING"), "PONG");
        }
    }
}
