//! The HTTP server of a service, in a thread of its own.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

use axum::http::header;
use axum::middleware::from_fn;
use axum::routing::get;
use axum::{Router, response::IntoResponse};
use thiserror::Error;
use tidegate_http::caller::only_operators_change;
use tidegate_http::{
    ApiAccess, ApiCredentials, HttpListener, HttpRefusals, HttpServer, ListenAddress, ServerNames, SocketFile,
};

use super::caller::callers;
use super::dashboard::{DASHBOARD, PUBLIC_PAGES};
use super::events::EventFeed;
use super::explanation::explanations;
use super::history::histories;
use super::journal_desk::JournalDesk;
use super::settings::{ApiSettings, CredentialsError};
use crate::metrics::{self, ScrapeRequest};
use crate::operator_socket;
use crate::overrides::{self, ControlRequest};
use crate::status::{self, ServiceKind, StatusRequest};

/// The description of the API by OpenAPI 3.1, the same as `docs/service.openapi.json`.
pub const OPENAPI: &str = include_str!("../../../../docs/service.openapi.json");

/// The reasons why nothing is served over HTTP.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot serve HTTP at {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The credentials of its callers cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// There is no thread.
    #[error("cannot serve HTTP: {0}")]
    Thread(io::Error),
}

/// The pages of a service.
#[derive(Debug, Default)]
pub struct ApiRoutes {
    /// Pages of which only operators get those that change something.
    pub of_roles: Router,
    /// Pages that check credentials themselves.
    pub of_tokens: Router,
}

impl ApiRoutes {
    /// The pages of every service: the dashboard, metrics, status, settings, events, and explanations and
    /// histories from the journal in this folder. Each question becomes an event of the service.
    #[must_use]
    pub fn of_every_service<E>(events: SyncSender<E>, feed: &EventFeed, journal: Option<PathBuf>) -> Self
    where
        E: From<ScrapeRequest> + From<StatusRequest> + From<ControlRequest> + Send + 'static,
    {
        let desk = JournalDesk::new(journal);
        let of_roles = metrics::routes(events.clone())
            .merge(status::routes(events.clone()))
            .merge(overrides::routes(events.clone()))
            .merge(feed.clone().routes(events))
            .merge(explanations(desk.clone()))
            .merge(histories(desk))
            .merge(callers())
            .merge(DASHBOARD.router())
            .route("/v1/openapi.json", get(openapi));
        Self { of_roles, of_tokens: Router::new() }
    }
}

/// The HTTP server. It ends with the process: it holds nothing that would have to be put in order, except the
/// files of its sockets.
#[derive(Debug)]
pub struct ServiceServer {
    metrics: Option<SocketAddr>,
    api: Vec<ListenAddress>,
    access: Arc<ApiAccess>,
    refusals: Arc<HttpRefusals>,
    _files: Vec<SocketFile>,
}

impl ServiceServer {
    /// Binds the addresses and the [operator's socket](operator_socket) of a service with this configuration,
    /// and begins to serve. At `metrics` no caller is known, so nothing is changed.
    ///
    /// A service without its operator's socket works, and its log says what it lacks.
    ///
    /// # Errors
    /// When an address cannot be listened on, credentials cannot be used, or no thread is left.
    pub fn start(
        (service, configuration): (ServiceKind, &Path),
        metrics: Option<SocketAddr>,
        api: Option<&ApiSettings>,
        routes: ApiRoutes,
    ) -> Result<Self, ServerError> {
        let credentials = api.map(ApiSettings::credentials).transpose()?;
        let access = Arc::new(ApiAccess::new(credentials.unwrap_or_default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Thread)?;
        let names = api.iter().flat_map(|api| api.names.iter().cloned());
        let names = ServerNames::new("`names` of `[api]`", names);
        let (mut listeners, mut bound) = (Vec::new(), Vec::new());
        if let Some(address) = metrics {
            let listener = runtime.block_on(async {
                match tidegate_sockets::tcp(address) {
                    Some(socket) => HttpListener::given_tcp(socket, None).await,
                    None => HttpListener::anonymous(address).await,
                }
            });
            listeners.push(listener.map_err(|source| at(&ListenAddress::Tcp(address), source))?);
        }
        let metrics = listeners.first().map(HttpListener::address).and_then(|address| match address {
            ListenAddress::Tcp(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        });
        for address in api.iter().flat_map(|api| &api.listen) {
            let listener = runtime.block_on(listen(address, Arc::clone(&access)));
            let listener = listener.map_err(|source| at(address, source))?;
            bound.push(listener.address().clone());
            listeners.push(listener);
        }
        let operators = operator_socket::prepare(service, configuration).and_then(|path| {
            let address = ListenAddress::Unix(path);
            let is_bound = bound.contains(&address);
            if is_bound {
                Ok(None)
            } else {
                runtime.block_on(listen(&address, Arc::clone(&access))).map(Some)
            }
        });
        match operators {
            Ok(Some(listener)) => {
                tracing::info!("operator's socket at {}", listener.address());
                listeners.push(listener);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(
                "there is no operator's socket ({error}): `tidegate release` does not find this service; name \
                 another folder with TIDEGATE_RUN_DIR"
            ),
        }
        let files = listeners.iter_mut().filter_map(HttpListener::take_file).collect();
        let server = HttpServer::new(listeners, names).with_public_pages(PUBLIC_PAGES);
        let refusals = server.refusals();
        let router = routes.of_roles.layer(from_fn(only_operators_change)).merge(routes.of_tokens);
        let body = move || runtime.block_on(server.serve(router, pending()));
        let thread = thread::Builder::new().name("tidegate-http".to_owned());
        thread.spawn(body).map_err(ServerError::Thread)?;
        Ok(Self { metrics, api: bound, access, refusals, _files: files })
    }

    /// Logs the addresses that it listens on, with their real ports.
    pub fn introduce(&self) {
        if let Some(address) = self.metrics {
            tracing::info!("metrics on http://{address}/metrics");
            tracing::info!("dashboard on http://{address}/");
        }
        if !self.api.is_empty() {
            let addresses: Vec<_> = self.api.iter().map(ToString::to_string).collect();
            tracing::info!("API at {}", addresses.join(", "));
        }
    }

    /// Accepts these credentials from now on.
    pub fn accept(&self, credentials: ApiCredentials) {
        self.access.replace(credentials);
    }

    /// The counters of connections that it refused.
    #[must_use]
    pub fn refusals(&self) -> Arc<HttpRefusals> {
        Arc::clone(&self.refusals)
    }
}

/// Listens on an address of the API, with the socket of systemd if there is one.
async fn listen(address: &ListenAddress, access: Arc<ApiAccess>) -> io::Result<HttpListener> {
    match address {
        ListenAddress::Tcp(tcp) => {
            if let Some(socket) = tidegate_sockets::tcp(*tcp) {
                return HttpListener::given_tcp(socket, Some(access)).await;
            }
        }
        ListenAddress::Unix(path) => {
            if let Some(socket) = tidegate_sockets::unix(path) {
                return HttpListener::given_unix(socket, path, access).await;
            }
            tidegate_sockets::make_folder(path)?;
        }
    }
    HttpListener::bind(address, access).await
}

fn at(address: &ListenAddress, source: io::Error) -> ServerError {
    ServerError::Listen { address: address.to_string(), source }
}

async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}
