//! The report: the classes and all scenarios on one page that needs nothing else.

use std::fmt::Write;

use tidegate_experiments::arena::{ArenaDocument, ScenarioFigures};

use super::text::{self, COLUMNS, figure};
use tidegate_program::page::{self, escape};

/// Returns the page.
pub(super) fn write(document: &ArenaDocument, worst: usize) -> String {
    let mut out = String::with_capacity(1 << 16);
    page::begin(&mut out, "Tidegate: the arena", &[]);
    let _ = write!(
        out,
        "<header>\n<p class=\"eyebrow\">The arena: random storage in Tidegate's simulator</p>\n\
         <h1>{}</h1>\n</header>\n<section>\n<p>Every scenario is compared with doing nothing and with the \
         best static setting that keeps the target. Fractions; each cell has the median and the percentile \
         at its bad end (95th or 5th).</p>\n</section>\n",
        escape(&text::heading(document))
    );
    classes(&mut out, document);
    worst_ones(&mut out, document, worst);
    scenarios(&mut out, document);
    page::end(&mut out);
    out
}

fn head(out: &mut String, first: &[&str]) {
    out.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for title in first.iter().copied().chain(COLUMNS.map(|(_, title)| title)) {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(title));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
}

fn classes(out: &mut String, document: &ArenaDocument) {
    out.push_str("<section>\n<h2>Classes</h2>\n");
    head(out, &["class", "n"]);
    for row in text::rows(document) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th><td>{}</td>", escape(&row.name), row.count);
        for cell in &row.cells {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

fn worst_ones(out: &mut String, document: &ArenaDocument, worst: usize) {
    out.push_str("<section>\n<h2>The worst scenarios</h2>\n");
    for one in document.worst(worst) {
        let _ = writeln!(
            out,
            "<p><b>{}</b> {}<br><code>{}</code></p>",
            escape(&one.id),
            escape(&text::summary_of(one)),
            escape(&text::replay(document, one))
        );
    }
    out.push_str("</section>\n");
}

fn scenarios(out: &mut String, document: &ArenaDocument) {
    out.push_str("<section>\n<details>\n<summary>All scenarios</summary>\n");
    head(out, &["scenario", "attainable"]);
    for one in &document.scenarios {
        let attainable = if one.attainable { "yes" } else { "no" };
        let _ = write!(out, "<tr><th scope=\"row\">{}</th><td>{attainable}</td>", escape(&one.id));
        for value in figures(one) {
            let _ = write!(out, "<td>{}</td>", value.map_or("–".to_owned(), figure));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n</details>\n</section>\n");
}

/// The figures in the order of the columns.
fn figures(one: &ScenarioFigures) -> [Option<f64>; COLUMNS.len()] {
    [
        Some(one.seconds_above_target),
        one.throughput_vs_oracle,
        one.least_served,
        one.throughput_vs_unregulated,
        one.latency_vs_unregulated,
        one.settling_s,
        one.share_error,
        one.oscillation,
        Some(one.harm),
    ]
}
