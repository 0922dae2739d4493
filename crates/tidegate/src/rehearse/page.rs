//! The reports as one page that needs nothing else, for screen and paper.

use std::fmt::Write;

use plotters::prelude::*;
use tidegate_rehearsal::{Prediction, RehearsalOutcome};

use super::RehearsedResource;
use super::text::{COLUMNS, LEGEND, headline, percent, row, sentences};
use tidegate_program::page::plot::{self, PlotError, svg};
use tidegate_program::page::{self, dash, escape, swatch};

const MEASURED: RGBColor = RGBColor(0xB0, 0x7A, 0x1E);
const PREDICTED: RGBColor = RGBColor(0x0F, 0x8B, 0x6D);
const TARGET: RGBColor = RGBColor(0xC8, 0x3E, 0x4D);

const DARK: [(RGBColor, &str); 5] =
    [plot::DARK[0], plot::DARK[1], (MEASURED, "#e0b060"), (PREDICTED, "#3ecf9f"), (TARGET, "#f0717f")];

/// Writes the page.
///
/// # Errors
/// When a plot cannot be drawn.
pub(super) fn write(rehearsed: &[RehearsedResource]) -> Result<String, PlotError> {
    let mut out = String::with_capacity(1 << 16);
    let names: Vec<&str> = rehearsed.iter().map(|one| one.report.resource.as_str()).collect();
    page::begin(&mut out, &format!("Rehearsal of {}", names.join(", ")), &DARK);
    for one in rehearsed {
        resource(&mut out, one)?;
    }
    page::end(&mut out);
    Ok(out)
}

fn resource(out: &mut String, one: &RehearsedResource) -> Result<(), PlotError> {
    let _ = write!(
        out,
        "<header>\n<p class=\"eyebrow\">Tidegate rehearsal · {} · {} to {}</p>\n<h1>{}</h1>\n</header>\n",
        escape(one.report.resource.as_str()),
        escape(&one.from),
        escape(&one.to),
        escape(&headline(&one.report)),
    );
    out.push_str("<section>\n");
    for sentence in sentences(one) {
        let _ = writeln!(out, "<p>{}.</p>", escape(&sentence));
    }
    out.push_str("</section>\n");
    let RehearsalOutcome::Predicted(prediction) = &one.report.outcome else { return Ok(()) };
    boxes(out, one, prediction);
    curve(out, one, prediction)?;
    table(out, prediction);
    Ok(())
}

fn boxes(out: &mut String, one: &RehearsedResource, prediction: &Prediction) {
    let above = prediction.above_fraction;
    let boxes = [
        (
            " missed",
            percent(one.report.measured.above_fraction),
            "of seconds above the target",
            "as recorded",
        ),
        (" met", percent(above.likely), "of seconds above the target", "with the law"),
        ("", percent(prediction.throttled_fraction.likely), "of the time throttled", "with the law"),
    ];
    out.push_str("<section class=\"goals\" aria-label=\"The rehearsal\">\n");
    for (class, value, title, mark) in boxes {
        let _ = writeln!(
            out,
            "<div class=\"goal{class}\"><p class=\"value\">{value}</p><p>{title}</p><p \
             class=\"mark\">{mark}</p></div>"
        );
    }
    out.push_str("</section>\n");
}

fn curve(out: &mut String, one: &RehearsedResource, prediction: &Prediction) -> Result<(), PlotError> {
    let _ = writeln!(
        out,
        "<section>\n<h2>Latency</h2>\n<p class=\"sub\">mean of the signal in ms, by recorded hours</p>\n\
         <p class=\"legend\"><span>{}as recorded</span><span>{}with the law</span><span>{}target</span></p>",
        swatch(MEASURED),
        swatch(PREDICTED),
        dash(TARGET),
    );
    let hours = one.report.recorded_seconds / 3_600.0;
    let target = 1e3 * one.report.target_seconds;
    let points = |of: fn(&tidegate_rehearsal::CurvePoint) -> Option<f64>| -> Vec<(f64, f64)> {
        let point = |at: &tidegate_rehearsal::CurvePoint| Some((at.at_seconds / 3_600.0, 1e3 * of(at)?));
        prediction.curve.iter().filter_map(point).collect()
    };
    let lines = [
        (MEASURED, points(|point| point.measured_seconds)),
        (PREDICTED, points(|point| point.predicted_seconds)),
    ];
    let top = lines.iter().flat_map(|(_, points)| points).map(|point| point.1).fold(target, f64::max);
    out.push_str(&svg(280, |area| {
        let mut chart = plot::axes(area, 0.0..hours, 0.0..1.08 * top, None)?;
        for (colour, points) in &lines {
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
            chart.draw_series(line).map_err(PlotError::new)?;
        }
        let ends = [(0.0, target), (hours, target)];
        let dashed = DashedLineSeries::new(ends, 7, 4, TARGET.stroke_width(2));
        chart.draw_series(dashed).map_err(PlotError::new)?;
        Ok(())
    })?);
    out.push_str("</section>\n");
    Ok(())
}

fn table(out: &mut String, prediction: &Prediction) {
    out.push_str("<section>\n<h2>Consumers</h2>\n<div class=\"scroll\"><table class=\"small\">\n<thead><tr>");
    for column in COLUMNS {
        let _ = write!(out, "<th scope=\"col\">{column}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for consumer in &prediction.consumers {
        let mut cells = row(consumer).into_iter();
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&cells.next().unwrap_or_default()));
        for cell in cells {
            let _ = write!(out, "<td>{}</td>", escape(&cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
    for line in LEGEND {
        let _ = writeln!(out, "<p class=\"sub\">{}</p>", escape(line));
    }
    out.push_str("</section>\n");
}
