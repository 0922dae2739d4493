//! `tidegate init` on this machine, and an agent that starts its throttle when the first dry run ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_host::SystemRoot;
use tidegate_host::cgroup::CgroupTree;
use tidegate_testing::{Lack, has_free_cgroups, has_namespaces, lacks, limits_alone, skip, test_command};

use crate::service::Service;

/// A cgroup with one in it, while the test runs.
struct TestCgroup(PathBuf);

impl TestCgroup {
    /// Says that the test is skipped, and returns `None`, if cgroups of this machine cannot be limited.
    fn make() -> Option<Self> {
        let tree = match CgroupTree::find(&SystemRoot::default()) {
            Ok(tree) if has_free_cgroups(tree.path()) => tree,
            Ok(_) => return None,
            Err(error) => return lacks(Lack::CgroupIo, error),
        };
        let cgroups = Self(tree.path().join("tidegate-init-test.slice"));
        for inner in ["batch.scope", "database.scope"] {
            if let Err(error) = fs::create_dir_all(cgroups.0.join(inner)) {
                return lacks(Lack::CgroupIo, error);
            }
        }
        Some(cgroups)
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
    if has_namespaces(&["--net"]) {
        let network = ["unshare", "--net", "sh", "-c", "ip link set lo up; exec \"$0\" \"$@\""];
        let mut test = test_command(module_path!(), "an_agent_of_a_proposal_throttles", &network);
        assert!(test.status().unwrap().success(), "see above");
    }
}

#[test]
#[ignore = "another test starts this one, in a network namespace where no other agent lives"]
fn an_agent_of_a_proposal_throttles() {
    let Some(_cgroups) = TestCgroup::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    let file = path.to_str().unwrap();
    let init = ["init", "-o", file, "--watch", "1s", "--target", "5ms", "--protect", "*database.scope"];
    let output = tidegate(&init);
    let (said, error) = texts(&output);
    if error.contains("there is nothing to regulate") {
        return skip(Lack::Kernel("a block device"), "there is nothing to regulate");
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
    // Beside a gateway, whose port is 9809 in all examples.
    let (before, after) = text.split_once("127.0.0.1:98").unwrap();
    let (port, after) = after.split_at(2);
    assert!((10..30).contains(&port.parse().unwrap()), "{text}");
    let agent = Service::start("agent", &format!("{before}127.0.0.1:0{after}"));
    let guardians = || agent.metric("tidegate_agent_guardian_starts_total");
    assert_eq!(guardians(), Some(0.0), "the kernel is not touched");
    let url = format!("unix:{}", agent.path("agent.sock").display());
    let output = tidegate(&["dry-run", "off", &name, "--url", &url]);
    let (said, error) = texts(&output);
    if output.status.code() == Some(2) {
        // The throttle that was proposed does not work here, and the agent says why.
        assert!(error.contains("cannot throttle here") && text.contains("None works here yet"), "{error}");
        return skip(Lack::Kernel("a throttle that works"), error.trim_end());
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
