use super::unsupported;
use crate::{call::Call, refusal::Refusal};

/// How much Redis shows of a name, and of all arguments together, in bytes.
const SHOWN_BYTES: usize = 128;

/// Refuses a command that is not in the table, in the words of Redis.
pub(crate) fn run_unknown(call: &mut Call<'_>) -> Result<(), Refusal> {
    let arguments = call.arguments;
    let name = arguments.at(0);
    if is_http(name) {
        // A browser was made to talk to this port. The rest of its request would be taken for commands.
        call.connection.end();
        return Err(Refusal::err("this is not an HTTP port"));
    }
    unsupported::check(name)?;
    let mut shown = String::new();
    for argument in arguments.iter().skip(1) {
        if shown.len() >= SHOWN_BYTES {
            break;
        }
        shown += &format!("'{}' ", shorten(argument, SHOWN_BYTES - shown.len()));
    }
    Err(Refusal::err(format_args!(
        "unknown command '{}', with args beginning with: {shown}",
        shorten(name, SHOWN_BYTES)
    )))
}

/// Whether this is a line of a request over HTTP.
pub(crate) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn shorten(text: &[u8], max: usize) -> String {
    String::from_utf8_lossy(&text[..text.len().min(max)]).into_owned()
}
