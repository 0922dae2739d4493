//! Links lead somewhere, and every page of the book is in its table of contents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use tidegate_testing::markdown::{Document, Role, documents, root};

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

#[test]
fn every_link_leads_somewhere() {
    let documents = documents();
    let anchors: BTreeMap<&str, BTreeSet<String>> = documents
        .iter()
        .map(|document| {
            let headings = document.lines.iter().filter(|line| line.role == Role::Heading);
            (document.name.as_str(), headings.map(|line| anchor(&line.text)).collect())
        })
        .collect();
    let mut broken = Vec::new();
    for document in &documents {
        for (number, link) in links(document) {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.name.clone() } else { target(document, path) };
            let leads = root().join(&target).exists()
                && (place.is_empty()
                    || anchors.get(target.as_str()).is_none_or(|anchors| anchors.contains(place)));
            if !leads {
                broken.push(format!("{}:{number}: {link}", document.name));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn every_page_of_the_book_is_in_its_table_of_contents_once() {
    let documents = documents();
    let summary = documents.iter().find(|document| document.name == SUMMARY).expect("a table of contents");
    let mut entries: Vec<_> = links(summary).iter().map(|(_, link)| target(summary, link)).collect();
    entries.sort_unstable();
    let pages = documents.iter().map(|document| &document.name);
    let pages: Vec<_> = pages.filter(|name| name.starts_with("docs/") && *name != SUMMARY).collect();
    assert_eq!(entries.iter().collect::<Vec<_>>(), pages);
}

/// Returns the targets of a document's links within the repository, with their lines.
fn links(document: &Document) -> Vec<(usize, &str)> {
    let lines = document.lines.iter().filter(|line| line.role != Role::Code);
    let links = lines.flat_map(|line| {
        let targets = line.text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        targets.map(|target| (line.number, target))
    });
    links.filter(|(_, target)| !target.contains(':') && !target.contains(' ')).collect()
}

/// Returns the path in the repository to which a link of a document leads.
fn target(document: &Document, link: &str) -> String {
    let folder = Path::new(&document.name).parent().expect("a document is in a folder");
    let mut parts = Vec::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Returns the anchor of a heading, as the usual viewers make it: small letters, without punctuation, with
/// hyphens for blanks.
fn anchor(heading: &str) -> String {
    let mut text = heading.trim_start_matches('#').trim().to_owned();
    // The text of a link counts.
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
