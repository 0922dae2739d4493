//! Limits of the block layer that are lowered, on kernels that miscount then: Linux 6.1 to 6.5.
//!
//! The kernel grants what a limit allows by slices of a tenth of a second: all of a slice at its beginning. When a
//! limit is written while requests wait, a new slice begins, and what the old one granted in advance is taken off.
//! Down to 6.5 the result has no sign: a small limit that follows a large one early in a slice is none at all, and
//! what it lets pass keeps the cgroup waiting afterwards, for up to tens of seconds. Mended in Linux 6.6 by commit
//! bb8d5587bdc3 ("blk-throttle: fix wrong comparation").
//!
//! Late in a slice little was granted in advance, so that a limit can be halved there: measured, from half of the
//! slice on. After a slice in which nothing waits, nothing is owed: so begin the limits of a cgroup that had none, or
//! that another program lowered.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use crate::cgroup::IoLimit;
use crate::device::DeviceNumber;
use crate::root::SystemRoot;

/// The kernels that miscount: from the first on, and before the second.
const MISCOUNT: Range<(u32, u32)> = (6, 1)..(6, 6);

/// The length of a slice, unless `queue/throttle_sample_time` says another one (CONFIG_BLK_DEV_THROTTLING_LOW).
const SLICE: Duration = Duration::from_millis(100);

/// The part of a slice after which a limit is halved. So at most half of the slice was granted in advance, also if
/// the write comes somewhat early or late.
const LATE: f64 = 0.8;

/// The part of a slice from which on the next write may fall into the next slice.
const TOO_LATE: f64 = 0.96;

/// The number of times that a step may come too late, as on a machine with much to do, until one slice goes by in
/// which nothing waits.
const MOST_LATE: u32 = 5;

/// The way to lower limits on this kernel.
#[derive(Debug, Clone)]
pub(super) struct LimitLowering {
    root: SystemRoot,
    is_miscounted: bool,
}

impl LimitLowering {
    pub(super) fn new(root: &SystemRoot) -> Self {
        let is_miscounted = root.kernel_version().is_some_and(|version| MISCOUNT.contains(&version));
        Self { root: root.clone(), is_miscounted }
    }

    /// Returns the steps from a limit in force to another one; `None` if that can be written at once. `is_owed`
    /// says that the kernel may have miscounted already.
    pub(super) fn steps(
        &self,
        device: DeviceNumber,
        before: IoLimit,
        goal: IoLimit,
        is_owed: bool,
    ) -> Option<LoweringSteps> {
        let begins = is_owed || goal.limits_more_than(before);
        if !self.is_miscounted || !(begins || goal.is_below(before)) {
            return None;
        }
        let reached = if begins { goal.wide() } else { before };
        Some(LoweringSteps {
            goal,
            reached,
            begins,
            slice: self.slice(device),
            since: Instant::now(),
            late: 0,
        })
    }

    fn slice(&self, device: DeviceNumber) -> Duration {
        let told = self.root.read(format!("/sys/dev/block/{device}/queue/throttle_sample_time")).ok();
        told.and_then(|millis| millis.trim().parse().ok()).map_or(SLICE, Duration::from_millis)
    }
}

/// One limit that is lowered by steps. The first one is to be written at once, and begins a slice.
#[derive(Debug, Clone)]
pub(super) struct LoweringSteps {
    goal: IoLimit,
    reached: IoLimit,
    /// True in the slice in which nothing waits.
    begins: bool,
    slice: Duration,
    /// The time of the step.
    since: Instant,
    /// The number of steps that came too late.
    late: u32,
}

impl LoweringSteps {
    /// Returns the step that is to be in force now.
    pub(super) const fn reached(&self) -> IoLimit {
        self.reached
    }

    /// Goes on to the next step, which is to be written at once. It is the same one again if the slice may be over.
    pub(super) fn advance(&mut self) {
        if std::mem::take(&mut self.begins) {
            self.reached = self.goal;
        } else if self.since.elapsed() < self.slice.mul_f64(TOO_LATE) {
            self.reached = self.goal.at_least_half_of(self.reached);
        } else if self.late < MOST_LATE {
            self.late += 1;
        } else {
            (self.reached, self.begins) = (self.goal.wide(), true);
        }
        self.since = Instant::now();
    }

    /// Returns true after the last step.
    pub(super) fn is_over(&self) -> bool {
        !self.begins && self.reached == self.goal
    }

    fn pause(&self) -> Duration {
        self.slice.mul_f64(if self.begins { 1.0 + LATE } else { LATE })
    }
}

/// Waits for the time of the next step of limits whose steps were all written just now. Returns false if there is
/// none left.
pub(super) fn wait_for_next<'a>(all: impl Iterator<Item = &'a LoweringSteps>) -> bool {
    let pause = all.map(LoweringSteps::pause).max();
    pause.into_iter().for_each(thread::sleep);
    pause.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::Iops;

    use super::*;
    use crate::trees::write_file;

    const DEVICE: DeviceNumber = DeviceNumber::new(7, 1);

    fn on_kernel(version: &str, slice: &str) -> (tempfile::TempDir, LimitLowering) {
        let folder = tempfile::tempdir().unwrap();
        write_file(folder.path(), "proc/sys/kernel/osrelease", version.as_bytes()).unwrap();
        let file = "sys/dev/block/7:1/queue/throttle_sample_time";
        write_file(folder.path(), file, slice.as_bytes()).unwrap();
        let lowering = LimitLowering::new(&SystemRoot::at(folder.path()));
        (folder, lowering)
    }

    fn rate(per_second: f64) -> IoLimit {
        IoLimit::NONE.writes(Iops::new(per_second))
    }

    fn steps(before: IoLimit, goal: IoLimit, is_owed: bool) -> Vec<IoLimit> {
        // No step is late.
        let (_folder, lowering) = on_kernel("6.1.0-40-amd64\n", "1000000\n");
        let Some(mut steps) = lowering.steps(DEVICE, before, goal, is_owed) else { return Vec::new() };
        let mut all = vec![steps.reached()];
        while !steps.is_over() {
            steps.advance();
            all.push(steps.reached());
        }
        all
    }

    #[test]
    fn a_limit_is_halved_until_it_is_reached() {
        let down = steps(rate(1_000.0), rate(200.0), false);
        assert_eq!(down, [1_000.0, 500.0, 250.0, 200.0].map(rate));
        assert_eq!(steps(rate(100.0), rate(200.0), false), []);
    }

    #[test]
    fn a_first_limit_and_one_after_a_miscount_begin_with_a_slice_in_which_nothing_waits() {
        for (before, is_owed) in [(IoLimit::NONE, false), (rate(100.0), true)] {
            let steps = steps(before, rate(100.0), is_owed);
            assert_eq!((steps.len(), steps[1]), (2, rate(100.0)));
            assert!(steps[0].write_rate().unwrap().per_second() > 1e6);
        }
    }

    #[test]
    fn only_kernels_that_miscount_need_steps_which_have_the_length_of_their_slices() {
        let cases = [
            ("6.0.19", false),
            ("6.1.0-40-amd64\n", true),
            ("6.5.13-generic", true),
            ("6.6.1", false),
            ("7.0", false),
            ("", false),
        ];
        for (version, expected) in cases {
            let (_folder, lowering) = on_kernel(version, "20\n");
            let steps = lowering.steps(DEVICE, rate(200.0), rate(100.0), false);
            assert_eq!(steps.map(|steps| steps.pause().as_millis()), expected.then_some(16), "{version}");
        }
    }

    #[test]
    fn a_step_that_comes_too_late_is_written_again_and_at_last_a_slice_goes_by() {
        let (_folder, lowering) = on_kernel("6.1.0", "1\n");
        let mut steps = lowering.steps(DEVICE, rate(200.0), rate(100.0), false).unwrap();
        for _ in 0..MOST_LATE {
            thread::sleep(Duration::from_millis(1));
            steps.advance();
            assert_eq!(steps.reached(), rate(200.0));
        }
        thread::sleep(Duration::from_millis(1));
        steps.advance();
        assert!(!steps.is_over() && rate(200.0).is_below(steps.reached()));
        steps.advance();
        assert!(steps.is_over());
    }

    proptest! {
        #[test]
        fn steps_end_at_the_goal_and_never_at_less_than_half_of_the_one_before(
            before in 2.0..1e8, goal in 1.0..1e8, is_owed: bool,
        ) {
            let (before, goal) = (rate(before), rate(goal));
            let all = steps(before, goal, is_owed);
            prop_assert!(all.len() < 32 && all.last().is_none_or(|last| *last == goal));
            prop_assert_eq!(all.is_empty(), !is_owed && !goal.is_below(before));
            for pair in all.windows(2).skip(usize::from(is_owed)) {
                let [one, next] = [pair[0], pair[1]].map(|limit| limit.write_rate().unwrap().per_second());
                prop_assert!(2.0 * next >= one);
            }
        }
    }
}
