//! What one replica has added to a key's elements, and removed of those of others, in one piece of memory. A site may have millions of small hashes, and each write of one makes a new piece.
//! The same bytes are sent and stored.
//!
//! ```text
//!   bits 1 | how many were added 4 | how many were removed 4 | where each entry ends 4 .. | the entries
//!
//!   what was added,   by kind and name:            bits 1 | length of the name 4 | [at 8] | [since 8 | at 8 | total 16] | name | value
//!   what was removed, by kind, name and replica:   bits 1 | length of the name 4 | replica 2 | at 8 | [total 16] | name
//! ```
//!
//! Numbers are big endian; totals are as [`Decimal::serialize`] writes them. Ends count from the first entry. So an entry is found by its number, and by bisection by its name. If there are no entries,
//! there are no bytes at all.
mod builder;

pub(crate) use builder::Builder;

use crate::compute::MAX_NUMBER_BYTES;
use crate::count::written;
use crate::{BadFrame, Count, Hlc, Kind, ReplicaId, ReplicaSet, SeenCount, VersionId};
use bytes::Bytes;
use rust_decimal::Decimal;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

/// The elements that one replica has added, and those of others that it has removed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Contribution(Bytes);

/// The name of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name<'a> {
    pub kind: Kind,
    pub name: &'a [u8],
}

/// An element that a replica has added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Added<'a> {
    pub name: Name<'a>,
    /// When the value was stamped, and the value of a field or the empty value.
    pub value: Option<(Hlc, &'a [u8])>,
    /// What was added to the number that is the field's value.
    pub count: Option<Count>,
}

/// What a writer has seen of an element that a replica had added, and has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Removed<'a> {
    pub name: Name<'a>,
    pub seen: SeenCount,
}

impl Added<'_> {
    /// When the replica wrote it last.
    pub fn at(&self) -> Hlc {
        let value = self.value.map(|(at, _)| at);
        let count = self.count.map(|count| count.at);
        value.max(count).unwrap_or(Hlc::ZERO)
    }

    /// What a writer says of it that has seen it.
    pub fn seen_of(&self, replica: ReplicaId) -> SeenCount {
        SeenCount {
            replica,
            at: self.at(),
            total: self.count.map_or(Decimal::ZERO, |count| count.total),
        }
    }

    /// Whether this removal is about something of it.
    pub fn concerns(&self, removed: &SeenCount) -> bool {
        self.value.is_some_and(|(at, _)| at <= removed.at)
            || self.count.is_some_and(|count| count.since <= removed.at)
    }

    /// The bits of a contribution that has added this alone.
    fn whole_bits(&self) -> u8 {
        let kind = match self.name.kind {
            Kind::Hash => FIELDS,
            Kind::Set => MEMBERS,
        };
        kind | if self.count.is_some() { COUNTS } else { 0 }
    }

    /// The bytes of its name and its value.
    pub fn bytes(&self) -> usize {
        self.name.name.len() + self.value.map_or(0, |(_, value)| value.len())
    }

    /// The bytes of its entry. Without a value it has some less.
    pub fn entry_bytes(&self) -> usize {
        BESIDE_BYTES + self.bytes() + self.count.map_or(0, |_| COUNT_BYTES)
    }
}

impl Removed<'_> {
    pub fn place(&self) -> (Name<'_>, ReplicaId) {
        (self.name, self.seen.replica)
    }
}

// The bits of an entry: its kind, and what it has.
const MEMBER: u8 = 1;
const VALUE: u8 = 2;
const COUNT: u8 = 4;
const TOTAL: u8 = 8;

// The bits of the whole: what was added.
const FIELDS: u8 = 1;
const MEMBERS: u8 = 2;
const COUNTS: u8 = 4;

/// The offsets of the two numbers, the bytes before the ends, and those of each end.
const HOW_MANY_ADDED: usize = 1;
const HOW_MANY_REMOVED: usize = 5;
const HEAD_BYTES: usize = 9;
const END_BYTES: usize = 4;

/// The bytes of an entry with a value beside its name and the value, and those of a count.
const BESIDE_BYTES: usize = 13;
const COUNT_BYTES: usize = 32;

/// The numbers of entries, or of those before which others would be. Most writes change few elements.
pub(crate) type Places = SmallVec<[Result<usize, usize>; 4]>;

/// The bytes of an entry that are not yet taken.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn time(&mut self) -> Option<Hlc> {
        self.take().map(u64::from_be_bytes).map(Hlc)
    }

    /// Nothing else than what [`Decimal::serialize`] writes.
    fn total(&mut self) -> Option<Decimal> {
        let bytes = self.take()?;
        Some(Decimal::deserialize(bytes)).filter(|total| total.serialize() == bytes)
    }

    fn slice(&mut self, length: u32) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(taken)
    }

    fn bits(&mut self, allowed: u8) -> Option<u8> {
        let [bits] = self.take()?;
        (bits & !allowed == 0).then_some(bits)
    }

    fn added(mut self) -> Option<Added<'a>> {
        let bits = self.bits(MEMBER | VALUE | COUNT)?;
        let length = u32::from_be_bytes(self.take()?);
        let at = match bits & VALUE > 0 {
            true => Some(self.time()?),
            false => None,
        };
        let count = match bits & COUNT > 0 {
            true => Some(Count {
                since: self.time()?,
                at: self.time()?,
                total: self.total()?,
            }),
            false => None,
        };
        let name = self.slice(length)?;
        let value = at.map(|at| (at, self.0));
        (value.is_some() || self.0.is_empty()).then_some(Added {
            name: Name {
                kind: kind(bits),
                name,
            },
            value,
            count,
        })
    }

    fn removed(mut self) -> Option<Removed<'a>> {
        let bits = self.bits(MEMBER | TOTAL)?;
        let length = u32::from_be_bytes(self.take()?);
        let seen = SeenCount {
            replica: ReplicaId(u16::from_be_bytes(self.take()?)),
            at: self.time()?,
            total: match bits & TOTAL > 0 {
                true => self.total().filter(|total| !total.is_zero())?,
                false => Decimal::ZERO,
            },
        };
        let name = self.slice(length)?;
        self.0.is_empty().then_some(Removed {
            name: Name {
                kind: kind(bits),
                name,
            },
            seen,
        })
    }
}

fn kind(bits: u8) -> Kind {
    match bits & MEMBER > 0 {
        true => Kind::Set,
        false => Kind::Hash,
    }
}

impl Contribution {
    /// Nothing was added or removed.
    pub(crate) fn nothing() -> &'static Contribution {
        static NOTHING: Contribution = Contribution::empty();
        &NOTHING
    }

    pub(crate) const fn empty() -> Contribution {
        Contribution(Bytes::new())
    }

    /// What `bytes` says, as a version of this name says it.
    ///
    /// # Errors
    /// If it is no encoding of elements, names or replicas come twice or in another order, a replica is one that no partition has, a total is not in its shortest form, or a time is above that of the version.
    pub(crate) fn checked(bytes: Bytes, version: VersionId) -> Result<Contribution, BadFrame> {
        let elements = Contribution(bytes);
        match elements.check(version) {
            Ok(()) => Ok(elements),
            Err(found) => Err(bad(found)),
        }
    }

    fn check(&self, version: VersionId) -> Result<(), String> {
        if self.0.is_empty() {
            return Ok(());
        }
        let other = || "elements in another form".to_string();
        if self.0.len() < HEAD_BYTES {
            return Err(other());
        }
        let (added, removed) = (self.number(HOW_MANY_ADDED), self.number(HOW_MANY_REMOVED));
        let head = (u64::from(added) + u64::from(removed)) * END_BYTES as u64 + HEAD_BYTES as u64;
        let entries = (self.0.len() as u64).checked_sub(head).ok_or_else(other)?;
        let ends = || (0..self.entries()).map(|entry| u64::from(self.end(entry)));
        if !ends().is_sorted() || ends().next_back() != Some(entries) {
            return Err(other());
        }
        let time = |at: Hlc| match at > Hlc::ZERO && at <= version.at {
            true => Ok(()),
            false => Err(format!("{at} in version {version}")),
        };
        let total = |total: Decimal| {
            let shortest = total.normalize().serialize() == total.serialize();
            match shortest && written(total).len() <= MAX_NUMBER_BYTES {
                true => Ok(()),
                false => Err(format!("the total '{total}'")),
            }
        };
        let (mut last, mut bits) = (None, 0);
        for entry in 0..added as usize {
            let added = Rest(self.entry(entry)).added().ok_or_else(other)?;
            bits |= added.whole_bits();
            if last.is_some_and(|last| last >= added.name) {
                return Err("elements in another order, or one of them twice".to_string());
            }
            last = Some(added.name);
            if added.value.is_none() && added.count.is_none() {
                return Err("an element without a value".to_string());
            }
            added.value.map_or(Ok(()), |(at, _)| time(at))?;
            if let Some(count) = added.count {
                time(count.since)?;
                time(count.at)?;
                total(count.total)?;
                if count.since > count.at {
                    return Err(format!("a count since {} until {}", count.since, count.at));
                }
            }
        }
        if bits != self.0[0] {
            return Err(other());
        }
        let mut last = None;
        for entry in added as usize..self.entries() {
            let removed = Rest(self.entry(entry)).removed().ok_or_else(other)?;
            let place = (removed.name, removed.seen.replica);
            if last.is_some_and(|last| last >= place) {
                return Err("removals in another order, or one of them twice".to_string());
            }
            last = Some(place);
            if removed.seen.replica.0 >= ReplicaSet::MAX {
                return Err(format!(
                    "a removal of what replica {} has added",
                    removed.seen.replica.0
                ));
            }
            time(removed.seen.at)?;
            total(removed.seen.total)?;
        }
        Ok(())
    }

    fn number(&self, offset: usize) -> u32 {
        let bytes = self.0.get(offset..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// How many entries there are of what was added.
    pub(crate) fn added_len(&self) -> usize {
        self.number(HOW_MANY_ADDED) as usize
    }

    /// How many entries there are: first of what was added, then of what was removed.
    pub(crate) fn entries(&self) -> usize {
        self.added_len() + self.number(HOW_MANY_REMOVED) as usize
    }

    /// Whether anything was removed.
    pub(crate) fn has_removals(&self) -> bool {
        self.number(HOW_MANY_REMOVED) > 0
    }

    /// The type of what was added, if all of it has that type, and all of it are values.
    pub(crate) fn values_of(&self) -> Option<Kind> {
        match self.0.first() {
            Some(&FIELDS) => Some(Kind::Hash),
            Some(&MEMBERS) => Some(Kind::Set),
            _ => None,
        }
    }

    /// The bytes of all names and values that were added, if all of it are values.
    pub(crate) fn bytes_of_values(&self) -> usize {
        let entries = self.bytes_of(&(0..self.added_len()));
        entries.saturating_sub(self.added_len() * BESIDE_BYTES)
    }

    /// Where an entry begins, counted from the first one.
    fn begin(&self, entry: usize) -> usize {
        entry.checked_sub(1).map_or(0, |before| self.end(before)) as usize
    }

    /// The bytes of these entries, as they are kept.
    pub(crate) fn bytes_of(&self, entries: &Range<usize>) -> usize {
        self.begin(entries.end) - self.begin(entries.start)
    }

    fn end(&self, entry: usize) -> u32 {
        self.number(HEAD_BYTES + entry * END_BYTES)
    }

    /// All entries from this one on, as they are kept.
    pub(crate) fn raw_entries(&self, from: usize) -> impl Iterator<Item = &[u8]> {
        let (ends, entries) = match self.0.is_empty() {
            true => (&[][..], &[][..]),
            false => self.0[HEAD_BYTES..].split_at(self.entries() * END_BYTES),
        };
        let mut begin = self.begin(from);
        let ends = ends.as_chunks().0;
        ends[from.min(ends.len())..].iter().map(move |end| {
            let end = u32::from_be_bytes(*end) as usize;
            &entries[std::mem::replace(&mut begin, end)..end]
        })
    }

    /// How many of the first entries are the same in another contribution, all of them of what was added.
    pub(crate) fn common_added(&self, other: &Contribution) -> usize {
        let parts = |of: &Contribution| {
            let head = HEAD_BYTES + of.entries() * END_BYTES;
            (HEAD_BYTES..head, head..of.0.len())
        };
        if self.0.is_empty() || other.0.is_empty() {
            return 0;
        }
        let ((ends, entries), (other_ends, other_entries)) = (parts(self), parts(other));
        let same_ends = common_bytes(&self.0[ends], &other.0[other_ends]) / END_BYTES;
        let same_bytes = common_bytes(&self.0[entries], &other.0[other_entries]);
        let most = same_ends.min(self.added_len()).min(other.added_len());
        let (Ok(same) | Err(same)) = bisect(0..most, |entry| match self.end(entry) as usize <= same_bytes {
            true => Ordering::Less,
            false => Ordering::Greater,
        });
        same
    }

    /// An entry, as it is kept.
    fn entry(&self, entry: usize) -> &[u8] {
        let entries = HEAD_BYTES + self.entries() * END_BYTES;
        &self.0[entries + self.begin(entry)..entries + self.end(entry) as usize]
    }

    fn added_at(&self, entry: usize) -> Added<'_> {
        Rest(self.entry(entry)).added().expect("it was checked")
    }

    fn removed_at(&self, entry: usize) -> Removed<'_> {
        Rest(self.entry(entry)).removed().expect("it was checked")
    }

    /// What was added, by kind and name.
    pub(crate) fn added(&self) -> impl ExactSizeIterator<Item = Added<'_>> {
        self.added_among(0..self.added_len())
    }

    /// Of what was added, these entries.
    pub(crate) fn added_among(&self, entries: Range<usize>) -> impl ExactSizeIterator<Item = Added<'_>> {
        entries.map(|entry| self.added_at(entry))
    }

    /// Of what was added, that of this kind.
    pub(crate) fn added_of(&self, kind: Kind) -> impl ExactSizeIterator<Item = Added<'_>> {
        let members = Name {
            kind: Kind::Set,
            name: &[],
        };
        let (Ok(first) | Err(first)) = self.position(members);
        self.added_among(match kind {
            Kind::Hash => 0..first,
            Kind::Set => first..self.added_len(),
        })
    }

    /// What was removed, by kind, name and replica.
    pub(crate) fn removed(&self) -> impl Iterator<Item = Removed<'_>> {
        (self.added_len()..self.entries()).map(|entry| self.removed_at(entry))
    }

    /// The number of the entry of this name in what was added, or that of the entry before which it would be.
    pub(crate) fn position(&self, name: Name<'_>) -> Result<usize, usize> {
        bisect(0..self.added_len(), |entry| self.added_at(entry).name.cmp(&name))
    }

    /// The element of this name that was added.
    pub(crate) fn find(&self, name: Name<'_>) -> Option<Added<'_>> {
        self.position(name).ok().map(|entry| self.added_at(entry))
    }

    /// Which of two entries comes first, this one or one of another contribution: they are equal if they say something of the same. What was added comes first, and an entry that does not exist last.
    pub(crate) fn compare(&self, entry: usize, other: &Contribution, of_other: usize) -> Ordering {
        let part = |of: &Contribution, entry: usize| match entry {
            _ if entry < of.added_len() => 0,
            _ if entry < of.entries() => 1,
            _ => 2,
        };
        let (mine, theirs) = (part(self, entry), part(other, of_other));
        mine.cmp(&theirs).then_with(|| match mine {
            0 => self.added_at(entry).name.cmp(&other.added_at(of_other).name),
            1 => self
                .removed_at(entry)
                .place()
                .cmp(&other.removed_at(of_other).place()),
            _ => Ordering::Equal,
        })
    }

    /// The number of the entry that says something of the same as an entry of another contribution, or that of the entry before which it would be.
    pub(crate) fn place_of(&self, other: &Contribution, of_other: usize) -> Result<usize, usize> {
        let among = match of_other < other.added_len() {
            true => 0..self.added_len(),
            false => self.added_len()..self.entries(),
        };
        bisect(among, |entry| self.compare(entry, other, of_other))
    }

    /// What was removed of an element that a replica has added.
    pub(crate) fn removal(&self, name: Name<'_>, replica: ReplicaId) -> Option<SeenCount> {
        let found = bisect(self.added_len()..self.entries(), |entry| {
            self.removed_at(entry).place().cmp(&(name, replica))
        });
        found.ok().map(|entry| self.removed_at(entry).seen)
    }

    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The replicas of whose additions it has removed some.
    pub(crate) fn replicas(&self) -> ReplicaSet {
        self.removed().map(|removed| removed.seen.replica).collect()
    }

    /// What is sent and stored.
    pub(crate) fn encoded(&self) -> Bytes {
        self.0.clone()
    }

    /// The same, of one that is not needed any more.
    pub(crate) fn into_encoded(self) -> Bytes {
        self.0
    }

    /// A name or a value of it. It shares this memory, unless it would keep much more of it than it needs.
    pub(crate) fn part(&self, part: &[u8]) -> Bytes {
        match part.len() >= self.0.len() / 4 {
            true => self.0.slice_ref(part),
            false => Bytes::copy_from_slice(part),
        }
    }

    /// The same in memory of its own.
    pub(crate) fn compact(&self) -> Contribution {
        Contribution(Bytes::copy_from_slice(&self.0))
    }

    /// The bytes that it takes in memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Contribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contribution")
            .field("added", &self.added().collect::<Vec<_>>())
            .field("removed", &self.removed().collect::<Vec<_>>())
            .finish()
    }
}

/// How many of the first bytes are the same in both.
fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    const BLOCK: usize = 16;
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK));
    let same = blocks.take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[same * BLOCK..], &other[same * BLOCK..]);
    let rest = one.iter().zip(other).take_while(|(one, other)| one == other);
    same * BLOCK + rest.count()
}

/// Looks an entry up by bisection: its number, or that of the entry before which it would be.
fn bisect(among: Range<usize>, compared: impl Fn(usize) -> Ordering) -> Result<usize, usize> {
    let (mut low, mut high) = (among.start, among.end);
    while low < high {
        let middle = low.midpoint(high);
        match compared(middle) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return Ok(middle),
            Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

fn bad(found: String) -> BadFrame {
    BadFrame::new("the elements that a replica has added and removed", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const VERSION: VersionId = VersionId {
        at: Hlc(100),
        replica: ReplicaId(0),
    };

    type Key = (Kind, Vec<u8>);
    /// A value, and a count.
    type Of = (Option<(u64, Vec<u8>)>, Option<(u64, u64, i64)>);
    type Map = (BTreeMap<Key, Of>, BTreeMap<(Key, u16), (u64, i64)>);

    fn key() -> impl Strategy<Value = Key> {
        let kind = prop::sample::select(&[Kind::Hash, Kind::Set][..]);
        (kind, prop::collection::vec(0..3_u8, 0..4))
    }

    fn map() -> impl Strategy<Value = Map> {
        let value = (1..=100_u64, prop::collection::vec(any::<u8>(), 0..4));
        let count = (1..=50_u64, 50..=100_u64, any::<i64>());
        let added = (prop::option::of(value), prop::option::of(count))
            .prop_filter("it has something", |(value, count)| {
                value.is_some() || count.is_some()
            });
        (
            prop::collection::btree_map(key(), added, 0..12),
            prop::collection::btree_map((key(), 0..3_u16), (1..=100_u64, -1..2_i64), 0..12),
        )
    }

    fn added<'a>(key: &'a Key, of: &'a Of) -> Added<'a> {
        Added {
            name: Name {
                kind: key.0,
                name: &key.1,
            },
            value: of.0.as_ref().map(|(at, value)| (Hlc(*at), &**value)),
            count: of.1.map(|(since, at, total)| Count {
                since: Hlc(since),
                at: Hlc(at),
                total: Decimal::from(total).normalize(),
            }),
        }
    }

    fn removed<'a>((key, replica): &'a (Key, u16), (at, total): &(u64, i64)) -> Removed<'a> {
        Removed {
            name: Name {
                kind: key.0,
                name: &key.1,
            },
            seen: SeenCount {
                replica: ReplicaId(*replica),
                at: Hlc(*at),
                total: Decimal::from(*total),
            },
        }
    }

    fn built(map: &Map) -> Contribution {
        let mut builder = Builder::default();
        map.0.iter().for_each(|(key, of)| builder.add(&added(key, of)));
        map.1
            .iter()
            .for_each(|(key, of)| builder.remove(&removed(key, of)));
        builder.done()
    }

    proptest! {
        /// It has what a map has.
        #[test]
        fn what_was_put_in_is_found(map in map(), other in key(), of in 0..3_u16) {
            let built = built(&map);
            prop_assert_eq!(built.is_empty(), map.0.is_empty() && map.1.is_empty());
            prop_assert!(built.added().eq(map.0.iter().map(|(key, of)| added(key, of))));
            prop_assert!(built.removed().eq(map.1.iter().map(|(key, of)| removed(key, of))));
            for key in map.0.keys().chain([&other]) {
                let name = Name { kind: key.0, name: &key.1 };
                prop_assert_eq!(built.find(name), map.0.get(key).map(|of| added(key, of)));
            }
            let other = (other, of);
            for place in map.1.keys().chain([&other]) {
                let name = Name { kind: place.0.0, name: &place.0.1 };
                let seen = map.1.get(place).map(|of| removed(place, of).seen);
                prop_assert_eq!(built.removal(name, ReplicaId(place.1)), seen);
            }
            prop_assert_eq!(Contribution::checked(built.encoded(), VERSION), Ok(built.clone()));
            prop_assert_eq!(built.compact(), built.clone());
            if built.values_of().is_some() {
                let mut copy = Builder::default();
                copy.copy(&built, 0..built.added_len() / 2);
                copy.copy(&built, built.added_len() / 2..built.added_len());
                built.removed().for_each(|removed| copy.remove(&removed));
                prop_assert_eq!((copy.added_len(), copy.bytes()), (built.added_len(), built.bytes_of_values()));
                prop_assert_eq!(copy.done(), built);
            }
        }

        /// What a peer has sent is refused, or is just what would be written.
        #[test]
        fn changed_bytes_are_refused_or_read(map in map(), place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
            let mut bytes = built(&map).encoded().to_vec();
            prop_assume!(!bytes.is_empty());
            let place = place.index(bytes.len());
            match cut {
                true => bytes.truncate(place),
                false => bytes[place] = byte,
            }
            if let Ok(read) = Contribution::checked(bytes.into(), VERSION) {
                let mut builder = Builder::default();
                read.added().for_each(|added| builder.add(&added));
                read.removed().for_each(|removed| builder.remove(&removed));
                prop_assert_eq!(builder.done(), read);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let field = |name: &'static [u8]| Name {
            kind: Kind::Hash,
            name,
        };
        let value = |name, at| Added {
            name: field(name),
            value: Some((Hlc(at), b"v")),
            count: None,
        };
        let count = |since, at, total: &str| Added {
            name: field(b"a"),
            value: None,
            count: Some(Count {
                since: Hlc(since),
                at: Hlc(at),
                total: total.parse().expect("a number"),
            }),
        };
        let removal = |name, replica, at| Removed {
            name: field(name),
            seen: SeenCount {
                replica: ReplicaId(replica),
                at: Hlc(at),
                total: Decimal::ZERO,
            },
        };
        let found = |added: &[Added<'_>], removed: &[Removed<'_>]| {
            let mut builder = Builder::default();
            added.iter().for_each(|added| builder.add(added));
            removed.iter().for_each(|removed| builder.remove(removed));
            let checked = Contribution::checked(builder.done().encoded(), VERSION);
            checked.map_or_else(|error| error.to_string(), |_| "taken".to_string())
        };
        assert_eq!(
            found(&[value(b"a", 1), value(b"b", 100)], &[removal(b"a", 127, 9)]),
            "taken"
        );
        for (added, removed, expected) in [
            (vec![value(b"b", 1), value(b"a", 1)], vec![], "another order"),
            (vec![value(b"a", 1), value(b"a", 1)], vec![], "twice"),
            (vec![value(b"a", 101)], vec![], "in version"),
            (vec![value(b"a", 0)], vec![], "in version"),
            (vec![count(5, 4, "1")], vec![], "since"),
            (vec![count(4, 5, "1.50")], vec![], "total"),
            (
                vec![Added {
                    value: None,
                    ..value(b"a", 1)
                }],
                vec![],
                "without a value",
            ),
            (vec![], vec![removal(b"a", 128, 9)], "replica 128"),
            (vec![], vec![removal(b"a", 1, 101)], "in version"),
            (vec![], vec![removal(b"a", 1, 9), removal(b"a", 1, 9)], "twice"),
        ] {
            let found = found(&added, &removed);
            assert!(found.contains(expected), "{found} and not {expected}");
        }
        for bytes in [
            &[0; 3][..],
            &[0; 9],
            &[255; 64],
            &[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            let bytes = Bytes::copy_from_slice(bytes);
            assert!(Contribution::checked(bytes, VERSION).is_err());
        }
    }
}
