use super::*;

fn deletes(kept: Option<Said>) -> Deletes {
    open(kept.map(|said| Found {
        said,
        was_told: true,
        ..Found::default()
    }))
}

fn open(found: Option<Found>) -> Deletes {
    let topology = Topology::new(["a", "b", "c"], 1, 1);
    let mut recovered = Recovered::default();
    if let Some(found) = found {
        recovered.named.insert(NAME.into(), found.record());
    }
    Deletes::open(ServerId::default(), &topology, &recovered, Planted::default())
}

fn said(shown: u64, forgotten: u64) -> Said {
    Said {
        birth: 7,
        shown: Hlc(shown),
        forgotten: Hlc(forgotten),
        closed: Hlc::ZERO,
    }
}

#[test]
fn what_every_site_shows_is_the_least_that_any_shows_and_nothing_while_one_is_away() {
    let mut deletes = deletes(Some(said(30, 5)));
    deletes.hear(ReplicaId(1), said(20, 0));
    assert_eq!(deletes.shown_everywhere(), Hlc::ZERO, "one was never heard");
    deletes.hear(ReplicaId(2), said(40, 0));
    assert_eq!(deletes.shown_everywhere(), Hlc(20));
    deletes.hear(ReplicaId(1), said(50, 0));
    assert_eq!(deletes.shown_everywhere(), Hlc(30), "this one shows no more");
    deletes.hear(ReplicaId(1), said(10, 0));
    assert_eq!(deletes.shown_everywhere(), Hlc(10), "it lost its directory");
    deletes.left(ReplicaId(2));
    assert_eq!(deletes.shown_everywhere(), Hlc::ZERO);
    assert_eq!(deletes.shown_by_all(), Hlc(5), "what is forgotten is forgotten");
}

/// A change of the expiry of what was deleted may be on its way from the other site.
#[test]
fn what_one_site_says_of_another_one_is_told_on_and_nothing_is_forgotten_by_that() {
    let mut deletes = deletes(Some(said(30, 5)));
    deletes.hear(ReplicaId(1), said(20, 15));
    deletes.may_forget(Hlc(30));
    deletes.said_in(1, 1);
    deletes.said_in(2, 2);
    assert_eq!(deletes.said_in(3, 3).forgotten, Hlc(15), "it is told on");
    assert_eq!(deletes.forgotten(), Hlc::ZERO, "the third site was not heard");
    deletes.hear(ReplicaId(2), said(17, 0));
    deletes.may_forget(Hlc(30));
    deletes.said_in(4, 4);
    deletes.said_in(5, 5);
    assert_eq!(deletes.forgotten(), Hlc(17));
    deletes.left(ReplicaId(2));
    deletes.may_forget(Hlc(30));
    assert_eq!(deletes.forgotten(), Hlc(17), "it has heard it");
}

#[test]
fn nothing_is_said_before_it_is_on_disk() {
    let mut deletes = deletes(None);
    deletes.written = said(9, 4);
    assert_eq!(deletes.said_in(20, 20), Said::default());
    assert_eq!(deletes.said_in(21, 20), Said::default());
    assert_eq!(deletes.said_in(22, 21), said(9, 4));
}

#[test]
fn an_old_directory_serves_nothing_and_an_empty_one_catches_up() {
    let mut old = deletes(Some(said(30, 5)));
    assert!(!old.hear(ReplicaId(1), said(90, 30)) && old.refusal().is_none());
    assert!(old.hear(ReplicaId(1), said(90, 31)) && old.refusal().is_some());
    let mut empty = deletes(None);
    assert!(empty.hear(ReplicaId(1), said(90, 31)) && empty.refusal().is_none());
    assert!(!empty.has_caught_up(Hlc(40)), "one site was never heard");
    empty.hear(ReplicaId(2), said(90, 33));
    assert!(!empty.has_caught_up(Hlc(32)) && empty.has_caught_up(Hlc(33)));
}

#[test]
fn what_others_have_forgotten_is_known_also_after_a_restart_while_the_directory_is_filled() {
    let deletes = open(Some(Found {
        said: said(0, 31),
        vouched: BTreeMap::from([(ReplicaId(1), 8)]),
        ..Found::default()
    }));
    assert!(deletes.is_filling && deletes.forgotten() == Hlc::ZERO);
    let word = deletes.word();
    assert_eq!((word.until, word.directories[&ReplicaId(1)]), (Some(Hlc(31)), 8));
}

#[test]
fn a_copy_of_a_directory_that_was_being_filled_is_told_by_the_directory_s_birth() {
    let word = |mine| Forgotten {
        until: Some(Hlc(90)),
        directories: BTreeMap::from([(ReplicaId(0), mine), (ReplicaId(1), 3)]),
        met: BTreeMap::new(),
    };
    let mut lost = deletes(Some(said(0, 0)));
    assert_eq!(lost.word().until, None);
    assert!(lost.hear_word(ReplicaId(1), &word(6)) && lost.refusal().is_none());
    let mut copy = deletes(Some(said(0, 0)));
    assert!(copy.hear_word(ReplicaId(1), &word(7)) && copy.refusal().is_some());
    assert_eq!(lost.word().until, Some(Hlc(90)));
}

#[test]
fn a_birth_is_said_only_by_who_promises() {
    let mut empty = deletes(Some(said(0, 0)));
    assert_eq!(empty.said_in(1, 0).birth, 0);
    assert!(
        empty.word().directories.is_empty(),
        "peers may still give something back"
    );
    assert_eq!(empty.said_in(2, 1).birth, 7);
    assert_eq!(empty.word().directories[&ReplicaId(0)], 7);
    assert!(
        std::mem::take(&mut empty.is_unwritten),
        "a restart says it at once"
    );
    let restarted = open(Some(Found {
        said: said(0, 0),
        was_said: true,
        ..Found::default()
    }));
    assert_eq!(restarted.word().directories[&ReplicaId(0)], 7);
}

fn knows(birth: u64) -> Forgotten {
    Forgotten {
        met: BTreeMap::from([(ReplicaId(0), birth)]),
        ..Forgotten::default()
    }
}

#[test]
fn a_directory_is_refused_when_a_later_one_was_met() {
    for kept in [said(30, 5), said(0, 0)] {
        let mut last = deletes(Some(kept));
        for birth in [0, 6, 7] {
            last.hear_word(ReplicaId(1), &knows(birth));
            assert!(last.refusal().is_none(), "{birth}");
        }
        last.hear_word(ReplicaId(2), &knows(8));
        assert!(last.refusal().is_some());
    }
}

#[test]
fn a_directory_that_nobody_was_heard_from_takes_a_birth_after_all_others() {
    let mut young = deletes(None);
    young.begin(5);
    young.hear_word(ReplicaId(1), &knows(5));
    assert_eq!(young.directory, Some(6), "another directory of the same time");
    assert!(young.word().directories.is_empty(), "it is not on disk");
    assert_eq!([young.said_in(1, 0).birth, young.said_in(3, 2).birth], [0, 6]);
    young.hear_word(ReplicaId(2), &knows(6));
    assert_eq!(young.directory, Some(6), "its own");
    young.hear_word(ReplicaId(2), &knows(9));
    assert_eq!((young.directory, young.refusal()), (Some(10), None));
    assert_eq!(young.word().directories[&ReplicaId(0)], 6, "it is not on disk");
    let mut restarted = open(Some(Found {
        said: said(0, 0),
        ..Found::default()
    }));
    restarted.hear_word(ReplicaId(1), &knows(8));
    assert_eq!((restarted.directory, restarted.refusal()), (Some(9), None));
}

#[test]
fn births_are_written_down_and_told_on() {
    let mut deletes = deletes(Some(said(30, 5)));
    deletes.hear(ReplicaId(1), Said::default());
    assert!(!deletes.is_unwritten, "nothing is on its disk yet");
    deletes.hear(ReplicaId(1), said(0, 0));
    assert!(std::mem::take(&mut deletes.is_unwritten));
    deletes.hear(ReplicaId(1), said(9, 0));
    assert!(!deletes.is_unwritten);
    let hearsay = Forgotten {
        met: BTreeMap::from([(ReplicaId(0), 3), (ReplicaId(1), 6), (ReplicaId(2), 8)]),
        ..Forgotten::default()
    };
    deletes.hear_word(ReplicaId(1), &hearsay);
    assert!(deletes.is_unwritten);
    assert_eq!(
        deletes.word().met,
        BTreeMap::from([(ReplicaId(1), 7), (ReplicaId(2), 8)])
    );
}
