//! `tidegate admit --live` and `identify --live`: the real binary against a gateway over an emulated disk in
//! real time.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::service::Service;
use tidegate_testing::until;

/// A disk that completes 200 IO/s, one after the other, with an export to measure it through.
const POOL: &str = r#"
listen = ["unix:nbd.sock"]
metrics = "127.0.0.1:0"

[pool.disk]
backend = { kind = "emulated", exponential = { rate = "200 IO/s", servers = 1, capacity = "64MiB" } }

[pool.disk.export.probe]
size = "8MiB"
protected = true

[pool.disk.export.other]
size = "8MiB"
"#;

/// Without a storage: it is measured. Two thirds of what the disk completes, at most.
fn contracts(response_time: &str) -> String {
    format!(
        "[tenant.w1]\niops = 80\nsize = \"4KiB\"\nresponse_time = \"{response_time}\"\n\
         [tenant.w2]\niops = 40\nsize = \"4KiB\"\nresponse_time = \"{response_time}\"\n"
    )
}

fn metrics(service: &Service) -> String {
    let log = service.log();
    let mut lines =
        log.lines().filter_map(|line| line.split_once(" metrics on http://")?.1.strip_suffix("/metrics"));
    lines.rfind(|address| !address.ends_with(":0")).unwrap().to_owned()
}

fn command(service: &Service, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(service.path("")).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn admit(service: &Service, contracts: &str, more: &[&str]) -> Command {
    std::fs::write(service.path("c.toml"), contracts).unwrap();
    let mut command = command(service, &["admit", "-c", "c.toml", "--live"]);
    command.arg(service.uri("probe")).args(more);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

fn background_load(service: &Service) -> Child {
    let arguments = ["load", &service.uri("other"), "--rate", "20", "--duration", "60s"];
    command(service, &arguments).spawn().unwrap()
}

fn end(mut child: Child) {
    // It may have ended by itself.
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_pool_that_nobody_uses_is_measured_and_judged() {
    let service = Service::start("serve", POOL);
    let metrics = metrics(&service);
    let arguments = ["--metrics", &metrics, "--requests", "400", "--json"];
    let output = admit(&service, &contracts("5s"), &arguments).output().unwrap();
    let found = document(&output);
    assert_eq!(
        (output.status.code(), &found["admitted"]),
        (Some(0), &true.into()),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(found["capacity_iops"], Value::Null, "it is not overloaded to find out");
    for tenant in found["tenants"].as_array().unwrap() {
        let expected = tenant["expected_s"].as_f64().unwrap();
        // A request's service takes 5 ms on average, distributed exponentially: 95 % of a queue's take no
        // less than 5 ms.
        assert!(expected > 0.005 && expected < 4.0, "{expected}");
    }
    assert_eq!(
        service.metric("tidegate_requests_total{pool=\"disk\",consumer=\"probe\",op=\"write\"}"),
        Some(0.0)
    );

    // Alone 95 % take up to 15 ms, and 1.2 times that could be promised at best. On a machine so busy that
    // requests take 15 ms on average it is refused before it is measured.
    let output = admit(&service, &contracts("15ms"), &arguments).output().unwrap();
    match output.status.code() {
        Some(1) => {
            let instead = &document(&output)["instead"]["response_times"][0]["response_time_s"];
            assert!(instead.as_f64().unwrap() > 0.015, "{instead}");
        }
        status => {
            assert_eq!(status, Some(2), "{}", text(&output.stderr));
            assert!(text(&output.stderr).contains("on average when no other consumer sends any"));
        }
    }
}

#[test]
fn a_tenant_that_writes_is_measured_on_an_export_that_may_be_overwritten() {
    let service = Service::start("serve", POOL);
    let metrics = metrics(&service);
    let writes = contracts("5s").replace("iops = 40\n", "iops = 40\nread = 0.25\n");
    let mut arguments = vec!["--metrics", &metrics, "--requests", "400", "--json"];
    let output = admit(&service, &writes, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`w2` writes, and a live storage is only read"));

    arguments.push("--overwrite");
    let open = ["load", &service.uri("probe"), "--rate", "1", "--duration", "60s"];
    let client = command(&service, &open).spawn().unwrap();
    let sessions = "tidegate_sessions{pool=\"disk\",consumer=\"probe\"}";
    until("the client", || service.metric(sessions).filter(|sessions| *sessions > 0.0));
    let output = admit(&service, &writes, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("a client has the export `probe` open"));
    end(client);
    until("the end of the client", || service.metric(sessions).filter(|sessions| *sessions < 1.0));

    let output = admit(&service, &writes, &arguments).output().unwrap();
    assert_eq!(document(&output)["admitted"], true, "{}", text(&output.stderr));
    let done = |op: &str| {
        let series = format!("tidegate_requests_total{{pool=\"disk\",consumer=\"probe\",op=\"{op}\"}}");
        service.metric(&series).unwrap()
    };
    // Of a third of the requests, which are w2's, three quarters write.
    let part = done("write") / (done("read") + done("write"));
    assert!((0.1..0.4).contains(&part), "{part}");
}

#[test]
fn a_pool_in_use_is_left_alone_unless_forced() {
    let service = Service::start("serve", POOL);
    let metrics = metrics(&service);
    let other = background_load(&service);
    let series = "tidegate_requests_total{pool=\"disk\",consumer=\"other\",op=\"read\"}";
    until("load", || (service.metric(series)? > 0.0).then_some(()));
    let output = admit(&service, &contracts("5s"), &["--metrics", &metrics]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    let expected = "tidegate: pool `disk` is in use: `other` sends requests. Measure when no consumer does, \
        or with --force";
    assert!(text(&output.stderr).starts_with(expected), "{}", text(&output.stderr));
    let probed = "tidegate_requests_total{pool=\"disk\",consumer=\"probe\",op=\"read\"}";
    assert_eq!(service.metric(probed), Some(0.0), "nothing was sent");

    let forced = admit(&service, &contracts("5s"), &["--force", "--requests", "400"]).output().unwrap();
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced.stderr));
    end(other);
}

#[test]
fn who_begins_to_use_the_pool_ends_the_measurement() {
    let service = Service::start("serve", POOL);
    let metrics = metrics(&service);
    let arguments = ["--metrics", &metrics, "--requests", "6000"];
    let child = admit(&service, &contracts("5s"), &arguments).spawn().unwrap();
    let probed = "tidegate_requests_total{pool=\"disk\",consumer=\"probe\",op=\"read\"}";
    until("the measurement", || (service.metric(probed)? > 0.0).then_some(()));
    let other = background_load(&service);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("pool `disk` is in use: `other` sends"),
        "{}",
        text(&output.stderr)
    );
    end(other);
}

#[test]
fn response_times_that_run_away_end_it_and_it_never_has_more_outstanding_than_it_may() {
    let service = Service::start("serve", POOL);
    let overload = contracts("50ms").replace("iops = 80", "iops = 400");
    // It would last 45 s, and there is no time for a second one.
    let began = Instant::now();
    let arguments = ["--force", "--requests", "20000", "--within", "48s", "--depth", "500", "--json"];
    let child = admit(&service, &overload, &arguments).spawn().unwrap();
    let waiting = ["queued", "in_flight"]
        .map(|what| format!("tidegate_{what}_requests{{pool=\"disk\",consumer=\"probe\"}}"));
    let mut most = 0.0f64;
    let mut child = child;
    until("the end of the measurement", || {
        let outstanding = waiting.iter().filter_map(|series| service.metric(series)).sum();
        most = most.max(outstanding);
        child.try_wait().unwrap()
    });
    let output = child.wait_with_output().unwrap();
    let found = document(&output);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!((output.status.code(), &found["tenants"][0]["expected_s"]), (Some(1), &Value::Null));
    assert_eq!(found["instead"]["response_times"], Value::Null, "nothing can be promised at these rates");
    assert!(most > 0.0 && most <= 500.0, "{most} outstanding");
}

#[test]
fn an_interrupt_ends_it_at_once() {
    let service = Service::start("serve", POOL);
    let child = admit(&service, &contracts("5s"), &["--force", "--requests", "12000"]).spawn().unwrap();
    let probed = "tidegate_requests_total{pool=\"disk\",consumer=\"probe\",op=\"read\"}";
    until("the measurement", || (service.metric(probed)? > 0.0).then_some(()));
    let asked = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    assert_eq!(
        text(&output.stderr),
        "tidegate: interrupted: nothing is sent any more, and nothing was decided\n"
    );
}

/// Five seconds for all of them, not for each: else the others would go on meanwhile.
#[test]
fn an_interrupt_ends_all_loads_at_once() {
    let service = Service::start("serve", POOL);
    let tenant = |number| format!("[tenant.w{number}]\niops = 20\nsize = \"4KiB\"\nresponse_time = \"5s\"\n");
    let five = (1..=5).map(tenant).collect::<String>();
    let child = admit(&service, &five, &["--force", "--requests", "12000"]).spawn().unwrap();
    // Alone it is a hundred.
    let probed = "tidegate_requests_total{pool=\"disk\",consumer=\"probe\",op=\"read\"}";
    until("the measurement", || (service.metric(probed)? > 250.0).then_some(()));
    // Time for each to send something. A service that is stopped cannot tell of that.
    service.signal("-STOP");
    std::thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let took = asked.elapsed();
    service.signal("-CONT");
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(text(&output.stderr).starts_with("tidegate: interrupted"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_measured_live_is_said_before_anything_is_sent() {
    let service = Service::start("serve", POOL);
    for (contracts, arguments, status, expected) in [
        (contracts("5s"), &[][..], 1, "nothing says whether other consumers use this pool"),
        (
            contracts("5s").replace("4KiB\"", "4KiB\"\nread = 0.5"),
            &["--force"][..],
            2,
            "`w1` writes, and a live storage is only read",
        ),
        (
            contracts("5s"),
            &["--force", "--requests", "150"][..],
            1,
            "too few for a 95th percentile: --requests 300",
        ),
        (contracts("5s"), &["--force", "--within", "1s"][..], 1, "longer than --within"),
        (contracts("5s"), &["--force", "--depth", "1"][..], 1, "2 tenants, and each takes a connection"),
        (
            contracts("5s"),
            &["--metrics", "127.0.0.1:1"][..],
            1,
            "127.0.0.1:1: cannot read the gateway's metrics",
        ),
    ] {
        let output = admit(&service, &contracts, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    assert_eq!(
        service.metric("tidegate_requests_total{pool=\"disk\",consumer=\"probe\",op=\"read\"}"),
        Some(0.0)
    );
}

#[test]
fn what_takes_longer_than_it_may_is_not_begun() {
    let service = Service::start("serve", POOL);
    // It lasts 10 s, and a hundred requests alone take half a second at least.
    let arguments = ["--force", "--requests", "1200", "--within", "10.1s"];
    let began = Instant::now();
    let output = admit(&service, &contracts("5s"), &arguments).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    let expected = "tidegate: no time is left --within for a measurement of 10s";
    assert!(text(&output.stderr).starts_with(expected), "{}", text(&output.stderr));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_live_profile_goes_no_further_than_the_storage_keeps_up() {
    let service = Service::start("serve", POOL);
    let probe = service.uri("probe");
    let arguments = [
        "identify",
        "--live",
        &probe,
        "--to",
        "280",
        "--points",
        "7",
        "--force",
        "--requests",
        "1120",
        "--depth",
        "500",
        "--json",
    ];
    let output = command(&service, &arguments).output().unwrap();
    let found = document(&output);
    let points = found["points"].as_array().unwrap();
    // 40, 80 and 120 IO/s are up to 0.6 of what the disk does. 240 and 280 are more than it can; at one of
    // them at the latest it ends.
    let sustained: Vec<_> = points.iter().map(|point| point["sustained"].as_bool().unwrap()).collect();
    assert!(sustained[..3] == [true; 3] && !sustained[points.len() - 1], "{points:?}");
    assert!(
        sustained[3..points.len() - 1].iter().all(|sustained| *sustained),
        "it goes no further: {points:?}"
    );
    // Of 200 in a second on average; what it has yet to do when the time is over is no part of it.
    let most = points[points.len() - 1]["completed_iops"].as_f64().unwrap();
    assert!(most < 225.0, "{most}");
    for (point, rate) in points.iter().zip([40.0, 80.0, 120.0]) {
        let completed = point["completed_iops"].as_f64().unwrap();
        assert!((completed - rate).abs() < 0.1 * rate, "{completed} of {rate}");
    }
}
