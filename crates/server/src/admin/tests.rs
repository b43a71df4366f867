//! The admin HTTP on loopback, on the runtime that it will run on: one thread. Paused time runs ahead whenever nothing else runs, so no test waits
//! for a timeout.
use super::*;
use crate::{
    metrics::{LevelLabel, OperationKind, Outcome},
    wan::{LinkDelay, WanDelays},
};
use serde_json::{Value, json};
use std::{sync::Mutex, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use turnbuckle_core::{ClusterSecret, Micros, SiteId};
use turnbuckle_node::NodeId;

struct Node {
    readiness: Mutex<Result<(), String>>,
    missing: Mutex<BTreeMap<String, Vec<String>>>,
}

impl AdminSource for Node {
    fn readiness(&self) -> Result<(), String> {
        self.readiness.lock().unwrap().clone()
    }

    fn missing_keyspaces(&self) -> BTreeMap<String, Vec<String>> {
        self.missing.lock().unwrap().clone()
    }

    fn status(&self) -> Status {
        Status {
            cluster: "shop".into(),
            node: "a1".into(),
            site: "a".into(),
            ..Status::default()
        }
    }
}

struct World {
    server: AdminServer,
    node: Arc<Node>,
    admin: Admin,
}

fn secret() -> ClusterSecret {
    ClusterSecret::new("a secret of 16 bytes or more")
}

fn of_nodes() -> AdminToken {
    AdminToken::of_nodes(&secret())
}

async fn world() -> World {
    let node = Arc::new(Node {
        readiness: Mutex::new(Ok(())),
        missing: Mutex::default(),
    });
    let wan = WanMatrix::new(&WanDelays::demo(["a", "b", "c"]));
    let admin = Admin {
        source: node.clone(),
        metrics: Metrics::new(["carts"]),
        wan,
        others: Arc::default(),
        guard: Arc::new(Guard::new("a1", &secret(), None, [])),
        tls: None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = AdminServer::start(listener, admin.clone()).unwrap();
    World { server, node, admin }
}

/// A node, and another process with a matrix of its own. The first tells the second of its changes.
async fn two_processes() -> (World, World) {
    let (mut one, other) = (world().await, world().await);
    let node = (NodeId(1), "b1".to_string(), other.server.address().to_string());
    one.admin.others = Arc::new(Others::new(&of_nodes(), None, [node]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    one.server = AdminServer::start(listener, one.admin.clone()).unwrap();
    (one, other)
}

impl World {
    /// Sends bytes, and reads until the server ends the connection.
    async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        // A server that refuses early may close before it has read everything.
        let _ = stream.write_all(bytes.as_ref()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.ask_with(method, path, "", body).await
    }

    async fn ask_with(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let answer = self
            .raw(format!(
                "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:1\r\nconnection: close\r\n{headers}content-length: {length}\r\n\
                 \r\n{body}"
            ))
            .await;
        let status = answer.split(' ').nth(1).expect(&answer).parse().expect(&answer);
        let (_, body) = answer.split_once("\r\n\r\n").expect(&answer);
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// Runs the blocking client beside the server.
    async fn client<T: Send + 'static>(&self, call: impl FnOnce(AdminClient) -> T + Send + 'static) -> T {
        let client = AdminClient::new(self.server.address().to_string(), Duration::from_secs(60));
        tokio::task::spawn_blocking(move || call(client)).await.unwrap()
    }

    fn link(&self, from: u16, to: u16) -> crate::wan::LinkState {
        self.admin.wan.link(SiteId(from), SiteId(to))
    }
}

#[tokio::test]
async fn a_node_that_is_not_ready_says_why() {
    let world = world().await;
    assert_eq!(
        world.ask("GET", "/healthz", "").await,
        (200, json!({"healthy": true}))
    );
    assert_eq!(
        world.ask("GET", "/readyz", "").await,
        (200, json!({"ready": true}))
    );
    let missing = BTreeMap::from([("carts".to_string(), vec!["a2".to_string(), "b1".to_string()])]);
    *world.node.missing.lock().unwrap() = missing;
    let ready = json!({"ready": true, "missing_keyspaces": {"carts": ["a2", "b1"]}});
    assert_eq!(world.ask("GET", "/readyz", "").await, (200, ready));
    assert_eq!(world.client(|client| client.readiness()).await.unwrap(), Ok(()));
    world.node.missing.lock().unwrap().clear();
    *world.node.readiness.lock().unwrap() = Err("replaying the log".into());
    let not_ready = json!({"ready": false, "reason": "replaying the log"});
    assert_eq!(world.ask("GET", "/readyz", "").await, (503, not_ready));
    assert_eq!(world.ask("GET", "/healthz", "").await.0, 200);
    let readiness = world.client(|client| client.readiness()).await.unwrap();
    assert_eq!(readiness, Err("replaying the log".to_owned()));
}

#[tokio::test]
async fn what_was_counted_is_in_the_metrics() {
    let world = world().await;
    let (put, level) = (OperationKind::Put, LevelLabel::Default);
    world
        .admin
        .metrics
        .recorder()
        .operation(0, put, level, Outcome::Ok, Micros(3));
    let answer = world
        .raw("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        .await;
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{answer}"
    );
    let line = "turnbuckle_operations_total{keyspace=\"carts\",operation=\"put\",level=\"default\",outcome=\"ok\"} 1\n";
    assert!(answer.contains(line), "{answer}");
    assert!(
        world
            .client(|client| client.metrics())
            .await
            .unwrap()
            .contains(line)
    );
}

#[tokio::test]
async fn the_status_is_what_the_node_says() {
    let world = world().await;
    let status = world.client(|client| client.status()).await.unwrap();
    assert_eq!(status, world.node.status());
}

#[tokio::test]
async fn the_wan_changes_while_it_runs() {
    let world = world().await;
    let (status, view) = world.ask("GET", "/wan", "").await;
    assert_eq!((status, &view["sites"]), (200, &json!(["a", "b", "c"])));
    assert_eq!(
        view["links"][0],
        json!({"from": "a", "to": "b", "delay": "40ms~4ms", "cut": false, "changed_us": 0})
    );

    for method in ["POST", "PUT"] {
        let (status, view) = world
            .ask(method, "/wan", r#"{"from":"a","to":"b","delay":"5ms~1ms"}"#)
            .await;
        assert_eq!((status, &view["links"][0]["delay"]), (200, &json!("5ms~1ms")));
    }
    assert_eq!(world.link(0, 1).delay, LinkDelay::from_millis(5, 1));
    assert_eq!(
        world.link(1, 0).delay,
        LinkDelay::from_millis(40, 4),
        "the way back is as it was"
    );

    assert_eq!(
        world.ask("POST", "/wan/cut", r#"{"from":"a","to":"c"}"#).await.0,
        200
    );
    assert!(world.link(0, 2).cut && world.link(2, 0).cut && !world.link(0, 1).cut);
    assert_eq!(
        world.ask("POST", "/wan/cut", r#"{"from":"b","to":"a"}"#).await.0,
        200
    );
    assert_eq!(
        world.ask("POST", "/wan/heal", r#"{"from":"c","to":"a"}"#).await.0,
        200
    );
    assert!(!world.link(0, 2).cut && !world.link(2, 0).cut && world.link(0, 1).cut);
    assert_eq!(world.ask("POST", "/wan/heal", "").await.0, 200);
    assert!(!world.link(0, 1).cut && !world.link(1, 0).cut);
}

#[tokio::test]
async fn a_change_is_made_at_every_process() {
    let (one, other) = two_processes().await;
    let (status, view) = one.ask("POST", "/wan/cut", r#"{"from":"c","to":"a"}"#).await;
    assert_eq!((status, view.get("not_reached")), (200, None));
    assert!(other.link(0, 2).cut && other.link(2, 0).cut);
    // A change may be requested from any of them.
    let (_, shown) = other.ask("GET", "/wan", "").await;
    assert_eq!(shown["links"], view["links"]);
    let delay = r#"{"from":"b","to":"c","delay":"5ms"}"#;
    assert_eq!(one.ask("POST", "/wan", delay).await.0, 200);
    assert_eq!(other.link(1, 2).delay, LinkDelay::from_millis(5, 0));
    assert_eq!(one.ask("POST", "/wan/heal", "").await.0, 200);
    assert!(!other.link(0, 2).cut);
}

#[tokio::test]
async fn a_node_that_starts_asks_what_was_changed() {
    let (one, late) = (world().await, world().await);
    one.ask("POST", "/wan/cut", r#"{"from":"a","to":"b"}"#).await;
    let nodes = [
        (NodeId(1), "dead".to_string(), "127.0.0.1:1".to_string()),
        (NodeId(2), "a1".to_string(), one.server.address().to_string()),
    ];
    let wan = late.admin.wan.clone();
    tokio::task::spawn_blocking(move || ask_others(&Others::new(&of_nodes(), None, nodes), &wan))
        .await
        .unwrap();
    assert!(late.link(0, 1).cut && late.link(1, 0).cut);
    assert_eq!(late.admin.wan.changed_us(SiteId(0), SiteId(2)), 0);
}

/// Both processes know of a cut. One of them ends it while the other is away.
#[tokio::test]
async fn a_node_that_was_not_reached_is_told_again() {
    let (mut one, other) = two_processes().await;
    one.ask("POST", "/wan/cut", r#"{"from":"a","to":"b"}"#).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let node = (NodeId(1), "b1".to_string(), address.to_string());
    one.admin.others = Arc::new(Others::new(&of_nodes(), None, [node]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    one.server = AdminServer::start(listener, one.admin.clone()).unwrap();
    let (_, view) = one.ask("POST", "/wan/heal", "").await;
    assert!(view["not_reached"]["b1"].is_string(), "{view}");
    assert!(other.link(0, 1).cut);
    let listener = TcpListener::bind(address).await.unwrap();
    let _again = AdminServer::start(listener, other.admin.clone()).unwrap();
    let mut watch = other.admin.wan.watch();
    watch.wait_for(|_| !other.link(0, 1).cut).await.unwrap();
}

#[tokio::test]
async fn links_of_a_cluster_that_is_not_ours_are_left_out() {
    let world = world().await;
    let strange = r#"[{"from":"a","to":"x","delay":"1ms","cut":true,"changed_us":9},
                      {"from":"a","to":"b","delay":"soon","cut":true,"changed_us":9},
                      {"from":"a","to":"a","delay":"1ms","cut":true,"changed_us":9}]"#;
    assert_eq!(world.ask("PUT", "/wan/links", strange).await.0, 200);
    assert!(world.admin.wan.links().all(|(_, _, link)| !link.cut));
    assert_eq!(world.ask("PUT", "/wan/links", "7").await.0, 400);
}

#[tokio::test]
async fn the_client_changes_the_wan_too() {
    let world = world().await;
    let link = LinkName {
        from: "a".into(),
        to: "b".into(),
    };
    let delay = SetDelay {
        from: "b".into(),
        to: "a".into(),
        delay: "7ms".into(),
        both: true,
    };
    let view = world
        .client(move |client| {
            client.set_delay(&delay)?;
            client.heal(Some(&link))?;
            client.heal(None)?;
            client.cut(&link)
        })
        .await
        .unwrap();
    assert_eq!(view, WanView::of(&world.admin.wan));
    let ab = WanLink {
        from: "a".into(),
        to: "b".into(),
        delay: "7ms".into(),
        cut: true,
        changed_us: view.links[0].changed_us,
    };
    assert_eq!(view.links[0], ab);
    let nonsense = LinkName {
        from: "a".into(),
        to: "x".into(),
    };
    let error = world
        .client(move |client| client.cut(&nonsense))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(": to: found \"x\"; expected one of the sites a, b, c"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_refused_says_what_was_expected() {
    let world = world().await;
    let before = WanView::of(&world.admin.wan);
    for (path, body, error, expected) in [
        (
            "/wan",
            r#"{"from":"x","to":"b","delay":"1ms"}"#,
            "from: found \"x\"",
            "one of the sites a, b, c",
        ),
        (
            "/wan",
            r#"{"from":"a","to":"a","delay":"1ms"}"#,
            "\"a\" twice",
            "two different sites",
        ),
        (
            "/wan",
            r#"{"from":"a","to":"b","delay":"1"}"#,
            "delay: found \"1\"",
            "a one-way delay such as",
        ),
        (
            "/wan",
            r#"{"from":"a","to":"b"}"#,
            "missing field `delay`",
            "{\"from\": \"a\"",
        ),
        ("/wan", "", "EOF", "{\"from\": \"a\""),
        ("/wan", "[[[[[[", "invalid type", "{\"from\": \"a\""),
        (
            "/wan/cut",
            r#"{"from":"a","to":"b","sometimes":1}"#,
            "unknown field `sometimes`",
            "POST /wan/cut",
        ),
        ("/wan/heal", "null", "invalid type", "POST /wan/heal"),
    ] {
        let (status, answer) = world.ask("POST", path, body).await;
        assert_eq!(status, 400, "{body}");
        assert!(answer["error"].as_str().unwrap().contains(error), "{answer}");
        assert!(
            answer["expected"].as_str().unwrap().contains(expected),
            "{answer}"
        );
    }
    assert_eq!(WanView::of(&world.admin.wan), before, "nothing refused was done");
}

#[tokio::test]
async fn a_route_that_does_not_exist_lists_those_that_do() {
    let world = world().await;
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/metric", 404),
        ("DELETE", "/wan", 405),
    ] {
        let (found, answer) = world.ask(method, path, "").await;
        assert_eq!(found, status);
        assert_eq!(answer["error"], format!("there is no {method} {path}"));
        assert!(
            answer["expected"]
                .as_array()
                .unwrap()
                .contains(&json!("GET /metrics")),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_long_body_is_refused() {
    let world = world().await;
    let (status, answer) = world.ask("POST", "/wan", &" ".repeat(16 * 1024 + 1)).await;
    assert_eq!(
        (status, &answer["expected"]),
        (413, &json!("a body of at most 16384 bytes"))
    );
}

#[tokio::test]
async fn a_web_page_of_elsewhere_is_refused() {
    let world = world().await;
    for (origin, status) in [
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:1", 200),
    ] {
        let (found, _) = world
            .ask_with("POST", "/wan/heal", &format!("origin: {origin}\r\n"), "")
            .await;
        assert_eq!(found, status, "{origin}");
    }
}

#[tokio::test]
async fn a_page_whose_name_was_made_to_point_here_is_refused() {
    let world = world().await;
    let answer = world
        .raw("GET /status HTTP/1.1\r\nhost: evil.example:7101\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("admin_hosts"), "{answer}");
    // Also where there is nothing, and whatever the method is.
    for head in ["GET /nowhere", "PATCH /wan", "CONNECT x:1", "PUT /wan/links"] {
        let request = format!("{head} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
        let answer = world.raw(request).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{head}: {answer}");
    }
    let answer = world
        .raw("GET /healthz HTTP/1.1\r\nhost: any.example\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// The operators have a token. A change with it reaches the other process, which has the same one: nodes tell each other with a token of their own.
#[tokio::test]
async fn with_a_token_it_is_needed_and_nodes_have_their_own() {
    let token: AdminToken = "sixteen-letters.".parse().unwrap();
    let guard = || Arc::new(Guard::new("a1", &secret(), Some(&token), []));
    let (mut one, mut other) = two_processes().await;
    other.admin.guard = guard();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    other.server = AdminServer::start(listener, other.admin.clone()).unwrap();
    let node = (NodeId(1), "b1".to_string(), other.server.address().to_string());
    one.admin.others = Arc::new(Others::new(&of_nodes(), None, [node]));
    one.admin.guard = guard();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    one.server = AdminServer::start(listener, one.admin.clone()).unwrap();

    let (status, answer) = one.ask("POST", "/wan/cut", r#"{"from":"a","to":"b"}"#).await;
    assert_eq!(status, 401, "{answer}");
    assert!(
        answer["error"].as_str().unwrap().contains("without a token"),
        "{answer}"
    );
    let link = LinkName {
        from: "a".into(),
        to: "b".into(),
    };
    let named = link.clone();
    let refused = one.client(move |client| client.cut(&named)).await.unwrap_err();
    assert!(
        matches!(refused, AdminClientError::Refused { status: 401, .. }),
        "{refused}"
    );
    assert!(!one.link(0, 1).cut);
    assert_eq!(one.ask("GET", "/wan", "").await.0, 200);

    let view = one
        .client(move |client| client.with_token(Some(token)).cut(&link))
        .await
        .unwrap();
    assert!(one.link(0, 1).cut, "{view:?}");
    // If the other node does not answer in time, it is told again.
    let mut watch = other.admin.wan.watch();
    watch.wait_for(|_| other.link(0, 1).cut).await.unwrap();
    assert_eq!((one.admin.guard.refused(), other.admin.guard.refused()), (2, 0));
}

#[tokio::test]
async fn rubbish_is_answered_and_ends_nothing() {
    let world = world().await;
    for rubbish in [
        &b"\x00\x01\x02\xff\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
    ] {
        let answer = world.raw(rubbish).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let endless = [b"GET / HTTP/1.1\r\nx: ".to_vec(), vec![b'x'; 1_000_000]].concat();
    assert!(world.raw(endless).await.len() < 1_000);
    assert_eq!(world.ask("GET", "/healthz", "").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_or_stops_halfway_is_ended() {
    let world = world().await;
    for start in [
        "",
        "GET /heal",
        "POST /wan HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{",
    ] {
        let answer = world.raw(start).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
            "{answer}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_idle_after_its_answer_is_ended() {
    let world = world().await;
    let answer = world
        .raw("GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn unfinished_requests_make_room_for_others() {
    let world = world().await;
    let mut kept = TcpStream::connect(world.server.address()).await.unwrap();
    let mut unfinished = Vec::new();
    let parts = [
        "",
        "GET /heal",
        "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        "POST /wan/heal HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{",
    ];
    for number in 0..3 * MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(world.server.address()).await.unwrap();
        stream
            .write_all(parts[number % parts.len()].as_bytes())
            .await
            .unwrap();
        unfinished.push(stream);
        // A connection that sends a request now and then stays open.
        kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            .await
            .unwrap();
        let mut answer = [0; 1024];
        let read = kept.read(&mut answer).await.unwrap();
        assert!(
            answer[..read].starts_with(b"HTTP/1.1 200"),
            "after {number} unfinished ones"
        );
    }
    assert_eq!(world.ask("GET", "/healthz", "").await.0, 200);
    let mut first = String::new();
    let _ = unfinished[0].read_to_string(&mut first).await;
    assert_eq!(first, "", "the oldest was closed");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_frees_its_port_and_ends_idle_connections() {
    let world = world().await;
    let address = world.server.address();
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0];
    idle.read_exact(&mut first).await.unwrap();
    world.server.stop().await;
    let mut rest = String::new();
    let _ = idle.read_to_string(&mut rest).await;
    assert!(
        rest.ends_with("{\"healthy\":true}"),
        "the answer was cut short: {rest}"
    );
    TcpListener::bind(address).await.expect("the port is free");
}

#[tokio::test]
async fn a_client_does_not_wait_longer_than_it_was_told() {
    // The listener never accepts: the system completes the connection, and nothing answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = AdminClient::new(
        silent.local_addr().unwrap().to_string(),
        Duration::from_millis(50),
    );
    let error = client.wan().unwrap_err().to_string();
    assert!(
        error.ends_with("no answer from the admin HTTP: timed out"),
        "{error}"
    );
    drop(silent);
    let error = client.wan().unwrap_err();
    assert!(matches!(error, AdminClientError::Unreachable { .. }), "{error}");
}
