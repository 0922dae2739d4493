//! Lines, sentences and words of the documents.

use crate::documents::glossary::{plain, replaced};
use tidegate_testing::markdown::{Document, Role, begins_item, documents};

/// The longest line of prose, in characters. Tables and code may be longer.
const LONGEST_LINE: usize = 110;

/// The most words of a sentence.
const LONGEST_SENTENCE: usize = 25;

/// The table of contents: an entry is a line, however long its heading.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages and folders of pages that keep the glossary, and whose sentences are short.
const DONE: &[&str] = &[
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

fn is_done(document: &Document) -> bool {
    let is_in = |place: &str| place.ends_with('/') && document.name.starts_with(place);
    DONE.iter().any(|place| document.name == *place || is_in(place))
}

#[test]
fn lines_are_not_wider_than_a_reader_follows() {
    let documents = documents();
    assert!(documents.len() > 20, "the documents were found");
    let mut wide = Vec::new();
    for document in documents.iter().filter(|document| document.name != SUMMARY) {
        let lines = document.lines.iter().filter(|line| !matches!(line.role, Role::Code | Role::Table));
        let lines = lines.filter(|line| line.text.chars().count() > LONGEST_LINE);
        wide.extend(lines.map(|line| format!("{}:{}", document.name, line.number)));
    }
    assert!(wide.is_empty(), "lines end at {LONGEST_LINE} columns: {wide:#?}");
}

#[test]
fn words_are_those_of_the_glossary() {
    let mut wrong = Vec::new();
    for document in documents().iter().filter(|document| is_done(document)) {
        for line in document.lines.iter().filter(|line| line.role != Role::Code) {
            for (word, instead) in replaced(&line.text) {
                wrong.push(format!("{}:{}: “{word}”; write {instead}", document.name, line.number));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn sentences_can_be_read_in_one_breath() {
    let mut long = Vec::new();
    for document in documents().iter().filter(|document| is_done(document)) {
        for (number, sentence) in sentences(document) {
            let words = sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
            let words = words.count();
            if words > LONGEST_SENTENCE {
                long.push(format!("{}:{number}: {words} words: {sentence}", document.name));
            }
        }
    }
    assert!(long.is_empty(), "sentences have at most {LONGEST_SENTENCE} words: {long:#?}");
}

/// Returns the sentences of a document's paragraphs and items of lists, each with the line where its
/// paragraph or item begins.
fn sentences(document: &Document) -> Vec<(usize, String)> {
    let mut sentences = Vec::new();
    let mut paragraph: Option<(usize, Role, String)> = None;
    let mut end = |paragraph: Option<(usize, Role, String)>| {
        if let Some((number, _, text)) = paragraph {
            sentences.extend(split(&plain(&text)).into_iter().map(|sentence| (number, sentence)));
        }
    };
    for line in &document.lines {
        let text = line.text.trim();
        let is_text = matches!(line.role, Role::Prose | Role::Item) && !text.is_empty();
        let goes_on = paragraph.as_ref().is_some_and(|(_, role, _)| *role == line.role && !begins_item(text));
        if !is_text || !goes_on {
            end(paragraph.take());
        }
        if is_text {
            let (_, _, whole) = paragraph.get_or_insert((line.number, line.role, String::new()));
            whole.push_str(text);
            whole.push(' ');
        }
    }
    end(paragraph);
    sentences
}

/// Splits a paragraph where a full stop, question or exclamation mark, perhaps with closing marks behind it,
/// is followed by a word that does not begin with a small letter. A colon and a semicolon end nothing.
fn split(text: &str) -> Vec<String> {
    let words: Vec<_> = text.split_whitespace().collect();
    let mut sentences = Vec::new();
    let mut sentence = Vec::new();
    for (at, word) in words.iter().enumerate() {
        sentence.push(*word);
        let ends = word.trim_end_matches([')', '*', '"', '”', '_']).ends_with(['.', '?', '!']);
        let small = |next: &&str| next.starts_with(char::is_lowercase);
        if ends && !words.get(at + 1).is_some_and(small) {
            sentences.push(std::mem::take(&mut sentence).join(" "));
        }
    }
    if !sentence.is_empty() {
        sentences.push(sentence.join(" "));
    }
    sentences
}

#[test]
fn a_sentence_ends_before_a_capital() {
    assert_eq!(
        split("It is 0.5 s. Then (so to say.) *Yes.* And e.g. this."),
        ["It is 0.5 s.", "Then (so to say.)", "*Yes.*", "And e.g. this."]
    );
}
