//! The lock of a folder that one process writes to.
//!
//! Any user can lock a file that he can open, and so keep a service from its start. So the lock's file is its
//! owner's alone. A file of an older release that others could open is replaced: a descriptor of theirs would
//! lock it also after its mode has changed. It is left alone while it is locked by a process that may be a
//! service.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

/// The mode of the file.
const MODE: u32 = 0o600;

/// The rights of others than the owner.
const OF_OTHERS: u32 = 0o077;

/// The name of the file that takes the place of an older one.
const REPLACEMENT: &str = "lock.new";

/// The lock of a folder, as long as this lives.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Locks a folder. `None`: another process has locked it.
    ///
    /// # Errors
    /// When the lock's file cannot be opened.
    pub fn take(folder: &Path) -> io::Result<Option<Self>> {
        let path = Self::path(folder);
        loop {
            let file = open(&path)?;
            let is_locked = file.try_lock().is_ok();
            // Another process may have replaced it meanwhile.
            if !is_at(&file, &path) {
                continue;
            }
            let is_open_to_others = file.metadata()?.mode() & OF_OTHERS != 0;
            if is_open_to_others && (is_locked || is_strangers(&file)?) {
                match replace(folder, &file) {
                    Ok(file) => return Ok(file.map(|file| Self { file })),
                    Err(error) if is_locked => {
                        tracing::warn!("{}: other users can lock this file: {error}", path.display());
                    }
                    Err(error) => return Err(error),
                }
            }
            return Ok(is_locked.then_some(Self { file }));
        }
    }

    /// Returns the path of a folder's lock.
    #[must_use]
    pub fn path(folder: &Path) -> PathBuf {
        folder.join("lock")
    }
}

impl Drop for FolderLock {
    /// Unlocks explicitly: closing is not enough. A process that is being started holds a copy of every open
    /// file until it runs its own program.
    fn drop(&mut self) {
        // An error leaves what closing does.
        let _ = self.file.unlock();
    }
}

/// Opens a lock's file, which is made for its owner alone.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(MODE).open(path)
}

/// Returns true if a file is the one at a path now.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let open = file.metadata().map(identity);
    fs::metadata(path).map(identity).is_ok_and(|there| open.is_ok_and(|open| open == there))
}

/// Puts a new file, which is locked, in the place of an older one. `None`: another process does so, or has.
fn replace(folder: &Path, older: &File) -> io::Result<Option<File>> {
    let (path, replacement) = (FolderLock::path(folder), folder.join(REPLACEMENT));
    let file = open(&replacement)?;
    // Only the process that has locked the replacement may put it there.
    if file.try_lock().is_err() || !is_at(&file, &replacement) {
        return Ok(None);
    }
    if !is_at(older, &path) {
        fs::remove_file(&replacement)?;
        return Ok(None);
    }
    fs::rename(&replacement, &path)?;
    Ok(Some(file))
}

/// Returns true if the processes that have locked a file are known, and none of them can be a service. Of a process
/// that has ended, another one has the descriptor: services leave theirs to no program.
fn is_strangers(file: &File) -> io::Result<bool> {
    let inode = file.metadata()?.ino();
    let locks = fs::read_to_string("/proc/locks")?;
    let holders: Vec<_> = locks.lines().filter_map(|line| holder(line, inode)).collect();
    Ok(!holders.is_empty() && !holders.into_iter().any(may_be_service))
}

/// Returns true if a process is root's, this user's, or another one's that is not shown here (`hidepid`).
fn may_be_service(process: Pid) -> bool {
    match fs::metadata(format!("/proc/{process}")) {
        Ok(process) => process.uid() == 0 || process.uid() == geteuid().as_raw(),
        Err(_) => test_kill_process(process) != Err(Errno::SRCH),
    }
}

/// Returns the process of a line of `/proc/locks` that has locked a file with this number by flock(2):
/// `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. A waiting lock has an arrow.
fn holder(line: &str, inode: u64) -> Option<Pid> {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, _, process, file, ..] = fields[..] else { return None };
    // A file system may have another device there than stat(2) says.
    let is_same = file.rsplit_once(':')?.1.parse() == Ok(inode);
    Pid::from_raw(process.parse().ok().filter(|_| is_same)?)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_lock_is_its_owners_alone_and_one_that_was_not_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = FolderLock::path(folder.path());
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let first = FolderLock::take(folder.path()).unwrap();
        assert!(first.is_some() && FolderLock::take(folder.path()).unwrap().is_none());
        assert_eq!(mode(), MODE);
        drop(first);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let older = File::open(&path).unwrap();
        older.try_lock().unwrap();
        // Locked by this user, whose process may be a service of an older release.
        assert!(FolderLock::take(folder.path()).unwrap().is_none());
        older.unlock().unwrap();
        let taken = FolderLock::take(folder.path()).unwrap();
        assert!(taken.is_some() && FolderLock::take(folder.path()).unwrap().is_none());
        assert_eq!(mode(), MODE);
        drop(taken);
        // A process that had the older file open locks nothing of use.
        older.try_lock().unwrap();
        assert!(FolderLock::take(folder.path()).unwrap().is_some());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn of_many_that_replace_an_older_file_at_the_same_time_one_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..50 {
            let path = FolderLock::path(folder.path());
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            let take = || FolderLock::take(folder.path()).unwrap();
            let taken = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(taken.len(), 1);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_process_that_runs_may_be_a_service_unless_it_is_another_users() {
        assert!(may_be_service(rustix::process::getpid()));
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        assert!(!may_be_service(Pid::from_child(&ended)));
    }

    #[test]
    fn the_holder_of_a_lock_is_found_by_the_files_number() {
        let line = "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF";
        assert_eq!((holder(line, 1234), holder(line, 123)), (Pid::from_raw(4711), None));
        for other in [
            "1: -> FLOCK ADVISORY WRITE 1 08:01:1234 0 EOF",
            "1: POSIX ADVISORY WRITE 1 08:01:1234 0 EOF",
            "",
        ] {
            assert_eq!(holder(other, 1234), None, "{other}");
        }
    }
}
