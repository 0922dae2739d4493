//! `GET /v1/explain`: the document of `tidegate explain --json`, from the service's own decision journal.
//!
//! A journal may have gigabytes. It is read in a thread apart, one question at a time, for a bounded time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use serde::Deserialize;
use thiserror::Error;
use tidegate_http::problem;
use tidegate_journal::{JournalError, JournalReader};
use tidegate_units::Latency;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::timeout;

use crate::explain::{AskedTime, ExplainError, JournalExplanation, asked_span, explain_journal};

/// The time that an answer may take. An hour of a resource that decides each 100 ms takes about a second.
const LONGEST: Duration = Duration::from_secs(30);

/// The lowest priority of the processor: what serves clients goes before a question.
const PRIORITY: i32 = 19;

/// A question, as in the page's query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplanationQuery {
    /// A consumer or a resource. `None`: all resources.
    name: Option<String>,
    /// The end of the span. `None`: now.
    at: Option<String>,
    /// The length of the span. `None`: an hour.
    since: Option<String>,
}

/// The reasons why there is no explanation.
#[derive(Debug, Error)]
enum QuestionRefusal {
    #[error(
        "this service keeps no decision journal: add \
         `journal = {{ folder = \"/var/lib/tidegate/journal\" }}` to its configuration"
    )]
    NoJournal,
    #[error("this is no question: {0}; write ?name=NAME&at=TIME&since=DURATION")]
    Query(#[from] serde_urlencoded::de::Error),
    #[error("`{key}`: {why}")]
    Value { key: &'static str, why: String },
    #[error(transparent)]
    Explain(#[from] ExplainError),
    #[error("another question is being answered: ask again")]
    Busy,
    #[error("the reading failed: {0}")]
    Failed(#[from] JoinError),
}

impl QuestionRefusal {
    /// Returns the status of the answer, and its code for programs.
    const fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Query(_) | Self::Value { .. } => (StatusCode::BAD_REQUEST, "not-understood"),
            Self::NoJournal => (StatusCode::NOT_FOUND, "no-journal"),
            Self::Explain(ExplainError::Unknown(_)) => (StatusCode::NOT_FOUND, "unknown-name"),
            Self::Explain(ExplainError::Journal(
                JournalError::OutsideRetention { .. } | JournalError::Empty(_),
            )) => (StatusCode::NOT_FOUND, "not-kept"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::Explain(ExplainError::Stopped) => (StatusCode::SERVICE_UNAVAILABLE, "too-long"),
            Self::Explain(ExplainError::Journal(_)) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "unreadable-journal")
            }
            Self::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        }
    }
}

#[derive(Clone)]
struct ExplanationPage {
    journal: Option<PathBuf>,
    /// The permit to read.
    free: Arc<Semaphore>,
}

/// The page, for a service with a decision journal in this folder. `None`: it keeps none.
pub(super) fn explanations(journal: Option<PathBuf>) -> Router {
    let page = ExplanationPage { journal, free: Arc::new(Semaphore::new(1)) };
    Router::new().route("/v1/explain", get(explain)).with_state(page)
}

async fn explain(State(page): State<ExplanationPage>, RawQuery(query): RawQuery) -> Response {
    match answer(&page, query.as_deref().unwrap_or_default()).await {
        Ok(JournalExplanation { explanations, remarks }) => {
            for remark in remarks {
                tracing::warn!("the decision journal: {remark}");
            }
            let mut text = serde_json::to_string(&explanations).unwrap_or_default();
            text.push('\n');
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(refused) => {
            let (status, code) = refused.status();
            problem(status, code, &refused.to_string())
        }
    }
}

/// Stops a reading when its asker is gone, or its time is over.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn answer(page: &ExplanationPage, query: &str) -> Result<JournalExplanation, QuestionRefusal> {
    let ExplanationQuery { name, at, since } = serde_urlencoded::from_str(query)?;
    let folder = page.journal.clone().ok_or(QuestionRefusal::NoJournal)?;
    let at = at.map(|text| text.parse::<AskedTime>()).transpose();
    let at = at.map_err(|why| QuestionRefusal::Value { key: "at", why: why.to_string() })?;
    let since = since.map(|text| text.parse::<Latency>()).transpose();
    let since = since.map_err(|why| QuestionRefusal::Value { key: "since", why: why.to_string() })?;
    let span = asked_span(at, since);
    let permit = Arc::clone(&page.free).try_acquire_owned().map_err(|_| QuestionRefusal::Busy)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let stops = StopOnDrop(Arc::clone(&stopped));
    let reading = tokio::task::spawn_blocking(move || {
        // Until it is done, also when the asker does not wait any more.
        let _permit = permit;
        // Of this thread alone, which does nothing else.
        if let Err(error) = setpriority_process(Some(gettid()), PRIORITY) {
            tracing::warn!("the decision journal is read at the priority of the service: {error}");
        }
        let reader = JournalReader::open(&folder).map_err(ExplainError::from)?;
        explain_journal(&reader, span, name.as_deref(), || !stopped.load(Ordering::Relaxed))
    });
    let outcome = timeout(LONGEST, reading).await.map_err(|_| ExplainError::Stopped);
    drop(stops);
    Ok(outcome???)
}
