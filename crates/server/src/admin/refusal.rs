use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// A request that is not carried out: what was wrong, and what would have been right.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) error: String,
    pub(super) expected: Expected,
}

/// One thing, or any of several.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Expected {
    One(String),
    OneOf(Vec<String>),
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: impl Into<String>, expected: impl Into<String>) -> Refusal {
        Refusal {
            status,
            error: error.into(),
            expected: Expected::One(expected.into()),
        }
    }

    /// What was asked for is wrong in itself.
    pub(super) fn bad(error: impl Into<String>, expected: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, error, expected)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
            expected: Expected,
        }
        let Refusal {
            status,
            error,
            expected,
        } = self;
        (status, Json(Body { error, expected })).into_response()
    }
}
