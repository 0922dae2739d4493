//! The presence of an agent in a network namespace, as throttles of packets belong to one.
//!
//! An agent and its guardian listen at an abstract socket, which is gone with the last of the two processes.
//! Any user of the network namespace can bind such a name, and so keep an agent from it. So an agent takes
//! another name then, and a name counts only if the kernel says that its socket is root's, this user's or a
//! service's. No program connects to find out: strangers may fill the queue of an agent's socket. A kernel
//! without the module `unix_diag` does not say it. Then the processes that have the socket open tell whose it is,
//! and a socket that may be an agent's counts.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_host::AbstractSocket;
use tidegate_sockets::holders;
use tidegate_sockets::trust::is_believed;

/// Sockets whose owners are looked up at most, since each takes a look at all processes.
const MOST_LOOKED_UP: usize = 8;

/// The name of the socket. If another user has that, a dot and a random number follow.
const NAME: &str = "tidegate-agent";

/// The shortest and the longest pause between two attempts. Two agents that start at the same time have
/// different pauses.
const PAUSE_MILLIS: [u64; 2] = [20, 40];

/// A living agent, or the guardian of one that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivingAgent {
    /// The number of the agent's process, as far as it is seen from here.
    pub process: Option<u32>,
    /// True if the agent is of an earlier version, whose limits of cgroups have no claim that is seen.
    pub is_older: bool,
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
}

fn random() -> u64 {
    // Each state has random keys.
    RandomState::new().build_hasher().finish()
}

/// Returns an agent that lives in this network namespace, or whose guardian does.
///
/// # Errors
/// When the kernel does not tell.
pub fn living_agent() -> io::Result<Option<LivingAgent>> {
    other_than("")
}

/// Returns the agent whose listening socket has another name than this one.
fn other_than(own: &str) -> io::Result<Option<LivingAgent>> {
    /// A stranger may have a thousand names, and agents are looked for again and again.
    static TOLD: Once = Once::new();
    let is_other = |socket: &AbstractSocket| !(socket.is_listening && socket.name == own.as_bytes());
    let (sockets, mut looked_up) = (AbstractSocket::find(is_agents)?, 0);
    let (agents, strangers): (Vec<_>, Vec<_>) = sockets
        .into_iter()
        .filter(is_other)
        .filter(|socket| socket.is_listening || is_older(socket))
        .partition(|socket| may_be_agents(socket, &mut looked_up));
    if let Some(stranger) = strangers.first() {
        TOLD.call_once(|| {
            let name = String::from_utf8_lossy(&stranger.name);
            let user = stranger.user.map_or("another user".to_owned(), |user| format!("user {user}"));
            let others = strangers.len() - 1;
            tracing::info!(
                "the socket @{name} is not an agent's, but {user}'s, and is ignored; others: {others}"
            );
        });
    }
    Ok(agents.first().map(|socket| LivingAgent {
        process: holders::of_socket(socket.inode).first().map(|holder| holder.process),
        is_older: is_older(socket),
    }))
}

/// Returns false if a socket is surely a stranger's. Owners that the kernel does not tell are looked up among all
/// processes, [`MOST_LOOKED_UP`] of them; a stranger may have a thousand sockets.
fn may_be_agents(socket: &AbstractSocket, looked_up: &mut usize) -> bool {
    let users = || {
        let holders = holders::of_socket(socket.inode).into_iter();
        holders.filter_map(|holder| Some(fs::metadata(format!("/proc/{}", holder.process)).ok()?.uid()))
    };
    match socket.user {
        Some(user) => is_believed(user),
        // An agent never gives its socket to a stranger. Other users' processes may not be seen from here.
        None => {
            *looked_up += 1;
            *looked_up > MOST_LOOKED_UP || users().next().is_none() || users().any(is_believed)
        }
    }
}

/// Returns true if a socket is as agents had it before they listened at one: it takes datagrams.
fn is_older(socket: &AbstractSocket) -> bool {
    !socket.is_listening && socket.name == NAME.as_bytes()
}

/// Returns true if an agent's socket may have this name.
fn is_agents(name: &[u8]) -> bool {
    name.strip_prefix(NAME.as_bytes()).is_some_and(|number| {
        number.is_empty()
            || number
                .strip_prefix(b".")
                .is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn a_socket_that_the_kernel_tells_no_owner_of_is_a_strangers_only_if_strangers_have_it() {
        let address = SocketAddr::from_abstract_name(format!("tidegate-test-{}", std::process::id()));
        let listener = UnixListener::bind_addr(&address.unwrap()).unwrap();
        let link = fs::metadata(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let inode = u32::try_from(link.ino()).unwrap();
        let socket = AbstractSocket { name: Vec::new(), user: None, inode, is_listening: true };
        assert!(may_be_agents(&socket, &mut 0), "this process does not find itself");
        let mut sleep = Command::new("sleep");
        sleep.arg("60").stdin(OwnedFd::from(listener));
        // Only root can start a stranger's program.
        let is_root = geteuid().is_root();
        if is_root {
            sleep.uid(65_534);
        }
        let mut sleep = sleep.spawn().unwrap();
        let may_be = may_be_agents(&socket, &mut 0);
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert_eq!(may_be, !is_root);
    }

    #[test]
    fn only_names_of_agents_are_meant() {
        for (name, expected) in [
            (&b"tidegate-agent"[..], true),
            (b"tidegate-agent.0123456789abcdef", true),
            (b"tidegate-agent.0", false),
            (b"tidegate-agent.0123456789abcdeg", false),
            (b"tidegate-agents", false),
            (b"\xff tidegate-agent", false),
        ] {
            assert_eq!(is_agents(name), expected, "{}", name.escape_ascii());
        }
    }
}
