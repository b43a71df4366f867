//! Helpers for tests of sessions.
use turnbuckle_core::{Micros, Now, Reach, ServerId, Session, SessionContext, SessionStep};

/// The servers of a session that knows by itself which ones to ask. Nothing is asked of this.
struct Unasked;

impl Reach for Unasked {
    fn nearest(&self, _: u16) -> ServerId {
        unreachable!("these sessions choose their servers themselves")
    }

    fn nearest_elsewhere(&self, _: u16) -> Option<ServerId> {
        unreachable!("every server is reached")
    }

    fn is_reached(&self, _: ServerId) -> bool {
        true
    }

    fn round_trip(&self, _: ServerId) -> Option<Micros> {
        unreachable!("these sessions choose their servers themselves")
    }
}

/// The steps that a session takes when it takes something in.
pub(crate) fn steps_of<S: Session<Shared = ()>>(
    monotonic: Micros,
    take_in: impl FnOnce(&mut SessionContext<'_, S>),
) -> Vec<SessionStep<S>> {
    let mut steps = Vec::new();
    let now = Now {
        monotonic,
        ..Now::default()
    };
    take_in(&mut SessionContext {
        now,
        patience: Micros(1_000_000),
        shared: &mut (),
        reach: &Unasked,
        steps: &mut steps,
    });
    steps
}
