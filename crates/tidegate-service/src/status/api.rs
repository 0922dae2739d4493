//! The page, for a service that is asked by events.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use tidegate_http::caller::Caller;
use tidegate_http::problem;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::ServiceStatus;
use crate::metrics::{PATIENCE, PacedAnswer, SharedPage};

/// A question about the state of the service.
#[derive(Debug)]
pub struct StatusRequest(oneshot::Sender<ServiceStatus>);

impl StatusRequest {
    /// Answers the question.
    pub fn answer(self, status: ServiceStatus) {
        // The client has gone away: nothing waits any more.
        let _ = self.0.send(status);
    }
}

struct Api<E> {
    events: SyncSender<E>,
    paced: PacedAnswer,
}

/// The page, for an HTTP server: each question becomes an event of the service.
pub fn routes<E: From<StatusRequest> + Send + 'static>(events: SyncSender<E>) -> Router {
    Router::new()
        .route("/v1/status", get(status::<E>))
        .with_state(Arc::new(Api { events, paced: PacedAnswer::default() }))
}

async fn status<E: From<StatusRequest> + Send + 'static>(
    State(api): State<Arc<Api<E>>>,
    caller: Option<Extension<Caller>>,
) -> Response {
    let pretty = async || {
        let status = current_status(&api.events).await?;
        serde_json::to_string_pretty(&status).ok().map(|text| SharedPage::new(text + "\n"))
    };
    match api.paced.next(Caller::is_operator(caller.as_deref()), pretty).await {
        Some(page) => {
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], page.bytes()).into_response()
        }
        None => {
            let why = "the service does not answer: it is stopping, or overloaded";
            problem(StatusCode::SERVICE_UNAVAILABLE, "silent", why)
        }
    }
}

/// Asks the service for its status. `None`: it does not answer.
pub(crate) async fn current_status<E: From<StatusRequest>>(events: &SyncSender<E>) -> Option<ServiceStatus> {
    let (sender, receiver) = oneshot::channel();
    // As with a scrape: a full queue means that the service has enough to do.
    events.try_send(StatusRequest(sender).into()).ok()?;
    timeout(PATIENCE, receiver).await.ok()?.ok()
}
