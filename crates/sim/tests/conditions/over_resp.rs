//! The whole way of a put, from the bytes that a Redis client sends to the replica that orders it, and back.
use super::ordered::{OrderedConfig, OrderedSession};
use bytes::{Bytes, BytesMut};
use turnbuckle_causal::eventual::{EventualConfig, EventualSession};
use turnbuckle_core::{Answered, BadToken, DoorId, Micros, Operation, Session, SiteId};
use turnbuckle_node::NodeId;
use turnbuckle_resp::{
    Backend, ClusterNode, Connection, Greeting, InfoSection, Keyspace, Limits, SelectError,
};
use turnbuckle_sim::{World, WorldOptions};

/// A node of a world behind one connection. Time passes until each operation is answered.
struct Site<'a, S: Session> {
    world: &'a mut World<S>,
    client: usize,
}

impl<S: Session> Backend for Site<'_, S> {
    fn open(&mut self, _: &str) -> Result<DoorId, SelectError> {
        Ok(DoorId::default())
    }

    fn resume(&mut self, _: DoorId, _: &[u8]) -> Result<(), BadToken> {
        Ok(())
    }

    fn close(&mut self, _: DoorId) {}

    fn operate(&mut self, _: DoorId, _: u64, operation: Operation) -> Option<Answered> {
        Some(
            self.world
                .ask(self.client, operation)
                .expect("nothing is lost here"),
        )
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

    fn wall_time(&self) -> Micros {
        Micros(0)
    }

    fn site_name(&self, site: SiteId) -> &str {
        self.world.topology().site_name(site)
    }

    fn site_named(&self, name: &str) -> Option<SiteId> {
        self.world.topology().site_named(name)
    }

    fn info(&self) -> Vec<InfoSection> {
        Vec::new()
    }

    fn config(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// A world, and a connection to each of its sites.
struct Clients<S: Session> {
    world: World<S>,
    connections: Vec<(usize, Connection)>,
}

impl<S: Session> Clients<S> {
    fn new(config: <S::Protocol as turnbuckle_core::Protocol>::Config) -> Clients<S> {
        let options = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(5));
        let mut world = World::new(options, config);
        world.advance(Micros::from_millis(100));
        let connections = (0..3).map(|site| {
            let greeting = Greeting {
                id: u64::from(site),
                peer: "client".into(),
                local: "node".into(),
                keyspace: "k".into(),
                limits: Limits::default(),
            };
            (world.add_client(NodeId(site)), Connection::new(greeting))
        });
        let connections = connections.collect();
        Clients { world, connections }
    }

    /// Sends a line from a client at a site. Returns what the client reads.
    fn send(&mut self, site: usize, line: &str) -> String {
        let (client, connection) = &mut self.connections[site];
        let (world, client) = (&mut self.world, *client);
        let mut input = BytesMut::from(format!("{line}\r\n").as_str());
        connection.handle_bytes(&mut input, &mut Site { world, client });
        String::from_utf8_lossy(&connection.output().split()).into_owned()
    }

    /// The version that the last answer at a site named.
    fn version(&mut self, site: usize) -> String {
        let receipt = self.send(site, "RECEIPT");
        let mut lines = receipt.split("\r\n").skip_while(|line| *line != "version");
        lines.nth(2).expect("a version is named").to_string()
    }
}

#[test]
fn set_with_conditions_works_from_end_to_end() {
    let mut clients = Clients::<OrderedSession>::new(OrderedConfig::default());
    assert_eq!(clients.send(1, "SET lock b NX PX 500"), "+OK\r\n");
    assert_eq!(clients.send(2, "SET lock c NX PX 500"), "$-1\r\n");
    assert_eq!(clients.send(0, "SETNX lock a"), ":0\r\n");
    assert_eq!(clients.send(2, "SET lock c NX GET"), "$1\r\nb\r\n");
    let version = clients.version(2);
    assert_eq!(
        clients.send(0, &format!("SET lock a IF VERSION {version} PX 500")),
        "+OK\r\n"
    );
    assert_eq!(
        clients.send(2, &format!("SET lock c IF VERSION {version}")),
        "$-1\r\n"
    );
    assert_eq!(clients.send(2, "SET lock a2 XX KEEPTTL GET"), "$1\r\na\r\n");
    clients.world.advance(Micros::from_millis(600));
    assert_eq!(clients.send(1, "GET lock"), "$-1\r\n");
    assert_eq!(clients.send(1, "SET lock b XX"), "$-1\r\n");
    assert_eq!(clients.send(1, "SETEX lock 1 b"), "+OK\r\n");
    assert_eq!(clients.send(0, "GETSET lock a"), "$1\r\nb\r\n");
    clients.world.advance(Micros::from_millis(2_000));
    assert_eq!(clients.send(2, "GETDEL lock"), "$1\r\na\r\n");
    assert_eq!(clients.send(2, "GETDEL lock"), "$-1\r\n");
    let violations = clients.world.judge().violations();
    assert!(violations.is_empty(), "{violations:?}");
}

#[test]
fn a_keyspace_that_takes_no_options_refuses_at_its_door() {
    let mut clients = Clients::<EventualSession>::new(EventualConfig::default());
    for (line, why) in [
        ("SET k v NX", "takes no conditions; that needs a keyspace with"),
        (
            "SET k v GET",
            "does not return the value that a write replaces; that needs a keyspace with",
        ),
    ] {
        let refused = clients.send(0, line);
        let expected = format!("-UNSUPPORTED the keyspace 'world' {why}");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    assert_eq!(clients.send(0, "GET k"), "$-1\r\n");
}
