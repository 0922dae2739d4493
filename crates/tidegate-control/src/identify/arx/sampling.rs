//! Choice of the sampling interval, and of the order: the length of the past that explains the next response
//! time.

use std::time::Duration;

use super::ArxFit;

/// A part of the best R²: a model that explains less has become worse by sampling too often. The paper calls
/// intervals from 500 ms on the best, where its R² are 0.90 and 0.91 of those at 1 s; at 300 ms, which it
/// rules out, they are 0.63 and 0.38.
const OF_THE_BEST: f64 = 0.8;

/// Greatest correlation of residuals with the next ones. Above it the past has more to tell. The paper's
/// exceptions have 0.14, its others at most 0.05.
const CORRELATED: f64 = 0.1;

/// A higher order has to raise R² by this, as in the paper: "less than 0.05 improvement".
const BY_ORDER: f64 = 0.05;

/// "As 500 ms is close to the sample period where the model degrades, we pick a sample period of 1 s": so
/// many times the shortest interval that is good enough.
const AWAY: u32 = 2;

/// A fit of the same storage at one sampling interval and of one order.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledFit {
    /// The sampling interval.
    pub interval: Duration,
    /// The fit.
    pub fit: ArxFit,
}

/// Fits of one storage at several intervals and orders: the paper's table 2.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SamplingStudy {
    /// By interval, the longest first, and by order.
    fits: Vec<SampledFit>,
}

/// A choice of interval and order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecommendedSampling {
    /// Sampling interval.
    pub interval: Duration,
    /// N.
    pub order: usize,
    /// The shortest interval at which, as at all longer ones, the model is good enough.
    pub shortest: Duration,
}

impl SamplingStudy {
    /// All that were made. Of two with the same interval and order the first counts.
    #[must_use]
    pub fn new(mut fits: Vec<SampledFit>) -> Self {
        fits.sort_by_key(|one| (std::cmp::Reverse(one.interval), one.fit.model.order()));
        fits.dedup_by_key(|one| (one.interval, one.fit.model.order()));
        Self { fits }
    }

    /// By interval, the longest first, and by order.
    #[must_use]
    pub fn fits(&self) -> &[SampledFit] {
        &self.fits
    }

    /// A fit.
    #[must_use]
    pub fn fit(&self, interval: Duration, order: usize) -> Option<&ArxFit> {
        let found = self.fits.iter().find(|one| one.interval == interval && one.fit.model.order() == order);
        found.map(|one| &one.fit)
    }

    /// The interval, as the paper chooses it: twice the shortest one that is good enough, or the next longer
    /// that was measured; the longest where none is that long. Good enough is a fit of the lowest order with
    /// at least 0.8 of the best R² and a residual correlation of at most 0.1, when all longer intervals have
    /// one, too.
    ///
    /// The order is the lowest at which the next one adds less than 0.05 to R². `None` without fits.
    #[must_use]
    pub fn recommended(&self) -> Option<RecommendedSampling> {
        let lowest = self.fits.iter().map(|one| one.fit.model.order()).min()?;
        let first = || self.fits.iter().filter(|one| one.fit.model.order() == lowest);
        let best = first().map(|one| one.fit.r_squared).fold(f64::NEG_INFINITY, f64::max);
        let good = |one: &&SampledFit| {
            one.fit.r_squared >= OF_THE_BEST * best && one.fit.residual_correlation <= CORRELATED
        };
        let longest = first().next()?.interval;
        let shortest = first().take_while(good).last().map_or(longest, |one| one.interval);
        let away = shortest.saturating_mul(AWAY);
        let interval = first()
            .map(|one| one.interval)
            .take_while(|interval| *interval >= away)
            .last()
            .unwrap_or(longest);
        let mut orders = self.fits.iter().filter(|one| one.interval == interval).map(|one| &one.fit);
        let mut chosen = orders.next()?;
        for higher in orders {
            if higher.r_squared < chosen.r_squared + BY_ORDER {
                break;
            }
            chosen = higher;
        }
        Some(RecommendedSampling { interval, order: chosen.model.order(), shortest })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ArxModel;
    use super::*;

    fn fits(order: usize, table: &[(u64, f64, f64)]) -> Vec<SampledFit> {
        let model = ArxModel::new(vec![0.1; order], vec![0.1; order + 1]).unwrap();
        let one = |&(millis, r_squared, residual_correlation): &(u64, f64, f64)| SampledFit {
            interval: Duration::from_millis(millis),
            fit: ArxFit { model: model.clone(), r_squared, residual_correlation, samples: 1_000 },
        };
        table.iter().map(one).collect()
    }

    /// Triage, table 2.
    const CACHE: [(u64, f64, f64); 5] = [
        (1_000, 0.764, 0.04),
        (750, 0.745, 0.05),
        (500, 0.685, 0.04),
        (300, 0.479, 0.14),
        (100, 0.439, 0.14),
    ];
    const DISK: [(u64, f64, f64); 5] = [
        (1_000, 0.416, 0.045),
        (750, 0.399, 0.05),
        (500, 0.379, 0.03),
        (300, 0.159, 0.047),
        (100, 0.112, 0.026),
    ];

    #[test]
    fn from_the_papers_table_the_papers_choice() {
        for table in [CACHE, DISK] {
            let chosen = SamplingStudy::new(fits(1, &table)).recommended().unwrap();
            assert_eq!((chosen.interval, chosen.order), (Duration::from_secs(1), 1));
            assert_eq!(chosen.shortest, Duration::from_millis(500));
        }
    }

    #[test]
    fn a_higher_order_has_to_be_worth_it() {
        for (second, order) in [(0.80, 1), (0.83, 2)] {
            let mut all = fits(1, &CACHE);
            all.extend(fits(2, &[(1_000, second, 0.04)]));
            assert_eq!(SamplingStudy::new(all).recommended().unwrap().order, order, "{second}");
        }
        // The third is compared with the second only where that was worth it.
        let mut all = fits(1, &CACHE);
        all.extend(fits(2, &[(1_000, 0.79, 0.04)]));
        all.extend(fits(3, &[(1_000, 0.99, 0.04)]));
        assert_eq!(SamplingStudy::new(all).recommended().unwrap().order, 1);
    }

    #[test]
    fn correlated_residuals_rule_an_interval_out_and_with_it_all_shorter_ones() {
        let table = [(1_000, 0.7, 0.05), (500, 0.7, 0.2), (250, 0.7, 0.05)];
        let chosen = SamplingStudy::new(fits(1, &table)).recommended().unwrap();
        assert_eq!(chosen.shortest, Duration::from_secs(1));
        // Nothing is twice as long.
        assert_eq!(chosen.interval, Duration::from_secs(1));
        let good = table.map(|(millis, r_squared, _)| (millis, r_squared, 0.05));
        let chosen = SamplingStudy::new(fits(1, &good)).recommended().unwrap();
        assert_eq!((chosen.shortest.as_millis(), chosen.interval.as_millis()), (250, 500));
    }

    #[test]
    fn without_fits_there_is_nothing_to_recommend() {
        assert_eq!(SamplingStudy::default().recommended(), None);
        assert_eq!(SamplingStudy::default().fit(Duration::from_secs(1), 1), None);
    }
}
