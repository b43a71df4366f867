//! The lanes of one keyspace on one node. Their effects are performed here.
mod ahead;
mod cell;
mod inbox;
mod mailbox;
mod route;
pub(crate) use cell::LaneCell;
pub use mailbox::{Delivered, Delivery};

use crate::{
    callers::Callers,
    config::{KeyspaceConfig, NodeId, Planted},
    durability::Durability,
    environment::Environment,
    frame::{Body, Frame, ResponseFrame},
    lane::{Effect, Lane},
    publication::Publication,
    shared::{Shared, Unsent, lock},
    survey::SurveyOutcome,
};
use bytes::BytesMut;
use inbox::Busy;
use mailbox::Mailbox;
use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, OnceLock, atomic::Ordering},
};
use turnbuckle_core::{
    BadFrame, Input, Micros, Now, Outcome, Protocol, ReplicaSet, RequestId, ServerId, Topology, Wire,
};
use turnbuckle_replication::StreamBody;
use turnbuckle_store::Store;

/// The most messages between the lanes of a keyspace that are handled before the loop does other work.
const MAX_MESSAGES: usize = 256;

/// One keyspace on one node: its lanes, and the way to the lanes of other nodes.
///
/// A request for a lane of this node is handled in place, under the lane's lock. A request for another node's lane is sent there in a
/// frame. The answer comes back as a [`Delivery`] to the loop that its [`RequestId`] names. The driver calls [`crate::Node::commit`] once
/// per turn of its loop and then collects deliveries.
pub struct Keyspace<P: Protocol> {
    env: Environment,
    protocol: P::Config,
    lanes: OnceLock<Vec<LaneCell<P>>>,
    /// The index in `lanes` of each server, by partition and member. `None` for servers of other nodes.
    places: OnceLock<Vec<Option<usize>>>,
    deliveries: Vec<Mailbox<Delivery<P>>>,
    /// Messages to channels, for each loop.
    publications: Vec<Mailbox<Arc<Publication>>>,
    /// Requests passed on to other nodes, with whether they are surveys. They fail when the link goes down.
    forwarded: Mutex<BTreeMap<RequestId, (NodeId, bool)>>,
    callers: Mutex<Callers>,
    /// Lanes whose inbox may not be empty.
    busy: Busy,
}

impl<P: Protocol> Keyspace<P> {
    pub(crate) fn new(config: KeyspaceConfig, protocol: P::Config, shared: Arc<Shared>) -> Keyspace<P> {
        let loops = shared.config.loops.max(1);
        Keyspace {
            env: Environment::new(config, shared),
            protocol,
            lanes: OnceLock::new(),
            places: OnceLock::new(),
            deliveries: (0..loops).map(|_| Mailbox::new()).collect(),
            publications: (0..loops).map(|_| Mailbox::new()).collect(),
            forwarded: Mutex::default(),
            callers: Mutex::default(),
            busy: Busy::default(),
        }
    }

    pub(crate) fn set_lanes(&self, lanes: Vec<Lane<P>>) {
        let topology = self.topology();
        let mut places =
            vec![None; usize::from(topology.partitions()) * usize::from(topology.members().max())];
        for (place, lane) in lanes.iter().enumerate() {
            places[self.number_of(lane.me)] = Some(place);
        }
        let is_first = self.places.set(places).is_ok();
        let is_first = is_first
            && self
                .lanes
                .set(lanes.into_iter().map(LaneCell::new).collect())
                .is_ok();
        assert!(is_first, "a keyspace is opened once");
    }

    // ---- what it is -----------------------------------------------------------------------------------------

    /// The keyspace's name.
    pub fn name(&self) -> &str {
        self.env.name()
    }

    /// The keyspace's sites, partitions and members.
    pub fn topology(&self) -> &Topology {
        self.env.topology()
    }

    /// The configuration of the keyspace's protocol.
    pub fn protocol(&self) -> &P::Config {
        &self.protocol
    }

    /// When the keyspace's writes are acknowledged.
    pub fn durability(&self) -> Durability {
        self.env.durability()
    }

    /// The bugs that are planted.
    pub fn planted(&self) -> &Planted {
        &self.shared().config.planted
    }

    /// The environment of the keyspace's lanes.
    pub(crate) fn env(&self) -> &Environment {
        &self.env
    }

    pub(crate) fn tag(&self) -> u32 {
        self.env.tag()
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.env.shared()
    }

    pub(crate) fn lanes(&self) -> &[LaneCell<P>] {
        self.lanes.get().map_or(&[], Vec::as_slice)
    }

    /// The index of a server's lane among the lanes of this node.
    fn place_of(&self, server: ServerId) -> Option<usize> {
        let is_here = server.site == self.env.site() && self.topology().contains(server);
        let places = self.places.get().filter(|_| is_here)?;
        places[self.number_of(server)]
    }

    fn number_of(&self, server: ServerId) -> usize {
        usize::from(server.partition) * usize::from(self.topology().members().max())
            + usize::from(server.member)
    }

    pub(crate) fn cell(&self, server: ServerId) -> Option<&LaneCell<P>> {
        Some(&self.lanes()[self.place_of(server)?])
    }

    /// The node that holds a server.
    pub fn node_of(&self, server: ServerId) -> NodeId {
        self.env.node_of(server)
    }

    /// Whether this node holds a server.
    pub fn is_here(&self, server: ServerId) -> bool {
        self.place_of(server).is_some()
    }

    /// Whether a server can be asked: this node holds it, or the link to its node is up.
    pub fn is_reached(&self, server: ServerId) -> bool {
        self.is_here(server) || self.env.is_up(server)
    }

    // ---- effects of lanes -----------------------------------------------------------------------------------

    /// Locks a lane, to step it.
    pub(crate) fn enter<'a>(&'a self, cell: &'a LaneCell<P>) -> Entered<'a, P> {
        let lane = lock(&cell.lane);
        assert!(
            lane.effects.is_empty(),
            "a lane's effects are performed before it is unlocked"
        );
        Entered {
            keyspace: self,
            cell,
            lane,
        }
    }

    /// Performs the effects of a lane. The lane is still locked.
    fn perform(&self, me: ServerId, effects: &mut Vec<Effect<P>>) {
        for effect in effects.drain(..) {
            match effect {
                Effect::Deliver { id, outcome } => self.deliver(id, outcome),
                Effect::Confirm { id } => self.confirm(id),
                Effect::Send { to, message } => self.send(me, to, message),
                Effect::Say { to, body } => self.say(me, to, body),
                Effect::WakeLinks { to, is_urgent } => self.wake_links(me, to, is_urgent),
                Effect::WakeWorker => self.shared().wake.wake_worker(),
                Effect::Sync(wish) => self.shared().want_sync(wish),
            }
        }
    }

    /// Sends a message of a replica: into the inbox of a lane on this node, or to the link to another node.
    fn send(&self, from: ServerId, to: ServerId, message: P::Message) {
        if let Some(place) = self.place_of(to) {
            let inbox = &self.lanes()[place].inbox;
            inbox.push(from, message);
            return self.busy.note(place, inbox);
        }
        if !self.topology().contains(to) {
            return;
        }
        let mut body = BytesMut::new();
        message.encode(&mut body);
        let frame = Frame::new(self.tag(), from, to, Body::Message(body.freeze()));
        let _ = self.shared().send(self.node_of(to), &frame);
    }

    /// Sends a stream's frame. If the link is down or full, the frame is lost: messages may be lost, and all else is sent again when the
    /// link comes up.
    fn say(&self, from: ServerId, to: ServerId, body: StreamBody) {
        let frame = Frame::of_stream(self.tag(), from, to, body);
        let _ = self.shared().send(self.node_of(to), &frame);
    }

    /// Entries or marks wait for these replicas of the partition: their links are woken.
    fn wake_links(&self, from: ServerId, to: ReplicaSet, is_urgent: bool) {
        for replica in to.without(from.replica()).iter() {
            let node = self.node_of(from.peer(replica));
            match is_urgent {
                true => self.shared().wake.wake_link_at_once(node),
                false => self.shared().wake.wake_link(node),
            }
        }
    }

    /// Handles messages of lanes to other lanes of this node, until all inboxes are empty or `MAX_MESSAGES` are handled. A read of many
    /// keys sends one message per key. If messages are left, the first loop is woken to go on, and does other work in between.
    pub(crate) fn run_inboxes(&self, now: Now) {
        let mut left = MAX_MESSAGES;
        while left > 0 {
            let Some(place) = self.busy.next(|place| &self.lanes()[place].inbox) else {
                return;
            };
            let cell = &self.lanes()[place];
            if cell.inbox.is_empty() {
                continue;
            }
            let mut lane = self.enter(cell);
            while left > 0
                && let Some((from, message)) = cell.inbox.pop()
            {
                lane.hear(now, from, message);
                left -= 1;
            }
            drop(lane);
            if left == 0 && !cell.inbox.is_empty() {
                self.busy.note(place, &cell.inbox);
            }
        }
        if !self.busy.is_empty() {
            self.shared().wake.wake_loop(0);
        }
    }

    // ---- answers -------------------------------------------------------------------------------------------

    /// The loop is about to call [`Keyspace::take_deliveries`] by itself. Until then it need not be woken.
    pub fn attend(&self, loop_index: usize) {
        self.deliveries[loop_index].attend();
    }

    /// Moves the answers that wait for a loop into `into`.
    pub fn take_deliveries(&self, loop_index: usize, into: &mut Vec<Delivery<P>>) {
        self.deliveries[loop_index].take(into);
    }

    /// Hands on an answer: to a loop's session, or back to the node that passed the request on.
    pub(crate) fn deliver(&self, id: RequestId, outcome: Outcome<P::Response>) {
        match id.loop_index() {
            Some(index) => self.hand_over(
                index,
                Delivery {
                    id,
                    answer: Delivered::Response(outcome),
                },
            ),
            None => self.answer_peer(id, |caller| ResponseFrame::answer(caller, outcome)),
        }
    }

    /// Tells a loop's session that the answer is durable which it has heard ahead. Sessions of other nodes hear nothing ahead.
    fn confirm(&self, id: RequestId) {
        let answer = Delivered::Durable;
        if let Some(index) = id.loop_index() {
            self.hand_over(index, Delivery { id, answer });
        }
    }

    pub(crate) fn deliver_survey(&self, id: RequestId, surveyed: SurveyOutcome) {
        match id.loop_index() {
            Some(index) => self.hand_over(
                index,
                Delivery {
                    id,
                    answer: Delivered::Surveyed(surveyed),
                },
            ),
            None => self.answer_peer(id, |caller| ResponseFrame::survey(caller, surveyed)),
        }
    }

    fn hand_over(&self, index: usize, delivery: Delivery<P>) {
        if self.deliveries[index].put(delivery) {
            self.shared().wake.wake_loop(index);
        }
    }

    // ---- messages to channels -------------------------------------------------------------------------------

    /// Sends a client's message to all nodes that have the keyspace, also to this one. A node that cannot be reached does not get it. Returns how many do not.
    pub fn publish(&self, publication: Publication) -> usize {
        let me = self.shared().config.node;
        let server = ServerId::default();
        let frame = Frame::new(self.tag(), server, server, Body::Publication(publication.frame()));
        let others = self.shared().config.placement.nodes().filter(|&node| node != me);
        let sent = others.map(|node| self.shared().send(node, &frame));
        let unreached = sent.filter(|sent| !matches!(sent, Ok(()) | Err(Unsent::NoKeyspace)));
        let unreached = unreached.count();
        self.hand_out(publication);
        unreached
    }

    fn hand_out(&self, publication: Publication) {
        let publication = Arc::new(publication);
        for (index, mailbox) in self.publications.iter().enumerate() {
            if mailbox.put(Arc::clone(&publication)) {
                self.shared().wake.wake_loop(index);
            }
        }
    }

    /// Moves the messages that wait for a loop into `into`.
    pub fn take_publications(&self, loop_index: usize, into: &mut Vec<Arc<Publication>>) {
        self.publications[loop_index].take(into);
    }

    // ---- turns ----------------------------------------------------------------------------------------------

    pub(crate) fn append(&self) {
        for cell in self.lanes() {
            if cell.dirty.swap(false, Ordering::AcqRel) {
                let mut lane = self.enter(cell);
                lane.append();
                cell.waiting.store(true, Ordering::Release);
            }
        }
    }

    pub(crate) fn release(&self, now: Now) {
        let log = self.shared().log();
        for cell in self.lanes() {
            if cell.waiting.load(Ordering::Acquire) {
                let mut lane = self.enter(cell);
                let more = lane.release(now, log.written(), log.synced());
                cell.waiting.store(more, Ordering::Release);
                lane.evict(64);
                cell.dirty_bytes
                    .store(lane.store.dirty_bytes(), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.lanes().iter().any(|cell| cell.dirty.load(Ordering::Acquire))
    }

    pub(crate) fn tick(&self, now: Now) {
        for cell in self.lanes() {
            if cell.deadline_us.load(Ordering::Acquire) <= now.monotonic.0 {
                let mut lane = self.enter(cell);
                lane.end_startup_wait(now);
                lane.retry_unread(now);
                lane.step(now, Input::Tick);
                lane.retry_pending(now);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Micros> {
        self.lanes()
            .iter()
            .map(|cell| Micros(cell.deadline_us.load(Ordering::Acquire)))
            .min()
    }

    // ---- links ----------------------------------------------------------------------------------------------

    /// The lanes of this node that have a peer on `node`, each with that peer.
    pub(crate) fn pairs(&self, node: NodeId) -> impl Iterator<Item = (&LaneCell<P>, ServerId)> {
        self.lanes().iter().flat_map(move |cell| {
            let peers = self.topology().others_of(cell.me).iter();
            let peers = peers.map(|replica| cell.me.peer(replica));
            let there = peers.filter(move |&peer| self.node_of(peer) == node);
            there.map(move |peer| (cell, peer))
        })
    }

    pub(crate) fn set_link(&self, now: Now, node: NodeId, up: bool) {
        for (cell, peer) in self.pairs(node) {
            let mut lane = self.enter(cell);
            lane.set_link(now, peer, up);
        }
        if !up {
            let lost: Vec<_> = lock(&self.forwarded)
                .extract_if(.., |_, (to, _)| *to == node)
                .collect();
            let name = self.shared().config.placement.name_of(node);
            let why = format!("the link to node {name}, which holds the partition, broke");
            for (id, (_, is_survey)) in lost {
                self.fail(id, is_survey, Outcome::Lost, &why);
            }
            lock(&self.callers).forget(node);
        }
    }

    /// Handles a frame of a peer's server for a server of this node.
    pub(crate) fn on_frame(&self, now: Now, node: NodeId, frame: Frame) -> Result<(), BadFrame> {
        let (from, to) = (frame.from(), frame.to());
        match (frame.body, frame.stream) {
            (Some(Body::Request(request)), _) => self.on_request(now, node, to, request),
            (Some(Body::Response(response)), _) => self.on_response(node, response),
            (Some(Body::Publication(publication)), _) => {
                self.hand_out(publication.try_into()?);
                Ok(())
            }
            (Some(Body::Message(message)), _) => {
                let cell = self.spoken_to(node, from, to)?;
                self.enter(cell).on_message(now, from, message)
            }
            (None, Some(body)) => {
                let cell = self.spoken_to(node, from, to)?;
                self.enter(cell).on_body(now, from, body)
            }
            (None, None) => Err(BadFrame::new("a frame with a body this release knows", "another")),
        }
    }

    /// The lane of this node that a frame of another node's server is for.
    fn spoken_to(&self, node: NodeId, from: ServerId, to: ServerId) -> Result<&LaneCell<P>, BadFrame> {
        let known = self.topology().contains(from) && self.node_of(from) == node;
        let cell = self.cell(to).filter(|_| known && from != to);
        cell.ok_or_else(|| BadFrame::new("servers of the two nodes of the link", format!("{from} to {to}")))
    }

    /// The servers of the keyspace that are placed on this node.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        let placement = &self.shared().config.placement;
        let site = placement.site_of(self.shared().config.node);
        let servers = (0..self.topology().partitions()).flat_map(move |partition| {
            (0..self.topology().members().at(site)).map(move |member| ServerId {
                site,
                partition,
                member,
            })
        });
        servers
            .filter(|&server| self.topology().contains(server))
            .filter(|&server| self.node_of(server) == self.shared().config.node)
            .collect()
    }

    /// Looks into a lane. For tests and the admin interface.
    pub fn inspect<R>(&self, server: ServerId, look: impl FnOnce(&P, &Store<P::Meta>) -> R) -> Option<R> {
        let lane = self.cell(server)?.look();
        Some(look(lane.replica.protocol(), &lane.store))
    }
}

/// A lane that is being stepped. Before it is unlocked, its effects are performed in their order.
pub(crate) struct Entered<'a, P: Protocol> {
    keyspace: &'a Keyspace<P>,
    cell: &'a LaneCell<P>,
    lane: MutexGuard<'a, Lane<P>>,
}

impl<P: Protocol> Deref for Entered<'_, P> {
    type Target = Lane<P>;

    fn deref(&self) -> &Lane<P> {
        &self.lane
    }
}

impl<P: Protocol> DerefMut for Entered<'_, P> {
    fn deref_mut(&mut self) -> &mut Lane<P> {
        &mut self.lane
    }
}

impl<P: Protocol> Drop for Entered<'_, P> {
    fn drop(&mut self) {
        self.keyspace.perform(self.cell.me, &mut self.lane.effects);
        if self.lane.take_moved() {
            let deadline = self.lane.next_deadline();
            let deadline_us = deadline.map_or(u64::MAX, |deadline| deadline.0);
            self.cell.deadline_us.store(deadline_us, Ordering::Release);
            self.cell.dirty.store(true, Ordering::Release);
        }
    }
}
