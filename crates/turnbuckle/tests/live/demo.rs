//! The demo as a program that somebody runs.
use crate::cluster::{Client, text};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// A demo looks for free ports before it takes them: one at a time.
static STARTING: Mutex<()> = Mutex::new(());

/// Ends with the test.
struct Demo {
    process: Child,
    ready: serde_json::Value,
    said: BufReader<ChildStderr>,
    /// Where it puts its files; the demo itself leaves those of a node that it does not end.
    _directory: tempfile::TempDir,
}

impl Demo {
    fn start(options: &[&str]) -> Demo {
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut process = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
            .args(["demo", "--json", "--wan", "off", "--for", "120s"])
            .args(options)
            .env("TURNBUCKLE_LOG", "error")
            .env("TMPDIR", directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the process starts");
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("it is piped");
        BufReader::new(out)
            .read_line(&mut line)
            .expect("it says something");
        let said = BufReader::new(process.stderr.take().expect("it is piped"));
        Demo {
            process,
            ready: serde_json::from_str(&line).unwrap_or_else(|_| panic!("it is not ready: {line}")),
            said,
            _directory: directory,
        }
    }

    fn client(&self, site: usize) -> Client {
        let address = self.ready["sites"][site]["resp"].as_str().expect("an address");
        let port = address.rsplit(':').next().expect("a port");
        Client::connect(port.parse().expect("a number"))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.process.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

#[test]
fn a_process_that_has_ended_is_told_of_with_the_command_to_start_it_again() {
    let mut demo = Demo::start(&["--processes"]);
    let pid = demo.ready["sites"][1]["pid"].as_i64().expect("a number");
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_process(pid, Signal::KILL).expect("it runs");
    let (mut first, mut second) = (String::new(), String::new());
    demo.said.read_line(&mut first).expect("it says something");
    demo.said.read_line(&mut second).expect("and how to go on");
    assert!(first.starts_with("site b: its process"), "{first}");
    assert!(first.contains("signal: 9"), "{first}");
    assert!(
        second.contains("start --config") && second.contains("--node b1"),
        "{second}"
    );
    assert_eq!(text(&demo.client(0).call(&[b"PING"])), "PONG", "the others go on");
}

#[test]
fn a_demo_has_the_keyspaces_that_were_asked_for() {
    let demo = Demo::start(&["--keyspace", "rain=gentlerain", "--keyspace", "causal=cops"]);
    let info = text(&demo.client(2).call(&[b"INFO", b"Keyspaces"]));
    for expected in [
        "rain:protocol=gentlerain",
        "causal:protocol=cops",
        "eventual:protocol=eventual",
    ] {
        assert!(info.contains(expected), "{info}");
    }
    let refused = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(["demo", "--keyspace", "rain=snow"])
        .output()
        .expect("the process starts");
    let said = String::from_utf8(refused.stderr).expect("it is text");
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("there is no protocol 'snow'") && said.contains("gentlerain"),
        "{said}"
    );
}
