//! The names of the tables of lanes.
use turnbuckle_core::{ServerId, SiteId};

/// The name of a lane's table.
pub(crate) fn table_name(keyspace: &str, server: ServerId) -> String {
    format!("{keyspace}.{}.{}", server.partition, server.member)
}

/// The keyspace and the server that a table's name stands for.
pub(crate) fn lane_of(table: &str) -> Option<(&str, ServerId)> {
    let mut parts = table.rsplitn(3, '.');
    let (member, partition) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let server = ServerId {
        site: SiteId(0),
        partition,
        member,
    };
    Some((parts.next()?, server))
}
