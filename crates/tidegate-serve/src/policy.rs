//! The cluster's policies over a host's own configuration.

use std::time::Duration;

use tidegate_cluster::{PolicySource, ResourcePolicy};

use tidegate_gateway::{ExportConfig, GatewayConfig, PoolConfig};
use tidegate_sched::{BeyondLimit, ConsumerLimit};
use tidegate_units::{ByteRate, ConsumerName, Iops, ResourceName};

/// The burst of a limit that the host's configuration does not have, as where nothing is said there.
const BURST: Duration = Duration::from_millis(100);

/// The least that a policy may limit an export to where the pool's law has no floor of its own: that of the
/// laws.
const FLOOR: Iops = Iops::new(2.0);

/// This host's pools in the cluster, which policies are laid over, and its consent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyMembers<'a> {
    pub(crate) pools: &'a [ResourceName],
    /// Protected exports that a policy may limit.
    pub(crate) may_limit: &'a [ConsumerName],
}

/// The configuration as it is in force: what a policy mentions of a member of the cluster replaces what the
/// host's own file says, within the bounds of that file. Consumers that the policy names and this host does
/// not have are other hosts'. The second part says, for the log, what of the policies does not count as
/// written.
pub(crate) fn in_force(
    config: &GatewayConfig,
    members: PolicyMembers<'_>,
    policies: &PolicySource,
) -> (GatewayConfig, Vec<String>) {
    let (mut config, mut remarks) = (config.clone(), Vec::new());
    for pool in config.pools.iter_mut().filter(|pool| members.pools.contains(&pool.name)) {
        if let Some(revision) = policies.get(&pool.name) {
            apply(pool, &revision.policy, members.may_limit, &mut remarks);
        }
    }
    (config, remarks)
}

/// Returns the least rate that a limit leaves an export of this pool, apart from what the export is promised.
pub(crate) fn floor(pool: &PoolConfig) -> Iops {
    pool.law.as_ref().and_then(|law| law.law.floor()).unwrap_or(FLOOR)
}

/// Returns the least rate that a limit leaves an export: what the host's own file promises is not limited
/// away.
pub(crate) fn least_rate(export: &ExportConfig, floor: Iops) -> Iops {
    let promised = export.contract.map_or(floor, |contract| floor.max(contract.iops()));
    export.reservation.map_or(promised, |reservation| promised.max(reservation))
}

/// Limits an export to a number of I/Os per second. The rest of its limit stays.
pub(crate) fn limit_to(export: &mut ExportConfig, limit: Iops) {
    export.limit = Some(ConsumerLimit { iops: Some(limit), ..limit_of(export) });
}

/// Limits an export to a number of bytes per second. The rest of its limit stays.
pub(crate) fn limit_bandwidth_to(export: &mut ExportConfig, limit: ByteRate) {
    export.limit = Some(ConsumerLimit { bytes_per_s: Some(limit), ..limit_of(export) });
}

/// Returns the limit of an export. Without one it limits nothing.
fn limit_of(export: &ExportConfig) -> ConsumerLimit {
    let none = ConsumerLimit { iops: None, bytes_per_s: None, burst: BURST, beyond: BeyondLimit::Wait };
    export.limit.unwrap_or(none)
}

fn apply(
    pool: &mut PoolConfig,
    policy: &ResourcePolicy,
    may_limit: &[ConsumerName],
    remarks: &mut Vec<String>,
) {
    let floor = floor(pool);
    if let (Some(law), Some(target)) = (&mut pool.law, policy.target) {
        law.target = target;
    }
    for export in &mut pool.exports {
        if let Some(shares) = policy.shares.get(&export.name) {
            export.shares = *shares;
        }
        let least = least_rate(export, floor);
        let limit = policy.limits.get(&export.name).copied();
        match limit {
            Some(_) if export.protected && !may_limit.contains(&export.name) => remarks.push(format!(
                "the policy of `{}` limits `{name}`, which is protected: the limit is not put into force; \
                    name `{name}` \
                 under `may_limit` in `[cluster] policy` to allow it on this host",
                pool.name,
                name = export.name
            )),
            Some(limit) => {
                if limit < least {
                    remarks.push(format!(
                        "the policy of `{}` limits `{}` to {limit}: {least} are in force, what this host's \
                            configuration \
                         or its law leaves it at least",
                        pool.name, export.name
                    ));
                }
                limit_to(export, limit.max(least));
            }
            None => {}
        }
        if let Some(reservation) = policy.reservations.get(&export.name) {
            let most = export.limit.and_then(|limit| limit.iops).unwrap_or(*reservation);
            if *reservation > most {
                remarks.push(format!(
                    "the policy of `{}` reserves {reservation} for `{}`: {most} are in force, its limit",
                    pool.name, export.name
                ));
            }
            export.reservation = Some(reservation.min(most));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use tidegate_cluster::{PolicyKey, PolicyRevision};
    use tidegate_units::Latency;

    use super::*;
    use crate::config::ServeConfig;

    fn configured() -> GatewayConfig {
        let text = "listen = ['unix:/s']
            [cluster]
            name = 'c'
            carrier = { kind = 'nats', servers = ['nats://127.0.0.1:4222'] }
            [pool.array]
            backend = { kind = 'emulated', preset = 'sata-stripe' }
            cluster = true
            law = 'window'
            target = '20ms'
            export.vm1 = { size = '4MiB', shares = 100, limit = { bandwidth = '1MiB/s', burst = '1s' } }
            export.vm2 = { size = '4MiB', shares = 200, reservation = '80 IO/s' }
            export.db = { size = '4MiB', protected = true }
            [pool.own]
            backend = { kind = 'emulated', preset = 'sata-stripe' }
            target = '20ms'
            export.vm3 = { size = '4MiB' }";
        ServeConfig::parse("t", text, Path::new("/")).unwrap().gateway
    }

    fn policies(json: &str) -> PolicySource {
        let policy = ResourcePolicy::from_json(json.as_bytes()).unwrap();
        let revision = |name: &str| {
            let (writer, policy) = (PolicyKey::generate().writer(), policy.clone());
            (ResourceName::new(name).unwrap(), PolicyRevision { revision: 1, serial: 1, writer, policy })
        };
        Arc::new([revision("array"), revision("own"), revision("elsewhere")].into())
    }

    fn laid_over(json: &str, may_limit: &[ConsumerName]) -> (GatewayConfig, Vec<String>) {
        let pools = [ResourceName::new("array").unwrap()];
        in_force(&configured(), PolicyMembers { pools: &pools, may_limit }, &policies(json))
    }

    #[test]
    fn what_a_policy_mentions_replaces_what_the_file_says_and_nothing_else() {
        let config = configured();
        assert_eq!(laid_over(r#"{"version":1}"#, &[]), (config.clone(), vec![]));
        let json = r#"{"version":1,"target":"30ms","shares":{"vm1":400,"vm3":7,"vm9":1},"limits":{"vm1":"50 IO/s"}}"#;
        let (changed, remarks) = laid_over(json, &[]);
        let [array, own] = &changed.pools[..] else { panic!("two pools") };
        assert_eq!(array.law.as_ref().unwrap().target, Latency::from_millis(30));
        assert_eq!([array.exports[0].shares.get(), array.exports[1].shares.get()], [400, 200]);
        let limit =
            ConsumerLimit { iops: Some(Iops::new(50.0)), ..config.pools[0].exports[0].limit.unwrap() };
        assert_eq!(array.exports[0].limit, Some(limit));
        assert_eq!(*own, config.pools[1], "a pool that is not a member is the host's own affair");
        assert_eq!(remarks, [""; 0]);
    }

    fn limited(config: &GatewayConfig, export: usize) -> Option<Iops> {
        config.pools[0].exports[export].limit?.iops
    }

    #[test]
    fn a_protected_export_is_limited_only_where_the_host_says_so() {
        let json = r#"{"version":1,"limits":{"db":"5 IO/s"}}"#;
        let (config, remarks) = laid_over(json, &[]);
        assert_eq!(limited(&config, 2), None);
        assert!(matches!(&remarks[..], [one] if one.contains("`may_limit`")), "{remarks:?}");
        let (config, remarks) = laid_over(json, &["db".parse().unwrap()]);
        assert_eq!((limited(&config, 2), remarks.len()), (Some(Iops::new(5.0)), 0));
    }

    #[test]
    fn a_limit_has_a_floor_and_leaves_what_is_reserved() {
        let json =
            r#"{"version":1,"limits":{"vm1":"1 IO/s","vm2":"10 IO/s"},"reservations":{"vm1":"7 IO/s"}}"#;
        assert!(ResourcePolicy::from_json(json.as_bytes()).is_err(), "it contradicts itself");
        let json = r#"{"version":1,"limits":{"vm1":"1 IO/s","vm2":"10 IO/s"}}"#;
        let (config, remarks) = laid_over(json, &[]);
        assert_eq!((limited(&config, 0), limited(&config, 1)), (Some(FLOOR), Some(Iops::new(80.0))));
        assert_eq!(remarks.len(), 2, "{remarks:?}");
    }
}
