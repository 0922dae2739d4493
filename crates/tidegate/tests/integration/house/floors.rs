//! Crates on their floors, and what the pure ones may not touch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::house::root;

/// Each crate and its floor: a crate may use only crates on floors below its own.
const FLOORS: &[(&str, u8)] = &[
    ("tidegate-units", 0),
    ("tidegate-control", 1),
    ("tidegate-sched", 1),
    ("tidegate-device", 1),
    ("tidegate-nbd", 1),
    ("tidegate-wire", 1),
    ("tidegate-config", 2),
    ("tidegate-ebpf", 2),
    ("tidegate-placement", 2),
    ("tidegate-regulate", 2),
    ("tidegate-rehearsal", 2),
    ("tidegate-admission", 3),
    ("tidegate-journal", 3),
    ("tidegate-nats", 3),
    ("tidegate-sockets", 3),
    ("tidegate-tls", 3),
    ("tidegate-testing", 3),
    ("tidegate-ublk", 3),
    ("tidegate-vhost", 3),
    ("tidegate-gateway", 4),
    ("tidegate-http", 4),
    ("tidegate-load", 4),
    ("tidegate-rollups", 4),
    ("tidegate-sim", 4),
    ("tidegate-cluster", 4),
    ("tidegate-host", 4),
    ("tidegate-experiments", 5),
    ("tidegate-program", 5),
    ("tidegate-service", 5),
    ("tidegate-transfer", 5),
    ("tidegate-serve", 6),
    ("tidegate-agent", 6),
    ("tidegate", 7),
    ("tidegate-lab", 7),
];

/// Floors 0 to 2 decide and touch nothing: no clock, no files, no unsafe.
const HIGHEST_PURE_FLOOR: u8 = 2;

/// Crates above that which touch nothing either.
const PURE_ABOVE: &[&str] = &["tidegate-admission", "tidegate-sim", "tidegate-experiments"];

/// The crates of this workspace that `[dependencies]` of a manifest names. Development dependencies may look
/// upward: a test may drive what stands above.
fn dependencies(manifest: &str) -> Vec<&str> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['=', '.', ' ']).next())
        .filter(|name| name.starts_with("tidegate"))
        .collect()
}

#[test]
fn every_crate_uses_only_floors_below_its_own() {
    let floors: BTreeMap<_, _> = FLOORS.iter().copied().collect();
    let crates = root().join("crates");
    for entry in fs::read_dir(&crates).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let floor =
            floors.get(name).unwrap_or_else(|| panic!("give `{name}` a floor here and in ARCHITECTURE.md"));
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        for dependency in dependencies(&manifest) {
            assert!(floors[dependency] < *floor, "`{name}` on floor {floor} uses `{dependency}`");
        }
    }
}

#[test]
fn the_low_floors_are_pure() {
    let pure =
        FLOORS.iter().filter(|(name, floor)| *floor <= HIGHEST_PURE_FLOOR || PURE_ABOVE.contains(name));
    for (name, _) in pure {
        let folder = root().join("crates").join(name);
        let lib = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        assert!(lib.contains("#![forbid(unsafe_code)]"), "`{name}` does not forbid unsafe code");
        let lints = fs::read_link(folder.join("clippy.toml")).unwrap();
        assert_eq!(lints, Path::new("../pure.clippy.toml"), "`{name}` does not forbid clocks and files");
    }
}
