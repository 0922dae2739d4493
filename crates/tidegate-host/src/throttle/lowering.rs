//! Limits of the block layer that are lowered, on kernels that miscount then: Linux 6.1 to 6.5.
//!
//! The kernel grants what a limit allows by slices of a tenth of a second: all of a slice at its beginning. When a
//! limit is written while requests wait, a new slice begins, and what the old one granted in advance is taken off.
//! Up to 6.5 the result has no sign: a small limit that follows a large one early in a slice is none at all, and
//! what it lets pass keeps the cgroup waiting afterwards, for up to tens of seconds. Linux 6.6 is right since commit
//! bb8d5587bdc3 ("blk-throttle: fix wrong comparation").
//!
//! Late in a slice little was granted in advance, and a limit can be halved: measured, from half of the slice on.
//! After a slice in which nothing waits, nothing is owed. Such a slice is made by a number that no device reaches. It
//! comes before a number that there was none of, that is far below the one before, or that another program lowered.

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

/// The part of a slice from which on a write may come after its end.
const TOO_LATE: f64 = 0.96;

/// The most steps in a row that come too late, as on a machine with much to do. Then a slice is made in which nothing
/// waits.
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

    /// Returns the steps from a limit in force to another one; `None` if that can be written at once. `ours` is the
    /// limit that was in force when it was written last: another program may have lowered it since.
    pub(super) fn steps(
        &self,
        device: DeviceNumber,
        before: IoLimit,
        ours: Option<IoLimit>,
        goal: IoLimit,
    ) -> Option<LoweringSteps> {
        let ours = ours.unwrap_or(before);
        let first = goal.first_step(before, ours);
        if !self.is_miscounted || first == goal {
            return None;
        }
        let slice = if first.is_wide() { SliceKind::Free } else { SliceKind::Granted };
        let length = self.slice(device);
        Some(LoweringSteps {
            goal,
            reached: first,
            from: before.or(goal.wide()),
            slice,
            length,
            since: Instant::now(),
            late: 0,
        })
    }

    fn slice(&self, device: DeviceNumber) -> Duration {
        let told = self.root.read(format!("/sys/dev/block/{device}/queue/throttle_sample_time")).ok();
        told.and_then(|millis| millis.trim().parse().ok()).map_or(SLICE, Duration::from_millis)
    }
}

/// One limit that is lowered by steps. The first one is to be written at once.
#[derive(Debug, Clone)]
pub(super) struct LoweringSteps {
    goal: IoLimit,
    reached: IoLimit,
    /// The limit from which it is lowered.
    from: IoLimit,
    slice: SliceKind,
    length: Duration,
    /// The beginning of the slice: the time of the last write.
    since: Instant,
    /// The number of steps in a row that came too late.
    late: u32,
}

/// The slice that the last write began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SliceKind {
    /// Requests may wait for what it grants.
    Granted,
    /// A number is so high that nothing waits for it.
    Free,
    /// The limit was halved after the end of the slice before, so that the kernel may have miscounted.
    Missed,
}

impl LoweringSteps {
    /// Returns the step that is to be in force now.
    pub(super) const fn reached(&self) -> IoLimit {
        self.reached
    }

    /// Goes on to the next step, which is to be written at once. It may be the same one again.
    pub(super) fn advance(&mut self) {
        let slices = if self.slice == SliceKind::Free { 1.0 } else { 0.0 };
        let is_late = self.since.elapsed() >= self.length.mul_f64(slices + TOO_LATE);
        self.late = if is_late { self.late + 1 } else { 0 };
        if self.slice == SliceKind::Missed || self.late > MOST_LATE {
            (self.reached, self.late) = (self.goal.wide_where_below(self.from), 0);
        } else {
            self.reached = self.goal.next_step(self.reached, !is_late);
        }
    }

    /// Takes note that the step was written just now.
    pub(super) fn written(&mut self) {
        let is_halved = self.slice == SliceKind::Granted && self.late == 0;
        self.slice = match self.reached.is_wide() {
            true => SliceKind::Free,
            false if is_halved && self.since.elapsed() >= self.length => SliceKind::Missed,
            false => SliceKind::Granted,
        };
        self.since = Instant::now();
    }

    /// Returns true after the last step.
    pub(super) fn is_over(&self) -> bool {
        self.slice == SliceKind::Granted && self.reached == self.goal
    }

    /// Returns true if it is time for the next step.
    pub(super) fn is_due(&self) -> bool {
        self.wait().is_zero()
    }

    fn wait(&self) -> Duration {
        let slices = match self.slice {
            SliceKind::Granted => LATE,
            SliceKind::Free => 1.0 + LATE,
            SliceKind::Missed => 0.0,
        };
        self.length.mul_f64(slices).saturating_sub(self.since.elapsed())
    }
}

/// Waits until it is time for the next step of any limit. Returns false if there is none left.
pub(super) fn wait_for_next<'a>(all: impl Iterator<Item = &'a LoweringSteps>) -> bool {
    let wait = all.map(LoweringSteps::wait).min();
    wait.into_iter().for_each(thread::sleep);
    wait.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::{ByteRate, Iops};

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

    fn steps(before: IoLimit, ours: Option<IoLimit>, goal: IoLimit) -> Vec<IoLimit> {
        // No step is late.
        let (_folder, lowering) = on_kernel("6.1.0-40-amd64\n", "1000000\n");
        let Some(mut steps) = lowering.steps(DEVICE, before, ours, goal) else { return Vec::new() };
        steps.written();
        let mut all = vec![steps.reached()];
        while !steps.is_over() {
            steps.advance();
            steps.written();
            all.push(steps.reached());
        }
        all
    }

    #[test]
    fn a_limit_is_halved_until_it_is_reached() {
        assert_eq!(steps(rate(1_000.0), None, rate(200.0)), [1_000.0, 500.0, 250.0, 200.0].map(rate));
        assert_eq!(steps(rate(100.0), None, rate(200.0)), []);
        assert_eq!(steps(rate(100.0), None, IoLimit::NONE), []);
    }

    #[test]
    fn a_slice_in_which_nothing_waits_comes_first_where_halving_does_not_help() {
        let new = (IoLimit::NONE, None);
        let of_another_program = (rate(100.0), Some(rate(3_000.0)));
        let far_above = (rate(100_000.0), None);
        for (before, ours) in [new, of_another_program, far_above] {
            let steps = steps(before, ours, rate(100.0));
            assert_eq!((steps.len(), steps[1]), (2, rate(100.0)));
            assert!(steps[0].is_wide());
        }
    }

    #[test]
    fn a_number_that_is_not_lowered_stays_in_force() {
        let theirs = IoLimit::NONE.write_bytes(ByteRate::new(1e6));
        for step in steps(theirs, None, theirs.min(rate(100.0))) {
            assert_eq!(step.write_byte_rate(), theirs.write_byte_rate());
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
            let (_folder, lowering) = on_kernel(version, "20000\n");
            let steps = lowering.steps(DEVICE, rate(200.0), None, rate(100.0));
            let is_waited = steps.map(|steps| (10..=16).contains(&steps.wait().as_secs()));
            assert_eq!(is_waited, expected.then_some(true), "{version}");
        }
    }

    #[test]
    fn a_step_that_comes_too_late_is_written_again_and_at_last_a_free_slice_is_made() {
        let (_folder, lowering) = on_kernel("6.1.0", "1\n");
        let mut steps = lowering.steps(DEVICE, rate(200.0), None, rate(100.0)).unwrap();
        for _ in 0..MOST_LATE {
            thread::sleep(Duration::from_millis(1));
            steps.advance();
            steps.written();
            assert_eq!(steps.reached(), rate(200.0));
        }
        thread::sleep(Duration::from_millis(1));
        steps.advance();
        steps.written();
        assert!(!steps.is_over() && steps.reached().is_wide());
        thread::sleep(Duration::from_millis(2));
        steps.advance();
        steps.written();
        assert!(steps.is_over());
    }

    #[test]
    fn after_a_write_that_came_too_late_a_free_slice_is_made() {
        let (_folder, lowering) = on_kernel("6.1.0", "200\n");
        let mut steps = lowering.steps(DEVICE, rate(200.0), None, rate(100.0)).unwrap();
        steps.advance();
        assert_eq!(steps.reached(), rate(100.0));
        thread::sleep(Duration::from_millis(200));
        steps.written();
        assert!(!steps.is_over() && steps.is_due());
        steps.advance();
        steps.written();
        assert!(steps.reached().is_wide());
    }

    proptest! {
        #[test]
        fn steps_end_at_the_goal_and_only_a_free_slice_precedes_less_than_half(
            before in 2.0..1e8, goal in 1.0..1e8, ours in prop::option::of(2.0..1e8),
        ) {
            let (before, goal, ours) = (rate(before), rate(goal), ours.map(rate));
            let all = steps(before, ours, goal);
            prop_assert!(all.len() <= 5 && all.last().is_none_or(|last| *last == goal));
            let writes = |limit: IoLimit| limit.write_rate().unwrap().per_second();
            let is_owed = ours.is_some_and(|ours| writes(before) < writes(ours));
            prop_assert_eq!(all.is_empty(), !is_owed && writes(goal) >= writes(before));
            for pair in all.windows(2) {
                let [one, next] = [pair[0], pair[1]].map(writes);
                prop_assert!(2.0 * next >= one || pair[0].is_wide());
            }
        }
    }
}
