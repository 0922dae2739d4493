//! Servers for a gateway to be the client of.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tidegate_gateway::{
    BackendConfig, ExportConfig, ExportStore, ListenEndpoint, PoolConfig, UpstreamConfig,
};
use tidegate_nbd::ExportName;

use crate::common::{POLL, name, pool_name};
use tidegate_testing::PATIENCE;

/// A pool over a server; each export with its name there.
pub(crate) fn upstream_pool(socket: &Path, exports: &[(&str, &str)]) -> PoolConfig {
    let exports = exports.iter().map(|(export, upstream)| {
        ExportConfig::new(name(export), ExportStore::Upstream(ExportName::new(*upstream).unwrap()))
    });
    let backend = BackendConfig::Nbd(UpstreamConfig::new(ListenEndpoint::Unix(socket.to_owned())));
    PoolConfig::new(pool_name("upstream"), backend, exports.collect())
}

/// A server process behind a Unix socket, killed when dropped.
pub(crate) struct Server {
    pub(crate) socket: PathBuf,
    child: Child,
}

impl Server {
    /// nbdkit with a plugin and its parameters, in the foreground.
    pub(crate) fn nbdkit(socket: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(socket).args(arguments);
        Self::start(socket, command)
    }

    pub(crate) fn qemu_nbd(socket: &Path, image: &Path, export: &str) -> Self {
        let mut command = Command::new("qemu-nbd");
        command
            .args(["--persistent", "--shared=16", "--format=raw", "--discard=unmap", "--export-name", export])
            .arg("--socket")
            .arg(socket)
            .arg(image);
        Self::start(socket, command)
    }

    fn start(socket: &Path, mut command: Command) -> Self {
        // Left behind by one that was killed.
        let _ = std::fs::remove_file(socket);
        let child = command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| {
            panic!("{command:?}: {error}; install the packages listed in lab/packages")
        });
        let mut server = Self { socket: socket.to_owned(), child };
        let give_up = Instant::now() + PATIENCE;
        while UnixStream::connect(socket).is_err() {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < give_up, "{command:?} does not serve: {ended:?}");
            std::thread::sleep(POLL);
        }
        server
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Data, zeros and a hole, so that every way of copying is taken.
pub(crate) fn random_image(path: &Path, size: u64) {
    let mut state = 88_172_645_463_325_252u64;
    let mut bytes = vec![0u8; size as usize];
    for word in bytes[..size as usize / 2].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_ne_bytes());
    }
    bytes[5 << 20..9 << 20].fill(0);
    std::fs::write(path, &bytes).unwrap();
}
