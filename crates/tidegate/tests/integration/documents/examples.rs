//! Examples of the documents run as they are shown, by the real program.
//!
//! A block says behind its fence what it is:
//!
//! - `toml NAME.toml` is a whole file. The harmless commands of its page run with it, or else `check` reads
//!   it.
//! - `toml fragment` is a part of one.
//! - `sh` shows commands. `sh run` ones are run, before all others of the page.
//! - `text`, `json` and no word show output, formats and documents.
//!
//! The unit tests of the programs parse all commands; see `src/documents.rs` of each.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tidegate_testing::markdown::{Document, documents, root};

/// Folders of volumes and sockets in the examples, which are in the test's folder here.
const VOLUMES: &str = "/dev/";
const SOCKETS: &str = "/run/";

/// Pages of results and of the lab, whose blocks are none of these.
const WITHOUT_EXAMPLES: &[&str] =
    &["docs/reproduction", "docs/architecture", "docs/decisions", "lab/", "fuzz/"];

fn pages() -> Vec<Document> {
    let mut pages = documents();
    pages.retain(|page| !WITHOUT_EXAMPLES.iter().any(|folder| page.name.starts_with(folder)));
    pages
}

#[test]
fn every_block_says_what_it_is() {
    let mut wrong = Vec::new();
    for page in pages() {
        for block in page.blocks() {
            let known = match block.info.split_once(' ').unwrap_or((&block.info, "")) {
                ("toml", file) => file == "fragment" || file.ends_with(".toml"),
                ("sh", how) => ["", "run"].contains(&how),
                (info, more) => ["", "text", "json"].contains(&info) && more.is_empty(),
            };
            if !known {
                wrong.push(format!("{}:{}: ```{}", page.name, block.number, block.info));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_json_document_of_the_pages_is_one() {
    for page in pages() {
        for block in page.blocks().iter().filter(|block| block.info == "json") {
            let parsed = serde_json::from_str::<serde_json::Value>(&block.text);
            assert!(parsed.is_ok(), "{}:{}: {parsed:?}", page.name, block.number);
        }
    }
}

#[test]
fn every_file_of_the_pages_is_right_and_every_harmless_command_works() {
    let mut ran = 0;
    for page in pages() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = write_files(&page, folder.path());
        for block in page.blocks().iter().filter(|block| block.info == "sh run") {
            let output = Command::new("bash").args(["-euc", &block.text]).current_dir(&folder).output();
            let output = output.expect("a shell");
            assert!(output.status.success(), "{}:{}: {}", page.name, block.number, said(&output));
        }
        let mut unused = files.clone();
        for (number, words) in page.commands("tidegate") {
            let here = |word: &String| files.contains(word);
            if is_harmless(&words, words.iter().any(here)) {
                unused.retain(|file| !words.contains(file));
                run(&page, number, &words[1..], folder.path());
                ran += 1;
            }
        }
        for file in unused {
            run(&page, 0, &["check".to_owned(), "-c".to_owned(), file], folder.path());
            ran += 1;
        }
    }
    assert!(ran > 20, "only {ran} examples were found");
}

/// Writes the files of a page, with volumes in their folder, and returns their names.
fn write_files(page: &Document, folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for block in page.blocks() {
        let Some(name) = block.info.strip_prefix("toml ").filter(|name| *name != "fragment") else {
            continue;
        };
        let here = |folder_of: &str| format!("{}{folder_of}", folder.display());
        let text = block.text.replace(VOLUMES, &here(VOLUMES)).replace(SOCKETS, &here(SOCKETS));
        for path in text.split('"').map(|quoted| quoted.trim_start_matches("unix:")) {
            if path.starts_with(&here("/")) {
                fs::create_dir_all(Path::new(path).parent().expect("a file is in a folder"))
                    .expect("a folder");
            }
            if path.starts_with(&here(VOLUMES)) {
                fs::write(path, [0; 4096]).expect("a volume");
            }
        }
        fs::write(folder.join(name), text).expect("a file");
        names.push(name.to_owned());
    }
    names
}

/// Returns whether a command only reads and prints, and ends by itself. `whole`: the page shows its file.
fn is_harmless(words: &[String], whole: bool) -> bool {
    let has = |option: &str| words.iter().any(|word| word == option);
    let command: Vec<_> = words.iter().skip(1).map(String::as_str).collect();
    match command[..] {
        ["check", ..] => whole || !has("-c"),
        ["admit", ..] => whole && !has("--live"),
        ["sim", "run", ..] => whole || root().join(&words[3]).exists(),
        ["sim", "schema"] | ["policy", "key", ..] => true,
        _ => false,
    }
}

/// Runs a command of a page. A machine that lacks what a right configuration needs is no mistake of the page.
fn run(page: &Document, number: usize, arguments: &[String], folder: &Path) {
    let in_repository = arguments.iter().any(|word| root().join(word).is_file());
    let place = if in_repository { root() } else { folder.to_path_buf() };
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).current_dir(place).output();
    let output = output.expect("the program runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let lacking = output.status.code() == Some(1) && arguments[0] == "check";
    let right = output.status.success() || (lacking && (stdout.contains(": right") || arguments.len() == 1));
    assert!(right, "{}:{number}: tidegate {}: {}", page.name, arguments.join(" "), said(&output));
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}
