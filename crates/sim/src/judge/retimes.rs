//! Changes of an expiry: `EXPIRE`, `PERSIST` and `GETEX`.
//!
//! A change is a read of the value that it finds, and a write of a version with that value. So two things are judged:
//!
//! - **What it found.** It must have found a version that is as new as a read must show, and a value that had not expired at the stamp of the change.
//! - **Whether it was made.** If it was made, it is one of those that were asked for: by the expiry of some version that it can have found. If it was not made,
//!   the answer shows why.
//!
//! A value shows which version wrote it. It does not show whether the expiry was changed since. So an answer that names no version may show the version that
//! wrote the value, or any that changed its expiry.
use super::{Excuse, Judge, Rule, Seen, Shown};
use crate::Record;
use turnbuckle_core::{Answer, Content, Expiry, Hlc, Micros, Operation, PutOptions, Rank, Receipt, Retimes};

impl Judge {
    /// A change of an expiry was answered.
    pub(super) fn retimed(&mut self, seen: Seen, record: &Record, answer: &Answer, receipt: &Receipt) {
        let Operation::Put {
            key,
            options: Some(options),
            ..
        } = &record.operation
        else {
            return;
        };
        self.close(seen.id, key);
        if let Answer::Unmet(unmet) = answer {
            return self.not_retimed(seen, options, unmet.has_value, unmet.value.as_ref(), receipt);
        }
        let Some(version) = receipt.rank() else {
            let words = format!("a change of the expiry of {key} was acknowledged without a version");
            return self.report(Rule::Service, words);
        };
        let at = seen.over;
        self.stamped(&seen, version);
        let copies = self.copies_of(key, receipt);
        let of_key = self.keys.entry(key.clone()).or_default();
        of_key.acknowledge(at, version, copies);
        self.check_retimed(&seen, options, version, receipt.until);
        self.note_until(key, version, receipt.until, at);
        self.know(key, version, true, Some(record.invoked), at);
        match answer {
            Answer::Replaced(Some(value)) => self.value_read(seen, value, Some(version)),
            _ => self.look(seen, Shown::Version(version)),
        }
    }

    /// The change was made. Some version that it can have found had an expiry of which such a change was asked for.
    fn check_retimed(&mut self, seen: &Seen, options: &PutOptions, version: Rank, until: Option<Micros>) {
        let asked = asked(options, version.id.at.wall());
        let is_right = until == asked && version.other_base().is_some();
        let of_key = self.keys.get(&seen.key);
        // What it found is as new as a read must show.
        let floor = of_key.and_then(|of_key| self.firm_floor(of_key, seen));
        let from = floor.map_or(Rank::default(), |floor| floor.version);
        let from = from.clamp(Rank::of(version.base), version);
        let mut found = of_key
            .into_iter()
            .flat_map(|of_key| of_key.until.range(from..version));
        let retimes = options.retimes.unwrap_or(Retimes::Any);
        let is_there = |until: &Micros| Hlc::from_wall(*until) > version.id.at;
        let may_find =
            found.any(|(_, before)| before.as_ref().is_none_or(is_there) && retimes.holds(*before, until));
        // The base, or a change of its expiry, may not be known yet.
        let is_known = of_key.is_some_and(|of_key| {
            of_key.open_retimes.is_empty() && of_key.until.contains_key(&Rank::of(version.base))
        });
        self.expiries.count((!is_known).then_some(Excuse::UnknownOutcome));
        if !is_right || is_known && !may_find {
            let words = format!(
                "operation {}: version {version} of {} was asked to change its expiry by {options:?}, and expires at {until:?}",
                seen.id.0, seen.key
            );
            self.report(Rule::Expiry, words);
        }
    }

    /// The change was not made: there is no value, or the change was none of those that were asked for.
    fn not_retimed(
        &mut self,
        seen: Seen,
        options: &PutOptions,
        has_value: bool,
        value: Option<&bytes::Bytes>,
        receipt: &Receipt,
    ) {
        let (key, version, at) = (seen.key.clone(), receipt.rank(), seen.over);
        if let Some(version) = version {
            self.note_until(&key, version, receipt.until, at);
        }
        match (has_value, version) {
            (true, None) => {
                let words = format!(
                    "operation {}: {key} has a value, and the answer does not name its version",
                    seen.id.0
                );
                self.report(Rule::Service, words);
            }
            (true, Some(version)) => {
                let retimes = options.retimes.unwrap_or(Retimes::Any);
                let compares = !matches!(retimes, Retimes::Any | Retimes::Expires | Retimes::NeverExpires);
                // The end of a span is counted from the stamp, which is not known.
                let is_certain =
                    !compares || receipt.until.is_none() || !matches!(options.expiry, Some(Expiry::After(_)));
                self.expiries
                    .count((!is_certain).then_some(Excuse::UnknownOutcome));
                if is_certain && retimes.holds(receipt.until, asked(options, at)) {
                    let words = format!(
                        "operation {}: the expiry of {key}, {:?}, was to be changed by {options:?}, and was not",
                        seen.id.0, receipt.until
                    );
                    self.report(Rule::Expiry, words);
                }
                match value {
                    Some(value) => {
                        self.check_not_expired(&seen, value, Some(version));
                        self.value_read(seen, value, Some(version));
                    }
                    None => {
                        self.know(&key, version, true, None, at);
                        self.look(seen, Shown::Version(version));
                    }
                }
            }
            (false, Some(version)) => self.nothing_read(seen, version, receipt.until),
            (false, None) => self.look(seen, Shown::Nothing { is_forgotten: true }),
        }
    }
}

/// When the value is to expire, if the change is stamped at this time.
fn asked(options: &PutOptions, at: Micros) -> Option<Micros> {
    let until = options.expiry?.deadline(at, None)?;
    Some(until.min(Content::LATEST))
}
