//! The models where the answer is known in closed form.

use std::time::Duration;

use crate::common::{Arrivals, Client, Pattern, array, cache, disk, elevator, exponential, run};
use tidegate_device::{
    Device, DeviceCompletion, DeviceConfig, DeviceIo, ExponentialChange, FixedRate, QueueConfig,
};
use tidegate_units::{Bytes, Instant, Iops, Latency};

/// Poisson arrivals at 60/s for so many seconds; the mean response time in milliseconds.
fn mean_response(servers: u32, seconds: u64) -> f64 {
    let config = DeviceConfig::Exponential(exponential(100.0, servers));
    let client = Client {
        write: false,
        bytes: 4096,
        pattern: Pattern::Random,
        arrivals: Arrivals::Poisson(Duration::from_secs(1) / 60),
        start: 0,
        size: 1 << 30,
    };
    let mut device = Device::new(&config, 7).unwrap();
    run(&mut device, &[client], Duration::from_secs(10), Duration::from_secs(seconds), 7)[0].mean()
}

#[test]
fn one_exponential_server_is_m_m_1() {
    // 1 / (μ − λ) = 1 / (100 − 60)
    let mean = mean_response(1, 10_000);
    assert!((mean / 25.0 - 1.0).abs() < 0.03, "{mean}");
}

#[test]
fn four_exponential_servers_are_m_m_4() {
    // Erlang C with a = 60 / 25 = 2.4 and four servers of 25/s.
    let a = 2.4_f64;
    let last = a.powi(4) / 24.0 / (1.0 - a / 4.0);
    let waits = last / (1.0 + a + a.powi(2) / 2.0 + a.powi(3) / 6.0 + last);
    let expected = 1e3 * (waits / (100.0 - 60.0) + 1.0 / 25.0);
    let mean = mean_response(4, 5_000);
    assert!((mean / expected - 1.0).abs() < 0.03, "{mean} against {expected}");
}

fn drain(device: &mut Device) -> Vec<DeviceCompletion> {
    let mut done = Vec::new();
    while let Some(at) = device.next_event() {
        device.advance(at, &mut done);
    }
    done
}

/// Far from the one before it: on a disk, every one of them costs a seek.
fn scattered(id: u64) -> DeviceIo {
    DeviceIo::read(id * 7_919 * 4_096 % (1 << 29), 4096)
}

fn submit_all(config: &DeviceConfig, count: u64) -> Device {
    let mut device = Device::new(config, 3).unwrap();
    for id in 0..count {
        device.submit(Instant::ZERO, id, scattered(id)).unwrap();
    }
    device
}

#[test]
fn work_in_service_goes_on_at_a_rate_that_changes() {
    let config = DeviceConfig::Exponential(exponential(100.0, 1));
    let whole = drain(&mut submit_all(&config, 1))[0].at.as_nanos();

    let mut device = submit_all(&config, 1);
    let half = Instant::from_nanos(whole / 2);
    device.set_rate(half, Iops::new(400.0)).unwrap();
    let expected = whole / 2 + (whole - whole / 2) / 4;
    assert!(drain(&mut device)[0].at.as_nanos().abs_diff(expected) <= 2);

    let mut device = submit_all(&config, 1);
    device.set_rate(half, Iops::ZERO).unwrap();
    assert_eq!(device.next_event(), None, "it stands still");
    let pause = Duration::from_secs(5);
    device.set_rate(half + pause, Iops::new(100.0)).unwrap();
    let done = drain(&mut device)[0].at - pause;
    assert!(done.as_nanos().abs_diff(whole) <= 2);
}

#[test]
fn only_an_exponential_server_has_a_rate_to_set() {
    let mut device = Device::new(&DeviceConfig::Disk(disk(QueueConfig::Fifo)), 0).unwrap();
    assert_eq!(device.set_rate(Instant::ZERO, Iops::new(1.0)), Err(FixedRate));
}

/// As often as somebody sets the rate by hand, at the time that was planned: counted from the first request,
/// and seen by what is in service.
#[test]
fn what_was_planned_of_a_server_happens_at_its_time() {
    let config = DeviceConfig::Exponential(exponential(100.0, 1));
    let first = Instant::from_nanos(7_000_000_000);
    let after = Latency::from_millis(500);
    let submit = |device: &mut Device| {
        for id in 0..200 {
            device.submit(first, id, scattered(id)).unwrap();
        }
    };

    let mut planned = Device::new(&config, 3).unwrap();
    planned.plan(vec![ExponentialChange { after, rate: Iops::new(400.0), servers: 1 }]).unwrap();
    submit(&mut planned);
    let planned = drain(&mut planned);

    let mut set = Device::new(&config, 3).unwrap();
    submit(&mut set);
    let mut done = Vec::new();
    set.advance(first + after, &mut done);
    set.set_rate(first + after, Iops::new(400.0)).unwrap();
    done.extend(drain(&mut set));
    assert_eq!(planned, done);

    // A server more takes from the queue at once, at half of a rate that is twice as great.
    let mut doubled = Device::new(&config, 3).unwrap();
    doubled.plan(vec![ExponentialChange { after, rate: Iops::new(200.0), servers: 2 }]).unwrap();
    submit(&mut doubled);
    let done = drain(&mut doubled);
    let (early, late) = done.split_at(done.partition_point(|one| one.at <= first + after));
    let rate = |done: &[DeviceCompletion], seconds: f64| done.len() as f64 / seconds;
    let end = late.last().unwrap().at.latency_since(first + after).as_secs_f64();
    assert!((rate(early, 0.5) / 100.0 - 1.0).abs() < 0.4, "{} in half a second", early.len());
    assert!((rate(late, end) / 200.0 - 1.0).abs() < 0.25, "{} in {end} s", late.len());
}

#[test]
fn a_server_that_changes_while_it_rests_has_changed_when_it_works_again() {
    let config = DeviceConfig::Exponential(exponential(1_000.0, 1));
    let mut device = Device::new(&config, 3).unwrap();
    let after = Latency::from_millis(1_000);
    device.plan(vec![ExponentialChange { after, rate: Iops::new(1.0), servers: 1 }]).unwrap();
    assert_eq!(device.next_event(), None, "nothing has begun");
    device.submit(Instant::ZERO, 0, scattered(0)).unwrap();
    let one = drain(&mut device)[0].at;
    assert!(one < Instant::ZERO + after, "{one:?}");
    assert_eq!(device.next_event(), None, "nobody would see it");
    let again = Instant::ZERO + Latency::from_millis(5_000);
    for id in 1..=20 {
        device.submit(again, id, scattered(id)).unwrap();
    }
    let took = drain(&mut device)[19].at.latency_since(again).as_secs_f64();
    assert!((8.0..40.0).contains(&took), "20 requests at one per second took {took} s");
}

#[test]
fn only_what_means_something_can_be_planned() {
    let planned = |config: &DeviceConfig, servers| {
        let change = ExponentialChange { after: Latency::from_millis(1), rate: Iops::new(1.0), servers };
        Device::new(config, 0).unwrap().plan(vec![change])
    };
    let server = DeviceConfig::Exponential(exponential(100.0, 1));
    assert!(planned(&server, 1).is_ok());
    assert_eq!(planned(&server, 0).unwrap_err().parameter, "servers");
    assert_eq!(planned(&server, 1_025).unwrap_err().parameter, "servers");
    assert_eq!(planned(&DeviceConfig::Disk(disk(QueueConfig::Fifo)), 1).unwrap_err().parameter, "changes");
}

/// A FIFO server with a backlog is never idle: when the requests came makes no difference to when they end.
#[test]
fn a_backlog_is_served_without_a_pause() {
    for config in
        [DeviceConfig::Exponential(exponential(100.0, 1)), DeviceConfig::Disk(disk(QueueConfig::Fifo))]
    {
        let at_once = drain(&mut submit_all(&config, 200));
        let mut device = submit_all(&config, 2);
        let mut done = Vec::new();
        for id in 2..200 {
            // One is in service and one waits, at any time; and a service takes longer than the controller
            // does for the one that waits.
            while device.in_flight() == 2 {
                device.advance(device.next_event().unwrap(), &mut done);
            }
            let now = done.last().unwrap().at;
            device.submit(now, id, scattered(id)).unwrap();
        }
        done.extend(drain(&mut device));
        assert_eq!(done, at_once);
    }
}

#[test]
fn a_sequential_stream_runs_at_the_media_rate_less_the_skews() {
    let config = DeviceConfig::Disk(disk(QueueConfig::Fifo));
    let bytes = 200 << 20;
    let count = bytes / 65_536;
    let mut device = Device::new(&config, 1).unwrap();
    for id in 0..count {
        device.submit(Instant::ZERO, id, DeviceIo::read(id * 65_536, 65_536)).unwrap();
    }
    let seconds = drain(&mut device).last().unwrap().at.as_secs_f64();
    // Per track a revolution, and the time by which the next one is skewed: head switch (or the shorter seek
    // to the next cylinder) and write settling, in whole sectors.
    let sector = f64::floor(60e9 / 7_200.0 / 500.0) / 1e9;
    let skew = f64::ceil(1.5e-3 / sector) * sector;
    let expected = 500.0 * 512.0 / (500.0 * sector + skew);
    let rate = bytes as f64 / seconds;
    assert!((rate / expected - 1.0).abs() < 0.002, "{rate:.0} against {expected:.0} bytes/s");
}

#[test]
fn a_random_read_costs_overhead_seek_half_a_revolution_and_transfer() {
    let config = DeviceConfig::Disk(disk(QueueConfig::Fifo));
    let mut device = Device::new(&config, 5).unwrap();
    let client = Client {
        write: false,
        bytes: 4096,
        pattern: Pattern::Random,
        arrivals: Arrivals::Closed(Duration::ZERO),
        start: 0,
        size: device.capacity().get(),
    };
    let mean = run(&mut device, &[client], Duration::ZERO, Duration::from_secs(600), 5)[0].mean();
    let expected = 0.2 + 8.5 + 60e3 / 7_200.0 * (0.5 + 8.0 / 500.0);
    assert!((mean / expected - 1.0).abs() < 0.01, "{mean:.3} against {expected:.3} ms");
}

/// The integral of the number in flight is the sum of the response times.
#[test]
fn littles_law_holds_exactly() {
    let small = cache(Bytes::from_kib(256));
    for config in [
        DeviceConfig::Exponential(exponential(200.0, 3)),
        DeviceConfig::Disk(disk(elevator())),
        DeviceConfig::Array(array(None)),
        DeviceConfig::Array(array(Some(small))),
    ] {
        let mut device = Device::new(&config, 11).unwrap();
        let mut submitted = Vec::new();
        let (mut in_flight_time, mut response_time, mut last) = (0_u128, 0_u128, Instant::ZERO);
        let mut done = Vec::new();
        let mut next_arrival = Instant::ZERO;
        loop {
            let arrival = (submitted.len() < 2_000).then_some(next_arrival);
            let Some(now) = [arrival, device.next_event()].into_iter().flatten().min() else { break };
            in_flight_time += u128::from(now.latency_since(last).as_nanos()) * device.in_flight() as u128;
            last = now;
            device.advance(now, &mut done);
            if arrival == Some(now) {
                let id = submitted.len() as u64;
                let offset = id * 7_919 * 4_096 % (1 << 29);
                let io = if id.is_multiple_of(3) {
                    DeviceIo::write(offset, 40_960)
                } else {
                    DeviceIo::read(offset, 8_192)
                };
                device.submit(now, id, io).unwrap();
                submitted.push(now);
                next_arrival = now + Latency::from_micros(id * 9_973 % 12_000);
            }
            for completion in done.drain(..) {
                let since = submitted[completion.id as usize];
                response_time += u128::from(completion.at.latency_since(since).as_nanos());
            }
        }
        assert_eq!(device.in_flight(), 0);
        assert_eq!(in_flight_time, response_time, "{config:?}");
    }
}
