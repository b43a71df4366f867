use super::{
    Admin, Asked, ChangeMembers, Guard, Lead, LinkName, Refusal, SetDelay, Unknown, WanLink, WanView,
    guard::{Ends, LINKS_ROUTE},
    refusal::Expected,
    spread::{adopt, spread},
};
use crate::{metrics::Exposition, status::Status, wan::LinkDelay};
use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Request, State, rejection::BytesRejection},
    http::{Method, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use turnbuckle_core::SiteId;

/// The longest body of a request, in bytes.
const MAX_BODY_BYTES: usize = 16 * 1024;

/// The longest matrix that another node may send, in bytes: 64 sites have 4,032 directions of some 100 bytes each.
const MAX_LINKS_BYTES: usize = 1024 * 1024;

/// How long a request may take once its head has been read. Only its body can be slow.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// All routes, for the refusal of a request that names another one.
const ROUTES: [&str; 11] = [
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /status",
    "GET /wan",
    "POST or PUT /wan {\"from\": \"a\", \"to\": \"b\", \"delay\": \"40ms~4ms\"}",
    "POST /wan/cut {\"from\": \"a\", \"to\": \"b\"}",
    "POST /wan/heal {\"from\": \"a\", \"to\": \"b\"}, or without body for all",
    "PUT /wan/links, which nodes tell each other",
    "POST /lead {\"keyspace\": \"consensus\"}, and \"partition\": 3 for one partition",
    "POST /members {\"keyspace\": \"consensus\", \"replicas_of\": {\"c\": \"voter\"}}: a site or a node, and voter, learner or none; and \"partition\": 3 for one partition",
];

type Body = Result<Bytes, BytesRejection>;

pub(super) fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(async || Json(json!({"healthy": true}))))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route("/wan", get(show_wan).post(set_wan).put(set_wan))
        .route("/lead", post(lead))
        .route("/members", post(members))
        .route("/wan/cut", post(cut))
        .route("/wan/heal", post(heal))
        .route(
            LINKS_ROUTE,
            put(take_over).layer(DefaultBodyLimit::max(MAX_LINKS_BYTES)),
        )
        .fallback(async |method: Method, uri: Uri| no_route(StatusCode::NOT_FOUND, &method, &uri))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            no_route(StatusCode::METHOD_NOT_ALLOWED, &method, &uri)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&admin.guard), guard))
        .with_state(admin)
}

/// Checks what every route requires: the guard lets the request pass, and it takes at most `REQUEST_TIME`.
async fn guard(
    State(guard): State<Arc<Guard>>,
    Extension(ends): Extension<Ends>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    guard.check(&request, ends)?;
    tokio::time::timeout(REQUEST_TIME, next.run(request))
        .await
        .map_err(|_| {
            let expected = format!("a body within {} seconds", REQUEST_TIME.as_secs());
            Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request took too long", expected)
        })
}

fn no_route(status: StatusCode, method: &Method, uri: &Uri) -> Refusal {
    let (method, path): (String, String) = (
        method.as_str().chars().take(20).collect(),
        uri.path().chars().take(100).collect(),
    );
    Refusal {
        status,
        error: format!("there is no {method} {path}"),
        expected: Expected::OneOf(ROUTES.map(str::to_owned).to_vec()),
    }
}

async fn readiness(State(admin): State<Admin>) -> Response {
    let (status, mut body) = match admin.source.readiness() {
        Ok(()) => (StatusCode::OK, json!({"ready": true})),
        Err(reason) => (
            StatusCode::SERVICE_UNAVAILABLE,
            json!({"ready": false, "reason": reason}),
        ),
    };
    let degraded = admin.source.degraded();
    if !degraded.is_empty() {
        body["degraded"] = json!(degraded);
    }
    let missing = admin.source.missing_keyspaces();
    if !missing.is_empty() {
        body["missing_keyspaces"] = json!(missing);
    }
    (status, Json(body)).into_response()
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    let text = admin.metrics.render(&admin.source.status());
    ([(header::CONTENT_TYPE, Exposition::MEDIA_TYPE)], text)
}

async fn status(State(admin): State<Admin>) -> Json<Status> {
    Json(admin.source.status())
}

async fn lead(State(admin): State<Admin>, body: Body) -> Result<Json<Asked>, Refusal> {
    let lead: Lead = decode(&take(body)?, ROUTES[9])?;
    told(admin.source.lead(&lead))
}

async fn members(State(admin): State<Admin>, body: Body) -> Result<Json<Asked>, Refusal> {
    let change: ChangeMembers = decode(&take(body)?, ROUTES[10])?;
    told(admin.source.change_members(&change))
}

fn told(replicas: Result<usize, Unknown>) -> Result<Json<Asked>, Refusal> {
    let replicas =
        replicas.map_err(|unknown| Refusal::bad(format!("found {}", unknown.found), unknown.expected))?;
    Ok(Json(Asked { replicas }))
}

async fn show_wan(State(admin): State<Admin>) -> Json<WanView> {
    Json(WanView::of(&admin.wan))
}

async fn set_wan(State(admin): State<Admin>, body: Body) -> Result<Json<WanView>, Refusal> {
    let SetDelay {
        from,
        to,
        delay,
        both,
    } = decode(&take(body)?, ROUTES[5])?;
    let (from, to) = link(&admin, &from, &to)?;
    let delay: LinkDelay = delay
        .parse()
        .map_err(|_| Refusal::bad(format!("delay: found {delay:?}"), LinkDelay::EXPECTED))?;
    admin.wan.set(from, to, delay);
    if both {
        admin.wan.set(to, from, delay);
    }
    Ok(Json(spread(&admin).await))
}

async fn cut(State(admin): State<Admin>, body: Body) -> Result<Json<WanView>, Refusal> {
    let LinkName { from, to } = decode(&take(body)?, ROUTES[6])?;
    let (from, to) = link(&admin, &from, &to)?;
    admin.wan.cut(from, to);
    Ok(Json(spread(&admin).await))
}

async fn heal(State(admin): State<Admin>, body: Body) -> Result<Json<WanView>, Refusal> {
    let body = take(body)?;
    if body.is_empty() {
        admin.wan.heal_all();
    } else {
        let LinkName { from, to } = decode(&body, ROUTES[7])?;
        let (from, to) = link(&admin, &from, &to)?;
        admin.wan.heal(from, to);
    }
    Ok(Json(spread(&admin).await))
}

async fn take_over(State(admin): State<Admin>, body: Body) -> Result<Json<WanView>, Refusal> {
    let links: Vec<WanLink> = decode(&take(body)?, ROUTES[8])?;
    adopt(&admin.wan, &links);
    Ok(Json(WanView::of(&admin.wan)))
}

/// The body, if it is not too long and has arrived completely.
fn take(body: Body) -> Result<Bytes, Refusal> {
    body.map_err(|rejection| {
        let expected = format!("a body of at most {MAX_BODY_BYTES} bytes");
        Refusal::new(rejection.status(), rejection.body_text(), expected)
    })
}

/// Decodes the body as JSON, whatever its media type is: `curl -d` sends another one.
fn decode<T: DeserializeOwned>(body: &[u8], expected: &str) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad(format!("the body does not fit: {error}"), expected))
}

/// The two sites, if they exist and differ.
fn link(admin: &Admin, from: &str, to: &str) -> Result<(SiteId, SiteId), Refusal> {
    let site = |field: &str, name: &str| {
        admin.wan.site_named(name).ok_or_else(|| {
            let name: String = name.chars().take(64).collect();
            let expected = format!("one of the sites {}", admin.wan.sites().join(", "));
            Refusal::bad(format!("{field}: found {name:?}"), expected)
        })
    };
    let (from_site, to_site) = (site("from", from)?, site("to", to)?);
    if from_site == to_site {
        return Err(Refusal::bad(
            format!("from and to: found {from:?} twice"),
            "two different sites",
        ));
    }
    Ok((from_site, to_site))
}
