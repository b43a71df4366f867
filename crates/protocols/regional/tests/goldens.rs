//! What regional keyspaces do, step by step. `UPDATE_GOLDENFILES=1` writes the answers again; read the diff.
use std::path::Path;
use turnbuckle_regional::{NukvConfig, NukvSession};

#[test]
fn nukv_does_what_its_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/nukv");
    turnbuckle_sim::goldens::<NukvSession>(&NukvConfig::default(), &folder);
}
