//! # Hashes and sets
//!
//! A hash has fields with values, a set has members. Both are *elements* of a key. Two sites that do not hear each other may change elements of one key, and nothing is lost: what each replica has added is
//! kept apart, as its count is ([`crate::Share`]).
//!
//! ```text
//!   site a:   HSET cart pen 2 @5                 a: pen = 2 @5
//!   site b:   HSET cart ink 1 @6                 b: ink = 1 @6
//!   site a:   HDEL cart pen @7                   a: nothing            (what a itself had added is dropped)
//!   site b:   HDEL cart pen @9, which saw @5     b: ink = 1 @6, has removed pen @5 of a
//!
//!   everywhere, in the end:   ink = 1
//! ```
//!
//! - Each field is a register: of the values that are not removed, the one that was stamped last is shown.
//! - A removal names what its writer has seen: of each other replica, up to which time. What was added elsewhere meanwhile stays. So a member that one site adds and another one removes is in the set: *add wins*
//!   (the observed-remove set of Shapiro et al., *A comprehensive study of convergent and commutative replicated data types*, 2011, section 3.3.5, with one entry for each replica in the place of unique tags).
//! - A write of a field removes the older values of it that its writer has seen.
//! - `HINCRBY` adds to a count of the replica, as `INCR` does ([`crate::Count`]).
//! - `DEL` of a hash or set removes all elements that it has seen. `SET` resets what it has seen, as it resets counts.
//! - A key whose elements expire shows none that was stamped before that time.
//!
//! # Which type a key has
//!
//! Two sites may write a string and a hash under one key. Then the key is a string while that has a value; else it is a hash while it has a field; else a set while it has a member. Every site finds the same.
//!
//! # What a write costs
//!
//! A replica writes all that it has added itself, and all that it has removed of others and that these have not dropped yet. So a write of one element costs time, memory and bandwidth in proportion to the elements that were
//! added at this site. [`Edit::MAX_BYTES`] bounds them.
use crate::compute::decimal;
use crate::contribution::{Added, Builder, Contribution, Name};
use crate::frame::{put_record, take_record};
use crate::{BadFrame, Hlc, ReplicaSet, Wire};
use bytes::{Bytes, BytesMut};
use rust_decimal::Decimal;
use std::fmt;

/// What elements a key has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// Fields with values.
    Hash = 0,
    /// Members.
    Set = 1,
}

impl Kind {
    /// As `TYPE` says it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::Set => "set",
        }
    }
}

/// A hash or a set, as a reader sees it. It has at least one element.
///
/// If all that is shown is what one replica has added, it shares the memory of that.
#[derive(Clone)]
pub struct Elements {
    kind: Kind,
    /// It has added values of this kind alone. When they were stamped, and what was removed, is no part of the hash or the set.
    of: Contribution,
}

impl Elements {
    /// A hash with these fields and their values, or a set with these members and empty values. `None` if there are none. If a name comes several times, its last value counts.
    pub fn new(kind: Kind, mut elements: Vec<(Bytes, Bytes)>) -> Option<Elements> {
        if !elements.is_sorted_by(|one, other| one.0 < other.0) {
            elements.reverse();
            elements.sort_by(|one, other| one.0.cmp(&other.0));
            elements.dedup_by(|later, first| later.0 == first.0);
        }
        let mut builder = Builder::default();
        for (name, value) in &elements {
            Elements::put(&mut builder, Name { kind, name }, value);
        }
        Elements::of(&builder.done())
    }

    /// The next element by name.
    pub(crate) fn put(builder: &mut Builder, name: Name<'_>, value: &[u8]) {
        builder.add(&Added {
            name,
            value: Some((Hlc::ZERO, value)),
            count: None,
        });
    }

    /// All that was added. `None` if that is nothing, of both kinds, or has a count.
    pub(crate) fn of(all: &Contribution) -> Option<Elements> {
        Some(Elements {
            kind: all.values_of()?,
            of: all.clone(),
        })
    }

    /// Whether it is a hash or a set.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many elements there are: at least one.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.of.added_len()
    }

    /// The value of a field; the empty value for a member.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let kind = self.kind;
        let found = self.of.find(Name { kind, name })?;
        found.value.map(|(_, value)| value)
    }

    /// The elements, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.of.added().map(|added| {
            let value = added.value.map_or(&[][..], |(_, value)| value);
            (added.name.name, value)
        })
    }

    /// A name or a value of it, to keep.
    pub fn part(&self, part: &[u8]) -> Bytes {
        self.of.part(part)
    }

    /// The bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.of.bytes_of_values()
    }
}

impl PartialEq for Elements {
    fn eq(&self, other: &Elements) -> bool {
        self.kind == other.kind && self.iter().eq(other.iter())
    }
}

impl Eq for Elements {}

impl fmt::Debug for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |(name, value): (&[u8], &[u8])| (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
        f.debug_struct("Elements")
            .field("kind", &self.kind)
            .field("elements", &self.iter().map(text).collect::<Vec<_>>())
            .finish()
    }
}

/// What a put changes in a hash or a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Sets fields.
    Set(Vec<(Bytes, Bytes)>),
    /// Sets a field if the hash does not have it.
    SetNew(Bytes, Bytes),
    /// Adds to the integer of 64 bits that is a field's value.
    Add(Bytes, i64),
    /// Adds to the decimal number that is a field's value.
    AddDecimal(Bytes, Decimal),
    /// Adds members to a set.
    Insert(Vec<Bytes>),
    /// Removes fields or members.
    Remove(Kind, Vec<Bytes>),
}

impl Edit {
    /// The most bytes of names and values, with 32 more for each, that a replica keeps of what it has added to a key and removed from it. Each write of the key sends all of them.
    pub const MAX_BYTES: usize = 1 << 20;

    /// The type of the keys that it changes.
    pub fn kind(&self) -> Kind {
        match self {
            Edit::Set(_) | Edit::SetNew(..) | Edit::Add(..) | Edit::AddDecimal(..) => Kind::Hash,
            Edit::Insert(_) => Kind::Set,
            Edit::Remove(kind, _) => *kind,
        }
    }

    /// Whether the replica decides by what is there whether anything is changed.
    pub fn decides(&self) -> bool {
        matches!(self, Edit::SetNew(..))
    }
}

/// The encoding of [`Edit`]: part of messages that `prost` derives.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EditRecord {
    #[prost(enumeration = "What", tag = "1")]
    what: i32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    names: Vec<Bytes>,
    /// Of the names, in order; none for members and removals. A number is written as text.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    values: Vec<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum What {
    Set = 0,
    SetNew = 1,
    Add = 2,
    AddDecimal = 3,
    Insert = 4,
    RemoveFields = 5,
    RemoveMembers = 6,
}

impl From<&Edit> for EditRecord {
    fn from(edit: &Edit) -> EditRecord {
        let one = |name: &Bytes, value: Bytes| (vec![name.clone()], vec![value]);
        let (what, (names, values)) = match edit {
            Edit::Set(fields) => (What::Set, fields.iter().cloned().unzip()),
            Edit::SetNew(name, value) => (What::SetNew, one(name, value.clone())),
            Edit::Add(name, more) => (What::Add, one(name, more.to_string().into())),
            Edit::AddDecimal(name, more) => (What::AddDecimal, one(name, more.to_string().into())),
            Edit::Insert(names) => (What::Insert, (names.clone(), Vec::new())),
            Edit::Remove(Kind::Hash, names) => (What::RemoveFields, (names.clone(), Vec::new())),
            Edit::Remove(Kind::Set, names) => (What::RemoveMembers, (names.clone(), Vec::new())),
        };
        EditRecord {
            what: what.into(),
            names,
            values,
        }
    }
}

impl EditRecord {
    /// # Errors
    /// If it is no edit. The error is what was found.
    pub(crate) fn edit(self) -> Result<Edit, String> {
        let what = What::try_from(self.what).map_err(|_| format!("an edit of unknown kind {}", self.what))?;
        let (names, values) = (self.names, self.values);
        let with_values = matches!(what, What::Set | What::SetNew | What::Add | What::AddDecimal);
        let expected = if with_values { names.len() } else { 0 };
        if names.is_empty() || values.len() != expected {
            return Err(format!("{} names with {} values", names.len(), values.len()));
        }
        let mut pairs = names.iter().cloned().zip(values);
        let mut one = || match (names.len(), pairs.next()) {
            (1, Some(pair)) => Ok(pair),
            (count, _) => Err(format!("{count} fields in the place of one")),
        };
        Ok(match what {
            What::Set => Edit::Set(pairs.collect()),
            What::SetNew => {
                let (name, value) = one()?;
                Edit::SetNew(name, value)
            }
            What::Add => {
                let (name, more) = one()?;
                let more = std::str::from_utf8(&more).ok().and_then(|more| more.parse().ok());
                Edit::Add(name, more.ok_or("an integer that is none")?)
            }
            What::AddDecimal => {
                let (name, more) = one()?;
                Edit::AddDecimal(name, decimal(&more).ok_or("a decimal number that is none")?)
            }
            What::Insert => Edit::Insert(names),
            What::RemoveFields => Edit::Remove(Kind::Hash, names),
            What::RemoveMembers => Edit::Remove(Kind::Set, names),
        })
    }
}

/// The encoding of [`Elements`]: part of messages that `prost` derives.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ElementsRecord {
    #[prost(enumeration = "Kind", tag = "1")]
    kind: i32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    names: Vec<Bytes>,
    /// Of the fields of a hash, in order.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    values: Vec<Bytes>,
}

impl From<&Elements> for ElementsRecord {
    fn from(elements: &Elements) -> ElementsRecord {
        let parts = |(name, value): (&[u8], &[u8])| (elements.part(name), elements.part(value));
        let (names, values) = elements.iter().map(parts).unzip();
        ElementsRecord {
            kind: elements.kind.into(),
            names,
            values: match elements.kind {
                Kind::Hash => values,
                Kind::Set => Vec::new(),
            },
        }
    }
}

impl ElementsRecord {
    /// # Errors
    /// If it is no hash and no set. The error is what was found.
    pub(crate) fn elements(self) -> Result<Elements, String> {
        let kind =
            Kind::try_from(self.kind).map_err(|_| format!("elements of unknown kind {}", self.kind))?;
        let names = self.names.len();
        let values = match kind {
            Kind::Hash => self.values,
            Kind::Set if self.values.is_empty() => vec![Bytes::new(); names],
            Kind::Set => return Err("members with values".to_string()),
        };
        if values.len() != names {
            return Err(format!("{names} names with {} values", values.len()));
        }
        let elements = self.names.into_iter().zip(values).collect();
        Elements::new(kind, elements).ok_or_else(|| "no elements".to_string())
    }
}

impl Wire for Edit {
    fn encode(&self, out: &mut BytesMut) {
        put_record(&EditRecord::from(self), out);
    }

    fn decode(frame: Bytes) -> Result<Edit, BadFrame> {
        const WHAT: &str = "a change of elements";
        let record: EditRecord = take_record(frame, WHAT)?;
        record.edit().map_err(|found| BadFrame::new(WHAT, found))
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }

    fn replicas(&self) -> ReplicaSet {
        ReplicaSet::default()
    }
}

impl Wire for Elements {
    fn encode(&self, out: &mut BytesMut) {
        put_record(&ElementsRecord::from(self), out);
    }

    fn decode(frame: Bytes) -> Result<Elements, BadFrame> {
        const WHAT: &str = "a hash or a set";
        let record: ElementsRecord = take_record(frame, WHAT)?;
        record.elements().map_err(|found| BadFrame::new(WHAT, found))
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }

    fn replicas(&self) -> ReplicaSet {
        ReplicaSet::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..4).prop_map(Bytes::from)
    }

    fn edit() -> impl Strategy<Value = Edit> {
        let names = || prop::collection::vec(text(), 1..4);
        prop_oneof![
            prop::collection::vec((text(), text()), 1..4).prop_map(Edit::Set),
            (text(), text()).prop_map(|(name, value)| Edit::SetNew(name, value)),
            (text(), any::<i64>()).prop_map(|(name, more)| Edit::Add(name, more)),
            (text(), any::<i32>())
                .prop_map(|(name, more)| Edit::AddDecimal(name, Decimal::new(more.into(), 3))),
            names().prop_map(Edit::Insert),
            names().prop_map(|names| Edit::Remove(Kind::Hash, names)),
            names().prop_map(|names| Edit::Remove(Kind::Set, names)),
        ]
    }

    proptest! {
        #[test]
        fn an_edit_is_decoded_as_it_was_encoded(edit in edit()) {
            prop_assert_eq!(EditRecord::from(&edit).edit(), Ok(edit));
        }

        /// The elements are those of a map that is filled in the same order.
        #[test]
        fn elements_are_those_of_a_map(pairs in prop::collection::vec((text(), text()), 0..12)) {
            let map: std::collections::BTreeMap<Bytes, Bytes> = pairs.iter().cloned().collect();
            let Some(elements) = Elements::new(Kind::Hash, pairs) else {
                prop_assert!(map.is_empty());
                return Ok(());
            };
            prop_assert!(elements.iter().eq(map.iter().map(|(name, value)| (&name[..], &value[..]))));
            for (name, value) in &map {
                prop_assert_eq!(elements.get(name), Some(&value[..]));
            }
            prop_assert_eq!(elements.bytes(), map.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>());
            prop_assert_eq!(elements.get(b"longer than any"), None);
            prop_assert_eq!(ElementsRecord::from(&elements).elements(), Ok(elements));
        }
    }

    #[test]
    fn what_is_no_edit_is_refused() {
        let record = |what: i32, names: usize, values: usize| EditRecord {
            what,
            names: vec![Bytes::from_static(b"n"); names],
            values: vec![Bytes::from_static(b"v"); values],
        };
        for (what, names, values) in [
            (9, 1, 1),
            (0, 0, 0),
            (0, 2, 1),
            (1, 2, 2),
            (2, 1, 1),
            (3, 1, 1),
            (4, 1, 1),
            (6, 0, 0),
        ] {
            assert!(
                record(what, names, values).edit().is_err(),
                "{what} {names} {values}"
            );
        }
    }
}
