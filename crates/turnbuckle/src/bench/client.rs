//! One client: its connection, its operations under way, and their outcomes.
//!
//! ```text
//!            fill                     exchange                      finish
//!   Source --------> flight (FIFO) ------------> server ---------> Tally, Population
//!     ^                                                                 |
//!     `------------------------- a lane is idle again ------------------'
//! ```
//!
//! With `--retry`, an operation that failed in a way that passes goes back to its lane, and is tried again:
//!
//! ```text
//!   finish ----> again (per lane, after a pause) ----> flight, on the connection that there is then
//! ```
//!
//! Each try is a record of its own in the trace. A write is tried again with a fresh value: the try before it may have happened, or may
//! still happen, and the checker has to tell the two apart.
//!
//! A client has `--pipeline` *lanes*. A lane has one operation under way at most, so what happens on a lane is a session of
//! its own in the trace: operations of one session may not overlap there. A connection that is lost ends its sessions; what
//! was under way may or may not have happened.

use super::{
    alarm::Alarm,
    errors,
    shared::Shared,
    source::{Job, Next, Source},
    tally::Finished,
    target::session_token,
};
use crate::connection::{Connection, Trouble};
use bytes::Bytes;
use std::{collections::VecDeque, io, rc::Rc, time::Duration};
use tokio::{sync::watch, task::yield_now};
use turnbuckle_resp::Value;
use turnbuckle_workload::{Arrival, ClientId, Generator, Op, Random, Received, Status, split_receipt};

/// A client: see the module.
pub(crate) struct Client {
    shared: Rc<Shared>,
    id: ClientId,
    generator: Generator,
    alarm: Alarm,
    stop: watch::Receiver<bool>,
    connection: Option<Connection>,
    /// The index of the target to which it is, or should be, connected.
    target: usize,
    /// How many sessions were lost before this one.
    sessions_lost: u32,
    /// The session to go on with on the next connection.
    token: Option<Vec<u8>>,
    /// How many steps are left until it moves on to another target, if it roams.
    steps_here: Option<u64>,
    /// The source of random numbers for roaming and backing off. It is separate from that of the workload, so that neither changes the other.
    chance: Random,
    /// Free lanes, each with the time when it became free. These times never fall from front to back, because answers come in order.
    idle: VecDeque<(u64, usize)>,
    flight: VecDeque<Flight>,
    /// Operations that are to be tried again, at most one on each lane, in the order in which their last tries ended.
    again: VecDeque<Again>,
}

/// An operation under way.
#[derive(Debug)]
struct Flight {
    job: Job,
    lane: usize,
    sent_ns: u64,
    tries: Tries,
}

/// The tries of an operation before this one.
#[derive(Debug, Clone, Copy, Default)]
struct Tries {
    count: u32,
    /// When the first was sent; `None` if there was none.
    first_ns: Option<u64>,
}

/// An operation that waits for its next try.
#[derive(Debug)]
struct Again {
    job: Job,
    lane: usize,
    tries: Tries,
    /// When the last try ended.
    ended_ns: u64,
    /// When the next may be sent.
    due_ns: u64,
    /// How the last try ended, in one word.
    word: String,
}

/// How an operation ended.
enum End {
    /// With an answer of the right type, and what a read found.
    Done(Option<Bytes>),
    /// With an error: its first word, and whether the operation may have happened nevertheless.
    Error(String, Status),
    /// Without an answer, for this reason in one word.
    Lost(&'static str),
}

/// The state of a client at the end of a phase.
pub(crate) struct Over {
    pub(crate) client: Client,
    /// Why it had no connection.
    pub(crate) trouble: Option<Trouble>,
}

/// What a client waits for when it has nothing to send.
enum Wait {
    For(Option<u64>),
    Done,
}

impl Client {
    /// How many steps a roaming client stays, on average.
    const STEPS_PER_TARGET: u64 = 100;
    /// The first pause before connecting again; it doubles each time.
    const MIN_PAUSE_NS: u64 = 10_000_000;
    /// The longest pause.
    const MAX_PAUSE_NS: u64 = 1_000_000_000;
    /// How long a client without connection tries, in a phase that does not end by time.
    const PATIENCE_NS: u64 = 30_000_000_000;

    /// A client, not connected yet.
    ///
    /// # Errors
    /// If the process may open no more files.
    pub(crate) fn new(
        shared: Rc<Shared>,
        id: ClientId,
        generator: Generator,
        seed: u64,
    ) -> io::Result<Client> {
        let mut chance = Random::new(seed, u64::from(id.number()) | 1 << 32);
        Ok(Client {
            alarm: Alarm::new(shared.clock)?,
            stop: shared.stop.subscribe(),
            connection: None,
            target: usize::from(id.number()) % shared.targets.len(),
            sessions_lost: 0,
            token: None,
            steps_here: shared.roams.then(|| stay(&mut chance)),
            chance,
            idle: VecDeque::new(),
            flight: VecDeque::new(),
            again: VecDeque::new(),
            shared,
            id,
            generator,
        })
    }

    /// The client's number.
    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    /// Connects for the first time: no second try.
    pub(crate) async fn connect(&mut self) -> Result<(), Trouble> {
        let address = &self.shared.targets[self.target].address;
        self.connection = Some(self.shared.greeting.connect(address, None).await?);
        Ok(())
    }

    /// Carries out what the source has, until there is no more.
    pub(crate) async fn work(mut self, mut source: Source) -> Over {
        let begin_ns = self.shared.clock.now_ns();
        self.idle = (0..self.shared.pipeline).map(|lane| (begin_ns, lane)).collect();
        let trouble = loop {
            if self.connection.is_none()
                && let Err(trouble) = self.reconnect().await
            {
                break Some(trouble);
            }
            let wait = self.fill(&mut source);
            let until_ns = match wait {
                Wait::Done if self.flight.is_empty() && self.again.is_empty() => break None,
                Wait::Done => self.next_try_ns(),
                Wait::For(until_ns) => [until_ns, self.next_try_ns()].into_iter().flatten().min(),
            };
            let went_well = if self.should_move() && self.flight.is_empty() {
                self.move_on().await
            } else {
                // An answer may already be there each time. Then one client could go on while the answers of other clients wait and seem slow:
                // tokio polls sockets only when all tasks wait. So the other tasks run first, once in each turn.
                yield_now().await;
                self.wait(until_ns)
                    .await
                    .and_then(|()| self.take_replies(&mut source))
            };
            if let Err(trouble) = went_well {
                self.lose(&trouble, &mut source);
            }
        };
        self.give_up(&source);
        self.count_unsent(&source);
        Over {
            client: self,
            trouble,
        }
    }

    /// Sends what is due, as far as lanes are free.
    fn fill(&mut self, source: &mut Source) -> Wait {
        let now_ns = self.shared.clock.now_ns();
        while self.again.front().is_some_and(|again| again.due_ns <= now_ns)
            && let Some(again) = self.again.pop_front()
        {
            self.send(again.job, again.lane, again.ended_ns, again.tries);
        }
        while let Some(&(idle_ns, lane)) = self.idle.front()
            && !self.should_move()
        {
            match source.next(&self.shared, &mut self.generator, idle_ns, now_ns) {
                Next::Job(job) => {
                    self.idle.pop_front();
                    if let Some(left) = &mut self.steps_here {
                        *left = left.saturating_sub(1);
                    }
                    self.send(job, lane, idle_ns, Tries::default());
                }
                Next::At(at_ns) => return Wait::For(Some(at_ns)),
                Next::Nothing => return Wait::Done,
            }
        }
        Wait::For(None)
    }

    /// Queues an operation on a lane that has been free since `idle_ns`. In a trace, equal times overlap, so it begins at
    /// least a nanosecond later.
    fn send(&mut self, job: Job, lane: usize, idle_ns: u64, tries: Tries) {
        let sent_ns = self.shared.clock.now_ns().max(idle_ns.saturating_add(1));
        let connection = self.connection.as_mut().expect("only a connected client sends");
        match &job.value {
            None => connection.send(&[&b"GET"[..], &job.key]),
            Some(value) => connection.send(&[&b"SET"[..], &job.key, value]),
        }
        self.flight.push_back(Flight {
            job,
            lane,
            sent_ns,
            tries,
        });
    }

    /// Waits until something arrives, the next operation is due, the oldest operation has taken too long, or the run is to end.
    async fn wait(&mut self, due_ns: Option<u64>) -> Result<(), Trouble> {
        let late_ns = self
            .flight
            .front()
            .map(|oldest| oldest.sent_ns.saturating_add(self.shared.timeout_ns));
        let connection = self.connection.as_mut().expect("only a connected client waits");
        let alarm_ns = [due_ns, late_ns].into_iter().flatten().min();
        let is_stopped = *self.stop.borrow();
        tokio::select! {
            biased;
            exchanged = connection.exchange() => exchanged?,
            rung = self.alarm.wait(alarm_ns) => {
                rung.map_err(|error| Trouble::Broken(format!("timer: {error}")))?;
            }
            _ = self.stop.changed(), if !is_stopped => {}
        }
        Ok(())
    }

    /// Takes what has arrived off the flight, and looks for an operation that has taken too long.
    fn take_replies(&mut self, source: &mut Source) -> Result<(), Trouble> {
        let now_ns = self.shared.clock.now_ns();
        let connection =
            |client: &mut Client| client.connection.as_mut().expect("replies come from one").reply();
        while let Some(reply) = connection(self)? {
            let Some(flight) = self.flight.pop_front() else {
                return Err(Trouble::Broken("a reply to nothing".into()));
            };
            let (value, receipt) = split_receipt(reply);
            match judge(flight.job.op, value) {
                Ok(end) => self.finish(flight, end, receipt, now_ns, source),
                Err(trouble) => {
                    self.flight.push_front(flight);
                    return Err(trouble);
                }
            }
        }
        match self.flight.front() {
            Some(oldest) if now_ns.saturating_sub(oldest.sent_ns) >= self.shared.timeout_ns => {
                Err(Trouble::Late)
            }
            _ => Ok(()),
        }
    }

    /// An operation is over.
    fn finish(
        &mut self,
        flight: Flight,
        end: End,
        receipt: Option<Received>,
        now_ns: u64,
        source: &mut Source,
    ) {
        if let Some(again) = self.again(&flight, &end, now_ns) {
            self.shared.tally.borrow_mut().retry(&again.word);
            self.record(&flight.job, flight.lane, flight.sent_ns, end, receipt, now_ns);
            self.again.push_back(again);
            return;
        }
        let Flight {
            job, lane, sent_ns, ..
        } = flight;
        let is_done = matches!(end, End::Done(_));
        self.count(&job, &end, now_ns);
        if let Some(record) = job.record {
            self.end_record(source, record, is_done);
        }
        self.record(&job, lane, sent_ns, end, receipt, now_ns);
        match job.then {
            Some(value) if is_done => {
                let write = Job {
                    op: Op::Write,
                    value: Some(value),
                    then: None,
                    intended_ns: now_ns,
                    ..job
                };
                self.send(write, lane, now_ns, Tries::default());
            }
            _ => self
                .idle
                .push_back((now_ns.saturating_add(self.think_ns()), lane)),
        }
    }

    /// The next try of an operation that ended so. `None` if there is to be none.
    fn again(&mut self, flight: &Flight, end: &End, now_ns: u64) -> Option<Again> {
        let word = match end {
            End::Error(word, _) if errors::passes(word) => word.clone(),
            End::Lost(word) => (*word).to_owned(),
            _ => return None,
        };
        let first_ns = flight.tries.first_ns.unwrap_or(flight.sent_ns);
        let pause_ns = (Client::MIN_PAUSE_NS << flight.tries.count.min(7)).min(Client::MAX_PAUSE_NS);
        // Half of the pause is random, so that not all clients try again at the same time.
        let due_ns = now_ns.saturating_add(pause_ns / 2 + self.chance.below(pause_ns / 2));
        let until_ns = first_ns.saturating_add(self.shared.retry_ns);
        if due_ns > until_ns || *self.stop.borrow() {
            return None;
        }
        let mut job = flight.job.clone();
        job.value = job.value.map(|_| self.generator.next_value());
        Some(Again {
            job,
            lane: flight.lane,
            tries: Tries {
                count: flight.tries.count + 1,
                first_ns: Some(first_ns),
            },
            ended_ns: now_ns,
            due_ns,
            word,
        })
    }

    /// When the next operation may be tried again. The pauses differ, so it need not be the first of them that is due first; that one only
    /// waits a little longer.
    fn next_try_ns(&self) -> Option<u64> {
        self.again.front().map(|again| again.due_ns)
    }

    /// There will be no connection any more: what waits for its next try has failed as its last try did.
    fn give_up(&mut self, source: &Source) {
        for again in std::mem::take(&mut self.again) {
            self.shared.tally.borrow_mut().error(&again.word);
            if let Some(record) = again.job.record {
                self.end_record(source, record, false);
            }
        }
    }

    /// The write of a record is over. While records are loaded, another client may write it if this one could not.
    fn end_record(&self, source: &Source, record: u64, is_done: bool) {
        match source {
            Source::Load(queue) if !is_done => queue.borrow_mut().fail(record),
            Source::Load(_) => {}
            Source::Run(_) => self.shared.population.borrow_mut().finish(record),
        }
    }

    fn count(&self, job: &Job, end: &End, now_ns: u64) {
        let mut tally = self.shared.tally.borrow_mut();
        match end {
            End::Done(_) => tally.done(job.op, now_ns.saturating_sub(job.intended_ns)),
            End::Error(word, _) => tally.error(word),
            End::Lost(word) => tally.error(word),
        }
    }

    fn record(&self, job: &Job, lane: usize, sent_ns: u64, end: End, receipt: Option<Received>, now_ns: u64) {
        let mut tally = self.shared.tally.borrow_mut();
        if !tally.is_tracing() && receipt.is_none() {
            return;
        }
        let (status, found, answered_ns) = match end {
            End::Done(found) => (Status::Ok, found, Some(now_ns)),
            End::Error(_, Status::Unknown) | End::Lost(_) => (Status::Unknown, None, None),
            End::Error(_, status) => (status, None, Some(now_ns)),
        };
        let greeting = &self.shared.greeting;
        let level = if job.op == Op::Read {
            &greeting.read
        } else {
            &greeting.write
        };
        let is_written = tally.record(Finished {
            session: self.session(lane),
            site: self.shared.targets[self.target].site.clone(),
            op: job.op,
            key: job.key.clone(),
            value: job.value.clone().or(found),
            level: level.as_ref().map(|level| level.to_string()),
            sent_ns,
            answered_ns,
            status,
            receipt,
        });
        if !is_written {
            self.shared.stop_all();
        }
    }

    /// `c7.0k3x9a`, then `-1` after one lost session, and `#2` on lane 2 of several.
    fn session(&self, lane: usize) -> String {
        let mut name = format!("{}.{}", self.id, self.shared.run);
        if self.sessions_lost > 0 {
            name += &format!("-{}", self.sessions_lost);
        }
        if self.shared.pipeline > 1 {
            name += &format!("#{lane}");
        }
        name
    }

    fn think_ns(&self) -> u64 {
        match self.shared.arrival {
            Arrival::Closed { think_ns } => think_ns,
            Arrival::Open { .. } => 0,
        }
    }

    /// The connection is gone, and with it the session and all that was under way.
    fn lose(&mut self, trouble: &Trouble, source: &mut Source) {
        let now_ns = self.shared.clock.now_ns();
        let word = match trouble {
            Trouble::Late => "NOREPLY",
            Trouble::Refused(_) | Trouble::Broken(_) => "CONNECTION",
        };
        self.connection = None;
        while let Some(flight) = self.flight.pop_front() {
            self.finish(flight, End::Lost(word), None, now_ns, source);
        }
        self.token = None;
        self.sessions_lost += 1;
        if self.shared.retry_ns > 0 {
            self.target = self.elsewhere();
        }
    }

    /// Connects again, with ever longer pauses, until the phase is over.
    async fn reconnect(&mut self) -> Result<(), Trouble> {
        let patience_ns = self.shared.clock.now_ns().saturating_add(Client::PATIENCE_NS);
        let mut pause_ns = Client::MIN_PAUSE_NS;
        loop {
            let address = &self.shared.targets[self.target].address;
            let trouble = match self.shared.greeting.connect(address, self.token.as_deref()).await {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.token = None;
                    return Ok(());
                }
                Err(trouble) => trouble,
            };
            let now_ns = self.shared.clock.now_ns();
            let is_timed = self.shared.end_ns.get().is_some();
            let is_over = self.shared.is_over(now_ns) && !self.may_try_again(now_ns);
            if is_over || (!is_timed && now_ns >= patience_ns) {
                return Err(trouble);
            }
            // If the target refuses the session, a new one begins. If the target cannot be reached, the session is kept.
            if matches!(trouble, Trouble::Refused(_)) && self.token.take().is_some() {
                self.sessions_lost += 1;
            }
            if self.shared.roams || self.shared.retry_ns > 0 {
                self.target = self.elsewhere();
            }
            // Half of the pause is random, so that not all clients connect at the same time.
            let jittered_ns = pause_ns / 2 + self.chance.below(pause_ns / 2);
            let until_ns = now_ns.saturating_add(jittered_ns);
            let end_ns = self.shared.end_ns.get().filter(|_| self.again.is_empty());
            self.pause(until_ns.min(end_ns.unwrap_or(u64::MAX))).await;
            pause_ns = (pause_ns * 2).min(Client::MAX_PAUSE_NS);
        }
    }

    /// Whether an operation waits for a try that may still begin.
    fn may_try_again(&self, now_ns: u64) -> bool {
        let until_ns = |again: &Again| {
            again
                .tries
                .first_ns
                .unwrap_or(0)
                .saturating_add(self.shared.retry_ns)
        };
        !*self.stop.borrow() && self.again.iter().any(|again| until_ns(again) > now_ns)
    }

    async fn pause(&mut self, until_ns: u64) {
        let pause = Duration::from_nanos(until_ns.saturating_sub(self.shared.clock.now_ns()));
        let is_stopped = *self.stop.borrow();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = self.stop.changed(), if !is_stopped => {}
        }
    }

    /// Whether a roaming client has been here for long enough.
    fn should_move(&self) -> bool {
        self.steps_here == Some(0)
    }

    /// Takes its session to another target.
    async fn move_on(&mut self) -> Result<(), Trouble> {
        let connection = self
            .connection
            .as_mut()
            .expect("a client moves from where it is connected");
        let token = session_token(connection).await?;
        self.token = Some(token);
        self.connection = None;
        self.target = self.elsewhere();
        self.steps_here = Some(stay(&mut self.chance));
        Ok(())
    }

    /// Any target but this one.
    fn elsewhere(&mut self) -> usize {
        let targets = self.shared.targets.len();
        let step = 1 + self.chance.below((targets as u64 - 1).max(1)) as usize;
        (self.target + step) % targets
    }

    /// Counts the operations of an open loop that were never sent. They are not in the latencies, so they are counted as errors.
    fn count_unsent(&self, source: &Source) {
        let (Source::Run(run), Some(end_ns)) = (source, self.shared.end_ns.get()) else {
            return;
        };
        if self.shared.steps_left.get() == Some(0) {
            return;
        }
        let until_ns = end_ns.min(self.shared.clock.now_ns());
        self.shared
            .tally
            .borrow_mut()
            .unsent(run.unsent(&self.shared, until_ns));
    }
}

/// How many steps a roaming client stays: half to one and a half of the average.
fn stay(chance: &mut Random) -> u64 {
    Client::STEPS_PER_TARGET / 2 + chance.below(Client::STEPS_PER_TARGET + 1)
}

/// The outcome that a reply means for its operation. An error if the reply has the wrong type.
fn judge(op: Op, reply: Value) -> Result<End, Trouble> {
    match (op, reply) {
        (_, Value::Error(why)) => {
            let word = first_word(&why);
            // Only after this error may the operation have happened; every other error says that it certainly has not.
            let status = if word == "TIMEOUT" {
                Status::Unknown
            } else {
                Status::Fail
            };
            Ok(End::Error(word, status))
        }
        (Op::Read, Value::Bulk(value)) => Ok(End::Done(Some(value))),
        (Op::Read, Value::Null) => Ok(End::Done(None)),
        (Op::Write, Value::Simple(word)) if word == "OK" => Ok(End::Done(None)),
        (op, reply) => {
            let reply: String = format!("{reply:?}").chars().take(80).collect();
            Err(Trouble::Broken(format!("{reply} is no answer to a {op:?}")))
        }
    }
}

fn first_word(error: &[u8]) -> String {
    let word = error
        .split(|byte| byte.is_ascii_whitespace())
        .next()
        .unwrap_or_default();
    String::from_utf8_lossy(&word[..word.len().min(32)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timeout_leaves_open_whether_it_happened() {
        for (error, word, status) in [
            ("TIMEOUT after 5s", "TIMEOUT", Status::Unknown),
            ("UNAVAILABLE no leader", "UNAVAILABLE", Status::Fail),
            ("ERR", "ERR", Status::Fail),
            ("", "", Status::Fail),
        ] {
            let Ok(End::Error(found, how)) = judge(Op::Write, Value::Error(error.into())) else {
                panic!("{error} is an error");
            };
            assert_eq!((found.as_str(), how), (word, status));
        }
    }

    #[test]
    fn a_reply_of_another_kind_is_trouble() {
        for (op, reply) in [
            (Op::Read, Value::Integer(1)),
            (Op::Read, Value::Simple("OK".into())),
            (Op::Write, Value::Simple("QUEUED".into())),
            (Op::Write, Value::Null),
        ] {
            assert!(judge(op, reply).is_err());
        }
    }
}
