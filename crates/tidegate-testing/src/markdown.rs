//! The documents of the repository, read as far as their tests need it.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders without documents of this project.
const ELSEWHERE: &[&str] = &["target", ".git", ".lab", "corpus", "node_modules"];

/// A Markdown file.
pub struct Document {
    /// The path in the repository.
    pub name: String,
    /// All lines with their numbers, each with its role.
    pub lines: Vec<Line>,
}

/// A line of a document.
pub struct Line {
    pub number: usize,
    pub text: String,
    pub role: Role,
}

/// The role of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Of a paragraph, list or table, or blank.
    Text,
    Heading,
    /// Shown as code, with its fences.
    Code,
}

/// A fenced block of code.
pub struct Block {
    /// The words behind the opening fence, such as `toml fragment`.
    pub info: String,
    /// The line of the opening fence.
    pub number: usize,
    pub text: String,
}

/// Returns the folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// Returns every document of the repository, in the order of the names.
pub fn documents() -> Vec<Document> {
    let root = root();
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a readable document");
        let name = path.strip_prefix(&root).expect("a path below the root").display().to_string();
        Document::parse(name, &text)
    };
    paths.iter().map(read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let elsewhere = path.file_name().is_some_and(|name| ELSEWHERE.iter().any(|other| name == *other));
        if path.is_dir() && !elsewhere {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
}

impl Document {
    /// Reads a document.
    pub fn parse(name: String, text: &str) -> Self {
        let (mut in_fence, mut in_item) = (false, false);
        let mut lines = Vec::new();
        for (at, text) in text.lines().enumerate() {
            let trimmed = text.trim_start();
            let fence = trimmed.starts_with("```");
            let is_table = trimmed.starts_with('|');
            let is_of_item = !is_table && (begins_item(trimmed) || (in_item && !trimmed.is_empty()));
            let role = if fence || in_fence {
                Role::Code
            } else if trimmed.starts_with('#') {
                Role::Heading
            } else if text.starts_with("    ") && !is_table && !is_of_item {
                Role::Code
            } else {
                Role::Text
            };
            // A blank line ends an item, unless an indented line follows: that is code for our purpose.
            in_item = role == Role::Text && is_of_item;
            in_fence ^= fence;
            lines.push(Line { number: at + 1, text: text.to_owned(), role });
        }
        Self { name, lines }
    }

    /// Returns the fenced blocks.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open = false;
        for line in &self.lines {
            match line.text.trim_start().strip_prefix("```") {
                Some(_) if open => open = false,
                Some(info) => {
                    open = true;
                    blocks.push(Block { info: info.to_owned(), number: line.number, text: String::new() });
                }
                None if open => {
                    let block = blocks.last_mut().expect("an open block");
                    block.text.push_str(&line.text);
                    block.text.push('\n');
                }
                None => {}
            }
        }
        blocks
    }

    /// Returns the commands that the document shows as code, as the words of each, with their lines.
    ///
    /// Only commands of `program` count. Comments, redirections and pipes end one.
    #[must_use]
    pub fn commands(&self, program: &str) -> Vec<(usize, Vec<String>)> {
        let mut commands = Vec::new();
        let mut lines = self.lines.iter().filter(|line| line.role == Role::Code);
        while let Some(line) = lines.next() {
            let shown = line.text.trim_start();
            let shown = shown.strip_prefix("$ ").unwrap_or(shown);
            if shown.split_once(' ').is_none_or(|(first, _)| first != program) {
                continue;
            }
            let mut whole = shown.to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                whole.push_str(lines.next().expect("a continued command goes on").text.trim_start());
            }
            commands.push((line.number, shell_words(&whole)));
        }
        commands
    }
}

/// Returns true for the first line of an item of a list.
fn begins_item(line: &str) -> bool {
    line.starts_with("- ") || numbered(line)
}

/// Returns whether a line begins like `1. `.
fn numbered(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| !number.is_empty() && number.parse::<u32>().is_ok())
}

/// Returns the words of the first simple command of a line, as a shell reads it.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '&' | '|' | '>' | '<' | ';') => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_where_the_shell_ends_it() {
        let text =
            "```sh\n$ tidegate a --b 'c d' \\\n  e > f\ntidegate g &\nh | tidegate i  # not the first\n```\n";
        let commands = Document::parse("x.md".to_owned(), text).commands("tidegate");
        let words: Vec<_> = commands.iter().map(|(_, words)| words.join("·")).collect();
        assert_eq!(words, ["tidegate·a·--b·c d·e", "tidegate·g"]);
    }

    #[test]
    fn headings_and_code_are_told_from_text() {
        let text =
            "One\n\n- two\n    goes on\n\n| three |\n\n    four\n\n```sh\n# five\n```\n\n1. six\n# seven\n";
        let document = Document::parse("x.md".to_owned(), text);
        let of = |role| {
            let lines = document.lines.iter().filter(|line| line.role == role && !line.text.is_empty());
            lines.map(|line| line.text.trim()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(Role::Text), "One - two goes on | three | 1. six");
        assert_eq!(of(Role::Code), "four ```sh # five ```");
        assert_eq!(of(Role::Heading), "# seven");
    }
}
