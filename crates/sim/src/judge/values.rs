//! Values: which were written, which version each has, and what becomes of reads that show a value whose version is not known yet.
use super::key::Shown;
use super::{Judge, Pending, Rule, Seen};
use crate::OperationId;
use bytes::Bytes;
use turnbuckle_core::{Key, Micros, Rank};

/// A value that was written, and when.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub value: Value,
    pub begun: Micros,
    /// The first operation that asked for the write, and its client.
    pub by: (OperationId, usize),
}

#[derive(Clone, Copy)]
pub(super) enum Value {
    /// Written once. The version, if it is known.
    Once(Option<Rank>),
    /// Written more than once: the value does not tell its version.
    Often,
    /// Its only writer was told that it was certainly not written.
    Refused,
}

impl Judge {
    /// A client was told that its write did not happen, and never will.
    pub(super) fn refused(&mut self, id: OperationId, key: &Key, value: Option<&Bytes>) {
        self.close(id, key);
        let Some(value) = value else {
            return;
        };
        let Some(known) = self.values.get_mut(&(key.clone(), value.clone())) else {
            return;
        };
        match known.value {
            Value::Once(None) => {
                known.value = Value::Refused;
                self.keys.entry(key.clone()).or_default().unknown_values -= 1;
            }
            Value::Once(Some(version)) => {
                let words = format!(
                    "operation {}: its write of {key} was refused, and is there as {version}",
                    id.0
                );
                self.report(Rule::RealValues, words);
            }
            Value::Often | Value::Refused => {}
        }
    }

    /// A value was read. A receipt may have named its version.
    pub(super) fn value_read(&mut self, seen: Seen, value: &Bytes, version: Option<Rank>) {
        if let Some(version) = version {
            self.learn(&seen.key, value, version, seen.over);
        }
        self.check_real(&seen, value);
        let base = match self.values.get(&(seen.key.clone(), value.clone())) {
            Some(Written {
                value: Value::Once(known),
                ..
            }) => *known,
            _ => version,
        };
        let shown = match (version, base) {
            (Some(version), Some(base)) if version.base != base.base => Some(Shown::Version(base)),
            (Some(version), _) => Some(Shown::Version(version)),
            (None, base) => base.map(Shown::ValueOf),
        };
        match shown {
            Some(shown) => self.look(seen, shown),
            // Its write may be acknowledged later, or be read with a receipt.
            None => {
                let needs = self.needs(&seen);
                let waiting = self.pending.entry((seen.key.clone(), value.clone()));
                waiting.or_default().push(Pending { seen, needs });
            }
        }
    }

    /// A value that is read was written, and not after the read.
    pub(super) fn check_real(&mut self, seen: &Seen, value: &Bytes) {
        let (id, key) = (seen.id.0, &seen.key);
        if let Some(Written {
            value: Value::Once(_),
            by: (writer, client),
            ..
        }) = self.values.get(&(key.clone(), value.clone()))
            && *client == seen.client
            && *writer > seen.id
        {
            let words = format!(
                "operation {id} of client {client} read a value of {key} that the client asked to write after it, by operation {}",
                writer.0
            );
            self.report(Rule::RealValues, words);
        }
        let wrong = match self
            .values
            .get(&(key.clone(), value.clone()))
            .map(|written| written.value)
        {
            Some(Value::Once(_) | Value::Often) => return,
            Some(Value::Refused) => "whose write was refused",
            None => "that no client wrote",
        };
        let words = format!("operation {id} read a value of {key} {wrong}: {value:?}");
        self.report(Rule::RealValues, words);
    }

    /// This version has this value. The value tells the version that wrote it: those that have changed its expiry since have the same value.
    pub(super) fn learn(&mut self, key: &Key, value: &Bytes, version: Rank, now: Micros) {
        let place = (key.clone(), value.clone());
        let base = Rank::of(version.base);
        if base != version {
            self.know(key, version, true, None, now);
        }
        let mut is_new = false;
        let begun = match self.values.get_mut(&place) {
            Some(Written {
                value: Value::Once(known),
                begun,
                ..
            }) => {
                is_new = known.is_none();
                let first = *known.get_or_insert(base);
                let begun = *begun;
                if first != base {
                    let text = format!("a value of {key} has two versions: {first} and {base}");
                    self.report(Rule::RealValues, text);
                }
                Some(begun)
            }
            _ => None,
        };
        self.know(key, base, true, begun, now);
        self.learn_past(key, Some(value), base);
        if is_new {
            let of_key = self.keys.entry(key.clone()).or_default();
            of_key.unknown_values = of_key.unknown_values.saturating_sub(1);
            of_key.contents.insert(base, value.clone());
            for waiting in self.pending.remove(&place).unwrap_or_default() {
                self.judge(waiting.seen, waiting.needs, Shown::ValueOf(base));
            }
        }
    }

    pub(super) fn know(
        &mut self,
        key: &Key,
        version: Rank,
        is_value: bool,
        begun: Option<Micros>,
        now: Micros,
    ) {
        let of_key = self.keys.entry(key.clone()).or_default();
        of_key.know(version, is_value, begun, now);
        let is_both = of_key.values.contains_key(&version) && of_key.deletes.contains_key(&version);
        let expires = of_key.until.get(&version).is_some_and(Option::is_some);
        if is_both && !expires {
            let words = format!("version {version} of {key} is shown as a value, and as a delete");
            self.report(Rule::RealValues, words);
        }
    }

    /// The version that wrote a value, if it is known.
    pub(crate) fn version_of(&self, key: &Key, value: &Bytes) -> Option<Rank> {
        match self.values.get(&(key.clone(), value.clone()))?.value {
            Value::Once(version) => version,
            Value::Often | Value::Refused => None,
        }
    }

    /// The value of a version, if it is known.
    pub(crate) fn value_of(&self, key: &Key, version: Rank) -> Option<&Bytes> {
        let base = Rank::of(version.base);
        let value = self.keys.get(key)?.contents.get(&base)?;
        (self.version_of(key, value) == Some(base)).then_some(value)
    }

    /// The delete that a read of nothing has seen, if only one is possible.
    pub(crate) fn delete_seen(&self, id: OperationId, place: u32, key: &Key, over: Micros) -> Option<Rank> {
        let read = *self.nothings.get(&(id, place))?;
        self.keys.get(key)?.only_delete(read, over)
    }
}
