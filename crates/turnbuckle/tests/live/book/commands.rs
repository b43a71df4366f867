//! Commands for bash, and what they print.
use super::{
    page::{Block, Page},
    pages, root, without_numbers, writes,
};
use crate::demo::Demo;
use std::{fs, os::unix::fs::symlink, process::Command};
use tempfile::TempDir;

/// What a page's commands run in: a directory with links to the folders that the pages name, `turnbuckle` on the path, and a demo, if one is named.
struct Place {
    directory: TempDir,
    demo: Option<Demo>,
}

impl Place {
    fn of(page: &Page) -> Place {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for folder in ["scenarios", "workloads", "experiments", "crates"] {
            symlink(root().join(folder), directory.path().join(folder)).expect("a link to a folder");
        }
        let binaries = directory.path().join("bin");
        fs::create_dir(&binaries).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_turnbuckle"), binaries.join("turnbuckle"))
            .expect("a link to the program");
        let uses_a_demo = page
            .blocks()
            .any(|block| is(block, "run") && block.text.contains("--target"));
        Place {
            directory,
            demo: uses_a_demo.then(|| Demo::with_delays(&["--keyspace", "reg=abd"])),
        }
    }

    /// Runs a script, with the demo's ports for those of the page. Returns what it prints, and its exit code.
    fn run(&self, script: &str) -> (String, Option<i32>) {
        let mut script = script.to_string();
        for (site, base) in (0..3).flat_map(|site| [(site, 7000), (site, 8000)]) {
            if let Some(demo) = &self.demo {
                script = script.replace(&format!("127.0.0.1:{}", base + site), demo.resp(site));
            }
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let binaries = self.directory.path().join("bin");
        let output = Command::new("bash")
            .args(["-c", &format!("exec 2>&1\n{script}")])
            .current_dir(self.directory.path())
            .env("PATH", format!("{}:{path}", binaries.display()))
            .env("TURNBUCKLE_LOG", "error")
            .output()
            .expect("bash starts");
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            output.status.code(),
        )
    }
}

fn is(block: &Block, mark: &str) -> bool {
    block.mark.as_deref() == Some(mark)
}

/// Runs what a page shows, block after block.
fn check(name: &str) {
    let mut page = Page::read(name);
    let place = Place::of(&page);
    let mut printed = String::new();
    let mut differs = String::new();
    for block in page.blocks_mut() {
        let mark = block.mark.clone().unwrap_or_default();
        let (word, rest) = mark.split_once(": ").unwrap_or((&mark, ""));
        let (new, live) = match word {
            "file" => {
                fs::write(place.directory.path().join(rest), &block.text).expect("it can be written");
                continue;
            }
            "run" => {
                let (said, code) = place.run(&without_demos(&block.text));
                assert_eq!(code, Some(0), "{name}:{}: {said}", block.line);
                printed = said;
                continue;
            }
            "output" => (printed.clone(), true),
            "output of" => (place.run(rest).0, false),
            "console" => (console(&place, &block.text), false),
            _ => continue,
        };
        let plain = |text: &str| if live { measured(text) } else { text.to_string() };
        if matches(&plain(&block.text), &plain(&new)) {
            continue;
        }
        match writes() && !block.text.lines().any(is_gap) {
            true => block.text = new,
            false => {
                differs += &format!(
                    "{name}:{} shows\n{}\nand this is printed\n{new}\n",
                    block.line, block.text
                )
            }
        }
    }
    if writes() {
        page.write();
    }
    assert!(differs.is_empty(), "{differs}");
}

/// What a run on any machine prints. A machine that is slow leaves operations of an open loop unsent, and says so. Whether a trace of this size is
/// sequential is not always decided. Nor is each trace a causal memory (CM): where the last writer wins, causal convergence is promised, and that does not imply it.
fn measured(text: &str) -> String {
    let plain = without_numbers(text).replace("0 operations", "0 operation");
    let plain = plain.replace("CCv yes, CM no", "CCv yes, CM yes");
    let lines = plain.lines().filter(|line| {
        *line != "errors: UNSENT 0"
            && !["UNSENT ", "sequential "]
                .iter()
                .any(|word| line.starts_with(word))
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The demo is started by the test.
fn without_demos(script: &str) -> String {
    let lines = script.lines().filter(|line| !line.starts_with("turnbuckle demo"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The commands behind `$ `, each with what it prints.
fn console(place: &Place, shown: &str) -> String {
    let commands = shown.lines().filter_map(|line| line.strip_prefix("$ "));
    commands
        .map(|command| format!("$ {command}\n{}", place.run(command).0))
        .collect()
}

fn is_gap(line: &str) -> bool {
    line.trim() == "..."
}

/// Whether the shown lines are the printed ones, with any lines where `...` is.
fn matches(shown: &str, printed: &str) -> bool {
    let shown: Vec<&str> = shown.lines().collect();
    let printed: Vec<&str> = printed.lines().collect();
    let mut parts = shown.split(|line| is_gap(line));
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&[&str]> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(place) = rest
            .windows(part.len().max(1))
            .position(|lines| lines.starts_with(part))
        else {
            return false;
        };
        rest = &rest[place + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn dots_stand_for_any_lines() {
    let printed = "a\nb\nc\nd\n";
    for shown in [
        "a\nb\nc\nd\n",
        "a\n...\nd\n",
        "...\nb\n...\n",
        "a\nb\n...\nc\nd\n",
        "...\n",
    ] {
        assert!(matches(shown, printed), "{shown}");
    }
    for shown in [
        "a\nb\n",
        "a\n...\n",
        "...\nc\n...\nb\n...\n",
        "b\n...\n",
        "...\nd\ne\n",
    ] {
        assert_eq!(matches(shown, printed), shown == "a\n...\n", "{shown}");
    }
}

#[test]
fn the_page_on_the_benchmark_shows_what_is_printed() {
    check("docs/bench.md");
}

#[test]
fn the_page_on_the_checker_shows_what_is_printed() {
    check("docs/checking.md");
}

#[test]
fn the_page_on_configuration_shows_what_is_printed() {
    check("docs/configuration.md");
}

#[test]
fn the_quick_start_shows_what_commands_print() {
    check("docs/quickstart.md");
}

#[test]
fn the_page_on_the_simulator_shows_what_is_printed() {
    check("docs/simulation.md");
}

/// Every page with blocks that are run has a test above.
#[test]
fn no_page_is_left_out() {
    let source = include_str!("commands.rs").to_string() + include_str!("shell.rs");
    for name in pages() {
        let page = Page::read(&name);
        let is_run = |block: &Block| {
            let mark = block.mark.as_deref().unwrap_or_default();
            mark.starts_with("output") || ["run", "console", "shell"].contains(&mark)
        };
        if page.blocks().any(is_run) {
            assert!(
                source.contains(&format!("check(\"{name}\")")),
                "{name} is checked by no test"
            );
        }
    }
}

/// A command that is not run still has options that the program knows, and a target that the Makefile has.
#[test]
fn commands_that_are_not_run_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("it is there");
    let mut wrong = String::new();
    for name in pages() {
        for block in Page::read(&name).blocks().filter(|block| is(block, "commands")) {
            let script = block.text.replace("\\\n", " ");
            let lines = script.lines().filter_map(|line| line.split('#').next());
            let commands = lines.flat_map(|line| line.split(';'));
            for command in commands.map(str::trim) {
                let words: Vec<&str> = command.split_whitespace().collect();
                let known = match words.as_slice() {
                    ["turnbuckle" | "target/release/turnbuckle" | "$T", options @ ..] => has_options(options),
                    ["make", target, ..] => makefile.contains(&format!("\n{target}:")),
                    _ => true,
                };
                if !known {
                    wrong += &format!("{name}:{}: {command}\n", block.line);
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "the program or the Makefile does not know:\n{wrong}"
    );
}

/// With `--help` the program checks the options before it, and does nothing.
fn has_options(options: &[&str]) -> bool {
    let options = options.iter().filter(|option| **option != "&");
    let output = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(options)
        .arg("--help")
        .output();
    output.expect("the process starts").status.success()
}
