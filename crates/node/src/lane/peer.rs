//! A lane and the nodes of its peers: links that come up and go down, the frames that arrive over them, and the frames that are sent.
use super::Lane;
use crate::{frame::Frame, record::Record};
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Hlc, Input, Now, Protocol, ReplicaId, ReplicaSet, ServerId, Wire};
use turnbuckle_log::Position;
use turnbuckle_replication::{EntriesFrame, MarkFrame, RowRequest, Step, StreamBody, StreamPosition};

/// The number of bytes of the log that are read at a time for a peer that lags.
const READ_BYTES: usize = 256 << 10;

impl<P: Protocol> Lane<P> {
    /// The link to a peer's node came up or went down.
    pub fn set_link(&mut self, now: Now, peer: ServerId, up: bool) {
        let replica = peer.replica();
        self.outgoing.silence(replica);
        self.rows.silence(replica);
        if self.incoming.stream(replica).is_none() {
            return;
        }
        let is_dropped = self.incoming.silence(replica);
        // A copy that has arrived whole is put in place first. After that the stream is asked for.
        let is_whole = self.incoming.copy().is_some_and(|copy| copy.from == replica);
        if up && !is_whole && !self.waits_for_copy(replica) {
            self.resume(replica);
        }
        if is_dropped {
            self.rows.arriving.clear();
            self.resume_declined();
            self.ask_for_copy();
        }
        self.step(now, Input::Link { peer, up });
    }

    /// Handles a message of another replica.
    pub fn on_message(&mut self, now: Now, from: ServerId, message: Bytes) -> Result<(), BadFrame> {
        let replica = from.replica();
        let message = self.decode_message(message)?;
        let newest = message.newest();
        if newest > self.horizon(now) {
            // A message may be lost: it is dropped.
            self.hold(replica, newest);
            return Ok(());
        }
        if from.site == self.me.site {
            self.incoming.note_in_time(replica);
        }
        self.hear(now, from, message);
        Ok(())
    }

    /// Decodes a message of a peer. It is an error if it names a site that the cluster does not have.
    pub(super) fn decode_message(&self, bytes: Bytes) -> Result<P::Message, BadFrame> {
        let message = P::Message::decode(bytes)?;
        self.env.topology().check_replicas(message.replicas())?;
        Ok(message)
    }

    /// Handles a stream's frame from a peer's server.
    pub fn on_body(&mut self, now: Now, from: ServerId, body: StreamBody) -> Result<(), BadFrame> {
        let replica = from.replica();
        match body {
            StreamBody::Entries(frame) => self.on_entries(now, replica, frame),
            StreamBody::Mark(frame) => self.on_mark(now, replica, frame),
            StreamBody::Ack(place) => {
                let number = StreamPosition::from(place).number;
                self.outgoing.acknowledge(replica, number);
                self.wake_links(ReplicaSet::one(replica));
                self.ask_for_copy();
                Ok(())
            }
            StreamBody::Resume(frame) => {
                self.on_resume(now, from, frame)?;
                self.ask_for_copy();
                Ok(())
            }
            StreamBody::TakeBack(frame) => {
                self.want_rows(replica, RowRequest::give_back(Hlc(frame.since)));
                self.give_nothing();
                Ok(())
            }
            StreamBody::Returned(frame) => self.on_returned(now, replica, frame),
            StreamBody::CopyBegin(frame) => self.on_copy_begin(now, replica, &frame),
            StreamBody::CopyRows(frame) => self.on_copy_rows(now, replica, frame),
            StreamBody::TakenBack(place) => self.on_taken_back(replica, place),
        }
    }

    // ---- what goes out --------------------------------------------------------------------------------------

    /// Puts frames for a peer into `out` until it holds `max_bytes` or there are none left. Returns whether there are more.
    pub fn fill(&mut self, peer: ServerId, out: &mut BytesMut, max_bytes: usize) -> bool {
        let replica = peer.replica();
        while out.len() < max_bytes {
            let begun = self
                .outgoing
                .cursor(replica)
                .and_then(|cursor| cursor.begins.take());
            let begun = begun.map(|position| StreamBody::TakenBack(position.into()));
            let body = begun.or_else(|| self.next_rows(replica));
            let body = body.or_else(|| self.next_step(replica));
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
                weight: _,
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

    /// Reads entries for a peer that is behind the entries in memory. `None` if the log has none for it now.
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
        let mine = self.empty_record().lane();
        let records = chunk.records.into_iter();
        let records = records.filter_map(|(_, bytes)| Record::parse(bytes).ok());
        let entries = records
            .filter(|record| record.lane() == mine)
            .flat_map(Record::into_entries);
        let entries: Vec<_> = entries.filter(|entry| entry.number > after).collect();
        let step = self.outgoing.step_from_log(replica, &entries, chunk.next);
        Some(match step {
            // Only records of other lanes: read on.
            Step::Idle if entries.is_empty() => Step::ReadLog {
                after,
                from: chunk.next,
            },
            step => step,
        })
    }
}
