//! Remedies: errors that say what would help.

use std::io;

use rustix::io::Errno;

/// The remedy for missing classes.
pub(super) const HTB: &str = "the kernel module sch_htb (CONFIG_NET_SCH_HTB)";

/// The kernel says of a module that it does not have what it says of a thing that is not there: what it may
/// take is said, too.
pub(super) fn with_remedy(error: io::Error, remedy: &str) -> io::Error {
    let unknown = [Errno::NOENT, Errno::OPNOTSUPP, Errno::NOSYS];
    if unknown.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return io::Error::new(error.kind(), format!("{error}; perhaps it takes {remedy}"));
    }
    error
}
