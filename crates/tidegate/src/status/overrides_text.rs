//! Text form of overrides, for people.

use std::fmt;

use tidegate_service::overrides::{
    ConsumerOverride, OverridesDocument, ReleaseEntry, ReleaseScope, ResourceOverride,
};
use tidegate_units::{ByteRate, Iops, Latency};

/// The overrides of a service: a line for each of them, and an empty line. Nothing without any.
pub(super) struct OverridesText<'a>(pub(super) &'a OverridesDocument);

impl fmt::Display for OverridesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverridesDocument { resources, consumers, releases } = self.0;
        for ReleaseEntry { resource, consumer, until, by, since } in releases {
            let scope = ReleaseScope { resource: resource.clone(), consumer: consumer.clone() };
            writeln!(f, "RELEASED until {until}: {scope}, by {by} at {since}")?;
        }
        for ResourceOverride { resource, target_seconds, dry_run, by, since } in resources {
            let target = target_seconds.map(|target| format!("target {}", Latency::from_secs_f64(target)));
            let dry_run = dry_run.map(|dry_run| format!("dry_run {dry_run}"));
            let settings = [target, dry_run].into_iter().flatten().collect::<Vec<_>>().join(", ");
            writeln!(f, "changed at run time: {resource}: {settings}, by {by} at {since}")?;
        }
        for ConsumerOverride { resource, consumer, shares, limit_iops, limit_bytes_per_second, by, since } in
            consumers
        {
            let shares = shares.map(|shares| format!("shares {shares}"));
            let limit = limit_iops.map(|limit| format!("limit {}", Iops::new(limit)));
            let bandwidth = limit_bytes_per_second.map(|limit| format!("bandwidth {}", ByteRate::new(limit)));
            let settings = [shares, limit, bandwidth].into_iter().flatten().collect::<Vec<_>>().join(", ");
            writeln!(f, "changed at run time: {consumer} at {resource}: {settings}, by {by} at {since}")?;
        }
        let is_empty = releases.is_empty() && resources.is_empty() && consumers.is_empty();
        if is_empty { Ok(()) } else { writeln!(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_override_names_its_caller_and_its_time() {
        let document = r#"{
            "resources": [{"resource": "disk", "target_seconds": 0.012, "dry_run": true,
                           "by": "uid 0", "since": "2026-11-26T10:00:00.000Z"}],
            "consumers": [{"resource": "disk", "consumer": "vm1", "shares": null, "limit_iops": 50,
                           "by": "uid 0", "since": "2026-11-26T10:00:00.000Z"}],
            "releases": [{"resource": null, "consumer": "vm2", "until": "2026-11-26T10:30:00.000Z",
                          "by": "uid 0", "since": "2026-11-26T10:00:00.000Z"}]
        }"#;
        let text = OverridesText(&serde_json::from_str(document).unwrap()).to_string();
        assert_eq!(
            text,
            "RELEASED until 2026-11-26T10:30:00.000Z: vm2, by uid 0 at 2026-11-26T10:00:00.000Z\n\
             changed at run time: disk: target 12.0ms, dry_run true, by uid 0 at 2026-11-26T10:00:00.000Z\n\
             changed at run time: vm1 at disk: limit 50 IO/s, by uid 0 at 2026-11-26T10:00:00.000Z\n\n"
        );
        assert_eq!(OverridesText(&OverridesDocument::default()).to_string(), "");
    }
}
