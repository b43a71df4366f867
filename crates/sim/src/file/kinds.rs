//! What clients do, as written in a scenario's file.
use super::{Misplaced, Number, WorkloadTable};
use crate::{Hot, Kind, Mixed, WorldOptions};
use serde::Deserialize;
use std::str::FromStr;
use toml::Spanned;
use turnbuckle_workload::{Arrival, Workload};

/// A kind of clients, by its name.
pub(super) struct NamedKind(pub Kind);

impl FromStr for NamedKind {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<NamedKind, &'static str> {
        let expected = "expected mixed, ping-pong, or a workload of YCSB: a, b, c, d or f (e scans, and keys are hashed here)";
        match name {
            "mixed" => Ok(NamedKind(Kind::Mixed(Mixed::default()))),
            "ping-pong" => Ok(NamedKind(Kind::PingPong)),
            letter => match Workload::core(letter) {
                Ok(workload) => Ok(NamedKind(loaded(workload))),
                Err(_) => Err(expected),
            },
        }
    }
}

/// The workload that is written in the file itself. A world is in memory, so its size is limited.
pub(super) fn workload_kind(table: Spanned<WorkloadTable>) -> Result<Kind, Misplaced> {
    const MAX_RECORDS: u64 = 10_000_000;
    const MAX_PER_SECOND: f64 = 10_000_000.0;
    let place = table.span();
    let workload = table.into_inner().check(place.clone())?;
    let records = workload.records.get();
    if records > MAX_RECORDS {
        let expected = format!("at most {MAX_RECORDS} in a world in memory");
        return Err(Misplaced::of_field(
            place,
            &["record_count"],
            records.to_string(),
            expected,
        ));
    }
    match workload.arrival {
        Arrival::Open { rate, .. } if rate.per_second() > MAX_PER_SECOND => {
            let expected = format!("at most {MAX_PER_SECOND} operations a second");
            Err(Misplaced::of_field(
                place,
                &["target"],
                rate.per_second().to_string(),
                expected,
            ))
        }
        _ => Ok(loaded(workload)),
    }
}

fn loaded(workload: Workload) -> Kind {
    Kind::Workload {
        workload: Box::new(workload),
        load: true,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HotTable {
    keys_per_partition: Option<Number<1, 1_000>>,
    value_bytes: Option<Number<1, 1_000_000>>,
    writers_per_node: Option<Number<0>>,
    many_percent: Option<Number<0, 100>>,
    many_keys: Option<Number<1>>,
    apart: Option<Number<0>>,
}

impl HotTable {
    /// The kind of clients that use few keys in each partition.
    pub(super) fn kind(self, world: &WorldOptions, clients_per_node: u64) -> Result<Kind, Misplaced> {
        let partitions = u64::from(world.partitions);
        let keys_per_partition = self.keys_per_partition.map_or(1, Number::get);
        let all = keys_per_partition * partitions;
        let writers = self
            .writers_per_node
            .map(|count| count.within(0..=clients_per_node));
        let many_keys = self.many_keys.map(|count| count.within(1..=all));
        let apart = self.apart.map(|place| place.within(0..=partitions - 1));
        Ok(Kind::Hot(Hot {
            keys_per_partition,
            value_bytes: self.value_bytes.map_or(64, Number::get),
            writers_per_node: writers.transpose()?.unwrap_or(clients_per_node) as usize,
            many_percent: self.many_percent.map_or(0, Number::get),
            many_keys: many_keys.transpose()?.unwrap_or(all.min(3)),
            apart: apart.transpose()?.map(|place| place as u16),
        }))
    }
}
