//! `/proc/self/mountstats`: what every NFS mount has done since it was mounted.
//!
//! The kernel writes a line for each mount, and statistics below those of NFS (`fs/nfs/super.c`,
//! `net/sunrpc/stats.c`). Of these count:
//!
//! | line | columns |
//! |---|---|
//! | `bytes:` | bytes by `read` and `write`, by the same with `O_DIRECT`, **read from the server, written to the server**; pages |
//! | `READ:`, `READ_PLUS:`, `WRITE:` of `per-op statistics` | **operations**, transmissions, timeouts, bytes sent and received, queue ms, **round trip ms**, **execution ms**; since 5.3 errors |
//!
//! Bytes are payload, without headers, and without what the page cache had. A round trip is the time of the
//! network and the server. The execution is all of an operation's time, what it waited for a slot of the
//! connection included. Times are whole milliseconds, cut off, of a sum that is kept in nanoseconds: means
//! over many operations are right, and of a few rough.
//!
//! Mounts of one file system of a server share their statistics, unless they are mounted with
//! `nosharecache`. Data servers of pNFS have operations of their own, which the kernel does not show here.
//! Their bytes count.

use std::path::{Path, PathBuf};

use tidegate_units::{Bytes, Latency};

use super::mounts::unescape;
use super::tree;
use crate::root::{ReadError, SystemRoot};

const PATH: &str = "/proc/self/mountstats";

/// Columns of `bytes:` that are payload to and from the server.
const FROM_SERVER: usize = 4;
const TO_SERVER: usize = 5;

/// Columns of an operation.
const OPERATIONS: usize = 0;
const ROUND_TRIP: usize = 6;
const EXECUTION: usize = 7;

/// The mounts of network file systems, in the order in which they were mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkMounts(Vec<NetworkMount>);

/// A mount of NFS, of any version, and what it has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkMount {
    /// The directory where it is mounted.
    pub point: PathBuf,
    /// Its counters since it was mounted.
    pub counters: NetworkCounters,
}

/// Counters of a mount, or their growth over a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// Reads.
    pub read: NetworkOperations,
    /// Writes.
    pub write: NetworkOperations,
}

/// One direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkOperations {
    /// Payload.
    pub bytes: Bytes,
    /// Operations that ended.
    pub count: u64,
    /// Milliseconds of the network and the server, of all of them together.
    pub round_trip_ms: u64,
    /// Milliseconds from the request to its end, of all of them together.
    pub execution_ms: u64,
}

impl NetworkMounts {
    /// Reads the kernel's file; without NFS there may be none.
    ///
    /// # Errors
    /// When it cannot be read, or the statistics of a mount are not what the kernel writes.
    pub fn read(root: &SystemRoot) -> Result<Self, ReadError> {
        let Some(text) = tree::text(root, PATH)? else { return Ok(Self::default()) };
        parse(&text).map_err(|(line, problem)| tree::malformed(root, PATH, line, problem))
    }

    /// The mount at a directory; of several on each other, the last.
    #[must_use]
    pub fn at(&self, point: &Path) -> Option<&NetworkMount> {
        self.0.iter().rev().find(|mount| mount.point == point)
    }
}

impl NetworkCounters {
    /// Returns the growth since an older reading of the same mount. `None` if a counter fell: something else
    /// is mounted there now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self { read: self.read.since(&before.read)?, write: self.write.since(&before.write)? })
    }
}

impl NetworkOperations {
    fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            bytes: Bytes::new(self.bytes.get().checked_sub(before.bytes.get())?),
            count: self.count.checked_sub(before.count)?,
            round_trip_ms: self.round_trip_ms.checked_sub(before.round_trip_ms)?,
            execution_ms: self.execution_ms.checked_sub(before.execution_ms)?,
        })
    }

    /// Returns the mean time of the network and the server; `None` without operations.
    #[must_use]
    pub fn mean_round_trip(&self) -> Option<Latency> {
        self.mean(self.round_trip_ms)
    }

    /// Returns the mean time of an operation, its wait for the connection included; `None` without
    /// operations.
    #[must_use]
    pub fn mean_execution(&self) -> Option<Latency> {
        self.mean(self.execution_ms)
    }

    fn mean(&self, millis: u64) -> Option<Latency> {
        (self.count > 0).then(|| Latency::from_millis_f64(millis as f64 / self.count as f64))
    }
}

/// An error has the line, counted from 1.
fn parse(text: &str) -> Result<NetworkMounts, (usize, String)> {
    let mut mounts: Vec<NetworkMount> = Vec::new();
    let mut is_network = false;
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| (index + 1, format!("expected {what} in `{}`", tree::shown(line)));
        if line.starts_with("device ") || line.starts_with("no device mounted ") {
            // ` mounted on ` cannot be part of a name: spaces in it are escaped.
            let (_, mounted) = line.split_once(" mounted on ").ok_or_else(|| wrong("` mounted on `"))?;
            let (point, kind) =
                mounted.split_once(" with fstype ").ok_or_else(|| wrong("` with fstype `"))?;
            is_network = matches!(kind.split(' ').next(), Some("nfs" | "nfs4"));
            if is_network {
                let point = unescape(point).into();
                mounts.push(NetworkMount { point, counters: NetworkCounters::default() });
            }
            continue;
        }
        let Some(mount) = mounts.last_mut().filter(|_| is_network) else { continue };
        let NetworkCounters { read, write } = &mut mount.counters;
        let Some((name, values)) = line.trim_start().split_once(':') else { continue };
        let column = |place: usize| {
            let word = values.split_ascii_whitespace().nth(place);
            word.and_then(|word| word.parse::<u64>().ok())
                .ok_or_else(|| wrong(&format!("a number in column {}", place + 1)))
        };
        let operations = match name {
            "bytes" => {
                read.bytes = Bytes::new(column(FROM_SERVER)?);
                write.bytes = Bytes::new(column(TO_SERVER)?);
                continue;
            }
            // A client of NFS 4.2 may read holes as such.
            "READ" | "READ_PLUS" => read,
            "WRITE" => write,
            _ => continue,
        };
        for (sum, place) in [
            (&mut operations.count, OPERATIONS),
            (&mut operations.round_trip_ms, ROUND_TRIP),
            (&mut operations.execution_ms, EXECUTION),
        ] {
            *sum = sum.saturating_add(column(place)?);
        }
    }
    Ok(NetworkMounts(mounts))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Captured in the lab, before and after fio: Debian's 6.1, NFS 4.2, two hosts' mounts.
    const BEFORE: &str = include_str!("../../tests/fixtures/mountstats-before");
    const AFTER: &str = include_str!("../../tests/fixtures/mountstats-after");

    /// fio's own figures of those loads of 64 KiB past the page cache: requests, bytes, mean milliseconds.
    const FIO_WRITES: (u64, u64, f64) = (128, 8_388_608, 16.6237);
    const FIO_READS: (u64, u64, f64) = (128, 8_388_608, 14.5861);

    #[test]
    fn captured_statistics_are_within_five_per_cent_of_fio() {
        let at = |text, point| parse(text).unwrap().at(Path::new(point)).map(|mount| mount.counters);
        let (before, after) = (at(BEFORE, "/mnt/host1").unwrap(), at(AFTER, "/mnt/host1").unwrap());
        let done = after.since(&before).unwrap();
        for (ours, (count, bytes, mean_ms)) in [(done.write, FIO_WRITES), (done.read, FIO_READS)] {
            let near = |ours: f64, fio: f64| (ours / fio - 1.0).abs() < 0.05;
            assert!(near(ours.count as f64, count as f64), "{ours:?}");
            assert!(near(ours.bytes.get() as f64, bytes as f64), "{ours:?}");
            assert!(near(ours.mean_execution().unwrap().as_millis_f64(), mean_ms), "{ours:?}");
            assert!(ours.mean_round_trip() <= ours.mean_execution(), "{ours:?}");
        }
        assert_eq!(at(AFTER, "/mnt/host2"), Some(NetworkCounters::default()), "the other host's");
        assert_eq!(at(AFTER, "/"), None, "another kind of file system");
    }

    #[test]
    fn payload_counts_and_the_last_of_mounts_on_each_other() {
        let text = "device proc mounted on /proc with fstype proc\n\
            no device mounted on /x with fstype tmpfs\n\
            device a:/ mounted on /mnt/a\\040b with fstype nfs statvers=1.0\n\
            \tbytes:\t1 2 3 4 5 6 7 8\n\
            \tper-op statistics\n\t        READ: 1 1 0 2 2 3 4 5\n\t       WRITE: 1 1 0 2 2 3 6 7\n\
            device b:/ mounted on /mnt/a\\040b with fstype nfs4 statvers=1.1\n\
            \tbytes:\t0 0 0 0 8192 65536 2 16\n\
            \tper-op statistics\n\t        READ: 2 2 0 300 8448 0 8 10 0\n\
            \t   READ_PLUS: 1 1 0 150 4224 0 1 2 0\n\t       WRITE: 4 5 1 66000 640 9 20 40 0\n\
            device c mounted on /c with fstype ext4\n\tbytes:\tnone of ours\n";
        let mounts = parse(text).unwrap();
        assert_eq!(mounts.0.len(), 2);
        let NetworkCounters { read, write } = mounts.at(Path::new("/mnt/a b")).unwrap().counters;
        assert_eq!((read.bytes.get(), read.count, read.round_trip_ms, read.execution_ms), (8_192, 3, 9, 12));
        assert_eq!(write.mean_execution(), Some(Latency::from_millis(10)));
        assert_eq!(write.mean_round_trip(), Some(Latency::from_millis(5)));
        let before = NetworkCounters { read, write: NetworkOperations { count: 1, ..write } };
        let since = mounts.at(Path::new("/mnt/a b")).unwrap().counters.since(&before).unwrap();
        assert_eq!((since.write.count, since.read.count), (3, 0));
        assert_eq!(since.read.mean_execution(), None);
        assert_eq!(mounts.0[0].counters.since(&before), None, "another mount");
    }

    #[test]
    fn a_malformed_line_is_named() {
        let mount = "device a:/ mounted on /a with fstype nfs4 statvers=1.1\n";
        for line in ["\tbytes:\t1 2 3 4 5\n", "\t READ: 1 2 3 4 5 6 x 8\n", "\tWRITE: 1\n"] {
            assert_eq!(parse(&format!("{mount}{line}")).unwrap_err().0, 2, "{line}");
        }
        assert_eq!(parse("device a:/ mounted at /a\n").unwrap_err().0, 1);
        assert_eq!(parse("device a:/ mounted on /a as nfs\n").unwrap_err().0, 1);
    }

    #[test]
    fn this_machines_own_statistics_are_read() {
        assert!(NetworkMounts::read(&SystemRoot::default()).is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(\\PC|\n|\t|:|[0-9]){0,100}") {
            let _ = parse(&text);
            let _ = parse(&format!("device a:/ mounted on /a with fstype nfs4\n{text}"));
        }
    }
}
