//! Connections that have been greeted and have not asked for anything yet.
//!
//! Each costs a descriptor and some bytes, no thread, so that a flood of connections that say nothing does
//! not keep out clients that are slow. When a client has asked for something, its handshake goes on in a
//! thread of its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Resource, getrlimit};
use rustix::time::Timespec;
use tidegate_nbd::handshake::ServerHandshake;

use crate::crowd::ConnectionCrowd;
use crate::endpoint::AcceptedConnection;

/// A client's flags and the head of its first option.
const FIRST_WORDS: usize = 20;

/// The flags of clients that the protocol knows.
const KNOWN_FLAGS: u32 = 3;

const HANG_UP: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// Events taken at once.
const EVENTS: usize = 256;

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// An event at the doorstep.
#[derive(Debug, Clone, Copy)]
pub(super) enum DoorstepEvent {
    /// The endpoint is to be closed.
    Stop,
    /// A connection can be accepted.
    Arrival,
    /// A visitor said something, or hung up.
    Visitor { id: u64, hung_up: bool },
}

/// A connection, and the handshake that has begun on it.
#[derive(Debug)]
pub(super) struct DoorstepVisitor {
    pub(super) connection: AcceptedConnection,
    pub(super) server: ServerHandshake,
    pub(super) deadline: Instant,
}

/// The state in which a visitor is found.
#[derive(Debug)]
pub(super) enum VisitorState {
    /// It has asked for something.
    Asks(Box<DoorstepVisitor>),
    /// It has hung up.
    Left,
    /// It has not said enough yet.
    Waits,
}

/// The visitors of one endpoint.
#[derive(Debug)]
pub(super) struct Doorstep {
    epoll: OwnedFd,
    visitors: ConnectionCrowd<Box<DoorstepVisitor>>,
    limit: usize,
}

impl Doorstep {
    /// # Errors
    /// When the system has no descriptor left.
    pub(super) fn new(listener: BorrowedFd<'_>, stop: BorrowedFd<'_>, limit: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        // The rest is for sessions, files and the service's other sockets.
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(descriptors / 4).unwrap_or(usize::MAX);
        Ok(Self { epoll, visitors: ConnectionCrowd::default(), limit: limit.min(most).max(1) })
    }

    pub(super) fn len(&self) -> usize {
        self.visitors.len()
    }

    /// Waits for events, at most until the first deadline.
    pub(super) fn wait(&self, events: &mut Vec<DoorstepEvent>) {
        let deadline = self.visitors.oldest().map(|(_, visitor)| visitor.deadline);
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let mut ready = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        // An interrupted wait has no events; the caller waits again.
        let count = epoll::wait(&self.epoll, &mut ready, timeout.as_ref()).unwrap_or(0);
        events.clear();
        events.extend(ready[..count].iter().map(|event| match event.data.u64() {
            LISTENER => DoorstepEvent::Arrival,
            STOP => DoorstepEvent::Stop,
            id => DoorstepEvent::Visitor { id, hung_up: !(event.flags & HANG_UP).is_empty() },
        }));
    }

    /// Greets a newcomer. With too many visitors one is displaced, and returned.
    ///
    /// # Errors
    /// When the newcomer cannot be greeted.
    pub(super) fn welcome(
        &mut self,
        connection: AcceptedConnection,
        deadline: Instant,
    ) -> io::Result<Option<Box<DoorstepVisitor>>> {
        let mut server = ServerHandshake::with_tls(connection.tls);
        // The buffer of a new socket has room for a greeting.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = send(connection.stream.as_fd(), server.output(), flags)?;
        server.sent(sent);
        let displaced = if self.visitors.len() >= self.limit { self.visitors.displace() } else { None };
        let source = connection.client.source;
        let id = self.visitors.enter(source, Box::new(DoorstepVisitor { connection, server, deadline }));
        // By edges: some of the first words, which stay in the socket, cause no further events.
        let interest = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if let Some(visitor) = self.visitors.get(id)
            && let Err(error) =
                epoll::add(&self.epoll, visitor.connection.stream.as_fd(), EventData::new_u64(id), interest)
        {
            self.visitors.remove(id);
            return Err(error.into());
        }
        Ok(displaced)
    }

    /// Looks at what a visitor has said. The words stay in its socket.
    pub(super) fn look_at(&mut self, id: u64, hung_up: bool) -> VisitorState {
        let Some(visitor) = self.visitors.get(id) else { return VisitorState::Waits };
        let socket = visitor.connection.stream.as_fd();
        let mut words = [0; FIRST_WORDS];
        let heard = recv(socket, &mut words, RecvFlags::PEEK | RecvFlags::DONTWAIT).map(|(_, count)| count);
        let unknown_flags =
            |words: &[u8]| words.first_chunk().is_some_and(|flags| u32::from_be_bytes(*flags) > KNOWN_FLAGS);
        let asks = match heard {
            // What cannot be understood is refused at once.
            Ok(count) if count >= FIRST_WORDS || unknown_flags(&words[..count]) => true,
            Ok(count) if count > 0 && !hung_up => return VisitorState::Waits,
            Err(Errno::AGAIN | Errno::INTR) if !hung_up => return VisitorState::Waits,
            Ok(_) | Err(_) => false,
        };
        // Another handle on the socket would go on causing events.
        let _ = epoll::delete(&self.epoll, socket);
        match self.visitors.remove(id) {
            Some(visitor) if asks => VisitorState::Asks(visitor),
            _ => VisitorState::Left,
        }
    }

    /// The next visitor whose time is over.
    pub(super) fn expired(&mut self, now: Instant) -> Option<Box<DoorstepVisitor>> {
        let (id, _) = self.visitors.oldest().filter(|(_, visitor)| visitor.deadline <= now)?;
        self.visitors.remove(id)
    }

    /// Makes room when descriptors have run out.
    pub(super) fn displace(&mut self) -> Option<Box<DoorstepVisitor>> {
        self.visitors.displace()
    }
}
