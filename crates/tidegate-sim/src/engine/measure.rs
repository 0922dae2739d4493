//! Counting and averaging.

use hdrhistogram::Histogram;
use tidegate_units::Latency;

use crate::outcome::{Latencies, WindowOutcome};

/// A percentile is exact to one per cent: two significant digits.
const DIGITS: u8 = 2;

/// Response times, by microseconds; the mean is exact to the nanosecond.
#[derive(Debug, Clone)]
pub(super) struct Distribution {
    count: u64,
    nanos: u128,
    /// Thousands of consumers have one each: it grows with what it holds, and 32 bits are enough to tell percentiles.
    micros: Histogram<u32>,
}

impl Distribution {
    pub(super) fn new() -> Self {
        let micros =
            Histogram::new(DIGITS).expect("two significant digits are within the histogram's 0 to 5");
        Self { count: 0, nanos: 0, micros }
    }

    pub(super) fn record(&mut self, nanos: u64) {
        self.count += 1;
        self.nanos += u128::from(nanos);
        let recorded = self.micros.record(nanos / 1_000);
        debug_assert!(recorded.is_ok(), "a histogram that grows takes everything");
    }

    pub(super) fn latencies(&self) -> Option<Latencies> {
        let at = |quantile| Latency::from_micros(self.micros.value_at_quantile(quantile)).as_millis_f64();
        (self.count > 0).then(|| Latencies {
            mean: self.nanos as f64 / self.count as f64 / 1e6,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
        })
    }
}

/// What completed since it was last reset.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) ops: u64,
    pub(super) felt_nanos: u128,
    pub(super) device_nanos: u128,
    /// What is judged against the target: its number and response times at the array.
    pub(super) judged: u64,
    pub(super) judged_nanos: u128,
}

impl Tally {
    pub(super) fn device_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.device_nanos as f64 / self.count as f64 / 1e6)
    }

    pub(super) fn felt_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.felt_nanos as f64 / self.count as f64 / 1e6)
    }

    /// Takes out what was counted before.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.count -= other.count;
        self.bytes -= other.bytes;
        self.ops -= other.ops;
        self.felt_nanos -= other.felt_nanos;
        self.device_nanos -= other.device_nanos;
        self.judged -= other.judged;
        self.judged_nanos -= other.judged_nanos;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.ops += other.ops;
        self.felt_nanos += other.felt_nanos;
        self.device_nanos += other.device_nanos;
        self.judged += other.judged;
        self.judged_nanos += other.judged_nanos;
    }
}

/// A number of requests, and its means over time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outstanding {
    value: u64,
    request_nanos: u128,
    changed: u64,
}

impl Outstanding {
    pub(super) fn add(&mut self, change: i64, now: u64) {
        self.request_nanos += u128::from(self.value) * u128::from(now - self.changed);
        self.changed = now;
        self.value = self.value.saturating_add_signed(change);
    }

    /// Request-nanoseconds so far. Means are taken between two of them.
    pub(super) fn integral(&mut self, now: u64) -> u128 {
        self.add(0, now);
        self.request_nanos
    }

    pub(super) fn clear(&mut self, now: u64) {
        self.add(0, now);
        self.value = 0;
    }
}

/// A mean over the time since the last one, of something that has an integral.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Since {
    integral: u128,
    at: u64,
}

impl Since {
    /// The mean; the present value where no time has passed.
    pub(super) fn mean(&mut self, of: &mut Outstanding, now: u64) -> f64 {
        let integral = of.integral(now);
        let (past, began) = (self.integral, self.at);
        *self = Self { integral, at: now };
        match now - began {
            0 => of.value as f64,
            elapsed => (integral - past) as f64 / elapsed as f64,
        }
    }
}

/// A window over time, while there is one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowTime {
    value: Option<f64>,
    last: f64,
    changed: u64,
    sum: f64,
    seconds: f64,
}

impl WindowTime {
    pub(super) fn set(&mut self, value: Option<f64>, now: u64) {
        if let Some(value) = self.value {
            let seconds = (now - self.changed) as f64 / 1e9;
            self.sum += value * seconds;
            self.seconds += seconds;
        }
        self.changed = now;
        self.value = value;
        self.last = value.unwrap_or(self.last);
    }

    pub(super) fn restart(&mut self, now: u64) {
        self.set(self.value, now);
        (self.sum, self.seconds) = (0.0, 0.0);
    }

    pub(super) fn value(&self) -> Option<f64> {
        self.value
    }

    pub(super) fn outcome(&mut self, now: u64) -> WindowOutcome {
        self.set(self.value, now);
        let mean = if self.seconds > 0.0 { self.sum / self.seconds } else { self.last };
        WindowOutcome { mean, last: self.last }
    }
}
