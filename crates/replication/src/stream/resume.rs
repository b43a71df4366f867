//! How a stream goes on with a receiver that says where it is.
use super::{CursorState, Outgoing, Resumption, StreamPosition};
use turnbuckle_core::{Hlc, ReplicaId};

impl Outgoing {
    /// A receiver says where it is. `forgets`: this side may have forgotten deletes, of any site.
    pub fn resume(&mut self, replica: ReplicaId, at: StreamPosition, forgets: bool) -> Resumption {
        // One that has nothing is new, or has lost its directory, or waits for a full copy since it gave back what was lost here. The log may still
        // hold what the receiver itself deleted since, and nobody would give it that delete.
        let has_nothing = at.number == 0 && at.incarnation < self.incarnation();
        let resumption = match has_nothing && self.next > 1 && forgets && !self.is_of_another_life(at) {
            true => Resumption::Copy,
            false => self.lives.resumption(at, self.next),
        };
        let oldest = self.oldest();
        let Some(cursor) = self.cursors.get_mut(&replica) else {
            return Resumption::FromTheFuture;
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

    /// A receiver that has taken in the stream up to `has` is to be sent a full copy, and then what follows `resume`.
    pub fn copy(&mut self, replica: ReplicaId, has: u64, resume: u64) {
        if let Some(cursor) = self.cursors.get_mut(&replica) {
            cursor.acked = cursor.acked.min(has);
            cursor.set_state(CursorState::Copying { resume });
        }
    }

    /// Whether a position lies in a life of which this side knows nothing: its directory was lost since.
    pub fn is_of_another_life(&self, at: StreamPosition) -> bool {
        self.lives.lack(at)
    }

    /// A receiver may hold, by full copies of third sites, what was written up to `held`. If some of that was lost here: what was stamped
    /// after this is to be given back.
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
            Resumption::FromTheFuture => Some(Hlc::ZERO),
            Resumption::Stream | Resumption::Copy => None,
        }
    }

    /// Whether a receiver that is there has entries that this side lost.
    pub fn has_lost(&self, at: StreamPosition) -> bool {
        matches!(
            self.lives.resumption(at, self.next),
            Resumption::TakeBack { .. } | Resumption::FromTheFuture
        )
    }
}
