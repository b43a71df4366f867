//! A lane and its peers: streams, marks, full copies and take-backs, frame by frame.
use super::{Lane, entries_of};
use crate::{
    durability::Durability,
    entry,
    environment::Environment,
    frame::Frame,
    incoming::{CopyIn, CopyState, Errand, Incoming, OpenRow, Purpose, RowsOut, TakeBack},
    pending::Item,
    record::Record,
};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{
    BadFrame, Chain, Hlc, Input, Key, Now, Protocol, Recovered, ReplicaId, ServerId, Topology, Wire,
};
use turnbuckle_log::Position;
use turnbuckle_replication::{
    CopyBeginFrame, CopyRowsFrame, CursorState, EntriesFrame, Incarnation, MarkFrame, NamedRecord,
    ResumeFrame, Resumption, ReturnedFrame, Step, StreamBody, StreamPosition, TakeBackFrame, add_named,
    cut_from_frames, cut_to_frames,
};
use turnbuckle_store::{StoreError, clear_staged, stage};

/// How much of the log is read at a time for a peer that lags.
const READ_BYTES: usize = 256 << 10;

impl<P: Protocol> Lane<P> {
    /// The link to a peer's node came up or went down.
    pub fn set_link(&mut self, now: Now, peer: ServerId, up: bool) {
        let replica = peer.replica();
        self.outgoing.silence(replica);
        self.rows_out.remove(&replica);
        self.rows_wanted.remove(&replica);
        let Some(incoming) = self.incoming.get_mut(&replica) else {
            return;
        };
        let had_copy = incoming.copy.is_some();
        incoming.silence();
        let is_dropped = had_copy && incoming.copy.is_none();
        // A copy that has arrived whole is put in place first; then the stream is asked for.
        if up && incoming.copy.is_none() && !self.waits_for_copy(replica) {
            self.resume(replica);
        }
        if is_dropped {
            self.resume_declined();
            self.ask_for_copy();
        }
        self.step(now, Input::Link { peer, up });
    }

    /// A message of another replica.
    pub fn on_message(&mut self, now: Now, from: ServerId, message: Bytes) -> Result<(), BadFrame> {
        let replica = from.replica();
        let message = message_of::<P>(self.env.topology(), message)?;
        let newest = message.newest();
        if newest > self.horizon(now) {
            // It may be lost.
            self.hold(replica, newest);
            return Ok(());
        }
        if from.site == self.me.site {
            self.held_peers.remove(&replica);
        }
        self.hear(now, from, message);
        Ok(())
    }

    /// A frame of a peer's server.
    pub fn on_body(&mut self, now: Now, from: ServerId, body: StreamBody) -> Result<(), BadFrame> {
        let replica = from.replica();
        match body {
            StreamBody::Entries(frame) => self.on_entries(now, replica, frame)?,
            StreamBody::Mark(frame) => self.on_mark(now, replica, frame)?,
            StreamBody::Ack(position) => {
                self.outgoing
                    .acknowledge(replica, StreamPosition::from(position).number);
                self.wake_links(turnbuckle_core::ReplicaSet::one(replica));
                self.ask_for_copy();
            }
            StreamBody::Resume(frame) => {
                self.on_resume(now, from, frame)?;
                self.ask_for_copy();
            }
            StreamBody::TakeBack(frame) => {
                let purpose = Purpose::Return(TakeBack {
                    since: Hlc(frame.since),
                    forgettable: Hlc::ZERO,
                });
                self.want_rows(replica, Errand::new(purpose, 0));
                self.give_nothing();
            }
            StreamBody::Returned(frame) => self.on_returned(now, replica, frame)?,
            StreamBody::CopyBegin(frame) => self.on_copy_begin(now, replica, &frame)?,
            StreamBody::CopyRows(frame) => self.on_copy_rows(now, replica, frame)?,
            StreamBody::TakenBack(position) => {
                let waits = self.waits_for_copy(replica);
                if !self.env.shared().config.planted.takes_again_what_it_had {
                    self.cover_what_was_here();
                }
                let incoming = incoming_from(&mut self.incoming, replica)?;
                let is_held = incoming.held_beyond().is_some() && incoming.received == position.into();
                incoming.received = position.into();
                self.moved = true;
                // It has taken back what copies of third sites had brought here. Where the stream goes on is still to be agreed.
                match waits || is_held {
                    true => self.resume(replica),
                    false => drop(incoming.resume()),
                }
            }
        }
        Ok(())
    }

    // ---- what a receiver gets -------------------------------------------------------------------------------

    fn on_entries(&mut self, now: Now, replica: ReplicaId, frame: EntriesFrame) -> Result<(), BadFrame> {
        let incoming = incoming_from(&mut self.incoming, replica)?;
        if incoming.is_streaming() {
            let last = StreamPosition {
                incarnation: frame.incarnation,
                number: frame.last,
            };
            incoming.arrive(
                self.env.topology(),
                replica,
                frame.previous,
                last,
                frame.entries,
                &frame.numbers,
            )?;
            self.drain(now, replica);
        }
        Ok(())
    }

    fn on_mark(&mut self, now: Now, replica: ReplicaId, frame: MarkFrame) -> Result<(), BadFrame> {
        let message = message_of::<P>(self.env.topology(), frame.body)?;
        let incoming = incoming_from(&mut self.incoming, replica)?;
        if incoming.is_streaming() {
            let after = StreamPosition {
                incarnation: frame.incarnation,
                number: frame.after,
            };
            incoming.arrive_mark(after, message)?;
            self.drain(now, replica);
        }
        Ok(())
    }

    fn on_returned(&mut self, now: Now, replica: ReplicaId, frame: ReturnedFrame) -> Result<(), BadFrame> {
        let me = self.id;
        let incoming = incoming_from(&mut self.incoming, replica)?;
        for entry in frame.entries {
            let (key, version) = entry::decode_entry::<P::Meta>(entry, self.env.topology())?;
            if version.id.replica != me {
                return Err(BadFrame::new(
                    "versions of this site given back",
                    version.id.to_string(),
                ));
            }
            incoming.pending.push(Item::Returned { key, version })?;
        }
        add_named(&mut incoming.returned_named, frame.named)?;
        if frame.end {
            let cut = cut_from_frames(&frame.withheld)?;
            self.env
                .topology()
                .check_replicas(cut.iter().map(|&(replica, _)| replica).collect())?;
            incoming.pending.push(Item::ReturnedEnd(Recovered {
                cut,
                named: std::mem::take(&mut incoming.returned_named),
                ..Recovered::default()
            }))?;
        }
        self.drain(now, replica);
        Ok(())
    }

    fn on_copy_begin(
        &mut self,
        now: Now,
        replica: ReplicaId,
        frame: &CopyBeginFrame,
    ) -> Result<(), BadFrame> {
        if !self.env.shared().has_room() {
            return Err(BadFrame::new("room for a full copy", "a disk that is full"));
        }
        let copied = Recovered {
            cut: cut_from_frames(&frame.cut)?,
            ..Recovered::default()
        };
        let mut places = frame.received.iter().chain(&frame.held);
        places.try_for_each(|place| place.check())?;
        let received: BTreeMap<_, _> = frame.received.iter().map(|received| received.parts()).collect();
        self.env
            .topology()
            .check_replicas(copied.cut.iter().map(|&(replica, _)| replica).collect())?;
        let newest = copied.cut.iter().map(|&(_, until)| until).max();
        let newest = newest.unwrap_or(Hlc::ZERO);
        not_beyond(self.horizon(now), newest)?;
        if !incoming_from(&mut self.incoming, replica)?.is_answered_by(frame.answers) {
            return Ok(());
        }
        if self.incoming.iter().any(|(&other, incoming)| {
            incoming
                .copy
                .as_ref()
                .is_some_and(|copy| other != replica || copy.state != CopyState::Arriving)
        }) {
            incoming_from(&mut self.incoming, replica)?.declined = true;
            return Ok(());
        }
        let incoming = incoming_from(&mut self.incoming, replica)?;
        incoming.drop_stream();
        incoming.copy = Some(CopyIn {
            resume: frame.resume.into(),
            copied,
            received,
            held: frame.held.iter().map(|held| held.parts()).collect(),
            is_partial: frame.is_partial,
            open: None,
            state: CopyState::Arriving,
        });
        tracing::info!(
            keyspace = self.env.name(),
            partition = self.me.partition,
            from = self.env.topology().replica_name(replica),
            "a full copy begins: the peer's log does not reach back to what this replica has, or its directory was empty"
        );
        match clear_staged(&*self.store.table()).map_err(StoreError::from) {
            // Rows that an earlier copy has left are damaged. The copy is asked for again when the node is opened anew.
            Err(error) if error.is_damage() => {
                self.note_damage(&error);
                let incoming = incoming_from(&mut self.incoming, replica)?;
                (incoming.copy, incoming.declined) = (None, true);
                Ok(())
            }
            cleared => cleared.map_err(|error| BadFrame::new("room for a full copy", error.to_string())),
        }
    }

    fn on_copy_rows(&mut self, now: Now, replica: ReplicaId, frame: CopyRowsFrame) -> Result<(), BadFrame> {
        let horizon = self.horizon(now);
        let table = self.store.table();
        let incoming = incoming_from(&mut self.incoming, replica)?;
        let Some(copy) = incoming
            .copy
            .as_mut()
            .filter(|copy| copy.state == CopyState::Arriving)
        else {
            return Ok(());
        };
        add_named(&mut copy.copied.named, frame.named)?;
        let mut staged: Vec<(Key, Chain<P::Meta>)> = Vec::new();
        for entry in frame.entries {
            let bytes = entry.len();
            let (key, version) = entry::decode_entry(entry, self.env.topology())?;
            not_beyond(horizon, entry::newest(&version))?;
            staged.extend(copy.take(key, version, bytes)?);
        }
        if frame.end {
            staged.extend(copy.open.take().map(OpenRow::close));
        }
        stage(&*table, &staged).map_err(|error| BadFrame::new("room for a full copy", error.to_string()))?;
        if frame.end {
            copy.state = CopyState::Whole;
            self.wake_worker();
        }
        Ok(())
    }

    // ---- what a source sends --------------------------------------------------------------------------------

    fn on_resume(&mut self, now: Now, from: ServerId, frame: ResumeFrame) -> Result<(), BadFrame> {
        let (replica, at) = (from.replica(), frame.at());
        let word = frame.word(self.env.topology())?;
        if let Some(cursor) = self.outgoing.cursor(replica) {
            cursor.heard_word = frame.word_number;
        }
        let held = frame.held.map(StreamPosition::from);
        self.hear_of_earlier_life([at, held.unwrap_or_default()], &word);
        self.hear_word(now, from, Hlc(frame.clock), word);
        // A copy under way is of no use any more; what is given back has nothing to do with this stream.
        if let Some(errands) = self.rows_out.get_mut(&replica) {
            errands.retain(|rows| matches!(rows.purpose, Purpose::Return(_)));
        }
        if let Some(errands) = self.rows_wanted.get_mut(&replica) {
            errands.retain(|errand| matches!(errand.purpose, Purpose::Return(_)));
        }
        // Who lacks rows sends no copy, and may wait until the peer has taken in its stream.
        let forgets = self.repair.is_none()
            && self.has_forgotten()
            && !self.env.shared().config.planted.replays_to_the_empty;
        // A copy waits until it is known whether this directory is an old one.
        let resumption = match self.outgoing.resume(replica, at, forgets || !self.may_give()) {
            // What is to be taken back comes first.
            Resumption::Stream if frame.copy.is_some() => {
                self.outgoing.silence(replica);
                Resumption::Copy
            }
            resumption => resumption,
        };
        // A peer that lacks rows gives nothing back: it comes once more when it has them.
        if matches!(resumption, Resumption::Stream | Resumption::Copy)
            && frame.copy.is_none()
            && let Some(held) = held
            && let Some(since) = self.outgoing.lost(replica, held)
        {
            return self.take_held(now, from, at, (held, since));
        }
        if matches!(resumption, Resumption::Stream | Resumption::Copy) {
            self.settle_peer(replica);
            self.end_unheard(now);
        }
        match resumption {
            Resumption::Stream => self.wake_links(turnbuckle_core::ReplicaSet::one(replica)),
            Resumption::TakeBack { since, .. } => {
                tracing::warn!(
                    keyspace = self.env.name(),
                    peer = self.env.topology().replica_name(replica),
                    "the end of this node's log was lost; taking back from the peer what it holds since {since}"
                );
                let frame = TakeBackFrame { since: since.0 };
                self.say(from, StreamBody::TakeBack(frame));
            }
            Resumption::Copy => {
                let behind = frame.copy.map(StreamPosition::from);
                self.want_copy(replica, behind, at.number);
            }
            Resumption::FromTheFuture => {
                check_begun(&self.env, now, at)?;
                self.begin_anew(from, at);
            }
        }
        Ok(())
    }

    /// The peer holds more of this lane's stream than the lane remembers: its directory was lost, or is an old copy. A new
    /// incarnation begins beyond what the peer has seen, and the peer gives back everything that this site ever wrote.
    fn begin_anew(&mut self, peer: ServerId, at: StreamPosition) {
        tracing::warn!(
            keyspace = self.env.name(),
            partition = self.me.partition,
            peer = self.env.topology().replica_name(peer.replica()),
            "the peer holds more of this node's stream than this node does: its data directory was lost or is an old one. \
             Taking back from the peer what this site wrote"
        );
        let Some(opened) = self.begin_incarnation(at.incarnation + 1) else {
            return;
        };
        if let Some(cursor) = self.outgoing.cursor(peer.replica()) {
            // Only where the directory was empty is it known what the peer has of the lives before.
            cursor.set_state(CursorState::TakingBack {
                end: (opened.start == 1).then_some(0),
            });
        }
        let frame = TakeBackFrame { since: Hlc::ZERO.0 };
        self.say(peer, StreamBody::TakeBack(frame));
    }

    fn begin_incarnation(&mut self, number: u64) -> Option<Incarnation> {
        let opened = self.outgoing.begin(number, self.replica.clock());
        let logged = self.log_incarnation(opened);
        let logged = logged.inspect_err(|error| {
            tracing::error!(
                keyspace = self.env.name(),
                "a new incarnation cannot be written: {error}"
            );
        });
        logged.is_ok().then_some(opened)
    }

    /// Full copies of third sites have brought the peer what this lane wrote and lost. It gives that back before anything else.
    fn take_held(
        &mut self,
        now: Now,
        peer: ServerId,
        at: StreamPosition,
        (held, since): (StreamPosition, Hlc),
    ) -> Result<(), BadFrame> {
        check_begun(&self.env, now, held)?;
        tracing::warn!(
            keyspace = self.env.name(),
            partition = self.me.partition,
            peer = self.env.topology().replica_name(peer.replica()),
            "the peer holds what this node has lost, by a full copy of another site; taking it back since {since}"
        );
        let is_behind = held.incarnation >= self.outgoing.incarnation();
        if is_behind && self.begin_incarnation(held.incarnation + 1).is_none() {
            return Ok(());
        }
        if let Some(cursor) = self.outgoing.cursor(peer.replica()) {
            cursor.set_state(CursorState::TakingHeld { at, held });
        }
        let frame = TakeBackFrame { since: since.0 };
        self.say(peer, StreamBody::TakeBack(frame));
        Ok(())
    }

    /// That is on disk. The peer says once more where it is.
    pub(crate) fn took_held(&mut self, replica: ReplicaId, at: StreamPosition, held: StreamPosition) {
        if let Some(cursor) = self.outgoing.cursor(replica) {
            cursor.gave = held;
            cursor.set_state(CursorState::Silent);
        }
        let peer = self.me.peer(replica);
        self.say(peer, StreamBody::TakenBack(at.into()));
    }

    /// A peer is to be sent a full copy, of whose stream `has` is all that it has taken in.
    pub(crate) fn want_copy(&mut self, replica: ReplicaId, behind: Option<StreamPosition>, has: u64) {
        // The log is kept from where the next checkpoint will be: what follows the copy is streamed. Of what a damaged table has lost, the log may have some.
        let resume = match self.repair {
            Some(_) => self.outgoing.oldest() - 1,
            None => self.outgoing.ready(),
        };
        self.outgoing.copy(replica, has, resume);
        let errand = Errand {
            behind,
            ..Errand::new(Purpose::Copy, has)
        };
        self.want_rows(replica, errand);
    }

    /// A checkpoint is done that covers what `purpose` asks for: its rows go out as the link takes them.
    pub fn begin_rows(
        &mut self,
        replica: ReplicaId,
        purpose: Purpose,
    ) -> Result<(), turnbuckle_store::EngineError> {
        let snapshot = self.store.table().snapshot()?;
        let (begin, purpose) = match purpose {
            Purpose::Return(lost) if !self.env.shared().config.planted.gives_back_what_was_deleted => {
                let forgettable = self.replica.protocol().shown();
                (None, Purpose::Return(TakeBack { forgettable, ..lost }))
            }
            Purpose::Return(_) => (None, purpose),
            Purpose::Copy => {
                let Some(meta) = self.checkpointed.clone() else {
                    return Ok(());
                };
                let state = self.outgoing.cursor(replica).map(|cursor| cursor.state);
                let number = match state {
                    // The log is streamed from there.
                    Some(CursorState::Copying { resume }) if self.repair.is_some() => resume,
                    _ => meta.next_position.max(1) - 1,
                };
                let incarnation = self.outgoing.incarnation_of(number);
                let resume = StreamPosition { incarnation, number };
                let answers = self
                    .outgoing
                    .cursor(replica)
                    .map_or(0, |cursor| cursor.heard_word);
                (
                    Some(CopyBeginFrame {
                        resume: resume.into(),
                        cut: meta.cut,
                        received: self.heard_in_full(meta.received),
                        is_partial: self.is_blank(),
                        held: meta.held,
                        answers,
                    }),
                    Purpose::Copy,
                )
            }
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
        self.rows_out.entry(replica).or_default().push_back(rows_out);
        self.wake_links(turnbuckle_core::ReplicaSet::one(replica));
        Ok(())
    }

    /// Puts frames for a peer into `out` until it holds `most_bytes` or there is nothing more. Returns whether there is more.
    pub fn fill(&mut self, peer: ServerId, out: &mut BytesMut, most_bytes: usize) -> bool {
        while out.len() < most_bytes {
            let begun = self
                .outgoing
                .cursor(peer.replica())
                .and_then(|cursor| cursor.begins.take());
            let begun = begun.map(|position| StreamBody::TakenBack(position.into()));
            let body = begun.or_else(|| self.next_rows(peer.replica()));
            let body = body.or_else(|| self.next_step(peer.replica()));
            let Some(body) = body else { return false };
            Frame::of_stream(self.env.tag(), self.me, peer, body).put(out);
        }
        true
    }

    fn next_step(&mut self, replica: ReplicaId) -> Option<StreamBody> {
        let mut step = self.outgoing.step(replica);
        while let Step::ReadLog { after, from } = step {
            step = self.read_log(replica, after, from)?;
        }
        match step {
            Step::Idle | Step::ReadLog { .. } => None,
            Step::Copy => {
                let has = self.outgoing.cursor(replica).map_or(0, |cursor| cursor.acked);
                self.want_copy(replica, None, has);
                None
            }
            Step::Entries {
                incarnation,
                previous,
                last,
                entries,
                numbers,
            } => Some(StreamBody::Entries(EntriesFrame {
                incarnation,
                previous,
                last,
                entries,
                numbers,
            })),
            Step::Mark {
                incarnation,
                after,
                body,
            } => Some(StreamBody::Mark(MarkFrame {
                incarnation,
                after,
                body,
            })),
        }
    }

    /// Entries for a peer that is behind what memory holds. `None` if the log has nothing to give now.
    fn read_log(&mut self, replica: ReplicaId, after: u64, from: Position) -> Option<Step> {
        let chunk = match self.env.shared().log().read(from, READ_BYTES) {
            Ok(chunk) => chunk,
            Err(error) => {
                tracing::warn!(
                    keyspace = self.env.name(),
                    "the log cannot be read back for a peer ({error}); it gets a full copy"
                );
                return Some(Step::Copy);
            }
        };
        if chunk.records.is_empty() {
            return None;
        }
        let mine = (
            self.env.tag(),
            u32::from(self.me.partition),
            u32::from(self.me.member),
        );
        let records = chunk
            .records
            .into_iter()
            .filter_map(|(_, bytes)| Record::parse(bytes).ok());
        let records: Vec<Record> = records.filter(|record| record.lane() == mine).collect();
        let entries: Vec<_> = records
            .iter()
            .flat_map(entries_of)
            .filter(|entry| entry.number > after)
            .collect();
        let step = self.outgoing.step_from_log(replica, &entries, chunk.next);
        Some(match step {
            // Records of other lanes only: read on.
            Step::Idle if entries.is_empty() => Step::ReadLog {
                after,
                from: chunk.next,
            },
            step => step,
        })
    }

    /// The next rows of a full copy or a take-back.
    fn next_rows(&mut self, replica: ReplicaId) -> Option<StreamBody> {
        let most_rows = self.env.shared().config.batch_keys;
        let errands = self.rows_out.get_mut(&replica)?;
        let rows_out = errands.front_mut()?;
        if let Some(begin) = rows_out.begin.take() {
            return Some(StreamBody::CopyBegin(begin));
        }
        let frame = match rows_out.next(replica, most_rows) {
            Ok(next) => next,
            Err(error) => {
                if !error.is_damage() {
                    tracing::error!(
                        keyspace = self.env.name(),
                        "the store cannot be read for a peer: {error}; it begins once more"
                    );
                }
                let purpose = rows_out.purpose;
                errands.pop_front();
                self.note_damage(&error);
                // The peer asks once more when this lane is opened anew.
                self.want_rows(replica, Errand::new(purpose, 0));
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
            errands.pop_front();
        }
        Some(body)
    }
}

/// What comes from a site.
fn incoming_from<P: Protocol>(
    incoming: &mut BTreeMap<ReplicaId, Incoming<P>>,
    replica: ReplicaId,
) -> Result<&mut Incoming<P>, BadFrame> {
    let unknown = || BadFrame::new("a peer at another site", replica.0.to_string());
    incoming.get_mut(&replica).ok_or_else(unknown)
}

/// A message of a peer, which names sites of the cluster alone.
fn message_of<P: Protocol>(topology: &Topology, bytes: Bytes) -> Result<P::Message, BadFrame> {
    let message = P::Message::decode(bytes)?;
    topology.check_replicas(message.replicas())?;
    Ok(message)
}

/// Incarnations are times of day. One that is yet to come would be followed by others that nobody believes.
fn check_begun(env: &Environment, now: Now, at: StreamPosition) -> Result<(), BadFrame> {
    let horizon = env.shared().config.horizon(now).wall();
    if at.incarnation > horizon.0 {
        let found = format!("{}: check both clocks", at.incarnation);
        return Err(BadFrame::new("an incarnation that can have begun", found));
    }
    Ok(())
}

/// What a full copy speaks of must be in the past: there is no waiting in the middle of one.
fn not_beyond(horizon: Hlc, newest: Hlc) -> Result<(), BadFrame> {
    if newest > horizon {
        let found = format!("{newest}: check both clocks");
        return Err(BadFrame::new(
            "timestamps not too far ahead of this node's clock",
            found,
        ));
    }
    Ok(())
}
