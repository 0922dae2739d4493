//! A server of S3 for tests: `s3s-fs` on a folder of its own, with one bucket, `data`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub const ID: &str = "tidegate-test";
pub const SECRET: &str = "what-nobody-else-knows";

/// A server that runs until it is dropped.
pub struct Server {
    folder: TempDir,
    address: SocketAddr,
    /// The server's own thread, for it stands for another program, and the task that waits there for
    /// connections.
    running: Option<(Runtime, JoinHandle<()>)>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Server {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let mut server = Self { folder, address, running: None, connections: Arc::default() };
        server.run();
        server
    }

    /// Runs it again, at the same address, after it was killed.
    pub fn run(&mut self) {
        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(self.folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(ID, SECRET));
        let service = service.build();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind(self.address).unwrap();
        self.address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let connections = Arc::clone(&self.connections);
        let accepting = runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let service = service.clone();
                let connection = tokio::spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client that goes away in the middle is nothing to it.
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
                let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
                connections.retain(|connection| !connection.is_finished());
                connections.push(connection);
            }
        });
        self.running = Some((runtime, accepting));
    }

    /// Kills the server. Its connections are closed at once, before anything else ends. Otherwise the work on
    /// its files would be seen to fail, and the client be told so: no server that is killed does that.
    pub fn kill(&mut self) {
        let Some((runtime, accepting)) = self.running.take() else { return };
        end(&[accepting]);
        end(&self.connections.lock().unwrap_or_else(PoisonError::into_inner).split_off(0));
        runtime.shutdown_background();
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the folder of the buckets.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Writes a file of credentials, with the right ones as `[lab]`, and others as `[default]`.
    pub fn credentials(&self, at: &Path) {
        let text = format!(
            "[default]\naws_access_key_id = {ID}\naws_secret_access_key = wrong\n\n[lab]\naws_access_key_id \
                = {ID}\naws_secret_access_key = {SECRET}\n"
        );
        std::fs::write(at, text).unwrap();
    }
}

fn end(tasks: &[JoinHandle<()>]) {
    tasks.iter().for_each(JoinHandle::abort);
    while !tasks.iter().all(JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
