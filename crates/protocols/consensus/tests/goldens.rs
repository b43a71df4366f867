//! What consensus keyspaces do, step by step. `UPDATE_GOLDENFILES=1` writes the answers again; read the diff.
use std::path::Path;
use turnbuckle_consensus::{DacianConfig, DacianSession};
use turnbuckle_sim::Verdict;

#[test]
fn dacian_does_what_its_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/dacian");
    turnbuckle_sim::goldens::<DacianSession>(&DacianConfig::default(), &folder);
}

/// At the default level. Two writers that have read the same value and write without a condition overwrite each other.
#[test]
fn consensus_prevents_in_the_gallery_all_but_a_lost_update() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/gallery/dacian");
    for (anomaly, verdict) in
        turnbuckle_sim::gallery::<DacianSession>(&DacianConfig::default(), &folder).expect("it runs")
    {
        let expected = match anomaly.name {
            "lost_update" => Verdict::Shown,
            _ => Verdict::Prevented,
        };
        assert_eq!(verdict, expected, "{}", anomaly.title());
    }
}
