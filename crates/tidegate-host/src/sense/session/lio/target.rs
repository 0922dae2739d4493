//! One target: its portal groups, their volumes and initiators.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::hidden::Group;
use super::info::{self, Login};
use super::{TARGET, distinct, sockets};
use crate::device::DeviceNumber;
use crate::root::{ReadError, Root};
use crate::sense::session::{Backing, Counters, Session, Via, consumer_name};
use crate::sense::tree;

/// What has been read of backstores, by their directories: many initiators share a few.
pub(super) type Backstores = HashMap<PathBuf, Arc<Backstore>>;

/// What is known of a target.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) sessions: Vec<Session>,
    /// Of each session the directory of its counters, if it has any.
    pub(super) counted_at: Vec<Option<PathBuf>>,
    pub(super) groups: Vec<(Group, Places)>,
}

/// Where the sessions of a portal group are among the target's.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Of each initiator with an entry that is logged in.
    pub(super) logins: Vec<Range<usize>>,
    /// Of the initiators without an entry.
    pub(super) dynamic: Range<usize>,
}

/// Reads the target in a directory, of which LIO says that it has so many sessions.
pub(super) fn read(
    root: &Root,
    backstores: &mut Backstores,
    at: &Path,
    name: &str,
    sessions: u64,
) -> Result<Target, ReadError> {
    let mut reader = Reader { root, backstores, found: Target::default() };
    let target: Arc<str> = name.into();
    for group in tree::list(root, at)?.unwrap_or_default().directories {
        if group.starts_with("tpgt_") {
            reader.portal_group(&at.join(&group), &target, &group)?;
        }
    }
    let mut target = reader.found;
    let shown: usize = target.groups.iter().map(|(group, _)| group.logins.len() + group.dynamic).sum();
    let hidden = usize::try_from(sessions).unwrap_or(usize::MAX).saturating_sub(shown);
    for (group, _) in &mut target.groups {
        group.hidden = hidden;
    }
    Ok(target)
}

/// The counters in a directory; `None` if they have gone.
pub(super) fn counters(root: &Root, at: &Path) -> Result<Option<Counters>, ReadError> {
    let (Some(commands), Some(read_mib), Some(written_mib)) = (
        number(root, &at.join("num_cmds"))?,
        number(root, &at.join("read_mbytes"))?,
        number(root, &at.join("write_mbytes"))?,
    ) else {
        return Ok(None);
    };
    // The kernel writes the two as an `unsigned int`.
    Ok(Some(Counters { commands, read_mib: read_mib as u32, written_mib: written_mib as u32 }))
}

/// The number in a file; `None` if it is not there.
pub(super) fn number(root: &Root, file: &Path) -> Result<Option<u64>, ReadError> {
    let Some(text) = tree::text(root, file)? else { return Ok(None) };
    text.trim_end().parse().map(Some).map_err(|_| {
        tree::malformed(root, file, 1, format!("expected a number, not `{}`", tree::shown(&text)))
    })
}

struct Reader<'a> {
    root: &'a Root,
    backstores: &'a mut Backstores,
    found: Target,
}

/// A volume of LIO.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Backstore {
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
            let first = self.found.sessions.len();
            let login = self.initiator(&at.join("acls").join(&initiator), target, &initiator, &luns)?;
            if let Some(Login { connections }) = login {
                this.0.logins.push(connections);
                this.1.logins.push(first..self.found.sessions.len());
            }
        }
        self.dynamic(at, target, &luns, &mut this)?;
        self.found.groups.push(this);
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
        let first = self.found.sessions.len();
        let mut luns: Vec<&Lun> = luns.values().collect();
        luns.sort_unstable_by_key(|lun| &lun.backing.name);
        for name in names {
            for lun in &luns {
                self.found.sessions.push(Session {
                    via: Via::Iscsi,
                    consumer: consumer_name(name),
                    target: Arc::clone(target),
                    volume: Arc::clone(&lun.backing),
                    device: lun.device,
                    addresses: Vec::new(),
                    doubt: None,
                    counters: None,
                });
                self.found.counted_at.push(None);
            }
        }
        places.dynamic = first..self.found.sessions.len();
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
            self.found.sessions.push(Session {
                via: Via::Iscsi,
                consumer: consumer.clone(),
                target: Arc::clone(target),
                volume: Arc::clone(&lun.backing),
                device: lun.device,
                addresses: addresses.clone(),
                doubt: None,
                counters: None,
            });
            self.found.counted_at.push(Some(mapped.join("statistics/scsi_auth_intr")));
        }
        Ok(Some(login))
    }
}
