//! Reads at level `bounded(t)`: when they can be answered, and what is said if not.
//!
//! A replica knows of each peer a *wall*: everything that the peer had acknowledged by this wall time is shown here. An answer reflects every
//! write that was acknowledged before the oldest of the walls. So a read at `bounded(t)` that begins at time b can be answered once all walls have
//! reached b - t. True time is not after the end of the clock's interval, so that end stands for b.
//!
//! ```text
//!   wall of b ------------------------x
//!   wall of c ---------------x                             the oldest: what was acknowledged until then is shown
//!                                |<------- t ------->|
//!                              b - t                 b     the read waits until the wall of c has reached b - t
//! ```
use crate::{Context, Micros, Protocol};

/// Whether a read at `bounded(t)` can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounded {
    /// What is proven is within the bound.
    Proven,
    /// It can be answered once all walls have reached this time.
    Once {
        /// That time.
        wall: Micros,
        /// Until when to wait for it, by the monotonic clock.
        deadline: Micros,
    },
    /// Waiting would not help, or its time is over, for this reason.
    Never(&'static str),
}

impl Bounded {
    /// Why a read whose time is over is not answered.
    pub const LATE: &str = "not every site was heard of in time";
}

impl<P: Protocol> Context<'_, P> {
    /// The answer that is given now reflects every write that was acknowledged this long before the request came, or longer, if everything that was
    /// acknowledged by each of these walls is shown. `None` if that is not known: see [`WallInterval::age_of_oldest`](crate::WallInterval::age_of_oldest).
    pub fn staleness(&self, walls: impl Iterator<Item = Micros>) -> Option<Micros> {
        let age = self.now.wall.age_of_oldest(walls)?;
        Some(age.since(self.waited))
    }

    /// Whether the request at hand, a read at `bounded(bound)`, can be answered now. It may wait for `patience` in all.
    pub fn bounded(
        &self,
        bound: Micros,
        patience: Micros,
        walls: impl Iterator<Item = Micros> + Clone,
    ) -> Bounded {
        if !self.proves() {
            return Bounded::Never("this replica does not have everything again that it had lost");
        }
        let began = self.now.wall.latest.since(self.waited);
        let needed = began.since(bound);
        match walls.clone().min().is_some_and(|oldest| oldest < needed) {
            true if self.waited >= patience => Bounded::Never(Bounded::LATE),
            true => Bounded::Once {
                wall: needed,
                deadline: self.now.monotonic + patience - self.waited,
            },
            false if self.staleness(walls).is_some() => Bounded::Proven,
            false => Bounded::Never("some clock is further from true time than the configuration assumes"),
        }
    }

    /// What is said to a client whose read at `bounded(bound)` cannot be answered: what could be proven, and why it is not more.
    pub fn unproven(&self, bound: Micros, walls: impl Iterator<Item = Micros>, why: &str) -> String {
        let proven = match self.staleness(walls).filter(|_| self.proves()) {
            Some(staleness) => format!(
                "it can be proven that the answer reflects every write that was acknowledged more than {} ms before the read began",
                staleness.0.div_ceil(1_000)
            ),
            None => "nothing can be proven about the answer".to_string(),
        };
        format!("bounded({bound}) cannot be given: {proven}; {why}")
    }
}
