//! A gateway in a directory of its own, and the real programs that talk to it.

pub(crate) mod chunked;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_device::{DeviceConfig, ExponentialConfig};
use tidegate_gateway::{
    BackendConfig, DataStore, ExportConfig, ExportStore, Gateway, GatewayConfig, ListenEndpoint, PoolConfig,
    PoolSnapshot,
};
use tidegate_testing::PATIENCE;
use tidegate_units::{Bytes, ConsumerName, Iops, ResourceName};

/// How often a condition is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(5);

pub(crate) const MIB: u64 = 1 << 20;

/// A gateway on a Unix socket.
pub(crate) struct Served {
    pub(crate) gateway: Gateway,
    pub(crate) config: GatewayConfig,
    pub(crate) directory: TempDir,
}

pub(crate) fn name(text: &str) -> ConsumerName {
    ConsumerName::new(text).unwrap()
}

pub(crate) fn pool_name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

/// A new file of `size` bytes.
pub(crate) fn file(directory: &Path, file: &str, size: u64) -> PathBuf {
    let path = directory.join(file);
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    path
}

/// A pool of buffered files, one per name.
pub(crate) fn file_pool(directory: &Path, names: &[&str], size: u64) -> PoolConfig {
    let exports = names
        .iter()
        .map(|export| ExportConfig::new(name(export), ExportStore::Path(file(directory, export, size))));
    PoolConfig::new(pool_name("files"), BackendConfig::File { direct: false }, exports.collect())
}

/// A pool on one exponential server, its data in memory.
pub(crate) fn emulated_pool(names: &[&str], size: u64, rate: f64) -> PoolConfig {
    let device = DeviceConfig::Exponential(ExponentialConfig {
        rate: Iops::new(rate),
        servers: 1,
        capacity: Bytes::from_gib(4),
    });
    let data = DataStore::Memory { limit: Bytes::from_gib(1) };
    let exports =
        names.iter().map(|export| ExportConfig::new(name(export), ExportStore::Size(Bytes::new(size))));
    PoolConfig::new(
        pool_name("array"),
        BackendConfig::Emulated { device, changes: Vec::new(), seed: 7, data },
        exports.collect(),
    )
}

impl Served {
    pub(crate) fn start(pools: impl FnOnce(&Path) -> Vec<PoolConfig>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pools = pools(directory.path());
        let config = GatewayConfig::new(vec![ListenEndpoint::Unix(directory.path().join("nbd.sock"))], pools);
        Self::with(directory, config)
    }

    pub(crate) fn with(directory: TempDir, config: GatewayConfig) -> Self {
        Self { gateway: Gateway::start(config.clone()).unwrap(), config, directory }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd.sock")
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    /// The first pool. A snapshot leaves out a pool whose worker does not answer in time, as on a busy
    /// machine.
    pub(crate) fn pool(&self) -> PoolSnapshot {
        let first = &self.config.pools[0].name;
        let give_up = Instant::now() + PATIENCE;
        loop {
            let pools = self.gateway.snapshot().unwrap().pools;
            if let Some(pool) = pools.into_iter().find(|pool| pool.name == *first) {
                return pool;
            }
            assert!(Instant::now() < give_up, "the worker of {first} does not answer");
        }
    }

    /// Waits until the first pool is as expected.
    pub(crate) fn wait_until(&self, expected: impl Fn(&PoolSnapshot) -> bool) -> PoolSnapshot {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let pool = self.pool();
            if expected(&pool) {
                return pool;
            }
            assert!(Instant::now() < give_up, "waited in vain: {}", summary(&pool));
            std::thread::sleep(POLL);
        }
    }

    /// Waits until so many handshakes have ended without a session, and none is under way.
    pub(crate) fn wait_for_handshakes(&self, ended: u64) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let now = self.gateway.snapshot().unwrap();
            if (now.handshakes_ended, now.handshakes) == (ended, 0) {
                return;
            }
            assert!(Instant::now() < give_up, "{} ended, {} under way", now.handshakes_ended, now.handshakes);
            std::thread::sleep(POLL);
        }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }
}

/// Runs a program that `make test` installs; fails with what it said unless it succeeds.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = run_any(program, arguments);
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}", output.status);
    text
}

pub(crate) fn run_any(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; install the packages listed in lab/packages"))
}

/// `qemu-io` on an export, one command after the other.
pub(crate) fn qemu_io(uri: &str, commands: &[&str]) -> String {
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(uri);
    run("qemu-io", &arguments)
}

/// A snapshot in a line, without its histograms.
fn summary(pool: &PoolSnapshot) -> String {
    let consumers = pool.consumers.iter().map(|consumer| {
        let done = (consumer.reads.count, consumer.writes.count, consumer.errors.total());
        format!("{} {done:?} queued {} in flight {}", consumer.name, consumer.queued, consumer.in_flight)
    });
    let consumers: Vec<String> = consumers.collect();
    format!("{} sessions, {} in use, {consumers:?}, {:?}", pool.sessions, pool.bytes_in_use, pool.decision)
}
