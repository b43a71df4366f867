//! What each consistency level promises ([`Promise`]), as far as a trace can show that it was broken.
//!
//! | level | broken by |
//! |---|---|
//! | every level | a read of a value that no client wrote, or whose write began only after the read was over |
//! | `eventual` | nothing else |
//! | the four session guarantees, `session`, `per-key-causal` | a read that breaks one of them, within its key |
//! | `bounded(t)` | a read that missed a write that its receipt covers, and that had been over for longer than t when it began |
//! | `atomic`, `linearizable` | an operation in the lightest removal that leaves the promised operations of its key atomic |
//! | `per-key-sequential` | a read that breaks a session guarantee within its key, where versions order the writes |
//! | `sequential`, where receipts say as of which moment was read | a read that does not show the newest version up to that moment, or an operation with which its session goes back |
//! | `causal`, the other sequential ones | whatever the orders of the whole trace say ([`crate::Orders`], [`LevelJudge::learn`]); a trace that is atomic as a whole has all of them |
//! | `one`, `quorum`, `all`, `cpq`, `delay` | cannot be judged: they promise how an operation is carried out, which no client sees |
//!
//! # Values from before the trace
//!
//! For a read of such a value, no level is judged as kept, because the trace does not show whether the value was written at all. A level
//! can be judged as broken.
//!
//! # Weaker operations in the same trace
//!
//! A promise binds the operation that was given it. So reads at weaker levels are left out where atomicity is judged, and writes at
//! weaker levels may take effect at any time after they began. A session guarantee and a bound are promised to the reader: they hold for
//! all writes. An order is an order of all operations: if there is none, an operation counts as broken only if all operations of the trace were
//! promised the order.
//!
//! # Writes that a receipt covers
//!
//! The receipt of a read may say that it covers only writes that at least k replicas had stored when they were acknowledged. Then neither its
//! staleness nor a bound is broken by other writes. How many replicas those were is in the receipt of the write; it is 1 where no receipt says it.
//! Without a receipt, a read covers every write.
//!
//! # Clocks
//!
//! Times of one recorder compare as they are. Between recorders they compare within twice the error of the clocks; if it is not known how
//! large that is, verdicts that depend on it cannot be given. A write and a read that one recorder timed, with versions to order writes, depend
//! on no other clock.
use crate::{
    Broken, History, Kind, Operation, Order, Zones, cuts::Cuts, each_session_violation, order::is_sensible,
    staleness::Missable,
};
use indexmap::IndexMap;
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    hash::RandomState,
};
use turnbuckle_core::{Level, Promise, PromisedOrder};

/// What a trace says about a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The trace does not contradict it.
    NotContradicted,
    /// It cannot be judged, and why.
    NotAuditable(&'static str),
    /// It was broken: the promise, in words.
    False(&'static str),
}

/// At most as many as a signed number holds.
pub(crate) fn nanoseconds(microseconds: u64) -> i64 {
    i64::try_from(microseconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

const FROM_BEFORE: &str =
    "a value from before the trace was read: the trace does not say whether it was ever written";
const MISSED: Verdict =
    Verdict::False("it missed a write that had been acknowledged for longer than the bound");
const MISSED_COVERED: Verdict = Verdict::False(
    "it missed a write that its receipt covers, and that had been acknowledged for longer than the bound",
);
const EVERY_GUARANTEE: Promise = Promise::Session {
    ryw: true,
    mr: true,
    mw: true,
    wfr: true,
};
const CLOCKS: &str = "several recorders, and it is not known how far their clocks may be off";

/// What is normal at a level, and what is not, in one sentence for readers of a report.
pub fn normal(level: Level) -> String {
    let session = |not: &str| format!("stale reads are allowed; {not}");
    match level.promise() {
        Promise::RealValues => {
            "stale reads and reads that go back are allowed; lost acknowledged writes are not".into()
        }
        Promise::Session { ryw, mr, mw, wfr } => session(match (ryw, mr, mw, wfr) {
            (true, false, false, false) => "reads that miss the session's own writes are not",
            (false, true, false, false) => "reads of a key that go back in a session are not",
            (false, false, true, false) => "a client's writes of a key that are seen out of order are not",
            (false, false, false, true) => {
                "a write of a key that is seen without what its writer had read is not"
            }
            _ => "reads of a key that go back in a session, or miss its own writes, are not",
        }),
        Promise::Bounded(bound) => {
            format!("reads that are stale for up to {bound} are allowed; staler reads are not")
        }
        Promise::OneCopy => "stale reads and reads that go back are not allowed".into(),
        Promise::Order(PromisedOrder::Causal) => {
            session("reads that go back, or that miss a write that causally precedes them, are not")
        }
        Promise::Order(PromisedOrder::Sequential) => {
            session("reads that no single order of all operations explains are not")
        }
        Promise::Order(PromisedOrder::PartitionSequential) => {
            session("reads that no single order of a partition's operations explains are not")
        }
        Promise::Order(PromisedOrder::PerKeySequential) => {
            session("reads that no single order of a key's operations explains are not")
        }
        Promise::Procedure => {
            "the level says how an operation is carried out, so no trace shows whether it was kept".into()
        }
    }
}

/// Judges promises, one operation at a time.
pub struct LevelJudge<'a> {
    history: &'a History,
    order: Order,
    /// How far clocks may be off, in nanoseconds. `None` if that is not known.
    skew: Option<i64>,
    writes: Writes,
    /// Where a receipt covers only some writes.
    covered: Covered,
    groups: Groups,
    /// The reads that break a session guarantee.
    broken: HashMap<usize, Broken>,
    /// The order that receipts claim.
    cuts: Cuts,
    /// For each operation, whether no order of that kind explains it.
    learnt: HashMap<PromisedOrder, Vec<bool>>,
    /// One copy explains the whole trace.
    is_atomic: bool,
}

impl<'a> LevelJudge<'a> {
    /// A judge of a trace whose recorders' clocks are each off by at most `skew` nanoseconds. O(n log n), and what session guarantees
    /// take.
    pub fn new(history: &'a History, skew: Option<i64>) -> LevelJudge<'a> {
        let skew = if history.has_one_clock() {
            Some(0)
        } else {
            skew.map(|skew| skew.max(0))
        };
        let margin = skew.unwrap_or(0).saturating_mul(2);
        let order = Order::with_margin(history, margin);
        let mut groups = Groups::default();
        if !history.has_one_clock() {
            for operation in &history.operations {
                if let Some(recorder) = history.recorder_of[operation.client as usize] {
                    groups.entry((operation.key, recorder)).or_insert(());
                }
            }
        }
        let mut broken = HashMap::new();
        each_session_violation(history, &order, |place, what| {
            broken.insert(place, what);
        });
        let mut judge = LevelJudge {
            history,
            skew,
            writes: Writes::of(history, &order, &groups, |_| true),
            covered: Covered::of(history, &order, &groups),
            order,
            groups,
            broken,
            cuts: Cuts::of(history),
            learnt: HashMap::new(),
            is_atomic: false,
        };
        judge.is_atomic = judge.skew == Some(0)
            && history.not_auditable.is_empty()
            && history.doubtful_reads == 0
            && history.taken_away.is_empty()
            && Zones::of(history).iter().all(Zones::is_atomic);
        judge
    }

    /// Takes in what an analysis of the whole trace has found: for each operation, whether no order of that kind explains it.
    pub fn learn(&mut self, ordering: PromisedOrder, contradicted: Vec<bool>) {
        self.learnt.insert(ordering, contradicted);
    }

    /// How many operations are not where their receipts place them in the order of all operations.
    pub(crate) fn out_of_order(&self) -> u64 {
        self.cuts.broken()
    }

    /// The reads that break a session guarantee, by place; clocks may be off.
    pub(crate) fn broken(&self) -> &HashMap<usize, Broken> {
        &self.broken
    }

    /// What orders writes.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Judges some operations at one level, in their order, as if all operations had been promised it. `places` rise.
    pub fn level(&self, level: Level, places: &[usize]) -> Vec<Verdict> {
        self.judge(level, places, false)
    }

    /// Judges the operations that were promised a level. `places` rise. What other operations were promised counts, too: whether writes are in order is a promise of those writes.
    pub fn promised(&self, level: Level, places: &[usize]) -> Vec<Verdict> {
        self.judge(level, places, true)
    }

    fn judge(&self, level: Level, places: &[usize], as_promised: bool) -> Vec<Verdict> {
        let promise = level.promise();
        let one_copy = match promise {
            Promise::OneCopy => self.one_copy(places),
            _ => Vec::new(),
        };
        // Places rise, so they are all if they are as many.
        let is_all = places.len() == self.history.recorded();
        let judged = places.iter().enumerate().map(|(number, &place)| {
            let by_promise = match promise {
                Promise::RealValues => Verdict::NotContradicted,
                Promise::Session { .. } => self.session(promise, place, as_promised),
                Promise::Bounded(bound) => self.staleness(place, nanoseconds(bound.0)),
                Promise::OneCopy => one_copy[number],
                Promise::Order(PromisedOrder::PerKeySequential) => self.per_key(place, is_all),
                Promise::Order(PromisedOrder::Sequential) => match self.cuts.verdict(place) {
                    Some(Some(why)) => Verdict::False(why),
                    Some(None) => Verdict::NotContradicted,
                    None => self.ordering(PromisedOrder::Sequential, place, is_all),
                },
                Promise::Order(ordering) => self.ordering(ordering, place, is_all),
                Promise::Procedure => {
                    Verdict::NotAuditable("the level says how an operation is carried out, not what it shows")
                }
            };
            self.real_value(place).max(by_promise)
        });
        judged.collect()
    }

    /// Whether the value was written, and before the read was over.
    fn real_value(&self, place: usize) -> Verdict {
        let operation = &self.history.operations[place];
        if operation.kind != Kind::Read {
            return Verdict::NotContradicted;
        }
        if self.history.keys[operation.key as usize].is_phantom(operation.value) {
            return Verdict::False("it read a value that no client wrote");
        }
        let Some(write) = self.history.writer_of(operation) else {
            return Verdict::NotContradicted;
        };
        if write.is_from_before() {
            return Verdict::NotAuditable(FROM_BEFORE);
        }
        let early = write.start.saturating_sub(operation.finish);
        let margin = match self.have_one_clock(operation, write) {
            true => Some(0),
            false => self.skew.map(|skew| skew.saturating_mul(2)),
        };
        match margin {
            _ if early <= 0 => Verdict::NotContradicted,
            None => Verdict::NotAuditable(CLOCKS),
            Some(margin) if early > margin => {
                Verdict::False("it was over before the write of its value began")
            }
            Some(_) => Verdict::NotContradicted,
        }
    }

    fn have_one_clock(&self, one: &Operation, other: &Operation) -> bool {
        let recorder = |operation: &Operation| self.history.recorder_of[operation.client as usize];
        recorder(one).is_some() && recorder(one) == recorder(other)
    }

    fn session(&self, promise: Promise, place: usize, as_promised: bool) -> Verdict {
        let read = &self.history.operations[place];
        let Promise::Session { ryw, mr, mw, wfr } = promise else {
            return Verdict::NotContradicted;
        };
        if read.kind != Kind::Read {
            return Verdict::NotContradicted;
        }
        if self.skew.is_none() && !self.order.is_by_versions(read.key) {
            return Verdict::NotAuditable(CLOCKS);
        }
        if self.history.recorder_of[read.client as usize].is_none() {
            return Verdict::NotAuditable("several recorders timed one client, so its session has no order");
        }
        let writes = |broken: &Broken| match as_promised {
            true => (broken.mw_promised, broken.wfr_promised),
            false => (broken.mw_within_key, broken.wfr_within_key),
        };
        match self.broken.get(&place) {
            Some(broken) if ryw && broken.ryw => {
                Verdict::False("it did not read what its client had written")
            }
            Some(broken) if mr && broken.mr => {
                Verdict::False("it read a value older than one that its client had read")
            }
            Some(broken) if mw && writes(broken).0 => Verdict::False(
                "it read a client's write, although a later write of that client had been read before",
            ),
            Some(broken) if wfr && writes(broken).1 => {
                Verdict::False("it read a value that had been replaced by a write that was read before")
            }
            _ => Verdict::NotContradicted,
        }
    }

    /// Whether an operation reflects every write of its key that its receipt covers, and that was over `bound` nanoseconds before it began.
    /// Without a receipt it covers every write.
    pub fn staleness(&self, place: usize, bound: i64) -> Verdict {
        let read = &self.history.operations[place];
        if read.kind != Kind::Read || !is_sensible(self.history, read) {
            return Verdict::NotContradicted;
        }
        let (writes, broken) = match self.covered.writes_for(place) {
            Some(covered) => (covered, MISSED_COVERED),
            None => (&self.writes, MISSED),
        };
        let by_versions = self.order.is_by_versions(read.key);
        if by_versions
            && let Some(group) = group_of(self.history, &self.groups, read)
            && let Some(missed) = writes.by_recorder.missed(group, read, &self.order)
            && missed > bound
        {
            return broken;
        }
        let Some(skew) = self.skew else {
            return Verdict::NotAuditable(CLOCKS);
        };
        let allowed = bound.saturating_add(skew.saturating_mul(2));
        match writes.by_key.missed(read.key as usize, read, &self.order) {
            Some(missed) if missed > allowed => broken,
            // Only versions say whether it is newer than every write that it must reflect.
            _ if self.history.reads_from_before(read) && !self.order.has_version(self.history, read) => {
                Verdict::NotAuditable(FROM_BEFORE)
            }
            _ => Verdict::NotContradicted,
        }
    }

    fn one_copy(&self, places: &[usize]) -> Vec<Verdict> {
        let Some(skew) = self.skew else {
            return vec![Verdict::NotAuditable(CLOCKS); places.len()];
        };
        let mut is_promised = vec![false; self.history.operations.len()];
        places.iter().for_each(|&place| is_promised[place] = true);
        let zones = Zones::of_some(self.history, |place| is_promised[place]);
        let removed: Vec<Vec<crate::Value>> = zones.iter().map(|zones| zones.removal(skew)).collect();
        let judge = |&place: &usize| {
            let operation = &self.history.operations[place];
            match removed[operation.key as usize].binary_search(&operation.value) {
                Ok(_) => Verdict::False("one copy of the data does not explain it"),
                Err(_) => Verdict::NotContradicted,
            }
        };
        places.iter().map(judge).collect()
    }

    /// The order of versions is the order that a store with this level promises. It explains an answer if the session never goes back in it.
    fn per_key(&self, place: usize, is_all: bool) -> Verdict {
        let operation = &self.history.operations[place];
        match self.order.is_by_versions(operation.key) {
            true => self.session(EVERY_GUARANTEE, place, false),
            false => self.ordering(PromisedOrder::PerKeySequential, place, is_all),
        }
    }

    fn ordering(&self, ordering: PromisedOrder, place: usize, is_all: bool) -> Verdict {
        match self.learnt.get(&ordering).map(|contradicted| contradicted[place]) {
            // Operations at other levels may be the reason why there is no order.
            Some(true) if !is_all => Verdict::NotAuditable(
                "no order explains it together with operations that were promised another level",
            ),
            Some(true) => Verdict::False("no order of operations explains it"),
            Some(false) => Verdict::NotContradicted,
            None if self.is_atomic => Verdict::NotContradicted,
            None => Verdict::NotAuditable("it was not decided whether there is such an order"),
        }
    }
}

/// The writes that a read must not have missed.
struct Writes {
    by_key: Missable,
    /// The same for each key and recorder, where there are several.
    by_recorder: Missable,
}

impl Writes {
    /// The writes at the places that `counts` is true of. O(n log n).
    fn of(history: &History, order: &Order, groups: &Groups, counts: impl Fn(usize) -> bool) -> Writes {
        let key = |place, write: &Operation| counts(place).then_some(write.key as usize);
        let group = |place, write: &Operation| group_of(history, groups, write).filter(|_| counts(place));
        Writes {
            by_key: Missable::of(history, order, key),
            by_recorder: Missable::of(history, order, group),
        }
    }
}

/// The writes that receipts cover, where that is not every write. Empty if every receipt covers every write.
#[derive(Default)]
struct Covered {
    /// For each read, how many replicas at least had stored each write that its receipt covers. 1 for other operations.
    covers: Vec<u8>,
    /// By that number, which is above 1.
    writes: BTreeMap<u8, Writes>,
}

impl Covered {
    /// O(n log n) for each number above 1 in the receipts of reads. If every receipt covers every write, one pass over the receipts.
    fn of(history: &History, order: &Order, groups: &Groups) -> Covered {
        let receipts = || {
            let promises = history.promises.iter();
            promises.filter_map(|promise| Some((promise.operations.clone(), promise.receipt?)))
        };
        if receipts().all(|(_, receipt)| receipt.covers <= 1) {
            return Covered::default();
        }
        let mut covers = vec![1; history.operations.len()];
        let mut copies = vec![1; history.operations.len()];
        for (operations, receipt) in receipts() {
            for place in operations.map(|place| place as usize) {
                match history.operations[place].kind {
                    Kind::Read => covers[place] = receipt.covers,
                    Kind::Write | Kind::UnknownWrite => copies[place] = receipt.copies,
                }
            }
        }
        let mut writes = BTreeMap::new();
        for &least in covers.iter().filter(|&&least| least > 1) {
            let these = || Writes::of(history, order, groups, |place| copies[place] >= least);
            writes.entry(least).or_insert_with(these);
        }
        Covered { covers, writes }
    }

    /// The writes that the receipt of an operation covers. `None`: every write.
    fn writes_for(&self, place: usize) -> Option<&Writes> {
        self.writes.get(self.covers.get(place)?)
    }
}

/// Keys, and the recorders that timed operations on them.
type Groups = IndexMap<(u32, u32), (), RandomState>;

/// Operations on one key that one recorder timed; none where one clock timed everything.
fn group_of(history: &History, groups: &Groups, operation: &Operation) -> Option<usize> {
    let recorder = history.recorder_of[operation.client as usize]?;
    groups.get_index_of(&(operation.key, recorder))
}
