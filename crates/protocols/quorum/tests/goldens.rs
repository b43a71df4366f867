//! What quorum keyspaces do, step by step. `UPDATE_GOLDENFILES=1` writes the answers again; read the diff.
use std::path::Path;
use turnbuckle_quorum::{QuorumConfig, QuorumSession};

#[test]
fn quorum_does_what_its_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/quorum");
    turnbuckle_sim::goldens::<QuorumSession>(&QuorumConfig::default(), &folder);
}
