//! A disk without room: nothing that was acknowledged is lost, the process lives, and goes on by itself once there is room.
//!
//! The disk is full for one process alone. Either its files may not grow beyond a limit (`RLIMIT_FSIZE`), which is lifted
//! later: so it is when others fill the disk in no time. Or more is to be kept free than any disk has.
#![cfg(target_os = "linux")]
use crate::cluster::{Acknowledged, Cluster, text, wait_until};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{
    fs::File,
    process::{Command, Stdio},
};
use turnbuckle_resp::Value;
use turnbuckle_server::config::Limits;

/// No file grows beyond this while the disk is full.
const FULL_BYTES: u64 = 64 << 10;

/// Files of node a1 may grow to so many bytes.
fn let_files_grow_to(cluster: &Cluster, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    let process = Pid::from_raw(cluster.process_id(0) as i32);
    prlimit(process, Resource::Fsize, limit).expect("a soft limit can be set");
}

/// A write beyond the limit is to fail, not to end the process with a signal. Its messages go to a file that is as full.
fn without_the_signal(cluster: &Cluster, command: &Command) -> Command {
    let messages = cluster.file().with_extension("messages");
    std::fs::write(&messages, vec![b'\n'; FULL_BYTES as usize]).expect("it can be written");
    let messages = File::options().append(true).open(messages).expect("it is there");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .stdout(Stdio::piped())
        .stderr(messages);
    shell
}

fn a_full_disk_loses_nothing(durability: &str) {
    let mut cluster = Cluster::new(1, durability, Limits::default());
    let command = without_the_signal(&cluster, &cluster.start_command(0));
    cluster.start_node_as(0, command);
    cluster.start_all();
    cluster.settle();
    let mut writes = Acknowledged::default();
    (0..3).for_each(|site| writes.write(&cluster, site, 100, 10_000));
    let_files_grow_to(&cluster, Some(FULL_BYTES));
    let mut client = cluster.client(0);
    let mut refused = Vec::new();
    while refused.len() < 3 {
        let key = format!("full{}", writes.expected.len() + refused.len()).into_bytes();
        let answer = client.call(&[b"SET", &key, &[b'v'; 5_000]]);
        if text(&answer) == "OK" {
            writes.expected.insert(key, Some(vec![b'v'; 5_000]));
        } else {
            let answer = text(&answer);
            assert!(
                answer.starts_with("TIMEOUT") || answer.starts_with("UNAVAILABLE the commit log"),
                "{answer}"
            );
            refused.push(key);
        }
    }
    let not_ready = cluster.admin(0).readiness().expect("it answers");
    assert!(not_ready.is_err_and(|why| why.contains("could not be written")));
    // The other sites go on.
    (1..3).for_each(|site| writes.write(&cluster, site, 100, 100));
    assert!(cluster.runs(0));

    let_files_grow_to(&cluster, None);
    wait_until("it takes writes again", || {
        text(&client.call(&[b"SET", b"room", b"again"])) == "OK"
    });
    writes.expected.insert(b"room".to_vec(), Some(b"again".to_vec()));
    writes.write(&cluster, 0, 100, 100);
    assert!(cluster.admin(0).readiness().expect("it answers").is_ok());
    cluster.settle();
    // Of what was refused, the first may have happened.
    for key in refused {
        if let Value::Bulk(value) = client.call(&[b"GET", &key]) {
            writes.expected.insert(key, Some(value.to_vec()));
        }
    }
    writes.check(&cluster);
    (0..3).for_each(|site| cluster.kill(site));
    cluster.start_all();
    cluster.settle();
    writes.check(&cluster);
}

#[test]
fn a_full_disk_loses_nothing_under_interval() {
    a_full_disk_loses_nothing("interval(10ms)");
}

#[test]
fn a_full_disk_loses_nothing_under_fsync() {
    a_full_disk_loses_nothing("fsync");
}

#[test]
fn with_too_little_room_reads_are_served_and_writes_refused() {
    let limits = |min_free_disk_mb| Limits {
        min_free_disk_mb,
        ..Limits::default()
    };
    let mut cluster = Cluster::start("interval(10ms)", limits(1));
    cluster.settle();
    let mut writes = Acknowledged::default();
    (0..3).for_each(|site| writes.write(&cluster, site, 100, 100));
    cluster.settle();
    cluster.kill(0);
    let text_of = |cluster: &Cluster| std::fs::read_to_string(cluster.file()).expect("it is there");
    let set = |cluster: &Cluster, from: &str, to: &str| {
        let text = text_of(cluster);
        assert!(text.contains(from), "{text}");
        std::fs::write(cluster.file(), text.replace(from, to)).expect("it can be written");
    };
    set(
        &cluster,
        "min_free_disk_mb = 1\n",
        "min_free_disk_mb = 16777216\n",
    );
    cluster.start_node(0);
    let refused = |cluster: &Cluster| {
        let answer = text(&cluster.client(0).call(&[b"SET", b"refused", b"v"]));
        answer.starts_with("UNAVAILABLE the disk of the node has less than 16777216 MiB free")
    };
    wait_until("writes are refused", || refused(&cluster));
    let not_ready = cluster.admin(0).readiness().expect("it answers");
    assert!(not_ready.is_err_and(|why| why.contains("the disk has less than")));
    // The others' writes wait for room; what is there is served.
    (1..3).for_each(|site| writes.write(&cluster, site, 100, 100));
    let found = cluster.contents(0);
    assert!((300..500).contains(&found.len()), "{} keys", found.len());
    cluster.kill(0);
    set(
        &cluster,
        "min_free_disk_mb = 16777216\n",
        "min_free_disk_mb = 1\n",
    );
    cluster.start_node(0);
    cluster.settle();
    if let Value::Bulk(value) = cluster.client(0).call(&[b"GET", b"refused"]) {
        writes.expected.insert(b"refused".to_vec(), Some(value.to_vec()));
    }
    writes.check(&cluster);
}
