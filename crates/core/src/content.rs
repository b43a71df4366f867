use crate::{Hlc, Micros, VersionId};
use bytes::Bytes;

/// What a version says of its key: that it has a value, that it has one until some time, or that it was deleted.
///
/// # Expiry
///
/// A value *expires* at a time that was computed when its version was stamped, and that is part of the version. So it expires at every site at the same
/// moment, although nobody sends anything at that moment. [`Content::at`] is the only way for a reader to the value, and it asks for the reader's time. An
/// expired version stays its key's newest version until it is forgotten, as a delete does ([`crate::Version::gone_at`]): it hides older versions.
///
/// Times are compared as hybrid timestamps: a replica whose clock has given or seen a timestamp at or above the time shows the value no more.
///
/// # Change of expiry
///
/// `EXPIRE`, `PERSIST` and `GETEX` write a version with the value of the one before it and another time of expiry. It names its *base*: the version that
/// wrote the value. See [`crate::Rank`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content(Kept);

/// 32 bytes, as an optional value has: there are millions of them, and few expire.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Value(Bytes),
    /// `None`: a delete.
    Other(Option<Box<Timed>>),
}

/// A value that expires, or whose expiry was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Timed {
    value: Bytes,
    until: Option<Micros>,
    base: Option<VersionId>,
}

impl Content {
    /// The key was deleted.
    pub const DELETE: Content = Content(Kept::Other(None));

    /// The latest time at which a value can expire, in microseconds since 1970: in 2112, when hybrid timestamps end.
    pub const LATEST: Micros = Hlc(u64::MAX).wall();

    /// A value, and when it expires, in microseconds since 1970. `None`: never. A time after [`Content::LATEST`] counts as [`Content::LATEST`].
    pub fn new(value: Bytes, until: Option<Micros>) -> Content {
        Content::with_base(value, until, None)
    }

    /// The same, and the version that wrote the value, if another one changed its expiry.
    pub fn with_base(value: Bytes, until: Option<Micros>, base: Option<VersionId>) -> Content {
        let until = until.map(|until| until.min(Content::LATEST));
        Content(match (until, base) {
            (None, None) => Kept::Value(value),
            _ => Kept::Other(Some(Box::new(Timed { value, until, base }))),
        })
    }

    /// The value, for a reader at this time. `None`: it was deleted, or has expired.
    #[inline]
    pub fn at(&self, now: Hlc) -> Option<&Bytes> {
        match &self.0 {
            Kept::Value(value) => Some(value),
            Kept::Other(None) => None,
            Kept::Other(Some(timed)) => {
                let is_shown = timed.until.is_none_or(|until| Hlc::from_wall(until) > now);
                is_shown.then_some(&timed.value)
            }
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
            Kept::Other(None) => None,
            Kept::Other(Some(timed)) => Some(&timed.value),
        }
    }

    /// When the value expires, in microseconds since 1970. `None`: never, or there is no value.
    #[inline]
    pub fn until(&self) -> Option<Micros> {
        match &self.0 {
            Kept::Other(Some(timed)) => timed.until,
            Kept::Value(_) | Kept::Other(None) => None,
        }
    }

    /// The version that wrote the value, if this one has changed its expiry. `None`: this one wrote it, or is a delete.
    #[inline]
    pub fn base(&self) -> Option<VersionId> {
        match &self.0 {
            Kept::Other(Some(timed)) => timed.base,
            Kept::Value(_) | Kept::Other(None) => None,
        }
    }

    /// The same, as a new value: it does not name the version that wrote the value before.
    #[must_use]
    pub fn without_base(self) -> Content {
        match self.base() {
            None => self,
            Some(_) => Content::new(self.stored().cloned().unwrap_or_default(), self.until()),
        }
    }

    /// Whether it says that the key was deleted.
    #[inline]
    pub fn is_delete(&self) -> bool {
        matches!(self.0, Kept::Other(None))
    }

    /// The same, with the value in memory of its own: it keeps no larger buffer alive.
    #[must_use]
    pub fn compact(self) -> Content {
        let compact = |value: Bytes| Bytes::copy_from_slice(&value);
        Content(match self.0 {
            Kept::Value(value) => Kept::Value(compact(value)),
            Kept::Other(None) => Kept::Other(None),
            Kept::Other(Some(mut timed)) => {
                timed.value = compact(std::mem::take(&mut timed.value));
                Kept::Other(Some(timed))
            }
        })
    }

    /// The size in bytes of the allocation that a value has if it expires or its expiry was changed. Its own bytes are not counted.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Kept::Other(Some(_)) => size_of::<Timed>(),
            Kept::Value(_) | Kept::Other(None) => 0,
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
        assert_eq!(content.clone().compact(), content);
        assert_eq!(content.expired_at(before), None);
        assert_eq!(
            content.expired_at(Hlc::from_wall(Micros(7))),
            Some(Hlc::from_wall(Micros(7)))
        );
        assert_eq!(Content::from(VALUE).expired_at(Hlc::LATEST), None);
        assert_eq!(Content::DELETE.expired_at(Hlc::LATEST), None);
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
