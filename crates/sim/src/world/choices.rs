//! A world whose events are chosen one by one, by the code that explores it.
//!
//! Nothing takes time there: delays and the times of disks are zero, so that everything that is under way is on the calendar as due. What
//! is due may happen in any order, and may wait while time passes. So the choices decide how long a message is under way and how long a
//! node takes for a step. Only a chunk that is behind another one on the same connection has to wait for it.
//!
//! An event that only continues a step at its own node is no choice. It follows at once: a node's frames leave when the node has them, a
//! turn that has nothing to write gives answers, and background work is done where it begins. A sync begins when it is chosen.
use super::{Event, index};
use crate::{World, link, machine::Worker};
use std::cmp::Reverse;
use turnbuckle_core::{Micros, Session};
use turnbuckle_node::{FrameAbout, NodeId};

/// An event that is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    event: Event,
    /// The number of its entry on the calendar.
    sequence: u64,
}

impl<S: Session> World<S> {
    /// The events that may come next, in an order that does not depend on how the world reached its state.
    pub(crate) fn due(&self) -> Vec<Due> {
        self.due_that(|event| !self.follows_at_once(event))
    }

    fn due_that(&self, counts: impl Fn(&Event) -> bool) -> Vec<Due> {
        let entries = self.calendar.iter().map(|Reverse(entry)| entry);
        let mut due: Vec<Due> = entries
            .filter(|entry| {
                entry.at <= self.time && counts(&entry.event) && self.does_something(&entry.event)
            })
            .map(|entry| Due {
                event: entry.event,
                sequence: entry.sequence,
            })
            .collect();
        due.sort_by_key(|due| (due.event, due.sequence));
        // Arrivals on one way look alike, and come in their order.
        due.dedup_by_key(|due| due.event);
        due
    }

    /// Whether an event concerns a process or connection that still exists, and changes anything now.
    fn does_something(&self, event: &Event) -> bool {
        match *event {
            Event::Tick { node, life, deadline } => {
                self.lives(node, life) && self.has_timers_due(node, deadline)
            }
            Event::Turn { node, life }
            | Event::Look { node, life }
            | Event::Work { node, life, .. }
            | Event::Interval { node, life }
            | Event::Operate { node, life, .. } => self.lives(node, life),
            Event::Pump { link, life, .. } | Event::GiveUp { link, life } => self.links[link].life == life,
            Event::Arrive { link, to, life, .. } => {
                let link = &self.links[link];
                link.life == life && link.up[to] && !link.ways[1 - to].chunks.is_empty()
            }
            Event::Notice { link, end, life } => self.links[link].life == life && self.links[link].up[end],
            Event::Connect { link } => {
                let ends = self.ends(link);
                let link = &self.links[link];
                let can = !link.is_cut() && link.broken && link.up == [false, false];
                can && ends.iter().all(|&node| self.machines[node].process.is_some())
            }
            Event::Wake { .. } => true,
        }
    }

    /// Whether an event is no choice.
    fn follows_at_once(&self, event: &Event) -> bool {
        let process = |node: usize| self.machines[node].process.as_ref();
        match *event {
            // With nothing to write, the turn only gives answers that wait.
            Event::Turn { node, .. } => process(node).is_some_and(|process| !process.node.is_dirty()),
            // A sync that has begun continues.
            Event::Work { node, worker, .. } => {
                let has_begun = process(node).is_some_and(|process| process.jobs.contains_key(&worker));
                worker != Worker::Sync || has_begun
            }
            Event::Pump { .. }
            | Event::Look { .. }
            | Event::Interval { .. }
            | Event::Wake { .. }
            | Event::GiveUp { .. }
            | Event::Operate { .. } => true,
            Event::Tick { .. } | Event::Arrive { .. } | Event::Notice { .. } | Event::Connect { .. } => false,
        }
    }

    /// Whether a power loss would take something that the end of the process leaves.
    pub(crate) fn is_unsynced(&self, node: NodeId) -> bool {
        let machine = &self.machines[index(node)];
        !machine.disk.is_synced() || machine.engine.unpersisted_batches() > 0
    }

    fn has_timers_due(&self, node: usize, deadline: Micros) -> bool {
        let now = self.now(node).monotonic;
        let process = self.machines[node].process.as_ref();
        process.is_some_and(|process| {
            let next = process.next_deadline();
            process.due.tick == Some(deadline) && next.is_some_and(|next| next <= now)
        })
    }

    /// Handles the event now, with everything that follows at once.
    pub(crate) fn choose(&mut self, due: Due) {
        self.happen_now(due);
        self.follow_up();
    }

    /// Handles what follows at once, until nothing of that kind is due.
    pub(crate) fn follow_up(&mut self) {
        while let Some(&next) = self.due_that(|event| self.follows_at_once(event)).first() {
            self.happen_now(next);
        }
    }

    fn happen_now(&mut self, due: Due) {
        self.calendar
            .retain(|Reverse(entry)| entry.sequence != due.sequence);
        self.events += 1;
        self.happen(due.event);
    }

    /// Lets time pass. Nothing that is due happens meanwhile.
    pub(crate) fn pass(&mut self, time: Micros) {
        self.time = self.time + time;
        self.follow_up();
    }

    /// The nodes that the event concerns.
    pub(crate) fn nodes_of(&self, due: Due) -> Vec<NodeId> {
        let nodes = match due.event {
            Event::Turn { node, .. }
            | Event::Tick { node, .. }
            | Event::Look { node, .. }
            | Event::Work { node, .. }
            | Event::Interval { node, .. }
            | Event::Operate { node, .. } => vec![node],
            Event::Pump { link, end, .. } | Event::Notice { link, end, .. } => vec![self.ends(link)[end]],
            Event::Arrive { link, to, .. } => vec![self.ends(link)[to]],
            Event::Connect { link } | Event::GiveUp { link, .. } => self.ends(link).to_vec(),
            Event::Wake { client } => vec![index(self.clients[client].node)],
        };
        nodes.into_iter().map(|node| NodeId(node as u16)).collect()
    }

    /// The event, in a few words. Two events that could happen to a node in the same state have different words.
    pub(crate) fn words_of(&self, due: Due) -> String {
        let name = |node: usize| self.node_name(NodeId(node as u16));
        match due.event {
            Event::Turn { node, .. } => format!("{} commits", name(node)),
            Event::Tick { node, .. } => format!("{}: its timers", name(node)),
            Event::Look { node, .. } => format!("{} does its periodic check", name(node)),
            Event::Work {
                node,
                worker: Worker::Sync,
                ..
            } => format!("{} syncs", name(node)),
            Event::Work { node, worker, .. } => format!("{}: background work {worker:?}", name(node)),
            Event::Interval { node, .. } => format!("{}: its interval is over", name(node)),
            Event::Operate { node, id, .. } => format!("{} begins operation {}", name(node), id.0),
            Event::Pump { link, end, .. } => format!("{} fills a link", name(self.ends(link)[end])),
            Event::Arrive { link, to, .. } => {
                let ends = self.ends(link);
                let chunk = self.links[link].ways[1 - to].chunks.front();
                let frames = chunk
                    .map(|chunk| link::frames(chunk.bytes.clone()))
                    .into_iter()
                    .flatten();
                let frames: Vec<String> = frames
                    .map(|frame| {
                        FrameAbout::of(frame).map_or_else(|bad| bad.to_string(), |about| about.words)
                    })
                    .collect();
                format!(
                    "{} receives from {}: {}",
                    name(ends[to]),
                    name(ends[1 - to]),
                    frames.join(", ")
                )
            }
            Event::Notice { link, end, .. } => {
                let ends = self.ends(link);
                format!(
                    "{} notices that its link to {} is gone",
                    name(ends[end]),
                    name(ends[1 - end])
                )
            }
            Event::Connect { link } => {
                let [a, b] = self.ends(link);
                format!("{} and {} connect", name(a), name(b))
            }
            Event::GiveUp { link, .. } => format!("link {link} is given up"),
            Event::Wake { client } => format!("client {client} wakes"),
        }
    }

    /// A checksum of what arrives; 0 for an event that is no arrival.
    pub(crate) fn content_of(&self, due: Due) -> u32 {
        match due.event {
            Event::Arrive { link, to, .. } => {
                let chunk = self.links[link].ways[1 - to].chunks.front();
                chunk.map_or(0, |chunk| crc32c::crc32c(&chunk.bytes))
            }
            _ => 0,
        }
    }
}
