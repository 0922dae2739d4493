//! `tidegate check`.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use tidegate_agent::config::{Config, ConfigError, Finding, Severity};
use tidegate_agent::summary::Summary;

use crate::failure::Failure;

/// Check a configuration without serving it
///
/// Says what would be served, where, and under which law; or everything that is wrong, as FILE:line:column, with what
/// to write instead, and exit status 2. Opens the files that the configuration names, and changes nothing.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration; see docs/configuration.md
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct Outcome<'a> {
    valid: bool,
    findings: Vec<FindingDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serves: Option<Summary>,
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

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let loaded = Config::load(&args.config);
    if args.json {
        print_json(&loaded)?;
    }
    let config = loaded?;
    for warning in &config.warnings {
        writeln!(io::stderr(), "{warning}")?;
    }
    if !args.json {
        writeln!(io::stdout(), "{}: right\n{}", args.config.display(), Summary::new(&config))?;
    }
    Ok(())
}

fn print_json(loaded: &Result<Config, ConfigError>) -> Result<(), Failure> {
    let (findings, serves) = match loaded {
        Ok(config) => (&config.warnings[..], Some(Summary::new(config))),
        Err(ConfigError::Invalid(findings)) => (&findings[..], None),
        // Nothing was read: there is nothing to say about it but the error.
        Err(ConfigError::Read { .. }) => return Ok(()),
    };
    let findings = findings.iter().map(FindingDocument::from).collect();
    let outcome = Outcome { valid: serves.is_some(), findings, serves };
    let json = serde_json::to_string_pretty(&outcome).map_err(io::Error::from)?;
    Ok(writeln!(io::stdout(), "{json}")?)
}
