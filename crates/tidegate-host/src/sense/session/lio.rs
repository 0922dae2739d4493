//! LIO's iSCSI target, as configfs shows it (drivers/target/iscsi/iscsi_target_configfs.c, target_core_stat.c):
//!
//! ```text
//! target/core/iblock_0/<backstore>/{info,udev_path}
//! target/iscsi/<target>/tpgt_1/lun/lun_0/<link> → core/iblock_0/<backstore>
//!                             /np/10.0.0.1:3260, /np/[::]:3260
//!                             /dynamic_sessions                    initiators without an entry in acls (demo mode)
//!                             /acls/<initiator>/info               one session: the initiator's latest
//!                             /acls/<initiator>/lun_3/<link> → tpgt_1/lun/lun_0
//!                             /acls/<initiator>/lun_3/statistics/scsi_auth_intr/{num_cmds,read_mbytes,write_mbytes}
//! ```

mod hidden;
mod info;
mod target;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use self::hidden::{Group, Known};
use self::target::{Backstores, Target};
use super::sockets::{self, Sockets};
use super::{Absence, Doubt, Found, Session, distinct};
use crate::device::DeviceNumber;
use crate::root::{ReadError, Root};
use crate::sense::tree;

const CONFIG: &str = "/sys/kernel/config";
const TARGET: &str = "/sys/kernel/config/target";

/// One in so many targets is read at each reading although nobody has logged in or out: what is configured changes no count.
const TURNS: usize = 32;

/// What has been read of LIO. A target is looked at again only when somebody has logged in or out there, or when it is its turn.
#[derive(Debug, Default)]
pub(super) struct Lio {
    targets: BTreeMap<String, (Mark, Target)>,
    turn: usize,
}

/// What changes whenever a session comes or goes. Both are `None` where the kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Mark {
    /// Sessions of the target now.
    sessions: Option<u64>,
    /// Logins since the target was made.
    accepted: Option<u64>,
}

impl Mark {
    fn read(root: &Root, target: &Path) -> Result<Self, ReadError> {
        let at = target.join("fabric_statistics");
        Ok(Self {
            sessions: target::number(root, &at.join("iscsi_instance/sessions"))?,
            accepted: target::number(root, &at.join("iscsi_login_stats/accepts"))?,
        })
    }
}

impl Lio {
    /// Every session of every target; with counters those that share an active device.
    pub(super) fn read(
        &mut self,
        root: &Root,
        active: &dyn Fn(DeviceNumber) -> bool,
    ) -> Result<Found, ReadError> {
        let read = self.look(root).and_then(|absence| match absence {
            Some(absence) => Ok(Found::Absent(absence)),
            None => self.conclude(root, active).map(Found::Sessions),
        });
        if !matches!(read, Ok(Found::Sessions(_))) {
            // Half of a reading is none.
            self.targets.clear();
        }
        read
    }

    /// Reads what may have changed; why not, if there is nothing to read.
    fn look(&mut self, root: &Root) -> Result<Option<Absence>, ReadError> {
        let Some(config) = tree::list(root, CONFIG)? else { return Ok(Some(Absence::NoConfigfs)) };
        if config.directories.is_empty() {
            return Ok(Some(Absence::NoConfigfs));
        }
        let Some(fabrics) = tree::list(root, TARGET)? else {
            return Ok(Some(Absence::NoModule("target_core_mod")));
        };
        if !fabrics.directories.iter().any(|name| name == "iscsi") {
            // The directory is made by whoever sets up the first target; that loads the module.
            return Ok(Some(Absence::NotConfigured));
        }
        let iscsi = Path::new(TARGET).join("iscsi");
        let names = tree::list(root, &iscsi)?.unwrap_or_default().directories;
        self.targets.retain(|name, _| names.binary_search(name).is_ok());
        let mut backstores: Backstores = HashMap::new();
        for (index, name) in names.into_iter().enumerate() {
            let at = iscsi.join(&name);
            let mark = Mark::read(root, &at)?;
            let known = self.targets.get(&name).is_some_and(|(old, _)| *old == mark);
            let speaks = mark.sessions.is_some() && mark.accepted.is_some();
            if known && speaks && index % TURNS != self.turn {
                continue;
            }
            let target = target::read(root, &mut backstores, &at, &name, mark.sessions.unwrap_or(0))?;
            self.targets.insert(name, (mark, target));
        }
        self.turn = (self.turn + 1) % TURNS;
        Ok(None)
    }

    /// What is known, as sessions: with addresses from elsewhere, and with counters.
    fn conclude(
        &mut self,
        root: &Root,
        active: &dyn Fn(DeviceNumber) -> bool,
    ) -> Result<Vec<Session>, ReadError> {
        let mut users: HashMap<DeviceNumber, usize> = HashMap::new();
        for device in
            self.targets.values().flat_map(|(_, target)| &target.sessions).filter_map(|one| one.device)
        {
            *users.entry(device).or_default() += 1;
        }
        for (_, target) in self.targets.values_mut() {
            for (session, at) in target.sessions.iter_mut().zip(&target.counted_at) {
                let Some((device, at)) = session.device.zip(at.as_deref()) else { continue };
                let shared = users.get(&device).is_some_and(|users| *users > 1);
                if !shared {
                    session.counters = None;
                } else if session.counters.is_none() || active(device) {
                    session.counters = target::counters(root, at)?;
                }
            }
        }
        let mut sessions = Vec::new();
        let mut starts = Vec::new();
        for (_, target) in self.targets.values() {
            starts.push(sessions.len());
            sessions.extend(target.sessions.iter().cloned());
        }
        let groups: Vec<_> = self
            .targets
            .values()
            .zip(starts)
            .flat_map(|((_, target), start)| {
                target.groups.iter().map(move |(group, places)| (group, places, start))
            })
            .collect();
        // The socket table is read only where it is needed.
        if groups.iter().any(|(group, ..)| group.dynamic > 0 || group.hidden > 0) {
            let sockets = Sockets::read(root)?;
            let all: Vec<&Group> = groups.iter().map(|(group, ..)| *group).collect();
            for ((_, places, start), settled) in groups.iter().zip(hidden::settle(&all, &sockets)) {
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
}

/// Adds what is known of addresses to sessions.
fn add(sessions: &mut [Session], known: Known) {
    match known {
        Known::Certain(addresses) => {
            for session in sessions {
                session.addresses = distinct(session.addresses.iter().chain(&addresses).copied());
            }
        }
        Known::Doubt(doubt) => {
            let doubt: Arc<Doubt> = Arc::new(doubt);
            for session in sessions {
                session.doubt = Some(Arc::clone(&doubt));
            }
        }
    }
}

#[cfg(test)]
mod tests;
