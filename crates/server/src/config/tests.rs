use super::*;
use crate::wan::LinkDelay;
use proptest::prelude::*;
use std::collections::BTreeMap;
use turnbuckle_core::{Level, ServerId};

const GOOD: &str = r#"
cluster = "shop"
secret = "a secret of 16 bytes or more"

[[site]]
name = "eu-west"
[[site]]
name = "us"

[[node]]
name = "e1"
site = "eu-west"
resp = "127.0.0.1:7001"
peer = "127.0.0.1:7201"
admin = "127.0.0.1:7101"
data = "data/e1"
[[node]]
name = "u1"
site = "us"
resp = "us1.example.com:7001"
peer = "us1.example.com:7201"
admin = "us1.example.com:7101"
data = "/var/lib/turnbuckle"
loops = 2
[[node]]
name = "u2"
site = "us"
resp = "us2.example.com:7001"
peer = "us2.example.com:7201"
admin = "us2.example.com:7101"
data = "/var/lib/turnbuckle"

[[keyspace]]
name = "carts"
protocol = "causal"
partitions = 3
read = "eventual"
[[keyspace]]
name = "likes"
protocol = "eventual"
partitions = 2
durability = "fsync"
default = true

[limits]
max_clients = 10

[wan]
eu-west-us = "40ms~4ms"
"us->eu-west" = "50ms"
"#;

fn good() -> ClusterConfig {
    ClusterConfig::parse(Path::new("etc/cluster.toml"), GOOD).unwrap()
}

#[test]
fn what_the_file_says_is_what_it_means() {
    let config = good();
    assert_eq!(
        (config.name.as_str(), config.sites()),
        ("shop", &["eu-west".into(), "us".into()][..])
    );
    let u1 = config.node(config.node_named("u1").unwrap());
    assert_eq!(
        (u1.site, u1.loops, u1.resp.to_string()),
        (SiteId(1), 2, "us1.example.com:7001".into())
    );
    let likes = config.keyspace(config.default_keyspace());
    assert_eq!(
        (likes.name.as_str(), likes.durability),
        ("likes", Durability::Fsync)
    );
    let carts = config.keyspace(config.keyspace_named("carts").unwrap());
    assert_eq!(
        (carts.topology.partitions(), carts.durability),
        (3, Durability::default())
    );
    assert_eq!(
        config.limits,
        Limits {
            max_clients: 10,
            ..Limits::default()
        }
    );
    assert_eq!(config.node_named("x"), None);
    assert_eq!(config.keyspace_named("x"), None);
}

#[test]
fn a_relative_directory_starts_at_the_file() {
    let config = good();
    assert_eq!(config.node(NodeId(0)).data, Path::new("etc/data/e1"));
    assert_eq!(config.node(NodeId(1)).data, Path::new("/var/lib/turnbuckle"));
}

#[test]
fn a_single_direction_wins_over_both_and_names_may_have_hyphens() {
    let wan = good().wan;
    assert_eq!(wan.link(SiteId(0), SiteId(1)), LinkDelay::from_millis(40, 4));
    assert_eq!(wan.link(SiteId(1), SiteId(0)), LinkDelay::from_millis(50, 0));
}

#[test]
fn without_a_default_a_new_connection_is_in_the_first_keyspace() {
    let text = GOOD.replace("default = true", "default = false");
    let config = ClusterConfig::parse(Path::new("c.toml"), &text).unwrap();
    assert_eq!(config.keyspace(config.default_keyspace()).name, "carts");
}

#[test]
fn the_secret_may_be_in_a_file_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("s"), "a secret of 16 bytes or more\r\n").unwrap();
    let text = GOOD.replace("secret = \"a secret of 16 bytes or more\"", "secret_file = \"s\"");
    let config = ClusterConfig::parse(&directory.path().join("c.toml"), &text).unwrap();
    let header = turnbuckle_core::TokenHeader {
        cluster: "shop".into(),
        keyspace: "carts".into(),
    };
    let token = header.seal(&good().secret, b"state");
    header
        .open(&config.secret, &token)
        .expect("both are the same secret, without the line end");
}

#[test]
fn the_secret_is_never_printed() {
    assert!(!format!("{:?}", good()).contains("a secret of"));
    for line in [
        "secret = 987654321987654321",
        "secret = a987654321",
        "secret = \"987654321\"",
        "secret = [987654321]",
    ] {
        let text = GOOD.replace("secret = \"a secret of 16 bytes or more\"", line);
        let error = ClusterConfig::parse(Path::new("c.toml"), &text).unwrap_err();
        assert!(!error.to_string().contains("987654321"), "{error}");
        assert_eq!(error.line, 3);
    }
}

/// Each server is placed on one node of its own site, and the partitions of a site are spread evenly.
#[test]
fn every_server_stands_on_one_node_of_its_site() {
    let (config, mut held) = (good(), BTreeMap::new());
    let placement = config.placement();
    for (id, keyspace) in config.keyspaces() {
        for site in keyspace.topology.sites() {
            let nodes = config.nodes_of(site);
            let per_node = usize::from(keyspace.topology.partitions()).div_ceil(nodes.len());
            for partition in 0..keyspace.topology.partitions() {
                let server = ServerId {
                    site,
                    partition,
                    member: 0,
                };
                let node = placement.node_of(server);
                assert_eq!(config.node(node).site, site);
                *held.entry((id, node)).or_insert(0) += 1;
            }
            for &node in nodes {
                let count = held.get(&(id, node)).copied().unwrap_or(0);
                assert!(count <= per_node, "{count} of {per_node}");
            }
        }
    }
}

#[test]
fn the_layout_is_what_nodes_must_agree_on_and_nothing_else() {
    let layout = good().layout();
    assert_eq!(layout, "sites eu-west us; nodes e1@eu-west u1@us u2@us");
    let terms: Vec<String> = good()
        .terms()
        .iter()
        .map(|terms| format!("{}: {terms}", terms.name))
        .collect();
    assert_eq!(
        terms,
        [
            "carts: protocol causalspartanx and 3 partitions",
            "likes: protocol eventual and 2 partitions"
        ]
    );
    let text = GOOD
        .replace("7001", "7009")
        .replace("fsync", "none")
        .replace("\"causal\"", "\"causalspartanx\"")
        .replace("= 10", "= 11");
    assert_eq!(
        ClusterConfig::parse(Path::new("c"), &text).unwrap().layout(),
        layout
    );
}

fn demo(sites: &[&str]) -> Demo {
    Demo {
        cluster: "demo".into(),
        secret: "0123456789abcdef \"\\ \u{e9}".into(),
        ports: DemoPorts::block(7001, sites.len()).unwrap(),
        partitions: 2,
        keyspaces: vec![DemoKeyspace::of("eventual"), DemoKeyspace::of("causal")],
        data_root: "some/where".into(),
        loops: 1,
        wan: WanDelays::demo(sites.iter().copied()),
        limits: Limits {
            max_clients: 7,
            ..Limits::default()
        },
    }
}

#[test]
fn the_demo_goes_through_the_same_checks() {
    let demo = demo(&["a", "b", "c"]);
    let config = demo.config().unwrap();
    assert_eq!(
        (config.wan.clone(), config.limits),
        (demo.wan.clone(), demo.limits)
    );
    let b1 = config.node(config.node_named("b1").unwrap());
    assert_eq!(
        [&b1.resp, &b1.admin, &b1.peer].map(Address::to_string),
        ["127.0.0.1:7002", "127.0.0.1:7102", "127.0.0.1:7202"]
    );
    assert_eq!(b1.data, Path::new("some/where/b1"));
    assert_eq!(config.keyspace(config.default_keyspace()).name, "eventual");

    let mut wrong = demo.clone();
    wrong.keyspaces[0].protocol = "eventually".into();
    let error = wrong.config().unwrap_err();
    assert_eq!(error.field, "keyspace[eventual].protocol");
    assert!(
        error.expected.starts_with("one of the protocols abd, causal, "),
        "{error}"
    );
    let mut wrong = demo;
    wrong.ports[1].peer = wrong.ports[0].resp;
    assert_eq!(wrong.config().unwrap_err().field, "node[b1].peer");
}

#[test]
fn a_keyspace_has_a_default_level_of_its_own_for_reads_and_for_writes() {
    let config = good();
    let carts = config.keyspace(config.keyspace_named("carts").unwrap()).levels;
    assert_eq!((carts.read, carts.write), (Level::Eventual, Level::Causal));
    let likes = config.keyspace(config.default_keyspace()).levels;
    assert_eq!((likes.read, likes.write), (Level::Eventual, Level::Eventual));
    for wrong in ["linearizable", "bounded(2s)", "eventually", ""] {
        let text = GOOD.replace("read = \"eventual\"", &format!("write = \"{wrong}\""));
        let error = ClusterConfig::parse(Path::new("cluster.toml"), &text).unwrap_err();
        assert_eq!(error.field, "keyspace[carts].write", "{error}");
        assert_eq!(
            error.expected,
            "a level that causalspartanx offers: causal, eventual"
        );
    }
}

#[test]
fn a_keyspace_refuses_conditional_writes_unless_it_says_that_one_site_decides() {
    let of = |text: &str| {
        let config = ClusterConfig::parse(Path::new("cluster.toml"), text).expect("it is right");
        config
            .keyspaces()
            .map(|(_, keyspace)| keyspace.conditional)
            .collect::<Vec<_>>()
    };
    use Conditional::{Refuse, Site};
    assert_eq!(of(GOOD), [Refuse, Refuse]);
    let site = GOOD.replace("read = \"eventual\"", "conditional = \"site\"");
    assert_eq!(of(&site), [Site, Refuse]);
    let refuse = GOOD.replace("read = \"eventual\"", "conditional = \"refuse\"");
    assert_eq!(of(&refuse), [Refuse, Refuse]);
}

#[test]
fn a_block_of_ports_ends_at_the_last_port() {
    assert_eq!(DemoPorts::block(65_333, 3).unwrap()[2].peer, 65_535);
    assert_eq!(DemoPorts::block(65_334, 3), None);
    assert_eq!(DemoPorts::block(0, 3), None);
    assert_eq!(DemoPorts::block(7001, 101), None);
}

#[test]
fn the_defaults_are_within_their_own_bounds() {
    let lines: String = Limits::default()
        .entries()
        .iter()
        .map(|(name, value, _)| format!("{name} = {value}\n"))
        .collect();
    let text = GOOD.replace("max_clients = 10\n", &lines);
    let config = ClusterConfig::parse(Path::new("c.toml"), &text).unwrap();
    assert_eq!(config.limits, Limits::default());
}

#[test]
fn a_file_of_delays_is_read_like_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wan.toml");
    let sites = ["a".to_owned(), "b".to_owned()];
    std::fs::write(&file, "a-b = \"5ms\"\n").unwrap();
    let delays = read_wan_file(&file, &sites).unwrap();
    assert_eq!(delays.link(SiteId(1), SiteId(0)), LinkDelay::from_millis(5, 0));
    std::fs::write(&file, "# nothing\na-c = \"5ms\"\n").unwrap();
    let Err(ConfigError::Wrong(error)) = read_wan_file(&file, &sites) else {
        panic!("a-c was accepted")
    };
    assert_eq!((error.line, error.field.as_str()), (2, "a-c"));
}

#[test]
fn a_file_without_end_is_not_read_to_its_end() {
    for file in ["/dev/zero", "/"] {
        let error = ClusterConfig::read(Path::new(file)).unwrap_err();
        assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("large.toml");
    std::fs::write(&file, " ".repeat(1024 * 1024 + 1)).unwrap();
    let error = ClusterConfig::read(&file).unwrap_err();
    assert!(
        error.to_string().ends_with("larger than 1048576 bytes"),
        "{error}"
    );
}

proptest! {
    /// One place of a good file is replaced by rubbish. The file is still good, or is refused with a line that exists.
    #[test]
    fn a_damaged_file_is_refused_with_a_line_that_exists(
        place in 0..GOOD.len(),
        cut in 0..40usize,
        rubbish in "[\\[\\]{}=\"'.#\n a-z0-9>-]{0,6}",
    ) {
        let mut text = GOOD.as_bytes().to_vec();
        let end = (place + cut).min(text.len());
        text.splice(place..end, rubbish.into_bytes());
        let text = String::from_utf8(text).unwrap();
        if let Err(error) = ClusterConfig::parse(Path::new("c.toml"), &text) {
            prop_assert!((1..=text.lines().count() + 1).contains(&error.line), "{}", error);
            prop_assert!(!error.found.is_empty() && !error.expected.is_empty());
        }
    }
}
