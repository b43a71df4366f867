//! One event loop: a thread that reads clients' commands, steps replicas in place, and commits once per turn.
//!
//! ```text
//!   every ready socket: read, decode, operate        connection tasks
//!                          |                              |  ring
//!   one turn:           commit: one write for all         v
//!                       collect answers              the turn's task
//!                       write every socket that has output
//! ```
//!
//! A command on many keys, a long pipeline, or a command or reply of many bytes is not done in one turn. Its connection does a share, and then waits
//! in line. Each turn lets the first connections in line do more shares ([`Line`]). So a turn is never long, and connections with much work share the
//! time that the other connections leave.
//!
//! The runtime queues all sockets that are ready before the task of the turn, which the first of them has woken. So a turn serves all clients that
//! were ready, with one write to the log. An operation whose partition is on this node does not change threads.
use super::{Host, client::Client, client_memory::ServedTime, door, input::Buffers, line::Line};
use crate::{
    admin::AdminServer,
    metrics::{LevelLabel, OperationKind, Outcome, Recorder},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use turnbuckle_core::DoorId;
use turnbuckle_core::{Answered, KeyspaceLevels, Micros, Now, Operation, Transactions};
use turnbuckle_gateway::{Gateway, GatewayOptions};

/// How often a node asks for leaders that are to be at its site.
const PREFER_EVERY: Micros = Micros::from_millis(10_000);

/// How often the loop looks for operations whose deadline has passed, and at the free space of the disk.
const LOOK_EVERY: Micros = Micros::from_millis(100);

/// The disk is also looked at after this many bytes were logged.
const LOOK_BYTES: u64 = 1 << 20;

/// How often a loop that is to end checks whether everything is answered.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What the tasks of one event loop share.
pub(super) struct EventLoop {
    pub host: Arc<Host>,
    pub index: usize,
    pub gateway: RefCell<Gateway>,
    pub recorder: RefCell<Recorder>,
    /// The clients by slot. A slot is used again when its client has left.
    pub clients: RefCell<Vec<Option<Rc<Client>>>>,
    free: RefCell<Vec<usize>>,
    /// Slots of clients that have something to write, or may go on.
    touched: RefCell<Vec<usize>>,
    /// Slots of clients that have done a share and have more to do.
    line: RefCell<Line>,
    answers: RefCell<Vec<(DoorId, u64, Answered)>>,
    /// How many messages to channels the gateway had lost when it was last asked.
    lost_messages: Cell<u64>,
    /// The place of the command that is being executed.
    pub command: Cell<usize>,
    /// The levels of each keyspace, with the defaults for operations that name none.
    pub levels: Vec<KeyspaceLevels>,
    /// Which transactions each keyspace carries out.
    pub transactions: Vec<Transactions>,
    /// The number of condemned clients when this loop last checked it.
    seen_condemned: Cell<u64>,
    /// The buffers that clients' bytes are read into.
    pub buffers: RefCell<Buffers>,
    now: Cell<Now>,
    /// When the loop next looks for operations whose deadline has passed.
    next_look: Cell<Micros>,
    /// When to ask again for leaders that are to be at this site.
    next_prefer: Cell<Micros>,
    /// How long this loop has served its clients.
    pub served: Arc<ServedTime>,
    /// How many bytes had been logged when the disk was last looked at.
    looked_at_bytes: Cell<u64>,
    /// The admin HTTP, which runs on the first loop for as long as the loop runs.
    admin: RefCell<Option<AdminServer>>,
}

/// What is counted about an operation when it ends.
pub(super) struct Started {
    keyspace: usize,
    kind: OperationKind,
    level: LevelLabel,
    /// The place of its command.
    command: usize,
    at: Micros,
}

impl EventLoop {
    pub fn new(host: Arc<Host>, index: usize) -> Rc<EventLoop> {
        let options = GatewayOptions {
            loop_index: index,
            cluster: host.config.name.clone(),
            secret: host.config.secret.clone(),
            deadline: host.config.limits.operation_deadline(),
            seed: host.node.config().seed ^ index as u64,
        };
        let mut gateway = Gateway::new(host.site(), options);
        for add in &host.keyspaces {
            add(&mut gateway);
        }
        let channels = Arc::clone(&host.channels);
        gateway.listen(Arc::new(move |channel| channels.is_heard(index, channel)));
        let levels = gateway.keyspaces().map(|keyspace| keyspace.levels).collect();
        let transactions = gateway.keyspaces().map(|keyspace| keyspace.transactions);
        let transactions = transactions.collect();
        let recorder = host.metrics.recorder();
        let now = host.clock.now();
        Rc::new(EventLoop {
            host,
            index,
            gateway: RefCell::new(gateway),
            recorder: RefCell::new(recorder),
            clients: RefCell::default(),
            free: RefCell::default(),
            touched: RefCell::default(),
            line: RefCell::default(),
            levels,
            transactions,
            seen_condemned: Cell::new(0),
            answers: RefCell::default(),
            lost_messages: Cell::new(0),
            command: Cell::new(0),
            buffers: RefCell::default(),
            now: Cell::new(now),
            next_look: Cell::new(now.monotonic),
            next_prefer: Cell::new(now.monotonic + PREFER_EVERY),
            served: Arc::default(),
            looked_at_bytes: Cell::new(0),
            admin: RefCell::default(),
        })
    }

    /// Keeps the admin server until the loop ends.
    pub fn keep(&self, server: AdminServer) {
        *self.admin.borrow_mut() = Some(server);
    }

    /// Waits until operations under way are answered, at most for the configured grace. Then all tasks of the loop end with it.
    pub async fn wind_down(&self) {
        let grace = Duration::from_millis(self.host.config.limits.shutdown_grace_ms);
        let settled = async {
            while self.gateway.borrow().open_asks() > 0 || self.has_output() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let _ = tokio::time::timeout(grace, settled).await;
    }

    fn has_output(&self) -> bool {
        self.clients
            .borrow()
            .iter()
            .flatten()
            .any(|client| client.has_output())
    }

    /// The time of this turn.
    pub fn now(&self) -> Now {
        self.now.get()
    }

    pub fn refresh_now(&self) {
        self.now.set(self.host.clock.now());
    }

    /// Gives a new client a slot.
    pub fn admit(&self, make: impl FnOnce(usize) -> Client) -> Rc<Client> {
        let mut clients = self.clients.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            clients.push(None);
            clients.len() - 1
        });
        let client = Rc::new(make(slot));
        clients[slot] = Some(Rc::clone(&client));
        client
    }

    pub fn dismiss(&self, slot: usize) {
        self.clients.borrow_mut()[slot] = None;
        // Its answers that wait for the end of the turn are dropped: the next client of the slot must not get them.
        self.answers
            .borrow_mut()
            .retain(|&(_, tag, _)| door::split_tag(tag).0 != slot);
        self.free.borrow_mut().push(slot);
    }

    /// Notes that a client has something to write, at the end of this turn.
    pub fn touch(&self, client: &Client) {
        if !client.touched.replace(true) {
            self.touched.borrow_mut().push(client.slot);
        }
        self.host.wakes.of_loop(self.index).ring();
    }

    /// Notes that a client has done a share and has more to do, when its turn comes.
    pub fn line_up(&self, client: &Client) {
        if !client.in_line.replace(true) {
            self.line.borrow_mut().join(client.slot);
        }
        self.host.wakes.of_loop(self.index).ring();
    }

    /// Lets the first clients in line do a share each, until that is enough for a turn.
    fn serve_line(&self) {
        self.line.borrow_mut().begin_turn();
        loop {
            let Some(slot) = self.line.borrow_mut().next() else {
                return;
            };
            let client = self.clients.borrow()[slot].clone();
            if let Some(client) = client {
                let bytes = client.take_turn(self);
                self.line.borrow_mut().did(bytes);
            }
        }
    }

    /// Disconnects the clients that were condemned so that others have memory.
    fn shed(&self) {
        let condemned = self.host.client_memory.shed();
        if self.seen_condemned.replace(condemned) == condemned {
            return;
        }
        let clients: Vec<Rc<Client>> = self.clients.borrow().iter().flatten().cloned().collect();
        for client in clients.iter().filter(|client| client.is_condemned()) {
            client.shed(self);
        }
    }

    /// Runs the turns of the loop.
    pub async fn run_turns(&self) {
        let bell = self.host.wakes.of_loop(self.index);
        loop {
            let sleep = self.until_deadline();
            tokio::select! {
                biased;
                () = bell.rung() => {}
                () = tokio::time::sleep(sleep) => {}
            }
            self.turn();
            if !self.line.borrow().is_empty() {
                bell.ring();
            }
            // A client with a share of something to do rings again. Sockets that have become ready meanwhile come first.
            if bell.is_rung() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The time until the next timer of a session of this loop, or of a replica; the first loop takes care of the replicas' timers. It is at most the
    /// time until the loop next looks for operations whose deadline has passed.
    fn until_deadline(&self) -> Duration {
        let of_sessions = self.gateway.borrow().next_deadline();
        let own = of_sessions.map_or(self.next_look.get(), |due| due.min(self.next_look.get()));
        let next = match self.index {
            0 => self.host.wakes.first_sleeps(|| {
                let of_replicas = self.host.node.next_deadline();
                of_replicas.map_or(own, |due| due.min(own))
            }),
            _ => own,
        };
        let now = self.host.clock.now().monotonic;
        Duration::from_micros(next.since(now).0)
    }

    fn turn(&self) {
        self.refresh_now();
        let now = self.now();
        let node = &self.host.node;
        if self.index == 0
            && node
                .next_deadline()
                .is_some_and(|deadline| deadline <= now.monotonic)
        {
            node.tick(now);
        }
        self.tick_sessions(now);
        let is_time = self.next_look.get() <= now.monotonic;
        if is_time {
            self.next_look.set(now.monotonic + LOOK_EVERY);
            self.expire();
            self.served.pass(now.monotonic);
            give_back_freed_memory();
            if self.index == 0 {
                self.host.client_memory.look();
                self.host.audit.sum_up(now.monotonic);
                self.host.node.share_memory();
                if self.next_prefer.get() <= now.monotonic {
                    self.next_prefer.set(now.monotonic + PREFER_EVERY);
                    self.host.prefer(now);
                }
            }
            self.shed();
        }
        self.serve_line();
        // Commands may have come in meanwhile, and one that waits for its turn is not begun with a time before it came: a leader's lease may have ended since.
        let now = self.now();
        let logged = self.host.node.appended_bytes();
        if self.index == 0 && (is_time || logged - self.looked_at_bytes.get() > LOOK_BYTES) {
            self.looked_at_bytes.set(logged);
            self.host.look_at_directory();
            self.host.look_at_disk();
        }
        if self.host.has_lost_directory() {
            return;
        }
        self.host.commit_at(now);
        if self.index != 0 {
            self.host.wakes.timer_is_due(|| self.host.node.next_deadline());
        }
        self.gateway
            .borrow_mut()
            .collect(now, &mut self.answers.borrow_mut());
        self.distribute();
        self.spread();
        self.flush();
    }

    /// Hands messages to the clients that listen to their channels.
    fn spread(&self) {
        let mut heard = Vec::new();
        self.gateway.borrow_mut().take_heard(&mut heard);
        for publication in heard {
            let message = &publication.message;
            for (slot, ways) in self.host.channels.listeners(self.index, &message.channel) {
                let client = self.clients.borrow().get(slot as usize).cloned().flatten();
                if let Some(client) = client {
                    client.hear(self, message, &ways);
                    self.recorder.borrow_mut().messages(ways.len());
                }
            }
        }
        let lost = self.gateway.borrow().lost_messages();
        let before = self.lost_messages.replace(lost);
        self.recorder.borrow_mut().lost_messages(lost - before);
    }

    /// Lets sessions whose timers are due go on. They first get the answers that have arrived meanwhile. What they ask is committed with this turn.
    fn tick_sessions(&self, now: Now) {
        let mut gateway = self.gateway.borrow_mut();
        if gateway.next_deadline().is_some_and(|due| due <= now.monotonic) {
            let mut answers = self.answers.borrow_mut();
            gateway.collect(now, &mut answers);
            gateway.tick(now, &mut answers);
        }
    }

    fn expire(&self) {
        self.gateway
            .borrow_mut()
            .expire(self.now(), &mut self.answers.borrow_mut());
    }

    /// Hands answers to the connections that asked.
    pub fn distribute(&self) {
        loop {
            let mut answers = std::mem::take(&mut *self.answers.borrow_mut());
            if answers.is_empty() {
                *self.answers.borrow_mut() = answers;
                return;
            }
            // They come from one partition after the other. In the order of the commands, each answer can be written at once.
            answers.sort_by_key(|&(_, tag, _)| tag);
            for (_, tag, answered) in answers.drain(..) {
                let (slot, tag) = door::split_tag(tag);
                let client = self.clients.borrow()[slot].clone();
                if let Some(client) = client {
                    if let Some(started) = client.take_started(tag) {
                        self.count(&started, &answered);
                    }
                    client.answer(self, tag, answered);
                    self.touch(&client);
                }
            }
            // Commands that had waited may have been answered at once.
            let mut left = self.answers.borrow_mut();
            if left.is_empty() {
                *left = answers;
                return;
            }
        }
    }

    /// Starts an operation of a connection. Returns `Some` if it was answered at once. Other answers that came up on the way wait for the end of the
    /// turn.
    pub fn operate(&self, client: &Client, door: DoorId, tag: u64, operation: Operation) -> Option<Answered> {
        let started = Started {
            keyspace: door.keyspace as usize,
            kind: OperationKind::from(&operation),
            level: LevelLabel::from(&operation),
            command: self.command.get(),
            at: self.now().monotonic,
        };
        let joined = door::join_tag(client.slot, tag);
        let mut answers = self.answers.borrow_mut();
        let before = answers.len();
        self.gateway
            .borrow_mut()
            .operate(self.now(), door, joined, operation, &mut answers);
        match answers[before..]
            .iter()
            .position(|&(of, answered, _)| of == door && answered == joined)
        {
            Some(place) => {
                let (_, _, answered) = answers.swap_remove(before + place);
                self.count(&started, &answered);
                Some(answered)
            }
            None => {
                client.note_started(tag, started);
                None
            }
        }
    }

    fn count(&self, started: &Started, answered: &Answered) {
        let took = self.host.clock.monotonic().since(started.at);
        let outcome = Outcome::from(&answered.0);
        let mut recorder = self.recorder.borrow_mut();
        recorder.operation(started.keyspace, started.kind, started.level, outcome, took);
        recorder.command_operation(started.command, &answered.0, took);
    }

    fn flush(&self) {
        let touched = std::mem::take(&mut *self.touched.borrow_mut());
        for &slot in &touched {
            let client = self.clients.borrow()[slot].clone();
            if let Some(client) = client {
                client.touched.set(false);
                client.flush(self);
            }
        }
        let mut left = self.touched.borrow_mut();
        if left.is_empty() {
            *left = touched;
            left.clear();
        }
    }
}

/// Makes the allocator look for freed pages to return to the system. It looks when pages are taken or freed, and an idle node does neither. The pages
/// that are taken here are not written to, so they use no memory.
fn give_back_freed_memory() {
    const PAGES_BYTES: usize = 1 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(PAGES_BYTES)));
}
