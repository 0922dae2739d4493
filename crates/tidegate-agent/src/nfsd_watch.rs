//! A watch on the threads of this machine's NFS server.
//!
//! With too few, reads wait for a thread behind the writes of others. No volume shows that wait, so no law
//! regulates it. An administrator can.

use std::thread;
use std::time::Duration;

use tidegate_host::sense::nfsd_threads::ThreadWaits;
use tidegate_host::sense::session::{TargetKind, TargetReading};
use tidegate_host::sense::{NfsdThreads, TargetSessions};
use tidegate_host::{ReadError, SystemRoot};
use tidegate_units::Instant;

use crate::finding::SurveyFinding;

/// The time over which requests are judged. Chosen: bursts of a second are no reason to wake a person.
const SPAN: Duration = Duration::from_secs(10);

/// Fewer requests say nothing. Chosen: ten each second.
const LEAST: u64 = 100;

/// The time over which `check` counts.
const GLANCE: Duration = Duration::from_secs(1);

/// The remedy, in words.
const REMEDY: &str = "raise `threads` under [nfsd] in /etc/nfs.conf, or at once: echo 64 \
    >/proc/fs/nfsd/threads";

/// The state of an NFS server's threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NfsdStatus {
    /// The number of threads.
    pub threads: u64,
    /// Requests that found no idle thread, since the agent's start.
    pub waits: u64,
    /// The requests of the last ten seconds.
    pub recent: ThreadWaits,
}

impl NfsdStatus {
    /// Returns true if most requests found no idle thread. Newer kernels count a thread that is about to wake
    /// as none, so a smaller part says nothing.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.recent.requests >= LEAST && 2 * self.recent.waited >= self.recent.requests
    }

    /// Returns the shortage in words, with what helps.
    #[must_use]
    pub(crate) fn shortage(&self) -> String {
        let Self { threads, recent: ThreadWaits { requests, waited }, .. } = self;
        format!(
            "the NFS server is short of threads: {waited} of {requests} requests waited for one of \
             {threads}, and no volume shows that wait; {REMEDY}"
        )
    }
}

/// Follows the threads of this machine's NFS server.
#[derive(Debug)]
pub(crate) struct NfsdWatch {
    root: SystemRoot,
    last: Option<(Instant, NfsdThreads)>,
    status: Option<NfsdStatus>,
}

impl NfsdWatch {
    pub(crate) const fn new(root: SystemRoot) -> Self {
        Self { root, last: None, status: None }
    }

    /// Reads the counters, if it is time.
    pub(crate) fn look(&mut self, now: Instant) -> Result<(), ReadError> {
        if self.last.as_ref().is_some_and(|(at, _)| now.saturating_since(*at) < SPAN) {
            return Ok(());
        }
        let read = NfsdThreads::read(&self.root)?;
        self.status = read.as_ref().map(|read| {
            let recent = self.last.as_ref().map(|(_, last)| read.since(last)).unwrap_or_default();
            let before = self.status.map_or(0, |status| status.waits);
            NfsdStatus { threads: read.threads, waits: before + recent.waited, recent }
        });
        self.last = read.map(|read| (now, read));
        Ok(())
    }

    /// Returns the state of the threads; `None` if there is no server.
    pub(crate) const fn status(&self) -> Option<NfsdStatus> {
        self.status
    }
}

/// Returns true if an NFS server of this machine has clients that the agent knows.
pub(crate) fn has_clients(sessions: &TargetSessions) -> bool {
    sessions
        .targets
        .iter()
        .any(|(via, target)| *via == TargetKind::Nfs && matches!(target, TargetReading::Read))
}

/// Counts for a moment, for the survey.
pub(crate) fn finding(root: &SystemRoot) -> Option<SurveyFinding> {
    let what = "threads of the NFS server".to_owned();
    let failed = |error: ReadError| {
        Some(SurveyFinding { what: what.clone(), works: false, detail: error.to_string() })
    };
    let before = match NfsdThreads::read(root) {
        Ok(before) => before?,
        Err(error) => return failed(error),
    };
    thread::sleep(GLANCE);
    let after = match NfsdThreads::read(root) {
        Ok(after) => after?,
        Err(error) => return failed(error),
    };
    let recent = after.since(&before);
    let status = NfsdStatus { threads: after.threads, waits: recent.waited, recent };
    let (works, detail) = match status.is_short() {
        true => (false, status.shortage()),
        false => {
            let ThreadWaits { requests, waited } = recent;
            (true, format!("{}; within 1 s {waited} of {requests} requests waited for one", after.threads))
        }
    };
    Some(SurveyFinding { what, works, detail })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tidegate_host::trees::unpack;

    use super::*;
    use crate::{AgentConfig, MachineRegulator};

    fn write(root: &std::path::Path, enqueued: u64, woken: u64) {
        let folder = root.join("proc/fs/nfsd");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("threads"), "8\n").unwrap();
        let header = "# pool packets-arrived sockets-enqueued threads-woken threads-timedout";
        fs::write(folder.join("pool_stats"), format!("{header}\n0 0 {enqueued} {woken} 0\n")).unwrap();
    }

    #[test]
    fn a_server_is_short_of_threads_while_most_requests_wait_for_one() {
        let tree = tempfile::tempdir().unwrap();
        let mut watch = NfsdWatch::new(SystemRoot::at(tree.path()));
        let mut look = |seconds: u64| {
            watch.look(Instant::from_nanos(seconds * 1_000_000_000)).unwrap();
            watch.status()
        };
        assert_eq!(look(0), None);
        write(tree.path(), 1_000, 0);
        // Counters from before the agent's start are not its business.
        assert_eq!(look(1).map(|status| (status.waits, status.is_short())), Some((0, false)));
        write(tree.path(), 1_400, 150);
        assert_eq!(look(5).map(|status| status.waits), Some(0), "ten seconds are not over");
        let short = look(11).unwrap();
        assert_eq!((short.waits, short.is_short()), (250, true));
        assert!(short.shortage().contains("250 of 400 requests waited for one of 8"), "{}", short.shortage());
        write(tree.path(), 1_800, 500);
        assert_eq!(look(21).map(|status| (status.waits, status.is_short())), Some((300, false)));
        // Few requests say nothing.
        write(tree.path(), 1_899, 500);
        assert_eq!(look(31).map(|status| (status.waits, status.is_short())), Some((399, false)));
    }

    #[test]
    fn the_regulation_of_a_machine_that_serves_nfs_follows_its_threads() {
        let tree = tempfile::tempdir().unwrap();
        unpack(include_str!("../../tidegate-host/tests/fixtures/nfsd.tree"), tree.path()).unwrap();
        let config = AgentConfig::parse("agent.toml", "[resource.vg0]\ntarget = '15ms'\n").unwrap();
        let mut regulator = MachineRegulator::new(SystemRoot::at(tree.path()), &config).unwrap();
        let mut is_short = |tenths: u64, enqueued: u64| {
            write(tree.path(), enqueued, 0);
            assert!(regulator.step(Instant::from_nanos(tenths * 100_000_000)).blind.is_none());
            regulator.nfsd().map(|nfsd| nfsd.is_short())
        };
        assert_eq!(is_short(1, 0), None, "the first look is only to count from");
        assert_eq!(is_short(2, 0), Some(false));
        assert_eq!(is_short(103, 500), Some(true));
    }

    #[test]
    fn check_counts_for_a_moment() {
        let tree = tempfile::tempdir().unwrap();
        let root = SystemRoot::at(tree.path());
        assert!(finding(&root).is_none());
        write(tree.path(), 10, 10);
        let found = finding(&root).unwrap();
        assert!(found.works);
        assert_eq!(found.detail, "8; within 1 s 0 of 0 requests waited for one");
        fs::write(tree.path().join("proc/fs/nfsd/threads"), "some\n").unwrap();
        let found = finding(&root).unwrap();
        assert!(!found.works && found.detail.contains("threads:1: expected a number"), "{}", found.detail);
    }
}
