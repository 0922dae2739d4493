//! Patterns for cgroups, by the paths of their directories.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

use super::MOST_CGROUPS;
use super::claim::CLAIM;
use super::escaped::{name_text, text_path};
use super::names::{NameKind, NamedCgroup};
use crate::root::ReadError;
use crate::wildcard::looks_like;

/// One cgroup or several, as an administrator writes it.
///
/// Either the path below the root of the hierarchy, such as `system.slice/db.service` or
/// `machine.slice/*.scope`. `*` stands for any text within one name, and not for a slash. Or
/// [a name](NameKind) that people use: `pod:shop/db-*`, `container:web`, `libvirt:db`, `unit:backup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupPattern(PatternForm);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternForm {
    Path(Vec<String>),
    Name(NameKind, String),
}

/// The reason that a text is no pattern for cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CgroupPatternError {
    /// It is empty, or a slash: the root cgroup cannot be limited.
    #[error("the root cgroup cannot be limited: expected a path below it, such as system.slice/db.service")]
    Root,
    /// A part of the path is no name.
    #[error(
        "`{0}` is not the path of a cgroup below the root of their hierarchy, such as system.slice/db.service"
    )]
    Path(String),
    /// A name is missing.
    #[error("`{0}:` lacks a name: write {0}:NAME")]
    NoName(NameKind),
    /// A pod's name lacks its namespace.
    #[error("`pod:{0}` lacks its namespace: write pod:NAMESPACE/NAME, with `*` for any")]
    NoNamespace(String),
}

impl FromStr for CgroupPattern {
    type Err = CgroupPatternError;

    fn from_str(text: &str) -> Result<Self, CgroupPatternError> {
        if let Some((kind, name)) = named(text) {
            return name_pattern(kind, name).map(Self);
        }
        // As systemd and /proc/PID/cgroup write it.
        let path = text.strip_prefix('/').unwrap_or(text);
        if path.is_empty() {
            return Err(CgroupPatternError::Root);
        }
        let names: Vec<_> = path.split('/').map(str::to_owned).collect();
        let is_wrong =
            |name: &String| matches!(name.as_str(), "" | "." | "..") || name.chars().any(char::is_control);
        if names.iter().any(is_wrong) {
            return Err(CgroupPatternError::Path(text.escape_debug().to_string()));
        }
        Ok(Self(PatternForm::Path(names)))
    }
}

impl fmt::Display for CgroupPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PatternForm::Path(names) => f.write_str(&names.join("/")),
            PatternForm::Name(kind, name) => write!(f, "{kind}:{name}"),
        }
    }
}

/// Returns the kind and name of a pattern of names.
fn named(text: &str) -> Option<(NameKind, &str)> {
    let (prefix, name) = text.split_once(':')?;
    NameKind::ALL.iter().find(|(_, known)| *known == prefix).map(|(kind, _)| (*kind, name))
}

fn name_pattern(kind: NameKind, name: &str) -> Result<PatternForm, CgroupPatternError> {
    /// The suffixes of units that have processes.
    const UNITS: [&str; 3] = [".service", ".scope", "*"];
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(CgroupPatternError::NoName(kind));
    }
    match kind {
        NameKind::Pod if !name.contains('/') => Err(CgroupPatternError::NoNamespace(name.to_owned())),
        NameKind::Unit if !UNITS.iter().any(|suffix| name.ends_with(suffix)) => {
            Ok(PatternForm::Name(kind, format!("{name}.service")))
        }
        _ => Ok(PatternForm::Name(kind, name.to_owned())),
    }
}

impl CgroupPattern {
    /// Returns true if the pattern means a cgroup of this path, as
    /// [`CgroupReader`](crate::sense::CgroupReader) names it. Paths do not tell names.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let PatternForm::Path(patterns) = &self.0 else { return false };
        let mut names = path.split('/');
        let fits = patterns.iter().all(|pattern| names.next().is_some_and(|name| looks_like(pattern, name)));
        fits && names.next().is_none()
    }

    /// Returns true if it means cgroups by a name, which files of the machine tell.
    #[must_use]
    pub const fn is_by_name(&self) -> bool {
        matches!(self.0, PatternForm::Name(..))
    }

    /// Returns the kind of the name and the name, if it means cgroups by a name.
    #[must_use]
    pub fn by_name(&self) -> Option<(NameKind, &str)> {
        match &self.0 {
            PatternForm::Name(kind, name) => Some((*kind, name)),
            PatternForm::Path(_) => None,
        }
    }

    /// Adds the cgroups among those with names that are meant, with their names.
    pub(super) fn select(&self, named: &[NamedCgroup], found: &mut BTreeMap<String, Option<String>>) {
        let PatternForm::Name(kind, pattern) = &self.0 else { return };
        let meant = named.iter().filter(|cgroup| cgroup.is_meant(*kind, pattern));
        found.extend(meant.map(|cgroup| (cgroup.path.clone(), Some(cgroup.to_string()))));
    }

    /// Adds the cgroups below a root that are meant, as far as there is room.
    pub(super) fn expand(&self, root: &Path, found: &mut BTreeSet<String>) -> Result<(), ReadError> {
        let PatternForm::Path(names) = &self.0 else { return Ok(()) };
        let mut paths = vec![String::new()];
        for name in names {
            let mut next = Vec::new();
            for path in &paths {
                let below =
                    |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                if !name.contains('*') {
                    next.push(below(name));
                    continue;
                }
                let directory = root.join(text_path(path));
                let entries = match fs::read_dir(&directory) {
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                    {
                        continue;
                    }
                    entries => entries.map_err(|source| ReadError::Unreadable { path: directory, source })?,
                };
                // What goes while it is read is not there. A cgroup's files are among the cgroups in it.
                let entries = entries.filter_map(Result::ok);
                let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
                let names = entries.map(|entry| name_text(&entry.file_name()));
                next.extend(names.filter(|entry| looks_like(name, entry)).map(|entry| below(&entry)));
            }
            next.truncate(MOST_CGROUPS);
            paths = next;
        }
        // A claim is no consumer.
        found.extend(paths.into_iter().filter(|path| path != CLAIM && root.join(text_path(path)).is_dir()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_is_meant() {
        let tree = tempfile::tempdir().unwrap();
        for path in
            ["a.slice/db1.service/x", "a.slice/db2.service", "a.slice/web.service", "b.slice/db3.service"]
        {
            fs::create_dir_all(tree.path().join(path)).unwrap();
        }
        for file in ["cgroup.procs", "a.slice/cgroup.procs", "a.slice/db.service"] {
            fs::write(tree.path().join(file), "a file").unwrap();
        }
        let meant = |pattern: &str| {
            let mut found = BTreeSet::new();
            pattern.parse::<CgroupPattern>().unwrap().expand(tree.path(), &mut found).unwrap();
            found.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(meant("a.slice/web.service"), "a.slice/web.service");
        assert_eq!(meant("/a.slice/db*.service"), "a.slice/db1.service a.slice/db2.service");
        assert_eq!(meant("*/db*"), "a.slice/db1.service a.slice/db2.service b.slice/db3.service");
        assert_eq!(meant("*"), "a.slice b.slice");
        assert_eq!(meant("*/*/x"), "a.slice/db1.service/x");
        assert_eq!(meant("c.slice/*"), "");
        assert_eq!(meant("cgroup.procs/*"), "");
        assert_eq!(meant("a.slice/db.service"), "", "a file is no cgroup");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let error = |text: &str| text.parse::<CgroupPattern>().unwrap_err().to_string();
        assert!(error("").contains("root cgroup") && error("/").contains("root cgroup"));
        for wrong in ["a//b", "a/", "../a", "a/./b", "a\nb"] {
            assert!(error(wrong).contains("is not the path"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_that_stays_below_the_root_or_refused(text in "(\\.|/|\\*|\\PC){0,20}") {
            if let Ok(pattern) = text.parse::<CgroupPattern>() {
                prop_assert_eq!(pattern.to_string().parse::<CgroupPattern>(), Ok(pattern.clone()));
                if let PatternForm::Path(names) = &pattern.0 {
                    prop_assert!(names.iter().all(|name| name != ".." && !name.contains('/')));
                }
            }
        }
    }
}
