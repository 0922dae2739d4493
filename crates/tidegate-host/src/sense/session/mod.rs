//! Sessions, as the storage targets of the kernel report them: the consumers that load each device, and their
//! addresses.
//!
//! One [`TargetSession`] is one login of one consumer as far as it concerns one volume. A consumer with three
//! volumes has three, a volume of two consumers is in two. The same consumer may come from two addresses, and
//! two consumers from one.
//!
//! If the kernel does not tell something, the session has a [`AddressDoubt`]. Nothing is guessed: a wrong
//! guess would throttle a consumer that did nothing.

mod lio;
mod nfsd;
mod nvmet;
mod portals;
mod sockets;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_units::{ConsumerName, shown_name};

use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};

/// A consumer's use of one volume through a storage target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSession {
    /// The kind of target.
    pub via: TargetKind,
    /// The consumer's name: an initiator's IQN, an NVMe host's NQN, the name an NFS client gives itself.
    pub consumer: ConsumerName,
    /// The target that the consumer is logged in to: a target's IQN, a subsystem's NQN, an export's path.
    pub target: Arc<str>,
    /// The volume: its name there, such as `tpgt_1/lun_0`, and its device or file.
    pub volume: Arc<VolumeBacking>,
    /// Its number on this machine; `None` if the volume is no block device, or none that can be told.
    pub device: Option<DeviceNumber>,
    /// The addresses that the session's connections certainly come from, each once. Empty while its
    /// connections are lost, or where nothing is certain.
    pub addresses: Vec<IpAddr>,
    /// The doubt about the addresses; `None` if `addresses` are all there are.
    pub doubt: Option<Arc<AddressDoubt>>,
    /// The consumer's I/O to the volume, if the target counts it and several sessions share the device. For a
    /// session alone the device's own counters say more.
    pub counters: Option<SessionCounters>,
}

/// Kinds of storage targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKind {
    /// LIO's iSCSI target.
    Iscsi,
    /// The kernel's NVMe target, over TCP.
    Nvme,
    /// The kernel's NFS server.
    Nfs,
    /// Another server, of which only the portal and the connections are known.
    Portal,
}

impl TargetKind {
    /// Returns its value as a label of metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Iscsi => "iscsi",
            Self::Nvme => "nvme",
            Self::Nfs => "nfs",
            Self::Portal => "portal",
        }
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iscsi => "iSCSI",
            Self::Nvme => "NVMe",
            Self::Nfs => "NFS",
            Self::Portal => "portals",
        })
    }
}

/// The storage behind a volume that a target offers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeBacking {
    /// The volume's name at its target: `tpgt_1/lun_0`, a namespace's number.
    pub name: String,
    /// The device or file that it is, as it was configured.
    pub path: Option<PathBuf>,
}

/// The target's counters of one consumer at one volume. They only grow, while the target's configuration
/// lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionCounters {
    /// Reads, in whole MiB; wraps at 4 PiB.
    pub read_mib: u32,
    /// Writes, in whole MiB; wraps at 4 PiB.
    pub written_mib: u32,
}

/// The doubt about the addresses of a session, of which some or all are not known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AddressDoubt {
    /// The reason.
    pub why: DoubtReason,
    /// Addresses that may be the session's or another's; no others come into question. In order, each once.
    pub candidates: Vec<IpAddr>,
}

/// Reasons for doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DoubtReason {
    /// The target gives no addresses of initiators that have no entry in its list (demo mode), and the socket
    /// table has connections of several.
    DemoMode,
    /// The consumer has more sessions with the target than the kernel shows: it shows the latest of each
    /// name.
    MoreSessions,
    /// The target's portal is not in this network namespace, so that nothing is known of its connections.
    NoSockets,
    /// The kernel does not say which of the hosts that may connect have.
    NotSaid,
}

impl fmt::Display for AddressDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.why {
            DoubtReason::DemoMode => "the target gives no addresses in demo mode",
            DoubtReason::MoreSessions => "the kernel shows only one of the initiator's sessions",
            DoubtReason::NoSockets => "the target's portal is not in this network namespace",
            DoubtReason::NotSaid => "the kernel does not say which hosts are connected",
        })?;
        for (at, address) in self.candidates.iter().enumerate() {
            write!(f, "{} {address}", if at == 0 { "; candidates:" } else { "," })?;
        }
        Ok(())
    }
}

impl TargetSession {
    /// Returns true if the session is the same, apart from the counters.
    fn is_as(&self, other: &Self) -> bool {
        let Self { via, consumer, target, volume, device, addresses, doubt, counters: _ } = self;
        (via, device, addresses) == (&other.via, &other.device, &other.addresses)
            && (consumer, target) == (&other.consumer, &other.target)
            && (volume, doubt) == (&other.volume, &other.doubt)
    }
}

/// A device's activity since the reading before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceActivity {
    /// It has read.
    pub reads: bool,
    /// It has written.
    pub writes: bool,
}

impl DeviceActivity {
    /// Nothing is known that makes anything not worth reading.
    pub const ANY: Self = Self { reads: true, writes: true };
}

/// The sessions of all storage targets.
#[derive(Debug, Default)]
pub struct TargetSessions {
    /// Every session, in the order of kinds, targets and consumers.
    pub sessions: Vec<TargetSession>,
    /// The result of reading each kind of target.
    pub targets: Vec<(TargetKind, TargetReading)>,
}

/// The result of reading one kind of target.
#[derive(Debug)]
pub enum TargetReading {
    /// It was read.
    Read,
    /// It is not there, which is no error.
    Absent(TargetAbsence),
    /// Its files could not be read or understood; none of its sessions are known.
    Failed(ReadError),
}

/// The reason that a kind of target has no sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetAbsence {
    /// `/sys/kernel/config` is not there or empty.
    NoConfigfs,
    /// The kernel module is not loaded.
    NoModule(&'static str),
    /// The module is loaded, and nothing has been set up.
    NotConfigured,
    /// No socket of this network namespace listens at the portal.
    NothingListens(SocketAddr),
}

impl TargetAbsence {
    /// Returns the remedy, which would give sessions of a kind of target.
    #[must_use]
    pub fn remedy(self, via: TargetKind) -> &'static str {
        match (via, self) {
            (TargetKind::Iscsi, Self::NoConfigfs) => {
                "configfs (mount -t configfs configfs /sys/kernel/config) and the kernel module \
                    iscsi_target_mod (CONFIG_ISCSI_TARGET)"
            }
            (TargetKind::Iscsi, Self::NoModule(_)) => {
                "the kernel modules target_core_mod and iscsi_target_mod (CONFIG_TARGET_CORE, \
                    CONFIG_ISCSI_TARGET)"
            }
            (TargetKind::Iscsi, Self::NotConfigured) => {
                "the kernel module iscsi_target_mod and a target, as targetcli sets them up"
            }
            (TargetKind::Nvme, Self::NoConfigfs) => {
                "configfs (mount -t configfs configfs /sys/kernel/config) and the kernel module nvmet_tcp \
                    (CONFIG_NVME_TARGET_TCP)"
            }
            (TargetKind::Nvme, Self::NoModule(_)) => "the kernel module nvmet_tcp (CONFIG_NVME_TARGET_TCP)",
            (TargetKind::Nvme, Self::NotConfigured) => {
                "a subsystem and a port, as nvmetcli sets them up, and the kernel module nvmet_tcp"
            }
            (_, Self::NothingListens(_)) | (TargetKind::Portal, _) => {
                "its server, in the network namespace of the agent, or another `portals`"
            }
            (TargetKind::Nfs, Self::NotConfigured) => {
                "a running NFS server: the package nfs-kernel-server, or nfs-utils"
            }
            (TargetKind::Nfs, _) => {
                "the kernel module nfsd (CONFIG_NFSD) and its files (mount -t nfsd nfsd /proc/fs/nfsd), as \
                    the NFS server's service sees to"
            }
        }
    }
}

impl fmt::Display for TargetAbsence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConfigfs => {
                f.write_str("configfs is not mounted at /sys/kernel/config, or nothing is in it")
            }
            Self::NoModule(module) => write!(f, "the kernel module {module} is not loaded"),
            Self::NotConfigured => f.write_str("no target is set up"),
            Self::NothingListens(portal) => write!(f, "nothing listens at {portal}"),
        }
    }
}

/// The result of reading one kind of target, if there is no error.
#[derive(Debug, PartialEq, Eq)]
enum TargetFinding {
    Sessions(Vec<TargetSession>),
    Absent(TargetAbsence),
}

/// Asks every storage target of the kernel for its sessions, once. Who asks again and again keeps a
/// [`SessionReader`].
#[must_use]
pub fn sessions(root: &SystemRoot) -> TargetSessions {
    let mut reader = SessionReader::new(root.clone());
    reader.read(|_| DeviceActivity::ANY);
    reader.sessions
}

/// Portals of servers, with the devices that the servers keep their data on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedPortals {
    /// The devices behind each portal: numbers and names.
    pub devices: BTreeMap<SocketAddr, Vec<(DeviceNumber, String)>>,
    /// Names of consumers by their addresses. Others are named after their address.
    pub names: BTreeMap<IpAddr, ConsumerName>,
}

impl ServedPortals {
    fn name_of(&self, address: IpAddr) -> ConsumerName {
        self.names.get(&address).cloned().unwrap_or_else(|| consumer_name(&address.to_string()))
    }
}

/// Asks every storage target of the kernel for its sessions, again and again, and looks closely only at what
/// may have changed.
///
/// An iSCSI target is read again when an initiator has logged in or out there. One in 32 of them is read at
/// each reading anyway, since a volume that is given to a logged-in initiator changes no count.
///
/// Socket tables are those of the network namespace of this process (`/proc/net`): run it in the targets'
/// own.
#[derive(Debug)]
pub struct SessionReader {
    root: SystemRoot,
    lio: lio::LioReader,
    portals: portals::PortalReader,
    sessions: TargetSessions,
}

impl SessionReader {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(root: SystemRoot) -> Self {
        Self {
            root,
            lio: lio::LioReader::default(),
            portals: portals::PortalReader::default(),
            sessions: TargetSessions::default(),
        }
    }

    /// Takes portals whose clients are sessions, too, from the next reading on.
    pub fn serve(&mut self, portals: ServedPortals) {
        self.portals.serve(portals);
    }

    /// Reads every session. Gives those of the reading before if these are others now; `None` if they are the
    /// same, each in its place, whatever they have done meanwhile. A kind of target that cannot be understood
    /// does not hide the others.
    ///
    /// [`TargetSession::counters`] cost a file each: they are read where several sessions share a device that
    /// `did` something meanwhile, what they wrote every second time, and what they read every eighth.
    pub fn read(&mut self, did: impl Fn(DeviceNumber) -> DeviceActivity) -> Option<TargetSessions> {
        let mut now = TargetSessions::default();
        let found = self.lio.read(&self.root, &did).transpose();
        let same = found.is_none();
        // Nothing to add is said, too: the kind of target was read.
        now.add(TargetKind::Iscsi, found.unwrap_or(Ok(TargetFinding::Sessions(Vec::new()))));
        now.add(TargetKind::Nvme, nvmet::sessions(&self.root));
        now.add(TargetKind::Nfs, nfsd::sessions(&self.root));
        if self.portals.is_needed() {
            now.add(TargetKind::Portal, self.portals.read());
        }
        let known = &mut self.sessions.sessions;
        // Those of iSCSI are the first.
        let kept = if same { known.partition_point(|session| session.via == TargetKind::Iscsi) } else { 0 };
        let as_before = known.len() == kept + now.sessions.len()
            && known[kept..].iter().zip(&now.sessions).all(|(old, new)| old.is_as(new));
        let before = if as_before {
            self.sessions.targets = now.targets;
            None
        } else {
            now.sessions.splice(..0, known[..kept].iter().cloned());
            Some(std::mem::replace(&mut self.sessions, now))
        };
        let sessions = &mut self.sessions.sessions;
        for (session, counters) in sessions.iter_mut().zip(self.lio.counters()) {
            session.counters = counters;
        }
        let of_portals = sessions.iter_mut().filter(|session| session.via == TargetKind::Portal);
        for (session, counters) in of_portals.zip(self.portals.counters()) {
            session.counters = Some(*counters);
        }
        before
    }

    /// Returns the last reading.
    #[must_use]
    pub const fn sessions(&self) -> &TargetSessions {
        &self.sessions
    }
}

impl TargetSessions {
    fn add(&mut self, via: TargetKind, found: Result<TargetFinding, ReadError>) {
        let target = match found {
            Ok(TargetFinding::Sessions(mut sessions)) => {
                self.sessions.append(&mut sessions);
                TargetReading::Read
            }
            Ok(TargetFinding::Absent(absence)) => TargetReading::Absent(absence),
            Err(error) => TargetReading::Failed(error),
        };
        self.targets.push((via, target));
    }
}

/// Sorted, each once, and IPv4 as IPv4 also on a socket of IPv6.
fn distinct(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = addresses.into_iter().map(|address| address.to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// A name that a client gives itself, whatever is in it.
fn consumer_name(text: &str) -> ConsumerName {
    const LONGEST: usize = 255;
    ConsumerName::new(&shown_name(text, LONGEST)).expect("neither empty nor too long, and seen")
}

/// Helpers for the tests of all kinds of targets.
#[cfg(test)]
mod captured {
    use super::{ReadError, SystemRoot, TargetFinding, TargetSession};
    use crate::trees;

    /// A machine's files, of one or several captures.
    pub(super) fn tree(texts: &[&str]) -> (tempfile::TempDir, SystemRoot) {
        let tree = tempfile::tempdir().unwrap();
        for text in texts {
            trees::unpack(text, tree.path()).unwrap();
        }
        let root = SystemRoot::at(tree.path());
        (tree, root)
    }

    /// The sessions that were found.
    pub(super) fn sessions_in(found: Result<TargetFinding, ReadError>) -> Vec<TargetSession> {
        match found.unwrap() {
            TargetFinding::Sessions(sessions) => sessions,
            TargetFinding::Absent(absence) => panic!("{absence}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_machine_without_targets_has_no_sessions_and_says_why() {
        let tree = tempfile::tempdir().unwrap();
        let all = sessions(&SystemRoot::at(tree.path()));
        assert_eq!(all.sessions, []);
        let said: Vec<String> = all
            .targets
            .iter()
            .map(|(via, target)| match target {
                TargetReading::Absent(absence) => format!("{via}: {absence}"),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            said,
            [
                "iSCSI: configfs is not mounted at /sys/kernel/config, or nothing is in it",
                "NVMe: configfs is not mounted at /sys/kernel/config, or nothing is in it",
                "NFS: the kernel module nfsd is not loaded",
            ]
        );
    }

    #[test]
    fn a_target_that_cannot_be_understood_does_not_hide_the_others() {
        let tree = tempfile::tempdir().unwrap();
        crate::trees::unpack(include_str!("../../../tests/fixtures/lio-acls.tree"), tree.path()).unwrap();
        for (file, content) in [("addr_trtype", "tcp"), ("addr_traddr", "nowhere"), ("addr_trsvcid", "4420")]
        {
            let path = format!("sys/kernel/config/nvmet/ports/1/{file}");
            crate::trees::write_file(tree.path(), &path, content.as_bytes()).unwrap();
        }
        let all = sessions(&SystemRoot::at(tree.path()));
        assert_eq!(all.sessions.len(), 3);
        assert!(matches!(all.targets[0], (TargetKind::Iscsi, TargetReading::Read)));
        assert!(
            matches!(all.targets[1], (TargetKind::Nvme, TargetReading::Failed(_))),
            "{:?}",
            all.targets[1]
        );
    }

    proptest! {
        #[test]
        fn any_text_makes_a_name(text in "(\\PC|\n|\0|\u{200b}|\u{202e}|\u{2028}){0,300}") {
            let _ = consumer_name(&text);
        }
    }
}
