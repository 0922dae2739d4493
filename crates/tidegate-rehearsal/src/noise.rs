//! The scatter of latencies around the model, drawn from the recording itself.

use rand::Rng;
use rand_pcg::Pcg64;

use crate::recording::Recording;
use crate::storage_model::{RequestClasses, StorageModel};

/// Requests of a stretch from which latencies are drawn together, and bounds of its length in seconds. The
/// mean number outstanding of fewer requests is as much a matter of chance as their latency.
const STRETCH: (f64, f64, f64) = (100.0, 2.0, 20.0);

/// A load within this logarithm of the recorded one has the recorded scatter of the same time.
const SAME_LOAD: f64 = 0.15;

/// Logarithm of the load within which a place is drawn, and the multiple of the distance of the nearest
/// place. The places at the edge of a gap are there by chance: their latencies are no example.
const NEAR: (f64, f64) = (0.25, 2.0);

/// Factors between measured and modelled latencies.
#[derive(Debug)]
pub(crate) struct LatencyNoise<'a> {
    recording: &'a Recording,
    model: &'a StorageModel,
    classes: &'a RequestClasses,
    /// The mean load of the stretch around each recorded step.
    loads: Vec<f32>,
    /// Steps with requests and a steady load, in the order of their loads.
    sorted: Vec<u32>,
    random: Pcg64,
    /// True if the scatter of the same time may be taken.
    follows: bool,
    /// Length of a stretch in seconds.
    stretch: f64,
    /// The step that factors are taken from, and the time for which it goes on.
    at: usize,
    left: f64,
    /// The last scatter of each consumer's reads and writes.
    last: Vec<[Scatter; 2]>,
}

/// The latency of some requests over that of the model.
#[derive(Debug, Clone, Copy)]
struct Scatter {
    factor: f64,
    requests: f64,
}

impl Scatter {
    const NONE: Self = Self { factor: 1.0, requests: f64::INFINITY };

    /// Returns the factor of another number of requests. The mean of more of them scatters less, as the root
    /// of their number. That of fewer is taken as it is, since requests of one interval wait for the same
    /// queue.
    fn of(self, requests: f64) -> f64 {
        let part = (self.requests / requests.max(1.0)).sqrt().min(1.0);
        self.factor.powf(part)
    }
}

impl<'a> LatencyNoise<'a> {
    pub(crate) fn new(
        recording: &'a Recording,
        model: &'a StorageModel,
        classes: &'a RequestClasses,
        seed: u64,
        follows: bool,
    ) -> Self {
        let stretch = (STRETCH.0 / recording.quiet_rate()).clamp(STRETCH.1, STRETCH.2);
        let loads = mean_loads(recording, model, classes, stretch);
        let has_requests = |at: usize| recording.activities(at).iter().any(|it| it.count() > 0.0);
        let is_typical = |at: &usize| has_requests(*at) && recording.is_steady(*at);
        let steps = 0..recording.steps.len();
        let mut sorted: Vec<u32> = steps.filter(is_typical).map(|at| at as u32).collect();
        sorted.sort_by(|one, other| loads[*one as usize].total_cmp(&loads[*other as usize]));
        Self {
            recording,
            model,
            classes,
            loads,
            sorted,
            random: Pcg64::new(u128::from(seed) << 64 | u128::from(seed), 0x7469_6465),
            follows,
            stretch,
            at: 0,
            left: 0.0,
            last: vec![[Scatter::NONE; 2]; recording.consumers.len()],
        }
    }

    /// Returns the load around a recorded step.
    pub(crate) fn recorded_load(&self, at: usize) -> f64 {
        self.loads[at].into()
    }

    /// Chooses the place of the factors for a step, under this load.
    pub(crate) fn begin(&mut self, step: usize, load: f64) {
        let recorded = self.recorded_load(step);
        let is_same = (load <= 0.0 && recorded <= 0.0) || (load / recorded).ln().abs() < SAME_LOAD;
        if self.follows && is_same {
            (self.at, self.left) = (step, 0.0);
            return;
        }
        self.left -= f64::from(self.recording.steps[step].elapsed);
        let next = self.at + 1;
        if self.left > 0.0 && self.is_next(next) {
            self.at = next;
            return;
        }
        self.left = self.stretch;
        let Some(last) = self.sorted.len().checked_sub(1) else { return };
        let below = |load: f64| self.sorted.partition_point(|at| f64::from(self.loads[*at as usize]) < load);
        let place = below(load);
        let distance = [place.saturating_sub(1), place.min(last)]
            .map(|place| (f64::from(self.loads[self.sorted[place] as usize]).max(1e-12) / load).ln().abs());
        let nearest = distance[0].min(distance[1]);
        let reach = if nearest.is_finite() { NEAR.0.max(NEAR.1 * nearest) } else { f64::INFINITY };
        let (first, end) = (below(load * (-reach).exp()), below(load * reach.exp()));
        let number = end.saturating_sub(first).max(1) as u64;
        let drawn = first + (self.random.next_u64() % number) as usize;
        self.at = self.sorted[drawn.min(last)] as usize;
    }

    /// Returns true if a stretch goes on with this step.
    fn is_next(&self, at: usize) -> bool {
        self.recording.steps.get(at).is_some_and(|step| !step.begins) && self.recording.is_steady(at)
    }

    /// Returns the factors of so many reads and writes of a consumer, at the place.
    pub(crate) fn factors(&mut self, consumer: usize, requests: [f64; 2]) -> [f64; 2] {
        let activities = self.recording.activities(self.at);
        let activity = activities.iter().find(|activity| activity.consumer as usize == consumer);
        let load = self.recorded_load(self.at);
        let class = self.classes.of(consumer);
        for (kind, last) in self.last[consumer].iter_mut().enumerate() {
            let Some(completed) = activity.map(|activity| activity.completed[kind]) else { continue };
            let measured = f64::from(completed.latency) / f64::from(completed.count);
            if completed.count > 0.0 && measured > 0.0 {
                let factor = measured / self.model.latency(class[kind], load);
                *last = Scatter { factor, requests: completed.count.into() };
            }
        }
        [0, 1].map(|kind| self.last[consumer][kind].of(requests[kind]))
    }
}

/// Returns the mean load around each step, over a stretch that ends where the load is not steady.
fn mean_loads(
    recording: &Recording,
    model: &StorageModel,
    classes: &RequestClasses,
    stretch: f64,
) -> Vec<f32> {
    let steps = recording.steps.len();
    let works: Vec<f64> = (0..steps).map(|at| model.recorded_work(recording, classes, at)).collect();
    let steady: Vec<bool> = (0..steps).map(|at| recording.is_steady(at)).collect();
    let mut loads = vec![0.0; steps];
    let mut first = 0;
    while first < steps {
        // A stretch of steady steps, or a step that is not steady.
        let (mut end, mut seconds, mut work) = (first, 0.0, 0.0);
        while end < steps && seconds < stretch && (end == first || (steady[end] && steady[first])) {
            let elapsed = f64::from(recording.steps[end].elapsed);
            (seconds, work, end) = (seconds + elapsed, work + elapsed * works[end], end + 1);
        }
        loads[first..end].fill(model.load(work / seconds.max(1e-9)) as f32);
        first = end;
    }
    loads
}
