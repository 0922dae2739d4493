//! `tidegate rehearse` on journals of simulated gateways.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tidegate_control::{ControlLoop, LawConfig, LawKind, LoopConfig, Observation};
use tidegate_journal::{JournalConfig, JournalWriter};
use tidegate_sim::{Recorder, Scenario, simulate};
use tidegate_units::{HostName, Instant};

/// A database beside two backups that come and go, on four exponential servers.
const BURSTS: &str = "
name = 'bursts'
duration = '600s'
[array.lun]
rate = '500 IO/s'
servers = 4
[host.h]
target = '15ms'
[workload.reads]
rate = '60 IO/s'
size = '8KiB'
[workload.writes]
outstanding = 8
size = '64KiB'
reads = 0.0
cycle = { on = '45s', off = '45s' }
[vm.database]
workload = 'reads'
protected = true
[vm.backup]
count = 2
workload = 'writes'
";

/// Design seed.
const SEED: u64 = 1_000_700;

/// Observations of a loop, in their order.
#[derive(Default)]
struct Observations(Vec<Observation>);

impl Recorder for Observations {
    fn observation(&mut self, _: &HostName, observation: &Observation) {
        self.0.push(Observation { cluster: None, ..observation.clone() });
    }

    fn wants_rows(&self) -> bool {
        false
    }
}

/// Writes the journal of a simulated gateway, on a dry run or not.
fn journal(folder: &Path, dry_run: bool) {
    let mut scenario = Scenario::parse("bursts", BURSTS).unwrap();
    let host = &mut scenario.hosts[0];
    let target = host.law.as_ref().unwrap().target;
    let law = LoopConfig::new(host.array.clone(), target, LawConfig::of_kind(LawKind::Auto));
    let law = LoopConfig { dry_run, ..law };
    host.law = Some(law.clone());
    let mut observations = Observations::default();
    simulate(&scenario, SEED, &mut observations).unwrap();

    // The end of the simulated time is now.
    let end = Instant::ZERO + Duration::from_secs(600);
    let writer = JournalWriter::start(JournalConfig::new(folder.to_owned(), "test".to_owned()), end).unwrap();
    let mut control = ControlLoop::new(law).unwrap();
    let mut resource = writer.resource(&control, Instant::ZERO);
    for observation in &observations.0 {
        let (commands, decision) = control.step(observation.at, observation);
        resource.record(&control, observation, &commands, &decision, None);
    }
    writer.close();
    assert_eq!(writer.retention().dropped, 0);
}

fn rehearse(journal: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["rehearse", "--journal"]).arg(journal).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_dry_run_is_rehearsed_the_same_way_each_time() {
    let keep = tempfile::tempdir().unwrap();
    let folder = keep.path().join("journal");
    journal(&folder, true);
    let page = keep.path().join("page.html");
    let told = rehearse(&folder, &["--html", page.to_str().unwrap()]);
    assert_eq!(told.status.code(), Some(0), "{}{}", text(&told.stdout), text(&told.stderr));
    let said = text(&told.stdout);
    assert!(said.starts_with("lun: with the law, protected reads above 15.0ms in "), "{said}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains(said.lines().next().unwrap().split_once(": ").unwrap().1));

    let once = rehearse(&folder, &["lun", "--json"]);
    let again = rehearse(&folder, &["--json"]);
    assert_eq!(text(&once.stdout), text(&again.stdout), "same journal, same report");
    let document: Value = serde_json::from_slice(&once.stdout).unwrap();
    let measured = document[0]["measured"]["above_fraction"].as_f64().unwrap();
    assert!(measured > 0.3, "the backups are on for half of the time: {measured}");
    let predicted = &document[0]["outcome"]["predicted"];
    let above = predicted["above_fraction"]["likely"].as_f64().unwrap();
    assert!(above < measured / 4.0, "{above} after {measured}");
    let backup = &predicted["consumers"][1];
    assert_eq!((&backup["name"], &backup["demand"]), (&"backup-1".into(), &"closed".into()));
    assert_eq!(predicted["consumers"][0]["demand"], "open");

    let unknown = rehearse(&folder, &["lum"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("did you mean `lun`?"), "{}", text(&unknown.stderr));
}

#[test]
fn nothing_is_claimed_of_a_time_in_which_the_law_throttled() {
    let keep = tempfile::tempdir().unwrap();
    let folder = keep.path().join("journal");
    journal(&folder, false);
    let told = rehearse(&folder, &["--json"]);
    assert_eq!(told.status.code(), Some(1), "{}", text(&told.stdout));
    let document: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(document[0]["outcome"]["refused"][0]["reason"], "law_acted");
    let told = rehearse(&folder, &[]);
    assert!(text(&told.stdout).contains("choose a span of a dry run"), "{}", text(&told.stdout));
}
