//! Runs a campaign from its beginning to its end.
use crate::{
    cluster::{Cluster, NODES, Start, lock, memory_budget, node_name},
    ledger::Ledger,
    options::Options,
    recorder::Recorder,
    report::{Report, RoundReport},
    round::{REST_PATIENCE, Rounds, names},
    watch::Watch,
};
use std::{
    fmt, fs,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use thiserror::Error;

/// Why there is no verdict.
#[derive(Debug, Error)]
pub enum Failure {
    /// The environment does not allow the campaign: the reason, as text.
    #[error("{0}")]
    Environment(String),
    /// A signal ended the campaign.
    #[error("interrupted: nothing is judged")]
    Interrupted,
}

fn environment(what: &dyn fmt::Display, why: &dyn fmt::Display) -> Failure {
    Failure::Environment(format!("{what}: {why}"))
}

/// Runs a campaign. `interrupted` ends it early.
///
/// # Errors
/// If the environment does not allow it, or it was interrupted.
pub fn run(options: &Options, interrupted: &AtomicBool) -> Result<Report, Failure> {
    let program = program(options)?;
    let place = Place::new(options)?;
    let keyspaces = options.keyspaces().map_err(Failure::Environment)?;
    let cluster = Cluster::new(place.path(), &program, keyspaces, options.plant.clone());
    let cluster = cluster.map_err(|error| environment(&place.path().display(), &error))?;
    let traces = place.path().join("traces");
    fs::create_dir_all(&traces).map_err(|error| environment(&traces.display(), &error))?;
    let recorder = Recorder::start();
    start_all(&cluster)?;
    let (watch, stop) = (Watch::default(), AtomicBool::new(false));
    let mut report = Report {
        seed: options.seed,
        keyspaces: names(cluster.keyspaces()),
        memory_budget_bytes: match options.memory_mb {
            Some(max) => max << 20,
            None => memory_budget(cluster.keyspaces().len()),
        },
        ..Report::default()
    };
    let progress = Progress {
        is_watched: std::io::stderr().is_terminal(),
        recorder,
    };
    progress.begins(options, &cluster);
    let done = std::thread::scope(|scope| {
        for node in 0..NODES {
            let (watch, cluster, recorder, stop) = (&watch, &cluster, &recorder, &stop);
            scope.spawn(move || watch.run(cluster, recorder, node, stop));
        }
        // When the rounds end in any way, this stops the watch. The scope waits for the watch's threads.
        let _stops = Stops(&stop);
        let mut rounds = Rounds {
            cluster: &cluster,
            watch: &watch,
            recorder,
            options,
            kinds: options.kinds(),
            interrupted,
            ledgers: cluster.keyspaces().iter().map(|_| Ledger::default()).collect(),
            carried: vec![Vec::new(); cluster.keyspaces().len()],
        };
        run_rounds(&mut rounds, &mut report, &progress)
    });
    done?;
    (0..NODES).for_each(|node| cluster.note_memory(node));
    cluster.kill_all();
    look_at_memory(&cluster, &mut report);
    look_at_logs(&cluster, &mut report);
    report.full_copies = watch.copies();
    report.damage_met = watch.damage_met();
    report.seconds = recorder.seconds();
    place.finish(&mut report)?;
    Ok(report)
}

/// Sets a flag when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn start_all(cluster: &Cluster) -> Result<(), Failure> {
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for node in 0..NODES {
            let failed = &failed;
            scope.spawn(move || {
                let name = node_name(node);
                let why = match cluster.start(node) {
                    Ok(Start::Ready) => return,
                    Ok(Start::Refused(words)) => words,
                    Ok(Start::Hangs) => "it was not ready within a minute".to_owned(),
                    Err(error) => error.to_string(),
                };
                *lock(failed) = Some(format!("node {name} does not start: {why}"));
            });
        }
    });
    match lock(&failed).take() {
        Some(why) => Err(Failure::Environment(why)),
        None => Ok(()),
    }
}

fn run_rounds(rounds: &mut Rounds<'_>, report: &mut Report, progress: &Progress) -> Result<(), Failure> {
    rounds
        .rest(&mut Vec::new())
        .map_err(|why| environment(&"the cluster does not come to rest before the first round", &why))?;
    let (options, recorder, interrupted) = (rounds.options, rounds.recorder, rounds.interrupted);
    let mut number = 0;
    loop {
        number += 1;
        progress.say(&format!("round {number}"));
        let round = rounds.run(number);
        if interrupted.load(Ordering::Acquire) {
            return Err(Failure::Interrupted);
        }
        progress.round(&round);
        report.count(&round.events);
        let is_broken = !round.broken.is_empty();
        report.rounds.push(round);
        if is_broken && !options.keep_going {
            return Ok(());
        }
        if recorder.seconds() >= options.minutes * 60.0 {
            break;
        }
    }
    restart(rounds, report, progress)
}

/// All nodes are killed at once and started again. They must show the same as before.
fn restart(rounds: &mut Rounds<'_>, report: &mut Report, progress: &Progress) -> Result<(), Failure> {
    progress.say("all nodes are killed and started again");
    rounds.cluster.kill_all();
    start_all(rounds.cluster)?;
    let mut last = RoundReport::default();
    if let Err(why) = rounds.rest(&mut Vec::new()) {
        let patience = REST_PATIENCE.as_secs();
        last.broken.push(format!(
            "after the restart of all nodes: the cluster does not come to rest within {patience} s: {why}"
        ));
    }
    for place in 0..rounds.cluster.keyspaces().len() {
        rounds.judge_ends(place, "after the restart of all nodes", &[], &mut last);
    }
    report.broken.extend(last.broken);
    report.broken.extend(rounds.watch.take_ended());
    match rounds.interrupted.load(Ordering::Acquire) {
        true => Err(Failure::Interrupted),
        false => Ok(()),
    }
}

fn look_at_memory(cluster: &Cluster, report: &mut Report) {
    for node in 0..NODES {
        let max = cluster.max_resident(node);
        report.max_resident_bytes.insert(node_name(node), max);
        if max > report.memory_budget_bytes {
            report.broken.push(format!(
                "{} had {} MiB resident; its budget is {} MiB",
                node_name(node),
                max >> 20,
                report.memory_budget_bytes >> 20
            ));
        }
    }
}

/// Reports what no node may write into its log, whatever the faults are.
fn look_at_logs(cluster: &Cluster, report: &mut Report) {
    for node in 0..NODES {
        let log = fs::read(cluster.log(node)).unwrap_or_default();
        let found = broken_in(&String::from_utf8_lossy(&log));
        let named = found.map(|what| format!("{} {what}", node_name(node)));
        report.broken.extend(named);
    }
}

/// A node that panicked may live on without one of its threads. If a frame on a link cannot be used, the link is begun again and
/// recovers: clients do not see it. A node with a full disk refuses a full copy with the same words.
fn broken_in(log: &str) -> impl Iterator<Item = String> + use<> {
    let panicked = log.lines().find(|line| line.contains("panicked at"));
    let mut misread = log.lines().filter(|line| {
        line.contains("a frame that cannot be used") && !line.contains("room for a full copy")
    });
    let first = misread.next();
    let misread = first.map(|line| {
        let count = 1 + misread.count();
        format!("received frames that it could not use, {count} times; the first: {line}")
    });
    let panicked = panicked.map(|line| format!("panicked: {line}"));
    panicked.into_iter().chain(misread)
}

fn program(options: &Options) -> Result<PathBuf, Failure> {
    let beside = || {
        let own = std::env::current_exe().ok()?;
        Some(own.parent()?.join("turnbuckle"))
    };
    let program = options.turnbuckle.clone().or_else(beside);
    let program = program.filter(|program| program.is_file());
    program.ok_or_else(|| {
        Failure::Environment(
            "there is no turnbuckle program in the directory of this program; build it (cargo build --release), or name it with --turnbuckle".into(),
        )
    })
}

/// The directory in which the campaign works.
enum Place {
    /// The user's choice. It is kept.
    Named(PathBuf),
    /// A temporary directory. It is removed, unless something is broken.
    Temporary(tempfile::TempDir),
}

impl Place {
    fn new(options: &Options) -> Result<Place, Failure> {
        let Some(path) = &options.directory else {
            let made = tempfile::Builder::new().prefix("turnbuckle-campaign-").tempdir();
            return made
                .map(Place::Temporary)
                .map_err(|error| environment(&"a temporary directory", &error));
        };
        let shown = path.display();
        fs::create_dir_all(path).map_err(|error| environment(&shown, &error))?;
        let mut inside = fs::read_dir(path).map_err(|error| environment(&shown, &error))?;
        if inside.next().is_some() {
            return Err(environment(
                &shown,
                &"expected an empty directory, for the data of six nodes",
            ));
        }
        let path = fs::canonicalize(path).map_err(|error| environment(&shown, &error))?;
        Ok(Place::Named(path))
    }

    fn path(&self) -> &Path {
        match self {
            Place::Named(path) => path,
            Place::Temporary(directory) => directory.path(),
        }
    }

    /// Writes the report into the directory, if the directory is kept.
    fn finish(self, report: &mut Report) -> Result<(), Failure> {
        let path = match self {
            Place::Named(path) => path,
            Place::Temporary(directory) if report.is_broken() => directory.keep(),
            Place::Temporary(_) => return Ok(()),
        };
        report.directory = Some(path.clone());
        let file = path.join("report.json");
        let json =
            serde_json::to_vec_pretty(&report).map_err(|error| environment(&file.display(), &error))?;
        fs::write(&file, json).map_err(|error| environment(&file.display(), &error))
    }
}

/// Lines that show the progress on a terminal. Programs and logs get none.
struct Progress {
    is_watched: bool,
    recorder: Recorder,
}

impl Progress {
    fn begins(&self, options: &Options, cluster: &Cluster) {
        let kinds = options.kinds();
        let kinds: Vec<&str> = kinds.into_iter().map(|kind| kind.name()).collect();
        self.say(&format!(
            "seed {}, {} minutes, keyspaces {}, faults {}",
            options.seed,
            options.minutes,
            names(cluster.keyspaces()).join(", "),
            kinds.join(", ")
        ));
    }

    fn say(&self, what: &str) {
        if self.is_watched {
            let _ = writeln!(std::io::stderr(), "{:7.1} s  {what}", self.recorder.seconds());
        }
    }

    fn round(&self, round: &RoundReport) {
        self.say(&format!(
            "round {}: {} operations, {} faults, at rest after {:.1} s, {} keys judged, {} broken promises",
            round.round,
            round.operations,
            round
                .events
                .iter()
                .filter(|event| event.left_out.is_none())
                .count(),
            round.rest_seconds,
            round.keys,
            round.broken.len()
        ));
        round
            .broken
            .iter()
            .for_each(|what| self.say(&format!("BROKEN {what}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_of_panics_and_of_what_was_not_understood() {
        let log = "INFO link up\n\
            ERROR the peer sent a frame that cannot be used: expected room for a full copy, found a disk that is full\n\
            ERROR the peer sent a frame that cannot be used: expected a mark after entries that have arrived, found entry 7\n\
            thread 'x' panicked at y\n\
            ERROR the peer sent a frame that cannot be used: expected entry 8, found entry 9\n";
        let found: Vec<String> = broken_in(log).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("panicked: thread 'x'"), "{found:?}");
        assert!(
            found[1].contains("2 times; the first: ERROR the peer sent") && found[1].ends_with("entry 7"),
            "{found:?}"
        );
        assert_eq!(broken_in("INFO link up\n").count(), 0);
    }
}
