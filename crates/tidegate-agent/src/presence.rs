//! The presence of an agent in a network namespace, as throttles of packets belong to one.
//!
//! An agent and its guardian listen at an abstract socket, which is gone with the last of the two processes.
//! Any user of the network namespace can bind such a name, and so keep an agent from it. So an agent takes
//! another name then, and a name counts only if the kernel says that its listener is root's, this user's or a
//! service's.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tidegate_sockets::peer::Peer;
use tidegate_sockets::trust::is_believed;

/// The name of the socket. If another user has that, a dot and a random number follow.
const NAME: &str = "tidegate-agent";

/// The shortest and the longest pause between two attempts. Two agents that start at the same time have
/// different pauses.
const PAUSE_MILLIS: [u64; 2] = [20, 40];

/// The most connections that are taken at once.
const MOST_CONNECTIONS: usize = 64;

/// A living agent, or the guardian of one that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivingAgent {
    /// The number of the agent's process, as far as it is seen from here.
    pub process: Option<u32>,
}

/// The presence of this process, and of others that have its descriptor.
#[derive(Debug)]
pub(super) struct Presence {
    socket: UnixListener,
}

impl Presence {
    /// Makes this process the only agent of its network namespace. Waits this long for another one to go.
    ///
    /// # Errors
    /// When the system refuses. Returns the other agent if there still is one.
    pub(super) fn take(patience: Duration) -> io::Result<Result<Self, LivingAgent>> {
        let deadline = Instant::now() + patience;
        loop {
            let attempt = Self::attempt()?;
            if attempt.is_ok() || Instant::now() >= deadline {
                return Ok(attempt);
            }
            // Nothing tells when an agent is gone.
            let [shortest, longest] = PAUSE_MILLIS;
            thread::sleep(Duration::from_millis(shortest + random() % (longest - shortest)));
        }
    }

    fn attempt() -> io::Result<Result<Self, LivingAgent>> {
        if let Some(other) = other_than("")? {
            return Ok(Err(other));
        }
        let bind = |name: &str| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
        let mut name = NAME.to_owned();
        let socket = loop {
            match bind(&name) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    name = format!("{NAME}.{:016x}", random());
                }
                bound => break bound?,
            }
        };
        socket.set_nonblocking(true)?;
        // Another agent may have started between.
        Ok(match other_than(&name)? {
            Some(other) => Err(other),
            None => Ok(Self { socket }),
        })
    }

    /// Returns a descriptor for a process that is to be present, too.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }

    /// Ends the connections of processes that looked: each one has a place until then.
    pub(super) fn answer(&self) {
        for _ in 0..MOST_CONNECTIONS {
            if self.socket.accept().is_err() {
                return;
            }
        }
    }
}

fn random() -> u64 {
    // Each state has random keys.
    RandomState::new().build_hasher().finish()
}

/// Returns an agent that lives in this network namespace, or whose guardian does.
///
/// # Errors
/// When the system does not tell.
pub fn living_agent() -> io::Result<Option<LivingAgent>> {
    other_than("")
}

/// Returns the agent that has another name than this one.
fn other_than(own: &str) -> io::Result<Option<LivingAgent>> {
    let sockets = match fs::read("/proc/net/unix") {
        // Without /proc, as an image may run, only the usual name can be asked.
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!("  @{NAME}").into_bytes(),
        read => read?,
    };
    let names = sockets.split(|byte| *byte == b'\n').filter_map(name_in);
    for name in names.filter(|name| *name != own) {
        if let Some(agent) = listener(name)? {
            return Ok(Some(agent));
        }
    }
    Ok(None)
}

/// Returns the name of an agent's socket in a line of `/proc/net/unix`.
fn name_in(line: &[u8]) -> Option<&str> {
    let line = str::from_utf8(line).ok()?;
    let name = line.rsplit_once(" @")?.1;
    let number = name.strip_prefix(NAME)?;
    let is_own = number.is_empty()
        || number
            .strip_prefix('.')
            .is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_own.then_some(name)
}

/// Returns the agent that listens at this name, unless the name is a stranger's.
fn listener(name: &str) -> io::Result<Option<LivingAgent>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connection = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&connection, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Ok(()) => {}
        // Gone meanwhile.
        Err(Errno::CONNREFUSED) => return Ok(None),
        // Another kind of socket, or one that takes no connection: agents answer several times a second.
        Err(error) => {
            tracing::warn!("the socket @{name} is not an agent's ({error}), and is ignored");
            return Ok(None);
        }
    }
    let Peer { user, process } = Peer::of(&connection)?;
    if !is_believed(user) {
        tracing::warn!("the socket @{name} is not an agent's, but user {user}'s, and is ignored");
        return Ok(None);
    }
    Ok(Some(LivingAgent { process }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_agents_are_asked() {
        let line = |name: &str| format!("0000: 00000002 00000000 00010000 0001 01 4711 {name}");
        for (name, expected) in [
            ("@tidegate-agent", Some("tidegate-agent")),
            ("@tidegate-agent.0123456789abcdef", Some("tidegate-agent.0123456789abcdef")),
            ("@tidegate-agent.0", None),
            ("@tidegate-agents", None),
            ("/run/tidegate-agent", None),
        ] {
            assert_eq!(name_in(line(name).as_bytes()), expected, "{name}");
        }
        assert_eq!(name_in(b"\xff @tidegate-agent"), None);
    }
}
