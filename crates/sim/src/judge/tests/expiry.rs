use super::*;
use turnbuckle_core::{Expiry, PutOptions, Retimes};

/// Values may expire, and honest clocks are right.
fn court() -> Court {
    let mut court = Court::new(false);
    court.judge = court.judge.with_expiry(true, Micros(0));
    court
}

/// A stamp of site 0 at a moment.
fn stamped(moment: Micros) -> Rank {
    Rank::of(VersionId {
        at: Hlc::from_wall(moment),
        replica: ReplicaId(0),
    })
}

impl Court {
    /// A client writes `1` at site 0, to be shown for `span`, and is told that it expires then or at `told`. Returns its version and when it expires.
    fn puts_for(&mut self, span: Micros, told: Option<Micros>) -> (Rank, Micros) {
        let options = PutOptions {
            expiry: Some(Expiry::After(span)),
            ..PutOptions::default()
        };
        let id = self.ask(0, 0, put("x", "1").with(options));
        let version = stamped(self.now);
        let until = told.unwrap_or(self.now + span);
        let written = Answer::Written { existed: false };
        self.tell_until(id, written, Some(version), Some(until));
        (version, until)
    }

    fn gets_until(&mut self, site: u16, value: Option<&str>, version: Option<Rank>, until: Option<Micros>) {
        let id = self.ask(1, site, get("x"));
        self.tell_until(id, Answer::Value(value.and_then(some)), version, until);
    }

    /// The newest clock of all nodes is true time.
    fn tell_until(&mut self, id: OperationId, answer: Answer, version: Option<Rank>, until: Option<Micros>) {
        self.judge.look_at_newest_clock(None);
        self.tell_all(id, answer, version, None, until);
    }
}

const SPAN: Micros = Micros(50_000);

#[test]
fn a_value_is_shown_until_it_expires_and_gone_from_then_on() {
    let mut court = court();
    let (version, until) = court.puts_for(SPAN, None);
    court.gets_until(1, Some("1"), Some(version), Some(until));
    court.now = until;
    court.gets_until(1, None, Some(version), Some(until));
    // It was forgotten.
    court.gets_until(1, None, None, None);
    assert_eq!(court.broken(), []);
    assert_eq!(court.judge.expiries().judged, 2);
    court.judge.ends_with("a", &Key::from("x"), None);
    assert_eq!(court.broken(), [], "an expired version may be forgotten");
}

#[test]
fn a_value_is_not_shown_after_it_expired() {
    let mut court = court();
    let (version, until) = court.puts_for(SPAN, None);
    court.now = until + Micros(1);
    court.gets_until(1, Some("1"), Some(version), Some(until));
    assert_eq!(court.broken(), [Rule::Expiry]);
}

#[test]
fn a_value_is_not_gone_before_it_expires() {
    for names_version in [true, false] {
        let mut court = court();
        let (version, until) = court.puts_for(SPAN, None);
        court.gets_until(0, Some("1"), Some(version), Some(until));
        let named = names_version.then_some((version, until));
        court.gets_until(
            0,
            None,
            named.map(|(version, _)| version),
            named.map(|(_, until)| until),
        );
        let rule = if names_version {
            Rule::Expiry
        } else {
            Rule::NothingUndone
        };
        assert_eq!(court.broken(), [rule]);
    }
}

#[test]
fn a_value_may_be_gone_where_a_clock_is_ahead() {
    let mut court = court();
    let (version, until) = court.puts_for(SPAN, None);
    let id = court.ask(1, 1, get("x"));
    court
        .judge
        .look_at_newest_clock(Some(Some(Hlc::from_wall(until))));
    court.tell_all(id, Answer::Value(None), Some(version), None, Some(until));
    assert_eq!(court.broken(), []);
    let id = court.ask(1, 2, get("x"));
    court.judge.look_at_newest_clock(Some(None));
    court.tell_all(id, Answer::Value(None), Some(version), None, Some(until));
    let not_judged = court.judge.expiries().not_judged;
    assert_eq!(
        not_judged.into_iter().collect::<Vec<_>>(),
        [(Excuse::NodeAway, 1)]
    );
}

#[test]
fn a_version_expires_when_it_was_asked_to() {
    for (told, broken) in [(None, vec![]), (Some(Micros(7_000_000)), vec![Rule::Expiry])] {
        let mut court = court();
        court.puts_for(SPAN, told);
        assert_eq!(court.broken(), broken, "{told:?}");
    }
    let mut court = court();
    let id = court.ask(0, 0, put("x", "1"));
    let (version, until) = (stamped(court.now), Some(court.now + SPAN));
    court.tell_until(id, Answer::Written { existed: false }, Some(version), until);
    assert_eq!(court.broken(), [Rule::Expiry], "it was not asked to expire");
}

#[test]
fn a_put_that_keeps_an_expiry_does_not_lose_it() {
    for (keeps, broken) in [(true, vec![]), (false, vec![Rule::Expiry])] {
        let mut court = court();
        let (_, until) = court.puts_for(SPAN, None);
        let options = PutOptions {
            expiry: Some(Expiry::Kept),
            ..PutOptions::default()
        };
        let id = court.ask(0, 0, put("x", "2").with(options));
        let (version, written) = (stamped(court.now), Answer::Written { existed: true });
        court.tell_until(id, written, Some(version), keeps.then_some(until));
        assert_eq!(court.broken(), broken);
    }
}

#[test]
fn a_version_expires_at_the_same_time_everywhere() {
    let mut court = court();
    let (version, until) = court.puts_for(SPAN, None);
    court.gets_until(1, Some("1"), Some(version), Some(until + Micros(1)));
    assert_eq!(court.broken(), [Rule::Expiry]);
}

/// A put of unknown outcome, whose value would expire later, is no reason to show nothing now.
#[test]
fn an_open_put_may_have_expired_only_once_its_time_is_over() {
    let broken = |expiry, later| {
        let mut court = court();
        let version = stamped(court.now);
        court.puts(0, 0, "x", "1", version);
        let options = PutOptions {
            expiry: Some(expiry),
            ..PutOptions::default()
        };
        court.ask(0, 0, put("x", "2").with(options));
        court.now = court.now + later;
        court.gets_until(0, None, None, None);
        court.broken()
    };
    let undone = [Rule::NothingUndone];
    assert_eq!(broken(Expiry::After(SPAN), Micros(0)), undone);
    assert_eq!(broken(Expiry::After(SPAN), SPAN), []);
    assert_eq!(broken(Expiry::At(Micros(u64::MAX)), SPAN), undone);
    assert_eq!(broken(Expiry::Kept, Micros(0)), []);
}

/// Sessions are promised causality, and honest clocks may be half a second off: so true time alone tells nothing.
fn court_of_sessions() -> Court {
    let mut court = Court::new(true);
    court.judge = court.judge.with_expiry(true, Micros(500_000));
    court
}

/// A client is shown at site 0 that the value has expired, or reads another key that was stamped then. Then this client is shown the value at site 1.
fn shown_again(client: usize, level: Level, sees: impl Fn(&mut Court, Rank, Micros)) -> Vec<Rule> {
    let mut court = court_of_sessions();
    let (version, until) = court.puts_for(SPAN, None);
    court.now = until;
    sees(&mut court, version, until);
    let id = court.ask(client, 1, get("x").at(level));
    court.tell_until(id, Answer::Value(some("1")), Some(version), Some(until));
    court.broken()
}

#[test]
fn a_session_is_not_shown_again_what_it_has_seen_expired() {
    let sees_nothing =
        |court: &mut Court, version, until| court.gets_until(0, None, Some(version), Some(until));
    assert_eq!(shown_again(1, Level::Causal, sees_nothing), [Rule::Expiry]);
    assert_eq!(shown_again(2, Level::Causal, sees_nothing), [], "another client");
    assert_eq!(
        shown_again(1, Level::Eventual, sees_nothing),
        [],
        "it asked for less"
    );
    let deletes_nothing = |court: &mut Court, version, until| {
        let id = court.ask(1, 0, delete("x"));
        court.tell_until(id, Answer::Written { existed: false }, Some(version), Some(until));
    };
    assert_eq!(shown_again(1, Level::Causal, deletes_nothing), [Rule::Expiry]);
}

#[test]
fn a_session_that_has_seen_a_later_version_is_not_shown_what_expired_before_that() {
    let writes = |stamp: fn(Micros) -> Micros| {
        move |court: &mut Court, _, until| court.puts(1, 0, "y", "2", stamped(stamp(until)))
    };
    let later = writes(|until| until);
    assert_eq!(shown_again(1, Level::Causal, later), [Rule::Expiry]);
    let earlier = writes(|until| Micros(until.0 - 1));
    assert_eq!(shown_again(1, Level::Causal, earlier), []);
}

/// Two keys, of which x expires before y.
#[test]
fn a_snapshot_shows_no_value_that_expired_before_one_that_it_shows_as_expired() {
    let broken = |shown: &[Option<&str>], deletes: bool| {
        let mut court = court_of_sessions();
        court.puts_for(SPAN, None);
        let options = PutOptions {
            expiry: Some(Expiry::After(SPAN)),
            ..PutOptions::default()
        };
        let id = court.ask(1, 0, put("y", "2").with(options));
        let (version, until) = (stamped(court.now), court.now + SPAN);
        court.tell_until(id, Answer::Written { existed: false }, Some(version), Some(until));
        if deletes {
            court.ask(2, 0, delete("y"));
        }
        court.now = until;
        court.gets_many(1, 0, &["x", "y"], shown);
        court.broken()
    };
    assert_eq!(broken(&[Some("1"), None], false), [Rule::Expiry]);
    assert_eq!(broken(&[None, Some("2")], false), []);
    assert_eq!(broken(&[None, None], false), []);
    assert_eq!(broken(&[Some("1"), None], true), [], "y may have been deleted");
}

/// A client changes until when `x` is shown. Returns the version.
fn retimes(court: &mut Court, client: usize, value: Rank, until: Micros) -> Rank {
    let options = PutOptions {
        expiry: Some(Expiry::At(until)),
        retimes: Some(Retimes::Any),
        ..PutOptions::default()
    };
    let id = court.ask(client, 0, delete("x").with(options));
    let version = Rank {
        base: value.base,
        ..stamped(court.now)
    };
    court.tell_until(id, Answer::Written { existed: true }, Some(version), Some(until));
    version
}

/// A client has seen a value, and then nothing. A delete that was never answered can be the reason, or that another client has let the value expire. A third client
/// has not heard of that, and changes the expiry, too.
#[test]
fn a_value_may_come_back_by_a_later_change_of_its_expiry_and_not_without_one() {
    let broken = |expires: bool, sees: fn(&mut Court, (Rank, Rank), Micros)| {
        let mut court = court_of_sessions();
        let (value, until) = court.puts_for(Micros(60_000_000), None);
        court.ask(2, 0, delete("x"));
        court.gets_until(1, Some("1"), Some(value), Some(until));
        if expires {
            retimes(&mut court, 3, value, Micros(1));
        }
        court.gets_many(1, 1, &["x"], &[None]);
        let change = retimes(&mut court, 4, value, until);
        sees(&mut court, (value, change), until);
        court.broken()
    };
    // The answer does not tell whether it shows the change.
    let sees_value = |court: &mut Court, _, _| court.gets_many(1, 1, &["x"], &[Some("1")]);
    assert_eq!(broken(true, sees_value), []);
    assert_eq!(broken(false, sees_value), [Rule::NothingUndone]);
    let sees_change = |court: &mut Court, (_, change): (Rank, Rank), until| {
        court.gets_until(1, Some("1"), Some(change), Some(until));
    };
    assert_eq!(broken(true, sees_change), []);
    let sees_first = |court: &mut Court, (value, _): (Rank, Rank), until| {
        court.gets_until(1, Some("1"), Some(value), Some(until));
    };
    assert_eq!(broken(true, sees_first), [Rule::NothingUndone]);
    assert_eq!(broken(false, sees_first), [Rule::NothingUndone]);
}
