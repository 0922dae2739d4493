//! Loads of the machines, and the counters of their requests.

use tidegate_device::DeviceIo;

use super::findings::LoadFindings;
use super::plan::{LoadTimes, MachineLoad};
use crate::SeriesSample;
use crate::random::RandomStream;

/// A load at work.
pub(super) struct LoadWork {
    pub(super) load: MachineLoad,
    random: RandomStream,
    /// Number of the next sequential request's block in the area.
    cursor: u64,
    issued: u64,
    moved: u64,
    begun: Option<u64>,
    pub(super) findings: LoadFindings,
}

/// The next step of one place of a load's depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// This request.
    Request(DeviceIo),
    /// Nothing before that time.
    Wait(u64),
    /// Nothing any more.
    Nothing,
}

impl LoadWork {
    pub(super) fn new(load: &MachineLoad, random: RandomStream) -> Self {
        Self {
            load: load.clone(),
            random,
            cursor: 0,
            issued: 0,
            moved: 0,
            begun: None,
            findings: LoadFindings::default(),
        }
    }

    /// Returns the time at which it begins, where that does not depend on another load.
    pub(super) fn begins(&self) -> Option<u64> {
        match self.load.when {
            LoadTimes::From(from) | LoadTimes::Bursts { from, .. } => Some(nanos(from)),
            LoadTimes::After(_) => None,
        }
    }

    pub(super) fn next(&mut self, now: u64) -> NextStep {
        if let LoadTimes::Bursts { from, on, off } = self.load.when {
            let into = now.saturating_sub(nanos(from)) % (nanos(on) + nanos(off)).max(1);
            if into >= nanos(on) {
                return NextStep::Wait(now - into + nanos(on) + nanos(off));
            }
        }
        if self.load.amount.is_some_and(|amount| self.issued >= amount.get()) {
            return NextStep::Nothing;
        }
        let block = self.load.block.get();
        let blocks = self.load.size.get() / block;
        let place = if self.load.sequential { self.cursor % blocks } else { self.random.below(blocks) };
        self.cursor += 1;
        self.issued += block;
        self.begun.get_or_insert(now);
        let offset = self.load.start.get() + place * block;
        let bytes = u32::try_from(block).unwrap_or(u32::MAX);
        NextStep::Request(if self.load.write {
            DeviceIo::write(offset, bytes)
        } else {
            DeviceIo::read(offset, bytes)
        })
    }

    /// Counts an answered request. Returns true if it was the last of the load's amount.
    pub(super) fn answered(&mut self, now: u64, bytes: u64) -> bool {
        self.findings.requests += 1;
        self.moved += bytes;
        let last = self.load.amount.is_some_and(|amount| self.moved >= amount.get())
            && self.findings.took_s.is_none();
        if last {
            let begun = self.begun.unwrap_or(now);
            self.findings.took_s = Some((now - begun) as f64 * 1e-9);
        }
        last
    }
}

pub(super) fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A number of requests and its integral over time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DepthLevel {
    now: u64,
    area: u64,
    since: u64,
}

impl DepthLevel {
    pub(super) fn set(&mut self, at: u64, level: u64) {
        self.area += self.now * (at - self.since);
        (self.now, self.since) = (level, at);
    }

    pub(super) const fn get(&self) -> u64 {
        self.now
    }

    /// Returns the level times nanoseconds since the last call.
    pub(super) fn take(&mut self, at: u64) -> u64 {
        self.set(at, self.now);
        std::mem::take(&mut self.area)
    }
}

/// Service that a machine got since the last row of the time series.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServiceMeter {
    requests: u64,
    bytes: u64,
    /// Nanoseconds, of all requests together: at the storage, and as the machine feels it.
    stored: u64,
    felt: u64,
    pub(super) outstanding: DepthLevel,
}

impl ServiceMeter {
    pub(super) const fn answered(&mut self, bytes: u64, stored: u64, felt: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.stored += stored;
        self.felt += felt;
    }

    pub(super) fn take(&mut self, at: u64, seconds: f64) -> SeriesSample {
        let requests = self.requests as f64;
        let mean = |nanos: u64| (self.requests > 0).then(|| nanos as f64 * 1e-6 / requests);
        let sample = SeriesSample {
            device_latency_ms: mean(self.stored),
            latency_ms: mean(self.felt),
            iops: requests / seconds,
            bytes_per_s: self.bytes as f64 / seconds,
            ops_per_s: requests / seconds,
            outstanding: self.outstanding.take(at) as f64 * 1e-9 / seconds,
            ..SeriesSample::default()
        };
        *self = Self { outstanding: self.outstanding, ..Self::default() };
        sample
    }
}
