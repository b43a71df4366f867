//! What must be true of ledgers (`ledger.rs`), and of all keys whose values are computed.
//!
//! 1. **All or nothing.** A transaction that reads a ledger finds the same entries in its list and in its twin, and their number in its count.
//! 2. **One order, and each entry once.** Of two lists that were read, one begins with the other. No entry is in a list twice.
//! 3. **Each answer is exact.** The count that an entry was told is its place in the list. It is above the counts that were told before the entry was asked for, and
//!    not above the number of entries that were asked for.
//! 4. **Nothing acknowledged is missing, and nothing refused is there.** A read at `linearizable`, or by a transaction, has every entry that was acknowledged before it was asked for.
//! 5. **Conditions.** An entry on the condition of a version comes right behind what that version has. If the condition did not hold, there was another entry.
//! 6. **Ids are unique.** No id is drawn twice, and each is above those that were drawn before it was asked for.
//!
//! The judge's other rules do not look at these keys: what an operation has written is known only from its answer.
use super::{Judge, Rule};
use crate::ledger::{COUNT, IDS, LIST, TWIN, number_of, numbers, place};
use crate::{OperationId, Record};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{Answer, Computed, Condition, Key, Level, Operation, Rank, Receipt, Step, Transaction};

/// The keys whose values are computed, and the ledgers among them.
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    computed: BTreeSet<Key>,
    ledgers: BTreeMap<Bytes, Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// The entries that were asked for.
    entries: BTreeMap<u64, Entry>,
    /// The longest list that was read.
    longest: Vec<u64>,
    /// The entry with each place, as it was told.
    places: BTreeMap<u64, u64>,
    told: Rising,
    /// How many entries the list has as of a version.
    lengths: BTreeMap<Rank, usize>,
    ids: BTreeSet<u64>,
    drawn: Rising,
    /// How many ids were asked for.
    ids_asked: u64,
}

#[derive(Debug)]
struct Entry {
    /// What the list has as of the version that its condition names, if that is known.
    behind: Option<usize>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It may be there.
    Open,
    /// It is there.
    There,
    /// It certainly is not.
    Never,
}

/// Numbers that were told, each with the number of answers before it.
#[derive(Debug, Default)]
struct Rising(Vec<(u64, u64)>);

impl Rising {
    fn note(&mut self, number: u64, told: u64) {
        let highest = self.0.last().map_or(0, |&(_, highest)| highest);
        self.0.push((number, highest.max(told)));
    }

    /// The highest of the first `before` answers.
    fn before(&self, before: u64) -> u64 {
        let behind = self.0.partition_point(|&(number, _)| number <= before);
        behind.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

/// What is wrong, in words.
type Found = Result<(), String>;

impl Ledger {
    fn asked(&mut self, number: u64, transaction: &Transaction) {
        let behind = transaction
            .conditions
            .iter()
            .find_map(|(_, condition)| match condition {
                Condition::Version(version) => self.lengths.get(&Rank::of(*version)).copied(),
                Condition::Absent => Some(0),
                Condition::Present => None,
            });
        let state = State::Open;
        self.entries.insert(number, Entry { behind, state });
    }

    fn set(&mut self, number: u64, state: State) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.state = state;
        }
    }

    /// An entry was carried out, and is told its place.
    fn told(&mut self, number: u64, place: u64, before: u64, answers: u64) -> Found {
        self.set(number, State::There);
        let least = self.told.before(before);
        self.told.note(answers, place);
        let asked = self
            .entries
            .values()
            .filter(|entry| entry.state != State::Never)
            .count();
        if place <= least || place > asked as u64 {
            return Err(format!(
                "entry {number} is told that it is the {place}th, and {least} were there before it was asked for, and {asked} were asked for"
            ));
        }
        if let Some(other) = self.places.insert(place, number) {
            return Err(format!(
                "entries {other} and {number} are both told that they are the {place}th"
            ));
        }
        let behind = self.entries.get(&number).and_then(|entry| entry.behind);
        if behind.is_some_and(|behind| behind as u64 + 1 != place) {
            return Err(format!(
                "entry {number} is the {place}th, and its condition is on the version with {behind:?} entries"
            ));
        }
        self.check_places()
    }

    /// The condition of an entry did not hold.
    fn unmet(&mut self, number: u64) -> Found {
        self.set(number, State::Never);
        let may_be = self
            .entries
            .values()
            .filter(|entry| entry.state != State::Never)
            .count();
        match self.entries.get(&number).and_then(|entry| entry.behind) {
            Some(behind) if may_be <= behind => Err(format!(
                "the condition of entry {number} did not hold, and no other entry can have come behind the {behind} that it had read"
            )),
            _ => Ok(()),
        }
    }

    /// A list was read. `least` is the number of entries that it must have.
    fn read(&mut self, list: &[u64], version: Option<Rank>, least: u64) -> Found {
        if let Some(version) = version {
            self.lengths.insert(version, list.len());
        }
        let common = list.len().min(self.longest.len());
        if list[..common] != self.longest[..common] {
            return Err(format!(
                "a list is read as {list:?}, and another one as {:?}",
                self.longest
            ));
        }
        if (list.len() as u64) < least {
            return Err(format!(
                "a list is read with {} entries, and {least} were acknowledged before",
                list.len()
            ));
        }
        for (place, number) in (0..).zip(list).skip(common) {
            if list[..place].contains(number) {
                return Err(format!("entry {number} was carried out twice: {list:?}"));
            }
            match self.entries.get(number).map(|entry| entry.state) {
                None => return Err(format!("entry {number} was never asked for")),
                Some(State::Never) => {
                    return Err(format!(
                        "entry {number} is in the list, and was certainly not carried out"
                    ));
                }
                Some(_) => {}
            }
            self.longest.push(*number);
        }
        self.check_places()
    }

    /// Whether entries are where they were told that they are.
    fn check_places(&mut self) -> Found {
        // What is in the list that was read is checked once.
        let behind = self.places.split_off(&(self.longest.len() as u64 + 1));
        let known = std::mem::replace(&mut self.places, behind);
        for (place, number) in known {
            let there = self.longest[place as usize - 1];
            if there != number {
                return Err(format!(
                    "entry {number} is told that it is the {place}th, and entry {there} is"
                ));
            }
        }
        Ok(())
    }

    fn id_drawn(&mut self, id: u64, before: u64, answers: u64) -> Found {
        let least = self.drawn.before(before);
        self.drawn.note(answers, id);
        if !self.ids.insert(id) {
            return Err(format!("the id {id} was drawn twice"));
        }
        self.check_ids(id, least + 1)
    }

    fn check_ids(&self, id: u64, least: u64) -> Found {
        match (least..=self.ids_asked).contains(&id) {
            true => Ok(()),
            false => Err(format!(
                "an id is {id}, and must be at least {least}, because lower ones were drawn before, and at most {}, the number of ids that were asked for",
                self.ids_asked
            )),
        }
    }
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

impl Judge {
    /// Whether the value of a key is computed, or written by transactions.
    pub(crate) fn is_computed(&self, key: &Key) -> bool {
        !self.ledgers.computed.is_empty() && self.ledgers.computed.contains(key)
    }

    /// The keys whose values are computed, or written by transactions.
    pub(super) fn computed_keys(&self) -> impl Iterator<Item = &Key> {
        self.ledgers.computed.iter()
    }

    /// The value of this key is computed.
    pub(super) fn computes(&mut self, key: &Key) {
        self.ledgers.computed.insert(key.clone());
    }

    fn ledger_of(&mut self, key: &Key) -> Option<(&mut Ledger, String)> {
        let (ledger, name) = place(key)?;
        let name = name.to_string();
        Some((self.ledgers.ledgers.entry(ledger).or_default(), name))
    }

    fn check_ledger(&mut self, id: OperationId, key: &Key, found: Found) {
        if let Err(found) = found {
            self.report(
                Rule::Transactions,
                format!("operation {} on {key}: {found}", id.0),
            );
        }
    }

    /// Takes note of a transaction, or of a put that computes its value. Returns whether it is one of these.
    pub(super) fn asked_of_ledger(&mut self, operation: &Operation) -> bool {
        match operation {
            Operation::Transact { transaction, .. } => {
                self.ledgers.computed.extend(transaction.keys().cloned());
                if let (Some(number), Some(step)) = (number_of(transaction), transaction.steps.first())
                    && let Some((ledger, _)) = self.ledger_of(step.key())
                {
                    ledger.asked(number, transaction);
                }
                true
            }
            Operation::Put { key, .. } if operation.computes() => {
                self.ledgers.computed.insert(key.clone());
                if let Some((ledger, name)) = self.ledger_of(key)
                    && name == IDS
                {
                    ledger.ids_asked += 1;
                }
                true
            }
            _ => false,
        }
    }

    /// Judges the answer of a transaction, or of an operation on a key whose value is computed. Returns whether it is one of these.
    pub(super) fn answered_of_ledger(&mut self, id: OperationId, record: &Record) -> bool {
        let Some((_, (answer, receipt))) = &record.returned else {
            return false;
        };
        match &record.operation {
            Operation::Transact { transaction, .. } => {
                self.transacted(id, record, transaction, answer);
                true
            }
            Operation::Put { key, .. } | Operation::Get { key, .. } if self.is_computed(key) => {
                self.answered_of_key(id, record, key, answer, receipt.as_deref());
                true
            }
            _ => false,
        }
    }

    fn transacted(&mut self, id: OperationId, record: &Record, transaction: &Transaction, answer: &Answer) {
        let answers = self.number;
        let Some(first) = transaction.steps.first().map(Step::key) else {
            return;
        };
        let Some((ledger, _)) = self.ledger_of(first) else {
            return;
        };
        let entry = number_of(transaction);
        let found = match (entry, answer) {
            (Some(number), Answer::Failed(failure)) if failure.is_definite() => {
                ledger.set(number, State::Never);
                Ok(())
            }
            (Some(number), Answer::Transacted(None)) => ledger.unmet(number),
            (None, Answer::Transacted(None)) => {
                Err("a transaction without conditions was refused".to_string())
            }
            (_, Answer::Transacted(Some(steps))) => {
                let told = Told::of(transaction, steps);
                match (entry, told) {
                    (_, Err(found)) => Err(found),
                    (Some(number), Ok(told)) => ledger.told(number, told.count, record.before, answers),
                    (None, Ok(told)) => {
                        let least = ledger.told.before(record.before);
                        ledger.read(&told.list, None, least)
                    }
                }
            }
            _ => Ok(()),
        };
        self.check_ledger(id, first, found);
    }

    fn answered_of_key(
        &mut self,
        id: OperationId,
        record: &Record,
        key: &Key,
        answer: &Answer,
        receipt: Option<&Receipt>,
    ) {
        let answers = self.number;
        let is_linearizable = receipt.is_some_and(|receipt| receipt.given == Level::Linearizable);
        let Some((ledger, name)) = self.ledger_of(key) else {
            return;
        };
        let found = match (name.as_str(), answer) {
            (LIST | TWIN, Answer::Value(value)) => {
                let list = value.as_ref().map_or(Some(Vec::new()), |value| numbers(value));
                let least = ledger.told.before(record.before);
                let version = receipt
                    .and_then(|receipt| receipt.rank())
                    .filter(|_| name == LIST);
                match list {
                    Some(list) => ledger.read(&list, version, if is_linearizable { least } else { 0 }),
                    None => Err(format!("{value:?} is no list")),
                }
            }
            (IDS, Answer::Computed(Computed::Number(value))) => match number(value) {
                Some(drawn) => ledger.id_drawn(drawn, record.before, answers),
                None => Err(format!("{value:?} is no number")),
            },
            (IDS, Answer::Value(value)) => {
                let least = ledger.drawn.before(record.before);
                match value.as_ref().map_or(Some(0), |value| number(value)) {
                    Some(drawn) => ledger.check_ids(drawn, if is_linearizable { least } else { 0 }),
                    None => Err(format!("{value:?} is no number")),
                }
            }
            _ => Ok(()),
        };
        self.check_ledger(id, key, found);
    }
}

/// What a transaction on a ledger was told.
struct Told {
    /// The number of entries.
    count: u64,
    /// The list, if it was read.
    list: Vec<u64>,
}

impl Told {
    fn of(transaction: &Transaction, steps: &[Answer]) -> Result<Told, String> {
        let (mut lists, mut lengths, mut count) = (Vec::new(), Vec::new(), 0);
        for (step, answer) in transaction.steps.iter().zip(steps) {
            let name = place(step.key()).map(|(_, name)| name);
            match (name, answer) {
                (Some(LIST | TWIN), Answer::Value(value)) => {
                    let list = value.as_ref().map_or(Some(Vec::new()), |value| numbers(value));
                    lists.push(list.ok_or_else(|| format!("{value:?} is no list"))?);
                }
                (Some(COUNT), Answer::Value(value)) => {
                    let value = value.as_ref().map_or(Some(0), |value| number(value));
                    count = value.ok_or("the count is no number")?;
                }
                (Some(COUNT), Answer::Computed(Computed::Number(value))) => {
                    count = number(value).ok_or("the count is no number")?;
                }
                (Some(LIST | TWIN), Answer::Computed(Computed::Length(len))) => lengths.push(*len),
                (_, answer) => return Err(format!("a step is answered {answer:?}")),
            }
        }
        let differ = |all: &[u64]| all.windows(2).any(|pair| pair[0] != pair[1]);
        let (list, twin) = (lists.first().cloned().unwrap_or_default(), lists.last());
        if twin.is_some_and(|twin| *twin != list || list.len() as u64 != count) {
            return Err(format!(
                "the list is {list:?}, its twin {twin:?}, and the count {count}"
            ));
        }
        match differ(&lengths) {
            true => Err(format!("the list and its twin have the lengths {lengths:?}")),
            false => Ok(Told { count, list }),
        }
    }
}
