//! The allocator, and when it gives memory back.
//!
//! Values come and go by the hundred thousand a second, one allocation each. They are not in huge pages: the first byte that is written to one clears two
//! megabytes, and all clients of the loop wait for that (as Redis has it).
//!
//! mimalloc keeps pages that were freed for a second, in case they are wanted again. In a second clients can send hundreds of megabytes, and
//! those that are disconnected for it leave as much: a node would take twice what `client_memory_mb` says. So a server tells mimalloc to keep them for
//! [`KEPT_MS`]. It takes that from its environment alone, and looks there before `main` begins. So a server sets it and begins once more, as the same
//! process.
use crate::failure::Failure;
use mimalloc::MiMalloc;
use std::{env, os::unix::process::CommandExt, process::Command};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// For how long freed pages are kept, in milliseconds.
const KEPT_MS: u32 = 10;

/// What mimalloc calls that.
const NAME: &str = "MIMALLOC_PURGE_DELAY";

/// Begins once more with the allocator set up for a server, unless it is, or the environment says something else.
///
/// # Errors
/// The program cannot be begun again. It must end then: the attempt has changed what signals do to it (a closed connection would end it).
pub fn set_up_server() -> Result<(), Failure> {
    if env::var_os(NAME).is_some() {
        return Ok(());
    }
    let mut arguments = env::args_os();
    let (Ok(program), Some(own_name)) = (env::current_exe(), arguments.next()) else {
        return Ok(());
    };
    let error = Command::new(program)
        .arg0(own_name)
        .args(arguments)
        .env(NAME, KEPT_MS.to_string())
        .exec();
    Err(Failure::Environment(format!(
        "the program cannot be executed once more with {NAME}={KEPT_MS} in its environment ({error}); start it with {NAME}={KEPT_MS} set, then it need not be"
    )))
}
