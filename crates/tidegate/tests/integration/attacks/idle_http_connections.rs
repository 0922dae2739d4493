//! Connections that send half a request and then nothing, hundreds of them: each held a descriptor for ever,
//! until there was none left for new sessions, for the broker's clients, or for the files by which an agent
//! releases.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::service::Service;
use tidegate_testing::until;

/// More than a service may have open here, and fewer than this test may.
const HOGS: usize = 600;
const DESCRIPTORS: u64 = 400;

fn few_descriptors(service: &Service) {
    let pid = Pid::from_raw(i32::try_from(service.pid()).unwrap());
    let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    prlimit(pid, Resource::Nofile, limit).unwrap();
}

fn hogs(address: &str) -> Vec<TcpStream> {
    let hog = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // It may be closed already.
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
        stream
    };
    (0..HOGS).map(hog).collect()
}

fn open_files(service: &Service) -> usize {
    fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().count()
}

#[test]
fn idle_connections_to_the_metrics_leave_room_for_sessions_and_scrapes() {
    let service = Service::start(
        "serve",
        "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\nbackend = { kind = 'file' }\n\
         export.a = { path = 'disk.raw' }\n",
    );
    few_descriptors(&service);
    let before = open_files(&service);
    let mut hogs = hogs(&service.address());
    let displaced = "tidegate_http_refused_connections_total{reason=\"displaced\"}";
    // A scrape gets in while they are there: its request comes with its connection.
    until("displaced connections", || service.metric(displaced).filter(|count| *count > 400.0));
    let load = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["load", &service.uri("a"), "--duration", "100ms"])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(load.success(), "a new session");
    assert!(open_files(&service) < before + 80, "{} files are open", open_files(&service));
    // Nor does one stay that nothing displaces.
    let last = hogs.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    // Closed with or without an answer.
    let _ = last.read_to_end(&mut rest);
    until("the end of all of them", || (open_files(&service) <= before + 2).then_some(()));
    service.await_log("refused or closed before their answer");
}

#[test]
fn idle_connections_to_a_broker_leave_room_for_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "listen = '127.0.0.1:0'\nstate = 'state'\n[node.a]\nplace = 'file://{}'\npeak = '60MB/s'\n",
        folder.path().display()
    );
    let service = Service::start("broker", &config);
    let log = service.log();
    let ready = log.lines().find_map(|line| line.split_once("on http://")?.1.strip_suffix(" ready"));
    let address = ready.unwrap().to_owned();
    few_descriptors(&service);
    let _hogs = hogs(&address);
    let nodes = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["transfer", "nodes", "--broker", &format!("http://{address}")])
        .output()
        .unwrap();
    assert!(nodes.status.success(), "{}", String::from_utf8_lossy(&nodes.stderr));
}
