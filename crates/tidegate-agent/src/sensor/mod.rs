//! The sensor layer of placed transfers (Nikolow §III.A): what storage nodes on this machine do, told to
//! brokers.
//!
//! Each node has a thread of its own. If its file system hangs, its reports stop, and the broker knows that
//! it knows nothing. No node waits for another, and none waits for a broker longer than its own interval.

pub(crate) mod config;
mod history;

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant as Clock};

use tidegate_host::SystemRoot;
use tidegate_host::sense::{StorageReader, StorageSample, UncountedDevice};
use tidegate_transfer::sensor_reports::SensorReport;
use tidegate_transfer::{AskError, BrokerClient, fresh_run};
use tidegate_units::ResourceName;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

pub use config::{ReportedBrokers, SensorConfig};

use super::finding::SurveyFinding;

/// A broker that does not take a report in this time did not hear it: the next one is newer.
const LONGEST_REPORT: Duration = Duration::from_secs(2);

/// The sensors that run. Dropped, they end.
#[derive(Debug, Default)]
pub(super) struct NodeSensors {
    running: BTreeMap<ResourceName, Running>,
}

#[derive(Debug)]
struct Running {
    config: SensorConfig,
    brokers: ReportedBrokers,
    /// Nothing is sent: that it is gone says that it is over.
    _until: Sender<()>,
}

impl NodeSensors {
    /// Starts those that are configured and do not run, and ends the others. One that stays as it is goes on.
    pub(super) fn apply(&mut self, configs: &[SensorConfig], brokers: &ReportedBrokers) {
        let is_same = |running: &Running| running.brokers == *brokers && configs.contains(&running.config);
        self.running.retain(|_, running| is_same(running));
        for config in configs {
            if self.running.contains_key(&config.node) {
                continue;
            }
            let (until, over) = mpsc::channel();
            let (sensed, to) = (config.clone(), brokers.clone());
            let body = move || {
                if let Err(error) = sense(&sensed, &to, &over) {
                    tracing::error!("node {}: cannot be measured: {error}", sensed.node);
                }
            };
            let started = thread::Builder::new().name(format!("sensor {}", config.node)).spawn(body);
            if let Err(error) = started {
                tracing::error!("node {}: cannot be measured: {error}", config.node);
                continue;
            }
            let running = Running { config: config.clone(), brokers: brokers.clone(), _until: until };
            self.running.insert(config.node.clone(), running);
        }
    }
}

/// Returns the survey's finding about a node: the storage that would be measured, or why it cannot be.
pub(super) fn finding(config: &SensorConfig) -> SurveyFinding {
    let what = format!("node {}", config.node);
    let there = std::fs::metadata(&config.path)
        .and_then(|_| StorageReader::under(&SystemRoot::default(), &config.path, config.cgroup.as_deref()));
    let there = there.map(|reader| (reader.measures(), reader.uncounted().cloned()));
    let (works, detail) = match there {
        Ok((_, Some(device))) => (false, format!("{}: {device}", config.path.display())),
        Ok((Some(storage), None)) => (true, format!("{}, on {storage}", config.path.display())),
        Ok((None, None)) => (
            true,
            format!(
                "{}, on no block device and not on NFS: its room is known, and not its rates",
                config.path.display()
            ),
        ),
        Err(error) => (false, format!("{}: {error}", config.path.display())),
    };
    SurveyFinding { what, works, detail }
}

/// Measures a node and tells of it until it is over.
fn sense(
    config: &SensorConfig,
    brokers: &ReportedBrokers,
    over: &Receiver<()>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut reader = StorageReader::under(&SystemRoot::default(), &config.path, config.cgroup.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut told = brokers.urls.iter().map(|url| Told::new(url, brokers)).collect::<Result<Vec<_>, _>>()?;
    match reader.measures() {
        Some(storage) => {
            tracing::info!("node {}: {} is on {storage}", config.node, config.path.display());
        }
        None => tracing::warn!(
            "node {}: neither a block device nor NFS is under {}: its room is told of, and no rates",
            config.node,
            config.path.display()
        ),
    }
    let (run, began) = (fresh_run()?, Clock::now());
    let mut history = history::NodeHistory::default();
    let mut uncounted = None;
    see(config, &mut uncounted, reader.uncounted());
    let mut last = began;
    let mut next = began;
    for sequence in 1.. {
        next = following(next, Clock::now(), config.interval);
        match over.recv_timeout(next.saturating_duration_since(Clock::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let elapsed = last.elapsed();
        last = Clock::now();
        let sample = reader.sample(elapsed);
        see(config, &mut uncounted, reader.uncounted());
        let interval_s = elapsed.as_secs_f64();
        if !SensorReport::MEASURED.contains(&interval_s) {
            // The sensor stood still for too long: the next sample does not follow the last one.
            history.add(elapsed, &StorageSample::default());
            continue;
        }
        history.add(elapsed, &sample);
        let [read, write] = history.lanes();
        let report = SensorReport {
            run: run.clone(),
            sequence,
            at_s: began.elapsed().as_secs_f64(),
            interval_s,
            kind: config.kind,
            read,
            write,
            free: sample.free,
            size: sample.size,
        };
        tell(&runtime, &mut told, config, &report);
    }
    Ok(())
}

/// Logs that the kernel stopped to count the requests of the node's device, or began again.
fn see(config: &SensorConfig, known: &mut Option<UncountedDevice>, now: Option<&UncountedDevice>) {
    if known.as_ref() == now {
        return;
    }
    match now {
        Some(device) => tracing::warn!("node {}: its rates are unknown: {device}", config.node),
        None => tracing::info!("node {}: its rates are known from now", config.node),
    }
    *known = now.cloned();
}

/// Returns the time of the next measurement after this one. A late measurement is not made up for: what moves
/// in a few milliseconds is a burst, and no rate.
fn following(last: Clock, now: Clock, interval: Duration) -> Clock {
    let next = last + interval;
    if next < now + interval / 2 { now + interval } else { next }
}

/// A broker, and what came of telling it.
struct Told {
    url: String,
    client: BrokerClient,
    /// The current trouble, as it was logged.
    trouble: Option<String>,
}

impl Told {
    fn new(url: &str, brokers: &ReportedBrokers) -> Result<Self, AskError> {
        let client = BrokerClient::new(url, Duration::ZERO, brokers.token.clone())?;
        Ok(Self { url: url.to_owned(), client, trouble: None })
    }
}

/// All at once, so that one that is away costs the others nothing.
fn tell(runtime: &Runtime, told: &mut [Told], config: &SensorConfig, report: &SensorReport) {
    let patience = config.interval.min(LONGEST_REPORT);
    let outcomes = runtime.block_on(async {
        let mut asked = JoinSet::new();
        for (place, one) in told.iter().enumerate() {
            let (client, node, report) = (one.client.clone(), config.node.clone(), report.clone());
            asked.spawn(async move {
                let outcome = tokio::time::timeout(patience, client.report(&node, &report)).await;
                let trouble = match outcome {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some(format!("no answer within {} s", patience.as_secs_f64())),
                };
                (place, trouble)
            });
        }
        asked.join_all().await
    });
    for (place, trouble) in outcomes {
        let one = &mut told[place];
        // Another reason is told as well: a refusal stays, whatever was in the way before it.
        if one.trouble != trouble {
            match &trouble {
                Some(why) => {
                    tracing::warn!("node {}: the broker at {} is not told: {why}", config.node, one.url);
                }
                None => tracing::info!("node {}: the broker at {} is told again", config.node, one.url),
            }
        }
        one.trouble = trouble;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_late_wake_it_was_measured_at_once() {
        let interval = Duration::from_secs(1);
        let began = Clock::now();
        let after =
            |seconds: f64| following(began, began + Duration::from_secs_f64(seconds), interval) - began;
        assert_eq!(after(0.001), interval, "on time, it stays so");
        assert_eq!(after(0.4), interval);
        for late in [0.6, 0.99, 1.5, 70.0] {
            assert_eq!(after(late), Duration::from_secs_f64(late) + interval);
        }
    }
}
