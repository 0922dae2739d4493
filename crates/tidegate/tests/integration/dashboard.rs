//! The dashboard's page, and the pages that it asks, of the real binary.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::service::{LoadClient, Service};
use tidegate_testing::until;

const READERS: &str = "the-token-of-the-readers";
const OPERATORS: &str = "the-token-of-the-operators";

fn gateway(folder: &Path) -> Service {
    for (name, token) in [("readers", READERS), ("operators", OPERATORS)] {
        fs::write(folder.join(name), token).unwrap();
    }
    let configuration = "
listen = ['unix:nbd.sock']
journal = { folder = 'FOLDER/journal', limit = '64MiB' }
api = { listen = ['127.0.0.1:0'], readers = 'FOLDER/readers', operators = 'FOLDER/operators' }
[pool.array]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
target = '20ms'
export.database = { size = '64MiB', protected = true }
export.backup = { size = '64MiB' }
";
    Service::start("serve", &configuration.replace("FOLDER", folder.to_str().unwrap()))
}

/// The address of the API, which the log tells.
fn address(service: &Service) -> String {
    let log = service.log();
    let told = log.lines().find_map(|line| Some(line.split_once(" API at ")?.1.to_owned()));
    told.unwrap_or_else(|| panic!("{log}"))
}

/// The status, the header and the body of an answer.
fn ask(address: &str, request: &str, headers: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, head.to_owned(), body.to_owned())
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut values = lines.filter(|(key, _)| *key == name).map(|(_, value)| value);
    values.next().unwrap_or_else(|| panic!("no {name} in {head}"))
}

#[test]
fn the_page_needs_no_token_and_everything_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let service = gateway(folder.path());
    let address = address(&service);
    let (status, head, page) = ask(&address, "GET /", "");
    assert_eq!(status, 200, "{head}");
    assert!(page.starts_with("<!doctype html>") && page.len() < 200_000, "{} bytes", page.len());
    assert_eq!(header(&head, "content-type"), "text/html; charset=utf-8");
    let policy = header(&head, "content-security-policy");
    for part in ["default-src 'none'", "script-src 'sha256-", "connect-src 'self'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part) && !policy.contains("unsafe"), "{policy}");
    }
    let known = format!("If-None-Match: W/\"x\", {}\r\n", header(&head, "etag"));
    assert_eq!(ask(&address, "GET /", &known).0, 304);
    assert_eq!(ask(&address, "GET /", "If-None-Match: \"x\"\r\n").0, 200);
    // A wrong token does not keep from the page that asks for the right one.
    assert_eq!(ask(&address, "GET /", "Authorization: Bearer nothing\r\n").0, 200);
    for request in [
        "POST /",
        "GET //",
        "GET /index.html",
        "GET /v1/status",
        "GET /v1/events",
        "GET /v1/caller",
        "GET /metrics",
    ] {
        assert_eq!(ask(&address, request, "").0, 401, "{request}");
    }
    assert!(service.terminate().0.success());
}

#[test]
fn a_caller_learns_what_it_may_do() {
    let folder = tempfile::tempdir().unwrap();
    let service = gateway(folder.path());
    let address = address(&service);
    for (token, role, name) in
        [(READERS, "reader", "readers' token"), (OPERATORS, "operator", "operators' token")]
    {
        let (status, _, body) =
            ask(&address, "GET /v1/caller", &format!("Authorization: Bearer {token}\r\n"));
        assert_eq!(status, 200, "{body}");
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), json!({ "role": role, "name": name }));
    }
    assert!(service.terminate().0.success());
}

#[test]
fn the_history_of_a_resource_is_that_of_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let service = gateway(folder.path());
    let address = address(&service);
    let token = format!("Authorization: Bearer {READERS}\r\n");
    let get = |query: &str| {
        let (status, _, body) = ask(&address, &format!("GET /v1/history?{query}"), &token);
        (status, body)
    };
    let clients = [("database", "4"), ("backup", "16")]
        .map(|(export, depth)| LoadClient::start(&service, export, &["--depth", depth]));
    let history = until("a decision that throttled", || {
        let (status, body) = get("resource=array&points=60");
        let history = (status == 200).then(|| serde_json::from_str::<Value>(&body).unwrap())?;
        let is_throttled =
            |point: &Value| point["held"].as_u64() > Some(0) && point["window_requests"].is_f64();
        history["points"].as_array()?.iter().any(is_throttled).then_some(history)
    });
    assert_eq!((&history["resource"], &history["step_seconds"]), (&json!("array"), &json!(60.0)));
    let points = history["points"].as_array().unwrap();
    assert!((1..=60).contains(&points.len()), "minutes before the start are left out: {history}");
    let last = points.last().unwrap();
    let figure = |key: &str| last[key].as_f64().unwrap_or_else(|| panic!("{key} of {last}"));
    assert!(
        figure("worst_latency_seconds") >= figure("latency_seconds") / 2.0 && figure("iops") > 0.0,
        "{last}"
    );
    assert!((figure("target_seconds") - 0.02).abs() < 1e-9, "{last}");
    let (_, body) = get("resource=array&points=60&consumers=5");
    let history: Value = serde_json::from_str(&body).unwrap();
    let consumers = history["consumers"].as_array().unwrap();
    let named = |name: &str| consumers.iter().find(|one| one["name"] == name).unwrap_or(&Value::Null);
    let (backup, database) = (named("backup"), named("database"));
    assert_eq!((consumers.len(), &backup["protected"]), (2, &json!(false)), "{history}");
    assert_eq!(database["protected"], true, "{history}");
    let points = history["points"].as_array().unwrap().len();
    for (consumer, column) in
        consumers.iter().flat_map(|one| ["iops", "latency_seconds", "throttled"].map(|column| (one, column)))
    {
        let values = consumer[column].as_array().unwrap();
        assert_eq!(values.len(), points, "{column} of {consumer}");
        assert!(values.iter().any(Value::is_f64), "{column} of {consumer}");
    }
    assert!(backup["throttled"].as_array().unwrap().iter().any(|part| part.as_f64() > Some(0.0)));
    let decisions = history["decisions"].as_array().unwrap();
    assert!(decisions.iter().any(|one| one["said"].as_str().unwrap().contains("throttled")), "{history}");
    let (_, body) = get("resource=array&points=1&consumer=database");
    let history: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&history["consumers"][0]["name"], &history["consumers_left_out"]),
        (&json!("database"), &json!(1))
    );
    for (query, status, said) in [
        ("", 400, "missing field `resource`; write ?resource=NAME"),
        ("resource=array&points=501", 400, "`points`: a history has 1 to 500 points"),
        ("resource=array&points=0", 400, "`points`"),
        ("resource=array&consumers=51", 400, "`consumers`: a history tells of at most 50 consumers"),
        ("resource=array&from=yesterday", 400, "`from`: write 2026-11-26T14:00:00Z"),
        ("resource=array&from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", 400, "ends before it begins"),
        ("resource=array&to=2001-01-01T00:00:00Z", 404, "nothing is kept of"),
        ("resource=other", 404, "`other`"),
        ("resource=array&pool=array", 400, "unknown field `pool`"),
    ] {
        let (code, body) = get(query);
        assert!(code == status && body.contains(said), "{query}: {code} {body}");
    }
    drop(clients);
    assert!(service.terminate().0.success());
}
