//! What the reports' plots have in common: SVG to stand inside a page.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use thiserror::Error;

/// Text and axes.
pub(crate) const INK: RGBColor = RGBColor(0x33, 0x41, 0x55);
/// The lines behind the drawing.
pub(crate) const GRID: RGBColor = RGBColor(0xE2, 0xE8, 0xF0);
/// What both become in the dark.
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

/// Where a plot is drawn.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A plot with two axes of numbers.
pub(crate) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

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

/// The style of a piece of text.
pub(crate) fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}
