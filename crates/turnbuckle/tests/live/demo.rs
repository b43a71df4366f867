//! The demo as a program that somebody runs.
use crate::cluster::{Client, text, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use turnbuckle_server::admin::{AdminClient, LinkName};

/// A demo looks for free ports before it takes them: one at a time.
static STARTING: Mutex<()> = Mutex::new(());

/// Ends with the test.
pub struct Demo {
    process: Child,
    ready: serde_json::Value,
    said: BufReader<ChildStderr>,
    /// Where it puts its files; the demo itself leaves those of a node that it does not end.
    _directory: tempfile::TempDir,
}

impl Demo {
    fn start(options: &[&str]) -> Demo {
        Demo::with_delays(&[&["--wan", "off"], options].concat())
    }

    /// Starts a demo with the delays of a WAN.
    pub fn with_delays(options: &[&str]) -> Demo {
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut process = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
            .args(["demo", "--json", "--for", "120s"])
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

    /// Where clients of a site connect.
    pub fn resp(&self, site: usize) -> &str {
        self.ready["sites"][site]["resp"].as_str().expect("an address")
    }

    fn client(&self, site: usize) -> Client {
        let port = self.resp(site).rsplit(':').next().expect("a port");
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
    assert!(first.starts_with("site b, node b1: its process"), "{first}");
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
        said.contains("--keyspace rain=snow: there is no protocol 'snow'; expected one of abd, ")
            && said.contains("gentlerain"),
        "{said}"
    );
}

#[test]
fn cuts_are_the_same_whichever_process_is_asked() {
    let demo = Demo::start(&["--processes"]);
    let admin = |site: usize| {
        let address = demo.ready["sites"][site]["admin"].as_str().expect("an address");
        AdminClient::new(address, Duration::from_secs(30))
    };
    let link = LinkName {
        from: "a".into(),
        to: "c".into(),
    };
    admin(0).cut(&link).expect("it answers");
    let is_cut = |site: usize| {
        let view = admin(site).wan().expect("it answers");
        let cuts = view.links.into_iter().filter(|link| link.cut);
        cuts.map(|link| link.from + &link.to).collect::<Vec<_>>()
    };
    // A process that did not answer in time is told again.
    for site in 0..3 {
        wait_until("every site knows of the cut", || is_cut(site) == ["ac", "ca"]);
    }
    admin(2).heal(None).expect("it answers");
    for site in 0..3 {
        wait_until("every site knows that it has ended", || is_cut(site).is_empty());
    }
}

/// With several nodes a site, the table names nodes, and the shell takes these names.
#[test]
fn a_demo_with_several_nodes_a_site_names_nodes() {
    let options = ["--wan", "off", "--sites", "2", "--nodes", "2"];
    let said = shell("a1 SET x 1\na2\nmove b1\n", &options);
    let (table, rest) = said.split_once("\n\n").expect(&said);
    let names = table.lines().map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.flatten().filter(|word| word.is_ascii()).collect();
    assert_eq!(names, ["node", "a1", "a2", "b1", "b2"], "{said}");
    for expected in ["a> a1 SET x 1\nOK\n", "a2> move b1\nthe session goes on at b1;"] {
        assert!(rest.contains(expected), "expected {expected:?} in:\n{said}");
    }
}

/// What a shell prints when it reads these lines.
pub fn shell(script: &str, options: &[&str]) -> String {
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut process = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(["demo", "--shell", "--for", "120s"])
        .args(options)
        .env("TURNBUCKLE_LOG", "error")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the process starts");
    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(script.as_bytes()).expect("it reads");
    drop(input);
    let output = process.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn a_shell_tells_answers_and_receipts_and_moves_a_session() {
    let script = "SET greeting hello\nmove c\nGET greeting\na GET greeting AT eventual\nMGET greeting none\n\
                  b> STRLEN greeting\nGET \"open\nNOSUCH 1\nHEAL\nB GET x\nHELLO 2\nRESET\nGET greeting AT eventual\ncut\ncut z\nmove z\nuse nowhere\nuse eventual\n\
                  a KEYSPACE INFO\nquit\nGET never\n";
    let said = shell(script, &["--wan", "off"]);
    for expected in [
        "a> SET greeting hello\nOK\n  causal: written at a, by replica a/",
        "a> move c\nthe session goes on at c;",
        "c> GET greeting\n\"hello\"\n  causal: read at c, from replica c/",
        "written at a ",
        "c> a GET greeting AT eventual\n\"hello\"\n  eventual: read at a",
        "c> MGET greeting none\n1) \"hello\"\n2) (nil)\n",
        "c> b> STRLEN greeting\n(integer) ",
        "c> GET \"open\n(error) unbalanced quotes",
        "c> NOSUCH 1\n(error) ERR unknown command",
        "(error) 'help' lists the words of this prompt\n",
        "(error) write 'heal' in small letters: it is a word of this prompt\n",
        "(error) write 'b' in small letters: it is a word of this prompt\n",
        "c> HELLO 2\n(error) this prompt shows receipts, and RESP2 has no place for them; expected HELLO 3\n",
        "c> RESET\nRESET\n",
        "c> GET greeting AT eventual\n\"hello\"\n  eventual: read at c",
        "c> cut\n(error) expected two sites, such as 'cut a c', or one that is cut off, such as 'cut c'",
        "c> cut z\n(error) there is no site 'z'; expected one of a, b, c",
        "c> move z\n(error) there is no site 'z'; expected one of a, b, c",
        "c> use nowhere\n(error) node c1: NOKEYSPACE",
        "c> use eventual\nOK\n",
        "1# \"name\" => \"eventual\"",
    ] {
        assert!(said.contains(expected), "expected {expected:?} in:\n{said}");
    }
    assert!(said.ends_with("c> quit\n"), "{said}");
}

/// The prompt is at a site whose process is killed. What concerns all sites is asked of another one.
#[test]
fn a_shell_whose_site_is_dead_asks_another_one() {
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut process = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(["demo", "--shell", "--processes", "--for", "120s", "--wan", "off"])
        .env("TURNBUCKLE_LOG", "error")
        .env("TMPDIR", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the process starts");
    let mut out = BufReader::new(process.stdout.take().expect("it is piped"));
    let mut errors = BufReader::new(process.stderr.take().expect("it is piped"));
    let pid = out.by_ref().lines().find_map(|line| {
        let line = line.expect("it is text");
        let (_, pid) = line.trim_start().strip_prefix("a ")?.split_once("pid")?;
        let digits = pid
            .trim_start()
            .split(|letter: char| !letter.is_ascii_digit())
            .next()?;
        digits.parse().ok()
    });
    let pid = Pid::from_raw(pid.expect("the table names it")).expect("a process");
    kill_process(pid, Signal::KILL).expect("it runs");
    let is_told = |line: String| line.starts_with("site a, node a1: its process");
    assert!(errors.by_ref().lines().map_while(Result::ok).any(is_told));
    let mut input = process.stdin.take().expect("it is piped");
    input
        .write_all(b"use quorum\nb KEYSPACE INFO\ncut b c\nwan\nheal\nGET k\nquit\n")
        .expect("it reads");
    drop(input);
    let mut said = String::new();
    out.read_to_string(&mut said).expect("it is text");
    assert!(process.wait().expect("it ends").success(), "{said}");
    for expected in [
        "a> use quorum\nOK\n",
        "\"name\" => \"quorum\"",
        "> wan\na <-> b  0ms\na <-> c  0ms\nb <-> c  0ms  CUT\n",
        "a> GET k\n(error) node a1: cannot connect to",
    ] {
        assert!(said.contains(expected), "expected {expected:?} in:\n{said}");
    }
}

/// The comment in the eventual keyspace is nearly always seen alone; a machine that stands still for long might show both.
#[test]
fn a_shell_plays_the_album_and_puts_the_delays_back() {
    let said = shell("album\nwan\ncut a c\nheal a c\ncut b\n", &[]);
    let (_, causal) = said.split_once("keyspace causal").expect(&said);
    assert!(
        causal.contains("The comment was shown once its photo was there."),
        "{said}"
    );
    assert!(said.contains("keyspace eventual"), "{said}");
    let delays = "a <-> b  40ms~4ms\na <-> c  75ms~7ms\nb <-> c  60ms~6ms\n";
    assert!(said.contains(&format!("> wan\n{delays}")), "{said}");
    assert!(said.contains("a <-> c  75ms~7ms  CUT\n"), "{said}");
    assert!(said.contains(&format!("> heal a c\n{delays}")), "{said}");
    let cut_off = "> cut b\na <-> b  40ms~4ms  CUT\na <-> c  75ms~7ms\nb <-> c  60ms~6ms  CUT\n";
    assert!(said.contains(cut_off), "{said}");
}

#[test]
fn each_line_of_client_list_is_a_client() {
    let demo = Demo::start(&[]);
    let mut clients = [demo.client(0), demo.client(0), demo.client(0)];
    for client in &mut clients {
        assert_eq!(text(&client.call(&[b"PING"])), "PONG");
    }
    let list = text(&clients[1].call(&[b"CLIENT", b"LIST"]));
    assert_eq!(list.lines().count(), 3, "{list:?}");
    assert!(list.ends_with('\n'), "{list:?}");
    assert!(list.lines().all(|line| line.starts_with("id=")), "{list:?}");
    let id = text(&clients[0].call(&[b"CLIENT", b"ID"]));
    let one = text(&clients[1].call(&[b"CLIENT", b"LIST", b"ID", id.as_bytes()]));
    assert_eq!(one.lines().count(), 1, "{one:?}");
}
