//! The window law of PARDA (Gulati, Ahmad, Waldspurger, FAST 2009), equations 2 to 4.

use serde::{Deserialize, Serialize};
use tidegate_units::{Latency, Shares, Window};

use crate::document::mean_outstanding::MeanOutstanding;
use crate::document::output::OutputBound;
use crate::law::window::config::{BetaScale, WindowConfig, WindowConfigError};

/// Result of one step of the window law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowStep {
    /// Eq. 2 without bounds.
    pub raw: Window,
    /// The window now.
    pub window: Window,
    /// The bound that made the difference.
    pub bound: Option<OutputBound>,
}

/// The window law. State: the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WindowLaw {
    config: WindowConfig,
    window: f64,
}

impl WindowLaw {
    /// Begins with the greatest window: regulation starts open.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn new(config: WindowConfig) -> Result<Self, WindowConfigError> {
        config.validate()?;
        Ok(Self { config, window: config.greatest.get() })
    }

    /// The window now.
    #[must_use]
    pub fn window(&self) -> Window {
        Window::new(self.window)
    }

    /// Its parameters.
    #[must_use]
    pub const fn config(&self) -> &WindowConfig {
        &self.config
    }

    /// Changes the parameters and keeps the window as far as the new bounds allow.
    ///
    /// # Errors
    /// When the configuration is not valid; nothing is changed then.
    pub fn reconfigure(&mut self, config: WindowConfig) -> Result<(), WindowConfigError> {
        config.validate()?;
        self.config = config;
        self.window = self.window.clamp(config.least.get(), config.greatest.get());
        Ok(())
    }

    /// β of eq. 2 for a host whose throttled consumers have these shares and outstanding requests: K × their
    /// active shares (eq. 4), by [`BetaScale`].
    pub fn beta<I>(&self, consumers: I) -> f64
    where
        I: IntoIterator<Item = (Shares, MeanOutstanding), IntoIter: Clone>,
    {
        let consumers = consumers.into_iter();
        let active = active_share(self.window(), consumers.clone());
        let scale = match self.config.beta_scale {
            BetaScale::Relative => 1.0,
            BetaScale::PerShare => sum(consumers) / Shares::DEFAULT.as_f64(),
        };
        self.config.beta_gain * active * scale
    }

    /// One step of eq. 2, `w(t+1) = (1−γ)·w(t) + γ·(𝓛/L(t)·w(t) + β)`, clamped to the bounds.
    ///
    /// `beta` is this host's [`beta`](Self::beta). NaN and negative numbers count as zero.
    ///
    /// `intervals` is the time since the previous step in control intervals. Eq. 2 knows only whole ones;
    /// between them γ becomes `1 − (1−γ)^intervals`, so that no time passed means no change, a late step does
    /// as much as the steps it stands for, and at one interval it is eq. 2.
    ///
    /// At equilibrium host i has `w_i = β_i + β_i·C·𝓛/Σβ_j` (eq. 3).
    pub fn step(&mut self, estimate: Latency, set_point: Latency, beta: f64, intervals: f64) -> WindowStep {
        let WindowConfig { gamma, least, greatest, .. } = self.config;
        let intervals = if intervals.is_nan() { 0.0 } else { intervals.max(0.0) };
        let beta = if beta.is_nan() { 0.0 } else { beta.max(0.0) };
        if intervals <= 0.0 {
            return WindowStep { raw: self.window(), window: self.window(), bound: None };
        }
        let gamma = 1.0 - (1.0 - gamma).powf(intervals);
        // A response time of nothing would make the ratio NaN when the set point is nothing too; one
        // nanosecond is as good as nothing.
        let ratio = set_point.as_nanos() as f64 / estimate.as_nanos().max(1) as f64;
        let raw = (1.0 - gamma) * self.window + gamma * (ratio * self.window + beta);
        self.window = raw.clamp(least.get(), greatest.get());
        let bound = if raw < least.get() {
            Some(OutputBound::Least)
        } else if raw > greatest.get() {
            Some(OutputBound::Greatest)
        } else {
            None
        };
        WindowStep { raw: Window::new(raw), window: self.window(), bound }
    }

    /// Widens the window to `floor`, as far as w_max allows, and says whether that changed it. The next step
    /// goes on from there.
    pub fn raise_to(&mut self, floor: Window) -> bool {
        let floor = floor.get().min(self.config.greatest.get());
        let below = self.window < floor;
        if below {
            self.window = floor;
        }
        below
    }

    /// Releases by degrees: the logarithm of the ratio between the greatest window and this one is multiplied
    /// by `remaining`. By ratio and not by difference, because half of the way from 2 to 64 in one step would
    /// be a release at once.
    pub fn relax(&mut self, remaining: f64) -> Window {
        let remaining = if remaining.is_nan() { 1.0 } else { remaining.clamp(0.0, 1.0) };
        let (least, greatest) = (self.config.least.get(), self.config.greatest.get());
        self.window = (greatest * (self.window / greatest).powf(remaining)).clamp(least, greatest);
        self.window()
    }
}

/// Returns the active part of all shares, 0 to 1: eq. 4. A consumer with shares s_k has the part
/// `w_k = s_k/Σs·w` of the window. If its mean outstanding requests n_k do not fill that, its shares are
/// scaled to `s'_k = n_k·s_k/w_k`. The result is `Σs'/Σs`. It is relative, so that shares of 1:2 and of
/// 1000:2000 mean the same. Zero without consumers.
pub fn active_share<I>(window: Window, consumers: I) -> f64
where
    I: IntoIterator<Item = (Shares, MeanOutstanding), IntoIter: Clone>,
{
    let consumers = consumers.into_iter();
    let sum = sum(consumers.clone());
    let window = window.get();
    // With w_k inserted, s'_k/Σs is n_k/w: so eq. 4 is the smaller of two fractions.
    consumers
        .map(|(shares, outstanding)| {
            let entitled = shares.as_f64() / sum;
            if window > 0.0 { entitled.min(outstanding.get() / window) } else { entitled }
        })
        .sum::<f64>()
        .min(1.0)
}

/// Σs. A million times the greatest shares is exact in f64.
fn sum(consumers: impl Iterator<Item = (Shares, MeanOutstanding)>) -> f64 {
    consumers.map(|(shares, _)| shares.as_f64()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SET_POINT: Latency = Latency::from_millis(25);

    fn law(config: WindowConfig) -> WindowLaw {
        WindowLaw::new(config).unwrap()
    }

    fn wide(gamma: f64) -> WindowConfig {
        WindowConfig {
            gamma,
            beta_gain: 1.0,
            least: Window::new(1e-6),
            greatest: Window::new(1e6),
            ..WindowConfig::default()
        }
    }

    /// N hosts on one FIFO server of `capacity` IO/s, kept busy: by Little's law L = Σw/C for all of them.
    fn run_hosts(hosts: &mut [(WindowLaw, f64)], capacity: f64, steps: usize) -> f64 {
        let mut seconds = 0.0;
        for _ in 0..steps {
            seconds = hosts.iter().map(|(law, _)| law.window().get()).sum::<f64>() / capacity;
            for (law, beta) in hosts.iter_mut() {
                law.step(Latency::from_secs_f64(seconds), SET_POINT, *beta, 1.0);
            }
        }
        seconds
    }

    #[test]
    fn one_step_is_equation_2() {
        let mut law = law(WindowConfig { greatest: Window::new(32.0), ..wide(0.8) });
        let step = law.step(Latency::from_millis(50), SET_POINT, 2.0, 1.0);
        // 0.2 · 32 + 0.8 · (0.5 · 32 + 2)
        assert!((step.window.get() - 20.8).abs() < 1e-9, "{step:?}");
        assert_eq!(step.bound, None);
    }

    #[test]
    fn shares_converge_in_the_time_that_was_computed_for_pardas_testbed() {
        // C = 3 400 IO/s, 1:1:2:2, a step per 2 s, K = 1 per share: +7 %, and all within 10 % after 60 s.
        let mut hosts: Vec<_> = [1.0, 1.0, 2.0, 2.0]
            .map(|beta| (law(WindowConfig { greatest: Window::new(32.0), ..wide(0.8) }), beta))
            .into();
        let latency = run_hosts(&mut hosts, 3_400.0, 30);
        assert!((latency / 0.025 - 1.07).abs() < 0.01, "{latency}");
        for (law, beta) in &hosts {
            let equilibrium = beta + beta * 3_400.0 * 0.025 / 6.0;
            let off = law.window().get() / equilibrium - 1.0;
            assert!(off.abs() < 0.11, "{off}");
        }
    }

    #[test]
    fn what_is_not_a_configuration_is_refused() {
        let refused = |change: fn(&mut WindowConfig)| {
            let mut config = WindowConfig::default();
            change(&mut config);
            WindowLaw::new(config).unwrap_err()
        };
        assert!(matches!(refused(|c| c.gamma = f64::NAN), WindowConfigError::Gamma(_)));
        assert_eq!(refused(|c| c.gamma = 1.1), WindowConfigError::Gamma(1.1));
        assert_eq!(refused(|c| c.gamma = 0.0), WindowConfigError::Gamma(0.0));
        assert_eq!(refused(|c| c.beta_gain = -1.0), WindowConfigError::BetaGain(-1.0));
        assert!(matches!(refused(|c| c.least = Window::new(0.0)), WindowConfigError::Bounds { .. }));
        assert!(matches!(refused(|c| c.least = Window::new(65.0)), WindowConfigError::Bounds { .. }));
    }

    #[test]
    fn idle_consumers_scale_the_shares_as_equation_4_says() {
        let shares = |n| Shares::new(n).unwrap();
        let busy = MeanOutstanding::new(100.0);
        let eight = Window::new(8.0);
        let all = [(shares(100), busy), (shares(300), busy)];
        assert!((active_share(eight, all) - 1.0).abs() < 1e-12);
        // The second is entitled to w_k = 6 and has 3 outstanding: s' = 3·300/6 = 150, (100 + 150)/400.
        let half = [(shares(100), busy), (shares(300), MeanOutstanding::new(3.0))];
        assert!((active_share(eight, half) - 0.625).abs() < 1e-12);
        assert!(active_share(eight, []).abs() < 1e-12);
    }

    #[test]
    fn across_hosts_beta_follows_absolute_shares() {
        let pairs = |shares: [u32; 2]| shares.map(|s| (Shares::new(s).unwrap(), MeanOutstanding::new(1e3)));
        let config = WindowConfig { beta_gain: 2.0, ..WindowConfig::default() };
        assert!((law(config).beta(pairs([100, 300])) - 2.0).abs() < 1e-12);
        let across = law(WindowConfig { beta_scale: BetaScale::PerShare, ..config });
        assert!((across.beta(pairs([100, 300])) - 8.0).abs() < 1e-12);
        assert!((across.beta(pairs([50, 50])) - 2.0).abs() < 1e-12);
        assert!(across.beta([]).abs() < 1e-12);
    }

    #[test]
    fn relaxing_halves_the_ratio_and_ends_at_the_greatest() {
        let mut law = law(WindowConfig::default());
        law.step(Latency::from_secs_f64(1e6), SET_POINT, 0.0, 1e3);
        assert_eq!(law.window(), Window::new(0.25));
        assert!((law.relax(0.5).get() - 4.0).abs() < 1e-9);
        assert!((law.relax(0.5).get() - 16.0).abs() < 1e-9);
        assert_eq!(law.relax(f64::NAN), law.window());
        assert_eq!(law.relax(0.0), Window::new(64.0));
    }

    proptest! {
        #[test]
        fn always_within_its_bounds(
            inputs in prop::collection::vec((any::<u64>(), any::<u64>(), any::<f64>(), any::<f64>()), 1..40)
        ) {
            let mut law = law(WindowConfig::default());
            for (latency, set_point, beta, intervals) in inputs {
                let (latency, set_point) = (Latency::from_nanos(latency), Latency::from_nanos(set_point));
                let step = law.step(latency, set_point, beta, intervals);
                prop_assert!((0.25..=64.0).contains(&step.window.get()), "{step:?}");
                prop_assert!(step.raw.get().is_finite());
                prop_assert_eq!(step.bound.is_some(), step.raw != step.window);
            }
        }

        #[test]
        fn a_longer_response_time_never_opens_further(
            millis in 1u64..1_000, more in 1u64..1_000, beta in 0.0..2.0, intervals in 0.0..3.0
        ) {
            let (mut quick, mut slow) = (law(WindowConfig::default()), law(WindowConfig::default()));
            for law in [&mut quick, &mut slow] {
                law.step(Latency::from_millis(400), SET_POINT, 0.1, 1.0);
            }
            let quick = quick.step(Latency::from_millis(millis), SET_POINT, beta, intervals).window;
            let slow = slow.step(Latency::from_millis(millis + more), SET_POINT, beta, intervals).window;
            prop_assert!(slow <= quick);
        }

        #[test]
        fn hosts_settle_where_equation_3_says_for_every_gamma(
            gamma in 0.02..=1.0,
            capacity in 100.0..10_000.0,
            betas in prop::collection::vec(0.1..4.0, 1..8),
        ) {
            let mut hosts: Vec<_> = betas.iter().map(|beta| (law(wide(gamma)), *beta)).collect();
            run_hosts(&mut hosts, capacity, 60_000);
            let sum: f64 = betas.iter().sum();
            for (law, beta) in &hosts {
                let equilibrium = beta + beta * capacity * SET_POINT.as_secs_f64() / sum;
                prop_assert!((law.window().get() / equilibrium - 1.0).abs() < 0.01);
            }
        }

        #[test]
        fn a_part_of_an_interval_is_a_part_of_a_step(parts in 1u32..20) {
            // With L = 𝓛·2 and β = 0 each interval multiplies by (1 − γ/2); parts must lie between none and
            // all.
            let mut law = law(wide(0.8));
            law.step(SET_POINT.scale(2.0), SET_POINT, 0.0, f64::from(parts) / 20.0);
            let factor = law.window().get() / 1e6;
            prop_assert!((0.6..1.0).contains(&factor), "{factor}");
        }

        #[test]
        fn the_active_share_is_a_fraction_and_ignores_the_size_of_the_numbers(
            window in 0.0..100.0, consumers in prop::collection::vec((1u32..1_000, any::<f64>()), 0..20)
        ) {
            let at = |factor: u32| {
                let pairs = consumers.iter().map(|(shares, outstanding)| {
                    (Shares::new(shares * factor).unwrap(), MeanOutstanding::new(*outstanding))
                });
                active_share(Window::new(window), pairs)
            };
            prop_assert!((0.0..=1.0).contains(&at(1)));
            prop_assert!((at(1) - at(1_000)).abs() < 1e-9);
        }
    }
}
