//! The handle on a running gateway.

mod awaited;
mod displaced;
mod errors;
mod exports;
mod obstacles;
mod opening;
mod pool;
mod replaced;
mod volume_look;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant as WallInstant};

use tidegate_journal::JournalWriter;
use tidegate_tls::{ServerFiles, TlsError};
use tidegate_units::ResourceName;
use tracing::{debug, error};

use crate::clock::GatewayClock;
use crate::config::{GatewayConfig, ListenConfig, ListenEndpoint};
use crate::directory::{DirectoryEntry, ExportDirectory};
use crate::endpoint::BoundEndpoint;
use crate::listener::devices::{BoundDevice, DeviceError, DeviceServer, delete_left_behind};
use crate::listener::disks::{BoundDisk, DiskListener, DiskSocketError};
use crate::listener::{EndpointListener, RunningHandshakes};
use crate::peers::{PeerReports, PoolPartners};
use crate::stats::GatewaySnapshot;
use crate::suspension::{self, SuspendedSession};
use crate::worker::door::{ExportPin, SessionFate, WorkerCommand};
use crate::worker::{KERNEL_GRACE, WorkerEnd};
use awaited::ReachedUpstream;
use exports::OpenedExport;
use pool::{END_PATIENCE, PoolHandle, Prepared};

pub use displaced::OpenVolumes;
pub use errors::{ApplyError, GatewayError, StartError};
pub use obstacles::obstacles;
pub use opening::{OpenedVolumes, ReloadVolumes};
pub use replaced::DisplacedVolume;

/// The time in which all pools together answer a question. A worker answers within a turn, which is far below
/// a millisecond; one that needs longer than this does not run.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// The time between two looks at the volumes, beside those of the workers. Chosen: an administrator who replaces a
/// volume hears of it at once.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// A running gateway. Dropping it ends the service at once; [`drain`](Self::drain) ends it in order.
#[derive(Debug)]
pub struct Gateway {
    config: GatewayConfig,
    clock: GatewayClock,
    journal: Option<JournalWriter>,
    directory: Arc<ExportDirectory>,
    handshakes: Arc<RunningHandshakes>,
    addresses: Vec<ListenEndpoint>,
    /// Dropped before the pools: no client connects while they end.
    listeners: Vec<EndpointListener>,
    disks: Vec<DiskListener>,
    devices: Vec<DeviceServer>,
    pools: Vec<PoolHandle>,
    next_export: u64,
    /// True while sizes of volumes are being looked at.
    measuring: Arc<AtomicBool>,
    /// True while paths of volumes are being looked at.
    looking: Arc<AtomicBool>,
    /// The time of the next look at all volumes.
    next_look: WallInstant,
    /// Upstreams that were reached after the start.
    reached: Receiver<ReachedUpstream>,
}

/// The outcome of a drain.
#[derive(Debug, Default)]
pub struct DrainReport {
    /// Sessions that were cut off at the deadline with requests unanswered.
    pub cut_off: usize,
    /// Pools whose worker did not end in time, because the kernel does not give it back. The sockets of their
    /// clients are shut down.
    pub stuck: Vec<ResourceName>,
    /// Sessions that another gateway can [`resume`](Gateway::resume). None after [`Gateway::drain`].
    pub suspended: Vec<SuspendedSession>,
}

impl Gateway {
    /// Starts to serve: opens every export, binds every endpoint, starts one worker per pool.
    ///
    /// # Errors
    /// When anything of it fails; nothing is left running.
    pub fn start(config: GatewayConfig) -> Result<Self, StartError> {
        Self::start_among(config, |_| None)
    }

    /// Starts like [`start`](Self::start), if other hosts share resources. The law of a pool that has
    /// [`PeerReports`] steers by the measurements of all of them. A pool keeps its peers, or their absence,
    /// for as long as the gateway runs.
    ///
    /// # Errors
    /// When anything of it fails; nothing is left running.
    pub fn start_among(
        config: GatewayConfig,
        peers: impl Fn(&ResourceName) -> Option<Arc<dyn PeerReports>>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        let tls = config.tls.as_ref().map(ServerFiles::load).transpose()?;
        let bind = |listen: &ListenConfig| {
            BoundEndpoint::new(listen)
                .map_err(|source| StartError::Listen { endpoint: listen.endpoint.clone(), source })
        };
        let bound: Vec<BoundEndpoint> = config.listen.iter().map(bind).collect::<Result<_, _>>()?;
        let disks = BoundDisk::all(&config, &[])?;
        let devices = BoundDevice::all(&config, &[])?;
        let clock = GatewayClock::start();
        let journal = config.journal.clone().map(|journal| JournalWriter::start(journal, clock.now()));
        let journal = journal.transpose()?;
        let mut first_attempts = awaited::first_attempts(&config.pools);
        let (sender, reached) = channel();
        let mut gateway = Self {
            clock,
            journal,
            directory: Arc::default(),
            handshakes: Arc::default(),
            addresses: bound.iter().map(|bound| bound.endpoint().clone()).collect(),
            listeners: Vec::new(),
            disks: Vec::new(),
            devices: Vec::new(),
            pools: Vec::new(),
            next_export: 0,
            measuring: Arc::default(),
            looking: Arc::default(),
            next_look: WallInstant::now() + BETWEEN_LOOKS,
            reached,
            config,
        };
        for pool in &gateway.config.pools {
            gateway.pools.push(PoolHandle::start(
                pool,
                PoolPartners { peers: peers(&pool.name), journal: gateway.journal.clone() },
                gateway.clock,
                &mut gateway.next_export,
                &mut first_attempts,
                &sender,
            )?);
        }
        gateway.directory.set_tls(tls);
        gateway.publish();
        for bound in bound {
            let endpoint = bound.endpoint().clone();
            let (directory, handshakes) = (Arc::clone(&gateway.directory), Arc::clone(&gateway.handshakes));
            let listener =
                EndpointListener::start(bound, directory, handshakes, gateway.config.handshake.clone())
                    .map_err(|source| StartError::Listen { endpoint, source })?;
            gateway.listeners.push(listener);
        }
        gateway.disks = gateway.listen_for_disks(disks)?;
        gateway.devices = gateway.serve_devices(devices)?;
        delete_left_behind(&gateway.config);
        // Mounts that are ordered after this service find them.
        gateway.devices.iter().try_for_each(DeviceServer::wait)?;
        debug!(endpoints = ?gateway.addresses, "serving");
        Ok(gateway)
    }

    /// Returns the endpoints at which clients can connect, in the order of the configuration. TCP ports are
    /// the real ones.
    #[must_use]
    pub fn addresses(&self) -> Vec<ListenEndpoint> {
        self.addresses.clone()
    }

    /// Changes shares, limits, contracts, laws, depths, protected flags, and adds or removes exports, without
    /// touching a connection. A changed contract is in force with the law's next step. A removed export takes
    /// no new sessions; those it has go on until they end. On an emulated device a new export gets new space;
    /// that of removed ones is given away again after a restart.
    ///
    /// # Errors
    /// When the configuration is invalid, or differs in something that needs a restart; nothing is applied
    /// then.
    pub fn apply(&mut self, config: GatewayConfig) -> Result<(), ApplyError> {
        let opened = self.opening(&config)?.open()?;
        self.apply_opened(config, opened)
    }

    /// The volumes that `config` adds, and those that may have another size now. To look at them takes as
    /// long as their storage takes to answer: a caller that must not wait has [`ReloadVolumes::open`] run on
    /// another thread, and then calls [`apply_opened`](Self::apply_opened).
    ///
    /// # Errors
    /// When the configuration is invalid, or differs in something that needs a restart.
    pub fn opening(&self, config: &GatewayConfig) -> Result<ReloadVolumes, ApplyError> {
        config.validate().map_err(StartError::from)?;
        let fixed = needs_restart(&self.config, config);
        if !fixed.is_empty() {
            return Err(ApplyError::NeedsRestart(fixed));
        }
        let exports = self.pools.iter().flat_map(|pool| &pool.exports);
        Ok(ReloadVolumes::new(&self.config, config, exports, &self.measuring, self.clock))
    }

    /// Returns the volumes that are open by paths, to look whether the paths still lead to them.
    #[must_use]
    pub fn volumes(&self) -> OpenVolumes {
        OpenVolumes::new(self.pools.iter().flat_map(|pool| &pool.exports), &self.looking)
    }

    /// The same as [`apply`](Self::apply), with the volumes that were opened for it. It does not wait for
    /// storage.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn apply_opened(
        &mut self,
        config: GatewayConfig,
        mut opened: OpenedVolumes,
    ) -> Result<(), ApplyError> {
        config.validate().map_err(StartError::from)?;
        let fixed = needs_restart(&self.config, &config);
        if !fixed.is_empty() {
            return Err(ApplyError::NeedsRestart(fixed));
        }
        let tls = if config.tls == self.config.tls {
            self.directory.tls()
        } else {
            config.tls.as_ref().map(ServerFiles::load).transpose().map_err(StartError::from)?
        };
        let mut next_export = self.next_export;
        let prepared: Vec<Prepared> = self
            .pools
            .iter()
            .zip(&config.pools)
            .map(|(pool, config)| pool.prepare(config, &mut next_export, self.clock, &mut opened))
            .collect::<Result<_, _>>()?;
        for pool in &self.pools {
            pool.check()?;
        }
        let disks = BoundDisk::all(&config, &self.disks).map_err(StartError::from)?;
        let devices = BoundDevice::all(&config, &self.devices).map_err(StartError::from)?;
        let disks = self.listen_for_disks(disks).map_err(StartError::from)?;
        // From here on nothing fails.
        self.disks.retain(|disk| disk.is_in(&config));
        self.disks.extend(disks);
        let is_removed = |device: &mut DeviceServer| !device.is_in(&config);
        self.devices.extract_if(.., is_removed).for_each(DeviceServer::remove);
        self.next_export = next_export;
        for (pool, prepared) in self.pools.iter_mut().zip(prepared) {
            pool.change(prepared);
        }
        self.config = config;
        self.directory.set_tls(tls);
        self.publish();
        match self.serve_devices(devices) {
            Ok(devices) => self.devices.extend(devices),
            Err(error) => error!("{error}"),
        }
        Ok(())
    }

    /// Serves exports whose upstream has been reached since the last call. To be called a few times a second.
    pub fn open_awaited(&mut self) {
        let mut opened = false;
        while let Ok((id, connected)) = self.reached.try_recv() {
            let mut pools = self.pools.iter_mut().zip(&self.config.pools);
            // One that was removed meanwhile is in none of them.
            if let Some((pool, config)) = pools.find(|(pool, _)| pool.awaits(id)) {
                pool.open_awaited(config, id, connected, self.clock);
                opened = true;
            }
        }
        if opened {
            self.publish();
        }
    }

    /// Looks at the volumes now and then, without waiting for them: whether their paths still lead to them, and
    /// whether they have shrunk. To be called a few times a second.
    pub fn look_at_volumes(&mut self) {
        let now = WallInstant::now();
        if now >= self.next_look {
            self.next_look = now + BETWEEN_LOOKS;
            let exports = self.pools.iter().flat_map(|pool| &pool.exports);
            volume_look::begin_round(exports.filter_map(OpenedExport::volume_to_look_at).collect());
        }
    }

    /// Reads the certificates again, for handshakes from now on.
    ///
    /// # Errors
    /// When a file cannot be used; those that were read before go on then.
    pub fn renew_certificates(&self) -> Result<(), TlsError> {
        if let Some(files) = &self.config.tls {
            self.directory.set_tls(Some(files.load()?));
        }
        Ok(())
    }

    /// The state of every pool that answers within half a second. A pool that did not is asked again, without
    /// waiting for it, until it answers.
    ///
    /// # Errors
    /// When a pool's worker has failed.
    pub fn snapshot(&self) -> Result<GatewaySnapshot, GatewayError> {
        let (handshakes, handshakes_ended) = self.handshakes.counts();
        // All are asked before the first answer is awaited.
        let asked: Vec<_> = self.pools.iter().map(|pool| (pool, pool.ask())).collect();
        let end = WallInstant::now() + ANSWER_PATIENCE;
        let (mut pools, mut silent) = (Vec::with_capacity(asked.len()), Vec::new());
        for (pool, asked) in asked {
            match pool.answer(asked, end)? {
                Some(snapshot) => pools.push(snapshot),
                None => silent.push(pool.name.clone()),
            }
        }
        let refused = self.handshakes.refusals().counts();
        let guest_memory = tidegate_vhost::shared_bytes();
        Ok(GatewaySnapshot { pools, silent, handshakes, handshakes_ended, guest_memory, refused })
    }

    /// Ends in order: accepts nothing more, answers what was received, refuses further requests with
    /// ESHUTDOWN, closes. Sessions with unanswered requests after `deadline` are cut off. It returns at most
    /// half a second later, also when storage hangs.
    ///
    /// # Errors
    /// When a pool's worker has failed.
    pub fn drain(mut self, deadline: Duration) -> Result<DrainReport, GatewayError> {
        debug!("draining");
        self.end(deadline, SessionFate::Close)
    }

    /// Ends like [`drain`](Self::drain), and leaves open the connections with which another gateway can go
    /// on. Requests that have reached the storage are answered first. TLS, disks, and exports of an emulated
    /// device end as in a drain.
    ///
    /// # Errors
    /// When a pool's worker has failed.
    pub fn suspend(mut self, deadline: Duration) -> Result<DrainReport, GatewayError> {
        debug!("suspending");
        self.end(deadline, SessionFate::Suspend)
    }

    /// Goes on with sessions that another gateway has suspended. Returns how many. Those whose client may not
    /// use the export any more, or to whom it was described otherwise, are closed, and logged.
    pub fn resume(&self, sessions: Vec<SuspendedSession>) -> usize {
        let resume = |session| suspension::resume(session, &self.directory, &self.config.listen);
        sessions.into_iter().map(resume).filter(|resumed| *resumed).count()
    }

    /// Returns the decision journal, if there is one.
    #[must_use]
    pub const fn journal(&self) -> Option<&JournalWriter> {
        self.journal.as_ref()
    }

    fn end(&mut self, patience: Duration, fate: SessionFate) -> Result<DrainReport, GatewayError> {
        self.directory.shut_down();
        self.listeners.clear();
        self.disks.clear();
        self.devices.clear();
        let deadline = self.clock.now() + patience;
        for pool in &self.pools {
            pool.door.send(WorkerCommand::Drain { deadline, fate });
        }
        // All are waited for, whatever becomes of one.
        let end = WallInstant::now() + patience + KERNEL_GRACE + END_PATIENCE;
        let ended: Vec<_> = self.pools.iter_mut().map(|pool| (pool.name.clone(), pool.end(end))).collect();
        self.pools.clear();
        if let Some(journal) = &self.journal {
            journal.close();
        }
        let mut report = DrainReport::default();
        for (pool, ended) in ended {
            match ended? {
                Some(WorkerEnd { cut_off, suspended }) => {
                    report.cut_off += cut_off;
                    report.suspended.extend(suspended);
                }
                None => report.stuck.push(pool),
            }
        }
        Ok(report)
    }

    fn listen_for_disks(&self, bound: Vec<BoundDisk>) -> Result<Vec<DiskListener>, DiskSocketError> {
        let start = |bound| DiskListener::start(bound, &self.directory, &self.handshakes);
        bound.into_iter().map(start).collect()
    }

    fn serve_devices(&self, bound: Vec<BoundDevice>) -> Result<Vec<DeviceServer>, DeviceError> {
        bound.into_iter().map(|bound| DeviceServer::start(bound, &self.directory)).collect()
    }

    /// Tells handshakes what there is.
    fn publish(&self) {
        let entries = self.pools.iter().flat_map(|pool| {
            pool.exports.iter().map(|opened| DirectoryEntry {
                name: opened.config.served_name(),
                consumer: opened.config.name.clone(),
                export: opened.export.clone(),
                access: opened.config.access.clone(),
                id: opened.id,
                volume: opened.volume.clone(),
                door: Arc::clone(&pool.door),
                pin: ExportPin::clone(&opened.pin),
            })
        });
        let awaited = self.pools.iter().flat_map(|pool| &pool.awaited);
        let awaited = awaited.map(|awaited| (awaited.config.served_name(), awaited.config.access.clone()));
        self.directory.set(entries.collect(), awaited.collect());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(failure) = self.end(Duration::ZERO, SessionFate::Close) {
            error!("{failure}");
        }
    }
}

/// Returns the names of the differences that cannot be applied while clients are connected.
fn needs_restart(old: &GatewayConfig, new: &GatewayConfig) -> Vec<String> {
    let mut fixed = Vec::new();
    if old.listen != new.listen {
        fixed.push("the endpoints".to_owned());
    }
    if old.handshake != new.handshake {
        fixed.push("the handshake limits".to_owned());
    }
    if old.pools.iter().map(|pool| &pool.name).ne(new.pools.iter().map(|pool| &pool.name)) {
        fixed.push("the set of pools".to_owned());
        return fixed;
    }
    for (old, new) in old.pools.iter().zip(&new.pools) {
        if old.backend != new.backend {
            fixed.push(format!("pool `{}`: the backend", old.name));
        }
        // Tags by which some requests wait already mean nothing to another scheduler.
        if old.discipline != new.discipline {
            fixed.push(format!("pool `{}`: the scheduler", old.name));
        }
        if (old.batch, old.idle_credit) != (new.batch, new.idle_credit) {
            fixed.push(format!("pool `{}`: the scheduler's bursts", old.name));
        }
        if old.scope != new.scope {
            fixed.push(format!("pool `{}`: the scope of its law", old.name));
        }
        if old.processors != new.processors {
            fixed.push(format!("pool `{}`: the processors", old.name));
        }
        for export in &new.exports {
            let Some(before) = old.exports.iter().find(|before| before.name == export.name) else { continue };
            if before.store != export.store {
                fixed.push(format!("export `{}`: the path, size or upstream", export.name));
            }
            if before.read_only != export.read_only {
                fixed.push(format!("export `{}`: read-only", export.name));
            }
            if before.served_as != export.served_as {
                fixed.push(format!("export `{}`: the name that it is served as", export.name));
            }
            if before.disks != export.disks || before.devices != export.devices {
                fixed.push(format!("export `{}`: where it is a disk", export.name));
            }
            if before.shared_volume != export.shared_volume {
                fixed.push(format!("export `{}`: whether its volume is shared", export.name));
            }
        }
    }
    fixed
}

#[cfg(test)]
mod tests;
