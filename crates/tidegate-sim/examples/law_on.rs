// Runs scenario files under a law, on both cores; prints a line for each.
use tidegate_control::*;
use tidegate_sim::*;
use tidegate_units::*;
struct Rec { rows: Vec<(f64, String, SeriesSample)>, trace: bool }
impl Recorder for Rec {
    fn row(&mut self, row: &SeriesRow<'_>) { self.rows.push((row.time_s, row.consumer.to_string(), row.sample)); }
    fn decision(&mut self, host: &HostName, _c: Option<&ConsumerName>, d: &Decision) {
        if self.trace && d.action == LawAction::Regulate { eprintln!("{:8.2} {host} {d}", d.at.as_nanos() as f64 / 1e9); }
    }
}
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let law = args[0].clone();
    let seed: u64 = args[1].parse().unwrap();
    let trace = std::env::var("TRACE").is_ok();
    for file in &args[2..] {
        let text = std::fs::read_to_string(file).unwrap();
        let mut sc = Scenario::parse(file, &text).unwrap();
        let several = sc.hosts.len() > 1;
        let mut target = Latency::ZERO;
        for h in &mut sc.hosts {
            target = h.law.as_ref().map_or(target, |l| l.target);
            let kind = LawKind::ALL.into_iter().find(|k| k.name() == law);
            h.law = kind.map(|k| {
                let l = match k { LawKind::Window if several => WindowConfig::across_hosts().into(), k => LawConfig::of_kind(k) };
                LoopConfig::new(h.array.clone(), target, l)
            });
            if let Some(w) = law.strip_prefix("static=") {
                let w: f64 = w.parse().unwrap();
                h.law = Some(LoopConfig::new(h.array.clone(), target, LawConfig::Window(WindowConfig { least: Window::new(w), greatest: Window::new(w), ..WindowConfig::default() })));
            }
        }
        let protected: Vec<String> = sc.vms.iter().filter(|v| v.protected).map(|v| v.name.to_string()).collect();
        let mut rec = Rec { rows: vec![], trace };
        let t0 = std::time::Instant::now();
        let out = simulate(&sc, seed, &mut rec).unwrap();
        let warm = sc.warmup.as_secs_f64();
        let tgt = target.as_millis_f64();
        let mut above = 0.0f64; let mut lat = 0.0f64;
        for vm in &sc.vms {
            let n = vm.name.to_string();
            if !protected.is_empty() && !vm.protected { continue; }
            let s: Vec<f64> = rec.rows.iter().filter(|(t, c, s)| *t > warm && *c == n && s.iops > 0.0).filter_map(|(_, _, s)| s.device_latency_ms).collect();
            if s.is_empty() { continue; }
            above = above.max(s.iter().filter(|x| **x > tgt).count() as f64 / s.len() as f64);
            lat = lat.max(s.iter().sum::<f64>() / s.len() as f64);
        }
        let (mut thr, mut b) = (0.0, 0.0);
        let mut each = String::new();
        for (n, c) in out.consumers.iter() { if !protected.contains(&n.to_string()) { thr += c.iops; b += c.bytes_per_s; each += &format!(" {:.0}", c.iops); } }
        println!("{:38} {:14} above {:5.1} %  worst {:7.2} ms of {:6.1}  {:9.1} IO/s {:6.1} MB/s  [{}] {:.1}s", std::path::Path::new(file).file_name().unwrap().to_string_lossy(), law, above * 100.0, lat, tgt, thr, b / 1e6, each.trim(), t0.elapsed().as_secs_f64());
    }
}
