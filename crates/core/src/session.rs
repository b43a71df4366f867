use crate::{
    Answer, BadToken, Failure, Key, Level, Levels, Micros, Now, Operation, Protocol, Receipt, ServerId,
    SiteId, Topology,
};
use bytes::{Bytes, BytesMut};

/// The client side of a protocol: a state machine like the server side. It runs in the gateway for a Redis connection, in the Rust client, and in the
/// simulator.
///
/// An operation comes in with a `tag`, the driver's number for it. The session asks servers, numbers its questions with a `part` of its own choosing,
/// and answers each tag once. What the session knows goes into a token, so that the client can go on elsewhere.
pub trait Session: Sized + Send + 'static {
    /// The server side of the protocol.
    type Protocol: Protocol;
    /// What all sessions of one gateway know together, such as which replica leads a partition. It is lost with the process.
    type Shared: Default + Send + 'static;
    /// When to wake up: an enum, one doc line each, beginning "When to". It may contain the tag of an operation.
    type Timer: Copy + Ord + Send + 'static;

    /// The levels that a keyspace of this protocol offers.
    const LEVELS: Levels;

    /// Whether operations of one client that were sent without waiting may overlap. If not, each starts when the one before it is answered, or when
    /// the session has heard its answer ahead of that ([`Session::may_hear_ahead`]). Operations on the same key are always taken in order by the
    /// replica that they go to.
    const OVERLAPS: bool;

    /// The same for operations at one level. A replica may answer later operations on the key before one that it has parked.
    fn overlaps_at(_level: Level) -> bool {
        Self::OVERLAPS
    }

    /// A new session at site `home`.
    fn open(
        config: &<Self::Protocol as Protocol>::Config,
        home: SiteId,
        topology: Topology,
        id: SessionId,
    ) -> Self;

    /// Merges the `state` that [`Session::token`] of a session, here or elsewhere, wrote into what this session knows. The next operation comes after
    /// all that either session has seen. Called while no operation is under way. After an error the session is unchanged.
    fn resume(&mut self, state: Bytes) -> Result<(), BadToken>;

    /// A client asks for an operation, at a level that the keyspace offers.
    fn on_operation(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        operation: Operation,
        level: Level,
    );

    /// A read is given up, because it has taken longer than its level's time ([`crate::Choice`]). It need not be answered, and no more answers to its questions
    /// come.
    fn give_up(&mut self, _: &mut SessionContext<'_, Self>, _tag: u64) {}

    /// Whether the session may get an answer before it is durable. A replica on this node has carried out the operation, and holds this answer until
    /// it is durable. If this is true, the session gets the answer now, by [`Session::on_response`], and may begin its next operation. The client
    /// gets the answer when it is durable.
    ///
    /// What the session asks next is not held behind the replica's barrier. Other replicas may make it durable, and show it, before the operation
    /// that it follows, which may still be lost. So the answer must not contain anything that other replicas would then have to find again, such as
    /// versions that have arrived from other sites.
    fn may_hear_ahead(&self, _response: &<Self::Protocol as Protocol>::Response) -> bool {
        false
    }

    /// A server's answer to `part` of `tag`, or why there is none. If the session asked several servers, answers also come after the operation was
    /// answered.
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

    /// Appends what the session knows, for [`Session::resume`].
    fn token(&self, out: &mut BytesMut);
}

/// A number that no other session has, drawn when the session begins. It is the session's only source of randomness. Together with the tag of an
/// operation it names a write permanently, so that a replica can tell a write that is asked for again from a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The outcome of a question to a server.
#[derive(Debug)]
pub enum Outcome<R> {
    /// The server answered. The receipt is on the heap, because an answer is handed on several times until it is written.
    Answered(R, Box<Receipt>),
    /// The request was not carried out, for this reason.
    Refused(String),
    /// It is not known whether the request was carried out: the link broke, or time ran out.
    Lost(String),
}

impl<R> Outcome<R> {
    /// The failure to report to the client, for an operation that changes something if it is carried out. `None` for an answer.
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
    /// The replica of a partition that a client here should ask: one on this node, or else one of this site that can be reached, or else one of
    /// another site. If the site has exactly one replica of the partition, it is that one, whether it can be reached or not.
    fn nearest(&self, partition: u16) -> ServerId;

    /// Of a partition, a replica of another site that can be reached, if there is one.
    fn nearest_elsewhere(&self, partition: u16) -> Option<ServerId>;

    /// Whether a server is on this node, or the link to its node is up.
    fn is_reached(&self, server: ServerId) -> bool;

    /// How long a server's node has recently taken to answer questions of this gateway's sessions, without the time for which a request was parked.
    /// That is about the link's round trip. Zero for servers on this node. `None` if no answer was measured yet.
    fn round_trip(&self, server: ServerId) -> Option<Micros>;
}

/// What a session sees, and how it acts.
pub struct SessionContext<'a, S: Session> {
    /// The time of this input.
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
#[allow(
    clippy::large_enum_variant,
    reason = "most steps are questions and answers, and a request of a protocol is about as large as an answer"
)]
pub enum SessionStep<S: Session> {
    /// Ask a server.
    Ask {
        /// The operation's tag.
        tag: u64,
        /// The session's number for this question of the operation.
        part: u32,
        /// The server.
        server: ServerId,
        /// The request.
        request: <S::Protocol as Protocol>::Request,
    },
    /// Answer an operation.
    Answer {
        /// The operation's tag.
        tag: u64,
        /// The answer.
        answer: Answer,
        /// What the answer proves.
        receipt: Option<Box<Receipt>>,
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
    /// The replica of a key that a client here should ask: [`Reach::nearest`].
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
    pub fn answer(&mut self, tag: u64, answer: Answer, receipt: Option<Box<Receipt>>) {
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
