//! A fuzz target: bytes as a server of NATS might send them, or a host on the way to one.

use serde_json::Value;

use crate::guard::{LONGEST_LINE, ProtocolViolation, ServerGuard};
use crate::servers::{MOST_ANNOUNCED, NatsServers};

/// Returns what a guard lets pass of bytes that come in pieces.
pub(crate) fn admitted(bytes: &[u8], piece: usize) -> Result<Vec<u8>, ProtocolViolation> {
    let (mut guard, mut passed) = (ServerGuard::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        guard.admit(piece, &mut passed)?;
        guard.check_bounds();
        if let Some(Ok(introduction)) = guard.introduction.take().map(|text| serde_json::from_slice(&text)) {
            check_announcement(&introduction);
        }
    }
    Ok(passed)
}

fn check_announcement(introduction: &Value) {
    for is_encrypted in [false, true] {
        let servers = NatsServers::new(&["nats://10.0.0.5:4222".to_owned()]);
        servers.learn(introduction, is_encrypted);
        let [_, announced] = servers.groups();
        assert!(announced.len() <= MOST_ANNOUNCED);
        let scheme = if is_encrypted { "tls://" } else { "nats://" };
        let is_plain = |server: &String| server.starts_with(scheme) && !server.contains(['@', '?', '\u{1b}']);
        assert!(announced.iter().all(is_plain), "{announced:?}");
    }
}

/// What a server sends, however it is cut.
///
/// # Panics
/// When an invariant does not hold.
pub fn server(input: &[u8]) {
    let whole = admitted(input, usize::MAX);
    for piece in [1, 7, 4096] {
        assert_eq!(admitted(input, piece), whole, "in pieces of {piece}");
    }
    match whole {
        Ok(passed) => {
            assert!(passed.len() <= input.len());
            assert!(admitted(&passed, LONGEST_LINE).as_ref() == Ok(&passed), "what passes once passes again");
        }
        Err(violation) => assert!(violation.to_string().len() <= 200),
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("nats-server", super::server);
    }
}
