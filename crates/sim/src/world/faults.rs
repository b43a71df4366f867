//! Faults, and how they are put right.
use super::{Event, LOOK_EVERY, end_of, index};
use crate::{Loss, Rule, World, link};
use turnbuckle_core::{Key, MemberChange, Membership, Micros, ServerId, Session, SiteId, Wish};
use turnbuckle_node::{Durability, NodeId};
use turnbuckle_store::{Engine, Place};

impl<S: Session> World<S> {
    // ---- processes ------------------------------------------------------------------------------------------

    /// Ends a node's process, with the given loss. If it does not run, nothing happens.
    pub fn crash(&mut self, node: NodeId, loss: Loss) {
        if self.is_running(node) {
            let seed = self.random.bits();
            self.crash_by(node, loss, Some(seed));
        }
    }

    /// The same. Without a seed, a power loss leaves nothing of what was not synced.
    pub(crate) fn crash_by(&mut self, node: NodeId, loss: Loss, seed: Option<u64>) {
        let place = index(node);
        self.log(node, || {
            let words = match loss {
                Loss::Process => "crash",
                Loss::Power => "power fails",
                Loss::Directory => "its directory is lost",
                Loss::Old => "its directory is an old one",
            };
            words.into()
        });
        self.excuse(node, loss);
        self.machines[place].crash(self.time, loss, seed);
        self.lose_clients(node);
        for other in (0..self.machines.len()).filter(|&other| other != place) {
            let link = self.link_of(place, other);
            self.links[link].up[end_of(place, other)] = false;
            self.links[link].ways[end_of(other, place)] = link::Way::default();
            self.break_link(link);
        }
    }

    /// Copies a node's data directory.
    pub fn backup(&mut self, node: NodeId) {
        self.log(node, || "its directory is copied".into());
        let time = self.time;
        self.machines[index(node)].back_up(time);
    }

    /// `kill -9` in the middle of one of the next changes to the log's files, after `changes` more that are completed.
    pub fn crash_within_write(&mut self, node: NodeId, changes: u64) {
        let seed = self.random.bits();
        let machine = &mut self.machines[index(node)];
        if machine.process.is_some() {
            machine.dying = true;
            machine.disk.stop_after(changes, seed);
        }
    }

    /// Starts a process on a node's machine, if none runs there. If the process was to end in the middle of a write and has not written
    /// yet, it ends now.
    pub fn restart(&mut self, node: NodeId) {
        let place = index(node);
        if self.machines[place].dying {
            self.crash(node, Loss::Process);
        }
        if self.machines[place].process.is_some() {
            return;
        }
        self.set_jumped_clock_right(node);
        self.open(node);
    }

    /// A process opens its node again, on what its disk holds. It keeps its clock.
    pub(super) fn open_anew(&mut self, node: NodeId) {
        let machine = &mut self.machines[index(node)];
        let process = machine.process.as_ref();
        let clock = process.map(|process| process.clock.clone());
        machine.kept_clock = clock.filter(|_| self.options.keeps_clocks);
        self.crash(node, Loss::Process);
        self.open(node);
    }

    /// A process opens its node.
    fn open(&mut self, node: NodeId) {
        let place = index(node);
        let had_ballast = self.machines[place].space.has_ballast;
        let started = self.machines[place].start(
            self.time,
            &self.options,
            &self.placement,
            &self.topology,
            &self.protocol,
        );
        if let Err(error) = started {
            // A node cannot be opened on a disk that fails. It also cannot be opened on a full disk if an earlier start has used up the
            // ballast file, or if the log of a keyspace that is left out is to be set aside. It is tried again when the disk is right.
            let machine = &mut self.machines[place];
            machine.fail_to_start();
            let sets_aside = !machine.left_out.is_empty();
            machine.space.has_kept_closed = machine.space.is_taken && (!had_ballast || sets_aside);
            if !machine.disk.sync_fails() && !machine.space.has_kept_closed {
                let name = self.node_name(node);
                self.judge
                    .report(Rule::Service, format!("node {name} does not open: {error}"));
            }
            return;
        }
        self.log(node, || "starts".into());
        self.judge.started(self.placement.site_of(node), self.time);
        if let Some(lost_at) = &mut self.machines[place].lost_at {
            *lost_at = self.time;
        }
        self.look_at_clocks();
        let life = self.machines[place].lives;
        self.schedule(LOOK_EVERY, Event::Look { node: place, life });
        if let Durability::Interval(every) = self.options.durability {
            self.schedule(every, Event::Interval { node: place, life });
        }
        self.want_turn(place);
        self.look_after(place);
        for other in (0..self.machines.len()).filter(|&other| other != place) {
            self.try_link(self.link_of(place, other));
        }
    }

    /// A node's process does nothing for a while, as with a garbage collector, a hypervisor or a debugger.
    pub fn pause(&mut self, node: NodeId, span: Micros) {
        let machine = &mut self.machines[index(node)];
        if machine.process.is_some() {
            machine.paused_until = machine.paused_until.max(self.time + span);
        }
        self.log(node, || format!("pauses for {span}"));
    }

    /// An operator wants the replicas of a node to be voters, learners or nothing in their groups, and tells all nodes: the leaders among their replicas change it. A leader
    /// that knows of no more than `min` voters is not to make them fewer: a group whose only voter loses its rows never serves again.
    pub fn want_members(&mut self, node: NodeId, wanted: Membership, min: usize) {
        for partition in 0..self.topology.partitions() {
            let here = self
                .servers_of(node)
                .into_iter()
                .filter(|server| server.partition == partition);
            let change = |server: ServerId| MemberChange {
                replica: server.replica(),
                wanted,
            };
            let changes: Vec<MemberChange> = here.map(change).collect();
            for node in self.nodes() {
                if wanted == Membership::Voter || self.voters(node, partition) >= min + changes.len() {
                    self.wish(node, Some(partition), Wish::Members(changes.clone()));
                }
            }
        }
    }

    /// The number of voters of a partition, as far as a node knows.
    fn voters(&self, node: NodeId, partition: u16) -> usize {
        let statuses = self.statuses(node).into_iter();
        let mut groups = statuses.flat_map(|status| status.groups);
        groups
            .find(|(of, _)| *of == partition)
            .map_or(0, |(_, group)| group.voters.len())
    }

    /// Whether all replicas of every group are voters, as far as each of them knows. True for protocols without groups.
    pub fn all_vote(&self) -> bool {
        let statuses = self.nodes().flat_map(|node| self.statuses(node));
        let mut groups = statuses.flat_map(|status| status.groups);
        groups.all(|(_, group)| group.voters == group.replicas && group.outgoing.is_empty())
    }

    /// The replicas of a node are told what is wanted of them: that of one partition, or all.
    pub fn wish(&mut self, node: NodeId, partition: Option<u16>, wish: Wish) {
        let place = index(node);
        if !self.is_running(node) || self.machines[place].paused_until > self.time {
            return;
        }
        let now = self.now(place);
        self.process(place).node.wish(now, None, partition, wish);
        self.want_turn(place);
        self.look_after(place);
    }

    /// A paused process goes on.
    pub fn resume(&mut self, node: NodeId) {
        self.machines[index(node)].paused_until = Micros(0);
    }

    /// Sets the time that work on a partition takes, in percent of the usual. It has an effect only if work takes time
    /// ([`crate::WorldOptions::cores`]).
    pub fn set_slow_partition(&mut self, partition: u16, percent: u64) {
        match percent {
            100 => self.slow_partitions.remove(&partition),
            _ => self.slow_partitions.insert(partition, percent),
        };
    }

    pub(super) fn slow_percent(&self, partition: u16) -> u64 {
        self.slow_partitions.get(&partition).copied().unwrap_or(100)
    }

    /// Sets the additional delay with which a node's frames leave: the process is slow to send, whatever it is asked.
    pub fn set_late(&mut self, node: NodeId, by: Micros) {
        self.machines[index(node)].late = by;
    }

    // ---- links ----------------------------------------------------------------------------------------------

    /// Cuts or heals the way between two nodes.
    pub fn set_cut(&mut self, a: NodeId, b: NodeId, cut: bool) {
        let link = self.link_of(index(a), index(b));
        for road in &mut self.links[link].roads {
            road.cut = cut;
        }
        match cut {
            true => self.break_link(link),
            false => self.release(link),
        }
    }

    /// Cuts or heals the ways between all nodes of two sites.
    pub fn set_sites_cut(&mut self, a: SiteId, b: SiteId, cut: bool) {
        for &left in self.placement.clone().nodes_at(a) {
            for &right in self.placement.clone().nodes_at(b) {
                self.set_cut(left, right, cut);
            }
        }
    }

    /// Cuts or heals the way from one node to another, but not the way back. What is sent into the cut waits, as with TCP, until the way is
    /// healed or the connection is given up.
    pub fn set_one_way_cut(&mut self, from: NodeId, to: NodeId, cut: bool) {
        let (link, end) = self.way(from, to);
        self.links[link].roads[end].cut = cut;
        if cut {
            let life = self.links[link].life;
            let after = self.random.span(self.options.give_up);
            self.schedule(after, Event::GiveUp { link, life });
        } else {
            self.release(link);
        }
    }

    /// Sets the time that frames take from one node to another, in percent of the usual.
    pub fn set_slow_link(&mut self, from: NodeId, to: NodeId, percent: u64) {
        let (link, end) = self.way(from, to);
        self.links[link].roads[end].slow_percent = percent;
    }

    /// Sets how many more frames than usual are lost from one node to another, of a million that may be lost.
    pub fn set_loss(&mut self, from: NodeId, to: NodeId, ppm: u64) {
        let (link, end) = self.way(from, to);
        self.links[link].roads[end].loss_ppm = ppm;
    }

    fn way(&self, from: NodeId, to: NodeId) -> (usize, usize) {
        let (from, to) = (index(from), index(to));
        (self.link_of(from, to), end_of(from, to))
    }

    // ---- clocks ---------------------------------------------------------------------------------------------

    /// Sets a node's wall clock forward or back.
    pub fn step_clock(&mut self, node: NodeId, by_us: i64) {
        self.log(node, || format!("the clock is set by {by_us} us"));
        self.machines[index(node)].clock.step(by_us);
        self.look_at_clocks();
    }

    /// Sets a node's wall clock off by `by_us`, until [`World::set_jumped_clock_right`] is called or a process starts there.
    pub fn jump_clock(&mut self, node: NodeId, by_us: i64) {
        self.machines[index(node)].jumped_us += by_us;
        self.step_clock(node, by_us);
    }

    /// Sets a clock that has jumped right again.
    pub fn set_jumped_clock_right(&mut self, node: NodeId) {
        let by_us = std::mem::take(&mut self.machines[index(node)].jumped_us);
        if by_us != 0 {
            self.step_clock(node, -by_us);
        }
    }

    /// From now on a node's clocks run too fast, by this number of microseconds per second.
    pub fn set_clock_drift(&mut self, node: NodeId, ppm: i64) {
        self.machines[index(node)].clock.set_drift(self.time, ppm);
        self.look_at_clocks();
        self.look_after_if_running(index(node));
    }

    /// Sets the bound that a node is told for its clock.
    pub fn set_clock_bound(&mut self, node: NodeId, bound: Micros) {
        self.machines[index(node)].clock.set_bound(bound);
        self.look_at_clocks();
    }

    /// Proofs rest on what nodes are told of their clocks. Once true time is not within that, receipts are not judged any more. A clock
    /// that jumps is no excuse: its node is told of an interval that includes both times.
    pub(super) fn look_at_clocks(&mut self) {
        let time = self.time;
        if !self
            .machines
            .iter()
            .all(|machine| machine.is_told_the_truth(time))
        {
            self.judge.distrust_clocks();
        }
    }

    // ---- disks ----------------------------------------------------------------------------------------------

    /// Sets the time that a node's disk takes to sync, in percent of the usual.
    pub fn set_slow_disk(&mut self, node: NodeId, percent: u64) {
        let usual = self.options.disk_percents.get(index(node)).copied();
        self.machines[index(node)].slow_disk_percent = percent.saturating_mul(usual.unwrap_or(100)) / 100;
    }

    /// Sets whether a node's disk fails to sync. A process that meets this ends.
    pub fn set_sync_fails(&mut self, node: NodeId, fails: bool) {
        let machine = &mut self.machines[index(node)];
        machine.disk_has_failed |= fails;
        machine.disk.set_sync_fails(fails);
    }

    /// Damages the row of a key on a node's disk. Returns whether there was one.
    pub fn damage_key(&mut self, node: NodeId, key: &Key) -> bool {
        self.log(node, || format!("the row of {key} is damaged"));
        self.machines[index(node)].engine.damage_key(key.as_ref()) > 0
    }

    /// Damages some neighbouring rows on a node's disk, from a place on that is drawn.
    pub fn damage(&mut self, node: NodeId, rows: u64) {
        self.log(node, || "some rows are damaged".into());
        let from = Place(self.random.bits() >> 2);
        let engine = &self.machines[index(node)].engine;
        engine.damage_block(from, rows as usize);
    }

    /// Finds damage on a node's disk that was not noticed: the node is started again, and looks through its tables first.
    pub fn find_damage(&mut self, node: NodeId) {
        let engine = &self.machines[index(node)].engine;
        if engine.is_damaged() && engine.suspect().is_ok() && self.machines[index(node)].process.is_some() {
            self.crash(node, Loss::Process);
            self.restart(node);
        }
    }

    /// Another file takes all of a node's disk except for this number of bytes, unless one has done so already. The node sees that when it
    /// looks.
    pub fn fill_disk(&mut self, node: NodeId, free_bytes: u64) {
        if !self.machines[index(node)].space.is_taken {
            self.log(node, || {
                format!("other programs fill its disk up to {free_bytes} bytes")
            });
            self.machines[index(node)].space.take_all_but(free_bytes);
        }
    }

    /// The other file is gone. A node that could not be opened because of missing space is started.
    pub fn make_room(&mut self, node: NodeId) {
        self.log(node, || "its disk has room again".into());
        let space = &mut self.machines[index(node)].space;
        space.make_room();
        if std::mem::take(&mut space.has_kept_closed) {
            self.restart(node);
        }
    }
}
