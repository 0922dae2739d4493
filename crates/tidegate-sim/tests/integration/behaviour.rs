//! Hosts, virtual machines and workloads that come and go, and a network that is not ideal.

use std::ops::Range;

use tidegate_sim::{Scenario, SilentRecorder, SimulationOutcome, TimeSeries, simulate};

fn scenario(text: &str) -> Scenario {
    Scenario::parse("scenario", text).map_err(|invalid| panic!("{invalid}")).unwrap()
}

fn run(text: &str) -> SimulationOutcome {
    let scenario = scenario(text);
    simulate(&scenario, scenario.seed, &mut SilentRecorder).unwrap()
}

fn series(text: &str) -> TimeSeries {
    let mut series = TimeSeries::default();
    let scenario = scenario(text);
    simulate(&scenario, scenario.seed, &mut series).unwrap();
    series
}

/// The mean of a consumer's IO/s over a stretch of seconds.
fn iops(series: &TimeSeries, consumer: &str, seconds: Range<f64>) -> f64 {
    let within: Vec<f64> = series
        .of_consumer(consumer)
        .filter(|(time, _)| seconds.start < *time && *time <= seconds.end)
        .map(|(_, sample)| sample.iops)
        .collect();
    within.iter().sum::<f64>() / within.len() as f64
}

fn near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= expected.abs() * tolerance, "{what}: {found}, expected {expected}");
}

/// Four hosts under PARDA's law on a server of 2 000 IO/s: shares 1:1:2:2.
const FOUR: &str = r#"
    name = "four"
    duration = "400s"
    array.lun = { rate = "2kIO/s" }
    workload.busy = { outstanding = 64 }
    vm.a = { host = "a", workload = "busy" }
    vm.b = { host = "b", workload = "busy" }
    vm.c = { host = "c", workload = "busy", shares = 200 }
    vm.d = { host = "d", workload = "busy", shares = 200 }
"#;

/// With a law for each host, and something more for some.
fn four(more: [&str; 4], rest: &str) -> String {
    let law = r#"law = "window", beta_scale = "per-share", target = "40ms", set_point = 1.0, interval = "2s", past_weight = 0.002, window = { beta_gain = 1.0, least = 1.0 }"#;
    let mut text = FOUR.to_owned();
    for (name, more) in ["a", "b", "c", "d"].into_iter().zip(more) {
        text += &format!("host.{name} = {{ {law}{more} }}\n");
    }
    text + rest
}

#[test]
fn the_others_absorb_the_share_of_a_host_that_fails_and_give_it_back() {
    let series = series(&four(["", "", "", r#", down = "150s..250s""#], ""));
    near(iops(&series, "d", 100.0..150.0), 667.0, 0.1, "its share");
    assert!(iops(&series, "d", 151.0..250.0) < 1e-9, "a host that is down does nothing");
    // Ten seconds after the failure the others have what it had.
    let others = |seconds: Range<f64>| {
        ["a", "b", "c"].map(|name| iops(&series, name, seconds.clone())).iter().sum::<f64>()
    };
    near(others(160.0..200.0), 2_000.0, 0.02, "all of the array");
    near(iops(&series, "c", 200.0..250.0), 1_000.0, 0.1, "in proportion");
    near(iops(&series, "d", 350.0..400.0), 667.0, 0.1, "its share again");
}

#[test]
fn a_host_that_failed_has_the_requests_of_its_second_life_only() {
    // Slow enough that what it had outstanding when it failed completes when it is back.
    let outcome = run(r#"
        name = "lives"
        duration = "20s"
        array.slow = { rate = "10 IO/s" }
        host.h = { depth = 64, down = ["2s..2500ms", "5s..5200ms"] }
        workload.busy = { outstanding = 64 }
        vm.vm = { workload = "busy" }
    "#);
    let consumer = outcome.consumers.get("vm").unwrap();
    let array = outcome.resources.get("slow").unwrap();
    // 64 and 64 were left behind, and 20 s serve 200.
    near(array.iops * 20.0, 200.0, 0.2, "the array goes on");
    assert!(consumer.iops * 20.0 < array.iops * 20.0 - 100.0, "{} of {}", consumer.iops, array.iops);
    assert!(consumer.outstanding <= 64.0);
}

#[test]
fn a_partition_neither_starves_nor_frees_anybody_and_shares_return() {
    let partition =
        "network = { delay = '1ms', partitions = [{ during = '150s..250s', hosts = ['a', 'c'] }] }";
    let series = series(&four([""; 4], partition));
    for (name, share) in [("a", 333.0), ("b", 333.0), ("c", 667.0), ("d", 667.0)] {
        near(iops(&series, name, 150.0..250.0), share, 0.25, "while it is cut");
        near(iops(&series, name, 350.0..400.0), share, 0.1, "when it is healed");
    }
}

#[test]
fn losing_half_of_all_reports_costs_little() {
    let series = series(&four([""; 4], "network = { delay = '5ms', jitter = '5ms', loss = 0.5 }"));
    near(iops(&series, "c", 200.0..400.0) / iops(&series, "a", 200.0..400.0), 2.0, 0.1, "2:1");
}

#[test]
fn a_liar_is_believed_to_a_point_only() {
    // One of four reports a hundred times what it measures. Believed, all windows would close to the least.
    let liar = series(&four(["", ", reported_factor = 100.0", "", ""], ""));
    let all = |series: &TimeSeries| {
        ["a", "b", "c", "d"].map(|name| iops(series, name, 200.0..400.0)).iter().sum::<f64>()
    };
    near(all(&liar), 2_000.0, 0.02, "the array stays busy");
}

/// Eight hosts that share ten disks, by the model of a queue. Something more for the first.
fn eight(first: &str) -> String {
    let mut text = String::from(
        "name = \"eight\"\nduration = \"120s\"\nwarmup = \"20s\"\narray.lun = { preset = \"fc-raid0-10\" }\n\
         workload.busy = { outstanding = 64, size = \"8KiB\" }\n",
    );
    for host in 0..8 {
        let more = if host == 0 { first } else { "" };
        text += &format!(
            "host.h{host} = {{ array = \"lun\", law = \"queueing-model\", target = \"30ms\"{more} }}\n\
             vm.v{host} = {{ host = \"h{host}\", workload = \"busy\" }}\n"
        );
    }
    text
}

#[test]
fn by_the_model_of_a_queue_one_liar_leaves_the_others_four_fifths() {
    for seed in 301..=303 {
        let run = |text: &str| simulate(&scenario(text), seed, &mut SilentRecorder).unwrap();
        let (honest, misled) = (run(&eight("")), run(&eight(", reported_factor = 100.0")));
        let all = |outcome: &SimulationOutcome| {
            outcome.consumers.iter().map(|(_, consumer)| consumer.iops).sum::<f64>()
        };
        let others = |outcome: &SimulationOutcome| all(outcome) - outcome.consumers.get("v0").unwrap().iops;
        assert!(all(&misled) > 0.8 * all(&honest), "seed {seed}: {} of {}", all(&misled), all(&honest));
        let (had, have) = (others(&honest), others(&misled));
        assert!(have > 0.8 * had, "seed {seed}: the others have {have} of {had}");
    }
}

#[test]
fn who_steps_when_does_not_matter() {
    let together = series(&four([""; 4], ""));
    let staggered = series(&four([""; 4], "network.stagger = 4"));
    for name in ["a", "d"] {
        let settled = 200.0..400.0;
        near(iops(&staggered, name, settled.clone()), iops(&together, name, settled), 0.05, name);
    }
}

#[test]
fn a_machine_that_is_off_leaves_its_part_to_others() {
    let series = series(
        r#"
        name = "off"
        duration = "60s"
        array.lun = { rate = "1kIO/s" }
        host.h = { depth = 16 }
        workload.busy = { outstanding = 32 }
        vm.one = { workload = "busy", on = ["..20s", "40s.."] }
        vm.two = { workload = "busy" }
    "#,
    );
    near(iops(&series, "one", 1.0..20.0), 500.0, 0.1, "half");
    assert!(iops(&series, "one", 21.0..40.0) < 1e-9);
    near(iops(&series, "two", 21.0..40.0), 1_000.0, 0.1, "all");
    near(iops(&series, "one", 41.0..60.0), 500.0, 0.1, "half again");
}

#[test]
fn an_array_that_slows_down_is_felt_at_once_and_its_host_adapts() {
    let series = series(
        &four([""; 4], "array.lun.changes = [{ at = '200s', rate = '500 IO/s' }]")
            .replace("array.lun = { rate = \"2kIO/s\" }", "array.lun.rate = \"2kIO/s\""),
    );
    let all = |seconds: Range<f64>| {
        ["a", "b", "c", "d"].map(|name| iops(&series, name, seconds.clone())).iter().sum::<f64>()
    };
    near(all(100.0..200.0), 2_000.0, 0.02, "before");
    near(all(201.0..400.0), 500.0, 0.05, "after");
    let latency: Vec<f64> = series
        .of_consumer("c")
        .filter(|(time, _)| *time > 350.0)
        .filter_map(|(_, sample)| sample.device_latency_ms)
        .collect();
    // 𝓛 + Σβ/C = 40 ms + 6/500 s.
    near(latency.iter().sum::<f64>() / latency.len() as f64, 52.0, 0.15, "response time");
}

#[test]
fn a_law_for_each_machine_gives_each_its_share_wherever_it_runs() {
    let outcome = run(r#"
        name = "per-vm"
        duration = "600s"
        warmup = "300s"
        array.lun = { rate = "2kIO/s" }
        host.one = { law = "window", target = "40ms", set_point = 1.0, interval = "2s", past_weight = 0.002, scope = "vm", beta_scale = "per-share", window = { beta_gain = 1.0 } }
        host.two = { law = "window", target = "40ms", set_point = 1.0, interval = "2s", past_weight = 0.002, scope = "vm", beta_scale = "per-share", window = { beta_gain = 1.0 } }
        workload.busy = { outstanding = 64 }
        vm.a = { host = "one", workload = "busy" }
        vm.b = { host = "one", workload = "busy", shares = 20 }
        vm.c = { host = "two", workload = "busy", shares = 300 }
    "#);
    let rate = |name: &str| outcome.consumers.get(name).unwrap().iops;
    near(rate("c") / rate("a"), 3.0, 0.05, "3:1");
    // A fractional window: 0.2 + 0.2·80/4.2 = 4.0.
    near(rate("a") / rate("b"), 5.0, 0.07, "5:1");
    let window = outcome.hosts.get("one").unwrap().window.mean;
    near(window, outcome.consumers.get("a").unwrap().window.unwrap().mean * 1.2, 0.07, "both together");
}

#[test]
fn reservation_and_limit_hold_in_the_hosts_scheduler() {
    let outcome = run(r#"
        name = "contract"
        duration = "60s"
        warmup = "5s"
        array.lun = { rate = "1kIO/s" }
        host.h = { depth = 16 }
        workload.busy = { outstanding = 32 }
        vm.reserved = { workload = "busy", shares = 1, reservation = "300 IO/s" }
        vm.limited = { workload = "busy", shares = 1000, limit = { iops = "100 IO/s" } }
        vm.rest = { workload = "busy" }
    "#);
    let rate = |name: &str| outcome.consumers.get(name).unwrap().iops;
    near(rate("reserved"), 300.0, 0.05, "reservation");
    near(rate("limited"), 100.0, 0.03, "limit");
    near(rate("rest"), 600.0, 0.05, "the rest");
}

#[test]
fn a_contract_has_no_effect_where_no_law_keeps_it() {
    let with = |law: &str, contract: &str| {
        run(&format!(
            r#"
        name = "promised"
        duration = "60s"
        array.lun = {{ rate = "200 IO/s" }}
        host.h = {{ law = "{law}", target = "20ms" }}
        workload.pulses = {{ rate = "80 IO/s", cycle = {{ on = "4s", off = "5.3s" }} }}
        workload.busy = {{ outstanding = 8 }}
        vm.promised = {{ workload = "pulses" {contract} }}
        vm.rest = {{ workload = "busy" }}
    "#
        ))
    };
    let contract = ", contract = { iops = \"80 IO/s\", response_time = \"30ms\", bucket = 50 }";
    let kept = |outcome: &SimulationOutcome| outcome.consumers.get("promised").unwrap().contract.is_some();
    assert!(kept(&with("integral", contract)));
    let (promised, not) = (with("self-tuning", contract), with("self-tuning", ""));
    assert!(!kept(&promised));
    assert_eq!(promised.consumers, not.consumers);
}

#[test]
fn cycles_and_stretches_of_activity_are_as_written() {
    let series = series(
        r#"
        name = "cycle"
        duration = "40s"
        array.lun = { rate = "1kIO/s" }
        host.h = {}
        workload.bursts = { rate = "100 IO/s", spacing = "even", cycle = { on = "4s", off = "6s", delay = "5s" }, during = "..32s" }
        vm.vm = { workload = "bursts" }
    "#,
    );
    for (seconds, expected) in
        [(1.0..5.0, 0.0), (5.0..9.0, 100.0), (10.0..15.0, 0.0), (15.0..19.0, 100.0), (33.0..40.0, 0.0)]
    {
        let found = iops(&series, "vm", seconds.clone());
        assert!((found - expected).abs() < 2.0, "{seconds:?}: {found}");
    }
}

#[test]
fn a_client_that_falls_behind_is_bounded_and_counted() {
    let outcome = run(r#"
        name = "bounded"
        duration = "20s"
        array.lun = { rate = "100 IO/s" }
        host.h = {}
        workload.flood = { rate = "1kIO/s", limit = 50 }
        vm.vm = { workload = "flood" }
    "#);
    let consumer = outcome.consumers.get("vm").unwrap();
    assert!(consumer.outstanding <= 50.0);
    near(consumer.dropped as f64, 900.0 * 20.0, 0.05, "dropped");
}

#[test]
fn oltp_reads_and_writes_alike_and_writes_its_log_once_per_3200_reads() {
    let outcome = run(r#"
        name = "oltp"
        duration = "610s"
        warmup = "10s"
        array.lun = { rate = "2kIO/s", servers = 8 }
        array.log = { preset = "dnes-309170w" }
        host.h = { array = "lun" }
        workload.db = { profile = "oltp", threads = 20, volume = "wal" }
        vm.vm = { workload = "db", volume.wal = { array = "log", size = "1GiB" } }
    "#);
    let consumer = outcome.consumers.get("vm").unwrap();
    let (data, log) = (outcome.resources.get("lun").unwrap(), outcome.resources.get("log").unwrap());
    // Reads, writes and the log's are operations, and every one is an I/O.
    near(consumer.ops_per_s, consumer.iops, 0.01, "operations");
    near(data.iops + log.iops, consumer.iops, 0.01, "all I/Os");
    near(data.iops / log.iops, 6_400.0, 0.05, "two I/Os per read, one write of the log per 3200 reads");
    assert!(outcome.hosts.get("h").unwrap().device_latency_ms.is_some());
}

#[test]
fn readers_wait_for_a_log_that_does_not_keep_up() {
    let outcome = run(r#"
        name = "log-bound"
        duration = "60s"
        array.fast = { rate = "10kIO/s", servers = 16 }
        array.slow = { rate = "10 IO/s" }
        host.h = { array = "fast" }
        workload.readers = { outstanding = 16 }
        workload.log = { after = "readers", every = 4, backlog = 40, reads = 0.0, sequential = 1.0, durability = "flush", volume = "wal" }
        vm.vm = { workload = ["readers", "log"], volume.wal = { array = "slow" } }
    "#);
    // Ten appends a second let forty reads through.
    near(outcome.resources.get("fast").unwrap().iops, 40.0, 0.1, "reads");
}

#[test]
fn a_trace_is_replayed_as_it_was_recorded() {
    let text = r#"
        name = "trace"
        duration = "10s"
        array.lun = { rate = "100kIO/s" }
        host.h = {}
        workload.recorded = { trace = "t.csv", speed = 2.0 }
        workload.again = { trace = "t.csv", speed = 2.0, repeat = true }
        vm.once = { workload = "recorded" }
        vm.ever = { workload = "again" }
    "#;
    let mut csv = "time,op,offset,bytes\n".to_owned();
    for record in 0..200 {
        csv += &format!(
            "{},{},{},4096\n",
            f64::from(record) * 0.02,
            ["R", "W"][record as usize % 2],
            record * 4096
        );
    }
    let (scenario, _) = Scenario::read("trace", text, &mut |_| Ok(csv.clone())).unwrap();
    let outcome = simulate(&scenario, 1, &mut SilentRecorder).unwrap();
    let count = |name: &str| outcome.consumers.get(name).unwrap().iops * 10.0;
    assert!((count("once") - 200.0).abs() < 0.5, "each record once: {}", count("once"));
    near(count("ever"), 1_000.0, 0.02, "100 per second, again and again");
}

#[test]
fn disks_that_lie_apart_cost_more_than_one_that_is_shared() {
    let text = |disks: &str| {
        format!(
            r#"
            name = "placement"
            duration = "30s"
            array.lun = {{ preset = "sata-stripe" }}
            disk.shared = {{ array = "lun", size = "4GiB" }}
            host.h = {{}}
            workload.busy = {{ outstanding = 4 }}
            vm.one = {{ workload = "busy", {disks} }}
            vm.two = {{ workload = "busy", {disks}, {} }}
            "#,
            if disks.contains("disk") { "shares = 100" } else { "offset = '900GiB'" }
        )
    };
    let (shared, apart) = (run(&text("disk = 'shared'")), run(&text("size = '4GiB'")));
    let rate = |outcome: &SimulationOutcome| outcome.resources.get("lun").unwrap().iops;
    assert!(rate(&shared) > 1.1 * rate(&apart), "{} against {}", rate(&shared), rate(&apart));
}

#[test]
fn thousands_of_hosts_settle_like_a_few() {
    let outcome = run(r#"
        name = "thousand"
        duration = "120s"
        warmup = "60s"
        array.lun = { rate = "5kIO/s", servers = 4 }
        host.node = { count = 1000, law = "window", beta_scale = "per-share", target = "1s", set_point = 1.0, interval = "2s", past_weight = 0.002, window = { least = 0.25, beta_gain = 0.5 } }
        workload.busy = { outstanding = 16 }
        vm.load = { count = 1000, host = "node", workload = "busy" }
        network.stagger = 10
    "#);
    let rates: Vec<f64> = outcome.consumers.iter().map(|(_, consumer)| consumer.iops).collect();
    let mean = rates.iter().sum::<f64>() / 1_000.0;
    near(mean, 5.0, 0.02, "work conserving");
    let deviation = (rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / 1_000.0).sqrt();
    assert!(deviation < 0.15 * mean, "{deviation} around {mean}");
    assert_eq!(outcome.work.messages, 0, "on an ideal network all read one board");
}
