//! Words that the glossary replaces.

use tidegate_testing::markdown::{Document, Role, documents};

/// Words that the glossary replaces, with the word that stands for each.
const REPLACED: &[(&str, &str)] = &[
    ("held", "throttled"),
    ("holds back", "throttles"),
    ("let go", "released"),
    ("lets go", "releases"),
    ("somebody", "a program, host or consumer"),
    ("someone", "a program, host or consumer"),
    ("anybody", "any program, host or consumer"),
    ("everybody", "all, by their name"),
    ("nobody", "no program, host or consumer"),
    ("whoever", "the one meant, by its name"),
    ("who is", "that is, after the name"),
    ("who are", "that are, after the name"),
    ("who has", "that has, after the name"),
    ("those who", "those that, after the name"),
];

/// Returns the replaced words in a line, with what stands for each.
pub(crate) fn replaced(line: &str) -> Vec<(&'static str, &'static str)> {
    let line = plain(line).to_lowercase();
    let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let line = format!(" {} ", words.collect::<Vec<_>>().join(" "));
    REPLACED.iter().copied().filter(|(word, _)| line.contains(&format!(" {word} "))).collect()
}

/// Returns a line without its code spans, each of which becomes one word, and with links as their texts.
pub(crate) fn plain(line: &str) -> String {
    let mut out = String::new();
    for (at, part) in line.split('`').enumerate() {
        out.push_str(if at % 2 == 0 { part } else { "CODE" });
    }
    while let Some((before, rest)) = out.clone().split_once("](") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        out = format!("{before}{after}");
    }
    out.replace(['[', ']'], "")
}

/// Pages and folders of pages that keep the glossary.
const KEEPS_GLOSSARY: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/README.md",
    "crates/",
    "docs/SUMMARY.md",
    "docs/architecture/",
    "docs/decisions/",
    "docs/guide/",
    "docs/reference/",
    "fuzz/README.md",
    "lab/README.md",
];

fn keeps_glossary(document: &Document) -> bool {
    let is_in = |place: &str| place.ends_with('/') && document.name.starts_with(place);
    KEEPS_GLOSSARY.iter().any(|place| document.name == *place || is_in(place))
}

#[test]
fn words_are_those_of_the_glossary() {
    let mut wrong = Vec::new();
    for document in documents().iter().filter(|document| keeps_glossary(document)) {
        for line in document.lines.iter().filter(|line| line.role != Role::Code) {
            for (word, instead) in replaced(&line.text) {
                wrong.push(format!("{}:{}: “{word}”; write {instead}", document.name, line.number));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn replaced_words_are_found_as_words_and_not_in_code() {
    let found = |line| replaced(line).iter().map(|(word, _)| *word).collect::<Vec<_>>();
    assert_eq!(found("Nobody was let\tgo, or held."), ["held", "let go", "nobody"]);
    assert!(found("upheld `held` by the household, whose `nobody` lets them").is_empty());
}

#[test]
fn code_spans_and_links_are_words() {
    assert_eq!(plain("see [the `held` page](a.md#b), or `x y`"), "see the CODE page, or CODE");
}
