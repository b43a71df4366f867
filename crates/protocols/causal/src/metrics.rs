//! The metrics of protocols in which a version that is here may not be seen yet.
use turnbuckle_core::{Hlc, Metric, Now, Protocol, Reading, ReplicaId};

type ByPeer<P> = fn(&P, Now) -> Vec<(ReplicaId, Reading)>;

/// The metrics, by what reads them: the number of hidden versions, the lag of each other site, and how long its versions took.
pub(crate) const fn of_hidden_versions<P: Protocol>(
    hidden: fn(&P, Now) -> Reading,
    lag: ByPeer<P>,
    took: ByPeer<P>,
) -> [Metric<P>; 3] {
    [
        Metric::new(
            "hidden_versions",
            "At least this many versions of other sites have arrived and are not visible yet.",
            hidden,
        ),
        Metric::from_peers(
            "stable_time_lag_seconds",
            "How far the time up to which another site's versions are stable here is behind the wall clock.",
            lag,
        ),
        Metric::from_peers(
            "update_visibility_seconds",
            "How long another site's versions took from their stamp until they were visible here.",
            took,
        ),
    ]
}

/// How far a time is behind the wall clock. Unknown, while nothing is known of its site.
pub(crate) fn lag(at: Hlc, now: Now) -> Reading {
    Reading::Lag((at > Hlc::ZERO).then(|| now.wall.reading.since(at.wall())))
}
