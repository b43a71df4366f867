//! `turnbuckle completions` and `turnbuckle man`: what shells and `man` know of the command line.
use crate::failure::{Failure, environment};
use clap::{Args, Command};
use clap_complete::Shell;
use std::{io::Write, path::PathBuf};

/// Prints the completions of a shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  turnbuckle completions bash > /usr/share/bash-completion/completions/turnbuckle"
)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Writes a manual page for each command.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  turnbuckle man --into /usr/share/man/man1")]
pub(crate) struct Man {
    /// The directory for the pages. Without it the page of `turnbuckle` itself is printed.
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

pub(crate) fn write_completions(options: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "turnbuckle", &mut script);
    print(&script)
}

pub(crate) fn write_pages(options: &Man, command: Command) -> Result<(), Failure> {
    match &options.into {
        Some(directory) => clap_mangen::generate_to(command, directory)
            .map_err(|error| environment(&format!("{}: {error}", directory.display()))),
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            rendered.map_err(|error| environment(&error))?;
            print(&page)
        }
    }
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(environment(&error)),
        _ => Ok(()),
    }
}
