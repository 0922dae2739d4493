//! Payload memory: aligned for `O_DIRECT`, in size classes, recycled, counted.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

use crate::config::MAX_PAYLOAD;

/// An alignment that every device accepts for direct I/O.
const ALIGNMENT: usize = 4096;
const SMALLEST: usize = 4096;
/// Larger blocks are mapped: they occupy memory as it is written to, and grow without being copied. To fill
/// 32 MiB with zeros would keep the worker for 10 ms and more.
const LARGEST_ALLOCATED: usize = 1 << 20;
/// The most large buffers that are freed in parts. One that was filled took longer to fill than it takes to
/// free, so more than these are buffers that were hardly used, which are freed soon.
const MOST_EXCESS: usize = 2;
const CLASSES: usize = (MAX_PAYLOAD as usize / SMALLEST).ilog2() as usize + 1;

/// A block of memory that direct I/O can use. Its capacity is a power of two from 4 KiB up; it is initialised
/// from the start, so that it can be read whatever a device has left undone.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    memory: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a Buffer owns its memory alone, like a Box<[u8]>.
unsafe impl Send for AlignedBuffer {}

impl AlignedBuffer {
    /// Zeroed memory for `length` bytes, rounded up to a size class.
    pub(crate) fn zeroed(length: usize) -> Self {
        let layout = layout(class_bytes(length));
        let capacity = layout.size();
        let memory = if capacity > LARGEST_ALLOCATED {
            // SAFETY: the kernel chooses the address; nothing that exists is affected. Anonymous memory is
            // zeroed.
            let mapped = unsafe {
                mmap_anonymous(null_mut(), capacity, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
            };
            mapped.unwrap_or(null_mut()).cast()
        } else {
            // SAFETY: the layout's size is at least SMALLEST, not zero.
            unsafe { alloc_zeroed(layout) }
        };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Self { memory, capacity }
    }

    /// Grows without copying, where that is possible; new bytes are zero.
    fn grow(&mut self, capacity: usize) -> bool {
        if self.capacity <= LARGEST_ALLOCATED || capacity < self.capacity {
            return false;
        }
        // SAFETY: the memory was mapped with this size, and is owned; it is used by its new address alone.
        let grown =
            unsafe { mremap(self.memory.as_ptr().cast(), self.capacity, capacity, MremapFlags::MAYMOVE) };
        let Some(memory) = grown.ok().and_then(|memory| NonNull::new(memory.cast())) else { return false };
        (self.memory, self.capacity) = (memory, capacity);
        true
    }

    /// Gives back the end of a mapped buffer. Returns false if it is too small for that.
    fn shrink(&mut self) -> bool {
        if self.capacity <= 2 * LARGEST_ALLOCATED {
            return false;
        }
        self.capacity -= LARGEST_ALLOCATED;
        // SAFETY: the end of what was mapped, which is owned, and beyond the new capacity.
        let _ = unsafe { munmap(self.memory.as_ptr().add(self.capacity).cast(), LARGEST_ALLOCATED) };
        true
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is owned, initialised since its allocation, and `capacity` long. The kernel
        // writes to it only while the ring owns the buffer, when no other code can call this.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.capacity) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.capacity) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.capacity > LARGEST_ALLOCATED {
            // SAFETY: mapped with this size in `zeroed` or `grow`, and owned. It fails only for what is not
            // mapped.
            let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.capacity) };
        } else {
            // SAFETY: allocated with the same layout in `zeroed`, and owned.
            unsafe { dealloc(self.memory.as_ptr(), layout(self.capacity)) };
        }
    }
}

fn layout(capacity: usize) -> Layout {
    // Invariant: the alignment is a power of two and the capacity a size class, far below isize::MAX.
    Layout::from_size_align(capacity, ALIGNMENT).expect("a size class is a valid layout")
}

/// Returns the memory that a payload of `length` bytes really occupies. Bounds are counted in it.
pub(crate) fn class_bytes(length: usize) -> usize {
    length.max(SMALLEST).next_power_of_two()
}

/// Returns true if all bytes are zero. Of data that is not, a few looks are enough in almost all cases, so
/// that every read can be asked.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    let is_zero = |word: &[u8; 16]| u128::from_ne_bytes(*word) == 0;
    let probes = [words.first(), words.get(words.len() / 2), words.last()];
    probes.into_iter().flatten().all(is_zero)
        && words.iter().all(is_zero)
        && rest.iter().all(|byte| *byte == 0)
}

/// Buffers kept for the next request. It keeps at most `limit` bytes; buffers returned beyond that are freed.
#[derive(Debug)]
pub(crate) struct BufferPool {
    free: [Vec<AlignedBuffer>; CLASSES],
    held: usize,
    limit: usize,
    /// Large buffers that are being freed.
    excess: Vec<AlignedBuffer>,
}

impl BufferPool {
    pub(crate) fn new(limit: usize) -> Self {
        Self { free: std::array::from_fn(|_| Vec::new()), held: 0, limit, excess: Vec::new() }
    }

    /// Returns a buffer for `length` bytes. Its contents are left over from another request.
    pub(crate) fn take(&mut self, length: usize) -> AlignedBuffer {
        match self.free[class_index(class_bytes(length))].pop() {
            Some(buffer) => {
                self.held -= buffer.capacity;
                buffer
            }
            None => AlignedBuffer::zeroed(length),
        }
    }

    /// A buffer for `length` bytes that begins with the `filled` bytes of a smaller one, which goes back.
    pub(crate) fn grow(&mut self, mut smaller: AlignedBuffer, filled: usize, length: usize) -> AlignedBuffer {
        if smaller.grow(class_bytes(length)) {
            return smaller;
        }
        let mut larger = self.take(length);
        larger[..filled].copy_from_slice(&smaller[..filled]);
        self.put(smaller);
        larger
    }

    pub(crate) fn put(&mut self, buffer: AlignedBuffer) {
        if self.held + buffer.capacity <= self.limit {
            self.held += buffer.capacity;
            self.free[class_index(buffer.capacity)].push(buffer);
        } else if buffer.capacity > LARGEST_ALLOCATED && self.excess.len() < MOST_EXCESS {
            self.excess.push(buffer);
        }
    }

    /// Frees a part of the large buffers that are too many. The kernel takes milliseconds to free the largest
    /// as a whole.
    pub(crate) fn release_some(&mut self) {
        if let Some(buffer) = self.excess.last_mut()
            && !buffer.shrink()
        {
            self.excess.pop();
        }
    }

    /// Returns true if there is more to free.
    pub(crate) fn releases_more(&self) -> bool {
        !self.excess.is_empty()
    }
}

fn class_index(class_bytes: usize) -> usize {
    (class_bytes / SMALLEST).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_initialised_and_large_enough() {
        for length in [0, 1, 4096, 4097, 65_536, MAX_PAYLOAD as usize] {
            let buffer = AlignedBuffer::zeroed(length);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.len() >= length && buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_buffer_that_grows_keeps_its_contents() {
        let mut pool = BufferPool::new(8 << 20);
        let mut buffer = pool.take(1 << 20);
        let mut filled = 0;
        while buffer.len() < MAX_PAYLOAD as usize {
            let end = buffer.len();
            buffer[filled..end].fill(end.ilog2() as u8);
            filled = end;
            buffer = pool.grow(buffer, filled, 2 * filled);
            assert_eq!(buffer.len(), 2 * filled);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert!((20..=filled.ilog2()).all(|class| buffer[(1 << class) - 1] == class as u8));
            assert!(buffer[filled..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn the_pool_recycles_up_to_its_limit() {
        let mut pool = BufferPool::new(3 * 4096);
        let buffers: Vec<AlignedBuffer> = (0..4).map(|_| pool.take(100)).collect();
        buffers.into_iter().for_each(|buffer| pool.put(buffer));
        assert_eq!(pool.held, 3 * 4096);
        pool.put(pool_free_large());
        assert_eq!(pool.held, 3 * 4096);
        let again = pool.take(4096);
        assert_eq!((again.len(), pool.held), (4096, 2 * 4096));
    }

    #[test]
    fn the_largest_buffers_are_freed_in_parts_and_all_of_them() {
        let mut pool = BufferPool::new(0);
        for _ in 0..5 {
            let mut buffer = pool.take(MAX_PAYLOAD as usize);
            buffer.fill(1);
            pool.put(buffer);
        }
        assert_eq!(pool.excess.len(), MOST_EXCESS);
        let mut parts = 0;
        while pool.releases_more() {
            pool.release_some();
            parts += 1;
        }
        assert_eq!(parts, MOST_EXCESS * (MAX_PAYLOAD as usize / LARGEST_ALLOCATED - 1));
    }

    fn pool_free_large() -> AlignedBuffer {
        AlignedBuffer::zeroed(8192)
    }
}
