//! Interfaces: which one leads to a consumer, and whether it may be had.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use tidegate_units::Instant;

use super::ThrottleError;
use super::remedy::{HTB, with_remedy};
use super::tc::{Qdisc, TrafficControl};

/// The time without a throttled consumer after which the devices and disciplines for delays are removed.
pub(super) const STAYS: Duration = Duration::from_secs(60);

/// The time between two comparisons with the kernel: others may have removed something.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The time after which a route is asked for again.
pub(super) const ROUTE_STAYS: Duration = Duration::from_secs(10);

/// The interfaces by which packets to consumers leave, and when the kernel was asked.
#[derive(Debug, Default)]
pub(super) struct ConsumerRoutes {
    /// The interface that leads to an array, where the throttle is between it and its initiators.
    array: Option<String>,
    /// The other ports of the bridge that this interface is a port of; empty if it is none, so that packets
    /// are routed.
    ports: Vec<u32>,
    ports_asked: Option<Instant>,
    known: BTreeMap<IpAddr, (u32, Instant)>,
    /// The time at which routes that are not used any more were forgotten.
    tidied: Instant,
}

impl ConsumerRoutes {
    /// Routes of this machine, or through it: `array` is the interface that leads to an array.
    pub(super) fn new(array: Option<&str>) -> Self {
        Self { array: array.map(str::to_owned), ..Self::default() }
    }

    /// Forgets what the kernel said.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.array.as_deref());
    }

    /// The interfaces that may lead to an address: one, or all ports of a bridge but the array's. A bridge
    /// has no routes, and learns where an address is by itself.
    ///
    /// # Errors
    /// When none does.
    pub(super) fn towards(
        &mut self,
        tc: &mut TrafficControl,
        now: Instant,
        address: IpAddr,
    ) -> Result<Vec<u32>, ThrottleError> {
        if let Some(array) = &self.array
            && self.ports_asked.is_none_or(|asked| now.saturating_since(asked) >= ROUTE_STAYS)
        {
            let unreachable = |source| ThrottleError::TrafficControl { interface: array.clone(), source };
            self.ports = tc.other_bridge_ports(array).map_err(unreachable)?;
            self.ports_asked = Some(now);
        }
        if !self.ports.is_empty() {
            return Ok(self.ports.clone());
        }
        self.route(tc, now, address).map(|interface| vec![interface])
    }

    fn route(
        &mut self,
        tc: &mut TrafficControl,
        now: Instant,
        address: IpAddr,
    ) -> Result<u32, ThrottleError> {
        if let Some((interface, asked)) = self.known.get(&address)
            && now.saturating_since(*asked) < ROUTE_STAYS
        {
            return Ok(*interface);
        }
        let interface =
            tc.interface_towards(address).map_err(|source| ThrottleError::Unreachable { address, source })?;
        // Not with every answer: ten thousand members would cost their square.
        if now.saturating_since(self.tidied) >= ROUTE_STAYS {
            self.known.retain(|_, (_, asked)| now.saturating_since(*asked) < ROUTE_STAYS);
            self.tidied = now;
        }
        self.known.insert(address, (interface, now));
        Ok(interface)
    }
}

/// The ports of a bridge where packets from an array leave: all but the array's. None if its interface is no
/// port of a bridge.
///
/// # Errors
/// When there is no such interface, or the kernel cannot be asked.
pub fn consumer_ports(array: &str) -> std::io::Result<Vec<String>> {
    let ports = TrafficControl::open()?.other_bridge_ports(array)?;
    Ok(ports.into_iter().map(called).collect())
}

/// Makes ours the root of an interface, unless its root is another program's.
///
/// # Errors
/// When it is, or the kernel refuses.
pub(super) fn claim(tc: &mut TrafficControl, index: u32) -> Result<(), ThrottleError> {
    let refused = |source| refused(index, source);
    let qdiscs = tc.qdiscs().map_err(refused)?;
    let root = qdiscs.into_iter().find(|qdisc| qdisc.interface == index && qdisc.is_root());
    if root.as_ref().is_some_and(Qdisc::is_ours) {
        // It lost something that it was given. The kernel does not take it twice.
        tc.delete_root(index).map_err(refused)?;
    } else if let Some(foreign) = root.filter(|root| !root.is_default()) {
        return Err(ThrottleError::Foreign {
            interface: called(index),
            kind: foreign.kind,
            handle: foreign.handle >> 16,
            remedy: "remove it, or use throttle = \"netem\", which leaves it where it is",
        });
    }
    tc.add_root(index).map_err(|source| refused(with_remedy(source, HTB)))
}

/// Returns the error for a refusal by an interface's traffic control.
pub(super) fn refused(index: u32, source: std::io::Error) -> ThrottleError {
    ThrottleError::TrafficControl { interface: called(index), source }
}

/// The name of an interface, unless it is gone.
pub(super) fn name_of(index: u32) -> Option<String> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::index_to_name(socket, index).ok()
}

/// An interface by name, or by number when it is gone.
pub(super) fn called(index: u32) -> String {
    name_of(index).unwrap_or_else(|| format!("interface {index}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_asked_for_any_more_is_forgotten() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut tc = TrafficControl::open().unwrap();
        let mut routes = ConsumerRoutes::default();
        let mut known = |now, last| {
            assert_eq!(routes.towards(&mut tc, at(now), [127, 0, 0, last].into()).unwrap(), [1]);
            routes.known.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(known(20, 1), ["127.0.0.1"]);
        assert_eq!(known(25, 2), ["127.0.0.1", "127.0.0.2"]);
        assert_eq!(known(31, 2), ["127.0.0.1", "127.0.0.2"], "it is known what leads there");
        assert_eq!(known(36, 2), ["127.0.0.2"]);
    }
}
