use crate::commands::{self, Spec};
use crate::shape::{Shape, Style, Writes};
use crate::slot::{ReadyReply, Slot, SlotState};
use crate::{
    Arguments, Backend, Decoded, Decoder, DoorId, Limits, Resp, TooBig, Writer, call::Call, refusal::Refusal,
};
use bytes::BytesMut;
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{Answered, Level, Operation, Receipt};

/// What a connection is told about itself at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Its number, for `CLIENT ID`. Not used twice in a node's life.
    pub id: u64,
    /// The client's address, for `CLIENT INFO`.
    pub peer: String,
    /// The address that the client connected to.
    pub local: String,
    /// The keyspace it begins in.
    pub keyspace: String,
    /// What it may cost.
    pub limits: Limits,
}

/// One client's connection, without its socket: bytes in, operations out, answers in, bytes out.
///
/// Inputs are [`Connection::handle_bytes`] and [`Connection::handle_answer`]; operations go to the [`Backend`] that comes
/// with them; replies gather in [`Connection::output`]. The loop around it:
///
/// 1. While [`Connection::wants_input`], read from the socket into a buffer.
/// 2. Call [`Connection::handle_bytes`] with it. What is left in the buffer belongs to the next call.
/// 3. Call [`Connection::handle_answer`] for each answer, and then [`Connection::handle_bytes`] again if the buffer is
///    not empty: commands may have been waiting for the answer, or for room.
/// 4. Write what is in [`Connection::output`], taking from its front; then 3 again, for the same reason.
/// 5. Once [`Connection::is_closing`], write what is left and close the socket.
/// 6. Whoever closed it, call [`Connection::close`]. Answers may still come, and are dropped.
///
/// **Order.** Replies leave in the order of the commands, however the answers come. Operations of later commands begin
/// while earlier ones are outstanding; a command that changes or shows the connection's own state (`SELECT`, `HELLO`,
/// `RESET`, `CONSISTENCY`, `SESSION`, `RECEIPT`, ..) or that counts or lists keys waits until all before it are answered.
///
/// **Bounds.** Nothing that a client does makes it grow beyond its [`Limits`]: when replies pile up because they are not
/// read, or too much is outstanding, it stops decoding and [`Connection::wants_input`] is false.
#[derive(Debug)]
pub struct Connection {
    pub(crate) greeting: Greeting,
    pub(crate) state: State,
    decoder: Decoder,
    /// Kept between commands for the memory in it.
    arguments: Arguments,
    output: BytesMut,
    slots: VecDeque<Slot>,
    /// A command that waits until all before it are answered. Invariant: there are slots.
    waiting: Option<Arguments>,
    /// The bytes of commands in `slots`.
    outstanding_bytes: usize,
    /// The bytes of replies in `slots`.
    held_bytes: usize,
    next_tag: u64,
    life: Life,
}

/// What commands change. `RESET` makes it new.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) resp: Resp,
    /// The name that the client gave itself; empty without one.
    pub(crate) name: Vec<u8>,
    /// The client library and its version, as it says.
    pub(crate) library: (Vec<u8>, Vec<u8>),
    /// The selected keyspace.
    pub(crate) keyspace: String,
    /// Opened when it is first needed, so that an idle connection costs nothing behind it.
    pub(crate) door: Option<DoorId>,
    /// The doors of keyspaces that were used and left, by name: who comes back goes on where they were. As many as there are
    /// keyspaces, at most.
    pub(crate) left: BTreeMap<String, DoorId>,
    /// The level of reads that name none, where it is not the keyspace's own.
    pub(crate) read: Option<Level>,
    /// The level of writes that name none, where it is not the keyspace's own.
    pub(crate) write: Option<Level>,
    /// A `MULTI` was refused: what belongs to it is refused too, until `EXEC` or `DISCARD`.
    pub(crate) in_refused_transaction: bool,
    /// Whether each reply carries its receipt.
    pub(crate) receipts: bool,
    /// The receipt of the last command on keys, if it has one.
    pub(crate) receipt: Option<Receipt>,
}

impl State {
    /// Forgets what every session of this connection has seen.
    pub(crate) fn close_doors(&mut self, backend: &mut dyn Backend) {
        let left = std::mem::take(&mut self.left).into_values();
        for door in self.door.take().into_iter().chain(left) {
            backend.close(door);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Open,
    /// No more commands are taken; what was taken is still answered.
    Ending,
    /// The door is closed; answers are dropped.
    Closed,
}

impl Connection {
    /// A connection that has just been accepted.
    ///
    /// # Panics
    /// If the limits make no sense ([`Decoder::new`]): the configuration is checked before.
    pub fn new(greeting: Greeting) -> Connection {
        Connection {
            decoder: Decoder::new(greeting.limits),
            state: State {
                keyspace: greeting.keyspace.clone(),
                ..State::default()
            },
            greeting,
            arguments: Arguments::default(),
            output: BytesMut::new(),
            slots: VecDeque::new(),
            waiting: None,
            outstanding_bytes: 0,
            held_bytes: 0,
            next_tag: 0,
            life: Life::Open,
        }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.greeting.id
    }

    /// The name of the keyspace that it is in.
    pub fn keyspace(&self) -> &str {
        &self.state.keyspace
    }

    /// Whether more commands can be taken now. If not, do not read from the socket either: that is what makes a client
    /// wait that sends faster than it reads.
    pub fn wants_input(&self) -> bool {
        let limits = &self.greeting.limits;
        self.life == Life::Open
            && self.waiting.is_none()
            && self.output.len() + self.held_bytes < limits.max_output_bytes
            && self.slots.len() < limits.max_outstanding
            && self.outstanding_bytes < limits.max_outstanding_bytes
    }

    /// How many commands wait for an answer, their own or one before it.
    pub fn outstanding(&self) -> usize {
        self.slots.len() + usize::from(self.waiting.is_some())
    }

    /// Replies to write to the socket, in order. Take from its front what has been written.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// Whether the connection is to be closed once its output is written.
    pub fn is_closing(&self) -> bool {
        self.life != Life::Open && self.slots.is_empty()
    }

    /// The line of `CLIENT INFO` and `CLIENT LIST` about this connection, without its line break.
    pub fn describe(&self) -> String {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "id={} addr={} laddr={} name={} flags=N db=0 keyspace={} omem={} user=default lib-name={} lib-ver={} resp={}",
            self.greeting.id,
            self.greeting.peer,
            self.greeting.local,
            lossy(&self.state.name),
            self.state.keyspace,
            self.output.len(),
            lossy(&self.state.library.0),
            lossy(&self.state.library.1),
            self.state.resp.number(),
        )
    }

    /// Takes commands off the front of `input` for as long as [`Connection::wants_input`].
    pub fn handle_bytes(&mut self, input: &mut BytesMut, backend: &mut dyn Backend) {
        // Out of `self` for the loop, and not moved within it: this is the path of every command.
        let mut arguments = std::mem::take(&mut self.arguments);
        while self.wants_input() {
            match self.decoder.decode(input, &mut arguments) {
                Ok(Decoded::Incomplete) => break,
                Ok(Decoded::Command) => self.take(&mut arguments, backend),
                Ok(Decoded::TooBig(why)) => self.refuse(&self.too_big(why)),
                Err(error) => {
                    self.refuse(&Refusal::err(format_args!("Protocol error: {error}")));
                    self.end();
                }
            }
        }
        arguments.clear();
        self.arguments = arguments;
    }

    /// Takes in the answer of the operation with this tag.
    ///
    /// # Panics
    /// If no such operation is outstanding, or the answer is not one to it.
    pub fn handle_answer(&mut self, tag: u64, answered: Answered, backend: &mut dyn Backend) {
        if self.life == Life::Closed {
            return;
        }
        let behind = self.slots.partition_point(|slot| slot.first_tag <= tag);
        assert!(behind > 0, "no operation with tag {tag} is outstanding");
        let place = behind - 1;
        let slot = &mut self.slots[place];
        let (answer, receipt) = answered;
        let reply = match &mut slot.state {
            SlotState::Ready(_) => panic!("the operation with tag {tag} was answered twice"),
            SlotState::Several(writes) => {
                writes.take((tag - slot.first_tag) as usize, answer, receipt);
                if !writes.is_complete() {
                    return;
                }
                let writes = std::mem::replace(writes, Box::new(Writes::new(false, Vec::new())));
                self.ready(|style, writer| style.write_several(&writes, backend, writer))
            }
            SlotState::One(shape) => {
                assert!(
                    tag == slot.first_tag,
                    "no operation with tag {tag} is outstanding"
                );
                let shape = std::mem::replace(shape, Shape::Done);
                self.ready(|style, writer| style.write_one(&shape, &answer, receipt, backend, writer))
            }
        };
        self.slots[place].state = SlotState::Ready(reply);
        self.drain();
        self.go_on(backend);
    }

    /// Closes all doors. The operations that are outstanding go on; nobody hears of them.
    pub fn close(&mut self, backend: &mut dyn Backend) {
        self.state.close_doors(backend);
        self.drop_everything();
    }

    /// Executes a command, or keeps it until all before it are answered.
    fn take(&mut self, arguments: &mut Arguments, backend: &mut dyn Backend) {
        let spec = commands::find(arguments.at(0));
        if spec.is_some_and(|spec| spec.waits) && !self.slots.is_empty() {
            self.waiting = Some(std::mem::take(arguments));
        } else {
            self.execute(spec, arguments, backend);
        }
    }

    fn execute(&mut self, spec: Option<&Spec>, arguments: &Arguments, backend: &mut dyn Backend) {
        let mut call = Call {
            connection: self,
            backend,
            arguments,
        };
        let result = match spec {
            Some(spec) if call.connection.state.in_refused_transaction => {
                commands::run_in_refused_transaction(spec, &mut call)
            }
            Some(spec) => spec.run(&mut call),
            None => commands::run_unknown(&mut call),
        };
        if let Err(refusal) = result {
            self.refuse(&refusal);
        }
        self.check_output();
    }

    /// Executes the command that was waiting, if its turn has come.
    fn go_on(&mut self, backend: &mut dyn Backend) {
        if self.slots.is_empty()
            && let Some(arguments) = self.waiting.take()
        {
            self.execute(commands::find(arguments.at(0)), &arguments, backend);
        }
    }

    /// Takes no more commands.
    pub(crate) fn end(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Ending;
        }
    }

    /// Begins an operation whose answer is the reply.
    pub(crate) fn operate(
        &mut self,
        door: DoorId,
        shape: Shape,
        operation: Operation,
        frame_bytes: usize,
        backend: &mut dyn Backend,
    ) {
        let tag = self.next_tag;
        self.next_tag += 1;
        match backend.operate(door, tag, operation) {
            Some((answer, receipt)) => self.reply_about_keys(tag, |style, writer| {
                style.write_one(&shape, &answer, receipt, backend, writer)
            }),
            None => self.push(tag, frame_bytes, SlotState::One(shape)),
        }
    }

    /// Begins several writes that make one reply.
    pub(crate) fn operate_several(
        &mut self,
        door: DoorId,
        mut writes: Writes,
        operations: impl Iterator<Item = Operation>,
        frame_bytes: usize,
        backend: &mut dyn Backend,
    ) {
        let first_tag = self.next_tag;
        for (part, operation) in operations.enumerate() {
            let tag = self.next_tag;
            self.next_tag += 1;
            if let Some((answer, receipt)) = backend.operate(door, tag, operation) {
                writes.take(part, answer, receipt);
            }
        }
        if writes.is_complete() {
            self.reply_about_keys(first_tag, |style, writer| {
                style.write_several(&writes, backend, writer)
            });
        } else {
            self.push(first_tag, frame_bytes, SlotState::Several(Box::new(writes)));
        }
    }

    /// Writes a reply that says nothing about keys: at once, or in its place in the order.
    #[inline]
    pub(crate) fn reply(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        if self.slots.is_empty() {
            write(&mut Writer::new(&mut self.output, self.state.resp));
            return;
        }
        let mut bytes = BytesMut::new();
        write(&mut Writer::new(&mut bytes, self.state.resp));
        self.held_bytes += bytes.len();
        let reply = ReadyReply { bytes, receipt: None };
        self.push(self.next_tag, 0, SlotState::Ready(reply));
    }

    pub(crate) fn refuse(&mut self, refusal: &Refusal) {
        self.reply(|writer| writer.error(&refusal.0));
    }

    /// Writes the reply of a command on keys, at once or in its place. `write` returns the receipt that goes with it.
    #[inline]
    fn reply_about_keys(
        &mut self,
        first_tag: u64,
        write: impl FnOnce(Style<'_>, &mut Writer<'_>) -> Option<Receipt>,
    ) {
        if self.slots.is_empty() {
            let style = Style::of(&self.greeting, &self.state);
            let mut writer = Writer::new(&mut self.output, self.state.resp);
            self.state.receipt = write(style, &mut writer);
        } else {
            let reply = self.ready(write);
            self.push(first_tag, 0, SlotState::Ready(reply));
        }
    }

    /// Writes a reply to be kept until its turn comes.
    fn ready(&mut self, write: impl FnOnce(Style<'_>, &mut Writer<'_>) -> Option<Receipt>) -> ReadyReply {
        let mut bytes = BytesMut::new();
        let style = Style::of(&self.greeting, &self.state);
        let receipt = write(style, &mut Writer::new(&mut bytes, self.state.resp));
        self.held_bytes += bytes.len();
        ReadyReply {
            bytes,
            receipt: Some(receipt),
        }
    }

    fn push(&mut self, first_tag: u64, frame_bytes: usize, state: SlotState) {
        self.outstanding_bytes += frame_bytes;
        self.slots.push_back(Slot {
            first_tag,
            frame_bytes,
            state,
        });
    }

    /// Moves the replies whose turn has come to the output.
    fn drain(&mut self) {
        while let Some(Slot {
            state: SlotState::Ready(reply),
            frame_bytes,
            ..
        }) = self.slots.front_mut()
        {
            self.output.extend_from_slice(&reply.bytes);
            self.held_bytes -= reply.bytes.len();
            self.outstanding_bytes -= *frame_bytes;
            if let Some(receipt) = reply.receipt.take() {
                self.state.receipt = receipt;
            }
            self.slots.pop_front();
        }
        self.check_output();
    }

    /// Gives up on a client that does not read what it asked for.
    fn check_output(&mut self) {
        if self.output.len() + self.held_bytes > self.greeting.limits.max_output_hard_bytes {
            self.drop_everything();
        }
    }

    fn drop_everything(&mut self) {
        self.life = Life::Closed;
        self.output = BytesMut::new();
        self.slots = VecDeque::new();
        self.waiting = None;
        self.held_bytes = 0;
        self.outstanding_bytes = 0;
    }

    fn too_big(&self, why: TooBig) -> Refusal {
        let limits = &self.greeting.limits;
        match why {
            TooBig::Argument(bytes) => Refusal::too_big("the value", bytes, limits.max_bulk_bytes as u64),
            TooBig::Frame(bytes) => Refusal::too_big("the command", bytes, limits.max_frame_bytes as u64),
            TooBig::Arguments(count) => Refusal::too_many_arguments(count, limits.max_arguments),
        }
    }
}
