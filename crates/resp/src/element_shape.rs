//! Replies that show a hash or a set, or something about it: `HGETALL`, `SCARD`, `SINTER`, ..
//!
//! The key is read as `GET` reads it, so each of them has the levels, the receipt and the conflicts of a read, and no protocol knows of them. A key without a value
//! counts as an empty hash or set. A key with a value of another type is refused with `-WRONGTYPE`.
use crate::output::SHARED_BYTES;
use crate::shape::{MATCH_STEPS, REPLY_BYTES, check_reply, matching, unfit};
use crate::{Limits, Writer, refusal::Refusal};
use bytes::Bytes;
use turnbuckle_core::{Answer, Elements, Kind};

/// What a reply shows of a hash or a set.
#[derive(Debug)]
pub(crate) struct ElementShape {
    /// The type that the key must have.
    pub(crate) kind: Kind,
    /// What is shown.
    pub(crate) shown: Shown,
}

/// What is shown of a hash or a set.
#[derive(Debug)]
pub(crate) enum Shown {
    /// The value of a field, or null.
    Value(Bytes),
    /// The values of fields; null for a field that is not there.
    Values(Vec<Bytes>),
    /// The length of a field's value, or 0.
    Length(Bytes),
    /// 1 if there is such an element, else 0.
    Has(Bytes),
    /// 1 or 0 for each of these elements.
    HasEach(Vec<Bytes>),
    /// How many elements there are.
    Count,
    /// All fields and their values, or all members.
    All,
    /// The names of all fields.
    Names,
    /// The values of all fields.
    AllValues,
    /// The cursor 0, and the elements that match.
    Matching(Box<Matching>),
}

/// The elements that `HSCAN` and `SSCAN` show.
#[derive(Debug)]
pub(crate) struct Matching {
    /// The pattern that their names must match.
    pub(crate) pattern: Option<Bytes>,
    /// Whether the values of fields are shown, too.
    pub(crate) with_values: bool,
    /// Whether nothing is shown, because the first call has shown everything.
    pub(crate) is_over: bool,
}

/// What is shown of several sets together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Together {
    /// The members that all of them have.
    Intersection,
    /// The members that any of them has.
    Union,
    /// The members of the first one that no other one has.
    Difference,
}

/// What the replies about hashes and sets may cost: of one command, or of all commands of a transaction together. Names and short values are copied into replies, so
/// without it a transaction that names a large hash many times would hold up the event loop.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    /// How many steps of matching may be taken.
    steps: u64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Budget {
        Budget {
            limits: *limits,
            steps: MATCH_STEPS,
        }
    }

    /// Counts bytes that are copied or looked at.
    fn spend(&mut self, bytes: usize) -> Result<(), Refusal> {
        check_reply(bytes, &self.limits)?;
        self.limits.max_reply_bytes -= bytes;
        Ok(())
    }
}

/// About how many bytes a reply with all of these elements has.
pub(crate) fn bytes_of_elements(elements: &Elements) -> usize {
    let parts = match elements.kind() {
        Kind::Hash => 2 * elements.len(),
        Kind::Set => elements.len(),
    };
    elements.bytes() + REPLY_BYTES * parts
}

/// The elements in the answer to a get; `None` if the key has no value.
fn elements_of(kind: Kind, answer: &Answer) -> Result<Option<&Elements>, Refusal> {
    match answer {
        Answer::Value(None) => Ok(None),
        Answer::Elements(elements) if elements.kind() == kind => Ok(Some(elements)),
        Answer::Value(Some(_)) | Answer::Elements(_) => Err(Refusal::wrong_type()),
        Answer::Failed(failure) => Err(Refusal::from(failure)),
        // A server of another node may have sent this answer.
        _ => Err(Refusal::from(&unfit())),
    }
}

impl ElementShape {
    /// Whether the reply carries names or values.
    pub(crate) fn carries(&self) -> bool {
        !matches!(
            self.shown,
            Shown::Length(_) | Shown::Has(_) | Shown::HasEach(_) | Shown::Count
        )
    }

    /// About how many bytes the reply has, at most.
    pub(crate) fn reply_bytes(&self, elements: &Elements) -> usize {
        let of = |name: &Bytes| REPLY_BYTES + elements.get(name).map_or(0, <[u8]>::len);
        match &self.shown {
            Shown::Value(name) => of(name),
            Shown::Values(names) => names.iter().map(of).sum(),
            Shown::HasEach(names) => REPLY_BYTES * names.len(),
            Shown::Length(_) | Shown::Has(_) | Shown::Count => REPLY_BYTES,
            Shown::All | Shown::Names | Shown::AllValues | Shown::Matching(_) => bytes_of_elements(elements),
        }
    }

    /// Writes the reply. If it is refused, nothing is written, or a part that the caller takes back.
    pub(crate) fn write(
        &self,
        answer: &Answer,
        budget: &mut Budget,
        writer: &mut Writer<'_>,
    ) -> Result<(), Refusal> {
        let elements = elements_of(self.kind, answer)?;
        let get = |name: &[u8]| {
            let of = elements?;
            of.get(name).map(|bytes| Piece { bytes, of })
        };
        let all = || elements.into_iter().flat_map(pieces);
        let names = || all().map(|(name, _)| name);
        match &self.shown {
            Shown::Value(name) => {
                let value = get(name);
                budget.spend(value.map_or(0, |value| value.bytes.len()))?;
                match value {
                    Some(value) => value.write(writer),
                    None => writer.null(),
                }
            }
            Shown::Values(names) => {
                let values: Vec<Option<Piece<'_>>> = names.iter().map(|name| get(name)).collect();
                budget.spend(values.iter().flatten().map(|value| value.bytes.len()).sum())?;
                reserve(values.iter().copied(), writer);
                writer.array(values.len());
                for value in values {
                    match value {
                        Some(value) => value.write(writer),
                        None => writer.null(),
                    }
                }
            }
            Shown::Length(name) => writer.integer(get(name).map_or(0, |value| value.bytes.len()) as i64),
            Shown::Has(name) => writer.integer(i64::from(get(name).is_some())),
            Shown::HasEach(names) => {
                writer.array(names.len());
                for name in names {
                    writer.integer(i64::from(get(name).is_some()));
                }
            }
            Shown::Count => writer.integer(elements.map_or(0, Elements::len) as i64),
            Shown::All if self.kind == Kind::Hash => {
                let pairs = all().flat_map(|(name, value)| [name, value]);
                write_all(pairs, Header::Map, budget, writer)?;
            }
            Shown::All => write_all(names(), Header::Set, budget, writer)?,
            Shown::Names => write_all(names(), Header::Array, budget, writer)?,
            Shown::AllValues => write_all(all().map(|(_, value)| value), Header::Array, budget, writer)?,
            Shown::Matching(wanted) => {
                let looked_at = names().filter(|_| !wanted.is_over);
                let found = matching(looked_at, wanted.pattern.as_deref(), &mut budget.steps)?;
                let with_values = wanted.with_values && self.kind == Kind::Hash;
                let shown = found.into_iter().flat_map(|name| {
                    let value = get(name.bytes).filter(|_| with_values);
                    std::iter::once(name).chain(value)
                });
                writer.array(2);
                writer.bulk(b"0");
                write_all(shown, Header::Array, budget, writer)?;
            }
        }
        Ok(())
    }
}

impl Together {
    /// Writes the members that the sets in the answer have together.
    pub(crate) fn write(
        self,
        answer: &Answer,
        budget: &mut Budget,
        writer: &mut Writer<'_>,
    ) -> Result<(), Refusal> {
        let answers = match answer {
            Answer::Transacted(Some(answers)) => &answers[..],
            one => std::slice::from_ref(one),
        };
        let sets = answers.iter().map(|answer| elements_of(Kind::Set, answer));
        let sets: Vec<Option<&Elements>> = sets.collect::<Result<_, _>>()?;
        // All of them are looked at, and the reply is not larger.
        budget.spend(sets.iter().flatten().map(|set| bytes_of_elements(set)).sum())?;
        write_pieces(&self.members(&sets), Header::Set, writer);
        Ok(())
    }

    /// The members, in order.
    fn members<'a>(self, sets: &[Option<&'a Elements>]) -> Vec<Piece<'a>> {
        let has =
            |set: &Option<&Elements>, name: &Piece<'_>| set.is_some_and(|set| set.get(name.bytes).is_some());
        match self {
            Together::Union => {
                let mut found: Vec<Piece<'_>> = sets.iter().flatten().copied().flat_map(names).collect();
                found.sort_by_key(|name| name.bytes);
                found.dedup_by_key(|name| name.bytes);
                found
            }
            Together::Intersection => {
                // The smallest one has the fewest members to look for.
                let smallest = sets.iter().min_by_key(|set| set.map_or(0, Elements::len));
                let found = smallest.copied().flatten().into_iter().flat_map(names);
                found
                    .filter(|name| sets.iter().all(|set| has(set, name)))
                    .collect()
            }
            Together::Difference => {
                let (first, others) = sets.split_first().unwrap_or((&None, &[]));
                let found = first.iter().copied().flat_map(names);
                found
                    .filter(|name| !others.iter().any(|set| has(set, name)))
                    .collect()
            }
        }
    }
}

/// A name or a value, and the hash or set that it is of.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    bytes: &'a [u8],
    of: &'a Elements,
}

impl AsRef<[u8]> for Piece<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl Piece<'_> {
    fn is_copied(self) -> bool {
        self.bytes.len() < SHARED_BYTES
    }

    fn write(self, writer: &mut Writer<'_>) {
        match self.is_copied() {
            true => writer.bulk(self.bytes),
            false => writer.value(Some(&self.of.part(self.bytes))),
        }
    }
}

/// The names and the values.
fn pieces(of: &Elements) -> impl Iterator<Item = (Piece<'_>, Piece<'_>)> {
    let piece = move |bytes| Piece { bytes, of };
    of.iter().map(move |(name, value)| (piece(name), piece(value)))
}

fn names(of: &Elements) -> impl Iterator<Item = Piece<'_>> {
    pieces(of).map(|(name, _)| name)
}

/// How a reply of several names or values begins.
#[derive(Debug, Clone, Copy)]
enum Header {
    Array,
    Set,
    Map,
}

/// Writes names or values behind a header that says how many they are.
fn write_all<'a>(
    all: impl Iterator<Item = Piece<'a>>,
    header: Header,
    budget: &mut Budget,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let all: Vec<Piece<'_>> = all.collect();
    budget.spend(all.iter().map(|piece| piece.bytes.len()).sum())?;
    write_pieces(&all, header, writer);
    Ok(())
}

fn write_pieces(pieces: &[Piece<'_>], header: Header, writer: &mut Writer<'_>) {
    reserve(pieces.iter().copied().map(Some), writer);
    match header {
        Header::Array => writer.array(pieces.len()),
        Header::Set => writer.set(pieces.len()),
        // A field and its value are a pair.
        Header::Map => writer.map(pieces.len() / 2),
    }
    for piece in pieces {
        piece.write(writer);
    }
}

/// Makes room for all that is copied.
fn reserve<'a>(pieces: impl Iterator<Item = Option<Piece<'a>>>, writer: &mut Writer<'_>) {
    let bytes = |piece: Option<Piece<'_>>| {
        let copied = piece.filter(|piece| piece.is_copied());
        REPLY_BYTES + copied.map_or(0, |piece| piece.bytes.len())
    };
    writer.reserve(pieces.map(bytes).sum());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn elements(members: &BTreeSet<u8>) -> Option<Elements> {
        let members = members
            .iter()
            .map(|&member| (Bytes::from(vec![member]), Bytes::new()));
        Elements::new(Kind::Set, members.collect())
    }

    proptest! {
        #[test]
        fn sets_have_together_what_the_library_says(
            sets in prop::collection::vec(prop::collection::btree_set(0..8_u8, 0..6), 1..4),
        ) {
            let held: Vec<Option<Elements>> = sets.iter().map(elements).collect();
            let held: Vec<Option<&Elements>> = held.iter().map(Option::as_ref).collect();
            let found = |together: Together| -> Vec<u8> {
                together.members(&held).iter().map(|member| member.bytes[0]).collect()
            };
            let of_all = |with: fn(&BTreeSet<u8>, &BTreeSet<u8>) -> BTreeSet<u8>| -> Vec<u8> {
                let all = sets.iter().cloned().reduce(|one, other| with(&one, &other));
                all.into_iter().flatten().collect()
            };
            prop_assert_eq!(found(Together::Intersection), of_all(|one, other| one & other));
            prop_assert_eq!(found(Together::Union), of_all(|one, other| one | other));
            prop_assert_eq!(found(Together::Difference), of_all(|one, other| one - other));
        }
    }
}
