//! The anomaly gallery: unwanted behaviour that clients of a replicated store may see, as scripts that every protocol runs.
//!
//! An anomaly is a file in `gallery/`, in the language of [`Script`]. It is made so that a protocol which allows the anomaly shows it: with
//! sites between which the direct way is longer than the way around, clients that move, cuts, machines that lose power. Its first line says
//! in a sentence what is seen. Its last command, `shown`, says which answers show the anomaly.
//!
//! ```text
//!   gallery/stale_read          a script without answers     --+
//!   a protocol                                               --+--> tests/goldens/gallery/PROTOCOL/stale_read, with answers
//!                                                                   and, at its end: shown | prevented | not offered
//! ```
//!
//! A file with answers begins with the whole script. Do not edit that copy: it is written from `gallery/`, and the test fails if the two
//! differ. It is there for readers. The table of docs/gallery.md links to these files. Each shows on one page what was done, what each client was
//! told, and what follows from it. An answer such as `c: 1` says nothing without its command.
//!
//! # Limits
//!
//! *Shown* is proof of the anomaly. *Prevented* proves nothing: this one script does not show it. Whether another one does is tested by
//! drawn runs ([`crate::swarm`]) and by the checker.
use crate::Script;
use std::{fs, io, io::Write as _, path::Path};
use turnbuckle_core::{Protocol, Session};

/// An anomaly that clients may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anomaly {
    /// The name of its script.
    pub name: &'static str,
    /// Its script.
    pub script: &'static str,
}

/// What a protocol does about an anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its script shows it.
    Shown,
    /// Its script does not show it.
    Prevented,
    /// The protocol does not have the operations of the script.
    NotOffered,
}

macro_rules! anomalies {
    ($($name:literal)*) => {
        [$(Anomaly { name: $name, script: include_str!(concat!("../gallery/", $name)) }),*]
    };
}

impl Anomaly {
    /// All anomalies: first those that one client sees, then those that several see, then what no client may ever see.
    pub const ALL: [Anomaly; 18] = anomalies!(
        "stale_read"
        "reads_go_back"
        "own_write_missing"
        "expired_key_comes_back"
        "old_value_revived_by_expire"
        "writes_out_of_order"
        "answer_before_question"
        "comment_before_post"
        "fractured_snapshot"
        "long_fork"
        "neither_sees_the_other"
        "lost_update"
        "increment_lost"
        "lock_lost_with_its_machine"
        "deleted_key_comes_back"
        "sites_stay_different"
        "acknowledged_write_lost_with_one_machine"
        "acknowledged_write_lost_everywhere"
    );

    /// The anomaly's name, with spaces.
    pub fn title(&self) -> String {
        self.name.replace('_', " ")
    }

    /// What is seen, in a sentence.
    pub fn tells(&self) -> &'static str {
        let first = self.script.lines().next().unwrap_or_default();
        first.trim_start_matches(['#', ' '])
    }

    /// Runs the anomaly's script with a protocol. Returns the script with the answers.
    ///
    /// # Errors
    /// If the script is not valid, or a command of it cannot be carried out.
    pub fn run<S: Session>(&self, protocol: <S::Protocol as Protocol>::Config) -> io::Result<String> {
        goldenscript::generate(&mut Script::<S>::new(protocol), self.script)
    }
}

impl Verdict {
    /// The verdict at the end of a script that was run.
    pub fn of(run: &str) -> Option<Verdict> {
        let last = run.lines().rev().find(|line| !line.is_empty())?;
        Some(match last.split(':').next()? {
            "shown" => Verdict::Shown,
            "prevented" => Verdict::Prevented,
            "not offered" => Verdict::NotOffered,
            _ => return None,
        })
    }
}

/// Runs the gallery with a protocol, and compares each script's answers with those in a folder. With `UPDATE_GOLDENFILES=1` it writes the
/// answers there.
///
/// # Errors
/// If a script cannot be run, or does not end with a verdict.
///
/// # Panics
/// If an answer differs.
pub fn gallery<S: Session>(
    protocol: &<S::Protocol as Protocol>::Config,
    folder: &Path,
) -> io::Result<Vec<(Anomaly, Verdict)>> {
    fs::create_dir_all(folder)?;
    let mut mint = goldenfile::Mint::new(folder);
    let mut verdicts = Vec::new();
    for anomaly in Anomaly::ALL {
        let run = anomaly.run::<S>(protocol.clone())?;
        mint.new_goldenfile(anomaly.name)?.write_all(run.as_bytes())?;
        let verdict = Verdict::of(&run);
        let verdict = verdict.ok_or_else(|| io::Error::other(format!("{} has no verdict", anomaly.name)))?;
        verdicts.push((anomaly, verdict));
    }
    Ok(verdicts)
}

/// Runs the gallery as [`gallery`] does. A protocol must show every anomaly that it does not promise to prevent: an anomaly that no script
/// shows is not known to be possible.
///
/// # Panics
/// If an anomaly whose name begins with one of `prevented` is not prevented, if another one is not shown, or if an answer differs.
pub fn prevents<S: Session>(protocol: &<S::Protocol as Protocol>::Config, folder: &Path, prevented: &[&str]) {
    let verdicts = gallery::<S>(protocol, folder).expect("the gallery runs");
    for (anomaly, verdict) in verdicts {
        let expected = match prevented.iter().any(|name| anomaly.name.starts_with(name)) {
            true => Verdict::Prevented,
            false => Verdict::Shown,
        };
        assert_eq!(verdict, expected, "{}", anomaly.title());
    }
}

/// Runs every script in a folder, and compares the answers. With `UPDATE_GOLDENFILES=1` it writes them there.
///
/// # Panics
/// If there is no script, or an answer differs.
pub fn goldens<S: Session>(protocol: &<S::Protocol as Protocol>::Config, folder: &Path) {
    let entries = fs::read_dir(folder).expect("the folder of the scripts is there");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", folder.display());
    for path in paths {
        println!("{}", path.display());
        let mut script = Script::<S>::new(protocol.clone());
        goldenscript::run(&mut script, &path).expect("the script runs");
    }
}
