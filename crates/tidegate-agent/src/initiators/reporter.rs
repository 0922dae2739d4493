//! Reports of an initiator: what it waits for, by the counters of its block devices.
//!
//! A thread of its own reads the counters and hands reports to the carrier, which never waits. If devices of
//! a report are not there, or the kernel does not count the requests of one, nothing is reported: no report is
//! better than one that says nothing was slow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant as Clock};

use tidegate_cluster::ClusterHandle;
use tidegate_control::{HostReport, SignalRequests};
use tidegate_host::sense::volume::DeviceKind;
use tidegate_host::sense::{DiskStats, UncountedDevice, VolumeTree, uncounted};
use tidegate_host::{DeviceNumber, ReadError, SystemRoot};
use tidegate_units::{Instant, Iops, Latency};

use super::config::InitiatorReportConfig;

/// Devices are looked for this often, and when some came or went.
const LOOK: Duration = Duration::from_secs(30);

/// The most devices of a report.
const MOST_DEVICES: usize = 1_024;

/// The reports that are made. Dropped, they end.
#[derive(Debug)]
pub(crate) struct InitiatorReporter {
    configs: Vec<InitiatorReportConfig>,
    /// Nothing is sent: that it is gone says that it is over.
    _until: Sender<()>,
}

impl InitiatorReporter {
    /// Starts to report. `None` if there is nothing to report.
    pub(crate) fn start(configs: &[InitiatorReportConfig], cluster: &Arc<ClusterHandle>) -> Option<Self> {
        if configs.is_empty() {
            return None;
        }
        let (until, over) = mpsc::channel();
        let (owned, cluster) = (configs.to_vec(), Arc::clone(cluster));
        let body = move || report(&owned, &cluster, &over);
        if let Err(error) = thread::Builder::new().name("reports".to_owned()).spawn(body) {
            tracing::error!("nothing is reported: {error}");
            return None;
        }
        Some(Self { configs: configs.to_vec(), _until: until })
    }

    /// Returns true if these are its reports.
    pub(crate) fn is(&self, configs: &[InitiatorReportConfig]) -> bool {
        self.configs == configs
    }
}

fn report(configs: &[InitiatorReportConfig], cluster: &ClusterHandle, over: &Receiver<()>) {
    let tick = configs.iter().map(|config| config.interval).min().unwrap_or(LOOK);
    let mut watch = InitiatorWatch::new(SystemRoot::default(), configs);
    let (began, mut next) = (Clock::now(), Clock::now());
    let mut trouble = None;
    loop {
        // After a suspension nothing is made up for.
        next = (next + tick).max(Clock::now());
        match over.recv_timeout(next.saturating_duration_since(Clock::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::from_nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        match watch.sample(now) {
            Ok(reports) => {
                trouble = None;
                for (place, report) in reports {
                    cluster.publish(&configs[place].resource, report);
                }
            }
            Err(error) => {
                let error = Some(error.to_string());
                if trouble != error {
                    tracing::error!("nothing is reported: {}", error.as_deref().unwrap_or_default());
                    trouble = error;
                }
            }
        }
    }
}

/// The devices of an initiator's reports.
struct InitiatorWatch {
    root: SystemRoot,
    stats: DiskStats,
    previous: DiskStats,
    volumes: VolumeTree,
    looked: Option<Instant>,
    sampled: Option<Instant>,
    reports: Vec<ReportedDevices>,
}

/// The devices of one report, and the sums since the last one.
struct ReportedDevices {
    config: InitiatorReportConfig,
    devices: BTreeMap<DeviceNumber, Option<Instant>>,
    since: Duration,
    completed: u64,
    total: Latency,
    /// True if it was logged that there is no device.
    is_missed: bool,
    /// The device, if any, whose requests the kernel did not count at the end of the last interval.
    uncounted: Option<UncountedDevice>,
}

impl InitiatorWatch {
    fn new(root: SystemRoot, configs: &[InitiatorReportConfig]) -> Self {
        let reports = configs.iter().map(|config| ReportedDevices {
            config: config.clone(),
            devices: BTreeMap::new(),
            since: Duration::ZERO,
            completed: 0,
            total: Latency::ZERO,
            is_missed: false,
            uncounted: None,
        });
        Self {
            root,
            stats: DiskStats::default(),
            previous: DiskStats::default(),
            volumes: VolumeTree::default(),
            looked: None,
            sampled: None,
            reports: reports.collect(),
        }
    }

    /// Reads the counters. Returns the reports that are due, by their places.
    fn sample(&mut self, now: Instant) -> Result<Vec<(usize, HostReport)>, ReadError> {
        std::mem::swap(&mut self.stats, &mut self.previous);
        let elapsed = self.sampled.map_or(Duration::ZERO, |sampled| now.saturating_since(sampled));
        if let Err(error) = self.stats.read_next(&self.root, &self.previous, elapsed) {
            // The counters before are still good to count from.
            std::mem::swap(&mut self.stats, &mut self.previous);
            return Err(error);
        }
        let is_due = self.looked.is_none_or(|looked| now.saturating_since(looked) >= LOOK);
        if is_due || !self.stats.same_devices(&self.previous) {
            self.volumes = VolumeTree::read(&self.root)?;
            self.reports.iter_mut().for_each(|report| report.look(&self.volumes));
            self.looked = Some(now);
        }
        let Some(before) = self.sampled.replace(now) else { return Ok(Vec::new()) };
        let elapsed = now.saturating_since(before);
        let (root, volumes, stats, previous) = (&self.root, &self.volumes, &self.stats, &self.previous);
        let reports = self.reports.iter_mut().enumerate();
        Ok(reports
            .filter_map(|(place, report)| {
                Some((place, report.observe((now, elapsed), (stats, previous), volumes, root)?))
            })
            .collect())
    }
}

impl ReportedDevices {
    /// Finds its devices. A pattern means no partition, whose requests are also those of its disk.
    fn look(&mut self, volumes: &VolumeTree) {
        let known = std::mem::take(&mut self.devices);
        for pattern in &self.config.devices {
            let is_pattern = pattern.contains('*');
            let meant = volumes.find_all(pattern).into_iter();
            let meant = meant.filter(|device| !is_pattern || !matches!(device.kind, DeviceKind::Partition));
            for device in meant.take(MOST_DEVICES.saturating_sub(self.devices.len())) {
                self.devices.insert(device.number, known.get(&device.number).copied().flatten());
            }
        }
        let is_missed = self.devices.is_empty();
        if is_missed && !self.is_missed {
            let names = self.config.devices.join(", ");
            tracing::warn!("{}: not reported on: there is no device {names} here", self.config.resource);
        } else if self.is_missed && !is_missed {
            tracing::info!("{}: reported on from now", self.config.resource);
        }
        self.is_missed = is_missed;
    }

    /// Returns a device of it whose requests the kernel does not count now. Of several, one that may only be unused
    /// hides nothing.
    fn uncounted_now(
        &self,
        root: &SystemRoot,
        volumes: &VolumeTree,
        stats: &DiskStats,
    ) -> Option<UncountedDevice> {
        let hides = |device: &UncountedDevice| device.is_certain() || self.devices.len() == 1;
        let mut uncounted = self.devices.keys().filter_map(|number| uncounted(root, volumes, stats, *number));
        uncounted.find(hides)
    }

    /// Logs that the kernel stopped to count the requests of a device, or began again.
    fn see(&mut self, uncounted: Option<UncountedDevice>) {
        if self.uncounted == uncounted {
            return;
        }
        match &uncounted {
            Some(device) => tracing::warn!("{}: not reported on: {device}", self.config.resource),
            None => tracing::info!("{}: reported on from now", self.config.resource),
        }
        self.uncounted = uncounted;
    }

    /// Adds what its devices did. Returns the report if it is due, and its devices are there and
    /// counted.
    fn observe(
        &mut self,
        (now, elapsed): (Instant, Duration),
        (stats, previous): (&DiskStats, &DiskStats),
        volumes: &VolumeTree,
        root: &SystemRoot,
    ) -> Option<HostReport> {
        let mut is_seen = false;
        let mut since_when: Option<Instant> = None;
        for (number, waits_since) in &mut self.devices {
            let delta = stats.change(previous, *number).and_then(tidegate_host::sense::DiskChange::delta);
            let Some(delta) = delta else {
                *waits_since = None;
                continue;
            };
            is_seen = true;
            self.completed = self.completed.saturating_add(delta.reads.ios);
            self.total = self.total.saturating_add(delta.reads.response_time);
            let waits = delta.in_flight > 0 && stats.reads_in_flight(root, *number) > 0;
            let since = waits_since.filter(|_| delta.reads.ios == 0).unwrap_or(now);
            *waits_since = waits.then_some(since);
            since_when = [since_when, *waits_since].into_iter().flatten().min();
        }
        self.since = self.since.saturating_add(elapsed);
        // A sample that comes a little early is this interval's all the same.
        if self.since + elapsed / 2 < self.config.interval {
            return None;
        }
        let (interval, completed, total) = (
            std::mem::take(&mut self.since),
            std::mem::take(&mut self.completed),
            std::mem::take(&mut self.total),
        );
        let uncounted = self.uncounted_now(root, volumes, stats);
        // An interval that was counted in part says nothing either.
        let is_seen = is_seen && uncounted.is_none() && self.uncounted.is_none();
        self.see(uncounted);
        is_seen.then(|| HostReport {
            interval: interval.into(),
            signal: SignalRequests::ProtectedReads,
            completed,
            total_latency: total,
            outstanding: since_when.is_some(),
            oldest: since_when.map(|since| now.latency_since(since)).filter(|age| *age > Latency::ZERO),
            window: None,
            active_shares: 0.0,
            reserved: Iops::ZERO,
            set_point: None,
            point: None,
            load: None,
        })
    }
}

/// Returns the survey's finding about a report: the devices, or why there can be none.
pub(crate) fn finding(config: &InitiatorReportConfig) -> crate::finding::SurveyFinding {
    let what = format!("report on {}", config.resource);
    let root = SystemRoot::default();
    let read = VolumeTree::read(&root).and_then(|volumes| Ok((volumes, DiskStats::read(&root)?)));
    let (volumes, stats) = match read {
        Ok(read) => read,
        Err(error) => {
            return crate::finding::SurveyFinding { what, works: false, detail: error.to_string() };
        }
    };
    let mut watched = InitiatorWatch::new(root.clone(), std::slice::from_ref(config));
    let report = &mut watched.reports[0];
    report.is_missed = true;
    report.look(&volumes);
    if let Some(device) = report.uncounted_now(&root, &volumes, &stats) {
        return crate::finding::SurveyFinding { what, works: false, detail: device.to_string() };
    }
    let names = report.devices.keys().filter_map(|number| Some(volumes.get(*number)?.name.clone()));
    let mut devices: Vec<_> = names.collect();
    let works = !devices.is_empty();
    if !works {
        devices.push(format!("there is no device {} here", config.devices.join(", ")));
    }
    crate::finding::SurveyFinding { what, works, detail: devices.join(", ") }
}

#[cfg(test)]
mod tests {
    use tidegate_host::trees::{unpack, write_file};

    use super::*;

    #[test]
    fn nothing_is_reported_while_the_kernel_does_not_count() {
        let tree = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| write_file(tree.path(), file, text.as_bytes()).unwrap();
        unpack("sys/block/sda/dev\n  8:0\nsys/block/sda/size\n  2048\nsys/block/sda/mq/\n", tree.path())
            .unwrap();
        let interval = Duration::from_millis(100);
        let config = InitiatorReportConfig {
            resource: tidegate_units::ResourceName::new("array").unwrap(),
            devices: vec!["sda".to_owned()],
            interval,
        };
        let mut watch = InitiatorWatch::new(SystemRoot::at(tree.path()), &[config]);
        let mut reads = 0;
        let mut completed_while = |switch: &str, more: u64| {
            reads += more;
            put("sys/block/sda/queue/iostats", switch);
            put("proc/diskstats", &format!("8 0 sda {reads} 0 0 {reads} 0 0 0 0 0 0 0\n"));
            let now = watch.sampled.unwrap_or(Instant::ZERO) + interval;
            watch.sample(now).unwrap().into_iter().map(|(_, report)| report.completed).next()
        };
        assert_eq!(completed_while("1", 0), None, "nothing is known of the time before");
        assert_eq!(completed_while("1", 7), Some(7));
        assert_eq!(completed_while("0", 0), None);
        assert_eq!(completed_while("1", 3), None, "a part of the interval");
        assert_eq!(completed_while("1", 5), Some(5));
    }
}
