//! Devices in scenarios: the table of keys has their parameters, and mistakes are reported.

use std::collections::BTreeSet;

use tidegate_config::keys::{KeyTable, KeyType, pool, scenario};
use tidegate_device::{BurstConfig, DeviceConfig, HitChange, LinkConfig, Preset, TiersConfig};
use tidegate_sim::{Scenario, SilentRecorder, simulate};
use tidegate_units::{ByteRate, Bytes, Iops, Latency};

/// Compares a table of keys with the parameters that a model writes when all of them have a value.
#[track_caller]
fn assert_complete(table: KeyTable, config: &impl serde::Serialize) {
    let document = toml::Table::try_from(config).unwrap();
    let fields: BTreeSet<&str> = document.keys().map(String::as_str).filter(|key| *key != "model").collect();
    let keys: BTreeSet<&str> = table.names.iter().copied().collect();
    assert_eq!(keys, fields, "{}", table.id);
}

#[test]
fn the_table_of_keys_has_every_parameter_of_a_model() {
    let DeviceConfig::Flash(flash) = Preset::DcS4600.config() else { unreachable!("a flash drive") };
    assert_complete(scenario::FLASH, &flash);
    let burst = BurstConfig { rate: Iops::new(3_000.0), credits: 10, initial: Some(5) };
    assert_complete(scenario::BURST, &burst);
    let DeviceConfig::Volume(volume) = Preset::EbsGp2.config() else { unreachable!("a volume") };
    assert_complete(scenario::CLOUD_VOLUME, &volume);
    let device = || Box::new(Preset::EbsGp3.config());
    let change = HitChange { after: Latency::ZERO, hits: 0.5 };
    assert_complete(scenario::HIT_CHANGE, &change);
    let extent = Some(Bytes::from_mib(1));
    assert_complete(
        scenario::TIERS,
        &TiersConfig { fast: device(), slow: device(), hits: 0.5, extent, changes: vec![change] },
    );
    let (overhead, latency) = (Latency::ZERO, Latency::ZERO);
    let rate = ByteRate::new(1e8);
    let link = LinkConfig { rate, overhead, latency, half_duplex: true, device: device() };
    assert_complete(scenario::LINK, &link);
}

#[test]
fn the_table_of_keys_has_every_preset() {
    let preset = pool::BACKEND.keys.iter().find(|key| key.name == "preset").unwrap();
    let KeyType::Words(words) = preset.kind else { panic!("{:?}", preset.kind) };
    let words: BTreeSet<&str> = words.iter().copied().collect();
    assert_eq!(words, Preset::ALL.iter().map(|preset| preset.name()).collect());
}

/// Runs a scenario. Returns the I/Os per second of all its consumers.
fn run(name: &str, text: &str) -> f64 {
    let scenario = Scenario::parse(name, text).map_err(|invalid| panic!("{invalid}")).unwrap();
    let outcome = simulate(&scenario, 1, &mut SilentRecorder).unwrap();
    outcome.consumers.iter().map(|(_, consumer)| consumer.iops).sum()
}

#[test]
fn a_volume_without_credits_gives_its_rate() {
    let text = |credits: u64| {
        format!(
            "name = \"v\"\nduration = \"20s\"\nwarmup = \"10s\"\n[array.v.device]\nmodel = \"volume\"\n\
            capacity = \"100GiB\"\nrate = \"300 IO/s\"\nburst = {{ rate = \"3000 IO/s\", credits = {credits} }}\n\
            throughput = \"128MiB/s\"\nio-size = \"256KiB\"\nslack = \"50ms\"\nlatency = \"500us\"\n\
            [workload.w]\noutstanding = 32\n[host.h]\n[vm.a]\nhost = \"h\"\nworkload = \"w\"\n"
        )
    };
    let spent = run("spent", &text(10_000));
    let bursting = run("bursting", &text(5_400_000));
    assert!((299.0..302.0).contains(&spent), "{spent}");
    assert!((2_999.0..3_001.0).contains(&bursting), "{bursting}");
}

#[test]
fn wrong_devices_are_reported_by_place_and_parameter() {
    let invalid = |device: &str| {
        let text = format!(
            "name = \"w\"\nduration = \"1s\"\narray.a = {{ device = {device} }}\nworkload.w = {{ outstanding = 1 \
            }}\nhost.h = {{}}\nvm.a = {{ host = \"h\", workload = \"w\" }}\n"
        );
        match Scenario::parse("w", &text) {
            Ok(scenario) => simulate(&scenario, 1, &mut SilentRecorder).unwrap_err().to_string(),
            Err(invalid) => invalid.to_string(),
        }
    };
    let unknown = invalid("{ model = \"link\", rate = \"1MB/s\", device = \"dc-9\" }");
    assert!(unknown.contains("there is no device preset `dc-9`"), "{unknown}");
    let still = invalid("{ model = \"link\", rate = \"0MB/s\", device = \"ebs-gp3\" }");
    assert!(still.contains("rate must be at least one byte per second"), "{still}");
    let ratio = invalid("{ model = \"tiers\", fast = \"dc-s4600\", slow = \"ebs-gp3\", hits = 1.5 }");
    assert!(ratio.contains("hits must be within 0 to 1"), "{ratio}");
}
