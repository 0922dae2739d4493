//! Asks a broker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tidegate_units::ResourceName;
use tokio::time::{Instant, sleep};

use crate::name::{NoRandom, ObjectName, TransferId};
use crate::sensed::Sensed;
use crate::store::http_client;
use crate::token::Token;
use crate::wire::{
    AWAY, End, Moved, Nodes, Object, Objects, Peaks, Probed, Problem, Reservation, Stored, Wish,
};

/// A broker that does not answer in this time is not there.
const ANSWER: Duration = Duration::from_secs(10);

/// Between two questions of whoever waits.
const PAUSE: Duration = Duration::from_millis(200);

/// Why a broker does not do what it is asked for.
#[derive(Debug, Error)]
pub enum AskError {
    /// It is not there.
    #[error("the broker at {url} does not answer: {cause}; is `tidegate broker` running there?")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// Why.
        cause: String,
    },
    /// It says no.
    #[error("{}", .0.error)]
    Refused(Problem),
    /// It says that a transfer is gone, and an answer to the same question was lost before: that may have been a yes.
    #[error("{}; before that it was told the same, and did not answer", .0.error)]
    Doubtful(Problem),
    /// A transfer could not be given a name.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
    /// What answers is no broker.
    #[error("what answers at {url} is no broker: {cause}")]
    NoBroker {
        /// Where.
        url: String,
        /// What it said.
        cause: String,
    },
}

impl AskError {
    /// Whether the broker says no for this reason.
    #[must_use]
    pub fn is(&self, code: &str) -> bool {
        matches!(self, Self::Refused(problem) if problem.code == code)
    }

    /// Whether it may be there again in a moment.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. }) || self.is(AWAY)
    }
}

/// A name as a part of a path: it may have any characters but those that control something.
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
pub struct Client {
    http: reqwest::Client,
    url: String,
    patience: Duration,
    token: Option<Token>,
}

impl Client {
    /// Of the broker at an address such as `http://127.0.0.1:7311`. Once it has answered it is waited for so long when it is away.
    ///
    /// # Errors
    /// When nothing can be asked of the address.
    pub fn new(url: &str, patience: Duration) -> Result<Self, AskError> {
        let url = url.trim_end_matches('/').to_owned();
        let unreachable = |cause: String| AskError::Unreachable { url: url.clone(), cause };
        let http = http_client().map_err(|error| unreachable(error.to_string()))?;
        Ok(Self { http, url, patience, token: None })
    }

    /// Shows a token with every question, where there is one.
    #[must_use]
    pub fn with_token(self, token: Option<Token>) -> Self {
        Self { token, ..self }
    }

    /// Asks for a transfer.
    ///
    /// # Errors
    /// When the broker is not there, or says no.
    pub async fn place(&self, wish: &Wish) -> Result<Reservation, AskError> {
        self.place_as(&TransferId::fresh()?, wish).await
    }

    /// By a name of ours: asked again it is the same transfer, so that it does not matter whether the first answer was lost.
    async fn place_as(&self, id: &TransferId, wish: &Wish) -> Result<Reservation, AskError> {
        self.ask(Method::PUT, &format!("/v1/transfers/{}", id.as_str()), Some(wish)).await
    }

    /// Asks for a transfer, and waits for as long as nobody can carry it. `waits` is told once when it has to.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or says no.
    pub async fn place_and_wait(&self, wish: &Wish, waits: impl Fn()) -> Result<Reservation, AskError> {
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
                reservation = match self.patiently(|| self.reservation(&reservation.id)).await {
                    Ok(reservation) => reservation,
                    // The broker was started again, and does not know who waited.
                    Err(error) if error.is("gone") => break,
                    Err(error) => return Err(error),
                };
            }
        }
    }

    /// What is known of a transfer; asking keeps it alive.
    ///
    /// # Errors
    /// When the broker is not there, or does not know it.
    pub async fn reservation(&self, id: &str) -> Result<Reservation, AskError> {
        self.ask(Method::GET, &format!("/v1/transfers/{id}"), None::<&()>).await
    }

    /// Tells how far a transfer has come.
    ///
    /// # Errors
    /// When the broker is not there, or does not know it.
    pub async fn progress(&self, id: &str, moved: Moved) -> Result<(), AskError> {
        self.tell(&format!("/v1/transfers/{id}/progress"), &moved).await
    }

    /// Tells that a write has come to its end, until the broker has acknowledged it.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or does not acknowledge it.
    pub async fn stored(&self, id: &str, stored: &Stored) -> Result<(), AskError> {
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

    async fn tell_stored(&self, id: &str, stored: &Stored) -> Result<(), AskError> {
        self.tell(&format!("/v1/transfers/{id}/stored"), stored).await
    }

    /// Tells that a transfer is over, until the broker has heard it: one that it still knows keeps its node and its name.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or does not know it.
    pub async fn end_patiently(&self, id: &str, end: End) -> Result<(), AskError> {
        self.patiently(|| self.end(id, end.clone())).await
    }

    /// Tells that a transfer is over.
    ///
    /// # Errors
    /// When the broker is not there, or does not know it.
    pub async fn end(&self, id: &str, end: End) -> Result<(), AskError> {
        self.tell(&format!("/v1/transfers/{id}/end"), &end).await
    }

    /// An object.
    ///
    /// # Errors
    /// When the broker is not there, or knows none of the name.
    pub async fn object(&self, name: &ObjectName) -> Result<Object, AskError> {
        self.ask(Method::GET, &format!("/v1/objects/{name}"), None::<&()>).await
    }

    /// Objects, after one of them.
    ///
    /// # Errors
    /// When the broker is not there.
    pub async fn objects(&self, after: Option<&ObjectName>) -> Result<Objects, AskError> {
        let after = after.map(|name| format!("?after={name}")).unwrap_or_default();
        self.ask(Method::GET, &format!("/v1/objects{after}"), None::<&()>).await
    }

    /// Makes the broker forget an object, and says where it was.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience, or knows none of the name.
    pub async fn remove(&self, name: &ObjectName) -> Result<Object, AskError> {
        // Who removes has to be told where its data is, and the answer that says so may be lost.
        let before = self.patiently(|| self.object(name)).await?;
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
            outcome => outcome,
        }
    }

    /// What is known of the nodes.
    ///
    /// # Errors
    /// When the broker is not there.
    pub async fn nodes(&self) -> Result<Nodes, AskError> {
        self.ask(Method::GET, "/v1/nodes", None::<&()>).await
    }

    /// The same, waiting for a broker that is away.
    ///
    /// # Errors
    /// When the broker is away for longer than our patience.
    pub async fn nodes_patiently(&self) -> Result<Nodes, AskError> {
        self.patiently(|| self.nodes()).await
    }

    /// Tells what a node's own sensor sees.
    ///
    /// # Errors
    /// When the broker is not there, or does not take it.
    pub async fn report(&self, node: &ResourceName, report: &Sensed) -> Result<(), AskError> {
        self.tell(&format!("/v1/nodes/{}/report", encoded(node)), report).await
    }

    /// Tells what a node was found to move, and hears what its peaks are now.
    ///
    /// # Errors
    /// When the broker is not there, or knows no such node.
    pub async fn probed(&self, node: &ResourceName, found: &Probed) -> Result<Peaks, AskError> {
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
        let mut request = self.http.request(method, format!("{}{path}", self.url)).timeout(ANSWER);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.as_str());
        }
        if let Some(document) = document {
            let text = serde_json::to_vec(document).map_err(|error| self.no_broker(&error))?;
            request = request.header("content-type", "application/json").body(text);
        }
        let unreachable = |error: reqwest::Error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            AskError::Unreachable { url: self.url.clone(), cause: cause.to_string() }
        };
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(unreachable)?.to_vec();
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice(&body) {
            Ok(problem) => Err(AskError::Refused(problem)),
            Err(_) if status == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(self.no_broker(&"the question is too large"))
            }
            Err(_) => Err(self.no_broker(&status)),
        }
    }

    fn no_broker(&self, cause: &dyn std::fmt::Display) -> AskError {
        AskError::NoBroker { url: self.url.clone(), cause: cause.to_string() }
    }
}
