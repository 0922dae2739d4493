//! The decision what to do with a device that is there already: taken over, replaced, or left alone.

use std::fmt;

use thiserror::Error;

use crate::abi::{DEPTH, DeviceProperties, FEATURES, MAX_PAYLOAD};

/// The mark of an export in its device. The kernel keeps it for the server, so that no file has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMark(u64);

impl DeviceMark {
    /// "Td", in the upper quarter of every mark.
    const MAGIC: u64 = 0x5464;

    /// "Tide", in the upper half of marks of earlier versions.
    const EARLIER_MAGIC: u64 = 0x5469_6465;

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns true if an export of some gateway made it.
    const fn is_tidegate(self) -> bool {
        self.0 >> 48 == Self::MAGIC || self.0 >> 32 == Self::EARLIER_MAGIC
    }
}

/// An export over its volume, as devices are marked for it: 32 bits of the mark are of the export's name, and
/// 16 of the volume. Marks of earlier versions say nothing of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportMark {
    name: u32,
    volume: u16,
}

/// The relation of an export to a device that was marked for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkMatch {
    Same,
    OtherVolume,
    OtherExport,
}

impl ExportMark {
    /// The mark of an export of this name over a volume that a number stands for.
    #[must_use]
    pub fn new(name: &str, volume: u64) -> Self {
        // FNV-1a: the standard library's hashes may change from one version to the next.
        let name = name
            .bytes()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let volume = volume ^ volume >> 32;
        Self { name, volume: (volume ^ volume >> 16) as u16 }
    }

    /// Returns the mark for a new device.
    #[must_use]
    pub fn device_mark(self) -> DeviceMark {
        DeviceMark(DeviceMark::MAGIC << 48 | u64::from(self.name) << 16 | u64::from(self.volume))
    }

    const fn earlier_mark(self) -> DeviceMark {
        DeviceMark(DeviceMark::EARLIER_MAGIC << 32 | self.name as u64)
    }

    fn judge(self, device: DeviceMark) -> MarkMatch {
        let own = self.device_mark();
        if device == own || device == self.earlier_mark() {
            MarkMatch::Same
        } else if device.0 >> 16 == own.0 >> 16 {
            MarkMatch::OtherVolume
        } else {
            MarkMatch::OtherExport
        }
    }
}

/// The state of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceState {
    /// Added and not started, or stopped: there is no block device.
    Dead,
    /// Served.
    Live,
    /// Its server is gone, and requests wait.
    Waiting,
    /// A state of a later kernel.
    Unknown(u16),
}

/// A device as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundDevice {
    /// Its state.
    pub state: DeviceState,
    /// The process that serves it, or did last.
    pub process: i32,
    /// The mark of the export that it was added for.
    pub mark: DeviceMark,
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) payload: u32,
    pub(crate) features: u64,
}

impl FoundDevice {
    /// Returns true if some gateway has left it, and none serves it.
    #[must_use]
    pub const fn is_left_behind(&self) -> bool {
        self.mark.is_tidegate() && matches!(self.state, DeviceState::Waiting)
    }

    /// Returns true if it has the form that this version gives to devices. Another form could not be served.
    fn has_form(&self) -> bool {
        (self.queues, self.depth, self.payload) == (1, DEPTH, MAX_PAYLOAD)
            && self.features & FEATURES == FEATURES
    }
}

/// The next step on the way to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The number is free: add the device.
    Add,
    /// Requests wait for a server: take the device over.
    TakeOver,
    /// It is a remainder: delete it, and add it.
    Replace,
    /// Requests wait for a server that has another volume: replace the device if nothing uses it.
    ReplaceUnused,
    /// Its process is about to end, or serves it on purpose: look again.
    Wait,
    /// It cannot be had.
    Refuse(ObstructedDevice),
}

/// The reasons why a device cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ObstructedDevice {
    /// Another program's.
    #[error("the device belongs to another program (process {0}): choose another number")]
    Foreign(i32),
    /// The device of another export, of this gateway or another one.
    #[error(
        "the device belongs to another export of Tidegate: choose another number, or end what uses the \
            device, and delete it"
    )]
    OtherExport,
    /// Still served by another process.
    #[error("process {0} serves the device already")]
    Served(i32),
    /// This gateway serves it for an export that was removed and is still in use.
    #[error("the removed export's device is still in use")]
    Removed,
    /// A device of another version that waits with requests.
    #[error("the device was made by another version of Tidegate in another form: unmount it, and delete it")]
    OtherForm,
}

/// Decides what to do with the device of an export's number. `found` is `None` if there is none, `own` is
/// this process.
#[must_use]
pub fn next_step(found: Option<&FoundDevice>, mark: ExportMark, own: i32) -> NextStep {
    let Some(found) = found else { return NextStep::Add };
    if !found.mark.is_tidegate() {
        return NextStep::Refuse(ObstructedDevice::Foreign(found.process));
    }
    let is_of_volume = match mark.judge(found.mark) {
        MarkMatch::OtherExport => return NextStep::Refuse(ObstructedDevice::OtherExport),
        judged => judged == MarkMatch::Same,
    };
    match found.state {
        DeviceState::Dead => NextStep::Replace,
        DeviceState::Live if found.process == own => NextStep::Refuse(ObstructedDevice::Removed),
        DeviceState::Live | DeviceState::Unknown(_) => NextStep::Wait,
        DeviceState::Waiting if !is_of_volume => NextStep::ReplaceUnused,
        DeviceState::Waiting if found.has_form() => NextStep::TakeOver,
        DeviceState::Waiting => NextStep::Refuse(ObstructedDevice::OtherForm),
    }
}

/// A difference between a device and the volume that is to serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyMismatch {
    what: &'static str,
    device: u64,
    volume: u64,
}

impl fmt::Display for PropertyMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, device, volume } = self;
        write!(f, "its {what} is {device}, the volume's is {volume}")
    }
}

/// Checks that a volume can serve a device that was made with other properties: it may have more than the
/// device promises, and not less.
///
/// # Errors
/// The first thing that it has less of.
pub fn can_serve(device: &DeviceProperties, volume: &DeviceProperties) -> Result<(), PropertyMismatch> {
    let differs = |what, device: u64, volume: u64| Err(PropertyMismatch { what, device, volume });
    if device.size > volume.size {
        return differs("size", device.size, volume.size);
    }
    if device.block < volume.block {
        return differs("block size", device.block.into(), volume.block.into());
    }
    if device.payload > volume.payload {
        return differs("greatest request", device.payload.into(), volume.payload.into());
    }
    // A device without a cache is never flushed, and one with a cache expects that it can be.
    for (what, of_device, of_volume, may_differ) in [
        ("write cache", device.cache, volume.cache, false),
        ("right to write", !device.read_only, !volume.read_only, device.read_only),
        ("discard", device.discard, volume.discard, !device.discard),
        ("zeroing", device.zeroes, volume.zeroes, !device.zeroes),
    ] {
        if of_device != of_volume && !may_differ {
            return differs(what, of_device.into(), of_volume.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: i32 = 100;
    const VOLUME: u64 = 0x1234_5678_9abc_def0;

    fn found(state: DeviceState) -> FoundDevice {
        FoundDevice {
            state,
            process: 7,
            mark: ExportMark::new("database", VOLUME).device_mark(),
            queues: 1,
            depth: DEPTH,
            payload: MAX_PAYLOAD,
            features: FEATURES,
        }
    }

    fn step(found: FoundDevice) -> NextStep {
        next_step(Some(&found), ExportMark::new("database", VOLUME), OWN)
    }

    #[test]
    fn a_device_is_taken_over_only_if_it_is_the_exports_and_waits() {
        let mark = ExportMark::new("database", VOLUME);
        assert_eq!(next_step(None, mark, OWN), NextStep::Add);
        assert_eq!(step(found(DeviceState::Waiting)), NextStep::TakeOver);
        assert_eq!(step(found(DeviceState::Dead)), NextStep::Replace);
        // A process that was killed serves for some milliseconds more.
        assert_eq!(step(found(DeviceState::Live)), NextStep::Wait);
        assert_eq!(step(found(DeviceState::Unknown(9))), NextStep::Wait);
        let own = FoundDevice { process: OWN, ..found(DeviceState::Live) };
        assert_eq!(step(own), NextStep::Refuse(ObstructedDevice::Removed));
        for state in [DeviceState::Dead, DeviceState::Live, DeviceState::Waiting] {
            let foreign = FoundDevice { mark: DeviceMark::from_bits(0), ..found(state) };
            assert_eq!(step(foreign), NextStep::Refuse(ObstructedDevice::Foreign(7)), "{state:?}");
            let other = FoundDevice { mark: ExportMark::new("backup", VOLUME).device_mark(), ..found(state) };
            assert_eq!(step(other), NextStep::Refuse(ObstructedDevice::OtherExport), "{state:?}");
        }
        assert!(found(DeviceState::Waiting).is_left_behind() && !found(DeviceState::Live).is_left_behind());
        assert!(
            !FoundDevice { mark: DeviceMark::from_bits(0), ..found(DeviceState::Waiting) }.is_left_behind()
        );
        let other_form = FoundDevice { depth: DEPTH / 2, ..found(DeviceState::Waiting) };
        assert_eq!(step(other_form), NextStep::Refuse(ObstructedDevice::OtherForm));
    }

    #[test]
    fn a_mark_stays_the_same_over_versions() {
        assert_eq!(ExportMark::new("a", 7).device_mark().bits(), 0x5464_e40c_292c_0007);
        assert_eq!(ExportMark::new("", 0x1_0000_0001).device_mark().bits(), 0x5464_811c_9dc5_0000);
    }

    #[test]
    fn a_device_that_waits_is_taken_over_only_with_its_volume() {
        let other = ExportMark::new("database", VOLUME + 1);
        let waits = found(DeviceState::Waiting);
        assert_eq!(next_step(Some(&waits), other, OWN), NextStep::ReplaceUnused);
        assert_eq!(next_step(Some(&found(DeviceState::Live)), other, OWN), NextStep::Wait);
        // A device of an earlier version does not say which volume it had.
        let earlier = DeviceMark::from_bits(0x5469_6465_e40c_292c);
        let of_earlier = FoundDevice { mark: earlier, ..waits };
        assert_eq!(next_step(Some(&of_earlier), ExportMark::new("a", VOLUME), OWN), NextStep::TakeOver);
    }

    /// By 16 bits of their names these would be the same export.
    #[test]
    fn exports_whose_names_are_alike_in_part_have_marks_of_their_own() {
        let mut names: Vec<(u64, String)> = (0..2000)
            .map(|number| format!("export{number}"))
            .map(|name| (ExportMark::new(&name, 0).device_mark().bits() >> 32, name))
            .collect();
        names.sort();
        let [(one, first), (other, second)] = names.windows(2).find(|pair| pair[0].0 == pair[1].0).unwrap()
        else {
            unreachable!("a window of two");
        };
        assert_eq!(one, other);
        let waits =
            FoundDevice { mark: ExportMark::new(first, VOLUME).device_mark(), ..found(DeviceState::Waiting) };
        for volume in [VOLUME, VOLUME + 1] {
            let step = next_step(Some(&waits), ExportMark::new(second, volume), OWN);
            assert_eq!(step, NextStep::Refuse(ObstructedDevice::OtherExport));
        }
    }

    #[test]
    fn a_volume_may_have_more_than_the_device_promises_and_not_less() {
        let device = DeviceProperties {
            size: 1 << 20,
            block: 4096,
            physical_block: 4096,
            payload: 1 << 20,
            read_only: false,
            cache: true,
            discard: true,
            zeroes: true,
        };
        assert_eq!(can_serve(&device, &device), Ok(()));
        let larger = DeviceProperties { size: 2 << 20, block: 512, ..device };
        assert_eq!(can_serve(&device, &larger), Ok(()));
        let modest = DeviceProperties { discard: false, zeroes: false, read_only: true, ..device };
        assert_eq!(can_serve(&modest, &device), Ok(()));
        for less in [
            DeviceProperties { size: 1 << 19, ..device },
            DeviceProperties { block: 8192, ..device },
            DeviceProperties { payload: 1 << 16, ..device },
            DeviceProperties { cache: false, ..device },
            DeviceProperties { read_only: true, ..device },
            DeviceProperties { discard: false, ..device },
            DeviceProperties { zeroes: false, ..device },
        ] {
            assert!(can_serve(&device, &less).is_err(), "{less:?}");
        }
        let without_cache = DeviceProperties { cache: false, ..device };
        assert!(can_serve(&without_cache, &device).is_err(), "nothing would ever be flushed");
    }
}
