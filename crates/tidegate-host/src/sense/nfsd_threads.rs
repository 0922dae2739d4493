//! Threads of the kernel's NFS server, and requests that found none idle
//! (Documentation/filesystems/nfs/knfsd-stats.rst):
//!
//! ```text
//! /proc/fs/nfsd/threads      the number of threads; 0: no server runs
//!              /pool_stats   counters of each pool of threads, in columns with names
//! ```
//!
//! A connection with a request is put into a queue (`sockets-enqueued`). If a thread is idle, it is woken
//! (`threads-woken`). The requests for which none is woken wait until a thread has ended another one. Columns
//! beside these two differ from kernel to kernel.

use std::path::Path;

use super::tree;
use crate::root::{ReadError, SystemRoot};

const NFSD: &str = "/proc/fs/nfsd";

/// The threads of an NFS server, and what they have been asked for since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsdThreads {
    /// The number of threads.
    pub threads: u64,
    pools: Vec<PoolCounters>,
}

/// Counters of one pool of threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PoolCounters {
    enqueued: u64,
    woken: u64,
}

/// The requests of a span of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadWaits {
    /// Requests that came.
    pub requests: u64,
    /// Those of them that found no idle thread.
    pub waited: u64,
}

impl NfsdThreads {
    /// Reads the counters; `None` if no server runs, or this kernel does not count.
    ///
    /// # Errors
    /// When they cannot be read, or are not as the kernel's documentation says.
    pub fn read(root: &SystemRoot) -> Result<Option<Self>, ReadError> {
        let (threads, stats) = (Path::new(NFSD).join("threads"), Path::new(NFSD).join("pool_stats"));
        let Some(text) = tree::text(root, &threads)? else { return Ok(None) };
        let wrong =
            || tree::malformed(root, &threads, 1, format!("expected a number, not `{}`", text.trim()));
        let threads = text.trim().parse::<u64>().map_err(|_| wrong())?;
        // Without a server there is no such file, or nothing in it.
        let Some(text) = tree::text(root, &stats)?.filter(|_| threads > 0) else { return Ok(None) };
        let pools = pools(&text).map_err(|(line, problem)| tree::malformed(root, &stats, line, problem))?;
        Ok(pools.map(|pools| Self { threads, pools }))
    }

    /// Returns the requests since an earlier reading. A server that was started anew had none before.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> ThreadWaits {
        if self.pools.len() != earlier.pools.len() {
            return ThreadWaits::default();
        }
        let mut waits = ThreadWaits::default();
        for (now, then) in self.pools.iter().zip(&earlier.pools) {
            let requests = now.enqueued.saturating_sub(then.enqueued);
            waits.requests += requests;
            waits.waited += requests.saturating_sub(now.woken.saturating_sub(then.woken));
        }
        waits
    }
}

/// Reads the counters of all pools; `None` without the two columns. An error has its line, from 1.
fn pools(text: &str) -> Result<Option<Vec<PoolCounters>>, (usize, String)> {
    let mut lines = text.lines().enumerate();
    let names = lines.next().map(|(_, line)| line.trim_start_matches('#').split_whitespace());
    let names: Vec<_> = names.into_iter().flatten().collect();
    let place = |column: &str| names.iter().position(|name| *name == column);
    let (Some(enqueued), Some(woken)) = (place("sockets-enqueued"), place("threads-woken")) else {
        return Ok(None);
    };
    let mut pools = Vec::new();
    for (number, line) in lines {
        let columns: Vec<_> = line.split_whitespace().collect();
        let count = |place: usize| {
            let number_of = columns.get(place).and_then(|text| text.parse().ok());
            number_of.ok_or_else(|| (number + 1, format!("expected a number in column {}", place + 1)))
        };
        pools.push(PoolCounters { enqueued: count(enqueued)?, woken: count(woken)? });
    }
    Ok(Some(pools))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::write_file;

    const BEFORE: &str = "# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n\
        0 900 1000 990 0\n1 0 20 20 0\n";

    fn read(threads: &str, stats: Option<&str>) -> Result<Option<NfsdThreads>, String> {
        let tree = tempfile::tempdir().unwrap();
        write_file(tree.path(), "proc/fs/nfsd/threads", threads.as_bytes()).unwrap();
        if let Some(stats) = stats {
            write_file(tree.path(), "proc/fs/nfsd/pool_stats", stats.as_bytes()).unwrap();
        }
        NfsdThreads::read(&SystemRoot::at(tree.path())).map_err(|error| error.to_string())
    }

    fn server(stats: &str) -> NfsdThreads {
        read("8\n", Some(stats)).unwrap().unwrap()
    }

    #[test]
    fn requests_that_found_no_thread_are_those_that_woke_none() {
        let (before, after) = (server(BEFORE), BEFORE.replace("1000 990", "1500 1090"));
        assert_eq!(before.threads, 8);
        assert_eq!(server(&after).since(&before), ThreadWaits { requests: 500, waited: 400 });
        // A thread that is woken for something else makes no other request wait less.
        let spare = BEFORE.replace("20 20", "30 90");
        assert_eq!(server(&spare).since(&before), ThreadWaits { requests: 10, waited: 0 });
        let anew = BEFORE.replace("1000 990", "3 3").replace("20 20", "0 0");
        assert_eq!(server(&anew).since(&before), ThreadWaits::default());
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let older = "# pool packets-arrived sockets-enqueued threads-woken overloads-avoided \
            threads-timedout\n0 900 1000 990 5 0\n";
        assert_eq!(server(older).since(&server(&older.replace("1000", "900"))).requests, 100);
        assert_eq!(read("8\n", Some("# pool packets-arrived\n0 900\n")), Ok(None));
    }

    #[test]
    fn without_a_server_there_are_no_threads() {
        assert_eq!(read("0\n", Some(BEFORE)), Ok(None));
        assert_eq!(read("8\n", None), Ok(None));
        let tree = tempfile::tempdir().unwrap();
        assert!(matches!(NfsdThreads::read(&SystemRoot::at(tree.path())), Ok(None)));
        for (threads, stats, said) in [
            ("many\n", BEFORE.to_owned(), "threads:1: expected a number, not `many`"),
            ("8\n", BEFORE.replace("1000", "all"), "pool_stats:2: expected a number in column 3"),
            ("8\n", BEFORE.replace("1 0 20 20 0", "1 0"), "pool_stats:3: expected a number in column 3"),
        ] {
            let error = read(threads, Some(&stats)).unwrap_err();
            assert!(error.ends_with(said), "{error}");
        }
    }
}
