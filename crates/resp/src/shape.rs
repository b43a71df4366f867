use crate::commands::Unit;
use crate::element_shape::{Budget, ElementShape, Together, bytes_of_elements};
use crate::long::Reads;
use crate::number::parse_integer;
use crate::output::SHARED_BYTES;
use crate::part::Part;
use crate::transaction::Queued;
use crate::{
    Arguments, Backend, Greeting, Limits, Writer, connection::State, context, glob, receipt, refusal::Refusal,
};
use bytes::Bytes;
use turnbuckle_core::{
    Answer, Computed, DoorId, Elements, Failure, Key, Lifetime, Micros, Receipt, Siblings,
};

/// The connection's settings for replies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style<'a> {
    limits: &'a Limits,
    /// Whether receipts are written before replies.
    receipts: bool,
}

impl<'a> Style<'a> {
    #[inline]
    pub(crate) fn of(greeting: &'a Greeting, state: &State) -> Style<'a> {
        Style {
            limits: &greeting.limits,
            receipts: state.receipts,
        }
    }

    /// Writes the reply of a command that was one operation. Returns its receipt.
    #[inline]
    pub(crate) fn write_one(
        self,
        shape: &Shape,
        answer: &Answer,
        receipt: Option<Box<Receipt>>,
        backend: &dyn Backend,
        writer: &mut Writer<'_>,
    ) -> Option<Box<Receipt>> {
        let until = receipt.as_ref().and_then(|receipt| receipt.until);
        self.write(receipt, backend, writer, |writer| match (shape, answer) {
            (Shape::Remaining(remaining), Answer::Value(_) | Answer::Elements(_)) => {
                let lifetime = Lifetime::new(*answer != Answer::Value(None), until);
                remaining.write(lifetime, backend.wall_time(), writer);
                Ok(())
            }
            _ => shape.write(answer, self.limits, backend, writer),
        })
    }

    /// Writes the reply of a command that was several writes. Returns its receipt.
    pub(crate) fn write_several(
        self,
        writes: &Writes,
        backend: &dyn Backend,
        writer: &mut Writer<'_>,
    ) -> Option<Box<Receipt>> {
        self.write(writes.receipt(), backend, writer, |writer| writes.write(writer))
    }

    /// Writes the reply of a command that was several reads. Returns its receipt.
    pub(crate) fn write_reads(
        self,
        reads: &Reads,
        backend: &dyn Backend,
        writer: &mut Writer<'_>,
    ) -> Option<Box<Receipt>> {
        self.write(reads.receipt(), backend, writer, |writer| {
            reads.write(self.limits, writer)
        })
    }

    /// Writes a reply, with its receipt as an attribute before it if receipts are on; or an error, which has no receipt.
    #[inline]
    fn write(
        self,
        receipt: Option<Box<Receipt>>,
        backend: &dyn Backend,
        writer: &mut Writer<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), Refusal>,
    ) -> Option<Box<Receipt>> {
        let before = writer.written_bytes();
        if self.receipts
            && let Some(receipt) = &receipt
        {
            receipt::write_attribute(receipt, backend, writer);
        }
        match write(writer) {
            Ok(()) => receipt,
            Err(refusal) => {
                writer.undo(before);
                writer.error(&refusal.0);
                None
            }
        }
    }
}

/// How the answer of one operation becomes the reply of a command.
#[derive(Debug)]
pub(crate) enum Shape {
    /// The value, or null.
    Value,
    /// The causal context, and all values that no write has replaced.
    Siblings {
        /// The door of the key's keyspace.
        door: DoorId,
        /// The key.
        key: Key,
    },
    /// The value's length, or 0 without a value.
    Length,
    /// A part of the value, or something about it.
    Part(Part),
    /// A hash or a set, or something about it.
    Elements(ElementShape),
    /// What several sets have together.
    Together(Together),
    /// How many elements of a hash or a set were added or removed.
    Changed,
    /// When the value expires, as the receipt says.
    Remaining(Remaining),
    /// The number that was computed, as an integer.
    Integer,
    /// The number that was computed, as it is written.
    Number,
    /// The replies of the commands of a transaction, or null if a condition did not hold.
    Transaction(Vec<Queued>),
    /// The type of the value: `string`, `hash`, `set` or `none`.
    Kind,
    /// OK, or null if a condition did not hold.
    Done,
    /// 1, or 0 if a condition did not hold.
    CarriedOut,
    /// The previous value, or null, whether a condition held or not.
    Previous,
    /// 1 if there was a value to delete, else 0.
    Deleted,
    /// All values.
    Values,
    /// How many of the keys have a value.
    Present,
    /// The keys that match, and the cursor to continue from.
    Keys {
        /// The pattern that they must match.
        pattern: Option<Bytes>,
        /// Whether the client asked for a type that no value here has.
        none: bool,
    },
    /// The count.
    Count,
    /// How often a message is heard at this node.
    Published(u64),
}

/// How a reply says when a value expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// The unit of its number.
    pub(crate) unit: Unit,
    /// Whether it is a time since 1970, and not the span from now on.
    pub(crate) is_time: bool,
}

impl Remaining {
    /// Writes -2 without a value, -1 if the value never expires. Seconds are rounded as Redis rounds them: spans to the nearest second, times down.
    fn write(self, lifetime: Lifetime, now: Micros, writer: &mut Writer<'_>) {
        let micros = self.unit.micros_of_one();
        writer.integer(match lifetime {
            Lifetime::NoValue => -2,
            Lifetime::Forever => -1,
            Lifetime::Until(until) if self.is_time => integer(until.0 / micros),
            Lifetime::Until(until) => {
                // As Redis does, from milliseconds.
                let millis = until.since(now).0 / 1_000;
                integer(match self.unit {
                    Unit::Millis => millis,
                    Unit::Seconds => (millis + 500) / 1_000,
                })
            }
        });
    }
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The most bytes that a value's reply takes beside the value.
pub(crate) const REPLY_BYTES: usize = 32;

/// How many steps of matching one `SCAN` or `KEYS` may take: about a tenth of a second.
pub(crate) const MATCH_STEPS: u64 = 50_000_000;

impl Shape {
    /// Whether the reply carries the values that were read, and the read may be repeated if there is no room for them. A write is never repeated,
    /// whatever its reply carries.
    pub(crate) fn carries(&self) -> bool {
        match self {
            Shape::Value | Shape::Values | Shape::Siblings { .. } => true,
            Shape::Part(part) => part.carries(),
            Shape::Elements(shape) => shape.carries(),
            Shape::Together(_) => true,
            _ => false,
        }
    }

    /// About how many bytes of a hash or a set the reply carries. The answer has all of it, and is dropped when the reply is written.
    pub(crate) fn bytes_of(&self, elements: &Elements) -> usize {
        match self {
            Shape::Elements(shape) => shape.reply_bytes(elements),
            Shape::Together(_) | Shape::Transaction(_) => bytes_of_elements(elements),
            _ => 0,
        }
    }

    /// Writes the reply. If it is refused, nothing is written.
    ///
    /// # Panics
    /// If the answer does not fit the operation. That is a bug of the backend.
    pub(crate) fn write(
        &self,
        answer: &Answer,
        limits: &Limits,
        backend: &dyn Backend,
        writer: &mut Writer<'_>,
    ) -> Result<(), Refusal> {
        match (self, answer) {
            (_, Answer::Failed(failure)) => return Err(Refusal::from(failure)),
            (Shape::Value, Answer::Value(value)) => writer.value(value.as_ref()),
            (Shape::Siblings { door, key }, Answer::Siblings(siblings)) => {
                let context = context::text(backend, *door, key, &siblings.context);
                return write_siblings(&context, siblings, limits, writer);
            }
            (Shape::Done, Answer::Written { .. }) => writer.simple("OK"),
            (Shape::Done, Answer::Unmet(_)) => writer.null(),
            (Shape::CarriedOut, Answer::Written { .. }) => writer.integer(1),
            (Shape::CarriedOut, Answer::Unmet(_)) => writer.integer(0),
            (Shape::CarriedOut, Answer::Transacted(done)) => writer.integer(i64::from(done.is_some())),
            (_, Answer::NotComputed(why)) => return Err(Refusal::from(*why)),
            (Shape::Elements(shape), answer) => {
                return shape.write(answer, &mut Budget::new(limits), writer);
            }
            (Shape::Together(together), answer) => {
                return together.write(answer, &mut Budget::new(limits), writer);
            }
            (Shape::Changed, Answer::Computed(Computed::Elements(count))) => writer.integer(*count as i64),
            (Shape::Done, Answer::Computed(Computed::Elements(_))) => writer.simple("OK"),
            (Shape::Integer, Answer::Computed(Computed::Number(number))) => match parse_integer(number) {
                Some(number) => writer.integer(number),
                None => return Err(Refusal::from(&unfit())),
            },
            (Shape::Number, Answer::Computed(Computed::Number(number))) => writer.bulk(number),
            (Shape::Length, Answer::Computed(Computed::Length(len))) => writer.integer(*len as i64),
            (Shape::Transaction(_), Answer::Transacted(None)) => writer.null_array(),
            (Shape::Transaction(commands), Answer::Transacted(Some(steps))) => {
                return write_transaction(commands, steps, limits, backend, writer);
            }
            (Shape::Previous, Answer::Replaced(value)) => writer.value(value.as_ref()),
            (Shape::Previous, Answer::Unmet(unmet)) => writer.value(unmet.value.as_ref()),
            (Shape::Length, Answer::Value(value)) => {
                writer.integer(value.as_ref().map_or(0, |value| value.len() as i64));
            }
            (Shape::Part(part), Answer::Value(value)) => part.write(value.as_ref(), writer),
            (Shape::Part(part), Answer::Elements(elements)) => {
                return part.write_of_elements(elements, writer);
            }
            (Shape::Kind, Answer::Elements(elements)) => writer.simple(elements.kind().name()),
            (Shape::Present, Answer::Elements(_)) => writer.integer(1),
            (Shape::Value | Shape::Length, Answer::Elements(_)) => return Err(Refusal::wrong_type()),
            (Shape::Remaining(remaining), Answer::Lifetime(lifetime)) => {
                remaining.write(*lifetime, backend.wall_time(), writer);
            }
            (Shape::Kind, Answer::Value(value)) => {
                writer.simple(if value.is_some() { "string" } else { "none" });
            }
            (Shape::Deleted, Answer::Written { existed }) => writer.integer(i64::from(*existed)),
            (Shape::Deleted, Answer::Transacted(Some(steps))) => {
                let existed = |answer: &&Answer| matches!(answer, Answer::Written { existed: true });
                writer.integer(steps.iter().filter(existed).count() as i64);
            }
            (Shape::Done, Answer::Transacted(Some(_))) => writer.simple("OK"),
            (Shape::Present, Answer::Value(value)) => writer.integer(i64::from(value.is_some())),
            (Shape::Present, Answer::Values(values)) => {
                writer.integer(values.iter().flatten().count() as i64);
            }
            (Shape::Values, Answer::Values(values)) => return write_values(values, limits, writer),
            (Shape::Keys { pattern, none }, Answer::Keys { cursor, keys }) => {
                return write_keys(*cursor, keys, pattern.as_deref(), *none, limits, writer);
            }
            (Shape::Count, Answer::Count(count)) => {
                writer.integer(i64::try_from(*count).unwrap_or(i64::MAX));
            }
            (Shape::Count, Answer::Sites(sites)) => writer.integer(i64::from(*sites)),
            (Shape::Published(count), Answer::Published) => writer.integer(integer(*count)),
            // A server of another node may have sent this answer.
            _ => return Err(Refusal::from(&unfit())),
        }
        Ok(())
    }
}

/// The failure of an operation whose answer does not fit it. It is not known whether it was carried out.
pub(crate) fn unfit() -> Failure {
    Failure::Timeout("a server sent an answer that does not fit the request".into())
}

/// Refuses a reply that is too long. Otherwise a command that names one long value many times could make a reply without a bound.
pub(crate) fn check_reply(bytes: usize, limits: &Limits) -> Result<(), Refusal> {
    if bytes > limits.max_reply_bytes {
        return Err(Refusal::too_big(
            "the reply",
            bytes as u64,
            limits.max_reply_bytes as u64,
        ));
    }
    Ok(())
}

pub(crate) fn write_values(
    values: &[Option<Bytes>],
    limits: &Limits,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let bytes = values.iter().flatten().map(Bytes::len).sum();
    check_reply(bytes, limits)?;
    write_checked_values(values, writer);
    Ok(())
}

/// The same, of values whose length was checked.
fn write_checked_values(values: &[Option<Bytes>], writer: &mut Writer<'_>) {
    let copied = values
        .iter()
        .flatten()
        .map(Bytes::len)
        .filter(|&bytes| bytes < SHARED_BYTES);
    writer.reserve(copied.sum::<usize>() + REPLY_BYTES * values.len());
    writer.array(values.len());
    for value in values {
        writer.value(value.as_ref());
    }
}

/// Writes what each command of a transaction is told.
fn write_transaction(
    commands: &[Queued],
    steps: &[Answer],
    limits: &Limits,
    backend: &dyn Backend,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let needed = commands.iter().map(|command| match command {
        Queued::Steps(_, count) => *count,
        Queued::Said(_) => 0,
    });
    if needed.sum::<usize>() != steps.len() {
        return Err(Refusal::from(&unfit()));
    }
    writer.array(commands.len());
    let mut budget = Budget::new(limits);
    let mut left = steps;
    for command in commands {
        let (shape, answers) = match command {
            Queued::Said(reply) => {
                writer.written(reply);
                continue;
            }
            Queued::Steps(shape, count) => {
                let (answers, behind) = left.split_at(*count);
                left = behind;
                (shape, answers)
            }
        };
        let together;
        let answer = match (shape, answers) {
            (Shape::Present, answers) => {
                let present = answers.iter().filter(|answer| has_value(answer));
                writer.integer(present.count() as i64);
                continue;
            }
            (Shape::Values, answers) => {
                let value = |answer: &Answer| match answer {
                    Answer::Value(value) => value.clone(),
                    _ => None,
                };
                together = Answer::Values(answers.iter().map(value).collect());
                &together
            }
            (_, [answer]) => answer,
            (_, answers) => {
                together = Answer::Transacted(Some(answers.to_vec()));
                &together
            }
        };
        // As in Redis, a command that fails is an error among the replies.
        let before = writer.written_bytes();
        let written = match shape {
            Shape::Elements(shape) => shape.write(answer, &mut budget, writer),
            Shape::Together(together) => together.write(answer, &mut budget, writer),
            shape => shape.write(answer, limits, backend, writer),
        };
        if let Err(refusal) = written {
            writer.undo(before);
            writer.error(&refusal.0);
        }
    }
    Ok(())
}

/// Whether a get has found a value, or elements.
fn has_value(answer: &Answer) -> bool {
    matches!(answer, Answer::Value(Some(_)) | Answer::Elements(_))
}

fn write_siblings(
    context: &str,
    siblings: &Siblings,
    limits: &Limits,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let values = siblings.versions.iter().map(|(_, value)| value.as_ref());
    let bytes = values.clone().flatten().map(|value| value.len()).sum();
    check_reply(bytes, limits)?;
    writer.array(1 + siblings.versions.len());
    writer.bulk(context.as_bytes());
    values.for_each(|value| writer.value(value));
    Ok(())
}

/// The keys that match a pattern, or all. `steps` is how much matching may be done.
pub(crate) fn matching<K: AsRef<[u8]>>(
    keys: impl IntoIterator<Item = K>,
    pattern: Option<&[u8]>,
    steps: &mut u64,
) -> Result<Vec<K>, Refusal> {
    let mut found = Vec::new();
    for key in keys {
        let matches = match pattern {
            None => true,
            Some(pattern) => glob::matches(pattern, key.as_ref(), steps).ok_or_else(|| {
                Refusal::err("matching the pattern takes too long with keys of this length")
            })?,
        };
        if matches {
            found.push(key);
        }
    }
    Ok(found)
}

fn write_keys(
    cursor: u64,
    keys: &[Key],
    pattern: Option<&[u8]>,
    none: bool,
    limits: &Limits,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let looked_at = keys.iter().filter(|_| !none);
    let mut steps = MATCH_STEPS;
    let found = matching(looked_at, pattern, &mut steps)?;
    check_reply(found.iter().map(|key| key.0.len()).sum(), limits)?;
    writer.array(2);
    writer.bulk(cursor.to_string().as_bytes());
    writer.array(found.len());
    for key in found {
        writer.bulk(key.as_ref());
    }
    Ok(())
}

/// A command that is several writes, one for each key, and the outcome of each. The writes are not one transaction: if some fail, the other ones were
/// carried out, and the error says which.
#[derive(Debug)]
pub(crate) struct Writes {
    /// Whether the reply is the number of keys that had a value. Otherwise it is OK.
    counts: bool,
    /// The command, which names the keys.
    arguments: Arguments,
    outcomes: Vec<Option<Result<bool, Failure>>>,
    missing: usize,
    receipt: Option<Box<Receipt>>,
}

impl Writes {
    /// Deletes of the first `keys` arguments of a command; or, if not `deletes`, writes of its first `keys` pairs of a key and a value.
    pub(crate) fn new(deletes: bool, keys: usize, arguments: Arguments) -> Writes {
        Writes {
            counts: deletes,
            outcomes: vec![None; keys],
            missing: keys,
            arguments,
            receipt: None,
        }
    }

    /// How many writes are not answered, whether they have begun or not.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// The key of a part.
    fn key(&self, part: usize) -> &[u8] {
        let step = if self.counts { 1 } else { 2 };
        self.arguments.at(1 + part * step)
    }

    /// Handles the answer to the write of key number `part`.
    ///
    /// # Panics
    /// If it was answered before. That is a bug of the backend.
    pub(crate) fn take(&mut self, part: usize, answer: Answer, receipt: Option<Box<Receipt>>) {
        let outcome = match answer {
            Answer::Written { existed } => Ok(existed),
            Answer::Failed(failure) => Err(failure),
            _ => Err(unfit()),
        };
        let before = self.outcomes[part].replace(outcome);
        assert!(before.is_none(), "the backend answered part {part} twice");
        self.missing -= 1;
        self.receipt = merge(self.receipt.take(), receipt);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// The receipt of all writes together; `None` if one of them failed.
    pub(crate) fn receipt(&self) -> Option<Box<Receipt>> {
        let failed = self.outcomes.iter().flatten().any(Result::is_err);
        self.receipt.clone().filter(|_| !failed)
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Refusal> {
        let outcomes = || self.outcomes.iter().flatten();
        if outcomes().any(Result::is_err) {
            return Err(self.refusal());
        }
        if self.counts {
            let existed = outcomes().filter(|outcome| matches!(outcome, Ok(true))).count();
            writer.integer(existed as i64);
        } else {
            writer.simple("OK");
        }
        Ok(())
    }

    /// The worst failure. A failure that leaves open whether the write was carried out is worse than one that does not.
    fn refusal(&self) -> Refusal {
        let failures = || {
            self.outcomes
                .iter()
                .flatten()
                .filter_map(|outcome| outcome.as_ref().err())
        };
        let worst = failures()
            .find(|failure| !failure.is_definite())
            .or_else(|| failures().next())
            .expect("the caller saw a failure");
        let mut refusal = Refusal::from(worst);
        if self.outcomes.len() > 1 {
            refusal.0 += &format!(
                "; done: {}; failed: {}",
                self.names(Result::is_ok),
                self.names(Result::is_err)
            );
        }
        refusal
    }

    /// The keys with some outcome, as many as fit in an error message.
    fn names(&self, wanted: impl Fn(&Result<bool, Failure>) -> bool) -> String {
        const MAX_NAMES: usize = 16;
        let of: Vec<usize> = (0..)
            .zip(&self.outcomes)
            .filter(|(_, outcome)| outcome.as_ref().is_some_and(&wanted))
            .map(|(part, _)| part)
            .collect();
        if of.is_empty() {
            return "none".into();
        }
        let named: Vec<String> = of
            .iter()
            .take(MAX_NAMES)
            .map(|&part| name(self.key(part)))
            .collect();
        let mut text = named.join(" ");
        if of.len() > MAX_NAMES {
            text += &format!(" and {} more", of.len() - MAX_NAMES);
        }
        text
    }
}

fn name(key: &[u8]) -> String {
    const MAX_BYTES: usize = 64;
    match key.get(..MAX_BYTES) {
        Some(front) => format!("'{}..'", front.escape_ascii()),
        None => format!("'{}'", key.escape_ascii()),
    }
}

/// The receipt of two operations together.
pub(crate) fn merge(one: Option<Box<Receipt>>, other: Option<Box<Receipt>>) -> Option<Box<Receipt>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Box::new(one.merged(*other))),
        (one, other) => one.or(other),
    }
}
