//! Failures of commands, and the exit statuses that tell them.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_admission::InvalidProfile;
use tidegate_agent::{AgentError, IdentifyError};
use tidegate_cluster::{PolicyError, PolicyKeyError};
use tidegate_config::{Finding, masked};
use tidegate_gateway::StartError;
use tidegate_journal::JournalError;
use tidegate_load::LoadError;
use tidegate_program::exit::{FAILED, USAGE, is_closed_by_reader};
use tidegate_program::page::plot::PlotError;
use tidegate_program::scenario_file::ScenarioFileError;
use tidegate_rollups::RollupError;
use tidegate_serve::config::{ConfigError, CredentialError};
use tidegate_serve::serve::ServeError;
use tidegate_sim::ScenarioError;
use tidegate_transfer::AskError;
use tidegate_units::visible;

use crate::admit::error::AdmitError;
use crate::demo::DemoError;
use crate::http::ServiceError;
use crate::status::error::StatusError;

/// Reasons why a command failed.
#[derive(Debug, Error)]
pub(crate) enum CommandFailure {
    /// Arguments that contradict each other, or a setting that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The service.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A configuration that is right, and a machine that lacks what it takes.
    #[error(
        "nothing can be throttled here for {0}: this machine lacks what the configuration's throttle takes, \
         as was said"
    )]
    CannotHold(String),
    /// A valid configuration of `serve` on a machine that cannot serve it.
    #[error("this machine cannot serve it: {0}")]
    CannotServe(io::Error),
    /// A configuration with mistakes, which were counted.
    #[error("{findings}\nverdict: nothing starts with this configuration; mistakes: {mistakes}")]
    WrongConfig {
        /// The mistakes, with their places.
        findings: ConfigError,
        /// Their number.
        mistakes: usize,
    },
    /// A valid configuration whose service does not start on this machine now.
    #[error(
        "{}\nverdict: {}",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"), does_not_start(.0.len())
    )]
    Obstructed(Vec<Finding>),
    /// There is no configuration to propose.
    #[error("{0}")]
    NothingProposed(String),
    /// A proposed configuration.
    #[error("{}: the configuration cannot be written: {source}", path.display())]
    WriteConfiguration {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Gains were not found.
    #[error(transparent)]
    Identify(IdentifyError),
    /// Throttled consumers cannot be released.
    #[error("cannot release: {0}; root or CAP_NET_ADMIN is needed")]
    Release(io::Error),
    /// Consumers that were released, and that the service shows as throttled all the same.
    #[error("{address} still throttles {consumers}; `tidegate status` and its log say more")]
    StillThrottled {
        /// The service.
        address: String,
        /// The consumers.
        consumers: String,
    },
    /// Everything was to be released, and an agent was not reached.
    #[error(
        "an agent lives that was not asked: it may throttle again; end it, or release through it: with `-c FILE` \
         or `--url`, and in its container if it has one"
    )]
    AgentNotAsked,
    /// Everything was released, as the services say, and the kernel has limits all the same.
    #[error(
        "the kernel still has limits of Tidegate after the release: {0}; `tidegate release --kernel` removes them"
    )]
    LeftInKernel(String),
    /// Several services failed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\ntidegate: "))]
    Several(Vec<Self>),
    /// Throttles that were removed from the kernel and are there again.
    #[error(
        "removed, and it is there again: a living agent puts it back; stop the agent, or release through it"
    )]
    PutBack,
    /// Settings in force that are not those of the file.
    #[error("{}", if *.0 == 1 { "1 setting differs".to_owned() } else { format!("{} settings differ", .0) })]
    Differs(usize),
    /// The status of a service is not known.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// A running service has no answer.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The decision journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The rollups.
    #[error(transparent)]
    Rollups(#[from] RollupError),
    /// Resources whose replay has other commands than the recorded ones.
    #[error("commands of {0} resources are not those that were recorded: another build wrote the journal")]
    Replay(usize),
    /// Resources of which a rehearsal claims nothing.
    #[error("nothing can be claimed about {0} resources: the report has the reasons")]
    NoClaim(usize),
    /// The load generator.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A load ran, and requests of it failed.
    #[error("{errors} requests were answered with an error, the first with: {first}")]
    Answers {
        /// The number of failed requests.
        errors: u64,
        /// The first error.
        first: String,
    },
    /// A broker.
    #[error(transparent)]
    Broker(#[from] tidegate_transfer::ServeError),
    /// A broker's catalogue.
    #[error(transparent)]
    Catalogue(#[from] tidegate_transfer::CatalogueError),
    /// A request to a broker failed.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// No node carries it now.
    #[error("no storage node can carry it now: ask again later, or with `--wait`")]
    NotNow,
    /// A signal.
    #[error("interrupted; what was reserved is free again after the broker's lease")]
    Interrupted,
    /// A node of which nothing was found.
    #[error("{0}")]
    Probe(String),
    /// Files that were not moved, each of which has been told of.
    #[error("{0} failed")]
    Transfers(usize),
    /// The password of the cluster's server.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The cluster's policies.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// There is no key to sign a policy with.
    #[error(transparent)]
    PolicyKey(#[from] PolicyKeyError),
    /// The demonstration.
    #[error(transparent)]
    Demo(DemoError),
    /// A scenario's file.
    #[error(transparent)]
    ScenarioFile(#[from] ScenarioFileError),
    /// A file of rows.
    #[error("{}: the rows cannot be written: {source}", path.display())]
    WriteTable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file of contracts.
    #[error("{}: {source}", path.display())]
    ReadContracts {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The text of a file of contracts.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    InvalidContracts(Vec<Finding>),
    /// Demands that cannot be kept, or not be judged.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The measurements of a storage are no profile.
    #[error(transparent)]
    Profile(InvalidProfile),
    /// No linear model was found.
    #[error("no model was found: {0}")]
    Model(String),
    /// A plot that cannot be drawn.
    #[error(transparent)]
    Plot(PlotError),
    /// A report's file.
    #[error("{}: the report cannot be written: {source}", path.display())]
    WriteReport {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A simulation that could not go on.
    #[error(transparent)]
    Scenario(ScenarioError),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

/// Returns the verdict on a valid configuration whose service does not start now.
pub(crate) fn does_not_start(obstacles: usize) -> String {
    format!("the file is right, and the service does not start here now; obstacles: {obstacles}")
}

impl From<DemoError> for CommandFailure {
    fn from(error: DemoError) -> Self {
        match error {
            DemoError::Plan(error) => Self::Usage(error.to_string()),
            DemoError::Output(error) => Self::Output(error),
            other => Self::Demo(other),
        }
    }
}

impl From<IdentifyError> for CommandFailure {
    fn from(error: IdentifyError) -> Self {
        match error {
            IdentifyError::Agent(error) => Self::Agent(error),
            IdentifyError::Which(_) => Self::Usage(error.to_string()),
            other => Self::Identify(other),
        }
    }
}

impl CommandFailure {
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Config(_) | Self::WrongConfig { .. } => USAGE,
            Self::Load(LoadError::Config(_)) => USAGE,
            Self::ScenarioFile(_) => USAGE,
            Self::ReadContracts { .. } | Self::InvalidContracts(_) => USAGE,
            Self::Policy(PolicyError::Invalid(_)) => USAGE,
            Self::Journal(JournalError::Io { .. } | JournalError::InUse(_)) => FAILED,
            Self::Rollups(RollupError::Io { .. } | RollupError::InUse(_)) => FAILED,
            Self::Journal(_) | Self::Rollups(_) => USAGE,
            Self::Broker(tidegate_transfer::ServeError::Placement(_)) => USAGE,
            // The question was wrong: the same one will fail again.
            Self::Service(ServiceError::Refused { status: 400 | 404 | 422, .. }) => USAGE,
            Self::Serve(ServeError::Config(_) | ServeError::Start(StartError::Config(_))) => USAGE,
            Self::Agent(AgentError::Config(_) | AgentError::SetUp(_)) => USAGE,
            // The reader of the pipe has closed it: it has read enough.
            Self::Output(error) if is_closed_by_reader(error) => 0,
            _ => FAILED,
        }
    }

    /// Returns the message for stderr; `None` if there is nothing to say.
    pub(crate) fn message(&self) -> Option<String> {
        let said = match self {
            Self::Output(error) if is_closed_by_reader(error) => return None,
            // Findings begin with their place, which editors and terminals make clickable.
            Self::Config(ConfigError::Invalid(_))
            | Self::WrongConfig { .. }
            | Self::Obstructed(_)
            | Self::Serve(ServeError::Obstructed(_))
            | Self::ScenarioFile(ScenarioFileError::Invalid(_))
            | Self::InvalidContracts(_)
            | Self::Admit(AdmitError::Impossible(_))
            | Self::Serve(ServeError::Config(ConfigError::Invalid(_)))
            | Self::Agent(AgentError::Config(ConfigError::Invalid(_))) => self.to_string(),
            other => format!("tidegate: {other}"),
        };
        // An argument may have a password in it, and what others said may have controls of terminals.
        Some(visible(&masked(&said)).into_owned())
    }
}
