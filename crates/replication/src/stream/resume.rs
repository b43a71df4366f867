//! How a stream continues with a receiver that reports its position.
use super::{CursorState, Outgoing, Resumption, StreamPosition};
use turnbuckle_core::{Hlc, ReplicaId};

impl Outgoing {
    /// A receiver reports its position `at`. `forgets`: this source may have forgotten deletes, of any site.
    pub fn resume(&mut self, replica: ReplicaId, at: StreamPosition, forgets: bool) -> Resumption {
        // A receiver that has nothing is new, or has lost its directory, or waits for a full copy after it sent back what was lost here. The log may
        // still hold a version that the receiver itself has deleted since, and no replica would send it that delete. So it gets a full copy.
        let has_nothing = at.number == 0 && at.incarnation < self.incarnation();
        let resumption = match has_nothing && self.next > 1 && forgets && !self.is_of_another_life(at) {
            true => Resumption::Copy,
            false => self.lives.resumption(at, self.next),
        };
        let oldest = self.oldest();
        let Some(cursor) = self.cursors.get_mut(&replica) else {
            return Resumption::BeyondSource;
        };
        let (state, resumption) = match resumption {
            Resumption::Stream if at.number + 1 >= oldest => {
                (CursorState::Streaming { sent: at.number }, Resumption::Stream)
            }
            Resumption::Stream => (CursorState::Silent, Resumption::Copy),
            Resumption::TakeBack { since, end } => {
                let number = end.map(|end| end.number);
                (
                    CursorState::TakingBack { end: number },
                    Resumption::TakeBack { since, end },
                )
            }
            other => (CursorState::Silent, other),
        };
        cursor.set_state(state);
        if let CursorState::Streaming { sent } = state {
            cursor.acked = sent;
        }
        resumption
    }

    /// A receiver that has received the stream up to `has` is to be sent a full copy, and then what follows `resume`.
    pub fn copy(&mut self, replica: ReplicaId, has: u64, resume: u64) {
        if let Some(cursor) = self.cursors.get_mut(&replica) {
            cursor.acked = cursor.acked.min(has);
            cursor.set_state(CursorState::Copying { resume });
        }
    }

    /// Whether a position is in an incarnation of which this source knows nothing, because its directory was lost since.
    pub fn is_of_another_life(&self, at: StreamPosition) -> bool {
        self.lives.lack(at)
    }

    /// A receiver may hold, through full copies from third sites, what was written up to `held`. If some of that was lost here, returns the time
    /// after which it was stamped: the receiver must send it back.
    pub fn lost(&self, replica: ReplicaId, held: StreamPosition) -> Option<Hlc> {
        if self
            .cursors
            .get(&replica)
            .is_some_and(|cursor| cursor.gave >= held)
        {
            return None;
        }
        match self.lives.resumption(held, self.next) {
            Resumption::TakeBack { since, .. } => Some(since),
            Resumption::BeyondSource => Some(Hlc::ZERO),
            Resumption::Stream | Resumption::Copy => None,
        }
    }

    /// Whether a receiver at this position has entries that this source lost.
    pub fn has_lost(&self, at: StreamPosition) -> bool {
        matches!(
            self.lives.resumption(at, self.next),
            Resumption::TakeBack { .. } | Resumption::BeyondSource
        )
    }
}
