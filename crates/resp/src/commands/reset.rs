use super::{PLAIN, Spec};
use crate::{call::Call, connection::State, refusal::Refusal};

pub(super) const RESET: Spec = Spec {
    name: "reset",
    arity: 1,
    summary: "Resets the connection to its state at the beginning.",
    waits: true,
    run,
    is_open: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    call.connection.state.close_doors(call.backend);
    call.connection.log_out();
    let state = &mut call.connection.state;
    // As in Redis, the name and version of the library stay.
    let library = std::mem::take(&mut state.library);
    *state = State {
        keyspace: call.connection.greeting.keyspace.clone(),
        library,
        ..State::default()
    };
    call.reply(|writer| writer.simple("RESET"))
}
