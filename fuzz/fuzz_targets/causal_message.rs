//! What replicas and sessions of causal keyspaces say to each other: any bytes are a message or an error, and what was understood is
//! written as it was read.
#![no_main]
use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use turnbuckle_causal::{cops, stable};
use turnbuckle_core::{Vector, Wire};

fn there_and_back<T: Wire + PartialEq + std::fmt::Debug>(bytes: &Bytes) {
    let Ok(message) = T::decode(bytes.clone()) else {
        return;
    };
    message.newest();
    let mut out = BytesMut::new();
    message.encode(&mut out);
    assert_eq!(T::decode(out.freeze()).as_ref(), Ok(&message));
}

fuzz_target!(|bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    there_and_back::<Vector>(&bytes);
    there_and_back::<stable::Request>(&bytes);
    there_and_back::<stable::Response>(&bytes);
    there_and_back::<stable::Message<stable::Slice>>(&bytes);
    there_and_back::<cops::Request>(&bytes);
    there_and_back::<cops::Response>(&bytes);
    there_and_back::<cops::Message>(&bytes);
    there_and_back::<cops::Dependencies>(&bytes);
});
