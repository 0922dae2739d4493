//! The statement as one page that needs nothing else, for screen and paper.

use std::fmt::Write;
use std::ops::Range;

use plotters::prelude::*;
use tidegate_service::statement::{DayFigures, MonthStatement, SpanFigures};
use tidegate_service::status::KEPT;
use tidegate_units::{Bytes, Iops, Latency};

use super::text::{COLUMNS, LEGEND, day_rows, grouped, headline, kept_part, per_cent, row, sentences};
use tidegate_program::page::plot::{self, PlotError, svg};
use tidegate_program::page::{self, dash, escape, swatch};

const PART: RGBColor = RGBColor(0x0F, 0x8B, 0x6D);
const LIMIT: RGBColor = RGBColor(0xC8, 0x3E, 0x4D);
const STORAGE: RGBColor = RGBColor(0x47, 0x73, 0xAA);
const CLIENT: RGBColor = RGBColor(0xB0, 0x7A, 0x1E);

const DARK: [(RGBColor, &str); 6] = [
    plot::DARK[0],
    plot::DARK[1],
    (PART, "#3ecf9f"),
    (LIMIT, "#f0717f"),
    (STORAGE, "#7aa7e0"),
    (CLIENT, "#e0b060"),
];

/// Writes the page.
///
/// # Errors
/// When a plot cannot be drawn.
pub(super) fn write(statement: &MonthStatement) -> Result<String, PlotError> {
    let mut out = String::with_capacity(1 << 16);
    let title = format!("{}, {}", statement.consumer, statement.month);
    page::begin(&mut out, &title, &DARK);
    let _ = write!(
        out,
        "<header>\n<p class=\"eyebrow\">Tidegate statement · {} · on {}</p>\n<h1>{}</h1>\n</header>\n",
        escape(&title),
        escape(&statement.resources.join(", ")),
        escape(&headline(statement)),
    );
    out.push_str("<section>\n");
    for sentence in sentences(statement) {
        let _ = writeln!(out, "<p>{}.</p>", escape(&capitalised(&sentence)));
    }
    out.push_str("</section>\n");
    goals(&mut out, &statement.total);
    plots(&mut out, statement)?;
    table(&mut out, statement);
    page::end(&mut out);
    Ok(out)
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn goals(out: &mut String, total: &SpanFigures) {
    let kept = kept_part(total);
    let (class, mark) = match kept.map(|part| part >= KEPT) {
        Some(true) => (" met", "✓ kept"),
        Some(false) => (" missed", "✗ not kept"),
        None => ("", "not judged"),
    };
    let minutes = &total.minutes;
    let latency = |seconds: Option<f64>| {
        seconds.map_or_else(|| "–".to_owned(), |seconds| Latency::from_secs_f64(seconds).to_string())
    };
    let throughput = Bytes::new(total.read_bytes.saturating_add(total.written_bytes));
    let boxes = [
        (class, kept.map_or_else(|| "–".to_owned(), per_cent), "of the promise", mark.to_owned()),
        ("", grouped(minutes.unknown), "minutes unknown", format!("of {}", grouped(minutes.total))),
        ("", grouped(total.requests), "requests", throughput.to_string()),
        ("", latency(total.client_seconds), "mean latency of the client", {
            format!("{} at the storage", latency(total.storage_seconds))
        }),
    ];
    out.push_str("<section class=\"goals\" aria-label=\"The month\">\n");
    for (class, value, title, mark) in boxes {
        let _ = writeln!(
            out,
            "<div class=\"goal{class}\"><p class=\"value\">{value}</p><p>{title}</p><p \
             class=\"mark\">{mark}</p></div>"
        );
    }
    out.push_str("</section>\n");
}

fn plots(out: &mut String, statement: &MonthStatement) -> Result<(), PlotError> {
    let first = statement.days.first().map_or(1, |day| day.day);
    let days = f64::from(first) - 0.5..f64::from(statement.month.days()) + 0.5;
    let by_day = |value: &dyn Fn(&SpanFigures) -> Option<f64>| -> Vec<(f64, f64)> {
        let point = |day: &DayFigures| Some((f64::from(day.day), value(&day.figures)?));
        statement.days.iter().filter_map(point).collect()
    };
    let _ = writeln!(
        out,
        "<section>\n<h2>Kept</h2>\n<p class=\"sub\">per cent of the promise, each judged day</p>\n\
         <p class=\"legend\"><span>{}kept</span><span>{}{} counts as kept</span></p>",
        swatch(PART),
        dash(LIMIT),
        per_cent(KEPT),
    );
    let kept = by_day(&|figures| kept_part(figures).map(|part| 100.0 * part));
    out.push_str(&bars(&days, 100.0, &kept, PART, Some(100.0 * KEPT))?);
    out.push_str("</section>\n");

    let millis = |seconds: Option<f64>| seconds.map(|seconds| 1e3 * seconds);
    let storage = by_day(&|figures| millis(figures.storage_seconds));
    let client = by_day(&|figures| millis(figures.client_seconds));
    if !storage.is_empty() || !client.is_empty() {
        let _ = writeln!(
            out,
            "<section>\n<h2>Latency</h2>\n<p class=\"sub\">mean of each day in ms</p>\n<p \
             class=\"legend\"><span>{}client, less the network</span><span>{}storage</span></p>",
            swatch(CLIENT),
            swatch(STORAGE),
        );
        out.push_str(&lines(&days, &[(CLIENT, client), (STORAGE, storage)])?);
        out.push_str("</section>\n");
    }
    let rates = by_day(&|figures| figures.iops);
    let greatest =
        statement.total.peak_iops.map_or_else(|| "–".to_owned(), |iops| Iops::new(iops).to_string());
    let _ = writeln!(
        out,
        "<section>\n<h2>Throughput</h2>\n<p class=\"sub\">requests per second, mean of each day; the busiest \
         minute of the month had {greatest}</p>"
    );
    let top = rates.iter().map(|point| point.1).fold(0.0, f64::max).max(1.0);
    out.push_str(&bars(&days, 1.08 * top, &rates, STORAGE, None)?);
    out.push_str("</section>\n");
    Ok(())
}

fn bars(
    days: &Range<f64>,
    top: f64,
    points: &[(f64, f64)],
    colour: RGBColor,
    line: Option<f64>,
) -> Result<String, PlotError> {
    svg(240, |area| {
        let mut chart = plot::axes(area, days.clone(), 0.0..top, None)?;
        let bars = points
            .iter()
            .map(|&(day, value)| Rectangle::new([(day - 0.4, 0.0), (day + 0.4, value)], colour.filled()));
        chart.draw_series(bars).map_err(PlotError::new)?;
        if let Some(value) = line {
            let ends = [(days.start, value), (days.end, value)];
            let dashed = DashedLineSeries::new(ends, 7, 4, LIMIT.stroke_width(2));
            chart.draw_series(dashed).map_err(PlotError::new)?;
        }
        Ok(())
    })
}

fn lines(days: &Range<f64>, lines: &[(RGBColor, Vec<(f64, f64)>)]) -> Result<String, PlotError> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let top = all().map(|point| point.1).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    svg(240, |area| {
        let mut chart = plot::axes(area, days.clone(), 0.0..1.08 * top, None)?;
        for (colour, points) in lines {
            // A line between two days would tell of the days between.
            let runs = points.chunk_by(|(day, _), (next, _)| next - day < 1.5);
            for run in runs {
                let line = LineSeries::new(run.iter().copied(), colour.stroke_width(2));
                chart.draw_series(line).map_err(PlotError::new)?;
                let dots = run.iter().map(|&point| Circle::new(point, 3, colour.filled()));
                chart.draw_series(dots).map_err(PlotError::new)?;
            }
        }
        Ok(())
    })
}

fn table(out: &mut String, statement: &MonthStatement) {
    out.push_str("<section>\n<h2>Days</h2>\n<div class=\"scroll\"><table class=\"small\">\n<thead><tr>");
    for column in COLUMNS {
        let _ = write!(out, "<th scope=\"col\">{column}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for cells in day_rows(statement).into_iter().chain([row("month".to_owned(), &statement.total)]) {
        let mut cells = cells.into_iter();
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
