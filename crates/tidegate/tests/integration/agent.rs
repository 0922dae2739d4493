//! `tidegate agent` as a service, on a dry run: it needs no privileges then, and touches nothing.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidegate_host::throttle::Guardian;
use tidegate_testing::{ALONE, Lack, has_namespaces, has_programs, skip, test_command, until, until_true};

use crate::service::Service;

const DRY: &str = "
metrics = '127.0.0.1:0'
[resource.gone]
device = 'no-such-device'
law = 'pid'
target = '15ms'
dry_run = true
";

#[test]
fn a_dry_run_is_seen_reloaded_and_ended() {
    let agent = Service::start("agent", DRY);
    assert_eq!(agent.get("/healthz"), "ok\n");
    let of_gone = |metric: &str| format!("tidegate_resource_{metric}{{resource=\"gone\"}}");
    assert_eq!(agent.metric(&of_gone("present")), Some(0.0));
    assert_eq!(agent.metric(&of_gone("dry_run")), Some(1.0));
    assert_eq!(agent.metric("tidegate_agent_sees"), Some(1.0));
    assert_eq!(agent.metric("tidegate_agent_guardian_starts_total"), Some(0.0), "nothing is to be undone");
    until("a decision", || {
        agent
            .metric("tidegate_resource_decisions_total{resource=\"gone\",input=\"idle\"}")
            .filter(|n| *n > 0.0)
    });

    let reloads = |result: &str| agent.metric(&format!("tidegate_reloads_total{{result=\"{result}\"}}"));
    agent.configure(&DRY.replace("15ms", "30ms"));
    until("the new target", || agent.metric(&of_gone("set_point_seconds")).filter(|point| *point > 0.02));
    assert_eq!(reloads("applied"), Some(1.0));
    agent.configure("[resource.gone]");
    until("a refusal", || reloads("refused").filter(|refused| *refused > 0.0));
    let restart = DRY.replace("127.0.0.1:0", "127.0.0.1:1");
    agent.configure(&restart);
    agent.await_log("needs a restart to change: metrics");
    // Nothing counts response times.
    agent.configure(&DRY.replace("dry_run", "statistic = 'p95'\ndry_run"));
    agent.await_log("needs a restart to change: statistic");

    let (status, log) = agent.terminate();
    assert!(status.success(), "{log}");
    assert!(log.contains("there is no such storage here, yet"), "{log}");
}

/// What it says when it is started without these capabilities, whoever runs the tests, root or not. In a
/// network namespace of its own no other agent lives. Says that the test is skipped, and returns `None`, if
/// this machine makes no namespaces.
fn said_without(capabilities: &str, config: &str) -> Option<String> {
    // In a user namespace nobody may load BPF, so root makes none.
    let all = ["--map-root-user", "--net"];
    let namespaces = if rustix::process::geteuid().is_root() { &all[1..] } else { &all[..] };
    if !has_namespaces(namespaces) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("agent.toml");
    fs::write(&path, config).expect("a file can be written");
    let output = Command::new("unshare")
        .args(namespaces)
        .args([
            "setpriv",
            "--bounding-set",
            capabilities,
            "--inh-caps",
            capabilities,
            env!("CARGO_BIN_EXE_tidegate"),
        ])
        .args(["agent", "-c"])
        .arg(&path)
        .output()
        .expect("unshare is here");
    let said = String::from_utf8(output.stderr).expect("messages are text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    Some(said)
}

#[test]
fn without_the_right_to_hold_it_does_not_start_and_says_what_it_takes() {
    let Some(said) = said_without("-net_admin", "[resource.vg0]\ntarget = '15ms'\n") else { return };
    assert!(said.contains("tidegate: cannot remove what was left in the kernel: "), "{said}");
    assert!(said.contains("root or CAP_NET_ADMIN is needed"), "{said}");
}

#[test]
fn without_the_right_to_count_it_does_not_steer_by_a_percentile_and_says_what_it_takes() {
    for asked in [DRY.replace("dry_run", "statistic = 'p95'\ndry_run"), format!("histograms = true{DRY}")] {
        let Some(said) = said_without("-bpf,-perfmon,-sys_admin", &asked) else { return };
        assert!(said.contains("tidegate: cannot count response times: "), "{said}");
        assert!(said.contains("a percentile as `statistic`, take Linux 5.12 or newer"), "{said}");
    }
}

/// Whatever the kernel has: rules take a program.
#[test]
fn an_agent_that_could_hold_nobody_does_not_start_and_names_what_is_lacking() {
    if !has_namespaces(&["--net", "--mount"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("agent.toml");
    fs::write(&path, "[resource.vg0]\ntarget = '15ms'\n").expect("a file can be written");
    let [program, alone @ ..] = ALONE;
    let output = Command::new(program)
        .args(alone)
        .args(["/usr/bin/env", "PATH=/nowhere", env!("CARGO_BIN_EXE_tidegate"), "agent", "-c"])
        .arg(&path)
        .output()
        .expect("unshare is here");
    let said = String::from_utf8(output.stderr).expect("messages are text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the throttle `netem` cannot throttle here: "), "{said}");
    assert!(said.contains("it takes the package nftables") && !said.contains("ready"), "{said}");
}

#[test]
fn with_dry_run_on_the_command_line_nobody_is_held_after_a_reload_either() {
    let acting = DRY.replace("dry_run = true", "");
    let agent = Service::start_with("agent", &["--dry-run"], &acting);
    let dry = "tidegate_resource_dry_run{resource=\"gone\"}";
    assert_eq!(agent.metric(dry), Some(1.0));
    agent.configure(&acting.replace("15ms", "30ms"));
    agent.await_log("reloaded");
    assert_eq!(agent.metric(dry), Some(1.0));
    assert_eq!(agent.metric("tidegate_agent_guardian_starts_total"), Some(0.0), "nothing is to be undone");
}

/// An agent with a guardian, which panics.
#[test]
#[ignore = "another test starts this one"]
fn an_agent_that_panics() {
    let presence = UnixDatagram::unbound().expect("a socket can be made");
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let _guardian = Guardian::start(program, &["guard"], presence.into(), Duration::from_secs(60))
        .expect("a guardian can be started");
    panic!("as an agent may");
}

#[test]
fn after_a_panic_nothing_is_left() {
    if has_namespaces(&["--net", "--mount"]) && has_programs(&["nft"]) {
        let mut test = test_command(module_path!(), "a_panic_that_leaves_nothing", &ALONE);
        assert!(test.status().expect("unshare is here").success(), "see above");
    }
}

/// The guardian outlives the agent and removes its limits. A table of nftables stands for a limit here.
#[test]
#[ignore = "another test starts this one, where its guardian undoes nothing of other programs"]
fn a_panic_that_leaves_nothing() {
    let nft = |action: &str| {
        let arguments = [action, "table", "netdev", "tidegate"];
        Command::new("nft").args(arguments).output().expect("nft is here")
    };
    let added = nft("add");
    if !added.status.success() {
        return skip(Lack::Kernel("nf_tables"), String::from_utf8_lossy(&added.stderr).trim_end());
    }
    let agent = test_command(module_path!(), "an_agent_that_panics", &[]).output();
    let said = String::from_utf8(agent.expect("this program runs once more").stderr).expect("text");
    assert!(said.contains("as an agent may"), "it did not panic: {said}");
    // The guardian has two seconds; here a busy machine's.
    until_true("the end of the table", || !nft("list").status.success());
}
