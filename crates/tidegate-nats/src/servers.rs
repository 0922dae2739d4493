//! The servers of a site: those that are configured, and those that they announce.
//!
//! A server tells its clients the addresses of the others of its site (`connect_urls`), so that one configured
//! address is enough to fail over. A false server can announce any address. So announced addresses are few, they
//! are tried last, and those that came over an encrypted connection are only used with encryption. The line
//! before the encryption announces nothing: a host on the way can change it.

use std::sync::{Arc, Mutex, PoisonError};

use async_nats::ServerAddr;
use serde_json::Value;

/// Announced addresses that are kept (chosen: a site of five servers with three addresses each).
pub(crate) const MOST_ANNOUNCED: usize = 16;

/// The longest announced address: a name of DNS with a port.
const LONGEST_ADDRESS: usize = 260;

/// The servers of a site, as far as they are known. Clones know the same.
#[derive(Debug, Clone)]
pub struct NatsServers {
    configured: Arc<[String]>,
    announced: Arc<Mutex<Vec<String>>>,
}

impl NatsServers {
    /// Knows the configured servers.
    #[must_use]
    pub fn new(configured: &[String]) -> Self {
        Self { configured: configured.into(), announced: Arc::default() }
    }

    /// Returns the configured addresses, and then the announced ones.
    pub(crate) fn groups(&self) -> [Vec<String>; 2] {
        let announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner).clone();
        [self.configured.to_vec(), announced]
    }

    /// Keeps the addresses of a server's introduction, in place of those of the one before.
    pub(crate) fn learn(&self, introduction: &Value, is_encrypted: bool) {
        let Some(addresses) = introduction["connect_urls"].as_array() else { return };
        let scheme = if is_encrypted { "tls" } else { "nats" };
        let configured: Vec<_> = self.configured.iter().filter_map(|server| place(server)).collect();
        let mut known = Vec::new();
        for address in addresses.iter().filter_map(Value::as_str).filter(|address| is_address(address)) {
            let address = format!("{scheme}://{address}");
            let is_new =
                place(&address).is_some_and(|place| !place.0.is_empty() && !configured.contains(&place));
            if is_new && !known.contains(&address) && known.len() < MOST_ANNOUNCED {
                known.push(address);
            }
        }
        *self.announced.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

/// Returns true for a host and a port, without a scheme, a user or a path.
fn is_address(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    text.len() <= LONGEST_ADDRESS && text.bytes().all(may_be)
}

/// Returns the host and the port of a server.
fn place(server: &str) -> Option<(String, u16)> {
    let address: ServerAddr = server.parse().ok()?;
    Some((address.host().to_owned(), address.port()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn announced_addresses_are_few_and_plain_and_come_last() {
        let servers = NatsServers::new(&["nats://10.0.0.5:4222".to_owned(), "tls://n.example".to_owned()]);
        let heard = |urls: Value, is_encrypted| {
            servers.learn(&json!({ "connect_urls": urls }), is_encrypted);
            servers.groups()[1].clone()
        };
        let urls =
            json!(["10.0.0.5:4222", "10.0.0.6:4222", "[fd00::1]:4222", "n.example:4222", "10.0.0.6:4222"]);
        assert_eq!(heard(urls, false), ["nats://10.0.0.6:4222", "nats://[fd00::1]:4222"]);
        let false_ones =
            json!(["user@10.0.0.7:1", "ws://10.0.0.7:1", "10.0.0.7:1/x", "\u{1b}[2J", 7, "b:99999", ""]);
        assert_eq!(heard(false_ones, false), [""; 0]);
        let many: Vec<_> = (0..1000).map(|number| format!("10.1.0.{number}.example:4222")).collect();
        assert_eq!(heard(json!(many), true).len(), MOST_ANNOUNCED);
        assert!(heard(json!(["10.0.0.6:4222"]), true) == ["tls://10.0.0.6:4222"]);
        // An introduction without addresses takes none away.
        servers.learn(&json!({}), true);
        assert_eq!(servers.groups()[1].len(), 1);
    }
}
