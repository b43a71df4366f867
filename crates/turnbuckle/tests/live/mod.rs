//! Real processes of a real cluster, on loopback and free ports, that end with the test.
use bytes::BytesMut;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use turnbuckle_resp::{ReplyDecoder, Value, encode_command};
use turnbuckle_server::{
    admin::{AdminClient, LinkName},
    config::{Demo, DemoKeyspace, DemoPorts, Durability, Limits},
    wan::WanDelays,
};

/// Whatever has not happened by then is not going to.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Three sites, one process each.
pub struct Cluster {
    ports: Vec<DemoPorts>,
    nodes: Vec<Option<Child>>,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster of sites a, b and c without delays.
    pub fn start(durability: &str, limits: Limits) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let ports = free_ports();
        let durability: Durability = durability.parse().expect("a durability");
        let demo = Demo {
            cluster: "test".into(),
            secret: "a secret that is long enough for tests".into(),
            ports: ports.clone(),
            partitions: 2,
            keyspaces: vec![DemoKeyspace {
                durability,
                ..DemoKeyspace::of("eventual")
            }],
            data_root: directory.path().to_path_buf(),
            loops: 1,
            wan: WanDelays::none(["a", "b", "c"]),
            limits,
        };
        let file = directory.path().join("cluster.toml");
        std::fs::write(&file, demo.to_toml()).expect("the configuration is written");
        let mut cluster = Cluster {
            ports,
            nodes: vec![None, None, None],
            file,
            _directory: directory,
        };
        (0..3).for_each(|site| cluster.start_node(site));
        cluster
    }

    /// Starts a site's process, and returns when it is ready.
    pub fn start_node(&mut self, site: usize) {
        let name = ["a1", "b1", "c1"][site];
        let mut node = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
            .args(["start", "--node", name, "--config"])
            .arg(&self.file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the process starts");
        let mut line = String::new();
        BufReader::new(node.stdout.as_mut().expect("it is piped"))
            .read_line(&mut line)
            .expect("it says something");
        assert!(line.contains("is ready"), "node {name} did not start: {line:?}");
        self.nodes[site] = Some(node);
    }

    /// `kill -9`.
    pub fn kill(&mut self, site: usize) {
        let mut node = self.nodes[site].take().expect("the node runs");
        node.kill().expect("it can be killed");
        node.wait().expect("it ends");
    }

    pub fn admin(&self, site: usize) -> AdminClient {
        AdminClient::new(
            format!("127.0.0.1:{}", self.ports[site].admin),
            Duration::from_secs(10),
        )
    }

    pub fn client(&self, site: usize) -> Client {
        Client::connect(self.ports[site].resp)
    }

    /// Cuts sites a and b from each other, or heals that.
    pub fn cut_a_from_b(&self, cut: bool) {
        let link = LinkName {
            from: "a".into(),
            to: "b".into(),
            both: true,
        };
        for site in 0..2 {
            let admin = self.admin(site);
            match cut {
                true => admin.cut(&link).expect("the link is cut"),
                false => admin.heal(Some(&link)).expect("the link is healed"),
            };
        }
    }

    /// What the streams that leave a site are doing.
    pub fn stream_states(&self, site: usize) -> Vec<(String, String, u64)> {
        let status = self.admin(site).status().expect("the node says how it is");
        status
            .streams
            .into_iter()
            .map(|stream| (stream.to, stream.state, stream.lag_entries))
            .collect()
    }

    /// Waits until every stream has delivered everything.
    pub fn settle(&self) {
        wait_until("every stream has delivered everything", || {
            (0..3).all(|site| {
                self.stream_states(site)
                    .iter()
                    .all(|(_, state, lag)| state == "streaming" && *lag == 0)
            })
        });
    }

    /// Everything that a site holds.
    pub fn contents(&self, site: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut client = self.client(site);
        let (mut cursor, mut keys) = (b"0".to_vec(), Vec::new());
        loop {
            let Value::Array(answer) = client.call(&[b"SCAN", &cursor, b"COUNT", b"1000"]) else {
                panic!("SCAN")
            };
            let [Value::Bulk(next), Value::Array(found)] = &answer[..] else {
                panic!("SCAN: {answer:?}")
            };
            keys.extend(found.iter().map(|key| match key {
                Value::Bulk(key) => key.to_vec(),
                other => panic!("a key: {other:?}"),
            }));
            cursor = next.to_vec();
            if cursor == b"0" {
                break;
            }
        }
        keys.into_iter()
            .filter_map(|key| match client.call(&[b"GET", &key]) {
                Value::Bulk(value) => Some((key, value.to_vec())),
                _ => None,
            })
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited for a minute until {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Ports that were free a moment ago, held all at once so that none comes twice.
fn free_ports() -> Vec<DemoPorts> {
    let held: Vec<TcpListener> = (0..9)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    let ports: Vec<u16> = held
        .iter()
        .map(|socket| socket.local_addr().expect("it is bound").port())
        .collect();
    ports
        .chunks(3)
        .map(|of| DemoPorts {
            resp: of[0],
            peer: of[1],
            admin: of[2],
        })
        .collect()
}

/// A client that waits for each answer, or for those of a pipeline.
pub struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    decoder: ReplyDecoder,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the node listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        Client {
            stream,
            buffer: BytesMut::new(),
            decoder: ReplyDecoder::new(64 << 20),
        }
    }

    pub fn call(&mut self, command: &[&[u8]]) -> Value {
        self.pipeline(&[command.iter().map(|part| part.to_vec()).collect()])
            .remove(0)
    }

    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Value> {
        let mut out = BytesMut::new();
        for command in commands {
            encode_command(command, &mut out);
        }
        self.stream.write_all(&out).expect("commands are sent");
        commands.iter().map(|_| self.read()).collect()
    }

    fn read(&mut self) -> Value {
        loop {
            if let Some(value) = self
                .decoder
                .decode(&mut self.buffer)
                .expect("an answer that can be understood")
            {
                return value;
            }
            let mut bytes = [0; 64 << 10];
            let read = self.stream.read(&mut bytes).expect("an answer");
            assert!(read > 0, "the server closed the connection");
            self.buffer.extend_from_slice(&bytes[..read]);
        }
    }
}

/// Writes that were acknowledged: what must be there, or must be gone, in the end.
#[derive(Default)]
pub struct Acknowledged {
    next: usize,
    pub expected: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Acknowledged {
    /// Writes new keys at a site.
    pub fn write(&mut self, cluster: &Cluster, site: usize, keys: usize, value_bytes: usize) {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = (self.next..self.next + keys)
            .map(|number| {
                (
                    format!("k{number}").into_bytes(),
                    format!("{number:0>value_bytes$}").into_bytes(),
                )
            })
            .collect();
        self.next += keys;
        let commands: Vec<Vec<Vec<u8>>> = pairs
            .iter()
            .map(|(key, value)| vec![b"SET".to_vec(), key.clone(), value.clone()])
            .collect();
        let answers = cluster.client(site).pipeline(&commands);
        for ((key, value), answer) in pairs.into_iter().zip(answers) {
            assert!(
                matches!(&answer, Value::Simple(ok) if &ok[..] == b"OK"),
                "{answer:?}"
            );
            self.expected.insert(key, Some(value));
        }
    }

    /// Deletes the first so many keys at a site.
    pub fn delete(&mut self, cluster: &Cluster, site: usize, keys: usize) {
        let keys: Vec<Vec<u8>> = (0..keys)
            .map(|number| format!("k{number}").into_bytes())
            .collect();
        let commands: Vec<Vec<Vec<u8>>> = keys
            .iter()
            .map(|key| vec![b"DEL".to_vec(), key.clone()])
            .collect();
        for (key, answer) in keys.into_iter().zip(cluster.client(site).pipeline(&commands)) {
            assert!(matches!(answer, Value::Integer(1)), "{answer:?}");
            self.expected.insert(key, None);
        }
    }

    /// Every site holds exactly what was acknowledged.
    pub fn check(&self, cluster: &Cluster) {
        let expected: BTreeMap<_, _> = self
            .expected
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
            .collect();
        for site in 0..3 {
            let held = cluster.contents(site);
            let lost = expected.keys().filter(|key| !held.contains_key(*key)).count();
            let back = held.keys().filter(|key| !expected.contains_key(*key)).count();
            assert_eq!(
                (lost, back),
                (0, 0),
                "site {site}: acknowledged writes lost, and deleted keys that came back"
            );
            assert!(
                held == expected,
                "site {site} holds other values than were acknowledged"
            );
        }
    }
}
