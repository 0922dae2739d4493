//! `tidegate identify --model`: the real binary on models of storage.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn identify(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(folder).args(["identify", "--model"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn document(folder: &Path, arguments: &[&str]) -> Value {
    let output = identify(folder, &[arguments, &["--json"]].concat());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_table_says_what_the_document_says() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["dnes-309170w", "--rate", "40/s", "--arrivals", "poisson", "--points", "10"];
    let found = document(folder.path(), &arguments);
    let output = identify(folder.path(), &arguments);
    let said = text(&output.stdout);
    let number = |key: &str| found[key].as_f64().unwrap();
    let gain = format!("Process gain at 40.0 IO/s: G = {:.4} ms per IO/s", number("gain_ms_per_iops"));
    assert!(said.contains(&gain) && !said.contains("warning"), "{said}");
    assert!(found["warnings"].as_array().unwrap().is_empty());
    // By the steeper of both slopes: K = (1 − p)/G.
    let steeper = number("gain_ms_per_iops").max(number("local_gain_ms_per_iops"));
    assert!((number("controller_gain_iops_per_ms") - 0.1 / steeper).abs() < 1e-9);
    assert!((number("stable_below_iops_per_ms") - 2.0 / steeper).abs() < 1e-9);
    assert!(said.contains(&format!("K = {:.3} IO/s per ms for a pole at 0.9", 0.1 / steeper)), "{said}");
    let points = found["points"].as_array().unwrap();
    for (point, row) in points.iter().zip(said.lines().skip(3)) {
        let linear = point["offered_iops"].as_f64().unwrap() <= number("stable_to_iops");
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells[0], format!("{:.1}", point["offered_iops"].as_f64().unwrap()));
        assert_eq!(cells[4] == "linear", linear, "{row}");
    }
    assert_eq!(points.len(), 10);
    // Three quarters of the most, as the paper assumes.
    assert!((number("assumed_sustained_iops") / number("greatest_iops") - 0.75).abs() < 1e-9);
}

#[test]
fn a_pole_that_is_not_stable_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for pole in ["1", "-1", "2.5", "NaN", "near"] {
        let output = identify(folder.path(), &["dnes-309170w", &format!("--pole={pole}")]);
        assert_eq!(output.status.code(), Some(2), "{pole}");
        assert!(text(&output.stderr).contains("--pole"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_rate_beyond_the_linear_region_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let found = document(folder.path(), &["dnes-309170w", "--arrivals", "poisson", "--rate", "80"]);
    let warnings = found["warnings"].as_array().unwrap();
    assert!(warnings[0].as_str().unwrap().starts_with("80.0 IO/s is outside of the region"), "{warnings:?}");
}

#[test]
fn no_gain_is_proposed_where_the_storage_does_not_keep_up() {
    let folder = tempfile::tempdir().unwrap();
    let found = document(folder.path(), &["dnes-309170w", "--arrivals", "poisson", "--rate", "120"]);
    let warnings = found["warnings"].as_array().unwrap();
    assert!(warnings[0].as_str().unwrap().starts_with("120.0 IO/s is more than "), "{warnings:?}");
    assert!(found["controller_gain_iops_per_ms"].is_null(), "{found}");
    let output = identify(folder.path(), &["dnes-309170w", "--arrivals", "poisson", "--rate", "120"]);
    assert!(text(&output.stdout).contains("No controller can work there"), "{}", text(&output.stdout));
}

#[test]
fn a_size_that_no_read_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (size, why) in [("0B", "a byte at least"), ("1TiB", "32 MiB at the most"), ("large", "")] {
        let output = identify(folder.path(), &["dnes-309170w", "--size", size]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("--size") && said.contains(why), "{said}");
    }
}

/// M/M/1: 1/(μ − λ).
#[test]
fn a_file_names_the_storage_and_its_tenants_are_the_load() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("storage.toml"), "storage = { rate = \"1 kIO/s\" }\n").unwrap();
    let tenants = "[storage]\nrate = \"1 kIO/s\"\n\
                   [tenant.a]\niops = 200\nsize = \"4KiB\"\nresponse_time = \"35ms\"\n\
                   [tenant.b]\niops = 100\nsize = \"4KiB\"\nresponse_time = \"35ms\"\n";
    fs::write(folder.path().join("tenants.toml"), tenants).unwrap();
    for (file, at) in [("storage.toml", None), ("tenants.toml", Some(300.0))] {
        let found = document(folder.path(), &[file, "--arrivals", "poisson"]);
        assert!(at.is_none() || found["at_iops"].as_f64() == at, "{found}");
        let middle = &found["points"][9];
        let offered = middle["offered_iops"].as_f64().unwrap();
        let expected = 1.0 / (1_000.0 - offered);
        assert!((middle["mean_s"].as_f64().unwrap() / expected - 1.0).abs() < 0.08, "{middle}");
    }
    let output = identify(folder.path(), &["tenants.toml", "--size", "8KiB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("leave out --size"), "{}", text(&output.stderr));
}

#[test]
fn the_report_is_one_page_with_its_plot() {
    let folder = tempfile::tempdir().unwrap();
    let output = identify(folder.path(), &["dnes-309170w", "--points", "5", "--report", "profile.html"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    assert!(text(&output.stdout).ends_with("Report: profile.html\n"));
    let page = fs::read_to_string(folder.path().join("profile.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // Two lines, and the dashes of the third.
    assert!(page.matches("<polyline").count() > 2, "{page}");
    assert!(!page.contains("NaN") && !page.contains("inf\""));
    let output = identify(folder.path(), &["dnes-309170w", "--points", "5", "--report", "no/folder.html"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    assert!(text(&output.stderr).starts_with("tidegate: no/folder.html: the report cannot be written"));
}

#[test]
fn white_noise_finds_a_model_and_a_gain_for_it() {
    let folder = tempfile::tempdir().unwrap();
    // Fifteen fits; the file's server is quicker to simulate than a disk.
    fs::write(folder.path().join("storage.toml"), "storage = { rate = \"200 IO/s\" }\n").unwrap();
    let arguments = ["storage.toml", "--excite", "--rate", "100/s"];
    let found = document(folder.path(), &arguments);
    assert_eq!(found, document(folder.path(), &arguments), "it depends on the seed alone");
    assert_ne!(found, document(folder.path(), &[&arguments[..], &["--seed", "2"]].concat()));
    assert_eq!((found["from_iops"].as_f64(), found["to_iops"].as_f64()), (Some(50.0), Some(150.0)));
    assert_eq!(found["fits"].as_array().unwrap().len(), 15);
    let chosen = &found["recommended"];
    let number = |key: &str| chosen[key].as_f64().unwrap();
    // Between M/M/1's slopes at the ends, 1/(μ − λ)²: the more requests, the slower, and at once.
    let beta = chosen["beta_ms_per_iops"][0].as_f64().unwrap();
    assert!(1e3 / (150.0f64 * 150.0) < beta && beta < 1e3 / (50.0f64 * 50.0), "{beta}");
    assert!(number("controller_gain_iops_per_ms") < number("stable_below_iops_per_ms"));
    assert!(chosen["poles"].as_array().unwrap().len() == chosen["order"].as_u64().unwrap() as usize + 1);
    assert_eq!(chosen["gains"].as_array().unwrap().len(), 100);
    let output = identify(folder.path(), &arguments);
    let said = text(&output.stdout);
    assert!(said.contains("white noise between 50 IO/s and 150 IO/s, 8 clients"), "{said}");
    assert!(said.contains("A fixed integral controller is stable below K_I = "), "{said}");
    assert!(!said.contains("nothing to base a controller on"), "{said}");
    // All of it is beyond what the server does: whatever is asked for, it does the same.
    let output = identify(folder.path(), &["storage.toml", "--excite", "--rate", "100000"]);
    assert!(
        text(&output.stdout).contains("nothing to base a controller on: try another --rate"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn the_models_report_has_what_was_measured_and_what_gains_do() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("storage.toml"), "storage = { rate = \"200 IO/s\" }\n").unwrap();
    let arguments = ["storage.toml", "--excite", "--rate", "100", "--report", "model.html"];
    let output = identify(folder.path(), &arguments);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let page = fs::read_to_string(folder.path().join("model.html")).unwrap();
    let lines = |colour: &str| {
        let lines = page.split("<polyline").skip(1).filter_map(|rest| rest.split('>').next());
        lines.filter(|line| line.contains(colour)).count()
    };
    assert_eq!(lines("#4773AA"), 1, "measured");
    assert_eq!(lines("#C83E4D"), 3, "predicted, settling time, overshoot");
    assert!(!page.contains("NaN") && !page.contains("inf\""));
}

#[test]
fn what_white_noise_has_no_use_for_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tenants = "storage = { rate = \"1 kIO/s\" }\n\
                   [tenant.a]\niops = 200\nsize = \"4KiB\"\nresponse_time = \"35ms\"\n";
    fs::write(folder.path().join("tenants.toml"), tenants).unwrap();
    for (arguments, said) in [
        (&["dnes-309170w", "--excite", "--pole=0.5"][..], "--pole"),
        (&["dnes-309170w", "--excite", "--seeds=2"], "--seeds"),
        (&["tenants.toml", "--excite"], "leave them out"),
    ] {
        let output = identify(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}
