//! How commands ask nodes at their admin addresses.
use crate::failure::{Failure, environment, usage};
use clap::Args;
use std::{io, path::PathBuf, time::Duration};
use turnbuckle_server::admin::{AdminClient, AdminClientError, AdminToken};

/// How long a node may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// What lets a command change something.
#[derive(Debug, Args)]
pub(crate) struct Token {
    /// A file with the token that changes need, if the cluster's configuration has one (`admin_token_file`).
    #[arg(long, value_name = "PATH", env = "TURNBUCKLE_ADMIN_TOKEN_FILE", global = true)]
    token_file: Option<PathBuf>,
}

impl Token {
    /// The token, if there is one.
    pub(crate) fn read(&self) -> Result<Option<AdminToken>, Failure> {
        let read = |file: &PathBuf| {
            AdminToken::read(file).map_err(|error| {
                let why = format!("the token file {}: {error}", file.display());
                match error.kind() {
                    io::ErrorKind::InvalidData => usage(&why),
                    _ => environment(&why),
                }
            })
        };
        self.token_file.as_ref().map(read).transpose()
    }
}

/// A client of the node whose admin HTTP is at `address`.
pub(crate) fn client(address: &str, token: Option<&AdminToken>) -> AdminClient {
    AdminClient::new(address, ANSWER_TIME).with_token(token.cloned())
}

/// A refused request is wrong usage, except for one that took too long.
pub(crate) fn failure(error: AdminClientError) -> Failure {
    match error {
        AdminClientError::Refused {
            status: 400..=407 | 409..=499,
            ..
        } => usage(&error),
        error => environment(&error),
    }
}
