//! Decisions on resources without load, which most are: told from the last one without reading all of it.
//!
//! A thousand resources have megabytes of last decisions, which no cache of a processor keeps. What is
//! compared here is a tenth of that.

use tidegate_control::{Commands, ConsumerObservation, Observation, OperationTotals};
use tidegate_units::{Latency, Shares};

use crate::record::{ConsumerReading, ThrottleReading};

/// The parts of a decision that is to be recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionParts<'a> {
    pub(crate) observation: &'a Observation,
    pub(crate) commands: &'a Commands,
    pub(crate) reading: Option<&'a ThrottleReading>,
    pub(crate) held: u32,
    pub(crate) lag: i64,
}

/// A decision without load and limits, as far as the next one may differ from it. It is valid for as long as
/// the decision lives: names are compared by their addresses.
#[derive(Debug)]
pub(crate) struct QuietDecision {
    consumers: Box<[QuietConsumer]>,
    rest: QuietRest,
}

/// An idle consumer without terms of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QuietConsumer {
    name: usize,
    shares: Shares,
    protected: bool,
}

/// The numbers of a quiet decision, bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QuietRest {
    window: Option<u64>,
    spacing: Option<Latency>,
    held: u32,
    lag: i64,
    /// True if the reading names the eligible consumers. `None`: there is no reading.
    reads_consumers: Option<bool>,
    reading_window: Option<u64>,
}

impl QuietDecision {
    /// Returns `None` if the decision is not quiet.
    pub(crate) fn of(parts: &DecisionParts<'_>) -> Option<Self> {
        let consumers = parts.observation.consumers.iter().map(QuietConsumer::of).collect::<Option<_>>()?;
        Some(Self { consumers, rest: QuietRest::of(parts)? })
    }

    /// Returns true if a decision is surely the same, but for its time.
    pub(crate) fn is(&self, parts: &DecisionParts<'_>) -> bool {
        let consumers = &parts.observation.consumers;
        let is_same = |(consumer, known): (&ConsumerObservation, &QuietConsumer)| {
            QuietConsumer::of(consumer).as_ref() == Some(known)
        };
        consumers.len() == self.consumers.len()
            && consumers.iter().zip(&self.consumers).all(is_same)
            && QuietRest::of(parts) == Some(self.rest)
    }
}

impl QuietConsumer {
    fn of(consumer: &ConsumerObservation) -> Option<Self> {
        let nothing = OperationTotals::default();
        let is_idle = consumer.reads == nothing
            && consumer.writes == nothing
            && consumer.mean_outstanding.get().to_bits() == 0
            && consumer.queued == 0
            && consumer.short_of_tokens == Latency::ZERO
            && consumer.late == 0
            && consumer.scheduler_wait == Latency::ZERO
            && consumer.release_to_completion.is_none()
            && consumer.oldest_released.is_none();
        let is_plain =
            consumer.reservation.is_none() && consumer.contract.is_none() && consumer.goal.is_none();
        (is_idle && is_plain).then(|| Self {
            name: consumer.name.as_str().as_ptr().addr(),
            shares: consumer.shares,
            protected: consumer.protected,
        })
    }
}

impl QuietRest {
    fn of(parts: &DecisionParts<'_>) -> Option<Self> {
        let DecisionParts { observation, commands, reading, held, lag } = *parts;
        let eligible = || observation.consumers.iter().filter(|consumer| !consumer.protected);
        let names = || eligible().map(|consumer| &consumer.name);
        let is_free = names().eq(commands.consumers.iter().map(|command| &command.name))
            && commands.consumers.iter().all(|command| command.delay.is_none() && command.rate.is_none());
        let reads = reading.map_or(&[][..], |reading| &reading.consumers);
        let is_unlimited = reads.is_empty()
            || names().eq(reads.iter().map(|each| &each.name))
                && reads.iter().all(ConsumerReading::is_unlimited);
        let is_quiet = observation.cluster.is_none() && observation.percentile.is_none();
        (is_quiet && is_free && is_unlimited).then(|| Self {
            window: commands.window.map(|window| window.get().to_bits()),
            spacing: commands.spacing,
            held,
            lag,
            reads_consumers: reading.map(|reading| !reading.consumers.is_empty()),
            reading_window: reading.and_then(|reading| reading.window).map(|window| window.get().to_bits()),
        })
    }
}
