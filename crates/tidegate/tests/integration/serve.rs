//! `tidegate serve` as a service: the real binary, real clients, real signals.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::service::{LoadClient, Service};
use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::request;
use tidegate_testing::until;

fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

const FILES: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'file' }
target = '15ms'
[pool.p.export.disk]
path = 'disk.raw'
shares = 100
";

#[test]
fn a_file_is_served_measured_and_drained() {
    let service = Service::start("serve", FILES);
    let uri = service.uri("disk");
    let info = run("nbdinfo", &["--json", &uri]);
    assert!(info.contains("\"export-size\": 8388608"), "{info}");
    let said =
        run("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 1M 64k", "-c", "read -P 0x5a 1M 64k", &uri]);
    assert!(!said.contains("Pattern verification failed"), "{said}");
    let disk = fs::read(service.path("disk.raw")).unwrap();
    assert!(disk[1 << 20..(1 << 20) + (64 << 10)].iter().all(|byte| *byte == 0x5a));

    let written = "tidegate_payload_bytes_total{pool=\"p\",consumer=\"disk\",op=\"write\"}";
    assert_eq!(service.metric(written), Some(65_536.0));
    assert_eq!(service.get("/healthz"), "ok\n");
    until("a decision", || {
        service
            .metric("tidegate_pool_set_point_ceiling_seconds{pool=\"p\"}")
            .filter(|ceiling| (*ceiling - 0.0147).abs() < 1e-9)
    });

    let socket = service.path("nbd.sock");
    assert!(socket.exists());
    let (status, log) = service.terminate();
    assert!(status.success(), "{log}");
    assert!(log.contains("drained") && !Path::new(&socket).exists(), "{log}");
}

#[test]
fn a_client_that_closes_its_sending_side_gets_its_answers_over_nbd_and_http() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("listen = ['unix:nbd.sock', 'tcp:127.0.0.1:{port}']");
    let service = Service::start("serve", &FILES.replace("listen = ['unix:nbd.sock']", &listen));
    let half_closed = |address: &str, asked: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(asked).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    };
    // The oldest handshake: flags without zeroes behind the answer, the export's name; then ten reads.
    let option = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &4u32.to_be_bytes(), b"disk"];
    let reads = (0..10).flat_map(|cookie| request(NbdCommand::Read, cookie, 0, 4096));
    let answer = half_closed(&format!("127.0.0.1:{port}"), &[option.concat(), reads.collect()].concat());
    assert_eq!(answer.len(), 18 + 10 + 10 * (16 + 4096));
    let page = half_closed(&service.address(), b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let page = String::from_utf8(page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.contains("\"disk\""), "{page}");
}

#[test]
fn a_sparse_volume_is_mapped_and_copied_without_its_holes() {
    let service = Service::start("serve", FILES);
    let uri = service.uri("disk");
    run("qemu-io", &["-f", "raw", "-c", "write -P 1 2M 1M", "-c", "write -z -u -n 2M 512k", &uri]);
    let map = run("nbdinfo", &["--map", &uri]);
    let extents: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        ["0", "2621440", "3", "hole,zero"],
        ["2621440", "524288", "0", "data"],
        ["3145728", "5242880", "3", "hole,zero"],
    ];
    assert_eq!(extents, expected, "{map}");
    let copy = service.path("copy.raw");
    run("nbdcopy", &[&uri, copy.to_str().unwrap()]);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&copy).unwrap());
    assert!(blocks * 512 <= 1 << 20, "{blocks} blocks");
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", copy.to_str().unwrap(), &uri]);
    let asked = "tidegate_requests_total{pool=\"p\",consumer=\"disk\",op=\"block_status\"}";
    assert!(service.metric(asked).is_some_and(|asked| asked >= 2.0));
}

#[test]
fn a_reload_changes_shares_and_drops_nobody() {
    let service = Service::start("serve", FILES);
    let mut client = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["load", &service.uri("disk"), "--duration", "1h", "--rate", "200", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let series = |name: &str| format!("tidegate_{name}{{pool=\"p\",consumer=\"disk\"}}");
    let reads = "tidegate_requests_total{pool=\"p\",consumer=\"disk\",op=\"read\"}";
    until("the client", || service.metric(reads).filter(|reads| *reads > 0.0));

    service.configure(&FILES.replace("shares = 100", "shares = 250"));
    until("the new shares", || service.metric(&series("shares")).filter(|shares| *shares > 249.0));

    service.configure(&FILES.replace("shares = 100", "sharse = 300"));
    service.await_log("tidegate.toml:9:1: unknown key `sharse`");
    service.await_log("not reloaded, the old configuration goes on");
    service.configure(&FILES.replace("'unix:nbd.sock'", "'unix:other.sock'"));
    service.await_log("needs a restart to change: ");
    assert_eq!(service.metric("tidegate_reloads_total{result=\"refused\"}"), Some(2.0));
    assert_eq!(service.metric("tidegate_reloads_total{result=\"applied\"}"), Some(1.0));
    assert_eq!(service.metric(&series("shares")), Some(250.0));

    let before = service.metric(reads).unwrap();
    until("more reads on the same connection", || service.metric(reads).filter(|reads| *reads > before));
    assert_eq!(service.metric(&series("sessions")), Some(1.0));
    let done = Command::new("kill").args(["-INT", &client.id().to_string()]).status().unwrap();
    assert!(done.success());
    // A connection that was dropped even once would have ended the load with status 1.
    assert!(client.wait().unwrap().success());
    assert_eq!(service.log().matches("session opened").count(), 1);
    assert!(service.terminate().0.success());
}

#[test]
fn an_export_comes_and_goes_with_the_configuration() {
    let service = Service::start_beside("serve", &[], FILES, &[("other.raw", 8 << 20)]);
    let with_another = format!("{FILES}[pool.p.export.another]\npath = 'other.raw'\nread_only = true\n");
    service.configure(&with_another);
    service.await_log("reloaded");
    assert!(run("nbdinfo", &["--json", &service.uri("another")]).contains("\"is_read_only\": true"));
    service.configure(FILES);
    until("the export's end", || {
        let mut ask = Command::new("nbdinfo");
        let asked = ask.arg(service.uri("another")).stderr(Stdio::null()).stdout(Stdio::null()).status();
        (!asked.unwrap().success()).then_some(())
    });
}

const CONTRACTS: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'emulated', preset = 'dnes-309170w' }
depth = 1
scheduler = 'yfq'
law = 'integral'
target = '35ms'
interval = '200ms'
[pool.p.export.w1]
size = '2GiB'
shares = 200
contract = { iops = '30 IO/s', response_time = '60ms', expected = '50ms', bucket = 4 }
[pool.p.export.w2]
size = '2GiB'
contract = { iops = '15 IO/s', response_time = '60ms', expected = '50ms' }
";

/// The disk does 85 requests per second: what is promised is little more than half of that, so that a busy
/// machine does not matter. What exactly a law decides is tested where it is decided.
#[test]
fn contracts_are_kept_counted_and_changed_by_a_reload() {
    let service = Service::start("serve", CONTRACTS);
    let metric = |name: &str, export: &str| {
        service.metric(&format!("tidegate_{name}{{pool=\"p\",consumer=\"{export}\"}}"))
    };
    let _clients = ["w1", "w2"].map(|export| LoadClient::start(&service, export, &["--depth", "16"]));
    let state = || {
        ["w1", "w2"].map(|export| {
            (
                metric("contract_requests_total", export).unwrap(),
                metric("contract_active_seconds_total", export).unwrap(),
            )
        })
    };
    until("both clients", || state().iter().all(|(requests, _)| *requests >= 20.0).then_some(()));
    let before = state();
    let after = until("a few seconds of both", || {
        Some(state()).filter(|now| now[1].0 >= before[1].0 + 60.0 && now[0].0 >= before[0].0 + 120.0)
    });
    for ((promised, then), now) in [30.0, 15.0].into_iter().zip(before).zip(after) {
        let achieved = (now.0 - then.0) / (now.1 - then.1);
        assert!(achieved >= 0.9 * promised, "{achieved} IO/s for {promised}: {before:?}, {after:?}");
    }
    for (export, promised) in [("w1", 30.0), ("w2", 15.0)] {
        assert!(metric("rate_requests_per_second", export).unwrap() >= promised);
        assert_eq!(metric("contract_requests_per_second", export), Some(promised));
        assert_eq!(metric("contract_response_time_seconds", export), Some(0.06));
        let late = metric("contract_late_requests_total", export).unwrap();
        // Asked for one after the other, while all of them grow.
        let requests = metric("contract_requests_total", export).unwrap();
        let counted = metric("release_time_seconds_count", export).unwrap();
        assert!(late <= requests && requests <= counted, "{late} of {requests}, {counted} measured");
        // Sixteen are outstanding, and the disk takes one at a time: most wait for their release, which is
        // not counted.
        until("a request that waits for its release", || metric("held", export).filter(|held| *held > 0.0));
    }

    service.configure(
        &CONTRACTS.replace("30 IO/s', response_time = '60ms'", "45 IO/s', response_time = '55ms'"),
    );
    until("the new contract", || {
        metric("contract_requests_per_second", "w1").filter(|promised| *promised > 44.0)
    });
    until("the new rate", || metric("rate_requests_per_second", "w1").filter(|rate| *rate >= 45.0));
    assert_eq!(metric("contract_response_time_seconds", "w1"), Some(0.055));
    service.configure(&CONTRACTS.replace("'yfq'", "'sfq'"));
    service.await_log("needs a restart to change: pool `p`: the scheduler");
    service.configure(&CONTRACTS.replace("shares = 200", "reservation = '30 IO/s'"));
    service.await_log(
        "tidegate.toml:13:1: export `w1` has a `reservation`, which `law = \"integral\"` does not know",
    );
    // What another law does not know, it lets go of.
    service.configure(&CONTRACTS.replace("'integral'", "'window'"));
    until("the other law", || metric("rate_requests_per_second", "w2").is_none().then_some(()));
    // Another law keeps them in another way, and counts anew: by the window, and by what goes before shares.
    service.configure(&CONTRACTS.replace("'integral'", "'auto'"));
    until("the law auto", || metric("reservation_ios_per_second", "w1").filter(|rate| *rate > 31.0));
    until("contracts under the law auto", || {
        metric("contract_requests_total", "w2").filter(|requests| *requests > 20.0)
    });
    assert_eq!(metric("contract_requests_per_second", "w1"), Some(30.0));
    assert_eq!(metric("rate_requests_per_second", "w1"), None);
    let late = metric("contract_late_requests_total", "w2").unwrap();
    assert!(late <= metric("contract_requests_total", "w2").unwrap());
    service.configure(CONTRACTS);
    until("the rates are back", || metric("rate_requests_per_second", "w2"));
    assert_eq!(metric("reservation_ios_per_second", "w1"), None);
    until("the law and its contracts", || {
        metric("contract_requests_total", "w2").filter(|requests| *requests > 5.0)
    });

    let (status, log) = service.terminate();
    assert!(status.success(), "{log}");
    for said in
        ["contract of w1 in pool p: 30 IO/s within 60.0ms promised; ", "contract of w2 in pool p: 15 IO/s"]
    {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert!(log.contains(" late; mean "), "{log}");
}

/// The time of day in so many seconds, in UTC.
fn in_seconds(seconds: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + seconds;
    let of_day = since % 86_400;
    format!("{:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

/// Two disks. What the one is promised half a minute from now on it can keep, and what the other is it
/// cannot: it does 85 requests per second. The margins are wide: on a busy machine the service takes long to
/// start, and a change whose verdict comes late comes late, too.
#[test]
fn requirements_change_with_the_time_of_day_once_they_are_admitted() {
    let (before, then) = (in_seconds(86_400 - 3_600), in_seconds(30));
    let pool = |name: &str, export: &str, iops: u32| {
        let promise = |from: &str, iops: u32| {
            format!("{{ from = '{from}', iops = '{iops} IO/s', size = '4KiB', response_time = '60ms' }}")
        };
        format!(
            "[pool.{name}]
            backend = {{ kind = 'emulated', preset = 'dnes-309170w' }}
            scheduler = 'yfq'
            law = 'integral'
            target = '60ms'
            [pool.{name}.export.{export}]
            size = '2GiB'
            contract = [{}, {}]\n",
            promise(&before, 20),
            promise(&then, iops)
        )
    };
    let configured = |kept: u32| {
        let head = "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n";
        format!("{head}{}{}", pool("kept", "w1", kept), pool("full", "w2", 200))
    };
    let service = Service::start("serve", &configured(25));
    let promised = |pool: &str, export: &str| {
        service.metric(&format!(
            "tidegate_contract_requests_per_second{{pool=\"{pool}\",consumer=\"{export}\"}}"
        ))
    };
    let about =
        |name: &str, labels: &str| service.metric(&format!("tidegate_pool_contract{name}{{{labels}}}"));
    assert_eq!([promised("kept", "w1"), promised("full", "w2")], [Some(20.0); 2]);
    until("the verdicts on what is in force", || {
        let both = ["pool=\"kept\"", "pool=\"full\""].map(|pool| about("s_admitted", pool));
        (both == [Some(1.0); 2]).then_some(())
    });
    service.await_log("pool full: contracts will be refused when their time comes, from ");

    until("the change", || promised("kept", "w1").filter(|promised| *promised > 24.0));
    until("the refusal", || {
        about("_changes_total", "pool=\"full\",result=\"refused\"").filter(|count| *count > 0.0)
    });
    assert_eq!(promised("full", "w2"), Some(20.0), "what was admitted stays");
    let full = ["s_admitted", "s_overdue"].map(|name| about(name, "pool=\"full\""));
    assert_eq!(full, [Some(1.0), Some(1.0)]);
    assert_eq!(about("_changes_total", "pool=\"kept\",result=\"begun\""), Some(1.0));
    assert_eq!(about("s_overdue", "pool=\"kept\""), Some(0.0));
    service
        .await_log("are refused, w2 20 IO/s within 60.0ms stays in force: together they ask for 200.0 IO/s");

    // A reload that changes contracts is asked about like a change of the hour.
    service.configure(&configured(250));
    service
        .await_log("not reloaded, the old configuration goes on: pool kept: the contracts that hold from ");
    assert_eq!(promised("kept", "w1"), Some(25.0));
    service.configure(&configured(22));
    until("the new contract", || promised("kept", "w1").filter(|promised| (*promised - 22.0).abs() < 0.1));
    let (status, log) = service.terminate();
    assert!(status.success(), "{log}");
}

/// Of files nothing can be measured while they are served. What `tidegate admit` found beforehand is what
/// contracts are held against.
#[test]
fn contracts_of_real_storage_are_held_against_what_was_measured_beforehand() {
    let folder = tempfile::tempdir().unwrap();
    let (contracts, admitted) = (folder.path().join("c.toml"), folder.path().join("admitted.json"));
    let asked = "storage = { preset = 'dnes-309170w' }
        tenant.disk = { iops = 40, size = '4KiB', response_time = '35ms' }";
    fs::write(&contracts, asked).unwrap();
    fs::write(
        &admitted,
        run(env!("CARGO_BIN_EXE_tidegate"), &["admit", "--json", "-c", contracts.to_str().unwrap()]),
    )
    .unwrap();
    let configured = |iops: u32, size: &str| {
        format!(
            "listen = ['unix:nbd.sock']
            metrics = '127.0.0.1:0'
            [pool.p]
            backend = {{ kind = 'file' }}
            law = 'integral'
            target = '35ms'
            admitted = '{}'
            [pool.p.export.disk]
            path = 'disk.raw'
            contract = {{ iops = '{iops} IO/s', size = '{size}', response_time = '35ms' }}\n",
            admitted.display()
        )
    };
    let service = Service::start("serve", &configured(30, "4KiB"));
    let promised = || service.metric("tidegate_contract_requests_per_second{pool=\"p\",consumer=\"disk\"}");
    assert_eq!(service.metric("tidegate_pool_contracts_admitted{pool=\"p\"}"), Some(1.0));
    service.configure(&configured(40, "4KiB"));
    until("the new contract", || promised().filter(|promised| *promised > 39.0));
    for (refusals, (iops, size)) in [(41, "4KiB"), (40, "8KiB")].into_iter().enumerate() {
        service.configure(&configured(iops, size));
        until("the refusal", || {
            service
                .metric("tidegate_reloads_total{result=\"refused\"}")
                .filter(|count| *count > refusals as f64)
        });
    }
    service.await_log(
        "the contracts that hold all day are refused: nothing that was measured beforehand covers them",
    );
    assert_eq!(promised(), Some(40.0));
}

/// One disk, of which the first 20 requests per second are shared and the rest is the business's.
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
";

/// Without the law both would do the same. What exactly it decides is tested where it is decided.
#[test]
fn bands_divide_what_goals_leave_and_are_changed_by_a_reload() {
    let service = Service::start("serve", BANDS);
    let metric = |name: &str, export: &str| {
        service.metric(&format!("tidegate_{name}{{pool=\"p\",consumer=\"{export}\"}}"))
    };
    let pool = |name: &str| service.metric(&format!("tidegate_pool_{name}{{pool=\"p\"}}"));
    let _clients =
        ["business", "mining"].map(|export| LoadClient::start(&service, export, &["--depth", "16"]));
    until("the second band", || pool("band").filter(|band| (1.0..2.0).contains(band)));
    until("both held", || {
        ["business", "mining"].iter().all(|export| metric("held", export) > Some(0.0)).then_some(())
    });
    assert!(pool("operating_point_requests_per_second") > Some(6.0));
    let state = || ["business", "mining"].map(|export| metric("release_time_seconds_count", export).unwrap());
    let before = state();
    let after =
        until("some requests of the business", || Some(state()).filter(|now| now[0] >= before[0] + 200.0));
    let [business, mining] = [after[0] - before[0], after[1] - before[1]];
    assert!(mining > 0.0 && business >= 1.5 * mining, "{business} beside {mining}");

    service.configure(&BANDS.replace("{ business = 1.0 }", "{ mining = 1.0 }"));
    until("the other way round", || {
        let rate = |export| metric("rate_requests_per_second", export);
        (rate("mining")? > 1.5 * rate("business")?).then_some(())
    });
    let (status, log) = service.terminate();
    assert!(status.success(), "{log}");
}

/// One server of 200 requests per second, which are one after the other: a window for the goal is a few of
/// the 32 that clients have.
const BY_A_WINDOW: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '64MiB' } }
law = 'queueing-model'
target = '60ms'
bands = [
    { up_to = '20 IO/s', ratios = { business = 0.5, mining = 0.5 } },
    { up_to = '2kIO/s', ratios = { business = 1.0 } },
]
export.business = { size = '16MiB' }
export.mining = { size = '16MiB' }
";

/// Without the law both would do the same, with sixteen requests each at the storage.
#[test]
fn the_model_of_a_queue_holds_all_to_a_window_and_bands_divide_it_until_a_reload_leaves_that_to_shares() {
    let service = Service::start("serve", BY_A_WINDOW);
    let exports = ["business", "mining"];
    let metric = |name: &str, export: &str| {
        service.metric(&format!("tidegate_{name}{{pool=\"p\",consumer=\"{export}\"}}"))
    };
    let pool = |name: &str| service.metric(&format!("tidegate_pool_{name}{{pool=\"p\"}}"));
    let window = || pool("window_requests").filter(|window| *window < 24.0);
    let _clients = exports.map(|export| LoadClient::start(&service, export, &["--depth", "16"]));
    until("a window", window);
    assert_eq!(service.metric("tidegate_pool_law_info{pool=\"p\",law=\"queueing-model\"}"), Some(1.0));
    until("both held", || {
        let held = exports.iter().all(|export| metric("held", export) > Some(0.0));
        held.then_some(())
    });
    let rate = |export| metric("rate_requests_per_second", export);
    until("what bands make of it", || (rate("business")? > 1.5 * rate("mining")?).then_some(()));
    let done = |export: &str| {
        let reads = format!("tidegate_requests_total{{pool=\"p\",consumer=\"{export}\",op=\"read\"}}");
        service.metric(&reads).unwrap_or(0.0)
    };
    let state = || exports.map(done);
    let before = state();
    let after =
        until("some requests of the business", || Some(state()).filter(|now| now[0] >= before[0] + 300.0));
    let [business, mining] = [after[0] - before[0], after[1] - before[1]];
    assert!(mining > 0.0 && business >= 1.5 * mining, "{business} beside {mining}");

    let (head, rest) = BY_A_WINDOW.split_once("bands = [").unwrap();
    let (_, exports_of_it) = rest.split_once("\n]\n").unwrap();
    service.configure(&format!("{head}{exports_of_it}"));
    until("no rates", || exports.iter().all(|export| rate(export).is_none()).then_some(()));
    until("a window all the same", || window().filter(|_| pool("band").is_none()));
    let before = state();
    until("as much of each", || {
        let now = state();
        let [business, mining] = [now[0] - before[0], now[1] - before[1]];
        (business > 100.0 && mining > 100.0 && mining > 0.6 * business).then_some(())
    });
    let (status, log) = service.terminate();
    assert!(status.success(), "{log}");
}

#[test]
fn a_metrics_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.raw"), [0; 4096]).unwrap();
    fs::write(folder.path().join("t.toml"), FILES.replace("127.0.0.1:0", &address)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "-c", "t.toml", "--log", "error"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with(&format!("tidegate: cannot serve HTTP at {address}: ")), "{said}");
}

fn count(log: &str, part: &str) -> usize {
    log.matches(part).count()
}

#[test]
fn startup_said_addresses_twice_and_ports_that_were_not_its_own() {
    let open = FILES
        .replace("'unix:nbd.sock'", "'unix:nbd.sock', 'tcp:127.0.0.1:0'")
        .replace("127.0.0.1:0'\n[pool", "0.0.0.0:0'\n[pool")
        .replace("'15ms'", "'1ns'")
        .replace("shares = 100", "shares = 100\nprotected = true");
    let service = Service::start("serve", &open);
    let facts = [
        "pool p: files, depth 32; law auto: ",
        "disk.raw, protected",
        "any host that reaches 0.0.0.0:0 can read the metrics",
        "no storage keeps a `target` of 1ns",
        "`shares` has no effect",
        "the law of pool `p` has no consumer to throttle",
    ];
    let once = ["metrics on http://", "listening on "];
    let log = service.log();
    for fact in facts.iter().chain(&once) {
        assert_eq!(count(&log, fact), 1, "{fact:?}: {log}");
    }
    assert!(!log.contains(":0/metrics") && !log.contains("127.0.0.1:0,"), "{log}");
    service.signal("-HUP");
    service.await_log("reloaded ");
    let log = service.log();
    for fact in &facts {
        assert_eq!(count(&log, fact), 2, "{fact:?}: {log}");
    }
    // Neither can change by a reload.
    for fact in once.iter().chain(&["reloaded "]) {
        assert_eq!(count(&log, fact), 1, "{fact:?}: {log}");
    }
    assert!(!log.contains("configuration applied"), "{log}");
}

#[test]
fn the_last_protected_export_went_without_a_word() {
    let protected = format!("{FILES}[pool.p.export.database]\npath = 'database.raw'\nprotected = true\n");
    let service = Service::start_beside("serve", &[], &protected, &[("database.raw", 8 << 20)]);
    service.configure(FILES);
    service.await_log("reloaded ");
    let lost = "pool p: no export is protected any more: the law now steers by the response time of all \
        requests, not of protected reads";
    let log = service.log();
    assert_eq!(count(&log, lost), 1, "{log}");
    let warned = log.lines().find(|line| line.contains(lost)).unwrap();
    assert!(warned.contains("WARN"), "{warned}");
    // Once known, it is no news.
    service.signal("-HUP");
    until("another reload", || (count(&service.log(), "reloaded ") == 2).then_some(()));
    assert_eq!(count(&service.log(), lost), 1);
}

/// A load of two hundred reads per second, which has some results.
fn load_with_results(service: &Service, options: &[&str]) -> Child {
    let load = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["load", &service.uri("disk"), "--duration", "1h", "--rate", "200"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let reads = "tidegate_requests_total{pool=\"p\",consumer=\"disk\",op=\"read\"}";
    until("some reads", || service.metric(reads).filter(|reads| *reads >= 50.0));
    load
}

#[test]
fn a_load_lost_its_results_when_the_server_drained() {
    let service = Service::start("serve", FILES);
    let load = load_with_results(&service, &[]);
    let (status, log) = service.terminate();
    assert!(status.success(), "{log}");
    let output = load.wait_with_output().unwrap();
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{error}");
    let requests = out.lines().find_map(|line| line.strip_prefix("reads ")?.split_whitespace().next());
    assert!(
        requests.and_then(|requests| requests.parse().ok()).is_some_and(|count: u64| count >= 50),
        "{out}"
    );
    assert!(error.contains(": the server ended the session after "), "{error}");
    // Between two requests it closes the session without an answer that says why.
    let reasons = ["the server is shutting down\n", "the server closed it\n"];
    assert!(reasons.iter().any(|reason| error.ends_with(reason)), "{error}");
}

#[test]
fn a_load_lost_its_results_when_the_server_was_killed() {
    let service = Service::start("serve", FILES);
    let load = load_with_results(&service, &["--json"]);
    service.signal("-KILL");
    let output = load.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(": the server ended the session after "), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["reads"]["requests"].as_u64() >= Some(50), "{report:#}");
    assert!(report["cut_short"]["after_s"].as_f64() > Some(0.0), "{report:#}");
}
