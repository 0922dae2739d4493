//! Block devices of this host (ublk): a thread for each brings it up, and deletes it when its export goes.
//! The pool's worker carries out its requests.
//!
//! A device outlives its gateway. When the gateway ends, however that happens, the kernel lets requests wait,
//! and the next gateway takes the device over. So a device is deleted only when its export is removed from
//! the configuration, and nothing uses it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use tidegate_nbd::ExportDescription;
use tidegate_sockets::aside::PeerSocket;
use tidegate_sockets::holders;
use tidegate_ublk::{
    ControlDevice, ControlError, DeviceNumber, ExportMark, NextStep, ObstructedDevice, PropertyMismatch,
    ServedDevice, can_serve, next_step,
};
use tidegate_units::ConsumerName;
use tracing::{error, info, warn};

use super::STACK;
use crate::backend::identify;
use crate::claim;
use crate::config::{ExportConfig, GatewayConfig, PoolConfig};
use crate::device::properties;
use crate::directory::{ExportDirectory, SeatReservation};
use crate::disk::terms;
use crate::stats::RefusalReason;
use crate::worker::door::{NewSession, WorkerCommand};

/// The time in which the process that served a device before must end. Chosen: a process that was killed is
/// gone in some milliseconds, and systemd starts the next one only then.
const PREDECESSOR: Duration = Duration::from_secs(10);

/// The time between two looks at a device that is still in use.
const RECHECK: Duration = Duration::from_millis(200);

/// The time that the start of the gateway waits for a device to be there.
const START_PATIENCE: Duration = Duration::from_secs(90);

/// A device of an export cannot be had.
#[derive(Debug, Error)]
#[error("export `{export}`: cannot be {number} ({path}): {problem}", path = number.block_path())]
pub struct DeviceError {
    /// The export.
    pub export: ConsumerName,
    /// The device.
    pub number: DeviceNumber,
    /// The reason.
    pub problem: DeviceProblem,
}

/// The reasons why an export's device cannot be had.
#[derive(Debug, Error)]
pub enum DeviceProblem {
    /// The kernel refuses a command.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The device is there already, and belongs to something else.
    #[error(transparent)]
    Obstructed(#[from] ObstructedDevice),
    /// The channel of the device cannot be opened.
    #[error("{path}: {source}")]
    Channel {
        /// Its path.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Something uses the device, and the volume does not fit it any more.
    #[error("it waits with other properties than the volume has: {mismatch}; end its use ({user}) first")]
    Mismatch {
        /// The difference.
        mismatch: PropertyMismatch,
        /// The user of the device.
        user: String,
    },
    /// Something uses the device, whose requests are for another volume.
    #[error(
        "it waits with another volume than the export has now: give the export that volume back, or end its use ({0})"
    )]
    OtherVolume(String),
    /// The kernel takes no such blocks.
    #[error("the volume has blocks of more than 4,096 bytes")]
    Blocks,
    /// The pool has no place for it.
    #[error("{0}")]
    Refused(&'static str),
    /// A thread or its answer is missing.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A device that this process alone can serve now.
#[derive(Debug)]
struct ClaimedDevice {
    control: ControlDevice,
    number: DeviceNumber,
    mark: ExportMark,
    /// `None` once the worker has it.
    channel: Option<ServedDevice>,
    /// True if it was added now, and is not started.
    fresh: bool,
    /// True if it has the mark of this version, which says which volume it has.
    has_own_mark: bool,
}

impl ClaimedDevice {
    fn new(mark: ExportMark, number: DeviceNumber) -> Result<Self, DeviceProblem> {
        let mut control = ControlDevice::open()?;
        let own = std::process::id() as i32;
        let end = Instant::now() + PREDECESSOR;
        let (fresh, has_own_mark) = loop {
            let found = control.find(number)?;
            let busy = match next_step(found.as_ref(), mark, own) {
                NextStep::Add => {
                    control.add(number, mark.device_mark())?;
                    break (true, true);
                }
                NextStep::TakeOver => match control.start_recovery(number) {
                    Err(error) if error.is_busy() => error.into(),
                    started => {
                        started?;
                        break (false, found.is_some_and(|found| found.mark == mark.device_mark()));
                    }
                },
                NextStep::Replace => {
                    control.delete(number)?;
                    continue;
                }
                NextStep::ReplaceUnused => {
                    let alone = unused(number).map_err(DeviceProblem::OtherVolume)?;
                    let stopped = control.stop(number);
                    drop(alone);
                    stopped?;
                    control.delete(number)?;
                    continue;
                }
                NextStep::Wait => {
                    let process = found.map_or(0, |found| found.process);
                    ObstructedDevice::Served(process).into()
                }
                NextStep::Refuse(obstructed) => return Err(obstructed.into()),
            };
            if Instant::now() >= end {
                return Err(busy);
            }
            std::thread::sleep(RECHECK);
        };
        let mut claimed = Self { control, number, mark, channel: None, fresh, has_own_mark };
        claimed.open()?;
        Ok(claimed)
    }

    /// Returns what keeps an export from having a device now. Nothing is added or taken over.
    fn try_out(mark: ExportMark, number: DeviceNumber) -> Result<(), DeviceProblem> {
        let mut control = ControlDevice::open()?;
        let found = control.find(number)?;
        match next_step(found.as_ref(), mark, std::process::id() as i32) {
            NextStep::Add | NextStep::TakeOver | NextStep::Replace => Ok(()),
            NextStep::ReplaceUnused => unused(number).map(drop).map_err(DeviceProblem::OtherVolume),
            NextStep::Wait => Err(ObstructedDevice::Served(found.map_or(0, |found| found.process)).into()),
            NextStep::Refuse(obstructed) => Err(obstructed.into()),
        }
    }

    fn open(&mut self) -> Result<(), DeviceProblem> {
        let opened = ServedDevice::open(self.number);
        let failed = |source| DeviceProblem::Channel { path: self.number.channel_path(), source };
        self.channel = Some(opened.map_err(failed)?);
        Ok(())
    }

    /// Says which disk it is; a device that was taken over and that nothing uses becomes a new one, if it
    /// differs, or has the mark of an earlier version: a mark cannot be changed.
    fn become_disk(&mut self, export: &ExportDescription) -> Result<(), DeviceProblem> {
        let volume = properties(&export.geometry).ok_or(DeviceProblem::Blocks)?;
        if !self.fresh {
            let device = self.control.properties(self.number)?;
            if device == volume && self.has_own_mark {
                return Ok(());
            }
            match (unused(self.number), can_serve(&device, &volume)) {
                (Ok(alone), _) => self.add_anew(alone)?,
                (Err(_), Ok(())) => return Ok(()),
                (Err(user), Err(mismatch)) => return Err(DeviceProblem::Mismatch { mismatch, user }),
            }
        }
        Ok(self.control.set_properties(self.number, &volume)?)
    }

    /// `alone` keeps others from opening it until it has stopped. A device that is open cannot be deleted.
    fn add_anew(&mut self, alone: Option<OwnedFd>) -> Result<(), DeviceProblem> {
        self.channel = None;
        let stopped = self.control.stop(self.number);
        drop(alone);
        stopped?;
        self.control.delete(self.number)?;
        self.control.add(self.number, self.mark.device_mark())?;
        (self.fresh, self.has_own_mark) = (true, true);
        self.open()
    }
}

impl Drop for ClaimedDevice {
    /// A device that was added and never served leaves nothing behind.
    fn drop(&mut self) {
        if self.fresh && self.channel.take().is_some() {
            // The next start replaces what is left.
            let _ = self.control.delete(self.number);
        }
    }
}

/// The proof that nothing uses a block device, and nothing begins to: it is open for this process alone.
/// `Err` names a user.
fn unused(number: DeviceNumber) -> Result<Option<OwnedFd>, String> {
    let path = number.block_path();
    // The flag O_EXCL means for block devices that neither a mount nor another such opening has them.
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(file) => match holders::of_file(Path::new(&path)).as_slice() {
            [] => Ok(Some(file)),
            users => Err(claim::programs(users)),
        },
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(rustix::io::Errno::BUSY) => Err("a mount, LVM, md, or a target such as LIO".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// A device of an export, claimed.
#[derive(Debug)]
pub(crate) struct BoundDevice {
    export: ConsumerName,
    claimed: ClaimedDevice,
}

impl BoundDevice {
    /// The devices of a configuration, but for those that are served already.
    ///
    /// # Errors
    /// When one of them cannot be had.
    pub(crate) fn all(config: &GatewayConfig, known: &[DeviceServer]) -> Result<Vec<Self>, DeviceError> {
        let mut bound = Vec::new();
        let exports =
            config.pools.iter().flat_map(|pool| pool.exports.iter().map(move |export| (pool, export)));
        for (pool, export) in exports {
            for number in &export.devices {
                if known.iter().any(|known| known.export == export.name && known.number == *number) {
                    continue;
                }
                let claimed = export_mark(pool, export).and_then(|mark| ClaimedDevice::new(mark, *number));
                let export = export.name.clone();
                match claimed {
                    Ok(claimed) => bound.push(Self { export, claimed }),
                    Err(problem) => return Err(DeviceError { export, number: *number, problem }),
                }
            }
        }
        Ok(bound)
    }
}

/// Returns what keeps an export from having a device now.
///
/// # Errors
/// The reason, if there is one.
pub(crate) fn try_out(
    pool: &PoolConfig,
    export: &ExportConfig,
    number: DeviceNumber,
) -> Result<(), DeviceError> {
    let outcome = export_mark(pool, export).and_then(|mark| ClaimedDevice::try_out(mark, number));
    outcome.map_err(|problem| DeviceError { export: export.name.clone(), number, problem })
}

/// Returns the mark of an export's devices, with the volume that its path or address leads to now.
fn export_mark(pool: &PoolConfig, export: &ExportConfig) -> Result<ExportMark, DeviceProblem> {
    let volume = identify(&pool.backend, &export.store)?;
    Ok(ExportMark::new(export.name.as_str(), volume.stamp()))
}

/// Deletes devices that a gateway has left behind and that no export is any more, in a thread: those whose
/// export was removed while no gateway ran. One that something uses stays, and is named.
pub(crate) fn delete_left_behind(config: &GatewayConfig) {
    let exports = config.pools.iter().flat_map(|pool| &pool.exports);
    let served: Vec<DeviceNumber> = exports.flat_map(|export| export.devices.iter().copied()).collect();
    let channels = std::fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
    let numbers =
        channels.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok());
    let others: Vec<DeviceNumber> = numbers.filter(|number| !served.contains(number)).collect();
    if others.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("tg-ublk-clean".into()).stack_size(STACK);
    let cleaning = move || {
        // Without the right to, nothing is deleted, and nothing is missed.
        let Ok(mut control) = ControlDevice::open() else { return };
        for number in others {
            if let Err(problem) = delete_if_left(&mut control, number) {
                warn!("{} was left behind, and is not deleted: {problem}", number.block_path());
            }
        }
    };
    // Without a thread the next start does it.
    let _ = thread.spawn(cleaning);
}

fn delete_if_left(control: &mut ControlDevice, number: DeviceNumber) -> Result<(), String> {
    let found = control.find(number).map_err(|error| error.to_string())?;
    if !found.is_some_and(|found| found.is_left_behind()) {
        return Ok(());
    }
    // Another gateway that takes it over has its channel open.
    let Ok(channel) = ServedDevice::open(number) else { return Ok(()) };
    let alone = unused(number).map_err(|user| format!("it is in use ({user})"))?;
    let stopped = control.stop(number);
    drop((channel, alone));
    stopped.and_then(|()| control.delete(number)).map_err(|error| error.to_string())?;
    info!("{} was left behind by an export that is gone: it is deleted", number.block_path());
    Ok(())
}

/// The end of a device's service.
#[derive(Debug, Clone, Copy)]
enum ServiceEnd {
    /// The gateway ends: the device waits for the next one.
    Leave,
    /// Its export is removed.
    Remove,
}

/// The progress of a device that was just claimed.
#[derive(Debug)]
enum DeviceProgress {
    Serving,
    /// The export's upstream is not reached yet.
    Awaited,
    Failed(DeviceProblem),
}

/// The thread that brings a device up, and deletes it.
#[derive(Debug)]
pub(crate) struct DeviceServer {
    export: ConsumerName,
    number: DeviceNumber,
    /// `None` once its export is removed.
    end: Option<Sender<ServiceEnd>>,
    progress: Receiver<DeviceProgress>,
}

impl DeviceServer {
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn start(bound: BoundDevice, directory: &Arc<ExportDirectory>) -> Result<Self, DeviceError> {
        let BoundDevice { export, claimed } = bound;
        let number = claimed.number;
        let (end, ended) = channel();
        let (reports, progress) = sync_channel(2);
        let served = DeviceThread { export: export.clone(), directory: Arc::clone(directory), ended };
        let thread = std::thread::Builder::new().name("tg-ublk".into()).stack_size(STACK);
        // Never joined: a command may wait in the kernel.
        match thread.spawn(move || served.run(claimed, &reports)) {
            Ok(_) => Ok(Self { export, number, end: Some(end), progress }),
            Err(error) => Err(DeviceError { export, number, problem: error.into() }),
        }
    }

    /// Waits until the device is there, or its upstream is waited for.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(crate) fn wait(&self) -> Result<(), DeviceError> {
        let problem = match self.progress.recv_timeout(START_PATIENCE) {
            Ok(DeviceProgress::Serving | DeviceProgress::Awaited) => return Ok(()),
            Ok(DeviceProgress::Failed(problem)) => problem,
            Err(_) => io::Error::from(io::ErrorKind::TimedOut).into(),
        };
        Err(DeviceError { export: self.export.clone(), number: self.number, problem })
    }

    /// Returns true if a configuration has this device.
    pub(crate) fn is_in(&self, config: &GatewayConfig) -> bool {
        let mut exports = config.pools.iter().flat_map(|pool| &pool.exports);
        exports.any(|export| export.name == self.export && export.devices.contains(&self.number))
    }

    /// Has the device deleted, once nothing uses it.
    pub(crate) fn remove(mut self) {
        // A thread that has failed has nothing to delete.
        let _ = self.end.take().map(|end| end.send(ServiceEnd::Remove));
    }
}

impl Drop for DeviceServer {
    fn drop(&mut self) {
        // A thread that has failed has nothing to leave.
        let _ = self.end.take().map(|end| end.send(ServiceEnd::Leave));
    }
}

struct DeviceThread {
    export: ConsumerName,
    directory: Arc<ExportDirectory>,
    ended: Receiver<ServiceEnd>,
}

impl DeviceThread {
    fn run(self, mut claimed: ClaimedDevice, reports: &SyncSender<DeviceProgress>) {
        match self.bring_up(&mut claimed, reports) {
            Ok(true) => {
                info!(export = %self.export, device = claimed.number.block_path(), "the device is served");
                // The gateway may not wait for it.
                let _ = reports.try_send(DeviceProgress::Serving);
            }
            Ok(false) => return,
            Err(problem) => {
                error!(export = %self.export, device = claimed.number.block_path(), "no device: {problem}");
                let _ = reports.try_send(DeviceProgress::Failed(problem));
                return;
            }
        }
        if let Ok(ServiceEnd::Remove) = self.ended.recv() {
            self.delete(&mut claimed);
        }
    }

    /// Brings the device up. `Ok(false)`: the gateway ended, or the export was removed.
    fn bring_up(
        &self,
        claimed: &mut ClaimedDevice,
        reports: &SyncSender<DeviceProgress>,
    ) -> Result<bool, DeviceProblem> {
        let mut awaited = false;
        let (export, reserved) = loop {
            match self.directory.find_device(&self.export) {
                Ok(found) => break found,
                Err(RefusalReason::Unreached) => {
                    if !std::mem::replace(&mut awaited, true) {
                        let _ = reports.try_send(DeviceProgress::Awaited);
                    }
                }
                Err(reason) => return Err(DeviceProblem::Refused(reason.reason())),
            }
            match self.ended.recv_timeout(RECHECK) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        };
        claimed.become_disk(&export)?;
        let SeatReservation { export: id, slot, pin, .. } = reserved;
        let door = Arc::clone(slot.door());
        // Invariant: it has its channel until it is given to the worker, here.
        let Some(channel) = claimed.channel.take() else { return Ok(false) };
        let file = channel.file().try_clone();
        let file =
            file.map_err(|source| DeviceProblem::Channel { path: claimed.number.to_string(), source })?;
        let session = NewSession {
            socket: Arc::new(PeerSocket::to_this_process(file)),
            peer: claimed.number.to_string(),
            export: id,
            terms: terms(export.geometry),
            disk: None,
            device: Some(channel),
            relayed: false,
            already: Vec::new(),
            slot: Arc::new(slot),
            _pin: pin,
        };
        if !door.send(WorkerCommand::Session(Box::new(session))) {
            return Ok(false);
        }
        if claimed.fresh {
            claimed.control.start(claimed.number).inspect_err(|_| {
                // The worker gives up a device that is deleted. If that fails, the next start replaces it.
                let _ = claimed.control.delete(claimed.number);
            })?;
        } else {
            claimed.control.end_recovery(claimed.number)?;
        }
        Ok(true)
    }

    /// Deletes the device of a removed export as soon as nothing uses it. Until then it is served.
    fn delete(&self, claimed: &mut ClaimedDevice) {
        let (number, mut told) = (claimed.number, false);
        let alone = loop {
            match unused(number) {
                Ok(alone) => break alone,
                Err(user) if !std::mem::replace(&mut told, true) => {
                    let device = number.block_path();
                    warn!(
                        export = %self.export, device,
                        "the export is removed, and its device is in use ({user}): it is deleted when that \
                            ends"
                    );
                }
                Err(_) => {}
            }
            std::thread::sleep(RECHECK);
            if self.directory.is_shutting_down() {
                return;
            }
        };
        // Nothing can begin to use it before it is stopped.
        let stopped = claimed.control.stop(number);
        drop(alone);
        match stopped.and_then(|()| claimed.control.delete(number)) {
            Ok(()) => info!(export = %self.export, device = number.block_path(), "the device is deleted"),
            Err(error) => warn!(export = %self.export, "cannot delete {}: {error}", number.block_path()),
        }
    }
}
