//! Effects of a reload that an administrator may not expect, in words.

use tidegate_control::LawKind;
use tidegate_gateway::{GatewayConfig, GatewaySnapshot, PoolConfig, PoolSnapshot};

/// Returns a warning for each pool whose law steered by protected reads, and steers by all requests now.
pub(crate) fn lost_signals(before: &GatewayConfig, after: &GatewayConfig) -> Vec<String> {
    let had_protected = |pool: &&PoolConfig| {
        before.pools.iter().any(|old| old.name == pool.name && steers(old) && has_protected(old))
    };
    let lost = after.pools.iter().filter(|pool| steers(pool) && !has_protected(pool)).filter(had_protected);
    let said = lost.map(|pool| {
        format!(
            "pool {}: no export is protected any more: the law now steers by the response time of all \
             requests, not of protected reads",
            pool.name
        )
    });
    said.collect()
}

/// Returns true if the pool's law steers by the reads of protected exports where there are some.
fn steers(pool: &PoolConfig) -> bool {
    let kind = pool.law.as_ref().map(|law| law.law.kind());
    matches!(kind, Some(LawKind::Auto | LawKind::Window | LawKind::Pid))
}

fn has_protected(pool: &PoolConfig) -> bool {
    pool.exports.iter().any(|export| export.protected)
}

/// Returns a warning for each export that is removed, and that sessions still use.
pub(crate) fn removed_in_use(gateway: &GatewaySnapshot) -> Vec<String> {
    let of_pool = |pool: &PoolSnapshot| {
        let removed = pool.consumers.iter().filter(|export| export.removed && export.sessions > 0);
        let said = removed.map(|export| {
            let sessions = match export.sessions {
                1 => "1 session uses".to_owned(),
                count => format!("{count} sessions use"),
            };
            format!("pool {}: export {} is removed, and {sessions} it until they end", pool.name, export.name)
        });
        said.collect::<Vec<_>>()
    };
    gateway.pools.iter().flat_map(of_pool).collect()
}
