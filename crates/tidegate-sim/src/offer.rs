//! Measurement of a storage model: load is offered at a rate, and response times are measured.
//!
//! This is the measurement that Lee's procedure needs (H. D. Lee et al., MSST 2004, §2 and §4.2). It offers
//! requests of several consumers together, mixed in the proportion of their rates, through the scheduler
//! before the storage. The rules are those of [`tidegate_admission`]. The simulations here use the one
//! engine: a consumer is a virtual machine, and the pool is a host.
//!
//! ```
//! use tidegate_device::Preset;
//! use tidegate_sim::offer::{ConsumerLoad, LoadOffer};
//! use tidegate_units::{Bytes, ConsumerName, Iops};
//!
//! let reads = ConsumerLoad::random_reads(ConsumerName::new("w1")?, Iops::new(40.0), Bytes::from_kib(4));
//! let offer = LoadOffer::new(Preset::Dnes309170w.config(), vec![reads]);
//! let response = offer.at(1.0)?;
//! assert!(response.sustained && response.all.is_some_and(|all| all.mean.as_millis_f64() < 35.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use tidegate_admission::{OfferResult, ProfilePoint};
use tidegate_device::{Device, DeviceConfig};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares};

use crate::engine::{FeltLatencies, PooledLatencies, felt};
use crate::error::ScenarioError;
use crate::random::RandomStream;
use crate::recorder::Recorder;
use crate::scenario::{
    ArrivalSpacing, DiskPlace, DiskRegion, Durability, OperationArrivals, OperationStep, Scenario,
    ScenarioArray, ScenarioHost, ScenarioSpan, SizeWeights, ThinkTiming, VirtualDisk, VirtualMachine,
    Workload,
};

/// A storage model, the load that is offered to it, and the parameters of the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOffer {
    /// The model.
    pub device: DeviceConfig,
    /// The host before it: depth, scheduler and, where there is one, law. Its name and its array are of no
    /// importance.
    pub host: ScenarioHost,
    /// Loads of the consumers that send requests; at least one.
    pub loads: Vec<ConsumerLoad>,
    /// Pattern in which requests arrive.
    pub arriving: ArrivalPattern,
    /// The fraction of response times that do not exceed a [quantile](ResponseTimes::quantile).
    pub quantile: f64,
    /// The seed of the first simulation; each of the others has the next.
    pub seed: u64,
    /// Number of simulations of each rate; their response times are taken together. Zero counts as one.
    pub seeds: u32,
    /// Number of requests measured in each simulation, 100 at least. The requests before them are not
    /// measured. Those are a tenth as many, or enough to write a cache of the storage twice, whichever is
    /// more. No more than 100 000 are spent on the cache.
    pub requests: u32,
    /// Handle that ends it early, with [`ScenarioError::Stopped`].
    pub stop: OfferStop,
}

/// Ends the simulations of an offer before their end, from another thread. A copy ends the same ones.
#[derive(Debug, Clone, Default)]
pub struct OfferStop(Arc<AtomicBool>);

impl OfferStop {
    /// Ends them.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All handles are equal: an offer is the same offer, whatever may end it.
impl PartialEq for OfferStop {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Recorder for OfferStop {
    fn wants_rows(&self) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One consumer's requests, anywhere on the storage.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerLoad {
    /// The consumer.
    pub name: ConsumerName,
    /// Its weight in the scheduler.
    pub shares: Shares,
    /// Requests per second.
    pub rate: Iops,
    /// Sizes of the requests.
    pub sizes: SizeWeights,
    /// The fraction of the requests that read, 0 to 1.
    pub reads: f64,
}

impl ConsumerLoad {
    /// Reads of one size, with the usual shares.
    #[must_use]
    pub fn random_reads(name: ConsumerName, rate: Iops, size: Bytes) -> Self {
        let bytes = u32::try_from(size.get()).unwrap_or(u32::MAX);
        Self { name, shares: Shares::DEFAULT, rate, sizes: SizeWeights::fixed(bytes), reads: 1.0 }
    }
}

/// Pattern in which requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArrivalPattern {
    /// Each consumer's requests arrive evenly, as a leaky bucket of its rate releases them while more are
    /// waiting. All buckets are in step, and requests due at the same time come in any order. This is so
    /// where the same ticks replenish all buckets (Lee §4.1: every millisecond). Nothing is worse: consumers
    /// whose rates are multiples of each other meet always or never. A promise must hold in both cases.
    #[default]
    InStep,
    /// The same, but each consumer begins at a random time.
    Even,
    /// One stream at the rate of all, with even spacing. Each request is a consumer's with the probability of
    /// its part: Lee's text (§2), read literally. Two requests never arrive at once.
    Drawn,
    /// Each consumer's requests arrive in a Poisson process.
    Poisson,
}

/// The response of the storage to one rate.
#[derive(Debug, Clone, PartialEq)]
pub struct RateResponse {
    /// Requests offered per second, of all consumers.
    pub offered: Iops,
    /// Requests completed per second.
    pub completed: Iops,
    /// True if the storage kept up. The work not done, data in its cache included, grew by no more than a
    /// fiftieth of the work done.
    pub sustained: bool,
    /// Response times of all consumers. `None` where no request completed.
    pub all: Option<ResponseTimes>,
    /// Each consumer's, in the order of the loads. `None` where none of its requests completed.
    pub loads: Vec<Option<ResponseTimes>>,
}

/// Response times from a request's arrival in its queue to its completion, of one request at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseTimes {
    /// Number of requests.
    pub requests: u64,
    /// Their mean.
    pub mean: Latency,
    /// Their [quantile](LoadOffer::quantile), exact to one per cent.
    pub quantile: Latency,
}

impl RateResponse {
    /// Returns the response as a point of a profile. `None` where no request completed.
    #[must_use]
    pub fn point(&self) -> Option<ProfilePoint> {
        let ResponseTimes { mean, quantile, .. } = self.all?;
        let Self { offered, completed, sustained, .. } = *self;
        Some(ProfilePoint { offered, completed, mean, quantile, sustained })
    }
}

/// The reason why response times of all consumers cannot be given.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum UnmeasuredReason {
    /// It cannot be simulated.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A consumer has too few requests for a percentile.
    #[error(transparent)]
    TooFew(#[from] TooFew),
}

/// Too few requests of a consumer for a percentile of their response times.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{requests} requests of `{name}` were measured, too few for a percentile of their response times")]
pub struct TooFew {
    /// The consumer that sent them.
    pub name: ConsumerName,
    /// Number of its requests, over all seeds.
    pub requests: u64,
    /// The number of requests of all consumers to measure for each seed, to have enough of
    /// this consumer.
    pub needed: u64,
}

/// Tolerated growth of the work not done: 1 in so many of the work done. Queues at a load of 0.97 end with
/// some dozen requests more or less than they began with, and thousands are measured.
const GROWTH: i64 = 50;

/// Time enough for any order, and short beside every response time.
const TIE: Latency = Latency::from_micros(1);

/// Requests before the measured ones, as a fraction of those.
const UNMEASURED: f64 = 0.1;

/// The most requests spent on filling a cache: a mixture that hardly writes would never fill it.
const MOST_TO_FILL: f64 = 100_000.0;

/// The most waiting requests of a consumer that are kept.
const GREATEST_BACKLOG: u32 = 1 << 20;

/// The fewest requests of which a percentile is taken: of all consumers in a simulation, and of each over all
/// seeds.
const FEWEST_REQUESTS: u32 = 100;

/// A simulation of one request at a time begins with this duration, and takes as many times as long until it
/// has enough.
const FIRST_DURATION: Duration = Duration::from_millis(1);
const LONGER: u32 = 4;
/// After so many times, 3 days, the storage is said to complete nothing.
const TIMES_LONGER: u32 = 14;

/// A storage that completes less than this fraction of the offered load is at its capacity.
const OVERLOADED: f64 = 0.9;
/// The most doublings of the rate until the storage is overloaded. They are enough: no more than a queue's
/// depth can be served at once.
const DOUBLINGS: u32 = 16;

impl LoadOffer {
    /// Load on a model behind a host without a law, with the usual depth: in step, the 95th percentile, seeds
    /// 1 to 10 with 2000 requests each. Then a percentile is off by a half per cent or so, by chance.
    ///
    /// The scheduler makes no batches: they are for requests that lie close to each other, and these do not.
    #[must_use]
    pub fn new(device: DeviceConfig, loads: Vec<ConsumerLoad>) -> Self {
        let (name, array) = (HostName::new("pool"), ResourceName::new("storage"));
        let (Ok(name), Ok(array)) = (name, array) else { unreachable!("both are names") };
        Self {
            device,
            host: ScenarioHost { batch: None, ..ScenarioHost::new(name, array) },
            loads,
            arriving: ArrivalPattern::default(),
            quantile: 0.95,
            seed: 1,
            seeds: 10,
            requests: 2_000,
            stop: OfferStop::default(),
        }
    }

    /// Requests per second of all loads.
    #[must_use]
    pub fn rate(&self) -> Iops {
        Iops::new(self.loads.iter().map(|load| load.rate.per_second()).sum())
    }

    /// Offers this many times the rate of every load.
    ///
    /// # Errors
    /// When the model, a load or the host cannot be simulated.
    pub fn at(&self, scale: f64) -> Result<RateResponse, ScenarioError> {
        let offered = Iops::new(self.rate().per_second() * scale);
        let times = self.times(offered);
        let seeds = (0..self.seeds.max(1)).map(|at| self.seed.wrapping_add(at.into()));
        let mut loads = vec![PooledLatencies::default(); self.loads.len()];
        let (mut all, mut undone, mut unwritten) = (PooledLatencies::default(), 0, 0);
        for seed in seeds.clone() {
            let scenario = self.scenario(self.consumers(scale, seed)?, times)?;
            let (consumers, bytes) = self.felt(&scenario, seed)?;
            unwritten += bytes;
            for (load, FeltLatencies { response_times, undone: more }) in loads.iter_mut().zip(consumers) {
                all.add(response_times.clone());
                load.add(response_times);
                undone += more;
            }
        }
        let written = self.written();
        if written > 0.0 {
            undone += (unwritten as f64 / written) as i64;
        }
        let seconds = (times.duration - times.warmup).as_secs_f64() * seeds.count() as f64;
        Ok(RateResponse {
            offered,
            completed: Iops::new(all.count() as f64 / seconds),
            sustained: undone.saturating_mul(GROWTH) <= all.count().cast_signed(),
            all: self.responses(&all),
            loads: loads.iter().map(|load| self.responses(load)).collect(),
        })
    }

    /// Offers this many times the rate of every load, for the response times to be judged.
    ///
    /// # Errors
    /// As [`at`](Self::at), and when a consumer has too few requests for a percentile of their response
    /// times. None at all must not pass as response times of nothing.
    pub fn measured(&self, scale: f64) -> Result<OfferResult, UnmeasuredReason> {
        let response = self.at(scale)?;
        if !response.sustained {
            return Ok(OfferResult::Overloaded);
        }
        let enough = |(load, responses): (&ConsumerLoad, &Option<ResponseTimes>)| match responses {
            Some(responses) if responses.requests >= u64::from(FEWEST_REQUESTS) => Ok(responses.quantile),
            few => {
                let (name, requests) = (load.name.clone(), few.map_or(0, |few| few.requests));
                Err(TooFew { name, requests, needed: self.requests_needed(load) })
            }
        };
        let quantiles = self.loads.iter().zip(&response.loads).map(enough).collect::<Result<_, _>>()?;
        Ok(OfferResult::Sustained(quantiles))
    }

    /// Returns the number of requests for each seed that makes this load have enough over all seeds. A
    /// request under way at the end of a simulation does not count.
    fn requests_needed(&self, load: &ConsumerLoad) -> u64 {
        let of_each_seed = f64::from(FEWEST_REQUESTS) / f64::from(self.seeds.max(1)) + 1.0;
        (of_each_seed * self.rate().per_second() / load.rate.per_second()).ceil() as u64
    }

    /// Returns the mean response time of each load's requests when one is sent at a time, and no other load
    /// sends any.
    ///
    /// # Errors
    /// As [`at`](Self::at), and when none completes.
    pub fn alone(&self) -> Result<Vec<Latency>, ScenarioError> {
        self.loads.iter().map(|load| self.load_alone(load)).collect()
    }

    fn load_alone(&self, load: &ConsumerLoad) -> Result<Latency, ScenarioError> {
        let mut duration = FIRST_DURATION;
        let mut mean = None;
        for _ in 0..TIMES_LONGER {
            let arrivals = OperationArrivals::Closed { outstanding: 1, think: ThinkTiming::NONE };
            let vm =
                self.vm(&load.name, load.shares, vec![workload(load, arrivals, ScenarioSpan::ALWAYS)])?;
            let scenario = self.scenario(vec![vm], Times { duration, warmup: Duration::ZERO })?;
            let mut pooled = PooledLatencies::default();
            for FeltLatencies { response_times, .. } in self.felt(&scenario, self.seed)?.0 {
                pooled.add(response_times);
            }
            mean = pooled.mean();
            if pooled.count() >= u64::from(self.requests()) {
                break;
            }
            duration *= LONGER;
        }
        mean.ok_or_else(|| ScenarioError::Stalled { array: self.host.array.clone() })
    }

    /// Returns the greatest rate that the storage completes, of all loads in their mixture. More requests are
    /// always waiting, in one queue, where no share changes the mixture.
    ///
    /// # Errors
    /// As [`alone`](Self::alone).
    pub fn capacity(&self) -> Result<Iops, ScenarioError> {
        let rate = self.rate().per_second();
        let alone = self.alone()?;
        let busy: f64 = self
            .loads
            .iter()
            .zip(alone)
            .map(|(load, alone)| load.rate.per_second() * alone.as_secs_f64())
            .sum();
        let mut scale = 1.0 / busy;
        let mut completed = Iops::ZERO;
        for _ in 0..DOUBLINGS {
            let offered = rate * scale;
            let times = self.times(Iops::new(offered));
            let name = &self.loads.first().ok_or(ScenarioError::Nothing("load"))?.name;
            let mut workloads = Vec::new();
            for (load, (from, to)) in self.loads.iter().zip(self.parts()) {
                let spacing = ArrivalSpacing::Drawn { from, to };
                workloads.push(workload(
                    load,
                    self.open(Iops::new(offered), spacing, to - from),
                    ScenarioSpan::ALWAYS,
                ));
            }
            let vm = self.vm(name, Shares::DEFAULT, workloads)?;
            let mut pooled = PooledLatencies::default();
            for FeltLatencies { response_times, .. } in
                self.felt(&self.scenario(vec![vm], times)?, self.seed)?.0
            {
                pooled.add(response_times);
            }
            completed = Iops::new(pooled.count() as f64 / (times.duration - times.warmup).as_secs_f64());
            if completed.per_second() < OVERLOADED * offered {
                break;
            }
            scale *= 2.0;
        }
        Ok(completed)
    }

    /// Returns the points of `count` rates, spaced evenly up to `greatest`.
    ///
    /// # Errors
    /// As [`at`](Self::at), and when no request completes.
    pub fn points(&self, greatest: Iops, count: u32) -> Result<Vec<ProfilePoint>, ScenarioError> {
        let whole = greatest.per_second() / self.rate().per_second();
        let point = |at| {
            let response = self.at(whole * f64::from(at) / f64::from(count))?;
            response.point().ok_or_else(|| ScenarioError::Stalled { array: self.host.array.clone() })
        };
        (1..=count).map(point).collect()
    }

    fn felt(&self, scenario: &Scenario, seed: u64) -> Result<(Vec<FeltLatencies>, i64), ScenarioError> {
        felt(scenario, seed, &mut self.stop.clone())
    }

    fn requests(&self) -> u32 {
        self.requests.max(FEWEST_REQUESTS)
    }

    fn responses(&self, pooled: &PooledLatencies) -> Option<ResponseTimes> {
        let (mean, quantile) = (pooled.mean()?, pooled.quantile(self.quantile)?);
        Some(ResponseTimes { requests: pooled.count(), mean, quantile })
    }

    fn times(&self, offered: Iops) -> Times {
        let seconds = |requests: f64| Latency::from_secs_f64(requests / offered.per_second()).to_duration();
        let requests = f64::from(self.requests());
        let warmup = seconds((UNMEASURED * requests).max(self.requests_to_fill()));
        Times { duration: seconds(requests).saturating_add(warmup), warmup }
    }

    /// Returns the number of requests that write the storage's cache twice. An empty cache takes writes at
    /// its own speed, which says nothing about the rate that can be sustained.
    fn requests_to_fill(&self) -> f64 {
        let cache = self.device.write_cache().get();
        let written = self.written();
        if cache == 0 || written <= 0.0 { 0.0 } else { (2.0 * cache as f64 / written).min(MOST_TO_FILL) }
    }

    /// Bytes that a request of the mixture writes on average.
    fn written(&self) -> f64 {
        let parts = self.loads.iter().zip(self.parts());
        parts.map(|(load, (from, to))| (to - from) * (1.0 - load.reads) * load.sizes.mean()).sum()
    }

    /// Returns the part of each load in the whole rate, as intervals one after the other.
    fn parts(&self) -> Vec<(f64, f64)> {
        let whole = self.rate().per_second();
        let mut sum = 0.0;
        let ends = self.loads.iter().map(|load| {
            let from = sum / whole;
            sum += load.rate.per_second();
            (from, sum / whole)
        });
        ends.collect()
    }

    fn consumers(&self, scale: f64, seed: u64) -> Result<Vec<VirtualMachine>, ScenarioError> {
        let whole = Iops::new(self.rate().per_second() * scale);
        let consumer = |(load, (from, to)): (&ConsumerLoad, (f64, f64))| {
            let rate = Iops::new(load.rate.per_second() * scale);
            let (rate, spacing, begins) = match self.arriving {
                ArrivalPattern::InStep => (rate, ArrivalSpacing::Jittered(TIE), Latency::ZERO),
                ArrivalPattern::Drawn => (whole, ArrivalSpacing::Drawn { from, to }, Latency::ZERO),
                ArrivalPattern::Even => {
                    let phase = RandomStream::of(seed, &["phase", load.name.as_str()]).fraction();
                    (rate, ArrivalSpacing::Even, Latency::from_secs_f64(phase / rate.per_second()))
                }
                ArrivalPattern::Poisson => (rate, ArrivalSpacing::Poisson, Latency::ZERO),
            };
            let during = ScenarioSpan { from: Instant::ZERO + begins, to: Instant::MAX };
            let arrivals = self.open(rate, spacing, to - from);
            self.vm(&load.name, load.shares, vec![workload(load, arrivals, during)])
        };
        self.loads.iter().zip(self.parts()).map(consumer).collect()
    }

    /// Makes open arrivals. No more requests wait at an overloaded storage than are measured.
    fn open(&self, rate: Iops, spacing: ArrivalSpacing, part: f64) -> OperationArrivals {
        let limit = (f64::from(self.requests()) * part).ceil() as u32;
        OperationArrivals::Open { rate, spacing, limit: limit.clamp(1, GREATEST_BACKLOG) }
    }

    fn vm(
        &self,
        name: &ConsumerName,
        shares: Shares,
        mut workloads: Vec<Workload>,
    ) -> Result<VirtualMachine, ScenarioError> {
        let device = Device::new(&self.device, self.seed).map_err(|reason| ScenarioError::Device {
            array: self.host.array.clone(),
            reason: reason.to_string(),
        })?;
        let place = DiskPlace::At { offset: Bytes::ZERO, size: device.capacity() };
        let disk = VirtualDisk { array: None, place };
        for (workload, number) in workloads.iter_mut().zip(1..) {
            workload.name = format!("{}-{number}", workload.name);
        }
        Ok(VirtualMachine {
            shares,
            workloads,
            ..VirtualMachine::new(name.clone(), self.host.name.clone(), disk)
        })
    }

    fn scenario(&self, vms: Vec<VirtualMachine>, times: Times) -> Result<Scenario, ScenarioError> {
        if vms.is_empty() {
            return Err(ScenarioError::Nothing("load"));
        }
        let array =
            ScenarioArray { name: self.host.array.clone(), device: self.device.clone(), changes: Vec::new() };
        Ok(Scenario {
            warmup: times.warmup,
            // Nothing reads the time series.
            series_interval: times.duration,
            arrays: vec![array],
            hosts: vec![self.host.clone()],
            vms,
            ..Scenario::new("offer", times.duration)
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Times {
    duration: Duration,
    warmup: Duration,
}

fn workload(load: &ConsumerLoad, arrivals: OperationArrivals, during: ScenarioSpan) -> Workload {
    Workload {
        name: load.name.to_string(),
        arrivals,
        steps: vec![OperationStep {
            count: 1,
            sizes: load.sizes.clone(),
            reads: load.reads,
            sequential: 0.0,
            region: DiskRegion::WHOLE,
            durability: Durability::None,
            disk: 0,
        }],
        operations: 1,
        during: vec![during],
        cycle: None,
    }
}
