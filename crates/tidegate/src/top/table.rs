//! A table of resources or consumers, in the width that there is.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::history::{History, Sample};
use super::row::{Column, Fulfilment, TopRow};
use super::state::SortOrder;
use crate::terminal::Palette;

/// The widest trend.
const WIDEST_TREND: u16 = 30;

/// A table with a heading, of rows that are all shown.
pub(super) struct Table {
    /// The heading of the names.
    pub(super) title: &'static str,
    pub(super) columns: &'static [Column],
    pub(super) order: SortOrder,
    pub(super) is_in_use: bool,
    pub(super) palette: Palette,
}

impl Table {
    pub(super) fn render<'a>(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        rows: impl Iterator<Item = (TopRow<'a>, Option<&'a History>)>,
        selected: usize,
    ) {
        let widths = widths(self.columns, area.width);
        if area.height == 0 {
            return;
        }
        let line_at = |at: u16| Rect { y: area.y + at, height: 1, ..area };
        frame.render_widget(self.heading(&widths), line_at(0));
        for (at, (row, history)) in (1..area.height).zip(rows) {
            let is_selected = usize::from(at) == selected + 1;
            let mut spans = vec![Span::raw(if is_selected { "▸" } else { " " })];
            for (column, width) in &widths {
                spans.extend(self.cell(&row, history, *column, *width));
                spans.push(Span::raw(" "));
            }
            let style = match (is_selected, self.is_in_use) {
                (true, true) => self.palette.reversed(),
                (true, false) => self.palette.strong(),
                (false, _) => Style::new(),
            };
            frame.render_widget(Line::from(spans).style(style), line_at(at));
        }
    }

    fn heading(&self, widths: &[(Column, u16)]) -> Line<'static> {
        let mut text = " ".to_owned();
        for (column, width) in widths {
            let title = if *column == Column::Name { self.title } else { column.title() };
            let mark = if self.order.is_descending { "▼" } else { "▲" };
            let title =
                if *column == self.order.column { format!("{title}{mark}") } else { title.to_owned() };
            text.push_str(&fitted(&title, *width, column.is_left()));
            text.push(' ');
        }
        Line::styled(text, self.palette.reversed())
    }

    fn cell(
        &self,
        row: &TopRow<'_>,
        history: Option<&History>,
        column: Column,
        width: u16,
    ) -> Vec<Span<'static>> {
        if column == Column::Trend {
            return trend(history, row.reference(), width, self.palette);
        }
        let text = fitted(&row.cell(column), width, column.is_left());
        let is_above = row.latency().zip(row.target()).is_some_and(|(latency, target)| latency > target);
        let style = match column {
            Column::Latency if is_above => self.palette.bad(),
            Column::Promise => match row.fulfilment() {
                Fulfilment::Broken(_) => self.palette.bad(),
                Fulfilment::Kept(_) => self.palette.good(),
                Fulfilment::Unknown | Fulfilment::NoPromise => self.palette.quiet(),
            },
            Column::State if row.severity() == 6 => self.palette.bad(),
            Column::State if row.is_throttled() == Some(true) => self.palette.throttled(),
            Column::Name => self.palette.strong(),
            _ => Style::new(),
        };
        vec![Span::styled(text, style)]
    }
}

/// Returns the columns that fit, in their order, with their widths. Names, trends and states share what is
/// left.
fn widths(columns: &[Column], width: u16) -> Vec<(Column, u16)> {
    // The mark of the selected row.
    let mut left = width.saturating_sub(1);
    let mut by_rank = columns.to_vec();
    by_rank.sort_by_key(|column| column.rank());
    let mut shown = Vec::new();
    for column in by_rank {
        let needed = column.width() + 1;
        if needed > left {
            break;
        }
        left -= needed;
        shown.push(column);
    }
    let mut widths: Vec<_> = columns
        .iter()
        .filter(|column| shown.contains(column))
        .map(|column| (*column, column.width()))
        .collect();
    for (column, most) in [(Column::State, 24), (Column::Name, 24), (Column::Trend, WIDEST_TREND)] {
        for (at, width) in &mut widths {
            if *at == column {
                let more = left.min(most - *width);
                *width += more;
                left -= more;
            }
        }
    }
    // The rest is the names'.
    if let Some((_, width)) = widths.iter_mut().find(|(column, _)| *column == Column::Name) {
        *width += left;
    }
    widths
}

/// Returns a text of exactly this width. What is too long ends with `…`.
fn fitted(text: &str, width: u16, is_left: bool) -> String {
    let width = usize::from(width);
    let mut out = String::new();
    let mut used = 0;
    let is_whole = Span::raw(text).width() <= width;
    for c in text.chars() {
        let one = Span::raw(c.to_string()).width();
        if used + one > if is_whole { width } else { width.saturating_sub(1) } {
            break;
        }
        out.push(c);
        used += one;
    }
    if !is_whole && width > 0 {
        out.push('…');
        used += 1;
    }
    let pad = " ".repeat(width.saturating_sub(used));
    if is_left { out + &pad } else { pad + &out }
}

/// Returns the last seconds as bars. The target is the height of four eighths; without one the greatest value
/// is eight. An unknown second is empty.
pub(super) fn trend(
    history: Option<&History>,
    reference: Option<f64>,
    width: u16,
    palette: Palette,
) -> Vec<Span<'static>> {
    let samples = history.into_iter().flat_map(|history| history.samples().rev().take(usize::from(width)));
    let mut latencies: Vec<_> = samples.map(Sample::latency).collect();
    latencies.reverse();
    let greatest = latencies.iter().flatten().fold(0.0, |most: f64, latency| most.max(*latency));
    let full = reference.map_or(greatest, |reference| 2.0 * reference).max(f64::MIN_POSITIVE);
    let mut spans: Vec<Span<'static>> = vec![Span::raw(" ".repeat(usize::from(width) - latencies.len()))];
    for latency in latencies {
        let (mark, style) = match latency {
            None => (' ', Style::new()),
            Some(latency) => {
                let is_above = reference.is_some_and(|reference| latency > reference);
                let style = if is_above { palette.bad() } else { palette.measured() };
                // Above the target by however little is above it on the screen, too.
                let part = latency / full;
                (bar(if is_above { part.max(0.501) } else { part }), style)
            }
        };
        match spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push(mark),
            _ => spans.push(Span::styled(mark.to_string(), style)),
        }
    }
    spans
}

/// Returns a bar of this part of the height: at least an eighth of it, and at most the whole.
pub(super) fn bar(part: f64) -> char {
    let eighths = (part * 8.0).ceil().clamp(1.0, 8.0) as u32;
    char::from_u32(u32::from('▁') + eighths - 1).unwrap_or('█')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_has_the_columns_that_matter_most() {
        let shown = |columns, width| widths(columns, width).into_iter().map(|(column, _)| column);
        let narrow: Vec<_> = shown(Column::OF_CONSUMERS, 48).collect();
        assert_eq!(narrow, [Column::Name, Column::Latency, Column::Target, Column::State]);
        let usual: Vec<_> = shown(Column::OF_CONSUMERS, 80).collect();
        assert_eq!(usual[..4], [Column::Name, Column::Latency, Column::Target, Column::Trend]);
        assert!(shown(Column::OF_CONSUMERS, 140).eq(Column::OF_CONSUMERS.iter().copied()));
        for width in [40, 63, 80, 200] {
            let all: u16 = widths(Column::OF_RESOURCES, width).iter().map(|(_, width)| width + 1).sum();
            assert_eq!(all + 1, width, "the whole width is used");
        }
    }

    #[test]
    fn a_text_has_exactly_its_width() {
        assert_eq!(fitted("backup", 8, true), "backup  ");
        assert_eq!(fitted("12ms", 8, false), "    12ms");
        assert_eq!(fitted("a-long-name", 6, true), "a-lon…");
        assert_eq!(fitted("日本語", 4, true), "日… ");
        assert_eq!(fitted("x", 0, true), "");
    }

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!([0.0, 0.1, 0.5, 0.501, 1.0, 9.0].map(bar), ['▁', '▁', '▄', '▅', '█', '█']);
    }
}
