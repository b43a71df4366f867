//! Any bytes as a session's token: a token opens if this cluster sealed it for this keyspace, and with what was sealed;
//! a session takes any state or says why not.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use turnbuckle_causal::{
    CausalSpartanXConfig, CausalSpartanXSession, CopsConfig, CopsSession, EventualConfig, EventualSession,
    GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{BadToken, ClusterSecret, Protocol, Session, SiteId, TokenHeader, Topology};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    secret: &'a [u8],
    cluster: &'a str,
    keyspace: &'a str,
    state: &'a [u8],
    /// To be opened as it is.
    token: &'a [u8],
    /// To be opened with a signature that is right.
    signed: &'a [u8],
    change: Option<(u16, u8)>,
}

fuzz_target!(|input: Input| {
    let secret = ClusterSecret::new(input.secret.to_vec());
    let header = TokenHeader {
        cluster: cut(input.cluster),
        keyspace: cut(input.keyspace),
    };
    open(&header, &secret, input.token);
    open(&header, &secret, &sign(&secret, input.signed));
    let longest = [&[TokenHeader::VERSION], input.signed].concat();
    open(&header, &secret, &sign(&secret, &longest));

    let sealed = header.seal(&secret, input.state);
    let opened = header.open(&secret, &sealed);
    if sealed.len() <= TokenHeader::MAX_BYTES {
        assert_eq!(opened, Ok(Bytes::copy_from_slice(input.state)));
    } else {
        assert!(matches!(opened, Err(BadToken::Malformed(_))), "{opened:?}");
    }
    if let Some((at, with)) = input.change
        && with != 0
    {
        let mut changed = sealed.to_vec();
        let at = usize::from(at) % changed.len();
        changed[at] ^= with;
        header
            .open(&secret, &changed)
            .expect_err("a changed token opened");
    }
    session(input.state);
});

/// A name of at most 255 bytes.
fn cut(name: &str) -> String {
    let end = (0..=name.len().min(255))
        .rev()
        .find(|&end| name.is_char_boundary(end));
    name[..end.unwrap_or(0)].to_string()
}

/// The bytes with their signature, found by sealing them: as if they were of an earlier or later release.
fn sign(secret: &ClusterSecret, bytes: &[u8]) -> Vec<u8> {
    let signature = secret.sign(bytes);
    [bytes, &signature[..16]].concat()
}

fn open(header: &TokenHeader, secret: &ClusterSecret, token: &[u8]) {
    match header.open(secret, token) {
        Ok(state) => {
            assert_eq!(header.seal(secret, &state), token);
            session(&state);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn session(state: &[u8]) {
    let state = Bytes::copy_from_slice(state);
    session_of::<EventualSession>(&EventualConfig::default(), &state);
    session_of::<CausalSpartanXSession>(&CausalSpartanXConfig::default(), &state);
    session_of::<GentleRainSession>(&GentleRainConfig::default(), &state);
    session_of::<CopsSession>(&CopsConfig::default(), &state);
}

/// What a session takes, it says again, and takes again.
fn session_of<S: Session>(config: &<S::Protocol as Protocol>::Config, state: &Bytes) {
    let topology = Topology::new(["a", "b"], 3, 1);
    let open = || S::open(config, SiteId(0), topology.clone());
    let mut session = open();
    match session.resume(state.clone()) {
        Ok(()) => {
            let mut token = BytesMut::new();
            session.token(&mut token);
            let token = token.freeze();
            assert!(open().resume(token.clone()).is_ok());
            assert!(session.resume(token).is_ok(), "it knows all of that");
        }
        Err(error) => assert!(!state.is_empty(), "{error}"),
    }
}
