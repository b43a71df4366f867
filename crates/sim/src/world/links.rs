//! What happens on a link: connections are made, carry chunks of frames in order, and break.
use super::Event;
use crate::{
    World,
    link::{self, WAY_BYTES},
};
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{Micros, Session};
use turnbuckle_node::NodeId;

impl<S: Session> World<S> {
    pub(super) fn link_of(&self, a: usize, b: usize) -> usize {
        a.min(b) * self.machines.len() + a.max(b)
    }

    /// The nodes at the ends of a link.
    pub(super) fn ends(&self, link: usize) -> [usize; 2] {
        [link / self.machines.len(), link % self.machines.len()]
    }

    pub(super) fn delay(&mut self, from: usize, to: usize) -> Micros {
        let (from, to) = (self.machines[from].site, self.machines[to].site);
        let least = self.options.delays[usize::from(from.0)][usize::from(to.0)];
        least + Micros(self.random.of(0..=self.options.jitter.0))
    }

    pub(super) fn try_link(&mut self, link: usize) {
        let [a, b] = self.ends(link);
        let state = &mut self.links[link];
        if state.cut || !state.broken || state.up != [false, false] || state.trying {
            return;
        }
        if self.machines[a].process.is_some() && self.machines[b].process.is_some() {
            self.links[link].trying = true;
            let after = self.random.span(self.options.backoff);
            self.schedule(after, Event::Connect { link });
        }
    }

    pub(super) fn connect(&mut self, link: usize) {
        let ends = self.ends(link);
        self.links[link].trying = false;
        let running = ends.iter().all(|&node| self.machines[node].process.is_some());
        let state = &mut self.links[link];
        if !running || state.cut || !state.broken || state.up != [false, false] {
            return;
        }
        state.life += 1;
        state.broken = false;
        state.up = [true, true];
        state.ways = Default::default();
        for (end, &node) in ends.iter().enumerate() {
            let (now, peer) = (self.now(node), NodeId(ends[1 - end] as u16));
            self.process(node).node.link_up(now, peer);
            self.want_pump(link, end);
            self.want_turn(node);
            self.look_after(node);
        }
    }

    /// Nothing new gets on the connection; each end notices in its own time. What arrives before that, arrives.
    pub(super) fn break_link(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].broken, true) {
            return;
        }
        let (ends, life) = (self.ends(link), self.links[link].life);
        for end in 0..2 {
            if self.links[link].up[end] {
                let most = match self.options.jitter.0 {
                    0 => 0,
                    _ => self.delay(ends[1 - end], ends[end]).0,
                };
                let after = Micros(self.random.of(0..=most));
                self.schedule(after, Event::Notice { link, end, life });
            }
        }
        self.try_link(link);
    }

    pub(super) fn notice(&mut self, link: usize, end: usize) {
        if !std::mem::replace(&mut self.links[link].up[end], false) {
            return;
        }
        let ends = self.ends(link);
        self.links[link].ways[1 - end] = link::Way::default();
        let (now, peer) = (self.now(ends[end]), NodeId(ends[1 - end] as u16));
        self.process(ends[end]).node.link_down(now, peer);
        self.want_turn(ends[end]);
        self.look_after(ends[end]);
        self.try_link(link);
    }

    pub(super) fn want_pump(&mut self, link: usize, end: usize) {
        let state = &mut self.links[link];
        if state.up[end] && !std::mem::replace(&mut state.ways[end].due, true) {
            let life = state.life;
            let after = self.random.span(self.options.turn);
            self.schedule(after, Event::Pump { link, end, life });
        }
    }

    /// A node is asked for frames, as many as the connection takes.
    pub(super) fn pump(&mut self, link: usize, end: usize) {
        let ends = self.ends(link);
        let (from, to) = (ends[end], ends[1 - end]);
        self.links[link].ways[end].due = false;
        if !self.links[link].up[end] {
            return;
        }
        let mut more = true;
        while more && self.links[link].ways[end].bytes < WAY_BYTES {
            let mut out = BytesMut::new();
            let (node, most) = (&self.process(from).node.clone(), self.options.chunk_bytes);
            more = node.fill(NodeId(to as u16), &mut out, most);
            let Some(chunk) = link::chunk(out) else { break };
            self.send(link, end, chunk);
        }
        self.links[link].ways[end].more = more;
        self.look_after(from);
    }

    pub(super) fn send(&mut self, link: usize, end: usize, chunk: Bytes) {
        let ends = self.ends(link);
        let delay = self.delay(ends[end], ends[1 - end]);
        if self.links[link].broken {
            return;
        }
        let life = self.links[link].life;
        let way = &mut self.links[link].ways[end];
        way.last_arrival = way.last_arrival.max(self.time + delay);
        way.bytes += chunk.len();
        way.chunks.push_back(chunk);
        let after = way.last_arrival.since(self.time);
        self.schedule(
            after,
            Event::Arrive {
                link,
                to: 1 - end,
                life,
            },
        );
    }

    pub(super) fn arrive(&mut self, link: usize, to: usize) {
        let ends = self.ends(link);
        let (here, peer) = (ends[to], NodeId(ends[1 - to] as u16));
        let way = &mut self.links[link].ways[1 - to];
        let Some(chunk) = way.chunks.pop_front() else {
            return;
        };
        way.bytes -= chunk.len();
        if way.more {
            self.want_pump(link, 1 - to);
        }
        if !self.links[link].up[to] {
            return;
        }
        self.note(&chunk);
        let now = self.now(here);
        for frame in link::frames(chunk) {
            let handled = self.process(here).node.handle_frame(now, peer, frame);
            if let Err(error) = handled {
                let (from, to) = (self.node_name(peer), self.node_name(NodeId(here as u16)));
                self.judge
                    .report(format!("node {to} does not understand node {from}: {error}"));
                self.break_link(link);
                break;
            }
        }
        self.want_turn(here);
        self.look_after(here);
    }
}
