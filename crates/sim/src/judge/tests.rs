//! False histories: each breaks one rule, and the judge must say so. Each test also has the nearest true history.
mod conditions;
mod expiry;

use super::*;
use turnbuckle_core::{Failure, Hlc, KeyspaceLevels, Level, Levels, Proof, Route, VersionId};
use turnbuckle_node::NodeId;

/// A judge, and the operations that it is told of. Each takes a millisecond. Site n has only node n.
struct Court {
    judge: Judge,
    records: Vec<Record>,
    now: Micros,
    /// The `ahead` that the next answers come with.
    ahead: Option<Rank>,
}

fn version(at: u64, site: u16) -> Rank {
    Rank::of(VersionId {
        at: Hlc(at),
        replica: turnbuckle_core::ReplicaId(site),
    })
}

fn replica(site: u16) -> ServerId {
    ServerId {
        site: SiteId(site),
        partition: 0,
        member: 0,
    }
}

fn put(key: &str, value: &str) -> Operation {
    Operation::put(Key::from(key), some(value))
}

fn delete(key: &str) -> Operation {
    Operation::delete(Key::from(key))
}

fn get(key: &str) -> Operation {
    let (key, level) = (Key::from(key), None);
    Operation::Get { key, level }
}

fn get_many(keys: &[&str], level: Option<Level>) -> Operation {
    let keys = keys.iter().map(|&key| Key::from(key)).collect();
    Operation::ReadMany { keys, level }
}

fn some(value: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(value.as_bytes()))
}

impl Court {
    fn new(has_sessions: bool) -> Court {
        Court {
            judge: Judge::new(
                Topology::new(["a", "b", "c"], 1, 1),
                KeyspaceLevels::of(Levels::of_both(match has_sessions {
                    true => &[Level::Causal, Level::Eventual],
                    false => &[Level::Eventual],
                })),
            ),
            records: Vec::new(),
            now: Micros(1_000_000),
            ahead: None,
        }
    }

    fn ask(&mut self, client: usize, site: u16, operation: Operation) -> OperationId {
        self.now = self.now + Micros(1_000);
        let id = OperationId(self.records.len());
        self.judge.invoked(id, client, &operation, self.now);
        self.records.push(Record {
            wanted: None,
            client,
            session: 0,
            node: NodeId(site),
            operation,
            invoked: self.now,
            returned: None,
            places: (0, 0),
            before: self.judge.number(),
            pipelined: false,
        });
        id
    }

    /// The answer, with a receipt that names a version and claims a staleness.
    fn tell(&mut self, id: OperationId, answer: Answer, version: Option<Rank>, staleness: Option<u64>) {
        self.tell_all(id, answer, version, staleness, None);
    }

    /// The same, with when the value expires.
    fn tell_all(
        &mut self,
        id: OperationId,
        answer: Answer,
        version: Option<Rank>,
        staleness: Option<u64>,
        until: Option<Micros>,
    ) {
        self.now = self.now + Micros(1_000);
        let record = &mut self.records[id.0];
        let site = record.node.0;
        let receipt = Receipt {
            asked: Level::Causal.into(),
            given: Level::Causal,
            version: version.map(|version| version.id),
            base: version.and_then(Rank::other_base),
            server: replica(site),
            route: Route::Local,
            waited: Micros(0),
            staleness: staleness.map(Micros),
            clock_bound: Micros(1),
            siblings: false,
            until,
            decided_at_site: false,
            proof: Proof::Plain,
        };
        record.returned = Some((self.now, (answer, Some(Box::new(receipt)))));
        self.judge.returned(id, record, SiteId(site), self.ahead);
    }

    fn puts(&mut self, client: usize, site: u16, key: &str, value: &str, version: Rank) {
        let id = self.ask(client, site, put(key, value));
        self.tell(id, Answer::Written { existed: false }, Some(version), None);
    }

    fn deletes(&mut self, client: usize, site: u16, key: &str, existed: bool, version: Option<Rank>) {
        let id = self.ask(client, site, delete(key));
        self.tell(id, Answer::Written { existed }, version, None);
    }

    fn gets(&mut self, client: usize, site: u16, key: &str, value: Option<&str>, version: Option<Rank>) {
        let id = self.ask(client, site, get(key));
        self.tell(id, Answer::Value(value.and_then(some)), version, None);
    }

    fn gets_many(&mut self, client: usize, site: u16, keys: &[&str], values: &[Option<&str>]) {
        let id = self.ask(client, site, get_many(keys, None));
        let values = values.iter().map(|value| value.and_then(some)).collect();
        self.tell(id, Answer::Values(values), None, None);
    }

    /// The rules that were broken, in their order, each once.
    fn broken(&self) -> Vec<Rule> {
        let rules = self.judge.violations().iter().map(|violation| violation.rule);
        rules.collect::<BTreeSet<Rule>>().into_iter().collect()
    }

    fn not_judged(&self) -> Vec<(Excuse, u64)> {
        self.judge.answers().not_judged.into_iter().collect()
    }
}

/// Key x has the value `old` at version 1 everywhere, as client 0 has seen at a. A client deleted it at b.
fn deleted(has_sessions: bool) -> Court {
    let mut court = Court::new(has_sessions);
    court.puts(9, 1, "x", "old", version(1, 1));
    court.gets(0, 0, "x", Some("old"), Some(version(1, 1)));
    court.deletes(9, 1, "x", true, Some(version(2, 1)));
    court
}

// ---- nothing ------------------------------------------------------------------------------------------------

#[test]
fn what_was_there_before_a_delete_that_was_forgotten_is_not_read_again() {
    for has_sessions in [false, true] {
        let mut court = deleted(has_sessions);
        court.gets(0, 0, "x", None, None);
        court.gets(0, 0, "x", None, None);
        assert_eq!(court.broken(), []);
        court.gets(0, 0, "x", Some("old"), Some(version(1, 1)));
        assert!(court.broken().contains(&Rule::NothingUndone), "{has_sessions}");
    }
}

#[test]
fn a_delete_that_is_remembered_is_a_version_like_any_other() {
    let mut court = deleted(false);
    court.gets(5, 2, "x", None, Some(version(2, 1)));
    court.gets(5, 2, "x", Some("old"), Some(version(1, 1)));
    assert_eq!(court.broken(), [Rule::NothingUndone]);
}

#[test]
fn nothing_is_wrong_where_nobody_has_deleted_anything() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "old", version(1, 0));
    court.gets(1, 0, "x", None, None);
    assert_eq!(court.broken(), [], "who has seen nothing may not have it yet");
    court.gets(0, 0, "x", None, None);
    assert_eq!(court.broken(), [Rule::NothingUndone]);
}

#[test]
fn a_site_that_has_forgotten_a_delete_binds_all_others() {
    let mut court = deleted(true);
    court.gets(5, 2, "x", Some("old"), Some(version(1, 1)));
    court.gets(0, 0, "x", None, None);
    assert_eq!(
        court.broken(),
        [],
        "c may be late as long as all remember the delete"
    );
    court.gets(5, 2, "x", Some("old"), Some(version(1, 1)));
    assert_eq!(court.broken(), [Rule::ForgottenIsShown]);

    let mut court = deleted(true);
    court.gets(7, 0, "x", None, None);
    court.gets(5, 2, "x", Some("old"), Some(version(1, 1)));
    assert_eq!(
        court.broken(),
        [],
        "who had to show nothing may never have had it"
    );
}

#[test]
fn a_delete_without_an_answer_may_explain_nothing_and_is_newer_than_what_it_deleted() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "old", version(1, 0));
    court.ask(1, 0, delete("x"));
    court.gets(0, 0, "x", None, None);
    assert_eq!(court.broken(), []);
    assert_eq!(court.not_judged(), [(Excuse::UnknownOutcome, 1)]);
    court.gets(0, 0, "x", Some("old"), Some(version(1, 0)));
    assert!(court.broken().contains(&Rule::NothingUndone));
}

#[test]
fn a_delete_that_was_refused_explains_nothing() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "old", version(1, 0));
    let refused = court.ask(1, 0, delete("x"));
    court.tell(
        refused,
        Answer::Failed(Failure::Unavailable(String::new())),
        None,
        None,
    );
    court.gets(0, 0, "x", None, None);
    assert_eq!(court.broken(), [Rule::NothingUndone]);
}

#[test]
fn the_trace_names_the_delete_that_a_read_of_nothing_has_seen_if_there_is_only_one() {
    let mut court = deleted(true);
    court.gets(0, 0, "x", None, None);
    let read = OperationId(court.records.len() - 1);
    let key = Key::from("x");
    let seen = |court: &Court| {
        court
            .judge
            .delete_seen(read, 0, &key, court.records[read.0].invoked)
    };
    assert_eq!(seen(&court), Some(version(2, 1)));
    court.ask(1, 0, delete("x"));
    court.gets(0, 0, "x", None, None);
    assert_eq!(
        seen(&court),
        Some(version(2, 1)),
        "the open delete was asked for later"
    );
    let mut court = deleted(true);
    court.gets(0, 0, "x", None, None);
    court.puts(0, 0, "x", "new", version(5, 0));
    court.deletes(0, 0, "x", true, Some(version(6, 0)));
    assert_eq!(seen(&court), Some(version(2, 1)), "the second began later");
    court.gets(0, 0, "x", None, None);
    let read = OperationId(court.records.len() - 1);
    let over = court.now;
    assert_eq!(court.judge.delete_seen(read, 0, &key, over), Some(version(6, 0)));
}

// ---- what deletes say ---------------------------------------------------------------------------------------

#[test]
fn a_delete_finds_only_what_was_written() {
    let mut court = Court::new(true);
    court.deletes(0, 0, "x", true, Some(version(3, 0)));
    assert_eq!(court.broken(), [Rule::RealValues]);

    let mut court = Court::new(true);
    court.ask(1, 0, put("x", "late"));
    court.deletes(0, 0, "x", true, Some(version(3, 0)));
    assert_eq!(court.broken(), [], "it may be there");
    assert_eq!(court.not_judged(), [(Excuse::UnknownOutcome, 1)]);
}

#[test]
fn a_delete_finds_nothing_that_its_client_has_seen_deleted() {
    let mut court = deleted(true);
    court.gets(0, 0, "x", None, Some(version(2, 1)));
    court.deletes(0, 0, "x", true, Some(version(3, 0)));
    assert_eq!(court.broken(), [Rule::NothingUndone]);

    let mut court = deleted(true);
    court.deletes(0, 0, "x", true, Some(version(3, 0)));
    assert_eq!(court.broken(), [], "its client has not seen the delete");
}

#[test]
fn a_delete_finds_what_its_client_has_seen() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "old", version(1, 0));
    court.deletes(0, 0, "x", false, None);
    assert_eq!(court.broken(), [Rule::NothingUndone]);
}

#[test]
fn a_delete_that_finds_nothing_must_be_as_fresh_as_its_receipt() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "old", version(1, 0));
    let id = court.ask(1, 1, delete("x"));
    court.tell(id, Answer::Written { existed: false }, None, Some(1_000));
    assert_eq!(court.broken(), [Rule::TrueReceipts]);

    let mut court = deleted(true);
    let id = court.ask(1, 1, delete("x"));
    court.tell(
        id,
        Answer::Written { existed: true },
        Some(version(9, 1)),
        Some(1_000),
    );
    assert_eq!(
        court.broken(),
        [Rule::TrueReceipts],
        "it claims to know of the delete"
    );
}

// ---- reads of several keys ----------------------------------------------------------------------------------

#[test]
fn each_key_of_a_snapshot_is_held_to_what_its_client_has_seen() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "1", version(1, 0));
    court.puts(0, 0, "x", "2", version(2, 0));
    court.gets_many(0, 0, &["y", "x"], &[None, Some("2")]);
    assert_eq!(court.broken(), []);
    court.gets_many(0, 0, &["y", "x"], &[None, Some("1")]);
    assert_eq!(court.broken(), [Rule::NothingUndone]);

    let mut court = Court::new(true);
    court.puts(0, 0, "x", "1", version(1, 0));
    court.gets_many(0, 0, &["x"], &[None]);
    assert_eq!(court.broken(), [Rule::NothingUndone], "nothing");
}

#[test]
fn what_a_snapshot_has_shown_is_not_undone() {
    for has_sessions in [false, true] {
        let mut court = Court::new(has_sessions);
        court.puts(0, 0, "x", "1", version(1, 0));
        court.puts(0, 0, "x", "2", version(2, 0));
        court.gets_many(1, 1, &["x"], &[Some("2")]);
        court.gets(1, 1, "x", Some("1"), Some(version(1, 0)));
        assert_eq!(court.broken(), [Rule::NothingUndone]);
    }
}

#[test]
fn a_snapshot_of_a_value_that_is_not_acknowledged_yet_is_judged_when_it_is() {
    let mut court = Court::new(true);
    let first = court.ask(0, 0, put("x", "1"));
    court.puts(1, 1, "x", "2", version(2, 1));
    court.gets_many(1, 1, &["x"], &[Some("1")]);
    assert_eq!(court.broken(), []);
    assert_eq!(court.not_judged(), [(Excuse::UnknownOutcome, 1)]);
    court.tell(
        first,
        Answer::Written { existed: false },
        Some(version(1, 0)),
        None,
    );
    assert_eq!(
        court.broken(),
        [Rule::NothingUndone],
        "it was older than what client 1 had written"
    );
    assert_eq!(court.not_judged(), []);
}

#[test]
fn a_careless_read_binds_nobody_and_is_counted_where_it_went_back() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "1", version(1, 0));
    court.puts(0, 0, "x", "2", version(2, 0));
    let id = court.ask(0, 0, get_many(&["x"], Some(Level::Eventual)));
    court.tell(id, Answer::Values(vec![some("1")]), None, None);
    assert_eq!(court.broken(), []);
    assert_eq!(court.not_judged(), [(Excuse::LevelEventual, 1)]);
}

// ---- pipelines ----------------------------------------------------------------------------------------------

#[test]
fn what_was_sent_behind_a_write_follows_it_though_the_write_was_not_answered_yet() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "1", version(1, 0));
    let write = court.ask(0, 0, put("x", "2"));
    let read = court.ask(0, 0, get("x"));
    let others = court.ask(1, 0, get("x"));
    court.tell(
        write,
        Answer::Written { existed: true },
        Some(version(2, 0)),
        None,
    );
    court.tell(others, Answer::Value(some("1")), Some(version(1, 0)), None);
    assert_eq!(court.broken(), [], "another client's read may have come before");
    court.tell(read, Answer::Value(some("1")), Some(version(1, 0)), None);
    assert_eq!(court.broken(), [Rule::NothingUndone]);
}

// ---- power losses -------------------------------------------------------------------------------------------

/// Client 0 writes x and y at a. Site a syncs in between, and then loses power. Client 7 has moved to b before.
fn lost(has_sessions: bool) -> Court {
    let mut court = Court::new(has_sessions);
    court.puts(0, 0, "x", "1", version(1, 0));
    let synced = court.now;
    court.puts(0, 0, "x", "2", version(2, 0));
    court.puts(7, 0, "y", "1", version(3, 0));
    court.judge.excuse(replica(0), court.now, synced);
    court
}

#[test]
fn a_power_loss_takes_what_was_not_synced_and_nothing_else() {
    let mut court = lost(false);
    court.gets(1, 0, "x", Some("1"), Some(version(1, 0)));
    assert_eq!(court.broken(), []);
    assert_eq!(court.not_judged(), [(Excuse::PowerLoss, 1)]);
    court.gets(1, 0, "x", None, None);
    assert_eq!(court.broken(), [Rule::NothingUndone], "the first was synced");

    let mut court = lost(true);
    court.gets(7, 1, "y", None, None);
    assert_eq!(
        (court.broken(), court.not_judged().len()),
        (vec![], 1),
        "y may be gone"
    );
    court.gets(0, 1, "x", Some("1"), Some(version(1, 0)));
    assert_eq!(court.broken(), [], "2 may be gone");
    court.gets(0, 1, "x", None, None);
    assert_eq!(court.broken(), [Rule::NothingUndone], "and 1 may not");
}

#[test]
fn a_receipt_need_not_reflect_what_was_lost_and_must_reflect_the_rest() {
    let claim = |value: Option<&str>, at: Option<Rank>| {
        let mut court = lost(true);
        let id = court.ask(3, 2, get("x"));
        court.tell(id, Answer::Value(value.and_then(some)), at, Some(500));
        (court.broken(), court.judge.claims().not_judged())
    };
    assert_eq!(claim(Some("1"), Some(version(1, 0))), (vec![], 1));
    assert_eq!(claim(Some("2"), Some(version(2, 0))), (vec![], 0));
    assert_eq!(claim(None, None), (vec![Rule::TrueReceipts], 0));
}

#[test]
fn a_replica_that_has_shown_what_was_lost_still_has_it_and_gives_it_back() {
    let mut court = Court::new(true);
    let synced = court.now;
    court.puts(0, 0, "x", "1", version(1, 0));
    court.gets(1, 1, "x", Some("1"), Some(version(1, 0)));
    court.judge.excuse(replica(0), court.now, synced);
    court.gets(1, 1, "x", None, None);
    assert_eq!(court.broken(), [Rule::NothingUndone], "b has it");

    let mut court = Court::new(true);
    let synced = court.now;
    court.puts(0, 0, "x", "1", version(1, 0));
    court.judge.excuse(replica(0), court.now, synced);
    court.judge.ends_with("c", &Key::from("x"), None);
    assert_eq!(court.broken(), [], "nobody had it");

    let mut court = Court::new(true);
    let synced = court.now;
    court.puts(0, 0, "x", "1", version(1, 0));
    court.gets(1, 1, "x", Some("1"), Some(version(1, 0)));
    court.judge.excuse(replica(0), court.now, synced);
    court.judge.ends_with("c", &Key::from("x"), None);
    assert_eq!(court.broken(), [Rule::NothingLost], "b had it");
}

#[test]
fn what_comes_back_while_an_answer_is_on_its_way_is_not_asked_of_it() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "1", version(1, 0));
    let synced = court.now;
    court.puts(0, 0, "x", "2", version(2, 0));
    court.judge.excuse(replica(0), court.now, synced);
    let slow = court.ask(0, 0, get("x"));
    court.gets(1, 0, "x", Some("2"), Some(version(2, 0)));
    court.tell(slow, Answer::Value(some("1")), Some(version(1, 0)), None);
    assert_eq!(
        (court.broken(), court.not_judged()),
        (vec![], vec![(Excuse::PowerLoss, 1)]),
        "another site gave it back to the replica after it had read"
    );
    court.gets(0, 0, "x", Some("1"), Some(version(1, 0)));
    assert_eq!(court.broken(), [Rule::NothingUndone], "the replica has it now");
}

#[test]
fn what_another_site_stamped_is_not_lost_with_a_replica_that_had_it() {
    let mut court = Court::new(true);
    let synced = court.now;
    court.puts(9, 1, "x", "1", version(1, 1));
    court.gets(0, 0, "x", Some("1"), Some(version(1, 1)));
    court.judge.excuse(replica(0), court.now, synced);
    court.gets(0, 0, "x", None, None);
    assert_eq!(court.broken(), [Rule::NothingUndone], "its session waits for it");
}

#[test]
fn a_forgotten_delete_is_not_asked_of_a_replica_that_may_have_lost_it() {
    let mut court = deleted(true);
    let synced = court.now;
    court.gets(0, 0, "x", None, None);
    court.judge.excuse(replica(2), court.now, synced);
    court.gets(5, 2, "x", Some("old"), Some(version(1, 1)));
    assert_eq!(
        (court.broken(), court.not_judged()),
        (vec![], vec![(Excuse::PowerLoss, 1)])
    );
    court.gets(6, 1, "x", Some("old"), Some(version(1, 1)));
    assert_eq!(court.broken(), [Rule::ForgottenIsShown]);
}

// ---- receipts -----------------------------------------------------------------------------------------------

#[test]
fn claims_that_rest_on_clocks_that_lie_are_counted_only() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "1", version(1, 0));
    court.judge.distrust_clocks();
    for (value, at) in [(None, None), (Some("1"), Some(version(1, 0)))] {
        let id = court.ask(3, 2, get("x"));
        court.tell(id, Answer::Value(value.and_then(some)), at, Some(500));
    }
    assert_eq!(court.broken(), []);
    let claims = court.judge.claims();
    assert_eq!((claims.judged, claims.not_judged()), (1, 1));
    assert_eq!(claims.not_judged.get(&Excuse::Clock), Some(&1));
}

#[test]
fn a_replica_that_can_see_a_clock_lie_must_claim_nothing() {
    let mut court = Court::new(true);
    court.puts(0, 0, "x", "1", version(1, 0));
    court.judge.distrust_clocks();
    court.ahead = Some(version(1, 0));
    let id = court.ask(3, 2, get("x"));
    court.tell(id, Answer::Value(None), None, None);
    assert_eq!(court.broken(), [], "it claims nothing");
    let id = court.ask(3, 2, get("x"));
    court.tell(id, Answer::Value(None), None, Some(500));
    assert_eq!(court.broken(), [Rule::TrueReceipts]);
}
