use super::{Concerns, PLAIN, Spec};
use crate::{call::Call, number::parse_integer, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Micros, Operation};

pub(super) const WAIT: Spec = Spec {
    name: "wait",
    arity: 3,
    flags: &["blocking"],
    group: "generic",
    syntax: "sites timeout",
    summary: "Waits until other sites have, durably, what this connection has seen and written in the keyspace. Returns how many do.",
    waits: true,
    run,
    concerns: Concerns::Keyspace,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let number = |place| parse_integer(call.arguments.at(place)).filter(|number| *number >= 0);
    let sites = number(1).ok_or_else(|| {
        Refusal::err(format_args!(
            "'{}' is no number of sites; expected a number from 0",
            call.text(1)
        ))
    })?;
    let timeout = number(2).ok_or_else(|| {
        Refusal::err(format_args!(
            "'{}' is no timeout; expected a number of milliseconds from 0, which means no timeout",
            call.text(2)
        ))
    })?;
    let timeout = (timeout > 0).then(|| Micros::from_millis((timeout as u64).min(MAX_MILLIS)));
    let sites = u16::try_from(sites).unwrap_or(u16::MAX);
    call.operate(Shape::Count, Operation::Wait { sites, timeout })
}

/// A longer timeout is taken for this one: a year.
const MAX_MILLIS: u64 = 366 * 24 * 60 * 60 * 1000;
