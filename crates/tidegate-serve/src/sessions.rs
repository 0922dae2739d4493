//! Sessions that outlive the process: systemd keeps their connections during a restart of the service.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tidegate_gateway::{DrainReport, Gateway, GatewayError, SuspendedSession};
use tidegate_sockets::store;

/// The names under which systemd keeps the connections, and what else is to be known of them.
const CONNECTIONS: &str = "connections";
const STATE: &str = "connections-state";

/// Ends a gateway. Where systemd keeps descriptors for this service, its sessions go on after a restart.
pub(crate) fn end(gateway: Gateway, deadline: Duration) -> Result<DrainReport, GatewayError> {
    // One is for the state.
    let capacity = store::capacity().saturating_sub(1);
    if capacity == 0 {
        return gateway.drain(deadline);
    }
    let mut report = gateway.suspend(deadline)?;
    let mut sessions = std::mem::take(&mut report.suspended);
    let too_many = sessions.split_off(capacity.min(sessions.len())).len();
    if too_many > 0 {
        tracing::warn!(
            "sessions that end with this process: {too_many}; systemd keeps {capacity} \
             (FileDescriptorStoreMax=)"
        );
    }
    match keep(&sessions) {
        Ok(()) if sessions.is_empty() => {}
        Ok(()) => tracing::info!("sessions that systemd keeps for a restart: {}", sessions.len()),
        Err(error) => {
            tracing::warn!(
                "sessions that end with this process: {}; systemd does not keep them: {error}",
                sessions.len()
            );
        }
    }
    Ok(report)
}

fn keep(sessions: &[SuspendedSession]) -> io::Result<()> {
    if sessions.is_empty() {
        return Ok(());
    }
    let state = tidegate_gateway::store(sessions)?;
    store::keep(STATE, &[state.as_fd()])?;
    let sockets: Vec<BorrowedFd<'_>> = sessions.iter().map(SuspendedSession::socket).collect();
    store::keep(CONNECTIONS, &sockets)
}

/// Goes on with the sessions that the process before this one has left.
pub(crate) fn resume(gateway: &Gateway) {
    let (states, sockets) = (store::take(STATE), store::take(CONNECTIONS));
    let left = sockets.len();
    // Only one process leaves its state at a time.
    let Some(state) = states.into_iter().next() else {
        if left > 0 {
            tracing::warn!("sessions of the last process that end: {left}; it left nothing about them");
        }
        return;
    };
    match tidegate_gateway::load(state, sockets) {
        Ok(sessions) => {
            let resumed = gateway.resume(sessions);
            tracing::info!("sessions of the last process that go on: {resumed} of {left}");
        }
        Err(error) => tracing::warn!("sessions of the last process that end: {left}; {error}"),
    }
}
