//! Questions to a decision journal: the span of time, the name, and the explanations that answer them.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tidegate_config::unknown_name;
use tidegate_journal::{ActionRecord, EntryFilter, JournalError, JournalReader, LoopReplay, WallTime};
use tidegate_units::Latency;

use super::{ExplainedAction, ExplanationFold, ResourceExplanation};

/// The span of time without a given length.
const DEFAULT_SPAN: Duration = Duration::from_secs(3_600);

/// A time that is asked for: a date with a time, or a time of day, which means the last one that was (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedTime(WallTime);

impl AskedTime {
    /// The time.
    #[must_use]
    pub const fn time(self) -> WallTime {
        self.0
    }
}

/// The error for a text that is not such a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("write 2026-11-26T14:00:00Z, or 14:00 (UTC)")]
pub struct NoTime;

impl FromStr for AskedTime {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        asked(text, SystemTime::now()).map(|time| Self(time.into())).ok_or(NoTime)
    }
}

/// Returns the time that a text means. A time of day is the last one before `now`.
fn asked(text: &str, now: SystemTime) -> Option<SystemTime> {
    if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        return Some(time);
    }
    let today = humantime::format_rfc3339_seconds(now).to_string();
    let (date, _) = today.split_once('T')?;
    let of_day = if text.matches(':').count() == 1 { format!("{text}:00") } else { text.to_owned() };
    let time = humantime::parse_rfc3339(&format!("{date}T{of_day}Z")).ok()?;
    Some(if time > now { time - Duration::from_secs(86_400) } else { time })
}

/// Returns the span of time that ends at `at` and is as long as `since`: by default the last hour.
#[must_use]
pub fn asked_span(at: Option<AskedTime>, since: Option<Latency>) -> EntryFilter {
    let until = at.map_or_else(WallTime::now, |asked| asked.0);
    let length = since.map_or(DEFAULT_SPAN, Latency::to_duration);
    let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let from = WallTime::from_nanos(until.as_nanos().saturating_sub(length));
    EntryFilter { from, until, resource: None }
}

/// The explanations that a journal gives.
#[derive(Debug)]
pub struct JournalExplanation {
    /// One of each resource that was asked about.
    pub explanations: Vec<ResourceExplanation>,
    /// The parts of the journal that could not be read.
    pub remarks: Vec<String>,
}

/// The reasons why a journal explains nothing.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There was no resource and no consumer of the name.
    #[error("{0}")]
    Unknown(String),
    /// The reading was stopped.
    #[error("the journal of this span takes too long to read: ask for a shorter one, with `since`")]
    Stopped,
}

/// Explains the consumer or the resource of a name, or all resources, from the decisions of a span of time.
/// Reads as long as `goes_on` says.
///
/// # Errors
/// When the journal cannot be read or keeps nothing of that time, or when the name does not occur.
pub fn explain_journal(
    reader: &JournalReader,
    span: EntryFilter,
    name: Option<&str>,
    goes_on: impl Fn() -> bool,
) -> Result<JournalExplanation, ExplainError> {
    let mut replay = reader.replay(span, LoopReplay::as_recorded())?;
    let mut fold = ExplanationFold::default();
    let mut damage = Vec::new();
    while let Some(replayed) = replay.next() {
        if !goes_on() {
            return Err(ExplainError::Stopped);
        }
        match replayed {
            Ok(replayed) => {
                let (loops, resource) = (replay.loops(), replayed.recorded.resource());
                if let (Some(config), Some(mechanism)) = (loops.config(resource), loops.mechanism(resource)) {
                    fold.take(&replayed, config, mechanism);
                }
            }
            Err(error) if error.is_damage() => damage.push(error),
            Err(error) => return Err(error.into()),
        }
    }
    let mut explanations = fold.explain(name);
    for explanation in &mut explanations {
        let of_resource = |action: &ActionRecord| {
            action.resource.as_ref().is_none_or(|resource| resource.as_str() == explanation.resource)
        };
        let actions = replay.actions().iter().filter(|(_, action)| of_resource(action));
        explanation.actions = actions
            .map(|(at, ActionRecord { actor, text, .. })| ExplainedAction {
                at: *at,
                actor: actor.clone(),
                text: text.clone(),
            })
            .collect();
    }
    if let Some(name) = name.filter(|_| explanations.is_empty()) {
        return Err(ExplainError::Unknown(unknown(name, &fold.names())));
    }
    let unreadable = replay.loops().unreadable().iter().map(ToString::to_string);
    let remarks = unreadable.chain(damage.iter().map(ToString::to_string)).collect();
    Ok(JournalExplanation { explanations, remarks })
}

fn unknown(name: &str, known: &[String]) -> String {
    unknown_name("consumer or resource", name, "that time", known, "nothing was decided in that time")
}

#[cfg(test)]
mod tests {
    use tidegate_control::{
        ConsumerObservation, ControlLoop, LoopConfig, MeanOutstanding, Observation, OperationTotals,
        PidConfig,
    };
    use tidegate_journal::{JournalConfig, JournalWriter, ResourceJournal};
    use tidegate_units::{Bytes, ConsumerName, Instant, ResourceName, Shares};

    use super::*;
    use crate::explain::ThrottleEffect;

    /// A database whose reads take `millis`, beside two writers.
    fn observation(config: &LoopConfig, now: Instant, millis: u64) -> Observation {
        let done = |count: u64| OperationTotals {
            count,
            bytes: Bytes::new(count * 4_096),
            total_latency: Latency::from_millis(count * millis),
            ..OperationTotals::default()
        };
        let consumer = |name: &str, protected: bool, reads: u64, writes: u64| ConsumerObservation {
            reads: done(reads),
            writes: done(writes),
            mean_outstanding: MeanOutstanding::new(2.0),
            ..ConsumerObservation::idle(ConsumerName::new(name).unwrap(), Shares::DEFAULT, protected)
        };
        let consumers = vec![
            consumer("database", true, 40, 0),
            consumer("backup", false, 0, 100),
            consumer("batch", false, 0, 20),
        ];
        Observation::new(config.resource.clone(), now, consumers)
    }

    struct RecordedLoop {
        control: ControlLoop,
        journal: ResourceJournal,
        now: Instant,
    }

    impl RecordedLoop {
        /// Decides for ten seconds under the configuration.
        fn run(&mut self, config: &LoopConfig, millis: u64) {
            self.control.reconfigure(config.clone()).unwrap();
            self.journal.checkpoint(&self.control);
            for _ in 0..40 {
                self.now = self.now + config.interval;
                let observation = observation(config, self.now, millis);
                let (commands, decision) = self.control.step(self.now, &observation);
                self.journal.record(&self.control, &observation, &commands, &decision, None);
            }
        }
    }

    /// Journal of a resource that is on a dry run, throttles, is released, and throttles again.
    fn journal_with_a_dry_run_and_a_release(folder: &std::path::Path) -> JournalReader {
        let name = ResourceName::new("disk").unwrap();
        let acts = LoopConfig::new(name, Latency::from_millis(10), PidConfig::default().into());
        let dry = LoopConfig { dry_run: true, ..acts.clone() };
        let released = LoopConfig { released: true, ..dry.clone() };
        let journal = JournalConfig::new(folder.to_owned(), "test".to_owned());
        let writer = JournalWriter::start(journal, Instant::ZERO).unwrap();
        let control = ControlLoop::new(dry.clone()).unwrap();
        let recorded = writer.resource(&control, Instant::ZERO);
        let mut recorded = RecordedLoop { control, journal: recorded, now: Instant::ZERO };
        for config in [&dry, &acts, &released, &acts] {
            recorded.run(config, 30);
        }
        writer.close();
        JournalReader::open(folder).unwrap()
    }

    #[test]
    fn a_dry_run_and_a_release_are_told_apart_and_are_in_no_span_of_throttling() {
        let folder = tempfile::tempdir().unwrap();
        let reader = journal_with_a_dry_run_and_a_release(folder.path());
        let explain = |span, name| explain_journal(&reader, span, Some(name), || true).unwrap().explanations;
        let told = explain(EntryFilter::default(), "backup").remove(0);
        assert_eq!((told.consumers.len(), told.held, told.eligible), (1, 2, 2), "{told:?}");
        assert!(told.said.ends_with("(2 of 2 throttled)"), "{}", told.said);
        let episodes = &told.consumers[0].episodes;
        let effects: Vec<_> = episodes.iter().map(|episode| episode.effect).collect();
        let (acts, dry) = (ThrottleEffect::Throttled, ThrottleEffect::DryRun);
        assert_eq!(effects, [dry, acts, ThrottleEffect::Released, acts]);
        for episode in episodes {
            let length = episode.until.saturating_since(episode.from).as_secs_f64();
            assert!(episode.throttled_seconds <= 10.001 && length < 10.0, "{episode:?}");
        }

        let during_release = EntryFilter { until: episodes[2].until, ..EntryFilter::default() };
        let told = explain(during_release, "disk").remove(0);
        assert!(told.released && told.dry_run, "{told:?}");
        assert!(told.said.starts_with("disk (released): "), "{}", told.said);
        let during_dry_run = EntryFilter { until: episodes[0].until, ..EntryFilter::default() };
        let told = explain(during_dry_run, "disk").remove(0);
        assert!(told.dry_run && !told.released, "{told:?}");
        assert!(told.said.starts_with("disk (dry run): "), "{}", told.said);
    }

    #[test]
    fn a_time_of_day_is_the_last_one_that_was() {
        let at = |text: &str| humantime::parse_rfc3339(text).unwrap();
        let now = at("2026-11-26T10:00:00Z");
        for (text, meant) in [
            ("09:30", "2026-11-26T09:30:00Z"),
            ("09:30:15", "2026-11-26T09:30:15Z"),
            ("23:00", "2026-11-25T23:00:00Z"),
            ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z"),
            ("2026-11-01 12:00:00", "2026-11-01T12:00:00Z"),
        ] {
            assert_eq!(asked(text, now), Some(at(meant)), "{text}");
        }
        for text in ["yesterday", "25:00", "9:30", ""] {
            assert_eq!(asked(text, now), None, "{text}");
        }
    }
}
