//! How the tables of lanes are named.
use turnbuckle_core::{ServerId, SiteId};

/// A lane's table, by name.
pub(crate) fn table_name(keyspace: &str, server: ServerId) -> String {
    format!("{keyspace}.{}.{}", server.partition, server.member)
}

/// The keyspace and the lane of a table's name.
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
