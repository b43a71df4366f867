//! # Numbers that add up
//!
//! `INCR x` at two sites that do not hear each other must add 2. If each site wrote the sum that it sees, one increment would be lost. So an increment does not
//! write the sum. It writes a *count*: a version that says how much one replica has added to the key since some time. Each replica writes its own count alone, and its newest count
//! replaces its older ones. Whoever reads the key adds up the newest count of each replica that it may see.
//!
//! ```text
//!   site a:   SET x 5 @1      INCR x @4: count of a, since 4, total 1      INCR x @7: count of a, since 4, total 2
//!   site b:   x is 5          INCR x @6: count of b, since 6, total 1
//!
//!   everywhere, in the end:   5 + 2 + 1 = 8
//! ```
//!
//! All other versions are those of the key's *register*: values, deletes, and changes of an expiry. Of these the newest wins. In a [`Chain`] all counts come
//! behind all versions of the register ([`Rank`](crate::Rank)). So the newest version of a chain is a count only if the register was never written.
//!
//! # What a write resets
//!
//! A write of the register resets the counts that its writer saw. For this it names them ([`SeenCount`]): of each replica, the newest count and its total. What a replica has added since
//! then still counts.
//!
//! ```text
//!   site a:   count of a: total 2        SET x 10 @8, which has seen 2 of a and nothing of b
//!   site b:   INCR x @7: count of b, total 1
//!
//!   everywhere, in the end:   10 + (2 - 2) + 1 = 11
//! ```
//!
//! - A delete resets in the same way. So the key has a value again if another site has added to it meanwhile.
//! - A change of an expiry resets nothing. It names what the version before it has reset.
//! - An expiry resets every count that was stamped before it. Nobody writes anything at that time, and each reader finds the same. A change of the expiry to a time that has passed resets what it has seen, as a delete does.
//! - Of two writes of the register, only the newer one resets.
//! - If a value is no number, counts add nothing to it.
//!
//! # Since when a count counts
//!
//! If everything that a replica has added is reset, its next count begins from 0, and says so: its `since` is its own timestamp. Otherwise `since` stays. A write that has seen only counts from before
//! `since` has seen nothing of this one. A key that was counted is not forgotten when it is deleted: a write at a site that had forgotten the counts would not reset them at others.
//!
//! # What this cannot do
//!
//! Answers to increments are not unique across sites: `INCR x` may return 6 at two sites. Ids and quotas belong in a keyspace where all writes to a key have one order.
use crate::compute::{Compute, Computed, MAX_NUMBER_BYTES, NotComputed, decimal};
use crate::{BadFrame, Chain, Hidden, Hlc, Label, Meta, Micros, ReplicaId, ReplicaSet, Version, VersionId};
use bytes::Bytes;
use rust_decimal::Decimal;

/// What one replica has added to a key's number. The replica, and the time up to which it says so, are those of the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// When the first of these additions was stamped.
    pub since: Hlc,
    /// Their sum, in its shortest form.
    pub total: Decimal,
}

/// What a write of a key's register had seen of a replica's count, and has reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenCount {
    /// The replica.
    pub replica: ReplicaId,
    /// When the count was stamped.
    pub at: Hlc,
    /// Its total.
    pub total: Decimal,
}

/// The newest count of a replica that a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Newest {
    replica: ReplicaId,
    at: Hlc,
    count: Count,
}

impl Newest {
    /// What is left of the count beside a register that has seen this, and has expired at this time. `None`: all of it is reset.
    fn left(&self, seen: &[SeenCount], expired: Option<Hlc>) -> Option<Decimal> {
        if expired.is_some_and(|expired| self.at < expired) {
            return None;
        }
        match seen.iter().find(|seen| seen.replica == self.replica) {
            Some(seen) if self.at <= seen.at => None,
            Some(seen) if self.count.since <= seen.at => Some(added(self.count.total, -seen.total)),
            _ => Some(self.count.total),
        }
    }
}

/// The sum. If it has more than 28 digits, it is the largest or the smallest number that has no more.
fn added(one: Decimal, other: Decimal) -> Decimal {
    one.checked_add(other).unwrap_or(match one.is_sign_negative() {
        true => Decimal::MIN,
        false => Decimal::MAX,
    })
}

/// In its shortest form. Almost all numbers are integers of 64 bits, and those are written faster than others.
fn written(number: Decimal) -> Bytes {
    match whole(number) {
        Some(whole) => whole.to_string().into(),
        None => number.normalize().to_string().into(),
    }
}

/// What a reader sees of a key: the newest version of its register, and the newest count of each replica.
#[derive(Debug, Clone)]
pub struct Shown<'a, M> {
    register: Option<&'a Version<M>>,
    /// By replica. Almost every key has none.
    counts: Vec<&'a Version<M>>,
}

impl<'a, M: Meta> Shown<'a, M> {
    /// What a reader sees of a key if it may see the versions of which `visible` is true, and which newer versions are hidden from it.
    pub fn of(chain: Option<&'a Chain<M>>, visible: impl Fn(&Version<M>) -> bool) -> (Shown<'a, M>, Hidden) {
        let mut hidden = Hidden::default();
        let mut shown = Shown {
            register: None,
            counts: Vec::new(),
        };
        let Some(chain) = chain else {
            return (shown, hidden);
        };
        for version in chain.registers() {
            if visible(version) {
                shown.register = Some(version);
                break;
            }
            hidden.add(version.id);
        }
        for version in chain.counts() {
            if shown
                .counts
                .iter()
                .any(|newer| newer.id.replica == version.id.replica)
            {
                continue;
            }
            match visible(version) {
                true => shown.counts.push(version),
                false => hidden.add(version.id),
            }
        }
        shown.counts.sort_unstable_by_key(|version| version.id.replica);
        (shown, hidden)
    }

    /// What a reader sees that may see everything.
    pub fn all(chain: Option<&'a Chain<M>>) -> Shown<'a, M> {
        Shown::of(chain, |_| true).0
    }

    /// What a reader sees of a key in a keyspace without counts.
    pub fn one(register: Option<&'a Version<M>>) -> Shown<'a, M> {
        let counts = Vec::new();
        Shown { register, counts }
    }

    /// The versions that the reader sees.
    pub fn versions(&self) -> impl Iterator<Item = &'a Version<M>> + '_ {
        self.register.into_iter().chain(self.counts.iter().copied())
    }

    /// When a replica has stamped the newest of what is shown. 0: nothing of it is of this replica.
    pub fn newest_of(&self, replica: ReplicaId) -> Hlc {
        let own = self.versions().filter(|version| version.id.replica == replica);
        own.map(|version| version.id.at).max().unwrap_or(Hlc::ZERO)
    }

    /// The version of the register.
    pub fn register(&self) -> Option<&'a Version<M>> {
        self.register
    }

    fn newest(&self) -> impl Iterator<Item = Newest> + '_ {
        self.counts.iter().filter_map(|version| {
            let VersionId { at, replica } = version.id;
            let count = *version.content.count()?;
            Some(Newest { replica, at, count })
        })
    }

    /// The value, for a reader at this time.
    pub fn value(&self, now: Hlc) -> Option<Bytes> {
        let register = self.register.and_then(|register| register.content.at(now));
        if self.counts.is_empty() {
            return register.cloned();
        }
        let seen = self.register.map_or(&[][..], |register| register.content.seen());
        let expired = self.expired_at(now);
        let left = self.newest().filter_map(|newest| newest.left(seen, expired));
        sum(register, left).map(Sum::written)
    }

    /// Whether there is a value, for a reader at this time.
    pub fn has_value(&self, now: Hlc) -> bool {
        let seen = self.register.map_or(&[][..], |register| register.content.seen());
        let expired = self.expired_at(now);
        self.register
            .is_some_and(|register| register.content.at(now).is_some())
            || self.newest().any(|newest| newest.left(seen, expired).is_some())
    }

    /// Whether the register has no value, and has reset all counts.
    pub fn is_reset(&self) -> bool {
        let seen = self.register.map_or(&[][..], |register| register.content.seen());
        let has_value = self
            .register
            .is_some_and(|register| register.content.stored().is_some());
        !has_value && self.newest().all(|newest| newest.left(seen, None).is_none())
    }

    /// When the value expires, for a reader at this time. `None`: never, or it has expired.
    pub fn until(&self, now: Hlc) -> Option<Micros> {
        let until = self.register.and_then(|register| register.content.until());
        until.filter(|&until| Hlc::from_wall(until) > now)
    }

    /// When the version of the register expired, if it has for a reader at this time.
    pub fn expired_at(&self, now: Hlc) -> Option<Hlc> {
        self.register
            .and_then(|register| register.content.expired_at(now))
    }

    /// What a receipt says of it: the version that was stamped last.
    pub fn label(&self) -> Option<Label> {
        if self.counts.is_empty() {
            return self.register.map(Version::label);
        }
        let newest = self.versions().max_by_key(|version| version.id.stamp())?;
        let until = self.register.and_then(|register| register.content.until());
        let goes_on = |until: &Micros| self.newest().any(|newest| newest.at >= Hlc::from_wall(*until));
        Some(Label {
            id: newest.id,
            base: None,
            until: until.filter(|until| !goes_on(until)),
        })
    }

    /// The same, apart from the store. `None` if there are no counts, and none were seen.
    pub(crate) fn tally(&self) -> Option<Box<Tally>> {
        let seen = self.register.map_or(&[][..], |register| register.content.seen());
        if self.counts.is_empty() && seen.is_empty() {
            return None;
        }
        Some(Box::new(self.to_tally()))
    }

    pub(crate) fn to_tally(&self) -> Tally {
        let content = self.register.map(|register| &register.content);
        Tally {
            value: content.and_then(|content| content.stored().cloned()),
            until: content.and_then(|content| content.until()),
            seen: content.map_or_else(Vec::new, |content| content.seen().to_vec()),
            counts: self.newest().collect(),
        }
    }
}

/// A value with what was added to it.
#[derive(Debug)]
pub(crate) enum Sum {
    /// Nothing was, or it is no number.
    Text(Bytes),
    Number(Decimal),
}

impl Sum {
    /// As a value.
    pub fn written(self) -> Bytes {
        match self {
            Sum::Text(text) => text,
            Sum::Number(number) => written(number),
        }
    }

    /// This and a number. Text that is no number stays.
    pub fn plus(sum: Option<Sum>, more: Decimal) -> Sum {
        match sum {
            None => Sum::Number(more),
            Some(Sum::Number(number)) => Sum::Number(added(number, more)),
            Some(Sum::Text(text)) => {
                decimal(&text).map_or(Sum::Text(text), |number| Sum::Number(added(number, more)))
            }
        }
    }

    /// What the client is told which adds something.
    ///
    /// # Errors
    /// As [`Compute::apply`].
    pub fn with(sum: Option<Sum>, adds: &Compute) -> Result<Computed, NotComputed> {
        let sum = match (sum, adds) {
            (Some(Sum::Number(number)), Compute::Add(more)) => {
                let whole = whole(number).ok_or(NotComputed::NotAnInteger)?;
                whole.checked_add(*more).ok_or(NotComputed::Overflow)?.into()
            }
            (Some(Sum::Number(number)), Compute::AddDecimal(more)) => {
                number.checked_add(*more).ok_or(NotComputed::TooManyDigits)?
            }
            (sum, adds) => return Ok(adds.apply(sum.map(Sum::written).as_ref())?.1),
        };
        Ok(Computed::Number(written(sum)))
    }
}

fn sum(register: Option<&Bytes>, left: impl Iterator<Item = Decimal>) -> Option<Sum> {
    let Some(total) = left.reduce(added) else {
        return register.cloned().map(Sum::Text);
    };
    // If the value is no number, it stays: which of the two a reader is shown must be the same everywhere.
    Some(Sum::plus(register.cloned().map(Sum::Text), total))
}

/// The number, if it is an integer of 64 bits.
fn whole(number: Decimal) -> Option<i64> {
    let number = if number.scale() == 0 {
        number
    } else {
        number.normalize()
    };
    match number.scale() {
        0 => number.mantissa().try_into().ok(),
        _ => None,
    }
}

/// What a writer has seen of a key's number: [`Shown`], apart from the store.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    value: Option<Bytes>,
    until: Option<Micros>,
    seen: Vec<SeenCount>,
    counts: Vec<Newest>,
}

impl Tally {
    fn expired_at(&self, now: Hlc) -> Option<Hlc> {
        self.until.map(Hlc::from_wall).filter(|&until| until <= now)
    }

    /// What the register says at this time.
    pub fn register(&self, now: Hlc) -> Option<&Bytes> {
        self.value.as_ref().filter(|_| self.expired_at(now).is_none())
    }

    /// The value at this time, before it is written down.
    pub fn sum(&self, now: Hlc) -> Option<Sum> {
        let expired = self.expired_at(now);
        let left = self
            .counts
            .iter()
            .filter_map(|newest| newest.left(&self.seen, expired));
        sum(self.register(now), left)
    }

    /// The value at this time.
    pub fn value(&self, now: Hlc) -> Option<Bytes> {
        self.sum(now).map(Sum::written)
    }

    /// When the value expires, for a writer at this time. `None`: never, or it has expired.
    pub fn until(&self, now: Hlc) -> Option<Micros> {
        self.until.filter(|_| self.expired_at(now).is_none())
    }

    /// The same after a delete.
    pub fn deleted(&self) -> Tally {
        self.with_register(None, None, self.resets_all())
    }

    /// The same after a write of the register.
    pub fn with_register(&self, value: Option<Bytes>, until: Option<Micros>, seen: Vec<SeenCount>) -> Tally {
        Tally {
            value,
            until,
            seen,
            counts: self.counts.clone(),
        }
    }

    /// When the newest count of a replica was stamped. 0: there is none.
    pub fn counted_at(&self, replica: ReplicaId) -> Hlc {
        let own = self.counts.iter().find(|newest| newest.replica == replica);
        own.map_or(Hlc::ZERO, |own| own.at)
    }

    /// The next count of this replica, which adds this much. `None`: its total would have too many digits.
    pub fn counted(&self, by: VersionId, more: Decimal) -> Option<Count> {
        let own = self.counts.iter().find(|newest| newest.replica == by.replica);
        let goes_on = own.filter(|own| own.left(&self.seen, self.expired_at(by.at)).is_some());
        let (since, total) = goes_on.map_or((by.at, Decimal::ZERO), |own| (own.count.since, own.count.total));
        let total = total.checked_add(more)?.normalize();
        Some(Count { since, total })
    }

    /// What a write of the register resets: everything that was seen, now or by the version before it.
    pub fn resets_all(&self) -> Vec<SeenCount> {
        self.merged(self.counts.iter())
    }

    /// What a change of the expiry to `until` names at this time: what is reset already or, if `until` has passed, everything that was seen.
    pub fn resets_at_expiry(&self, until: Option<Micros>, now: Hlc) -> Vec<SeenCount> {
        if until.is_some_and(|until| Hlc::from_wall(until) <= now) {
            return self.resets_all();
        }
        let expired = self.expired_at(now);
        let is_reset = |newest: &&Newest| newest.left(&self.seen, expired).is_none();
        self.merged(self.counts.iter().filter(is_reset))
    }

    /// What was seen before, and of these counts.
    fn merged<'a>(&self, counts: impl Iterator<Item = &'a Newest>) -> Vec<SeenCount> {
        let mut seen = self.seen.clone();
        for &Newest { replica, at, count } in counts {
            let total = count.total;
            match seen.binary_search_by_key(&replica, |seen| seen.replica) {
                Ok(place) if seen[place].at < at => seen[place] = SeenCount { replica, at, total },
                Ok(_) => {}
                Err(place) => seen.insert(place, SeenCount { replica, at, total }),
            }
        }
        seen
    }
}

/// The encoding of what a version says of counts: part of messages that `prost` derives.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct CountsRecord {
    /// The count that the version is.
    #[prost(message, optional, tag = "1")]
    count: Option<CountRecord>,
    /// The counts that it has seen and reset, by replica.
    #[prost(message, repeated, tag = "2")]
    seen: Vec<SeenRecord>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
struct CountRecord {
    #[prost(fixed64, tag = "1")]
    since: u64,
    /// As text.
    #[prost(bytes = "bytes", tag = "2")]
    total: Bytes,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
struct SeenRecord {
    #[prost(uint32, tag = "1")]
    replica: u32,
    #[prost(fixed64, tag = "2")]
    at: u64,
    /// As text.
    #[prost(bytes = "bytes", tag = "3")]
    total: Bytes,
}

/// What a version says of counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counts {
    /// It is a count.
    Is(Count),
    /// It is one of the register, and resets these.
    Resets(Vec<SeenCount>),
}

impl CountsRecord {
    /// Whether a content says anything of counts.
    #[inline]
    pub fn is_needed(content: &crate::Content) -> bool {
        content.count().is_some()
            || !content.seen().is_empty()
            || content.stored().is_none() && !content.is_plain_delete()
    }

    /// What a content says of counts, encoded. Empty if that is nothing.
    pub fn encoded(content: &crate::Content) -> Vec<u8> {
        let record = CountsRecord::of(content);
        record.map_or_else(Vec::new, |record| prost::Message::encode_to_vec(&record))
    }

    /// Decodes what [`CountsRecord::encoded`] has encoded of a version of this name.
    ///
    /// # Errors
    /// As [`CountsRecord::counts`], or if it does not decode.
    pub fn decoded(bytes: Bytes, id: VersionId) -> Result<Counts, BadFrame> {
        let record: Result<CountsRecord, _> = prost::Message::decode(bytes);
        record
            .map_err(|error| BadFrame::new("what a version says of counts", error.to_string()))?
            .counts(id)
    }

    /// The record of a content. `None` if it says nothing of counts.
    pub fn of(content: &crate::Content) -> Option<CountsRecord> {
        let seen = content.seen();
        let count = content.count();
        (count.is_some() || !seen.is_empty()).then(|| CountsRecord {
            count: count.map(|count| CountRecord {
                since: count.since.0,
                total: written(count.total),
            }),
            seen: seen
                .iter()
                .map(|seen| SeenRecord {
                    replica: seen.replica.0.into(),
                    at: seen.at.0,
                    total: written(seen.total),
                })
                .collect(),
        })
    }

    /// What a version of this name says.
    ///
    /// # Errors
    /// If it is both, a total is no number in its shortest form, a replica is one that no partition has or comes twice, or a timestamp is above that of the version.
    pub fn counts(self, id: VersionId) -> Result<Counts, BadFrame> {
        let bad = |found: String| BadFrame::new("a version that counts, or has seen counts", found);
        let total = |text: &Bytes| {
            let number = decimal(text).filter(|_| text.len() <= MAX_NUMBER_BYTES);
            number
                .filter(|&number| written(number) == *text)
                .ok_or_else(|| bad(format!("the total '{}'", text.escape_ascii())))
        };
        let time = |at: u64| match at > 0 && at <= id.at.0 {
            true => Ok(Hlc(at)),
            false => Err(bad(format!("{} in version {id}", Hlc(at)))),
        };
        let Some(count) = self.count else {
            let seen = self
                .seen
                .into_iter()
                .map(|seen| match seen.replica < u32::from(ReplicaSet::MAX) {
                    true => Ok(SeenCount {
                        replica: ReplicaId(seen.replica as u16),
                        at: time(seen.at)?,
                        total: total(&seen.total)?,
                    }),
                    false => Err(BadFrame::replica(seen.replica)),
                });
            let seen: Vec<SeenCount> = seen.collect::<Result<_, _>>()?;
            return match seen.is_sorted_by(|one, other| one.replica < other.replica) {
                true => Ok(Counts::Resets(seen)),
                false => Err(bad("replicas in another order, or one of them twice".to_string())),
            };
        };
        match self.seen.is_empty() {
            true => Ok(Counts::Is(Count {
                since: time(count.since)?,
                total: total(&count.total)?,
            })),
            false => Err(bad("a count that has seen counts".to_string())),
        }
    }

    /// The replicas that it names.
    pub fn replicas(&self) -> ReplicaSet {
        let named = self.seen.iter().map(|seen| seen.replica);
        let known = named.filter(|&replica| replica < u32::from(ReplicaSet::MAX));
        known.map(|replica| ReplicaId(replica as u16)).collect()
    }
}
