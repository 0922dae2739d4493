//! Patterns of names with `*` for any text.

/// Returns true if a text is a pattern's fixed parts with anything for each `*`. It takes the first place
/// where a part fits, which is as good as any later one.
#[must_use]
pub fn looks_like(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(tail)
}
