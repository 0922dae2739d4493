//! The pages of `docs/reproduction`, made from the committed runs and the words about the experiments, so
//! that none can drift from the others.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use tidegate_experiments::{
    ExperimentReport, ExperimentTexts, ExperimentVerdict, QuantityReport, ReproductionReport,
    experiment_texts, paper_texts,
};
use tidegate_program::wrap;

use super::text::{figure, spread};

/// The committed run of each paper, in the order of [`paper_texts`].
const RUNS: [&str; 5] = [
    "bench/runs/2026-11-27-parda.json",
    "bench/runs/2026-11-27-bjorgeengen.json",
    "bench/runs/2026-11-28-lee.json",
    "bench/runs/2026-11-27-nikolow.json",
    "bench/runs/2026-11-27-triage.json",
];

/// The runs before these, on seeds 1 to 10.
const RUNS_BEFORE: [&str; 5] = [
    "bench/runs/2026-11-21-parda.json",
    "bench/runs/2026-11-21-bjorgeengen.json",
    "bench/runs/2026-11-22-lee.json",
    "bench/runs/2026-11-23-nikolow.json",
    "bench/runs/2026-11-23-triage.json",
];

/// The folder of the pages.
const PAGES: &str = "docs/reproduction";

/// The beginning of the summary.
const HEAD: &str = include_str!("document_head.txt");

/// Lines of prose end here.
const WIDTH: usize = 110;

/// So many quantities are shown whatever they are.
const FEW: usize = 3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn committed<T: DeserializeOwned>(run: &str) -> T {
    let json = std::fs::read_to_string(root().join(run)).expect("the committed run");
    serde_json::from_str(&json).expect("a report")
}

fn words(report: &ExperimentReport) -> &'static ExperimentTexts {
    experiment_texts(&report.id).expect("the words about a committed experiment")
}

/// Breaks prose into lines.
fn wrapped(text: &str) -> String {
    wrap(text, WIDTH)
}

/// An item of a list, with its further lines under its text.
fn wrapped_item(item: &str) -> String {
    wrap(item, WIDTH - 2).replace('\n', "\n  ")
}

/// The part up to a full stop before a capital letter, without the stop: "fig. 9" is no end.
fn first_sentence(text: &str) -> &str {
    let ends = text.match_indices(". ").map(|(at, _)| at);
    let capital = |at: &usize| text[at + 2..].starts_with(char::is_uppercase);
    text[..ends.into_iter().find(capital).unwrap_or(text.len())].trim_end_matches('.')
}

/// A heading's anchor, as the usual viewers make it.
fn anchor(id: &str) -> String {
    id.replace('.', "")
}

fn agreement(report: &ReproductionReport) -> String {
    format!("{} of {} experiments agree", report.count(ExperimentVerdict::Agrees), report.experiments.len())
}

fn paper_page(head: &str, run: &str, report: &ReproductionReport) -> String {
    let mut page = format!("{}\n\n", head.trim());
    let agree = agreement(report);
    let made = format!(
        "**{agree}** under {} seeds ([run](../../{run})). [Summary](README.md) of all papers.",
        report.seeds.len()
    );
    let _ = writeln!(page, "{}", wrapped(&made));
    for experiment in &report.experiments {
        section(&mut page, experiment);
    }
    page
}

fn section(page: &mut String, experiment: &ExperimentReport) {
    let texts = words(experiment);
    let verdict = if experiment.ok { "Agrees" } else { "**Differs**" };
    let _ = write!(
        page,
        "\n## {}\n\n{}\n\n{}\n\n{}\n\n",
        experiment.id,
        wrapped(&format!("{}. {verdict}.", texts.title)),
        wrapped(&format!("*The paper:* {}", texts.paper)),
        wrapped(&format!("*Here:* {}", texts.setup)),
    );
    results(page, &experiment.quantities, texts);
    if !texts.differs.is_empty() {
        let _ = writeln!(page, "\n{}", wrapped(&format!("*Why it differs:* {}", texts.differs)));
    }
}

/// The table of results: what differs, and what the paper has a figure for. Other quantities are counted,
/// unless there are few.
fn results(page: &mut String, quantities: &[QuantityReport], texts: &ExperimentTexts) {
    let worth_a_row = |quantity: &&QuantityReport| !quantity.ok || quantity.paper.is_some();
    let counted = quantities.len() - quantities.iter().filter(worth_a_row).count();
    let all = quantities.len() <= FEW || counted < 2;
    let papers = quantities.iter().any(|quantity| quantity.paper.is_some());
    for (place, claim) in texts.claims.iter().enumerate() {
        let said = format!("- *{}.* {}", letter(place), claim.says);
        let _ = writeln!(page, "{}", wrapped_item(&said));
    }
    page.push_str(if papers {
        "\n| quantity | paper | ours | agrees if | judges |\n|---|---|---|---|---|\n"
    } else {
        "\n| quantity | ours | agrees if | judges |\n|---|---|---|---|\n"
    });
    for quantity in quantities.iter().filter(|quantity| all || worth_a_row(quantity)) {
        let unit = if quantity.unit.is_empty() { String::new() } else { format!(", {}", quantity.unit) };
        let paper = quantity.paper.map_or("–".to_owned(), figure);
        let _ = writeln!(
            page,
            "| {}{unit} {}| {}{} | {} | {} |",
            quantity.name,
            if papers { format!("| {paper} ") } else { String::new() },
            if quantity.ok { "" } else { "✗ " },
            spread(quantity.ours, &quantity.values),
            quantity.tolerance,
            texts.claim_of(&quantity.name).map_or(String::new(), letter),
        );
    }
    if !all {
        let _ = writeln!(page, "\n{counted} more agree; the paper has no figure for them.");
    }
}

/// The letter of a statement by its place: there are fewer of them than letters.
fn letter(place: usize) -> String {
    char::from(b'a' + u8::try_from(place).unwrap_or(u8::MAX - b'a')).to_string()
}

fn summary_page(reports: &[(&str, ReproductionReport)]) -> String {
    let mut page = HEAD.to_owned();
    for (paper, report) in reports {
        let (_, texts) = paper_texts().iter().find(|(own, _)| own == paper).expect("a paper with words");
        let name = texts.head.trim().lines().next().unwrap_or_default().trim_start_matches("# ");
        let link = |one: &ExperimentReport| {
            let (_, short) = one.id.split_once('.').expect("paper.what");
            format!("[{short}]({paper}.md#{})", anchor(&one.id))
        };
        let agree: Vec<_> = report.experiments.iter().filter(|one| one.ok).map(link).collect();
        let agree = format!("[{}]({paper}.md): {}.", agreement(report), agree.join(", "));
        let _ = write!(page, "\n## {name}\n\n{}\n\n| differs | because |\n|---|---|\n", wrapped(&agree));
        for one in report.experiments.iter().filter(|one| !one.ok) {
            let because = first_sentence(&words(one).differs);
            assert!(because.split(' ').count() <= 25, "{}: the first sentence is the summary", one.id);
            let _ = writeln!(page, "| {} | {because} |", link(one));
        }
    }
    page
}

/// The verdicts that changed since the runs before, in both directions.
fn changes(reports: &[(&str, ReproductionReport)], before: &[ReproductionReport]) -> String {
    let mut lists = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for ((paper, report), old) in reports.iter().zip(before) {
        for one in &report.experiments {
            let link = format!("[{}]({paper}.md#{})", one.id, anchor(&one.id));
            match old.experiments.iter().find(|old| old.id == one.id).map(|old| old.ok) {
                None => lists[2].push(link),
                Some(true) if !one.ok => lists[0].push(link),
                Some(false) if one.ok => lists[1].push(link),
                Some(_) => {}
            }
        }
        let gone = |old: &&ExperimentReport| report.experiments.iter().all(|one| one.id != old.id);
        lists[3].extend(old.experiments.iter().filter(gone).map(|old| format!("`{}`", old.id)));
    }
    let mut page = "\n## Verdicts that changed\n\n".to_owned();
    page.push_str(&wrapped(
        "The runs before these had seeds 1 to 10, with some of which in view laws and experiments had been \
         changed. Each page lists what is judged otherwise since.",
    ));
    page.push_str("\n\n");
    let names = ["agreed, differ now", "differed, agree now", "are new", "are gone"];
    for (name, list) in names.into_iter().zip(lists).filter(|(_, list)| !list.is_empty()) {
        let item = format!("- {} {name}: {}.", list.len(), list.join(", "));
        let _ = writeln!(page, "{}", wrapped_item(&item));
    }
    page
}

/// In both directions: nothing differs without a reason, and no reason outlives its difference.
#[test]
fn what_differs_in_the_committed_runs_is_exactly_what_is_known_to() {
    for one in RUNS.into_iter().flat_map(|run| committed::<ReproductionReport>(run).experiments) {
        let missed: Vec<_> = one.quantities.iter().filter(|quantity| !quantity.ok).collect();
        let known = &words(&one).known;
        let mut names: Vec<_> = missed.iter().map(|quantity| &quantity.name).collect();
        names.sort();
        assert_eq!(names, known.keys().collect::<Vec<_>>(), "{}", one.id);
        for quantity in missed {
            let (least, greatest) = known[&quantity.name];
            let mut values = quantity.values.iter().flatten();
            assert!(values.all(|value| (least..=greatest).contains(value)), "{}: {}", one.id, quantity.name);
        }
    }
}

#[test]
fn the_pages_say_what_the_committed_runs_found() {
    let papers = paper_texts().iter().zip(RUNS);
    let reports: Vec<_> =
        papers.clone().map(|((paper, _), run)| (*paper, committed::<ReproductionReport>(run))).collect();
    let before: Vec<_> = RUNS_BEFORE.into_iter().map(committed::<ReproductionReport>).collect();
    let summary = summary_page(&reports) + &changes(&reports, &before);
    let mut pages = vec![("README".to_owned(), summary)];
    for (((paper, texts), run), (_, report)) in papers.zip(&reports) {
        assert!(report.experiments.iter().all(|one| one.id.starts_with(paper)), "{run} is of {paper}");
        pages.push(((*paper).to_owned(), paper_page(&texts.head, run, report)));
    }
    for (name, expected) in pages {
        let path = root().join(PAGES).join(format!("{name}.md"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &expected).expect("the page can be written");
        }
        let found = std::fs::read_to_string(&path).expect("the page");
        assert!(found == expected, "run the tests once with UPDATE_DOCS=1, and commit {}", path.display());
    }
}

#[test]
fn a_sentence_ends_before_a_capital_letter() {
    assert_eq!(first_sentence("In fig. 9 it falls by 2.7 %. Why is known."), "In fig. 9 it falls by 2.7 %");
    assert_eq!(first_sentence("The only one."), "The only one");
}

#[test]
fn prose_is_broken_at_the_width_and_nowhere_else() {
    let lines = wrapped(&"word ".repeat(50));
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.lines().all(|line| line.chars().count() <= WIDTH));
    assert_eq!(wrapped("two  words"), "two words");
}
