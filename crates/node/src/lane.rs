//! One replica with everything around it: its store, its records in the log, its stream, and the streams of its peers.
//!
//! ```text
//!   every protocol    inputs   handed to the replica, or parked until their keys are here (cold)
//!                     commit   what is staged becomes a record (records), and what waits for that is let go (in_log)
//!                     checkpoint, recovery, beside, forgetting
//!                     peer     links, and full copies over them: source, receiver, copies, rows, repair
//!   with streams      streams  what earlier lives may have lost, and what is waited for after a start
//! ```
//!
//! [`turnbuckle_replication`] holds the decisions of the two ends of a link that need only bytes: the lane asks it, and does what it says.
mod beside;
mod checkpoint;
mod cold;
mod commit;
mod copies;
mod effects;
mod forgetting;
mod in_log;
mod inputs;
mod peer;
mod planted;
mod receiver;
mod records;
mod recovery;
mod repair;
mod rows;
mod rows_in;
mod rows_out;
mod source;
mod streams;
mod waiting;
pub(crate) use beside::{Beside, Changes};
pub(crate) use effects::Effect;
pub(crate) use waiting::Question;

use crate::{environment::Environment, record::CheckpointMeta};
use checkpoint::Checkpoints;
use cold::Cold;
use in_log::InLog;
use planted::PlantedState;
use receiver::Arrived;
use records::Records;
use rows::Rows;
use std::collections::BTreeMap;
use streams::Streams;
use turnbuckle_core::{Hlc, Now, Protocol, Recovered, Replica, ReplicaId, Replication, ServerId, Versions};
use turnbuckle_log::Position;
use turnbuckle_replication::{Incoming, Outgoing, Repair};
use turnbuckle_store::Store;
use waiting::Waiting;

/// A lane. Everything here happens under its lock, in the order in which the lock was taken. Its effects are performed under the lock, too.
pub(crate) struct Lane<P: Protocol> {
    pub me: ServerId,
    /// The lane's replica, as its partition's other replicas name it.
    pub id: ReplicaId,
    pub env: Environment,
    /// The effects that the keyspace is to perform, in order.
    pub effects: Vec<Effect<P>>,
    pub replica: Replica<P>,
    pub store: Store<P::Meta>,
    /// What is kept beside versions: the journal, and the protocol's state by name.
    pub beside: Beside,
    pub cold: Cold<Waiting<P>>,
    /// The latest time that an input has come with.
    time: Now,
    /// Whether something may be staged, or was appended to the log, since the last `take_moved`.
    moved: bool,
    /// The bytes of the shares that differences have become since a batch was last written.
    made_bytes: usize,
    in_log: InLog,
    pub records: Records,
    pub checkpoints: Checkpoints,
    /// Set while rows are missing that are to come from peers.
    pub repair: Option<Repair>,
    /// Set if something in the lane's table cannot be read: the error, as text.
    pub damage: Option<String>,
    /// The lane's own stream, and how far each peer is in it. Without streams it has no entries, and tracks only which peers are sent a
    /// full copy.
    pub outgoing: Outgoing,
    /// The streams of its peers, and the full copy that arrives from one of them.
    pub incoming: Incoming<Arrived<P::Meta>, P::Message>,
    /// Rows that peers are sent, and the rows of a full copy that arrives.
    pub rows: Rows<P::Meta>,
    /// `None` for a protocol that replicates by messages of its own.
    streams: Option<Streams<P>>,
    planted: PlantedState,
}

impl<P: Protocol> Lane<P> {
    /// A lane over its store, as the last checkpoint left it.
    pub fn open(
        env: Environment,
        me: ServerId,
        store: Store<P::Meta>,
        beside: Beside,
        meta: &CheckpointMeta,
        repair: Option<Repair>,
        protocol: &P::Config,
    ) -> Lane<P> {
        let shared = env.shared();
        let (seed, stream) = (shared.config.seed, shared.config.stream);
        let id = me.replica();
        let others = env.topology().others_of(me);
        let mut outgoing = Outgoing::new(stream, others.iter());
        let lives = meta.incarnations.iter().map(|&record| record.into());
        outgoing.restore(meta.next_position, lives.collect());
        outgoing.restore_index(meta.index());
        let received: BTreeMap<_, _> = meta.received.iter().map(|record| record.parts()).collect();
        let returned_bytes = &shared.returned_bytes;
        let mut incoming = Incoming::new(others.iter(), &received, stream.window_bytes, returned_bytes);
        incoming.hold(meta.held.iter().map(|record| record.parts()));
        let mut recovered = Recovered {
            cut: meta.cut(),
            named: beside.named().clone(),
            ..Recovered::default()
        };
        let own = recovered.cut.iter().find(|(replica, _)| *replica == id);
        let own = own.map_or(Hlc::ZERO, |&(_, until)| until);
        if repair.as_ref().is_some_and(|repair| repair.is_blank) {
            recovered.cut.clear();
            recovered.lacks_rows = true;
        }
        let bound = Hlc(meta.bound);
        let has_streams = P::DESCRIPTOR.replication == Replication::Streams;
        Lane {
            me,
            id,
            effects: Vec::new(),
            replica: Replica::open(protocol, me, env.topology().clone(), bound, &recovered, seed),
            store,
            beside,
            cold: Cold::new(),
            time: Now::default(),
            moved: false,
            made_bytes: 0,
            in_log: InLog::new(bound),
            records: Records::new(),
            checkpoints: Checkpoints::restore(Position(meta.log_position)),
            repair,
            damage: None,
            outgoing,
            incoming,
            rows: Rows::new(),
            streams: has_streams.then(|| Streams::restore(id, own, meta.given_back)),
            planted: PlantedState::default(),
            env,
        }
    }

    /// The latest timestamp that is believed. It is never below this replica's own clock: a timestamp up to that cannot move the clock
    /// ahead, even after the wall clock was set back.
    pub fn horizon(&self, now: Now) -> Hlc {
        self.env.shared().config.horizon(now).max(self.replica.clock())
    }

    pub fn live_keys(&self) -> u64 {
        self.store.live_keys()
    }
}
