use super::{PLAIN, Spec};
use crate::{call::Call, refusal::Refusal};

pub(super) const AUTH: Spec = Spec {
    name: "auth",
    arity: -2,
    syntax: "[username] password",
    summary: "Logs in. There are no users: `default` needs no password.",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.len() {
        2 => Err(Refusal::err(
            "AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        )),
        3 => {
            check_user(call.arguments.at(1))?;
            call.reply_ok()
        }
        _ => Err(Refusal::syntax()),
    }
}

/// Does what Redis does without users: the default user may have any password, and there is no other user.
pub(super) fn check_user(user: &[u8]) -> Result<(), Refusal> {
    if user == b"default" {
        return Ok(());
    }
    Err(Refusal(
        "WRONGPASS invalid username-password pair or user is disabled.".into(),
    ))
}
