//! `docs/reproduction.md`, made from the committed run, so that neither can drift from the other.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use tidegate_sim::experiments::Report;

use super::text::{figure, laws, spread, with_unit};

const RUN: &str = "bench/runs/2026-11-21-parda.json";

const HEAD: &str = "# The papers' experiments, repeated

    tidegate reproduce parda --report parda.html

simulates every experiment of the PARDA paper (Gulati, Ahmad, Waldspurger, FAST 2009) and says whether the paper's findings hold
for Tidegate. `--list` names the experiments, `--json` gives everything for a program, `--short` takes two seeds instead of ten, and
names select: `tidegate reproduce fig8 parda.table3`. The exit status is 1 when something differs. The simulator runs the laws,
schedulers and device models that the gateway runs; the scenarios are in [`scenarios/parda`](../scenarios/parda).

Each quantity was given its tolerance, with the reason, before anything ran
([`crates/tidegate-sim/src/experiments/parda`](../crates/tidegate-sim/src/experiments/parda) has both). It is judged by its mean over
the seeds; in brackets are the least and the greatest of them. Where the paper's numbers are its hardware's, its ratios and shapes are
judged. The array is the preset `fc-raid5`, fitted to the paper's unregulated figures and to nothing else.

This page is made from [the committed run](../bench/runs/2026-11-21-parda.json); a test compares them.
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(report: &Report, notes: &[(&str, &str)]) -> String {
    let agree = report.experiments.iter().filter(|one| one.ok).count();
    let mut out = HEAD.to_owned();
    let _ = write!(
        out,
        "\n## Verdicts\n\n{agree} of {} experiments agree, {} seeds.\n\n| experiment | shows | verdict |\n|---|---|---|\n",
        report.experiments.len(),
        report.seeds.len(),
    );
    for one in &report.experiments {
        let verdict = if one.ok { "agrees" } else { "**differs**" };
        let _ = writeln!(
            out,
            "| [`{}`](#{}) | {} | {verdict} |",
            one.id,
            one.id.replace('.', ""),
            one.title.replace('|', "\\|")
        );
    }
    for one in &report.experiments {
        let _ = write!(
            out,
            "\n## {}\n\n{}.\n\n*The paper:* {}\n\n*Here:* {}\n",
            one.id, one.title, one.paper, one.setup
        );
        for law in laws(one) {
            let _ = writeln!(out, "\nLaw: {law}.");
        }
        out.push_str("\n| quantity | paper | ours | agrees | verdict |\n|---|---|---|---|---|\n");
        for quantity in &one.quantities {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                quantity.name,
                quantity.paper.map_or("–".to_owned(), |paper| with_unit(&figure(paper), &quantity.unit)),
                with_unit(&spread(quantity.ours, &quantity.values), &quantity.unit),
                quantity.tolerance,
                if quantity.ok { "yes" } else { "**no**" },
            );
        }
        // The paper's hardware beside our model of it: for the reader, not for the verdict.
        for number in &one.figures {
            if let Some(paper) = number.paper {
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | | reported |",
                    number.name,
                    with_unit(&figure(paper), &number.unit),
                    with_unit(&spread(number.ours, &number.values), &number.unit),
                );
            }
        }
        let note = notes.iter().find(|(id, _)| *id == one.id).map(|(_, note)| note);
        match (one.ok, note) {
            (true, _) => {}
            (false, Some(note)) => {
                let _ = write!(out, "\n**Why it differs.** {note}\n");
            }
            (false, None) => panic!("{} differs: say why in the notes", one.id),
        }
    }
    out
}

/// Why an experiment differs, as far as is known. What agrees needs no note, and shows none.
const NOTES: &[(&str, &str)] = &[
    (
        "parda.table1",
        "Shares within a host hold while every machine is backlogged. The OLTP profile waits for its log, one small synchronous \
         write at a time: on host 1 the machine with more shares has fewer than 40 requests outstanding in 13 % of the \
         seconds, and its neighbour takes what it leaves, as a work-conserving scheduler should let it. The paper's machines \
         evidently filled their queues all the time. Between hosts the finding stands: shares do nothing there.",
    ),
    (
        "parda.fig4",
        "They do not drift apart as in fig. 3, where the ratio is above 20: it stays where it is. But each host follows its \
         own sample of response times, about 1700 in two seconds with a standard deviation as large as their mean, and K = 1 \
         pulls the windows together only with a time constant of 60 s. The noise was underestimated when the tolerance was \
         written: 200 s hold about three independent moments. It is one more reason for a common signal: with the mean of all \
         hosts the ratio is 1.00 (table 3).",
    ),
    (
        "parda.fig6",
        "Throughput is greatest at two and three hosts, which are equal to within 1 %, and response time goes on growing as in the \
         paper. But one host already gets 99 % of it: with 32 requests on ten disks that serve the nearest first, and writes \
         that wait in a cache, the modelled array is nearly busy. The paper's array gained more from the second and third host.",
    ),
    (
        "parda.table2",
        "The windows do what the paper says (throughput of the throttled hosts against the others falls to about 0.4 for half of \
         the queue, within the tolerance), and what the array prefers at 32 it prefers at 16: the ratio of the two throttled \
         hosts hardly moves. But it is not the one that we expected. The workloads are ours, and reads of which half follow \
         each other are no cheaper than random ones for these disks, when 32 of them are outstanding at once.",
    ),
    (
        "parda.table3",
        "The modelled disks serve the nearest request first and gain from each further one in their queues: with 105 requests \
         instead of 128 at the array throughput falls by about 1 %. The paper's array lost 0.3 %.",
    ),
    (
        "parda.fig8",
        "Windows and response time are as they should be. Disks that serve the nearest request first stay where most requests \
         are, so that the hosts with larger windows also get shorter response times, and 2:1 in slots becomes about 2.5:1 in \
         throughput. The paper says that throughput roughly follows the windows and that the array favours some hosts; ours \
         favours more strongly.",
    ),
    (
        "parda.fig9",
        "As in table 3: about 103 requests at the array instead of 192, and 2 % less throughput of disks that serve the nearest \
         request first. The paper's array delivered the same with both.",
    ),
    (
        "parda.fig10",
        "Eq. 3 gives β = 2 a window of 30.8 at the 3240 IO/s that our workloads get from the modelled array, and 32 only from \
         3375 IO/s on; the law is at its equilibrium, just below the bound. The workloads of the paper are not known here.",
    ),
    (
        "parda.fig12",
        "Windows are at 3:2 to within 1 %; but windows are slots, not throughput, and on the modelled array two effects stand \
         between them. In the order in which they are listed the disks of host 1 lie outermost, where this array is slower by \
         a seventh (fig. 3), which takes throughput away from it; and disks that serve the nearest request first favour \
         whoever has more requests (fig. 8), which gives some back. The paper's 1.37 errs in the same direction.",
    ),
    (
        "parda.fig12-placed",
        "With equally good places for all, the other effect remains alone: disks that serve the nearest request first favour the \
         host with more requests, and 1.5:1 in slots becomes about 1.7:1 in operations. The preset was fitted to unregulated \
         figures, in which all hosts have equally many requests, so that nothing in them could have shown this.",
    ),
    (
        "parda.per-vm",
        "A window for each machine divides slots, not throughput: a machine that the array serves faster gets more, where a \
         law per host leaves the division to a scheduler that counts requests. That, and the places of fig. 12, make the \
         difference; the small shares, on a server that favours nobody, agree to within 1 % with windows below one.",
    ),
    (
        "parda.table7",
        "The closed loop that stands for the databases turned out less bound by its storage than DVD store on the paper's array: \
         held back, the other one still does most of its orders. It was chosen beforehand for 1300 IO/s; the modelled disks do \
         more. Direction and cause are the paper's: more orders, shorter response times, and a favoured machine that does not \
         fill its window (fig. 15).",
    ),
];

#[test]
fn the_page_says_what_the_committed_run_found() {
    let json = std::fs::read_to_string(root().join(RUN)).expect("the committed run");
    let report: Report = serde_json::from_str(&json).expect("a report");
    let page = root().join("docs/reproduction.md");
    let expected = document(&report, NOTES);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &expected).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&page).expect("the page");
    assert!(found == expected, "run the tests once with UPDATE_DOCS=1, and commit docs/reproduction.md");
}
