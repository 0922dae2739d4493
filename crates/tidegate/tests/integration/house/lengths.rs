//! Lengths of files and lines.

use std::fs;

use crate::house::{files_of_crates, short};

/// Past this many lines (tests included) a reader looks for the parts elsewhere.
const LONGEST_FILE: usize = 1_000;

/// The longest line of code, comments and messages, in characters.
pub(crate) const LONGEST_LINE: usize = 110;

/// Marks of lines that stay whole: tables, and documents or bytes in quotes.
const DATA: &[&str] = &["//! |", "/// |", "r#\"", "b\"", "\":", " = {"];

#[test]
fn no_file_outgrows_its_reader() {
    for file in files_of_crates("") {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        let name = short(&file);
        assert!(lines <= LONGEST_FILE, "{name} has {lines} lines: split it where a reader would look");
    }
}

#[test]
fn no_line_is_wider_than_a_reader_follows() {
    let mut wide = Vec::new();
    for file in files_of_crates("") {
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let is_data = DATA.iter().any(|mark| line.contains(mark));
            if line.chars().count() > LONGEST_LINE && !is_data {
                wide.push(format!("{}:{}", short(&file), number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "lines end at {LONGEST_LINE} columns: {wide:#?}");
}
