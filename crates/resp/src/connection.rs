mod login;
mod long;
mod messages;
mod replies;
mod room;
mod walk;

use crate::ahead::{self, AHEAD};
use crate::channels::{By, Subscriptions};
use crate::commands::{self, Spec};
use crate::long::{Long, SHARE};
use crate::pace::Pace;
use crate::shape::{Shape, Writes};
use crate::slot::{Slot, SlotState};
use crate::transaction::{Queue, Watched, Watching};
use crate::{
    Arguments, Backend, Decoded, Decoder, Limits, Output, Resp, TooBig, Traffic, call::Call, refusal::Refusal,
};
use bytes::BytesMut;
use login::Login;
pub(crate) use messages::{subscribed, unsubscribed, write_subscription};
use room::{PART_BYTES, no_room_for_reply};
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{Answered, DoorId, Key, Level, Operation, Receipt, Wanted};
pub(crate) use walk::Walk;

/// What a connection knows about itself at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Its number, for `CLIENT ID`. It is not used twice in a node's life.
    pub id: u64,
    /// The client's address, for `CLIENT INFO`.
    pub peer: String,
    /// The address that the client connected to.
    pub local: String,
    /// The keyspace that it begins in.
    pub keyspace: String,
    /// The limits of what it may use.
    pub limits: Limits,
}

/// One client's connection, without its socket: bytes in, operations out, answers in, bytes out.
///
/// Its inputs are [`Connection::handle_bytes`], [`Connection::handle_answer`] and [`Connection::handle_message`]. Operations go to the [`Backend`] that
/// is passed to them. Replies gather in [`Connection::output`]. The loop around it:
///
/// 1. While [`Connection::wants_input`], read from the socket into a buffer.
/// 2. Call [`Connection::handle_bytes`] with it. What is left in the buffer belongs to the next call.
/// 3. Call [`Connection::handle_answer`] for each answer, and then [`Connection::handle_bytes`] again if the buffer is
///    not empty: commands may have been waiting for the answer, or for room.
/// 4. Write what is in [`Connection::output`], taking from its front, and call [`Connection::release_memory`]. Then do step 3 again, for the same reason,
///    also with an empty buffer while [`Connection::is_waiting`].
/// 5. Call [`Connection::handle_message`] for each message to a channel that the client hears ([`crate::Channels::listeners`]), and then do step 4.
/// 6. While [`Connection::wants_turn`], serve other connections, and then call [`Connection::handle_bytes`] again.
/// 7. Once [`Connection::is_closing`], write what is left and close the socket.
/// 8. Call [`Connection::close`], whichever side closed the socket. Answers may still come, and are dropped.
///
/// **Order.** Replies leave in the order of the commands, in whatever order the answers come. Operations of later commands begin while earlier ones
/// are outstanding. A command waits until all commands before it are answered if it changes or shows the connection's own state (`SELECT`, `HELLO`,
/// `RESET`, `CONSISTENCY`, `SESSION`, `RECEIPT`, ..), or if it counts or lists keys.
///
/// **Bounds.** A client cannot make the connection grow beyond its [`Limits`]. If replies pile up because the client does not read them, or too much
/// is outstanding, the connection stops decoding and [`Connection::wants_input`] is false. The same happens if the node has no room
/// ([`Backend::grow_to`]). A read begins only if what it is expected to return fits into the backlog.
///
/// **Turns.** No call does more than a share of work. A command on many keys, or many commands, take several calls ([`Connection::wants_turn`]).
#[derive(Debug)]
pub struct Connection {
    pub(crate) greeting: Greeting,
    pub(crate) state: State,
    decoder: Decoder,
    /// Kept between commands, so that its memory is used again.
    arguments: Arguments,
    output: Output,
    slots: VecDeque<Slot>,
    /// A command that waits: until all commands before it are answered, until its reply fits into the backlog, or until the node has room.
    waiting: Option<Arguments>,
    /// A command of which some parts have not begun yet. The commands after it wait.
    long: Option<Long>,
    /// A walk over all keys that is not done. The commands after it wait.
    walk: Option<Box<Walk>>,
    pace: Pace,
    /// How many bytes the command that is being executed is expected to return.
    need: usize,
    /// The answer to the command that is being executed has no room. The command is to be executed again.
    again: bool,
    /// The command that waits has been executed before, and is to be executed again.
    is_repeated: bool,
    /// A share of work is done, and there may be more.
    tired: bool,
    /// Other connections were served since the last share, so work that cannot be divided may be done.
    has_turn: bool,
    /// The node had no room for more.
    starved: bool,
    /// How many bytes this connection may hold, as far as the node has agreed.
    granted: usize,
    /// The output begins inside a reply: the client has been sent the reply's beginning.
    output_begun: bool,
    /// How many operations are not answered.
    open_parts: usize,
    /// The bytes of the values that long reads have returned so far.
    gathered_bytes: usize,
    /// The bytes of commands in `slots`.
    outstanding_bytes: usize,
    /// The bytes of replies in `slots`.
    held_bytes: usize,
    next_tag: u64,
    /// How many commands were executed, and the name of the last one.
    commands: u64,
    last_command: &'static str,
    /// The place of the last one among all commands, if there is such a command.
    last_place: Option<usize>,
    /// At a node that has users: the user of the connection.
    login: Option<Box<Login>>,
    life: Life,
}

/// The state that commands change. `RESET` makes it new.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) resp: Resp,
    /// The name that the client gave itself; empty if there is none.
    pub(crate) name: Vec<u8>,
    /// The client library and its version, as the client states them.
    pub(crate) library: (Vec<u8>, Vec<u8>),
    /// The selected keyspace.
    pub(crate) keyspace: String,
    /// Its number; 0 as well if it has none.
    pub(crate) db: u16,
    /// The door of the selected keyspace. It is opened when it is first needed, so that an idle connection uses nothing of the backend.
    pub(crate) door: Option<DoorId>,
    /// The doors of keyspaces that were used and left, by name. A connection that selects a keyspace again continues its session. There are at most
    /// as many as keyspaces.
    pub(crate) left: BTreeMap<String, DoorId>,
    /// The default level of reads, if it is not the keyspace's own.
    pub(crate) read: Option<Wanted>,
    /// The default level of writes, if it is not the keyspace's own.
    pub(crate) write: Option<Wanted>,
    /// The commands since `MULTI`.
    pub(crate) transaction: Option<Queue>,
    /// The keys that are watched.
    pub(crate) watched: Watched,
    /// Whether each reply carries its receipt.
    pub(crate) receipts: bool,
    /// The receipt of the last command on keys, if it has one.
    pub(crate) receipt: Option<Box<Receipt>>,
    /// The channels and patterns of channels that the client listens to.
    pub(crate) subscriptions: Subscriptions,
}

impl State {
    /// Closes all doors of this connection: what their sessions have seen is forgotten.
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
    /// No more commands are taken, and no more messages are heard. Commands that were taken are still answered.
    Ending,
    /// The doors are closed, and answers are dropped.
    Closed,
}

impl Connection {
    /// A connection that has just been accepted.
    ///
    /// # Panics
    /// If the limits are not possible ([`Decoder::new`]). The configuration is checked before.
    pub fn new(greeting: Greeting) -> Connection {
        Connection {
            decoder: Decoder::new(greeting.limits),
            state: State {
                keyspace: greeting.keyspace.clone(),
                ..State::default()
            },
            pace: Pace::new(&greeting.limits),
            greeting,
            arguments: Arguments::default(),
            output: Output::default(),
            slots: VecDeque::new(),
            waiting: None,
            long: None,
            walk: None,
            need: 0,
            again: false,
            is_repeated: false,
            tired: false,
            has_turn: false,
            starved: false,
            granted: Connection::FREE_BYTES,
            output_begun: false,
            open_parts: 0,
            gathered_bytes: 0,
            outstanding_bytes: 0,
            held_bytes: 0,
            next_tag: 0,
            commands: 0,
            last_command: "NULL",
            last_place: None,
            login: None,
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

    /// Whether more commands can be taken now. If not, do not read from the socket either: this makes a client wait that sends faster than it reads.
    pub fn wants_input(&self) -> bool {
        let limits = &self.greeting.limits;
        self.life == Life::Open
            && self.waiting.is_none()
            && self.long.is_none()
            && self.walk.is_none()
            && !self.tired
            && !self.starved
            && self.output.len() + self.held_bytes < limits.max_output_bytes
            && self.slots.len() < limits.max_outstanding
            && self.outstanding_bytes < limits.max_outstanding_bytes
    }

    /// How many commands wait for an answer: their own, or that of a command before them.
    pub fn outstanding(&self) -> usize {
        self.slots.len() + usize::from(self.waiting.is_some())
    }

    /// The replies to write to the socket, in order. Take from its front what has been written.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Whether the connection is to be closed once its output is written.
    pub fn is_closing(&self) -> bool {
        self.life != Life::Open && self.slots.is_empty()
    }

    /// The line of `CLIENT INFO` and `CLIENT LIST` about this connection, without its line break.
    pub fn describe(&self, traffic: &Traffic) -> String {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (flags, multi) = match &self.state.transaction {
            Some(queue) if self.is_listening() => ("Px", queue.len() as i64),
            Some(queue) => ("x", queue.len() as i64),
            None if self.is_listening() => ("P", -1),
            None => ("N", -1),
        };
        let of = |by| self.state.subscriptions.of(by).len();
        let (sub, psub) = (of(By::Name), of(By::Pattern));
        let watch = self.state.watched.len();
        format!(
            "id={} addr={} laddr={} name={} age={} idle={} flags={flags} db={} sub={sub} psub={psub} ssub=0 multi={multi} watch={watch} qbuf={} omem={} tot-mem={} \
             events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={} tot-net-in={} tot-net-out={} tot-cmds={} keyspace={}",
            self.greeting.id,
            self.greeting.peer,
            self.greeting.local,
            lossy(&self.state.name),
            traffic.age_seconds,
            traffic.idle_seconds,
            self.state.db,
            traffic.queued_bytes,
            self.output.len(),
            self.memory_bytes(),
            self.last_command,
            self.user(),
            self.state.resp.number(),
            lossy(&self.state.library.0),
            lossy(&self.state.library.1),
            traffic.received_bytes,
            traffic.sent_bytes,
            self.commands,
            self.state.keyspace,
        )
    }

    /// How many commands were executed or refused so far.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// How many bytes the input must have at least to hold a whole command, as far as is known. [`Connection::handle_bytes`] need not be called
    /// before.
    pub fn wanted_bytes(&self) -> usize {
        self.decoder.wanted_bytes()
    }

    /// Whether there is more to do that needs only another call of [`Connection::handle_bytes`]. Serve other connections first.
    pub fn wants_turn(&self) -> bool {
        self.life == Life::Open
            && (self.tired
                || (!self.starved && self.walk.as_ref().is_some_and(|walk| walk.may_go_on()))
                || (!self.starved && self.long.as_ref().is_some_and(Long::may_go_on)))
    }

    /// Whether a command was taken and has not begun. Call [`Connection::handle_bytes`] when output was written, and from time to time.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some() || self.starved
    }

    /// Takes commands off the front of `input` for as long as [`Connection::wants_input`], but no more than a share of work.
    pub fn handle_bytes(&mut self, input: &mut BytesMut, backend: &mut dyn Backend) {
        self.has_turn = std::mem::take(&mut self.tired);
        self.starved = false;
        self.go_on_with_long(backend);
        self.go_on_with_walk(backend);
        self.go_on(backend);
        // Moved out of `self` for the whole loop, and not in each pass: this is the path of every command.
        let mut arguments = std::mem::take(&mut self.arguments);
        let mut left = SHARE_ARGUMENTS;
        let mut looked_at = 0;
        while self.wants_input() && !input.is_empty() {
            if left == 0 {
                self.tired = true;
                break;
            }
            if !self.has_room(COMMAND_BYTES, backend) {
                self.starved = true;
                break;
            }
            if self.login.is_some() {
                self.limit_decoder();
            }
            if looked_at == 0 {
                looked_at = self.look_ahead(input, backend);
            }
            looked_at -= 1;
            match self.decoder.decode(input, &mut arguments) {
                Ok(Decoded::Incomplete) => break,
                Ok(Decoded::Command) => {
                    left = left.saturating_sub(arguments.len());
                    self.take(&mut arguments, backend);
                }
                Ok(Decoded::TooBig(why)) => {
                    let refusal = self.too_big_for_user(why, backend);
                    if let Some(queue) = &mut self.state.transaction {
                        queue.break_by(&refusal);
                    }
                    self.refuse(&refusal);
                }
                Err(error) => {
                    self.refuse(&Refusal::err(format_args!("Protocol error: {error}")));
                    self.end();
                }
            }
        }
        arguments.clear();
        self.arguments = arguments;
    }

    /// Looks ahead at the keys of the commands at the front of `input`, if there are several. Returns after how many commands to do that again.
    fn look_ahead(&self, input: &[u8], backend: &mut dyn Backend) -> usize {
        let Some(door) = self.state.door.filter(|_| self.decoder.is_between()) else {
            return AHEAD;
        };
        let (mut found, mut count) = ([&[][..]; AHEAD], 0);
        for (place, key) in found.iter_mut().zip(ahead::keys(input)) {
            *place = key;
            count += 1;
        }
        if count > 1 {
            backend.look_ahead(door, &found[..count]);
        }
        count.max(1)
    }

    /// Handles the answer of the operation with this tag.
    ///
    /// # Panics
    /// If no such operation is outstanding, or the answer does not fit it.
    pub fn handle_answer(&mut self, tag: u64, answered: Answered, backend: &mut dyn Backend) {
        if self.life == Life::Closed {
            return;
        }
        let (place, part) = self.place_of(tag);
        match &mut self.slots[place].state {
            SlotState::Ready(_) | SlotState::Taken => {
                panic!("the operation with tag {tag} was answered twice")
            }
            SlotState::Several(_) | SlotState::Parts(_) | SlotState::Watch(_) => {
                self.take_part(tag, answered, backend)
            }
            SlotState::Walk => self.walked(answered.0, backend),
            SlotState::One(shape) => {
                assert!(part == 0, "no operation with tag {tag} is outstanding");
                let shape = std::mem::replace(shape, Shape::Done);
                self.open_parts -= 1;
                self.pace.end(std::mem::take(&mut self.slots[place].need));
                self.measure(&shape, &answered.0);
                let (answer, receipt) =
                    match shape.carries() && !self.has_room_for(&shape, &answered.0, backend) {
                        true => (no_room_for_reply(), None),
                        false => answered,
                    };
                self.reply_in(place, |style, writer| {
                    style.write_one(&shape, &answer, receipt, backend, writer)
                });
            }
        }
        self.drain();
        self.go_on(backend);
    }

    /// The place of the slot that an operation belongs to, and the number of the operation within it.
    fn place_of(&self, tag: u64) -> (usize, usize) {
        let behind = self.slots.partition_point(|slot| slot.first_tag <= tag);
        assert!(behind > 0, "no operation with tag {tag} is outstanding");
        let place = behind - 1;
        (place, (tag - self.slots[place].first_tag) as usize)
    }

    /// Closes all doors. Outstanding operations go on, and their answers are dropped.
    pub fn close(&mut self, backend: &mut dyn Backend) {
        self.state.close_doors(backend);
        self.log_out();
        self.drop_everything();
    }

    /// Executes a command, or keeps it until it may begin.
    fn take(&mut self, arguments: &mut Arguments, backend: &mut dyn Backend) {
        let spec = commands::find(arguments.at(0));
        if self.may_begin(spec, arguments, backend) {
            self.execute(spec, arguments, backend);
            if !std::mem::take(&mut self.again) {
                return;
            }
            self.is_repeated = true;
        }
        self.waiting = Some(std::mem::take(arguments));
    }

    /// Whether a command may begin. If so, what it is expected to return is noted.
    fn may_begin(&mut self, spec: Option<&Spec>, arguments: &Arguments, backend: &mut dyn Backend) -> bool {
        self.need = 0;
        let Some(spec) = spec else {
            return true;
        };
        if spec.waits && !self.slots.is_empty() {
            return false;
        }
        // Between MULTI and EXEC nothing is read, and EXEC reads for all.
        let queue = self.state.transaction.as_ref();
        let keys = match queue {
            Some(queue) if spec.name == "exec" => queue.reads(),
            Some(_) => 0,
            None if spec.reads.reads(arguments) => spec.keys.count(arguments.len()),
            None => 0,
        };
        if keys == 0 {
            return true;
        }
        // It may be a snapshot, which cannot be divided: it waits for a turn of its own.
        if keys > SHARE && !std::mem::take(&mut self.has_turn) {
            self.tired = true;
            return false;
        }
        let need = self.pace.need(keys);
        let backlog = self.output.len() + self.held_bytes;
        if !self.pace.may_begin(keys, backlog) || !self.has_room(need, backend) {
            return false;
        }
        self.need = need;
        true
    }

    fn execute(&mut self, spec: Option<&'static Spec>, arguments: &Arguments, backend: &mut dyn Backend) {
        let is_repeated = std::mem::take(&mut self.is_repeated);
        self.last_command = spec.map_or("NULL", |spec| spec.name);
        self.last_place = spec.map(Spec::place);
        match self.last_place {
            Some(place) if is_repeated => backend.go_on_with_command(place),
            Some(place) => backend.begin_command(place),
            None => {}
        }
        self.commands += u64::from(!is_repeated);
        let guarded = match &self.login {
            None => Ok(()),
            Some(_) => self.guard(spec, arguments, is_repeated, backend),
        };
        let is_allowed = guarded.is_ok();
        let mut call = Call {
            connection: self,
            backend,
            arguments,
            is_queued: false,
        };
        let result = match spec {
            _ if !is_allowed => guarded,
            Some(spec) if !call.connection.may_run(spec) && spec.takes(arguments) => {
                Err(Refusal::not_while_listening(spec.name))
            }
            Some(spec) if call.connection.state.transaction.is_some() => {
                commands::run_in_transaction(spec, &mut call)
            }
            Some(spec) => spec.run(&mut call),
            None => commands::run_unknown(&mut call),
        };
        if let Err(refusal) = result {
            if let Some(place) = call.connection.last_place {
                call.backend.refuse_command(place);
            }
            // As in Redis, these are refused and the transaction goes on.
            let is_harmless = is_allowed && matches!(self.last_command, "multi" | "watch");
            let refusal = match is_allowed {
                true => refusal,
                false => self.end_transaction(refusal),
            };
            if let Some(queue) = self.state.transaction.as_mut().filter(|_| !is_harmless) {
                queue.break_by(&refusal);
            }
            match spec.is_some_and(|spec| spec.keys.first > 0) {
                // It has no receipt, and that of the command before it is not the last one any more.
                true => self.reply_about_keys(self.next_tag, |_, writer| {
                    writer.error(&refusal.0);
                    None
                }),
                false => self.refuse(&refusal),
            }
        }
        self.check_output();
    }

    /// Executes the command that was waiting, if it may begin.
    fn go_on(&mut self, backend: &mut dyn Backend) {
        if self.life == Life::Open
            && self.long.is_none()
            && let Some(mut arguments) = self.waiting.take()
        {
            self.take(&mut arguments, backend);
        }
    }

    /// Takes no more commands.
    pub(crate) fn end(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Ending;
        }
        self.state.subscriptions = Subscriptions::default();
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
        let Some((answer, receipt)) = backend.operate(door, tag, operation) else {
            return self.push(tag, frame_bytes, 1, SlotState::One(shape));
        };
        self.measure(&shape, &answer);
        // It has no outstanding operation, so it may be executed again when there is room.
        if shape.carries() && !self.has_room_for(&shape, &answer, backend) {
            self.again = true;
            return;
        }
        self.reply_about_keys(tag, |style, writer| {
            style.write_one(&shape, &answer, receipt, backend, writer)
        });
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
            let missing = writes.missing();
            self.push(
                first_tag,
                frame_bytes,
                missing,
                SlotState::Several(Box::new(writes)),
            );
        }
    }

    /// Begins to watch keys: reads their versions.
    pub(crate) fn watch(
        &mut self,
        door: DoorId,
        keys: Vec<Key>,
        frame_bytes: usize,
        backend: &mut dyn Backend,
    ) {
        self.state.watched.is_on = true;
        let tag = self.next_tag;
        self.next_tag += 1;
        let read = Operation::Watch {
            keys: keys.clone(),
            level: Some(Level::Linearizable),
        };
        let mut watching = Box::new(Watching::new(keys));
        match backend.operate(door, tag, read) {
            Some((answer, _)) => {
                watching.take(answer, &mut self.state.watched);
                self.reply(|writer| watching.write(writer));
            }
            None => self.push(tag, frame_bytes, 1, SlotState::Watch(watching)),
        }
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

/// How much one call does, in arguments of commands: it takes a fraction of a millisecond.
const SHARE_ARGUMENTS: usize = 4_096;

/// The room that must be free before a command is decoded, in bytes.
const COMMAND_BYTES: usize = 512;
