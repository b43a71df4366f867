//! Messages on standard error, as text or as JSON.
use crate::failure::{Failure, usage};
use std::io::{IsTerminal, stderr};
use tracing_subscriber::EnvFilter;

/// How much is written: a level, or a filter as `tracing-subscriber` reads it.
const FILTER: &str = "TURNBUCKLE_LOG";

/// The form of each line: `text` or `json`.
const FORMAT: &str = "TURNBUCKLE_LOG_FORMAT";

/// Begins to write messages, from `level` on unless the environment names another filter.
///
/// # Errors
/// If the environment names a format that there is not.
pub(crate) fn begin(level: &str) -> Result<(), Failure> {
    let is_json = match std::env::var(FORMAT).as_deref() {
        Ok("json") => true,
        Ok("text" | "") | Err(_) => false,
        Ok(other) => {
            return Err(usage(&format!(
                "{FORMAT}: found '{other}'; expected text or json"
            )));
        }
    };
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new(level));
    let messages = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        // A message that cannot be written, on a full disk for instance, is not worth a panic.
        .log_internal_errors(false);
    match is_json {
        true => messages.json().flatten_event(true).init(),
        false => messages.with_ansi(stderr().is_terminal()).init(),
    }
    Ok(())
}
