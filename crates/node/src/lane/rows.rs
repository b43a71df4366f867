//! Rows that peers need from this lane, and the checkpoints that they wait for.
use super::{Lane, rows_in::RowsIn, rows_out::RowsOut};
use crate::durability::Durability;
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{Hlc, Meta, Protocol, ReplicaId, ReplicaSet};
use turnbuckle_replication::{
    CopyBeginFrame, CopyRowsFrame, CursorState, Incoming, Lacks, NamedRecord, Purpose, ReceivedRecord,
    Repair, ReturnedFrame, RowRequest, RowRequests, StreamBody, StreamPosition, TakeBack, cut_to_frames,
};
use turnbuckle_store::EngineError;

/// Rows that peers are sent, and the rows of a full copy that arrives.
pub(crate) struct Rows<M> {
    /// What peers have asked for. Each request waits for a checkpoint.
    requests: RowRequests,
    /// Rows on their way to each peer: a full copy, versions that the peer has lost, or one after the other.
    out: BTreeMap<ReplicaId, VecDeque<RowsOut<M>>>,
    /// The rows of the full copy that arrives.
    pub arriving: RowsIn<M>,
}

impl<M: Meta> Rows<M> {
    pub fn new() -> Rows<M> {
        Rows {
            requests: RowRequests::default(),
            out: BTreeMap::new(),
            arriving: RowsIn::new(),
        }
    }

    /// The link to a peer is down. The peer asks again when the link is up.
    pub fn silence(&mut self, replica: ReplicaId) {
        self.out.remove(&replica);
        self.requests.silence(replica);
    }

    /// A peer has told again where it is: a copy under way is of no use any more. Versions that are restored to it do not depend on this
    /// stream.
    pub fn drop_copies(&mut self, replica: ReplicaId) {
        if let Some(out) = self.out.get_mut(&replica) {
            out.retain(|rows| matches!(rows.purpose, Purpose::Return(_)));
        }
        self.requests.drop_copies(replica);
    }

    /// Drops all versions that were to be restored. Returns the peers that wait for them.
    pub fn drop_returns(&mut self) -> Vec<ReplicaId> {
        let mut waiting = self.requests.drop_returns();
        for (&replica, out) in &mut self.out {
            let before = out.len();
            out.retain(|rows| !matches!(rows.purpose, Purpose::Return(_)));
            waiting.extend((out.len() < before).then_some(replica));
        }
        waiting
    }

    /// A checkpoint is done. Takes the requests that were asked for before it began; with the planted bug `takes_all`, also those asked for
    /// later.
    pub fn take_requests(&mut self, takes_all: bool) -> Vec<(ReplicaId, RowRequest)> {
        self.requests.take_done(takes_all)
    }
}

impl<P: Protocol> Lane<P> {
    /// A peer needs rows. They wait for a checkpoint that begins after now.
    pub fn want_rows(&mut self, replica: ReplicaId, request: RowRequest) {
        self.rows.requests.want(replica, request);
        self.wake_worker();
    }

    /// A peer is to be sent a full copy. `has` is the number of the last entry of this lane's stream that it has taken in.
    pub(super) fn want_copy(&mut self, replica: ReplicaId, behind: Option<StreamPosition>, has: u64) {
        // The log is kept from the position of the next checkpoint: the entries behind the copy are streamed. If rows are missing here, the
        // log may still have some of their versions, so all of the log is kept and streamed.
        let resume = match self.repair {
            Some(_) => self.outgoing.oldest() - 1,
            None => self.outgoing.ready(),
        };
        self.outgoing.copy(replica, has, resume);
        self.want_rows(replica, RowRequest::copy(behind, has));
    }

    /// Whether a checkpoint is needed now: the lane wants one, or peers wait for rows and no checkpoint has begun since they asked.
    pub fn wants_row_checkpoint(&self) -> bool {
        let lacks = lacks(&self.repair, &self.incoming);
        self.checkpoints.is_wanted || self.may_give() && self.rows.requests.wants_checkpoint(&lacks)
    }

    /// A checkpoint begins. It will have the rows that peers have asked for so far.
    pub fn begin_row_checkpoint(&mut self) {
        self.checkpoints.begin(self.replica.clock());
        if self.may_give() {
            let lacks = lacks(&self.repair, &self.incoming);
            self.rows.requests.begin_checkpoint(&lacks);
        }
    }

    /// A checkpoint is done that covers what `purpose` asks for. Its rows are sent as the link takes them.
    pub fn begin_rows(&mut self, replica: ReplicaId, purpose: Purpose) -> Result<(), EngineError> {
        let snapshot = self.store.table().snapshot()?;
        let (begin, purpose) = match purpose {
            Purpose::Return(lost) if !self.env.shared().config.planted.returns_deleted_versions => {
                let forgettable = self.replica.protocol().shown();
                (None, Purpose::Return(TakeBack { forgettable, ..lost }))
            }
            Purpose::Return(_) => (None, purpose),
            Purpose::Copy => match self.copy_begin(replica) {
                None => return Ok(()),
                begin => (begin, purpose),
            },
        };
        // Where every write is synced, no power loss takes any write. So the peer's directory was lost, or is an old copy.
        let loses_directory =
            |lost: TakeBack| lost.since == Hlc::ZERO || self.env.durability() == Durability::Fsync;
        // The named state is taken as of now, not as of the checkpoint: versions that were dropped while the checkpoint went on were
        // dropped because of what is kept now.
        let named = match purpose {
            Purpose::Return(lost) if !loses_directory(lost) => Vec::new(),
            Purpose::Return(_) | Purpose::Copy => NamedRecord::all(self.beside.named()),
        };
        let closed = self.replica.protocol().closed();
        let rows_out = RowsOut::new(snapshot, named, begin, purpose, closed);
        self.rows.out.entry(replica).or_default().push_back(rows_out);
        self.wake_links(ReplicaSet::one(replica));
        Ok(())
    }

    /// The frame in front of the rows of a full copy. `None` before the first checkpoint of this life.
    fn copy_begin(&mut self, replica: ReplicaId) -> Option<CopyBeginFrame> {
        let meta = self.checkpoints.last.clone()?;
        let state = self.outgoing.cursor(replica).map(|cursor| cursor.state);
        let number = match state {
            // The log is streamed from there.
            Some(CursorState::Copying { resume }) if self.repair.is_some() => resume,
            _ => meta.next_position.max(1) - 1,
        };
        let incarnation = self.outgoing.incarnation_of(number);
        let resume = StreamPosition { incarnation, number };
        let cursor = self.outgoing.cursor(replica);
        Some(CopyBeginFrame {
            resume: resume.into(),
            answers: cursor.map_or(0, |cursor| cursor.heard_word),
            cut: meta.cut,
            received: self.heard_in_full(meta.received),
            is_partial: self.is_blank() && !self.replica.protocol().is_sound_source(),
            held: meta.held,
            applied_index: meta.applied_index,
            applied_term: meta.applied_term,
        })
    }

    /// The positions in the streams of other sites, without those sites of which rows may be missing here.
    fn heard_in_full(&self, mut received: Vec<ReceivedRecord>) -> Vec<ReceivedRecord> {
        received.retain(|record| !self.waits_for_copy(record.parts().0));
        received
    }

    /// The next frame of a full copy or of versions that are restored.
    pub(super) fn next_rows(&mut self, replica: ReplicaId) -> Option<StreamBody> {
        let max_rows = self.env.shared().config.batch_keys;
        let out = self.rows.out.get_mut(&replica)?;
        let rows_out = out.front_mut()?;
        if let Some(begin) = rows_out.begin.take() {
            return Some(StreamBody::CopyBegin(begin));
        }
        let frame = match rows_out.next(replica, max_rows) {
            Ok(next) => next,
            Err(error) => {
                if !error.is_damage() {
                    tracing::error!(
                        keyspace = self.env.name(),
                        "the store cannot be read for a peer: {error}; sending its rows begins again"
                    );
                }
                let purpose = rows_out.purpose;
                out.pop_front();
                self.note_damage(&error);
                // If it was damage, the peer asks once more when this node is opened again.
                self.want_rows(replica, RowRequest::again(purpose));
                return None;
            }
        };
        let end = frame.end;
        let body = match &rows_out.purpose {
            Purpose::Copy => StreamBody::CopyRows(frame),
            Purpose::Return(_) => {
                let CopyRowsFrame { entries, end, named } = frame;
                let (withheld, clock) = match end {
                    // The rows are those of an earlier checkpoint. Nothing in them is stamped later than the clock now.
                    true => (cut_to_frames(&rows_out.withheld), self.replica.clock().0),
                    false => (Vec::new(), 0),
                };
                StreamBody::Returned(ReturnedFrame {
                    entries,
                    end,
                    withheld,
                    named,
                    clock,
                })
            }
        };
        if end {
            out.pop_front();
        }
        Some(body)
    }
}

fn lacks<'a, E, M>(repair: &'a Option<Repair>, incoming: &'a Incoming<E, M>) -> Lacks<'a, E, M> {
    let repair = repair.as_ref();
    Lacks { repair, incoming }
}
