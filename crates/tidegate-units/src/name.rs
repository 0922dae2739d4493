//! Names of resources, consumers and hosts.

use std::fmt;
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
}

fn checked(text: &str) -> Result<Arc<str>, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > MAX_LEN {
        return Err(NameError::TooLong(text.len()));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(NameError::Control(c)),
        None => Ok(text.into()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        ///
        /// 1 to 255 bytes of UTF-8 without control characters. Cheap to clone.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $Name(Arc<str>);

        impl $Name {
            /// Checks and takes a name.
            ///
            /// # Errors
            /// When the text is empty, too long, or has control characters.
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
        assert_eq!(ResourceName::new(&"x".repeat(256)), Err(NameError::TooLong(256)));
        assert_eq!(ResourceName::new("vg0").unwrap().as_str(), "vg0");
        assert!(serde_json::from_str::<ResourceName>("\"\"").is_err());
    }
}
