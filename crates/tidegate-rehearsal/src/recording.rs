//! The recording of one resource: the observations of a time, in little room.

use thiserror::Error;
use tidegate_control::{ConsumerObservation, LoopConfig, Observation, OperationTotals};
use tidegate_units::{ConsumerName, Instant, Iops, Latency, ResourceName, Shares, Window};

/// The most control intervals of a recording: three weeks at 250 ms.
const MOST_STEPS: usize = 8 << 20;

/// The most intervals of single consumers that did something. They take 640 MiB.
const MOST_ACTIVITIES: usize = 16 << 20;

/// The most consumers of a recording.
const MOST_CONSUMERS: usize = 4_096;

/// A step after more control intervals than this begins anew: the time between is not known.
const LONGEST_STEP: f64 = 3.0;

/// Outstanding requests are steady if the most are within this multiple of the least, and so many more.
const STEADY: (f64, f64) = (1.6, 2.0);

/// Seconds of one rate.
const RATE_SECONDS: f64 = 4.0;

/// A recording that takes more memory than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the span has more decisions than a rehearsal keeps in memory: choose a shorter one")]
pub struct RecordingFull;

/// One kind of requests of one consumer in one interval. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Completed {
    pub(crate) count: f32,
    pub(crate) bytes: f32,
    pub(crate) latency: f32,
}

/// Activity of one consumer in one interval. Consumers that did nothing have none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Activity {
    pub(crate) consumer: u32,
    /// Reads, then writes.
    pub(crate) completed: [Completed; 2],
    /// Mean number of outstanding requests.
    pub(crate) outstanding: f32,
    /// Requests that waited for the throttle at the end.
    pub(crate) queued: u32,
    /// Requests queued or at the resource at the end.
    pub(crate) pending: u32,
}

impl Activity {
    /// Returns the number of completed requests.
    pub(crate) fn count(&self) -> f64 {
        f64::from(self.completed[0].count) + f64::from(self.completed[1].count)
    }

    /// Returns the mean number of requests at the resource: of reads and of writes.
    ///
    /// Mean outstanding is exact where nothing waits for the throttle. Otherwise Little's law gives the
    /// number, from the requests that completed.
    pub(crate) fn at_resource(&self, elapsed: f64) -> [f64; 2] {
        let latencies = self.completed.map(|kind| f64::from(kind.latency));
        let sum: f64 = latencies.iter().sum();
        if sum <= 0.0 {
            return [0.0; 2];
        }
        let all = if self.queued == 0 { f64::from(self.outstanding) } else { sum / elapsed };
        latencies.map(|latency| all * latency / sum)
    }
}

/// One control interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// End of the interval, in seconds on the caller's clock.
    pub(crate) time: f64,
    pub(crate) elapsed: f32,
    /// The first of its activities.
    pub(crate) first: u32,
    /// True if the interval before is not known.
    pub(crate) begins: bool,
}

/// A consumer of the recording, on its last terms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordedConsumer {
    pub(crate) name: ConsumerName,
    pub(crate) shares: Shares,
    pub(crate) protected: bool,
    pub(crate) goal: Option<Latency>,
    pub(crate) reservation: Option<Iops>,
}

/// The observations of one resource over a time, fed in their order.
///
/// Call [`configure`](Self::configure) with each configuration of the loop, [`push`](Self::push) for each
/// decision, and [`gap`](Self::gap) where decisions are missing.
#[derive(Debug, Clone)]
pub struct Recording {
    pub(crate) resource: ResourceName,
    /// Configurations of the loop, each with the step from which on it was in force.
    pub(crate) configs: Vec<(usize, LoopConfig)>,
    pub(crate) consumers: Vec<RecordedConsumer>,
    pub(crate) steps: Vec<Step>,
    pub(crate) activities: Vec<Activity>,
    /// The largest window that was read back: the depth of the queue.
    pub(crate) depth: Option<Window>,
    /// Steps at which the law throttled.
    pub(crate) throttled: usize,
    /// True if other hosts reported a load on the resource.
    pub(crate) shared: bool,
    /// True if a consumer has a contract.
    pub(crate) contracts: bool,
    /// False if the commands are not carried out by a queue.
    pub(crate) is_queue: bool,
    last: Option<Instant>,
}

impl Recording {
    /// Begins the recording of a resource.
    #[must_use]
    pub fn new(resource: ResourceName) -> Self {
        Self {
            resource,
            configs: Vec::new(),
            consumers: Vec::new(),
            steps: Vec::new(),
            activities: Vec::new(),
            depth: None,
            throttled: 0,
            shared: false,
            contracts: false,
            is_queue: true,
            last: None,
        }
    }

    /// Returns the number of decisions so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns true if there is no decision yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Takes the configuration of the loop from now on.
    pub fn configure(&mut self, config: &LoopConfig) {
        if self.configs.last().is_none_or(|(_, last)| last != config) {
            self.configs.push((self.steps.len(), config.clone()));
        }
    }

    /// Takes note that the commands are not carried out by a queue, but by the kernel.
    pub const fn not_a_queue(&mut self) {
        self.is_queue = false;
    }

    /// Takes note that decisions are missing here.
    pub const fn gap(&mut self) {
        self.last = None;
    }

    /// Takes the next decision: its time in seconds on the caller's clock, the observation, the number of
    /// consumers that the law throttles or on a dry run would throttle, and the window that was read back.
    ///
    /// # Errors
    /// When the recording is full.
    pub fn push(
        &mut self,
        time: f64,
        observation: &Observation,
        held: u32,
        window: Option<Window>,
    ) -> Result<(), RecordingFull> {
        let interval = self.configs.last().map_or(0.25, |(_, config)| config.interval.as_secs_f64());
        let elapsed = self.last.map(|last| observation.at.saturating_since(last).as_secs_f64());
        let elapsed = elapsed.filter(|elapsed| *elapsed > 0.0 && *elapsed <= LONGEST_STEP * interval);
        let active = observation.consumers.iter().filter(|consumer| is_active(consumer)).count();
        if self.steps.len() >= MOST_STEPS || self.activities.len() + active > MOST_ACTIVITIES {
            return Err(RecordingFull);
        }
        self.last = Some(observation.at);
        if window > self.depth {
            self.depth = window;
        }
        let acts = self.configs.last().is_some_and(|(_, config)| !config.dry_run);
        self.throttled += usize::from(acts && held > 0);
        self.shared |= observation.cluster.as_ref().is_some_and(|cluster| cluster.hosts != 1);
        self.steps.push(Step {
            time,
            elapsed: elapsed.unwrap_or(interval) as f32,
            first: self.activities.len() as u32,
            begins: elapsed.is_none(),
        });
        for (at, consumer) in observation.consumers.iter().enumerate() {
            self.contracts |= consumer.contract.is_some();
            let place = self.place_of(at, consumer)?;
            if is_active(consumer) {
                self.activities.push(Activity {
                    consumer: place as u32,
                    completed: [completed(&consumer.reads), completed(&consumer.writes)],
                    outstanding: consumer.mean_outstanding.get() as f32,
                    queued: consumer.queued,
                    pending: consumer.queued + consumer.reads.in_flight + consumer.writes.in_flight,
                });
            }
        }
        Ok(())
    }

    /// Returns the place of a consumer, and takes its terms. `at` is its place in the observation, which as a
    /// rule is the same.
    fn place_of(&mut self, at: usize, consumer: &ConsumerObservation) -> Result<usize, RecordingFull> {
        let is_it = |known: &RecordedConsumer| known.name == consumer.name;
        let place = match self.consumers.get(at).is_some_and(is_it) {
            true => Some(at),
            false => self.consumers.iter().position(is_it),
        };
        let terms = || RecordedConsumer {
            name: consumer.name.clone(),
            shares: consumer.shares,
            protected: consumer.protected,
            goal: consumer.goal,
            reservation: consumer.reservation,
        };
        let Some(place) = place else {
            if self.consumers.len() >= MOST_CONSUMERS {
                return Err(RecordingFull);
            }
            self.consumers.push(terms());
            return Ok(self.consumers.len() - 1);
        };
        let known = &mut self.consumers[place];
        (known.shares, known.protected) = (consumer.shares, consumer.protected);
        (known.goal, known.reservation) = (consumer.goal, consumer.reservation);
        Ok(place)
    }

    /// Returns the activities of a step.
    pub(crate) fn activities(&self, step: usize) -> &[Activity] {
        let first = self.steps[step].first as usize;
        let end = self.steps.get(step + 1).map_or(self.activities.len(), |next| next.first as usize);
        &self.activities[first..end]
    }

    /// Returns true if about the same number of requests was outstanding in a step and in those beside it.
    /// While a load begins or ends, the mean number outstanding is not the one that the requests met.
    pub(crate) fn is_steady(&self, at: usize) -> bool {
        let all = |at: usize| -> f64 {
            self.activities(at).iter().map(|activity| f64::from(activity.outstanding)).sum()
        };
        let last = self.steps.len() - 1;
        let beside = [at.saturating_sub(1), at, (at + 1).min(last)].map(all);
        let [least, most] = [f64::min, f64::max].map(|of| beside.into_iter().reduce(of).unwrap_or(0.0));
        most <= STEADY.0 * least + STEADY.1
    }

    /// Returns the requests per second in the quiet fifth of the active time, and at least one.
    pub(crate) fn quiet_rate(&self) -> f64 {
        let mut rates = Vec::new();
        let (mut seconds, mut count) = (0.0, 0.0);
        for (at, step) in self.steps.iter().enumerate() {
            seconds += f64::from(step.elapsed);
            count += self.activities(at).iter().map(Activity::count).sum::<f64>();
            if seconds >= RATE_SECONDS {
                if count > 0.0 {
                    rates.push(count / seconds);
                }
                (seconds, count) = (0.0, 0.0);
            }
        }
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 5).copied().unwrap_or(1.0).max(1.0)
    }

    /// Returns the recorded time, in seconds: without the gaps.
    pub(crate) fn seconds(&self) -> f64 {
        self.steps.iter().map(|step| f64::from(step.elapsed)).sum()
    }

    /// Returns the configuration at the end of the recording.
    pub(crate) fn last_config(&self) -> Option<&LoopConfig> {
        self.configs.last().map(|(_, config)| config)
    }
}

fn is_active(consumer: &ConsumerObservation) -> bool {
    consumer.reads.count + consumer.writes.count > 0 || consumer.mean_outstanding.get() > 0.0
}

fn completed(totals: &OperationTotals) -> Completed {
    Completed {
        count: totals.count as f32,
        bytes: totals.bytes.get() as f32,
        latency: totals.total_latency.as_secs_f64() as f32,
    }
}
