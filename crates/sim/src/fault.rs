//! What goes wrong in a scenario, when, and for how long.
use crate::{World, file::offset_us};
use serde::Deserialize;
use std::str::FromStr;
use turnbuckle_core::{Micros, Session};
use turnbuckle_document::{number, word};
use turnbuckle_node::NodeId;

/// A fault at a time, and when it is put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When it begins, after the run has.
    pub at: Micros,
    /// How long it lasts.
    pub span: Micros,
    /// What it is.
    pub kind: FaultKind,
}

/// What can go wrong. Percents are of the usual; 100 changes nothing.
///
/// `N` names a node: by its number here, by text in a file. In a file, keyspaces count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultKind<N = NodeId> {
    /// A node's process ends, and takes so much with it. Restarted in the end.
    Crash {
        /// The node.
        node: N,
        /// What goes with it.
        #[serde(default, deserialize_with = "word")]
        loss: Loss,
    },
    /// `kill -9` in the middle of one of the next changes to the log.
    CrashWithinWrite {
        /// The node.
        node: N,
        /// How many more changes are whole.
        #[serde(default)]
        changes: u64,
    },
    /// All nodes at once.
    CrashAll {
        /// What goes with each.
        #[serde(default, deserialize_with = "word")]
        loss: Loss,
    },
    /// Nothing gets through between two nodes.
    Cut {
        /// One.
        a: N,
        /// The other.
        b: N,
    },
    /// Nothing gets from one to the other; the other way is open.
    OneWayCut {
        /// Who is not heard.
        from: N,
        /// By whom.
        to: N,
    },
    /// A node is cut off from all others.
    Isolate {
        /// Which.
        node: N,
    },
    /// Frames take longer from one node to another.
    SlowLink {
        /// The sender.
        from: N,
        /// The receiver.
        to: N,
        /// So much.
        #[serde(deserialize_with = "number::<_, 1, 1_000_000>")]
        percent: u64,
    },
    /// Of the frames from one to another that may be lost, so many of a million are.
    Loss {
        /// The sender.
        from: N,
        /// The receiver.
        to: N,
        /// How many.
        #[serde(deserialize_with = "number::<_, 0, 1_000_000>")]
        ppm: u64,
    },
    /// A node's process does nothing.
    Pause {
        /// Which.
        node: N,
    },
    /// A wall clock is set, and set back in the end.
    ClockStep {
        /// The node.
        node: N,
        /// By so much.
        #[serde(rename = "by", deserialize_with = "offset_us")]
        by_us: i64,
    },
    /// A wall clock is far off for a while, as somebody sets it by mistake. It is right again in the end, and also when the node starts meanwhile: whoever
    /// starts a node looks at its clock.
    ClockJump {
        /// The node.
        node: N,
        /// By so much.
        #[serde(rename = "by", deserialize_with = "offset_us")]
        by_us: i64,
    },
    /// A clock runs too fast. In the end it runs right; how far it is off by then stays.
    ClockDrift {
        /// The node.
        node: N,
        /// By so many microseconds a second.
        ppm: i64,
    },
    /// A disk takes longer to sync.
    SlowDisk {
        /// The node.
        node: N,
        /// So much.
        #[serde(deserialize_with = "number::<_, 1, 1_000_000>")]
        percent: u64,
    },
    /// A disk does not sync, and whoever needs it ends. Restarted in the end.
    SyncFails {
        /// The node.
        node: N,
    },
    /// Somebody else's file takes all of a disk but so many bytes. What the node writes takes these, and what it removes is free again.
    DiskFull {
        /// The node.
        node: N,
        /// So many.
        #[serde(default, rename = "free")]
        free_bytes: u64,
    },
    /// Work on one partition takes longer, at every site.
    SlowPartition {
        /// Which.
        partition: u16,
        /// So much.
        #[serde(deserialize_with = "number::<_, 1, 1_000_000>")]
        percent: u64,
    },
    /// Whatever a node sends to other nodes leaves so much later, in its order. Clients beside it notice nothing; those of other
    /// nodes do, who ask for what it holds.
    Late {
        /// Which.
        node: N,
        /// By so much.
        #[serde(deserialize_with = "word")]
        by: Micros,
    },
    /// A node is restarted with a configuration that leaves a keyspace out, and in the end with one that has it again.
    LeftOut {
        /// Which node.
        node: N,
        /// Which keyspace.
        keyspace: usize,
    },
    /// Some rows of a node's tables that lie beside each other are damaged. If nobody has read them until the end, they are looked for.
    Damage {
        /// The node.
        node: N,
        /// How many, at most.
        #[serde(default = "one", deserialize_with = "number::<_, 1, 1_000_000>")]
        rows: u64,
    },
    /// No fault: a node takes a checkpoint.
    Checkpoint {
        /// Which.
        node: N,
    },
    /// No fault: a copy of a node's data directory is made, which [`Loss::Old`] puts back.
    Backup {
        /// Which.
        node: N,
    },
}

/// The rows that are damaged if a file does not say how many.
fn one() -> u64 {
    1
}

/// What a crash takes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Loss {
    /// The process alone (`kill -9`): what was written is there.
    #[default]
    Process,
    /// The power fails: of what was not synced, any part is gone.
    Power,
    /// The data directory is empty: a new machine with an old name.
    Directory,
    /// The data directory is the last copy that was made of it, or empty if none was.
    Old,
}

/// By its name in scripts and in files of scenarios.
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
    /// Whether the data directory does not hold afterwards what it held.
    pub fn takes_directory(self) -> bool {
        matches!(self, Loss::Directory | Loss::Old)
    }
}

impl FaultKind {
    /// Whether it happens at a time, and is not put right.
    pub(crate) fn is_over_at_once(&self) -> bool {
        matches!(
            self,
            FaultKind::Checkpoint { .. } | FaultKind::Backup { .. } | FaultKind::Damage { .. }
        )
    }
}

impl<S: Session> World<S> {
    /// A fault begins. False if it was left out, because it takes a data directory while another one is not whole ([`World::may_lose`]).
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
        }
        true
    }

    /// A fault is put right.
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
            FaultKind::Checkpoint { .. } | FaultKind::Backup { .. } => {}
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

    /// A fault that lasts still does, after another one of its kind has been put right.
    pub(crate) fn sustain(&mut self, fault: &Fault) {
        match fault.kind {
            FaultKind::Pause { .. }
            | FaultKind::ClockStep { .. }
            | FaultKind::ClockJump { .. }
            | FaultKind::Checkpoint { .. }
            | FaultKind::Backup { .. }
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
