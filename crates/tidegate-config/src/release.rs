//! The release of requests under laws that command rates, as it stands among the keys of a pool or a host.

use std::time::Duration;

use tidegate_sched::BucketRelease;
use tidegate_units::Latency;

use crate::finding::FindingList;
use crate::section::Section;

/// The keys of the table `release`.
pub const KEYS: &[&str] = crate::keys::law::RELEASE.names;

/// With longer ones a rate is a burst and a pause.
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// Reads the table `release`. Keys that it lacks have their defaults.
pub fn read(of: &Section<'_>, report: &mut FindingList<'_>) -> BucketRelease {
    let mut release = BucketRelease::default();
    let Some(section) = of.table("release", KEYS, report) else { return release };
    if let Some(tick) = section.parsed::<Latency>("tick", report) {
        release.tick = tick.value.to_duration();
        if release.tick > LONGEST_TICK {
            report.error(&tick.span, "`tick` must be at most 1s");
        }
    }
    if let Some(ahead) = section.whole("ahead", 0..=65_536, report) {
        // None at all could never go.
        release.ahead = u32::try_from(ahead.value).ok().filter(|ahead| *ahead > 0);
    }
    release
}
