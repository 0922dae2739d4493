//! One consumer of a regulated resource.

use std::time::Duration;

use tidegate_control::{ConsumerCommand, OperationTotals};
use tidegate_units::{ConsumerName, Iops, Latency, Shares};

use crate::division::WeightedShare;
use crate::limit::DirectionLimits;
use crate::load::{DeviceLoad, SentLoad, StorageLoad, mean_latency, plus};
use crate::mix::DirectionMix;
use crate::pace::WritePace;

/// A consumer that is eligible for throttling.
#[derive(Debug, Clone, PartialEq)]
pub struct EligibleConsumer {
    /// Its name.
    pub name: ConsumerName,
    /// The latency that it is to have, if it has a goal of its own.
    pub goal: Option<Latency>,
    /// Its weight among the others, if delays are divided; `None`: it has the same delay as all.
    pub weight: Option<Shares>,
}

impl EligibleConsumer {
    /// A consumer like all others.
    #[must_use]
    pub const fn new(name: ConsumerName) -> Self {
        Self { name, goal: None, weight: None }
    }
}

/// A consumer, or all others together: its load since the last decision, and the rate in force for it.
#[derive(Debug, Clone)]
pub(crate) struct RegulatedConsumer {
    pub(crate) name: ConsumerName,
    /// The latency that it is to have, if it has a goal of its own.
    pub(crate) goal: Option<Latency>,
    /// Its load since the last decision.
    pub(crate) load: StorageLoad,
    /// Its load since it is eligible.
    pub(crate) totals: StorageLoad,
    /// Requests that were sent while none completed, so that their latency is not known yet.
    pub(crate) undated: SentLoad,
    /// Its part in a delay that is divided.
    pub(crate) share: Option<WeightedShare>,
    pace: WritePace,
    mix: DirectionMix,
    /// The rate in force; `None`: it is not throttled by one.
    rate: Option<Iops>,
}

impl RegulatedConsumer {
    pub(crate) fn new(name: ConsumerName) -> Self {
        Self {
            name,
            goal: None,
            load: StorageLoad::default(),
            totals: StorageLoad::default(),
            undated: SentLoad::default(),
            share: None,
            pace: WritePace::default(),
            mix: DirectionMix::default(),
            rate: None,
        }
    }

    /// Takes note of its goal and its weight.
    pub(crate) fn agree(&mut self, goal: Option<Latency>, weight: Option<Shares>) {
        self.goal = goal;
        match (&mut self.share, weight) {
            (Some(share), Some(weight)) => share.weigh(weight),
            (share, weight) => *share = weight.map(WeightedShare::new),
        }
    }

    /// Adds what it completed.
    pub(crate) fn complete(&mut self, load: &StorageLoad) {
        self.load.plus(load);
        self.totals.plus(load);
    }

    /// Adds what it sent. Each request took as long as the device's requests took meanwhile on average: of
    /// each consumer that is not known.
    pub(crate) fn send(&mut self, elapsed: Duration, sent: &SentLoad, device: &DeviceLoad) {
        self.mix.observe(elapsed, &sent.reads, &sent.writes);
        self.undated.plus(sent);
        let mut dated = OperationTotals::default();
        for (undated, sum, total, device) in [
            (&mut self.undated.reads, &mut self.load.reads, &mut self.totals.reads, &device.reads),
            (&mut self.undated.writes, &mut self.load.writes, &mut self.totals.writes, &device.writes),
        ] {
            let Some(mean) = mean_latency(device) else { continue };
            let sent = std::mem::take(undated);
            let completed = OperationTotals { total_latency: mean.scale(sent.count as f64), ..sent };
            plus(sum, &completed);
            plus(total, &completed);
            plus(&mut dated, &completed);
        }
        let waits = self.pace.observe(elapsed, &dated);
        self.load.outstanding_seconds += dated.total_latency.as_secs_f64() + waits;
    }

    /// Puts a rate into force: the command's, or the one that its delay comes to.
    pub(crate) fn obey(&mut self, command: &ConsumerCommand, floor: Iops) {
        match command.rate {
            Some(rate) => self.rate = Some(if rate < floor { floor } else { rate }),
            None => self.delay_by(command.delay.unwrap_or_default(), floor),
        }
    }

    /// Puts the rate into force that a delay comes to.
    pub(crate) fn delay_by(&mut self, delay: Latency, floor: Iops) {
        self.rate = self.pace.rate(delay, floor);
    }

    /// Stops throttling it by a rate.
    pub(crate) fn release(&mut self) {
        self.rate = None;
        self.pace.release();
    }

    /// The rate in force.
    pub(crate) const fn rate(&self) -> Option<Iops> {
        self.rate
    }

    /// The limits in force.
    pub(crate) fn limits(&self) -> Option<DirectionLimits> {
        self.rate.and_then(|rate| self.mix.limits(rate))
    }
}
