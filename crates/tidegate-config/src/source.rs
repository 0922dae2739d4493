//! A document's text, and places in it.

use std::ops::Range;

use crate::mask::masked;

/// A text with the name under which messages refer to it.
#[derive(Debug, Clone)]
pub(crate) struct SourceText<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

/// A place as a person counts: from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The line around a span, and the part of it to underline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceExcerpt {
    pub(crate) place: Place,
    /// The line or the part of it around the place, without control characters: it goes to a terminal.
    pub(crate) line: String,
    /// The number of characters of `line` before the part to underline.
    pub(crate) indent: usize,
    /// The number of characters to underline, at least one, at most to the end of `line`.
    pub(crate) width: usize,
}

/// Longer lines are cut: an excerpt is to be read at a glance, and a finding stays bounded.
const LONGEST_LINE: usize = 100;

/// The number of characters of a cut line that are shown before the place.
const BEFORE: usize = 20;

impl SourceText<'_> {
    /// The line on which a span begins. A span outside of the text means the text's end.
    pub(crate) fn excerpt(&self, span: &Range<usize>) -> SourceExcerpt {
        let start = floor_char_boundary(self.text, span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |length| start + length);
        let line = &self.text[line_start..line_end];
        let end = floor_char_boundary(self.text, span.end).clamp(start, line_end);
        let before = self.text[line_start..start].chars().count();
        let width = self.text[start..end].trim_end().chars().count().max(1);
        let skipped = if before + width <= LONGEST_LINE { 0 } else { before.saturating_sub(BEFORE) };
        let masked = masked(line);
        let shown = masked.chars().skip(skipped).take(LONGEST_LINE);
        let indent = before - skipped;
        SourceExcerpt {
            place: Place { line: self.text[..line_start].matches('\n').count() + 1, column: before + 1 },
            line: shown.map(|c| if c.is_control() { ' ' } else { c }).collect(),
            indent,
            width: width.min(LONGEST_LINE - indent),
        }
    }
}

fn floor_char_boundary(text: &str, index: usize) -> usize {
    let mut index = index.min(text.len());
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(text: &str, span: Range<usize>) -> SourceExcerpt {
        SourceText { name: "t", text }.excerpt(&span)
    }

    #[test]
    fn places_count_from_one_and_columns_in_characters() {
        let text = "a = 1\nµµ = \"x\"\n";
        let found = excerpt(text, 11..16);
        assert_eq!(found.place, Place { line: 2, column: 4 });
        assert_eq!(found.line, "µµ = \"x\"");
    }

    #[test]
    fn a_span_over_several_lines_is_underlined_to_the_end_of_the_first() {
        let found = excerpt("a = [\n1,\n]\n", 4..10);
        assert_eq!((found.place.line, found.place.column, found.width), (1, 5, 1));
    }

    #[test]
    fn nothing_is_outside() {
        assert_eq!(excerpt("", 0..0).place, Place { line: 1, column: 1 });
        assert_eq!(excerpt("a\n", 50..90).place, Place { line: 2, column: 1 });
        let inside_a_character = "µ";
        assert_eq!(excerpt(inside_a_character, 1..1).place.column, 1);
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}error{}", "x".repeat(1_000), "y".repeat(1_000));
        let found = excerpt(&text, 1_000..1_005);
        assert_eq!(found.place.column, 1_001);
        assert_eq!(
            found.line,
            format!("{}error{}", "x".repeat(BEFORE), "y".repeat(LONGEST_LINE - BEFORE - 5))
        );
        assert_eq!((found.indent, found.width), (BEFORE, 5));
        assert_eq!(excerpt(&text, 0..2_000).width, LONGEST_LINE);
        assert_eq!(excerpt(&text, 1_000..2_000).width, LONGEST_LINE - BEFORE);
    }
}
