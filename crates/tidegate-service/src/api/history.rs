//! `GET /v1/history`: the figures of one resource over a span of time, from the service's own decision
//! journal.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use tidegate_units::ResourceName;

use super::journal_desk::{JournalDesk, QuestionRefusal, answer, asked_time};
use crate::history::{HistorySpan, JournalHistory, MOST_POINTS, read_history};

const FORM: &str = "?resource=NAME&from=TIME&to=TIME&points=NUMBER";

/// A question, as in the page's query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    resource: ResourceName,
    /// The beginning of the span. `None`: an hour before its end.
    from: Option<String>,
    /// The end of the span. `None`: now.
    to: Option<String>,
    /// The number of parts of the span. `None`: as many as there may be.
    points: Option<usize>,
}

/// Returns the page.
pub(super) fn histories(desk: JournalDesk) -> Router {
    Router::new().route("/v1/history", get(history)).with_state(desk)
}

async fn history(State(desk): State<JournalDesk>, RawQuery(query): RawQuery) -> Response {
    let outcome = read(&desk, query.as_deref().unwrap_or_default()).await;
    answer(outcome.map(|JournalHistory { history, remarks }| (history, remarks)))
}

async fn read(desk: &JournalDesk, query: &str) -> Result<JournalHistory, QuestionRefusal> {
    let query = serde_urlencoded::from_str(query);
    let HistoryQuery { resource, from, to, points } =
        query.map_err(|error| QuestionRefusal::Query { error, form: FORM })?;
    desk.folder()?;
    let (from, to) = (asked_time("from", from)?, asked_time("to", to)?);
    let points = points.unwrap_or(MOST_POINTS);
    if !(1..=MOST_POINTS).contains(&points) {
        let why = format!("a history has 1 to {MOST_POINTS} points");
        return Err(QuestionRefusal::Value { key: "points", why });
    }
    let span = HistorySpan::asked(from, to, points).ok_or_else(|| {
        let why = "the span ends before it begins: give a time before `to`".to_owned();
        QuestionRefusal::Value { key: "from", why }
    })?;
    desk.read(move |reader, goes_on| read_history(reader, &resource, span, goes_on)).await
}
