//! A seed means the same run forever, in debug and in release builds: the checksums of some runs are in `tests/goldens/hashes`.
//!
//! They change whenever anything changes that is part of a run: a frame's encoding, the order of two events, a draw. Then
//! `UPDATE_GOLDENFILES=1 cargo test -p turnbuckle-sim --test all hashes` writes them again. If they change without such a reason, something in
//! a node depends on what it must not: a clock, an address, the order of a hash table.
use std::{fmt::Write, fs, path::PathBuf};
use turnbuckle_causal::eventual::{Eventual, EventualSession};
use turnbuckle_sim::{Draw, Keep};

const SEEDS: u64 = 40;

#[test]
fn seeds_mean_what_they_meant() {
    let mut found = String::new();
    for seed in 1..=SEEDS {
        let scenario = Draw::new(seed).scenario();
        let config = scenario.parameters.config::<Eventual>();
        let keep = Keep {
            trace: false,
            ..Keep::JUDGE_AND_TRACE
        };
        let outcome = scenario.run::<EventualSession>(config, keep);
        writeln!(found, "{seed} {:08x} {} events", outcome.hash, outcome.events).expect("a String grows");
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/hashes");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        fs::write(&path, &found).expect("it can be written");
    }
    let expected = fs::read_to_string(&path).expect("the hashes are written down");
    assert_eq!(found, expected, "runs differ from those that are written down");
}
