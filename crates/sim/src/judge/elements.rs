//! What must be true of hashes and sets (`element.rs`).
//!
//! - Each element that is shown was added, with this value.
//! - An element that was added is there in the end, unless a removal has found it. What a removal has found is there never again. A removal that has found nothing removes nothing.
//! - A session that has seen an element goes on seeing it, unless somebody asks to remove it. What a session has removed it sees never again.
//! - A number has each addition that was acknowledged, once.
//! - Keys to which clients do anything are the same at all sites in the end.
//!
//! A power loss, or a lost directory, may take what a replica has written: once anything was lost, answers that would be wrong are counted, and not judged.
use super::{Excuse, Judge, Rule, Seen, Witness};
use crate::element::{self, NUMBER};
use crate::{OperationId, Record, number};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{Answer, Compute, Computed, Edit, Elements, Key, Micros, Operation};

/// What is known of a key whose elements are added once.
#[derive(Debug, Default)]
pub(super) struct OfKey {
    elements: BTreeMap<Bytes, Element>,
    /// The additions to the number: by the exponent, whether it was acknowledged. `None`: it is not known yet, or never will be.
    additions: BTreeMap<u32, Option<bool>>,
    /// What sessions have seen of elements: whether they were there, and the judge's number of the first answer that said so.
    seen: BTreeMap<Witness, BTreeMap<(Bytes, bool), u64>>,
}

#[derive(Debug, Default)]
struct Element {
    /// `None`: so far, clients have only asked to remove it.
    value: Option<Bytes>,
    /// Whether it was added, as far as that is known.
    added: Option<bool>,
    /// Removals of it, and whether each has found it. `None`: that is not known.
    removals: BTreeMap<OperationId, Option<bool>>,
}

impl Element {
    /// Whether it may be gone.
    fn may_be_gone(&self) -> bool {
        self.added != Some(true) || self.removals.values().any(|found| *found != Some(false))
    }

    /// Whether it must be gone, in the end.
    fn must_be_gone(&self) -> bool {
        self.added == Some(false) || self.removals.values().any(|found| *found == Some(true))
    }
}

fn edit(operation: &Operation) -> Option<(&Key, &Edit)> {
    match operation {
        Operation::Put {
            key,
            options: Some(options),
            ..
        } => Some((key, options.computes.as_ref().and_then(Compute::edit)?)),
        _ => None,
    }
}

impl Judge {
    /// Takes note of an operation on elements. Returns whether it is one that writes.
    pub(super) fn asked_of_elements(&mut self, id: OperationId, operation: &Operation, now: Micros) -> bool {
        let Operation::Put { key, options, .. } = operation else {
            return false;
        };
        if !element::is_one(key) {
            return false;
        }
        self.computes(key);
        if element::is_wild(key) {
            let expiry = options.as_ref().and_then(|options| options.expiry);
            if let Some(until) = expiry.and_then(|expiry| expiry.deadline(now, None)) {
                // A span begins when the write is stamped.
                let latest = until.max(now) + Micros::from_millis(10_000);
                self.elements_expire = self.elements_expire.max(Some(latest));
            }
            return true;
        }
        let of_key = self.elements.entry(key.clone()).or_default();
        let mut add = |name: &Bytes, value: &Bytes| {
            let element = of_key.elements.entry(name.clone()).or_default();
            element.value = Some(value.clone());
        };
        match edit(operation).map(|(_, edit)| edit) {
            Some(Edit::Set(fields)) => fields.iter().for_each(|(name, value)| add(name, value)),
            Some(Edit::SetNew(name, value)) => add(name, value),
            Some(Edit::Insert(names)) => names.iter().for_each(|name| add(name, &Bytes::new())),
            Some(Edit::Remove(_, names)) => {
                for name in names {
                    let element = of_key.elements.entry(name.clone()).or_default();
                    element.removals.insert(id, None);
                }
            }
            Some(Edit::Add(_, more)) => {
                of_key.additions.insert(more.trailing_zeros(), None);
            }
            Some(Edit::AddDecimal(..)) | None => {}
        }
        true
    }

    /// Judges the answer to an operation on elements. Returns whether it is one.
    pub(super) fn answered_of_elements(&mut self, id: OperationId, record: &Record) -> bool {
        let Some((at, (answer, receipt))) = &record.returned else {
            return false;
        };
        let key = match &record.operation {
            Operation::Put { key, .. } | Operation::Get { key, .. } if element::is_one(key) => key,
            _ => return false,
        };
        if element::is_wild(key) {
            return true;
        }
        if let Some((_, edit)) = edit(&record.operation) {
            self.edited(id, key, edit, answer);
            if let (Edit::Remove(_, names), Some(receipt)) = (edit, receipt) {
                let seen = self.seen(id, record, 0, key, receipt.server, receipt, *at);
                if *answer == Answer::Computed(Computed::Elements(names.len() as u64)) {
                    self.session_saw(&seen, names.iter().map(|name| (name.clone(), false)));
                }
            }
            return true;
        }
        let Some(receipt) = receipt else { return true };
        let nothing = BTreeMap::new();
        let shown: BTreeMap<Bytes, Bytes> = match answer {
            Answer::Elements(elements) => of(elements),
            Answer::Value(None) => nothing,
            other => {
                let words = format!("operation {}: {key} is read as {other:?}", id.0);
                self.report(Rule::RealValues, words);
                return true;
            }
        };
        let seen = self.seen(id, record, 0, key, receipt.server, receipt, *at);
        self.elements_read(&seen, &shown);
        true
    }

    /// What became of an edit.
    fn edited(&mut self, id: OperationId, key: &Key, edit: &Edit, answer: &Answer) {
        let of_key = self.elements.entry(key.clone()).or_default();
        let found = match answer {
            Answer::Computed(Computed::Elements(count)) => Some(*count),
            Answer::Computed(Computed::Number(_)) => Some(1),
            Answer::Failed(failure) if failure.is_definite() => Some(0),
            Answer::Failed(_) => return,
            other => {
                let words = format!("operation {} on {key} is answered {other:?}", id.0);
                return self.report(Rule::Service, words);
            }
        };
        let is_failed = matches!(answer, Answer::Failed(_));
        let names: Vec<&Bytes> = match edit {
            Edit::Set(fields) => fields.iter().map(|(name, _)| name).collect(),
            Edit::SetNew(name, _) => vec![name],
            Edit::Insert(names) => names.iter().collect(),
            Edit::Remove(_, names) => {
                for name in names {
                    let removal = of_key
                        .elements
                        .get_mut(name)
                        .and_then(|one| one.removals.get_mut(&id));
                    if let (Some(removal), Some(found)) = (removal, found) {
                        *removal = match found {
                            0 => Some(false),
                            all if all == names.len() as u64 => Some(true),
                            // Which of them it has found, the answer does not say.
                            _ => None,
                        };
                    }
                }
                return;
            }
            Edit::Add(_, more) => {
                of_key.additions.insert(more.trailing_zeros(), Some(!is_failed));
                return;
            }
            Edit::AddDecimal(..) => return,
        };
        for name in names {
            if let Some(element) = of_key.elements.get_mut(name) {
                element.added = Some(!is_failed);
            }
        }
        if !is_failed && found == Some(0) {
            let words = format!(
                "operation {}: an element of {key} was there before it was added",
                id.0
            );
            self.report(Rule::RealValues, words);
        }
    }

    fn elements_read(&mut self, seen: &Seen, shown: &BTreeMap<Bytes, Bytes>) {
        let mut found = self.unreal(&seen.key, shown);
        let of_key = self.elements.entry(seen.key.clone()).or_default();
        let before = seen.remembers.and_then(|session| of_key.seen.get(&session));
        for ((name, was_there), number) in before.into_iter().flatten() {
            let element = of_key.elements.get(name);
            let may_be_gone = element.is_none_or(Element::may_be_gone);
            let is_there = shown.contains_key(name);
            let is_wrong = match was_there {
                true => !is_there && !may_be_gone,
                false => is_there,
            };
            if *number < seen.before && is_wrong {
                let words = match was_there {
                    true => "which this session has seen before, is missing",
                    false => "which this session has removed, is there again",
                };
                found.push((Rule::NothingUndone, format!("{}, {words}", name.escape_ascii())));
            }
        }
        self.judge_elements(
            found,
            &format!(
                "operation {}: replica {} shows {}",
                seen.id.0, seen.server, seen.key
            ),
        );
        self.session_saw(seen, shown.keys().map(|name| (name.clone(), true)));
    }

    /// What is shown and cannot be.
    fn unreal(&self, key: &Key, shown: &BTreeMap<Bytes, Bytes>) -> Vec<(Rule, String)> {
        let nothing = OfKey::default();
        let of_key = self.elements.get(key).unwrap_or(&nothing);
        let mut found = Vec::new();
        for (name, value) in shown {
            let words = if *name == NUMBER {
                let number = std::str::from_utf8(value)
                    .ok()
                    .and_then(|value| value.parse::<u64>().ok());
                let unknown = number.map(|number| {
                    let mut bits = number::numbers(number).into_iter();
                    bits.any(|bit| matches!(of_key.additions.get(&bit), None | Some(Some(false))))
                });
                (unknown != Some(false)).then(|| format!("the number {}", value.escape_ascii()))
            } else {
                match of_key.elements.get(name) {
                    Some(element)
                        if element.added != Some(false) && element.value.as_ref() == Some(value) =>
                    {
                        None
                    }
                    known => Some(format!("{}, of which is known {known:?}", name.escape_ascii())),
                }
            };
            found.extend(words.map(|words| (Rule::RealValues, words)));
        }
        found
    }

    fn judge_elements(&mut self, found: Vec<(Rule, String)>, what: &str) {
        let excuse = Some(Excuse::PowerLoss).filter(|_| !found.is_empty() && !self.losses.is_empty());
        self.answers.count(excuse);
        if excuse.is_none() {
            for (rule, words) in found {
                self.report(rule, format!("{what}: {words}"));
            }
        }
    }

    fn session_saw(&mut self, seen: &Seen, what: impl Iterator<Item = (Bytes, bool)>) {
        let Some(session) = seen.remembers else { return };
        let number = self.number;
        let of_key = self.elements.entry(seen.key.clone()).or_default();
        let of_session = of_key.seen.entry(session).or_default();
        for (name, is_there) in what.filter(|(name, _)| *name != NUMBER) {
            of_session.entry((name, is_there)).or_insert(number);
        }
    }

    /// In the end: what a site shows of a key.
    pub(crate) fn ends_with_elements(&mut self, site: &str, key: &Key, answer: &Answer) {
        if !element::is_one(key) || element::is_wild(key) {
            return;
        }
        let shown = match answer {
            Answer::Elements(elements) => of(elements),
            _ => BTreeMap::new(),
        };
        let mut found = self.unreal(key, &shown);
        let Some(of_key) = self.elements.get(key) else {
            return;
        };
        for (name, element) in &of_key.elements {
            let is_there = shown.contains_key(name);
            if !is_there && !element.may_be_gone() {
                found.push((
                    Rule::NothingLost,
                    format!("{} is missing: {element:?}", name.escape_ascii()),
                ));
            }
            if is_there && element.must_be_gone() {
                let words = format!("{} was removed, and is there: {element:?}", name.escape_ascii());
                found.push((Rule::NothingUndone, words));
            }
        }
        let number = shown.get(&NUMBER);
        let number = number.and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
        let has: BTreeSet<u32> = number::numbers(number.unwrap_or(0)).into_iter().collect();
        let acknowledged = of_key.additions.iter().filter(|(_, state)| **state == Some(true));
        for (bit, _) in acknowledged.filter(|(bit, _)| !has.contains(bit)) {
            found.push((Rule::NothingLost, format!("addition {bit} is missing")));
        }
        self.judge_elements(found, &format!("in the end, site {site} shows {key}"));
    }
}

fn of(elements: &Elements) -> BTreeMap<Bytes, Bytes> {
    elements
        .iter()
        .map(|(name, value)| (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)))
        .collect()
}
