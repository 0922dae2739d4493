//! Where the command line prints.

use std::fs;

use super::source::product_code;
use super::{files_of_crates, short};

/// Files that may write to the terminal themselves: the writer that escapes, the log, which escapes, too, and those
/// that move the cursor.
const WRITERS: [&str; 4] = ["src/out.rs", "src/logging.rs", "src/terminal/mod.rs", "src/load.rs"];

#[test]
fn commands_print_through_the_writer_that_escapes() {
    for file in files_of_crates("src") {
        let name = short(&file);
        let Some(name) = name.strip_prefix("crates/tidegate/") else { continue };
        let code = product_code(&fs::read_to_string(&file).unwrap());
        let prints = |line: &&str| {
            let names = ["io::stdout()", "io::stderr()", "println!", "print!("];
            names.iter().any(|name| line.contains(name)) && !line.contains(".is_terminal()")
        };
        if let Some(line) = code.lines().find(prints).filter(|_| !WRITERS.contains(&name)) {
            panic!("{name} prints what may come from outside; use `crate::out`: {line}");
        }
    }
}
