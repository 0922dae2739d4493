//! TOML documents read key by key: text becomes typed values once, and every mistake is reported with its
//! place.
//!
//! Nothing stops at the first mistake: the author of a document wants all of them. The reader decides what is
//! read and how it is worded: `tidegate-serve` and `tidegate-agent` read configurations, `tidegate-sim`
//! scenarios. The parts that both share are here: tables ([`Section`]), findings ([`FindingList`],
//! [`Finding`]), the [`law`] of a resource, its [`release`] of requests, its [`bursts`], the [`contract`] of
//! a consumer, and times of day ([`daily`]).
//!
//! ```
//! use tidegate_config::{FindingList, Section, parse};
//!
//! let text = "depht = 3\n";
//! let mut report = FindingList::new("tidegate.toml", text);
//! let document = parse(text, &mut report).expect("the syntax is right");
//! let root = Section::new(&document, 0..0, "the document".to_owned(), &["depth"], &mut report);
//! assert!(root.whole("depth", 1..=64, &mut report).is_none());
//! assert_eq!(report.into_findings()[0].help(), Some("did you mean `depth`?"));
//! ```

#![forbid(unsafe_code)]

pub mod bursts;
pub mod contract;
pub mod daily;
mod error;
mod finding;
pub mod goal;
pub mod keys;
pub mod law;
mod mask;
mod nearest;
mod placed;
pub mod release;
mod section;
mod source;

use toml::de::DeTable;

pub use error::{ConfigError, read_text};
pub use finding::{Finding, FindingList, FindingPlace, Severity};
pub use mask::{has_credentials, masked};
pub use nearest::{nearest, unknown_name};
pub use placed::PlacedValue;
pub use section::{Section, TextOrTable};

/// Reads the syntax of a document; `None` when that is wrong, which is then reported.
pub fn parse<'a>(text: &'a str, report: &mut FindingList<'_>) -> Option<DeTable<'a>> {
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    // Only the first: one bracket that is missing makes everything after it look wrong, and what a syntax
    // error leaves behind would only be found missing or misplaced.
    if let Some(error) = syntax_errors.first() {
        report.error(&error.span().unwrap_or(0..0), error.message());
        return None;
    }
    Some(document.into_inner())
}
