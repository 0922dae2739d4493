//! The handle on a running gateway.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;
use tidegate_device::Device;
use tidegate_nbd::{Export, ExportName};
use tidegate_units::{ConsumerName, ResourceName};
use tracing::{debug, error};

use crate::backend::{Emulated, FileVolume, Volume};
use crate::clock::Clock;
use crate::config::{
    BackendConfig, ConfigError, Endpoint, ExportConfig, ExportStore, GatewayConfig, PoolConfig,
};
use crate::directory::{Directory, Door, Entry, Pin};
use crate::listener::{Bound, Handshakes, Listener};
use crate::peers::Peers;
use crate::stats::{GatewaySnapshot, PoolSnapshot};
use crate::upstream::{self, Target, Upstream, UpstreamError};
use crate::worker::{Command, NewExport, Parts, PoolChange, Worker};

/// Exports of an emulated device begin at multiples of this, so that stripes and zones do not cut across them.
const REGION_ALIGNMENT: u64 = 1 << 20;

/// A running gateway. Dropping it ends the service at once; [`drain`](Self::drain) ends it in order.
#[derive(Debug)]
pub struct Gateway {
    config: GatewayConfig,
    clock: Clock,
    directory: Arc<Directory>,
    handshakes: Arc<Handshakes>,
    addresses: Vec<Endpoint>,
    /// Before the pools: nobody new comes in while they end.
    listeners: Vec<Listener>,
    pools: Vec<Pool>,
    next_export: u64,
}

/// The handle on a pool's worker.
#[derive(Debug)]
struct Pool {
    name: ResourceName,
    door: Arc<Door>,
    thread: Option<JoinHandle<usize>>,
    /// Why the worker failed, once it has.
    failure: Arc<OnceLock<String>>,
    exports: Vec<Opened>,
    /// The end of the last region that was given away on an emulated device, and the device's size.
    regions: (u64, u64),
}

/// An export that is served.
#[derive(Debug)]
struct Opened {
    id: u64,
    export: Export,
    config: ExportConfig,
    pin: Pin,
}

/// Why a gateway did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An endpoint cannot be listened on.
    #[error("cannot listen on {endpoint}: {source}")]
    Listen {
        /// The endpoint.
        endpoint: Endpoint,
        /// The system's answer.
        source: io::Error,
    },
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
        address: Endpoint,
        /// The name of its export there.
        name: ExportName,
        /// What is wrong.
        source: UpstreamError,
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
        /// What is wrong.
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

/// Why a new configuration was not applied. Nothing of it was.
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

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Sessions that were cut off at the deadline with requests unanswered.
    pub cut_off: usize,
}

impl Gateway {
    /// Starts to serve: opens every export, binds every endpoint, starts one worker per pool.
    ///
    /// # Errors
    /// When anything of it fails; nothing is left running.
    pub fn start(config: GatewayConfig) -> Result<Self, StartError> {
        Self::start_among(config, |_| None)
    }

    /// Like [`start`](Self::start), where other hosts share resources: the law of a pool that has [`Peers`] steers by
    /// what all of them measure. A pool keeps its peers, or their absence, for as long as the gateway runs.
    ///
    /// # Errors
    /// When anything of it fails; nothing is left running.
    pub fn start_among(
        config: GatewayConfig,
        peers: impl Fn(&ResourceName) -> Option<Arc<dyn Peers>>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        let bind = |endpoint: &Endpoint| {
            Bound::new(endpoint).map_err(|source| StartError::Listen { endpoint: endpoint.clone(), source })
        };
        let bound: Vec<Bound> = config.listen.iter().map(bind).collect::<Result<_, _>>()?;
        let mut gateway = Self {
            clock: Clock::start(),
            directory: Arc::default(),
            handshakes: Arc::default(),
            addresses: bound.iter().map(|bound| bound.endpoint().clone()).collect(),
            listeners: Vec::new(),
            pools: Vec::new(),
            next_export: 0,
            config,
        };
        for pool in &gateway.config.pools {
            gateway.pools.push(Pool::start(
                pool,
                peers(&pool.name),
                gateway.clock,
                &mut gateway.next_export,
            )?);
        }
        gateway.publish();
        for bound in bound {
            let endpoint = bound.endpoint().clone();
            let (directory, handshakes) = (Arc::clone(&gateway.directory), Arc::clone(&gateway.handshakes));
            let listener = Listener::start(bound, directory, handshakes, gateway.config.handshake.clone())
                .map_err(|source| StartError::Listen { endpoint, source })?;
            gateway.listeners.push(listener);
        }
        debug!(endpoints = ?gateway.addresses, "serving");
        Ok(gateway)
    }

    /// Where clients can connect, in the order of the configuration; TCP ports are the real ones.
    #[must_use]
    pub fn addresses(&self) -> Vec<Endpoint> {
        self.addresses.clone()
    }

    /// Changes shares, limits, contracts, laws, depths, protected flags, and adds or removes exports, without touching a
    /// connection. A changed contract is in force with the law's next step. A removed export takes no new sessions; those it has go on until they end. On an emulated device
    /// a new export gets new space; that of removed ones is given away again after a restart.
    ///
    /// # Errors
    /// When the configuration is invalid, or differs in something that needs a restart; nothing is applied then.
    pub fn apply(&mut self, config: GatewayConfig) -> Result<(), ApplyError> {
        config.validate().map_err(StartError::from)?;
        let fixed = needs_restart(&self.config, &config);
        if !fixed.is_empty() {
            return Err(ApplyError::NeedsRestart(fixed));
        }
        let mut next_export = self.next_export;
        let prepared: Vec<Prepared> = self
            .pools
            .iter()
            .zip(&config.pools)
            .map(|(pool, config)| pool.prepare(config, &mut next_export, self.clock))
            .collect::<Result<_, _>>()?;
        for pool in &self.pools {
            pool.check()?;
        }
        // From here on nothing fails.
        self.next_export = next_export;
        for (pool, prepared) in self.pools.iter_mut().zip(prepared) {
            pool.change(prepared);
        }
        self.config = config;
        self.publish();
        Ok(())
    }

    /// The state of every pool.
    ///
    /// # Errors
    /// When a pool's worker has failed.
    pub fn snapshot(&self) -> Result<GatewaySnapshot, GatewayError> {
        let (handshakes, handshakes_ended) = self.handshakes.counts();
        let pools = self.pools.iter().map(Pool::snapshot).collect::<Result<_, _>>()?;
        Ok(GatewaySnapshot { pools, handshakes, handshakes_ended })
    }

    /// Ends in order: accepts nothing more, answers what was received, refuses further requests with ESHUTDOWN,
    /// closes. What is still unanswered after `deadline` is cut off.
    ///
    /// # Errors
    /// When a pool's worker has failed.
    pub fn drain(mut self, deadline: Duration) -> Result<DrainReport, GatewayError> {
        debug!("draining");
        self.end(deadline)
    }

    fn end(&mut self, deadline: Duration) -> Result<DrainReport, GatewayError> {
        self.directory.shut_down();
        self.listeners.clear();
        let deadline = self.clock.now() + deadline;
        for pool in &self.pools {
            pool.door.send(Command::Drain(deadline));
        }
        // All are waited for, whatever becomes of one.
        let ended: Vec<Result<usize, GatewayError>> = self.pools.iter_mut().map(Pool::join).collect();
        self.pools.clear();
        let cut_off = ended.into_iter().sum::<Result<usize, GatewayError>>()?;
        Ok(DrainReport { cut_off })
    }

    /// Tells handshakes what there is.
    fn publish(&self) {
        let entries = self.pools.iter().flat_map(|pool| {
            pool.exports.iter().map(|opened| Entry {
                // Invariant: a consumer's name is shorter than what the protocol allows, and without control characters.
                name: ExportName::new(opened.config.name.as_str())
                    .expect("a consumer's name is an export name"),
                export: opened.export.clone(),
                id: opened.id,
                door: Arc::clone(&pool.door),
                pin: Pin::clone(&opened.pin),
            })
        });
        self.directory.set(entries.collect());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(failure) = self.end(Duration::ZERO) {
            error!("{failure}");
        }
    }
}

/// A pool's new configuration, opened and checked.
struct Prepared {
    change: PoolChange,
    sessions: usize,
    exports: Vec<Opened>,
    regions: (u64, u64),
}

impl Pool {
    fn start(
        config: &PoolConfig,
        peers: Option<Arc<dyn Peers>>,
        clock: Clock,
        next_export: &mut u64,
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
                let emulated = Emulated::new(device, data).map_err(|source| StartError::Device {
                    pool: config.name.clone(),
                    source: Box::new(source),
                })?;
                (Some(Box::new(emulated)), regions)
            }
        };
        let mut exports = Vec::new();
        let mut opened = Vec::new();
        for export in &config.exports {
            let volume = open(config, export, &mut regions, clock)?;
            let (new, described) = adopt(*next_export, volume, export);
            opened.push(described);
            exports.push(new);
            *next_export += 1;
        }

        let (sender, commands): (Sender<Command>, _) = channel();
        let door = Arc::new(Door::new(sender, config.limits.sessions).map_err(worker_error)?);
        let failure: Arc<OnceLock<String>> = Arc::default();
        let (ready, started) = sync_channel(1);
        let thread = {
            let (failure, name) = (Arc::clone(&failure), config.name.clone());
            let parts = Parts {
                config: config.clone(),
                peers,
                clock,
                door: Arc::clone(&door),
                commands,
                emulated,
                exports,
            };
            std::thread::Builder::new().name(format!("tg-{name}")).spawn(move || {
                let worker = match Worker::new(parts) {
                    Ok(worker) => worker,
                    Err(error) => {
                        // Whoever starts a pool waits for this.
                        let _ = ready.send(Err(error));
                        return 0;
                    }
                };
                let _ = ready.send(Ok(()));
                serve(worker, &name, &failure)
            })
        };
        let thread = Some(thread.map_err(worker_error)?);
        let pool = Self { name: config.name.clone(), door, thread, failure, exports: opened, regions };
        let ended = || Err(io::Error::other("its thread ended at once"));
        started.recv().unwrap_or_else(|_| ended()).map_err(worker_error)?;
        Ok(pool)
    }

    fn prepare(
        &self,
        config: &PoolConfig,
        next_export: &mut u64,
        clock: Clock,
    ) -> Result<Prepared, StartError> {
        let mut regions = self.regions;
        let (mut changed, mut added, mut exports) = (Vec::new(), Vec::new(), Vec::new());
        for export in &config.exports {
            if let Some(old) = self.exports.iter().find(|old| old.config.name == export.name) {
                changed.push((old.id, export.clone()));
                let description = export.description.clone().unwrap_or_default();
                let described = Export { description, ..old.export.clone() };
                exports.push(Opened {
                    id: old.id,
                    export: described,
                    config: export.clone(),
                    pin: Pin::clone(&old.pin),
                });
            } else {
                let volume = open(config, export, &mut regions, clock)?;
                let (new, described) = adopt(*next_export, volume, export);
                exports.push(described);
                added.push(new);
                *next_export += 1;
            }
        }
        let gone = |old: &&Opened| config.exports.iter().all(|export| export.name != old.config.name);
        let removed = self.exports.iter().filter(gone).map(|old| old.id).collect();
        let change = PoolChange {
            depth: config.depth,
            law: config.law.clone(),
            release: config.release,
            limits: config.limits.clone(),
            changed,
            added,
            removed,
        };
        Ok(Prepared { change, sessions: config.limits.sessions, exports, regions })
    }

    fn change(&mut self, prepared: Prepared) {
        self.door.set_session_limit(prepared.sessions);
        self.exports = prepared.exports;
        self.regions = prepared.regions;
        // A worker that has just failed says so at the next snapshot.
        self.door.send(Command::Change(Box::new(prepared.change)));
    }

    fn snapshot(&self) -> Result<PoolSnapshot, GatewayError> {
        let (reply, answer) = sync_channel(1);
        self.door.send(Command::Snapshot(reply));
        answer.recv().map_err(|_| self.failed())
    }

    fn check(&self) -> Result<(), GatewayError> {
        if self.failure.get().is_some() { Err(self.failed()) } else { Ok(()) }
    }

    fn join(&mut self) -> Result<usize, GatewayError> {
        let cut_off = self.thread.take().map_or(Ok(0), JoinHandle::join).map_err(|_| self.failed())?;
        self.check().map(|()| cut_off)
    }

    fn failed(&self) -> GatewayError {
        let message = self.failure.get().cloned().unwrap_or_else(|| "it ended".into());
        GatewayError::WorkerFailed { pool: self.name.clone(), message }
    }
}

impl Drop for Pool {
    /// Ends a worker that nobody has ended in order, as when a later step of the start fails.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.door.send(Command::Drain(tidegate_units::Instant::ZERO));
            // A failure was logged where it happened.
            let _ = self.join();
        }
    }
}

/// Runs a worker to its end, whatever that is: says how many sessions it cut off.
fn serve(mut worker: Worker, pool: &ResourceName, failure: &OnceLock<String>) -> usize {
    let reason = match catch_unwind(AssertUnwindSafe(|| worker.run())) {
        Ok(Ok(cut_off)) => return cut_off,
        Ok(Err(error)) => format!("io_uring: {error}"),
        Err(panic) => message_of(&*panic),
    };
    error!(pool = %pool, "the pool's worker failed, its clients are disconnected: {reason}");
    // Nobody else sets it; and it is there before anybody is told that the worker is not.
    let _ = failure.set(reason);
    worker.hang_up();
    // What the worker holds may be inconsistent, and the kernel may still use its memory.
    std::mem::forget(worker);
    0
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".into())
}

/// An opened export's two halves: the worker's and the handle's.
fn adopt(id: u64, volume: Volume, config: &ExportConfig) -> (NewExport, Opened) {
    let export = Export {
        geometry: volume.geometry(config.read_only),
        description: config.description.clone().unwrap_or_default(),
    };
    let pin = Pin::default();
    let opened = Opened { id, export, config: config.clone(), pin: Pin::clone(&pin) };
    (NewExport { id, volume, config: config.clone(), pin }, opened)
}

/// Opens an export's file, gives it space on the emulated device, or connects to its upstream.
fn open(
    pool: &PoolConfig,
    export: &ExportConfig,
    regions: &mut (u64, u64),
    clock: Clock,
) -> Result<Volume, StartError> {
    match (&pool.backend, &export.store) {
        (BackendConfig::File { direct }, ExportStore::Path(path)) => {
            FileVolume::open(path, *direct, export.read_only).map(Volume::File).map_err(|source| {
                StartError::Open { export: export.name.clone(), path: path.clone(), source }
            })
        }
        (BackendConfig::Emulated { .. }, ExportStore::Size(size)) => {
            let base = regions.0.next_multiple_of(REGION_ALIGNMENT);
            let end = base.checked_add(size.get()).filter(|end| *end <= regions.1);
            let Some(end) = end else {
                return Err(StartError::Space { pool: pool.name.clone(), export: export.name.clone() });
            };
            regions.0 = end;
            Ok(Volume::Region { base, size: size.get() })
        }
        (BackendConfig::Nbd(config), ExportStore::Upstream(name)) => {
            let target = Target { address: config.address.clone(), export: name.clone() };
            let first = upstream::open(&target).map_err(|source| StartError::Upstream {
                export: export.name.clone(),
                address: target.address.clone(),
                name: name.clone(),
                source,
            })?;
            let (pool, export, config) = (pool.name.clone(), export.name.clone(), config.clone());
            Ok(Volume::Upstream(Box::new(Upstream::new(pool, export, target, config, first, clock.now()))))
        }
        _ => unreachable!("`validate` has matched stores with backends"),
    }
}

/// What differs and cannot be changed under running clients.
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
        for export in &new.exports {
            let Some(before) = old.exports.iter().find(|before| before.name == export.name) else { continue };
            if before.store != export.store {
                fixed.push(format!("export `{}`: the path, size or upstream", export.name));
            }
            if before.read_only != export.read_only {
                fixed.push(format!("export `{}`: read-only", export.name));
            }
        }
    }
    fixed
}

#[cfg(test)]
mod tests;
