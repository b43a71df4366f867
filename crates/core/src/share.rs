//! What one replica has contributed to a key: its [`Count`], and the elements that it has added and removed. See [`crate::Elements`] for what that means, and `count.rs` for numbers.
//!
//! ```text
//!   the shares of the replicas that a reader may see     the register: what it has reset, and whether it has expired
//!                              \                             /
//!                               Contributions::shown: of each element, what no one has removed
//! ```
use crate::count::{Sum, added};
use crate::{
    Compute, Computed, Count, Edit, Elements, Hlc, Kind, NotComputed, ReplicaId, SeenCount, VersionId,
};
use bytes::{BufMut, Bytes, BytesMut};
use rust_decimal::Decimal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one replica has contributed to a key. Only this replica writes it, and its newest share replaces its older ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Share {
    /// What it has added to the key's number.
    pub count: Option<Count>,
    /// Which elements it has added and removed. Shared with writers that decide.
    pub elements: Option<Arc<Contribution>>,
}

impl From<Count> for Share {
    fn from(count: Count) -> Share {
        Share {
            count: Some(count),
            elements: None,
        }
    }
}

/// The elements that one replica has added, and those of others that it has removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contribution {
    /// By name.
    pub(crate) added: Vec<Added>,
    /// By name and replica.
    pub(crate) removed: Vec<Removed>,
}

/// The name of an element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub kind: Kind,
    pub name: Bytes,
}

/// An element that a replica has added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    pub name: Name,
    /// The value of a field, or the empty value, and when it was stamped.
    pub value: Option<(Hlc, Bytes)>,
    /// What was added to the number that is the field's value.
    pub count: Option<Count>,
}

/// What a writer has seen of an element that a replica had added, and has removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    pub(crate) name: Name,
    pub(crate) seen: SeenCount,
}

impl Added {
    /// When the replica wrote it last.
    fn at(&self) -> Hlc {
        let value = self.value.as_ref().map(|(at, _)| *at);
        let count = self.count.map(|count| count.at);
        value.max(count).unwrap_or(Hlc::ZERO)
    }

    /// What a writer says of it that has seen it.
    fn seen_of(&self, replica: ReplicaId) -> SeenCount {
        SeenCount {
            replica,
            at: self.at(),
            total: self.count.map_or(Decimal::ZERO, |count| count.total),
        }
    }

    /// Whether this removal is about something of it.
    fn concerns(&self, removed: &SeenCount) -> bool {
        self.value.as_ref().is_some_and(|(at, _)| *at <= removed.at)
            || self.count.is_some_and(|count| count.since <= removed.at)
    }

    fn bytes(&self) -> usize {
        self.name.name.len() + self.value.as_ref().map_or(0, |(_, value)| value.len())
    }
}

/// What is left of an element that one replica has added.
#[derive(Default)]
struct Left<'a> {
    value: Option<(Hlc, &'a Bytes)>,
    count: Option<Decimal>,
}

impl Left<'_> {
    fn is_nothing(&self) -> bool {
        self.value.is_none() && self.count.is_none()
    }
}

/// What a reader goes by who sees elements.
#[derive(Clone, Copy)]
pub(crate) struct Contributions<'a> {
    /// By replica, and when each was stamped. Also those that say nothing of elements.
    pub shares: &'a [(ReplicaId, Hlc, &'a Contribution)],
    /// What the register's version has reset, and which elements' counts it had seen.
    pub resets: &'a Resets,
    /// What was stamped before this time has expired.
    pub expired: Option<Hlc>,
}

/// What a write of a key's register had seen of shares, and has reset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resets {
    /// Of each replica's share, by replica. It resets what the share says of elements up to that time, too.
    pub seen: Vec<SeenCount>,
    /// Of elements that are numbers, their totals. By name and replica.
    pub removed: Vec<Removed>,
    /// Everything that was stamped before this time: an expiry that has passed. Also what the writer had not seen.
    pub before: Hlc,
}

impl Resets {
    pub(crate) const NOTHING: &'static Resets = &Resets {
        seen: Vec::new(),
        removed: Vec::new(),
        before: Hlc::ZERO,
    };

    /// Whether nothing is reset.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.removed.is_empty() && self.before == Hlc::ZERO
    }

    /// The same in memory of its own.
    pub(crate) fn compact(&self) -> Resets {
        let own = |removed: &Removed| Removed {
            name: Name {
                kind: removed.name.kind,
                name: Bytes::copy_from_slice(&removed.name.name),
            },
            seen: removed.seen,
        };
        Resets {
            seen: self.seen.as_slice().to_vec(),
            removed: self.removed.iter().map(own).collect(),
            before: self.before,
        }
    }

    /// The bytes that it takes in memory, beside its own.
    pub(crate) fn heap_bytes(&self) -> usize {
        let names: usize = self.removed.iter().map(|removed| removed.name.name.len()).sum();
        size_of_val(&self.seen[..]) + size_of_val(&self.removed[..]) + names
    }

    pub(crate) fn of(&self, replica: ReplicaId) -> Option<&SeenCount> {
        self.seen.iter().find(|seen| seen.replica == replica)
    }
}

fn find<'a>(removed: &'a [Removed], name: &Name, replica: ReplicaId) -> Option<&'a SeenCount> {
    let place =
        removed.binary_search_by(|removed| (&removed.name, removed.seen.replica).cmp(&(name, replica)));
    place.ok().map(|place| &removed[place].seen)
}

impl<'a> Contributions<'a> {
    /// The most that any writer has removed of what a replica has added to an element.
    fn removal(&self, name: &Name, replica: ReplicaId) -> Option<SeenCount> {
        let of_shares = self
            .shares
            .iter()
            .filter_map(|(.., share)| find(&share.removed, name, replica));
        let all = of_shares.chain(find(&self.resets.removed, name, replica));
        let most = all.max_by_key(|seen| seen.at).copied();
        let whole = self.resets.of(replica);
        match (most, whole) {
            (Some(most), Some(whole)) => Some(SeenCount {
                at: most.at.max(whole.at),
                ..most
            }),
            (None, Some(whole)) => Some(SeenCount {
                total: Decimal::ZERO,
                ..*whole
            }),
            (most, None) => most,
        }
    }

    fn share_of(&self, replica: ReplicaId) -> Option<(Hlc, &'a Contribution)> {
        let of_replica = self.shares.iter().find(|(other, ..)| *other == replica);
        of_replica.map(|&(_, at, share)| (at, share))
    }

    /// Whether a removal can be about something, now or later. It cannot if a share of the adder says so that is no older than what the removal had seen.
    fn is_needed(&self, removed: &Removed) -> bool {
        let seen = &removed.seen;
        match self.share_of(seen.replica) {
            Some((at, share)) if at >= seen.at => share
                .added(&removed.name)
                .is_some_and(|added| added.concerns(seen)),
            Some(_) | None => true,
        }
    }

    /// What is left of an element that a replica has added.
    fn left(&self, replica: ReplicaId, added: &'a Added) -> Left<'a> {
        let removal = self.removal(&added.name, replica);
        let is_left = |at: Hlc| {
            removal.is_none_or(|removal| at > removal.at) && self.expired.is_none_or(|expired| at >= expired)
        };
        let value = added.value.as_ref().map(|(at, value)| (*at, value));
        Left {
            value: value.filter(|(at, _)| is_left(*at)),
            count: added
                .count
                .and_then(|count| count.left(removal.as_ref(), self.expired)),
        }
    }

    /// The value of an element that these have added.
    fn value(&self, of: &[(ReplicaId, &'a Added)]) -> Option<Sum> {
        let mut newest: Option<((Hlc, ReplicaId), &Bytes)> = None;
        let mut total: Option<Decimal> = None;
        for &(replica, of_replica) in of {
            let left = self.left(replica, of_replica);
            if let Some((at, value)) = left.value
                && newest.is_none_or(|(newest, _)| newest < (at, replica))
            {
                newest = Some(((at, replica), value));
            }
            if let Some(count) = left.count {
                total = Some(total.map_or(count, |total| added(total, count)));
            }
        }
        let value = newest.map(|(_, value)| Sum::Text(value.clone()));
        match total {
            Some(total) => Some(Sum::plus(value, total)),
            None => value,
        }
    }

    /// Everything that was added, by name.
    fn all(&self) -> Vec<(ReplicaId, &'a Added)> {
        let of = |&(replica, _, share): &(ReplicaId, Hlc, &'a Contribution)| {
            share.added.iter().map(move |added| (replica, added))
        };
        let mut all: Vec<(ReplicaId, &'a Added)> = self.shares.iter().flat_map(of).collect();
        if self.shares.len() > 1 {
            all.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        }
        all
    }

    /// What replicas have added to an element.
    fn of(&self, name: &Name) -> Vec<(ReplicaId, &'a Added)> {
        let of = |&(replica, _, share): &(ReplicaId, Hlc, &'a Contribution)| {
            share.added(name).map(|added| (replica, added))
        };
        self.shares.iter().filter_map(of).collect()
    }

    /// The hash or, if there is none, the set.
    pub fn shown(&self) -> Option<Elements> {
        let all = self.all();
        let mut elements = Vec::new();
        let mut shown = None;
        for of in all.chunk_by(|(_, one), (_, other)| one.name == other.name) {
            let name = &of[0].1.name;
            // The fields come before the members.
            if shown.is_some_and(|shown| shown != name.kind) {
                break;
            }
            if let Some(value) = self.value(of) {
                shown = Some(name.kind);
                elements.push((name.name.clone(), value.written()));
            }
        }
        Elements::new(shown?, elements)
    }

    /// Whether there are elements, and of which kind.
    pub fn kind(&self) -> Option<Kind> {
        let of_kind = |kind: Kind| {
            let mut all = self.shares.iter().flat_map(|&(replica, _, share)| {
                let of_kind = share.added.iter().filter(move |added| added.name.kind == kind);
                of_kind.map(move |added| (replica, added))
            });
            all.any(|(replica, added)| !self.left(replica, added).is_nothing())
        };
        [Kind::Hash, Kind::Set].into_iter().find(|&kind| of_kind(kind))
    }

    /// Whether nothing is left of what this replica has added.
    pub fn is_reset(&self, replica: ReplicaId) -> bool {
        self.share_of(replica).is_none_or(|(_, share)| {
            share
                .added
                .iter()
                .all(|added| self.left(replica, added).is_nothing())
        })
    }

    /// What a write of the register names beside whole shares: what the version before it named, while that is about something; and if it resets everything, the numbers.
    pub fn removed_by_register(&self, resets_all: bool) -> Vec<Removed> {
        let mut removed: BTreeMap<(Name, ReplicaId), SeenCount> = BTreeMap::new();
        let mut add = |name: &Name, seen: SeenCount| {
            let before = removed.entry((name.clone(), seen.replica)).or_insert(seen);
            if before.at < seen.at {
                *before = seen;
            }
        };
        let inherited = self.resets.removed.iter();
        for before in inherited.filter(|removed| self.is_needed(removed)) {
            add(&before.name, before.seen);
        }
        for (replica, added) in self.all().into_iter().filter(|_| resets_all) {
            if self.left(replica, added).count.is_some() {
                add(&added.name, added.seen_of(replica));
            }
        }
        let removed = removed.into_iter();
        removed.map(|((name, _), seen)| Removed { name, seen }).collect()
    }
}

/// Why an edit writes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotEdited {
    /// There is nothing to change.
    Nothing,
    NotComputed(NotComputed),
}

impl From<NotComputed> for NotEdited {
    fn from(why: NotComputed) -> NotEdited {
        NotEdited::NotComputed(why)
    }
}

/// The next share of a replica, while it is made.
struct Next<'a> {
    before: Contributions<'a>,
    by: VersionId,
    added: BTreeMap<Name, Added>,
    removed: BTreeMap<(Name, ReplicaId), SeenCount>,
}

impl<'a> Next<'a> {
    /// What is left of the replica's share, and the removals that are still about something.
    fn new(before: Contributions<'a>, by: VersionId) -> Next<'a> {
        let mut next = Next {
            before,
            by,
            added: BTreeMap::new(),
            removed: BTreeMap::new(),
        };
        let Some((_, own)) = before.share_of(by.replica) else {
            return next;
        };
        for added in &own.added {
            let left = before.left(by.replica, added);
            if !left.is_nothing() {
                let added = Added {
                    name: added.name.clone(),
                    value: left.value.map(|(at, value)| (at, value.clone())),
                    count: added.count.filter(|_| left.count.is_some()),
                };
                next.added.insert(added.name.clone(), added);
            }
        }
        for Removed { name, seen } in own.removed.iter().filter(|removed| before.is_needed(removed)) {
            next.removed.insert((name.clone(), seen.replica), *seen);
        }
        next
    }

    fn value(&self, name: &Name) -> Option<Sum> {
        self.before.value(&self.before.of(name))
    }

    /// Removes what is left of an element, at all replicas.
    fn remove(&mut self, name: &Name) {
        self.added.remove(name);
        for (replica, added) in self.before.of(name) {
            if replica != self.by.replica && !self.before.left(replica, added).is_nothing() {
                let seen = added.seen_of(replica);
                self.removed.insert((name.clone(), replica), seen);
            }
        }
    }

    /// Whether it was not there before.
    fn set(&mut self, name: Name, value: Bytes) -> bool {
        let own = self.added.get(&name);
        let is_new = own.is_none_or(|own| own.at() < self.by.at) && self.value(&name).is_none();
        self.remove(&name);
        let added = Added {
            name: name.clone(),
            value: Some((self.by.at, value)),
            count: None,
        };
        self.added.insert(name, added);
        is_new
    }

    fn add(&mut self, name: Name, adds: &Compute) -> Result<Computed, NotComputed> {
        let computed = Sum::with(self.value(&name), adds).map_err(|why| match why {
            NotComputed::NotAnInteger => NotComputed::FieldNotAnInteger,
            NotComputed::NotANumber => NotComputed::FieldNotANumber,
            why => why,
        })?;
        let more = adds.added().ok_or(NotComputed::FieldNotANumber)?;
        let added = self.added.entry(name.clone()).or_insert(Added {
            name,
            value: None,
            count: None,
        });
        added.count = Some(Count::next(added.count, self.by.at, more).ok_or(NotComputed::TooManyDigits)?);
        Ok(computed)
    }

    /// The bytes of what it adds. What it removes is bounded by what others have added.
    fn bytes(&self) -> usize {
        let added = self.added.values();
        added.map(|added| added.bytes() + OVERHEAD).sum()
    }

    fn done(self) -> Contribution {
        let removed = self.removed.into_iter();
        Contribution {
            added: self.added.into_values().collect(),
            removed: removed.map(|((name, _), seen)| Removed { name, seen }).collect(),
        }
    }
}

/// What an element counts for beside its name and its value.
const OVERHEAD: usize = 32;

impl Contribution {
    pub(crate) const NOTHING: &'static Contribution = &Contribution {
        added: Vec::new(),
        removed: Vec::new(),
    };

    fn added(&self, name: &Name) -> Option<&Added> {
        let place = self.added.binary_search_by(|added| added.name.cmp(name));
        place.ok().map(|place| &self.added[place])
    }

    /// What a replica contributes after an edit, where this is there before; and what the client is told.
    ///
    /// # Errors
    /// If nothing is written.
    pub(crate) fn edited(
        before: Contributions<'_>,
        by: VersionId,
        edit: &Edit,
    ) -> Result<(Contribution, Computed), NotEdited> {
        let kind = edit.kind();
        let named = |name: &Bytes| Name {
            kind,
            name: name.clone(),
        };
        if before.kind().is_some_and(|other| other != kind) {
            return Err(NotComputed::WrongType.into());
        }
        let mut next = Next::new(before, by);
        let computed = match edit {
            Edit::Set(fields) => {
                let new = fields
                    .iter()
                    .filter(|(name, value)| next.set(named(name), value.clone()));
                Computed::Elements(new.count() as u64)
            }
            Edit::Insert(names) => {
                let new = names.iter().filter(|name| next.set(named(name), Bytes::new()));
                Computed::Elements(new.count() as u64)
            }
            Edit::SetNew(name, _) if next.value(&named(name)).is_some() => return Err(NotEdited::Nothing),
            Edit::SetNew(name, value) => {
                next.set(named(name), value.clone());
                Computed::Elements(1)
            }
            Edit::Add(name, more) => next.add(named(name), &Compute::Add(*more))?,
            Edit::AddDecimal(name, more) => next.add(named(name), &Compute::AddDecimal(*more))?,
            Edit::Remove(_, names) => {
                let mut names: Vec<Name> = names.iter().map(named).collect();
                names.sort_unstable();
                names.dedup();
                names.retain(|name| next.value(name).is_some());
                if names.is_empty() {
                    return Err(NotEdited::Nothing);
                }
                names.iter().for_each(|name| next.remove(name));
                Computed::Elements(names.len() as u64)
            }
        };
        if !matches!(edit, Edit::Remove(..)) && next.bytes() > Edit::MAX_BYTES {
            return Err(NotComputed::TooManyElements.into());
        }
        Ok((next.done(), computed))
    }

    /// See [`crate::NewContent::removing_unseen`].
    pub(crate) fn removing_unseen(
        before: Contributions<'_>,
        by: VersionId,
        (kind, names): (Kind, &[Bytes]),
        replicas: impl Iterator<Item = ReplicaId>,
    ) -> Contribution {
        let mut next = Next::new(before, by);
        for replica in replicas {
            for name in names.iter().cloned() {
                let total = Decimal::ZERO;
                let seen = SeenCount {
                    replica,
                    at: by.at,
                    total,
                };
                next.added.remove(&Name {
                    kind,
                    name: name.clone(),
                });
                next.removed.insert((Name { kind, name }, replica), seen);
            }
        }
        next.done()
    }

    /// What a replica contributes after it has removed everything that it has seen.
    pub(crate) fn cleared(before: Contributions<'_>, by: VersionId) -> Contribution {
        let mut next = Next::new(before, by);
        for (_, added) in before.all() {
            next.remove(&added.name);
        }
        next.done()
    }

    /// What a replica contributes if it changes nothing, without what is over.
    pub(crate) fn pruned(before: Contributions<'_>, by: VersionId) -> Contribution {
        Next::new(before, by).done()
    }

    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    /// The same in memory of its own.
    pub(crate) fn compact(&self) -> Contribution {
        let names = self.added.iter().map(Added::bytes).sum::<usize>();
        let of_removed = self.removed.iter().map(|removed| removed.name.name.len());
        let mut arena = BytesMut::with_capacity(names + of_removed.sum::<usize>());
        let mut own = |bytes: &Bytes| {
            arena.put_slice(bytes);
            arena.split().freeze()
        };
        let mut named = |name: &Name| Name {
            kind: name.kind,
            name: own(&name.name),
        };
        let removed = self.removed.iter().map(|removed| Removed {
            name: named(&removed.name),
            seen: removed.seen,
        });
        let removed = removed.collect();
        let added = self.added.iter().map(|added| Added {
            name: Name {
                kind: added.name.kind,
                name: own(&added.name.name),
            },
            value: added.value.as_ref().map(|(at, value)| (*at, own(value))),
            count: added.count,
        });
        Contribution {
            added: added.collect(),
            removed,
        }
    }

    /// The bytes that it takes in memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        let names: usize = self.removed.iter().map(|removed| removed.name.name.len()).sum();
        let added: usize = self.added.iter().map(Added::bytes).sum();
        size_of::<Contribution>()
            + size_of_val(&self.added[..])
            + size_of_val(&self.removed[..])
            + names
            + added
    }
}
