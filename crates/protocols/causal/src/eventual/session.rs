use super::{
    message::{Request, Response},
    replica::Eventual,
};
use turnbuckle_core::{Level, Levels, PlainProtocol, PlainRequest, PlainResponse, PlainSession};

/// A client of an eventual keyspace.
pub type EventualSession = PlainSession<Eventual>;

impl PlainProtocol for Eventual {
    const LEVELS: Levels = Levels::of_both(&[Level::Eventual]);
    const OVERLAPS: bool = true;
}

impl From<PlainRequest> for Request {
    fn from(request: PlainRequest) -> Request {
        match request {
            PlainRequest::Get(key, _) => Request::Get(key),
            PlainRequest::Put(key, value, ..) => Request::Put(key, value),
        }
    }
}

impl From<Response> for PlainResponse {
    fn from(response: Response) -> PlainResponse {
        match response {
            Response::Value(value) => PlainResponse::Value(value),
            Response::Written { existed } => PlainResponse::Written { existed },
            Response::Refused(why) => PlainResponse::Refused(why),
        }
    }
}
