//! Paragraphs in lines.

/// Breaks a paragraph between words into lines of at most `width` characters. A longer word has a line of its
/// own.
#[must_use]
pub fn wrap(paragraph: &str, width: usize) -> String {
    let (mut out, mut column) = (String::with_capacity(paragraph.len()), 0);
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}
