//! `GET /v1/explain`: the document of `tidegate explain --json`, from the service's own decision journal.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use tidegate_units::Latency;

use super::journal_desk::{JournalDesk, QuestionRefusal, answer, asked_time};
use crate::explain::{JournalExplanation, asked_span, explain_journal};

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

/// Returns the page.
pub(super) fn explanations(desk: JournalDesk) -> Router {
    Router::new().route("/v1/explain", get(explain)).with_state(desk)
}

async fn explain(State(desk): State<JournalDesk>, RawQuery(query): RawQuery) -> Response {
    let outcome = explanation(&desk, query.as_deref().unwrap_or_default()).await;
    answer(outcome.map(|JournalExplanation { explanations, remarks }| (explanations, remarks)))
}

async fn explanation(desk: &JournalDesk, query: &str) -> Result<JournalExplanation, QuestionRefusal> {
    let form = "?name=NAME&at=TIME&since=DURATION";
    let query = serde_urlencoded::from_str(query);
    let ExplanationQuery { name, at, since } =
        query.map_err(|error| QuestionRefusal::Query { error, form })?;
    desk.folder()?;
    let at = asked_time("at", at)?;
    let since = since.map(|text| text.parse::<Latency>()).transpose();
    let since = since.map_err(|why| QuestionRefusal::Value { key: "since", why: why.to_string() })?;
    let span = asked_span(at, since);
    desk.read(move |reader, goes_on| explain_journal(reader, span, name.as_deref(), goes_on)).await
}
