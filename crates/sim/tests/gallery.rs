//! The gallery's scripts can show the anomalies that they are meant to show. That includes those that no protocol may allow: bugs are
//! planted for them. And docs/gallery.md says of each protocol what its golden scripts say.
use std::{fmt::Write as _, fs, path::Path, path::PathBuf};
use turnbuckle_causal::eventual::{EventualConfig, EventualSession};
use turnbuckle_sim::{Anomaly, Script, Verdict};

fn verdict_with(plant: &str, name: &str) -> Option<Verdict> {
    let found = Anomaly::ALL.iter().find(|anomaly| anomaly.name == name);
    verdict_of(plant, found.expect("the gallery has it").script)
}

fn verdict_of(plant: &str, script: &str) -> Option<Verdict> {
    let script = script.replacen("cluster ", &format!("cluster plant=\"{plant}\" "), 1);
    let mut runner = Script::<EventualSession>::new(EventualConfig::default());
    let run = goldenscript::generate(&mut runner, &script).expect("the script runs");
    Verdict::of(&run)
}

/// The seed decides what a power loss leaves of what was not synced: so the script is tried at several times.
fn is_shown_sometimes(plant: &str, name: &str) -> bool {
    let anomaly = Anomaly::ALL.iter().find(|anomaly| anomaly.name == name);
    let script = anomaly.expect("the gallery has it").script;
    (0..10).any(|wait| {
        let later = script.replacen("\nput", &format!("\nadvance {wait}00ms\nput"), 1);
        verdict_of(plant, &later) == Some(Verdict::Shown)
    })
}

#[test]
fn what_nobody_may_see_is_shown_when_a_bug_is_planted() {
    for (plant, name) in [
        // Only together: while a site lacks a delete, no site forgets it.
        ("copy_merges,forgets_deletes_early", "deleted_key_comes_back"),
        ("answers_early", "acknowledged_write_lost_with_one_machine"),
        ("answers_early", "acknowledged_write_lost_everywhere"),
    ] {
        assert!(is_shown_sometimes(plant, name), "{name}");
        assert_eq!(verdict_with("nothing", name), Some(Verdict::Prevented), "{name}");
    }
}

/// No planted bug makes sites differ in the gallery's own script. Another script shows that `shown` sees it when they do.
#[test]
fn sites_that_differ_are_seen() {
    let script = "cluster a b durability=\"interval(500ms)\"\nput a first 1\nadvance 900ms\nput a lost 1\nadvance 20ms\n\
        crash a power\nrestart a\nput a second 1\nsettle\nget a lost as=at_a\nget b lost as=at_b\nshown at_a at_b\n---\n";
    assert_eq!(verdict_of("positions_reused", script), Some(Verdict::Shown));
    assert_eq!(verdict_of("nothing", script), Some(Verdict::Prevented));
}

#[test]
fn every_anomaly_is_told_in_a_sentence() {
    for anomaly in Anomaly::ALL {
        assert!(anomaly.tells().ends_with('.'), "{}", anomaly.name);
    }
    let scripts = fs::read_dir(root().join("crates/sim/gallery")).expect("the gallery is there");
    assert_eq!(
        scripts.count(),
        Anomaly::ALL.len(),
        "each script is named in `Anomaly::ALL`"
    );
}

const BEGIN: &str = "<!-- gallery:begin -->\n";
const END: &str = "<!-- gallery:end -->";

/// `UPDATE_GOLDENFILES=1` writes the table into the page.
#[test]
fn the_gallery_page_says_of_each_protocol_what_the_gallery_shows() {
    let path = root().join("docs/gallery.md");
    let page = fs::read_to_string(&path).expect("there is such a page");
    let (before, rest) = page.split_once(BEGIN).expect("the table's begin is marked");
    let (_, after) = rest.split_once(END).expect("the table's end is marked");
    let expected = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var("UPDATE_GOLDENFILES").is_ok_and(|value| value == "1") {
        fs::write(&path, expected).expect("the page can be written");
    } else {
        assert!(
            page == expected,
            "docs/gallery.md's table is another; it should be:\n{}",
            table()
        );
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names in a folder, in order. Empty if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// One row for each anomaly, one column for each protocol that has run the gallery.
fn table() -> String {
    let folder = |family: &str| format!("crates/protocols/{family}/tests/goldens/gallery");
    let families = names(&root().join("crates/protocols"));
    let protocols: Vec<(String, String)> = families
        .iter()
        .flat_map(|family| {
            let protocols = names(&root().join(folder(family)));
            protocols
                .into_iter()
                .map(|name| (format!("{}/{name}", folder(family)), name))
        })
        .collect();
    assert!(!protocols.is_empty(), "some protocol has run the gallery");
    let mut table = String::from("| | what somebody would see |");
    for (_, name) in &protocols {
        write!(table, " `{name}` |").expect("a string takes it");
    }
    table += &format!("\n|---|---|{}\n", "---|".repeat(protocols.len()));
    for anomaly in Anomaly::ALL {
        let (title, tells) = (anomaly.title(), anomaly.tells());
        let script = format!("crates/sim/gallery/{}", anomaly.name);
        write!(table, "| [{title}](../{script}) | {tells} |").expect("a string takes it");
        for (folder, _) in &protocols {
            let golden = format!("{folder}/{}", anomaly.name);
            let run = fs::read_to_string(root().join(&golden)).expect("each protocol has run each script");
            let word = match Verdict::of(&run).expect("it ends with a verdict") {
                Verdict::Shown => "possible",
                Verdict::Prevented => "prevented",
                Verdict::NotOffered => "not offered",
            };
            write!(table, " [{word}](../{golden}) |").expect("a string takes it");
        }
        table.push('\n');
    }
    table
}
