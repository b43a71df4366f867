use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const EXISTS: Spec = Spec {
    name: "exists",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ALL,
    group: "generic",
    summary: "How many of the keys have a value: EXISTS key [key ...] [AT level].",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (level, end) = call.level_at_end(1)?;
    let level = call.read_level(level);
    let operation = if end == 2 {
        Operation::Get {
            key: call.key(1)?,
            level,
        }
    } else {
        Operation::ReadMany {
            keys: (1..end).map(|place| call.key(place)).collect::<Result<_, _>>()?,
            level,
        }
    };
    call.operate(Shape::Present, operation)
}
