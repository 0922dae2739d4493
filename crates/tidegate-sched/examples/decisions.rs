//! The program that `bench/decision-vs-dmclock.py` times: a number of decisions among a number of clients.
//! `bench/dmclock.cc` does the same with the reference implementation of mClock. Neither reads a clock: the
//! caller takes the processor time of the process.
//!
//!     decisions CLIENTS DECISIONS

#![allow(clippy::print_stdout, reason = "what each weight was served is its result")]

use std::error::Error;
use std::time::Duration;

use tidegate_sched::{
    BeyondLimit, ConsumerLimit, FlowConfig, FlowId, PullAnswer, Sfq, SfqConfig, StorageExtent,
};
use tidegate_units::{Instant, Iops, Shares, Window};

/// Requests queued for each client.
const BACKLOG: u64 = 4;

/// Of time between two decisions: the storage does a million requests per second.
const STEP: Duration = Duration::from_micros(1);

/// Weights are 1 to 7, so that the mean share is 4 of them. What is reserved is half of the mean, and the
/// limit is half as much again: the light live by their reservations, the heavy are at their limits, those
/// between go by weight.
const WEIGHTS: u64 = 7;
const RESERVED: f64 = 0.5;
const LIMIT: f64 = 1.5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (Some(clients), Some(decisions)) = (numbers.next(), numbers.next()) else {
        return Err("decisions CLIENTS DECISIONS".into());
    };
    let (clients, decisions) = (clients?, decisions?);
    let mean = 1.0 / STEP.as_secs_f64() / clients as f64;

    let mut now = Instant::ZERO + Duration::from_secs(1);
    let mut scheduler = Sfq::new(SfqConfig { window: Some(Window::new(1.0)), ..SfqConfig::default() });
    for client in 0..clients {
        let limit = ConsumerLimit {
            iops: Some(Iops::new(LIMIT * mean)),
            bytes_per_s: None,
            // As good as none, which is what mClock has.
            burst: Duration::from_secs_f64(1.0 / mean),
            beyond: BeyondLimit::Wait,
        };
        let config = FlowConfig {
            weight: Shares::try_from((client % WEIGHTS + 1) as u32 * 100)?,
            reservation: Some(Iops::new(RESERVED * mean)),
            limit: Some(limit),
            ..FlowConfig::default()
        };
        let flow = scheduler.add_flow(&config, now);
        for request in 0..BACKLOG {
            enqueue(&mut scheduler, flow, now, client * BACKLOG + request)?;
        }
    }
    let mut served = [0u64; WEIGHTS as usize];
    for _ in 0..decisions {
        now = now + STEP;
        if let PullAnswer::Request { flow, request, .. } = scheduler.pull(now) {
            scheduler.complete(flow, now)?;
            enqueue(&mut scheduler, flow, now, request)?;
            served[(request / BACKLOG % WEIGHTS) as usize] += 1;
        }
    }
    println!("{served:?}");
    Ok(())
}

fn enqueue(scheduler: &mut Sfq<u64>, flow: FlowId, now: Instant, request: u64) -> Result<(), Box<dyn Error>> {
    // Far from each other, so that none is preferred for being near; without bytes, so that each costs one
    // I/O.
    let extent = StorageExtent { offset: request << 30, bytes: 0 };
    scheduler.enqueue(flow, now, request, extent).map_err(|refused| refused.reason.to_string().into())
}
