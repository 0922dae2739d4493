//! The lock of a folder that one process writes to.
//!
//! Any user can lock a file that he can open, and so keep a service from its start. So the lock's file is its
//! owner's alone. A file of an older release that others could open is closed to them before it is locked. If
//! another user's process has locked it before, a new file takes its place.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The mode of the file.
const MODE: u32 = 0o600;

/// The rights of others than the owner.
const OF_OTHERS: u32 = 0o077;

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
        let (file, others) = open(&path)?;
        if file.try_lock().is_ok() {
            return Ok(Some(Self { file }));
        }
        if !others || !is_strangers(&file)? {
            return Ok(None);
        }
        fs::remove_file(&path)?;
        let (file, _) = open(&path)?;
        // Of two processes that do this at the same time one has removed the other's file.
        let is_locked = file.try_lock().is_ok() && fs::metadata(&path)?.ino() == file.metadata()?.ino();
        Ok(is_locked.then_some(Self { file }))
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

/// Opens a lock's file for its owner alone, and returns true if others could open it before.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(MODE).open(path)?;
    let others = file.metadata()?.permissions().mode() & OF_OTHERS != 0;
    if others {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok((file, others))
}

/// Returns true if the processes that have locked a file are known, and none of them is root's or this user's. Of a
/// process that has ended, another one has the descriptor: services leave theirs to no program.
fn is_strangers(file: &File) -> io::Result<bool> {
    let inode = file.metadata()?.ino();
    let own = rustix::process::geteuid().as_raw();
    let locks = fs::read_to_string("/proc/locks")?;
    let holders: Vec<_> = locks.lines().filter_map(|line| holder(line, inode)).collect();
    let is_ours = |process: &i32| {
        let user = fs::metadata(format!("/proc/{process}")).map(|process| process.uid());
        user.is_ok_and(|user| user == 0 || user == own)
    };
    Ok(!holders.is_empty() && !holders.iter().any(is_ours))
}

/// Returns the process of a line of `/proc/locks` that has locked a file with this number by flock(2):
/// `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. A waiting lock has an arrow.
fn holder(line: &str, inode: u64) -> Option<i32> {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, _, process, file, ..] = fields[..] else { return None };
    // A file system may have another device there than stat(2) says.
    let is_same = file.rsplit_once(':')?.1.parse() == Ok(inode);
    process.parse().ok().filter(|_| is_same)
}

#[cfg(test)]
mod tests {
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
        // Locked by this user, who may be an older release.
        assert!(FolderLock::take(folder.path()).unwrap().is_none());
        assert_eq!(mode(), MODE);
        drop(older);
        assert!(FolderLock::take(folder.path()).unwrap().is_some());
    }

    #[test]
    fn the_holder_of_a_lock_is_found_by_the_files_number() {
        let line = "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF";
        assert_eq!((holder(line, 1234), holder(line, 123)), (Some(4711), None));
        for other in [
            "1: -> FLOCK ADVISORY WRITE 1 08:01:1234 0 EOF",
            "1: POSIX ADVISORY WRITE 1 08:01:1234 0 EOF",
            "",
        ] {
            assert_eq!(holder(other, 1234), None, "{other}");
        }
    }
}
