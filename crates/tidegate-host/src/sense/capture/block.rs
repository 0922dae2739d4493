//! The packets in a block of the kernel's ring (`TPACKET_V3`, linux/if_packet.h).

/// Offsets in a block's description.
const PACKETS: usize = 12;
const FIRST: usize = 16;

/// Offsets in a packet's header, and its length.
const NEXT: usize = 0;
const SECONDS: usize = 4;
const NANOSECONDS: usize = 8;
const CAPTURED: usize = 12;
const LENGTH: usize = 16;
const FRAME: usize = 24;
const HEADER: usize = 28;

/// A captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CapturedPacket<'a> {
    /// The kernel's clock of real time, in nanoseconds.
    pub(super) at: u64,
    /// The captured part, from the Ethernet header on.
    pub(super) frame: &'a [u8],
    /// The length of the whole frame.
    pub(super) length: usize,
}

/// Returns the packets of a block, up to the first that does not fit into it.
pub(super) fn packets(block: &[u8]) -> impl Iterator<Item = CapturedPacket<'_>> {
    let mut remaining = number(block, PACKETS).unwrap_or(0);
    let mut at = number(block, FIRST).unwrap_or(0) as usize;
    std::iter::from_fn(move || {
        remaining = remaining.checked_sub(1)?;
        let header = block.get(at..at.checked_add(HEADER)?)?;
        let begin = at + usize::from(u16::from_ne_bytes([header[FRAME], header[FRAME + 1]]));
        let captured = number(header, CAPTURED)? as usize;
        let frame = block.get(begin..begin.checked_add(captured)?)?;
        let seconds = u64::from(number(header, SECONDS)?);
        let packet = CapturedPacket {
            at: seconds * 1_000_000_000 + u64::from(number(header, NANOSECONDS)?),
            frame,
            length: number(header, LENGTH)? as usize,
        };
        at = at.checked_add(number(header, NEXT)? as usize)?;
        Some(packet)
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A block as the kernel fills it.
    fn block(frames: &[&[u8]]) -> Vec<u8> {
        let mut block = vec![0; 48];
        block[PACKETS..PACKETS + 4].copy_from_slice(&u32::try_from(frames.len()).unwrap().to_ne_bytes());
        block[FIRST..FIRST + 4].copy_from_slice(&48_u32.to_ne_bytes());
        for (index, frame) in frames.iter().enumerate() {
            let whole = (96 + frame.len()).next_multiple_of(16);
            let mut packet = vec![0; whole];
            for (at, value) in [
                (NEXT, whole),
                (SECONDS, 2),
                (NANOSECONDS, index),
                (CAPTURED, frame.len()),
                (LENGTH, frame.len() + 100),
                (FRAME, 82),
            ] {
                packet[at..at + 4].copy_from_slice(&u32::try_from(value).unwrap().to_ne_bytes());
            }
            packet[82..82 + frame.len()].copy_from_slice(frame);
            block.extend(packet);
        }
        block
    }

    #[test]
    fn packets_come_in_their_order() {
        let block = block(&[b"first", b"second frame"]);
        let found: Vec<_> = packets(&block).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].at, found[1].frame, found[1].length),
            (2_000_000_001, &b"second frame"[..], 112)
        );
        assert_eq!(found[0].frame, b"first");
    }

    proptest! {
        #[test]
        fn any_block_is_read_within_its_bounds(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            (count, first) in (0u32..20, 0u32..300),
        ) {
            let mut bytes = bytes;
            if bytes.len() >= 20 {
                bytes[PACKETS..PACKETS + 4].copy_from_slice(&count.to_ne_bytes());
                bytes[FIRST..FIRST + 4].copy_from_slice(&first.to_ne_bytes());
            }
            prop_assert!(packets(&bytes).count() <= count.max(300) as usize || bytes.len() < 20);
        }
    }
}
