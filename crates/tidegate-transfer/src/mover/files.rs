//! The files of the client: one that is read while it is sent, and one that is made while it is received.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use tidegate_units::ResourceName;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};

use crate::digest::Hasher;
use crate::store::{DataPieces, PIECE};

/// The state of reading a file.
#[derive(Default)]
pub(super) struct FileReading {
    pub(super) hasher: Hasher,
    pub(super) bytes: u64,
    /// True if the file ended before the size that it had.
    pub(super) is_short: bool,
    pub(super) error: Option<io::Error>,
}

/// The state of reading a file while it is sent.
#[derive(Default)]
pub(super) struct SendingSource(Mutex<FileReading>);

impl SendingSource {
    fn state(&self) -> MutexGuard<'_, FileReading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> FileReading {
        std::mem::take(&mut *self.state())
    }

    fn add(&self, piece: &[u8]) {
        let mut state = self.state();
        state.hasher.add(piece);
        state.bytes += piece.len() as u64;
    }

    /// Keeps the reason, and returns one for the sender.
    fn fail(&self, error: io::Error) -> io::Error {
        let copy = io::Error::new(error.kind(), error.to_string());
        self.state().error = Some(error);
        copy
    }
}

/// Returns the first `size` bytes of a file, piece by piece as they are asked for.
pub(super) fn pieces(file: File, size: u64, source: Arc<SendingSource>) -> DataPieces {
    let next = move |(mut file, left): (File, u64)| {
        let source = Arc::clone(&source);
        async move {
            if left == 0 {
                return None;
            }
            let want = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let mut piece = BytesMut::zeroed(want);
            match fill(&mut file, &mut piece).await {
                Ok(filled) => {
                    piece.truncate(filled);
                    source.add(&piece);
                    // A file that has become shorter ends here, and its sender sees that there is less than
                    // was announced.
                    source.state().is_short |= filled < want;
                    let left = if filled < want { 0 } else { left - filled as u64 };
                    (filled > 0).then(|| (Ok(piece.freeze()), (file, left)))
                }
                Err(error) => Some((Err(source.fail(error)), (file, 0))),
            }
        }
    };
    stream::unfold((file, size), next).boxed()
}

async fn fill(file: &mut File, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < piece.len() {
        match file.read(&mut piece[filled..]).await? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

/// A file in the making, beside its final path. It is removed if it is not finished.
pub(super) struct PartFile {
    pub(super) path: PathBuf,
    file: File,
    pub(super) length: u64,
    pub(super) hasher: Hasher,
    pub(super) from: Vec<ResourceName>,
    finished: bool,
}

impl PartFile {
    pub(super) async fn new(target: &Path, id: &str) -> io::Result<Self> {
        let name = target.file_name().ok_or_else(|| io::Error::other("this is no name of a file"))?;
        let path = target.with_file_name(format!(".{}.{id}.part", name.to_string_lossy()));
        // The file has its owner as soon as it is there. If this is dropped meanwhile, it is removed at once.
        let create = move || {
            let file = File::from_std(std::fs::File::create_new(&path)?);
            Ok(Self { path, file, length: 0, hasher: Hasher::default(), from: Vec::new(), finished: false })
        };
        tokio::task::spawn_blocking(create).await?
    }

    /// Ends the write of an attempt that was given up in the middle of a piece. Goes on after the last piece
    /// that was counted: `add` may be dropped at any time.
    pub(super) async fn go_on(&mut self) -> io::Result<()> {
        self.file.flush().await?;
        self.file.set_len(self.length).await?;
        self.file.seek(SeekFrom::Start(self.length)).await.map(drop)
    }

    /// Appends a piece. If this is dropped before it is done, call [`go_on`](Self::go_on) before the next.
    pub(super) async fn add(&mut self, piece: &Bytes) -> io::Result<()> {
        self.file.write_all(piece).await?;
        // The file's own buffer is written in the background, and its errors come with what follows.
        self.file.flush().await?;
        self.hasher.add(piece);
        self.length += piece.len() as u64;
        Ok(())
    }

    pub(super) fn restart(&mut self) {
        (self.length, self.hasher) = (0, Hasher::default());
    }

    pub(super) async fn finish(mut self, target: &Path) -> io::Result<()> {
        self.file.sync_all().await?;
        // The checksum is of what was counted; it says nothing of what else might be there.
        let there = self.file.metadata().await?.len();
        if there != self.length {
            let why = format!("{there} bytes are in {}, of {}", self.path.display(), self.length);
            return Err(io::Error::other(why));
        }
        tokio::fs::rename(&self.path, target).await?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.finished {
            // Left behind it would be in the way of nothing.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_piece_of_an_attempt_that_was_given_up_was_left_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x");
        let mut part = PartFile::new(&target, "1").await.unwrap();
        part.go_on().await.unwrap();
        part.add(&Bytes::from(vec![1; PIECE])).await.unwrap();
        // What writes it goes on in the background.
        let given_up = part.add(&Bytes::from(vec![2; PIECE])).now_or_never();
        part.go_on().await.unwrap();
        let rest = if given_up.is_none() { vec![3; PIECE] } else { Vec::new() };
        part.add(&Bytes::from(rest.clone())).await.unwrap();
        let (length, digest) = (part.length, part.hasher.clone().finish());
        part.finish(&target).await.unwrap();
        let there = std::fs::read(&target).unwrap();
        let mut hasher = Hasher::default();
        hasher.add(&there);
        assert_eq!((there.len() as u64, hasher.finish()), (length, digest));
        assert!(given_up.is_some() || there[PIECE..] == rest);
    }

    #[test]
    fn a_file_whose_creation_is_given_up_is_not_left() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { drop(PartFile::new(&folder.path().join("x"), "1").now_or_never()) });
        runtime.shutdown_timeout(std::time::Duration::from_secs(60));
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[tokio::test]
    async fn a_file_that_is_longer_than_what_was_counted_is_not_finished() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x");
        let mut part = PartFile::new(&target, "1").await.unwrap();
        part.add(&Bytes::from_static(b"abc")).await.unwrap();
        part.file.write_all(b"d").await.unwrap();
        part.finish(&target).await.unwrap_err();
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nor is anything left of it");
    }
}
