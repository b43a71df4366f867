//! Commands on many keys, which are done a share at a time.
//!
//! A command on more than [`SHARE`] keys would hold up the event loop, and all its clients, until the last key is done. So it is divided: each call
//! of [`crate::Connection::handle_bytes`] begins one share of it, and the commands after it wait. The reply is written when the last part is
//! answered, in the place of the command.
//!
//! ```text
//!   DEL k0 .. k19999     part 0: DEL k0   part 1: DEL k1 ..      256 parts in a call, at most 1,024 not answered
//!   MGET k0 .. k999      part 0: k0 .. k255   part 1: k256 ..    one part in a call, at most 4 not answered
//! ```
//!
//! A write of several keys is one write for each key in any case. A read is divided only if it is not a snapshot ([`crate::Backend::divides_reads`]).
//! A snapshot is one operation, and its protocol divides it. `EXISTS` is a read of each key alone where keys may have hashes and sets: a read of several keys does not
//! tell these from keys without a value.
use crate::shape::{check_reply, merge, write_values};
use crate::{Arguments, Limits, Writer, refusal::Refusal};
use bytes::Bytes;
use turnbuckle_core::DoorId;
use turnbuckle_core::{Answer, Key, Operation, Receipt, Wanted};

/// How many keys are begun in one call, and how many a command may have before it is divided.
pub(crate) const SHARE: usize = 256;

/// How many keys of one command may be begun and not answered.
const MAX_OPEN: usize = 4 * SHARE;

/// What is done to each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Each {
    /// It is written; the arguments are pairs.
    Set,
    /// It is deleted.
    Delete,
    /// It is read.
    Read,
    /// It is read alone, to count it.
    Count,
}

impl Each {
    /// How many arguments belong to a key.
    fn step(self) -> usize {
        match self {
            Each::Set => 2,
            Each::Delete | Each::Read | Each::Count => 1,
        }
    }
}

/// A command of which some parts have not begun yet. Its slot is in the connection's `slots`.
#[derive(Debug)]
pub(crate) struct Long {
    pub(crate) door: DoorId,
    /// The tag of its first part, and of its slot.
    pub(crate) first_tag: u64,
    each: Each,
    level: Option<Wanted>,
    arguments: Arguments,
    keys: usize,
    /// How many keys are begun.
    begun: usize,
    /// How many parts are begun and not answered.
    open: usize,
}

impl Long {
    /// The first `keys` keys of a command.
    pub(crate) fn new(
        door: DoorId,
        first_tag: u64,
        each: Each,
        level: Option<Wanted>,
        arguments: Arguments,
        keys: usize,
    ) -> Long {
        Long {
            door,
            first_tag,
            each,
            level,
            arguments,
            keys,
            begun: 0,
            open: 0,
        }
    }

    /// How many keys a part has.
    fn keys_of_part(&self) -> usize {
        match self.each {
            Each::Set | Each::Delete | Each::Count => 1,
            Each::Read => SHARE,
        }
    }

    /// How many parts it has.
    pub(crate) fn parts(&self) -> usize {
        self.keys.div_ceil(self.keys_of_part())
    }

    /// How many parts are not begun.
    pub(crate) fn unbegun(&self) -> usize {
        (self.keys - self.begun).div_ceil(self.keys_of_part())
    }

    /// Whether it returns values.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.each, Each::Read | Each::Count)
    }

    /// Whether a share may begin.
    pub(crate) fn may_go_on(&self) -> bool {
        self.open * self.keys_of_part() + SHARE <= MAX_OPEN
    }

    /// How many keys the next share has.
    pub(crate) fn next_share(&self) -> usize {
        SHARE.min(self.keys - self.begun)
    }

    /// The next part, its number, and how many keys it has.
    pub(crate) fn begin(&mut self) -> (usize, Operation, usize) {
        let part = self.begun / self.keys_of_part();
        let keys = self.keys_of_part().min(self.keys - self.begun);
        let operation = match self.each {
            Each::Read => Operation::ReadMany {
                keys: (self.begun..self.begun + keys).map(|key| self.key(key)).collect(),
                level: None,
            }
            .wanting(self.level.clone()),
            Each::Count => Operation::get(self.key(self.begun)).wanting(self.level.clone()),
            each => put(&self.arguments, each, self.begun, self.level.clone()),
        };
        self.begun += keys;
        self.open += 1;
        (part, operation, keys)
    }

    fn key(&self, number: usize) -> Key {
        Key(self.arguments.bytes(1 + number * self.each.step()))
    }

    /// Notes that a part was answered.
    pub(crate) fn answered(&mut self) {
        self.open -= 1;
    }

    /// How many bytes it takes beside its bytes on the wire, which its slot counts: the places of the arguments, once here and once in the slot.
    pub(crate) fn spans_bytes(&self) -> usize {
        2 * (self.arguments.held_bytes() - self.arguments.frame_bytes())
    }
}

/// The write of key number `number` of a command.
pub(crate) fn put(arguments: &Arguments, each: Each, number: usize, level: Option<Wanted>) -> Operation {
    let place = 1 + number * each.step();
    let value = (each == Each::Set).then(|| arguments.bytes(place + 1));
    Operation::put(Key(arguments.bytes(place)), value).wanting(level)
}

/// What the parts of a long read have returned so far.
#[derive(Debug)]
pub(crate) struct Reads {
    found: Found,
    missing: usize,
    receipt: Option<Box<Receipt>>,
    refused: Option<Refusal>,
    /// The bytes of the values.
    bytes: usize,
}

#[derive(Debug)]
enum Found {
    /// How many keys have a value, or elements.
    Present(usize),
    /// The values, by part.
    Values(Vec<Vec<Option<Bytes>>>),
}

impl Reads {
    /// A read of `parts` parts. If `counts`, the reply is how many keys have a value, else it is their values.
    pub(crate) fn new(counts: bool, parts: usize) -> Reads {
        Reads {
            found: match counts {
                true => Found::Present(0),
                false => Found::Values(vec![Vec::new(); parts]),
            },
            missing: parts,
            receipt: None,
            refused: None,
            bytes: 0,
        }
    }

    /// Handles the answer to a part.
    ///
    /// # Panics
    /// If the answer is not one to a read. That is a bug of the backend.
    pub(crate) fn take(
        &mut self,
        part: usize,
        answer: Answer,
        receipt: Option<Box<Receipt>>,
        limits: &Limits,
    ) {
        self.missing -= 1;
        match answer {
            Answer::Failed(failure) => self.refuse(Refusal::from(&failure)),
            Answer::Values(values) => {
                self.receipt = merge(self.receipt.take(), receipt);
                match &mut self.found {
                    Found::Present(count) => *count += values.iter().flatten().count(),
                    Found::Values(parts) if self.refused.is_none() => {
                        self.bytes += values.iter().flatten().map(Bytes::len).sum::<usize>();
                        parts[part] = values;
                    }
                    Found::Values(_) => {}
                }
                if let Err(too_big) = check_reply(self.bytes, limits) {
                    self.refuse(too_big);
                }
            }
            Answer::Value(_) | Answer::Elements(_) if matches!(self.found, Found::Present(_)) => {
                self.receipt = merge(self.receipt.take(), receipt);
                if let Found::Present(count) = &mut self.found {
                    *count += usize::from(answer != Answer::Value(None));
                }
            }
            other => panic!("the backend answered {other:?} where a read of several keys was asked"),
        }
    }

    /// Makes this error the reply.
    fn refuse(&mut self, refusal: Refusal) {
        self.bytes = 0;
        if let Found::Values(parts) = &mut self.found {
            *parts = Vec::new();
        }
        self.refused.get_or_insert(refusal);
    }

    /// Whether the reply is an error, so that the remaining parts are not needed.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Whether the values are kept, and not only counted.
    pub(crate) fn keeps_values(&self) -> bool {
        matches!(self.found, Found::Values(_)) && self.refused.is_none()
    }

    /// Notes that this many parts will not be read.
    pub(crate) fn forget(&mut self, parts: usize) {
        self.missing -= parts;
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// The bytes of the values.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn receipt(&self) -> Option<Box<Receipt>> {
        self.receipt.clone().filter(|_| self.refused.is_none())
    }

    pub(crate) fn write(&self, limits: &Limits, writer: &mut Writer<'_>) -> Result<(), Refusal> {
        match (&self.refused, &self.found) {
            (Some(refusal), _) => Err(refusal.clone()),
            (None, Found::Present(count)) => {
                writer.integer(*count as i64);
                Ok(())
            }
            (None, Found::Values(parts)) => {
                let values: Vec<Option<Bytes>> = parts.iter().flatten().cloned().collect();
                write_values(&values, limits, writer)
            }
        }
    }
}
