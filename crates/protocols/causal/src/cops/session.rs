use super::{
    message::{Dependencies, Dependency, Request, Response},
    replica::{Cops, CopsConfig},
};
use crate::{
    View,
    wire::{Reader, Writer},
};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use turnbuckle_core::{
    Answer, BadFrame, BadToken, Change, Failure, Hlc, Key, Level, Levels, Micros, Operation, Outcome,
    Receipt, ReplicaId, ServerId, Session, SessionContext, SessionId, SiteId, Topology, VersionId,
};

/// The session of a COPS client.
///
/// Its `context` has the nearest dependencies of its next write: after a write exactly that write, and what was read since. Versions that every site
/// shows are not in it.
///
/// # When the context is full
///
/// A dependency must not be dropped, and a token has at most 64 KiB. If a client reads for long without a write, the context may have no room for
/// another version. Then, before the next read, the session asks the servers which versions of the context every site has by now. As a rule those are
/// all but the ones that were written in the last moments. While a site is unreachable, no new version is at every site. If the context stays full,
/// the read is refused until the client writes something, or the site is back.
///
/// # Moving
///
/// A token carries the context. At the new site the session first asks the server of each key whether the version is visible there. Each server
/// answers when it is, or refuses when the time is up. Only then the client's operation begins. A session that has seen something itself and takes in
/// a token has both contexts, if there is room for both.
pub struct CopsSession {
    home: SiteId,
    topology: Topology,
    max_context_bytes: usize,
    context: BTreeSet<Needed>,
    /// About how many bytes the context takes in a token.
    context_bytes: usize,
    /// The newest time that this client has seen: a timestamp, or the time of a value that it has seen expired.
    seen: Hlc,
    /// Whether the context is that of a token, and not known to be visible here.
    moved: bool,
    /// The key of the operation under way, and whether the operation is a read of several keys.
    key: Key,
    is_list: bool,
    /// How long the operation waited until the context was confirmed.
    confirmed_after: Micros,
    confirming: Option<Confirming>,
}

/// A dependency, in the order of the context.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Needed {
    key: Key,
    at: Hlc,
    replica: ReplicaId,
}

impl From<Dependency> for Needed {
    fn from((key, VersionId { at, replica }): Dependency) -> Needed {
        Needed { key, replica, at }
    }
}

impl From<Needed> for Dependency {
    fn from(Needed { key, replica, at }: Needed) -> Dependency {
        (key, VersionId { at, replica })
    }
}

/// An operation that waits until the versions of the context are confirmed.
struct Confirming {
    operation: Operation,
    level: Level,
    asked: Vec<Needed>,
    open: usize,
    since: Micros,
    trouble: Option<String>,
}

/// The bytes that an entry takes in a token besides its key.
const ENTRY_BYTES: usize = 16;

fn bytes_of(needed: &Needed) -> usize {
    needed.key.0.len() + ENTRY_BYTES
}

impl CopsSession {
    /// The number of versions that this client's next write will depend on.
    pub fn context_len(&self) -> usize {
        self.context.len()
    }

    fn server_of(&self, key: &Key) -> ServerId {
        ServerId {
            site: self.home,
            partition: self.topology.partition_of_slot(key.slot()),
            member: 0,
        }
    }

    fn depend(&mut self, dependency: Needed) {
        let bytes = bytes_of(&dependency);
        if self.context.insert(dependency) {
            self.context_bytes += bytes;
        }
    }

    fn forget(&mut self, dependency: &Needed) {
        if self.context.remove(dependency) {
            self.context_bytes -= bytes_of(dependency);
        }
    }

    /// Whether the context may have no room for the version that the operation reads.
    fn is_full_for(&self, operation: &Operation) -> bool {
        let key = match operation {
            Operation::Get { key, .. } => key,
            Operation::ReadMany { keys, .. } if keys.len() == 1 => &keys[0],
            _ => return false,
        };
        let bytes = self.context_bytes + key.0.len() + ENTRY_BYTES;
        bytes > self.max_context_bytes && !self.context.is_empty()
    }

    /// Takes note of the version that was read. The next write depends on it, unless every site has it.
    fn saw(&mut self, receipt: &Receipt, everywhere: bool, expired: Hlc) {
        let Some(id) = receipt.version.filter(|_| receipt.given != Level::Eventual) else {
            return;
        };
        self.seen = self.seen.max(id.at).max(expired);
        let dependency = (self.key.compact(), id).into();
        match everywhere {
            true => self.forget(&dependency),
            false => self.depend(dependency),
        }
    }

    /// Takes note of the version that was written. It depends on all of the context, unless it was written at level `eventual`.
    fn wrote(&mut self, receipt: &Receipt) {
        if receipt.given == Level::Causal {
            self.context.clear();
            self.context_bytes = 0;
        }
        if let Some(id) = receipt.version {
            self.seen = self.seen.max(id.at);
            self.depend((self.key.compact(), id).into());
        }
    }

    fn confirm(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, operation: Operation, level: Level) {
        let asked: Vec<Needed> = self.context.iter().cloned().collect();
        for (part, version) in asked.iter().enumerate() {
            let (version, waits) = (version.clone().into(), self.moved);
            let server = self.server_of(&asked[part].key);
            cx.ask(tag, part as u32, server, Request::Confirm { version, waits });
        }
        self.confirming = Some(Confirming {
            operation,
            level,
            open: asked.len(),
            asked,
            since: cx.now.monotonic,
            trouble: None,
        });
    }

    fn on_confirmed(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        part: u32,
        outcome: Outcome<Response>,
    ) {
        let Some(mut confirming) = self.confirming.take() else {
            return;
        };
        confirming.open -= 1;
        match outcome {
            Outcome::Answered(Response::Confirmed { everywhere: true }, _) => {
                self.forget(&confirming.asked[part as usize]);
            }
            Outcome::Answered(Response::Refused(why), _) | Outcome::Refused(why) | Outcome::Lost(why) => {
                confirming.trouble = Some(why);
            }
            Outcome::Answered(..) => {}
        }
        if confirming.open > 0 {
            self.confirming = Some(confirming);
            return;
        }
        match confirming.trouble {
            // No server has been asked for the operation itself.
            Some(why) => cx.fail(tag, Failure::Unavailable(why)),
            None if self.is_full_for(&confirming.operation) => {
                let why = format!(
                    "this session has read {} versions since its last write, and some sites do not have all of them yet: the session \
                     cannot remember more",
                    self.context.len()
                );
                self.moved = false;
                cx.fail(tag, Failure::Unavailable(why));
            }
            None => {
                self.moved = false;
                self.confirmed_after = cx.now.monotonic.since(confirming.since);
                self.begin(cx, tag, confirming.operation, confirming.level);
            }
        }
    }

    fn begin(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, operation: Operation, level: Level) {
        let eventual = level == Level::Eventual;
        self.is_list = matches!(operation, Operation::ReadMany { .. });
        let (key, write) = match operation {
            Operation::Get { key, .. } => (key, None),
            Operation::Put {
                key, value, options, ..
            } => (key, Some(Change::new(value, options))),
            Operation::ReadMany { mut keys, .. } if keys.len() == 1 => (keys.remove(0), None),
            Operation::ReadMany { keys, .. } if keys.is_empty() => {
                return cx.answer(tag, Answer::Values(Vec::new()), None);
            }
            Operation::ReadMany { .. } => {
                let why = "cops has no read-only transactions; read the keys one by one";
                return cx.fail(tag, Failure::Unsupported(why.into()));
            }
            Operation::Siblings { .. }
            | Operation::Transact { .. }
            | Operation::Watch { .. }
            | Operation::Scan { .. }
            | Operation::Count
            | Operation::Wait { .. }
            | Operation::Publish { .. }
            | Operation::First(_) => {
                let why = "only the gateway carries this out";
                return cx.fail(tag, Failure::Unsupported(why.into()));
            }
        };
        self.key = key.clone();
        let ours = self.server_of(&key);
        // A read at level eventual depends on nothing, so another site may answer it while the node here is away.
        let server = match write.is_none() && eventual && !cx.reach.is_reached(ours) {
            true => cx.reach.nearest_elsewhere(ours.partition).unwrap_or(ours),
            false => ours,
        };
        let request = match write {
            None => Request::Get {
                key,
                view: View::at(level),
                seen: self.seen,
            },
            Some(change) => {
                let nearest = self.context.iter().filter(|_| !eventual).cloned();
                let nearest = nearest.map(Dependency::from).collect();
                Request::Put {
                    key,
                    change,
                    nearest: Dependencies(nearest),
                    seen: self.seen,
                    eventual,
                }
            }
        };
        cx.ask(tag, 0, server, request);
    }
}

impl Session for CopsSession {
    type Protocol = Cops;
    type Shared = ();
    type Timer = ();

    const LEVELS: Levels = View::LEVELS;

    /// What a write depends on is known when the operation before it is answered. Other sites wait for exactly these versions, which must not be lost
    /// any more: so the session hears no answer before it is durable.
    const OVERLAPS: bool = false;

    fn open(config: &CopsConfig, home: SiteId, topology: Topology, _: SessionId) -> CopsSession {
        CopsSession {
            home,
            topology,
            max_context_bytes: config.max_context_bytes,
            context: BTreeSet::new(),
            context_bytes: 0,
            seen: Hlc::ZERO,
            moved: false,
            key: Key::default(),
            is_list: false,
            confirmed_after: Micros(0),
            confirming: None,
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        if state.is_empty() {
            return Ok(());
        }
        let (seen, context) = read_token(state, &self.topology)?;
        let news: Vec<Needed> = context.difference(&self.context).cloned().collect();
        let bytes = self.context_bytes + news.iter().map(bytes_of).sum::<usize>();
        // The context of one token fits if it is alone.
        if bytes > self.max_context_bytes && !self.context.is_empty() && !news.is_empty() {
            let (mine, theirs, max) = (self.context.len(), context.len(), self.max_context_bytes);
            return Err(BadToken::NoRoom(format!(
                "{mine} versions in this session and {theirs} in the token, {bytes} bytes of at most {max}; write a key first, or use SESSION RESET"
            )));
        }
        // Versions that this session had seen itself are visible here.
        self.moved |= !news.is_empty();
        self.seen = self.seen.max(seen);
        news.into_iter().for_each(|dependency| self.depend(dependency));
        Ok(())
    }

    fn on_operation(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        operation: Operation,
        level: Level,
    ) {
        let eventual = level == Level::Eventual;
        self.confirmed_after = Micros(0);
        let must_confirm = self.moved || self.is_full_for(&operation);
        match must_confirm && !eventual && !self.context.is_empty() {
            true => self.confirm(cx, tag, operation, level),
            false => self.begin(cx, tag, operation, level),
        }
    }

    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        part: u32,
        _: ServerId,
        outcome: Outcome<Response>,
    ) {
        if self.confirming.is_some() {
            return self.on_confirmed(cx, tag, part, outcome);
        }
        let (response, mut receipt) = match outcome {
            Outcome::Answered(response, receipt) => (response, receipt),
            lost => return cx.fail(tag, lost.into_failure().expect("it is not an answer")),
        };
        let answer = match response {
            Response::Value {
                value,
                everywhere,
                expired,
            } => {
                self.saw(&receipt, everywhere, expired);
                match self.is_list {
                    true => Answer::Values(vec![value]),
                    false => Answer::Value(value),
                }
            }
            Response::Written { changed } => {
                self.wrote(&receipt);
                changed.into()
            }
            Response::Nothing {
                changed,
                everywhere,
                expired,
            } => {
                self.saw(&receipt, everywhere, expired);
                changed.into()
            }
            Response::Refused(why) => return cx.fail(tag, Failure::Unavailable(why)),
            Response::Confirmed { .. } => return,
        };
        receipt.waited = receipt.waited + self.confirmed_after;
        cx.answer(tag, answer, Some(receipt));
    }

    fn give_up(&mut self, _: &mut SessionContext<'_, Self>, _: u64) {
        self.confirming = None;
    }

    /// Sites are written by their names, each once: their numbers come from the configuration, which may change.
    fn token(&self, out: &mut BytesMut) {
        if self.seen == Hlc::ZERO {
            return;
        }
        let sites: Vec<ReplicaId> = self.topology.replicas().iter().collect();
        let mut out = Writer(out);
        out.byte(TOKEN).number(self.seen.0).byte(sites.len() as u8);
        for &replica in &sites {
            out.bytes(self.topology.site_name(replica.site()).as_bytes());
        }
        out.count(self.context.len());
        for Needed { key, replica, at } in &self.context {
            out.bytes(key.as_ref()).byte(replica.0 as u8).number(at.0);
        }
    }
}

/// The version of the token's format.
const TOKEN: u8 = 1;

/// The newest timestamp that the token's session has seen, and its context. A site that no longer exists was removed only when all other sites had
/// everything of it.
fn read_token(state: Bytes, topology: &Topology) -> Result<(Hlc, BTreeSet<Needed>), BadFrame> {
    let mut from = Reader::new(state, "the state of a COPS session");
    match from.byte()? {
        TOKEN => {}
        other => return Err(from.bad(format!("version {other}, not {TOKEN}"))),
    }
    let seen = from.hlc()?;
    let mut sites = Vec::new();
    for _ in 0..from.byte()? {
        let name = from.bytes()?;
        let name = std::str::from_utf8(&name).map_err(|_| from.bad("a site's name that is no text"))?;
        sites.push(topology.site_named(name));
    }
    let mut context = BTreeSet::new();
    for _ in 0..from.count()? {
        let (key, place, at) = (from.key()?, from.byte()?, from.hlc()?);
        let site = sites.get(usize::from(place));
        let site = site.ok_or_else(|| from.bad(format!("site {place} of {}", sites.len())))?;
        if let Some(site) = *site {
            let (key, replica) = (key.compact(), ReplicaId::from(site));
            context.insert(Needed { key, replica, at });
        }
    }
    from.end((seen, context))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::steps_of;
    use turnbuckle_core::{Changed, Route, SessionStep};

    fn session(max_context_bytes: usize, state: Option<Bytes>) -> CopsSession {
        let topology = Topology::new(["a", "b"], 1, 1);
        let config = CopsConfig {
            max_context_bytes,
            ..CopsConfig::default()
        };
        let mut session = CopsSession::open(&config, SiteId(0), topology, SessionId(1));
        if let Some(state) = state {
            session.resume(state).expect("it is a token");
        }
        session
    }

    fn operate(session: &mut CopsSession, operation: Operation) -> Vec<SessionStep<CopsSession>> {
        steps_of(Micros(0), |cx| {
            session.on_operation(cx, 1, operation, Level::Causal)
        })
    }

    fn answer(
        session: &mut CopsSession,
        part: u32,
        at: u64,
        given: Level,
        response: Response,
    ) -> Vec<SessionStep<CopsSession>> {
        answer_at(session, Micros(0), part, at, given, response)
    }

    fn answer_at(
        session: &mut CopsSession,
        monotonic: Micros,
        part: u32,
        at: u64,
        given: Level,
        response: Response,
    ) -> Vec<SessionStep<CopsSession>> {
        let replica = ReplicaId(1);
        let server = ServerId::default();
        let receipt = Receipt {
            asked: given.into(),
            given,
            version: Some(VersionId { at: Hlc(at), replica }),
            base: None,
            server,
            route: Route::Local,
            waited: Micros(3),
            staleness: None,
            clock_bound: Micros(0),
            siblings: false,
            until: None,
            decided_at_site: false,
            proof: turnbuckle_core::Proof::Plain,
        };
        let outcome = Outcome::Answered(response, Box::new(receipt));
        steps_of(monotonic, |cx| session.on_response(cx, 1, part, server, outcome))
    }

    fn get(key: &str) -> Operation {
        let (key, level) = (Key::from(key), None);
        Operation::Get { key, level }
    }

    fn put(key: &str, level: Option<Level>) -> Operation {
        Operation::put(Key::from(key), Bytes::new()).at(level)
    }

    fn read(session: &mut CopsSession, key: &str, at: u64, everywhere: bool) {
        operate(session, get(key));
        let value = Some(Bytes::new());
        answer(
            session,
            0,
            at,
            Level::Causal,
            Response::Value {
                value,
                everywhere,
                expired: Hlc::ZERO,
            },
        );
    }

    /// The dependencies that the next write would be sent with.
    fn nearest(session: &mut CopsSession) -> Vec<(String, u64)> {
        let steps = operate(session, put("next", None));
        let [SessionStep::Ask { request, .. }] = &steps[..] else {
            panic!("a write is asked of one server")
        };
        let Request::Put { nearest, .. } = request else {
            panic!("a write is a put")
        };
        let words = nearest.0.iter();
        words.map(|(key, id)| (key.to_string(), id.at.0)).collect()
    }

    #[test]
    fn what_every_site_has_is_not_depended_on() {
        let mut session = session(1000, None);
        read(&mut session, "x", 1, false);
        read(&mut session, "y", 2, true);
        assert_eq!(nearest(&mut session), [("x".into(), 1)]);
        read(&mut session, "x", 1, true);
        assert_eq!((nearest(&mut session).len(), session.context_len()), (0, 0));
        assert_eq!(session.context_bytes, 0);
    }

    #[test]
    fn an_older_version_of_a_key_is_depended_on_as_well() {
        let mut session = session(1000, None);
        read(&mut session, "x", 1, false);
        read(&mut session, "x", 2, false);
        assert_eq!(nearest(&mut session), [("x".into(), 1), ("x".into(), 2)]);
    }

    #[test]
    fn a_write_is_all_that_the_next_depends_on_unless_it_depends_on_nothing_itself() {
        let mut session = session(1000, None);
        read(&mut session, "x", 1, false);
        operate(&mut session, put("e", Some(Level::Eventual)));
        let written = || Response::Written {
            changed: Changed::Made { existed: false },
        };
        answer(&mut session, 0, 2, Level::Eventual, written());
        assert_eq!(nearest(&mut session), [("e".into(), 2), ("x".into(), 1)]);
        answer(&mut session, 0, 3, Level::Causal, written());
        assert_eq!(nearest(&mut session), [("next".into(), 3)]);
    }

    #[test]
    fn a_full_context_is_asked_about_and_nothing_is_dropped_that_some_site_lacks() {
        let mut session = session(2 * (1 + ENTRY_BYTES), None);
        read(&mut session, "x", 1, false);
        read(&mut session, "y", 2, false);
        let asked = operate(&mut session, get("z"));
        assert_eq!(asked.len(), 2, "both are asked about before z is read");
        let confirmed = |everywhere| Response::Confirmed { everywhere };
        answer(&mut session, 0, 1, Level::Causal, confirmed(false));
        let steps = answer(&mut session, 1, 2, Level::Causal, confirmed(false));
        assert!(
            matches!(
                &steps[..],
                [SessionStep::Answer {
                    answer: Answer::Failed(Failure::Unavailable(_)),
                    ..
                }]
            ),
            "no room for z"
        );
        operate(&mut session, get("z"));
        answer(&mut session, 0, 1, Level::Causal, confirmed(true));
        let steps = answer(&mut session, 1, 2, Level::Causal, confirmed(false));
        assert!(matches!(&steps[..], [SessionStep::Ask { .. }]), "now z is read");
        assert_eq!(nearest(&mut session), [("y".into(), 2)]);
    }

    #[test]
    fn a_receipt_says_how_long_the_session_waited_for_its_context() {
        let mut left = session(1000, None);
        read(&mut left, "x", 1, false);
        let mut token = BytesMut::new();
        left.token(&mut token);
        let mut moved = session(1000, Some(token.freeze()));
        let mut waited = |confirmed_at: u64| {
            operate(&mut moved, get("z"));
            if confirmed_at > 0 {
                let confirmed = Response::Confirmed { everywhere: false };
                answer_at(&mut moved, Micros(confirmed_at), 0, 1, Level::Causal, confirmed);
            }
            let (value, everywhere) = (None, false);
            let found = Response::Value {
                value,
                everywhere,
                expired: Hlc::ZERO,
            };
            let steps = answer_at(&mut moved, Micros(60_000), 0, 2, Level::Causal, found);
            let [
                SessionStep::Answer {
                    receipt: Some(receipt),
                    ..
                },
            ] = &steps[..]
            else {
                panic!("the read is answered")
            };
            receipt.waited
        };
        assert_eq!(waited(57_000), Micros(57_003), "and the server's own");
        assert_eq!(waited(0), Micros(3), "the next is confirmed");
    }

    #[test]
    fn what_a_token_knows_is_added_to_the_context_and_confirmed() {
        let mut left = session(1000, None);
        read(&mut left, "x", 1, false);
        let mut token = BytesMut::new();
        left.token(&mut token);
        let token = token.freeze();
        let mut here = session(1000, None);
        read(&mut here, "y", 2, false);
        here.resume(token.clone()).expect("there is room");
        assert_eq!(operate(&mut here, get("z")).len(), 2, "both are confirmed first");
        for part in 0..2 {
            let everywhere = false;
            answer(
                &mut here,
                part,
                1,
                Level::Causal,
                Response::Confirmed { everywhere },
            );
        }
        assert_eq!(nearest(&mut here), [("x".into(), 1), ("y".into(), 2)]);
        here.resume(token.clone()).expect("there is room");
        let steps = operate(&mut here, get("z"));
        let is_get = |step: &SessionStep<CopsSession>| {
            matches!(
                step,
                SessionStep::Ask {
                    request: Request::Get { .. },
                    ..
                }
            )
        };
        assert!(is_get(&steps[0]), "nothing of it was new");

        let mut full = session(20, None);
        read(&mut full, "y", 2, false);
        assert!(matches!(full.resume(token.clone()), Err(BadToken::NoRoom(_))));
        assert_eq!(nearest(&mut full), [("y".into(), 2)], "it is as it was");
        let mut fresh = session(10, None);
        fresh.resume(token).expect("what was a session can be one again");
    }

    #[test]
    fn a_token_carries_the_context_which_is_confirmed_before_anything_else() {
        let mut left = session(1000, None);
        read(&mut left, "x", 1, false);
        let mut token = BytesMut::new();
        left.token(&mut token);
        let token = token.freeze();
        for len in 1..token.len() {
            assert!(session(1000, None).resume(token.slice(..len)).is_err());
        }
        let mut moved = session(1000, Some(token));
        let steps = operate(&mut moved, get("z"));
        let [SessionStep::Ask { request, .. }] = &steps[..] else {
            panic!("one version is to be confirmed")
        };
        assert!(matches!(request, Request::Confirm { waits: true, .. }));
        let refused = Response::Refused("not here".into());
        let steps = answer(&mut moved, 0, 1, Level::Causal, refused);
        assert!(matches!(
            &steps[..],
            [SessionStep::Answer {
                answer: Answer::Failed(_),
                ..
            }]
        ));
        operate(&mut moved, get("z"));
        let everywhere = false;
        let steps = answer(
            &mut moved,
            0,
            1,
            Level::Causal,
            Response::Confirmed { everywhere },
        );
        assert!(matches!(
            &steps[..],
            [SessionStep::Ask {
                request: Request::Get { .. },
                ..
            }]
        ));
    }
}
