//! The requests and their times: pure arithmetic over the configuration.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_nbd::{ExportGeometry, TransmissionFlags};
use tidegate_units::Bytes;

use crate::config::{BlockOrder, LoadConfig, LoadPhases, RequestSpacing};
use crate::error::UnsuitableExport;

/// The part of an export that is loaded, in whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadedRegion {
    offset: u64,
    block: u32,
    /// At least one.
    blocks: u64,
}

impl LoadedRegion {
    /// Fits the load to the export.
    pub(crate) fn fit(config: &LoadConfig, geometry: &ExportGeometry) -> Result<Self, UnsuitableExport> {
        let writes = config.read_fraction < 1.0;
        if writes && geometry.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(UnsuitableExport::ReadOnly);
        }
        if writes && config.fua && !geometry.flags.contains(TransmissionFlags::SEND_FUA) {
            return Err(UnsuitableExport::NoFua);
        }
        let minimum = u64::from(geometry.blocks.minimum());
        for block in [config.block, config.offset] {
            if block.get() % minimum != 0 {
                return Err(UnsuitableExport::Unaligned { block, minimum: Bytes::new(minimum) });
            }
        }
        let maximum = geometry.blocks.maximum();
        let block = u32::try_from(config.block.get()).ok().filter(|block| *block <= maximum).ok_or(
            UnsuitableExport::TooLarge { block: config.block, maximum: Bytes::new(u64::from(maximum)) },
        )?;
        let misfit = UnsuitableExport::Region { block: config.block, size: Bytes::new(geometry.size) };
        let offset = config.offset.get();
        let rest = geometry.size.checked_sub(offset).ok_or(misfit.clone())?;
        let span = config.span.map_or(rest, Bytes::get);
        let blocks = span / u64::from(block);
        if span > rest || blocks == 0 {
            return Err(misfit);
        }
        Ok(Self { offset, block, blocks })
    }

    /// The size of every request in bytes.
    pub(crate) fn block(&self) -> u32 {
        self.block
    }
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadIo {
    pub(crate) read: bool,
    /// In bytes from the export's beginning.
    pub(crate) offset: u64,
}

/// The requests of one connection, one after the other.
#[derive(Debug)]
pub(crate) struct RequestSequence {
    random: Pcg64,
    region: LoadedRegion,
    order: BlockOrder,
    read_fraction: f64,
    next_block: u64,
}

impl RequestSequence {
    /// Those of connection `index` of the load.
    pub(crate) fn new(config: &LoadConfig, region: LoadedRegion, index: u32) -> Self {
        // Sequential connections divide the region: together they read it once, rather than each all of it.
        let share = u128::from(region.blocks) * u128::from(index) / u128::from(config.connections);
        Self {
            random: Pcg64::seed_from_u64(config.seed.wrapping_add(u64::from(index))),
            region,
            order: config.order,
            read_fraction: config.read_fraction,
            next_block: share as u64,
        }
    }

    pub(crate) fn next(&mut self) -> LoadIo {
        let block = match self.order {
            BlockOrder::Random => self.random.random_range(0..self.region.blocks),
            BlockOrder::Sequential => {
                let block = self.next_block;
                self.next_block = (block + 1) % self.region.blocks;
                block
            }
        };
        // Drawn for pure loads too, so that a seed yields the same offsets whatever the mix.
        let read = self.random.random::<f64>() < self.read_fraction;
        LoadIo { read, offset: self.region.offset + block * u64::from(self.region.block) }
    }
}

/// The due times of one connection's open loop, in time that does not pass during pauses.
#[derive(Debug)]
pub(crate) struct DueTimes {
    random: Pcg64,
    spacing: RequestSpacing,
    /// Mean seconds between two requests.
    interval: f64,
    /// The number of intervals that have passed, if moments are even. They are counted rather than summed up,
    /// so that no rounding adds up.
    intervals: f64,
    /// For [`RequestSpacing::Drawn`]: the number of moments of all connections that have passed, and the
    /// number of moments to each of this connection's.
    moment: u64,
    connections: u32,
    /// For [`RequestSpacing::Poisson`]: the last due time in seconds.
    last: f64,
}

impl DueTimes {
    /// Those of connection `index` of `connections`, at `rate` requests per second of all together.
    pub(crate) fn new(rate: f64, spacing: RequestSpacing, connections: u32, index: u32, seed: u64) -> Self {
        Self {
            // A stream of its own: the spacing must not change which blocks are touched.
            random: Pcg64::seed_from_u64(seed.wrapping_add(u64::from(index)) ^ 0x9e37_79b9_7f4a_7c15),
            spacing,
            interval: f64::from(connections) / rate,
            // The connections take turns.
            intervals: f64::from(index) / f64::from(connections),
            moment: u64::from(index),
            connections,
            last: 0.0,
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let secs = match self.spacing {
            RequestSpacing::Even => {
                let due = self.intervals * self.interval;
                self.intervals += 1.0;
                due
            }
            RequestSpacing::Poisson => {
                // 1 − u lies in (0, 1]: its logarithm is finite.
                self.last -= (1.0 - self.random.random::<f64>()).ln() * self.interval;
                self.last
            }
            RequestSpacing::Drawn { from, to, seed } => loop {
                let (moment, due) = (self.moment, self.intervals * self.interval);
                self.moment = moment.wrapping_add(u64::from(self.connections));
                self.intervals += 1.0;
                if (from..to).contains(&drawn(seed, moment)) {
                    break due;
                }
            },
        };
        Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX)
    }

    /// Returns the number of requests that are due within a time, on average.
    pub(crate) fn expected_within(&self, time: Duration) -> u64 {
        let part = match self.spacing {
            RequestSpacing::Even | RequestSpacing::Poisson => 1.0,
            RequestSpacing::Drawn { from, to, .. } => to - from,
        };
        (part * time.as_secs_f64() / self.interval) as u64
    }
}

/// Returns the number, 0 to 1, that decides whose a moment is. It is the same for every load with this seed.
fn drawn(seed: u64, moment: u64) -> f64 {
    // A generator for each: none has to know how many moments others have drawn.
    Pcg64::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(moment)).random()
}

/// The times when the load is on, counted from its beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadTimetable(Option<LoadPhases>);

impl LoadTimetable {
    pub(crate) fn new(phases: Option<LoadPhases>) -> Self {
        Self(phases)
    }

    /// The earliest moment from `at` on at which the load is on.
    pub(crate) fn next_on(self, at: Duration) -> Duration {
        let Some(LoadPhases { on, off, delay }) = self.0 else { return at };
        let Some(running) = at.checked_sub(delay) else { return delay };
        let into = remainder(running, on + off);
        if into < on { at } else { at.saturating_add(on + off - into) }
    }

    /// The moment by which the load has been on for a time.
    pub(crate) fn after_active(self, active: Duration) -> Duration {
        let Some(LoadPhases { on, off, delay }) = self.0 else { return active };
        let pauses = nanos(active) / nanos(on).max(1);
        let paused = Duration::from_nanos(pauses.saturating_mul(nanos(off)));
        active.saturating_add(paused).saturating_add(delay)
    }

    /// Returns the time for which the load has been on by a moment.
    pub(crate) fn active_by(self, at: Duration) -> Duration {
        let Some(LoadPhases { on, off, delay }) = self.0 else { return at };
        let running = at.saturating_sub(delay);
        let cycles = nanos(running) / nanos(on + off).max(1);
        let into = remainder(running, on + off);
        Duration::from_nanos(cycles.saturating_mul(nanos(on))).saturating_add(into.min(on))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn remainder(time: Duration, cycle: Duration) -> Duration {
    Duration::from_nanos(nanos(time) % nanos(cycle).max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_nbd::{BlockSizes, ExportName};

    use super::*;
    use crate::target::LoadTarget;

    fn config() -> LoadConfig {
        LoadConfig::new(LoadTarget::unix("/x", ExportName::default()))
    }

    fn geometry(size: u64) -> ExportGeometry {
        let blocks = BlockSizes::new(512, 4096, 1 << 20).unwrap();
        ExportGeometry { size, flags: TransmissionFlags::HAS_FLAGS, blocks }
    }

    #[test]
    fn a_moment_that_is_drawn_is_one_loads_and_each_has_its_part() {
        let parts = [(0.0, 0.5), (0.5, 0.75), (0.75, 1.0)];
        let moments: Vec<Vec<u64>> = parts
            .iter()
            .map(|&(from, to)| {
                let mut due = DueTimes::new(1_000.0, RequestSpacing::Drawn { from, to, seed: 7 }, 1, 0, 1);
                assert_eq!(due.expected_within(Duration::from_secs(10)), ((to - from) * 10_000.0) as u64);
                let moments = std::iter::from_fn(|| Some(due.next().as_millis() as u64));
                moments.take_while(|&moment| moment < 10_000).collect()
            })
            .collect();
        let mut all: Vec<u64> = moments.concat();
        all.sort_unstable();
        assert_eq!(all, (0..10_000).collect::<Vec<_>>(), "every moment belongs to exactly one");
        for (moments, (from, to)) in moments.iter().zip(parts) {
            let (part, expected) = (moments.len() as f64 / 1e4, to - from);
            // Four standard deviations of what is drawn ten thousand times.
            assert!((part - expected).abs() < 0.02, "{part} for {expected}");
        }
    }

    #[test]
    fn a_load_must_fit_the_export() {
        let fit = |config: &LoadConfig, size| LoadedRegion::fit(config, &geometry(size));
        let kib = Bytes::from_kib;
        let whole = fit(&config(), 10_000).unwrap();
        assert_eq!(whole, LoadedRegion { offset: 0, block: 4096, blocks: 2 });
        let part = LoadConfig { offset: kib(4), span: Some(kib(4)), ..config() };
        assert_eq!(fit(&part, 8192), Ok(LoadedRegion { offset: 4096, block: 4096, blocks: 1 }));
        for (config, size) in [
            (part.clone(), 8191),
            (config(), 4095),
            (LoadConfig { offset: kib(100), ..config() }, 8192),
            (LoadConfig { span: Some(kib(2)), ..config() }, 8192),
        ] {
            assert!(matches!(fit(&config, size), Err(UnsuitableExport::Region { .. })));
        }
        for odd in [
            LoadConfig { block: Bytes::new(100), ..config() },
            LoadConfig { offset: Bytes::new(1), ..config() },
        ] {
            assert!(matches!(fit(&odd, 1 << 20), Err(UnsuitableExport::Unaligned { .. })));
        }
        for large in [Bytes::from_mib(2), Bytes::from_gib(8)] {
            let large = LoadConfig { block: large, ..config() };
            assert!(matches!(fit(&large, 1 << 40), Err(UnsuitableExport::TooLarge { .. })));
        }
        let writing = LoadConfig { read_fraction: 0.9, fua: true, ..config() };
        assert_eq!(fit(&writing, 1 << 20), Err(UnsuitableExport::NoFua));
        let read_only = ExportGeometry { flags: TransmissionFlags::READ_ONLY, ..geometry(1 << 20) };
        assert_eq!(LoadedRegion::fit(&writing, &read_only), Err(UnsuitableExport::ReadOnly));
        assert!(LoadedRegion::fit(&config(), &read_only).is_ok());
    }

    #[test]
    fn sequential_requests_wrap_and_connections_share_the_region() {
        let config = LoadConfig {
            order: BlockOrder::Sequential,
            connections: 2,
            offset: Bytes::from_kib(4),
            ..config()
        };
        let region = LoadedRegion::fit(&config, &geometry(5 * 4096)).unwrap();
        let offsets = |index| {
            let mut requests = RequestSequence::new(&config, region, index);
            [(); 5].map(|()| requests.next().offset / 4096)
        };
        assert_eq!(offsets(0), [1, 2, 3, 4, 1]);
        assert_eq!(offsets(1), [3, 4, 1, 2, 3]);
    }

    #[test]
    fn the_mix_and_the_coverage_are_as_asked() {
        let config = LoadConfig { read_fraction: 0.7, ..config() };
        let region = LoadedRegion::fit(&config, &geometry(16 * 4096)).unwrap();
        let mut requests = RequestSequence::new(&config, region, 0);
        let sample: Vec<_> = (0..20_000).map(|_| requests.next()).collect();
        let reads = sample.iter().filter(|io| io.read).count();
        // The standard deviation is 65.
        assert!((13_700..14_300).contains(&reads), "{reads}");
        for block in 0..16 {
            let hits = sample.iter().filter(|io| io.offset == block * 4096).count();
            // 1250 expected, standard deviation 34.
            assert!((1_080..1_420).contains(&hits), "block {block}: {hits}");
        }
    }

    #[test]
    fn due_times_keep_the_rate() {
        for spacing in [RequestSpacing::Even, RequestSpacing::Poisson] {
            let mut due = DueTimes::new(1_000.0, spacing, 2, 1, 7);
            let last = (0..50_000).map(|_| due.next()).reduce(|last, next| {
                assert!(next >= last);
                next
            });
            // 100 s; the sum of 50 000 exponential intervals of 2 ms has a standard deviation of 0.45 s.
            let secs = last.unwrap().as_secs_f64();
            assert!((secs - 100.0).abs() < 2.0, "{spacing:?}: {secs}");
        }
        let mut even = DueTimes::new(4.0, RequestSpacing::Even, 2, 1, 7);
        assert_eq!([even.next(), even.next()], [Duration::from_millis(250), Duration::from_millis(750)]);
        assert_eq!(even.expected_within(Duration::from_secs(3)), 6);
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn phases_begin_after_the_delay_and_repeat() {
        let timetable =
            LoadTimetable::new(Some(LoadPhases { on: millis(30), off: millis(5), delay: millis(10) }));
        for (at, on) in [(0, 10), (10, 10), (39, 39), (40, 45), (44, 45), (45, 45), (74, 74), (75, 80)] {
            assert_eq!(timetable.next_on(millis(at)), millis(on), "at {at}");
        }
        for (active, at) in [(0, 10), (29, 39), (30, 45), (59, 74), (60, 80)] {
            assert_eq!(timetable.after_active(millis(active)), millis(at), "after {active}");
        }
        for (at, active) in [(0, 0), (10, 0), (39, 29), (42, 30), (45, 30), (46, 31)] {
            assert_eq!(timetable.active_by(millis(at)), millis(active), "by {at}");
        }
    }

    proptest! {
        #[test]
        fn both_readings_of_a_timetable_agree(
            on in 1u64..100, off in 0u64..100, delay in 0u64..100, active in 0u64..1000, at in 0u64..1000,
        ) {
            let timetable = LoadTimetable::new(Some(LoadPhases {
                on: millis(on), off: millis(off), delay: millis(delay),
            }));
            let wall = timetable.after_active(millis(active));
            prop_assert_eq!(timetable.active_by(wall), millis(active));
            prop_assert_eq!(timetable.next_on(wall), wall, "requests are due only while the load is on");
            let next = timetable.next_on(millis(at));
            prop_assert!(next >= millis(at));
            prop_assert_eq!(timetable.next_on(next), next);
            prop_assert_eq!(timetable.active_by(next), timetable.active_by(millis(at)), "no active time is \
                skipped");
        }
    }
}
