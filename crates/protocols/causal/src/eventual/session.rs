use super::{
    message::{Request, Response},
    replica::{Eventual, EventualConfig},
};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Answer, BadFrame, BadToken, Failure, Key, Level, Levels, Operation, Outcome, Receipt, ServerId, Session,
    SessionContext, SiteId, Topology,
};

/// A client of an eventual keyspace. It knows nothing that a token would have to carry.
pub struct EventualSession {
    home: SiteId,
    topology: Topology,
    /// Reads of several keys that are under way.
    gathering: BTreeMap<u64, Gathering>,
}

/// The parts of a read of several keys.
struct Gathering {
    values: Vec<Option<Bytes>>,
    missing: usize,
    /// What all parts prove together.
    receipt: Option<Receipt>,
}

impl EventualSession {
    fn server_of(&self, key: &Key) -> ServerId {
        ServerId {
            site: self.home,
            partition: self.topology.partition_of_slot(key.slot()),
            member: 0,
        }
    }
}

impl Session for EventualSession {
    type Protocol = Eventual;

    const LEVELS: Levels = Levels::of_both(&[Level::Eventual]);
    const OVERLAPS: bool = true;

    fn open(_: &EventualConfig, home: SiteId, topology: Topology) -> EventualSession {
        EventualSession {
            home,
            topology,
            gathering: BTreeMap::new(),
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        match state.len() {
            0 => Ok(()),
            bytes => {
                let expected = "the empty state of an eventual session";
                Err(BadFrame::new(expected, format!("{bytes} bytes")).into())
            }
        }
    }

    fn on_operation(
        &mut self,
        cx: &mut SessionContext<'_, Eventual>,
        tag: u64,
        operation: Operation,
        _: Level,
    ) {
        match operation {
            Operation::Get { key, .. } => cx.ask(tag, 0, self.server_of(&key), Request::Get(key)),
            Operation::Put { key, value, .. } => {
                cx.ask(tag, 0, self.server_of(&key), Request::Put(key, value))
            }
            Operation::ReadMany { keys, .. } if keys.is_empty() => {
                cx.answer(tag, Answer::Values(Vec::new()), None)
            }
            Operation::ReadMany { keys, .. } => {
                let gathering = Gathering {
                    values: vec![None; keys.len()],
                    missing: keys.len(),
                    receipt: None,
                };
                self.gathering.insert(tag, gathering);
                for (part, key) in keys.into_iter().enumerate() {
                    cx.ask(tag, part as u32, self.server_of(&key), Request::Get(key));
                }
            }
            Operation::Scan { .. } | Operation::Count => {
                cx.fail(
                    tag,
                    Failure::Unsupported("the gateway surveys keys, not the session".into()),
                );
            }
        }
    }

    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, Eventual>,
        tag: u64,
        part: u32,
        _: ServerId,
        outcome: Outcome<Response>,
    ) {
        let (response, receipt) = match outcome {
            Outcome::Answered(response, receipt) => (response, receipt),
            lost => {
                self.gathering.remove(&tag);
                return cx.fail(tag, lost.into_failure().expect("it is not an answer"));
            }
        };
        match (response, self.gathering.get_mut(&tag)) {
            (Response::Value(value), None) => cx.answer(tag, Answer::Value(value), Some(receipt)),
            (Response::Refused(why), _) => {
                self.gathering.remove(&tag);
                cx.fail(tag, Failure::Unavailable(why));
            }
            (Response::Written { existed }, _) => cx.answer(tag, Answer::Written { existed }, Some(receipt)),
            (Response::Value(value), Some(gathering)) => {
                gathering.values[part as usize] = value;
                gathering.missing -= 1;
                gathering.receipt = Some(match gathering.receipt.take() {
                    Some(so_far) => so_far.merged(receipt),
                    None => receipt,
                });
                if gathering.missing == 0 {
                    let done = self.gathering.remove(&tag).expect("just found");
                    cx.answer(tag, Answer::Values(done.values), done.receipt);
                }
            }
        }
    }

    fn token(&self, _: &mut BytesMut) {}
}
