//! `tidegate init` on this machine, and an agent that starts its throttle when the first dry run ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_host::SystemRoot;
use tidegate_host::cgroup::CgroupTree;

use crate::service::{Service, limits_alone};

/// A cgroup with one in it, while the test runs. `None`: cgroups of this machine cannot be limited.
struct TestCgroup(PathBuf);

impl TestCgroup {
    fn make() -> Option<Self> {
        let tree = CgroupTree::find(&SystemRoot::default()).ok()?;
        let outer = tree.path().join("tidegate-init-test.slice");
        fs::create_dir_all(outer.join("batch.scope")).ok()?;
        fs::create_dir_all(outer.join("database.scope")).ok()?;
        Some(Self(outer))
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        for inner in ["batch.scope", "database.scope", ""] {
            let _ = fs::remove_dir(self.0.join(inner));
        }
    }
}

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_configuration_is_accepted_and_its_agent_throttles_when_the_dry_run_ends() {
    let _lock = limits_alone();
    let Some(_cgroups) = TestCgroup::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    let file = path.to_str().unwrap();
    let init = ["init", "-o", file, "--watch", "1s", "--target", "5ms", "--protect", "*database.scope"];
    let output = tidegate(&init);
    let (said, error) = texts(&output);
    if error.contains("there is nothing to regulate") {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(said.contains(&format!("tidegate agent -c {file}")), "{said}");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("target = \"5.00ms\"") && text.contains("dry_run = true"), "{text}");
    let again = tidegate(&init);
    assert_eq!(again.status.code(), Some(2), "{:?}", texts(&again));
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing is overwritten");
    let (checked, error) = texts(&tidegate(&["check", "-c", file]));
    let verdict = checked.lines().last().unwrap_or_default();
    assert!(verdict.starts_with("verdict: works here; "), "{checked}{error}");
    assert!(verdict.ends_with("all on a dry run, so that nothing is throttled"), "{checked}");

    let name = text.split_once("[resource.").unwrap().1.split_once(']').unwrap().0.to_owned();
    let agent = Service::start("agent", &text.replace("127.0.0.1:9809", "127.0.0.1:0"));
    let guardians = || agent.metric("tidegate_agent_guardian_starts_total");
    assert_eq!(guardians(), Some(0.0), "the kernel is not touched");
    let url = format!("unix:{}", agent.path("agent.sock").display());
    let output = tidegate(&["dry-run", "off", &name, "--url", &url]);
    let (said, error) = texts(&output);
    if output.status.code() == Some(2) {
        // The throttle that was proposed does not work here, and the agent says why.
        assert!(error.contains("cannot throttle here") && text.contains("None works here yet"), "{error}");
        return;
    }
    assert_eq!(
        said,
        format!("{name}: no dry run, the law throttles, until the service restarts\n"),
        "{error}"
    );
    assert_eq!(guardians(), Some(1.0));
    let status: Value =
        serde_json::from_slice(&tidegate(&["status", "--json", "--url", &url]).stdout).unwrap();
    let resources = status["resources"].as_array().unwrap();
    let resource = resources.iter().find(|resource| resource["name"] == *name).unwrap();
    assert_eq!(resource["law"]["dry_run"], false);
    agent.signal("-HUP");
    agent.await_log("reloaded ");
    let said = texts(&tidegate(&["dry-run", "file", &name, "--url", &url])).0;
    assert_eq!(said, format!("{name}: dry run, throttles nothing, as in the configuration\n"));
}
