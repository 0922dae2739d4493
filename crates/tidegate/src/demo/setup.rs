//! Parts of the scenario: one pool on the emulated stripe set, a database, and its neighbours.

use std::path::Path;
use std::time::Duration;

use tidegate_control::LoopConfig;
use tidegate_device::Preset;
use tidegate_gateway::{
    BackendConfig, DataStore, ExportConfig, ExportStore, GatewayConfig, ListenEndpoint, PoolConfig,
};
use tidegate_load::{
    BlockOrder, LoadArrivals, LoadConfig, LoadPhases, LoadTarget, RequestSpacing, WritePayload,
};
use tidegate_nbd::ExportName;
use tidegate_units::{Bytes, ConsumerName, Iops, ResourceName};

use super::plan::{DemoPlan, INTERVAL, PhaseName, PhasePlan, WRITERS};

/// The database: the paper's 256 KiB/s in reads of 4 KiB (Bjørgeengen).
const READS_PER_SECOND: f64 = 64.0;

/// More than a minute's reads. At the bound they would wait in the client, and their time would still count.
const READS_OUTSTANDING: u32 = 4_096;

/// The size of a backup's writes: the greatest burst of iSCSI's defaults.
const WRITE: Bytes = Bytes::from_kib(256);

/// Every volume's size.
pub(super) const VOLUME: Bytes = Bytes::from_gib(4);

/// The part of its volume that a backup writes before it begins again: written data stays in memory.
pub(super) const BACKUP_SPAN: Bytes = Bytes::from_mib(32);

/// The protected consumer.
pub(super) fn database() -> ConsumerName {
    name("database")
}

/// The throttled consumers: `backup-01` and so on.
pub(super) fn backups() -> impl Iterator<Item = ConsumerName> {
    (1..=WRITERS).map(|number| name(&format!("backup-{number:02}")))
}

fn name(text: &str) -> ConsumerName {
    ConsumerName::new(text).expect("the names above are short and plain")
}

/// The gateway as a phase wants it. Phases differ in the law only, so that one can follow the other under
/// running clients.
pub(super) fn gateway(plan: &DemoPlan, phase: PhaseName, socket: &Path) -> GatewayConfig {
    let export = |name| ExportConfig::new(name, ExportStore::Size(VOLUME));
    let mut exports = vec![ExportConfig { protected: true, ..export(database()) }];
    exports.extend(backups().map(export));
    let backend = BackendConfig::Emulated {
        device: Preset::SataStripe.config(),
        changes: Vec::new(),
        seed: plan.seed,
        // Room for every backup's span, and as much again for what a page boundary adds.
        data: DataStore::Memory { limit: Bytes::new(2 * WRITERS as u64 * BACKUP_SPAN.get()) },
    };
    let resource = ResourceName::new("sata").expect("a short and plain name");
    let mut pool = PoolConfig::new(resource, backend, exports);
    pool.law = (phase == PhaseName::Regulated).then(|| law(plan, pool.name.clone()));
    GatewayConfig::new(vec![ListenEndpoint::Unix(socket.to_owned())], vec![pool])
}

fn law(plan: &DemoPlan, resource: ResourceName) -> LoopConfig {
    LoopConfig {
        set_point_ratio: plan.set_point_ratio,
        interval: INTERVAL.to_duration(),
        ..LoopConfig::new(resource, plan.target, plan.law.config())
    }
}

/// The database's load: reads come whatever became of the last ones.
pub(super) fn victim(plan: &DemoPlan, phase: &PhasePlan, socket: &Path) -> LoadConfig {
    LoadConfig {
        arrivals: LoadArrivals::Open {
            rate: Iops::new(READS_PER_SECOND),
            spacing: RequestSpacing::Even,
            depth: READS_OUTSTANDING,
        },
        duration: Some(seconds(phase.seconds)),
        seed: plan.seed,
        ..LoadConfig::new(target(&database(), socket))
    }
}

/// The backups' loads, which start and stop together.
pub(super) fn writers(plan: &DemoPlan, phase: &PhasePlan, socket: &Path) -> impl Iterator<Item = LoadConfig> {
    let phases = LoadPhases { on: seconds(plan.burst), off: seconds(plan.pause), delay: Duration::ZERO };
    let (seed, duration) = (plan.seed, seconds(phase.seconds));
    backups().zip(1..).map(move |(backup, number)| LoadConfig {
        order: BlockOrder::Sequential,
        read_fraction: 0.0,
        block: WRITE,
        span: Some(BACKUP_SPAN),
        payload: WritePayload::Random,
        phases: Some(phases),
        duration: Some(duration),
        seed: seed.wrapping_add(number),
        ..LoadConfig::new(target(&backup, socket))
    })
}

fn target(export: &ConsumerName, socket: &Path) -> LoadTarget {
    let export =
        ExportName::new(export.as_str()).expect("a consumer's name is shorter than an export's may be");
    LoadTarget::unix(socket, export)
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::wanted;
    use super::*;

    #[test]
    fn phases_differ_in_nothing_but_the_law() {
        let plan = DemoPlan::new(&wanted()).unwrap();
        let of = |phase| gateway(&plan, phase, Path::new("/tmp/s"));
        let (unregulated, mut regulated) = (of(PhaseName::Unregulated), of(PhaseName::Regulated));
        for config in [&unregulated, &regulated] {
            config.validate().unwrap();
        }
        assert_eq!(of(PhaseName::Alone), unregulated);
        assert_eq!(unregulated.pools[0].law, None);
        let law = regulated.pools[0].law.take().unwrap();
        assert_eq!(regulated, unregulated);
        assert_eq!(law.set_point(), plan.set_point());
        assert!(law.interval <= Duration::from_millis(250));
    }

    #[test]
    fn only_the_database_is_protected() {
        let plan = DemoPlan::new(&wanted()).unwrap();
        let exports = gateway(&plan, PhaseName::Regulated, Path::new("/tmp/s")).pools.remove(0).exports;
        assert_eq!(exports.len(), 1 + WRITERS);
        let protected: Vec<_> = exports.iter().filter(|e| e.protected).map(|e| e.name.as_str()).collect();
        assert_eq!(protected, ["database"]);
        assert_eq!(exports[WRITERS].name.as_str(), "backup-12");
    }
}
