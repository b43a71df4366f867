//! What no script of a simulated world can show: the servers of a site hear of GST one after the other, and it takes three servers to show that.
use std::collections::BTreeMap;
use turnbuckle_causal::GentleRain;
use turnbuckle_causal::gentlerain::GentleRainConfig;
use turnbuckle_causal::stable::{Get, Heartbeat, Message, Put, Request, Response, Said, Work};
use turnbuckle_core::{
    Chain, Hlc, Input, Key, Micros, Now, Output, Placed, Recovered, Replica, RequestId, ServerId, SiteId,
    Topology, Vector, Version, Versions, WallInterval, Write,
};

/// Chains in memory.
#[derive(Default)]
struct Chains(BTreeMap<Vec<u8>, Chain<()>>);

impl Versions<()> for Chains {
    fn chain(&self, key: &[u8]) -> Option<&Chain<()>> {
        self.0.get(key)
    }

    fn put(&mut self, key: &Key, version: &Version<()>) -> Placed {
        let version = version.clone();
        match self.0.get_mut(key.as_ref()) {
            Some(chain) => match chain.insert(version) {
                true => Placed::Added,
                false => Placed::Unwanted,
            },
            None => {
                self.0.insert(key.as_ref().to_vec(), Chain::new(version));
                Placed::First
            }
        }
    }

    fn make_room(&mut self, _: &[u8], _: &dyn Fn(&Version<()>) -> bool) {}

    fn live_keys(&self) -> u64 {
        self.0.len() as u64
    }

    fn forgettable_keys(&self) -> u64 {
        0
    }
}

const ME: ServerId = ServerId {
    site: SiteId(0),
    partition: 0,
    member: 0,
};

fn open(recovered: &Recovered) -> Replica<GentleRain> {
    let topology = Topology::new(["a", "b"], 1, 1);
    let config = GentleRainConfig::default();
    Replica::open(&config, ME, topology, Hlc::ZERO, recovered, 0)
}

fn now() -> Now {
    let wall = WallInterval::around(Micros(1_000), Micros(0));
    Now {
        monotonic: Micros(0),
        wall,
    }
}

fn ask(replica: &mut Replica<GentleRain>, chains: &mut Chains, request: Request) {
    let input = Input::Request {
        id: RequestId(1),
        request,
        since: None,
    };
    replica.handle_input(now(), input, chains);
}

fn scalar(us: u64) -> Vector {
    Vector::filled(1, Hlc::from_wall(Micros(us)))
}

/// What a client that knows nothing is told of GST when it reads x.
fn gst_told_by(replica: &mut Replica<GentleRain>, chains: &mut Chains) -> Vector {
    let get = Request::Get(Get {
        key: Key::from("x"),
        stable: Vector::ZERO,
        need: Vector::ZERO,
        seen: Hlc::ZERO,
        view: turnbuckle_causal::View::Visible,
    });
    ask(replica, chains, get);
    while let Some(output) = replica.poll_output() {
        if let Output::Reply {
            response: Response::Value { value, stable, .. },
            ..
        } = output
        {
            assert!(value.is_some(), "a local version is seen at once");
            return stable;
        }
    }
    panic!("no answer");
}

#[test]
fn who_reads_a_local_version_learns_what_was_stable_for_its_writer_also_after_a_restart() {
    let (mut replica, mut chains) = (open(&Recovered::default()), Chains::default());
    // Everything that is stable is here.
    let heartbeat = Heartbeat {
        promise: scalar(600).newest(),
        settled: Hlc::ZERO,
        wall: Micros(600),
        deletes: Said::default(),
        written: Hlc::ZERO,
        replaced: Vector::ZERO,
    };
    let from = ServerId {
        site: SiteId(1),
        ..ME
    };
    let message = Message::Heartbeat(heartbeat);
    replica.handle_input(now(), Input::Mark { from, message }, &mut chains);
    let put = Request::Put(Put {
        work: Work::One(Key::from("x"), Some("1".into()).into()),
        past: scalar(700),
        stable: scalar(600),
        seen: Hlc::ZERO,
        moved: false,
        eventual: false,
    });
    ask(&mut replica, &mut chains, put);
    let batch = replica.take_batch().expect("it is staged");
    replica.handle_durable(batch.number);
    assert_eq!(gst_told_by(&mut replica, &mut chains), scalar(600));

    let mut recovered = Recovered::default();
    for write in batch.writes {
        if let Write::Named { name, bytes } = write {
            let bytes = bytes.expect("it drops nothing");
            recovered.named.insert(name.to_string(), bytes);
        }
    }
    let mut again = open(&recovered);
    assert_eq!(gst_told_by(&mut again, &mut chains), scalar(600));
}
