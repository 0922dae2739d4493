//! Secrets in texts that people see: a configuration's line in a finding, an address in a message, a log.

use std::borrow::Cow;
use std::ops::Range;

/// Keys whose values are secrets, if they are written into a configuration.
const SECRET_KEYS: [&str; 6] = ["password", "passwd", "passphrase", "token", "secret", "community"];

/// The quotes of texts.
const QUOTES: [char; 3] = ['"', '\'', '`'];

/// Returns true if an address has a user's name or a password in it: `http://user:password@host`.
#[must_use]
pub fn has_credentials(address: &str) -> bool {
    address.split_once("://").is_some_and(|(_, rest)| rest.contains('@'))
}

/// Returns a text with an asterisk for each character of a secret: what stands before the `@` of an address,
/// and the value of a key such as `password`.
#[must_use]
pub fn masked(text: &str) -> Cow<'_, str> {
    let secrets: Vec<_> = credentials(text).chain(values(text)).collect();
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    let is_secret = |at: usize| secrets.iter().any(|secret| secret.contains(&at));
    text.char_indices().map(|(at, c)| if is_secret(at) { '*' } else { c }).collect()
}

/// The parts of addresses before their `@`. An address in quotes ends with these, and another one with a space:
/// a password may have any other character in it.
fn credentials(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices("://").filter_map(|(at, scheme)| {
        let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let quote =
            text[..at].trim_end_matches(is_of_scheme).chars().next_back().filter(|c| QUOTES.contains(c));
        let is_end = |c: char| c.is_control() || quote.map_or_else(|| c.is_whitespace(), |quote| c == quote);
        let begin = at + scheme.len();
        let address = text[begin..].split(is_end).next()?;
        Some(begin..begin + address.rfind('@')?)
    })
}

/// The values of keys that are secrets, in their quotes or without.
fn values(text: &str) -> impl Iterator<Item = Range<usize>> {
    SECRET_KEYS.into_iter().flat_map(|key| text.match_indices(key)).filter_map(|(at, key)| {
        let after = &text[at + key.len()..];
        let value = after.trim_start_matches(['"', '\'']).trim_start().strip_prefix('=')?.trim_start();
        let secret = secret_in(value.split('\n').next()?)?;
        let begin = text.len() - value.len();
        Some(begin + secret.start..begin + secret.end)
    })
}

/// The part of a value that is secret: what is within its quotes, or all of it. `None`: a number is none.
fn secret_in(value: &str) -> Option<Range<usize>> {
    let quote = value.chars().next()?;
    if !matches!(quote, '"' | '\'') {
        return (!quote.is_ascii_digit()).then_some(0..value.len());
    }
    let inner = value.trim_start_matches(quote);
    let begin = value.len() - inner.len();
    let mut is_escaped = false;
    let end = inner.char_indices().find(|(_, c)| {
        let is_end = *c == quote && !is_escaped;
        is_escaped = *c == '\\' && quote == '"' && !is_escaped;
        is_end
    });
    Some(begin..begin + end.map_or(inner.len(), |(end, _)| end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_asterisks_and_everything_else_stays() {
        for (text, shown) in [
            (
                "source = \"http://ada:pw@10.0.0.1:9090/x\" # pw",
                "source = \"http://******@10.0.0.1:9090/x\" # pw",
            ),
            ("['nats://t@a', \"https://u:p/w@b\"]", "['nats://*@a', \"https://*****@b\"]"),
            ("`http://ü:ß@h` is no address", "`http://***@h` is no address"),
            ("password = \"hunter2\"", "password = \"*******\""),
            ("auth = { user = 'a', \"token\" = 'b c' }", "auth = { user = 'a', \"token\" = '***' }"),
            ("community='public", "community='******"),
            ("s = \"http://u:p,'(w)>`@h/x\", 1", "s = \"http://**********@h/x\", 1"),
            ("at http://u:p,(w)@h: no", "at http://*******@h: no"),
            ("password = hunter2\nname = 1", "password = *******\nname = 1"),
            ("password = \"\"\"x\"\"\"", "password = \"\"\"*\"\"\""),
            ("token = \"a\\\"b\" # c", "token = \"****\" # c"),
        ] {
            assert_eq!(masked(text), shown);
            assert_eq!(masked(text).chars().count(), text.chars().count());
        }
        for text in [
            "http://a:1/b",
            "mail ada@example.org",
            "password_file = \"/etc/p\"",
            "token = 5",
            "a://",
            "://@",
        ] {
            assert_eq!(masked(text), text);
        }
    }

    #[test]
    fn an_address_with_an_at_sign_has_credentials() {
        assert!(
            has_credentials("http://u:p@h")
                && has_credentials("http://u:p/w@h")
                && has_credentials("nbd://u@h/x")
        );
        assert!(!has_credentials("http://h:1/x") && !has_credentials("u@h"));
    }
}
