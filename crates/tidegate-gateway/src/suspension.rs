//! Suspended sessions: what the next process of a service must know to go on with the connections of this
//! one.
//!
//! The state is one file in memory: a line of JSON about all sessions, then the bytes of each that are still
//! to be read. A socket is recognised by its inode, since nothing says in which order descriptors arrive.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::net::Shutdown;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_nbd::transmission::MessageStyle;
use tidegate_nbd::{BlockSizes, ExportGeometry, SessionTerms, TransmissionFlags};
use tidegate_sockets::aside::PeerSocket;
use tidegate_units::ConsumerName;
use tracing::info;

use crate::access::KnownClient;
use crate::config::{ListenConfig, ListenEndpoint, TlsUse};
use crate::directory::{ExportDirectory, SeatReservation};
use crate::endpoint::SocketClient;
use crate::identity::VolumeIdentity;
use crate::worker::door::{NewSession, WorkerCommand};

/// The version of the state. A process that finds another one closes the sessions. Version 1 did not say which
/// volume a session had.
const VERSION: u32 = 2;

/// The longest line of JSON that is read: far more than a table of descriptors allows.
const LONGEST_INDEX: u64 = 64 << 20;

/// A session without its gateway: an open connection, and what its client has been told.
#[derive(Debug)]
pub struct SuspendedSession {
    pub(crate) socket: Arc<PeerSocket>,
    pub(crate) consumer: ConsumerName,
    pub(crate) peer: String,
    pub(crate) volume: VolumeIdentity,
    pub(crate) terms: SessionTerms,
    /// Bytes that were received, and not carried out.
    pub(crate) unread: Vec<u8>,
}

impl SuspendedSession {
    /// Returns the connection to its client.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The reasons why suspended sessions cannot be gone on with.
#[derive(Debug, Error)]
pub enum SuspensionError {
    /// The state cannot be read.
    #[error("their state cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The state is none.
    #[error("their state cannot be understood: {0}")]
    Json(#[from] serde_json::Error),
    /// Another version of the program has written the state.
    #[error("their state has version {0}; this program knows version {VERSION}")]
    Version(u32),
}

#[derive(Debug, Serialize, Deserialize)]
struct StateIndex {
    version: u32,
    sessions: Vec<StateEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StateEntry {
    inode: u64,
    consumer: ConsumerName,
    peer: String,
    volume: VolumeIdentity,
    size: u64,
    flags: u16,
    /// The least, the preferred and the largest block.
    blocks: [u32; 3],
    style: StateStyle,
    allocation: Option<u32>,
    #[serde(default)]
    hears_shutdown: bool,
    unread: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StateStyle {
    Simple,
    Structured,
    Extended,
}

impl StateEntry {
    fn new(session: &SuspendedSession) -> io::Result<Self> {
        let SessionTerms { geometry, style, allocation, hears_shutdown } = session.terms;
        let blocks = geometry.blocks;
        Ok(Self {
            inode: inode(&*session.socket)?,
            consumer: session.consumer.clone(),
            peer: session.peer.clone(),
            volume: session.volume.clone(),
            size: geometry.size,
            flags: geometry.flags.bits(),
            blocks: [blocks.minimum(), blocks.preferred(), blocks.maximum()],
            style: match style {
                MessageStyle::Simple => StateStyle::Simple,
                MessageStyle::Structured => StateStyle::Structured,
                MessageStyle::Extended => StateStyle::Extended,
            },
            allocation,
            hears_shutdown,
            unread: session.unread.len() as u64,
        })
    }

    fn terms(&self) -> io::Result<SessionTerms> {
        let [minimum, preferred, maximum] = self.blocks;
        let blocks = BlockSizes::new(minimum, preferred, maximum).map_err(io::Error::other)?;
        let flags = TransmissionFlags::from_bits(self.flags);
        Ok(SessionTerms {
            geometry: ExportGeometry { size: self.size, flags, blocks },
            style: match self.style {
                StateStyle::Simple => MessageStyle::Simple,
                StateStyle::Structured => MessageStyle::Structured,
                StateStyle::Extended => MessageStyle::Extended,
            },
            hears_shutdown: self.hears_shutdown,
            allocation: self.allocation,
        })
    }
}

/// Writes the state of sessions for another process, which gets their sockets beside it.
///
/// # Errors
/// When there is no memory or descriptor for it.
pub fn store(sessions: &[SuspendedSession]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("tidegate-sessions", MemfdFlags::CLOEXEC)?);
    let entries = sessions.iter().map(StateEntry::new).collect::<io::Result<_>>()?;
    let index = StateIndex { version: VERSION, sessions: entries };
    file.write_all(format!("{}\n", serde_json::to_string(&index)?).as_bytes())?;
    for session in sessions {
        file.write_all(&session.unread)?;
    }
    Ok(file.into())
}

/// Reads the state that [`store`] has written, and finds the socket of each session. A session whose socket
/// is not here has ended meanwhile; sockets without a session are closed.
///
/// # Errors
/// When the state cannot be read, or is of another version.
pub fn load(state: OwnedFd, sockets: Vec<OwnedFd>) -> Result<Vec<SuspendedSession>, SuspensionError> {
    let mut file = File::from(state);
    file.rewind()?;
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    let mut line = String::new();
    reader.by_ref().take(LONGEST_INDEX).read_line(&mut line)?;
    // The version first: the rest of another version may look otherwise.
    #[derive(Deserialize)]
    struct StateVersion {
        version: u32,
    }
    let StateVersion { version } = serde_json::from_str(&line)?;
    if version != VERSION {
        return Err(SuspensionError::Version(version));
    }
    let index: StateIndex = serde_json::from_str(&line)?;
    let mut sockets: Vec<(u64, PeerSocket)> = sockets
        .into_iter()
        .map(|socket| Ok((inode(&socket)?, PeerSocket::new(socket))))
        .collect::<io::Result<_>>()?;
    let mut sessions = Vec::new();
    for entry in index.sessions {
        if entry.unread > length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut unread = vec![0; entry.unread as usize];
        reader.read_exact(&mut unread)?;
        let terms = entry.terms()?;
        let Some(place) = sockets.iter().position(|(inode, _)| *inode == entry.inode) else { continue };
        let socket = Arc::new(sockets.swap_remove(place).1);
        let StateEntry { consumer, peer, volume, .. } = entry;
        sessions.push(SuspendedSession { socket, consumer, peer, volume, terms, unread });
    }
    Ok(sessions)
}

fn inode(descriptor: impl AsFd) -> io::Result<u64> {
    Ok(fstat(descriptor)?.st_ino)
}

/// Opens a session anew for a connection that has one. Returns false if its client is refused.
pub(crate) fn resume(
    session: SuspendedSession,
    directory: &ExportDirectory,
    listen: &[ListenConfig],
) -> bool {
    let (consumer, peer) = (session.consumer.clone(), session.peer.clone());
    let socket = Arc::clone(&session.socket);
    let outcome = enter(session, directory, listen);
    if let Err(reason) = &outcome {
        info!(export = %consumer, peer, "suspended session closed: {reason}");
        // Fails only when the client is gone.
        let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
    }
    outcome.is_ok()
}

fn enter(
    session: SuspendedSession,
    directory: &ExportDirectory,
    listen: &[ListenConfig],
) -> Result<(), String> {
    let SuspendedSession { socket, consumer, peer, volume, mut terms, unread } = session;
    if needs_tls(&socket, listen) {
        return Err("its endpoint requires TLS now".to_owned());
    }
    let SocketClient { source, origin } = SocketClient::of(&*socket).map_err(|error| error.to_string())?;
    let client = KnownClient { origin, names: None };
    let (export, reserved) =
        directory.find_consumer(&consumer, &client, source).map_err(|refusal| refusal.reason().to_owned())?;
    if !volume.is_same(&reserved.volume) {
        return Err(format!(
            "its client has had {volume}, and the export is {} now: the client must connect again; if this is \
             not meant, correct the configuration and restart",
            reserved.volume
        ));
    }
    let now = SessionTerms::told(export.geometry, terms.style, terms.allocation);
    still_true(&terms.geometry, &now.geometry)?;
    if now.geometry.blocks.serves_parts() {
        terms.geometry.blocks = terms.geometry.blocks.with_parts();
    }
    let SeatReservation { export, slot, pin, .. } = reserved;
    let door = Arc::clone(slot.door());
    let session = NewSession {
        socket,
        peer,
        export,
        terms,
        disk: None,
        device: None,
        already: unread,
        relayed: false,
        slot: Arc::new(slot),
        _pin: pin,
    };
    let sent = door.send(WorkerCommand::Session(Box::new(session)));
    if sent { Ok(()) } else { Err("its pool has failed".to_owned()) }
}

/// Compares what a client was told of an export with what is true now.
fn still_true(told: &ExportGeometry, now: &ExportGeometry) -> Result<(), String> {
    if told.size > now.size {
        return Err(format!("the export was {} bytes long, and is {} now", told.size, now.size));
    }
    if told.blocks.minimum() < now.blocks.minimum() || told.blocks.maximum() > now.blocks.maximum() {
        return Err("the export has other block sizes now".to_owned());
    }
    let read_only = |geometry: &ExportGeometry| geometry.flags.contains(TransmissionFlags::READ_ONLY);
    if read_only(told) != read_only(now) || !now.flags.contains(told.flags) {
        return Err("the export can do other things now".to_owned());
    }
    Ok(())
}

/// Returns true if a connection without TLS came by an endpoint that requires it now.
fn needs_tls(socket: &PeerSocket, listen: &[ListenConfig]) -> bool {
    let Ok(own) = rustix::net::getsockname(socket) else { return false };
    let mut required = listen.iter().filter(|listen| listen.tls == TlsUse::Required);
    match std::net::SocketAddr::try_from(own.clone()) {
        Ok(own) => required.any(
            |listen| matches!(&listen.endpoint, ListenEndpoint::Tcp(address) if address.port() == own.port()),
        ),
        Err(_) => {
            let own = rustix::net::SocketAddrUnix::try_from(own).ok();
            let path = own.as_ref().and_then(|own| own.path_bytes());
            required.any(|listen| match &listen.endpoint {
                ListenEndpoint::Unix(endpoint) => path == Some(endpoint.as_os_str().as_encoded_bytes()),
                ListenEndpoint::Tcp(_) => false,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn suspended(consumer: &str, unread: &[u8]) -> SuspendedSession {
        let geometry = ExportGeometry {
            size: 1 << 30,
            flags: TransmissionFlags::SEND_FLUSH,
            blocks: BlockSizes::DEFAULT,
        };
        SuspendedSession {
            socket: Arc::new(PeerSocket::new(UnixStream::pair().unwrap().0.into())),
            consumer: consumer.parse().unwrap(),
            peer: "someone".to_owned(),
            volume: VolumeIdentity::of_emulated_device(),
            terms: SessionTerms::told(geometry, MessageStyle::Extended, Some(7)),
            unread: unread.to_vec(),
        }
    }

    /// Descriptors arrive in any order, and some do not arrive.
    #[test]
    fn sessions_are_found_again_by_their_sockets() {
        let sessions =
            [suspended("one", b"\n\0first"), suspended("gone", b"lost"), suspended("two", b"second")];
        let state = store(&sessions).unwrap();
        let duplicate = |session: &SuspendedSession| session.socket().try_clone_to_owned().unwrap();
        let stranger: OwnedFd = UnixStream::pair().unwrap().0.into();
        let sockets = vec![duplicate(&sessions[2]), stranger, duplicate(&sessions[0])];
        let loaded = load(state, sockets).unwrap();
        let [one, two] = &loaded[..] else { panic!("{loaded:?}") };
        for (loaded, session) in [(one, &sessions[0]), (two, &sessions[2])] {
            assert_eq!(loaded.consumer, session.consumer);
            assert_eq!((&loaded.peer, loaded.terms), (&session.peer, session.terms));
            assert_eq!(loaded.unread, session.unread);
            assert_eq!(inode(loaded.socket()).unwrap(), inode(session.socket()).unwrap());
        }
    }

    #[test]
    fn state_that_is_none_and_of_another_version_is_refused() {
        let file = |text: &str| {
            let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
            file.write_all(text.as_bytes()).unwrap();
            OwnedFd::from(file)
        };
        let refused = |text: &str| load(file(text), Vec::new()).unwrap_err().to_string();
        assert!(refused(r#"{"version":1,"sessions":7}"#).contains("version 1"));
        assert!(refused("nothing").contains("cannot be understood"));
        let entry = r#"{"inode":1,"consumer":"a","peer":"","volume":{"place":"","key":"emulated"},"size":1,"flags":0,"blocks":[1,4096,65536],"#;
        let short = format!(
            "{{\"version\":2,\"sessions\":[{entry}\"style\":\"simple\",\"allocation\":null,\"unread\":9}}]}}\n12345678"
        );
        assert!(refused(&short).contains("cannot be read"));
    }

    #[test]
    fn a_client_goes_on_only_with_an_export_that_is_as_it_was_told() {
        let told = suspended("one", b"").terms.geometry;
        assert_eq!(still_true(&told, &told), Ok(()));
        let more = told.flags | TransmissionFlags::SEND_TRIM;
        assert_eq!(still_true(&told, &ExportGeometry { size: told.size + 1, flags: more, ..told }), Ok(()));
        let read_only = told.flags | TransmissionFlags::READ_ONLY;
        let large = BlockSizes::new(512, 4096, BlockSizes::DEFAULT.maximum()).unwrap();
        for other in [
            ExportGeometry { size: told.size - 1, ..told },
            ExportGeometry { flags: TransmissionFlags::NONE, ..told },
            ExportGeometry { flags: read_only, ..told },
            ExportGeometry { blocks: large, ..told },
        ] {
            assert!(still_true(&told, &other).is_err(), "{other:?}");
        }
    }
}
