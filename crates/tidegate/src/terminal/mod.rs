//! The terminal as a screen: its setup and its restoration, the loop of a live view, and the parts that the
//! views draw with.

mod chart;
mod palette;

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::cursor;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub(crate) use chart::{chart, line, nice, panel};
pub(crate) use palette::Palette;

/// The time between two looks at what has happened: short enough to feel immediate. A key wakes the view at
/// once.
const FRAME: Duration = Duration::from_millis(200);

/// The time between two looks at whether the terminal is still there.
const WATCH: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A view that has lost its terminal ends within this time, or its process does.
const GRACE: Duration = Duration::from_secs(1);

/// A view that fills the terminal until it ends.
pub(crate) trait TerminalView {
    /// The reason for its end.
    type End;

    /// Takes in what has happened since the last call.
    fn advance(&mut self) -> ViewStep<Self::End>;

    /// Draws the whole screen.
    fn draw(&mut self, frame: &mut Frame<'_>);

    /// Takes a key press; `Some` ends the view.
    fn key(&mut self, key: KeyEvent) -> Option<Self::End>;
}

/// The consequence of what has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewStep<E> {
    /// The screen stays as it is.
    Same,
    /// The screen has to be drawn again.
    Changed,
    /// The view ends.
    Ended(E),
}

/// A terminal that shows a view. Put back when this is dropped; a panic is covered by the hook that
/// `ratatui::try_init` installs.
struct ShownTerminal {
    is_shown: Arc<AtomicBool>,
}

impl ShownTerminal {
    /// Begins to watch for the loss of the terminal: then waiting for keys never returns, because the library
    /// reads the end of the input again and again.
    fn watch() -> io::Result<Self> {
        let is_shown = Arc::new(AtomicBool::new(true));
        let watched = Arc::clone(&is_shown);
        thread::Builder::new().name("terminal".to_owned()).spawn(move || {
            while watched.load(Ordering::Relaxed) {
                if is_hung_up(&WATCH) {
                    thread::sleep(GRACE);
                    if watched.load(Ordering::Relaxed) {
                        process::exit(1);
                    }
                }
            }
        })?;
        Ok(Self { is_shown })
    }
}

impl Drop for ShownTerminal {
    fn drop(&mut self) {
        // A terminal that is gone cannot be put back.
        let _ = execute!(io::stdout(), cursor::Show);
        let _ = ratatui::try_restore();
        self.is_shown.store(false, Ordering::Relaxed);
    }
}

/// Shows a view until it ends.
///
/// # Errors
/// When the terminal fails.
pub(crate) fn show<V: TerminalView>(view: &mut V) -> io::Result<V::End> {
    // Its own end would print to a terminal that is gone, which panics.
    let mut terminal = ManuallyDrop::new(ratatui::try_init()?);
    let _shown = ShownTerminal::watch()?;
    let mut is_changed = true;
    loop {
        match view.advance() {
            ViewStep::Same => {}
            ViewStep::Changed => is_changed = true,
            ViewStep::Ended(end) => return Ok(end),
        }
        if std::mem::take(&mut is_changed) {
            terminal.draw(|frame| view.draw(frame))?;
        }
        // All keys that are waiting, then one drawing.
        let mut patience = FRAME;
        while event::poll(patience)? {
            is_changed = true;
            patience = Duration::ZERO;
            if let Event::Key(key @ KeyEvent { kind: KeyEventKind::Press, .. }) = event::read()?
                && let Some(end) = view.key(key)
            {
                return Ok(end);
            }
        }
    }
}

/// Returns true if the terminal is gone. Waits at most this long for that. A process that the terminal does
/// not control gets no SIGHUP.
fn is_hung_up(patience: &Timespec) -> bool {
    let stdin = io::stdin();
    let mut keyboard = [PollFd::new(&stdin, PollFlags::empty())];
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut keyboard, Some(patience)).is_ok() && keyboard[0].revents().intersects(gone)
}

/// Returns true if a person sits at both ends: at the keyboard and before the screen.
pub(crate) fn is_interactive() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Returns true for Ctrl-C, which in raw mode is a key and no signal.
pub(crate) fn interrupts(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Registers the signals that end a command, and those that end a view. The first one asks, a second one
/// does not wait. The loss of the terminal ends a view alone: other commands may run under `nohup`.
///
/// # Errors
/// When a signal cannot be received.
pub(crate) fn end_signals(is_view: bool) -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM].into_iter().chain(is_view.then_some(SIGHUP)) {
        // In this order.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Screens as text, for tests.
#[cfg(test)]
pub(crate) mod testing {
    use ratatui::backend::TestBackend;
    use ratatui::{Frame, Terminal};

    /// Returns what a drawing leaves on a screen of this size, a line for each row.
    pub(crate) fn screen(width: u16, height: u16, draw: impl FnOnce(&mut Frame<'_>)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(width));
        rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>() + "\n").collect()
    }
}
