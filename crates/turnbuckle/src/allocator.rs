//! The allocator, and when it returns memory to the system.
//!
//! Values come and go, hundreds of thousands per second, with one allocation each. They are not in huge pages: the first byte that is written to a
//! huge page clears two megabytes, and all clients of the loop wait for that. (Redis does not use huge pages, either.)
//!
//! mimalloc keeps freed pages for a second, in case they are needed again. In a second clients can send hundreds of megabytes, and clients that are
//! disconnected for this free as much: a node would take twice what `client_memory_mb` says. So a server tells mimalloc to keep freed pages for
//! [`KEPT_MS`] only. mimalloc takes this setting from its environment only, and reads it before `main` begins. So a server sets the variable and
//! executes its program again, in the same process.
use crate::failure::Failure;
use mimalloc::MiMalloc;
use std::{env, os::unix::process::CommandExt, process::Command};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How long freed pages are kept, in milliseconds.
const KEPT_MS: u32 = 10;

/// The variable of mimalloc for this time.
const NAME: &str = "MIMALLOC_PURGE_DELAY";

/// Executes the program again with the allocator set up for a server. Does nothing if it is set up, or if the environment has another value.
///
/// # Errors
/// If the program cannot be executed again. It must end then: the attempt has changed how the process handles signals, and a closed connection would
/// end it.
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
        "the program cannot execute itself again with {NAME}={KEPT_MS} in its environment ({error}); start it with {NAME}={KEPT_MS} in \
         its environment"
    )))
}
