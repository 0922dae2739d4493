//! The way of the log's lines to stderr: no thread of a service waits for the reader.
//!
//! A terminal that is stopped, a full pipe or a journal that is stuck blocks who writes to it. So lines go to
//! a thread of their own, through memory that is bounded: what finds no room is dropped and counted, and in
//! its place the log says how much is missing.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// The target of messages whose number an administrator decides, such as the lines of a summary: they are
/// never left out.
pub const SUMMARY: &str = "tidegate::summary";

/// The most bytes that wait for stderr: some five thousand lines.
const MOST_BYTES: usize = 1 << 20;

/// The bytes that a line takes besides its text.
const OVERHEAD: usize = 64;

/// The log of this process, once there is one.
static LOG: OnceLock<LogWriter> = OnceLock::new();

/// Lines that were not written, since the start of the process.
static MISSING: LogCounts<AtomicU64> = LogCounts { dropped: AtomicU64::new(0), repeated: AtomicU64::new(0) };

/// Lines that were not written, by the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCounts<N = u64> {
    /// Stderr did not take them in time.
    pub dropped: N,
    /// Too many came of the same cause.
    pub repeated: N,
}

/// Returns the number of lines of this process's log that were not written.
#[must_use]
pub fn missing() -> LogCounts {
    LogCounts {
        dropped: MISSING.dropped.load(Ordering::Relaxed),
        repeated: MISSING.repeated.load(Ordering::Relaxed),
    }
}

/// Counts a line that is left out because too many came of its cause.
pub fn left_out() {
    MISSING.repeated.fetch_add(1, Ordering::Relaxed);
}

/// Takes `log` for the log of this process. The first one stays.
pub fn install(log: LogWriter) {
    // A second one would be a second start, which changes nothing.
    let _ = LOG.set(log);
}

/// The log of this process, if there is one.
#[must_use]
pub fn installed() -> Option<LogWriter> {
    LOG.get().cloned()
}

/// Waits until all that was logged is written, but not for longer than this. Whether it is; without a log
/// there is nothing to wait for.
pub fn flush(limit: Duration) -> bool {
    LOG.get().is_none_or(|log| log.flush_within(limit))
}

/// The sender of lines to the thread that writes them. Clones are of the same log.
#[derive(Debug, Clone)]
pub struct LogWriter {
    lines: Sender<Line>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes of lines that wait, or are being written.
    waiting: AtomicUsize,
    /// Lines dropped since the last one that found room.
    missing: AtomicU64,
}

#[derive(Debug)]
enum Line {
    Text {
        /// Lines dropped before it.
        missing: u64,
        text: Vec<u8>,
    },
    /// Says that everything before it is written.
    Flush(SyncSender<()>),
}

impl LogWriter {
    /// Starts a thread that writes to `out`, for as long as the process lives. `note` makes a line of how
    /// many are missing. Each line is one call of `write_all`.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(
        out: impl Write + Send + 'static,
        note: impl Fn(u64) -> Vec<u8> + Send + 'static,
    ) -> io::Result<Self> {
        let (lines, waiting) = channel();
        let shared = Arc::<Shared>::default();
        let writer = Self { lines, shared: Arc::clone(&shared) };
        let body = move || write_lines(&waiting, &shared, out, note);
        thread::Builder::new().name("tidegate-log".to_owned()).spawn(body)?;
        Ok(writer)
    }

    /// Waits until all lines so far are written, but not for longer than this. Whether they are.
    #[must_use]
    pub fn flush_within(&self, limit: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        self.lines.send(Line::Flush(done)).is_ok() && is_done.recv_timeout(limit).is_ok()
    }
}

impl Write for LogWriter {
    /// Takes a whole line, and never waits.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let Shared { waiting, missing } = &*self.shared;
        let size = text.len() + OVERHEAD;
        if waiting.fetch_add(size, Ordering::Relaxed) + size > MOST_BYTES {
            waiting.fetch_sub(size, Ordering::Relaxed);
            missing.fetch_add(1, Ordering::Relaxed);
            MISSING.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            let line = Line::Text { missing: missing.swap(0, Ordering::Relaxed), text: text.to_owned() };
            // The thread lives as long as the process.
            let _ = self.lines.send(line);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines in their order. A closed stderr is no failure: there is nowhere to say it.
fn write_lines(lines: &Receiver<Line>, shared: &Shared, mut out: impl Write, note: impl Fn(u64) -> Vec<u8>) {
    let say_missing = |out: &mut dyn Write, missing: u64| {
        if missing > 0 {
            let _ = out.write_all(&note(missing));
        }
    };
    for line in lines {
        match line {
            Line::Text { missing, text } => {
                say_missing(&mut out, missing);
                let _ = out.write_all(&text);
                let size = text.len() + OVERHEAD;
                let before = shared.waiting.fetch_sub(size, Ordering::Relaxed);
                // Lines are dropped only while others wait: the last of these says so, if none follows.
                if before == size {
                    say_missing(&mut out, shared.missing.swap(0, Ordering::Relaxed));
                }
            }
            Line::Flush(done) => {
                say_missing(&mut out, shared.missing.swap(0, Ordering::Relaxed));
                let _ = out.flush();
                // The asker may have given up.
                let _ = done.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// The state of a pipe: true if it is open, and the bytes that it has taken.
    type PipeState = Mutex<(bool, Vec<u8>)>;

    /// Takes nothing until it is opened.
    #[derive(Clone, Default)]
    struct Pipe(Arc<(PipeState, Condvar)>);

    impl Pipe {
        fn open(&self) {
            self.0.0.lock().unwrap().0 = true;
            self.0.1.notify_all();
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.0.lock().unwrap().1.clone()).unwrap()
        }
    }

    impl Write for Pipe {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let mut pipe = self.0.1.wait_while(self.0.0.lock().unwrap(), |pipe| !pipe.0).unwrap();
            pipe.1.extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log() -> (Pipe, LogWriter) {
        let pipe = Pipe::default();
        let log =
            LogWriter::start(pipe.clone(), |missing| format!("{missing} missing\n").into_bytes()).unwrap();
        (pipe, log)
    }

    #[test]
    fn lines_come_in_their_order_and_a_flush_waits_for_them() {
        let (pipe, mut log) = log();
        pipe.open();
        let lines: String = (0..1_000).map(|number| format!("line {number}\n")).collect();
        lines.split_inclusive('\n').for_each(|line| log.write_all(line.as_bytes()).unwrap());
        assert!(log.flush_within(Duration::from_secs(60)));
        assert_eq!(pipe.text(), lines);
    }

    #[test]
    fn who_logs_does_not_wait_for_a_pipe_that_nobody_reads_and_hears_later_what_is_missing() {
        let (pipe, mut log) = log();
        let line = [b'x'; 1_000];
        let fit = MOST_BYTES / (line.len() + OVERHEAD);
        for _ in 0..fit + 7 {
            log.write_all(&line).unwrap();
        }
        assert!(!log.flush_within(Duration::from_millis(1)));
        pipe.open();
        assert!(log.flush_within(Duration::from_secs(60)));
        log.write_all(b"after").unwrap();
        assert!(log.flush_within(Duration::from_secs(60)));
        let text = pipe.text();
        assert!(text.ends_with("7 missing\nafter"), "{}", &text[text.len() - 40..]);
        assert_eq!(text.len(), fit * line.len() + "7 missing\nafter".len());
        assert!(missing().dropped >= 7);
    }

    #[test]
    fn the_gap_is_said_where_it_is() {
        let (pipe, mut log) = log();
        let long = vec![b'x'; MOST_BYTES - 2 * OVERHEAD - 100];
        for line in [&long[..], &[b'y'; 200], b"z"] {
            log.write_all(line).unwrap();
        }
        pipe.open();
        assert!(log.flush_within(Duration::from_secs(60)));
        assert!(pipe.text().ends_with("x1 missing\nz"));
    }
}
