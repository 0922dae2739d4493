//! The mark of a cgroup whose limits are ours, with the limits that it had before: an extended attribute of
//! its directory. The kernel keeps it in memory until the cgroup is removed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::cgroup::{CgroupTree, CgroupVersion, IoLimit};
use crate::device::DeviceNumber;

/// The attribute's name by v2. The owner of a cgroup's directory may set it (Linux 5.7), even if others own
/// its files. The owner of a delegated cgroup can have limits lifted by it.
const NAME_BY_V2: &str = "user.tidegate";

/// The attribute's name by v1, which has no attributes of the other kind. This kind takes CAP_SYS_ADMIN.
const NAME_BY_V1: &str = "trusted.tidegate";

/// The longest that is read. The kernel takes 64 KiB.
const MOST_BYTES: usize = 65_536;

/// The separator between the limits of a device.
const SEPARATOR: &str = "; ";

/// The limits of a device before and after ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitMark {
    /// The limit that others had set, if any.
    pub(super) found: IoLimit,
    /// The limit that we were asked for.
    pub(super) wanted: IoLimit,
    /// The limit in force before this one. As long as the new one is not written, or by v1 not to all four
    /// files, the old one still applies.
    pub(super) before: IoLimit,
    /// The limit that we have set: number by number, the lower one of `found` and `wanted`.
    pub(super) in_force: IoLimit,
}

impl LimitMark {
    /// Returns the mark for a limit of ours in place of the one `seen`. `found` is the limit that others
    /// want.
    pub(super) fn over(seen: IoLimit, found: IoLimit, wanted: IoLimit) -> Self {
        Self { found, wanted, before: seen, in_force: found.min(wanted) }
    }

    /// Returns the limit that others want, if this one is seen. It is decided number by number: if others
    /// write one number, the rest are still ours.
    pub(super) fn theirs(self, seen: IoLimit) -> IoLimit {
        seen.without([self.before, self.in_force], self.found)
    }

    fn text(self) -> String {
        [self.found, self.before, self.in_force].map(IoLimit::numbers).join(SEPARATOR)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut limits = text.split(SEPARATOR).map(IoLimit::parse_numbers);
        let [found, before, in_force] = [limits.next()??, limits.next()??, limits.next()??];
        limits.next().is_none().then_some(Self { found, wanted: in_force, before, in_force })
    }
}

/// The devices that a cgroup's mark is about; `None` if it has none, or is gone. What cannot be understood is
/// left out.
pub(super) fn read(
    tree: &CgroupTree,
    directory: &Path,
) -> io::Result<Option<BTreeMap<DeviceNumber, LimitMark>>> {
    Ok(get(directory, name(tree))?.map(|text| parse(&text)))
}

/// Marks a device of a cgroup, or takes its mark away. One that is not there needs none.
pub(super) fn write(
    tree: &CgroupTree,
    directory: &Path,
    device: DeviceNumber,
    mark: Option<LimitMark>,
) -> io::Result<()> {
    let mut marks = read(tree, directory)?.unwrap_or_default();
    match mark {
        Some(mark) => drop(marks.insert(device, mark)),
        None => drop(marks.remove(&device)),
    }
    if marks.is_empty() {
        return clear(tree, directory);
    }
    let lines: String = marks.iter().map(|(device, mark)| format!("{device} {}\n", mark.text())).collect();
    match set(directory, name(tree), &lines) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Takes all marks of a cgroup away.
pub(super) fn clear(tree: &CgroupTree, directory: &Path) -> io::Result<()> {
    match removexattr(directory, name(tree)) {
        Err(Errno::NODATA | Errno::NOENT) => Ok(()),
        done => done.map_err(io::Error::from),
    }
}

/// Checks that a cgroup can be marked.
pub(super) fn try_out(tree: &CgroupTree, directory: &Path) -> io::Result<()> {
    set(directory, name(tree), "trial")
}

fn name(tree: &CgroupTree) -> &'static str {
    match tree.version() {
        CgroupVersion::V1 => NAME_BY_V1,
        CgroupVersion::V2 => NAME_BY_V2,
    }
}

fn set(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    setxattr(directory, name, text.as_bytes(), XattrFlags::empty()).map_err(|error| {
        io::Error::new(io::Error::from(error).kind(), format!("cannot mark it by {name}: {error}"))
    })
}

fn get(directory: &Path, name: &str) -> io::Result<Option<String>> {
    let mut bytes = vec![0; MOST_BYTES];
    match getxattr(directory, name, &mut bytes[..]) {
        Ok(length) => Ok(Some(String::from_utf8_lossy(&bytes[..length]).into_owned())),
        Err(Errno::NODATA | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn parse(text: &str) -> BTreeMap<DeviceNumber, LimitMark> {
    let line = |line: &str| {
        let (device, limits) = line.split_once(' ')?;
        Some((device.parse().ok()?, LimitMark::parse(limits)?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::Iops;

    use super::*;

    fn limit() -> impl Strategy<Value = IoLimit> {
        (prop::option::of(1.0..1e6), prop::option::of(1.0..1e6)).prop_map(|(reads, writes)| {
            let limit = reads.map_or(IoLimit::NONE, |rate| IoLimit::NONE.reads(Iops::new(rate)));
            writes.map_or(limit, |rate| limit.writes(Iops::new(rate)))
        })
    }

    proptest! {
        #[test]
        fn a_mark_says_after_a_sigkill_what_it_said_before(found in limit(),
            wanted in prop::collection::vec(limit(), 1..4)) {
            let device = DeviceNumber::new(7, 1);
            let mut mark = LimitMark::over(found, found, wanted[0]);
            for wanted in &wanted[1..] {
                mark = LimitMark::over(mark.in_force, found, *wanted);
            }
            let text = format!("{device} {}\n", mark.text());
            let read = parse(&text)[&device];
            prop_assert_eq!((read.found, read.before, read.in_force),
                (mark.found, mark.before, mark.in_force));
            // The later of the two, and never more than the limit that another program set.
            for seen in [mark.before, mark.in_force, found] {
                prop_assert_eq!(read.theirs(seen), found);
            }
            prop_assert_eq!(mark.in_force.min(found), mark.in_force);
        }

        #[test]
        fn what_is_somebody_elses_is_known_while_the_limit_is_not_written_yet(
            before in limit(), in_force in limit(), found in limit(), seen in limit(), wanted in limit(),
        ) {
            let theirs = LimitMark { found, wanted: in_force, before, in_force }.theirs(seen);
            let mark = LimitMark::over(seen, theirs, wanted);
            prop_assert_eq!((mark.theirs(seen), mark.theirs(mark.in_force)), (theirs, theirs));
        }

        #[test]
        fn any_text_is_read_or_left_out(text in "([0-9]:[0-9] |riops=|max|; |[0-9]|\\PC|\n){0,30}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn a_limit_that_somebody_else_set_meanwhile_is_not_ours() {
        let rate = |rate| IoLimit::NONE.reads(Iops::new(rate));
        let mark = LimitMark::over(rate(100.0), IoLimit::NONE, rate(90.0));
        for ours in [IoLimit::NONE, rate(100.0), rate(90.0)] {
            assert_eq!(mark.theirs(ours), IoLimit::NONE);
        }
        assert_eq!(mark.theirs(rate(50.0)), rate(50.0));
        let theirs = IoLimit::NONE.writes(Iops::new(5.0));
        assert_eq!(mark.theirs(theirs.min(rate(90.0))), theirs, "one number of several");
    }
}
