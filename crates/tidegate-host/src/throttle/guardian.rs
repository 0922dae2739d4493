//! The guardian: a process that outlives the agent, and lets go of everything when that dies, however it dies, or hangs.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::undo::{Found, undo};

/// What the agent says when it has let go by itself. Every other byte says that it lives, and for how many seconds it may be
/// silent now.
const DONE: u8 = 0;

/// Silences that the guardian's memory has room for. It reads faster than anyone is silent.
const MOST_BEATS: usize = 16;

/// The agent's side. When this is dropped, or its process is gone, the guardian acts.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
}

impl Guardian {
    /// Starts `program` with `arguments`, which has to call [`guard`]. It is in a process group of its own: what is sent to
    /// the agent's does not reach it. It has `presence` open for as long as it lives: by that a new agent knows that the
    /// guardian of one that has died is not done yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, arguments: &[&str], presence: OwnedFd) -> io::Result<Self> {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            // Nothing is ever written there: it is how a descriptor is handed over.
            .stdout(presence)
            .process_group(0)
            .spawn()?;
        if let Some(stdin) = &child.stdin {
            // The agent waits for nobody who does not listen.
            fcntl_setfl(stdin, OFlags::NONBLOCK)?;
        }
        Ok(Self { child })
    }

    /// Whether it still watches.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Says that the agent lives, and when to be alarmed: after so long a silence, 1 to 255 s.
    pub fn beat(&mut self, alarm: Duration) {
        let seconds = u8::try_from(alarm.as_secs()).unwrap_or(u8::MAX).max(1);
        self.say(seconds);
    }

    /// Says that there is nothing left to undo, and waits for its end.
    pub fn dismiss(mut self) {
        self.say(DONE);
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }

    fn say(&mut self, byte: u8) {
        if let Some(stdin) = &mut self.child.stdin {
            // One that is gone is noticed by `is_alive`; one that does not listen has more to read than it needs.
            let _ = stdin.write(&[byte]);
        }
    }
}

/// The guardian's whole life: waits until the agent's end of standard input is closed, by it or by its death, and then
/// lets go of everything, unless the agent said that it had. `None`: it had. When the agent lives and is silent for longer than
/// it said, everything is let go too; it may come back.
///
/// SIGTERM and SIGINT are not for it: whoever stops a service sends them to all of its processes, and after a crash it is the
/// guardian that has yet to do its work.
///
/// # Errors
/// When something could not be undone.
pub fn guard() -> io::Result<Option<Found>> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
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
    let alarmed = |silence| {
        tracing::warn!("the agent has been silent for {silence:?}; everybody is let go");
        if let Err(error) = undo() {
            tracing::error!("cannot let go of everybody: {error}");
        }
    };
    match watch(&beats, alarmed) {
        End::Dismissed => Ok(None),
        End::Gone => undo().map(Some),
    }
}

#[derive(Debug, PartialEq)]
enum End {
    /// The agent has let go by itself.
    Dismissed,
    /// It died.
    Gone,
}

/// Listens until the agent's end. `alarmed` is called once for each silence that is too long.
fn watch(beats: &Receiver<u8>, mut alarmed: impl FnMut(Duration)) -> End {
    let mut patience = None;
    loop {
        let beat = match patience {
            Some(patience) => beats.recv_timeout(patience),
            None => beats.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match (beat, patience) {
            (Ok(DONE), _) => return End::Dismissed,
            (Ok(seconds), _) => patience = Some(Duration::from_secs(seconds.into())),
            (Err(RecvTimeoutError::Timeout), Some(silence)) => {
                alarmed(silence);
                patience = None;
            }
            (Err(_), _) => return End::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn death_and_farewell_are_told_apart() {
        let (sender, beats) = mpsc::channel();
        for beat in [200, 100, DONE] {
            sender.send(beat).unwrap();
        }
        assert_eq!(watch(&beats, |_| panic!("alarmed")), End::Dismissed);
        sender.send(200).unwrap();
        drop(sender);
        assert_eq!(watch(&beats, |_| panic!("alarmed")), End::Gone);
    }

    #[test]
    fn a_silence_alarms_once_and_is_no_end() {
        let (sender, beats) = mpsc::channel();
        sender.send(1).unwrap();
        let mut alarms = Vec::new();
        let end = watch(&beats, |silence| {
            alarms.push(silence);
            // It comes back, and says farewell after that.
            if alarms.len() == 1 {
                sender.send(1).unwrap();
            } else {
                sender.send(DONE).unwrap();
            }
        });
        assert_eq!((end, alarms), (End::Dismissed, vec![Duration::from_secs(1); 2]));
    }
}
