//! What must hold of findings about a text that somebody wrote. Each crate with a reader includes this file.

use tidegate_config::{Finding, Severity};

/// More findings than these are not kept.
const MOST_FINDINGS: usize = 100;

/// The longest message or help, in characters.
const LONGEST_MESSAGE: usize = 2_000;

/// The longest finding as it is shown: message, help, an excerpt of a line, and its place.
const LONGEST_SHOWN: usize = 4 * (2 * LONGEST_MESSAGE + 500);

/// Checks findings: each has its place inside of the text, is bounded, and is safe on a terminal.
pub(super) fn check(text: &str, findings: &[Finding]) {
    assert!(findings.len() <= MOST_FINDINGS, "{} findings", findings.len());
    assert!(findings.is_sorted_by_key(|finding| (finding.line(), finding.column())));
    let lines: Vec<&str> = text.split('\n').collect();
    for finding in findings {
        let line =
            finding.line().checked_sub(1).and_then(|line| lines.get(line)).expect("a line of the text");
        let columns = 1..=line.chars().count() + 1;
        assert!(columns.contains(&finding.column()), "column {} of {line:?}", finding.column());
        for said in [Some(finding.message()), finding.help()].into_iter().flatten() {
            assert!(said.chars().count() <= LONGEST_MESSAGE, "{} bytes of message", said.len());
            assert!(!said.contains(char::is_control), "a message with control characters: {said:?}");
        }
        let shown = finding.to_string();
        assert!(shown.len() <= LONGEST_SHOWN, "{} bytes of finding", shown.len());
        assert!(shown.lines().count() <= 3, "a finding has three lines: {shown:?}");
    }
}

/// Checks the findings of a text that cannot be used: one of them says why.
pub(super) fn check_errors(text: &str, findings: &[Finding]) {
    check(text, findings);
    assert!(
        findings.iter().any(|finding| finding.severity() == Severity::Error),
        "it is refused without a reason"
    );
}

/// Checks the findings of a text that can be used.
pub(super) fn check_warnings(text: &str, findings: &[Finding]) {
    check(text, findings);
    assert!(
        findings.iter().all(|finding| finding.severity() == Severity::Warning),
        "it is taken with an error"
    );
}
