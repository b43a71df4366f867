//! Every acknowledged write is at every site in the end, whatever was killed or cut meanwhile: three processes, real sockets,
//! real `kill -9`.
use crate::cluster::{Acknowledged, Cluster, patient, wait_until};
use turnbuckle_resp::Value;
use turnbuckle_server::config::Limits;

/// How many keys are written at a time.
const KEYS: usize = 300;

fn kills_and_cuts(durability: &str) {
    let mut cluster = Cluster::start(durability, patient());
    cluster.settle();
    let mut writes = Acknowledged::default();
    (0..3).for_each(|site| writes.write(&cluster, site, KEYS, 100));
    for killed in 0..3 {
        cluster.kill(killed);
        (0..3)
            .filter(|&site| site != killed)
            .for_each(|site| writes.write(&cluster, site, KEYS, 100));
        cluster.start_node(killed);
        writes.write(&cluster, killed, KEYS, 100);
    }
    // All at once, right after the last acknowledgement.
    (0..3).for_each(|site| writes.write(&cluster, site, KEYS, 100));
    (0..3).for_each(|site| cluster.kill(site));
    (0..3).for_each(|site| cluster.start_node(site));
    cluster.settle();
    writes.check(&cluster);
    // Both sides of a cut go on.
    cluster.cut_a_from_b(true);
    wait_until("a and b have no link", || {
        cluster
            .stream_states(0)
            .iter()
            .all(|(to, state, _)| to != "b" || state == "silent")
    });
    (0..3).for_each(|site| writes.write(&cluster, site, KEYS, 100));
    cluster.cut_a_from_b(false);
    cluster.settle();
    writes.check(&cluster);
}

#[test]
fn kills_and_cuts_lose_nothing_under_interval() {
    kills_and_cuts("interval(10ms)");
}

#[test]
fn kills_and_cuts_lose_nothing_under_fsync() {
    kills_and_cuts("fsync");
}

#[test]
fn one_key_written_everywhere_at_once_is_the_same_everywhere_in_the_end() {
    let cluster = Cluster::start("interval(10ms)", patient());
    cluster.settle();
    std::thread::scope(|scope| {
        for site in 0..3 {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut client = cluster.client(site);
                for round in 0..500 {
                    client.call(&[
                        b"SET",
                        format!("hot{}", round % 10).as_bytes(),
                        format!("{site}.{round}").as_bytes(),
                    ]);
                }
            });
        }
    });
    cluster.settle();
    let contents: Vec<_> = (0..3).map(|site| cluster.contents(site)).collect();
    assert_eq!(contents[0].len(), 10);
    assert!(
        contents[0] == contents[1] && contents[1] == contents[2],
        "{contents:?}"
    );
}

/// The peer was away for longer than the log of the others reaches back; meanwhile keys were deleted, and their
/// tombstones with them. It serves reads all the time.
#[test]
fn a_peer_away_beyond_the_log_comes_back_by_full_copy_and_deletes_stay_deleted() {
    let limits = Limits {
        retained_log_mb: 16,
        checkpoint_log_mb: 1,
        ..patient()
    };
    let mut cluster = Cluster::start("interval(10ms)", limits);
    cluster.settle();
    let mut writes = Acknowledged::default();
    (0..3).for_each(|site| writes.write(&cluster, site, KEYS, 100));
    cluster.settle();
    cluster.kill(2);
    writes.delete(&cluster, 0, KEYS);
    // 30 MB in a log that keeps 16.
    for _ in 0..50 {
        writes.write(&cluster, 0, 20, 30_000);
    }
    wait_until("the log has been purged", || {
        let log = cluster.admin(0).status().expect("the node says how it is").log;
        log.bytes < log.appended_bytes_total
    });
    cluster.start_node(2);
    let mut reader = cluster.client(2);
    let mut copied = false;
    wait_until("the copy is in place", || {
        let key = format!("k{}", 2 * KEYS);
        assert!(
            matches!(reader.call(&[b"GET", key.as_bytes()]), Value::Bulk(_)),
            "the replica does not serve"
        );
        let status = cluster.admin(2).status().expect("the node says how it is");
        copied |= status.copies_received_total > 0 && status.copy_bytes_received_total > 0;
        copied
    });
    cluster.settle();
    writes.check(&cluster);
    writes.write(&cluster, 2, KEYS, 100);
    (0..3).for_each(|site| cluster.kill(site));
    (0..3).for_each(|site| cluster.start_node(site));
    cluster.settle();
    writes.check(&cluster);
}

/// The grace is longer than any test waits: whoever does not end by itself is noticed.
#[test]
fn a_node_that_is_told_to_end_answers_what_is_under_way_and_ends() {
    let limits = Limits {
        shutdown_grace_ms: 24 * 60 * 60 * 1000,
        ..patient()
    };
    let mut cluster = Cluster::start("fsync", limits);
    cluster.settle();
    let clients: Vec<_> = (0..4).map(|_| cluster.client(0)).collect();
    let acknowledged = std::thread::scope(|scope| {
        let writers = clients.into_iter().enumerate().map(|(writer, mut client)| {
            scope.spawn(move || {
                let keys = (0..).map(|number| format!("{writer}.{number}").into_bytes());
                let written = keys.take_while(|key| client.try_call(&[b"SET", key, b"v"]).is_some());
                written.collect::<Vec<_>>()
            })
        });
        let writers: Vec<_> = writers.collect();
        wait_until("there are writes", || cluster.contents(0).len() > 100);
        assert_eq!(cluster.terminate(0), Some(0));
        let written = writers
            .into_iter()
            .flat_map(|writer| writer.join().expect("it ends"));
        written.collect::<Vec<_>>()
    });
    cluster.start_node(0);
    cluster.settle();
    for site in 0..3 {
        let held = cluster.contents(site);
        let lost = acknowledged.iter().filter(|&key| !held.contains_key(key)).count();
        assert_eq!(lost, 0, "of {} at site {site}", acknowledged.len());
    }
}
