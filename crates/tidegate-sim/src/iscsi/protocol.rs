//! iSCSI (RFC 7143, before it 3720) as far as it paces requests. This comprises the data units of a command,
//! and the waits of initiator and target for each other.

use tidegate_units::Bytes;

/// The basic header segment that begins every protocol data unit (RFC 7143 §11.2.1).
pub(super) const HEADER: u64 = 48;

/// Parameters that initiator and target agreed on at login (RFC 7143 §13). `MaxOutstandingR2T` is 1, which is
/// the default of the standard and of both targets. No data goes unsolicited but with its command
/// (`InitialR2T=Yes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IscsiProtocol {
    /// True if a command brings its first data along.
    pub immediate_data: bool,
    /// The most data that a command brings along.
    pub first_burst: Bytes,
    /// The most data that one R2T asks for.
    pub max_burst: Bytes,
    /// The target's `MaxRecvDataSegmentLength`: the most in one data unit to it.
    pub to_target: Bytes,
    /// The initiator's `MaxRecvDataSegmentLength`: the most in one data unit from the target.
    pub to_initiator: Bytes,
    /// Greatest number of outstanding commands of one session; further ones wait at the initiator.
    pub queue_depth: u32,
    /// True if the target sends the header of read data in a packet of its own.
    pub header_alone: bool,
}

impl IscsiProtocol {
    /// open-iscsi and LIO by default: the values that the lab's initiators negotiated (`negotiated` in
    /// `bench/runs/2026-11-21-lab-iscsi-delay.json`), `node.session.queue_depth` 32. LIO sends headers by
    /// themselves, as is seen there (lab/README.md, "Undelayed packets overtake delayed ones").
    pub const LIO: Self = Self {
        immediate_data: true,
        first_burst: Bytes::from_kib(64),
        max_burst: Bytes::from_kib(256),
        to_target: Bytes::from_kib(256),
        to_initiator: Bytes::from_kib(256),
        queue_depth: 32,
        header_alone: true,
    };

    /// The iSCSI Enterprise Target by default, which the paper used: the values of the standard, data units
    /// to it of 8 KiB and from it of as much (ietd.conf(5): `MaxRecvDataSegmentLength`,
    /// `MaxXmitDataSegmentLength` 8192).
    pub const IET: Self = Self {
        immediate_data: true,
        first_burst: Bytes::from_kib(64),
        max_burst: Bytes::from_kib(256),
        to_target: Bytes::from_kib(8),
        to_initiator: Bytes::from_kib(8),
        queue_depth: 32,
        header_alone: false,
    };

    /// Returns the number of a write's bytes that come with its command.
    pub(super) fn immediate(&self, bytes: u64) -> u64 {
        if self.immediate_data { bytes.min(self.first_burst.get()).min(self.to_target.get()) } else { 0 }
    }

    /// Returns the number of bytes that the next R2T asks for, of the missing ones.
    pub(super) fn burst(&self, missing: u64) -> u64 {
        missing.min(self.max_burst.get())
    }
}

/// A protocol data unit; `task` is its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pdu {
    /// A SCSI command, with immediate data.
    Command { task: usize, data: u64 },
    /// Data that an R2T asked for.
    DataOut { task: usize, data: u64 },
    /// The target is ready for so many bytes.
    R2t { task: usize, wanted: u64 },
    /// Data that was read; the last unit brings the status (§11.7.3), so that reads have no response.
    DataIn { task: usize, data: u64, last: bool },
    /// A write is done.
    Response { task: usize },
}

impl Pdu {
    /// Its length in the stream.
    pub(super) const fn bytes(self) -> u64 {
        HEADER
            + match self {
                Self::Command { data, .. } | Self::DataOut { data, .. } | Self::DataIn { data, .. } => data,
                Self::R2t { .. } | Self::Response { .. } => 0,
            }
    }

    /// Returns true if writes wait for it.
    pub(super) const fn paces_writes(self) -> bool {
        matches!(self, Self::R2t { .. } | Self::Response { .. })
    }
}

/// Splits data into data units of at most `most` bytes.
pub(super) fn segments(mut data: u64, most: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let segment = data.min(most);
        data -= segment;
        (segment > 0).then_some(segment)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_write_of_64_kib_needs_no_r2t_of_lio_and_one_of_iet() {
        assert_eq!(IscsiProtocol::LIO.immediate(65_536), 65_536);
        assert_eq!(IscsiProtocol::LIO.burst(262_144 - 65_536), 196_608);
        assert_eq!(IscsiProtocol::IET.immediate(65_536), 8_192);
        let none = IscsiProtocol { immediate_data: false, ..IscsiProtocol::LIO };
        assert_eq!((none.immediate(65_536), none.burst(1 << 20)), (0, 262_144));
    }

    proptest! {
        #[test]
        fn segments_are_all_of_it(data in 0u64..1_000_000, most in 1u64..300_000) {
            let parts: Vec<_> = segments(data, most).collect();
            prop_assert_eq!(parts.iter().sum::<u64>(), data);
            prop_assert!(parts.iter().all(|part| (1..=most).contains(part)));
            prop_assert_eq!(parts.len() as u64, data.div_ceil(most));
        }
    }
}
