//! A frame that names a site that the cluster does not have, or that brings a version in the stream of a site that did not write it, is
//! refused as a whole: the driver breaks the link, nothing of the frame is stored, and the node goes on.
use crate::machine::{Machine, at, link, server};
use bytes::Bytes;
use turnbuckle_causal::{
    CausalSpartanX,
    stable::{Get, Put, Request, Response, Work},
};
use turnbuckle_core::{Hlc, Key, Outcome, ReplicaId, Vector};

/// A key of partition 0.
const KEY: &str = "last";

fn get() -> Request {
    Request::Get(Get {
        seen: Hlc::ZERO,
        key: Key::from(KEY),
        stable: Vector::ZERO,
        need: Vector::ZERO,
        view: turnbuckle_causal::View::Newest,
    })
}

fn put(past: Vector) -> Request {
    Request::Put(Put {
        seen: Hlc::ZERO,
        work: Work::One(Key::from(KEY), Some(Bytes::from_static(b"value")).into()),
        past,
        stable: Vector::ZERO,
        moved: false,
        eventual: false,
    })
}

/// The fields of an entry that name the site of its version (its value follows), and the first site that it depends on.
const SITE: [u8; 5] = [0x18, 1, 0x22, 5, b'v'];
const DEPENDS: [u8; 5] = [0x2a, 11, 1, 0, 1];

/// The frame with `number` at index `place` of the first occurrence of `bytes`; `None` if they do not occur.
fn altered(frame: &Bytes, bytes: &[u8], place: usize, number: u8) -> Option<Bytes> {
    let found = frame.windows(bytes.len()).position(|window| window == bytes)?;
    let mut altered = frame.to_vec();
    altered[found + place] = number;
    Some(altered.into())
}

fn is_there(a: &mut Machine<CausalSpartanX>, ms: u64) -> bool {
    a.ask(at(ms), server(0, 0), get());
    match a.answer() {
        Outcome::Answered(Response::Value { value, .. }, _) => value.is_some(),
        _ => panic!("a value or none"),
    }
}

/// Site b has written a key. Every frame of b in which `bytes` occur is altered on its way to a. Returns how many frames a refused.
fn refused(bytes: &[u8], place: usize, number: u8, with_copy: bool) -> usize {
    let (mut a, mut b) = (Machine::<CausalSpartanX>::new(0), Machine::new(1));
    let past = [(ReplicaId(1), Hlc::from_wall(at(0).wall.earliest))]
        .into_iter()
        .collect();
    b.ask(at(1), server(1, 0), put(past));
    if with_copy {
        // Rows that the log does not have any more come as a full copy.
        for number in 0..40_u8 {
            let filler = Put {
                seen: Hlc::ZERO,
                work: Work::One(
                    Key::from(format!("{{last}}{number}").as_str()),
                    Some(vec![0; 20 << 10].into()).into(),
                ),
                past: Vector::ZERO,
                stable: Vector::ZERO,
                moved: false,
                eventual: false,
            };
            b.ask(at(1), server(1, 0), Request::Put(filler));
            b.node.checkpoint_now().run(|| at(2)).expect("the disks work");
        }
    }
    link(at(3), &a, &b, true);
    let mut refused = 0;
    'links: for ms in 4..24 {
        a.carry(at(ms), &b);
        for frame in b.frames(a.id) {
            let altered = altered(&frame, bytes, place, number);
            let heard = a.hear(at(ms), b.id, altered.clone().unwrap_or(frame));
            assert_eq!(heard.is_err(), altered.is_some(), "{heard:?}");
            if heard.is_err() {
                refused += 1;
                link(at(ms), &a, &b, false);
                break 'links;
            }
        }
        a.turn(at(ms));
    }
    a.turn(at(30));
    assert!(!is_there(&mut a, 31), "it was refused, and is there");
    a.node.checkpoint_now().run(|| at(32)).expect("the disks work");
    a.restart(at(40));
    assert!(
        !is_there(&mut a, 41),
        "it was refused, and is there after a restart"
    );
    // The key arrives as it was written.
    link(at(50), &a, &b, true);
    for ms in 51..91 {
        a.carry(at(ms), &b);
        b.carry(at(ms), &a);
    }
    assert!(is_there(&mut a, 92));
    assert_eq!(a.node.copies_placed() == 1, with_copy);
    refused
}

#[test]
fn an_entry_of_another_site_than_its_streams_is_refused() {
    // Site a itself, site c, and sites that no cluster of three sites has.
    for site in [0, 2, 3, 63, 64, 127] {
        assert_eq!(refused(&SITE, 1, site, false), 1, "site {site}");
    }
}

#[test]
fn an_entry_that_depends_on_a_site_that_is_none_is_refused() {
    for site in [3, 63, 64] {
        assert_eq!(refused(&DEPENDS, 4, site, false), 1, "site {site}");
    }
}

#[test]
fn a_row_of_a_full_copy_from_a_site_that_is_none_is_refused() {
    for site in [3, 63, 64] {
        assert_eq!(refused(&SITE, 1, site, true), 1, "site {site}");
    }
    assert_eq!(refused(&DEPENDS, 4, 3, true), 1);
}
