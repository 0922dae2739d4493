//! The schema of a scenario, as data: which tables there are, with which keys.

use super::{ROOT_KEYS, array, host, network, vm, workload};
use tidegate_config::{contract, law, release};

/// The JSON schema of a scenario's document, as it is published in `docs/scenarios.schema.json`.
pub const JSON: &str = include_str!("../../../../../docs/scenarios.schema.json");

/// A table of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// The heading in `docs/reference/scenarios.md`, and the definition in `docs/scenarios.schema.json`.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [&'static str],
}

/// Every table that a scenario can have.
pub const TABLES: &[Table] = &[
    Table { name: "scenario", keys: ROOT_KEYS },
    Table { name: "array", keys: array::ARRAY_KEYS },
    Table { name: "change", keys: array::CHANGE_KEYS },
    Table { name: "disk", keys: array::DISK_KEYS },
    Table { name: "host", keys: host::KEYS },
    Table { name: "knee", keys: law::KNEE_KEYS },
    Table { name: "window", keys: law::WINDOW_KEYS },
    Table { name: "pid", keys: law::PID_KEYS },
    Table { name: "integral", keys: law::INTEGRAL_KEYS },
    Table { name: "self_tuning", keys: law::SELF_TUNING_KEYS },
    Table { name: "bands", keys: law::BAND_KEYS },
    Table { name: "release", keys: release::KEYS },
    Table { name: "batch", keys: host::BATCH_KEYS },
    Table { name: "vm", keys: vm::KEYS },
    Table { name: "goal-change", keys: vm::GOAL_CHANGE_KEYS },
    Table { name: "limit", keys: vm::LIMIT_KEYS },
    Table { name: "contract", keys: contract::KEYS },
    Table { name: "volume", keys: vm::VOLUME_KEYS },
    Table { name: "workload", keys: workload::KEYS },
    Table { name: "step", keys: workload::STEP_KEYS },
    Table { name: "weighted-size", keys: workload::SIZE_KEYS },
    Table { name: "region", keys: workload::REGION_KEYS },
    Table { name: "cycle", keys: workload::CYCLE_KEYS },
    Table { name: "network", keys: network::KEYS },
    Table { name: "partition", keys: network::PARTITION_KEYS },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_law_is_a_key_of_the_host() {
        assert!(law::POOL_KEYS.iter().all(|key| host::KEYS.contains(key)));
    }

    #[test]
    fn every_key_of_a_device_is_a_key_of_the_array() {
        assert!(array::DEVICE_KEYS.iter().all(|key| array::ARRAY_KEYS.contains(key)));
    }
}
