//! The reports of a node's own sensor, and the broker's conclusions from them.
//!
//! The clocks of the two are not compared. A report says for how long its sensor has been at work, and the
//! broker records when it came. The quickest report sets the least delay; a later one that took longer spent
//! the rest on the way. A report is believed as long as it is recent. Afterwards nothing is known, which does
//! not mean that nothing moves.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_placement::DeviceLane;
use tidegate_units::{ByteRate, Bytes, Instant, Latency};

/// The kind of storage system that a node is. Nikolow names hierarchical stores, disk arrays, local disks and
/// a cluster file system, and gives them one model; object stores are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// A disk of the node's own.
    Disk,
    /// An array of disks, or a volume on one.
    Array,
    /// A file system of several machines.
    ClusterFileSystem,
    /// A server of objects.
    ObjectStore,
    /// A hierarchy of disk and tape: data that is no longer on disk has to be recalled.
    Tape,
}

impl NodeKind {
    /// Each kind by its name in a configuration.
    pub const NAMED: [(&str, Self); 5] = [
        ("disk", Self::Disk),
        ("array", Self::Array),
        ("cluster-file-system", Self::ClusterFileSystem),
        ("object-store", Self::ObjectStore),
        ("tape", Self::Tape),
    ];
}

/// `POST /v1/nodes/{name}/report`: a storage system as its sensor sees it, whatever it is made of. Values
/// that the sensor cannot know are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensorReport {
    /// This start of the sensor: 16 hexadecimal digits drawn at random.
    pub run: String,
    /// The number of the report, from 1.
    pub sequence: u64,
    /// The time for which it has been at work, by its own clock, in seconds.
    pub at_s: f64,
    /// The time that the current rates cover, in seconds.
    pub interval_s: f64,
    /// The kind of storage system.
    pub kind: NodeKind,
    /// The state of its reads.
    pub read: SensedLane,
    /// The state of its writes.
    pub write: SensedLane,
    /// The free space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Bytes>,
    /// The size of the storage system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
}

/// One direction of a storage system, for all of its users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensedLane {
    /// The rate in the last interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_bps: Option<f64>,
    /// The mean of the last ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_average_bps: Option<f64>,
    /// The most that the sensor has seen, aged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bps: Option<f64>,
    /// The mean time that its requests took in the last interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_s: Option<f64>,
}

/// The reason why a report is not taken. None of them changes what is known.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ReportError {
    /// The configuration does not allow reports on the node.
    #[error(
        "no reports are taken of node `{0}`: add `agent = true` to its table in the broker's configuration"
    )]
    NotAsked(String),
    /// A value is out of range, or contradicts another.
    #[error("`{field}` cannot be {value}: it is {range}")]
    Unbelievable {
        /// The field.
        field: &'static str,
        /// The value of the field.
        value: f64,
        /// The range that it may have.
        range: &'static str,
    },
    /// The `run` does not have the form of a sensor's.
    #[error("a sensor's `run` is 16 of the digits 0 to 9 and a to f, drawn at random when it starts")]
    Run,
    /// Two sensors report on one node.
    #[error(
        "another sensor reports on this node, and was heard of within three of its intervals: one node, one \
            sensor; after a restart it is \
         taken once the other is silent"
    )]
    Another,
    /// A report with a later number came before it.
    #[error("report {0} came after report {1}")]
    Late(u64, u64),
}

/// The greatest rate of a storage node, in bytes per second: a thousand times that of the fastest one.
pub(crate) const FASTEST: f64 = 1e15;

/// The longest time to a first byte, in seconds: a day.
pub(crate) const SLOWEST: f64 = 86_400.0;

impl SensorReport {
    /// The shortest and the longest interval at which sensors are to report, in seconds.
    pub const INTERVALS: std::ops::RangeInclusive<f64> = 0.05..=60.0;

    /// The range of measured intervals, in seconds. No clock wakes at its time to the microsecond, and a busy
    /// machine's wakes late.
    pub const MEASURED: std::ops::RangeInclusive<f64> = 0.02..=120.0;

    /// Checks every number.
    ///
    /// # Errors
    /// Which one cannot be.
    pub fn validate(&self) -> Result<(), ReportError> {
        if !crate::name::is_id(&self.run) {
            return Err(ReportError::Run);
        }
        let check = |field, value: f64, right: bool, range| {
            if right { Ok(()) } else { Err(ReportError::Unbelievable { field, value, range }) }
        };
        let (interval, at) = (self.interval_s, self.at_s);
        check("interval_s", interval, Self::MEASURED.contains(&interval), "within 0.02 and 120")?;
        check("at_s", at, (0.0..=1e12).contains(&at), "within 0 and 10¹²")?;
        for lane in [&self.read, &self.write] {
            for (field, rate) in [
                ("current_bps", lane.current_bps),
                ("moving_average_bps", lane.moving_average_bps),
                ("peak_bps", lane.peak_bps),
            ] {
                let rate = rate.unwrap_or_default();
                check(field, rate, (0.0..=FASTEST).contains(&rate), "within 0 and 10¹⁵")?;
            }
            let latency = lane.latency_s.unwrap_or_default();
            check("latency_s", latency, (0.0..=SLOWEST).contains(&latency), "within 0 and a day")?;
        }
        Ok(())
    }
}

/// The reports of one sensor.
#[derive(Debug, Clone)]
pub(crate) struct SensorHistory {
    last: SensorReport,
    arrived: Instant,
    /// The offset of its sensor's clock that the quickest report shows: the least time by which one came
    /// after it.
    offset: f64,
    /// The time that the last report spent on the way beyond that.
    delay: f64,
    /// The number of reports in a row that came late, each as long after the one before as it was made.
    evenly_late: u32,
    /// The sum of bytes since the last look, reads first, and of their seconds.
    moved: [Sum; 2],
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    bytes: f64,
    seconds: f64,
}

impl SensorHistory {
    /// The number of its intervals after which a sensor that is not heard is silent.
    const PATIENCE: f64 = 3.0;

    /// The rate at which the quickest way is forgotten. No two clocks differ by more. Without it, a clock
    /// that drifts would make all reports of later days late.
    const DRIFT: f64 = 1e-3;

    /// The number of evenly late reports in a row after which they count as punctual. A cause that delays
    /// reports does not delay ten of them alike. Their sensor's clock stood still instead, as it does while
    /// its machine is suspended, or stopped by a hypervisor.
    const EVENLY_LATE: u32 = 10;

    /// Takes the first report of a sensor.
    pub(crate) fn first(now: Instant, report: SensorReport) -> Result<Self, ReportError> {
        report.validate()?;
        let offset = now.as_secs_f64() - report.at_s;
        let mut heard = Self {
            arrived: now,
            offset,
            delay: 0.0,
            evenly_late: 0,
            moved: Default::default(),
            last: report,
        };
        heard.add();
        Ok(heard)
    }

    /// Takes another report.
    pub(crate) fn hear(&mut self, now: Instant, report: SensorReport) -> Result<(), ReportError> {
        report.validate()?;
        if report.run != self.last.run {
            if self.is_recent(now) {
                return Err(ReportError::Another);
            }
            *self = Self::first(now, report)?;
            return Ok(());
        }
        if report.sequence <= self.last.sequence {
            return Err(ReportError::Late(report.sequence, self.last.sequence));
        }
        let since = now.saturating_since(self.arrived).as_secs_f64();
        let offset = now.as_secs_f64() - report.at_s;
        self.offset = (self.offset + since * Self::DRIFT).min(offset);
        self.delay = offset - self.offset;
        let interval = report.interval_s;
        let is_late = self.delay > Self::PATIENCE * interval;
        let is_even = (since - (report.at_s - self.last.at_s)).abs() <= interval / 2.0;
        self.evenly_late = if is_late && is_even { self.evenly_late + 1 } else { 0 };
        if self.evenly_late == Self::EVENLY_LATE {
            (self.offset, self.delay, self.evenly_late) = (offset, 0.0, 0);
        }
        (self.arrived, self.last) = (now, report);
        self.add();
        Ok(())
    }

    fn add(&mut self) {
        // However often it reports until the next look: it is one interval that counts, of whatever length.
        for (sum, lane) in self.moved.iter_mut().zip([&self.last.read, &self.last.write]) {
            match lane.current_bps {
                Some(rate) => {
                    sum.bytes += rate * self.last.interval_s;
                    sum.seconds += self.last.interval_s;
                }
                None => *sum = Sum::default(),
            }
        }
    }

    /// Returns the age of its last report.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_since(self.arrived) + Duration::from_secs_f64(self.delay.clamp(0.0, 1e9))
    }

    /// Returns true if its last report is believed.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.age(now).as_secs_f64() <= Self::PATIENCE * self.last.interval_s
    }

    /// Returns its last report.
    pub(crate) const fn last(&self) -> &SensorReport {
        &self.last
    }

    /// Returns the reports since the last call as one sample, or the last one if there was none since. `None`
    /// if it is too old.
    pub(crate) fn sample(&mut self, now: Instant) -> Option<DeviceSample> {
        let moved = std::mem::take(&mut self.moved);
        if !self.is_recent(now) {
            return None;
        }
        let lane = |lane: &SensedLane, moved: Sum| DeviceLane {
            rate: lane.current_bps.map(|last| {
                ByteRate::new(if moved.seconds > 0.0 { moved.bytes / moved.seconds } else { last })
            }),
            latency: lane.latency_s.map(Latency::from_secs_f64),
        };
        let SensorReport { read, write, free, .. } = &self.last;
        Some(DeviceSample { lanes: [lane(read, moved[0]), lane(write, moved[1])], free: *free })
    }
}

/// The activity of a node's device since the last sample, for all of its users.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceSample {
    /// The two directions, reads first.
    pub lanes: [DeviceLane; 2],
    /// The free space.
    pub free: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(sequence: u64, at_s: f64) -> SensorReport {
        let lane = SensedLane {
            current_bps: Some(10e6),
            moving_average_bps: Some(9e6),
            peak_bps: Some(60e6),
            latency_s: Some(0.004),
        };
        SensorReport {
            run: "0123456789abcdef".to_owned(),
            sequence,
            at_s,
            interval_s: 1.0,
            kind: NodeKind::Array,
            read: SensedLane::default(),
            write: lane,
            free: Some(Bytes::new(1000)),
            size: None,
        }
    }

    fn at(seconds: f64) -> Instant {
        Instant::ZERO + Latency::from_secs_f64(seconds)
    }

    #[test]
    fn every_number_is_checked() {
        assert_eq!(report(1, 1.0).validate(), Ok(()));
        // No wake-up is as exact as its configuration.
        for interval_s in [SensorReport::INTERVALS.start() * 0.9, SensorReport::INTERVALS.end() * 1.1] {
            assert_eq!(SensorReport { interval_s, ..report(1, 1.0) }.validate(), Ok(()));
        }
        let wrong = |change: fn(&mut SensorReport)| {
            let mut report = report(1, 1.0);
            change(&mut report);
            report.validate().unwrap_err().to_string()
        };
        assert!(wrong(|one| one.run = "mine".to_owned()).contains("16 of the digits"));
        assert!(wrong(|one| one.write.current_bps = Some(1e16)).contains("`current_bps` cannot be"));
        assert!(wrong(|one| one.read.peak_bps = Some(-1.0)).contains("`peak_bps`"));
        assert!(wrong(|one| one.read.moving_average_bps = Some(f64::NAN)).contains("`moving_average_bps`"));
        assert!(wrong(|one| one.write.latency_s = Some(1e6)).contains("`latency_s`"));
        assert!(wrong(|one| one.interval_s = 0.0).contains("`interval_s`"));
        assert!(wrong(|one| one.interval_s = f64::INFINITY).contains("`interval_s`"));
        assert!(wrong(|one| one.at_s = -1.0).contains("`at_s`"));
    }

    #[test]
    fn a_report_that_is_too_old_says_nothing() {
        let mut heard = SensorHistory::first(at(100.0), report(1, 1.0)).unwrap();
        assert_eq!(heard.sample(at(103.0)).unwrap().lanes[1].rate, Some(ByteRate::new(10e6)));
        assert_eq!(heard.sample(at(103.1)), None, "unknown, and not idle");
        heard.hear(at(104.0), report(2, 5.0)).unwrap();
        assert!(heard.sample(at(104.0)).is_some());
        // What was on its way for five seconds is as old, though it just came.
        heard.hear(at(110.0), report(3, 6.0)).unwrap();
        assert!(heard.age(at(110.0)) > Duration::from_millis(4900));
        assert_eq!(heard.sample(at(110.0)), None);
    }

    #[test]
    fn two_clocks_that_do_not_go_alike_made_all_reports_late() {
        // For a day, one that is slow by 200 µs in a second.
        let mut heard = SensorHistory::first(at(0.0), report(1, 0.0)).unwrap();
        for second in 1..86_400u32 {
            let (now, its) = (f64::from(second), f64::from(second) * 0.9998);
            heard.hear(at(now), report(u64::from(second) + 1, its)).unwrap();
        }
        assert!(heard.is_recent(at(86_399.0)));
    }

    #[test]
    fn a_machine_that_was_paused_made_all_later_reports_late() {
        let mut heard = SensorHistory::first(at(1.0), report(1, 1.0)).unwrap();
        // For ten seconds its clock stood still.
        for second in 2..=11u32 {
            heard.hear(at(f64::from(second) + 10.0), report(u64::from(second), f64::from(second))).unwrap();
            assert!(
                !heard.is_recent(at(f64::from(second) + 10.0)),
                "report {second}: it may have been on its way"
            );
        }
        heard.hear(at(22.0), report(12, 12.0)).unwrap();
        assert!(heard.is_recent(at(22.0)));
        assert_eq!(heard.age(at(22.5)), Duration::from_millis(500));
    }

    #[test]
    fn reports_that_wait_in_a_queue_stay_late() {
        let mut heard = SensorHistory::first(at(0.0), report(1, 0.0)).unwrap();
        // Each takes longer than the one before, and all that waited come at once.
        for second in 1..=40u32 {
            let (now, its) = (f64::from(second) * 1.6 + 5.0, f64::from(second));
            heard.hear(at(now), report(u64::from(second) + 1, its)).unwrap();
            assert!(!heard.is_recent(at(now)));
        }
        for second in 41..=64u32 {
            heard.hear(at(69.0), report(u64::from(second) + 1, f64::from(second))).unwrap();
            assert_eq!(heard.is_recent(at(69.0)), second >= 66, "report {second} of 69");
        }
    }

    #[test]
    fn what_was_overtaken_or_is_of_another_sensor_is_refused() {
        let mut heard = SensorHistory::first(at(0.0), report(5, 5.0)).unwrap();
        for sequence in [0, 5] {
            assert_eq!(heard.hear(at(0.5), report(sequence, 6.0)), Err(ReportError::Late(sequence, 5)));
        }
        let other = SensorReport { run: "f".repeat(16), ..report(1, 0.0) };
        assert_eq!(heard.hear(at(1.0), other.clone()), Err(ReportError::Another));
        assert_eq!(heard.hear(at(4.0), other.clone()), Ok(()), "the first is silent");
        assert_eq!(heard.last(), &other);
    }

    #[test]
    fn what_came_since_the_last_look_is_one_mean() {
        let with = |sequence: u64, interval_s: f64, rate: Option<f64>| {
            let write = SensedLane { current_bps: rate, ..SensedLane::default() };
            SensorReport { write, interval_s, ..report(sequence, sequence as f64) }
        };
        let mut heard = SensorHistory::first(at(1.0), with(1, 1.0, Some(10.0))).unwrap();
        heard.hear(at(2.0), with(2, 3.0, Some(30.0))).unwrap();
        let rate = |heard: &mut SensorHistory| heard.sample(at(2.0)).unwrap().lanes[1].rate;
        assert_eq!(rate(&mut heard), Some(ByteRate::new(25.0)));
        assert_eq!(rate(&mut heard), Some(ByteRate::new(30.0)), "nothing came since: it is as it was");
        heard.hear(at(3.0), with(3, 1.0, None)).unwrap();
        assert_eq!(rate(&mut heard), None);
    }

    proptest! {
        /// Results are finite and within bounds, whatever a sensor reports.
        #[test]
        fn a_liar_is_bounded(
            reports in prop::collection::vec((any::<u64>(), any::<f64>(), any::<f64>(), any::<f64>(),
                0.0..10.0f64), 1..40),
        ) {
            let mut heard: Option<SensorHistory> = None;
            let mut now = 0.0;
            for (sequence, at_s, rate, latency, pause) in reports {
                now += pause;
                let mut one = report(sequence, at_s);
                one.write.current_bps = Some(rate);
                one.write.latency_s = Some(latency);
                match &mut heard {
                    Some(heard) => drop(heard.hear(at(now), one)),
                    none => *none = SensorHistory::first(at(now), one).ok(),
                }
                if let Some(sample) = heard.as_mut().and_then(|heard| heard.sample(at(now))) {
                    let DeviceLane { rate, latency } = sample.lanes[1];
                    prop_assert!((0.0..=FASTEST * 1.001).contains(&rate.unwrap().per_second()));
                    prop_assert!(latency.unwrap() <= Latency::from_secs_f64(SLOWEST));
                }
            }
        }
    }
}
