//! The exports as handshakes see them: names, sizes, and the doors through which sessions enter.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_nbd::handshake::ExportAnswer;
use tidegate_nbd::{ExportDescription, ExportName};
use tidegate_tls::ServerTls;
use tidegate_units::ConsumerName;

use crate::access::{AccessVerdict, ExportAccess, KnownClient};
use crate::identity::VolumeIdentity;
use crate::seats::ConnectionSource;
use crate::stats::RefusalReason;
use crate::worker::door::{ExportPin, SessionSlot, WorkerDoor};

/// An export as the handshake sees it.
#[derive(Debug, Clone)]
pub(crate) struct DirectoryEntry {
    pub(crate) name: ExportName,
    pub(crate) consumer: ConsumerName,
    pub(crate) export: ExportDescription,
    pub(crate) access: ExportAccess,
    /// The export's identity across all pools; a later export of the same name has another.
    pub(crate) id: u64,
    pub(crate) volume: VolumeIdentity,
    pub(crate) door: Arc<WorkerDoor>,
    pub(crate) pin: ExportPin,
}

/// All exports of a gateway. Off the data path: asked once per handshake.
#[derive(Debug, Default)]
pub(crate) struct ExportDirectory {
    entries: Mutex<Vec<DirectoryEntry>>,
    /// Exports that are configured, and not served before their upstream is reached.
    awaited: Mutex<Vec<(ExportName, ExportAccess)>>,
    /// The gateway's part in TLS, where it has one.
    tls: Mutex<Option<ServerTls>>,
    shutting_down: AtomicBool,
}

/// A place in a pool, for a client that has chosen.
#[derive(Debug)]
pub(crate) struct SeatReservation {
    pub(crate) export: u64,
    pub(crate) volume: VolumeIdentity,
    pub(crate) slot: SessionSlot,
    pub(crate) pin: ExportPin,
}

/// A client's question that is answered with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RefusedQuestion(RefusalReason);

impl RefusedQuestion {
    pub(crate) fn refusal(self) -> RefusalReason {
        self.0
    }
}

impl From<RefusedQuestion> for ExportAnswer {
    fn from(RefusedQuestion(refusal): RefusedQuestion) -> Self {
        match refusal {
            RefusalReason::ShuttingDown => Self::ShuttingDown,
            RefusalReason::Unreached => Self::Unavailable,
            RefusalReason::PoolSessions | RefusalReason::ExportSessions | RefusalReason::SourceSessions => {
                Self::AtCapacity
            }
            RefusalReason::Certificate | RefusalReason::Address | RefusalReason::User => Self::Forbidden,
            RefusalReason::TlsRequired => Self::TlsRequired,
            _ => Self::Unknown,
        }
    }
}

impl ExportDirectory {
    pub(crate) fn set(&self, entries: Vec<DirectoryEntry>, awaited: Vec<(ExportName, ExportAccess)>) {
        *self.lock() = entries;
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = awaited;
    }

    pub(crate) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_tls(&self, tls: Option<ServerTls>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    pub(crate) fn tls(&self) -> Option<ServerTls> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers a client that asks for an export, and keeps a place for it if it wants to `open` it. Of
    /// several exports with the name, the client gets the first that it may use. The empty name is the only
    /// name that there is.
    ///
    /// # Errors
    /// The reason for which the client is refused, at the first export of the name.
    pub(crate) fn find(
        &self,
        name: &ExportName,
        open: bool,
        client: &KnownClient,
        source: ConnectionSource,
    ) -> Result<(ExportDescription, Option<SeatReservation>), RefusedQuestion> {
        if self.shutting_down.load(Ordering::Relaxed) {
            return Err(RefusedQuestion(RefusalReason::ShuttingDown));
        }
        let entry = match self.served(name, client) {
            Ok(entry) => entry,
            Err(refusal) => return Err(RefusedQuestion(self.unreached(name, client).unwrap_or(refusal))),
        };
        if !open {
            return Ok((entry.export, None));
        }
        let slot = entry.door.reserve(entry.id, source).map_err(RefusedQuestion)?;
        Ok((
            entry.export,
            Some(SeatReservation { export: entry.id, volume: entry.volume, slot, pin: entry.pin }),
        ))
    }

    /// Keeps a place for a client that names an export's consumer: the front end of a disk, or a session that
    /// another process has suspended.
    ///
    /// # Errors
    /// The reason for which it is refused.
    pub(crate) fn find_consumer(
        &self,
        consumer: &ConsumerName,
        client: &KnownClient,
        source: ConnectionSource,
    ) -> Result<(ExportDescription, SeatReservation), RefusalReason> {
        if self.shutting_down.load(Ordering::Relaxed) {
            return Err(RefusalReason::ShuttingDown);
        }
        let found = self.lock().iter().find(|entry| entry.consumer == *consumer).cloned();
        // A disk's socket is there because it is configured; its export may wait for its upstream.
        let entry = found.ok_or(RefusalReason::Unreached)?;
        if let Some(refusal) = refused(&entry.access, client) {
            return Err(refusal);
        }
        let slot = entry.door.reserve(entry.id, source)?;
        Ok((entry.export, SeatReservation { export: entry.id, volume: entry.volume, slot, pin: entry.pin }))
    }

    /// Keeps a place for a block device of this host. Rules about clients do not apply: the right to open the
    /// device is the kernel's matter.
    ///
    /// # Errors
    /// The reason for which it is refused.
    pub(crate) fn find_device(
        &self,
        consumer: &ConsumerName,
    ) -> Result<(ExportDescription, SeatReservation), RefusalReason> {
        if self.is_shutting_down() {
            return Err(RefusalReason::ShuttingDown);
        }
        let found = self.lock().iter().find(|entry| entry.consumer == *consumer).cloned();
        let entry = found.ok_or(RefusalReason::Unreached)?;
        let own = ConnectionSource::User(rustix::process::geteuid().as_raw());
        let slot = entry.door.reserve(entry.id, own)?;
        Ok((entry.export, SeatReservation { export: entry.id, volume: entry.volume, slot, pin: entry.pin }))
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Relaxed)
    }

    fn served(&self, name: &ExportName, client: &KnownClient) -> Result<DirectoryEntry, RefusalReason> {
        let entries = self.lock();
        let only = entries.first().filter(|first| entries.iter().all(|entry| entry.name == first.name));
        let name = only.filter(|_| name.as_str().is_empty()).map_or(name, |only| &only.name);
        let mut refusal = None;
        for entry in entries.iter().filter(|entry| entry.name == *name) {
            match refused(&entry.access, client) {
                None => return Ok(entry.clone()),
                Some(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        Err(refusal.unwrap_or(RefusalReason::UnknownExport))
    }

    /// The refusal of a client that asks for exports whose upstream is not reached yet; `None` where there
    /// are none.
    fn unreached(&self, name: &ExportName, client: &KnownClient) -> Option<RefusalReason> {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let named = awaited.iter().filter(|(awaited, _)| awaited == name);
        let refusals: Vec<_> = named.map(|(_, access)| refused(access, client)).collect();
        if refusals.contains(&None) {
            Some(RefusalReason::Unreached)
        } else {
            refusals.into_iter().next().flatten()
        }
    }

    /// Names and descriptions of the exports that a client may use, in the order of the configuration.
    pub(crate) fn list(&self, client: &KnownClient) -> Vec<(ExportName, String)> {
        let entries = self.lock();
        let mut listed = BTreeSet::new();
        let allowed = entries.iter().filter(|entry| refused(&entry.access, client).is_none());
        let first = allowed.filter(|entry| listed.insert(entry.name.clone()));
        first.map(|entry| (entry.name.clone(), entry.export.description.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DirectoryEntry>> {
        // Entries are replaced as a whole, so that a panic elsewhere leaves nothing half done.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason for which a client may not use an export.
fn refused(access: &ExportAccess, client: &KnownClient) -> Option<RefusalReason> {
    match access.judge(client) {
        AccessVerdict::Allowed => None,
        AccessVerdict::NeedsCertificate => Some(RefusalReason::TlsRequired),
        AccessVerdict::Denied(refusal) => Some(refusal),
    }
}
