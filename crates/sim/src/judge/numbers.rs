//! What must be true of numbers (`number.rs`).
//!
//! 1. **Values are real.** A value has no addition twice, and none that was never asked for or was refused. The answer to an addition has it.
//! 2. **No addition is lost.** An answer has every addition that it must show, by the floors of the other rules: what its session (or the replica) has shown before, and what its receipt
//!    claims. In the end every site has all that were acknowledged.
//! 3. **What was seen is reset.** If a value was written at a replica, it has no addition that this replica had acknowledged before the write was asked for.
//!
//! # What is missing with reason
//!
//! An addition may be missing if a write, a delete or an expiry may have reset it: it was asked for before the write was answered, or before the value expired. Keys that nobody writes,
//! deletes or expires have no such excuse. A power loss excuses what its replica had acknowledged since the last sync, also if other replicas had it: the replica then goes on from a sum
//! without it. And a write at another site may have seen that, and subtracts it. So what is wrong after a power loss is counted, and not judged. A lost directory excuses only what no other replica has shown.
use super::{Excuse, Judge, Loss, Rule, Seen, Witness};
use crate::number::{self, Says};
use crate::{OperationId, Record};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{Answer, Compute, Computed, Expiry, Key, Micros, Operation, Receipt, ServerId};

/// A number.
#[derive(Debug, Default)]
pub(super) struct Number {
    /// By their bits' numbers.
    additions: BTreeMap<u32, Addition>,
    resets: BTreeMap<OperationId, Reset>,
    /// What was shown to each witness: bits that only become more.
    shown: BTreeMap<Witness, Vec<(u64, u64)>>,
    /// What each replica has shown and has not lost since.
    has: BTreeMap<ServerId, u64>,
}

#[derive(Debug)]
struct Addition {
    begun: Micros,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    There { at: Micros, server: ServerId },
    Never,
}

/// A write, a delete, or a change of when the value expires.
#[derive(Debug)]
struct Reset {
    begun: Micros,
    answered: Option<(Micros, ServerId)>,
    /// The number of the value, if one is written.
    written: Option<u64>,
    /// Whether it resets what it sees: a change of an expiry alone does not.
    resets_seen: bool,
    /// The latest time at which the value may expire because of it.
    until: Option<Micros>,
    /// After which time the value expires, counted from a stamp that is not known yet.
    span: Option<Micros>,
}

fn power_of_two(compute: &Compute) -> Option<u32> {
    let more = match compute {
        Compute::Add(more) => u64::try_from(*more).ok()?,
        Compute::AddDecimal(more) => more.to_string().parse().ok()?,
        Compute::Append(_) | Compute::Overwrite(..) | Compute::Edit(_) => return None,
    };
    more.is_power_of_two().then(|| more.trailing_zeros())
}

fn addition(operation: &Operation) -> Option<u32> {
    match operation {
        Operation::Put {
            options: Some(options),
            ..
        } => power_of_two(options.computes.as_ref()?),
        _ => None,
    }
}

impl Number {
    /// What was shown by the first `before` answers.
    fn shown_before(&self, witness: Witness, before: u64) -> u64 {
        let Some(shown) = self.shown.get(&witness) else {
            return 0;
        };
        let behind = shown.partition_point(|&(number, _)| number <= before);
        behind.checked_sub(1).map_or(0, |last| shown[last].1)
    }

    fn raise(&mut self, witness: Witness, number: u64, additions: u64) {
        let shown = self.shown.entry(witness).or_default();
        let before = shown.last().map_or(0, |&(_, before)| before);
        shown.push((number, before | additions));
    }

    /// The additions that were acknowledged up to a time.
    fn acknowledged(&self, until: Micros) -> u64 {
        let bit = |(number, addition): (&u32, &Addition)| match addition.state {
            State::There { at, .. } if at <= until => 1 << number,
            _ => 0,
        };
        self.additions.iter().map(bit).sum()
    }

    /// Whether a write, a delete or an expiry may have reset an addition.
    fn may_be_reset(&self, begun: Micros, clocks_lie: bool) -> bool {
        self.resets.values().any(|reset| {
            let sees = reset.answered.is_none_or(|(answered, _)| begun <= answered);
            // An expiry that has passed resets what it sees.
            let expires = reset
                .until
                .is_some_and(|until| clocks_lie || begun <= until || sees);
            reset.resets_seen && sees || expires
        })
    }
}

/// The sums that were found wrong.
type Found = Vec<(Rule, String)>;

impl Judge {
    /// Takes note of an operation on a number. Returns whether it is one that writes.
    pub(super) fn asked_of_number(&mut self, id: OperationId, operation: &Operation, now: Micros) -> bool {
        let Operation::Put {
            key, value, options, ..
        } = operation
        else {
            return false;
        };
        if !number::is_one(key) {
            return false;
        }
        self.computes(key);
        let number = self.numbers.entry(key.clone()).or_default();
        if let Some(bit) = addition(operation) {
            let state = State::Open;
            number.additions.insert(bit, Addition { begun: now, state });
            return true;
        }
        let expiry = options.as_ref().and_then(|options| options.expiry);
        let bound = self.clock_bound + self.clock_bound;
        let reset = Reset {
            begun: now,
            answered: None,
            written: value
                .as_ref()
                .and_then(|value| number::read(value))
                .map(|says| says.written),
            resets_seen: operation.retimes().is_none(),
            until: match expiry {
                Some(Expiry::At(until)) => Some(until + bound),
                // It is counted from a stamp that is not known yet.
                Some(Expiry::After(_)) => Some(Micros::MAX),
                Some(Expiry::Kept) | None => None,
            },
            span: match expiry {
                Some(Expiry::After(span)) => Some(span),
                _ => None,
            },
        };
        number.resets.insert(id, reset);
        true
    }

    /// Judges the answer to an operation on a number. Returns whether it is one on a number alone.
    pub(super) fn answered_of_number(&mut self, id: OperationId, record: &Record) -> bool {
        let Some((at, (answer, receipt))) = &record.returned else {
            return false;
        };
        match &record.operation {
            Operation::Put { key, .. } if number::is_one(key) => {
                self.number_written(id, record, key, answer, receipt.as_deref(), *at);
                true
            }
            Operation::Get { key, .. } if number::is_one(key) => {
                if let (Answer::Value(value), Some(receipt)) = (answer, receipt) {
                    let seen = self.seen(id, record, 0, key, receipt.server, receipt, *at);
                    self.number_read(&seen, value.as_ref(), None);
                }
                true
            }
            _ => false,
        }
    }

    fn number_written(
        &mut self,
        id: OperationId,
        record: &Record,
        key: &Key,
        answer: &Answer,
        receipt: Option<&Receipt>,
        at: Micros,
    ) {
        let is_never = match answer {
            Answer::Failed(failure) => failure.is_definite(),
            Answer::NotComputed(_) | Answer::Unmet(_) => true,
            _ => false,
        };
        let number = self.numbers.entry(key.clone()).or_default();
        let bit = addition(&record.operation);
        if is_never {
            number.resets.remove(&id);
            if let Some(addition) = bit.and_then(|bit| number.additions.get_mut(&bit)) {
                addition.state = State::Never;
            }
        }
        let Some(receipt) = receipt.filter(|_| !is_never) else {
            return;
        };
        let server = receipt.server;
        if let Some(reset) = number.resets.get_mut(&id) {
            reset.answered = Some((at, server));
            // A hybrid clock may be ahead of its wall clock after a restart, and the receipt tells by which stamp the span was counted.
            if reset.span.take().is_some() {
                reset.until = receipt
                    .until
                    .map(|until| until + self.clock_bound + self.clock_bound);
            }
        }
        if let Some(addition) = bit.and_then(|bit| number.additions.get_mut(&bit)) {
            addition.state = State::There { at, server };
        }
        match answer {
            Answer::Computed(Computed::Number(value)) => {
                let seen = Seen {
                    // What it claims is about the write.
                    staleness: None,
                    ..self.seen(id, record, 0, key, server, receipt, at)
                };
                self.number_read(&seen, Some(value), bit);
            }
            Answer::Written { .. } | Answer::Replaced(_) => {}
            other => self.report(
                Rule::Service,
                format!("operation {} on the number {key} is answered {other:?}", id.0),
            ),
        }
    }

    /// A number was read. `own` is the addition that was made, if one was.
    pub(super) fn number_read(&mut self, seen: &Seen, value: Option<&Bytes>, own: Option<u32>) {
        let Some(says) = value.map_or(Some(Says::default()), |value| number::read(value)) else {
            let words = format!(
                "operation {}: {value:?} is no sum of additions to {}",
                seen.id.0, seen.key
            );
            return self.report(Rule::RealValues, words);
        };
        let Some(number) = self.numbers.get(&seen.key) else {
            if says != Says::default() {
                let words = format!("operation {}: {} was never written", seen.id.0, seen.key);
                self.report(Rule::RealValues, words);
            }
            return;
        };
        let mut found = Found::new();
        for bit in number::numbers(says.additions) {
            match number.additions.get(&bit).map(|addition| addition.state) {
                None => found.push((Rule::RealValues, format!("addition {bit} was never asked for"))),
                Some(State::Never) => {
                    found.push((Rule::RealValues, format!("addition {bit} was refused")));
                }
                Some(_) => {}
            }
        }
        if own.is_some_and(|own| says.additions >> own & 1 == 0) {
            found.push((Rule::RealValues, "the sum is without what was added".to_string()));
        }
        self.check_what_is_reset(number, says, &mut found);
        // Another replica may have answered: the answer does not say which.
        let is_of_replica = matches!(seen.witness, Witness::Replica(_)) && !seen.may_be_another;
        let floor = match is_of_replica || !seen.is_careless {
            true => number.shown_before(seen.witness, seen.before),
            false => 0,
        };
        let mut excuse = self.check_what_is_missing(number, says, floor, Rule::NothingUndone, &mut found);
        let staleness = seen.staleness.filter(|_| !seen.may_be_another);
        let claims = staleness.filter(|_| !(seen.rests_on_clocks && self.clocks_lie));
        let claimed = claims.map_or(0, |staleness| number.acknowledged(seen.invoked.since(staleness)));
        let claim = self.check_what_is_missing(number, says, claimed, Rule::TrueReceipts, &mut found);
        if seen.may_be_another && !self.has_sessions {
            excuse = Some(Excuse::NodeAway);
        }
        let is_from_before_loss = self.is_from_before_loss(seen);
        if seen.is_answer {
            self.answers.count(excuse);
        }
        if staleness.is_some() {
            let excuse = Some(Excuse::Clock).filter(|_| claims.is_none());
            self.claims.count(excuse.or(claim));
        }
        if !found.is_empty() && self.lost_additions {
            // A write may have seen additions that were lost since: it subtracts them.
            return self.answers.count(Some(Excuse::PowerLoss));
        }
        if !found.is_empty() {
            for (rule, words) in found {
                let words = format!(
                    "operation {}: replica {} shows {} as {says:?}: {words}",
                    seen.id.0, seen.server, seen.key
                );
                self.report(rule, words);
            }
            return;
        }
        let at = self.number;
        let number = self.numbers.entry(seen.key.clone()).or_default();
        if !is_from_before_loss && !seen.may_be_another {
            *number.has.entry(seen.server).or_default() |= says.additions;
        }
        let is_replica = matches!(seen.witness, Witness::Replica(_));
        if !(seen.is_careless || is_replica && (is_from_before_loss || seen.may_be_another)) {
            number.raise(seen.witness, at, says.additions);
        }
    }

    fn check_what_is_reset(&self, number: &Number, says: Says, found: &mut Found) {
        let mut written = number
            .resets
            .values()
            .filter(|reset| reset.written == Some(says.written));
        let write = match (says.written, written.next()) {
            (0, _) => return,
            (_, None) => return found.push((Rule::RealValues, "this value was never written".to_string())),
            (_, Some(write)) => write,
        };
        let Some((_, server)) = write
            .answered
            .filter(|(_, server)| !self.losses.contains_key(server))
        else {
            return;
        };
        for bit in number::numbers(says.additions) {
            let state = number.additions.get(&bit).map(|addition| addition.state);
            if let Some(State::There { at, server: by }) = state
                && by == server
                && at < write.begun
            {
                found.push((
                    Rule::Transactions,
                    format!(
                        "addition {bit} was acknowledged by {server} before it was asked to write the value"
                    ),
                ));
            }
        }
    }

    /// Of these additions, none may be missing. Returns why some may be, if that is so.
    fn check_what_is_missing(
        &self,
        number: &Number,
        says: Says,
        needed: u64,
        rule: Rule,
        found: &mut Found,
    ) -> Option<Excuse> {
        let mut excuse = None;
        for bit in number::numbers(needed & !says.additions) {
            let Some(addition) = number.additions.get(&bit) else {
                continue;
            };
            if number.may_be_reset(addition.begun, self.clocks_lie) {
                continue;
            }
            match self.is_addition_lost(number, bit, addition) {
                true => excuse = Some(Excuse::PowerLoss),
                false => found.push((rule, format!("addition {bit} is missing"))),
            }
        }
        excuse
    }

    fn is_addition_lost(&self, number: &Number, bit: u32, addition: &Addition) -> bool {
        let State::There { at, server } = addition.state else {
            // Nobody knows at which replica it was made.
            return !self.losses.is_empty();
        };
        let is_elsewhere = number
            .has
            .iter()
            .any(|(&other, has)| other != server && has >> bit & 1 == 1);
        let takes = |loss: &&Loss| at > loss.kept_until && addition.begun <= loss.at;
        let losses = self.losses.get(&server).into_iter().flatten();
        losses
            .filter(takes)
            .any(|loss| !loss.is_directory || !is_elsewhere)
    }

    /// A replica lost power, or its directory.
    pub(super) fn excuse_numbers(&mut self, server: ServerId, loss: Loss) {
        let is_lost = |addition: &Addition| match addition.state {
            State::There { at, server: by } => by == server && at > loss.kept_until,
            // It may have been made at this replica.
            State::Open => true,
            State::Never => false,
        };
        let mut all = self.numbers.values().flat_map(|number| number.additions.values());
        self.lost_additions |= !loss.is_directory && all.any(is_lost);
        for number in self.numbers.values_mut() {
            number.has.remove(&server);
            number.shown.remove(&Witness::Replica(server));
        }
    }

    /// In the end: the value of a number at a site.
    pub(crate) fn ends_with_number(&mut self, site: &str, key: &Key, value: Option<&Bytes>) {
        let Some(number) = self.numbers.get(key) else {
            return;
        };
        let says = value.map_or(Some(Says::default()), |value| number::read(value));
        let mut found = Found::new();
        let needed = number.acknowledged(Micros::MAX);
        self.check_what_is_missing(
            number,
            says.unwrap_or_default(),
            needed,
            Rule::NothingLost,
            &mut found,
        );
        if !found.is_empty() && self.lost_additions {
            return self.answers.count(Some(Excuse::PowerLoss));
        }
        for (rule, words) in found {
            self.report(
                rule,
                format!("in the end site {site} has {key} as {says:?}: {words}"),
            );
        }
    }

    /// When the last of the numbers' values expires, of those that expire within this time.
    pub(super) fn numbers_expire_until(&self, now: Micros, within: Micros) -> Option<Micros> {
        let resets = self.numbers.values().flat_map(|number| number.resets.values());
        let times = resets.filter_map(|reset| match reset.span {
            // It was not answered, and may be carried out now.
            Some(span) => Some(now + span),
            None => reset.until,
        });
        times.filter(|until| *until <= now + within).max()
    }

    /// Whether the value of a key, if it is a number, may expire.
    pub(super) fn number_may_expire(&self, key: &Key) -> bool {
        let number = self.numbers.get(key);
        number.is_some_and(|number| number.resets.values().any(|reset| reset.until.is_some()))
    }
}
