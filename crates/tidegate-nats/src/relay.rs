//! The connection to a server, and the relay between it and the client library.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectOptions, ServerAddr};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::guard::{LONGEST_LINE, ProtocolViolation, ServerGuard};
use crate::servers::NatsServers;

/// The time for a server to take what we send. Nothing is read from it meanwhile.
const STALL: Duration = Duration::from_secs(10);

/// The time for a relay to say why it has ended, once its connection has.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Bytes that are moved at once.
const PIECE: usize = 16 << 10;

/// The encryption of a connection.
pub enum Encryption {
    /// The connection is encrypted, whatever the server says.
    Required(Arc<ClientConfig>),
    /// The connection is encrypted if the server or its address says so.
    IfAsked(fn() -> Result<Arc<ClientConfig>, Box<dyn Error + Send + Sync>>),
}

/// The reason why there is no connection to a server.
#[derive(Debug, Error)]
pub enum NatsError {
    /// The server cannot be reached, or the connection has failed.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The server sends what no server of NATS sends.
    #[error("{0}")]
    Violation(#[source] ProtocolViolation),
    /// The server did not answer in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The certificates for an encrypted connection cannot be used.
    #[error("{0}")]
    Certificates(#[source] Box<dyn Error + Send + Sync>),
    /// The server has refused us.
    #[error("{0}")]
    Refused(#[source] ConnectError),
}

impl From<io::Error> for NatsError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ProtocolViolation> for NatsError {
    fn from(violation: ProtocolViolation) -> Self {
        Self::Violation(violation)
    }
}

/// The relay of a connection. It ends with the connection, whether it is waited for or not.
#[derive(Debug)]
pub struct Relay(JoinHandle<Result<(), NatsError>>);

impl Relay {
    /// Waits until the connection has ended, and returns the reason, if the server gave one.
    pub async fn end(self) -> Option<NatsError> {
        self.0.await.ok().and_then(Result::err)
    }
}

trait ServerStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ServerStream for T {}

/// A server that has introduced itself.
struct ReachedServer {
    stream: Box<dyn ServerStream>,
    is_encrypted: bool,
    /// The line with which it did, for a client that speaks to it through a relay.
    info: Vec<u8>,
    /// The same as the server sent it.
    introduction: Value,
    /// The bytes that came after the line.
    rest: Vec<u8>,
}

/// Connects to the first server that answers in its part of the time: a configured one, or after as much time
/// again one that was announced. The connection is not made again when it ends.
///
/// # Errors
/// When no server can be used: the error is the last configured server's.
pub async fn connect(
    options: ConnectOptions,
    servers: &NatsServers,
    encryption: &Encryption,
    patience: Duration,
) -> Result<(Client, Relay), NatsError> {
    let mut of_group = None;
    for group in servers.groups() {
        let part = patience / u32::try_from(group.len()).unwrap_or(u32::MAX).max(1);
        let mut last = None;
        for server in &group {
            let attempt =
                async { introduce(options.clone(), reach(server, encryption).await?, servers).await };
            match timeout(part, attempt).await.unwrap_or(Err(NatsError::Silent(part))) {
                Ok(connected) => return Ok(connected),
                Err(error) => last = Some(error),
            }
        }
        of_group = of_group.or(last);
    }
    Err(of_group.unwrap_or_else(|| NatsError::Io(io::Error::other("no server is named"))))
}

/// Connects to a server, reads its introduction, and begins the encryption.
async fn reach(server: &str, encryption: &Encryption) -> Result<ReachedServer, NatsError> {
    let address: ServerAddr = server.parse()?;
    let mut last = io::Error::other("its name has no address");
    let mut connected = None;
    for socket in address.socket_addrs().await? {
        match TcpStream::connect(socket).await {
            Ok(stream) => {
                connected = Some(stream);
                break;
            }
            Err(error) => last = error,
        }
    }
    let mut stream = connected.ok_or(last)?;
    stream.set_nodelay(true)?;
    let (line, rest) = first_line(&mut stream).await?;
    let info = line.strip_prefix(b"INFO ").ok_or(ProtocolViolation::UnknownLine)?;
    let introduction: Value = serde_json::from_slice(info).map_err(io::Error::from)?;
    let is_asked = introduction["tls_required"] == true || address.tls_required();
    let settings = match encryption {
        Encryption::Required(settings) => Some(Arc::clone(settings)),
        Encryption::IfAsked(settings) if is_asked => Some(settings().map_err(NatsError::Certificates)?),
        Encryption::IfAsked(_) => None,
    };
    let mut info = introduction.clone();
    let fields = info.as_object_mut().ok_or(ProtocolViolation::UnknownLine)?;
    // For the library the relay is the server: there is no other, and it encrypts nothing.
    for field in ["tls_required", "tls_available", "tls_verify", "connect_urls", "ws_connect_urls"] {
        fields.remove(field);
    }
    let info = format!("INFO {info}\r\n").into_bytes();
    let Some(settings) = settings else {
        return Ok(ReachedServer { stream: Box::new(stream), is_encrypted: false, info, introduction, rest });
    };
    if !rest.is_empty() {
        return Err(ProtocolViolation::BeforeEncryption.into());
    }
    let name = ServerName::try_from(address.host().to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(settings).connect(name, stream).await?;
    Ok(ReachedServer { stream: Box::new(stream), is_encrypted: true, info, introduction, rest })
}

/// Reads a line of a bounded length, and whatever came with it.
async fn first_line(stream: &mut TcpStream) -> Result<(Vec<u8>, Vec<u8>), NatsError> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
            let rest = bytes.split_off(end + 2);
            bytes.truncate(end);
            return Ok((bytes, rest));
        }
        if bytes.len() > LONGEST_LINE {
            return Err(ProtocolViolation::LongLine.into());
        }
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).await?;
        if length == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        bytes.extend_from_slice(&piece[..length]);
    }
}

/// Has the client library connect to a server, by a relay.
async fn introduce(
    options: ConnectOptions,
    server: ReachedServer,
    servers: &NatsServers,
) -> Result<(Client, Relay), NatsError> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(loopback).await?;
    let address = listener.local_addr()?;
    // Other users of the machine can connect there, too. The library comes from an address that was free a
    // moment ago, and no other program does.
    let local = TcpListener::bind(loopback).await?.local_addr()?;
    let (introduction, is_encrypted) = (server.introduction.clone(), server.is_encrypted);
    let learning = servers.clone();
    let mut relay = tokio::spawn(async move {
        loop {
            let (client, peer) = listener.accept().await?;
            if peer == local {
                drop(listener);
                return move_bytes(server, client, &learning).await;
            }
        }
    });
    let options =
        options.require_tls(false).ignore_discovered_servers().max_reconnects(1).local_address(local);
    match options.connect(format!("nats://{address}")).await {
        Ok(client) => {
            // A host on the way can change what comes before the encryption, and have a genuine certificate of
            // its own for the addresses that it adds.
            if !is_encrypted {
                servers.learn(&introduction, is_encrypted);
            }
            Ok((client, Relay(relay)))
        }
        Err(error) => match timeout(LAST_WORD, &mut relay).await {
            // The library knows only that the connection has ended.
            Ok(Ok(Err(reason))) => Err(reason),
            Ok(_) => Err(NatsError::Refused(error)),
            Err(_) => {
                relay.abort();
                Err(NatsError::Refused(error))
            }
        },
    }
}

/// Moves bytes between a server and the client library until one of them ends the connection.
async fn move_bytes(
    server: ReachedServer,
    mut client: TcpStream,
    servers: &NatsServers,
) -> Result<(), NatsError> {
    let ReachedServer { mut stream, is_encrypted, info, rest, .. } = server;
    client.set_nodelay(true)?;
    client.write_all(&info).await?;
    let mut guard = ServerGuard::default();
    let mut passed = Vec::new();
    guard.admit(&rest, &mut passed)?;
    client.write_all(&passed).await?;
    let (mut said, mut heard) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        tokio::select! {
            // A server that takes no answers is not listened to: they would pile up in the library.
            biased;
            length = client.read(&mut said) => {
                let length = length?;
                if length == 0 {
                    return Ok(());
                }
                let sent = async {
                    stream.write_all(&said[..length]).await?;
                    stream.flush().await
                };
                timeout(STALL, sent).await.map_err(|_| NatsError::Silent(STALL))??;
            }
            length = stream.read(&mut heard) => {
                let length = length?;
                if length == 0 {
                    return Ok(());
                }
                passed.clear();
                let left_out = guard.left_out;
                guard.admit(&heard[..length], &mut passed)?;
                // A server introduces itself again when others of its site come or go.
                if let Some(Ok(introduction)) = guard.introduction.take().map(|text| serde_json::from_slice(&text)) {
                    servers.learn(&introduction, is_encrypted);
                }
                if left_out == 0 && guard.left_out > 0 {
                    tracing::warn!("a server of NATS sends messages that are too large for us: they are left out");
                }
                client.write_all(&passed).await?;
            }
        }
    }
}
