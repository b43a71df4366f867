use super::{PLAIN, Spec};
use crate::users::DEFAULT_USER;
use crate::{call::Call, refusal::Refusal};

pub(super) const AUTH: Spec = Spec {
    name: "auth",
    arity: -2,
    syntax: "[username] password",
    summary: "Logs in. Without a username it is `default`. At a node without users, `default` is the only user, and needs no password.",
    waits: true,
    is_open: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (user, password) = match call.len() {
        2 if needs_no_password(call) => {
            return Err(Refusal::err(
                "AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => (DEFAULT_USER.as_bytes(), call.arguments.at(1)),
        3 => (call.arguments.at(1), call.arguments.at(2)),
        _ => return Err(Refusal::syntax()),
    };
    call.connection.authenticate(user, password, call.backend)?;
    call.reply_ok()
}

fn needs_no_password(call: &Call<'_>) -> bool {
    let users = call.connection.users();
    let default = users.as_ref().map(|users| users.get(DEFAULT_USER));
    default.is_none_or(|default| default.is_some_and(|user| user.anybody))
}
