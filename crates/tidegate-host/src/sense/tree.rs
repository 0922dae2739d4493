//! Reading trees that change while they are read: what has just gone is absent, not an error.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::root::{ReadError, SystemRoot};

/// Returns true if an error means that the thing was removed, also between finding and reading it. For an
/// attribute whose object has gone, configfs and sysfs answer ENODEV.
fn gone(error: &io::Error) -> bool {
    const ENXIO: i32 = 6;
    const ENODEV: i32 = 19;
    const ENOTDIR: i32 = 20;
    error.kind() == io::ErrorKind::NotFound || matches!(error.raw_os_error(), Some(ENXIO | ENODEV | ENOTDIR))
}

fn present<T>(path: impl FnOnce() -> PathBuf, result: io::Result<T>) -> Result<Option<T>, ReadError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if gone(&error) => Ok(None),
        Err(source) => Err(ReadError::Unreadable { path: path(), source }),
    }
}

/// A file's text; `None` if it is not there.
///
/// Clients choose some of it, such as an iSCSI alias: what is not UTF-8 is replaced rather than refused, so
/// that no client can blind the sensor.
pub(crate) fn text(root: &SystemRoot, usual: impl AsRef<Path>) -> Result<Option<String>, ReadError> {
    let path = root.path(usual);
    let bytes = fs::read(&path);
    Ok(present(|| path, bytes)?.map(|bytes| match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }))
}

/// A directory from which many files are read: the way to it is gone once. It is not kept open from one
/// reading to the next, since that would keep its file system mounted.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

impl OpenDirectory {
    /// `None` if it is not there.
    pub(crate) fn open(root: &SystemRoot, usual: impl AsRef<Path>) -> Result<Option<Self>, ReadError> {
        let path = root.path(usual);
        let fd = openat(CWD, &path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let fd = present(|| path.clone(), fd.map_err(io::Error::from))?;
        Ok(fd.map(|fd| Self { fd, path }))
    }

    /// The number in a file; `None` if it is not there.
    pub(crate) fn number(&self, file: &str) -> Result<Option<u64>, ReadError> {
        // As long as the longest number is, and what it takes to see that something else is longer.
        let mut bytes = [0; 64];
        let read = self.bytes(file, &mut bytes).map_err(io::Error::from);
        let Some(length) = present(|| self.path.join(file), read)? else { return Ok(None) };
        let text = str::from_utf8(&bytes[..length]).ok();
        let number = text.and_then(|text| text.trim_end().parse().ok());
        number.map(Some).ok_or_else(|| {
            let problem =
                format!("expected a number, not `{}`", shown(&String::from_utf8_lossy(&bytes[..length])));
            ReadError::Malformed { path: self.path.join(file), line: 1, problem }
        })
    }

    /// Fills a buffer from the begin of a file, as far as either goes.
    fn bytes(&self, file: &str, bytes: &mut [u8]) -> rustix::io::Result<usize> {
        let fd = openat(&self.fd, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut length = 0;
        loop {
            let more = rustix::io::read(&fd, &mut bytes[length..])?;
            length += more;
            // The kernel's own files end in a newline, behind which there is nothing to ask for.
            if more == 0 || length == bytes.len() || bytes[length - 1] == b'\n' {
                return Ok(length);
            }
        }
    }
}

/// The content of a directory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Directories, in order of their names.
    pub(crate) directories: Vec<String>,
    /// Symbolic links, in order of their names.
    pub(crate) links: Vec<String>,
}

impl Listing {
    /// Directories, and links (to directories, as in sysfs).
    pub(crate) fn into_both(mut self) -> Vec<String> {
        self.directories.append(&mut self.links);
        self.directories.sort_unstable();
        self.directories
    }
}

/// The directories and links in a directory; `None` if it is not there. Names that are not UTF-8 are left
/// out: nothing that the kernel or its tools create has one.
pub(crate) fn list(root: &SystemRoot, usual: impl AsRef<Path>) -> Result<Option<Listing>, ReadError> {
    let path = root.path(usual);
    let entries = fs::read_dir(&path);
    let Some(entries) = present(|| path.clone(), entries)? else { return Ok(None) };
    let mut listing = Listing::default();
    for entry in entries {
        let Some(entry) = present(|| path.clone(), entry)? else { break };
        let Some(kind) = present(|| entry.path(), entry.file_type())? else { continue };
        let Ok(name) = entry.file_name().into_string() else { continue };
        if kind.is_symlink() {
            listing.links.push(name);
        } else if kind.is_dir() {
            listing.directories.push(name);
        }
    }
    listing.directories.sort_unstable();
    listing.links.sort_unstable();
    Ok(Some(listing))
}

/// Returns the target of a symbolic link, as it is written; `None` if there is no such link.
pub(crate) fn link(root: &SystemRoot, usual: impl AsRef<Path>) -> Result<Option<PathBuf>, ReadError> {
    const EINVAL: i32 = 22;
    let path = root.path(usual);
    match fs::read_link(&path) {
        // Not a link.
        Err(error) if error.raw_os_error() == Some(EINVAL) => Ok(None),
        result => present(|| path, result),
    }
}

/// Returns true if there is something at a path.
pub(crate) fn exists(root: &SystemRoot, usual: impl AsRef<Path>) -> bool {
    root.path(usual).exists()
}

/// An error that names the file and the line, counted from 1.
pub(crate) fn malformed(
    root: &SystemRoot,
    usual: impl AsRef<Path>,
    line: usize,
    problem: impl Into<String>,
) -> ReadError {
    ReadError::Malformed { path: root.path(usual), line, problem: problem.into() }
}

/// Returns the text found, short enough for a message.
pub(crate) fn shown(text: &str) -> String {
    text.trim_end().chars().take(60).collect()
}
