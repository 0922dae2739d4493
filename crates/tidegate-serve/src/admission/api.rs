//! `POST /v1/admit`: whether a pool of the gateway can keep contracts, asked over HTTP.
//!
//! The service knows the pool's model. Measuring it takes longer than the service may wait, and is done in a
//! thread of its own, one question at a time.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Bytes as Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_admission::schedule::StorageModel;
use tidegate_admission::{
    AdmissionRule, DemandError, LoadGenerator, OfferResult, StorageAbility, TenantDemand, TenantDemands,
    WrongCount, decide,
};
use tidegate_gateway::{BackendConfig, GatewayConfig};
use tidegate_http::caller::{Caller, Role};
use tidegate_http::{BearerToken, NoRandom, TokenAdmission};
use tidegate_sim::ScenarioError;
use tidegate_sim::offer::{ConsumerLoad, LoadOffer, OfferStop, TooFew, UnmeasuredReason};
use tidegate_sim::scenario::SizeWeights;
use tidegate_transfer::wire::one_line;
use tidegate_units::{Bytes, ConsumerName, Iops, Latency, ResourceName, Shares};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinError;
use tokio::time::timeout;

use super::AdmissionAnswer;
use tidegate_service::metrics::PATIENCE;

/// The most contracts: measuring takes the longer the more there are.
pub(crate) const MOST_TENANTS: usize = 256;

/// The most requests in each simulation of a question, where it takes more than usual to have enough of every
/// tenant.
const MOST_REQUESTS: u32 = 20_000;

/// The time that a measurement has. Most take less than a second.
const LONGEST: Duration = Duration::from_secs(30);

/// The lowest priority of the processor: what serves clients goes before a question.
const PRIORITY: i32 = 19;

/// The arrival of requests that `tidegate admit` takes by default.
const ARRIVALS: &str = "in-step";

/// A question about the model of a pool.
#[derive(Debug)]
pub(crate) struct ModelOf {
    pub(crate) pool: ResourceName,
    pub(crate) answer: oneshot::Sender<Result<StorageModel, NoModel>>,
}

/// The reasons why there is nothing to measure.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum NoModel {
    #[error("there is no pool `{0}`")]
    NoPool(ResourceName),
    #[error(
        "nothing is known of the storage of pool `{0}`: it is no emulated one. Measure it with `tidegate \
            admit --live`, \
         through an export of it"
    )]
    Real(ResourceName),
}

/// Returns the model of a pool of this configuration.
pub(crate) fn model_of(config: &GatewayConfig, name: &ResourceName) -> Result<StorageModel, NoModel> {
    let Some(pool) = config.pools.iter().find(|pool| pool.name == *name) else {
        return Err(NoModel::NoPool(name.clone()));
    };
    match &pool.backend {
        BackendConfig::Emulated { device, .. } => {
            Ok(StorageModel::new(device.clone(), pool.depth, pool.discipline))
        }
        BackendConfig::File { .. } | BackendConfig::Nbd(_) => Err(NoModel::Real(name.clone())),
    }
}

/// Returns load on a model, as it is judged.
pub(crate) fn offer(model: &StorageModel, loads: Vec<ConsumerLoad>, rule: &AdmissionRule) -> LoadOffer {
    let mut offer = LoadOffer::new(model.device.clone(), loads);
    (offer.host.depth, offer.host.discipline) = (model.depth, model.discipline);
    offer.quantile = rule.quantile();
    offer
}

/// Measures an offer at `scale` times its rates. Some load may have too few requests then, as one with a low
/// rate beside others with high rates. From then on enough requests are sent, up to `most` in each
/// simulation.
///
/// # Errors
/// As [`LoadOffer::measured`], also when more than the limit would be needed.
pub(super) fn measured(
    offer: &mut LoadOffer,
    scale: f64,
    most: u32,
) -> Result<OfferResult, UnmeasuredReason> {
    match offer.measured(scale) {
        Err(UnmeasuredReason::TooFew(few)) => match u32::try_from(few.needed) {
            Ok(needed) if needed > offer.requests && needed <= most => {
                offer.requests = needed;
                offer.measured(scale)
            }
            _ => Err(few.into()),
        },
        done => done,
    }
}

/// A question, in seconds, bytes, and requests per second, as in the answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantQuestion {
    pool: ResourceName,
    tenants: Vec<TenantTerms>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantTerms {
    name: ConsumerName,
    iops: f64,
    size: u64,
    response_time_s: f64,
    #[serde(default)]
    deviation: u64,
    #[serde(default = "everything")]
    read: f64,
    #[serde(default)]
    weight: Option<u32>,
}

fn everything() -> f64 {
    1.0
}

/// The token that questions show, which a reload may change. `None`: the page answers nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct QuestionAccess(Arc<RwLock<Option<TokenAdmission>>>);

impl QuestionAccess {
    /// Accepts this token from now on.
    pub(crate) fn set(&self, token: Option<&BearerToken>) -> Result<(), NoRandom> {
        let admission = token.map(|token| TokenAdmission::new(token, [])).transpose()?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = admission;
        Ok(())
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), QuestionRefusal> {
        let access = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(admission) = &*access else { return Err(QuestionRefusal::Closed) };
        let shown = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        admission.admits(shown, None).map_err(|_| QuestionRefusal::Token)
    }
}

/// The reasons why there is no verdict.
#[derive(Debug, Error)]
pub(crate) enum QuestionRefusal {
    #[error(
        "this page answers only operators, and callers with a token: write `admit = {{ token_file = \"FILE\" }}` into the \
         configuration; `tidegate admit` answers without a service"
    )]
    Closed,
    #[error("show the token of `admit`: `Authorization: Bearer TOKEN`")]
    Token,
    #[error(
        "the measurement took longer than {} s: ask about fewer contracts, or ask `tidegate admit`, which \
            has \
         no limit",
        LONGEST.as_secs()
    )]
    TooLong,
    #[error("this is no question: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0} contracts are too many: at most {MOST_TENANTS}")]
    Many(usize),
    #[error("`{0}`: {1}")]
    Tenant(ConsumerName, &'static str),
    #[error(transparent)]
    Demand(DemandError),
    #[error(transparent)]
    NoModel(#[from] NoModel),
    /// On this storage, not as it is written.
    #[error(transparent)]
    Impossible(DemandError),
    /// There is no time for more.
    #[error(
        "{0}: ask for more of them, or ask `tidegate admit --requests {needed}`", needed = .0.needed
    )]
    TooFew(TooFew),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Count(#[from] WrongCount),
    #[error("the measurement failed: {0}")]
    Failed(#[from] JoinError),
    #[error("another question is being answered: ask again")]
    Busy,
    #[error("the service does not answer: it is stopping, or overloaded")]
    Unavailable,
}

impl QuestionRefusal {
    /// The reason for a client. It may quote what the client sent, which is as long as a body may be.
    pub(crate) fn text(&self) -> String {
        one_line(&self.to_string())
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Json(_) | Self::Many(_) | Self::Tenant(..) | Self::Demand(_) => StatusCode::BAD_REQUEST,
            Self::Closed => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::NoModel(NoModel::NoPool(_)) => StatusCode::NOT_FOUND,
            Self::NoModel(NoModel::Real(_)) => StatusCode::CONFLICT,
            // What the tenants send does not go with this storage; all else about a scenario is the
            // service's.
            Self::Impossible(_) | Self::TooFew(_) | Self::Scenario(ScenarioError::Workload { .. }) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::Busy | Self::Unavailable | Self::TooLong => StatusCode::SERVICE_UNAVAILABLE,
            Self::Scenario(_) | Self::Count(_) | Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<UnmeasuredReason> for QuestionRefusal {
    fn from(error: UnmeasuredReason) -> Self {
        match error {
            UnmeasuredReason::Scenario(error) => error.into(),
            UnmeasuredReason::TooFew(few) => Self::TooFew(few),
        }
    }
}

impl IntoResponse for QuestionRefusal {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Said {
            error: String,
        }
        let said = serde_json::to_string_pretty(&Said { error: self.text() });
        json(self.status(), said.unwrap_or_default())
    }
}

fn json(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}

struct Api<E> {
    events: SyncSender<E>,
    /// The permit to measure.
    free: Arc<Semaphore>,
    access: QuestionAccess,
}

impl<E> Clone for Api<E> {
    fn clone(&self) -> Self {
        Self { events: self.events.clone(), free: Arc::clone(&self.free), access: self.access.clone() }
    }
}

/// The page, for a service that is asked by these events.
pub(crate) fn routes<E: From<ModelOf> + Send + 'static>(
    events: SyncSender<E>,
    access: QuestionAccess,
) -> Router {
    Router::new().route("/v1/admit", post(admit::<E>)).with_state(Api {
        events,
        free: Arc::new(Semaphore::new(1)),
        access,
    })
}

async fn admit<E: From<ModelOf>>(
    State(api): State<Api<E>>,
    caller: Option<Extension<Caller>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let checked = match caller {
        Some(Extension(Caller { role: Role::Operator, .. })) => Ok(()),
        _ => api.access.check(&headers),
    };
    let answered = match checked {
        Ok(()) => answer(&api, &body).await,
        Err(refused) => Err(refused),
    };
    match answered {
        Ok(document) => json(StatusCode::OK, document),
        Err(refused) => refused.into_response(),
    }
}

/// Stops a measurement when its asker is gone, or its time is over.
struct StopOnDrop(OfferStop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

async fn answer<E: From<ModelOf>>(api: &Api<E>, body: &[u8]) -> Result<String, QuestionRefusal> {
    let (pool, contracts, loads) = read(body)?;
    let (sender, receiver) = oneshot::channel();
    let asked = ModelOf { pool, answer: sender };
    // As with a scrape: a full queue means that the service has enough to do.
    api.events.try_send(asked.into()).map_err(|_| QuestionRefusal::Unavailable)?;
    // A service that stops may leave it in its queue.
    let model = timeout(PATIENCE, receiver).await.map_err(|_| QuestionRefusal::Unavailable)?;
    let model = model.map_err(|_| QuestionRefusal::Unavailable)??;
    let permit = Arc::clone(&api.free).try_acquire_owned().map_err(|_| QuestionRefusal::Busy)?;
    let stop = OfferStop::default();
    let stops = StopOnDrop(stop.clone());
    let measured = tokio::task::spawn_blocking(move || {
        // Until it is done, also when the asker does not wait any more.
        let _permit = permit;
        // Of this thread alone, which does nothing else.
        let lowered = setpriority_process(Some(gettid()), PRIORITY);
        if let Err(error) = lowered {
            tracing::warn!("a question about contracts is measured at the priority of the service: {error}");
        }
        let rule = AdmissionRule::default();
        let offer = LoadOffer { stop, ..offer(&model, loads, &rule) };
        verdict(offer, &contracts, &rule, MOST_REQUESTS)
    });
    let outcome = timeout(LONGEST, measured).await.map_err(|_| QuestionRefusal::TooLong);
    drop(stops);
    outcome??
}

/// Reads a question: the pool that it is about, the contracts, and the load that they allow.
pub(crate) fn read(body: &[u8]) -> Result<(ResourceName, TenantDemands, Vec<ConsumerLoad>), QuestionRefusal> {
    let question: TenantQuestion = serde_json::from_slice(body)?;
    let (contracts, loads) = question.read()?;
    Ok((question.pool, contracts, loads))
}

impl TenantQuestion {
    fn read(&self) -> Result<(TenantDemands, Vec<ConsumerLoad>), QuestionRefusal> {
        if self.tenants.len() > MOST_TENANTS {
            return Err(QuestionRefusal::Many(self.tenants.len()));
        }
        let contracts = self.tenants.iter().map(|tenant| TenantDemand {
            name: tenant.name.clone(),
            iops: Iops::new(tenant.iops),
            size: Bytes::new(tenant.size),
            response_time: Latency::from_secs_f64(tenant.response_time_s),
        });
        // First, since what they say by themselves bounds what loads are made of.
        let contracts = TenantDemands::new(contracts.collect()).map_err(QuestionRefusal::Demand)?;
        let loads = self.tenants.iter().map(TenantTerms::load).collect::<Result<_, _>>()?;
        Ok((contracts, loads))
    }
}

impl TenantTerms {
    fn load(&self) -> Result<ConsumerLoad, QuestionRefusal> {
        let wrong = |why| QuestionRefusal::Tenant(self.name.clone(), why);
        let mut load =
            ConsumerLoad::random_reads(self.name.clone(), Iops::new(self.iops), Bytes::new(self.size));
        if !(0.0..=1.0).contains(&self.read) {
            return Err(wrong("`read` is the part of the requests that read, 0 to 1"));
        }
        load.reads = self.read;
        if self.deviation > 0 {
            let sizes = SizeWeights::normal(Bytes::new(self.size), Bytes::new(self.deviation));
            let why = "`deviation` is no more than `size`, and both are of 512 B or more";
            load.sizes = sizes.ok_or_else(|| wrong(why))?;
        }
        if let Some(weight) = self.weight {
            load.shares = Shares::new(weight).ok_or_else(|| wrong("`weight` is 1 to 1000000"))?;
        }
        Ok(load)
    }
}

/// Returns the document that `tidegate admit --json` prints. `most` is the most requests in each simulation.
pub(crate) fn verdict(
    offer: LoadOffer,
    contracts: &TenantDemands,
    rule: &AdmissionRule,
    most: u32,
) -> Result<String, QuestionRefusal> {
    let ability = StorageAbility { capacity: Some(offer.capacity()?), alone: offer.alone()? };
    contracts.check(&ability).map_err(QuestionRefusal::Impossible)?;
    let mut measuring = MeasuringQueue { offer, most };
    let decided = decide(contracts, rule, &mut measuring)?;
    let LoadOffer { seed, seeds, loads, .. } = measuring.offer;
    let weights: Vec<_> = loads.iter().map(|load| load.shares).collect();
    let seeds: Vec<u64> = (0..seeds).map(|at| seed.wrapping_add(at.into())).collect();
    let (capacity, decided) = (ability.capacity, &decided);
    let answer = AdmissionAnswer {
        contracts,
        rule,
        capacity,
        decided,
        arrivals: ARRIVALS,
        weights: &weights,
        seeds: &seeds,
    };
    Ok(serde_json::to_string_pretty(&answer.document())?)
}

struct MeasuringQueue {
    offer: LoadOffer,
    most: u32,
}

impl LoadGenerator for MeasuringQueue {
    type Error = QuestionRefusal;

    fn at(&mut self, scale: f64) -> Result<OfferResult, QuestionRefusal> {
        Ok(measured(&mut self.offer, scale, self.most)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_refusal_quoted_a_body_of_any_length() {
        let body = format!("{{\"{}\": true}}", "x".repeat(50_000));
        let refused = read(body.as_bytes()).unwrap_err();
        assert!(refused.text().starts_with("this is no question: unknown field `xxx"));
        assert!(refused.text().len() <= 500);
    }

    #[test]
    fn a_measurement_that_fails_is_not_the_askers_fault_nor_passes_by_itself() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let failed = runtime.spawn(std::future::pending::<()>());
        failed.abort();
        let refused = QuestionRefusal::from(runtime.block_on(failed).unwrap_err());
        assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR, "{refused}");
    }

    #[test]
    fn who_asks_a_service_that_stops_is_told_so() {
        let (events, queue) = mpsc::sync_channel::<ModelOf>(1);
        let api = Api { events, free: Arc::new(Semaphore::new(1)), access: QuestionAccess::default() };
        let question = br#"{ "pool": "disk", "tenants": [
            { "name": "w1", "iops": 40, "size": 4096, "response_time_s": 0.035 }
        ] }"#;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = runtime.block_on(async { timeout(2 * PATIENCE, answer(&api, question)).await });
        let refused = answer.expect("it is not waited for without end").unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "{refused}");
        drop(queue);
    }
}
