//! A full copy that arrives: what is known of it beside its rows, and how far it is.
//!
//! ```text
//!   Arriving ---------> Whole -------> Placing -------> Placed -------> (none)
//!     rows are staged     all are        they replace     staged rows     the stream goes on behind `resume`
//!                                        what is here     are removed
//! ```
//!
//! One copy at a time is received, because staged rows share one place. A copy that is offered meanwhile is declined, and asked for again afterwards.
use crate::{CopyBeginFrame, StreamPosition, cut_from_frames};
use std::collections::BTreeMap;
use turnbuckle_core::{Applied, BadFrame, Hlc, Recovered, ReplicaId, Topology};

/// A full copy that is being received.
#[derive(Debug, Clone)]
pub struct CopyIn {
    /// The replica whose data it is.
    pub from: ReplicaId,
    /// Where the stream continues after the copy.
    pub resume: StreamPosition,
    /// What the copy covers, and what its source keeps beside its versions.
    pub copied: Recovered,
    /// How far its source had received the streams of other replicas.
    pub received: BTreeMap<ReplicaId, StreamPosition>,
    /// How far in the streams of other replicas its rows may reach.
    held: BTreeMap<ReplicaId, StreamPosition>,
    /// Whether rows are missing at its source as well.
    pub is_partial: bool,
    /// Whether the protocol has asked for it.
    pub(crate) is_wanted: bool,
    /// How far it is.
    pub state: CopyState,
}

/// How far a full copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyState {
    /// Its rows arrive and are staged.
    Arriving,
    /// All rows are staged: it can be put in place.
    Whole,
    /// It is being put in place. Entries of other streams that it covers wait.
    Placing,
    /// It is in place, and its staged rows are being removed. Until they are, no other copy may begin.
    Placed,
}

impl CopyIn {
    /// A copy that begins.
    ///
    /// # Errors
    /// If the frame names a replica, a position or a time that cannot exist.
    pub fn parse(from: ReplicaId, frame: &CopyBeginFrame, topology: &Topology) -> Result<CopyIn, BadFrame> {
        let cut = cut_from_frames(&frame.cut)?;
        let mut places = frame.received.iter().chain(&frame.held);
        places.try_for_each(|place| place.check())?;
        topology.check_replicas(cut.iter().map(|&(replica, _)| replica).collect())?;
        if frame.applied_index.max(frame.applied_term) > Applied::MAX {
            return Err(BadFrame::new(
                "a full copy up to an entry of a journal",
                frame.applied_index.to_string(),
            ));
        }
        Ok(CopyIn {
            from,
            resume: frame.resume.into(),
            copied: Recovered {
                cut,
                applied: (!frame.is_partial).then_some(Applied {
                    index: frame.applied_index,
                    term: frame.applied_term,
                }),
                ..Recovered::default()
            },
            received: frame.received.iter().map(|received| received.parts()).collect(),
            held: frame.held.iter().map(|held| held.parts()).collect(),
            is_partial: frame.is_partial,
            is_wanted: false,
            state: CopyState::Arriving,
        })
    }

    /// The newest time that it covers.
    pub fn newest(&self) -> Hlc {
        self.copied
            .cut
            .iter()
            .map(|&(_, until)| until)
            .max()
            .unwrap_or(Hlc::ZERO)
    }

    /// How far in the streams of its source and of other replicas its rows may reach.
    pub fn held(&self) -> impl Iterator<Item = (ReplicaId, StreamPosition)> {
        let of_others = self.held.iter().map(|(&replica, &place)| (replica, place));
        of_others.chain([(self.from, self.resume)])
    }

    /// The time up to which it covers what a replica stamped. Zero if its cut does not name the replica.
    pub fn covers_of(&self, replica: ReplicaId) -> Hlc {
        let mut cut = self.copied.cut.iter();
        cut.find(|(origin, _)| *origin == replica)
            .map_or(Hlc::ZERO, |&(_, until)| until)
    }
}
