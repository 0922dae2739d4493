//! Proposals from findings, each of which the agent's configuration must accept.

use tidegate_host::throttle::ThrottleMethod;
use tidegate_units::{ByteRate, Bytes, Latency};

use super::inventory::{
    FoundConsumer, FoundStorage, MachineInventory, MeasuredReads, ReadSource, RegulationKind,
};
use super::{ConfigurationProposal, ProposalRequest};
use crate::config::{AgentConfig, MachineStorage};
use crate::survey::MethodFinding;

fn storage(storage: MachineStorage, mean: Option<Latency>) -> FoundStorage {
    let reads = mean.map(|mean| MeasuredReads {
        source: ReadSource::Consumers,
        count: 400,
        seconds: 5,
        mean,
        slowest: mean.scale(1.5),
    });
    FoundStorage {
        storage,
        size: Bytes::new(1 << 40),
        members: Vec::new(),
        largest: "vda".to_owned(),
        consumers: Vec::new(),
        reads,
        unmeasured: None,
    }
}

fn consumer(name: &str, written: Option<f64>) -> FoundConsumer {
    FoundConsumer {
        name: name.to_owned(),
        note: "iSCSI, dm-0".to_owned(),
        rates: written.map(|written| [ByteRate::new(0.0), ByteRate::new(written)]),
    }
}

fn methods(working: &[ThrottleMethod]) -> Vec<MethodFinding> {
    let of = |method: ThrottleMethod| MethodFinding {
        method,
        lacks: if working.contains(&method) { Vec::new() } else { vec!["part:\nabsent".to_owned()] },
    };
    [ThrottleMethod::Netem, ThrottleMethod::Edt, ThrottleMethod::Rate, ThrottleMethod::Cgroup].map(of).into()
}

fn machine(kind: RegulationKind, storages: Vec<FoundStorage>) -> MachineInventory {
    MachineInventory { kind: Some(kind), storages, methods: methods(&[ThrottleMethod::Cgroup]) }
}

fn group(mean: Option<Latency>) -> FoundStorage {
    storage(MachineStorage::VolumeGroup("vg0".to_owned()), mean)
}

fn propose(inventory: &MachineInventory, request: &ProposalRequest) -> (ConfigurationProposal, AgentConfig) {
    let proposal = inventory.propose(request, "Written by a test.").unwrap();
    let config = AgentConfig::parse("agent.toml", &proposal.text).unwrap_or_else(|error| {
        panic!("{error}\n{}", proposal.text);
    });
    (proposal, config)
}

#[test]
fn a_volume_group_has_a_target_of_twice_its_reads_and_is_a_dry_run() {
    let inventory = machine(RegulationKind::Network, vec![group(Some(Latency::from_micros(3_210)))]);
    let request = ProposalRequest { protected: vec!["iqn.*:db".parse().unwrap()], ..Default::default() };
    let (proposal, config) = propose(&inventory, &request);
    let [vg0] = &config.resources[..] else { panic!("one resource") };
    assert_eq!(vg0.law.target, Latency::from_micros(6_500), "6.42 ms, rounded up to two digits");
    assert!(vg0.law.dry_run);
    assert_eq!((vg0.exempt.len(), &proposal.resources), (1, &vec!["vg0".to_owned()]));
    assert!(config.api.is_none() && proposal.text.lines().all(|line| line.len() <= 120), "{}", proposal.text);
    let socket = Some("agent.sock".to_owned());
    assert!(propose(&inventory, &ProposalRequest { socket, ..request }).1.api.is_some());
    for said in ["Measured by /proc/diskstats in 5 s: 400 reads", "mean 3.21ms", "tidegate dry-run off vg0"] {
        assert!(proposal.text.contains(said), "{}", proposal.text);
    }
    // No throttle for hosts works: a dry run goes all the same, and the file says what is missing.
    assert!(proposal.text.contains("# throttle \"netem\": part: absent\n"), "{}", proposal.text);
    assert!(proposal.text.contains("# None works here yet."), "{}", proposal.text);
}

#[test]
fn the_first_throttle_that_works_is_proposed_with_the_drop_in_that_it_needs() {
    for (working, method, drop_in) in [
        (&[ThrottleMethod::Netem, ThrottleMethod::Rate][..], ThrottleMethod::Netem, None),
        (&[ThrottleMethod::Edt], ThrottleMethod::Edt, Some("edt.conf")),
        (&[ThrottleMethod::Rate], ThrottleMethod::Rate, Some("rate.conf")),
    ] {
        let storages = vec![group(Some(Latency::from_millis(5)))];
        let inventory =
            MachineInventory { methods: methods(working), ..machine(RegulationKind::Network, storages) };
        let (proposal, config) = propose(&inventory, &ProposalRequest::default());
        assert_eq!((config.throttle, proposal.drop_in), (method, drop_in));
    }
}

#[test]
fn cgroups_that_did_io_are_eligible_and_the_protected_are_not() {
    let consumers =
        [("db.service", 5e6), ("backup.service", 9e6), ("idle.service", 0.0), ("b\"q.scope", 1e3)];
    let consumers = consumers.map(|(name, rate)| consumer(&format!("system.slice/{name}"), Some(rate)));
    let disk = FoundStorage {
        consumers: consumers.to_vec(),
        ..storage(MachineStorage::Device("vda".to_owned()), Some(Latency::from_micros(90)))
    };
    let inventory = machine(RegulationKind::Cgroups, vec![disk]);
    let protected = vec!["system.slice/db*".parse().unwrap()];
    let (proposal, config) = propose(&inventory, &ProposalRequest { protected, ..Default::default() });
    let [vda] = &config.cgroups[..] else { panic!("one device") };
    let eligible: Vec<_> = vda.cgroups.iter().map(ToString::to_string).collect();
    assert_eq!(eligible, ["system.slice/backup.service", "system.slice/b\"q.scope"], "the busiest first");
    assert_eq!(vda.law.target, Latency::from_millis(1), "the least");
    assert_eq!(proposal.drop_in, Some("rate.conf"));
    assert!(proposal.text.contains("# never throttled, by --protect: system.slice/db.service"));
    assert!(proposal.text.contains("# 1 more cgroups did no I/O"), "{}", proposal.text);
    let all = ProposalRequest { protected: vec!["*".parse().unwrap()], ..Default::default() };
    let why = inventory.propose(&all, "").unwrap_err();
    assert!(why.contains("vda: all its cgroups are protected"), "{why}");
}

#[test]
fn what_was_not_measured_is_not_proposed_unless_the_target_is_named() {
    let inventory = machine(
        RegulationKind::Network,
        vec![group(None), storage(MachineStorage::Device("sdb".to_owned()), Some(Latency::from_millis(4)))],
    );
    let (proposal, config) = propose(&inventory, &ProposalRequest::default());
    assert_eq!(config.resources.len(), 1);
    assert!(proposal.text.contains("# Left out: vg0: too few reads were measured"));
    let nothing = machine(RegulationKind::Network, vec![group(None)]);
    let why = nothing.propose(&ProposalRequest::default(), "").unwrap_err();
    assert!(
        why.contains("nothing is proposed: vg0: too few reads") && why.contains("--target 10ms"),
        "{why}"
    );
    let request = ProposalRequest { target: Some(Latency::from_millis(15)), ..Default::default() };
    let (proposal, config) = propose(&nothing, &request);
    assert_eq!(config.resources[0].law.target, Latency::from_millis(15));
    assert!(proposal.text.contains("The target is that of --target.\n# Reads were not measured."));
}

#[test]
fn without_consumers_there_is_nothing_to_propose() {
    let nothing = MachineInventory { kind: None, storages: Vec::new(), methods: methods(&[]) };
    let why = nothing.propose(&ProposalRequest::default(), "").unwrap_err();
    assert!(why.contains("there is nothing to regulate"), "{why}");
    let request = ProposalRequest { storages: vec!["vg9".to_owned()], ..Default::default() };
    let why = machine(RegulationKind::Network, Vec::new()).propose(&request, "").unwrap_err();
    assert!(why.contains("no storage found is called vg9"), "{why}");
}
