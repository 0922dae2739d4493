//! The handle on a running gateway.

mod awaited;

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant as WallInstant};

use thiserror::Error;
use tidegate_device::Device;
use tidegate_journal::{JournalError, JournalWriter};
use tidegate_nbd::{ExportDescription, ExportName};
use tidegate_tls::{ServerFiles, TlsError};
use tidegate_units::{ConsumerName, ResourceName};
use tracing::{debug, error, info, warn};

use crate::backend::{EmulatedVolume, ExportVolume, open_file};
use crate::claim::VolumeFile;
use crate::clock::GatewayClock;
use crate::config::{
    BackendConfig, ExportConfig, ExportStore, GatewayConfig, GatewayConfigError, ListenConfig,
    ListenEndpoint, PoolConfig, PoolLimits,
};
use crate::directory::{DirectoryEntry, ExportDirectory};
use crate::endpoint::BoundEndpoint;
use crate::listener::devices::{BoundDevice, DeviceError, DeviceServer, delete_left_behind};
use crate::listener::disks::{BoundDisk, DiskListener, DiskSocketError};
use crate::listener::{EndpointListener, RunningHandshakes};
use crate::peers::{PeerReports, PoolPartners};
use crate::stats::{AwaitedSnapshot, GatewaySnapshot, PoolSnapshot};
use crate::suspension::{self, SuspendedSession};
use crate::upstream::{self, UpstreamConnection, UpstreamError, UpstreamExport};
use crate::worker::door::{ExportPin, NewExport, PoolChange, SessionFate, WorkerCommand, WorkerDoor};
use crate::worker::{KERNEL_GRACE, PoolWorker, WorkerEnd, WorkerParts};
use awaited::{AwaitedExport, FirstAttempts, ReachedUpstream};

mod opening;

pub use opening::{OpenedVolumes, ReloadVolumes};

/// Exports of an emulated device begin at multiples of this, so that stripes and zones do not cut across
/// them.
const REGION_ALIGNMENT: u64 = 1 << 20;

/// The time in which all pools together answer a question. A worker answers within a turn, which is far below
/// a millisecond; one that needs longer than this does not run.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// The time that a worker has to end after its drain's deadline and the kernel's grace.
const END_PATIENCE: Duration = Duration::from_millis(250);

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
    /// Upstreams that were reached after the start.
    reached: Receiver<ReachedUpstream>,
}

/// The handle on a pool's worker.
#[derive(Debug)]
struct PoolHandle {
    name: ResourceName,
    door: Arc<WorkerDoor>,
    /// The outcome of the worker's drain, once it has ended. The thread itself is never joined:
    /// the kernel keeps it for as long as an operation of its ring hangs. `None` after it was told.
    ended: Option<Receiver<WorkerEnd>>,
    /// The answer to a question that the worker left open.
    unanswered: Mutex<Option<Receiver<PoolSnapshot>>>,
    /// The reason of the worker's failure, once it has failed.
    failure: Arc<OnceLock<String>>,
    exports: Vec<OpenedExport>,
    /// Exports whose upstream was not reached yet: the worker does not know of them.
    awaited: Vec<AwaitedExport>,
    /// The end of the last region that was given away on an emulated device, and the device's size.
    regions: (u64, u64),
}

/// A question to a worker.
struct Asked {
    answer: Receiver<PoolSnapshot>,
    /// True if it was asked before, and not answered in time.
    again: bool,
}

/// An export that is served.
#[derive(Debug)]
struct OpenedExport {
    id: u64,
    export: ExportDescription,
    config: ExportConfig,
    /// Its file, for as long as the worker has it open.
    file: Option<Weak<VolumeFile>>,
    pin: ExportPin,
}

/// The reasons why a gateway did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] GatewayConfigError),
    /// A certificate, its key or an authority cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The decision journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An endpoint cannot be listened on.
    #[error("cannot listen on {endpoint}: {source}")]
    Listen {
        /// The endpoint.
        endpoint: ListenEndpoint,
        /// The system's answer.
        source: io::Error,
    },
    /// A socket for an export's disk cannot be listened on.
    #[error(transparent)]
    Disk(#[from] DiskSocketError),
    /// A block device of an export cannot be had.
    #[error(transparent)]
    Ublk(#[from] DeviceError),
    /// An export's file cannot be opened or is not fit to be served.
    #[error("export `{export}`: {}: {source}", path.display())]
    Open {
        /// The export.
        export: ConsumerName,
        /// Its file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// An export's upstream does not answer, or does not have it.
    #[error("export `{export}`: upstream export `{name}` at {address}: {source}")]
    Upstream {
        /// The export.
        export: ConsumerName,
        /// The upstream server.
        address: ListenEndpoint,
        /// The name of its export there.
        name: ExportName,
        /// The error of the upstream.
        source: Box<UpstreamError>,
    },
    /// The exports of an emulated pool do not fit on its device.
    #[error("pool `{pool}`: export `{export}` does not fit on the emulated device")]
    Space {
        /// The pool.
        pool: ResourceName,
        /// The first export that does not fit.
        export: ConsumerName,
    },
    /// The emulated device's parameters are out of range.
    #[error("pool `{pool}`: {source}")]
    Device {
        /// The pool.
        pool: ResourceName,
        /// The error in the parameters.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel gives no io_uring, thread or event descriptor.
    #[error("pool `{pool}`: cannot start its worker: {source}")]
    Worker {
        /// The pool.
        pool: ResourceName,
        /// The system's answer.
        source: io::Error,
    },
}

/// The reasons why a new configuration was not applied. No part of it was.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The configuration contradicts itself, or a new export cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// These things need a restart.
    #[error("needs a restart to change: {}", .0.join(", "))]
    NeedsRestart(Vec<String>),
    /// A pool is no longer served.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

/// The gateway can no longer answer.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// A pool's worker thread ended by a panic; its clients were disconnected.
    #[error("pool `{pool}`: its worker failed: {message}")]
    WorkerFailed {
        /// The pool.
        pool: ResourceName,
        /// The panic's message.
        message: String,
    },
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
        Ok(GatewaySnapshot { pools, silent, handshakes, handshakes_ended, refused })
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

/// A pool's new configuration, opened and checked.
struct Prepared {
    change: PoolChange,
    limits: PoolLimits,
    exports: Vec<OpenedExport>,
    awaited: Vec<AwaitedExport>,
    regions: (u64, u64),
}

impl PoolHandle {
    fn start(
        config: &PoolConfig,
        partners: PoolPartners,
        clock: GatewayClock,
        next_export: &mut u64,
        first_attempts: &mut FirstAttempts,
        reached: &Sender<ReachedUpstream>,
    ) -> Result<Self, StartError> {
        let worker_error = |source| StartError::Worker { pool: config.name.clone(), source };
        let (emulated, mut regions) = match &config.backend {
            BackendConfig::File { .. } | BackendConfig::Nbd(_) => (None, (0, 0)),
            BackendConfig::Emulated { device, changes, seed, data } => {
                let device = Device::new(device, *seed).and_then(|mut device| {
                    device.plan(changes.clone())?;
                    Ok(device)
                });
                let device = device.map_err(|source| StartError::Device {
                    pool: config.name.clone(),
                    source: Box::new(source),
                })?;
                let regions = (0, device.capacity().get());
                let emulated = EmulatedVolume::new(device, data).map_err(|source| StartError::Device {
                    pool: config.name.clone(),
                    source: Box::new(source),
                })?;
                (Some(Box::new(emulated)), regions)
            }
        };
        let mut exports = Vec::new();
        let mut opened = Vec::new();
        let mut awaited = Vec::new();
        for export in &config.exports {
            let id = *next_export;
            *next_export += 1;
            let volume = match first_attempts.remove(&export.name) {
                Some(Ok(first)) => upstream_volume(config, export, first, clock),
                Some(Err(error)) => {
                    let begun = AwaitedExport::begin(id, config, export, &error, reached.clone());
                    awaited.push(begun.map_err(worker_error)?);
                    continue;
                }
                None => open(config, export, &mut regions, clock)?,
            };
            let (new, described) = adopt(id, volume, export);
            opened.push(described);
            exports.push(new);
        }

        let (sender, commands): (Sender<WorkerCommand>, _) = channel();
        let door = Arc::new(WorkerDoor::new(sender).map_err(worker_error)?);
        door.configure(&config.limits, &seated(&opened));
        let failure: Arc<OnceLock<String>> = Arc::default();
        let (ready, started) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        let spawned = {
            let (failure, name) = (Arc::clone(&failure), config.name.clone());
            let parts = WorkerParts {
                config: config.clone(),
                partners,
                clock,
                door: Arc::clone(&door),
                commands,
                emulated,
                exports,
            };
            let processors = config.processors.clone();
            std::thread::Builder::new().name(format!("tg-{name}")).spawn(move || {
                let bound = processors.map_or(Ok(()), |processors| processors.bind());
                let worker = match bound.and_then(|()| PoolWorker::new(parts)) {
                    Ok(worker) => worker,
                    Err(error) => {
                        // The thread that starts a pool waits for this.
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let _ = ready.send(Ok(()));
                // The handle may have given up waiting.
                let _ = end.send(serve(worker, &name, &failure));
            })
        };
        spawned.map_err(worker_error)?;
        let (name, unanswered) = (config.name.clone(), Mutex::default());
        let pool =
            Self { name, door, ended: Some(ended), unanswered, failure, exports: opened, awaited, regions };
        let ended = || Err(io::Error::other("its thread ended at once"));
        started.recv().unwrap_or_else(|_| ended()).map_err(worker_error)?;
        Ok(pool)
    }

    fn prepare(
        &self,
        config: &PoolConfig,
        next_export: &mut u64,
        clock: GatewayClock,
        opened: &mut OpenedVolumes,
    ) -> Result<Prepared, StartError> {
        let mut regions = self.regions;
        let (mut changed, mut added, mut exports) = (Vec::new(), Vec::new(), Vec::new());
        let mut awaited = Vec::new();
        for export in &config.exports {
            if let Some(old) = self.exports.iter().find(|old| old.config.name == export.name) {
                changed.push((old.id, export.clone()));
                exports.push(old.with(export, opened.size(old.id)));
            } else if let Some(old) = self.awaited.iter().find(|old| old.config.name == export.name) {
                awaited.push(old.with(export));
            } else {
                let volume = match opened.take(&config.name, &export.name) {
                    Some(volume) => volume,
                    None => open(config, export, &mut regions, clock)?,
                };
                let (new, described) = adopt(*next_export, volume, export);
                exports.push(described);
                added.push(new);
                *next_export += 1;
            }
        }
        let gone = |old: &&OpenedExport| config.exports.iter().all(|export| export.name != old.config.name);
        let removed = self.exports.iter().filter(gone).map(|old| old.id).collect();
        let size = |opened: &OpenedExport| (opened.id, opened.export.geometry.size);
        let before: Vec<_> = self.exports.iter().map(size).collect();
        let resized = exports.iter().map(size).filter(|now| !before.contains(now)).collect();
        let change = PoolChange {
            depth: config.depth,
            law: config.law.clone(),
            release: config.release,
            limits: config.limits.clone(),
            changed,
            added,
            removed,
            resized,
        };
        Ok(Prepared { change, limits: config.limits.clone(), exports, awaited, regions })
    }

    fn change(&mut self, prepared: Prepared) {
        self.door.configure(&prepared.limits, &seated(&prepared.exports));
        self.exports = prepared.exports;
        self.awaited = prepared.awaited;
        self.regions = prepared.regions;
        // A worker that has just failed says so at the next snapshot.
        self.door.send(WorkerCommand::Change(Box::new(prepared.change)));
    }

    fn awaits(&self, id: u64) -> bool {
        self.awaited.iter().any(|awaited| awaited.id == id)
    }

    fn open_awaited(&mut self, config: &PoolConfig, id: u64, first: UpstreamConnection, clock: GatewayClock) {
        let Some(place) = self.awaited.iter().position(|awaited| awaited.id == id) else { return };
        let export = self.awaited.remove(place).config;
        info!(pool = %self.name, export = %export.name, "its upstream is reached: the export is served now");
        let (new, described) = adopt(id, upstream_volume(config, &export, first, clock), &export);
        self.exports.push(described);
        self.door.configure(&config.limits, &seated(&self.exports));
        let change = PoolChange {
            depth: config.depth,
            law: config.law.clone(),
            release: config.release,
            limits: config.limits.clone(),
            changed: Vec::new(),
            added: vec![new],
            removed: Vec::new(),
            resized: Vec::new(),
        };
        // A worker that has just failed says so at the next snapshot.
        self.door.send(WorkerCommand::Change(Box::new(change)));
    }

    /// Asks the worker for its state, unless it still owes an answer.
    fn ask(&self) -> Asked {
        match self.lock_unanswered().take() {
            Some(answer) => Asked { answer, again: true },
            None => {
                let (reply, answer) = sync_channel(1);
                self.door.send(WorkerCommand::Snapshot(reply));
                Asked { answer, again: false }
            }
        }
    }

    /// The worker's state, or `None` when it does not answer in time; a worker that was silent before is not
    /// waited for.
    fn answer(&self, asked: Asked, end: WallInstant) -> Result<Option<PoolSnapshot>, GatewayError> {
        let Asked { answer, again } = asked;
        let patience = if again { Duration::ZERO } else { end.saturating_duration_since(WallInstant::now()) };
        match answer.recv_timeout(patience) {
            Ok(snapshot) => {
                if again {
                    info!(pool = %self.name, "the pool answers again");
                }
                let awaited = self.awaited.iter().map(|awaited| AwaitedSnapshot {
                    name: awaited.config.name.clone(),
                    reason: awaited.reason.clone(),
                });
                Ok(Some(PoolSnapshot { awaited: awaited.collect(), ..snapshot }))
            }
            Err(RecvTimeoutError::Timeout) => {
                if !again {
                    error!(
                        pool = %self.name,
                        "the pool does not answer: its worker waits in the kernel, and so do the pool's \
                            clients; \
                         look for storage that hangs (`dmesg`, /proc/PID/task/*/stack)"
                    );
                }
                *self.lock_unanswered() = Some(answer);
                Ok(None)
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.failed()),
        }
    }

    fn lock_unanswered(&self) -> std::sync::MutexGuard<'_, Option<Receiver<PoolSnapshot>>> {
        // It is replaced as a whole, so that a panic elsewhere leaves nothing half done.
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), GatewayError> {
        if self.failure.get().is_some() { Err(self.failed()) } else { Ok(()) }
    }

    /// Waits for the worker's end. If it does not end in time: shuts down its clients' sockets and says
    /// `None`.
    fn end(&mut self, end: WallInstant) -> Result<Option<WorkerEnd>, GatewayError> {
        let Some(ended) = self.ended.take() else { return Ok(Some(WorkerEnd::default())) };
        let patience = end.saturating_duration_since(WallInstant::now());
        match ended.recv_timeout(patience) {
            Ok(ended) => self.check().map(|()| Some(ended)),
            Err(RecvTimeoutError::Timeout) => {
                self.door.shut_sessions();
                Ok(None)
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.failed()),
        }
    }

    fn failed(&self) -> GatewayError {
        let message = self.failure.get().cloned().unwrap_or_else(|| "it ended".into());
        GatewayError::WorkerFailed { pool: self.name.clone(), message }
    }
}

impl Drop for PoolHandle {
    /// Ends a worker that was not ended in order, as when a later step of the start fails.
    fn drop(&mut self) {
        if self.ended.is_some() {
            let (deadline, fate) = (tidegate_units::Instant::ZERO, SessionFate::Close);
            self.door.send(WorkerCommand::Drain { deadline, fate });
            // A failure was logged where it happened.
            let _ = self.end(WallInstant::now() + KERNEL_GRACE + END_PATIENCE);
        }
    }
}

/// Runs a worker to its end, whatever that is.
fn serve(mut worker: PoolWorker, pool: &ResourceName, failure: &OnceLock<String>) -> WorkerEnd {
    let reason = match catch_unwind(AssertUnwindSafe(|| worker.run())) {
        Ok(Ok(end)) => return end,
        Ok(Err(error)) => format!("io_uring: {error}"),
        Err(panic) => message_of(&*panic),
    };
    error!(pool = %pool, "the pool's worker failed, its clients are disconnected: {reason}");
    // No other thread sets it, and it is set before any thread is told that the worker is not there.
    let _ = failure.set(reason);
    worker.hang_up();
    // What the worker holds may be inconsistent, and the kernel may still use its memory.
    std::mem::forget(worker);
    WorkerEnd::default()
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".into())
}

/// The exports for which places are kept, and whether they are protected.
fn seated(exports: &[OpenedExport]) -> Vec<(u64, bool)> {
    exports.iter().map(|opened| (opened.id, opened.config.protected)).collect()
}

impl OpenedExport {
    /// The same export under a new configuration, with the size that its volume has now.
    fn with(&self, config: &ExportConfig, size: Option<u64>) -> Self {
        let mut geometry = self.export.geometry;
        if let Some(size) = size.filter(|size| *size != geometry.size) {
            let (export, before) = (&config.name, geometry.size);
            if size.is_multiple_of(u64::from(geometry.blocks.minimum())) {
                info!(%export, "its volume had {before} bytes and has {size} now: new connections see them");
                geometry.size = size;
            } else {
                warn!(%export, "its volume has {size} bytes now, which are no whole blocks: {before} stay");
            }
        }
        let description = config.description.clone().unwrap_or_default();
        Self {
            id: self.id,
            export: ExportDescription { geometry, description },
            config: config.clone(),
            file: self.file.clone(),
            pin: ExportPin::clone(&self.pin),
        }
    }
}

/// An opened export's two halves: the worker's and the handle's.
fn adopt(id: u64, volume: ExportVolume, config: &ExportConfig) -> (NewExport, OpenedExport) {
    let export = ExportDescription {
        geometry: volume.geometry(config.read_only),
        description: config.description.clone().unwrap_or_default(),
    };
    let file = match &volume {
        ExportVolume::File(file) => Some(Arc::downgrade(&file.file())),
        ExportVolume::Region { .. } | ExportVolume::Upstream(_) => None,
    };
    let pin = ExportPin::default();
    let opened = OpenedExport { id, export, config: config.clone(), file, pin: ExportPin::clone(&pin) };
    (NewExport { id, volume, config: config.clone(), pin }, opened)
}

/// Opens an export's file, gives it space on the emulated device, or connects to its upstream.
fn open(
    pool: &PoolConfig,
    export: &ExportConfig,
    regions: &mut (u64, u64),
    clock: GatewayClock,
) -> Result<ExportVolume, StartError> {
    match (&pool.backend, &export.store) {
        (BackendConfig::File { direct }, ExportStore::Path(path)) => open_file(path, *direct, export)
            .map(ExportVolume::File)
            .map_err(|source| StartError::Open { export: export.name.clone(), path: path.clone(), source }),
        (BackendConfig::Emulated { .. }, ExportStore::Size(size)) => {
            let base = regions.0.next_multiple_of(REGION_ALIGNMENT);
            let end = base.checked_add(size.get()).filter(|end| *end <= regions.1);
            let Some(end) = end else {
                return Err(StartError::Space { pool: pool.name.clone(), export: export.name.clone() });
            };
            regions.0 = end;
            Ok(ExportVolume::Region { base, size: size.get() })
        }
        (BackendConfig::Nbd(config), ExportStore::Upstream(name)) => {
            // Invariant: it is the target of just these two.
            let target = awaited::target(pool, export).expect("an upstream has a target");
            let first = upstream::open(&target).map_err(|source| StartError::Upstream {
                export: export.name.clone(),
                address: config.address.clone(),
                name: name.clone(),
                source: Box::new(source),
            })?;
            Ok(upstream_volume(pool, export, first, clock))
        }
        _ => unreachable!("`validate` has matched stores with backends"),
    }
}

/// An export of an upstream that was reached.
fn upstream_volume(
    pool: &PoolConfig,
    export: &ExportConfig,
    first: UpstreamConnection,
    clock: GatewayClock,
) -> ExportVolume {
    let (BackendConfig::Nbd(config), Some(target)) = (&pool.backend, awaited::target(pool, export)) else {
        unreachable!("only an export with an upstream has a connection to it");
    };
    let (pool, export, config) = (pool.name.clone(), export.name.clone(), config.clone());
    ExportVolume::Upstream(Box::new(UpstreamExport::new(pool, export, target, config, first, clock.now())))
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
