use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// A request that is refused: what was wrong, and what would have been right.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) error: String,
    pub(super) expected: Expected,
}

/// The one thing that was expected, or several things of which any would do.
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

    /// A refusal with HTTP status 400: what was asked for is wrong in itself.
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
        let answer = (status, Json(Body { error, expected }));
        match status {
            StatusCode::UNAUTHORIZED => ([(header::WWW_AUTHENTICATE, "Bearer")], answer).into_response(),
            _ => answer.into_response(),
        }
    }
}
