//! Exponential service. Queueing theory answers it in closed form, so laws can be tested against it.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Instant, Iops, Latency};

use crate::config_error::{DeviceConfigError, require};
use crate::io::{DeviceCompletion, DeviceIo, IoKind};

/// Servers in parallel behind one FIFO queue, service times exponential, whatever the request's size and
/// place. There is no cache: a flush completes at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExponentialConfig {
    /// Requests per second that all servers complete together while each is busy: the capacity C.
    #[serde(with = "tidegate_units::text")]
    pub rate: Iops,
    /// Number of servers; each has its part of the rate. 1 to 1024.
    pub servers: u32,
    /// Number of bytes that it pretends to hold.
    #[serde(with = "tidegate_units::text")]
    pub capacity: Bytes,
}

const MAX_SERVERS: u32 = 1024;

/// A change of an exponential server while it is in use. For example, data that moves from disks to a cache
/// makes it faster, and a second shelf doubles its servers and its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExponentialChange {
    /// Time after the first request of all.
    pub after: Latency,
    /// Requests per second that all servers complete together from then on. Requests in service continue at
    /// the new rate.
    pub rate: Iops,
    /// Number of servers from then on, 1 to 1024. Surplus servers complete the requests that they serve.
    pub servers: u32,
}

/// The most changes of one device.
const MAX_CHANGES: usize = 1024;

#[derive(Debug, Clone)]
pub(crate) struct Exponential {
    /// Services per second of one server.
    rate: f64,
    servers: usize,
    queue: VecDeque<u64>,
    /// Services in the order in which they began, so that of two that end together the earlier begun comes
    /// first.
    busy: Vec<Service>,
    rng: Pcg64,
    /// Changes still to come, in the order of time.
    changes: VecDeque<ExponentialChange>,
    /// Time of the first request.
    begun: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Service {
    id: u64,
    /// Work left at `since`, in mean service requirements.
    work: f64,
    since: Instant,
    /// `None` while the server stands still.
    ends: Option<Instant>,
}

impl Service {
    fn schedule(&mut self, rate: f64) {
        self.ends = (rate > 0.0).then(|| self.since + Latency::from_secs_f64(self.work / rate));
    }
}

impl Exponential {
    pub(crate) fn new(config: &ExponentialConfig, seed: u64) -> Result<Self, DeviceConfigError> {
        require((1..=MAX_SERVERS).contains(&config.servers), "servers", "between 1 and 1024")?;
        require(config.capacity > Bytes::ZERO, "capacity", "more than nothing")?;
        Ok(Self {
            rate: config.rate.per_second() / f64::from(config.servers),
            servers: config.servers as usize,
            queue: VecDeque::new(),
            busy: Vec::new(),
            rng: Pcg64::seed_from_u64(seed),
            changes: VecDeque::new(),
            begun: None,
        })
    }

    /// Replaces the changes still to come; of two changes at one time the later one given wins.
    pub(crate) fn plan(&mut self, mut changes: Vec<ExponentialChange>) -> Result<(), DeviceConfigError> {
        require(changes.len() <= MAX_CHANGES, "changes", "1024 at most")?;
        let within = changes.iter().all(|change| (1..=MAX_SERVERS).contains(&change.servers));
        require(within, "servers", "between 1 and 1024")?;
        changes.sort_by_key(|change| change.after);
        self.changes = changes.into();
        Ok(())
    }

    pub(crate) fn submit(
        &mut self,
        now: Instant,
        id: u64,
        io: DeviceIo,
        done: &mut VecDeque<DeviceCompletion>,
    ) {
        self.begun.get_or_insert(now);
        // While nothing was in service no event said so.
        while self.next_change().is_some_and(|at| at <= now) {
            self.change(now);
        }
        if io.kind == IoKind::Flush {
            done.push_back(DeviceCompletion { id, at: now });
        } else if self.busy.len() < self.servers {
            self.begin(now, id);
        } else {
            self.queue.push_back(id);
        }
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        let ends = self.busy.iter().filter_map(|service| service.ends).min();
        // A change has no effect while nothing is in service.
        let change = self.next_change().filter(|_| !self.busy.is_empty());
        ends.into_iter().chain(change).min()
    }

    fn next_change(&self) -> Option<Instant> {
        Some(self.begun? + self.changes.front()?.after)
    }

    /// Carries out the next change.
    fn change(&mut self, now: Instant) {
        let Some(change) = self.changes.pop_front() else { return };
        self.servers = change.servers as usize;
        self.set_rate(now, change.rate);
        while self.busy.len() < self.servers
            && let Some(next) = self.queue.pop_front()
        {
            self.begin(now, next);
        }
    }

    pub(crate) fn step(&mut self, at: Instant, done: &mut VecDeque<DeviceCompletion>) {
        if self.next_change().is_some_and(|change| change <= at) {
            return self.change(at);
        }
        if let Some(index) = self.busy.iter().position(|service| service.ends == Some(at)) {
            let id = self.busy.remove(index).id;
            done.push_back(DeviceCompletion { id, at });
            if self.busy.len() < self.servers
                && let Some(next) = self.queue.pop_front()
            {
                self.begin(at, next);
            }
        }
    }

    pub(crate) fn set_rate(&mut self, now: Instant, rate: Iops) {
        let old = self.rate;
        self.rate = rate.per_second() / self.servers as f64;
        for service in &mut self.busy {
            let worked = now.latency_since(service.since).as_secs_f64() * old;
            service.work = (service.work - worked).max(0.0);
            service.since = now;
            service.schedule(self.rate);
        }
    }

    fn begin(&mut self, now: Instant, id: u64) {
        let mut service = Service { id, work: Exp1.sample(&mut self.rng), since: now, ends: None };
        service.schedule(self.rate);
        self.busy.push(service);
    }
}
