//! Accepting connections, and serving requests on them, within bounds.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::connections::{AdmittedConnection, ConnectionPhase, OpenConnections};
use crate::descriptors;
use crate::guard::ServerNames;
use crate::problem::problem;
use crate::refusals::{HttpRefusals, RefusalCause};

/// The time that a client has for the header of a request, from its connection or its last answer on.
pub const HEADER_TIME: Duration = Duration::from_secs(5);

/// The time that a client has for the body of a request.
pub const BODY_TIME: Duration = Duration::from_secs(5);

/// The time that a service has for an answer. Every page bounds its own work far below it.
pub const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The time that a client has to take its answer, before its next request is waited for.
pub const SEND_TIME: Duration = Duration::from_secs(15);

/// The largest body of a request: some hundred contracts, or a wish with a thousand nodes that must not carry
/// it.
pub const LARGEST_BODY: usize = 64 * 1024;

/// The largest header: a token of 4 KiB has room in it.
const LARGEST_HEADER: usize = 16 * 1024;

/// The time that answers on the way have at the end.
const END_TIME: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted, so that a lack of descriptors costs no processor.
const PAUSE: Duration = Duration::from_millis(100);

/// The time that a new connection waits while all others are being answered.
const ROOM_TIME: Duration = Duration::from_secs(2);

/// The same complaint is made this often.
const BETWEEN_COMPLAINTS: Duration = Duration::from_secs(60);

/// An HTTP server whose clients are not trusted.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    names: ServerNames,
    refusals: Arc<HttpRefusals>,
}

impl HttpServer {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn bind(address: SocketAddr, names: ServerNames) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, names, refusals: Arc::default() })
    }

    /// The address that it listens on, with its real port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters of refused connections.
    #[must_use]
    pub fn refusals(&self) -> Arc<HttpRefusals> {
        Arc::clone(&self.refusals)
    }

    /// Serves until `stop` is done, and then for as long as answers on the way take, but a few seconds at
    /// most.
    pub async fn serve(self, router: Router, stop: impl Future<Output = ()>) {
        let shared = Arc::new(Shared {
            router,
            names: self.names,
            refusals: self.refusals,
            connections: Mutex::default(),
            answered: Notify::new(),
        });
        let (end, ending) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut complaints = Complaints::new(self.address);
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    let place = tokio::select! {
                        () = &mut stop => break,
                        place = shared.place(&stream, from) => place,
                    };
                    if let Some(place) = place {
                        tasks.spawn(serve_connection(stream, place, ending.clone()));
                    }
                    // Every connection is read from before the next is accepted: its request may be there
                    // already.
                    yield_now().await;
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    shared.refuse(RefusalCause::Descriptors);
                    shared.make_room();
                    complaints.cannot_accept(&error);
                    sleep(PAUSE).await;
                }
            }
            complaints.about(&shared.refusals);
        }
        drop(self.listener);
        end.send_replace(true);
        // Those that are left after that are dropped with their tasks.
        let _ = timeout(END_TIME, async { while tasks.join_next().await.is_some() {} }).await;
    }
}

/// Returns true if the connection failed, and not this process.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// The same for all connections of a server.
struct Shared {
    router: Router,
    names: ServerNames,
    refusals: Arc<HttpRefusals>,
    connections: Mutex<Table>,
    /// An answer has come to its end, or a connection has.
    answered: Notify,
}

/// Open connections, and how each is told to end.
#[derive(Default)]
struct Table {
    connections: OpenConnections,
    ends: Vec<(u64, Arc<Notify>)>,
}

impl Table {
    fn end(&mut self, id: u64) {
        if let Some(at) = self.ends.iter().position(|(known, _)| *known == id) {
            self.ends.swap_remove(at).1.notify_one();
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it has the lock.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, cause: RefusalCause) {
        self.refusals.count(cause);
    }

    /// Returns a place for a new connection. If all others are being answered, it waits for the end of an
    /// answer. Connections that come later wait in the kernel's queue meanwhile, in their order.
    async fn place(self: &Arc<Self>, stream: &TcpStream, from: SocketAddr) -> Option<Place> {
        if descriptors::is_reserved(stream.as_raw_fd()) {
            self.refuse(RefusalCause::Descriptors);
            self.make_room();
            return None;
        }
        let admitted = timeout(ROOM_TIME, async {
            loop {
                let answered = self.answered.notified();
                if let Some(place) = self.admit(from) {
                    return place;
                }
                answered.await;
            }
        });
        let place = admitted.await.ok();
        if place.is_none() {
            self.refuse(RefusalCause::Full);
        }
        place
    }

    fn admit(self: &Arc<Self>, from: SocketAddr) -> Option<Place> {
        let mut table = self.table();
        let id = match table.connections.admit(from.ip(), Instant::now()) {
            AdmittedConnection::Open(id) => id,
            AdmittedConnection::InPlaceOf(id, displaced) => {
                table.end(displaced);
                self.refuse(RefusalCause::Displaced);
                id
            }
            AdmittedConnection::Full => return None,
        };
        let displaced = Arc::new(Notify::new());
        table.ends.push((id, Arc::clone(&displaced)));
        drop(table);
        Some(Place { shared: Arc::clone(self), id, displaced, asked: AtomicBool::new(false) })
    }

    /// Ends the oldest connection without a request, so that its descriptor is free.
    fn make_room(&self) {
        let mut table = self.table();
        if let Some(id) = table.connections.remove_oldest(Instant::now()) {
            table.end(id);
        }
    }
}

/// A connection's place among the others, which is free again when this is dropped.
struct Place {
    shared: Arc<Shared>,
    id: u64,
    displaced: Arc<Notify>,
    /// True once a complete request came.
    asked: AtomicBool,
}

impl Place {
    fn enter(&self, phase: ConnectionPhase) {
        self.shared.table().connections.enter(self.id, phase, Instant::now());
        if phase == ConnectionPhase::Sending {
            self.shared.answered.notify_one();
        }
    }

    /// Returns true if its answer has been on the way for too long. If the client took the answer, the server
    /// waits for the next request, and that wait ends earlier.
    fn is_stuck(&self) -> bool {
        let since = self.shared.table().connections.sending_since(self.id);
        since.is_some_and(|since| since.elapsed() >= SEND_TIME)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.connections.close(self.id);
        table.ends.retain(|(id, _)| *id != self.id);
        drop(table);
        self.shared.answered.notify_one();
    }
}

async fn serve_connection(stream: TcpStream, place: Place, mut ending: watch::Receiver<bool>) {
    let service = service_fn(|request| answer(&place, request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(LARGEST_HEADER);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        tokio::select! {
            outcome = connection.as_mut() => {
                let is_slow = outcome.is_err_and(|error| error.is_timeout());
                if is_slow && !place.asked.load(Ordering::Relaxed) {
                    place.shared.refuse(RefusalCause::Slow);
                }
                return;
            }
            () = place.displaced.notified() => return,
            () = sleep(SEND_TIME) => {
                if place.is_stuck() {
                    place.shared.refuse(RefusalCause::Slow);
                    return;
                }
            }
            Ok(()) = ending.changed() => connection.as_mut().graceful_shutdown(),
        }
    }
}

async fn answer(place: &Place, request: Request<Incoming>) -> Result<Response, Infallible> {
    let response = match checked(place, request).await {
        Ok(request) => {
            place.asked.store(true, Ordering::Relaxed);
            place.enter(ConnectionPhase::Answering);
            let router = TowerToHyperService::new(place.shared.router.clone());
            match timeout(ANSWER_TIME, router.call(request)).await {
                Ok(Ok(response)) => response,
                Err(_) => {
                    problem(StatusCode::SERVICE_UNAVAILABLE, "no-answer", "the service does not answer")
                }
            }
        }
        Err(refused) => refused,
    };
    place.enter(ConnectionPhase::Sending);
    Ok(response)
}

/// A request whose header may be carried out, and all of whose body has arrived.
async fn checked(place: &Place, request: Request<Incoming>) -> Result<Request<Body>, Response> {
    let (parts, body) = request.into_parts();
    if let Err(unwelcome) = place.shared.names.check(&parts) {
        return Err(problem(unwelcome.status(), unwelcome.code(), &unwelcome.to_string()));
    }
    let body = match timeout(BODY_TIME, Limited::new(body, LARGEST_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("a request has at most {LARGEST_BODY} bytes");
            return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "too-long", &why));
        }
        Ok(Err(error)) => {
            let why = format!("the body of the request did not arrive: {error}");
            return Err(problem(StatusCode::BAD_REQUEST, "not-understood", &why));
        }
        Err(_) => {
            place.shared.refuse(RefusalCause::Slow);
            let why = format!("the body of the request did not arrive within {} s", BODY_TIME.as_secs());
            return Err(problem(StatusCode::REQUEST_TIMEOUT, "too-slow", &why));
        }
    };
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// The log messages about refused connections: once a minute, with their number.
struct Complaints {
    address: SocketAddr,
    next: Instant,
    told: u64,
    next_failure: Instant,
}

impl Complaints {
    fn new(address: SocketAddr) -> Self {
        let now = Instant::now();
        Self { address, next: now, told: 0, next_failure: now }
    }

    fn about(&mut self, refusals: &HttpRefusals) {
        let total = refusals.total();
        let now = Instant::now();
        if total == self.told || now < self.next {
            return;
        }
        self.next = now + BETWEEN_COMPLAINTS;
        let more = total - std::mem::replace(&mut self.told, total);
        let causes =
            RefusalCause::ALL.map(|cause| format!("{} {}", refusals.of(cause), cause.name())).join(", ");
        tracing::warn!(
            "http://{}: {more} connections refused or closed before their answer (in all: {causes}); look \
                for a \
             client that opens connections and sends no request",
            self.address
        );
    }

    fn cannot_accept(&mut self, error: &io::Error) {
        let now = Instant::now();
        if now >= self.next_failure {
            self.next_failure = now + BETWEEN_COMPLAINTS;
            tracing::error!("http://{}: cannot accept connections: {error}", self.address);
        }
    }
}
