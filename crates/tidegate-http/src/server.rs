//! Accepting connections, and serving requests on them, within bounds.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Collected, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::access::{ApiAccess, ConnectionOrigin, UnknownCaller, operates};
use crate::answer::{AnswerBody, AnswerProgress, HeldAnswer, LARGE_ANSWER, LargeAnswers};
use crate::caller::{Caller, unauthorized};
use crate::connections::{
    AdmittedConnection, ClientStanding, ConnectionPhase, ConnectionSource, OpenConnections,
};
use crate::descriptors;
use crate::guard::{ServerNames, Unwelcome, check_body, only_reads};
use crate::listener::{AcceptedConnection, HttpListener, accept};
use crate::problem::problem;
use crate::refusals::{HttpRefusals, RefusalCause};
use crate::stream::{HandshakeFailure, ReadyConnection};
use crate::unknown_names::{BETWEEN_COMPLAINTS, UnknownNames};

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

/// The time that a connection waits while all others of its kind are being answered.
const ROOM_TIME: Duration = Duration::from_secs(2);

/// The pause before a connection without a place looks for one again.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// The mark of an answer that goes on until its client leaves, such as a stream of events: a route adds it to
/// the answer's extensions. Its client may take as long as it likes for all of it, and [`SEND_TIME`] at most
/// for the next bytes.
#[derive(Debug, Clone, Copy)]
pub struct OpenEndedAnswer;

/// An HTTP server whose clients are not trusted. Its bounds hold for all of its listeners together.
pub struct HttpServer {
    listeners: Vec<HttpListener>,
    names: ServerNames,
    public_pages: &'static [&'static str],
    operators: Option<OperatorCheck>,
    refusals: Arc<HttpRefusals>,
}

/// Returns true for the header of a request whose client has shown what its pages ask for.
type OperatorCheck = Box<dyn Fn(&HeaderMap) -> bool + Send + Sync>;

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

impl HttpServer {
    /// Serves at these listeners. `names` are those by which it may be asked.
    #[must_use]
    pub fn new(listeners: Vec<HttpListener>, names: ServerNames) -> Self {
        Self { listeners, names, public_pages: &[], operators: None, refusals: Arc::default() }
    }

    /// Gives these pages to callers that show no credentials, too. They are for GET and HEAD alone, and must
    /// hold no secrets: a browser loads a page before it can show a token.
    #[must_use]
    pub fn with_public_pages(self, public_pages: &'static [&'static str]) -> Self {
        Self { public_pages, ..self }
    }

    /// Gives clients whose request passes this check the places of operators, where pages check credentials
    /// themselves.
    #[must_use]
    pub fn with_operators(self, check: impl Fn(&HeaderMap) -> bool + Send + Sync + 'static) -> Self {
        Self { operators: Some(Box::new(check)), ..self }
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
            public_pages: self.public_pages,
            operators: self.operators,
            refusals: self.refusals,
            strangers: UnknownNames::default(),
            connections: Mutex::default(),
            answered: Notify::new(),
        });
        let (end, ending) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut complaints = Complaints::new(&self.listeners);
        let mut stop = pin!(stop);
        let mut turn = 0_usize;
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
                accepted = accept(&self.listeners, turn) => accepted,
            };
            turn = turn.wrapping_add(1);
            match accepted {
                Ok(connection) => {
                    let place = tokio::select! {
                        () = &mut stop => break,
                        place = shared.place(&connection) => place,
                    };
                    if let Some(place) = place {
                        tasks.spawn(serve_connection(connection, place, ending.clone()));
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
        drop(self.listeners);
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
    public_pages: &'static [&'static str],
    operators: Option<OperatorCheck>,
    refusals: Arc<HttpRefusals>,
    strangers: UnknownNames,
    connections: Mutex<Table>,
    /// An answer has come to its end, or a connection has.
    answered: Notify,
}

/// Open connections, the large answers that they hold, and how each is told to end.
#[derive(Default)]
struct Table {
    connections: OpenConnections,
    large: LargeAnswers,
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

    /// Returns true if a request is answered without credentials.
    fn is_public(&self, request: &Parts) -> bool {
        [Method::GET, Method::HEAD].contains(&request.method)
            && self.public_pages.contains(&request.uri.path())
    }

    /// Returns true if a page of another site learns nothing from an answer, whatever the name that it asks by:
    /// the answer has no secrets, or takes credentials that the page does not have.
    fn is_open_to_pages(&self, origin: Option<&KnownOrigin>, request: &Parts) -> bool {
        let takes_credentials = origin.is_some_and(|(_, origin)| {
            *origin != ConnectionOrigin::Loopback || request.headers.contains_key(header::AUTHORIZATION)
        });
        takes_credentials || self.is_public(request) || self.shows_operator(&request.headers)
    }

    /// Returns true if a request shows what pages ask for that check credentials themselves.
    fn shows_operator(&self, headers: &HeaderMap) -> bool {
        self.operators.as_ref().is_some_and(|check| check(headers))
    }

    /// Returns a place for a new connection. If all others are being answered, it waits for the end of an
    /// answer. Connections that come later wait in the kernel's queue meanwhile, in their order.
    async fn place(self: &Arc<Self>, connection: &AcceptedConnection) -> Option<Place> {
        let standing = match connection.source {
            ConnectionSource::User(uid) if operates(uid) => ClientStanding::Operator,
            ConnectionSource::User(_) | ConnectionSource::Network(_) => ClientStanding::Unknown,
        };
        if standing != ClientStanding::Operator && descriptors::is_reserved(connection.descriptor()) {
            self.refuse(RefusalCause::Descriptors);
            self.make_room();
            return None;
        }
        let admitted = timeout(ROOM_TIME, async {
            loop {
                if let Some(place) = self.admit(connection.source, standing) {
                    return place;
                }
                self.room().await;
            }
        });
        let place = admitted.await.ok();
        if place.is_none() {
            self.refuse(RefusalCause::Full);
        }
        place
    }

    /// Waits until there may be room: an answer has come to its end, or its client has taken it.
    async fn room(&self) {
        let _ = timeout(ROOM_PAUSE, self.answered.notified()).await;
    }

    fn admit(self: &Arc<Self>, source: ConnectionSource, standing: ClientStanding) -> Option<Place> {
        let mut table = self.table();
        let progress = Arc::new(AnswerProgress::default());
        let admitted = table.connections.admit(source, standing, Arc::clone(&progress), Instant::now());
        let id = self.admitted(&mut table, admitted)?;
        let displaced = Arc::new(Notify::new());
        table.ends.push((id, Arc::clone(&displaced)));
        drop(table);
        let shared = Arc::clone(self);
        Some(Place { shared, id, source, progress, displaced, asked: AtomicBool::new(false) })
    }

    /// Ends the connection that makes room for another one. Returns that one's number.
    fn admitted(&self, table: &mut Table, admitted: AdmittedConnection) -> Option<u64> {
        match admitted {
            AdmittedConnection::Open(id) => Some(id),
            AdmittedConnection::InPlaceOf(id, displaced) => {
                table.end(displaced);
                self.refuse(RefusalCause::Displaced);
                Some(id)
            }
            AdmittedConnection::Full => None,
        }
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
    source: ConnectionSource,
    progress: Arc<AnswerProgress>,
    displaced: Arc<Notify>,
    /// True once a complete request came.
    asked: AtomicBool,
}

impl Place {
    fn enter(&self, phase: ConnectionPhase) {
        self.shared.table().connections.enter(self.id, phase, Instant::now());
        if phase == ConnectionPhase::Sending {
            self.shared.answered.notify_waiters();
        }
    }

    /// Moves to a place of this standing. Returns false if there is none for some time.
    async fn settle(&self, standing: ClientStanding) -> bool {
        let settled = timeout(ROOM_TIME, async {
            while !self.try_to_settle(standing) {
                self.shared.room().await;
            }
        });
        let is_settled = settled.await.is_ok();
        if !is_settled {
            self.shared.refuse(RefusalCause::Full);
        }
        is_settled
    }

    fn try_to_settle(&self, standing: ClientStanding) -> bool {
        let mut table = self.shared.table();
        let settled = table.connections.settle(self.id, standing, Instant::now());
        self.shared.admitted(&mut table, settled).is_some()
    }

    /// Makes an answer ready for the client. A large one counts until the client has taken it.
    async fn hand_over(&self, answer: Response, standing: ClientStanding) -> Response<AnswerBody> {
        let (parts, body) = answer.into_parts();
        let is_large = body.size_hint().exact().is_some_and(|length| length >= LARGE_ANSWER);
        let answer = if is_large && standing != ClientStanding::Operator {
            // Such a body is there already.
            let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
            if self.hold(bytes.as_ptr().addr()) { Response::from_parts(parts, bytes.into()) } else { busy() }
        } else {
            Response::from_parts(parts, body)
        };
        answer.map(|body| AnswerBody::new(body, Arc::clone(&self.progress)))
    }

    /// Keeps a large answer for the client. Clients that have not taken the oldest one for long lose their
    /// connection for it.
    fn hold(&self, identity: usize) -> bool {
        let mut table = self.shared.table();
        let displaced = match table.large.hold(identity, self.id, &self.progress, Instant::now()) {
            HeldAnswer::Held => return true,
            HeldAnswer::InPlaceOf(displaced) => displaced,
            HeldAnswer::Full => {
                self.shared.refuse(RefusalCause::Full);
                return false;
            }
        };
        for id in displaced {
            table.end(id);
            self.shared.refuse(RefusalCause::Slow);
        }
        true
    }

    /// Returns true if its answer has been on the way for too long. If the client took the answer, the server
    /// waits for the next request, and that wait ends earlier.
    fn is_stuck(&self) -> bool {
        let since = match self.shared.table().connections.phase(self.id) {
            Some((ConnectionPhase::Sending, since)) => since,
            Some((ConnectionPhase::Streaming, since)) => since.max(self.progress.last_taken()),
            Some((ConnectionPhase::Waiting | ConnectionPhase::Answering, _)) | None => return false,
        };
        since.elapsed() >= SEND_TIME
    }

    /// Makes a connection ready for requests; `None`: it is over.
    async fn ready(&self, connection: AcceptedConnection) -> Option<ReadyConnection> {
        match connection.ready(Arc::clone(&self.progress)).await {
            Ok(ready) => Some(ready),
            Err(HandshakeFailure::Late) => {
                self.shared.refuse(RefusalCause::Slow);
                None
            }
            Err(HandshakeFailure::Failed(error)) => {
                tracing::debug!("a TLS handshake with {} failed: {error}", self.source);
                self.shared.refuse(RefusalCause::Handshake);
                None
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.connections.close(self.id);
        table.large.release(self.id);
        table.ends.retain(|(id, _)| *id != self.id);
        drop(table);
        self.shared.answered.notify_waiters();
    }
}

async fn serve_connection(connection: AcceptedConnection, place: Place, mut ending: watch::Receiver<bool>) {
    let ready = tokio::select! {
        ready = place.ready(connection) => ready,
        () = place.displaced.notified() => return,
    };
    let Some(ReadyConnection { stream, origin }) = ready else { return };
    let service = service_fn(|request| answer(&place, origin.as_ref(), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(LARGEST_HEADER);
    // A client that has closed its sending side after a request still gets the answer.
    builder.half_close(true);
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

/// The credentials that a listener asks for, and the origin of one of its connections.
type KnownOrigin = (Arc<ApiAccess>, ConnectionOrigin);

async fn answer(
    place: &Place,
    origin: Option<&KnownOrigin>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    place.progress.restart();
    place.shared.table().large.release(place.id);
    let (response, standing) = match checked(place, origin, request).await {
        Ok((request, standing)) => {
            place.asked.store(true, Ordering::Relaxed);
            place.enter(ConnectionPhase::Answering);
            let router = TowerToHyperService::new(place.shared.router.clone());
            let response = match timeout(ANSWER_TIME, router.call(request)).await {
                Ok(Ok(response)) => response,
                Err(_) => {
                    problem(StatusCode::SERVICE_UNAVAILABLE, "no-answer", "the service does not answer")
                }
            };
            (response, standing)
        }
        Err(refused) => (refused, ClientStanding::Unknown),
    };
    let is_open_ended = response.extensions().get::<OpenEndedAnswer>().is_some();
    let response = place.hand_over(response, standing).await;
    place.enter(if is_open_ended { ConnectionPhase::Streaming } else { ConnectionPhase::Sending });
    Ok(response)
}

/// The answer to a client for which there is no room.
fn busy() -> Response {
    let why = "too many clients are being answered: ask again later";
    let mut answer = problem(StatusCode::SERVICE_UNAVAILABLE, "busy", why);
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// A request whose header may be carried out, whose caller is known, and all of whose body has arrived.
async fn checked(
    place: &Place,
    origin: Option<&KnownOrigin>,
    request: Request<Incoming>,
) -> Result<(Request<Body>, ClientStanding), Response> {
    let (mut parts, body) = request.into_parts();
    let welcome = match origin {
        Some((_, ConnectionOrigin::Process { .. })) => check_body(&parts),
        _ if only_reads(&parts.method) && place.shared.is_open_to_pages(origin, &parts) => Ok(()),
        Some(_) | None => place.shared.names.check(&parts, place.source.is_remote()),
    };
    if let Err(unwelcome) = welcome {
        if unwelcome == Unwelcome::OtherHost {
            place.shared.strangers.complain(place.source, &parts, place.shared.names.key());
        }
        return Err(problem(unwelcome.status(), unwelcome.code(), &unwelcome.to_string()));
    }
    if let Some((access, origin)) = origin.filter(|_| !place.shared.is_public(&parts)) {
        match access.caller(origin, &parts.headers) {
            Ok(caller) => {
                caller.map(|caller| parts.extensions.insert(caller));
            }
            Err(unknown) => {
                if unknown == UnknownCaller::Token {
                    tracing::warn!(
                        "{}: a request over HTTP shows a token that is not accepted",
                        place.source
                    );
                }
                return Err(unauthorized(&unknown.to_string()));
            }
        }
    }
    let is_operator =
        Caller::is_operator(parts.extensions.get()) || place.shared.shows_operator(&parts.headers);
    let standing = if is_operator { ClientStanding::Operator } else { ClientStanding::Reader };
    if !place.settle(standing).await {
        return Err(busy());
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
    Ok((Request::from_parts(parts, Body::from(body)), standing))
}

/// The log messages about refused connections: once a minute, with their number.
struct Complaints {
    addresses: String,
    next: Instant,
    told: u64,
    next_failure: Instant,
}

impl Complaints {
    fn new(listeners: &[HttpListener]) -> Self {
        let now = Instant::now();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.address().to_string()).collect();
        Self { addresses: addresses.join(", "), next: now, told: 0, next_failure: now }
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
            "HTTP at {}: {more} connections refused or closed before their answer (in all: {causes}); look \
                for a \
             client that opens connections and sends no request",
            self.addresses
        );
    }

    fn cannot_accept(&mut self, error: &io::Error) {
        let now = Instant::now();
        if now >= self.next_failure {
            self.next_failure = now + BETWEEN_COMPLAINTS;
            tracing::error!("HTTP at {}: cannot accept connections: {error}", self.addresses);
        }
    }
}
