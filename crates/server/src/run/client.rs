//! One client's connection: the socket around [`turnbuckle_resp::Connection`].
use super::{door::LoopBackend, event_loop::EventLoop};
use bytes::{Buf, BytesMut};
use std::{
    cell::{Cell, RefCell},
    io::ErrorKind,
    rc::Rc,
};
use tokio::{net::TcpStream, sync::Notify};
use turnbuckle_core::Answered;
use turnbuckle_resp::Connection;

/// How much is read at a time.
const READ_BYTES: usize = 16 << 10;

/// How much room the loop's read buffer is given at a time.
const BUFFER_BYTES: usize = 64 << 10;

pub(super) struct Client {
    pub slot: usize,
    /// It is in the loop's list of those to write to.
    pub touched: Cell<bool>,
    socket: TcpStream,
    connection: RefCell<Connection>,
    /// Received, and not yet taken as commands.
    input: RefCell<BytesMut>,
    /// The socket took less than there was to write.
    clogged: Cell<bool>,
    broken: Cell<bool>,
    /// The client sends no more. What it has sent is still answered: it may read on.
    ended: Cell<bool>,
    /// Something changed that the connection's task has to look at.
    changed: Notify,
}

impl Client {
    pub fn new(slot: usize, socket: TcpStream, connection: Connection) -> Client {
        Client {
            slot,
            touched: Cell::new(false),
            socket,
            connection: RefCell::new(connection),
            input: RefCell::default(),
            clogged: Cell::new(false),
            broken: Cell::new(false),
            ended: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// Serves the connection until either side ends it.
    pub async fn serve(self: Rc<Self>, event_loop: Rc<EventLoop>) {
        while !self.is_over() {
            self.take_commands(&event_loop);
            if self.is_over() {
                break;
            }
            let host = &event_loop.host;
            let wants_input =
                self.connection.borrow().wants_input() && !host.is_overloaded() && !host.is_stopping();
            tokio::select! {
                biased;
                result = self.socket.readable(), if wants_input && !self.ended.get() => {
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
                // An overload ends without anybody saying so.
                () = tokio::time::sleep(OVERLOAD_LOOK), if !wants_input => {}
            }
        }
        let mut backend = LoopBackend::new(&event_loop, self.slot);
        self.connection.borrow_mut().close(&mut backend);
        event_loop.dismiss(self.slot);
        event_loop.recorder.borrow_mut().client_left();
        event_loop.host.client_left();
    }

    fn is_over(&self) -> bool {
        let mut connection = self.connection.borrow_mut();
        let is_answered = self.ended.get() && connection.outstanding() == 0 && connection.wants_input();
        self.broken.get() || ((connection.is_closing() || is_answered) && connection.output().is_empty())
    }

    fn read(&self, event_loop: &EventLoop) {
        let mut input = self.input.borrow_mut();
        let read = if input.is_empty() {
            let mut shared = event_loop.read_buffer.borrow_mut();
            if shared.capacity() < READ_BYTES {
                shared.reserve(BUFFER_BYTES);
            }
            let read = self.socket.try_read_buf(&mut *shared);
            *input = shared.split();
            read
        } else {
            input.reserve(READ_BYTES);
            self.socket.try_read_buf(&mut *input)
        };
        match read {
            Ok(0) => self.ended.set(true),
            Ok(bytes) => event_loop.recorder.borrow_mut().received_bytes(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.broken.set(true),
        }
    }

    /// Executes what has been received, as far as the connection takes it.
    fn take_commands(&self, event_loop: &EventLoop) {
        // What has begun is answered, and nothing else begins.
        if event_loop.host.is_stopping() {
            return event_loop.touch(self);
        }
        let mut input = self.input.borrow_mut();
        if !input.is_empty() {
            event_loop.refresh_now();
            let mut backend = LoopBackend::new(event_loop, self.slot);
            let mut connection = self.connection.borrow_mut();
            connection.handle_bytes(&mut input, &mut backend);
            if input.is_empty() {
                // Lets go of the loop's buffer.
                *input = BytesMut::new();
            }
        }
        event_loop.touch(self);
    }

    /// An operation's answer.
    pub fn answer(&self, event_loop: &EventLoop, tag: u64, answered: Answered) {
        let mut backend = LoopBackend::new(event_loop, self.slot);
        self.connection
            .borrow_mut()
            .handle_answer(tag, answered, &mut backend);
        if !self.input.borrow().is_empty() {
            self.changed.notify_one();
        }
    }

    /// Whether there is something left to write to a client that is there to read it.
    pub fn has_output(&self) -> bool {
        !self.broken.get() && !self.clogged.get() && !self.connection.borrow_mut().output().is_empty()
    }

    /// Its line of `CLIENT LIST`, unless it is busy with that itself.
    pub fn describe(&self) -> Option<String> {
        self.connection
            .try_borrow()
            .ok()
            .map(|connection| connection.describe())
    }

    /// Writes what there is, as far as the socket takes it.
    pub fn flush(&self, event_loop: &EventLoop) {
        if self.clogged.get() {
            return;
        }
        let mut connection = self.connection.borrow_mut();
        let closing = connection.is_closing() || self.ended.get();
        let output = connection.output();
        while !output.is_empty() {
            match self.socket.try_write(output) {
                Ok(written) => {
                    output.advance(written);
                    event_loop.recorder.borrow_mut().sent_bytes(written);
                }
                Err(error) => {
                    self.clogged.set(error.kind() == ErrorKind::WouldBlock);
                    self.broken.set(error.kind() != ErrorKind::WouldBlock);
                    self.changed.notify_one();
                    return;
                }
            }
        }
        if closing || !self.input.borrow().is_empty() {
            self.changed.notify_one();
        }
    }
}

/// How often a connection that may not be read from looks whether it may again.
const OVERLOAD_LOOK: std::time::Duration = std::time::Duration::from_millis(20);
