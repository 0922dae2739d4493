//! The report: one HTML file that needs nothing else, for light and dark, screen and paper.

use std::fmt::Write;

use plotters::style::RGBColor;

use super::judge::DemoOutcome;
use super::plan::{DemoLaw, PhaseName, WRITERS};
use super::plots::{self, palette};
use super::text;
use super::timeline::{DemoTimeline, MeasuredPhase};
use tidegate_program::page::plot::{self, PlotError};
use tidegate_program::page::{self, dash, escape, swatch};

/// Writes the page. `configuration` is what would regulate the same volumes outside the demonstration.
///
/// # Errors
/// When a plot cannot be drawn.
pub(crate) fn write(
    timeline: &DemoTimeline,
    outcome: &DemoOutcome,
    configuration: &str,
) -> Result<String, PlotError> {
    let mut out = String::with_capacity(128 * 1024);
    page::begin(&mut out, "Tidegate demonstration", &DARK);
    header(&mut out, outcome);
    goals(&mut out, outcome);
    table(&mut out, outcome);
    time_plots(&mut out, timeline)?;
    let _ = write!(
        out,
        "<section>\n<h2>How long the reads took</h2>\n<p class=\"sub\">Every read of a phase counts, those \
            after \
         the start of a burst too.</p>\n{}{}</section>\n",
        legend(&[("target", palette::TARGET)]),
        plots::spread(timeline)?,
    );
    reasons(&mut out, timeline);
    let _ = write!(
        out,
        "<section>\n<h2>The same in production</h2>\n<p class=\"sub\">Adapt the paths, check it with \
         <code>tidegate check -c FILE</code>, run it with <code>tidegate serve -c FILE</code>.</p>\n\
         <pre><code>{}</code></pre>\n</section>\n",
        escape(configuration),
    );
    method(&mut out, timeline);
    page::end(&mut out);
    Ok(out)
}

fn header(out: &mut String, outcome: &DemoOutcome) {
    let _ = write!(
        out,
        "<header>\n<p class=\"eyebrow\">Tidegate demonstration · law <code>{}</code> · target {} · seed \
            {}</p>\n\
         <h1>{}</h1>\n</header>\n",
        outcome.law,
        text::millis(outcome.target_ms.as_millis_f64()),
        outcome.seed,
        // A figure stays on one line with its unit.
        escape(&text::headline(outcome)).replace(" ms", "&nbsp;ms").replace(" %", "&nbsp;%"),
    );
}

fn goals(out: &mut String, outcome: &DemoOutcome) {
    const TITLES: [&str; 4] = [
        "seconds within target, regulated, without the starts of bursts",
        "mean read, regulated",
        "mean read, unregulated",
        "throughput kept by the backups",
    ];
    out.push_str("<section class=\"goals\" aria-label=\"Goals\">\n");
    for (goal, title) in outcome.verdict.goals.iter().zip(TITLES) {
        let (class, mark) = if goal.met { ("met", "✓ met") } else { ("missed", "✗ missed") };
        let _ = writeln!(
            out,
            "<div class=\"goal {class}\"><p class=\"value\">{}</p><p>{title}</p>\
             <p class=\"mark\">{mark} <span>goal: {}</span></p></div>",
            text::measured(goal),
            text::wanted(goal),
        );
    }
    out.push_str("</section>\n");
}

fn table(out: &mut String, outcome: &DemoOutcome) {
    out.push_str("<section>\n<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">phase</th>");
    for column in text::COLUMNS {
        let _ = write!(out, "<th scope=\"col\">{column}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for phase in &outcome.phases {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}{}</th>",
            swatch(plots::phase_colour(phase.name)),
            phase.name
        );
        for cell in text::cells(phase) {
            let _ = write!(out, "<td>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    let _ = writeln!(out, "</tbody>\n</table></div>\n<p class=\"sub\">{}</p>", text::legend(outcome));
    if let Some(caution) = text::caution(outcome) {
        let _ = writeln!(out, "<p class=\"caution\">{caution}</p>");
    }
    out.push_str("</section>\n");
}

fn time_plots(out: &mut String, timeline: &DemoTimeline) -> Result<(), PlotError> {
    let set_point = if timeline.plan.finds_set_point() {
        "the most that the law's set point may be"
    } else {
        "set point of the law"
    };
    let _ = write!(
        out,
        "<section>\n<h2>What the database feels</h2>\n<p class=\"sub\">Mean response time of its 4 KiB reads \
            per \
         second, in ms{}. Shaded: the backups write.</p>\n{}{}</section>\n",
        if plots::latency_is_cut(timeline) { "; what is beyond the axis is drawn at its top" } else { "" },
        legend(&[("target", palette::TARGET), (set_point, palette::SET_POINT)]),
        plots::latency(timeline)?,
    );
    let _ = write!(
        out,
        "<section>\n<h2>What the backups get</h2>\n<p class=\"sub\">Bytes written per second by all \
            {WRITERS}, in \
         MB/s.</p>\n{}</section>\n",
        plots::throughput(timeline)?,
    );
    let (sub, plot) = match timeline.plan.law {
        DemoLaw::Auto | DemoLaw::Window => (
            "The window: how many requests all backups together may have outstanding at the array. A \
                fraction is a \
             share of the time; at 12, one for each backup, nothing is held.",
            plots::window(timeline)?,
        ),
        DemoLaw::Pid => (
            "The delay: how long each request of a backup waits before the array sees it, in ms.",
            plots::delay(timeline)?,
        ),
    };
    let _ =
        write!(out, "<section>\n<h2>What Tidegate does</h2>\n<p class=\"sub\">{sub}</p>\n{plot}</section>\n");
    Ok(())
}

fn reasons(out: &mut String, timeline: &DemoTimeline) {
    let decided: Vec<&MeasuredPhase> =
        timeline.phases.iter().filter(|phase| !phase.decisions.is_empty()).collect();
    if decided.is_empty() {
        return;
    }
    out.push_str(
        "<section>\n<h2>What was throttled, and why</h2>\n<p class=\"sub\">Some of the loop's decisions, in \
            its \
            own \
         words.</p>\n<ol class=\"log\">\n",
    );
    for phase in decided {
        for decision in &phase.decisions {
            let _ = writeln!(
                out,
                "<li><time>{} +{} s</time> {}</li>",
                phase.name,
                decision.at,
                escape(&decision.sentence)
            );
        }
    }
    out.push_str("</ol>\n</section>\n");
}

fn method(out: &mut String, timeline: &DemoTimeline) {
    let plan = &timeline.plan;
    let length = |name| plan.phases.iter().find(|phase| phase.name == name).map_or(0, |phase| phase.seconds);
    let _ = write!(
        out,
        "<section>\n<h2>How it was measured</h2>\n<p>An emulated stripe set of SATA disks (preset \
         <code>sata-stripe</code>, in real time) behind a Tidegate gateway; every client talks NBD to it \
         over a \
         Unix socket. The database reads 4 KiB at random places of its 4 GiB volume, 64 times a second \
         whether or not \
         the last read has returned, and its response time counts from the moment the read was due. \
         {WRITERS} \
         backups each write 256 KiB after 256 KiB, one at a time, and start and stop together: {} s on, {} s \
         off. \
         Phases: {} s alone; {} s with the backups and nothing throttled; {} s with the backups held by the \
         <code>{}</code> law, which sees response times at the array and knows nothing of the phases. Its \
         set \
         point is {}{}, so that the promise of {} holds although the law moves about its set \
         point.</p>\n</section>\n",
        plan.burst,
        plan.pause,
        length(PhaseName::Alone),
        length(PhaseName::Unregulated),
        length(PhaseName::Regulated),
        plan.law,
        if plan.finds_set_point() { "at most " } else { "" },
        text::millis(plan.set_point().as_millis_f64()),
        text::millis(plan.target.as_millis_f64()),
    );
}

fn legend(lines: &[(&str, RGBColor)]) -> String {
    let phases = [PhaseName::Alone, PhaseName::Unregulated, PhaseName::Regulated];
    let mut out = "<p class=\"legend\">".to_owned();
    for name in phases {
        let _ = write!(out, "<span>{}{name}</span>", swatch(plots::phase_colour(name)));
    }
    for (name, colour) in lines {
        let _ = write!(out, "<span>{}{name}</span>", dash(*colour));
    }
    out.push_str("</p>\n");
    out
}

/// Colours of the drawings, each with the colour that replaces it in the dark.
const DARK: [(RGBColor, &str); 8] = [
    plot::DARK[0],
    plot::DARK[1],
    (palette::BURST, "#1a222d"),
    (palette::ALONE, "#7aa7e0"),
    (palette::UNREGULATED, "#f0717f"),
    (palette::REGULATED, "#3ecf9f"),
    (palette::TARGET, "#f0a54a"),
    (palette::SET_POINT, "#8d8576"),
];

#[cfg(test)]
mod tests {
    use super::super::judge::judge;
    use super::super::timeline::tests::example;
    use super::*;

    fn example_page() -> String {
        let timeline = example();
        write(&timeline, &judge(&timeline), "[pool.sata]\nlaw = \"window\"\n").unwrap()
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = example_page();
        for foreign in
            ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe"]
        {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn the_page_has_everything_that_was_promised() {
        let page = example_page();
        for needed in [
            "<title>Tidegate demonstration</title>",
            "the database's reads took 40.0&nbsp;ms on average. With Tidegate they took 11.0&nbsp;ms",
            "✓ met",
            ">unregulated</th>",
            "72.1 %",
            "[pool.sata]\nlaw = &quot;window&quot;",
            "12 writers throttled to a window of 2.5",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(needed), "{needed}");
        }
        assert_eq!(page.matches("<svg width").count(), 4, "reads, backups, window, spread");
        for tag in ["section", "table", "tr", "td", "th", "p", "svg", "pre", "ol", "li", "h2"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn the_pid_law_shows_its_delay() {
        let mut timeline = example();
        timeline.plan.law = DemoLaw::Pid;
        let page = write(&timeline, &judge(&timeline), "").unwrap();
        assert!(page.contains("The delay: how long each request") && !page.contains("The window: how many"));
    }

    #[test]
    fn a_missed_goal_shows_and_text_is_escaped() {
        let mut timeline = example();
        timeline.phases[2].distribution.mean = tidegate_units::Latency::from_millis(99);
        timeline.phases[2].decisions[0].sentence = "<b>&\"".to_owned();
        let page = write(&timeline, &judge(&timeline), "").unwrap();
        assert!(page.contains("✗ missed"));
        assert!(page.contains("&lt;b&gt;&amp;&quot;") && !page.contains("<b>"));
    }
}
