//! What the packet-delay throttle does where there are many consumers, on the machine that it runs on. For
//! root, in a network namespace that has routes to the consumers: `lab/experiments/throttle-scale/drive.py`
//! runs it.
//!
//! usage: throttle netem|edt RESOURCES CONSUMERS [SECONDS]
//!
//! The consumers are 10.1.0.1 and those that follow, CONSUMERS of them for each of RESOURCES. Prints one JSON
//! document; times in seconds, by this machine's clock. While all are throttled it says "held" on standard
//! error and waits for a line.
//!
//! With SECONDS, each consumer uses the next resource as well, and all delays move by themselves ten times a
//! second for so long. In the end resource n has a delay of 10 + 7n mod 60 ms.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant as Clock};

use serde::Serialize;
use tidegate_host::throttle::{DelayedPackets, Throttle as Kernel, ThrottleMethod, ThrottleRequest, undo};
use tidegate_units::{Instant, Latency, ResourceName};

const DELAY: Latency = Latency::from_millis(50);

/// Every one of these changes something of every resource.
const CHANGES: u32 = 20;

/// The agent's control interval.
const INTERVAL: Duration = Duration::from_millis(100);

/// The time between two changes that may take a transaction each.
const SECOND: Latency = Latency::from_millis(1_000);

#[derive(Serialize)]
struct Measured {
    method: String,
    resources: u32,
    consumers: u32,
    /// All consumers join the sets.
    join_s: f64,
    /// All consumers in the sets are throttled.
    hold_s: f64,
    /// Of all resources at once: another delay.
    change_delays_s: f64,
    /// Of all resources at once: one member leaves, and comes back.
    change_members_s: f64,
    /// Nothing is to be changed: what is in force is only looked at.
    unchanged_s: f64,
    /// All consumers are released, and everything is removed.
    undo_s: f64,
}

#[derive(Serialize)]
struct Moved {
    method: String,
    resources: u32,
    consumers: u32,
    /// Control intervals, and the longest times from one to the next.
    intervals: usize,
    interval_p50_s: f64,
    interval_p99_s: f64,
    interval_longest_s: f64,
    /// The same of the calls that put delays into force.
    apply_p50_s: f64,
    apply_p99_s: f64,
    apply_longest_s: f64,
}

/// Consumers, `per` of them for each of `resources`.
struct Consumers {
    resources: u32,
    per: u32,
}

impl Consumers {
    fn of(&self, resource: u32) -> impl Iterator<Item = IpAddr> + use<> {
        let begin = u32::from(Ipv4Addr::new(10, 1, 0, 1)) + resource % self.resources * self.per;
        (begin..begin + self.per).map(|address| Ipv4Addr::from(address).into())
    }

    fn request(resource: u32, members: BTreeSet<IpAddr>, delay: Latency) -> ThrottleRequest {
        ThrottleRequest {
            resource: ResourceName::new(&format!("vg{resource}"))
                .expect("a short name without control characters"),
            members,
            delay,
            own_delays: BTreeMap::new(),
            limits: BTreeMap::new(),
            cgroups: BTreeMap::new(),
        }
    }

    /// Requests of one delay for all consumers, each a member of one resource. The first member of each may
    /// be missing.
    fn alike(&self, delay: Latency, without_first: bool) -> Vec<ThrottleRequest> {
        let members = |resource| self.of(resource).skip(usize::from(without_first)).collect();
        (0..self.resources).map(|resource| Self::request(resource, members(resource), delay)).collect()
    }

    /// A delay for each resource, whose members use another as well. One consumer may be missing everywhere.
    fn shared(&self, delays: &[Latency], without: Option<IpAddr>) -> Vec<ThrottleRequest> {
        let members = |resource| {
            let all = self.of(resource).chain(self.of(resource + self.resources - 1));
            all.filter(|address| Some(*address) != without).collect()
        };
        (0..)
            .zip(delays)
            .map(|(resource, delay)| Self::request(resource, members(resource), *delay))
            .collect()
    }
}

struct Throttle {
    delay: Kernel,
    now: Instant,
}

impl Throttle {
    /// Puts `holds` in force, `after` that time since the last call. Returns the seconds that it took.
    fn apply(&mut self, after: Latency, holds: &[ThrottleRequest]) -> Result<f64, Box<dyn Error>> {
        self.now = self.now + after;
        let begin = Clock::now();
        self.delay.apply(self.now, holds)?;
        self.delay.settle()?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// The mean time of a change.
    fn changes(
        &mut self,
        after: Latency,
        of: impl Fn(u32) -> Vec<ThrottleRequest>,
    ) -> Result<f64, Box<dyn Error>> {
        let mut sum = 0.0;
        for change in 1..=CHANGES {
            sum += self.apply(after, &of(change))?;
        }
        Ok(sum / f64::from(CHANGES))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let ([name, resources, per] | [name, resources, per, _]) = &arguments[..] else {
        return Err("usage: throttle netem|edt RESOURCES CONSUMERS [SECONDS]".into());
    };
    let method = match name.as_str() {
        "netem" => ThrottleMethod::Netem,
        "edt" => ThrottleMethod::Edt,
        other => return Err(format!("there is no throttle `{other}`").into()),
    };
    let consumers = Consumers { resources: resources.parse()?, per: per.parse()? };
    let ports = BTreeSet::from([3260]);
    let delay = Kernel::new(method, DelayedPackets::All, &ports, None)?;
    let throttle = Throttle { delay, now: Instant::ZERO };
    let document = match arguments.get(3) {
        None => serde_json::to_string(&changed(name, &consumers, throttle)?)?,
        Some(seconds) => serde_json::to_string(&moved(name, &consumers, throttle, seconds.parse()?)?)?,
    };
    writeln!(io::stdout(), "{document}")?;
    Ok(())
}

/// Says that consumers are throttled, and waits for a line on standard input.
fn be_seen() -> io::Result<()> {
    writeln!(io::stderr(), "held")?;
    io::stdin().read_line(&mut String::new()).map(drop)
}

fn changed(method: &str, consumers: &Consumers, mut throttle: Throttle) -> Result<Measured, Box<dyn Error>> {
    let interval = Latency::from(INTERVAL);
    let join_s = throttle.apply(SECOND, &consumers.alike(Latency::ZERO, false))?;
    let hold_s = throttle.apply(SECOND, &consumers.alike(DELAY, false))?;
    be_seen()?;
    let unchanged_s = throttle.changes(interval, |_| consumers.alike(DELAY, false))?;
    let change_delays_s = throttle.changes(interval, |change| {
        consumers.alike(DELAY.scale(f64::from(change) / f64::from(CHANGES)), false)
    })?;
    let change_members_s = throttle.changes(SECOND, |change| consumers.alike(DELAY, change % 2 == 1))?;
    let begin = Clock::now();
    undo()?;
    Ok(Measured {
        method: method.to_owned(),
        resources: consumers.resources,
        consumers: consumers.resources * consumers.per,
        join_s,
        hold_s,
        change_delays_s,
        change_members_s,
        unchanged_s,
        undo_s: begin.elapsed().as_secs_f64(),
    })
}

/// Delays move as an agent would move them, interval by interval on this machine's clock.
fn moved(
    method: &str,
    consumers: &Consumers,
    mut throttle: Throttle,
    seconds: u32,
) -> Result<Moved, Box<dyn Error>> {
    let last = |resource: u32| Latency::from_millis(10 + u64::from(resource) * 7 % 60);
    let mut delays: Vec<_> = (0..consumers.resources).map(last).collect();
    throttle.apply(SECOND, &consumers.shared(&delays, None))?;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut intervals, mut applies) = (Vec::new(), Vec::new());
    let begin = Clock::now();
    let begin_now = throttle.now;
    let mut before = begin;
    for interval in 1..=seconds * 10 {
        let due = begin + INTERVAL * interval;
        thread::sleep(due.saturating_duration_since(Clock::now()));
        let woke = Clock::now();
        intervals.push((woke - before).as_secs_f64());
        before = woke;
        for delay in &mut delays {
            // Xorshift: up to 4 ms in either direction, within 1 and 100 ms.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let moved = delay.as_nanos() / 500_000 + random % 17;
            *delay = Latency::from_nanos(moved.clamp(10, 208).saturating_sub(8) * 500_000);
        }
        // As at a rescan: each second one consumer is gone, and the one of the second before is back.
        let gone = consumers.of(interval / 10).next().filter(|_| interval >= 10);
        throttle.now = begin_now + (woke - begin);
        let called = Clock::now();
        throttle.delay.apply(throttle.now, &consumers.shared(&delays, gone))?;
        applies.push(called.elapsed().as_secs_f64());
    }
    let delays: Vec<_> = (0..consumers.resources).map(last).collect();
    for _ in 0..2 {
        thread::sleep(SECOND.to_duration());
        throttle.apply(SECOND, &consumers.shared(&delays, None))?;
    }
    be_seen()?;
    undo()?;
    intervals.sort_by(f64::total_cmp);
    applies.sort_by(f64::total_cmp);
    let at = |of: &[f64], percent: usize| of[(of.len() * percent).div_ceil(100).max(1) - 1];
    Ok(Moved {
        method: method.to_owned(),
        resources: consumers.resources,
        consumers: consumers.resources * consumers.per,
        intervals: intervals.len(),
        interval_p50_s: at(&intervals, 50),
        interval_p99_s: at(&intervals, 99),
        interval_longest_s: at(&intervals, 100),
        apply_p50_s: at(&applies, 50),
        apply_p99_s: at(&applies, 99),
        apply_longest_s: at(&applies, 100),
    })
}
