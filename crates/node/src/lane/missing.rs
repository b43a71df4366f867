//! What a lane lacks: rows that were damaged, or the word of its peers.
use super::waiting::Waiting;
use crate::{incoming::CopyIn, record::RepairRecord};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use turnbuckle_core::{Micros, Protocol, ReplicaId, ReplicaSet};
use turnbuckle_replication::{LAST_PLACE, ReceivedRecord, StreamPosition};

/// What is still missing.
#[derive(Debug, Clone)]
pub(crate) struct Repair {
    /// Of each site: how far its stream was taken in here. Until a copy is in place that has as much, rows of it may be missing.
    pub waits: BTreeMap<ReplicaId, StreamPosition>,
    /// No copy is in place yet: nothing is covered.
    pub is_blank: bool,
    /// The lane's own stream was lost as well.
    pub lost_stream: bool,
    /// Peers that lack rows as well, and have sent what they have.
    pub partial: BTreeSet<ReplicaId>,
    /// When a peer was last asked.
    pub asked_at: Micros,
}

/// Further than any stream: only the site's own copy will do.
pub(super) const NEVER: StreamPosition = StreamPosition {
    incarnation: LAST_PLACE,
    number: LAST_PLACE,
};

impl Repair {
    /// Rows are missing from a table whose meta is there, or not.
    pub fn of_all(others: impl Iterator<Item = ReplicaId>, has_meta: bool) -> Repair {
        Repair {
            waits: others.map(|replica| (replica, NEVER)).collect(),
            is_blank: true,
            lost_stream: !has_meta,
            partial: BTreeSet::new(),
            asked_at: Micros(0),
        }
    }

    /// As a checkpoint has left it.
    pub fn restore(record: &RepairRecord) -> Repair {
        Repair {
            waits: record.waits.iter().map(|wait| wait.parts()).collect(),
            is_blank: record.is_blank,
            lost_stream: record.lost_stream,
            partial: BTreeSet::new(),
            asked_at: Micros(0),
        }
    }

    /// For a checkpoint.
    pub fn record(&self) -> RepairRecord {
        let waits = self.waits.iter();
        RepairRecord {
            waits: waits
                .map(|(&replica, &at)| ReceivedRecord::new(replica, at))
                .collect(),
            is_blank: self.is_blank,
            lost_stream: self.lost_stream,
        }
    }

    /// The copy of a site is in place.
    pub fn copied<M>(&mut self, from: ReplicaId, copy: &CopyIn<M>) {
        if copy.is_partial {
            self.partial.insert(from);
            return;
        }
        self.is_blank = false;
        self.partial.remove(&from);
        self.waits.retain(|replica, at| {
            let heard = copy.received.get(replica).copied().unwrap_or_default();
            *replica != from && heard < *at
        });
    }

    /// The sites from which something that is missing may still come.
    pub fn open(&self) -> impl Iterator<Item = ReplicaId> {
        let open = self
            .waits
            .keys()
            .filter(|replica| !self.partial.contains(replica));
        open.copied()
    }

    /// Whether nobody has more.
    pub fn is_over(&self) -> bool {
        self.waits.keys().all(|replica| self.partial.contains(replica))
    }
}

/// What a replica waits for after a start, and what waits for it.
pub(crate) struct Unheard<P: Protocol> {
    pub missing: Missing,
    pub until: Micros,
    pub waiting: VecDeque<Waiting<P>>,
}

pub(crate) enum Missing {
    /// What these sites give back.
    Returns(ReplicaSet),
    /// What any site has forgotten.
    Word,
}
