//! How long a command takes from its bytes to its reply's bytes, with a map in memory behind it.
//!
//! `cargo run --release -p turnbuckle-resp --example hot_path`
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a measurement reads the clock, and a map without order is the fastest there is"
)]
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use turnbuckle_core::DoorId;
use turnbuckle_core::{
    Answer, Answered, BadToken, Hlc, Key, Level, Micros, Operation, Receipt, Route, ServerId, SiteId,
    VersionId,
};
use turnbuckle_resp::{
    Backend, ClusterNode, Connection, DEFAULT_USER, Greeting, InfoSection, Keyspace, Limits, ReplyDecoder,
    Rights, SelectError, User, UserBook, Users, encode_command,
};

/// The least that a backend can be: one map.
struct Map(HashMap<Bytes, Bytes>);

impl Backend for Map {
    fn open(&mut self, _: &str) -> Result<DoorId, SelectError> {
        Ok(DoorId::default())
    }

    fn resume(&mut self, _: DoorId, _: &[u8]) -> Result<(), BadToken> {
        Ok(())
    }

    fn close(&mut self, _: DoorId) {}

    fn operate(&mut self, _: DoorId, _: u64, operation: Operation) -> Option<Answered> {
        let answer = match operation {
            Operation::Get { key, .. } => Answer::Value(self.0.get(&key.0).cloned()),
            Operation::Put { key, value, .. } => {
                let value = Bytes::copy_from_slice(&value.unwrap_or_default());
                let existed = match self.0.get_mut(&key.0) {
                    Some(old) => {
                        *old = value;
                        true
                    }
                    None => self.0.insert(key.compact().0, value).is_some(),
                };
                Answer::Written { existed }
            }
            _ => Answer::Count(self.0.len() as u64),
        };
        let receipt = Receipt {
            asked: Level::Eventual.into(),
            given: Level::Eventual,
            version: Some(VersionId {
                at: Hlc(1),
                replica: turnbuckle_core::ReplicaId(0),
            }),
            base: None,
            server: ServerId::default(),
            route: Route::Local,
            waited: Micros(0),
            staleness: None,
            clock_bound: Micros(250),
            siblings: false,
            until: None,
            decided_at_site: false,
            proof: turnbuckle_core::Proof::Plain,
        };
        Some((answer, Some(Box::new(receipt))))
    }

    fn token(&mut self, _: DoorId) -> Bytes {
        Bytes::new()
    }

    fn keyspaces(&self) -> Vec<Keyspace> {
        Vec::new()
    }

    fn cluster(&self, _: &str) -> Vec<ClusterNode> {
        Vec::new()
    }

    fn wall_time(&self) -> turnbuckle_core::Micros {
        turnbuckle_core::Micros(0)
    }

    fn site_named(&self, _: &str) -> Option<SiteId> {
        None
    }

    fn site_name(&self, _: SiteId) -> &str {
        "a"
    }

    fn info(&self) -> Vec<InfoSection> {
        Vec::new()
    }

    fn config(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

const KEYS: usize = 1_000;
const TURNS: usize = 100_000;
const DEPTH: usize = 16;

fn main() {
    let mut map = Map(HashMap::new());
    let value = [b'x'; 128];
    for number in 0..KEYS {
        map.0.insert(key(number).0, Bytes::copy_from_slice(&value));
    }
    let get = |number, out: &mut BytesMut| encode_command(&[b"GET", &key(number).0[..]], out);
    let set = |number, out: &mut BytesMut| encode_command(&[b"SET", &key(number).0[..], &value], out);
    measure(
        "the map alone",
        &mut map,
        |number, _| _ = black_box(key(number)),
        false,
    );
    measure("GET, 128 bytes", &mut map, get, true);
    measure("SET, 128 bytes", &mut map, set, true);
    measure("PING", &mut map, |_, out| encode_command(&["PING"], out), true);
    measure_as("GET as a user", Some(book()), &mut map, get, true);
}

fn key(number: usize) -> Key {
    Key(Bytes::from(format!("key:{:012}", number % KEYS)))
}

/// Users, of which `default` may read the keys of the map and no others.
fn book() -> Arc<UserBook> {
    let default = User {
        name: DEFAULT_USER.into(),
        passwords: Vec::new(),
        anybody: true,
        keyspaces: Some(vec!["other".into(), "test".into()]),
        keys: Some(vec!["other:".into(), "key:".into()]),
        rights: Rights::of(["read".parse().expect("a category")]),
        connections: None,
        operations_per_second: None,
        enabled: true,
    };
    UserBook::new(Users::new([default]))
}

fn measure(what: &str, map: &mut Map, encode: impl Fn(usize, &mut BytesMut), check: bool) {
    measure_as(what, None, map, encode, check);
}

/// Sends pipelines of `DEPTH` commands and prints how long one command takes.
fn measure_as(
    what: &str,
    book: Option<Arc<UserBook>>,
    map: &mut Map,
    encode: impl Fn(usize, &mut BytesMut),
    check: bool,
) {
    let mut connection = Connection::new(Greeting {
        id: 1,
        peer: String::new(),
        local: String::new(),
        keyspace: "test".into(),
        limits: Limits::default(),
    });
    if let Some(book) = book {
        connection = connection.with_users(book);
    }
    let pipelines: Vec<Bytes> = (0..KEYS / DEPTH)
        .map(|pipeline| {
            let mut out = BytesMut::new();
            (0..DEPTH).for_each(|command| encode(pipeline * DEPTH + command * 7, &mut out));
            out.freeze()
        })
        .collect();
    let mut input = BytesMut::with_capacity(16 << 10);
    let mut replies = 0;
    let begin = Instant::now();
    for turn in 0..TURNS {
        input.extend_from_slice(&pipelines[turn % pipelines.len()]);
        connection.handle_bytes(&mut input, map);
        replies += connection.output().len();
        if turn + 1 < TURNS {
            connection.output().clear();
        }
        input.reserve(8 << 10);
    }
    let each = begin.elapsed().as_nanos() as f64 / (TURNS * DEPTH) as f64;
    println!(
        "{what:<16} {each:>7.1} ns a command, {} bytes of replies",
        replies / TURNS / DEPTH
    );
    if check {
        let mut decoder = ReplyDecoder::new(1 << 20);
        let mut replies_left = connection.output().split();
        let last = std::iter::from_fn(|| decoder.decode(&mut replies_left).expect("well formed"));
        assert_eq!(last.count(), DEPTH);
    }
}
