//! Every `config/bad/*.toml` is refused with exactly the text in the `.error` file beside it.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p turnbuckle-server` writes the texts again; read the difference.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};
use turnbuckle_server::config::ClusterConfig;

const FOLDER: &str = "tests/config/bad";

fn files(extension: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(FOLDER).expect("the folder of bad configurations is there");
    let paths = entries.map(|entry| entry.expect("the folder can be listed").path());
    paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

#[test]
fn every_bad_file_is_refused_with_the_text_beside_it() {
    let update = std::env::var_os("UPDATE_GOLDENFILES").is_some();
    let bad = files("toml");
    let mut differences = Vec::new();
    for path in &bad {
        let error = ClusterConfig::read(path)
            .map(|_| ())
            .expect_err(&format!("{} was accepted", path.display()));
        let found = error.to_string().replace(&format!("{FOLDER}/"), "") + "\n";
        let golden = path.with_extension("error");
        if update {
            fs::write(&golden, &found).expect("the golden text can be written");
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if found != expected {
            differences.push(format!(
                "{}\n  found    {found}  expected {expected}",
                path.display()
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(bad.len() >= 60, "only {} bad files", bad.len());
    println!("{} bad files refused", bad.len());
}

#[test]
fn no_golden_text_has_lost_its_file() {
    let texts = files("error");
    let lost: Vec<&PathBuf> = texts
        .iter()
        .filter(|text| !text.with_extension("toml").exists())
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_file_that_is_not_there_is_the_worlds_fault() {
    let error = ClusterConfig::read(Path::new("tests/config/nowhere.toml")).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("tests/config/nowhere.toml: cannot be read: "),
        "{text}"
    );
}
