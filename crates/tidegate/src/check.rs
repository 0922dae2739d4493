//! `tidegate check`.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidegate_agent::{self as agent, AgentConfig, MachineSurvey};
use tidegate_serve::config::{ConfigError, Finding, ServeConfig, Severity};
use tidegate_serve::summary::ConfigSummary;
use tidegate_service::operator_socket::running;
use tidegate_service::status::ServiceKind;
use tidegate_transfer::BrokerConfig;
use tidegate_transfer::config::is_brokers;
use tidegate_transfer::store::NodePlace;

use crate::failure::{CommandFailure, does_not_start};
use crate::keys;
use crate::out;

/// Check a configuration, and what this machine can sense and throttle
///
/// With the configuration of `serve`: prints what would be served, where, and under which law. With that of
/// `agent`, or without one: prints the sensors and throttles of this kernel, and what would give those that
/// it lacks; as root it tries throttles, in a network namespace of their own. For a wrong configuration, it
/// prints every mistake as FILE:line:column with the remedy, and exits with status 2. For a valid one whose
/// service would not start here now, or could throttle nothing, it prints what is in the way or missing, and
/// exits with status 1; what the running service of the configuration uses is not in the way. The
/// configuration of `broker` is checked the same way. Opens the files that the configuration names, and
/// changes nothing.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration of a gateway, an agent or a broker; see docs/reference/configuration.md
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print what is known of a key instead: type, default, bounds, meaning. Tables may stand in front:
    /// window.gamma
    #[arg(long, value_name = "KEY", conflicts_with = "config")]
    explain: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct CheckDocument<'a> {
    valid: bool,
    /// The whole in one line. A configuration with mistakes has none but them.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
    findings: Vec<FindingDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serves: Option<&'a ConfigSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a MachineSurvey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    places_on: Option<&'a BrokerSummary>,
}

#[derive(Serialize)]
struct FindingDocument<'a> {
    severity: &'static str,
    line: usize,
    column: usize,
    message: &'a str,
    help: Option<&'a str>,
}

impl<'a> From<&'a Finding> for FindingDocument<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            severity: match finding.severity() {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            line: finding.line(),
            column: finding.column(),
            message: finding.message(),
            help: finding.help(),
        }
    }
}

/// The summary of a valid configuration, with its warnings.
struct Checked {
    warnings: Vec<Finding>,
    /// What keeps its service from starting on this machine now.
    obstacles: Vec<Finding>,
    comes_to: ComesTo,
}

enum ComesTo {
    Serves(ConfigSummary),
    Machine(MachineSurvey),
    Broker(BrokerSummary),
}

/// A broker's address and its storage nodes.
#[derive(Serialize)]
struct BrokerSummary {
    listen: String,
    /// The name of each node and where it is.
    nodes: Vec<(String, String)>,
    /// Those whose folder is not on this machine.
    absent: Vec<String>,
}

impl fmt::Display for BrokerSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a broker on http://{} for {} storage nodes", self.listen, self.nodes.len())?;
        self.nodes.iter().try_for_each(|(name, place)| {
            let is_absent = self.absent.contains(name);
            let note = if is_absent {
                ", which is no folder on this machine: clients need it on theirs"
            } else {
                ""
            };
            write!(f, "\n  {name} at {place}{note}")
        })
    }
}

/// A broker's configuration, whose mistakes are told of like any other's.
fn check_broker(path: &Path) -> Result<Checked, ConfigError> {
    let config = BrokerConfig::load(path)?;
    let nodes = config.nodes.iter().map(|node| (node.config.name.to_string(), node.place.to_string()));
    let is_absent = |place: &NodePlace| matches!(place, NodePlace::Folder(path) if !path.is_dir());
    let absent = config.nodes.iter().filter(|node| is_absent(&node.place));
    let summary = BrokerSummary {
        listen: config.listen.to_string(),
        nodes: nodes.collect(),
        absent: absent.map(|node| node.config.name.to_string()).collect(),
    };
    Ok(Checked { warnings: config.warnings, obstacles: Vec::new(), comes_to: ComesTo::Broker(summary) })
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    if let Some(key) = &args.explain {
        return keys::explain(key, args.json);
    }
    let checked = check(args.config.as_deref());
    if args.json {
        print_json(&checked)?;
    }
    let checked = checked.map_err(counted)?;
    for warning in &checked.warnings {
        writeln!(out::stderr(), "{warning}")?;
    }
    if args.json {
        return can_start(&checked);
    }
    let mut out = out::stdout();
    if let Some(path) = &args.config {
        writeln!(out, "{}: right", path.display())?;
    }
    match &checked.comes_to {
        ComesTo::Serves(summary) => writeln!(out, "{summary}")?,
        ComesTo::Machine(survey) => write!(out, "{survey}")?,
        ComesTo::Broker(summary) => writeln!(out, "{summary}")?,
    }
    // If nothing can be throttled or served, the failure is the verdict, and comes last.
    can_start(&checked)?;
    Ok(writeln!(out, "verdict: {}", checked.comes_to.verdict())?)
}

/// Counts the mistakes of a configuration.
fn counted(error: ConfigError) -> CommandFailure {
    match error {
        ConfigError::Invalid(ref findings) => {
            let is_mistake = |finding: &&Finding| matches!(finding.severity(), Severity::Error);
            let mistakes = findings.iter().filter(is_mistake).count();
            CommandFailure::WrongConfig { findings: error, mistakes }
        }
        ConfigError::Read { .. } => error.into(),
    }
}

impl ComesTo {
    /// The whole in one line.
    fn verdict(&self) -> String {
        match self {
            Self::Serves(summary) => summary.verdict(),
            Self::Machine(survey) => survey.verdict(),
            Self::Broker(summary) => match summary.absent.len() {
                0 => "works here; all folders are on this machine".to_owned(),
                absent => format!("works for clients that have the {absent} folders that are not here"),
            },
        }
    }
}

/// A configuration that is right starts nothing on a machine where others have what it takes.
fn can_start(checked: &Checked) -> Result<(), CommandFailure> {
    match &checked.obstacles[..] {
        [] => can_hold(&checked.comes_to),
        obstacles => Err(CommandFailure::Obstructed(obstacles.to_vec())),
    }
}

/// A configuration that is right comes to nothing on a machine that lacks what it takes.
fn can_hold(comes_to: &ComesTo) -> Result<(), CommandFailure> {
    let survey = match comes_to {
        ComesTo::Machine(survey) => survey,
        ComesTo::Serves(_) => return tidegate_gateway::check_io_uring().map_err(CommandFailure::CannotServe),
        ComesTo::Broker(_) => return Ok(()),
    };
    match survey.cannot_be_held().join(", ") {
        unheld if unheld.is_empty() => Ok(()),
        unheld => Err(CommandFailure::CannotHold(unheld)),
    }
}

fn check(path: Option<&Path>) -> Result<Checked, ConfigError> {
    let Some(path) = path else {
        let comes_to = ComesTo::Machine(MachineSurvey::take(None));
        return Ok(Checked { warnings: Vec::new(), obstacles: Vec::new(), comes_to });
    };
    // A file that cannot be read is for the reader to complain about.
    if fs::read_to_string(path).is_ok_and(|text| agent::is_agents(&text)) {
        let config = AgentConfig::load(path)?;
        let obstacles = config.obstacles(running(ServiceKind::Agent, path).as_ref());
        let survey = MachineSurvey::take(Some(&config));
        return Ok(Checked { warnings: config.warnings, obstacles, comes_to: ComesTo::Machine(survey) });
    }
    if fs::read_to_string(path).is_ok_and(|text| is_brokers(&text)) {
        return check_broker(path);
    }
    let config = ServeConfig::load(path)?;
    let running = running(ServiceKind::Serve, path);
    let obstacles = config.obstacles(running.as_ref());
    let comes_to = ComesTo::Serves(ConfigSummary::new(&config));
    let displaced = running.map(|running| config.displaced(&running)).unwrap_or_default();
    Ok(Checked { warnings: [config.warnings, displaced].concat(), obstacles, comes_to })
}

fn print_json(checked: &Result<Checked, ConfigError>) -> Result<(), CommandFailure> {
    let (findings, obstacles) = match checked {
        Ok(checked) => (&checked.warnings, &checked.obstacles[..]),
        Err(ConfigError::Invalid(findings)) => (findings, Default::default()),
        // Nothing was read: there is nothing to say about it but the error.
        Err(ConfigError::Read { .. }) => return Ok(()),
    };
    let findings = findings.iter().chain(obstacles).map(FindingDocument::from).collect();
    let verdict = checked.as_ref().ok().map(|checked| match checked.obstacles.len() {
        0 => checked.comes_to.verdict(),
        obstacles => does_not_start(obstacles),
    });
    let valid = checked.is_ok();
    let mut outcome =
        CheckDocument { valid, verdict, findings, serves: None, machine: None, places_on: None };
    match checked.as_ref().ok().map(|checked| &checked.comes_to) {
        Some(ComesTo::Serves(summary)) => outcome.serves = Some(summary),
        Some(ComesTo::Machine(survey)) => outcome.machine = Some(survey),
        Some(ComesTo::Broker(summary)) => outcome.places_on = Some(summary),
        None => {}
    }
    let json = serde_json::to_string_pretty(&outcome).map_err(io::Error::from)?;
    Ok(writeln!(out::stdout(), "{json}")?)
}
