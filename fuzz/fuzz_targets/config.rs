//! Any text as a cluster's configuration: refused with a line that exists, or accepted and then consistent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use turnbuckle_server::config::ClusterConfig;

fuzz_target!(|text: &str| {
    match ClusterConfig::parse(Path::new("/nowhere/cluster.toml"), text) {
        Err(error) => {
            assert!(
                (1..=text.matches('\n').count() + 1).contains(&error.line),
                "{error}"
            );
            assert!(!error.found.is_empty() && !error.expected.is_empty(), "{error}");
        }
        Ok(config) => {
            let mut servers = 0;
            for (node, entry) in config.nodes() {
                assert_eq!(config.node_named(&entry.name), Some(node));
                for (_, server) in config.servers_of(node) {
                    assert_eq!((config.node_of(server), server.site), (node, entry.site));
                    servers += 1;
                }
            }
            let partitions: usize = config
                .keyspaces()
                .map(|(_, keyspace)| usize::from(keyspace.topology.partitions()))
                .sum();
            assert_eq!(servers, partitions * config.sites().len());
            for (from, to) in config.wan.pairs() {
                let delay = config.wan.link(from, to);
                assert_eq!(delay.to_string().parse(), Ok(delay));
            }
        }
    }
});
