//! Scenarios of simulations, from files.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;
use tidegate_sim::{InvalidScenario, Scenario};
use tidegate_units::visible;

/// A larger file is not a scenario.
const LARGEST_SCENARIO: u64 = 64 * 1024 * 1024;

/// A larger file does not fit into memory as text and as records.
const LARGEST_TRACE: u64 = 2 * 1024 * 1024 * 1024;

/// Reasons why a file gives no scenario.
#[derive(Debug, Error)]
pub enum ScenarioFileError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The text has mistakes, each of which is shown with its place.
    #[error(transparent)]
    Invalid(#[from] InvalidScenario),
}

/// Reads a scenario and the traces it names, whose paths start at its folder. Warnings go to stderr.
///
/// # Errors
/// When the file cannot be read, or holds no scenario.
pub fn load(path: &Path) -> Result<Scenario, ScenarioFileError> {
    let unreadable = |source| ScenarioFileError::Read { path: path.to_owned(), source };
    let text = read_bounded(path, LARGEST_SCENARIO).map_err(unreadable)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut files = |name: &str| {
        read_bounded(&folder.join(name), LARGEST_TRACE).map_err(|error| format!("`{name}`: {error}"))
    };
    let (scenario, warnings) = Scenario::read(&path.display().to_string(), &text, &mut files)?;
    for warning in warnings {
        // A warning that cannot be shown is no failure.
        let _ = writeln!(io::stderr(), "{}", visible(&warning.to_string()));
    }
    Ok(scenario)
}

fn read_bounded(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large"));
    }
    Ok(text)
}
