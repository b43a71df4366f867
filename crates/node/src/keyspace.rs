//! The lanes of one keyspace on one node. What they want done is done here.
mod cell;
mod inbox;
mod mailbox;
mod route;
pub(crate) use cell::LaneCell;
pub use mailbox::{Delivered, Delivery};
pub use route::NO_ROOM;

use crate::{
    callers::Callers,
    config::{KeyspaceConfig, NodeId},
    durability::Durability,
    environment::Environment,
    frame::{Body, Frame},
    lane::{Effect, Lane},
    shared::{Shared, held},
};
use mailbox::Mailbox;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, OnceLock, atomic::Ordering},
};
use turnbuckle_core::{BadFrame, Input, Micros, Now, Outcome, Protocol, RequestId, ServerId, Topology};
use turnbuckle_store::Store;

/// One keyspace on one node: its lanes, and the way to those on other nodes.
///
/// A request goes to the lane that holds its server, stepped in place under the lane's lock, or in a frame to the node
/// that holds it. The answer comes back as a [`Delivery`] to the loop that its [`RequestId`] names. The driver calls
/// [`crate::Node::commit`] once per turn of its loop and then collects deliveries.
pub struct Keyspace<P: Protocol> {
    env: Environment,
    protocol: P::Config,
    lanes: OnceLock<Vec<LaneCell<P>>>,
    /// The place of each lane, by partition and member; none for those of other nodes.
    places: OnceLock<Vec<Option<usize>>>,
    deliveries: Vec<Mailbox<P>>,
    /// Requests passed on to other nodes: failed when the link goes.
    forwarded: Mutex<BTreeMap<RequestId, (NodeId, bool)>>,
    callers: Mutex<Callers>,
    /// Lanes whose inbox may not be empty, each once.
    busy: Mutex<VecDeque<usize>>,
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
            forwarded: Mutex::default(),
            callers: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    pub(crate) fn set_lanes(&self, lanes: Vec<Lane<P>>) {
        let topology = self.topology();
        let mut places = vec![None; usize::from(topology.partitions()) * usize::from(topology.members())];
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

    /// Its name.
    pub fn name(&self) -> &str {
        self.env.name()
    }

    /// Where its replicas stand.
    pub fn topology(&self) -> &Topology {
        self.env.topology()
    }

    /// How its protocol is configured.
    pub fn protocol(&self) -> &P::Config {
        &self.protocol
    }

    /// When its writes are acknowledged.
    pub fn durability(&self) -> Durability {
        self.env.durability()
    }

    /// What its lanes have around them.
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

    /// Where a lane of this node stands among its lanes.
    fn place_of(&self, server: ServerId) -> Option<usize> {
        let is_here = server.site == self.env.site() && self.topology().contains(server);
        let places = self.places.get().filter(|_| is_here)?;
        places[self.number_of(server)]
    }

    fn number_of(&self, server: ServerId) -> usize {
        usize::from(server.partition) * usize::from(self.topology().members()) + usize::from(server.member)
    }

    pub(crate) fn cell(&self, server: ServerId) -> Option<&LaneCell<P>> {
        Some(&self.lanes()[self.place_of(server)?])
    }

    fn node_of(&self, server: ServerId) -> NodeId {
        self.env.node_of(server)
    }

    // ---- what lanes want done -------------------------------------------------------------------------------

    /// Does what a lane wants done. The lane is still locked.
    fn perform(&self, me: ServerId, effects: &mut Vec<Effect<P>>) {
        for effect in effects.drain(..) {
            match effect {
                Effect::Deliver { id, outcome } => self.deliver(id, outcome),
                Effect::Send { to, message } => self.send(me, to, message),
                Effect::Say { to, body } => self.say(me, to, body),
                Effect::WakeLinks(to) => self.wake_links(me, to),
                Effect::WakeWorker => self.shared().wake.wake_worker(),
                Effect::Sync => self.shared().want_sync(),
            }
        }
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
                lane.store.evict(64);
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
                lane.end_unheard(now);
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

    /// The lanes here that have a peer on `node`, and the peer.
    pub(crate) fn pairs(&self, node: NodeId) -> impl Iterator<Item = (&LaneCell<P>, ServerId)> {
        let site = self.shared().config.placement.site_of(node);
        self.lanes().iter().filter_map(move |cell| {
            let peer = self.topology().peer_at(cell.me, site);
            (cell.me.site != site && self.topology().contains(peer) && self.node_of(peer) == node)
                .then_some((cell, peer))
        })
    }

    pub(crate) fn set_link(&self, now: Now, node: NodeId, up: bool) {
        for (cell, peer) in self.pairs(node) {
            let mut lane = self.enter(cell);
            lane.set_link(now, peer, up);
        }
        if !up {
            let lost: Vec<_> = held(&self.forwarded)
                .extract_if(.., |_, (to, _)| *to == node)
                .collect();
            for (id, (_, is_survey)) in lost {
                self.fail(
                    id,
                    is_survey,
                    Outcome::Lost,
                    "the link to the node that holds the partition broke",
                );
            }
            held(&self.callers).forget(node);
        }
    }

    /// A frame of a peer's server for one of ours.
    pub(crate) fn on_frame(&self, now: Now, node: NodeId, frame: Frame) -> Result<(), BadFrame> {
        let (from, to) = (frame.from(), frame.to());
        match (frame.body, frame.stream) {
            (Some(Body::Request(request)), _) => self.on_request(now, node, to, request),
            (Some(Body::Response(response)), _) => self.on_response(node, response),
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

    /// The lane that a server of another node speaks to.
    fn spoken_to(&self, node: NodeId, from: ServerId, to: ServerId) -> Result<&LaneCell<P>, BadFrame> {
        let known = self.topology().contains(from) && self.node_of(from) == node;
        let cell = self.cell(to).filter(|_| known && from != to);
        cell.ok_or_else(|| BadFrame::new("servers of the two nodes of the link", format!("{from} to {to}")))
    }

    /// Opens the store of every lane that stands on this node.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        let placement = &self.shared().config.placement;
        let site = placement.site_of(self.shared().config.node);
        let servers = (0..self.topology().partitions()).flat_map(move |partition| {
            (0..self.topology().members()).map(move |member| ServerId {
                site,
                partition,
                member,
            })
        });
        servers
            .filter(|&server| self.node_of(server) == self.shared().config.node)
            .collect()
    }

    /// Looks into a lane: for tests and the admin interface.
    pub fn inspect<R>(&self, server: ServerId, look: impl FnOnce(&P, &Store<P::Meta>) -> R) -> Option<R> {
        let lane = self.cell(server)?.look();
        Some(look(lane.replica.protocol(), &lane.store))
    }
}
