use super::*;
use tokio::io::{DuplexStream, duplex};

type Ended<T> = Result<T, HandshakeError>;

fn identity(node: &str) -> Identity {
    Identity {
        cluster: "shop".into(),
        layout: "sites a, b".into(),
        keyspaces: vec![terms("carts", "cops", 2)],
        node: node.into(),
        run: 7,
        secret: ClusterSecret::new(b"0123456789abcdef".as_slice()),
    }
}

fn terms(name: &str, protocol: &str, partitions: u32) -> KeyspaceTerms {
    KeyspaceTerms {
        name: name.into(),
        protocol: protocol.into(),
        partitions,
        members: 1.into(),
        replica_sites: None,
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(work)
}

/// A handshake between two nodes, over a wire that records what the dialer said. The acceptor has no links.
fn shake(dialer: &Identity, to: &str, acceptor: &Identity) -> (Ended<Met>, Ended<Met>, Vec<u8>) {
    shake_with(None, dialer, to, acceptor)
}

/// The same, with an acceptor that has a link to a run of a node.
fn shake_with(
    linked: Option<(&str, u64)>,
    dialer: &Identity,
    to: &str,
    acceptor: &Identity,
) -> (Ended<Met>, Ended<Met>, Vec<u8>) {
    let another_run = |name: &str, run| {
        let linked = linked.filter(|&(linked, of)| name == linked && run != of);
        linked.map(|(_, of)| of)
    };
    block_on(async {
        let ((mut here, near), (mut there, far)) = (duplex(1 << 20), duplex(1 << 20));
        let dialled = async {
            let result = dial(&mut here, dialer, to, [1; 16]).await;
            drop(here);
            result
        };
        let accepted = async {
            let result = accept(&mut there, acceptor, [2; 16], |_| Ok(()), another_run, &mut None).await;
            drop(there);
            result
        };
        let (dialled, accepted, said) = tokio::join!(dialled, accepted, carry(near, far));
        (dialled, accepted, said)
    })
}

/// Carries bytes both ways until both sides have ended. Returns what the near side said.
async fn carry(near: DuplexStream, far: DuplexStream) -> Vec<u8> {
    let ((mut from_near, mut to_near), (mut from_far, mut to_far)) =
        (tokio::io::split(near), tokio::io::split(far));
    let there = async {
        let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = from_near.read(&mut bytes).await {
            said.extend_from_slice(&bytes[..read]);
            if to_far.write_all(&bytes[..read]).await.is_err() {
                break;
            }
        }
        let _ = to_far.shutdown().await;
        said
    };
    let back = async {
        let _ = tokio::io::copy(&mut from_far, &mut to_near).await;
        let _ = to_near.shutdown().await;
    };
    tokio::join!(there, back).0
}

/// How a node ends the handshake with a stranger that sends these bytes and then ends.
fn accept_bytes(acceptor: &Identity, nonce: [u8; 16], bytes: &[u8]) -> Ended<Met> {
    block_on(async {
        let (mut stranger, mut there) = duplex(1 << 20);
        stranger.write_all(bytes).await.expect("there is room");
        stranger.shutdown().await.expect("it can be ended");
        accept(&mut there, acceptor, nonce, |_| Ok(()), |_, _| None, &mut None).await
    })
}

fn says(error: Result<impl Sized, HandshakeError>, expected: &str) {
    let error = error.map(|_| ()).expect_err("it must be refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn two_nodes_of_a_cluster_know_each_other() {
    let (dialled, accepted, _) = shake(&identity("a1"), "b1", &identity("b1"));
    let dialled = dialled.expect("it is the right node");
    let expected = Met {
        node: "a1".into(),
        run: 7,
        agreement: dialled.agreement.clone(),
    };
    assert_eq!(accepted.expect("it is a peer"), expected);
    assert_eq!((&dialled.node[..], dialled.run), ("b1", 7));
}

#[test]
fn a_second_process_of_a_node_is_refused_while_the_first_has_a_link() {
    let (first, b) = (identity("a1"), identity("b1"));
    let second = Identity {
        run: 8,
        ..first.clone()
    };
    let linked = Some(("a1", first.run));
    let (dialled, accepted, _) = shake_with(linked, &second, "b1", &b);
    for refused in [dialled, accepted] {
        assert!(matches!(refused, Err(HandshakeError::Twice { node, linked: 7 }) if node == "'a1'"));
    }
    // Accepted: the linked process itself, a process while another node is linked, and a process while none is.
    for (linked, dialer) in [(linked, &first), (Some(("a2", 7)), &second), (None, &second)] {
        let (dialled, accepted, _) = shake_with(linked, dialer, "b1", &b);
        assert!(dialled.is_ok() && accepted.is_ok());
    }
}

#[test]
fn nodes_with_different_keyspaces_agree_on_those_that_both_have() {
    let (mut a, mut b) = (identity("a1"), identity("b1"));
    a.keyspaces.push(terms("users", "eventual", 4));
    b.keyspaces.insert(0, terms("list", "gentlerain", 8));
    let (dialled, accepted, _) = shake(&a, "b1", &b);
    let (here, there) = (
        dialled.expect("they agree").agreement,
        accepted.expect("they agree").agreement,
    );
    assert_eq!(
        (&here.only_here[..], &here.only_there[..]),
        (&["users".to_string()][..], &["list".to_string()][..])
    );
    assert_eq!(
        (there.only_there, there.only_here),
        (here.only_here, here.only_there)
    );
}

#[test]
fn a_keyspace_that_both_have_and_not_the_same_is_refused_by_name_on_both_sides() {
    for (theirs, found) in [
        (
            terms("carts", "eventual", 2),
            "found it with protocol eventual and 2 partitions",
        ),
        (
            terms("carts", "cops", 3),
            "found it with protocol cops and 3 partitions",
        ),
    ] {
        let mut a = identity("a1");
        a.keyspaces = vec![theirs];
        let (dialled, accepted, _) = shake(&a, "b1", &identity("b1"));
        let expected = format!("expected the keyspace 'carts' with protocol cops and 2 partitions, {found}");
        says(dialled, &expected);
        says(accepted, &expected);
    }
}

#[test]
fn numbers_of_members_by_site_are_agreed_on_and_impossible_ones_are_refused() {
    let with = |node, members: &str| {
        let mut identity = identity(node);
        identity.keyspaces[0].members = members.parse().expect("they are numbers");
        identity
    };
    let (dialled, accepted, _) = shake(&with("a1", "2,1"), "b1", &with("b1", "2,1"));
    assert!(dialled.is_ok() && accepted.is_ok());
    let (_, accepted, _) = shake(&with("a1", "2,1"), "b1", &with("b1", "2"));
    says(
        accepted,
        "of 2 members at each site, found it with protocol cops and 2 partitions of 2,1 members, site by site",
    );
    for (members, by_site) in [
        (Some(0), vec![]),
        (Some(9), vec![]),
        (None, vec![1, 70_000]),
        (None, [1, 2].repeat(400)),
    ] {
        let said = KeyspaceSaid {
            members,
            members_by_site: by_site,
            ..KeyspaceSaid::from(&terms("carts", "cops", 2))
        };
        let error = said.check().expect_err("it is refused").to_string();
        assert!(
            error.contains("expected numbers of members for keyspace carts") && error.len() < 200,
            "{error}"
        );
    }
}

#[test]
fn keyspaces_of_a_peer_are_bounded_and_have_names() {
    let mut many = identity("a1");
    let names = (0..=MAX_KEYSPACES).map(|number| terms(&format!("k{number}"), "cops", 1));
    many.keyspaces = names.collect();
    says(
        shake(&many, "b1", &identity("b1")).1,
        "at most 256 keyspaces, found 257",
    );
    for (name, protocol) in [
        ("a\nb", "cops"),
        ("", "cops"),
        ("k", "co ps"),
        (&"k".repeat(65), "cops"),
    ] {
        let mut odd = identity("a1");
        odd.keyspaces = vec![terms(name, protocol, 1)];
        let (dialled, accepted, _) = shake(&odd, "b1", &identity("b1"));
        says(dialled, "expected the name of a keyspace");
        let error = accepted.expect_err("it is refused").to_string();
        assert!(!error.contains('\n'), "{error:?}");
    }
}

#[test]
fn whoever_does_not_belong_here_is_told_why_on_both_sides() {
    let (a, b) = (identity("a1"), identity("b1"));
    let cluster = Identity {
        cluster: "bank".into(),
        ..a.clone()
    };
    let layout = Identity {
        layout: "sites a, b, c".into(),
        ..a.clone()
    };
    let secret = ClusterSecret::new(b"another secret, as long".as_slice());
    let secret = Identity { secret, ..a.clone() };
    for (dialer, to, expected) in [
        (&cluster, "b1", "a node of the cluster 'shop', found 'bank'"),
        (
            &layout,
            "b1",
            "the same sites and nodes 'sites a, b', found 'sites a, b, c'",
        ),
        (&secret, "b1", "the cluster's secret"),
        (&a, "b2", "a hello for this node 'b1', found 'b2'"),
    ] {
        let (dialled, accepted, _) = shake(dialer, to, &b);
        says(dialled, expected);
        says(accepted, expected);
    }
}

#[test]
fn another_version_of_the_wire_is_refused() {
    let mut hello = greeting([1; NONCE_BYTES]);
    hello.wire_version += 1;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(hello.encoded_len() as u32).to_be_bytes());
    bytes.extend_from_slice(&hello.encode_to_vec());
    let expected = format!(
        "expected wire version {WIRE_VERSION}, found version {}",
        WIRE_VERSION + 1
    );
    says(accept_bytes(&identity("b1"), [2; 16], &bytes), &expected);
}

/// Everything that a node says to a side that has not proven anything, as acceptor and as dialer.
#[test]
fn a_stranger_is_told_no_names() {
    let stranger = Identity {
        cluster: "x".into(),
        layout: "y".into(),
        keyspaces: Vec::new(),
        node: "z".into(),
        run: 8,
        secret: ClusterSecret::new(b"a guess that is long enough".as_slice()),
    };
    let heard = block_on(async {
        let mut heard = Vec::new();
        for node_dials in [false, true] {
            let (mut here, mut there) = duplex(1 << 20);
            let node = async {
                let _ = match node_dials {
                    true => dial(&mut here, &identity("b1"), "a1", [1; 16]).await.map(|_| ()),
                    false => accept(
                        &mut here,
                        &identity("b1"),
                        [1; 16],
                        |_| Ok(()),
                        |_, _| None,
                        &mut None,
                    )
                    .await
                    .map(|_| ()),
                };
                drop(here);
            };
            let other = async {
                if node_dials {
                    // The other side accepts, and proves nothing.
                    send(&mut there, &greeting([2; 16])).await.expect("there is room");
                    let mac = Bytes::from_static(&[0; 32]);
                    send(&mut there, &Proof { mac, refused: None })
                        .await
                        .expect("there is room");
                } else {
                    there.write_all(MAGIC).await.expect("there is room");
                    send(&mut there, &greeting([2; 16])).await.expect("there is room");
                    let (dialer, acceptor) = (greeting([2; 16]), greeting([1; 16]));
                    let me = &stranger;
                    let talk = Talk { me, dialer, acceptor };
                    send(&mut there, &talk.prove("dialer"))
                        .await
                        .expect("there is room");
                    let _ = send(&mut there, &talk.hello("dialer", "b1", None)).await;
                }
                let _ = there.read_to_end(&mut heard).await;
            };
            tokio::join!(node, other);
        }
        heard
    });
    let heard = String::from_utf8_lossy(&heard);
    for name in ["shop", "sites", "a1", "b1", "carts"] {
        assert!(!heard.contains(name), "it heard of '{name}': {heard:?}");
    }
    assert!(heard.contains("the cluster's secret"), "{heard:?}");
}

#[test]
fn what_the_other_side_says_is_bounded_and_on_one_line() {
    let bad = "bank\n2026-01-01 ERROR all is lost\u{1b}[2J\u{202e}";
    let cluster = Identity {
        cluster: bad.repeat(1_000),
        ..identity("a1")
    };
    let (dialled, accepted, _) = shake(&cluster, "b1", &identity("b1"));
    for error in [dialled.unwrap_err(), accepted.map(|_| ()).unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("found 'bank\\u{a}2026"), "{text}");
        assert!(
            text.chars().all(|one| !one.is_control() && one != '\u{202e}'),
            "{text:?}"
        );
        assert!(text.len() < 4_000, "{} bytes", text.len());
    }
}

#[test]
fn what_was_said_once_does_not_open_the_door_again() {
    let (dialled, accepted, said) = shake(&identity("a1"), "b1", &identity("b1"));
    assert!(dialled.is_ok() && accepted.is_ok());
    // The same bytes again, but the acceptor has another nonce by now.
    says(
        accept_bytes(&identity("b1"), [3; 16], &said),
        "the cluster's secret",
    );
    // With the same nonce they would pass. So a nonce must never be used twice.
    assert!(accept_bytes(&identity("b1"), [2; 16], &said).is_ok());
}

#[test]
fn noise_and_what_is_cut_short_or_too_long_is_refused() {
    let (_, _, said) = shake(&identity("a1"), "b1", &identity("b1"));
    let b = identity("b1");
    for end in 0..said.len() {
        assert!(
            accept_bytes(&b, [2; 16], &said[..end]).is_err(),
            "cut after {end} bytes"
        );
    }
    for place in 0..said.len() {
        let mut damaged = said.clone();
        damaged[place] ^= 0x41;
        assert!(accept_bytes(&b, [2; 16], &damaged).is_err(), "damaged at {place}");
    }
    says(
        accept_bytes(&b, [2; 16], b"GET / HTTP/1.1"),
        "a node of a Turnbuckle cluster",
    );
    let long = [MAGIC.to_vec(), u32::MAX.to_be_bytes().to_vec()].concat();
    says(accept_bytes(&b, [2; 16], &long), "found 4294967295 bytes");
}

#[test]
fn a_silent_stranger_is_not_waited_for() {
    let ended = block_on(async {
        let (_stranger, mut there) = duplex(64);
        accept(
            &mut there,
            &identity("b1"),
            [2; 16],
            |_| Ok(()),
            |_, _| None,
            &mut None,
        )
        .await
    });
    says(ended, "longer than 5 s");
}
