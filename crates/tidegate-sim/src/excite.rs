//! Exciting a storage model with white noise, to find out how it answers (Triage §3.1).
//!
//! Clients send one request after the other, as fast as their throttlers let them. The rate of all clients
//! together is a new random one in every interval, and the mean response time of the interval is the answer.
//! These are the samples to which [`tidegate_control::ArxModel::fit`] fits a model.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_control::{ArxModel, ModelOffset};
//! use tidegate_device::Preset;
//! use tidegate_sim::excite::Excitation;
//! use tidegate_units::{Bytes, Iops};
//!
//! let reads = Excitation::new(Preset::Dnes309170w.config(), Bytes::from_kib(4), Iops::new(50.0));
//! let fit = ArxModel::fit(&reads.samples(Duration::from_secs(1), 1)?, 1, ModelOffset::Fitted)?;
//! assert!(fit.model.gain_ms_per_iops().is_some_and(|gain| gain > 0.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::time::Duration;

use tidegate_control::ArxSample;
use tidegate_device::{Device, DeviceCompletion, DeviceConfig, DeviceIo};
use tidegate_sched::{FlowConfig, FlowId, LeakyBucket, PullAnswer, Sfq, SfqConfig, StorageExtent};
use tidegate_units::{Bytes, Instant, Iops, Latency, ResourceName};

use crate::error::ScenarioError;
use crate::random::RandomStream;

/// A storage model, the clients that excite it, and the noise.
#[derive(Debug, Clone, PartialEq)]
pub struct Excitation {
    /// The model.
    pub device: DeviceConfig,
    /// Number of clients, each with one read outstanding at most; 1 to 1024.
    pub clients: u32,
    /// Size of the reads. They go anywhere on the storage.
    pub size: Bytes,
    /// Operating point around which the noise is, in requests per second of all clients together.
    pub around: Iops,
    /// Greatest deviation of the noise to either side, as a fraction of `around`, 0 to 1. The noise is
    /// uniform.
    pub spread: f64,
    /// Number of intervals.
    pub intervals: u32,
}

/// The most clients: a share of any more would be too small to mean anything.
const MOST_CLIENTS: u32 = 1_024;

impl Excitation {
    /// Eight clients, as the paper has ("the maximum number of clients", §3.1); half of the operating point
    /// to either side, for a thousand intervals. Then a correlation of residuals is off by 0.03 or so, by
    /// chance.
    #[must_use]
    pub const fn new(device: DeviceConfig, size: Bytes, around: Iops) -> Self {
        Self { device, clients: 8, size, around, spread: 0.5, intervals: 1_000 }
    }

    /// The least and the greatest operating point.
    #[must_use]
    pub fn range(&self) -> [Iops; 2] {
        [-self.spread, self.spread].map(|side| Iops::new(self.around.per_second() * (1.0 + side)))
    }

    /// Runs the experiment with intervals of this length, and returns a sample of each.
    ///
    /// # Errors
    /// When the model means nothing, or there are no clients, no requests or no time.
    pub fn samples(&self, interval: Duration, seed: u64) -> Result<Vec<ArxSample>, ScenarioError> {
        if interval.is_zero() {
            return Err(ScenarioError::Time("interval", "more than nothing"));
        }
        let mut run = Run::new(self, seed)?;
        let mut noise = RandomStream::of(seed, &["excitation"]);
        let [least, greatest] = self.range().map(Iops::per_second);
        let mut samples = Vec::with_capacity(self.intervals as usize);
        for _ in 0..self.intervals {
            let operating_point = Iops::new(least + (greatest - least) * noise.fraction());
            run.set(operating_point);
            let response = run.until(run.now + interval)?;
            samples.push(ArxSample { operating_point, response });
        }
        Ok(samples)
    }
}

/// A client.
struct Client {
    flow: FlowId,
    random: RandomStream,
}

/// The experiment under way. Each client's throttler is a leaky bucket with room for one token. The gateway
/// throttles tenants with the same bucket.
struct Run<'a> {
    excitation: &'a Excitation,
    device: Device,
    throttlers: Sfq<u64>,
    clients: Vec<Client>,
    /// Clients that have not begun yet, each with the time of its beginning, the last one first. Clients that
    /// began together would meet again at every token.
    starts: Vec<(Instant, u64)>,
    now: Instant,
    /// Time at which each client's request was sent.
    sent: HashMap<u64, Instant>,
    /// Requests that completed in the interval, and their total response time.
    done: (u64, Latency),
    completed: Vec<DeviceCompletion>,
}

impl<'a> Run<'a> {
    fn new(excitation: &'a Excitation, seed: u64) -> Result<Self, ScenarioError> {
        let clients = excitation.clients;
        if clients == 0 {
            return Err(ScenarioError::Nothing("client"));
        }
        if clients > MOST_CLIENTS {
            let (most, given) = (MOST_CLIENTS as usize, clients as usize);
            return Err(ScenarioError::TooMany { kind: "clients", most, given });
        }
        let device = Device::new(&excitation.device, RandomStream::of(seed, &["device"]).seed())
            .map_err(|reason| wrong(reason.to_string()))?;
        let fits = u32::try_from(excitation.size.get()).is_ok() && excitation.size <= device.capacity();
        if !fits || excitation.size == Bytes::ZERO {
            return Err(wrong(format!("no read of {} fits on it", excitation.size)));
        }
        let mut throttlers = Sfq::new(SfqConfig { batch: None, ..SfqConfig::default() });
        let spacing = f64::from(clients) / excitation.around.per_second();
        let mut clients: Vec<Client> = (0..clients)
            .map(|number| Client {
                flow: throttlers.add_flow(&FlowConfig::default(), Instant::ZERO),
                random: RandomStream::of(seed, &["client", &number.to_string()]),
            })
            .collect();
        let start =
            |client: &mut Client| Instant::ZERO + Latency::from_secs_f64(spacing * client.random.fraction());
        let mut starts: Vec<_> = clients.iter_mut().map(start).zip(0..).collect();
        starts.sort_by(|one, other| other.cmp(one));
        Ok(Self {
            excitation,
            device,
            throttlers,
            clients,
            starts,
            now: Instant::ZERO,
            sent: HashMap::new(),
            done: (0, Latency::ZERO),
            completed: Vec::new(),
        })
    }

    /// A new operating point, of which each client has an equal part.
    fn set(&mut self, operating_point: Iops) {
        let rate = Iops::new(operating_point.per_second() / self.clients.len() as f64);
        let bucket = LeakyBucket { rate, size: 1, tick: Duration::ZERO, ahead: None, dither: false };
        for client in &self.clients {
            let known = self.throttlers.set_bucket(client.flow, Some(bucket), self.now);
            debug_assert!(known.is_ok(), "every client has a flow");
        }
    }

    /// A client has its next request ready: its throttler decides when it goes.
    fn ask(&mut self, client: u64) {
        let flow = self.clients[client as usize].flow;
        let taken = self.throttlers.enqueue(flow, self.now, client, StorageExtent::default());
        debug_assert!(taken.is_ok(), "one request of each client at a time");
    }

    /// Goes on to the end of the interval. Returns its mean response time.
    fn until(&mut self, end: Instant) -> Result<Option<Latency>, ScenarioError> {
        loop {
            let next = self.next()?;
            self.now = next.min(end);
            if next >= end {
                break;
            }
            self.complete();
        }
        let (count, total) = std::mem::take(&mut self.done);
        Ok((count > 0).then(|| Latency::from_nanos(total.as_nanos() / count)))
    }

    /// Sends the requests that may go now. Returns the time of the next event.
    fn next(&mut self) -> Result<Instant, ScenarioError> {
        while let Some((_, client)) = self.starts.pop_if(|(at, _)| *at <= self.now) {
            self.ask(client);
        }
        let start = self.starts.last().map_or(Instant::MAX, |(at, _)| *at);
        let completion = self.device.next_event().unwrap_or(Instant::MAX);
        Ok(self.send()?.min(start).min(completion))
    }

    /// Sends the requests that may go. Returns the time at which more may.
    fn send(&mut self) -> Result<Instant, ScenarioError> {
        loop {
            match self.throttlers.pull(self.now) {
                PullAnswer::Request { request: client, .. } => {
                    let bytes = self.excitation.size.get();
                    let places = self.device.capacity().get() / bytes;
                    let offset = self.clients[client as usize].random.below(places) * bytes;
                    self.sent.insert(client, self.now);
                    self.device
                        .submit(self.now, client, DeviceIo::read(offset, bytes as u32))
                        .map_err(|reason| wrong(reason.to_string()))?;
                }
                PullAnswer::NotBefore(at) => return Ok(at),
                PullAnswer::Nothing => return Ok(Instant::MAX),
            }
        }
    }

    fn complete(&mut self) {
        let mut completed = std::mem::take(&mut self.completed);
        self.device.advance(self.now, &mut completed);
        for DeviceCompletion { id: client, at } in completed.drain(..) {
            if let Some(sent) = self.sent.remove(&client) {
                self.done = (self.done.0 + 1, self.done.1.saturating_add(at.latency_since(sent)));
            }
            let flow = self.clients[client as usize].flow;
            let known = self.throttlers.complete(flow, self.now);
            debug_assert!(known.is_ok(), "it was dispatched");
            self.ask(client);
        }
        self.completed = completed;
    }
}

fn wrong(reason: String) -> ScenarioError {
    let Ok(array) = ResourceName::new("storage") else { unreachable!("it is a name") };
    ScenarioError::Device { array, reason }
}

#[cfg(test)]
mod tests {
    use tidegate_control::{ArxModel, ModelOffset};
    use tidegate_device::{ExponentialConfig, Preset};

    use super::*;

    /// M/M/1, as far as eight clients can make one.
    fn server(rate: f64) -> DeviceConfig {
        DeviceConfig::Exponential(ExponentialConfig {
            rate: Iops::new(rate),
            servers: 1,
            capacity: Bytes::from_gib(1),
        })
    }

    fn mean(samples: &[ArxSample]) -> f64 {
        let known = samples.iter().filter_map(|sample| sample.response);
        let sum: f64 = known.clone().map(Latency::as_millis_f64).sum();
        sum / known.count() as f64
    }

    #[test]
    fn it_depends_on_the_seed_and_nothing_else() {
        let excitation = Excitation {
            intervals: 20,
            ..Excitation::new(server(500.0), Bytes::from_kib(4), Iops::new(300.0))
        };
        let samples = |seed| excitation.samples(Duration::from_secs(1), seed).unwrap();
        assert_eq!(samples(1), samples(1));
        assert_ne!(samples(1), samples(2));
        assert!(samples(1).iter().all(|one| (150.0..450.0).contains(&one.operating_point.per_second())));
    }

    /// Few requests never meet, so that the mean is the service time. Far beyond the capacity, every client
    /// always waits: 8/C.
    #[test]
    fn response_times_are_those_of_the_queue() {
        let of = |around: f64| {
            let excitation = Excitation::new(server(1_000.0), Bytes::from_kib(4), Iops::new(around));
            mean(&excitation.samples(Duration::from_secs(1), 1).unwrap())
        };
        assert!((of(20.0) - 1.0).abs() < 0.05, "{}", of(20.0));
        assert!((of(10_000.0) - 8.0).abs() < 0.1, "{}", of(10_000.0));
    }

    /// Requests go as fast as the throttlers allow, when the storage can do more.
    #[test]
    fn the_operating_point_is_what_is_sent() {
        let excitation = Excitation::new(server(100_000.0), Bytes::from_kib(4), Iops::new(400.0));
        let mut run = Run::new(&excitation, 1).unwrap();
        for rate in [100.0, 400.0, 10.0, 800.0] {
            run.set(Iops::new(rate));
            let mut sent = 0;
            let end = run.now + Duration::from_secs(10);
            while run.now < end {
                run.now = run.next().unwrap().min(end);
                let before = run.done.0;
                run.complete();
                sent += run.done.0 - before;
            }
            // A token more or less for each client.
            assert!((sent as f64 - 10.0 * rate).abs() <= 16.0, "{rate} {sent}");
        }
    }

    #[test]
    fn a_disk_answers_more_slowly_the_more_it_has_to_do() {
        let excitation = Excitation::new(Preset::Dnes309170w.config(), Bytes::from_kib(4), Iops::new(57.0));
        let samples = excitation.samples(Duration::from_secs(1), 1).unwrap();
        let fit = ArxModel::fit(&samples, 1, ModelOffset::Fitted).unwrap();
        assert!(fit.model.inputs()[0] > 0.0 && fit.r_squared > 0.0, "{fit:?}");
        assert!(fit.model.stable_below().is_some(), "{fit:?}");
    }

    #[test]
    fn what_cannot_be_excited_is_refused() {
        let good = Excitation::new(server(100.0), Bytes::from_kib(4), Iops::new(50.0));
        let refused = |excitation: Excitation| excitation.samples(Duration::from_secs(1), 1).is_err();
        assert!(refused(Excitation { clients: 0, ..good.clone() }));
        assert!(refused(Excitation { clients: 1_025, ..good.clone() }));
        assert!(refused(Excitation { size: Bytes::ZERO, ..good.clone() }));
        assert!(refused(Excitation { size: Bytes::from_gib(2), ..good.clone() }));
        assert!(good.samples(Duration::ZERO, 1).is_err());
    }
}
