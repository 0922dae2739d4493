//! The handle on a pool's worker: its start, its changes, questions to it, and its end.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant as WallInstant};

use rustix::thread::{Pid, gettid};
use tidegate_device::Device;
use tidegate_units::ResourceName;
use tracing::{error, info};

use super::awaited::{AwaitedExport, FirstAttempts, ReachedUpstream};
use super::errors::{GatewayError, StartError};
use super::exports::{OpenedExport, adopt, open, seated, upstream_volume};
use super::opening::OpenedVolumes;
use crate::backend::EmulatedVolume;
use crate::clock::GatewayClock;
use crate::config::{BackendConfig, PoolConfig, PoolLimits};
use crate::peers::PoolPartners;
use crate::stats::{AwaitedSnapshot, ConsumerSnapshot, PoolSnapshot};
use crate::upstream::UpstreamConnection;
use crate::worker::door::{PoolChange, SessionFate, WorkerCommand, WorkerDoor};
use crate::worker::{KERNEL_GRACE, PoolWorker, WorkerEnd, WorkerParts};

/// The time that a worker has to end after its drain's deadline and the kernel's grace.
pub(super) const END_PATIENCE: Duration = Duration::from_millis(250);

/// The handle on a pool's worker.
#[derive(Debug)]
pub(super) struct PoolHandle {
    pub(super) name: ResourceName,
    pub(super) door: Arc<WorkerDoor>,
    /// The worker's thread.
    thread: Pid,
    /// The outcome of the worker's drain, once it has ended. The thread itself is never joined:
    /// the kernel keeps it for as long as an operation of its ring hangs. `None` after it was told.
    pub(super) ended: Option<Receiver<WorkerEnd>>,
    /// The answer to a question that the worker left open.
    pub(super) unanswered: Mutex<Option<Receiver<PoolSnapshot>>>,
    /// The reason of the worker's failure, once it has failed.
    pub(super) failure: Arc<OnceLock<String>>,
    pub(super) exports: Vec<OpenedExport>,
    /// Exports whose upstream was not reached yet: the worker does not know of them.
    pub(super) awaited: Vec<AwaitedExport>,
    /// The end of the last region that was given away on an emulated device, and the device's size.
    pub(super) regions: (u64, u64),
}

/// A question to a worker.
pub(super) struct Asked {
    answer: Receiver<PoolSnapshot>,
    /// True if it was asked before, and not answered in time.
    again: bool,
}

/// A pool's new configuration, opened and checked.
pub(super) struct Prepared {
    change: PoolChange,
    limits: PoolLimits,
    exports: Vec<OpenedExport>,
    awaited: Vec<AwaitedExport>,
    regions: (u64, u64),
}

impl PoolHandle {
    pub(super) fn start(
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
                let _ = ready.send(Ok(gettid()));
                // The handle may have given up waiting.
                let _ = end.send(serve(worker, &name, &failure));
            })
        };
        spawned.map_err(worker_error)?;
        let ended_at_once = || Err(io::Error::other("its thread ended at once"));
        let thread = started.recv().unwrap_or_else(|_| ended_at_once()).map_err(worker_error)?;
        Ok(Self {
            name: config.name.clone(),
            door,
            thread,
            ended: Some(ended),
            unanswered: Mutex::default(),
            failure,
            exports: opened,
            awaited,
            regions,
        })
    }

    pub(super) fn prepare(
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

    pub(super) fn change(&mut self, prepared: Prepared) {
        self.door.configure(&prepared.limits, &seated(&prepared.exports));
        self.exports = prepared.exports;
        self.awaited = prepared.awaited;
        self.regions = prepared.regions;
        // A worker that has just failed says so at the next snapshot.
        self.door.send(WorkerCommand::Change(Box::new(prepared.change)));
    }

    pub(super) fn awaits(&self, id: u64) -> bool {
        self.awaited.iter().any(|awaited| awaited.id == id)
    }

    pub(super) fn open_awaited(
        &mut self,
        config: &PoolConfig,
        id: u64,
        first: UpstreamConnection,
        clock: GatewayClock,
    ) {
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
    pub(super) fn ask(&self) -> Asked {
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
    pub(super) fn answer(
        &self,
        asked: Asked,
        end: WallInstant,
    ) -> Result<Option<PoolSnapshot>, GatewayError> {
        let Asked { answer, again } = asked;
        let patience = if again { Duration::ZERO } else { end.saturating_duration_since(WallInstant::now()) };
        match answer.recv_timeout(patience) {
            Ok(mut snapshot) => {
                for opened in self.exports.iter().filter(|opened| opened.looks.is_replaced()) {
                    let served = |one: &&mut ConsumerSnapshot| one.name == opened.config.name && !one.removed;
                    snapshot.consumers.iter_mut().filter(served).for_each(|one| one.replaced = true);
                }
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
                    let reason = match thread_state(self.thread) {
                        Some('R') => {
                            "its worker waits for a processor, and so do the pool's clients; \
                            look at the load of this machine (`top -H`)"
                        }
                        _ => {
                            "its worker waits in the kernel, and so do the pool's clients; \
                            look for storage that hangs (`dmesg`, /proc/PID/task/*/stack)"
                        }
                    };
                    error!(pool = %self.name, "the pool does not answer: {reason}");
                }
                *self.lock_unanswered() = Some(answer);
                Ok(None)
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.failed()),
        }
    }

    fn lock_unanswered(&self) -> MutexGuard<'_, Option<Receiver<PoolSnapshot>>> {
        // It is replaced as a whole, so that a panic elsewhere leaves nothing half done.
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check(&self) -> Result<(), GatewayError> {
        if self.failure.get().is_some() { Err(self.failed()) } else { Ok(()) }
    }

    /// Waits for the worker's end. If it does not end in time: shuts down its clients' sockets and says
    /// `None`.
    pub(super) fn end(&mut self, end: WallInstant) -> Result<Option<WorkerEnd>, GatewayError> {
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

/// The state of a thread of this process, as `ps` has it: `R` if it runs or waits for a processor. `None` if
/// the kernel does not say.
pub(super) fn thread_state(thread: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero())).ok()?;
    // It follows the thread's name in parentheses, which may have any character.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
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
