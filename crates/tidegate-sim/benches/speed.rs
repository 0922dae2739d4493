//! Events per second on one core, and how the cost grows from 10 to 10 000 hosts.
//!
//! `cargo bench -p tidegate-sim` prints a table. The last line is the budget: 10 000 hosts for 200 s at 50 000 IO/s in
//! total, within 20 s. As a test it runs for a moment, so that it does not rot.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench measures and prints"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{add_busy_host, on_server, parda};
use tidegate_sim::{Silent, simulate};
use tidegate_units::Latency;

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let (counts, seconds) = if full { (&[10, 100, 1_000, 10_000][..], 200) } else { (&[10, 100][..], 4) };
    println!(
        "{:>7}  {:>10}  {:>9}  {:>8}  {:>12}  {:>9}",
        "hosts", "requests", "steps", "wall s", "events/s", "ns/event"
    );
    for &hosts in counts {
        // One server at 50 000 IO/s, of which each host has at least its smallest window of 1 outstanding.
        let mut scenario = on_server(50_000.0, 1, seconds);
        let set_point = Latency::from_millis(u64::from(hosts) / 25 + 25);
        for host in 0..hosts {
            add_busy_host(
                &mut scenario,
                &format!("h{host:05}"),
                100 + host % 3 * 100,
                64,
                Some(parda(set_point, 1.0)),
            );
        }
        let began = Instant::now();
        let outcome = simulate(&scenario, 1, &mut Silent).unwrap();
        let wall = began.elapsed().as_secs_f64();
        let work = outcome.work;
        let rate = work.events as f64 / wall;
        println!(
            "{hosts:>7}  {:>10}  {:>9}  {wall:>8.2}  {rate:>12.0}  {:>9.0}",
            work.requests,
            work.steps,
            1e9 / rate
        );
    }
}
