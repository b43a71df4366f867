//! What quorum keyspaces do, step by step. `UPDATE_GOLDENFILES=1` writes the answers again; read the diff.
use std::path::Path;
use turnbuckle_quorum::{QuorumConfig, QuorumSession, SiblingsSession};
use turnbuckle_sim::Verdict;

#[test]
fn quorum_does_what_its_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/quorum");
    turnbuckle_sim::goldens::<QuorumSession>(&QuorumConfig::default(), &folder);
}

#[test]
fn siblings_do_what_their_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/siblings");
    turnbuckle_sim::goldens::<SiblingsSession>(&QuorumConfig::default(), &folder);
}

/// At the default level. Two writers that have read the same value overwrite each other: there are no conditional writes.
#[test]
fn majorities_prevent_in_the_gallery_all_but_a_lost_update() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/gallery/quorum");
    for (anomaly, verdict) in
        turnbuckle_sim::gallery::<QuorumSession>(&QuorumConfig::default(), &folder).expect("it runs")
    {
        let expected = match anomaly.name {
            "lost_update" => Verdict::Shown,
            // Values do not expire here.
            "expired_key_comes_back" | "increment_lost" | "old_value_revived_by_expire" => {
                Verdict::NotOffered
            }
            _ => Verdict::Prevented,
        };
        assert_eq!(verdict, expected, "{}", anomaly.title());
    }
}
