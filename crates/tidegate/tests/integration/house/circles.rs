//! Circles: files of a crate that use each other, directly or by way of others.
//!
//! A module may use its own children: that alone is no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::house::{files_of_crates, root};

/// Circles within one folder that stay, each by one of its files and with the reason.
const EXPLAINED: &[(&str, &str)] = &[
    ("crates/tidegate/src/identify/arx.rs", "the command draws the page of its own result"),
    ("crates/tidegate/src/identify/profile.rs", "the command draws the page of its own result"),
];

#[test]
fn no_files_use_each_other_in_a_circle() {
    let mut found = Vec::new();
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        let sources = folder.unwrap().path().join("src");
        if sources.is_dir() {
            found.extend(circles(&Modules::read(&sources)));
        }
    }
    let explained = |circle: &Vec<String>| {
        circle.iter().any(|file| EXPLAINED.iter().any(|(of, _)| of == file)) && in_one_folder(circle)
    };
    let unexplained: Vec<_> = found.iter().filter(|circle| !explained(circle)).collect();
    assert!(unexplained.is_empty(), "move what they share to a file below them: {unexplained:#?}");
    for (file, reason) in EXPLAINED {
        let is_there = found.iter().flatten().any(|of| of == file);
        assert!(is_there && !reason.is_empty(), "{file} is in no circle: remove its explanation");
    }
}

/// The files of a crate by the paths of their modules, each with the paths that it names.
struct Modules {
    files: BTreeMap<Vec<String>, String>,
    named: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
}

impl Modules {
    fn read(sources: &Path) -> Self {
        let (mut files, mut named) = (BTreeMap::new(), BTreeMap::new());
        let own = files_of_crates("src").into_iter().filter(|file| file.starts_with(sources));
        for file in own.filter(|file| !is_test(file)) {
            let module = module(sources, &file);
            let text = without_tests(&fs::read_to_string(&file).expect("a readable file"));
            named.insert(module.clone(), paths(&module, &text));
            files.insert(module, crate::house::short(&file));
        }
        Self { files, named }
    }

    /// Returns the module that a path names something of: the longest beginning of it that is a file.
    fn of(&self, path: &[String]) -> Option<&Vec<String>> {
        let longest = (0..=path.len()).rev().find_map(|length| self.files.get_key_value(&path[..length]));
        longest.map(|(module, _)| module)
    }

    /// Returns the modules that this one uses. A module that only declares its children does not use them,
    /// and the root hands names on.
    fn used_by(&self, module: &[String]) -> BTreeSet<&Vec<String>> {
        let used = self.named[module].iter().filter_map(|path| self.of(path));
        used.filter(|used| used.as_slice() != module && !used.is_empty()).collect()
    }
}

fn is_test(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    name == "tests.rs" || name == "fuzz.rs" || file.components().any(|part| part.as_os_str() == "tests")
}

/// Returns the path of a file's module in its crate.
fn module(sources: &Path, file: &Path) -> Vec<String> {
    let inner = file.strip_prefix(sources).expect("a file of the crate").with_extension("");
    let mut parts: Vec<_> = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    parts.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    parts
}

/// Returns the code of a file up to its tests, without comments.
fn without_tests(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let end = lines
        .windows(2)
        .position(|pair| pair[0].starts_with("#[cfg(test)]") && pair[1].contains("mod tests"));
    let code = &lines[..end.unwrap_or(lines.len())];
    let code = code.iter().map(|line| line.split_once("//").map_or(*line, |(code, _)| code));
    code.collect::<Vec<_>>().join("\n")
}

/// Returns the paths in the crate that the code of a module names, from the root of the crate.
fn paths(module: &[String], code: &str) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (root, ups) in [("crate::", None), ("super::", Some(1)), ("self::", Some(0))] {
        for (at, _) in code.match_indices(root) {
            let before = &code[..at];
            if before.ends_with("(in ")
                || before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
            {
                continue;
            }
            let above = ups.map_or(0, |ups: usize| module.len().saturating_sub(ups));
            tree(&module[..above], &code[at + root.len()..], &mut found);
        }
    }
    found
}

/// Adds the paths of a tree of names such as `a::{b, c::D}` that stands at the beginning of `code`.
fn tree(base: &[String], code: &str, found: &mut BTreeSet<Vec<String>>) {
    let mut path = base.to_vec();
    let mut rest = code;
    loop {
        let rest_of_name = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        let name = &rest[..rest.len() - rest_of_name.len()];
        match name {
            "" => break,
            "super" => drop(path.pop()),
            "self" => {}
            name => path.push(name.to_owned()),
        }
        match rest_of_name.strip_prefix("::") {
            Some(after) => rest = after,
            None => break,
        }
    }
    match rest.strip_prefix('{') {
        Some(inner) => branches(inner).into_iter().for_each(|branch| tree(&path, branch, found)),
        None => drop(found.insert(path)),
    }
}

/// Returns the branches of a group of names, whose opening brace is gone.
fn branches(inner: &str) -> Vec<&str> {
    let (mut depth, mut began, mut found) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' | ',' if depth == 0 => {
                found.push(inner[began..at].trim());
                began = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found.retain(|branch| !branch.is_empty());
    found
}

/// Returns the circles of a crate: largest sets of files each of which uses each other.
fn circles(modules: &Modules) -> Vec<Vec<String>> {
    let reached: BTreeMap<_, _> =
        modules.files.keys().map(|module| (module, reach(modules, module))).collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        let circle: Vec<_> = others.iter().filter(|other| reached[*other].contains(*module)).collect();
        if circle.len() > 1 {
            circles
                .insert(circle.into_iter().map(|module| modules.files[*module].clone()).collect::<Vec<_>>());
        }
    }
    circles.into_iter().collect()
}

/// Returns the modules that this one uses, directly or by way of others.
fn reach<'a>(modules: &'a Modules, from: &[String]) -> BTreeSet<&'a Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<_> = modules.used_by(from).into_iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(modules.used_by(module));
        }
    }
    reached
}

/// Returns true if all files stand in one folder. A file beside a folder of its name stands in that folder,
/// too.
fn in_one_folder(circle: &[String]) -> bool {
    let folders = circle.iter().map(|file| {
        let folder = PathBuf::from(file).with_extension("");
        let parent = folder.parent().map(Path::to_path_buf).unwrap_or_default();
        BTreeSet::from([folder, parent])
    });
    folders.reduce(|common, folders| &common & &folders).is_some_and(|common| !common.is_empty())
}

#[test]
fn paths_are_those_that_the_code_names() {
    let path = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<_>>();
    let code = "use crate::a::{self, b::C, d};\nuse super::{e::F};\nlet x = self::g::h();";
    let expected = ["a", "a::b::C", "a::d", "m::e::F", "m::n::g::h"].map(path);
    assert_eq!(paths(&path("m::n"), code), BTreeSet::from(expected));
}
