//! `KEYS`, `FLUSHDB` and `FLUSHALL`: walks over all keys of the keyspace, or of one keyspace after the other, by scans.
//!
//! One scan of all keys would hold up the event loop, and all its clients. So each call of [`Connection::handle_bytes`] begins one scan of
//! [`SHARE`](crate::long::SHARE) keys or so, when the one before it is answered, and the commands after it wait. The reply is written after the last one.
//! As with `SCAN`, a key that is written or deleted meanwhile may be found or not.
//!
//! `FLUSHDB` deletes the keys that a scan has found before it begins the next one. Each delete is one of its own, at the level of writes. It deletes what the
//! replica that takes it shows: a write that this replica does not know of survives.
use super::Connection;
use super::room::PART_BYTES;
use crate::limits::Limits;
use crate::long::SHARE;
use crate::refusal::{NO_ROOM_FOR_REPLY, Refusal};
use crate::shape::{MATCH_STEPS, REPLY_BYTES, check_reply, matching, unfit};
use crate::slot::SlotState;
use crate::{Backend, Writer};
use bytes::Bytes;
use turnbuckle_core::{Answer, DoorId, Key, Operation, Wanted};

/// A walk over all keys of a keyspace. Its slot is the last one of the connection, because the commands after it wait.
#[derive(Debug)]
pub(crate) struct Walk {
    door: DoorId,
    /// Where the next scan begins. `None` behind the last one.
    cursor: Option<u64>,
    /// How many operations are not answered: a scan, or deletes.
    open: usize,
    /// Whether that is a scan.
    is_scanning: bool,
    purpose: Purpose,
    /// The keyspaces that come after this one, the next one last, with their names.
    others: Vec<(String, DoorId)>,
}

/// What is done with the keys.
#[derive(Debug)]
enum Purpose {
    List(List),
    Delete(Delete),
}

/// `KEYS`: those that match a pattern are listed.
#[derive(Debug)]
struct List {
    pattern: Bytes,
    /// The keys that match, as far as is known.
    found: Vec<Key>,
    /// The length of these keys together.
    found_bytes: usize,
    /// How many keys were looked at.
    looked_at: u64,
    /// How many scans may still begin: a scan also looks at keys that are deleted, and returns none of them.
    scans_left: usize,
    /// How many steps of matching may still be done.
    steps_left: u64,
}

/// `FLUSHDB`: all are deleted.
#[derive(Debug)]
struct Delete {
    level: Option<Wanted>,
    /// The keys of the last scan.
    keys: Vec<Key>,
    /// The length of those that are being deleted.
    deleting_bytes: usize,
    /// How many keys with a value were deleted so far.
    deleted: u64,
    /// Why one of the deletes failed.
    trouble: Option<Refusal>,
    /// The name of the keyspace, if the walk is about several.
    keyspace: Option<String>,
}

impl Walk {
    /// Lists the keys that match a pattern.
    pub(crate) fn list(door: DoorId, pattern: Bytes, partitions: u16, limits: &Limits) -> Walk {
        let scans_left = 1 + usize::from(partitions) + 4 * limits.max_keys_count as usize / SHARE;
        Walk::new(
            door,
            Purpose::List(List {
                pattern,
                found: Vec::new(),
                found_bytes: 0,
                looked_at: 0,
                scans_left,
                steps_left: MATCH_STEPS,
            }),
        )
    }

    /// Deletes all keys, at a level of writes.
    pub(crate) fn delete(door: DoorId, level: Option<Wanted>) -> Walk {
        Walk::new(door, Purpose::Delete(Delete::at(level)))
    }

    /// Deletes all keys of these keyspaces, each at its own level of writes. There is at least one.
    pub(crate) fn delete_all(mut keyspaces: Vec<(String, DoorId)>) -> Walk {
        keyspaces.reverse();
        let (name, door) = keyspaces.pop().expect("a node has a keyspace");
        let delete = Delete {
            keyspace: Some(name),
            ..Delete::at(None)
        };
        Walk {
            others: keyspaces,
            ..Walk::new(door, Purpose::Delete(delete))
        }
    }

    fn new(door: DoorId, purpose: Purpose) -> Walk {
        Walk {
            door,
            cursor: Some(0),
            open: 0,
            is_scanning: false,
            purpose,
            others: Vec::new(),
        }
    }

    /// Whether the next operations may begin.
    pub(super) fn may_go_on(&self) -> bool {
        self.open == 0
    }

    /// How many bytes it holds.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.purpose {
            Purpose::List(list) => list.found_bytes + list.found.len() * (REPLY_BYTES + size_of::<Key>()),
            Purpose::Delete(delete) => delete.deleting_bytes + delete.key_bytes(),
        }
    }

    /// How many operations are next.
    fn next_len(&self) -> usize {
        match &self.purpose {
            Purpose::Delete(delete) => delete.keys.len().max(1),
            Purpose::List(_) => 1,
        }
    }

    /// The next operations: the deletes of what was found, or the next scan.
    fn next(&mut self, limits: &Limits) -> Vec<Operation> {
        let scan = Operation::Scan {
            cursor: self.cursor.unwrap_or_default(),
            count: limits.max_scan_count.min(SHARE as u32),
        };
        let next = match &mut self.purpose {
            Purpose::Delete(delete) if !delete.keys.is_empty() => {
                self.is_scanning = false;
                delete.deleting_bytes = delete.key_bytes();
                let keys = std::mem::take(&mut delete.keys).into_iter();
                keys.map(|key| Operation::delete(key).wanting(delete.level.clone()))
                    .collect()
            }
            Purpose::Delete(_) => {
                self.is_scanning = true;
                vec![scan]
            }
            Purpose::List(list) => {
                self.is_scanning = true;
                list.scans_left -= 1;
                vec![scan]
            }
        };
        self.open = next.len();
        next
    }

    /// Takes an answer. Returns whether it was the last one.
    ///
    /// # Errors
    /// If the walk is refused. No operation is open then.
    fn take(&mut self, answer: Answer, limits: &Limits) -> Result<bool, Refusal> {
        self.open -= 1;
        let refused = match &answer {
            Answer::Failed(failure) => Some(Refusal::from(failure)),
            Answer::Keys { cursor, .. }
                if self.is_scanning && (*cursor == 0 || Some(*cursor) > self.cursor) =>
            {
                self.cursor = (*cursor > 0).then_some(*cursor);
                None
            }
            Answer::Written { .. } if !self.is_scanning => None,
            // A server of another node may have sent this answer.
            _ => Some(Refusal::from(&unfit())),
        };
        match &mut self.purpose {
            Purpose::List(list) => match (refused, answer) {
                (Some(refusal), _) => return Err(refusal),
                (None, Answer::Keys { keys, .. }) => list.take(keys, self.cursor.is_none(), limits)?,
                (None, _) => {}
            },
            Purpose::Delete(delete) => {
                match answer {
                    Answer::Keys { keys, .. } if refused.is_none() => delete.keys = keys,
                    Answer::Written { existed } if refused.is_none() => delete.deleted += u64::from(existed),
                    _ => {}
                }
                if self.open == 0 {
                    delete.deleting_bytes = 0;
                }
                delete.trouble = delete.trouble.take().or(refused);
                if self.open == 0
                    && let Some(refusal) = delete.trouble.take()
                {
                    return Err(delete.refused(refusal));
                }
                if !delete.keys.is_empty() {
                    return Ok(false);
                }
            }
        }
        Ok(self.open == 0 && self.cursor.is_none() && !self.goes_to_another())
    }

    /// Goes on with the next keyspace, if there is one.
    fn goes_to_another(&mut self) -> bool {
        let (Purpose::Delete(delete), Some((name, door))) = (&mut self.purpose, self.others.pop()) else {
            return false;
        };
        delete.keyspace = Some(name);
        (self.door, self.cursor) = (door, Some(0));
        true
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match &self.purpose {
            Purpose::List(list) => {
                writer.array(list.found.len());
                list.found.iter().for_each(|key| writer.bulk(key.as_ref()));
            }
            Purpose::Delete(_) => writer.simple("OK"),
        }
    }
}

impl Delete {
    fn at(level: Option<Wanted>) -> Delete {
        Delete {
            level,
            keys: Vec::new(),
            deleting_bytes: 0,
            deleted: 0,
            trouble: None,
            keyspace: None,
        }
    }

    fn key_bytes(&self) -> usize {
        self.keys.iter().map(|key| key.0.len() + size_of::<Key>()).sum()
    }

    /// The refusal, with what was done before.
    fn refused(&self, Refusal(why): Refusal) -> Refusal {
        let why = match &self.keyspace {
            Some(keyspace) => format!("{why} (keyspace '{keyspace}')"),
            None => why,
        };
        Refusal(match self.deleted {
            0 => why,
            deleted => format!("{why}; {deleted} keys were deleted, and others may be left"),
        })
    }
}

impl List {
    fn take(&mut self, keys: Vec<Key>, is_last: bool, limits: &Limits) -> Result<(), Refusal> {
        self.looked_at += keys.len() as u64;
        let found = matching(keys, Some(&self.pattern), &mut self.steps_left)?;
        self.found_bytes += found.iter().map(|key| key.0.len()).sum::<usize>();
        // Copies: keys of another node share the memory of the frame that they came in.
        self.found.extend(found.iter().map(Key::compact));
        check_reply(self.found_bytes, limits)?;
        let max = limits.max_keys_count;
        if !is_last && (self.looked_at >= u64::from(max) || self.scans_left == 0) {
            return Err(Refusal(format!(
                "TOOBIG KEYS looks at {max} keys at most, and there are more, perhaps deleted ones; SCAN lists keys in parts"
            )));
        }
        Ok(())
    }
}

impl Connection {
    /// Begins a walk. No command before it is outstanding.
    pub(crate) fn begin_walk(&mut self, walk: Walk, frame_bytes: usize, backend: &mut dyn Backend) {
        self.push(self.next_tag, frame_bytes, 0, SlotState::Walk);
        self.walk = Some(Box::new(walk));
        self.go_on_with_walk(backend);
    }

    /// Begins the next operations of the walk, if there is a walk, if it may go on, and if the node has room for their answers.
    pub(super) fn go_on_with_walk(&mut self, backend: &mut dyn Backend) {
        let Some(next) = self
            .walk
            .as_ref()
            .filter(|walk| walk.may_go_on())
            .map(|walk| walk.next_len())
        else {
            return;
        };
        if next > 1 && !self.has_room(next * PART_BYTES, backend) {
            self.starved = true;
            return;
        }
        let Some(walk) = &mut self.walk else {
            return;
        };
        let (door, next) = (walk.door, walk.next(&self.greeting.limits));
        if let Some(place) = self.last_place {
            backend.go_on_with_command(place);
        }
        self.open_parts += next.len();
        let first = self.next_tag;
        self.next_tag += next.len() as u64;
        for (tag, operation) in (first..).zip(next) {
            if let Some((answer, _)) = backend.operate(door, tag, operation) {
                self.walked(answer, backend);
            }
        }
        self.drain();
    }

    /// Handles an answer to the walk.
    pub(super) fn walked(&mut self, answer: Answer, backend: &mut dyn Backend) {
        self.open_parts -= 1;
        let mut walk = self
            .walk
            .take()
            .expect("an operation is answered while the walk goes on");
        let limits = self.greeting.limits;
        let held = walk.held_bytes();
        let taken = walk.take(answer, &limits);
        let more = walk.held_bytes().saturating_sub(held);
        let has_room = {
            // What it held before is not counted while it is taken out.
            self.gathered_bytes += held;
            let has_room = more == 0 || self.has_room(more, backend);
            self.gathered_bytes -= held;
            has_room
        };
        let taken = match has_room {
            true => taken,
            false => {
                let refusal = Refusal(format!("UNAVAILABLE {NO_ROOM_FOR_REPLY}"));
                Err(match &walk.purpose {
                    Purpose::Delete(delete) => delete.refused(refusal),
                    Purpose::List(_) => refusal,
                })
            }
        };
        match taken {
            Ok(false) => self.walk = Some(walk),
            done => {
                let reply = self.ready(|_, writer| {
                    match done {
                        Ok(_) => walk.write(writer),
                        Err(refusal) => writer.error(&refusal.0),
                    }
                    None
                });
                let slot = self.slots.back_mut().expect("the walk has a slot");
                slot.state = SlotState::Ready(Box::new(reply));
            }
        }
    }
}
