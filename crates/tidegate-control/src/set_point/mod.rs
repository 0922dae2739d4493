//! The set point in force: configured, chosen here, or chosen by the host that leads.

mod curve;
pub(crate) mod knee;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

use crate::document::host_report::ClusterSignal;
use crate::document::set_point_choice::{SetPointChoice, SetPointReason};
use crate::document::signal::{SignalRequests, SignalState};
use crate::set_point::knee::{KneeConfig, KneeFinder, KneeSample};

/// The set point of the law, with its source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SetPoint {
    /// The configured one; of an automatic one the ceiling.
    configured: Latency,
    /// Boxed, because most loops have none.
    automatic: Option<Box<Automatic>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Automatic {
    config: KneeConfig,
    finder: KneeFinder,
}

/// Measurements of the array in one control interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrayInterval {
    pub(crate) elapsed: Duration,
    pub(crate) signal: SignalRequests,
    pub(crate) input: SignalState,
    pub(crate) measured: Option<Latency>,
    /// Requests wait on this host, and its window is full.
    pub(crate) full: bool,
}

impl SetPoint {
    /// Begins at the configured set point. `interval` is the control interval. The configuration is valid.
    pub(crate) fn new(configured: Latency, knee: Option<KneeConfig>, interval: Duration) -> Self {
        let mut set_point = Self { configured, automatic: None };
        set_point.reconfigure(configured, knee, interval);
        set_point
    }

    /// Changes the parameters and keeps everything learnt. The configuration is valid.
    pub(crate) fn reconfigure(&mut self, configured: Latency, knee: Option<KneeConfig>, interval: Duration) {
        self.configured = configured;
        let Some(knee) = knee else {
            self.automatic = None;
            return;
        };
        match &mut self.automatic {
            Some(automatic) => {
                automatic.config = knee;
                automatic.finder.reconfigure(knee, configured, interval);
            }
            None => {
                let finder = KneeFinder::new(knee, configured, interval);
                self.automatic = Some(Box::new(Automatic { config: knee, finder }));
            }
        }
    }

    /// Returns the set point that this host proposes to all hosts.
    pub(crate) fn published(&self) -> Option<Latency> {
        self.automatic.as_ref().map(|automatic| automatic.finder.set_point())
    }

    /// Returns the set point of the law in this interval, and the reason if it was chosen.
    pub(crate) fn in_force(
        &mut self,
        signal: SignalRequests,
        cluster: Option<&ClusterSignal>,
    ) -> (Latency, Option<SetPointChoice>) {
        let Some(automatic) = &mut self.automatic else { return (self.configured, None) };
        if signal.is_promise() {
            let choice = SetPointChoice {
                reason: SetPointReason::Promise,
                ceiling: self.configured,
                fraction: automatic.config.fraction,
                knee: None,
                most: None,
                most_at: None,
            };
            return (self.configured, Some(choice));
        }
        if let Some(cluster) = cluster
            && !cluster.leads
        {
            automatic.finder.follow(&cluster.leader, cluster.set_point);
        }
        (automatic.finder.set_point(), Some(automatic.finder.choice()))
    }

    /// Takes what happened, and chooses for the next interval where this host is to choose.
    pub(crate) fn learn(&mut self, interval: &ArrayInterval, cluster: Option<&ClusterSignal>) {
        let Some(automatic) = &mut self.automatic else { return };
        let iops = match interval.input {
            SignalState::NoTime => return,
            SignalState::Samples { count } => {
                cluster.map_or(count as f64 / interval.elapsed.as_secs_f64(), |all| all.iops.per_second())
            }
            // The array has work, and finishes none.
            SignalState::Overload { .. } | SignalState::Unknown => 0.0,
            SignalState::Idle => return automatic.finder.interrupt(),
        };
        if interval.signal.is_promise() {
            return automatic.finder.interrupt();
        }
        let sample = KneeSample {
            elapsed: interval.elapsed,
            iops,
            mean: interval.measured.unwrap_or_default(),
            full: interval.full,
        };
        if cluster.is_none_or(|cluster| cluster.leads) {
            automatic.finder.lead(&sample);
        } else {
            automatic.finder.learn(&sample);
        }
    }
}
