//! Keyspaces that keep siblings: what a read of all siblings must show.
//!
//! The judge knows of each write which versions its client had seen, by the answer from which the write's context comes. That is the write's *past*: exact
//! sets, beside the vectors of the protocol. A write without a context replaces what its coordinator has. The judge cannot know that, so there all older
//! versions may be in the past, and none must be.
//!
//! Of a read that must reflect a write (by its receipt, or because the replica has shown the write before):
//!
//! - The write's value is shown, or a version that has it in its past, or a delete that has it in its past may be forgotten by now.
//! - Nothing is shown that the write has in its past.
//!
//! And of any read: no version is shown beside another one that has it in its past.
use super::pasts::{Past, Pasts, Union};
use super::{Excuse, Judge, Rule, Seen, Shown, Violation};
use crate::OperationId;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use turnbuckle_core::{Key, Micros, PutOptions, Rank, Siblings, Vector};

/// The writes of a key.
#[derive(Default)]
struct OfKey {
    pasts: Pasts,
    /// When writes were acknowledged, and how many replicas had them.
    acknowledged: BTreeMap<Rank, (Micros, usize)>,
    /// What each client was shown last, with the contexts.
    shown: BTreeMap<usize, VecDeque<(Vector, BTreeSet<Rank>)>>,
}

/// The number of answers that are remembered of a client. Its writes name the context of the last one, or of one just before that.
const REMEMBERED: usize = 16;

/// The writes of a keyspace that keeps siblings.
#[derive(Default)]
pub(super) struct Writes {
    keys: BTreeMap<Key, OfKey>,
    /// What each write with a context has in its past. Absent: a write without a context.
    asked: BTreeMap<OperationId, BTreeSet<Rank>>,
}

impl Writes {
    /// A write is asked for.
    pub fn asked(&mut self, id: OperationId, client: usize, key: &Key, options: Option<&PutOptions>) {
        let Some(context) = options.and_then(|options| options.replaces.as_ref()) else {
            return;
        };
        let shown = self.keys.get(key).and_then(|of_key| of_key.shown.get(&client));
        let mut answers = shown.into_iter().flatten().rev();
        let found = answers.find(|(known, _)| known == context);
        let seen = found.map(|(_, shown)| shown.clone()).unwrap_or_default();
        self.asked.insert(id, seen);
    }

    /// The version of a write has become known. `id`: the operation, if it is known.
    pub fn learn(&mut self, key: &Key, version: Rank, id: Option<OperationId>) {
        let of_key = self.keys.entry(key.clone()).or_default();
        let past = id.and_then(|id| self.asked.get(&id).cloned());
        of_key.pasts.learn(version, past.map_or(Past::Blind, Past::Seen));
    }

    /// A write was acknowledged, when this number of replicas had it.
    pub fn acknowledge(&mut self, key: &Key, version: Rank, at: Micros, copies: usize) {
        let of_key = self.keys.entry(key.clone()).or_default();
        of_key.acknowledged.insert(version, (at, copies));
    }
}

/// A write that a read must reflect.
struct Demand {
    version: Rank,
    /// Why that is not judged.
    excuse: Option<Excuse>,
    /// Why it must.
    because: String,
    rule: Rule,
}

/// What a read of all siblings has shown.
struct Read {
    shown: BTreeSet<Rank>,
    /// The pasts of what is shown.
    replaced: Union,
    /// The pasts of all deletes of the key.
    deleted: Union,
}

impl Judge {
    /// All siblings of a key were read.
    pub(super) fn siblings_read(&mut self, seen: Seen, siblings: &Siblings) {
        let number = seen.id.0;
        for (place, (id, value)) in siblings.versions.iter().enumerate() {
            let version = Rank::of(*id);
            match value {
                Some(value) if place == 0 => self.value_read(seen.clone(), value, Some(version)),
                Some(value) => {
                    self.check_real(&seen, value);
                    self.learn(&seen.key, value, version, seen.over);
                }
                None => {
                    self.know(&seen.key, version, false, None, seen.over);
                    self.look(seen.clone(), Shown::Version(version));
                }
            }
        }
        if siblings.versions.is_empty() {
            self.look(seen.clone(), Shown::Nothing { is_forgotten: true });
        }
        let demands = self.demands(&seen);
        let read = self.read(&seen.key, siblings);
        let shown = &read.shown;
        let mut violations = self.beside_each_other(number, &seen.key, shown);
        let mut excuse = None;
        for demand in demands {
            match self.is_reflected(&seen.key, &read, &demand) {
                Ok(why) => excuse = excuse.or(why),
                Err(what) => violations.push(Violation {
                    rule: demand.rule,
                    words: format!(
                        "operation {number}: the siblings of {} were read at replica {}, and {}; but {what}",
                        seen.key, seen.server, demand.because
                    ),
                }),
            }
        }
        self.answers.count(excuse);
        self.violations.extend(violations);
        let (key, server, over) = (&seen.key, seen.server, seen.over);
        if !self.is_from_before_loss(&seen) {
            let of_key = self.keys.entry(key.clone()).or_default();
            let at = of_key.shown.entry(server).or_default();
            for &version in shown {
                at.entry(version).or_insert(over);
            }
        }
        if seen.has_siblings != (shown.len() > 1) {
            let words = format!(
                "operation {number}: the receipt says of siblings of {key}: {}, and {} versions are listed",
                seen.has_siblings,
                shown.len()
            );
            self.report(Rule::TrueReceipts, words);
        }
        if let Some(writes) = &mut self.siblings {
            let of_key = writes.keys.entry(key.clone()).or_default();
            let of_client = of_key.shown.entry(seen.client).or_default();
            of_client.push_back((siblings.context.clone(), read.shown));
            if of_client.len() > REMEMBERED {
                of_client.pop_front();
            }
        }
    }

    /// The writes that a read must reflect, without those that are in the past of others: if the others are reflected, they are.
    fn demands(&self, seen: &Seen) -> Vec<Demand> {
        let siblings = self
            .siblings
            .as_ref()
            .and_then(|writes| writes.keys.get(&seen.key));
        let (Some(of_key), Some(siblings)) = (self.keys.get(&seen.key), siblings) else {
            return Vec::new();
        };
        let mut demands = Vec::new();
        let is_firm = |version| !self.is_lost(&seen.key, version);
        if let Some(staleness) = seen.staleness {
            let until = seen.invoked.since(staleness);
            let is_claimed = |version: Rank| {
                let known = siblings.acknowledged.get(&version);
                known.is_some_and(|&(at, copies)| at <= until && copies >= seen.covers) && is_firm(version)
            };
            let writes = of_key.acknowledged_until(until).iter();
            for write in writes.filter(|write| write.copies >= seen.covers) {
                let version = write.version;
                if siblings.pasts.after(version).any(is_claimed) {
                    continue;
                }
                demands.push(Demand {
                    version,
                    excuse: match self.clocks_lie && seen.rests_on_clocks {
                        true => Some(Excuse::Clock),
                        false => self
                            .is_excused(of_key, seen, version)
                            .then_some(Excuse::PowerLoss),
                    },
                    because: format!(
                        "the receipt claims to reflect all that was acknowledged {staleness} before, which {version} was, at {}",
                        write.at
                    ),
                    rule: Rule::TrueReceipts,
                });
            }
        }
        let Some(shown) = of_key.shown.get(&seen.server) else {
            return demands;
        };
        let was_shown = |version| shown.get(&version).is_some_and(|&at| at < seen.invoked);
        for &version in shown.keys().filter(|version| was_shown(**version)) {
            if siblings
                .pasts
                .after(version)
                .any(|later| was_shown(later) && is_firm(later))
            {
                continue;
            }
            demands.push(Demand {
                version,
                // Where it was stamped, newer versions may have been stamped before it came back. Their contexts cover it.
                excuse: self.is_lost(&seen.key, version).then_some(Excuse::PowerLoss),
                because: format!("the replica had shown {version} before"),
                rule: Rule::NothingUndone,
            });
        }
        demands
    }

    fn read(&self, key: &Key, siblings: &Siblings) -> Read {
        let shown: BTreeSet<Rank> = siblings.versions.iter().map(|(id, _)| Rank::of(*id)).collect();
        let writes = self.siblings.as_ref().and_then(|writes| writes.keys.get(key));
        let pasts = writes.map(|of_key| &of_key.pasts);
        let deletes = self.keys.get(key).map(|of_key| of_key.deletes.keys().copied());
        Read {
            replaced: pasts
                .map(|pasts| pasts.union(shown.iter().copied()))
                .unwrap_or_default(),
            deleted: pasts
                .map(|pasts| pasts.union(deletes.into_iter().flatten()))
                .unwrap_or_default(),
            shown,
        }
    }

    /// Whether what is shown reflects a write. `Ok`: the excuse, if it does not, or if that cannot be known. `Err`: what is wrong.
    fn is_reflected(&self, key: &Key, read: &Read, demand: &Demand) -> Result<Option<Excuse>, String> {
        let (Some(writes), Some(of_key)) = (&self.siblings, self.keys.get(key)) else {
            return Ok(None);
        };
        let Some(siblings) = writes.keys.get(key) else {
            return Ok(None);
        };
        let version = demand.version;
        let excused = |what: String| demand.excuse.map_or(Err(what), |excuse| Ok(Some(excuse)));
        if let Some(old) = siblings.pasts.first_of_past(version, &read.shown) {
            return excused(format!("{old} is shown, which {version} has replaced"));
        }
        let is_value = of_key.values.contains_key(&version);
        // A delete may be forgotten, with what it has replaced.
        if !is_value
            || read.shown.contains(&version)
            || siblings.pasts.may_be_in(&read.replaced, version)
            || siblings.pasts.may_be_in(&read.deleted, version)
        {
            return Ok(None);
        }
        let mut open_deletes = of_key.open_deletes.keys();
        let may_delete = |id| {
            let seen = writes.asked.get(id);
            let pasts = &siblings.pasts;
            seen.is_none_or(|seen| {
                seen.contains(&version) || pasts.may_be_in(&pasts.union(seen.iter().copied()), version)
            })
        };
        if open_deletes.any(may_delete) {
            return Ok(Some(Excuse::UnknownOutcome));
        }
        excused(format!(
            "{version} is not shown, and nothing that is shown has replaced it: {:?}",
            read.shown
        ))
    }

    /// Versions that are shown beside one that has replaced them.
    fn beside_each_other(&self, number: usize, key: &Key, shown: &BTreeSet<Rank>) -> Vec<Violation> {
        let Some(siblings) = self.siblings.as_ref().and_then(|writes| writes.keys.get(key)) else {
            return Vec::new();
        };
        let mut violations = Vec::new();
        for &version in shown {
            if let Some(old) = siblings.pasts.first_of_past(version, shown) {
                violations.push(Violation {
                    rule: Rule::RealValues,
                    words: format!(
                        "operation {number}: {old} of {key} is shown beside {version}, which has replaced it"
                    ),
                });
            }
        }
        violations
    }

    /// In the end: the siblings of a key that a site has.
    pub(crate) fn ends_with_siblings(&mut self, site: &str, key: &Key, siblings: &Siblings) {
        let Some(of_key) = self.keys.get(key) else {
            return;
        };
        let read = self.read(key, siblings);
        let is_kept = |version: Rank| of_key.shown.values().any(|shown| shown.contains_key(&version));
        let Some(known) = self.siblings.as_ref().and_then(|writes| writes.keys.get(key)) else {
            return;
        };
        let is_firm = |version| known.acknowledged.contains_key(&version) && !self.is_lost(key, version);
        let mut violations = Vec::new();
        for write in &of_key.acknowledged {
            let version = write.version;
            if known.pasts.after(version).any(is_firm) {
                continue;
            }
            let demand = Demand {
                version,
                excuse: (self.is_lost(key, version) && !is_kept(version)).then_some(Excuse::PowerLoss),
                because: String::new(),
                rule: Rule::NothingLost,
            };
            if let Err(what) = self.is_reflected(key, &read, &demand) {
                let at: Micros = write.at;
                let words =
                    format!("in the end, of {key} at site {site}: {what}; it was acknowledged at {at}");
                let rule = Rule::NothingLost;
                violations.push(Violation { rule, words });
            }
        }
        self.violations.extend(violations);
    }

    /// The version of a value has become known.
    pub(super) fn learn_past(&mut self, key: &Key, value: Option<&Bytes>, version: Rank) {
        let Some(writes) = &mut self.siblings else {
            return;
        };
        let written = value.and_then(|value| self.values.get(&(key.clone(), value.clone())));
        let once = written.filter(|written| matches!(written.value, super::Value::Once(_)));
        writes.learn(key, version, once.map(|written| written.by.0));
    }
}
