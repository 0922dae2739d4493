//! The kernel threads of iSCSI sessions, found in `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use crate::root::SystemRoot;

/// LIO's name for the thread that receives a connection's requests, and submits them.
const RECEIVES: &str = "iscsi_trx";

/// A bit of a task's flags in `stat`: the task is the kernel's (PF_KTHREAD). Programs give themselves any
/// name.
const KERNELS: u64 = 0x0020_0000;

/// The file with the children of the task that is the parent of all kernel threads.
const KERNELS_PARENT: &str = "/proc/2/task/2/children";

/// Finds them.
#[derive(Debug)]
pub(super) struct KernelThreads {
    root: SystemRoot,
}

impl KernelThreads {
    pub(super) fn new(root: SystemRoot) -> Self {
        Self { root }
    }

    /// Threads in the root cgroup that are not `known` to be elsewhere. Threads that another program put
    /// elsewhere are left there.
    pub(super) fn at_the_root(&self, known: &BTreeSet<u32>) -> io::Result<Vec<u32>> {
        let mut candidates = self.candidates()?;
        candidates.retain(|id| !known.contains(id) && self.is_one(*id) && self.is_at_the_root(*id));
        Ok(candidates)
    }

    /// The kernel's threads, where it says which they are, or all processes.
    fn candidates(&self) -> io::Result<Vec<u32>> {
        let children = self.root.read(KERNELS_PARENT).unwrap_or_default();
        if !children.is_empty() {
            return Ok(children.split_whitespace().filter_map(|word| word.parse().ok()).collect());
        }
        let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        Ok(fs::read_dir(self.root.path("/proc"))?.filter_map(number).collect())
    }

    /// Returns true if it is one of LIO's. A thread that has ended meanwhile is not.
    pub(super) fn is_one(&self, id: u32) -> bool {
        let stat = self.root.read(format!("/proc/{id}/stat")).unwrap_or_default();
        parse(&stat).is_some_and(|(name, flags)| name == RECEIVES && flags & KERNELS != 0)
    }

    /// Returns true if it has not ended.
    pub(super) fn is_there(&self, id: u32) -> bool {
        self.root.read(format!("/proc/{id}/stat")).is_ok()
    }

    fn is_at_the_root(&self, id: u32) -> bool {
        let cgroup = self.root.read(format!("/proc/{id}/cgroup")).unwrap_or_default();
        cgroup.lines().any(|line| line == "0::/")
    }
}

/// A task's name and flags (proc_pid_stat(5)). A name may have anything in it, parentheses too.
fn parse(stat: &str) -> Option<(&str, u64)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let flags = rest.split_whitespace().nth(6)?;
    Some((name, flags.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_does_not_make_a_kernel_thread() {
        let kernels = "218 (iscsi_trx) S 2 0 0 0 -1 2129984 0 0 0 0";
        assert_eq!(parse(kernels), Some(("iscsi_trx", 2_129_984)));
        let (name, flags) = parse("9 (a) (iscsi_trx) S 1 9 9 0 -1 4194304 0 0").unwrap();
        assert_eq!((name, flags & KERNELS), ("a) (iscsi_trx", 0));
        assert_eq!(parse("9 (iscsi_trx) S 1"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = parse(&text);
        }
    }
}
