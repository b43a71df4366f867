//! Members of groups that change, and leaders that move, while clients write.
use crate::cluster::{Client, Cluster, SITES, patient, text, wait_until};
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Output},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

fn words(client: &mut Client, command: &str) -> String {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    text(&client.call(&words))
}

fn client(cluster: &Cluster, node: usize) -> Client {
    let mut client = cluster.client(node);
    assert_eq!(words(&mut client, "SELECT consensus"), "OK");
    client
}

/// `turnbuckle cluster`, with the admin addresses of these nodes.
fn operate(cluster: &Cluster, command: &str, nodes: &[usize]) -> Output {
    let admin: Vec<String> = nodes
        .iter()
        .map(|&node| format!("127.0.0.1:{}", cluster.ports(node).admin))
        .collect();
    Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .arg("cluster")
        .args(command.split(' '))
        .args(["--within", "300s", "--admin", &admin.join(",")])
        .output()
        .expect("the command runs")
}

fn done(cluster: &Cluster, command: &str, nodes: &[usize]) -> String {
    let output = operate(cluster, command, nodes);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command}: {error}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// What a node says of whether it is ready.
fn readyz(cluster: &Cluster, node: usize) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.ports(node).admin)).expect("the node listens");
    let request = b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    stream.write_all(request).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer
}

/// The table of `cluster status`, without the spaces between its columns.
fn status(cluster: &Cluster, nodes: &[usize]) -> Vec<String> {
    let admin: Vec<String> = nodes
        .iter()
        .map(|&node| format!("127.0.0.1:{}", cluster.ports(node).admin))
        .collect();
    let output = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(["cluster", "status", "--admin", &admin.join(",")])
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("it is text");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect()
}

fn refused(cluster: &Cluster, command: &str) -> String {
    let output = operate(cluster, command, &[0, 1, 2]);
    assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stderr).trim().to_string()
}

fn started() -> Cluster {
    let mut cluster = Cluster::new(1, "fsync", patient());
    cluster.configure(&[("consensus", "dacian")]);
    cluster.start_all();
    cluster
}

const ALL: [usize; 3] = [0, 1, 2];

#[test]
fn nothing_is_lost_while_members_change_and_leaders_move() {
    let cluster = started();
    let is_over = AtomicBool::new(false);
    let write = |site: usize| {
        let (mut writer, mut written) = (client(&cluster, site), 0);
        while !is_over.load(Ordering::Relaxed) {
            let answer = words(&mut writer, &format!("SET {}:{written} {written}", SITES[site]));
            // Patience has an end on a busy machine. Such a write may have happened.
            if answer == "OK" {
                written += 1;
            } else {
                assert!(
                    answer.starts_with("UNAVAILABLE") || answer.starts_with("TIMEOUT"),
                    "{answer}"
                );
            }
        }
        written
    };
    let written = thread::scope(|scope| {
        let writers = [0, 2].map(|site| scope.spawn(move || write(site)));
        for round in 0..2 {
            assert_eq!(
                done(&cluster, "member remove c --keyspace consensus", &ALL),
                "2 partitions: c takes no part"
            );
            done(&cluster, "member add c --learner --keyspace consensus", &ALL);
            assert_eq!(
                done(&cluster, "member replace b c --keyspace consensus", &ALL),
                "2 partitions: b takes no part, c votes"
            );
            assert_eq!(
                done(&cluster, "lead consensus", &[2]),
                "the node leads 2 partitions",
                "round {round}"
            );
            assert_eq!(
                done(&cluster, "member add b --keyspace consensus", &ALL),
                "2 partitions: b votes"
            );
        }
        is_over.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().expect("the writer ends"))
    });
    for (site, written) in [(0, written[0]), (2, written[1])] {
        let mut reader = client(&cluster, 1);
        for number in 0..written {
            let found = words(&mut reader, &format!("GET {}:{number}", SITES[site]));
            assert_eq!(found, number.to_string(), "{}", SITES[site]);
        }
    }
}

#[test]
fn what_no_group_can_do_is_refused_in_words() {
    let cluster = started();
    done(&cluster, "lead consensus", &[0]);
    let wrong = |command: &str, words: &str| {
        let said = refused(&cluster, command);
        assert!(said.contains(words), "{command}: {said}");
    };
    wrong("member add c --keyspace consensus", "nothing to change");
    wrong(
        "member add d --keyspace consensus",
        "expected one of the sites a, b, c, or of the nodes a1, b1, c1",
    );
    wrong(
        "member add c --keyspace nowhere",
        "expected a keyspace whose partitions elect leaders: consensus",
    );
    wrong("member remove c --keyspace consensus --partition 2", "below 2");
    wrong(
        "member remove c --keyspace consensus --within 5",
        "expected a time with a unit",
    );
    wrong(
        "member replace c c --keyspace consensus",
        "found the same one twice",
    );
    done(&cluster, "member remove c --keyspace consensus", &ALL);
    wrong("member remove c --keyspace consensus", "nothing to change");
    wrong("member replace c b --keyspace consensus", "nothing to change");
    wrong("member replace a b --keyspace consensus", "b votes already");
    // A client at c is served by the others, and lists no old keys.
    let mut at_c = client(&cluster, 2);
    assert_eq!(words(&mut at_c, "SET x 1"), "OK");
    assert_eq!(words(&mut at_c, "GET x AT eventual"), "1");
    assert!(words(&mut at_c, "DBSIZE").contains("takes no part in its group"));
    let one_left = operate(&cluster, "member remove b --keyspace consensus", &ALL);
    let warned = String::from_utf8_lossy(&one_left.stderr).into_owned();
    assert!(one_left.status.success(), "{warned}");
    assert!(
        warned.starts_with("warning: one voter is left in each of 2 partitions: "),
        "{warned}"
    );
    wrong("member remove a --keyspace consensus", "no voter would be left");
    assert_eq!(words(&mut at_c, "GET x"), "1");
}

/// Each site has three nodes and a group of its own for each partition.
#[test]
fn a_regional_site_goes_on_without_one_of_its_nodes() {
    let mut cluster = Cluster::new(3, "fsync", patient());
    cluster.configure_members("regional", "nukv", 3);
    cluster.start_all();
    let regional = |node: usize| {
        let mut client = cluster.client(node);
        assert_eq!(words(&mut client, "SELECT regional"), "OK");
        client
    };
    let mut at_a3 = regional(2);
    wait_until("site a takes writes", || words(&mut at_a3, "SET x 1") == "OK");
    let wrong = |command: &str, nodes: &[usize], expected: &str| {
        let output = operate(&cluster, command, nodes);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains(expected), "{command}: {said}");
    };
    let a = [0, 1, 2];
    wrong(
        "member replace a1 b1 --keyspace regional",
        &a,
        "expected replicas of one site",
    );
    wrong("member add a1 --keyspace regional", &a, "nothing to change");
    let unknown = "\"a4\"; expected one of the sites a, b, c, or of the nodes a1, a2, a3, b1, ";
    wrong("member replace a1 a4 --keyspace regional", &a, unknown);
    wrong("member replace a4 a1 --keyspace regional", &a, unknown);
    wrong("member replace a1 a2 --keyspace regional", &a, "a2 votes already");
    wrong(
        "member remove a1 --keyspace regional",
        &[8],
        "no replica of a group with replicas of a1",
    );
    let remove = done(&cluster, "member remove a1 --keyspace regional", &a);
    assert_eq!(remove, "2 partitions: a1 takes no part");
    wrong("member replace a1 a4 --keyspace regional", &a, unknown);
    wait_until("nodes are named, and a1 takes no part", || {
        let lines = status(&cluster, &a);
        let of = |node: &str, leader: &[&str]| {
            let line = |line: &&String| {
                let words: Vec<&str> = line.split(' ').collect();
                words.starts_with(&["regional", "0", node])
                    && leader
                        .iter()
                        .any(|leader| words[3..].join(" ").starts_with(leader))
                    && line.ends_with(" a2 a3")
            };
            lines.iter().any(|one| line(&one))
        };
        of("a1", &["takes no part"]) && of("a2", &["a2", "a3"]) && of("a3", &["a2", "a3"])
    });
    assert_eq!(words(&mut at_a3, "SET x 2"), "OK");
    let replace = done(&cluster, "member replace a2 a1 --keyspace regional", &a);
    assert_eq!(replace, "2 partitions: a1 votes, a2 takes no part");
    let add = done(&cluster, "member add a2 --keyspace regional", &a);
    assert_eq!(add, "2 partitions: a2 votes");
    cluster.kill(0);
    let degraded = "node a1 of this site cannot be reached: other replicas of its partitions are asked";
    wait_until("a node of the site says that a1 is away", || {
        readyz(&cluster, 1).contains(degraded)
    });
    // Another replica is elected meanwhile.
    wait_until("site a takes writes", || words(&mut at_a3, "SET x 3") == "OK");
    cluster.start_node(0);
    cluster.kill(1);
    wait_until("site a takes writes", || words(&mut at_a3, "SET x 4") == "OK");
    let token = words(&mut at_a3, "SESSION TOKEN");
    let mut at_c1 = cluster.client(6);
    assert_eq!(words(&mut at_c1, "SELECT regional"), "OK");
    assert_eq!(words(&mut at_c1, &format!("SESSION RESUME {token}")), "OK");
    assert_eq!(words(&mut at_c1, "GET x"), "4");
}

/// How many groups of the keyspace are led at a node.
fn led(cluster: &Cluster, node: usize) -> u64 {
    let metrics = cluster.admin(node).metrics().expect("the node says how it is");
    let line = metrics
        .lines()
        .find(|line| line.starts_with("turnbuckle_raft_groups_led{") && line.contains("consensus"));
    let number = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    number.unwrap_or_else(|| panic!("no number of groups in {line:?}")) as u64
}

#[test]
fn leaders_come_to_the_site_that_the_configuration_prefers() {
    let mut cluster = Cluster::new(1, "fsync", patient());
    cluster.configure(&[("consensus", "dacian")]);
    let text = std::fs::read_to_string(cluster.file()).expect("the file is there");
    let named = "name = \"consensus\"\n";
    assert!(text.contains(named), "{text}");
    let text = text.replace(named, &format!("{named}prefer = \"c\"\n"));
    std::fs::write(cluster.file(), text).expect("it can be written");
    cluster.start_all();
    wait_until("all leaders are at c", || led(&cluster, 2) == 2);
    // An operator moves them, and they come back.
    done(&cluster, "lead consensus", &[0]);
    wait_until("all leaders are at c again", || led(&cluster, 2) == 2);
    assert_eq!(led(&cluster, 0), 0);
}
