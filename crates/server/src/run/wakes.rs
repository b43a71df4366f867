//! How threads and tasks of one node tell each other that there is something to do.
use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    time::Duration,
};
use tokio::sync::Notify;
use turnbuckle_core::Micros;
use turnbuckle_node::{NodeId, Wake};

/// Everything that can be woken: event loops, links, workers, and the thread that syncs the log.
pub(crate) struct Wakes {
    loops: Vec<Bell>,
    links: Vec<Bell>,
    /// Of links with urgent frames. Such a link's other bell is rung as well.
    at_once: Vec<Bell>,
    workers: Signal,
    sync: Signal,
    /// Until when the first loop sleeps, in monotonic microseconds.
    first_sleeps_until: AtomicU64,
}

/// Wakes one asynchronous task. However often it is rung, the task wakes once.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    notify: Notify,
}

impl Bell {
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.notify.notify_one();
        }
    }

    /// Whether it has been rung since the task last took notice.
    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// Whether it has been rung. From now on it has not.
    pub fn take(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Returns when the bell has been rung since the last call.
    pub async fn rung(&self) {
        while !self.take() {
            self.notify.notified().await;
        }
    }
}

impl Wakes {
    pub fn new(loops: usize, nodes: usize) -> Arc<Wakes> {
        let bells = |count| std::iter::repeat_with(Bell::default).take(count).collect();
        Arc::new(Wakes {
            loops: bells(loops),
            links: bells(nodes),
            at_once: bells(nodes),
            workers: Signal::default(),
            sync: Signal::default(),
            first_sleeps_until: AtomicU64::new(u64::MAX),
        })
    }

    /// The first loop is about to sleep until `deadline` returns a time. Returns that time.
    pub fn first_sleeps(&self, deadline: impl FnOnce() -> Micros) -> Micros {
        // Whoever sets an earlier timer from now on rings the bell: `deadline` may have been asked before.
        self.first_sleeps_until.store(u64::MAX, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let until = deadline();
        self.first_sleeps_until.store(until.0, Ordering::SeqCst);
        until
    }

    /// Another loop may have set a timer that is due at `deadline`. Wakes the first loop, which takes care of timers, if it sleeps for longer.
    pub fn timer_is_due(&self, deadline: impl FnOnce() -> Option<Micros>) {
        fence(Ordering::SeqCst);
        let deadline = deadline();
        if deadline.is_some_and(|deadline| deadline.0 < self.first_sleeps_until.load(Ordering::SeqCst)) {
            self.loops[0].ring();
        }
    }

    pub fn of_loop(&self, index: usize) -> &Bell {
        &self.loops[index]
    }

    pub fn of_link(&self, peer: NodeId) -> &Bell {
        &self.links[usize::from(peer.0)]
    }

    /// Rung when an operation waits for a frame of the link, or a mark is to be sent.
    pub fn of_link_at_once(&self, peer: NodeId) -> &Bell {
        &self.at_once[usize::from(peer.0)]
    }

    pub fn workers(&self) -> &Signal {
        &self.workers
    }

    pub fn sync(&self) -> &Signal {
        &self.sync
    }
}

impl Wake for Wakes {
    fn wake_loop(&self, index: usize) {
        self.loops[index].ring();
    }

    fn wake_link(&self, peer: NodeId) {
        self.links[usize::from(peer.0)].ring();
    }

    fn wake_link_at_once(&self, peer: NodeId) {
        self.at_once[usize::from(peer.0)].ring();
        self.wake_link(peer);
    }

    fn wake_worker(&self) {
        self.workers.raise();
    }

    fn wake_sync(&self) {
        self.sync.raise();
    }
}

/// Wakes threads: each thread sees every rise since it last looked.
#[derive(Default)]
pub(crate) struct Signal {
    risen: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    pub fn raise(&self) {
        *self.risen.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until the signal has risen above `seen`, at most for `max`. Returns how far it has risen.
    pub fn wait(&self, seen: u64, max: Duration) -> u64 {
        let risen = self.risen.lock().unwrap_or_else(PoisonError::into_inner);
        let (risen, _) = self
            .changed
            .wait_timeout_while(risen, max, |risen| *risen <= seen)
            .unwrap_or_else(PoisonError::into_inner);
        *risen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loop_is_woken_for_a_timer_that_is_due_before_it_wakes() {
        let wakes = Wakes::new(2, 1);
        wakes.first_sleeps(|| Micros(100));
        for (due, is_woken) in [(None, false), (Some(100), false), (Some(99), true)] {
            wakes.timer_is_due(|| due.map(Micros));
            assert_eq!(wakes.of_loop(0).take(), is_woken, "due at {due:?}");
        }
        // While it finds out how long to sleep.
        wakes.first_sleeps(|| {
            wakes.timer_is_due(|| Some(Micros(200)));
            Micros(100)
        });
        assert!(wakes.of_loop(0).take());
    }
}
