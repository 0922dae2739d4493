//! Patterns of consumers: an address, a prefix, or a pattern of names.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;
use tidegate_host::cgroup::looks_like;

/// One consumer or several, as an administrator writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumerPattern {
    /// All addresses that begin with these bits: `10.0.0.12`, `10.0.0.0/24`, `fd00::/64`.
    Prefix {
        /// The address; its other bits are zero.
        address: IpAddr,
        /// The length of the prefix.
        bits: u8,
    },
    /// All names that look like this; `*` stands for any text: `iqn.2024-01.lab:db*`.
    Name(String),
}

/// The reasons why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternError {
    /// It is empty.
    #[error("expected an address, a prefix such as 10.0.0.0/24, or a name such as iqn.2024-01.org:db*")]
    Empty,
    /// More bits than the address has.
    #[error("{address} has {most} bits, not {bits}")]
    Bits {
        /// The address.
        address: IpAddr,
        /// The number of bits that the address has.
        most: u8,
        /// The length that was asked for.
        bits: String,
    },
    /// Bits beyond the prefix are set: perhaps another prefix is meant.
    #[error("{written} has bits beyond its prefix; {meant}/{bits} is meant, or {address} alone")]
    Host {
        /// The text as it was written.
        written: String,
        /// Without these bits.
        meant: IpAddr,
        /// The length.
        bits: u8,
        /// The address.
        address: IpAddr,
    },
}

impl FromStr for ConsumerPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Prefix { address, bits: all_bits(address) });
        }
        let Some((address, bits)) =
            text.split_once('/').and_then(|(address, bits)| Some((address.parse::<IpAddr>().ok()?, bits)))
        else {
            return Ok(Self::Name(text.to_owned()));
        };
        let most = all_bits(address);
        let bits: u8 = bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| PatternError::Bits {
            address,
            most,
            bits: bits.to_owned(),
        })?;
        let meant = masked(address, bits);
        if meant != address {
            return Err(PatternError::Host { written: text.to_owned(), meant, bits, address });
        }
        Ok(Self::Prefix { address, bits })
    }
}

impl fmt::Display for ConsumerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix { address, bits } if *bits == all_bits(*address) => write!(f, "{address}"),
            Self::Prefix { address, bits } => write!(f, "{address}/{bits}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl ConsumerPattern {
    /// Returns true if a consumer of this name, which comes from these addresses, is meant.
    #[must_use]
    pub fn matches(&self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) -> bool {
        match self {
            Self::Prefix { address, bits } => addresses.into_iter().any(|candidate| {
                candidate.is_ipv4() == address.is_ipv4() && masked(candidate, *bits) == *address
            }),
            Self::Name(pattern) => looks_like(pattern, name),
        }
    }
}

const fn all_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> ConsumerPattern {
        text.parse().unwrap()
    }

    #[test]
    fn who_is_meant() {
        let at = |address: &str| [address.parse::<IpAddr>().unwrap()];
        for (text, name, address, meant) in [
            ("10.0.0.12", "a", "10.0.0.12", true),
            ("10.0.0.12", "a", "10.0.0.13", false),
            ("10.0.0.0/24", "a", "10.0.0.255", true),
            ("10.0.0.0/24", "a", "10.0.1.0", false),
            ("0.0.0.0/0", "a", "192.0.2.1", true),
            ("0.0.0.0/0", "a", "fd00::1", false),
            ("fd00::/64", "a", "fd00::12", true),
            ("fd00::/64", "a", "fd00:0:0:1::12", false),
            ("iqn.*:db*", "iqn.2024-01.lab:db1", "10.0.0.1", true),
            ("iqn.*:db*", "iqn.2024-01.lab:backup", "10.0.0.1", false),
            ("*", "anything", "10.0.0.1", true),
            ("db", "db2", "10.0.0.1", false),
            ("*db", "mydb", "10.0.0.1", true),
            ("a*a", "a", "10.0.0.1", false),
        ] {
            assert_eq!(pattern(text).matches(name, at(address)), meant, "{text} and {name} at {address}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let error = |text: &str| text.parse::<ConsumerPattern>().unwrap_err().to_string();
        assert!(error("10.0.0.0/33").contains("32 bits"), "{}", error("10.0.0.0/33"));
        assert!(error("10.0.0.5/24").contains("10.0.0.0/24 is meant"), "{}", error("10.0.0.5/24"));
        assert!(error("").contains("expected an address"));
    }

    proptest! {
        #[test]
        fn it_is_written_as_it_is_read(bits in 0u8..=32, address in any::<u32>()) {
            let pattern = ConsumerPattern::Prefix { address: masked(IpAddr::V4(address.into()), bits), bits };
            prop_assert_eq!(pattern.to_string().parse::<ConsumerPattern>().unwrap(), pattern);
        }

        #[test]
        fn any_text_is_a_pattern_or_refused(text in ".{0,40}", name in ".{0,40}") {
            if let Ok(pattern) = text.parse::<ConsumerPattern>() {
                let _ = pattern.matches(&name, []);
            }
        }
    }
}
