//! The count of the bytes of a body that have been sent to a server.

use std::iter;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::DataPieces;

/// The amount that is counted at once. At 1 MB/s four slices go between two reports to the broker. A whole
/// piece would take a transfer of 100 kB/s ten seconds, in which it would seem to rest.
const SLICE: usize = 64 * 1024;

/// Divides pieces, without a copy.
pub(super) fn in_slices(pieces: DataPieces) -> DataPieces {
    let slices = |mut piece: Bytes| {
        stream::iter(iter::from_fn(move || {
            (!piece.is_empty()).then(|| Ok(piece.split_to(piece.len().min(SLICE))))
        }))
    };
    pieces.map_ok(slices).try_flatten().boxed()
}

/// The number of bytes of a body that the HTTP client has taken. Bytes in its buffer do not count as sent.
/// Otherwise many transfers that begin at a slow node would make it look faster than it is.
#[derive(Debug, Default)]
pub(super) struct HandedBytes(u64);

impl HandedBytes {
    /// The size of the client's buffer: hyper's `max_buf_size`, as it is by default.
    const BUFFER: u64 = 417_792;

    /// Takes the next slice, which the client has just asked for. Returns how many bytes before it have
    /// certainly been sent.
    pub(super) fn sent<E>(&mut self, next: &Result<Bytes, E>) -> u64 {
        let sent = self.0.saturating_sub(Self::BUFFER);
        self.0 += next.as_ref().map_or(0, |slice| slice.len() as u64);
        sent
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::{NodePlace, NodeStore, PIECE};
    use super::*;
    use crate::gauge::BytesGauge;

    #[tokio::test]
    async fn bytes_in_the_http_clients_buffer_have_not_moved() {
        let size = 4 * PIECE as u64;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place: NodePlace = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let store = NodeStore::open(&place).unwrap();
        let moved = Arc::new(BytesGauge::default());
        let observed = Arc::clone(&moved);
        let server = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).await.unwrap();
                head.push(byte[0]);
            }
            let mut body = vec![0; 4 * PIECE];
            stream.read_exact(&mut body).await.unwrap();
            let before = observed.get();
            assert!(
                (1..=size - HandedBytes::BUFFER).contains(&before),
                "{before} of {size} before the answer"
            );
            stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        };
        let pieces = stream::iter((0..4).map(|_| Ok(Bytes::from(vec![7; PIECE])))).boxed();
        let (put, ()) = tokio::join!(store.put("x.1", size, pieces, Arc::clone(&moved)), server);
        put.unwrap();
        assert_eq!(moved.get(), size, "the server has all of it");
    }

    #[tokio::test]
    async fn slices_are_the_pieces_in_order_and_an_error_goes_through() {
        let bytes: Vec<u8> = (0..3 * SLICE + 5).map(|at| (at % 251) as u8).collect();
        let pieces = [
            Ok(Bytes::copy_from_slice(&bytes[..2 * SLICE + 1])),
            Ok(Bytes::new()),
            Ok(Bytes::copy_from_slice(&bytes[2 * SLICE + 1..])),
            Err(io::Error::other("gone")),
        ];
        let slices: Vec<_> = in_slices(stream::iter(pieces).boxed()).collect().await;
        let (good, error) = slices.split_at(slices.len() - 1);
        let lengths: Vec<_> = good.iter().map(|slice| slice.as_ref().unwrap().len()).collect();
        assert_eq!(lengths, [SLICE, SLICE, 1, SLICE, 4]);
        let together: Vec<u8> = good.iter().flat_map(|slice| slice.as_ref().unwrap()).copied().collect();
        assert!(together == bytes);
        assert_eq!(error[0].as_ref().unwrap_err().to_string(), "gone");
    }
}
