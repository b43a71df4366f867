//! What must be true of texts (`text.rs`), whose values are computed from the value before by one replica.
//!
//! 1. **Values are real.** A value has only tokens that clients have asked to write to this key, and each once. A token that was written over a part is at its place.
//! 2. **A version has one value.** Every read of it shows the same. If its write was answered, it has that write's token, and the length that was answered.
//! 3. **At one site nothing is lost.** A text to which one site alone appends has everything that was appended before. The length that is answered counts it, and so does each version that is read.
//!
//! A power loss or a lost directory excuses what its replica had acknowledged since the last sync.
use super::{Judge, Loss, Rule};
use crate::text;
use crate::{OperationId, Record};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{Answer, Compute, Computed, Key, Micros, Operation, Rank, ServerId, VersionId};

/// A text.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// What was asked to be written, by the numbers of the tokens.
    writes: BTreeMap<u64, Write>,
    /// The value of each version that was read.
    values: BTreeMap<(u64, u16), Bytes>,
    /// Whether a client has let it expire, and when it does at the latest, as far as receipts say.
    may_expire: bool,
    until: Option<Micros>,
}

#[derive(Debug)]
struct Write {
    begun: Micros,
    /// The place at which it was to be written over what is there, counted in tokens. `None`: it was appended.
    place: Option<usize>,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Open,
    There {
        at: Micros,
        server: ServerId,
        version: Rank,
        len: u64,
    },
    Never,
}

/// The number of the token that is written, and its place.
fn written(operation: &Operation) -> Option<(u64, Option<usize>)> {
    let Operation::Put { options, .. } = operation else {
        return None;
    };
    match options.as_ref()?.computes.as_ref()? {
        Compute::Append(token) => Some((text::number(token)?, None)),
        Compute::Overwrite(at, token) => Some((text::number(token)?, Some(*at as usize / text::TOKEN_BYTES))),
        Compute::Add(_) | Compute::AddDecimal(_) | Compute::Edit(_) => None,
    }
}

fn name(version: VersionId) -> (u64, u16) {
    (version.at.0, version.replica.0)
}

impl Judge {
    /// Takes note of an operation on a text. Returns whether it is one that writes.
    pub(super) fn asked_of_text(&mut self, operation: &Operation, now: Micros) -> bool {
        let Operation::Put { key, .. } = operation else {
            return false;
        };
        if !text::is_one(key) {
            return false;
        }
        self.computes(key);
        if let Some((number, place)) = written(operation) {
            let write = Write {
                begun: now,
                place,
                state: State::Open,
            };
            let text = self.texts.entry(key.clone()).or_default();
            text.writes.insert(number, write);
        }
        if operation.retimes().is_some() {
            self.texts.entry(key.clone()).or_default().may_expire = true;
        }
        true
    }

    /// Judges the answer to an operation on a text. Returns whether it is one.
    pub(super) fn answered_of_text(&mut self, id: OperationId, record: &Record) -> bool {
        let Some((at, (answer, receipt))) = &record.returned else {
            return false;
        };
        let Some(key) = record.key().filter(|key| text::is_one(key)).cloned() else {
            return false;
        };
        let version = receipt.as_ref().and_then(|receipt| receipt.rank());
        if let Some(until) = receipt.as_ref().and_then(|receipt| receipt.until) {
            let until = until + self.clock_bound + self.clock_bound;
            let text = self.texts.entry(key.clone()).or_default();
            text.until = text.until.max(Some(until));
        }
        match (&record.operation, answer, receipt) {
            (Operation::Get { .. }, Answer::Value(Some(value)), _) => {
                self.text_read(id, &key, value, version);
            }
            (_, Answer::Failed(failure), _) if !failure.is_definite() => {}
            (operation, Answer::Computed(Computed::Length(len)), Some(receipt)) => {
                let (Some((number, _)), Some(version)) = (written(operation), version) else {
                    let words = format!("operation {}: a write to {key} has no version", id.0);
                    self.report(Rule::Service, words);
                    return true;
                };
                let (at, len, server) = (*at, *len, receipt.server);
                self.text_written(id, &key, number, len, server);
                let text = self.texts.entry(key).or_default();
                if let Some(write) = text.writes.get_mut(&number) {
                    write.state = State::There {
                        at,
                        server,
                        version,
                        len,
                    };
                }
            }
            (operation, Answer::Failed(_) | Answer::NotComputed(_) | Answer::Unmet(_), _) => {
                let text = self.texts.entry(key).or_default();
                let write = written(operation).and_then(|(number, _)| text.writes.get_mut(&number));
                if let Some(write) = write {
                    write.state = State::Never;
                }
            }
            (Operation::Put { .. }, Answer::Replaced(Some(value)), _) => {
                self.text_read(id, &key, value, None);
            }
            _ => {}
        }
        true
    }

    /// Whether the value of a key, if it is a text, may expire.
    pub(super) fn text_may_expire(&self, key: &Key) -> bool {
        self.texts.get(key).is_some_and(|text| text.may_expire)
    }

    /// When the last of the texts expires, of those that expire before this time.
    pub(super) fn texts_expire_until(&self, before: Micros) -> Option<Micros> {
        let times = self.texts.values().filter_map(|text| text.until);
        times.filter(|until| *until < before).max()
    }

    /// Whether a write may be lost with the replica that acknowledged it.
    fn is_write_lost(&self, begun: Micros, at: Micros, server: ServerId) -> bool {
        let takes = |loss: &Loss| at > loss.kept_until && begun <= loss.at;
        self.losses
            .get(&server)
            .is_some_and(|losses| losses.iter().any(takes))
    }

    /// Whether one replica decides everything about a text.
    fn is_of_one_replica(&self, key: &Key) -> bool {
        let is_alone = self.topology.members().max() == 1 && self.topology.is_everywhere();
        is_alone && text::is_of_one_site(key)
    }

    /// A write was answered with this length.
    fn text_written(&mut self, id: OperationId, key: &Key, number: u64, len: u64, server: ServerId) {
        let Some(text) = self.texts.get(key).filter(|_| self.is_of_one_replica(key)) else {
            return;
        };
        let begun = text.writes.get(&number).map_or(Micros(0), |write| write.begun);
        let before = text.writes.values().filter(|write| match write.state {
            State::There { at, server: by, .. } => {
                by == server && at < begun && !self.is_write_lost(write.begun, at, by)
            }
            State::Open | State::Never => false,
        });
        let least = (before.count() + 1) * text::TOKEN_BYTES;
        if len < least as u64 {
            let words = format!(
                "operation {}: replica {server} appends to {key} and answers {len} bytes, and it had acknowledged {least}, with these",
                id.0
            );
            self.report(Rule::Conditions, words);
        }
    }

    fn text_read(&mut self, id: OperationId, key: &Key, value: &Bytes, version: Option<Rank>) {
        let is_exact = self.is_of_one_replica(key);
        let Some(text) = self.texts.get(key) else {
            let words = format!("operation {}: {key} was never written", id.0);
            return self.report(Rule::RealValues, words);
        };
        let Some(tokens) = text::read(value) else {
            let words = format!("operation {}: {key} has no text: {value:?}", id.0);
            return self.report(Rule::RealValues, words);
        };
        let mut found = Vec::new();
        for (place, &number) in tokens.iter().enumerate().filter(|(_, number)| **number > 0) {
            match text.writes.get(&number) {
                None => found.push((Rule::RealValues, format!("{number} was never asked for"))),
                Some(Write {
                    state: State::Never, ..
                }) => found.push((Rule::RealValues, format!("{number} was refused"))),
                Some(write) if write.place.is_some_and(|asked| asked != place) => {
                    found.push((Rule::RealValues, format!("{number} is not at its place")));
                }
                Some(_) if tokens[..place].contains(&number) => {
                    found.push((Rule::RealValues, format!("{number} is there twice")));
                }
                Some(_) => {}
            }
        }
        if let Some(version) = version {
            let of_base = name(version.base);
            if text.values.get(&of_base).is_some_and(|known| known != value) {
                let words = format!("version {version} had another value before");
                found.push((Rule::RealValues, words));
            }
            for (number, write) in &text.writes {
                let State::There {
                    at,
                    server,
                    version: wrote,
                    len,
                } = write.state
                else {
                    continue;
                };
                if wrote.base == version.base && (!tokens.contains(number) || value.len() as u64 != len) {
                    let words = format!("it was written with {number}, and {len} bytes were answered");
                    found.push((Rule::RealValues, words));
                }
                let is_before = wrote < version && !self.is_write_lost(write.begun, at, server);
                if is_exact && is_before && !tokens.contains(number) {
                    let words = format!("{number} was appended before, and is missing");
                    found.push((Rule::Conditions, words));
                }
            }
            let text = self.texts.entry(key.clone()).or_default();
            text.values.entry(of_base).or_insert_with(|| value.clone());
        }
        for (rule, words) in found {
            let words = format!("operation {}: {key} is {tokens:?}: {words}", id.0);
            self.report(rule, words);
        }
    }
}
