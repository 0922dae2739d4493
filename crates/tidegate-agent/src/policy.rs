//! The cluster's policies over a host's own configuration.

use std::time::Duration;

use tidegate_cluster::{Policies, Policy};
use tidegate_gateway::{GatewayConfig, PoolConfig};
use tidegate_sched::{Beyond, Limit};
use tidegate_units::ResourceName;

/// The burst of a limit that the host's configuration does not have, as where nothing is said there.
const BURST: Duration = Duration::from_millis(100);

/// The configuration as it is in force: what a policy mentions of a member of the cluster replaces what the host's own
/// file says. Consumers that the policy names and this host does not have are other hosts'.
pub(crate) fn in_force(
    config: &GatewayConfig,
    members: &[ResourceName],
    policies: &Policies,
) -> GatewayConfig {
    let mut config = config.clone();
    for pool in config.pools.iter_mut().filter(|pool| members.contains(&pool.name)) {
        if let Some(revision) = policies.get(&pool.name) {
            apply(pool, &revision.policy);
        }
    }
    config
}

fn apply(pool: &mut PoolConfig, policy: &Policy) {
    if let (Some(law), Some(target)) = (&mut pool.law, policy.target) {
        law.target = target;
    }
    for export in &mut pool.exports {
        if let Some(shares) = policy.shares.get(&export.name) {
            export.shares = *shares;
        }
        if let Some(reservation) = policy.reservations.get(&export.name) {
            export.reservation = Some(*reservation);
        }
        if let Some(limit) = policy.limits.get(&export.name) {
            let own = export.limit.unwrap_or(Limit {
                iops: None,
                bytes_per_s: None,
                burst: BURST,
                beyond: Beyond::Wait,
            });
            export.limit = Some(Limit { iops: Some(*limit), ..own });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use tidegate_cluster::PolicyRevision;
    use tidegate_units::{Iops, Latency};

    use super::*;
    use crate::config::Config;

    fn configured() -> GatewayConfig {
        let text = "listen = ['unix:/s']
            [cluster]
            name = 'c'
            carrier = { kind = 'nats', servers = ['nats://127.0.0.1:4222'] }
            [pool.array]
            backend = { kind = 'emulated', preset = 'sata-stripe' }
            cluster = true
            target = '20ms'
            export.vm1 = { size = '4MiB', shares = 100, limit = { bandwidth = '1MiB/s', burst = '1s' } }
            export.vm2 = { size = '4MiB', shares = 200 }
            [pool.own]
            backend = { kind = 'emulated', preset = 'sata-stripe' }
            target = '20ms'
            export.vm3 = { size = '4MiB' }";
        Config::parse("t", text, Path::new("/")).unwrap().gateway
    }

    fn policies(json: &str) -> Policies {
        let policy = Policy::from_json(json.as_bytes()).unwrap();
        let revision = |name: &str| {
            (ResourceName::new(name).unwrap(), PolicyRevision { revision: 1, policy: policy.clone() })
        };
        Arc::new([revision("array"), revision("own"), revision("elsewhere")].into())
    }

    #[test]
    fn what_a_policy_mentions_replaces_what_the_file_says_and_nothing_else() {
        let config = configured();
        let members = [ResourceName::new("array").unwrap()];
        assert_eq!(in_force(&config, &members, &policies(r#"{"version":1}"#)), config);
        let json = r#"{"version":1,"target":"30ms","shares":{"vm1":400,"vm3":7,"vm9":1},"limits":{"vm1":"50 IO/s"}}"#;
        let changed = in_force(&config, &members, &policies(json));
        let [array, own] = &changed.pools[..] else { panic!("two pools") };
        assert_eq!(array.law.as_ref().unwrap().target, Latency::from_millis(30));
        assert_eq!([array.exports[0].shares.get(), array.exports[1].shares.get()], [400, 200]);
        let limit = Limit { iops: Some(Iops::new(50.0)), ..config.pools[0].exports[0].limit.unwrap() };
        assert_eq!(array.exports[0].limit, Some(limit));
        assert_eq!(*own, config.pools[1], "a pool that is not a member is the host's own affair");
    }
}
