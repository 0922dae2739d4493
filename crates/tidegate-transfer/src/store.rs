//! A storage node, as a place to put objects and to get them from.

mod credentials;
mod ends;
mod s3;
mod sent;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use hyper_util::client::legacy::connect::{Connection, HttpInfo};
use object_store::client::{HttpClient, HttpConnector};
use object_store::http::{HttpBuilder, HttpStore};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig};
use reqwest::header::CONTENT_LENGTH;
use reqwest::redirect::Policy;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_config::masked;
use tidegate_sockets::trust::{UnknownPeer, check_connection};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower::util::AndThenLayer;

use crate::gauge::BytesGauge;

pub use credentials::CredentialsError;
pub use ends::ended;
pub(crate) use s3::BucketSetting;
use s3::S3Store;
pub use s3::{S3Bucket, S3Error};
use sent::{HandedBytes, in_slices};

/// The amount that is read and hashed at once. It is large enough that a turn costs nothing beside its
/// transfer, and small enough that a hundred transfers take 100 MB.
pub const PIECE: usize = 1024 * 1024;

/// The number of bytes after which a file is flushed. A disk at a tenth of the usual rate has written them in
/// a few seconds. A disk that has to seek for the flush loses some hundredths of its rate.
const UNFLUSHED: usize = 32 * PIECE;

/// The time in which a node has to take a connection; one that does not is down.
const CONNECT: Duration = Duration::from_secs(5);

/// The greatest number of redirects of one request.
const MOST_REDIRECTS: usize = 3;

/// The time in which a node has to answer a small question; one that does not is down.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);

/// The place of a node: a folder that every client sees under the same path, a collection on a WebDAV server,
/// or a bucket on an S3 server. WebDAV requests are `PUT`, `GET`, `HEAD` and `DELETE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NodePlace {
    /// `file:///PATH`.
    Folder(PathBuf),
    /// `http://HOST[:PORT]/PATH/` or `https://…`, ending with a slash.
    Http(String),
    /// `s3://BUCKET/PREFIX`, and the further settings of the bucket.
    S3(S3Bucket),
}

/// A text that is not a place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{}` is no place of a storage node: write `file:///PATH`, `http://HOST:PORT/PATH`, `https://HOST/PATH` \
        or `s3://BUCKET/PREFIX`",
    .0.escape_debug()
)]
pub struct PlaceError(String);

impl PlaceError {
    fn new(text: &str) -> Self {
        Self(masked(text).chars().take(200).collect())
    }
}

impl FromStr for NodePlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PlaceError::new(text);
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong());
        }
        if let Some(path) = text.strip_prefix("file://") {
            return if path.starts_with('/') { Ok(Self::Folder(PathBuf::from(path))) } else { Err(wrong()) };
        }
        if text.starts_with("s3://") {
            return Ok(Self::S3(text.parse()?));
        }
        let url = reqwest::Url::parse(text).map_err(|_| wrong())?;
        let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
            return Err(wrong());
        }
        Ok(Self::Http(format!("{}/", url.as_str().trim_end_matches('/'))))
    }
}

impl NodePlace {
    /// Returns true if its data goes over a network without encryption.
    #[must_use]
    pub fn is_plain_beyond_this_host(&self) -> bool {
        match self {
            Self::Folder(_) => false,
            Self::Http(url) => is_plain_beyond_this_host(url),
            Self::S3(bucket) => bucket.endpoint().is_some_and(is_plain_beyond_this_host),
        }
    }
}

impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "file://{}", path.display()),
            Self::Http(url) => f.write_str(url),
            Self::S3(bucket) => bucket.fmt(f),
        }
    }
}

impl TryFrom<String> for NodePlace {
    type Error = PlaceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<NodePlace> for String {
    fn from(place: NodePlace) -> Self {
        place.to_string()
    }
}

/// The reason why a node did not do what it was asked for.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The crate that speaks to it gives the reason.
    #[error(transparent)]
    Store(#[from] object_store::Error),
    /// A bucket failed.
    #[error(transparent)]
    S3(#[from] S3Error),
    /// A file of a folder failed.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
    /// The connection failed, or its data was wrong.
    #[error("{}", with_causes(.0))]
    Http(#[from] reqwest::Error),
    /// The server refuses.
    #[error("the server answers {0}")]
    Status(reqwest::StatusCode),
    /// The data that was to be sent could not be read.
    #[error("{0}")]
    Source(io::Error),
    /// No answer.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
}

/// Returns an error's text with its causes: the error itself says only that something went wrong.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The data that is to be written, in pieces.
pub type DataPieces = BoxStream<'static, io::Result<Bytes>>;

/// A connection to a node.
#[derive(Debug, Clone)]
pub struct NodeStore(StoreKind);

/// The ways to read objects, and the ways to write them if `object_store` does not do it as transfers need
/// it.
#[derive(Debug, Clone)]
enum StoreKind {
    /// A folder. `object_store` flushes all at the end, and shows no progress meanwhile.
    Folder(Arc<LocalFileSystem>, PathBuf),
    /// A WebDAV server, and the address of its collection without a slash at the end. `object_store` wants a whole
    /// object in memory to write it.
    Http(Arc<HttpStore>, reqwest::Client, String),
    /// A bucket. `object_store` shows no progress before the end of a part.
    S3(Arc<S3Store>),
}

/// The connector that sends all requests through one client of ours.
#[derive(Debug)]
struct Ours(reqwest::Client);

impl HttpConnector for Ours {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// Returns a client of HTTP that asks no proxy: data goes to storage directly. The cryptography of TLS is
/// `ring`'s, as everywhere in Tidegate. A node may redirect to itself, as servers do for a missing slash, and
/// nowhere else: the destination of data is configured.
pub(crate) fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    client(Policy::custom(|attempt| {
        let origin = |url: &reqwest::Url| {
            (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default())
        };
        let is_same = attempt.previous().first().is_some_and(|first| origin(first) == origin(attempt.url()));
        if is_same && attempt.previous().len() <= MOST_REDIRECTS { attempt.follow() } else { attempt.stop() }
    }))
    .build()
}

/// Makes a client of a service that is named by its address: it follows no redirection, which would lead a token
/// elsewhere.
///
/// # Errors
/// When the system gives none.
pub fn service_client() -> Result<reqwest::Client, reqwest::Error> {
    client(Policy::none()).build()
}

/// Returns the same with a check of each connection: nothing is sent to programs of this machine that any user could
/// have started.
pub(crate) fn wary_client() -> Result<reqwest::Client, reqwest::Error> {
    client(Policy::none()).connector_layer(AndThenLayer::new(check_peer)).build()
}

async fn check_peer<C: Connection>(connection: C) -> Result<C, Box<dyn Error + Send + Sync>> {
    let mut known = http::Extensions::new();
    connection.connected().get_extras(&mut known);
    let ends = known.get::<HttpInfo>().ok_or(UnknownPeer::Untold)?;
    match check_connection(ends.remote_addr(), ends.local_addr()) {
        // A plain address of another machine has its own warning.
        Ok(()) | Err(UnknownPeer::OtherMachine) => Ok(connection),
        Err(unknown) => Err(unknown.into()),
    }
}

fn client(redirects: Policy) -> reqwest::ClientBuilder {
    // It may have been said before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().connect_timeout(CONNECT).redirect(redirects)
}

/// Returns true if a URL leads over a network without encryption.
#[must_use]
pub fn is_plain_beyond_this_host(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && !is_here
}

impl NodeStore {
    /// Connects to a place. Only a folder is looked for at once; a server is not asked yet.
    ///
    /// # Errors
    /// When there is no such folder, or no connection can be made of the address.
    pub fn open(place: &NodePlace) -> Result<Self, StoreError> {
        Ok(Self(match place {
            NodePlace::Folder(path) => {
                let folder = LocalFileSystem::new_with_prefix(path)?;
                StoreKind::Folder(Arc::new(folder), path.clone())
            }
            NodePlace::Http(url) => {
                let client = http_client()?;
                // `object_store` puts its own slash before a key.
                let url = url.trim_end_matches('/');
                // The mover knows better what to do about a failure than to repeat it: there are other nodes.
                let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
                let objects = HttpBuilder::new()
                    .with_url(url)
                    .with_retry(retry)
                    .with_http_connector(Ours(client.clone()))
                    .build()?;
                StoreKind::Http(Arc::new(objects), client, url.to_owned())
            }
            NodePlace::S3(bucket) => StoreKind::S3(Arc::new(S3Store::open(bucket)?)),
        }))
    }

    /// Writes an object of this size under a key that was never used. It holds two pieces in memory, or two
    /// parts for a bucket. When this returns, the object is there as a whole. In a folder it is flushed
    /// to the disk; a server does as it will. `moved` grows meanwhile.
    ///
    /// # Errors
    /// When the node fails, or the pieces cannot be read. Then nothing is under the key, or a part to which
    /// nothing refers.
    pub async fn put(
        &self,
        key: &str,
        size: u64,
        pieces: DataPieces,
        moved: Arc<BytesGauge>,
    ) -> Result<(), StoreError> {
        match &self.0 {
            StoreKind::Folder(_, folder) => write_file(folder, key, pieces, &moved).await,
            StoreKind::Http(_, client, url) => {
                let mut handed = HandedBytes::default();
                let observed = Arc::clone(&moved);
                let pieces = in_slices(pieces).inspect(move |slice| observed.reach(handed.sent(slice)));
                let body = reqwest::Body::wrap_stream(pieces);
                let request = client.put(format!("{url}/{key}")).header(CONTENT_LENGTH, size).body(body);
                let answer = request.send().await?;
                if !answer.status().is_success() {
                    return Err(StoreError::Status(answer.status()));
                }
                moved.reach(size);
                Ok(())
            }
            StoreKind::S3(bucket) => bucket.put(key, size, in_slices(pieces), moved).await,
        }
    }

    fn objects(&self) -> &dyn ObjectStore {
        match &self.0 {
            StoreKind::Folder(objects, _) => &**objects,
            StoreKind::Http(objects, ..) => &**objects,
            StoreKind::S3(bucket) => bucket.objects(),
        }
    }

    fn key(&self, key: &str) -> Key {
        match &self.0 {
            StoreKind::Folder(..) | StoreKind::Http(..) => Key::from(key),
            StoreKind::S3(bucket) => bucket.key(key),
        }
    }

    fn explained(&self, error: object_store::Error) -> StoreError {
        match &self.0 {
            StoreKind::Folder(..) | StoreKind::Http(..) => error.into(),
            StoreKind::S3(bucket) => bucket.explain(&error),
        }
    }

    /// Reads an object from a byte on. It waits for the first byte however long it takes. From an object that
    /// is recalled from tape nothing comes for minutes, not even the server's answer. The caller has to set a
    /// limit.
    ///
    /// # Errors
    /// When the node fails, or has no such object.
    pub async fn get(
        &self,
        key: &str,
        from: u64,
    ) -> Result<BoxStream<'static, Result<Bytes, StoreError>>, StoreError> {
        let range = (from > 0).then_some(GetRange::Offset(from));
        let options = GetOptions { range, ..GetOptions::default() };
        let key = self.key(key);
        let got = self.objects().get_opts(&key, options).await.map_err(|error| self.explained(error))?;
        let store = self.clone();
        let pieces = got.into_stream().map(move |piece| piece.map_err(|error| store.explained(error)));
        Ok(pieces.boxed())
    }

    /// Returns the size of an object.
    ///
    /// # Errors
    /// When the node fails, or has no such object.
    pub async fn size(&self, key: &str) -> Result<u64, StoreError> {
        let key = self.key(key);
        let head = timeout(ANSWER, self.objects().head(&key)).await;
        let head = head.map_err(|_| StoreError::Silent(ANSWER))?;
        Ok(head.map_err(|error| self.explained(error))?.size)
    }

    /// Removes an object. One that is not there counts as removed.
    ///
    /// # Errors
    /// When the node fails, or has no such bucket.
    pub async fn remove(&self, key: &str) -> Result<(), StoreError> {
        let key = self.key(key);
        let removed = timeout(ANSWER, self.objects().delete(&key)).await;
        match removed.map_err(|_| StoreError::Silent(ANSWER))?.map_err(|error| self.explained(error)) {
            Ok(())
            | Err(
                StoreError::Store(object_store::Error::NotFound { .. })
                | StoreError::S3(S3Error::Absent { .. }),
            ) => Ok(()),
            failed => failed,
        }
    }
}

/// Writes a file and flushes it as it grows. Otherwise all of a large file would be taken at once, at the
/// rate of the memory. Then nothing would seem to move until the disk is done.
async fn write_file(
    folder: &Path,
    key: &str,
    mut pieces: DataPieces,
    moved: &BytesGauge,
) -> Result<(), StoreError> {
    let path = folder.join(key);
    let at = |source| StoreError::File(path.clone(), source);
    let (file, mut unfinished) = create(&path).await.map_err(at)?;
    let mut file = File::from_std(file);
    let mut unflushed = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(StoreError::Source)?;
        file.write_all(&piece).await.map_err(at)?;
        unflushed += piece.len();
        if unflushed >= UNFLUSHED {
            file.sync_data().await.map_err(at)?;
            unflushed = 0;
        }
        moved.add(piece.len() as u64);
    }
    file.sync_all().await.map_err(at)?;
    // Its name, too.
    let above = folder.to_owned();
    let named = tokio::task::spawn_blocking(move || std::fs::File::open(above)?.sync_all()).await;
    named.unwrap_or_else(|_| Err(io::Error::other("the flush of the folder was given up"))).map_err(at)?;
    unfinished.0 = None;
    Ok(())
}

/// Makes a file. If it is dropped meanwhile, it goes on, and removes the file that it made.
async fn create(path: &Path) -> io::Result<(std::fs::File, Unfinished)> {
    let (made, making) = oneshot::channel();
    let path = path.to_owned();
    let work = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::options().write(true).create_new(true).open(&path);
        // The receiver may be gone: then it is dropped here.
        let _ = made.send(file.map(|file| (file, Unfinished(Some(path)))));
    });
    ends::go_on(async { drop(work.await) });
    making.await.unwrap_or_else(|_| Err(io::Error::other("the making of the file was given up")))
}

/// A file that is removed if it is not finished.
struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Nothing refers to it: left behind it costs room, and no more.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_part_is_not_left_in_a_folder_when_it_is_given_up_or_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = NodeStore::open(&NodePlace::Folder(folder.path().to_owned())).unwrap();
        let given = Arc::new(Notify::new());
        let gives = Arc::clone(&given);
        let first = stream::once(async move {
            gives.notify_one();
            Ok(Bytes::from_static(b"abc"))
        });
        let never = first.chain(stream::pending()).boxed();
        tokio::select! {
            outcome = store.put("x.1", 6, never, Arc::default()) => panic!("{outcome:?}"),
            () = given.notified() => {}
        }
        let broken = vec![Ok(Bytes::from_static(b"abc")), Err(io::Error::other("gone"))];
        let error = store.put("x.2", 6, stream::iter(broken).boxed(), Arc::default()).await.unwrap_err();
        assert!(matches!(error, StoreError::Source(_)), "{error}");
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[tokio::test]
    async fn a_key_in_a_folder_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = NodeStore::open(&NodePlace::Folder(folder.path().to_owned())).unwrap();
        let data = |byte| stream::iter(vec![Ok(Bytes::from(vec![byte; 10]))]).boxed();
        store.put("x.1", 10, data(1), Arc::default()).await.unwrap();
        assert!(matches!(store.put("x.1", 10, data(2), Arc::default()).await, Err(StoreError::File(..))));
        assert_eq!(std::fs::read(folder.path().join("x.1")).unwrap(), [1; 10]);
        assert_eq!(store.size("x.1").await.unwrap(), 10);
    }

    #[test]
    fn a_place_is_a_folder_a_collection_or_a_bucket() {
        for (text, shown) in [
            ("file:///srv/a", "file:///srv/a"),
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080/"),
            ("https://store.example/a/", "https://store.example/a/"),
            ("s3://data/a/?region=eu-1", "s3://data/a?region=eu-1"),
        ] {
            assert_eq!(text.parse::<NodePlace>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "/srv/a",
            "file://srv/a",
            "ftp://a/",
            "http://",
            "http://a/?b",
            "http://u:p@a/",
            "s3://b",
            "s3:/data",
        ] {
            assert!(text.parse::<NodePlace>().is_err(), "{text}");
        }
    }
}
