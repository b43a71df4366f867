//! What goes wrong in a scenario, when, and for how long.
use crate::{World, file::offset_us};
use serde::Deserialize;
use std::str::FromStr;
use turnbuckle_core::{Membership, Micros, Session, Wish};
use turnbuckle_document::{number, word};
use turnbuckle_node::NodeId;

/// A fault at a time, and when it is put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When it begins, counted from the beginning of the run.
    pub at: Micros,
    /// How long it lasts.
    pub span: Micros,
    /// What goes wrong.
    pub kind: FaultKind,
}

/// What can go wrong. Percentages are relative to the usual value; 100 changes nothing.
///
/// `N` names a node: by its number here, by text in a file. In a file, keyspaces count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultKind<N = NodeId> {
    /// The process of a node ends, and takes other data with it, depending on `loss`. It is restarted at the fault's end.
    Crash {
        /// The node.
        node: N,
        /// What is lost with the process.
        #[serde(default, deserialize_with = "word")]
        loss: Loss,
    },
    /// `kill -9` in the middle of one of the next changes to the log's files.
    CrashWithinWrite {
        /// The node.
        node: N,
        /// The number of changes that are completed before that.
        #[serde(default)]
        changes: u64,
    },
    /// The processes of all nodes end at the same time.
    CrashAll {
        /// What is lost with each process.
        #[serde(default, deserialize_with = "word")]
        loss: Loss,
    },
    /// Nothing gets through between two nodes, in either direction.
    Cut {
        /// One of the nodes.
        a: N,
        /// The other node.
        b: N,
    },
    /// Nothing gets through from one node to another. The other direction is open.
    OneWayCut {
        /// The node whose frames are not delivered.
        from: N,
        /// The node that does not receive them.
        to: N,
    },
    /// A node is cut off from all others.
    Isolate {
        /// The node.
        node: N,
    },
    /// Frames take longer from one node to another.
    SlowLink {
        /// The sender.
        from: N,
        /// The receiver.
        to: N,
        /// The delay, in percent of the usual.
        #[serde(deserialize_with = "number::<_, 1, 1_000_000>")]
        percent: u64,
    },
    /// Frames from one node to another are lost, if the seam lets them be lost.
    Loss {
        /// The sender.
        from: N,
        /// The receiver.
        to: N,
        /// The number of lost frames per million.
        #[serde(deserialize_with = "number::<_, 0, 1_000_000>")]
        ppm: u64,
    },
    /// The process of a node does nothing.
    Pause {
        /// The node.
        node: N,
    },
    /// A wall clock is set, and set back at the fault's end.
    ClockStep {
        /// The node.
        node: N,
        /// By this number of microseconds; negative: back.
        #[serde(rename = "by", deserialize_with = "offset_us")]
        by_us: i64,
    },
    /// A wall clock is far off for a while, as when an operator sets it by mistake. It is right again at the fault's end. It is also right
    /// when the node starts meanwhile: an operator who starts a node looks at its clock.
    ClockJump {
        /// The node.
        node: N,
        /// By this number of microseconds; negative: back.
        #[serde(rename = "by", deserialize_with = "offset_us")]
        by_us: i64,
    },
    /// A clock runs too fast. At the fault's end it runs right, but keeps the offset that it has by then.
    ClockDrift {
        /// The node.
        node: N,
        /// The number of microseconds that it gains per second.
        ppm: i64,
    },
    /// A disk takes longer to sync.
    SlowDisk {
        /// The node.
        node: N,
        /// The time to sync, in percent of the usual.
        #[serde(deserialize_with = "number::<_, 1, 1_000_000>")]
        percent: u64,
    },
    /// A disk does not sync, and a process that needs a sync ends. It is restarted at the fault's end.
    SyncFails {
        /// The node.
        node: N,
    },
    /// Another file takes all of a disk except for a number of bytes. What the node writes takes these, and what it removes is free again.
    DiskFull {
        /// The node.
        node: N,
        /// The number of bytes that are left.
        #[serde(default, rename = "free")]
        free_bytes: u64,
    },
    /// Work on one partition takes longer, at every site.
    SlowPartition {
        /// The number of the partition.
        partition: u16,
        /// The time that work takes, in percent of the usual.
        #[serde(deserialize_with = "number::<_, 1, 1_000_000>")]
        percent: u64,
    },
    /// Everything that a node sends to other nodes leaves later, in its order. Clients of that node notice nothing. Clients of other nodes
    /// do if they ask for data that it holds.
    Late {
        /// The node.
        node: N,
        /// The additional delay.
        #[serde(deserialize_with = "word")]
        by: Micros,
    },
    /// A node is restarted with a configuration that leaves a keyspace out, and in the end with one that has it again.
    LeftOut {
        /// The node.
        node: N,
        /// The number of the keyspace.
        keyspace: usize,
    },
    /// Some neighbouring rows of a node's tables are damaged. If no read has met them by the fault's end, they are searched for.
    Damage {
        /// The node.
        node: N,
        /// The most rows that are damaged.
        #[serde(default = "one", deserialize_with = "number::<_, 1, 1_000_000>")]
        rows: u64,
    },
    /// No fault: a node takes a checkpoint.
    Checkpoint {
        /// The node.
        node: N,
    },
    /// No fault: an operator wants the replicas of a node to lead.
    Lead {
        /// The node.
        node: N,
    },
    /// No fault: the replicas of a node hand their leadership over, as they do before the node is stopped.
    HandOver {
        /// The node.
        node: N,
    },
    /// No fault: an operator wants the replicas of a node to be voters, learners or no members of their groups.
    Member {
        /// The node.
        node: N,
        /// What they are to be.
        #[serde(rename = "as", deserialize_with = "word")]
        wanted: Membership,
    },
    /// No fault: a copy of a node's data directory is made. [`Loss::Old`] puts it back.
    Backup {
        /// The node.
        node: N,
    },
}

/// The number of damaged rows if a file does not say it.
fn one() -> u64 {
    1
}

/// What a crash takes, beside the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Loss {
    /// Nothing else (`kill -9`): everything that was written is there.
    #[default]
    Process,
    /// The power fails: any part of what was not synced is gone.
    Power,
    /// The data directory is empty: a new machine with an old name.
    Directory,
    /// The data directory is the last copy that was made of it, or empty if there is none.
    Old,
}

/// Parses the name that scripts and scenario files use.
impl FromStr for Loss {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Loss, &'static str> {
        match name {
            "process" => Ok(Loss::Process),
            "power" => Ok(Loss::Power),
            "lost" => Ok(Loss::Directory),
            "old" => Ok(Loss::Old),
            _ => Err("expected process, power, lost or old"),
        }
    }
}

impl Loss {
    /// Whether the data directory is afterwards not what it was before.
    pub fn takes_directory(self) -> bool {
        matches!(self, Loss::Directory | Loss::Old)
    }
}

impl FaultKind {
    /// Whether the fault happens at one time, and is not put right.
    pub(crate) fn is_over_at_once(&self) -> bool {
        matches!(
            self,
            FaultKind::Checkpoint { .. }
                | FaultKind::Backup { .. }
                | FaultKind::Damage { .. }
                | FaultKind::Lead { .. }
                | FaultKind::HandOver { .. }
                | FaultKind::Member { .. }
        )
    }
}

impl<S: Session> World<S> {
    /// Begins a fault. Returns false if the fault is left out, because it takes a data directory while another one is not whole
    /// ([`World::may_lose`]).
    pub fn begin(&mut self, fault: &Fault) -> bool {
        match fault.kind {
            FaultKind::Crash { node, loss } if loss.takes_directory() && !self.may_lose(node) => {
                return false;
            }
            FaultKind::CrashAll { loss } if loss.takes_directory() && self.options().one_loss_at_a_time => {
                return false;
            }
            FaultKind::Crash { node, loss } => self.crash(node, loss),
            FaultKind::CrashWithinWrite { node, changes } => self.crash_within_write(node, changes),
            FaultKind::CrashAll { loss } => self.nodes().for_each(|node| self.crash(node, loss)),
            FaultKind::Cut { a, b } => self.set_cut(a, b, true),
            FaultKind::OneWayCut { from, to } => self.set_one_way_cut(from, to, true),
            FaultKind::Isolate { node } => self.isolate(node, true),
            FaultKind::SlowLink { from, to, percent } => self.set_slow_link(from, to, percent),
            FaultKind::Loss { from, to, ppm } => self.set_loss(from, to, ppm),
            FaultKind::Pause { node } => self.pause(node, fault.span),
            FaultKind::ClockStep { node, by_us } => self.step_clock(node, by_us),
            FaultKind::ClockJump { node, by_us } => self.jump_clock(node, by_us),
            FaultKind::ClockDrift { node, ppm } => self.set_clock_drift(node, ppm),
            FaultKind::SlowDisk { node, percent } => self.set_slow_disk(node, percent),
            FaultKind::SyncFails { node } => self.set_sync_fails(node, true),
            FaultKind::DiskFull { node, free_bytes } => self.fill_disk(node, free_bytes),
            FaultKind::SlowPartition { partition, percent } => self.set_slow_partition(partition, percent),
            FaultKind::Late { node, by } => self.set_late(node, by),
            FaultKind::LeftOut { node, keyspace } => self.leave_out(node, keyspace, true),
            FaultKind::Damage { node, rows } => self.damage(node, rows),
            FaultKind::Checkpoint { node } => self.checkpoint(node),
            FaultKind::Backup { node } => self.backup(node),
            FaultKind::Lead { node } => self.wish(node, None, Wish::Lead),
            FaultKind::HandOver { node } => self.wish(node, None, Wish::HandOver),
            FaultKind::Member { node, wanted } => self.want_members(node, wanted, 2),
        }
        true
    }

    /// Puts a fault right.
    pub fn end(&mut self, fault: &Fault) {
        match fault.kind {
            FaultKind::Crash { node, .. } | FaultKind::CrashWithinWrite { node, .. } => self.restart(node),
            FaultKind::CrashAll { .. } => self.nodes().for_each(|node| self.restart(node)),
            FaultKind::Cut { a, b } => self.set_cut(a, b, false),
            FaultKind::OneWayCut { from, to } => self.set_one_way_cut(from, to, false),
            FaultKind::Isolate { node } => self.isolate(node, false),
            FaultKind::SlowLink { from, to, .. } => self.set_slow_link(from, to, 100),
            FaultKind::Loss { from, to, .. } => self.set_loss(from, to, 0),
            FaultKind::LeftOut { node, keyspace } => self.leave_out(node, keyspace, false),
            FaultKind::Checkpoint { .. }
            | FaultKind::Backup { .. }
            | FaultKind::Lead { .. }
            | FaultKind::HandOver { .. }
            | FaultKind::Member { .. } => {}
            FaultKind::Damage { node, .. } => self.find_damage(node),
            FaultKind::Pause { node } => self.resume(node),
            FaultKind::ClockStep { node, by_us } => self.step_clock(node, by_us.saturating_neg()),
            FaultKind::ClockJump { node, .. } => self.set_jumped_clock_right(node),
            FaultKind::ClockDrift { node, .. } => {
                let usual = self.options().clock_drifts_ppm.get(usize::from(node.0)).copied();
                self.set_clock_drift(node, usual.unwrap_or(0));
            }
            FaultKind::SlowDisk { node, .. } => self.set_slow_disk(node, 100),
            FaultKind::SyncFails { node } => {
                self.set_sync_fails(node, false);
                self.restart(node);
            }
            FaultKind::DiskFull { node, .. } => self.make_room(node),
            FaultKind::SlowPartition { partition, .. } => self.set_slow_partition(partition, 100),
            FaultKind::Late { node, .. } => self.set_late(node, Micros(0)),
        }
    }

    /// A fault that still lasts takes effect again, after another fault of its kind was put right.
    pub(crate) fn sustain(&mut self, fault: &Fault) {
        match fault.kind {
            FaultKind::Pause { .. }
            | FaultKind::ClockStep { .. }
            | FaultKind::ClockJump { .. }
            | FaultKind::Checkpoint { .. }
            | FaultKind::Backup { .. }
            | FaultKind::Lead { .. }
            | FaultKind::HandOver { .. }
            | FaultKind::Member { .. }
            | FaultKind::Damage { .. }
            | FaultKind::CrashWithinWrite { .. } => {}
            _ => {
                self.begin(fault);
            }
        }
    }

    fn isolate(&mut self, node: NodeId, cut: bool) {
        for other in self.nodes().filter(|&other| other != node) {
            self.set_cut(node, other, cut);
        }
    }
}
