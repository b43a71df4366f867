//! `KEYS`: all keys of the keyspace that match a pattern, found by scans.
//!
//! One scan of all keys would hold up the event loop, and all its clients. So each call of [`Connection::handle_bytes`] begins one scan of
//! [`SHARE`](crate::long::SHARE) keys or so, when the one before it is answered, and the commands after it wait. The reply is written after the last one.
//! As with `SCAN`, a key that is written or deleted meanwhile may be in the reply or not.
use super::Connection;
use crate::limits::Limits;
use crate::long::SHARE;
use crate::refusal::{NO_ROOM_FOR_REPLY, Refusal};
use crate::shape::{MATCH_STEPS, REPLY_BYTES, check_reply, matching, unfit};
use crate::slot::SlotState;
use crate::{Backend, Writer};
use bytes::Bytes;
use turnbuckle_core::{Answer, DoorId, Key, Operation};

/// A walk over all keys of a keyspace. Its slot is the last one of the connection, because the commands after it wait.
#[derive(Debug)]
pub(crate) struct Walk {
    door: DoorId,
    pattern: Bytes,
    /// Where the next scan begins.
    cursor: u64,
    /// Whether a scan is not answered.
    is_asked: bool,
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

impl Walk {
    fn new(door: DoorId, pattern: Bytes, partitions: u16, limits: &Limits) -> Walk {
        Walk {
            door,
            pattern,
            cursor: 0,
            is_asked: false,
            found: Vec::new(),
            found_bytes: 0,
            looked_at: 0,
            scans_left: 1 + usize::from(partitions) + 4 * limits.max_keys_count as usize / SHARE,
            steps_left: MATCH_STEPS,
        }
    }

    /// Whether the next scan may begin.
    pub(super) fn may_go_on(&self) -> bool {
        !self.is_asked
    }

    /// How many bytes it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.found_bytes + self.found.len() * (REPLY_BYTES + size_of::<Key>())
    }

    /// Takes the answer to a scan. Returns whether it was the last one.
    fn take(&mut self, answer: Answer, limits: &Limits) -> Result<bool, Refusal> {
        self.is_asked = false;
        let (cursor, keys) = match answer {
            Answer::Keys { cursor, keys } => (cursor, keys),
            Answer::Failed(failure) => return Err(Refusal::from(&failure)),
            // A server of another node may have sent this answer.
            _ => return Err(Refusal::from(&unfit())),
        };
        self.looked_at += keys.len() as u64;
        let found = matching(keys, Some(&self.pattern), &mut self.steps_left)?;
        self.found_bytes += found.iter().map(|key| key.0.len()).sum::<usize>();
        // Copies: keys of another node share the memory of the frame that they came in.
        self.found.extend(found.iter().map(Key::compact));
        check_reply(self.found_bytes, limits)?;
        if cursor == 0 {
            return Ok(true);
        }
        self.cursor = cursor;
        let max = limits.max_keys_count;
        if self.looked_at >= u64::from(max) || self.scans_left == 0 {
            return Err(Refusal(format!(
                "TOOBIG KEYS looks at {max} keys at most, and there are more, perhaps deleted ones; SCAN lists keys in parts"
            )));
        }
        Ok(false)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.array(self.found.len());
        self.found.iter().for_each(|key| writer.bulk(key.as_ref()));
    }
}

impl Connection {
    /// Begins a walk. No command before it is outstanding.
    pub(crate) fn begin_walk(
        &mut self,
        door: DoorId,
        pattern: Bytes,
        frame_bytes: usize,
        partitions: u16,
        backend: &mut dyn Backend,
    ) {
        self.push(self.next_tag, frame_bytes, 0, SlotState::Walk);
        self.walk = Some(Box::new(Walk::new(
            door,
            pattern,
            partitions,
            &self.greeting.limits,
        )));
        self.go_on_with_walk(backend);
    }

    /// Begins the next scan of the walk, if there is a walk and it may go on.
    pub(super) fn go_on_with_walk(&mut self, backend: &mut dyn Backend) {
        let Some(walk) = self.walk.as_mut().filter(|walk| walk.may_go_on()) else {
            return;
        };
        let scan = Operation::Scan {
            cursor: walk.cursor,
            count: self.greeting.limits.max_scan_count.min(SHARE as u32),
        };
        walk.is_asked = true;
        walk.scans_left -= 1;
        let door = walk.door;
        if let Some(place) = self.last_place {
            backend.go_on_with_command(place);
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        self.open_parts += 1;
        if let Some((answer, _)) = backend.operate(door, tag, scan) {
            self.walked(answer, backend);
            self.drain();
        }
    }

    /// Handles the answer to a scan of the walk.
    pub(super) fn walked(&mut self, answer: Answer, backend: &mut dyn Backend) {
        self.open_parts -= 1;
        let mut walk = self
            .walk
            .take()
            .expect("a scan is answered while the walk goes on");
        let limits = self.greeting.limits;
        let held = walk.held_bytes();
        let taken = walk.take(answer, &limits);
        let more = walk.held_bytes() - held;
        let has_room = {
            // What it held before is not counted while it is taken out.
            self.gathered_bytes += held;
            let has_room = self.has_room(more, backend);
            self.gathered_bytes -= held;
            has_room
        };
        let taken = match has_room {
            true => taken,
            false => Err(Refusal(format!("UNAVAILABLE {NO_ROOM_FOR_REPLY}"))),
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
