// Design runs of the arena.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use tidegate_control::LawKind;
use tidegate_experiments::arena::*;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (first, count): (u64, u64) = (args[0].parse().unwrap(), args[1].parse().unwrap());
    let laws: Vec<String> = args[2..].to_vec();
    let only = std::env::var("KIND").ok();
    let cache = std::env::var("CACHE").unwrap_or("/tmp/arena-cache".into());
    std::fs::create_dir_all(&cache).unwrap();
    let next = AtomicU64::new(first);
    let results: Mutex<Vec<(u64, Vec<ScenarioFigures>)>> = Mutex::new(vec![]);
    std::thread::scope(|s| for _ in 0..2 { s.spawn(|| loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= first + count { break }
        if only.as_ref().is_some_and(|k| ScenarioKind::of(seed).name() != k) { continue }
        let t0 = std::time::Instant::now();
        let arena = match ArenaScenario::draw(seed) { Ok(a) => a, Err(e) => { eprintln!("{seed}: {e}"); continue } };
        let path = format!("{cache}/{ENGINE}-{seed}.json");
        let oracle: ArenaOracle = std::fs::read(&path).ok().and_then(|t| serde_json::from_slice(&t).ok()).unwrap_or_else(|| {
            let o = ArenaOracle::search(&arena).unwrap();
            std::fs::write(&path, serde_json::to_vec(&o).unwrap()).unwrap(); o });
        let t1 = t0.elapsed().as_secs_f64();
        let mut figs = vec![];
        for law in &laws {
            let kind = LawKind::ALL.into_iter().find(|k| k.name() == law);
            if std::env::var("TRACE").is_ok() {
                use tidegate_control::*; use tidegate_sim::*; use tidegate_units::*;
                struct T; impl Recorder for T { fn wants_rows(&self) -> bool { false } fn decision(&mut self, h: &HostName, _c: Option<&ConsumerName>, d: &Decision) { if d.action != LawAction::Hold && (h.as_str() == "host" || h.as_str() == "host-1") { eprintln!("{:8.2} {h} {:?} | {d}", d.at.as_nanos() as f64 / 1e9, d.auto); } } }
                simulate(&arena.with_law(kind.unwrap()), seed, &mut T).unwrap();
            }
            let run = arena.run(kind, &oracle).unwrap();
            let f = ScenarioFigures::of(&arena, &oracle, &run);
            if std::env::var("QUIET").is_err() {
            println!("{:26} {:14} {} tgt {:8.2} unl {:8.2} free {:8.2} lat {:8.2} | above {:5.1} % (free {:5.1}, best {:4.1}) thr/or {:.3} thr/free {:.3} least {:.2} settle {:?} share {:?} harm {:.2} [{:.0}/{:.0} IO/s, {:.0}s {} vms {} hosts] {:.1}s",
                f.id, law, if oracle.attainable {"A"} else {"u"}, arena.target.as_millis_f64(), arena.unloaded.as_millis_f64(), oracle.unregulated.latency*1e3, run.latency*1e3,
                f.seconds_above_target*100., oracle.unregulated.above*100., oracle.stretches[0].best(0.02).figures.above*100., f.throughput_vs_oracle.unwrap_or(f64::NAN), f.throughput_vs_unregulated.unwrap_or(f64::NAN), f.least_served.unwrap_or(f64::NAN), f.settling_s, f.share_error.map(|x| (x*1000.).round()/1000.), f.harm, run.iops, oracle.unregulated.iops, arena.seconds(), arena.scenario.vms.len(), arena.scenario.hosts.len(), t1);
            }
            figs.push(f);
        }
        results.lock().unwrap().push((seed, figs));
    }); });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|r| r.0);
    for (at, law) in laws.iter().enumerate() {
        let doc = ArenaDocument::new(first, law, results.iter().map(|r| r.1[at].clone()).collect());
        println!("== {law}");
        for (class, s) in doc.classes.iter().map(|(c, s)| (c.clone(), s)).chain([("ALL".to_owned(), &doc.summary)]) {
            let n = doc.scenarios.iter().filter(|x| class == "ALL" || format!("{}{}", x.kind, if x.attainable {""} else {"/unattainable"}) == class).count();
            let g = |k: &str| s[k].map_or("-".to_owned(), |v| format!("{:.3}/{:.3}/{:.3}", v.median, if k.contains("thr") || k.contains("least") { v.p5 } else { v.p95 }, v.worst));
            println!("{class:34} n {n:3} above {:20} thr/or {:20} thr/free {:20} least {:20} settle {:20} share {:20} harm {}", g("seconds_above_target"), g("throughput_vs_oracle"), g("throughput_vs_unregulated"), g("least_served"), g("settling_s"), g("share_error"), g("harm"));
        }
    }
}
