//! Operations that name a chain of levels: one attempt after the other, each at the next level.
//!
//! ```text
//!   GET k AT "bounded(100ms) within 20ms or causal"
//!
//!   attempt 0, bounded(100ms)   ----------x         20 ms have passed: its answer will be dropped
//!   attempt 1, causal                     ----->    answered: given causal
//! ```
//!
//! The session knows each attempt as an operation with a tag of its own: the operation's tag, with the number of the attempt in the upper bits. An attempt
//! at a level fails if the session reports a failure after which the operation certainly did not happen. A read may also be tried again when
//! its outcome is not known. If the last attempt fails, the client is told what each level had said.
use std::{collections::BTreeMap, fmt::Write as _};
use turnbuckle_core::{Answer, Choice, Failure, FirstOf, Operation};

/// The number of an attempt is in the bits of a session's tag from this one on.
const ATTEMPT_BITS: u32 = 56;

/// The tag by which the session knows an attempt.
pub(crate) fn tag_of(operation: u64, attempt: usize) -> u64 {
    operation | (attempt as u64) << ATTEMPT_BITS
}

/// The operation, and the number of the attempt, of a session's tag.
pub(crate) fn split(tag: u64) -> (u64, usize) {
    (tag & ((1 << ATTEMPT_BITS) - 1), (tag >> ATTEMPT_BITS) as usize)
}

/// The operations of one door that name chains, by tag.
#[derive(Default)]
pub(crate) struct Attempts {
    open: BTreeMap<u64, Attempt>,
}

struct Attempt {
    first: Box<FirstOf>,
    /// The number of the attempt under way: the place of its level in the chain.
    number: usize,
    /// Why the attempts so far have failed.
    failures: String,
}

/// What becomes of an operation with a chain after an attempt was answered.
pub(crate) enum Next {
    /// The client gets this answer. Its receipt says that the chain was asked for.
    Answer(Answer, Box<FirstOf>),
    /// The next level is tried.
    TryAgain,
    /// Nothing: the answer belongs to an attempt that was given up.
    Nothing,
}

impl Attempts {
    /// An operation begins.
    pub fn begin(&mut self, tag: u64, first: Box<FirstOf>) {
        let attempt = Attempt {
            first,
            number: 0,
            failures: String::new(),
        };
        self.open.insert(tag, attempt);
    }

    /// The operation of the attempt under way, its level, and the time after which it is given up.
    pub fn current(&self, tag: u64) -> Option<(usize, Operation, Choice)> {
        let attempt = self.open.get(&tag)?;
        let choice = attempt.first.chain.choices()[attempt.number];
        Some((attempt.number, attempt.first.operation.clone(), choice))
    }

    /// What is to be said of an attempt whose time is over, by the session's tag. `None` if it is not under way any more.
    pub fn late(&self, tag: u64) -> Option<String> {
        let (tag, number) = split(tag);
        let attempt = self.open.get(&tag).filter(|attempt| attempt.number == number)?;
        let within = attempt.first.chain.choices()[number].within?;
        Some(format!("no answer within {within}"))
    }

    /// Whether the operation of this tag names a chain.
    pub fn has(&self, tag: u64) -> bool {
        self.open.contains_key(&tag)
    }

    /// An attempt was answered.
    pub fn answered(&mut self, tag: u64, number: usize, answer: Answer) -> Next {
        let Some(attempt) = self.open.get_mut(&tag).filter(|attempt| attempt.number == number) else {
            return Next::Nothing;
        };
        let is_write = matches!(attempt.first.operation, Operation::Put { .. });
        let Answer::Failed(failure) = answer else {
            let attempt = self.open.remove(&tag).expect("it was just there");
            return Next::Answer(answer, attempt.first);
        };
        let choices = attempt.first.chain.choices();
        let (level, why) = (choices[number].level.to_string(), failure.to_string());
        let separator = if attempt.failures.is_empty() { "" } else { "; " };
        // Most reasons begin with the level.
        let words = if why.starts_with(&level) {
            why
        } else {
            format!("{level}: {why}")
        };
        write!(attempt.failures, "{separator}{words}").expect("a String grows");
        let may_try = !is_write || failure.is_definite();
        if may_try && number + 1 < choices.len() {
            attempt.number += 1;
            return Next::TryAgain;
        }
        let attempt = self.open.remove(&tag).expect("it was just there");
        let failed = match failure {
            // Its text says by itself that the operation may have happened.
            Failure::Timeout(_) if is_write => failure,
            Failure::Unsupported(_) => Failure::Unsupported(attempt.failures),
            _ => Failure::Unavailable(attempt.failures),
        };
        Next::Answer(Answer::Failed(failed), attempt.first)
    }
}
