//! Experiments and verdicts in words and figures, as a terminal shows them. Pure.

use std::fmt::Write;

use serde_json::json;
use tidegate_experiments::{
    Experiment, ExperimentReport, ExperimentVerdict, LawReport, PidReport, ReproductionReport,
};

/// Returns the list of experiments, one line each.
pub(super) fn list(experiments: &[Experiment]) -> String {
    let width = experiments.iter().map(|experiment| experiment.id.len()).max().unwrap_or(0);
    let mut out = String::new();
    for experiment in experiments {
        let _ = writeln!(out, "{:<width$}  {}", experiment.id, experiment.texts.title);
    }
    out
}

/// Returns the list of experiments as a document.
pub(super) fn list_json(experiments: &[Experiment]) -> String {
    let list: Vec<_> = experiments
        .iter()
        .map(|experiment| {
            let quantities: Vec<_> = experiment
                .quantities
                .iter()
                .map(|quantity| {
                    json!({
                        "name": quantity.name,
                        "unit": quantity.unit,
                        "paper": quantity.paper,
                        "tolerance": quantity.accepts.to_string(),
                        "reason": experiment.texts.tolerances,
                    })
                })
                .collect();
            json!({
                "id": experiment.id,
                "title": experiment.texts.title,
                "paper": experiment.texts.paper,
                "setup": experiment.texts.setup,
                "quantities": quantities,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "experiments": list }))
}

/// The verdicts.
pub(super) fn table(report: &ReproductionReport) -> String {
    let mut out = String::new();
    for experiment in &report.experiments {
        let mark = match experiment.verdict() {
            ExperimentVerdict::Agrees => "agrees ",
            ExperimentVerdict::DiffersAsKnown => "differs",
            ExperimentVerdict::Differs => "DIFFERS",
        };
        let _ = writeln!(out, "{mark}  {}  {}", experiment.id, experiment.title);
        for law in laws(experiment) {
            let _ = writeln!(out, "         law: {law}");
        }
        for quantity in &experiment.quantities {
            let _ = writeln!(
                out,
                "    {}  {}: {} (agrees: {}{}{})",
                if quantity.ok { "ok " } else { "NOT" },
                quantity.name,
                with_unit(&spread(quantity.ours, &quantity.values), &quantity.unit),
                with_unit(&quantity.tolerance, &quantity.unit),
                quantity.paper.map_or(String::new(), |paper| format!("; paper: {}", figure(paper))),
                if quantity.seeds_ok < quantity.values.len() {
                    format!("; {} of {} seeds", quantity.seeds_ok, quantity.values.len())
                } else {
                    String::new()
                },
            );
        }
        for number in &experiment.figures {
            let _ = writeln!(
                out,
                "         {}: {}{}",
                number.name,
                with_unit(&spread(number.ours, &number.values), &number.unit),
                number.paper.map_or(String::new(), |paper| format!(" (paper: {})", figure(paper))),
            );
        }
        if let Some(because) = &experiment.known_difference {
            let _ = writeln!(out, "         why: {because}");
        }
    }
    let _ = writeln!(out, "{}, {} seeds.", summary(report), report.seeds.len());
    out
}

/// Returns the numbers of experiments that agree, differ as is known, and differ otherwise.
pub(super) fn summary(report: &ReproductionReport) -> String {
    let mut text = format!(
        "{} of {} experiments agree with their papers",
        report.count(ExperimentVerdict::Agrees),
        report.experiments.len()
    );
    let known = report.count(ExperimentVerdict::DiffersAsKnown);
    if known > 0 {
        let _ = write!(text, "; {known} differ as is known");
    }
    let unknown = report.count(ExperimentVerdict::Differs);
    if unknown > 0 {
        let _ = write!(text, "; {unknown} DIFFER otherwise");
    }
    text
}

/// The laws of all runs of an experiment, each once.
pub(super) fn laws(experiment: &ExperimentReport) -> Vec<String> {
    let mut laws: Vec<String> = Vec::new();
    let pids = experiment.runs.iter().filter_map(|run| run.pid.as_ref()).map(pid);
    for law in experiment.runs.iter().flat_map(|run| &run.laws).map(law).chain(pids) {
        if !laws.contains(&law) {
            laws.push(law);
        }
    }
    laws
}

fn law(law: &LawReport) -> String {
    format!(
        "𝓛 = {} ms, K = {} per {}, γ = {}, {}, every {} s, window {} to {}, by {} latency",
        figure(law.set_point_ms),
        law.k,
        law.k_per,
        law.gamma,
        law.alpha_past_weight
            .map_or("smoothed by time".to_owned(), |past| format!("α = {past} as the weight of the past")),
        law.interval_s,
        law.window.0,
        law.window.1,
        law.signal,
    )
}

fn pid(pid: &PidReport) -> String {
    format!(
        "set point {} ms, K_p = {}, T_i = {} s, T_d = {} s, every {} s, {}, delays in steps of {} ms to {} \
            ms of packets \
         `{}`, for {}",
        figure(pid.set_point_ms),
        pid.proportional_gain,
        pid.integral_time_s,
        pid.derivative_time_s,
        pid.interval_s,
        pid.smoothing_s.map_or("smoothed by interval".to_owned(), |time| format!("smoothed over {time} s")),
        pid.step_ms,
        pid.greatest_ms,
        pid.packets,
        pid.members,
    )
}

/// The mean, and how far the seeds lie apart.
pub(super) fn spread(ours: Option<f64>, values: &[Option<f64>]) -> String {
    let Some(ours) = ours else { return "not measured".to_owned() };
    let measured = || values.iter().flatten().copied();
    let (least, most) =
        (measured().fold(f64::INFINITY, f64::min), measured().fold(f64::NEG_INFINITY, f64::max));
    if values.len() < 2 || figure(least) == figure(most) {
        figure(ours)
    } else {
        format!("{} [{}…{}]", figure(ours), figure(least), figure(most))
    }
}

/// A number with its unit.
pub(super) fn with_unit(number: &str, unit: &str) -> String {
    if unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

/// A number with as many digits as matter.
pub(super) fn figure(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    // What rounds to nothing has no sign.
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        for (value, text) in [
            (3360.4, "3360"),
            (37.04, "37"),
            (2.14, "2.14"),
            (0.8634, "0.863"),
            (0.0, "0"),
            (-0.0004, "0"),
            (-1.5, "-1.5"),
            (100.0, "100"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn a_spread_is_shown_where_there_is_one() {
        assert_eq!(spread(Some(2.0), &[Some(1.9), Some(2.1)]), "2 [1.9…2.1]");
        assert_eq!(spread(Some(2.0), &[Some(2.0001), Some(1.9999)]), "2");
        assert_eq!(spread(None, &[Some(2.0), None]), "not measured");
    }
}
