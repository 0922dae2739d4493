//! The kinds of scenarios, drawn evenly.

/// A kind of scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScenarioKind {
    /// Exponential servers, always backlogged: easy for every law.
    Servers,
    /// Exponential servers whose consumers come and go, in closed and open loops.
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
    /// Several hosts, one of which reports wrong latencies, fails, or both.
    BadHosts,
    /// Targets from 0.3 to 1.1 times the unloaded latency.
    Unattainable,
    /// Volumes of 40 to 200 IO/s, whose responses outlast a control interval.
    Slow,
    /// Scans, random requests and batches of several sizes.
    Mixed,
}

impl ScenarioKind {
    /// Every kind, in the order in which seeds go through them.
    pub const ALL: [Self; 12] = [
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
        Self::Slow,
        Self::Mixed,
    ];

    /// Returns the kind that a seed draws.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self::ALL[(seed % Self::ALL.len() as u64) as usize]
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
            Self::Slow => "slow",
            Self::Mixed => "mixed",
        }
    }
}
