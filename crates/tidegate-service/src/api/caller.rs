//! `GET /v1/caller`: the caller as the service knows it, so that a client can tell what it may do.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde::Serialize;
use tidegate_http::caller::{Caller, Role};

/// A caller, as a document.
#[derive(Debug, Serialize)]
struct CallerDocument {
    /// `operator` or `reader`. `null`: nothing is known of it, and it may read.
    role: Option<&'static str>,
    /// Its name in messages and in the journal.
    name: Option<String>,
}

/// Returns the page.
pub(super) fn callers() -> Router {
    Router::new().route("/v1/caller", get(caller))
}

async fn caller(caller: Option<Extension<Caller>>) -> Response {
    let document = match caller {
        Some(Extension(Caller { role, name })) => {
            let role = match role {
                Role::Operator => "operator",
                Role::Reader => "reader",
            };
            CallerDocument { role: Some(role), name: Some(name) }
        }
        None => CallerDocument { role: None, name: None },
    };
    let text = serde_json::to_string(&document).unwrap_or_default() + "\n";
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
