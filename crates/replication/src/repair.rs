//! What a replica with missing rows lacks, and the peers whose full copies restore it.
//!
//! It is not known which rows are missing. But it is known how far each peer's stream was received here, and how far each peer had received the other
//! streams when it made a copy. The replica waits for a peer until that peer's own copy is in place, or a copy whose source had received at least as
//! much of the peer's stream as this replica.
use crate::{CopyIn, LAST_PLACE, ReceivedRecord, StreamPosition};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{Micros, ReplicaId};

/// The rows that are still missing.
#[derive(Debug, Clone)]
pub struct Repair {
    /// For each peer, how far its stream was received here. Until a copy that has as much of it is in place, rows of that peer may be missing.
    waits: BTreeMap<ReplicaId, StreamPosition>,
    /// Whether no copy is in place yet: nothing is covered.
    pub is_blank: bool,
    /// Whether the lane's own stream was lost as well.
    pub lost_stream: bool,
    /// Whether the protocol says when it is over, and asks for copies by itself. Then it waits for no peer.
    pub by_protocol: bool,
    /// Peers at which rows are missing as well, and that have sent the rows that they have.
    partial: BTreeSet<ReplicaId>,
    /// When a peer was last asked for a copy, in monotonic time.
    asked_at: Micros,
}

/// The record of what a repair still waits for.
#[derive(Clone, PartialEq, Message)]
pub struct RepairRecord {
    #[prost(message, repeated, tag = "1")]
    waits: Vec<ReceivedRecord>,
    #[prost(bool, tag = "2")]
    is_blank: bool,
    #[prost(bool, tag = "3")]
    lost_stream: bool,
    #[prost(bool, tag = "4")]
    by_protocol: bool,
}

impl RepairRecord {
    /// Checks a record from outside.
    ///
    /// # Errors
    /// If it names a replica or a position that cannot exist.
    pub fn check(&self) -> Result<(), turnbuckle_core::BadFrame> {
        self.waits.iter().try_for_each(|wait| wait.check())
    }
}

/// A position beyond any stream: only a full copy from the peer itself ends the wait for it.
const NEVER: StreamPosition = StreamPosition {
    incarnation: LAST_PLACE,
    number: LAST_PLACE,
};

impl Repair {
    /// A repair of a table with missing rows. `has_meta` says whether the table's metadata is there; if not, the lane's own stream is lost as well.
    pub fn of_all(others: impl Iterator<Item = ReplicaId>, has_meta: bool) -> Repair {
        Repair {
            waits: others.map(|replica| (replica, NEVER)).collect(),
            is_blank: true,
            lost_stream: !has_meta,
            by_protocol: false,
            partial: BTreeSet::new(),
            asked_at: Micros(0),
        }
    }

    /// A repair that lasts until the protocol says that it is over.
    pub fn by_protocol() -> Repair {
        Repair {
            by_protocol: true,
            ..Repair::of_all([].into_iter(), false)
        }
    }

    /// The repair as a checkpoint has left it.
    pub fn restore(record: &RepairRecord) -> Repair {
        Repair {
            waits: record.waits.iter().map(|wait| wait.parts()).collect(),
            is_blank: record.is_blank,
            lost_stream: record.lost_stream,
            by_protocol: record.by_protocol,
            partial: BTreeSet::new(),
            asked_at: Micros(0),
        }
    }

    /// The record for a checkpoint.
    pub fn record(&self) -> RepairRecord {
        let waits = self.waits.iter();
        let waits = waits.map(|(&replica, &at)| ReceivedRecord::new(replica, at));
        RepairRecord {
            waits: waits.collect(),
            is_blank: self.is_blank,
            lost_stream: self.lost_stream,
            by_protocol: self.by_protocol,
        }
    }

    /// The log is replayed: from now on it is known how far each stream was received.
    pub fn begin(&mut self, received: impl Fn(ReplicaId) -> Option<StreamPosition>) {
        let unknown = self.waits.iter_mut().filter(|(_, at)| **at == NEVER);
        for (&replica, at) in unknown.filter(|_| !self.lost_stream) {
            *at = received(replica).unwrap_or(NEVER);
        }
    }

    /// A copy is in place.
    pub fn copied(&mut self, copy: &CopyIn) {
        if self.by_protocol {
            return;
        }
        if copy.is_partial {
            self.partial.insert(copy.from);
            return;
        }
        self.is_blank = false;
        self.partial.remove(&copy.from);
        self.waits.retain(|replica, at| {
            let heard = copy.received.get(replica).copied().unwrap_or_default();
            *replica != copy.from && heard < *at
        });
    }

    /// Whether the stream of a peer waits for a copy.
    pub fn holds_back(&self, replica: ReplicaId) -> bool {
        !self.by_protocol && (self.is_blank || self.waits.contains_key(&replica))
    }

    /// The next peer to be asked for a copy. Peers are asked one after the other, but the next one is asked when `patience` has passed.
    pub fn next_to_ask(
        &mut self,
        now: Micros,
        patience: Micros,
        is_asked: impl Fn(ReplicaId) -> bool,
        is_up: impl Fn(ReplicaId) -> bool,
    ) -> Option<ReplicaId> {
        let mut waits = self.waits.keys().copied();
        if now < self.asked_at + patience && waits.clone().any(&is_asked) {
            return None;
        }
        let may_send =
            |&replica: &ReplicaId| is_up(replica) && !is_asked(replica) && !self.partial.contains(&replica);
        let next = waits.find(may_send)?;
        self.asked_at = now;
        Some(next)
    }

    /// The peers from which missing rows may still come.
    pub fn open(&self) -> impl Iterator<Item = ReplicaId> {
        let open = self.waits.keys();
        open.filter(|replica| !self.partial.contains(replica)).copied()
    }

    /// Whether no peer has more of the missing rows.
    pub fn is_over(&self) -> bool {
        !self.by_protocol && self.waits.keys().all(|replica| self.partial.contains(replica))
    }

    /// Whether all rows are restored.
    pub fn is_whole(&self) -> bool {
        self.waits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CopyBeginFrame;
    use turnbuckle_core::Topology;

    const B: ReplicaId = ReplicaId(1);
    const C: ReplicaId = ReplicaId(2);

    fn at(number: u64) -> StreamPosition {
        StreamPosition {
            incarnation: 1,
            number,
        }
    }

    /// A repair of a replica that had received b up to 40 and c up to 17.
    fn repair() -> Repair {
        let mut repair = Repair::of_all([B, C].into_iter(), true);
        repair.begin(|replica| Some(if replica == B { at(40) } else { at(17) }));
        repair
    }

    fn copy_of_b(heard_of_c: u64, is_partial: bool) -> CopyIn {
        let frame = CopyBeginFrame {
            resume: at(7).into(),
            cut: Vec::new(),
            received: vec![ReceivedRecord::new(C, at(heard_of_c))],
            is_partial,
            held: Vec::new(),
            answers: 0,
            applied_index: 0,
            applied_term: 0,
        };
        CopyIn::parse(B, &frame, &Topology::new(["a", "b", "c"], 1, 1)).expect("it is in order")
    }

    #[test]
    fn a_copy_brings_what_its_source_had_heard() {
        let mut repair = repair();
        repair.copied(&copy_of_b(16, false));
        assert!(!repair.is_over() && !repair.holds_back(B) && repair.holds_back(C));
        let mut repair = self::repair();
        repair.copied(&copy_of_b(17, false));
        assert!(repair.is_over() && repair.is_whole());
    }

    #[test]
    fn copies_of_those_that_lack_rows_prove_nothing_until_nobody_has_more() {
        let mut repair = repair();
        repair.copied(&copy_of_b(99, true));
        assert!(repair.is_blank && repair.holds_back(B));
        assert!(repair.open().eq([C]));
        repair.partial.insert(C);
        assert!(repair.is_over() && !repair.is_whole());
    }

    #[test]
    fn peers_are_asked_one_after_the_other_and_the_next_one_after_a_while() {
        let mut repair = repair();
        let patience = Micros::from_millis(5);
        let is_b = |replica| replica == B;
        assert_eq!(
            repair.next_to_ask(Micros(10), patience, |_| false, |_| true),
            Some(B)
        );
        assert_eq!(repair.next_to_ask(Micros(20), patience, is_b, |_| true), None);
        let later = Micros(10) + patience;
        assert_eq!(repair.next_to_ask(later, patience, is_b, is_b), None, "c is away");
        assert_eq!(repair.next_to_ask(later, patience, is_b, |_| true), Some(C));
    }
}
