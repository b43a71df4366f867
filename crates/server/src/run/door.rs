//! The backend of one client's connection: its event loop's gateway, and what the node says about itself.
use super::{client::Client, event_loop::EventLoop};
use bytes::Bytes;
use std::sync::Arc;
use turnbuckle_core::{
    Answered, BadToken, DoorId, Failure, Key, Micros, Operation, SiteId, Transactions, Vector, Wanted,
};
use turnbuckle_resp::{
    Backend, Channels, ClusterNode, InfoSection, Keyspace, Listener, Refused, SelectError, Traffic,
};

/// The bits of a connection's own tag. The bits above them are the connection's slot.
const TAG_BITS: u32 = 40;

/// Splits the gateway's tag of an operation into the client's slot and the client's own tag.
pub(super) fn split_tag(tag: u64) -> (usize, u64) {
    ((tag >> TAG_BITS) as usize, tag & ((1 << TAG_BITS) - 1))
}

pub(super) fn join_tag(slot: usize, tag: u64) -> u64 {
    assert!(
        tag >> TAG_BITS == 0,
        "a connection made more than a million million operations"
    );
    (slot as u64) << TAG_BITS | tag
}

pub(super) struct LoopBackend<'a> {
    event_loop: &'a EventLoop,
    client: &'a Client,
    slot: usize,
}

impl<'a> LoopBackend<'a> {
    pub fn new(event_loop: &'a EventLoop, client: &'a Client) -> LoopBackend<'a> {
        LoopBackend {
            event_loop,
            client,
            slot: client.slot,
        }
    }
}

impl Backend for LoopBackend<'_> {
    fn open(&mut self, keyspace: &str) -> Result<DoorId, SelectError> {
        let door = self.event_loop.gateway.borrow_mut().open(keyspace);
        door.ok_or(SelectError::NoKeyspace)
    }

    fn resume(&mut self, door: DoorId, token: &[u8]) -> Result<(), BadToken> {
        self.event_loop.gateway.borrow_mut().resume(door, token)
    }

    fn close(&mut self, door: DoorId) {
        self.event_loop.gateway.borrow_mut().close(door);
    }

    fn operate(&mut self, door: DoorId, tag: u64, operation: Operation) -> Option<Answered> {
        self.event_loop.operate(self.client, door, tag, operation)
    }

    fn look_ahead(&mut self, door: DoorId, keys: &[&[u8]]) {
        self.event_loop.gateway.borrow().look_ahead(door, keys);
    }

    fn divides_reads(&self, door: DoorId, level: Option<&Wanted>) -> bool {
        let keyspace = door.keyspace as usize;
        let default = Wanted::Level(self.event_loop.levels[keyspace].read);
        let mut levels = level.unwrap_or(&default).levels();
        !levels.any(|level| level.promise().makes_snapshots())
    }

    fn refusal(&self, door: DoorId, operation: &Operation) -> Option<Failure> {
        self.event_loop.gateway.borrow().refusal(door, operation)
    }

    fn transactions(&self, door: DoorId) -> Transactions {
        self.event_loop.transactions[door.keyspace as usize]
    }

    fn begin_command(&mut self, place: usize) {
        self.event_loop.command.set(place);
        self.event_loop.recorder.borrow_mut().command(place);
    }

    fn go_on_with_command(&mut self, place: usize) {
        self.event_loop.command.set(place);
    }

    fn refuse_command(&mut self, place: usize) {
        self.event_loop.recorder.borrow_mut().command_refused(place);
    }

    fn note_refused(&mut self, refused: &Refused<'_>) {
        self.event_loop.host.note_refused(refused);
    }

    fn channels(&self) -> Option<&Arc<Channels>> {
        Some(&self.event_loop.host.channels)
    }

    fn listener(&self) -> Listener {
        Listener {
            event_loop: self.event_loop.index,
            number: self.slot as u64,
        }
    }

    fn monotonic_time(&self) -> Micros {
        self.event_loop.now().monotonic
    }

    fn fill_random(&mut self, bytes: &mut [u8]) -> bool {
        self.event_loop.host.fill_random(bytes);
        true
    }

    fn grow_to(&mut self, bytes: usize) -> bool {
        self.client.grow_to(bytes)
    }

    fn token(&mut self, door: DoorId) -> Bytes {
        self.event_loop.gateway.borrow_mut().token(door)
    }

    fn seal_context(&self, door: DoorId, key: &Key, context: &Vector) -> Bytes {
        let gateway = self.event_loop.gateway.borrow();
        gateway.seal_context(door, key, context)
    }

    fn open_context(&self, door: DoorId, key: &Key, sealed: &[u8]) -> Option<Vector> {
        let gateway = self.event_loop.gateway.borrow();
        gateway.open_context(door, key, sealed)
    }

    fn keyspaces(&self) -> Vec<Keyspace> {
        self.event_loop
            .host
            .about_keyspaces(&self.event_loop.gateway.borrow())
    }

    fn cluster_mode(&self) -> bool {
        self.event_loop.host.config.cluster_mode
    }

    fn cluster(&self, keyspace: &str) -> Vec<ClusterNode> {
        self.event_loop.host.about_nodes(keyspace)
    }

    fn wall_time(&self) -> Micros {
        self.event_loop.now().wall.reading
    }

    fn site_name(&self, site: SiteId) -> &str {
        let host = &self.event_loop.host;
        host.config
            .sites()
            .get(usize::from(site.0))
            .map_or("?", String::as_str)
    }

    fn site_named(&self, name: &str) -> Option<SiteId> {
        let mut sites = self.event_loop.host.config.sites().iter();
        let place = sites.position(|known| known == name)?;
        Some(SiteId(place as u16))
    }

    fn info(&self) -> Vec<InfoSection> {
        self.event_loop.host.about_node()
    }

    fn config(&self) -> Vec<(String, String)> {
        self.event_loop.host.about_config()
    }

    fn traffic(&self) -> Traffic {
        let clients = self.event_loop.clients.borrow();
        let client = clients[self.slot]
            .as_ref()
            .expect("a client that executes a command is here");
        client.traffic(self.event_loop.now().monotonic)
    }

    fn clients(&self, own: &str) -> String {
        let clients = self.event_loop.clients.borrow();
        let others = clients.iter().flatten().filter(|client| client.slot != self.slot);
        let now = self.event_loop.now().monotonic;
        let others = others.filter_map(|client| client.describe(now));
        own.to_owned() + &others.map(|line| line + "\n").collect::<String>()
    }
}
