//! Messages on standard error, as text or as JSON.
use crate::failure::{Failure, usage};
use std::io::{IsTerminal, stderr};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// How much is written: a level, and levels of modules.
pub(crate) const FILTER: &str = "TURNBUCKLE_LOG";

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
    let filter = match asked() {
        Some(text) => filter(&text)?,
        None => EnvFilter::new(level),
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

/// What the environment says of how much is written.
pub(crate) fn asked() -> Option<String> {
    std::env::var(FILTER).ok().filter(|text| !text.trim().is_empty())
}

/// The filter that a text describes: a level, and levels of modules. `tracing-subscriber` would take any other word for the name of a module, and write
/// nothing else.
fn filter(text: &str) -> Result<EnvFilter, Failure> {
    let is_name = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c))
    };
    // It would also take no word at all for a level.
    let is_level = |level: &str| !level.is_empty() && level.parse::<LevelFilter>().is_ok();
    let is_known = |part: &&str| match part.split_once('=') {
        Some((module, level)) => is_name(module) && is_level(level),
        None => is_level(part),
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let filter = EnvFilter::try_new(parts.join(",")).ok();
    filter.filter(|_| parts.iter().all(is_known)).ok_or_else(|| {
        usage(&format!(
            "{FILTER}: found '{text}'; expected off, error, warn, info, debug or trace, or levels of modules too, such as warn,turnbuckle_server::peer=info"
        ))
    })
}
