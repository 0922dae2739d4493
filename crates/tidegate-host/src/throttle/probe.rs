//! What this kernel can throttle with, found by trying.

use std::io;
use std::thread;
use std::time::Duration;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::Packets;
use super::edt::Edt;
use super::nft::{self, Part, Table};
use super::tc::Tc;

/// Something that a throttle needs, and whether it works here.
#[derive(Debug)]
pub struct Capability {
    /// What, as an administrator would look for it.
    pub what: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// `Err`: why it does not work.
    pub works: io::Result<()>,
    /// What would give it.
    pub remedy: &'static str,
}

/// Tries everything that packet delay needs, of either kind (for the other throttle see [`rate::probe`](super::rate::probe)), in a network namespace of its own: nothing of this machine's is touched, and
/// what was tried is gone with it. Kernel modules are loaded by it, as they would be by use.
///
/// # Errors
/// When no namespace can be made, mostly because it takes root.
pub fn probe() -> io::Result<Vec<Capability>> {
    let trial = thread::Builder::new().name("tidegate-probe".to_owned()).spawn(|| {
        // SAFETY: only this thread changes its network namespace. It has opened nothing that would be of another one, and
        // ends before anything else is done with it.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok(try_all())
    })?;
    trial.join().unwrap_or_else(|_| Err(io::Error::other("the trial panicked")))
}

fn try_all() -> Vec<Capability> {
    /// Every namespace has it.
    const LOOPBACK: u32 = 1;
    const CLASS: u16 = 1;
    let mut tc = Tc::open();
    let mut with_tc = |step: &dyn Fn(&mut Tc) -> io::Result<()>| match &mut tc {
        Ok(tc) => step(tc),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    };
    let device = with_tc(&|tc| tc.add_device().map(drop));
    let htb = with_tc(&|tc| tc.add_root(LOOPBACK));
    // Without htb there is nothing to put it under, and it is not tried.
    let netem = match &htb {
        Ok(()) => with_tc(&|tc| tc.add_class(LOOPBACK, CLASS, Duration::from_millis(1))),
        Err(_) => Err(io::Error::other("not tried: it needs htb")),
    };
    let fair = match &htb {
        Ok(()) => with_tc(&|tc| tc.add_fair_class(LOOPBACK, CLASS + 1)),
        Err(_) => Err(io::Error::other("not tried: it needs htb")),
    };
    let program = match &htb {
        Ok(()) => Edt::new(Packets::All, &[3260].into()).and_then(|mut edt| edt.attach(LOOPBACK)),
        Err(_) => Err(io::Error::other("not tried: it needs htb")),
    };
    let rules = |packets| {
        let part = Part {
            class: CLASS,
            members: [[192, 0, 2, 1].into()].into(),
            ruled: true,
            delay: tidegate_units::Latency::from_millis(1),
        };
        let parts = [("trial".to_owned(), part)].into();
        let interfaces = [(LOOPBACK, "lo".to_owned())].into();
        nft::replace(&Table { parts, packets, ports: [2049, 3260, 4420].into(), interfaces })
    };
    // Rules name the device that they send packets through.
    let rules = |packets| match &device {
        Ok(()) => rules(packets),
        Err(_) => Err(io::Error::other("not tried: it needs the device ifb")),
    };
    let (rules_for_all, rules_for_responses) = (rules(Packets::All), rules(Packets::Responses));
    vec![
        Capability {
            what: "device ifb",
            purpose: "where packets wait that are held by netem",
            works: device,
            remedy: "the kernel module ifb (CONFIG_IFB)",
        },
        Capability {
            what: "queueing discipline htb",
            purpose: "classes for what is held",
            works: htb,
            remedy: "the kernel module sch_htb (CONFIG_NET_SCH_HTB)",
        },
        Capability {
            what: "queueing discipline netem",
            purpose: "packet delay by netem",
            works: netem,
            remedy: "the kernel module sch_netem (CONFIG_NET_SCH_NETEM); on RHEL in kernel-modules-extra",
        },
        Capability {
            what: "nftables",
            purpose: "which packets are held by netem",
            works: rules_for_all,
            remedy: "the package nftables, and Linux 5.17 or newer with nf_tables, its egress hook and nft_fwd_netdev \
                     (CONFIG_NF_TABLES_NETDEV, CONFIG_NETFILTER_EGRESS, CONFIG_NFT_FWD_NETDEV)",
        },
        Capability {
            what: "nftables, payload",
            purpose: "packets = \"responses\"",
            works: rules_for_responses,
            remedy: "nftables 0.9 or newer",
        },
        Capability {
            what: "queueing discipline fq",
            purpose: "packet delay by departure times (throttle = \"edt\")",
            works: fair,
            remedy: "the kernel module sch_fq (CONFIG_NET_SCH_FQ)",
        },
        Capability {
            what: "eBPF filter",
            purpose: "departure times (throttle = \"edt\")",
            works: program,
            remedy: "Linux 5.12 or newer with CONFIG_BPF_SYSCALL and the module cls_bpf (CONFIG_NET_CLS_BPF), CAP_BPF and \
                     CAP_NET_ADMIN",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_this_kernel_has_it_is_told_and_nothing_is_left() {
        let before = Tc::open().unwrap().qdiscs().unwrap();
        match probe() {
            Ok(found) => {
                assert_eq!(found.len(), 7);
                for capability in found {
                    assert!(!capability.what.is_empty() && !capability.remedy.is_empty());
                }
            }
            // Not root.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert_eq!(Tc::open().unwrap().qdiscs().unwrap().len(), before.len());
    }
}
