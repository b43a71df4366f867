//! Puts with options, and what their answers say.
use super::*;
use turnbuckle_core::{Condition, PutOptions, Unmet};

fn put_if(condition: Condition, value: &str) -> Operation {
    put("x", value).with(PutOptions {
        condition: Some(condition),
        ..PutOptions::default()
    })
}

fn unmet(value: Option<&str>) -> Answer {
    Answer::Unmet(Box::new(Unmet {
        has_value: true,
        value: value.and_then(some),
    }))
}

/// Key x is 1, then 2, as client 0 has seen at a.
fn written_twice() -> Court {
    let mut court = Court::new(false);
    court.puts(9, 0, "x", "1", version(1, 0));
    court.puts(9, 0, "x", "2", version(2, 0));
    court.gets(0, 0, "x", Some("2"), Some(version(2, 0)));
    court
}

#[test]
fn a_put_whose_condition_did_not_hold_is_a_read_of_what_it_was_told() {
    for (value, seen, broken) in [
        (Some("2"), 2, vec![]),
        (None, 2, vec![]),
        (Some("1"), 1, vec![Rule::NothingUndone]),
        (None, 1, vec![Rule::NothingUndone]),
        (Some("nobody's"), 3, vec![Rule::RealValues]),
    ] {
        let mut court = written_twice();
        let id = court.ask(0, 0, put_if(Condition::Absent, "3"));
        court.tell(id, unmet(value), Some(version(seen, 0)), None);
        assert_eq!(court.broken(), broken, "{value:?} {seen}");
    }
}

#[test]
fn what_a_put_would_have_written_whose_condition_did_not_hold_is_not_read() {
    let mut court = written_twice();
    let id = court.ask(0, 0, put_if(Condition::Absent, "3"));
    court.tell(id, unmet(None), Some(version(2, 0)), None);
    court.gets(1, 0, "x", Some("3"), Some(version(3, 0)));
    assert_eq!(court.broken(), [Rule::RealValues]);
}

#[test]
fn an_answer_does_not_contradict_the_condition() {
    let written = |existed| Answer::Written { existed };
    for (condition, answer, seen) in [
        (Condition::Absent, written(true), 3),
        (Condition::Present, written(false), 3),
        (Condition::Present, unmet(None), 2),
        (Condition::Version(version(2, 0).id), unmet(None), 2),
    ] {
        let mut court = written_twice();
        let id = court.ask(0, 0, put_if(condition, "3"));
        court.tell(id, answer.clone(), Some(version(seen, 0)), None);
        assert_eq!(court.broken(), [Rule::Conditions], "{condition} {answer:?}");
    }
    let mut court = written_twice();
    let id = court.ask(0, 0, put("x", "3"));
    court.tell(id, unmet(None), Some(version(2, 0)), None);
    assert_eq!(court.broken(), [Rule::Conditions], "there was no condition");
}

#[test]
fn the_value_before_is_read_and_the_put_is_acknowledged() {
    for (before, broken) in [
        (Some("2"), vec![]),
        (Some("1"), vec![Rule::NothingUndone]),
        (None, vec![Rule::NothingUndone]),
    ] {
        let mut court = written_twice();
        let id = court.ask(0, 0, put("x", "3"));
        let replaced = Answer::Replaced(before.and_then(some));
        court.tell(id, replaced, Some(version(3, 0)), None);
        assert_eq!(court.broken(), broken, "{before:?}");
        court.judge.ends_with("a", &Key::from("x"), Some(version(2, 0)));
        assert!(court.broken().contains(&Rule::NothingLost));
    }
}
