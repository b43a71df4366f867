//! What regional keyspaces do, step by step. `UPDATE_GOLDENFILES=1` writes the answers again; read the diff.
use std::path::Path;
use turnbuckle_regional::{NukvConfig, NukvSession};
use turnbuckle_sim::Verdict;

#[test]
fn nukv_does_what_its_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/nukv");
    turnbuckle_sim::goldens::<NukvSession>(&NukvConfig::default(), &folder);
}

/// At the default level, with one replica at each site. What is promised is promised on each key: writes of different keys may be seen out of order.
#[test]
fn regional_keyspaces_prevent_in_the_gallery_what_a_session_sees_of_one_key() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/gallery/nukv");
    let prevented = [
        "reads_go_back",
        "own_write_missing",
        "expired_key_comes_back",
        "old_value_revived_by_expire",
        "deleted_key_comes_back",
        "sites_stay_different",
        "acknowledged_write_lost",
    ];
    for (anomaly, verdict) in
        turnbuckle_sim::gallery::<NukvSession>(&NukvConfig::default(), &folder).expect("it runs")
    {
        let expected = match anomaly.name {
            // Nothing adds up here.
            "increment_lost" => Verdict::NotOffered,
            name if prevented.iter().any(|prevented| name.starts_with(prevented)) => Verdict::Prevented,
            _ => Verdict::Shown,
        };
        assert_eq!(verdict, expected, "{}", anomaly.title());
    }
}
