//! Findings: errors and warnings about a document, their places, and their remedies.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::mask::masked;
use crate::nearest;
use crate::placed::PlacedValue;
use crate::source::{SourceExcerpt, SourceText};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The document cannot be used.
    Error,
    /// The document can be used, and probably does not do what was meant.
    Warning,
}

/// One thing to correct. [`Display`](fmt::Display) gives `FILE:line:column: message`, the line, and what to
/// do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    severity: Severity,
    file: String,
    excerpt: SourceExcerpt,
    message: String,
    help: Option<String>,
}

impl Finding {
    /// Returns its severity.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.severity
    }

    /// The line, counted from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.excerpt.place.line
    }

    /// The column in characters, counted from 1.
    #[must_use]
    pub const fn column(&self) -> usize {
        self.excerpt.place.column
    }

    /// Returns the description of the problem.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the remedy, if it is known.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line().to_string();
        let margin = " ".repeat(number.len());
        let warning = if self.severity == Severity::Warning { "warning: " } else { "" };
        writeln!(f, "{}:{}:{}: {warning}{}", self.file, self.line(), self.column(), self.message)?;
        writeln!(f, " {number} | {}", self.excerpt.line)?;
        write!(f, " {margin} | {}{}", " ".repeat(self.excerpt.indent), "^".repeat(self.excerpt.width))?;
        match &self.help {
            Some(help) => write!(f, " {help}"),
            None => Ok(()),
        }
    }
}

/// A place in a document, for what turns out to be wrong after it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingPlace {
    file: String,
    excerpt: SourceExcerpt,
}

impl FindingPlace {
    /// The document cannot be used because of what is written here.
    #[must_use]
    pub fn error(&self, message: impl Into<String>) -> Finding {
        let Self { file, excerpt } = self.clone();
        Finding { severity: Severity::Error, file, excerpt, message: shown(&message.into()), help: None }
    }

    /// The same, where it is known what to do.
    #[must_use]
    pub fn error_with_help(&self, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { help: Some(shown(&help.into())), ..self.error(message) }
    }

    /// What is written here is allowed, and probably not meant.
    #[must_use]
    pub fn warning(&self, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, ..self.error_with_help(message, help) }
    }
}

/// Findings, collected while a document is read: a person wants to see all of them at once.
#[derive(Debug)]
pub struct FindingList<'a> {
    source: SourceText<'a>,
    findings: Vec<Finding>,
}

/// More are not shown: a document with a hundred is the wrong file.
const MOST_FINDINGS: usize = 100;

/// The longest message or help, in characters: the longest list of keys with some words around it needs half
/// of this.
const LONGEST_MESSAGE: usize = 2_000;

/// A message as a terminal may show it. It may quote a text of any length, with any characters.
fn shown(message: &str) -> String {
    let message = masked(message).into_owned();
    let is_plain = |c: char| !c.is_control();
    if message.len() <= LONGEST_MESSAGE && message.chars().all(is_plain) {
        return message;
    }
    let escaped = message.chars().flat_map(|c| {
        let plain = Some(c).filter(|c| is_plain(*c));
        let control = Some(c).filter(|c| !is_plain(*c)).map(char::escape_debug);
        plain.into_iter().chain(control.into_iter().flatten())
    });
    escaped.take(LONGEST_MESSAGE).collect()
}

impl<'a> FindingList<'a> {
    /// Nothing is wrong yet. `name` is what the findings call the document whose `text` is read.
    #[must_use]
    pub const fn new(name: &'a str, text: &'a str) -> Self {
        Self { source: SourceText { name, text }, findings: Vec::new() }
    }

    /// The document cannot be used because of what is written there.
    pub fn error(&mut self, span: &Range<usize>, message: impl Into<String>) {
        self.add(Severity::Error, span, &message.into(), None);
    }

    /// Returns a path as it is meant: relative to the folder of the configuration, not to wherever the
    /// service was started. Reports a text that is no path.
    pub fn path(&mut self, folder: &Path, text: &str, span: &Range<usize>) -> PathBuf {
        if text.is_empty() || text.contains('\0') {
            self.error(span, "a path must not be empty or contain a zero byte");
        }
        folder.join(text)
    }

    /// The same, where it is known what to write instead.
    pub fn error_with_help(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Error, span, &message.into(), Some(&help.into()));
    }

    /// Reports a reference to a thing that does not exist; `known` are the things of its kind that exist.
    pub fn unknown<T: AsRef<str>>(&mut self, given: &PlacedValue<T>, kind: &str, mut known: Vec<&str>) {
        let name = given.value.as_ref();
        known.sort_unstable();
        let help = if known.is_empty() {
            format!("there are none of the kind: add `[{kind}.{name}]`")
        } else {
            nearest::help(name, &known)
        };
        self.error_with_help(&given.span, format!("there is no {kind} `{}`", name.escape_debug()), help);
    }

    /// Reports something that is allowed and probably not meant.
    pub fn warning(&mut self, span: &Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Warning, span, &message.into(), Some(&help.into()));
    }

    fn add(&mut self, severity: Severity, span: &Range<usize>, message: &str, help: Option<&str>) {
        if self.findings.len() >= MOST_FINDINGS {
            // An error takes a warning's place: without it the document would count as right.
            let warning = self.findings.iter().rposition(|finding| finding.severity == Severity::Warning);
            match warning.filter(|_| severity == Severity::Error) {
                Some(at) => drop(self.findings.remove(at)),
                None => return,
            }
        }
        let (message, help) = (shown(message), help.map(shown));
        let (file, excerpt) = (self.source.name.to_owned(), self.source.excerpt(span));
        self.findings.push(Finding { severity, file, excerpt, message, help });
    }

    /// The place of what is written there.
    #[must_use]
    pub fn place(&self, span: &Range<usize>) -> FindingPlace {
        FindingPlace { file: self.source.name.to_owned(), excerpt: self.source.excerpt(span) }
    }

    /// The findings in the order of the text.
    #[must_use]
    pub fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|finding| finding.excerpt.place);
        self.findings
    }

    /// Returns true if any finding is worse than a warning.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_behind_a_hundred_warnings_was_forgotten() {
        let mut report = FindingList::new("f.toml", "a = 1\n");
        for _ in 0..MOST_FINDINGS {
            report.warning(&(0..1), "allowed", "think again");
        }
        assert!(!report.has_errors());
        report.error(&(0..1), "wrong");
        assert!(report.has_errors());
        let findings = report.into_findings();
        assert_eq!(findings.len(), MOST_FINDINGS);
        assert!(findings.iter().any(|finding| finding.message() == "wrong"));
    }

    #[test]
    fn a_text_wrote_control_characters_and_any_length_to_the_terminal() {
        let mut report = FindingList::new("f.toml", "a = 1\n");
        let quoted = format!("`\u{1b}[2J\n{}` is no rate", "x".repeat(10_000));
        report.error_with_help(&(0..1), quoted.clone(), quoted);
        let findings = report.into_findings();
        let finding = &findings[0];
        for said in [finding.message(), finding.help().unwrap()] {
            assert!(said.starts_with(r"`\u{1b}[2J\nxxx"), "{said}");
            assert_eq!(said.len(), LONGEST_MESSAGE);
        }
    }

    #[test]
    fn a_finding_shows_place_line_and_what_to_do() {
        let mut report = FindingList::new("f.toml", "[pool.a]\ndept = 3\n");
        report.error_with_help(&(9..13), "unknown key `dept`", "did you mean `depth`?");
        let findings = report.into_findings();
        assert_eq!(
            findings[0].to_string(),
            "f.toml:2:1: unknown key `dept`\n 2 | dept = 3\n   | ^^^^ did you mean `depth`?"
        );
    }

    #[test]
    fn findings_come_in_the_order_of_the_text_and_are_bounded() {
        let findings = |errors| {
            let mut report = FindingList::new("f", "a\nb\n");
            report.warning(&(2..3), "second", "");
            assert!(!report.has_errors());
            for _ in 0..errors {
                report.error(&(0..1), "first");
            }
            assert!(report.has_errors());
            report.into_findings()
        };
        let all = findings(MOST_FINDINGS - 1);
        assert_eq!((all[0].message(), all[99].message()), ("first", "second"));
        assert_eq!(findings(1_000).len(), MOST_FINDINGS);
    }
}
