//! Secrets in texts that people see: a configuration's line in a finding, an address in a message, a log.

use std::borrow::Cow;

/// Keys whose values are secrets, if they are written into a configuration.
const SECRET_KEYS: [&str; 6] = ["password", "passwd", "passphrase", "token", "secret", "community"];

/// The characters that end an address in a text.
const AFTER_ADDRESS: [char; 8] = ['"', '\'', '`', '<', '>', '(', ')', ','];

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

/// The parts of addresses before their `@`.
fn credentials(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    text.match_indices("://").filter_map(|(at, scheme)| {
        let begin = at + scheme.len();
        let is_end = |c: char| c.is_whitespace() || AFTER_ADDRESS.contains(&c);
        let address = text[begin..].split(is_end).next()?;
        Some(begin..begin + address.rfind('@')?)
    })
}

/// The values of keys that are secrets, in their quotes.
fn values(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    SECRET_KEYS.into_iter().flat_map(|key| text.match_indices(key)).filter_map(|(at, key)| {
        let rest = &text[at + key.len()..];
        let value = rest.trim_start_matches(['"', '\'']).trim_start().strip_prefix('=')?.trim_start();
        let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
        let begin = text.len() - rest.len() + (rest.len() - value.len()) + 1;
        let length = text[begin..].find([quote, '\n']).unwrap_or(text.len() - begin);
        Some(begin..begin + length)
    })
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
