//! The channel between the kernel and a device's server: descriptors of requests, and their data.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::abi::{DEPTH, DESCRIPTOR, DeviceNumber, RequestDescriptor, data_offset};

/// The memory in which the kernel describes the requests, rounded up to pages.
const MAPPED: usize = (DEPTH as usize * DESCRIPTOR).next_multiple_of(4096);

/// The channel of a device. One process has it open at a time.
#[derive(Debug)]
pub struct ServedDevice {
    file: Arc<OwnedFd>,
    /// `None` until the first request is there.
    descriptors: Option<NonNull<u8>>,
}

// SAFETY: the mapping is owned, and read only, by this one value.
unsafe impl Send for ServedDevice {}

impl ServedDevice {
    /// Opens the channel of a device.
    ///
    /// # Errors
    /// When another process has it, or the system refuses.
    pub fn open(number: DeviceNumber) -> io::Result<Self> {
        let file = rustix::fs::open(number.channel_path(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { file: Arc::new(file), descriptors: None })
    }

    /// The open file, to which commands of the ring go.
    #[must_use]
    pub const fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// The descriptor of the request that a tag has. The kernel describes a request before it completes the
    /// tag's command.
    ///
    /// # Errors
    /// When the kernel does not let the descriptors be mapped.
    pub fn descriptor(&mut self, tag: u16) -> io::Result<RequestDescriptor> {
        assert!(tag < DEPTH, "a tag is below the depth");
        let memory = match self.descriptors {
            Some(memory) => memory,
            None => self.map()?,
        };
        let mut bytes = [0; DESCRIPTOR];
        let start = usize::from(tag) * DESCRIPTOR;
        for (index, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: the mapping is `MAPPED` bytes long, and every tag's descriptor lies in it. The kernel
            // writes to it only while the tag's command is at the kernel; volatile, since it is shared.
            *byte = unsafe { memory.add(start + index).read_volatile() };
        }
        Ok(RequestDescriptor::decode(&bytes))
    }

    /// Maps the descriptors. Not before requests are there: a process that dies between the mapping and its
    /// first command leaves a device that no other process can map.
    fn map(&mut self) -> io::Result<NonNull<u8>> {
        // SAFETY: the kernel chooses the address; nothing that exists is affected.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), MAPPED, ProtFlags::READ, MapFlags::SHARED, &*self.file, 0)? };
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        self.descriptors = Some(memory);
        Ok(memory)
    }

    /// Copies the data of a tag's write.
    ///
    /// # Errors
    /// When the kernel does not give all of it.
    pub fn read_payload(&self, tag: u16, mut payload: &mut [u8]) -> io::Result<()> {
        let mut offset = data_offset(tag);
        while !payload.is_empty() {
            let count = rustix::io::retry_on_intr(|| rustix::io::pread(&*self.file, &mut *payload, offset))?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset += count as u64;
            payload = &mut payload[count..];
        }
        Ok(())
    }

    /// Copies the data of a tag's read to the kernel.
    ///
    /// # Errors
    /// When the kernel does not take all of it.
    pub fn write_payload(&self, tag: u16, mut payload: &[u8]) -> io::Result<()> {
        let mut offset = data_offset(tag);
        while !payload.is_empty() {
            let count = rustix::io::retry_on_intr(|| rustix::io::pwrite(&*self.file, payload, offset))?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            offset += count as u64;
            payload = &payload[count..];
        }
        Ok(())
    }
}

impl AsFd for ServedDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for ServedDevice {
    fn drop(&mut self) {
        if let Some(memory) = self.descriptors {
            // SAFETY: mapped with this size in `map`, and owned. It fails only for what is not mapped.
            let _ = unsafe { munmap(memory.as_ptr().cast(), MAPPED) };
        }
    }
}
