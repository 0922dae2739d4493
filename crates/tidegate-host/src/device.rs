//! The kernel's numbers of block devices.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The kernel's number of a block device: what `/proc/diskstats`, sysfs and LIO agree on, and what lives as
/// long as the device does. The major number of a driver differs from boot to boot: it means nothing by
/// itself.
///
/// As text `major:minor` in decimal, as in sysfs: `253:0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceNumber {
    /// The driver's number, as given at this boot.
    pub major: u32,
    /// The device's number within the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// From its two parts.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The error for a text that is not the number of a device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected a device number such as `253:0`, not `{0}`")]
pub struct DeviceNumberError(String);

impl FromStr for DeviceNumber {
    type Err = DeviceNumberError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(':').and_then(|(major, minor)| decimal(major).zip(decimal(minor)));
        parts
            .map(|(major, minor)| Self { major, minor })
            .ok_or_else(|| DeviceNumberError(text.chars().take(40).collect()))
    }
}

/// Digits only: `u32::from_str` would take a sign.
fn decimal(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl TryFrom<String> for DeviceNumber {
    type Error = DeviceNumberError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DeviceNumber> for String {
    fn from(number: DeviceNumber) -> Self {
        number.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_is_two_decimal_numbers() {
        assert_eq!("253:17".parse(), Ok(DeviceNumber::new(253, 17)));
        for wrong in ["", "253", ":", "253:", ":0", "253:0:0", "-1:0", "+1:0", "fd:00", "1:99999999999"] {
            assert!(wrong.parse::<DeviceNumber>().is_err(), "{wrong}");
        }
        assert_eq!(serde_json::to_string(&DeviceNumber::new(8, 0)).unwrap(), "\"8:0\"");
    }
}
