//! The threads that wait for disks, so that event loops need not.
use super::Host;
use std::{
    panic::resume_unwind,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};
use turnbuckle_core::Micros;
use turnbuckle_node::{Haste, SyncWish, Work, WorkError};

/// How many threads read keys that are not in memory.
const FETCHERS: usize = 2;

/// How often the maintenance thread checks whether a checkpoint is due without being woken.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long maintenance works before it rests, and the longest rest. The disk may be slow.
const REST_AFTER: Micros = Micros(500);
const LONGEST_REST: Micros = Micros(20_000);

/// The niceness of the threads that write tables, which are maintenance and those of the engine. 0 is that of all others, and 19 the greatest.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// The longest pause before failed background work is tried again.
const MAX_PAUSE: Duration = Duration::from_secs(5);

pub(super) fn start(host: &Arc<Host>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let mut threads = vec![spawn(host, "sync", sync)?, spawn(host, "maintain", maintain)?];
    for _ in 0..FETCHERS {
        threads.push(spawn(host, "fetch", fetch)?);
    }
    Ok(threads)
}

fn spawn(host: &Arc<Host>, name: &str, work: fn(&Host)) -> std::io::Result<JoinHandle<()>> {
    let host = Arc::clone(host);
    Builder::new()
        .name(format!("{}-{name}", host.name))
        .spawn(move || work(&host))
}

/// Syncs the commit log when an operation waits for that, and as often as the keyspaces' durability asks. Everything else that waits for a sync waits for the
/// next of those: the interval limits what a power loss takes, and is no reason to sync more often.
fn sync(host: &Host) {
    let is_due = || match host.node.wants_sync() {
        SyncWish::Now => true,
        SyncWish::Soon => !host.syncs_by_interval,
        SyncWish::None => false,
    };
    let mut seen = 0;
    let mut last = Instant::now();
    while !host.workers_stopping.load(Ordering::Acquire) {
        let left = host.sync_every.saturating_sub(last.elapsed());
        if !is_due() && !left.is_zero() {
            seen = host.wakes.sync().wait(seen, left);
            continue;
        }
        last = Instant::now();
        let has_unsynced = host.syncs_by_interval && host.node.unsynced_bytes() > 0;
        if host.node.wants_sync() != SyncWish::None || has_unsynced {
            if let Err(error) = host.node.sync().run(|| host.clock.now()) {
                host.fail(&format!("the commit log cannot be synced: {error}"));
                return;
            }
            host.syncs.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Does checkpoints and full copies. If that fails, it is tried again after growing pauses, and logged once.
fn maintain(host: &Host) {
    give_way();
    let mut seen = 0;
    let mut said = String::new();
    let mut pause = LOOK_EVERY;
    let mut has_ballast = false;
    while !host.workers_stopping.load(Ordering::Acquire) {
        has_ballast = has_ballast || host.keep_ballast();
        host.node.note_synced();
        match without_haste(host, host.node.maintain()) {
            Ok(done) => {
                if !said.is_empty() {
                    tracing::warn!(node = host.name, "background work goes on again");
                    (said, pause) = (String::new(), LOOK_EVERY);
                }
                if done {
                    host.commit();
                } else {
                    seen = host.wakes.workers().wait(seen, LOOK_EVERY);
                }
            }
            Err(error @ WorkError::Damaged { .. }) => return host.restart(&error.to_string()),
            Err(error) if error.is_final() => return host.fail(&error.to_string()),
            Err(error) => {
                let why = error.to_string();
                if why != said {
                    tracing::error!(
                        node = host.name,
                        "background work failed and will be tried again: {why}"
                    );
                    said = why;
                }
                rest(host, pause);
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
}

/// Does all steps of maintenance. It rests between them if they are not urgent ([`Haste`]). Otherwise a checkpoint takes a processor for seconds, and operations wait for it, or for a
/// lane that it has locked when the system takes the processor from it.
fn without_haste<T>(host: &Host, mut work: Work<T>) -> T {
    let mut worked = Micros(0);
    let mut looked = host.clock.monotonic();
    loop {
        let began = host.clock.now();
        if began.monotonic >= looked + Micros(LOOK_EVERY.as_micros() as u64) {
            looked = began.monotonic;
            host.node.note_synced();
        }
        if let Poll::Ready(result) = work.step(began) {
            return result;
        }
        worked = worked + host.clock.monotonic().since(began.monotonic);
        if worked >= REST_AFTER {
            let is_stopping = host.workers_stopping.load(Ordering::Acquire);
            let rest = match host.node.haste() {
                _ if is_stopping => Micros(0),
                Haste::None => Micros(3 * worked.0),
                Haste::Some => worked,
                Haste::Great => Micros(0),
            };
            if rest > Micros(0) {
                std::thread::sleep(Duration::from_micros(rest.min(LONGEST_REST).0));
            }
            worked = Micros(0);
        }
    }
}

/// Lets the system prefer other threads to this one, and to those that it starts, where all processors are busy. Operations then wait for checkpoints less often.
///
/// A thread needs privileges to take this back. So it stays as it is under full load, too, where a checkpoint must still end before the log becomes too long. That is why [`NICENESS`] is small.
fn give_way() {
    // Elsewhere this would be about the whole process. If it is refused, operations wait for checkpoints as before.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

/// Does something in a thread that gives way to others, as all threads do that it starts.
pub(super) fn giving_way<T: Send>(name: String, work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = Builder::new().name(name).spawn_scoped(scope, || {
            give_way();
            work()
        })?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Returns after a pause, or when the node stops.
fn rest(host: &Host, pause: Duration) {
    let until = host.clock.monotonic() + Micros(pause.as_micros() as u64);
    while host.clock.monotonic() < until && !host.workers_stopping.load(Ordering::Acquire) {
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Reads from disk the keys that requests or streams wait for.
fn fetch(host: &Host) {
    let mut seen = 0;
    while !host.workers_stopping.load(Ordering::Acquire) {
        match host.node.fetch().run(|| host.clock.now()) {
            true => host.commit(),
            false => seen = host.wakes.workers().wait(seen, LOOK_EVERY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The niceness of this thread.
    #[cfg(target_os = "linux")]
    fn niceness() -> i32 {
        rustix::process::getpriority_process(None).expect("it is allowed")
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_gives_way_is_nicer_and_so_are_the_threads_that_it_starts() {
        let before = niceness();
        let both = giving_way("engine".to_owned(), || {
            (niceness(), std::thread::spawn(niceness).join().expect("it ends"))
        });
        let nicer = (before + NICENESS).min(19);
        assert_eq!(both.expect("a thread can be started"), (nicer, nicer));
        assert_eq!(niceness(), before);
    }

    #[test]
    fn a_panic_in_what_gives_way_is_a_panic_of_its_caller() {
        let panics = || giving_way("engine".to_owned(), || panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
    }
}
