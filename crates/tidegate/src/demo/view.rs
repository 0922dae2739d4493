//! The live view: what the terminal shows while the demonstration runs.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Padding, Paragraph, Wrap};

use super::plan::{PhaseName, WRITERS};
use super::plots::AXIS_TARGETS;
use super::progress::{DemoEvent, DemoProgress};
use super::text;
use super::timeline::PhaseSecond;
use crate::terminal::{self, TerminalView, ViewStep, chart, line, nice, panel};

/// Frames and axes.
const GREY: Style = Style::new().fg(Color::DarkGray);

/// A terminal smaller than this gets one line instead.
const SMALLEST: (u16, u16) = (64, 20);

/// The end of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewEnd {
    /// The scenario said its last word.
    Finished,
    /// The person has seen enough.
    Quit,
}

/// Shows events until their sender is gone, the person quits, or `stopped` says so.
///
/// # Errors
/// When the terminal fails.
pub(crate) fn show(
    progress: DemoProgress,
    events: &Receiver<DemoEvent>,
    stopped: &dyn Fn() -> bool,
) -> io::Result<ViewEnd> {
    terminal::show(&mut DemoView { progress, events, stopped })
}

struct DemoView<'a> {
    progress: DemoProgress,
    events: &'a Receiver<DemoEvent>,
    stopped: &'a dyn Fn() -> bool,
}

impl TerminalView for DemoView<'_> {
    type End = ViewEnd;

    fn advance(&mut self) -> ViewStep<ViewEnd> {
        if (self.stopped)() {
            return ViewStep::Ended(ViewEnd::Quit);
        }
        loop {
            match self.events.try_recv() {
                Ok(event) => self.progress.apply(event),
                // Time passes, and its clock shows it.
                Err(TryRecvError::Empty) => return ViewStep::Changed,
                Err(TryRecvError::Disconnected) => return ViewStep::Ended(ViewEnd::Finished),
            }
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        render(frame, &self.progress);
    }

    fn key(&mut self, key: KeyEvent) -> Option<ViewEnd> {
        quits(&key).then_some(ViewEnd::Quit)
    }
}

fn quits(key: &KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || terminal::interrupts(key)
}

fn render(frame: &mut Frame<'_>, progress: &DemoProgress) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        frame.render_widget(Paragraph::new(text::progress_line(progress)).wrap(Wrap { trim: true }), area);
        return;
    }
    let [title, phases, latency, below, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
    ])
    .areas(area);
    let [throughput, held] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(below);
    render_title(frame, title, progress);
    render_phases(frame, phases, progress);
    render_latency(frame, latency, progress);
    render_throughput(frame, throughput, progress);
    render_held(frame, held, progress);
    frame.render_widget(Line::from(vec![" q".bold(), " quit".dark_gray()]), keys);
}

fn render_title(frame: &mut Frame<'_>, area: Rect, progress: &DemoProgress) {
    let plan = &progress.plan;
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(14)]).areas(area);
    let what = format!("  {WRITERS} backups beside a database · law {} ", plan.law);
    frame.render_widget(Line::from(vec![" Tidegate".bold(), what.dark_gray()]), left);
    let (done, all) = (progress.seconds_done() as u32, plan.seconds());
    let clock = |seconds: u32| format!("{}:{:02}", seconds / 60, seconds % 60);
    let clock = Line::from(format!("{} / {} ", clock(done), clock(all))).dark_gray();
    frame.render_widget(clock.alignment(Alignment::Right), right);
}

fn render_phases(frame: &mut Frame<'_>, area: Rect, progress: &DemoProgress) {
    let plan = &progress.plan;
    // A short phase still needs room for its name.
    let widths = plan.phases.iter().map(|phase| Constraint::Fill((phase.seconds.min(6_000) as u16).max(30)));
    let areas = Layout::horizontal(widths).spacing(2).horizontal_margin(1).split(area);
    for (index, (phase, area)) in plan.phases.iter().zip(areas.iter()).enumerate() {
        let (done, colour) = (progress.done(index), colour(phase.name));
        let running = progress.phases.len() == index + 1;
        let name = Span::from(phase.name.to_string());
        let gauge = LineGauge::default()
            .ratio(done)
            .label(if running { name.bold().fg(colour) } else { name.dark_gray() })
            .filled_symbol("━")
            .unfilled_symbol("─")
            .filled_style(Style::new().fg(colour))
            .unfilled_style(Style::new().fg(Color::DarkGray));
        frame.render_widget(gauge, Rect { height: 1, ..*area });
    }
}

fn render_latency(frame: &mut Frame<'_>, area: Rect, progress: &DemoProgress) {
    let target = progress.plan.target.as_millis_f64();
    let mean = |second: &PhaseSecond| second.mean().map(tidegate_units::Latency::as_millis_f64);
    let now = match progress.latest().map(mean) {
        None => Span::from(""),
        Some(None) => " no read completed ".bold().red(),
        Some(Some(mean)) if mean > target => format!(" {} ", text::millis(mean)).bold().red(),
        Some(Some(mean)) => format!(" {} ", text::millis(mean)).bold().green(),
    };
    let promise = format!("target {} ", text::millis(target)).yellow();
    let block = panel(" Database: its 4 KiB reads, ms, mean per second ", GREY)
        .title_top(Line::from(vec![now, promise]).right_aligned());
    let series = series(progress, |second| mean(second).map(|mean| mean.min(AXIS_TARGETS * target)));
    let top = nice(greatest(&series).max(2.0 * target));
    let end = f64::from(progress.plan.seconds());
    let promise = [(0.0, target), (end, target)];
    let mut datasets = vec![line(&promise, Color::Yellow.into())];
    datasets.extend(series.iter().map(|(name, points)| line(points, colour(*name).into())));
    frame.render_widget(chart(datasets, block, end, top, (4, GREY)), area);
}

fn render_throughput(frame: &mut Frame<'_>, area: Rect, progress: &DemoProgress) {
    let rate = |second: &PhaseSecond| Some(second.written.get() as f64 / 1e6);
    let now = progress.latest().and_then(rate).unwrap_or(0.0);
    let block = panel(" Backups: written, MB/s ", GREY)
        .title_top(Line::from(format!(" {now:.1} MB/s ").bold()).right_aligned());
    let series = series(progress, rate);
    let top = nice(greatest(&series).max(10.0));
    let datasets = series.iter().map(|(name, points)| line(points, colour(*name).into())).collect();
    frame.render_widget(chart(datasets, block, f64::from(progress.plan.seconds()), top, (2, GREY)), area);
}

fn render_held(frame: &mut Frame<'_>, area: Rect, progress: &DemoProgress) {
    let story = match progress.phase().map(|phase| phase.name) {
        None => "The array and the gateway are being set up.",
        Some(PhaseName::Alone) => "The database reads alone: this is what the array can do for it.",
        Some(PhaseName::Unregulated) => "The backups come and go. Nothing protects the database.",
        Some(PhaseName::Regulated) => {
            "The same backups. Tidegate holds them back as far as the target demands."
        }
    };
    let held = &progress.held;
    let mut what = Vec::new();
    if let Some(window) = held.window {
        what.push(format!("window {:.1} requests", window.get()));
    }
    if let Some(delay) = held.delay {
        what.push(format!("delay {}", text::millis(delay.as_millis_f64())));
    }
    let what = match (what.is_empty(), held.consumers) {
        (true, _) | (_, 0) => "nothing is throttled".dark_gray(),
        (_, consumers) => format!("{} for {consumers} backups", what.join(", ")).bold().fg(Color::Green),
    };
    let mut lines = vec![Line::from(story), Line::default(), Line::from(what)];
    lines.extend(progress.why.as_deref().map(|why| Line::from(why.dark_gray())));
    let block = panel(" What is throttled, and why ", GREY).padding(Padding::horizontal(1));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }).block(block), area);
}

fn colour(name: PhaseName) -> Color {
    match name {
        PhaseName::Alone => Color::Blue,
        PhaseName::Unregulated => Color::Red,
        PhaseName::Regulated => Color::Green,
    }
}

type ChartPoints = Vec<(f64, f64)>;

/// The points of every phase that has begun.
fn series(
    progress: &DemoProgress,
    value: impl Fn(&PhaseSecond) -> Option<f64>,
) -> Vec<(PhaseName, ChartPoints)> {
    let of = |index| progress.seconds(index).filter_map(|(at, second)| Some((at, value(second)?))).collect();
    (0..)
        .zip(&progress.plan.phases)
        .take(progress.phases.len())
        .map(|(index, phase)| (phase.name, of(index)))
        .collect()
}

fn greatest(series: &[(PhaseName, ChartPoints)]) -> f64 {
    series.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::crossterm::event::KeyModifiers;
    use tidegate_units::{Bytes, Window};

    use super::super::timeline::ThrottleState;
    use super::super::timeline::tests::{example, second};
    use super::*;

    pub(super) fn regulated() -> DemoProgress {
        let timeline = example();
        let mut progress = DemoProgress::new(timeline.plan.clone());
        for phase in &timeline.phases {
            progress.apply(DemoEvent::PhaseBegins);
            for second in &phase.seconds {
                progress.apply(DemoEvent::Second(*second));
            }
        }
        progress.phases[2].truncate(17);
        progress.apply(DemoEvent::Now {
            elapsed: Duration::from_secs(17),
            held: ThrottleState { window: Some(Window::new(2.46)), delay: None, consumers: 12 },
            why: Some("sata: reads 13.1ms against 12.0ms".to_owned()),
        });
        progress
    }

    fn screen(progress: &DemoProgress, width: u16, height: u16) -> String {
        terminal::testing::screen(width, height, |frame| render(frame, progress))
    }

    #[test]
    fn the_screen_says_what_happens_and_why() {
        let screen = screen(&regulated(), 120, 36);
        for needed in [
            "1:37 / 3:05",
            "regulated",
            "11.0 ms",
            "target 15.0 ms",
            "28.0 MB/s",
            "window 2.5 requests for 12 backups",
        ] {
            assert!(screen.contains(needed), "{needed}:\n{screen}");
        }
        assert!(screen.contains("sata: reads 13.1ms against 12.0ms"), "{screen}");
    }

    #[test]
    fn every_size_of_terminal_can_be_drawn() {
        for (width, height) in [(1, 1), (10, 3), (63, 40), (64, 20), (80, 24), (300, 100)] {
            screen(&regulated(), width, height);
            screen(&DemoProgress::new(example().plan), width, height);
        }
        assert!(screen(&regulated(), 60, 10).contains("regulated: backups writing"));
    }

    #[test]
    fn a_second_without_a_completed_read_is_no_good_news() {
        let mut progress = regulated();
        progress.apply(DemoEvent::Second(PhaseSecond { outstanding: 9, ..second(0, Bytes::ZERO) }));
        progress.phases[2].last_mut().unwrap().reads = 0;
        assert!(screen(&progress, 120, 36).contains("no read completed"));
    }

    #[test]
    fn q_escape_and_control_c_quit_and_nothing_else() {
        assert!(quits(&KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(quits(&KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(quits(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!quits(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE)));
    }
}
