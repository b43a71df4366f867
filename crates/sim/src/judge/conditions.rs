//! Puts with options: what their answers say of the key, beside whether the put was carried out.
use super::{Judge, Rule, Seen, Shown};
use crate::{OperationId, Record};
use turnbuckle_core::{Answer, Condition, Operation, Rank, Receipt};

impl Judge {
    /// A put was told the value before it. Or it was told that its condition did not hold, and what is there.
    pub(super) fn told(&mut self, seen: Seen, record: &Record, answer: &Answer, receipt: &Receipt) {
        let Operation::Put { key, value, .. } = &record.operation else {
            return;
        };
        let (id, at) = (seen.id, seen.over);
        if record.operation.retimes().is_some() {
            return self.retimed(seen, record, answer, receipt);
        }
        match answer {
            Answer::Replaced(before) => {
                self.check_condition(id, record, true, before.is_some(), None);
                match before {
                    Some(before) => self.value_read(seen, before, None),
                    None => self.look(seen, Shown::Nothing { is_forgotten: false }),
                }
                self.written(id, record, key, value.as_ref(), before.is_some(), receipt, at);
            }
            Answer::Unmet(unmet) => {
                let has_value = unmet.has_value;
                self.refused(id, key, value.as_ref());
                // A value that has expired is no version of which a condition may be.
                let version = receipt.rank().filter(|_| has_value || receipt.until.is_none());
                self.check_condition(id, record, false, has_value, version);
                if let Some(version) = receipt.rank() {
                    self.note_until(key, version, receipt.until, at);
                }
                match (&unmet.value, receipt.rank()) {
                    (None, Some(version)) if !has_value && receipt.until.is_some() => {
                        self.nothing_read(seen, version, receipt.until);
                    }
                    (Some(there), version) => self.value_read(seen, there, version),
                    (None, Some(version)) => {
                        self.know(key, version, has_value, None, at);
                        self.look(seen, Shown::Version(version));
                    }
                    (None, None) if has_value => {
                        let words = format!(
                            "operation {}: {key} has a value, and the answer does not name its version",
                            id.0
                        );
                        self.report(Rule::Service, words);
                    }
                    (None, None) => self.look(seen, Shown::Nothing { is_forgotten: true }),
                }
            }
            _ => {}
        }
    }

    /// Checks that an answer's statement about a condition fits what the answer says of the key.
    pub(super) fn check_condition(
        &mut self,
        id: OperationId,
        record: &Record,
        held: bool,
        has_value: bool,
        newest: Option<Rank>,
    ) {
        let Operation::Put { key, options, .. } = &record.operation else {
            return;
        };
        let condition = options.as_ref().and_then(|options| options.condition);
        let fits = match condition {
            None => held,
            // The answer to a put that was carried out does not name the version before it.
            Some(Condition::Version(_)) if held => true,
            Some(condition) => condition.holds(has_value, newest.map(|newest| newest.id)) == held,
        };
        if !fits {
            let words = format!(
                "operation {}: '{}' was answered as if its condition {}, and {key} had {}",
                id.0,
                record.words(),
                if held { "held" } else { "did not hold" },
                match has_value {
                    true => "a value",
                    false => "none",
                },
            );
            self.report(Rule::Conditions, words);
        }
    }
}
