//! What one replica has contributed to a key: its [`Count`], and the elements that it has added and removed. See [`crate::Elements`] for what that means, and `count.rs` for numbers.
//!
//! ```text
//!   the shares of the replicas that a reader may see     the register: what it has reset, and whether it has expired
//!                              \                             /
//!                               Contributions::shown: of each element, what no one has removed
//! ```
use crate::contribution::{Added, Builder, Contribution, Name, Removed};
use crate::count::{Sum, added};
use crate::{Count, Elements, Hlc, Kind, ReplicaId, ReplicaSet, SeenCount};
use bytes::Bytes;
use rust_decimal::Decimal;
use std::collections::BTreeMap;

/// What one replica has contributed to a key. Only this replica writes it, and its newest share replaces its older ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Share {
    /// What it has added to the key's number.
    pub count: Option<Count>,
    /// Which elements it has added and removed.
    pub elements: Contribution,
    /// What was stamped before this time is over, in the shares of all replicas: see `floor.rs`.
    pub floor: Hlc,
}

impl From<Count> for Share {
    fn from(count: Count) -> Share {
        Share {
            count: Some(count),
            ..Share::default()
        }
    }
}

/// What is left of an element that one replica has added.
#[derive(Default)]
pub(crate) struct Left<'a> {
    value: Option<(Hlc, &'a [u8])>,
    count: Option<Decimal>,
}

impl Left<'_> {
    fn is_nothing(&self) -> bool {
        self.value.is_none() && self.count.is_none()
    }
}

/// The value of an element: the newest one that was written, and what was added to it.
pub(crate) struct ElementValue<'a> {
    written: Option<&'a [u8]>,
    added: Option<Decimal>,
}

impl ElementValue<'_> {
    fn sum(self) -> Option<Sum> {
        let written = self.written.map(|value| Sum::Text(Bytes::copy_from_slice(value)));
        match self.added {
            Some(added) => Some(Sum::plus(written, added)),
            None => written,
        }
    }
}

/// What a reader goes by who sees elements.
#[derive(Clone, Copy)]
pub(crate) struct Contributions<'a> {
    /// By replica, and when each was stamped. Also those that say nothing of elements.
    pub shares: &'a [(ReplicaId, Hlc, &'a Share)],
    /// What the register's version has reset, and which elements' counts it had seen.
    pub resets: &'a Resets,
    /// What was stamped before this time has expired, or is over.
    pub expired: Option<Hlc>,
    /// What was stamped before this time is over, for every reader.
    pub floor: Hlc,
}

/// What a write of a key's register had seen of shares, and has reset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resets {
    /// Of each replica's share, by replica. It resets what the share says of elements up to that time, too.
    pub seen: Vec<SeenCount>,
    /// Of elements that are numbers, their totals. It has added nothing.
    pub removed: Contribution,
    /// Everything that was stamped before this time: an expiry that has passed. Also what the writer had not seen.
    pub before: Hlc,
    /// What was stamped before this time is over: see `floor.rs`.
    pub floor: Hlc,
}

impl Resets {
    pub(crate) fn nothing() -> &'static Resets {
        static NOTHING: Resets = Resets {
            seen: Vec::new(),
            removed: Contribution::empty(),
            before: Hlc::ZERO,
            floor: Hlc::ZERO,
        };
        &NOTHING
    }

    /// Whether nothing is reset.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.removed.is_empty() && self.before == Hlc::ZERO && self.floor == Hlc::ZERO
    }

    /// The same in memory of its own.
    pub(crate) fn compact(&self) -> Resets {
        Resets {
            seen: self.seen.as_slice().to_vec(),
            removed: self.removed.compact(),
            before: self.before,
            floor: self.floor,
        }
    }

    /// The bytes that it takes in memory, beside its own.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&self.seen[..]) + self.removed.heap_bytes()
    }

    pub(crate) fn of(&self, replica: ReplicaId) -> Option<&SeenCount> {
        self.seen.iter().find(|seen| seen.replica == replica)
    }

    /// The replicas that it names.
    pub(crate) fn replicas(&self) -> ReplicaSet {
        let seen = self.seen.iter().map(|seen| seen.replica);
        self.removed.replicas().union(seen.collect())
    }
}

impl<'a> Contributions<'a> {
    /// The most that any writer has removed of what a replica has added to an element.
    fn removal(&self, name: Name<'_>, replica: ReplicaId) -> Option<SeenCount> {
        let of_shares = self
            .shares
            .iter()
            .filter_map(|(.., share)| share.elements.removal(name, replica));
        let all = of_shares.chain(self.resets.removed.removal(name, replica));
        let most = all.max_by_key(|seen| seen.at);
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

    /// The contribution of a replica, and when it was stamped.
    pub fn of(&self, replica: ReplicaId) -> Option<(Hlc, &'a Contribution)> {
        let of_replica = self.shares.iter().find(|(other, ..)| *other == replica);
        of_replica.map(|&(_, at, share)| (at, &share.elements))
    }

    /// Whether a removal can be about something, now or later. It cannot if a share of the adder says so that is no older than what the removal had seen.
    pub fn is_needed(&self, removed: &Removed<'_>) -> bool {
        let seen = &removed.seen;
        if seen.at < self.floor {
            return false;
        }
        match self.of(seen.replica) {
            Some((at, share)) if at >= seen.at => {
                share.find(removed.name).is_some_and(|added| added.concerns(seen))
            }
            Some(_) | None => true,
        }
    }

    fn left(&self, replica: ReplicaId, added: &Added<'a>) -> Left<'a> {
        let removal = self.removal(added.name, replica);
        let is_left = |at: Hlc| {
            removal.is_none_or(|removal| at > removal.at) && self.expired.is_none_or(|expired| at >= expired)
        };
        Left {
            value: added.value.filter(|(at, _)| is_left(*at)),
            count: added
                .count
                .and_then(|count| count.left(removal.as_ref(), self.expired)),
        }
    }

    /// Of what a replica has added to an element, that of which something is left.
    pub fn kept(&self, replica: ReplicaId, added: &Added<'a>) -> Option<Added<'a>> {
        let left = self.left(replica, added);
        (!left.is_nothing()).then_some(Added {
            name: added.name,
            value: left.value,
            count: added.count.filter(|_| left.count.is_some()),
        })
    }

    /// What replicas have added to an element and of which something is left.
    pub fn adders(&self, name: Name<'_>) -> impl Iterator<Item = (ReplicaId, Added<'a>)> {
        let of = move |&(replica, _, share): &(ReplicaId, Hlc, &'a Share)| {
            let added = share.elements.find(name)?;
            (!self.left(replica, &added).is_nothing()).then_some((replica, added))
        };
        self.shares.iter().filter_map(of)
    }

    /// The value of an element that these have added. `None`: nothing is left of it.
    fn value(&self, of: impl Iterator<Item = (ReplicaId, Added<'a>)>) -> Option<ElementValue<'a>> {
        let mut newest: Option<((Hlc, ReplicaId), _)> = None;
        let mut total: Option<Decimal> = None;
        for (replica, of_replica) in of {
            let left = self.left(replica, &of_replica);
            if let Some((at, value)) = left.value
                && newest.is_none_or(|(newest, _)| newest < (at, replica))
            {
                newest = Some(((at, replica), value));
            }
            if let Some(count) = left.count {
                total = Some(total.map_or(count, |total| added(total, count)));
            }
        }
        (newest.is_some() || total.is_some()).then_some(ElementValue {
            written: newest.map(|(_, value)| value),
            added: total,
        })
    }

    fn named(&self, name: Name<'_>) -> Option<ElementValue<'a>> {
        let of = |&(replica, _, share): &(ReplicaId, Hlc, &'a Share)| {
            share.elements.find(name).map(|added| (replica, added))
        };
        self.value(self.shares.iter().filter_map(of))
    }

    /// Whether there is an element of this name.
    pub fn has(&self, name: Name<'_>) -> bool {
        self.named(name).is_some()
    }

    /// The value of an element, before it is written down.
    pub fn sum(&self, name: Name<'_>) -> Option<Sum> {
        self.named(name)?.sum()
    }

    /// Everything that was added, by name.
    pub fn all(&self) -> Vec<(ReplicaId, Added<'a>)> {
        let of = |&(replica, _, share): &(ReplicaId, Hlc, &'a Share)| {
            share.elements.added().map(move |added| (replica, added))
        };
        let mut all: Vec<_> = self.shares.iter().flat_map(of).collect();
        if self.shares.len() > 1 {
            all.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        }
        all
    }

    /// The hash or, if there is none, the set.
    pub fn shown(&self) -> Option<Elements> {
        if let Some(elements) = self.alone().and_then(Elements::of) {
            return Some(elements);
        }
        let all = self.all();
        let (mut builder, mut shown) = (Builder::default(), None);
        for of in all.chunk_by(|(_, one), (_, other)| one.name == other.name) {
            let name = of[0].1.name;
            // The fields come before the members.
            if shown.is_some_and(|shown| shown != name.kind) {
                break;
            }
            let value = self.value(of.iter().copied());
            if let Some(value) = value.and_then(ElementValue::sum) {
                shown = Some(name.kind);
                Elements::put(&mut builder, name, &value.written());
            }
        }
        Elements::of(&builder.done())
    }

    /// Whether everything that a replica has added is left. Only what is easily seen counts.
    pub fn keeps(&self, replica: ReplicaId) -> bool {
        let mut others = self.shares.iter().filter(|(other, ..)| *other != replica);
        self.expired.is_none()
            && self.resets.is_empty()
            && !others.any(|(.., share)| share.elements.has_removals())
    }

    /// What one replica has added, if that is everything, and all of it is left.
    fn alone(&self) -> Option<&'a Contribution> {
        let mut adders = self
            .shares
            .iter()
            .filter(|(.., share)| share.elements.added_len() > 0);
        match (adders.next(), adders.next()) {
            (Some((replica, _, all)), None) if self.keeps(*replica) => Some(&all.elements),
            _ => None,
        }
    }

    /// Whether there are elements, and of which kind.
    pub fn kind(&self) -> Option<Kind> {
        if let Some(kind) = self.alone().and_then(Contribution::values_of) {
            return Some(kind);
        }
        // A share says nothing of anything that was stamped later than itself.
        let is_over = |at: Hlc| self.expired.is_some_and(|expired| at < expired);
        let of_kind = |kind: Kind| {
            let mut shares = self.shares.iter().filter(|(_, at, _)| !is_over(*at));
            shares.any(|&(replica, _, share)| {
                let mut of_kind = share.elements.added_of(kind);
                of_kind.any(|added| !self.left(replica, &added).is_nothing())
            })
        };
        [Kind::Hash, Kind::Set].into_iter().find(|&kind| of_kind(kind))
    }

    /// Whether nothing is left of what this replica has added.
    pub fn is_reset(&self, replica: ReplicaId) -> bool {
        self.of(replica)
            .is_none_or(|(_, share)| share.added().all(|added| self.left(replica, &added).is_nothing()))
    }

    /// What a write of the register names beside whole shares: what the version before it named, while that is about something; and if it resets everything, the numbers.
    pub fn removed_by_register(&self, resets_all: bool) -> Contribution {
        let mut removed: BTreeMap<(Name<'_>, ReplicaId), SeenCount> = BTreeMap::new();
        let mut add = |name: Name<'a>, seen: SeenCount| {
            let before = removed.entry((name, seen.replica)).or_insert(seen);
            if before.at < seen.at {
                *before = seen;
            }
        };
        let inherited = self.resets.removed.removed();
        for before in inherited.filter(|removed| self.is_needed(removed)) {
            add(before.name, before.seen);
        }
        for &(replica, _, share) in self.shares.iter().filter(|_| resets_all) {
            for added in share.elements.added() {
                if self.left(replica, &added).count.is_some() {
                    add(added.name, added.seen_of(replica));
                }
            }
        }
        let mut builder = Builder::default();
        for ((name, _), seen) in removed {
            builder.remove(&Removed { name, seen });
        }
        builder.done()
    }
}
