//! How a command ends if it fails, and how all commands print.
//!
//! `head` and others close standard output or standard error before a command is done. The command then goes on silently, and its
//! exit code still says what it found. `println!` and `eprintln!` would panic, so commands use [`say`] and [`tell`].

use std::{io::Write, process::ExitCode};
use thiserror::Error;

/// Why a command did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Failure {
    /// A promise was broken. The message says which one, and where.
    #[error("{0}")]
    Broken(String),
    /// The command was asked for something impossible. The message says what was expected.
    #[error("{0}")]
    Usage(String),
    /// The environment is not as it must be: a port is taken, a file is missing, a server does not answer.
    #[error("{0}")]
    Environment(String),
}

/// Prints the failure, and returns the exit code for the shell.
pub(crate) fn exit_code(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else {
        return ExitCode::SUCCESS;
    };
    tell(&format!("error: {failure}"));
    match failure {
        Failure::Broken(_) => ExitCode::from(1),
        Failure::Usage(_) => ExitCode::from(2),
        Failure::Environment(_) => ExitCode::from(3),
    }
}

/// Writes a line to standard output. If its reader has closed it, this is no failure. If the disk is full, it is.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Environment(format!(
            "nothing can be written to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Says something on standard error, beside what was asked for. The command goes on if that cannot be written.
pub(crate) fn tell(text: &str) {
    show(&format!("{text}\n"));
}

/// The same without an end of line, for a line on a terminal that changes.
pub(crate) fn show(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The command was asked for something impossible.
pub(crate) fn usage(why: &impl std::fmt::Display) -> Failure {
    Failure::Usage(why.to_string())
}

/// The environment is not as it must be.
pub(crate) fn environment(why: &impl std::fmt::Display) -> Failure {
    Failure::Environment(why.to_string())
}
