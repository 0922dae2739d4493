//! The load of an array's LUNs by each initiator, from the packets that pass: for an agent that runs between
//! them.

pub(crate) mod config;
mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_host::sense::capture::{
    CaptureConfig, CaptureError, CapturedTraffic, ConnectionView, Nexus, NexusReport, NexusTotals,
    OperationCount, PacketCapture, RecalledSession, StorageProtocol, WireCounters,
};
use tidegate_host::sense::diskstats::CompletedRequests;
use tidegate_host::sense::session::{TargetKind, TargetReading, VolumeBacking};
use tidegate_host::sense::{DiskDelta, TargetSession, TargetSessions};
use tidegate_units::{ConsumerName, Instant, Latency};

use self::config::{ArrayPart, BridgeConfig};
use crate::addresses::ConsumerAddresses;
use crate::metrics::BridgeStatus;
use crate::watch::{LOOK, MachineSample, WatchedDevice};

/// The time between two writings of the known sessions when they stay the same: an old file tells nothing.
const BETWEEN_WRITINGS: Duration = Duration::from_secs(60);

/// Bytes of a sector, by which devices count.
const SECTOR: u64 = 512;

/// An array as the packets show it.
#[derive(Debug)]
pub(crate) struct BridgeWatch {
    capture: PacketCapture,
    /// The uses of LUNs that are watched, in order.
    nexuses: Vec<Nexus>,
    /// The load of each of them.
    devices: Vec<WatchedDevice>,
    /// The totals at the sample before.
    totals: BTreeMap<Nexus, NexusTotals>,
    sessions: TargetSessions,
    addresses: ConsumerAddresses,
    counters: WireCounters,
    /// Connections that tell nothing, or not all, each with the reason.
    doubts: BTreeSet<String>,
    sampled: Option<Instant>,
    look_every: Duration,
    since_look: Duration,
    /// The next sample is a look.
    look_now: bool,
    file: Option<PathBuf>,
    /// The sessions that were written down, and when.
    written: Option<(Instant, Vec<RecalledSession>)>,
}

impl BridgeWatch {
    /// Begins to capture. `keeps`: known sessions are written down; otherwise they are only read.
    pub(crate) fn new(
        config: &BridgeConfig,
        ports: &BTreeSet<u16>,
        keeps: bool,
    ) -> Result<Self, CaptureError> {
        let file = config.sessions.clone().or_else(known::of_state_directory);
        let recalled = file.as_deref().map(known::read).unwrap_or_default();
        let file = file.filter(|_| keeps);
        let capture = PacketCapture::start(capture_config(config, ports), recalled)?;
        Ok(Self {
            capture,
            nexuses: Vec::new(),
            devices: Vec::new(),
            totals: BTreeMap::new(),
            sessions: TargetSessions {
                sessions: Vec::new(),
                targets: [TargetKind::Iscsi, TargetKind::Nvme].map(|via| (via, TargetReading::Read)).into(),
            },
            addresses: ConsumerAddresses::default(),
            counters: WireCounters::default(),
            doubts: BTreeSet::new(),
            sampled: None,
            look_every: LOOK,
            since_look: Duration::ZERO,
            look_now: false,
            file,
            written: None,
        })
    }

    /// Rescans consumers each second, or more often if configured.
    pub(crate) fn look_every(&mut self, interval: Duration) {
        self.look_every = interval.min(LOOK);
    }

    /// Makes the next sample a rescan.
    pub(crate) const fn look_now(&mut self) {
        self.look_now = true;
    }

    /// Takes what passed since the sample before. Returns `None` at the first call.
    pub(crate) fn sample(&mut self, now: Instant) -> Result<Option<MachineSample>, CaptureError> {
        let traffic = self.capture.report()?;
        let first = self.sampled.is_none();
        let elapsed = now.saturating_since(self.sampled.replace(now).unwrap_or(now));
        self.since_look = self.since_look.saturating_add(elapsed);
        // As of devices: a sample that comes a little early is this look's all the same.
        let is_due = self.since_look + elapsed / 2 >= self.look_every;
        let looks = std::mem::take(&mut self.look_now) || first || is_due;
        let changed = looks && self.look(&traffic);
        self.follow(now, &traffic);
        if looks {
            self.devices.iter_mut().for_each(WatchedDevice::divide);
            self.keep_sessions(now);
        }
        self.counters = traffic.report.counters;
        if first {
            return Ok(None);
        }
        let looked = looks.then(|| std::mem::take(&mut self.since_look));
        Ok(Some(MachineSample { elapsed, looked, changed }))
    }

    /// Finds the nexuses that there are now. Returns true if they, or their addresses, are others.
    fn look(&mut self, traffic: &CapturedTraffic) -> bool {
        let report = &traffic.report;
        self.doubts = report
            .connections
            .iter()
            .filter(|(.., view)| !matches!(view, ConnectionView::Named | ConnectionView::LoggingIn))
            .filter(|(.., view)| *view != ConnectionView::Sought)
            .map(|(client, server, view)| format!("{client} to {server}: {view}"))
            .collect();
        let found = report.nexuses.iter().filter_map(|report| Some((report.nexus.clone(), session(report)?)));
        let (nexuses, sessions): (Vec<_>, Vec<_>) = found.unzip();
        if self.sessions.sessions == sessions && self.nexuses == nexuses {
            return false;
        }
        let mut known: BTreeMap<Nexus, WatchedDevice> =
            std::mem::take(&mut self.nexuses).into_iter().zip(std::mem::take(&mut self.devices)).collect();
        let device = |(nexus, session): (&Nexus, &TargetSession)| {
            known.remove(nexus).unwrap_or_else(|| WatchedDevice::of_one_user(session.consumer.clone()))
        };
        self.devices = nexuses.iter().zip(&sessions).map(device).collect();
        self.nexuses = nexuses;
        self.addresses = ConsumerAddresses::new(&sessions, &Arc::default());
        self.sessions.sessions = sessions;
        true
    }

    /// Takes what each nexus did.
    fn follow(&mut self, now: Instant, traffic: &CapturedTraffic) {
        let mut totals = BTreeMap::new();
        let mut found = traffic.report.nexuses.iter().peekable();
        for (nexus, device) in self.nexuses.iter().zip(&mut self.devices) {
            while found.next_if(|report| report.nexus < *nexus).is_some() {}
            let Some(report) = found.next_if(|report| report.nexus == *nexus) else {
                device.observe(DiskDelta::default(), None);
                continue;
            };
            let before = self.totals.get(nexus).copied().unwrap_or_default();
            let since = report.oldest_read.map(|sent| before_now(now, traffic.now.latency_since(sent)));
            device.observe(delta(&before, report), since);
            totals.insert(nexus.clone(), report.totals);
        }
        self.totals = totals;
    }

    /// Writes down the known sessions, so that they have names after a restart.
    fn keep_sessions(&mut self, now: Instant) {
        let Some(file) = &self.file else { return };
        let sessions = self.capture.sessions();
        let is_current = |(at, written): &(Instant, Vec<RecalledSession>)| {
            *written == sessions && now.saturating_since(*at) < BETWEEN_WRITINGS
        };
        if self.written.as_ref().is_some_and(is_current) {
            return;
        }
        let written = known::write(file, &sessions);
        self.written = Some((now, sessions));
        if let Err(error) = written {
            tracing::warn!(
                "{}: {error}; after a restart, sessions have no names until they log in",
                file.display()
            );
        }
    }

    /// The places of the nexuses that a resource is made of.
    pub(crate) fn devices_of(&self, part: &ArrayPart) -> Vec<usize> {
        let belongs = |nexus: &Nexus| part.contains(&nexus.initiator, &nexus.target, &nexus.unit);
        (0..self.nexuses.len()).filter(|place| belongs(&self.nexuses[*place])).collect()
    }

    pub(crate) fn device(&self, place: usize) -> &WatchedDevice {
        &self.devices[place]
    }

    pub(crate) const fn addresses(&self) -> &ConsumerAddresses {
        &self.addresses
    }

    pub(crate) const fn sessions(&self) -> &TargetSessions {
        &self.sessions
    }

    /// Returns its state, for metrics.
    pub(crate) fn status(&self) -> BridgeStatus {
        BridgeStatus { counters: self.counters, doubtful: self.doubts.len() }
    }

    /// Connections that tell nothing, or not all, each with the reason.
    pub(crate) const fn doubts(&self) -> &BTreeSet<String> {
        &self.doubts
    }
}

/// Returns the capture that a configuration asks for.
pub(crate) fn capture_config(config: &BridgeConfig, ports: &BTreeSet<u16>) -> CaptureConfig {
    CaptureConfig { interface: config.array.clone(), ports: ports.clone(), snap: config.capture }
}

fn before_now(now: Instant, age: Latency) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(age.as_nanos()))
}

/// Returns a nexus as a session of a target.
fn session(report: &NexusReport) -> Option<TargetSession> {
    let Nexus { protocol, initiator, target, unit } = &report.nexus;
    Some(TargetSession {
        via: match protocol {
            StorageProtocol::Iscsi => TargetKind::Iscsi,
            StorageProtocol::Nvme => TargetKind::Nvme,
        },
        consumer: ConsumerName::new(initiator).ok()?,
        target: target.clone(),
        volume: Arc::new(VolumeBacking { name: unit.to_string(), path: None }),
        device: None,
        addresses: report.addresses.clone(),
        doubt: None,
        counters: None,
    })
}

/// Returns what a nexus did, as devices count it. Totals that are less belong to a new session.
fn delta(before: &NexusTotals, report: &NexusReport) -> DiskDelta {
    let reads = completed(&before.reads, &report.totals.reads);
    let writes = completed(&before.writes, &report.totals.writes);
    DiskDelta {
        reads,
        writes,
        in_flight: u64::from(report.reads_in_flight),
        weighted: reads.response_time.saturating_add(writes.response_time),
        ..DiskDelta::default()
    }
}

fn completed(before: &OperationCount, now: &OperationCount) -> CompletedRequests {
    let is_new = now.count < before.count || now.bytes < before.bytes;
    let before = if is_new { OperationCount::default() } else { *before };
    CompletedRequests {
        ios: now.count - before.count,
        merged: 0,
        // Whole sectors of the sums, so that no byte is lost from one sample to the next.
        sectors: now.bytes.get() / SECTOR - before.bytes.get() / SECTOR,
        response_time: now.latency.saturating_sub(before.latency),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_units::Bytes;

    use super::*;

    fn count(count: u64, bytes: u64, ms: u64) -> OperationCount {
        OperationCount { count, bytes: Bytes::new(bytes), latency: Latency::from_millis(ms) }
    }

    #[test]
    fn no_byte_is_lost_from_one_sample_to_the_next() {
        let totals = [count(0, 0, 0), count(1, 700, 3), count(2, 1400, 5), count(2, 2048, 5)];
        let sectors: u64 = totals.windows(2).map(|pair| completed(&pair[0], &pair[1]).sectors).sum();
        assert_eq!(sectors, 4);
        let one = completed(&totals[1], &totals[2]);
        assert_eq!((one.ios, one.response_time), (1, Latency::from_millis(2)));
    }

    #[test]
    fn a_session_that_begins_anew_is_counted_from_its_beginning() {
        let again = completed(&count(900, 1 << 20, 800), &count(2, 1024, 3));
        assert_eq!((again.ios, again.sectors, again.response_time), (2, 2, Latency::from_millis(3)));
    }
}
