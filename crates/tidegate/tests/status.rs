//! `tidegate status` of real services.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail like the test")]

mod service;

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use service::{Service, until};

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

/// A client that always has requests outstanding; ended when dropped.
struct Client(Child);

impl Client {
    fn start(service: &Service, export: &str) -> Self {
        let load = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["load", &service.uri(export), "--duration", "1h", "--depth", "16", "--json"])
            .stdout(Stdio::null())
            .spawn();
        Self(load.unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself, which is what went wrong then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_is_said_in_which_band_a_pool_operates_and_what_each_export_gets() {
    let service = Service::start("serve", BANDS);
    let quiet = until("the first decision", || {
        Some(said(&service, &[])).filter(|text| text.contains("throttles nothing"))
    });
    assert!(quiet.contains("pool p: throttles nothing; response times unknown: no requests\n"), "{quiet}");
    assert!(quiet.contains("pool plain: no law, shares and limits only\n"), "{quiet}");
    let clients = ["business", "mining"].map(|export| Client::start(&service, export));
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
        "\nbusiness  30.0ms  ",
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
    let one = Client::start(&service, "one");
    states(&service, "the depth", |one, _| one == "depth");
    let text = until("the depth in words", || {
        Some(said(&service, &[])).filter(|text| text.contains("at the pool's depth"))
    });
    assert!(text.contains("pool fast: throttles nothing"), "{text}");
    assert!(text.contains("kept 1min"), "a promise that is kept: {text}");
    let two = Client::start(&service, "two");
    states(&service, "a share", |one, _| one == "share");
    drop((one, two));
    let _three = Client::start(&service, "three");
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
    let _client = Client::start(&service, "business");
    let text = until("what would be", || {
        Some(said(&service, &[])).filter(|text| text.contains(" would be throttled"))
    });
    assert!(text.contains("pool p: dry run, throttles nothing; would be operating in band 1 at "), "{text}");
    let held = &document(&service)["resources"][0]["consumers"][0]["held"];
    assert_eq!(held, &false);
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
        (
            "listen = ['unix:s']\n",
            1,
            "there is no `metrics`, so that the service answers nowhere: add `metrics = ",
        ),
        ("metrics = '127.0.0.1:0'\n", 1, "`metrics` has port 0"),
        ("listen = '127.0.0.1:1'\n[node.a]\n", 1, "this is a broker's configuration"),
        ("metrics = 'here'\n", 2, "t.toml:1:11: `metrics`: `here` is not an address and a port"),
        ("metrics = [\n", 2, "t.toml:"),
        // Whatever else is wrong with a file that is being edited.
        ("metrics = '127.0.0.1:1'\nlitsen = 5\n[pool.p]\n", 1, "no service answers at http://127.0.0.1:1: "),
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
