//! Scenarios as files: `scenarios/NAME.toml` with what is said about it in `NAME.expected` beside it. After a
//! change on purpose, `TIDEGATE_UPDATE_EXPECTED=1 cargo test -p tidegate-sim` writes them anew; read the
//! difference before you commit it. And what is published about scenarios: it is true, and complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;
use tidegate_control::{LawConfig, WindowConfig};
use tidegate_sim::scenario::{DiskPlace, LawScope, SignalSource, schema};
use tidegate_sim::{Scenario, SilentRecorder, simulate};

fn said(text: &str, folder: &Path) -> String {
    let mut files =
        |name: &str| fs::read_to_string(folder.join(name)).map_err(|_| format!("`{name}`: cannot be read"));
    let said = match Scenario::read("scenario.toml", text, &mut files) {
        Ok((_, warnings)) => warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        Err(invalid) => invalid.to_string(),
    };
    said + "\n"
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn scenarios_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            scenarios_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
    found.sort();
}

#[test]
fn every_bad_scenario_is_explained_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let update = std::env::var_os("TIDEGATE_UPDATE_EXPECTED").is_some();
    let (mut files, mut wrong) = (Vec::new(), Vec::new());
    scenarios_below(&folder, &mut files);
    assert!(files.len() >= 10);
    for file in files {
        let said = said(&fs::read_to_string(&file).unwrap(), &folder);
        let expected = file.with_extension("expected");
        if update {
            fs::write(&expected, &said).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != said {
            wrong.push(format!("{}\n{said}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}

#[test]
fn every_published_scenario_is_valid_without_a_warning_and_fits_the_schema() {
    let schema: Value = serde_json::from_str(schema::JSON).unwrap();
    let mut files = Vec::new();
    scenarios_below(&root().join("scenarios"), &mut files);
    assert!(files.len() >= 3);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(said(&text, file.parent().unwrap()), "\n", "{}", file.display());
        let document: Value = toml::from_str(&text).unwrap();
        let mut wrong = Vec::new();
        validate(&document, &schema, &schema, "", &mut wrong);
        assert!(wrong.is_empty(), "{}: {}", file.display(), wrong.join("\n"));
    }
}

/// The part of JSON Schema that is used here, without patterns: those say again what the units say.
fn validate(value: &Value, schema: &Value, root: &Value, at: &str, wrong: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        assert!(root["$defs"][name].is_object(), "{reference}");
        validate(value, &root["$defs"][name], root, at, wrong);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        validate(value, part, root, at, wrong);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = any.iter().any(|one| {
            let mut wrong = Vec::new();
            validate(value, one, root, at, &mut wrong);
            wrong.is_empty()
        });
        if !fits {
            wrong.push(format!("{at}: none of the alternatives"));
        }
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        wrong.push(format!("{at}: {value} is not allowed"));
    }
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        None => true,
        Some(other) => panic!("{at}: the test does not know the type {other}"),
    };
    if !fits {
        wrong.push(format!("{at}: {value} is no {}", schema["type"]));
    }
    if let Some(number) = value.as_f64() {
        let bound = |key: &str| schema[key].as_f64();
        if bound("minimum").is_some_and(|least| number < least)
            || bound("maximum").is_some_and(|most| number > most)
            || bound("exclusiveMinimum").is_some_and(|least| number <= least)
            || bound("exclusiveMaximum").is_some_and(|most| number >= most)
        {
            wrong.push(format!("{at}: {number} is out of range"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        if schema["items"].is_object() {
            validate(item, &schema["items"], root, at, wrong);
        }
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        if value.get(key.as_str().unwrap()).is_none() {
            wrong.push(format!("{at}: {key} is missing"));
        }
    }
    for (key, item) in value.as_object().into_iter().flatten() {
        let at = format!("{at}/{key}");
        match (schema["properties"].get(key), &schema["additionalProperties"]) {
            (Some(property), _) => validate(item, property, root, &at, wrong),
            (None, Value::Bool(false)) => wrong.push(format!("{at}: unknown")),
            (None, more @ Value::Object(_)) => validate(item, more, root, &at, wrong),
            (None, _) => {}
        }
    }
}

#[test]
fn the_document_the_schema_and_the_code_know_the_same_keys() {
    let document = fs::read_to_string(root().join("docs/reference/scenarios.md")).unwrap();
    let schema: Value = serde_json::from_str(schema::JSON).unwrap();
    let mut definitions: BTreeSet<&str> =
        schema["$defs"].as_object().unwrap().keys().map(String::as_str).collect();
    for table in schema::TABLES {
        let known: BTreeSet<&str> = table.keys.iter().copied().collect();
        let section = document.split_once(&format!("\n## {}\n", table.name));
        let section =
            section.unwrap_or_else(|| panic!("docs/reference/scenarios.md has no `## {}`", table.name)).1;
        let section = section.split("\n## ").next().unwrap();
        let documented: BTreeSet<&str> =
            section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(documented, known, "docs/reference/scenarios.md, under `## {}`", table.name);
        let definition = if table.name == "scenario" { &schema } else { &schema["$defs"][table.name] };
        let defined: BTreeSet<&str> =
            definition["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(defined, known, "docs/scenarios.schema.json, `{}`", table.name);
        assert_eq!(definition["additionalProperties"], Value::Bool(false), "`{}`", table.name);
        definitions.remove(table.name);
    }
    assert!(definitions.is_empty(), "defined and never read: {definitions:?}");
}

const WHOLE: &str = r#"
    name = "whole"
    duration = "3s"
    warmup = "1s"
    array.lun = { rate = "1kIO/s", servers = 4, changes = [{ at = "2s", rate = "500 IO/s" }] }
    array.log = { preset = "dnes-309170w" }
    disk.shared = { array = "lun", size = "1GiB" }
    host.node = { count = 12, array = "lun", law = "window", target = "25ms", signal = "local", scope = "vm", down = "1s..2s" }
    host.free = { array = "log", depth = 8 }
    network = { stagger = 4, delay = "1ms", partitions = [{ during = "1s..", hosts = ["node"] }] }
    workload.busy = { outstanding = 4, sizes = [{ size = "4KiB" }, { size = "64KiB", weight = 0.5 }], reads = 0.67 }
    workload.db = { profile = "oltp", threads = 3, volume = "wal" }
    workload.commit = { rate = "10 IO/s", steps = [{ reads = 0.0 }, { count = 0, durability = "flush" }] }
    vm.load = { count = 24, host = "node", workload = "busy", on = ["..1s", "2s.."] }
    vm.database = { host = "free", workload = ["db", "commit"], size = "1GiB", protected = true, volume.wal = { disk = "shared" } }
"#;

#[test]
fn templates_become_hosts_and_machines_with_numbers() {
    let scenario = Scenario::parse("whole", WHOLE).map_err(|invalid| panic!("{invalid}")).unwrap();
    let names: Vec<&str> = scenario.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[11], names[12]), (13, "node-01", "node-12", "free"));
    assert_eq!(scenario.hosts[0].scope, LawScope::Vm);
    assert_eq!(scenario.hosts[0].signal, SignalSource::Local);
    assert_eq!(scenario.hosts[5].phase.as_micros(), 250_000 / 4);
    // Two rounds over the hosts of the template.
    assert_eq!(scenario.vms[0].host, scenario.vms[12].host);
    assert_eq!(scenario.vms[23].name.as_str(), "load-24");
    assert_eq!(scenario.network.partitions[0].hosts.len(), 12);
    let database = scenario.vms.last().unwrap();
    let workloads: Vec<&str> = database.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(workloads, ["db.readers", "db.writers", "db.log", "commit"]);
    assert_eq!(database.disks[1].place, DiskPlace::Shared("shared".to_owned()));
    assert_eq!(database.workloads[2].steps[0].disk, 1);
    simulate(&scenario, 1, &mut SilentRecorder).unwrap();
}

proptest! {
    /// Whatever is cut out of a scenario or typed into it, it is read or explained, and what is read can be
    /// simulated.
    #[test]
    fn a_slip_of_the_hand_breaks_nothing(at in 0..WHOLE.len(), cut in 0usize..40, typed in "[ -~]{0,6}") {
        let end = (at + cut).min(WHOLE.len());
        let text = format!("{}{typed}{}", &WHOLE[..at], &WHOLE[end..]);
        match Scenario::parse("slip", &text) {
            // A slip may make it last for years.
            Ok(scenario) if scenario.duration.as_secs() < 10 && scenario.vms.len() < 100 => {
                prop_assert!(simulate(&scenario, 1, &mut SilentRecorder).is_ok());
            }
            Ok(_) => {}
            Err(invalid) => prop_assert!(!invalid.0.is_empty()),
        }
    }
}

#[test]
fn a_host_has_the_gateways_defaults_for_an_array_of_its_own_or_a_shared_one() {
    let windows = |hosts: &str| {
        let text = format!(
            r#"
            name = "defaults"
            duration = "10s"
            array.lun = {{ rate = "1kIO/s" }}
            array.other = {{ rate = "1kIO/s" }}
            workload.busy = {{ outstanding = 4 }}
            {hosts}
            vm.load = {{ host = "a", workload = "busy" }}
            "#
        );
        let scenario = Scenario::parse("scenario.toml", &text).unwrap();
        let laws = scenario.hosts.into_iter().filter_map(|host| host.law).map(|law| law.law);
        laws.collect::<Vec<_>>()
    };
    let alone = LawConfig::Window(WindowConfig::default());
    let shared = LawConfig::Window(WindowConfig::across_hosts());
    let a = r#"host.a = { array = "lun", law = "window", target = "20ms" }"#;
    let with = |more: &str| windows(&format!("{a}\n{more}"));
    assert_eq!(windows(a), [alone]);
    assert_eq!(with(r#"host.b = { array = "lun", law = "window", target = "20ms" }"#), [shared; 2]);
    assert_eq!(with(r#"host.b = { array = "other", law = "window", target = "20ms" }"#), [alone; 2]);
    assert_eq!(with(r#"host.b = { array = "lun" }"#), [alone], "only hosts with a law share");
    assert_eq!(with(r#"host.b = { array = "lun", law = "none" }"#), [alone]);
    let but = |more: &str| windows(&a.replace(" }", &format!(", {more} }}")));
    assert_eq!(but(r#"scope = "vm""#), [shared]);
    assert_eq!(but(r#"beta_scale = "per-share""#), [shared]);
    assert_eq!(but("count = 2"), [shared; 2]);
}
