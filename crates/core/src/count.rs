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
//! `since` has seen nothing of this one. When a key that was counted may be forgotten is another question: see `floor.rs`.
//!
//! # What this cannot do
//!
//! Answers to increments are not unique across sites: `INCR x` may return 6 at two sites. Ids and quotas belong in a keyspace where all writes to a key have one order.
use crate::compute::{Compute, Computed, NotComputed, decimal};
use crate::{Hlc, ReplicaId};
use bytes::Bytes;
use rust_decimal::Decimal;

/// What one replica has added to a key's number, or to that of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// When the first of these additions was stamped.
    pub since: Hlc,
    /// When the last one was.
    pub at: Hlc,
    /// Their sum, in its shortest form.
    pub total: Decimal,
}

/// What a write had seen of a replica's share of a key, or of an element in it, and has reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenCount {
    /// The replica.
    pub replica: ReplicaId,
    /// When it was stamped.
    pub at: Hlc,
    /// The total of its count.
    pub total: Decimal,
}

impl Count {
    /// What is left of the count beside a write that has seen this, and if it has expired at this time. `None`: all of it is reset.
    pub(crate) fn left(&self, seen: Option<&SeenCount>, expired: Option<Hlc>) -> Option<Decimal> {
        if expired.is_some_and(|expired| self.at < expired) {
            return None;
        }
        match seen {
            Some(seen) if self.at <= seen.at => None,
            Some(seen) if self.since <= seen.at => Some(added(self.total, -seen.total)),
            _ => Some(self.total),
        }
    }

    /// The count with one more addition, or the first one. `None`: its total would have too many digits.
    pub(crate) fn next(before: Option<Count>, at: Hlc, more: Decimal) -> Option<Count> {
        let (since, total) = before.map_or((at, Decimal::ZERO), |count| (count.since, count.total));
        let total = total.checked_add(more)?.normalize();
        Some(Count { since, at, total })
    }
}

/// The sum. If it has more than 28 digits, it is the largest or the smallest number that has no more.
pub(crate) fn added(one: Decimal, other: Decimal) -> Decimal {
    one.checked_add(other).unwrap_or(match one.is_sign_negative() {
        true => Decimal::MIN,
        false => Decimal::MAX,
    })
}

/// In its shortest form. Almost all numbers are integers of 64 bits, and those are written faster than others.
pub(crate) fn written(number: Decimal) -> Bytes {
    match whole(number) {
        Some(whole) => whole.to_string().into(),
        None => number.normalize().to_string().into(),
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

pub(crate) fn sum(register: Option<&Bytes>, left: impl Iterator<Item = Decimal>) -> Option<Sum> {
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
