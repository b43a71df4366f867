//! Whether a site has everything that a session has seen and written.
//!
//! A *probe* is a session that is opened here as if it were at that site. It takes what the other session has seen, as a client does that moves there, and reads a
//! key of one partition at the protocol's own level of sessions. The replica answers once it has what the session has seen. Like every
//! answer, this one leaves the replica when everything before it is durable. So no protocol knows of probes.
//!
//! ```text
//!   Wait { sites: 1 } at ant:   probe of bee, partition 0   ----read----> bee/0       reads that fail are asked again
//!                               probe of bee, partition 1   ----read----> bee/1       all of ant and of bee have answered: 1 other site
//!                               probe of cat, partition 0   ----x
//! ```
//!
//! The client's own site is asked, too: while a node of it is away, another site may have taken the writes. The answer is the number of sites
//! that have everything, minus one.
//!
//! A probe never goes to another site than its own, as other sessions do while a node is away. If it is answered from elsewhere all the same, the answer does not count.
//!
//! A message to a channel waits for probes of this site (`messages.rs`). If the protocol has no replica that speaks for a site, as where a leader elsewhere may have
//! to answer, any answer counts for a message.
use crate::{
    doors::{Door, Doors},
    gateway::Answers,
};
use bytes::BytesMut;
use std::collections::BTreeMap;
use turnbuckle_core::{Answer, Failure, Key, Micros, Now, Operation, ReplicaId, Session, SiteId};

/// After what time a read that has failed is asked again.
const AGAIN: Micros = Micros::from_millis(50);

/// A probe of one partition at one site. Its session is that of the door that it belongs to.
pub(crate) struct Probe {
    pub site: SiteId,
    partition: u16,
    asker: Asker,
    /// Whether only its site may answer.
    pub stays: bool,
    /// How often it has asked.
    asked: u64,
}

/// What waits for a probe.
#[derive(Clone, Copy)]
pub(crate) enum Asker {
    /// An operation: its door and tag.
    Wait(u64, u64),
    /// A message to a channel: its number.
    Message(u64),
}

impl Probe {
    pub fn new(site: SiteId, partition: u16, asker: Asker, stays: bool) -> Probe {
        Probe {
            site,
            partition,
            asker,
            stays,
            asked: 0,
        }
    }
}

/// An operation that waits for sites.
pub(crate) struct Waiting {
    /// How many sites are enough, one of them not counted.
    wanted: u16,
    /// How many have everything. All of them are counted.
    reached: u16,
    /// Of each site, how many partitions have not answered.
    missing: BTreeMap<SiteId, usize>,
    /// The doors of its probes, also of those that are done.
    probes: Vec<u64>,
}

impl<S: Session> Doors<S> {
    /// Begins an [`Operation::Wait`].
    pub(crate) fn begin_wait(
        &mut self,
        now: Now,
        (door_number, tag): (u64, u64),
        sites: u16,
        timeout: Option<Micros>,
        answers: &mut Answers,
    ) {
        let Some(door) = self.doors.find(door_number) else {
            return;
        };
        door.await_answer(tag);
        let mut state = BytesMut::new();
        door.session.token(&mut state);
        let state = state.freeze();
        let topology = self.keyspace.topology().clone();
        let partitions_at = |site: SiteId| {
            let here = |replica: ReplicaId| replica.site() == site;
            let replicas = |partition: &u16| topology.replicas_of(*partition).iter().any(here);
            (0..topology.partitions()).filter(replicas).collect::<Vec<u16>>()
        };
        let all = topology.sites().map(|site| (site, partitions_at(site)));
        let all: Vec<(SiteId, Vec<u16>)> = all.filter(|(_, at)| !at.is_empty()).collect();
        let mut waiting = Waiting {
            wanted: sites.min(all.len().saturating_sub(1) as u16),
            reached: 0,
            missing: all.iter().map(|(site, at)| (*site, at.len())).collect(),
            probes: Vec::new(),
        };
        if waiting.wanted == 0 {
            return self.answer(door_number, tag, Answer::Sites(0), None, answers);
        }
        let all = all.into_iter();
        for (site, partition) in
            all.flat_map(|(site, at)| at.into_iter().map(move |partition| (site, partition)))
        {
            let number = self.random_session();
            let mut session = S::open(self.keyspace.protocol(), site, topology.clone(), number);
            let resumed = session.resume(state.clone()).map_err(|why| why.to_string());
            let probe = Probe::new(site, partition, Asker::Wait(door_number, tag), true);
            let opened = resumed.and_then(|()| {
                let number = self.doors.insert(Door::of(number, session, Some(probe)));
                number.ok_or_else(|| "too many clients wait for sites".to_string())
            });
            match opened {
                Ok(number) => waiting.probes.push(number),
                Err(why) => {
                    waiting.probes.into_iter().for_each(|probe| self.forget(probe));
                    let failed = Answer::Failed(Failure::Unavailable(why));
                    return self.answer(door_number, tag, failed, None, answers);
                }
            }
        }
        let probes = waiting.probes.clone();
        self.waits.insert((door_number, tag), waiting);
        if let Some(timeout) = timeout {
            self.wait_ends.set((door_number, tag), now.monotonic + timeout);
        }
        for probe in probes {
            self.ask_probe(now, probe, answers);
        }
    }

    /// Asks a probe's partition.
    pub(crate) fn ask_probe(&mut self, now: Now, number: u64, answers: &mut Answers) {
        let Some(door) = self.doors.find(number) else {
            return;
        };
        let Some(probe) = &mut door.probe else {
            return;
        };
        let tag = probe.asked;
        probe.asked += 1;
        let key = self.probe_keys[usize::from(probe.partition)].clone();
        door.open.push_back((tag, false));
        let at = door.seen_from();
        let mut steps = std::mem::take(&mut self.steps);
        let mut cx = self.shared_state.context(now, at, &mut steps);
        door.session
            .on_operation(&mut cx, tag, Operation::get(key), S::LEVELS.reads[0]);
        self.perform(now, number, &mut steps, answers);
        self.steps = steps;
    }

    /// A probe was answered, by its site or not.
    pub(crate) fn on_probed(&mut self, now: Now, number: u64, is_there: bool, answers: &mut Answers) {
        let Some(probe) = self.doors.find(number).and_then(|door| door.probe.as_ref()) else {
            return;
        };
        if !is_there {
            return self.probe_again.set(number, now.monotonic + AGAIN);
        }
        let (site, asker) = (probe.site, probe.asker);
        self.forget(number);
        let asker = match asker {
            Asker::Wait(door, tag) => (door, tag),
            Asker::Message(message) => return self.on_message_probed(message),
        };
        let Some(waiting) = self.waits.get_mut(&asker) else {
            return;
        };
        let Some(missing) = waiting.missing.get_mut(&site) else {
            return;
        };
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        waiting.reached += 1;
        if waiting.reached > waiting.wanted {
            self.end_wait(now, asker, answers);
        }
    }

    /// Answers an operation that waits for sites.
    pub(crate) fn end_wait(&mut self, now: Now, (door, tag): (u64, u64), answers: &mut Answers) {
        if let Some(reached) = self.forget_wait((door, tag)) {
            self.answer(door, tag, Answer::Sites(reached), None, answers);
            self.advance(now, door, answers);
        }
    }

    /// Ends the probes of an operation. Returns how many sites have everything, minus one; `None` if it does not wait any more.
    pub(crate) fn forget_wait(&mut self, asker: (u64, u64)) -> Option<u16> {
        let waiting = self.waits.remove(&asker)?;
        self.wait_ends.cancel(asker);
        waiting.probes.into_iter().for_each(|probe| self.forget(probe));
        Some(waiting.reached.saturating_sub(1))
    }
}

/// A key of each partition that hardly any client uses.
pub(crate) fn keys_of_partitions(partition_of: impl Fn(&Key) -> u16, partitions: u16) -> Vec<Key> {
    let mut keys = BTreeMap::new();
    // Each partition has slots, and some key has each slot.
    for number in 0_u32.. {
        let key = Key::from(format!("\0probe {number}").as_str());
        keys.entry(partition_of(&key)).or_insert(key);
        if keys.len() == usize::from(partitions) {
            break;
        }
    }
    keys.into_values().collect()
}
