//! LIO's iSCSI target, as configfs shows it (drivers/target/iscsi/iscsi_target_configfs.c,
//! target_core_stat.c):
//!
//! ```text
//! target/core/iblock_0/<backstore>/{info,udev_path}
//! target/iscsi/<target>/tpgt_1/lun/lun_0/<link> → core/iblock_0/<backstore>
//!                             /np/10.0.0.1:3260, /np/[::]:3260
//!                             /dynamic_sessions            initiators without an entry in acls (demo mode)
//!                             /acls/<initiator>/info       one session: the initiator's latest
//!                             /acls/<initiator>/lun_3/<link> → tpgt_1/lun/lun_0
//!                             /acls/<initiator>/lun_3/statistics/scsi_auth_intr/{read_mbytes,write_mbytes}
//! ```

mod hidden;
mod info;
mod target;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use self::hidden::{KnownAddresses, PortalGroup};
use self::target::{Backstores, LioTarget, SessionPlaces, TARGET};
use super::sockets::TcpSockets;
use super::{
    AddressDoubt, DeviceActivity, SessionCounters, TargetAbsence, TargetFinding, TargetSession, distinct,
};
use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};
use crate::sense::tree::{self, OpenDirectory};

const CONFIG: &str = "/sys/kernel/config";
const ISCSI: &str = "/sys/kernel/config/target/iscsi";

/// One in so many targets is read at each reading although no initiator has logged in or out: a change of the
/// configuration changes no count.
const TURNS: usize = 32;

/// A session's write counter is read once in this many readings: opening a file takes as long as a hundred
/// consumers take otherwise. A consumer that begins to write shows at the second reading at the latest.
/// Divides `TURNS`, as the next one does.
const WRITES_TURNS: usize = 2;

/// A session's read counter is read once in this many readings: it divides a device's reads, which is not
/// urgent.
const READS_TURNS: usize = 8;

/// The state read of LIO. A target is read again only after a login or logout there, or when it is its turn.
#[derive(Debug, Default)]
pub(super) struct LioReader {
    targets: BTreeMap<String, (LioMark, LioTarget)>,
    /// The devices that several sessions share.
    shared: HashSet<DeviceNumber>,
    turn: usize,
}

/// Counts that change whenever a session comes or goes. Either is `None` if the kernel does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LioMark {
    /// Sessions of the target now.
    sessions: Option<u64>,
    /// Logins since the target was made.
    accepted: Option<u64>,
}

impl LioMark {
    fn read(targets: &OpenDirectory, name: &str) -> Result<Self, ReadError> {
        Ok(Self {
            sessions: targets.number(&format!("{name}/fabric_statistics/iscsi_instance/sessions"))?,
            accepted: targets.number(&format!("{name}/fabric_statistics/iscsi_login_stats/accepts"))?,
        })
    }
}

impl LioReader {
    /// Every session of every target, without counters; `None` if they are those of the reading before.
    /// Counters are read, too, of the sessions that share a device: see [`LioReader::counters`].
    pub(super) fn read(
        &mut self,
        root: &SystemRoot,
        did: &dyn Fn(DeviceNumber) -> DeviceActivity,
    ) -> Result<Option<TargetFinding>, ReadError> {
        let read = self.try_read(root, did);
        if !matches!(read, Ok(None | Some(TargetFinding::Sessions(_)))) {
            // Half of a reading is none.
            self.targets.clear();
        }
        read
    }

    fn try_read(
        &mut self,
        root: &SystemRoot,
        did: &dyn Fn(DeviceNumber) -> DeviceActivity,
    ) -> Result<Option<TargetFinding>, ReadError> {
        if let Some(absence) = absence(root)? {
            return Ok(Some(TargetFinding::Absent(absence)));
        }
        let Some(targets) = OpenDirectory::open(root, ISCSI)? else {
            return Ok(Some(TargetFinding::Absent(TargetAbsence::NotConfigured)));
        };
        let changed = self.look(root, &targets)?;
        if changed {
            self.shared = self.shared();
        }
        self.count(&targets, did)?;
        self.turn = (self.turn + 1) % TURNS;
        // The initiators of a session may change without a login or logout.
        if !changed && !self.sockets_tell() {
            return Ok(None);
        }
        self.conclude(root).map(|sessions| Some(TargetFinding::Sessions(sessions)))
    }

    /// Reads what may have changed. Whether anything has.
    fn look(&mut self, root: &SystemRoot, targets: &OpenDirectory) -> Result<bool, ReadError> {
        let names = tree::list(root, ISCSI)?.unwrap_or_default().directories;
        let before = self.targets.len();
        self.targets.retain(|name, _| names.binary_search(name).is_ok());
        let mut changed = self.targets.len() != before;
        let mut backstores: Backstores = HashMap::new();
        for (index, name) in names.into_iter().enumerate() {
            let mark = LioMark::read(targets, &name)?;
            let known = self.targets.get_mut(&name);
            let speaks = mark.sessions.is_some() && mark.accepted.is_some();
            let same_mark = known.as_ref().is_some_and(|(old, _)| *old == mark);
            if same_mark && speaks && index % TURNS != self.turn {
                continue;
            }
            let at = Path::new(ISCSI).join(&name);
            let target = target::read(root, &mut backstores, &at, &name, mark.sessions.unwrap_or(0))?;
            match known {
                // What has been counted is still right.
                Some((old, known)) if known.is_as(&target) => *old = mark,
                _ => {
                    self.targets.insert(name, (mark, target));
                    changed = true;
                }
            }
        }
        Ok(changed)
    }

    /// The devices that several sessions share.
    fn shared(&self) -> HashSet<DeviceNumber> {
        let mut seen = HashSet::new();
        let devices = self.targets.values().flat_map(|(_, target)| &target.sessions);
        devices.filter_map(|session| session.device).filter(|device| !seen.insert(*device)).collect()
    }

    /// Reads the counters that may have gone on, of the sessions that share a device.
    fn count(
        &mut self,
        targets: &OpenDirectory,
        did: &dyn Fn(DeviceNumber) -> DeviceActivity,
    ) -> Result<(), ReadError> {
        for (_, target) in self.targets.values_mut() {
            for (session, counted) in target.sessions.iter().zip(&mut target.counted) {
                let Some((device, counted)) = session.device.zip(counted.as_mut()) else { continue };
                if !self.shared.contains(&device) {
                    counted.counters = None;
                    continue;
                }
                // All sessions of a device at once: they are compared with each other.
                let is_turn = |turns| device.minor as usize % turns == self.turn % turns;
                let turn = DeviceActivity { reads: is_turn(READS_TURNS), writes: is_turn(WRITES_TURNS) };
                counted.read(targets, did(device), turn)?;
            }
        }
        Ok(())
    }

    /// Returns the last counters of each session, in their order. Only sessions that share a device have any:
    /// for a session alone the device's own counters say more.
    pub(super) fn counters(&self) -> impl Iterator<Item = Option<SessionCounters>> {
        let counted = self.targets.values().flat_map(|(_, target)| &target.counted);
        counted.map(|counted| counted.as_ref().and_then(|counted| counted.counters))
    }

    fn groups(&self) -> impl Iterator<Item = &(PortalGroup, SessionPlaces)> {
        self.targets.values().flat_map(|(_, target)| &target.groups)
    }

    /// Returns the known sessions, with addresses added from the socket table.
    fn conclude(&self, root: &SystemRoot) -> Result<Vec<TargetSession>, ReadError> {
        let mut sessions = Vec::new();
        let mut starts = Vec::new();
        for (_, target) in self.targets.values() {
            starts.push(sessions.len());
            sessions.extend(target.sessions.iter().cloned());
        }
        if self.sockets_tell() {
            let sockets = TcpSockets::read(root)?;
            let all: Vec<&PortalGroup> = self.groups().map(|(group, _)| group).collect();
            let starts = self.targets.values().zip(starts).flat_map(|((_, target), start)| {
                target.groups.iter().map(move |(_, places)| (places, start))
            });
            for ((places, start), settled) in starts.zip(hidden::settle(&all, &sockets)) {
                let of_all = |place: &std::ops::Range<usize>| place.start + start..place.end + start;
                if let Some(known) = settled.dynamic {
                    add(&mut sessions[of_all(&places.dynamic)], known);
                }
                if let Some(known) = settled.hidden {
                    for place in &places.logins {
                        add(&mut sessions[of_all(place)], known.clone());
                    }
                }
            }
        }
        Ok(sessions)
    }

    /// Returns true if some addresses are known only from the socket table, which is read only then.
    fn sockets_tell(&self) -> bool {
        self.groups().any(|(group, _)| group.dynamic > 0 || group.hidden > 0)
    }
}

/// Returns the reason that there is nothing to read, if so.
fn absence(root: &SystemRoot) -> Result<Option<TargetAbsence>, ReadError> {
    let Some(config) = tree::list(root, CONFIG)? else { return Ok(Some(TargetAbsence::NoConfigfs)) };
    if config.directories.is_empty() {
        return Ok(Some(TargetAbsence::NoConfigfs));
    }
    let Some(fabrics) = tree::list(root, TARGET)? else {
        return Ok(Some(TargetAbsence::NoModule("target_core_mod")));
    };
    // The directory is made with the first target; that loads the module.
    let configured = fabrics.directories.iter().any(|name| name == "iscsi");
    Ok((!configured).then_some(TargetAbsence::NotConfigured))
}

/// Adds what is known of addresses to sessions.
fn add(sessions: &mut [TargetSession], known: KnownAddresses) {
    match known {
        KnownAddresses::Certain(addresses) => {
            for session in sessions {
                session.addresses = distinct(session.addresses.iter().chain(&addresses).copied());
            }
        }
        KnownAddresses::Doubt(doubt) => {
            let doubt: Arc<AddressDoubt> = Arc::new(doubt);
            for session in sessions {
                session.doubt = Some(Arc::clone(&doubt));
            }
        }
    }
}

#[cfg(test)]
mod tests;
