use super::message::step_decides;
use super::{Get, Put, Request, Response, Rotx, Rules, TimedReplica, Work};
use crate::{
    View,
    wire::{Reader, Writer},
};
use bytes::{Bytes, BytesMut};
use std::marker::PhantomData;
use turnbuckle_core::{
    Answer, BadFrame, BadToken, Change, Failure, Hlc, Key, Level, Levels, Operation, Outcome, ReplicaId,
    ServerId, Session, SessionContext, SessionId, SiteId, Topology, Vector,
};

/// The session of a client: Algorithm 5.1, and the client's side of 5.4.
///
/// `past` is DS_c: for each site, the newest version of it that this client has read or written, with all that those depend on.
/// `stable` is DSV_c, the newest DSV it has heard of. GentleRain's DT_c and GST_c are the same with one number each.
///
/// # Moving
///
/// A token carries the past alone. What was stable at another site says nothing about this one: a server here that took it as its own DSV would show
/// versions without what they depend on. Until a server here has answered, and so has covered the past, each request names the past and waits for it
/// there. Afterwards DSV_c covers it. A session that has seen something itself and takes in a token has both pasts, and waits in the same way.
///
/// # Values that expire
///
/// `seen` is the newest time that this client has seen: a timestamp, or the time of a value that it has seen expired. A server looks at values that expire no
/// earlier than that, whatever its own clock shows, and stamps what the client writes above it. So the client never sees an expired value again, and neither
/// does a client that reads what it wrote then. It is a number beside the vectors: no version of that time need exist, so nothing waits for one.
///
/// # A site of which a node is away
///
/// If a key's server at the home site cannot be reached, the session asks another site, as a client does that moves there. Each request names the
/// past and waits until that site covers it. Afterwards requests at home wait for what was seen there. While a node of the home site is away,
/// nothing new becomes stable there. So a session that has seen more than that uses other sites until the node is back.
///
/// Other sites cannot have everything that a session may have seen: what was written at the home site and not stable when the node went away becomes stable
/// nowhere until the node is back. So once another site has refused a session, the session stays at home until all nodes are reached again, and is
/// refused at once what the missing node has. In GentleRain GST stands still at every site while one node is away, so its sessions never go. A read at
/// level `eventual` depends on nothing, and always goes.
pub struct TimedSession<R> {
    home: SiteId,
    topology: Topology,
    past: Vector,
    stable: Vector,
    seen: Hlc,
    /// Whether the past is that of a token, and no server here has covered it yet.
    moved: bool,
    /// Another site has refused what the session asked while a node of the home site was away.
    refused_elsewhere: bool,
    /// A planted bug.
    token_has_stable: bool,
    rules: PhantomData<fn() -> R>,
}

impl<R> TimedSession<R> {
    /// The server that is asked about these keys: the first one's, at home or at a site that can answer.
    fn server_of(&self, cx: &SessionContext<'_, Self>, keys: &[Key], eventual: bool) -> ServerId
    where
        R: Rules,
    {
        let at_home = self.at_home(&keys[0]);
        let is_away = |server| !cx.reach.is_reached(server);
        let may_go = eventual || (!R::SCALAR && !self.refused_elsewhere);
        let mut others = keys[1..].iter().map(|key| self.at_home(key));
        if may_go && (is_away(at_home) || others.any(is_away) || (self.moved && self.lacks_a_node(cx))) {
            return cx.reach.nearest_elsewhere(at_home.partition).unwrap_or(at_home);
        }
        at_home
    }

    /// The server of a key at the home site.
    fn at_home(&self, key: &Key) -> ServerId {
        ServerId {
            site: self.home,
            partition: self.topology.partition_of_slot(key.slot()),
            member: 0,
        }
    }

    /// Whether a node of the home site cannot be reached.
    fn lacks_a_node(&self, cx: &SessionContext<'_, Self>) -> bool
    where
        R: Rules,
    {
        let mut servers = (0..self.topology.partitions()).map(|partition| ServerId {
            site: self.home,
            partition,
            member: 0,
        });
        servers.any(|server| !cx.reach.is_reached(server))
    }

    /// What must be at the server before the request is carried out: the past, if the session has moved or if `always`.
    fn need(&self, eventual: bool, always: bool) -> Vector {
        match (self.moved || always) && !eventual {
            true => self.past.clone(),
            false => Vector::ZERO,
        }
    }

    fn put(&self, work: Work, server: ServerId, has_moved: bool, eventual: bool) -> Request
    where
        R: Rules,
    {
        Request::Put(Put {
            work,
            past: if eventual { Vector::ZERO } else { self.past.clone() },
            stable: if R::SCALAR {
                self.stable_at(server)
            } else {
                Vector::ZERO
            },
            seen: if eventual { Hlc::ZERO } else { self.seen },
            moved: has_moved && !eventual,
            eventual,
        })
    }

    /// What is stable at home says nothing about another site.
    fn stable_at(&self, server: ServerId) -> Vector {
        match server.site == self.home {
            true => self.stable.clone(),
            false => Vector::ZERO,
        }
    }

    /// Algorithm 5.1, lines 4-5 and 10. A server that answers at another level than `eventual` has covered the past, so the past is stable here.
    fn saw(&mut self, server: ServerId, (past, stable, expired): (&Vector, &Vector, Hlc), given: Level) {
        self.seen = self.seen.max(past.newest());
        if given != Level::Eventual {
            self.seen = self.seen.max(expired);
        }
        if server.site != self.home {
            // It may not be at home yet.
            self.moved |= !self.stable.covers(past);
            return self.past.merge(past);
        }
        if self.moved && given != Level::Eventual {
            self.stable.merge(&self.past);
            self.moved = false;
        }
        self.past.merge(past);
        self.stable.merge(stable);
    }
}

impl<R: Rules> Session for TimedSession<R> {
    type Protocol = TimedReplica<R>;
    type Shared = ();
    type Timer = ();

    const LEVELS: Levels = View::LEVELS;

    /// What a write depends on is known when the operation before it is answered, or is a write that has its stamp.
    const OVERLAPS: bool = false;

    fn open(config: &R::Config, home: SiteId, topology: Topology, _: SessionId) -> TimedSession<R> {
        TimedSession {
            home,
            topology,
            moved: false,
            refused_elsewhere: false,
            past: Vector::ZERO,
            stable: Vector::ZERO,
            seen: Hlc::ZERO,
            token_has_stable: R::token_has_stable(config),
            rules: PhantomData,
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        if state.is_empty() {
            return Ok(());
        }
        let (past, stable, seen) = read_token(state, &self.topology)?;
        // Versions that this session had seen itself, it had seen here.
        self.moved |= !self.past.covers(&past) && stable == Vector::ZERO;
        self.past.merge(&past);
        self.stable.merge(&stable);
        self.seen = self.seen.max(past.newest()).max(seen);
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
        self.refused_elsewhere = self.refused_elsewhere && self.lacks_a_node(cx);
        match operation {
            Operation::Get { key, .. } => {
                let server = self.server_of(cx, std::slice::from_ref(&key), eventual);
                let request = Request::Get(Get {
                    stable: self.stable_at(server),
                    need: self.need(eventual, server.site != self.home),
                    seen: self.seen,
                    view: View::at(level),
                    key,
                });
                cx.ask(tag, 0, server, request);
            }
            Operation::Put {
                key, value, options, ..
            } => {
                let change = Change::new(value, options);
                // Nothing orders writes at level `eventual` but the clock of one server. And what is decided at one site is always decided at the same one.
                let server = match eventual || change.decides() {
                    true => self.at_home(&key),
                    false => self.server_of(cx, std::slice::from_ref(&key), false),
                };
                let has_moved = self.moved || server.site != self.home;
                let work = Work::One(key, change);
                let request = self.put(work, server, has_moved, eventual);
                cx.ask(tag, 0, server, request);
            }
            Operation::Transact { transaction, .. } if transaction.conditions.is_empty() => {
                let key = match transaction.key(&self.topology) {
                    Ok(Some(key)) => key,
                    Ok(None) => return cx.answer(tag, Answer::Transacted(Some(Vec::new())), None),
                    Err(failure) => return cx.fail(tag, failure),
                };
                let server = match eventual || transaction.steps.iter().any(step_decides) {
                    true => self.at_home(key),
                    false => self.server_of(cx, std::slice::from_ref(key), false),
                };
                let has_moved = self.moved || server.site != self.home;
                let request = self.put(Work::Many(transaction.steps), server, has_moved, eventual);
                cx.ask(tag, 0, server, request);
            }
            Operation::ReadMany { keys, .. } if keys.is_empty() => {
                cx.answer(tag, Answer::Values(Vec::new()), None);
            }
            Operation::ReadMany { keys, .. } => {
                let server = self.server_of(cx, &keys, eventual);
                let request = Request::Rotx(Rotx {
                    keys,
                    stable: self.stable_at(server),
                    past: self.past.clone(),
                    need: self.need(eventual, R::SCALAR || server.site != self.home),
                    seen: self.seen,
                    view: View::at(level),
                });
                cx.ask(tag, 0, server, request);
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
                cx.fail(tag, Failure::Unsupported(why.into()));
            }
        }
    }

    /// Only the stamp of a write of this client is heard ahead. If the write is lost with the machine, no client was shown it. What depends on the
    /// stamp waits, if it waits for anything, until the partition has promised to be beyond the stamp. It will promise that: its clock goes on above
    /// a bound that is on disk or, in GentleRain, is a raw clock that is never set back. What a read has seen, and what a session that has moved has
    /// waited for, may be from another site and not on disk here. Other replicas would be shown what depends on it.
    fn may_hear_ahead(&self, response: &Response) -> bool {
        let Response::Written { past, stable, .. } = response else {
            return false;
        };
        let mut sites = past.entries().map(|(replica, _)| replica);
        // If one number is used for all sites, it does not say of which site it is. But then an answer that has seen something of another site also says what is stable.
        let is_own = R::SCALAR || sites.all(|replica| replica == ReplicaId::from(self.home));
        !self.moved && *stable == Vector::ZERO && is_own
    }

    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        _: u32,
        server: ServerId,
        outcome: Outcome<Response>,
    ) {
        let (response, receipt) = match outcome {
            Outcome::Answered(response, receipt) => (response, receipt),
            lost => return cx.fail(tag, lost.into_failure().expect("it is not an answer")),
        };
        match response {
            Response::Value {
                value,
                past,
                stable,
                expired,
            } => {
                self.saw(server, (&past, &stable, expired), receipt.given);
                cx.answer(tag, Answer::from(value), Some(receipt));
            }
            Response::Written {
                changed,
                past,
                stable,
                expired,
            } => {
                self.saw(server, (&past, &stable, expired), receipt.given);
                cx.answer(tag, changed.into(), Some(receipt));
            }
            Response::Transacted {
                steps,
                past,
                stable,
                expired,
            } => {
                self.saw(server, (&past, &stable, expired), receipt.given);
                let answers = steps.into_iter().map(Answer::from).collect();
                cx.answer(tag, Answer::Transacted(Some(answers)), Some(receipt));
            }
            Response::Values {
                values,
                past,
                stable,
                expired,
            } => {
                self.saw(server, (&past, &stable, expired), receipt.given);
                cx.answer(tag, Answer::Values(values), Some(receipt));
            }
            Response::Refused(why) if server.site != self.home => {
                self.refused_elsewhere = true;
                let site = self.topology.site_name(server.site);
                let why = format!("site {site} was asked, as a node of this site cannot be reached: {why}");
                cx.fail(tag, Failure::Unavailable(why));
            }
            Response::Refused(why) => cx.fail(tag, Failure::Unavailable(why)),
        }
    }

    /// Sites are written by their names: their numbers come from the configuration, which may change.
    fn token(&self, out: &mut BytesMut) {
        let mut out = Writer(out);
        out.byte(TOKEN);
        let carried = if self.token_has_stable {
            &self.stable
        } else {
            &Vector::ZERO
        };
        for vector in [&self.past, carried] {
            out.byte(vector.entries().count() as u8);
            for (replica, at) in vector.entries() {
                out.bytes(self.topology.site_name(replica.site()).as_bytes())
                    .number(at.0);
            }
        }
        out.number(self.seen.0);
    }
}

/// The version of the token's format. Tokens of version 1 lack the newest time that was seen.
const TOKEN: u8 = 2;

/// The past; if that bug was planted, what was stable; and the newest time that was seen. A site that no longer exists was removed only when all other sites had everything of it.
fn read_token(state: Bytes, topology: &Topology) -> Result<(Vector, Vector, Hlc), BadFrame> {
    let mut from = Reader::new(state, "the state of a causal session");
    let version = from.byte()?;
    if !(1..=TOKEN).contains(&version) {
        return Err(from.bad(format!("version {version}, not 1 or {TOKEN}")));
    }
    let mut vectors = [Vector::ZERO, Vector::ZERO];
    for vector in &mut vectors {
        for _ in 0..from.byte()? {
            let name = from.bytes()?;
            let at = from.hlc()?;
            let name = std::str::from_utf8(&name).map_err(|_| from.bad("a site's name that is no text"))?;
            if let Some(site) = topology.site_named(name) {
                vector.raise(ReplicaId::from(site), at);
            }
        }
    }
    let seen = if version == 1 { Hlc::ZERO } else { from.hlc()? };
    let [past, stable] = vectors;
    from.end((past, stable, seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::steps_of;
    use crate::{CausalSpartanXConfig, CausalSpartanXSession};
    use turnbuckle_core::{Changed, Hlc, Micros, SessionStep};

    fn session() -> CausalSpartanXSession {
        let topology = Topology::new(["a", "b", "c"], 1, 1);
        CausalSpartanXSession::open(
            &CausalSpartanXConfig::default(),
            SiteId(1),
            topology,
            SessionId(1),
        )
    }

    fn seen(entries: &[(u16, u64)]) -> Vector {
        let mut vector = Vector::ZERO;
        for &(replica, at) in entries {
            vector.raise(ReplicaId(replica), Hlc(at));
        }
        vector
    }

    fn token(past: Vector) -> Bytes {
        let mut token = BytesMut::new();
        CausalSpartanXSession { past, ..session() }.token(&mut token);
        token.freeze()
    }

    /// The session's next read.
    fn read(session: &mut CausalSpartanXSession) -> Get {
        let (key, level) = (Key::from("k"), None);
        let get = Operation::Get { key, level };
        let steps = steps_of(Micros(0), |cx| session.on_operation(cx, 1, get, Level::Causal));
        let [
            SessionStep::Ask {
                request: Request::Get(get),
                ..
            },
        ] = &steps[..]
        else {
            panic!("a read asks one server")
        };
        get.clone()
    }

    /// What the session says must be here when it reads.
    fn need(session: &mut CausalSpartanXSession) -> Vector {
        read(session).need
    }

    /// Nothing waits for the time at which a value expired: no version of that time need exist.
    #[test]
    fn what_a_session_has_seen_expired_goes_with_its_token_and_is_not_waited_for() {
        let mut left = session();
        let told = (&seen(&[(1, 7)]), &Vector::ZERO, Hlc(50));
        left.saw(left.at_home(&Key::from("k")), told, Level::Causal);
        assert_eq!(read(&mut left).seen, Hlc(50));
        let mut token = BytesMut::new();
        left.token(&mut token);
        let token = token.freeze();
        let mut moved = session();
        moved.resume(token.clone()).expect("it is a token");
        let get = read(&mut moved);
        assert_eq!((get.seen, get.need), (Hlc(50), seen(&[(1, 7)])));

        let mut old = BytesMut::from(&token[..token.len() - 8]);
        old[0] = 1;
        let mut moved = session();
        moved.resume(old.freeze()).expect("a token of version 1");
        assert_eq!(read(&mut moved).seen, Hlc(7), "that of the version");
    }

    /// What is asked next could be durable, and shown to other clients, before the write that it follows.
    #[test]
    fn only_the_stamp_of_an_own_write_is_heard_before_it_is_durable() {
        let own = seen(&[(1, 7)]);
        let written = |past| Response::Written {
            changed: Changed::Made { existed: true },
            past,
            stable: Vector::ZERO,
            expired: Hlc::ZERO,
        };
        let mut here = session();
        assert!(here.may_hear_ahead(&written(own.clone())));
        let over_another = written(seen(&[(0, 3), (1, 7)]));
        assert!(
            !here.may_hear_ahead(&over_another),
            "a delete of what came from elsewhere"
        );
        let value = Response::Value {
            value: None,
            past: own.clone(),
            stable: Vector::ZERO,
            expired: Hlc::ZERO,
        };
        assert!(!here.may_hear_ahead(&value), "a read");
        here.resume(token(seen(&[(2, 9)]))).expect("it is a token");
        assert!(
            !here.may_hear_ahead(&written(own.clone())),
            "what it waited for came from elsewhere"
        );

        let topology = Topology::new(["a", "b", "c"], 1, 1);
        let rain = crate::GentleRainSession::open(
            &crate::GentleRainConfig::default(),
            SiteId(1),
            topology,
            SessionId(1),
        );
        let number = |at| Vector::filled(1, Hlc(at));
        assert!(rain.may_hear_ahead(&written(number(7))));
        let over_another = Response::Written {
            changed: Changed::Made { existed: true },
            past: number(7),
            stable: number(5),
            expired: Hlc::ZERO,
        };
        assert!(!rain.may_hear_ahead(&over_another));
    }

    #[test]
    fn what_a_token_knows_is_added_to_what_the_session_has_seen_and_waited_for() {
        let mut here = session();
        let server = ServerId {
            site: here.home,
            ..ServerId::default()
        };
        let told = (&seen(&[(0, 7), (1, 5)]), &seen(&[(0, 7)]), Hlc::ZERO);
        here.saw(server, told, Level::Causal);
        assert_eq!(need(&mut here), Vector::ZERO, "it was seen here");
        here.resume(token(seen(&[(0, 6), (1, 5)])))
            .expect("it is a token");
        assert_eq!(need(&mut here), Vector::ZERO, "nothing of it is new");
        here.resume(token(seen(&[(0, 3), (2, 9)])))
            .expect("it is a token");
        assert_eq!(need(&mut here), seen(&[(0, 7), (1, 5), (2, 9)]));
        here.resume(token(seen(&[(2, 4)]))).expect("it is a token");
        let all = need(&mut here);
        assert_eq!(all, seen(&[(0, 7), (1, 5), (2, 9)]), "it still waits");

        let whole = token(seen(&[(0, 99)]));
        for len in 1..whole.len() {
            here.resume(whole.slice(..len))
                .expect_err("a token that is cut short");
        }
        assert_eq!(need(&mut here), all, "and is as it was");
    }
}
