//! The array of PARDA's class against the figures that the paper publishes without its law. No control law
//! has any part in this. `cargo test -p tidegate-device --test integration fc_raid5 -- --nocapture` prints the figures.

use crate::common::hosts::{Host, Seen, run};
use tidegate_device::{Device, Preset};

const SEEDS: std::ops::Range<u64> = 0..10;
const GIB: u64 = 1 << 30;

/// 16 KiB reads at random, 32 outstanding.
fn reader(start: u64, size: u64) -> Host {
    Host { outstanding: 32, bytes: 16 << 10, reads: 1.0, random: 1.0, start, size }
}

/// PARDA §5.2: 67 % reads, 70 % random, 32 outstanding.
fn mixed(start: u64, size: u64, bytes: u32) -> Host {
    Host { outstanding: 32, bytes, reads: 0.67, random: 0.7, start, size }
}

fn measure(preset: Preset, hosts: &[Host], warm_up: f64, seconds: f64, seed: u64) -> Vec<Seen> {
    let mut device = Device::new(&preset.config(), seed).unwrap();
    run(&mut device, hosts, warm_up, seconds, seed)
}

/// Of each host the mean over the seeds: requests per second, and latency in milliseconds.
fn over_seeds(of: impl Fn(u64) -> Vec<Seen>) -> Vec<(f64, f64)> {
    let all: Vec<_> = SEEDS.map(of).collect();
    let n = all.len() as f64;
    (0..all[0].len())
        .map(|host| {
            let iops = all.iter().map(|seen| seen[host].iops).sum::<f64>() / n;
            let latency = all.iter().map(|seen| seen[host].latency).sum::<f64>() / n;
            (iops, latency)
        })
        .collect()
}

fn total(hosts: &[(f64, f64)]) -> f64 {
    hosts.iter().map(|(iops, _)| iops).sum()
}

/// Over all requests.
fn latency(hosts: &[(f64, f64)]) -> f64 {
    hosts.iter().map(|(iops, latency)| iops * latency).sum::<f64>() / total(hosts)
}

fn show(what: &str, hosts: &[(f64, f64)]) {
    let each: Vec<_> = hosts.iter().map(|(iops, latency)| format!("{iops:.0} at {latency:.1} ms")).collect();
    println!("{what}: {:.0} IO/s, {:.1} ms; {}", total(hosts), latency(hosts), each.join(", "));
}

fn assert_within(value: f64, tolerance: f64, published: f64, what: &str) {
    let error = value / published - 1.0;
    assert!(
        error.abs() <= tolerance,
        "{what}: {value:.1} against {published}, off by {:.0} %",
        error * 100.0
    );
}

/// §4.1: four virtual disks of 16 GB one after the other; those in the middle are faster.
#[test]
fn disks_in_the_middle_are_faster_by_as_much_as_published() {
    let hosts: Vec<_> = (0..4).map(|n| reader(n * 16 * GIB, 16 * GIB)).collect();
    let of = |seed| {
        let seen = measure(Preset::FcRaid5, &hosts, 2.0, 20.0, seed);
        let outer = (seen[0].iops + seen[3].iops) / 2.0;
        let middle = (seen[1].iops + seen[2].iops) / 2.0;
        assert_within(middle / outer, 0.04, 915.0 / 790.0, "the middle against the outer, of one seed");
        seen
    };
    let seen = over_seeds(of);
    show("four disks", &seen);
    for ((iops, latency), published) in
        seen.iter().zip([(780.0, 40.0), (910.0, 34.5), (920.0, 35.0), (800.0, 39.5)])
    {
        assert_within(*iops, 0.03, published.0, "requests per second");
        assert_within(*latency, 0.03, published.1, "latency");
    }
}

/// §4.1: the same on one disk of 60 GB that all share.
#[test]
fn on_one_shared_disk_all_are_equal() {
    let hosts = [reader(0, 60_000_000_000); 4];
    let seen = over_seeds(|seed| measure(Preset::FcRaid5, &hosts, 2.0, 20.0, seed));
    show("one shared disk", &seen);
    for (iops, latency) in seen {
        assert_within(iops, 0.12, 790.0, "requests per second");
        assert_within(latency, 0.08, 39.0, "latency");
    }
}

/// Figure 6: one to five hosts. Its curves are in the figure only; the text has the throughput peak at three.
#[test]
fn three_hosts_keep_the_array_busy_and_more_only_wait() {
    let place_shared = |_| mixed(0, 60_000_000_000, 16 << 10);
    let place_apart = |n: u64| mixed(n * 16 * GIB, 16 * GIB, 16 << 10);
    let curve = |place: &dyn Fn(u64) -> Host, what: &str| -> Vec<(f64, f64)> {
        (1..=5)
            .map(|number| {
                let hosts: Vec<_> = (0..number).map(place).collect();
                let seen = over_seeds(|seed| measure(Preset::FcRaid5, &hosts, 10.0, 15.0, seed));
                show(&format!("{number} hosts, {what}"), &seen);
                (total(&seen), latency(&seen))
            })
            .collect()
    };
    let shared = curve(&place_shared, "one shared disk");
    let apart = curve(&place_apart, "a disk each");
    for curve in [&shared, &apart] {
        assert!(curve.is_sorted_by(|one, next| one.1 * 1.15 < next.1), "latency rises on and on: {curve:?}");
        assert!(curve[0].0 * 1.01 < curve[2].0, "one host does not keep it busy: {curve:?}");
    }
    for (iops, _) in &shared[2..] {
        assert_within(*iops, 0.01, shared[2].0, "from three hosts on it stays the same");
    }
    assert!(apart[3].0 < apart[2].0 && apart[4].0 < apart[3].0, "beyond three it falls: {apart:?}");
    assert_within(apart[1].0, 0.01, apart[2].0, "two are nearly enough");
}

/// Figure 7: seven hosts at five disks, and three of them throttled.
#[test]
fn half_the_window_gives_half_the_throughput_and_takes_load_off_all() {
    let outstanding = |throttled| {
        let hosts: Vec<_> = (0..7)
            .map(|n| Host {
                outstanding: if n < 4 { 32 } else { throttled },
                ..mixed(n * 8 * GIB, 8 * GIB, 32 << 10)
            })
            .collect();
        over_seeds(|seed| measure(Preset::FcRaid5Of5, &hosts, 10.0, 20.0, seed))
    };
    let (all, some) = (outstanding(32), outstanding(16));
    show("seven hosts", &all);
    show("three of them at 16", &some);
    let half = total(&some[4..]) / 3.0 / (total(&some[..4]) / 4.0);
    assert_within(half, 0.08, 42.0 / 85.0, "throttled against the others");
    assert_within(latency(&some) / latency(&all), 0.05, 375.0 / 470.0, "latency with less load");
    // The model's five disks do 1.8 times as much as the paper's. The preset's documentation says what may be
    // the reason.
    assert_within(total(&all), 0.1, 1.8 * 7.0 * 32.0 / 0.47, "requests per second");
}

/// Figure 5: one host, eight outstanding, all mixes.
#[test]
fn bandwidth_and_latency_span_what_they_span_in_the_paper() {
    let mut seen = Vec::new();
    for kib in [4_u32, 32, 64, 128] {
        for reads in [0.0, 0.5, 1.0] {
            for random in [0.0, 1.0] {
                let host = Host { outstanding: 8, bytes: kib << 10, reads, random, start: 0, size: 16 * GIB };
                let own = measure(Preset::FcRaid5, &[host], 5.0, 3.0, 1)[0];
                let rate = own.iops * f64::from(host.bytes) / 1e6;
                println!("{kib} KiB, {reads} reads, {random} random: {:.2} ms, {rate:.1} MB/s", own.latency);
                seen.push(((kib, reads, random), own.latency, rate));
            }
        }
    }
    let slowest = seen.iter().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
    assert_eq!(slowest.0, (128, 0.0, 1.0), "the greatest latency is that of large random writes");
    let fastest = seen.iter().min_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
    assert_eq!(fastest.0, (4, 1.0, 0.0), "the least latency is that of small sequential reads");
    assert!(slowest.1 / fastest.1 > 20.0, "{slowest:?} against {fastest:?}");
    let least = seen.iter().map(|(_, _, rate)| *rate).min_by(f64::total_cmp).unwrap();
    assert_within(least, 0.4, 8.0, "the least bandwidth");
}
