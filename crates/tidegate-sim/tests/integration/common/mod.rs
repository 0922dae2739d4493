//! Scenarios put together in code.

use std::time::Duration;

use tidegate_control::{BetaScale, LawConfig, LoopConfig, Smoothing, WindowConfig};
use tidegate_device::{DeviceConfig, ExponentialConfig};
use tidegate_sim::Scenario;
use tidegate_sim::scenario::{ScenarioArray, ScenarioHost, VirtualDisk, VirtualMachine, Workload};
use tidegate_units::{Bytes, ConsumerName, HostName, Iops, Latency, ResourceName, Shares, Window};

/// A scenario with one exponential server, `array`, and nobody on it.
pub(crate) fn on_server(rate: f64, servers: u32, seconds: u64) -> Scenario {
    let mut scenario = Scenario::new("test", Duration::from_secs(seconds));
    scenario.arrays.push(ScenarioArray {
        name: ResourceName::new("array").unwrap(),
        device: DeviceConfig::Exponential(ExponentialConfig {
            rate: Iops::new(rate),
            servers,
            capacity: Bytes::from_gib(1 << 20),
        }),
        changes: Vec::new(),
    });
    scenario
}

/// PARDA's law: 𝓛, every 2 s, γ = 0.8, α as it stands, β = K per 100 shares.
pub(crate) fn parda(set_point: Latency, k: f64) -> LoopConfig {
    let window = WindowConfig {
        beta_gain: k,
        beta_scale: BetaScale::PerShare,
        least: Window::new(1.0),
        greatest: Window::new(64.0),
        ..WindowConfig::default()
    };
    let mut law = LoopConfig::new(ResourceName::new("array").unwrap(), set_point, LawConfig::Window(window));
    law.set_point_ratio = 1.0;
    law.interval = Duration::from_secs(2);
    law.smoothing = Smoothing::PerInterval { past_weight: 0.002 };
    law
}

pub(crate) fn host(name: &str) -> ScenarioHost {
    ScenarioHost::new(HostName::new(name).unwrap(), ResourceName::new("array").unwrap())
}

pub(crate) fn vm(name: &str, host: &str, shares: u32, workload: Workload) -> VirtualMachine {
    let mut vm = VirtualMachine::new(
        ConsumerName::new(name).unwrap(),
        HostName::new(host).unwrap(),
        VirtualDisk::default(),
    );
    vm.shares = Shares::new(shares).unwrap();
    vm.workloads.push(workload);
    vm
}

/// A host with one virtual machine that always has so many 16 KiB reads outstanding.
pub(crate) fn add_busy_host(
    scenario: &mut Scenario,
    name: &str,
    shares: u32,
    outstanding: u32,
    law: Option<LoopConfig>,
) {
    scenario.hosts.push(ScenarioHost { law, ..host(name) });
    let workload = Workload::random_reads("reads", outstanding, 16_384);
    scenario.vms.push(vm(&format!("vm-{name}"), name, shares, workload));
}
