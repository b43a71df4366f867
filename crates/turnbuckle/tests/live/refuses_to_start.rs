//! A node that cannot start, or cannot go on, says what was found and what was expected, and ends with the exit code that the usage names.
use crate::cluster::{Cluster, wait_until};
use std::process::{Output, Stdio};
use turnbuckle_server::config::Limits;

/// Starts a node that must end by itself. Its exit code, what it gave out, and what it said.
fn ended(cluster: &Cluster, node: usize) -> (Option<i32>, Output, String) {
    let mut command = cluster.start_command(node);
    let mut process = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the process starts");
    wait_until("the node has ended", || {
        process.try_wait().expect("it can be asked").is_some()
    });
    let output = process.wait_with_output().expect("it has ended");
    let said = String::from_utf8(output.stderr.clone()).expect("it is text");
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code(), output, said)
}

fn is_refused(cluster: &Cluster, node: usize, code: i32, expected: &str) {
    let (found, output, said) = ended(cluster, node);
    assert!(output.stdout.is_empty(), "it says that it is ready");
    assert!(said.contains(expected), "expected {expected:?}, it said: {said}");
    assert_eq!(found, Some(code), "{said}");
}

fn edit(cluster: &Cluster, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(cluster.file()).expect("the configuration is there");
    std::fs::write(cluster.file(), change(text)).expect("it can be written");
}

#[test]
fn a_port_that_is_taken_and_a_directory_in_use() {
    let cluster = Cluster::start("interval(10ms)", Limits::default());
    let taken = format!(
        "the RESP address 127.0.0.1:{} of node 'a1' cannot be used: Address already in use",
        cluster.ports(0).resp
    );
    is_refused(&cluster, 0, 3, &taken);
    // Other ports, the same directory.
    let other = Cluster::new(1, "interval(10ms)", Limits::default());
    edit(&other, |text| {
        let data = cluster.data_directory(0);
        text.replacen(
            "data = \"a1\"",
            &format!("data = {:?}", data.display().to_string()),
            1,
        )
    });
    is_refused(&other, 0, 3, "another process");
}

/// A node is started a second time, with a directory and addresses of its own: it would be sent what the first one is, and lose what it acknowledges.
#[test]
fn a_node_that_runs_elsewhere() {
    let mut cluster = Cluster::start("fsync", Limits::default());
    let other = Cluster::new(1, "fsync", Limits::default());
    let text = std::fs::read_to_string(cluster.file()).expect("the configuration is there");
    let (here, there) = (cluster.ports(0), other.ports(0));
    let ports = [
        (here.resp, there.resp),
        (here.peer, there.peer),
        (here.admin, there.admin),
    ];
    let text = ports.iter().fold(text, |text, (here, there)| {
        text.replace(&format!(":{here}\""), &format!(":{there}\""))
    });
    edit(&other, |_| text);
    let (code, _, said) = ended(&other, 0);
    let expected = "another process says that it is node 'a1', too";
    assert!(said.contains(expected), "expected {expected:?}, it said: {said}");
    assert_eq!(code, Some(3), "{said}");
    // The first one's links are as they were.
    let status = cluster.admin(0).status().expect("it says how it is");
    assert!(
        status
            .links
            .iter()
            .all(|link| link.up && link.connections_total == 1),
        "{status:?}"
    );
    // Ended and started again, a node is another process, and no second one.
    cluster.kill(0);
    cluster.start_all();
    wait_until("it has its links again", || {
        let status = cluster.admin(0).status().expect("it says how it is");
        status.links.iter().all(|link| link.up)
    });
}

/// It would go on with files that nobody finds again.
#[test]
fn a_node_whose_directory_was_removed_while_it_ran() {
    let mut cluster = Cluster::start("fsync", Limits::default());
    std::fs::rename(
        cluster.data_directory(0),
        cluster.data_directory(0).with_extension("away"),
    )
    .expect("it can be moved");
    assert_eq!(cluster.wait(0), Some(3));
    // It comes back, and the other sites give it what it had.
    cluster.client(1).call(&[b"SET", b"k", b"v"]);
    cluster.start_all();
    cluster.settle();
    assert_eq!(cluster.contents(0), cluster.contents(1));
}

#[test]
fn a_directory_of_another_node_and_one_of_a_newer_format() {
    let mut cluster = Cluster::start("interval(10ms)", Limits::default());
    (0..3).for_each(|node| cluster.kill(node));
    edit(&cluster, |text| {
        text.replace("data = \"a1\"", "data = \"x\"")
            .replace("data = \"b1\"", "data = \"a1\"")
            .replace("data = \"x\"", "data = \"b1\"")
    });
    is_refused(
        &cluster,
        0,
        3,
        "holds data for node 'b1'; the configuration says 'a1'",
    );
    let identity = cluster.data_directory(2).join("node.json");
    let text = std::fs::read_to_string(&identity).expect("every directory has one");
    let mut newer: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let format = newer["format"].as_u64().expect("it has a format");
    newer["format"] = (format + 1).into();
    std::fs::write(&identity, newer.to_string()).expect("it can be written");
    let expected = format!("in format {format}, found format {}", format + 1);
    is_refused(&cluster, 2, 3, &expected);
    std::fs::write(&identity, "noise").expect("it can be written");
    is_refused(&cluster, 2, 3, "expected the identity of a data directory");
}

#[test]
fn a_configuration_that_is_wrong_and_one_that_is_not_there() {
    let cluster = Cluster::new(1, "interval(10ms)", Limits::default());
    edit(&cluster, |text| {
        text.replacen("site = \"b\"", "site = \"nowhere\"", 1)
    });
    is_refused(&cluster, 0, 2, "cluster.toml:");
    is_refused(
        &cluster,
        0,
        2,
        "found \"nowhere\"; expected one of the sites a, b, c",
    );
    edit(&cluster, |text| {
        text.replacen("site = \"nowhere\"", "sight = \"b\"", 1)
    });
    is_refused(&cluster, 0, 2, "sight");
    std::fs::write(cluster.file(), [0xFF, 0x00, b'[']).expect("it can be written");
    is_refused(&cluster, 0, 2, "cluster.toml");
    std::fs::remove_file(cluster.file()).expect("it can be removed");
    is_refused(&cluster, 0, 3, "No such file");
}

/// A command that ends by itself, in an empty directory and without a home.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(arguments)
        .current_dir(&directory)
        .env("HOME", directory.path())
        .env_remove("XDG_CONFIG_HOME")
        .envs(environment.iter().copied())
        .output()
        .expect("the process starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn without_a_configuration_the_places_that_were_looked_at_are_named() {
    let (code, _, said) = run(&["start", "--node", "a1"], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("cluster.toml, ") && said.contains("/etc/turnbuckle/cluster.toml"),
        "{said}"
    );
}

#[test]
fn flags_may_come_from_the_environment() {
    let cluster = Cluster::new(1, "fsync", Limits::default());
    let file = cluster.file().display().to_string();
    let (code, _, said) = run(
        &["start"],
        &[("TURNBUCKLE_CONFIG", &file), ("TURNBUCKLE_NODE", "z9")],
    );
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("has no node 'z9'; expected one of a1"), "{said}");
    let (code, _, said) = run(&["wan", "show"], &[("TURNBUCKLE_ADMIN", "127.0.0.1:1")]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("127.0.0.1:1: no answer"), "{said}");
}

#[test]
fn messages_are_json_if_that_is_asked_for() {
    let (code, _, said) = run(&["demo", "--help"], &[("TURNBUCKLE_LOG_FORMAT", "json")]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = run(&["wan", "show"], &[("TURNBUCKLE_LOG_FORMAT", "xml")]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("TURNBUCKLE_LOG_FORMAT: found 'xml'; expected text or json"),
        "{said}"
    );
    for wrong in [
        "inof",
        "warn,inof",
        "turnbuckle_server=loud",
        "turnbuckle_server:debug",
        "info;debug",
        ",",
    ] {
        let (code, _, said) = run(&["wan", "show"], &[("TURNBUCKLE_LOG", wrong)]);
        assert_eq!(code, Some(2), "{said}");
        let expected =
            format!("TURNBUCKLE_LOG: found '{wrong}'; expected off, error, warn, info, debug or trace, or");
        assert!(said.contains(&expected), "{said}");
    }
    let environment = [
        ("TURNBUCKLE_LOG_FORMAT", "json"),
        ("TURNBUCKLE_LOG", " info , turnbuckle_server::peer=debug"),
    ];
    let demo = ["demo", "--wan", "off", "--processes", "--json", "--for", "100ms"];
    let (code, _, said) = run(&demo, &environment);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.is_empty(), "its nodes say that links are up");
    for line in said.lines() {
        let message: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(
            message["level"].is_string() && message["message"].is_string(),
            "{line}"
        );
    }
}

#[test]
fn completions_and_manual_pages_name_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, said) = run(&["completions", shell], &[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(script.contains("new-cluster"), "{shell}");
    }
    let (code, page, said) = run(&["man"], &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(page.contains("turnbuckle\\-start"), "{page}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let into = directory.path().display().to_string();
    assert_eq!(run(&["man", "--into", &into], &[]).0, Some(0));
    assert!(directory.path().join("turnbuckle-bench.1").exists());
    assert_eq!(run(&["man", "--into", "no/such"], &[]).0, Some(3));
    let (_, version, _) = run(&["--version"], &[]);
    assert!(
        version.starts_with(concat!("turnbuckle ", env!("CARGO_PKG_VERSION"))),
        "{version}"
    );
}
