//! Reasons why messages are rejected, and their counts.

use serde::Serialize;
use thiserror::Error;

use crate::limits::VERSION;

/// Reasons why a message is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum MessageRejection {
    #[error("it was not made with our key, or damaged on its way")]
    BadKey,
    #[error("its block fails its checksum: torn, or written by something else")]
    Checksum,
    #[error("it was heard before, or overtaken by a later one")]
    Replayed,
    #[error("its sender has not yet shown that it lives now, and is asked to")]
    Unproved,
    #[error("it has the old version {0} of the format, and this is version {VERSION}: upgrade its sender")]
    OldVersion(u16),
    #[error(
        "it has version {0} of the format, and this host knows only version {VERSION}: upgrade this host"
    )]
    NewVersion(u16),
    #[error("it belongs to another cluster")]
    OtherCluster,
    #[error("it is malformed: {0}")]
    Malformed(&'static str),
    #[error("it says what cannot be: {0}")]
    OutOfRange(&'static str),
    #[error("two hosts bear its name; the one heard first counts")]
    DuplicateName,
    #[error(
        "its host seems to have restarted; its former self counts until it has been silent for three \
            intervals"
    )]
    Restarting,
    #[error("there are too many hosts already")]
    TooManyHosts,
    #[error("its address is not among `peers`: if it is a host of the cluster, add it there on this host")]
    UnknownPeer,
    #[error(
        "one address is one host, and another one speaks from it, or this one speaks from another address: \
            look \
         whether a host poses as others"
    )]
    OtherName,
    #[error(
        "too many new hosts at once: look whether one host poses as many; those that are known still count"
    )]
    TooManyNames,
}

/// Counts of the messages rejected since the start, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RejectionCounts {
    /// Not made with our key (UDP): a wrong key, or a stranger.
    pub bad_key: u64,
    /// A block that fails its checksum (shared file): caught while it was being written, or damaged.
    pub checksum: u64,
    /// Heard before, or overtaken by a later message of the same host.
    pub replayed: u64,
    /// Well-made, but by a host that has not yet shown that it lives now (UDP). Some at every start are
    /// normal.
    pub unproved: u64,
    /// An older version of the format.
    pub old_version: u64,
    /// A newer version of the format.
    pub new_version: u64,
    /// Messages of another cluster on the same wire.
    pub other_cluster: u64,
    /// Not what the format says.
    pub malformed: u64,
    /// A number that cannot be.
    pub out_of_range: u64,
    /// From a second host under a name that is taken, or under our own.
    pub duplicate_name: u64,
    /// From a host that seems to have restarted without taking leave: it counts again once its former self
    /// has been silent for three intervals.
    pub restarting: u64,
    /// From more hosts than are kept.
    pub too_many_hosts: u64,
    /// From an address that is not in the list of peers (UDP), with our key.
    pub unknown_peer: u64,
    /// Under a name that belongs to another address, or from an address that has another name (UDP).
    pub other_name: u64,
    /// Under a new name, where too many are new: of one address (UDP to a group), or in the last intervals
    /// (NATS).
    pub too_many_names: u64,
}

impl RejectionCounts {
    pub(crate) fn count(&mut self, rejection: MessageRejection) -> &mut u64 {
        match rejection {
            MessageRejection::BadKey => &mut self.bad_key,
            MessageRejection::Checksum => &mut self.checksum,
            MessageRejection::Replayed => &mut self.replayed,
            MessageRejection::Unproved => &mut self.unproved,
            MessageRejection::OldVersion(_) => &mut self.old_version,
            MessageRejection::NewVersion(_) => &mut self.new_version,
            MessageRejection::OtherCluster => &mut self.other_cluster,
            MessageRejection::Malformed(_) => &mut self.malformed,
            MessageRejection::OutOfRange(_) => &mut self.out_of_range,
            MessageRejection::DuplicateName => &mut self.duplicate_name,
            MessageRejection::Restarting => &mut self.restarting,
            MessageRejection::TooManyHosts => &mut self.too_many_hosts,
            MessageRejection::UnknownPeer => &mut self.unknown_peer,
            MessageRejection::OtherName => &mut self.other_name,
            MessageRejection::TooManyNames => &mut self.too_many_names,
        }
    }

    /// Each reason with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 15] {
        [
            ("bad_key", self.bad_key),
            ("checksum", self.checksum),
            ("replayed", self.replayed),
            ("unproved", self.unproved),
            ("old_version", self.old_version),
            ("new_version", self.new_version),
            ("other_cluster", self.other_cluster),
            ("malformed", self.malformed),
            ("out_of_range", self.out_of_range),
            ("duplicate_name", self.duplicate_name),
            ("restarting", self.restarting),
            ("too_many_hosts", self.too_many_hosts),
            ("unknown_peer", self.unknown_peer),
            ("other_name", self.other_name),
            ("too_many_names", self.too_many_names),
        ]
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }
}
