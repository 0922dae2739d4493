//! `tidegate agent`: regulates this machine's storage for those who use it over the network (Bjørgeengen).
//!
//! Nothing of it is in the data path. It reads counters, decides, and holds packets to those who may be held; while all is
//! well there is nothing in the kernel but the sets of who would be.

mod config;
mod pattern;
mod regulator;
mod resource;
mod survey;
mod watch;

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant as Clock};

use thiserror::Error;
use tidegate_host::sense::session::Target;
use tidegate_host::throttle::{Found, Guardian, PacketDelay, undo};
use tidegate_host::{ReadError, Root};
use tidegate_units::Instant;

pub use config::{AgentConfig, ResourceConfig, Storage, is_agents};
pub use pattern::{Pattern, PatternError};
pub use regulator::{Regulator, Step};
pub use resource::SetUpError;
pub use survey::{Finding, ResourceFinding, Survey};

use crate::config::ConfigError;
use crate::journal::Journal;
use crate::signals::{self, Signal};

/// The same complaint is made this often.
const BETWEEN_COMPLAINTS: Duration = Duration::from_secs(60);

/// Events that wait.
const MOST_EVENTS: usize = 64;

/// Why the agent did not start, or ended otherwise than on request.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A resource cannot be set up.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// This machine's storage cannot be seen.
    #[error("cannot see this machine's storage: {0}")]
    Blind(#[from] ReadError),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// What an earlier agent left behind cannot be removed: it would go on holding.
    #[error("cannot remove what was left in the kernel: {0}; root or CAP_NET_ADMIN is needed")]
    Reconcile(io::Error),
    /// Two agents would undo each other's work.
    #[error(
        "an agent holds in this network namespace already; end that first, or set `dry_run` for all resources"
    )]
    AnotherAgent,
    /// What says that this agent runs cannot be made.
    #[error("cannot make sure that no other agent runs: {0}")]
    Alone(io::Error),
    /// Without one nobody would let go when the agent dies.
    #[error("cannot start the guardian: {0}")]
    Guardian(io::Error),
    /// Traffic control cannot be used.
    #[error("cannot use traffic control: {0}")]
    Throttle(io::Error),
}

/// How the guardian is started: this program, and what makes it call [`tidegate_host::throttle::guard`].
#[derive(Debug, Clone)]
pub struct GuardianCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<&'static str>,
}

/// Regulates until SIGTERM or SIGINT, then lets go of everybody. SIGHUP reads the configuration again.
///
/// # Errors
/// When it cannot start; nothing is held then.
pub fn run(path: &Path, guardian: &GuardianCommand) -> Result<(), AgentError> {
    let config = AgentConfig::load(path)?;
    let (sender, events) = mpsc::sync_channel(MOST_EVENTS);
    signals::receive(sender, |signal| signal).map_err(AgentError::Signals)?;
    let regulator = Regulator::new(Root::default(), &config)?;
    let acts = config.resources.iter().any(|resource| !resource.law.dry_run);
    let throttle = if acts { Some(Throttle::start(&config, guardian)?) } else { None };
    let mut agent = Agent {
        path: path.to_owned(),
        regulator,
        config,
        throttle,
        journal: Journal::default(),
        complaints: Complaints::default(),
        begin: Clock::now(),
    };
    agent.introduce();
    agent.regulate(&events);
    agent.end();
    Ok(())
}

#[derive(Debug)]
struct Agent {
    path: PathBuf,
    config: AgentConfig,
    regulator: Regulator,
    /// `None` on a dry run of everything: then the kernel is not touched.
    throttle: Option<Throttle>,
    journal: Journal,
    complaints: Complaints,
    begin: Clock,
}

impl Agent {
    fn introduce(&mut self) {
        for warning in &self.config.warnings {
            tracing::warn!("{warning}");
        }
        for resource in &self.config.resources {
            let law = &resource.law;
            let dry = if law.dry_run { ", dry run" } else { "" };
            tracing::info!(
                "{}: reads within {}, by the {} law{dry}",
                law.resource,
                law.target,
                law.law.kind()
            );
            if !self.regulator.has(&resource.storage) {
                tracing::warn!("{}: there is no such storage here, yet", law.resource);
            }
        }
        for (via, target) in &self.regulator.sessions().targets {
            match target {
                Target::Read => {}
                Target::Absent(why) => tracing::debug!("{via}: {why}"),
                Target::Failed(error) => tracing::warn!("{via}: {error}"),
            }
        }
        for session in &self.regulator.sessions().sessions {
            if let Some(doubt) = &session.doubt {
                tracing::warn!(
                    "{}: {doubt}; it is not held where its addresses are unknown",
                    session.consumer
                );
            }
        }
        tracing::info!("ready");
    }

    fn regulate(&mut self, events: &Receiver<Signal>) {
        let mut next = Clock::now();
        loop {
            next += self.regulator.interval();
            // After a suspension, or a long wait for the processor, nothing is made up for.
            next = next.max(Clock::now());
            loop {
                match events.recv_timeout(next.saturating_duration_since(Clock::now())) {
                    Ok(Signal::Reload) => self.reload(),
                    Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => break,
                }
            }
            self.step();
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn step(&mut self) {
        let now = self.now();
        let step = self.regulator.step(now);
        for decision in &step.decisions {
            self.journal.note(decision);
        }
        if let Some(error) = &step.blind {
            self.complaints.make(error);
        }
        let Some(throttle) = &mut self.throttle else { return };
        throttle.keep_guarded(&mut self.complaints);
        if let Err(error) = throttle.delay.apply(now, &step.holds) {
            self.complaints.make(&error);
        }
    }

    fn reload(&mut self) {
        match self.try_reload() {
            Ok(()) => {
                tracing::info!("reloaded {}", self.path.display());
                self.introduce();
            }
            Err(why) => tracing::error!("not reloaded, the old configuration goes on: {why}"),
        }
    }

    fn try_reload(&mut self) -> Result<(), String> {
        let config = AgentConfig::load(&self.path).map_err(|error| error.to_string())?;
        let acts = config.resources.iter().any(|resource| !resource.law.dry_run);
        let fixed = [
            ("throttle", config.throttle != self.config.throttle),
            ("packets", config.packets != self.config.packets),
            ("ports", config.ports != self.config.ports),
            ("dry_run of all resources", acts != self.throttle.is_some()),
        ];
        let changed: Vec<_> = fixed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect();
        if !changed.is_empty() {
            return Err(format!("needs a restart to change: {}", changed.join(", ")));
        }
        self.regulator.reconfigure(&config).map_err(|error| error.to_string())?;
        self.config = config;
        Ok(())
    }

    fn end(self) {
        let Some(throttle) = self.throttle else { return };
        match undo() {
            Ok(_) => {
                throttle.guardian.dismiss();
                tracing::info!("let go of everybody");
            }
            // The guardian tries again when it sees us gone.
            Err(error) => tracing::error!("cannot let go of everybody: {error}"),
        }
    }
}

/// What holds, and what lets go when the agent cannot.
#[derive(Debug)]
struct Throttle {
    delay: PacketDelay,
    guardian: Guardian,
    command: GuardianCommand,
    /// Whoever has it is the only agent here.
    _only: UnixDatagram,
}

impl Throttle {
    fn start(config: &AgentConfig, command: &GuardianCommand) -> Result<Self, AgentError> {
        let only = be_the_only_one()?;
        let found = undo().map_err(AgentError::Reconcile)?;
        report(&found);
        let guardian = start_guardian(command).map_err(AgentError::Guardian)?;
        let delay =
            PacketDelay::new(config.throttle, config.packets, &config.ports).map_err(AgentError::Throttle)?;
        Ok(Self { delay, guardian, command: command.clone(), _only: only })
    }

    /// Starts the guardian anew when somebody ended it.
    fn keep_guarded(&mut self, complaints: &mut Complaints) {
        if self.guardian.is_alive() {
            return;
        }
        match start_guardian(&self.command) {
            Ok(guardian) => {
                tracing::warn!("the guardian was gone and is started anew");
                self.guardian = guardian;
            }
            Err(error) => complaints.make(&AgentError::Guardian(error)),
        }
    }
}

/// An abstract socket is of one network namespace, as what is held is, and it is gone with its process.
fn be_the_only_one() -> Result<UnixDatagram, AgentError> {
    let bind = || UnixDatagram::bind_addr(&SocketAddr::from_abstract_name("tidegate-agent")?);
    bind().map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => AgentError::AnotherAgent,
        _ => AgentError::Alone(error),
    })
}

fn start_guardian(command: &GuardianCommand) -> io::Result<Guardian> {
    Guardian::start(&command.program, &command.arguments)
}

fn report(found: &Found) {
    if found.nothing() {
        return;
    }
    let table = if found.table { "the nftables table, " } else { "" };
    tracing::warn!(
        "removed what an earlier agent left: {table}queueing on [{}]",
        found.interfaces.join(", ")
    );
}

/// What goes wrong again and again is said once a minute.
#[derive(Debug, Default)]
struct Complaints {
    made: Vec<(String, Clock)>,
}

impl Complaints {
    fn make(&mut self, error: &dyn std::error::Error) {
        let text = error.to_string();
        self.made.retain(|(_, at)| at.elapsed() < BETWEEN_COMPLAINTS);
        if self.made.iter().all(|(made, _)| *made != text) {
            tracing::error!("{text}");
            self.made.push((text, Clock::now()));
        }
    }
}
