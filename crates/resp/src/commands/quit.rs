use super::{PLAIN, Spec};
use crate::{call::Call, refusal::Refusal};

pub(super) const QUIT: Spec = Spec {
    name: "quit",
    summary: "Closes the connection after all earlier commands are answered.",
    run,
    is_open: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    call.reply_ok()?;
    call.connection.end();
    Ok(())
}
