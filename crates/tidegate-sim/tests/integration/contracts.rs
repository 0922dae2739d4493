//! Contracts under the law `auto`, on one host and across hosts.

use tidegate_sim::{Scenario, SilentRecorder, SimulationOutcome, simulate};

/// Design seeds.
const SEEDS: std::ops::Range<u64> = 1_000_700..1_000_703;

fn run(text: &str, seed: u64) -> SimulationOutcome {
    let scenario = Scenario::parse("scenario", text).map_err(|invalid| panic!("{invalid}")).unwrap();
    simulate(&scenario, seed, &mut SilentRecorder).unwrap()
}

fn iops(outcome: &SimulationOutcome, name: &str) -> f64 {
    outcome.consumers.iter().find(|(consumer, _)| consumer.as_str() == name).unwrap().1.iops
}

/// The part of a consumer's requests that were later than its contract.
fn late(outcome: &SimulationOutcome, name: &str) -> f64 {
    let (_, consumer) = outcome.consumers.iter().find(|(consumer, _)| consumer.as_str() == name).unwrap();
    consumer.contract.as_ref().unwrap().late_fraction.unwrap()
}

/// The two contracts of the guide on the disk of Lee, and a consumer that takes what it gets.
fn disk(law: &str, arrivals: &str) -> String {
    format!(
        r#"
        name = "contracts"
        duration = "120s"
        warmup = "10s"
        array.disk = {{ preset = "dnes-309170w" }}
        disk.all = {{ array = "disk", size = "8704MiB" }}
        workload.w1 = {{ {w1}, size = "4KiB" }}
        workload.w2 = {{ {w2}, size = "4KiB" }}
        workload.greedy = {{ outstanding = 16, size = "4KiB" }}
        host.server = {{ depth = 1, scheduler = "yfq", law = "{law}", target = "35ms" }}
        [vm.w1]
        workload = "w1"
        disk = "all"
        shares = 200
        contract = {{ iops = "40 IO/s", response_time = "35ms", expected = "27.7ms" }}
        [vm.w2]
        workload = "w2"
        disk = "all"
        contract = {{ iops = "20 IO/s", response_time = "38ms", expected = "29.8ms" }}
        [vm.greedy]
        workload = "greedy"
        disk = "all"
        "#,
        w1 = arrivals.replace("RATE", "40 IO/s"),
        w2 = arrivals.replace("RATE", "20 IO/s"),
    )
}

const EVEN: &str = r#"rate = "RATE", spacing = "even""#;

#[test]
fn a_greedy_consumer_gets_the_rest_of_the_disk_and_not_what_was_promised_to_others() {
    for seed in SEEDS {
        let auto = run(&disk("auto", EVEN), seed);
        for (name, rate) in [("w1", 40.0), ("w2", 20.0)] {
            let late = late(&auto, name);
            assert!(late <= 0.05, "{name} is late in {late}, seed {seed}");
            assert!((iops(&auto, name) / rate - 1.0).abs() < 0.02, "{name}, seed {seed}");
        }
        let integral = run(&disk("integral", EVEN), seed);
        let (rest, of_integral) = (iops(&auto, "greedy"), iops(&integral, "greedy"));
        assert!(rest > of_integral, "{rest} of the law auto, {of_integral} of the integral law");
    }
}

#[test]
fn a_consumer_that_asks_for_more_than_its_contract_is_not_late_for_its_excess() {
    let outcome = run(&disk("auto", "outstanding = 16"), SEEDS.start);
    for (name, rate) in [("w1", 40.0), ("w2", 20.0)] {
        assert!(late(&outcome, name) <= 0.05, "{name} is late in {}", late(&outcome, name));
        assert!(iops(&outcome, name) > rate, "the surplus is shared: {}", iops(&outcome, name));
    }
    assert!(iops(&outcome, "greedy") > 15.0, "by shares: {}", iops(&outcome, "greedy"));
}

/// Four hosts on one array, each with a contract of 100 IO/s and a greedy consumer. One fails in the middle.
fn four(array: &str, arrivals: &str, [target, response_time, expected]: [u32; 3]) -> String {
    let mut text = format!(
        r#"
        name = "contracts"
        duration = "120s"
        warmup = "10s"
        array.lun = {{ {array} }}
        workload.kept = {{ {arrivals}, size = "8KiB" }}
        workload.greedy = {{ outstanding = 32, size = "8KiB" }}
        "#
    );
    for host in ["a", "b", "c", "d"] {
        let down = if host == "d" { r#"down = "60s..120s""# } else { "" };
        text += &format!(
            r#"
            [host.{host}]
            depth = 32
            law = "auto"
            target = "{target}ms"
            {down}
            [vm.greedy-{host}]
            host = "{host}"
            workload = "greedy"
            [vm.kept-{host}]
            host = "{host}"
            workload = "kept"
            contract = {{ iops = "100 IO/s", response_time = "{response_time}ms", expected = "{expected}ms" }}
            "#
        );
    }
    text
}

#[test]
fn contracts_are_kept_on_the_other_hosts_when_one_of_four_fails() {
    let even = EVEN.replace("RATE", "100 IO/s");
    let (disks, server) = (r#"preset = "sata-stripe""#, r#"rate = "2kIO/s", servers = 4"#);
    for (array, arrivals, times, rest) in [
        (disks, even.as_str(), [50, 60, 40], 150.0),
        (disks, r#"rate = "100 IO/s""#, [50, 60, 40], 150.0),
        // A target that is kept whatever happens: the contracts alone throttle.
        (disks, even.as_str(), [200, 60, 40], 150.0),
        (server, even.as_str(), [12, 15, 10], 1_200.0),
    ] {
        for seed in SEEDS {
            let outcome = run(&four(array, arrivals, times), seed);
            for host in ["a", "b", "c"] {
                let name = format!("kept-{host}");
                let late = late(&outcome, &name);
                assert!(late <= 0.05, "{name} is late in {late} on {array}, seed {seed}");
                assert!(iops(&outcome, &name) > 95.0, "{name} on {array}, seed {seed}");
            }
            let greedy: f64 =
                ["a", "b", "c"].iter().map(|host| iops(&outcome, &format!("greedy-{host}"))).sum();
            assert!(greedy > rest, "the rest is {greedy} on {array}, seed {seed}");
        }
    }
}
