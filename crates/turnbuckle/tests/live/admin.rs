//! Who may read and change something at an admin address.
use crate::cluster::{Cluster, wait_until};
use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
};
use turnbuckle_server::config::Limits;

/// A cluster with a token for operators, and the path of the token's file.
fn with_token() -> (Cluster, std::path::PathBuf) {
    let mut cluster = Cluster::new(1, "fsync", Limits::default());
    let token = cluster.file().with_file_name("ops.token");
    std::fs::write(&token, "the-token-of-the-operators\n").expect("it can be written");
    let text = std::fs::read_to_string(cluster.file()).expect("the configuration is there");
    let text = format!("admin_token_file = \"ops.token\"\nadmin_hosts = [\"Ops.example\"]\n{text}");
    std::fs::write(cluster.file(), text).expect("it can be written");
    cluster.start_all();
    (cluster, token)
}

/// Runs a command against a node. Its exit code, and what it says.
fn ask(cluster: &Cluster, node: usize, command: &str, token: Option<(&str, &Path)>) -> (Option<i32>, String) {
    let admin = format!("127.0.0.1:{}", cluster.ports(node).admin);
    let mut process = Command::new(env!("CARGO_BIN_EXE_turnbuckle"));
    process
        .args(command.split(' '))
        .args(["--admin", &admin])
        .env_remove("TURNBUCKLE_ADMIN_TOKEN_FILE");
    match token {
        Some(("", file)) => process.arg("--token-file").arg(file),
        Some((variable, file)) => process.env(variable, file),
        None => &mut process,
    };
    let output = process.output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// The first line of the answer to a request for a host.
fn status_line(cluster: &Cluster, request: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.ports(0).admin)).expect("the node listens");
    let request = format!("{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer.lines().next().unwrap_or_default().to_string()
}

#[test]
fn a_change_needs_the_token_and_nodes_tell_each_other_without_it() {
    let (cluster, token) = with_token();
    let (code, said) = ask(&cluster, 0, "wan cut a c", None);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("without a token") && said.contains("--token-file"),
        "{said}"
    );
    let (code, said) = ask(&cluster, 0, "wan show", None);
    assert!(code == Some(0) && !said.contains("CUT"), "{said}");

    let (code, said) = ask(&cluster, 0, "wan cut a c", Some(("", &token)));
    assert!(code == Some(0) && said.contains("a <-> c  0ms  CUT"), "{said}");
    wait_until("the other node is told", || {
        let (code, said) = ask(&cluster, 2, "wan show", None);
        code == Some(0) && said.contains("CUT")
    });
    let by_environment = Some(("TURNBUCKLE_ADMIN_TOKEN_FILE", token.as_path()));
    let (code, said) = ask(&cluster, 2, "wan heal", by_environment);
    assert!(code == Some(0) && !said.contains("CUT"), "{said}");

    std::fs::write(&token, "the-token-of-somebody-else").expect("it can be written");
    for command in ["wan cut a c", "cluster lead causal"] {
        let (code, said) = ask(&cluster, 0, command, Some(("", &token)));
        assert!(
            code == Some(2) && said.contains("an Authorization header that is not right"),
            "{said}"
        );
    }
    std::fs::write(&token, "short").expect("it can be written");
    let (code, said) = ask(&cluster, 0, "wan heal", Some(("", &token)));
    assert!(
        code == Some(2) && said.contains("expected a token of 16 to 1024"),
        "{said}"
    );
    let (code, said) = ask(&cluster, 0, "wan heal", Some(("", Path::new("nowhere"))));
    assert!(
        code == Some(3) && said.contains("nowhere: No such file"),
        "{said}"
    );
}

#[test]
fn a_node_is_called_by_its_own_names_only() {
    let (cluster, _) = with_token();
    for (host, status) in [
        ("127.0.0.1", "HTTP/1.1 200 OK"),
        ("localhost:80", "HTTP/1.1 200 OK"),
        ("ops.example", "HTTP/1.1 200 OK"),
        ("evil.example", "HTTP/1.1 403 Forbidden"),
    ] {
        assert_eq!(status_line(&cluster, "GET /status", host), status, "{host}");
    }
    assert_eq!(
        status_line(&cluster, "GET /healthz", "any.example"),
        "HTTP/1.1 200 OK"
    );
    let metrics = cluster.admin(0).metrics().expect("the node answers");
    assert!(
        metrics.contains("\nturnbuckle_admin_refused_total 1\n"),
        "{metrics}"
    );
}
