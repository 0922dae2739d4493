//! A log that takes nothing any more, and a client that wants to fill the disk with it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::service::Service;
use tidegate_testing::until;

/// Opens the export `a` and hangs up: a line of the log for each.
fn knock(socket: &std::path::Path) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    // Fixed newstyle without zeroes; NBD_OPT_EXPORT_NAME with a name of one byte.
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x01a").unwrap();
    // While as many sessions are open as may be, it is refused.
    let _ = stream.read_exact(&mut [0; 10]);
}

/// A gateway whose stderr is a pipe that is read up to the line that says that it is ready, and then no more.
fn with_a_stuck_log(folder: &std::path::Path) -> Child {
    let config = folder.join("tidegate.toml");
    fs::File::create(folder.join("disk.raw")).unwrap().set_len(1 << 20).unwrap();
    let text = "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\nbackend = { kind = 'file' \
        }\n[pool.p.export.a]\npath = 'disk.raw'\n";
    fs::write(&config, text).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--log", "trace", "-c"])
        .arg(config)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut said, mut byte) = (Vec::new(), [0]);
    let log = process.stderr.as_mut().unwrap();
    while !said.ends_with(b"ready, listening") {
        log.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    process
}

#[test]
fn a_log_that_is_stuck_keeps_no_client_waiting_and_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = with_a_stuck_log(folder.path());
    let socket = folder.path().join("nbd.sock");
    // A pipe holds 64 KiB: some hundreds of lines.
    (0..3_000).for_each(|_| knock(&socket));
    let killed = Command::new("kill").args(["-TERM", &process.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let begun = Instant::now();
    let status = until("the end of the service", || process.try_wait().unwrap());
    assert!(status.success());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_flood_of_one_cause_is_cut_and_counted() {
    let text = "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\nbackend = { kind = 'file' \
        }\n[pool.p.export.a]\npath = 'disk.raw'\n";
    let service = Service::start("serve", text);
    (0..1_500).for_each(|_| knock(&service.path("nbd.sock")));
    let left_out = "tidegate_log_missing_messages_total{reason=\"repeated\"}";
    until("messages that are left out", || service.metric(left_out).filter(|count| *count > 100.0));
    let lines = service.log().lines().count();
    assert!(lines < 2_000, "{lines} lines");
    // What the end says is not lost.
    let (status, log) = service.terminate();
    assert!(status.success() && log.trim_end().ends_with("drained"), "{log}");
}
