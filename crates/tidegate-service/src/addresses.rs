//! The TCP addresses of a service: each takes its port for itself, or for all addresses of the machine.

use std::net::{IpAddr, SocketAddr};

use tidegate_config::{FindingList, PlacedValue};

/// The TCP addresses that a configuration names so far.
#[derive(Debug, Default)]
pub struct TcpAddresses(Vec<SocketAddr>);

impl TcpAddresses {
    /// Adds an address, and reports one that the service could not listen on beside an earlier one.
    pub fn add(&mut self, given: &PlacedValue<SocketAddr>, report: &mut FindingList<'_>) {
        let address = given.value;
        if let Some(other) = self.0.iter().find(|other| exclude(**other, address)) {
            if *other == address {
                report.error(&given.span, format!("`{address}` is listed twice"));
            } else {
                report.error_with_help(
                    &given.span,
                    format!("`{address}` cannot be listened on beside `{other}`: one of them takes both"),
                    "leave one out, or use another port",
                );
            }
        }
        self.0.push(address);
    }
}

/// Returns true if the kernel gives one of two addresses alone. `[::]` takes the addresses of both families,
/// unless the setting `net.ipv6.bindv6only` is 1. A configuration is judged alike on all machines, and so the
/// setting is not asked.
fn exclude(one: SocketAddr, other: SocketAddr) -> bool {
    let takes = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    // Port 0 means any free port.
    one.port() == other.port()
        && one.port() != 0
        && (one.ip() == other.ip() || takes(one.ip(), other.ip()) || takes(other.ip(), one.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_exclude_each_other_as_the_kernel_says() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("127.0.0.1:1", "0.0.0.0:1", true),
            ("127.0.0.1:1", "[::1]:1", false),
            ("127.0.0.1:1", "[::]:1", true),
            ("0.0.0.0:1", "[::]:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("[::1]:1", "[::]:1", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let [one, other] = [one, other].map(|address| address.parse().unwrap());
            assert_eq!((exclude(one, other), exclude(other, one)), (expected, expected), "{one} {other}");
        }
    }
}
