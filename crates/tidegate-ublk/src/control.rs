//! Commands to the control device. Each waits until the kernel has done it.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::abi::{
    ControlOperation, DEVICE_INFORMATION, DeviceNumber, DeviceProperties, FEATURES, PARAMETERS,
    control_command, device_information, field,
};
use crate::recovery::{DeviceMark, DeviceState, FoundDevice};

const PATH: &str = "/dev/ublk-control";

/// The time that a command may take before it is given up. Chosen: the longest waits are those for a
/// device's queue to become quiet, which takes as long as its requests.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reasons why the kernel does not carry a command out.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The module is not there.
    #[error(
        "{PATH} does not exist: load the kernel module ublk_drv (`modprobe ublk_drv`, Linux 6.5 or later)"
    )]
    NoModule,
    /// The process lacks a right.
    #[error(
        "no permission for {PATH}: the gateway needs CAP_SYS_ADMIN and access to the devices of ublk: {0}"
    )]
    Permission(io::Error),
    /// The kernel lacks an ability.
    #[error("this kernel's ublk lacks recovery or copies by the server: Linux 6.5 or later is needed")]
    OldKernel,
    /// It answered too late.
    #[error("the kernel did not carry out {0:?} within {time} s", time = PATIENCE.as_secs())]
    Late(&'static str),
    /// Another answer.
    #[error("{what}: {source}")]
    Failed {
        /// The command.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl ControlError {
    fn of(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::Permission(source),
            _ => Self::Failed { what, source },
        }
    }

    /// Returns whether the answer was this error number.
    fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Failed { source, .. } if source.raw_os_error() == Some(errno.raw_os_error()))
    }

    /// Returns true if another process was faster.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is(Errno::BUSY)
    }
}

/// The memory that a command reads and writes.
enum Payload<'a> {
    Nothing,
    /// A number in the command itself.
    Number(u64),
    Memory(&'a mut [u8]),
    /// Memory that begins with the path of the channel.
    WithPath(&'a mut [u8], usize),
}

/// The control device of ublk, with a ring of its own.
pub struct ControlDevice {
    file: OwnedFd,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl std::fmt::Debug for ControlDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlDevice").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ControlDevice {
    /// Opens the control device.
    ///
    /// # Errors
    /// When the module is not loaded, the process lacks a right, or the kernel is too old.
    pub fn open() -> Result<Self, ControlError> {
        let file = match rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return Err(ControlError::NoModule),
            Err(error) => return Err(ControlError::of("open", error.into())),
        };
        let ring = IoUring::builder().build(1);
        let ring = ring.map_err(|source| ControlError::Failed { what: "io_uring", source })?;
        let mut control = Self { file, ring };
        let mut features = [0; 8];
        let asked =
            control.command("get features", ControlOperation::GetFeatures, 0, Payload::Memory(&mut features));
        match asked {
            Ok(()) if u64::from_ne_bytes(features) & FEATURES == FEATURES => Ok(control),
            Ok(()) => Err(ControlError::OldKernel),
            Err(error) if error.is(Errno::OPNOTSUPP) || error.is(Errno::NODEV) => {
                Err(ControlError::OldKernel)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the device of a number, or `None` if the number is free.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn find(&mut self, number: DeviceNumber) -> Result<Option<FoundDevice>, ControlError> {
        let path = number.channel_path();
        let mut memory = path.clone().into_bytes();
        memory.resize(path.len() + DEVICE_INFORMATION, 0);
        let payload = Payload::WithPath(&mut memory, path.len());
        match self.command("get device", ControlOperation::GetInformation, number.get(), payload) {
            Ok(()) => Ok(Some(found(&memory[path.len()..]))),
            Err(error) if error.is(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds a device, which is not started.
    ///
    /// # Errors
    /// When the number is taken, or the kernel refuses.
    pub fn add(&mut self, number: DeviceNumber, mark: DeviceMark) -> Result<(), ControlError> {
        let mut information = device_information(number.get(), FEATURES, mark.bits());
        self.command("add", ControlOperation::Add, number.get(), Payload::Memory(&mut information))
    }

    /// Says which disk a device is to be. It can be said only before it is started.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_properties(
        &mut self,
        number: DeviceNumber,
        properties: &DeviceProperties,
    ) -> Result<(), ControlError> {
        let mut parameters = properties.encode();
        let payload = Payload::Memory(&mut parameters);
        self.command("set parameters", ControlOperation::SetParameters, number.get(), payload)
    }

    /// Returns the disk that a device is.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn properties(&mut self, number: DeviceNumber) -> Result<DeviceProperties, ControlError> {
        let mut parameters = [0; PARAMETERS];
        parameters[..4].copy_from_slice(&(PARAMETERS as u32).to_ne_bytes());
        let payload = Payload::Memory(&mut parameters);
        self.command("get parameters", ControlOperation::GetParameters, number.get(), payload)?;
        Ok(DeviceProperties::decode(&parameters))
    }

    /// Starts a device, once the thread that serves it has fetched all tags. It waits for that, and for the
    /// kernel to read the table of partitions.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&mut self, number: DeviceNumber) -> Result<(), ControlError> {
        self.command("start", ControlOperation::Start, number.get(), Payload::Number(own_process()))
    }

    /// Begins to take over a device whose server is gone.
    ///
    /// # Errors
    /// When its process has not ended completely ([`ControlError::is_busy`]), or the kernel refuses.
    pub fn start_recovery(&mut self, number: DeviceNumber) -> Result<(), ControlError> {
        let started =
            self.command("start recovery", ControlOperation::StartRecovery, number.get(), Payload::Nothing);
        match started {
            // Another process had begun to, and died before it fetched: that has become its beginning.
            Err(error) if error.is(Errno::INVAL) => Ok(()),
            started => started,
        }
    }

    /// Ends the taking over, once the thread that serves the device has fetched all tags. Requests that
    /// waited come then.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn end_recovery(&mut self, number: DeviceNumber) -> Result<(), ControlError> {
        let payload = Payload::Number(own_process());
        self.command("end recovery", ControlOperation::EndRecovery, number.get(), payload)
    }

    /// Removes the block device of a device. Requests that wait fail.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&mut self, number: DeviceNumber) -> Result<(), ControlError> {
        self.command("stop", ControlOperation::Stop, number.get(), Payload::Nothing)
    }

    /// Deletes a device, and waits until its channel is closed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn delete(&mut self, number: DeviceNumber) -> Result<(), ControlError> {
        self.command("delete", ControlOperation::Delete, number.get(), Payload::Nothing)
    }

    fn command(
        &mut self,
        what: &'static str,
        operation: ControlOperation,
        device: u32,
        payload: Payload<'_>,
    ) -> Result<(), ControlError> {
        // A copy, which stays behind if the kernel does not give it back.
        let (memory, data, path_length) = match &payload {
            Payload::Nothing => (Vec::new(), 0, 0),
            Payload::Number(number) => (Vec::new(), *number, 0),
            Payload::Memory(memory) => (memory.to_vec(), 0, 0),
            Payload::WithPath(memory, path) => (memory.to_vec(), 0, *path as u16),
        };
        let mut memory = memory.into_boxed_slice();
        let address = if memory.is_empty() { 0 } else { memory.as_mut_ptr().expose_provenance() as u64 };
        let argument = control_command(device, address, memory.len() as u16, data, path_length);
        let entry =
            opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), operation.code()).cmd(argument).build();
        let failed = |source| ControlError::of(what, source);
        // SAFETY: the kernel reads and writes `memory`, which is as long as the command says. It is given
        // back or leaked below, never freed before the command has completed.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // Invariant: each command before this one was completed, or its ring was closed.
        pushed.map_err(|_| failed(io::Error::other("a command before it did not end")))?;
        let end = Instant::now() + PATIENCE;
        let result = loop {
            if let Some(completed) = self.ring.completion().next() {
                break completed.result();
            }
            let left = Timespec::from(end.saturating_duration_since(Instant::now()));
            match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&left)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if Instant::now() < end => {}
                Err(error) => {
                    // The kernel may still write to it.
                    std::mem::forget(memory);
                    // A ring without the command that hangs. It is cancelled with the old one.
                    self.ring = IoUring::builder().build(1).map_err(failed)?;
                    return Err(if Instant::now() < end { failed(error) } else { ControlError::Late(what) });
                }
            }
        };
        if result < 0 {
            return Err(failed(io::Error::from_raw_os_error(-result)));
        }
        if let Payload::Memory(given) | Payload::WithPath(given, _) = payload {
            given.copy_from_slice(&memory);
        }
        Ok(())
    }
}

fn own_process() -> u64 {
    u64::from(std::process::id())
}

fn found(information: &[u8]) -> FoundDevice {
    let u16_at = |start| u16::from_ne_bytes(field(information, start));
    let state = match u16_at(4) {
        0 => DeviceState::Dead,
        1 => DeviceState::Live,
        2 => DeviceState::Waiting,
        other => DeviceState::Unknown(other),
    };
    FoundDevice {
        state,
        process: i32::from_ne_bytes(field(information, 16)),
        mark: DeviceMark::from_bits(u64::from_ne_bytes(field(information, 32))),
        queues: u16_at(0),
        depth: u16_at(2),
        payload: u32::from_ne_bytes(field(information, 8)),
        features: u64::from_ne_bytes(field(information, 24)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_module_says_so() {
        if std::path::Path::new(PATH).exists() {
            return;
        }
        let error = ControlDevice::open().expect_err("there is no control device");
        assert!(error.to_string().contains("modprobe ublk_drv"), "{error}");
    }
}
