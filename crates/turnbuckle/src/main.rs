//! Turnbuckle: a geo-replicated key-value store in which every operation says how consistent it must be, and every answer
//! says how fresh it provably was.
mod admin;
mod allocator;
mod bench;
mod certificates;
mod check;
mod cluster;
mod connection;
mod demo;
mod document;
mod exhaust;
mod experiment;
mod failure;
mod hunt;
mod logging;
mod manual;
mod progress;
mod protocols;
mod shell;
mod sim;
mod start;
mod user;
mod wan;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// A geo-replicated key-value store in which every operation says how consistent it must be.
///
/// Exit codes: 0 fine, 1 a promise was broken, 2 wrong usage or configuration, 3 the environment (a port taken, a file missing).
#[derive(Debug, Parser)]
#[command(version = env!("TURNBUCKLE_VERSION"), after_help = "Begin with:\n  turnbuckle demo --shell")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Arguments),
    Certificates(certificates::Certificates),
    Check(check::Check),
    Cluster(cluster::Cluster),
    Completions(manual::Completions),
    Demo(demo::Demo),
    Experiment(experiment::Experiment),
    Man(manual::Man),
    Sim(sim::Sim),
    Start(start::Start),
    User(user::User),
    Wan(wan::Wan),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A server's log says when links come and go; a command's terminal shows what needs somebody.
    let level = match cli.command {
        Command::Start(_) => "info",
        Command::Bench(_)
        | Command::Certificates(_)
        | Command::Check(_)
        | Command::Cluster(_)
        | Command::Completions(_)
        | Command::Demo(_)
        | Command::Man(_)
        | Command::User(_)
        | Command::Wan(_) => "warn",
        // Its nodes meet every trouble there is, as they should.
        Command::Experiment(_) | Command::Sim(_) => "off",
    };
    if let Err(failure) = logging::begin(level) {
        return failure::exit_code(Err(failure));
    }
    let set_up = match cli.command {
        Command::Start(_) | Command::Demo(_) => allocator::set_up_server(),
        _ => Ok(()),
    };
    if set_up.is_err() {
        return failure::exit_code(set_up);
    }
    let done = match cli.command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Certificates(options) => certificates::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Completions(options) => manual::write_completions(&options, Cli::command()),
        Command::Demo(options) => demo::run(&options),
        Command::Experiment(options) => experiment::run(&options),
        Command::Man(options) => manual::write_pages(&options, Cli::command()),
        Command::Sim(options) => sim::run(&options),
        Command::Start(options) => start::run(&options),
        Command::User(options) => user::run(&options),
        Command::Wan(options) => wan::run(&options),
    };
    failure::exit_code(done)
}
