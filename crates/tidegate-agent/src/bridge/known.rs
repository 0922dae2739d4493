//! The names of sessions, kept over a restart of the agent: a session that was there before does not say them
//! again.
//!
//! A line for each connection: initiator's address, portal, initiator's name, target's name, with tabs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_host::sense::capture::RecalledSession;

/// The greatest size of the file that is read. A line is shorter than 600 bytes.
const MOST_BYTES: u64 = 8 << 20;

/// The age at which a file tells nothing: another session may have the ports of an earlier one.
const LONGEST_AGE: Duration = Duration::from_secs(300);

/// The name of the file in systemd's state directory.
const NAME: &str = "sessions";

/// Returns the file in systemd's state directory, if there is one.
#[allow(clippy::disallowed_methods, reason = "systemd tells its directories so")]
pub(super) fn of_state_directory() -> Option<PathBuf> {
    let given = std::env::var_os("STATE_DIRECTORY")?;
    let first = given.to_str()?.split(':').next()?;
    Path::new(first).is_absolute().then(|| Path::new(first).join(NAME))
}

/// Reads the sessions that were known lately. A file that is not there, old or damaged tells nothing, or
/// less.
pub(super) fn read(path: &Path) -> Vec<RecalledSession> {
    let is_fresh = |file: &fs::Metadata| {
        let age = file.modified().ok().and_then(|modified| modified.elapsed().ok());
        file.is_file() && file.len() <= MOST_BYTES && age.is_some_and(|age| age <= LONGEST_AGE)
    };
    if !fs::metadata(path).is_ok_and(|file| is_fresh(&file)) {
        return Vec::new();
    }
    fs::read_to_string(path).map(|text| parse(&text)).unwrap_or_default()
}

/// Replaces the file.
pub(super) fn write(path: &Path, sessions: &[RecalledSession]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, render(sessions))?;
    fs::rename(new, path)
}

fn render(sessions: &[RecalledSession]) -> String {
    let line = |RecalledSession { client, server, initiator, target }: &RecalledSession| {
        format!("{client}\t{server}\t{initiator}\t{target}\n")
    };
    sessions.iter().map(line).collect()
}

fn parse(text: &str) -> Vec<RecalledSession> {
    let session = |line: &str| {
        let mut fields = line.split('\t');
        let (client, server) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let mut name = || fields.next().filter(|name| !name.is_empty() && name.len() <= 255).map(Into::into);
        Some(RecalledSession { client, server, initiator: name()?, target: name()? })
    };
    text.lines().filter_map(session).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_as_they_were_written_and_damage_takes_only_its_line() {
        let session = |port: u16, initiator: &str| RecalledSession {
            client: ([10, 0, 0, 11], port).into(),
            server: "[fd00::1]:3260".parse().unwrap(),
            initiator: initiator.into(),
            target: "iqn.array:vg0".into(),
        };
        let known = [session(1000, "iqn.a"), session(1001, "iqn.b with a space")];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        assert_eq!(read(&path), []);
        write(&path, &known).unwrap();
        assert_eq!(read(&path), known);
        let damaged = fs::read_to_string(&path).unwrap().replacen("10.0.0.11:1000", "10.0.0", 1);
        assert_eq!(parse(&damaged), known[1..]);
    }
}
