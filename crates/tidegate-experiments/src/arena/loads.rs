//! The loads of random scenarios.

use tidegate_device::DeviceConfig;
use tidegate_sim::scenario::{
    ActivityCycle, ArrivalSpacing, OperationArrivals, OperationStep, ReportNetwork, ThinkTime, ThinkTiming,
    Workload,
};
use tidegate_units::{Iops, Latency};

use super::sketch::{HostOutage, Sketch, closed};

/// The greatest number of requests that one consumer has outstanding.
const DEEPEST: f64 = 64.0;

impl Sketch {
    pub(super) fn one_host(&mut self) {
        self.host("host");
    }

    /// Several hosts; every second time on a network that delays and loses reports.
    pub(super) fn hosts(&mut self, least: u32, most: u32) {
        let count = self.draw.scaled_whole(least, most);
        for number in 1..=count {
            self.host(&format!("host-{number}"));
        }
        if self.draw.chance(0.5) {
            self.scenario.network = ReportNetwork {
                delay: Latency::from_millis(u64::from(self.draw.whole(1, 40))),
                jitter: Latency::from_millis(u64::from(self.draw.whole(1, 20))),
                loss: self.draw.pick(&[0.0, 0.01, 0.05, 0.1]),
                partitions: Vec::new(),
            };
        }
    }

    /// An operation of one request. `reads` bounds the part that reads, in steps of 0.05.
    fn step(&mut self, reads: (f64, f64), sequential: f64) -> OperationStep {
        let sequential = if self.draw.chance(sequential) { 0.9 } else { 0.0 };
        let sizes: &[u32] = match &self.scenario.arrays[0].device {
            // A drive does hundreds of thousands of small requests per second, which nothing here could pay.
            DeviceConfig::Flash(flash) if !flash.half_duplex => &[65_536, 131_072],
            DeviceConfig::Flash(_) => &[16_384, 32_768, 65_536],
            _ if sequential > 0.0 => &[16_384, 65_536, 131_072, 262_144],
            _ => &[4_096, 8_192, 16_384, 32_768, 65_536],
        };
        let bytes = self.draw.pick(sizes);
        let reads = (self.draw.uniform(reads.0, reads.1) * 20.0).round() / 20.0;
        OperationStep { reads, sequential, ..OperationStep::random_reads(bytes) }
    }

    /// Consumers that together always have 2 to 16 times as many requests as the storage has servers.
    /// `sequential` is the chance that one of them is sequential.
    pub(super) fn backlogged(&mut self, count: (u32, u32), sequential: f64, reads: (f64, f64)) {
        self.loaded((2.0, 16.0), count, sequential, reads);
    }

    /// The same with other bounds of the backlog: below 1, the storage has idle servers.
    pub(super) fn loaded(
        &mut self,
        depth: (f64, f64),
        count: (u32, u32),
        sequential: f64,
        reads: (f64, f64),
    ) {
        let count = self.draw.whole(count.0, count.1);
        let least = if depth.0 < 1.0 { 1.0 } else { 2.0 };
        let depth = self.draw.scaled(depth.0, depth.1) * self.parallelism();
        let each = (depth / f64::from(count)).clamp(least, DEEPEST) as u32;
        for number in 1..=count {
            let step = self.step(reads, sequential);
            let shares = self.shares();
            self.vm(&format!("load-{number}"), 0, closed("load", each, step)).shares = shares;
        }
    }

    /// The same on every host: mostly 1 to 3 consumers, at times up to 8.
    pub(super) fn backlogged_on_hosts(&mut self) {
        let hosts = self.scenario.hosts.len();
        let depth = self.draw.scaled(3.0, 12.0) * self.parallelism();
        let each = (depth / hosts as f64).clamp(4.0, DEEPEST) as u32;
        for host in 0..hosts {
            let most = if self.draw.chance(0.15) { 8 } else { 3 };
            for number in 1..=self.draw.whole(1, most) {
                let step = self.step((0.5, 1.0), 0.0);
                let shares = self.shares();
                self.vm(&format!("load-{}-{number}", host + 1), host, closed("load", each, step)).shares =
                    shares;
            }
        }
    }

    /// Consumers that come and go, ramp up and down, or pause together, in closed and open loops.
    pub(super) fn varying(&mut self, least: u32, most: u32) {
        let count = self.draw.whole(least, most);
        let variant = self.draw.whole(0, 3);
        for number in 1..=count {
            let step = self.step((0.7, 1.0), 0.0);
            let depth = self.draw.scaled(2.0, 10.0) * self.parallelism();
            let outstanding = depth.clamp(4.0, DEEPEST) as u32;
            let mut workload = closed("load", outstanding, step);
            if self.draw.chance(0.4) {
                let part = self.draw.uniform(0.3, 1.2) / f64::from(count);
                workload.arrivals = open(self.capacity_guess() * part);
            }
            let is_ramp = variant == 2 && self.draw.chance(0.7);
            if variant < 2 {
                workload.cycle = Some(self.cycle());
            }
            let shares = self.shares();
            self.vm(&format!("load-{number}"), 0, workload.clone()).shares = shares;
            if is_ramp {
                self.ramp(&workload);
            }
        }
        if variant == 3 {
            let from = self.draw.uniform(0.3, 0.5);
            self.pause = Some((from, from + self.draw.uniform(0.1, 0.3)));
        }
    }

    fn cycle(&mut self) -> ActivityCycle {
        ActivityCycle {
            on: Latency::from_secs_f64(self.draw.scaled(3.0, 20.0)),
            off: Latency::from_secs_f64(self.draw.scaled(2.0, 20.0)),
            delay: Latency::from_secs_f64(self.draw.uniform(0.0, 10.0)),
        }
    }

    /// Replaces the last consumer's workload by four quarters of it, which begin and end one after the other.
    fn ramp(&mut self, workload: &Workload) {
        const QUARTERS: usize = 4;
        let place = self.scenario.vms.len() - 1;
        let quarter = |number: usize| {
            let mut quarter = Workload { name: format!("load-{number}"), ..workload.clone() };
            match &mut quarter.arrivals {
                OperationArrivals::Closed { outstanding, .. } => *outstanding = (*outstanding / 4).max(1),
                OperationArrivals::Open { rate, .. } => *rate = Iops::new(rate.per_second() / 4.0),
                OperationArrivals::After { .. } | OperationArrivals::Trace { .. } => {}
            }
            quarter
        };
        self.scenario.vms[place].workloads = (0..QUARTERS).map(quarter).collect();
        let stages = (0..QUARTERS).map(|number| {
            let edge = 0.12 * number as f64;
            (place, number, (edge, 1.0 - edge))
        });
        self.stages.extend(stages);
    }

    /// A protected reader that asks for little, and at times its log, which is protected and not judged.
    /// Returns its reads per second where they take no time.
    pub(super) fn reader(&mut self) -> f64 {
        let bytes = self.draw.pick(&[4_096_u32, 8_192, 16_384]);
        let rate = (self.capacity_guess() * self.draw.scaled(0.03, 0.2)).clamp(10.0, 400.0);
        let arrivals = if self.draw.chance(0.6) {
            open(rate)
        } else {
            let mean = Latency::from_secs_f64(4.0 / rate);
            let think = ThinkTiming { mean, distribution: ThinkTime::Exponential };
            OperationArrivals::Closed { outstanding: 4, think }
        };
        let workload = Workload { arrivals, ..Workload::random_reads("reads", 1, bytes) };
        self.vm("reader", 0, workload).protected = true;
        if self.draw.chance(0.3) {
            let step = OperationStep { reads: 0.0, sequential: 0.9, ..OperationStep::random_reads(8_192) };
            let log = Workload { arrivals: open(rate / 3.0), ..closed("log", 1, step) };
            self.vm("reader-log", 0, log).protected = true;
        }
        rate
    }

    pub(super) fn mixed(&mut self) {
        for (name, reads, sequential, sizes) in [
            ("scan", 1.0, 1.0, [65_536_u32, 131_072, 262_144]),
            ("random", 0.7, 0.0, [4_096, 8_192, 16_384]),
            ("batch", 0.5, 0.3, [16_384, 32_768, 131_072]),
        ] {
            for number in 1..=self.draw.whole(1, 2) {
                let bytes = self.draw.pick(&sizes);
                let step = OperationStep { reads, sequential, ..OperationStep::random_reads(bytes) };
                let outstanding = self.draw.scaled_whole(2, 16);
                let shares = self.shares();
                self.vm(&format!("{name}-{number}"), 0, closed(name, outstanding, step)).shares = shares;
            }
        }
    }

    /// The second host lies, is slow because of its large requests, fails, or is cut off.
    pub(super) fn misbehave(&mut self) {
        let variant = self.draw.whole(0, 4);
        if variant == 0 || variant == 4 {
            self.scenario.hosts[1].reported_factor = self.draw.pick(&[0.01, 0.1, 3.0, 10.0, 100.0]);
        }
        match variant {
            1 => {
                let name = self.scenario.hosts[1].name.clone();
                for vm in self.scenario.vms.iter_mut().filter(|vm| vm.host == name) {
                    for step in vm.workloads.iter_mut().flat_map(|workload| &mut workload.steps) {
                        *step = OperationStep { reads: step.reads, ..OperationStep::random_reads(262_144) };
                    }
                }
            }
            2 | 4 => self.outage = Some(HostOutage::Down(1)),
            3 => {
                self.outage = Some(HostOutage::CutOff(1));
                self.scenario.network.loss = self.draw.pick(&[0.1, 0.3, 0.5]);
            }
            _ => {}
        }
    }
}

/// Poisson arrivals at a rate, with a bounded queue at the client.
fn open(rate: f64) -> OperationArrivals {
    OperationArrivals::Open {
        rate: Iops::new(rate.max(2.0).round()),
        spacing: ArrivalSpacing::Poisson,
        limit: 64,
    }
}
