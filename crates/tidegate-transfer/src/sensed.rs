//! What a node's own sensor tells the broker, and what the broker makes of it.
//!
//! Nobody's clocks are compared. A report says how long its sensor has been at work, and the broker when it
//! came: what later ones take longer than the quickest of them they spent on the way. A report is believed as
//! long as it is recent; afterwards nothing is known, which is not that nothing moves.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_placement::DeviceLane;
use tidegate_units::{ByteRate, Bytes, Instant, Latency};

use crate::broker::DeviceSample;

/// What kind of storage system a node is. Nikolow names hierarchical stores, disk arrays, local disks and a
/// cluster file system, and gives them one model; object stores are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A disk of the node's own.
    Disk,
    /// An array of disks, or a volume on one.
    Array,
    /// A file system of several machines.
    ClusterFileSystem,
    /// A server of objects.
    ObjectStore,
    /// A hierarchy of disk and tape: what is not on disk any more has to be recalled.
    Tape,
}

impl Kind {
    /// Each by its name in a configuration.
    pub const NAMED: [(&str, Self); 5] = [
        ("disk", Self::Disk),
        ("array", Self::Array),
        ("cluster-file-system", Self::ClusterFileSystem),
        ("object-store", Self::ObjectStore),
        ("tape", Self::Tape),
    ];
}

/// `POST /v1/nodes/{name}/report`: a storage system as its sensor sees it, whatever it is made of. Where a
/// sensor cannot know something, it does not say it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensed {
    /// This start of the sensor: 16 hexadecimal digits drawn at random.
    pub run: String,
    /// Which of its reports, from 1.
    pub sequence: u64,
    /// How long it has been at work, by its own clock, in seconds.
    pub at_s: f64,
    /// The time that the current rates are of, in seconds.
    pub interval_s: f64,
    /// What it is.
    pub kind: Kind,
    /// When it is read.
    pub read: SensedLane,
    /// When it is written.
    pub write: SensedLane,
    /// What is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Bytes>,
    /// How large it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
}

/// One direction of a storage system, whoever uses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensedLane {
    /// What moved in the last interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_bps: Option<f64>,
    /// The mean of the last ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_average_bps: Option<f64>,
    /// The most that the sensor has seen, aged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bps: Option<f64>,
    /// How long its requests took on average in the last interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_s: Option<f64>,
}

/// Why a report is not taken. None of them changes what is known.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ReportError {
    /// The configuration says otherwise.
    #[error(
        "no reports are taken of node `{0}`: add `agent = true` to its table in the broker's configuration"
    )]
    NotAsked(String),
    /// It contradicts itself, or what can be.
    #[error("`{field}` cannot be {value}: it is {range}")]
    Unbelievable {
        /// What.
        field: &'static str,
        /// What it was.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
    /// No sensor's.
    #[error("a sensor's `run` is 16 of the digits 0 to 9 and a to f, drawn at random when it starts")]
    Run,
    /// Two sensors say different things of one node.
    #[error(
        "another sensor reports on this node, and was heard of within three of its intervals: one node, one sensor; after a restart it is \
         taken once the other is silent"
    )]
    Another,
    /// It was overtaken.
    #[error("report {0} came after report {1}")]
    Late(u64, u64),
}

/// No storage node moves more: a thousand times what the fastest one does.
pub(crate) const FASTEST: f64 = 1e15;

/// Nothing takes longer to its first byte: a day.
pub(crate) const SLOWEST: f64 = 86_400.0;

impl Sensed {
    /// Sensors are to report no more often, and no more seldom, in seconds.
    pub const INTERVALS: std::ops::RangeInclusive<f64> = 0.05..=60.0;

    /// What they measure of it, in seconds: no clock wakes at its time to the microsecond, and a busy
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

/// What was heard of one sensor.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    last: Sensed,
    arrived: Instant,
    /// The least time by which a report came after its sensor's clock: of the quickest.
    offset: f64,
    /// What the last report spent on the way beyond that.
    delay: f64,
    /// So many reports in a row came late, and each as long after the one before as it was made.
    evenly_late: u32,
    /// Bytes since the last look, reads first, and the seconds of which they are.
    moved: [Sum; 2],
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    bytes: f64,
    seconds: f64,
}

impl Heard {
    /// A sensor that is not heard of for so many of its intervals is silent.
    const PATIENCE: f64 = 3.0;

    /// The quickest way is forgotten at this rate: no two clocks differ by more, and none must make all
    /// reports of later days late.
    const DRIFT: f64 = 1e-3;

    /// So many reports that are evenly late are not late: what holds reports up does not hold up ten of them
    /// alike. It is their sensor's clock that stood still, as one does while its machine is suspended, or
    /// stopped by a hypervisor.
    const EVENLY_LATE: u32 = 10;

    /// The first report of a sensor.
    pub(crate) fn first(now: Instant, report: Sensed) -> Result<Self, ReportError> {
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

    /// Another one.
    pub(crate) fn hear(&mut self, now: Instant, report: Sensed) -> Result<(), ReportError> {
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

    /// How old what it said last is.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_since(self.arrived) + Duration::from_secs_f64(self.delay.clamp(0.0, 1e9))
    }

    /// Whether what it said last is believed.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.age(now).as_secs_f64() <= Self::PATIENCE * self.last.interval_s
    }

    /// What it said last.
    pub(crate) const fn last(&self) -> &Sensed {
        &self.last
    }

    /// What it said since this was last asked for, or before where it said nothing since; `None` once that is
    /// too old.
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
        let Sensed { read, write, free, .. } = &self.last;
        Some(DeviceSample { lanes: [lane(read, moved[0]), lane(write, moved[1])], free: *free })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(sequence: u64, at_s: f64) -> Sensed {
        let lane = SensedLane {
            current_bps: Some(10e6),
            moving_average_bps: Some(9e6),
            peak_bps: Some(60e6),
            latency_s: Some(0.004),
        };
        Sensed {
            run: "0123456789abcdef".to_owned(),
            sequence,
            at_s,
            interval_s: 1.0,
            kind: Kind::Array,
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
        // Nobody's wake-up is as exact as his configuration.
        for interval_s in [Sensed::INTERVALS.start() * 0.9, Sensed::INTERVALS.end() * 1.1] {
            assert_eq!(Sensed { interval_s, ..report(1, 1.0) }.validate(), Ok(()));
        }
        let wrong = |change: fn(&mut Sensed)| {
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
        let mut heard = Heard::first(at(100.0), report(1, 1.0)).unwrap();
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
        let mut heard = Heard::first(at(0.0), report(1, 0.0)).unwrap();
        for second in 1..86_400u32 {
            let (now, its) = (f64::from(second), f64::from(second) * 0.9998);
            heard.hear(at(now), report(u64::from(second) + 1, its)).unwrap();
        }
        assert!(heard.is_recent(at(86_399.0)));
    }

    #[test]
    fn a_machine_that_was_paused_made_all_later_reports_late() {
        let mut heard = Heard::first(at(1.0), report(1, 1.0)).unwrap();
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
        let mut heard = Heard::first(at(0.0), report(1, 0.0)).unwrap();
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
        let mut heard = Heard::first(at(0.0), report(5, 5.0)).unwrap();
        for sequence in [0, 5] {
            assert_eq!(heard.hear(at(0.5), report(sequence, 6.0)), Err(ReportError::Late(sequence, 5)));
        }
        let other = Sensed { run: "f".repeat(16), ..report(1, 0.0) };
        assert_eq!(heard.hear(at(1.0), other.clone()), Err(ReportError::Another));
        assert_eq!(heard.hear(at(4.0), other.clone()), Ok(()), "the first is silent");
        assert_eq!(heard.last(), &other);
    }

    #[test]
    fn what_came_since_the_last_look_is_one_mean() {
        let with = |sequence: u64, interval_s: f64, rate: Option<f64>| {
            let write = SensedLane { current_bps: rate, ..SensedLane::default() };
            Sensed { write, interval_s, ..report(sequence, sequence as f64) }
        };
        let mut heard = Heard::first(at(1.0), with(1, 1.0, Some(10.0))).unwrap();
        heard.hear(at(2.0), with(2, 3.0, Some(30.0))).unwrap();
        let rate = |heard: &mut Heard| heard.sample(at(2.0)).unwrap().lanes[1].rate;
        assert_eq!(rate(&mut heard), Some(ByteRate::new(25.0)));
        assert_eq!(rate(&mut heard), Some(ByteRate::new(30.0)), "nothing came since: it is as it was");
        heard.hear(at(3.0), with(3, 1.0, None)).unwrap();
        assert_eq!(rate(&mut heard), None);
    }

    proptest! {
        /// Whatever a sensor says, what is made of it is finite and within bounds, and what it says of one
        /// node is all that changes.
        #[test]
        fn a_liar_is_bounded(
            reports in prop::collection::vec((any::<u64>(), any::<f64>(), any::<f64>(), any::<f64>(), 0.0..10.0f64), 1..40),
        ) {
            let mut heard: Option<Heard> = None;
            let mut now = 0.0;
            for (sequence, at_s, rate, latency, pause) in reports {
                now += pause;
                let mut one = report(sequence, at_s);
                one.write.current_bps = Some(rate);
                one.write.latency_s = Some(latency);
                match &mut heard {
                    Some(heard) => drop(heard.hear(at(now), one)),
                    none => *none = Heard::first(at(now), one).ok(),
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
