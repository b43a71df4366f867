//! The keyspaces of a world: several of one protocol. A node may have only some of them.
//!
//! A client belongs to one keyspace. No key is in two keyspaces, so that one judge, and one checker, can look at all of them: the keys of
//! the second keyspace begin with `2/`, those of the third with `3/`.
use crate::{World, WorldOptions, machine::Machine, world::index};
use turnbuckle_core::{Key, Session};
use turnbuckle_node::{KeyspaceTerms, NodeId};

/// The name of a keyspace.
pub(crate) fn name_of(keyspace: usize) -> String {
    match keyspace {
        0 => "world".to_string(),
        keyspace => format!("world{}", keyspace + 1),
    }
}

/// The key of a keyspace with this rest of its name.
pub(crate) fn key_in(keyspace: usize, rest: &str) -> Key {
    match keyspace {
        0 => Key::from(rest),
        keyspace => Key::from(format!("{}/{rest}", keyspace + 1).as_str()),
    }
}

/// The keyspace that a key is in.
pub(crate) fn keyspace_of(options: &WorldOptions, key: &Key) -> usize {
    let text = std::str::from_utf8(key.as_ref()).unwrap_or_default();
    let number = text.split_once('/').and_then(|(number, _)| number.parse().ok());
    match number {
        Some(number @ 2_usize..) if number <= options.keyspaces => number - 1,
        _ => 0,
    }
}

impl<S: Session> Machine<S> {
    /// The keyspaces in its configuration.
    pub fn configured(&self, options: &WorldOptions) -> impl Iterator<Item = usize> {
        (0..options.keyspaces).filter(|keyspace| !self.left_out.contains(keyspace))
    }

    /// What the node tells its peers of its keyspaces.
    pub fn terms(&self, options: &WorldOptions) -> Vec<KeyspaceTerms> {
        let terms = |keyspace| KeyspaceTerms {
            name: name_of(keyspace),
            protocol: "simulated".to_string(),
            partitions: options.partitions.into(),
            members: options.members.clone(),
            replica_sites: options.replica_sites.map(u32::from),
        };
        self.configured(options).map(terms).collect()
    }
}

impl<S: Session> World<S> {
    /// Takes a keyspace out of a node's configuration, or puts it back, and restarts the node. If the node does not run, the change takes
    /// effect when it starts. A node keeps at least one keyspace.
    ///
    /// # Panics
    /// If there is no such keyspace.
    pub fn leave_out(&mut self, node: NodeId, keyspace: usize, out: bool) {
        assert!(keyspace < self.options.keyspaces, "a keyspace of this world");
        let is_last = self.machines[index(node)]
            .configured(&self.options)
            .eq([keyspace]);
        let left_out = &mut self.machines[index(node)].left_out;
        let is_new = match out {
            true => !is_last && left_out.insert(keyspace),
            false => left_out.remove(&keyspace),
        };
        if is_new && self.is_running(node) {
            self.log(node, || {
                format!("its configuration changes: {}", name_of(keyspace))
            });
            self.crash(node, crate::Loss::Process);
            self.restart(node);
        }
    }

    /// Whether a node runs and serves a keyspace.
    pub fn serves(&self, node: NodeId, keyspace: usize) -> bool {
        let process = self.machines[index(node)].process.as_ref();
        process.is_some_and(|process| process.keyspaces.contains_key(&keyspace))
    }

    /// Whether a client's node runs, and serves its keyspace.
    pub fn is_served(&self, client: usize) -> bool {
        self.serves(self.node_of_client(client), self.keyspace_of_client(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Micros;

    #[test]
    fn a_key_is_in_one_keyspace() {
        let mut options = WorldOptions::plain(["a"], Micros(0));
        options.keyspaces = 3;
        for keyspace in 0..3 {
            assert_eq!(keyspace_of(&options, &key_in(keyspace, "k7")), keyspace);
        }
        for key in ["1/x", "4/x", "0/x", "x/2", "/", "2", "-2/x"] {
            assert_eq!(keyspace_of(&options, &Key::from(key)), 0, "{key}");
        }
        options.keyspaces = 1;
        assert_eq!(keyspace_of(&options, &Key::from("2/x")), 0);
    }
}
