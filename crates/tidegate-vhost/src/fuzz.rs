//! The fuzz target: a guest's memory with a ring in it, of any content.

use std::fs::File;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use vm_memory::{Bytes, GuestAddress, GuestMemory as _, Permissions};

use crate::event::EventDescriptor;
use crate::memory::GuestMemory;
use crate::request::{DiskCommand, RequestStatus, SECTOR};
use crate::ring::{CompletedRequest, DiskRing, RingPlace};

/// The guest's memory: the ring at its begin, where an input can reach all of it.
const MEMORY: u64 = 16 << 10;
const RING: RingPlace = RingPlace {
    length: 16,
    descriptors: GuestAddress(0),
    available: GuestAddress(0x100),
    used: GuestAddress(0x180),
    base: 0,
    event_index: true,
};

/// More requests than a ring of this length can have at once.
const MOST_REQUESTS: usize = 64;

/// Whatever a guest has in its memory: every request lies within it, its length is that of its parts, and all
/// that were taken can be completed.
///
/// # Panics
/// If that does not hold.
pub fn ring(input: &[u8]) {
    let memory = GuestMemory::anonymous(MEMORY);
    let mapped = memory.mapped();
    let input = &input[..input.len().min(MEMORY as usize)];
    mapped.write_slice(input, GuestAddress(0)).expect("the input fits");
    let kick = eventfd(0, EventfdFlags::CLOEXEC).expect("there are descriptors left");
    let kick = EventDescriptor::new(File::from(kick)).expect("it is an eventfd");
    let mut ring = DiskRing::new(RING, &memory, Arc::new(kick), None).expect("the ring lies in memory");
    for number in 0..MOST_REQUESTS {
        let Ok(Some(request)) = ring.next(&memory) else { break };
        if number % 8 == 7 {
            ring.put_back(&request);
            assert!(ring.owes());
            continue;
        }
        for part in &request.data {
            let length = part.length as usize;
            assert!(length == 0 || mapped.check_range(part.address, length, Permissions::Read));
        }
        let data = vec![0x5a; request.length() as usize];
        let completed = match request.command {
            DiskCommand::Read { offset, length } => {
                assert!(length > 0 && (offset | u64::from(length)).is_multiple_of(SECTOR));
                CompletedRequest::Data(&data)
            }
            DiskCommand::Write { offset, length } => {
                assert!(length > 0 && (offset | u64::from(length)).is_multiple_of(SECTOR));
                let mut payload = vec![0; length as usize];
                ring.read_data(&memory, &request, &mut payload).expect("its parts lie in memory");
                CompletedRequest::Status(RequestStatus::Done)
            }
            DiskCommand::Identify => CompletedRequest::Serial("a disk with a name of more than twenty bytes"),
            DiskCommand::Refuse(status) => CompletedRequest::Status(status),
            DiskCommand::Flush | DiskCommand::Discard { .. } | DiskCommand::WriteZeroes { .. } => {
                CompletedRequest::Status(RequestStatus::Failed)
            }
        };
        ring.complete(&memory, &request, &completed).expect("its place lies in memory");
        ring.wants_signal(&memory).expect("the ring lies in memory");
    }
    ring.stop();
    // Nothing new comes out of it.
    while ring.owes() && ring.next(&memory).is_ok() {}
    ring.listen(&memory).expect("the ring lies in memory");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use proptest::prelude::*;

    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("disk-ring", super::ring);
    }

    proptest! {
        /// Descriptors that mostly point somewhere, which bytes by chance do not.
        #[test]
        fn a_guest_that_writes_anything_into_its_ring_harms_nothing(
            descriptors in prop::collection::vec(
                (0u64..17_000, 0u32..5_000, 0u16..8, 0u16..18), 16
            ),
            available in prop::collection::vec(0u16..18, 16),
            index in 0u16..18,
            kinds in prop::collection::vec(0u32..16, 16),
        ) {
            let mut input = vec![0; 0x400];
            for (at, (address, length, flags, next)) in descriptors.into_iter().enumerate() {
                let entry = &mut input[at * 16..][..16];
                entry[..8].copy_from_slice(&address.to_le_bytes());
                entry[8..12].copy_from_slice(&length.to_le_bytes());
                entry[12..14].copy_from_slice(&flags.to_le_bytes());
                entry[14..].copy_from_slice(&next.to_le_bytes());
            }
            input[0x102..0x104].copy_from_slice(&index.to_le_bytes());
            for (at, head) in available.into_iter().enumerate() {
                input[0x104 + 2 * at..][..2].copy_from_slice(&head.to_le_bytes());
            }
            for (at, kind) in kinds.into_iter().enumerate() {
                input[0x300 + 16 * at..][..4].copy_from_slice(&kind.to_le_bytes());
            }
            super::ring(&input);
        }
    }
}
