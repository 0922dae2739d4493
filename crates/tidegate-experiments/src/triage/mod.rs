//! Triage: M. Karlsson, C. Karamanolis, X. Zhu, *Triage: Performance Isolation and Differentiation for
//! Storage Systems*, IWQoS 2004.
//!
//! The paper's figures are lost in the text, and with them operating points, latency goals and request sizes.
//! Unless an experiment says otherwise:
//!
//! - A storage is some servers with exponential service times, as many requests per second as below. Clients
//!   have one request outstanding each, there are eight (§3.1), and throttlers release evenly.
//! - The law decides every second. λ and u_max are not in the text: λ is the default, and u_max what the
//!   storage can do.
//! - Figures are judged with the default law, which docs/guide/bands.md describes. The variant `literal`,
//!   figure 6 to the letter, has an experiment of its own. There λ is 1, as in equations 11 to 13.
//! - Clients of a workload share a regulator, as one consumer with several requests outstanding.
//! - A storage meets a goal at the first second whose mean is within 30 % of it when the mean over five
//!   seconds from there is within 20 %: a second of the disk has some 130 requests that wait for each other,
//!   and their mean is off by a tenth or more by chance.
//!
//! Storages are fitted to the paper's figures without a law, before any law ran:
//!
//! | storage | requests per second | servers | fitted to |
//! |---|---|---|---|
//! | cache | 1140 | 3 | the gain of its model in §3.2, the small part of α in it, and table 2 |
//! | disk | 195 | 3 | the gain of its model in §3.2, the small part of α in it, and table 2 |
//! | one server | 647 | 1 | figure 10: 500 IO/s meet 4 ms |
//! | two servers | 826 | 1 | figure 10: 700 IO/s meet 4 ms |
//!
//! The gain of the cache's model is 0.003827 / (1 − 0.04554) = 0.00401 ms per IO/s, that of the disk's model
//! 0.1378 ms per IO/s. A disk of 15 000 rpm with seeks of 3.6 ms does 170 requests per second, and more with
//! some requests to choose from.
//!
//! The extent of the paper's noise is lost with its figures, and it does not say how many requests its
//! servers serve at once. For cache and disk both are the same, and were found together, by a program of its
//! own, without any law. It tried one to eight servers, and operating points from 0.2 to 0.8 up to 0.8 to 1.3
//! of the capacity. It took the least squares of all ten R² of table 2 and both α that figure 3 and table 2
//! accept. They are three servers, from 0.6 to 1.1 of the capacity. Two servers, from 0.4 to 1, come next; a
//! single one has too much α in all of these.

mod identification;
mod literal;
mod regulation;
mod sharing;

use tidegate_sim::Scenario;

use super::{Experiment, NamedRun, RunResult, TimeSpan};

/// All of the paper's experiments, in its order, then the variant `literal`, and what is beyond it.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        identification::table2(),
        identification::fig3(),
        identification::fig4(),
        regulation::fig5(),
        regulation::fig7(),
        regulation::fig8(),
        sharing::fig9(),
        sharing::fig10(),
        literal::literal(),
        regulation::single(),
    ]
}

/// Requests per second of the two extreme storages, and how many each serves at once.
const CACHE: f64 = 1140.0;
const DISK: f64 = 195.0;
const SERVERS: u32 = 3;

/// The way in which the operating point is found.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TriageLaw {
    /// K_I of eq. 2.
    Fixed(f64),
    /// The variant `literal`.
    Literal {
        /// u_max in IO/s.
        greatest: f64,
        /// λ.
        forgetting: f64,
    },
    /// The variant `improved`.
    Improved,
}

impl TriageLaw {
    /// Figure 6 with the estimator of equations 11 to 13.
    const fn literal(greatest: f64) -> Self {
        Self::Literal { greatest, forgetting: 1.0 }
    }

    fn keys(self) -> String {
        match self {
            Self::Fixed(gain) => format!("self_tuning = {{ gain = {gain:.1} }}"),
            // The paper's u_min is zero, of which a rate cannot be written.
            Self::Literal { greatest, forgetting } => format!(
                "self_tuning = {{ variant = \"literal\", least = \"0.001 IO/s\", \
                 greatest = \"{greatest} IO/s\", forgetting = {forgetting:.1}, reset_change = 0.3 }}"
            ),
            Self::Improved => {
                "self_tuning = { variant = \"improved\", forgetting = 0.7, reset_change = 0.3 }".to_owned()
            }
        }
    }
}

/// Clients of some workloads on a storage: `storage`, `host` and `vms` are the tables' keys.
fn run(name: &str, seconds: u32, storage: &str, law: TriageLaw, host: &str, vms: &str) -> NamedRun {
    let text = format!(
        r#"
name = "triage: {name}"
duration = "{seconds}s"

[array.storage]
{storage}

[host.clients]
law = "self-tuning"
set_point = 1.0
interval = "1s"
{host}
{law}

{vms}

[workload.eight]
outstanding = 8

[workload.four]
outstanding = 4
"#,
        law = law.keys()
    );
    let scenario = Scenario::parse("embedded", &text)
        .unwrap_or_else(|error| panic!("a scenario of ours is wrong: {error}"));
    NamedRun::new(name, scenario)
}

/// From `from` on, after how many seconds a number of every second meets what it is to be: its own within 30
/// %, and its mean over five seconds from there within 20 %. All the time until `until` where it never does;
/// `None` where there is nothing at all.
fn met(number: impl Fn(TimeSpan) -> Option<f64>, goal: f64, from: f64, until: f64) -> Option<f64> {
    number(TimeSpan::new(from, until))?;
    let near = |span, part: f64| number(span).is_some_and(|found| (found / goal - 1.0).abs() <= part);
    let seconds = (until - from) as u32;
    let first = (0..seconds.saturating_sub(5)).map(|second| from + f64::from(second)).find(|&second| {
        near(TimeSpan::new(second, second + 1.0), 0.3) && near(TimeSpan::new(second, second + 5.0), 0.2)
    });
    Some(first.unwrap_or(until) - from)
}

/// Returns the deviation of 1 s means from a goal: the root of the mean square, as a part of the goal. A
/// second without a request is off by all.
fn deviation(run: &RunResult, goal: f64, span: TimeSpan) -> Option<f64> {
    run.latency(span)?;
    let seconds = (span.to - span.from) as u32;
    let squares = (0..seconds).map(|second| {
        let begin = span.from + f64::from(second);
        let found = run.latency(TimeSpan::new(begin, begin + 1.0)).unwrap_or(0.0);
        (found / goal - 1.0).powi(2)
    });
    Some((squares.sum::<f64>() / f64::from(seconds)).sqrt())
}

/// The least number of requests in a second of a stretch.
fn least(run: &RunResult, span: TimeSpan) -> Option<f64> {
    let seconds = (span.to - span.from) as u32;
    (0..seconds)
        .map(|second| span.from + f64::from(second))
        .map(|begin| run.total_iops(TimeSpan::new(begin, begin + 1.0)))
        .try_fold(f64::INFINITY, |least, found| Some(least.min(found?)))
}
