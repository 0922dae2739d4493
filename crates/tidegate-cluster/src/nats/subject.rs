//! Names as one token of a subject, and as a key of a bucket.

use tidegate_units::{HostName, ResourceName};

use crate::name::ClusterName;

/// Returns the subject that a host publishes on.
pub(crate) fn of_host(cluster: &ClusterName, host: &HostName) -> String {
    format!("tidegate.{cluster}.stats.{}", token(host.as_str()))
}

/// Returns the subject that matches those of all hosts.
pub(crate) fn of_all_hosts(cluster: &ClusterName) -> String {
    format!("tidegate.{cluster}.stats.*")
}

/// The bucket of the cluster's policies.
pub(crate) fn bucket(cluster: &ClusterName) -> String {
    format!("tidegate-{cluster}")
}

/// Letters, digits, `-` and `_` stand for themselves, every other byte for `=` and two hexadecimal digits:
/// host names have dots, which divide subjects, and names of resources may have anything.
pub(crate) fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => token.push(char::from(byte)),
            _ => token.push_str(&format!("={byte:02X}")),
        }
    }
    token
}

/// The resource whose policy stands under this key; `None` when the key is not ours.
pub(crate) fn resource_of(key: &str) -> Option<ResourceName> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'=' {
            let (digits, after) = rest.split_at_checked(2)?;
            rest = after;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        } else {
            bytes.push(*first);
        }
    }
    let resource = ResourceName::new(std::str::from_utf8(&bytes).ok()?).ok()?;
    // Only one way of writing each: two keys are never about one resource.
    (token(resource.as_str()) == key).then_some(resource)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_with_dots_is_one_token() {
        let cluster = ClusterName::new("prod").unwrap();
        let host = HostName::new("db1.example.org").unwrap();
        assert_eq!(of_host(&cluster, &host), "tidegate.prod.stats.db1=2Eexample=2Eorg");
    }

    proptest! {
        #[test]
        fn a_key_says_its_resource(name in "\\PC{1,60}") {
            // Not every text is a name.
            let name = tidegate_units::shown_name(&name, 255);
            let resource = ResourceName::new(&name).unwrap();
            let key = token(&name);
            prop_assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_=".contains(&b)));
            prop_assert_eq!(resource_of(&key), Some(resource));
        }

        #[test]
        fn any_key_is_borne(key in "\\PC*") {
            if let Some(resource) = resource_of(&key) {
                prop_assert_eq!(token(resource.as_str()), key);
            }
        }
    }
}
