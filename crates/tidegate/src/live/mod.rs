//! Measuring an export of a live pool: requests at a bounded rate, for a bounded time, with a bounded number
//! outstanding. They are reads, unless the export may be overwritten.
//!
//! The measurement of [`tidegate_sim::offer`], on the storage itself instead of a model: all tenants'
//! requests together, each at its rate, and their response times. It stops sending at once when another
//! consumer uses the pool, when a request takes much longer than was promised, and when it is interrupted.

pub(crate) mod error;
mod neighbours;

use self::error::LiveError;
use self::error::MOST_TENANTS;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use tidegate_admission::{OfferResult, ProfilePoint};
use tidegate_load::{
    LoadArrivals, LoadConfig, LoadHandle, LoadReport, LoadTarget, RequestSpacing, RunningLoad as Loader,
};
use tidegate_sim::offer::{ArrivalPattern, ResponseTimes};
use tidegate_units::{Bytes, ConsumerName, Iops, Latency};

use crate::admit::effort::MeasuringEffort;
use crate::failure::CommandFailure;
use neighbours::{NeighboursError, PoolNeighbours};

/// The fewest requests that a 95th percentile is taken of, as in the simulator.
const FEWEST: f64 = 100.0;

/// The pause between two looks at a wish to stop.
const LOOK: Duration = Duration::from_millis(20);

/// The pause between two looks at the pool's other consumers.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// The time without other consumers in the pool before it begins.
const QUIET: Duration = Duration::from_secs(2);

/// Connections are open, and threads have begun, by then.
const BEGINS_AFTER: Duration = Duration::from_millis(50);

/// Requests alone are sent for no longer than this.
const ALONE: Duration = Duration::from_secs(10);

/// The number of completed requests for each request by which the backlog may have grown, as in the
/// simulator.
const GROWTH: f64 = 50.0;

/// Bounds on the load of a live pool.
#[derive(clap::Args)]
pub(crate) struct LiveLoading {
    /// With --live: address of the gateway's metrics, which show other consumers of the pool
    #[arg(long, value_name = "ADDRESS:PORT", requires = "live")]
    metrics: Option<String>,

    /// With --live: measure even while other consumers use the pool
    #[arg(long, requires = "live", conflicts_with = "metrics")]
    force: bool,

    /// With --live: all of it takes no longer
    #[arg(long, value_name = "TIME", default_value = "10min", requires = "live")]
    within: Latency,

    /// With --live: the most requests outstanding, of all tenants together
    #[arg(long, value_name = "N", default_value = "64", requires = "live")]
    depth: NonZeroU32,
}

impl LiveLoading {
    /// Makes ready to load an export.
    pub(crate) fn begin(
        &self,
        target: &LoadTarget,
        tenants: Vec<LiveTenant>,
        effort: &MeasuringEffort,
    ) -> Result<LivePool, CommandFailure> {
        let neighbours = match &self.metrics {
            Some(address) => Some(PoolNeighbours::of(address, &target.export.to_string())),
            None if self.force => None,
            None => return Err(LiveError::from(NeighboursError::Unknown).into()),
        };
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal asks, a second one does not wait.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupted))
                .map_err(CommandFailure::Signals)?;
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(CommandFailure::Signals)?;
        }
        let bounds = Bounds {
            arriving: effort.arrivals.arriving(),
            seed: effort.seed,
            requests: effort.requests,
            limit: self.within.to_duration(),
            depth: self.depth,
        };
        Ok(LivePool::new(target.clone(), tenants, &bounds, neighbours, interrupted)?)
    }
}

/// Requests of one size at a rate.
#[derive(Debug, Clone)]
pub(crate) struct LiveTenant {
    pub(crate) name: ConsumerName,
    pub(crate) rate: Iops,
    pub(crate) size: Bytes,
    /// The part of the requests that reads.
    pub(crate) reads: f64,
    /// A request that is waited for longer than this ends the measurement: response times have run away.
    pub(crate) patience: Duration,
}

impl LiveTenant {
    /// The patience with who was promised a response time: ten times as long, since a percentile is judged
    /// and not a single request, and no less than a second.
    pub(crate) fn patience_for(promised: Latency) -> Duration {
        promised.to_duration().saturating_mul(10).max(Duration::from_secs(1))
    }
}

/// A pool that is measured through one of its exports.
#[derive(Debug)]
pub(crate) struct LivePool {
    target: LoadTarget,
    tenants: Vec<LiveTenant>,
    arriving: ArrivalPattern,
    seed: u64,
    /// The duration of a measurement.
    lasts: Duration,
    /// The time from which there is no time for another one.
    deadline: Instant,
    /// The requests that all tenants together may have outstanding.
    depth: NonZeroU32,
    /// The pool's other consumers; `None`: other users are not looked at.
    neighbours: Option<PoolNeighbours>,
    interrupted: Arc<AtomicBool>,
}

/// The load of the measurements, and their bounds.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) arriving: ArrivalPattern,
    pub(crate) seed: u64,
    /// Requests of all tenants at their whole rates.
    pub(crate) requests: u32,
    /// All of it takes no longer.
    pub(crate) limit: Duration,
    /// The most requests outstanding.
    pub(crate) depth: NonZeroU32,
}

/// The result at one rate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answered {
    pub(crate) offered: Iops,
    pub(crate) completed: Iops,
    pub(crate) sustained: bool,
    /// Each tenant's response times, from when a request was due. `None` where none was answered, and only
    /// where it is not sustained.
    pub(crate) tenants: Vec<Option<ResponseTimes>>,
}

impl Answered {
    /// Returns the result as it is judged.
    pub(crate) fn measured(&self) -> OfferResult {
        let quantiles: Option<Vec<_>> = self.tenants.iter().map(|tenant| Some((*tenant)?.quantile)).collect();
        quantiles.filter(|_| self.sustained).map_or(OfferResult::Overloaded, OfferResult::Sustained)
    }

    /// Returns the result as a point of a profile of a tenant that is alone; `None` if no request was
    /// answered.
    pub(crate) fn point(&self) -> Option<ProfilePoint> {
        let ResponseTimes { mean, quantile, .. } = (*self.tenants.first()?)?;
        let Self { offered, completed, sustained, .. } = *self;
        Some(ProfilePoint { offered, completed, mean, quantile, sustained })
    }
}

/// The result of loads that were watched.
struct Watched {
    ended: Ended,
    /// Requests that were answered before they were stopped.
    answered: u64,
    stopped: Instant,
    reports: Vec<LoadReport>,
}

/// The reason why watching a load ended.
enum Ended {
    /// It has lasted.
    Lasted,
    /// Response times have run away.
    RanAway,
}

impl LivePool {
    /// Checks that the bounds allow to measure the tenants at their rates, and that no other consumer uses
    /// the pool.
    pub(crate) fn new(
        target: LoadTarget,
        tenants: Vec<LiveTenant>,
        bounds: &Bounds,
        neighbours: Option<PoolNeighbours>,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self, LiveError> {
        let Bounds { arriving, seed, requests, limit, depth } = *bounds;
        if tenants.len() > MOST_TENANTS.min(depth.get() as usize) {
            return Err(LiveError::Tenants(tenants.len()));
        }
        let whole = total(&tenants);
        let lasts = Latency::from_secs_f64(f64::from(requests) / whole).to_duration();
        if lasts > limit {
            return Err(LiveError::TooLong { requests, lasts });
        }
        let deadline = Instant::now() + limit;
        let mut live =
            Self { target, tenants, arriving, seed, lasts, deadline, depth, neighbours, interrupted };
        if let Some(tenant) = live.tenants.iter().find(|tenant| live.requests_of(tenant, 1.0) < FEWEST) {
            let requests = live.requests_of(tenant, 1.0);
            let needed = (FEWEST * whole / tenant.rate.per_second()).ceil() as u64;
            return Err(LiveError::TooFew { name: tenant.name.clone(), requests, lasts, needed });
        }
        if let Some(neighbours) = &mut live.neighbours {
            neighbours.begin(live.tenants.iter().any(|tenant| tenant.reads < 1.0))?;
        }
        live.await_quiet()?;
        Ok(live)
    }

    /// Waits to see if another consumer uses the pool.
    fn await_quiet(&mut self) -> Result<(), LiveError> {
        let end = Instant::now() + QUIET;
        while self.neighbours.is_some() && Instant::now() < end {
            self.interruption()?;
            thread::sleep(LOOK);
        }
        self.neighbours.as_mut().map_or(Ok(()), PoolNeighbours::anybody)?;
        Ok(())
    }

    fn requests_of(&self, tenant: &LiveTenant, scale: f64) -> f64 {
        // What is meant to be a hundred is not 99.999.
        tenant.rate.per_second() * scale * self.lasts.as_secs_f64() + 1e-6
    }

    fn interruption(&self) -> Result<(), LiveError> {
        if self.interrupted.load(Ordering::Relaxed) { Err(LiveError::Interrupted) } else { Ok(()) }
    }

    /// "33.3 s of nbd://localhost/probe, live".
    pub(crate) fn said(&self) -> String {
        format!("{} of {}, live", Latency::from(self.lasts), self.target)
    }

    /// Returns true if a measurement at this part of all rates has requests enough of every tenant, and there
    /// is time for it.
    pub(crate) fn is_worth(&self, scale: f64) -> bool {
        self.tenants.iter().all(|tenant| self.requests_of(tenant, scale) >= FEWEST)
            && self.ends() + LOOK <= self.deadline
    }

    /// Returns the time at which a measurement would end that begins now.
    fn ends(&self) -> Instant {
        Instant::now() + BEGINS_AFTER + self.lasts
    }

    /// The mean response time of each tenant's requests when one is sent at a time, at no more than all
    /// tenants' rate together.
    pub(crate) fn alone(&mut self) -> Result<Vec<Latency>, LiveError> {
        let think = Latency::from_secs_f64(1.0 / total(&self.tenants)).to_duration();
        let mut known: Vec<((Bytes, f64), Latency)> = Vec::new();
        let mut alone = Vec::new();
        for tenant in self.tenants.clone() {
            let kind = (tenant.size, tenant.reads);
            let same = known.iter().find(|(other, _)| *other == kind).map(|(_, time)| *time);
            let time = match same {
                Some(time) => time,
                None => self.kind_alone(&tenant, think)?,
            };
            known.push((kind, time));
            alone.push(time);
        }
        Ok(alone)
    }

    fn kind_alone(&mut self, tenant: &LiveTenant, think: Duration) -> Result<Latency, LiveError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LiveError::NoTime { lasts: self.lasts });
        }
        let arrivals = LoadArrivals::Closed { depth: 1, think };
        let handle = Loader::connect(self.load(tenant, arrivals, self.seed))?.start()?;
        let enough = |answered: u64, _| answered as f64 >= FEWEST;
        let Watched { reports, .. } =
            self.watch(vec![handle], &[tenant.patience], ALONE.min(left), enough)?;
        let report = reports.into_iter().next().and_then(|report| report.all.latency_ms);
        let report = report.ok_or_else(|| LiveError::Nothing(tenant.name.clone()))?;
        Ok(Latency::from_millis_f64(report.mean))
    }

    /// Offers this many times the rate of every tenant.
    pub(crate) fn at(&mut self, scale: f64) -> Result<Answered, LiveError> {
        if self.ends() > self.deadline {
            return Err(LiveError::NoTime { lasts: self.lasts });
        }
        let whole = total(&self.tenants);
        let (mut loads, mut phases, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for (tenant, number) in self.tenants.iter().zip(1u32..) {
            let rate = tenant.rate.per_second();
            let (from, to) = (sum / whole, (sum + rate) / whole);
            sum += rate;
            let (rate, spacing) = match self.arriving {
                ArrivalPattern::InStep | ArrivalPattern::Even => (rate, RequestSpacing::Even),
                ArrivalPattern::Drawn => {
                    (whole, RequestSpacing::Drawn { from, to: to.min(1.0), seed: self.seed })
                }
                ArrivalPattern::Poisson => (rate, RequestSpacing::Poisson),
            };
            let rate = Iops::new(rate * scale);
            let phase = match self.arriving {
                // Any phases would do that are not each other's multiples: the golden ratio's are spread
                // best.
                ArrivalPattern::Even => {
                    (f64::from(number) * 0.618_033_988_749_895).fract() / rate.per_second()
                }
                ArrivalPattern::InStep | ArrivalPattern::Drawn | ArrivalPattern::Poisson => 0.0,
            };
            phases.push(Latency::from_secs_f64(phase).to_duration());
            // Every tenant has room for one, and of the rest its part: together no more than the depth.
            let others = f64::from(self.depth.get()) - self.tenants.len() as f64;
            let depth = 1 + (others.max(0.0) * (to - from)) as u32;
            let arrivals = LoadArrivals::Open { rate, spacing, depth };
            let seed = self.seed.wrapping_add(u64::from(number));
            loads.push(Loader::connect(self.load(tenant, arrivals, seed))?);
        }
        let origin = Instant::now() + BEGINS_AFTER;
        let begun = loads.into_iter().zip(phases).map(|(load, phase)| load.start_at(origin + phase));
        let begun = begun.collect::<Result<Vec<_>, _>>()?;
        let patience: Vec<_> = self.tenants.iter().map(|tenant| tenant.patience).collect();
        // The backlog, in each half of the time. If it grows steadily, it has grown by twice the difference
        // of the means. Requests that a hiccup delayed, and that the storage has caught up with, are not
        // there at the end.
        let (began, half) = (Instant::now(), (self.lasts + BEGINS_AFTER) / 2);
        let (mut waiting, mut last) = ([(0.0, 0.0); 2], 0.0);
        let count = |_, in_flight: usize| {
            last = in_flight as f64;
            let (sum, looks) = &mut waiting[usize::from(began.elapsed() >= half)];
            *sum += last;
            *looks += 1.0;
            false
        };
        let Watched { ended, answered, stopped, reports } =
            self.watch(begun, &patience, self.lasts + BEGINS_AFTER, count)?;
        let done: u64 = reports.iter().map(|report| report.all.requests).sum();
        let undone: u64 = reports.iter().map(|report| report.unsent + report.unanswered).sum();
        let grown = growth(waiting, last) + undone as f64;
        let sustained = matches!(ended, Ended::Lasted) && grown * GROWTH <= done as f64;
        let tenants = self.tenants.iter().zip(&reports).map(|(tenant, report)| {
            let responses = report.all.latency_ms.map(|times| ResponseTimes {
                requests: report.all.requests,
                mean: Latency::from_millis_f64(times.mean),
                quantile: Latency::from_millis_f64(times.p95),
            });
            match responses {
                None if sustained => Err(LiveError::Nothing(tenant.name.clone())),
                responses => Ok(responses),
            }
        });
        // No sender that went on sending waited for later answers.
        let seconds = stopped.saturating_duration_since(origin).as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(Answered {
            offered: Iops::new(whole * scale),
            completed: Iops::new(answered as f64 / seconds),
            sustained,
            tenants: tenants.collect::<Result<_, _>>()?,
        })
    }

    fn load(&self, tenant: &LiveTenant, arrivals: LoadArrivals, seed: u64) -> LoadConfig {
        let read_fraction = tenant.reads;
        LoadConfig {
            arrivals,
            block: tenant.size,
            read_fraction,
            seed,
            ..LoadConfig::new(self.target.clone())
        }
    }

    /// Watches loads for so long, or until it is `enough`, and ends them; or ends them before that where they
    /// must not go on.
    fn watch(
        &mut self,
        loads: Vec<LoadHandle>,
        patience: &[Duration],
        lasts: Duration,
        enough: impl FnMut(u64, usize) -> bool,
    ) -> Result<Watched, LiveError> {
        let mut answered = 0;
        let ended = self.look_on(&loads, patience, lasts, &mut answered, enough);
        // All at once, whatever it was, and only then one after the other: to join one, or to drop it, takes
        // seconds.
        loads.iter().for_each(LoadHandle::stop);
        let stopped = Instant::now();
        answered += sampled(&loads).0;
        let ended = ended?;
        // Now that nothing is sent any more: to look takes a while, too.
        let others = self.neighbours.as_mut().map_or(Ok(()), PoolNeighbours::others);
        let reports = loads.into_iter().map(LoadHandle::join).collect::<Result<Vec<_>, _>>()?;
        others?;
        let errors = reports.iter().map(|report| report.all.errors).sum();
        match reports.iter().find_map(|report| report.first_error.clone()) {
            Some(first) => Err(LiveError::Answers { errors, first }),
            None => Ok(Watched { ended, answered, stopped, reports }),
        }
    }

    /// Looks whether loads are to be ended, until they are, and leaves it to the caller to do that. Counts
    /// what is answered; by that and by what is outstanding it may be `enough`.
    fn look_on(
        &mut self,
        loads: &[LoadHandle],
        patience: &[Duration],
        lasts: Duration,
        answered: &mut u64,
        mut enough: impl FnMut(u64, usize) -> bool,
    ) -> Result<Ended, LiveError> {
        let end = Instant::now() + lasts;
        let mut look_around = Instant::now() + LOOK_AROUND;
        loop {
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
            self.interruption()?;
            let mut waited = loads.iter().map(LoadHandle::oldest).zip(patience);
            if waited.any(|(oldest, patience)| oldest.is_some_and(|oldest| oldest > *patience)) {
                return Ok(Ended::RanAway);
            }
            let (more, in_flight) = sampled(loads);
            *answered += more;
            let over = enough(*answered, in_flight);
            let now = Instant::now();
            // One that ended by itself has lost its connection, which joining it says.
            if over || now >= end || loads.iter().any(LoadHandle::is_finished) {
                return Ok(Ended::Lasted);
            }
            if now >= look_around {
                look_around = now + LOOK_AROUND;
                if let Some(neighbours) = &mut self.neighbours {
                    neighbours.others()?;
                }
            }
        }
    }
}

/// By how many requests the number of those that wait has grown, by the sums and counts of the looks at it in
/// each half of the time, and the last look. Where it has fallen nothing has grown: what was left undone
/// counts all the same.
fn growth(halves: [(f64, f64); 2], last: f64) -> f64 {
    let [first, second] = halves.map(|(sum, looks)| if looks > 0.0 { sum / looks } else { 0.0 });
    (2.0 * (second - first)).clamp(0.0, last)
}

/// Returns the number of requests answered since the last call, and the number outstanding now.
fn sampled(loads: &[LoadHandle]) -> (u64, usize) {
    loads.iter().map(LoadHandle::sample).fold((0, 0), |(count, in_flight), sample| {
        (count + sample.reads.count + sample.writes.count, in_flight + sample.in_flight)
    })
}

fn total(tenants: &[LiveTenant]) -> f64 {
    tenants.iter().map(|tenant| tenant.rate.per_second()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_less_and_less_has_not_grown() {
        let looks = |first: f64, second: f64| [(4.0 * first, 4.0), (3.0 * second, 3.0)];
        for (halves, last, expected) in [
            (looks(10.0, 30.0), 50.0, 40.0),
            // A hiccup that is over.
            (looks(10.0, 30.0), 5.0, 5.0),
            (looks(30.0, 10.0), 2.0, 0.0),
            ([(0.0, 0.0); 2], 0.0, 0.0),
        ] {
            assert!((growth(halves, last) - expected).abs() < 1e-9, "{halves:?} {last}");
        }
    }
}
