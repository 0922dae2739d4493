//! Common parts of the reports' plots: SVG to stand inside a page.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use thiserror::Error;

/// Text and axes.
pub const INK: RGBColor = RGBColor(0x33, 0x41, 0x55);
/// The lines behind the drawing.
pub const GRID: RGBColor = RGBColor(0xE2, 0xE8, 0xF0);
/// The two colours above, each with the colour that replaces it in the dark.
pub const DARK: [(RGBColor, &str); 2] = [(INK, "#a9b4c4"), (GRID, "#2a3442")];

const WIDTH: u32 = 1_040;
const FONT: &str = "sans-serif";

/// A plot that could not be drawn.
#[derive(Debug, Error)]
#[error("cannot draw a plot: {0}")]
pub struct PlotError(String);

impl PlotError {
    /// Keeps the text of an error of the library that draws.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// The area that a plot is drawn on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A plot with two axes of numbers.
pub type PlotChart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws into an SVG element of the page's width.
///
/// # Errors
/// What `draw` says, and when the drawing cannot be completed.
pub fn svg(height: u32, draw: impl FnOnce(&Area<'_>) -> Result<(), PlotError>) -> Result<String, PlotError> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    draw(&area)?;
    area.present().map_err(PlotError::new)?;
    drop(area);
    // Inside HTML the name space is understood; the width is the page's to choose.
    Ok(svg.replacen(r#" xmlns="http://www.w3.org/2000/svg""#, "", 1))
}

/// Points of a line, or places on a plot.
pub type PlotPoints = Vec<(f64, f64)>;

/// The upper end of an axis, in greatest values of ordinary ones.
const ROOM: f64 = 1.5;

/// The part of the values that is ordinary.
const ORDINARY: f64 = 0.9;

/// The upper end of a vertical axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisTop {
    /// The end.
    pub end: f64,
    /// The greatest value, which is beyond the end. `None`: all values are on the axis.
    pub beyond: Option<f64>,
}

impl AxisTop {
    /// Chooses the end for lines of these values. A few great ones, such as those of a start, are cut where
    /// all others would be flat beside them: those beyond 1.5 times the 90th percentile, if the greatest is
    /// more than twice as far (chosen). `least` is on the axis in any case.
    #[must_use]
    pub fn of<'a>(lines: impl Iterator<Item = &'a [(f64, f64)]>, least: f64) -> Self {
        let (mut greatest, mut ordinary) = (0.0_f64, 0.0_f64);
        for line in lines {
            let mut values: Vec<_> = line.iter().map(|(_, y)| *y).filter(|y| y.is_finite()).collect();
            values.sort_by(f64::total_cmp);
            greatest = greatest.max(values.last().copied().unwrap_or(0.0));
            let at = (ORDINARY * values.len() as f64) as usize;
            // Each line counts by itself: one that is high all the time is not cut for the others.
            ordinary = ordinary.max(values.get(at).copied().unwrap_or(0.0));
        }
        let end = (ROOM * ordinary).max(least);
        if end > 0.0 && greatest > 2.0 * end {
            Self { end, beyond: Some(greatest) }
        } else {
            let all = 1.08 * greatest.max(least);
            Self { end: if all > 0.0 { all } else { 1.0 }, beyond: None }
        }
    }

    /// Returns the points with those beyond the end at the end, and where to mark each run of them.
    #[must_use]
    pub fn cut(&self, points: &[(f64, f64)]) -> (PlotPoints, PlotPoints) {
        let (mut marks, mut is_beyond) = (Vec::new(), false);
        let shown = points.iter().map(|(x, y)| {
            let was_beyond = std::mem::replace(&mut is_beyond, *y > self.end);
            if is_beyond && !was_beyond {
                marks.push((*x, self.end));
            }
            (*x, y.min(self.end))
        });
        (shown.collect(), marks)
    }
}

/// Returns the number of decimals with which labels of an axis differ, if its ticks are this far apart. They
/// also show each tick to a fifth of that step.
#[must_use]
pub fn tick_decimals(step: f64) -> usize {
    const MOST: i32 = 9;
    let shows = |decimals: &i32| {
        let unit = 0.1f64.powi(*decimals);
        let units = step / unit;
        let is_whole = (units - units.round()).abs() < 1e-6 * units;
        5.0 * unit <= step || (is_whole && units > 0.5)
    };
    (0..MOST).find(shows).unwrap_or(MOST) as usize
}

/// Two axes of numbers with a grid behind them. `label` writes the numbers, where the usual way is not right.
///
/// # Errors
/// When they cannot be drawn.
pub fn axes<'a, 'b>(
    area: &'a Area<'b>,
    x: Range<f64>,
    y: Range<f64>,
    label: Option<&dyn Fn(&f64) -> String>,
) -> Result<PlotChart<'a, 'b>, PlotError> {
    let mut chart: PlotChart<'a, 'b> = ChartBuilder::on(area)
        .margin(6)
        .margin_right(26)
        .x_label_area_size(28)
        .y_label_area_size(58)
        .build_cartesian_2d(x, y)
        .map_err(PlotError::new)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .x_labels(10)
        .y_labels(6)
        .label_style(text(15, INK));
    if let Some(label) = label {
        mesh.x_label_formatter(label).y_label_formatter(label);
    }
    mesh.draw().map_err(PlotError::new)?;
    Ok(chart)
}

/// Returns the style of a piece of text.
#[must_use]
pub fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: impl IntoIterator<Item = f64>) -> Vec<(f64, f64)> {
        (0..).map(f64::from).zip(values).collect()
    }

    #[test]
    fn a_start_does_not_flatten_the_rest() {
        let window = line((0..100).map(|at| if at < 5 { 1_000.0 } else { 20.0 + f64::from(at % 9) }));
        let top = AxisTop::of([&window[..]].into_iter(), 0.0);
        assert!((30.0..60.0).contains(&top.end), "{top:?}");
        assert_eq!(top.beyond, Some(1_000.0));
        let (shown, marks) = top.cut(&window);
        assert!(shown.iter().all(|(_, y)| *y <= top.end));
        assert_eq!(marks, [(0.0, top.end)], "one mark for the run");
    }

    #[test]
    fn values_that_are_often_great_are_not_cut() {
        let half = line((0..100).map(|at| if at % 2 == 0 { 1_000.0 } else { 20.0 }));
        let (low, high) = (line([1.0; 50]), line([900.0; 50]));
        for lines in [vec![half], vec![low, high]] {
            let top = AxisTop::of(lines.iter().map(Vec::as_slice), 0.0);
            assert_eq!(top.beyond, None);
            assert!(top.end >= 900.0, "{top:?}");
        }
    }

    #[test]
    fn labels_of_an_axis_differ() {
        for (step, decimals) in
            [(20.0, 0), (1.0, 0), (2.5, 1), (0.5, 1), (0.25, 2), (1.0 / 3.0, 2), (1e-3, 3)]
        {
            assert_eq!(tick_decimals(step), decimals, "{step}");
        }
        for step in [3.3, 0.7, 0.11, 0.0123] {
            let decimals = tick_decimals(step);
            let labels = (0..50).map(|tick| format!("{:.decimals$}", f64::from(tick) * step));
            assert_eq!(labels.collect::<std::collections::BTreeSet<_>>().len(), 50, "{step}");
        }
    }

    #[test]
    fn marks_are_on_the_axis_and_an_axis_of_nothing_has_an_end() {
        let flat = line([1.0; 10]);
        assert!(AxisTop::of([&flat[..]].into_iter(), 30.0).end >= 30.0);
        assert_eq!(AxisTop::of(std::iter::empty(), 0.0), AxisTop { end: 1.0, beyond: None });
        assert!(AxisTop::of([&line([f64::NAN, f64::INFINITY])[..]].into_iter(), 0.0).end.is_finite());
    }
}
