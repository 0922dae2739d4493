//! Beginnings of packets that pace a writer, by storage protocol.

/// A storage protocol over TCP.
#[derive(Debug)]
pub(super) struct Protocol {
    /// Its own port. At ports of no protocol, the beginnings of every protocol count.
    port: u16,
    /// The bits that tell, of the first four bytes of a packet's payload in network order.
    pub(super) mask: u32,
    /// The values of these bits in packets that pace writes. No packets with data of reads have them, apart
    /// from short replies of NFS.
    pub(super) values: &'static [u32],
}

pub(super) const PROTOCOLS: [Protocol; 3] = [
    // iSCSI: the first byte of a header is its opcode, 0x21 of a SCSI response and 0x31 of an R2T (RFC 7143,
    // 11.2.1.2). LIO's reads have no response: their status travels with the last data.
    Protocol { port: 3260, mask: 0xff00_0000, values: &[0x2100_0000, 0x3100_0000] },
    // NVMe/TCP: type, flags, length of the header (NVMe TCP Transport Specification 1.0, 3.3.1.1). 0x05 is a
    // response capsule and 0x09 an R2T, both with a header of 24 bytes. Reads have a response as well, unless
    // the host did without it when it connected, but Linux's target sends it behind the data: it begins no
    // packet of its own.
    Protocol { port: 4420, mask: 0xff00_ff00, values: &[0x0500_1800, 0x0900_1800] },
    // NFS: the length of a message, under a bit that says that it is whole (RFC 5531, 11). Linux's server
    // replies to a write with 112 bytes, to opening a file with 320. A reply longer than 511 bytes brings
    // data; a shorter one does, too, after a very short read.
    Protocol { port: 2049, mask: 0xffff_fe00, values: &[0x8000_0000] },
];

impl Protocol {
    /// Returns true if packets from that port may be this protocol's.
    pub(super) fn is_at(&self, port: u16) -> bool {
        self.port == port || PROTOCOLS.iter().all(|protocol| protocol.port != port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace_writes(port: u16, beginning: [u8; 4]) -> bool {
        let word = u32::from_be_bytes(beginning);
        let at_port = PROTOCOLS.iter().filter(|protocol| protocol.is_at(port));
        at_port
            .flat_map(|one| one.values.iter().map(|value| (one.mask, *value)))
            .any(|(mask, value)| word & mask == value)
    }

    #[test]
    fn what_paces_writes_is_told_from_what_brings_data_at_its_own_port_only() {
        let iscsi = [0x31, 0x80, 0, 0];
        let nvme = [0x09, 0, 0x18, 0];
        let nfs = [0x80, 0, 0, 0xc8];
        for (port, paces) in [
            (3260, [true, false, false]),
            (4420, [false, true, false]),
            (2049, [false, false, true]),
            (10_000, [true, true, true]),
        ] {
            assert_eq!([iscsi, nvme, nfs].map(|beginning| pace_writes(port, beginning)), paces, "{port}");
        }
        // Data that was read: of iSCSI, of NVMe/TCP, and of NFS with 64 KiB.
        for data in [[0x25, 0x81, 0, 0], [0x07, 0x0c, 0x18, 0x18], [0x80, 0x01, 0x00, 0x94]] {
            for port in [3260, 4420, 2049, 10_000] {
                assert!(!pace_writes(port, data), "{port}, {data:x?}");
            }
        }
    }
}
