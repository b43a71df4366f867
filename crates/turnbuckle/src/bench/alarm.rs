//! Waking up at a point in time, to the microsecond.
//!
//! tokio's timers count milliseconds. In an open loop a client would begin up to a millisecond late, and since latency
//! counts from the intended start, the benchmark would measure itself. Linux has timers that are files, which fit into
//! the same `epoll` as the sockets: no thread, no spinning. On other systems the precision is milliseconds.

use super::clock::Clock;
use std::io;

#[cfg(target_os = "linux")]
pub(crate) use linux::Alarm;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::Alarm;

#[cfg(target_os = "linux")]
mod linux {
    use super::{Clock, io};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::os::fd::OwnedFd;
    use tokio::io::{Interest, unix::AsyncFd};

    /// One client's alarm.
    pub(crate) struct Alarm {
        timer: AsyncFd<OwnedFd>,
        clock: Clock,
        /// The time at which it rings, if it is set.
        rings_ns: Option<u64>,
    }

    impl Alarm {
        /// An alarm by that clock.
        ///
        /// # Errors
        /// If the process may open no more files.
        pub(crate) fn new(clock: Clock) -> io::Result<Alarm> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            #[allow(
                deprecated,
                reason = "what replaces it is unsafe, for types that change their descriptor; an OwnedFd does not"
            )]
            let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
            Ok(Alarm {
                timer,
                clock,
                rings_ns: None,
            })
        }

        /// Returns when the clock shows `at_ns`, or earlier if it was asked for an earlier time before; never if there is no
        /// such time. May be dropped and called again.
        pub(crate) async fn wait(&mut self, at_ns: Option<u64>) -> io::Result<()> {
            let Some(at_ns) = at_ns else {
                return std::future::pending().await;
            };
            let now_ns = self.clock.now_ns();
            if at_ns <= now_ns {
                return Ok(());
            }
            // Deadlines move on with every operation and are hardly ever reached: an alarm that rings too early now and then
            // is cheaper than one system call each time.
            if self.rings_ns.is_none_or(|rings_ns| rings_ns > at_ns) {
                self.set(at_ns - now_ns)?;
                self.rings_ns = Some(at_ns);
            }
            loop {
                let mut guard = self.timer.readable().await?;
                let mut expirations = [0; 8];
                // Readiness may be left over from before it was set: only the read tells.
                match guard.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut expirations)?)) {
                    Ok(read) => {
                        self.rings_ns = None;
                        return read.map(|_| ());
                    }
                    Err(_would_block) => continue,
                }
            }
        }

        fn set(&self, left_ns: u64) -> io::Result<()> {
            let once = Itimerspec {
                it_interval: Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                it_value: Timespec {
                    tv_sec: i64::try_from(left_ns / 1_000_000_000).unwrap_or(i64::MAX),
                    tv_nsec: (left_ns % 1_000_000_000) as _,
                },
            };
            timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use super::{Clock, io};
    use std::time::Duration;

    /// One client's alarm.
    pub(crate) struct Alarm(Clock);

    impl Alarm {
        /// An alarm by that clock.
        pub(crate) fn new(clock: Clock) -> io::Result<Alarm> {
            Ok(Alarm(clock))
        }

        /// Returns when the clock shows `at_ns`; never if there is no such time. May be dropped and called again.
        pub(crate) async fn wait(&mut self, at_ns: Option<u64>) -> io::Result<()> {
            match at_ns {
                None => std::future::pending().await,
                Some(at_ns) => {
                    let left_ns = at_ns.saturating_sub(self.0.now_ns());
                    tokio::time::sleep(Duration::from_nanos(left_ns)).await;
                    Ok(())
                }
            }
        }
    }
}
