//! Questions to the service's own decision journal.
//!
//! A journal may have gigabytes. It is read in a thread apart, one question at a time, for a bounded time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use serde::Serialize;
use thiserror::Error;
use tidegate_http::problem;
use tidegate_journal::{JournalError, JournalReader};
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::timeout;

use crate::explain::{AskedTime, ExplainError, NoTime};

/// The time that an answer may take. An hour of a resource that decides each 100 ms takes about a second.
const LONGEST: Duration = Duration::from_secs(30);

/// The lowest priority of the processor: what serves clients goes before a question.
const PRIORITY: i32 = 19;

/// The reasons why there is no answer from the journal.
#[derive(Debug, Error)]
pub(super) enum QuestionRefusal {
    #[error(
        "this service keeps no decision journal: add \
         `journal = {{ folder = \"/var/lib/tidegate/journal\" }}` to its configuration"
    )]
    NoJournal,
    #[error("this is no question: {error}; write {form}")]
    Query { error: serde_urlencoded::de::Error, form: &'static str },
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
            Self::Query { .. } | Self::Value { .. } => (StatusCode::BAD_REQUEST, "not-understood"),
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

/// Reads a time of a query.
pub(super) fn asked_time(
    key: &'static str,
    text: Option<String>,
) -> Result<Option<AskedTime>, QuestionRefusal> {
    let time = text.map(|text| text.parse::<AskedTime>()).transpose();
    time.map_err(|why: NoTime| QuestionRefusal::Value { key, why: why.to_string() })
}

/// The one place that reads the journal for callers.
#[derive(Debug, Clone)]
pub(super) struct JournalDesk {
    journal: Option<PathBuf>,
    /// The permit to read.
    free: Arc<Semaphore>,
}

/// Stops a reading when its asker is gone, or its time is over.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl JournalDesk {
    /// Reads the journal in this folder. `None`: the service keeps none.
    pub(super) fn new(journal: Option<PathBuf>) -> Self {
        Self { journal, free: Arc::new(Semaphore::new(1)) }
    }

    /// The folder of the journal.
    pub(super) fn folder(&self) -> Result<&Path, QuestionRefusal> {
        self.journal.as_deref().ok_or(QuestionRefusal::NoJournal)
    }

    /// Reads the journal, as long as the function it passes on says so.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&JournalReader, &dyn Fn() -> bool) -> Result<T, ExplainError> + Send + 'static,
    ) -> Result<T, QuestionRefusal> {
        let folder = self.folder()?.to_owned();
        let permit = Arc::clone(&self.free).try_acquire_owned().map_err(|_| QuestionRefusal::Busy)?;
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
            read(&reader, &|| !stopped.load(Ordering::Relaxed))
        });
        let outcome = timeout(LONGEST, reading).await.map_err(|_| ExplainError::Stopped);
        drop(stops);
        Ok(outcome???)
    }
}

/// Answers with a document, and logs the parts of the journal that could not be read.
pub(super) fn answer(outcome: Result<(impl Serialize, Vec<String>), QuestionRefusal>) -> Response {
    match outcome {
        Ok((document, remarks)) => {
            for remark in remarks {
                tracing::warn!("the decision journal: {remark}");
            }
            let mut text = serde_json::to_string(&document).unwrap_or_default();
            text.push('\n');
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(refused) => {
            let (status, code) = refused.status();
            problem(status, code, &refused.to_string())
        }
    }
}
