//! Names of resources, consumers and hosts.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name in bytes. An NBD export name may have 4096; a metric label or a terminal column may not.
const MAX_LEN: usize = 255;

/// The reason that a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The text is too long.
    #[error("a name has at most {MAX_LEN} bytes, this one has {0}")]
    TooLong(usize),
    /// A character would break a log line, a metric label or a terminal.
    #[error("a name must not contain control characters ({0:?})")]
    Control(char),
    /// A character that people do not see: two names would look alike, or a line would be read backwards.
    #[error("a name must not contain characters that are not seen (U+{code:04X})", code = u32::from(*.0))]
    Invisible(char),
}

/// Returns true for characters that people do not see: control characters, characters without a width, and those that change the direction of the
/// text after them.
#[must_use]
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{180B}'..='\u{180F}'
                | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}'
                | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF9}'..='\u{FFFB}'
                | '\u{E0000}'..='\u{E0FFF}'
        )
}

/// Returns a name that a foreign program gives itself, as it may be shown: characters that people do not see are
/// escaped, and what is beyond `longest` bytes is left out.
#[must_use]
pub fn shown_name(text: &str, longest: usize) -> String {
    let mut name = String::new();
    for character in text.chars() {
        let before = name.len();
        if is_unseen(character) {
            name.extend(character.escape_default());
        } else {
            name.push(character);
        }
        if name.len() > longest {
            name.truncate(before);
            break;
        }
    }
    if name.is_empty() { "(no name)".to_owned() } else { name }
}

/// Returns a text from outside as a terminal may get it: characters that people do not see are escaped as in JSON,
/// apart from ends of lines and tabulators. A JSON document means the same afterwards.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| matches!(c, '\n' | '\t') || !is_unseen(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_shown(c) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a text does not fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    Cow::Owned(shown)
}

fn checked(text: &str) -> Result<Arc<str>, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > MAX_LEN {
        return Err(NameError::TooLong(text.len()));
    }
    match text.chars().find(|c| is_unseen(*c)) {
        Some(c) if c.is_control() => Err(NameError::Control(c)),
        Some(c) => Err(NameError::Invisible(c)),
        None => Ok(text.into()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        ///
        /// 1 to 255 bytes of UTF-8, all of which people see. Cheap to clone.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $Name(Arc<str>);

        impl $Name {
            /// Checks and takes a name.
            ///
            /// # Errors
            /// When the text is empty, too long, or has characters that people do not see.
            pub fn new(text: &str) -> Result<Self, NameError> {
                checked(text).map(Self)
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $Name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $Name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $Name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::new(&text)
            }
        }

        impl From<$Name> for String {
            fn from(name: $Name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A shared thing that saturates: a volume group, a LUN, a gateway pool, an export, a storage node.
    ResourceName
}

name! {
    /// The name of a consumer, which loads a resource: an initiator address, a host, a VM, a tenant, a
    /// cgroup, an NBD export.
    ConsumerName
}

name! {
    /// A host that loads a resource together with others, and tells them what it measures: a hypervisor, a
    /// gateway.
    HostName
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused() {
        assert_eq!(ConsumerName::new(""), Err(NameError::Empty));
        assert_eq!(ConsumerName::new("a\nb"), Err(NameError::Control('\n')));
        for (text, c) in [("a\u{202E}b", '\u{202E}'), ("a\u{200B}", '\u{200B}'), ("\u{FEFF}a", '\u{FEFF}')] {
            assert_eq!(ConsumerName::new(text), Err(NameError::Invisible(c)));
        }
        assert_eq!(
            NameError::Invisible('\u{200B}').to_string(),
            "a name must not contain characters that are not seen (U+200B)"
        );
        assert_eq!(shown_name("iqn\u{202E}\n", 255), "iqn\\u{202e}\\n");
        assert_eq!(visible("a\nb\u{1b}[2J\u{9b}\u{202E}"), "a\nb\\u001b[2J\\u009b\\u202e");
        assert_eq!((shown_name("", 9).as_str(), shown_name("aß", 2).as_str()), ("(no name)", "a"));
        assert_eq!(ResourceName::new("Größe-数据库-базы").unwrap().as_str(), "Größe-数据库-базы");
        assert_eq!(ResourceName::new(&"x".repeat(256)), Err(NameError::TooLong(256)));
        assert_eq!(ResourceName::new("vg0").unwrap().as_str(), "vg0");
        assert!(serde_json::from_str::<ResourceName>("\"\"").is_err());
    }
}
