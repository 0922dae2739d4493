//! What a machine may lack, and how a test says so.
//!
//! The standard test harness knows no skipped tests: a test that returns early has passed.
//! `scripts/run-tests.py` reads the lines that [`skip`] prints, and counts such a test as skipped.

use std::fmt;

/// A part that some tests need and some machines lack. The words of its [`Display`](fmt::Display) stand in
/// the list of what a kind of machine lacks, which a test run gets by `--lacks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The rights of root, or one of them.
    Root,
    /// Network, mount, user or time namespaces.
    Namespaces,
    /// Cgroups with counters or limits of I/O.
    CgroupIo,
    /// Cgroups that no other agent limits.
    FreeCgroups,
    /// The right to load BPF programs, or a kernel that runs them.
    Bpf,
    /// Loop devices.
    LoopDevice,
    /// The right to mount a file system, or that file system.
    Mount,
    /// Another part of the kernel.
    Kernel(&'static str),
    /// A program that is not installed.
    Program(&'static str),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::Namespaces => "namespaces",
            Self::CgroupIo => "cgroups with I/O",
            Self::FreeCgroups => "cgroups without another agent",
            Self::Bpf => "BPF",
            Self::LoopDevice => "loop devices",
            Self::Mount => "mount",
            Self::Kernel(part) | Self::Program(part) => part,
        })
    }
}

/// Says that this test is skipped. The test has to return after this call.
#[allow(clippy::print_stdout, reason = "the line is how a test run counts the test as skipped")]
pub fn skip(lack: Lack, detail: impl fmt::Display) {
    // The harness may have begun a line with the name of the test.
    println!("\nskipped: this machine lacks {lack} ({detail})");
}

/// Says that this test is skipped, and returns `None`, for a helper that gives the missing part.
pub fn lacks<T>(lack: Lack, detail: impl fmt::Display) -> Option<T> {
    skip(lack, detail);
    None
}
