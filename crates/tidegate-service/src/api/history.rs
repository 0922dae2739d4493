//! `GET /v1/history`: the figures of one resource over a span of time, from the service's own decision
//! journal.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use tidegate_units::{ConsumerName, ResourceName};

use super::journal_desk::{JournalDesk, QuestionRefusal, answer, asked_time};
use crate::history::{
    HistoryConsumers, HistorySpan, JournalHistory, MOST_CONSUMERS, MOST_POINTS, read_history,
};

const FORM: &str = "?resource=NAME&from=TIME&to=TIME&points=NUMBER&consumers=NUMBER&consumer=NAME";

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
    /// The number of consumers, those with the most requests. `None`: none.
    consumers: Option<usize>,
    /// The only consumer. `None`: those that `consumers` says.
    consumer: Option<ConsumerName>,
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
    let HistoryQuery { resource, from, to, points, consumers, consumer } =
        query.map_err(|error| QuestionRefusal::Query { error, form: FORM })?;
    desk.folder()?;
    let (from, to) = (asked_time("from", from)?, asked_time("to", to)?);
    let points = points.unwrap_or(MOST_POINTS);
    if !(1..=MOST_POINTS).contains(&points) {
        let why = format!("a history has 1 to {MOST_POINTS} points");
        return Err(QuestionRefusal::Value { key: "points", why });
    }
    let consumers = match (consumer, consumers) {
        (Some(name), _) => HistoryConsumers::One(name),
        (None, None | Some(0)) => HistoryConsumers::None,
        (None, Some(most)) if most <= MOST_CONSUMERS => HistoryConsumers::Busiest(most),
        (None, Some(_)) => {
            let why = format!("a history tells of at most {MOST_CONSUMERS} consumers");
            return Err(QuestionRefusal::Value { key: "consumers", why });
        }
    };
    let span = HistorySpan::asked(from, to, points).ok_or_else(|| {
        let why = "the span ends before it begins: give a time before `to`".to_owned();
        QuestionRefusal::Value { key: "from", why }
    })?;
    desk.read(move |reader, goes_on| read_history(reader, &resource, span, consumers, goes_on)).await
}
