//! Measurements: seconds, phases, decisions. The scenario writes them; the judge, the view and the report
//! read them.

use std::ops::Range;

use tidegate_units::{Bytes, Latency, Window};

use super::plan::{DemoPlan, PhaseName};

/// One second of a phase, as its clients saw it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PhaseSecond {
    /// The database's reads completed in it.
    pub(crate) reads: u64,
    /// Their response times, summed.
    pub(crate) latency_sum: Latency,
    /// The greatest of them.
    pub(crate) latency_max: Latency,
    /// The database's reads outstanding at its end.
    pub(crate) outstanding: u64,
    /// The bytes that all backups together wrote in it.
    pub(crate) written: Bytes,
    /// The gateway's throttle at its end.
    pub(crate) held: ThrottleState,
}

impl PhaseSecond {
    /// The mean response time; nothing when nothing was completed.
    pub(crate) fn mean(&self) -> Option<Latency> {
        self.latency_sum.as_nanos().checked_div(self.reads).map(Latency::from_nanos)
    }
}

/// The throttle of the consumers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ThrottleState {
    /// Requests that all of them together may have outstanding at the array.
    pub(crate) window: Option<Window>,
    /// The delay of each of their requests: the greatest over the consumers.
    pub(crate) delay: Option<Latency>,
    /// The number of throttled consumers.
    pub(crate) consumers: usize,
}

/// All response times of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PhaseLatencies {
    pub(crate) count: u64,
    pub(crate) mean: Latency,
    pub(crate) p50: Latency,
    pub(crate) p95: Latency,
    pub(crate) p99: Latency,
    pub(crate) max: Latency,
}

/// A decision of the loop, in its own words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExplainedDecision {
    /// Seconds since the phase's start.
    pub(crate) at: u32,
    pub(crate) sentence: String,
}

/// One phase, measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MeasuredPhase {
    pub(crate) name: PhaseName,
    pub(crate) seconds: Vec<PhaseSecond>,
    /// The seconds in which the backups write.
    pub(crate) bursts: Vec<Range<u32>>,
    pub(crate) distribution: PhaseLatencies,
    /// Those that the plan finds worth telling.
    pub(crate) decisions: Vec<ExplainedDecision>,
    /// The greatest lateness of the measuring thread. This machine itself, when it is busy, may have added as
    /// much to any response time.
    pub(crate) woke_late: Latency,
}

impl MeasuredPhase {
    /// The seconds of writing in it.
    pub(crate) fn seconds_on(&self) -> u32 {
        self.bursts.iter().map(|burst| burst.end - burst.start).sum()
    }
}

/// The whole demonstration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DemoTimeline {
    pub(crate) plan: DemoPlan,
    pub(crate) phases: Vec<MeasuredPhase>,
}

impl DemoTimeline {
    /// Every phase with the second of the run at which it starts.
    pub(crate) fn with_starts(&self) -> impl Iterator<Item = (u32, &MeasuredPhase)> {
        self.phases.iter().scan(0, |next, phase| {
            let start = *next;
            *next += phase.seconds.len() as u32;
            Some((start, phase))
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::plan::tests::wanted;
    use super::*;

    /// A second of 64 reads that each took so long, with so much written.
    pub(in crate::demo) fn second(millis: u64, written: Bytes) -> PhaseSecond {
        PhaseSecond {
            reads: 64,
            latency_sum: Latency::from_millis(64 * millis),
            latency_max: Latency::from_millis(2 * millis),
            outstanding: 1,
            written,
            held: ThrottleState::default(),
        }
    }

    /// A run as the plan wants it: 6 ms alone, 45 ms unregulated, 11 ms regulated with 20 ms at burst starts.
    pub(in crate::demo) fn example() -> DemoTimeline {
        let plan = DemoPlan::new(&wanted()).unwrap();
        let phases = plan
            .phases
            .iter()
            .map(|phase| {
                let bursts = plan.bursts(phase);
                let seconds = (0..phase.seconds)
                    .map(|at| {
                        let on = bursts.iter().find(|burst| burst.contains(&at));
                        match (phase.name, on) {
                            (_, None) => second(6, Bytes::ZERO),
                            (PhaseName::Regulated, Some(burst)) if at < burst.start + 2 => {
                                second(20, Bytes::new(30_000_000))
                            }
                            (PhaseName::Regulated, Some(_)) => PhaseSecond {
                                held: ThrottleState {
                                    window: Some(Window::new(2.5)),
                                    delay: None,
                                    consumers: 12,
                                },
                                ..second(11, Bytes::new(28_000_000))
                            },
                            (_, Some(_)) => second(45, Bytes::new(39_000_000)),
                        }
                    })
                    .collect();
                let mean = match phase.name {
                    PhaseName::Alone => 6,
                    PhaseName::Unregulated => 40,
                    PhaseName::Regulated => 11,
                };
                let at = |factor: u64| Latency::from_millis(mean * factor);
                MeasuredPhase {
                    name: phase.name,
                    seconds,
                    bursts,
                    distribution: PhaseLatencies {
                        count: u64::from(phase.seconds) * 64,
                        mean: at(1),
                        p50: at(1),
                        p95: at(2),
                        p99: at(3),
                        max: at(4),
                    },
                    decisions: match phase.name {
                        PhaseName::Regulated => vec![ExplainedDecision {
                            at: 1,
                            sentence:
                                "sata: reads 23.1ms against 12.0ms: 12 writers throttled to a window of 2.5"
                                    .into(),
                        }],
                        _ => Vec::new(),
                    },
                    woke_late: Latency::from_micros(70),
                }
            })
            .collect();
        DemoTimeline { plan, phases }
    }

    #[test]
    fn a_second_without_reads_has_no_mean() {
        assert_eq!(PhaseSecond::default().mean(), None);
        assert_eq!(second(7, Bytes::ZERO).mean(), Some(Latency::from_millis(7)));
    }
}
