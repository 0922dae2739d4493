//! The screen: services, the table of resources, the law, and the table of consumers.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use tidegate_service::status::{ResourceStatus, ServiceStatus};

use super::detail;
use super::law::law_lines;
use super::row::{Column, TopRow};
use super::state::{Pane, ServiceView, TopState};
use super::table::Table;
use crate::terminal::Palette;

/// A terminal smaller than this gets one line instead.
const SMALLEST: (u16, u16) = (40, 10);

/// More services are counted, and their lines left out.
const MOST_SERVICES: usize = 4;

const HELP: &str = "\
 ↑ ↓ j k      move            PgUp PgDn    a page
 Home End g G first, last     Tab          the other table
 Enter →      open: consumers of a resource, then history of a consumer
 Esc ←        back; ends a filter
 /            filter by a part of a name
 < >  F6      sort by the column before, by the next one
 r            reverse the order
 q F10        quit

 trend   the last seconds, against the target: above ▄ is above the target
         ' ' unknown
 promise in how much of the last minute it was kept
 state   throttled, and by what; or what requests wait for";

/// Draws the whole screen.
pub(super) fn render(frame: &mut Frame<'_>, state: &mut TopState) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        frame.render_widget(Paragraph::new(one_line(state)).wrap(Wrap { trim: true }), area);
        return;
    }
    let services = service_lines(state);
    let [heads, main, keys] = Layout::vertical([
        Constraint::Length(services.len() as u16),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    for (at, (line, clock)) in (0..heads.height).zip(services) {
        let place = Rect { y: heads.y + at, height: 1, ..heads };
        let [left, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(clock.width() as u16)]).areas(place);
        frame.render_widget(line, left);
        frame.render_widget(clock, right);
    }
    if state.pane == Pane::Detail {
        detail::render(frame, main, state);
    } else {
        render_tables(frame, main, state);
    }
    frame.render_widget(foot(state), keys);
    if state.is_help {
        render_help(frame, area, state.palette);
    }
}

/// Returns a summary for a terminal without room for more.
fn one_line(state: &TopState) -> String {
    let gone = state.services.iter().filter(|view| view.is_shown() && !view.is_current).count();
    let rows = (0..state.resources_shown()).filter_map(|at| state.resource_row(at));
    let worst = rows.map(|(row, _)| row).max_by_key(TopRow::severity);
    let worst = worst.map_or_else(String::new, |row| {
        format!("{}: {} of {}, {}", row.name(), row.latency_words(), row.cell(Column::Target), row.state())
    });
    let gone = if gone == 0 { String::new() } else { format!("{gone} services do not answer; ") };
    format!("{gone}{worst}")
}

/// Returns a line for each service, and the time of its last answer.
fn service_lines(state: &TopState) -> Vec<(Line<'static>, Line<'static>)> {
    let shown: Vec<_> = state.services.iter().filter(|view| view.is_shown()).collect();
    let mut lines: Vec<_> = shown
        .iter()
        .take(MOST_SERVICES)
        .map(|view| (service_line(view, state), clock(view, state)))
        .collect();
    if shown.len() > MOST_SERVICES {
        let more = format!(" and {} more services", shown.len() - MOST_SERVICES);
        lines.push((Line::from(more), Line::default()));
    }
    if lines.is_empty() {
        let known: Vec<_> = state.services.iter().map(|view| view.address.as_str()).collect();
        let asked = format!(" no service answers at {}; asked again each second", known.join(", "));
        lines.push((Line::styled(asked, state.palette.bad()), Line::default()));
    }
    lines
}

fn service_line(view: &ServiceView, state: &TopState) -> Line<'static> {
    let palette = state.palette;
    let mut line = vec![Span::raw(" ")];
    let Some(status) = &view.status else {
        let why = view.failure.clone().unwrap_or_else(|| format!("asking {}", view.address));
        line.push(Span::styled(why, if view.failure.is_some() { palette.bad() } else { palette.quiet() }));
        return Line::from(line);
    };
    if view.is_current {
        let (service, program) = (status.service.name(), &status.program);
        let consumers: usize = status.resources.iter().map(consumers_of).sum();
        line.push(Span::styled(format!("{service} {program} at {}", view.address), palette.strong()));
        for note in overrides(status) {
            line.push(Span::styled(format!(" · {note}"), palette.bad()));
        }
        let counts = format!(" · consumers: {consumers}");
        line.push(Span::styled(counts, palette.quiet()));
    } else {
        let silent = view.silent_for(state.now).unwrap_or_default().as_secs();
        let gone = format!("GONE for {silent} s: {}; asked again each second", gone(view));
        line.push(Span::styled(gone, palette.bad()));
    }
    Line::from(line)
}

/// Returns the reason why a service is gone, without what a person at this screen knows.
fn gone(view: &ServiceView) -> String {
    let why = view.failure.as_deref().unwrap_or("it has not answered in time");
    why.split("; ").next().unwrap_or(why).to_owned()
}

fn consumers_of(resource: &ResourceStatus) -> usize {
    resource.consumers.len() + resource.consumers_left_out
}

/// Returns the overrides in words: few, since the status has the whole.
fn overrides(status: &ServiceStatus) -> Vec<String> {
    let changed = status.overrides.resources.len() + status.overrides.consumers.len();
    let released = status.overrides.releases.len();
    let note = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
    [note(released, "RELEASED"), note(changed, "changed at run time")].into_iter().flatten().collect()
}

/// Returns the time of day of a service's last answer, UTC as in the log.
fn clock(view: &ServiceView, state: &TopState) -> Line<'static> {
    let text = view.answered_at().map(|at| humantime::format_rfc3339_seconds(at).to_string());
    let time = text.as_deref().and_then(|text| text.get(11..19)).map(|time| format!(" {time} UTC "));
    Line::styled(time.unwrap_or_default(), state.palette.quiet())
}

fn foot(state: &TopState) -> Line<'static> {
    let palette = state.palette;
    if state.is_filtering {
        return Line::from(vec![
            Span::styled(" filter: ", palette.strong()),
            Span::raw(format!("{}▏", state.filter)),
            Span::styled("  Enter done  Esc none", palette.quiet()),
        ]);
    }
    let mut line = Vec::new();
    if !state.filter.is_empty() {
        line.push(Span::styled(format!(" filter “{}”", state.filter), palette.strong()));
    }
    let keys: &[(&str, &str)] = match state.pane {
        Pane::Detail => &[("↑↓", "next"), ("Esc", "back"), ("?", "help"), ("q", "quit")],
        Pane::Resources | Pane::Consumers => &[
            ("↑↓", "move"),
            ("Enter", "open"),
            ("Esc", "back"),
            ("/", "filter"),
            ("< >", "sort"),
            ("r", "reverse"),
            ("?", "help"),
            ("q", "quit"),
        ],
    };
    for (key, what) in keys {
        line.push(Span::styled(format!(" {key}"), palette.strong()));
        line.push(Span::styled(format!(" {what} "), palette.quiet()));
    }
    Line::from(line)
}

fn render_help(frame: &mut Frame<'_>, area: Rect, palette: Palette) {
    let lines = HELP.lines().count() as u16;
    let width = HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4;
    let (width, height) = (width.min(area.width), (lines + 2).min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(Span::styled(" keys; any key closes ", palette.strong()));
    frame.render_widget(Paragraph::new(HELP).block(block), place);
}

fn render_tables(frame: &mut Frame<'_>, area: Rect, state: &mut TopState) {
    // The law takes up to four lines. The table in use gets more of what is left.
    let law = 4.min(area.height / 4);
    let left = area.height.saturating_sub(law);
    let most = if state.pane == Pane::Resources { left * 2 / 3 } else { left / 3 };
    let wanted = u16::try_from(state.resources_shown() + 1).unwrap_or(u16::MAX);
    let [resources, of_law, consumers] = Layout::vertical([
        Constraint::Length(wanted.clamp(2, most.max(2))),
        Constraint::Length(law),
        Constraint::Fill(1),
    ])
    .areas(area);
    let rows = usize::from(resources.height.saturating_sub(1));
    let selected = state.selected_resource();
    state.resource_scroll.show(selected, state.resources_shown(), rows);
    let rows = usize::from(consumers.height.saturating_sub(1));
    let selected = state.selected_consumer();
    state.consumer_scroll.show(selected, state.consumers_shown(), rows);
    render_resources(frame, resources, state);
    render_law(frame, of_law, state);
    render_consumers(frame, consumers, state);
}

fn render_resources(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let table = Table {
        title: "resource",
        columns: Column::OF_RESOURCES,
        order: state.resource_order,
        is_in_use: state.pane == Pane::Resources,
        palette: state.palette,
    };
    let first = state.resource_scroll.first;
    let shown = (first..state.resources_shown()).take(state.resource_scroll.height);
    let rows = shown.filter_map(|at| {
        let (row, service) = state.resource_row(at)?;
        Some((row, state.history(service, &row)))
    });
    table.render(frame, area, rows, state.selected_resource() - first.min(state.selected_resource()));
    if state.resources_shown() == 0 {
        let is_known = state.services.iter().any(|view| view.status.is_some());
        let why = match (state.filter.is_empty(), is_known) {
            (false, _) => "no name has the filter in it",
            (true, true) => "it regulates nothing",
            (true, false) => "",
        };
        render_note(frame, area, why, state.palette);
    }
}

fn render_consumers(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let Some((resource, service)) = state.resource_row(state.selected_resource()) else { return };
    let table = Table {
        title: "consumer",
        columns: Column::OF_CONSUMERS,
        order: state.consumer_order,
        is_in_use: state.pane == Pane::Consumers,
        palette: state.palette,
    };
    let first = state.consumer_scroll.first;
    let shown = (first..state.consumers_shown()).take(state.consumer_scroll.height);
    let rows = shown.filter_map(|at| {
        let row = state.consumer_row(at)?;
        Some((row, state.history(service, &row)))
    });
    let selected = state.selected_consumer();
    table.render(frame, area, rows, selected - first.min(selected));
    if state.consumers_shown() == 0 {
        let why = if resource.resource.consumers.is_empty() { "no consumers" } else { "none has the filter" };
        render_note(frame, area, why, state.palette);
    }
}

fn render_note(frame: &mut Frame<'_>, area: Rect, note: &str, palette: Palette) {
    if area.height > 1 {
        let place = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(Line::styled(format!(" {note}"), palette.quiet()), place);
    }
}

/// The law of the selected resource, and its last decision.
fn render_law(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let Some((row, service)) = state.resource_row(state.selected_resource()) else { return };
    let lines = law_lines(&row, service, state);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area.inner(Margin::new(1, 0)));
}
