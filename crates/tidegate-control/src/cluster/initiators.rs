//! Conclusions from what initiators say that they wait for.
//!
//! The host that regulates a resource measures latency at the storage. Initiators wait longer: for the
//! network, and for queues on the way. Their reports are the better signal, and they come from other
//! machines. Therefore
//!
//! - the signal is never shorter than what the host itself measures: no report makes regulation weaker;
//! - a mean counts only as far as another witness bears it out: a second initiator, or the host's own
//!   measurement. So one initiator that lies, or whose path is broken, throttles no consumer. Initiators that
//!   the administrator believes need no witness;
//! - no initiator counts for more requests than all others together;
//! - a report that was counted is not counted again: a decision without news is a decision without samples.

use tidegate_units::{HostName, Iops, Latency};

use crate::document::host_report::{ClusterSignal, HostReport};
use crate::document::signal::SignalRequests;

/// The latest report of an initiator that is young enough to count.
#[derive(Debug, Clone, PartialEq)]
pub struct InitiatorReport {
    /// The report.
    pub report: HostReport,
    /// True if it needs no witness.
    pub believed: bool,
    /// True if it came since the last decision.
    pub is_new: bool,
}

/// Returns the signal of a resource by the reports of initiators. `name` is the host that regulates, and
/// `own` is what it measured. `stale` is the number of initiators whose reports are too old.
///
/// `None` if the reports say nothing: then the host's own measurements are the signal.
#[must_use]
pub fn reported_signal(
    name: &HostName,
    own: &HostReport,
    reports: &[InitiatorReport],
    stale: u32,
) -> Option<ClusterSignal> {
    let waiting = || reports.iter().filter(|heard| heard.report.outstanding);
    let mut means: Vec<(f64, f64, bool)> = reports
        .iter()
        .filter_map(|heard| Some((heard.report.mean()?, heard.report.completed as f64, heard.believed)))
        .collect();
    if means.is_empty() && waiting().next().is_none() {
        return None;
    }
    let own_mean = own.mean().unwrap_or(0.0);
    let witnessed = witnessed(means.iter().map(|(mean, _, believed)| (*mean, *believed)), own_mean);
    let adjusted = means.iter().filter(|(mean, ..)| *mean > witnessed).count();
    let all: f64 = means.iter().map(|(_, weight, _)| weight).sum();
    if means.len() > 1 {
        means.iter_mut().for_each(|(_, weight, _)| *weight = weight.min(all - *weight));
    }
    let weights: f64 = means.iter().map(|(_, weight, _)| weight).sum();
    let sum: f64 = means.iter().map(|(mean, weight, _)| mean.min(witnessed) * weight).sum();
    let felt = if weights > 0.0 { sum / weights } else { 0.0 };
    let completed = reports.iter().fold(0_u64, |sum, heard| sum.saturating_add(heard.report.completed));
    let is_news = reports.iter().any(|heard| heard.is_new);
    let (completed, mean) = match (is_news, own.mean()) {
        (true, _) if !means.is_empty() => (completed, Some(felt.max(own_mean))),
        // Initiators complete nothing, or have not reported since: what the host measures says nothing of
        // their wait, unless it is as long.
        (_, Some(own_mean)) if own_mean > felt && !means.is_empty() => (own.completed, Some(own_mean)),
        _ => (0, None),
    };
    let ages =
        waiting().map(|heard| (heard.report.oldest.unwrap_or_default().as_nanos() as f64, heard.believed));
    let own_age = own.oldest.unwrap_or_default().as_nanos() as f64;
    let oldest = witnessed_age(ages, own_age);
    Some(ClusterSignal {
        hosts: count(reports.len().saturating_add(1)),
        stale,
        adjusted: count(adjusted),
        signal: SignalRequests::ProtectedReads,
        completed,
        mean: mean.map(|mean| Latency::from_nanos(mean.round() as u64)),
        iops: Iops::new(reports.iter().map(|heard| heard.report.iops()).sum()),
        reserved: Iops::ZERO,
        // Without news, nothing is known.
        outstanding: own.outstanding || waiting().next().is_some() || mean.is_none(),
        oldest: Some(oldest).filter(|age| *age > Latency::ZERO),
        leader: name.clone(),
        leads: true,
        set_point: None,
        points: Vec::new(),
        load: None,
    })
}

/// Returns the longest latency that has a witness: the host's own, that of an initiator that is believed, or
/// the second longest of all.
fn witnessed(means: impl Iterator<Item = (f64, bool)>, own: f64) -> f64 {
    let (mut longest, mut second, mut believed) = (0.0_f64, 0.0_f64, own);
    for (mean, is_believed) in means {
        if is_believed {
            believed = believed.max(mean);
        }
        second = second.max(mean.min(longest));
        longest = longest.max(mean);
    }
    second.max(believed)
}

fn witnessed_age(ages: impl Iterator<Item = (f64, bool)>, own: f64) -> Latency {
    Latency::from_nanos(witnessed(ages, own).round() as u64)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(completed: u64, mean_ms: f64) -> HostReport {
        HostReport {
            interval: Latency::from_millis(250),
            signal: SignalRequests::ProtectedReads,
            completed,
            total_latency: Latency::from_millis_f64(mean_ms * completed as f64),
            outstanding: completed > 0,
            oldest: None,
            window: None,
            active_shares: 0.0,
            reserved: Iops::ZERO,
            set_point: None,
            point: None,
            load: None,
        }
    }

    fn heard(completed: u64, mean_ms: f64) -> InitiatorReport {
        InitiatorReport { report: report(completed, mean_ms), believed: false, is_new: true }
    }

    fn signal(own: &HostReport, reports: &[InitiatorReport]) -> Option<ClusterSignal> {
        reported_signal(&HostName::new("target").unwrap(), own, reports, 0)
    }

    fn mean_ms(own: &HostReport, reports: &[InitiatorReport]) -> f64 {
        signal(own, reports).unwrap().mean.unwrap().as_millis_f64()
    }

    #[test]
    fn idle_disks_behind_a_congested_link_are_slow_if_two_say_so() {
        let own = report(100, 0.2);
        let both = [heard(100, 40.0), heard(300, 50.0)];
        let mean = mean_ms(&own, &both);
        assert!((mean - 40.0).abs() < 1e-6, "as far as the other bears it out: {mean}");
        let signal = signal(&own, &both).unwrap();
        assert_eq!((signal.hosts, signal.adjusted, signal.completed), (3, 1, 400));
    }

    #[test]
    fn one_initiator_alone_is_not_believed_unless_the_administrator_does() {
        let own = report(100, 0.2);
        let mut reports = [heard(1_000, 900.0), heard(10, 1.0), heard(10, 2.0)];
        assert!(mean_ms(&own, &reports) <= 2.0);
        assert!((mean_ms(&own, &reports[..1]) - 0.2).abs() < 1e-6);
        reports[0].believed = true;
        assert!((mean_ms(&own, &reports[..1]) - 900.0).abs() < 1e-6);
    }

    #[test]
    fn no_report_makes_regulation_weaker() {
        assert!((mean_ms(&report(10, 30.0), &[heard(1_000, 0.1), heard(1_000, 0.1)]) - 30.0).abs() < 1e-6);
    }

    #[test]
    fn a_report_is_counted_once() {
        let old = |mean_ms| InitiatorReport { is_new: false, ..heard(100, mean_ms) };
        let again = signal(&report(100, 0.2), &[old(40.0), old(50.0)]).unwrap();
        assert_eq!((again.completed, again.mean, again.outstanding), (0, None, true), "not known");
        // What the host measures itself is always new.
        assert!((mean_ms(&report(100, 90.0), &[old(40.0), old(50.0)]) - 90.0).abs() < 1e-6);
    }

    #[test]
    fn reports_of_idle_initiators_say_nothing() {
        let idle = InitiatorReport { report: report(0, 0.0), believed: true, is_new: true };
        assert_eq!(signal(&report(100, 0.2), std::slice::from_ref(&idle)), None);
        let waits =
            HostReport { outstanding: true, oldest: Some(Latency::from_millis(800)), ..report(0, 0.0) };
        let hung = |believed| InitiatorReport { report: waits.clone(), believed, is_new: true };
        let alone = signal(&report(100, 0.2), &[hung(false)]).unwrap();
        assert_eq!((alone.mean, alone.oldest, alone.outstanding), (None, None, true), "unknown");
        let two = signal(&report(100, 0.2), &[hung(false), hung(false)]).unwrap();
        assert_eq!((two.mean, two.oldest), (None, Some(Latency::from_millis(800))), "an overload");
    }

    proptest! {
        #[test]
        fn one_liar_takes_the_signal_no_further_than_what_another_host_measures(
            honest in prop::collection::vec((1_u64..10_000, 0.1..50.0), 0..6),
            own in (0_u64..10_000, 0.1..50.0),
            lie in (any::<u32>(), 0.0..1e7),
        ) {
            let own = report(own.0, own.1);
            let mut reports: Vec<_> = honest.iter().map(|(count, mean)| heard(*count, *mean)).collect();
            reports.push(heard(lie.0.into(), lie.1));
            let own_ms = own.mean().unwrap_or(0.0) / 1e6;
            let longest = honest.iter().map(|(_, mean)| *mean).fold(own_ms, f64::max);
            if let Some(mean) = signal(&own, &reports).and_then(|signal| signal.mean) {
                prop_assert!(mean.as_millis_f64() <= longest + 1e-3, "{mean} beside {longest} ms");
                prop_assert!(mean.as_nanos() as f64 >= own.mean().unwrap_or(0.0) - 1.0);
            }
        }
    }
}
