//! Services that are asked once a second, each by a thread of its own, so that one that hangs delays no
//! other.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tidegate_service::status::ServiceStatus;

use crate::http::ServiceClient;
use crate::status::{self, error::StatusError};

/// The time between two questions to a service.
const PERIOD: Duration = Duration::from_secs(1);

/// The time that a service has for an answer. After it the screen says that it is silent.
const PATIENCE: Duration = Duration::from_secs(3);

/// A service to watch.
#[derive(Debug)]
pub(super) struct WatchedService {
    pub(super) client: ServiceClient,
    /// False: it may well not run here, and is shown from its first answer on.
    pub(super) is_expected: bool,
}

/// The outcome of a question.
#[derive(Debug)]
pub(super) struct ServiceNews {
    /// The number of the service.
    pub(super) service: usize,
    /// The time of day.
    pub(super) at: SystemTime,
    /// The status, or the reason why there is none.
    pub(super) answer: Result<ServiceAnswered, String>,
}

/// The answer of a service.
#[derive(Debug)]
pub(super) struct ServiceAnswered {
    /// The address that gave it.
    pub(super) address: String,
    pub(super) status: ServiceStatus,
}

/// Asks services until the receiver is gone.
///
/// # Errors
/// When no thread can be started.
pub(super) fn watch(services: Vec<WatchedService>) -> io::Result<Receiver<ServiceNews>> {
    // Answers that the screen does not take in time wait, and their threads with them.
    let (sender, receiver) = mpsc::sync_channel(services.len().max(1));
    for (index, service) in services.into_iter().enumerate() {
        let (client, sender) = (service.client.with_patience(PATIENCE), sender.clone());
        thread::Builder::new()
            .name(format!("service-{index}"))
            .spawn(move || ask(index, &client, &sender))?;
    }
    Ok(receiver)
}

fn ask(service: usize, client: &ServiceClient, news: &SyncSender<ServiceNews>) {
    loop {
        let asked = Instant::now();
        let answer = answer(client).map_err(|error| error.to_string());
        if news.send(ServiceNews { service, at: SystemTime::now(), answer }).is_err() {
            return;
        }
        thread::sleep(PERIOD.saturating_sub(asked.elapsed()));
    }
}

fn answer(client: &ServiceClient) -> Result<ServiceAnswered, StatusError> {
    let answer = client.get("/v1/status")?;
    Ok(ServiceAnswered { address: answer.address.to_string(), status: status::read(&answer)? })
}
