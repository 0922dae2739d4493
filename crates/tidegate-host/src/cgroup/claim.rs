//! The claim of a hierarchy of cgroups: one agent of the machine limits what cgroups do, whichever mount,
//! network and process namespaces agents are in.
//!
//! The hierarchy is what all of them see. Any user may open its root, and could lock that. So the claim is the
//! lock of a cgroup of its own whose directory only root and the agent's user can open. It is made without
//! rights for others, so that no descriptor of theirs is older than that.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

/// The cgroup whose lock is the claim.
pub(super) const CLAIM: &str = "tidegate.claim";

/// The time that another process may take to look whether there is a claim. It takes the lock for that.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// A claim, as long as this lives.
#[derive(Debug)]
pub(crate) struct CgroupClaim {
    path: PathBuf,
    directory: File,
}

/// What an attempt to lock found.
enum Attempt {
    Locked(CgroupClaim),
    LockedByOther,
    /// The cgroup is not there, or was removed meanwhile.
    Missing,
}

impl CgroupClaim {
    /// Claims the hierarchy with this root.
    ///
    /// # Errors
    /// When a living process has claimed it, or the cgroup cannot be made.
    pub(super) fn take(root: &Path) -> io::Result<Self> {
        let path = root.join(CLAIM);
        let with_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let deadline = Instant::now() + PATIENCE;
        loop {
            match attempt(&path).map_err(with_path)? {
                Attempt::Locked(claim) => return Ok(claim),
                Attempt::Missing => match DirBuilder::new().mode(0o700).create(&path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(with_path(error));
                    }
                    _ => continue,
                },
                Attempt::LockedByOther => {}
            }
            if Instant::now() >= deadline {
                let why = "another agent of this machine limits what is done to devices, perhaps in a container or \
                           in another network namespace";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            thread::sleep(BETWEEN_ATTEMPTS);
        }
    }

    /// Returns true if a living process has claimed the hierarchy with this root, or if this user may not know.
    pub(super) fn is_taken(root: &Path) -> bool {
        // The claim of an agent that was killed is removed when this drops it.
        !matches!(attempt(&root.join(CLAIM)), Ok(Attempt::Missing | Attempt::Locked(_)))
    }
}

fn attempt(path: &Path) -> io::Result<Attempt> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
    // The flags of an open call fit into an i32.
    let directory = match OpenOptions::new().read(true).custom_flags(flags as i32).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Attempt::Missing),
        // Another user's.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Attempt::LockedByOther),
        opened => opened?,
    };
    if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(Attempt::LockedByOther);
    }
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let locked = identity(directory.metadata()?);
    // Another process may have removed it before it was locked: then the lock is of no use.
    let is_there = fs::symlink_metadata(path).is_ok_and(|there| identity(there) == locked);
    let claim = || CgroupClaim { path: path.to_owned(), directory };
    Ok(if is_there { Attempt::Locked(claim()) } else { Attempt::Missing })
}

impl Drop for CgroupClaim {
    fn drop(&mut self) {
        // What cannot be removed now, the next claim uses.
        let _ = fs::remove_dir(&self.path);
        // Closing is not enough: a process that is being started holds a copy until it runs its own program.
        let _ = flock(&self.directory, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_process_has_the_claim_and_others_cannot_open_what_it_locks() {
        let root = tempfile::tempdir().unwrap();
        assert!(!CgroupClaim::is_taken(root.path()));
        // Any user can lock the root itself.
        let stranger = File::open(root.path()).unwrap();
        flock(&stranger, FlockOperation::LockExclusive).unwrap();
        let claim = CgroupClaim::take(root.path()).unwrap();
        let mode = fs::metadata(root.path().join(CLAIM)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(CgroupClaim::is_taken(root.path()));
        assert_eq!(CgroupClaim::take(root.path()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(claim);
        assert!(!root.path().join(CLAIM).exists());
        // As after SIGKILL.
        fs::create_dir(root.path().join(CLAIM)).unwrap();
        assert!(!CgroupClaim::is_taken(root.path()) && !root.path().join(CLAIM).exists());
    }
}
