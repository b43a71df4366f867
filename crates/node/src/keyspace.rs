//! The lanes of one keyspace on one node.
use crate::{
    agreement::tag_of,
    callers::{Caller, Callers},
    config::{KeyspaceConfig, NodeId},
    durability::Durability,
    frame::{Body, Frame, RequestFrame, ResponseFrame},
    lane::{Lane, Question},
    shared::{Shared, Unsent, held},
    survey::{Survey, Surveyed},
};
use bytes::BytesMut;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use turnbuckle_core::{
    BadFrame, Input, Micros, Now, Outcome, Protocol, Receipt, RequestId, ServerId, SiteId, SiteSet, Topology,
    Wire,
};
use turnbuckle_store::{Store, scan_rows};

/// How the words begin with which a request is refused that would take room on a disk that has too little.
pub const NO_ROOM: &str = "the disk of the node has less than";

/// One keyspace on one node: its lanes, and the way to those on other nodes.
///
/// A request goes to the lane that holds its server, stepped in place under the lane's lock, or in a frame to the node
/// that holds it. The answer comes back as a [`Delivery`] to the loop that its [`RequestId`] names. The driver calls
/// [`crate::Node::commit`] once per turn of its loop and then collects deliveries.
pub struct Keyspace<P: Protocol> {
    config: KeyspaceConfig,
    protocol: P::Config,
    tag: u32,
    shared: Arc<Shared>,
    lanes: OnceLock<Vec<LaneCell<P>>>,
    deliveries: Vec<Mutex<Mailbox<P>>>,
    /// Requests passed on to other nodes: failed when the link goes.
    forwarded: Mutex<BTreeMap<RequestId, (NodeId, bool)>>,
    callers: Mutex<Callers>,
    /// Lanes whose inbox may not be empty, each once.
    busy: Mutex<VecDeque<usize>>,
}

/// A lane behind its lock.
pub(crate) struct LaneCell<P: Protocol> {
    pub me: ServerId,
    pub lane: Mutex<Lane<P>>,
    inbox: Mutex<VecDeque<(ServerId, P::Message)>>,
    /// It stands in the list of those whose inbox is not empty.
    is_noted: AtomicBool,
    /// Something may be staged.
    dirty: AtomicBool,
    /// Something is appended and not yet released.
    waiting: AtomicBool,
    /// The replica's next deadline, in monotonic microseconds.
    deadline_us: AtomicU64,
    /// The store's, as of the last release.
    pub dirty_bytes: AtomicU64,
}

impl<P: Protocol> LaneCell<P> {
    /// Something was appended and is to be released when it is durable.
    pub fn set_waiting(&self) {
        self.waiting.store(true, Ordering::Release);
    }
}

/// Answers that wait for a loop.
struct Mailbox<P: Protocol> {
    waiting: Vec<Delivery<P>>,
    /// The loop is about to look: it need not be woken.
    attended: bool,
}

/// An answer for a loop's session.
pub struct Delivery<P: Protocol> {
    /// What it answers.
    pub id: RequestId,
    /// The answer.
    pub answer: Delivered<P>,
}

/// What an answer is to.
pub enum Delivered<P: Protocol> {
    /// A session's question.
    Response(Outcome<P::Response>),
    /// A survey.
    Surveyed(Result<Surveyed, String>),
}

impl<P: Protocol> Keyspace<P> {
    pub(crate) fn new(config: KeyspaceConfig, protocol: P::Config, shared: Arc<Shared>) -> Keyspace<P> {
        let tag = tag_of(&config.name);
        let deliveries = (0..shared.config.loops.max(1))
            .map(|_| {
                Mutex::new(Mailbox {
                    waiting: Vec::new(),
                    attended: false,
                })
            })
            .collect();
        Keyspace {
            config,
            protocol,
            tag,
            shared,
            lanes: OnceLock::new(),
            deliveries,
            forwarded: Mutex::default(),
            callers: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    pub(crate) fn set_lanes(&self, lanes: Vec<Lane<P>>) {
        let cells = lanes.into_iter().map(|lane| LaneCell {
            me: lane.me,
            lane: Mutex::new(lane),
            inbox: Mutex::default(),
            is_noted: AtomicBool::new(false),
            dirty: AtomicBool::new(true),
            waiting: AtomicBool::new(true),
            deadline_us: AtomicU64::new(0),
            dirty_bytes: AtomicU64::new(0),
        });
        assert!(
            self.lanes.set(cells.collect()).is_ok(),
            "a keyspace is opened once"
        );
    }

    // ---- what it is -----------------------------------------------------------------------------------------

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Where its replicas stand.
    pub fn topology(&self) -> &Topology {
        &self.config.topology
    }

    /// How its protocol is configured.
    pub fn protocol(&self) -> &P::Config {
        &self.protocol
    }

    /// When its writes are acknowledged.
    pub fn durability(&self) -> Durability {
        self.config.durability
    }

    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn lanes(&self) -> &[LaneCell<P>] {
        self.lanes.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn cell(&self, server: ServerId) -> Option<&LaneCell<P>> {
        self.lanes().iter().find(|cell| cell.me == server)
    }

    fn node_of(&self, server: ServerId) -> NodeId {
        self.shared.config.placement.node_of(server)
    }

    // ---- requests of sessions -------------------------------------------------------------------------------

    /// Asks a server of this site. The answer is delivered to the loop named by `id`, which must not be in use.
    pub fn ask(&self, now: Now, id: RequestId, server: ServerId, request: P::Request) {
        let Some(cell) = self.cell(server) else {
            let mut body = BytesMut::new();
            request.encode(&mut body);
            self.forward(
                id,
                server,
                RequestFrame {
                    id: id.0,
                    body: body.freeze(),
                    survey: None,
                },
            );
            return;
        };
        if let Err(refused) = self.take_question(
            cell,
            now,
            Question {
                id,
                request,
                since: None,
            },
        ) {
            self.deliver(id, Outcome::Refused(refused));
        }
    }

    /// What a server on this node is going to answer once something is durable. No client may be shown it before; its session may hear it
    /// if it says so ([`Session::may_hear_ahead`](turnbuckle_core::Session::may_hear_ahead)).
    pub fn answer_ahead(&self, id: RequestId, server: ServerId) -> Option<(P::Response, Receipt)> {
        let lane = held(&self.cell(server)?.lane);
        let (response, receipt) = lane.replica.held_reply(id)?;
        Some((response.clone(), receipt.clone()))
    }

    fn take_question(&self, cell: &LaneCell<P>, now: Now, question: Question<P>) -> Result<(), String> {
        let mut lane = held(&cell.lane);
        if self.shared.log_failing.load(Ordering::Relaxed) && lane.is_waiting() {
            return Err("the commit log cannot be written; see the node's log".to_string());
        }
        if let Some(refused) = lane.repair_refusal() {
            return Err(refused);
        }
        let takes_room = P::is_write(&question.request) || self.shared.config.planted.refuses_reads_when_full;
        if takes_room && !self.shared.has_room() {
            return Err(format!(
                "{NO_ROOM} {} MiB free: no writes until there is room",
                self.shared.config.min_free_bytes >> 20
            ));
        }
        if self.asks_in_vain(&question.request, cell.me) {
            return Err(self.lacked());
        }
        let newest = question.request.newest();
        if newest > lane.horizon(self, now) {
            return Err(format!(
                "it depends on a timestamp ({newest}) that is too far ahead of this node's clock"
            ));
        }
        lane.ask(self, now, question);
        self.done(cell, lane);
        Ok(())
    }

    /// Asks about the keys of a server of this site.
    pub fn survey(&self, id: RequestId, server: ServerId, survey: Survey) {
        match self.cell(server) {
            Some(cell) => self.deliver_survey(id, self.survey_lane(cell, survey)),
            None => {
                let frame = RequestFrame {
                    id: id.0,
                    body: bytes::Bytes::new(),
                    survey: Some(survey.into()),
                };
                self.forward(id, server, frame);
            }
        }
    }

    /// The engine is read without the lane's lock; what is only in memory is merged in under it.
    pub(crate) fn survey_lane(&self, cell: &LaneCell<P>, survey: Survey) -> SurveyOutcome {
        if let Some(refused) = held(&cell.lane).repair_refusal() {
            return Err(refused);
        }
        let Survey::Scan { cursor, count } = survey else {
            return Ok(Surveyed::Count(held(&cell.lane).live_keys()));
        };
        let slots = self.topology().slots_of(cell.me.partition);
        let (table, mut epoch) = {
            let lane = held(&cell.lane);
            (lane.store.table(), lane.store.epoch())
        };
        loop {
            let rows = scan_rows::<P::Meta>(&*table, slots.clone(), cursor, count as usize, epoch);
            let mut lane = held(&cell.lane);
            let rows = rows.map_err(|error| {
                lane.note_damage(self, &error);
                format!("the keys cannot be read from disk: {error}")
            })?;
            if let Ok((cursor, keys)) = lane.store.finish_scan(rows) {
                return Ok(Surveyed::Keys { cursor, keys });
            }
            epoch = lane.store.epoch();
        }
    }

    fn forward(&self, id: RequestId, server: ServerId, request: RequestFrame) {
        let (node, is_survey) = (self.node_of(server), request.survey.is_some());
        held(&self.forwarded).insert(id, (node, is_survey));
        // Servers that ask have no name of their own here: the frame's sender is the server asked.
        let frame = Frame::new(self.tag, server, server, Body::Request(request));
        if let Err(unsent) = self.shared.send(node, &frame) {
            held(&self.forwarded).remove(&id);
            let why = match unsent {
                Unsent::Down => "the node that holds the partition cannot be reached".to_string(),
                Unsent::NoKeyspace => self.lacked(),
                unsent => format!("the request does not reach the node that holds the partition: {unsent}"),
            };
            self.fail(id, is_survey, Outcome::Refused, &why);
        }
    }

    /// Why a request for a partition of a node that does not have this keyspace is refused.
    fn lacked(&self) -> String {
        let name = self.name();
        format!(
            "the node of this site that holds the partition does not have the keyspace '{name}' in its configuration"
        )
    }

    /// Whether what `request` asks of other partitions of the site would be asked of a node that does not have this keyspace.
    fn asks_in_vain(&self, request: &P::Request, at: ServerId) -> bool {
        let mut in_vain = false;
        if !self.is_lacked() {
            return false;
        }
        P::keys_elsewhere(request, &mut |key| {
            let partition = self.topology().partition_of_slot(key.slot());
            let server = ServerId { partition, ..at };
            in_vain |= self.shared.lacks(self.node_of(server), self.tag);
        });
        in_vain
    }

    /// Whether some node is known not to have this keyspace: what waits for something from there waits in vain.
    pub fn is_lacked(&self) -> bool {
        let mut nodes = self.shared.config.placement.nodes();
        nodes.any(|node| self.shared.lacks(node, self.tag))
    }

    fn fail(&self, id: RequestId, is_survey: bool, outcome: fn(String) -> Outcome<P::Response>, why: &str) {
        match is_survey {
            true => self.deliver_survey(id, Err(why.to_string())),
            false => self.deliver(id, outcome(why.to_string())),
        }
    }

    /// The loop will call [`Keyspace::take_deliveries`] by itself, next thing: until then nobody wakes it.
    pub fn attend(&self, loop_index: usize) {
        held(&self.deliveries[loop_index]).attended = true;
    }

    /// The answers that wait for a loop.
    pub fn take_deliveries(&self, loop_index: usize, into: &mut Vec<Delivery<P>>) {
        let mut mailbox = held(&self.deliveries[loop_index]);
        mailbox.attended = false;
        into.append(&mut mailbox.waiting);
    }

    /// An answer: to a loop's session, or back to the node that passed the request on.
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
        let mut mailbox = held(&self.deliveries[index]);
        mailbox.waiting.push(delivery);
        let wake = mailbox.waiting.len() == 1 && !mailbox.attended;
        drop(mailbox);
        if wake {
            self.shared.wake.wake_loop(index);
        }
    }

    fn answer_peer(&self, id: RequestId, response: impl FnOnce(u64) -> ResponseFrame) {
        let Some(caller) = held(&self.callers).take(id.number()) else {
            return;
        };
        self.respond(caller, response(caller.id));
    }

    /// Who asked is not left to wait in vain: if the answer finds no room, a short one says so.
    fn respond(&self, caller: Caller, response: ResponseFrame) {
        let Caller { node, server, .. } = caller;
        let frame = |response| Frame::new(self.tag, server, server, Body::Response(response));
        let frame_of_answer = frame(response);
        if let Err(unsent @ (Unsent::Full | Unsent::TooLarge)) = self.shared.send(node, &frame_of_answer)
            && let Some(Body::Response(response)) = &frame_of_answer.body
        {
            let _ = self
                .shared
                .send(node, &frame(response.instead(caller.writes, unsent)));
        }
    }

    // ---- requests of other nodes ----------------------------------------------------------------------------

    pub(crate) fn on_request(
        &self,
        now: Now,
        node: NodeId,
        to: ServerId,
        frame: RequestFrame,
    ) -> Result<(), BadFrame> {
        let cell = self
            .cell(to)
            .ok_or_else(|| BadFrame::new("a request for a server of this node", to.to_string()))?;
        let survey = frame.survey.map(Survey::from);
        let request = match survey {
            None => Some(P::Request::decode(frame.body)?),
            Some(_) => None,
        };
        if let Some(request) = &request {
            self.topology().check_sites(request.sites())?;
        }
        if self.shared.is_choked(node) {
            let found = "one that asks and takes no answers";
            return Err(BadFrame::new("a node that takes its answers", found));
        }
        let caller = Caller {
            node,
            id: frame.id,
            server: to,
            writes: request.as_ref().is_some_and(P::is_write),
        };
        let Some(number) = held(&self.callers).insert(caller) else {
            let why = Outcome::Refused("too many requests wait".into());
            self.respond(caller, ResponseFrame::answer::<P::Response>(caller.id, why));
            return Ok(());
        };
        let id = RequestId::of_peer(number);
        match (survey, request) {
            (Some(survey), _) => self.deliver_survey(id, self.survey_lane(cell, survey)),
            (None, Some(request)) => {
                if let Err(refused) = self.take_question(
                    cell,
                    now,
                    Question {
                        id,
                        request,
                        since: None,
                    },
                ) {
                    self.deliver(id, Outcome::Refused(refused));
                }
            }
            (None, None) => unreachable!("without a survey there is a request"),
        }
        Ok(())
    }

    pub(crate) fn on_response(&self, node: NodeId, frame: ResponseFrame) -> Result<(), BadFrame> {
        let id = RequestId(frame.id);
        let asked = held(&self.forwarded).get(&id).copied();
        match asked {
            Some((to, true)) if to == node => {
                let surveyed = frame.into_survey()?;
                if held(&self.forwarded).remove(&id).is_some() {
                    self.deliver_survey(id, surveyed);
                }
            }
            // If it does not decode, the request fails with the link.
            Some((to, false)) if to == node => {
                let outcome = frame.into_answer(self.topology())?;
                if held(&self.forwarded).remove(&id).is_some() {
                    self.deliver(id, outcome);
                }
            }
            // It was given up on already, or somebody else was asked.
            _ => {}
        }
        Ok(())
    }

    // ---- between replicas -----------------------------------------------------------------------------------

    /// A replica's message: to the inbox of one on this node, else to the link.
    pub(crate) fn send(&self, from: ServerId, to: ServerId, message: P::Message) {
        if let Some(place) = self.lanes().iter().position(|cell| cell.me == to) {
            held(&self.lanes()[place].inbox).push_back((from, message));
            self.note_busy(place);
            return;
        }
        if !self.topology().contains(to) {
            return;
        }
        let mut body = BytesMut::new();
        message.encode(&mut body);
        self.send_frame(from, to, Body::Message(body.freeze()));
    }

    /// Whether the node of a server's peer at a site is known not to have this keyspace.
    pub(crate) fn lacks(&self, server: ServerId, site: SiteId) -> bool {
        let peer = self.topology().peer_at(server, site);
        self.shared.lacks(self.node_of(peer), self.tag)
    }

    pub(crate) fn is_up(&self, server: ServerId) -> bool {
        self.shared.serves(self.node_of(server), self.tag)
    }

    /// Lost if there is no way: so are messages, and what else is said comes again when the link does.
    pub(crate) fn send_frame(&self, from: ServerId, to: ServerId, body: Body) {
        let frame = Frame::new(self.tag, from, to, body);
        let _ = self.shared.send(self.node_of(to), &frame);
    }

    /// Streams or marks wait for the partition's replicas at these sites.
    pub(crate) fn wake_links(&self, from: ServerId, to: SiteSet) {
        for site in self
            .topology()
            .sites()
            .filter(|&site| site != from.site && to.contains(site))
        {
            self.shared
                .wake
                .wake_link(self.node_of(self.topology().peer_at(from, site)));
        }
    }

    /// Steps the lanes that others on this node have sent something, until their inboxes are empty or a share of messages is handled. A read of
    /// many keys is as many messages: the first loop is woken to go on with what is left, and serves others in between.
    pub(crate) fn run_inboxes(&self, now: Now) {
        let mut left = MOST_MESSAGES;
        while left > 0 {
            let Some(place) = ({ held(&self.busy).pop_front() }) else {
                return;
            };
            let cell = &self.lanes()[place];
            // Whatever comes from here on notes it again.
            cell.is_noted.store(false, Ordering::Release);
            if held(&cell.inbox).is_empty() {
                continue;
            }
            let mut lane = held(&cell.lane);
            while left > 0
                && let Some((from, message)) = { held(&cell.inbox).pop_front() }
            {
                lane.hear(self, now, from, message);
                left -= 1;
            }
            self.done(cell, lane);
            if left == 0 && !held(&cell.inbox).is_empty() {
                self.note_busy(place);
            }
        }
        if !held(&self.busy).is_empty() {
            self.shared.wake.wake_loop(0);
        }
    }

    /// Something is in a lane's inbox. It stands in the list once, however much that is.
    fn note_busy(&self, place: usize) {
        if !self.lanes()[place].is_noted.swap(true, Ordering::AcqRel) {
            held(&self.busy).push_back(place);
        }
    }

    /// A lane was stepped: remembers what it waits for.
    pub(crate) fn done(&self, cell: &LaneCell<P>, lane: std::sync::MutexGuard<'_, Lane<P>>) {
        let deadline = lane
            .replica
            .next_deadline()
            .map_or(u64::MAX, |deadline| deadline.0);
        cell.deadline_us.store(deadline, Ordering::Release);
        cell.dirty.store(true, Ordering::Release);
    }

    // ---- turns ----------------------------------------------------------------------------------------------

    pub(crate) fn append(&self) {
        for cell in self.lanes() {
            if cell.dirty.swap(false, Ordering::AcqRel) {
                let mut lane = held(&cell.lane);
                lane.append(self);
                cell.waiting.store(true, Ordering::Release);
            }
        }
    }

    pub(crate) fn release(&self, now: Now) {
        let log = self.shared.log();
        for cell in self.lanes() {
            if cell.waiting.load(Ordering::Acquire) {
                let mut lane = held(&cell.lane);
                let more = lane.release(self, now, log.written(), log.synced());
                cell.waiting.store(more, Ordering::Release);
                lane.store.evict(64);
                cell.dirty_bytes
                    .store(lane.store.dirty_bytes(), Ordering::Relaxed);
                self.done_if_moved(cell, lane);
            }
        }
    }

    /// After a release: outputs may have woken parked requests, which may have staged something.
    fn done_if_moved(&self, cell: &LaneCell<P>, mut lane: std::sync::MutexGuard<'_, Lane<P>>) {
        if lane.take_moved() {
            self.done(cell, lane);
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.lanes().iter().any(|cell| cell.dirty.load(Ordering::Acquire))
    }

    pub(crate) fn tick(&self, now: Now) {
        for cell in self.lanes() {
            if cell.deadline_us.load(Ordering::Acquire) <= now.monotonic.0 {
                let mut lane = held(&cell.lane);
                lane.end_unheard(self, now);
                lane.step(self, now, Input::Tick);
                lane.retry_pending(self, now);
                self.done(cell, lane);
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
        let site = self.shared.config.placement.site_of(node);
        self.lanes().iter().filter_map(move |cell| {
            let peer = self.topology().peer_at(cell.me, site);
            (cell.me.site != site && self.topology().contains(peer) && self.node_of(peer) == node)
                .then_some((cell, peer))
        })
    }

    pub(crate) fn set_link(&self, now: Now, node: NodeId, up: bool) {
        for (cell, peer) in self.pairs(node) {
            let mut lane = held(&cell.lane);
            lane.set_link(self, now, peer, up);
            self.done(cell, lane);
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
        match frame
            .body
            .ok_or_else(|| BadFrame::new("a frame with a body this release knows", "another"))?
        {
            Body::Request(request) => self.on_request(now, node, to, request),
            Body::Response(response) => self.on_response(node, response),
            body => {
                let known = self.topology().contains(from) && self.node_of(from) == node;
                let cell = self.cell(to).filter(|_| known && from != to);
                let cell = cell.ok_or_else(|| {
                    BadFrame::new("servers of the two nodes of the link", format!("{from} to {to}"))
                })?;
                let mut lane = held(&cell.lane);
                let result = lane.on_body(self, now, from, body);
                self.done(cell, lane);
                result
            }
        }
    }

    /// Opens the store of every lane that stands on this node.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        let placement = &self.shared.config.placement;
        let site = placement.site_of(self.shared.config.node);
        let servers = (0..self.topology().partitions()).flat_map(move |partition| {
            (0..self.topology().members()).map(move |member| ServerId {
                site,
                partition,
                member,
            })
        });
        servers
            .filter(|&server| self.node_of(server) == self.shared.config.node)
            .collect()
    }

    /// Looks into a lane: for tests and the admin interface.
    pub fn inspect<R>(&self, server: ServerId, look: impl FnOnce(&P, &Store<P::Meta>) -> R) -> Option<R> {
        let lane = held(&self.cell(server)?.lane);
        Some(look(lane.replica.protocol(), &lane.store))
    }
}

/// What became of a survey, or why not.
pub(crate) type SurveyOutcome = Result<Surveyed, String>;

/// How many messages between the lanes of a keyspace are handled before others are served.
const MOST_MESSAGES: usize = 256;
