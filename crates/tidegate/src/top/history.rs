//! The last minutes of each resource and consumer, bounded.

use std::collections::{HashMap, VecDeque};

use tidegate_service::status::ServiceStatus;

use super::row::TopRow;

/// The number of samples that are kept of each, one a second: four minutes.
pub(super) const LENGTH: usize = 240;

/// The most resources and consumers whose history is kept, together. The others have none.
const MOST_HISTORIES: usize = 12_000;

/// One second of a resource or consumer. Unknown figures are `NaN`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    latency: f32,
    iops: f32,
    is_throttled: Option<bool>,
}

impl Sample {
    const UNKNOWN: Self = Self { latency: f32::NAN, iops: f32::NAN, is_throttled: None };

    fn of(row: &TopRow<'_>) -> Self {
        let figure = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
        Self { latency: figure(row.latency()), iops: figure(row.iops()), is_throttled: row.is_throttled() }
    }

    /// The latency in seconds.
    pub(super) fn latency(self) -> Option<f64> {
        known(self.latency)
    }

    /// Requests per second.
    pub(super) fn iops(self) -> Option<f64> {
        known(self.iops)
    }

    /// True if it was throttled.
    pub(super) const fn is_throttled(self) -> Option<bool> {
        self.is_throttled
    }
}

fn known(value: f32) -> Option<f64> {
    (!value.is_nan()).then(|| f64::from(value))
}

/// The last samples, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Sample>);

impl History {
    fn push(&mut self, sample: Sample) {
        if self.0.len() == LENGTH {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// Returns the samples with their ages, the oldest first.
    pub(super) fn samples(&self) -> impl DoubleEndedIterator<Item = Sample> + ExactSizeIterator + '_ {
        self.0.iter().copied()
    }
}

/// The histories of a service.
#[derive(Debug, Default)]
pub(super) struct Histories {
    resources: HashMap<String, ResourceHistory>,
}

#[derive(Debug, Default)]
struct ResourceHistory {
    own: History,
    consumers: HashMap<String, History>,
}

impl Histories {
    /// Takes a status, after so many seconds without one.
    pub(super) fn take(&mut self, status: &ServiceStatus, missed: usize) {
        self.forget(status);
        self.skip(missed);
        let mut left = MOST_HISTORIES.saturating_sub(self.len());
        for resource in &status.resources {
            if !self.resources.contains_key(&resource.name) {
                if left == 0 {
                    continue;
                }
                left -= 1;
            }
            let row = |consumer| TopRow { resource, consumer, sees: status.sees, is_current: true };
            let known = self.resources.entry(resource.name.clone()).or_default();
            known.own.push(Sample::of(&row(None)));
            for consumer in &resource.consumers {
                let sample = Sample::of(&row(Some(consumer)));
                if let Some(history) = known.consumers.get_mut(&consumer.name) {
                    history.push(sample);
                } else if left > 0 {
                    left -= 1;
                    known.consumers.entry(consumer.name.clone()).or_default().push(sample);
                }
            }
        }
    }

    /// Passes seconds of which nothing is known.
    pub(super) fn skip(&mut self, seconds: usize) {
        for _ in 0..seconds.min(LENGTH) {
            for resource in self.resources.values_mut() {
                resource.own.push(Sample::UNKNOWN);
                resource.consumers.values_mut().for_each(|history| history.push(Sample::UNKNOWN));
            }
        }
    }

    /// Returns the history of a resource, or of a consumer of it.
    pub(super) fn of(&self, resource: &str, consumer: Option<&str>) -> Option<&History> {
        let known = self.resources.get(resource)?;
        consumer.map_or(Some(&known.own), |name| known.consumers.get(name))
    }

    fn len(&self) -> usize {
        self.resources.values().map(|resource| 1 + resource.consumers.len()).sum()
    }

    /// Drops the histories of resources and consumers that are not there any more.
    fn forget(&mut self, status: &ServiceStatus) {
        let there: HashMap<&str, usize> =
            (0..).zip(&status.resources).map(|(at, resource)| (resource.name.as_str(), at)).collect();
        self.resources.retain(|name, known| {
            let Some(at) = there.get(name.as_str()) else { return false };
            let resource = &status.resources[*at];
            // Names are compared only where something is gone.
            if known.consumers.len() > resource.consumers.len()
                || !resource.consumers.iter().all(|one| known.consumers.contains_key(&one.name))
            {
                let names: std::collections::HashSet<&str> =
                    resource.consumers.iter().map(|one| one.name.as_str()).collect();
                known.consumers.retain(|name, _| names.contains(name.as_str()));
            }
            true
        });
    }

    #[cfg(test)]
    pub(super) fn samples_kept(&self) -> usize {
        let of = |resource: &ResourceHistory| {
            resource.own.0.len() + resource.consumers.values().map(|history| history.0.len()).sum::<usize>()
        };
        self.resources.values().map(of).sum()
    }
}
