//! Transactions without conditions, in protocols whose replicas decide alone. The steps are carried out one after the other, each on what those before it have
//! done. Everything that is written has one name: one timestamp, of one replica. So whoever sees versions by their timestamps sees all of it, or nothing.
//!
//! ```text
//!   MULTI   SET {7}a 1    INCR {7}n    EXPIRE {7}n 60   GET {7}a   EXEC
//!
//!   at @9   {7}a: 1 @9    {7}n: count @9, expiry @9                the answers: OK, 1, 1, "1"
//! ```
//!
//! Of each key the *net effect* is written: at most one version of its register, and one share. These two have the same name, and different ranks.
use crate::count::Sum;
use crate::shown::Tally;
use crate::{
    Answer, Change, Changed, Compute, Computed, Content, Edit, Elements, Expiry, Hlc, Key, Lifetime, Meta,
    Micros, NotComputed, Share, Shown, Step, Unmet, Version, VersionId,
};
use bytes::Bytes;
use rust_decimal::Decimal;
use std::{collections::BTreeMap, sync::Arc};

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
    /// It has read these elements.
    Elements(Arc<Elements>),
    /// It has asked when the value expires.
    Lifetime(Lifetime),
    /// It has changed something, or not.
    Changed(Changed),
}

impl From<Stepped> for Answer {
    fn from(stepped: Stepped) -> Answer {
        match stepped {
            Stepped::Value(value) => Answer::Value(value),
            Stepped::Elements(elements) => Answer::Elements(elements),
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
    /// The share that the transaction writes after that, if it changes elements.
    share: Option<Share>,
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
            share: None,
            added: None,
        });
        match step {
            Step::Get(_) => net.get(self.id),
            Step::Lifetime(_) => Stepped::Lifetime(Lifetime::new(net.has_value(self.id), net.until(now))),
            Step::Put(_, value, options) => {
                let change = Change::new(value.clone(), options.clone());
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

    fn get(&self, id: VersionId) -> Stepped {
        match self.value(id.at) {
            Some(value) => Stepped::Value(Some(value)),
            None => match self.so_far(id).elements(id.at) {
                Some(elements) => Stepped::Elements(Arc::new(elements)),
                None => Stepped::Value(None),
            },
        }
    }

    fn has_elements(&self, id: VersionId) -> bool {
        self.sum(id.at).is_none() && self.so_far(id).kind(id.at).is_some()
    }

    fn has_value(&self, id: VersionId) -> bool {
        self.sum(id.at).is_some() || self.has_elements(id)
    }

    /// What is written of the register, if anything is.
    fn register_content(&self, id: VersionId) -> Option<Content> {
        let before = &self.before;
        Some(match self.register.as_ref()? {
            Register::Value(value, until) => {
                Content::register(Some(value.clone()), *until, None, before.resets_all(id.at))
            }
            Register::Delete => Content::register(None, None, None, before.resets_all(id.at)),
            Register::Until(until) => {
                let value = before.register(id.at).cloned();
                let resets = before.resets_at_expiry(*until, id.at);
                let base = self.base.filter(|_| value.is_some());
                Content::register(value, *until, base, resets)
            }
        })
    }

    /// What is there after the steps so far, without additions to the number.
    fn so_far(&self, id: VersionId) -> Tally {
        let mut tally = self.before.clone();
        if let Some(content) = self.register_content(id) {
            let value = content.stored().cloned();
            tally = tally.with_register(value, content.until(), content.resets().clone());
        }
        if let Some(share) = &self.share {
            tally = tally.with_share(id, share.clone());
        }
        tally
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
        let (existed, previous) = (self.has_value(id), self.until(now));
        let before = change.decides().then(|| self.value(now));
        if let Some(before) = &before {
            // No client can name a version that the transaction itself writes.
            match change.deciding_at(None, now).decide(existed, before.clone()) {
                Err(changed) => return changed,
                Ok(Some((value, computed))) => {
                    self.register = Some(Register::Value(value, previous));
                    (self.share, self.added) = (None, None);
                    return Changed::Computed(computed);
                }
                Ok(None) => {}
            }
        }
        if let Some(adds) = change.adds() {
            return match self.add(adds, id) {
                Ok(computed) => Changed::Computed(computed),
                Err(changed) => changed,
            };
        }
        let deadline = |expiry: Expiry| expiry.deadline(now.wall(), previous);
        let until = change
            .expiry()
            .and_then(deadline)
            .map(|until| until.min(Content::LATEST));
        if let Some(retimes) = change.retimes() {
            let value = if change.returns_value() {
                self.value(now)
            } else {
                None
            };
            if change.returns_value() && existed && value.is_none() {
                return Changed::NotComputed(NotComputed::WrongType);
            }
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
                    let resets = self.before.resets_all(now);
                    self.before = self.before.with_register(None, None, resets);
                    self.register = Some(Register::Until(until));
                }
            }
            if is_over(until, now) {
                (self.share, self.added) = (None, None);
            }
            return value.map_or(Changed::Made { existed }, Changed::Retimed);
        }
        match change.value() {
            Some(value) => self.register = Some(Register::Value(value.clone(), until)),
            // As in a put alone: a delete of elements is a write of the share, unless they expire.
            None if previous.is_none() && self.has_elements(id) => {
                self.share = self.so_far(id).cleared(id);
                return Changed::Made { existed };
            }
            None if existed => self.register = Some(Register::Delete),
            None => return Changed::Made { existed: false },
        }
        (self.share, self.added) = (None, None);
        match before.filter(|_| change.returns_value()) {
            Some(before) => Changed::Replaced(before),
            None => Changed::Made { existed },
        }
    }

    /// The count that is written in the end must have room for it, too.
    fn add(&mut self, adds: &Compute, id: VersionId) -> Result<Computed, Changed> {
        if adds.edit().is_some() {
            if self.sum(id.at).is_some() {
                return Err(Changed::NotComputed(NotComputed::WrongType));
            }
            let so_far = self.so_far(id);
            let (share, computed) = so_far.added(adds, id)?;
            // As in a put alone: with its last element the key loses its expiry, too.
            let is_gone = matches!(adds.edit(), Some(Edit::Remove(..)))
                && self.until(id.at).is_some()
                && !so_far.with_share(id, share.clone()).has_value(id.at);
            match is_gone {
                true => (self.register, self.share) = (Some(Register::Delete), None),
                false => self.share = Some(share),
            }
            return Ok(computed);
        }
        if self.has_elements(id) {
            return Err(Changed::NotComputed(NotComputed::WrongType));
        }
        let computed = Sum::with(self.sum(id.at), adds).map_err(Changed::NotComputed)?;
        let too_many = || Changed::NotComputed(NotComputed::TooManyDigits);
        let more = adds
            .added()
            .ok_or(Changed::NotComputed(NotComputed::NotANumber))?;
        let added = self.added.unwrap_or_default().checked_add(more);
        let added = added.ok_or_else(too_many)?.normalize();
        self.so_far(id).counted(id, added).ok_or_else(too_many)?;
        self.added = Some(added);
        Ok(computed)
    }

    /// What is written of the register, and the share.
    fn contents(self, id: VersionId) -> impl Iterator<Item = Content> {
        let share = match self.added {
            Some(added) => self.so_far(id).counted(id, added),
            None => self.share.clone(),
        };
        [self.register_content(id), share.map(Content::sharing)]
            .into_iter()
            .flatten()
    }
}
