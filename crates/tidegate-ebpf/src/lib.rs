//! Programs for the kernel's virtual machine (eBPF), compiled when this crate is built, and what their maps
//! look like.
//!
//! Loading them, and all that touches a kernel, is `tidegate-host`'s.

#![forbid(unsafe_code)]

pub mod edt;
pub mod latency;

/// Bytes where a loader may read words.
#[repr(C, align(8))]
struct AlignedBytes<B: ?Sized>(B);
