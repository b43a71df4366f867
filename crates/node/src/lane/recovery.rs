//! A lane is opened: from its last checkpoint, and from the records of the log behind it.
use super::Lane;
use crate::{
    entry::Made,
    error::ReplayError,
    record::{Record, Replayed},
};
use turnbuckle_core::{Hlc, Journal, Now, Protocol, Replica, Replication, Versions};
use turnbuckle_log::{LogError, Position};
use turnbuckle_replication::Incarnation;

impl<P: Protocol> Lane<P> {
    /// Makes the lane skip the log's records: it has not served yet, or its records were set aside and are replayed from there.
    pub fn skip_log(&mut self) {
        self.checkpoints.covered = Position(u64::MAX);
        self.checkpoints.is_wanted = true;
    }

    /// Makes the lane take a checkpoint before it serves.
    pub fn want_checkpoint(&mut self) {
        self.checkpoints.is_wanted = true;
    }

    /// Replays a record of this lane, which begins at `from` in the log.
    pub fn replay(&mut self, record: Record, from: Position) -> Result<(), ReplayError> {
        // The checkpoints of other lanes may be older, so the log may begin earlier than this lane needs. Records that this lane's
        // checkpoint covers must not be replayed: a delete that was collected since would not be there to hide the versions that it
        // deleted.
        if from < self.checkpoints.covered {
            return Ok(());
        }
        let mut number = record.first_position;
        if let Some(streams) = &mut self.streams {
            streams.replay(record.given_back);
        }
        if let Some(opened) = record.opened {
            self.outgoing.replay_incarnation(opened.into())?;
        }
        for received in &record.received {
            let (replica, position) = received.parts();
            self.incoming.replay(replica, position);
        }
        self.incoming.hold(record.held.iter().map(|held| held.parts()));
        for write in record.writes {
            let streamed = (!write.to().is_empty()).then(|| write.clone().stream_entry(number));
            let Some(write) = self.beside.replay(write.replay::<P::Meta>(self.env.topology())?) else {
                continue;
            };
            match write {
                Replayed::Put {
                    mut decoded,
                    floor,
                    is_first,
                } => {
                    self.store.load(&decoded.key)?;
                    self.in_log.replay_bound(decoded.version.id.at);
                    let planted = &self.env.shared().config.planted;
                    let is_any = planted.builds_on_any_share;
                    let is_first = is_first && !planted.revives_forgotten_rows;
                    let made = decoded.make_whole(self.store.chain(decoded.key.as_ref()), is_any);
                    // Else the checkpoint has the effects of later records, or the row is lost and comes again from peers.
                    if made == Made::Whole {
                        let version = decoded.version.under_floor(floor);
                        self.store.replay(&decoded.key, &version, is_first);
                    }
                }
                Replayed::Hint => {}
                Replayed::Drop { key, rank } => {
                    self.store.load(&key)?;
                    self.store.remove(key.as_ref(), rank);
                }
                Replayed::Bound(bound) => self.in_log.replay_bound(bound),
                Replayed::Named { .. }
                | Replayed::Append { .. }
                | Replayed::Truncate(_)
                | Replayed::Purge(_) => unreachable!("they are kept beside versions"),
            }
            if let Some(entry) = streamed {
                self.outgoing.replay(entry, from)?;
                number += 1;
            }
        }
        self.store.evict(16);
        Ok(())
    }

    /// After recovery: begins a new incarnation of the stream, to be synced before the lane does anything else. The replica continues above
    /// everything that its earlier lives may have stamped.
    pub fn begin(&mut self, now: Now, protocol: &P::Config) -> Result<(), ReplayError> {
        self.begin_repair();
        let seed = self.env.shared().config.seed;
        let cut = self.replica.protocol().cut();
        self.incoming.cover(&cut);
        let mut recovered = self.recovered(cut);
        let journal = self.beside.take_journal();
        // Rows that are damaged may be those of the journal, too.
        let is_forgotten = recovered.lacks_rows && P::DESCRIPTOR.replication == Replication::Consensus;
        recovered.journal = match journal {
            _ if is_forgotten => Journal::default(),
            journal => journal.map_err(|index| ReplayError::Journal {
                keyspace: self.env.name().to_string(),
                partition: self.me.partition,
                index,
            })?,
        };
        if is_forgotten {
            recovered.named.clear();
        }
        if recovered.lacks_rows {
            // The named state describes rows that are missing. The replica writes the names that it needs again.
            self.beside.clear_named();
        }
        if self.env.shared().config.planted.clock_goes_back {
            self.in_log.forget_bound();
        }
        self.replica = Replica::open(
            protocol,
            self.me,
            self.env.topology().clone(),
            self.in_log.bound(),
            &recovered,
            seed,
        );
        self.begin_differences();
        self.cover_what_was_here();
        if self.env.shared().config.validate {
            self.replica.validate_always();
        }
        if self.env.shared().config.planted.positions_reused && self.outgoing.incarnation() > 0 {
            return Ok(());
        }
        self.begin_life(now);
        let opened = self.outgoing.begin(now.wall.reading.0, self.recovered_until());
        self.append_incarnation(opened);
        Ok(())
    }

    fn append_incarnation(&mut self, opened: Incarnation) {
        let bound = self.in_log.bound();
        let mut record = self.records.of_bound::<P>(self.env.tag(), self.me, bound);
        record.opened = Some(opened.into());
        self.append_record(&record);
    }

    /// Shares that were stamped up to now are no base of later ones: peers may have newer shares of this replica, which it has lost.
    fn begin_differences(&mut self) {
        let life = match self.env.shared().config.planted.builds_on_any_share {
            true => Hlc::ZERO,
            false => self.in_log.bound().max(self.replica.clock()),
        };
        self.records.begin_life(life);
    }

    /// Writes an incarnation into the log in the middle of a life, and syncs it.
    pub(super) fn log_incarnation(&mut self, opened: Incarnation) -> Result<(), LogError> {
        self.moved = true;
        self.begin_differences();
        self.append();
        self.append_incarnation(opened);
        self.env.shared().log().write()?;
        self.env.shared().log().sync()?;
        Ok(())
    }
}
