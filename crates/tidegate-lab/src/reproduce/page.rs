//! The report: every experiment with its verdicts and plots on one page that needs nothing else.

use std::fmt::Write;

use plotters::prelude::*;
use tidegate_experiments::{
    Experiment, ExperimentReport, Plot, PlotLine, QuantityReport, ReproductionReport, SeedTrial,
};

use super::text::{self, figure, spread, with_unit};
use tidegate_program::page::plot::{self, AxisTop, PlotError, svg};
use tidegate_program::page::{self, escape, swatch};

/// The lines of a plot, one after the other; further ones begin anew.
const LINES: [RGBColor; 8] = [
    RGBColor(0x47, 0x73, 0xAA),
    RGBColor(0xC8, 0x3E, 0x4D),
    RGBColor(0x0F, 0x8B, 0x6D),
    RGBColor(0xB4, 0x53, 0x09),
    RGBColor(0x7C, 0x4D, 0xA8),
    RGBColor(0x3F, 0x8E, 0xA5),
    RGBColor(0xA1, 0x62, 0x7B),
    RGBColor(0x6B, 0x7A, 0x2A),
];

/// Values to compare with.
const MARK: RGBColor = RGBColor(0x94, 0x8A, 0x7A);

/// Colours of the drawings, each with the colour that replaces it in the dark.
const DARK: [(RGBColor, &str); 11] = [
    plot::DARK[0],
    plot::DARK[1],
    (MARK, "#8d8576"),
    (LINES[0], "#7aa7e0"),
    (LINES[1], "#f0717f"),
    (LINES[2], "#3ecf9f"),
    (LINES[3], "#f0a54a"),
    (LINES[4], "#b795dd"),
    (LINES[5], "#6fc3da"),
    (LINES[6], "#d795b0"),
    (LINES[7], "#a9ba5c"),
];

/// A drawing has no use for more points than it is wide.
const MOST_POINTS: usize = 500;

/// Writes the page. `first` are the trials under the first seed, from which the plots are drawn.
///
/// # Errors
/// When a plot cannot be drawn.
pub(super) fn write(
    experiments: &[Experiment],
    report: &ReproductionReport,
    first: &[SeedTrial<'_>],
) -> Result<String, PlotError> {
    let mut out = String::with_capacity(1 << 20);
    page::begin(&mut out, "Tidegate: the papers' experiments", &DARK);
    header(&mut out, report);
    contents(&mut out, report);
    for ((experiment, result), trial) in experiments.iter().zip(&report.experiments).zip(first) {
        section(&mut out, experiment, result, trial)?;
    }
    page::end(&mut out);
    Ok(out)
}

fn header(out: &mut String, report: &ReproductionReport) {
    let _ = write!(
        out,
        "<header>\n<p class=\"eyebrow\">The papers' experiments in Tidegate's simulator · {} \
            seeds</p>\n<h1>{}</h1>\n</header>\n<section>\n<p>The simulator runs the laws, schedulers and \
         device models that the gateway runs. Tolerances and their reasons were written down before the \
         first run. A \
         quantity is judged by its mean over the seeds; in brackets: the least and the greatest. Plots are \
         of the first \
         seed.</p>\n</section>\n",
        report.seeds.len(),
        text::summary(report),
    );
}

fn contents(out: &mut String, report: &ReproductionReport) {
    out.push_str("<section>\n<div class=\"scroll\"><table>\n<tbody>\n");
    for experiment in &report.experiments {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><a href=\"#{id}\">{id}</a></th><td class=\"words\">{}</td>{}</tr>",
            escape(&experiment.title),
            mark(
                experiment.ok,
                "agrees",
                if experiment.known_difference.is_some() { "differs, as known" } else { "differs" }
            ),
            id = escape(&experiment.id),
        );
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

fn mark(ok: bool, yes: &str, no: &str) -> String {
    if ok {
        format!("<td class=\"met\"><span class=\"mark\">✓ {yes}</span></td>")
    } else {
        format!("<td class=\"missed\"><span class=\"mark\">✗ {no}</span></td>")
    }
}

fn section(
    out: &mut String,
    experiment: &Experiment,
    result: &ExperimentReport,
    trial: &SeedTrial<'_>,
) -> Result<(), PlotError> {
    let _ = write!(
        out,
        "<section id=\"{}\">\n<h2>{} · {}</h2>\n<p><b>The paper.</b> {}</p>\n<p><b>Here.</b> {}</p>\n",
        escape(&result.id),
        escape(&result.id),
        escape(&result.title),
        escape(&result.paper),
        escape(&result.setup),
    );
    for law in text::laws(result) {
        let _ = writeln!(out, "<p class=\"sub\">{}</p>", escape(&law));
    }
    out.push_str(
        "<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">judged</th><th scope=\"col\">paper</th>\
         <th scope=\"col\">ours</th><th scope=\"col\">agrees</th><th scope=\"col\">seeds</th><th \
         scope=\"col\"></th>\
         </tr></thead>\n<tbody>\n",
    );
    for quantity in &result.quantities {
        row(out, quantity);
    }
    out.push_str("</tbody>\n</table></div>\n");
    let _ = writeln!(out, "<p class=\"sub\">Tolerances: {}</p>", escape(&experiment.texts.tolerances));
    if let Some(because) = &result.known_difference {
        let _ = writeln!(out, "<p><b>Why it differs.</b> {}</p>", escape(because));
    }
    if !result.figures.is_empty() {
        out.push_str(
            "<details>\n<summary>Also measured</summary>\n<div class=\"scroll\"><table>\n<thead><tr>\
             <th scope=\"col\">figure</th><th scope=\"col\">paper</th><th \
             scope=\"col\">ours</th></tr></thead>\n<tbody>\n",
        );
        for number in &result.figures {
            let _ = writeln!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>",
                escape(&number.name),
                number.paper.map_or("–".to_owned(), |paper| with_unit(&figure(paper), &number.unit)),
                with_unit(&spread(number.ours, &number.values), &number.unit),
            );
        }
        out.push_str("</tbody>\n</table></div>\n</details>\n");
    }
    for plot in &experiment.plots {
        draw(out, plot, &(plot.lines)(trial))?;
    }
    out.push_str("</section>\n");
    Ok(())
}

fn row(out: &mut String, quantity: &QuantityReport) {
    let _ = writeln!(
        out,
        "<tr><th scope=\"row\" class=\"words\">{}</th><td>{}</td><td>{}</td><td>{}</td>\
         <td>{} of {}</td>{}</tr>",
        escape(&quantity.name),
        quantity.paper.map_or("–".to_owned(), |paper| with_unit(&figure(paper), &quantity.unit)),
        with_unit(&spread(quantity.ours, &quantity.values), &quantity.unit),
        escape(&quantity.tolerance),
        quantity.seeds_ok,
        quantity.values.len(),
        mark(quantity.ok, "yes", "no"),
    );
}

fn draw(out: &mut String, plot: &Plot, lines: &[PlotLine]) -> Result<(), PlotError> {
    let thin: Vec<_> = lines.iter().map(|line| thinned(&line.points)).collect();
    let least = plot.marks.iter().map(|(_, value)| 1.08 * value).fold(0.0, f64::max);
    let top = AxisTop::of(thin.iter().map(Vec::as_slice), least);
    let cut = top.beyond.map_or_else(String::new, |greatest| {
        format!("; ▲ cut above {}, the greatest is {}", figure(top.end), figure(greatest))
    });
    let _ = writeln!(
        out,
        "<h3>{}</h3>\n<p class=\"sub\">{}, over {}{cut}</p>",
        escape(&plot.title),
        if plot.unit.is_empty() { "a number" } else { plot.unit },
        escape(plot.over),
    );
    out.push_str("<p class=\"legend\">");
    for (line, colour) in lines.iter().zip(LINES.iter().cycle()) {
        let _ = write!(out, "<span>{}{}</span>", swatch(*colour), escape(&line.name));
    }
    for (name, value) in &plot.marks {
        let _ = write!(out, "<span>{}{} = {}</span>", page::dash(MARK), escape(name), figure(*value));
    }
    out.push_str("</p>\n");
    out.push_str(&drawing(plot, &thin, top)?);
    Ok(())
}

fn drawing(plot: &Plot, lines: &[Vec<(f64, f64)>], top: AxisTop) -> Result<String, PlotError> {
    let points = || lines.iter().flatten();
    let right = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let left = points().map(|(x, _)| *x).fold(right, f64::min);
    // Time begins at the beginning; sizes and numbers of hosts with the first.
    let left = if plot.over == "s" { 0.0 } else { left };
    let right = if right > left { right } else { left + 1.0 };
    svg(260, |area| {
        let mut chart = plot::axes(area, left..right, 0.0..top.end, Some(&|value| figure(*value)))?;
        for (_, value) in &plot.marks {
            let line = DashedLineSeries::new([(left, *value), (right, *value)], 7, 4, MARK.stroke_width(2));
            chart.draw_series(line).map_err(PlotError::new)?;
        }
        for (line, colour) in lines.iter().zip(LINES.iter().cycle()) {
            let (shown, cut) = top.cut(line);
            chart.draw_series(LineSeries::new(shown, colour.stroke_width(2))).map_err(PlotError::new)?;
            let marks = cut.into_iter().map(|at| TriangleMarker::new(at, 6, colour.filled()));
            chart.draw_series(marks).map_err(PlotError::new)?;
        }
        Ok(())
    })
}

/// The points, or the means of equally many neighbours each where there are too many to see.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let finite: Vec<_> = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let together = finite.len().div_ceil(MOST_POINTS).max(1);
    finite
        .chunks(together)
        .map(|chunk| {
            let count = chunk.len() as f64;
            let (x, y) = chunk.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
            (x / count, y / count)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_their_mean_and_none_is_lost() {
        let points: Vec<_> = (0..2_000).map(|i| (f64::from(i), 2.0 * f64::from(i))).collect();
        let thin = thinned(&points);
        assert_eq!(thin.len(), MOST_POINTS);
        assert_eq!(thin[0], (1.5, 3.0));
        assert_eq!(thinned(&points[..3]), points[..3]);
        assert_eq!(thinned(&[(1.0, f64::NAN), (2.0, 3.0)]), [(2.0, 3.0)]);
    }

    #[test]
    fn a_plot_of_nothing_can_be_drawn() {
        let plot = Plot {
            title: "nothing".to_owned(),
            unit: "ms",
            over: "s",
            marks: vec![("𝓛", 30.0)],
            lines: Box::new(|_| Vec::new()),
        };
        for lines in [vec![], vec![vec![(1.0, 1.0)]]] {
            let top = AxisTop::of(lines.iter().map(Vec::as_slice), 0.0);
            let drawn = drawing(&plot, &lines, top).unwrap();
            assert!(drawn.starts_with("<svg") && !drawn.contains("NaN") && !drawn.contains("inf"));
        }
    }
}
