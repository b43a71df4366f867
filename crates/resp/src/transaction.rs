//! `WATCH`, `MULTI` and `EXEC`: the commands between `MULTI` and `EXEC` become the steps of one transaction, and the keys that are watched its conditions.
//!
//! `WATCH` reads its keys at `linearizable`, and remembers their versions. While keys are watched, all reads of the connection are at `linearizable`: otherwise a read
//! could show an older version than the one that `WATCH` has seen, and the transaction would be carried out although the client has read something else.
//!
//! A command in a transaction is parsed when it comes, and its keys and values are kept. If one is refused, or if a key could not be watched, `EXEC` carries nothing out.
use crate::refusal::Refusal;
use crate::shape::Shape;
use crate::{Limits, Writer};
use bytes::Bytes;
use turnbuckle_core::{Answer, Condition, Failure, Key, Operation, Step, Transaction};

/// The commands since `MULTI`.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    commands: Vec<Queued>,
    steps: Vec<Step>,
    /// The commands on the wire, in bytes: keys and values share their memory.
    bytes: usize,
    /// Why `EXEC` will carry nothing out.
    broken: Option<String>,
}

/// A command in a transaction, and what becomes its reply.
#[derive(Debug)]
pub(crate) enum Queued {
    /// The answers of this number of steps.
    Steps(Shape, usize),
    /// It needs no key. This is its reply.
    Said(Bytes),
}

/// How many bytes a step takes beside its part of the command.
const STEP_BYTES: usize = 400;

impl Queue {
    /// About how many bytes it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// The number of keys that it reads.
    pub(crate) fn reads(&self) -> usize {
        let read = |step: &&Step| match step {
            Step::Get(_) => true,
            Step::Lifetime(_) => false,
            Step::Put(_, _, options) => options.as_ref().is_some_and(|options| options.returns_previous),
        };
        self.steps.iter().filter(read).count()
    }

    /// The number of commands.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// A command was refused: nothing of the transaction will be carried out.
    pub(crate) fn break_by(&mut self, refusal: &Refusal) {
        self.broken.get_or_insert_with(|| refusal.0.clone());
        // Nobody needs what is there so far.
        self.commands = Vec::new();
        self.steps = Vec::new();
        self.bytes = 0;
    }

    /// Why nothing of it will be carried out.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Keeps an operation of a command.
    ///
    /// # Errors
    /// If it is none that a transaction can have, or if the transaction is too long.
    pub(crate) fn add(
        &mut self,
        shape: Shape,
        operation: Operation,
        frame_bytes: usize,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let steps = match operation {
            Operation::Get { key, .. } if matches!(shape, Shape::Remaining(_)) => vec![Step::Lifetime(key)],
            Operation::Get { key, .. } => vec![Step::Get(key)],
            Operation::Put {
                key, value, options, ..
            } => vec![Step::Put(key, value, options)],
            Operation::ReadMany { keys, .. } => keys.into_iter().map(Step::Get).collect(),
            _ => return Err(Refusal::err("this command cannot be used between MULTI and EXEC")),
        };
        self.add_steps(shape, steps, frame_bytes, limits)
    }

    /// Keeps the steps of a command.
    ///
    /// # Errors
    /// If the transaction is too long.
    pub(crate) fn add_steps(
        &mut self,
        shape: Shape,
        steps: Vec<Step>,
        frame_bytes: usize,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let count = self.steps.len() + steps.len();
        if count > Transaction::MAX {
            return Err(Refusal(format!(
                "TOOBIG the transaction has {count} steps, one for each key of a command; at most {} are taken",
                Transaction::MAX
            )));
        }
        self.hold(frame_bytes + steps.len() * STEP_BYTES, limits)?;
        self.commands.push(Queued::Steps(shape, steps.len()));
        self.steps.extend(steps);
        Ok(())
    }

    /// Keeps the reply of a command that needs no key.
    ///
    /// # Errors
    /// If the transaction is too long.
    pub(crate) fn add_reply(&mut self, reply: Bytes, limits: &Limits) -> Result<(), Refusal> {
        self.hold(reply.len() + STEP_BYTES, limits)?;
        self.commands.push(Queued::Said(reply));
        Ok(())
    }

    /// Counts bytes that it holds from now on.
    fn hold(&mut self, bytes: usize, limits: &Limits) -> Result<(), Refusal> {
        self.bytes += bytes;
        match self.bytes > limits.max_frame_bytes {
            true => {
                let (found, max) = (self.bytes as u64, limits.max_frame_bytes as u64);
                Err(Refusal::too_big("the transaction", found, max))
            }
            false => Ok(()),
        }
    }

    /// The transaction, and what its answers become.
    pub(crate) fn into_operation(self, conditions: Vec<(Key, Condition)>) -> (Shape, Operation) {
        let steps = self.steps;
        let operation = Operation::Transact {
            transaction: Box::new(Transaction { conditions, steps }),
            level: None,
        };
        (Shape::Transaction(self.commands), operation)
    }
}

/// The keys that are watched.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    conditions: Vec<(Key, Condition)>,
    /// About how many bytes they take.
    bytes: usize,
    /// Whether a key is watched, or is about to be.
    pub(crate) is_on: bool,
    /// Why a key could not be watched.
    broken: Option<String>,
}

impl Watched {
    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.conditions.len()
    }

    /// About how many bytes they take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn watches(&self, key: &Key) -> bool {
        self.conditions.iter().any(|(watched, _)| watched == key)
    }

    /// The conditions of the transaction.
    ///
    /// # Errors
    /// Why a key could not be watched.
    pub(crate) fn into_conditions(self) -> Result<Vec<(Key, Condition)>, String> {
        match self.broken {
            None => Ok(self.conditions),
            Some(why) => Err(why),
        }
    }
}

/// A `WATCH`: its keys, and why they could not be watched.
#[derive(Debug)]
pub(crate) struct Watching {
    keys: Vec<Key>,
    failure: Option<Failure>,
}

impl Watching {
    pub(crate) fn new(keys: Vec<Key>) -> Watching {
        Watching { keys, failure: None }
    }

    /// The versions were read, or could not be.
    pub(crate) fn take(&mut self, answer: Answer, watched: &mut Watched) {
        let failure = match answer {
            Answer::Versions(versions) if versions.len() == self.keys.len() => {
                for (key, version) in self.keys.iter().zip(versions) {
                    watched.bytes += key.0.len() + STEP_BYTES;
                    let condition = version.map_or(Condition::Absent, Condition::Version);
                    watched.conditions.push((key.compact(), condition));
                }
                return;
            }
            Answer::Failed(failure) => failure,
            _ => Failure::Unavailable("a server sent an answer that does not fit WATCH".to_string()),
        };
        watched.broken.get_or_insert_with(|| failure.to_string());
        self.failure = Some(failure);
    }

    /// Writes the reply.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match &self.failure {
            None => writer.simple("OK"),
            Some(failure) => writer.error(&Refusal::from(failure).0),
        }
    }
}
