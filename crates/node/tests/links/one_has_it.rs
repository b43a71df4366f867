//! A link between a node that has a keyspace and one that does not. No frame of the keyspace is sent, every frame of it that comes is
//! refused, and a refusal names the keyspace. Once both nodes have the keyspace, nothing is missing.
use crate::machine::{KEYSPACE, Machine, at, link, link_without, server};
use bytes::Bytes;
use turnbuckle_causal::{CausalSpartanX, eventual::Eventual, stable};
use turnbuckle_core::{Hlc, Key, Level, Outcome, PlainRequest, PlainResponse, Protocol, Vector};

/// A key of partition 0.
const KEY: &str = "last";

fn get() -> PlainRequest {
    PlainRequest::Get(Key::from(KEY), Level::Eventual)
}

fn put(value: &'static str) -> PlainRequest {
    let value = Some(Bytes::from_static(value.as_bytes()));
    PlainRequest::Put(Key::from(KEY), value, Level::Eventual, None)
}

fn is_refused_by_name<P: Protocol<Config: Default>>(machine: &Machine<P>) {
    let Outcome::Refused(why) = machine.answer() else {
        panic!("it is refused, and at once");
    };
    assert!(
        why.contains(&format!("does not have the keyspace '{KEYSPACE}'")),
        "{why}"
    );
}

#[test]
fn a_request_for_a_partition_of_a_node_without_the_keyspace_is_refused_by_name() {
    let (mut asker, mut holder) = (Machine::<Eventual>::new(3), Machine::new(0));
    link_without(at(1), &asker, &holder);
    asker.ask(at(2), server(0, 0), get());
    is_refused_by_name(&asker);
    assert!(asker.keyspace.is_lacked());
    link(at(3), &asker, &holder, false);
    assert!(
        !asker.keyspace.is_lacked(),
        "nothing is known of a node without a link"
    );
    // By now the holder has the keyspace.
    link(at(4), &asker, &holder, true);
    holder.ask(at(5), server(0, 0), put("v"));
    holder.answer();
    asker.ask(at(6), server(0, 0), get());
    asker.carry(at(7), &holder);
    holder.carry(at(8), &asker);
    let answer = asker.answer();
    assert!(matches!(&answer, Outcome::Answered(PlainResponse::Value(Some(value)), _) if value == "v"));
}

#[test]
fn a_snapshot_of_keys_of_a_node_without_the_keyspace_is_refused_at_once() {
    let (mut asker, holder) = (Machine::<CausalSpartanX>::new(3), Machine::new(0));
    link_without(at(1), &asker, &holder);
    let rotx = stable::Rotx {
        seen: Hlc::ZERO,
        keys: [KEY, "in another"].map(Key::from).into(),
        stable: Vector::ZERO,
        past: Vector::ZERO,
        need: Vector::ZERO,
        view: turnbuckle_causal::View::Visible,
    };
    asker.ask(at(2), server(0, 1), stable::Request::Rotx(rotx));
    is_refused_by_name(&asker);
}

#[test]
fn nothing_of_a_keyspace_goes_to_a_site_that_lacks_it_until_it_has_it() {
    let (mut a, mut b) = (Machine::<Eventual>::new(0), Machine::new(1));
    link_without(at(1), &a, &b);
    b.ask(at(2), server(1, 0), put("v"));
    b.answer();
    assert_eq!(b.frames(a.id), Vec::<Bytes>::new());
    let state = |machine: &Machine<Eventual>| {
        let streams = machine.node.status(at(3)).remove(0).streams;
        let stream = streams.into_iter().find(|stream| stream.partition == 0);
        stream.map(|stream| stream.state)
    };
    assert_eq!(state(&b), Some("left-out"));
    // The other nodes of the cluster have the keyspace.
    let c = Machine::<Eventual>::new(2);
    link(at(4), &b, &c, true);
    let frames = c.frames(b.id);
    assert!(!frames.is_empty());
    for frame in frames {
        let error = b.hear(at(5), a.id, frame).expect_err("it was not agreed on");
        assert!(error.to_string().contains(&format!("'{KEYSPACE}'")), "{error}");
    }
    link(at(6), &a, &b, false);
    link(at(7), &a, &b, true);
    for ms in 8..20 {
        a.carry(at(ms), &b);
        b.carry(at(ms), &a);
    }
    a.ask(at(21), server(0, 0), get());
    let answer = a.answer();
    assert!(matches!(&answer, Outcome::Answered(PlainResponse::Value(Some(value)), _) if value == "v"));
    assert_eq!(state(&b), Some("streaming"));
}
