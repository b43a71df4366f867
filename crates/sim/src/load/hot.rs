//! Few keys in each partition, which all clients use.
use super::Clients;
use bytes::Bytes;
use turnbuckle_core::{Key, Operation, Topology};

/// Few keys in each partition. The first clients at each node write: one partition after the other, each time one of its keys. So a
/// writer's next write depends on its last one, which another partition holds. The other clients read any key, or any several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hot {
    /// The number of keys of each partition.
    pub keys_per_partition: u64,
    /// The length of a value, in bytes.
    pub value_bytes: u64,
    /// The number of clients at each node that write.
    pub writers_per_node: usize,
    /// The percentage of reads that are of several keys.
    pub many_percent: u64,
    /// The number of keys of such a read, all different.
    pub many_keys: u64,
    /// The partition that is counted apart: reads of several keys that touch it are counted by themselves.
    pub apart: Option<u16>,
}

impl Hot {
    /// The keys of each partition: the first names that belong to it.
    pub(super) fn keys(self, topology: &Topology) -> Vec<Vec<Key>> {
        let partitions = usize::from(topology.partitions());
        let mut keys: Vec<Vec<Key>> = vec![Vec::new(); partitions];
        let mut missing = self.keys_per_partition.saturating_mul(partitions as u64);
        for number in 0_u64.. {
            if missing == 0 {
                break;
            }
            let key = Key::from(format!("hot{number}").as_str());
            let of = &mut keys[usize::from(topology.partition_of_slot(key.slot()))];
            if (of.len() as u64) < self.keys_per_partition {
                of.push(key);
                missing -= 1;
            }
        }
        keys
    }
}

impl Clients {
    /// The next operation of a client.
    pub(super) fn hot(&mut self, hot: Hot, number: usize) -> Operation {
        if number / self.nodes.len() < hot.writers_per_node {
            return self.hot_write(hot, number);
        }
        let level = self.load.read;
        match self.random.percent(hot.many_percent) {
            true => Operation::ReadMany {
                keys: self.some_hot_keys(hot.many_keys),
                level,
            },
            false => Operation::Get {
                key: self.hot_key(),
                level,
            },
        }
    }

    fn hot_write(&mut self, hot: Hot, number: usize) -> Operation {
        let client = &mut self.all[number];
        let partition = (client.rounds % self.hot_keys.len() as u64) as usize;
        client.rounds += 1;
        self.written += 1;
        let mut value = format!("w{} ", self.written).into_bytes();
        value.resize((hot.value_bytes as usize).max(value.len()), b'.');
        let key = self.random.pick(&self.hot_keys[partition]).clone();
        Operation::put(key, Bytes::from(value)).at(self.load.write)
    }

    fn hot_key(&mut self) -> Key {
        let partition = self.random.below(self.hot_keys.len() as u64) as usize;
        self.random.pick(&self.hot_keys[partition]).clone()
    }

    /// `count` different hot keys. There are at least that many: the scenario was checked.
    fn some_hot_keys(&mut self, count: u64) -> Vec<Key> {
        let mut all: Vec<&Key> = self.hot_keys.iter().flatten().collect();
        let count = (count as usize).min(all.len());
        // The first steps of a shuffle.
        for place in 0..count {
            let other = place + self.random.below((all.len() - place) as u64) as usize;
            all.swap(place, other);
        }
        all[..count].iter().map(|&key| key.clone()).collect()
    }
}
