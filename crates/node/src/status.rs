use crate::{entry::Written, keyspace::Keyspace};
use std::{collections::BTreeMap, sync::atomic::Ordering};
use turnbuckle_core::{Hlc, Measured, Metric, Micros, Now, Protocol, ReplicaId, Vitals};
use turnbuckle_replication::{CursorState, StreamPosition};

/// What can be seen of a keyspace on a node.
#[derive(Debug, Clone, Default)]
pub struct KeyspaceStatus {
    /// Its name.
    pub name: String,
    /// Keys with a value.
    pub live_keys: u64,
    /// Keys whose delete is remembered: some site may not show it yet, or no checkpoint has forgotten it since.
    pub deleted_keys: u64,
    /// Of those the ones that were stamped below this wait for checkpoints alone.
    pub settled: Hlc,
    /// Versions in memory, in bytes.
    pub memory_bytes: u64,
    /// What of it no checkpoint has yet, in bytes.
    pub dirty_bytes: u64,
    /// Requests that wait, parked or for a key from disk.
    pub parked: u64,
    /// The newest of its replicas' clocks.
    pub clock: Hlc,
    /// What its replicas say of themselves.
    pub vitals: Vitals,
    /// What its protocol counts of its own, by name.
    pub measured: BTreeMap<&'static str, Measured>,
    /// What its replicas here have stamped since the node started.
    pub written: Written,
    /// Partitions here of which something on the disk cannot be read, or is not back yet from other sites; and what.
    pub damaged: Vec<(u16, String)>,
    /// Partitions here whose data directory was lost, and to which other sites have not given back what they had written; and which sites.
    pub lost: Vec<(u16, String)>,
    /// Its lanes' streams.
    pub streams: Vec<StreamStatus>,
}

/// The checkpoints of a node's life.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointCounts {
    /// One is being made.
    pub running: bool,
    /// How many were completed.
    pub completed: u64,
    /// How many failed; each was tried again.
    pub failed: u64,
    /// When the last one began that was completed, in monotonic time.
    pub last_at: Option<Micros>,
    /// How long it took.
    pub last_took: Micros,
}

/// What can be seen of one lane's streams to and from one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStatus {
    /// The partition.
    pub partition: u16,
    /// The peer's site.
    pub peer: ReplicaId,
    /// What the peer is being sent: `silent` (nothing: no link), `left-out` (nothing: its node does not have the
    /// keyspace), `streaming`, `copying` or `taking-back`.
    pub state: &'static str,
    /// The last entry of the stream to it.
    pub ready: u64,
    /// The last one that it is known to hold durably.
    pub acked: u64,
    /// For how long the oldest entry has been waiting for its acknowledgement.
    pub lag: Micros,
    /// How far the peer's own stream has been taken in here.
    pub received: StreamPosition,
    /// A full copy from the peer is under way.
    pub receiving_copy: bool,
    /// The peer's timestamps are too far ahead of this node's clock: its stream waits.
    pub held: bool,
}

impl<P: Protocol> Keyspace<P> {
    pub(crate) fn status(&self, now: Now) -> KeyspaceStatus {
        let settled = self.lanes().iter().map(|cell| cell.look().settled());
        let mut status = KeyspaceStatus {
            name: self.name().to_string(),
            settled: settled.min().unwrap_or(Hlc::ZERO),
            ..KeyspaceStatus::default()
        };
        for cell in self.lanes() {
            let lane = cell.look();
            status.live_keys += lane.live_keys();
            status.deleted_keys += lane.store.deleted_keys();
            status.clock = status.clock.max(lane.replica.clock());
            status.vitals.merge(lane.replica.protocol().vitals(now));
            Metric::measure(lane.replica.protocol(), now, &mut status.measured);
            status.written.add(lane.records.written());
            status.memory_bytes += lane.store.memory_bytes();
            status.dirty_bytes += lane.store.dirty_bytes();
            let damage = lane.damage.clone().or(lane.repair_refusal());
            status.damaged.extend(damage.map(|why| (cell.me.partition, why)));
            let lost = lane.unheard_refusal();
            status.lost.extend(lost.map(|why| (cell.me.partition, why)));
            status.parked += (lane.replica.parked() + lane.cold.len()) as u64;
            for (peer, cursor) in lane.outgoing.cursors() {
                let Some(stream) = lane.incoming.stream(peer) else {
                    continue;
                };
                let state = match cursor.state {
                    CursorState::Silent if self.env().lacks(cell.me, peer) => "left-out",
                    CursorState::Silent => "silent",
                    CursorState::TakingBack { .. } | CursorState::TakingHeld { .. } => "taking-back",
                    CursorState::Copying { .. } => "copying",
                    CursorState::Streaming { .. } => "streaming",
                };
                status.streams.push(StreamStatus {
                    partition: cell.me.partition,
                    peer,
                    state,
                    ready: lane.outgoing.ready(),
                    acked: cursor.acked,
                    lag: lane.outgoing.lag(peer, now.monotonic),
                    received: stream.received(),
                    receiving_copy: lane.incoming.copy().is_some_and(|copy| copy.from == peer),
                    held: lane.incoming.is_ahead(peer),
                });
            }
        }
        status
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.lanes()
            .iter()
            .map(|cell| cell.dirty_bytes.load(Ordering::Relaxed))
            .sum()
    }
}
