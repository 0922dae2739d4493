//! Bounds that several parts of a carrier share.

/// At most so many hosts are kept: what one datagram's worth of bookkeeping per host supports (see
/// `docs/guide/hosts.md`).
pub(crate) const MOST_HOSTS: usize = 512;

/// The newest version that this code writes and reads; it reads all before.
pub(crate) const VERSION: u16 = 3;
