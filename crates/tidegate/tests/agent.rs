//! `tidegate agent` as a service, on a dry run: it needs no privileges then, and touches nothing.

mod service;

use std::fs;
use std::process::Command;

use service::{Service, until};

const DRY: &str = "
metrics = '127.0.0.1:0'
[resource.gone]
device = 'no-such-device'
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

    let (status, log) = agent.terminate();
    assert!(status.success(), "{log}");
    assert!(log.contains("there is no such storage here, yet"), "{log}");
}

#[test]
fn without_the_right_to_hold_it_does_not_start_and_says_what_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("agent.toml");
    fs::write(&config, "[resource.vg0]\ntarget = '15ms'\n").unwrap();
    // Whoever runs the tests, root or not: without this capability.
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin", env!("CARGO_BIN_EXE_tidegate")])
        .args(["agent", "-c"])
        .arg(&config)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("tidegate: cannot remove what was left in the kernel: "), "{said}");
    assert!(said.contains("root or CAP_NET_ADMIN is needed"), "{said}");
}
