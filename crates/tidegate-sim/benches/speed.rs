//! Events per second on one core, and how the cost grows from 10 to 10 000 hosts.
//!
//! `cargo bench -p tidegate-sim` prints a table (`-- 300` for other numbers of hosts). Its last line is the
//! budget: 10 000 hosts for 200 s at 50 000 IO/s in total, within 20 s. As a test it runs for a moment, so
//! that it does not rot.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench measures and prints"
)]

#[path = "../tests/integration/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{add_busy_host, on_server, parda};
use rustix::time::{ClockId, clock_gettime};
use tidegate_sim::{SilentRecorder, simulate};
use tidegate_units::Latency;

/// Requests that each virtual machine keeps outstanding (PARDA §5.2).
const OUTSTANDING: u32 = 32;

/// Seconds that this process had a processor: what the budget is about where others use the machine too.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let given: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let (counts, seconds) = match (full, &given[..]) {
        (true, []) => (&[10, 100, 1_000, 10_000][..], 200),
        (true, given) => (given, 200),
        (false, _) => (&[10, 100][..], 4),
    };
    println!(
        "{:>7}  {:>10}  {:>9}  {:>8}  {:>8}  {:>12}  {:>9}",
        "hosts", "requests", "steps", "wall s", "CPU s", "events/CPU s", "ns/event"
    );
    for &hosts in counts {
        // One server at 50 000 IO/s. The set point leaves room for the smallest window, 1, on every host.
        let mut scenario = on_server(50_000.0, 1, seconds);
        let set_point = Latency::from_millis(u64::from(hosts) / 25 + 25);
        for host in 0..hosts {
            let (name, shares) = (format!("h{host:05}"), 100 + host % 3 * 100);
            add_busy_host(&mut scenario, &name, shares, OUTSTANDING, Some(parda(set_point, 1.0)));
        }
        let (began, processor) = (Instant::now(), processor_seconds());
        let outcome = simulate(&scenario, 1, &mut SilentRecorder).unwrap();
        let (wall, processor) = (began.elapsed().as_secs_f64(), processor_seconds() - processor);
        let work = outcome.work;
        let rate = work.events as f64 / processor;
        println!(
            "{hosts:>7}  {:>10}  {:>9}  {wall:>8.2}  {processor:>8.2}  {rate:>12.0}  {:>9.0}",
            work.requests,
            work.steps,
            1e9 / rate
        );
    }
}
