//! The broker over HTTP.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use axum::Router;
use axum::body::Bytes as Body;
use axum::extract::{Path, RawPathParams, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tidegate_http::{HttpListener, HttpServer, ServerNames, StaticPage, TokenAdmission, TokenRefused};
use tidegate_placement::{PlaceError, PlacementConfigError};
use tidegate_units::{Instant, NameError, ResourceName};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::broker::{Broker, BrokerError, DeviceSensor};
use crate::catalogue::{Catalogue, CatalogueError};
use crate::config::BrokerConfig;
use crate::name::{NoRandom, ObjectName, ObjectNameError, TransferId, TransferIdError};
use crate::sensor_reports::DeviceSample;
use crate::sensor_reports::ReportError;
use crate::wire::{ApiProblem, TransferEnd, one_line};

/// The greatest number of objects, or of transfers, in one answer.
const PAGE: usize = 1_000;

/// The time in which a sensor has to answer; one that does not is left out. It reads small files of the
/// kernel, and asks for the free space.
const SENSING: Duration = Duration::from_secs(1);

/// The time for which hanging threads are waited for at the end.
const LEAVING: Duration = Duration::from_secs(1);

/// The description of this interface for other programs.
const OPENAPI: &str = include_str!("../../../docs/transfers.openapi.json");

/// The dashboard: a page that asks the others, as any other client does. Its sources are in `dashboard/` at
/// the root of the repository, and `scripts/dashboard` builds it.
static DASHBOARD: StaticPage =
    StaticPage::new(include_bytes!("dashboard/index.html"), include_str!("dashboard/policy.txt"));

/// The reason why a broker ends.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Its catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// Its configuration is wrong.
    #[error(transparent)]
    Placement(#[from] PlacementConfigError),
    /// Its address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// There are no random numbers for its tokens.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
    /// The system failed.
    #[error("the broker cannot go on: {0}")]
    System(#[from] io::Error),
}

/// Runs a broker until SIGTERM or SIGINT, with the sensors that measure the devices of its nodes. `ready` is
/// called once it answers, or once it stands by for another broker.
///
/// # Errors
/// When it cannot begin.
pub fn serve(
    config: &BrokerConfig,
    sensors: BTreeMap<ResourceName, Box<dyn DeviceSensor>>,
    mut ready: impl FnMut(),
) -> Result<(), ServeError> {
    if config.site.as_ref().is_some_and(|site| site.standby) {
        ready();
    }
    let catalogue = match &config.site {
        Some(site) => Catalogue::open_at_site(&config.state, site)?,
        None => Catalogue::open(&config.state)?,
    };
    let broker = Broker::new(config, catalogue, Instant::ZERO)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(config, broker, sensors, ready));
    // A sensor may hang for ever.
    runtime.shutdown_timeout(LEAVING);
    outcome
}

async fn run(
    config: &BrokerConfig,
    broker: Broker,
    sensors: BTreeMap<ResourceName, Box<dyn DeviceSensor>>,
    mut ready: impl FnMut(),
) -> Result<(), ServeError> {
    let api = BrokerApi::new(config, broker)?;
    let listen = |source| ServeError::Listen { address: config.listen, source };
    let listener = match tidegate_sockets::tcp(config.listen) {
        Some(socket) => HttpListener::given_tcp(socket, None).await,
        None => HttpListener::anonymous(config.listen).await,
    };
    let listener = listener.map_err(listen)?;
    let address = listener.address().clone();
    let names = ServerNames::new("`names`", config.names.iter().cloned());
    let server = HttpServer::new(vec![listener], names);
    let admission = api.admission.clone();
    let server = server.with_operators(move |headers| {
        let shown = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        admission.as_ref().is_some_and(|admission| admission.admits(shown, None).is_ok())
    });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    };
    let mut looking = tokio::spawn(look(api.clone(), config.interval, sensors));
    tracing::info!("broker of {} storage nodes on http://{address} ready", config.nodes.len());
    ready();
    let lost = async {
        match (&mut looking).await {
            Ok(Some(error)) => error,
            // The client is told that it is broken.
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        () = server.serve(router(api), stop) => {}
        error = lost => return Err(error.into()),
    }
    looking.abort();
    tracing::info!("stopped; transfers under way go on, and are known again after the next start");
    Ok(())
}

/// Looks at the nodes once in an interval. Ends when the broker is broken, or another has its catalogue.
async fn look(
    api: BrokerApi,
    interval: Duration,
    sensors: BTreeMap<ResourceName, Box<dyn DeviceSensor>>,
) -> Option<CatalogueError> {
    let mut watched: BTreeMap<_, _> =
        sensors.into_iter().map(|(name, sensor)| (name, SensorThread::new(sensor))).collect();
    // What they say now counts from when they were made, and the reading of a catalogue lies between.
    sample(&mut watched, interval).await;
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
    // Two looks at once say nothing: what is late counts from when it is.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let samples = sample(&mut watched, interval).await;
        match api.with(move |broker, now| broker.look(now, &samples)).await {
            Ok(Ok(())) => {}
            Ok(Err(BrokerError::Catalogue(error @ CatalogueError::TakenOver { .. }))) => return Some(error),
            Ok(Err(error)) => tracing::error!("{error}"),
            Err(refused) => {
                tracing::error!("{}", refused.text());
                return None;
            }
        }
    }
}

/// A sensor, and the time when it was last asked.
struct Timed {
    sensor: Box<dyn DeviceSensor>,
    asked: Clock,
}

impl Timed {
    fn sample(&mut self) -> DeviceSample {
        let elapsed = self.asked.elapsed();
        self.asked = Clock::now();
        self.sensor.sample(elapsed)
    }
}

/// A sensor on a thread of its own: if a file system hangs, it does not come back.
struct SensorThread {
    idle: Option<Timed>,
    busy: Option<JoinHandle<(Timed, DeviceSample)>>,
    is_silent: bool,
}

impl SensorThread {
    fn new(sensor: Box<dyn DeviceSensor>) -> Self {
        Self { idle: Some(Timed { sensor, asked: Clock::now() }), busy: None, is_silent: false }
    }

    fn begin(&mut self) {
        if let Some(mut timed) = self.idle.take() {
            self.busy = Some(tokio::task::spawn_blocking(move || {
                let sample = timed.sample();
                (timed, sample)
            }));
        }
    }

    /// Returns its sample, if it comes in time. A sensor that was silent before is not waited for.
    async fn end(&mut self, name: &ResourceName, until: tokio::time::Instant) -> Option<DeviceSample> {
        let until = if self.is_silent { tokio::time::Instant::now() } else { until };
        let outcome = tokio::time::timeout_at(until, self.busy.as_mut()?).await;
        let was_silent = std::mem::replace(&mut self.is_silent, outcome.is_err());
        let Ok(outcome) = outcome else {
            if !was_silent {
                tracing::warn!(
                    "what `sense` of node `{name}` names does not answer: what its transfers say of \
                        themselves is taken for its rates"
                );
            }
            return None;
        };
        self.busy = None;
        // One that panicked is gone.
        let (timed, sample) = outcome.ok()?;
        self.idle = Some(timed);
        // A sample after a silence covers an unknown time.
        (!was_silent).then_some(sample)
    }
}

/// Asks every sensor, and waits for them no longer than an interval, or [`SENSING`]. None of them delays the
/// broker.
async fn sample(
    watched: &mut BTreeMap<ResourceName, SensorThread>,
    interval: Duration,
) -> BTreeMap<ResourceName, DeviceSample> {
    let until = tokio::time::Instant::now() + interval.min(SENSING);
    watched.values_mut().for_each(SensorThread::begin);
    let mut samples = BTreeMap::new();
    for (name, watched) in watched {
        if let Some(sample) = watched.end(name, until).await {
            samples.insert(name.clone(), sample);
        }
    }
    samples
}

#[derive(Clone)]
struct BrokerApi {
    broker: Arc<Mutex<Broker>>,
    origin: Clock,
    /// The tokens that are admitted; `None`: every client is.
    admission: Option<Arc<TokenAdmission>>,
}

impl BrokerApi {
    fn new(config: &BrokerConfig, broker: Broker) -> Result<Self, NoRandom> {
        let nodes = config.nodes.iter();
        let nodes = nodes.filter_map(|node| Some((&node.config.name, node.agent_token.as_ref()?)));
        let admission = config.token.as_ref().map(|token| TokenAdmission::new(token, nodes)).transpose()?;
        Ok(Self {
            broker: Arc::new(Mutex::new(broker)),
            origin: Clock::now(),
            admission: admission.map(Arc::new),
        })
    }

    /// Checks that a request is admitted, by the token it shows.
    fn admit(&self, headers: &HeaderMap, reports: Option<&ResourceName>) -> Result<(), RequestRefusal> {
        let Some(admission) = &self.admission else { return Ok(()) };
        let shown = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        admission.admits(shown, reports).map_err(|refused| match refused {
            TokenRefused::Missing => RequestRefusal::NoToken,
            TokenRefused::Other => RequestRefusal::OtherToken,
        })
    }

    /// Runs a question to the broker on a thread of its own. It may write to its catalogue, and all
    /// connections share one thread.
    async fn with<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Broker, Instant) -> T + Send + 'static,
    ) -> Result<T, RequestRefusal> {
        let api = self.clone();
        let asked = tokio::task::spawn_blocking(move || {
            // Where a question ended in the middle of a change, nothing can be relied on any more.
            let mut broker = api.broker.lock().map_err(|_| RequestRefusal::Broken)?;
            let now = Instant::ZERO + api.origin.elapsed();
            Ok(ask(&mut broker, now))
        });
        asked.await.map_err(|_| RequestRefusal::Broken)?
    }
}

/// The reason why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum RequestRefusal {
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error("this is not understood: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Name(#[from] ObjectNameError),
    #[error(transparent)]
    Node(#[from] NameError),
    #[error(transparent)]
    Id(#[from] TransferIdError),
    #[error("`{0}` is not understood here: write `?after=NAME&limit=NUMBER`")]
    Query(String),
    #[error("there is no such page: /v1/openapi.json describes those that there are")]
    NoPage,
    #[error(
        "this broker answers only clients that show its token (`Authorization: Bearer TOKEN`): give \
            `--token-file FILE` or TIDEGATE_TOKEN_FILE, \
         of an agent `broker_token_file`"
    )]
    NoToken,
    #[error(
        "the token that was shown is not one for this: compare its file with the broker's `token_file`, or \
            `agent_token_file` of the node"
    )]
    OtherToken,
    #[error("the broker is broken: restart it")]
    Broken,
}

impl RequestRefusal {
    /// Returns the reason for a client. It may quote the client's text, which is as long as a body may be.
    pub(crate) fn text(&self) -> String {
        one_line(&self.to_string())
    }

    const fn code(&self) -> &'static str {
        match self {
            Self::Broker(error) => error.code(),
            Self::Json(_) | Self::Name(_) | Self::Node(_) | Self::Id(_) | Self::Query(_) => "not-understood",
            Self::NoPage => "no-page",
            Self::NoToken | Self::OtherToken => "unauthorized",
            Self::Broken => "broken",
        }
    }

    const fn status(&self) -> StatusCode {
        match self {
            Self::Json(_) | Self::Name(_) | Self::Node(_) | Self::Id(_) | Self::Query(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::NoPage => StatusCode::NOT_FOUND,
            Self::NoToken | Self::OtherToken => StatusCode::UNAUTHORIZED,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Broker(error) => match error {
                BrokerError::NoSize
                | BrokerError::NoName
                | BrokerError::Unbelievable(_)
                | BrokerError::Report(ReportError::Run | ReportError::Unbelievable { .. })
                | BrokerError::Place(PlaceError::NoRate) => StatusCode::BAD_REQUEST,
                BrokerError::NoObject(_) | BrokerError::Place(PlaceError::Unknown(_)) => {
                    StatusCode::NOT_FOUND
                }
                BrokerError::Gone => StatusCode::GONE,
                BrokerError::BeingWritten(_)
                | BrokerError::Taken
                | BrokerError::Otherwise { .. }
                | BrokerError::Report(_)
                | BrokerError::Catalogue(CatalogueError::Duplicate(_))
                | BrokerError::Place(PlaceError::NoReplica) => StatusCode::CONFLICT,
                BrokerError::TooMany(_) | BrokerError::Place(PlaceError::QueueFull(_)) => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                BrokerError::Place(_) => StatusCode::UNPROCESSABLE_ENTITY,
                BrokerError::Catalogue(CatalogueError::Full(_)) => StatusCode::INSUFFICIENT_STORAGE,
                BrokerError::Catalogue(CatalogueError::Away { .. } | CatalogueError::TakenOver { .. }) => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                BrokerError::Catalogue(_) => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }
}

impl IntoResponse for RequestRefusal {
    fn into_response(self) -> Response {
        let problem = ApiProblem { error: self.text(), code: self.code().to_owned() };
        let mut response = json(self.status(), &problem);
        if response.status() == StatusCode::UNAUTHORIZED {
            // RFC 9110 §11.6.1, RFC 6750 §3.
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

fn json(status: StatusCode, document: &impl Serialize) -> Response {
    // Documents of plain fields: they can always be written.
    let text = serde_json::to_string(document).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}

type ApiAnswer = Result<Response, RequestRefusal>;

pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, RequestRefusal> {
    Ok(serde_json::from_slice(body)?)
}

/// Returns the routes in three groups: for all, for sensors, and for clients with the broker's token.
fn routes() -> [Vec<(&'static str, MethodRouter<BrokerApi>)>; 3] {
    let to_all = vec![("/v1/openapi.json", get(openapi))];
    let of_sensors = vec![("/v1/nodes/{name}/report", post(report))];
    let others = vec![
        ("/v1/place", post(place)),
        ("/v1/transfers", get(transfers)),
        ("/v1/transfers/{id}", get(reservation).put(place_named)),
        ("/v1/transfers/{id}/progress", post(progress)),
        ("/v1/transfers/{id}/stored", post(stored)),
        ("/v1/transfers/{id}/end", post(end)),
        ("/v1/objects", get(objects)),
        ("/v1/objects/{name}", get(object).delete(remove)),
        ("/v1/nodes", get(nodes)),
        ("/v1/nodes/{name}/peak", post(peak)),
    ];
    [to_all, of_sensors, others]
}

fn router(api: BrokerApi) -> Router {
    let of = |routes: Vec<(&'static str, MethodRouter<BrokerApi>)>| {
        routes.into_iter().fold(Router::new(), |router, (path, route)| router.route(path, route))
    };
    let [to_all, of_sensors, others] = routes().map(of);
    let of_sensors = of_sensors.layer(middleware::from_fn_with_state(api.clone(), may_report));
    let others = others.fallback(async || RequestRefusal::NoPage);
    let others = others.layer(middleware::from_fn_with_state(api.clone(), may_ask));
    let all = to_all.merge(of_sensors).merge(others).merge(DASHBOARD.router());
    all.with_state(api)
}

/// Admits requests with the broker's token.
async fn may_ask(State(api): State<BrokerApi>, request: Request, next: Next) -> ApiAnswer {
    api.admit(request.headers(), None)?;
    Ok(next.run(request).await)
}

/// Admits requests with the broker's token, or with that of the node.
async fn may_report(
    State(api): State<BrokerApi>,
    path: RawPathParams,
    request: Request,
    next: Next,
) -> ApiAnswer {
    let node = path.iter().find(|(key, _)| *key == "name").and_then(|(_, name)| ResourceName::new(name).ok());
    api.admit(request.headers(), node.as_ref())?;
    Ok(next.run(request).await)
}

async fn place(State(api): State<BrokerApi>, body: Body) -> ApiAnswer {
    let id = TransferId::fresh().map_err(|_| RequestRefusal::Broken)?;
    place_as(&api, id, &body).await
}

/// Places a transfer under an id that the client chose: a client that did not hear the answer asks again.
async fn place_named(State(api): State<BrokerApi>, Path(id): Path<String>, body: Body) -> ApiAnswer {
    place_as(&api, id.parse()?, &body).await
}

async fn place_as(api: &BrokerApi, id: TransferId, body: &[u8]) -> ApiAnswer {
    let wish = read(body)?;
    let reservation = api.with(move |broker, now| broker.place(now, id.as_str(), wish)).await??;
    let status = if reservation.granted.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(json(status, &reservation))
}

async fn reservation(State(api): State<BrokerApi>, Path(id): Path<String>) -> ApiAnswer {
    let reservation = api.with(move |broker, now| broker.reservation(now, &id)).await??;
    Ok(json(StatusCode::OK, &reservation))
}

async fn progress(State(api): State<BrokerApi>, Path(id): Path<String>, body: Body) -> ApiAnswer {
    let moved = read(&body)?;
    api.with(move |broker, now| broker.progress(now, &id, moved)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn stored(State(api): State<BrokerApi>, Path(id): Path<String>, body: Body) -> ApiAnswer {
    let stored = read(&body)?;
    api.with(move |broker, now| broker.stored(now, &id, stored)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn end(State(api): State<BrokerApi>, Path(id): Path<String>, body: Body) -> ApiAnswer {
    let end: TransferEnd = if body.is_empty() { TransferEnd::default() } else { read(&body)? };
    api.with(move |broker, now| broker.end(now, &id, &end)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn objects(State(api): State<BrokerApi>, RawQuery(query): RawQuery) -> ApiAnswer {
    let (mut after, mut most) = (None, PAGE);
    for pair in query.as_deref().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let wrong = || RequestRefusal::Query(pair.chars().take(100).collect());
        match pair.split_once('=') {
            Some(("after", name)) => after = Some(ObjectName::new(name)?),
            Some(("limit", number)) => {
                let number: usize = number.parse().map_err(|_| wrong())?;
                most = number.clamp(1, PAGE);
            }
            _ => return Err(wrong()),
        }
    }
    let objects = api.with(move |broker, _| broker.objects(after.as_ref(), most)).await?;
    Ok(json(StatusCode::OK, &objects))
}

async fn object(State(api): State<BrokerApi>, Path(name): Path<String>) -> ApiAnswer {
    let name = ObjectName::new(&name)?;
    let object = api.with(move |broker, _| broker.object(&name)).await??;
    Ok(json(StatusCode::OK, &object))
}

async fn remove(State(api): State<BrokerApi>, Path(name): Path<String>) -> ApiAnswer {
    let name = ObjectName::new(&name)?;
    let object = api.with(move |broker, _| broker.remove(&name)).await??;
    Ok(json(StatusCode::OK, &object))
}

async fn report(State(api): State<BrokerApi>, Path(name): Path<String>, body: Body) -> ApiAnswer {
    let (node, report) = (ResourceName::new(&name)?, read(&body)?);
    api.with(move |broker, now| broker.report(now, &node, report)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn peak(State(api): State<BrokerApi>, Path(name): Path<String>, body: Body) -> ApiAnswer {
    let (node, probed) = (ResourceName::new(&name)?, read(&body)?);
    let peaks = api.with(move |broker, _| broker.probed(&node, probed)).await??;
    Ok(json(StatusCode::OK, &peaks))
}

async fn nodes(State(api): State<BrokerApi>) -> ApiAnswer {
    let nodes = api.with(|broker, now| broker.nodes(now)).await?;
    Ok(json(StatusCode::OK, &nodes))
}

async fn transfers(State(api): State<BrokerApi>) -> ApiAnswer {
    let transfers = api.with(|broker, now| broker.transfers(now, PAGE)).await?;
    Ok(json(StatusCode::OK, &transfers))
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

#[cfg(test)]
mod tests;
