//! `tidegate release` without a name: every service of the machine is released, whatever its configuration
//! says of an API, or the command fails.

use std::path::Path;
use std::process::Output;

use rustix::process::geteuid;
use serde_json::Value;
use tidegate_testing::limits_alone;

use crate::service::{Service, tidegate_beside};

/// Asserts the status of a release, and returns what was printed.
#[track_caller]
fn released(folder: &Path, options: &[&str], status: i32) -> String {
    let Output { status: ended, stdout, stderr } = tidegate_beside(folder, &[&["release"], options].concat());
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert_eq!(ended.code(), Some(status), "{said}");
    said
}

#[test]
fn a_gateway_is_found_and_released_with_and_without_metrics_and_an_api() {
    const POOL: &str = "
listen = ['unix:nbd.sock']
[pool.p]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
target = '20ms'
export.database = { size = '64MiB', protected = true }
export.backup = { size = '64MiB' }
";
    let api = ["127.0.0.1:0", "unix:a"].map(|address| format!("api = {{ listen = ['{address}'] }}"));
    // An agent of another test would be one that was not asked.
    let _alone = limits_alone();
    for more in ["", "metrics = '127.0.0.1:0'", &api[0], &api[1]] {
        let service = Service::start("serve", &format!("{more}\n{POOL}"));
        let folder = service.path("");
        let file = service.path("tidegate.toml");
        for named in [&[][..], &["-c", file.to_str().unwrap()]] {
            let said = released(&folder, named, 0);
            assert!(said.starts_with("released until ") && said.contains("serve at unix:"), "{more}: {said}");
            let said = released(&folder, &[named, &["--end"]].concat(), 0);
            assert!(said.contains("throttles again; releases that go on: 0"), "{more}: {said}");
        }
        let said: Value = serde_json::from_str(&released(&folder, &["--json"], 0)).unwrap();
        let asked = &said["services"][0];
        assert_eq!((&asked["service"], &asked["outcome"]), (&"serve".into(), &"released".into()), "{said}");
        assert!(asked["address"].as_str().unwrap().starts_with("unix:"), "{said}");
        let kernel = if geteuid().is_root() { "nothing" } else { "not_looked_at" };
        assert_eq!(said["kernel"]["afterwards"], kernel, "{said}");
        let said: Value = serde_json::from_str(&released(&folder, &["--end", "--json"], 0)).unwrap();
        let asked = &said["services"][0];
        assert_eq!((&asked["outcome"], &asked["releases_left"]), (&"throttles_again".into(), &0.into()));
        assert_eq!(said["kernel"], Value::Null);
        // The name is looked for in all services.
        released(&folder, &["backup"], 0);
        let said = released(&folder, &["bakcup"], 2);
        assert!(said.contains("did you mean `backup`?"), "{said}");
    }
}

/// With real limits, as root.
mod of_an_agent {
    use std::fs;
    use std::path::PathBuf;
    use std::thread;
    use std::time::Duration;

    use tidegate_testing::until_true;

    use super::released;
    use crate::service::Service;
    use crate::service::disk_reader::{DiskReader, OwnAgent};

    /// An agent that throttles, beside a gateway. Neither has a word of an API or metrics.
    struct Throttling {
        agent: OwnAgent,
        reader: DiskReader,
        _gateway: Service,
        folder: PathBuf,
    }

    const GATEWAY: &str = "
listen = ['unix:nbd.sock']
[pool.p]
backend = { kind = 'file' }
law = 'none'
export.volume = { path = 'disk.raw' }
";

    impl Throttling {
        /// Says that the test is skipped, and returns `None`, if this machine does not have what this takes.
        fn start(test: &str) -> Option<Self> {
            let reader = DiskReader::start_for_own_agent(test)?;
            let gateway = Service::start("serve", GATEWAY);
            let folder = gateway.path("");
            let (device, cgroup) = (reader.device.name(), reader.cgroup.file_name().unwrap().display());
            let configuration = format!(
                "throttle = 'cgroup'\n[resource.disk]\ndevice = '{device}'\nlaw = 'pid'\ntarget = '20us'\n\
                 cgroups = ['{cgroup}']\n"
            );
            let mut agent = OwnAgent::start(&folder, &configuration);
            until_true("a limit", || {
                agent.expect_alive();
                reader.is_limited()
            });
            Some(Self { agent, reader, _gateway: gateway, folder })
        }
    }

    #[test]
    fn one_without_an_api_throttled_again_three_seconds_after_a_release_that_succeeded() {
        let Some(mut machine) = Throttling::start("release-all") else { return };
        let said = released(&machine.folder, &[], 0);
        assert_eq!(said.matches("released until ").count(), 2, "{said}");
        assert!(said.contains("agent at unix:") && !machine.reader.is_limited(), "{said}");
        // Its law decides each second.
        thread::sleep(Duration::from_secs(4));
        assert!(!machine.reader.is_limited());
        // Nothing is in the kernel now, but this agent lives and was not asked.
        let said = released(&machine.folder, &["--kernel"], 1);
        assert!(said.contains("an agent lives that was not asked"), "{said}");
        let said = released(&machine.folder, &["--json"], 0);
        assert!(said.contains("\"afterwards\": \"of_asked_agents\""), "{said}");
        released(&machine.folder, &["--end"], 0);
        until_true("a limit again", || machine.reader.is_limited());
        machine.agent.terminate();
        let said = released(&machine.folder, &[], 0);
        assert!(said.ends_with("nothing of Tidegate is in the kernel\n"), "{said}");
    }

    #[test]
    fn one_that_hangs_or_is_not_found_is_a_failure_and_what_it_set_is_removed() {
        let Some(machine) = Throttling::start("release-hung") else { return };
        let elsewhere = tempfile::tempdir().unwrap();
        let said = released(elsewhere.path(), &[], 1);
        assert!(
            said.contains("put back the limits") && said.contains("an agent lives that was not asked"),
            "{said}"
        );
        until_true("a limit again", || machine.reader.is_limited());
        machine.agent.signal("-STOP");
        let said = released(&machine.folder, &[], 1);
        for part in ["serve at unix:", "did not answer", "an agent lives that was not asked"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(!machine.reader.is_limited());
        machine.agent.signal("-CONT");
    }

    #[test]
    fn what_a_dead_one_left_is_removed() {
        let Some(mut machine) = Throttling::start("release-dead") else { return };
        machine.agent.kill_with_guardian();
        assert!(machine.reader.is_limited());
        let said = released(&machine.folder, &[], 0);
        assert!(said.contains("put back the limits"), "{said}");
        assert!(!machine.reader.is_limited());
        let files = fs::read_dir(&machine.folder).unwrap().flatten();
        let mut names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
        assert!(names.any(|name| name.starts_with("agent-")), "the socket of the dead agent is still there");
    }
}
