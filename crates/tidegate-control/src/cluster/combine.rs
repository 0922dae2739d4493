//! Conclusions from the reports of all hosts that share a resource (PARDA §4.2).
//!
//! Hosts that steer by their own measurements alone drift apart: the host with the shorter response time, by
//! the mere placement of its blocks, opens its window further (PARDA §4.1). If they steer by the mean over
//! all hosts, weighted by their numbers of I/Os, they settle in proportion to their shares.
//!
//! A cluster must bear a member that is silent, or wrong. Therefore
//!
//! - a report that is older than three control intervals no longer counts. Its age is measured by its
//!   receiver, from its arrival: no two clocks are ever compared;
//! - with three live reports or more, a host's mean counts at most as four times the median of all hosts'
//!   means, at least as a quarter of it, and no host counts for more I/Os than all others together. Against
//!   hosts that agree a single liar thus moves the mean by a factor of 2.5 at most. With a single peer, this
//!   host's own mean stands for the median;
//! - a host that hears no other host steers by its own measurements.
//!
//! Where a host has protected consumers, their reads are the signal for all hosts. Plausibility is then
//! judged among such hosts only, because their reads may rightly be slower than the load of others.

use std::time::Duration;

use tidegate_units::{HostName, Iops, Latency};

use crate::document::host_report::{ClusterSignal, HeardReport, HostReport};
use crate::document::point_report::PeerPoint;
use crate::document::signal::SignalRequests;

/// A report older than this many control intervals does not count any more.
const STALE_INTERVALS: u32 = 3;

/// Greatest factor between a host's mean and the median. Placement made PARDA's hosts differ by 1.16 (§4.1).
/// A host with cached data may be far quicker, but must not make an overloaded array look idle. The opposite
/// holds as well.
const BELIEVED: f64 = 4.0;

/// Puts together what this host and its peers say: see the module. A peer that bears this host's own
/// name does not count, nor does a second one under the same name. `interval` is the control interval.
///
/// With three live reports or more the result is the same whichever of the hosts asks, but for who leads.
#[must_use]
pub fn combine(
    name: &HostName,
    own: &HostReport,
    peers: &[HeardReport],
    interval: Duration,
) -> ClusterSignal {
    let oldest_believed = Latency::from(interval.saturating_mul(STALE_INTERVALS));
    let mut live = vec![(name, own)];
    let mut stale = 0;
    for peer in peers {
        if peer.age > oldest_believed {
            stale += 1;
        } else {
            live.push((&peer.host, &peer.report));
        }
    }
    live.sort_by_key(|(host, report)| (*host, !std::ptr::eq(*report, own)));
    live.dedup_by_key(|(host, _)| *host);

    let protected = live.iter().any(|(_, report)| report.signal == SignalRequests::ProtectedReads);
    let signal = if protected { SignalRequests::ProtectedReads } else { SignalRequests::Everything };
    let heard: Vec<&HostReport> =
        live.iter().map(|(_, report)| *report).filter(|report| report.signal == signal).collect();
    let believed = Believed::of(&heard, own);
    let (leader, choice) = live[0];
    let others = live.iter().filter(|(host, _)| *host != name);
    let point = |(host, report): &(&HostName, &HostReport)| {
        Some(PeerPoint { host: (*host).clone(), point: report.point.clone()? })
    };
    ClusterSignal {
        hosts: count(live.len()),
        stale,
        adjusted: believed.adjusted,
        signal,
        completed: heard.iter().fold(0, |sum, report| sum.saturating_add(report.completed)),
        mean: believed.mean,
        iops: Iops::new(heard.iter().map(|report| report.iops()).sum()),
        reserved: Iops::new(live.iter().map(|(_, report)| report.reserved.per_second()).sum()),
        outstanding: heard.iter().any(|report| report.outstanding),
        oldest: heard.iter().filter_map(|report| report.oldest).max(),
        leader: leader.clone(),
        leads: leader == name,
        set_point: choice.set_point,
        points: others.filter_map(point).collect(),
        load: super::loads::together(&live.iter().map(|(_, report)| *report).collect::<Vec<_>>(), signal),
    }
}

/// The mean of the hosts' means as far as they are believed.
struct Believed {
    mean: Option<Latency>,
    adjusted: u32,
}

impl Believed {
    fn of(heard: &[&HostReport], own: &HostReport) -> Self {
        // Of the hosts that completed something: mean, weight.
        let mut hosts: Vec<(f64, f64)> = heard
            .iter()
            .filter_map(|report| report.mean().map(|mean| (mean, report.completed as f64)))
            .collect();
        let all: f64 = hosts.iter().map(|(_, weight)| weight).sum();
        let middle = match hosts.len() {
            0 => return Self { mean: None, adjusted: 0 },
            1 => None,
            2 => own.mean().filter(|_| heard.iter().any(|report| std::ptr::eq(*report, own))),
            _ => Some(median(hosts.iter().map(|(mean, _)| *mean).collect())),
        };
        let mut adjusted = 0;
        if let Some(middle) = middle {
            let several = hosts.len() > 2;
            for (mean, weight) in &mut hosts {
                let believed = mean.clamp(middle / BELIEVED, middle * BELIEVED);
                adjusted += u32::from((believed - *mean).abs() > 0.0);
                *mean = believed;
                if several {
                    *weight = weight.min(all - *weight);
                }
            }
        }
        let weights: f64 = hosts.iter().map(|(_, weight)| weight).sum();
        let sum: f64 = hosts.iter().map(|(mean, weight)| mean * weight).sum();
        Self { mean: Some(Latency::from_nanos((sum / weights).round() as u64)), adjusted }
    }
}

/// The middle one; of an even number, the lower of the two in the middle. If two hosts disagree, the one that
/// throttles less is the safer to believe.
fn median(mut values: Vec<f64>) -> f64 {
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);

    fn host(name: &str) -> HostName {
        HostName::new(name).unwrap()
    }

    fn report(completed: u64, mean_ms: f64) -> HostReport {
        HostReport {
            interval: Latency::from(INTERVAL),
            signal: SignalRequests::Everything,
            completed,
            total_latency: Latency::from_millis_f64(mean_ms * completed as f64),
            outstanding: completed > 0,
            oldest: None,
            window: None,
            active_shares: 100.0,
            reserved: Iops::ZERO,
            set_point: None,
            point: None,
            load: None,
        }
    }

    fn heard(name: &str, age_ms: u64, report: HostReport) -> HeardReport {
        HeardReport { host: host(name), age: Latency::from_millis(age_ms), report }
    }

    fn together(own: &HostReport, peers: &[HeardReport]) -> ClusterSignal {
        combine(&host("own"), own, peers, INTERVAL)
    }

    fn mean_ms(signal: &ClusterSignal) -> f64 {
        signal.mean.unwrap().as_millis_f64()
    }

    #[test]
    fn the_mean_is_weighted_by_the_numbers_of_requests() {
        let peers = [heard("a", 10, report(300, 40.0)), heard("b", 20, report(200, 10.0))];
        let signal = together(&report(100, 20.0), &peers);
        assert!((mean_ms(&signal) - 160.0 / 6.0).abs() < 1e-6, "{signal:?}");
        assert_eq!((signal.hosts, signal.stale, signal.adjusted, signal.completed), (3, 0, 0, 600));
        assert!((signal.iops.per_second() - 300.0).abs() < 1e-9);
    }

    #[test]
    fn alone_means_alone() {
        let signal = together(&report(10, 20.0), &[]);
        assert_eq!((signal.hosts, signal.mean), (1, Some(Latency::from_millis(20))));
        assert_eq!(together(&report(0, 0.0), &[]).mean, None);
    }

    #[test]
    fn a_peer_drops_out_after_three_intervals() {
        let peers = |age| [heard("a", age, report(100, 90.0)), heard("b", 0, report(100, 30.0))];
        assert!((mean_ms(&together(&report(100, 30.0), &peers(6_000))) - 50.0).abs() < 1e-6);
        let signal = together(&report(100, 30.0), &peers(6_001));
        assert_eq!((signal.hosts, signal.stale, mean_ms(&signal).round() as u64), (2, 1, 30));
    }

    #[test]
    fn silence_of_some_is_not_silence_of_all() {
        let waiting =
            HostReport { outstanding: true, oldest: Some(Latency::from_secs_f64(9.0)), ..report(0, 0.0) };
        let signal = together(&waiting, &[heard("a", 0, report(7, 5.0))]);
        assert_eq!((signal.completed, signal.oldest), (7, Some(Latency::from_secs_f64(9.0))));
        assert!(signal.outstanding);
    }

    #[test]
    fn protected_reads_anywhere_are_the_signal_everywhere() {
        let protected = HostReport { signal: SignalRequests::ProtectedReads, ..report(10, 30.0) };
        let busy = [heard("a", 0, report(5_000, 1.0)), heard("b", 0, report(5_000, 1.0))];
        let with = [&busy[..], &[heard("c", 0, protected)]].concat();
        let signal = together(&report(5_000, 1.0), &with);
        assert_eq!(
            (signal.signal, signal.completed, mean_ms(&signal).round() as u64),
            (SignalRequests::ProtectedReads, 10, 30)
        );
        assert_eq!(signal.adjusted, 0, "what the others do says nothing about what they may wait");
    }

    #[test]
    fn the_first_by_name_chooses_the_set_point() {
        let choosing =
            |millis| HostReport { set_point: Some(Latency::from_millis(millis)), ..report(1, 1.0) };
        let peers =
            [heard("z", 0, choosing(40)), heard("a", 0, choosing(20)), heard("A", 7_000, choosing(10))];
        let signal = together(&choosing(30), &peers);
        assert_eq!((signal.leader.as_str(), signal.set_point), ("a", Some(Latency::from_millis(20))));
        assert!(!signal.leads && together(&choosing(30), &[heard("z", 0, choosing(40))]).leads);
    }

    #[test]
    fn a_peer_under_our_own_name_does_not_count() {
        let signal = together(&report(10, 20.0), &[heard("own", 0, report(1_000, 80.0))]);
        assert_eq!((signal.hosts, signal.mean), (1, Some(Latency::from_millis(20))));
    }

    fn any_report() -> impl Strategy<Value = HostReport> {
        let number = || prop_oneof![Just(0), Just(1), 0u64..1_000_000_000, any::<u64>()];
        let oldest = proptest::option::of(number().prop_map(Latency::from_nanos));
        (number(), any::<bool>(), number(), number(), any::<bool>(), oldest, any::<f64>()).prop_map(
            |(interval, protected, completed, total, outstanding, oldest, active_shares)| HostReport {
                interval: Latency::from_nanos(interval),
                signal: if protected { SignalRequests::ProtectedReads } else { SignalRequests::Everything },
                completed,
                total_latency: Latency::from_nanos(total),
                outstanding,
                oldest,
                window: None,
                active_shares,
                reserved: Iops::ZERO,
                set_point: None,
                point: None,
                load: None,
            },
        )
    }

    proptest! {
        #[test]
        fn one_liar_moves_the_mean_by_no_more_than_two_and_a_half(
            honest in prop::collection::vec((1u64..10_000, 10.0..12.0), 2..10), lie in any_report()
        ) {
            let reports: Vec<HostReport> = honest.iter().map(|(count, mean)| report(*count, *mean)).collect();
            let mut peers: Vec<HeardReport> = reports[1..]
                .iter()
                .enumerate()
                .map(|(at, report)| heard(&format!("h{at}"), 0, report.clone()))
                .collect();
            peers.push(heard("liar", 0, HostReport { signal: SignalRequests::Everything, ..lie }));
            let mean = mean_ms(&together(&reports[0], &peers));
            // The honest ones differ by 1.2 among themselves.
            prop_assert!((10.0 / 4.1..=2.5 * 12.0 + 1e-6).contains(&mean), "{mean}");
        }

        #[test]
        fn whoever_asks_hears_the_same(reports in prop::collection::vec(any_report(), 3..8)) {
            let named: Vec<HeardReport> =
                reports.into_iter().enumerate().map(|(at, report)| heard(&format!("h{at}"), 0, report))
                    .collect();
            let asked_by = |at: usize| {
                let mut others = named.clone();
                let own = others.remove(at);
                combine(&own.host, &own.report, &others, INTERVAL)
            };
            let completing = |signal: SignalRequests| {
                named.iter().filter(|peer| peer.report.signal == signal && peer.report.completed > 0).count()
            };
            prop_assume!(completing(asked_by(0).signal) != 2);
            for at in 1..named.len() {
                let first = ClusterSignal { leads: false, ..asked_by(0) };
                let other = ClusterSignal { leads: false, ..asked_by(at) };
                prop_assert_eq!(first, other);
            }
        }

        #[test]
        fn whatever_peers_say_the_result_is_a_document(
            own in any_report(), peers in prop::collection::vec((any_report(), 0u64..10_000), 0..6)
        ) {
            let peers: Vec<_> = peers
                .into_iter()
                .enumerate()
                .map(|(at, (report, age))| heard(&format!("h{at}"), age, report))
                .collect();
            let signal = together(&own, &peers);
            prop_assert_eq!(signal.hosts + signal.stale, 1 + peers.len() as u32);
            prop_assert_eq!(signal.mean.is_some(), signal.completed > 0);
            let again: ClusterSignal = serde_json::from_str(&serde_json::to_string(&signal).unwrap())
                .unwrap();
            prop_assert_eq!(again.mean, signal.mean);
        }
    }
}
