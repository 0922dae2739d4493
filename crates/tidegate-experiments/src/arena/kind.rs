//! The kinds of scenarios, drawn about evenly.

/// A kind of scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScenarioKind {
    /// Exponential servers, always backlogged: easy for every law.
    Servers,
    /// Exponential servers whose consumers come and go, ramp up and down, or pause together.
    Bursts,
    /// Single disks and stripes, always backlogged.
    Disks,
    /// RAID 5 with a write-back cache and writers, without protected consumers.
    WriteBack,
    /// Protected reads beside writers, on RAID 5 with a write-back cache.
    WriteBackPromise,
    /// Protected reads beside bursts or steady load, on disks and servers.
    Promise,
    /// A capacity that changes twice.
    Capacity,
    /// Several hosts with shares, on networks that delay and lose reports.
    Hosts,
    /// Several hosts, one of which reports wrong latencies, is slow, fails, or is cut off.
    BadHosts,
    /// Targets from 0.3 to 1.25 times the unloaded latency, with and without idle servers.
    Unattainable,
    /// Such targets for a protected reader.
    UnattainablePromise,
    /// Volumes of 40 to 200 IO/s, whose responses outlast a control interval.
    Slow,
    /// Scans, random requests and batches of several sizes.
    Mixed,
    /// Solid-state drives: writes disturb reads, erases stall them, and the knee is flat.
    Flash,
    /// Volumes of a cloud that are limited to a rate, with or without credits for bursts.
    CloudVolume,
    /// A fast and a slow tier with a hit ratio that changes.
    Tiers,
    /// A link in front of an array, which is the bottleneck or not.
    Link,
    /// A percentile promised to a protected reader, on disks and parallel servers.
    Percentile,
    /// Not drawn: a scenario that was written ([`ArenaScenario::written`](super::ArenaScenario::written)).
    Written,
}

impl ScenarioKind {
    /// Every kind that is drawn. Seeds go through all but the last one, which has seeds of its own.
    pub const ALL: [Self; 18] = [
        Self::Servers,
        Self::Bursts,
        Self::Disks,
        Self::WriteBack,
        Self::WriteBackPromise,
        Self::Promise,
        Self::Capacity,
        Self::Hosts,
        Self::BadHosts,
        Self::Unattainable,
        Self::UnattainablePromise,
        Self::Slow,
        Self::Mixed,
        Self::Flash,
        Self::CloudVolume,
        Self::Tiers,
        Self::Link,
        Self::Percentile,
    ];

    /// Divisor and remainder of the seeds that draw a percentile. 17 and 20 have no common divisor, so that
    /// in 200 seeds each other kind loses one at most.
    const PERCENTILE_SEEDS: (u64, u64) = (20, 19);

    /// Returns the kind that a seed draws.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let (every, remainder) = Self::PERCENTILE_SEEDS;
        if seed % every == remainder {
            return Self::Percentile;
        }
        Self::ALL[(seed % (Self::ALL.len() as u64 - 1)) as usize]
    }

    /// Returns its name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Servers => "servers",
            Self::Bursts => "bursts",
            Self::Disks => "disks",
            Self::WriteBack => "write-back",
            Self::WriteBackPromise => "write-back-promise",
            Self::Promise => "promise",
            Self::Capacity => "capacity",
            Self::Hosts => "hosts",
            Self::BadHosts => "bad-hosts",
            Self::Unattainable => "unattainable",
            Self::UnattainablePromise => "unattainable-promise",
            Self::Slow => "slow",
            Self::Mixed => "mixed",
            Self::Flash => "flash",
            Self::CloudVolume => "cloud-volume",
            Self::Tiers => "tiers",
            Self::Link => "link",
            Self::Percentile => "percentile",
            Self::Written => "written",
        }
    }

    /// Returns true if the target is drawn below or near the unloaded latency.
    pub(super) const fn is_unattainable(self) -> bool {
        matches!(self, Self::Unattainable | Self::UnattainablePromise)
    }
}
