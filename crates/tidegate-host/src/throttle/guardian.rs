//! The guardian: a process that outlives the agent. When the agent dies, hangs, or can no longer act, the
//! guardian releases every consumer.
//!
//! The two share a pair of connected sockets. The agent sends one byte per second; the guardian answers each.
//! So either of them notices when the other is gone or stopped, and an agent holds nothing before its
//! guardian has answered for the first time.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};
use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::undo::{RemovedThrottles, undo, undo_orphaned};

/// The agent's last byte: it has released every consumer itself. Every other byte is a sign of life, and the
/// number of seconds after which the next one is overdue.
const DONE: u8 = 0;

/// Signs of life that may wait in the guardian's memory: it takes them faster than they come.
const MOST_BEATS: usize = 16;

/// The longest time that a guardian may leave a sign of life without an answer. It takes a second or two to
/// release consumers, and answers nothing meanwhile.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The longest pause between two releases while the agent stays silent. The pauses double: a release that
/// failed is tried again, and so is one after which the agent has set limits without a sign of life.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Attempts to release after the agent's death, one second apart.
const ATTEMPTS: u32 = 10;
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// The agent's side. When this is dropped, or its process is gone, the guardian acts.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    line: UnixStream,
    /// Since when a sign of life has had no answer.
    unanswered: Option<Instant>,
}

impl Guardian {
    /// Starts `program` with `arguments`, which has to call [`guard`], and waits until it watches: for
    /// `alarm` (1 to 255 s), and five seconds at least. From then on a silence of `alarm` makes it release
    /// every consumer. It is in a process group of its own: signals to the agent's group do not reach it. It
    /// has `presence` open for as long as it lives: by that a new agent knows that the guardian of one that
    /// has died is not done yet.
    ///
    /// # Errors
    /// When it cannot be started, or does not answer.
    pub fn start(program: &Path, arguments: &[&str], presence: OwnedFd, alarm: Duration) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(OwnedFd::from(theirs))
            // Nothing is ever written there: it is how a descriptor is handed over.
            .stdout(presence)
            .process_group(0)
            .spawn()?;
        let mut guardian = Self { child, line, unanswered: None };
        guardian.beat(alarm);
        if let Err(error) = guardian.await_answer(alarm.max(ANSWERS_WITHIN)) {
            guardian.end();
            return Err(error);
        }
        Ok(guardian)
    }

    fn await_answer(&mut self, within: Duration) -> io::Result<()> {
        self.line.set_read_timeout(Some(within))?;
        let answered = self.line.read_exact(&mut [0]).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
            io::ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::BrokenPipe, "it ended at once"),
            _ => error,
        });
        self.unanswered = None;
        // From now on the agent waits for no guardian.
        self.line.set_nonblocking(true)?;
        answered
    }

    /// Returns true if it still watches. A guardian that does not answer is ended.
    pub fn is_alive(&mut self) -> bool {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return false;
        }
        if self.line.read(&mut [0; 64]).is_ok_and(|count| count > 0) {
            self.unanswered = None;
        }
        if self.unanswered.is_some_and(|since| since.elapsed() >= ANSWERS_WITHIN) {
            self.end();
            return false;
        }
        true
    }

    /// Says that the agent lives, and when to be alarmed: after so long a silence, 1 to 255 s.
    pub fn beat(&mut self, alarm: Duration) {
        let seconds = u8::try_from(alarm.as_secs()).unwrap_or(u8::MAX).max(1);
        self.say(seconds);
        self.unanswered.get_or_insert_with(Instant::now);
    }

    /// Says that there is nothing left to undo, and waits for its end.
    pub fn dismiss(mut self) {
        self.say(DONE);
        // It reads what was said before it sees the end.
        let _ = self.line.shutdown(std::net::Shutdown::Write);
        let _ = self.child.wait();
    }

    fn say(&mut self, byte: u8) {
        // One that is gone, or does not listen, is noticed by `is_alive`.
        let _ = self.line.write(&[byte]);
    }

    fn end(&mut self) {
        // Fails only when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The guardian's whole life. It waits until the agent's end of standard input, a socket, is closed, and then
/// releases every consumer, unless the agent said that it had (`None`). When the agent lives and is silent
/// for longer than it said, every consumer is released too, and again from time to time while the silence
/// lasts; the agent may come back.
///
/// It ignores the signals that end a service: they go to all of its processes, and after a crash the guardian
/// has yet to do its work.
///
/// # Errors
/// When something could not be undone.
pub fn guard() -> io::Result<Option<RemovedThrottles>> {
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let (sender, beats) = mpsc::sync_channel(MOST_BEATS);
    let read = move || {
        let mut byte = [0];
        loop {
            match io::stdin().read(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(1) if sender.send(byte[0]).is_ok() => {}
                _ => return,
            }
        }
    };
    thread::Builder::new().name("beats".to_owned()).spawn(read)?;
    let answer = || {
        // An agent that does not take answers has more of them than it needs.
        let _ = send(io::stdin(), &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    };
    // The release comes first: a log that is stuck must not keep it waiting.
    let alarmed = |silence, first| match undo() {
        Ok(found) if first || !found.nothing() => {
            tracing::warn!("no sign of life from the agent for {silence:?}: every consumer is released");
        }
        Ok(_) => {}
        Err(error) => {
            tracing::error!("the agent gives no sign of life, and consumers cannot be released: {error}");
        }
    };
    match watch(&beats, answer, alarmed) {
        End::Dismissed => Ok(None),
        End::Gone => undo_at_last().map(Some),
    }
}

/// Tries until it works, for a while: after that it takes the next agent, or `tidegate release`. An agent of
/// another network namespace that has claimed the cgroups since then keeps its limits.
fn undo_at_last() -> io::Result<RemovedThrottles> {
    for _ in 1..ATTEMPTS {
        // The kernel may close the dead agent's line a moment before it ends its claim: a claim is waited for.
        if let Ok(release) = undo_orphaned(false) {
            return Ok(release.removed);
        }
        thread::sleep(BETWEEN_ATTEMPTS);
    }
    undo_orphaned(false).map(|release| release.removed)
}

#[derive(Debug, PartialEq)]
enum End {
    /// The agent has released every consumer itself.
    Dismissed,
    /// It died.
    Gone,
}

/// Listens until the agent's end. `answer` is called for each sign of life, `alarmed` for each silence that
/// is too long: with its length so far, and whether it is the first time in this silence.
fn watch(beats: &Receiver<u8>, answer: impl Fn(), mut alarmed: impl FnMut(Duration, bool)) -> End {
    let mut pause = None;
    let mut silence = Duration::ZERO;
    loop {
        let beat = match pause {
            Some(pause) => beats.recv_timeout(pause),
            None => beats.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match (beat, pause) {
            (Ok(DONE), _) => return End::Dismissed,
            (Ok(seconds), _) => {
                pause = Some(Duration::from_secs(seconds.into()));
                silence = Duration::ZERO;
                answer();
            }
            (Err(RecvTimeoutError::Timeout), Some(waited)) => {
                let first = silence.is_zero();
                silence += waited;
                alarmed(silence, first);
                pause = Some((2 * waited).min(LONGEST_PAUSE));
            }
            (Err(_), _) => return End::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn death_and_farewell_are_told_apart() {
        let (sender, beats) = mpsc::channel();
        for beat in [200, 100, DONE] {
            sender.send(beat).unwrap();
        }
        let answers = Cell::new(0);
        let answer = || answers.set(answers.get() + 1);
        assert_eq!(watch(&beats, answer, |_, _| panic!("alarmed")), End::Dismissed);
        assert_eq!(answers.get(), 2, "each sign of life has an answer");
        sender.send(200).unwrap();
        drop(sender);
        assert_eq!(watch(&beats, || {}, |_, _| panic!("alarmed")), End::Gone);
    }

    #[test]
    fn a_silence_alarms_again_and_again_and_is_no_end() {
        let (sender, beats) = mpsc::channel();
        sender.send(1).unwrap();
        let mut alarms = Vec::new();
        let end = watch(
            &beats,
            || {},
            |silence, first| {
                alarms.push((silence.as_secs(), first));
                // It comes back after the second alarm, and says farewell after the third.
                match alarms.len() {
                    1 => {}
                    2 => sender.send(1).unwrap(),
                    _ => sender.send(DONE).unwrap(),
                }
            },
        );
        assert_eq!((end, alarms), (End::Dismissed, vec![(1, true), (3, false), (1, true)]));
    }
}
