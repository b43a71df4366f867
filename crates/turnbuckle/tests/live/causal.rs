//! Causal keyspaces as clients see them.
use crate::cluster::{Client, Cluster, patient, text, wait_until};
use std::collections::BTreeSet;
use turnbuckle_resp::Value;
use turnbuckle_server::config::Limits;

const NOTHING: &str = "Null";

fn words(client: &mut Client, command: &str) -> String {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    text(&client.call(&words))
}

/// A client of a node, in the causal keyspace.
fn causal(cluster: &Cluster, node: usize) -> Client {
    in_keyspace(cluster, node, "causal")
}

fn in_keyspace(cluster: &Cluster, node: usize, keyspace: &str) -> Client {
    let mut client = cluster.client(node);
    assert_eq!(words(&mut client, &format!("SELECT {keyspace}")), "OK");
    client
}

/// The answer once it is no refusal: a site that has to catch up first answers `-UNAVAILABLE`.
fn in_time(client: &mut Client, command: &str) -> String {
    let mut answer = String::new();
    wait_until(&format!("{command} is answered"), || {
        answer = words(client, command);
        !answer.starts_with("UNAVAILABLE")
    });
    answer
}

fn is_nothing(value: &str) -> bool {
    value == NOTHING || value.contains("Null")
}

/// a and c cannot reach each other. b comments on what a has posted.
fn comment_on_a_photo(cluster: &Cluster, keyspace: &str) -> (Client, Client) {
    let mut alice = in_keyspace(cluster, 0, keyspace);
    let mut bob = in_keyspace(cluster, 1, keyspace);
    let carol = in_keyspace(cluster, 2, keyspace);
    cluster.cut_sites(0, 2, true);
    assert_eq!(words(&mut alice, "SET photo sunset"), "OK");
    wait_until("b has the photo", || words(&mut bob, "GET photo") == "sunset");
    assert_eq!(words(&mut bob, "SET comment lovely"), "OK");
    (bob, carol)
}

#[test]
fn a_comment_is_not_seen_before_the_photo_it_is_about() {
    let cluster = Cluster::start("interval(10ms)", patient());
    let (mut bob, mut carol) = comment_on_a_photo(&cluster, "causal");
    // What b writes without having seen the photo gets through, and so the comment has arrived as well.
    let mut other = causal(&cluster, 1);
    assert_eq!(words(&mut other, "SET weather fine"), "OK");
    wait_until("c has what depends on nothing", || {
        words(&mut carol, "GET weather") == "fine"
    });
    wait_until("c has the comment", || {
        words(&mut carol, "GET comment AT eventual") == "lovely"
    });
    for _ in 0..100 {
        assert!(is_nothing(&words(&mut carol, "GET comment")));
        assert!(words(&mut carol, "MGET comment photo").matches(NOTHING).count() == 2);
    }
    let receipt = words(&mut carol, "RECEIPT");
    assert!(receipt.contains("hidden"), "{receipt}");
    assert_eq!(words(&mut bob, "GET comment"), "lovely", "b sees its own");
    cluster.cut_sites(0, 2, false);
    wait_until("c sees the comment", || {
        words(&mut carol, "GET comment") == "lovely"
    });
    assert_eq!(words(&mut carol, "GET photo"), "sunset");
}

/// Sites that are cut apart add to one number, and nothing is lost when they hear each other again, also if a node was killed meanwhile.
#[test]
fn what_sites_that_are_cut_apart_add_to_a_number_adds_up() {
    for keyspace in ["causal", "eventual"] {
        let mut cluster = Cluster::start("fsync", patient());
        let mut clients: Vec<Client> = (0..3).map(|node| in_keyspace(&cluster, node, keyspace)).collect();
        assert_eq!(words(&mut clients[0], "SET stock 100"), "OK");
        for client in &mut clients {
            wait_until("every site has the number", || {
                words(client, "GET stock") == "100"
            });
        }
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            cluster.cut_sites(one, other, true);
        }
        assert_eq!(words(&mut clients[0], "INCRBY stock 5"), "Integer(105)");
        assert_eq!(words(&mut clients[1], "DECR stock"), "Integer(99)");
        assert_eq!(words(&mut clients[2], "INCRBYFLOAT stock 0.5"), "100.5");
        assert_eq!(words(&mut clients[0], "INCR stock"), "Integer(106)");
        cluster.kill(0);
        cluster.start_node(0);
        clients[0] = in_keyspace(&cluster, 0, keyspace);
        // It hears the other sites again: nobody has told the new process of the cuts.
        let sum = in_time(&mut clients[0], "INCRBYFLOAT stock 1");
        assert!(sum.parse::<f64>().is_ok_and(|sum| sum > 99.0), "{sum}");
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            cluster.cut_sites(one, other, false);
        }
        for client in &mut clients {
            wait_until("every site has all that was added", || {
                words(client, "GET stock") == "106.5"
            });
        }
        assert_eq!(
            words(&mut clients[1], "INCR stock"),
            "ERR value is not an integer or out of range"
        );
        assert_eq!(words(&mut clients[1], "SET stock 1"), "OK");
        for client in &mut clients {
            wait_until("what was seen is reset", || words(client, "GET stock") == "1");
        }
    }
}

/// Sites that are cut apart change one hash and one set, and a node is killed meanwhile. Nothing that was added is lost, and what was removed is what the remover had seen.
#[test]
fn what_sites_that_are_cut_apart_add_to_a_hash_or_a_set_is_there() {
    for keyspace in ["causal", "eventual"] {
        let mut cluster = Cluster::start("fsync", patient());
        let mut clients: Vec<Client> = (0..3).map(|node| in_keyspace(&cluster, node, keyspace)).collect();
        assert_eq!(words(&mut clients[0], "HSET cart pen 2 ink 1"), "Integer(2)");
        assert_eq!(words(&mut clients[0], "SADD friends ann bob"), "Integer(2)");
        for client in &mut clients {
            wait_until("every site has both", || {
                words(client, "HLEN cart") == "Integer(2)" && words(client, "SCARD friends") == "Integer(2)"
            });
        }
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            cluster.cut_sites(one, other, true);
        }
        assert_eq!(words(&mut clients[0], "HSET cart paper 5"), "Integer(1)");
        assert_eq!(words(&mut clients[0], "HINCRBY cart pen 3"), "Integer(5)");
        assert_eq!(words(&mut clients[0], "SADD friends ann"), "Integer(0)");
        assert_eq!(words(&mut clients[1], "HINCRBY cart pen 4"), "Integer(6)");
        assert_eq!(words(&mut clients[1], "HDEL cart ink paper"), "Integer(1)");
        assert_eq!(words(&mut clients[2], "SREM friends ann bob"), "Integer(2)");
        assert_eq!(words(&mut clients[2], "SADD friends cleo"), "Integer(1)");
        cluster.kill(1);
        cluster.start_node(1);
        clients[1] = in_keyspace(&cluster, 1, keyspace);
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            cluster.cut_sites(one, other, false);
        }
        for client in &mut clients {
            wait_until("every site has all of it", || {
                words(client, "HGET cart pen") == "9" && words(client, "HLEN cart") == "Integer(2)"
            });
            assert_eq!(words(client, "HGET cart paper"), "5");
            wait_until("adding wins", || {
                let mut has = |member: &str| words(client, &format!("SISMEMBER friends {member}"));
                has("ann") == "Integer(1)" && has("bob") == "Integer(0)" && has("cleo") == "Integer(1)"
            });
            assert!(words(client, "GET cart").starts_with("WRONGTYPE"));
        }
    }
}

/// One site writes two keys by transactions, and the others read both. They never see a part, also while a link is cut and healed and the writer is killed.
#[test]
fn a_transaction_is_seen_as_a_whole_at_every_site() {
    let mut cluster = Cluster::start("fsync", patient());
    let mut writer = causal(&cluster, 0);
    let mut readers = [causal(&cluster, 1), causal(&cluster, 2)];
    let mut seen = BTreeSet::new();
    for round in 0..200 {
        if round == 80 {
            cluster.cut_sites(0, 1, true);
        }
        if round == 120 {
            cluster.kill(0);
            cluster.start_node(0);
            writer = causal(&cluster, 0);
            wait_until("the node serves", || {
                words(&mut writer, "GET {7}one") != "UNAVAILABLE"
            });
        }
        for command in [
            "MULTI",
            &format!("SET {{7}}one v{round}"),
            "INCR {7}sum",
            "EXPIRE {7}sum 3600",
        ] {
            words(&mut writer, command);
        }
        for command in ["INCR {7}total", &format!("SET {{7}}other v{round}"), "EXEC"] {
            words(&mut writer, command);
        }
        for reader in &mut readers {
            let Value::Array(values) =
                reader.call(&[b"MGET", b"{7}one", b"{7}other", b"{7}sum", b"{7}total"])
            else {
                continue;
            };
            let values: Vec<String> = values.iter().map(text).collect();
            assert_eq!(values[0], values[1], "round {round}");
            assert_eq!(values[2], values[3], "round {round}");
            seen.insert(values[0].clone());
        }
    }
    assert!(seen.len() > 2, "readers saw {seen:?}");
    cluster.cut_sites(0, 1, false);
    let last = words(&mut writer, "GET {7}one");
    for reader in &mut readers {
        wait_until("every site has the last one", || {
            words(reader, "GET {7}other") == last
        });
    }
    let refused = words(&mut writer, "WATCH {7}one");
    assert!(refused.starts_with("UNSUPPORTED WATCH"), "{refused}");
    words(&mut writer, "MULTI");
    for key in 0..20 {
        words(&mut writer, &format!("SET apart:{key} 1"));
    }
    let refused = words(&mut writer, "EXEC");
    assert!(refused.contains("must be in one partition"), "{refused}");
    assert!(
        is_nothing(&words(&mut writer, "GET apart:0")),
        "nothing was carried out"
    );
}

/// The same where nothing waits for anything.
#[test]
fn an_eventual_keyspace_shows_a_comment_on_nothing() {
    let cluster = Cluster::start("interval(10ms)", patient());
    let (_, mut carol) = comment_on_a_photo(&cluster, "eventual");
    wait_until("c sees the comment", || {
        words(&mut carol, "GET comment") == "lovely"
    });
    assert!(is_nothing(&words(&mut carol, "GET photo")));
    let refused = words(&mut carol, "ROTX comment photo");
    assert!(refused.starts_with("BADLEVEL"), "{refused}");
}

#[test]
fn a_session_that_moves_waits_until_the_site_has_what_it_saw_or_is_told_when() {
    let cluster = Cluster::start("interval(10ms)", patient());
    let mut here = causal(&cluster, 0);
    let mut there = causal(&cluster, 1);
    assert_eq!(words(&mut here, "SET x old"), "OK");
    wait_until("b has it", || words(&mut there, "GET x") == "old");
    cluster.cut_a_from_b(true);
    assert_eq!(words(&mut here, "SET x new"), "OK");
    let token = words(&mut here, "SESSION TOKEN");
    assert_eq!(words(&mut there, &format!("SESSION RESUME {token}")), "OK");
    for command in ["GET x", "SET y 1", "ROTX x y"] {
        let refused = words(&mut there, command);
        assert!(
            refused.starts_with("UNAVAILABLE") && refused.contains("site a"),
            "{command}: {refused}"
        );
    }
    assert_eq!(words(&mut there, "GET x AT eventual"), "old");
    cluster.cut_a_from_b(false);
    wait_until("b has it", || words(&mut there, "GET x") == "new");
    assert_eq!(words(&mut there, "SET y 1"), "OK");
}

/// Bob at b reads the photo of a, does `meanwhile`, and comments; of a nothing reaches c. Whatever he did, c shows no comment.
fn still_depends_after(meanwhile: impl Fn(&mut Client, &mut Client)) {
    let cluster = Cluster::start("interval(10ms)", patient());
    let (mut alice, mut bob) = (causal(&cluster, 0), causal(&cluster, 1));
    let (mut other, mut carol) = (causal(&cluster, 1), causal(&cluster, 2));
    cluster.cut_sites(0, 2, true);
    assert_eq!(words(&mut alice, "SET photo sunset"), "OK");
    wait_until("b has the photo", || words(&mut bob, "GET photo") == "sunset");
    meanwhile(&mut bob, &mut other);
    assert_eq!(words(&mut bob, "SET comment lovely"), "OK");
    wait_until("c has the comment", || {
        words(&mut carol, "GET comment AT eventual") == "lovely"
    });
    assert_eq!(words(&mut other, "SET weather fine"), "OK");
    wait_until("c sees what came after it", || {
        words(&mut carol, "GET weather") == "fine"
    });
    assert!(is_nothing(&words(&mut carol, "GET comment")), "without its photo");
}

#[test]
fn a_connection_that_comes_back_to_a_keyspace_has_forgotten_nothing() {
    still_depends_after(|bob, _| {
        assert_eq!(words(bob, "SELECT eventual"), "OK");
        assert_eq!(words(bob, "SET mood good"), "OK");
        assert_eq!(words(bob, "SELECT causal"), "OK");
    });
}

#[test]
fn a_token_is_added_to_what_a_session_has_seen() {
    still_depends_after(|bob, other| {
        assert_eq!(words(other, "SET bread baked"), "OK");
        let token = words(other, "SESSION TOKEN");
        assert_eq!(words(bob, &format!("SESSION RESUME {token}")), "OK");
    });
}

#[test]
fn tokens_of_other_keyspaces_and_of_nobody_are_refused() {
    let cluster = Cluster::start("interval(10ms)", patient());
    let mut client = causal(&cluster, 0);
    assert_eq!(words(&mut client, "SET x 1"), "OK");
    let token = words(&mut client, "SESSION TOKEN");
    let mut other = in_keyspace(&cluster, 1, "eventual");
    let refused = words(&mut other, &format!("SESSION RESUME {token}"));
    assert!(refused.contains("belongs to keyspace 'causal'"), "{refused}");
    let foreign = words(&mut other, "SESSION TOKEN");
    for bad in [
        foreign.as_str(),
        "nonsense",
        &token[..token.len() - 4],
        &format!("{token}00"),
    ] {
        let refused = words(&mut client, &format!("SESSION RESUME {bad}"));
        assert!(!refused.starts_with("OK"), "{bad}: {refused}");
    }
    assert_eq!(words(&mut client, "GET x"), "1", "the session goes on");
}

#[test]
fn a_snapshot_can_have_one_key_twice_or_ten_thousand() {
    let cluster = Cluster::start_with_nodes(2, "interval(10ms)", patient());
    let mut client = causal(&cluster, 0);
    let keys: Vec<Vec<u8>> = (0..10_000)
        .map(|number| format!("k{number}").into_bytes())
        .collect();
    let mut writes = vec![b"MSET".to_vec()];
    writes.extend(keys.iter().flat_map(|key| [key.clone(), key.clone()]));
    assert_eq!(text(&client.pipeline(&[writes])[0]), "OK");
    for command in ["ROTX", "MGET"] {
        let mut read = vec![command.as_bytes().to_vec()];
        read.extend(keys.iter().cloned());
        let mut answer = Value::Null;
        wait_until("many keys are read in time", || {
            answer = client.pipeline(std::slice::from_ref(&read)).remove(0);
            !text(&answer).starts_with("UNAVAILABLE")
        });
        let Value::Array(values) = answer else {
            panic!("{command} of many keys: {:.200}", text(&answer))
        };
        assert!(
            keys.iter()
                .zip(&values)
                .all(|(key, value)| text(value).as_bytes() == &key[..])
        );
    }
    assert_eq!(words(&mut client, "ROTX k1 k1").matches("k1").count(), 2);
    let refused = words(&mut client, "ROTX");
    assert!(refused.contains("wrong number of arguments"), "{refused}");
}

/// The partition of half the keys is on the other node of the client's site.
#[test]
fn large_values_and_answers_pass_between_the_nodes_of_a_site() {
    const MIB: usize = 1 << 20;
    let cluster = Cluster::start_with_nodes(2, "interval(10ms)", patient());
    for keyspace in ["eventual", "causal"] {
        let mut clients = [0, 1].map(|node| in_keyspace(&cluster, node, keyspace));
        let largest = vec![b'v'; Limits::default().max_value_bytes as usize];
        for (writer, reader) in [(0, 1), (1, 0)] {
            for key in [b"foo", b"bar"] {
                assert_eq!(text(&clients[writer].call(&[b"SET", key, &largest])), "OK");
                let read = clients[reader].call(&[b"GET", key]);
                assert!(
                    matches!(&read, Value::Bulk(value) if *value == largest),
                    "{:.200}",
                    text(&read)
                );
            }
        }
        let keys: Vec<Vec<u8>> = (0..20).map(|number| format!("k{number}").into_bytes()).collect();
        for key in &keys {
            assert_eq!(text(&clients[0].call(&[b"SET", key, &largest[..MIB]])), "OK");
        }
        for client in &mut clients {
            let read = [vec![b"MGET".to_vec()], keys.clone()].concat();
            let Value::Array(values) = client.pipeline(&[read]).remove(0) else {
                panic!("MGET of 20 MiB")
            };
            assert!(values.iter().all(|value| text(value).len() == MIB), "{keyspace}");
        }
    }
}

/// Writes of a connection wait for each other's stamps, not for each other's disk: the script `a_pipeline_waits_for_stamps_and_not_for_the_disk` counts
/// that. Here the answers come in their order, and a read shows what was written before it.
#[test]
fn a_pipeline_of_writes_and_reads_is_answered_in_its_order() {
    const WRITES: usize = 500;
    let cluster = Cluster::start("fsync", patient());
    let mut client = causal(&cluster, 0);
    for round in 0..5 {
        let value = |number: usize| format!("{round}-{number}");
        let commands: Vec<Vec<Vec<u8>>> = (0..WRITES)
            .flat_map(|number| {
                let key = format!("key{}", number % 7).into_bytes();
                let set = vec![b"SET".to_vec(), key.clone(), value(number).into_bytes()];
                let get = (number % 50 == 0).then(|| vec![b"GET".to_vec(), key]);
                [Some(set), get]
            })
            .flatten()
            .collect();
        let mut answers = client.pipeline(&commands).into_iter();
        for number in 0..WRITES {
            assert_eq!(answers.next().as_ref().map(text), Some("OK".into()));
            if number % 50 == 0 {
                assert_eq!(answers.next().as_ref().map(text), Some(value(number)));
            }
        }
    }
}

/// The partitions of `foo` and `bar` are on two nodes: what is written to one is seen only after what was written to the other before.
#[test]
fn writes_of_a_pipeline_are_seen_in_its_order() {
    const ROUNDS: usize = 300;
    let cluster = Cluster::start_with_nodes(2, "fsync", patient());
    let mut writers: Vec<Client> = (0..2).map(|node| causal(&cluster, node)).collect();
    let mut reader = causal(&cluster, 4);
    for (writer, client) in writers.iter_mut().enumerate() {
        let keys = ["foo", "bar"].map(|key| format!("{{{key}}}{writer}"));
        let commands: Vec<Vec<Vec<u8>>> = (1..=ROUNDS)
            .flat_map(|round| keys.clone().map(|key| (key, round)))
            .map(|(key, round)| vec![b"SET".to_vec(), key.into_bytes(), round.to_string().into_bytes()])
            .collect();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| client.pipeline(&commands));
            let mut seen = 0;
            wait_until("c has seen it all", || {
                let read = [b"ROTX".as_slice(), keys[1].as_bytes(), keys[0].as_bytes()];
                let values = match reader.call(&read) {
                    Value::Array(values) => values,
                    // On a busy machine a read may have waited for as long as the protocol lets it. It is asked again.
                    Value::Error(why) if why.starts_with(b"UNAVAILABLE") => return false,
                    other => panic!("ROTX of two keys: {other:?}"),
                };
                let [second, first] = [0, 1].map(|place| text(&values[place]).parse::<usize>().unwrap_or(0));
                assert!(
                    first >= second,
                    "{second} of the second key was seen with {first} of the first"
                );
                assert!(second >= seen, "{second} after {seen}");
                seen = second;
                seen == ROUNDS
            });
            let answers = writing.join().expect("it ends");
            assert!(answers.iter().all(|answer| text(answer) == "OK"));
        });
    }
}

/// Every client's writes and what it had seen of others' survive `kill -9` of all nodes at once, and nobody goes back.
#[test]
fn what_was_seen_is_seen_again_after_kill_of_all() {
    let mut cluster = Cluster::start_with_nodes(2, "interval(10ms)", patient());
    let mut alice = causal(&cluster, 0);
    for number in 0..50 {
        assert_eq!(words(&mut alice, &format!("SET key{number} {number}")), "OK");
    }
    let mut bob = causal(&cluster, 2);
    wait_until("b has it all", || words(&mut bob, "GET key49") == "49");
    assert_eq!(words(&mut bob, "SET answer seen"), "OK");
    let token = words(&mut bob, "SESSION TOKEN");
    for node in 0..6 {
        cluster.kill(node);
    }
    cluster.start_all();
    let mut bob = causal(&cluster, 2);
    assert_eq!(words(&mut bob, &format!("SESSION RESUME {token}")), "OK");
    assert_eq!(in_time(&mut bob, "GET answer"), "seen");
    for number in 0..50 {
        assert_eq!(in_time(&mut bob, &format!("GET key{number}")), number.to_string());
    }
    let mut alice = causal(&cluster, 0);
    wait_until("a has the answer", || words(&mut alice, "GET answer") == "seen");
    assert_eq!(in_time(&mut alice, "GET key49"), "49");
}
