//! The events of a link: connections are made, carry chunks of frames in order, and break.
use super::Event;
use crate::{
    Message, Rule, World,
    link::{self, Chunk, WAY_BYTES},
};
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{Micros, Session};
use turnbuckle_node::{Agreement, FrameAbout, NodeId};

impl<S: Session> World<S> {
    pub(super) fn link_of(&self, a: usize, b: usize) -> usize {
        a.min(b) * self.machines.len() + a.max(b)
    }

    /// The nodes at the ends of a link.
    pub(super) fn ends(&self, link: usize) -> [usize; 2] {
        [link / self.machines.len(), link % self.machines.len()]
    }

    /// How long the next frame from an end of a link is under way.
    fn delay(&mut self, link: usize, end: usize) -> Micros {
        let ends = self.ends(link);
        let (from, to) = (self.machines[ends[end]].site, self.machines[ends[1 - end]].site);
        let min = self.options.delays[usize::from(from.0)][usize::from(to.0)];
        let usual = min + self.options.jitter.draw(&mut self.random);
        Micros(usual.0.saturating_mul(self.links[link].roads[end].slow_percent) / 100)
    }

    pub(super) fn try_link(&mut self, link: usize) {
        let [a, b] = self.ends(link);
        let state = &mut self.links[link];
        if state.is_cut() || !state.broken || state.up != [false, false] || state.trying {
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
        if !running || state.is_cut() || !state.broken || state.up != [false, false] {
            return;
        }
        // The handshake.
        let terms = ends.map(|node| self.machines[node].terms(&self.options));
        let agreements = [0, 1].map(|end| Agreement::between(&terms[end], &terms[1 - end]));
        let [Ok(here), Ok(there)] = agreements else {
            let [a, b] = ends.map(|node| self.node_name(NodeId(node as u16)));
            let words = format!("there is no link between {a} and {b}: {agreements:?}");
            return self.judge.report(Rule::Service, words);
        };
        let state = &mut self.links[link];
        state.life += 1;
        state.broken = false;
        state.up = [true, true];
        state.ways = Default::default();
        for ((end, &node), agreement) in ends.iter().enumerate().zip([here, there]) {
            let (now, peer) = (self.now(node), NodeId(ends[1 - end] as u16));
            self.process(node).node.link_up(now, peer, agreement);
            self.want_pump(link, end);
            self.want_turn(node);
            self.look_after(node);
        }
    }

    /// Nothing new gets on the connection. Each end notices it at its own time. What arrives before that is handled.
    pub(super) fn break_link(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].broken, true) {
            return;
        }
        let life = self.links[link].life;
        for end in 0..2 {
            if self.links[link].up[end] {
                let max = match self.options.jitter.is_none() {
                    true => 0,
                    false => self.delay(link, 1 - end).0,
                };
                let after = Micros(self.random.of(0..=max));
                self.schedule(after, Event::Notice { link, end, life });
            }
        }
        self.try_link(link);
    }

    /// The road is healed: chunks that were stuck on it travel on, and a broken connection is tried again.
    pub(super) fn release(&mut self, link: usize) {
        for end in 0..2 {
            if self.links[link].roads[end].cut {
                continue;
            }
            let stuck = std::mem::take(&mut self.links[link].ways[end].stuck);
            for _ in 0..stuck {
                self.travel(link, end, 0);
            }
        }
        self.try_link(link);
    }

    /// Both ends give up a connection of which one direction has been cut for long.
    pub(super) fn give_up(&mut self, link: usize) {
        if self.links[link].is_cut() {
            self.break_link(link);
        }
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
        let way = &mut state.ways[end];
        way.woken |= way.begun.is_some();
        if state.up[end] && !std::mem::replace(&mut way.due, true) {
            let life = state.life;
            let after = self.random.span(self.options.turn);
            self.schedule(after, Event::Pump { link, end, life });
        }
    }

    /// Asks a node for frames, as many as the connection takes.
    pub(super) fn pump(&mut self, link: usize, end: usize) {
        let ends = self.ends(link);
        let (from, to) = (ends[end], ends[1 - end]);
        if !self.links[link].up[end] {
            self.links[link].ways[end].due = false;
            return;
        }
        if self.options.fills_in_halves {
            return self.pump_half(link, end);
        }
        self.links[link].ways[end].due = false;
        let mut more = true;
        while more && self.links[link].ways[end].bytes < WAY_BYTES {
            let mut out = BytesMut::new();
            let (node, max) = (&self.process(from).node.clone(), self.options.chunk_bytes);
            more = node.fill(NodeId(to as u16), &mut out, max);
            if out.is_empty() {
                break;
            }
            self.send(link, end, out.freeze());
        }
        self.links[link].ways[end].more = more;
        self.look_after(from);
    }

    /// The same, in two events: other threads of the node run between the halves.
    fn pump_half(&mut self, link: usize, end: usize) {
        let ends = self.ends(link);
        let (from, to) = (ends[end], NodeId(ends[1 - end] as u16));
        let (node, max) = (self.process(from).node.clone(), self.options.chunk_bytes);
        let Some(mut out) = self.links[link].ways[end].begun.take() else {
            let mut out = BytesMut::new();
            let more = node.fill_single(to, &mut out, max);
            let way = &mut self.links[link].ways[end];
            (way.begun, way.woken) = (Some(out), more);
            let (life, after) = (self.links[link].life, self.random.span(self.options.turn));
            return self.schedule(after, Event::Pump { link, end, life });
        };
        let more = node.fill_streams(to, &mut out, max);
        let way = &mut self.links[link].ways[end];
        way.due = false;
        let more = more | std::mem::take(&mut way.woken);
        if !out.is_empty() {
            self.send(link, end, out.freeze());
        }
        let has_room = self.links[link].ways[end].bytes < WAY_BYTES;
        self.links[link].ways[end].more = more;
        if more && has_room {
            self.want_pump(link, end);
        }
        self.look_after(from);
    }

    fn send(&mut self, link: usize, end: usize, bytes: Bytes) {
        if self.links[link].broken {
            return;
        }
        let mut logged = self.log_frames(link, end, &bytes);
        let bytes = self.without_lost(link, end, bytes, &mut logged);
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        let way = &mut self.links[link].ways[end];
        way.bytes += len;
        way.chunks.push_back(Chunk { bytes, logged });
        if self.links[link].roads[end].cut {
            self.links[link].ways[end].stuck += 1;
        } else {
            self.travel(link, end, len);
        }
    }

    /// Removes the frames that get lost from a chunk, and their indexes from `logged`.
    fn without_lost(&mut self, link: usize, end: usize, bytes: Bytes, logged: &mut Vec<usize>) -> Bytes {
        let loss_ppm = self.options.loss_ppm + self.links[link].roads[end].loss_ppm;
        if loss_ppm == 0 {
            return bytes;
        }
        let mut kept = BytesMut::with_capacity(bytes.len());
        let mut places = std::mem::take(logged).into_iter();
        for frame in link::frames(bytes) {
            let place = places.next();
            let may_be_lost = FrameAbout::of(frame.clone()).is_ok_and(|about| about.may_be_lost);
            if !may_be_lost || self.random.below(1_000_000) >= loss_ppm {
                link::put_frame(&frame, &mut kept);
                logged.extend(place);
            }
        }
        kept.freeze()
    }

    fn log_frames(&mut self, link: usize, end: usize, bytes: &Bytes) -> Vec<usize> {
        let ends = self.ends(link);
        let Some(log) = &mut self.messages else {
            return Vec::new();
        };
        let message = |frame| Message {
            from: NodeId(ends[end] as u16),
            to: NodeId(ends[1 - end] as u16),
            sent: self.time,
            arrived: None,
            words: FrameAbout::of(frame).map_or_else(|error| error.to_string(), |about| about.words),
        };
        link::frames(bytes.clone())
            .filter_map(|frame| log.sent(message(frame)))
            .collect()
    }

    /// The next chunk that does not travel yet begins to travel.
    fn travel(&mut self, link: usize, end: usize, len: usize) {
        let late = self.machines[self.ends(link)[end]].late;
        let delay = self.delay(link, end) + late;
        let time = self.time;
        let life = self.links[link].life;
        let is_slow = late.0 > 0 || self.links[link].roads[end].slow_percent > 100;
        let way = &mut self.links[link].ways[end];
        if let Some(bandwidth) = self.options.bandwidth {
            let takes = Micros((len as u64).saturating_mul(1_000_000) / bandwidth.max(1));
            way.busy_until = way.busy_until.max(time) + takes;
        }
        way.last_arrival = way.last_arrival.max(way.busy_until.max(time) + delay);
        if is_slow {
            way.slow_until = way.last_arrival;
        }
        let after = way.last_arrival.since(time);
        self.schedule(
            after,
            Event::Arrive {
                link,
                to: 1 - end,
                life,
                taken: false,
            },
        );
    }

    /// A chunk has arrived. Where work takes time, it is handled after a core has been busy with it.
    pub(super) fn arrive(&mut self, link: usize, to: usize, taken: bool) {
        let (here, life) = (self.ends(link)[to], self.links[link].life);
        if !taken && !self.machines[here].cores.is_empty() && self.links[link].up[to] {
            let takes = self.service_of_chunk(link, to);
            let done = self.machines[here].work_until(self.time, takes);
            let taken = true;
            let event = Event::Arrive {
                link,
                to,
                life,
                taken,
            };
            return self.schedule(done.since(self.time), event);
        }
        self.take_in(link, to);
    }

    /// How long a core is busy with the next chunk that arrives.
    fn service_of_chunk(&self, link: usize, to: usize) -> Micros {
        let Some(chunk) = self.links[link].ways[1 - to].chunks.front() else {
            return Micros(0);
        };
        let frame = self.options.service.frame.0;
        let is_slow = !self.slow_partitions.is_empty();
        let frames = link::frames(chunk.bytes.clone()).map(|bytes| match is_slow {
            false => frame,
            true => {
                let percent =
                    FrameAbout::of(bytes).map_or(100, |about| self.slow_percent(about.to.partition));
                frame.saturating_mul(percent) / 100
            }
        });
        let bytes = (chunk.bytes.len() as u64).saturating_mul(self.options.service.kib.0) / 1_024;
        Micros(frames.sum::<u64>().saturating_add(bytes))
    }

    fn take_in(&mut self, link: usize, to: usize) {
        let ends = self.ends(link);
        let (here, peer) = (ends[to], NodeId(ends[1 - to] as u16));
        let way = &mut self.links[link].ways[1 - to];
        let Some(Chunk { bytes, logged }) = way.chunks.pop_front() else {
            return;
        };
        way.bytes -= bytes.len();
        if way.more {
            self.want_pump(link, 1 - to);
        }
        if !self.links[link].up[to] {
            return;
        }
        if let Some(log) = &mut self.messages {
            for place in logged {
                log.arrived(place, self.time);
            }
        }
        self.note(&bytes);
        let now = self.now(here);
        for frame in link::frames(bytes) {
            let handled = self.process(here).node.handle_frame(now, peer, frame);
            if let Err(error) = handled {
                // A node with a full disk accepts no copy: the peer tries again when there is room.
                if !self.machines[here].is_short_of_room() {
                    let (from, to) = (self.node_name(peer), self.node_name(NodeId(here as u16)));
                    self.judge.report(
                        Rule::Service,
                        format!("node {to} cannot use a frame of node {from}: {error}"),
                    );
                }
                self.break_link(link);
                break;
            }
        }
        self.want_turn(here);
        self.look_after(here);
    }
}
