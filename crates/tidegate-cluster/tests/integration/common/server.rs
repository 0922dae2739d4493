//! A real `nats-server`.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_cluster::{Carrier, NatsConfig, NatsCredentials, PolicyKey};
use tidegate_testing::until_true;

use super::free_addresses;

/// A server of the test's own. Stopped, it keeps its port and its store.
pub(crate) struct Server {
    pub address: SocketAddr,
    store: TempDir,
    options: Vec<String>,
    process: Option<Child>,
    /// The key that signs the policies that its hosts follow.
    pub key: PolicyKey,
}

impl Server {
    pub(crate) fn prepare(options: &[&str]) -> Self {
        let [address] = free_addresses("127.0.0.1");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self {
            address,
            store: tempfile::tempdir().unwrap(),
            options,
            process: None,
            key: PolicyKey::generate(),
        }
    }

    pub(crate) fn start(options: &[&str]) -> Self {
        let mut server = Self::prepare(options);
        server.run();
        server
    }

    pub(crate) fn with_jetstream() -> Self {
        Self::start(&["--jetstream"])
    }

    pub(crate) fn run(&mut self) {
        let mut command = Command::new("nats-server");
        command.args(["--addr", "127.0.0.1", "--port", &self.address.port().to_string(), "--store_dir"]);
        command.arg(self.store.path()).args(&self.options).stderr(Stdio::null());
        let mut process = start(&mut command);
        until_true("the server listens", || {
            // Another socket of this machine may have had the port for a moment.
            if process.try_wait().unwrap().is_some() {
                process = start(&mut command);
            }
            greets(self.address)
        });
        self.process = Some(process);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn config(&self) -> NatsConfig {
        NatsConfig {
            servers: vec![format!("nats://{}", self.address)],
            credentials: NatsCredentials::None,
            tls: None,
            replicas: 1,
            writers: [self.key.writer()].into(),
        }
    }

    pub(crate) fn carrier(&self) -> Carrier {
        Carrier::Nats(self.config())
    }

    /// Writes into the bucket of the policies as anyone could; `None`: deletes.
    pub(crate) fn scribble(&self, key: &str, text: Option<&str>) -> u64 {
        block_on(async {
            let client = async_nats::connect(self.address.to_string()).await.unwrap();
            let store = async_nats::jetstream::new(client).get_key_value("tidegate-test").await.unwrap();
            match text {
                Some(text) => store.put(key, text.to_owned().into()).await.unwrap(),
                None => store.delete(key).await.map(|()| 0).unwrap(),
            }
        })
    }

    /// The text of a key in the bucket.
    pub(crate) fn stored(&self, key: &str) -> String {
        block_on(async {
            let client = async_nats::connect(self.address.to_string()).await.unwrap();
            let store = async_nats::jetstream::new(client).get_key_value("tidegate-test").await.unwrap();
            String::from_utf8(store.get(key).await.unwrap().unwrap().to_vec()).unwrap()
        })
    }

    /// Speaks on a subject as anyone could.
    pub(crate) fn say(&self, subject: &str, payload: &[u8]) {
        block_on(async {
            let client = async_nats::connect(self.address.to_string()).await.unwrap();
            client.publish(subject.to_owned(), payload.to_vec().into()).await.unwrap();
            client.flush().await.unwrap();
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start(command: &mut Command) -> Child {
    let started = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "`nats-server` is missing: `apt-get install nats-server`".to_owned(),
        _ => error.to_string(),
    });
    started.unwrap_or_else(|why| panic!("{why}"))
}

/// Whether a server is there, and not something else: a socket that connects to a free port may even find
/// itself.
fn greets(address: SocketAddr) -> bool {
    let mut greeting = [0; 4];
    let heard = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.read_exact(&mut greeting)
    });
    heard.is_ok() && &greeting == b"INFO"
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
