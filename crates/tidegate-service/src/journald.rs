//! Entries of systemd's journal, with fields to search by (the native protocol of journald).
//!
//! `journalctl TIDEGATE_RESOURCE=vg0` then finds all that was logged of a resource.

use std::env;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::fs::fstat;

/// The socket of journald.
const SOCKET: &str = "/run/systemd/journal/socket";

/// The most bytes of a field. Chosen: a message with a backtrace fits, and an entry fits into a datagram.
const MOST_BYTES: usize = 64 * 1024;

/// An entry of the journal.
#[derive(Debug)]
pub struct JournalEntry {
    bytes: Vec<u8>,
}

impl JournalEntry {
    /// Begins an entry of a severity: 3 is an error, 4 a warning, 6 information, 7 for debugging (syslog(3)).
    #[must_use]
    pub fn new(priority: u8, message: &str) -> Self {
        let mut entry = Self { bytes: Vec::with_capacity(256) };
        entry.field("PRIORITY", &priority.to_string());
        entry.field("SYSLOG_IDENTIFIER", "tidegate");
        entry.field("MESSAGE", message);
        entry
    }

    /// Adds a field. Its name gets the letters that a field may have: `tidegate.resource` is
    /// `TIDEGATE_RESOURCE`.
    pub fn field(&mut self, name: &str, value: &str) {
        let value = &value[..value.floor_char_boundary(MOST_BYTES)];
        let letter =
            |letter: u8| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { b'_' };
        self.bytes.extend(name.bytes().map(letter));
        if value.contains('\n') {
            self.bytes.push(b'\n');
            self.bytes.extend((value.len() as u64).to_le_bytes());
        } else {
            self.bytes.push(b'=');
        }
        self.bytes.extend(value.as_bytes());
        self.bytes.push(b'\n');
    }

    /// Returns the entry as the datagram that journald reads.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The way to journald. Each write is one entry.
#[derive(Debug)]
pub struct JournalSocket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl JournalSocket {
    /// Returns the way to the journal, if this process's stderr is a stream of it.
    #[must_use]
    pub fn of_stderr() -> Option<Self> {
        let stream = env::var("JOURNAL_STREAM").ok()?;
        let stderr = fstat(io::stderr()).ok()?;
        // A stderr that was redirected is meant for another program.
        (stream == format!("{}:{}", stderr.st_dev, stderr.st_ino))
            .then(|| Self::at(Path::new(SOCKET)).ok())?
    }

    /// Returns the way to the journal whose socket is at this path.
    ///
    /// # Errors
    /// When there is no socket for this process, or nothing at the path.
    pub fn at(path: &Path) -> io::Result<Self> {
        path.metadata()?;
        Ok(Self { socket: UnixDatagram::unbound()?, path: path.to_owned() })
    }
}

impl Write for JournalSocket {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        // Each time by its path: journald may have started anew.
        self.socket.send_to(entry, &self.path)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_fields_and_a_message_of_several_lines_has_its_length() {
        let mut entry = JournalEntry::new(4, "vg0: slow\nand more");
        entry.field("tidegate.resource", "vg0");
        let expected =
            b"PRIORITY=4\nSYSLOG_IDENTIFIER=tidegate\nMESSAGE\n\x12\0\0\0\0\0\0\0vg0: slow\nand more\n\
            TIDEGATE_RESOURCE=vg0\n";
        assert_eq!(entry.into_bytes(), expected);
    }

    #[test]
    fn the_longest_entry_fits_into_a_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        let mut entry = JournalEntry::new(3, &"ä".repeat(1 << 20));
        entry.field("tidegate.resource", "vg0");
        let entry = entry.into_bytes();
        assert!(entry.ends_with("ä\nTIDEGATE_RESOURCE=vg0\n".as_bytes()));
        assert_eq!(JournalSocket::at(&path).unwrap().write(&entry).unwrap(), entry.len());
        let mut found = vec![0; entry.len() + 1];
        assert_eq!(journald.recv(&mut found).unwrap(), entry.len());
    }
}
