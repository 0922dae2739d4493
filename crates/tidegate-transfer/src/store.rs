//! A storage node, as a place to put objects and to get them from.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::client::{HttpClient, HttpConnector};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig};
use reqwest::header::CONTENT_LENGTH;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::timeout;

/// What is read, hashed and sent at once: large enough that a turn of it costs nothing beside its transfer, small enough that a
/// hundred transfers take 100 MB.
pub const PIECE: usize = 1024 * 1024;

/// A node that does not take a connection in this time is down.
const CONNECT: Duration = Duration::from_secs(5);

/// A node that does not answer a small question in this time is down.
const ANSWER: Duration = Duration::from_secs(15);

/// Where a node is: a folder that every client sees under the same path, or a collection on a server that speaks WebDAV (of which
/// `PUT`, `GET`, `HEAD` and `DELETE` are used).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Place {
    /// `file:///PATH`.
    Folder(PathBuf),
    /// `http://HOST[:PORT]/PATH/` or `https://…`, ending with a slash.
    Http(String),
}

/// A text that is no place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is no place of a storage node: write `file:///PATH`, `http://HOST:PORT/PATH` or `https://HOST/PATH`", .0.escape_debug())]
pub struct PlaceError(String);

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PlaceError(text.chars().take(200).collect());
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong());
        }
        if let Some(path) = text.strip_prefix("file://") {
            return if path.starts_with('/') { Ok(Self::Folder(PathBuf::from(path))) } else { Err(wrong()) };
        }
        let url = reqwest::Url::parse(text).map_err(|_| wrong())?;
        let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
            return Err(wrong());
        }
        Ok(Self::Http(format!("{}/", url.as_str().trim_end_matches('/'))))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "file://{}", path.display()),
            Self::Http(url) => f.write_str(url),
        }
    }
}

impl TryFrom<String> for Place {
    type Error = PlaceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

/// Why a node did not do what it was asked for.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The crate that speaks to it says why.
    #[error(transparent)]
    Store(#[from] object_store::Error),
    /// The connection, or what came over it.
    #[error("{}", with_causes(.0))]
    Http(#[from] reqwest::Error),
    /// The server refuses.
    #[error("the server answers {0}")]
    Status(reqwest::StatusCode),
    /// What was to be sent could not be read.
    #[error("{0}")]
    Source(io::Error),
    /// No answer.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
}

/// What went wrong is in the causes; the error itself says only that something did.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// What is to be written, in pieces.
pub type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// A connection to a node.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    /// Where objects are written by HTTP: `object_store` wants the whole of an object in memory for it.
    http: Option<(reqwest::Client, String)>,
}

/// All requests go through one client of ours.
#[derive(Debug)]
struct Ours(reqwest::Client);

impl HttpConnector for Ours {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// A client of HTTP that asks no proxy: data goes to storage directly. The cryptography of TLS is `ring`'s, as everywhere in Tidegate.
pub(crate) fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    // Somebody may have said so before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().connect_timeout(CONNECT).build()
}

impl Store {
    /// Of a place. Nothing is asked of it yet, but that a folder is there.
    ///
    /// # Errors
    /// When there is no such folder, or no connection can be made of the address.
    pub fn open(place: &Place) -> Result<Self, StoreError> {
        match place {
            Place::Folder(path) => {
                let folder = LocalFileSystem::new_with_prefix(path)?.with_fsync(true);
                Ok(Self { objects: Arc::new(folder), http: None })
            }
            Place::Http(url) => {
                let client = http_client()?;
                // Whoever transfers knows better what to do about a failure than to repeat it: there are other nodes.
                let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
                let objects = HttpBuilder::new()
                    .with_url(url)
                    .with_retry(retry)
                    .with_http_connector(Ours(client.clone()))
                    .build()?;
                Ok(Self { objects: Arc::new(objects), http: Some((client, url.clone())) })
            }
        }
    }

    /// Writes an object of this size, in memory for two pieces. When this returns it is there as a whole: on a folder flushed to the
    /// disk, on a server as that does it.
    ///
    /// # Errors
    /// When the node fails, or the pieces cannot be read. Then nothing is under the key, or a part that nobody refers to.
    pub async fn put(&self, key: &str, size: u64, mut pieces: Pieces) -> Result<(), StoreError> {
        if let Some((client, url)) = &self.http {
            let body = reqwest::Body::wrap_stream(pieces);
            let request = client.put(format!("{url}{key}")).header(CONTENT_LENGTH, size).body(body);
            let answer = request.send().await?;
            return if answer.status().is_success() {
                Ok(())
            } else {
                Err(StoreError::Status(answer.status()))
            };
        }
        let mut upload = self.objects.put_multipart(&Key::from(key)).await?;
        let mut written = Ok(());
        while let Some(piece) = pieces.next().await {
            written = match piece {
                Ok(piece) => upload.put_part(piece.into()).await.map_err(StoreError::from),
                Err(error) => Err(StoreError::Source(error)),
            };
            if written.is_err() {
                break;
            }
        }
        match written {
            Ok(()) => upload.complete().await.map(drop).map_err(StoreError::from),
            Err(error) => {
                // What it leaves behind harms nobody: the first error says more.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Reads an object from a byte on.
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
        let key = Key::from(key);
        let got = timeout(ANSWER, self.objects.get_opts(&key, options)).await;
        let got = got.map_err(|_| StoreError::Silent(ANSWER))??;
        Ok(got.into_stream().map(|piece| piece.map_err(StoreError::from)).boxed())
    }

    /// How large an object is.
    ///
    /// # Errors
    /// When the node fails, or has no such object.
    pub async fn size(&self, key: &str) -> Result<u64, StoreError> {
        let key = Key::from(key);
        let head = timeout(ANSWER, self.objects.head(&key)).await;
        Ok(head.map_err(|_| StoreError::Silent(ANSWER))??.size)
    }

    /// Removes an object. One that is not there is as good as removed.
    ///
    /// # Errors
    /// When the node fails.
    pub async fn remove(&self, key: &str) -> Result<(), StoreError> {
        let key = Key::from(key);
        let removed = timeout(ANSWER, self.objects.delete(&key)).await;
        match removed.map_err(|_| StoreError::Silent(ANSWER))? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_folder_or_a_collection() {
        for (text, shown) in [
            ("file:///srv/a", "file:///srv/a"),
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080/"),
            ("https://store.example/a/", "https://store.example/a/"),
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), shown);
        }
        for text in
            ["", "/srv/a", "file://srv/a", "ftp://a/", "http://", "http://a/?b", "http://u:p@a/", "s3://b"]
        {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
