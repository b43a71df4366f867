//! The table of a load that asks everything.
use super::{Misplaced, Placed, WorkloadTable, at_most};
use crate::{Kind, Mixed};
use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MixedTable {
    keys: Placed<u64>,
    writes: Placed<u64>,
    deletes: Placed<u64>,
    value_bytes: Placed<u64>,
    careless: Placed<u64>,
    hot: Placed<u64>,
    deletes_of_read: Placed<u64>,
    many_keys: Placed<u64>,
    once: Placed<u64>,
}

/// What the table says, with what is usual for the rest.
pub(super) fn mixed_kind(
    table: &Spanned<MixedTable>,
    name: Placed<String>,
    workload: Option<Spanned<WorkloadTable>>,
) -> Result<Kind, Misplaced> {
    if name.is_some() || workload.is_some() {
        let message = "mixed: there is a workload, too; expected one of them";
        return Err((table.span(), message.into()));
    }
    let (mixed, usual) = (table.get_ref(), Mixed::default());
    let percent =
        |given: &Placed<u64>, name, usual| at_most(given, name, 0..101).map(|it| it.unwrap_or(usual));
    Ok(Kind::Mixed(Mixed {
        keys: at_most(&mixed.keys, "keys", 1..1_000_001)?.unwrap_or(usual.keys),
        writes: percent(&mixed.writes, "writes", usual.writes)?,
        deletes: percent(&mixed.deletes, "deletes", usual.deletes)?,
        value_bytes: at_most(&mixed.value_bytes, "value_bytes", 1..1_000_001)?.unwrap_or(usual.value_bytes),
        careless: percent(&mixed.careless, "careless", usual.careless)?,
        hot: percent(&mixed.hot, "hot", usual.hot)?,
        deletes_of_read: percent(&mixed.deletes_of_read, "deletes_of_read", usual.deletes_of_read)?,
        many_keys: at_most(&mixed.many_keys, "many_keys", 0..1_001)?.unwrap_or(usual.many_keys),
        once: percent(&mixed.once, "once", usual.once)?,
    }))
}
