//! `/metrics` and `/healthz` over HTTP.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use tidegate_http::caller::Caller;
use tokio::sync::oneshot;

use super::format::MetricsFormat;
use super::paced::{PacedAnswer, SharedPage};

/// The longest time that a client waits for the service. It is less than Prometheus' own 10 s, so that a
/// scrape gets an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A request for the exposition. The service answers it, or drops it when it cannot.
pub type ScrapeRequest = oneshot::Sender<String>;

/// The exposition, made by the service: one at a time, for all scrapes that wait for it.
struct Expositions<E> {
    events: SyncSender<E>,
    paced: PacedAnswer,
}

impl<E: From<ScrapeRequest>> Expositions<E> {
    async fn next(&self, caller: Option<&Caller>) -> Option<Arc<SharedPage>> {
        self.paced.next(Caller::is_operator(caller), async || exposition(&self.events).await).await
    }
}

/// The pages, for an HTTP server: each scrape becomes an event of the service.
pub fn routes<E: From<ScrapeRequest> + Send + 'static>(events: SyncSender<E>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::<E>))
        .route("/healthz", get(healthz::<E>))
        .fallback(elsewhere)
        .with_state(Arc::new(Expositions { events, paced: PacedAnswer::default() }))
}

async fn metrics<E: From<ScrapeRequest> + Send + 'static>(
    State(expositions): State<Arc<Expositions<E>>>,
    caller: Option<Extension<Caller>>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let accepted: Vec<_> =
        headers.get_all(header::ACCEPT).iter().filter_map(|one| one.to_str().ok()).collect();
    let format = MetricsFormat::accepted(&accepted.join(","));
    match expositions.next(caller.as_deref()).await {
        Some(page) => (StatusCode::OK, [(header::CONTENT_TYPE, format.content_type())], format.page(&page)),
        None => unavailable(),
    }
}

async fn healthz<E: From<ScrapeRequest> + Send + 'static>(
    State(expositions): State<Arc<Expositions<E>>>,
    caller: Option<Extension<Caller>>,
) -> impl IntoResponse {
    match expositions.next(caller.as_deref()).await {
        Some(_) => (StatusCode::OK, [(header::CONTENT_TYPE, PLAIN)], Bytes::from_static(b"ok\n")),
        None => unavailable(),
    }
}

async fn elsewhere() -> impl IntoResponse {
    let pages =
        "There are the pages /, /metrics, /healthz and /v1/status here; /v1/openapi.json describes the API\n";
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, PLAIN)], pages)
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn unavailable() -> (StatusCode, [(header::HeaderName, &'static str); 1], Bytes) {
    let why = "the service does not answer: it is stopping, or overloaded\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(header::CONTENT_TYPE, PLAIN)], Bytes::from_static(why.as_bytes()))
}

async fn exposition<E: From<ScrapeRequest>>(events: &SyncSender<E>) -> Option<Arc<SharedPage>> {
    let (sender, receiver) = oneshot::channel();
    // A full queue means more scrapes than the service answers: refuse this one rather than wait behind them.
    events.try_send(sender.into()).ok()?;
    tokio::time::timeout(PATIENCE, receiver).await.ok()?.ok().map(SharedPage::new)
}
