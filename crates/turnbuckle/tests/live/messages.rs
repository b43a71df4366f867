//! Messages to channels, and waiting for sites, as clients see them.
use crate::cluster::{Client, Cluster, patient, text, wait_until};

fn words(client: &mut Client, command: &str) -> String {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    text(&client.call(&words))
}

fn causal(cluster: &Cluster, node: usize) -> Client {
    let mut client = cluster.client(node);
    assert_eq!(words(&mut client, "SELECT causal"), "OK");
    client
}

fn listener(cluster: &Cluster, node: usize, command: &str) -> Client {
    let mut client = cluster.client(node);
    let reply = words(&mut client, command);
    assert!(reply.contains("subscribe"), "{reply}");
    client
}

/// What the publisher has written is there for everybody who hears of it. Its other site is two nodes, so the write and the message may take different ways.
#[test]
fn who_is_woken_by_a_message_finds_what_it_is_about() {
    let cluster = Cluster::start_with_nodes(2, "interval(10ms)", patient());
    // A message is lost at a node that cannot be reached when it is sent.
    cluster.wait_for_links(0);
    let mut writer = causal(&cluster, 0);
    let others: Vec<usize> = (1..6).collect();
    let mut listeners: Vec<Client> = others
        .iter()
        .map(|&node| listener(&cluster, node, "PSUBSCRIBE order*"))
        .collect();
    let mut readers: Vec<Client> = others.iter().map(|&node| causal(&cluster, node)).collect();
    for number in 0..100 {
        for key in ["one", "two", "three"] {
            assert_eq!(words(&mut writer, &format!("SET {key} {number}")), "OK");
        }
        assert_eq!(
            words(&mut writer, &format!("PUBLISH orders {number}")),
            "Integer(0)"
        );
        for (listener, reader) in listeners.iter_mut().zip(&mut readers) {
            let message = text(&listener.read());
            assert!(
                message.contains("orders") && message.contains(&number.to_string()),
                "{message}"
            );
            for key in ["one", "two", "three"] {
                let found = words(reader, &format!("GET {key}"));
                assert_eq!(found, number.to_string(), "{key} behind {message}");
            }
        }
    }
}

#[test]
fn a_client_is_told_which_sites_have_what_it_wrote() {
    let mut cluster = Cluster::start("fsync", patient());
    let mut writer = causal(&cluster, 0);
    assert_eq!(words(&mut writer, "SET stock 1"), "OK");
    assert_eq!(words(&mut writer, "WAIT 2 0"), "Integer(2)");
    cluster.cut_sites(0, 2, true);
    assert_eq!(words(&mut writer, "SET stock 2"), "OK");
    assert_eq!(words(&mut writer, "WAIT 1 0"), "Integer(1)");
    assert_eq!(words(&mut writer, "WAIT 2 300"), "Integer(1)");
    // What it counts is durable there.
    cluster.kill(1);
    cluster.start_node(1);
    let mut reader = causal(&cluster, 1);
    wait_until("b serves again", || words(&mut reader, "GET stock") == "2");
    cluster.cut_sites(0, 2, false);
    assert_eq!(words(&mut writer, "WAIT 2 0"), "Integer(2)");
    let mut reader = causal(&cluster, 2);
    assert_eq!(words(&mut reader, "GET stock"), "2");
    // A client that leaves while it waits leaves nothing behind.
    cluster.cut_sites(0, 1, true);
    assert_eq!(words(&mut writer, "SET stock 3"), "OK");
    let mut leaver = causal(&cluster, 0);
    assert_eq!(words(&mut leaver, "GET stock"), "3");
    leaver.send(&[b"WAIT", b"2", b"0"]);
    drop(leaver);
    assert_eq!(words(&mut writer, "WAIT 2 200"), "Integer(1)");
}
