//! What ABD does, step by step, and which anomalies of the gallery it prevents. `UPDATE_GOLDENFILES=1` writes the answers again; read the diff.
use std::path::Path;
use turnbuckle_abd::{AbdConfig, AbdSession};
use turnbuckle_sim::Verdict;

#[test]
fn abd_does_what_its_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/abd");
    turnbuckle_sim::goldens::<AbdSession>(&AbdConfig::default(), &folder);
}

/// Two writers that have read the same value overwrite each other: a register has no transactions.
#[test]
fn abd_prevents_in_the_gallery_all_that_one_register_can() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/gallery/abd");
    for (anomaly, verdict) in
        turnbuckle_sim::gallery::<AbdSession>(&AbdConfig::default(), &folder).expect("it runs")
    {
        let expected = match anomaly.name {
            "lost_update" => Verdict::Shown,
            // Values do not expire here, and nothing adds up.
            "expired_key_comes_back" | "increment_lost" | "old_value_revived_by_expire" => {
                Verdict::NotOffered
            }
            _ => Verdict::Prevented,
        };
        assert_eq!(verdict, expected, "{}", anomaly.title());
    }
}
