//! The demonstration's set-up as a configuration for `tidegate serve`, with files in place of the emulated
//! array.

use super::plan::{DemoPlan, INTERVAL, WRITERS};

/// The configuration, commented.
pub(crate) fn configuration(plan: &DemoPlan) -> String {
    format!(
        r#"listen = ["unix:/run/tidegate/nbd.sock"]
metrics = "127.0.0.1:9809"

[pool.sata]
backend = {{ kind = "file" }}
law = "{law}"
target = "{target}"
set_point = {set_point}
interval = "{interval}"

# Never held back; its reads are what the law keeps fast.
[pool.sata.export.database]
path = "/dev/vg0/database"
protected = true

# One such table for each of the {WRITERS} backups. Whoever has twice the shares is held half as much.
[pool.sata.export.backup-01]
path = "/dev/vg0/backup-01"
shares = 100
"#,
        law = plan.law,
        target = plan.target,
        set_point = plan.set_point_ratio,
        interval = INTERVAL,
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_serve::config::ServeConfig;

    use super::super::plan::tests::wanted;
    use super::super::plan::{DemoLaw, DemoRequest};
    use super::super::setup;
    use super::*;

    /// The configuration in the report is valid, and means the same as the demonstration's own.
    #[test]
    fn the_service_takes_it_and_regulates_alike() {
        for law in [DemoLaw::Auto, DemoLaw::Window, DemoLaw::Pid] {
            let plan = DemoPlan::new(&DemoRequest { law, set_point_ratio: Some(0.7), ..wanted() }).unwrap();
            let config = ServeConfig::parse("demo.toml", &configuration(&plan), Path::new("/")).unwrap();
            let ran = setup::gateway(&plan, plan.phases[2].name, Path::new("/tmp/socket"));
            let (ran, written) = (&ran.pools[0], &config.gateway.pools[0]);
            assert_eq!(written.law, ran.law);
            assert_eq!(written.depth, ran.depth);
            let exports = |pool: &tidegate_gateway::PoolConfig| {
                pool.exports[..2].iter().map(|e| (e.name.clone(), e.shares, e.protected)).collect::<Vec<_>>()
            };
            assert_eq!(exports(written), exports(ran));
        }
    }
}
