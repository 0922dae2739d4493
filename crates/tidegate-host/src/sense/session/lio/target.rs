//! One target: its portal groups, their volumes and initiators.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::super::{distinct, sockets};
use super::hidden::PortalGroup;
use super::info::{self, LioLogin};
use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};
use crate::sense::mounts::MountTable;
use crate::sense::session::{
    DeviceActivity, SessionCounters, TargetKind, TargetSession, VolumeBacking, consumer_name,
};
use crate::sense::tree::{self, OpenDirectory};
use crate::sense::volume::VolumeTree;

/// The backstores that have been read, by their directories: many initiators share a few.
pub(super) type Backstores = HashMap<PathBuf, Arc<Backstore>>;

/// The state of a target.
#[derive(Debug, Default)]
pub(super) struct LioTarget {
    /// Without their counters.
    pub(super) sessions: Vec<TargetSession>,
    /// The counters of each session, if it has any.
    pub(super) counted: Vec<Option<Counted>>,
    pub(super) groups: Vec<(PortalGroup, SessionPlaces)>,
}

impl LioTarget {
    /// Returns true if the state is the same, apart from the counters.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        fn places(target: &LioTarget) -> impl Iterator<Item = Option<&str>> {
            target.counted.iter().map(|counted| counted.as_ref().map(|counted| counted.read_at.as_str()))
        }
        self.sessions == other.sessions && self.groups == other.groups && places(self).eq(places(other))
    }
}

/// The counters of a session.
#[derive(Debug)]
pub(super) struct Counted {
    /// The files that count reads and writes, relative to the directory of all targets.
    read_at: String,
    written_at: String,
    /// The counters as they were read last.
    pub(super) counters: Option<SessionCounters>,
    /// The device's activity that has not been read since.
    due: DeviceActivity,
}

impl Counted {
    /// In a directory.
    fn at(directory: &str) -> Self {
        let [read_at, written_at] = ["read_mbytes", "write_mbytes"].map(|file| format!("{directory}/{file}"));
        Self { read_at, written_at, counters: None, due: DeviceActivity::ANY }
    }

    /// Reads those whose `turn` it is, if the device `did` anything since they were read; all, if there is
    /// nothing to go on from. None are left if they have gone.
    pub(super) fn read(
        &mut self,
        targets: &OpenDirectory,
        did: DeviceActivity,
        turn: DeviceActivity,
    ) -> Result<(), ReadError> {
        self.due.reads |= did.reads;
        self.due.writes |= did.writes;
        let first = self.counters.is_none();
        let [reads, writes] =
            [self.due.reads && turn.reads, self.due.writes && turn.writes].map(|due| first || due);
        if !reads && !writes {
            return Ok(());
        }
        self.due = DeviceActivity { reads: self.due.reads && !reads, writes: self.due.writes && !writes };
        // The kernel writes them as an `unsigned int`.
        let number = |file: &str| Ok(targets.number(file)?.map(|mib| mib as u32));
        let known = self.counters.take().unwrap_or_default();
        let read_mib = if reads { number(&self.read_at)? } else { Some(known.read_mib) };
        let written_mib = if writes { number(&self.written_at)? } else { Some(known.written_mib) };
        let both = read_mib.zip(written_mib);
        self.counters = both.map(|(read_mib, written_mib)| SessionCounters { read_mib, written_mib });
        Ok(())
    }
}

/// The indices of a portal group's sessions among the target's.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SessionPlaces {
    /// The sessions of each initiator with an entry that is logged in.
    pub(super) logins: Vec<Range<usize>>,
    /// The sessions of the initiators without an entry.
    pub(super) dynamic: Range<usize>,
}

/// Reads the target in a directory, of which LIO says that it has so many sessions.
pub(super) fn read(
    root: &SystemRoot,
    backstores: &mut Backstores,
    at: &Path,
    name: &str,
    sessions: u64,
) -> Result<LioTarget, ReadError> {
    let mut reader = TargetReader { root, backstores, found: LioTarget::default() };
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

struct TargetReader<'a> {
    root: &'a SystemRoot,
    backstores: &'a mut Backstores,
    found: LioTarget,
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
    backing: Arc<VolumeBacking>,
    device: Option<DeviceNumber>,
}

impl TargetReader<'_> {
    fn portal_group(&mut self, at: &Path, target: &Arc<str>, group: &str) -> Result<(), ReadError> {
        let mut luns = HashMap::new();
        for lun in tree::list(self.root, at.join("lun"))?.unwrap_or_default().directories {
            if let Some(backstore) = self.backstore(&at.join("lun").join(&lun))? {
                let name = format!("{group}/{lun}");
                let backing = Arc::new(VolumeBacking { name, path: backstore.path.clone() });
                luns.insert(lun, Lun { backing, device: backstore.device });
            }
        }
        let mut this =
            (PortalGroup { portals: self.portals(at)?, ..PortalGroup::default() }, SessionPlaces::default());
        for initiator in tree::list(self.root, at.join("acls"))?.unwrap_or_default().directories {
            let first = self.found.sessions.len();
            let login =
                self.initiator(&at.join("acls").join(&initiator), (target, group), &initiator, &luns)?;
            if let Some(LioLogin { connections }) = login {
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
        (group, places): &mut (PortalGroup, SessionPlaces),
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
                self.found.sessions.push(TargetSession {
                    via: TargetKind::Iscsi,
                    consumer: consumer_name(name),
                    target: Arc::clone(target),
                    volume: Arc::clone(&lun.backing),
                    device: lun.device,
                    addresses: Vec::new(),
                    doubt: None,
                    counters: None,
                });
                self.found.counted.push(None);
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
        let device = match (told.device, &path) {
            (None, Some(path)) => self.device_of(path)?,
            (device, _) => device,
        };
        let backstore = Arc::new(Backstore { device, path });
        self.backstores.insert(at, Arc::clone(&backstore));
        Ok(Some(backstore))
    }

    /// Returns the device that a backstore's path is, or that has the file system of its file.
    fn device_of(&self, path: &Path) -> Result<Option<DeviceNumber>, ReadError> {
        if path.starts_with("/dev")
            && let Some(device) = VolumeTree::read(self.root)?.find_path(self.root, path)
        {
            return Ok(Some(device));
        }
        Ok(MountTable::read(self.root)?.at(path).and_then(|mount| mount.device))
    }

    /// Returns the target of the one link in a directory. The link may have any name.
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
        (target, group): (&Arc<str>, &str),
        name: &str,
        luns: &HashMap<String, Lun>,
    ) -> Result<Option<LioLogin>, ReadError> {
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
            let Some(link) = self.only_link(&at.join(&mapped))? else { continue };
            let lun = link.file_name().and_then(|name| name.to_str()).and_then(|name| luns.get(name));
            // A LUN that has been removed since.
            let Some(lun) = lun else { continue };
            self.found.sessions.push(TargetSession {
                via: TargetKind::Iscsi,
                consumer: consumer.clone(),
                target: Arc::clone(target),
                volume: Arc::clone(&lun.backing),
                device: lun.device,
                addresses: addresses.clone(),
                doubt: None,
                counters: None,
            });
            let at = format!("{target}/{group}/acls/{name}/{mapped}/statistics/scsi_auth_intr");
            self.found.counted.push(Some(Counted::at(&at)));
        }
        Ok(Some(login))
    }
}

pub(super) const TARGET: &str = "/sys/kernel/config/target";
