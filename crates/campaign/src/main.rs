//! `turnbuckle-campaign`: see the library. Exit codes: 0 no promise was broken, 1 a promise was broken, 2 wrong usage, 3 the environment
//! failed.
use clap::Parser;
use std::{io::Write, process::ExitCode, sync::atomic::AtomicBool};
use turnbuckle_campaign::{Failure, Options};

#[derive(Parser)]
#[command(
    name = "turnbuckle-campaign",
    about = "Runs real processes of turnbuckle under load and faults, and judges what they did",
    after_help = "Example:\n  make campaign MINUTES=5 SEED=1\n\nWhat it does and how to read a failure: docs/campaign.md.\n\
                  Exit codes: 0 fine, 1 a promise was broken, 2 wrong usage, 3 the environment."
)]
struct Command {
    #[command(flatten)]
    options: Options,
}

/// Whether a signal has asked for the end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let Command { options } = Command::parse();
    if let Err(why) = options.check() {
        return fail(2, &why);
    }
    if let Err(error) = listen_for_interrupts() {
        return fail(3, &error.to_string());
    }
    let report = match turnbuckle_campaign::run(&options, &INTERRUPTED) {
        Ok(report) => report,
        Err(failure @ Failure::Interrupted) => return fail(3, &failure.to_string()),
        Err(failure @ Failure::Environment(_)) => return fail(3, &failure.to_string()),
    };
    let text = match options.json {
        true => serde_json::to_string(&report).expect("a report is JSON"),
        false => report.text(),
    };
    // If standard output or standard error was closed, the exit code still says what was found.
    let _ = writeln!(std::io::stdout(), "{text}");
    match report.is_broken() {
        true => fail(1, "a promise was broken"),
        false => ExitCode::SUCCESS,
    }
}

fn fail(code: u8, why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {why}");
    ExitCode::from(code)
}

/// The first signal ends the campaign in order, with all of its processes. The second signal ends the campaign at once, and the processes
/// end by themselves.
fn listen_for_interrupts() -> std::io::Result<()> {
    use std::sync::atomic::Ordering;
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let guard = runtime.enter();
    let signals = kinds
        .into_iter()
        .map(signal)
        .collect::<std::io::Result<Vec<_>>>()?;
    drop(guard);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async move {
                let [mut interrupt, mut terminate, mut hangup] =
                    <[_; 3]>::try_from(signals).expect("there are three");
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                    if INTERRUPTED.swap(true, Ordering::AcqRel) {
                        std::process::exit(3);
                    }
                }
            });
        })?;
    Ok(())
}
