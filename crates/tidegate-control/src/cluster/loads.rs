//! Conclusions from the load reports of all hosts, for the law `auto`.
//!
//! All hosts take the same step from the same sums. A host whose mean is far from the median has less say,
//! and beyond four times the median none: a wrong report must not throttle the others. The window of all
//! hosts together is the median of what they decided.

use tidegate_units::{Iops, Latency, Window};

use crate::document::host_report::HostReport;
use crate::document::load_report::{ClusterLoad, LoadReport};
use crate::document::mean_outstanding::MeanOutstanding;
use crate::document::signal::SignalRequests;

/// Factors between a host's mean and the median: up to the first it counts in full, from the second on not
/// at all. Placement makes honest hosts differ by up to 1.8.
const BELIEVED: (f64, f64) = (2.0, 4.0);

/// The weight from which on a host is believed that its contracts are late.
const BELIEVED_LATE: f64 = 0.5;

/// Hosts among which the largest mean by chance is still within the margin that each host keeps.
const FEW_HOSTS: f64 = 8.0;

/// The most that the worst consumer of other hosts counts for, as a multiple of the mean; and the same where
/// contracts are late. A goal far below the target makes such a consumer's scaled latencies that large.
const MOST_WORST: (f64, f64) = (2.0, 8.0);

/// Returns the loads of all hosts together; `None` if no host reports one. `live` are the hosts heard in
/// time, this one included.
pub(super) fn together(live: &[&HostReport], signal: SignalRequests) -> Option<ClusterLoad> {
    let loads: Vec<(&HostReport, &LoadReport)> =
        live.iter().filter_map(|report| Some((*report, report.load.as_ref()?))).collect();
    if loads.is_empty() {
        return None;
    }
    let sum = |of: &dyn Fn(&LoadReport) -> f64| loads.iter().map(|(_, load)| of(load)).sum::<f64>();
    let active_shares: f64 = loads.iter().map(|(report, _)| report.active_shares.max(0.0)).sum();
    let waiting: f64 =
        loads.iter().filter(|(_, load)| load.waiting).map(|(report, _)| report.active_shares.max(0.0)).sum();
    let heard: Vec<(&HostReport, &LoadReport)> =
        loads.iter().filter(|(report, _)| report.signal == signal).copied().collect();
    let beliefs = beliefs(&heard);
    let (mut count, mut total) = (0.0, 0.0);
    let (mut recent, mut recent_total) = (0.0, 0.0);
    for ((report, load), belief) in heard.iter().zip(&beliefs) {
        if let Some(mean) = report.mean() {
            count += belief * report.completed as f64;
            total += belief * report.completed as f64 * mean;
        }
        recent += belief * load.recent.get();
        recent_total += belief * load.recent.get() * load.recent_mean.as_nanos() as f64;
    }
    let pooled = if recent > 0.0 { recent_total / recent } else { 0.0 };
    let among = 2.0 * (heard.len() as f64 / FEW_HOSTS).max(1.0).ln();
    let worst = heard.iter().zip(&beliefs).fold(1.0, |worst: f64, ((_, load), belief)| {
        if pooled <= 0.0 || load.recent.get() <= 0.0 {
            return worst;
        }
        let most = if load.late { MOST_WORST.1 } else { MOST_WORST.0 };
        // Of many means the largest is large by chance, by this part of it; of few, the margin covers that.
        let chance = (among / load.recent.get()).sqrt().min(1.0);
        let mean = load.recent_mean.as_nanos().max(1) as f64;
        let within = (load.worst.as_nanos() as f64 / mean * (1.0 - chance)).min(most);
        let over = (mean / pooled).min(MOST_WORST.0) * within - 1.0;
        worst.max(1.0 + over * belief)
    });
    let late = heard.iter().zip(&beliefs).any(|((_, load), belief)| load.late && *belief >= BELIEVED_LATE);
    Some(ClusterLoad {
        iops: Iops::new(sum(&|load| load.iops.per_second())),
        writes: Iops::new(sum(&|load| load.writes.per_second())),
        outstanding: MeanOutstanding::new(sum(&|load| load.outstanding.get())),
        writing: MeanOutstanding::new(sum(&|load| load.writing.get())),
        waiting: if active_shares > 0.0 { waiting / active_shares } else { 0.0 },
        late,
        mean: (count > 0.0).then(|| Latency::from_nanos((total / count).round() as u64)),
        worst,
        total_window: agreed(loads.iter().filter_map(|(_, load)| load.total_window).collect()),
        active_shares,
    })
}

/// Weights of the hosts' words, from 0 to 1.
fn beliefs(heard: &[(&HostReport, &LoadReport)]) -> Vec<f64> {
    let mut means: Vec<f64> = heard
        .iter()
        .filter(|(_, load)| load.recent.get() > 0.0)
        .map(|(_, load)| load.recent_mean.as_nanos() as f64)
        .collect();
    if means.len() < 3 {
        return vec![1.0; heard.len()];
    }
    let middle = (means.len() - 1) / 2;
    let median = *means.select_nth_unstable_by(middle, f64::total_cmp).1;
    let (full, none) = (BELIEVED.0.ln(), BELIEVED.1.ln());
    heard
        .iter()
        .map(|(_, load)| {
            let apart = (load.recent_mean.as_nanos().max(1) as f64 / median.max(1.0)).ln().abs();
            ((none - apart) / (none - full)).clamp(0.0, 1.0)
        })
        .collect()
}

/// The median; of an even number, the geometric mean of the two in the middle.
fn agreed(mut windows: Vec<Window>) -> Option<Window> {
    if windows.is_empty() {
        return None;
    }
    windows.sort_by(|one, other| one.get().total_cmp(&other.get()));
    let (lower, upper) = (windows[(windows.len() - 1) / 2].get(), windows[windows.len() / 2].get());
    Some(Window::new((lower * upper).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(mean_ms: u64, shares: f64, window: f64) -> HostReport {
        let mean = Latency::from_millis(mean_ms);
        HostReport {
            interval: Latency::from_millis(250),
            signal: SignalRequests::Everything,
            completed: 100,
            total_latency: mean.scale(100.0),
            outstanding: true,
            oldest: None,
            window: None,
            active_shares: shares,
            reserved: Iops::ZERO,
            set_point: None,
            point: None,
            load: Some(LoadReport {
                iops: Iops::new(400.0),
                writes: Iops::ZERO,
                outstanding: MeanOutstanding::new(4.0),
                writing: MeanOutstanding::new(0.0),
                waiting: true,
                late: false,
                recent: MeanOutstanding::new(2_000.0),
                recent_mean: mean,
                worst: mean,
                total_window: Some(Window::new(window)),
            }),
        }
    }

    fn of(reports: &[HostReport]) -> ClusterLoad {
        together(&reports.iter().collect::<Vec<_>>(), SignalRequests::Everything).unwrap()
    }

    #[test]
    fn sums_are_of_all_hosts_and_the_window_is_the_median() {
        let load = of(&[report(10, 100.0, 8.0), report(10, 200.0, 9.0), report(10, 300.0, 1.0)]);
        assert!((load.outstanding.get() - 12.0).abs() < 1e-9 && (load.active_shares - 600.0).abs() < 1e-9);
        assert_eq!(load.total_window, Some(Window::new(8.0)));
        assert!((load.worst - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_host_that_reports_a_hundred_times_its_latency_moves_nothing() {
        let mut reports: Vec<_> = (0..7).map(|_| report(10, 100.0, 8.0)).collect();
        let honest = of(&reports);
        reports.push(report(1_000, 100.0, 8.0));
        let load = of(&reports);
        assert_eq!((load.mean, load.worst), (honest.mean, honest.worst));
    }

    #[test]
    fn late_contracts_of_a_believed_host_count_for_more() {
        let mut reports = [report(10, 100.0, 8.0), report(10, 100.0, 8.0), report(10, 100.0, 8.0)];
        let load = reports[2].load.as_mut().unwrap();
        load.worst = Latency::from_millis(50);
        assert!((of(&reports).worst - 2.0).abs() < 1e-9 && !of(&reports).late);
        reports[2].load.as_mut().unwrap().late = true;
        assert!((of(&reports).worst - 5.0).abs() < 1e-9 && of(&reports).late);
        let load = reports[2].load.as_mut().unwrap();
        load.recent_mean = Latency::from_millis(1_000);
        assert!(!of(&reports).late, "its latencies are not believed either");
    }

    #[test]
    fn a_host_that_is_honestly_slower_is_the_worst() {
        let load = of(&[report(10, 100.0, 8.0), report(10, 100.0, 8.0), report(18, 100.0, 8.0)]);
        assert!(load.worst > 1.3, "{}", load.worst);
    }

    #[test]
    fn the_slowest_of_a_thousand_equal_hosts_is_slow_by_chance() {
        let of_equals = |count: usize| {
            let mut reports: Vec<_> = (0..count).map(|_| report(10, 100.0, 8.0)).collect();
            if let Some(load) = reports[0].load.as_mut() {
                // 3.6 standard deviations of a mean of 2,000 requests.
                load.worst = Latency::from_millis(10).scale(1.08);
            }
            of(&reports).worst
        };
        assert!(of_equals(1_000) < 1.01, "{}", of_equals(1_000));
        assert!(of_equals(2) > 1.07, "{}", of_equals(2));
    }
}
