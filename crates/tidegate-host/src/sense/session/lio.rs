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

mod info;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use tidegate_units::ConsumerName;

use self::info::Login;
use super::{Absence, Backing, Counters, Found, Session, Via};
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
    let mut reader = Reader { root, backstores: HashMap::new(), sessions: Vec::new() };
    let iscsi = Path::new(TARGET).join("iscsi");
    for name in tree::list(root, &iscsi)?.unwrap_or_default().directories {
        reader.target(&iscsi.join(&name), &name)?;
    }
    Ok(Found::Sessions(reader.sessions))
}

struct Reader<'a> {
    root: &'a Root,
    /// What has been read of backstores, by their directories: many initiators share a few.
    backstores: HashMap<PathBuf, Arc<Backstore>>,
    sessions: Vec<Session>,
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
        for group in tree::list(self.root, at)?.unwrap_or_default().directories {
            if group.starts_with("tpgt_") {
                self.portal_group(&at.join(&group), &target, &group)?;
            }
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
        for initiator in tree::list(self.root, at.join("acls"))?.unwrap_or_default().directories {
            self.initiator(&at.join("acls").join(&initiator), target, &initiator, &luns)?;
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
    ) -> Result<(), ReadError> {
        let info = at.join("info");
        let Some(text) = tree::text(self.root, &info)? else { return Ok(()) };
        let login = info::login(&text)
            .map_err(|wrong| tree::malformed(self.root, &info, wrong.line, wrong.problem))?;
        let Some(Login { addresses, .. }) = login else { return Ok(()) };
        let consumer =
            ConsumerName::new(name).map_err(|error| tree::malformed(self.root, at, 1, error.to_string()))?;
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
        Ok(())
    }

    fn counters(&self, mapped: &Path) -> Result<Option<Counters>, ReadError> {
        let at = mapped.join("statistics/scsi_auth_intr");
        let number = |file: &str| -> Result<Option<u64>, ReadError> {
            let file = at.join(file);
            let Some(text) = tree::text(self.root, &file)? else { return Ok(None) };
            text.trim_end().parse().map(Some).map_err(|_| {
                let problem = format!("expected a number, not `{}`", tree::shown(&text));
                tree::malformed(self.root, &file, 1, problem)
            })
        };
        let mib = |file| Ok(number(file)?.map(|mib| mib as u32));
        let (Some(commands), Some(read_mib), Some(written_mib)) =
            (number("num_cmds")?, mib("read_mbytes")?, mib("write_mbytes")?)
        else {
            return Ok(None);
        };
        Ok(Some(Counters { commands, read_mib, written_mib }))
    }
}

/// Sorted, each once, and IPv4 as IPv4 also on a socket of IPv6.
fn distinct(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = addresses.into_iter().map(|address| address.to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests;
