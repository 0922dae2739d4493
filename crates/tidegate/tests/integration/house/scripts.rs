//! The glossary in the scripts: Python and shell in `lab`, `scripts`, `bench` and `packaging`.

use std::fs;
use std::path::Path;
use std::process::Command;

use tidegate_testing::has_programs;

use crate::documents::glossary::replaced;
use crate::house::{root, short};

const FOLDERS: &[&str] = &["lab", "scripts", "bench", "packaging"];

/// Returns the scripts, each with its text.
fn scripts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        collect(&root().join(folder), &mut found);
    }
    assert!(found.len() > 80, "the walk found only {} scripts", found.len());
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let extension = path.extension().is_some_and(|extension| extension == "py" || extension == "sh");
            if extension || text.starts_with("#!") {
                found.push((short(&path), text));
            }
        }
    }
}

/// The place of a line of Python in a text of several lines.
#[derive(Clone, Copy, PartialEq)]
enum Text {
    Outside,
    Docstring,
    /// A text that is a value.
    Value,
}

/// Returns the prose of a script: each comment and docstring, with the number of its first line.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let (mut place, mut in_comment) = (Text::Outside, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let here = match place {
            Text::Outside if line.starts_with("\"\"\"") => Text::Docstring,
            place => place,
        };
        let comment = line.strip_prefix("# ").filter(|_| here == Text::Outside);
        if let Some(words) = comment.or((here == Text::Docstring).then_some(line)) {
            let goes_on = place == Text::Docstring || (in_comment && comment.is_some());
            match blocks.last_mut().filter(|_| goes_on) {
                Some((_, block)) => block.push_str(&format!("\n{words}")),
                None => blocks.push((at + 1, words.trim_start_matches('"').to_owned())),
            }
        }
        in_comment = comment.is_some();
        if line.matches("\"\"\"").count() % 2 == 1 {
            place = match (place, here) {
                (Text::Outside, Text::Docstring) => Text::Docstring,
                (Text::Outside, _) => Text::Value,
                _ => Text::Outside,
            };
        }
    }
    blocks
}

#[test]
fn comments_of_scripts_keep_the_glossary() {
    let mut wrong = Vec::new();
    for (name, text) in scripts() {
        for (number, block) in prose(&text) {
            for (word, instead) in replaced(&block.replace('\n', " ")) {
                wrong.push(format!("{name}:{number}: “{word}”; write {instead}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `scripts/simulation.py --mutations` and the power loss in the lab remove rules by their text, once in hours.
#[test]
fn rules_that_experiments_remove_are_in_the_source() {
    if !has_programs(&["python3"]) {
        return;
    }
    let done =
        Command::new("python3").arg("-B").arg(root().join("scripts/gateway_rules.py")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn prose_is_comments_and_docstrings() {
    let text = [
        "\"\"\"One.",
        "",
        "Two.",
        "\"\"\"",
        "# three",
        "# four",
        "x = \"five\"",
        "# six",
        "def f():",
        "    \"\"\"Seven.\"\"\"",
        "    x = \"\"\"",
        "# eight",
        "\"\"\"",
        "    # nine",
    ];
    let blocks = prose(&text.join("\n"));
    let blocks: Vec<(usize, &str)> = blocks.iter().map(|(at, block)| (*at, block.as_str())).collect();
    assert_eq!(
        blocks,
        [(1, "One.\n\nTwo.\n\"\"\""), (5, "three\nfour"), (8, "six"), (10, "Seven.\"\"\""), (14, "nine")]
    );
}
