//! The client of a broker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tidegate_http::BearerToken;
use tidegate_sockets::trust::UnknownPeer;
use tidegate_units::ResourceName;
use tokio::time::{Instant, sleep};

use crate::name::{NoRandom, ObjectName, TransferId, is_key_of};
use crate::sensor_reports::SensorReport;
use crate::store::{service_client, wary_client};
use crate::wire::{
    AWAY, ApiProblem, CatalogueObject, DataDirection, NodeList, NodePeaks, ObjectList, PeakReport,
    ProgressReport, StoredReport, TransferEnd, TransferQuestion, TransferReservation, one_line,
};

/// The time in which a broker has to answer. One that does not is taken to be away.
const ANSWER: Duration = Duration::from_secs(10);

/// The size of the largest answer. A thousand objects with ten replicas each have a third of that.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

/// The time between two questions of a client that waits.
const PAUSE: Duration = Duration::from_millis(200);

/// The reason why a broker does not do what it is asked for.
#[derive(Debug, Error)]
pub enum AskError {
    /// The broker does not answer.
    #[error("the broker at {url} does not answer: {cause}; is `tidegate broker` running there?")]
    Unreachable {
        /// The address of the broker.
        url: String,
        /// The reason.
        cause: String,
    },
    /// Any user's program may answer there, so that nothing was asked.
    #[error("{url} gets no token: {peer}")]
    Stranger {
        /// The address of the broker.
        url: String,
        /// The program that answers there.
        peer: UnknownPeer,
    },
    /// The broker refuses.
    #[error("{}", .0.error)]
    Refused(ApiProblem),
    /// The broker answers that a transfer is gone, and an answer to the same question was lost before. The
    /// lost answer may have been a yes.
    #[error("{}; before that it was told the same, and did not answer", .0.error)]
    Doubtful(ApiProblem),
    /// A transfer could not be given an id.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
    /// The broker's answer cannot be right: it is a fault, or an attack. Nothing is done by it.
    #[error("the broker at {url} is not believed: {what}")]
    Unbelievable {
        /// The address of the broker.
        url: String,
        /// The part of its answer that is wrong.
        what: &'static str,
    },
    /// The server that answers is not a broker.
    #[error("what answers at {url} is no broker: {cause}")]
    NoBroker {
        /// The address of the server.
        url: String,
        /// Its answer.
        cause: String,
    },
}

impl AskError {
    /// Returns true if the broker refuses for this reason.
    #[must_use]
    pub fn is(&self, code: &str) -> bool {
        matches!(self, Self::Refused(problem) if problem.code == code)
    }

    /// Returns true if the broker may be there again in a moment.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. }) || self.is(AWAY)
    }
}

/// Returns a name as a part of a path: it may have any characters except control characters.
fn encoded(name: &ResourceName) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let each = name
        .as_str()
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    each.collect()
}

/// A client of a broker.
#[derive(Debug, Clone)]
pub struct BrokerClient {
    http: reqwest::Client,
    url: String,
    patience: Duration,
    token: Option<BearerToken>,
}

impl BrokerClient {
    /// Makes a client of the broker at an address such as `http://127.0.0.1:7311`. A broker that is away is
    /// waited for as long as `patience` says. A token is sent with every question, over connections to programs
    /// that may have it.
    ///
    /// # Errors
    /// When nothing can be asked of the address.
    pub fn new(url: &str, patience: Duration, token: Option<BearerToken>) -> Result<Self, AskError> {
        let url = url.trim_end_matches('/').to_owned();
        let unreachable = |cause: String| AskError::Unreachable { url: url.clone(), cause };
        // TLS knows the broker by its certificate.
        let is_plain = url.starts_with("http://");
        let http = if token.is_some() && is_plain { wary_client() } else { service_client() };
        let http = http.map_err(|error| unreachable(error.to_string()))?;
        Ok(Self { http, url, patience, token })
    }

    /// Asks for a transfer.
    ///
    /// # Errors
    /// When the broker is not there, or says no.
    pub async fn place(&self, wish: &TransferQuestion) -> Result<TransferReservation, AskError> {
        self.place_as(&TransferId::fresh()?, wish).await
    }

    /// Asks for a transfer by an id of ours. Asked again it is the same transfer: it does not matter if the
    /// first answer was lost.
    async fn place_as(
        &self,
        id: &TransferId,
        wish: &TransferQuestion,
    ) -> Result<TransferReservation, AskError> {
        let path = format!("/v1/transfers/{}", id.as_str());
        let reservation = self.ask(Method::PUT, &path, Some(wish)).await?;
        self.believed(reservation, id, wish)
    }

    /// Returns a reservation, if it is the one that was asked for. It decides what is written and read here,
    /// and under which key.
    fn believed(
        &self,
        reservation: TransferReservation,
        id: &TransferId,
        wish: &TransferQuestion,
    ) -> Result<TransferReservation, AskError> {
        let unbelievable = |what| Err(AskError::Unbelievable { url: self.url.clone(), what });
        if reservation.id != id.as_str() {
            return unbelievable("it answers for another transfer");
        }
        let Some(granted) = &reservation.granted else { return Ok(reservation) };
        let is_right = match (wish.way, &wish.name, &granted.key) {
            (DataDirection::Write, Some(name), Some(key)) => *key == format!("{name}.{}", id.as_str()),
            (DataDirection::Read, Some(name), Some(key)) => is_key_of(key, name),
            (DataDirection::Write, None, None) => true,
            _ => false,
        };
        if !is_right {
            return unbelievable("the key that it names is not one of this object");
        }
        if wish.way == DataDirection::Write && wish.size.is_some_and(|size| size != granted.size) {
            return unbelievable("it names another size than was asked for");
        }
        Ok(reservation)
    }

    /// Returns an object, if the keys of its replicas belong to it. They decide what is read and removed.
    fn believed_object(&self, object: CatalogueObject) -> Result<CatalogueObject, AskError> {
        if object.replicas.iter().all(|replica| is_key_of(&replica.key, &object.name)) {
            return Ok(object);
        }
        let what = "the key that it names is not one of this object";
        Err(AskError::Unbelievable { url: self.url.clone(), what })
    }

    fn believed_as(&self, object: CatalogueObject, name: &ObjectName) -> Result<CatalogueObject, AskError> {
        if object.name == *name {
            return self.believed_object(object);
        }
        Err(AskError::Unbelievable { url: self.url.clone(), what: "it answers for another object" })
    }

    /// Asks for a transfer, and waits as long as no node can carry it. Calls `waits` once if it has to wait.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or says no.
    pub async fn place_and_wait(
        &self,
        wish: &TransferQuestion,
        waits: impl Fn(),
    ) -> Result<TransferReservation, AskError> {
        let mut told = false;
        loop {
            let id = TransferId::fresh()?;
            let mut reservation = self.patiently(|| self.place_as(&id, wish)).await?;
            loop {
                if reservation.granted.is_some() {
                    return Ok(reservation);
                }
                if !told {
                    waits();
                    told = true;
                }
                sleep(PAUSE).await;
                reservation = match self.patiently(|| self.reservation(id.as_str())).await {
                    Ok(reservation) => self.believed(reservation, &id, wish)?,
                    // The broker was started again, and does not know who waited.
                    Err(error) if error.is("gone") => break,
                    Err(error) => return Err(error),
                };
            }
        }
    }

    /// Returns the state of a transfer; asking keeps it alive.
    ///
    /// # Errors
    /// When the broker is not there, or does not know it.
    pub async fn reservation(&self, id: &str) -> Result<TransferReservation, AskError> {
        self.ask(Method::GET, &format!("/v1/transfers/{id}"), None::<&()>).await
    }

    /// Reports the progress of a transfer.
    ///
    /// # Errors
    /// When the broker is not there, or does not know it.
    pub async fn progress(&self, id: &str, moved: ProgressReport) -> Result<(), AskError> {
        self.tell(&format!("/v1/transfers/{id}/progress"), &moved).await
    }

    /// Reports that a write has come to its end, until the broker has acknowledged it.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or does not acknowledge it.
    pub async fn stored(&self, id: &str, stored: &StoredReport) -> Result<(), AskError> {
        let was_unheard = AtomicBool::new(false);
        let tell = async || {
            let outcome = self.tell_stored(id, stored).await;
            if outcome.as_ref().is_err_and(AskError::may_pass) {
                was_unheard.store(true, Ordering::Relaxed);
            }
            outcome
        };
        match self.patiently(tell).await {
            Err(AskError::Refused(problem))
                if was_unheard.load(Ordering::Relaxed) && problem.code == "gone" =>
            {
                Err(AskError::Doubtful(problem))
            }
            outcome => outcome,
        }
    }

    async fn tell_stored(&self, id: &str, stored: &StoredReport) -> Result<(), AskError> {
        self.tell(&format!("/v1/transfers/{id}/stored"), stored).await
    }

    /// Reports that a transfer is over, until the broker has heard it: one that it still knows keeps its node
    /// and its name.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or does not know it.
    pub async fn end_patiently(&self, id: &str, end: TransferEnd) -> Result<(), AskError> {
        self.patiently(|| self.end(id, end.clone())).await
    }

    /// Reports that a transfer is over.
    ///
    /// # Errors
    /// When the broker is not there, or does not know it.
    pub async fn end(&self, id: &str, end: TransferEnd) -> Result<(), AskError> {
        self.tell(&format!("/v1/transfers/{id}/end"), &end).await
    }

    /// Returns an object.
    ///
    /// # Errors
    /// When the broker is not there, or knows none of the name.
    pub async fn object(&self, name: &ObjectName) -> Result<CatalogueObject, AskError> {
        let object = self.ask(Method::GET, &format!("/v1/objects/{name}"), None::<&()>).await?;
        self.believed_as(object, name)
    }

    /// Returns objects, after one of them.
    ///
    /// # Errors
    /// When the broker is not there, or what it says cannot be: they come in the order of their names, so
    /// that a list has an end.
    pub async fn objects(&self, after: Option<&ObjectName>) -> Result<ObjectList, AskError> {
        let query = after.map(|name| format!("?after={name}")).unwrap_or_default();
        let page: ObjectList = self.ask(Method::GET, &format!("/v1/objects{query}"), None::<&()>).await?;
        let names = || page.objects.iter().map(|object| &object.name);
        if !after.into_iter().chain(names()).is_sorted_by(|a, b| a < b) {
            let what = "its list of objects is not in the order of their names";
            return Err(AskError::Unbelievable { url: self.url.clone(), what });
        }
        let objects = page.objects.into_iter().map(|object| self.believed_object(object));
        Ok(ObjectList { objects: objects.collect::<Result<_, _>>()?, more: page.more })
    }

    /// Returns an object. Waits for a broker that is away.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or knows none of the name.
    pub async fn object_patiently(&self, name: &ObjectName) -> Result<CatalogueObject, AskError> {
        self.patiently(|| self.object(name)).await
    }

    /// Makes the broker forget an object, and returns its places.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or knows none of the name.
    pub async fn remove(&self, name: &ObjectName) -> Result<CatalogueObject, AskError> {
        // Who removes has to be told where its data is, and the answer that says so may be lost.
        let before = self.object_patiently(name).await?;
        let was_unheard = AtomicBool::new(false);
        let remove = async || {
            let outcome = self.ask(Method::DELETE, &format!("/v1/objects/{name}"), None::<&()>).await;
            if outcome.as_ref().is_err_and(AskError::may_pass) {
                was_unheard.store(true, Ordering::Relaxed);
            }
            outcome
        };
        match self.patiently(remove).await {
            Err(error) if error.is("unknown-object") && was_unheard.load(Ordering::Relaxed) => Ok(before),
            outcome => self.believed_as(outcome?, name),
        }
    }

    /// Returns the state of the nodes.
    ///
    /// # Errors
    /// When the broker is not there.
    pub async fn nodes(&self) -> Result<NodeList, AskError> {
        self.ask(Method::GET, "/v1/nodes", None::<&()>).await
    }

    /// Returns the state of the nodes. Waits for a broker that is away.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience.
    pub async fn nodes_patiently(&self) -> Result<NodeList, AskError> {
        self.patiently(|| self.nodes()).await
    }

    /// Sends a report of a node's own sensor.
    ///
    /// # Errors
    /// When the broker is not there, or does not take it.
    pub async fn report(&self, node: &ResourceName, report: &SensorReport) -> Result<(), AskError> {
        self.tell(&format!("/v1/nodes/{}/report", encoded(node)), report).await
    }

    /// Reports the rates that a probe measured on a node, and returns its peaks now.
    ///
    /// # Errors
    /// When the broker is not there, or knows no such node.
    pub async fn probed(&self, node: &ResourceName, found: &PeakReport) -> Result<NodePeaks, AskError> {
        self.ask(Method::POST, &format!("/v1/nodes/{}/peak", encoded(node)), Some(found)).await
    }

    /// Asks again for as long as the broker is away, and our patience lasts.
    async fn patiently<T>(&self, ask: impl AsyncFn() -> Result<T, AskError>) -> Result<T, AskError> {
        let end = Instant::now() + self.patience;
        loop {
            match ask().await {
                Err(error) if error.may_pass() && Instant::now() < end => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    async fn tell(&self, path: &str, document: &impl Serialize) -> Result<(), AskError> {
        self.send(Method::POST, path, Some(document)).await.map(drop)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        document: Option<&impl Serialize>,
    ) -> Result<T, AskError> {
        let body = self.send(method, path, document).await?;
        serde_json::from_slice(&body).map_err(|error| self.no_broker(&error))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        document: Option<&impl Serialize>,
    ) -> Result<Vec<u8>, AskError> {
        let is_question = method == Method::GET;
        let mut request = self.http.request(method, format!("{}{path}", self.url)).timeout(ANSWER);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.as_str());
        }
        if let Some(document) = document {
            let text = serde_json::to_vec(document).map_err(|error| self.no_broker(&error))?;
            request = request.header("content-type", "application/json").body(text);
        }
        let again = if is_question { request.try_clone() } else { None };
        let mut answer = match (request.send().await, again) {
            // A connection that was kept may be closed in the moment in which it is used again.
            (Err(error), Some(again)) if !error.is_connect() && !error.is_timeout() => again.send().await,
            (answer, _) => answer,
        }
        .map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + piece.len() > LARGEST_ANSWER {
                return Err(self.no_broker(&format!("its answer has more than {LARGEST_ANSWER} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<ApiProblem>(&body) {
            Ok(problem) => {
                let ApiProblem { error, code } = &problem;
                Err(AskError::Refused(ApiProblem { error: one_line(error), code: one_line(code) }))
            }
            Err(_) if status == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(self.no_broker(&"the question is too large"))
            }
            Err(_) => Err(self.no_broker(&status)),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> AskError {
        let mut cause: &(dyn std::error::Error + 'static) = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let url = self.url.clone();
        match cause.downcast_ref::<UnknownPeer>() {
            Some(peer) => AskError::Stranger { url, peer: peer.clone() },
            None => AskError::Unreachable { url, cause: cause.to_string() },
        }
    }

    fn no_broker(&self, cause: &dyn std::fmt::Display) -> AskError {
        AskError::NoBroker { url: self.url.clone(), cause: cause.to_string() }
    }
}
