//! Common parts of the reports' plots: SVG to stand inside a page.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use thiserror::Error;

/// Text and axes.
pub(crate) const INK: RGBColor = RGBColor(0x33, 0x41, 0x55);
/// The lines behind the drawing.
pub(crate) const GRID: RGBColor = RGBColor(0xE2, 0xE8, 0xF0);
/// The two colours above, each with the colour that replaces it in the dark.
pub(crate) const DARK: [(RGBColor, &str); 2] = [(INK, "#a9b4c4"), (GRID, "#2a3442")];

const WIDTH: u32 = 1_040;
const FONT: &str = "sans-serif";

/// A plot that could not be drawn.
#[derive(Debug, Error)]
#[error("cannot draw a plot: {0}")]
pub(crate) struct PlotError(String);

impl PlotError {
    pub(crate) fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// The area that a plot is drawn on.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A plot with two axes of numbers.
pub(crate) type PlotChart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws into an SVG element of the page's width.
///
/// # Errors
/// What `draw` says, and when the drawing cannot be completed.
pub(crate) fn svg(
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> Result<(), PlotError>,
) -> Result<String, PlotError> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    draw(&area)?;
    area.present().map_err(PlotError::new)?;
    drop(area);
    // Inside HTML the name space is understood; the width is the page's to choose.
    Ok(svg.replacen(r#" xmlns="http://www.w3.org/2000/svg""#, "", 1))
}

/// Two axes of numbers with a grid behind them. `label` writes the numbers, where the usual way is not right.
///
/// # Errors
/// When they cannot be drawn.
pub(crate) fn axes<'a, 'b>(
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

/// The style of a piece of text.
pub(crate) fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}
