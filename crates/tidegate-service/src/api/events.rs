//! `GET /v1/events`: the status each second, and decisions that the log is told, as server-sent events.
//!
//! A subscriber that is slow loses events, and is told how many. Nothing waits for a subscriber.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::stream::unfold;
use serde::Deserialize;
use serde_json::json;
use tidegate_control::Decision;
use tidegate_http::caller::Caller;
use tidegate_http::{OpenEndedAnswer, problem};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::status::{ServiceStatus, StatusRequest, current_status};

/// Subscribers at the same time, and as many again that are operators: a quarter of the readers' connections.
pub const MOST_SUBSCRIBERS: usize = 16;

/// The time between two events with the status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Decisions that wait for a subscriber: one of each of two hundred resources.
const WAITING_DECISIONS: usize = 256;

/// Statuses that wait for a subscriber. Each may have hundreds of kilobytes.
const WAITING_STATUSES: usize = 4;

/// The events of a service, for those that subscribe to them.
#[derive(Debug, Clone)]
pub struct EventFeed {
    decisions: Sender<Arc<str>>,
    statuses: Sender<StatusEvent>,
    /// For subscribers that are no operators.
    seats: Arc<Semaphore>,
    operators_seats: Arc<Semaphore>,
    ticking: Arc<AtomicBool>,
}

/// The status of a moment. `None`: the service did not answer.
type StatusEvent = Option<Arc<StatusMoment>>;

/// A status, and its text, which is made once for all that want the whole of it.
#[derive(Debug)]
struct StatusMoment {
    status: ServiceStatus,
    text: OnceLock<String>,
}

impl StatusMoment {
    /// Returns the text for a subscriber. `None`: there is none, although a status always has one.
    fn text(&self, scope: &EventScope) -> Option<String> {
        match &scope.consumers_of {
            None => {
                let text = || serde_json::to_string(&self.status).unwrap_or_default();
                Some(self.text.get_or_init(text).clone())
            }
            Some(resource) => serde_json::to_string(&self.status.with_consumers_of(resource)).ok(),
        }
    }
}

/// The part of the status that a subscriber wants, as in the page's query.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventScope {
    /// The only resource whose consumers are told of. `None`: those of all resources are.
    consumers_of: Option<String>,
}

impl Default for EventFeed {
    fn default() -> Self {
        Self {
            decisions: channel(WAITING_DECISIONS).0,
            statuses: channel(WAITING_STATUSES).0,
            seats: Arc::new(Semaphore::new(MOST_SUBSCRIBERS)),
            operators_seats: Arc::new(Semaphore::new(MOST_SUBSCRIBERS)),
            ticking: Arc::default(),
        }
    }
}

impl EventFeed {
    /// Tells subscribers of a decision, in the words of the log.
    pub(crate) fn tell(&self, decision: &Decision, said: &str) {
        if self.decisions.receiver_count() == 0 {
            return;
        }
        let event = json!({
            "resource": decision.resource,
            "said": said,
            "held": decision.held,
            "dry_run": decision.dry_run,
        });
        // The last subscriber may have left.
        let _ = self.decisions.send(event.to_string().into());
    }

    /// The page, for an HTTP server: each status is a question to the service.
    pub fn routes<E: From<StatusRequest> + Send + 'static>(self, events: SyncSender<E>) -> Router {
        Router::new()
            .route("/v1/events", get(stream::<E>))
            .with_state(Arc::new(EventPage { events, feed: self }))
    }
}

struct EventPage<E> {
    events: SyncSender<E>,
    feed: EventFeed,
}

async fn stream<E: From<StatusRequest> + Send + 'static>(
    State(page): State<Arc<EventPage<E>>>,
    caller: Option<Extension<Caller>>,
    RawQuery(query): RawQuery,
) -> Response {
    let scope = match serde_urlencoded::from_str(&query.unwrap_or_default()) {
        Ok(scope) => scope,
        Err(error) => {
            let why = format!("the request is not understood: {error}; write ?consumers_of=RESOURCE");
            return problem(StatusCode::BAD_REQUEST, "not-understood", &why);
        }
    };
    let is_operator = Caller::is_operator(caller.as_deref());
    let seats = if is_operator { &page.feed.operators_seats } else { &page.feed.seats };
    let Ok(seat) = Arc::clone(seats).try_acquire_owned() else {
        let why = format!("{MOST_SUBSCRIBERS} clients receive events already: end one of them");
        return problem(StatusCode::SERVICE_UNAVAILABLE, "too-many-subscribers", &why);
    };
    let subscriber = Subscriber {
        decisions: page.feed.decisions.subscribe(),
        statuses: page.feed.statuses.subscribe(),
        scope,
        _seat: seat,
    };
    // One thread serves all pages, so that nothing comes between this and the end of the ticks.
    if !page.feed.ticking.swap(true, Ordering::Relaxed) {
        tokio::spawn(tick(page));
    }
    let events = unfold(subscriber, |mut subscriber| async {
        let event = subscriber.next().await?;
        Some((Ok::<_, Infallible>(event), subscriber))
    });
    let mut answer = Sse::new(events).into_response();
    answer.extensions_mut().insert(OpenEndedAnswer);
    // nginx would keep events until a buffer is full.
    answer.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    answer
}

/// Asks for the status as long as there are subscribers.
async fn tick<E: From<StatusRequest>>(page: Arc<EventPage<E>>) {
    let mut ticks = interval_at(Instant::now(), STATUS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if page.feed.statuses.receiver_count() == 0 {
            page.feed.ticking.store(false, Ordering::Relaxed);
            return;
        }
        let status = current_status(&page.events).await;
        let moment = status.map(|status| Arc::new(StatusMoment { status, text: OnceLock::new() }));
        // The last subscriber may have left.
        let _ = page.feed.statuses.send(moment);
    }
}

struct Subscriber {
    decisions: Receiver<Arc<str>>,
    statuses: Receiver<StatusEvent>,
    scope: EventScope,
    _seat: OwnedSemaphorePermit,
}

impl Subscriber {
    /// Waits for the next event.
    async fn next(&mut self) -> Option<Event> {
        Some(tokio::select! {
            biased;
            decision = self.decisions.recv() => match decision {
                Ok(text) => Event::default().event("decision").data(text),
                Err(lost) => lost_events(&lost)?,
            },
            status = self.statuses.recv() => match status {
                Ok(Some(moment)) => Event::default().event("status").data(moment.text(&self.scope)?),
                Ok(None) => Event::default().comment("the service does not answer"),
                Err(lost) => lost_events(&lost)?,
            },
        })
    }
}

fn lost_events(error: &RecvError) -> Option<Event> {
    match error {
        RecvError::Lagged(count) => {
            Some(Event::default().event("lost").data(json!({ "events": count }).to_string()))
        }
        RecvError::Closed => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::thread;

    use axum::body::{Body, BodyDataStream};
    use futures_util::StreamExt;
    use tidegate_http::caller::Role;
    use tidegate_units::ConsumerName;

    use super::*;
    use crate::status::{ByLaw, PromiseCounts, ResourceStatus, ServiceKind};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    fn page(feed: &EventFeed) -> (Arc<EventPage<StatusRequest>>, thread::JoinHandle<()>) {
        let (events, asked) = sync_channel::<StatusRequest>(4);
        let answering = thread::spawn(move || {
            for request in asked {
                request.answer(ServiceStatus::new(ServiceKind::Serve, true, Vec::new()));
            }
        });
        (Arc::new(EventPage { events, feed: feed.clone() }), answering)
    }

    async fn next(body: &mut BodyDataStream) -> String {
        String::from_utf8(body.next().await.unwrap().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_slow_subscriber_is_told_how_many_events_it_lost() {
        let feed = EventFeed::default();
        let (page, answering) = page(&feed);
        runtime().block_on(async {
            let mut body =
                Body::into_data_stream(stream(State(page), None, RawQuery(None)).await.into_body());
            for number in 0..WAITING_DECISIONS + 7 {
                feed.decisions.send(number.to_string().into()).unwrap();
            }
            assert_eq!(next(&mut body).await, "event: lost\ndata: {\"events\":7}\n\n");
            assert_eq!(next(&mut body).await, "event: decision\ndata: 7\n\n");
        });
        answering.join().unwrap();
    }

    #[test]
    fn the_status_comes_until_the_last_subscriber_left() {
        let feed = EventFeed::default();
        let (page, answering) = page(&feed);
        runtime().block_on(async {
            let mut body = Body::into_data_stream(
                stream(State(Arc::clone(&page)), None, RawQuery(None)).await.into_body(),
            );
            for _ in 0..3 {
                let status = next(&mut body).await;
                assert!(status.starts_with("event: status\ndata: {\"version\":1,"), "{status}");
            }
            drop(body);
            while page.feed.ticking.load(Ordering::Relaxed) {
                tokio::time::sleep(STATUS_INTERVAL / 10).await;
            }
        });
        drop(page);
        answering.join().unwrap();
    }

    #[test]
    fn a_subscriber_gets_the_consumers_that_it_asks_for() {
        let consumer = ByLaw::default().status(&ConsumerName::new("backup").unwrap(), false);
        let resource = |name: &str| ResourceStatus {
            name: name.to_owned(),
            present: true,
            errors: None,
            uncounted: Vec::new(),
            throttle_fails: false,
            law: None,
            promise: None,
            decided: None,
            recent: None,
            promises: PromiseCounts { kept: 2, broken: 1, unknown: 0 },
            consumers: vec![consumer.clone(), consumer.clone()],
            consumers_left_out: 1,
            reporters: Vec::new(),
            source: None,
            signal_origin: None,
        };
        let status = ServiceStatus::new(ServiceKind::Serve, true, vec![resource("a"), resource("b")]);
        let moment = StatusMoment { status: status.clone(), text: OnceLock::new() };
        let told = |query: &str| {
            let scope = serde_urlencoded::from_str(query).unwrap();
            serde_json::from_str::<ServiceStatus>(&moment.text(&scope).unwrap()).unwrap()
        };
        assert_eq!(told(""), status);
        let counts = |query: &str| {
            let resources = told(query).resources.into_iter();
            resources.map(|one| (one.consumers.len(), one.consumers_left_out)).collect::<Vec<_>>()
        };
        assert_eq!(counts("consumers_of=b"), [(0, 3), (2, 1)]);
        assert_eq!(counts("consumers_of="), [(0, 3), (0, 3)]);
        assert!(serde_urlencoded::from_str::<EventScope>("consumer=b").is_err());
    }

    #[test]
    fn one_subscriber_more_than_there_are_seats_is_refused() {
        let feed = EventFeed::default();
        let (page, answering) = page(&feed);
        runtime().block_on(async {
            let mut taken = Vec::new();
            for _ in 0..MOST_SUBSCRIBERS {
                taken.push(stream(State(Arc::clone(&page)), None, RawQuery(None)).await);
                assert_eq!(taken.last().unwrap().status(), StatusCode::OK);
            }
            assert_eq!(
                stream(State(Arc::clone(&page)), None, RawQuery(None)).await.status(),
                StatusCode::SERVICE_UNAVAILABLE
            );
            let operator = Caller { role: Role::Operator, name: "uid 0".to_owned() };
            let through = stream(State(Arc::clone(&page)), Some(Extension(operator)), RawQuery(None)).await;
            assert_eq!(through.status(), StatusCode::OK);
            drop(through);
            taken.pop();
            assert_eq!(stream(State(Arc::clone(&page)), None, RawQuery(None)).await.status(), StatusCode::OK);
        });
        drop(page);
        answering.join().unwrap();
    }
}
