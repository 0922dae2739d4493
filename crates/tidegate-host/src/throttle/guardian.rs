//! The guardian: a process that outlives the agent, and lets go of everything when that dies, however it dies.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::undo::{Found, undo};

/// What the agent says when it has let go by itself.
const DONE: u8 = b'.';

/// The agent's side. When this is dropped, or its process is gone, the guardian acts.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
}

impl Guardian {
    /// Starts `program` with `arguments`, which has to call [`guard`]. It is in a process group of its own: what is sent to
    /// the agent's does not reach it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { child })
    }

    /// Whether it still watches.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Says that there is nothing left to undo, and waits for its end.
    pub fn dismiss(mut self) {
        if let Some(mut stdin) = self.child.stdin.take() {
            // When it is gone already there is nobody to be told.
            let _ = stdin.write_all(&[DONE]);
        }
        let _ = self.child.wait();
    }
}

/// The guardian's whole life: waits until the agent's end of standard input is closed, by it or by its death, and then
/// lets go of everything, unless the agent said that it had. `None`: it had.
///
/// # Errors
/// When something could not be undone.
pub fn guard() -> io::Result<Option<Found>> {
    let mut last = None;
    let mut byte = [0];
    loop {
        match io::stdin().read(&mut byte) {
            Ok(0) => break,
            Ok(_) => last = Some(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    if last == Some(DONE) { Ok(None) } else { undo().map(Some) }
}
