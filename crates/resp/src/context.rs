//! Causal contexts as text, as `SIBLINGS` returns them and `REPLACES` takes them: signed, in base64.
use crate::Backend;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use turnbuckle_core::{DoorId, Key, Vector};

/// The context that covers nothing. It needs no signature.
const NONE: &str = "none";

/// The context of a key as text.
pub(crate) fn text(backend: &dyn Backend, door: DoorId, key: &Key, context: &Vector) -> String {
    match *context == Vector::ZERO {
        true => NONE.to_string(),
        false => URL_SAFE_NO_PAD.encode(backend.seal_context(door, key, context)),
    }
}

/// The context in such a text. `None` if it is something else, or the context of another key.
pub(crate) fn parse(backend: &dyn Backend, door: DoorId, key: &Key, text: &[u8]) -> Option<Vector> {
    if text == NONE.as_bytes() {
        return Some(Vector::ZERO);
    }
    let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
    backend.open_context(door, key, &sealed)
}
