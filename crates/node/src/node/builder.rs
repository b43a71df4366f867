//! Builds and opens a node.
use super::{Lanes, Node};
use crate::{
    config::{KeyspaceConfig, NodeConfig},
    durability::Durability,
    error::OpenError,
    keyspace::Keyspace,
    lane::{Beside, Lane},
    left_out::{Aside, LeftOut},
    record::{CheckpointMeta, Record},
    shared::{Shared, Wake},
    steps::Work,
    table::table_name,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
};
use turnbuckle_core::{Now, Protocol, Replication, ServerId};
use turnbuckle_log::{Disk, Log, OpenError as LogOpenError, Options as LogOptions, Position, newest_segment};
use turnbuckle_replication::Repair;
use turnbuckle_store::{Beside as Rows, Engine, Options as StoreOptions, Store, StoreError, lacks_rows};

/// Each lane loads at least this part of the memory limit, also if the lanes before it have filled the memory. A small lane, all of which is in memory, never looks up
/// new keys on disk.
const LEAST_PART: u64 = 64;

/// If a keyspace's durability is `fsync`, the log makes room ahead of it: at most this number of bytes ([`LogOptions::ahead_bytes`]).
const MAX_AHEAD_BYTES: u64 = 1 << 20;

/// A node that is being built.
pub struct NodeBuilder {
    shared: Arc<Shared>,
    keyspaces: Vec<Arc<dyn Lanes>>,
    engine: Arc<dyn Engine>,
    disk: Arc<dyn Disk>,
    /// The names of the tables of the lanes that were added.
    served: BTreeSet<String>,
    /// The position from which the log is needed: the earliest that a lane's checkpoint names. `None` if no lane needs the log, because it
    /// has no checkpoint or its records were set aside.
    from: Option<Position>,
    asides: Vec<Aside>,
    /// Whether the durability of a lane's keyspace is `fsync`. (Some protocols also sync writes of other keyspaces.)
    has_fsync: bool,
    /// The memory of the versions that were loaded, in bytes.
    loaded_bytes: u64,
}

impl NodeBuilder {
    /// A node over this log disk and this engine.
    pub fn new(
        config: NodeConfig,
        disk: Arc<dyn Disk>,
        engine: Arc<dyn Engine>,
        wake: Arc<dyn Wake>,
    ) -> NodeBuilder {
        let shared = Arc::new(Shared::new(config, wake));
        NodeBuilder {
            shared,
            keyspaces: Vec::new(),
            engine,
            disk,
            served: BTreeSet::new(),
            loaded_bytes: 0,
            from: None,
            asides: Vec::new(),
            has_fsync: false,
        }
    }

    /// Adds a keyspace of a protocol, with those of its lanes that are placed on this node.
    pub fn keyspace<P: Protocol>(
        &mut self,
        config: KeyspaceConfig,
        protocol: P::Config,
    ) -> Result<Arc<Keyspace<P>>, OpenError> {
        let keyspace = Arc::new(Keyspace::<P>::new(config, protocol, self.shared.clone()));
        if let Some(other) = self.keyspaces.iter().find(|other| other.tag() == keyspace.tag()) {
            return Err(OpenError::SameTag(
                other.name().to_string(),
                keyspace.name().to_string(),
            ));
        }
        let servers = keyspace.servers();
        self.has_fsync |= keyspace.durability() == Durability::Fsync && !servers.is_empty();
        let lanes = servers.iter().map(|&server| self.lane(&keyspace, server));
        keyspace.set_lanes(lanes.collect::<Result<_, OpenError>>()?);
        self.keyspaces.push(keyspace.clone());
        Ok(keyspace)
    }

    /// Opens a lane from its last checkpoint, and from the records that were set aside of it.
    fn lane<P: Protocol>(&mut self, keyspace: &Keyspace<P>, server: ServerId) -> Result<Lane<P>, OpenError> {
        let bad = |why: String| OpenError::Store {
            keyspace: keyspace.name().to_string(),
            partition: server.partition,
            why,
        };
        let failed = |error: StoreError| match error.is_damage() {
            true => OpenError::Damaged {
                keyspace: keyspace.name().to_string(),
                partition: server.partition,
                why: error.to_string(),
            },
            false => bad(error.to_string()),
        };
        let name = table_name(keyspace.name(), server);
        let table = self.engine.open_table(&name)?;
        let limit = self.shared.config.memory_limit_bytes;
        let left = limit.saturating_sub(self.loaded_bytes);
        let options = StoreOptions {
            memory_limit_bytes: left.max(limit / LEAST_PART),
            history: P::DESCRIPTOR.history,
            short_lived: self.shared.config.short_lived,
            hash_seed: self.shared.config.seed,
        };
        let rows_beside = Rows::read(&*table).map_err(failed)?;
        let (store, meta) = Store::open(Arc::clone(&table), options).map_err(failed)?;
        self.loaded_bytes += store.memory_bytes();
        let parsed = meta.map(CheckpointMeta::parse).transpose();
        let parsed = parsed.map_err(|error| bad(error.to_string()))?;
        let lacks = lacks_rows(&*table)? && !self.shared.config.planted.serves_what_damage_left;
        let (is_new, meta) = (parsed.is_none(), parsed.unwrap_or_default());
        let aside = Aside::of(&*self.engine, &name, Position(meta.log_position))?;
        let repair = self.repair::<P>(keyspace, server, lacks, (!is_new).then_some(&meta));
        let beside = Beside::open(rows_beside, meta.journal_first);
        let (env, config) = (keyspace.env().clone(), keyspace.protocol());
        let mut lane = Lane::open(env, server, store, beside, &meta, repair, config);
        if let Some(aside) = &aside {
            aside.replay(|record, position| Ok(lane.replay(record, position)?))?;
        }
        if lacks {
            lane.want_checkpoint();
        }
        match is_new || aside.is_some() {
            true => lane.skip_log(),
            false => {
                let from = Position(meta.log_position);
                self.from = Some(self.from.map_or(from, |before| before.min(from)));
            }
        }
        self.asides.extend(aside);
        self.served.insert(name);
        Ok(lane)
    }

    /// The repair that a lane needs, if rows have to come from its peers. `lacks`: rows of its table are missing.
    fn repair<P: Protocol>(
        &self,
        keyspace: &Keyspace<P>,
        server: ServerId,
        lacks: bool,
        meta: Option<&CheckpointMeta>,
    ) -> Option<Repair> {
        let others = keyspace.topology().others_of(server).iter();
        let streams = P::DESCRIPTOR.replication == Replication::Streams;
        // Without streams nothing tells how much the other replicas have, so each of them must send a copy of its own.
        let is_emptied = meta.is_none() && !streams && !self.shared.config.is_first_life_of(keyspace.name());
        let has_others = !keyspace.topology().others_of(server).is_empty();
        match lacks || is_emptied {
            true if P::DESCRIPTOR.replication == Replication::Consensus => {
                has_others.then(Repair::by_protocol)
            }
            true => {
                Some(Repair::of_all(others, meta.is_some() && streams)).filter(|repair| !repair.is_over())
            }
            false => meta?.repair.as_ref().map(Repair::restore),
        }
    }

    /// Opens the log, replays what no checkpoint covers, begins a new incarnation of every stream, and starts the replicas.
    pub fn open(self, now: Now) -> Result<Arc<Node>, OpenError> {
        let segment_bytes = self.shared.config.segment_bytes;
        let options = LogOptions {
            segment_bytes,
            ahead_bytes: match self.has_fsync {
                true => MAX_AHEAD_BYTES.min(segment_bytes / 16),
                false => 0,
            },
            identity: self.shared.config.identity,
        };
        let mut left_out = match self.shared.config.planted.purges_what_is_left_out {
            false => LeftOut::find(&*self.engine, &self.served)?,
            true => LeftOut::default(),
        };
        let from = match [self.from, left_out.from()].into_iter().flatten().min() {
            Some(from) => from,
            None => newest_segment(&*self.disk)
                .map_err(LogOpenError::from)?
                .unwrap_or(Position(0)),
        };
        let mut failed: Option<OpenError> = None;
        let keyspaces = &self.keyspaces;
        let log = Log::open(self.disk, options, from, |position, bytes| {
            let record = Record::parse(bytes.clone())?;
            if failed.is_none() {
                let keyspace = keyspaces
                    .iter()
                    .find(|keyspace| keyspace.tag() == record.keyspace);
                let aside = left_out.take(&record, position, &bytes).map_err(OpenError::from);
                let replayed = keyspace.map_or(Ok(()), |keyspace| keyspace.replay(record, position));
                failed = aside.and(replayed.map_err(OpenError::from)).err();
            }
            Ok(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        left_out.finish(&*self.engine, log.end())?;
        if self.shared.config.planted.forgets_what_did_not_fit {
            log.plant_forgetfulness();
        }
        let start = log.start();
        self.shared.set_log(log);
        for keyspace in &self.keyspaces {
            keyspace.purged(start);
            keyspace.begin(now)?;
        }
        self.shared.log().write()?;
        self.shared.log().sync()?;
        for keyspace in &self.keyspaces {
            // A checkpoint of the lanes that want one: those that are new, or were left out before.
            let (keyspace, engine) = (Arc::clone(keyspace), Arc::clone(&self.engine));
            Work::new(|steps| keyspace.checkpoint(engine, true, steps)).run(|| now)?;
        }
        for keyspace in &self.keyspaces {
            keyspace.forget_lacks()?;
        }
        self.engine.persist()?;
        for aside in self.asides {
            aside.remove(&*self.engine)?;
        }
        let node = Node {
            shared: self.shared,
            keyspaces: self.keyspaces,
            engine: self.engine,
            checkpointed: AtomicU64::new(from.0),
            left_out_then: AtomicU64::new(0),
            opened: now.monotonic,
            maintaining: AtomicBool::new(false),
            checkpoints: Mutex::default(),
        };
        for keyspace in &node.keyspaces {
            keyspace.start(now);
        }
        Ok(Arc::new(node))
    }
}
