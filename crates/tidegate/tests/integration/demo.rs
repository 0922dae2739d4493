//! The demonstration as a person or a script runs it: the real binary, short. What it measures here says
//! nothing: the machine that runs tests is busy. The figures come from `make demo` and from the laboratory.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["demo", "--no-tui", "--burst=4s", "--pause=1s", "--duration=14s", "--seed=7"]);
    command
}

#[test]
fn a_short_run_yields_one_document_and_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.html");
    let output = demo().arg("--json").arg("--report").arg(&report).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document and nothing else");
    let [alone, unregulated, regulated] = &document["phases"].as_array().unwrap()[..] else {
        panic!("three phases: {document}")
    };
    for phase in [alone, unregulated, regulated] {
        // 64 reads are due every second; some may still be on their way when the phase ends.
        let due = 64 * phase["seconds"].as_u64().unwrap();
        let reads = phase["victim_reads"].as_u64().unwrap();
        assert!(reads > due / 2 && reads <= due, "{reads} of {due}: {phase}");
        assert!(phase["victim_latency_ms"]["p50"].as_f64().unwrap() > 1.0, "{phase}");
    }
    assert_eq!(alone["writers_bytes_per_s"], 0.0);
    let writers = |phase: &Value| phase["writers_bytes_per_s"].as_f64().unwrap();
    assert!(writers(unregulated) > 1e6 && writers(regulated) > 1e6, "{document}");
    assert!(errors.contains("regulated: backups"), "progress: {errors}");
    let page = std::fs::read_to_string(report).unwrap();
    assert!(
        page.contains("throttled to a window of") || page.contains("nothing throttled"),
        "no decision is told"
    );
}

#[test]
fn a_signal_ends_it_with_an_error_and_without_a_document() {
    let mut child = demo().arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = errors.next().unwrap().unwrap();
    assert!(first.contains("alone"), "{first}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let last = errors.last().unwrap().unwrap();
    assert_eq!(last, "tidegate: stopped before the end: there is no result");
}

#[test]
fn what_cannot_run_is_wrong_usage() {
    let output = demo().arg("--target=0ms").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("--target"), "{errors}");
}
