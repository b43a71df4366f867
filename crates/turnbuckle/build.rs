//! Puts the commit into `turnbuckle --version`. A source tree that is no checkout, or a machine without git, has none.
use std::process::Command;

fn main() {
    let commit = git(&["log", "-1", "--format=%h %cs"]);
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match commit {
        Some(commit) => format!("{version} (commit {commit})"),
        None => version,
    };
    println!("cargo::rustc-env=TURNBUCKLE_VERSION={version}");
    // What a checkout of another commit changes.
    if let Some(head) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={head}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_string())
}
