use crate::contribution::Contribution;
use crate::count::{Sum, sum};
use crate::next_share::NotEdited;
use crate::share::{Contributions, Resets};
use crate::{
    Answer, Chain, Computed, Count, Edit, Elements, Gone, Hidden, Hlc, Kind, Label, Meta, Micros,
    NotComputed, PlainResponse, ReplicaId, SeenCount, Share, Version, VersionId,
};
use bytes::Bytes;
use rust_decimal::Decimal;
use smallvec::SmallVec;
use std::sync::Arc;

/// How many sites a key's shares are usually from. More of them take memory of their own.
const SITES: usize = 3;

/// The longest value that is copied into an answer, in bytes.
const COPIED_BYTES: usize = 256;

/// A value of the store, for an answer. A short one is copied. To share it would be slower: two owners share a count, which is elsewhere in memory. And that count would stay
/// with each value that was ever read.
fn handed_out(value: &Bytes) -> Bytes {
    match value.len() <= COPIED_BYTES {
        true => Bytes::copy_from_slice(value),
        false => value.clone(),
    }
}

/// What a reader sees of a key: the newest version of its register, and the newest share of each replica.
#[derive(Debug, Clone)]
pub struct Shown<'a, M> {
    register: Option<&'a Version<M>>,
    shares: ByReplica<'a, M>,
}

/// Shares by replica, one of each. Almost every key has none. It is no [`SmallVec`], because that would borrow the store until it is dropped.
#[derive(Debug, Clone)]
struct ByReplica<'a, M> {
    first: [Option<&'a Version<M>>; SITES],
    others: Vec<&'a Version<M>>,
}

impl<'a, M> ByReplica<'a, M> {
    fn new() -> ByReplica<'a, M> {
        ByReplica {
            first: [None; SITES],
            others: Vec::new(),
        }
    }

    fn insert(&mut self, mut share: &'a Version<M>) {
        for place in &mut self.first {
            match place {
                Some(held) if held.id.replica < share.id.replica => {}
                Some(held) => std::mem::swap(held, &mut share),
                None => return *place = Some(share),
            }
        }
        let place = self
            .others
            .partition_point(|held| held.id.replica < share.id.replica);
        self.others.insert(place, share);
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.first[0].is_none()
    }

    fn iter(&self) -> impl Iterator<Item = &'a Version<M>> + '_ {
        self.first.iter().flatten().chain(&self.others).copied()
    }
}

/// What a key has, for a reader at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyValue {
    /// A value of bytes.
    Bytes(Bytes),
    /// A hash or a set.
    Elements(Arc<Elements>),
}

impl From<Option<KeyValue>> for Answer {
    fn from(value: Option<KeyValue>) -> Answer {
        match value {
            None => Answer::Value(None),
            Some(KeyValue::Bytes(value)) => Answer::Value(Some(value)),
            Some(KeyValue::Elements(elements)) => Answer::Elements(elements),
        }
    }
}

impl From<Option<KeyValue>> for PlainResponse {
    fn from(value: Option<KeyValue>) -> PlainResponse {
        match value {
            None => PlainResponse::Value(None),
            Some(KeyValue::Bytes(value)) => PlainResponse::Value(Some(value)),
            Some(KeyValue::Elements(elements)) => PlainResponse::Elements(elements),
        }
    }
}

impl<'a, M: Meta> Shown<'a, M> {
    /// What a reader sees of a key if it may see the versions of which `visible` is true, and which newer versions are hidden from it.
    pub fn of(chain: Option<&'a Chain<M>>, visible: impl Fn(&Version<M>) -> bool) -> (Shown<'a, M>, Hidden) {
        let mut hidden = Hidden::default();
        let mut shown = Shown {
            register: None,
            shares: ByReplica::new(),
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
        if !chain.has_shares() {
            return (shown, hidden);
        }
        for version in chain.shares() {
            if shown
                .shares
                .iter()
                .any(|newer| newer.id.replica == version.id.replica)
            {
                continue;
            }
            match visible(version) {
                true => shown.shares.insert(version),
                false => hidden.add(version.id),
            }
        }
        (shown, hidden)
    }

    /// What a reader sees that may see everything.
    pub fn all(chain: Option<&'a Chain<M>>) -> Shown<'a, M> {
        Shown::of(chain, |_| true).0
    }

    /// What a reader sees of a key in a keyspace without shares.
    pub fn one(register: Option<&'a Version<M>>) -> Shown<'a, M> {
        let shares = ByReplica::new();
        Shown { register, shares }
    }

    /// The versions that the reader sees.
    pub fn versions(&self) -> impl Iterator<Item = &'a Version<M>> + '_ {
        self.register.into_iter().chain(self.shares.iter())
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

    fn view(&self) -> View<'a> {
        let content = self.register.map(|register| &register.content);
        let share = |version: &'a Version<M>| {
            let VersionId { at, replica } = version.id;
            Some((replica, at, version.content.share()?))
        };
        View {
            value: content.and_then(|content| content.stored()),
            until: content.and_then(|content| content.until()),
            resets: content.map_or(Resets::nothing(), |content| content.resets()),
            shares: self.shares.iter().filter_map(share).collect(),
        }
    }

    /// The value of bytes, for a reader at this time. A hash or a set has none.
    pub fn value(&self, now: Hlc) -> Option<Bytes> {
        match self.shares.is_empty() {
            true => {
                let content = self.register.map(|register| &register.content);
                content.and_then(|content| content.at(now)).map(handed_out)
            }
            false => self.view().sum(now).map(Sum::written),
        }
    }

    /// What the key has, for a reader at this time.
    pub fn whole(&self, now: Hlc) -> Option<KeyValue> {
        if let Some(value) = self.value(now) {
            return Some(KeyValue::Bytes(value));
        }
        let elements = match self.shares.is_empty() {
            true => None,
            false => self.view().elements(now),
        };
        elements.map(|elements| KeyValue::Elements(Arc::new(elements)))
    }

    /// Whether there is a value, or elements, for a reader at this time.
    pub fn has_value(&self, now: Hlc) -> bool {
        match self.shares.is_empty() {
            true => self
                .register
                .is_some_and(|register| register.content.has_value(now)),
            false => self.plainly_has_value() || self.view().has_value(now),
        }
    }

    /// Whether shares have added something, and nobody can have removed anything: that is told without a look at what they have added.
    fn plainly_has_value(&self) -> bool {
        let briefs = || {
            let shared = self.shares.iter().filter_map(|version| version.content.shared());
            shared.map(|(_, brief)| brief)
        };
        self.register.is_none()
            && self
                .shares
                .iter()
                .all(|version| version.content.floor() == Hlc::ZERO)
            && briefs().all(|brief| !brief.removes)
            && briefs().any(|brief| brief.counts || brief.adds)
    }

    /// When the newest of what is shown was stamped.
    pub fn stamped(&self) -> Hlc {
        let stamped = self.versions().map(|version| version.id.at);
        stamped.max().unwrap_or(Hlc::ZERO)
    }

    /// When the newest of what is shown was stamped, or when it expires, if that is later.
    pub fn latest(&self) -> Hlc {
        let until = self.register.and_then(|register| register.content.until());
        self.stamped().max(until.map_or(Hlc::ZERO, Hlc::from_wall))
    }

    /// By what nothing is shown at some time, and from when on. `None`: something is shown, whatever the time.
    pub fn gone(&self) -> Option<Gone> {
        let expires = self
            .register
            .filter(|register| register.content.until().is_some());
        let by = match expires {
            Some(register) => register.id,
            None => self
                .versions()
                .map(|version| version.id)
                .max_by_key(|id| id.stamp())?,
        };
        let at = self.latest();
        (!self.has_value(at)).then_some(Gone { by, at })
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
        if self.shares.is_empty() {
            return self.register.map(Version::label);
        }
        let newest = self.versions().max_by_key(|version| version.id.stamp())?;
        let until = self.register.and_then(|register| register.content.until());
        let goes_on = |until: &Micros| {
            self.shares
                .iter()
                .any(|share| share.id.at >= Hlc::from_wall(*until))
        };
        Some(Label {
            id: newest.id,
            base: None,
            until: until.filter(|until| !goes_on(until)),
        })
    }

    /// The same, apart from the store. `None` if there are no shares, and nothing was reset.
    pub(crate) fn tally(&self) -> Option<Tally> {
        let resets = self
            .register
            .is_some_and(|register| !register.content.resets().is_empty());
        (resets || !self.shares.is_empty()).then(|| self.to_tally())
    }

    pub(crate) fn to_tally(&self) -> Tally {
        let view = self.view();
        let share = |version: &'a Version<M>| {
            let VersionId { at, replica } = version.id;
            let (share, _) = version.content.shared()?;
            Some((replica, at, Arc::clone(share)))
        };
        Tally {
            value: view.value.cloned(),
            until: view.until,
            resets: view.resets.clone(),
            shares: self.shares.iter().filter_map(share).collect(),
        }
    }
}

/// What a register says, and the shares beside it.
struct View<'a> {
    value: Option<&'a Bytes>,
    until: Option<Micros>,
    resets: &'a Resets,
    /// By replica, and when each was stamped.
    shares: SmallVec<[(ReplicaId, Hlc, &'a Share); SITES]>,
}

impl<'a> View<'a> {
    fn expired_at(&self, now: Hlc) -> Option<Hlc> {
        self.until.map(Hlc::from_wall).filter(|&until| until <= now)
    }

    /// What was stamped before this time is over, for every reader.
    fn floor(&self) -> Hlc {
        let of_shares = self.shares.iter().map(|(.., share)| share.floor);
        of_shares.fold(self.resets.floor, Hlc::max)
    }

    /// What was stamped before this time has expired: what is in shares, by this expiry or by one that a version before this one has had.
    fn expired_before(&self, now: Hlc) -> Option<Hlc> {
        let before = Some(self.resets.before).filter(|before| *before > Hlc::ZERO);
        before.max(self.expired_at(now))
    }

    /// What was stamped before this time has expired, or is over.
    fn gone_before(&self, now: Hlc) -> Option<Hlc> {
        let floor = Some(self.floor()).filter(|floor| *floor > Hlc::ZERO);
        floor.max(self.expired_before(now))
    }

    /// What a write says of that. If the writer has not seen any share, it says nothing: most keys never have one, and a key that has expired may be forgotten. What is under a floor is forgotten
    /// elsewhere, so it does not count.
    fn resets_before(&self, now: Hlc) -> Hlc {
        let floor = self.floor();
        let has_seen = |at: Hlc| at >= floor;
        let is_known = self.shares.iter().any(|(_, at, _)| has_seen(*at))
            || self.resets.seen.iter().any(|seen| has_seen(seen.at))
            || !self.resets.removed.is_empty()
            || self.resets.before > floor;
        self.expired_before(now).filter(|_| is_known).unwrap_or(Hlc::ZERO)
    }

    fn register(&self, now: Hlc) -> Option<&'a Bytes> {
        self.value.filter(|_| self.expired_at(now).is_none())
    }

    /// What is left of a replica's count.
    fn count_left(&self, replica: ReplicaId, share: &Share, expired: Option<Hlc>) -> Option<Decimal> {
        share.count?.left(self.resets.of(replica), expired)
    }

    /// The value of bytes, before it is written down.
    fn sum(&self, now: Hlc) -> Option<Sum> {
        let expired = self.gone_before(now);
        let shares = self.shares.iter();
        let left = shares.filter_map(|(replica, _, share)| self.count_left(*replica, share, expired));
        sum(self.register(now), left)
    }

    fn contributions<T>(&self, now: Hlc, of: impl FnOnce(Contributions<'_>) -> T) -> T {
        of(Contributions {
            shares: &self.shares,
            resets: self.resets,
            expired: self.gone_before(now),
            floor: self.floor(),
        })
    }

    fn has_bytes(&self, now: Hlc) -> bool {
        let expired = self.gone_before(now);
        let mut shares = self.shares.iter();
        self.register(now).is_some()
            || shares.any(|(replica, _, share)| self.count_left(*replica, share, expired).is_some())
    }

    /// The kind of its elements, if it has elements and no value of bytes.
    fn kind(&self, now: Hlc) -> Option<Kind> {
        match self.has_bytes(now) {
            true => None,
            false => self.contributions(now, |elements| elements.kind()),
        }
    }

    fn has_value(&self, now: Hlc) -> bool {
        self.has_bytes(now) || self.kind(now).is_some()
    }

    fn elements(&self, now: Hlc) -> Option<Elements> {
        match self.has_bytes(now) {
            true => None,
            false => self.contributions(now, |elements| elements.shown()),
        }
    }

    /// Of these shares what a write names that has seen them, beside what was seen before.
    fn seen(&self, wanted: impl Fn(ReplicaId, &Share) -> bool) -> Vec<SeenCount> {
        let floor = self.floor();
        let mut seen = self.resets.seen.clone();
        seen.retain(|seen| seen.at >= floor);
        for &(replica, at, share) in &self.shares {
            if at < floor || !wanted(replica, share) {
                continue;
            }
            let total = share.count.map_or(Decimal::ZERO, |count| count.total);
            match seen.binary_search_by_key(&replica, |seen| seen.replica) {
                Ok(place) if seen[place].at < at => seen[place] = SeenCount { replica, at, total },
                Ok(_) => {}
                Err(place) => seen.insert(place, SeenCount { replica, at, total }),
            }
        }
        seen
    }
}

/// What a writer has seen of a key: [`Shown`], apart from the store.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    value: Option<Bytes>,
    until: Option<Micros>,
    resets: Resets,
    shares: SmallVec<[(ReplicaId, Hlc, Arc<Share>); SITES]>,
}

impl Tally {
    fn view(&self) -> View<'_> {
        let shares = self.shares.iter();
        View {
            value: self.value.as_ref(),
            until: self.until,
            resets: &self.resets,
            shares: shares
                .map(|(replica, at, share)| (*replica, *at, &**share))
                .collect(),
        }
    }

    /// What the register says at this time.
    pub fn register(&self, now: Hlc) -> Option<&Bytes> {
        let expired = self.until.is_some_and(|until| Hlc::from_wall(until) <= now);
        self.value.as_ref().filter(|_| !expired)
    }

    /// The value of bytes at this time, before it is written down.
    pub fn sum(&self, now: Hlc) -> Option<Sum> {
        self.view().sum(now)
    }

    /// The value of bytes at this time.
    pub fn value(&self, now: Hlc) -> Option<Bytes> {
        self.sum(now).map(Sum::written)
    }

    /// Whether there is a value, or elements.
    pub fn has_value(&self, now: Hlc) -> bool {
        self.view().has_value(now)
    }

    /// The kind of the elements, if there is no value of bytes.
    pub fn kind(&self, now: Hlc) -> Option<Kind> {
        self.view().kind(now)
    }

    /// The elements, if there is no value of bytes.
    pub fn elements(&self, now: Hlc) -> Option<Elements> {
        self.view().elements(now)
    }

    /// When the value expires, for a writer at this time. `None`: never, or it has expired.
    pub fn until(&self, now: Hlc) -> Option<Micros> {
        self.until.filter(|&until| Hlc::from_wall(until) > now)
    }

    /// The same after a write of the register.
    pub fn with_register(&self, value: Option<Bytes>, until: Option<Micros>, resets: Resets) -> Tally {
        Tally {
            value,
            until,
            resets,
            shares: self.shares.clone(),
        }
    }

    /// The same after a write of this replica's share.
    pub fn with_share(&self, by: VersionId, share: Share) -> Tally {
        let mut tally = self.clone();
        let place = tally
            .shares
            .binary_search_by_key(&by.replica, |(replica, ..)| *replica);
        let new = (by.replica, by.at, Arc::new(share));
        match place {
            Ok(place) => tally.shares[place] = new,
            Err(place) => tally.shares.insert(place, new),
        }
        tally
    }

    fn share_of(&self, replica: ReplicaId) -> Option<&(ReplicaId, Hlc, Arc<Share>)> {
        self.shares.iter().find(|(other, ..)| *other == replica)
    }

    /// When the newest share of a replica was stamped. 0: there is none.
    pub fn shared_at(&self, replica: ReplicaId) -> Hlc {
        self.share_of(replica).map_or(Hlc::ZERO, |(_, at, _)| *at)
    }

    fn own(&self, by: VersionId) -> Option<&Share> {
        self.share_of(by.replica).map(|(.., share)| &**share)
    }

    /// The next share of this replica, which adds this much. `None`: its count's total would have too many digits.
    pub fn counted(&self, by: VersionId, more: Decimal) -> Option<Share> {
        let view = self.view();
        let expired = view.gone_before(by.at);
        let own = self.own(by);
        let goes_on = own.filter(|own| view.count_left(by.replica, own, expired).is_some());
        let count = Count::next(goes_on.and_then(|own| own.count), by.at, more)?;
        let elements = match own.is_none_or(|own| own.elements.is_empty()) {
            true => Contribution::default(),
            false => view.contributions(by.at, |elements| Contribution::pruned(elements, by)),
        };
        Some(Share {
            count: Some(count),
            ..self.with_elements(by, elements)
        })
    }

    /// The next share of this replica, which makes this edit, and what its client is told.
    ///
    /// # Errors
    /// If nothing is written.
    pub fn edited(&self, by: VersionId, edit: &Edit) -> Result<(Share, Computed), NotEdited> {
        let view = self.view();
        if view.has_bytes(by.at) {
            return Err(NotComputed::WrongType.into());
        }
        let (elements, computed) =
            view.contributions(by.at, |elements| Contribution::edited(elements, by, edit))?;
        Ok((self.with_elements(by, elements), computed))
    }

    /// See [`crate::NewContent::removing_unseen`].
    pub fn removing_unseen(
        &self,
        by: VersionId,
        edit: &Edit,
        replicas: impl Iterator<Item = ReplicaId>,
    ) -> Option<Share> {
        let Edit::Remove(kind, names) = edit else {
            return None;
        };
        let elements = self.view().contributions(by.at, |elements| {
            Contribution::removing_unseen(elements, by, (*kind, names), replicas)
        });
        Some(self.with_elements(by, elements))
    }

    /// The next share of this replica, which removes all elements. `None`: there are none, or there is a value of bytes.
    pub fn cleared(&self, by: VersionId) -> Option<Share> {
        let view = self.view();
        view.kind(by.at)?;
        let elements = view.contributions(by.at, |elements| Contribution::cleared(elements, by));
        Some(self.with_elements(by, elements))
    }

    fn with_elements(&self, by: VersionId, elements: Contribution) -> Share {
        let own = self.own(by);
        Share {
            count: own.and_then(|own| own.count),
            elements,
            floor: own.map_or(Hlc::ZERO, |own| own.floor),
        }
    }

    /// What a write of the register resets at this time: everything that was seen, now or by the version before it.
    pub fn resets_all(&self, now: Hlc) -> Resets {
        let view = self.view();
        Resets {
            seen: view.seen(|_, _| true),
            removed: view.contributions(now, |elements| elements.removed_by_register(true)),
            before: view.resets_before(now),
            ..Resets::default()
        }
    }

    /// What a change of the expiry to `until` names at this time: what is reset already or, if `until` has passed, everything that was seen.
    pub fn resets_at_expiry(&self, until: Option<Micros>, now: Hlc) -> Resets {
        if until.is_some_and(|until| Hlc::from_wall(until) <= now) {
            return self.resets_all(now);
        }
        let view = self.view();
        let expired = view.gone_before(now);
        view.contributions(now, |elements| Resets {
            seen: view.seen(|replica, share| {
                view.count_left(replica, share, expired).is_none() && elements.is_reset(replica)
            }),
            removed: elements.removed_by_register(false),
            before: view.resets_before(now),
            ..Resets::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Content;

    #[test]
    fn shares_are_by_replica_however_many_there_are_and_in_whatever_order_they_come() {
        let share = |replica| Version {
            id: VersionId {
                at: Hlc(1),
                replica: ReplicaId(replica),
            },
            content: Content::sharing(Share::default()),
            meta: (),
        };
        let shares: Vec<Version<()>> = (0..7).map(share).collect();
        for step in 1..7 {
            let mut by_replica = ByReplica::new();
            assert!(by_replica.is_empty());
            for place in 0..7 {
                by_replica.insert(&shares[place * step % 7]);
                let replicas = by_replica.iter().map(|share| share.id.replica);
                let replicas: Vec<ReplicaId> = replicas.collect();
                assert!(replicas.len() == place + 1 && replicas.is_sorted());
                assert!(!by_replica.is_empty());
            }
        }
    }
}
