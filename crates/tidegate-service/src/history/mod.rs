//! The history of one resource, from recorded decisions: figures of equal parts of a span of time.
//!
//! Nothing is measured or decided here. [`HistoryFold`] takes decisions in their order, as a journal replays
//! them. Its size is bounded by the numbers of parts, consumers and decisions that it tells of, whatever the
//! length of the span.

mod consumers;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tidegate_control::{Decision, LoopConfig, SignalState};
use tidegate_journal::{EntryFilter, JournalReader, LoopReplay, ReplayedDecision, WallTime};
use tidegate_units::{Instant, Latency, ResourceName};

pub use consumers::{ConsumerHistory, HistoryConsumers, MOST_CONSUMERS};

use crate::explain::{AskedTime, ExplainError, time_text};
use crate::journal::DecisionNews;
use crate::status::{OperatingPoint, decided};
use consumers::ConsumersFold;

/// The most points of a history: a chart of this width shows no more.
pub const MOST_POINTS: usize = 500;

/// The most decisions that one history tells of: the last ones.
pub const MOST_DECISIONS: usize = 100;

/// The span of time without a given beginning.
const DEFAULT_SPAN: Duration = Duration::from_secs(3_600);

/// The history of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceHistory {
    /// The resource.
    pub resource: String,
    /// Beginning of the span, in seconds since 1970.
    pub from_seconds: f64,
    /// End of the span, in seconds since 1970.
    pub to_seconds: f64,
    /// Length of each part.
    pub step_seconds: f64,
    /// The parts with decisions, the oldest first. A part without any is left out: nothing is known of it.
    pub points: Vec<HistoryPoint>,
    /// The consumers that were asked for, the busiest first. At most [`MOST_CONSUMERS`].
    #[serde(default)]
    pub consumers: Vec<ConsumerHistory>,
    /// The consumers that were observed beside these; of more than 1,000, at least so many.
    #[serde(default)]
    pub consumers_left_out: usize,
    /// The decisions that the log was told as news, the oldest first. At most [`MOST_DECISIONS`], the last
    /// ones.
    #[serde(default)]
    pub decisions: Vec<HistoryDecision>,
}

/// A decision that is news.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryDecision {
    /// Its time.
    #[serde(with = "time_text")]
    pub at: WallTime,
    /// The decision in words, as in the log.
    pub said: String,
    /// The number of throttled consumers; on a dry run, of those that would be throttled.
    pub held: u32,
    /// True if nothing was throttled, whatever was decided.
    pub dry_run: bool,
}

/// The decisions of one part of the span.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HistoryPoint {
    /// Beginning of the part, in seconds since 1970.
    pub at_seconds: f64,
    /// Time that its decisions judge.
    pub judged_seconds: f64,
    /// Mean of the latency that the law compares with its set point. `null`: nothing was known.
    pub latency_seconds: Option<f64>,
    /// The greatest latency of an interval. `null`: nothing was known.
    pub worst_latency_seconds: Option<f64>,
    /// Latency promised, at the end of the part.
    pub target_seconds: f64,
    /// Latency that the law steers to, at the end of the part.
    pub set_point_seconds: f64,
    /// The smallest window that throttled. `null`: none did.
    pub window_requests: Option<f64>,
    /// The longest delay. `null`: none was commanded.
    pub delay_seconds: Option<f64>,
    /// The lowest operating point that limited. `null`: none did.
    pub rate_iops: Option<f64>,
    /// The most consumers that were throttled at a time; on a dry run, that would have been.
    pub held: u32,
    /// The most consumers that were eligible at a time.
    pub throttled: u32,
    /// Mean number of requests that completed per second.
    pub iops: f64,
    /// True if the law throttled nothing for at least some of the time, whatever it decided.
    pub dry_run: bool,
}

/// A span of time, and the number of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySpan {
    from: WallTime,
    to: WallTime,
    points: usize,
}

impl HistorySpan {
    /// Returns the span from one time to another: by default the last hour. `None`: it would end before it
    /// begins.
    #[must_use]
    pub fn asked(from: Option<AskedTime>, to: Option<AskedTime>, points: usize) -> Option<Self> {
        let to = to.map_or_else(WallTime::now, AskedTime::time);
        let hour = || {
            WallTime::from(SystemTime::from(to).checked_sub(DEFAULT_SPAN).unwrap_or(SystemTime::UNIX_EPOCH))
        };
        let from = from.map_or_else(hour, AskedTime::time);
        (from < to && points > 0).then_some(Self { from, to, points })
    }

    fn seconds(self) -> f64 {
        self.to.saturating_since(self.from).as_secs_f64()
    }

    fn step(self) -> f64 {
        self.seconds() / self.points as f64
    }

    /// Returns the part that a time belongs to.
    fn part(self, time: WallTime) -> usize {
        let part = time.saturating_since(self.from).as_secs_f64() / self.step();
        (part as usize).min(self.points - 1)
    }

    fn begin(self, part: usize) -> f64 {
        since_1970(self.from) + part as f64 * self.step()
    }
}

fn since_1970(time: WallTime) -> f64 {
    Duration::from_nanos(time.as_nanos()).as_secs_f64()
}

/// Adds up decisions while they pass by.
#[derive(Debug)]
pub struct HistoryFold {
    span: HistorySpan,
    points: Vec<HistoryPoint>,
    current: Option<PartSums>,
    consumers: ConsumersFold,
    news: DecisionNews,
    /// The time of the last decision on the clock of its service.
    at: Instant,
    decisions: VecDeque<HistoryDecision>,
}

/// The sums of the part that decisions are added to.
#[derive(Debug)]
struct PartSums {
    part: usize,
    point: HistoryPoint,
    latencies: f64,
    known_seconds: f64,
    requests: f64,
}

impl HistoryFold {
    /// An empty history of a span, and of these consumers.
    #[must_use]
    pub fn new(span: HistorySpan, consumers: HistoryConsumers) -> Self {
        Self {
            span,
            points: Vec::new(),
            current: None,
            consumers: ConsumersFold::new(consumers),
            news: DecisionNews::default(),
            at: Instant::ZERO,
            decisions: VecDeque::new(),
        }
    }

    /// Takes the next decision. `config` is the loop's configuration at that time. Decisions that this build
    /// could not recompute are left out, since their figures are not known.
    pub fn take(&mut self, replayed: &ReplayedDecision, config: &LoopConfig) {
        let Some((_, decision)) = &replayed.recomputed else { return };
        self.take_news(replayed, decision);
        let decision = Decision { held: replayed.recorded.held(), ..decision.clone() };
        let observation = replayed.recorded.observation();
        let requests =
            observation.consumers.iter().map(|one| one.reads.count.saturating_add(one.writes.count));
        let requests: u64 = requests.sum();
        let part = self.span.part(replayed.time);
        if self.current.as_ref().is_none_or(|current| current.part != part) {
            self.end_part();
            let point = HistoryPoint { at_seconds: self.span.begin(part), ..HistoryPoint::default() };
            let sums = PartSums { part, point, latencies: 0.0, known_seconds: 0.0, requests: 0.0 };
            self.current = Some(sums);
        }
        if let Some(current) = &mut self.current {
            current.add(&decision, requests as f64, config.target);
        }
        self.consumers.take(&observation, &decision);
    }

    fn take_news(&mut self, replayed: &ReplayedDecision, decision: &Decision) {
        if decision.at < self.at {
            // A service that was started anew.
            self.news = DecisionNews::default();
        }
        self.at = decision.at;
        let held = replayed.recorded.held();
        let Some(said) = self.news.take(&Decision { held, ..decision.clone() }, true) else { return };
        let dry_run = decision.dry_run;
        self.decisions.push_back(HistoryDecision { at: replayed.time, said, held, dry_run });
        if self.decisions.len() > MOST_DECISIONS {
            self.decisions.pop_front();
        }
    }

    /// Returns the history.
    #[must_use]
    pub fn finish(mut self, resource: &ResourceName) -> ResourceHistory {
        self.end_part();
        let (consumers, consumers_left_out) = self.consumers.finish(self.points.len());
        ResourceHistory {
            resource: resource.to_string(),
            from_seconds: since_1970(self.span.from),
            to_seconds: since_1970(self.span.to),
            step_seconds: self.span.step(),
            points: self.points,
            consumers,
            consumers_left_out,
            decisions: self.decisions.into(),
        }
    }

    fn end_part(&mut self) {
        self.consumers.end_part(self.points.len());
        self.points.extend(self.current.take().map(PartSums::finish));
    }
}

impl PartSums {
    fn add(&mut self, decision: &Decision, requests: f64, target: Latency) {
        let seconds = decision.elapsed.as_secs_f64();
        let told = decided(decision, decision.at);
        let oldest = match decision.input {
            SignalState::Overload { oldest } => Some(oldest.as_secs_f64()),
            _ => None,
        };
        let latency = match decision.input {
            SignalState::Samples { .. } => told.estimate_seconds,
            _ => oldest,
        };
        if let Some(latency) = latency {
            self.latencies += latency * seconds;
            self.known_seconds += seconds;
        }
        let rate = match told.operating_point {
            Some(OperatingPoint::Limits { iops, .. }) => Some(iops),
            Some(OperatingPoint::HoldsNobody) | None => None,
        };
        self.requests += requests;
        let point = &mut self.point;
        point.judged_seconds += seconds;
        let measured = told.measured_seconds.or(oldest);
        point.worst_latency_seconds = of_both(point.worst_latency_seconds, measured, f64::max);
        (point.target_seconds, point.set_point_seconds) = (target.as_secs_f64(), told.set_point_seconds);
        point.window_requests = of_both(point.window_requests, told.window_requests, f64::min);
        let delay = told.delay_seconds.filter(|delay| *delay > 0.0);
        point.delay_seconds = of_both(point.delay_seconds, delay, f64::max);
        point.rate_iops = of_both(point.rate_iops, rate, f64::min);
        point.held = point.held.max(told.held);
        point.throttled = point.throttled.max(told.throttled);
        point.dry_run |= decision.dry_run;
    }

    fn finish(self) -> HistoryPoint {
        let mean = |sum: f64, seconds: f64| (seconds > 0.0).then(|| sum / seconds);
        HistoryPoint {
            latency_seconds: mean(self.latencies, self.known_seconds),
            iops: mean(self.requests, self.point.judged_seconds).unwrap_or_default(),
            ..self.point
        }
    }
}

fn of_both(one: Option<f64>, other: Option<f64>, choose: fn(f64, f64) -> f64) -> Option<f64> {
    [one, other].into_iter().flatten().reduce(choose)
}

/// The history that a journal gives.
#[derive(Debug)]
pub struct JournalHistory {
    /// The history.
    pub history: ResourceHistory,
    /// The parts of the journal that could not be read.
    pub remarks: Vec<String>,
}

/// Reads the history of a resource from the decisions of a span of time. Reads as long as `goes_on` says.
///
/// # Errors
/// When the journal cannot be read or keeps nothing of that time, or when the resource does not occur.
pub fn read_history(
    reader: &JournalReader,
    resource: &ResourceName,
    span: HistorySpan,
    consumers: HistoryConsumers,
    goes_on: impl Fn() -> bool,
) -> Result<JournalHistory, ExplainError> {
    let filter = EntryFilter { from: span.from, until: span.to, resource: Some(resource.clone()) };
    let mut replay = reader.replay(filter, LoopReplay::as_recorded())?;
    let mut fold = HistoryFold::new(span, consumers);
    let mut damage = Vec::new();
    while let Some(replayed) = replay.next() {
        if !goes_on() {
            return Err(ExplainError::Stopped);
        }
        match replayed {
            Ok(replayed) => {
                if let Some(config) = replay.loops().config(resource) {
                    fold.take(&replayed, config);
                }
            }
            Err(error) if error.is_damage() => damage.push(error),
            Err(error) => return Err(error.into()),
        }
    }
    let history = fold.finish(resource);
    if history.points.is_empty() {
        let why = format!("nothing was decided on a resource `{resource}` in that time");
        return Err(ExplainError::Unknown(why));
    }
    let unreadable = replay.loops().unreadable().iter().map(ToString::to_string);
    let remarks = unreadable.chain(damage.iter().map(ToString::to_string)).collect();
    Ok(JournalHistory { history, remarks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::{AutoConfig, ControlLoop, Observation};
    use tidegate_journal::{JournalConfig, JournalWriter};

    fn span(from: u64, to: u64, points: usize) -> HistorySpan {
        let at = |seconds: u64| WallTime::from_nanos(seconds * 1_000_000_000);
        HistorySpan { from: at(from), to: at(to), points }
    }

    #[test]
    fn every_time_of_a_span_has_a_part() {
        let span = span(100, 200, 10);
        let at = |seconds: u64| span.part(WallTime::from_nanos(seconds * 1_000_000_000));
        assert_eq!([at(0), at(100), at(109), at(110), at(199), at(200), at(300)], [0, 0, 0, 1, 9, 9, 9]);
        assert!((span.begin(3) - 130.0).abs() < 1e-9);
    }

    #[test]
    fn a_span_that_ends_before_it_begins_is_none() {
        let at = |text: &str| text.parse::<AskedTime>().ok();
        let [early, late] = ["2026-11-26T10:00:00Z", "2026-11-26T12:00:00Z"].map(at);
        assert_eq!(HistorySpan::asked(late, early, 10), None);
        assert_eq!(HistorySpan::asked(early, early, 10), None);
        assert!((HistorySpan::asked(early, late, 10).unwrap().seconds() - 7_200.0).abs() < 1e-6);
        assert!((HistorySpan::asked(None, late, 10).unwrap().seconds() - 3_600.0).abs() < 1e-6);
    }

    #[test]
    fn a_journal_of_a_moment_has_few_points_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let name = ResourceName::new("vg0").unwrap();
        let law = AutoConfig::default().into();
        let config = LoopConfig::new(name.clone(), Latency::from_millis(15), law);
        let mut control = ControlLoop::new(config).unwrap();
        let mut now = Instant::ZERO;
        let journal = JournalConfig::new(folder.path().to_owned(), "test".to_owned());
        let journal = JournalWriter::start(journal, now).unwrap();
        let mut recorded = journal.resource(&control, now);
        for _ in 0..40 {
            now = now + Duration::from_millis(250);
            let observation = Observation::new(name.clone(), now, Vec::new());
            let (commands, decision) = control.step(now, &observation);
            recorded.record(&control, &observation, &commands, &decision, None);
        }
        journal.close();
        let reader = JournalReader::open(folder.path()).unwrap();
        let begin = WallTime::now().as_nanos() / 1_000_000_000;
        let read = |span, resource: &str| {
            let consumers = HistoryConsumers::Busiest(5);
            read_history(&reader, &ResourceName::new(resource).unwrap(), span, consumers, || true)
        };
        let history = read(span(begin - 600, begin + 600, 12), "vg0").unwrap().history;
        assert!((1..=2).contains(&history.points.len()), "{history:?}");
        let judged: f64 = history.points.iter().map(|point| point.judged_seconds).sum();
        assert!((9.0..=10.1).contains(&judged), "{judged}");
        let point = history.points[0];
        assert_eq!((point.latency_seconds, point.held, point.iops), (None, 0, 0.0), "silence is unknown");
        assert!((point.target_seconds - 0.015).abs() < 1e-9);
        let error = read(span(begin - 600, begin + 600, 12), "vg1").unwrap_err();
        assert!(error.to_string().contains("`vg1`"), "{error}");
        assert_eq!((history.consumers, history.decisions), (Vec::new(), Vec::new()));
        let all = span(begin - 600, begin + 600, 12);
        let stopped = read_history(&reader, &name, all, HistoryConsumers::None, || false);
        assert!(matches!(stopped, Err(ExplainError::Stopped)));
    }
}
