//! How commands ask nodes at their admin addresses.
use crate::failure::{Failure, environment, usage};
use clap::Args;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use turnbuckle_server::{
    TlsAuthority, TlsError,
    admin::{AdminClient, AdminClientError, AdminToken},
};

/// How long a node may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// What a command needs beside the address of an admin HTTP.
#[derive(Debug, Args)]
pub(crate) struct Access {
    /// A file with the token that changes need, if the cluster's configuration has one (`admin_token_file`).
    #[arg(long, value_name = "PATH", env = "TURNBUCKLE_ADMIN_TOKEN_FILE", global = true)]
    token_file: Option<PathBuf>,
    /// If the admin addresses are HTTPS: a file with the certificate of the authority that has signed the nodes' certificates.
    #[arg(long, value_name = "PATH", env = "TURNBUCKLE_AUTHORITY_FILE", global = true)]
    authority_file: Option<PathBuf>,
}

/// Reads the authority's file, if there is one.
pub(crate) fn authority(file: Option<&Path>) -> Result<Option<TlsAuthority>, Failure> {
    file.map(TlsAuthority::read)
        .transpose()
        .map_err(|error| match error {
            TlsError::Unreadable { .. } => environment(&error),
            _ => usage(&error),
        })
}

/// What its files have.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    token: Option<AdminToken>,
    authority: Option<TlsAuthority>,
}

impl Access {
    /// Reads the files.
    pub(crate) fn open(&self) -> Result<Opened, Failure> {
        Ok(Opened {
            token: self.token()?,
            authority: authority(self.authority_file.as_deref())?,
        })
    }

    fn token(&self) -> Result<Option<AdminToken>, Failure> {
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
pub(crate) fn client(address: &str, access: &Opened) -> AdminClient {
    let client = AdminClient::new(address, ANSWER_TIME).with_token(access.token.clone());
    client.with_authority(access.authority.clone(), None)
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
