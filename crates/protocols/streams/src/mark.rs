use crate::Said;
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Forgotten, Hlc, Micros, Record, Wire};

/// A promise. It arrives behind everything that it speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Every later stamp of the sender is above this.
    pub promise: Hlc,
    /// No power loss at the sender takes anything any more that was stamped up to this time.
    pub settled: Hlc,
    /// What the sender has of every site, and which deletes are forgotten there.
    pub deletes: Said,
    /// The wall time at the sender when it promised was at least this.
    pub wall: Micros,
    /// The sender has lost versions that no peer could send back, because others had replaced them there. Those were stamped up to this time.
    pub replaced: Hlc,
}

/// The encoding of a [`Mark`], also as a part of a message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MarkRecord {
    #[prost(fixed64, tag = "1")]
    promise: u64,
    #[prost(uint64, tag = "2")]
    wall_us: u64,
    #[prost(fixed64, tag = "3")]
    settled: u64,
    #[prost(fixed64, tag = "4")]
    shown: u64,
    #[prost(fixed64, tag = "5")]
    forgotten: u64,
    #[prost(fixed64, tag = "6")]
    birth: u64,
    #[prost(fixed64, tag = "7")]
    replaced: u64,
    #[prost(fixed64, tag = "8")]
    closed: u64,
}

impl From<Mark> for MarkRecord {
    fn from(mark: Mark) -> MarkRecord {
        MarkRecord {
            promise: mark.promise.0,
            settled: mark.settled.0,
            shown: mark.deletes.shown.0,
            forgotten: mark.deletes.forgotten.0,
            birth: mark.deletes.birth,
            wall_us: mark.wall.0,
            replaced: mark.replaced.0,
            closed: mark.deletes.closed.0,
        }
    }
}

impl MarkRecord {
    /// The mark. A record from outside must have been checked before.
    pub fn mark(&self) -> Mark {
        Mark {
            promise: Hlc(self.promise),
            settled: Hlc(self.settled),
            deletes: Said {
                birth: self.birth,
                shown: Hlc(self.shown),
                forgotten: Hlc(self.forgotten),
                closed: Hlc(self.closed),
            },
            wall: Micros(self.wall_us),
            replaced: Hlc(self.replaced),
        }
    }
}

impl Record for MarkRecord {
    const WHAT: &'static str = "a mark: what a replica promises its peers";

    fn check(&self) -> Result<(), String> {
        Forgotten::check_birth(self.birth).map_err(|error| error.to_string())?;
        // A hybrid clock is never behind the wall clock that it was read with.
        match Hlc::from_wall(Micros(self.wall_us)) > Hlc(self.promise) {
            true => Err("a promise that is behind its own wall clock".to_string()),
            false => Ok(()),
        }
    }

    fn newest(&self) -> Hlc {
        let mark = self.mark();
        let promised = mark.promise.max(mark.settled).max(mark.deletes.newest());
        promised.max(Hlc::from_wall(mark.wall)).max(mark.replaced)
    }
}

impl Wire for Mark {
    fn encode(&self, out: &mut BytesMut) {
        Wire::encode(&MarkRecord::from(*self), out);
    }

    fn decode(frame: Bytes) -> Result<Mark, BadFrame> {
        let record: MarkRecord = Wire::decode(frame)?;
        Ok(record.mark())
    }

    fn newest(&self) -> Hlc {
        Record::newest(&MarkRecord::from(*self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_as_it_went_and_a_false_one_is_refused() {
        let mark = Mark {
            promise: Hlc(7 << 12 | 3),
            settled: Hlc(5 << 12),
            deletes: Said {
                birth: 2,
                shown: Hlc(4 << 12),
                forgotten: Hlc(3 << 12),
                closed: Hlc(1 << 12),
            },
            wall: Micros(7),
            replaced: Hlc(2 << 12),
        };
        let mut bytes = BytesMut::new();
        mark.encode(&mut bytes);
        assert_eq!(Mark::decode(bytes.split().freeze()), Ok(mark));
        let wall = Micros(8);
        Mark { wall, ..mark }.encode(&mut bytes);
        let error = Mark::decode(bytes.freeze()).expect_err("no clock makes such a promise");
        assert!(error.to_string().contains("behind its own wall clock"), "{error}");
    }
}
