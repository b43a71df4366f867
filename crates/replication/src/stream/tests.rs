use super::*;

const B: ReplicaId = ReplicaId(1);
const C: ReplicaId = ReplicaId(2);

fn entry(number: u64, to: &[ReplicaId]) -> Entry {
    let to = ReplicaSet(
        to.iter()
            .fold(0, |set, replica| set | ReplicaSet::one(*replica).0),
    );
    Entry {
        number,
        to,
        bytes: Bytes::from(vec![b'x'; 10]),
        weight: 10,
    }
}

fn source(entries: u64) -> Outgoing {
    let mut stream = Outgoing::new(StreamLimits::default(), [B, C].into_iter());
    stream.begin(1, Hlc(5));
    write(&mut stream, entries);
    stream
}

fn write(stream: &mut Outgoing, entries: u64) {
    for _ in 0..entries {
        let number = stream.assign();
        stream.note_position(number, Position(number * 1_000_000));
        stream.make_ready(Micros(number), vec![entry(number, &[B, C])]);
    }
}

fn at(incarnation: u64, number: u64) -> StreamPosition {
    StreamPosition { incarnation, number }
}

#[test]
fn entries_continue_where_the_receiver_is() {
    let mut stream = source(5);
    assert_eq!(stream.resume(B, at(1, 3), false), Resumption::Stream);
    let Step::Entries {
        incarnation: 1,
        previous: 3,
        last: 5,
        entries,
        ..
    } = stream.step(B)
    else {
        panic!("entries")
    };
    assert_eq!(entries.len(), 2);
    assert!(matches!(stream.step(B), Step::Idle));
    assert!(matches!(stream.step(C), Step::Idle), "c has not said where it is");
}

#[test]
fn a_mark_goes_behind_the_entries_before_it_and_in_front_of_those_after() {
    let mut stream = source(2);
    stream.resume(B, at(0, 0), false);
    stream.set_mark(ReplicaSet::one(B), &Bytes::from_static(b"old"));
    stream.set_mark(ReplicaSet::one(B), &Bytes::from_static(b"new"));
    write(&mut stream, 1);
    assert!(matches!(
        stream.step(B),
        Step::Entries {
            previous: 0,
            last: 2,
            ..
        }
    ));
    let Step::Mark { after: 2, body, .. } = stream.step(B) else {
        panic!("the mark")
    };
    assert_eq!(body, &b"new"[..], "only the newest mark is kept");
    assert!(matches!(
        stream.step(B),
        Step::Entries {
            previous: 2,
            last: 3,
            ..
        }
    ));
}

#[test]
fn a_mark_that_waits_for_entries_is_not_put_off_by_newer_ones() {
    let mut stream = source(2);
    stream.resume(B, at(0, 0), false);
    let mut marks = Vec::new();
    for number in 0..5_u8 {
        stream.set_mark(ReplicaSet::one(B), &Bytes::from(vec![number]));
        write(&mut stream, 2);
        // One frame is sent for each two entries that come in.
        if let Step::Mark { after, body, .. } = stream.step(B) {
            marks.push((body[0], after));
            stream.step(B);
        }
    }
    while let step @ (Step::Mark { .. } | Step::Entries { .. }) = stream.step(B) {
        if let Step::Mark { after, body, .. } = step {
            marks.push((body[0], after));
        }
    }
    assert_eq!(marks, [(0, 2), (1, 4), (2, 6), (3, 8), (4, 10)]);
}

#[test]
fn a_receiver_that_knows_more_than_the_source_gives_back_first() {
    let mut stream = source(10);
    // The source lost 8, 9 and 10.
    let mut reopened = Outgoing::new(StreamLimits::default(), [B, C].into_iter());
    reopened.restore(8, stream.incarnations().to_vec());
    reopened.begin(1, Hlc(70));
    write(&mut reopened, 4);
    let end = Some(at(1, 7));
    assert_eq!(
        reopened.resume(B, at(1, 10), false),
        Resumption::TakeBack { since: Hlc(70), end }
    );
    assert_eq!(reopened.resume(C, at(1, 7), false), Resumption::Stream);
    assert!(matches!(
        reopened.step(C),
        Step::Entries {
            incarnation: 2,
            previous: 7,
            last: 11,
            ..
        }
    ));
    // The old source does not know incarnation 2.
    assert_eq!(stream.resume(B, at(2, 9), false), Resumption::BeyondSource);
}

#[test]
fn a_source_whose_directory_was_lost_takes_everything_back() {
    let mut lost = Outgoing::new(StreamLimits::default(), [B, C].into_iter());
    lost.begin(2_000, Hlc(70));
    write(&mut lost, 200);
    // Positions of an earlier incarnation, with numbers that have been used again since.
    let end = Some(at(1_000, 0));
    assert_eq!(
        lost.resume(B, at(1_000, 100), false),
        Resumption::TakeBack {
            since: Hlc::ZERO,
            end
        }
    );
    assert_eq!(lost.resume(C, at(0, 0), false), Resumption::Stream);
    assert_eq!(
        lost.resume(B, at(3_000, 1), false),
        Resumption::BeyondSource,
        "clocks went back"
    );
}

#[test]
fn a_source_whose_directory_is_an_old_copy_does_not_know_what_a_peer_has_of_it() {
    let mut old = source(10);
    // In between its directory was lost, and another incarnation began at entry 1.
    old.begin(2_000, Hlc(70));
    let since = Hlc::ZERO;
    for at in [at(1_000, 3), at(1_000, 300)] {
        let taken = Resumption::TakeBack { since, end: None };
        assert_eq!(old.resume(B, at, false), taken);
    }
}

#[test]
fn a_frame_never_spans_two_incarnations() {
    let mut stream = source(3);
    stream.begin(1, Hlc(9));
    write(&mut stream, 3);
    stream.resume(B, at(1, 1), false);
    assert!(matches!(
        stream.step(B),
        Step::Entries {
            incarnation: 1,
            previous: 1,
            last: 3,
            ..
        }
    ));
    assert!(matches!(
        stream.step(B),
        Step::Entries {
            incarnation: 2,
            previous: 3,
            last: 6,
            ..
        }
    ));
}

/// A difference of a few bytes becomes a whole share at the receiver, which has to keep as many as are sent at once.
#[test]
fn an_entry_counts_in_frames_and_windows_as_what_it_becomes() {
    let limits = StreamLimits {
        window_bytes: 20_000,
        frame_bytes: 200,
        ..StreamLimits::default()
    };
    let mut stream = Outgoing::new(limits, [B].into_iter());
    stream.begin(1, Hlc(5));
    for _ in 0..100 {
        let number = stream.assign();
        let heavy = Entry {
            weight: 1_000,
            ..entry(number, &[B])
        };
        stream.make_ready(Micros(number), vec![heavy]);
    }
    stream.resume(B, at(1, 0), false);
    let mut sent = Vec::new();
    while let Step::Entries { entries, .. } = stream.step(B) {
        sent.push(entries.len());
    }
    // 16 times the bytes of a frame.
    assert!(sent.iter().all(|&entries| entries == 4), "{sent:?}");
    assert!((4..=6).contains(&sent.len()), "{sent:?}");
}

#[test]
fn a_peer_is_not_sent_more_than_the_window() {
    let limits = StreamLimits {
        tail_bytes: 1 << 20,
        window_bytes: 100,
        frame_bytes: 30,
    };
    let mut stream = Outgoing::new(limits, [B].into_iter());
    stream.begin(1, Hlc(1));
    write(&mut stream, 50);
    stream.resume(B, at(0, 0), false);
    let mut last = 0;
    while let Step::Entries { last: sent, .. } = stream.step(B) {
        last = sent;
    }
    assert!(last < 10, "{last} entries of 10 bytes in a window of 100");
    stream.acknowledge(B, last);
    assert!(matches!(stream.step(B), Step::Entries { .. }));
}

#[test]
fn a_peer_behind_the_tail_is_fed_from_the_log_and_behind_the_log_copied() {
    let limits = StreamLimits {
        tail_bytes: 35,
        ..StreamLimits::default()
    };
    let mut stream = Outgoing::new(limits, [B].into_iter());
    stream.begin(1, Hlc(1));
    write(&mut stream, 10);
    stream.resume(B, at(1, 2), false);
    assert!(matches!(
        stream.step(B),
        Step::ReadLog {
            after: 2,
            from: Position(3_000_000)
        }
    ));
    let read: Vec<_> = (3..=5).map(|number| entry(number, &[B])).collect();
    let frame = stream.step_from_log(B, &read, Position(6_000_000));
    assert!(matches!(
        frame,
        Step::Entries {
            previous: 2,
            last: 5,
            ..
        }
    ));
    assert!(matches!(
        stream.step(B),
        Step::ReadLog {
            after: 5,
            from: Position(6_000_000)
        }
    ));
    stream.purged(Position(6_500_000));
    assert_eq!(stream.resume(B, at(1, 4), false), Resumption::Copy);
    assert_eq!(stream.resume(B, at(1, 6), false), Resumption::Stream);
}

#[test]
fn what_is_replayed_is_found_in_the_log_also_when_what_the_checkpoint_remembered_is_purged() {
    let mut stream = Outgoing::new(StreamLimits::default(), [B].into_iter());
    let life = Incarnation {
        number: 1,
        start: 1,
        clock: Hlc(1),
    };
    stream.restore(36, vec![life]);
    stream.restore_index([(1, Position(300))].into_iter());
    for number in 36..40 {
        let position = Position(number * 500);
        stream
            .replay(entry(number, &[B]), position)
            .expect("it is the next");
    }
    stream.purged(Position(17_000));
    stream.begin(2, Hlc(2));
    let index: Vec<_> = stream.index().collect();
    assert_eq!(index, [(36, Position(18_000))]);
    // A receiver that needs only what is in the log needs no copy.
    assert_eq!(stream.resume(B, at(1, 35), false), Resumption::Stream);
    assert_eq!(stream.resume(B, at(1, 34), false), Resumption::Copy);
}

#[test]
fn entries_for_other_sites_are_skipped_but_counted() {
    let mut stream = Outgoing::new(StreamLimits::default(), [B, C].into_iter());
    stream.begin(1, Hlc(1));
    for to in [&[B][..], &[C], &[B, C]] {
        let number = stream.assign();
        stream.make_ready(Micros(0), vec![entry(number, to)]);
    }
    stream.resume(C, at(0, 0), false);
    let Step::Entries {
        last: 3,
        entries,
        numbers,
        ..
    } = stream.step(C)
    else {
        panic!("entries")
    };
    assert_eq!((entries.len(), &numbers[..]), (2, &[2, 3][..]));
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_changes_nothing() {
    let mut stream = source(3);
    stream.resume(B, at(0, 0), false);
    stream.acknowledge(B, 3);
    assert_eq!(stream.cursors().next().map(|(_, cursor)| cursor.acked), Some(0));
}

#[test]
fn the_log_is_kept_for_a_peer_that_is_sent_a_copy_as_for_one_that_is_away() {
    let mut stream = source(5);
    for replica in [B, C] {
        stream.resume(replica, at(1, 5), false);
        stream.acknowledge(replica, 5);
    }
    assert_eq!((stream.needed(false), stream.needed(true)), (None, None));
    stream.copy(B, 2, 4);
    assert_eq!(
        (stream.needed(false), stream.needed(true)),
        (Some(Position(5_000_000)), Some(Position(3_000_000))),
        "what follows the copy in any case, and up to a limit what a damaged row can be had from"
    );
}
