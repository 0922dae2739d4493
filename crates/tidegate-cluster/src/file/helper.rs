//! The process that reads and writes the shared file for a service.
//!
//! A thread that waits for a device or a file system that hangs cannot be ended, nor can its process. So the
//! service has another process wait. Its own thread waits at a socket, and is gone with the service. The helper
//! ends at the end of its input, as soon as the file answers.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use super::medium::{AlignedBlocks, BlockMedium, MediumError};
use crate::limits::MOST_SLOTS;
use crate::name::ClusterName;

/// Questions to the helper. A write is followed by the number of the block, and its bytes.
const OPEN: u8 = b'o';
const READ: u8 = b'r';
const WRITE: u8 = b'w';

/// The longest answer: all blocks.
const LONGEST_ANSWER: usize = (MOST_SLOTS + 1) * super::layout::BLOCK;

/// The time for a helper to end, once nothing more is asked of it.
const FAREWELL: Duration = Duration::from_millis(200);

/// The program that [`serve_shared_file`] runs in, with its first argument.
static PROGRAM: OnceLock<(PathBuf, &'static str)> = OnceLock::new();

/// Has shared files read by processes of their own. The program gets the argument, the path, the cluster and the
/// number of slots, and calls [`serve_shared_file`].
pub fn use_file_helper(program: &Path, argument: &'static str) {
    // A service says it once.
    let _ = PROGRAM.set((program.to_owned(), argument));
}

/// Answers a service until it ends: opens, reads and writes its shared file. Standard input is the service's
/// socket.
///
/// # Errors
/// When the socket fails.
pub fn serve_shared_file(path: &Path, cluster: &ClusterName, slots: u16) -> io::Result<()> {
    let mut line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut medium = None;
    let closed = || MediumError::Wrong { path: path.to_owned(), why: "it is not open".to_owned() };
    loop {
        let mut question = [0];
        match line.read_exact(&mut question) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let answer = match question[0] {
            OPEN => BlockMedium::open(path, cluster, slots).map(|opened| {
                let [low, high] = opened.slots.to_le_bytes();
                let answer = vec![low, high, u8::from(opened.is_direct())];
                medium = Some(opened);
                answer
            }),
            READ => medium.as_ref().ok_or_else(closed).and_then(|medium| {
                let mut blocks = AlignedBlocks::zeroed(usize::from(medium.slots) + 1);
                medium.read(&mut blocks).map(|()| blocks.bytes().to_vec())
            }),
            _ => {
                let mut index = [0; 2];
                line.read_exact(&mut index)?;
                let mut block = AlignedBlocks::zeroed(1);
                line.read_exact(block.bytes_mut())?;
                let write =
                    |medium: &BlockMedium| medium.write(usize::from(u16::from_le_bytes(index)), &block);
                medium.as_ref().ok_or_else(closed).and_then(write).map(|()| Vec::new())
            }
        };
        let (is_done, bytes) = match answer {
            Ok(bytes) => (true, bytes),
            Err(error) => (false, error.to_string().into_bytes()),
        };
        // Invariant: an answer is no longer than all blocks.
        line.write_all(&[&[u8::from(is_done)][..], &(bytes.len() as u32).to_le_bytes(), &bytes].concat())?;
    }
}

/// A helper that was started.
#[derive(Debug)]
pub(crate) struct FileHelper {
    child: Child,
    line: UnixStream,
    path: PathBuf,
    is_lost: bool,
}

impl FileHelper {
    fn start(
        (program, argument): &(PathBuf, &str),
        path: &Path,
        cluster: &ClusterName,
        slots: u16,
    ) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        let child = Command::new(program)
            .args([argument, "--"])
            .arg(path)
            .args([cluster.to_string(), slots.to_string()])
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            // Signals to the service's group are not for the helper.
            .process_group(0)
            .spawn()?;
        Ok(Self { child, line, path: path.to_owned(), is_lost: false })
    }

    /// Asks, and waits for the answer for as long as the file takes.
    fn ask(&mut self, question: &[&[u8]]) -> Result<Vec<u8>, MediumError> {
        let asked = self.exchange(&question.concat());
        self.is_lost |= asked.is_err();
        let lost = |source| MediumError::Helper { path: self.path.clone(), source };
        let (is_done, bytes) = asked.map_err(lost)?;
        if is_done { Ok(bytes) } else { Err(MediumError::Told(String::from_utf8_lossy(&bytes).into_owned())) }
    }

    fn exchange(&mut self, question: &[u8]) -> io::Result<(bool, Vec<u8>)> {
        self.line.write_all(question)?;
        let mut head = [0; 5];
        self.line.read_exact(&mut head)?;
        let [is_done, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST_ANSWER {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length];
        self.line.read_exact(&mut bytes)?;
        Ok((is_done == 1, bytes))
    }
}

impl Drop for FileHelper {
    fn drop(&mut self) {
        let _ = self.line.shutdown(std::net::Shutdown::Both);
        // A helper that hangs is left to itself.
        const PAUSE: Duration = Duration::from_millis(5);
        for _ in 0..FAREWELL.as_millis() / PAUSE.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// A shared file that is open, here or in a helper.
#[derive(Debug)]
pub(crate) enum OpenFile {
    Here(BlockMedium),
    Beside { helper: Rc<RefCell<FileHelper>>, slots: u16, is_direct: bool },
}

impl OpenFile {
    /// Opens the file by the helper of before, or another one if there is none and services have them.
    pub(crate) fn open(
        path: &Path,
        cluster: &ClusterName,
        slots: u16,
        helper: &mut Option<Rc<RefCell<FileHelper>>>,
    ) -> Result<Self, MediumError> {
        let Some(program) = PROGRAM.get() else {
            return BlockMedium::open(path, cluster, slots).map(Self::Here);
        };
        if helper.as_ref().is_none_or(|helper| helper.borrow().is_lost) {
            let started = FileHelper::start(program, path, cluster, slots);
            let started = started.map_err(|source| MediumError::Helper { path: path.to_owned(), source })?;
            *helper = Some(Rc::new(RefCell::new(started)));
        }
        // Invariant: it is there now.
        let Some(helper) = helper.clone() else { unreachable!("a helper was started") };
        let answer = helper.borrow_mut().ask(&[&[OPEN]])?;
        let [low, high, is_direct] = answer[..] else {
            return Err(MediumError::Helper { path: path.to_owned(), source: ErrorKind::InvalidData.into() });
        };
        Ok(Self::Beside { helper, slots: u16::from_le_bytes([low, high]), is_direct: is_direct == 1 })
    }

    pub(crate) fn slots(&self) -> u16 {
        match self {
            Self::Here(medium) => medium.slots,
            Self::Beside { slots, .. } => *slots,
        }
    }

    pub(crate) fn is_direct(&self) -> bool {
        match self {
            Self::Here(medium) => medium.is_direct(),
            Self::Beside { is_direct, .. } => *is_direct,
        }
    }

    /// Fills `blocks` from the start of the file with one read.
    pub(crate) fn read(&self, blocks: &mut AlignedBlocks) -> Result<(), MediumError> {
        match self {
            Self::Here(medium) => medium.read(blocks),
            Self::Beside { helper, .. } => {
                let mut helper = helper.borrow_mut();
                let answer = helper.ask(&[&[READ]])?;
                let bytes = blocks.bytes_mut();
                if answer.len() != bytes.len() {
                    let source = ErrorKind::InvalidData.into();
                    return Err(MediumError::Helper { path: helper.path.clone(), source });
                }
                bytes.copy_from_slice(&answer);
                Ok(())
            }
        }
    }

    /// Writes one block with one write.
    pub(crate) fn write(&self, index: usize, block: &AlignedBlocks) -> Result<(), MediumError> {
        match self {
            Self::Here(medium) => medium.write(index, block),
            Self::Beside { helper, .. } => {
                // Invariant: a file has at most 512 slots.
                let index = (index as u16).to_le_bytes();
                helper.borrow_mut().ask(&[&[WRITE], &index, block.bytes()]).map(drop)
            }
        }
    }
}
