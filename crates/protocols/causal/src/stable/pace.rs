use turnbuckle_core::{Micros, Parameter, ReplicaId, Setting};

/// The partitions of a site share the pauses: on average, one of them sends a heartbeat behind what is written in this time, and not more often.
const HEARTBEAT_OF_A_SITE: Micros = Micros(125);

/// How often the replicas do what they do regularly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// How often a replica tells its peers how far it is, if nothing is written: the text's Delta.
    pub heartbeat: Micros,
    /// How often a site's partitions work out what is stable, if nothing is written: theta.
    pub theta: Micros,
    /// The time between two heartbeats of a partition that writes, and twice the time between two of its reports, on average. If it is not shorter than
    /// `heartbeat`, nothing is told sooner than at these intervals, as in the text.
    pub pause: Micros,
    /// How long a request may wait for something to become stable.
    pub patience: Micros,
    /// How often what is stable is written down, at least. After a restart, what was not written down may be hidden for a heartbeat. It cannot be
    /// collected before.
    pub keep_every: Micros,
}

impl Intervals {
    /// The pause, in a keyspace of this number of partitions. With many of them it is longer, so that what all of them send does not grow with their number.
    /// `None`: nothing is told sooner than at the intervals.
    pub fn pause_of(&self, partitions: u16) -> Option<Micros> {
        let pause = self
            .pause
            .max(Micros(u64::from(partitions) * HEARTBEAT_OF_A_SITE.0));
        Some(pause).filter(|pause| *pause < self.heartbeat)
    }

    /// Divides by `by` the intervals of what is done seldom.
    pub fn shrink(&mut self, by: u32) {
        self.keep_every = self.keep_every.shrunk(by);
    }

    /// The parameters that a keyspace's configuration may set. `of` returns the fields of the configuration.
    pub const fn parameters<C: Default>(of: [fn(&mut C) -> Setting<'_>; 4]) -> [Parameter<C>; 4] {
        let [heartbeat, theta, pause, patience] = of;
        [
            Parameter::new(
                "heartbeat",
                "how often a replica tells the other sites up to which timestamp it has sent everything, if nothing is written",
                heartbeat,
            ),
            Parameter::new(
                "theta",
                "how often a site's partitions work out what is stable, if nothing is written",
                theta,
            ),
            Parameter::new(
                "pause",
                "how long a partition that writes waits between two heartbeats; if not shorter than `heartbeat`, it sends them at that interval alone",
                pause,
            ),
            Parameter::new(
                "patience",
                "how long a request may wait for something to become stable",
                patience,
            ),
        ]
    }
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals {
            heartbeat: Micros::from_millis(10),
            theta: Micros::from_millis(5),
            pause: Micros::from_millis(3),
            patience: Micros::from_millis(2_000),
            keep_every: Micros::from_millis(1_000),
        }
    }
}

/// When to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to tell the other sites how far this replica is.
    Heartbeat,
    /// When to pass on, inside the site, what is stable.
    Stabilise,
    /// When to pass on what is news, if that was not done at once.
    News,
    /// When to look at the snapshots under way.
    Snapshots,
    /// When to write down what is stable.
    Keep,
    /// When to look for requests that wait for the wall clock.
    Clock,
}

/// What requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// A site's entry of what is stable.
    Stable(ReplicaId),
    /// The time up to which this partition has everything of a site. If one number is used for all sites: of the site of which it has the least.
    Here(ReplicaId),
    /// The wall clock.
    Clock,
    /// The wall time by which everything that any other site had acknowledged is shown; in snapshots, what any site had acknowledged.
    OldestWall {
        /// Whether it is that of snapshots.
        is_snapshot: bool,
    },
}
