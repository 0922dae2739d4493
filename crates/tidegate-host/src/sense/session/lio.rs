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

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use self::hidden::{Group, Known};
use self::info::Login;
use super::sockets::{self, Sockets};
use super::{Absence, Backing, Counters, Doubt, Found, Session, Via, consumer_name, distinct};
use crate::device::DeviceNumber;
use crate::root::{ReadError, Root};
use crate::sense::tree;

const CONFIG: &str = "/sys/kernel/config";
const TARGET: &str = "/sys/kernel/config/target";

/// Every session of every target.
pub(super) fn sessions(root: &Root) -> Result<Found, ReadError> {
    let Some(config) = tree::list(root, CONFIG)? else { return Ok(Found::Absent(Absence::NoConfigfs)) };
    if config.directories.is_empty() {
        return Ok(Found::Absent(Absence::NoConfigfs));
    }
    let Some(fabrics) = tree::list(root, TARGET)? else {
        return Ok(Found::Absent(Absence::NoModule("target_core_mod")));
    };
    if !fabrics.directories.iter().any(|name| name == "iscsi") {
        // The directory is made by whoever sets up the first target; that loads the module.
        return Ok(Found::Absent(Absence::NotConfigured));
    }
    let mut reader = Reader { root, backstores: HashMap::new(), sessions: Vec::new(), groups: Vec::new() };
    let iscsi = Path::new(TARGET).join("iscsi");
    for name in tree::list(root, &iscsi)?.unwrap_or_default().directories {
        reader.target(&iscsi.join(&name), &name)?;
    }
    reader.complete()?;
    Ok(Found::Sessions(reader.sessions))
}

struct Reader<'a> {
    root: &'a Root,
    /// What has been read of backstores, by their directories: many initiators share a few.
    backstores: HashMap<PathBuf, Arc<Backstore>>,
    sessions: Vec<Session>,
    groups: Vec<(Group, Places)>,
}

/// Where the sessions of a portal group are among all.
#[derive(Default)]
struct Places {
    /// Of each initiator with an entry that is logged in.
    logins: Vec<Range<usize>>,
    /// Of the initiators without an entry.
    dynamic: Range<usize>,
}

/// A volume of LIO.
#[derive(Debug, Default, PartialEq, Eq)]
struct Backstore {
    device: Option<DeviceNumber>,
    path: Option<PathBuf>,
}

/// A LUN of a portal group.
#[derive(Clone)]
struct Lun {
    backing: Arc<Backing>,
    device: Option<DeviceNumber>,
}

impl Reader<'_> {
    fn target(&mut self, at: &Path, name: &str) -> Result<(), ReadError> {
        let target: Arc<str> = name.into();
        let first = self.groups.len();
        for group in tree::list(self.root, at)?.unwrap_or_default().directories {
            if group.starts_with("tpgt_") {
                self.portal_group(&at.join(&group), &target, &group)?;
            }
        }
        let all = self.number(&at.join("fabric_statistics/iscsi_instance/sessions"))?.unwrap_or(0);
        let shown: usize =
            self.groups[first..].iter().map(|(group, _)| group.logins.len() + group.dynamic).sum();
        let hidden = usize::try_from(all).unwrap_or(usize::MAX).saturating_sub(shown);
        for (group, _) in &mut self.groups[first..] {
            group.hidden = hidden;
        }
        Ok(())
    }

    fn portal_group(&mut self, at: &Path, target: &Arc<str>, group: &str) -> Result<(), ReadError> {
        let mut luns = HashMap::new();
        for lun in tree::list(self.root, at.join("lun"))?.unwrap_or_default().directories {
            if let Some(backstore) = self.backstore(&at.join("lun").join(&lun))? {
                let name = format!("{group}/{lun}");
                let backing = Arc::new(Backing { name, path: backstore.path.clone() });
                luns.insert(lun, Lun { backing, device: backstore.device });
            }
        }
        let mut this = (Group { portals: self.portals(at)?, ..Group::default() }, Places::default());
        for initiator in tree::list(self.root, at.join("acls"))?.unwrap_or_default().directories {
            let first = self.sessions.len();
            let login = self.initiator(&at.join("acls").join(&initiator), target, &initiator, &luns)?;
            if let Some(Login { connections }) = login {
                this.0.logins.push(connections);
                this.1.logins.push(first..self.sessions.len());
            }
        }
        self.dynamic(at, target, &luns, &mut this)?;
        self.groups.push(this);
        Ok(())
    }

    fn portals(&self, at: &Path) -> Result<Vec<SocketAddr>, ReadError> {
        let names = tree::list(self.root, at.join("np"))?.unwrap_or_default().directories;
        Ok(names.iter().filter_map(|name| sockets::portal(name)).collect())
    }

    /// Initiators without an entry in the list have every LUN there is, and no address.
    fn dynamic(
        &mut self,
        at: &Path,
        target: &Arc<str>,
        luns: &HashMap<String, Lun>,
        (group, places): &mut (Group, Places),
    ) -> Result<(), ReadError> {
        let text = tree::text(self.root, at.join("dynamic_sessions"))?.unwrap_or_default();
        let mut names = info::dynamic(&text);
        group.dynamic = names.len();
        names.sort_unstable();
        names.dedup();
        group.dynamic_initiators = names.len();
        let first = self.sessions.len();
        let mut luns: Vec<&Lun> = luns.values().collect();
        luns.sort_unstable_by_key(|lun| &lun.backing.name);
        for name in names {
            for lun in &luns {
                self.sessions.push(Session {
                    via: Via::Iscsi,
                    consumer: consumer_name(name),
                    target: Arc::clone(target),
                    volume: Arc::clone(&lun.backing),
                    device: lun.device,
                    addresses: Vec::new(),
                    doubt: None,
                    counters: None,
                });
            }
        }
        places.dynamic = first..self.sessions.len();
        Ok(())
    }

    /// Adds what the socket table tells of sessions whose addresses LIO does not; reads it only if there are any.
    fn complete(&mut self) -> Result<(), ReadError> {
        if !self.groups.iter().any(|(group, _)| group.dynamic > 0 || group.hidden > 0) {
            return Ok(());
        }
        let sockets = Sockets::read(self.root)?;
        let groups: Vec<&Group> = self.groups.iter().map(|(group, _)| group).collect();
        let settled = hidden::settle(&groups, &sockets);
        for ((_, places), settled) in self.groups.iter().zip(settled) {
            if let Some(known) = settled.dynamic {
                add(&mut self.sessions[places.dynamic.clone()], known);
            }
            if let Some(known) = settled.hidden {
                for place in &places.logins {
                    add(&mut self.sessions[place.clone()], known.clone());
                }
            }
        }
        Ok(())
    }

    /// The backstore that a LUN's link points to; `None` while the LUN has none.
    fn backstore(&mut self, lun: &Path) -> Result<Option<Arc<Backstore>>, ReadError> {
        let Some(link) = self.only_link(lun)? else { return Ok(None) };
        // `…/core/<plugin>_<n>/<backstore>`, whatever it is relative to.
        let mut end = link.components().rev().map(Component::as_os_str);
        let (Some(name), Some(hba)) = (end.next(), end.next()) else { return Ok(None) };
        if end.next().is_none_or(|part| part != "core") {
            let problem = format!("expected a link to a backstore in target/core, not to {}", link.display());
            return Err(tree::malformed(self.root, lun, 1, problem));
        }
        let at = Path::new(TARGET).join("core").join(hba).join(name);
        if let Some(known) = self.backstores.get(&at) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(text) = tree::text(self.root, at.join("info"))? else { return Ok(None) };
        let told = info::backstore(&text)
            .map_err(|wrong| tree::malformed(self.root, at.join("info"), wrong.line, wrong.problem))?;
        let path = match told.path {
            Some(path) => Some(path),
            None => tree::text(self.root, at.join("udev_path"))?.and_then(|text| {
                let text = text.trim_end_matches('\n');
                (!text.is_empty()).then(|| PathBuf::from(text))
            }),
        };
        let backstore = Arc::new(Backstore { device: told.device, path });
        self.backstores.insert(at, Arc::clone(&backstore));
        Ok(Some(backstore))
    }

    /// What the one link in a directory points to. Its name is whoever's who made it.
    fn only_link(&self, at: &Path) -> Result<Option<PathBuf>, ReadError> {
        let Some(listing) = tree::list(self.root, at)? else { return Ok(None) };
        match listing.links.first() {
            Some(name) => tree::link(self.root, at.join(name)),
            None => Ok(None),
        }
    }

    fn initiator(
        &mut self,
        at: &Path,
        target: &Arc<str>,
        name: &str,
        luns: &HashMap<String, Lun>,
    ) -> Result<Option<Login>, ReadError> {
        let info = at.join("info");
        let Some(text) = tree::text(self.root, &info)? else { return Ok(None) };
        let login = info::login(&text)
            .map_err(|wrong| tree::malformed(self.root, &info, wrong.line, wrong.problem))?;
        let Some(login) = login else { return Ok(None) };
        let consumer = consumer_name(name);
        let addresses = distinct(login.connections.iter().copied());
        for mapped in tree::list(self.root, at)?.unwrap_or_default().directories {
            if !mapped.starts_with("lun_") {
                continue;
            }
            let mapped = at.join(mapped);
            let Some(link) = self.only_link(&mapped)? else { continue };
            let lun = link.file_name().and_then(|name| name.to_str()).and_then(|name| luns.get(name));
            // A LUN that has been removed since.
            let Some(lun) = lun else { continue };
            self.sessions.push(Session {
                via: Via::Iscsi,
                consumer: consumer.clone(),
                target: Arc::clone(target),
                volume: Arc::clone(&lun.backing),
                device: lun.device,
                addresses: addresses.clone(),
                doubt: None,
                counters: self.counters(&mapped)?,
            });
        }
        Ok(Some(login))
    }

    fn counters(&self, mapped: &Path) -> Result<Option<Counters>, ReadError> {
        let at = mapped.join("statistics/scsi_auth_intr");
        let (Some(commands), Some(read_mib), Some(written_mib)) = (
            self.number(&at.join("num_cmds"))?,
            self.number(&at.join("read_mbytes"))?,
            self.number(&at.join("write_mbytes"))?,
        ) else {
            return Ok(None);
        };
        // The kernel writes the two as an `unsigned int`.
        Ok(Some(Counters { commands, read_mib: read_mib as u32, written_mib: written_mib as u32 }))
    }

    fn number(&self, file: &Path) -> Result<Option<u64>, ReadError> {
        let Some(text) = tree::text(self.root, file)? else { return Ok(None) };
        text.trim_end().parse().map(Some).map_err(|_| {
            let problem = format!("expected a number, not `{}`", tree::shown(&text));
            tree::malformed(self.root, file, 1, problem)
        })
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
