use crate::deletes::Said;
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
}

#[derive(Clone, PartialEq, prost::Message)]
struct MarkRecord {
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
}

impl Record for MarkRecord {
    const WHAT: &'static str = "a mark of an eventual keyspace";

    fn check(&self) -> Result<(), String> {
        // A hybrid clock is never behind the wall clock that it was read with.
        match Hlc::from_wall(Micros(self.wall_us)) > Hlc(self.promise) {
            true => Err("a promise that is behind its own wall clock".to_string()),
            false => Ok(()),
        }
    }
}

impl Wire for Mark {
    fn encode(&self, out: &mut BytesMut) {
        let record = MarkRecord {
            promise: self.promise.0,
            settled: self.settled.0,
            shown: self.deletes.shown.0,
            forgotten: self.deletes.forgotten.0,
            birth: self.deletes.birth,
            wall_us: self.wall.0,
        };
        Wire::encode(&record, out);
    }

    fn decode(frame: Bytes) -> Result<Mark, BadFrame> {
        let record: MarkRecord = Wire::decode(frame)?;
        Ok(Mark {
            promise: Hlc(record.promise),
            settled: Hlc(record.settled),
            deletes: Said {
                birth: Forgotten::check_birth(record.birth)?,
                shown: Hlc(record.shown),
                forgotten: Hlc(record.forgotten),
            },
            wall: Micros(record.wall_us),
        })
    }

    fn newest(&self) -> Hlc {
        let promised = self.promise.max(self.settled).max(self.deletes.newest());
        promised.max(Hlc::from_wall(self.wall))
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
            },
            wall: Micros(7),
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
