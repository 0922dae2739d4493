//! Demand: the loads that consumers bring, and how they react to latency.

use serde::Serialize;

use crate::recording::Recording;

/// A consumer that is idle for so long, in seconds, has finished an episode.
const PAUSE: f64 = 10.0;

/// Mean outstanding below which a consumer is idle.
const IDLE: f64 = 0.01;

/// Length of the windows that tell open from closed demand, in seconds, and of the blocks in which they are
/// compared. Between blocks, the demand itself may be another one.
const WINDOW: f64 = 4.0;
const BLOCK: f64 = 600.0;

/// Requests that a window needs, and windows that a judgement needs.
const LEAST_REQUESTS: f64 = 10.0;
const LEAST_WINDOWS: f64 = 20.0;

/// The least scatter of latencies, as a standard deviation of logarithms, to which demand can react visibly.
const LEAST_SCATTER: f64 = 0.15;

/// One of throughput and outstanding counts as constant if it scatters by less than this part of the other.
const CONSTANT: f64 = 0.5;

/// Scatter of a number of outstanding requests that stays, and its distance from a whole number.
const STAYS: (f64, f64) = (0.05, 0.02);

/// The reaction of a consumer's requests to latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DemandKind {
    /// Requests arrive at their times, whatever the latency.
    Open,
    /// A number of requests stays outstanding, and the throughput follows the latency.
    Closed,
    /// The recording does not tell which. The rehearsal assumes both in turn.
    Unknown,
}

/// A stretch of time in which a consumer is active, with pauses below ten seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Episode {
    pub(crate) consumer: usize,
    pub(crate) first: usize,
    /// The step after its last one.
    pub(crate) end: usize,
    pub(crate) requests: f64,
    /// Mean outstanding while it is active.
    pub(crate) outstanding: f64,
    /// The fraction of the requests that reads.
    pub(crate) reads: f64,
}

/// An episode under way.
#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    first: usize,
    last: usize,
    ended: f64,
    active: f64,
    outstanding: f64,
    counts: [f64; 2],
}

impl Gathered {
    fn episode(&self, consumer: usize) -> Episode {
        let requests: f64 = self.counts.iter().sum();
        Episode {
            consumer,
            first: self.first,
            end: self.last + 1,
            requests,
            outstanding: self.outstanding / self.active.max(1e-9),
            reads: if requests > 0.0 { self.counts[0] / requests } else { 1.0 },
        }
    }
}

/// Returns the episodes of all consumers, in the order of their ends.
pub(crate) fn episodes(recording: &Recording) -> Vec<Episode> {
    let mut open: Vec<Option<Gathered>> = vec![None; recording.consumers.len()];
    let mut episodes = Vec::new();
    let mut time = 0.0;
    for (at, step) in recording.steps.iter().enumerate() {
        let elapsed = f64::from(step.elapsed);
        time += elapsed;
        for activity in recording.activities(at) {
            if activity.count() == 0.0 && f64::from(activity.outstanding) < IDLE {
                continue;
            }
            let consumer = activity.consumer as usize;
            let slot = &mut open[consumer];
            if let Some(over) = slot.take_if(|gathered| time - gathered.ended > PAUSE) {
                episodes.push(over.episode(consumer));
            }
            let gathered = slot.get_or_insert(Gathered { first: at, ..Gathered::default() });
            (gathered.last, gathered.ended) = (at, time);
            gathered.active += elapsed;
            gathered.outstanding += f64::from(activity.outstanding) * elapsed;
            for (sum, kind) in gathered.counts.iter_mut().zip(activity.completed) {
                *sum += f64::from(kind.count);
            }
        }
    }
    for (consumer, gathered) in open.into_iter().enumerate() {
        if let Some(gathered) = gathered {
            episodes.push(gathered.episode(consumer));
        }
    }
    episodes.retain(|episode| episode.requests > 0.0);
    episodes.sort_by_key(|episode| (episode.end, episode.consumer));
    episodes
}

/// Logarithms of a window's throughput, outstanding and latency.
#[derive(Debug, Clone, Copy)]
struct DemandWindow {
    block: usize,
    logarithms: [f64; 3],
    outstanding: f64,
    count: f64,
}

/// Returns the kind of demand of each consumer.
pub(crate) fn kinds(recording: &Recording) -> Vec<DemandKind> {
    (0..recording.consumers.len()).map(|consumer| judge(&windows(recording, consumer))).collect()
}

fn windows(recording: &Recording, consumer: usize) -> Vec<DemandWindow> {
    let mut windows = Vec::new();
    let (mut time, mut length) = (0.0, 0.0);
    let (mut count, mut latency, mut outstanding, mut idle) = (0.0, 0.0, 0.0, false);
    for (at, step) in recording.steps.iter().enumerate() {
        let elapsed = f64::from(step.elapsed);
        (time, length) = (time + elapsed, length + elapsed);
        let activity = recording.activities(at).iter().find(|it| it.consumer as usize == consumer);
        idle |= step.begins || activity.is_none_or(|activity| f64::from(activity.outstanding) < IDLE);
        if let Some(activity) = activity {
            count += activity.count();
            latency += activity.completed.iter().map(|kind| f64::from(kind.latency)).sum::<f64>();
            outstanding += f64::from(activity.outstanding) * elapsed;
        }
        if length >= WINDOW - 1e-6 {
            if !idle && count >= LEAST_REQUESTS && latency > 0.0 {
                let outstanding = outstanding / length;
                let logarithms = [(count / length).ln(), outstanding.ln(), (latency / count).ln()];
                windows.push(DemandWindow { block: (time / BLOCK) as usize, logarithms, outstanding, count });
            }
            (length, count, latency, outstanding, idle) = (0.0, 0.0, 0.0, 0.0, false);
        }
    }
    windows
}

/// Tells open from closed demand. While latencies vary, open demand keeps its throughput, and closed demand
/// its number of outstanding requests.
fn judge(windows: &[DemandWindow]) -> DemandKind {
    if (windows.len() as f64) < LEAST_WINDOWS {
        return DemandKind::Unknown;
    }
    let variances = variances(windows);
    let mean = windows.iter().map(|window| window.outstanding).sum::<f64>() / windows.len() as f64;
    // A whole number that stays is a depth. Requests that arrive by themselves come and go.
    let is_whole = mean > 0.9 && (mean / mean.round() - 1.0).abs() < STAYS.1;
    if is_whole && variances[1].sqrt() < STAYS.0 {
        return DemandKind::Closed;
    }
    // The count of a window scatters by itself.
    let noise = windows.iter().map(|window| 1.0 / window.count).sum::<f64>() / windows.len() as f64;
    let [throughput, outstanding, latency] = variances.map(|variance| (variance - noise).max(0.0).sqrt());
    if latency < LEAST_SCATTER {
        DemandKind::Unknown
    } else if outstanding < CONSTANT * throughput {
        DemandKind::Closed
    } else if throughput < CONSTANT * outstanding {
        DemandKind::Open
    } else {
        DemandKind::Unknown
    }
}

/// Returns the variances within blocks, of each logarithm.
fn variances(windows: &[DemandWindow]) -> [f64; 3] {
    let (mut squares, mut degrees) = ([0.0; 3], 0.0);
    for block in windows.chunk_by(|one, next| one.block == next.block) {
        let count = block.len() as f64;
        degrees += count - 1.0;
        for (at, square) in squares.iter_mut().enumerate() {
            let mean = block.iter().map(|window| window.logarithms[at]).sum::<f64>() / count;
            *square += block.iter().map(|window| (window.logarithms[at] - mean).powi(2)).sum::<f64>();
        }
    }
    squares.map(|square| square / f64::max(degrees, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of a consumer while the latency goes up and down by a factor of four.
    fn windows(of: impl Fn(f64) -> (f64, f64)) -> Vec<DemandWindow> {
        let latency = |at: usize| 0.01 * 2_f64.powf((at as f64 / 5.0).sin());
        let window = |at: usize| {
            let (throughput, outstanding) = of(latency(at));
            DemandWindow {
                block: 0,
                logarithms: [throughput.ln(), outstanding.ln(), latency(at).ln()],
                outstanding,
                count: WINDOW * throughput,
            }
        };
        (0..100).map(window).collect()
    }

    #[test]
    fn constant_throughput_is_open_and_constant_outstanding_is_closed() {
        let open = windows(|latency| (200.0, 200.0 * latency));
        assert_eq!(judge(&open), DemandKind::Open);
        let closed = windows(|latency| (8.3 / latency, 8.3));
        assert_eq!(judge(&closed), DemandKind::Closed);
        // A thread that thinks for as long as a request takes is neither.
        let between = windows(|latency| (8.0 / (latency + 0.01), 8.0 * latency / (latency + 0.01)));
        assert_eq!(judge(&between), DemandKind::Unknown);
    }

    #[test]
    fn a_whole_number_that_stays_is_a_depth_even_at_one_latency() {
        let mut windows = windows(|_| (800.0, 16.0));
        windows.iter_mut().for_each(|window| window.logarithms[2] = 0.02_f64.ln());
        assert_eq!(judge(&windows), DemandKind::Closed);
        windows.iter_mut().for_each(|window| window.outstanding = 16.5);
        assert_eq!(judge(&windows), DemandKind::Unknown);
    }
}
