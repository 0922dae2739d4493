//! The schema of a scenario, as data: which tables there are, with which keys.

use super::{ROOT_KEYS, array, host, network, template, vm, workload};
use tidegate_config::{bursts, contract, law, release};

/// The JSON schema of a scenario's document, as it is published in `docs/scenarios.schema.json`.
pub const JSON: &str = include_str!("../../../../../docs/scenarios.schema.json");

/// A table of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaTable {
    /// The heading in `docs/reference/scenarios.md`, and the definition in `docs/scenarios.schema.json`.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [&'static str],
}

/// Every table that a scenario can have.
pub const TABLES: &[SchemaTable] = &[
    SchemaTable { name: "scenario", keys: ROOT_KEYS },
    SchemaTable { name: "array", keys: array::ARRAY_KEYS },
    SchemaTable { name: "change", keys: array::CHANGE_KEYS },
    SchemaTable { name: "disk", keys: array::DISK_KEYS },
    SchemaTable { name: "host", keys: host::KEYS },
    SchemaTable { name: "knee", keys: law::KNEE_KEYS },
    SchemaTable { name: "auto", keys: law::AUTO_KEYS },
    SchemaTable { name: "window", keys: law::WINDOW_KEYS },
    SchemaTable { name: "pid", keys: law::PID_KEYS },
    SchemaTable { name: "integral", keys: law::INTEGRAL_KEYS },
    SchemaTable { name: "self_tuning", keys: law::SELF_TUNING_KEYS },
    SchemaTable { name: "bands", keys: law::BAND_KEYS },
    SchemaTable { name: "release", keys: release::KEYS },
    SchemaTable { name: "batch", keys: bursts::BATCH_KEYS },
    SchemaTable { name: "vm", keys: vm::KEYS },
    SchemaTable { name: "goal-change", keys: vm::GOAL_CHANGE_KEYS },
    SchemaTable { name: "limit", keys: vm::LIMIT_KEYS },
    SchemaTable { name: "contract", keys: contract::KEYS },
    SchemaTable { name: "volume", keys: vm::VOLUME_KEYS },
    SchemaTable { name: "workload", keys: workload::KEYS },
    SchemaTable { name: "step", keys: template::STEP_KEYS },
    SchemaTable { name: "weighted-size", keys: workload::SIZE_KEYS },
    SchemaTable { name: "region", keys: workload::REGION_KEYS },
    SchemaTable { name: "cycle", keys: workload::CYCLE_KEYS },
    SchemaTable { name: "network", keys: network::KEYS },
    SchemaTable { name: "partition", keys: network::PARTITION_KEYS },
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
