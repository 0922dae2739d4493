//! An initiator and a target as they speak, for tests: written from RFC 7143, apart from the
//! code that reads them.

/// The digests that both append.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PeerDigests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// Returns a PDU: its header with the length of the data, the data padded, and digests of any value.
pub(crate) fn pdu(mut header: [u8; 48], data: &[u8], digests: PeerDigests) -> Vec<u8> {
    header[5..8].copy_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes()[1..]);
    let mut bytes = header.to_vec();
    if digests.header {
        bytes.extend_from_slice(&[0xd1, 0xd2, 0xd3, 0xd4]);
    }
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    if digests.data && !data.is_empty() {
        bytes.extend_from_slice(&[0xe1, 0xe2, 0xe3, 0xe4]);
    }
    bytes
}

fn header(opcode: u8, flags: u8, tag: u32) -> [u8; 48] {
    let mut header = [0; 48];
    (header[0], header[1]) = (opcode, flags);
    header[16..20].copy_from_slice(&tag.to_be_bytes());
    header
}

/// Returns the request that logs in, from the operational phase to the full feature phase.
pub(crate) fn login(initiator: &str, target: &str, digests: PeerDigests) -> Vec<u8> {
    let digest = |wanted| if wanted { "CRC32C,None" } else { "None" };
    let text = format!(
        "InitiatorName={initiator}\0TargetName={target}\0SessionType=Normal\0HeaderDigest={}\0\
         DataDigest={}\0",
        digest(digests.header),
        digest(digests.data)
    );
    pdu(header(0x43, 0x87, 1), text.as_bytes(), PeerDigests::default())
}

/// Returns the response to [`login`].
pub(crate) fn login_response(digests: PeerDigests) -> Vec<u8> {
    let digest = |agreed| if agreed { "CRC32C" } else { "None" };
    let text = format!(
        "TargetPortalGroupTag=1\0HeaderDigest={}\0DataDigest={}\0",
        digest(digests.header),
        digest(digests.data)
    );
    pdu(header(0x23, 0x87, 1), text.as_bytes(), PeerDigests::default())
}

/// Returns the request that reads `bytes` of a LUN.
pub(crate) fn read(tag: u32, unit: u8, bytes: u32, digests: PeerDigests) -> Vec<u8> {
    let mut head = header(0x01, 0xc1, tag);
    head[9] = unit;
    head[20..24].copy_from_slice(&bytes.to_be_bytes());
    head[32] = 0x28;
    pdu(head, &[], digests)
}

/// Returns the request that writes `bytes` to a LUN, with the first of them.
pub(crate) fn write(tag: u32, unit: u8, bytes: u32, immediate: &[u8], digests: PeerDigests) -> Vec<u8> {
    let mut head = header(0x01, 0xa1, tag);
    head[9] = unit;
    head[20..24].copy_from_slice(&bytes.to_be_bytes());
    head[32] = 0x8a;
    pdu(head, immediate, digests)
}

/// Returns data of a write.
pub(crate) fn data_out(tag: u32, data: &[u8], is_last: bool, digests: PeerDigests) -> Vec<u8> {
    pdu(header(0x05, if is_last { 0x80 } else { 0 }, tag), data, digests)
}

/// Returns the target's call for data of a write.
pub(crate) fn ready_to_transfer(tag: u32, digests: PeerDigests) -> Vec<u8> {
    pdu(header(0x31, 0x80, tag), &[], digests)
}

/// Returns data of a read; the last with the status, as most targets send it.
pub(crate) fn data_in(tag: u32, data: &[u8], has_status: bool, digests: PeerDigests) -> Vec<u8> {
    pdu(header(0x25, if has_status { 0x81 } else { 0 }, tag), data, digests)
}

/// Returns the response to a command with its status.
pub(crate) fn response(tag: u32, status: u8, digests: PeerDigests) -> Vec<u8> {
    let mut head = header(0x21, 0x80, tag);
    head[3] = status;
    pdu(head, &[], digests)
}

/// Returns the request that ends another command.
pub(crate) fn abort(tag: u32, of: u32, digests: PeerDigests) -> Vec<u8> {
    let mut head = header(0x42, 0x81, tag);
    head[20..24].copy_from_slice(&of.to_be_bytes());
    pdu(head, &[], digests)
}
