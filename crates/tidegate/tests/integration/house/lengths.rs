//! Lengths of files.

use std::fs;

use crate::house::{files_of_crates, short};

/// Past this many lines (tests included) a reader looks for the parts elsewhere.
const LONGEST_FILE: usize = 1_000;

#[test]
fn no_file_outgrows_its_reader() {
    for file in files_of_crates("") {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        let name = short(&file);
        assert!(lines <= LONGEST_FILE, "{name} has {lines} lines: split it where a reader would look");
    }
}
