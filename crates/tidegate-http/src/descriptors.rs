//! The process' file descriptors: as many as the system allows, and a reserve that HTTP leaves to the data
//! path.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that HTTP never takes: for new sessions, for the kernel's files that the agent reads and
/// writes at every interval, and for the programs that it starts. Chosen: a rescan of the agent has some
/// dozen files open.
const RESERVE: u64 = 256;

/// Raises the soft limit of open files to the hard limit, and returns it. Most systems start services with a
/// soft limit of 1,024, which is there for programs that use `select`; none of ours does.
///
/// # Errors
/// When the system refuses.
pub fn raise_limit() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum)
}

/// Returns true if a descriptor that was opened just now lies in the reserve. The kernel gives the lowest
/// free number: all below it are in use.
pub(crate) fn is_reserved(descriptor: i32) -> bool {
    lies_in_reserve(descriptor, getrlimit(Resource::Nofile).current)
}

fn lies_in_reserve(descriptor: i32, limit: Option<u64>) -> bool {
    // Where the limit is small, HTTP leaves half of it.
    limit.is_some_and(|limit| {
        u64::try_from(descriptor).is_ok_and(|number| number >= limit - RESERVE.min(limit / 2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_what_is_left_below_the_limit() {
        for (descriptor, limit, reserved) in [
            (767, Some(1024), false),
            (768, Some(1024), true),
            (31, Some(64), false),
            (32, Some(64), true),
            (1_000_000, None, false),
            (0, Some(0), true),
        ] {
            assert_eq!(lies_in_reserve(descriptor, limit), reserved, "{descriptor} of {limit:?}");
        }
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise_limit().unwrap(), hard);
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }
}
