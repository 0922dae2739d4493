//! Connections to a NATS server.

use crate::config::{NatsConfig, NatsCredentials};
use crate::key::{SecretError, read_credentials};
use crate::tls;
use async_nats::{Client, ConnectOptions, Event};
use std::time::Duration;
use tidegate_nats::{Encryption, NatsError, NatsServers, Relay};
use tidegate_tls::client_settings;
use tokio::sync::mpsc;

/// For a connection to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// The purpose of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionPurpose {
    /// A few requests.
    Once,
    /// A session, which ends when this says so; pings so often.
    Session { events: mpsc::Sender<Told>, ping: Duration },
}

fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// An event of a connection, as the client library tells it.
#[derive(Debug)]
pub(crate) enum Told {
    Ended,
    /// The server refused something, and goes on.
    Complaint(String),
}

/// # Errors
/// Why not, for people.
pub(crate) async fn connect(
    config: &NatsConfig,
    servers: &NatsServers,
    purpose: ConnectionPurpose,
) -> Result<(Client, Relay), String> {
    let mut options = ConnectOptions::new()
        .name("tidegate")
        .no_echo()
        .connection_timeout(CONNECT)
        .request_timeout(Some(CONNECT))
        .subscription_capacity(WAITING);
    options = match &config.credentials {
        NatsCredentials::None => options,
        NatsCredentials::Token(token) => options.token(token.as_str().to_owned()),
        NatsCredentials::User { user, password } => {
            options.user_and_password(user.clone(), password.as_str().to_owned())
        }
        NatsCredentials::File(path) => {
            let text = read_credentials(path).map_err(|error| with_cause(&error))?;
            let none = |_| SecretError::NoCredentials(path.clone()).to_string();
            options.credentials(&text).map_err(none)?
        }
    };
    let encryption = match &config.tls {
        None => Encryption::IfAsked(|| Ok(client_settings(None, None)?)),
        Some(tls) => Encryption::Required(
            client_settings(tls.authorities.as_deref(), tls.identity.as_ref())
                .map_err(|error| with_cause(&error))?,
        ),
    };
    if let ConnectionPurpose::Session { events, ping } = purpose {
        options = options.ping_interval(ping).event_callback(move |event| {
            let events = events.clone();
            async move {
                let told = match event {
                    Event::Disconnected | Event::Closed => Told::Ended,
                    Event::ServerError(error) => Told::Complaint(error.to_string()),
                    _ => return,
                };
                // The end is not lost among complaints: the library waits for its callback.
                let _ = events.send(told).await;
            }
        });
    }
    tidegate_nats::connect(options, servers, &encryption, CONNECT).await.map_err(|error| explain(&error))
}

/// Returns the meaning of an error of a connection, for people.
pub(crate) fn explain(error: &NatsError) -> String {
    tls::explain(error).unwrap_or_else(|| error.to_string())
}

/// Messages that wait to be read; beyond, the client drops them: they are replaced within an interval.
const WAITING: usize = 4096;
