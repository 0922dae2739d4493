//! The report's plots, as SVG to stand inside the page.
//!
//! Every colour is one of [`palette`]'s: in the dark the page's style sheet recolours them by value, so that one
//! drawing serves both.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thiserror::Error;

use super::plan::PhaseName;
use super::timeline::{Phase, Second, Timeline};

/// The drawing's colours, as they are on a light page.
pub(crate) mod palette {
    use plotters::style::RGBColor;

    pub(crate) const INK: RGBColor = RGBColor(0x33, 0x41, 0x55);
    pub(crate) const GRID: RGBColor = RGBColor(0xE2, 0xE8, 0xF0);
    pub(crate) const BURST: RGBColor = RGBColor(0xF1, 0xF5, 0xF9);
    pub(crate) const ALONE: RGBColor = RGBColor(0x47, 0x73, 0xAA);
    pub(crate) const UNREGULATED: RGBColor = RGBColor(0xC8, 0x3E, 0x4D);
    pub(crate) const REGULATED: RGBColor = RGBColor(0x0F, 0x8B, 0x6D);
    pub(crate) const TARGET: RGBColor = RGBColor(0xB4, 0x53, 0x09);
    pub(crate) const SET_POINT: RGBColor = RGBColor(0x94, 0x8A, 0x7A);
}
use palette::{BURST, GRID, INK, SET_POINT, TARGET};

const WIDTH: u32 = 1_040;
const FONT: &str = "sans-serif";

/// A plot that could not be drawn.
#[derive(Debug, Error)]
#[error("cannot draw a plot: {0}")]
pub(crate) struct PlotError(String);

impl PlotError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// The colour of a phase, everywhere.
pub(crate) fn phase_colour(name: PhaseName) -> RGBColor {
    match name {
        PhaseName::Alone => palette::ALONE,
        PhaseName::Unregulated => palette::UNREGULATED,
        PhaseName::Regulated => palette::REGULATED,
    }
}

/// The database's 1 s means over the run, against target and set point, in milliseconds.
pub(crate) fn latency(timeline: &Timeline) -> Result<String, PlotError> {
    let (target, set_point) =
        (timeline.plan.target.as_millis_f64(), timeline.plan.set_point().as_millis_f64());
    let value = |second: &Second| second.mean().map(tidegate_units::Latency::as_millis_f64);
    OverTime { height: 320, at_least: 2.0 * target, marks: &[(set_point, SET_POINT), (target, TARGET)] }
        .draw(timeline, value)
}

/// What all backups together got written per second, in MB/s.
pub(crate) fn throughput(timeline: &Timeline) -> Result<String, PlotError> {
    let value = |second: &Second| Some(second.written.get() as f64 / 1e6);
    OverTime { height: 220, at_least: 1.0, marks: &[] }.draw(timeline, value)
}

/// The window over the run, in requests; nothing where there is none.
pub(crate) fn window(timeline: &Timeline) -> Result<String, PlotError> {
    let value = |second: &Second| second.held.window.map(tidegate_units::Window::get);
    OverTime { height: 200, at_least: 1.0, marks: &[] }.draw(timeline, value)
}

/// The delay over the run, in milliseconds; nothing where there is none.
pub(crate) fn delay(timeline: &Timeline) -> Result<String, PlotError> {
    let value = |second: &Second| second.held.delay.map(tidegate_units::Latency::as_millis_f64);
    OverTime { height: 200, at_least: 1.0, marks: &[] }.draw(timeline, value)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A plot over the time of the run: bursts shaded, phases in their colours and named.
struct OverTime<'a> {
    height: u32,
    /// The vertical axis reaches at least so far.
    at_least: f64,
    /// Horizontal lines.
    marks: &'a [(f64, RGBColor)],
}

impl OverTime<'_> {
    fn draw(&self, timeline: &Timeline, value: impl Fn(&Second) -> Option<f64>) -> Result<String, PlotError> {
        let greatest =
            timeline.phases.iter().flat_map(|phase| &phase.seconds).filter_map(&value).fold(0.0, f64::max);
        // The tenth above the greatest value is where the names of the phases stand.
        let top = greatest.max(self.at_least) * 1.15;
        let end: usize = timeline.phases.iter().map(|phase| phase.seconds.len()).sum();
        svg(self.height, |area| {
            let mut chart = ChartBuilder::on(area)
                .margin(6)
                .margin_right(26)
                .x_label_area_size(28)
                .y_label_area_size(50)
                .build_cartesian_2d(0.0..end.max(1) as f64, 0.0..top)
                .map_err(PlotError::new)?;
            for (start, phase) in timeline.with_starts() {
                for burst in &phase.bursts {
                    let corner = |at: u32, y| (f64::from(start + at), y);
                    let shade =
                        Rectangle::new([corner(burst.start, 0.0), corner(burst.end, top)], BURST.filled());
                    chart.draw_series([shade]).map_err(PlotError::new)?;
                }
            }
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID)
                .axis_style(GRID)
                .x_labels(10)
                .y_labels(5)
                .x_label_formatter(&|seconds| clock(*seconds))
                .y_label_formatter(&|value| format!("{value:.0}"))
                .label_style(text(15, INK))
                .draw()
                .map_err(PlotError::new)?;
            for (at, colour) in self.marks {
                let line =
                    DashedLineSeries::new([(0.0, *at), (end as f64, *at)], 7, 4, colour.stroke_width(2));
                chart.draw_series(line).map_err(PlotError::new)?;
            }
            for (start, phase) in timeline.with_starts() {
                draw_phase(&mut chart, f64::from(start), phase, &value, top)?;
            }
            Ok(())
        })
    }
}

fn draw_phase(
    chart: &mut Chart<'_, '_>,
    start: f64,
    phase: &Phase,
    value: &impl Fn(&Second) -> Option<f64>,
    top: f64,
) -> Result<(), PlotError> {
    let colour = phase_colour(phase.name);
    let mut run = Vec::new();
    let points =
        (0u32..).zip(&phase.seconds).map(|(at, second)| (start + f64::from(at) + 0.5, value(second)));
    for (x, y) in points.chain([(0.0, None)]) {
        if let Some(y) = y {
            run.push((x, y));
            continue;
        }
        if let (Some(first), Some(last)) = (run.first(), run.last()) {
            let mut outline = run.clone();
            outline.extend([(last.0, 0.0), (first.0, 0.0)]);
            chart.draw_series([Polygon::new(outline, colour.mix(0.10))]).map_err(PlotError::new)?;
            let line = LineSeries::new(std::mem::take(&mut run), colour.stroke_width(2));
            chart.draw_series(line).map_err(PlotError::new)?;
        }
    }
    let name = Text::new(phase.name.to_string(), (6, 3), text(16, colour));
    chart.draw_series([EmptyElement::at((start, top)) + name]).map_err(PlotError::new)?;
    Ok(())
}

/// Shares of requests by response time, one curve per phase, on a logarithmic axis.
pub(crate) fn cumulative(timeline: &Timeline) -> Result<String, PlotError> {
    const TICKS: [f64; 12] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0];
    let log = |latency: tidegate_units::Latency| latency.as_millis_f64().max(0.1).log10();
    let greatest = timeline.phases.iter().map(|phase| log(phase.distribution.max)).fold(1.0, f64::max);
    let right = TICKS.iter().map(|tick| tick.log10()).find(|tick| *tick >= greatest).unwrap_or(greatest);
    svg(300, |area| {
        let left = TICKS[0].log10();
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_right(26)
            .x_label_area_size(28)
            .y_label_area_size(50)
            .build_cartesian_2d(left..right, 0.0..1.0)
            .map_err(PlotError::new)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .y_labels(11)
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .label_style(text(15, INK))
            .draw()
            .map_err(PlotError::new)?;
        for tick in TICKS.iter().filter(|tick| tick.log10() <= right + 1e-9) {
            let x = tick.log10();
            chart.draw_series([PathElement::new([(x, 0.0), (x, 1.0)], GRID)]).map_err(PlotError::new)?;
            let centred = text(15, INK).pos(Pos::new(HPos::Center, VPos::Top));
            let label = Text::new(format!("{tick} ms"), (0, 6), centred);
            chart.draw_series([EmptyElement::at((x, 0.0)) + label]).map_err(PlotError::new)?;
        }
        let target = log(timeline.plan.target);
        let line = DashedLineSeries::new([(target, 0.0), (target, 1.0)], 7, 4, TARGET.stroke_width(2));
        chart.draw_series(line).map_err(PlotError::new)?;
        for phase in &timeline.phases {
            let points = phase.distribution.cumulative.iter().map(|(latency, share)| (log(*latency), *share));
            let line = LineSeries::new(points, phase_colour(phase.name).stroke_width(2));
            chart.draw_series(line).map_err(PlotError::new)?;
        }
        Ok(())
    })
}

fn svg(height: u32, draw: impl FnOnce(&Area<'_>) -> Result<(), PlotError>) -> Result<String, PlotError> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    draw(&area)?;
    area.present().map_err(PlotError::new)?;
    drop(area);
    // Inside HTML the name space is understood; the width is the page's to choose.
    Ok(svg.replacen(r#" xmlns="http://www.w3.org/2000/svg""#, "", 1))
}

fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}

/// Minutes and seconds.
fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::super::timeline::tests::example;
    use super::*;

    #[test]
    fn every_phase_is_drawn_in_its_colour_and_named() {
        for plot in [latency(&example()), throughput(&example()), cumulative(&example())] {
            let plot = plot.unwrap();
            for name in [PhaseName::Alone, PhaseName::Unregulated, PhaseName::Regulated] {
                let RGBColor(r, g, b) = phase_colour(name);
                assert!(plot.contains(&format!("stroke=\"#{r:02X}{g:02X}{b:02X}\"")), "{name}");
            }
            assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"));
        }
        assert!(latency(&example()).unwrap().contains("unregulated"));
    }

    #[test]
    fn the_window_is_drawn_only_where_there_is_one() {
        let window = window(&example()).unwrap();
        let delay = delay(&example()).unwrap();
        let lines = |plot: &str| plot.matches("<polyline").count();
        // One line per burst, beside what the mesh draws in both.
        assert_eq!(lines(&window) - lines(&delay), 3);
    }

    #[test]
    fn a_run_that_measured_nothing_can_be_drawn() {
        let mut empty = example();
        for phase in &mut empty.phases {
            phase.seconds.clear();
            phase.distribution = Default::default();
        }
        for plot in [latency(&empty), throughput(&empty), window(&empty), delay(&empty), cumulative(&empty)] {
            assert!(!plot.unwrap().contains("NaN"));
        }
    }
}
