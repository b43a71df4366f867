//! `turnbuckle experiment`: the papers' figures, from the simulator, next to the numbers of the papers.
//!
//! An experiment is a file under `experiments/` ([`mod@file`]): a scenario in which some values vary, what is measured, and the paper's
//! claims. Each of its points is one run of the simulated world; nothing depends on the machine, so the same binary prints the same
//! numbers everywhere. The files are in the binary.
mod claim;
mod compare;
mod file;
mod measure;
mod report;
mod results;

use crate::{
    document,
    failure::{Failure, environment, say, usage},
};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Draws the papers' figures from the simulator, and says which of the papers' claims held.
#[derive(Debug, Args)]
pub struct Experiment {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the experiments.
    List,
    Run(Run),
    /// What is no command.
    #[command(external_subcommand)]
    Unknown(Vec<String>),
}

/// Runs experiments: prints our numbers next to the paper's, and for each claim of the paper whether it held.
///
/// Ends with 1 if a claim did not hold.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  turnbuckle experiment run causal/fig5.4\n  \
                  turnbuckle experiment run causal/fig5.1 causal/fig5.2 --out figures\n\n\
                  The figures are written with --out: DIR/causal/fig5.4/visibility.svg, and the tables as report.txt beside \
                  them. docs/experiments.md says how to read them, and how to write one.")]
struct Run {
    /// Names as `turnbuckle experiment list` has them, or files that end in .toml.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Write the figures as SVG into this directory, and the tables.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the results into this Markdown file, into the first code block below each experiment's heading.
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    into: Option<PathBuf>,
    /// Use only the first and the last value of each axis, and two seconds of each run, to see whether the experiment works.
    #[arg(long)]
    quick: bool,
    /// Print JSON, one object.
    #[arg(long)]
    json: bool,
}

/// The experiments that are in the binary.
pub(crate) const EXPERIMENTS: &[(&str, &str)] = &[
    (
        "causal/fig5.1",
        include_str!("../../../experiments/causal/fig5.1.toml"),
    ),
    (
        "causal/fig5.2",
        include_str!("../../../experiments/causal/fig5.2.toml"),
    ),
    (
        "causal/fig5.3",
        include_str!("../../../experiments/causal/fig5.3.toml"),
    ),
    (
        "causal/fig5.4",
        include_str!("../../../experiments/causal/fig5.4.toml"),
    ),
    (
        "causal/fig5.5",
        include_str!("../../../experiments/causal/fig5.5.toml"),
    ),
    (
        "causal/fig5.6",
        include_str!("../../../experiments/causal/fig5.6.toml"),
    ),
    (
        "causal/fig8.4",
        include_str!("../../../experiments/causal/fig8.4.toml"),
    ),
    (
        "causal/fig8.5",
        include_str!("../../../experiments/causal/fig8.5.toml"),
    ),
    (
        "causal/fig8.6",
        include_str!("../../../experiments/causal/fig8.6.toml"),
    ),
    (
        "causal/told-at-once",
        include_str!("../../../experiments/causal/told-at-once.toml"),
    ),
    ("cpq/fig2", include_str!("../../../experiments/cpq/fig2.toml")),
    ("cpq/fig3", include_str!("../../../experiments/cpq/fig3.toml")),
    ("cpq/fig4", include_str!("../../../experiments/cpq/fig4.toml")),
    ("cpq/fig5", include_str!("../../../experiments/cpq/fig5.toml")),
    ("cpq/fig6", include_str!("../../../experiments/cpq/fig6.toml")),
    ("cpq/fig7", include_str!("../../../experiments/cpq/fig7.toml")),
    ("cpq/fig8", include_str!("../../../experiments/cpq/fig8.toml")),
    ("cpq/fig9", include_str!("../../../experiments/cpq/fig9.toml")),
    (
        "cpq/trade-off",
        include_str!("../../../experiments/cpq/trade-off.toml"),
    ),
    (
        "cadidas/fig5",
        include_str!("../../../experiments/cadidas/fig5.toml"),
    ),
    (
        "cadidas/fig6",
        include_str!("../../../experiments/cadidas/fig6.toml"),
    ),
    (
        "cadidas/fig7",
        include_str!("../../../experiments/cadidas/fig7.toml"),
    ),
    (
        "cadidas/fig8",
        include_str!("../../../experiments/cadidas/fig8.toml"),
    ),
    (
        "meteorshower/fig9",
        include_str!("../../../experiments/meteorshower/fig9.toml"),
    ),
    (
        "meteorshower/fig10",
        include_str!("../../../experiments/meteorshower/fig10.toml"),
    ),
    (
        "meteorshower/fig12",
        include_str!("../../../experiments/meteorshower/fig12.toml"),
    ),
    (
        "meteorshower/fig13",
        include_str!("../../../experiments/meteorshower/fig13.toml"),
    ),
    (
        "dacian/fig3",
        include_str!("../../../experiments/dacian/fig3.toml"),
    ),
    (
        "dacian/fig5",
        include_str!("../../../experiments/dacian/fig5.toml"),
    ),
    (
        "dacian/redirects",
        include_str!("../../../experiments/dacian/redirects.toml"),
    ),
    (
        "nukv/fig4.2",
        include_str!("../../../experiments/nukv/fig4.2.toml"),
    ),
    (
        "nukv/fig4.3",
        include_str!("../../../experiments/nukv/fig4.3.toml"),
    ),
    (
        "nukv/fig4.4",
        include_str!("../../../experiments/nukv/fig4.4.toml"),
    ),
    (
        "nukv/fig4.5",
        include_str!("../../../experiments/nukv/fig4.5.toml"),
    ),
    (
        "nukv/fig4.6",
        include_str!("../../../experiments/nukv/fig4.6.toml"),
    ),
];

#[derive(Serialize)]
struct Json<'a> {
    experiments: Vec<report::Json<'a>>,
    held: bool,
}

pub fn run(options: &Experiment) -> Result<(), Failure> {
    match &options.command {
        Command::List => list(),
        Command::Run(options) => options.run(),
        Command::Unknown(words) => Err(usage(&format!(
            "there is no command 'experiment {}'; expected 'experiment list', or 'experiment run' with one of {}",
            words.join(" "),
            names()
        ))),
    }
}

fn list() -> Result<(), Failure> {
    let mut lines = Vec::new();
    for (name, text) in EXPERIMENTS {
        let experiment = parse(name, text)?;
        lines.push(format!("{name:<18}  {}", experiment.title));
    }
    say(&lines.join("\n"))
}

impl Run {
    fn run(&self) -> Result<(), Failure> {
        // All of them are read before the first one runs.
        let experiments: Result<Vec<file::Experiment>, Failure> =
            self.names.iter().map(|name| named(name)).collect();
        let mut experiments = experiments?;
        if self.quick {
            experiments = experiments.into_iter().map(file::Experiment::quick).collect();
        }
        let mut all = Vec::new();
        for (number, experiment) in experiments.iter().enumerate() {
            let results = results::Results::of(experiment, self.quick)?;
            let report = report::Report::new(experiment, &results);
            if let Some(directory) = &self.out {
                write(directory, experiment, &report)?;
            }
            if let Some(path) = &self.into {
                document::update(path, &experiment.name, &report.findings())?;
            }
            if !self.json {
                let gap = if number > 0 { "\n" } else { "" };
                say(&format!("{gap}{}", report.text()))?;
            }
            all.push((experiment, results));
        }
        let reports: Vec<report::Report<'_>> = all
            .iter()
            .map(|(experiment, results)| report::Report::new(experiment, results))
            .collect();
        let broken: usize = reports.iter().map(report::Report::broken).sum();
        if self.json {
            let json = Json {
                experiments: reports.iter().map(report::Report::json).collect(),
                held: broken == 0,
            };
            say(&serde_json::to_string(&json).map_err(|error| environment(&error))?)?;
        }
        match broken {
            0 => Ok(()),
            _ => Err(Failure::Broken(format!(
                "claims or runs that failed: {broken}; see 'not held' and 'wrong' above"
            ))),
        }
    }
}

/// The names of the experiments that are in the binary.
fn names() -> String {
    let names: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// An experiment by its name, or that of its file.
fn named(name: &str) -> Result<file::Experiment, Failure> {
    if let Some((name, text)) = EXPERIMENTS.iter().find(|(known, _)| *known == name) {
        return parse(name, text);
    }
    if !name.ends_with(".toml") {
        return Err(usage(&format!(
            "there is no experiment '{name}'; expected a file that ends in .toml, or one of {}",
            names()
        )));
    }
    let text = fs::read_to_string(name).map_err(|error| environment(&format!("{name}: {error}")))?;
    parse(name, &text)
}

fn parse(name: &str, text: &str) -> Result<file::Experiment, Failure> {
    file::Experiment::parse(name, text).map_err(|wrong| usage(&wrong))
}

/// The figures, and the tables.
fn write(
    directory: &Path,
    experiment: &file::Experiment,
    report: &report::Report<'_>,
) -> Result<(), Failure> {
    let name = experiment.name.trim_end_matches(".toml");
    // An experiment from a file is named by the last part of its path.
    let name = match EXPERIMENTS.iter().any(|(known, _)| *known == name) {
        true => name,
        false => Path::new(name)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("experiment"),
    };
    let directory = directory.join(name);
    let failed = |path: &Path, error| environment(&format!("cannot write {}: {error}", path.display()));
    fs::create_dir_all(&directory).map_err(|error| failed(&directory, error))?;
    let figures = report.figures();
    let mut files: Vec<(String, String)> = figures
        .iter()
        .map(|(name, plot)| (format!("{name}.svg"), plot.svg()))
        .collect();
    files.push(("report.txt".into(), report.text() + "\n"));
    for (file, text) in files {
        let path = directory.join(file);
        fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
