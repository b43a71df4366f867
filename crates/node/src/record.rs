//! The records of the commit log: one record is one batch of one lane.
use crate::entry::{Decoded, Written, decode_entry, encode_and_count, encode_entry};
use bytes::{Bytes, BytesMut};
use prost::Message;
use turnbuckle_core::{
    BadFrame, Hlc, Key, Meta, Rank, ReplicaId, ReplicaSet, ServerId, Topology, VersionId, VersionIdRecord,
    Write,
};
use turnbuckle_log::Position;
use turnbuckle_replication::{
    CutFrame, Entry, IncarnationRecord, NamedRecord, ReceivedRecord, RepairRecord, check_lives, check_places,
    check_time, cut_from_frames, replica_number,
};

/// A batch as it is stored in the log.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Record {
    /// The keyspace, by its tag.
    #[prost(fixed32, tag = "1")]
    pub keyspace: u32,
    #[prost(uint32, tag = "2")]
    partition: u32,
    #[prost(uint32, tag = "3")]
    member: u32,
    /// The number of the batch's first stream entry. The others follow.
    #[prost(uint64, tag = "4")]
    pub first_position: u64,
    /// The incarnation that its entries belong to.
    #[prost(uint64, tag = "5")]
    pub incarnation: u64,
    #[prost(message, repeated, tag = "6")]
    pub writes: Vec<WriteRecord>,
    /// The positions that other streams have reached with this batch.
    #[prost(message, repeated, tag = "7")]
    pub received: Vec<ReceivedRecord>,
    /// A new incarnation of the lane's stream.
    #[prost(message, optional, tag = "8")]
    pub opened: Option<IncarnationRecord>,
    /// Whether the peers have restored what they held when the directory was empty.
    #[prost(bool, tag = "9")]
    pub given_back: bool,
    /// How far the rows of a full copy that is about to be put in place may go in the streams of other sites.
    #[prost(message, repeated, tag = "10")]
    pub held: Vec<ReceivedRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WriteRecord {
    /// A version, encoded as in streams.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub entry: Option<Bytes>,
    /// The replicas that it is streamed to: the lower half of the set.
    #[prost(uint64, tag = "2")]
    to_low: u64,
    /// The upper half of that set.
    #[prost(uint64, tag = "6")]
    to_high: u64,
    // What few writes have is on the heap: the writes of a batch are built before they are encoded.
    #[prost(message, optional, boxed, tag = "3")]
    drop: Option<Box<DropRecord>>,
    #[prost(message, optional, boxed, tag = "4")]
    named: Option<Box<NamedRecord>>,
    #[prost(fixed64, optional, tag = "5")]
    bound: Option<u64>,
    /// The name of a state that is not kept any more.
    #[prost(string, optional, tag = "7")]
    drop_named: Option<String>,
    /// An entry of the journal.
    #[prost(message, optional, boxed, tag = "8")]
    append: Option<Box<AppendRecord>>,
    /// The journal's entries from this index on are dropped.
    #[prost(uint64, optional, tag = "9")]
    truncate: Option<u64>,
    /// The journal's entries before this index are dropped.
    #[prost(uint64, optional, tag = "10")]
    purge: Option<u64>,
    /// Whether the entry is streamed but not stored here.
    #[prost(bool, tag = "11")]
    is_hint: bool,
    /// The bytes of the elements of a share in memory, if the entry is shorter: it is a difference. 0: it is not.
    #[prost(uint64, tag = "12")]
    share_bytes: u64,
    /// The floor that a version has got here, if it has arrived without it. 0: none.
    #[prost(fixed64, tag = "13")]
    floor: u64,
    /// Whether the key had no version before.
    #[prost(bool, tag = "14")]
    is_first: bool,
}

#[derive(Clone, PartialEq, Message)]
struct AppendRecord {
    #[prost(uint64, tag = "1")]
    index: u64,
    #[prost(bytes = "bytes", tag = "2")]
    entry: Bytes,
}

impl WriteRecord {
    /// The replicas that the write is streamed to.
    pub fn to(&self) -> ReplicaSet {
        ReplicaSet(u128::from(self.to_high) << 64 | u128::from(self.to_low))
    }

    /// By how many bytes its version is longer in memory than here.
    pub fn left_out(&self) -> u64 {
        let entry = self.entry.as_ref().map_or(0, Bytes::len);
        self.share_bytes.saturating_sub(entry as u64)
    }

    /// What the stream is sent of it.
    pub fn stream_entry(self, number: u64) -> Entry {
        let (to, left_out) = (self.to(), self.left_out() as usize);
        let bytes = self.entry.unwrap_or_default();
        Entry {
            number,
            to,
            weight: bytes.len() + left_out,
            bytes,
        }
    }

    fn set_to(&mut self, to: ReplicaSet) {
        (self.to_low, self.to_high) = (to.0 as u64, (to.0 >> 64) as u64);
    }
}

#[derive(Clone, PartialEq, Message)]
struct DropRecord {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(fixed64, tag = "2")]
    at: u64,
    #[prost(uint32, tag = "3")]
    replica: u32,
    /// The base of its rank, if that is another one than itself. That of a share is empty.
    #[prost(message, optional, tag = "4")]
    base: Option<VersionIdRecord>,
}

/// What a finished checkpoint records of a lane, beside its versions.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CheckpointMeta {
    /// The log position up to which the checkpoint covers the lane's records.
    #[prost(uint64, tag = "1")]
    pub log_position: u64,
    /// The number of the next stream entry.
    #[prost(uint64, tag = "2")]
    pub next_position: u64,
    #[prost(message, repeated, tag = "3")]
    pub incarnations: Vec<IncarnationRecord>,
    #[prost(message, repeated, tag = "4")]
    pub received: Vec<ReceivedRecord>,
    /// The clock's bound.
    #[prost(fixed64, tag = "5")]
    pub bound: u64,
    /// The cut that the rows cover.
    #[prost(message, repeated, tag = "6")]
    pub cut: Vec<CutFrame>,
    /// Where stream entries are in the log: entry numbers, and the same number of log positions.
    #[prost(uint64, repeated, tag = "8")]
    pub index_numbers: Vec<u64>,
    #[prost(uint64, repeated, tag = "9")]
    pub index_positions: Vec<u64>,
    /// Set if rows are missing: what the repair still waits for.
    #[prost(message, optional, tag = "10")]
    pub repair: Option<RepairRecord>,
    /// Whether the peers have restored what they held when the directory was empty.
    #[prost(bool, tag = "11")]
    pub given_back: bool,
    /// How far the rows may go in the streams of other sites. That is further than `received` where full copies brought them.
    #[prost(message, repeated, tag = "12")]
    pub held: Vec<ReceivedRecord>,
    /// The index of the journal's earliest entry. If the journal is empty, the index of its next entry.
    #[prost(uint64, tag = "13")]
    pub journal_first: u64,
    /// The last entry of the journal whose effect the rows have, and its term.
    #[prost(uint64, tag = "14")]
    pub applied_index: u64,
    #[prost(uint64, tag = "15")]
    pub applied_term: u64,
}

/// A write of a record, as it is replayed.
pub(crate) enum Replayed<M> {
    Put {
        decoded: Decoded<M>,
        /// The floor that it has got here. Zero: none.
        floor: Hlc,
        /// Whether the key had no version before.
        is_first: bool,
    },
    /// A version that is streamed but not stored here.
    Hint,
    Drop {
        key: Key,
        rank: Rank,
    },
    Named {
        name: String,
        bytes: Option<Bytes>,
    },
    Append {
        index: u64,
        entry: Bytes,
    },
    Truncate(u64),
    Purge(u64),
    Bound(Hlc),
}

impl Record {
    pub fn new(keyspace: u32, server: ServerId) -> Record {
        Record {
            keyspace,
            partition: server.partition.into(),
            member: server.member.into(),
            ..Record::default()
        }
    }

    /// The lane that the record belongs to, as (keyspace's tag, partition, member).
    pub fn lane(&self) -> (u32, u32, u32) {
        (self.keyspace, self.partition, self.member)
    }

    /// The record's stream entries, with their numbers.
    pub fn into_entries(self) -> impl Iterator<Item = Entry> {
        let streamed = self.writes.into_iter().filter(|write| !write.to().is_empty());
        let numbered = streamed.zip(self.first_position..);
        numbered.map(|(write, number)| write.stream_entry(number))
    }

    pub fn parse(bytes: Bytes) -> Result<Record, BadFrame> {
        let record =
            Record::decode(bytes).map_err(|error| BadFrame::new("a batch of a lane", error.to_string()))?;
        check_places([record.first_position, record.incarnation])?;
        let mut places = record.received.iter().chain(&record.held);
        places.try_for_each(|place| place.check())?;
        record.opened.iter().try_for_each(IncarnationRecord::check)?;
        Ok(record)
    }
}

impl WriteRecord {
    /// A write as it is logged. A version is encoded into `arena`, many of them into one piece of memory, and is counted in `counted`. If a
    /// version came encoded from a peer, neither happens. A share is written as a difference to its base only if the base was stamped after `life`, when this life of the replica began.
    pub fn new<M: Meta>(
        write: Write<M>,
        life: Hlc,
        arena: &mut BytesMut,
        counted: &mut Written,
    ) -> WriteRecord {
        let mut record = WriteRecord::default();
        match write {
            Write::Put {
                key,
                version,
                to,
                encoded,
                floor,
                is_first,
                base,
            } => {
                let base = base.filter(|base| base.at > life);
                let share_bytes = match version.content.is_share() {
                    true => version.content.heap_bytes()[1],
                    false => 0,
                };
                let entry =
                    encoded.unwrap_or_else(|| encode_and_count(key, version, base.as_ref(), arena, counted));
                if share_bytes > entry.len() {
                    record.share_bytes = share_bytes as u64;
                }
                record.entry = Some(entry);
                record.floor = floor.0;
                record.is_first = is_first;
                record.set_to(to);
            }
            Write::Hint { key, version, to } => {
                record.entry = Some(encode_entry(key, version, arena));
                record.is_hint = true;
                record.set_to(to);
            }
            Write::Drop { key, rank } => {
                record.drop = Some(Box::new(DropRecord {
                    key: key.0,
                    at: rank.id.at.0,
                    replica: rank.id.replica.0.into(),
                    base: rank.other_base().map(VersionIdRecord::from),
                }));
            }
            Write::Named { name, bytes } => match bytes {
                Some(bytes) => {
                    record.named = Some(Box::new(NamedRecord::new(name.into_owned(), bytes)));
                }
                None => record.drop_named = Some(name.into_owned()),
            },
            Write::Append { index, entry } => {
                record.append = Some(Box::new(AppendRecord { index, entry }));
            }
            Write::Truncate(from) => record.truncate = Some(from),
            Write::Purge(until) => record.purge = Some(until),
            Write::Bound(bound) => record.bound = Some(bound.0),
        }
        record
    }

    /// Decodes the write. It is an error if it names a site that the cluster does not have.
    pub fn replay<M: Meta>(self, topology: &Topology) -> Result<Replayed<M>, BadFrame> {
        if let Some(entry) = self.entry {
            let decoded = decode_entry(entry, topology)?;
            return Ok(match self.is_hint {
                true => Replayed::Hint,
                false => Replayed::Put {
                    decoded,
                    floor: check_time(self.floor)?,
                    is_first: self.is_first,
                },
            });
        }
        if let Some(drop) = self.drop {
            let id = VersionId {
                at: check_time(drop.at)?,
                replica: replica_number(drop.replica)?,
            };
            let base = drop.base.map(VersionIdRecord::id).transpose()?;
            let rank = Rank::new(base, id);
            topology.check_replicas([rank.id, rank.base].map(|id| id.replica).into_iter().collect())?;
            return Ok(Replayed::Drop {
                key: Key(drop.key),
                rank,
            });
        }
        if let Some(named) = self.named {
            let (name, bytes) = named.into_parts();
            let bytes = Some(bytes);
            return Ok(Replayed::Named { name, bytes });
        }
        if let Some(name) = self.drop_named {
            return Ok(Replayed::Named { name, bytes: None });
        }
        if let Some(append) = self.append {
            let AppendRecord { index, entry } = *append;
            check_places([index])?;
            return Ok(Replayed::Append { index, entry });
        }
        if let Some(from) = self.truncate {
            check_places([from])?;
            return Ok(Replayed::Truncate(from));
        }
        if let Some(until) = self.purge {
            check_places([until])?;
            return Ok(Replayed::Purge(until));
        }
        let bound = self
            .bound
            .ok_or_else(|| BadFrame::new("a write", "an empty one"))?;
        Ok(Replayed::Bound(check_time(bound)?))
    }
}

impl CheckpointMeta {
    pub fn parse(bytes: Bytes) -> Result<CheckpointMeta, BadFrame> {
        let meta = CheckpointMeta::decode(bytes)
            .map_err(|error| BadFrame::new("the meta of a checkpoint", error.to_string()))?;
        check_places([meta.next_position, meta.journal_first])?;
        check_places(meta.index_numbers.iter().copied())?;
        meta.received.iter().try_for_each(|received| received.check())?;
        meta.repair.iter().try_for_each(RepairRecord::check)?;
        check_lives(&meta.incarnations, meta.next_position.max(1))?;
        check_time(meta.bound)?;
        cut_from_frames(&meta.cut)?;
        Ok(meta)
    }

    /// The cut that the rows cover.
    pub fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        cut_from_frames(&self.cut).expect("it was checked when it was read")
    }

    /// Where stream entries are in the log, as (entry number, log position).
    pub fn index(&self) -> impl Iterator<Item = (u64, Position)> + '_ {
        let positions = self.index_positions.iter().map(|&position| Position(position));
        self.index_numbers.iter().copied().zip(positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Version;

    /// A transaction may give one name to a share and a version of the register.
    #[test]
    fn a_removal_names_one_version_alone() {
        let topology = Topology::new(["a", "b", "c"], 1, 1);
        let id = |at| VersionId {
            at: Hlc(at),
            replica: ReplicaId(1),
        };
        let retimed = Rank::new(Some(id(7)), id(9));
        for rank in [Rank::of(id(9)), Rank::new(Some(Rank::SHARES), id(9)), retimed] {
            let write = Write::<()>::Drop {
                key: Key::from("k"),
                rank,
            };
            let record = WriteRecord::new(write, Hlc::ZERO, &mut BytesMut::new(), &mut Written::default());
            let record = WriteRecord::decode(Bytes::from(record.encode_to_vec())).expect("it was encoded");
            match record.replay::<()>(&topology) {
                Ok(Replayed::Drop { key, rank: replayed }) => {
                    assert_eq!((key, replayed), (Key::from("k"), rank));
                }
                _ => panic!("another write"),
            }
        }
    }

    /// A version from a peer is logged as it has arrived. A floor that it has got here is beside it.
    #[test]
    fn a_floor_is_logged_beside_what_has_arrived() {
        let topology = Topology::new(["a", "b", "c"], 1, 1);
        let version = Version::<()> {
            id: VersionId {
                at: Hlc(90),
                replica: ReplicaId(1),
            },
            content: Bytes::from_static(b"5").into(),
            meta: (),
        };
        let key = Key::from("n");
        let mut arena = BytesMut::new();
        let write = Write::Put {
            encoded: Some(encode_entry(key.clone(), version.clone(), &mut arena)),
            version: version.clone().with_floor(Hlc(41)),
            key,
            to: ReplicaSet::default(),
            floor: Hlc(41),
            is_first: false,
            base: None,
        };
        let record = WriteRecord::new(write, Hlc::ZERO, &mut arena, &mut Written::default());
        let record = WriteRecord::decode(Bytes::from(record.encode_to_vec())).expect("it was encoded");
        let Ok(Replayed::Put { decoded, floor, .. }) = record.replay::<()>(&topology) else {
            panic!("another write");
        };
        assert_eq!((decoded.version, floor), (version, Hlc(41)));
    }
}
