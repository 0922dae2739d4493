//! Bounds that several parts of a carrier share.

/// Hosts that are kept, at most: twice as many as the largest site that was measured
/// (`docs/guide/sizing.md`).
pub(crate) const MOST_HOSTS: usize = 2048;

/// Slots of a shared file, at most: each host reads all of them in every interval.
pub(crate) const MOST_SLOTS: usize = 512;

/// Addresses in a list of peers, at most: a host sends a datagram to each in every interval.
pub(crate) const MOST_LISTED: usize = 1024;

/// The newest version that this code writes and reads; it reads all before.
pub(crate) const VERSION: u16 = 3;
