//! The report's plots, as SVG to stand inside the page.
//!
//! Every colour is one of [`palette`]'s: in the dark the page's style sheet recolours them by value, so that
//! one drawing serves both.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tidegate_units::Latency;

use super::plan::{PhaseName, WRITERS};
use super::timeline::{DemoTimeline, MeasuredPhase, PhaseSecond};
use tidegate_program::page::plot::{GRID, INK, PlotChart, PlotError, svg, text, tick_decimals};

/// The drawing's colours, as they are on a light page.
pub(crate) mod palette {
    use plotters::style::RGBColor;

    pub(crate) const BURST: RGBColor = RGBColor(0xF1, 0xF5, 0xF9);
    pub(crate) const ALONE: RGBColor = RGBColor(0x47, 0x73, 0xAA);
    pub(crate) const UNREGULATED: RGBColor = RGBColor(0xC8, 0x3E, 0x4D);
    pub(crate) const REGULATED: RGBColor = RGBColor(0x0F, 0x8B, 0x6D);
    pub(crate) const TARGET: RGBColor = RGBColor(0xB4, 0x53, 0x09);
    pub(crate) const SET_POINT: RGBColor = RGBColor(0x94, 0x8A, 0x7A);
}
use palette::{BURST, SET_POINT, TARGET};

/// The greatest end of an axis of response times, in targets: one terrible second must not flatten all
/// others.
pub(crate) const AXIS_TARGETS: f64 = 6.0;

/// The colour of a phase, everywhere.
pub(crate) fn phase_colour(name: PhaseName) -> RGBColor {
    match name {
        PhaseName::Alone => palette::ALONE,
        PhaseName::Unregulated => palette::UNREGULATED,
        PhaseName::Regulated => palette::REGULATED,
    }
}

/// The database's 1 s means over the run, against target and set point, in milliseconds.
pub(crate) fn latency(timeline: &DemoTimeline) -> Result<String, PlotError> {
    let (target, set_point) =
        (timeline.plan.target.as_millis_f64(), timeline.plan.set_point().as_millis_f64());
    let value =
        |second: &PhaseSecond| second.mean().map(|mean| mean.as_millis_f64().min(AXIS_TARGETS * target));
    OverTime { height: 320, at_least: 2.0 * target, marks: &[(set_point, SET_POINT), (target, TARGET)] }
        .draw(timeline, value)
}

/// Returns true if [`latency`] cuts off some seconds.
pub(crate) fn latency_is_cut(timeline: &DemoTimeline) -> bool {
    let most = timeline.plan.target.scale(AXIS_TARGETS);
    timeline
        .phases
        .iter()
        .flat_map(|phase| &phase.seconds)
        .filter_map(PhaseSecond::mean)
        .any(|mean| mean > most)
}

/// Plots the bytes per second that all backups together wrote, in MB/s.
pub(crate) fn throughput(timeline: &DemoTimeline) -> Result<String, PlotError> {
    let value = |second: &PhaseSecond| Some(second.written.get() as f64 / 1e6);
    OverTime { height: 220, at_least: 1.0, marks: &[] }.draw(timeline, value)
}

/// The window over the run, in requests; nothing where there is none. Each backup has one request
/// outstanding, so that a window of all of them throttles none, and no wider one is worth the space.
pub(crate) fn window(timeline: &DemoTimeline) -> Result<String, PlotError> {
    let value = |second: &PhaseSecond| second.held.window.map(|window| window.get().min(WRITERS as f64));
    OverTime { height: 200, at_least: 1.0, marks: &[] }.draw(timeline, value)
}

/// The delay over the run, in milliseconds; nothing where there is none.
pub(crate) fn delay(timeline: &DemoTimeline) -> Result<String, PlotError> {
    let value = |second: &PhaseSecond| second.held.delay.map(Latency::as_millis_f64);
    OverTime { height: 200, at_least: 1.0, marks: &[] }.draw(timeline, value)
}

/// A plot over the time of the run: bursts shaded, phases in their colours and named.
struct OverTime<'a> {
    height: u32,
    /// The vertical axis reaches at least so far.
    at_least: f64,
    /// Horizontal lines.
    marks: &'a [(f64, RGBColor)],
}

impl OverTime<'_> {
    fn draw(
        &self,
        timeline: &DemoTimeline,
        value: impl Fn(&PhaseSecond) -> Option<f64>,
    ) -> Result<String, PlotError> {
        /// Labels of the vertical axis, at most.
        const LABELS: u8 = 7;
        let greatest =
            timeline.phases.iter().flat_map(|phase| &phase.seconds).filter_map(&value).fold(0.0, f64::max);
        // The tenth above the greatest value is where the names of the phases stand.
        let top = greatest.max(self.at_least) * 1.15;
        // Ticks are at least this far apart: the library puts them at round numbers.
        let decimals = tick_decimals(10f64.powf((top / f64::from(LABELS)).log10().floor()));
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
                .y_labels(usize::from(LABELS))
                .x_label_formatter(&|seconds| clock(*seconds))
                .y_label_formatter(&|value| format!("{value:.decimals$}"))
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
    chart: &mut PlotChart<'_, '_>,
    start: f64,
    phase: &MeasuredPhase,
    value: &impl Fn(&PhaseSecond) -> Option<f64>,
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

/// The response times of each phase on a logarithmic axis: median, 95th and 99th percentile, greatest, and
/// mean.
pub(crate) fn spread(timeline: &DemoTimeline) -> Result<String, PlotError> {
    const TICKS: [f64; 12] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0];
    let log = |latency: Latency| latency.as_millis_f64().clamp(TICKS[0], TICKS[11]).log10();
    let greatest = timeline.phases.iter().map(|phase| log(phase.distribution.max)).fold(1.0, f64::max);
    let least = timeline.phases.iter().map(|phase| log(phase.distribution.p50)).fold(greatest, f64::min);
    let ticks = || TICKS.map(f64::log10).into_iter();
    let right = ticks().find(|tick| *tick >= greatest).unwrap_or(greatest);
    let left = ticks().rfind(|tick| *tick < least).unwrap_or(TICKS[0].log10());
    let rows = timeline.phases.len() as f64;
    svg(70 + 62 * timeline.phases.len() as u32, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_left(20)
            .margin_right(30)
            .x_label_area_size(28)
            .build_cartesian_2d(left..right, 0.0..rows.max(1.0))
            .map_err(PlotError::new)?;
        for (x, millis) in ticks().zip(TICKS).filter(|(x, _)| (left..=right).contains(x)) {
            chart.draw_series([PathElement::new([(x, 0.0), (x, rows)], GRID)]).map_err(PlotError::new)?;
            let centred = text(15, INK).pos(Pos::new(HPos::Center, VPos::Top));
            let label = Text::new(format!("{millis} ms"), (0, 7), centred);
            chart.draw_series([EmptyElement::at((x, 0.0)) + label]).map_err(PlotError::new)?;
        }
        let target = log(timeline.plan.target);
        let line = DashedLineSeries::new([(target, 0.0), (target, rows)], 7, 4, TARGET.stroke_width(2));
        chart.draw_series(line).map_err(PlotError::new)?;
        for (row, phase) in timeline.phases.iter().enumerate() {
            draw_spread(&mut chart, rows - row as f64 - 0.55, phase, log)?;
        }
        Ok(())
    })
}

fn draw_spread(
    chart: &mut PlotChart<'_, '_>,
    y: f64,
    phase: &MeasuredPhase,
    log: impl Fn(Latency) -> f64,
) -> Result<(), PlotError> {
    /// Pixels that a name takes.
    const NAME_WIDTH: i32 = 34;
    let (colour, distribution) = (phase_colour(phase.name), &phase.distribution);
    if distribution.count == 0 {
        return Ok(());
    }
    let points = [
        (distribution.p50, "p50", 6),
        (distribution.p95, "p95", 5),
        (distribution.p99, "p99", 4),
        (distribution.max, "max", 3),
    ];
    let ends = [(log(distribution.p50), y), (log(distribution.max), y)];
    chart.draw_series([PathElement::new(ends, colour.stroke_width(3))]).map_err(PlotError::new)?;
    let mut named_up_to = i32::MIN;
    for (latency, name, radius) in points {
        let at = (log(latency), y);
        chart.draw_series([Circle::new(at, radius, colour.filled())]).map_err(PlotError::new)?;
        let pixel = chart.backend_coord(&at).0;
        // Where two lie side by side the first name stands for both; the table has the figures.
        if pixel >= named_up_to {
            named_up_to = pixel + NAME_WIDTH;
            let centred = text(14, INK).pos(Pos::new(HPos::Center, VPos::Bottom));
            let label = EmptyElement::at(at) + Text::new(name, (0, -9), centred);
            chart.draw_series([label]).map_err(PlotError::new)?;
        }
    }
    // The mean may lie between any two of them: a bar across the line, named below it.
    let centred = text(14, colour).pos(Pos::new(HPos::Center, VPos::Top));
    let mean = EmptyElement::at((log(distribution.mean), y))
        + PathElement::new([(0, -7), (0, 7)], colour.stroke_width(3))
        + Text::new("mean", (0, 10), centred);
    chart.draw_series([mean]).map_err(PlotError::new)?;
    Ok(())
}

/// Minutes and seconds.
fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::super::timeline::PhaseLatencies;
    use super::super::timeline::tests::example;
    use super::*;

    #[test]
    fn every_phase_is_drawn_in_its_colour_and_named() {
        for plot in [latency(&example()), throughput(&example()), spread(&example())] {
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
    fn a_terrible_second_leaves_the_axis_to_the_others() {
        let mut timeline = example();
        assert!(!latency_is_cut(&timeline));
        let before = latency(&timeline).unwrap();
        timeline.phases[1].seconds[3].latency_sum = Latency::from_millis(64 * 90_000);
        assert!(latency_is_cut(&timeline));
        let after = latency(&timeline).unwrap();
        assert_ne!(after, before);
        let labels: Vec<f64> = after.lines().filter_map(|line| line.trim().parse().ok()).collect();
        assert!(!labels.is_empty() && labels.iter().all(|label| *label < 120.0), "{labels:?}");
    }

    #[test]
    fn a_run_that_measured_nothing_can_be_drawn() {
        let mut empty = example();
        for phase in &mut empty.phases {
            phase.seconds.clear();
            phase.distribution = PhaseLatencies::default();
        }
        for plot in [latency(&empty), throughput(&empty), window(&empty), delay(&empty), spread(&empty)] {
            assert!(!plot.unwrap().contains("NaN"));
        }
    }
}
