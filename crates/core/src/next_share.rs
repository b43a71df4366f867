//! What a replica contributes to the elements of a key after a change. What has changed is put in between what is left of what it has contributed before.
use crate::contribution::{Added, Builder, Contribution, Name, Places, Removed};
use crate::count::Sum;
use crate::share::Contributions;
use crate::{Compute, Computed, Count, Edit, Kind, NotComputed, ReplicaId, SeenCount, VersionId};
use bytes::Bytes;
use rust_decimal::Decimal;
use std::ops::Range;

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

/// The next contribution of a replica, while it is made. Elements are changed in the order of their names, each of them once.
struct Next<'a> {
    before: Contributions<'a>,
    by: VersionId,
    /// What is added anew, and what is not any more.
    added: Vec<(Name<'a>, Option<Added<'a>>)>,
    /// What is removed anew.
    removed: Vec<Removed<'a>>,
}

/// What an element counts for beside its name and its value.
const OVERHEAD: usize = 32;

impl<'a> Next<'a> {
    fn new(before: Contributions<'a>, by: VersionId) -> Next<'a> {
        Next {
            before,
            by,
            added: Vec::new(),
            removed: Vec::new(),
        }
    }

    fn own(&self) -> &'a Contribution {
        let own = self.before.of(self.by.replica);
        own.map_or(Contribution::nothing(), |(_, own)| own)
    }

    /// Removes what is left of an element, at all replicas.
    fn remove(&mut self, name: Name<'a>) {
        self.put(name, None);
    }

    /// Sets elements, and tells how many of them were not there before. Of a name that comes several times, the last value counts.
    fn set_all(&mut self, mut elements: Vec<(Name<'a>, &'a [u8])>) -> Computed {
        elements.sort_by_key(|(name, _)| *name);
        let mut new = 0;
        for of in elements.chunk_by(|(one, _), (other, _)| one == other) {
            let Some(&(name, value)) = of.last() else { continue };
            new += u64::from(!self.before.has(name));
            let added = Added {
                name,
                value: Some((self.by.at, value)),
                count: None,
            };
            self.put(name, Some(added));
        }
        Computed::Elements(new)
    }

    /// Puts this in the place of what is left of an element.
    fn put(&mut self, name: Name<'a>, added: Option<Added<'a>>) {
        let before = self.before;
        for (replica, added) in before.adders(name) {
            if replica != self.by.replica {
                let seen = added.seen_of(replica);
                self.removed.push(Removed { name, seen });
            }
        }
        self.added.push((name, added));
    }

    fn add(&mut self, name: Name<'a>, adds: &Compute) -> Result<Computed, NotComputed> {
        let computed = Sum::with(self.before.sum(name), adds).map_err(|why| match why {
            NotComputed::NotAnInteger => NotComputed::FieldNotAnInteger,
            NotComputed::NotANumber => NotComputed::FieldNotANumber,
            why => why,
        })?;
        let more = adds.added().ok_or(NotComputed::FieldNotANumber)?;
        let own = self.own().find(name);
        let before = own.and_then(|own| self.before.kept(self.by.replica, &own));
        let count = before.and_then(|before| before.count);
        let count = Count::next(count, self.by.at, more).ok_or(NotComputed::TooManyDigits)?;
        let added = Added {
            name,
            value: before.and_then(|before| before.value),
            count: Some(count),
        };
        self.added.push((name, Some(added)));
        Ok(computed)
    }

    /// The contribution, and for how many bytes counts what it adds. What it removes is bounded by what others have added.
    fn done(self) -> (Contribution, usize) {
        let own = self.own();
        let place = |(name, _): &(Name<'a>, _)| own.position(*name);
        let places: Places = self.added.iter().map(place).collect();
        // As much as there is if nothing of what was before has gone meanwhile.
        let (mut entries, mut bytes) = (
            own.entries() + self.removed.len(),
            own.bytes_of(&(0..own.entries())),
        );
        for ((_, added), place) in self.added.iter().zip(&places) {
            if let Ok(there) = *place {
                (entries, bytes) = (entries - 1, bytes - own.bytes_of(&(there..there + 1)));
            }
            if let Some(added) = added {
                (entries, bytes) = (entries + 1, bytes + added.entry_bytes());
            }
        }
        let mut builder = Builder::with_room(entries, bytes);
        let (before, replica) = (self.before, self.by.replica);
        let keeps_all = own.values_of().is_some() && before.keeps(replica);
        let keep = |entries: Range<usize>, builder: &mut Builder| match keeps_all {
            true => builder.copy(own, entries),
            false => own
                .added_among(entries)
                .filter_map(|added| before.kept(replica, &added))
                .for_each(|added| builder.add(&added)),
        };
        let mut from = 0;
        for ((_, added), place) in self.added.into_iter().zip(places) {
            let (Ok(to) | Err(to)) = place;
            keep(from..to, &mut builder);
            from = to + usize::from(place.is_ok());
            if let Some(added) = added {
                builder.add(&added);
            }
        }
        keep(from..own.added_len(), &mut builder);
        let counted = builder.bytes() + OVERHEAD * builder.added_len();
        let mut new = self.removed.into_iter().peekable();
        for before in own.removed() {
            while let Some(removed) = new.next_if(|removed| removed.place() < before.place()) {
                builder.remove(&removed);
            }
            match new.next_if(|removed| removed.place() == before.place()) {
                Some(removed) => builder.remove(&removed),
                None if self.before.is_needed(&before) => builder.remove(&before),
                None => {}
            }
        }
        new.for_each(|removed| builder.remove(&removed));
        (builder.done(), counted)
    }
}

impl Contribution {
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
        if before.kind().is_some_and(|other| other != kind) {
            return Err(NotComputed::WrongType.into());
        }
        let named = |name| Name { kind, name };
        let mut next = Next::new(before, by);
        let computed = match edit {
            Edit::Set(fields) => {
                let fields = fields.iter().map(|(name, value)| (named(name), &value[..]));
                next.set_all(fields.collect())
            }
            Edit::Insert(names) => next.set_all(names.iter().map(|name| (named(name), &[][..])).collect()),
            Edit::SetNew(name, _) if before.has(named(name)) => return Err(NotEdited::Nothing),
            Edit::SetNew(name, value) => next.set_all(vec![(named(name), value)]),
            Edit::Add(name, more) => next.add(named(name), &Compute::Add(*more))?,
            Edit::AddDecimal(name, more) => next.add(named(name), &Compute::AddDecimal(*more))?,
            Edit::Remove(_, names) => {
                let mut names: Vec<Name<'_>> = names.iter().map(|name| named(name)).collect();
                names.sort_unstable();
                names.dedup();
                names.retain(|name| before.has(*name));
                if names.is_empty() {
                    return Err(NotEdited::Nothing);
                }
                names.iter().for_each(|name| next.remove(*name));
                Computed::Elements(names.len() as u64)
            }
        };
        let (next, bytes) = next.done();
        if !matches!(edit, Edit::Remove(..)) && bytes > Edit::MAX_BYTES {
            return Err(NotComputed::TooManyElements.into());
        }
        Ok((next, computed))
    }

    /// See [`crate::NewContent::removing_unseen`].
    pub(crate) fn removing_unseen(
        before: Contributions<'_>,
        by: VersionId,
        (kind, names): (Kind, &[Bytes]),
        replicas: impl Iterator<Item = ReplicaId>,
    ) -> Contribution {
        let mut next = Next::new(before, by);
        let mut names: Vec<Name<'_>> = names.iter().map(|name| Name { kind, name }).collect();
        names.sort_unstable();
        names.dedup();
        let replicas: Vec<ReplicaId> = replicas.filter(|replica| *replica != by.replica).collect();
        for name in names {
            next.added.push((name, None));
            for &replica in &replicas {
                let seen = SeenCount {
                    replica,
                    at: by.at,
                    total: Decimal::ZERO,
                };
                next.removed.push(Removed { name, seen });
            }
        }
        next.done().0
    }

    /// What a replica contributes after it has removed everything that it has seen.
    pub(crate) fn cleared(before: Contributions<'_>, by: VersionId) -> Contribution {
        let mut next = Next::new(before, by);
        let all = before.all();
        for of in all.chunk_by(|(_, one), (_, other)| one.name == other.name) {
            next.remove(of[0].1.name);
        }
        next.done().0
    }

    /// What a replica contributes if it changes nothing, without what is over.
    pub(crate) fn pruned(before: Contributions<'_>, by: VersionId) -> Contribution {
        Next::new(before, by).done().0
    }
}
