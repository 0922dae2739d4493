//! With a real server of S3 on a folder: the crate `s3s-fs`.

use std::time::Duration;

use futures_util::stream;

use super::*;
use crate::store::{NodeStore, StoreKind};
use tidegate_testing::s3::{ID, SECRET, Server};

fn credentials(id: &str, secret: &str) -> S3Credentials {
    S3Credentials { id: id.to_owned(), secret: secret.to_owned(), token: None }
}

fn store(url: &str, bucket: &str, id: &str, secret: &str) -> NodeStore {
    let mut place: S3Bucket = format!("s3://{bucket}/runs").parse().unwrap();
    assert!(place.say(BucketSetting::Endpoint, url));
    NodeStore(StoreKind::S3(Arc::new(S3Store::with(&place, credentials(id, secret)).unwrap())))
}

fn right(server: &Server) -> NodeStore {
    store(&server.url(), "data", ID, SECRET)
}

/// Every piece is different.
fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn in_pieces(content: &[u8]) -> DataPieces {
    let pieces: Vec<_> = content.chunks(PIECE).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces).boxed()
}

async fn all_from(store: &NodeStore, from: u64) -> Vec<u8> {
    let mut got = Vec::new();
    let mut pieces = store.get("x.1", from).await.unwrap();
    while let Some(piece) = pieces.next().await {
        got.extend_from_slice(&piece.unwrap());
    }
    got
}

#[tokio::test]
async fn what_is_put_is_got_whole_and_from_the_middle_and_removed() {
    let server = Server::start();
    let store = right(&server);
    for length in [0, 1, PART, PART + 1, 2 * PART + 4_567_891] {
        let (content, moved) = (content(length), Arc::new(BytesGauge::default()));
        let put = store.put("x.1", length as u64, in_pieces(&content), Arc::clone(&moved));
        put.await.unwrap_or_else(|error| panic!("{length}: {error}"));
        assert_eq!(moved.get(), length as u64, "all of it was counted, once");
        assert_eq!(store.size("x.1").await.unwrap(), length as u64);
        assert!(all_from(&store, 0).await == content, "{length}");
        if length > 1 {
            assert!(all_from(&store, length as u64 / 2).await == content[length / 2..], "{length}");
        }
        assert_eq!(std::fs::read(server.folder().join("data/runs/x.1")).unwrap().len(), length);
        store.remove("x.1").await.unwrap();
        store.remove("x.1").await.unwrap();
        assert!(matches!(store.size("x.1").await, Err(StoreError::S3(S3Error::Absent { .. }))));
    }
}

#[tokio::test]
async fn pieces_were_asked_for_after_their_end() {
    let server = Server::start();
    let store = right(&server);
    for pieces in [PART / PIECE + 1, 2 * PART / PIECE] {
        // Which panics then, as what reads a file does.
        let left = stream::unfold(pieces, async |left| {
            (left > 0).then(|| (Ok(Bytes::from(vec![7; PIECE])), left - 1))
        });
        let size = (pieces * PIECE) as u64;
        store.put("x.1", size, left.boxed(), Arc::default()).await.unwrap();
        assert_eq!(store.size("x.1").await.unwrap(), size);
    }
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let server = Server::start();
    let put = async |store: NodeStore| {
        let error = store.put("x.1", 3, in_pieces(b"abc"), Arc::default()).await.unwrap_err();
        let StoreError::S3(error) = error else { panic!("{error}") };
        error
    };
    for (id, secret) in [(ID, "another-secret"), ("somebody", SECRET)] {
        let store = store(&server.url(), "data", id, secret);
        let error = store.get("x.1", 0).await.err().unwrap();
        assert!(matches!(error, StoreError::S3(S3Error::Denied { .. })), "{error}");
        let error = put(store).await;
        assert!(matches!(error, S3Error::Denied { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("s3://data/runs at {}: access is denied (", server.url())),
            "{text}"
        );
        assert!(!text.contains(secret) && text.len() < 400, "{text}");
    }
    // What is put into a bucket that is not there this server takes, and makes the bucket.
    let error = store(&server.url(), "absent", ID, SECRET).remove("x.1").await.unwrap_err();
    assert!(matches!(error, StoreError::S3(S3Error::NoBucket { .. })), "{error}");
    let error = put(store("http://127.0.0.1:1", "data", ID, SECRET)).await;
    assert!(matches!(error, S3Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1: the server cannot be reached"), "{error}");
    let store = store(&server.url(), "data", ID, SECRET);
    for text in [format!("{store:?}"), format!("{:?}", credentials(ID, SECRET))] {
        assert!(!text.contains(SECRET) && !text.contains(ID), "{text}");
    }
}

/// Returns this many pieces, and then never another one.
fn stops_after(pieces: usize) -> DataPieces {
    let some = stream::iter((0..pieces).map(|_| Ok(Bytes::from(vec![7; PIECE]))));
    some.chain(stream::pending()).boxed()
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_is_noticed() {
    let mut server = Server::start();
    let store = right(&server);
    let moved = Arc::new(BytesGauge::default());
    let size = 4 * PART as u64;
    let pieces = in_pieces(&content(4 * PART)).then(async |piece| {
        tokio::time::sleep(Duration::from_millis(10)).await;
        piece
    });
    let writing = store.put("x.1", size, pieces.boxed(), Arc::clone(&moved));
    let killing = async {
        while moved.get() < PART as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.kill();
    };
    let (outcome, ()) = tokio::join!(writing, killing);
    let error = outcome.unwrap_err();
    assert!(matches!(error, StoreError::S3(S3Error::Unreachable { .. })), "{error}");
    assert!(moved.get() < size);
}

#[tokio::test]
async fn the_parts_of_what_is_given_up_do_not_stay_in_the_bucket() {
    let server = Server::start();
    let store = right(&server);
    let uploads = || {
        let names = std::fs::read_dir(server.folder()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("upload")).count()
    };
    let moved = Arc::new(BytesGauge::default());
    let writing = store.put("x.1", 3 * PART as u64, stops_after(12), Arc::clone(&moved));
    tokio::select! {
        outcome = writing => panic!("{outcome:?}"),
        () = async {
            while moved.get() < PART as u64 || uploads() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        } => {}
    }
    // As a process that is interrupted does before it ends.
    assert!(super::super::ended(Duration::from_secs(30)).await);
    assert_eq!(uploads(), 0);
    let error =
        store.put("x.1", 3 * PART as u64, stream::iter(broken()).boxed(), Arc::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Source(_)), "{error}");
    assert_eq!(uploads(), 0, "nor of what cannot be read");
}

fn broken() -> Vec<std::io::Result<Bytes>> {
    let whole = (0..12).map(|_| Ok(Bytes::from(vec![7; PIECE])));
    whole.chain([Err(std::io::Error::other("gone"))]).collect()
}

#[test]
fn parts_are_small_until_there_would_be_too_many() {
    assert_eq!(part(0), PART);
    assert_eq!(part(80_000_000_000), PART);
    // The largest object that there may be.
    let largest = 5u64 << 40;
    assert!(largest.div_ceil(part(largest) as u64) <= MOST_PARTS);
}

#[test]
fn a_bucket_is_read_and_written_alike() {
    let text = "s3://data/runs/7?endpoint=http%3A%2F%2F10.0.0.1%3A9000&region=eu-1&profile=lab";
    let bucket: S3Bucket = text.parse().unwrap();
    assert_eq!(bucket.endpoint.as_deref(), Some("http://10.0.0.1:9000"));
    assert_eq!(bucket.to_string(), text);
    assert_eq!(bucket.key("x.1").as_ref(), "runs/7/x.1");
    let bucket: S3Bucket = "s3://data/".parse().unwrap();
    assert_eq!((bucket.to_string().as_str(), bucket.key("x.1").as_ref()), ("s3://data", "x.1"));
    for wrong in [
        "s3://",
        "s3://ab",
        "s3://UPPER",
        "s3://data:80",
        "s3://me:secret@data",
        "s3://data/a//b",
        "s3://data/a b",
        "s3://data?secret=x",
        "s3://data?region=",
        "s3://data?region=a&region=b",
        "s3://data?endpoint=ftp://a",
        "s3://data?endpoint=http://u:p@a",
        "s3://data#a",
    ] {
        assert!(wrong.parse::<S3Bucket>().is_err(), "{wrong}");
    }
}
