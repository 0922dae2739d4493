//! The order in which the disks of an array serve.

use tidegate_device::{DeviceConfig, QueueConfig};
use tidegate_sim::Scenario;
use tidegate_units::Latency;

/// Nearest first among three instead of five, the number that fits the paper's unregulated experiments with
/// reads best: `parda.order` reports how well. The preset was fitted to one of them alone, which shows how
/// placement matters.
pub(super) fn fits_best(scenario: &mut Scenario) {
    order(scenario, &QueueConfig::ShortestSeek { depth: 3, max_age: Latency::from_millis(500) });
}

/// Has the disks of all arrays serve in another order.
pub(super) fn order(scenario: &mut Scenario, queue: &QueueConfig) {
    for array in &mut scenario.arrays {
        if let DeviceConfig::Array(config) = &mut array.device {
            config.disk.queue = queue.clone();
        }
    }
}
