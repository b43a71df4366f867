//! What waits in a lane until it can be handled.
use turnbuckle_core::{Key, Micros, Protocol, RequestId, ServerId};

/// A request on its way to a replica.
pub(crate) struct Question<P: Protocol> {
    pub id: RequestId,
    pub request: P::Request,
    pub since: Option<Micros>,
}

/// An input that waits for keys from disk, or until peers were heard.
pub(crate) enum Waiting<P: Protocol> {
    Question(Question<P>),
    Message { from: ServerId, message: P::Message },
    Timer { keys: Vec<Key>, timer: P::Timer },
}

impl<P: Protocol> Waiting<P> {
    /// The keys that the input names now.
    pub fn keys(&self, protocol: &P) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut each = |key: &Key| keys.push(key.clone());
        match self {
            Waiting::Question(question) => protocol.keys(&question.request, &mut each),
            Waiting::Message { from, message } => protocol.message_keys(*from, message, &mut each),
            Waiting::Timer { keys, .. } => return keys.clone(),
        }
        keys
    }
}
