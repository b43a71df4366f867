//! What consensus keyspaces do, step by step. `UPDATE_GOLDENFILES=1` writes the answers again; read the diff.
use std::path::Path;
use turnbuckle_consensus::{DacianConfig, DacianSession};

#[test]
fn dacian_does_what_its_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/dacian");
    turnbuckle_sim::goldens::<DacianSession>(&DacianConfig::default(), &folder);
}
