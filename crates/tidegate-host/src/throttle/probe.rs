//! The capabilities of this kernel to throttle, found by trying.

use std::io;
use std::thread;
use std::time::Duration;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::capability::{CapabilityNeed, KernelCapability};
use super::edt::Edt;
use super::nft::{self, NftTable};
use super::remedy::{FILTER, FQ, HTB, IFB, NETEM, NFTABLES};
use super::tc::{DEVICE, TrafficControl};
use super::undo::{RemovedThrottles, undo_delay};
use super::{DelayedPackets, ThrottleMethod, cgroups, rate};
use crate::root::SystemRoot;

/// Tries everything that packet delay needs, of either kind (for the other throttles see [`rate::probe`] and
/// [`cgroups::probe`]), in a network namespace of its own: nothing of this machine's is touched, and what was
/// tried is gone with it. Kernel modules are loaded by it, as they would be by use.
///
/// # Errors
/// When no namespace can be made, mostly because it takes root.
pub fn probe() -> io::Result<Vec<KernelCapability>> {
    /// Every namespace has it.
    const LOOPBACK: u32 = 1;
    let trial = thread::Builder::new().name("tidegate-probe".to_owned()).spawn(|| {
        // SAFETY: only this thread changes its network namespace. It has opened nothing that would be of
        // another one, and ends before anything else is done with it.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        let mut tc = TrafficControl::open()?;
        let device = tc.add_device();
        Ok(try_delays(&mut tc, None, device, Some(LOOPBACK)))
    })?;
    trial.join().unwrap_or_else(|_| Err(io::Error::other("the trial panicked")))
}

/// Returns the capabilities that a throttle needs and this machine lacks, found by trying with the rights of
/// this process's user.
///
/// The trials use a device of our own that leads nowhere, rules that match no consumer, and empty cgroups.
/// Those of packet delay end by removing whatever Tidegate has in this network namespace, so no consumer may
/// be delayed meanwhile. For `edt`, nothing is tried if such a device cannot be made, and the list is empty.
///
/// # Errors
/// When it cannot be tried, or not be removed; or something else has the device's name.
pub fn lacking(method: ThrottleMethod, packets: DelayedPackets) -> io::Result<Vec<KernelCapability>> {
    let tried = match method {
        ThrottleMethod::Netem | ThrottleMethod::Edt => {
            let mut tc = TrafficControl::open()?;
            if tc.device()?.is_some() {
                return Err(io::Error::other(super::ThrottleError::Taken(DEVICE)));
            }
            let device = tc.add_device();
            if method == ThrottleMethod::Edt && device.is_err() {
                return Ok(Vec::new());
            }
            let root = device.as_ref().ok().copied();
            let tried = try_delays(&mut tc, Some(method), device, root);
            undo_delay(&mut RemovedThrottles::default())?;
            tried
        }
        ThrottleMethod::Rate => rate::probe(&SystemRoot::default()),
        ThrottleMethod::Cgroup => cgroups::probe(&SystemRoot::default()),
    };
    let lacks =
        |capability: &KernelCapability| capability.works.is_err() && capability.is_needed(method, packets);
    Ok(tried.into_iter().filter(lacks).collect())
}

/// Tries classes and queues on the interface `root`, which gets our root, and rules that send packets to
/// `device`: of `only` one throttle, because a service that does not use the other may be ended by the kernel
/// for trying a program.
fn try_delays(
    tc: &mut TrafficControl,
    only: Option<ThrottleMethod>,
    device: io::Result<u32>,
    root: Option<u32>,
) -> Vec<KernelCapability> {
    const CLASS: u16 = 1;
    let without = |what: &str| Err(io::Error::other(format!("not tried: it needs {what}")));
    let (for_netem, for_edt) = (only != Some(ThrottleMethod::Edt), only != Some(ThrottleMethod::Netem));
    let htb = root.map_or_else(|| without("the device ifb"), |root| tc.add_root(root));
    // Without htb there is nothing to put it under, and it is not tried.
    let root = root.filter(|_| htb.is_ok());
    let mut under = |wanted: bool, step: &dyn Fn(&mut TrafficControl, u32) -> io::Result<()>| match root {
        Some(root) if wanted => step(tc, root),
        Some(_) => without("another throttle"),
        None => without("htb"),
    };
    let netem = under(for_netem, &|tc, root| tc.add_class(root, CLASS, Duration::from_millis(1)));
    let fair = under(for_edt, &|tc, root| tc.add_fair_class(root, CLASS + 1));
    let program = under(for_edt, &|_, root| {
        Edt::new(DelayedPackets::All, &[3260].into(), None).and_then(|mut edt| edt.attach(root))
    });
    // Rules name the device that they send packets through.
    let has_device = device.is_ok();
    let rules = |packets| {
        if !has_device {
            return without("the device ifb");
        }
        if !for_netem {
            return without("another throttle");
        }
        let classes = [([192, 0, 2, 1].into(), CLASS)].into();
        let interfaces = [(1, "lo".to_owned())].into();
        let ports = [2049, 3260, 4420].into();
        nft::replace(&NftTable { classes, redirects: true, packets, ports, interfaces })
    };
    let (rules_for_all, rules_for_responses) = (rules(DelayedPackets::All), rules(DelayedPackets::Responses));
    vec![
        KernelCapability {
            what: "device ifb",
            purpose: "where packets delayed by netem wait",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Netem]),
            works: device.map(drop),
            remedy: IFB,
        },
        KernelCapability {
            what: "queueing discipline htb",
            purpose: "classes for delayed packets",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Netem, ThrottleMethod::Edt]),
            works: htb,
            remedy: HTB,
        },
        KernelCapability {
            what: "queueing discipline netem",
            purpose: "packet delay by netem",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Netem]),
            works: netem,
            remedy: NETEM,
        },
        KernelCapability {
            what: "nftables",
            purpose: "which packets netem delays",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Netem]),
            works: rules_for_all,
            remedy: NFTABLES,
        },
        KernelCapability {
            what: "nftables, payload",
            purpose: "packets = \"responses\"",
            needed_by: CapabilityNeed::Payload,
            works: rules_for_responses,
            remedy: "nftables 0.9 or newer",
        },
        KernelCapability {
            what: "queueing discipline fq",
            purpose: "packet delay by departure times (throttle = \"edt\")",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Edt]),
            works: fair,
            remedy: FQ,
        },
        KernelCapability {
            what: "eBPF filter",
            purpose: "departure times (throttle = \"edt\")",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Edt]),
            works: program,
            remedy: FILTER,
        },
    ]
}

#[cfg(test)]
mod tests {
    use tidegate_testing::in_own_network;

    use super::*;

    #[test]
    fn whatever_this_kernel_has_it_is_told_and_nothing_is_left() {
        in_own_network(|| {
            let before = TrafficControl::open().unwrap().qdiscs().unwrap();
            let found = probe().unwrap();
            assert_eq!(found.len(), 7);
            for capability in found {
                assert!(!capability.what.is_empty() && !capability.remedy.is_empty());
            }
            assert_eq!(TrafficControl::open().unwrap().qdiscs().unwrap().len(), before.len());
        });
    }
}
