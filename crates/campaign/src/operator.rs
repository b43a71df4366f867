//! Carries out the faults. Each has a thread of its own, so that they overlap, and in the end each puts right what it did.
//!
//! These limits leave a chance of progress, and all promises rest on them:
//!
//! - At most [`MAX_NODES_DOWN`] of the six nodes are down or paused at the same time.
//! - Data directories are lost one at a time: the next one only when the last node has everything again, and while no other node is down.
//!   What two nodes lose at the same time may have been nowhere else.
//! - If a campaign has a protocol that rests on clocks that never go back, a clock that is set back stands still instead, and its node is
//!   not restarted meanwhile.
use crate::{
    cluster::{Cluster, NODES, NODES_OF_A_SITE, RETAINED_LOG_MIB, Start, lock, node_name, nodes_of},
    directory,
    fault::{Fault, Planned},
    notes::{Event, Loss, Notes, WrongClock},
    recorder::Recorder,
    watch::Watch,
};
use std::{
    io,
    sync::{
        Mutex, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The most nodes that may be down or paused at the same time.
const MAX_NODES_DOWN: usize = 3;
/// How long a node stays away at most until its peers have purged their logs.
const BEHIND_PATIENCE: Duration = Duration::from_secs(20);
/// How long a node waits until no other one is down.
const ALONE_PATIENCE: Duration = Duration::from_secs(20);
/// How long a node may take until it has everything again. After that, faults stop waiting for it.
const WHOLE_PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take until a node has read its file of faults, and until its earlier answers have arrived.
const CLOCK_SLACK_NS: i64 = 1_000_000_000;

/// The operator: see the module.
pub struct Operator<'a> {
    cluster: &'a Cluster,
    watch: &'a Watch,
    recorder: Recorder,
    stop: &'a AtomicBool,
    /// The number of long deaths at the moment. While there is one, clients write as fast as they can.
    hurry: &'a AtomicUsize,
    /// Held while a node has not got back everything that it lost.
    loses: Mutex<()>,
    /// The nodes whose clocks and disks are wrong.
    clocks: Mutex<[bool; NODES]>,
    disks: Mutex<[bool; NODES]>,
    down: AtomicUsize,
    /// Whether a node waits until no other one is down.
    is_reserved: AtomicBool,
    notes: Mutex<Notes>,
}

/// The reason why a fault could not be carried out.
type LeftOut = &'static str;

impl<'a> Operator<'a> {
    /// An operator that stops when told to.
    pub fn new(
        cluster: &'a Cluster,
        watch: &'a Watch,
        recorder: Recorder,
        stop: &'a AtomicBool,
        hurry: &'a AtomicUsize,
    ) -> Operator<'a> {
        Operator {
            cluster,
            watch,
            recorder,
            stop,
            hurry,
            loses: Mutex::default(),
            clocks: Mutex::default(),
            disks: Mutex::default(),
            down: AtomicUsize::new(0),
            is_reserved: AtomicBool::new(false),
            notes: Mutex::default(),
        }
    }

    /// Carries out the faults of a round, and returns when all of them are over.
    pub fn run(&self, planned: &[Planned], begun: Instant) {
        std::thread::scope(|scope| {
            for next in planned {
                let due = begun + Duration::from_millis(next.at_ms);
                self.wait(due.saturating_duration_since(Instant::now()));
                if self.is_over() {
                    return;
                }
                scope.spawn(move || self.carry_out(next));
            }
        });
    }

    /// Takes what was noted since the last call.
    pub fn take_notes(&self) -> Notes {
        std::mem::take(&mut *lock(&self.notes))
    }

    fn carry_out(&self, planned: &Planned) {
        let at_seconds = self.recorder.seconds();
        let mut fault = planned.fault.clone();
        if let Fault::LostDirectory { node, .. } = &mut fault {
            // So that other nodes can be damaged after it.
            *node = self.damaged().unwrap_or(*node);
        }
        let done = match fault {
            Fault::Kill {
                node,
                down_ms,
                is_long,
            } => self.kill(&[node], down_ms, is_long),
            Fault::KillSite { site, down_ms } => {
                self.kill(&nodes_of(site).collect::<Vec<_>>(), down_ms, false)
            }
            Fault::Cut { one, other, for_ms } => {
                self.cluster.cut(one, other, true);
                self.wait_ms(for_ms);
                self.cluster.cut(one, other, false);
                Ok(())
            }
            Fault::Pause { node, for_ms } => self.pause(node, for_ms),
            Fault::Clock {
                node,
                offset_us,
                for_ms,
            } => self.clock(node, offset_us, for_ms),
            Fault::FullDisk { node, for_ms } => self.full_disk(node, for_ms),
            Fault::LostDirectory { node, down_ms } => self.lose_directory(node, down_ms),
            Fault::OldDirectory {
                node,
                age_ms,
                down_ms,
            } => self.restore_old(node, age_ms, down_ms),
            Fault::Damage { node, draw } => self.damage(node, draw),
        };
        let event = Event {
            at_seconds,
            until_seconds: self.recorder.seconds(),
            kind: planned.kind,
            what: fault.to_string(),
            left_out: done.err(),
        };
        lock(&self.notes).events.push(event);
    }

    // ---- kinds of faults --------------------------------------------------------------------------------------

    fn kill(&self, nodes: &[usize], down_ms: u64, is_long: bool) -> Result<(), LeftOut> {
        let _taken = self.take(nodes)?;
        nodes.iter().for_each(|&node| self.cluster.kill(node));
        self.wait_ms(down_ms);
        if is_long {
            self.hurry.fetch_add(1, Ordering::AcqRel);
            self.wait_until_left_behind(nodes);
            self.hurry.fetch_sub(1, Ordering::AcqRel);
        }
        nodes.iter().for_each(|&node| self.start(node));
        Ok(())
    }

    fn pause(&self, node: usize, for_ms: u64) -> Result<(), LeftOut> {
        let _taken = self.take(&[node])?;
        self.cluster.pause(node, true);
        self.wait_ms(for_ms);
        self.cluster.pause(node, false);
        Ok(())
    }

    fn clock(&self, node: usize, offset_us: i64, for_ms: u64) -> Result<(), LeftOut> {
        // A running node ignores a jump this large, so its receipts are still judged. If a node were started meanwhile, it would believe
        // its clock.
        let is_far = offset_us.unsigned_abs() >= FAR_US;
        let never_back = self.rests_on_clocks() && !is_far;
        // If it were restarted meanwhile, it would see time go back.
        let _taken = match never_back || is_far {
            true => Some(self.take(&[node])?),
            false => None,
        };
        let _wrong = Flag::set(&self.clocks, node).ok_or("its clock is wrong already")?;
        let from_ns = self.recorder.now_ns();
        self.world(self.cluster.set_clock(node, offset_us));
        self.wait_ms(for_ms);
        self.world(self.cluster.set_clock(node, 0));
        if offset_us.unsigned_abs() >= CLOCK_BOUND_US && !is_far {
            let tail_ns = offset_us.saturating_abs().saturating_mul(1_000);
            let to_ns = self.recorder.now_ns() + tail_ns + CLOCK_SLACK_NS;
            lock(&self.notes).wrong_clocks.push(WrongClock { from_ns, to_ns });
        }
        if never_back {
            std::thread::sleep(Duration::from_micros(offset_us.unsigned_abs()) + Duration::from_millis(100));
        }
        Ok(())
    }

    fn full_disk(&self, node: usize, for_ms: u64) -> Result<(), LeftOut> {
        let _full = Flag::set(&self.disks, node).ok_or("its disk is full already")?;
        self.world(self.cluster.set_disk_full(node, true));
        self.wait_ms(for_ms);
        self.world(self.cluster.set_disk_full(node, false));
        Ok(())
    }

    fn lose_directory(&self, node: usize, down_ms: u64) -> Result<(), LeftOut> {
        let _loses = self.may_lose()?;
        self.no_other_is_damaged(node)?;
        let taken = self.take_alone(node)?;
        self.empty(node, i64::MIN);
        self.wait_ms(down_ms);
        self.start(node);
        drop(taken);
        self.wait_until_whole(node);
        Ok(())
    }

    fn restore_old(&self, node: usize, age_ms: u64, down_ms: u64) -> Result<(), LeftOut> {
        let _loses = self.may_lose()?;
        self.no_other_is_damaged(node)?;
        let kept = self.cluster.data(node).with_extension("old");
        let taken = self.take(&[node])?;
        self.cluster.kill(node);
        let copied_ns = self.recorder.now_ns();
        self.world(directory::replace(&self.cluster.data(node), &kept));
        self.start(node);
        drop(taken);
        self.wait_ms(age_ms);
        let taken = self.take_alone(node)?;
        self.note_loss(node, copied_ns);
        self.cluster.kill(node);
        self.world(directory::replace(&kept, &self.cluster.data(node)));
        self.wait_ms(down_ms);
        self.start(node);
        drop(taken);
        self.wait_until_whole(node);
        if self.cluster.is_outdated(node) {
            let taken = self.take_alone(node)?;
            self.empty(node, i64::MIN);
            self.start(node);
            drop(taken);
            self.wait_until_whole(node);
        }
        Ok(())
    }

    fn damage(&self, node: usize, draw: u64) -> Result<(), LeftOut> {
        let _loses = self.may_lose()?;
        self.no_other_is_damaged(node)?;
        let taken = self.take_alone(node)?;
        let before_ns = self.watch.handed_on_ns(node);
        self.cluster.kill(node);
        let to_ns = self.recorder.now_ns();
        let Ok(true) = self.cluster.damage(node, draw) else {
            self.start(node);
            return Err("it has no table file yet");
        };
        match self.cluster.start(node) {
            Ok(Start::Ready) => {}
            Ok(Start::Refused(words)) => {
                if !says_what_to_do(&words) {
                    self.broken(format!(
                        "{} refused to start on a damaged table file and did not say what to do: {words}",
                        node_name(node)
                    ));
                }
                lock(&self.notes).losses.push(Loss {
                    node,
                    from_ns: before_ns,
                    to_ns,
                });
                self.world(self.cluster.empty(node));
                self.start(node);
            }
            other => self.not_started(node, &format!("{other:?}")),
        }
        drop(taken);
        self.wait_until_whole(node);
        Ok(())
    }

    // ---- steps ------------------------------------------------------------------------------------------------

    /// A node that has a damaged table, and may not have met the damage yet.
    fn damaged(&self) -> Option<usize> {
        (0..NODES).find(|&node| self.cluster.is_damaged(node))
    }

    /// A damaged row on a disk is lost, but that is not known before it is read. So while one node has such a row, no other node may lose
    /// anything.
    fn no_other_is_damaged(&self, node: usize) -> Result<(), LeftOut> {
        match self.damaged().is_some_and(|damaged| damaged != node) {
            true => Err("a table of another node may be damaged"),
            false => Ok(()),
        }
    }

    /// Kills a node and empties its directory. Everything that it had acknowledged up to `min_ns` is safe in any case.
    fn empty(&self, node: usize, min_ns: i64) {
        self.note_loss(node, min_ns);
        self.cluster.kill(node);
        self.world(self.cluster.empty(node));
    }

    /// Notes that the node is about to be killed, and that what it has not handed on will be gone.
    fn note_loss(&self, node: usize, min_ns: i64) {
        let from_ns = self.watch.handed_on_ns(node).max(min_ns);
        // The node acknowledges writes until it is really dead.
        let to_ns = self.recorder.now_ns() + CLOCK_SLACK_NS;
        lock(&self.notes).losses.push(Loss { node, from_ns, to_ns });
    }

    /// Starts a node that must start.
    fn start(&self, node: usize) {
        match self.cluster.start(node) {
            Ok(Start::Ready) => return,
            Ok(Start::Refused(words)) => self.not_started(node, &words),
            Ok(Start::Hangs) => self.not_started(node, "it was not ready within a minute"),
            Err(error) => self.not_started(node, &error.to_string()),
        }
        // The campaign cannot go on without the node: it continues with an empty directory.
        self.empty(node, i64::MIN);
        if !matches!(self.cluster.start(node), Ok(Start::Ready)) {
            self.not_started(node, "and not on an empty directory either");
        }
    }

    fn not_started(&self, node: usize, why: &str) {
        self.broken(format!("{} did not start again: {why}", node_name(node)));
    }

    /// Waits until the peers have written more than their logs keep for nodes that are away.
    fn wait_until_left_behind(&self, nodes: &[usize]) {
        let is_peer = |other: &usize| {
            let holds_the_same = |&node: &usize| node % NODES_OF_A_SITE == other % NODES_OF_A_SITE;
            !nodes.contains(other) && nodes.iter().any(holds_the_same)
        };
        let mut written: Vec<Written> = (0..NODES).filter(is_peer).map(Written::by).collect();
        let begun = Instant::now();
        while begun.elapsed() < BEHIND_PATIENCE && !self.is_over() {
            written.iter_mut().for_each(|written| written.look(self.cluster));
            if written
                .iter()
                .all(|written| written.bytes > (2 * RETAINED_LOG_MIB) << 20)
            {
                return;
            }
            self.wait_ms(200);
        }
    }

    /// Waits until a node that has just been started has handed on everything, and has everything that its peers have handed on to it.
    fn wait_until_whole(&self, node: usize) {
        let (begun, since_ns) = (Instant::now(), self.recorder.now_ns());
        while begun.elapsed() < WHOLE_PATIENCE && !self.is_over() && !self.watch.is_whole(node, since_ns) {
            self.wait_ms(100);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Takes the right to lose a directory.
    fn may_lose(&self) -> Result<impl Drop + '_, LeftOut> {
        match self.loses.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err("a node has not yet got back everything that it lost"),
        }
    }

    /// Takes nodes down, if enough others are up.
    fn take(&self, nodes: &[usize]) -> Result<Taken<'_>, LeftOut> {
        match self.is_reserved.load(Ordering::Acquire) {
            true => Err("a node is about to lose its directory"),
            false => self.take_some(nodes),
        }
    }

    fn take_some(&self, nodes: &[usize]) -> Result<Taken<'_>, LeftOut> {
        let mut taken = Taken {
            operator: self,
            nodes: Vec::new(),
        };
        for &node in nodes {
            if !self.cluster.claim(node) {
                return Err("another fault has claimed the node");
            }
            taken.nodes.push(node);
            if self.down.fetch_add(1, Ordering::AcqRel) >= MAX_NODES_DOWN {
                return Err("the limit of nodes that are down at once is reached");
            }
        }
        Ok(taken)
    }

    /// Takes a node down when no other one is down. Until then, no other one is taken down.
    fn take_alone(&self, node: usize) -> Result<Taken<'_>, LeftOut> {
        let _reserved = Reserved::new(&self.is_reserved);
        let begun = Instant::now();
        while self.down.load(Ordering::Acquire) > 0 {
            if begun.elapsed() > ALONE_PATIENCE || self.is_over() {
                return Err("other nodes are down");
            }
            self.wait_ms(20);
        }
        self.take_some(&[node])
    }

    fn rests_on_clocks(&self) -> bool {
        let mut keyspaces = self.cluster.keyspaces().iter();
        keyspaces.any(|keyspace| !keyspace.protocol.descriptor().tolerates_clock_steps)
    }

    fn broken(&self, what: String) {
        lock(&self.notes).broken.push(what);
    }

    /// If the campaign's own files cannot be written, no result means anything: panics.
    fn world(&self, done: io::Result<()>) {
        if let Err(error) = done {
            panic!("the campaign's directory: {error}");
        }
    }

    fn wait_ms(&self, ms: u64) {
        self.wait(Duration::from_millis(ms));
    }

    /// Waits, but not beyond the end of the round.
    fn wait(&self, span: Duration) {
        let until = Instant::now() + span;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left.min(Duration::from_millis(20)));
        }
    }
}

/// The amount of log that a node has written since it was first looked at.
struct Written {
    node: usize,
    /// The node's last report, in bytes. It counts from the node's start.
    last: Option<u64>,
    bytes: u64,
}

impl Written {
    fn by(node: usize) -> Written {
        Written {
            node,
            last: None,
            bytes: 0,
        }
    }

    fn look(&mut self, cluster: &Cluster) {
        let Some(status) = cluster.status(self.node) else {
            return;
        };
        let now = status.log.appended_bytes_total;
        self.bytes += now.saturating_sub(self.last.filter(|&last| last <= now).unwrap_or(now));
        self.last = Some(now);
    }
}

/// Keeps other nodes from being taken down until it is dropped.
struct Reserved<'a>(&'a AtomicBool);

impl<'a> Reserved<'a> {
    fn new(flag: &'a AtomicBool) -> Reserved<'a> {
        flag.store(true, Ordering::Release);
        Reserved(flag)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// How far a clock may be off without its node being wrong about it, in microseconds: `clock_bound_ms` is 10.
const CLOCK_BOUND_US: u64 = 9_000;

/// A jump of this number of microseconds or more is a far one.
pub(crate) const FAR_US: u64 = 60_000_000;

/// Nodes that are taken down until it is dropped.
struct Taken<'a> {
    operator: &'a Operator<'a>,
    nodes: Vec<usize>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for &node in &self.nodes {
            self.operator.down.fetch_sub(1, Ordering::AcqRel);
            self.operator.cluster.release(node);
        }
    }
}

/// The flag of a node, which is set until it is dropped.
struct Flag<'a> {
    flags: &'a Mutex<[bool; NODES]>,
    node: usize,
}

impl<'a> Flag<'a> {
    fn set(flags: &'a Mutex<[bool; NODES]>, node: usize) -> Option<Flag<'a>> {
        let was = std::mem::replace(&mut lock(flags)[node], true);
        (!was).then_some(Flag { flags, node })
    }
}

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        lock(self.flags)[self.node] = false;
    }
}

/// Whether a node that refuses its data says what the operator can do.
fn says_what_to_do(words: &str) -> bool {
    words.contains("empty") || words.contains("estore")
}
