//! The glossary in comments, help texts and messages.

use std::fs;

use crate::documents::glossary::replaced;
use crate::house::{files_of_crates, short};

#[test]
fn words_are_those_of_the_glossary() {
    let mut wrong = Vec::new();
    for file in files_of_crates("src") {
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let mut words = words(line);
            if short(&file).starts_with(NAMES_OF_RESULTS) {
                words.drain(..words.len() - 1);
            }
            for (word, instead) in words.iter().flat_map(|text| replaced(text)) {
                wrong.push(format!("{}:{}: “{word}”; write {instead}", short(&file), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The crate whose quoted texts are names of quantities and plots in committed results.
const NAMES_OF_RESULTS: &str = "crates/tidegate-experiments";

/// Returns the prose of a line: its comment, and its quoted texts with a space in them. Names in code,
/// placeholders and single quoted words, such as keys of documents, are no prose.
fn words(line: &str) -> Vec<String> {
    let (code, comment) = match line.trim_start().starts_with("//") {
        true => ("", line),
        false => line.split_once(" // ").unwrap_or((line, "")),
    };
    let quoted = code.split('"').skip(1).step_by(2).filter(|text| text.trim().contains(' '));
    quoted.map(without_placeholders).chain([comment.to_owned()]).collect()
}

fn without_placeholders(text: &str) -> String {
    let mut depth = 0;
    let is_outside = |c: &char| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0 && *c != '}'
    };
    text.chars().filter(is_outside).collect()
}

#[test]
fn keys_and_names_are_no_prose() {
    assert_eq!(words(r#"let held = json["held"];"#), [""]);
    assert_eq!(words(r#"say("{held} is held now"); // and let go"#), [" is held now", "and let go"]);
}
