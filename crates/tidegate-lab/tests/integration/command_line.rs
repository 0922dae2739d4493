//! The real binary: what it prints where, and its exit status.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn tidegate_lab(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate-lab")).args(arguments).current_dir(folder).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn help_and_version_are_no_failure_and_a_missing_command_is_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["--version"], &["reproduce", "--help"], &["arena", "--version"]] {
        let output = tidegate_lab(arguments, folder.path());
        assert_eq!((status(&output), text(&output.stderr)), (0, ""), "{arguments:?}");
        assert!(text(&output.stdout).contains("tidegate-lab"), "{arguments:?}");
    }
    assert_eq!(status(&tidegate_lab(&[], folder.path())), 2);
    assert_eq!(status(&tidegate_lab(&["reproduce", "--lst"], folder.path())), 2);
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-lab"));
    let output = command.args(["reproduce", "--list"]).stdout(writer).output().unwrap();
    assert_eq!((status(&output), text(&output.stderr)), (0, ""));
}

#[test]
fn reproduce_lists_what_there_is_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = tidegate_lab(&["reproduce", "--list"], folder.path());
    assert_eq!((status(&output), text(&output.stderr)), (0, ""));
    let said = text(&output.stdout);
    let fig8 = said.lines().find_map(|line| line.strip_prefix("parda.fig8 ")).unwrap();
    assert_eq!(fig8.trim(), "Four hosts at 1:1:2:2");
    for id in [
        "parda.fig2 ",
        "parda.threshold ",
        "parda.eq3 ",
        "parda.table7 ",
        "parda.per-vm ",
        "bjorgeengen.fig8-9 ",
    ] {
        assert!(said.contains(id), "{id} is missing: {said}");
    }
    let output = tidegate_lab(&["reproduce", "--list", "--json", "parda.fig8", "table7"], folder.path());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ids: Vec<_> = document["experiments"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, ["parda.fig8", "parda.table7"]);
    assert!(document["experiments"][1]["quantities"][0]["reason"].is_string());
}

#[test]
fn an_unknown_experiment_gets_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let output = tidegate_lab(&["reproduce", "parda.fig88"], folder.path());
    assert_eq!((status(&output), text(&output.stdout)), (2, ""));
    assert_eq!(
        text(&output.stderr),
        "tidegate-lab: there is no experiment `parda.fig88`; did you mean `parda.fig8`?\n"
    );
}

#[test]
fn reproduce_judges_and_leaves_report_and_series() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["reproduce", "eq3", "--short", "--json", "--report", "r.html", "--out", "series"];
    let output = tidegate_lab(&arguments, folder.path());
    assert_eq!((status(&output), text(&output.stderr)), (0, ""));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let experiment = &document["experiments"][0];
    assert_eq!((&document["ok"], &experiment["ok"]), (&true.into(), &true.into()));
    assert_eq!(
        (&experiment["id"], &experiment["runs"][0]["laws"][0]["k"]),
        (&"parda.eq3".into(), &1.0.into())
    );
    for quantity in experiment["quantities"].as_array().unwrap() {
        for key in ["name", "paper", "ours", "tolerance", "ok", "reason"] {
            assert!(quantity.get(key).is_some(), "{key}: {quantity}");
        }
        assert_eq!(quantity["values"].as_array().unwrap().len(), 2, "one for each seed");
    }
    let page = fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.contains("1 of 1 experiments agree") && page.contains("<polyline"));
    assert!(!page.contains("<script") && !page.contains("http"), "the page needs nothing else");
    let series = fs::read_to_string(folder.path().join("series/parda.eq3.eq3.csv")).unwrap();
    assert!(series.starts_with("time_s,host,consumer,window,rate,beta,"));
    assert_eq!(series.lines().count(), 1 + 4 * 400, "four machines for 400 s");
}

#[test]
fn the_arena_prints_one_document_and_keeps_its_oracle() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-lab"));
        command.arg("arena").args(arguments).current_dir(folder.path());
        command.env("XDG_CACHE_HOME", folder.path().join("cache")).output().unwrap()
    };
    // A slow volume, which takes a part of a second.
    let arguments = ["--seed", "1000002", "--count", "1", "--law", "window", "--json", "--report", "a.html"];
    let output = run(&arguments);
    assert_eq!((status(&output), text(&output.stderr)), (0, ""));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["seed"], 1_000_002);
    assert_eq!(document["scenarios"][0]["id"], "slow-1000002");
    assert_eq!(document["scenarios"][0]["settling_s"], serde_json::Value::Null);
    assert!(document["summary"]["harm"]["worst"].is_number());
    assert!(fs::read_to_string(folder.path().join("a.html")).unwrap().contains("slow-1000002"));
    assert_eq!(run(&arguments).stdout, output.stdout, "the cached oracle gives the same bytes");
    let written = |name: &str, target: &str| {
        let text = format!(
            "name = \"{name}\"\nduration = \"20s\"\n[array.volume]\nrate = \"64 IO/s\"\n[host.h]\n{target}\n\
             [workload.w]\noutstanding = 8\n[vm.a]\nworkload = \"w\"\ngoal = \"100ms\"\n"
        );
        let path = folder.path().join(format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let file = written("eight", "target = \"60ms\"");
    let output = run(&[&file, "--seed", "1000002", "--count", "2", "--json"]);
    assert_eq!((status(&output), text(&output.stderr)), (0, ""));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["scenarios"][1]["id"], "eight-1000003");
    assert_eq!(document["scenarios"][1]["file"], file);
    assert!(document["classes"]["eight"].is_object());
    let output = run(&[&written("none", "")]);
    assert_eq!((status(&output), text(&output.stdout)), (2, ""));
    assert!(text(&output.stderr).contains("none.toml") && text(&output.stderr).contains("`target`"));
    let output = run(&[&file, &file]);
    assert_eq!(status(&output), 2);
    assert!(text(&output.stderr).contains("`eight`"), "{}", text(&output.stderr));
    for wrong in [&["--seed", "-1"][..], &["--count", "0"], &["--law", "windows"], &["--count", "many"]] {
        let output = run(wrong);
        assert_eq!((status(&output), text(&output.stdout)), (2, ""), "{wrong:?}");
        assert!(text(&output.stderr).contains(wrong[1]), "{}", text(&output.stderr));
    }
}
