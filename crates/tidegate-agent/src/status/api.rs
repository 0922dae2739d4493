//! The page, for a service that is asked by events.

use std::sync::mpsc::SyncSender;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Status;
use crate::metrics::PATIENCE;

/// Somebody wants to know how the service stands.
#[derive(Debug)]
pub(crate) struct Asked(oneshot::Sender<Status>);

impl Asked {
    pub(crate) fn answer(self, status: Status) {
        // Nobody waits any more when the client has gone away.
        let _ = self.0.send(status);
    }
}

pub(crate) fn routes<E: From<Asked> + Send + 'static>(events: SyncSender<E>) -> Router {
    Router::new().route("/v1/status", get(status::<E>)).with_state(events)
}

async fn status<E: From<Asked> + Send + 'static>(State(events): State<SyncSender<E>>) -> Response {
    let answered = match ask(&events).await {
        Some(status) => serde_json::to_string_pretty(&status).map(|text| (StatusCode::OK, text)),
        None => {
            let why = "the service does not answer: it is stopping, or overloaded";
            let said = serde_json::to_string_pretty(&serde_json::json!({ "error": why }));
            said.map(|text| (StatusCode::SERVICE_UNAVAILABLE, text))
        }
    };
    let (code, text) = answered.unwrap_or_else(|error| {
        (StatusCode::INTERNAL_SERVER_ERROR, serde_json::json!({ "error": error.to_string() }).to_string())
    });
    (code, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}

async fn ask<E: From<Asked>>(events: &SyncSender<E>) -> Option<Status> {
    let (sender, receiver) = oneshot::channel();
    // As with a scrape: a full queue means that the service has enough to do.
    events.try_send(Asked(sender).into()).ok()?;
    timeout(PATIENCE, receiver).await.ok()?.ok()
}
