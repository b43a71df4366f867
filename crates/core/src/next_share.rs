//! What a replica contributes to the elements of a key after a change. What has changed is put in between what is left of what it has contributed before.
use crate::contribution::{Added, Builder, Contribution, Name, Removed};
use crate::count::Sum;
use crate::share::Contributions;
use crate::{Compute, Computed, Count, Edit, Kind, NotComputed, ReplicaId, SeenCount, VersionId};
use bytes::Bytes;
use rust_decimal::Decimal;
use std::collections::BTreeMap;

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

/// The next contribution of a replica, while it is made.
struct Next<'a> {
    before: Contributions<'a>,
    by: VersionId,
    /// What is added anew, and what is not any more.
    added: BTreeMap<Name<'a>, Option<Added<'a>>>,
    /// What is removed anew.
    removed: BTreeMap<(Name<'a>, ReplicaId), SeenCount>,
}

/// What an element counts for beside its name and its value.
const OVERHEAD: usize = 32;

impl<'a> Next<'a> {
    fn new(before: Contributions<'a>, by: VersionId) -> Next<'a> {
        Next {
            before,
            by,
            added: BTreeMap::new(),
            removed: BTreeMap::new(),
        }
    }

    fn own(&self) -> &'a Contribution {
        let own = self.before.of(self.by.replica);
        own.map_or(Contribution::nothing(), |(_, own)| own)
    }

    /// What this replica has added to an element by now.
    fn added(&self, name: Name<'a>) -> Option<Added<'a>> {
        match self.added.get(&name) {
            Some(added) => *added,
            None => self.before.kept(self.by.replica, &self.own().find(name)?),
        }
    }

    /// Removes what is left of an element, at all replicas.
    fn remove(&mut self, name: Name<'a>) {
        self.added.insert(name, None);
        let before = self.before;
        for (replica, added) in before.adders(name) {
            if replica != self.by.replica {
                self.removed.insert((name, replica), added.seen_of(replica));
            }
        }
    }

    /// Whether it was not there before.
    fn set(&mut self, name: Name<'a>, value: &'a [u8]) -> bool {
        let own = self.added(name);
        let is_new = own.is_none_or(|own| own.at() < self.by.at) && !self.before.has(name);
        self.remove(name);
        let added = Added {
            name,
            value: Some((self.by.at, value)),
            count: None,
        };
        self.added.insert(name, Some(added));
        is_new
    }

    fn add(&mut self, name: Name<'a>, adds: &Compute) -> Result<Computed, NotComputed> {
        let computed = Sum::with(self.before.sum(name), adds).map_err(|why| match why {
            NotComputed::NotAnInteger => NotComputed::FieldNotAnInteger,
            NotComputed::NotANumber => NotComputed::FieldNotANumber,
            why => why,
        })?;
        let more = adds.added().ok_or(NotComputed::FieldNotANumber)?;
        let before = self.added(name).unwrap_or(Added {
            name,
            value: None,
            count: None,
        });
        let count = Count::next(before.count, self.by.at, more).ok_or(NotComputed::TooManyDigits)?;
        let added = Added {
            count: Some(count),
            ..before
        };
        self.added.insert(name, Some(added));
        Ok(computed)
    }

    /// The contribution, and for how many bytes counts what it adds. What it removes is bounded by what others have added.
    fn done(self) -> (Contribution, usize) {
        let own = self.own();
        let mut builder = Builder::like(own, self.added.len() + self.removed.len());
        let mut bytes = 0;
        let mut add = |added: Option<Added<'_>>| {
            if let Some(added) = added {
                bytes += added.bytes() + OVERHEAD;
                builder.add(&added);
            }
        };
        let mut new = self.added.into_iter().peekable();
        for before in own.added() {
            while let Some((_, added)) = new.next_if(|(name, _)| *name < before.name) {
                add(added);
            }
            add(match new.next_if(|(name, _)| *name == before.name) {
                Some((_, added)) => added,
                None => self.before.kept(self.by.replica, &before),
            });
        }
        new.for_each(|(_, added)| add(added));
        let mut new = self.removed.into_iter().peekable();
        let mut remove =
            |((name, _), seen): ((Name<'_>, ReplicaId), SeenCount)| builder.remove(&Removed { name, seen });
        for before in own.removed() {
            let place = (before.name, before.seen.replica);
            while let Some(removed) = new.next_if(|(other, _)| *other < place) {
                remove(removed);
            }
            match new.next_if(|(other, _)| *other == place) {
                Some(removed) => remove(removed),
                None if self.before.is_needed(&before) => remove((place, before.seen)),
                None => {}
            }
        }
        new.for_each(remove);
        (builder.done(), bytes)
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
                let new = fields.iter().filter(|(name, value)| next.set(named(name), value));
                Computed::Elements(new.count() as u64)
            }
            Edit::Insert(names) => {
                let new = names.iter().filter(|name| next.set(named(name), &[]));
                Computed::Elements(new.count() as u64)
            }
            Edit::SetNew(name, _) if before.has(named(name)) => return Err(NotEdited::Nothing),
            Edit::SetNew(name, value) => {
                next.set(named(name), value);
                Computed::Elements(1)
            }
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
        for replica in replicas {
            for name in names {
                let name = Name { kind, name };
                let seen = SeenCount {
                    replica,
                    at: by.at,
                    total: Decimal::ZERO,
                };
                next.added.insert(name, None);
                next.removed.insert((name, replica), seen);
            }
        }
        next.done().0
    }

    /// What a replica contributes after it has removed everything that it has seen.
    pub(crate) fn cleared(before: Contributions<'_>, by: VersionId) -> Contribution {
        let mut next = Next::new(before, by);
        for (_, added) in before.all() {
            next.remove(added.name);
        }
        next.done().0
    }

    /// What a replica contributes if it changes nothing, without what is over.
    pub(crate) fn pruned(before: Contributions<'_>, by: VersionId) -> Contribution {
        Next::new(before, by).done().0
    }
}
