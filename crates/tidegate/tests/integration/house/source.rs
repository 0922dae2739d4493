//! Rust files, read as far as the test of circles needs it: without comments, texts and tests.

/// Returns the code of a file. Comments and the contents of texts become blanks, items for tests are left out.
pub(crate) fn product_code(text: &str) -> String {
    let code = without_texts(text);
    if code.contains("#![cfg(test)]") { String::new() } else { without_test_items(&code) }
}

/// Returns the modules that a file declares for tests only: `#[cfg(test)] mod NAME;`.
pub(crate) fn test_modules(text: &str) -> Vec<String> {
    let code = without_texts(text);
    let items = test_items(&code).into_iter().map(|(from, to)| &code[from..to]);
    let declared = items.filter_map(|item| item.split_once("mod ")?.1.strip_suffix(';'));
    declared.filter(|name| is_name(name)).map(str::to_owned).collect()
}

/// Returns true if a text is one name.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

/// Returns true for the letters of names.
pub(crate) fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the code with blanks instead of comments, and empty texts instead of texts.
fn without_texts(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = comment(rest).or_else(|| quoted(rest, &code)).unwrap_or(0);
        if length == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            code.push_str(if rest.starts_with('/') { " " } else { "\"\"" });
            rest = &rest[length..];
        }
    }
    code
}

/// Returns the length of the comment at the beginning. Block comments nest.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let (mut depth, mut at) = (0, 0);
    while text.starts_with("/*") {
        let rest = text.get(at..)?;
        let (step, change) = match rest {
            rest if rest.starts_with("/*") => (2, 1),
            rest if rest.starts_with("*/") => (2, -1),
            rest => (rest.chars().next().map_or(1, char::len_utf8), 0),
        };
        (depth, at) = (depth + change, at + step);
        if depth == 0 || at >= text.len() {
            return Some(at.min(text.len()));
        }
    }
    None
}

/// Returns the length of the text or character at the beginning, behind `before`. A lifetime is none.
fn quoted(text: &str, before: &str) -> Option<usize> {
    let in_name = before.ends_with(is_of_name);
    let raw = text.strip_prefix('r').map(|rest| rest.trim_start_matches('#'));
    if let Some(inner) =
        raw.and_then(|rest| rest.strip_prefix('"')).filter(|_| !in_name || before.ends_with('b'))
    {
        let opening = text.len() - inner.len();
        let end = format!("\"{}", "#".repeat(opening - 2));
        return Some(opening + inner.find(&end).map_or(inner.len(), |at| at + end.len()));
    }
    let mut letters = text.char_indices();
    let (_, quote) = letters.next().filter(|(_, c)| matches!(c, '"' | '\''))?;
    let mut ahead = letters.clone().map(|(_, c)| c);
    if quote == '\'' && ahead.next()? != '\\' && ahead.next() != Some('\'') {
        return None;
    }
    while let Some((at, c)) = letters.next() {
        if c == '\\' {
            letters.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    Some(text.len())
}

fn without_test_items(code: &str) -> String {
    let (mut kept, mut at) = (String::new(), 0);
    for (from, to) in test_items(code) {
        kept.push_str(&code[at..from]);
        at = to;
    }
    kept + &code[at..]
}

/// Returns where the items begin and end that only tests have, with their attributes.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (from, _) in code.match_indices("#[") {
        let is_within = found.last().is_some_and(|(_, to)| from < *to);
        if !is_within && is_for_tests(attribute(&code[from..])) {
            found.push((from, from + item(&code[from..])));
        }
    }
    found
}

/// Returns the attribute at the beginning.
fn attribute(code: &str) -> &str {
    &code[..1 + bracketed(&code[1..])]
}

/// Returns true if code with this attribute is compiled for tests only.
fn is_for_tests(attribute: &str) -> bool {
    let condition = attribute.strip_prefix("#[cfg(");
    let words = condition.map(|condition| condition.split(|c| !is_of_name(c)).collect::<Vec<_>>());
    attribute == "#[test]" || words.is_some_and(|words| words.contains(&"test") && !words.contains(&"not"))
}

/// Returns the length of the item, field or arm at the beginning, with its attributes.
fn item(code: &str) -> usize {
    let mut start = 0;
    while code[start..].trim_start().starts_with("#[") {
        let attribute_at = code.len() - code[start..].trim_start().len();
        start = attribute_at + attribute(&code[attribute_at..]).len();
    }
    let words: Vec<_> = code[start..].split(|c| !is_of_name(c)).filter(|word| !word.is_empty()).collect();
    let words: Vec<_> = words.into_iter().take(4).collect();
    let has = |keywords: &[&str]| words.iter().any(|word| keywords.contains(word));
    let ends_with_block = has(&["fn", "mod", "impl", "struct", "enum", "trait", "macro_rules", "union"]);
    let ends_with_semicolon = has(&["use", "const", "static", "type", "let"]) && !has(&["fn"]);
    let mut at = start;
    while let Some(c) = code[at..].chars().next() {
        match c {
            ';' => return at + 1,
            ',' if !ends_with_block && !ends_with_semicolon => return at + 1,
            '}' | ')' | ']' => return at,
            '{' | '(' | '[' => {
                at += bracketed(&code[at..]);
                if c == '{' && ends_with_block && !ends_with_semicolon {
                    return at;
                }
            }
            c => at += c.len_utf8(),
        }
    }
    at
}

/// Returns the length of the bracketed code at the beginning, with its brackets.
fn bracketed(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        depth += i32::from(matches!(c, '{' | '(' | '[')) - i32::from(matches!(c, '}' | ')' | ']'));
        if depth == 0 {
            return at + c.len_utf8();
        }
    }
    code.len()
}

#[test]
fn test_items_are_left_out_and_what_follows_them_is_kept() {
    let code = r"
        #[cfg(test)]
        mod tests;
        use crate::kept;
        #[cfg(test)]
        use crate::{gone, gone::{more}};
        struct Kept {
            #[cfg(test)]
            gone: BTreeMap<u8, [u8; 2]>,
            kept: u8,
        }
        #[cfg(any(test, fuzzing))]
        #[allow(dead_code)]
        pub(crate) const fn gone(gone: &[u8; 3]) -> u8 { if gone { 1 } else { 2 } }
        #[cfg(not(test))]
        fn kept() {}
        #[cfg(test)]
        const GONE: Gone = Gone { a: 1 };
        #[cfg(test)]
        mod inline { mod deeper { fn gone() {} } }
        fn also_kept() {}
    ";
    let left = product_code(code);
    assert!(!left.to_lowercase().contains("gone") && !left.contains("tests"), "{left}");
    assert_eq!(left.matches("kept").count(), 4, "{left}");
    assert_eq!(test_modules(code), ["tests"]);
}

#[test]
fn comments_and_texts_are_no_code() {
    let code = r##"a // b "
        /* c /* d */ e */ f "g // \" h" b"i" r#"j " k"# 'l' '\'' '"' <'m> br"n\" 'o: p"##;
    let left: String = without_texts(code).chars().filter(|c| c.is_alphabetic()).collect();
    assert_eq!(left, "afbmbop");
}
