//! Operations that name a chain of levels: one attempt after the other, each at the next level.
//!
//! ```text
//!   GET k AT "bounded(100ms) within 20ms or causal"
//!
//!   attempt 0, bounded(100ms)   ----------x         20 ms have passed: it is given up
//!   attempt 1, causal                     ----->    answered: given causal
//! ```
//!
//! The session knows each attempt as an operation with a tag of its own. An attempt fails if the session reports a failure after which the operation
//! certainly did not happen. A read may also be tried again when its outcome is not known. If the last attempt fails, the client is told what each level
//! had said.
//!
//! A door has at most one such operation under way: later operations of the client wait for it.
use std::fmt::Write as _;
use turnbuckle_core::{Answer, Choice, Failure, FirstOf, Operation};

/// The tags of attempts have this bit. Those of clients' operations do not.
const ATTEMPT: u64 = 1 << 63;

/// Whether a session's tag is that of an attempt.
pub(crate) fn is_attempt(tag: u64) -> bool {
    tag & ATTEMPT != 0
}

/// The operation of one door that names a chain, if one is under way.
#[derive(Default)]
pub(crate) struct Attempts {
    under_way: Option<UnderWay>,
    /// The number of attempts so far.
    count: u64,
}

struct UnderWay {
    /// The operation's tag.
    tag: u64,
    first: Box<FirstOf>,
    /// The number of the attempt: the place of its level in the chain.
    number: usize,
    /// The tag by which the session knows the attempt.
    session_tag: u64,
    /// The questions that the session has asked for the attempt.
    asks: Vec<u64>,
    /// Why the attempts so far have failed.
    failures: String,
}

/// What becomes of an operation with a chain after an attempt was answered.
pub(crate) enum Next {
    /// The client gets this answer to the operation of this tag. Its receipt says that the chain was asked for.
    Answer(u64, Answer, Box<FirstOf>),
    /// The next level is tried.
    TryAgain,
    /// Nothing: the answer belongs to an attempt that was given up.
    Nothing,
}

impl Attempts {
    /// An operation begins.
    pub fn begin(&mut self, tag: u64, first: Box<FirstOf>) {
        self.under_way = Some(UnderWay {
            tag,
            first,
            number: 0,
            session_tag: 0,
            asks: Vec::new(),
            failures: String::new(),
        });
    }

    /// An attempt begins. Returns the tag by which the session is to know it, the operation, and its level.
    pub fn next(&mut self) -> Option<(u64, Operation, Choice)> {
        let attempt = self.under_way.as_mut()?;
        self.count += 1;
        attempt.session_tag = ATTEMPT | self.count;
        attempt.asks.clear();
        let choice = attempt.first.chain.choices()[attempt.number];
        Some((attempt.session_tag, attempt.first.operation.clone(), choice))
    }

    /// The tag of the attempt under way.
    pub fn session_tag(&self) -> Option<u64> {
        self.under_way.as_ref().map(|attempt| attempt.session_tag)
    }

    /// The session has asked a question for an attempt.
    pub fn asked(&mut self, session_tag: u64, ask: u64) {
        if let Some(attempt) = self.of(session_tag) {
            attempt.asks.push(ask);
        }
    }

    /// The time of an attempt is over. Returns its questions, which nobody waits for any more, and what is to be said of it. `None` if it is not under way.
    pub fn late(&mut self, session_tag: u64) -> Option<(Vec<u64>, String)> {
        let attempt = self.of(session_tag)?;
        let within = attempt.first.chain.choices()[attempt.number].within?;
        let asks = std::mem::take(&mut attempt.asks);
        Some((asks, format!("no answer within {within}")))
    }

    fn of(&mut self, session_tag: u64) -> Option<&mut UnderWay> {
        let attempt = self.under_way.as_mut();
        attempt.filter(|attempt| attempt.session_tag == session_tag)
    }

    /// An attempt was answered.
    pub fn answered(&mut self, session_tag: u64, answer: Answer) -> Next {
        let Some(attempt) = self.of(session_tag) else {
            return Next::Nothing;
        };
        let is_write = attempt.first.operation.is_write();
        let answer = match answer {
            Answer::Failed(failure) => {
                let choices = attempt.first.chain.choices();
                let (level, why) = (choices[attempt.number].level.to_string(), failure.to_string());
                let separator = if attempt.failures.is_empty() { "" } else { "; " };
                // Most reasons begin with the level.
                let words = if why.starts_with(&level) {
                    why
                } else {
                    format!("{level}: {why}")
                };
                write!(attempt.failures, "{separator}{words}").expect("a String grows");
                let may_try = !is_write || failure.is_definite();
                if may_try && attempt.number + 1 < choices.len() {
                    attempt.number += 1;
                    return Next::TryAgain;
                }
                let failures = std::mem::take(&mut attempt.failures);
                Answer::Failed(match failure {
                    // Its text says by itself that the operation may have happened.
                    Failure::Timeout(_) if is_write => failure,
                    Failure::Unsupported(_) => Failure::Unsupported(failures),
                    _ => Failure::Unavailable(failures),
                })
            }
            answer => answer,
        };
        let done = self.under_way.take().expect("it was just there");
        Next::Answer(done.tag, answer, done.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::{Key, Wanted};

    fn begun(operation: Operation, chain: &str) -> Attempts {
        let wanted: Wanted = chain.parse().expect("it is a chain");
        let Operation::First(first) = operation.wanting(wanted) else {
            panic!("it names several levels");
        };
        let mut attempts = Attempts::default();
        // As the tag of an operation of the last connection that a node may have.
        attempts.begin((1 << 62) | 7, first);
        attempts
    }

    fn failed(why: &str) -> Answer {
        Answer::Failed(Failure::Unavailable(why.into()))
    }

    #[test]
    fn a_read_goes_on_after_any_failure_and_late_answers_change_nothing() {
        let mut attempts = begun(Operation::get(Key::from("k")), "quorum within 20ms or all or one");
        let (first, _, choice) = attempts.next().expect("the first");
        assert!(is_attempt(first) && choice.to_string() == "quorum within 20ms");
        attempts.asked(first, 3);
        let late = attempts.late(first).expect("it is under way");
        assert_eq!(late, (vec![3], "no answer within 20ms".to_string()));
        assert!(matches!(
            attempts.answered(first, failed(&late.1)),
            Next::TryAgain
        ));
        let (second, ..) = attempts.next().expect("the second");
        assert!(attempts.late(first).is_none());
        assert!(matches!(
            attempts.answered(first, Answer::Value(None)),
            Next::Nothing
        ));
        let unknown = Answer::Failed(Failure::Timeout("the link broke".into()));
        assert!(matches!(attempts.answered(second, unknown), Next::TryAgain));
        let (third, ..) = attempts.next().expect("the third");
        let Next::Answer(tag, Answer::Failed(why), _) = attempts.answered(third, failed("one is away"))
        else {
            panic!("there is no fourth");
        };
        assert_eq!(tag, (1 << 62) | 7);
        let said = "quorum: no answer within 20ms; all: the link broke; the operation may have happened; one is away";
        assert_eq!(why, Failure::Unavailable(said.into()));
        assert!(attempts.session_tag().is_none());
    }

    #[test]
    fn a_write_goes_on_only_if_it_certainly_was_not_carried_out() {
        let put = || Operation::put(Key::from("k"), bytes::Bytes::from_static(b"v"));
        let mut attempts = begun(put(), "all or one");
        let (first, ..) = attempts.next().expect("the first");
        assert!(matches!(attempts.answered(first, failed("no")), Next::TryAgain));
        let mut attempts = begun(put(), "all or one");
        let (first, ..) = attempts.next().expect("the first");
        let unknown = Failure::Timeout("the link broke".into());
        let Next::Answer(_, answer, _) = attempts.answered(first, Answer::Failed(unknown.clone())) else {
            panic!("it may have been carried out");
        };
        assert_eq!(answer, Answer::Failed(unknown));
    }
}
