//! The judge: what must be true of every answer, whatever faults there were. It is checked while the world runs.
//!
//! 1. **Receipts.** A receipt that claims a staleness of s for an operation begun at t: every write to its key that was
//!    acknowledged at or before t - s, in true time, at any site, is reflected. An answer at `bounded(b)` claims a staleness of at most b.
//! 2. **Nothing shown is undone.** Once a replica has shown a version of a key, it never again shows an older state, across any crash. Where
//!    one session may see more than another (reads promise causality), this is demanded of each session instead, wherever it goes. Of an operation whose
//!    level promises an order of each key's operations, it is demanded of both.
//! 3. **A forgotten delete is shown everywhere.** Where the protocol has sessions: once a site has forgotten a delete, no site shows a
//!    version that is older than that delete.
//! 4. **Values are real.** What is read was written, to that key, and carries one version only. No client reads what it asked to write after the read.
//! 5. **Nothing acknowledged is lost.** In the end every site has each key's last acknowledged write, or something newer. And a write that
//!    a replica acknowledges is stamped above those that it had acknowledged before. Otherwise the older write of the two would be the last
//!    one.
//! 6. **Reads are served on a full disk.** No read is refused because a disk has less room than is to be kept free: only writes may be. If
//!    the log itself cannot be written, reads that wait behind it are refused with another text, and that breaks no rule.
//!
//! 7. **A condition is as its answer says.** An answer says that a condition held, or that it did not. It must not itself show the
//!    opposite. If one replica decides alone, its receipt says so, and it decides on no less than what it had acknowledged itself before the put was asked for. So of two puts that
//!    both want the key to have no value, only the first is carried out, unless the value was deleted or has expired.
//!
//! 8. **Transactions are whole, and what is computed is exact.** See `ledgers.rs`.
//!
//! 9. **A value expires when it was asked to, at every site.** See `expiry.rs`.
//!
//! 10. **What clients add to a number is neither lost nor there twice.** See `numbers.rs`.
//!
//! 11. **A transaction is seen as a whole, or not at all.** See `twins.rs`.
//!
//! 12. **Elements of hashes and sets are neither lost nor there again, and a removal removes what it has found.** See `elements.rs`.
//!
//! 13. **What a client has waited for is at all sites, and a message is heard behind what its publisher had seen.** See `waits.rs`.
//!
//! 14. **What one site computes from the value before is neither lost nor made up.** See `texts.rs`.
//!
//! Where siblings are kept, a read of one value counts as a read where the last writer wins. What a read of all siblings must show is in `siblings.rs`.
//!
//! In the end all sites must be the same, and every node must do its work: these are counted as rules of their own.
//!
//! Levels are not among these rules. [`turnbuckle_core::Promise`] says what each level promises. This judge goes by it only to know whose floors bind an
//! answer, and which reads are snapshots. Whether a trace keeps its level is judged afterwards, by the checker (`Report::against`).
//!
//! Each of these is an answer to be judged: a read of one key, each key of a read of several, the answer of a delete ("there was a value",
//! "there was none"), and each receipt. A put whose condition did not hold is a read of what its answer says is there. A put that was told
//! the value before it is a read of that value, too.
//!
//! # Floors
//!
//! What an answer must show is a *floor*: a version of the key, and "this or newer". Floors come from rules 1, 2 and 3. An operation must
//! meet what had been answered before it was invoked, and what its own client had asked for before it: a client's operations that overlap,
//! a *pipeline*, take effect in the order in which they were sent.
//!
//! # Nothing
//!
//! "Nothing" has a version if the replica remembers the delete. Then it is an answer like any other. If no version comes with it, there
//! never was a value here, or the delete has been forgotten. The floor f that the answer had to meet tells which of the two it was, and
//! which delete:
//!
//! - Without a floor it may be either. Nothing follows.
//! - With a floor it was a delete d that meets f. If no delete of the key that meets f is known, and none was asked for and left
//!   unanswered, the answer is wrong.
//! - If every delete of the key has been answered, d is one of the known ones, so it is at least the oldest of them that meets f: that is
//!   the new floor. If some delete was never answered, d may be that one. Then only this is known: d meets f, and d is newer than f if f is
//!   a value.
//!
//! If a receipt came with the answer that would have named a remembered delete, then by rule 3 the same floor binds all answers from then
//! on. A delete that answers "there was a value" must be newer than some value that meets f.
//!
//! # What a power loss excuses
//!
//! See `losses.rs`.
//!
//! # What a clock excuses
//!
//! Claims rest on clocks that keep their bounds, unless the receipt gives a bound of zero. Once a clock does not keep its bound, claims that rest on
//! it are not judged, with one exception: the missed write was stamped
//! a second or more beyond what a clock within its bound could show, and the replica has it. Then the replica can see that a clock lies,
//! and must claim nothing.
//!
//! # What is not judged
//!
//! An answer is *not judged* if it would be wrong without an excuse, or if what it shows cannot be compared. These cases are counted for
//! each reason ([`Excuse`]).
use crate::{OperationId, Record};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{
    Answer, Failure, Hlc, Key, KeyspaceLevels, Level, Micros, Operation, Promise, Rank, Receipt, ReplicaId,
    ServerId, SiteId, Topology,
};
use turnbuckle_node::NO_ROOM;

mod conditions;
mod count;
mod elements;
mod expiry;
mod floor;
mod key;
mod ledgers;
mod losses;
mod needs;
mod numbers;
mod pasts;
mod retimes;
mod rule;
mod siblings;
#[cfg(test)]
mod tests;
mod texts;
mod twins;
mod values;
mod waits;
pub use count::{Excuse, Judged};
pub use floor::Witness;
use floor::{Floor, Floors, Raised};
use key::{Acknowledged, Met, OfKey, Shown};
use losses::Loss;
use needs::Needs;
pub use rule::{Rule, Violation};
use values::{Value, Written};

/// Judges the answers of one world.
pub struct Judge {
    topology: Topology,
    /// Whether reads promise causality: then one session may see more than another, and what was shown binds sessions, not replicas.
    has_sessions: bool,
    /// Whether sessions are witnesses beside the replicas, because some levels promise an order of each key's operations.
    orders_keys: bool,
    /// Whether sites have several nodes: while one of them is away, sessions ask another site.
    asks_elsewhere: bool,
    levels: KeyspaceLevels,
    keys: BTreeMap<Key, OfKey>,
    /// If the keyspace keeps siblings: what each write has replaced.
    siblings: Option<siblings::Writes>,
    ledgers: ledgers::Ledgers,
    numbers: BTreeMap<Key, numbers::Number>,
    /// Whether a power loss may have taken additions.
    lost_additions: bool,
    texts: BTreeMap<Key, texts::Text>,
    elements: BTreeMap<Key, elements::OfKey>,
    /// Of each message to a channel, by its text: what its publisher had seen.
    publications: BTreeMap<Bytes, waits::Seen>,
    /// When the last hash or set expires.
    elements_expire: Option<Micros>,
    /// The values that were written to each key.
    values: BTreeMap<(Key, Bytes), Written>,
    /// Keys of reads of several keys that showed a value whose version was not known yet.
    pending: BTreeMap<(Key, Bytes), Vec<Pending>>,
    /// For each read of nothing without a version, the floor that it met. By the operation and the index of the key.
    nothings: BTreeMap<(OperationId, u32), key::Nothing>,
    /// Whether sessions are told of what was lost. Then they are never shown less than they have seen.
    tells_losses: bool,
    /// The power losses of each replica.
    losses: BTreeMap<ServerId, Vec<Loss>>,
    last_loss: Micros,
    /// When a node of each site was last started.
    started: BTreeMap<SiteId, Micros>,
    /// Versions that were lost where they were stamped, and that other replicas have.
    spared: BTreeSet<(Key, Rank)>,
    /// The number of answers that were looked at.
    number: u64,
    answers: Judged,
    claims: Judged,
    /// Reads of values that expire.
    expiries: Judged,
    /// Whether one site decides conditions. Then its receipts say so.
    decides_at_site: bool,
    /// Whether values may expire.
    judges_expiry: bool,
    /// The newest time that each session was shown, at levels with session guarantees, each with the judge's number of the answer that showed it.
    times_seen: BTreeMap<Witness, Vec<(u64, Hlc)>>,
    /// How far an honest clock may be from true time.
    clock_bound: Micros,
    /// The newest time of any node's clock, if it was looked at for the answer at hand.
    newest_clock: Option<Micros>,
    /// Whether a clock was outside its bound: then claims that rest on clocks are not judged any more.
    clocks_lie: bool,
    /// Whether the judge looks at nothing.
    sleeps: bool,
    violations: Vec<Violation>,
}

/// An answer about one key.
#[derive(Clone)]
struct Seen {
    id: OperationId,
    /// The index of the key among the operation's keys.
    place: u32,
    client: usize,
    /// The number of answers that had been looked at when it was invoked.
    before: u64,
    invoked: Micros,
    over: Micros,
    key: Key,
    server: ServerId,
    /// Whether another replica may have answered: the answer does not say which.
    may_be_another: bool,
    witness: Witness,
    is_careless: bool,
    /// The session, where it is a witness beside the replica, and whether its level promises an order of each key's operations.
    session: Option<(Witness, bool)>,
    /// The session, if its level promises that it never sees less than before.
    remembers: Option<Witness>,
    staleness: Option<Micros>,
    /// The claim covers the writes that at least this many replicas had acknowledged.
    covers: usize,
    /// Whether the claim is true only if clocks keep their bounds.
    rests_on_clocks: bool,
    /// Set if the replica has this version, stamped by a clock that is visibly beyond its bound.
    ahead: Option<Rank>,
    /// Whether it counts as an answer. An acknowledged write shows only itself.
    is_answer: bool,
    /// Whether the receipt says that there are siblings.
    has_siblings: bool,
    /// Whether its replica has decided by what it shows, as the receipt says.
    is_decided_at_site: bool,
    /// Whether it may be as of an earlier moment: it is a part of a snapshot.
    is_of_snapshot: bool,
}

/// An answer that is judged once the version of its value is known.
struct Pending {
    seen: Seen,
    needs: Needs,
}

impl Judge {
    /// What an operation was promised, if the keyspace offers its level.
    fn promise_of(&self, operation: &Operation) -> Promise {
        let level = self.levels.resolve(operation);
        level.map_or(Promise::RealValues, |level| level.promise())
    }

    /// A judge that has seen nothing yet. With sessions, what was shown binds these; without, replicas.
    pub(crate) fn new(topology: Topology, levels: KeyspaceLevels) -> Judge {
        let has_sessions = levels.read.promise().is_causal();
        Judge {
            topology,
            levels,
            has_sessions,
            orders_keys: !has_sessions && levels.offered.all().any(|level| level.promise().orders_keys()),
            asks_elsewhere: false,
            keys: BTreeMap::new(),
            siblings: None,
            ledgers: ledgers::Ledgers::default(),
            numbers: BTreeMap::new(),
            lost_additions: false,
            texts: BTreeMap::new(),
            elements: BTreeMap::new(),
            publications: BTreeMap::new(),
            elements_expire: None,
            values: BTreeMap::new(),
            pending: BTreeMap::new(),
            nothings: BTreeMap::new(),
            tells_losses: false,
            losses: BTreeMap::new(),
            last_loss: Micros(0),
            started: BTreeMap::new(),
            spared: BTreeSet::new(),
            number: 0,
            answers: Judged::default(),
            claims: Judged::default(),
            expiries: Judged::default(),
            decides_at_site: false,
            judges_expiry: false,
            times_seen: BTreeMap::new(),
            clock_bound: Micros(0),
            newest_clock: None,
            clocks_lie: false,
            sleeps: false,
            violations: Vec::new(),
        }
    }

    /// Sites have several nodes: while one of them is away, sessions ask another site about its keys.
    pub(crate) fn with_several_nodes(mut self, several: bool) -> Judge {
        self.asks_elsewhere = several;
        self
    }

    /// Values may expire, or not. `clock_bound`: how far an honest clock may be from true time.
    pub(crate) fn with_expiry(mut self, takes_expiry: bool, clock_bound: Micros) -> Judge {
        (self.judges_expiry, self.clock_bound) = (takes_expiry, clock_bound);
        self
    }

    /// One site decides conditions, or all sites do together.
    pub(crate) fn deciding_at_site(mut self, decides_at_site: bool) -> Judge {
        self.decides_at_site = decides_at_site;
        self
    }

    /// The keyspaces keep siblings, or do not.
    pub(crate) fn with_siblings(mut self, keeps_siblings: bool) -> Judge {
        self.siblings = keeps_siblings.then(siblings::Writes::default);
        self
    }

    /// The violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Reports a violation.
    pub fn report(&mut self, rule: Rule, words: String) {
        self.violations.push(Violation { rule, words });
    }

    /// A node of a site was started.
    pub(crate) fn started(&mut self, site: SiteId, at: Micros) {
        self.started.insert(site, at);
    }

    /// From now on the judge looks at nothing, and remembers nothing.
    pub(crate) fn sleep(&mut self) {
        self.sleeps = true;
    }

    /// Whether the judge looks at nothing.
    pub(crate) fn is_asleep(&self) -> bool {
        self.sleeps
    }

    /// A clock is outside the bound that its node believes in.
    pub(crate) fn distrust_clocks(&mut self) {
        self.clocks_lie = true;
    }

    /// Whether all clocks kept the bounds that their nodes believe in: then every receipt's claim can be judged.
    pub fn trusts_clocks(&self) -> bool {
        !self.clocks_lie
    }

    /// How many answers were judged: reads, keys of reads of several, and what deletes said was there.
    pub fn answers(&self) -> Judged {
        let mut answers = self.answers.clone();
        for waiting in self.pending.values().flatten() {
            answers.count(waiting.needs.has_answer_needs().then_some(Excuse::UnknownOutcome));
        }
        answers
    }

    /// How many receipts' claims of staleness were judged.
    pub fn claims(&self) -> Judged {
        let mut claims = self.claims.clone();
        let waiting = self.pending.values().flatten();
        for waiting in waiting.filter(|waiting| waiting.seen.staleness.is_some()) {
            claims.count(waiting.needs.has_claim().then_some(Excuse::UnknownOutcome));
        }
        claims
    }

    /// The number of answers that were looked at.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    // ---- what happens ---------------------------------------------------------------------------------------

    pub(crate) fn invoked(&mut self, id: OperationId, client: usize, operation: &Operation, now: Micros) {
        if self.sleeps {
            return;
        }
        let is_apart = self.asked_of_number(id, operation, now)
            || self.asked_of_text(operation, now)
            || self.asked_of_twins(operation)
            || self.asked_of_elements(id, operation, now)
            || self.asked_of_ledger(operation);
        if is_apart {
            return;
        }
        let Operation::Put {
            key, value, options, ..
        } = operation
        else {
            return;
        };
        if let Some(writes) = &mut self.siblings {
            writes.asked(id, client, key, options.as_deref());
        }
        let is_retime = operation.retimes().is_some();
        let gone_from = match value {
            None if !is_retime => Some(now),
            _ => self.gone_from(options.as_deref(), now),
        };
        let of_key = self.keys.entry(key.clone()).or_default();
        if is_retime {
            of_key.open_retimes.insert(id);
        }
        if let Some(gone_from) = gone_from {
            of_key.open_deletes.insert(
                id,
                key::OpenDelete {
                    begun: now,
                    gone_from,
                },
            );
        }
        let Some(value) = value else {
            return;
        };
        of_key.unknown_values += 1;
        let written = self.values.entry((key.clone(), value.clone()));
        let first = Written {
            value: Value::Once(None),
            begun: now,
            by: (id, client),
        };
        written
            .and_modify(|known| match known.value {
                Value::Refused => *known = first,
                _ => known.value = Value::Often,
            })
            .or_insert(first);
    }

    /// `ahead` is the version of the key that the answering replica has, if its stamp is visibly from a clock beyond its bound.
    pub(crate) fn returned(&mut self, id: OperationId, record: &Record, site: SiteId, ahead: Option<Rank>) {
        let Some((at, (answer, receipt))) = record.returned.as_ref().filter(|_| !self.sleeps) else {
            return;
        };
        self.number += 1;
        if let Some(Receipt {
            given: Level::Bounded(bound),
            staleness,
            ..
        }) = receipt.as_deref()
            && staleness.is_none_or(|staleness| staleness > *bound)
        {
            let words = format!(
                "client {} was answered at bounded({bound}), and the receipt claims {staleness:?}",
                record.client
            );
            self.report(Rule::TrueReceipts, words);
        }
        if let Some(receipt) = receipt {
            self.check_decided(id, record, receipt);
        }
        let is_apart = self.answered_of_number(id, record)
            || self.answered_of_text(id, record)
            || self.answered_of_twins(id, record)
            || self.answered_of_elements(id, record)
            || self.answered_of_ledger(id, record);
        if is_apart {
            return;
        }
        if let Some(receipt) = receipt {
            self.note_time_seen(record, answer, receipt);
        }
        match (&record.operation, answer, receipt) {
            (Operation::Wait { .. }, Answer::Sites(sites), _) => self.waited_for(id, record, *sites),
            (Operation::Publish { message }, Answer::Published, _) => {
                self.publications
                    .insert(message.text.clone(), waits::Seen::by(id, record));
            }
            (Operation::Put { key, .. }, Answer::Replaced(_) | Answer::Unmet(_), Some(receipt)) => {
                let seen = self.seen(id, record, 0, key, receipt.server, receipt, *at);
                self.told(seen, record, answer, receipt);
            }
            (Operation::Put { key, .. }, Answer::Written { .. }, Some(receipt))
                if record.operation.retimes().is_some() =>
            {
                let seen = self.seen(id, record, 0, key, receipt.server, receipt, *at);
                self.retimed(seen, record, answer, receipt);
            }
            (Operation::Put { key, value, .. }, Answer::Written { existed }, Some(receipt)) => {
                self.check_condition(id, record, true, *existed, None);
                let seen = self.seen(id, record, 0, key, receipt.server, receipt, *at);
                if !existed {
                    self.found_nothing(&seen, record);
                }
                let needs = self.needs(&seen);
                self.written(id, record, key, value.as_ref(), *existed, receipt, *at);
                if *existed {
                    self.found_value(seen, needs, record, receipt.rank());
                }
            }
            (Operation::Put { key, value, .. }, Answer::Failed(failure), _) if failure.is_definite() => {
                self.refused(id, key, value.as_ref());
            }
            (Operation::Put { .. }, Answer::Failed(_), _) => {}
            (_, Answer::Failed(Failure::Unavailable(why)), _) if why.contains(NO_ROOM) => {
                let words = format!(
                    "client {} was refused a read because a disk has too little room: {why}",
                    record.client
                );
                self.report(Rule::Service, words);
            }
            (Operation::Get { key, .. }, Answer::Value(value), Some(receipt)) => {
                let seen = Seen {
                    ahead,
                    ..self.seen(id, record, 0, key, receipt.server, receipt, *at)
                };
                match (value, receipt.rank()) {
                    (Some(value), version) => {
                        if let Some(version) = version {
                            self.note_until(key, version, receipt.until, *at);
                        }
                        self.check_not_expired(&seen, value, version);
                        self.value_read(seen, value, version);
                    }
                    (None, Some(version)) => self.nothing_read(seen, version, receipt.until),
                    (None, None) => {
                        self.note_nothing_seen(record, &seen);
                        self.look(seen, Shown::Nothing { is_forgotten: true });
                    }
                }
            }
            (Operation::Siblings { key, .. }, Answer::Siblings(siblings), Some(receipt)) => {
                let seen = Seen {
                    ahead,
                    ..self.seen(id, record, 0, key, receipt.server, receipt, *at)
                };
                self.siblings_read(seen, siblings);
            }
            (Operation::ReadMany { keys, .. }, Answer::Values(values), Some(receipt)) => {
                let is_snapshot = self.promise_of(&record.operation).makes_snapshots();
                if is_snapshot {
                    let seen = |key| {
                        let server = self.server_of(key, ReplicaId::from(receipt.server.site));
                        self.seen(id, record, 0, key, server, receipt, *at)
                    };
                    let all: Vec<Seen> = keys.iter().map(seen).collect();
                    self.check_one_moment(record, &all, values);
                }
                for (place, (key, value)) in (0..).zip(keys.iter().zip(values)) {
                    let is_number = crate::number::is_one(key);
                    if self.is_computed(key) && !is_number {
                        continue;
                    }
                    // One site reads a snapshot. Otherwise each key is asked for alone, and the answer does not say which replica has answered for it.
                    let from = if is_snapshot { receipt.server.site } else { site };
                    let server = self.server_of(key, ReplicaId::from(from));
                    let mut seen = self.seen(id, record, place, key, server, receipt, *at);
                    let topology = &self.topology;
                    let has_others =
                        topology.members().max() > 1 || !topology.is_everywhere() || self.asks_elsewhere;
                    seen.may_be_another = has_others && !is_snapshot;
                    seen.is_careless |= seen.may_be_another && !self.has_sessions;
                    match value {
                        value if is_number => self.number_read(&seen, value.as_ref(), None),
                        Some(value) => {
                            self.check_not_expired(&seen, value, None);
                            self.value_read(seen, value, None);
                        }
                        None => self.look(seen, Shown::Nothing { is_forgotten: false }),
                    }
                }
            }
            _ => {}
        }
    }

    /// Nothing was read, and the receipt names a delete, or a version that has expired.
    fn nothing_read(&mut self, seen: Seen, version: Rank, until: Option<Micros>) {
        self.note_until(&seen.key, version, until, seen.over);
        match until {
            Some(until) => self.check_expired(&seen, version, until),
            None => self.know(&seen.key, version, false, None, seen.over),
        }
        self.look(seen, Shown::Version(version));
    }

    fn server_of(&self, key: &Key, replica: ReplicaId) -> ServerId {
        let partition = self.topology.partition_of_slot(key.slot());
        ServerId::of(partition, replica)
    }

    /// The number of replicas that must have stored a write when it was acknowledged, by its level. A receipt that names fewer does not excuse a read that
    /// misses the write.
    fn copies_of(&self, key: &Key, receipt: &Receipt) -> usize {
        let partition = self.topology.partition_of_slot(key.slot());
        let all = self.topology.replicas_of(partition).len();
        let promised = receipt.given.replicas_needed(all);
        promised.max(receipt.copies())
    }

    #[allow(clippy::too_many_arguments, reason = "everything that an answer is made of")]
    fn seen(
        &self,
        id: OperationId,
        record: &Record,
        place: u32,
        key: &Key,
        server: ServerId,
        receipt: &Receipt,
        over: Micros,
    ) -> Seen {
        // The past as of a cut: other sessions may have seen more at the same replica.
        let shows_the_past = receipt.cut().is_some();
        Seen {
            id,
            place,
            client: record.client,
            before: record.before,
            invoked: record.invoked,
            over,
            key: key.clone(),
            server,
            may_be_another: false,
            witness: match self.has_sessions || shows_the_past {
                true => Witness::Session(record.client, record.session),
                false => Witness::Replica(server),
            },
            is_careless: self.has_sessions && !self.promise_of(&record.operation).is_causal(),
            session: (self.orders_keys && !shows_the_past).then(|| {
                let session = Witness::Session(record.client, record.session);
                (session, receipt.given.promise().orders_keys())
            }),
            remembers: {
                let session = Witness::Session(record.client, record.session);
                let promise = self.promise_of(&record.operation);
                let is_fresh = self.has_sessions && matches!(promise, Promise::Bounded(_));
                let all = matches!(
                    promise,
                    Promise::Session {
                        ryw: true,
                        mr: true,
                        ..
                    }
                );
                (promise.is_causal() || is_fresh || all).then_some(session)
            },
            staleness: receipt.staleness,
            covers: receipt.covers(),
            rests_on_clocks: receipt.clock_bound > Micros(0),
            ahead: None,
            is_answer: true,
            has_siblings: receipt.siblings,
            is_decided_at_site: receipt.decided_at_site,
            is_of_snapshot: matches!(record.operation, Operation::ReadMany { .. }),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "everything that an answer is made of")]
    fn written(
        &mut self,
        id: OperationId,
        record: &Record,
        key: &Key,
        value: Option<&Bytes>,
        existed: bool,
        receipt: &Receipt,
        at: Micros,
    ) {
        // What it was decided on is judged apart: this replica has now acknowledged the write itself, too.
        let seen = Seen {
            is_decided_at_site: false,
            ..self.seen(id, record, 0, key, receipt.server, receipt, at)
        };
        self.close(id, key);
        match (value, existed, receipt.rank()) {
            (None, false, _) if record.replaced_nothing() => {}
            // A delete of a key without a value writes nothing.
            (None, false, None) => self.look(seen, Shown::Nothing { is_forgotten: true }),
            (None, false, Some(version)) => self.nothing_read(seen, version, receipt.until),
            (_, _, None) => self.report(
                Rule::Service,
                format!("a write to {key} was acknowledged without a version"),
            ),
            (_, _, Some(version)) => {
                self.stamped(&seen, version);
                let copies = self.copies_of(key, receipt);
                let of_key = self.keys.entry(key.clone()).or_default();
                of_key.acknowledge(at, version, copies);
                if let Some(writes) = &mut self.siblings {
                    writes.acknowledge(key, version, at, copies);
                }
                match value {
                    Some(value) => {
                        self.check_asked(record, key, version, existed, receipt.until);
                        self.note_until(key, version, receipt.until, at);
                        self.learn(key, value, version, at);
                    }
                    None => {
                        self.know(key, version, false, Some(record.invoked), at);
                        if let Some(writes) = &mut self.siblings {
                            // There may have been a value beside a newer delete.
                            writes.learn(key, version, Some(id));
                        } else {
                            self.look(seen.clone(), Shown::ValueBelow(version));
                        }
                    }
                }
                let stamp = Seen {
                    is_answer: false,
                    ..seen
                };
                self.look(stamp, Shown::Version(version));
            }
        }
    }

    /// A write that a replica acknowledges must be newer than those that it had acknowledged before the write was asked for. Otherwise the
    /// older one wins.
    fn stamped(&mut self, seen: &Seen, version: Rank) {
        let Some(of_key) = self.keys.get(&seen.key) else {
            return;
        };
        let before = of_key.acknowledged_until(seen.invoked);
        if before.last().is_none_or(|last| last.newest().0 <= version) {
            return;
        }
        let is_above =
            |write: &&Acknowledged| write.version.id.replica == version.id.replica && write.version > version;
        let above = before.iter().filter(is_above).map(|write| write.version);
        if let Some(above) = above.filter(|&above| !self.is_lost(&seen.key, above)).max() {
            let words = format!(
                "operation {}: replica {} stamps {version} for {}, below {above}, which it had acknowledged before",
                seen.id.0, seen.server, seen.key
            );
            self.report(Rule::NothingLost, words);
        }
    }

    /// A write was answered.
    fn close(&mut self, id: OperationId, key: &Key) {
        let of_key = self.keys.entry(key.clone()).or_default();
        of_key.open_deletes.remove(&id);
        of_key.open_retimes.remove(&id);
    }

    // ---- judging --------------------------------------------------------------------------------------------

    fn look(&mut self, seen: Seen, shown: Shown) {
        let needs = self.needs(&seen);
        self.judge(seen, needs, shown);
    }

    fn judge(&mut self, seen: Seen, needs: Needs, shown: Shown) {
        let clocks = self.clocks_of(&seen);
        let Some(of_key) = self.keys.get_mut(&seen.key) else {
            return;
        };
        of_key.clocks = if self.clocks_lie { Micros::MAX } else { clocks };
        let of_key = &*of_key;
        let verdict = needs.judge(of_key, &seen, shown);
        if seen.is_answer {
            self.answers.count(verdict.answer);
        }
        // What a delete found is no claim of its own: the receipt is that of the delete.
        if seen.staleness.is_some() && !matches!(shown, Shown::ValueBelow(_)) {
            self.claims.count(verdict.claim);
        }
        let is_wrong = !verdict.violations.is_empty();
        self.violations.extend(verdict.violations);
        if !is_wrong {
            self.raise(&seen, shown, needs.highest());
        }
    }

    /// What was shown is a floor for later answers.
    fn raise(&mut self, seen: &Seen, shown: Shown, met: Option<Floor>) {
        let is_from_before_loss = self.is_from_before_loss(seen);
        let number = self.number;
        let of_key = self.keys.entry(seen.key.clone()).or_default();
        if let (Shown::Nothing { .. }, Some(floor)) = (shown, met) {
            let clocks = of_key.clocks;
            self.nothings
                .insert((seen.id, seen.place), key::Nothing { floor, clocks });
        }
        if let Shown::Version(version) = shown
            && !is_from_before_loss
            && !seen.may_be_another
        {
            let first = of_key.shown.entry(seen.server).or_default();
            first.entry(version).or_insert(seen.over);
        }
        let Some(floor) = of_key.floor_of(shown, met) else {
            return;
        };
        let raised = Raised {
            floor,
            number,
            id: seen.id,
            client: seen.client,
            at: seen.over,
        };
        if self.has_sessions && shown == (Shown::Nothing { is_forgotten: true }) {
            let last_loss = self.last_loss;
            of_key.forgotten.raise(raised, |known| known.at > last_loss);
        }
        if let Some((session, _)) = seen.session {
            self.raise_floor(session, &seen.key, raised);
        }
        let is_replica = matches!(seen.witness, Witness::Replica(_));
        let is_bound = !(seen.is_careless || is_replica && is_from_before_loss);
        if is_bound {
            self.raise_floor(seen.witness, &seen.key, raised);
        }
    }

    fn raise_floor(&mut self, witness: Witness, key: &Key, raised: Raised) {
        let of_key = self.keys.entry(key.clone()).or_default();
        let mut floors = of_key.floors.remove(&witness).unwrap_or_default();
        let is_replica = matches!(witness, Witness::Replica(_));
        floors.raise(raised, |known| {
            is_replica || !self.is_lost(key, known.floor.version)
        });
        let of_key = self.keys.entry(key.clone()).or_default();
        of_key.floors.insert(witness, floors);
    }

    /// Sessions are told of what was lost.
    #[must_use]
    pub(crate) fn telling_losses(self, tells_losses: bool) -> Judge {
        Judge { tells_losses, ..self }
    }

    // ---- the end --------------------------------------------------------------------------------------------

    /// In the end: the version of a key that a site has.
    pub(crate) fn ends_with(&mut self, site: &str, key: &Key, version: Option<Rank>) {
        let Some(of_key) = self.keys.get(key).filter(|_| !self.is_computed(key)) else {
            return;
        };
        let shown = version.map_or(Shown::Nothing { is_forgotten: true }, Shown::Version);
        // A replica has shown it and has not lost power since.
        let is_kept = |version: Rank| of_key.shown.values().any(|shown| shown.contains_key(&version));
        let missing = of_key.acknowledged.iter().filter(|write| {
            of_key.is_met(shown, Some(Floor::at_least(write.version))) == Met::No
                && (!self.is_lost(key, write.version) || is_kept(write.version))
        });
        if let Some(lost) = missing.max_by_key(|write| write.version) {
            let text = format!(
                "site {site} lost version {} of {key}, acknowledged at {}: it has {}",
                lost.version,
                lost.at,
                name(version)
            );
            self.report(Rule::NothingLost, text);
        }
    }

    /// All keys that were ever written or read.
    pub fn keys(&self) -> BTreeSet<Key> {
        let written = self.values.keys().map(|(key, _)| key.clone());
        let computed = self.computed_keys().cloned();
        self.keys.keys().cloned().chain(written).chain(computed).collect()
    }
}

fn name(version: Option<Rank>) -> String {
    version.map_or("nothing".to_string(), |version| format!("version {version}"))
}
