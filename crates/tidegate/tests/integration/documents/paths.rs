//! Paths of the repository that documents name in code spans exist.

use std::path::Path;

use tidegate_testing::markdown::{Document, Role, documents, root};

/// The history of changes, which names what was.
const HISTORY: &str = "CHANGELOG.md";

/// Folders that builds, programs and tools make.
const NOT_OF_REPOSITORY: &[&str] = &["target", ".git", ".lab", "node_modules"];

/// Extensions of sources. A code span that ends so names a file of the repository, from its root or from
/// any folder.
const SOURCES: &[&str] = &["rs", "py", "sh", "c", "h"];

/// Extensions of files that users have as well: a span that ends so names a file of the repository only if it
/// has a folder.
const SOURCES_IN_FOLDERS: &[&str] = &["toml", "md", "js", "css", "html", "yml", "yaml", "service", "proto"];

#[test]
fn every_path_in_a_code_span_exists() {
    let repository = Repository::read();
    let (mut missing, mut checked) = (Vec::new(), 0);
    for document in documents().iter().filter(|document| document.name != HISTORY) {
        for (number, span) in code_spans(document) {
            for path in repository.paths(&span) {
                checked += 1;
                if !repository.has(&path) {
                    missing.push(format!("{}:{number}: {path}", document.name));
                }
            }
        }
    }
    assert!(checked > 100, "only {checked} paths were found");
    assert!(missing.is_empty(), "paths that do not exist: {missing:#?}");
}

/// The files and folders of the repository.
struct Repository {
    paths: Vec<String>,
}

impl Repository {
    fn read() -> Self {
        let mut paths = Vec::new();
        collect(&root(), &root(), &mut paths);
        Self { paths }
    }

    /// Returns true if a file or folder has this path, from the root or from any folder.
    fn has(&self, path: &str) -> bool {
        let ending = format!("/{path}");
        self.paths.iter().any(|known| known == path || known.ends_with(&ending))
    }

    /// Returns the paths of the repository that a code span names. It may name alternatives, `a/{b,c}.rs`, and
    /// it may be a command with arguments.
    fn paths(&self, span: &str) -> Vec<String> {
        let word = span.split_whitespace().next().unwrap_or_default();
        let is_alone = word == span.trim();
        let mut paths = alternatives(word.trim_start_matches("./"));
        paths.retain(|path| self.is_of_repository(path, is_alone) && !is_placeholder(path));
        paths.iter().map(|path| path.trim_end_matches('/').to_owned()).collect()
    }

    /// Returns true if a path would be one of the repository. `is_alone`: it has no arguments.
    fn is_of_repository(&self, path: &str, is_alone: bool) -> bool {
        let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        let (first, rest) = path.split_once('/').unwrap_or(("", path));
        let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
        let has = |extensions: &[&str]| extension.is_some_and(|extension| extensions.contains(&extension));
        let is_in_folder = !first.is_empty() && !rest.is_empty();
        let is_source = has(SOURCES) || (is_in_folder && has(SOURCES_IN_FOLDERS));
        let is_at_top = is_in_folder && self.paths.iter().any(|known| known == first);
        is_plain && !path.starts_with(['/', '.']) && (is_at_top || (is_alone && is_source))
    }
}

fn collect(root: &Path, folder: &Path, paths: &mut Vec<String>) {
    for entry in folder.read_dir().expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.file_name().is_some_and(|name| NOT_OF_REPOSITORY.iter().any(|other| name == *other)) {
            continue;
        }
        paths.push(path.strip_prefix(root).expect("a path below the root").display().to_string());
        if path.is_dir() && !path.is_symlink() {
            collect(root, &path, paths);
        }
    }
}

/// Returns the paths that braces stand for.
fn alternatives(path: &str) -> Vec<String> {
    let group = path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (inner, after))) = group else { return vec![path.to_owned()] };
    inner.split(',').flat_map(|name| alternatives(&format!("{before}{}{after}", name.trim()))).collect()
}

/// Returns true if a part of the path stands for a name: `NAME`, `N.rs`. Documents have names in capitals.
fn is_placeholder(path: &str) -> bool {
    let stems = path.split('/').map(|part| part.split_once('.').unwrap_or((part, "")));
    stems.into_iter().any(|(stem, extension)| {
        let is_capitals = stem.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        !stem.is_empty() && is_capitals && extension != "md"
    })
}

/// Returns the code spans of a document, each with the number of the line where it ends.
fn code_spans(document: &Document) -> Vec<(usize, String)> {
    let mut spans = Vec::new();
    let mut open: Option<String> = None;
    for line in document.lines.iter().filter(|line| line.role != Role::Code) {
        let is_blank = line.text.trim().is_empty();
        open = open.filter(|_| !is_blank).map(|span| span + " ");
        for c in line.text.trim().chars() {
            match (c, &mut open) {
                ('`', Some(_)) => spans.extend(open.take().map(|span| (line.number, span))),
                ('`', None) => open = Some(String::new()),
                (c, Some(span)) => span.push(c),
                (_, None) => {}
            }
        }
    }
    spans
}

#[test]
fn paths_are_told_from_other_code() {
    let paths = ["crates", "crates/a/src/b.rs", "crates/a/src/c.rs", "scripts", "scripts/run"];
    let repository = Repository { paths: paths.map(str::to_owned).to_vec() };
    let paths = |span| repository.paths(span);
    assert_eq!(paths("src/{b,c}.rs"), ["src/b.rs", "src/c.rs"]);
    assert_eq!(paths("scripts/run --seeds N"), ["scripts/run"]);
    assert_eq!(paths("crates/gone/"), ["crates/gone"]);
    for other in
        ["/etc/a.toml", "a.toml", "crates/NAME", "scripts/*.py", "a::b", "vg0/data", "cargo a.rs", "<a>.rs"]
    {
        assert!(paths(other).is_empty(), "{other}");
    }
    assert!(repository.has("b.rs") && repository.has("src/b.rs") && !repository.has("rc/b.rs"));
}

#[test]
fn a_code_span_may_go_over_two_lines() {
    let document =
        Document::parse("x.md".to_owned(), "a `b\nc` d\n\n```sh\n`e`\n```\n| `f` |\n\n`g\n\nh`i`\n");
    let spans: Vec<_> = code_spans(&document).into_iter().map(|(_, span)| span).collect();
    assert_eq!(spans, ["b c", "f", "i"]);
}
