//! Background work, one step at a time.
//!
//! A checkpoint, a fetch, putting a full copy in place: each takes many steps, and between two of them other threads may act on the same
//! lanes. Bugs tend to be in these gaps. So the gaps are part of the code: work is an `async fn` that awaits [`Steps::next`] wherever a
//! disk takes time, and the driver decides when the next step is done.
//!
//! ```text
//!   the work            lock, take 512 rows | write them        | lock, take 512 rows | ...
//!   server's thread     step ------------- step --------------- step                        one after the other
//!   simulator           step      (2 ms)    step      (40 ms)   step                        events on the calendar
//! ```
//!
//! In the server, a thread does the steps one after the other ([`Work::run`]), and the disk is what takes time. In the simulator each step
//! is an event, and its duration is drawn. A crash is [`Work`] that is dropped.
//!
//! Nothing here does I/O by itself or waits for anything. `async` is only the way to write code that can stop in the middle. Work is
//! [`Send`], but the guard of a lock is not: the compiler refuses work that holds a lock from one step to the next.
//!
//! **Time.** Each step has the time at which it is done. A time that was read from a clock before a disk was waited for is too old to prove
//! anything with.
use crate::shared::lock;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};
use turnbuckle_core::Now;

/// Work whose result is a `T`, boxed, so that it can be kept beside other work.
pub(crate) type Stepping<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Background work of a node that is under way. See [`Node`](crate::Node) for its kinds.
///
/// To drop it is to stop in the middle, as in a crash. A node whose process goes on must do all work to its end.
#[must_use = "work does nothing by itself"]
pub struct Work<T> {
    future: Stepping<T>,
    steps: Steps,
}

impl<T> Work<T> {
    pub(crate) fn new<F>(begin: impl FnOnce(Steps) -> F) -> Work<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let steps = Steps::default();
        Work {
            future: Box::pin(begin(steps.clone())),
            steps,
        }
    }

    /// Does the next step, at time `now`. Once this has returned a result, there are no more steps.
    pub fn step(&mut self, now: Now) -> Poll<T> {
        *lock(&self.steps.now) = now;
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Does all steps, one after the other, each at the time that the clock shows.
    pub fn run(mut self, clock: impl Fn() -> Now) -> T {
        loop {
            if let Poll::Ready(result) = self.step(clock()) {
                return result;
            }
        }
    }
}

/// The part of [`Work`] that the work itself sees.
#[derive(Clone, Default)]
pub(crate) struct Steps {
    now: Arc<Mutex<Now>>,
}

impl Steps {
    /// The time of this step.
    pub fn now(&self) -> Now {
        *lock(&self.now)
    }

    /// Ends this step. Other threads may take the lane's lock now.
    pub async fn next(&self) {
        let mut has_ended = false;
        poll_fn(|_| match std::mem::replace(&mut has_ended, true) {
            false => Poll::Pending,
            true => Poll::Ready(()),
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Micros;

    #[test]
    fn each_step_has_its_own_time() {
        let mut work = Work::new(|steps| async move {
            let began = steps.now().monotonic;
            steps.next().await;
            (began, steps.now().monotonic)
        });
        let at = |us| Now {
            monotonic: Micros(us),
            ..Now::default()
        };
        assert_eq!(work.step(at(3)), Poll::Pending);
        assert_eq!(work.step(at(7)), Poll::Ready((Micros(3), Micros(7))));
    }
}
