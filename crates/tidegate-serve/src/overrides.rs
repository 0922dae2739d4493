//! Settings that operators change at run time, over the configuration with policies and contracts.

use tidegate_gateway::{ExportConfig, GatewayConfig, PoolConfig};
use tidegate_service::overrides::{
    ConsumerInForce, OverrideAction, OverrideRefusal, Overrides, OverridesDocument, ResourceInForce,
    ServiceSettings,
};
use tidegate_units::{ByteRate, Iops, Latency, ResourceName};

use crate::policy::{floor, least_rate, limit_bandwidth_to, limit_to};

/// The most bytes that count as one I/O, of which promised rates are.
const ONE_IO: f64 = 65_536.0;

/// Lays overrides over a configuration.
pub(crate) fn apply(config: &mut GatewayConfig, overrides: &Overrides) {
    if overrides.is_empty() {
        return;
    }
    for pool in &mut config.pools {
        if let Some(law) = &mut pool.law {
            overrides.lay_over(law);
        }
        for (name, changes) in overrides.of_consumers(&pool.name) {
            let Some(export) = pool.exports.iter_mut().find(|export| export.name == *name) else { continue };
            export.shares = changes.shares.unwrap_or(export.shares);
            if let Some(limit) = changes.limit {
                limit_to(export, limit);
            }
            if let Some(bandwidth) = changes.bandwidth {
                limit_bandwidth_to(export, bandwidth);
            }
        }
        for export in &mut pool.exports {
            export.released = overrides.is_consumer_released(&pool.name, &export.name);
        }
    }
}

/// Checks that the gateway has what an action is about, and keeps its promises after it. `config`: without
/// overrides.
pub(crate) fn check(action: &OverrideAction, config: &GatewayConfig) -> Result<(), OverrideRefusal> {
    let pool = action.resource().map(|name| find_pool(config, name)).transpose()?;
    let pools = pool.map_or(&config.pools[..], std::slice::from_ref);
    if let Some(consumer) = action.consumer()
        && !pools.iter().flat_map(|pool| &pool.exports).any(|export| export.name == *consumer)
    {
        let known = pools.iter().flat_map(|pool| &pool.exports).map(|export| export.name.as_str());
        return Err(OverrideRefusal::no_consumer(consumer, known));
    }
    let impossible = |why: String| Err(OverrideRefusal::Impossible(why));
    match (action, pool) {
        (OverrideAction::Resource { .. }, Some(pool)) if pool.law.is_none() => impossible(format!(
            "pool `{}` has no law: write a `target` into the configuration, and reload it",
            pool.name
        )),
        (OverrideAction::Consumer { consumer, patch, .. }, Some(pool)) => {
            let export = pool.exports.iter().find(|export| export.name == *consumer);
            let limit = patch.limit_iops.flatten().map(Iops::new);
            let bandwidth = patch.limit_bytes_per_second.flatten().map(ByteRate::new);
            let Some(export) = export.filter(|_| limit.is_some() || bandwidth.is_some()) else {
                return Ok(());
            };
            if export.protected {
                return impossible(format!("`{consumer}` is protected: only the configuration can limit it"));
            }
            let least = least_rate(export, floor(pool));
            let least_bytes = ByteRate::new(least.per_second() * ONE_IO);
            let why = "its contract, its reservation or the law leaves it at least";
            match (limit.filter(|limit| *limit < least), bandwidth.filter(|limit| *limit < least_bytes)) {
                (Some(limit), _) => {
                    impossible(format!("the limit {limit} of `{consumer}` is below {least}, which {why}"))
                }
                (None, Some(bandwidth)) => impossible(format!(
                    "the bandwidth {bandwidth} of `{consumer}` is below {least_bytes}, which {least} of 64 KiB \
                     take, and {why}"
                )),
                (None, None) => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn find_pool<'a>(config: &'a GatewayConfig, name: &ResourceName) -> Result<&'a PoolConfig, OverrideRefusal> {
    let known = || config.pools.iter().map(|pool| pool.name.as_str());
    let found = config.pools.iter().find(|pool| pool.name == *name);
    found.ok_or_else(|| OverrideRefusal::no_resource(name, known()))
}

/// Returns the settings of a configuration.
pub(crate) fn settings(config: &GatewayConfig, overrides: OverridesDocument) -> ServiceSettings {
    let resource = |pool: &PoolConfig| {
        ResourceInForce::of(&pool.name, pool.law.as_ref(), pool.exports.iter().map(consumer).collect())
    };
    ServiceSettings {
        version: ServiceSettings::VERSION,
        service: "serve".to_owned(),
        resources: config.pools.iter().map(resource).collect(),
        overrides,
    }
}

fn consumer(export: &ExportConfig) -> ConsumerInForce {
    ConsumerInForce {
        name: export.name.clone(),
        protected: export.protected,
        shares: export.shares.get(),
        limit_iops: export.limit.and_then(|limit| limit.iops).map(Iops::per_second),
        limit_bytes_per_second: export.limit.and_then(|limit| limit.bytes_per_s).map(ByteRate::per_second),
        reservation_iops: export.reservation.map(Iops::per_second),
        goal_seconds: export.goal.map(Latency::as_secs_f64),
    }
}
