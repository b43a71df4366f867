use super::{PLAIN, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::{call::Call, refusal::Refusal};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

pub(super) const SESSION: Spec = Spec {
    name: "session",
    arity: -2,
    summary: "What this client knows, to go on with elsewhere: SESSION TOKEN | RESUME token | RESET.",
    waits: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.text(1).to_lowercase().as_str() {
        "token" => {
            check_subcommand(call, "session|token", 2..=2)?;
            let door = call.door()?;
            let token = URL_SAFE_NO_PAD.encode(call.backend.token(door));
            call.reply(|writer| writer.bulk(token.as_bytes()))
        }
        "resume" => {
            check_subcommand(call, "session|resume", 3..=3)?;
            let token = URL_SAFE_NO_PAD.decode(call.arguments.at(2)).map_err(|_| {
                Refusal("BADTOKEN not a session token: expected what SESSION TOKEN answered".into())
            })?;
            reopen(call, Some(&token))
        }
        "reset" => {
            check_subcommand(call, "session|reset", 2..=2)?;
            reopen(call, None)
        }
        "help" => reply_help(
            call,
            "SESSION",
            &[
                "TOKEN",
                "    Return what this session has seen and written, as a token.",
                "RESUME <token>",
                "    Go on where the token was taken: sees what that session saw.",
                "RESET",
                "    Forget what this session has seen and written.",
            ],
        ),
        _ => Err(unknown_subcommand(call, "SESSION")),
    }
}

/// Goes on with another session in the same keyspace; with the old one if that cannot be.
fn reopen(call: &mut Call<'_>, token: Option<&[u8]>) -> Result<(), Refusal> {
    let keyspace = call.connection.state.keyspace.clone();
    let door = call.select(&keyspace, token)?;
    if let Some(old) = call.connection.state.door.replace(door) {
        call.backend.close(old);
    }
    call.reply_ok()
}
