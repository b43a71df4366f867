use crate::context;
use crate::long::{self, Each, Reads, SHARE};
use crate::receipt;
use crate::refusal::Refusal;
use crate::shape::{Shape, Writes};
use crate::slot::SlotState;
use crate::{Arguments, Backend, Connection, Output, SelectError, Writer, number::parse_integer};
use turnbuckle_core::DoorId;
use turnbuckle_core::{
    BadLevel, Compute, Edit, Key, Level, Operation, PutOptions, Step, Transaction, Transactions, Vector,
    VersionId, Wanted,
};

/// A command that is being executed, and what it may use.
pub(crate) struct Call<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) backend: &'a mut dyn Backend,
    pub(crate) arguments: &'a Arguments,
    /// Whether the command is to be kept for `EXEC`, and not executed.
    pub(crate) is_queued: bool,
}

impl Call<'_> {
    /// How many arguments there are, the command's name included.
    pub(crate) fn len(&self) -> usize {
        self.arguments.len()
    }

    /// The argument as text. Bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&self, place: usize) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.arguments.at(place))
    }

    /// The argument as a key.
    #[inline]
    pub(crate) fn key(&self, place: usize) -> Result<Key, Refusal> {
        let key = self.arguments.bytes(place);
        let max = self.connection.greeting.limits.max_key_bytes;
        if key.len() > max {
            return Err(Refusal::too_big("the key", key.len() as u64, max as u64));
        }
        Ok(Key(key))
    }

    /// The argument as a number.
    pub(crate) fn integer(&self, place: usize) -> Result<i64, Refusal> {
        parse_integer(self.arguments.at(place)).ok_or_else(Refusal::not_an_integer)
    }

    /// The argument as a level, or as a chain of levels. If it is none, the refusal names the levels of the keyspace.
    pub(crate) fn level(&self, place: usize) -> Result<Wanted, Refusal> {
        self.text(place).parse().map_err(|bad: BadLevel| {
            let (name, offered) = self.levels_offered();
            let kind = |level: &str| level.split('(').next().map(str::to_lowercase);
            let is_chain = bad.found.contains(' ');
            match is_chain || offered.iter().any(|level| kind(level) == kind(&bad.found)) {
                // The keyspace has such a level, and its argument is wrong. Or the form of a chain is wrong.
                true => Refusal::bad_argument(&bad),
                false => Refusal::bad_level(&bad.found, name, &offered),
            }
        })
    }

    /// The selected keyspace, and the levels that it offers.
    fn levels_offered(&self) -> (&str, Vec<String>) {
        let name = &self.connection.state.keyspace;
        let keyspaces = self.backend.keyspaces();
        let keyspace = keyspaces.iter().find(|keyspace| keyspace.name == *name);
        let offered = keyspace.map(|keyspace| keyspace.levels.offered.all().map(Level::form));
        (name, offered.into_iter().flatten().collect())
    }

    /// Checks that the selected keyspace offers a level of writes.
    pub(crate) fn check_write_level(&self, level: Option<&Wanted>) -> Result<(), Refusal> {
        let name = &self.connection.state.keyspace;
        let keyspaces = self.backend.keyspaces();
        let keyspace = keyspaces.iter().find(|keyspace| keyspace.name == *name);
        let checked = keyspace
            .zip(level)
            .map_or(Ok(()), |(keyspace, level)| keyspace.levels.check(level, true));
        checked.map_err(|failure| Refusal::from(&failure))
    }

    /// The argument as a version, as receipts name it.
    pub(crate) fn version(&self, place: usize) -> Result<VersionId, Refusal> {
        let text = self.text(place);
        let version = receipt::parse_version(&text, self.backend);
        version.ok_or_else(|| {
            let short: String = text.chars().take(64).collect();
            Refusal::err(format_args!(
                "invalid version '{short}'; expected one as a receipt names it, such as 1785000000000000.0@a"
            ))
        })
    }

    /// The argument as the causal context of a key, as `SIBLINGS` returns it.
    pub(crate) fn context(&mut self, key: &Key, place: usize) -> Result<Vector, Refusal> {
        let door = self.door()?;
        let context = context::parse(self.backend, door, key, self.arguments.at(place));
        context.ok_or_else(|| {
            let short: String = self.text(place).chars().take(64).collect();
            Refusal::err(format_args!(
                "invalid context '{short}'; expected one that SIBLINGS returned for this key, or none"
            ))
        })
    }

    /// The level of a command with a fixed number of arguments: `AT level` after `len` other arguments, or none.
    #[inline]
    pub(crate) fn level_behind(&self, len: usize, command: &str) -> Result<Option<Wanted>, Refusal> {
        match self.len() - len {
            0 => Ok(None),
            2 if self.arguments.is(len, "AT") => self.level(len + 1).map(Some),
            1 if self.arguments.is(len, "AT") => {
                let (keyspace, offered) = self.levels_offered();
                Err(Refusal::no_level_behind_at(keyspace, &offered))
            }
            _ => Err(Refusal::arity(command)),
        }
    }

    /// The level of a command with optional arguments behind its key, and where those arguments end: `AT level` at the end, or none.
    pub(crate) fn level_last(&self) -> Result<(Option<Wanted>, usize), Refusal> {
        let len = self.len();
        match len >= 4 && self.arguments.is(len - 2, "AT") {
            true => Ok((Some(self.level(len - 1)?), len - 2)),
            false => Ok((None, len)),
        }
    }

    /// The level of a command on any number of keys, and where its keys end.
    ///
    /// The rule: if the last argument but one is `AT`, in capitals, and there is at least one group of `group` arguments before it, the last two
    /// arguments are a level. Then a word that is not a level is an error, and not a key. Fields and members count as keys do. So a key named `AT` must be placed elsewhere, or be
    /// followed by an explicit `AT level`. A key named `at` may be anywhere, unless a level follows it: then the client has most likely meant `AT`.
    pub(crate) fn level_at_end(&self, group: usize) -> Result<(Option<Wanted>, usize), Refusal> {
        let len = self.len();
        if len >= 1 + group + 2 && self.arguments.at(len - 2) == b"AT" {
            return Ok((Some(self.level(len - 1)?), len - 2));
        }
        if len >= 1 + group + 2 && self.arguments.is(len - 2, "AT") && self.level(len - 1).is_ok() {
            return Err(Refusal::err(format_args!(
                "'{} {}' would not be taken for a level; to name a level, write AT in capitals",
                self.text(len - 2),
                self.text(len - 1)
            )));
        }
        Ok((None, len))
    }

    /// The level of a read: the level that it names, or the connection's.
    #[inline]
    pub(crate) fn read_level(&self, named: Option<Wanted>) -> Option<Wanted> {
        if self.is_queued {
            return named;
        }
        // Of a watched key, no read may show less than WATCH has seen.
        match self.connection.state.watched.is_on {
            true => Some(Level::Linearizable.into()),
            false => named.or_else(|| self.connection.state.read.clone()),
        }
    }

    /// The level of a write: the level that it names, or the connection's.
    #[inline]
    pub(crate) fn write_level(&self, named: Option<Wanted>) -> Option<Wanted> {
        named.or_else(|| self.connection.state.write.clone().filter(|_| !self.is_queued))
    }

    /// The door of the selected keyspace. It is opened if it is not open yet.
    #[inline]
    pub(crate) fn door(&mut self) -> Result<DoorId, Refusal> {
        match self.connection.state.door {
            Some(door) => Ok(door),
            None => {
                let keyspace = self.connection.state.keyspace.clone();
                let door = self.open(&keyspace)?;
                self.connection.state.door = Some(door);
                Ok(door)
            }
        }
    }

    /// The door of any keyspace. It is opened if it is not open yet, and stays open as that of a keyspace that was left.
    pub(crate) fn door_to(&mut self, keyspace: &str) -> Result<DoorId, Refusal> {
        if keyspace == self.connection.state.keyspace {
            return self.door();
        }
        if let Some(door) = self.connection.state.left.get(keyspace) {
            return Ok(*door);
        }
        let door = self.open(keyspace)?;
        self.connection.state.left.insert(keyspace.to_string(), door);
        Ok(door)
    }

    /// Opens a keyspace, without changing the connection.
    pub(crate) fn open(&mut self, keyspace: &str) -> Result<DoorId, Refusal> {
        self.backend.open(keyspace).map_err(|error| match error {
            SelectError::NoKeyspace => self.no_keyspace(keyspace),
            SelectError::Unavailable(why) => Refusal(format!("UNAVAILABLE {why}")),
        })
    }

    pub(crate) fn no_keyspace(&self, asked: &str) -> Refusal {
        let short: String = asked.chars().take(64).collect();
        let known: Vec<String> = self
            .backend
            .keyspaces()
            .into_iter()
            .map(|known| known.name)
            .filter(|known| self.connection.may_access(known))
            .collect();
        Refusal(format!(
            "NOKEYSPACE no keyspace '{short}'; there are: {}",
            known.join(", ")
        ))
    }

    /// Changes to another keyspace. What was set for the old keyspace is forgotten. What its session has seen is kept.
    ///
    /// # Errors
    /// If keys of the old keyspace are watched.
    pub(crate) fn enter(&mut self, keyspace: String, db: Option<u16>) -> Result<(), Refusal> {
        let state = &mut self.connection.state;
        if state.watched.is_on {
            return Err(Refusal::err(format_args!(
                "keys of the keyspace '{}' are watched; EXEC, DISCARD or UNWATCH comes before another keyspace",
                state.keyspace
            )));
        }
        let left = std::mem::replace(&mut state.keyspace, keyspace);
        state.db = db.unwrap_or_default();
        if let Some(door) = state.door.take() {
            state.left.insert(left, door);
        }
        state.door = state.left.remove(&state.keyspace);
        state.read = None;
        state.write = None;
        state.receipt = None;
        Ok(())
    }

    /// Which transactions the selected keyspace carries out.
    pub(crate) fn transactions(&mut self) -> Result<Transactions, Refusal> {
        let door = self.door()?;
        Ok(self.backend.transactions(door))
    }

    /// Whether nothing of the transaction will be carried out.
    pub(crate) fn is_transaction_broken(&self) -> bool {
        let queue = self.connection.state.transaction.as_ref();
        queue.is_some_and(|queue| queue.broken().is_some())
    }

    pub(crate) fn reply_queued(&mut self) -> Result<(), Refusal> {
        self.connection.reply(|writer| writer.simple("QUEUED"));
        Ok(())
    }

    /// Begins to watch keys.
    pub(crate) fn watch(&mut self, keys: Vec<Key>) -> Result<(), Refusal> {
        let (door, frame_bytes) = (self.door()?, self.arguments.frame_bytes());
        self.connection.watch(door, keys, frame_bytes, self.backend);
        Ok(())
    }

    /// Keeps the operation of a command between `MULTI` and `EXEC`.
    fn queue(&mut self, shape: Shape, operation: Operation) -> Result<(), Refusal> {
        if operation.wanted().is_some() {
            return Err(Refusal::level_in_transaction());
        }
        let door = self.door()?;
        if let Some(failure) = self.backend.refusal(door, &operation) {
            return Err(Refusal::from(&failure));
        }
        let frame_bytes = self.arguments.held_bytes();
        if let Some(queue) = &mut self.connection.state.transaction {
            let limits = &self.connection.greeting.limits;
            queue.add(shape, operation, frame_bytes, limits)?;
        }
        self.reply_queued()
    }

    /// Keeps the steps of a command between `MULTI` and `EXEC`.
    fn queue_steps(&mut self, shape: Shape, named: Option<Wanted>, steps: Vec<Step>) -> Result<(), Refusal> {
        if named.is_some() {
            return Err(Refusal::level_in_transaction());
        }
        let frame_bytes = self.arguments.held_bytes();
        if let Some(queue) = &mut self.connection.state.transaction {
            let limits = &self.connection.greeting.limits;
            queue.add_steps(shape, steps, frame_bytes, limits)?;
        }
        self.reply_queued()
    }

    /// Begins an operation whose answer is the reply.
    #[inline]
    pub(crate) fn operate(&mut self, shape: Shape, operation: Operation) -> Result<(), Refusal> {
        if self.is_queued {
            return self.queue(shape, operation);
        }
        self.operate_holding(shape, operation, self.arguments.frame_bytes())
    }

    /// The same, of an operation that holds this number of bytes until it is answered.
    #[inline]
    pub(crate) fn operate_holding(
        &mut self,
        shape: Shape,
        operation: Operation,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let door = self.door()?;
        self.connection
            .operate(door, shape, operation, bytes, self.backend);
        Ok(())
    }

    /// Begins one write for each key of the arguments up to `end`. The reply to deletes is the number of keys that had a value, and the reply to
    /// writes is OK.
    pub(crate) fn write_each(
        &mut self,
        each: Each,
        named: Option<Wanted>,
        end: usize,
    ) -> Result<(), Refusal> {
        let step = if each == Each::Set { 2 } else { 1 };
        self.check_keys((1..end).step_by(step))?;
        if self.is_queued {
            let put = |place| {
                let value = (each == Each::Set).then(|| self.arguments.bytes(place + 1));
                Step::Put(Key(self.arguments.bytes(place)), value, None)
            };
            let shape = if each == Each::Set {
                Shape::Done
            } else {
                Shape::Deleted
            };
            let steps = (1..end).step_by(step).map(put).collect();
            return self.queue_steps(shape, named, steps);
        }
        let (door, level) = (self.door()?, self.write_level(named));
        let keys = (end - 1) / step;
        let writes = Writes::new(each == Each::Delete, keys, self.arguments.clone());
        if keys > SHARE {
            let state = SlotState::Several(Box::new(writes));
            self.connection
                .operate_long(door, each, level, self.arguments.clone(), keys, state);
            return Ok(());
        }
        let (arguments, frame_bytes) = (self.arguments, self.arguments.frame_bytes());
        let operations = (0..keys).map(|number| long::put(arguments, each, number, level.clone()));
        self.connection
            .operate_several(door, writes, operations, frame_bytes, self.backend);
        Ok(())
    }

    /// Begins a read of the keys up to `end`: one operation, or several if there are many keys and the level promises no snapshot.
    pub(crate) fn read_each(
        &mut self,
        shape: Shape,
        named: Option<Wanted>,
        end: usize,
    ) -> Result<(), Refusal> {
        self.check_keys(1..end)?;
        if self.is_queued {
            let steps = (1..end).map(|place| Step::Get(Key(self.arguments.bytes(place))));
            return self.queue_steps(shape, named, steps.collect());
        }
        let (level, keys) = (self.read_level(named), end - 1);
        if keys > SHARE {
            let door = self.door()?;
            if self.backend.divides_reads(door, level.as_ref()) {
                let reads = Reads::new(matches!(shape, Shape::Present), keys.div_ceil(SHARE));
                let state = SlotState::Parts(Box::new(reads));
                self.connection
                    .operate_long(door, Each::Read, level, self.arguments.clone(), keys, state);
                return Ok(());
            }
        }
        let read = Operation::ReadMany {
            keys: (1..end).map(|place| self.key(place)).collect::<Result<_, _>>()?,
            level: None,
        };
        self.operate(shape, read.wanting(level))
    }

    /// Counts the keys up to `end` that have a value, a hash or a set. A read of several keys returns no hashes and sets. So where there are any, each key is read alone.
    pub(crate) fn count_each(&mut self, named: Option<Wanted>, end: usize) -> Result<(), Refusal> {
        if self.is_queued || !self.keeps_elements()? {
            return self.read_each(Shape::Present, named, end);
        }
        self.check_keys(1..end)?;
        let (door, level, keys) = (self.door()?, self.read_level(named), end - 1);
        let reads = Reads::new(true, keys);
        if keys > SHARE {
            let state = SlotState::Parts(Box::new(reads));
            self.connection
                .operate_long(door, Each::Count, level, self.arguments.clone(), keys, state);
            return Ok(());
        }
        let (arguments, frame_bytes) = (self.arguments, self.arguments.frame_bytes());
        let get = |place| Operation::get(Key(arguments.bytes(place))).wanting(level.clone());
        self.connection
            .operate_reads(door, reads, (1..end).map(get), frame_bytes, self.backend);
        Ok(())
    }

    /// Reads the keys up to `end` at one moment: a transaction that only reads, if they are several.
    pub(crate) fn read_together(
        &mut self,
        shape: Shape,
        named: Option<Wanted>,
        end: usize,
    ) -> Result<(), Refusal> {
        self.check_keys(1..end)?;
        let arguments = self.arguments;
        let key = |place| Key(arguments.bytes(place));
        if end == 2 {
            let get = Operation::get(key(1)).wanting(self.read_level(named));
            return self.operate(shape, get);
        }
        let steps = (1..end).map(|place| Step::Get(key(place))).collect();
        if self.is_queued {
            return self.queue_steps(shape, named, steps);
        }
        let transact = Operation::Transact {
            transaction: Box::new(Transaction {
                steps,
                ..Transaction::default()
            }),
            level: None,
        };
        let level = match self.connection.state.watched.is_on {
            true => self.read_level(named),
            false => self.write_level(named),
        };
        self.operate(shape, transact.wanting(level))
    }

    /// Whether keys of the selected keyspace may have hashes and sets.
    pub(crate) fn keeps_elements(&mut self) -> Result<bool, Refusal> {
        let options = PutOptions {
            computes: Some(Compute::Edit(Box::new(Edit::Insert(Vec::new())))),
            ..PutOptions::default()
        };
        let add = Operation::put(Key::from(""), None).with(options);
        let door = self.door()?;
        Ok(self.backend.refusal(door, &add).is_none())
    }

    /// Whether all keys are short enough. This is checked before anything is done to one of them.
    fn check_keys(&self, places: impl Iterator<Item = usize>) -> Result<(), Refusal> {
        let max = self.connection.greeting.limits.max_key_bytes;
        let mut lens = places.map(|place| self.arguments.at(place).len());
        match lens.find(|&len| len > max) {
            Some(len) => Err(Refusal::too_big("the key", len as u64, max as u64)),
            None => Ok(()),
        }
    }

    /// Replies at once; or, between `MULTI` and `EXEC`, in its place among the replies of the transaction.
    pub(crate) fn reply(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Result<(), Refusal> {
        let state = &mut self.connection.state;
        if let Some(queue) = state.transaction.as_mut().filter(|_| self.is_queued) {
            let mut output = Output::default();
            write(&mut Writer::new(&mut output, state.resp));
            let limits = &self.connection.greeting.limits;
            queue.add_reply(output.split().freeze(), limits)?;
            return self.reply_queued();
        }
        self.connection.reply(write);
        Ok(())
    }

    pub(crate) fn reply_ok(&mut self) -> Result<(), Refusal> {
        self.reply(|writer| writer.simple("OK"))
    }
}
