//! The client of a running service: over a Unix socket, over TCP, or by TLS.

mod address;
mod error;
mod options;
mod peer;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_http::BearerToken;
use tidegate_tls::ClientTls;
use tidegate_units::visible;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub(crate) use address::ServiceAddress;
pub(crate) use error::ServiceError;
pub(crate) use options::{CallerOptions, ServiceOptions, token_of, url_of_environment};
pub(crate) use peer::PeerTrust;

/// The time that a service has for an answer. It gives up itself after five seconds, and says so.
const PATIENCE: Duration = Duration::from_secs(7);

/// The size of the largest answer: the status of some hundred thousand consumers.
const LARGEST: usize = 64 << 20;

/// The answer of a service.
#[derive(Debug)]
pub(crate) struct ServiceAnswer {
    /// The address that gave it.
    pub(crate) address: ServiceAddress,
    /// How far the process that gave it is known.
    pub(crate) trust: PeerTrust,
    /// Without characters that people do not see.
    pub(crate) body: String,
}

impl ServiceAnswer {
    /// Reads the answer as JSON; `what` names it in the error.
    pub(crate) fn read<T: DeserializeOwned>(&self, what: &str) -> Result<T, ServiceError> {
        let document = serde_json::from_str(&self.body).and_then(|document| {
            // A text in JSON may have any character by its number.
            serde_json::from_value(with_visible_texts(document))
        });
        document.map_err(|error| {
            let what = format!("its answer is no {what}: {error}");
            ServiceError::Another { address: self.address.clone(), what }
        })
    }
}

/// Asks a running service.
#[derive(Debug)]
pub(crate) struct ServiceClient {
    /// The addresses to try, in this order, until one takes the connection.
    endpoints: Vec<Endpoint>,
    token: Option<BearerToken>,
    patience: Duration,
    largest: usize,
}

/// An address, and the TLS that it takes.
#[derive(Debug, Clone)]
struct Endpoint {
    address: ServiceAddress,
    tls: Option<ClientTls>,
    /// True if the caller named the address, or a file with it: then a stranger's program may be asked questions, too.
    is_named: bool,
}

/// Plain or encrypted bytes.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The reasons why a request has no answer.
enum Failure {
    /// The connection was not made, so that nothing was asked.
    NotThere(io::Error),
    /// Any user's program may listen there, so that nothing was asked.
    Stranger(String),
    /// TLS was not agreed on, so that nothing was asked.
    Handshake(io::Error),
    /// The connection broke.
    Broken(hyper::Error),
    /// The answer cannot be read.
    Body(Box<dyn std::error::Error + Send + Sync>),
}

impl ServiceClient {
    /// Asks at this address, without TLS and without a token.
    pub(crate) fn at(address: ServiceAddress) -> Self {
        Self::new(vec![Endpoint { address, tls: None, is_named: true }], None)
    }

    /// Returns the address that is asked first.
    pub(crate) fn address(&self) -> String {
        self.endpoints.first().map(|endpoint| endpoint.address.to_string()).unwrap_or_default()
    }

    /// Returns the Unix socket that is asked first.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match &self.endpoints.first()?.address {
            ServiceAddress::Unix(path) => Some(path),
            ServiceAddress::Http(_) | ServiceAddress::Https(_) => None,
        }
    }

    fn new(endpoints: Vec<Endpoint>, token: Option<BearerToken>) -> Self {
        Self { endpoints, token, patience: PATIENCE, largest: LARGEST }
    }

    /// Waits for an answer this long.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Takes an answer of this size.
    pub(crate) fn with_largest(self, largest: usize) -> Self {
        Self { largest, ..self }
    }

    /// Asks for a page.
    pub(crate) fn get(&self, page: &str) -> Result<ServiceAnswer, ServiceError> {
        self.ask(&Method::GET, page, None)
    }

    fn ask(&self, method: &Method, page: &str, body: Option<&str>) -> Result<ServiceAnswer, ServiceError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServiceError::System)?;
        runtime.block_on(async {
            let deadline = Instant::now() + self.patience;
            let mut first = None;
            for endpoint in &self.endpoints {
                let left = deadline.saturating_duration_since(Instant::now());
                let asked = self.exchange(endpoint, method, page, body);
                let address = || endpoint.address.clone();
                let error = match timeout(left, asked).await {
                    Ok(Ok((trust, status, body))) => return answered(address(), trust, status, body),
                    // Nothing was asked there, so that the next one may be.
                    Ok(Err(Failure::NotThere(source))) => {
                        ServiceError::NotThere { address: address(), source }
                    }
                    Ok(Err(Failure::Stranger(why))) => {
                        // Says more than that nothing is at another address.
                        first = None;
                        ServiceError::Stranger { address: address(), why }
                    }
                    Ok(Err(failure)) => return Err(failure.at(address())),
                    Err(_) => {
                        return Err(ServiceError::Silent { address: address(), patience: self.patience });
                    }
                };
                first.get_or_insert(error);
            }
            Err(first.unwrap_or_else(|| ServiceError::System(io::ErrorKind::AddrNotAvailable.into())))
        })
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        method: &Method,
        page: &str,
        body: Option<&str>,
    ) -> Result<(PeerTrust, StatusCode, Bytes), Failure> {
        let (stream, trust) = endpoint.connect().await?;
        let is_question = method == Method::GET;
        if let PeerTrust::Unknown(why) = &trust
            && !(is_question && endpoint.is_named)
        {
            return Err(Failure::Stranger(why.clone()));
        }
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(Failure::Broken)?;
        let mut request = Request::builder()
            .method(method)
            .uri(page)
            .header(header::HOST, endpoint.address.host())
            .header(header::CONNECTION, "close");
        if let Some(token) = self.token.as_ref().filter(|_| !matches!(trust, PeerTrust::Unknown(_))) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.as_str()));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        // A page has no characters that a request cannot have: names in it are encoded.
        let invalid = |error: hyper::http::Error| Failure::Body(error.into());
        let request =
            request.body(Full::<Bytes>::from(body.unwrap_or_default().to_owned())).map_err(invalid)?;
        // It ends with the runtime.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(Failure::Broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), self.largest).collect().await.map_err(Failure::Body)?;
        Ok((trust, status, body.to_bytes()))
    }

    /// Sends a question or a command.
    pub(crate) fn post(&self, page: &str, document: &impl Serialize) -> Result<ServiceAnswer, ServiceError> {
        self.ask(&Method::POST, page, Some(&json(document)))
    }

    /// Changes parts of what has this page.
    pub(crate) fn patch(&self, page: &str, document: &impl Serialize) -> Result<ServiceAnswer, ServiceError> {
        self.ask(&Method::PATCH, page, Some(&json(document)))
    }

    /// Removes what has this page.
    pub(crate) fn delete(&self, page: &str) -> Result<ServiceAnswer, ServiceError> {
        self.ask(&Method::DELETE, page, None)
    }
}

impl Endpoint {
    async fn connect(&self) -> Result<(Box<dyn Stream>, PeerTrust), Failure> {
        let authority = match &self.address {
            ServiceAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(Failure::NotThere)?;
                let trust = PeerTrust::of_unix(path, &stream);
                return Ok((Box::new(stream), trust));
            }
            ServiceAddress::Http(authority) | ServiceAddress::Https(authority) => authority,
        };
        let stream = TcpStream::connect(authority).await.map_err(Failure::NotThere)?;
        let Some(tls) = &self.tls else {
            let trust = PeerTrust::of_tcp(&stream);
            return Ok((Box::new(stream), trust));
        };
        let (settings, server) = tls.settings();
        let stream = TlsConnector::from(settings).connect(server, stream).await;
        Ok((Box::new(stream.map_err(Failure::Handshake)?), PeerTrust::Believed))
    }
}

impl Failure {
    fn at(self, address: ServiceAddress) -> ServiceError {
        match self {
            Self::NotThere(source) => ServiceError::NotThere { address, source },
            Self::Stranger(why) => ServiceError::Stranger { address, why },
            Self::Handshake(source) => ServiceError::Handshake { address, source },
            Self::Broken(error) if error.is_parse() => {
                ServiceError::Another { address, what: "the answer is not HTTP".to_owned() }
            }
            Self::Broken(error) => ServiceError::Broken { address, why: reason(&error) },
            Self::Body(error) if error.is::<LengthLimitError>() => {
                ServiceError::Another { address, what: "its answer is too large".to_owned() }
            }
            Self::Body(error) => ServiceError::Broken { address, why: reason(&*error) },
        }
    }
}

/// The error with its cause, which says what the system said.
fn reason(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Returns a document whose texts have no characters that people do not see.
fn with_visible_texts(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(visible(&text).into_owned()),
        Value::Array(values) => values.into_iter().map(with_visible_texts).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (visible(&name).into_owned(), with_visible_texts(value)))
            .collect(),
        other => other,
    }
}

fn answered(
    address: ServiceAddress,
    trust: PeerTrust,
    status: StatusCode,
    body: Bytes,
) -> Result<ServiceAnswer, ServiceError> {
    #[derive(Deserialize)]
    struct Problem {
        error: String,
    }
    let line = format!("HTTP/1.1 {status}");
    let Ok(body) = String::from_utf8(body.into()) else {
        return Err(ServiceError::Another { address, what: "its answer is no text".to_owned() });
    };
    let body = visible(&body).into_owned();
    if status.is_success() {
        return Ok(ServiceAnswer { address, trust, body });
    }
    match serde_json::from_str::<Problem>(&body) {
        Ok(Problem { error }) => {
            let said = visible(&error).into_owned();
            Err(match status {
                StatusCode::SERVICE_UNAVAILABLE => ServiceError::Unavailable { address, said },
                _ => ServiceError::Refused { address, status: status.as_u16(), said },
            })
        }
        Err(_) => Err(ServiceError::Another { address, what: line }),
    }
}

fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("documents have names for keys")
}

/// Returns a page with a query.
pub(crate) fn with_query(page: &str, query: &[(&str, String)]) -> String {
    match serde_urlencoded::to_string(query) {
        Ok(query) if !query.is_empty() => format!("{page}?{query}"),
        _ => page.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener};
    use std::thread::{self, JoinHandle};

    use super::*;

    /// A server that answers whatever it is asked.
    fn answering(answer: &'static str) -> (ServiceClient, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ServiceAddress::Http(listener.local_addr().unwrap().to_string());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut part) = (Vec::new(), [0; 1024]);
            while !asked.ends_with(b"\r\n\r\n") {
                let length = stream.read(&mut part).unwrap();
                asked.extend_from_slice(&part[..length]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            // Closed with something unread, the connection would be reset, and the answer lost.
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut asked);
        });
        (ServiceClient::at(address), server)
    }

    #[test]
    fn whoever_else_answers_is_not_taken_for_a_service() {
        for (answer, said) in [
            ("SSH-2.0-OpenSSH_9\r\n", "is no Tidegate service: the answer is not HTTP"),
            ("HTTP/1.1 404 Not Found\r\n\r\nno", "is no Tidegate service: HTTP/1.1 404 Not Found"),
            ("HTTP/1.1 404 Not Found\r\n\r\n{\"error\": \"no such pool\"}", "refuses (404): no such pool"),
            ("HTTP/1.1 503 Busy\r\n\r\n<html>", "is no Tidegate service: HTTP/1.1 503 Service Unavailable"),
            (
                "HTTP/1.1 503 Busy\r\n\r\n{\"error\": \"the service does not answer: it is stopping, or \
                    overloaded\"}",
                ": the service does not answer: it is stopping, or overloaded; its log says more",
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "broke off"),
        ] {
            let (client, server) = answering(answer);
            let error = client.get("/v1/status").unwrap_err().to_string();
            assert!(error.contains(said), "{answer}: {error}");
            server.join().unwrap();
        }
    }

    #[test]
    fn an_answer_that_is_too_large_is_not_kept() {
        let (client, server) = answering("HTTP/1.1 200 OK\r\n\r\n0123456789");
        let error = client.with_largest(9).get("/").unwrap_err().to_string();
        assert!(error.contains("its answer is too large"), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn the_next_address_is_asked_where_nothing_listens_at_the_first() {
        // Bound and released: nothing listens there.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let gone = Endpoint { address: ServiceAddress::Http(gone), tls: None, is_named: true };
        let (there, server) = answering("HTTP/1.1 200 OK\r\n\r\nhere");
        let endpoints = [&gone, &there.endpoints[0]].map(Clone::clone).to_vec();
        assert_eq!(ServiceClient::new(endpoints, None).get("/").unwrap().body, "here");
        server.join().unwrap();
        let error = ServiceClient::new(vec![gone], None).get("/").unwrap_err();
        assert!(matches!(error, ServiceError::NotThere { .. }), "{error}");
        assert!(error.to_string().contains("is `tidegate serve` or `tidegate agent` running"), "{error}");
    }

    #[test]
    fn a_query_has_its_values_encoded() {
        let query = [("name", "a b&c=d".to_owned()), ("at", "14:00".to_owned())];
        assert_eq!(with_query("/v1/explain", &query), "/v1/explain?name=a+b%26c%3Dd&at=14%3A00");
        assert_eq!(with_query("/v1/explain", &[]), "/v1/explain");
    }
}
