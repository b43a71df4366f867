use super::*;
use crate::{CopyBeginFrame, EntriesFrame, MarkFrame};
use bytes::Bytes;
use turnbuckle_core::Topology;

const B: ReplicaId = ReplicaId(1);
const C: ReplicaId = ReplicaId(2);

type Streams = Incoming<Bytes, Bytes>;

fn at(incarnation: u64, number: u64) -> StreamPosition {
    StreamPosition { incarnation, number }
}

fn streams() -> Streams {
    Incoming::new([B, C].into_iter(), &BTreeMap::new(), 1 << 20, &Arc::default())
}

fn entries(previous: u64, last: u64) -> EntriesFrame {
    EntriesFrame {
        incarnation: 1,
        previous,
        last,
        entries: (previous..last).map(|_| Bytes::from_static(b"entry")).collect(),
        numbers: Vec::new(),
    }
}

fn arrive(streams: &mut Streams, frame: EntriesFrame) -> Result<(), BadFrame> {
    streams.stream_of(B)?.arrive(frame, Ok)
}

fn take_all(streams: &mut Streams) -> usize {
    std::iter::from_fn(|| streams.pop(B)).count()
}

fn copy_of(from: ReplicaId) -> CopyIn {
    let frame = CopyBeginFrame {
        resume: at(1, 7).into(),
        cut: Vec::new(),
        received: Vec::new(),
        is_partial: false,
        held: Vec::new(),
        answers: 0,
        applied_index: 0,
        applied_term: 0,
    };
    CopyIn::parse(from, &frame, &Topology::new(["a", "b", "c"], 1, 1)).expect("it is in order")
}

#[test]
fn the_position_goes_with_what_is_taken_out_and_the_log_is_told_once() {
    let mut streams = streams();
    streams.resume(B).expect("it is a peer");
    arrive(&mut streams, entries(0, 3)).expect("they continue");
    assert!(streams.take_moved().is_empty(), "nothing is handed on yet");
    streams.pop(B);
    assert_eq!(streams.take_moved(), [(B, at(1, 1))]);
    take_all(&mut streams);
    assert_eq!(streams.take_moved(), [(B, at(1, 3))]);
    assert!(streams.take_moved().is_empty());
}

/// While entries are under way, the source is told to go on at an earlier place: an entry that waits cannot be used.
#[test]
fn what_was_under_way_when_the_source_was_told_to_go_on_elsewhere_is_skipped() {
    let mut streams = streams();
    streams.resume(B).expect("it is a peer");
    arrive(&mut streams, entries(0, 2)).expect("they continue");
    assert_eq!(take_all(&mut streams), 2 + 1);
    arrive(&mut streams, entries(2, 5)).expect("they continue");
    for _ in 0..2 {
        let word = streams.resume(B).expect("it is a peer");
        assert_eq!(word.at, at(1, 2));
        let mark = MarkFrame {
            incarnation: 1,
            after: 6,
            body: Bytes::new(),
        };
        arrive(&mut streams, entries(5, 6)).expect("it is left over");
        let stream = streams.stream_of(B).expect("it is a peer");
        stream.arrive_mark(&mark, Bytes::new()).expect("it is left over");
        assert_eq!(take_all(&mut streams), 0);
    }
    arrive(&mut streams, entries(2, 4)).expect("they continue there");
    assert!(
        arrive(&mut streams, entries(5, 6)).is_err(),
        "nothing is left over now"
    );
    assert_eq!(take_all(&mut streams), 2 + 1);
    // On a new link nothing is left over.
    arrive(&mut streams, entries(4, 5)).expect("they continue");
    streams.silence(B);
    streams.resume(B).expect("it is a peer");
    assert!(arrive(&mut streams, entries(5, 6)).is_err());
}

#[test]
fn entries_that_do_not_continue_are_refused_and_nothing_of_them_is_taken() {
    let mut streams = streams();
    streams.resume(B).expect("it is a peer");
    arrive(&mut streams, entries(0, 2)).expect("they continue");
    assert!(arrive(&mut streams, entries(1, 3)).is_err(), "2 has arrived");
    assert!(arrive(&mut streams, entries(3, 4)).is_err(), "3 has not");
    let bad = |_: Bytes| Err(BadFrame::new("an entry", "another"));
    let stream = streams.stream_of(B).expect("it is a peer");
    assert!(stream.arrive(entries(2, 4), bad).is_err());
    let skipping = EntriesFrame {
        numbers: vec![4, 3],
        last: 5,
        ..entries(2, 4)
    };
    assert!(arrive(&mut streams, skipping).is_err(), "numbers rise");
    assert_eq!(take_all(&mut streams), 2 + 1, "two entries, and where they end");
}

#[test]
fn what_has_not_been_handed_on_when_a_stream_resumes_comes_again() {
    let mut streams = streams();
    streams.resume(B).expect("it is a peer");
    arrive(&mut streams, entries(0, 3)).expect("they continue");
    streams.pop(B);
    let word = streams.resume(B).expect("it is a peer");
    assert_eq!((word.at, word.number), (at(1, 1), 2));
    assert_eq!(take_all(&mut streams), 0);
    arrive(&mut streams, entries(1, 3)).expect("they continue behind what was handed on");
}

#[test]
fn a_second_copy_waits_for_the_first_and_a_broken_link_takes_what_is_not_whole() {
    let mut streams = streams();
    for peer in [B, C] {
        streams.resume(peer).expect("it is a peer");
    }
    assert!(streams.begin_copy(copy_of(B)));
    assert!(!streams.begin_copy(copy_of(C)));
    assert!(!streams.is_streaming(B) && !streams.is_streaming(C), "both wait");
    assert!(!streams.silence(C), "it has none under way");
    assert!(streams.silence(B));
    assert!(streams.begin_copy(copy_of(C)));
    streams.set_copy_state(C, CopyState::Whole);
    assert!(!streams.silence(C), "it is put in place all the same");
    assert!(
        !streams.begin_copy(copy_of(C)),
        "also before another one of the same peer"
    );
    let copy = streams.copy().cloned().expect("it is still there");
    streams.copied(&copy);
    assert_eq!(streams.take_moved(), [(C, at(1, 7))]);
}

#[test]
fn a_copy_that_is_wanted_is_asked_for_until_one_that_began_later_is_in_place() {
    let mut streams = streams();
    streams.want_copy(B);
    assert!(streams.begin_copy(copy_of(B)));
    assert!(!streams.wants_copy(B));
    streams.silence(B);
    assert!(streams.wants_copy(B), "the link broke");
    assert!(streams.begin_copy(copy_of(B)));
    streams.want_copy(B);
    let copy = streams.copy().cloned().expect("it has begun");
    streams.copied(&copy);
    assert!(streams.wants_copy(B), "it was asked for anew while one arrived");
    let mut partial = copy_of(B);
    partial.is_partial = true;
    assert!(streams.begin_copy(partial.clone()));
    streams.copied(&partial);
    assert!(streams.wants_copy(B), "it lacked rows");
    assert!(streams.begin_copy(copy_of(B)));
    streams.copied(&copy_of(B));
    assert!(!streams.wants_copy(B));
}

#[test]
fn a_source_is_told_what_copies_of_others_brought_beyond_its_stream() {
    let mut streams = streams();
    streams.hold([(B, at(1, 9))].into_iter());
    assert_eq!(streams.resume(B).expect("it is a peer").held, Some(at(1, 9)));
    let stream = streams.stream_of(B).expect("it is a peer");
    assert!(stream.rewind(at(0, 0)), "only that was taken back");
    assert!(!stream.rewind(at(1, 9)), "the stream itself was");
    assert_eq!(streams.resume(B).expect("it is a peer").held, None);
}

#[test]
fn the_first_mark_of_a_source_without_entries_says_that_it_is_there() {
    let mut streams = streams();
    streams.resume(B).expect("it is a peer");
    let mark = |after| MarkFrame {
        incarnation: 5,
        after,
        body: Bytes::new(),
    };
    let stream = streams.stream_of(B).expect("it is a peer");
    stream
        .arrive_mark(&mark(0), Bytes::new())
        .expect("nothing came before it");
    assert!(stream.arrive_mark(&mark(1), Bytes::new()).is_err());
    take_all(&mut streams);
    assert_eq!(streams.take_moved(), [(B, at(5, 0))]);
}
