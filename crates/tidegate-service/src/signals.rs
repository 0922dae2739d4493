//! The requests that a service receives as signals.

use std::io;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::log;

/// The time that a second signal waits for the log.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The request that a signal makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceSignal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT: end.
    Stop,
}

/// Turns signals into events of a service, for as long as the process lives. A second SIGTERM or SIGINT ends
/// the process at once, with exit status 1.
///
/// # Errors
/// The system's answer: it does not deliver signals, or no thread is left.
pub fn receive<E: Send + 'static>(
    events: SyncSender<E>,
    event: impl Fn(ServiceSignal) -> E + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let body = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            // A reload beyond the events that already wait would read the same file as they do; a stop must
            // not be lost, and the service will come to it.
            let sent = match signal {
                SIGHUP => !matches!(
                    events.try_send(event(ServiceSignal::Reload)),
                    Err(TrySendError::Disconnected(_))
                ),
                _ if stopping => {
                    tracing::error!("second signal, ending at once");
                    log::flush(LAST_WORDS);
                    signal_hook::low_level::exit(1);
                }
                _ => {
                    stopping = true;
                    events.send(event(ServiceSignal::Stop)).is_ok()
                }
            };
            if !sent {
                return;
            }
        }
    };
    thread::Builder::new().name("tidegate-signals".to_owned()).spawn(body).map(drop)
}
