use super::{PLAIN, Spec, client::check_name};
use crate::{Resp, call::Call, number::parse_integer, refusal::Refusal};

pub(super) const HELLO: Spec = Spec {
    name: "hello",
    syntax: "[protover [AUTH username password] [SETNAME clientname]]",
    summary: "Chooses RESP2 or RESP3, and tells about the server.",
    waits: true,
    run,
    is_open: true,
    ..PLAIN
};

/// The release of Redis whose behaviour is followed. Clients look at it to find out what they may send.
pub(super) const REDIS_VERSION: &str = "7.0.15";

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let mut resp = call.connection.state.resp;
    let (mut name, mut user) = (None, None);
    if call.len() > 1 {
        resp = match parse_integer(call.arguments.at(1)) {
            Some(2) => Resp::Two,
            Some(3) => Resp::Three,
            Some(_) => return Err(Refusal("NOPROTO unsupported protocol version".into())),
            None => return Err(Refusal::err("Protocol version is not an integer or out of range")),
        };
        let mut place = 2;
        while place < call.len() {
            let more = call.len() - place - 1;
            if call.arguments.is(place, "AUTH") && more >= 2 {
                user = Some((call.arguments.at(place + 1), call.arguments.at(place + 2)));
                place += 3;
            } else if call.arguments.is(place, "SETNAME") && more >= 1 {
                check_name(call.arguments.at(place + 1))?;
                name = Some(call.arguments.at(place + 1).to_vec());
                place += 2;
            } else {
                let option: String = call.text(place).chars().take(128).collect();
                return Err(Refusal::err(format_args!(
                    "Syntax error in HELLO option '{option}'"
                )));
            }
        }
    }
    match user {
        Some((user, password)) => call.connection.authenticate(user, password, call.backend)?,
        None if !call.connection.is_authenticated() => {
            return Err(Refusal(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be \
                 used to authenticate the client and select the RESP protocol version at the same time"
                    .into(),
            ));
        }
        None => {}
    }
    // Nothing is changed before the whole command is understood.
    call.connection.state.resp = resp;
    if resp == Resp::Two {
        // Receipts cannot be sent on RESP2.
        call.connection.state.receipts = false;
    }
    if let Some(name) = name {
        call.connection.state.name = name;
    }
    reply(call)
}

/// What Redis calls the mode of a server.
pub(super) fn redis_mode(call: &Call<'_>) -> &'static str {
    match call.backend.cluster_mode() {
        true => "cluster",
        false => "standalone",
    }
}

fn reply(call: &mut Call<'_>) -> Result<(), Refusal> {
    let id = call.connection.id();
    let mode = redis_mode(call);
    call.reply(|writer| {
        writer.map(7);
        writer.bulk(b"server");
        writer.bulk(b"turnbuckle");
        writer.bulk(b"version");
        writer.bulk(REDIS_VERSION.as_bytes());
        writer.bulk(b"proto");
        writer.integer(i64::from(writer.resp().number()));
        writer.bulk(b"id");
        writer.integer(id as i64);
        writer.bulk(b"mode");
        writer.bulk(mode.as_bytes());
        writer.bulk(b"role");
        writer.bulk(b"master");
        writer.bulk(b"modules");
        writer.array(0);
    })
}
