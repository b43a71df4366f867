//! Puts with options: what their answers say of the key, beside whether the put was carried out.
use super::{Judge, Needs, Rule, Seen, Shown};
use crate::{OperationId, Record};
use turnbuckle_core::{Answer, Change, Condition, Operation, Rank, Receipt};

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
                self.close(id, key);
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

    /// A put that wanted the key to have no value, and was carried out, has seen that it had none.
    pub(super) fn found_nothing(&mut self, seen: &Seen, record: &Record) {
        if condition_of(record) == Some(Condition::Absent) {
            // What it may have deleted itself is no reason.
            self.close(seen.id, &seen.key);
            self.look(seen.clone(), Shown::Nothing { is_forgotten: false });
        }
    }

    /// A put that wanted the key to have a value, and was carried out as this version, has seen a value. `needs`: what it had to see.
    pub(super) fn found_value(&mut self, seen: Seen, needs: Needs, record: &Record, version: Option<Rank>) {
        if let (Some(Condition::Present), Some(version)) = (condition_of(record), version) {
            self.judge(seen, needs, Shown::ValueBelow(version));
        }
    }

    /// Where one site decides, the receipt of a put that depends on the value before says so, and no other receipt does.
    pub(super) fn check_decided(&mut self, id: OperationId, record: &Record, receipt: &Receipt) {
        let decides = match &record.operation {
            Operation::Put { value, options, .. } => {
                Change::new(value.clone(), options.clone()).decides() && self.decides_at_site
            }
            _ => false,
        };
        let is_failure = matches!(record.answer(), Some(Answer::Failed(_)));
        if decides != receipt.decided_at_site && !is_failure {
            let words = format!(
                "operation {}: the receipt of '{}' says that {}",
                id.0,
                record.words(),
                match decides {
                    true => "nothing was decided at one site",
                    false => "it was decided at one site",
                }
            );
            self.report(Rule::TrueReceipts, words);
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
        let Operation::Put { key, .. } = &record.operation else {
            return;
        };
        let condition = condition_of(record);
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

/// The condition of a put.
pub(super) fn condition_of(record: &Record) -> Option<Condition> {
    match &record.operation {
        Operation::Put { options, .. } => options.as_ref()?.condition,
        _ => None,
    }
}
