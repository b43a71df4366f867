//! Histories of a register, or of many, as Jepsen and Knossos write them.
//!
//! A history says when operations began and when they were over. A trace has both in one record. So the `:invoke` of a
//! process waits for its completion, and both become the record:
//!
//! ```text
//!   {:process 0, :type :invoke, :f :write, :value [7 3], :time 10}  -.
//!   {:process 1, :type :invoke, :f :read, :value [7 nil], :time 12}  |   write of 3 to key 7 by client 0, from 10 to 20
//!   {:process 0, :type :ok, :f :write, :value [7 3], :time 20}      -'
//! ```
//!
//! | in the history | in the trace |
//! |---|---|
//! | `:f` is `:read`/`:r` or `:write`/`:w` | a read or a write; anything else is refused, as compare-and-set cannot be judged |
//! | `:value [k v]` | the value `v` of the key `k` (an independent register) |
//! | `:value v` | the value `v` of the key `register` |
//! | `nil` | nothing was read |
//! | `:ok`, `:fail` | the status `ok`, `fail` |
//! | `:info`, or no completion before the end | the status `unknown`. Jepsen gives the client a new process number afterwards, so it goes on as another client |
//! | `:process :nemesis`, or another name | passed over: not a client |
//! | `:time` in nanoseconds | the time. Without it, the event's place in the history is the time, in nanoseconds |
//! | `:error`, `:index`, anything else | not looked at |
//!
//! Maps may follow one another or be in one vector or list, tagged (`#jepsen.history.Op{..}`) or not. Logs of older releases have a
//! line for each event, whose words come in order: `INFO  jepsen.util - 0 :invoke :write 3`.
//!
//! Limits:
//! - Numbers and keywords become text as they are written, and a text becomes its content: `3` and `"3"` are the same value.
//! - A history says nothing about sites: all operations have the site `unknown`.
//! - Tests of registers tend to write few values again and again. The checker must tell writes apart by their values, and
//!   refuses such histories.
use super::{
    Fault,
    edn::{Form, Forms},
};
use crate::{Octets, Op, Record, Status};
use std::{collections::BTreeMap, io::BufRead};

/// The most operations that may be under way at the same time. A test has as many as clients.
const MAX_PENDING: usize = 1 << 20;

const ONLY_KEY: &str = "register";
const SITE: &str = "unknown";

/// A reader of a history.
pub(super) struct Jepsen {
    forms: Forms<Box<dyn BufRead>>,
    /// The byte that closes the vector around the events, if there is one.
    closing: Option<u8>,
    /// The number of events so far, including those of the nemesis.
    events: i64,
    has_times: Option<bool>,
    /// The operations under way, by process.
    pending: BTreeMap<i64, Invocation>,
    /// The operations that never ended, in reverse order.
    left: Option<Vec<(i64, Invocation)>>,
    line: u64,
}

/// An operation that has begun.
struct Invocation {
    line: u64,
    event: i64,
    op: Op,
    key: Option<String>,
    value: Option<String>,
    time: i64,
}

/// What an event says about its operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Invoke,
    Ended(Status),
}

/// One event of a history.
struct Event {
    line: u64,
    event: i64,
    process: i64,
    is: Type,
    op: Op,
    value: Form,
    time: i64,
}

impl Jepsen {
    pub(super) fn new(input: Box<dyn BufRead>) -> Jepsen {
        Jepsen {
            forms: Forms::new(input, 1),
            closing: None,
            events: 0,
            has_times: None,
            pending: BTreeMap::new(),
            left: None,
            line: 0,
        }
    }

    pub(super) fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, Fault> {
        while self.left.is_none() {
            let Some((line, form)) = self.form()? else {
                let mut left: Vec<_> = std::mem::take(&mut self.pending).into_iter().collect();
                left.sort_by_key(|(_, invocation)| std::cmp::Reverse(invocation.event));
                self.left = Some(left);
                break;
            };
            let Some(event) = self.event(line, &form)? else {
                continue;
            };
            self.line = event.line;
            match event.is {
                Type::Invoke => self.invoke(event)?,
                Type::Ended(status) => return self.complete(event, status).map(Some),
            }
        }
        let Some((process, invocation)) = self.left.as_mut().and_then(Vec::pop) else {
            return Ok(None);
        };
        self.line = invocation.line;
        let value = match invocation.op {
            Op::Write => invocation.value.clone(),
            _ => None,
        };
        Ok(Some(record(process, invocation, value, None, Status::Unknown)))
    }

    /// The next event as a map, whichever form it has in the file, and its line.
    fn form(&mut self) -> Result<Option<(u64, Form)>, Fault> {
        loop {
            let Some(byte) = self.forms.peek()? else {
                return match self.closing {
                    Some(closing) => {
                        let expected = format!("'{}' behind the last event", char::from(closing));
                        Err(Fault::bad(self.forms.line(), expected, "the end of the file"))
                    }
                    None => Ok(None),
                };
            };
            let line = self.forms.line();
            match byte {
                b'[' | b'(' if self.closing.is_none() => {
                    self.closing = Some(if byte == b'[' { b']' } else { b')' });
                    self.forms.pass(byte);
                }
                _ if self.closing == Some(byte) => {
                    self.closing = None;
                    self.forms.pass(byte);
                }
                b'{' | b'#' => match self.forms.next()? {
                    Some(form) => return Ok(Some((line, form))),
                    // Only discarded forms were there.
                    None => continue,
                },
                _ if self.closing.is_some() || is_bracket(byte) => {
                    let found = format!("'{}'", char::from(byte).escape_default());
                    return Err(Fault::bad(
                        line,
                        "an event: {:process .., :type .., :f .., :value ..}",
                        found,
                    ));
                }
                _ => {
                    let (line, text) = self.forms.rest_of_line()?;
                    return Ok(Some((line, logged(line, &text)?)));
                }
            }
        }
    }

    /// `None` if the event is not one of a client.
    fn event(&mut self, line: u64, form: &Form) -> Result<Option<Event>, Fault> {
        let event = self.events;
        self.events += 1;
        let field = |name: &'static str| match form.field(name) {
            Some(field) => Ok(field),
            None => Err(Fault::bad(line, format!("an event with {name}"), form.shown())),
        };
        let process = match field(":process")? {
            Form::Atom(name) if !name.starts_with(|first: char| first.is_ascii_digit() || first == '-') => {
                return Ok(None);
            }
            process => integer(line, ":process", process)?,
        };
        let is = match field(":type")? {
            Form::Atom(text) if text == ":invoke" => Type::Invoke,
            Form::Atom(text) if text == ":ok" => Type::Ended(Status::Ok),
            Form::Atom(text) if text == ":fail" => Type::Ended(Status::Fail),
            Form::Atom(text) if text == ":info" => Type::Ended(Status::Unknown),
            other => {
                let expected = ":type :invoke, :ok, :fail or :info";
                return Err(Fault::bad(line, expected, other.shown()));
            }
        };
        let op = match field(":f")? {
            Form::Atom(text) if text == ":read" || text == ":r" => Op::Read,
            Form::Atom(text) if text == ":write" || text == ":w" => Op::Write,
            Form::Atom(text) if text == ":cas" => {
                let expected = ":f :read or :write (compare-and-set cannot be judged)";
                return Err(Fault::bad(line, expected, ":cas"));
            }
            other => return Err(Fault::bad(line, ":f :read or :write", other.shown())),
        };
        let time = form.field(":time").filter(|&time| *time != Form::Nil);
        if *self.has_times.get_or_insert(time.is_some()) != time.is_some() {
            let (expected, found) = match time {
                Some(_) => ("no :time, as before", "one"),
                None => ("a :time, as before", "none"),
            };
            return Err(Fault::bad(line, expected, found));
        }
        let time = time.map_or(Ok(event), |time| integer(line, ":time", time))?;
        let value = form.field(":value").cloned().unwrap_or(Form::Nil);
        Ok(Some(Event {
            line,
            event,
            process,
            is,
            op,
            value,
            time,
        }))
    }

    fn invoke(&mut self, event: Event) -> Result<(), Fault> {
        let line = event.line;
        let (key, value) = register(line, &event.value)?;
        if event.op == Op::Write && value.is_none() {
            return Err(Fault::bad(line, "the value that is written", "nil"));
        }
        if self.pending.len() >= MAX_PENDING {
            let expected = format!("at most {MAX_PENDING} operations at once");
            return Err(Fault::bad(line, expected, "one more"));
        }
        let before = self.pending.insert(
            event.process,
            Invocation {
                line,
                event: event.event,
                op: event.op,
                key,
                value,
                time: event.time,
            },
        );
        match before {
            None => Ok(()),
            Some(before) => {
                let expected = format!("a process's operations one after the other ({})", event.process);
                let found = format!("one that begins while that of line {} is under way", before.line);
                Err(Fault::bad(line, expected, found))
            }
        }
    }

    fn complete(&mut self, event: Event, status: Status) -> Result<Record, Fault> {
        let line = event.line;
        let Some(invocation) = self.pending.remove(&event.process) else {
            let expected = format!(":invoke before the process's completion ({})", event.process);
            return Err(Fault::bad(line, expected, "none"));
        };
        if invocation.op != event.op {
            let expected = format!("the completion of what line {} began", invocation.line);
            return Err(Fault::bad(line, expected, "another :f"));
        }
        let value = match (event.op, status) {
            (Op::Write, _) => invocation.value.clone(),
            // A read that failed may have any value here.
            (_, Status::Fail | Status::Unknown) => None,
            (_, Status::Ok) => {
                let (key, value) = register(line, &event.value)?;
                if key != invocation.key {
                    let expected = format!("the value of the key that line {} asked for", invocation.line);
                    return Err(Fault::bad(line, expected, event.value.shown()));
                }
                value
            }
        };
        let finish = (status != Status::Unknown).then_some(event.time);
        Ok(record(event.process, invocation, value, finish, status))
    }
}

fn record(
    process: i64,
    invocation: Invocation,
    value: Option<String>,
    finish_ns: Option<i64>,
    status: Status,
) -> Record {
    Record {
        client: process.to_string(),
        site: SITE.into(),
        op: invocation.op,
        key: invocation.key.as_deref().unwrap_or(ONLY_KEY).into(),
        value: value.as_deref().map(Octets::from),
        start_ns: invocation.time,
        finish_ns,
        status,
        version: None,
        level: None,
        receipt: None,
        recorder: None,
        pipelined: false,
        existed: false,
        reads: None,
    }
}

/// A key, if there is one, and a value.
fn register(line: u64, value: &Form) -> Result<(Option<String>, Option<String>), Fault> {
    match value {
        Form::Sequence(pair) => match &pair[..] {
            [key, value] => {
                let key = plain(line, key)?.unwrap_or_else(|| "nil".into());
                Ok((Some(key), plain(line, value)?))
            }
            _ => Err(not_plain(line, value)),
        },
        value => Ok((None, plain(line, value)?)),
    }
}

fn plain(line: u64, form: &Form) -> Result<Option<String>, Fault> {
    match form {
        Form::Nil => Ok(None),
        Form::Atom(text) | Form::Text(text) => Ok(Some(text.clone())),
        Form::Sequence(_) | Form::Map(_) => Err(not_plain(line, form)),
    }
}

fn not_plain(line: u64, form: &Form) -> Fault {
    Fault::bad(line, "a register's value, or a key and a value", form.shown())
}

fn integer(line: u64, name: &str, form: &Form) -> Result<i64, Fault> {
    let number = match form {
        Form::Atom(text) => text.strip_suffix('N').unwrap_or(text).parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| Fault::bad(line, format!("{name} as an integer of 64 bits"), form.shown()))
}

/// A line of an older log, as the map that newer releases write.
fn logged(line: u64, text: &[u8]) -> Result<Form, Fault> {
    let marker = b" - ";
    let at = text.windows(marker.len()).position(|window| window == marker);
    let text = &text[at.map_or(0, |at| at + marker.len())..];
    let mut words = Forms::new(text, line);
    let mut entries = Vec::new();
    for name in [":process", ":type", ":f", ":value"] {
        match words.next()? {
            Some(word) => entries.push((Form::Atom(name.into()), word)),
            None => break,
        }
    }
    if entries.len() < 3 {
        let shown = super::csv::shortened(&String::from_utf8_lossy(text));
        return Err(Fault::bad(
            line,
            "an event: a map, or a process, its type, and what it did",
            format!("{shown:?}"),
        ));
    }
    Ok(Form::Map(entries))
}

fn is_bracket(byte: u8) -> bool {
    matches!(byte, b'[' | b'(' | b')' | b']' | b'}')
}
