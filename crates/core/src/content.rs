use crate::share::Resets;
use crate::{Hlc, Micros, Rank, ReplicaSet, Share, VersionId};
use bytes::Bytes;
use std::sync::Arc;

/// What a version says of its key: that it has a value, that it has one until some time, or that it was deleted.
///
/// # Expiry
///
/// A value *expires* at a time that was computed when its version was stamped, and that is part of the version. So it expires at every site at the same
/// moment, although nobody sends anything at that moment. [`Content::at`] is the only way for a reader to the value, and it asks for the reader's time. An
/// expired version stays its key's newest version until it is forgotten, as a delete does ([`crate::Version::gone`]): it hides older versions.
///
/// Times are compared as hybrid timestamps: a replica whose clock has given or seen a timestamp at or above the time shows the value no more.
///
/// # Change of expiry
///
/// `EXPIRE`, `PERSIST` and `GETEX` write a version with the value of the one before it and another time of expiry. It names its *base*: the version that
/// wrote the value. See [`crate::Rank`].
///
/// # Shares
///
/// A version may also be a share: what one replica has contributed to the key's number, or to its elements. Such a version has no value by itself. See [`Share`] and [`crate::Shown`].
#[derive(Debug, Clone, Eq)]
pub struct Content(Kept);

/// 32 bytes, as an optional value has: there are millions of them, and few are anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Value(Bytes),
    Other(Other),
}

/// When it expires, whether it has a value or another base, and its size are told without a look at other memory: each write of a key asks that of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Other {
    Delete,
    Register {
        /// [`NEVER`], or a time up to [`Content::LATEST`].
        until: Micros,
        register: Box<Register>,
        outline: Outline,
    },
    /// Shared, because a version is copied several times on its way.
    Share {
        floor: Hlc,
        share: Arc<Share>,
        brief: Brief,
    },
}

/// What a share says, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Brief {
    /// It has a count.
    pub counts: bool,
    /// It has added elements.
    pub adds: bool,
    /// It has removed elements.
    pub removes: bool,
    /// The bytes of its elements in memory.
    bytes: Length,
}

/// A number of four bytes that needs no alignment: so that it fits beside the tag of its enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Length([u8; 4]);

impl Length {
    /// Of something that is not there.
    const NONE: Length = Length([u8::MAX; 4]);

    /// Nothing of a key is 4 GiB long.
    fn of(bytes: usize) -> Length {
        debug_assert!(bytes < u32::MAX as usize);
        Length((bytes as u32).to_ne_bytes())
    }

    fn bytes(self) -> usize {
        match self {
            Length::NONE => 0,
            Length(bytes) => u32::from_ne_bytes(bytes) as usize,
        }
    }
}

/// What a register says, in short.
#[derive(Debug, Clone, Copy)]
struct Outline {
    /// It has another base than itself.
    has_base: bool,
    /// It resets something.
    resets: bool,
    /// See [`Content::is_apart`].
    is_apart: bool,
    value: Length,
}

/// By what it says of the register, and not of its chain.
impl PartialEq for Outline {
    fn eq(&self, other: &Outline) -> bool {
        let said = |outline: &Outline| (outline.has_base, outline.resets, outline.value);
        said(self) == said(other)
    }
}

impl Eq for Outline {}

/// What an `Arc` takes beside what it shares.
const ARC_BYTES: usize = 2 * size_of::<usize>();

/// A value that expires, or whose expiry was changed. Or what was written over shares. It takes 64 bytes: there may be millions.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Register {
    /// `None` for a delete, and for an expiry of shares alone.
    value: Option<Bytes>,
    /// `None`: it is its own base.
    base: Option<VersionId>,
    /// Boxed, because almost no register resets anything, and millions of values may expire.
    resets: Option<Box<Resets>>,
}

/// Later than any time of expiry.
const NEVER: Micros = Micros(u64::MAX);

impl Content {
    /// The key was deleted.
    pub const DELETE: Content = Content(Kept::Other(Other::Delete));

    /// The latest time at which a value can expire, in microseconds since 1970: in 2112, when hybrid timestamps end.
    pub const LATEST: Micros = Hlc(u64::MAX).wall();

    /// A value, and when it expires, in microseconds since 1970. `None`: never. A time after [`Content::LATEST`] counts as [`Content::LATEST`].
    pub fn new(value: Bytes, until: Option<Micros>) -> Content {
        Content::with_base(value, until, None)
    }

    /// The same, and the version that wrote the value, if another one changed its expiry.
    pub fn with_base(value: Bytes, until: Option<Micros>, base: Option<VersionId>) -> Content {
        Content::register(Some(value), until, base, Resets::default())
    }

    /// Any content of a register: a value or `None`, when it expires, the version that wrote it if that is another one, and what it resets of shares.
    pub fn register(
        value: Option<Bytes>,
        until: Option<Micros>,
        base: Option<VersionId>,
        resets: Resets,
    ) -> Content {
        let until = until.map(|until| until.min(Content::LATEST));
        let is_plain = until.is_none() && base.is_none() && resets.is_empty();
        let value = match value {
            Some(value) if is_plain => return Content(Kept::Value(value)),
            None if is_plain => return Content::DELETE,
            value => value,
        };
        Content::of_register(value, until, base, resets)
    }

    fn of_register(
        value: Option<Bytes>,
        until: Option<Micros>,
        base: Option<VersionId>,
        resets: Resets,
    ) -> Content {
        let outline = Outline {
            has_base: base.is_some(),
            resets: !resets.is_empty(),
            is_apart: true,
            value: value
                .as_ref()
                .map_or(Length::NONE, |value| Length::of(value.len())),
        };
        let register = Register {
            value,
            base,
            resets: outline.resets.then(|| Box::new(resets)),
        };
        Content(Kept::Other(Other::Register {
            until: until.unwrap_or(NEVER),
            register: Box::new(register),
            outline,
        }))
    }

    /// A share.
    pub fn sharing(share: Share) -> Content {
        let brief = Brief {
            counts: share.count.is_some(),
            adds: share.elements.added_len() > 0,
            removes: share.elements.has_removals(),
            bytes: Length::of(share.elements.heap_bytes()),
        };
        Content(Kept::Other(Other::Share {
            floor: share.floor,
            share: Arc::new(share),
            brief,
        }))
    }

    /// Whether no share is in its chain, if it is the newest version there: its chain notes when there are some ([`crate::Chain`]). False also for deletes that say nothing more, and for shares.
    #[inline]
    pub(crate) fn is_apart(&self) -> bool {
        match &self.0 {
            Kept::Value(_) => true,
            Kept::Other(Other::Register { outline, .. }) => outline.is_apart,
            Kept::Other(_) => false,
        }
    }

    /// Notes that there are shares in its chain: [`Content::is_apart`] is false from now on. What it says of the key stays the same.
    pub(crate) fn note_shares(&mut self) {
        if let Kept::Value(value) = &mut self.0 {
            let value = Some(std::mem::take(value));
            *self = Content::of_register(value, None, None, Resets::default());
        }
        if let Kept::Other(Other::Register { outline, .. }) = &mut self.0 {
            outline.is_apart = false;
        }
    }

    fn other(&self) -> Option<&Other> {
        match &self.0 {
            Kept::Value(_) => None,
            Kept::Other(other) => Some(other),
        }
    }

    /// What the register says, if it says more than a value or a delete.
    #[inline]
    fn more(&self) -> Option<&Register> {
        match self.other() {
            Some(Other::Register { register, .. }) => Some(register),
            _ => None,
        }
    }

    /// The same, if it says this as well. Nothing else in memory is looked at if it does not.
    #[inline]
    fn more_with(&self, wanted: impl FnOnce(Outline) -> bool) -> Option<&Register> {
        match self.other() {
            Some(Other::Register {
                register, outline, ..
            }) if wanted(*outline) => Some(register),
            _ => None,
        }
    }

    /// The share, if it is one.
    #[inline]
    pub fn share(&self) -> Option<&Share> {
        self.shared().map(|(share, _)| &**share)
    }

    /// The share, if it is one, and what it says in short.
    #[inline]
    pub(crate) fn shared(&self) -> Option<(&Arc<Share>, Brief)> {
        match self.other() {
            Some(Other::Share { share, brief, .. }) => Some((share, *brief)),
            _ => None,
        }
    }

    /// Whether it is a share.
    #[inline]
    pub fn is_share(&self) -> bool {
        matches!(self.other(), Some(Other::Share { .. }))
    }

    /// What it resets of shares.
    #[inline]
    pub fn resets(&self) -> &Resets {
        let register = self.more_with(|outline| outline.resets);
        let resets = register.and_then(|register| register.resets.as_deref());
        resets.unwrap_or(Resets::nothing())
    }

    /// The replicas of whose shares it says something.
    pub fn replicas(&self) -> ReplicaSet {
        match self.share() {
            Some(share) => share.elements.replicas(),
            None => self.resets().replicas(),
        }
    }

    /// The value of a register, for a reader at this time. `None`: it was deleted, or has expired, or was never written. If there are shares, the key's value is another
    /// one: see [`crate::Shown`].
    #[inline]
    pub fn at(&self, now: Hlc) -> Option<&Bytes> {
        if let Kept::Value(value) = &self.0 {
            return Some(value);
        }
        self.more()?
            .value
            .as_ref()
            .filter(|_| self.expired_at(now).is_none())
    }

    /// Whether [`Content::at`] is a value.
    #[inline]
    pub fn has_value(&self, now: Hlc) -> bool {
        match &self.0 {
            Kept::Value(_) => true,
            Kept::Other(Other::Register { outline, .. }) => {
                outline.value != Length::NONE && self.expired_at(now).is_none()
            }
            Kept::Other(_) => false,
        }
    }

    /// When the value expired, as a timestamp, if it has expired for a reader at this time.
    #[inline]
    pub fn expired_at(&self, now: Hlc) -> Option<Hlc> {
        self.until().map(Hlc::from_wall).filter(|&until| until <= now)
    }

    /// The value that is stored, even if it has expired. Only for what stores, sends, counts or compares versions, and for protocols that take no expiry
    /// ([`crate::Descriptor::takes_expiry`]), in whose keyspaces nothing expires. All other readers ask for [`Content::at`].
    #[inline]
    pub fn stored(&self) -> Option<&Bytes> {
        match &self.0 {
            Kept::Value(value) => Some(value),
            Kept::Other(_) => self.more()?.value.as_ref(),
        }
    }

    /// The value that is stored. A plain value is moved out, so that its owners need not be counted again.
    pub fn into_stored(self) -> Option<Bytes> {
        match self.0 {
            Kept::Value(value) => Some(value),
            Kept::Other(_) => self.stored().cloned(),
        }
    }

    /// When the value expires, in microseconds since 1970. `None`: never, or there is no value.
    #[inline]
    pub fn until(&self) -> Option<Micros> {
        match self.other() {
            Some(Other::Register { until, .. }) => Some(*until).filter(|until| *until != NEVER),
            _ => None,
        }
    }

    /// The version that wrote the value, if this one has changed its expiry. `None`: this one wrote it, or is a delete. For a share, [`Rank::SHARES`].
    #[inline]
    pub fn base(&self) -> Option<VersionId> {
        match self.share() {
            Some(_) => Some(Rank::SHARES),
            None => self.more_with(|outline| outline.has_base)?.base,
        }
    }

    /// The same, as a new value: it does not name the version that wrote the value before.
    #[must_use]
    pub fn without_base(self) -> Content {
        match self.more() {
            Some(Register {
                value: Some(value), ..
            }) if self.base().is_some() => {
                Content::register(Some(value.clone()), self.until(), None, self.resets().clone())
            }
            _ => self,
        }
    }

    /// What was stamped before this time is over, if it is in a share: see `floor.rs`. [`Hlc::ZERO`]: nothing because of that.
    #[inline]
    pub fn floor(&self) -> Hlc {
        match &self.0 {
            Kept::Value(_) | Kept::Other(Other::Delete) => Hlc::ZERO,
            Kept::Other(Other::Register { .. }) => self.resets().floor,
            Kept::Other(Other::Share { floor, .. }) => *floor,
        }
    }

    /// The same with this floor.
    #[must_use]
    pub(crate) fn with_floor(self, floor: Hlc) -> Content {
        if let Some(share) = self.share() {
            let share = share.clone();
            return Content::sharing(Share { floor, ..share });
        }
        let resets = Resets {
            floor,
            ..self.resets().clone()
        };
        Content::register(self.stored().cloned(), self.until(), self.base(), resets)
    }

    /// The same, without what it says of shares that its writer has seen.
    #[must_use]
    pub fn without_resets(self) -> Content {
        match self.more() {
            Some(register) => {
                let value = register.value.clone();
                Content::register(value, self.until(), self.base(), Resets::default())
            }
            None => self,
        }
    }

    /// Whether it says that the key was deleted.
    #[inline]
    pub fn is_delete(&self) -> bool {
        match self.other() {
            Some(Other::Register { until, outline, .. }) => outline.value == Length::NONE && *until == NEVER,
            other => matches!(other, Some(Other::Delete)),
        }
    }

    /// Whether it says that the key was deleted, and nothing more.
    #[inline]
    pub(crate) fn is_plain_delete(&self) -> bool {
        matches!(self.other(), Some(Other::Delete))
    }

    /// The same, with the value in memory of its own: it keeps no larger buffer alive.
    #[must_use]
    pub fn compact(&self) -> Content {
        if let Kept::Value(value) = &self.0 {
            return Content(Kept::Value(Bytes::copy_from_slice(value)));
        }
        let mut compact = self.clone();
        // A share always is in memory of its own, and a delete has none.
        if let Kept::Other(Other::Register { register, .. }) = &mut compact.0 {
            if let Some(value) = &mut register.value {
                *value = Bytes::copy_from_slice(value);
            }
            if let Some(resets) = &mut register.resets {
                **resets = resets.compact();
            }
        }
        compact
    }

    /// The bytes of the value that is stored. 0 also if there is none.
    pub fn value_bytes(&self) -> usize {
        match &self.0 {
            Kept::Value(value) => value.len(),
            Kept::Other(_) => match self.other() {
                Some(Other::Register { outline, .. }) => outline.value.bytes(),
                _ => 0,
            },
        }
    }

    /// The sizes in bytes of the two allocations of a content that is more than a value or a delete. Its value's own bytes are not counted. What a register resets counts as one allocation.
    pub fn heap_bytes(&self) -> [usize; 2] {
        match self.other() {
            None | Some(Other::Delete) => [0, 0],
            Some(Other::Register { outline, .. }) => {
                let bytes = |resets: &Resets| size_of::<Resets>() + resets.heap_bytes();
                let resets = outline.resets.then(|| bytes(self.resets()));
                [size_of::<Register>(), resets.unwrap_or(0)]
            }
            Some(Other::Share { brief, .. }) => [size_of::<Share>() + ARC_BYTES, brief.bytes.bytes()],
        }
    }
}

/// By what they say: a value may be kept in two ways.
impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        match (&self.0, &other.0) {
            (Kept::Value(one), Kept::Value(other)) => one == other,
            (Kept::Other(one), Kept::Other(other)) => one == other,
            (Kept::Value(value), Kept::Other(other)) | (Kept::Other(other), Kept::Value(value)) => {
                matches!(other, Other::Register { until, register, outline }
                    if *until == NEVER && !outline.has_base && !outline.resets && register.value.as_ref() == Some(value))
            }
        }
    }
}

impl From<Bytes> for Content {
    fn from(value: Bytes) -> Content {
        Content::new(value, None)
    }
}

/// A value that never expires, or a delete.
impl From<Option<Bytes>> for Content {
    fn from(value: Option<Bytes>) -> Content {
        value.map_or(Content::DELETE, Content::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: Bytes = Bytes::from_static(b"v");

    #[test]
    fn it_is_no_larger_than_an_optional_value() {
        assert_eq!(size_of::<Content>(), size_of::<Option<Bytes>>());
        // A small hash: sizes of allocations go up in steps of 16 bytes.
        assert!(size_of::<Share>() + ARC_BYTES <= 96, "{}", size_of::<Share>());
    }

    #[test]
    fn a_value_that_expires_takes_64_bytes_more() {
        assert_eq!((size_of::<Content>(), size_of::<Register>()), (32, 64));
    }

    #[test]
    fn a_value_is_shown_until_its_time_and_stays_stored() {
        let content = Content::new(VALUE, Some(Micros(7)));
        let before = Hlc(Hlc::from_wall(Micros(7)).0 - 1);
        assert_eq!(content.at(before), Some(&VALUE));
        assert_eq!(content.at(Hlc::from_wall(Micros(7))), None);
        assert_eq!(
            (content.stored(), content.until()),
            (Some(&VALUE), Some(Micros(7)))
        );
        assert!(!content.is_delete());
        assert_eq!(content.compact(), content);
        assert_eq!(content.expired_at(before), None);
        assert_eq!(
            content.expired_at(Hlc::from_wall(Micros(7))),
            Some(Hlc::from_wall(Micros(7)))
        );
        assert_eq!(Content::from(VALUE).expired_at(Hlc::LATEST), None);
        assert_eq!(Content::DELETE.expired_at(Hlc::LATEST), None);
    }

    #[test]
    fn it_tells_without_a_look_at_the_value_whether_there_is_one() {
        let (until, base) = (
            Some(Micros(7)),
            Some(VersionId {
                at: Hlc(3),
                ..VersionId::default()
            }),
        );
        let floor = |floor| Resets {
            floor: Hlc(floor),
            ..Resets::default()
        };
        let whens = [(None, None), (until, None), (None, base), (until, base)];
        let more = whens.iter().flat_map(|when| [(when, 0), (when, 9)]);
        for value in [None, Some(Bytes::new()), Some(VALUE)] {
            for (&(until, base), at) in more.clone() {
                let content = Content::register(value.clone(), until, base, floor(at));
                assert_eq!((content.until(), content.base()), (until, base));
                assert_eq!((content.floor(), content.resets()), (Hlc(at), &floor(at)));
                for now in [Hlc::ZERO, Hlc::from_wall(Micros(7)), Hlc::LATEST] {
                    assert_eq!(content.has_value(now), content.at(now).is_some());
                }
                assert_eq!(content.stored(), value.as_ref());
                assert_eq!(content.is_delete(), value.is_none() && until.is_none());
                assert_eq!(content.value_bytes(), value.as_ref().map_or(0, Bytes::len));
                let mut over_shares = content.clone();
                over_shares.note_shares();
                assert_eq!(over_shares, content);
                assert!(!over_shares.is_apart());
            }
        }
    }

    #[test]
    fn what_never_expires_is_always_shown_and_a_delete_never() {
        let (value, delete) = (Content::from(VALUE), Content::from(None));
        for now in [Hlc::ZERO, Hlc::LATEST, Hlc(u64::MAX)] {
            assert_eq!((value.at(now), delete.at(now)), (Some(&VALUE), None));
        }
        assert!(delete.is_delete() && delete == Content::DELETE);
        assert_eq!(
            (value.until(), delete.until(), delete.stored()),
            (None, None, None)
        );
        let late = Content::new(VALUE, Some(Micros(u64::MAX)));
        assert_eq!(
            (late.at(Hlc::LATEST), late.until()),
            (Some(&VALUE), Some(Content::LATEST))
        );
    }
}
