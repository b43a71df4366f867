//! Inside a site: whatever a client may write or read passes from the node that it is connected to, to the node that holds the partition,
//! and back. A frame that does not pass is refused with the reason.
use crate::machine::{Machine, at, link, server};
use bytes::Bytes;
use turnbuckle_causal::eventual::Eventual;
use turnbuckle_core::{Key, Level, Now, Outcome, PlainRequest, PlainResponse};

const MIB: usize = 1 << 20;

/// A key of partition 0.
fn key(number: usize) -> Key {
    Key::from(format!("{{last}}{number}").as_str())
}

fn get(key: Key) -> PlainRequest {
    PlainRequest::Get(key, Level::Eventual)
}

fn put(key: Key, value: Option<Bytes>) -> PlainRequest {
    PlainRequest::Put(key, value, Level::Eventual, None)
}

/// The node that a client is connected to, and the node that holds its keys.
fn two_of_a_site() -> (Machine<Eventual>, Machine<Eventual>, Now) {
    let (asker, holder, now) = (Machine::new(3), Machine::new(0), at(1));
    link(now, &asker, &holder, true);
    (asker, holder, now)
}

fn there_and_back(asker: &Machine<Eventual>, holder: &Machine<Eventual>, now: Now) {
    asker.carry(now, holder);
    holder.carry(now, asker);
}

fn values(asker: &Machine<Eventual>) -> (usize, Vec<String>) {
    let (mut found, mut refused) = (0, Vec::new());
    for (_, answer) in asker.answers() {
        match answer {
            turnbuckle_node::Delivered::Response(Outcome::Answered(PlainResponse::Value(Some(_)), _)) => {
                found += 1
            }
            turnbuckle_node::Delivered::Response(Outcome::Refused(why)) => refused.push(why),
            _ => panic!("a value, or a reason why there is none"),
        }
    }
    (found, refused)
}

#[test]
fn a_value_of_16_mib_is_written_and_read_through_another_node() {
    let (mut asker, holder, now) = two_of_a_site();
    let value = Bytes::from(vec![7; 16 * MIB]);
    asker.ask(now, server(0, 0), put(key(1), Some(value.clone())));
    there_and_back(&asker, &holder, now);
    let written = asker.answer();
    assert!(matches!(
        written,
        Outcome::Answered(PlainResponse::Written { .. }, _)
    ));
    asker.ask(now, server(0, 0), get(key(1)));
    there_and_back(&asker, &holder, now);
    let Outcome::Answered(PlainResponse::Value(Some(found)), _) = asker.answer() else {
        panic!("a value was expected");
    };
    assert!(found == value);
}

#[test]
fn answers_that_find_the_link_full_are_refused_at_once_and_writes_are_still_acknowledged() {
    const ASKED: usize = 40;
    let (mut asker, mut holder, now) = two_of_a_site();
    let value = Bytes::from(vec![7; MIB]);
    holder.ask(now, server(0, 0), put(key(1), Some(value)));
    let question = asker.frames(holder.id);
    assert!(question.is_empty(), "nobody has asked yet");
    for _ in 0..ASKED {
        asker.ask(now, server(0, 0), get(key(1)));
    }
    asker.carry(now, &holder);
    // The link takes no more answers. A write comes and is done, and its short answer still passes.
    asker.ask(now, server(0, 0), put(key(2), Some(Bytes::new())));
    asker.carry(now, &holder);
    let (answers, write) = (holder.frames(asker.id), 1);
    assert_eq!(answers.len(), ASKED + write, "everybody is answered");
    let (last, reads) = answers.split_last().expect("there are some");
    for answer in reads {
        asker.hear(now, holder.id, answer.clone()).expect("an answer");
    }
    let (found, refused) = values(&asker);
    assert!((15..=17).contains(&found), "{found} answers of 1 MiB found room");
    assert_eq!(found + refused.len(), ASKED);
    let expected =
        "the answer of the node that holds the partition cannot be sent: the link to the node is full";
    assert!(refused.iter().all(|why| why == expected), "{}", refused[0]);
    asker.hear(now, holder.id, last.clone()).expect("an answer");
    assert!(matches!(
        asker.answer(),
        Outcome::Answered(PlainResponse::Written { .. }, _)
    ));
    // Once the link has taken the frames that waited, there is room again.
    asker.ask(now, server(0, 0), get(key(1)));
    there_and_back(&asker, &holder, now);
    assert_eq!(values(&asker).0, 1);
}

#[test]
fn questions_that_find_the_link_full_are_refused_at_once() {
    let (mut asker, _, now) = two_of_a_site();
    let value = Bytes::from(vec![7; 9 * MIB]);
    for number in 0..3 {
        asker.ask(now, server(0, 0), put(key(number), Some(value.clone())));
    }
    let Outcome::Refused(why) = asker.answer() else {
        panic!("the third finds no room");
    };
    let expected =
        "the request cannot be sent to the node that holds the partition: the link to the node is full";
    assert_eq!(why, expected);
}

#[test]
fn a_node_that_asks_and_takes_no_answers_is_cut_off() {
    let (mut asker, holder, now) = two_of_a_site();
    asker.ask(now, server(0, 0), get(key(1)));
    let question = asker.frames(holder.id).pop().expect("a question");
    let mut answered = 0;
    let refused = loop {
        match holder.hear(now, asker.id, question.clone()) {
            Ok(()) => answered += 1,
            Err(refused) => break refused,
        }
        holder.node.commit(now).expect("the disk works");
        assert!(answered < 1_000_000, "it grows without bound");
    };
    assert!(answered > 100_000, "{answered}");
    assert_eq!(refused.expected, "a node that takes its answers");
}
