//! A client that hangs up with a queue in front of its bucket: real clients, the real binary.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::service::Service;
use tidegate_testing::until;

/// Ten requests per second. The gain is so small that the rate does not grow while the test lasts.
const POOL: &str = r#"
listen = ["unix:nbd.sock"]
metrics = "127.0.0.1:0"

[pool.disk]
backend = { kind = "emulated", preset = "dnes-309170w" }
law = "integral"
target = "35ms"
integral = { gain = 0.001 }

[pool.disk.export.tenant]
size = "8MiB"
contract = { iops = "10 IO/s", response_time = "1s" }
"#;

#[test]
fn what_a_client_leaves_behind_does_not_hold_up_the_next_one() {
    let service = Service::start("serve", POOL);
    let load = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["load", &service.uri("tenant")]).args(more).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut client = load(&["--connections", "6", "--depth", "100", "--duration", "10min"]).spawn().unwrap();
    let queued = || service.metric("tidegate_queued_requests{pool=\"disk\",consumer=\"tenant\"}").unwrap();
    until("a queue", || (queued() > 500.0).then_some(()));
    client.kill().unwrap();
    client.wait().unwrap();
    let gone = Instant::now();
    until("its end", || (queued() < 1.0).then_some(()));
    // One by one they would have taken a minute.
    assert!(gone.elapsed() < Duration::from_secs(10), "{:?}", gone.elapsed());

    let answered =
        || service.metric("tidegate_requests_total{pool=\"disk\",consumer=\"tenant\",op=\"read\"}").unwrap();
    let before = answered();
    assert!(load(&["--duration", "1s"]).status().unwrap().success());
    assert!(answered() > before, "the next client is served at once");
}
