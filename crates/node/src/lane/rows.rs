//! Rows that peers need of this lane, and the checkpoints that they wait for.
use super::{Lane, rows_in::RowsIn, rows_out::RowsOut};
use crate::durability::Durability;
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{Hlc, Protocol, ReplicaId, ReplicaSet};
use turnbuckle_replication::{
    CopyBeginFrame, CopyRowsFrame, CursorState, Errand, Errands, Incoming, Lacks, NamedRecord, Purpose,
    ReceivedRecord, Repair, ReturnedFrame, StreamBody, StreamPosition, TakeBack, cut_to_frames,
};
use turnbuckle_store::EngineError;

/// What peers are sent and send row by row.
pub(crate) struct Rows<M> {
    /// What peers have asked for, until a checkpoint has been made.
    errands: Errands,
    /// What goes out: a copy, or what a peer has lost, or one after the other.
    out: BTreeMap<ReplicaId, VecDeque<RowsOut<M>>>,
    /// What comes in: the full copy that arrives.
    pub arriving: RowsIn<M>,
}

impl<M> Rows<M> {
    pub fn new() -> Rows<M> {
        Rows {
            errands: Errands::default(),
            out: BTreeMap::new(),
            arriving: RowsIn::new(),
        }
    }

    /// The link to a peer is down: it asks again.
    pub fn silence(&mut self, replica: ReplicaId) {
        self.out.remove(&replica);
        self.errands.silence(replica);
    }

    /// A peer has said anew where it is: a copy under way is of no use any more. What is given back has nothing to do with this stream.
    pub fn drop_copies(&mut self, replica: ReplicaId) {
        if let Some(out) = self.out.get_mut(&replica) {
            out.retain(|rows| matches!(rows.purpose, Purpose::Return(_)));
        }
        self.errands.drop_copies(replica);
    }

    /// Nothing is given back to anybody. Returns who waits for that.
    pub fn drop_returns(&mut self) -> Vec<ReplicaId> {
        let mut waiting = self.errands.drop_returns();
        for (&replica, out) in &mut self.out {
            let before = out.len();
            out.retain(|rows| !matches!(rows.purpose, Purpose::Return(_)));
            waiting.extend((out.len() < before).then_some(replica));
        }
        waiting
    }

    /// A checkpoint is done. What peers asked for before it began; with a planted bug, what they asked for later as well.
    pub fn take_errands(&mut self, takes_all: bool) -> Vec<(ReplicaId, Errand)> {
        self.errands.take_done(takes_all)
    }
}

impl<P: Protocol> Lane<P> {
    /// A peer needs rows, and for them a checkpoint that begins after now.
    pub fn want_rows(&mut self, replica: ReplicaId, errand: Errand) {
        self.rows.errands.want(replica, errand);
        self.wake_worker();
    }

    /// A peer is to be sent a full copy, of whose stream `has` is all that it has taken in.
    pub(super) fn want_copy(&mut self, replica: ReplicaId, behind: Option<StreamPosition>, has: u64) {
        // The log is kept from where the next checkpoint will be: what follows the copy is streamed. Of what a damaged table has lost, the log may have some.
        let resume = match self.repair {
            Some(_) => self.outgoing.oldest() - 1,
            None => self.outgoing.ready(),
        };
        self.outgoing.copy(replica, has, resume);
        self.want_rows(replica, Errand::copy(behind, has));
    }

    /// Whether peers wait for rows and no checkpoint has begun since they asked, or the lane has none of its own yet.
    pub fn wants_row_checkpoint(&self) -> bool {
        let lacks = lacks(&self.repair, &self.incoming);
        self.checkpoints.is_wanted || self.may_give() && self.rows.errands.wants_checkpoint(&lacks)
    }

    /// A checkpoint begins: it will have what peers have asked for so far.
    pub fn begin_row_checkpoint(&mut self) {
        self.checkpoints.begin(self.replica.clock());
        if self.may_give() {
            let lacks = lacks(&self.repair, &self.incoming);
            self.rows.errands.begin_checkpoint(&lacks);
        }
    }

    /// A checkpoint is done that covers what `purpose` asks for: its rows go out as the link takes them.
    pub fn begin_rows(&mut self, replica: ReplicaId, purpose: Purpose) -> Result<(), EngineError> {
        let snapshot = self.store.table().snapshot()?;
        let (begin, purpose) = match purpose {
            Purpose::Return(lost) if !self.env.shared().config.planted.gives_back_what_was_deleted => {
                let forgettable = self.replica.protocol().shown();
                (None, Purpose::Return(TakeBack { forgettable, ..lost }))
            }
            Purpose::Return(_) => (None, purpose),
            Purpose::Copy => match self.copy_begin(replica) {
                None => return Ok(()),
                begin => (begin, purpose),
            },
        };
        // Where every write is synced no power loss takes any: the peer's directory was lost, or is an old copy.
        let loses_directory =
            |lost: TakeBack| lost.since == Hlc::ZERO || self.env.durability() == Durability::Fsync;
        // As of now: what was dropped while the checkpoint went on was by what is kept now.
        let named = match purpose {
            Purpose::Return(lost) if !loses_directory(lost) => Vec::new(),
            Purpose::Return(_) | Purpose::Copy => NamedRecord::all(self.beside.named()),
        };
        let rows_out = RowsOut::new(snapshot, named, begin, purpose);
        self.rows.out.entry(replica).or_default().push_back(rows_out);
        self.wake_links(ReplicaSet::one(replica));
        Ok(())
    }

    /// What a full copy says in front of its rows. None before the first checkpoint of this life.
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
            is_partial: self.is_blank(),
            held: meta.held,
        })
    }

    /// How far other sites were heard, as far as nothing of it is missing.
    fn heard_in_full(&self, mut received: Vec<ReceivedRecord>) -> Vec<ReceivedRecord> {
        received.retain(|record| !self.waits_for_copy(record.parts().0));
        received
    }

    /// The next rows of a full copy or a take-back.
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
                        "the store cannot be read for a peer: {error}; it begins once more"
                    );
                }
                let purpose = rows_out.purpose;
                out.pop_front();
                self.note_damage(&error);
                // The peer asks once more when this lane is opened anew.
                self.want_rows(replica, Errand::again(purpose));
                return None;
            }
        };
        let end = frame.end;
        let body = match &rows_out.purpose {
            Purpose::Copy => StreamBody::CopyRows(frame),
            Purpose::Return(_) => {
                let CopyRowsFrame { entries, end, named } = frame;
                let withheld = match end {
                    true => cut_to_frames(&rows_out.withheld),
                    false => Vec::new(),
                };
                StreamBody::Returned(ReturnedFrame {
                    entries,
                    end,
                    withheld,
                    named,
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
