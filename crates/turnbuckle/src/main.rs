//! Turnbuckle: a geo-replicated key-value store in which every operation says how consistent it must be, and every answer
//! says how fresh it provably was.
mod allocator;
mod bench;
mod check;
mod connection;
mod demo;
mod document;
mod exhaust;
mod experiment;
mod failure;
mod hunt;
mod progress;
mod protocols;
mod shell;
mod sim;
mod start;
mod wan;

use clap::{Parser, Subcommand};
use std::{io::IsTerminal, process::ExitCode};

/// A geo-replicated key-value store in which every operation says how consistent it must be.
///
/// Exit codes: 0 fine, 1 a promise was broken, 2 wrong usage or configuration, 3 the environment (a port taken, a file missing).
#[derive(Debug, Parser)]
#[command(version, after_help = "Begin with:\n  turnbuckle demo")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Arguments),
    Check(check::Check),
    Demo(demo::Demo),
    Experiment(experiment::Experiment),
    Sim(sim::Sim),
    Start(start::Start),
    Wan(wan::Wan),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A server's log says when links come and go; a command's terminal shows what needs somebody.
    let level = match cli.command {
        Command::Start(_) => "info",
        Command::Bench(_) | Command::Check(_) | Command::Demo(_) | Command::Wan(_) => "warn",
        // Its nodes meet every trouble there is, as they should.
        Command::Experiment(_) | Command::Sim(_) => "off",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("TURNBUCKLE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // What cannot be told, on a full disk for instance, is not worth a panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let set_up = match cli.command {
        Command::Start(_) | Command::Demo(_) => allocator::set_up_server(),
        _ => Ok(()),
    };
    if set_up.is_err() {
        return failure::exit_code(set_up);
    }
    let done = match cli.command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Check(options) => check::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Experiment(options) => experiment::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Start(options) => start::run(&options),
        Command::Wan(options) => wan::run(&options),
    };
    failure::exit_code(done)
}
