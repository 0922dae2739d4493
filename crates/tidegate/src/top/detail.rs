//! One consumer: its history, its figures, and the state of the law.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Dataset, Paragraph, Wrap};
use tidegate_service::status::ConsumerStatus;

use super::history::{History, LENGTH, Sample};
use super::law::law_lines;
use super::row::{Column, TopRow};
use super::state::TopState;
use super::table::bar;
use crate::status::text::{NONE, UNKNOWN, errors_cell, rate, time};
use crate::terminal::{chart, line, nice, panel};

/// The greatest end of the axis of latencies, in targets: one terrible second must not flatten all others.
const AXIS_TARGETS: f64 = 6.0;

/// Draws the selected consumer.
pub(super) fn render(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let Some((_, service)) = state.resource_row(state.selected_resource()) else { return };
    let Some(row) = state.consumer_row(state.selected_consumer()) else { return };
    let Some(one) = row.consumer else { return };
    let history = state.history(service, &row);
    let facts = facts(&row, one);
    let law = law_lines(&row, service, state);
    let [above, marks, figures, below] = Layout::vertical([
        Constraint::Fill(1),
        Constraint::Length(2),
        Constraint::Length(facts.len().div_ceil(2) as u16 + 1),
        Constraint::Length(5.min(area.height / 3)),
    ])
    .areas(area);
    render_latency(frame, above, &row, history, state);
    render_marks(frame, marks, history, state);
    let columns = Layout::horizontal([Constraint::Fill(1); 2]).spacing(1).split(figures);
    for (facts, area) in facts.chunks(facts.len().div_ceil(2)).zip(columns.iter()) {
        let line = |(name, value): &(&str, String)| {
            Line::from(vec![
                Span::styled(format!(" {name:<12}"), state.palette.quiet()),
                Span::raw(value.clone()),
            ])
        };
        frame.render_widget(Paragraph::new(facts.iter().map(line).collect::<Vec<_>>()), *area);
    }
    frame.render_widget(Paragraph::new(law).wrap(Wrap { trim: true }), below.inner(Margin::new(1, 0)));
}

/// Returns the figures of a consumer by their names.
fn facts(row: &TopRow<'_>, one: &ConsumerStatus) -> Vec<(&'static str, String)> {
    let or_none = |figure: Option<String>| figure.unwrap_or_else(|| NONE.to_owned());
    let known = |words: String| if row.is_current { words } else { UNKNOWN.to_owned() };
    let outstanding = one.outstanding.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string());
    let kept = |part: Option<f64>| part.map_or_else(|| UNKNOWN.to_owned(), percent);
    let spans = one.promise.map(|promise| format!("{} hour, {} day", kept(promise.hour), kept(promise.day)));
    vec![
        ("state", row.state()),
        ("errors", known(errors_cell(one))),
        ("throttle", known(or_none(row.throttle().filter(|_| one.held == Some(true))))),
        ("protected", if one.protected { "yes" } else { "no" }.to_owned()),
        ("promise", row.cell(Column::Promise)),
        ("kept", known(or_none(spans))),
        ("latency", row.latency_words()),
        ("client", known(or_none(one.recent.and_then(|did| did.client_seconds).map(time)))),
        ("outstanding", known(outstanding)),
        ("IO/s", row.cell(Column::Iops)),
        ("read", row.cell(Column::Read)),
        ("written", row.cell(Column::Written)),
        ("entitled", known(or_none(one.entitled_iops.map(rate)))),
    ]
}

fn percent(part: f64) -> String {
    format!("{:.0} %", (part * 100.0).floor())
}

/// The latency over the last minutes, against the target.
fn render_latency(
    frame: &mut Frame<'_>,
    area: Rect,
    row: &TopRow<'_>,
    history: Option<&History>,
    state: &TopState,
) {
    let palette = state.palette;
    let target = row.reference().map(|seconds| seconds * 1e3);
    let runs = runs(history, |sample| sample.latency().map(|seconds| seconds * 1e3));
    let greatest = runs.iter().flatten().map(|(_, y)| *y).fold(0.0, f64::max);
    let cut = target.map_or(greatest, |target| AXIS_TARGETS * target);
    let top = nice(greatest.min(cut).max(target.map_or(1.0, |target| 2.0 * target)));
    let runs: Vec<Vec<_>> =
        runs.into_iter().map(|run| run.into_iter().map(|(x, y)| (x, y.min(top))).collect()).collect();
    let promise = target.map(|target| [(0.0, target), (LENGTH as f64, target)]);
    let mut datasets: Vec<Dataset<'_>> =
        promise.iter().map(|points| line(points, palette.target())).collect();
    datasets.extend(runs.iter().map(|run| line(run, palette.measured())));
    let is_cut = greatest > top;
    let title = format!(
        " {} at {}: latency, ms, last {} s{} ",
        row.name(),
        row.resource.name,
        LENGTH,
        if is_cut { format!(", cut above {top:.0}") } else { String::new() },
    );
    let is_above = row.latency().zip(row.target()).is_some_and(|(latency, target)| latency > target);
    let now = Span::styled(
        format!(" {} ", row.latency_words()),
        if is_above { palette.bad() } else { palette.strong() },
    );
    let target = match row.target() {
        Some(target) => format!("target {} ", time(target)),
        None => {
            row.reference().map_or_else(String::new, |target| format!("resource: target {} ", time(target)))
        }
    };
    let block = panel(&title, palette.quiet())
        .title_top(Line::from(vec![now, Span::styled(target, palette.target())]).right_aligned());
    frame.render_widget(chart(datasets, block, LENGTH as f64, top, (2, palette.quiet())), area);
}

/// Returns the spans of known seconds, on an axis that ends now.
fn runs(history: Option<&History>, value: impl Fn(Sample) -> Option<f64>) -> Vec<Vec<(f64, f64)>> {
    let samples = history.into_iter().flat_map(History::samples);
    let begin = LENGTH - history.map_or(0, |history| history.samples().len());
    let mut runs = vec![Vec::new()];
    for (at, sample) in (begin..).zip(samples) {
        match (value(sample), runs.last_mut()) {
            (Some(value), Some(run)) => run.push((at as f64 + 0.5, value)),
            (None, Some(run)) if run.is_empty() => {}
            _ => runs.push(Vec::new()),
        }
    }
    runs
}

/// Two lines: the seconds in which it was throttled, and its requests per second.
fn render_marks(frame: &mut Frame<'_>, area: Rect, history: Option<&History>, state: &TopState) {
    const NAMED: u16 = 12;
    let width = usize::from(area.width.saturating_sub(NAMED + 1));
    let samples: Vec<_> = history.into_iter().flat_map(History::samples).collect();
    let last = &samples[samples.len().saturating_sub(width)..];
    let pad = " ".repeat(width - last.len());
    let throttled: String = last
        .iter()
        .map(|sample| match sample.is_throttled() {
            Some(true) => '█',
            Some(false) => '·',
            None => ' ',
        })
        .collect();
    let greatest = last.iter().filter_map(|sample| sample.iops()).fold(0.0, f64::max);
    let rates: String = last
        .iter()
        .map(|sample| match sample.iops() {
            None => ' ',
            Some(iops) if iops <= 0.0 => '·',
            Some(iops) => bar(iops / greatest),
        })
        .collect();
    let name = |name: &str| Span::styled(format!(" {name:<11}"), state.palette.quiet());
    let marks = |name: Span<'static>, marks: String, style: Style| {
        Line::from(vec![name, Span::raw(pad.clone()), Span::styled(marks, style)])
    };
    let lines = vec![
        marks(name("throttled"), throttled, state.palette.throttled()),
        marks(name("IO/s"), rates, state.palette.measured()),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}
