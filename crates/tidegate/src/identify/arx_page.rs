//! The linear model as a page: what was measured beside what the model says, and what gains make of it.

use std::fmt::Write;

use plotters::prelude::*;
use tidegate_control::ArxSample;
use tidegate_units::Latency;

use super::arx::ExcitedModel;
use tidegate_program::page::plot::{self, PlotError, svg};
use tidegate_program::page::{self, escape, swatch};

const MEASURED: RGBColor = RGBColor(0x47, 0x73, 0xAA);
const MODEL: RGBColor = RGBColor(0xC8, 0x3E, 0x4D);

const DARK: [(RGBColor, &str); 4] = [plot::DARK[0], plot::DARK[1], (MEASURED, "#7aa7e0"), (MODEL, "#f0717f")];

/// So many intervals can be told apart.
const SHOWN: usize = 100;

/// Writes the page.
///
/// # Errors
/// When a plot cannot be drawn.
pub(super) fn write(found: &ExcitedModel) -> Result<String, PlotError> {
    let mut out = String::new();
    page::begin(&mut out, &format!("Tidegate: model of {}", found.model), &DARK);
    let _ = write!(
        out,
        "<header>\n<p class=\"eyebrow\">{}</p>\n<h1>A linear model of {}</h1>\n</header>\n<section>\n",
        escape(&found.effort()),
        escape(&found.model),
    );
    for sentence in found.sentences() {
        let _ = writeln!(out, "<p>{}</p>", escape(&sentence));
    }
    for warning in found.warnings() {
        let _ = writeln!(out, "<p class=\"caution\">{}</p>", escape(warning));
    }
    let _ = writeln!(
        out,
        "<h3>Response time</h3>\n<p class=\"sub\">ms, over time in s</p>\n\
         <p class=\"legend\"><span>{}measured</span><span>{}predicted from the interval before</span></p>",
        swatch(MEASURED),
        swatch(MODEL),
    );
    out.push_str(&drawing(&lines(found))?);
    let curve = found.curve();
    let seconds = found.recommended.interval.as_secs_f64();
    let settling = curve
        .iter()
        .filter_map(|(gain, settling, _)| Some((gain.iops_per_ms(), f64::from((*settling)?) * seconds)));
    let overshoot =
        curve.iter().filter_map(|(gain, _, overshoot)| Some((gain.iops_per_ms(), 100.0 * (*overshoot)?)));
    for (title, unit, points) in [
        ("Settling time", "s", settling.collect::<Vec<_>>()),
        ("Overshoot", "% of the step", overshoot.collect()),
    ] {
        if points.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "<h3>{title}</h3>\n<p class=\"sub\">{unit}, over K_I in IO/s per ms, as far as the loop is \
                stable</p>"
        );
        out.push_str(&drawing(&[(MODEL, points)])?);
    }
    out.push_str("</section>\n");
    page::end(&mut out);
    Ok(out)
}

type PlotPoints = Vec<(f64, f64)>;

fn lines(found: &ExcitedModel) -> [(RGBColor, PlotPoints); 2] {
    let shown = &found.samples[..found.samples.len().min(SHOWN)];
    let seconds = found.recommended.interval.as_secs_f64();
    let time = |at: usize| (at + 1) as f64 * seconds;
    let measured = shown
        .iter()
        .enumerate()
        .filter_map(|(at, sample)| Some((time(at), sample.response?.as_millis_f64())));
    let order = found.arx.order();
    let predicted = shown.windows(order + 1).enumerate().filter_map(|(at, window)| {
        // From the latest backwards, the interval itself without its answer.
        let past: Option<Vec<f64>> =
            window[..order].iter().rev().map(|sample| sample.response.map(Latency::as_millis_f64)).collect();
        let set: Vec<f64> = window
            .iter()
            .rev()
            .map(|ArxSample { operating_point, .. }| operating_point.per_second())
            .collect();
        Some((time(at + order), found.arx.predict(&past?, &set)))
    });
    [(MEASURED, measured.collect()), (MODEL, predicted.collect())]
}

fn drawing(lines: &[(RGBColor, PlotPoints)]) -> Result<String, PlotError> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let right = all().map(|point| point.0).fold(0.0, f64::max);
    let top = all().map(|point| point.1).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    svg(280, |area| {
        let mut chart = plot::axes(area, 0.0..right, 0.0..1.08 * top, None)?;
        for (colour, points) in lines {
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
            chart.draw_series(line).map_err(PlotError::new)?;
        }
        Ok(())
    })
}
