//! `tidegate status` of real services.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::service::disk_reader::DiskReader;
use crate::service::{LoadClient, Service};
use tidegate_testing::until;

/// One disk, of which the first 20 requests per second are shared and the rest is the business's; and one
/// without a law.
const BANDS: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'emulated', preset = 'dnes-309170w' }
law = 'self-tuning'
target = '40ms'
bands = [
    { up_to = '20 IO/s', ratios = { business = 0.5, mining = 0.5 } },
    { up_to = '2kIO/s', ratios = { business = 1.0 } },
]
export.business = { size = '2GiB', goal = '30ms' }
export.mining = { size = '2GiB' }
[pool.plain]
backend = { kind = 'emulated', preset = 'dnes-309170w' }
export.other = { size = '2GiB' }
";

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap()
}

/// What it prints, which must succeed.
fn said(service: &Service, options: &[&str]) -> String {
    let url = format!("http://{}", service.address());
    let output = tidegate(&[&["status", "--url", &url], options].concat());
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    out
}

fn document(service: &Service) -> Value {
    serde_json::from_str(&said(service, &["--json"])).unwrap()
}

#[test]
fn a_watched_status_outlives_the_service_and_ends_with_its_reader() {
    let service = Service::start("serve", BANDS);
    let url = format!("http://{}", service.address());
    let mut watching = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["status", "--url", &url, "--watch", "0.1", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut documents = BufReader::new(watching.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let document: Value = serde_json::from_str(&documents.next().unwrap().unwrap()).unwrap();
        assert_eq!(document["resources"][0]["name"], "p", "{document}");
    }
    drop(service);
    let mut complaints = BufReader::new(watching.stderr.take().unwrap()).lines();
    let complaint = complaints.next().unwrap().unwrap();
    assert!(complaint.contains("tidegate: ") && complaint.contains("127.0.0.1"), "{complaint}");
    assert!(watching.try_wait().unwrap().is_none(), "it asks again");
    drop(complaints);
    let ended = until("the end without a reader", || watching.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
}

#[test]
fn it_is_said_in_which_band_a_pool_operates_and_what_each_export_gets() {
    let service = Service::start("serve", BANDS);
    let quiet = until("the first decision", || {
        Some(said(&service, &[])).filter(|text| text.contains("throttles nothing"))
    });
    assert!(quiet.contains("pool p: throttles nothing; response times unknown: no requests\n"), "{quiet}");
    assert!(quiet.contains("pool plain: no law, shares and limits only\n"), "{quiet}");
    let clients =
        ["business", "mining"].map(|export| LoadClient::start(&service, export, &["--depth", "16"]));
    let pool = until("the second band, held, and seconds of both", || {
        let pool = document(&service)["resources"][0].clone();
        let in_band = pool["decided"]["operating_point"]["band"]["in"]["band"] == 1;
        let known = |one: &Value| one["recent"]["iops"].as_f64() > Some(0.0) && one["held"] == true;
        let all = pool["consumers"].as_array().unwrap().iter().all(known);
        (in_band && all).then_some(pool)
    });
    assert_eq!(
        (&pool["name"], &pool["law"]["kind"], &pool["law"]["dry_run"]),
        (&"p".into(), &"self_tuning".into(), &false.into())
    );
    assert_eq!((&pool["decided"]["held"], &pool["decided"]["throttled"]), (&2.into(), &2.into()));
    let number = |value: &Value| value.as_f64().unwrap();
    assert!((0.0..10.0).contains(&number(&pool["decided"]["age_seconds"])), "{pool}");
    let [business, mining] = [0, 1].map(|at| &pool["consumers"][at]);
    assert_eq!((&business["goal_seconds"], &mining["goal_seconds"]), (&0.03.into(), &Value::Null));
    assert_eq!(
        (number(&business["set_point_seconds"]), number(&mining["set_point_seconds"])),
        (0.024, 0.032)
    );
    // All of the first band is had, half of it by each, and everything beyond it is the business's.
    let point = number(&pool["decided"]["operating_point"]["iops"]);
    assert!((number(&mining["entitled_iops"]) - 10.0).abs() < 1e-6, "{mining}");
    assert!((number(&business["entitled_iops"]) - (point - 10.0)).abs() < 1e-6, "{business} of {point}");
    // The same numbers as in the metrics, where nothing was decided in between.
    until("a moment without a decision in between", || {
        let rate = || service.metric("tidegate_rate_requests_per_second{pool=\"p\",consumer=\"business\"}");
        let (before, status, after) = (rate()?, document(&service), rate()?);
        let told = status["resources"][0]["consumers"][0]["rate_iops"].as_f64()?;
        (before.to_bits() == after.to_bits())
            .then(|| assert!((told - before).abs() < 1e-6, "{told} and {before}"))
    });

    let text = until("the sentence", || {
        Some(said(&service, &[])).filter(|text| text.contains("pool p: operating in band 1 at "))
    });
    for part in [
        " of 2 throttled\n",
        "law self-tuning, target 40.0ms, decides every 1.00s\n",
        "\nconsumer  ",
        "entitled",
        "\nbusiness  30.0ms",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    drop(clients);
    until("silence", || said(&service, &[]).contains("no requests").then_some(()));
    let address = service.address();
    assert!(service.terminate().0.success());
    let output = tidegate(&["status", "--url", &format!("http://{address}")]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{error}");
    assert!(error.starts_with(&format!("tidegate: no service answers at http://{address}: ")), "{error}");
    assert!(error.contains("is `tidegate serve` or `tidegate agent` running"), "{error}");
}

/// A fast volume with a small depth, and a target that it keeps.
const DEPTH: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.fast]
backend = { kind = 'emulated', exponential = { rate = '2kIO/s', servers = 4, capacity = '4GiB' } }
depth = 4
target = '1s'
export.one = { size = '1GiB' }
export.two = { size = '1GiB' }
export.three = { size = '1GiB', limit = { iops = '50 IO/s' } }
";

/// The state of each export, once this holds for some moment.
fn states(service: &Service, what: &str, holds: impl Fn(&str, &str) -> bool) {
    until(what, || {
        let pool = document(service)["resources"][0].clone();
        let state = |name: &str| {
            let one = pool["consumers"].as_array()?.iter().find(|one| one["name"] == name)?;
            assert_eq!(one["held"], false, "the law throttles nothing: {pool}");
            Some(one["waits_for"].as_str().unwrap_or("nothing").to_owned())
        };
        (holds(&state("one")?, &state("three")?)).then_some(())
    });
}

/// A client of the pool's whole depth was said to be throttled, at a thousandth of the target.
#[test]
fn a_client_that_fills_the_depth_or_is_at_its_limit_is_not_said_to_be_throttled() {
    let service = Service::start("serve", DEPTH);
    let one = LoadClient::start(&service, "one", &["--depth", "16"]);
    states(&service, "the depth", |one, _| one == "depth");
    let text = until("the depth in words", || {
        let text = said(&service, &[]);
        let has_decided = text.contains("pool fast: throttles nothing") && text.contains("100/100/100 %");
        Some(text).filter(|text| has_decided && text.contains("at the pool's depth"))
    });
    assert!(text.contains("kept 1m/1h/1d"), "a promise that is kept: {text}");
    let two = LoadClient::start(&service, "two", &["--depth", "16"]);
    states(&service, "a share", |one, _| one == "share");
    drop((one, two));
    let _three = LoadClient::start(&service, "three", &["--depth", "16"]);
    states(&service, "the limit", |_, three| three == "limit");
    let waits = |reason| {
        service.metric(&format!("tidegate_waiting{{pool=\"fast\",consumer=\"three\",reason=\"{reason}\"}}"))
    };
    until("the metric", || waits("limit").filter(|waits| *waits > 0.0));
    assert_eq!(service.metric("tidegate_held{pool=\"fast\",consumer=\"three\"}"), Some(0.0));
    let (_, log) = service.terminate();
    assert!(log.contains("throttled") || !log.contains("all throttled"), "{log}");
    assert!(!log.contains("1 of 3 throttled"), "{log}");
}

#[test]
fn a_dry_run_is_said_to_hold_nobody() {
    let service =
        Service::start("serve", &BANDS.replace("target = '40ms'", "target = '40ms'\ndry_run = true"));
    let _client = LoadClient::start(&service, "business", &["--depth", "16"]);
    let text = until("what would be", || {
        Some(said(&service, &[])).filter(|text| text.contains(" would be throttled"))
    });
    assert!(text.contains("pool p: dry run, throttles nothing; would be operating in band 1 at "), "{text}");
    let held = &document(&service)["resources"][0]["consumers"][0]["held"];
    assert_eq!(held, &false);
}

#[test]
fn a_removed_export_in_use_looked_like_any_other() {
    let service = Service::start("serve", BANDS);
    let client = LoadClient::start(&service, "other", &["--depth", "16"]);
    let other = || document(&service)["resources"][1]["consumers"][0].clone();
    until("requests", || other()["recent"]["iops"].as_f64().filter(|iops| *iops > 0.0));
    assert_eq!(other()["removed"], false);
    service.configure(&BANDS.replace("export.other", "export.another"));
    let removed = "pool plain: export other is removed, and 1 session uses it until they end";
    service.await_log(removed);
    let consumers = document(&service)["resources"][1]["consumers"].clone();
    let marks: Vec<_> =
        consumers.as_array().unwrap().iter().map(|one| (&one["name"], &one["removed"])).collect();
    assert!(marks.contains(&(&"other".into(), &true.into())), "{consumers:#}");
    assert!(marks.contains(&(&"another".into(), &false.into())), "{consumers:#}");
    let text = said(&service, &[]);
    let line = |name: &str| text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
    assert!(line("other").ends_with("REMOVED, still in use"), "{text}");
    assert!(line("another").ends_with(" -"), "{text}");
    // A reload says it again, and nothing else does.
    assert_eq!(service.log().matches(removed).count(), 1);
    service.signal("-HUP");
    until("another reload", || (service.log().matches(removed).count() == 2).then_some(()));
    drop(client);
    until("its end", || {
        let consumers = document(&service)["resources"][1]["consumers"].clone();
        (consumers.as_array().unwrap().len() == 1).then_some(())
    });
}

#[test]
fn an_exports_bytes_were_not_in_the_status() {
    let service = Service::start("serve", BANDS);
    let client = LoadClient::start(&service, "other", &["--depth", "16"]);
    until("bytes of an export, and of all", || {
        let plain = document(&service)["resources"][1].clone();
        let of_4k = |recent: &Value| {
            let (iops, read) = (recent["iops"].as_f64()?, recent["read_bytes_per_second"].as_f64()?);
            (iops > 0.0 && (read - 4096.0 * iops).abs() < 1.0).then_some(())
        };
        let one = &plain["consumers"][0]["recent"];
        of_4k(one).and(of_4k(&plain["recent"]))?;
        assert_eq!(one["written_bytes_per_second"], 0.0, "{one:#}");
        Some(())
    });
    let text = said(&service, &[]);
    assert!(text.contains("B/s read, 0 B/s written\nmean latency: storage "), "{text}");
    drop(client);
}

/// On a dry run, so that nothing is limited; as root, because of the cgroup.
#[test]
fn an_agents_consumers_had_no_throughput() {
    let Some(reader) = DiskReader::start("status") else { return };
    let (device, cgroup) = (reader.device.name(), reader.cgroup.file_name().unwrap());
    let cgroup = cgroup.to_str().unwrap();
    let agent = Service::start(
        "agent",
        &format!(
            "metrics = '127.0.0.1:0'\nthrottle = 'cgroup'\n[resource.disk]\ndevice = '{device}'\n\
             law = 'pid'\ntarget = '15ms'\ndry_run = true\ncgroups = ['{cgroup}']\n"
        ),
    );
    let recent = until("the cgroup's reads", || {
        let one = document(&agent)["resources"][0]["consumers"][0].clone();
        (one["recent"]["iops"].as_f64()? > 0.0).then_some(one["recent"].clone())
    });
    let number = |key: &str| recent[key].as_f64().unwrap();
    assert!((number("read_bytes_per_second") / number("iops") / 65_536.0 - 1.0).abs() < 0.5, "{recent:#}");
    assert_eq!(recent["written_bytes_per_second"], 0.0, "{recent:#}");
    assert_eq!(recent["response_time_seconds"], Value::Null, "the kernel does not say it of a cgroup");
    let text = said(&agent, &[]);
    // Of the whole device the kernel says it: an agent did not tell whether it kept what it promises.
    assert!(text.contains("\nreads within 15.0ms: kept 1m/1h/1d "), "{text}");
    until("a judged second", || document(&agent)["resources"][0]["promise"]["hour"].as_f64());
    let kept = "tidegate_resource_promise_kept_ratios{resource=\"disk\",over=\"day\"}";
    assert!(agent.metric(kept).is_some_and(|part| (0.0..=1.0).contains(&part)), "{kept}");
    let line = text.lines().find(|line| line.starts_with(cgroup)).unwrap();
    assert!(line.contains("iB/s") && line.contains(" 0 B/s"), "{text}");
}

const DRY: &str = "
metrics = '127.0.0.1:0'
[resource.gone]
device = 'no-such-device'
target = '15ms'
dry_run = true
";

#[test]
fn of_storage_that_is_not_here_an_agent_knows_nothing() {
    let agent = Service::start("agent", DRY);
    let text = said(&agent, &[]);
    assert!(text.starts_with("tidegate agent "), "{text}");
    assert!(text.contains("resource gone: unknown: its storage is not here\n"), "{text}");
    let status = document(&agent);
    assert_eq!(
        (&status["version"], &status["service"], &status["sees"]),
        (&1.into(), &"agent".into(), &true.into())
    );
    let gone = &status["resources"][0];
    assert_eq!(
        (&gone["present"], &gone["law"]["dry_run"], &gone["consumers"]),
        (&false.into(), &true.into(), &serde_json::json!([]))
    );
}

#[test]
fn where_nothing_can_be_asked_it_is_said_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    let configured = |text: &str| {
        fs::write(&path, text).unwrap();
        let output = tidegate(&["status", "-c", path.to_str().unwrap()]);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for (text, status, part) in [
        ("listen = ['unix:s']\n", 1, "no service answers at unix:/"),
        ("metrics = '127.0.0.1:0'\n", 1, "no service answers at unix:/"),
        ("listen = '127.0.0.1:1'\n[node.a]\n", 1, "this is a broker's configuration"),
        ("metrics = 'here'\n", 2, "t.toml:1:11: `metrics`: `here` is not an address and a port"),
        ("metrics = [\n", 2, "t.toml:"),
        // Whatever else is wrong with a file that is being edited.
        ("metrics = '127.0.0.1:1'\nlitsen = 5\n[pool.p]\n", 1, "no service answers at unix:/"),
    ] {
        let (code, error) = configured(text);
        assert!(code == status && error.contains(part), "{text}: {code}, {error}");
    }
    for wrong in
        [&["--url", "127.0.0.1:9809"][..], &["--url", "http://a:1", "-c", "x"], &["-c", "/no/such/file"]]
    {
        let output = tidegate(&[&["status"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

/// A gateway whose API has a socket beside the address of the metrics.
const API: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
api = { listen = ['unix:api.sock'] }
[pool.p]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
target = '20ms'
export.database = { size = '64MiB', protected = true }
export.backup = { size = '64MiB' }
";

fn description() -> Value {
    serde_json::from_str(include_str!("../../../../docs/service.openapi.json")).unwrap()
}

/// Checks that a document has the keys of its description, and no others.
fn conforms(schema: &Value, document: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let schemas = &description()["components"]["schemas"];
        return conforms(&schemas[name.rsplit('/').next().unwrap()], document, place);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let kind = |choice: &&Value| match document {
            Value::Null => choice["type"] == "null",
            _ => {
                let state = &choice["properties"]["state"]["const"];
                choice["type"] != "null" && (state.is_null() || *state == document["state"])
            }
        };
        let choice = choices.iter().find(kind).unwrap_or_else(|| panic!("{place}: {document}"));
        return conforms(choice, document, place);
    }
    match document {
        Value::Object(document) if schema.get("properties").is_some() => {
            let properties = schema["properties"].as_object().unwrap();
            for (key, value) in document {
                let described =
                    properties.get(key).unwrap_or_else(|| panic!("{place}.{key} is not described"));
                conforms(described, value, &format!("{place}.{key}"));
            }
            for key in schema["required"].as_array().unwrap() {
                assert!(document.contains_key(key.as_str().unwrap()), "{place}: {key} is missing");
            }
        }
        Value::Array(items) => {
            for item in items {
                conforms(&schema["items"], item, place);
            }
        }
        scalar => {
            let kind = match scalar {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                _ => "object",
            };
            let allowed = match &schema["type"] {
                Value::Array(types) => types.clone(),
                one => vec![one.clone()],
            };
            let fits = |name: &Value| *name == kind || (*name == "integer" && kind == "number");
            assert!(allowed.iter().any(fits), "{place}: {scalar} is no {allowed:?}");
            if let (Some(words), Some(text)) = (schema["enum"].as_array(), scalar.as_str()) {
                assert!(words.iter().any(|word| word == text), "{place}: {text}");
            }
        }
    }
}

#[test]
fn the_description_of_the_api_has_the_pages_and_the_keys_that_there_are() {
    let service = Service::start("serve", API);
    assert_eq!(serde_json::from_str::<Value>(&service.get("/v1/openapi.json")).unwrap(), description());
    let ask = |method: &str, page: &str| {
        let mut stream = UnixStream::connect(service.path("api.sock")).unwrap();
        write!(stream, "{} {page} HTTP/1.1\r\nHost: localhost\r\n\r\n", method.to_uppercase()).unwrap();
        let mut line = String::new();
        // The rest may never end.
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    };
    for (page, operations) in description()["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "patch", "delete"] {
            // Through the socket, the service's own user is an operator.
            let is_there = ask(method, page) != "405";
            assert_eq!(is_there, operations.get(method).is_some(), "{method} {page}");
        }
    }
    assert_eq!(ask("get", "/v1/nothing"), "404");
    let clients = ["database", "backup"].map(|export| LoadClient::start(&service, export, &["--depth", "4"]));
    let status = until("a load and a decision", || {
        let status = document(&service);
        let pool = &status["resources"][0];
        (pool["recent"].is_object() && pool["decided"].is_object()).then_some(status)
    });
    conforms(&description()["components"]["schemas"]["Status"], &status, "Status");
    let settings = serde_json::from_str(&service.get("/v1/settings")).unwrap();
    conforms(&description()["components"]["schemas"]["Settings"], &settings, "Settings");
    drop(clients);
}

#[test]
fn the_socket_of_a_configuration_is_asked_first() {
    let service = Service::start("serve", API);
    let config = service.path("tidegate.toml");
    let output = tidegate(&["status", "-c", config.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!(" at unix:{}\n", service.path("api.sock").display())), "{text}");
    let url = format!("unix:{}", service.path("api.sock").display());
    let named = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["status", "--json"])
        .env("TIDEGATE_URL", &url)
        .output()
        .unwrap();
    assert_eq!(named.status.code(), Some(0), "{}", String::from_utf8_lossy(&named.stderr));
}

/// A stream of events, as lines.
fn events(service: &Service) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(service.path("api.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    write!(stream, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    BufReader::new(stream)
}

/// The data of the next event of a kind.
fn next_event(lines: &mut impl BufRead, kind: &str) -> Value {
    let wanted = format!("event: {kind}\n");
    let mut line = String::new();
    while line != wanted {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
    line.clear();
    lines.read_line(&mut line).unwrap();
    serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap()
}

#[test]
fn events_have_the_status_each_second_and_decisions_as_in_the_log() {
    let service = Service::start("serve", API);
    let schemas = description()["components"]["schemas"].clone();
    let mut lines = events(&service);
    let clients =
        ["database", "backup"].map(|export| LoadClient::start(&service, export, &["--depth", "16"]));
    let decision = next_event(&mut lines, "decision");
    conforms(&schemas["DecisionEvent"], &decision, "DecisionEvent");
    assert_eq!(decision["resource"], "p");
    service.await_log(decision["said"].as_str().unwrap());
    // Longer than an answer that is not taken may last, and than the time between two requests.
    for _ in 0..17 {
        conforms(&schemas["Status"], &next_event(&mut lines, "status"), "Status");
    }
    drop(clients);
}

#[test]
fn a_subscriber_that_takes_nothing_is_cut_off() {
    // Exports whose status fills the buffers of a socket in a few seconds.
    let exports: String = (0..800).map(|at| format!("export.e{at} = {{ size = '64KiB' }}\n")).collect();
    let service = Service::start("serve", &format!("{API}{exports}"));
    let _stuck = events(&service);
    let (mut taking, taken) = (events(&service), Arc::new(AtomicUsize::new(0)));
    let reader = thread::spawn({
        let taken = Arc::clone(&taken);
        move || {
            // Until the service is gone.
            let mut line = String::new();
            while taking.read_line(&mut line).is_ok_and(|length| length > 0) {
                taken.fetch_add(1, Ordering::Relaxed);
                line.clear();
            }
        }
    });
    until("events of the one that takes them", || (taken.load(Ordering::Relaxed) > 0).then_some(()));
    let open_files = || fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().count();
    let both = open_files();
    until("the end of the stream that is not taken", || (open_files() < both).then_some(()));
    let slow = "tidegate_http_refused_connections_total{reason=\"slow\"}";
    assert_eq!(service.metric(slow), Some(1.0));
    let before = taken.load(Ordering::Relaxed);
    until("more events of the other one", || (taken.load(Ordering::Relaxed) > before).then_some(()));
    drop(service);
    reader.join().unwrap();
}
