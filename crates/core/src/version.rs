use crate::{BadFrame, Content, Gone, Hlc, Key, Micros, ReplicaId, ReplicaSet, Wire};
use bytes::Bytes;
use std::{cmp::Ordering, fmt};
use thin_vec::ThinVec;

/// The name of a version: when it was stamped, and by which replica. Names have no order: versions of a key are ordered by their [`Rank`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VersionId {
    /// The writer's hybrid logical clock.
    pub at: Hlc,
    /// The replica that took the write.
    pub replica: ReplicaId,
}

/// The place of a version in the order of its key's versions, the same at every replica. Newer is greater.
///
/// The *base* of a version is the version that wrote its value: itself, or the one whose expiry it changes. Versions are ordered by their bases first, by
/// time and then by replica. Versions of one base are ordered by their own time and replica.
///
/// So a change of expiry never wins over a value that it did not know, even if it was stamped later:
///
/// ```text
///   site a:  SET x 1 @5          SET x 2 @7
///                 \
///   site b:        x is 1 ......... EXPIRE x @9 changes the value 1, before SET x 2 arrives
///
///   base 5:  SET x 1 @5, then EXPIRE x @9
///   base 7:  SET x 2 @7, the newest: x is 2 at every site, and does not expire
/// ```
///
/// One base is no version: [`Rank::SHARES`] is that of all shares, and older than all versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rank {
    /// The version that wrote the value.
    pub base: VersionId,
    /// The version.
    pub id: VersionId,
}

impl Rank {
    /// The base of shares: they come behind all versions of their key's register.
    pub const SHARES: VersionId = VersionId {
        at: Hlc::ZERO,
        replica: ReplicaId(0),
    };

    /// The rank of a version that is its own base.
    pub fn of(id: VersionId) -> Rank {
        Rank { base: id, id }
    }

    /// The rank of a version, with its base if that is another one.
    pub fn new(base: Option<VersionId>, id: VersionId) -> Rank {
        Rank {
            base: base.unwrap_or(id),
            id,
        }
    }

    /// The base, if it is another version.
    pub fn other_base(self) -> Option<VersionId> {
        (self.base != self.id).then_some(self.base)
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        let key = |rank: &Rank| {
            let Rank { base, id } = rank;
            (base.stamp(), id.stamp())
        };
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.other_base() {
            None => self.id.fmt(f),
            Some(base) => write!(f, "{} of {base}", self.id),
        }
    }
}

impl VersionId {
    /// When it was stamped, to sort versions by. That is not their order if the expiry of some was changed: see [`Rank`].
    pub fn stamp(self) -> (Hlc, ReplicaId) {
        (self.at, self.replica)
    }
}

impl fmt::Debug for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.at, self.replica.0)
    }
}

/// What a protocol keeps with each version.
pub trait Meta: Wire + Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// Whether each version says which others it replaces ([`Meta::replaces`]). Then a key keeps all versions that no other one replaces: *siblings*,
    /// which were written without knowledge of each other. Else the newest version replaces all others.
    const SIBLINGS: bool = false;

    /// Whether the version that has this metadata replaces another version of its key. Its own timestamp is above those of all versions that it replaces:
    /// see [`Version::check`].
    fn replaces(&self, _other: VersionId) -> bool {
        false
    }
}

/// For protocols that keep nothing with a version.
impl Meta for () {}

/// One version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version<M> {
    /// Its name.
    pub id: VersionId,
    /// The value, or that there is none.
    pub content: Content,
    /// What the protocol keeps with each version.
    pub meta: M,
}

/// What a receipt says of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub id: VersionId,
    /// The version that wrote the value, if this one has changed its expiry.
    pub base: Option<VersionId>,
    /// When its value expires.
    pub until: Option<Micros>,
}

impl<M> Version<M> {
    /// Its place in the order of its key's versions.
    #[inline]
    pub fn rank(&self) -> Rank {
        Rank::new(self.content.base(), self.id)
    }

    /// What a receipt says of it.
    pub fn label(&self) -> Label {
        Label {
            id: self.id,
            base: self.content.base().filter(|base| *base != Rank::SHARES),
            until: self.content.until(),
        }
    }
}

impl<M: Meta> Version<M> {
    /// Whether this version, once it is gone, has removed another one of its key: an older version of the register. Of shares it says only what it has reset.
    pub fn removes(&self, other: &Version<M>) -> bool {
        !other.content.is_share() && other.rank() < self.rank()
    }

    /// Checks a version from outside, where siblings are kept: its timestamp must be above everything that it depends on.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self) -> Result<(), BadFrame> {
        match M::SIBLINGS && self.meta.newest() >= self.id.at {
            true => Err(BadFrame::new(
                "a version whose context is older than itself",
                self.id.to_string(),
            )),
            false => Ok(()),
        }
    }

    /// From when on no reader sees a value, if there is such a time: when a delete was stamped, or when a value expires, if that is later than its stamp. A
    /// version may be forgotten once all replicas have shown everything up to this time: then no reader's clock is before it. And no version may arrive any more that
    /// is older in the order of versions, whenever it was stamped ([`crate::Protocol::settled`]).
    pub fn gone(&self) -> Option<Gone> {
        let at = match self.content.until() {
            Some(until) => Some(Hlc::from_wall(until).max(self.id.at)),
            None => self.content.is_delete().then_some(self.id.at),
        };
        at.map(|at| Gone { by: self.id, at })
    }
}

/// The encoding of a version without metadata, or of none: part of messages that `prost` derives ([`crate::Record`]).
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct VersionRecord {
    /// When it was stamped; 0 for no version.
    #[prost(fixed64, tag = "1")]
    at: u64,
    /// The replica that stamped it.
    #[prost(uint32, tag = "2")]
    replica: u32,
    /// The value; none for a delete.
    #[prost(bytes = "bytes", optional, tag = "3")]
    value: Option<Bytes>,
    /// When the value expires, in microseconds since 1970.
    #[prost(uint64, optional, tag = "4")]
    until: Option<u64>,
    /// The version that wrote the value, if this one changed its expiry.
    #[prost(message, optional, tag = "5")]
    base: Option<VersionIdRecord>,
}

/// The encoding of a version's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct VersionIdRecord {
    #[prost(fixed64, tag = "1")]
    at: u64,
    #[prost(uint32, tag = "2")]
    replica: u32,
}

impl From<VersionId> for VersionIdRecord {
    fn from(id: VersionId) -> VersionIdRecord {
        VersionIdRecord {
            at: id.at.0,
            replica: u32::from(id.replica.0),
        }
    }
}

impl VersionId {
    /// Checks that the version of this name can be the base of another one: it must be older. Otherwise a replica could not stamp a new value above it.
    ///
    /// # Errors
    /// If it is not older.
    pub fn check_base_of(self, id: VersionId) -> Result<(), BadFrame> {
        match self.at > Hlc::ZERO && self.stamp() < id.stamp() {
            true => Ok(()),
            false => Err(BadFrame::new(
                "a version that is newer than its base, which is the version that wrote the value",
                format!("version {id}, and {self}"),
            )),
        }
    }
}

impl VersionIdRecord {
    /// The name.
    ///
    /// # Errors
    /// If no partition has such a replica.
    pub fn id(self) -> Result<VersionId, BadFrame> {
        match self.replica >= u32::from(ReplicaSet::MAX) {
            true => Err(BadFrame::replica(self.replica)),
            false => Ok(VersionId {
                at: Hlc(self.at),
                replica: ReplicaId(self.replica as u16),
            }),
        }
    }
}

impl VersionRecord {
    /// The record of a version.
    pub fn new(version: Option<&Version<()>>) -> VersionRecord {
        let id = version.map(|version| version.id).unwrap_or_default();
        VersionRecord {
            at: id.at.0,
            replica: u32::from(id.replica.0),
            value: version.and_then(|version| version.content.stored().cloned()),
            until: version
                .and_then(|version| version.content.until())
                .map(|until| until.0),
            base: version
                .and_then(|version| version.content.base())
                .map(VersionIdRecord::from),
        }
    }

    /// The version, if there is one. A record from outside must have been checked before.
    pub fn version(self) -> Option<Version<()>> {
        let id = VersionId {
            at: Hlc(self.at),
            replica: ReplicaId(self.replica as u16),
        };
        let until = self.until.map(Micros);
        let base = self.base.and_then(|base| base.id().ok());
        let content = self
            .value
            .map_or(Content::DELETE, |value| Content::with_base(value, until, base));
        (self.at > 0).then_some(Version {
            id,
            content,
            meta: (),
        })
    }

    /// Checks what came from outside: see [`crate::Record::check`].
    ///
    /// # Errors
    /// If no partition has such a replica, a delete has an expiry, or the version that wrote the value is not older.
    pub fn check(&self) -> Result<(), String> {
        if self.replica >= u32::from(ReplicaSet::MAX) {
            return Err(format!("a version of replica {}", self.replica));
        }
        if self.value.is_none() && (self.until.is_some() || self.base.is_some()) {
            return Err("a delete with an expiry".to_string());
        }
        let id = VersionId {
            at: Hlc(self.at),
            replica: ReplicaId(self.replica as u16),
        };
        let checked = self.base.map_or(Ok(()), |base| base.id()?.check_base_of(id));
        checked.map_err(|error| error.found)
    }

    /// When it was stamped: see [`crate::Wire::newest`].
    pub fn newest(&self) -> Hlc {
        Hlc(self.at)
    }

    /// The replica that stamped it, if there is a version: see [`crate::Wire::replicas`].
    pub fn replicas(&self) -> ReplicaSet {
        match self.at {
            0 => ReplicaSet::default(),
            _ => ReplicaSet::one(ReplicaId(self.replica as u16)),
        }
    }
}

/// The versions of one key, newest first. Never empty.
///
/// Where a share comes into a chain, or another version becomes the newest one of a chain with shares, the newest version notes that there are shares. If it notes nothing, there are none. So a read of a
/// key without shares, as almost every key is, looks at the newest version and nowhere else in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain<M> {
    newest: Version<M>,
    /// Oldest first, so that a hot key's newest version is put at the end. Almost every chain has one version, so this takes eight bytes. And all of it is in one place: a write
    /// mostly waits for memory.
    older: ThinVec<Version<M>>,
}

/// The place of a version among others that are in order. Its rank is not known: it is first looked for as its own base, as most versions are, and then among
/// those that have another base.
fn place_of<M: Meta>(versions: &[Version<M>], id: VersionId) -> Option<usize> {
    let own = versions.binary_search_by(|held| held.rank().cmp(&Rank::of(id)));
    own.ok()
        .or_else(|| versions.iter().position(|held| held.id == id))
}

/// The initial room for older versions. Usually only the last one is kept.
const FEW: usize = 1;

impl<M: Meta> Chain<M> {
    /// A chain of one.
    pub fn new(version: Version<M>) -> Chain<M> {
        Chain {
            newest: version,
            older: ThinVec::new(),
        }
    }

    /// A chain of these versions, which must come newest first. `None` if there are none. O(n): putting them in one by one is quadratic.
    pub fn newest_first(versions: impl IntoIterator<Item = Version<M>>) -> Option<Chain<M>> {
        let mut versions = versions.into_iter();
        let newest = versions.next()?;
        let mut older: ThinVec<Version<M>> = versions.collect();
        older.reverse();
        debug_assert!(
            older.is_sorted_by(|before, after| before.rank() < after.rank())
                && older.last().is_none_or(|second| second.rank() < newest.rank()),
            "newest first"
        );
        let mut chain = Chain { newest, older };
        chain.note_shares(chain.oldest().content.is_share());
        Some(chain)
    }

    /// Lets the newest version note that there are shares, if there are: then [`Chain::has_shares`] looks further.
    fn note_shares(&mut self, shares: bool) {
        if shares {
            self.newest.content.note_shares();
        }
    }

    fn oldest(&self) -> &Version<M> {
        self.older.first().unwrap_or(&self.newest)
    }

    /// The newest version.
    pub fn newest(&self) -> &Version<M> {
        &self.newest
    }

    /// Whether a version is in the chain.
    pub fn holds(&self, id: VersionId) -> bool {
        self.newest.id == id || place_of(&self.older, id).is_some()
    }

    /// Whether a version of this rank is in the chain: faster than [`Chain::holds`] if it is not.
    pub fn holds_rank(&self, rank: Rank) -> bool {
        self.newest.rank() == rank || self.older.binary_search_by_key(&rank, Version::rank).is_ok()
    }

    /// Whether there are shares.
    #[inline]
    pub fn has_shares(&self) -> bool {
        let newest = &self.newest.content;
        newest.is_share() || !newest.is_apart() && self.oldest().content.is_share()
    }

    /// The versions of the register, newest first.
    pub fn registers(&self) -> impl Iterator<Item = &Version<M>> + Clone {
        self.iter().take_while(|version| !version.content.is_share())
    }

    /// The shares, newest first. They come behind the versions of the register.
    pub fn shares(&self) -> impl Iterator<Item = &Version<M>> + Clone {
        let is_share = |version: &&Version<M>| version.content.is_share();
        let older = match self.has_shares() {
            true => self.older.as_slice(),
            false => &[],
        };
        let shares = older.partition_point(|version| is_share(&version));
        let newest = Some(&self.newest).filter(is_share);
        newest.into_iter().chain(older[..shares].iter().rev())
    }

    /// All versions, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Version<M>> + Clone {
        let older = std::iter::once(&self.older).flat_map(|older| older.iter().rev());
        std::iter::once(&self.newest).chain(older)
    }

    /// The newest version of which `wanted` is true. Every protocol asks for that.
    pub fn latest(&self, wanted: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>> {
        self.iter().find(|version| wanted(version))
    }

    /// The number of versions; at least one.
    #[allow(clippy::len_without_is_empty, reason = "a chain is never empty")]
    pub fn len(&self) -> usize {
        1 + self.older.len()
    }

    /// Looks at what a put of the key looks at. What it returns means nothing.
    pub fn glance(&self) -> usize {
        let share = self.newest.content.share();
        self.len() + share.map_or(0, |share| share.elements.added_len())
    }

    /// Whether the chain has at least `few` versions, and their number is a power of two: it has doubled since this was last so. A caller that looks
    /// through the chain only then looks at few versions for each write, on average, however many versions must stay.
    pub fn has_doubled(&self, few: usize) -> bool {
        self.len() >= few && self.len().is_power_of_two()
    }

    /// Whether the chain has a version, or (with siblings) one that replaces it.
    pub fn covers(&self, id: VersionId) -> bool {
        self.iter()
            .any(|held| held.id == id || M::SIBLINGS && held.meta.replaces(id))
    }

    /// Inserts a version in its place, and removes the siblings that it replaces. Returns false, and changes nothing, if it was there already or one that
    /// replaces it is.
    pub fn insert(&mut self, version: Version<M>) -> bool {
        if !M::SIBLINGS {
            return self.insert_in_place(version);
        }
        if self.covers(version.id) {
            return false;
        }
        let is_replaced = |held: &Version<M>| held.rank() < version.rank() && version.meta.replaces(held.id);
        self.retain_older(|held| !is_replaced(held));
        if is_replaced(&self.newest) {
            debug_assert!(!self.has_shares(), "no keyspace has siblings and shares");
            self.newest = version;
            return true;
        }
        self.insert_in_place(version)
    }

    /// Shortens a list that has much more room than versions: memory is counted by versions, and not by room.
    fn shrink(&mut self) {
        if self.older.capacity() > 4 * self.older.len() {
            self.older.shrink_to_fit();
        }
    }

    fn insert_in_place(&mut self, version: Version<M>) -> bool {
        let shares = version.content.is_share() || self.has_shares();
        let inserted = self.insert_by_rank(version);
        self.note_shares(shares);
        inserted
    }

    fn insert_by_rank(&mut self, version: Version<M>) -> bool {
        let rank = version.rank();
        if rank > self.newest.rank() {
            if self.older.capacity() == 0 {
                self.older.reserve_exact(FEW);
            }
            self.older.push(std::mem::replace(&mut self.newest, version));
            return true;
        }
        // Not by the name alone: a transaction gives a share and a version of the register one name.
        if rank == self.newest.rank() {
            return false;
        }
        match self.older.binary_search_by(|held| held.rank().cmp(&rank)) {
            Ok(_) => false,
            Err(place) => {
                self.older.insert(place, version);
                true
            }
        }
    }

    /// Inserts a version in the place of all that it replaces, for stores without history: older versions of the register or, if it is a share, older shares of its replica.
    /// Returns false, and changes nothing, if there is a newer one.
    pub fn insert_latest(&mut self, version: Version<M>) -> bool {
        let is_share = version.content.is_share();
        let is_replaced = |held: &&Version<M>| match is_share {
            true => held.content.is_share() && held.id.replica == version.id.replica,
            false => !held.content.is_share(),
        };
        let replaced = self.iter().find(is_replaced).map(Version::rank);
        let Some(replaced) = replaced else {
            return self.insert_in_place(version);
        };
        if version.rank() <= replaced {
            return false;
        }
        if self.older.is_empty() {
            self.newest = version;
            return true;
        }
        self.remove(replaced);
        self.insert_in_place(version)
    }

    /// Removes a version, and returns it. `None`, and nothing changes, if it is not there or is the only one: a chain is never empty. The newest version
    /// is removed in O(1), an older one costs a move of those that are newer.
    pub fn remove(&mut self, rank: Rank) -> Option<Version<M>> {
        let shares = self.has_shares();
        let removed = if self.newest.rank() == rank {
            std::mem::replace(&mut self.newest, self.older.pop()?)
        } else {
            let place = self.older.binary_search_by_key(&rank, Version::rank).ok()?;
            self.older.remove(place)
        };
        self.shrink();
        self.note_shares(shares);
        Some(removed)
    }

    /// Keeps only the newest version, and the newest share of each replica: for protocols that never ask for an older one.
    pub fn drop_older(&mut self) {
        if self.has_shares() {
            let shares = self.newest_shares(|_| true);
            self.retain_older(|version| shares.contains(&version.id));
        } else {
            self.older = ThinVec::new();
        }
    }

    /// The newest share of each replica of which `wanted` is true.
    fn newest_shares(&self, wanted: impl Fn(&Version<M>) -> bool) -> Vec<VersionId> {
        let mut newest: Vec<VersionId> = Vec::new();
        for share in self.shares().filter(|version| wanted(version)) {
            if newest.iter().all(|newer| newer.replica != share.id.replica) {
                newest.push(share.id);
            }
        }
        newest
    }

    fn retain_older(&mut self, keep: impl FnMut(&Version<M>) -> bool) {
        self.older.retain(keep);
        self.shrink();
    }

    /// Drops the versions that no request may read any more: all that are older than the newest `covered` version. Returns the number of versions
    /// that were dropped.
    ///
    /// A version that changes an expiry may have been stamped later than a version that is newer than it. It stays until it is `covered` itself: a protocol
    /// that goes by timestamps would not know that it was here. A share stays until a newer one of its replica is `covered`.
    ///
    /// Of siblings each is current. There, if the newest version is covered, older deletes are dropped: what they have replaced does not come back, and the
    /// newest version is not taken back.
    pub fn collect(&mut self, covered: impl Fn(&Version<M>) -> bool) -> usize {
        if M::SIBLINGS {
            let before = self.len();
            if before > 1 && covered(&self.newest) {
                self.retain_older(|version| !version.content.is_delete());
            }
            return before - self.len();
        }
        let dropped = self.drop_covered(covered);
        self.shrink();
        dropped
    }

    /// Drops what no request may read any more, as [`Chain::collect`] does, right before another version is inserted: if the list is short, its memory is kept for that one.
    pub fn make_room(&mut self, covered: impl Fn(&Version<M>) -> bool) {
        if M::SIBLINGS {
            self.collect(covered);
            return;
        }
        self.drop_covered(covered);
        if self.older.capacity() > 4 * (self.older.len() + FEW) {
            self.older.shrink_to_fit();
        }
    }

    fn drop_covered(&mut self, covered: impl Fn(&Version<M>) -> bool) -> usize {
        if covered(&self.newest)
            && !self.has_shares()
            && self.older.len() == 1
            && self.older[0].content.base().is_none()
        {
            self.older.clear();
            return 1;
        }
        let before = self.len();
        let keep = self
            .registers()
            .position(&covered)
            .map_or(before, |place| place + 1);
        let shares = match self.has_shares() {
            true => self.newest_shares(&covered),
            false => Vec::new(),
        };
        let has_newer = |share: &Version<M>| {
            let newer = shares.iter().find(|newer| newer.replica == share.id.replica);
            newer.is_some_and(|newer| newer.at > share.id.at)
        };
        if keep == before && shares.is_empty() {
            return 0;
        }
        let below = before - keep;
        let mut place = 0;
        self.older.retain(|version| {
            place += 1;
            match version.content.share() {
                Some(_) => !has_newer(version),
                None => place > below || version.content.base().is_some() && !covered(version),
            }
        });
        before - self.len()
    }
}

/// What has become of a version that was to be added to its key's chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// It is there. The key had no version.
    First,
    /// It is there, beside others or in their place.
    Added,
    /// Nothing has changed.
    Unwanted,
}

impl Placed {
    /// Whether it is there now, and was not before.
    pub fn is_wanted(self) -> bool {
        self != Placed::Unwanted
    }
}

/// What a replica sees of its partition's store: the chains of the keys that its driver has made resident.
///
/// The driver brings the keys that an input names into memory before it hands the input over
/// ([`crate::Protocol::keys`]), outside of every lock. So reads here never touch a disk, and never fail.
pub trait Versions<M>: Send {
    /// The key's chain, or `None` if the key has no version at all.
    ///
    /// # Panics
    /// If the key is not resident: the handler asked for a key that its input does not name.
    fn chain(&self, key: &[u8]) -> Option<&Chain<M>>;

    /// Adds a version to the key's chain. It is not wanted, and changes nothing, if it was there already or, in a store without history, if a newer one
    /// is there.
    fn put(&mut self, key: &Key, version: &Version<M>) -> Placed;

    /// Drops what is older than the chain's newest covered version, if the chain has several versions. Another version of the key is put next.
    fn make_room(&mut self, key: &[u8], covered: &dyn Fn(&Version<M>) -> bool);

    /// The number of keys that have a value, i.e. a newest version that is not a delete.
    fn live_keys(&self) -> u64;

    /// The number of keys whose newest version can be forgotten, now or later: deletes, and values that expire.
    fn forgettable_keys(&self) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Debug, Clone)]
    enum Step {
        Value(u64),
        Share(u64),
        Latest(u64, bool),
        Remove(u64, bool),
        Collect(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..20_u64).prop_map(Step::Value),
            (1..20_u64).prop_map(Step::Share),
            (1..20_u64, any::<bool>()).prop_map(|(at, share)| Step::Latest(at, share)),
            (1..20_u64, any::<bool>()).prop_map(|(at, share)| Step::Remove(at, share)),
            (1..20_u64).prop_map(Step::Collect),
        ]
    }

    /// A value, a value that expires, or a delete that resets something.
    fn value(at: u64) -> Version<()> {
        let value = Bytes::from_static(b"v");
        let resets = crate::Resets {
            before: Hlc(1),
            ..crate::Resets::default()
        };
        let content = match at % 3 {
            0 => Content::from(value),
            1 => Content::new(value, Some(Micros(7))),
            _ => Content::register(None, None, None, resets),
        };
        Version {
            content,
            ..version(at)
        }
    }

    fn share(at: u64) -> Version<()> {
        let content = Content::sharing(crate::Share::default());
        Version {
            content,
            ..version(at)
        }
    }

    fn version(at: u64) -> Version<()> {
        let replica = ReplicaId(0);
        Version {
            id: VersionId { at: Hlc(at), replica },
            content: Content::DELETE,
            meta: (),
        }
    }

    proptest! {
        /// Whatever is put in and removed, the chain knows whether it has shares, and equals one that is made of its versions at once.
        #[test]
        fn a_chain_knows_whether_it_has_shares(first in any::<bool>(), steps in prop::collection::vec(step(), 1..30)) {
            let of = |at: u64, is_share: bool| if is_share { share(at) } else { value(at) };
            let mut chain = Chain::new(of(5, first));
            for step in steps {
                match step {
                    Step::Value(at) => drop(chain.insert(value(at))),
                    Step::Share(at) => drop(chain.insert(share(at))),
                    Step::Latest(at, is_share) => drop(chain.insert_latest(of(at, is_share))),
                    Step::Remove(at, is_share) => {
                        let rank = of(at, is_share).rank();
                        let can_be = chain.len() > 1 && chain.holds_rank(rank);
                        let removed = chain.remove(rank);
                        prop_assert_eq!(removed.map(|version| version.rank()), can_be.then_some(rank));
                        prop_assert!(chain.len() == 1 || !chain.holds_rank(rank));
                    }
                    Step::Collect(at) => {
                        let mut before_a_put = chain.clone();
                        before_a_put.make_room(|version| version.id.at <= Hlc(at));
                        chain.collect(|version| version.id.at <= Hlc(at));
                        prop_assert_eq!(&before_a_put, &chain);
                        prop_assert!(before_a_put.older.capacity() <= 4 * (chain.len() + FEW));
                    }
                }
                let shares = chain.iter().filter(|version| version.content.is_share());
                prop_assert_eq!(chain.has_shares(), shares.clone().count() > 0);
                prop_assert!(chain.shares().eq(shares));
                prop_assert_eq!(Chain::newest_first(chain.iter().cloned()), Some(chain.clone()));
                for version in chain.iter() {
                    let again = of(version.id.at.0, version.content.is_share());
                    prop_assert_eq!(version, &again);
                    prop_assert_eq!(&again, version);
                }
            }
        }

        /// In whatever order versions come, the chain is the one that is made of them at once, and holds those and no others.
        #[test]
        fn a_chain_is_the_same_in_whatever_order_its_versions_come(came in prop::collection::vec(0..20u64, 1..30)) {
            let mut chain = Chain::new(version(came[0]));
            let mut seen = BTreeSet::from([came[0]]);
            for &at in &came[1..] {
                prop_assert_eq!(chain.insert(version(at)), seen.insert(at));
            }
            let at_once = Chain::newest_first(seen.iter().rev().map(|&at| version(at))).expect("there is one");
            prop_assert!(chain.iter().map(|held| held.id).eq(at_once.iter().map(|held| held.id)));
            for at in 0..20 {
                prop_assert_eq!(at_once.holds(version(at).id), seen.contains(&at));
            }
        }

        /// Whatever is removed in whatever order, the rest is the chain of the rest. The last version stays.
        #[test]
        fn a_version_is_removed_and_the_last_one_stays(
            came in prop::collection::btree_set(0..20u64, 1..12),
            gone in prop::collection::vec(0..20u64, 0..30),
        ) {
            let mut left = came.clone();
            let of = |all: &BTreeSet<u64>| Chain::newest_first(all.iter().rev().map(|&at| version(at)));
            let mut chain = of(&came).expect("there is one");
            for at in gone {
                let removed = chain.remove(version(at).rank());
                let can_be = left.len() > 1 && left.remove(&at);
                prop_assert_eq!(removed, can_be.then(|| version(at)));
                let rest = of(&left);
                prop_assert_eq!(Some(&chain), rest.as_ref());
            }
        }
    }
}
