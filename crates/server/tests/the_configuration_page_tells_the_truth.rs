//! Operators copy from `docs/configuration.md` and `packaging/cluster.toml`: the examples must be accepted, and the limits must be those of the code.
use std::{
    fs,
    path::{Path, PathBuf},
};
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_server::config::{ClusterConfig, Limits};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

fn page() -> String {
    fs::read_to_string(path()).expect("the page is there")
}

#[test]
fn the_example_is_accepted() {
    let page = page();
    let (_, rest) = page.split_once("```toml\n").expect("the page has an example");
    let (example, _) = rest.split_once("```").expect("the example ends");
    let directory = tempfile::tempdir().expect("there is a place for temporary files");
    fs::write(
        directory.path().join("shop.secret"),
        "a secret of 16 bytes or more\n",
    )
    .expect("it can be written");
    let file = directory.path().join("cluster.toml");
    let config = ClusterConfig::parse(&file, example).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.layout(), "sites a b; nodes a1@a b1@b");
    let terms = config.terms();
    assert_eq!(terms.len(), 1);
    assert_eq!(terms[0].name, "carts");
    assert_eq!(terms[0].to_string(), "protocol eventual and 2 partitions");
}

/// As the package installs `packaging/cluster.toml`, all of it is a comment. Without the `#` of its settings it is a cluster.
#[test]
fn the_example_of_the_package_is_accepted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/cluster.toml");
    let installed = fs::read_to_string(path).expect("the example is there");
    assert!(
        installed
            .lines()
            .all(|line| line.is_empty() || line.starts_with('#'))
    );
    let settings: Vec<_> = installed
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|setting| setting.starts_with(|first: char| first == '[' || first.is_ascii_lowercase()))
        .collect();
    let directory = tempfile::tempdir().expect("there is a place for temporary files");
    fs::write(directory.path().join("secret"), "a secret of 16 bytes or more\n").expect("it can be written");
    fs::write(directory.path().join("admin.token"), "a-token-of-operators\n").expect("it can be written");
    let file = directory.path().join("cluster.toml");
    let config = ClusterConfig::parse(&file, &settings.join("\n")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.layout(), "sites a b c; nodes a1@a b1@b c1@c");
}

#[test]
fn every_protocol_stands_there() {
    let page = page();
    for (name, protocol) in KnownProtocol::names() {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in docs/configuration.md"));
        let is_alias = protocol.to_string() != name;
        assert_eq!(
            row.contains(&format!("another name of `{protocol}`")),
            is_alias,
            "{row}"
        );
    }
}

/// With `UPDATE_GOLDENFILES=1` the rows are written again.
#[test]
fn every_parameter_stands_there_as_the_protocol_has_it() {
    let mut rows = String::new();
    for protocol in KnownProtocol::ALL {
        for line in protocol.parameters() {
            let (name, default, what, expected) = (line.name, line.default, line.what, line.expected);
            rows += &format!("| `{protocol}` | `{name}` | `{default}` | {what} | {expected} |\n");
        }
    }
    let page = page();
    let head = "| protocol | parameter | default | | expected |\n|---|---|---|---|---|\n";
    let (before, table) = page.split_once(head).expect("the page has a table of parameters");
    let (found, after) = table.split_once("\n\n").expect("something follows the table");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        // Other tests read the page meanwhile. They find the old page or the new one, complete.
        let new = path().with_extension("new");
        fs::write(&new, format!("{before}{head}{rows}\n{after}")).expect("it can be written");
        fs::rename(new, path()).expect("it can be renamed");
    } else {
        assert_eq!(
            format!("{found}\n"),
            rows,
            "UPDATE_GOLDENFILES=1 writes the table anew"
        );
    }
}

#[test]
fn every_limit_stands_there_with_its_default() {
    let page = page();
    let limits = Limits::default().entries();
    for (name, default, what) in &limits {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` | {default} | ")));
        let row = row.unwrap_or_else(|| panic!("{name} = {default} is not in docs/configuration.md"));
        assert!(
            row.ends_with(&format!(" | {what} |")),
            "{name}: expected {what:?}"
        );
    }
    let (_, section) = page
        .split_once("## `[limits]`")
        .expect("the page has a section of limits");
    let (section, _) = section.split_once("\n## ").expect("another section follows");
    let rows = section.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, limits.len(), "the page has limits that do not exist");
}
