//! The profile as a page with its plot.

use std::fmt::Write;

use plotters::prelude::*;

use super::profile::ProfileResult;
use tidegate_program::page::plot::{self, PlotError, svg};
use tidegate_program::page::{self, dash, escape, swatch};

const MEAN: RGBColor = RGBColor(0x47, 0x73, 0xAA);
const P95: RGBColor = RGBColor(0xC8, 0x3E, 0x4D);
const LINE: RGBColor = RGBColor(0x94, 0x8A, 0x7A);

const DARK: [(RGBColor, &str); 5] =
    [plot::DARK[0], plot::DARK[1], (MEAN, "#7aa7e0"), (P95, "#f0717f"), (LINE, "#8d8576")];

/// Writes the page.
///
/// # Errors
/// When the plot cannot be drawn.
pub(super) fn write(found: &ProfileResult) -> Result<String, PlotError> {
    let mut out = String::new();
    page::begin(&mut out, &format!("Tidegate: profile of {}", found.model), &DARK);
    let _ = write!(
        out,
        "<header>\n<p class=\"eyebrow\">{}</p>\n<h1>Response time over rate: {}</h1>\n</header>\n<section>\n",
        escape(&found.effort),
        escape(&found.model),
    );
    for sentence in found.sentences() {
        let _ = writeln!(out, "<p>{}</p>", escape(&sentence));
    }
    for warning in found.warnings() {
        let _ = writeln!(out, "<p class=\"caution\">{}</p>", escape(&warning));
    }
    let _ = writeln!(
        out,
        "<h3>Response time</h3>\n<p class=\"sub\">ms, over IO/s offered, as far as it is sustained</p>\n\
         <p class=\"legend\"><span>{}mean</span><span>{}95th percentile</span><span>{}line through the \
         stable region\
         </span></p>",
        swatch(MEAN),
        swatch(P95),
        dash(LINE),
    );
    out.push_str(&drawing(found)?);
    out.push_str("</section>\n");
    page::end(&mut out);
    Ok(out)
}

fn drawing(found: &ProfileResult) -> Result<String, PlotError> {
    let points = || found.profile.points().iter().filter(|point| point.sustained);
    let means: Vec<_> = points().map(|p| (p.offered.per_second(), p.mean.as_millis_f64())).collect();
    let quantiles: Vec<_> = points().map(|p| (p.offered.per_second(), p.quantile.as_millis_f64())).collect();
    let greatest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let right = greatest(&mut means.iter().map(|point| point.0));
    let top = 1.08 * greatest(&mut means.iter().chain(&quantiles).map(|point| point.1));
    let region = found.profile.stable();
    let line =
        [region.from, region.to].map(|rate| (rate.per_second(), region.predicted(rate).as_millis_f64()));
    svg(320, |area| {
        let mut chart = plot::axes(area, 0.0..right, 0.0..top, None)?;
        for (points, colour) in [(quantiles, P95), (means, MEAN)] {
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).map_err(PlotError::new)?;
        }
        let dashed = DashedLineSeries::new(line, 7, 4, LINE.stroke_width(2));
        chart.draw_series(dashed).map_err(PlotError::new)?;
        Ok(())
    })
}
