//! Loads on a real NBD server, nbdkit (Debian package of that name; `make packages` installs it).

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tidegate_load::{
    BlockOrder, ConnectError, ConnectionLoss, LoadArrivals, LoadConfig, LoadError, LoadPhases, LoadReport,
    LoadTarget, RequestSpacing, RunningLoad, UnsuitableExport, WritePayload,
};
use tidegate_nbd::ExportName;
use tidegate_nbd::handshake::{ClientError, OptionRefusal};
use tidegate_testing::until_true;
use tidegate_units::{Bytes, Iops};

/// A server, ended with the test.
struct Nbdkit {
    process: Child,
    folder: TempDir,
}

impl Nbdkit {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let server = Self::spawn(folder, &["-U", socket.to_str().unwrap()], arguments);
        until_true("nbdkit listens", || UnixStream::connect(&socket).is_ok());
        server
    }

    fn spawn(folder: TempDir, listen: &[&str], arguments: &[&str]) -> Self {
        let process = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent"])
            .args(listen)
            .args(arguments)
            .stderr(Stdio::null())
            .spawn()
            .expect("nbdkit runs; install the package `nbdkit` (`make packages`)");
        Self { process, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn target(&self) -> LoadTarget {
        LoadTarget::unix(self.socket(), ExportName::default())
    }

    /// A load of a second or less, by default.
    fn config(&self) -> LoadConfig {
        LoadConfig { duration: Some(Duration::from_millis(300)), ..LoadConfig::new(self.target()) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// The signal is sent at once, and arrives at each thread when that runs next.
    fn is_stopped(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap()).all(|stat| {
            // The name, in parentheses, may hold anything.
            stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
        })
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(config: LoadConfig) -> LoadReport {
    RunningLoad::connect(config).unwrap().start().unwrap().join().unwrap()
}

#[test]
fn a_mixed_closed_loop_is_counted_consistently() {
    let server = Nbdkit::start(&["memory", "16M"]);
    let load = RunningLoad::connect(LoadConfig {
        arrivals: LoadArrivals::Closed { depth: 8, think: Duration::ZERO },
        connections: 2,
        read_fraction: 0.5,
        fua: true,
        ..server.config()
    })
    .unwrap();
    let handle = load.start().unwrap();
    let mut sampled = 0;
    while !handle.is_finished() {
        let sample = handle.sample();
        assert!(sample.in_flight <= 16);
        sampled += sample.reads.count + sample.writes.count;
        thread::yield_now();
    }
    let last = handle.sample();
    sampled += last.reads.count + last.writes.count;
    let report = handle.join().unwrap();

    assert!(report.duration_s >= 0.3);
    assert!(report.reads.requests > 100 && report.writes.requests > 100, "{report}");
    assert_eq!(sampled, report.reads.requests + report.writes.requests);
    assert_eq!((report.reads.errors, report.writes.errors, report.unanswered), (0, 0, 0));
    assert_eq!(report.reads.bytes, report.reads.requests * 4096);
    assert_eq!(report.seconds.iter().map(|second| second.reads).sum::<u64>(), report.reads.requests);
    let latency = report.reads.latency_ms.unwrap();
    let ladder = [latency.p50, latency.p95, latency.p99, latency.p99_9, latency.max * 1.002];
    assert!(ladder.is_sorted(), "{ladder:?}");
    assert!(latency.p50 > 0.0 && latency.mean <= latency.max);
}

#[test]
fn the_report_is_json_with_these_keys() {
    let server = Nbdkit::start(&["memory", "1M"]);
    let json = serde_json::to_value(run(server.config())).unwrap();
    for key in ["target", "duration_s", "unsent", "unanswered", "first_error"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    for key in ["requests", "bytes", "errors", "iops", "bytes_per_s"] {
        assert!(json["reads"][key].is_number(), "{key}");
    }
    for key in ["mean", "p50", "p95", "p99", "p99.9", "max"] {
        assert!(json["reads"]["latency_ms"][key].is_number(), "{key}");
    }
    assert!(json["writes"]["latency_ms"].is_null());
    assert!(json["seconds"][0]["read_mean_ms"].is_number());
}

#[test]
fn writes_arrive_where_they_should_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    std::fs::write(&file, vec![0; 1 << 20]).unwrap();
    let server = Nbdkit::start(&["file", file.to_str().unwrap()]);
    let report = run(LoadConfig {
        arrivals: LoadArrivals::Closed { depth: 4, think: Duration::ZERO },
        order: BlockOrder::Sequential,
        read_fraction: 0.0,
        block: Bytes::from_kib(16),
        offset: Bytes::from_kib(128),
        span: Some(Bytes::from_kib(256)),
        payload: WritePayload::Byte(0xa5),
        ..server.config()
    });
    assert!(report.writes.requests >= 16, "the region was written once at least: {report}");
    let disk = std::fs::read(&file).unwrap();
    let region = (128 << 10)..(384 << 10);
    for (at, byte) in disk.iter().enumerate() {
        assert_eq!(*byte, if region.contains(&at) { 0xa5 } else { 0 }, "at {at}");
    }
}

#[test]
fn servers_without_structured_replies_or_without_go_are_served_too() {
    for option in ["--no-sr", "--mask-handshake=0", "--mask-handshake=1"] {
        let server = Nbdkit::start(&[option, "memory", "1M"]);
        let report = run(LoadConfig { read_fraction: 0.5, ..server.config() });
        assert!(report.reads.requests > 10 && report.writes.requests > 10, "{option}: {report}");
        assert_eq!(report.reads.errors + report.writes.errors, 0);
    }
}

#[test]
fn tcp_is_served() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = ["-i", "127.0.0.1", "-p", &port.to_string()];
    let _server = Nbdkit::spawn(tempfile::tempdir().unwrap(), &listen, &["memory", "1M"]);
    let target: LoadTarget = format!("nbd://localhost:{port}/").parse().unwrap();
    until_true("nbdkit listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let report = run(LoadConfig { duration: Some(Duration::from_millis(100)), ..LoadConfig::new(target) });
    assert!(report.reads.requests > 0, "{report}");
}

#[test]
fn an_open_loop_keeps_its_rate_and_sees_the_delay() {
    let server = Nbdkit::start(&["--filter=delay", "memory", "1M", "rdelay=20ms"]);
    let report = run(LoadConfig {
        arrivals: LoadArrivals::Open { rate: Iops::new(100.0), spacing: RequestSpacing::Even, depth: 64 },
        duration: Some(Duration::from_secs(1)),
        ..server.config()
    });
    // The last one may find the time over on a busy machine.
    assert!(report.reads.requests + report.unsent == 100 && report.unsent <= 10, "{report}");
    assert!(report.reads.latency_ms.unwrap().p50 >= 20.0, "{report}");
}

/// At 20 requests per second of capacity and 100 due, the last one to be sent has waited for most of the run.
#[test]
fn a_slow_server_cannot_slow_down_the_questions() {
    let server = Nbdkit::start(&["--filter=delay", "memory", "1M", "rdelay=50ms"]);
    let report = run(LoadConfig {
        arrivals: LoadArrivals::Open { rate: Iops::new(100.0), spacing: RequestSpacing::Poisson, depth: 1 },
        duration: Some(Duration::from_secs(1)),
        ..server.config()
    });
    let latency = report.reads.latency_ms.unwrap();
    assert!(report.reads.requests <= 21, "{report}");
    assert!(latency.max >= 500.0 && latency.p50 >= 200.0, "{report}");
    assert!(report.unsent >= 40, "{report}");
}

#[test]
fn think_time_bounds_the_rate() {
    let server = Nbdkit::start(&["memory", "1M"]);
    let report = run(LoadConfig {
        arrivals: LoadArrivals::Closed { depth: 2, think: Duration::from_millis(50) },
        duration: Some(Duration::from_millis(500)),
        ..server.config()
    });
    assert!((2..=20).contains(&report.reads.requests), "{report}");
}

#[test]
fn a_load_pauses_and_comes_back() {
    let server = Nbdkit::start(&["memory", "1M"]);
    let second = Duration::from_secs(1);
    let report = run(LoadConfig {
        phases: Some(LoadPhases { on: second, off: second, delay: second }),
        duration: Some(second * 4),
        ..server.config()
    });
    let reads: Vec<_> = report.seconds.iter().map(|second| second.reads).collect();
    assert!(report.duration_s >= 4.0);
    // The last request of a burst may complete just after it.
    assert!(matches!(reads[..], [0, first, 0..=1, second, ..] if first > 100 && second > 100), "{reads:?}");
}

#[test]
fn errors_are_counted_apart() {
    let server = Nbdkit::start(&["--filter=error", "memory", "1M", "error=ENOSPC", "error-pwrite-rate=100%"]);
    let report = run(LoadConfig { read_fraction: 0.5, ..server.config() });
    assert!(report.writes.errors > 0 && report.writes.requests == 0 && report.reads.errors == 0, "{report}");
    assert_eq!(report.writes.latency_ms, None);
    assert_eq!(report.first_error.as_deref(), Some("no space left on device"));
}

#[test]
fn a_server_that_dies_is_a_clear_error() {
    let server = Nbdkit::start(&["--filter=delay", "memory", "1M", "rdelay=3600"]);
    let handle = RunningLoad::connect(LoadConfig {
        arrivals: LoadArrivals::Closed { depth: 3, think: Duration::ZERO },
        connections: 2,
        duration: None,
        ..server.config()
    })
    .unwrap()
    .start()
    .unwrap();
    until_true("all requests are outstanding", || handle.sample().in_flight == 6);
    server.signal(Signal::KILL);
    let error = handle.join().unwrap_err();
    let LoadError::Lost {
        target,
        outstanding: 3,
        source: ConnectionLoss::Closed | ConnectionLoss::Io(_),
        report,
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(*target, server.target().to_string());
    assert!(error.to_string().contains(": the server ended the session after "), "{error}");
    assert!(error.to_string().contains(" s, with 3 requests outstanding: "), "{error}");
    assert_eq!((report.reads.requests, report.unanswered), (0, 6));
}

#[test]
fn a_server_that_shuts_down_is_left() {
    let server =
        Nbdkit::start(&["--filter=error", "memory", "1M", "error=ESHUTDOWN", "error-pread-rate=100%"]);
    let config = LoadConfig { duration: None, connections: 2, ..server.config() };
    let error = RunningLoad::connect(config).unwrap().start().unwrap().join().unwrap_err();
    let LoadError::Lost { source: ConnectionLoss::ShuttingDown, report, .. } = &error else {
        panic!("{error:?}")
    };
    let cut_short = report.cut_short.as_ref().unwrap();
    assert_eq!(cut_short.reason, "the server is shutting down");
    assert!(report.reads.errors > 0, "{report:?}");
}

#[test]
fn stopping_ends_even_if_the_server_hangs() {
    let server = Nbdkit::start(&["memory", "16M"]);
    let handle = RunningLoad::connect(LoadConfig {
        arrivals: LoadArrivals::Closed { depth: 64, think: Duration::ZERO },
        read_fraction: 0.0,
        block: Bytes::from_mib(1),
        duration: None,
        ..server.config()
    })
    .unwrap()
    .start()
    .unwrap();
    until_true("the load runs", || handle.sample().writes.count > 0);
    server.signal(Signal::STOP);
    until_true("every thread of the server has stopped", || server.is_stopped());
    until_true("what it had answered is read, and some are outstanding", || {
        // Time in which a server that runs would answer.
        thread::sleep(Duration::from_millis(100));
        let since_last = handle.sample();
        since_last.in_flight > 0 && since_last.writes.count == 0
    });
    handle.stop();
    let report = handle.join().unwrap();
    assert!(report.unanswered > 0, "{report}");
}

#[test]
fn a_handle_that_is_dropped_ends_the_load() {
    let server = Nbdkit::start(&["memory", "1M"]);
    drop(RunningLoad::connect(LoadConfig { duration: None, ..server.config() }).unwrap().start().unwrap());
}

#[test]
fn an_export_that_cannot_take_the_load_says_why() {
    let unsuitable = |arguments: &[&str], change: &dyn Fn(&mut LoadConfig)| {
        let server = Nbdkit::start(arguments);
        let mut config = server.config();
        change(&mut config);
        match RunningLoad::connect(config) {
            Err(LoadError::Unsuitable { source, .. }) => source,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        unsuitable(&["-r", "memory", "1M"], &|config| config.read_fraction = 0.0),
        UnsuitableExport::ReadOnly
    );
    assert!(matches!(unsuitable(&["memory", "1k"], &|_| {}), UnsuitableExport::Region { .. }));
}

#[test]
fn what_is_wrong_with_the_target_is_said() {
    let failure = |target: LoadTarget| match RunningLoad::connect(LoadConfig::new(target)) {
        Err(error @ LoadError::Connect { .. }) => (error.to_string(), error),
        other => panic!("{other:?}"),
    };
    let source = |error| match error {
        LoadError::Connect { source, .. } => source,
        other => panic!("{other:?}"),
    };

    let nowhere = LoadTarget::unix("/nonexistent/socket", ExportName::default());
    let (text, error) = failure(nowhere);
    assert!(text.starts_with("nbd+unix:///?socket=/nonexistent/socket: cannot connect: "), "{text}");
    assert!(matches!(source(error), ConnectError::Socket(_)));

    let server =
        Nbdkit::start(&["--filter=exportname", "memory", "1M", "exportname=disk", "exportname-strict=true"]);
    let (text, error) = failure(LoadTarget::unix(server.socket(), ExportName::new("disc").unwrap()));
    assert!(text.contains("/disc?"), "{text}");
    let ConnectError::Handshake(ClientError::Refused { refusal: OptionRefusal::Unknown, .. }) = source(error)
    else {
        panic!("{text}")
    };

    let folder = tempfile::tempdir().unwrap();
    for (name, greeting) in [("ssh", &b"SSH-2.0-OpenSSH_9.2p1 Debian"[..]), ("mute", b"")] {
        let path = folder.path().join(name);
        let (text, error) = failure(stranger(&path, greeting));
        match source(error) {
            ConnectError::Handshake(ClientError::NotNbd(_)) if name == "ssh" => {}
            ConnectError::Closed if name == "mute" => {}
            other => panic!("{name}: {other:?} {text}"),
        }
    }
}

/// Something that listens, greets, and hangs up.
fn stranger(path: &Path, greeting: &'static [u8]) -> LoadTarget {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || listener.accept().unwrap().0.write_all(greeting).unwrap());
    LoadTarget::unix(path, ExportName::default())
}
