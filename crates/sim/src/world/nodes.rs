//! The events of a node: what the server's loops and threads do.
use super::{Event, LOOK_EVERY, end_of};
use crate::{Loss, Rule, World, machine::Process};
use bytes::Bytes;
use std::sync::Arc;
use turnbuckle_core::{Message as ChannelMessage, Micros, Session};
use turnbuckle_log::LogError;
use turnbuckle_node::{Durability, NodeId, Publication, SyncWish};

impl<S: Session> World<S> {
    pub(super) fn lives(&self, node: usize, life: u64) -> bool {
        self.machines[node].lives == life && self.machines[node].process.is_some()
    }

    pub(super) fn process(&mut self, node: usize) -> &mut Process<S> {
        let process = &mut self.machines[node].process;
        process
            .as_mut()
            .expect("an event of a living process was handed on")
    }

    pub(super) fn want_turn(&mut self, node: usize) {
        let life = self.machines[node].lives;
        if !std::mem::replace(&mut self.process(node).due.turn, true) {
            let after = self.random.span(self.options.turn);
            self.schedule(after, Event::Turn { node, life });
        }
    }

    /// Called after every call into a node: what it asked for is put on the calendar.
    pub(super) fn look_after(&mut self, node: usize) {
        let life = self.machines[node].lives;
        let now = self.now(node);
        let process = self.process(node);
        let (turn, links, work) = (
            process.wakes.take_loop(),
            process.wakes.take_links(),
            process.wakes.take_worker(),
        );
        let sync = process.node.wants_sync() != SyncWish::None;
        let deadline = process.next_deadline();
        if turn {
            self.want_turn(node);
        }
        for other in (0..self.machines.len()).filter(|other| links >> other & 1 == 1) {
            self.want_pump(self.link_of(node, other), end_of(node, other));
        }
        if work {
            self.wake_workers(node);
        }
        if sync {
            self.want_sync(node);
        }
        if let Some(deadline) = deadline
            && deadline < Micros::MAX
            && self.process(node).due.tick.is_none_or(|due| due > deadline)
        {
            self.process(node).due.tick = Some(deadline);
            let after = self.machines[node].clock.true_span(deadline.since(now.monotonic));
            let tick = Event::Tick { node, life, deadline };
            self.schedule(after, tick);
        }
    }

    /// Called after a change outside of the node on which its timers depend.
    pub(super) fn look_after_if_running(&mut self, node: usize) {
        if self.machines[node].process.is_some() {
            self.look_after(node);
        }
    }

    pub(super) fn turn(&mut self, node: usize) {
        let now = self.now(node);
        self.machines[node].look_at_disk_in_turn();
        let process = self.process(node);
        process.due.turn = false;
        let committed = process.node.commit(now);
        let mut answers = Vec::new();
        process.gateway.collect(now, &mut answers);
        let mut heard = Vec::new();
        process.gateway.take_heard(&mut heard);
        self.take_answers(answers);
        self.hear(node, &heard);
        self.look_after(node);
        self.after_log(node, committed);
    }

    /// Clients of a node hear messages.
    fn hear(&mut self, node: usize, heard: &[Arc<Publication>]) {
        let node = NodeId(node as u16);
        let site = self.placement.site_of(node);
        for publication in heard {
            let ChannelMessage { channel, text } = &publication.message;
            self.note(channel);
            self.note(text);
            self.judge.heard(site, text);
            self.heard.push((node, channel.clone(), text.clone()));
        }
    }

    /// The messages that clients of a node have heard, each with its channel, since the last call.
    pub fn take_heard(&mut self, node: NodeId) -> Vec<(Bytes, Bytes)> {
        let heard = std::mem::take(&mut self.heard);
        let (of_node, others) = heard.into_iter().partition(|(of, ..)| *of == node);
        self.heard = others;
        let of_node: Vec<_> = of_node;
        of_node
            .into_iter()
            .map(|(_, channel, text)| (channel, text))
            .collect()
    }

    /// If the log can never be written again, the process ends.
    pub(super) fn after_log(&mut self, node: usize, result: Result<(), LogError>) {
        let Err(error) = result else {
            return;
        };
        let machine = &self.machines[node];
        let is_short = matches!(error, LogError::NotWritten(_)) && machine.space.is_taken;
        if !machine.dying && !machine.disk_has_failed && !is_short {
            let name = self.node_name(NodeId(node as u16));
            let words = format!("the log of node {name} failed, although its disk has no fault: {error}");
            self.judge.report(Rule::Service, words);
        }
        if self.machines[node].dying || matches!(error, LogError::Poisoned(_)) {
            self.crash(NodeId(node as u16), Loss::Process);
        }
    }

    pub(super) fn tick(&mut self, node: usize, deadline: Micros) {
        let now = self.now(node);
        let process = self.process(node);
        // An earlier deadline was put on the calendar later, and its tick has put the next one there.
        if process.due.tick != Some(deadline) {
            return;
        }
        process.due.tick = None;
        let is_due = |deadline: Option<Micros>| deadline.is_some_and(|deadline| deadline <= now.monotonic);
        let (of_replicas, of_sessions) = (
            is_due(process.node.next_deadline()),
            is_due(process.gateway.next_deadline()),
        );
        if of_replicas {
            process.node.tick(now);
        }
        let mut answers = Vec::new();
        if of_sessions {
            process.gateway.collect(now, &mut answers);
            process.gateway.tick(now, &mut answers);
        }
        self.take_answers(answers);
        if of_replicas || of_sessions {
            self.want_turn(node);
        }
        self.look_after(node);
    }

    pub(super) fn look(&mut self, node: usize, life: u64) {
        let now = self.now(node);
        let mut answers = Vec::new();
        self.process(node).gateway.expire(now, &mut answers);
        self.take_answers(answers);
        self.look_at_clocks();
        self.look_at_loss(node);
        let min = self.options.min_free_bytes;
        self.machines[node].space.keep_ballast(min);
        self.machines[node].look_at_disk();
        // A failed write to the log is tried again, as in each turn of a server's loop.
        if self.process(node).node.is_log_failing() {
            self.want_turn(node);
        }
        self.schedule(LOOK_EVERY, Event::Look { node, life });
        self.wake_workers(node);
    }

    pub(super) fn interval(&mut self, node: usize, life: u64) {
        if self.process(node).node.unsynced_bytes() > 0 {
            self.want_sync(node);
        }
        if let Durability::Interval(every) = self.options.durability {
            self.schedule(every, Event::Interval { node, life });
        }
    }
}
