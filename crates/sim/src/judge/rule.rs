//! The rules of the judge, and what breaks them. They are explained in `judge.rs`.
use std::fmt;

/// A rule of the judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A receipt claimed something that is not true.
    TrueReceipts,
    /// A replica, or the answers to one session, showed an older state than before.
    NothingUndone,
    /// A replica showed a version that is older than a delete that a site had forgotten.
    ForgottenIsShown,
    /// A replica showed an older version than its site was said to have.
    WaitedFor,
    /// A value was read that was never written, or that has two versions.
    RealValues,
    /// An acknowledged write is not there in the end.
    NothingLost,
    /// The sites differ in the end, or do not come to rest.
    Convergence,
    /// An answer says of a condition the opposite of what it shows.
    Conditions,
    /// A transaction was carried out in part, a value that is computed is not exact, or something was carried out twice.
    Transactions,
    /// A value is shown after it expired, is gone before, or expires at another time than it was asked to.
    Expiry,
    /// A node does not do its work: it does not open, does not answer, or does not understand another node.
    Service,
}

impl Rule {
    /// The rule's name in a word, for counts.
    pub fn name(self) -> &'static str {
        match self {
            Rule::TrueReceipts => "receipt",
            Rule::NothingUndone => "undone",
            Rule::ForgottenIsShown => "forgotten",
            Rule::WaitedFor => "waited",
            Rule::RealValues => "unreal",
            Rule::NothingLost => "lost",
            Rule::Convergence => "diverged",
            Rule::Conditions => "condition",
            Rule::Transactions => "transaction",
            Rule::Expiry => "expiry",
            Rule::Service => "service",
        }
    }
}

/// An event that broke a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule that was broken.
    pub rule: Rule,
    /// What happened, as text.
    pub words: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
