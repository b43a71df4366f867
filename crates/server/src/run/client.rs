//! One client's connection: the socket around [`turnbuckle_resp::Connection`].
use super::{
    client_memory::{Charge, FREE_BYTES},
    door::LoopBackend,
    event_loop::{EventLoop, Started},
    input::Input,
    line::{SHARE_BYTES, TURN_BYTES},
    socket::Socket,
};
use crate::tls::HANDSHAKE_TIME;
use bytes::{Buf, Bytes};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::{ErrorKind, IoSlice},
    rc::Rc,
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};
use turnbuckle_core::{Answered, Message, Micros};
use turnbuckle_resp::{Connection, Traffic};

/// While a connection may not be read from, how often it checks whether it may again.
const OVERLOAD_LOOK: Duration = Duration::from_millis(20);

/// How long the node still reads from a client that it disconnects. A client that is busy sending would not read the reason otherwise.
const LINGER: Duration = Duration::from_secs(1);

/// How many bytes it still reads then: a long command. A client that sends more than that does not read the reason.
const LINGER_BYTES: usize = 64 << 20;

/// A client keeps room for this number of operations under way, even if it has none.
const KEPT_STARTED: usize = 32;

/// How many pieces of memory one write gathers: long values, and what is between them.
const MAX_SLICES: usize = 16;

pub(super) struct Client {
    pub slot: usize,
    /// It is in the loop's list of clients to write to.
    pub touched: Cell<bool>,
    /// It has done a share of its work, and waits in line to do the next.
    pub in_line: Cell<bool>,
    /// The last read brought as many bytes as it may: there may be more.
    has_more: Cell<bool>,
    /// It was disconnected for memory. What it still sends is read and dropped, up to `linger_bytes`.
    lingers: Cell<bool>,
    linger_bytes: Cell<usize>,
    socket: Socket,
    connection: RefCell<Connection>,
    /// Its operations under way, by their tags in the connection, which rise. They are for the metrics.
    started: RefCell<VecDeque<(u64, Option<Started>)>>,
    /// Bytes that were received and not taken as commands yet.
    input: RefCell<Input>,
    charge: Charge,
    /// The bytes that the connection may hold, and the bytes that the input holds. The client is charged for both.
    connection_bytes: Cell<usize>,
    input_bytes: Cell<usize>,
    /// The socket took less than there was to write.
    clogged: Cell<bool>,
    broken: Cell<bool>,
    /// It was disconnected so that other clients have memory.
    shed: Cell<bool>,
    /// When it connected, and when it was last served a command, in monotonic time.
    connected: Micros,
    active: Cell<Micros>,
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
    /// How many of its commands the metrics have.
    counted_commands: Cell<u64>,
    /// The client sends no more. What it has sent is still answered, because it may still read.
    ended: Cell<bool>,
    /// Wakes the connection's task, which looks at what has changed.
    changed: Notify,
}

impl Client {
    pub fn new(slot: usize, socket: Socket, connection: Connection, charge: Charge, now: Micros) -> Client {
        Client {
            slot,
            touched: Cell::new(false),
            in_line: Cell::new(false),
            has_more: Cell::new(false),
            lingers: Cell::new(false),
            linger_bytes: Cell::new(LINGER_BYTES),
            socket,
            connection: RefCell::new(connection),
            started: RefCell::default(),
            input: RefCell::default(),
            charge,
            connection_bytes: Cell::new(0),
            input_bytes: Cell::new(0),
            clogged: Cell::new(false),
            broken: Cell::new(false),
            shed: Cell::new(false),
            connected: now,
            active: Cell::new(now),
            received_bytes: Cell::new(0),
            sent_bytes: Cell::new(0),
            counted_commands: Cell::new(0),
            ended: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// Serves the connection until either side ends it.
    pub async fn serve(self: Rc<Self>, event_loop: Rc<EventLoop>) {
        let handshake_end = Instant::now() + HANDSHAKE_TIME;
        while !self.is_over() {
            if !self.in_line.get() {
                self.take_commands(&event_loop);
            }
            if self.is_over() {
                break;
            }
            let wants_input = self.wants_input(&event_loop);
            tokio::select! {
                biased;
                result = self.socket.readable(), if wants_input && !self.ended.get() && !self.in_line.get() => {
                    if result.is_err() {
                        break;
                    }
                    self.read(&event_loop);
                }
                result = self.socket.writable(), if self.clogged.get() => {
                    if result.is_err() {
                        break;
                    }
                    self.clogged.set(false);
                    self.flush(&event_loop);
                }
                () = self.changed.notified() => {}
                () = async { tokio::time::sleep_until(handshake_end).await }, if self.socket.is_handshaking() => break,
                // Nothing tells the task that an overload has ended.
                () = async { tokio::time::sleep(OVERLOAD_LOOK).await }, if !wants_input => {}
            }
        }
        let mut backend = LoopBackend::new(&event_loop, &self);
        self.connection.borrow_mut().close(&mut backend);
        self.charge.set(0);
        if self.shed.get() && !self.broken.get() {
            self.linger(&event_loop).await;
        }
        self.socket.close();
        event_loop.dismiss(self.slot);
        event_loop.recorder.borrow_mut().client_left();
        event_loop.host.client_left();
    }

    fn is_over(&self) -> bool {
        let mut connection = self.connection.borrow_mut();
        let is_answered = self.ended.get() && connection.outstanding() == 0 && connection.wants_input();
        let is_sent = connection.output().is_empty() && !self.socket.is_clogged();
        self.broken.get() || ((connection.is_closing() || is_answered) && is_sent)
    }

    fn wants_input(&self, event_loop: &EventLoop) -> bool {
        let host = &event_loop.host;
        self.connection.borrow().wants_input()
            && !host.is_overloaded()
            && !host.is_stopping()
            && (self.ended.get() || (!self.input.borrow().is_joining() && self.may_read()))
    }

    /// Called when it is first in line. Does one share of what there is to do, and joins the line again if there is more. Returns how much of a turn
    /// that was, in bytes.
    pub fn take_turn(&self, event_loop: &EventLoop) -> usize {
        self.in_line.set(false);
        if self.lingers.get() {
            return self.forget_input(event_loop);
        }
        let mut bytes = match self.connection.borrow().wants_turn() {
            true => TURN_BYTES,
            false => 0,
        };
        bytes += self.flush(event_loop);
        if self.has_more.take() && !self.ended.get() && self.wants_input(event_loop) {
            bytes += self.read(event_loop);
        }
        bytes += self.take_commands(event_loop);
        self.changed.notify_one();
        bytes
    }

    /// Reads what has arrived, up to a bound. If the bound is reached, the rest is read after other clients had their share. Returns the number of
    /// bytes.
    fn read(&self, event_loop: &EventLoop) -> usize {
        let mut input = self.input.borrow_mut();
        let max = input.next_bytes();
        let mut buffers = event_loop.buffers.borrow_mut();
        let read = input.read(&mut buffers, |buffer| self.socket.read(buffer));
        match read {
            Ok(0) => self.ended.set(true),
            Ok(bytes) => {
                event_loop.recorder.borrow_mut().received_bytes(bytes);
                self.received_bytes.set(self.received_bytes.get() + bytes as u64);
                self.charge.moved();
                self.has_more.set(bytes == max);
                if bytes < max {
                    self.socket.note_drained();
                }
                self.clogged.set(self.clogged.get() || self.socket.is_clogged());
                return bytes;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.clogged.set(self.clogged.get() || self.socket.is_clogged());
            }
            Err(error) => {
                tracing::debug!(
                    node = event_loop.host.name,
                    "a client's connection broke: {error}"
                );
                self.broken.set(true);
            }
        }
        0
    }

    /// Executes a share of the received commands, as far as the connection takes them. Returns how many bytes had to be copied for that.
    fn take_commands(&self, event_loop: &EventLoop) -> usize {
        // Commands that have begun are answered, and no other command begins.
        if event_loop.host.is_stopping() {
            event_loop.touch(self);
            return 0;
        }
        let mut input = self.input.borrow_mut();
        let mut connection = self.connection.borrow_mut();
        let (waited, had_turn) = (connection.is_waiting(), connection.wants_turn());
        let copied = input.join(connection.wanted_bytes());
        let mut taken = 0;
        if !input.is_empty() || waited || had_turn {
            event_loop.refresh_now();
            self.active.set(event_loop.now().monotonic);
            let mut backend = LoopBackend::new(event_loop, self);
            taken = input.take(|bytes| connection.handle_bytes(bytes, &mut backend));
        }
        let begun = had_turn || taken > 0 || waited != connection.is_waiting();
        if connection.wants_turn() || self.has_more.get() || input.is_joining() {
            event_loop.line_up(self);
        }
        let has_output = !connection.output().is_empty() && !self.clogged.get();
        drop(connection);
        self.input_bytes.set(input.held_bytes());
        drop(input);
        self.release_memory(false);
        if begun || has_output {
            event_loop.touch(self);
        }
        copied
    }

    /// An operation is under way. Its tag is greater than those before it.
    pub fn note_started(&self, tag: u64, started: Started) {
        self.started.borrow_mut().push_back((tag, Some(started)));
    }

    /// Takes what was noted about an operation when it began. The oldest one that is left is under way.
    pub fn take_started(&self, tag: u64) -> Option<Started> {
        let mut all = self.started.borrow_mut();
        let place = all.binary_search_by_key(&tag, |&(tag, _)| tag).ok()?;
        let started = all[place].1.take();
        while all.front().is_some_and(|(_, started)| started.is_none()) {
            all.pop_front();
        }
        if all.capacity() > KEPT_STARTED && all.len() < all.capacity() / 8 {
            let room = 2 * all.len();
            all.shrink_to(room);
        }
        started
    }

    /// Passes the answer of an operation to the connection.
    pub fn answer(&self, event_loop: &EventLoop, tag: u64, answered: Answered) {
        let mut backend = LoopBackend::new(event_loop, self);
        let mut connection = self.connection.borrow_mut();
        connection.handle_answer(tag, answered, &mut backend);
        if connection.wants_turn() {
            event_loop.line_up(self);
        } else if !self.input.borrow().is_empty() || connection.is_waiting() {
            self.changed.notify_one();
        }
    }

    /// Delivers a message to a channel, once for each way in which the client listens to it.
    pub fn hear(&self, event_loop: &EventLoop, message: &Message, ways: &[Option<Bytes>]) {
        let mut backend = LoopBackend::new(event_loop, self);
        let mut connection = self.connection.borrow_mut();
        let mut is_served = false;
        for pattern in ways {
            let (channel, text) = (&message.channel, &message.text);
            is_served |= connection.handle_message(pattern.as_ref(), channel, text, &mut backend);
        }
        drop(connection);
        if is_served {
            event_loop.touch(self);
        }
    }

    /// Whether there is something left to write, and the client can take it.
    pub fn has_output(&self) -> bool {
        !self.broken.get() && !self.clogged.get() && !self.connection.borrow_mut().output().is_empty()
    }

    /// Its line of `CLIENT LIST`; `None` if this client is the one that is executing a command now.
    pub fn describe(&self, now: Micros) -> Option<String> {
        let connection = self.connection.try_borrow().ok()?;
        Some(connection.describe(&self.traffic(now)))
    }

    /// What its socket has carried. While its commands are executed, the bytes that wait behind them are those of before.
    pub fn traffic(&self, now: Micros) -> Traffic {
        let seconds_since = |then: Micros| now.since(then).0 / 1_000_000;
        Traffic {
            age_seconds: seconds_since(self.connected),
            idle_seconds: seconds_since(self.active.get()),
            queued_bytes: self.input_bytes.get() as u64,
            received_bytes: self.received_bytes.get(),
            sent_bytes: self.sent_bytes.get(),
        }
    }

    /// Writes what there is, up to a bound and as far as the socket takes it. If the bound is reached, the rest is written after other clients had
    /// their share. Returns the number of bytes.
    pub fn flush(&self, event_loop: &EventLoop) -> usize {
        if self.clogged.get() {
            self.release_memory(false);
            return 0;
        }
        if self.socket.is_clogged() && self.socket.flush().is_err() {
            self.broken.set(true);
        }
        let mut connection = self.connection.borrow_mut();
        let output = connection.output();
        let mut sent = 0;
        while !output.is_empty() && sent < SHARE_BYTES && !self.broken.get() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = output.slices(SHARE_BYTES - sent, &mut slices);
            match self.socket.write(&slices[..count]) {
                Ok(written) => {
                    output.advance(written);
                    sent += written;
                }
                Err(error) => {
                    self.clogged.set(error.kind() == ErrorKind::WouldBlock);
                    self.broken.set(error.kind() != ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        self.clogged.set(self.clogged.get() || self.socket.is_clogged());
        if sent >= SHARE_BYTES && !output.is_empty() {
            event_loop.line_up(self);
        }
        let (is_closing, executed) = (connection.is_closing(), connection.commands());
        let waits = self.ended.get() || connection.is_waiting() || !self.input.borrow().is_empty();
        drop(connection);
        let commands = executed - self.counted_commands.replace(executed);
        if commands > 0 {
            event_loop.recorder.borrow_mut().commands(commands);
        }
        if sent > 0 {
            event_loop.recorder.borrow_mut().sent_bytes(sent);
            self.sent_bytes.set(self.sent_bytes.get() + sent as u64);
            self.charge.moved();
        }
        self.release_memory(sent > 0);
        // The connection's task looks at what there is room for now, or at whether the connection is over.
        if (sent > 0 && waits) || is_closing || self.clogged.get() || self.broken.get() {
            self.changed.notify_one();
        }
        sent
    }

    // ---- memory ---------------------------------------------------------------------------------------------

    /// Whether the connection may hold this many bytes.
    pub fn grow_to(&self, bytes: usize) -> bool {
        let bytes = over(bytes) + over(self.input_bytes.get());
        self.charge.grow_to(bytes + self.socket.held_bytes())
    }

    /// Whether there is room for what the next read may bring.
    fn may_read(&self) -> bool {
        let input = self.input.borrow();
        let bytes = input.held_bytes() + input.next_bytes();
        self.charge
            .grow_to(over(self.connection_bytes.get()) + over(bytes) + self.socket.held_bytes())
    }

    /// Releases memory that is not needed any more. `written`: whether some output was written.
    fn release_memory(&self, written: bool) {
        let mut connection = self.connection.borrow_mut();
        self.connection_bytes.set(connection.release_memory(written));
        let bytes = over(self.connection_bytes.get()) + over(self.input_bytes.get());
        let bytes = bytes + self.socket.held_bytes();
        let is_owed =
            connection.outstanding() > 0 && !connection.is_waiting() && connection.output().is_empty();
        self.charge.set(bytes);
        self.charge.set_owed(is_owed);
    }

    pub fn is_condemned(&self) -> bool {
        self.charge.is_condemned() && !self.shed.get()
    }

    /// Drops all memory that the client uses, and tells the client why, if one write is enough for that.
    pub fn shed(&self, event_loop: &EventLoop) {
        tracing::warn!(
            node = event_loop.host.name,
            "the memory for clients is full (client_memory_mb): a client that used {} KiB is disconnected",
            (over(self.connection_bytes.get()) + over(self.input_bytes.get())) >> 10
        );
        self.shed.set(true);
        self.connection.borrow_mut().shed();
        self.input.borrow_mut().clear();
        self.input_bytes.set(0);
        self.flush(event_loop);
        if !self.connection.borrow_mut().output().is_empty() {
            self.broken.set(true);
        }
        self.changed.notify_one();
    }

    /// Reads on and drops what it reads, so that the client reads why it is disconnected. It ends when the client closes the connection, or after
    /// `LINGER` or `LINGER_BYTES`.
    async fn linger(&self, event_loop: &EventLoop) {
        self.lingers.set(true);
        let drained = async {
            let goes_on = || !self.ended.get() && !self.broken.get() && self.linger_bytes.get() > 0;
            while goes_on() && self.socket.readable().await.is_ok() {
                event_loop.line_up(self);
                while self.in_line.get() {
                    self.changed.notified().await;
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, drained).await;
    }

    /// Reads a share and drops it. Returns the number of bytes.
    fn forget_input(&self, event_loop: &EventLoop) -> usize {
        self.changed.notify_one();
        let mut buffers = event_loop.buffers.borrow_mut();
        let read = buffers.read_nothing(|buffer| self.socket.read(buffer));
        match read {
            Ok(0) => self.ended.set(true),
            Ok(bytes) => {
                self.linger_bytes
                    .set(self.linger_bytes.get().saturating_sub(bytes));
                return bytes;
            }
            Err(error) => self.broken.set(error.kind() != ErrorKind::WouldBlock),
        }
        0
    }
}

/// How many of these bytes of commands, or of replies, are charged.
fn over(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}
