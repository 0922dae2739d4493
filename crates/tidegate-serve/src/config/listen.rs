//! Addresses as text: `unix:PATH` and `tcp:ADDRESS:PORT`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;
use tidegate_gateway::{DeviceNumber, DeviceNumberError, ListenEndpoint};

/// The longest path in the kernel's `sockaddr_un`, less the terminating zero.
const LONGEST_SOCKET_PATH: usize = 107;

/// The beginning of the address of a virtual machine's disk.
const DISK: &str = "vhost-user:";

/// The beginning of the address of a block device of this host.
const DEVICE: &str = "ublk:";

/// An endpoint as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListenAddress(pub(super) ListenEndpoint);

/// The reasons why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum ListenError {
    #[error("`{0}` is the disk of one export: write it into `listen` of that export")]
    Disk(String),
    #[error("`{0}` must begin with `unix:` or `tcp:`, for example `unix:/run/tidegate/nbd.sock`")]
    Scheme(String),
    #[error("`unix:` needs a path, for example `unix:/run/tidegate/nbd.sock`")]
    NoPath,
    #[error(
        "`{0}` is not an address and a port; write for example `tcp:0.0.0.0:10809`, or `tcp:[::]:10809` for both families"
    )]
    Address(String),
}

impl FromStr for ListenAddress {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(ListenError::NoPath),
                path => Ok(Self(ListenEndpoint::Unix(PathBuf::from(path)))),
            };
        }
        let Some(address) = text.strip_prefix("tcp:") else {
            if text.starts_with(DISK) || text.starts_with(DEVICE) {
                return Err(ListenError::Disk(text.escape_debug().to_string()));
            }
            return Err(ListenError::Scheme(text.escape_debug().to_string()));
        };
        match address.parse::<SocketAddr>() {
            Ok(address) => Ok(Self(ListenEndpoint::Tcp(address))),
            Err(_) => Err(ListenError::Address(text.escape_debug().to_string())),
        }
    }
}

/// The address of a disk as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiskAddress {
    /// The socket of a virtual machine's disk.
    Socket(PathBuf),
    /// A block device of this host.
    Device(DeviceNumber),
}

/// The reasons why a text is not the address of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum DiskAddressError {
    #[error(
        "`{0}` must begin with `vhost-user:` or `ublk:`, for example \
            `vhost-user:/run/tidegate/database.sock` or `ublk:0`"
    )]
    Scheme(String),
    #[error("`{text}` needs the number of a device, for example `ublk:0` for /dev/ublkb0: {source}")]
    Number { text: String, source: DeviceNumberError },
    #[error("`vhost-user:` needs a path, for example `vhost-user:/run/tidegate/database.sock`")]
    NoPath,
}

impl FromStr for DiskAddress {
    type Err = DiskAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shown = || text.escape_debug().to_string();
        if let Some(number) = text.strip_prefix(DEVICE) {
            let number = number.parse();
            return number
                .map(Self::Device)
                .map_err(|source| DiskAddressError::Number { text: shown(), source });
        }
        match text.strip_prefix(DISK) {
            None => Err(DiskAddressError::Scheme(shown())),
            Some("") => Err(DiskAddressError::NoPath),
            Some(path) => Ok(Self::Socket(PathBuf::from(path))),
        }
    }
}

/// Checks that the kernel can bind a Unix socket at this path; `Err` says why not.
pub(super) fn socket_path_fits(path: &Path) -> Result<(), String> {
    let length = path.as_os_str().len();
    if length <= LONGEST_SOCKET_PATH && !path.as_os_str().as_encoded_bytes().contains(&0) {
        return Ok(());
    }
    Err(format!("a Unix socket's path has at most {LONGEST_SOCKET_PATH} bytes, this one has {length}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_kinds() {
        assert_eq!("unix:/a b".parse(), Ok(ListenAddress(ListenEndpoint::Unix("/a b".into()))));
        let address = "[::1]:10809".parse().unwrap();
        assert_eq!("tcp:[::1]:10809".parse(), Ok(ListenAddress(ListenEndpoint::Tcp(address))));
    }

    #[test]
    fn a_disk_has_a_path_and_belongs_to_an_export() {
        assert_eq!("vhost-user:/a b".parse(), Ok(DiskAddress::Socket("/a b".into())));
        assert_eq!("vhost-user:".parse::<DiskAddress>(), Err(DiskAddressError::NoPath));
        assert_eq!("unix:/a".parse::<DiskAddress>(), Err(DiskAddressError::Scheme("unix:/a".to_owned())));
        let in_the_wrong_place = "vhost-user:/a".parse::<ListenAddress>();
        assert_eq!(in_the_wrong_place, Err(ListenError::Disk("vhost-user:/a".to_owned())));
    }

    #[test]
    fn a_device_has_a_number_and_belongs_to_an_export() {
        assert_eq!("ublk:7".parse(), Ok(DiskAddress::Device("7".parse().unwrap())));
        for wrong in ["ublk:", "ublk:database", "ublk:-1", "ublk:1048576"] {
            let error = wrong.parse::<DiskAddress>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{wrong}` needs the number")), "{error}");
        }
        assert_eq!("ublk:0".parse::<ListenAddress>(), Err(ListenError::Disk("ublk:0".to_owned())));
    }

    #[test]
    fn says_what_to_write() {
        assert_eq!("".parse::<ListenAddress>(), Err(ListenError::Scheme(String::new())));
        assert_eq!("unix:".parse::<ListenAddress>(), Err(ListenError::NoPath));
        for wrong in ["tcp:10809", "tcp:localhost:10809", "tcp:0.0.0.0:65536", "tcp:0.0.0.0"] {
            assert_eq!(wrong.parse::<ListenAddress>(), Err(ListenError::Address(wrong.to_owned())));
        }
    }

    #[test]
    fn a_socket_path_is_as_long_as_the_kernel_allows() {
        assert!(socket_path_fits(Path::new(&"x".repeat(107))).is_ok());
        assert!(socket_path_fits(Path::new(&"x".repeat(108))).is_err());
    }
}
