//! A keyspace is added to a cluster, removed, and added again, as an operator does it: one configuration file is changed, and one node after the
//! other is ended and started, while clients write to every node. No node is cut off meanwhile. What is refused is refused by name, and what was
//! acknowledged is at every site in the end.
use crate::cluster::{Client, Cluster, patient, text, wait_until};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use turnbuckle_campaign::Connection;
use turnbuckle_resp::Value;

/// The keyspaces that are always there, and the one that comes and goes.
const BASE: [(&str, &str); 2] = [("eventual", "eventual"), ("causal", "causal")];
const ALL: [(&str, &str); 3] = [BASE[0], BASE[1], EXTRA];
const EXTRA: (&str, &str) = ("extra", "causal");

const NODES_OF_A_SITE: usize = 2;

/// A writer thinks for so long between two writes.
const THINK: Duration = Duration::from_millis(5);

/// Keys and what was acknowledged of them, `None` for a delete. A key whose last write nobody answered is not in it.
type Ledger = BTreeMap<(&'static str, String), Option<String>>;

/// Clients that write to all keyspaces at all nodes until they are told to stop.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    /// How many writes were acknowledged in the keyspace that comes and goes.
    extra: AtomicU64,
    ledger: Mutex<Ledger>,
    /// What was refused, by the keyspace.
    refused: Mutex<BTreeSet<(&'static str, String)>>,
}

impl Load {
    /// One writer at a node. Nobody else writes its keys.
    fn write(&self, node: usize, port: u16) {
        let mut connections: BTreeMap<&'static str, Connection> = BTreeMap::new();
        let mut numbers = 0_u64..;
        while !self.stop.load(Ordering::Relaxed) {
            for (keyspace, _) in ALL {
                let number = numbers.next().expect("there are more");
                let connection = match connections.remove(keyspace) {
                    Some(connection) => Some(connection),
                    None => self.connect(port, keyspace),
                };
                let Some(mut connection) = connection else {
                    continue;
                };
                // Each fifth write deletes what was written four times before.
                let is_delete = number % 15 / 3 == 4;
                let of = if is_delete { number - 12 } else { number };
                let key = format!("{node}.{of}");
                if self.ask(
                    &mut connection,
                    keyspace,
                    key,
                    (!is_delete).then(|| format!("v{of}")),
                ) {
                    connections.insert(keyspace, connection);
                }
            }
            std::thread::park_timeout(THINK);
        }
    }

    /// A connection in a keyspace, if the node runs and has it.
    fn connect(&self, port: u16, keyspace: &'static str) -> Option<Connection> {
        let mut connection = Connection::open(port, crate::cluster::PATIENCE).ok()?;
        match connection.call(&[b"SELECT", keyspace.as_bytes()]).ok()? {
            Value::Error(why) => {
                self.refuse(keyspace, &why);
                None
            }
            _ => Some(connection),
        }
    }

    fn refuse(&self, keyspace: &'static str, why: &[u8]) {
        let why = String::from_utf8_lossy(why).into_owned();
        held(&self.refused).insert((keyspace, why));
    }

    /// Writes, or deletes. Returns whether the connection is still there.
    fn ask(
        &self,
        connection: &mut Connection,
        keyspace: &'static str,
        key: String,
        value: Option<String>,
    ) -> bool {
        let answer = match &value {
            Some(value) => connection.call(&["SET", &key, value]),
            None => connection.call(&["DEL", &key]),
        };
        let (place, is_there) = ((keyspace, key), answer.is_ok());
        match answer {
            Ok(Value::Error(why)) if why.starts_with(b"UNAVAILABLE") => self.refuse(keyspace, &why),
            Ok(Value::Error(why)) => {
                self.refuse(keyspace, &why);
                held(&self.ledger).remove(&place);
            }
            Ok(_) => {
                held(&self.ledger).insert(place, value);
                self.extra
                    .fetch_add(u64::from(keyspace == EXTRA.0), Ordering::Relaxed);
            }
            Err(_) => drop(held(&self.ledger).remove(&place)),
        }
        is_there
    }

    /// Waits until more was acknowledged in the keyspace that comes and goes.
    fn wait_for_more(&self) {
        let before = self.extra.load(Ordering::Relaxed);
        wait_until("clients write to the new keyspace", || {
            self.extra.load(Ordering::Relaxed) > before + 200
        });
    }
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no writer has failed")
}

/// Ends each node and starts it with the configuration that is there now. After each, nobody is cut off.
fn restart_one_by_one(cluster: &mut Cluster, round: &str, adds: bool, also: impl Fn(&Cluster, usize)) {
    let count = 3 * NODES_OF_A_SITE;
    for node in 0..count {
        assert_eq!(cluster.terminate(node), Some(0));
        cluster.start_node(node);
        // Those up to this one are restarted, the others are not.
        let has = |other: usize| (other <= node) == adds;
        wait_until(
            "the restarted node is linked to all others, and says what they lack",
            || {
                let status = cluster.admin(node).status().expect("the node says how it is");
                let is_as_expected = |other: usize| {
                    let name = cluster.name(other);
                    let link = status.links.iter().find(|link| link.peer == name);
                    link.is_some_and(|link| {
                        let lacks = |list: &[String], lacks: bool| match lacks {
                            true => list == [EXTRA.0],
                            false => list.is_empty(),
                        };
                        link.up
                            && lacks(&link.missing_there, has(node) && !has(other))
                            && lacks(&link.missing_here, has(other) && !has(node))
                    })
                };
                (0..count).filter(|&other| other != node).all(is_as_expected)
            },
        );
        let key = format!("{round} {node}").into_bytes();
        let mut writer = cluster.client(node);
        for (keyspace, _) in BASE {
            writer.call(&[b"SELECT", keyspace.as_bytes()]);
            assert_eq!(text(&writer.call(&[b"SET", &key, b"here"])), "OK");
            let far = (node + NODES_OF_A_SITE) % count;
            let mut reader = cluster.client(far);
            reader.call(&[b"SELECT", keyspace.as_bytes()]);
            wait_until(
                "what is written to the restarted node is seen at another site",
                || text(&reader.call(&[b"GET", &key])) == "here",
            );
        }
        also(cluster, node);
    }
}

/// Some of the keys of a site are on the node without the keyspace. Reads of them are refused, and name the keyspace, unless another site has it: then that
/// site answers.
fn half_is_refused_by_name(mut client: Client, is_elsewhere: bool) {
    assert_eq!(text(&client.call(&[b"SELECT", EXTRA.0.as_bytes()])), "OK");
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let answers: Vec<String> = keys
        .iter()
        .map(|key| text(&client.call(&[b"GET", key.as_bytes()])))
        .collect();
    let is_named =
        |answer: &str| answer.starts_with("UNAVAILABLE") && answer.contains("the keyspace 'extra'");
    let refused = answers.iter().filter(|answer| answer.starts_with("UNAVAILABLE"));
    assert!(refused.clone().all(|answer| is_named(answer)), "{answers:?}");
    let is_expected = match is_elsewhere {
        true => refused.count() == 0,
        false => (1..keys.len()).contains(&refused.count()),
    };
    assert!(is_expected, "{answers:?}");
    let mut snapshot = vec![b"MGET".to_vec()];
    snapshot.extend(keys.into_iter().map(String::into_bytes));
    let answer = client.pipeline(&[snapshot]).remove(0);
    match is_elsewhere {
        true => assert!(matches!(answer, Value::Array(_)), "{}", text(&answer)),
        false => assert!(is_named(&text(&answer)), "{}", text(&answer)),
    }
}

#[test]
fn a_keyspace_is_added_removed_and_added_again_under_load() {
    let mut cluster = Cluster::new(NODES_OF_A_SITE, "interval(10ms)", patient());
    cluster.configure(&BASE);
    cluster.start_all();
    cluster.settle();
    let ports: Vec<u16> = (0..3 * NODES_OF_A_SITE)
        .map(|node| cluster.ports(node).resp)
        .collect();
    let load = Load::default();
    std::thread::scope(|scope| {
        let writers: Vec<_> = ports
            .iter()
            .enumerate()
            .map(|(node, &port)| {
                let load = &load;
                scope.spawn(move || load.write(node, port))
            })
            .collect();
        // Whatever fails below, the writers end.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cluster.configure(&ALL);
            restart_one_by_one(&mut cluster, "added", true, |cluster, node| {
                if node == 0 {
                    half_is_refused_by_name(cluster.client(node), false);
                }
            });
            load.wait_for_more();
            cluster.configure(&BASE);
            restart_one_by_one(&mut cluster, "removed", false, |cluster, node| {
                let selected = text(&cluster.client(node).call(&[b"SELECT", EXTRA.0.as_bytes()]));
                assert!(
                    selected.starts_with("NOKEYSPACE no keyspace 'extra'"),
                    "{selected}"
                );
                if node == 0 {
                    half_is_refused_by_name(cluster.client(1), true);
                }
            });
            cluster.configure(&ALL);
            restart_one_by_one(&mut cluster, "again", true, |_, _| {});
            load.wait_for_more();
        }));
        load.stop.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("it writes"));
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    cluster.settle();
    only_what_is_named_was_refused(&held(&load.refused));
    everything_is_everywhere(&cluster, &held(&load.ledger));
}

fn only_what_is_named_was_refused(refused: &BTreeSet<(&'static str, String)>) {
    for (keyspace, why) in refused {
        let is_named = *keyspace == EXTRA.0 && why.contains("'extra'");
        // Of a node that is being restarted itself.
        let is_of_a_restart =
            why.contains("cannot be reached") || why.contains("which holds the partition, broke");
        assert!(is_named || is_of_a_restart, "in {keyspace}: {why}");
    }
    assert!(refused.iter().any(|(keyspace, _)| *keyspace == EXTRA.0));
}

fn everything_is_everywhere(cluster: &Cluster, ledger: &Ledger) {
    for (keyspace, _) in ALL {
        let contents: Vec<_> = (0..3)
            .map(|site| cluster.contents_in(site * NODES_OF_A_SITE, keyspace))
            .collect();
        let of_keyspace = ledger.iter().filter(|((of, _), _)| *of == keyspace);
        let (mut written, mut deleted) = (0, 0);
        for ((_, key), value) in of_keyspace {
            match value {
                Some(_) => written += 1,
                None => deleted += 1,
            }
            for (site, held) in contents.iter().enumerate() {
                let found = held
                    .get(key.as_bytes())
                    .map(|value| String::from_utf8_lossy(value));
                assert_eq!(
                    found.as_deref(),
                    value.as_deref(),
                    "{key} of {keyspace} at site {site}"
                );
            }
        }
        assert!(written > 100 && deleted > 20, "{keyspace}: {written}, {deleted}");
        assert!(
            contents[0] == contents[1] && contents[1] == contents[2],
            "the sites have different keys in {keyspace}"
        );
    }
}

/// One node was given another protocol for a name that the others have, too. It has no links, and everybody says why. The way back is the one in
/// docs/configuration.md.
#[test]
fn a_keyspace_that_is_not_the_same_everywhere_is_refused_by_name() {
    let mut cluster = Cluster::new(1, "interval(10ms)", patient());
    cluster.configure(&ALL);
    (0..2).for_each(|node| cluster.start_node(node));
    cluster.configure(&[BASE[0], BASE[1], (EXTRA.0, "eventual")]);
    // It hears nobody: without this it would wait for a word of another site.
    let mut command = cluster.start_command(2);
    command.arg("--new-cluster");
    cluster.start_node_as(2, command);
    for node in 0..3 {
        wait_until("a node says which keyspace differs, and how", || {
            let status = cluster.admin(node).status().expect("the node says how it is");
            let peers = if node == 2 { 2 } else { 1 };
            let refused = status.links.iter().filter(|link| {
                let why = link.reason.as_deref().unwrap_or_default();
                let parts = [
                    "'extra'",
                    "causalspartanx and 2 partitions",
                    "eventual and 2 partitions",
                ];
                !link.up && parts.iter().all(|part| why.contains(part))
            });
            refused.count() == peers
        });
    }
    // What it has acknowledged meanwhile is not lost: without the keyspace it has links.
    assert_eq!(text(&cluster.client(2).call(&[b"SET", b"k", b"alone"])), "OK");
    assert_eq!(cluster.terminate(2), Some(0));
    cluster.configure(&BASE);
    cluster.start_node(2);
    let is_streamed = |(_, state, lag): &(String, String, u64)| state == "streaming" && *lag == 0;
    wait_until("the node has given away what it has", || {
        cluster.stream_states(2).iter().all(is_streamed)
    });
    assert_eq!(cluster.terminate(2), Some(0));
    std::fs::remove_dir_all(cluster.data_directory(2)).expect("it can be emptied");
    cluster.configure(&ALL);
    cluster.start_node(2);
    cluster.settle();
    for node in 0..3 {
        assert_eq!(text(&cluster.client(node).call(&[b"GET", b"k"])), "alone");
    }
}
