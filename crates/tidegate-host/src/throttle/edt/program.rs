//! The program in the kernel, and its maps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, MapInfo};
use aya::programs::{ProgramError, ProgramInfo, SchedClassifier, loaded_programs};
use tidegate_ebpf::edt::{self, AddressKey, EdtSettings, PayloadStart, key};
use tidegate_units::Latency;

use super::super::DelayedPackets;
use super::super::protocol::PROTOCOLS;
use crate::ebpf::{failed, lacks, not_loaded, take};

/// Loaded, and attached nowhere yet. Gone with its last filter and the process that loaded it: nothing of it
/// is in any file system.
pub(super) struct EdtProgram {
    loaded: Ebpf,
    id: u32,
    held: HashMap<MapData, AddressKey, u32>,
    last: HashMap<MapData, AddressKey, u64>,
    delays: Array<MapData, u64>,
}

impl fmt::Debug for EdtProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdtProgram").field("id", &self.id).finish_non_exhaustive()
    }
}

impl EdtProgram {
    /// Loads it, for packets of this kind from these ports to go to this class. There are no members yet.
    ///
    /// # Errors
    /// When the kernel refuses: without CAP_BPF and CAP_NET_ADMIN, or because it is too old.
    pub(super) fn load(packets: DelayedPackets, ports: &BTreeSet<u16>, class: u32) -> io::Result<Self> {
        let packets = match packets {
            DelayedPackets::All => edt::PacketKinds::All,
            DelayedPackets::Acks => edt::PacketKinds::Acks,
            DelayedPackets::Responses => edt::PacketKinds::Responses,
        };
        let mut loaded = Ebpf::load(edt::OBJECT).map_err(|error| failed("its maps", &error))?;
        let mut settings: Array<_, EdtSettings> = take(&mut loaded, edt::SETTINGS)?;
        settings
            .set(0, edt::settings(packets, class, &beginnings(ports)), 0)
            .map_err(|error| failed(edt::SETTINGS, &error))?;
        let held = take(&mut loaded, edt::HELD)?;
        let last = take(&mut loaded, edt::LAST)?;
        let delays = take(&mut loaded, edt::DELAYS)?;
        let classifier = classifier(&mut loaded)?;
        classifier.load().map_err(|error| not_loaded(edt::PROGRAM, error))?;
        let id = classifier.info().map_err(|error| failed(edt::PROGRAM, &error))?.id();
        Ok(Self { loaded, id, held, last, delays })
    }

    /// The kernel's number of it.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// To attach it by.
    pub(super) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        let program = self.loaded.program(edt::PROGRAM);
        let fd = program.ok_or_else(|| lacks(edt::PROGRAM))?.fd();
        fd.map(AsFd::as_fd).map_err(|error| failed(edt::PROGRAM, &error))
    }

    /// To be run on packets that are made up.
    #[cfg(test)]
    pub(super) fn classifier(&self) -> &SchedClassifier {
        self.loaded.program(edt::PROGRAM).unwrap().try_into().unwrap()
    }

    /// The delay of a slot, read back.
    pub(super) fn set_delay(&mut self, slot: u32, delay: Latency) -> io::Result<()> {
        let nanos = u64::try_from(delay.to_duration().as_nanos()).unwrap_or(u64::MAX);
        let refused = |error| failed(edt::DELAYS, &error);
        self.delays.set(slot, nanos, 0).map_err(refused)?;
        same(edt::DELAYS, self.delays.get(&slot, 0).map_err(refused)?, nanos)
    }

    /// Makes an address a member with the delay of a slot, or gives it that of another; read back.
    pub(super) fn put(&mut self, address: IpAddr, slot: u32) -> io::Result<()> {
        /// The flag to insert only if absent: the departure time that is there already keeps packets in
        /// order.
        const NEW_ONLY: u64 = 1;
        let key = key(address);
        match self.last.insert(key, 0, NEW_ONLY) {
            Ok(()) => {}
            Err(error) if is_there(&error) => {}
            Err(error) => return Err(failed(edt::LAST, &error)),
        }
        let refused = |error| failed(edt::HELD, &error);
        self.held.insert(key, slot, 0).map_err(refused)?;
        same(edt::HELD, self.held.get(&key, 0).map_err(refused)?, slot)
    }

    /// Makes an address no member. An address that is none already is no failure.
    pub(super) fn remove(&mut self, address: IpAddr) -> io::Result<()> {
        let key = key(address);
        for (name, removed) in [(edt::HELD, self.held.remove(&key)), (edt::LAST, self.last.remove(&key))] {
            match removed {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(failed(name, &error)),
            }
        }
        Ok(())
    }
}

/// Takes all delays from programs of ours, by their numbers, whichever process loaded them. Packets go on
/// leaving in order.
///
/// # Errors
/// When the kernel refuses; it takes CAP_SYS_ADMIN to find what another process loaded.
pub(in super::super) fn release(programs: &BTreeSet<u32>) -> io::Result<()> {
    change_delays(programs, |delays, slot| delays.set(slot, 0, 0))
}

/// Returns true if programs of ours, by their numbers, delay packets.
///
/// # Errors
/// When the kernel refuses; it takes CAP_SYS_ADMIN to find what another process loaded.
pub(in super::super) fn delay_packets(programs: &BTreeSet<u32>) -> io::Result<bool> {
    let mut found = false;
    change_delays(programs, |_, _| {
        found = true;
        Ok(())
    })?;
    Ok(found)
}

/// Calls a function for each slot of these programs that has a delay.
fn change_delays(
    programs: &BTreeSet<u32>,
    mut change: impl FnMut(&mut Array<MapData, u64>, u32) -> Result<(), MapError>,
) -> io::Result<()> {
    if programs.is_empty() {
        return Ok(());
    }
    let refused = |error: ProgramError| failed("programs", &error);
    let mut look_at = |program: ProgramInfo| {
        if programs.contains(&program.id()) && program.name_as_str() == Some(edt::PROGRAM) {
            for map in program.map_ids().map_err(refused)?.unwrap_or_default() {
                change_slots(map, &mut change).map_err(|error| failed(edt::DELAYS, &error))?;
            }
        }
        Ok(())
    };
    for program in loaded_programs() {
        match program.map_err(refused).and_then(&mut look_at) {
            // It was unloaded while we looked, and delays nothing any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            looked => looked?,
        }
    }
    Ok(())
}

fn change_slots(
    map: u32,
    change: &mut impl FnMut(&mut Array<MapData, u64>, u32) -> Result<(), MapError>,
) -> Result<(), MapError> {
    if MapInfo::from_id(map)?.name_as_str() != Some(edt::DELAYS) {
        return Ok(());
    }
    let mut delays: Array<_, u64> = Array::try_from(Map::from_map_data(MapData::from_id(map)?)?)?;
    for slot in 0..delays.len() {
        if delays.get(&slot, 0)? != 0 {
            change(&mut delays, slot)?;
        }
    }
    Ok(())
}

/// Returns the beginnings of packets that pace writes, for each port.
fn beginnings(ports: &BTreeSet<u16>) -> BTreeMap<u16, Vec<PayloadStart>> {
    let of = |port: &u16| {
        let at_port = PROTOCOLS.iter().filter(|protocol| protocol.is_at(*port));
        let beginnings = at_port
            .flat_map(|one| one.values.iter().map(|value| PayloadStart { mask: one.mask, value: *value }))
            .collect();
        (*port, beginnings)
    };
    ports.iter().map(of).collect()
}

fn classifier(loaded: &mut Ebpf) -> io::Result<&mut SchedClassifier> {
    let program = loaded.program_mut(edt::PROGRAM).ok_or_else(|| lacks(edt::PROGRAM))?;
    program.try_into().map_err(|error: ProgramError| failed(edt::PROGRAM, &error))
}

fn same<T: PartialEq + Copy>(what: &str, found: T, wanted: T) -> io::Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(io::Error::other(format!("{what} is not what was asked for, although nothing was refused")))
}

fn is_there(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.kind() == io::ErrorKind::AlreadyExists)
}

fn is_gone(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.kind() == io::ErrorKind::NotFound)
}
