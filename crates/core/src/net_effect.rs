//! Transactions without conditions, in protocols whose replicas decide alone. The steps are carried out one after the other, each on what those before it have
//! done. Everything that is written has one name: one timestamp, of one replica. So whoever sees versions by their timestamps sees all of it, or nothing.
//!
//! ```text
//!   MULTI   SET {7}a 1    INCR {7}n    EXPIRE {7}n 60   GET {7}a   EXEC
//!
//!   at @9   {7}a: 1 @9    {7}n: count @9, expiry @9                the answers: OK, 1, 1, "1"
//! ```
//!
//! Of each key the *net effect* is written: at most one version of its register, and one count. These two have the same name, and different ranks.
use crate::count::{Sum, Tally};
use crate::{
    Answer, Change, Changed, Computed, Content, Expiry, Hlc, Key, Lifetime, Meta, Micros, NotComputed, Shown,
    Step, Unmet, Version, VersionId,
};
use bytes::Bytes;
use rust_decimal::Decimal;
use std::collections::BTreeMap;

/// What a transaction does.
#[derive(Debug)]
pub struct NetEffect {
    id: VersionId,
    keys: BTreeMap<Key, Net>,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stepped {
    /// It has read this value.
    Value(Option<Bytes>),
    /// It has asked when the value expires.
    Lifetime(Lifetime),
    /// It has changed something, or not.
    Changed(Changed),
}

impl From<Stepped> for Answer {
    fn from(stepped: Stepped) -> Answer {
        match stepped {
            Stepped::Value(value) => Answer::Value(value),
            Stepped::Lifetime(lifetime) => Answer::Lifetime(lifetime),
            Stepped::Changed(changed) => changed.into(),
        }
    }
}

/// What it does with a key.
#[derive(Debug)]
struct Net {
    /// What was there before.
    before: Tally,
    /// The version that wrote the value.
    base: Option<VersionId>,
    register: Option<Register>,
    /// What is added to the number after that.
    added: Option<Decimal>,
}

/// What is written of a register.
#[derive(Debug)]
enum Register {
    Value(Bytes, Option<Micros>),
    Delete,
    /// Only the expiry changes.
    Until(Option<Micros>),
}

fn is_over(until: Option<Micros>, now: Hlc) -> bool {
    until.is_some_and(|until| Hlc::from_wall(until) <= now)
}

impl NetEffect {
    /// A transaction whose versions have this name.
    pub fn new(id: VersionId) -> NetEffect {
        let keys = BTreeMap::new();
        NetEffect { id, keys }
    }

    /// Carries out a step, where this is shown of its key without the transaction. Its moment is the timestamp of the transaction.
    pub fn carry_out<M: Meta>(&mut self, step: &Step, shown: &Shown<'_, M>) -> Stepped {
        let now = self.id.at;
        let net = self.keys.entry(step.key().clone()).or_insert_with(|| Net {
            before: shown.to_tally(),
            base: shown.register().map(|register| register.rank().base),
            register: None,
            added: None,
        });
        match step {
            Step::Get(_) => Stepped::Value(net.value(now)),
            Step::Lifetime(_) => Stepped::Lifetime(Lifetime::new(net.has_value(now), net.until(now))),
            Step::Put(_, value, options) => {
                let change = Change::new(value.clone(), options.as_deref());
                Stepped::Changed(net.change(&change, self.id))
            }
        }
    }

    /// What is to be written, as versions with this metadata.
    pub fn into_versions<M: Meta>(self, meta: M) -> impl Iterator<Item = (Key, Version<M>)> {
        let id = self.id;
        self.keys.into_iter().flat_map(move |(key, net)| {
            let meta = meta.clone();
            net.contents(id).map(move |content| {
                let meta = meta.clone();
                (key.clone(), Version { id, content, meta })
            })
        })
    }
}

impl Net {
    fn sum(&self, now: Hlc) -> Option<Sum> {
        let sum = match &self.register {
            None => self.before.sum(now),
            Some(Register::Value(value, until)) => (!is_over(*until, now)).then(|| Sum::Text(value.clone())),
            Some(Register::Until(until)) if !is_over(*until, now) => self.before.sum(now),
            Some(Register::Delete | Register::Until(_)) => None,
        };
        match self.added {
            Some(added) => Some(Sum::plus(sum, added)),
            None => sum,
        }
    }

    fn value(&self, now: Hlc) -> Option<Bytes> {
        self.sum(now).map(Sum::written)
    }

    fn has_value(&self, now: Hlc) -> bool {
        self.sum(now).is_some()
    }

    fn until(&self, now: Hlc) -> Option<Micros> {
        let until = match &self.register {
            None => self.before.until(now),
            Some(Register::Value(_, until) | Register::Until(until)) => *until,
            Some(Register::Delete) => None,
        };
        until.filter(|_| !is_over(until, now))
    }

    fn change(&mut self, change: &Change, id: VersionId) -> Changed {
        let now = id.at;
        let (existed, previous) = (self.has_value(now), self.until(now));
        let before = change.decides().then(|| self.value(now));
        if let Some(before) = &before {
            // No client can name a version that the transaction itself writes.
            match change.deciding_at(None, now).decide(before.clone()) {
                Err(changed) => return changed,
                Ok(Some((value, computed))) => {
                    self.register = Some(Register::Value(value, previous));
                    self.added = None;
                    return Changed::Computed(computed);
                }
                Ok(None) => {}
            }
        }
        if let Some(adds) = &change.adds {
            return match self.add(adds, id) {
                Ok(computed) => Changed::Computed(computed),
                Err(why) => Changed::NotComputed(why),
            };
        }
        let deadline = |expiry: Expiry| expiry.deadline(now.wall(), previous);
        let until = change
            .expiry
            .and_then(deadline)
            .map(|until| until.min(Content::LATEST));
        if let Some(retimes) = change.retimes {
            let value = if change.returns_value {
                self.value(now)
            } else {
                None
            };
            if !existed || !retimes.holds(previous, until) {
                return Changed::Unmet(Box::new(Unmet {
                    has_value: existed,
                    value,
                }));
            }
            match &mut self.register {
                Some(Register::Value(_, of_value)) if !is_over(*of_value, now) => *of_value = until,
                None => self.register = Some(Register::Until(until)),
                Some(Register::Until(before)) if !is_over(*before, now) => *before = until,
                // What was added since then has an expiry now, and nothing else.
                Some(Register::Value(..) | Register::Until(_) | Register::Delete) => {
                    self.before = self.before.deleted();
                    self.register = Some(Register::Until(until));
                }
            }
            if is_over(until, now) {
                self.added = None;
            }
            return value.map_or(Changed::Made { existed }, Changed::Retimed);
        }
        match &change.value {
            Some(value) => self.register = Some(Register::Value(value.clone(), until)),
            None if existed => self.register = Some(Register::Delete),
            None => return Changed::Made { existed: false },
        }
        self.added = None;
        match before.filter(|_| change.returns_value) {
            Some(before) => Changed::Replaced(before),
            None => Changed::Made { existed },
        }
    }

    /// The count that is written in the end must have room for it, too.
    fn add(&mut self, adds: &crate::Compute, id: VersionId) -> Result<Computed, NotComputed> {
        let computed = Sum::with(self.sum(id.at), adds)?;
        let more = adds.added().ok_or(NotComputed::NotANumber)?;
        let added = self.added.unwrap_or_default().checked_add(more);
        let added = added.ok_or(NotComputed::TooManyDigits)?.normalize();
        self.before.counted(id, added).ok_or(NotComputed::TooManyDigits)?;
        self.added = Some(added);
        Ok(computed)
    }

    /// What is written of the register, and the count.
    fn contents(mut self, id: VersionId) -> impl Iterator<Item = Content> {
        let register = match self.register {
            None => None,
            Some(Register::Value(value, until)) => {
                let resets = self.before.resets_all();
                self.before = self.before.deleted();
                Some(Content::register(Some(value), until, None, resets))
            }
            Some(Register::Delete) => {
                let resets = self.before.resets_all();
                self.before = self.before.deleted();
                Some(Content::register(None, None, None, resets))
            }
            Some(Register::Until(until)) => {
                let value = self.before.register(id.at).cloned();
                let resets = self.before.resets_at_expiry(until, id.at);
                self.before = self.before.with_register(value.clone(), until, resets.clone());
                let base = self.base.filter(|_| value.is_some());
                Some(Content::register(value, until, base, resets))
            }
        };
        let count = self.added.and_then(|added| self.before.counted(id, added));
        [register, count.map(Content::counting)].into_iter().flatten()
    }
}
