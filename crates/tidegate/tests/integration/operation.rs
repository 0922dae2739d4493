//! `tidegate set`, `release` and `config diff` on a real gateway, by its Unix socket.

use std::process::Output;

use serde_json::Value;

use crate::service::disk_reader::{DiskReader, OwnAgent};
use crate::service::{LoadClient, Service, text, tidegate};
use tidegate_testing::until;

/// A database beside a backup, on an array of one server that serves 200 requests per second.
const POOL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
journal = { folder = 'journal', limit = '64MiB' }
[api]
listen = ['unix:api.sock']
[pool.array]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
target = '20ms'
export.database = { size = '64MiB', protected = true }
export.backup = { size = '64MiB', limit = { iops = '20 IO/s' } }
";

/// The program, and what it prints: `arguments` are followed by the address of the service.
fn operate(service: &Service, arguments: &[&str]) -> Output {
    let url = format!("unix:{}", service.path("api.sock").display());
    let arguments = [arguments, &["--url", &url]].concat();
    tidegate(&arguments)
}

fn done(service: &Service, arguments: &[&str]) -> String {
    let output = operate(service, arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    text(&output.stdout)
}

fn refused(service: &Service, arguments: &[&str]) -> String {
    let output = operate(service, arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    error
}

fn status(service: &Service) -> Value {
    serde_json::from_str(&done(service, &["status", "--json"])).unwrap()
}

/// The last requests per second of the backup, as the status counts them.
fn backup_iops(service: &Service) -> Option<f64> {
    status(service)["resources"][0]["consumers"][1]["recent"]["iops"].as_f64()
}

#[test]
fn a_released_consumer_is_throttled_by_nothing_until_its_release_ends() {
    let service = Service::start("serve", POOL);
    let backup = LoadClient::start(&service, "backup", &["--depth", "8"]);
    until("the limit", || backup_iops(&service).filter(|iops| (1.0..30.0).contains(iops)));
    let said = done(&service, &["release", "backup", "--for", "10m"]);
    assert!(said.starts_with("released until "), "{said}");
    until("the array's rate", || backup_iops(&service).filter(|iops| *iops > 100.0));
    let known = status(&service);
    assert_eq!(known["resources"][0]["consumers"][1]["released"], true);
    let release = &known["overrides"]["releases"][0];
    assert_eq!((&release["consumer"], &release["resource"]), (&"backup".into(), &"array".into()));
    assert!(release["by"].as_str().unwrap().starts_with("uid "), "{release}");
    let page = service.get("/metrics");
    assert!(page.contains("tidegate_released{pool=\"array\",consumer=\"backup\"} 1"));

    done(&service, &["release", "backup", "--end"]);
    until("the limit again", || backup_iops(&service).filter(|iops| (1.0..30.0).contains(iops)));
    // A release ends by itself, and that is logged.
    done(&service, &["release", "--for", "1s"]);
    service.await_log("the release of all consumers is over");
    assert_eq!(status(&service)["overrides"]["releases"], serde_json::json!([]));
    drop(backup);
    service.await_log("released backup at array for 10m");
}

#[test]
fn settings_change_at_run_time_survive_a_reload_and_are_told_from_the_file() {
    let service = Service::start("serve", POOL);
    let file = service.path("tidegate.toml").to_str().unwrap().to_owned();
    let diff =
        |arguments: &[&str]| operate(&service, &[&["config", "diff", "-c", &file], arguments].concat());
    assert_eq!(diff(&[]).status.code(), Some(0));
    let said = done(&service, &["set", "array", "target=12ms"]);
    assert!(said.starts_with("target is 12.0ms, before "), "{said}");
    let said = done(&service, &["dry-run", "on", "array"]);
    assert_eq!(said, "array: dry run, throttles nothing, until the service restarts\n");
    let said = done(&service, &["set", "backup", "shares=50", "limit=40 IO/s", "bandwidth=4 MB/s", "--json"]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&answer["resource"], &answer["consumer"]), (&"array".into(), &"backup".into()), "{said}");
    assert_eq!(answer["changed"]["limit_bytes_per_second"], 4e6);
    assert_eq!(answer["before"]["limit_bytes_per_second"], Value::Null, "{said}");
    let in_force = &answer["in_force"];
    let settings = ["shares", "limit_iops", "limit_bytes_per_second"].map(|name| in_force[name].as_f64());
    assert_eq!(settings, [Some(50.0), Some(40.0), Some(4e6)], "{said}");
    service.signal("-HUP");
    service.await_log("reloaded ");
    let law = &status(&service)["resources"][0]["law"];
    assert_eq!((&law["target_seconds"], &law["dry_run"]), (&0.012.into(), &true.into()));
    let differs = diff(&["--json"]);
    assert_eq!(differs.status.code(), Some(1));
    let found: Vec<Value> = serde_json::from_slice(&differs.stdout).unwrap();
    let settings: Vec<_> = found.iter().map(|one| one["setting"].as_str().unwrap()).collect();
    assert_eq!(settings, ["dry_run", "target", "bandwidth", "limit", "shares"]);
    assert!(found.iter().all(|one| one["by"].as_str().unwrap().starts_with("uid ")), "{found:?}");

    let said = done(&service, &["dry-run", "file", "array", "--json"]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    let expected = (&"file".into(), &false.into(), &false.into());
    assert_eq!((&answer["switch"], &answer["dry_run"], &answer["released"]), expected, "{said}");
    done(&service, &["release", "array"]);
    let said = done(&service, &["dry-run", "file", "array", "--json"]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&answer["dry_run"], &answer["released"]), (&true.into(), &true.into()), "{said}");
    assert!(done(&service, &["status"]).contains("pool array: released, throttles nothing"));
    done(&service, &["release", "array", "--end"]);
    done(&service, &["set", "array", "target=file"]);
    done(&service, &["set", "backup", "shares=file", "limit=file", "bandwidth=file"]);
    assert_eq!(diff(&[]).status.code(), Some(0));
    let actions = service.log();
    for action in
        ["array: target set to 12.0ms", "array: dry_run set to true", "backup at array: shares set to 50"]
    {
        assert!(actions.contains(action), "{actions}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let service = Service::start("serve", POOL);
    for (arguments, said) in [
        (&["set", "aray", "target=1ms"][..], "did you mean `array`?"),
        (&["set", "array", "shares=1"], "is a resource: it has a `target`"),
        (&["set", "array", "dry_run=on"], "use `tidegate dry-run on|off|file RESOURCE`"),
        (
            &["dry-run", "on", "backup"],
            "`backup` is a consumer, and a dry run is its resource's: name `array`",
        ),
        (&["set", "database", "limit=50 IO/s"], "`database` is protected"),
        (&["set", "backup", "limit=1 IO/s"], "or the law leaves it at least"),
        (&["set", "backup", "bandwidth=64KiB/s"], "the bandwidth 64 KiB/s of `backup` is below"),
        (&["release", "bakcup"], "did you mean `backup`?"),
        (&["release", "--for", "2days"], "`--for 2days`: must be between 1s and 1day"),
    ] {
        let error = refused(&service, arguments);
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    let known = status(&service);
    assert_eq!(known["overrides"]["resources"], serde_json::json!([]));
    // The page of the metrics is for readers.
    for request in ["PATCH /v1/resources/array", "POST /v1/releases", "DELETE /v1/releases"] {
        let (status, body) = service.ask(request, "{\"dry_run\":true}");
        assert!((400..500).contains(&status), "{request}: {status} {body}");
    }
    assert_eq!(status(&service)["resources"][0]["law"]["dry_run"], false);
}

/// With real limits, as root.
#[test]
fn a_release_that_the_kernel_did_not_follow_was_answered_as_if_it_had() {
    let Some(reader) = DiskReader::start_for_own_agent("release") else { return };
    let (device, cgroup) = (reader.device.name(), reader.cgroup.file_name().unwrap());
    let cgroup = cgroup.to_str().unwrap();
    let keep = tempfile::tempdir().unwrap();
    let configuration = format!(
        "throttle = 'cgroup'\n[api]\nlisten = ['unix:api.sock']\n[resource.disk]\ndevice = '{device}'\n\
         law = 'pid'\ntarget = '20us'\ncgroups = ['{cgroup}']\ndry_run = true\n"
    );
    let mut agent = OwnAgent::start(keep.path(), &configuration);
    let url = format!("unix:{}", keep.path().join("api.sock").display());
    let throttled = || {
        let said = tidegate(&["status", "--json", "--url", &url]);
        let status: Value = serde_json::from_slice(&said.stdout).ok()?;
        status["resources"][0]["consumers"][0]["held"].as_bool()
    };
    until("an answer", || {
        agent.expect_alive();
        throttled().filter(|held| !held)
    });
    // The agent touched nothing so far, and starts its throttle now.
    let said = tidegate(&["dry-run", "off", "disk", "--url", &url]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    until("a limit", || {
        agent.expect_alive();
        reader.is_limited().then_some(())
    });
    agent.let_write(&reader.cgroup, false);
    let said = tidegate(&["release", "--url", &url]);
    assert_eq!(said.status.code(), Some(1), "{}", text(&said.stdout));
    let why = text(&said.stderr);
    assert!(why.contains("cannot be changed yet") && why.contains("guardian"), "{why}");
    agent.let_write(&reader.cgroup, true);
    until("a release in the kernel", || {
        let said = tidegate(&["release", "--url", &url]);
        (said.status.code() == Some(0)).then_some(())
    });
    assert_eq!((throttled(), reader.is_limited()), (Some(false), false));
    agent.terminate();
}
