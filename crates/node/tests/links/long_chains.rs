//! Between sites: all versions of a hot key reach a peer, however many there are, in frames that the peer accepts.
use crate::machine::{Machine, at, link, server};
use bytes::Bytes;
use turnbuckle_causal::{
    CausalSpartanX,
    stable::{Put, Request, Work},
};
use turnbuckle_core::{Chain, Hlc, Key, Vector, Versions};

/// The most bytes of a chain that are sent at once, and one more version.
const MAX_BYTES: usize = (1 << 20) + (200 << 10);

const HOT: &str = "{last}hot";

fn put(key: &str, value: Vec<u8>) -> Request {
    Request::Put(Put {
        seen: Hlc::ZERO,
        work: Work::One(Key::from(key), Some(value.into()).into()),
        past: Vector::ZERO,
        stable: Vector::ZERO,
        moved: false,
        eventual: false,
    })
}

fn chain(machine: &Machine<CausalSpartanX>, site: u16, key: &str) -> Option<Chain<Vector>> {
    let look = |store: &turnbuckle_store::Store<Vector>| store.chain(key.as_bytes()).cloned();
    machine
        .keyspace
        .inspect(server(site, 0), |_, store| look(store))
        .flatten()
}

/// Carries frames both ways until neither node has more. Returns the length of the largest frame.
fn talk(a: &Machine<CausalSpartanX>, b: &Machine<CausalSpartanX>, ms: u64) -> usize {
    let turns = (0..40).map(|turn| a.carry(at(ms + turn), b).max(b.carry(at(ms + turn), a)));
    turns.max().unwrap_or(0)
}

/// Site c is away, so nothing is stable, and every version may still be asked for. Other keys of the same partition are around it.
fn write_a_hot_key(a: &mut Machine<CausalSpartanX>, versions: u8) {
    for number in 0..versions {
        a.ask(at(10), server(0, 0), put(HOT, vec![number; 150 << 10]));
        a.ask(
            at(10),
            server(0, 0),
            put(&format!("{{last}}{number}"), vec![number; 10]),
        );
    }
}

#[test]
fn a_full_copy_brings_a_chain_that_is_longer_than_a_frame() {
    let (mut a, b) = (Machine::new(0), Machine::new(1));
    link(at(1), &a, &b, true);
    a.ask(at(2), server(0, 0), put(HOT, b"first".to_vec()));
    talk(&a, &b, 3);
    assert_eq!(chain(&b, 1, HOT).map(|chain| chain.len()), Some(1));
    link(at(9), &a, &b, false);
    write_a_hot_key(&mut a, 40);
    for ms in 11..14 {
        a.node.checkpoint_now().run(|| at(ms)).expect("the disks work");
    }
    link(at(20), &a, &b, true);
    let largest = talk(&a, &b, 21);
    assert_eq!(b.node.copies_placed(), 1, "the log does not reach back so far");
    assert!(largest <= MAX_BYTES, "a frame of {largest} bytes");
    let versions = chain(&b, 1, HOT);
    assert_eq!(versions.as_ref().map(Chain::len), Some(41));
    assert!(versions == chain(&a, 0, HOT));
    for number in 0..40 {
        let key = format!("{{last}}{number}");
        assert_eq!(chain(&b, 1, &key), chain(&a, 0, &key), "{key}");
    }
}

#[test]
fn a_chain_that_is_longer_than_a_frame_is_given_back() {
    let (mut a, b) = (Machine::new(0), Machine::new(1));
    link(at(1), &a, &b, true);
    write_a_hot_key(&mut a, 40);
    talk(&a, &b, 20);
    let before = chain(&b, 1, HOT);
    assert_eq!(before.as_ref().map(Chain::len), Some(40));
    // Site a loses its directory.
    link(at(70), &a, &b, false);
    let a = Machine::new(0);
    link(at(71), &a, &b, true);
    let largest = talk(&a, &b, 72);
    assert!(largest <= MAX_BYTES, "a frame of {largest} bytes");
    assert!(chain(&a, 0, HOT) == before);
}

#[test]
fn a_value_as_large_as_any_configuration_allows_reaches_the_other_sites() {
    let (mut a, b) = (Machine::new(0), Machine::new(1));
    link(at(1), &a, &b, true);
    let value = Bytes::from(vec![7; 64 << 20]);
    a.ask(at(2), server(0, 0), put(HOT, value.to_vec()));
    let largest = talk(&a, &b, 3);
    assert!(
        largest <= turnbuckle_node::MAX_FRAME_BYTES,
        "a frame of {largest} bytes"
    );
    assert_eq!(chain(&b, 1, HOT).map(|chain| chain.len()), Some(1));
}
