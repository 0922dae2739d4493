//! The log: lines on stderr, or entries of systemd's journal with fields.
//!
//! No thread waits for stderr, and no cause can fill a disk: what comes too often is left out, and the log
//! says how much.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::env;
use std::fmt::{self as text, Write as _};
use std::io::{self, IsTerminal, Write};
use std::panic;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidegate_service::journald::{JournalEntry, JournalSocket};
use tidegate_service::log::{self, LogWriter};
use tidegate_units::visible;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::failure::CommandFailure;

/// The default level.
const DEFAULT: &str = "info";

/// The time that the end of the process waits for a log that nothing reads.
const FLUSH: Duration = Duration::from_secs(2);

/// The number of messages of one cause that may come at once. Chosen: all clients of a busy gateway may
/// connect at the same time.
const AT_ONCE: f64 = 500.0;

/// The number of messages that may come per second in the long run. Chosen: some 25 MB a day for each cause.
const PER_SECOND: f64 = 2.0;

/// The levels, from few messages to many.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The fields of events that are for the journal: a line on stderr has them in its text.
const JOURNAL_FIELDS: &str = "tidegate.";

/// The form of the log's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogForm {
    /// Lines of text.
    Lines { has_time: bool },
    /// Entries of the journal.
    Journal,
}

/// The form of this process's log, once there is one.
static FORM: OnceLock<LogForm> = OnceLock::new();

/// Begins to log. `level` is a level or a filter as `tracing` understands it; without it `TIDEGATE_LOG`
/// decides.
pub(crate) fn start(level: Option<&str>) -> Result<(), CommandFailure> {
    let from_environment = env::var("TIDEGATE_LOG").ok();
    let (place, level) = match (level, &from_environment) {
        (Some(level), _) => ("--log", level),
        (None, Some(level)) => ("TIDEGATE_LOG", level.as_str()),
        (None, None) => ("--log", DEFAULT),
    };
    let filter = filter(level).map_err(|why| CommandFailure::Usage(format!("{place}: {why}")))?;
    let journal = JournalSocket::of_stderr();
    // journald adds the time by itself.
    let has_time = env::var_os("JOURNAL_STREAM").is_none();
    let form = if journal.is_some() { LogForm::Journal } else { LogForm::Lines { has_time } };
    let missing = move |count| {
        form.warning(&format!("{count} messages are missing here: their reader did not take them in time"))
    };
    let log = match journal {
        Some(journal) => LogWriter::start(journal, missing)?,
        None => LogWriter::start(io::stderr(), missing)?,
    };
    log::install(log.clone());
    // A second start changes nothing.
    let _ = FORM.set(form);
    let limited = Limited { form, log: log.clone(), causes: Mutex::default() };
    let lines = || {
        let log = log.clone();
        fmt::layer()
            .with_writer(move || log.clone())
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .fmt_fields(debug_fn(|line, field, value| match field.name() {
                "message" => line.write_str(&visible(&format!("{value:?}"))),
                name if name.starts_with(JOURNAL_FIELDS) => Ok(()),
                name => write!(line, " {name}={}", visible(&format!("{value:?}"))),
            }))
    };
    let messages = match form {
        LogForm::Journal => JournalMessages { log: log.clone() }.boxed(),
        LogForm::Lines { has_time: true } => lines().boxed(),
        LogForm::Lines { has_time: false } => lines().without_time().boxed(),
    };
    tracing_subscriber::registry().with(filter).with(limited).with(messages).init();
    // As the usual one, which would wait for stderr.
    panic::set_hook(Box::new(|info| {
        tracing::error!("{info}\n{}", Backtrace::capture());
        log::flush(FLUSH);
    }));
    Ok(())
}

/// Libraries that log what their callers are told, too. A later part of the filter may say otherwise.
const SILENT: &str = "async_snmp=off";

/// Returns the filter that a text means: levels, for all or for a `target=`. A word that is no level is a
/// mistake: `tracing` would take it for a target, and print nothing.
fn filter(text: &str) -> Result<EnvFilter, String> {
    for directive in text.split(',').map(str::trim) {
        let level = directive.rsplit('=').next().unwrap_or(directive);
        if LEVELS.iter().any(|known| level.eq_ignore_ascii_case(known)) {
            continue;
        }
        let near = tidegate_config::nearest(level, &LEVELS);
        let near = near.map(|near| format!(" (the nearest is `{near}`)")).unwrap_or_default();
        return Err(format!("`{level}` is no log level{near}; use error, warn, info, debug or trace"));
    }
    EnvFilter::try_new(format!("{SILENT},{text}"))
        .map_err(|error| format!("`{text}` is no filter of log messages: {error}"))
}

/// Says the last word, if there is one, and waits for what was logged before.
pub(crate) fn end(message: Option<&str>) {
    let bytes = |message| match FORM.get() {
        Some(LogForm::Journal) => JournalEntry::new(priority(Level::ERROR), message).into_bytes(),
        Some(LogForm::Lines { .. }) | None => format!("{message}\n").into_bytes(),
    };
    // When stderr is closed, the exit status still says it.
    match (log::installed(), message.map(bytes)) {
        (Some(mut log), Some(message)) => drop(log.write_all(&message)),
        (None, Some(message)) => drop(io::stderr().write_all(&message)),
        (_, None) => {}
    }
    log::flush(FLUSH);
}

impl LogForm {
    /// A message of the log that no event is behind.
    fn warning(self, text: &str) -> Vec<u8> {
        let has_time = match self {
            Self::Journal => return JournalEntry::new(priority(Level::WARN), text).into_bytes(),
            Self::Lines { has_time } => has_time,
        };
        let mut line = String::new();
        if has_time && SystemTime.format_time(&mut Writer::new(&mut line)).is_ok() {
            line.push(' ');
        }
        (line + " WARN " + text + "\n").into_bytes()
    }
}

/// Returns the severity of syslog(3).
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Writes events as entries of the journal.
struct JournalMessages {
    log: LogWriter,
}

impl<S: Subscriber> Layer<S> for JournalMessages {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut entry = JournalEntry::new(priority(*metadata.level()), &visible(&fields.message));
        for (name, value) in fields.named {
            entry.field(&name, &value);
        }
        if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
            entry.field("CODE_FILE", file);
            entry.field("CODE_LINE", &line.to_string());
        }
        // It never fails.
        let _ = self.log.clone().write_all(&entry.into_bytes());
    }
}

/// The text of an event, and its fields for the journal.
#[derive(Default)]
struct EventFields {
    message: String,
    named: Vec<(String, String)>,
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn text::Debug) {
        match field.name() {
            // Writing to a text does not fail.
            "message" => drop(write!(self.message, "{value:?}")),
            name if name.starts_with(JOURNAL_FIELDS) => {
                self.named.push((name.to_owned(), format!("{value:?}")));
            }
            name => {
                let _ = write!(self.message, " {name}={value:?}");
                let name = match name {
                    // A gateway's words for the same.
                    "pool" => "resource",
                    "export" => "consumer",
                    name => name,
                };
                self.named.push((format!("{JOURNAL_FIELDS}{name}"), format!("{value:?}")));
            }
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // Without quotation marks.
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Leaves out what comes too often. A cause is a place in the code. Who asks for more than `info` gets all of
/// that.
struct Limited {
    form: LogForm,
    log: LogWriter,
    causes: Mutex<HashMap<Identifier, Bucket>>,
}

impl<S: Subscriber> Layer<S> for Limited {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // A summary is as long as the configuration, and comes when an administrator asks for it.
        if *metadata.level() > Level::INFO || metadata.target() == log::SUMMARY {
            return true;
        }
        let verdict = {
            let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
            causes
                .entry(metadata.callsite())
                .or_insert_with(|| Bucket::full(Instant::now()))
                .take(Instant::now())
        };
        match verdict {
            LogVerdict::LeftOut => log::left_out(),
            LogVerdict::Passes { left_out: 0 } => {}
            LogVerdict::Passes { left_out } => {
                let text = format!("{left_out} messages like the next one were left out: too many came");
                // It never fails.
                let _ = self.log.clone().write_all(&self.form.warning(&text));
            }
        }
        verdict != LogVerdict::LeftOut
    }
}

/// The messages that one cause may still log.
struct Bucket {
    tokens: f64,
    at: Instant,
    left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogVerdict {
    Passes {
        /// Messages of the same cause since the last one that passed.
        left_out: u64,
    },
    LeftOut,
}

impl Bucket {
    const fn full(now: Instant) -> Self {
        Self { tokens: AT_ONCE, at: now, left_out: 0 }
    }

    fn take(&mut self, now: Instant) -> LogVerdict {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * PER_SECOND).min(AT_ONCE);
        self.at = now;
        if self.tokens < 1.0 {
            self.left_out += 1;
            return LogVerdict::LeftOut;
        }
        self.tokens -= 1.0;
        LogVerdict::Passes { left_out: std::mem::take(&mut self.left_out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_its_rate_and_what_was_left_out_is_said() {
        let begin = Instant::now();
        let mut bucket = Bucket::full(begin);
        let passes = |verdict: &LogVerdict| matches!(verdict, LogVerdict::Passes { .. });
        let flood = (0..10_000).map(|_| bucket.take(begin)).filter(passes).count();
        assert_eq!(flood, 500);
        assert_eq!(bucket.take(begin + Duration::from_secs(1)), LogVerdict::Passes { left_out: 9_500 });
        assert_eq!(bucket.take(begin + Duration::from_secs(1)), LogVerdict::Passes { left_out: 0 });
        assert_eq!(bucket.take(begin + Duration::from_secs(1)), LogVerdict::LeftOut);
    }
}
