use crate::{entry::Written, keyspace::Keyspace};
use std::{collections::BTreeMap, sync::atomic::Ordering};
use turnbuckle_core::{
    Forwarding, GroupStatus, Hlc, Measured, Metric, Micros, Now, Protocol, ReplicaId, Vitals,
};
use turnbuckle_replication::{CursorState, StreamPosition};

/// The status of a keyspace on a node.
#[derive(Debug, Clone, Default)]
pub struct KeyspaceStatus {
    /// The keyspace's name.
    pub name: String,
    /// The number of keys with a value.
    pub live_keys: u64,
    /// The number of keys whose delete is remembered: some site may not show it yet, or no checkpoint has forgotten it since.
    pub deleted_keys: u64,
    /// The number of keys with a value that expires at some time, or that has expired and was not forgotten since.
    pub expiring_keys: u64,
    /// Whether something is written down that may be forgotten by now: the next checkpoint forgets it.
    pub has_expired: bool,
    /// What was over below this waits only for checkpoints.
    pub forgettable: Hlc,
    /// The size of the versions in memory, in bytes.
    pub memory_bytes: u64,
    /// The size of those versions in memory that no checkpoint has yet, in bytes.
    pub dirty_bytes: u64,
    /// The number of requests that wait, parked or for a key from disk.
    pub parked: u64,
    /// The newest of the clocks of its replicas on this node.
    pub clock: Hlc,
    /// The vitals of its replicas on this node.
    pub vitals: Vitals,
    /// The protocol's own metrics, by name.
    pub measured: BTreeMap<&'static str, Measured>,
    /// The versions that its replicas on this node have stamped since the node started.
    pub written: Written,
    /// Partitions of which something on this node's disk cannot be read, or is not back yet from other sites, each with the reason.
    pub damaged: Vec<(u16, String)>,
    /// Partitions that wait since a start with an empty data directory: it was lost and other sites have not restored its versions yet, or
    /// no other site was heard. Each has the reason, which names the sites.
    pub lost: Vec<(u16, String)>,
    /// Partitions that have just started and wait for the word of other sites, whose requests wait as well. It takes two seconds at most if
    /// the data directory is whole.
    pub waiting: Vec<u16>,
    /// Of each replica on this node whose partition elects a leader: the partition, and what the replica knows.
    pub groups: Vec<(u16, GroupStatus)>,
    /// Of each leader on this node whose site has a group of its own: the partition, and how far the group of another site is.
    pub forwards: Vec<(u16, Forwarding)>,
    /// The streams of its lanes on this node.
    pub streams: Vec<StreamStatus>,
}

/// The checkpoints of a node since it started.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointCounts {
    /// Whether a checkpoint is being made.
    pub running: bool,
    /// The number of checkpoints that were completed.
    pub completed: u64,
    /// The number of checkpoints that failed. Each was tried again.
    pub failed: u64,
    /// When the last completed checkpoint began, in monotonic time.
    pub last_at: Option<Micros>,
    /// How long the last completed checkpoint took.
    pub last_took: Micros,
}

/// The status of one lane's streams to and from one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStatus {
    /// The partition's number.
    pub partition: u16,
    /// The peer: a replica of the same partition.
    pub peer: ReplicaId,
    /// What the peer is being sent: `silent` (nothing: no link), `left-out` (nothing: its node does not have the keyspace), `streaming`,
    /// `copying` or `taking-back`.
    pub state: &'static str,
    /// The number of the last entry of this lane's stream that is durable.
    pub ready: u64,
    /// The number of the last entry that the peer is known to hold durably.
    pub acked: u64,
    /// For how long the oldest entry has waited for the peer's acknowledgement.
    pub lag: Micros,
    /// The position up to which the peer's own stream has been taken in here.
    pub received: StreamPosition,
    /// Whether a full copy from the peer is under way.
    pub receiving_copy: bool,
    /// Whether the peer's stream waits because its timestamps are too far ahead of this node's clock.
    pub held: bool,
}

impl<P: Protocol> Keyspace<P> {
    pub(crate) fn status(&self, now: Now) -> KeyspaceStatus {
        let forgettable = self.lanes().iter().map(|cell| cell.look().forgettable());
        let mut status = KeyspaceStatus {
            name: self.name().to_string(),
            forgettable: forgettable.min().unwrap_or(Hlc::ZERO),
            ..KeyspaceStatus::default()
        };
        for cell in self.lanes() {
            let lane = cell.look();
            status.live_keys += lane.live_keys();
            status.deleted_keys += lane.store.deleted_keys();
            status.expiring_keys += lane.store.expiring_keys();
            status.has_expired |= lane.has_expired();
            status.clock = status.clock.max(lane.replica.clock());
            status.vitals.merge(lane.replica.protocol().vitals(now));
            Metric::measure(lane.replica.protocol(), now, &mut status.measured);
            status.written.add(lane.records.written());
            status.memory_bytes += lane.store.memory_bytes();
            status.dirty_bytes += lane.store.dirty_bytes();
            let damage = lane.damage.clone().or(lane.repair_refusal());
            status.damaged.extend(damage.map(|why| (cell.me.partition, why)));
            if lane.is_in_startup_wait() {
                status.waiting.push(cell.me.partition);
            }
            let lost = lane.startup_wait_refusal();
            status.lost.extend(lost.map(|why| (cell.me.partition, why)));
            let group = lane.replica.protocol().group();
            status
                .groups
                .extend(group.map(|group| (cell.me.partition, group)));
            status.parked += (lane.replica.parked() + lane.cold.len()) as u64;
            let forwards = lane.replica.protocol().forwards(now).into_iter();
            let of_lane = |forwarding| (cell.me.partition, forwarding);
            status.forwards.extend(forwards.map(of_lane));
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
