//! The messages of a service to systemd: it is ready, reads its configuration again, ends, or lives
//! (sd_notify(3)).
//!
//! The socket is opened once, so that a service without descriptors can still say that it lives, and nothing
//! waits for systemd.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Signs of life in the time in which systemd wants one.
const SIGNS: u32 = 4;

/// The time that the end of a service may take beyond the limit that it gives.
const MARGIN: Duration = Duration::from_secs(10);

/// The supervisor of this process. Without one nothing is said.
#[derive(Debug)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    /// The time in which it wants a sign of life.
    watchdog: Option<Duration>,
    told: Instant,
}

impl Supervisor {
    /// Returns the supervisor that the environment names. One that cannot be reached counts as none: it would
    /// end this service in its own time.
    pub fn of_this_process() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|address| {
            let socket = connect(&address);
            socket.inspect_err(|error| tracing::warn!("systemd cannot be told anything: {error}")).ok()
        });
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_meant = number("WATCHDOG_PID").is_none_or(|process| process == u64::from(process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_meant).map(Duration::from_micros);
        Self { socket, watchdog, told: Instant::now() }
    }

    /// Everything is served, for the first time or after a reload. Sockets of systemd that the configuration
    /// does not name are logged: their clients would wait for ever.
    pub fn ready(&self) {
        for socket in tidegate_sockets::unused() {
            tracing::warn!("systemd listens on {socket}, and no key of the configuration names that address");
        }
        self.tell("READY=1");
    }

    /// The configuration is being read again; [`ready`](Self::ready) follows.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The service ends, which may take so long.
    pub fn stopping(&self, limit: Duration) {
        let micros = (limit + MARGIN).as_micros();
        let mut text = format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}");
        if self.watchdog.is_some() {
            // Writing to a text does not fail.
            let _ = write!(text, "\nWATCHDOG_USEC={micros}");
        }
        self.tell(&text);
    }

    /// The thread that calls this has done its work: called at least once a second.
    pub fn lives(&mut self) {
        if self.watchdog.is_some_and(|watchdog| self.told.elapsed() >= watchdog / SIGNS) {
            self.told = Instant::now();
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // One that takes nothing now is told that the service lives some seconds later.
            let _ = socket.send(text.as_bytes());
        }
    }
}

/// An address that begins with `@` is abstract.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
