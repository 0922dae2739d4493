//! `POST /v1/admit` of a running gateway.

use std::process::Command;

use serde_json::{Value, json};

use crate::service::Service;

/// Lee's disk as a pool, and one of which nothing is known.
const POOLS: &str = r#"
listen = ["unix:nbd.sock"]
metrics = "127.0.0.1:0"

[pool.disk]
backend = { kind = "emulated", preset = "dnes-309170w" }
scheduler = "yfq"
export.w1 = { size = "4MiB" }

[pool.small]
backend = { kind = "emulated", exponential = { rate = "100 IO/s", servers = 1, capacity = "1MiB" } }
export.w3 = { size = "64KiB" }

[pool.files]
backend = { kind = "file" }
export.w2 = { path = "disk.raw" }
"#;

/// The same contracts for the command line.
const FILE: &str = r#"
[storage]
preset = "dnes-309170w"
[tenant.w1]
iops = 40
size = "4KiB"
response_time = "35ms"
weight = 200
[tenant.w2]
iops = 20
size = "4KiB"
response_time = "38ms"
"#;

fn question(pool: &str) -> Value {
    json!({ "pool": pool, "tenants": [
        { "name": "w1", "iops": 40.0, "size": 4096, "response_time_s": 0.035, "weight": 200 },
        { "name": "w2", "iops": 20.0, "size": 4096, "response_time_s": 0.038 },
    ] })
}

/// The service with a token, which it has read when it is ready.
fn service() -> (tempfile::TempDir, Service) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-that-is-long-enough").unwrap();
    let admit = format!("admit = {{ token_file = '{}' }}\n", file.display());
    let service = Service::start("serve", &(admit + POOLS));
    (folder, service)
}

fn ask(service: &Service, question: &Value) -> (u16, Value) {
    let token = "Authorization: Bearer a-token-that-is-long-enough\r\n";
    let (status, body) = service.ask_with("POST /v1/admit", token, &question.to_string());
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

#[test]
fn the_answer_is_that_of_the_command_line() {
    let service = service().1;
    for (response_time, text, status) in [(0.035, "35ms", 0), (0.030, "30ms", 1)] {
        let mut question = question("disk");
        question["tenants"][0]["response_time_s"] = response_time.into();
        let file = service.path("c.toml");
        std::fs::write(&file, FILE.replace("35ms", text)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(["admit", "--json", "-c"]).arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        let expected: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(ask(&service, &question), (200, expected));
    }
}

#[test]
fn what_cannot_be_answered_is_said_with_its_status() {
    let service = service().1;
    let changed = |tenant: usize, key: &str, value: Value| {
        let mut question = question("disk");
        question["tenants"][tenant][key] = value;
        question
    };
    let mut large = question("small");
    large["tenants"][0]["size"] = json!(2 << 20);
    let mut uneven = changed(0, "iops", json!(20_000.0));
    uneven["tenants"][1]["iops"] = json!(0.01);
    let few =
        "10 requests of `w2` were measured, too few for a percentile of their response times: ask for more";
    for (question, status, expected) in [
        (
            question("files"),
            409,
            "nothing is known of the storage of pool `files`: it is no emulated one. Measure it with",
        ),
        (question("tape"), 404, "there is no pool `tape`"),
        (json!({ "pool": "disk", "tenants": [] }), 400, "there are no contracts to decide about"),
        (changed(0, "iops", json!(-40.0)), 400, "`w1` asks for 0.0 IO/s"),
        (changed(1, "name", json!("w1")), 400, "two contracts are those of `w1`"),
        (changed(1, "read", json!(1.5)), 400, "`w2`: `read` is the part"),
        (changed(1, "deviation", json!(8192)), 400, "`w2`: `deviation` is no more than `size`"),
        (changed(1, "weight", json!(0)), 400, "`w2`: `weight` is 1 to 1000000"),
        (changed(1, "wait", json!(1)), 400, "this is no question: unknown field `wait`"),
        (json!("?"), 400, "this is no question"),
        (changed(0, "response_time_s", json!(0.005)), 422, "`w1` asks for 5.00ms, and its requests take 11."),
        (changed(0, "iops", json!(70.0)), 422, "together they ask for 90.0 IO/s"),
        (changed(1, "iops", json!(0.02)), 422, few),
        (large, 422, "workload `w1-1` of `w1`: "),
        (uneven, 422, "workload `w2-2` of `w1`: the part that is drawn"),
    ] {
        let (found, body) = ask(&service, &question);
        let said = body["error"].as_str().unwrap_or_else(|| panic!("{body}"));
        assert!(found == status && said.starts_with(expected), "{found}: {said}");
    }
    let (status, _) = service.ask("POST /v1/admit", &"x".repeat(65 * 1024));
    assert_eq!(status, 413, "a question is bounded");
    let (status, _) = service.ask("GET /v1/admit", "");
    assert_eq!(status, 405);
}
