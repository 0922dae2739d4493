//! The tables of keys on the reference pages, made of the table of keys.

use std::fmt::Write as _;
use std::fs;

use tidegate_config::keys::{Key, KeyTable, TABLES};
use tidegate_testing::markdown::root;

/// The pages that list keys.
const PAGES: &[&str] = &["docs/reference/configuration.md", "docs/reference/scenarios.md"];

/// Marks around a table that is made.
const BEGIN: &str = "<!-- keys of ";
const END: &str = "<!-- end of keys -->";

/// The longest line of a paragraph.
const WIDTH: usize = 108;

/// Returns true if a file has this text; with `UPDATE_DOCS` in the environment, writes it first.
pub(super) fn is_up_to_date(file: &str, text: &str) -> bool {
    let path = root().join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, text).unwrap();
    }
    fs::read_to_string(&path).unwrap_or_default() == text
}

#[test]
fn the_tables_of_the_reference_are_made_of_the_table_of_keys() {
    let mut shown = Vec::new();
    for file in PAGES {
        let page = fs::read_to_string(root().join(file)).unwrap();
        let mut expected = String::new();
        let mut rest = page.as_str();
        while let Some((before, after)) = rest.split_once(BEGIN) {
            let (id, after) = after.split_once(" -->").expect("a mark ends");
            let (_, after) = after.split_once(END).expect("an end follows");
            let table = TABLES.iter().find(|table| table.id == id);
            let table = table.unwrap_or_else(|| panic!("{file}: there is no table `{id}`"));
            write!(expected, "{before}{BEGIN}{id} -->\n\n{}\n{END}", rows(table)).unwrap();
            shown.push(id.to_owned());
            rest = after;
        }
        expected.push_str(rest);
        assert!(
            is_up_to_date(file, &expected),
            "run the tests of keys once with UPDATE_DOCS=1, and commit {file}"
        );
    }
    for table in TABLES.iter().filter(|table| !table.heading.is_empty()) {
        assert!(shown.iter().any(|id| id == table.id), "no page shows the keys of `{}`", table.id);
    }
}

fn rows(table: &KeyTable) -> String {
    let mut text = "| key | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    for key in table.keys {
        let kind = key.type_and_bounds().replace('|', "\\|");
        let meaning = format!("{}{}", only_for(key), key.meaning).replace('|', "\\|");
        writeln!(text, "| `{}` | {kind} | {} | {meaning} |", key.name, key.default).unwrap();
    }
    let mut details = table.keys.iter().filter(|key| !key.details.is_empty()).peekable();
    if details.peek().is_some() {
        text.push('\n');
    }
    for key in details {
        let mut line = format!("- `{}`:", key.name);
        for word in key.details.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                writeln!(text, "{line}").unwrap();
                line = " ".to_owned();
            }
            line.push(' ');
            line.push_str(word);
        }
        writeln!(text, "{line}").unwrap();
    }
    text
}

fn only_for(key: &Key) -> String {
    match key.applies_to {
        "" => String::new(),
        laws => {
            let laws: Vec<_> = laws.split(", ").map(|law| format!("`{law}`")).collect();
            format!("with {}: ", laws.join(" or "))
        }
    }
}
