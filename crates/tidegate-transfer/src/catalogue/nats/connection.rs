//! The connection to the servers of NATS, and the bucket there as a stream.

use std::thread::JoinHandle;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Stream};
use async_nats::{Client, ConnectOptions};
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::SitePlan;
use crate::catalogue::CatalogueError;

/// The time for a connection to be made, and for the server to describe itself.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// The time for the server to take a write. The broker does nothing else meanwhile, and its clients come
/// back.
pub(super) const WRITE: Duration = Duration::from_secs(2);

/// The thread on which the connection lives; callers wait on their own.
pub(super) struct Line {
    handle: Handle,
    end: Option<oneshot::Sender<BoxFuture<'static, ()>>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Line {
    pub(super) fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<BoxFuture<'static, ()>>();
        let thread = std::thread::Builder::new().name("catalogue".to_owned()).spawn(move || {
            runtime.block_on(async {
                if let Ok(last) = ended.await {
                    let _ = timeout(WRITE, last).await;
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, end: Some(end), thread: Some(thread) })
    }

    /// Runs work on the thread, and waits for it. Must not be called within a runtime.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.handle.block_on(work)
    }

    /// Has the thread do one last thing before it ends.
    pub(super) fn end_with(&mut self, last: BoxFuture<'static, ()>) {
        if let Some(end) = self.end.take() {
            let _ = end.send(last);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Without a last word the thread ends by this.
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn unusable(plan: &SitePlan, why: impl std::fmt::Display) -> CatalogueError {
    CatalogueError::Site {
        servers: plan.servers.join(", "),
        bucket: plan.bucket.clone(),
        why: why.to_string(),
    }
}

pub(super) async fn connect(plan: &SitePlan) -> Result<Client, CatalogueError> {
    // It may have been said before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut options = ConnectOptions::new()
        .name("tidegate-broker")
        .connection_timeout(CONNECT)
        .request_timeout(Some(CONNECT));
    if let Some(path) = &plan.credentials {
        options = options
            .credentials_file(path)
            .await
            .map_err(|error| unusable(plan, format!("{}: {error}", path.display())))?;
    }
    if let Some(path) = &plan.authorities {
        options = options.require_tls(true).add_root_certificates(path.clone());
    }
    match timeout(CONNECT, options.connect(&plan.servers)).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => Err(unusable(plan, error)),
        Err(_) => Err(unusable(plan, format!("no answer within {} s", CONNECT.as_secs()))),
    }
}

/// Makes the bucket as a stream. To make it as a bucket, the client library expects fields that servers
/// before 2.10 do not send.
pub(super) async fn stream(plan: &SitePlan, context: &Context) -> Result<Stream, CatalogueError> {
    let bucket = &plan.bucket;
    let config = Config {
        name: format!("KV_{bucket}"),
        subjects: vec![format!("$KV.{bucket}.>")],
        max_messages_per_subject: 1,
        num_replicas: plan.replicas.into(),
        discard: DiscardPolicy::New,
        allow_rollup: true,
        allow_direct: true,
        ..Config::default()
    };
    let made = context.get_or_create_stream(config).await;
    made.map_err(|error| unusable(plan, format!("{error} (is JetStream enabled on the server?)")))?;
    context.get_stream(format!("KV_{bucket}")).await.map_err(|error| unusable(plan, error))
}
