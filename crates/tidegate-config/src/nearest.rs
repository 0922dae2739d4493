//! The nearest valid word to a misspelt one.

/// Below this similarity (Jaro–Winkler, 0…1) a suggestion is more confusing than a list.
const SIMILAR: f64 = 0.75;

/// Returns the remedy for `given`: the nearest of `valid`, or all of them.
pub(crate) fn help(given: &str, valid: &[&str]) -> String {
    match nearest(given, valid) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("use one of {}", list(valid)),
    }
}

/// The words in backquotes.
pub(crate) fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Returns the nearest of `valid`, unless none is near.
#[must_use]
pub fn nearest<'a>(given: &str, valid: &[&'a str]) -> Option<&'a str> {
    let given = given.to_lowercase();
    valid
        .iter()
        .map(|word| (strsim::jaro_winkler(&given, word), *word))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, word)| word)
}

/// Returns the message for a name that is not among the known ones. `kind` says what it should name, and
/// `span` the time that was looked at; `empty` is the help if there are none.
#[must_use]
pub fn unknown_name(kind: &str, name: &str, span: &str, known: &[String], empty: &str) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let help = match nearest(name, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => empty.to_owned(),
        None => format!("there are {}", known.join(", ")),
    };
    format!("no {kind} `{}` in {span}: {help}", name.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_was_meant_or_lists_everything() {
        let valid = ["shares", "path", "protected", "read_only"];
        assert_eq!(help("sharse", &valid), "did you mean `shares`?");
        assert_eq!(help("Protected", &valid), "did you mean `protected`?");
        assert_eq!(help("read-only", &valid), "did you mean `read_only`?");
        assert_eq!(help("xyz", &valid), "use one of `shares`, `path`, `protected`, `read_only`");
        assert_eq!(help("", &["a"]), "use one of `a`");
    }
}
