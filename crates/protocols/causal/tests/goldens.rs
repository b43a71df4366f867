//! Golden scripts: what each protocol does, step by step, in the simulated world. Their commands are those of
//! [`turnbuckle_sim::Script`]. `UPDATE_GOLDENFILES=1 cargo test -p turnbuckle-causal` writes them anew; read the diff.
use std::{fs, path::Path};
use turnbuckle_causal::eventual::{EventualConfig, EventualSession};
use turnbuckle_sim::{Script, Verdict, gallery};

fn run(folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens")
        .join(folder);
    let entries = fs::read_dir(&folder).expect("the folder of the scripts is there");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", folder.display());
    for path in paths {
        println!("{}", path.display());
        let mut script = Script::<EventualSession>::new(EventualConfig::default());
        goldenscript::run(&mut script, &path).expect("the script runs");
    }
}

#[test]
fn eventual_does_what_its_scripts_show() {
    run("eventual");
}

/// Each script shows a bug that is put in on purpose, and what the world says of it; then the same without the bug.
#[test]
fn planted_bugs_are_seen() {
    run("planted");
}

/// What clients may see, and what nobody may.
#[test]
fn eventual_shows_in_the_gallery_what_it_does_not_promise_and_nothing_worse() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/gallery/eventual");
    let verdicts = gallery::<EventualSession>(&EventualConfig::default(), &folder).expect("the gallery runs");
    let never = [
        "deleted_key_comes_back",
        "sites_stay_different",
        "acknowledged_write_lost",
    ];
    for (anomaly, verdict) in verdicts {
        let expected = match never.iter().any(|name| anomaly.name.starts_with(name)) {
            true => Verdict::Prevented,
            false => Verdict::Shown,
        };
        assert_eq!(verdict, expected, "{}", anomaly.title());
    }
}
