//! Transactions and values that are computed, with the `redis` crate unchanged, at all sites of a consensus keyspace, while leaders die.
use crate::cluster::{Cluster, patient};
use redis::{Commands, Connection, RedisResult};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

fn started() -> Cluster {
    let mut cluster = Cluster::new(1, "fsync", patient());
    cluster.configure(&[("consensus", "dacian")]);
    cluster.start_all();
    cluster
}

fn connect(cluster: &Cluster, node: usize) -> Connection {
    let address = format!("redis://127.0.0.1:{}/", cluster.ports(node).resp);
    let mut connection = redis::Client::open(address)
        .and_then(|client| client.get_connection())
        .expect("a connection");
    let _: () = redis::cmd("SELECT")
        .arg("consensus")
        .query(&mut connection)
        .expect("it is a keyspace");
    connection
}

const ACCOUNTS: usize = 4;
const MONEY: i64 = 1_000;

fn account(number: usize) -> String {
    format!("{{bank}}:{number}")
}

/// Moves money between two accounts, as the `redis` crate does it: WATCH, GET, MULTI, SET, EXEC, and all of it again if a watched key was changed. Returns how often
/// it was carried out.
fn transfers(connection: &mut Connection, seed: usize, count: usize) -> usize {
    let mut done = 0;
    for round in 0..count {
        let (from, to) = ((seed + round) % ACCOUNTS, (seed + round * 3 + 1) % ACCOUNTS);
        if from == to {
            continue;
        }
        let keys = [account(from), account(to)];
        let moved: RedisResult<()> = redis::transaction(connection, &keys, |connection, pipe| {
            let has: i64 = connection.get(&keys[0])?;
            let other: i64 = connection.get(&keys[1])?;
            pipe.set(&keys[0], has - 7)
                .ignore()
                .set(&keys[1], other + 7)
                .ignore()
                .query(connection)
        });
        moved.expect("it is carried out in the end");
        done += 1;
    }
    done
}

#[test]
fn money_that_is_moved_under_watch_is_neither_lost_nor_made() {
    let cluster = started();
    let mut first = connect(&cluster, 0);
    for number in 0..ACCOUNTS {
        let _: () = first.set(account(number), MONEY).expect("it is written");
    }
    let is_over = AtomicBool::new(false);
    let total = |connection: &mut Connection| -> i64 {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for number in 0..ACCOUNTS {
            pipe.get(account(number));
        }
        let found: Vec<i64> = pipe.query(connection).expect("an answer");
        found.iter().sum()
    };
    let (done, looks) = thread::scope(|scope| {
        let movers: Vec<_> = (0..3)
            .map(|site| {
                let cluster = &cluster;
                scope.spawn(move || transfers(&mut connect(cluster, site), site, 40))
            })
            .collect();
        let looker = scope.spawn(|| {
            let (mut connection, mut looks) = (connect(&cluster, 1), 0);
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(total(&mut connection), MONEY * ACCOUNTS as i64);
                looks += 1;
            }
            looks
        });
        let done: usize = movers
            .into_iter()
            .map(|mover| mover.join().expect("a mover ends"))
            .sum();
        is_over.store(true, Ordering::Relaxed);
        (done, looker.join().expect("the looker ends"))
    });
    assert!(done > 50 && looks > 0, "{done} transfers and {looks} looks");
    assert_eq!(total(&mut first), MONEY * ACCOUNTS as i64);
}

#[test]
fn ids_are_unique_while_leaders_are_killed() {
    let mut cluster = started();
    let draw = |cluster: &Cluster, node: usize, count: usize| -> (Vec<i64>, i64) {
        let (mut connection, mut drawn, mut unknown) = (connect(cluster, node), Vec::new(), 0);
        while drawn.len() < count {
            let answer: RedisResult<i64> = connection.incr("ids", 1);
            match answer {
                Ok(id) => drawn.push(id),
                Err(error) if error.code() == Some("UNAVAILABLE") => {}
                // It may have been carried out.
                Err(_) => unknown += 1,
            }
        }
        (drawn, unknown)
    };
    let (mut all, mut unknown) = (Vec::new(), 0);
    for round in 0..3 {
        // The node that leads is killed, and the others go on.
        cluster.kill(round);
        let others: Vec<usize> = (0..3).filter(|&node| node != round).collect();
        let found = thread::scope(|scope| {
            let clients: Vec<_> = others
                .iter()
                .map(|&node| {
                    let cluster = &cluster;
                    scope.spawn(move || draw(cluster, node, 30))
                })
                .collect();
            let found = clients
                .into_iter()
                .map(|client| client.join().expect("a client ends"));
            found.collect::<Vec<_>>()
        });
        for (drawn, more) in found {
            assert!(drawn.is_sorted(), "a client's ids rise: {drawn:?}");
            all.extend(drawn);
            unknown += more;
        }
        cluster.start_node(round);
    }
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "no id is drawn twice");
    let last: i64 = connect(&cluster, 0).get("ids").expect("an answer");
    let asked = all.len() as i64 + unknown;
    assert!(
        (all.len() as i64..=asked).contains(&last),
        "{last} of {} drawn and {unknown} of which nothing is known",
        all.len()
    );
}

/// `SET lock holder NX PX millis`, as clients take locks. Repeats it while no leader is reached.
fn takes_lock(connection: &mut Connection, holder: &str, millis: u64) -> bool {
    let mut take = redis::cmd("SET");
    take.arg("lock").arg(holder).arg("NX").arg("PX").arg(millis);
    loop {
        match take.query::<Option<String>>(connection) {
            Ok(taken) => return taken.is_some(),
            Err(error) if error.code() == Some("UNAVAILABLE") => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_lock_is_held_until_it_expires_whoever_leads() {
    let mut cluster = started();
    assert!(takes_lock(&mut connect(&cluster, 0), "ann", 600_000));
    for round in 0..3 {
        cluster.kill(round);
        let other = (round + 1) % 3;
        assert!(!takes_lock(&mut connect(&cluster, other), "bob", 1));
        cluster.start_node(round);
    }
    let mut first = connect(&cluster, 0);
    // The rest of its time is over soon. Nobody writes meanwhile, and the clocks of the replicas differ.
    let changed: i64 = redis::cmd("PEXPIRE")
        .arg("lock")
        .arg(1)
        .query(&mut first)
        .expect("an answer");
    assert_eq!(changed, 1);
    for node in 0..3 {
        let mut connection = connect(&cluster, node);
        let gone = |connection: &mut Connection| {
            let mut get = redis::cmd("GET");
            get.arg("lock").arg("AT").arg("partition-sequential");
            let holder: Option<String> = get.query(connection).expect("an answer");
            holder.is_none()
        };
        while !gone(&mut connection) {}
        assert!(gone(&mut connection), "it does not come back");
    }
    assert!(takes_lock(&mut connect(&cluster, 2), "bob", 600_000));
    assert!(!takes_lock(&mut first, "ann", 1));
}
