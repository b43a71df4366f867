use super::{Concerns, PLAIN, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::{call::Call, refusal::Refusal};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

pub(super) const SESSION: Spec = Spec {
    name: "session",
    arity: -2,
    syntax: "TOKEN | RESUME token | RESET",
    summary: "What this client has seen, as a token with which it can go on at another node.",
    waits: true,
    run,
    concerns: Concerns::Keyspace,
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
                Refusal("BADTOKEN not a session token: expected the answer of SESSION TOKEN".into())
            })?;
            let door = call.door()?;
            let resumed = call.backend.resume(door, &token);
            resumed.map_err(|bad| Refusal(format!("BADTOKEN {bad}")))?;
            call.reply_ok()
        }
        "reset" => {
            check_subcommand(call, "session|reset", 2..=2)?;
            // The next session is opened when it is needed.
            if let Some(door) = call.connection.state.door.take() {
                call.backend.close(door);
            }
            call.reply_ok()
        }
        "help" => reply_help(
            call,
            "SESSION",
            &[
                "TOKEN",
                "    Return what this session has seen and written, as a token.",
                "RESUME <token>",
                "    Add what the token's session has seen to what this session has seen.",
                "RESET",
                "    Forget what this session has seen and written, in the selected keyspace.",
            ],
        ),
        _ => Err(unknown_subcommand(call, "SESSION")),
    }
}
