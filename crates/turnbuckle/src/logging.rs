//! Messages on standard error, as text or as JSON.
use crate::failure::{Failure, usage};
use std::io::{IsTerminal, stderr};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// How much is written: a level, or a filter as `tracing-subscriber` reads it.
const FILTER: &str = "TURNBUCKLE_LOG";

/// The form of each line: `text` or `json`.
const FORMAT: &str = "TURNBUCKLE_LOG_FORMAT";

/// Begins to write messages, from `level` on unless the environment names another filter.
///
/// # Errors
/// If the environment names a format that there is not, or a filter that is none.
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
    let filter = match std::env::var(FILTER).as_deref() {
        Ok("") | Err(_) => EnvFilter::new(level),
        Ok(text) => filter(text)?,
    };
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

/// The filter that a text describes. A word alone must be a level: `tracing-subscriber` would take it for the name of a module, and write nothing else.
fn filter(text: &str) -> Result<EnvFilter, Failure> {
    let parts = text.split(',').map(str::trim);
    let is_known = |part: &str| part.contains(['=', ':', '_']) || part.parse::<LevelFilter>().is_ok();
    let all_are_known = parts.into_iter().all(is_known);
    let filter = EnvFilter::try_new(text).ok().filter(|_| all_are_known);
    filter.ok_or_else(|| {
        usage(&format!(
            "{FILTER}: found '{text}'; expected off, error, warn, info, debug or trace, or levels of modules too, such as warn,turnbuckle_server::peer=info"
        ))
    })
}
