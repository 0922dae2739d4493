//! What holds for every model, under any sequence of calls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{
    array, cache, disk, elevator, exponential, flash, link, nearest, raid_5, reading_ahead, tiers, volume,
};
use proptest::prelude::*;
use tidegate_device::{
    CacheConfig, Device, DeviceCompletion, DeviceConfig, DeviceIo, FlashConfig, IoKind, LinkConfig, Preset,
    QueueConfig, SubmitError, VolumeConfig,
};
use tidegate_units::{Bytes, Instant, Iops, Latency};

const CACHE: Bytes = Bytes::from_kib(128);

#[derive(Debug, Clone)]
enum Op {
    Submit(DeviceIo),
    /// Time passes, and the caller looks.
    Advance(Duration),
    /// Time passes, and nobody looks.
    Sleep(Duration),
    ClockJumpsBack(Duration),
    SetRate(f64),
}

fn op() -> impl Strategy<Value = Op> {
    let time = prop_oneof![
        4 => (0_u64..30_000_000).prop_map(Duration::from_nanos),
        1 => (0_u64..1 << 62).prop_map(Duration::from_nanos),
    ];
    let kind = prop_oneof![
        4 => Just(IoKind::Read),
        4 => Just(IoKind::Write { fua: false }),
        1 => Just(IoKind::Write { fua: true }),
        1 => Just(IoKind::Flush),
    ];
    // Few places, so that requests meet in the cache; odd sizes, and some beyond the end.
    let offset = prop_oneof![8 => 0_u64..400_000, 1 => any::<u64>()];
    let bytes = prop_oneof![8 => 0_u32..100_000, 1 => 0_u32..3_000_000];
    // And some that follow one another.
    let follows = (0_u64..12).prop_map(|number| Op::Submit(DeviceIo::read(number * 8_192, 8_192)));
    prop_oneof![
        8 => (kind, offset, bytes)
            .prop_map(|(kind, offset, bytes)| Op::Submit(DeviceIo { kind, offset, bytes })),
        4 => follows,
        4 => time.clone().prop_map(Op::Advance),
        2 => time.clone().prop_map(Op::Sleep),
        1 => time.prop_map(Op::ClockJumpsBack),
        1 => any::<f64>().prop_map(Op::SetRate),
    ]
}

fn config() -> impl Strategy<Value = DeviceConfig> {
    prop_oneof![
        Just(DeviceConfig::Exponential(exponential(300.0, 1))),
        Just(DeviceConfig::Exponential(exponential(300.0, 4))),
        Just(DeviceConfig::Disk(disk(QueueConfig::Fifo))),
        Just(DeviceConfig::Disk(disk(elevator()))),
        Just(DeviceConfig::Disk(disk(nearest()))),
        Just(DeviceConfig::Array(array(None))),
        Just(DeviceConfig::Array(array(Some(cache(CACHE))))),
        Just(DeviceConfig::Array(raid_5(None))),
        Just(DeviceConfig::Array(reading_ahead(array(None)))),
        Just(DeviceConfig::Array(reading_ahead(raid_5(Some(cache(CACHE)))))),
        Just(DeviceConfig::Array(raid_5(Some(cache(CACHE))))),
        Just(DeviceConfig::Array(raid_5(Some(CacheConfig { nonvolatile: true, ..cache(CACHE) })))),
        Just(DeviceConfig::Flash(flash())),
        Just(DeviceConfig::Flash(FlashConfig { half_duplex: false, reserve: Bytes::ZERO, ..flash() })),
        Just(DeviceConfig::Flash(FlashConfig { reads_first: 0, buffer: Bytes::from_kib(16), ..flash() })),
        Just(DeviceConfig::Volume(volume())),
        Just(DeviceConfig::Volume(VolumeConfig { burst: None, spread: Latency::ZERO, ..volume() })),
        Just(DeviceConfig::Link(link(DeviceConfig::Array(array(Some(cache(CACHE))))))),
        Just(DeviceConfig::Link(LinkConfig { half_duplex: true, ..link(DeviceConfig::Flash(flash())) })),
        Just(tiered(None)),
        Just(tiered(Some(Bytes::from_kib(64)))),
        Just(DeviceConfig::Link(link(tiered(None)))),
    ]
}

/// A flash device before a disk.
fn tiered(extent: Option<Bytes>) -> DeviceConfig {
    let small = FlashConfig { capacity: Bytes::new(100_000), ..flash() };
    DeviceConfig::Tiers(tiers(DeviceConfig::Flash(small), DeviceConfig::Disk(disk(elevator())), extent))
}

/// No completion is sooner than what the fastest part of the model takes.
fn least(config: &DeviceConfig, io: DeviceIo) -> Latency {
    match (config, io.kind) {
        (DeviceConfig::Link(link), _) => link.latency.scale(2.0),
        (_, IoKind::Flush) | (DeviceConfig::Exponential(_), _) => Latency::ZERO,
        (DeviceConfig::Flash(flash), IoKind::Read) => flash.read.saturating_add(flash.latency),
        (DeviceConfig::Flash(flash), IoKind::Write { .. }) => flash.command.saturating_add(flash.latency),
        (DeviceConfig::Volume(volume), _) => volume.latency,
        (DeviceConfig::Tiers(tiers), _) => least(&tiers.fast, io).min(least(&tiers.slow, io)),
        (DeviceConfig::Array(array), IoKind::Read) if array.read_ahead.is_some() => Latency::from_micros(20),
        (DeviceConfig::Array(array), IoKind::Read | IoKind::Write { fua: false })
            if array.cache.is_some() =>
        {
            Latency::from_micros(50)
        }
        (DeviceConfig::Array(array), IoKind::Write { fua: true })
            if array.cache.as_ref().is_some_and(|cache| cache.nonvolatile) =>
        {
            Latency::from_micros(50)
        }
        // The controller, and one sector under the head.
        (DeviceConfig::Disk(_) | DeviceConfig::Array(_), _) => Latency::from_micros(216),
    }
}

struct Harness {
    config: DeviceConfig,
    device: Device,
    now: Instant,
    latest: Instant,
    pending: BTreeMap<u64, (Instant, DeviceIo)>,
    next_id: u64,
    last_completed: Instant,
    log: Vec<DeviceCompletion>,
}

impl Harness {
    fn new(config: &DeviceConfig) -> Self {
        Self {
            config: config.clone(),
            device: Device::new(config, 42).unwrap(),
            now: Instant::ZERO,
            latest: Instant::ZERO,
            pending: BTreeMap::new(),
            next_id: 0,
            last_completed: Instant::ZERO,
            log: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op, eager: bool) {
        match *op {
            Op::Submit(io) => self.submit(io),
            Op::Advance(by) => {
                self.pass(by, eager);
                self.look();
            }
            Op::Sleep(by) => self.pass(by, eager),
            Op::ClockJumpsBack(by) => {
                self.look();
                self.now = self.now - by;
                self.look();
            }
            Op::SetRate(rate) => {
                let done = self.device.set_rate(self.now, Iops::new(rate));
                self.told();
                assert_eq!(done.is_ok(), matches!(self.config, DeviceConfig::Exponential(_)));
            }
        }
        assert_eq!(self.device.in_flight(), self.pending.len());
        assert!(self.device.dirty() <= CACHE);
    }

    fn submit(&mut self, io: DeviceIo) {
        let result = self.device.submit(self.now, self.next_id, io);
        let end = io.offset.saturating_add(u64::from(io.bytes));
        if io.kind != IoKind::Flush && io.bytes == 0 {
            assert_eq!(result, Err(SubmitError::Empty));
        } else if io.kind != IoKind::Flush && end > self.device.capacity().get() {
            assert!(matches!(result, Err(SubmitError::OutOfRange { .. })));
        } else {
            assert_eq!(result, Ok(()));
            self.told();
            self.pending.insert(self.next_id, (self.latest, io));
        }
        self.next_id += 1;
    }

    fn pass(&mut self, by: Duration, eager: bool) {
        let until = self.now + by;
        while let Some(at) = self.device.next_event().filter(|at| eager && *at <= until) {
            self.now = self.now.max(at);
            self.look();
        }
        self.now = until;
    }

    fn told(&mut self) {
        self.latest = self.latest.max(self.now);
    }

    fn look(&mut self) {
        let mut done = Vec::new();
        self.device.advance(self.now, &mut done);
        self.told();
        for completion in &done {
            let (submitted, io) = self.pending.remove(&completion.id).expect("completed once, and submitted");
            assert!(completion.at >= submitted + least(&self.config, io), "{io:?} at {completion:?}");
            assert!(completion.at >= self.last_completed, "in the order of completion");
            assert!(completion.at <= self.latest, "nothing from the future");
            self.last_completed = completion.at;
        }
        if let Some(next) = self.device.next_event() {
            assert!(next >= self.latest, "{next:?} lies behind {:?}", self.latest);
        }
        self.log.extend(done);
    }

    /// Lets everything finish.
    fn drain(&mut self) {
        self.apply(&Op::SetRate(300.0), false);
        let mut steps = 0;
        while let Some(at) = self.device.next_event() {
            self.now = self.now.max(at);
            self.look();
            steps += 1;
            assert!(steps < 1_000_000, "it comes to no end");
        }
        assert!(self.pending.is_empty(), "never completed: {:?}", self.pending);
        assert!(self.device.dirty().get() * 4 <= CACHE.get(), "destaged down to the low mark");
    }
}

fn run(config: &DeviceConfig, ops: &[Op], eager: bool) -> Vec<DeviceCompletion> {
    let mut harness = Harness::new(config);
    ops.iter().for_each(|op| harness.apply(op, eager));
    harness.drain();
    harness.log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_request_completes_once_and_in_its_time(
        config in config(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let late = run(&config, &ops, false);
        prop_assert_eq!(&late, &run(&config, &ops, false), "the same calls, the same completions");
        prop_assert_eq!(&late, &run(&config, &ops, true), "looking more often changes nothing");
    }
}

#[test]
fn the_seed_decides_service_times_and_angles() {
    for config in [
        DeviceConfig::Exponential(exponential(100.0, 1)),
        DeviceConfig::Disk(disk(QueueConfig::Fifo)),
        Preset::SataStripe.config(),
    ] {
        let first_completion = |seed| {
            let mut device = Device::new(&config, seed).unwrap();
            device.submit(Instant::ZERO, 0, DeviceIo::read(0, 4096)).unwrap();
            let mut done = Vec::new();
            device.advance(Instant::ZERO + Duration::from_secs(10), &mut done);
            done[0].at
        };
        assert_eq!(first_completion(1), first_completion(1));
        assert_ne!(first_completion(1), first_completion(2));
    }
}

#[test]
fn a_device_that_holds_no_more_says_so() {
    let mut device = Device::new(&DeviceConfig::Exponential(exponential(100.0, 1)), 0).unwrap();
    for id in 0..tidegate_device::MAX_IN_FLIGHT as u64 {
        device.submit(Instant::ZERO, id, DeviceIo::read(0, 1)).unwrap();
    }
    let full = SubmitError::Full { limit: tidegate_device::MAX_IN_FLIGHT };
    assert_eq!(device.submit(Instant::ZERO, 0, DeviceIo::read(0, 1)), Err(full));
}

#[test]
fn a_document_selects_and_describes_a_model() {
    for preset in Preset::ALL {
        let config = preset.config();
        let text = toml::to_string(&config).unwrap();
        // Quantities are written as people read them, to three digits.
        let again: DeviceConfig = toml::from_str(&text).unwrap();
        assert_eq!(toml::to_string(&again).unwrap(), text);
        assert_eq!(preset.name().parse(), Ok(preset));
    }
    let with_cache = DeviceConfig::Array(array(Some(cache(CACHE))));
    let text = toml::to_string(&with_cache).unwrap();
    assert_eq!(toml::from_str::<DeviceConfig>(&text).unwrap(), with_cache, "{text}");
    assert!(
        !text.contains("level") && !text.contains("nonvolatile"),
        "what is usual goes without saying: {text}"
    );
    let nonvolatile = CacheConfig { nonvolatile: true, ..cache(CACHE) };
    let with_parity = DeviceConfig::Array(reading_ahead(raid_5(Some(nonvolatile))));
    let text = toml::to_string(&with_parity).unwrap();
    assert!(text.contains("level = \"raid5\""), "{text}");
    assert_eq!(toml::from_str::<DeviceConfig>(&text).unwrap(), with_parity, "{text}");

    let exponential = |rest: &str| format!("model = \"exponential\"\nrate = \"300 IO/s\"\n{rest}");
    let good = exponential("servers = 2\ncapacity = \"1GiB\"");
    assert!(toml::from_str::<DeviceConfig>(&good).is_ok());
    let misspelled = exponential("server = 2\nservers = 2\ncapacity = \"1GiB\"");
    let error = toml::from_str::<DeviceConfig>(&misspelled).unwrap_err().to_string();
    assert!(error.contains("unknown field `server`"), "{error}");
    assert_eq!(
        "dnes".parse::<Preset>().unwrap_err().to_string(),
        "there is no device preset `dnes`; there are dnes-309170w, sata-stripe, fc-raid5, fc-raid5-5, \
            fc-raid0-6, \
         fc-raid0-10, dc-s4500, dc-s4600, dc-p3700, ebs-gp2, ebs-gp3"
    );
}

#[test]
fn parameters_that_mean_nothing_are_refused_by_name() {
    let refused = |config| Device::new(&config, 0).unwrap_err().to_string();
    let no_server = DeviceConfig::Exponential(exponential(1.0, 0));
    assert_eq!(refused(no_server), "servers must be between 1 and 1024");
    let mut odd = array(None);
    odd.stripe_unit = Bytes::new(5_000);
    assert_eq!(refused(DeviceConfig::Array(odd)), "stripe-unit must be a multiple of 4 KiB");
    let mut two = raid_5(None);
    two.disks = 2;
    assert_eq!(refused(DeviceConfig::Array(two)), "disks must be at least 3 for RAID 5");
    let mut hasty = reading_ahead(array(None));
    hasty.read_ahead.as_mut().unwrap().after = 1;
    assert_eq!(refused(DeviceConfig::Array(hasty)), "read-ahead.after must be at least 2");
    let no_sight = QueueConfig::ShortestSeek { depth: 0, max_age: Latency::ZERO };
    assert_eq!(
        refused(DeviceConfig::Disk(disk(no_sight))),
        "queue.shortest-seek.depth must be between 1 and 1024"
    );
    let mut upside_down = cache(CACHE);
    upside_down.low = 0.9;
    assert_eq!(
        refused(DeviceConfig::Array(array(Some(upside_down)))),
        "cache.low must be at least 0 and below `high`, and that at most 1"
    );
    let mut still = disk(QueueConfig::Fifo);
    still.rpm = 0;
    assert_eq!(refused(DeviceConfig::Disk(still)), "rpm must be between 1 and 100000");
}
