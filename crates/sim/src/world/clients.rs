//! What clients do: ask, wait, move.
use super::{Client, Event, index};
use crate::{OperationId, Record, World, keyspaces::name_of};
use turnbuckle_core::{Answer, Answered, Micros, Operation, Session, Wanted};
use turnbuckle_node::NodeId;

impl<S: Session> World<S> {
    /// A new client of a node, in the first keyspace.
    pub fn add_client(&mut self, node: NodeId) -> usize {
        self.add_client_in(0, node)
    }

    /// A new client of a node, in a keyspace.
    pub fn add_client_in(&mut self, keyspace: usize, node: NodeId) -> usize {
        self.clients.push(Client {
            node,
            keyspace,
            session: 0,
            token: None,
            busy_until: Micros(0),
        });
        self.clients.len() - 1
    }

    /// The node of a client.
    pub fn node_of_client(&self, client: usize) -> NodeId {
        self.clients[client].node
    }

    /// The keyspace of a client.
    pub fn keyspace_of_client(&self, client: usize) -> usize {
        self.clients[client].keyspace
    }

    /// A client goes on at another node. If its old node still runs, its session comes along. It receives no more answers to what it has
    /// asked there.
    pub fn move_client(&mut self, client: usize, to: NodeId) {
        let from = std::mem::replace(&mut self.clients[client].node, to);
        if from == to {
            return;
        }
        self.clients[client].busy_until = Micros(0);
        let unheard: Vec<OperationId> = self.open_of(client).collect();
        for id in unheard {
            self.open.remove(&id);
            self.over.push(id);
        }
        if let Some(process) = &mut self.machines[index(from)].process
            && let Some(door) = process.doors.remove(&client)
        {
            self.clients[client].token = Some(process.gateway.token(door));
            process.gateway.close(door);
        }
    }

    /// A client asks its node. If there is no process that serves the client's keyspace, there is no answer.
    pub fn invoke(&mut self, client: usize, operation: Operation) -> OperationId {
        let id = self.history.next();
        let node = self.clients[client].node;
        let place = self.place_in_moment();
        let record = Record {
            client,
            session: self.clients[client].session,
            node,
            before: self.judge.number(),
            pipelined: self.open_of(client).next().is_some(),
            wanted: operation.wanted(),
            operation: match operation {
                Operation::First(first) => first.operation,
                operation => operation,
            },
            invoked: self.time,
            returned: None,
            places: (place, 0),
        };
        self.log(node, || format!("client {client}: {}", record.words()));
        let takes = self.service_of(&record);
        self.history.push(record);
        let place = index(node);
        if !self.is_served(client) {
            self.over.push(id);
            return id;
        }
        self.judge
            .invoked(id, client, &self.history.get(id).operation, self.time);
        self.open.insert(id);
        let machine = &mut self.machines[place];
        let begins = self.time.max(machine.paused_until);
        // A connection's commands are handled in order, whichever core is free first.
        let behind = &mut self.clients[client].busy_until;
        let done = machine.work_until(begins, takes).max(*behind);
        if done == self.time && *behind < self.time {
            self.operate(place, id);
        } else {
            *behind = done;
            let life = self.machines[place].lives;
            let event = Event::Operate {
                node: place,
                life,
                id,
            };
            self.schedule(done.since(self.time), event);
        }
        id
    }

    /// The operations of a client that are not answered yet.
    fn open_of(&self, client: usize) -> impl Iterator<Item = OperationId> {
        let open = self.open.iter().copied();
        open.filter(move |&id| self.history.get(id).client == client)
    }

    /// How long a core is busy with an operation.
    fn service_of(&self, record: &Record) -> Micros {
        let service = &self.options.service;
        let takes = match record.operation {
            Operation::Put { .. } | Operation::Transact { .. } => service.write,
            _ => service.read,
        };
        let percent = record.key().map_or(100, |key| {
            self.slow_percent(self.topology.partition_of_slot(key.slot()))
        });
        Micros(takes.0.saturating_mul(percent) / 100)
    }

    /// The operation has reached its node, and the node handles it.
    pub(super) fn operate(&mut self, place: usize, id: OperationId) {
        let record = self.history.get(id);
        let client = record.client;
        let operation = record.operation.clone().wanting(record.wanted.clone());
        let now = self.now(place);
        let known = &mut self.clients[client];
        let process = self.machines[place].process.as_mut();
        let process = process.expect("an operation reaches a process that runs");
        let gateway = &mut process.gateway;
        let door = *process.doors.entry(client).or_insert_with(|| {
            let door = gateway.open(&name_of(known.keyspace));
            let door = door.expect("a client that is not served does not get here");
            if let Some(token) = known.token.take() {
                gateway.resume(door, &token).expect("tokens are the world's own");
            }
            door
        });
        let mut answers = Vec::new();
        gateway.operate(now, door, id.0 as u64, operation, &mut answers);
        self.take_answers(answers);
        self.want_turn(place);
        self.look_after(place);
    }

    /// The number of questions and answers before this one at this moment.
    fn place_in_moment(&mut self) -> u32 {
        let (moment, count) = self.moment;
        self.moment = match moment == self.time {
            true => (moment, count + 1),
            false => (self.time, 0),
        };
        self.moment.1
    }

    pub(super) fn take_answers(&mut self, answers: Vec<(turnbuckle_core::DoorId, u64, Answered)>) {
        if answers.is_empty() {
            return;
        }
        self.look_at_clocks();
        for (_, tag, answered) in answers {
            let id = OperationId(tag as usize);
            if !self.open.remove(&id) {
                // Its node has crashed since, and the client does not wait for the answer any more.
                continue;
            }
            self.note(&tag.to_le_bytes());
            self.note_answer(&answered);
            let place = self.place_in_moment();
            let record = self.history.get_mut(id);
            assert!(record.returned.is_none(), "an operation is answered once");
            if let (Some(Wanted::First(_)), Some(receipt)) = (&record.wanted, &answered.1) {
                let given = receipt.given;
                record.operation = record.operation.clone().at(given);
            }
            record.returned = Some((self.time, answered));
            record.places.1 = place;
            let site = self.placement.site_of(record.node);
            let ahead = match (&record.operation, &record.returned) {
                (Operation::Get { key, .. }, Some((_, (_, Some(receipt)))))
                    if !self.judge.trusts_clocks() =>
                {
                    Some((receipt.server, key.clone()))
                }
                _ => None,
            };
            let ahead = ahead.and_then(|(server, key)| self.seen_to_be_ahead(server, &key));
            self.look_at_newest_clock(id);
            let record = self.history.get(id);
            self.judge.returned(id, record, site, ahead);
            let (node, client) = (record.node, record.client);
            let record = self.history.get(id);
            let words = || format!("client {client} is told {}", record.answer_words());
            if let Some(log) = &mut self.messages {
                log.note(node, self.time, words());
            }
            self.over.push(id);
        }
    }

    /// Tells the judge the newest clock of any node, if the answer may be right only by a clock that is ahead of true time.
    fn look_at_newest_clock(&mut self, id: OperationId) {
        let is_early = self.judge.may_be_early(self.history.get(id));
        let clock = is_early.then(|| {
            let all_run = self.nodes().all(|node| self.is_running(node));
            all_run.then(|| self.stamped())
        });
        self.judge.look_at_newest_clock(clock);
    }

    /// Adds an answer to the checksum, all of it.
    fn note_answer(&mut self, answered: &Answered) {
        let (answer, receipt) = answered;
        match answer {
            Answer::Value(Some(value)) => self.note(value),
            Answer::Value(None) => self.note(b"nothing"),
            Answer::Written { existed } => self.note(&[u8::from(*existed)]),
            other => self.note(format!("{other:?}").as_bytes()),
        }
        if let Some(receipt) = receipt {
            let version = receipt.version.unwrap_or_default();
            self.note(&version.at.0.to_le_bytes());
            self.note(&version.replica.0.to_le_bytes());
            self.note(&receipt.staleness.unwrap_or(Micros::MAX).0.to_le_bytes());
        }
    }

    /// The operations that are over since the last call: answered, or certain to get no answer.
    pub fn take_over(&mut self) -> Vec<OperationId> {
        std::mem::take(&mut self.over)
    }

    /// Asks for [`World::take_awake`] to name a client after this time.
    pub fn wake(&mut self, client: usize, after: Micros) {
        self.schedule(after, Event::Wake { client });
    }

    /// The clients whose time has come since the last call.
    pub fn take_awake(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.awake)
    }

    /// Whether [`World::take_over`] or [`World::take_awake`] would return anything.
    pub fn has_news(&self) -> bool {
        !self.over.is_empty() || !self.awake.is_empty()
    }

    /// Whether an operation may still be answered.
    pub fn is_open(&self, id: OperationId) -> bool {
        self.open.contains(&id)
    }

    /// The sessions of a node's clients end with the node.
    pub(super) fn lose_clients(&mut self, node: NodeId) {
        let history = &self.history;
        let lost: Vec<OperationId> = self
            .open
            .iter()
            .copied()
            .filter(|&id| history.get(id).node == node)
            .collect();
        for id in lost {
            self.open.remove(&id);
            self.over.push(id);
        }
        for client in self.clients.iter_mut().filter(|client| client.node == node) {
            client.session += u32::from(client.token.is_none());
        }
    }
}
