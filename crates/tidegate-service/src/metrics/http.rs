//! `/metrics` and `/healthz` over HTTP, and what else a service has to say, in a thread of its own.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use thiserror::Error;
use tidegate_http::{HttpRefusals, HttpServer, ServerNames};
use tokio::sync::oneshot;

use super::paced::PacedAnswer;

/// The longest time that a client waits for the service. It is less than Prometheus' own 10 s, so that a
/// scrape gets an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A request for the exposition. The service answers it, or drops it when it cannot.
pub type ScrapeRequest = oneshot::Sender<String>;

/// The reason why metrics are not served.
#[derive(Debug, Error)]
#[error("cannot serve metrics on {address}: {source}")]
pub struct MetricsError {
    address: SocketAddr,
    source: io::Error,
}

/// The HTTP server. It ends with the process: it holds nothing that would have to be put in order.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    refusals: Arc<HttpRefusals>,
}

impl MetricsServer {
    /// Binds the address and begins to serve; each scrape becomes an event of the service. `more` are its
    /// other pages.
    ///
    /// # Errors
    /// The system's answer: the address cannot be bound, or no thread is left.
    pub fn start<E>(address: SocketAddr, events: SyncSender<E>, more: Router) -> Result<Self, MetricsError>
    where
        E: From<ScrapeRequest> + Send + 'static,
    {
        let fail = |source| MetricsError { address, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let server = runtime.block_on(HttpServer::bind(address, ServerNames::new([]))).map_err(fail)?;
        let (address, refusals) = (server.address(), server.refusals());
        let body = move || runtime.block_on(server.serve(routes(events).merge(more), pending()));
        thread::Builder::new().name("tidegate-http".to_owned()).spawn(body).map_err(fail)?;
        Ok(Self { address, refusals })
    }

    /// Returns the address that it listens on, with the real port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters of connections that it refused.
    pub fn refusals(&self) -> Arc<HttpRefusals> {
        Arc::clone(&self.refusals)
    }
}

/// The exposition, made by the service: one at a time, for all scrapes that wait for it.
struct Expositions<E> {
    events: SyncSender<E>,
    paced: PacedAnswer,
}

impl<E: From<ScrapeRequest>> Expositions<E> {
    async fn next(&self) -> Option<Arc<str>> {
        self.paced.next(async || exposition(&self.events).await).await
    }
}

fn routes<E: From<ScrapeRequest> + Send + 'static>(events: SyncSender<E>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::<E>))
        .route("/healthz", get(healthz::<E>))
        .fallback(elsewhere)
        .with_state(Arc::new(Expositions { events, paced: PacedAnswer::default() }))
}

async fn metrics<E: From<ScrapeRequest> + Send + 'static>(
    State(expositions): State<Arc<Expositions<E>>>,
) -> impl IntoResponse {
    match expositions.next().await {
        Some(text) => (StatusCode::OK, [(header::CONTENT_TYPE, OPEN_METRICS)], text.to_string()),
        None => unavailable(),
    }
}

async fn healthz<E: From<ScrapeRequest> + Send + 'static>(
    State(expositions): State<Arc<Expositions<E>>>,
) -> impl IntoResponse {
    match expositions.next().await {
        Some(_) => (StatusCode::OK, [(header::CONTENT_TYPE, PLAIN)], "ok\n".to_owned()),
        None => unavailable(),
    }
}

async fn elsewhere() -> impl IntoResponse {
    let pages = "There are the pages /metrics, /healthz and /v1/status here, and of a gateway /v1/admit\n";
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, PLAIN)], pages)
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn unavailable() -> (StatusCode, [(header::HeaderName, &'static str); 1], String) {
    let why = "the service does not answer: it is stopping, or overloaded\n".to_owned();
    (StatusCode::SERVICE_UNAVAILABLE, [(header::CONTENT_TYPE, PLAIN)], why)
}

async fn exposition<E: From<ScrapeRequest>>(events: &SyncSender<E>) -> Option<Arc<str>> {
    let (sender, receiver) = oneshot::channel();
    // A full queue means more scrapes than the service answers: refuse this one rather than wait behind them.
    events.try_send(sender.into()).ok()?;
    tokio::time::timeout(PATIENCE, receiver).await.ok()?.ok().map(Into::into)
}
