//! Remedies: errors that say what would help.

use std::io;

use rustix::io::Errno;

/// The remedy for missing classes.
pub(super) const HTB: &str = "the kernel module sch_htb (CONFIG_NET_SCH_HTB)";

/// The remedy for a missing device in which packets wait.
pub(super) const IFB: &str = "the kernel module ifb (CONFIG_IFB)";
/// The remedy for missing delays by netem.
pub(super) const NETEM: &str =
    "the kernel module sch_netem (CONFIG_NET_SCH_NETEM); on RHEL in kernel-modules-extra";
/// The remedy for missing delays by departure times.
pub(super) const FQ: &str = "the kernel module sch_fq (CONFIG_NET_SCH_FQ)";
/// The remedy if a program cannot see packets.
pub(super) const FILTER: &str = "Linux 5.12 or newer with CONFIG_BPF_SYSCALL and the module cls_bpf \
    (CONFIG_NET_CLS_BPF), CAP_BPF and \
     CAP_NET_ADMIN";
/// The remedy for missing rules that tell which packets are delayed.
pub(super) const NFTABLES: &str = "the package nftables, and Linux 5.17 or newer with nf_tables, its egress hook and \
    nft_fwd_netdev \
     (CONFIG_NF_TABLES_NETDEV, CONFIG_NETFILTER_EGRESS, CONFIG_NFT_FWD_NETDEV)";

/// The kernel says of a module that it does not have what it says of a thing that is not there: what it may
/// take is said, too.
pub(super) fn with_remedy(error: io::Error, remedy: &str) -> io::Error {
    let unknown = [Errno::NOENT, Errno::OPNOTSUPP, Errno::NOSYS];
    if unknown.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return io::Error::new(error.kind(), format!("{error}; perhaps it takes {remedy}"));
    }
    error
}
