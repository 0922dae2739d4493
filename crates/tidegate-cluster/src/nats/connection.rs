//! Connections to a NATS server.

use crate::config::{NatsConfig, NatsCredentials};
use crate::key::{SecretError, read_credentials};
use crate::tls::{self, TlsSettings};
use async_nats::{Client, ConnectOptions, Event};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

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

fn encrypted(options: ConnectOptions, tls: &TlsSettings) -> ConnectOptions {
    let mut options = options.require_tls(true);
    if let Some(path) = &tls.authorities {
        options = options.add_root_certificates(path.clone());
    }
    if let Some(tidegate_tls::TlsIdentity { certificate, private_key }) = &tls.identity {
        options = options.add_client_certificate(certificate.clone(), private_key.clone());
    }
    options
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
pub(crate) async fn connect(config: &NatsConfig, purpose: ConnectionPurpose) -> Result<Client, String> {
    let mut options = ConnectOptions::new()
        .name("tidegate")
        .no_echo()
        .connection_timeout(CONNECT)
        .request_timeout(Some(CONNECT))
        .subscription_capacity(WAITING)
        .max_reconnects(1);
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
    if let Some(tls) = &config.tls {
        tls.check().map_err(|error| with_cause(&error))?;
        options = encrypted(options, tls);
    }
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
    match timeout(CONNECT, options.connect(&config.servers)).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => Err(tls::explain(&error).unwrap_or_else(|| error.to_string())),
        Err(_) => Err(format!("no answer within {} s", CONNECT.as_secs())),
    }
}

/// Messages that wait to be read; beyond, the client drops them: they are replaced within an interval.
const WAITING: usize = 4096;
