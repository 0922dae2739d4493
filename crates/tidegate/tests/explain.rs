//! `tidegate explain`, `journal` and `replay` of what a real gateway recorded.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail like the test")]

mod service;

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use service::{LoadClient, Service, until};

/// A database beside a backup, on an array of one server that serves 200 requests per second.
const POOL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
journal = { folder = 'FOLDER', limit = '64MiB' }
[pool.array]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
target = '20ms'
export.database = { size = '64MiB', protected = true }
export.backup = { size = '64MiB' }
";

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn who_is_throttled_is_explained_as_it_was_and_replayed_bit_for_bit() {
    let keep = tempfile::tempdir().unwrap();
    let journal = keep.path().join("journal").to_str().unwrap().to_owned();
    let service = Service::start("serve", &POOL.replace("FOLDER", &journal));
    let database = LoadClient::start(&service, "database", &["--rate", "30"]);
    let backup = LoadClient::start(&service, "backup", &["--depth", "16"]);
    let held = "tidegate_pool_held_consumers{pool=\"array\"}";
    let window = "tidegate_pool_window_requests{pool=\"array\"}";
    until("a decision that finds the backup waiting", || service.metric(held).filter(|held| *held > 0.0));
    until("a window that throttles", || service.metric(window).filter(|window| *window < 8.0));
    // A journal is read while it is written.
    let info = until("the first block", || {
        let info = tidegate(&["journal", "info", "--journal", &journal, "--json"]);
        (info.status.code() == Some(0)).then(|| text(&info.stdout))
    });
    assert!(info.contains("\"bytes\":"), "{info}");
    // The service explains itself, from the same journal.
    let url = format!("http://{}", service.address());
    let asked = tidegate(&["explain", "backup", "--since", "30min", "--url", &url, "--json"]);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked.stderr));
    let document: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(
        (&document[0]["resource"], &document[0]["consumers"][0]["name"]),
        (&"array".into(), &"backup".into())
    );
    let for_people = tidegate(&["explain", "--url", &url]);
    assert!(text(&for_people.stdout).contains("backup"), "{}", text(&for_people.stderr));
    for (query, status, said) in [
        ("name=backpu", 404, "did you mean `backup`?"),
        ("at=yesterday", 400, "`at`: write 2026-11-26T14:00:00Z"),
        ("since=9", 400, "`since`: `9`: the unit is missing"),
        ("pool=array", 400, "unknown field `pool`"),
        ("at=2001-01-01T00:00:00Z", 404, "nothing is kept of"),
    ] {
        let (code, body) = service.ask(&format!("GET /v1/explain?{query}"), "");
        assert!(code == status && body.contains(said), "{query}: {code} {body}");
    }
    // The last window that was in force, read back from the scheduler.
    let in_force = service.metric(window).unwrap();
    drop((database, backup));
    assert!(service.terminate().0.success());

    let said = tidegate(&["explain", "backup", "--journal", &journal, "--json"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let document: Value = serde_json::from_slice(&said.stdout).unwrap();
    let array = &document[0];
    assert_eq!((&array["resource"], &array["law"]), (&"array".into(), &"auto".into()));
    assert_eq!(array["protects"], serde_json::json!(["database"]));
    assert!((array["signal"]["target_seconds"].as_f64().unwrap() - 0.02).abs() < 1e-9);
    let backup = &array["consumers"][0];
    assert_eq!((&backup["name"], &backup["protected"]), (&"backup".into(), &false.into()));
    let episode = backup["episodes"].as_array().unwrap().last().unwrap();
    assert!(episode["throttled_seconds"].as_f64().unwrap() > 0.0, "{episode}");
    let strongest = episode["strongest"]["window_requests"].as_f64().unwrap();
    assert!(strongest <= in_force + 1e-9, "{strongest} beside {in_force} in force");

    // The export has the commands and what was in force.
    let rows = keep.path().join("rows.csv");
    let exported = tidegate(&["journal", "export", "--journal", &journal, "--out", rows.to_str().unwrap()]);
    assert_eq!(exported.status.code(), Some(0), "{}", text(&exported.stderr));
    let rows = fs::read_to_string(&rows).unwrap();
    let names: Vec<&str> = rows.lines().next().unwrap().split(',').collect();
    let column = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let of_backup: Vec<Vec<&str>> = rows.lines().map(|row| row.split(',').collect()).collect();
    let windows = of_backup.iter().skip(1).filter_map(|row| row[column("window")].parse::<f64>().ok());
    assert!(
        windows.clone().any(|window| (window - in_force).abs() < 1e-9),
        "{in_force} is among the commands"
    );
    let least = windows.fold(f64::INFINITY, f64::min);
    assert!((least - strongest).abs() < 1e-9 || least < strongest, "{least} beside {strongest}");
    assert!(of_backup.iter().skip(1).all(|row| row[column("agrees")] == "1"), "bit for bit");

    let replayed = tidegate(&["replay", "--journal", &journal]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
    let other = tidegate(&["replay", "--journal", &journal, "--law", "window", "--set", "target=5ms"]);
    assert_eq!(other.status.code(), Some(0), "{}", text(&other.stderr));
    assert!(text(&other.stdout).contains("first difference at"), "{}", text(&other.stdout));

    let wrong = tidegate(&["explain", "bakcup", "--journal", &journal]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `backup`?"), "{}", text(&wrong.stderr));
    let wrong = tidegate(&["explain", "--at", "2020-01-01T00:00:00Z", "--journal", &journal]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("nothing is kept of"), "{}", text(&wrong.stderr));
}

#[test]
fn a_journal_that_is_none_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let none = tidegate(&["journal", "info", "--journal", path]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("there is no decision journal"), "{}", text(&none.stderr));
    fs::write(folder.path().join("0000000001-1790000000000.tdgj"), "something else").unwrap();
    let foreign = tidegate(&["replay", "--journal", path, "--at", "2026-09-21T16:00:00Z"]);
    assert_eq!(foreign.status.code(), Some(2));
    assert!(text(&foreign.stderr).contains("byte 0"), "{}", text(&foreign.stderr));
}
