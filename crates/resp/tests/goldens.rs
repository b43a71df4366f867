//! Scripts of what a client sends and what it reads, under `tests/goldens`.
//!
//! `> GET k` is a line as typed over telnet. Each script is run on two connections, one in RESP2 and one in RESP3 (until it says `HELLO` itself). If
//! the replies differ, both are shown. Other commands:
//!
//! ```text
//!   raw BYTES..              sends bytes; \r \n \t \xHH as in Rust
//!   defer on|off             whether the backend answers later
//!   answer TAG..             the backend answers the operations with these tags
//!   fail timeout|unavailable KEY..   operations on these keys fail; fail nothing: none do
//!   route local|forwarded    which route receipts name
//!   options                  what the last put asked for beside its value
//!   cluster on|off           whether the site says that it is a Redis cluster
//!   doors                    how many doors are open behind the connection
//!   user NAME WORD..         the node has this user from now on; the words are below
//!   remove NAME              the node has this user no more
//!   refused                  what was refused because of its user, since the last time
//!   pass MS                  the monotonic clock goes on
//!   say CHANNEL TEXT         a message comes
//!   deliver                  the messages come that the client has sent
//! ```
//!
//! The words of a user are `anybody`, `off`, `pass:PASSWORD`, `keyspaces:a,b`, `keys:a,b`, `commands:a,b`, `connections:N` and `operations:N`.
mod world;

use bytes::BytesMut;
use std::{collections::BTreeMap, error::Error, sync::Arc};
use turnbuckle_core::{Failure, Key, Message, Micros, Route};
use turnbuckle_resp::{Connection, PasswordHash, Rights, User, UserBook, Users};
use world::World;

struct Client {
    connection: Connection,
    world: World,
    input: BytesMut,
    users: BTreeMap<String, User>,
    book: Option<Arc<UserBook>>,
}

impl Client {
    fn new(resp: &str) -> Client {
        let mut client = Client {
            connection: world::connection(),
            world: World::default(),
            input: BytesMut::new(),
            users: BTreeMap::new(),
            book: None,
        };
        client.send(format!("HELLO {resp}\r\n").as_bytes());
        client
    }

    fn send(&mut self, bytes: &[u8]) -> String {
        self.input.extend_from_slice(bytes);
        self.turn()
    }

    fn turn(&mut self) -> String {
        loop {
            self.connection.handle_bytes(&mut self.input, &mut self.world);
            if !self.connection.wants_turn() {
                break;
            }
        }
        let output = self.connection.output().split();
        let mut shown = String::new();
        for line in output.split_inclusive(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r\n").unwrap_or(line);
            shown += &format!("{}\n", escape(line));
        }
        if self.connection.is_closing() {
            shown += "(closed)\n";
        }
        shown
    }

    fn deliver(&mut self, message: Message) -> String {
        self.world.deliver(message, &mut self.connection);
        self.turn()
    }

    fn replace_users(&mut self) {
        let users = Users::new(self.users.values().cloned());
        match &self.book {
            Some(book) => book.replace(users),
            None => {
                let book = UserBook::new(users);
                let connection = std::mem::replace(&mut self.connection, world::connection());
                self.connection = connection.with_users(Arc::clone(&book));
                self.book = Some(book);
            }
        }
    }

    fn run(&mut self, name: &str, words: &[&str]) -> Result<String, Box<dyn Error>> {
        match name {
            "raw" => return Ok(self.send(&unescape(&words.concat())?)),
            "defer" => self.world.deferring = words == ["on"],
            "answer" => {
                for word in words {
                    self.world.answer(word.parse()?, &mut self.connection);
                }
                return Ok(self.turn());
            }
            "fail" => {
                let failure = match words[0] {
                    "timeout" => Failure::Timeout("no answer within 1s".into()),
                    _ => Failure::Unavailable("no replica can be reached".into()),
                };
                self.world.failing = words[1..]
                    .iter()
                    .map(|key| (Key::from(*key), failure.clone()))
                    .collect();
            }
            "route" if words == ["forwarded"] => self.world.route = Some(Route::Forwarded),
            "route" => self.world.route = None,
            "options" => return Ok(format!("{:?}\n", self.world.options)),
            "cluster" => self.world.is_standalone = words == ["off"],
            "user" => {
                let user = user(words[0], &words[1..])?;
                self.users.insert(user.name.clone(), user);
                self.replace_users();
            }
            "remove" => {
                self.users.remove(words[0]);
                self.replace_users();
            }
            "refused" => {
                let refused = std::mem::take(&mut self.world.refused);
                return Ok(refused.iter().map(|line| format!("{line}\n")).collect());
            }
            "pass" => self.world.passed = self.world.passed + Micros::from_millis(words[0].parse()?),
            "say" => {
                let message = Message {
                    channel: words[0].to_owned().into(),
                    text: words[1].to_owned().into(),
                };
                return Ok(self.deliver(message));
            }
            "deliver" => {
                let sent = std::mem::take(&mut self.world.sent);
                return Ok(sent.into_iter().map(|message| self.deliver(message)).collect());
            }
            "doors" => return Ok(format!("{}\n", self.world.open_doors())),
            line => return Ok(self.send(format!("{line}\r\n").as_bytes())),
        }
        Ok(String::new())
    }
}

fn user(name: &str, words: &[&str]) -> Result<User, Box<dyn Error>> {
    let mut user = User {
        name: name.into(),
        passwords: Vec::new(),
        anybody: false,
        keyspaces: None,
        keys: None,
        rights: Rights::default(),
        connections: None,
        operations_per_second: None,
        enabled: true,
    };
    for word in words {
        let (word, value) = word.split_once(':').unwrap_or((word, ""));
        let values = value.split(',');
        match word {
            "anybody" => user.anybody = true,
            "off" => user.enabled = false,
            "pass" => user
                .passwords
                .push(PasswordHash::of(value.as_bytes(), b"the salt")),
            "keyspaces" => user.keyspaces = Some(values.map(String::from).collect()),
            "keys" => user.keys = Some(values.map(|key| key.to_owned().into()).collect()),
            "commands" => user.rights = Rights::of(values.map(str::parse).collect::<Result<Vec<_>, _>>()?),
            "connections" => user.connections = Some(value.parse()?),
            "operations" => user.operations_per_second = Some(value.parse()?),
            other => return Err(format!("unknown word {other}").into()),
        }
    }
    Ok(user)
}

fn unescape(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::new();
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        if char != '\\' {
            bytes.extend(char.to_string().bytes());
            continue;
        }
        bytes.push(match rest.next() {
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('\\') => b'\\',
            Some('x') => u8::from_str_radix(&rest.by_ref().take(2).collect::<String>(), 16)?,
            other => return Err(format!("unknown escape {other:?}").into()),
        });
    }
    Ok(bytes)
}

/// The same client on RESP2 and on RESP3.
struct Both(Client, Client);

impl goldenscript::Runner for Both {
    type Command = goldenscript::Command;

    fn run(
        &mut self,
        command: &goldenscript::Command,
        _: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let words: Vec<&str> = std::iter::from_fn(|| arguments.next_pos()).collect();
        arguments.reject_next()?;
        let sent = if words.is_empty() {
            command.name.clone()
        } else {
            command.to_string()
        };
        let two = self.0.run(&command.name, &words)?;
        let three = self.1.run(&command.name, &words)?;
        if two == three {
            return Ok(lay_out(&format!("{sent} ->"), &two));
        }
        Ok(lay_out(&format!("{sent} -2->"), &two) + &lay_out(&format!("{sent} -3->"), &three))
    }
}

/// What was sent, and the lines that came back, wrapped at `COLUMNS`.
fn lay_out(sent: &str, reply: &str) -> String {
    const COLUMNS: usize = 110;
    let mut text = sent.to_owned();
    let mut column = sent.len();
    for line in reply.lines() {
        column += 1 + line.len();
        if column > COLUMNS {
            text.push_str("\n   ");
            column = 4 + line.len();
        }
        text.push(' ');
        text.push_str(line);
    }
    text + "\n"
}

/// Printable characters stay as they are; the other bytes are escaped.
fn escape(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|&byte| match byte {
            b' '..=b'~' if byte != b'\\' => char::from(byte).to_string(),
            _ => byte.escape_ascii().to_string(),
        })
        .collect()
}

#[test]
fn every_script_reads_as_it_did() {
    let mut scripts = 0;
    for entry in std::fs::read_dir("tests/goldens").expect("the scripts are beside this test") {
        let path = entry.expect("the directory can be listed").path();
        scripts += 1;
        println!("{}", path.display());
        goldenscript::run(&mut Both(Client::new("2"), Client::new("3")), &path)
            .expect("the script can be read");
    }
    assert!(scripts >= 9, "{scripts} scripts");
}
