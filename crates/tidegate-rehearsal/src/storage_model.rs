//! The model of the storage: latency by the requests outstanding.
//!
//! Requests fall into classes: the reads and the writes of a consumer. With n_k requests of class k
//! outstanding, the work that a request finds before it takes
//!
//! ```text
//! U = (Σ w_k · n_k)^g            seconds
//! R_c = (s_c^p + (a_c · U)^p)^(1/p)      seconds
//! ```
//!
//! - s_c is the unloaded latency of the class.
//! - a_c is the part of the load that the class feels. It is 1 behind a single queue. Storage that favours
//!   some requests, as an elevator does, has others.
//! - w_k is the work that a request of class k brings. A storage with a fixed throughput has g = 1, and w_k
//!   is then the reciprocal of the greatest throughput of class k.
//! - g < 1 means that the throughput grows with the number outstanding, as under an elevator.
//! - p says how sharply latency turns from s to U. p = 1 is the straight line of PARDA (fig. 2), and large p
//!   are the two asymptotes of queueing theory. One exponential server lies near p = 1, and many servers near
//!   p = 4.

use crate::recording::{Recording, Step};

/// The form of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CurveShape {
    /// p.
    pub(crate) sharpness: f64,
    /// g.
    pub(crate) growth: f64,
}

impl CurveShape {
    /// The forms that are tried.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [1.0, 2.0, 4.0, 16.0]
            .into_iter()
            .flat_map(|sharpness| [1.0, 0.85, 0.7].into_iter().map(move |growth| Self { sharpness, growth }))
    }
}

/// The latency of each class by the requests outstanding.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StorageModel {
    pub(crate) shape: CurveShape,
    /// s of each class, in seconds.
    pub(crate) unloaded: Vec<f64>,
    /// w of each class.
    pub(crate) work: Vec<f64>,
    /// a of each class.
    pub(crate) felt: Vec<f64>,
}

impl StorageModel {
    /// Returns U, from Σ w·n.
    pub(crate) fn load(&self, work: f64) -> f64 {
        if self.shape.growth >= 1.0 { work } else { work.powf(self.shape.growth) }
    }

    /// Returns the latency of a class under a load U, in seconds.
    pub(crate) fn latency(&self, class: usize, load: f64) -> f64 {
        let (unloaded, p) = (self.unloaded[class], self.shape.sharpness);
        let load = self.felt[class] * load;
        if p <= 1.0 {
            return unloaded + load;
        }
        let (least, most) = if unloaded < load { (unloaded, load) } else { (load, unloaded) };
        if most <= 0.0 { 0.0 } else { most * (1.0 + (least / most).powf(p)).powf(1.0 / p) }
    }

    /// Returns Σ w·n in a step as it was recorded.
    pub(crate) fn recorded_work(&self, recording: &Recording, classes: &RequestClasses, at: usize) -> f64 {
        let Step { elapsed, .. } = recording.steps[at];
        let work = recording.activities(at).iter().map(|activity| {
            let outstanding = activity.at_resource(elapsed.into());
            let class = classes.of(activity.consumer as usize);
            outstanding[0] * self.work[class[0]] + outstanding[1] * self.work[class[1]]
        });
        work.sum()
    }
}

/// The most classes besides the two of all other requests.
const MOST_CLASSES: usize = 12;

/// The least number of requests of a class of its own.
const LEAST_REQUESTS: f64 = 500.0;

/// The class of each consumer's reads and writes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestClasses {
    by_consumer: Vec<[usize; 2]>,
    /// True for classes of reads.
    pub(crate) reads: Vec<bool>,
}

impl RequestClasses {
    /// Gives the busiest consumers classes of their own. All others share two, of reads and of writes.
    pub(crate) fn of_recording(recording: &Recording) -> Self {
        let mut totals = vec![[(0.0, 0.0); 2]; recording.consumers.len()];
        for activity in &recording.activities {
            for (total, kind) in totals[activity.consumer as usize].iter_mut().zip(activity.completed) {
                *total = (total.0 + f64::from(kind.count), total.1 + f64::from(kind.latency));
            }
        }
        let mut own: Vec<(usize, usize, f64)> = Vec::new();
        for (consumer, kinds) in totals.iter().enumerate() {
            for (kind, (count, latency)) in kinds.iter().enumerate() {
                if *count >= LEAST_REQUESTS {
                    own.push((consumer, kind, *latency));
                }
            }
        }
        own.sort_by(|one, other| other.2.total_cmp(&one.2));
        own.truncate(MOST_CLASSES);
        // The first two are those of all others.
        let mut classes = Self { by_consumer: vec![[0, 1]; totals.len()], reads: vec![true, false] };
        for (consumer, kind, _) in own {
            classes.by_consumer[consumer][kind] = classes.reads.len();
            classes.reads.push(kind == 0);
        }
        classes
    }

    /// Returns the classes of a consumer's reads and writes.
    pub(crate) fn of(&self, consumer: usize) -> [usize; 2] {
        self.by_consumer[consumer]
    }

    /// Returns the number of classes.
    pub(crate) fn len(&self) -> usize {
        self.reads.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(sharpness: f64) -> StorageModel {
        let shape = CurveShape { sharpness, growth: 1.0 };
        StorageModel { shape, unloaded: vec![0.008], work: vec![0.002], felt: vec![1.0] }
    }

    #[test]
    fn latency_lies_between_the_asymptotes_and_their_sum() {
        for sharpness in [1.0, 2.0, 16.0] {
            let model = model(sharpness);
            for outstanding in [0.0, 1.0, 4.0, 60.0] {
                let load = model.load(outstanding * 0.002);
                let latency = model.latency(0, load);
                assert!(latency >= 0.008_f64.max(load) - 1e-12, "{latency} at {load}");
                assert!(latency <= 0.008 + load + 1e-12, "{latency} at {load}");
            }
        }
        let saturated = model(16.0).latency(0, 0.120);
        assert!(
            (saturated - 0.120).abs() < 1e-6,
            "60 outstanding at 500 per second take 120 ms: {saturated}"
        );
    }
}
