//! Circles: files of a crate that use each other, directly or by way of others.
//!
//! A module may hand on the names of its children, and call them by their bare names (`child::run()`), even if
//! they use what it defines. Any other path counts, by way of `pub use` as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::house::source::{is_of_name, product_code, test_modules};
use crate::house::{files_of_crates, root};

/// Circles within one folder that stay, each by one of its files and with the reason.
const EXPLAINED: &[(&str, &str)] = &[
    ("crates/tidegate-device/src/tiers.rs", "devices are made of devices, and so are their parameters"),
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

/// The files of a crate by the paths of their modules, each with what its code names.
struct Modules {
    files: BTreeMap<Vec<String>, String>,
    names: BTreeMap<Vec<String>, Names>,
}

/// The names in the code of a module, as paths from the root of the crate.
#[derive(Debug, Default, PartialEq)]
struct Names {
    /// Paths that the code uses.
    used: BTreeSet<Vec<String>>,
    /// Names that `use` brings into the module, each with its path. `None`: it is another crate's.
    brought: BTreeMap<String, Option<Vec<String>>>,
}

impl Modules {
    /// Reads the files below a folder of sources, without those of tests.
    fn read(sources: &Path) -> Self {
        let own = files_of_crates("src").into_iter().filter(|file| file.starts_with(sources));
        let texts = own.map(|file| {
            let text = fs::read_to_string(&file).expect("a readable file");
            (module(sources, &file), (crate::house::short(&file), text))
        });
        Self::of(&texts.collect())
    }

    /// Takes the files of a crate, each with its text, by the paths of their modules.
    fn of(texts: &BTreeMap<Vec<String>, (String, String)>) -> Self {
        let of_tests: BTreeSet<_> = texts
            .iter()
            .flat_map(|(module, (_, text))| {
                test_modules(text).into_iter().map(|name| [module.as_slice(), &[name]].concat())
            })
            .collect();
        let is_test =
            |module: &[String]| (1..=module.len()).any(|length| of_tests.contains(&module[..length]));
        let (mut files, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (module, (file, text)) in texts.iter().filter(|(module, _)| !is_test(module)) {
            let is_child = |name: &str| texts.contains_key(&[module.as_slice(), &[name.to_owned()]].concat());
            names.insert(module.clone(), Names::of(module, &product_code(text), &is_child));
            files.insert(module.clone(), file.clone());
        }
        Self { files, names }
    }

    /// Returns the module that a path names something of: the longest beginning of it that is a file. A name
    /// that this file only hands on leads to where it is from. `None`: that is another crate.
    fn named(&self, path: &[String]) -> Option<&Vec<String>> {
        let mut path = path.to_vec();
        // A name may be handed on several times. Two names that stand for each other do not compile.
        for _ in 0..16 {
            let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
            let (module, _) = self.files.get_key_value(&path[..length])?;
            match path.get(length).and_then(|name| self.names[module].brought.get(name)) {
                None => return Some(module),
                Some(None) => return None,
                Some(Some(from)) => path = [from, &path[length + 1..]].concat(),
            }
        }
        None
    }

    /// Returns the modules that this one uses. A module that only declares its children, or hands their names
    /// on, does not use them, and the root hands names on.
    fn used_by(&self, module: &[String]) -> BTreeSet<&Vec<String>> {
        let used = self.names[module].used.iter().filter_map(|path| self.named(path));
        used.filter(|used| used.as_slice() != module && !used.is_empty()).collect()
    }
}

/// Returns the path of a file's module in its crate.
fn module(sources: &Path, file: &Path) -> Vec<String> {
    let inner = file.strip_prefix(sources).expect("a file of the crate").with_extension("");
    let mut parts: Vec<_> = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    parts.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    parts
}

impl Names {
    /// Reads the code of a module. `is_child` tells the modules that are files below it.
    fn of(module: &[String], code: &str, is_child: &dyn Fn(&str) -> bool) -> Self {
        let mut names = Self::default();
        let code: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
        for (before, rest) in words(&code) {
            if before.ends_with("use ")
                && let Some((tree, _)) = rest.split_once(';')
            {
                let visibility = before.trim_end_matches("use ").trim_end();
                let is_handed_on = visibility.ends_with("pub") || visibility.ends_with(')');
                names.bring(module, tree, is_handed_on, is_child);
            } else if !before.ends_with("(in ") && !is_in_use(before) {
                let path: String = rest.chars().take_while(|c| is_of_name(*c) || *c == ':').collect();
                let path = split(&path);
                if is_spelled_out(&path) {
                    names.used.extend(absolute(module, &path, is_child));
                }
            }
        }
        names
    }

    /// Adds the names of a `use`.
    fn bring(&mut self, module: &[String], tree: &str, is_handed_on: bool, is_child: &dyn Fn(&str) -> bool) {
        for (path, name) in leaves(tree) {
            let whole = absolute(module, &path, is_child);
            let is_below = whole.as_ref().is_some_and(|whole| whole.starts_with(module));
            if is_spelled_out(&path) && !(is_handed_on && is_below) {
                self.used.extend(whole.clone());
            }
            self.brought.insert(name, whole);
        }
    }
}

/// Returns the words of the code that begin a path, each with the code before it and from it on.
fn words(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let begins = |at: usize| {
        let (before, rest) = code.split_at(at);
        rest.starts_with(is_of_name) && !before.ends_with(|c| is_of_name(c) || c == ':' || c == '.')
    };
    code.char_indices().filter(move |(at, _)| begins(*at)).map(|(at, _)| code.split_at(at))
}

/// Returns true if the code ends within a `use`, whose tree was read as a whole.
fn is_in_use(before: &str) -> bool {
    let statement = before.rsplit(';').next().unwrap_or(before);
    let at = statement.rfind("use ").filter(|at| !statement[..*at].ends_with(is_of_name));
    at.is_some_and(|at| statement[at + 4..].chars().all(|c| is_of_name(c) || "{}:, *".contains(c)))
}

/// Returns true if a path says where it begins. The bare name of a child does not: so a parent may call its
/// children, which use what it defines.
fn is_spelled_out(path: &[String]) -> bool {
    path.len() > 1 && matches!(path[0].as_str(), "crate" | "self" | "super")
}

/// Returns the path from the root of the crate. `None`: it is another crate's, or begins with a type.
fn absolute(module: &[String], path: &[String], is_child: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut whole = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len().saturating_sub(1)].to_vec(),
        child if is_child(child) => [module, std::slice::from_ref(first)].concat(),
        _ => return None,
    };
    for name in rest {
        match name.as_str() {
            "super" => drop(whole.pop()),
            "self" | "*" => {}
            name => whole.push(name.to_owned()),
        }
    }
    Some(whole)
}

fn split(path: &str) -> Vec<String> {
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the paths of a tree such as `a::{b, c::D as E}`, each with the name that it brings.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    if let Some((base, inner)) = tree.split_once('{') {
        let base = split(base.trim());
        let below = branches(inner).into_iter().flat_map(leaves);
        let whole = below.map(|(path, name)| {
            let of_base = name == "self";
            let name = if of_base { base.last().cloned().unwrap_or_default() } else { name };
            ([base.as_slice(), &path].concat(), name)
        });
        return whole.collect();
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let path = split(path.trim());
    let last = path.last().cloned().unwrap_or_default();
    vec![(path, if alias.is_empty() { last } else { alias.trim().to_owned() })]
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

fn path(text: &str) -> Vec<String> {
    split(text)
}

#[test]
fn paths_are_those_that_the_code_names() {
    let code = "use crate::a::{self, b::C as X, d,\n    w::{y::Z}};\nuse super::{e::F};\npub use child::G;\n\
        use other::{h::I, J};\nimpl K { pub(in crate::l) fn f() { self::g::h(); child::i(); other::j() } }";
    let names = Names::of(&path("m::n"), code, &|name| name == "child");
    let used = ["a", "a::b::C", "a::d", "a::w::y::Z", "m::e::F", "m::n::g::h"].map(path);
    assert_eq!(names.used, BTreeSet::from(used));
    let brought = |name: &str| names.brought[name].clone();
    assert_eq!(brought("X"), Some(path("a::b::C")));
    assert_eq!(brought("a"), Some(path("a")));
    assert_eq!(brought("G"), Some(path("m::n::child::G")));
    assert_eq!(brought("J"), None);
}

/// Returns the circles of a crate of these modules, each with its code.
fn circles_of(modules: &[(&str, &str)]) -> Vec<Vec<String>> {
    let file = |(module, code): &(&str, &str)| (path(module), ((*module).to_owned(), (*code).to_owned()));
    circles(&Modules::of(&modules.iter().map(file).collect()))
}

#[test]
fn a_circle_behind_a_declaration_of_tests_is_found() {
    let found = circles_of(&[
        ("", "mod a;\nmod b;\nmod c;"),
        ("a", "#[cfg(test)]\nmod tests;\n\nuse crate::{\n    c::D,\n    b::E,\n};"),
        ("a::tests", "use crate::c::D;"),
        ("b", "fn f() {\n    super::a::g();\n}"),
        (
            "c",
            "// crate::a\nconst D: &str = \"crate::a::g\";\n#[cfg(test)]\nmod tests {\n    use crate::a::g;\n}",
        ),
    ]);
    assert_eq!(found, [["a", "b"]]);
}

#[test]
fn a_circle_by_way_of_a_name_that_is_handed_on_is_found() {
    let parent = "mod low;\nmod high;\npub use self::high::{High, rise as climb};\npub struct Own;";
    let high = "use super::low::Low;";
    let found = |low| circles_of(&[("", "mod m;"), ("m", parent), ("m::low", low), ("m::high", high)]);
    assert_eq!(found("fn f() { crate::m::climb() }"), [["m::high", "m::low"]]);
    assert!(found("use super::Own;").is_empty());
}
