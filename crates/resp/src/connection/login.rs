//! The user of a connection, and whether its next command may begin, at a node that has users.
//!
//! A connection is looked up in the users when its first command comes, and again when the users were replaced: at its next command, or at the next
//! message that it hears. Until it authenticates it is the user `default`, if this user needs no password.
use super::Connection;
use crate::channels::By;
use crate::commands::{self, Spec};
use crate::users::{DEFAULT_USER, Denied, PasswordHash, Refused, RefusedFor, Seat, User, UserBook, Users};
use crate::{Arguments, Backend, TooBig, refusal::Refusal};
use std::sync::Arc;

/// After this many wrong passwords a connection is closed.
const MAX_WRONG_PASSWORDS: u32 = 10;

/// The limits of commands before a connection has authenticated: enough for `AUTH` and `HELLO`.
const UNKNOWN_BULK_BYTES: usize = 16 << 10;
const UNKNOWN_FRAME_BYTES: usize = 64 << 10;
const UNKNOWN_ARGUMENTS: usize = 32;

/// The state of a connection to a node that has users.
#[derive(Debug)]
pub(super) struct Login {
    book: Arc<UserBook>,
    /// The generation of the users in which the session was looked up; 0 if it was not.
    generation: u64,
    session: Option<Session>,
    /// How many wrong passwords have come.
    wrong_passwords: u32,
    /// Whether the decoder has the limits of a connection that has not authenticated.
    is_limited: bool,
}

/// A user that uses the connection.
#[derive(Debug)]
struct Session {
    user: Arc<User>,
    /// The password by which it has authenticated; `None` if the user needs none.
    password: Option<PasswordHash>,
    seat: Seat,
}

/// What the new users mean for a connection.
enum Renewed {
    /// The user has the same rights, or there is no user.
    Same,
    /// The user has other rights.
    Changed,
    /// The user may not use the connection any more.
    Gone,
}

/// Why there is no user.
enum NoUser {
    /// It has to authenticate.
    NoAuth,
    /// `default` has its most connections.
    Full(u64),
}

impl Login {
    pub(super) fn new(book: Arc<UserBook>) -> Login {
        Login {
            book,
            generation: 0,
            session: None,
            wrong_passwords: 0,
            is_limited: false,
        }
    }

    /// Looks the user up in the users of now.
    fn renew(&mut self) -> Renewed {
        self.generation = self.book.generation();
        let Some(session) = &mut self.session else {
            return Renewed::Same;
        };
        let users = self.book.users();
        let user = users.get(&session.user.name).filter(|user| {
            let is_known = match &session.password {
                Some(password) => user.passwords.contains(password),
                None => user.anybody,
            };
            user.enabled && is_known
        });
        match user {
            Some(user) if *user == session.user => Renewed::Same,
            Some(user) => {
                session.user = Arc::clone(user);
                Renewed::Changed
            }
            None => Renewed::Gone,
        }
    }

    /// The user of the connection. If it has none, it becomes `default`, if that needs no password.
    fn session(&mut self) -> Result<&Session, NoUser> {
        if self.session.is_none() {
            let users = self.book.users();
            let user = users
                .get(DEFAULT_USER)
                .filter(|user| user.anybody && user.enabled)
                .ok_or(NoUser::NoAuth)?;
            let seat = self.book.sit(DEFAULT_USER, user.connections);
            let most = user.connections.unwrap_or(u64::MAX);
            self.session = Some(Session {
                user: Arc::clone(user),
                password: None,
                seat: seat.ok_or(NoUser::Full(most))?,
            });
        }
        self.session.as_ref().ok_or(NoUser::NoAuth)
    }
}

fn no_auth() -> Refusal {
    Refusal("NOAUTH Authentication required.".into())
}

fn too_many_connections(user: &str, most: u64) -> Refusal {
    Refusal(format!(
        "TOOMANY User {user} has {most} connections to this node, and may have no more (connections)"
    ))
}

impl Connection {
    /// The same connection, at a node that has users.
    #[must_use]
    pub fn with_users(mut self, book: Arc<UserBook>) -> Connection {
        self.login = Some(Box::new(Login::new(book)));
        self
    }

    /// The name of its user.
    pub(crate) fn user(&self) -> &str {
        let session = self.login.as_ref().and_then(|login| login.session.as_ref());
        session.map_or(DEFAULT_USER, |session| &session.user.name)
    }

    /// The users of the node, if it has users.
    pub(crate) fn users(&self) -> Option<Arc<Users>> {
        self.login.as_ref().map(|login| login.book.users())
    }

    /// Whether it may send commands: it has authenticated, or the node does not ask for that.
    pub(crate) fn is_authenticated(&mut self) -> bool {
        self.login.as_mut().is_none_or(|login| login.session().is_ok())
    }

    /// Gives the decoder the limits of the next command, at a node that has users.
    pub(super) fn limit_decoder(&mut self) {
        let Some(login) = &mut self.login else {
            return;
        };
        let is_limited = login.session().is_err();
        if is_limited == std::mem::replace(&mut login.is_limited, is_limited) {
            return;
        }
        let mut limits = self.greeting.limits;
        if is_limited {
            limits.max_bulk_bytes = limits.max_bulk_bytes.min(UNKNOWN_BULK_BYTES);
            limits.max_frame_bytes = limits.max_frame_bytes.min(UNKNOWN_FRAME_BYTES);
            limits.max_arguments = limits.max_arguments.min(UNKNOWN_ARGUMENTS);
        }
        self.decoder.limit(limits);
    }

    /// The refusal of a command that was too big. A connection that has not authenticated is told no more than that.
    pub(super) fn too_big_for_user(&mut self, why: TooBig, backend: &mut dyn Backend) -> Refusal {
        if !self.login.as_ref().is_some_and(|login| login.is_limited) {
            return self.too_big(why);
        }
        self.last_place = None;
        self.note_refused(RefusedFor::NoAuth, None, None, backend);
        no_auth()
    }

    /// Becomes `default` again.
    pub(crate) fn log_out(&mut self) {
        if let Some(login) = &mut self.login {
            login.session = None;
        }
    }

    /// Checks a name and a password, and becomes this user. A node without users has `default` only, which may have any password.
    pub(crate) fn authenticate(
        &mut self,
        name: &[u8],
        password: &[u8],
        backend: &mut dyn Backend,
    ) -> Result<(), Refusal> {
        let wrong = || Refusal("WRONGPASS invalid username-password pair or user is disabled.".into());
        let Some(login) = &mut self.login else {
            return match name == DEFAULT_USER.as_bytes() {
                true => Ok(()),
                false => Err(wrong()),
            };
        };
        let generation = login.book.generation();
        let users = login.book.users();
        let Some((user, password)) = users.authenticate(name, password) else {
            login.wrong_passwords += 1;
            let is_over = login.wrong_passwords >= MAX_WRONG_PASSWORDS;
            self.note_refused(RefusedFor::WrongPassword, Some(name), None, backend);
            if is_over {
                self.end();
            }
            return Err(wrong());
        };
        let was = login
            .session
            .take()
            .filter(|session| session.user.name == user.name);
        let seat = was.map(|session| session.seat);
        let Some(seat) = seat.or_else(|| login.book.sit(&user.name, user.connections)) else {
            let most = user.connections.unwrap_or(u64::MAX);
            self.note_refused(RefusedFor::Connections, Some(name), None, backend);
            return Err(too_many_connections(&user.name, most));
        };
        login.session = Some(Session { user, password, seat });
        (login.generation, login.wrong_passwords) = (generation, 0);
        // It is about what the user before has read.
        self.state.receipt = None;
        Ok(())
    }

    /// Whether a command may begin, as far as its user is concerned. `None` if there is no such command.
    pub(super) fn guard(
        &mut self,
        spec: Option<&'static Spec>,
        arguments: &Arguments,
        is_repeated: bool,
        backend: &mut dyn Backend,
    ) -> Result<(), Refusal> {
        let Some(login) = &mut self.login else {
            return Ok(());
        };
        if login.generation != login.book.generation() {
            self.renew(backend)?;
        }
        if spec.is_some_and(|spec| spec.is_open) || commands::is_http(arguments.at(0)) {
            return Ok(());
        }
        let Some(login) = &mut self.login else {
            return Ok(());
        };
        let keyspace = &self.state.keyspace;
        let session = match login.session() {
            Ok(session) => session,
            Err(NoUser::NoAuth) => {
                self.note_refused(RefusedFor::NoAuth, None, None, backend);
                return Err(no_auth());
            }
            Err(NoUser::Full(most)) => {
                self.note_refused(RefusedFor::Connections, None, None, backend);
                return Err(too_many_connections(DEFAULT_USER, most));
            }
        };
        // The operations of a transaction were counted when they came.
        let is_end = spec.is_some_and(|spec| matches!(spec.name, "exec" | "discard"));
        if let Some(most) = session
            .user
            .operations_per_second
            .filter(|_| !is_repeated && !is_end)
        {
            let operations = spec.map_or(0, |spec| spec.keys.count(arguments.len())).max(1);
            if !session
                .seat
                .may_begin(operations as u64, most, backend.monotonic_time())
            {
                let refusal = Refusal(format!(
                    "TOOMANY User {} may begin {most} operations in a second at this node (operations_per_second); the command was not carried out, \
                     try again later",
                    session.user.name
                ));
                self.note_refused(RefusedFor::Operations, None, None, backend);
                return Err(refusal);
            }
        }
        let Some(spec) = spec else {
            return Ok(());
        };
        let checked = session.user.check(spec, arguments, keyspace);
        let Err(denied) = checked else {
            return Ok(());
        };
        let refusal = denied.refusal(&session.user.name);
        let key = match denied {
            Denied::Key(place) | Denied::Channel(place) => Some(arguments.at(place)),
            _ => None,
        };
        self.note_refused(denied.reason(), None, key, backend);
        Err(refusal)
    }

    /// Looks the user up in the users of now, if they were replaced.
    fn renew(&mut self, backend: &mut dyn Backend) -> Result<(), Refusal> {
        match self.login.as_mut().map(|login| login.renew()) {
            None | Some(Renewed::Same) => {}
            Some(Renewed::Changed) => self.break_transaction("the rights of the user have changed"),
            Some(Renewed::Gone) => return self.disconnect(backend),
        }
        Ok(())
    }

    /// Whether its user may hear the messages of a channel, or of the channels that match a pattern. If there is no user any more, the connection ends.
    pub(super) fn may_hear(&mut self, by: By, name: &[u8], backend: &mut dyn Backend) -> bool {
        let Some(login) = &self.login else {
            return true;
        };
        if login.generation != login.book.generation() {
            // A message is no command.
            let last_place = self.last_place.take();
            let renewed = self.renew(backend);
            self.last_place = last_place;
            if renewed.is_err() {
                return false;
            }
        }
        let session = self.login.as_mut().map(|login| login.session());
        match session {
            None => true,
            Some(Ok(session)) => session.user.may_hear(by, name),
            Some(Err(_)) => {
                self.end();
                false
            }
        }
    }

    /// Whether its user may access a keyspace.
    pub(crate) fn check_keyspace(&self, keyspace: &str, backend: &mut dyn Backend) -> Result<(), Refusal> {
        if self.may_access(keyspace) {
            return Ok(());
        }
        self.note_refused_in(RefusedFor::Keyspace, None, keyspace, None, backend);
        Err(Denied::Keyspace(keyspace).refusal(self.user()))
    }

    /// The same, without a refusal.
    pub(crate) fn may_access(&self, keyspace: &str) -> bool {
        let session = self.login.as_ref().and_then(|login| login.session.as_ref());
        session.is_none_or(|session| session.user.may_access(keyspace))
    }

    /// Its user was removed or disabled, or has another password. A user without a password may still authenticate as another one. A connection that
    /// listens ends all the same: it would wait for messages that never come.
    fn disconnect(&mut self, backend: &mut dyn Backend) -> Result<(), Refusal> {
        self.note_refused(RefusedFor::NoAuth, None, None, backend);
        let session = self.login.as_mut().and_then(|login| login.session.take());
        let has_password = session.is_some_and(|session| session.password.is_some());
        match has_password || self.is_listening() {
            true => self.end(),
            false => self.break_transaction("the user has to authenticate"),
        }
        Err(no_auth())
    }

    /// As in Redis, an `EXEC` that its user may not run ends the transaction: none of its commands is carried out.
    pub(super) fn end_transaction(&mut self, refusal: Refusal) -> Refusal {
        match self.last_command == "exec" && self.state.transaction.take().is_some() {
            true => {
                self.state.watched = Default::default();
                Refusal(format!(
                    "EXECABORT Transaction discarded because of: {}",
                    refusal.0
                ))
            }
            false => refusal,
        }
    }

    fn break_transaction(&mut self, why: &str) {
        if let Some(queue) = &mut self.state.transaction {
            queue.break_by(&Refusal(format!("NOPERM {why}")));
        }
    }

    fn note_refused(
        &self,
        why: RefusedFor,
        user: Option<&[u8]>,
        key: Option<&[u8]>,
        backend: &mut dyn Backend,
    ) {
        self.note_refused_in(why, user, &self.state.keyspace, key, backend);
    }

    fn note_refused_in(
        &self,
        why: RefusedFor,
        user: Option<&[u8]>,
        keyspace: &str,
        key: Option<&[u8]>,
        backend: &mut dyn Backend,
    ) {
        backend.note_refused(&Refused {
            why,
            client: &self.greeting.peer,
            user: user.unwrap_or(self.user().as_bytes()),
            command: self.last_place.map_or("", |_| self.last_command),
            keyspace,
            key,
        });
    }
}
