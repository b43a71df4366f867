//! The way of a request to a lane of this node, which is stepped in place, or in a frame to the node that holds its server; and the way
//! back.
use super::{Keyspace, LaneCell};
use crate::{
    callers::Caller,
    config::NodeId,
    frame::{Body, Frame, RequestFrame, ResponseFrame},
    lane::{Lane, Question},
    shared::{NO_ROOM, Unsent, lock},
    survey::{Survey, SurveyOutcome, Surveyed},
};
use bytes::BytesMut;
use std::sync::atomic::Ordering;
use turnbuckle_core::{BadFrame, Now, Outcome, Protocol, Receipt, RequestId, ServerId, SiteId, Wire};
use turnbuckle_store::scan_rows;

impl<P: Protocol> Keyspace<P> {
    // ---- requests of sessions -------------------------------------------------------------------------------

    /// Asks a server. If it answers at once, the answer is returned. A later answer is delivered to the loop named by `id`, which must not
    /// be in use.
    pub fn ask(
        &self,
        now: Now,
        id: RequestId,
        server: ServerId,
        request: P::Request,
    ) -> Option<Outcome<P::Response>> {
        if let Some(cell) = self.cell(server) {
            return self.take_question(cell, now, id, request);
        }
        let mut body = BytesMut::new();
        request.encode(&mut body);
        let frame = RequestFrame {
            id: id.0,
            body: body.freeze(),
            survey: None,
        };
        self.forward(id, server, frame).err().map(Outcome::Refused)
    }

    /// Takes the answer that a server on this node gives once something is durable, if the session may hear it before
    /// ([`Session::may_hear_ahead`](turnbuckle_core::Session::may_hear_ahead)). No client may be shown it before [`Delivered::Durable`](super::Delivered::Durable) comes.
    pub fn hear_ahead(
        &self,
        id: RequestId,
        server: ServerId,
        may: impl FnOnce(&P::Response) -> bool,
    ) -> Option<(P::Response, Box<Receipt>)> {
        let mut lane = self.enter(self.cell(server)?);
        lane.replica.hear_ahead(id, may)
    }

    /// Asks a server of this node. If it answers at once, the answer is returned.
    fn take_question(
        &self,
        cell: &LaneCell<P>,
        now: Now,
        id: RequestId,
        request: P::Request,
    ) -> Option<Outcome<P::Response>> {
        let mut lane = self.enter(cell);
        if let Some(refused) = self.refusal(&lane, now, &request) {
            return Some(Outcome::Refused(refused));
        }
        let since = None;
        lane.ask(now, Question { id, request, since });
        lane.take_answer(id)
    }

    /// The reason, as text, why a request is refused before its replica sees it.
    fn refusal(&self, lane: &Lane<P>, now: Now, request: &P::Request) -> Option<String> {
        if self.shared().log_failing.load(Ordering::Relaxed) && lane.is_waiting() {
            return Some("the commit log cannot be written; see the node's log".to_string());
        }
        if let Some(refused) = lane.repair_refusal() {
            return Some(refused);
        }
        let takes_room = P::is_write(request) || self.shared().config.planted.refuses_reads_when_full;
        if takes_room && !self.shared().has_room() {
            let min = in_mib(self.shared().config.min_free_bytes);
            return Some(format!(
                "{NO_ROOM} {min} free: writes are refused until there is room"
            ));
        }
        if self.asks_in_vain(request, lane.me) {
            return Some(self.lacked());
        }
        let newest = request.newest();
        (newest > lane.horizon(now)).then(|| {
            format!(
                "the request depends on a timestamp ({newest}) that is too far ahead of this node's clock"
            )
        })
    }

    /// The replica of a partition that a client of this node should ask. If the partition has one member at this
    /// site, it is that one. Otherwise replicas that can be reached come first, then those of this site, then the one on this node.
    pub fn nearest(&self, partition: u16) -> ServerId {
        let (topology, site) = (self.topology(), self.env().site());
        let first = ServerId {
            site,
            partition,
            member: 0,
        };
        if topology.members().at(site) == 1 && topology.contains(first) {
            return first;
        }
        let replicas = topology.replicas_of(partition).iter();
        let servers = replicas.map(|replica| ServerId::of(partition, replica));
        let distance = |&server: &ServerId| {
            (
                !self.is_reached(server),
                server.site != site,
                !self.is_here(server),
            )
        };
        servers.min_by_key(distance).unwrap_or(first)
    }

    /// The replica of a partition at a site that a client there should ask, as far as is known here: one that can be reached, if there is one.
    pub fn nearest_at(&self, site: SiteId, partition: u16) -> ServerId {
        let replicas = self.topology().replicas_of(partition).iter();
        let servers = replicas.map(|replica| ServerId::of(partition, replica));
        let there = servers.filter(|server| server.site == site);
        there
            .min_by_key(|&server| !self.is_reached(server))
            .unwrap_or(ServerId {
                site,
                partition,
                member: 0,
            })
    }

    /// A replica of a partition at another site that can be reached, if there is one.
    pub fn nearest_elsewhere(&self, partition: u16) -> Option<ServerId> {
        let site = self.env().site();
        let replicas = self.topology().replicas_of(partition).iter();
        let mut servers = replicas.map(|replica| ServerId::of(partition, replica));
        servers.find(|&server| server.site != site && self.is_reached(server))
    }

    /// Asks a server of this site about its keys. If it answers at once, the answer is returned.
    pub fn survey(&self, id: RequestId, server: ServerId, survey: Survey, now: Now) -> Option<SurveyOutcome> {
        if let Some(cell) = self.cell(server) {
            return Some(self.survey_lane(cell, survey, now));
        }
        let frame = RequestFrame {
            id: id.0,
            body: bytes::Bytes::new(),
            survey: Some(survey.into()),
        };
        self.forward(id, server, frame).err().map(Err)
    }

    /// Reads the engine without the lane's lock. Keys that are only in memory are merged in under the lock.
    pub(crate) fn survey_lane(&self, cell: &LaneCell<P>, survey: Survey, now: Now) -> SurveyOutcome {
        let refused = {
            let lane = cell.look();
            lane.repair_refusal().or_else(|| lane.absence_refusal())
        };
        if let Some(refused) = refused {
            return Err(refused);
        }
        let Survey::Scan { cursor, count } = survey else {
            return Ok(Surveyed::Count(cell.look().live_keys()));
        };
        let slots = self.topology().slots_of(cell.me.partition);
        let (table, mut epoch, now) = {
            let lane = cell.look();
            let now = lane.replica.read_time(now);
            (lane.store.table(), lane.store.epoch(), now)
        };
        loop {
            let rows = scan_rows::<P::Meta>(&*table, slots.clone(), cursor, count as usize, epoch, now);
            let mut lane = self.enter(cell);
            let rows = rows.map_err(|error| {
                lane.note_damage(&error);
                format!("the keys cannot be read from disk: {error}")
            })?;
            if let Ok((cursor, keys)) = lane.store.finish_scan(rows) {
                return Ok(Surveyed::Keys { cursor, keys });
            }
            epoch = lane.store.epoch();
        }
    }

    /// Passes a request on to the node that holds its server.
    ///
    /// # Errors
    /// If it cannot be sent: the reason, as text, why it is refused.
    fn forward(&self, id: RequestId, server: ServerId, request: RequestFrame) -> Result<(), String> {
        let (node, is_survey) = (self.node_of(server), request.survey.is_some());
        lock(&self.forwarded).insert(id, (node, is_survey));
        // Clients have no server number: the frame names the server that is asked as its sender, too.
        let frame = Frame::new(self.tag(), server, server, Body::Request(request));
        self.shared().send(node, &frame).map_err(|unsent| {
            lock(&self.forwarded).remove(&id);
            match unsent {
                Unsent::Down => format!(
                    "node {}, which holds the partition, cannot be reached",
                    self.shared().config.placement.name_of(node)
                ),
                Unsent::NoKeyspace => self.lacked(),
                unsent => {
                    format!("the request cannot be sent to the node that holds the partition: {unsent}")
                }
            }
        })
    }

    /// The reason, as text, why a request is refused whose partition is on a node that does not have this keyspace.
    fn lacked(&self) -> String {
        let name = self.name();
        format!("the node that holds the partition does not have the keyspace '{name}' in its configuration")
    }

    /// Whether `request` would ask another partition of the site on a node that does not have this keyspace.
    fn asks_in_vain(&self, request: &P::Request, at: ServerId) -> bool {
        let (mut in_vain, mut is_lacked) = (false, None);
        P::keys_elsewhere(request, &mut |key| {
            if !*is_lacked.get_or_insert_with(|| self.is_lacked()) {
                return;
            }
            let partition = self.topology().partition_of_slot(key.slot());
            let server = ServerId { partition, ..at };
            in_vain |= self.shared().lacks(self.node_of(server), self.tag());
        });
        in_vain
    }

    /// Whether some node is known not to have this keyspace. Work that waits for that node waits in vain.
    pub fn is_lacked(&self) -> bool {
        let mut nodes = self.shared().config.placement.nodes();
        nodes.any(|node| self.shared().lacks(node, self.tag()))
    }

    pub(super) fn fail(
        &self,
        id: RequestId,
        is_survey: bool,
        outcome: fn(String) -> Outcome<P::Response>,
        why: &str,
    ) {
        match is_survey {
            true => self.deliver_survey(id, Err(why.to_string())),
            false => self.deliver(id, outcome(why.to_string())),
        }
    }

    pub(super) fn answer_peer(&self, id: RequestId, response: impl FnOnce(u64) -> ResponseFrame) {
        let Some(caller) = lock(&self.callers).take(id.number()) else {
            return;
        };
        self.respond(caller, response(caller.id));
    }

    /// Sends an answer to the node that asked. If it finds no room on the link, a short answer that says so is sent in its place, so that
    /// the node does not wait in vain.
    fn respond(&self, caller: Caller, response: ResponseFrame) {
        let Caller { node, server, .. } = caller;
        let frame = |response| Frame::new(self.tag(), server, server, Body::Response(response));
        let frame_of_answer = frame(response);
        if let Err(unsent @ (Unsent::Full | Unsent::TooLarge)) = self.shared().send(node, &frame_of_answer)
            && let Some(Body::Response(response)) = &frame_of_answer.body
        {
            let _ = self
                .shared()
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
            self.topology().check_replicas(request.replicas())?;
        }
        if self.shared().is_choked(node) {
            let found = "one that asks and takes no answers";
            return Err(BadFrame::new("a node that takes its answers", found));
        }
        let caller = Caller {
            node,
            id: frame.id,
            server: to,
            writes: request.as_ref().is_some_and(P::is_write),
        };
        let Some(number) = lock(&self.callers).insert(caller) else {
            let why = Outcome::Refused("too many requests wait at the node that holds the partition".into());
            self.respond(caller, ResponseFrame::answer::<P::Response>(caller.id, why));
            return Ok(());
        };
        let id = RequestId::of_peer(number);
        match (survey, request) {
            (Some(survey), _) => self.deliver_survey(id, self.survey_lane(cell, survey, now)),
            (None, Some(request)) => {
                if let Some(outcome) = self.take_question(cell, now, id, request) {
                    self.deliver(id, outcome);
                }
            }
            (None, None) => unreachable!("without a survey there is a request"),
        }
        Ok(())
    }

    pub(crate) fn on_response(&self, node: NodeId, frame: ResponseFrame) -> Result<(), BadFrame> {
        let id = RequestId(frame.id);
        let asked = lock(&self.forwarded).get(&id).copied();
        match asked {
            Some((to, true)) if to == node => {
                let surveyed = frame.into_survey()?;
                if lock(&self.forwarded).remove(&id).is_some() {
                    self.deliver_survey(id, surveyed);
                }
            }
            // If it does not decode, the link breaks, and the request fails with it.
            Some((to, false)) if to == node => {
                let outcome = frame.into_answer(self.topology())?;
                if lock(&self.forwarded).remove(&id).is_some() {
                    self.deliver(id, outcome);
                }
            }
            // The request has failed already, or another node was asked.
            _ => {}
        }
        Ok(())
    }
}

/// A number of bytes, written in MiB where it is a whole number of them.
fn in_mib(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes.is_multiple_of(MIB) {
        true => format!("{} MiB", bytes / MIB),
        false => format!("{bytes} bytes"),
    }
}
