//! What was measured: seconds, phases, decisions. The scenario writes it; the judge, the view and the report read it.

use std::ops::Range;

use tidegate_units::{Bytes, Latency, Window};

use super::plan::{PhaseName, Plan};

/// How many decisions of a phase are kept for the report: the greatest number that a person reads.
const DECISIONS: usize = 24;

/// One second of a phase, as its clients saw it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Second {
    /// The database's reads completed in it.
    pub(crate) reads: u64,
    /// Their response times, summed.
    pub(crate) latency_sum: Latency,
    /// The greatest of them.
    pub(crate) latency_max: Latency,
    /// The database's reads outstanding at its end.
    pub(crate) outstanding: u64,
    /// What all backups together got written in it.
    pub(crate) written: Bytes,
    /// What the gateway held back at its end.
    pub(crate) held: Held,
}

impl Second {
    /// The mean response time; nothing when nothing was completed.
    pub(crate) fn mean(&self) -> Option<Latency> {
        self.latency_sum.as_nanos().checked_div(self.reads).map(Latency::from_nanos)
    }
}

/// What the throttled consumers are held to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Held {
    /// Requests that all of them together may have outstanding at the array.
    pub(crate) window: Option<Window>,
    /// How long each of their requests is held: the greatest over the consumers.
    pub(crate) delay: Option<Latency>,
    /// How many of them are held.
    pub(crate) consumers: usize,
}

/// All response times of a phase.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Distribution {
    pub(crate) count: u64,
    pub(crate) mean: Latency,
    pub(crate) p50: Latency,
    pub(crate) p95: Latency,
    pub(crate) p99: Latency,
    pub(crate) max: Latency,
    /// Points `(response time, share of requests that took at most that)`, ascending.
    pub(crate) cumulative: Vec<(Latency, f64)>,
}

/// A decision of the loop that changed something, in its own words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Explained {
    /// Seconds since the phase's start.
    pub(crate) at: f64,
    pub(crate) sentence: String,
}

/// One phase, measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Phase {
    pub(crate) name: PhaseName,
    pub(crate) seconds: Vec<Second>,
    /// The seconds in which the backups write.
    pub(crate) bursts: Vec<Range<u32>>,
    pub(crate) distribution: Distribution,
    /// At most 24, spread over the phase.
    pub(crate) decisions: Vec<Explained>,
}

impl Phase {
    /// The seconds of writing in it.
    pub(crate) fn seconds_on(&self) -> u32 {
        self.bursts.iter().map(|burst| burst.end - burst.start).sum()
    }
}

/// The whole demonstration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeline {
    pub(crate) plan: Plan,
    pub(crate) phases: Vec<Phase>,
}

impl Timeline {
    /// Every phase with the second of the run at which it starts.
    pub(crate) fn with_starts(&self) -> impl Iterator<Item = (u32, &Phase)> {
        self.phases.iter().scan(0, |next, phase| {
            let start = *next;
            *next += phase.seconds.len() as u32;
            Some((start, phase))
        })
    }
}

/// Thins decisions out until a person would read them: at the bound every second one goes.
#[derive(Debug, Default)]
pub(crate) struct Explanations {
    kept: Vec<Explained>,
    stride: u32,
    seen: u32,
}

impl Explanations {
    /// Offers one more decision.
    pub(crate) fn offer(&mut self, at: f64, sentence: &str) {
        if self.kept.last().is_some_and(|last| last.sentence == sentence) {
            return;
        }
        self.seen += 1;
        if self.seen <= self.stride {
            return;
        }
        self.seen = 0;
        self.kept.push(Explained { at, sentence: sentence.to_owned() });
        if self.kept.len() > DECISIONS {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride = self.stride * 2 + 1;
        }
    }

    /// What remains.
    pub(crate) fn into_kept(self) -> Vec<Explained> {
        self.kept
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::plan::tests::wanted;
    use super::*;

    /// A second of 64 reads that each took so long, with so much written.
    pub(in crate::demo) fn second(millis: u64, written: Bytes) -> Second {
        Second {
            reads: 64,
            latency_sum: Latency::from_millis(64 * millis),
            latency_max: Latency::from_millis(2 * millis),
            outstanding: 1,
            written,
            held: Held::default(),
        }
    }

    /// A run as the plan wants it: 6 ms alone, 45 ms unregulated, 11 ms regulated with 20 ms at burst starts.
    pub(in crate::demo) fn example() -> Timeline {
        let plan = Plan::new(&wanted()).unwrap();
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
                            (PhaseName::Regulated, Some(_)) => Second {
                                held: Held { window: Some(Window::new(2.5)), delay: None, consumers: 12 },
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
                Phase {
                    name: phase.name,
                    seconds,
                    bursts,
                    distribution: Distribution {
                        count: u64::from(phase.seconds) * 64,
                        mean: at(1),
                        p50: at(1),
                        p95: at(2),
                        p99: at(3),
                        max: at(4),
                        cumulative: vec![(at(1), 0.5), (at(2), 0.95), (at(3), 0.99), (at(4), 1.0)],
                    },
                    decisions: match phase.name {
                        PhaseName::Regulated => vec![Explained {
                            at: 1.0,
                            sentence: "sata: reads 23.1ms against 12.0ms: 12 writers held to a window of 2.5"
                                .into(),
                        }],
                        _ => Vec::new(),
                    },
                }
            })
            .collect();
        Timeline { plan, phases }
    }

    #[test]
    fn a_second_without_reads_has_no_mean() {
        assert_eq!(Second::default().mean(), None);
        assert_eq!(second(7, Bytes::ZERO).mean(), Some(Latency::from_millis(7)));
    }

    #[test]
    fn explanations_stay_few_distinct_and_spread() {
        let mut explanations = Explanations::default();
        for i in 0..10_000 {
            explanations.offer(f64::from(i), &format!("decision {}", i / 2));
        }
        let kept = explanations.into_kept();
        assert!((8..=DECISIONS).contains(&kept.len()), "{}", kept.len());
        assert!(kept[0].at < 100.0 && kept[kept.len() - 1].at > 8_000.0);
        assert!(kept.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
