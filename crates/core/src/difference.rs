//! A share as it is sent and logged: what has changed since an earlier share of the same replica.
//!
//! Each write of a hash makes a new share of its replica, which has all that the replica has added to the key. In memory and in rows a share stays whole. An entry of the log and of a stream
//! names an earlier share, its *base*, and has only the elements that differ:
//!
//! ```text
//!   share @40:  a=1  b=2  c=3
//!   share @50:  a=1  b=7  c=3  d=4       the entry of @50:  base @40,  b=7  d=4
//! ```
//!
//! Whoever reads the entry must have the base. It has, if it has all that the writer has logged before: a share stays in its chain until a newer share of its replica takes its place, or the key is
//! forgotten. So a writer sends the whole share in two cases:
//!
//! - *The base was stamped in an earlier life of the writer.* The writer may have lost newer shares, which its peers may have in the place of the base.
//! - *Nothing that was added is kept.* Then all of it may have been over, and the key forgotten elsewhere. What is kept is shown at the writer. So it is not over there, and nobody has forgotten the
//!   key: see `floor.rs`.
//!
//! A reader builds on the base alone, and on no other share. If it has a newer share than the entry's, it does not need the entry: a full copy, or the rows of a checkpoint, have brought more. If it has
//! neither, it has lost rows, and needs a full copy. The two rules above spare it full copies; what is shown does not depend on them.
use crate::contribution::{Builder, Contribution, Places};
use crate::{Chain, Content, Hlc, Meta, ReplicaSet, Share, VersionId};
use std::cmp::Ordering;
use std::sync::Arc;

/// An earlier share of the replica that writes another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// When it was stamped.
    pub at: Hlc,
    /// What it says.
    pub share: Arc<Share>,
}

/// What the elements of a share have that those of its base have not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// When the base was stamped, by the same replica.
    pub(crate) base: Hlc,
    /// The numbers of the base's entries that are gone, in order. Those that have another value now are not among them.
    pub(crate) gone: Vec<u32>,
    /// The entries that are new, or have another value.
    pub(crate) changed: Contribution,
}

/// What a chain has of the shares on which a difference builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// The base.
    Base(&'a Share),
    /// This share itself, or a newer one of its replica.
    Newer,
    /// Neither.
    Nothing,
}

impl Base {
    /// The share in whose place a share of this name comes.
    pub(crate) fn of<M: Meta>(chain: Option<&Chain<M>>, id: VersionId) -> Option<Base> {
        let mut shares = chain?.shares();
        let newest = shares.find(|share| share.id.replica == id.replica)?;
        let (share, _) = newest.content.shared()?;
        (newest.id.at < id.at).then(|| Base {
            at: newest.id.at,
            share: share.clone(),
        })
    }
}

impl Difference {
    /// What has changed since the base. `None` if nothing that was added is kept, or the whole is not longer.
    pub(crate) fn since(base: &Base, next: &Contribution) -> Option<Difference> {
        let before = &base.share.elements;
        let mut kept = before.common_added(next);
        let (mut old, mut new) = (kept, kept);
        let (mut old_entries, mut new_entries) = (before.raw_entries(old), next.raw_entries(new));
        let (mut old_entry, mut new_entry) = (old_entries.next(), new_entries.next());
        let (mut gone, mut changed) = (Vec::new(), Builder::default());
        while old_entry.is_some() || new_entry.is_some() {
            let are_of_one_part = (old < before.added_len()) == (new < next.added_len());
            let order = match old_entry == new_entry && are_of_one_part {
                true => Ordering::Equal,
                false => before.compare(old, next, new),
            };
            match order {
                Ordering::Equal if old_entry == new_entry => kept += usize::from(old < before.added_len()),
                Ordering::Less => gone.push(old as u32),
                Ordering::Equal | Ordering::Greater => changed.copy_entries(next, new..new + 1),
            }
            if order.is_le() {
                (old, old_entry) = (old + 1, old_entries.next());
            }
            if order.is_ge() {
                (new, new_entry) = (new + 1, new_entries.next());
            }
        }
        let changed = changed.done();
        let is_shorter = Self::BESIDE_BYTES + 3 * gone.len() + changed.heap_bytes() < next.heap_bytes();
        let is_sound = before.heap_bytes() + changed.heap_bytes() <= Self::MAX_BYTES;
        (kept > 0 && is_shorter && is_sound).then_some(Difference {
            base: base.at,
            gone,
            changed,
        })
    }

    /// A longer share is sent whole. What a replica adds to a key is limited to 1 MiB ([`crate::Edit::MAX_BYTES`]), and it removes no more than others have added.
    const MAX_BYTES: usize = 64 << 20;

    /// About what an entry has beside the numbers of entries and the elements.
    const BESIDE_BYTES: usize = 12;

    /// Whether a share has the entries that are gone, and the next share is not longer than any sound one: a faulty peer could make it longer with each entry.
    pub fn fits(&self, base: &Share) -> bool {
        let last = self.gone.last();
        let has_gone = last.is_none_or(|&number| (number as usize) < base.elements.entries());
        has_gone && base.elements.heap_bytes() + self.changed.heap_bytes() <= Self::MAX_BYTES
    }

    /// How many entries the share will have, and how many bytes they will take, if what has changed has these places in the base.
    fn room(&self, base: &Contribution, places: &[Result<usize, usize>]) -> (usize, usize) {
        let all = |of: &Contribution| of.bytes_of(&(0..of.entries()));
        let mut entries = base.entries() + self.changed.entries();
        let mut bytes = all(base) + all(&self.changed);
        let replaced = places.iter().filter_map(|place| place.ok());
        let gone = self.gone.iter().map(|&number| number as usize);
        for entry in replaced.chain(gone) {
            entries = entries.saturating_sub(1);
            bytes = bytes.saturating_sub(base.bytes_of(&(entry..entry + 1)));
        }
        (entries, bytes)
    }

    /// The elements of the share, if this is its base.
    fn elements(&self, base: &Contribution) -> Contribution {
        let changed = 0..self.changed.entries();
        let place = |new: usize| base.place_of(&self.changed, new);
        let places: Places = changed.clone().map(place).collect();
        let (entries, bytes) = self.room(base, &places);
        let mut next = Builder::with_room(entries, bytes);
        let mut gone = self.gone.iter().map(|&number| number as usize).peekable();
        let mut from = 0;
        let mut keep_until = |from: usize, to: usize, next: &mut Builder| {
            let mut from = from;
            while let Some(left_out) = gone.next_if(|&number| number < to) {
                next.copy_entries(base, from..left_out);
                from = left_out + 1;
            }
            next.copy_entries(base, from..to);
        };
        for (new, place) in changed.zip(places) {
            let (Ok(to) | Err(to)) = place;
            keep_until(from, to, &mut next);
            from = to + usize::from(place.is_ok());
            next.copy_entries(&self.changed, new..new + 1);
        }
        keep_until(from, base.entries(), &mut next);
        next.done()
    }

    /// What a chain has of the shares on which this one builds, which is in a version of this name.
    pub fn find<'a, M: Meta>(&self, id: VersionId, chain: Option<&'a Chain<M>>) -> Found<'a> {
        let shares = chain.into_iter().flat_map(Chain::shares);
        for held in shares.filter(|held| held.id.replica == id.replica) {
            if held.id.at >= id.at {
                return Found::Newer;
            }
            if let Some(share) = held.content.share()
                && held.id.at == self.base
                && self.fits(share)
            {
                return Found::Base(share);
            }
        }
        Found::Nothing
    }

    /// The whole share. `rest` has what it says beside its elements, and the base is what [`Difference::find`] has found.
    #[must_use]
    pub fn onto(&self, base: &Share, rest: &Content) -> Content {
        let rest = rest.share().cloned().unwrap_or_default();
        let elements = self.elements(&base.elements);
        Content::sharing(Share { elements, ..rest })
    }

    /// The replicas of whose additions it says something.
    pub fn replicas(&self) -> ReplicaSet {
        self.changed.replicas()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contribution::{Added, Name, Removed};
    use crate::{Count, Kind, ReplicaId, SeenCount, SharesRecord, Version};
    use proptest::prelude::*;
    use rust_decimal::Decimal;
    use std::collections::BTreeMap;

    const ME: ReplicaId = ReplicaId(0);

    fn id(at: u64) -> VersionId {
        VersionId {
            at: Hlc(at),
            replica: ME,
        }
    }

    /// Elements by kind and name: a value and a count; and removals, also by replica.
    #[derive(Debug, Clone, Default)]
    struct Model {
        added: BTreeMap<(Kind, Vec<u8>), (u8, Option<i64>)>,
        removed: BTreeMap<(Kind, Vec<u8>, u16), u64>,
    }

    /// Changes of a model: an element or a removal gets this value, or goes.
    type Change = (bool, bool, u8, Option<u8>);

    fn name(number: u8) -> Vec<u8> {
        vec![b'a' + number % 8; usize::from(number % 3)]
    }

    impl Model {
        fn change(&mut self, &(is_removal, is_member, number, value): &Change) {
            let kind = if is_member { Kind::Set } else { Kind::Hash };
            match (is_removal, value) {
                (false, Some(value)) => {
                    let count = (value % 3 == 0).then_some(i64::from(value) - 7);
                    self.added.insert((kind, name(number)), (value, count));
                }
                (false, None) => {
                    self.added.remove(&(kind, name(number)));
                }
                (true, Some(value)) => {
                    let place = (kind, name(number), 1 + u16::from(number) % 2);
                    self.removed.insert(place, 1 + u64::from(value));
                }
                (true, None) => self
                    .removed
                    .retain(|(other, of, _), _| (*other, &of[..]) != (kind, &name(number)[..])),
            }
        }

        fn contribution(&self) -> Contribution {
            let mut builder = Builder::default();
            for ((kind, name), (value, count)) in &self.added {
                builder.add(&Added {
                    name: Name { kind: *kind, name },
                    value: Some((Hlc(1 + u64::from(*value)), &[*value][..])),
                    count: count.map(|total| Count {
                        since: Hlc(1),
                        at: Hlc(2),
                        total: Decimal::from(total),
                    }),
                });
            }
            for ((kind, name, replica), at) in &self.removed {
                let seen = SeenCount {
                    replica: ReplicaId(*replica),
                    at: Hlc(*at),
                    total: Decimal::ZERO,
                };
                let name = Name { kind: *kind, name };
                builder.remove(&Removed { name, seen });
            }
            builder.done()
        }
    }

    fn share(model: &Model) -> Share {
        Share {
            elements: model.contribution(),
            ..Share::default()
        }
    }

    fn changes(count: usize) -> impl Strategy<Value = Vec<Change>> {
        let value = prop::option::weighted(0.8, any::<u8>());
        prop::collection::vec((any::<bool>(), any::<bool>(), any::<u8>(), value), 0..count)
    }

    fn chain_of(shares: &[(u64, &Share)]) -> Chain<()> {
        let versions = shares.iter().rev().map(|(at, share)| Version {
            id: id(*at),
            content: Content::sharing((*share).clone()),
            meta: (),
        });
        Chain::newest_first(versions).expect("there is one")
    }

    proptest! {
        #[test]
        fn a_reader_who_has_the_base_gets_the_share(first in changes(40), then in changes(6)) {
            let mut model = Model::default();
            first.iter().for_each(|change| model.change(change));
            let before = share(&model);
            then.iter().for_each(|change| model.change(change));
            let after = share(&model);
            let base = Base { at: Hlc(1000), share: Arc::new(before.clone()) };
            let content = Content::sharing(after.clone());
            let mut record = SharesRecord::since(&content, id(2000), &base).expect("it is a share");
            let encoded = prost::Message::encode_to_vec(&record);
            prop_assert!(encoded.len() <= SharesRecord::encoded(&content, id(2000)).len());
            prop_assert_eq!(&SharesRecord::decoded(encoded.into()).expect("it decodes"), &record);
            let difference = record.take_difference(id(2000)).expect("it is sound");
            let rest = SharesRecord::content(Some(record), id(2000), None, None, None).expect("it is sound");
            let version = Version { id: id(2000), content: rest, meta: () };
            let Some(difference) = difference else {
                prop_assert_eq!(version.content.share(), Some(&after));
                return Ok(());
            };
            let chain = chain_of(&[(1000, &before)]);
            let Found::Base(found) = difference.find(id(2000), Some(&chain)) else {
                panic!("the base is there");
            };
            let whole = difference.onto(found, &version.content);
            prop_assert_eq!(whole.share(), Some(&after));
            let checked = Contribution::checked(after.elements.encoded(), id(2000));
            prop_assert_eq!(checked, Ok(after.elements.clone()));
            // Of what the base had added, something is kept.
            let kept = before.elements.added().any(|added| after.elements.find(added.name) == Some(added));
            prop_assert!(kept);
        }

        #[test]
        fn a_difference_to_another_share_is_refused_or_gives_something_sound(first in changes(40), then in changes(6), other in changes(20)) {
            let mut model = Model::default();
            first.iter().for_each(|change| model.change(change));
            let base = Base { at: Hlc(1000), share: Arc::new(share(&model)) };
            then.iter().for_each(|change| model.change(change));
            let mut another = Model::default();
            other.iter().for_each(|change| another.change(change));
            if let Some(difference) = Difference::since(&base, &model.contribution())
                && difference.fits(&share(&another))
            {
                let elements = difference.elements(&another.contribution());
                let checked = Contribution::checked(elements.encoded(), id(2000));
                prop_assert_eq!(checked, Ok(elements));
            }
        }
    }

    #[test]
    fn one_field_of_many_is_short() {
        let mut model = Model::default();
        for number in 0..200 {
            model.change(&(false, false, number, Some(1)));
            model.added.insert((Kind::Hash, vec![b'f', number]), (1, None));
        }
        let base = Base {
            at: Hlc(1000),
            share: Arc::new(share(&model)),
        };
        model.added.insert((Kind::Hash, vec![b'f', 7]), (9, None));
        let content = Content::sharing(share(&model));
        let record = SharesRecord::since(&content, id(2000), &base).expect("it is a share");
        let bytes = prost::Message::encoded_len(&record);
        assert!(bytes < 60, "{bytes}");
    }

    #[test]
    fn what_a_chain_has_is_the_base_or_a_newer_share_or_nothing() {
        let mut model = Model::default();
        model.change(&(false, false, 1, Some(1)));
        let (empty, one) = (Share::default(), share(&model));
        let difference = Difference {
            base: Hlc(1000),
            gone: Vec::new(),
            changed: Contribution::empty(),
        };
        let chain = chain_of(&[(900, &empty), (1000, &one)]);
        assert_eq!(difference.find(id(2000), Some(&chain)), Found::Base(&one));
        assert_eq!(difference.find(id(1000), Some(&chain)), Found::Newer);
        let chain = chain_of(&[(900, &empty), (1100, &one)]);
        assert_eq!(difference.find(id(2000), Some(&chain)), Found::Nothing);
        assert_eq!(difference.find::<()>(id(2000), None), Found::Nothing);
        let of_another = VersionId {
            replica: ReplicaId(1),
            ..id(2000)
        };
        let chain = chain_of(&[(1000, &one)]);
        assert_eq!(difference.find(of_another, Some(&chain)), Found::Nothing);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut model = Model::default();
        for number in 0..8 {
            model.added.insert((Kind::Hash, vec![number; 9]), (1, None));
        }
        let base = Base {
            at: Hlc(1000),
            share: Arc::new(share(&model)),
        };
        model.added.remove(&(Kind::Hash, vec![3; 9]));
        model.added.remove(&(Kind::Hash, vec![5; 9]));
        let content = Content::sharing(share(&model));
        let sound = SharesRecord::since(&content, id(2000), &base).expect("it is a share");
        let refused = |record: &SharesRecord, at| {
            let found = record.clone().take_difference(id(at));
            found.map_or_else(|error| error.to_string(), |_| "taken".to_string())
        };
        assert_eq!(refused(&sound, 2000), "taken");
        assert!(refused(&sound, 1000).contains("a difference to the share of"));
        let whole = SharesRecord::content(Some(sound.clone()), id(2000), None, None, None);
        assert!(
            whole
                .expect_err("it is no whole share")
                .to_string()
                .contains("a whole one")
        );
        let difference = sound.clone().take_difference(id(2000)).expect("it is sound");
        let difference = difference.expect("it is a difference");
        assert_eq!(difference.gone, [3, 5]);
        assert!(!difference.fits(&Share::default()));
    }
}
