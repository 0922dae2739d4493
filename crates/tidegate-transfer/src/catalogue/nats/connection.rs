//! The connection to the servers of NATS, and the bucket there as a stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions};
use futures_util::future::BoxFuture;
use tidegate_nats::{Encryption, NatsServers};
use tidegate_tls::client_settings;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::SitePlan;
use crate::catalogue::CatalogueError;

/// The time for a connection to be made, and for the server to describe itself.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// The time for the server to take a write. The broker does nothing else meanwhile, and its clients come
/// back.
pub(super) const WRITE: Duration = Duration::from_secs(2);

/// The time between two looks at whether the connection is there, and between attempts to make it again.
const LOOK: Duration = Duration::from_millis(100);

/// The greatest number of entries that are asked for: they are in memory twice. A false server fills as many with
/// messages of 128 KiB.
pub(super) const LARGEST_BATCH: usize = 1_024;

/// Messages of a subscription that wait to be read. The client library drops those beyond.
const WAITING: usize = LARGEST_BATCH + 64;

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

    /// Starts work on the thread that goes on until the thread ends.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
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

/// The connection of the moment, and the bucket by it.
#[derive(Debug, Clone)]
pub(super) struct SiteLink {
    pub(super) client: Client,
    pub(super) context: Context,
    pub(super) stream: Stream<()>,
}

impl SiteLink {
    pub(super) async fn make(plan: &SitePlan, servers: &NatsServers) -> Result<Self, CatalogueError> {
        let client = connect(plan, servers).await?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(CONNECT);
        let stream = context.get_stream_no_info(stream_name(plan)).await;
        Ok(Self { client, context, stream: stream.map_err(|error| unusable(plan, error))? })
    }

    pub(super) fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }
}

/// Replaces the connection whenever it has ended, for ever.
pub(super) async fn keep_connected(plan: SitePlan, servers: NatsServers, link: Arc<Mutex<SiteLink>>) {
    loop {
        sleep(LOOK).await;
        if lock(&link).is_up() {
            continue;
        }
        match SiteLink::make(&plan, &servers).await {
            Ok(made) => *lock(&link) = made,
            Err(error) => tracing::debug!("{error}"),
        }
    }
}

pub(super) fn lock(link: &Mutex<SiteLink>) -> MutexGuard<'_, SiteLink> {
    // A link is replaced as a whole.
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(plan: &SitePlan, servers: &NatsServers) -> Result<Client, CatalogueError> {
    let mut options = ConnectOptions::new()
        .name("tidegate-broker")
        .connection_timeout(CONNECT)
        .request_timeout(Some(CONNECT))
        .subscription_capacity(WAITING);
    if let Some(path) = &plan.credentials {
        options = options
            .credentials_file(path)
            .await
            .map_err(|error| unusable(plan, format!("{}: {error}", path.display())))?;
    }
    let encryption = match &plan.authorities {
        None => Encryption::IfAsked(|| Ok(client_settings(None, None)?)),
        Some(path) => {
            Encryption::Required(client_settings(Some(path), None).map_err(|error| unusable(plan, error))?)
        }
    };
    let connected = tidegate_nats::connect(options, servers, &encryption, CONNECT).await;
    let (client, relay) = connected.map_err(|error| unusable(plan, error))?;
    tokio::spawn(async move {
        if let Some(error) = relay.end().await {
            tracing::warn!("the connection to NATS has ended: {error}");
        }
    });
    Ok(client)
}

fn stream_name(plan: &SitePlan) -> String {
    format!("KV_{}", plan.bucket)
}

/// Makes the bucket as a stream. To make it as a bucket, the client library expects fields that servers
/// before 2.10 do not send.
pub(super) async fn make_stream(plan: &SitePlan, context: &Context) -> Result<(), CatalogueError> {
    let bucket = &plan.bucket;
    let config = Config {
        name: stream_name(plan),
        subjects: vec![format!("$KV.{bucket}.>")],
        max_messages_per_subject: 1,
        num_replicas: plan.replicas.into(),
        discard: DiscardPolicy::New,
        allow_rollup: true,
        allow_direct: true,
        ..Config::default()
    };
    let made = context.get_or_create_stream(config).await;
    made.map(drop).map_err(|error| unusable(plan, format!("{error} (is JetStream enabled on the server?)")))
}
