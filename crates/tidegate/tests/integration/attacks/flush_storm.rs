//! A tenant whose limit is 5 IO/s, and who keeps hundreds of flushes outstanding on several connections.

use std::io::Read;
use std::time::{Duration, Instant};

use tidegate_nbd::transmission::NbdCommand;

use crate::service::Service;
use tidegate_testing::nbd::Raw;
use tidegate_testing::until;

const CONFIGURATION: &str = r#"
listen = ["unix:nbd.sock"]
metrics = "127.0.0.1:0"

[pool.p]
backend = { kind = "file" }
export.tenant = { path = "tenant.raw", limit = { iops = "5 IO/s" } }
export.neighbour = { path = "disk.raw" }
export.database = { path = "database.raw", protected = true }
"#;

const SESSIONS: u64 = 4;
const EACH: u64 = 100;

fn start() -> Service {
    let volumes = [("tenant.raw", 8 << 20), ("database.raw", 8 << 20)];
    Service::start_beside("serve", &[], CONFIGURATION, &volumes)
}

/// Answers that have come on a connection, without waiting for more.
fn answered(client: &mut Raw) -> u64 {
    client.0.set_nonblocking(true).unwrap();
    let mut replies = [0; 16 * EACH as usize];
    let bytes = client.0.read(&mut replies).unwrap_or(0);
    (bytes / 16) as u64
}

#[test]
fn flushes_pay_the_limit_of_their_export_and_are_counted() {
    let service = start();
    let socket = service.path("nbd.sock");
    let began = Instant::now();
    let mut storm: Vec<Raw> = (0..SESSIONS).map(|_| Raw::open(&socket, "tenant")).collect();
    for client in &mut storm {
        (0..EACH).for_each(|cookie| client.send(NbdCommand::Flush, cookie, 0, 0));
    }
    // Others flush as they like meanwhile, whether they are protected or not.
    for export in ["database", "neighbour"] {
        let mut other = Raw::open(&socket, export);
        for _ in 0..200 {
            other.send_write(1, 0, &[1; 4096]);
            assert_eq!(other.answer(), (1, 0));
            assert_eq!(other.ask(NbdCommand::Flush, 0, 0), 0);
        }
    }
    let series =
        |name: &str, more: &str| format!("{name}{{pool=\"p\",consumer=\"tenant\",op=\"flush\"{more}}}");
    let count = series("tidegate_requests_total", "");
    until("some flushes", || (service.metric(&count)? >= 5.0).then_some(()));
    let status: serde_json::Value = serde_json::from_str(&service.get("/v1/status")).unwrap();
    let consumers = status["resources"][0]["consumers"].as_array().unwrap();
    let tenant = consumers.iter().find(|one| one["name"] == "tenant").unwrap();
    assert_eq!(tenant["waits_for"], "limit", "{tenant}");
    let answers: u64 = storm.iter_mut().map(answered).sum();
    // At most one of them is burst.
    let paid = 5.0 * began.elapsed().as_secs_f64() + 1.0;
    assert!(answers as f64 <= paid, "{answers} of {} flushes, and {paid} are paid for", SESSIONS * EACH);
    for name in ["tidegate_response_time_seconds_count", "tidegate_backend_time_seconds_count"] {
        assert!(service.metric(&series(name, "")) >= Some(5.0), "{name}");
    }
    until("flushes per second in the status", || {
        let status: serde_json::Value = serde_json::from_str(&service.get("/v1/status")).unwrap();
        let consumers = status["resources"][0]["consumers"].as_array().unwrap();
        let tenant = consumers.iter().find(|one| one["name"] == "tenant").unwrap();
        (tenant["recent"]["flushes_per_second"].as_f64()? > 0.0).then_some(())
    });
    // A client that leaves takes its flushes with it: others of its export do not wait behind them.
    drop(storm);
    let left = Instant::now();
    let mut modest = Raw::open(&socket, "tenant");
    assert_eq!(modest.ask(NbdCommand::Flush, 0, 0), 0);
    assert!(left.elapsed() < Duration::from_secs(20), "{:?} behind flushes of nobody", left.elapsed());
}
