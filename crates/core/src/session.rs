use crate::{
    Answer, BadToken, Failure, Key, Level, Levels, Micros, Now, Operation, Protocol, Receipt, ServerId,
    SiteId, Topology,
};
use bytes::{Bytes, BytesMut};

/// The client side of a protocol: a state machine like the server side. It lives in the gateway for a Redis connection,
/// in the Rust client, and in the simulator.
///
/// An operation comes in with a `tag`, the driver's name for it; the session asks servers, each question with a
/// `part` number of its own choosing, and answers the tag once. What it knows goes into a token, so that the client can go on elsewhere.
pub trait Session: Sized + Send + 'static {
    /// The server side.
    type Protocol: Protocol;
    /// What all sessions of one gateway know together, such as which replica leads a partition. It is lost with the process.
    type Shared: Default + Send + 'static;
    /// When to wake up: an enum, one doc line each, beginning "When to". It may say for which operation.
    type Timer: Copy + Ord + Send + 'static;

    /// The levels that a keyspace of this protocol offers.
    const LEVELS: Levels;

    /// Whether operations of one client that were sent without waiting may overlap. If not, each starts when the one before is answered, or
    /// was heard ahead of that ([`Session::may_hear_ahead`]). Operations on the same key are always taken in order by the
    /// replica they go to.
    const OVERLAPS: bool;

    /// A new session at site `home`.
    fn open(
        config: &<Self::Protocol as Protocol>::Config,
        home: SiteId,
        topology: Topology,
        id: SessionId,
    ) -> Self;

    /// Takes in the `state` that [`Session::token`] wrote, of a session here or elsewhere, on top of what this one knows: the next
    /// operation comes after all that either has seen. No operation is under way. After an error the session is as it was.
    fn resume(&mut self, state: Bytes) -> Result<(), BadToken>;

    /// A client wants something, at a level that the keyspace offers.
    fn on_operation(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        operation: Operation,
        level: Level,
    );

    /// A replica on this node has carried out an operation, and holds this answer until it is durable. Whether the session may have it now, by
    /// [`Session::on_response`], and so begin the next operation; the client hears nothing before it is durable.
    ///
    /// What the session asks next is not behind the replica's barrier: other replicas may make it durable, and show it, before what it
    /// follows, which may yet be lost. So there may be nothing in the answer that others would have to find again: not what
    /// has arrived from other sites, for one.
    fn may_hear_ahead(&self, _response: &<Self::Protocol as Protocol>::Response) -> bool {
        false
    }

    /// A server's answer to `part` of `tag`, or what became of it. It comes also when the operation was answered before, if the session asked several
    /// servers.
    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        part: u32,
        from: ServerId,
        outcome: Outcome<<Self::Protocol as Protocol>::Response>,
    );

    /// A timer is due.
    fn on_timer(&mut self, _: &mut SessionContext<'_, Self>, _timer: Self::Timer) {
        unreachable!("a session that sets timers says what they do")
    }

    /// Writes what the session knows.
    fn token(&self, out: &mut BytesMut);
}

/// A number that no other session has, drawn when the session begins. It is all the randomness that the session has. With the tag of an operation
/// it names a write for good, so that a replica can tell a write that is asked for once more from a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// What became of a question to a server.
#[derive(Debug)]
pub enum Outcome<R> {
    /// It answered.
    Answered(R, Receipt),
    /// It was not carried out, for this reason.
    Refused(String),
    /// Nobody knows: the link broke, or time ran out.
    Lost(String),
}

impl<R> Outcome<R> {
    /// The failure to tell a client, for an operation that changes something if it was carried out.
    pub fn into_failure(self) -> Option<Failure> {
        match self {
            Outcome::Answered(..) => None,
            Outcome::Refused(why) => Some(Failure::Unavailable(why)),
            Outcome::Lost(why) => Some(Failure::Timeout(why)),
        }
    }
}

/// What the driver knows of the servers that a session may ask: those of every site.
pub trait Reach {
    /// Of a partition, the replica that a client here had best ask: one on this node, or else one of this site that can be reached, or else
    /// one of another site.
    fn nearest(&self, partition: u16) -> ServerId;

    /// Of a partition, a replica of another site that can be reached, if there is one.
    fn nearest_elsewhere(&self, partition: u16) -> Option<ServerId>;

    /// Whether a server is on this node, or the link to its node is up.
    fn is_reached(&self, server: ServerId) -> bool;

    /// How long a server's node has taken lately to answer what sessions of this gateway have asked, beside the time for which an answer was
    /// parked: about the link's round trip. Zero for servers on this node. `None` if none was asked yet.
    fn round_trip(&self, server: ServerId) -> Option<Micros>;
}

/// What a session sees and does.
pub struct SessionContext<'a, S: Session> {
    /// The time.
    pub now: Now,
    /// How long a server may take to answer before the session hears that the answer is lost.
    pub patience: Micros,
    /// What all sessions of this gateway know together.
    pub shared: &'a mut S::Shared,
    /// The servers that can be asked.
    pub reach: &'a dyn Reach,
    /// Where questions, answers and timers go, in order.
    pub steps: &'a mut Vec<SessionStep<S>>,
}

/// One thing a session wants done.
pub enum SessionStep<S: Session> {
    /// Ask a server.
    Ask {
        /// For which operation.
        tag: u64,
        /// Which of its questions.
        part: u32,
        /// Whom.
        server: ServerId,
        /// What.
        request: <S::Protocol as Protocol>::Request,
    },
    /// Answer an operation.
    Answer {
        /// The operation.
        tag: u64,
        /// The answer.
        answer: Answer,
        /// What it proves.
        receipt: Option<Receipt>,
    },
    /// Set a timer, or set it again.
    SetTimer {
        /// The timer.
        timer: S::Timer,
        /// When it is due, in monotonic time.
        due: Micros,
    },
}

impl<S: Session> SessionContext<'_, S> {
    /// The replica of a key that a client here had best ask: [`Reach::nearest`].
    pub fn nearest(&self, topology: &Topology, key: &Key) -> ServerId {
        self.reach.nearest(topology.partition_of_slot(key.slot()))
    }

    /// Asks a server, of this site or another one; the answer comes to [`Session::on_response`].
    pub fn ask(
        &mut self,
        tag: u64,
        part: u32,
        server: ServerId,
        request: <S::Protocol as Protocol>::Request,
    ) {
        self.steps.push(SessionStep::Ask {
            tag,
            part,
            server,
            request,
        });
    }

    /// Answers an operation.
    pub fn answer(&mut self, tag: u64, answer: Answer, receipt: Option<Receipt>) {
        self.steps.push(SessionStep::Answer { tag, answer, receipt });
    }

    /// Answers an operation with a failure.
    pub fn fail(&mut self, tag: u64, failure: Failure) {
        self.answer(tag, Answer::Failed(failure), None);
    }

    /// Sets or resets a timer: it comes to [`Session::on_timer`].
    pub fn set_timer(&mut self, timer: S::Timer, after: Micros) {
        let due = self.now.monotonic + after;
        self.steps.push(SessionStep::SetTimer { timer, due });
    }
}
