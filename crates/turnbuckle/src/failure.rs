//! How a command ends if it fails.

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
    eprintln!("error: {failure}");
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

/// The command was asked for something impossible.
pub(crate) fn usage(why: &impl std::fmt::Display) -> Failure {
    Failure::Usage(why.to_string())
}

/// The environment is not as it must be.
pub(crate) fn environment(why: &impl std::fmt::Display) -> Failure {
    Failure::Environment(why.to_string())
}
