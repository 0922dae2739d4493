//! Service of one control interval: how much of each consumer's demand the storage completes.

use crate::storage_model::StorageModel;

/// Turns of the search for the load of an interval, and its relative precision.
const MOST_TURNS: usize = 40;
const PRECISE: f64 = 1e-3;

/// The work that a consumer brings in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum OfferedWork {
    /// So many requests stay outstanding.
    Closed(f64),
    /// Requests outstanding at the beginning, and arrivals per second.
    Open {
        /// Requests outstanding at the beginning.
        backlog: f64,
        /// Arrivals per second.
        rate: f64,
    },
}

/// A consumer in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Flow {
    pub(crate) consumer: usize,
    /// Classes of its reads and writes.
    pub(crate) class: [usize; 2],
    /// The fraction of its requests that reads.
    pub(crate) reads: f64,
    pub(crate) offered: OfferedWork,
    /// The most requests per second.
    pub(crate) rate: f64,
    /// Delay of each request, in seconds.
    pub(crate) delay: f64,
    /// No window limits it.
    pub(crate) exempt: bool,
    /// Its shares over the cost of a request.
    pub(crate) weight: f64,
    /// Requests per second that go before all shares.
    pub(crate) reserved: f64,
}

/// The outcome of a consumer's interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Served {
    /// Requests completed.
    pub(crate) requests: f64,
    /// Mean latencies of reads and of writes at the resource, in seconds.
    pub(crate) latency: [f64; 2],
    /// Mean number at the resource.
    pub(crate) at_resource: f64,
    /// Mean number outstanding, those that wait for the throttle included.
    pub(crate) outstanding: f64,
    /// Number outstanding at the end.
    pub(crate) remaining: f64,
}

impl Flow {
    fn latencies(&self, model: &StorageModel, load: f64) -> [f64; 2] {
        [0, 1].map(|kind| model.latency(self.class[kind], load))
    }

    fn mean(&self, latency: [f64; 2]) -> f64 {
        self.reads * latency[0] + (1.0 - self.reads) * latency[1]
    }

    /// Serves the flow for `seconds` with at most `most` requests at the resource, each of this mean latency.
    fn serve(&self, latency: f64, most: f64, seconds: f64) -> Served {
        let most = most.min(self.rate * latency);
        match self.offered {
            OfferedWork::Closed(outstanding) => {
                let wanted = outstanding * latency / (latency + self.delay);
                let at_resource = wanted.min(most);
                Served {
                    requests: at_resource / latency * seconds,
                    at_resource,
                    outstanding,
                    remaining: outstanding,
                    ..Served::default()
                }
            }
            OfferedWork::Open { backlog, rate } => drain(backlog, rate, latency, most, seconds),
        }
    }
}

/// Serves open demand: dB/dt = a − min(B, m)/R, where B is outstanding, a the rate of arrivals, m the most at
/// the resource and R the latency. Each part of the solution is exact.
fn drain(backlog: f64, rate: f64, latency: f64, most: f64, seconds: f64) -> Served {
    let (mut outstanding, mut left, mut integral) = (backlog, seconds, 0.0);
    let goes_to = rate * latency;
    // At most: above the bound, below it, above it.
    for _ in 0..3 {
        if left <= 0.0 {
            break;
        }
        if outstanding > most || (outstanding >= most && goes_to > most) {
            let change = rate - most / latency;
            let time = if change < 0.0 { ((most - outstanding) / change).min(left) } else { left };
            integral += time * (outstanding + change * time / 2.0);
            outstanding = (outstanding + change * time).max(0.0);
            left -= time;
        } else {
            let reaches = if goes_to > most {
                latency * ((goes_to - outstanding) / (goes_to - most)).ln()
            } else {
                f64::INFINITY
            };
            let time = reaches.min(left);
            let faded = (-time / latency).exp();
            integral += goes_to * time + (outstanding - goes_to) * latency * (1.0 - faded);
            outstanding = if reaches <= left { most } else { goes_to + (outstanding - goes_to) * faded };
            left -= time;
        }
    }
    let requests = (backlog + rate * seconds - outstanding).max(0.0);
    Served {
        requests,
        at_resource: requests * latency / seconds,
        outstanding: integral / seconds,
        remaining: outstanding,
        ..Served::default()
    }
}

/// Serves an interval: finds the load at which latencies and the numbers at the resource agree. Returns that
/// load. `guess` is a load to begin with, and `window` bounds all flows that are not exempt together.
pub(crate) fn serve(
    model: &StorageModel,
    flows: &[Flow],
    window: f64,
    seconds: f64,
    guess: f64,
    served: &mut Vec<Served>,
) -> f64 {
    if flows.is_empty() {
        served.clear();
        return 0.0;
    }
    let mut excess = |load: f64| serve_at(model, flows, window, seconds, load, served) - load;
    let guess = if guess > 0.0 { guess } else { 1e-3 };
    let (mut low, mut high) = (guess / 1.3, guess * 1.3);
    let mut at_low = excess(low);
    while at_low < 0.0 && low > 1e-12 {
        (high, low) = (low, low / 8.0);
        at_low = excess(low);
    }
    let mut at_high = excess(high);
    while at_high > 0.0 && high < 1e9 {
        (low, at_low, high) = (high, at_high, high * 4.0);
        at_high = excess(high);
    }
    let mut load = high;
    for _ in 0..MOST_TURNS {
        if high - low <= PRECISE * high {
            break;
        }
        let secant = low + (high - low) * at_low / (at_low - at_high).max(f64::MIN_POSITIVE);
        // Within the bracket, and never too near to an end.
        load = secant.clamp(low + 0.02 * (high - low), high - 0.02 * (high - low));
        let value = excess(load);
        if value.abs() <= PRECISE * load {
            return load;
        }
        if value > 0.0 {
            (low, at_low) = (load, value);
        } else {
            (high, at_high) = (load, value);
        }
    }
    load
}

/// Serves all flows at a given load, and returns the load that results.
fn serve_at(
    model: &StorageModel,
    flows: &[Flow],
    window: f64,
    seconds: f64,
    load: f64,
    served: &mut Vec<Served>,
) -> f64 {
    served.clear();
    let mut wanted = 0.0;
    for flow in flows {
        let latency = flow.latencies(model, load);
        let outcome = Served { latency, ..flow.serve(flow.mean(latency), f64::INFINITY, seconds) };
        wanted += if flow.exempt { 0.0 } else { outcome.at_resource };
        served.push(outcome);
    }
    if wanted > window {
        share(flows, window, seconds, served);
    }
    let work = flows.iter().zip(&*served).map(|(flow, served)| {
        let mean = flow.mean(served.latency);
        let [reads, writes] = served.latency;
        let part = served.at_resource * flow.reads * reads / mean;
        let rest = served.at_resource * (1.0 - flow.reads) * writes / mean;
        part * model.work[flow.class[0]] + rest * model.work[flow.class[1]]
    });
    model.load(work.sum())
}

/// Divides the window by shares of the throughput, reservations first. A flow that wants less than its part
/// leaves the rest to the others.
fn share(flows: &[Flow], window: f64, seconds: f64, served: &mut [Served]) {
    let limited: Vec<usize> = (0..flows.len()).filter(|at| !flows[*at].exempt).collect();
    let mean = |at: usize, served: &[Served]| flows[at].mean(served[at].latency);
    let promised: Vec<f64> = limited
        .iter()
        .map(|&at| (flows[at].reserved * mean(at, served)).min(served[at].at_resource))
        .collect();
    let sum: f64 = promised.iter().sum();
    let scale = if sum > window { window / sum } else { 1.0 };
    let mut parts: Vec<f64> = promised.iter().map(|part| part * scale).collect();
    let mut rest = window - parts.iter().sum::<f64>();
    let mut hungry: Vec<usize> = (0..limited.len()).collect();
    while rest > 1e-9 && !hungry.is_empty() {
        let weight = |place: usize| flows[limited[place]].weight * mean(limited[place], served);
        let weights: f64 = hungry.iter().map(|&place| weight(place)).sum();
        let per_weight = rest / weights.max(f64::MIN_POSITIVE);
        let mut given = 0.0;
        let before = hungry.len();
        hungry.retain(|&place| {
            let missing = served[limited[place]].at_resource - parts[place];
            let is_fed = missing <= per_weight * weight(place);
            if is_fed {
                parts[place] += missing;
                given += missing;
            }
            !is_fed
        });
        if hungry.len() == before {
            for &place in &hungry {
                parts[place] += per_weight * weight(place);
            }
            break;
        }
        rest -= given;
    }
    for (&at, part) in limited.iter().zip(parts) {
        let latency = served[at].latency;
        served[at] = Served { latency, ..flows[at].serve(flows[at].mean(latency), part, seconds) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage_model::CurveShape;

    fn model() -> StorageModel {
        let shape = CurveShape { sharpness: 16.0, growth: 1.0 };
        StorageModel { shape, unloaded: vec![0.008; 2], work: vec![0.002; 2], felt: vec![1.0; 2] }
    }

    fn flow(offered: OfferedWork, exempt: bool) -> Flow {
        Flow {
            consumer: 0,
            class: [0, 1],
            reads: 1.0,
            offered,
            rate: f64::INFINITY,
            delay: 0.0,
            exempt,
            weight: 1.0,
            reserved: 0.0,
        }
    }

    fn serve_all(flows: &[Flow], window: f64) -> Vec<Served> {
        let mut served = Vec::new();
        serve(&model(), flows, window, 0.25, 0.01, &mut served);
        served
    }

    #[test]
    fn closed_demand_has_the_latency_of_its_number_and_little_holds() {
        let served = serve_all(&[flow(OfferedWork::Closed(60.0), false)], f64::INFINITY);
        assert!((served[0].latency[0] - 0.120).abs() < 0.001, "{served:?}");
        assert!((served[0].requests - 0.25 * 500.0).abs() < 1.0, "{served:?}");
    }

    #[test]
    fn a_window_bounds_the_eligible_and_the_protected_gain() {
        let database = flow(OfferedWork::Open { backlog: 0.4, rate: 50.0 }, true);
        let backup = flow(OfferedWork::Closed(60.0), false);
        let open = serve_all(&[database, backup], f64::INFINITY);
        let held = serve_all(&[database, backup], 4.0);
        assert!(held[0].latency[0] < 0.25 * open[0].latency[0], "{held:?} after {open:?}");
        assert!((held[1].at_resource - 4.0).abs() < 0.01, "{held:?}");
        assert!((held[1].outstanding - 60.0).abs() < 1e-9, "the rest waits: {held:?}");
    }

    #[test]
    fn a_window_is_divided_by_shares_and_what_one_leaves_goes_to_the_others() {
        let closed = |number, weight| Flow { weight, ..flow(OfferedWork::Closed(number), false) };
        let served = serve_all(&[closed(50.0, 1.0), closed(50.0, 3.0), closed(0.5, 1.0)], 4.5);
        let parts: Vec<f64> = served.iter().map(|served| served.at_resource).collect();
        assert!((parts[0] - 1.0).abs() < 1e-6 && (parts[1] - 3.0).abs() < 1e-6, "{parts:?}");
        assert!((parts[2] - 0.5).abs() < 1e-9, "{parts:?}");
    }

    #[test]
    fn no_open_request_is_lost_or_made() {
        for (backlog, rate, most) in
            [(0.0, 40.0, 10.0), (30.0, 40.0, 2.0), (30.0, 10.0, 2.0), (0.0, 400.0, 1.0)]
        {
            let served = drain(backlog, rate, 0.02, most, 0.25);
            let sum = served.requests + served.remaining;
            assert!((sum - backlog - rate * 0.25).abs() < 1e-9, "{served:?}");
            assert!(served.at_resource <= most + 1e-9 && served.remaining >= 0.0, "{served:?}");
            assert!(served.outstanding >= served.at_resource - 1e-6, "{served:?}");
        }
    }
}
