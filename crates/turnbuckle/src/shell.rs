//! `turnbuckle demo --shell`: a prompt at any site of a cluster. After each answer, its receipt is shown in words.
//!
//! ```text
//! a> SET greeting hello
//! OK
//!   causal: written at a, by replica a/0/0, as version 1795570254901419.0@a
//! a> c
//! c> GET greeting
//! "hello"
//!   causal: read at c, from replica c/0/0: version 1795570254901419.0@a, written at a 312 ms ago
//!   it reflects every write that was acknowledged more than 121 ms before the read began (if clocks are within 10 ms)
//! ```
//!
//! **One connection for each site.** It is opened when it is first used. A connection is a session, so what was seen at one site is not part of the
//! session at another site, until `move` takes it there.
//!
//! Lines come from the terminal or from a pipe. A line from a pipe is printed after the prompt, so that the output reads like the transcript of a
//! terminal. If a line cannot be carried out, the shell answers with what was expected, and reads the next line.
mod album;
mod lines;
mod words;

use crate::{
    connection::{Connection, Trouble},
    failure::{Failure, environment, say},
    wan::show_wan,
};
use bytes::Bytes;
use lines::Lines;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::runtime::Runtime;
use turnbuckle_core::Micros;
use turnbuckle_resp::{Value, split_words};
use turnbuckle_server::admin::{AdminClient, AdminClientError, LinkName, SetDelay};
use words::{answer_in_words, receipt_in_words};

/// A site and its addresses.
#[derive(Debug, Clone)]
pub(crate) struct ShellSite {
    /// Its name.
    pub(crate) name: String,
    /// The name of its node. It stands for the site, too.
    pub(crate) node: String,
    /// The address for clients, as `host:port`.
    pub(crate) resp: String,
    /// The address of its admin HTTP, as `host:port`.
    pub(crate) admin: String,
}

/// How long one command may take. A session that has moved waits at its new site for two seconds at most.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// How long a change of the WAN may take.
const ADMIN_TIME: Duration = Duration::from_secs(5);

/// The longest time that `wait` takes.
const MAX_WAIT: Micros = Micros::from_millis(3_600_000);

/// The shell's own words.
const OWN_WORDS: [&str; 11] = [
    "quit", "exit", "help", "wan", "cut", "heal", "delay", "wait", "album", "use", "move",
];

const HELP: &str = "\
GET key, SET key value, ..   any Redis command, to the site of the prompt: docs/commands.md
b                            the prompt moves to site b
b GET key                    one command at site b
SET x 2 REPLACES $context    $context stands for what the last SIBLINGS has returned first
SET x 1; b GET x             one after the other, at once; a ';' ends a command if a space follows it
use KEYSPACE                 the next commands at every site use this keyspace (KEYSPACE LIST names them)
move b                       the session goes on at site b, with all that it has seen here
cut a c                      nothing goes from a to c, nor back; 'cut c' cuts c off from all others
heal                         every cut ends; 'heal a c' ends one
delay a c 300ms              how long a message takes from a to c, and back
wan                          shows delays and cuts
wait 200ms                   the next line is read after that
album                        a photo, and a comment on it: what each kind of keyspace shows at c
quit                         ends the demo";

/// Reads lines and carries them out, until there are no more or one says `quit`.
pub(crate) fn run(sites: Vec<ShellSite>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| environment(&error))?;
    let mut lines = Lines::open().map_err(|error| environment(&error))?;
    let mut shell = Shell {
        runtime,
        sites,
        here: 0,
        keyspace: None,
        sessions: BTreeMap::new(),
        context: None,
        transactions: BTreeSet::new(),
    };
    say("Type a Redis command, such as SET greeting hello; 'help' lists what else there is.")?;
    loop {
        let prompt = format!("{}> ", shell.sites[shell.here].name);
        match lines.next(&prompt) {
            Ok(Some(line)) => {
                for command in commands_of(&line) {
                    match shell.carry_out(command) {
                        Done::GoOn(text) if text.is_empty() => {}
                        Done::GoOn(text) => say(&text)?,
                        Done::Quit => return Ok(()),
                    }
                }
            }
            Ok(None) => return Ok(()),
            Err(error) => say(&format!("(error) {error}"))?,
        }
    }
}

/// The first text of a list.
fn first_of(reply: &Value) -> Option<Bytes> {
    match reply {
        Value::Attribute(_, reply) => first_of(reply),
        Value::Array(values) => match values.first() {
            Some(Value::Bulk(first)) => Some(first.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The result of a line.
enum Done {
    /// This is printed, and the next line is read.
    GoOn(String),
    Quit,
}

struct Shell {
    runtime: Runtime,
    sites: Vec<ShellSite>,
    /// The place of the prompt's site in `sites`.
    here: usize,
    /// The keyspace that was selected with `use`. Without it, a session begins in the default keyspace of its connection.
    keyspace: Option<Bytes>,
    /// The sessions, by the place of their site.
    sessions: BTreeMap<usize, Connection>,
    /// The causal context that the last `SIBLINGS` has returned.
    context: Option<Bytes>,
    /// The sites at which a transaction is open or keys are watched.
    transactions: BTreeSet<usize>,
}

impl Shell {
    fn carry_out(&mut self, command: &str) -> Done {
        let words = match split_words(command.as_bytes()) {
            Ok(words) => words,
            Err(error) => return Done::GoOn(format!("(error) {error}")),
        };
        let Some(first) = words.first().filter(|first| !first.starts_with(b"#")) else {
            return Done::GoOn(String::new());
        };
        let first = String::from_utf8_lossy(first).into_owned();
        let name = first.strip_suffix('>').unwrap_or(&first);
        match (self.place_of(name), &words[1..]) {
            (Some(place), []) => self.here = place,
            (Some(place), command) => return Done::GoOn(self.at(place, command)),
            (None, arguments) => {
                let arguments: Vec<_> = arguments
                    .iter()
                    .map(|word| String::from_utf8_lossy(word))
                    .collect();
                let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
                return match self.own(&first, &arguments) {
                    Some(done) => done,
                    None => {
                        let answer = self.at(self.here, &words);
                        let hint = match answer.starts_with("(error) ERR unknown command") {
                            true => self.hint(&first),
                            false => String::new(),
                        };
                        Done::GoOn(answer + &hint)
                    }
                };
            }
        }
        Done::GoOn(String::new())
    }

    /// What the first word of a command may have been meant as. The server has no command of that name, and says only that.
    fn hint(&self, first: &str) -> String {
        let small = first.trim_end_matches('>').to_ascii_lowercase();
        let is_known_small = OWN_WORDS.contains(&small.as_str()) || self.place_of(&small).is_some();
        let hint = if is_known_small && small != first {
            format!("write '{small}' in small letters: it is a word of this prompt")
        } else if first.len() == 1 && first.starts_with(char::is_alphabetic) {
            self.no_site(first)
        } else {
            "'help' lists the words of this prompt".to_string()
        };
        format!("\n(error) {hint}")
    }

    fn place_of(&self, name: &str) -> Option<usize> {
        let by_name = self.sites.iter().position(|site| site.name == name);
        by_name.or_else(|| self.sites.iter().position(|site| site.node == name))
    }

    /// Carries out one of the shell's own commands. They are in lower case: a Redis command of the same name is written in capitals.
    fn own(&mut self, name: &str, arguments: &[&str]) -> Option<Done> {
        let done = match (name, arguments) {
            ("quit" | "exit", []) => return Some(Done::Quit),
            ("help", []) => Ok(HELP.to_string()),
            ("wan", []) => self.ask_admin(AdminClient::wan).map(|view| show_wan(&view)),
            ("cut", &[from, to]) => self.cut(from, to),
            ("cut", &[site]) => self.cut_off(site),
            ("heal", []) => self.heal(None),
            ("heal", &[from, to]) => self.heal(Some((from, to))),
            ("delay", &[from, to, delay]) => self.delay(from, to, delay),
            ("wait", &[time]) => wait(time),
            ("album", []) => self.album(),
            ("use", &[keyspace]) => self.select(keyspace),
            ("move", &[site]) => self.move_to(site),
            ("quit" | "exit" | "help" | "wan" | "album", _) => Err(format!("expected '{name}' alone")),
            ("cut", _) => Err(
                "expected two sites, such as 'cut a c', or one that is cut off, such as 'cut c'".to_string(),
            ),
            ("heal", _) => Err("expected 'heal', or the two sites of a link, such as 'heal a c'".to_string()),
            ("delay", _) => Err("expected two sites and a time, such as 'delay a c 300ms'".to_string()),
            ("wait", _) => Err("expected a time, such as 'wait 200ms'".to_string()),
            ("use", _) => Err("expected the name of a keyspace, such as 'use eventual'".to_string()),
            ("move", _) => Err("expected the name of a site, such as 'move b'".to_string()),
            _ => return None,
        };
        Some(Done::GoOn(done.unwrap_or_else(|why| format!("(error) {why}"))))
    }

    // ---- sessions -------------------------------------------------------------------------------------------

    /// Carries out a command at a site. Returns its answer and its receipt as text.
    fn at(&mut self, place: usize, command: &[Bytes]) -> String {
        let mut command = command.to_vec();
        for word in command.iter_mut().filter(|word| *word == "$context") {
            let Some(context) = &self.context else {
                return "(error) $context stands for what SIBLINGS has returned first, and there was no SIBLINGS yet".to_string();
            };
            *word = context.clone();
        }
        let command = &command[..];
        let is = |place: usize, word: &str| {
            let found = command.get(place);
            found.is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
        };
        if is(0, "HELLO") && is(1, "2") {
            return "(error) this prompt shows receipts, and RESP2 has no place for them; expected HELLO 3"
                .to_string();
        }
        match self.ask(place, command) {
            Ok(reply) => {
                self.note_transaction(place, &command[0], &reply);
                if is(0, "RESET") && !matches!(reply, Value::Error(_)) {
                    // It has ended RESP3 and the receipts. The next command at the site opens a connection that has both.
                    self.sessions.remove(&place);
                }
                if command
                    .first()
                    .is_some_and(|name| name.eq_ignore_ascii_case(b"SIBLINGS"))
                {
                    self.context = first_of(&reply).or(self.context.take());
                }
                let site = &self.sites[place].name;
                let receipt = receipt_in_words(&reply, command, site, microseconds_since_1970());
                let mut lines = vec![answer_in_words(&reply)];
                lines.extend(receipt.into_iter().map(|line| format!("  {line}")));
                lines.join("\n")
            }
            Err(why) => format!("(error) {why}"),
        }
    }

    /// Sends a command to a site, and returns the reply with its receipt. If the connection breaks, the next command opens a new one, with a new
    /// session.
    fn ask<A: AsRef<[u8]>>(&mut self, place: usize, command: &[A]) -> Result<Value, String> {
        let mut session = match self.sessions.remove(&place) {
            Some(session) => session,
            None => {
                let opened = self.open(place, self.keyspace.clone());
                opened.map_err(|trouble| trouble.to_string())?
            }
        };
        let answered = self.runtime.block_on(session.call_within(command, ANSWER_TIME));
        match answered {
            Ok(reply) => {
                self.sessions.insert(place, session);
                Ok(reply)
            }
            Err(trouble) => Err(format!(
                "node {}: {trouble}; the next command there begins a new session",
                self.sites[place].node
            )),
        }
    }

    /// Opens a session at a site.
    fn open(&self, place: usize, keyspace: Option<Bytes>) -> Result<Connection, Trouble> {
        let site = &self.sites[place];
        let opened = self.runtime.block_on(async {
            let mut connection = Connection::open(&site.resp, None).await?;
            let mut greeting: Vec<Vec<Bytes>> = vec![words_of("HELLO 3"), words_of("RECEIPTS ON")];
            if let Some(keyspace) = keyspace {
                greeting.push(vec![Bytes::from_static(b"SELECT"), keyspace]);
            }
            for command in greeting {
                if let Value::Error(why) = connection.call(&command).await? {
                    return Err(Trouble::Refused(String::from_utf8_lossy(&why).into_owned()));
                }
            }
            Ok(connection)
        });
        opened.map_err(|trouble| match trouble {
            Trouble::Refused(_) => Trouble::Refused(format!("node {}: {trouble}", site.node)),
            _ => Trouble::Broken(format!("node {}: {trouble}", site.node)),
        })
    }

    /// Whether a keyspace can be used. The prompt's site says so; if it does not answer, another one does.
    ///
    /// # Errors
    /// If a site refuses the keyspace, or no site answers.
    fn check_keyspace(&self, keyspace: &Bytes) -> Result<(), String> {
        let mut first = None;
        for place in self.here_first() {
            match self.open(place, Some(keyspace.clone())) {
                Ok(_) => return Ok(()),
                Err(Trouble::Refused(why)) => return Err(why),
                Err(trouble) => first = first.or(Some(trouble.to_string())),
            }
        }
        Err(first.unwrap_or_default())
    }

    /// The places of the sites, that of the prompt first.
    fn here_first(&self) -> impl Iterator<Item = usize> + use<> {
        let (here, sites) = (self.here, self.sites.len());
        (0..sites).map(move |place| (here + place) % sites)
    }

    fn select(&mut self, keyspace: &str) -> Result<String, String> {
        self.check_no_transaction()?;
        let keyspace = Bytes::copy_from_slice(keyspace.as_bytes());
        // If the keyspace is refused, that happens before any session has changed.
        self.check_keyspace(&keyspace)?;
        let places: Vec<usize> = self.sessions.keys().copied().collect();
        self.keyspace = Some(keyspace.clone());
        // A session that cannot go to the keyspace ends. The next command at its site begins a new one there.
        let mut lines = vec!["OK".to_string()];
        for place in places {
            let why = match self.ask(place, &[Bytes::from_static(b"SELECT"), keyspace.clone()]) {
                Ok(Value::Error(why)) => {
                    self.sessions.remove(&place);
                    let (node, why) = (&self.sites[place].node, String::from_utf8_lossy(&why));
                    format!("node {node}: {why}; the next command there begins a new session")
                }
                Ok(_) => continue,
                Err(why) => why,
            };
            lines.push(format!("(error) {why}"));
        }
        Ok(lines.join("\n"))
    }

    /// Takes note of a command that begins or ends a transaction, or watches keys.
    fn note_transaction(&mut self, place: usize, name: &Bytes, reply: &Value) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let is_done = !matches!(reply, Value::Error(_));
        if (is("MULTI") || is("WATCH")) && is_done {
            self.transactions.insert(place);
        } else if is("EXEC") || is("DISCARD") || is("UNWATCH") || (is("RESET") && is_done) {
            self.transactions.remove(&place);
        }
    }

    fn check_no_transaction(&self) -> Result<(), String> {
        match self
            .transactions
            .iter()
            .find(|place| self.sessions.contains_key(place))
        {
            None => Ok(()),
            Some(&place) => Err(format!(
                "a transaction is open at site {}, or keys are watched there: EXEC, DISCARD or UNWATCH comes first",
                self.sites[place].name
            )),
        }
    }

    /// Continues the session at another site.
    fn move_to(&mut self, name: &str) -> Result<String, String> {
        let to = self.place_of(name).ok_or_else(|| self.no_site(name))?;
        self.check_no_transaction()?;
        let token = match self.ask(self.here, &words_of("SESSION TOKEN"))? {
            Value::Bulk(token) => token,
            other => return Err(answer_in_words(&other)),
        };
        let mut resume = words_of("SESSION RESUME");
        resume.push(token.clone());
        match self.ask(to, &resume)? {
            Value::Error(why) => Err(String::from_utf8_lossy(&why).into_owned()),
            _ => {
                self.here = to;
                Ok(format!(
                    "the session goes on at {name}; its token has {} bytes",
                    token.len()
                ))
            }
        }
    }

    fn no_site(&self, name: &str) -> String {
        let names: Vec<&str> = self.sites.iter().map(|site| site.name.as_str()).collect();
        format!("there is no site '{name}'; expected one of {}", names.join(", "))
    }

    // ---- the network ----------------------------------------------------------------------------------------

    /// Asks the admin HTTP of the prompt's site. If nothing listens there, another site is asked: every node knows the whole WAN. A node that listens and does not
    /// answer in time may carry the request out later, so it is not asked of another one as well.
    fn ask_admin<T>(&self, ask: impl Fn(&AdminClient) -> Result<T, AdminClientError>) -> Result<T, String> {
        let mut first = None;
        for place in self.here_first() {
            match ask(&AdminClient::new(self.sites[place].admin.clone(), ADMIN_TIME)) {
                Ok(answer) => return Ok(answer),
                Err(AdminClientError::Unreachable { address, source })
                    if source.kind() == std::io::ErrorKind::ConnectionRefused =>
                {
                    first = first.or(Some(AdminClientError::Unreachable { address, source }));
                }
                Err(error) => return Err(of_admin(error)),
            }
        }
        Err(first.map_or_else(String::new, of_admin))
    }

    fn cut(&self, from: &str, to: &str) -> Result<String, String> {
        let view = self.ask_admin(|admin| admin.cut(&link(from, to)))?;
        Ok(show_wan(&view))
    }

    /// Cuts a site off from all others.
    fn cut_off(&self, site: &str) -> Result<String, String> {
        if self.place_of(site).is_none() {
            return Err(self.no_site(site));
        }
        let others = self.sites.iter().filter(|other| other.name != site);
        let views: Result<Vec<String>, String> = others.map(|other| self.cut(&other.name, site)).collect();
        views?
            .pop()
            .ok_or_else(|| format!("there is no other site than {site}"))
    }

    fn heal(&self, of: Option<(&str, &str)>) -> Result<String, String> {
        let link = of.map(|(from, to)| link(from, to));
        let view = self.ask_admin(|admin| admin.heal(link.as_ref()))?;
        Ok(show_wan(&view))
    }

    fn delay(&self, from: &str, to: &str, delay: &str) -> Result<String, String> {
        let delay = SetDelay {
            from: from.to_string(),
            to: to.to_string(),
            delay: delay.to_string(),
            both: true,
        };
        let view = self.ask_admin(|admin| admin.set_delay(&delay))?;
        Ok(show_wan(&view))
    }
}

/// The commands of a line. A `;` outside quotes ends a command if a space or nothing follows it.
fn commands_of(line: &str) -> Vec<&str> {
    let (mut commands, mut begin) = (Vec::new(), 0);
    // The quote in which a character is, and whether the character is escaped there.
    let (mut quote, mut is_escaped) = (None, false);
    for (at, character) in line.char_indices() {
        match (quote, character) {
            (Some('"'), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(open), close) if open == close && !is_escaped => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, ';') if line[at + 1..].chars().next().is_none_or(char::is_whitespace) => {
                commands.push(&line[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
        is_escaped = false;
    }
    commands.push(&line[begin..]);
    commands
}

fn link(from: &str, to: &str) -> LinkName {
    LinkName {
        from: from.to_string(),
        to: to.to_string(),
    }
}

/// Why a node did not do what was asked of it: without its address, which the user has not typed.
fn of_admin(error: AdminClientError) -> String {
    match error {
        AdminClientError::Refused { error, expected, .. } => {
            let fields = ["from: ", "to: ", "delay: "];
            let error = fields
                .iter()
                .find_map(|field| error.strip_prefix(field))
                .unwrap_or(&error);
            format!("{error}; expected {expected}")
        }
        other => other.to_string(),
    }
}

/// Waits. For scripts, which would otherwise be faster than the messages between sites.
fn wait(time: &str) -> Result<String, String> {
    let span = time.parse().ok().filter(|span| *span <= MAX_WAIT);
    let span: Micros =
        span.ok_or_else(|| format!("expected a number and s, ms or us, at most 3600s, found '{time}'"))?;
    std::thread::sleep(Duration::from_micros(span.0));
    Ok(String::new())
}

fn words_of(command: &'static str) -> Vec<Bytes> {
    let words = command.split(' ');
    words.map(|word| Bytes::from_static(word.as_bytes())).collect()
}

fn microseconds_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_waited_for_is_refused_and_not_shortened() {
        assert_eq!(wait("1ms"), Ok(String::new()));
        for time in ["3601s", "soon", "", "-1s"] {
            let why = wait(time).expect_err(time);
            assert!(
                why.contains("at most 3600s") && why.contains(&format!("'{time}'")),
                "{why}"
            );
        }
    }

    #[test]
    fn a_semicolon_ends_a_command_only_before_a_space_and_outside_quotes() {
        assert_eq!(commands_of("SET x 1; b GET x"), ["SET x 1", " b GET x"]);
        assert_eq!(commands_of("SET x a;b"), ["SET x a;b"]);
        assert_eq!(
            commands_of(r#"SET x "a; \"b; c"; GET x;"#),
            [r#"SET x "a; \"b; c""#, " GET x", ""]
        );
        assert_eq!(commands_of("SET x 'a; b'"), ["SET x 'a; b'"]);
        assert_eq!(commands_of(""), [""]);
    }
}
