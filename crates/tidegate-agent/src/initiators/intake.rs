//! The reports that a resource takes: which of them count, and the signal that they make.
//!
//! A report counts if it is young, comes from a consumer of the resource, and that consumer is not eligible
//! for throttling now: reads of a throttled consumer wait for the throttle itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::ClusterHandle;
use tidegate_control::{
    ClusterSignal, HeardReport, HostReport, InitiatorReport, LoopConfig, reported_signal,
};
use tidegate_regulate::ThrottleEffect;
use tidegate_service::status::SignalOrigin;
use tidegate_units::{ConsumerName, HostName, Instant, Latency};

use super::config::{ReportIntakeConfig, ThrottleOrder};
use super::order::OrderOfTurns;
use crate::addresses::ConsumerAddresses;

/// A report older than so many intervals of the law does not count.
const STALE_INTERVALS: u32 = 3;

/// Two arrivals nearer to each other than this are one: ages are measured by two readings of a clock.
const SAME_ARRIVAL: Latency = Latency::from_millis(1);

/// The carrier of reports, and this host's name in it.
#[derive(Debug, Clone)]
pub(crate) struct ReportCarrier {
    pub(crate) cluster: Arc<ClusterHandle>,
    pub(crate) host: HostName,
}

/// The reports on one resource.
#[derive(Debug)]
pub(crate) struct ReportIntake {
    config: ReportIntakeConfig,
    /// The time of arrival of the report of each host that was counted last.
    counted: BTreeMap<HostName, Latency>,
    effect: ThrottleEffect,
    order: OrderOfTurns,
    reporters: Vec<Reporter>,
    with_agent: BTreeSet<ConsumerName>,
    origin: SignalOrigin,
}

/// An initiator that reports, for people to see.
#[derive(Debug, Clone, PartialEq)]
pub struct Reporter {
    /// Its name in the cluster.
    pub host: HostName,
    /// The consumer that it is; `None`: none of this resource.
    pub consumer: Option<ConsumerName>,
    /// The time since its last report arrived.
    pub age: Latency,
    /// The mean latency of its reads; `None` if none completed.
    pub mean: Option<Latency>,
    /// The use that is made of it.
    pub reading: ReportUse,
}

/// The use that is made of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportUse {
    /// It counts, as far as another host bears it out.
    Counts,
    /// It counts in full.
    Believed,
    /// It is too old.
    Old,
    /// Its consumer may be throttled, and waits for that.
    Eligible,
    /// It comes from no consumer of the resource.
    NoConsumer,
    /// Throttling did not shorten the latency that is reported.
    InVain,
}

impl ReportUse {
    /// Returns true if the report is a part of the signal.
    #[must_use]
    pub const fn counts(self) -> bool {
        matches!(self, Self::Counts | Self::Believed)
    }
}

impl fmt::Display for ReportUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counts => "counts as far as another host bears it out",
            Self::Believed => "counts in full",
            Self::Old => "too old to count",
            Self::Eligible => "does not count: eligible for throttling itself",
            Self::NoConsumer => "does not count: no consumer of the resource by its name or address",
            Self::InVain => "does not count for some time: throttling did not shorten it",
        })
    }
}

/// The reports of one decision.
#[derive(Debug)]
pub(crate) struct HeardReports {
    reports: Vec<InitiatorReport>,
    stale: u32,
    host: HostName,
}

impl HeardReports {
    /// Returns the signal of these reports and of what was measured here.
    pub(crate) fn signal(&self, own: &HostReport) -> Option<ClusterSignal> {
        reported_signal(&self.host, own, &self.reports, self.stale)
    }
}

impl ReportIntake {
    pub(crate) fn new(config: ReportIntakeConfig) -> Self {
        Self {
            config,
            counted: BTreeMap::new(),
            effect: ThrottleEffect::default(),
            order: OrderOfTurns::default(),
            reporters: Vec::new(),
            with_agent: BTreeSet::new(),
            origin: SignalOrigin::Measured,
        }
    }

    pub(crate) fn reconfigure(&mut self, config: ReportIntakeConfig) {
        self.config = config;
    }

    /// Takes the reports that were heard, for a decision now. `consumers` are those of the resource, and
    /// `eligible` those of them that may be throttled.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        (carrier, law): (&ReportCarrier, &LoopConfig),
        consumers: &BTreeSet<&ConsumerName>,
        eligible: &BTreeSet<&ConsumerName>,
        addresses: &ConsumerAddresses,
    ) -> Option<HeardReports> {
        let heard = carrier.cluster.heard_from(&law.resource);
        let oldest = Latency::from(law.interval.saturating_mul(STALE_INTERVALS));
        let mut reports = Vec::new();
        let mut stale = 0;
        self.reporters.clear();
        self.with_agent.clear();
        for (HeardReport { host, age, report }, from) in heard {
            let consumer = consumer_of(&host, from, consumers, addresses);
            let is_meant = |consumer: &ConsumerName| {
                let addresses = addresses.of(consumer);
                let believed = &self.config.believed;
                believed.iter().any(|pattern| pattern.matches(consumer.as_str(), addresses.clone()))
            };
            let reading = match consumer {
                _ if age > oldest => {
                    stale += 1;
                    ReportUse::Old
                }
                None => ReportUse::NoConsumer,
                Some(consumer) if eligible.contains(consumer) => ReportUse::Eligible,
                Some(_) if !self.effect.counts() => ReportUse::InVain,
                Some(consumer) if is_meant(consumer) => ReportUse::Believed,
                Some(_) => ReportUse::Counts,
            };
            if reading != ReportUse::Old {
                self.with_agent.extend(consumer.cloned());
            }
            let mean = report.total_latency.as_nanos().checked_div(report.completed);
            self.reporters.push(Reporter {
                host: host.clone(),
                consumer: consumer.cloned(),
                age,
                mean: mean.map(Latency::from_nanos),
                reading,
            });
            if reading.counts() || reading == ReportUse::InVain {
                let believed = consumer.is_some_and(is_meant);
                let is_new = self.is_new(now, host, age);
                reports.push(InitiatorReport { report, believed, is_new });
            }
        }
        let reporters = &self.reporters;
        self.counted.retain(|host, _| reporters.iter().any(|reporter| reporter.host == *host));
        let host = carrier.host.clone();
        (!reports.is_empty()).then_some(HeardReports { reports, stale, host })
    }

    /// Returns true if the report has not been counted before.
    fn is_new(&mut self, now: Instant, host: HostName, age: Latency) -> bool {
        let arrived = Latency::from_nanos(now.as_nanos()).saturating_sub(age);
        let last = self.counted.get(&host).copied();
        let is_new = last.is_none_or(|last| arrived > last.saturating_add(SAME_ARRIVAL));
        if is_new {
            self.counted.insert(host, arrived);
        }
        is_new
    }

    /// Returns true if reports are a part of the signal now, and not left out to see what they say without a
    /// throttle.
    pub(crate) const fn counts(&self) -> bool {
        self.effect.counts()
    }

    /// Follows what the throttle does to the latency. `reported` is the signal that the reports make, whether
    /// they count or not.
    pub(crate) fn follow(
        &mut self,
        elapsed: Duration,
        reported: Option<Latency>,
        target: Latency,
        in_force: (Latency, Latency),
    ) {
        self.effect.observe(elapsed, reported, target, in_force);
        self.order.observe(elapsed, in_force, reported.is_some_and(|reported| reported > target));
    }

    /// Leaves out the consumers that are not to be throttled yet: those with an agent, while there are others
    /// whose turn it is.
    pub(crate) fn in_turn(&self, eligible: BTreeSet<ConsumerName>) -> BTreeSet<ConsumerName> {
        if self.config.order == ThrottleOrder::Alike || self.order.is_everyone() {
            return eligible;
        }
        let first: BTreeSet<_> = eligible.difference(&self.with_agent).cloned().collect();
        if first.is_empty() { eligible } else { first }
    }

    /// Takes note of the origin of a decision's signal. `None`: the reports say nothing, or do not count.
    pub(crate) fn note_origin(&mut self, own: &HostReport, signal: Option<&ClusterSignal>) {
        let Some(signal) = signal else {
            self.origin = SignalOrigin::Measured;
            return;
        };
        // A mean of the reports is rounded to a nanosecond.
        let own_mean = own.total_latency.as_nanos().checked_div(own.completed).unwrap_or(0) + 1;
        let is_longer = match signal.mean {
            Some(mean) => mean.as_nanos() > own_mean,
            None if signal.oldest > own.oldest => true,
            // Without news the signal stays what it was.
            None => return,
        };
        self.origin = if is_longer { SignalOrigin::Reports } else { SignalOrigin::Measured };
    }

    /// Returns the origin of the signal, as of the last decision.
    pub(crate) const fn origin(&self) -> SignalOrigin {
        self.origin
    }

    /// Returns the initiators that report, as of the last decision.
    pub(crate) fn reporters(&self) -> &[Reporter] {
        &self.reporters
    }
}

/// Returns the consumer that a host is: by its name, or else by the address that it reports from.
fn consumer_of<'a>(
    host: &HostName,
    from: Option<IpAddr>,
    consumers: &BTreeSet<&'a ConsumerName>,
    addresses: &ConsumerAddresses,
) -> Option<&'a ConsumerName> {
    let by_name = consumers.iter().find(|consumer| consumer.as_str() == host.as_str());
    let is_there =
        |consumer: &&&ConsumerName| from.is_some_and(|from| addresses.of(consumer).any(|at| at == from));
    by_name.or_else(|| consumers.iter().find(is_there)).copied()
}
