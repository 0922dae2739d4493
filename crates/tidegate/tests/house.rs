//! The house rules of ARCHITECTURE.md, checked: floors, purity, file lengths, and words that do not belong
//! in the product.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate and its floor: a crate may use only crates on floors below its own.
const FLOORS: &[(&str, u8)] = &[
    ("tidegate-units", 0),
    ("tidegate-control", 1),
    ("tidegate-sched", 1),
    ("tidegate-device", 1),
    ("tidegate-nbd", 1),
    ("tidegate-admission", 2),
    ("tidegate-config", 2),
    ("tidegate-ebpf", 2),
    ("tidegate-placement", 2),
    ("tidegate-regulate", 2),
    ("tidegate-http", 3),
    ("tidegate-tls", 3),
    ("tidegate-gateway", 4),
    ("tidegate-load", 4),
    ("tidegate-sim", 4),
    ("tidegate-cluster", 4),
    ("tidegate-host", 4),
    ("tidegate-transfer", 4),
    ("tidegate-experiments", 5),
    ("tidegate-service", 5),
    ("tidegate-serve", 6),
    ("tidegate-agent", 6),
    ("tidegate", 7),
];

/// Floors 0 to 2 decide and touch nothing: no clock, no files, no unsafe.
const HIGHEST_PURE_FLOOR: u8 = 2;

/// Crates above that which touch nothing either.
const PURE_ABOVE: &[&str] = &["tidegate-sim", "tidegate-experiments"];

/// Past this many lines (tests included) a reader looks for the parts elsewhere.
const LONGEST_FILE: usize = 1_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

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

#[test]
fn no_file_outgrows_its_reader() {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    assert!(files.len() > 20, "the walk found only {} files", files.len());
    for file in files {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(
            lines <= LONGEST_FILE,
            "{} has {lines} lines: split it where a reader would look",
            file.display()
        );
    }
}

/// Clauses that leave a reader asking "who?" or "which?". A doc comment begins with the thing, or with a verb.
const INDIRECT: &[&str] = &[
    "What", "Who", "Whom", "Whose", "Of", "Whether", "How", "Where", "Which", "That", "When", "Why", "As",
    "If",
];

/// The command line's doc comments are its help texts, which have an order of their own.
const HELP_TEXTS: &str = "crates/tidegate/src";

#[test]
fn doc_comments_name_the_thing_first() {
    let (root, mut files) = (root(), Vec::new());
    for folder in fs::read_dir(root.join("crates")).unwrap() {
        let sources = folder.unwrap().path().join("src");
        if sources.is_dir() && sources != root.join(HELP_TEXTS) {
            rust_files(&sources, &mut files);
        }
    }
    let doc = |line: &str| line.trim_start().starts_with("///") || line.trim_start().starts_with("//!");
    let mut indirect = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let begins = doc(line) && (number == 0 || !doc(lines[number - 1]));
            let first = line.split_whitespace().nth(1).unwrap_or_default();
            if begins && INDIRECT.contains(&first.trim_end_matches([',', '…'])) {
                indirect.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(indirect.is_empty(), "name the thing first:\n{}", indirect.join("\n"));
}
