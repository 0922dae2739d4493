//! What would keep a service from starting on this machine now, with the places in its configuration: addresses
//! that other programs listen on, a journal that cannot be written. Such a service ends with status 1, and is
//! tried again; a configuration that contradicts itself is refused with status 2.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf, absolute};

use rustix::fs::{Access, access};
use tidegate_config::{Finding, FindingList, FindingPlace, PlacedValue, Section};
use tidegate_http::ListenAddress;
use tidegate_sockets::holders::{self, Holder};
use tidegate_sockets::trial;

use crate::api::PlacedApi;
use crate::config::{JournalSettings, MetricsAddress};
use crate::operator_socket::RunningService;

/// The folders that systemd makes for the packaged services at each start, with the services' own rights.
const OF_SYSTEMD: [&str; 4] =
    ["/run/tidegate", "/run/tidegate-agent", "/var/lib/tidegate", "/var/lib/tidegate-agent"];

/// The remedy where another program listens.
const CHOOSE_ANOTHER: &str = "end that program, or choose another address";

/// The addresses and the journal of a service, with their places in its configuration.
#[derive(Debug, Clone, Default)]
pub struct ServicePlaces {
    addresses: Vec<(ListenAddress, FindingPlace)>,
    journal: Option<(PathBuf, FindingPlace)>,
}

impl ServicePlaces {
    /// Takes what was read of a configuration.
    #[must_use]
    pub fn new(
        root: &Section<'_>,
        metrics: Option<&PlacedValue<MetricsAddress>>,
        api: Option<&PlacedApi>,
        journal: Option<&JournalSettings>,
        report: &FindingList<'_>,
    ) -> Self {
        let metrics = metrics.map(MetricsAddress::placed).map(|given| given.map(ListenAddress::Tcp));
        let addresses = api.into_iter().flat_map(|api| api.listen.iter().cloned()).chain(metrics);
        let journal = journal.and_then(|journal| {
            let span = root.key_span("journal")?;
            Some((journal.folder.clone(), report.place(&span)))
        });
        Self { addresses: addresses.map(|given| (given.value, report.place(&given.span))).collect(), journal }
    }

    /// Returns what would keep the service from starting now. What its `running` process uses is no obstacle.
    #[must_use]
    pub fn obstacles(&self, running: Option<&RunningService>) -> Vec<Finding> {
        let addresses = self.addresses.iter().filter_map(|(address, place)| {
            let why = match address {
                ListenAddress::Tcp(tcp) => why_not_tcp(*tcp, running),
                ListenAddress::Unix(path) => why_not_unix(path, running),
            };
            Some(place.error_with_help(format!("cannot listen on `{address}`: {}", why?), CHOOSE_ANOTHER))
        });
        let journal = self.journal.iter().filter_map(|(folder, place)| {
            let why = why_no_journal(folder, running)?;
            Some(place.error(format!("`{}`: no journal can be written there: {why}", folder.display())))
        });
        addresses.chain(journal).collect()
    }
}

/// Returns the reason why a service cannot listen on a TCP address.
#[must_use]
pub fn why_not_tcp(address: SocketAddr, running: Option<&RunningService>) -> Option<String> {
    why_not(trial::tcp(address), || holders::of_tcp(address), running)
}

/// Returns the reason why a service cannot listen on a Unix socket.
#[must_use]
pub fn why_not_unix(path: &Path, running: Option<&RunningService>) -> Option<String> {
    let outcome = trial::unix(path);
    let is_in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    if is_of_systemd(path) && outcome.as_ref().is_err_and(|error| !is_in_use(error)) {
        return None;
    }
    why_not(outcome, || absolute(path).map(|path| holders::of_unix(&path)).unwrap_or_default(), running)
}

fn why_not(
    outcome: io::Result<()>,
    holders: impl FnOnce() -> Vec<Holder>,
    running: Option<&RunningService>,
) -> Option<String> {
    let error = outcome.err()?;
    if error.kind() != io::ErrorKind::AddrInUse {
        return Some(error.to_string());
    }
    let holders = holders();
    // systemd listens for a service, and passes the socket to it.
    if is_used_by(running, &holders) || holders.iter().any(|holder| holder.program == "systemd") {
        return None;
    }
    let names: Vec<_> = holders.iter().map(Holder::to_string).collect();
    Some(match names.is_empty() {
        true => "another program listens there (`ss -lp`, as root, names it)".to_owned(),
        false => format!("{} listens there", names.join(", ")),
    })
}

/// Returns true if a running service is among the programs that have something open. Unless this user may see
/// them, the service is taken to be.
#[must_use]
pub fn is_used_by(running: Option<&RunningService>, holders: &[Holder]) -> bool {
    match running {
        None => false,
        Some(RunningService { process: Some(process) }) if !holders.is_empty() => {
            holders.iter().any(|holder| holder.process == *process)
        }
        Some(_) => true,
    }
}

fn why_no_journal(folder: &Path, running: Option<&RunningService>) -> Option<String> {
    if is_of_systemd(folder) {
        return None;
    }
    if fs::metadata(folder).is_ok_and(|found| !found.is_dir()) {
        return Some("it is no folder".to_owned());
    }
    // The folders that are missing are made.
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    if let Err(error) = access(there, Access::WRITE_OK | Access::EXEC_OK) {
        return Some(format!("{}: {}", there.display(), io::Error::from(error)));
    }
    let lock = File::open(folder.join("lock")).ok()?;
    let is_held = lock.try_lock_shared().is_err();
    (is_held && running.is_none()).then(|| "another process writes its journal there".to_owned())
}

/// Returns true for paths in the folders of the packaged services, which the user who checks may not see.
fn is_of_systemd(path: &Path) -> bool {
    OF_SYSTEMD.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_the_running_service_uses_is_no_obstacle_to_it() {
        let holder = |process| Holder { process, program: "nginx".to_owned() };
        let running = |process| RunningService { process };
        for (running, holders, expected) in [
            (None, vec![], false),
            (None, vec![holder(1)], false),
            (Some(running(Some(1))), vec![holder(1)], true),
            (Some(running(Some(2))), vec![holder(1)], false),
            (Some(running(Some(2))), vec![], true),
            (Some(running(None)), vec![holder(1)], true),
        ] {
            assert_eq!(is_used_by(running.as_ref(), &holders), expected, "{running:?} {holders:?}");
        }
    }

    #[test]
    fn addresses_and_journals_in_use_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(why_not_tcp(address, None).unwrap().contains("another program listens there"));
        assert_eq!(why_not_tcp(address, Some(&RunningService { process: None })), None);
        drop(listener);
        assert_eq!(why_not_tcp(address, None), None);
        let socket = folder.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(why_not_unix(&socket, None).unwrap().contains("another program listens there"));
        assert_eq!(why_not_unix(&folder.path().join("t"), None), None);

        let journal = folder.path().join("a/b");
        assert_eq!(why_no_journal(&journal, None), None);
        assert!(!journal.exists());
        fs::create_dir_all(&journal).unwrap();
        let lock = File::create(journal.join("lock")).unwrap();
        assert_eq!(why_no_journal(&journal, None), None);
        lock.lock().unwrap();
        assert!(why_no_journal(&journal, None).unwrap().contains("another process"));
        assert_eq!(why_no_journal(&journal, Some(&RunningService { process: None })), None);
        assert!(why_no_journal(&journal.join("lock"), None).unwrap().contains("no folder"));
    }
}
