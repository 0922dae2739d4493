//! The pages by which operators read and change settings, for a service that is asked by events.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use axum::{Extension, Router};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tidegate_http::caller::Caller;
use tidegate_http::problem;
use tidegate_units::{ConsumerName, ResourceName};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::changes::ReleaseScope;
use super::document::{OverridesDocument, ServiceSettings};
use super::refusal::OverrideRefusal;
use super::request::{ConsumerPatch, OverrideAction, ReleaseRequest, RequestError, ResourcePatch};
use crate::metrics::PATIENCE;

/// A question or an action for the thread of the service.
#[derive(Debug)]
pub enum ControlRequest {
    /// The settings in force are asked for.
    Settings(oneshot::Sender<ServiceSettings>),
    /// An operator wants settings changed.
    Change {
        /// The caller's name.
        by: String,
        /// The action.
        action: OverrideAction,
        /// The overrides after it.
        answer: oneshot::Sender<Result<OverridesDocument, OverrideRefusal>>,
    },
}

/// The reasons why a page has no answer.
#[derive(Debug, Error)]
enum ControlError {
    #[error("the service does not answer: it is stopping, or overloaded")]
    Silent,
    #[error("the request is not understood: {0}")]
    NotUnderstood(String),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Refused(#[from] OverrideRefusal),
}

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        let (status, code) = match &self {
            Self::Silent => (StatusCode::SERVICE_UNAVAILABLE, "silent"),
            Self::NotUnderstood(_) => (StatusCode::BAD_REQUEST, "not-understood"),
            Self::Request(_) => (StatusCode::BAD_REQUEST, "out-of-range"),
            Self::Refused(OverrideRefusal::NoResource { .. }) => (StatusCode::NOT_FOUND, "unknown-resource"),
            Self::Refused(OverrideRefusal::NoConsumer { .. }) => (StatusCode::NOT_FOUND, "unknown-consumer"),
            Self::Refused(OverrideRefusal::Impossible(_)) => (StatusCode::UNPROCESSABLE_ENTITY, "impossible"),
            Self::Refused(OverrideRefusal::StillThrottled) => {
                (StatusCode::SERVICE_UNAVAILABLE, "still-throttled")
            }
        };
        problem(status, code, &self.to_string())
    }
}

impl From<PathRejection> for ControlError {
    fn from(error: PathRejection) -> Self {
        Self::NotUnderstood(error.body_text())
    }
}

fn answer(status: StatusCode, document: &impl Serialize) -> Response {
    // Invariant: documents are made of text, numbers and lists, and no key is anything but text.
    let text = serde_json::to_string_pretty(document).expect("a document of plain values");
    (status, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}

type Events<E> = State<Arc<SyncSender<E>>>;

/// Returns the pages. The server lets only operators use methods other than GET.
pub fn routes<E: From<ControlRequest> + Send + 'static>(events: SyncSender<E>) -> Router {
    Router::new()
        .route("/v1/settings", get(settings::<E>))
        .route("/v1/resources/{resource}", patch(change_resource::<E>))
        .route("/v1/resources/{resource}/consumers/{consumer}", patch(change_consumer::<E>))
        .route("/v1/releases", axum::routing::post(release::<E>).delete(end_release::<E>))
        .with_state(Arc::new(events))
}

async fn settings<E: From<ControlRequest>>(State(events): Events<E>) -> Result<Response, ControlError> {
    let (sender, receiver) = oneshot::channel();
    let settings = ask(&events, ControlRequest::Settings(sender), receiver).await?;
    Ok(answer(StatusCode::OK, &settings))
}

async fn change_resource<E: From<ControlRequest>>(
    State(events): Events<E>,
    Extension(caller): Extension<Caller>,
    resource: Result<Path<ResourceName>, PathRejection>,
    body: Bytes,
) -> Result<Response, ControlError> {
    let Path(resource) = resource?;
    let patch: ResourcePatch = parse(&body)?;
    patch.check()?;
    change(&events, caller, OverrideAction::Resource { resource, patch }).await
}

async fn change_consumer<E: From<ControlRequest>>(
    State(events): Events<E>,
    Extension(caller): Extension<Caller>,
    names: Result<Path<(ResourceName, ConsumerName)>, PathRejection>,
    body: Bytes,
) -> Result<Response, ControlError> {
    let Path((resource, consumer)) = names?;
    let patch: ConsumerPatch = parse(&body)?;
    patch.check()?;
    change(&events, caller, OverrideAction::Consumer { resource, consumer, patch }).await
}

async fn release<E: From<ControlRequest>>(
    State(events): Events<E>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, ControlError> {
    let request: ReleaseRequest = parse(&body)?;
    change(&events, caller, request.action()?).await
}

async fn end_release<E: From<ControlRequest>>(
    State(events): Events<E>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, ControlError> {
    let scope = serde_urlencoded::from_str::<ReleaseScope>(&query.unwrap_or_default());
    let scope = scope.map_err(|error| ControlError::NotUnderstood(error.to_string()))?;
    let is_all = scope.resource.is_none() && scope.consumer.is_none();
    change(&events, caller, OverrideAction::EndRelease { scope: (!is_all).then_some(scope) }).await
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, ControlError> {
    serde_json::from_slice(body).map_err(|error| ControlError::NotUnderstood(error.to_string()))
}

async fn change<E: From<ControlRequest>>(
    events: &SyncSender<E>,
    caller: Caller,
    action: OverrideAction,
) -> Result<Response, ControlError> {
    let (sender, receiver) = oneshot::channel();
    let request = ControlRequest::Change { by: caller.name, action, answer: sender };
    let overrides = ask(events, request, receiver).await??;
    Ok(answer(StatusCode::OK, &overrides))
}

async fn ask<E: From<ControlRequest>, T>(
    events: &SyncSender<E>,
    request: ControlRequest,
    receiver: oneshot::Receiver<T>,
) -> Result<T, ControlError> {
    // A full queue means that the service has enough to do.
    events.try_send(request.into()).map_err(|_| ControlError::Silent)?;
    timeout(PATIENCE, receiver).await.ok().and_then(Result::ok).ok_or(ControlError::Silent)
}
