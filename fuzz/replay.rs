//! The kept inputs of a target, run again as an ordinary test. Each crate with targets includes this file.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Runs the target on every file of its corpus, and names the file that it fails on.
#[allow(clippy::disallowed_methods, reason = "the test of a pure crate reads files, the crate does not")]
#[allow(clippy::print_stderr, reason = "the name of the file is said beside the panic")]
pub(super) fn replay(name: &str, target: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("fuzz").is_dir());
    let folder = root.expect("the workspace has a folder `fuzz`").join("fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no input", folder.display());
    for file in files {
        let input = fs::read(&file).expect("a readable input");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            eprintln!("{name} fails on {}", file.display());
            resume_unwind(panic);
        }
    }
}
