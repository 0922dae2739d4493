//! The house rules of ARCHITECTURE.md and CONTRIBUTING.md, checked: floors, purity, circles of files, lengths
//! of files, and the words that the glossary replaces in comments, messages and scripts.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use tidegate_testing::markdown::root;

mod circles;
mod comments;
mod floors;
mod lengths;
mod output;
mod scripts;
mod source;

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the path below the workspace's folder, for messages.
pub(crate) fn short(path: &Path) -> String {
    path.strip_prefix(root()).expect("a path of the workspace").display().to_string()
}

/// Returns the Rust files below `folder` of each crate.
pub(crate) fn files_of_crates(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("a readable folder") {
        let folder = entry.expect("a readable entry").path().join(folder);
        if folder.is_dir() {
            collect(&folder, &mut found);
        }
    }
    found.sort();
    assert!(found.len() > 20, "the walk found only {} files", found.len());
    found
}
