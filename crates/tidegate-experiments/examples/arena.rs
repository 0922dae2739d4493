//! Runs laws in the arena, on all processors, and prints a line for each scenario and a table of the classes.
//!
//! `arena --seed N --count M --law LAW[,LAW...] [--kind KIND] [--cache DIR] [--quiet]`

#![allow(
    clippy::disallowed_methods,
    reason = "this runs the arena: it keeps oracles in files, and takes times"
)]

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use tidegate_experiments::arena::{
    ALLOWED_ABOVE, ArenaDocument, ArenaOracle, ArenaScenario, ArenaSummary, ENGINE, ScenarioFigures,
    ScenarioKind, class_of, law_named,
};

type AnyError = Box<dyn Error + Send + Sync>;

struct Options {
    seed: u64,
    count: u64,
    laws: Vec<String>,
    kind: Option<String>,
    cache: Option<PathBuf>,
    quiet: bool,
}

impl Options {
    fn parse() -> Result<Self, AnyError> {
        let mut options = Self {
            seed: 1_000_000,
            count: 17,
            laws: vec!["window".to_owned()],
            kind: None,
            cache: None,
            quiet: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(key) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{key} needs a value"));
            match key.as_str() {
                "--seed" => options.seed = value()?.parse()?,
                "--count" => options.count = value()?.parse()?,
                "--law" => options.laws = value()?.split(',').map(ToOwned::to_owned).collect(),
                "--kind" => options.kind = Some(value()?),
                "--cache" => options.cache = Some(value()?.into()),
                "--quiet" => options.quiet = true,
                _ => return Err(format!("unknown option {key}").into()),
            }
        }
        Ok(options)
    }
}

/// The oracle from the cache, or a new one. Both come from the same text, so that their bytes agree.
fn oracle(arena: &ArenaScenario, cache: Option<&Path>) -> Result<ArenaOracle, AnyError> {
    let path = cache.map(|folder| folder.join(format!("{ENGINE}-{}.json", arena.seed)));
    let known = path.as_ref().and_then(|path| serde_json::from_slice(&fs::read(path).ok()?).ok());
    if let Some(known) = known {
        return Ok(known);
    }
    let text = serde_json::to_vec(&ArenaOracle::search(arena)?)?;
    if let Some(path) = &path {
        fs::write(path, &text)?;
    }
    Ok(serde_json::from_slice(&text)?)
}

fn scenario(seed: u64, options: &Options) -> Result<(Vec<ScenarioFigures>, String), AnyError> {
    let begun = Instant::now();
    let arena = ArenaScenario::draw(seed)?;
    let oracle = oracle(&arena, options.cache.as_deref())?;
    let searched = begun.elapsed().as_secs_f64();
    let mut lines = String::new();
    let mut all = Vec::new();
    for law in &options.laws {
        let run = arena.run(law_named(law)?, &oracle)?;
        let one = ScenarioFigures::of(&arena, &oracle, &run);
        let percent = |part: f64| format!("{:.1}", part * 100.0);
        let or_dash = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
        let best: f64 = oracle.throughput(ALLOWED_ABOVE).iops;
        let best_above = oracle
            .stretches
            .iter()
            .map(|stretch| stretch.best(ALLOWED_ABOVE).figures.above)
            .fold(0.0, f64::max);
        lines += &format!(
            "{:29} {law:14} {} target {:.2} ms ({:.1}x) lat {:.2} (free {:.2}) above {} (free {}, best {}) \
             thr/oracle {} thr/free {} least {} settle {} share {} harm {:.2} \
             [{:.0} of {:.0} free, {best:.0} best; {:.0} s of {:.0} s, {} vms, {} hosts] {searched:.1} s\n",
            one.id,
            if one.attainable { "A" } else { "u" },
            arena.target.as_millis_f64(),
            arena.target.as_secs_f64() / arena.unloaded.as_secs_f64(),
            run.latency * 1e3,
            oracle.unregulated.latency * 1e3,
            percent(one.seconds_above_target),
            percent(oracle.unregulated.above),
            percent(best_above),
            or_dash(one.throughput_vs_oracle),
            or_dash(one.throughput_vs_unregulated),
            or_dash(one.least_served),
            or_dash(one.settling_s),
            or_dash(one.share_error),
            one.harm,
            run.iops,
            oracle.unregulated.iops,
            arena.seconds(),
            arena.interval(),
            arena.scenario.vms.len(),
            arena.scenario.hosts.len(),
        );
        all.push(one);
    }
    Ok((all, lines))
}

fn table(out: &mut impl Write, document: &ArenaDocument) -> io::Result<()> {
    writeln!(out, "== {}: median, 5th or 95th percentile, worst", document.law)?;
    let mut row = |name: &str, count: usize, summary: &ArenaSummary| {
        let cell = |figure: &str| match summary.get(figure).copied().flatten() {
            Some(spread) => {
                let tail = if spread.worst <= spread.p5 { spread.p5 } else { spread.p95 };
                let tail = if spread.worst >= spread.p95 { spread.p95 } else { tail };
                format!("{:.3}/{tail:.3}/{:.3}", spread.median, spread.worst)
            }
            None => "-".to_owned(),
        };
        writeln!(
            out,
            "{name:34} {count:3} above {:19} thr/oracle {:19} thr/free {:19} least {:19} settle {:22} \
             share {:19} harm {}",
            cell("seconds_above_target"),
            cell("throughput_vs_oracle"),
            cell("throughput_vs_unregulated"),
            cell("least_served"),
            cell("settling_s"),
            cell("share_error"),
            cell("harm"),
        )
    };
    for (name, summary) in &document.classes {
        let count = document.scenarios.iter().filter(|one| class_of(one) == *name).count();
        row(name, count, summary)?;
    }
    row("all", document.scenarios.len(), &document.summary)
}

fn main() -> Result<(), AnyError> {
    let options = Options::parse()?;
    if let Some(folder) = &options.cache {
        fs::create_dir_all(folder)?;
    }
    let next = AtomicU64::new(options.seed);
    let (sender, done) = mpsc::channel();
    let mut out = io::stdout().lock();
    let mut results = Vec::new();
    thread::scope(|scope| -> Result<(), AnyError> {
        for _ in 0..thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            let (sender, next, options) = (sender.clone(), &next, &options);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.seed + options.count {
                        break;
                    }
                    let is_wanted = |kind: &String| kind == ScenarioKind::of(seed).name();
                    if options.kind.as_ref().is_none_or(is_wanted)
                        && sender.send((seed, scenario(seed, options))).is_err()
                    {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (seed, result) in &done {
            let (figures, lines) = result.map_err(|error| format!("seed {seed}: {error}"))?;
            if !options.quiet {
                out.write_all(lines.as_bytes())?;
            }
            results.push((seed, figures));
        }
        Ok(())
    })?;
    results.sort_by_key(|(seed, _)| *seed);
    for (place, law) in options.laws.iter().enumerate() {
        let figures = results.iter().map(|(_, laws)| laws[place].clone()).collect();
        table(&mut out, &ArenaDocument::new(options.seed, law, figures))?;
    }
    Ok(())
}
