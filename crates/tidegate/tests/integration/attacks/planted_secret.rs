//! A password in an address or in a configuration is refused, and printed nowhere.

use std::fs;

use crate::service::{text, tidegate};

const PLANTED: &str = "hunter2";

/// Runs the program to its end, and asserts that it is wrong usage and says nothing of the password.
#[track_caller]
fn is_refused(arguments: &[&str]) {
    let ended = tidegate(arguments);
    let said = text(&ended.stdout) + &text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(!said.contains(PLANTED) && !said.is_empty(), "{arguments:?}: {said}");
}

#[test]
fn in_a_configuration() {
    const SERVE: &str = "listen = ['unix:s']\n[pool.p]\n";
    const RESOURCE: &str = "[resource.r]\ndevice = 'sda'\ntarget = '15ms'\n";
    const CLUSTER: &str = "[cluster]\nname = 'c'\nhost = 'h'\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    for (command, configuration) in [
        (
            "check",
            format!("{RESOURCE}source = {{ prometheus = 'http://u:{PLANTED}@h', query = 'q', unit = 's' }}"),
        ),
        (
            "check",
            format!("{RESOURCE}source = {{ prometheus = 'h://u:{PLANTED}@h', query = 'q', unit = 's' }}"),
        ),
        ("check", format!("brokers = ['https://u:{PLANTED}@h']\n[sensor.n]\npath = '/tmp'\n")),
        ("check", format!("brokers = ['u://u:{PLANTED}@h']\n[sensor.n]\npath = '/tmp'\n")),
        ("check", format!("{CLUSTER}nats = {{ servers = ['nats://u:{PLANTED}@h'] }}\n{RESOURCE}")),
        (
            "check",
            format!("{CLUSTER}nats = {{ servers = ['nats://h'], password = '{PLANTED}' }}\n{RESOURCE}"),
        ),
        ("check", format!("{SERVE}backend = {{ kind = 'nbd', uri = 'nbd://u:{PLANTED}@h/x' }}\n")),
        ("check", format!("api = {{ listen = ['unix:a'], token = '{PLANTED}' }}\n{SERVE}")),
        ("check", format!("metrics = 'http://u:{PLANTED}@h'\n{SERVE}")),
        ("broker", format!("listen = '127.0.0.1:1'\n[node.n]\nplace = 'http://u:{PLANTED}@h/'\n")),
        (
            "broker",
            format!("[catalogue]\nnats = ['nats://u:{PLANTED}@h']\n[node.n]\nplace = 'file:///tmp'\n"),
        ),
        ("broker", format!("[node.n]\nplace = 's3://b/'\nendpoint = 'http://u:{PLANTED}@h'\n")),
        // Not TOML at all.
        ("check", format!("password = \"{PLANTED}\" \"\n")),
    ] {
        fs::write(&path, configuration).unwrap();
        is_refused(&[command, "-c", path.to_str().unwrap()]);
    }
}

#[test]
fn in_an_argument() {
    let http = format!("http://u:{PLANTED}@127.0.0.1:1");
    let nbd = format!("nbd://u:{PLANTED}@127.0.0.1/export");
    is_refused(&["status", "--url", &http]);
    is_refused(&["top", "--url", &http]);
    is_refused(&["release", "--url", &http]);
    is_refused(&["transfer", "list", "--broker", &http]);
    is_refused(&["load", &nbd]);
    is_refused(&["load", &format!("nbd://u:{PLANTED}/x@127.0.0.1/export")]);
    is_refused(&["identify", "--live", &nbd]);
    is_refused(&["admit", "--live", &nbd]);
}
