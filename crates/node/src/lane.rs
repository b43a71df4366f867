//! One replica with everything around it: its store, its records in the log, its stream, and those of its peers.
//!
//! ```text
//!   every protocol    inputs   handed to the replica, or parked until their keys are here (cold)
//!                     commit   what is staged becomes a record (records), and what waits for that is let go (in_log)
//!                     checkpoint, recovery, beside, forgetting
//!                     peer     links, and full copies over them: source, receiver, copies, rows, repair
//!   with streams      streams  what earlier lives may have lost, and what is waited for after a start
//! ```
//!
//! What the two ends of a link decide by bytes alone is in [`turnbuckle_replication`]: the lane asks it, and does what it says.
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

/// A lane. Everything here happens under its lock, in the order in which the lock was taken; what it emits is handed on
/// under the lock too.
pub(crate) struct Lane<P: Protocol> {
    pub me: ServerId,
    /// Which of its partition's replicas it is.
    pub id: ReplicaId,
    pub env: Environment,
    /// What is to be done, in order.
    pub effects: Vec<Effect<P>>,
    pub replica: Replica<P>,
    pub store: Store<P::Meta>,
    /// What is kept beside versions.
    pub beside: Beside,
    pub cold: Cold<Waiting<P>>,
    /// The latest time that any input has come with.
    time: Now,
    /// Something may be staged, or is appended to the log.
    moved: bool,
    in_log: InLog,
    pub records: Records,
    pub checkpoints: Checkpoints,
    /// Rows are missing, and come from peers.
    pub repair: Option<Repair>,
    /// Something in its table cannot be read.
    pub damage: Option<String>,
    /// Its own stream, and how far each peer is in it. Without streams it has no entries, and says who is sent a full copy.
    pub outgoing: Outgoing,
    /// The streams of its peers, and the full copy that arrives from one of them.
    pub incoming: Incoming<Arrived<P::Meta>, P::Message>,
    /// What peers are sent and send row by row.
    pub rows: Rows<P::Meta>,
    /// None for a protocol that replicates by messages of its own.
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

    /// No timestamp beyond this is believed. What this replica's own clock has already shown drags it nowhere, also after its wall clock
    /// was set back.
    pub fn horizon(&self, now: Now) -> Hlc {
        self.env.shared().config.horizon(now).max(self.replica.clock())
    }

    pub fn live_keys(&self) -> u64 {
        self.store.live_keys()
    }
}
