//! A server of S3 for tests: `s3s-fs` on a folder of its own, with one bucket, `data`.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "a helper of several tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub const ID: &str = "tidegate-test";
pub const SECRET: &str = "what-nobody-else-knows";

/// Until it is dropped.
pub struct Server {
    folder: TempDir,
    address: SocketAddr,
    /// A thread of its own: it is somebody else.
    runtime: Option<Runtime>,
}

impl Server {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let mut server = Self { folder, address: (Ipv4Addr::LOCALHOST, 0).into(), runtime: None };
        server.run();
        server
    }

    /// Again, at the same address, after it was killed.
    pub fn run(&mut self) {
        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(self.folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(ID, SECRET));
        let service = service.build();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind(self.address).unwrap();
        self.address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    // Whoever goes away in the middle is nothing to it.
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        self.runtime = Some(runtime);
    }

    /// Its connections are closed where they are.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where the buckets are.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// A file of credentials, with the right ones as `[lab]`, and others as `[default]`.
    pub fn credentials(&self, at: &Path) {
        let text = format!(
            "[default]\naws_access_key_id = {ID}\naws_secret_access_key = wrong\n\n[lab]\naws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n"
        );
        std::fs::write(at, text).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
