//! What a lane wants done. A lane does nothing to others by itself: it emits effects, and its keyspace performs them in their order, while the
//! lane is still locked.
use turnbuckle_core::{Outcome, Protocol, ReplicaSet, RequestId, ServerId};
use turnbuckle_replication::StreamBody;

/// One thing to be done.
pub(crate) enum Effect<P: Protocol> {
    /// Answer a request.
    Deliver {
        id: RequestId,
        outcome: Outcome<P::Response>,
    },
    /// Hand a message to another replica, on this node or on another one.
    Send { to: ServerId, message: P::Message },
    /// Say something to a server on another node. It is lost if there is no way: so are messages, and what else is said comes again when the link
    /// does.
    Say { to: ServerId, body: StreamBody },
    /// Streams or marks wait for the partition's replicas at these sites.
    WakeLinks(ReplicaSet),
    /// Background work waits.
    WakeWorker,
    /// Something is held until the log has been synced.
    Sync,
}
