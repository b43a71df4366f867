//! Inputs are handed to the replica, or parked until their keys are in memory or peers were heard. Then come the outputs that they make
//! possible.
use super::{
    Lane,
    waiting::{Question, Waiting},
};
use bytes::BytesMut;
use turnbuckle_core::{Hlc, Input, Key, Micros, Now, Outcome, Output, Protocol, ReplicaSet, ServerId, Wire};
use turnbuckle_replication::{MarkFrame, StreamBody};
use turnbuckle_store::StoreError;

/// The most inputs that may wait for keys from disk. Beyond it, messages that would have to wait are dropped. Their senders ask again.
/// Without the limit, a slow disk would never catch up.
pub(super) const MAX_COLD: usize = 1024;

/// The most bytes of rows that are kept in memory for one request that waits for further ones.
const MAX_KEPT_BYTES: u64 = 256 << 20;

impl<P: Protocol> Lane<P> {
    /// Handles a request of a session or of another node. If its keys are not in memory, it waits.
    pub fn ask(&mut self, now: Now, question: Question<P>) {
        if self.is_in_startup_wait() {
            self.end_startup_wait(now);
        }
        self.run_or_park(now, question);
        self.finish_input(now);
    }

    /// When the lane must be stepped next, in monotonic time: for a timer of its replica, or for requests that wait to hear from peers.
    /// With a protocol without timers, nothing else would end that wait.
    pub fn next_deadline(&self) -> Option<Micros> {
        let deadlines = [self.replica.next_deadline(), self.startup_wait_until()];
        deadlines.into_iter().flatten().min()
    }

    /// Handles an input that names no keys.
    pub fn step(&mut self, now: Now, input: Input<P>) {
        self.handle(now, input);
        self.finish_input(now);
    }

    /// Handles a message of another replica. If its keys are not in memory, it waits, too.
    pub fn hear(&mut self, now: Now, from: ServerId, message: P::Message) {
        if self.is_in_startup_wait() {
            self.end_startup_wait(now);
        }
        self.hear_or_park(now, from, message);
        self.finish_input(now);
    }

    /// Hands an input to the replica. Threads read the clock, then wait for a lock or a disk, and come here. An input that they let run may
    /// have arrived after they read the clock. So time never goes back in a lane: an answer proves what it proves as of the latest time
    /// that any input came with.
    pub(super) fn handle(&mut self, now: Now, input: Input<P>) {
        let may_go_back = self.env.shared().config.planted.time_before_disk;
        if now.monotonic >= self.time.monotonic || may_go_back {
            self.time = now;
        }
        self.replica.set_taking_back(self.takes_back());
        self.replica.set_room(self.env.shared().has_room());
        self.replica.handle_input(self.time, input, &mut self.store);
        self.end_repair_by_protocol();
        self.moved = true;
    }

    // ---- waiting for keys -----------------------------------------------------------------------------------

    /// Whether an input that names this key has to wait.
    pub(super) fn is_cold(&self, key: &Key) -> bool {
        !self.store.is_resident(key.as_ref()) || self.cold.blocks(key)
    }

    pub(super) fn run_or_park(&mut self, now: Now, question: Question<P>) {
        if self.is_in_startup_wait() {
            return self.hold_question(now, question);
        }
        let mut is_cold = false;
        let protocol = self.replica.protocol();
        protocol.keys(&question.request, &mut |key| is_cold |= self.is_cold(key));
        if !is_cold {
            let Question { id, request, since } = question;
            self.handle(now, Input::Request { id, request, since });
            return;
        }
        let waiting = Waiting::Question(question);
        self.park(waiting.keys(protocol), waiting);
    }

    pub(super) fn fire_or_park(&mut self, now: Now, keys: Vec<Key>, timer: P::Timer) {
        match keys.iter().any(|key| self.is_cold(key)) {
            false => self.handle(now, Input::Resident { timer }),
            true => self.park(keys.clone(), Waiting::Timer { keys, timer }),
        }
    }

    pub(super) fn hear_or_park(&mut self, now: Now, from: ServerId, message: P::Message) {
        let (mut is_cold, mut names_keys) = (false, false);
        let protocol = self.replica.protocol();
        protocol.message_keys(from, &message, &mut |key| {
            names_keys = true;
            is_cold |= self.is_cold(key);
        });
        // The message is dropped: its sender asks again.
        if names_keys && (self.repair.is_some() || self.is_outdated()) {
            return;
        }
        if names_keys && self.is_in_startup_wait() {
            self.hold_message(now, Waiting::Message { from, message });
        } else if !is_cold {
            self.handle(now, Input::Message { from, message });
        } else if self.cold.len() < MAX_COLD {
            let waiting = Waiting::Message { from, message };
            self.park(waiting.keys(protocol), waiting);
        }
    }

    /// Evicts keys that the engine has, as [`turnbuckle_store::Store::evict`] does, but not those of the input that has waited longest. If it names several keys, it
    /// could otherwise wait forever: one is evicted while another one is fetched.
    ///
    /// If that takes too much memory, a request is refused. An entry that is to be applied needs no more than the request that it came from did.
    pub fn evict(&mut self, max: usize) -> usize {
        let kept = self.cold.first_keys();
        if kept.len() > 1 && self.store.wants_room() {
            let bytes = kept
                .iter()
                .map(|key| self.store.cost_of(key.as_ref()))
                .sum::<u64>();
            if bytes > MAX_KEPT_BYTES {
                self.refuse_first();
            }
        }
        let kept = self.cold.first_keys();
        self.store
            .evict_others(max, |key| kept.iter().any(|kept| kept.as_ref() == key))
    }

    /// Refuses the request that has waited longest, if it is one.
    fn refuse_first(&mut self) {
        let is_request = |waiting: &Waiting<P>| matches!(waiting, Waiting::Question(_));
        if let Some(Waiting::Question(question)) = self.cold.take_first_if(is_request) {
            let why = format!(
                "its keys need more than {} MiB of memory at the same time",
                MAX_KEPT_BYTES >> 20
            );
            self.deliver(question.id, Outcome::Refused(why));
            let store = &self.store;
            self.cold.want_first_again(|key| store.is_resident(key.as_ref()));
            self.wake_worker();
        }
    }

    fn park(&mut self, keys: Vec<Key>, waiting: Waiting<P>) {
        let store = &self.store;
        self.cold
            .park(keys, waiting, |key| store.is_resident(key.as_ref()));
        self.wake_worker();
    }

    /// Handles an input that has waited for something other than keys.
    pub(super) fn go_on(&mut self, now: Now, waiting: Waiting<P>) {
        match waiting {
            Waiting::Question(question) => self.run_or_park(now, question),
            Waiting::Message { from, message } => self.hear_or_park(now, from, message),
            Waiting::Timer { keys, timer } => self.fire_or_park(now, keys, timer),
        }
    }

    /// A key was fetched: inputs that waited for it are handled, unless they need another key by now.
    pub fn fetched(&mut self, now: Now, key: &Key) {
        self.cold.fetched(key);
        let asked = self.cold.asked();
        loop {
            let (store, protocol) = (&self.store, self.replica.protocol());
            let is_resident = |key: &Key| store.is_resident(key.as_ref());
            let runnable = self
                .cold
                .take_runnable(is_resident, |waiting| waiting.keys(protocol));
            let Some(waiting) = runnable else { break };
            let input = match waiting {
                Waiting::Question(Question { id, request, since }) => Input::Request { id, request, since },
                Waiting::Message { from, message } => Input::Message { from, message },
                Waiting::Timer { timer, .. } => Input::Resident { timer },
            };
            self.handle(now, input);
        }
        let store = &self.store;
        self.cold.want_first_again(|key| store.is_resident(key.as_ref()));
        if self.cold.asked() > asked {
            self.wake_worker();
        }
        for replica in self.incoming.peers().iter() {
            self.drain(now, replica);
        }
        self.finish_input(now);
    }

    /// A key could not be read: requests that waited for it are refused.
    pub fn fetch_failed(&mut self, key: &Key, why: &StoreError) {
        self.cold.fetched(key);
        self.note_damage(why);
        for failed in self.cold.take_failed(key) {
            match failed {
                Waiting::Question(question) => {
                    let refused = match why.is_damage() {
                        true => format!(
                            "the row of the key is damaged on this node's disk, and no other site has restored it yet: {why}"
                        ),
                        false => format!("the key cannot be read from disk: {why}"),
                    };
                    self.deliver(question.id, Outcome::Refused(refused));
                }
                // The message is dropped: its sender asks again.
                Waiting::Message { .. } => {}
                timer @ Waiting::Timer { .. } => self.cold.set_aside(timer),
            }
        }
        let asked = self.cold.asked();
        let store = &self.store;
        self.cold.want_first_again(|key| store.is_resident(key.as_ref()));
        if self.cold.asked() > asked {
            self.wake_worker();
        }
    }

    /// Tries timers again whose keys could not be read.
    pub fn retry_unread(&mut self, now: Now) {
        for waiting in self.cold.take_aside() {
            self.go_on(now, waiting);
        }
    }

    // ---- outputs --------------------------------------------------------------------------------------------

    /// Does everything that the last input made possible: first parked requests, then outputs.
    pub(super) fn finish_input(&mut self, now: Now) {
        loop {
            if let Some(ready) = self.replica.take_ready() {
                let question = Question {
                    id: ready.id,
                    request: ready.request,
                    since: Some(ready.since),
                };
                self.run_or_park(now, question);
            } else if let Some((keys, timer)) = self.replica.take_wanted() {
                self.fire_or_park(now, keys, timer);
            } else if let Some(peer) = self.replica.take_wanted_copy() {
                self.want_copy_of(peer.replica());
            } else {
                break;
            }
        }
        self.route();
    }

    /// Hands on the outputs that need not wait, in order.
    pub(super) fn route(&mut self) {
        while let Some(output) = self.replica.poll_output() {
            match output {
                Output::Reply {
                    id,
                    response,
                    mut receipt,
                } => {
                    if self.env.shared().config.planted.receipts_claim_more {
                        receipt.staleness = receipt.staleness.map(|proven| Micros(proven.0 / 2));
                    }
                    self.deliver(id, Outcome::Answered(response, receipt));
                }
                Output::Durable { id } => self.confirm(id),
                Output::Send { to, message } => self.send(to, message),
                Output::Mark {
                    to,
                    message,
                    promise,
                    number,
                } => self.mark(to, &message, (promise, number)),
            }
        }
    }

    fn mark(&mut self, to: ReplicaSet, message: &P::Message, promise: (Hlc, u64)) {
        // A newer mark is sent when peers have restored everything.
        if self.takes_back() {
            return;
        }
        let mut body = BytesMut::new();
        message.encode(&mut body);
        let body = body.freeze();
        if self.env.shared().config.planted.marks_overtake {
            for replica in to.iter() {
                let mark = MarkFrame {
                    incarnation: self.outgoing.incarnation(),
                    after: 0,
                    body: body.clone(),
                };
                self.say(self.me.peer(replica), StreamBody::Mark(mark));
            }
            return;
        }
        self.outgoing.set_mark(to, &body);
        self.wake_links_at_once(to);
        let behind = self.env.shared().log().written();
        self.in_log.push_promise(behind, promise);
        self.settle_promises();
    }
}
