//! Panels and charts over time.

use ratatui::style::Style;
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Block, BorderType, Chart, Dataset, GraphType};
use tidegate_program::page::plot::tick_decimals;

/// A frame with a title.
pub(crate) fn panel(title: &str, frame: Style) -> Block<'_> {
    Block::bordered().border_type(BorderType::Rounded).border_style(frame).title(title)
}

/// Returns the next number above that a person would put at the end of an axis.
pub(crate) fn nice(value: f64) -> f64 {
    let magnitude = 10f64.powf(value.max(1.0).log10().floor());
    [1.0, 2.0, 4.0, 6.0, 8.0]
        .map(|step| step * magnitude)
        .into_iter()
        .find(|top| *top >= value)
        .unwrap_or(10.0 * magnitude)
}

/// A line through points.
pub(crate) fn line(points: &[(f64, f64)], style: Style) -> Dataset<'_> {
    Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).style(style).data(points)
}

/// A chart of lines, from 0 to `end` and from 0 to `top`, with labels for so many parts of the height, in the
/// style of the axes.
pub(crate) fn chart<'a>(
    datasets: Vec<Dataset<'a>>,
    block: Block<'a>,
    end: f64,
    top: f64,
    (parts, axes): (u32, Style),
) -> Chart<'a> {
    let step = top / f64::from(parts);
    let decimals = tick_decimals(step);
    let labels = (0..=parts).map(|part| format!("{:>4.decimals$}", step * f64::from(part)));
    Chart::new(datasets)
        .block(block)
        .legend_position(None)
        .x_axis(Axis::default().bounds([0.0, end]).style(axes))
        .y_axis(Axis::default().bounds([0.0, top]).labels(labels).style(axes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers_above_the_data() {
        for (value, top) in
            [(0.0, 1.0), (30.0, 40.0), (45.0, 60.0), (81.0, 100.0), (100.0, 100.0), (123.0, 200.0)]
        {
            assert!((nice(value) - top).abs() < 1e-9, "{value}: {}", nice(value));
        }
    }
}
