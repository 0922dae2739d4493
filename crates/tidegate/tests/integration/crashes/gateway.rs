//! The real gateway, to be killed and started again in the same folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::client::Client;

/// Longer than a start takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Gateway {
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl Gateway {
    /// In a folder of its own, with what `configuration` makes of that folder; not started.
    pub(crate) fn new(configuration: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tidegate.toml"), configuration(folder.path())).unwrap();
        Self { folder, process: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it, and waits until it lets a client in.
    pub(crate) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let config = self.path("tidegate.toml");
        let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let process = process.args(["serve", "-c"]).arg(config).stderr(Stdio::from(log)).spawn().unwrap();
        self.process = Some(process);
        let end = Instant::now() + PATIENCE;
        while let Err(error) = self.client() {
            assert!(Instant::now() < end, "{error}: {}", fs::read_to_string(self.path("log")).unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn client(&self) -> io::Result<Client> {
        Client::open(&self.path("s"), "x")
    }

    /// Ends it as nothing else does: without a word, at once.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.try_wait().unwrap().is_none())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}
