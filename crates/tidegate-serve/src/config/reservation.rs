//! The check that a pool's reservations can be kept, as far as the configuration tells.

use tidegate_config::{FindingList, Section};
use tidegate_control::{ReservationConditions, feasible};
use tidegate_gateway::PoolConfig;
use tidegate_units::{Iops, Window};

/// Warns of reservations that need more requests outstanding than the pool may have.
pub(super) fn check(section: &Section<'_>, pool: &PoolConfig, report: &mut FindingList<'_>) {
    // What laws that command rates make of reservations is said elsewhere.
    let Some(law) = pool.law.as_ref().filter(|law| !law.law.kind().is_by_rates()) else { return };
    let reserved: f64 = pool
        .exports
        .iter()
        .filter(|export| !export.protected)
        .filter_map(|export| export.reservation)
        .map(Iops::per_second)
        .sum();
    let depth = f64::from(pool.depth);
    let (greatest, key) = match law.law.greatest_window() {
        Some(greatest) if greatest.get() < depth => (greatest, "window.greatest"),
        _ => (Window::new(depth), "depth"),
    };
    let reserved = Iops::new(reserved);
    let latency = law.set_point();
    let judged = feasible(&ReservationConditions {
        here: reserved,
        everywhere: reserved,
        latency,
        greatest,
        capacity: None,
    });
    if !judged.is_kept() {
        report.warning(
            section.span(),
            format!(
                "the reservations of {} are more than its window gives at the set point: {reserved} · \
                    {latency}, and \
                 5 % to spare, are {} requests at the backend; at most {greatest} are allowed",
                section.what(),
                judged.window,
            ),
            format!("raise `{key}`, or reserve less; they are kept only while the array answers sooner"),
        );
    }
}
