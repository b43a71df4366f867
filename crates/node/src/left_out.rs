//! Keyspaces that are on the disk but not in the configuration.
//!
//! A configuration may leave a keyspace out, for a while or permanently. The node still has its tables, and its commit log still has
//! records of it that no checkpoint covers. The log serves all keyspaces: when it is purged, those records go, too. So before anything else
//! they are **set aside**, lane by lane, in a table beside the lane's own. When the keyspace is in the configuration again, they are
//! replayed on top of its last checkpoint.
//!
//! ```text
//!   opened with one, two     log: 1 2 1 2 2 1          tables: one.0.0  two.0.0
//!   opened with one          log: 1 2 1 2 2 1 1 1 ..   tables: one.0.0  two.0.0  two.0.0.log (2 2 2)
//!                            log:             1 1 ..   the rest is purged
//!   opened with one, two     log:             1 1 ..   two.0.0, then 2 2 2, then a checkpoint; two.0.0.log is removed
//! ```
//!
//! A lane that is opened for the first time, or again after it was left out, takes a checkpoint before the node serves anything. So a lane
//! that serves has a checkpoint. If a lane has no checkpoint, no client or peer was told anything that the log has of it.
use crate::{
    agreement::tag_of,
    error::OpenError,
    record::{CheckpointMeta, Record},
    table::lane_of,
};
use bytes::Bytes;
use std::{collections::BTreeSet, sync::Arc};
use turnbuckle_core::BadFrame;
use turnbuckle_log::Position;
use turnbuckle_store::{Engine, EngineError, Table, TableWrite, read_meta};

/// The ending of the name of the table that holds the records set aside.
const ASIDE: &str = ".log";

/// The key of the row that says up to which position everything was set aside.
const END: &[u8] = b"end";

/// The most records that are read at a time.
const PAGE_RECORDS: usize = 1024;
const PAGE_BYTES: usize = 4 << 20;

/// Records of one lane that were set aside.
pub(crate) struct Aside {
    name: String,
    table: Arc<dyn Table>,
}

impl Aside {
    /// The records that were set aside of a lane whose last checkpoint covers the log up to `covered`. `None` if there are none, or if not
    /// all were set aside.
    pub fn of(engine: &dyn Engine, lane_table: &str, covered: Position) -> Result<Option<Aside>, OpenError> {
        let name = format!("{lane_table}{ASIDE}");
        if !engine.table_names()?.contains(&name) {
            return Ok(None);
        }
        let table = engine.open_table(&name)?;
        let Some(end) = table.get(END)? else {
            return Ok(None);
        };
        // The records were replayed, and the checkpoint after that begins behind them. If the power failed before the removal of the table
        // was on disk, the table is there again.
        if position_in(&end)? < covered {
            engine.remove_table(&name)?;
            return Ok(None);
        }
        Ok(Some(Aside { name, table }))
    }

    /// Passes the records to `visit`, in their order.
    pub fn replay(
        &self,
        mut visit: impl FnMut(Record, Position) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let snapshot = self.table.snapshot()?;
        let mut from = vec![0];
        loop {
            let rows = snapshot.range(&from, END, PAGE_RECORDS, PAGE_BYTES)?;
            let Some((last, _)) = rows.last() else {
                return Ok(());
            };
            from = [last, &[0][..]].concat();
            for (key, bytes) in rows {
                let record = Record::parse(bytes).map_err(crate::error::ReplayError::from)?;
                visit(record, position_of(&key)?)?;
            }
        }
    }

    /// Removes the records: a checkpoint covers them now.
    pub fn remove(self, engine: &dyn Engine) -> Result<(), EngineError> {
        engine.remove_table(&self.name)
    }
}

/// The key of a record's row. It begins with a 0 byte, and so comes before [`END`].
fn key_of(position: Position) -> Bytes {
    [&[0][..], &position.0.to_be_bytes()].concat().into()
}

fn position_of(key: &[u8]) -> Result<Position, OpenError> {
    position_in(key.get(1..).unwrap_or_default())
}

fn position_in(bytes: &[u8]) -> Result<Position, OpenError> {
    let bad = |_| BadFrame::new("a log position of 8 bytes", format!("{} bytes", bytes.len()));
    let bytes = <[u8; 8]>::try_from(bytes).map_err(bad);
    let bytes = bytes.map_err(crate::error::ReplayError::from)?;
    Ok(Position(u64::from_be_bytes(bytes)))
}

/// The lanes on the disk whose keyspaces are left out and whose records are still to be set aside.
#[derive(Default)]
pub(crate) struct LeftOut {
    lanes: Vec<Lane>,
}

struct Lane {
    /// The lane, as a record names it: (keyspace's tag, partition, member).
    id: (u32, u32, u32),
    aside: Arc<dyn Table>,
    covered: Position,
    writes: Vec<TableWrite>,
    bytes: usize,
}

impl LeftOut {
    /// Looks for lanes that have served, among the tables that no lane of this node has opened.
    pub fn find(engine: &dyn Engine, served: &BTreeSet<String>) -> Result<LeftOut, OpenError> {
        let (mut lanes, mut keyspaces) = (Vec::new(), BTreeSet::new());
        for name in engine
            .table_names()?
            .into_iter()
            .filter(|name| !served.contains(name))
        {
            let Some((keyspace, server)) = lane_of(&name) else {
                continue;
            };
            let Some(meta) = read_meta(&*engine.open_table(&name)?)? else {
                continue;
            };
            keyspaces.insert(keyspace.to_string());
            let meta = CheckpointMeta::parse(meta).map_err(crate::error::ReplayError::from)?;
            if Aside::of(engine, &name, Position(meta.log_position))?.is_some() {
                continue;
            }
            let tag = tag_of(keyspace);
            // An earlier attempt that did not finish may have left this table.
            engine.remove_table(&format!("{name}{ASIDE}"))?;
            lanes.push(Lane {
                id: (tag, server.partition.into(), server.member.into()),
                aside: engine.open_table(&format!("{name}{ASIDE}"))?,
                covered: Position(meta.log_position),
                writes: Vec::new(),
                bytes: 0,
            });
        }
        for keyspace in keyspaces {
            tracing::warn!(
                "the keyspace '{keyspace}' is on this node's disk and not in its configuration: its data is kept, and will be there when the \
                 keyspace is configured again"
            );
        }
        Ok(LeftOut { lanes })
    }

    /// The position from which the log is needed to set their records aside.
    pub fn from(&self) -> Option<Position> {
        self.lanes.iter().map(|lane| lane.covered).min()
    }

    /// Sets a record aside if it belongs to one of these lanes.
    pub fn take(&mut self, record: &Record, position: Position, bytes: &Bytes) -> Result<(), EngineError> {
        let mut lanes = self.lanes.iter_mut();
        let Some(lane) = lanes.find(|lane| lane.id == record.lane() && lane.covered <= position) else {
            return Ok(());
        };
        lane.bytes += bytes.len();
        // A copy of its own: the slice would keep the log's larger buffer in memory.
        let bytes = Bytes::copy_from_slice(bytes);
        lane.writes.push(TableWrite::put(key_of(position), bytes));
        match lane.bytes >= PAGE_BYTES {
            true => lane.flush(),
            false => Ok(()),
        }
    }

    /// All records up to `end` were seen.
    pub fn finish(mut self, engine: &dyn Engine, end: Position) -> Result<(), EngineError> {
        for lane in &mut self.lanes {
            let row = Bytes::copy_from_slice(&end.0.to_be_bytes());
            lane.writes.push(TableWrite::put(Bytes::from_static(END), row));
            lane.flush()?;
        }
        match self.lanes.is_empty() {
            true => Ok(()),
            false => engine.persist(),
        }
    }
}

impl Lane {
    fn flush(&mut self) -> Result<(), EngineError> {
        self.bytes = 0;
        self.aside.apply(std::mem::take(&mut self.writes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::table_name;
    use turnbuckle_core::{ServerId, SiteId};

    #[test]
    fn names_of_tables_are_read_back() {
        let server = ServerId {
            site: SiteId(0),
            partition: 7,
            member: 2,
        };
        for keyspace in ["carts", "a.b", "1.2"] {
            let name = table_name(keyspace, server);
            assert_eq!(lane_of(&name), Some((keyspace, server)));
            assert_eq!(lane_of(&format!("{name}{ASIDE}")), None, "{name}");
        }
    }

    #[test]
    fn records_come_before_the_row_that_ends_them() {
        assert!(key_of(Position(u64::MAX)) < Bytes::from_static(END));
        assert_eq!(
            position_of(&key_of(Position(77))).expect("it is a position"),
            Position(77)
        );
        assert!(position_of(b"end").is_err());
    }
}
