//! Configurations that are right, and what is said of the others.

use std::time::Duration;

use tidegate_config::law;
use tidegate_control::{
    BulkConfig, LawConfig, LawKind, PidConfig, RegulationMethod, SelfTuningConfig, SignalChoice, WindowConfig,
};
use tidegate_units::{ByteRate, ConsumerName, Iops, Latency, Shares, Window};

use super::resource::{
    GAIN_OF_RATE, GREATEST_DELAY, GREATEST_OF_RATE, INTERVAL, RESOURCE_KEYS, WRITERS_KEYS,
};
use super::*;

fn parse(text: &str) -> Result<AgentConfig, String> {
    AgentConfig::parse("agent.toml", text).map_err(|error| error.to_string())
}

/// Every key that is understood, with its heading in `docs/reference/configuration.md`.
const DOCUMENTED: &[(&str, &[&str])] = &[
    ("## The agent", ROOT_KEYS),
    ("### `[resource.NAME]`", RESOURCE_KEYS),
    ("### `writers`", WRITERS_KEYS),
    ("### `reports`", initiators::REPORTS_KEYS),
    ("### `source`", crate::source::config::SOURCE_KEYS),
    ("### `[report_to.NAME]`", initiators::REPORT_TO_KEYS),
    ("### `[sensor.NAME]`", sensor::SENSOR_KEYS),
    ("### `[bridge]`", bridge::BRIDGE_KEYS),
];

#[test]
fn the_document_and_the_code_know_the_same_keys() {
    let document = include_str!("../../../../docs/reference/configuration.md");
    for (heading, keys) in DOCUMENTED {
        let section = document.split_once(&format!("\n{heading}\n")).unwrap().1;
        let section = section.split("\n#").next().unwrap();
        let mut documented: Vec<_> =
            section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        let mut known = keys.to_vec();
        documented.sort_unstable();
        known.sort_unstable();
        assert_eq!(documented, known, "under `{heading}`");
    }
}

#[test]
fn every_key_of_a_law_is_a_key_of_the_resource() {
    assert!(law::RESOURCE_KEYS.iter().all(|key| RESOURCE_KEYS.contains(key)));
}

#[test]
fn two_lines_are_enough() {
    let config = parse("[resource.vg0]\ntarget = \"15ms\"\n").unwrap();
    let by_auto = parse("[resource.vg0]\nlaw = \"auto\"\ntarget = \"15ms\"\n").unwrap();
    assert_eq!(by_auto.resources[0].law, config.resources[0].law);
    let by_pid = parse("[resource.vg0]\nlaw = \"pid\"\ntarget = \"15ms\"\n").unwrap();
    assert_eq!(by_pid.resources[0].law.interval, INTERVAL);
    let vg0 = &config.resources[0];
    assert_eq!(vg0.storage, ResourceStorage::Machine(MachineStorage::VolumeGroup("vg0".to_owned())));
    assert_eq!(vg0.law.target, Latency::from_millis(15));
    assert_eq!(vg0.law.signal, SignalChoice::Reads);
    assert_eq!(vg0.writers, Some(BulkConfig::default()));
    assert_eq!((config.throttle, &config.ports), (ThrottleMethod::Netem, &PORTS.into()));
    assert!(!config.histograms);
    assert!(config.warnings.is_empty());
}

#[test]
fn everything_that_can_be_said() {
    let config = parse(
        r#"
throttle = "edt"
packets = "responses"
ports = ["3260"]
metrics = "127.0.0.1:9809"
histograms = true
[resource.fast]
device = "nvme0n1"
law = "pid"
target = "5ms"
writers = { above = "10MiB/s", leaves_below = 0.3, silence = "5s" }
members = ["10.0.0.0/24", "iqn.*:backup"]
exempt = "10.0.0.11"
pid = { greatest = "40ms", proportional_gain = 0.3 }
"#,
    )
    .unwrap();
    let fast = &config.resources[0];
    assert_eq!(fast.storage, ResourceStorage::Machine(MachineStorage::Device("nvme0n1".to_owned())));
    assert_eq!(fast.writers.unwrap().silence, Duration::from_secs(5));
    assert_eq!((fast.members.len(), fast.exempt.len()), (2, 1));
    assert_eq!(config.metrics, Some("127.0.0.1:9809".parse().unwrap()));
    assert!(config.histograms && config.warnings.is_empty());
    assert_eq!(config.throttle, ThrottleMethod::Edt);
    assert_eq!((config.packets, config.ports.len()), (DelayedPackets::Responses, 1));
}

#[test]
fn mistakes_are_named_with_their_places() {
    for (text, said) in [
        ("", "no resources"),
        ("[resource.vg0]\n", "needs `target`"),
        ("throttle = 'fq'\n[resource.vg0]\ntarget = \"15ms\"", "agent.toml:1:12"),
        ("[resource.vg0]\ntarget = \"15ms\"\nlaw = \"bang\"", "agent.toml:3:7"),
        ("[resource.vg0]\ntarget = \"15ms\"\nlaw = \"integral\"", "what each consumer was promised"),
        ("[resource.vg0]\ntarget = \"15ms\"\nlaw = \"window\"\nwindow = { gamma = 2 }", "agent.toml:4:20"),
        ("throttle = 'rate'\npackets = 'all'\n[resource.vg0]\ntarget = '15ms'", "agent.toml:2:11"),
        ("throttle = 'rate'\nports = ['3260']\n[resource.vg0]\ntarget = '15ms'", "holds no packets"),
        ("[resource.vg0]\ntarget = \"15ms\"\nexempt = \"10.0.0.1/33\"", "32 bits"),
        (
            "ports = ['99999']\n[resource.vg0]\ntarget = '15ms'",
            "agent.toml:1:10: `ports`: `99999` is not a port: a number from 1 to 65535 is",
        ),
        ("ports = ['0']\n[resource.vg0]\ntarget = '15ms'", "from 1 to 65535"),
        ("[resource.vg0]\ntarget = '15ms'\ncgroups = ['a']", "agent.toml:3:11"),
        ("throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ncgroups = ['a']", "needs `device`"),
        ("throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ndevice = 'sda'", "needs `cgroups`"),
        (
            "throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ndevice = 'sda'\ncgroups = []",
            "names no cgroup",
        ),
        (
            "throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ndevice = 'sda'\ncgroups = ['/']",
            "root cgroup",
        ),
        (
            "throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ndevice = 'sda'\ncgroups = \
                ['a']\nwriters = false",
            "only `cgroups` are throttled",
        ),
        (
            "throttle = 'cgroup'\nports = ['3260']\n[resource.a]\n",
            "throttle `cgroup`, which holds no packets",
        ),
        ("[resource.vg0]\ntarget = \"15ms\"\nset_point = \"auto\"", "agent.toml:3:13"),
        (
            "[resource.vg0]\nlaw = \"pid\"\ntarget = \"15ms\"\npid = { greatest = \"2s\" }",
            "below the floor rate",
        ),
        ("[resource.vg0]\ntarget = \"15ms\"\nwriters = { above = \"0B/s\" }", "agent.toml:3:"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(said), "{text:?}: {error}");
    }
}

#[test]
fn a_window_may_be_what_decides() {
    let text = "[resource.vg0]\ntarget = '15ms'\nlaw = 'window'\nwindow = { least = 0.5 }\npid = {}";
    let config = parse(text).unwrap();
    let vg0 = &config.resources[0];
    let window = WindowConfig { least: Window::new(0.5), ..WindowConfig::default() };
    assert_eq!((vg0.law.law, vg0.law.signal), (LawConfig::Window(window), SignalChoice::Reads));
    assert_eq!((vg0.law.interval, vg0.longest), (Duration::from_millis(250), GREATEST_DELAY));
    assert!(config.warnings[0].to_string().contains("`pid` has no effect"), "{}", config.warnings[0]);
    let by_rate = parse(&format!("throttle = 'rate'\n{text}")).unwrap();
    assert_eq!(by_rate.resources[0].longest, GREATEST_OF_RATE);
}

#[test]
fn the_model_of_a_queue_may_be_what_decides_since_its_throttle_is_a_window() {
    let text = "[resource.vg0]\ntarget = '15ms'\nlaw = 'queueing-model'\nself_tuning = { forgetting = 0.8 }";
    let config = parse(text).unwrap();
    let vg0 = &config.resources[0];
    let LawConfig::SelfTuning(SelfTuningConfig { regulation: RegulationMethod::Queueing(model), .. }) =
        vg0.law.law
    else {
        panic!("{:?}", vg0.law)
    };
    assert!((model.forgetting - 0.8).abs() < f64::EPSILON && config.warnings.is_empty());
    assert_eq!((vg0.law.signal, vg0.law.interval), (SignalChoice::Reads, Duration::from_millis(250)));
    let warnings = parse(&text.replace("queueing-model", "pid")).unwrap().warnings;
    assert!(warnings[0].to_string().contains("`self_tuning` has no effect"), "{}", warnings[0]);
    for (more, said) in [("statistic = 'p95'", "percentile"), ("bands = []", "without the throttle `cgroup`")]
    {
        let error = parse(&format!("{text}\n{more}")).unwrap_err();
        assert!(error.contains(said), "{more}: {error}");
    }
}

#[test]
fn a_percentile_takes_histograms_whether_anybody_sees_them_or_not() {
    let with = |more: &str| parse(&format!("[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\n{more}")).unwrap();
    assert!(!with("").needs_histograms() && !with("statistic = 'mean'").needs_histograms());
    for (name, statistic) in SignalStatistic::NAMED {
        let config = with(&format!("statistic = '{name}'"));
        assert_eq!(config.resources[0].law.statistic, statistic);
        assert_eq!(config.needs_histograms(), statistic != SignalStatistic::Mean);
        assert!(!config.histograms && config.warnings.is_empty());
    }
    let error = parse("[resource.vg0]\ntarget = '15ms'\nstatistic = 'p98'").unwrap_err();
    assert!(error.contains("agent.toml:3:13") && error.contains("cannot be `p98`"), "{error}");
}

#[test]
fn cgroups_of_a_device() {
    let text = "throttle = 'cgroup'\n[resource.fast]\ndevice = 'nvme0n1'\ntarget = '5ms'\n\
                cgroups = ['batch.slice', 'machine.slice/*.scope']\nlaw = 'pid'\npid = { floor = '20 IO/s' }";
    let config = parse(text).unwrap();
    let [fast] = &config.cgroups[..] else { panic!("{:?}", config.cgroups) };
    assert_eq!((fast.device.as_str(), fast.floor), ("nvme0n1", Iops::new(20.0)));
    let patterns: Vec<_> = fast.cgroups.iter().map(ToString::to_string).collect();
    assert_eq!(patterns, ["batch.slice", "machine.slice/*.scope"]);
    let LawConfig::Pid(pid) = fast.law.law else { panic!("{:?}", fast.law.law) };
    assert_eq!((pid.greatest, pid.proportional_gain.to_bits()), (GREATEST_OF_RATE, GAIN_OF_RATE.to_bits()));
    assert!(config.resources.is_empty() && config.warnings.is_empty());
    assert_eq!(config.laws().count(), 1);
}

const DISK: &str =
    "throttle = 'cgroup'\n[resource.disk]\ndevice = 'sda'\ntarget = '20ms'\ncgroups = ['db', 'b*/*']\n";

#[test]
fn cgroups_may_have_goals_and_bands() {
    let text = format!(
        "{DISK}law = 'self-tuning'\ngoals = {{ db = '10ms', 'b*/*' = '30ms', 'b/slow' = '40ms' }}\n\
         self_tuning = {{ floor = '5 IO/s' }}\nbands = [{{ up_to = '100 IO/s', ratios = {{ db = 0.5, \
         'b/slow' = 0.5 }} }}]"
    );
    let config = parse(&text).unwrap();
    let [disk] = &config.cgroups[..] else { panic!("{:?}", config.cgroups) };
    assert_eq!(disk.goals.len(), 3);
    assert_eq!((disk.law.interval, disk.floor), (Duration::from_secs(1), Iops::new(5.0)));
    assert!(disk.law.bands.is_some() && config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn cgroups_by_auto_have_goals_and_the_bounds_of_the_pid() {
    let config = parse(&format!("{DISK}law = 'auto'\ngoals = {{ db = '10ms' }}")).unwrap();
    let [disk] = &config.cgroups[..] else { panic!("{:?}", config.cgroups) };
    assert_eq!((disk.law.signal, disk.goals.len()), (SignalChoice::Reads, 1));
    assert_eq!((disk.floor, disk.longest), (PidConfig::default().floor, GREATEST_OF_RATE));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn what_goals_and_bands_of_cgroups_cannot_be_is_said() {
    let tuned = format!("{DISK}law = 'self-tuning'\n");
    for (text, said) in [
        (format!("{tuned}goals = {{ db = '0ms' }}"), "more than nothing"),
        (format!("{tuned}goals = {{ db = 'soon' }}"), "`db`"),
        (format!("{tuned}goals = {{ db = 7 }}"), "a text"),
        (format!("{tuned}goals = {{ '/' = '7ms' }}"), "root cgroup"),
        (format!("{tuned}goals = '7ms'"), "a table of texts"),
        (
            format!("{tuned}bands = [{{ up_to = '9 IO/s', ratios = {{ web = 1 }} }}]"),
            "names web, which there is not",
        ),
        (format!("{tuned}statistic = 'p95'"), "a percentile, `normalise`"),
        ("[resource.vg0]\ntarget = '15ms'\nlaw = 'self-tuning'".to_owned(), "choose the throttle `cgroup`"),
        ("[resource.vg0]\ntarget = '15ms'\ngoals = {}".to_owned(), "without the throttle `cgroup`"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(said), "{text:?}: {error}");
    }
    for key in ["goals = { db = '7ms' }", "self_tuning = {}", "bands = []"] {
        let config = parse(&format!("{DISK}law = 'pid'\n{key}")).unwrap();
        assert!(config.warnings[0].to_string().contains("has no effect"), "{key}: {:?}", config.warnings);
    }
}

#[test]
fn a_limit_may_come_from_a_longer_delay_than_packets_bear() {
    let greatest = |throttle, more| {
        let text = format!("throttle = '{throttle}'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\n{more}");
        parse(&text).map(|config| match config.resources[0].law.law {
            LawConfig::Pid(pid) => pid.greatest,
            ref other => panic!("{other:?}"),
        })
    };
    assert_eq!(greatest("netem", ""), Ok(GREATEST_DELAY));
    assert_eq!(greatest("rate", ""), Ok(GREATEST_OF_RATE));
    assert_eq!(greatest("rate", "pid = { greatest = '2s' }"), Ok(Latency::from_millis(2_000)));
    assert!(greatest("edt", "pid = { greatest = '2s' }").is_err());
}

#[test]
fn a_delay_that_tcp_takes_for_loss_is_a_warning() {
    let warnings = |throttle, greatest| {
        let text = format!(
            "throttle = '{throttle}'\n[resource.vg0]\ntarget = '15ms'\npid = {{ greatest = '{greatest}' \
                }}\nlaw = 'pid'"
        );
        parse(&text).unwrap().warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for throttle in ["netem", "edt"] {
        let said = warnings(throttle, "400ms");
        assert!(said[0].starts_with("agent.toml:4:7: warning: packets may be delayed by 400ms"), "{said:?}");
    }
    assert!(warnings("netem", "150ms").is_empty() && warnings("rate", "400ms").is_empty());
}

#[test]
fn two_resources_of_one_device_are_a_warning() {
    let two = |one: &str, other: &str| {
        let of = |name, device| format!("[resource.{name}]\ndevice = '{device}'\ntarget = '15ms'\n");
        parse(&(of("a", one) + &of("b", other))).unwrap().warnings
    };
    let said = two("sda", "sda")[0].to_string();
    assert!(said.starts_with("agent.toml:5:10: warning: ") && said.contains("`a` are one device"), "{said}");
    assert!(two("sda", "sdb").is_empty());
}

#[test]
fn histograms_that_are_not_shown_are_a_warning() {
    let config = parse("histograms = true\n[resource.vg0]\ntarget = \"15ms\"").unwrap();
    assert!(
        config.warnings[0].to_string().starts_with("agent.toml:1:14: warning: histograms"),
        "{}",
        config.warnings[0]
    );
}

#[test]
fn a_resource_without_eligible_consumers_is_a_warning() {
    let config = parse("[resource.vg0]\ntarget = \"15ms\"\nwriters = false").unwrap();
    assert!(config.warnings[0].to_string().contains("no consumer to throttle"));
}

#[test]
fn an_agents_configuration_is_told_from_a_gateways() {
    assert!(is_agents("[resource.vg0]\ntarget = \"15ms\""));
    assert!(!is_agents("listen = []\n[pool.a]"));
    assert!(!is_agents("[[["));
}

#[test]
fn several_devices_are_one_resource() {
    let storage = |device: &str| {
        let text = format!("[resource.a]\ntarget = '5ms'\ndevice = {device}\n");
        parse(&text).map(|config| config.resources[0].storage.clone())
    };
    let machine = |storage| Ok(ResourceStorage::Machine(storage));
    assert_eq!(storage("'sda'"), machine(MachineStorage::Device("sda".to_owned())));
    assert_eq!(storage("['sda']"), machine(MachineStorage::Device("sda".to_owned())));
    let several = |names: &[&str]| {
        machine(MachineStorage::Devices(names.iter().map(|name| (*name).to_owned()).collect()))
    };
    assert_eq!(storage("'zd*'"), several(&["zd*"]));
    assert_eq!(storage("['sda', 'vg0/thin*']"), several(&["sda", "vg0/thin*"]));
    assert!(storage("[]").unwrap_err().contains("names no device"));
    assert!(storage("['']").unwrap_err().contains("expected the name of a device"));
    assert!(storage("3").unwrap_err().contains("a text or a list of texts"));
    let twice = "[resource.a]\ntarget = '5ms'\ndevice = ['sda', 'sdb']\n\
                 [resource.b]\ntarget = '5ms'\ndevice = 'sdb'\n";
    assert!(parse(twice).unwrap().warnings[0].message().contains("are one device"));
}

#[test]
fn in_front_of_an_array_resources_are_parts_of_it() {
    let text = "[bridge]\narray = 'eth1'\n[resource.fast]\ntarget = '5ms'\nluns = 'iqn.array:fast*'\n";
    let config = parse(text).unwrap();
    let bridge = config.bridge.as_ref().unwrap();
    assert_eq!((bridge.array.as_str(), config.array()), ("eth1", Some("eth1")));
    assert_eq!(config.ports, [3260, 4420].into());
    let ResourceStorage::Array(part) = &config.resources[0].storage else { panic!("{config:?}") };
    assert!(part.contains("iqn.a", "iqn.array:fast7", "0"));
    assert!(!part.contains("iqn.a", "iqn.array:slow", "0"));
}

#[test]
fn mistakes_about_an_array_are_named() {
    let bridge = "[bridge]\narray = 'eth1'\n";
    let resource = |line: &str| format!("{bridge}[resource.a]\ntarget = '5ms'\n{line}\n");
    let luns = resource("luns = '*'");
    for (text, says) in [
        (resource(""), "names no part of the array"),
        (resource("luns = '/'"), "is no LUN"),
        (resource("luns = '*'\ndevice = 'sda'"), "`device` has no effect with `bridge`"),
        (resource("luns = '*'\nstatistic = 'p95'"), "can only be `mean`"),
        (format!("throttle = 'rate'\n{luns}"), "cannot be used with the throttle `rate`"),
        (format!("throttle = 'cgroup'\n{luns}"), "cannot be used with the throttle `cgroup`"),
        (format!("histograms = true\nmetrics = '127.0.0.1:1'\n{luns}"), "`histograms` has no effect"),
        (luns.replace("'eth1'", "'eth 1'"), "is no name of an interface"),
        (luns.replace("array = 'eth1'", ""), "array"),
        (luns.replace("'eth1'", "'eth1'\ncapture = '20B'"), "`capture` is from 192 B"),
        ("[resource.a]\ntarget = '5ms'\nluns = '*'\n".to_owned(), "has no effect without `bridge`"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(says), "{text}\n{error}");
    }
}

#[test]
fn weights_are_whole_numbers_and_the_greatest_counts() {
    let vg0 = |more: &str| parse(&format!("[resource.vg0]\ntarget = '15ms'\n{more}"));
    let config = vg0("weights = { '10.0.0.0/24' = 2, 'iqn.*:db*' = 4 }").unwrap();
    let weight = |name: &str, address: [u8; 4]| {
        let name = ConsumerName::new(name).unwrap();
        config.resources[0].weight(&name, &[IpAddr::from(address)].into_iter()).map(Shares::get)
    };
    assert_eq!(weight("iqn.a:db1", [10, 0, 0, 1]), Some(4));
    assert_eq!(weight("iqn.a:web", [10, 0, 0, 1]), Some(2));
    assert_eq!(weight("iqn.a:web", [10, 0, 1, 1]), Some(1));
    let none = vg0("").unwrap();
    assert_eq!(none.resources[0].weight(&ConsumerName::new("a").unwrap(), &[].into_iter()), None);
    for (given, said) in [
        ("{ a = 0 }", "from 1 to 1000, not 0"),
        ("{ a = 1001 }", "from 1 to 1000"),
        ("{ a = 1.5 }", "whole number"),
        ("{ a = '4' }", "a finite number"),
        ("{ '10.0.0.1/33' = 4 }", "32 bits"),
        ("4", "a table of numbers"),
    ] {
        let error = vg0(&format!("weights = {given}")).unwrap_err();
        assert!(error.contains("agent.toml:3:") && error.contains(said), "{given}: {error}");
    }
    for key in ["weights = { a = 4 }", "readers = true"] {
        let error = parse(&format!("{DISK}{key}")).unwrap_err();
        assert!(error.contains("has no effect with the throttle `cgroup`"), "{key}: {error}");
    }
}

#[test]
fn readers_are_found_where_that_is_asked_for() {
    let vg0 = |more: &str| parse(&format!("[resource.vg0]\ntarget = '15ms'\n{more}"));
    assert_eq!(vg0("").unwrap().resources[0].readers, None);
    assert_eq!(vg0("readers = false").unwrap().resources[0].readers, None);
    let config = vg0("readers = true\nwriters = false").unwrap();
    assert_eq!(config.resources[0].readers.unwrap().above, ByteRate::new(10_485_760.0));
    assert_eq!(config.resources[0].law.signal, SignalChoice::ProtectedOrEverything);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let above = vg0("readers = { above = '1MiB/s' }").unwrap().resources[0].readers.unwrap().above;
    assert_eq!(above, ByteRate::new(1_048_576.0));
    for (more, said) in [
        ("readers = 3", "agent.toml:3:11"),
        ("readers = true\nstatistic = 'p95'", "can only be `mean`"),
        ("readers = { above = '0B/s' }", "must be greater than zero"),
    ] {
        let error = vg0(more).unwrap_err();
        assert!(error.contains(said), "{more}: {error}");
    }
    let by_rate = "throttle = 'rate'\n[resource.vg0]\ntarget = '15ms'\nreaders = true";
    assert!(parse(by_rate).unwrap_err().contains("which limits writes"));
}

#[test]
fn addresses_that_the_target_does_not_show_are_told() {
    let told = |lines: &str| parse(&format!("[addresses]\n{lines}\n[resource.vg0]\ntarget = '15ms'"));
    let config = told("'iqn.a' = ['10.0.0.12', 'fd00::12']\nb = '10.0.0.13'").unwrap();
    let of = |name: &str| config.addresses[&ConsumerName::new(name).unwrap()].len();
    assert_eq!((config.addresses.len(), of("iqn.a"), of("b")), (2, 2, 1));
    let shared = told("a = '10.0.0.12'\nb = '10.0.0.12'").unwrap().warnings[0].to_string();
    assert!(shared.contains("10.0.0.12 is also an address of a"), "{shared}");
    assert!(told("a = '10.0.0'").unwrap_err().contains("agent.toml:2:5: `a`: `10.0.0` is no address"));
    assert!(told("a = 3").unwrap_err().contains("a text or a list of texts"));
    let bridge =
        "[addresses]\na = '10.0.0.1'\n[bridge]\narray = 'eth1'\n[resource.a]\ntarget = '5ms'\nluns = '*'";
    assert!(parse(bridge).unwrap_err().contains("no effect with `bridge`"));
    let by_rate = "throttle = 'rate'\n[addresses]\na = '10.0.0.1'\n[resource.vg0]\ntarget = '15ms'";
    assert!(parse(by_rate).unwrap_err().contains("`addresses` has no effect with the throttle `rate`"));
}

#[test]
fn a_server_without_sessions_has_portals() {
    let of =
        |lines: &str| parse(&format!("{lines}[resource.vg0]\ntarget = '15ms'\nportals = '10.0.0.1:445'"));
    let config = of("").unwrap();
    assert_eq!(config.resources[0].portals, ["10.0.0.1:445".parse().unwrap()]);
    assert!(config.ports.contains(&445) && config.ports.contains(&3260), "{:?}", config.ports);
    for (lines, said) in [
        ("ports = [3260]\n", "agent.toml:1:9: `ports` lacks 445, which is the port of a portal"),
        ("throttle = 'rate'\n", "`portals` has no effect with the throttle `rate`"),
        ("[bridge]\narray = 'eth1'\n", "`portals` has no effect with `bridge`"),
        (
            "[resource.other]\ntarget = '15ms'\nportals = ['10.0.0.1:445']\n",
            "10.0.0.1:445 is also a portal of resource `other`",
        ),
    ] {
        let found = of(lines).unwrap_err();
        assert!(found.contains(said), "{said}: {found}");
    }
    let wrong = parse("[resource.vg0]\ntarget = '15ms'\nportals = '445'").unwrap_err();
    assert!(wrong.contains("`445` is no portal, such as 10.0.0.1:3260 or [::]:445"), "{wrong}");
}

const CLUSTER: &str = "[cluster]\nname = 'san-a'\nhost = 'a'\ncarrier = { kind = 'udp', listen = \
    '10.0.0.1:7710', peers = ['10.0.0.2:7710'], key_file = 'key' }\n";

#[test]
fn a_latency_that_others_measure_takes_the_pid_which_decides_as_often_as_there_is_news() {
    let config = parse(&format!("{CLUSTER}[resource.vg0]\ntarget = '15ms'\nreports = true")).unwrap();
    let law = &config.resources[0].law;
    assert_eq!((law.law.kind(), law.interval.as_millis()), (LawKind::Pid, 250));
    assert_eq!(config.cluster.unwrap().pools()[0].as_str(), "vg0");
    let source = "source = { snmp = '10.0.0.9', oid = '1.3.6.1', unit = 'us', scale = 10, every = '10s' }";
    let config = parse(&format!("[resource.vg0]\ntarget = '15ms'\n{source}")).unwrap();
    let resource = &config.resources[0];
    assert_eq!(resource.law.interval.as_secs(), 10);
    let asked = resource.source.as_ref().unwrap();
    assert!((asked.seconds - 1e-5).abs() < 1e-12);
    assert_eq!((asked.timeout.as_secs(), asked.max_age.as_secs()), (2, 30));
    assert!(asked.place.to_string().contains("10.0.0.9:161"), "{}", asked.place);
}

#[test]
fn mistakes_about_latencies_that_others_measure_are_named() {
    let resource = "[resource.vg0]\ntarget = '15ms'\n";
    let snmp = |keys: &str| {
        format!("{resource}source = {{ snmp = '10.0.0.9', oid = '1.3.6.1', unit = 'ms', {keys} }}")
    };
    for (text, message) in [
        (format!("{resource}reports = true"), "vg0` has a cluster, and the configuration has none"),
        (
            format!("{CLUSTER}{resource}reports = true\nlaw = 'auto'"),
            "with `reports`, `law` can only be `pid`",
        ),
        (format!("{CLUSTER}{resource}reports = true\nstatistic = 'p95'"), "can only be `mean`"),
        (format!("{CLUSTER}{resource}reports = {{ without_agent = 'last' }}"), "without_agent"),
        (format!("{resource}source = {{ unit = 'ms' }}"), "prometheus"),
        (
            format!("{resource}source = {{ snmp = 'array', oid = '1.3', unit = 'ms' }}"),
            "`array` is no address",
        ),
        (
            format!("{resource}source = {{ snmp = '10.0.0.9', oid = 'x.1', unit = 'ms' }}"),
            "no object identifier",
        ),
        (
            format!("{resource}source = {{ prometheus = '10.0.0.5', query = 'a', unit = 'ms' }}"),
            "http://HOST:PORT",
        ),
        (format!("{resource}source = {{ prometheus = 'http://a', unit = 'ms' }}"), "query"),
        (
            format!(
                "{resource}source = {{ prometheus = 'http://a', query = 'a', unit = 'ms', oid = '1.3' }}"
            ),
            "`oid` is only for `snmp`",
        ),
        (snmp("privacy = 'aes'"), "`privacy` is only for a `user`"),
        (snmp("user = 'a'"), "add `authentication_file = \"snmp-authentication\"`"),
        (snmp("user = 'a', community_file = 'c', authentication_file = 'b'"), "exclude each other"),
        (snmp("user = 'a', authentication_file = 'b', privacy = 'aes'"), "`privacy` needs a passphrase"),
        (snmp("user = 'a', authentication_file = 'b', authentication = 'sha'"), "cannot be `sha`"),
        (snmp("user = 'a', authentication_file = 'b', privacy_file = 'c', privacy = 'des'"), "be `des`"),
        (snmp("user = '', authentication_file = 'b'"), "has 1 to 32 bytes"),
        (
            format!("{resource}interval = '1s'\nsource = {{ snmp = '10.0.0.9', oid = '1.3', unit = 'ms' }}"),
            "`interval` is shorter than `every`",
        ),
        ("[report_to.vg0]\ndevice = 'sda'".to_owned(), "add a table `[cluster]`"),
        (format!("{CLUSTER}[report_to.vg0]"), "device"),
        (format!("{CLUSTER}[report_to.vg0]\ndevice = 'sda'\ninterval = '1ms'"), "within 50ms and 10s"),
        (format!("throttle = 'cgroup'\n{CLUSTER}{resource}reports = true"), "`reports` has no effect"),
    ] {
        let said = parse(&text).unwrap_err();
        assert!(said.contains(message), "{text}\n{said}");
    }
    let unused = parse(&format!("{CLUSTER}[resource.vg0]\ntarget = '15ms'")).unwrap();
    assert!(unused.warnings[0].to_string().contains("the cluster has no use"), "{:?}", unused.warnings);
}
