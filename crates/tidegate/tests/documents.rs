//! The documents of the repository, checked: links that lead nowhere, and lines that are too long to read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The longest line of prose, in characters. Tables and what is shown as code may be longer.
const LONGEST_LINE: usize = 110;

/// Folders without documents of ours.
const ELSEWHERE: &[&str] = &["target", ".git", ".lab", "corpus"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let elsewhere = path.file_name().is_some_and(|name| ELSEWHERE.iter().any(|other| name == *other));
        if path.is_dir() && !elsewhere {
            documents(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The documents by their paths in the repository, each with its lines that are not code.
fn prose() -> BTreeMap<String, Vec<(usize, String)>> {
    let root = root();
    let mut found = Vec::new();
    documents(&root, &mut found);
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a readable document");
        let mut in_code = false;
        let lines = text.lines().enumerate().filter(|(_, line)| {
            let fence = line.trim_start().starts_with("```");
            in_code ^= fence;
            !in_code && !fence
        });
        let name = path.strip_prefix(&root).expect("a path below the root").display().to_string();
        (name, lines.map(|(at, line)| (at + 1, line.to_owned())).collect())
    };
    found.iter().map(read).collect()
}

#[test]
fn prose_is_not_wider_than_a_reader_follows() {
    let prose = prose();
    assert!(prose.len() > 20, "the documents were found: {:?}", prose.keys());
    let mut wide = Vec::new();
    for (document, lines) in &prose {
        for (at, line) in lines {
            let shown_as_code = line.starts_with("    ");
            if !line.starts_with('|') && !shown_as_code && line.chars().count() > LONGEST_LINE {
                wide.push(format!("{document}:{at}"));
            }
        }
    }
    assert!(wide.is_empty(), "lines end at {LONGEST_LINE} columns: {wide:#?}");
}

#[test]
fn every_link_leads_somewhere() {
    let prose = prose();
    let anchors: BTreeMap<&str, BTreeSet<String>> = prose
        .iter()
        .map(|(document, lines)| {
            let headings = lines.iter().filter(|(_, line)| line.starts_with('#'));
            (document.as_str(), headings.map(|(_, line)| anchor(line)).collect())
        })
        .collect();
    let mut broken = Vec::new();
    for (document, lines) in &prose {
        for (at, line) in lines {
            for link in links(line) {
                let (path, place) = link.split_once('#').unwrap_or((link, ""));
                let folder = Path::new(document).parent().expect("a document is in a folder");
                let target = if path.is_empty() { document.clone() } else { plain(&folder.join(path)) };
                let leads = root().join(&target).exists()
                    && (place.is_empty()
                        || anchors.get(target.as_str()).is_none_or(|anchors| anchors.contains(place)));
                if !leads {
                    broken.push(format!("{document}:{at}: {link}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

/// The targets of a line's links within the repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains(':') && !target.contains(' '))
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> String {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

/// The anchor of a heading, as the usual viewers make it: small letters, without punctuation, with hyphens for blanks.
fn anchor(heading: &str) -> String {
    let mut text = heading.trim_start_matches('#').trim().to_owned();
    // Of a link its text counts.
    while let Some((before, rest)) = text.clone().split_once("](") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        text = format!("{}{after}", before.replacen('[', "", 1));
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn anchors_are_those_of_the_usual_viewers() {
    assert_eq!(anchor("### `[pool.NAME.knee]`"), "poolnameknee");
    assert_eq!(anchor("## One volume, one writer"), "one-volume-one-writer");
    assert_eq!(anchor("## See [this](that.md)"), "see-this");
}
