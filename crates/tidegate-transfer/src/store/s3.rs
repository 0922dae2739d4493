//! A bucket on a server that speaks S3.
//!
//! An object is written in parts, one after the other: while one is sent, the next is read. S3 wants the
//! checksum and the length of a part before it, so that two parts are in memory. Nothing is under the key
//! before the last part is there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::StreamExt;
use http_body_util::BodyExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::path::Path as Key;
use object_store::{ClientOptions, MultipartUpload, ObjectStoreExt, PutPayload, RetryConfig};
use reqwest::Url;
use reqwest::header::CONTENT_LENGTH;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::gauge::BytesGauge;

use super::credentials::{CredentialsError, S3Credentials};
use super::sent::HandedBytes;
use super::{ANSWER, DataPieces, PIECE, PlaceError, StoreError, ends, with_causes};

/// The size of a part, if the object does not need larger ones. Its checksum takes some hundredths of a
/// second. At 100 MB/s it is sent in less than a tenth of one, to which the server's answer adds a few
/// hundredths.
const PART: usize = 8 * PIECE;

/// The greatest number of parts of an object that S3 takes.
const MOST_PARTS: u64 = 10_000;

/// The region if none is configured; most servers that are not Amazon's call theirs so, or do not care.
const REGION: &str = "us-east-1";

/// Times that an upload is aborted, and the pause in between (chosen: an interrupted command ends within
/// seconds).
const ABORT_ATTEMPTS: u32 = 5;
const ABORT_PAUSE: Duration = Duration::from_millis(200);

/// A bucket, and a place in it: `s3://BUCKET[/PREFIX][?endpoint=URL][&region=REGION][&profile=NAME]`. It
/// contains no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Bucket {
    bucket: String,
    prefix: String,
    /// The server; `None` for Amazon's.
    endpoint: Option<String>,
    region: Option<String>,
    /// The profile of the credentials file.
    profile: Option<String>,
}

/// The settings of a bucket beside its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketSetting {
    Endpoint,
    Region,
    Profile,
}

impl BucketSetting {
    pub(crate) const ALL: [Self; 3] = [Self::Endpoint, Self::Region, Self::Profile];

    /// Returns its name as it is written in a place and in a configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Region => "region",
            Self::Profile => "profile",
        }
    }

    /// Returns the value in its stored form; `None` if it is not valid.
    fn checked(self, value: &str) -> Option<String> {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match self {
            Self::Endpoint => {
                let url = Url::parse(value).ok()?;
                let plain = url.query().is_none()
                    && url.fragment().is_none()
                    && url.username().is_empty()
                    && url.password().is_none();
                let right = matches!(url.scheme(), "http" | "https") && url.has_host() && plain;
                right.then(|| url.as_str().trim_end_matches('/').to_owned())
            }
            Self::Region | Self::Profile => {
                ((1..=128).contains(&value.len()) && value.chars().all(word)).then(|| value.to_owned())
            }
        }
    }
}

impl S3Bucket {
    fn about(&self, what: BucketSetting) -> Option<&String> {
        match what {
            BucketSetting::Endpoint => self.endpoint.as_ref(),
            BucketSetting::Region => self.region.as_ref(),
            BucketSetting::Profile => self.profile.as_ref(),
        }
    }

    /// Returns the server; `None` if it is Amazon's.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// Returns true if the setting is set already.
    pub(crate) fn says(&self, what: BucketSetting) -> bool {
        self.about(what).is_some()
    }

    /// Sets the setting. Returns false if the value is not valid.
    pub(crate) fn say(&mut self, what: BucketSetting, value: &str) -> bool {
        let value = what.checked(value);
        let right = value.is_some();
        match what {
            BucketSetting::Endpoint => self.endpoint = value,
            BucketSetting::Region => self.region = value,
            BucketSetting::Profile => self.profile = value,
        }
        right
    }

    fn key(&self, key: &str) -> Key {
        if self.prefix.is_empty() { Key::from(key) } else { Key::from(format!("{}/{key}", self.prefix)) }
    }

    /// Returns its address, without its settings.
    fn whole(&self) -> String {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        format!("s3://{}{slash}{}", self.bucket, self.prefix)
    }
}

impl FromStr for S3Bucket {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PlaceError::new(text);
        let url = Url::parse(text).map_err(|_| wrong())?;
        let bucket = url.host_str().unwrap_or_default().to_owned();
        let prefix = url.path().trim_matches('/').to_owned();
        // By the rules of S3; what else a server may allow would mean something else in an address.
        let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let is_bucket = (3..=63).contains(&bucket.len())
            && bucket.chars().all(named)
            && !bucket.starts_with(['-', '.'])
            && !bucket.ends_with(['-', '.']);
        let part = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && !matches!(part, "." | "..") && part.chars().all(allowed)
        };
        let is_prefix = prefix.len() <= 500 && (prefix.is_empty() || prefix.split('/').all(part));
        let plain = url.username().is_empty() && url.password().is_none() && url.port().is_none();
        if url.scheme() != "s3" || !is_bucket || !is_prefix || !plain || url.fragment().is_some() {
            return Err(wrong());
        }
        let mut place = Self { bucket, prefix, endpoint: None, region: None, profile: None };
        for (key, value) in url.query_pairs() {
            let what = BucketSetting::ALL.into_iter().find(|what| what.name() == key).ok_or_else(wrong)?;
            if place.says(what) || !place.say(what, &value) {
                return Err(wrong());
            }
        }
        Ok(place)
    }
}

impl fmt::Display for S3Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.whole();
        let said = BucketSetting::ALL.into_iter().filter_map(|what| Some((what.name(), self.about(what)?)));
        if let Ok(mut url) = Url::parse(&text) {
            for (name, value) in said {
                url.query_pairs_mut().append_pair(name, value);
            }
            text = url.into();
        }
        f.write_str(&text)
    }
}

/// The reason why a bucket does not do what it was asked for.
#[derive(Debug, Error)]
pub enum S3Error {
    /// No credentials are found.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The server refuses our credentials.
    #[error(
        "{at}: access is denied ({why}): look at the credentials, and at what they may do in this bucket"
    )]
    Denied {
        /// The bucket and its server.
        at: String,
        /// The server's reason.
        why: String,
    },
    /// There is no such bucket.
    #[error("{at}: there is no such bucket: make it first, or look at `place` and `endpoint`")]
    NoBucket {
        /// The bucket and its server.
        at: String,
    },
    /// There is no such object.
    #[error("{at}: there is no such object, or no such bucket")]
    Absent {
        /// The bucket and its server.
        at: String,
    },
    /// The server does not answer, or the connection broke.
    #[error("{at}: the server cannot be reached, or the connection broke: {why}")]
    Unreachable {
        /// The bucket and its server.
        at: String,
        /// The reason.
        why: String,
    },
    /// Any other failure.
    #[error("{at}: {why}")]
    Other {
        /// The bucket and its server.
        at: String,
        /// The text of the server, or of the crate that speaks to it.
        why: String,
    },
}

/// A connection to a bucket.
pub(super) struct S3Store {
    place: S3Bucket,
    http: reqwest::Client,
    credentials: S3Credentials,
    /// The client for everything except writes.
    objects: AmazonS3,
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the crate would show of itself is not ours to vouch for.
        write!(f, "S3({})", self.place)
    }
}

impl S3Store {
    /// Opens a bucket. The server is not asked yet.
    pub(super) fn open(place: &S3Bucket) -> Result<Self, StoreError> {
        Self::with(place, S3Credentials::find(place.profile.as_deref()).map_err(S3Error::from)?)
    }

    fn with(place: &S3Bucket, credentials: S3Credentials) -> Result<Self, StoreError> {
        let http = super::http_client()?;
        let objects = client(place, &credentials, Counted { http: http.clone(), sent: Arc::default() })?;
        Ok(Self { place: place.clone(), http, credentials, objects })
    }

    pub(super) fn key(&self, key: &str) -> Key {
        self.place.key(key)
    }

    pub(super) const fn objects(&self) -> &AmazonS3 {
        &self.objects
    }

    /// Returns the meaning of an error of the crate.
    pub(super) fn explain(&self, error: &object_store::Error) -> StoreError {
        let at = match &self.place.endpoint {
            Some(endpoint) => format!("{} at {endpoint}", self.place.whole()),
            None => self.place.whole(),
        };
        explain(at, error).into()
    }

    /// See [`NodeStore::put`](super::NodeStore::put).
    pub(super) async fn put(
        &self,
        key: &str,
        size: u64,
        pieces: DataPieces,
        moved: Arc<BytesGauge>,
    ) -> Result<(), StoreError> {
        let sent = Arc::new(Sent { before: AtomicU64::new(0), moved });
        let objects = client(
            &self.place,
            &self.credentials,
            Counted { http: self.http.clone(), sent: Arc::clone(&sent) },
        )?;
        let key = self.key(key);
        // A part that is full may have been the last, and whether it was is asked.
        let mut pieces = pieces.fuse().boxed();
        let part = part(size);
        let first = gather(&mut pieces, part).await?;
        if size <= part as u64 {
            objects.put(&key, first.into_iter().collect()).await.map_err(|error| self.explain(&error))?;
            return Ok(());
        }
        let begun = begin_upload(objects, key).await.ok_or(StoreError::Silent(ANSWER))?;
        let mut upload = begun.map_err(|error| self.explain(&error))?;
        let outcome = self.put_parts(&mut upload, first, &mut pieces, part, &sent).await;
        match outcome {
            Ok(()) => upload.0 = None,
            // The bucket's owner pays for what is left.
            Err(_) => upload.abort().await,
        }
        outcome
    }

    async fn put_parts(
        &self,
        upload: &mut Upload,
        first: Vec<Bytes>,
        pieces: &mut DataPieces,
        part: usize,
        sent: &Sent,
    ) -> Result<(), StoreError> {
        let Upload(Some(upload)) = upload else { return Ok(()) };
        let mut next = first;
        while !next.is_empty() {
            let length: usize = next.iter().map(Bytes::len).sum();
            let sending = upload.put_part(next.into_iter().collect::<PutPayload>());
            let sending = async { sending.await.map_err(|error| self.explain(&error)) };
            ((), next) = tokio::try_join!(sending, gather(pieces, part))?;
            sent.before.fetch_add(length as u64, Ordering::Relaxed);
        }
        upload.complete().await.map(drop).map_err(|error| self.explain(&error))
    }
}

/// Returns the size of a part: larger than usual only if there would be too many parts.
fn part(size: u64) -> usize {
    usize::try_from(size.div_ceil(MOST_PARTS)).unwrap_or(usize::MAX).max(PART)
}

/// Returns the next part, or less at the end.
async fn gather(pieces: &mut DataPieces, part: usize) -> Result<Vec<Bytes>, StoreError> {
    let (mut gathered, mut length) = (Vec::new(), 0);
    while length < part {
        let Some(piece) = pieces.next().await else { break };
        let piece = piece.map_err(StoreError::Source)?;
        length += piece.len();
        gathered.push(piece);
    }
    Ok(gathered)
}

fn client(place: &S3Bucket, credentials: &S3Credentials, http: Counted) -> Result<AmazonS3, StoreError> {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&place.bucket)
        .with_region(place.region.as_deref().unwrap_or(REGION))
        .with_access_key_id(&credentials.id)
        .with_secret_access_key(&credentials.secret)
        // One object at a time is removed, for which every server has the plain request.
        .with_disable_bulk_delete(true)
        // The mover knows better what to do about a failure than to repeat it: there are other nodes.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_http_connector(http);
    if let Some(token) = &credentials.token {
        builder = builder.with_token(token);
    }
    if let Some(endpoint) = &place.endpoint {
        builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
    }
    Ok(builder.build()?)
}

/// Begins an upload, and returns `None` if the server does not answer. If the caller gives up meanwhile, the
/// server may have begun the upload all the same: the answer is awaited, and the upload aborted.
async fn begin_upload(objects: AmazonS3, key: Key) -> Option<Result<Upload, object_store::Error>> {
    let (answer, answered) = oneshot::channel();
    ends::go_on(async move {
        if let Ok(begun) = timeout(ANSWER, objects.put_multipart(&key)).await {
            // Without a receiver the upload is dropped here, which aborts it.
            let _ = answer.send(begun.map(|upload| Upload(Some(upload))));
        }
    });
    answered.await.ok()
}

/// An upload, which is aborted if it is given up and the server can still be told.
struct Upload(Option<Box<dyn MultipartUpload>>);

impl Upload {
    async fn abort(&mut self) {
        if let Some(upload) = self.0.take() {
            abort(upload).await;
        }
    }
}

/// Aborts an upload. A server may fail at that while it still ends a part whose request was given up, so it
/// is asked again. If it fails each time, the bucket's rule for unfinished uploads has to remove the parts.
async fn abort(mut upload: Box<dyn MultipartUpload>) {
    let aborted = async {
        for _ in 0..ABORT_ATTEMPTS {
            match upload.abort().await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => break,
                Err(_) => sleep(ABORT_PAUSE).await,
            }
        }
    };
    let _ = timeout(ANSWER, aborted).await;
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(upload) = self.0.take() {
            ends::go_on(abort(upload));
        }
    }
}

/// The progress of an object that is sent.
#[derive(Debug, Default)]
struct Sent {
    /// The bytes of the parts that are there.
    before: AtomicU64,
    /// The bytes of all of it, for observers.
    moved: Arc<BytesGauge>,
}

/// Counts the bodies of `PUT` while they are sent: a part is too large to be counted at its end.
#[derive(Debug, Clone)]
struct Counted {
    http: reqwest::Client,
    sent: Arc<Sent>,
}

impl HttpConnector for Counted {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

fn http_error(error: reqwest::Error) -> HttpError {
    let kind = match &error {
        error if error.is_connect() => HttpErrorKind::Connect,
        error if error.is_timeout() => HttpErrorKind::Timeout,
        error if error.is_decode() => HttpErrorKind::Decode,
        _ => HttpErrorKind::Request,
    };
    HttpError::new(kind, error.without_url())
}

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url: Url =
            parts.uri.to_string().parse().map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let (is_put, length) = (parts.method == reqwest::Method::PUT, body.content_length());
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        let body = match body.as_bytes() {
            Some(bytes) => bytes.clone().into(),
            None => {
                request.headers_mut().insert(CONTENT_LENGTH, length.into());
                let (sent, mut handed) = (Arc::clone(&self.sent), HandedBytes::default());
                let counting = body.into_data_stream().inspect(move |slice| {
                    let done = handed.sent(slice);
                    if is_put {
                        sent.moved.reach(sent.before.load(Ordering::Relaxed) + done);
                    }
                });
                reqwest::Body::wrap_stream(counting)
            }
        };
        *request.body_mut() = Some(body);
        let answer = self.http.execute(request).await.map_err(http_error)?;
        if is_put && answer.status().is_success() {
            self.sent.moved.reach(self.sent.before.load(Ordering::Relaxed) + length as u64);
        }
        let answer: http::Response<reqwest::Body> = answer.into();
        let (parts, body) = answer.into_parts();
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(http_error))))
    }
}

/// Returns the server's reason for a failure: `<Code>` and `<Message>` of its document, at any place in the
/// crate's text.
fn said(text: &str) -> Option<(&str, &str)> {
    let within = |open: &str, close: &str| Some(text.split_once(open)?.1.split_once(close)?.0.trim());
    Some((within("<Code>", "</Code>")?, within("<Message>", "</Message>").unwrap_or_default()))
}

fn explain(at: String, error: &object_store::Error) -> S3Error {
    let text = with_causes(error);
    let said = said(&text);
    // Names of accounts, which some servers put there, are left out with the rest of the document.
    let why = || match said {
        Some((code, "")) => code.to_owned(),
        Some((code, message)) => format!("{code}: {message}"),
        None => text.chars().take(500).collect(),
    };
    match (error, said) {
        (_, Some(("NoSuchBucket", _))) => S3Error::NoBucket { at },
        (object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }, _) => {
            S3Error::Denied {
                at,
                why: said.map_or_else(|| "the server gives no reason".to_owned(), |_| why()),
            }
        }
        (object_store::Error::NotFound { .. }, _) => S3Error::Absent { at },
        _ => match broken(error) {
            Some(why) => S3Error::Unreachable { at, why },
            None => S3Error::Other { at, why: why() },
        },
    }
}

/// Returns the reason why there was no answer, if there was none.
fn broken(error: &object_store::Error) -> Option<String> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    let mut is_http = false;
    let mut deepest = String::new();
    while let Some(error) = cause {
        is_http |= error.is::<HttpError>();
        deepest = error.to_string();
        cause = error.source();
    }
    is_http.then_some(deepest)
}

#[cfg(test)]
mod tests;
