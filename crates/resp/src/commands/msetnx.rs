use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Condition, Operation, Step, Transaction};

pub(super) const MSETNX: Spec = Spec {
    name: "msetnx",
    arity: -3,
    flags: &["write", "denyoom"],
    keys: Keys::PAIRS,
    group: "string",
    summary: "Sets several keys of one partition as one transaction, if none of them has a value, and returns whether it did.",
    syntax: "key value [key value ...] [AT level]",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    if call.len().is_multiple_of(2) {
        return Err(Refusal::arity("msetnx"));
    }
    let (level, end) = call.level_at_end(2)?;
    let mut transaction = Transaction::default();
    for place in (1..end).step_by(2) {
        let key = call.key(place)?;
        transaction.conditions.push((key.clone(), Condition::Absent));
        let value = call.arguments.bytes(place + 1);
        transaction.steps.push(Step::Put(key, Some(value), None));
    }
    let transact = Operation::Transact {
        transaction: Box::new(transaction),
        level: None,
    };
    call.operate(Shape::CarriedOut, transact.wanting(call.write_level(level)))
}
