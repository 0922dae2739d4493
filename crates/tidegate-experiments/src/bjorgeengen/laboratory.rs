//! The paper's laboratory (§3): blade servers on gigabit Ethernet, a Linux target, volumes striped over SATA
//! disks.

use std::time::Duration;

use tidegate_device::Preset;
use tidegate_units::{ByteRate, Bytes, ConsumerName, Latency};

use tidegate_sim::iscsi::{
    IscsiPlan, IscsiProtocol, LoadTimes, MachineLoad, PacketClasses, StoreModel, TcpNetwork, ThrottleRule,
};

/// The blade servers, by the names that the paper gives them.
pub(super) const BLADES: [&str; 4] = ["b2", "b3", "b4", "b5"];

/// The payload rate of Ethernet at 1 Gbit/s, in bytes per second: 1448 bytes of payload in 1538 on the wire.
const GIGABIT: f64 = 125e6 * 1448.0 / 1538.0;

/// One way through a switch and two kernels; an assumption, usual for the class. Next to milliseconds it
/// hardly counts.
const LATENCY: Latency = Latency::from_micros(50);

/// The bytes that a connection has under way to a reader. `tcp_rmem` of Linux 2.6 begins with 87380 bytes, of
/// which three quarters are window (`tcp_adv_win_scale` 2). The text says nothing of it. A delay of bare
/// acknowledgements throttled writes, so the target's window was small: with the window that Linux grows
/// today, such a delay does nothing (`bjorgeengen.lab`).
pub(super) const WINDOW: Bytes = Bytes::new(87_380 / 4 * 3);

/// The bytes that a writer's connection has under way to the target, fitted to figure 9 alone: 200 MB take
/// 6.94 s longer for each millisecond of delay (15 and 2.5 MB/s at 0 and 9.6 ms). A write of 256 KiB then
/// waits nine times for an acknowledgement; with the window above it waits three times. Figures 8 and 11 to
/// 16 are predicted with it, and no run of theirs chose it.
pub(super) const WINDOW_UP: Bytes = Bytes::from_kib(28);

/// The window of open-iscsi: it asks for 524288 bytes (`node.conn[0].tcp.window_size`). Linux 2.6 cuts that
/// to `rmem_max`, 131071, and doubles it; three quarters are window. The text does not say which initiator it
/// was.
pub(super) const OPEN_ISCSI: Bytes = Bytes::new(131_071 * 2 / 4 * 3);

/// A volume of the striped group; the preset was fitted with volumes of this size in a row.
const VOLUME: u64 = 4 << 30;

/// A sequential writer's request, with which the preset was fitted: what iSCSI moves in one burst.
pub(super) const WRITE: Bytes = Bytes::from_kib(256);

/// A sequential reader's request: what Linux reads ahead (`read_ahead_kb` 128).
pub(super) const READ: Bytes = Bytes::from_kib(128);

/// Names of machines are in this file and in the experiments.
pub(super) fn named(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap_or_else(|error| panic!("an embedded name is wrong: {error}"))
}

/// All blades, without load and throttle.
pub(super) fn plan(name: impl Into<String>, seconds: u64) -> IscsiPlan {
    IscsiPlan {
        name: name.into(),
        duration: Duration::from_secs(seconds),
        sample: Duration::from_secs(1),
        store: StoreModel::Device(Preset::SataStripe.config()),
        network: TcpNetwork {
            window_up: WINDOW_UP,
            window_down: WINDOW,
            rate_up: ByteRate::new(GIGABIT),
            rate_down: ByteRate::new(GIGABIT),
            latency: LATENCY,
        },
        protocol: IscsiProtocol::IET,
        machines: BLADES.map(named).to_vec(),
        loads: Vec::new(),
        throttle: ThrottleRule::Timetable { packets: PacketClasses::Acks, steps: Vec::new() },
    }
}

/// One command after the other, from the beginning of a volume.
pub(super) fn sequential(machine: usize, volume: u64, write: bool) -> MachineLoad {
    MachineLoad {
        machine,
        write,
        block: if write { WRITE } else { READ },
        depth: 1,
        sequential: true,
        start: Bytes::new(volume * VOLUME),
        size: Bytes::new(VOLUME),
        think: Latency::ZERO,
        every: Latency::ZERO,
        when: LoadTimes::From(Duration::ZERO),
        amount: None,
    }
}

/// The small reader (§3.4): 4 KiB at random places, 256 kB/s, from the first blade's volume.
pub(super) fn reader() -> MachineLoad {
    MachineLoad {
        block: Bytes::from_kib(4),
        sequential: false,
        every: Latency::from_micros(15_625),
        ..sequential(0, 0, false)
    }
}

/// Four sequential writers on each of so many of the other blades, each in a volume of its own as the preset
/// was fitted.
pub(super) fn writers(blades: usize, when: LoadTimes) -> impl Iterator<Item = MachineLoad> {
    (0..4 * blades)
        .map(move |writer| MachineLoad { when, ..sequential(1 + writer / 4, 1 + writer as u64, true) })
}
