//! The encoding of what a version says of shares: part of entries and of rows.
use crate::compute::{MAX_NUMBER_BYTES, decimal};
use crate::contribution::Contribution;
use crate::count::written;
use crate::share::Resets;
use crate::{
    BadFrame, Base, Content, Count, Difference, Hlc, Micros, ReplicaId, ReplicaSet, SeenCount, Share,
    VersionId,
};
use bytes::Bytes;
use rust_decimal::Decimal;

/// The encoding of what a version says of shares: that it is one, or what it resets.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct SharesRecord {
    /// The count, if it is a share that has one.
    #[prost(message, optional, tag = "1")]
    count: Option<CountRecord>,
    /// The shares that it has seen and reset, by replica.
    #[prost(message, repeated, tag = "2")]
    seen: Vec<SeenRecord>,
    /// The elements that the replica has added and removed, or that are reset: a [`Contribution`].
    #[prost(bytes = "bytes", tag = "3")]
    elements: Bytes,
    /// Whether it is a share without a count.
    #[prost(bool, tag = "4")]
    is_share: bool,
    /// What was stamped before this is reset. 0: nothing because of that.
    #[prost(fixed64, tag = "5")]
    before: u64,
    /// What was stamped before this is over, in shares. 0: nothing because of that.
    #[prost(fixed64, tag = "6")]
    floor: u64,
    /// When the share of the same replica was stamped from which the elements differ: a [`Difference`]. 0: they are whole.
    #[prost(fixed64, tag = "7")]
    since: u64,
    /// The numbers of the entries of that share that are gone.
    #[prost(uint32, repeated, tag = "8")]
    gone: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
struct CountRecord {
    #[prost(fixed64, tag = "1")]
    since: u64,
    /// As text.
    #[prost(bytes = "bytes", tag = "2")]
    total: Bytes,
    /// 0: when the version was stamped.
    #[prost(fixed64, tag = "3")]
    at: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
struct SeenRecord {
    #[prost(uint32, tag = "1")]
    replica: u32,
    #[prost(fixed64, tag = "2")]
    at: u64,
    /// As text. Empty: 0.
    #[prost(bytes = "bytes", tag = "3")]
    total: Bytes,
}

fn count_record(count: &Count, version: Hlc) -> CountRecord {
    CountRecord {
        since: count.since.0,
        total: written(count.total),
        at: if count.at == version { 0 } else { count.at.0 },
    }
}

fn seen_record(seen: &SeenCount) -> SeenRecord {
    SeenRecord {
        replica: seen.replica.0.into(),
        at: seen.at.0,
        total: match seen.total.is_zero() {
            true => Bytes::new(),
            false => written(seen.total),
        },
    }
}

impl SharesRecord {
    /// Whether a content says anything that only this record says.
    #[inline]
    pub fn is_needed(content: &Content) -> bool {
        content.share().is_some()
            || !content.resets().is_empty()
            || content.stored().is_none() && !content.is_plain_delete()
    }

    /// What the content of a version of this name says of shares, encoded. Empty if that is nothing.
    pub fn encoded(content: &Content, id: VersionId) -> Vec<u8> {
        let record = SharesRecord::of(content, id);
        record.map_or_else(Vec::new, |record| prost::Message::encode_to_vec(&record))
    }

    /// The record of the content of a version of this name. `None` if it says nothing of shares.
    pub fn of(content: &Content, id: VersionId) -> Option<SharesRecord> {
        let Some(share) = content.share() else {
            let resets = content.resets();
            return (!resets.is_empty()).then(|| SharesRecord {
                seen: resets.seen.iter().map(seen_record).collect(),
                elements: resets.removed.encoded(),
                before: resets.before.0,
                floor: resets.floor.0,
                ..SharesRecord::default()
            });
        };
        Some(SharesRecord {
            elements: share.elements.encoded(),
            ..SharesRecord::without_elements(share, id)
        })
    }

    fn without_elements(share: &Share, id: VersionId) -> SharesRecord {
        SharesRecord {
            count: share.count.map(|count| count_record(&count, id.at)),
            is_share: share.count.is_none(),
            floor: share.floor.0,
            ..SharesRecord::default()
        }
    }

    /// The same, with what has changed since an earlier share instead of all elements, if that is shorter and a reader can go by it.
    pub fn since(content: &Content, id: VersionId, base: &Base) -> Option<SharesRecord> {
        let Some((share, difference)) = content
            .share()
            .and_then(|share| Some((share, Difference::since(base, &share.elements)?)))
        else {
            return SharesRecord::of(content, id);
        };
        Some(SharesRecord {
            elements: difference.changed.into_encoded(),
            since: difference.base.0,
            gone: difference.gone,
            ..SharesRecord::without_elements(share, id)
        })
    }

    /// Takes the difference out, if the elements are one: then [`SharesRecord::content`] gives a share without elements. `id` is the version that says it.
    ///
    /// # Errors
    /// If the elements are not encoded as a [`Contribution`] is, the base is not older, or the numbers of its entries come twice or in another order.
    pub fn take_difference(&mut self, id: VersionId) -> Result<Option<Difference>, BadFrame> {
        let base = Hlc(std::mem::take(&mut self.since));
        if base == Hlc::ZERO {
            return Ok(None);
        }
        if !self.is_share && self.count.is_none() {
            return Err(bad(
                "a difference to a share in a version of the register".to_string()
            ));
        }
        if base >= id.at {
            return Err(bad(format!(
                "a difference to the share of {base} in version {id}"
            )));
        }
        let gone = std::mem::take(&mut self.gone);
        if !gone.is_sorted_by(|one, other| one < other) {
            return Err(bad(
                "entries that are gone in another order, or one of them twice".to_string(),
            ));
        }
        let elements = std::mem::take(&mut self.elements);
        let changed = Decoding(id).elements(elements)?;
        Ok(Some(Difference { base, gone, changed }))
    }

    /// Decodes what [`SharesRecord::encoded`] has encoded.
    ///
    /// # Errors
    /// If it does not decode.
    pub fn decoded(bytes: Bytes) -> Result<SharesRecord, BadFrame> {
        let record: Result<SharesRecord, _> = prost::Message::decode(bytes);
        record.map_err(|error| BadFrame::new("what a version says of shares", error.to_string()))
    }

    /// The content of a version of this name, with the rest of what was encoded of it.
    ///
    /// # Errors
    /// If it is a share and something else, a total is no number in its shortest form, a replica is one that no partition has, replicas come twice or in another order, a timestamp is above that of the version, its
    /// elements are not encoded as a [`Contribution`] is, or a share removes what its own replica has added: that is not in it any more.
    pub fn content(
        record: Option<SharesRecord>,
        id: VersionId,
        value: Option<Bytes>,
        until: Option<Micros>,
        base: Option<VersionId>,
    ) -> Result<Content, BadFrame> {
        let Some(record) = record else {
            return Ok(Content::register(value, until, base, Resets::default()));
        };
        if record.since > 0 || !record.gone.is_empty() {
            return Err(bad(
                "a difference to another share, where a whole one has to be".to_string()
            ));
        }
        let from = Decoding(id);
        if !record.is_share && record.count.is_none() {
            return Ok(Content::register(value, until, base, from.resets(record)?));
        }
        if value.is_some()
            || until.is_some()
            || base.is_some()
            || !record.seen.is_empty()
            || record.before > 0
        {
            return Err(bad(
                "a share with a value, an expiry, or shares that it resets".to_string()
            ));
        }
        from.share(record).map(Content::sharing)
    }
}

fn bad(found: String) -> BadFrame {
    BadFrame::new("a version that is a share, or has seen shares", found)
}

/// Checks what a version of this name says.
struct Decoding(VersionId);

impl Decoding {
    fn time(&self, at: u64) -> Result<Hlc, BadFrame> {
        match at > 0 && at <= self.0.at.0 {
            true => Ok(Hlc(at)),
            false => Err(bad(format!("{} in version {}", Hlc(at), self.0))),
        }
    }

    fn total(&self, text: &Bytes) -> Result<Decimal, BadFrame> {
        let number = decimal(text).filter(|_| text.len() <= MAX_NUMBER_BYTES);
        number
            .filter(|&number| written(number) == *text)
            .ok_or_else(|| bad(format!("the total '{}'", text.escape_ascii())))
    }

    fn count(&self, record: &CountRecord) -> Result<Count, BadFrame> {
        let (since, at) = (
            self.time(record.since)?,
            if record.at == 0 {
                self.0.at
            } else {
                self.time(record.at)?
            },
        );
        let total = self.total(&record.total)?;
        match since <= at {
            true => Ok(Count { since, at, total }),
            false => Err(bad(format!("a count since {since} until {at}"))),
        }
    }

    fn seen(&self, record: &SeenRecord) -> Result<SeenCount, BadFrame> {
        if record.replica >= u32::from(ReplicaSet::MAX) {
            return Err(BadFrame::replica(record.replica));
        }
        Ok(SeenCount {
            replica: ReplicaId(record.replica as u16),
            at: self.time(record.at)?,
            total: match record.total.is_empty() {
                true => Decimal::ZERO,
                false => self.total(&record.total)?,
            },
        })
    }

    fn resets(&self, record: SharesRecord) -> Result<Resets, BadFrame> {
        let seen = record.seen.iter().map(|seen| self.seen(seen));
        let seen: Vec<SeenCount> = seen.collect::<Result<_, _>>()?;
        let removed = Contribution::checked(record.elements, self.0)?;
        if removed.added().next().is_some() {
            return Err(bad("elements in a version of the register".to_string()));
        }
        match seen.is_sorted_by(|one, other| one.replica < other.replica) {
            true => Ok(Resets {
                seen,
                removed,
                before: match record.before {
                    0 => Hlc::ZERO,
                    before => self.time(before)?,
                },
                floor: floor(record.floor)?,
            }),
            false => Err(bad("replicas in another order, or one of them twice".to_string())),
        }
    }

    fn elements(&self, bytes: Bytes) -> Result<Contribution, BadFrame> {
        let elements = Contribution::checked(bytes, self.0)?;
        match elements.replicas().contains(self.0.replica) {
            true => Err(bad("a removal of what the same replica has added".to_string())),
            false => Ok(elements),
        }
    }

    fn share(&self, record: SharesRecord) -> Result<Share, BadFrame> {
        let elements = self.elements(record.elements)?.compact();
        Ok(Share {
            count: record.count.as_ref().map(|count| self.count(count)).transpose()?,
            elements,
            floor: floor(record.floor)?,
        })
    }
}

/// It may be above the timestamp of the version: then the version itself is over.
fn floor(at: u64) -> Result<Hlc, BadFrame> {
    match Hlc(at) <= Hlc::LATEST {
        true => Ok(Hlc(at)),
        false => Err(bad(format!("the floor {}", Hlc(at)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::contribution::{Builder, Name, Removed};

    /// A replica drops what it has added itself. If it could also remove it, readers that see other shares would show something else.
    #[test]
    fn a_share_that_removes_what_its_own_replica_has_added_is_refused() {
        let id = VersionId {
            at: Hlc(9),
            replica: ReplicaId(1),
        };
        let of = |replica| {
            let mut builder = Builder::default();
            builder.remove(&Removed {
                name: Name {
                    kind: Kind::Hash,
                    name: b"x",
                },
                seen: SeenCount {
                    replica: ReplicaId(replica),
                    at: Hlc(8),
                    total: Decimal::ZERO,
                },
            });
            let content = Content::sharing(Share {
                count: None,
                elements: builder.done(),
                ..Share::default()
            });
            SharesRecord::content(SharesRecord::of(&content, id), id, None, None, None)
        };
        assert!(of(0).is_ok() && of(2).is_ok());
        let refused = of(1).expect_err("it is refused").to_string();
        assert!(refused.contains("the same replica"), "{refused}");
    }
}
