//! Real processes of a real cluster, on loopback and free ports, that end with the test.
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, ErrorKind},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use turnbuckle_campaign::{Connection, free_ports, resident_bytes};
use turnbuckle_resp::Value;
use turnbuckle_server::{
    TlsAuthority,
    admin::{AdminClient, LinkName},
    config::{Demo, DemoKeyspace, DemoPorts, Durability, Limits},
    wan::WanDelays,
};

/// What the nodes of every cluster here know.
pub const SECRET: &str = "a secret that is long enough for tests";

/// Whatever has not happened by then is not going to, however slow the machine is.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The limits of a cluster whose operations all succeed, however slow the machine is.
pub fn patient() -> Limits {
    Limits {
        operation_deadline_ms: PATIENCE.as_millis() as u64 / 5,
        ..Limits::default()
    }
}

/// The sites of every cluster here.
pub const SITES: [&str; 3] = ["a", "b", "c"];

/// Three sites, one process for each of their nodes. Nodes are counted site by site; with one each, a node's number is
/// that of its site.
pub struct Cluster {
    ports: Vec<DemoPorts>,
    nodes: Vec<Option<Child>>,
    demo: Demo,
    file: PathBuf,
    /// If it has TLS: the authority's certificate.
    authority: Option<TlsAuthority>,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster of one node per site, without delays.
    pub fn start(durability: &str, limits: Limits) -> Cluster {
        Cluster::start_with_nodes(1, durability, limits)
    }

    /// Starts a cluster of so many nodes in every site, without delays.
    pub fn start_with_nodes(of_a_site: usize, durability: &str, limits: Limits) -> Cluster {
        let mut cluster = Cluster::new(of_a_site, durability, limits);
        cluster.start_all();
        cluster
    }

    /// A cluster of which nothing runs yet.
    pub fn new(of_a_site: usize, durability: &str, limits: Limits) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let ports = free_ports(SITES.len() * of_a_site).expect("free ports");
        let durability: Durability = durability.parse().expect("a durability");
        let demo = Demo {
            cluster: "test".into(),
            secret: SECRET.into(),
            ports: ports.clone(),
            partitions: 2,
            keyspaces: ["eventual", "causal"]
                .map(|kind| DemoKeyspace {
                    durability,
                    ..DemoKeyspace::of(kind)
                })
                .into(),
            data_root: directory.path().to_path_buf(),
            loops: 1,
            wan: WanDelays::none(SITES),
            limits,
        };
        let file = directory.path().join("cluster.toml");
        std::fs::write(&file, demo.to_toml()).expect("the configuration is written");
        Cluster {
            nodes: ports.iter().map(|_| None).collect(),
            ports,
            demo,
            file,
            authority: None,
            directory,
        }
    }

    /// Writes a configuration with these keyspaces, each a name and a protocol. Nodes that are started from now on go by it.
    pub fn configure(&mut self, keyspaces: &[(&str, &str)]) {
        let durability = self.demo.keyspaces[0].durability;
        let keyspaces = keyspaces.iter().map(|&(name, protocol)| DemoKeyspace {
            name: name.into(),
            durability,
            ..DemoKeyspace::of(protocol)
        });
        self.demo.keyspaces = keyspaces.collect();
        std::fs::write(&self.file, self.demo.to_toml()).expect("the configuration is written");
    }

    /// Writes a configuration with one keyspace, whose partitions have this many replicas at each site.
    pub fn configure_members(&mut self, name: &str, protocol: &str, members: u16) {
        self.configure(&[(name, protocol)]);
        self.demo.keyspaces[0].members = members;
        std::fs::write(&self.file, self.demo.to_toml()).expect("the configuration is written");
    }

    /// Gives all nodes certificates that one new authority has signed, and adds this to the configuration's `[tls]` table. Nodes that are started from now on go by it.
    pub fn protect(&mut self, more: &str) {
        let tls = "[tls]\ncertificate = \"tls/{node}.crt\"\nkey = \"tls/{node}.key\"\nauthority = \"tls/authority.crt\"\n";
        let text = format!("{}\n{tls}{more}\n", self.demo.to_toml());
        std::fs::write(&self.file, text).expect("the configuration is written");
        self.make_certificates(&[]);
        self.authority =
            Some(TlsAuthority::read(&self.directory.path().join("tls/authority.crt")).expect("an authority"));
    }

    /// Runs `turnbuckle certificates`.
    pub fn make_certificates(&self, options: &[&str]) {
        let made = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
            .args(["certificates", "--config"])
            .arg(&self.file)
            .arg("--into")
            .arg(self.directory.path().join("tls"))
            .args(options)
            .stdout(Stdio::null())
            .status();
        assert!(made.expect("the process starts").success());
    }

    /// The authority that has signed the nodes' certificates.
    pub fn authority(&self) -> &TlsAuthority {
        self.authority.as_ref().expect("it has certificates")
    }

    /// The name of a node, which is also that of its data directory.
    pub fn name(&self, node: usize) -> String {
        let of_a_site = self.nodes.len() / SITES.len();
        format!("{}{}", SITES[node / of_a_site], node % of_a_site + 1)
    }

    pub fn ports(&self, node: usize) -> DemoPorts {
        self.ports[node]
    }

    pub fn data_directory(&self, node: usize) -> PathBuf {
        self.directory.path().join(self.name(node))
    }

    /// The configuration file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Starts every node that does not run, and returns when every node serves and can pass requests on to the others of its site.
    pub fn start_all(&mut self) {
        let resting: Vec<usize> = (0..self.nodes.len())
            .filter(|&node| self.nodes[node].is_none())
            .collect();
        resting.into_iter().for_each(|node| self.start_node(node));
        for node in 0..self.nodes.len() {
            wait_until(
                "every node serves, and the nodes of every site are linked",
                || {
                    let status = self.admin(node).status().expect("the node says how it is");
                    let mut inside = status.links.iter().filter(|link| link.site == status.site);
                    // One that began with an empty directory waits for the word of another site.
                    inside.all(|link| link.up) && matches!(self.admin(node).readiness(), Ok(Ok(())))
                },
            );
        }
    }

    /// Waits until a node is linked to all others.
    pub fn wait_for_links(&self, node: usize) {
        wait_until("the node is linked to all others", || {
            let status = self.admin(node).status().expect("the node says how it is");
            status.links.iter().all(|link| link.up)
        });
    }

    /// The command that starts a node.
    pub fn start_command(&self, node: usize) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnbuckle"));
        command
            .args(["start", "--node", &self.name(node), "--config"])
            .arg(&self.file)
            .env("TURNBUCKLE_LOG", "warn")
            .stdout(Stdio::piped());
        command
    }

    /// Starts a node's process, and returns when it is ready.
    pub fn start_node(&mut self, node: usize) {
        let command = self.start_command(node);
        self.start_node_as(node, command);
    }

    /// Starts a node's process by another command, and returns when it is ready.
    pub fn start_node_as(&mut self, node: usize, mut command: Command) {
        let mut process = command.spawn().expect("the process starts");
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().expect("it is piped"))
            .read_line(&mut line)
            .expect("it says something");
        self.nodes[node] = Some(process);
        assert!(
            line.contains("is ready"),
            "node {} did not start: {line:?}",
            self.name(node)
        );
    }

    /// `kill -TERM`, and how it ends.
    pub fn terminate(&mut self, node: usize) -> Option<i32> {
        let process = Pid::from_raw(self.process_id(node) as i32).expect("it has a number");
        kill_process(process, Signal::TERM).expect("it can be told to end");
        self.wait(node)
    }

    /// Waits until a node has ended by itself. How it did.
    pub fn wait(&mut self, node: usize) -> Option<i32> {
        wait_until("the node has ended", || !self.runs(node));
        let status = self.nodes[node].take().expect("it ran").wait();
        status.expect("it has ended").code()
    }

    /// Whether a node's process still runs.
    pub fn runs(&mut self, node: usize) -> bool {
        self.nodes[node]
            .as_mut()
            .is_some_and(|process| process.try_wait().expect("it can be asked").is_none())
    }

    /// The number of a node's process.
    pub fn process_id(&self, node: usize) -> u32 {
        self.nodes[node].as_ref().expect("the node runs").id()
    }

    /// How much of a node's memory is resident.
    pub fn resident_bytes(&self, node: usize) -> usize {
        let resident = resident_bytes(self.process_id(node)).expect("the node runs on Linux");
        usize::try_from(resident.now).expect("it fits into memory")
    }

    /// `kill -9`.
    pub fn kill(&mut self, node: usize) {
        let mut node = self.nodes[node].take().expect("the node runs");
        node.kill().expect("it can be killed");
        node.wait().expect("it ends");
    }

    pub fn admin(&self, node: usize) -> AdminClient {
        let client = AdminClient::new(format!("127.0.0.1:{}", self.ports[node].admin), PATIENCE);
        client.with_authority(self.authority.clone(), None)
    }

    pub fn client(&self, node: usize) -> Client {
        Client::connect(self.ports[node].resp)
    }

    /// Cuts sites a and b from each other, or heals that.
    pub fn cut_a_from_b(&self, cut: bool) {
        self.cut_sites(0, 1, cut);
    }

    /// Cuts two sites from each other, or heals that: asked of a node of the first, which tells all others that run.
    pub fn cut_sites(&self, one: usize, other: usize, cut: bool) {
        let link = LinkName {
            from: SITES[one].into(),
            to: SITES[other].into(),
        };
        let admin = self.admin(one * (self.nodes.len() / SITES.len()));
        match cut {
            true => admin.cut(&link).expect("the link is cut"),
            false => admin.heal(Some(&link)).expect("the link is healed"),
        };
    }

    /// What the streams that leave a node are doing.
    pub fn stream_states(&self, node: usize) -> Vec<(String, String, u64)> {
        let status = self.admin(node).status().expect("the node says how it is");
        status
            .streams
            .into_iter()
            .map(|stream| (stream.to, stream.state, stream.lag_entries))
            .collect()
    }

    /// Waits until every stream has delivered everything.
    pub fn settle(&self) {
        wait_until("every stream has delivered everything", || {
            (0..self.nodes.len()).all(|node| {
                self.stream_states(node)
                    .iter()
                    .all(|(_, state, lag)| state == "streaming" && *lag == 0)
            })
        });
    }

    /// Everything that a node's site has, in the keyspace where a new connection is.
    pub fn contents(&self, node: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
        Cluster::everything(self.client(node))
    }

    /// Everything that a node's site has in a keyspace.
    pub fn contents_in(&self, node: usize, keyspace: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut client = self.client(node);
        let selected = client.call(&[b"SELECT", keyspace.as_bytes()]);
        assert!(
            matches!(&selected, Value::Simple(ok) if &ok[..] == b"OK"),
            "{selected:?}"
        );
        Cluster::everything(client)
    }

    fn everything(mut client: Client) -> BTreeMap<Vec<u8>, Vec<u8>> {
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

/// This process has a socket for each client that it plays.
pub fn raise_limit_of_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("a soft limit may be raised to the hard one");
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited for {PATIENCE:?} until {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A client that waits for each answer, or for those of a pipeline.
pub struct Client(Connection);

impl Client {
    pub fn connect(port: u16) -> Client {
        Client(Connection::open(port, PATIENCE).expect("the node listens"))
    }

    pub fn over(stream: TcpStream) -> Client {
        Client(Connection::over(stream, PATIENCE).expect("it is connected"))
    }

    pub fn call(&mut self, command: &[&[u8]]) -> Value {
        self.pipeline(&[command.iter().map(|part| part.to_vec()).collect()])
            .remove(0)
    }

    /// `None` if the server closes the connection instead of answering.
    pub fn try_call(&mut self, command: &[&[u8]]) -> Option<Value> {
        self.0.send(&[command.to_vec()]).ok()?;
        self.try_read()
    }

    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Value> {
        self.0.send(commands).expect("commands are sent");
        commands.iter().map(|_| self.read()).collect()
    }

    /// Sends a command, and does not wait for its answer.
    pub fn send(&mut self, command: &[&[u8]]) {
        self.0.send(&[command.to_vec()]).expect("a command is sent");
    }

    /// The next answer.
    pub fn read(&mut self) -> Value {
        self.try_read().expect("an answer, and the connection stays")
    }

    fn try_read(&mut self) -> Option<Value> {
        match self.0.read() {
            Ok(value) => Some(value),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => panic!("no answer came within {PATIENCE:?}"),
                ErrorKind::InvalidData => panic!("an answer that cannot be understood: {error}"),
                _ => None,
            },
        }
    }
}

/// An answer, or an error, as text.
pub fn text(value: &Value) -> String {
    match value {
        Value::Simple(text) | Value::Error(text) | Value::Bulk(text) => String::from_utf8_lossy(text).into(),
        other => format!("{other:?}"),
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
