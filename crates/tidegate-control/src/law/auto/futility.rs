//! Experiments that prove a smaller window useful before it stays.
//!
//! Throttling that does not shorten the latency is harm. So the law cuts no window below what has been proven
//! useful without comparing: the present window, a lower one, and, unless the lower one is clearly better,
//! the present one again. With the latency's gain G = ln(L/L') and the throttled requests' D = ln(n/n'),
//! useful is G > D/3: less than two thirds of the throughput lost for each part of latency won.
//!
//! If throttling is futile, the goal becomes the latency that the storage can keep. The window then stays
//! above its knee.
//! The verdict is believed for two minutes, then twice as long each time, up to ten minutes.

use serde::{Deserialize, Serialize};

use super::consumers::ALLOWED;
use super::elasticity::DISTURBANCE;
use super::epoch::Measurement;

/// The part of D that G must reach. Chosen: 1/3 tells an elasticity of 0 from 1 with few requests.
pub(super) const BAR: f64 = 1.0 / 3.0;

/// Standard errors that an answer must be away from the bar: to be useful, and to be vain.
const USEFUL: f64 = 2.0;
const VAIN: f64 = 1.5;

/// Requests and seconds after which a lower window that proved nothing is given up.
const LOW_MOST: (f64, f64) = (200.0, 6.0);

/// Seconds for which the smallest window is tried for a promise, and the memory of what it is judged by.
const AT_LEAST: (f64, f64) = (3.0, 1.0);

/// The same for the present window, measured again.
const UP_MOST: (f64, f64) = (300.0, 10.0);

/// Seconds after which the effect of a late cut must have come, the memory of what it is judged by, and the
/// seconds after which a cut that is not clearly vain stays.
const LATE: (f64, f64, f64) = (15.0, 5.0, 60.0);

/// The fewest requests that a verdict of futility takes.
const VERDICT_REQUESTS: f64 = 30.0;

/// The goal over the latency that the storage cannot go below: where the target can be kept, and where not.
const ROOM: (f64, f64) = (1.1, 1.2);

/// The part of seconds above the target from which on the goal has no room above what the storage can keep.
const MANY_ABOVE: f64 = 0.1;

/// Seconds after which a smallest window that does not suffice is compared with a larger one, at first. Then
/// twice as many each time.
const REVIEW: f64 = 15.0;

/// Beside a cache, a cut is worth its cost if it brings the latency below this part of the target.
const SAFELY: f64 = 0.85;

/// A promise is kept to this part of the target.
pub(super) const PROMISED: f64 = 0.97;

/// Seconds for which a verdict is believed at first and at most.
const BELIEVED: (f64, f64) = (120.0, 600.0);

/// A trial of a lower window.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Trial {
    /// The window at its beginning, and the lower one, as logarithms.
    from: f64,
    low: f64,
    measured_from: Measured,
    measured_low: Measured,
    /// The present window again, once the lower one has proved nothing.
    again: Option<Measured>,
    /// The effect of a window comes late.
    is_late: bool,
    /// Seconds since the present window was put into force again.
    seconds: f64,
}

/// Latency and outstanding requests under one window.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    load: Measurement,
    /// The sum of the signal's latencies, by the worst consumer.
    total: f64,
}

impl Measured {
    pub(super) fn add(&mut self, load: &Measurement, latency: f64) {
        self.load.add(load);
        self.total += load.count * latency;
    }

    pub(super) fn latency_of(&self) -> f64 {
        self.total / self.load.count.max(f64::MIN_POSITIVE)
    }

    pub(super) fn fade(&mut self, remaining: f64) {
        self.load.fade(remaining);
        self.total *= remaining;
    }

    pub(super) fn requests(&self) -> f64 {
        self.load.count
    }

    fn outstanding(&self) -> f64 {
        self.load.outstanding().max(1e-6)
    }

    /// The gain from this window to a lower one: G, D, and the standard error of G.
    fn gain(&self, low: &Self) -> (f64, f64, f64) {
        let gain = (self.latency_of().max(1e-9) / low.latency_of().max(1e-9)).ln();
        let lost = (self.outstanding() / low.outstanding()).ln().max(0.0);
        let requests = 1.0 / self.requests().max(1.0) + 1.0 / low.requests().max(1.0);
        (gain, lost, (requests + 2.0 * DISTURBANCE * DISTURBANCE).sqrt())
    }

    /// Returns true if the latency is below a goal under a lower window, and not under this one.
    fn reaches(&self, low: &Self, goal: f64) -> bool {
        low.latency_of() < goal && goal < self.latency_of()
    }

    /// The latency at which the line through both meets zero outstanding.
    fn latency_at_zero(&self, low: &Self) -> f64 {
        let (more, less) = (self.outstanding(), low.outstanding());
        if more <= less {
            return low.latency_of();
        }
        let slope = (self.latency_of() - low.latency_of()) / (more - less);
        (low.latency_of() - slope.max(0.0) * less).max(0.0)
    }
}

/// The storage cannot go below a latency, whatever is throttled.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Futility {
    /// The latency, in seconds.
    pub(super) floor: f64,
    /// The smallest window that costs no throughput, as a logarithm.
    pub(super) edge: f64,
    /// The latency that was measured there, in seconds.
    pub(super) at_edge: f64,
    /// Seconds for which it is still believed.
    left: f64,
}

/// A cut whose effect comes late, as beside a cache that takes writes at once. It is proved afterwards.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct LateCut {
    from: f64,
    measured_from: Measured,
    /// The last seconds since the cut.
    recent: Measured,
    seconds: f64,
}

/// The answer of the gate to an epoch of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TrialStep {
    /// The trial goes on under this window.
    Continue(f64),
    /// The lower window is useful.
    Useful(f64),
    /// The storage changed meanwhile: no verdict.
    Changed,
    /// Throttling is futile: the window goes back.
    Futile(f64),
}

/// The proofs, and the trial under way.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct FutilityGate {
    /// The smallest window proven useful, as a logarithm.
    proven: f64,
    trial: Option<Trial>,
    late: Option<LateCut>,
    futile: Option<Futility>,
    believed: f64,
    /// The greatest throughput seen, in requests per second.
    most_iops: f64,
    /// The largest window that a trial began from, as a logarithm.
    origin: f64,
    /// Seconds until a smallest window that does not suffice is compared with that one, and after that.
    until_review: f64,
    between_reviews: f64,
}

impl Default for FutilityGate {
    fn default() -> Self {
        Self {
            proven: f64::INFINITY,
            trial: None,
            late: None,
            futile: None,
            believed: BELIEVED.0,
            most_iops: 0.0,
            origin: f64::NEG_INFINITY,
            until_review: REVIEW,
            between_reviews: REVIEW,
        }
    }
}

impl FutilityGate {
    pub(super) fn futility(&self) -> Option<&Futility> {
        self.futile.as_ref()
    }

    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Returns true if a window may be put into force without a trial.
    pub(super) fn is_proven(&self, window: f64) -> bool {
        window >= self.proven - 1e-9
    }

    /// Takes time and throughput into account.
    pub(super) fn pass(&mut self, seconds: f64, iops: f64) {
        self.most_iops = iops.max(self.most_iops * (1.0 - 0.0005 * seconds).max(0.0));
        if let Some(futile) = &mut self.futile {
            futile.left -= seconds;
            if futile.left <= 0.0 {
                self.futile = None;
                self.proven = f64::INFINITY;
            }
        }
    }

    /// Forgets all proofs and verdicts, because the storage or its load is another one.
    pub(super) fn storage_changed(&mut self) {
        *self = Self::default();
    }

    /// Demands proof anew of every smaller window.
    pub(super) fn doubt(&mut self, window: f64) {
        self.proven = self.proven.max(window);
    }

    /// The goal in seconds, given the goal by the margin, the target, and the part of seconds above it.
    pub(super) fn goal(&self, goal: f64, target: f64, above: f64) -> f64 {
        let Some(futile) = &self.futile else { return goal };
        if futile.floor <= PROMISED * target {
            // A target that can be kept, but is not, leaves no room.
            let room = 1.0 + (ROOM.0 - 1.0) * (1.0 - above / MANY_ABOVE).clamp(0.0, 1.0);
            return goal.max((room * futile.floor).min(PROMISED * target));
        }
        let possible = ROOM.1 * futile.floor;
        goal.max(possible)
    }

    /// The smallest window that may be asked for, as a logarithm. A target that can be kept and is not knows
    /// none.
    pub(super) fn edge(&self, target: f64, above: f64) -> f64 {
        let binds = |futile: &Futility| above < ALLOWED || futile.floor > PROMISED * target;
        self.futile.filter(binds).map_or(f64::NEG_INFINITY, |futile| futile.edge)
    }

    /// Takes note of a latency that the storage has kept.
    pub(super) fn lower_floor(&mut self, latency: f64) {
        if let Some(futile) = &mut self.futile {
            futile.floor = futile.floor.min(latency);
        }
    }

    /// Takes note of a window that is proven, since the latency still follows it.
    pub(super) fn extend(&mut self, window: f64) {
        self.proven = self.proven.min(window);
    }

    /// Returns the smallest window that needs no trial while the latency is known to follow the window.
    pub(super) fn reach(&self) -> f64 {
        self.proven - std::f64::consts::LN_2
    }

    /// Allows a cut whose effect comes late, and remembers what it has to be compared with.
    pub(super) fn cut_late(&mut self, from: f64, measured: Measured) {
        if self.late.is_none() {
            self.late =
                Some(LateCut { from, measured_from: measured, recent: Measured::default(), seconds: 0.0 });
        }
    }

    /// Takes an epoch after a late cut into account, under this window. Once its effect must have come, it is
    /// proven, or the window goes back to be compared: then returns the window.
    pub(super) fn learn_late(
        &mut self,
        load: &Measurement,
        latency: f64,
        target: f64,
        window: f64,
        least: f64,
    ) -> Option<f64> {
        let late = self.late.as_mut()?;
        late.recent.fade((-load.seconds / LATE.1).exp());
        late.recent.add(load, latency);
        late.seconds += load.seconds;
        if window > late.from - 0.2 {
            self.late = None;
            return None;
        }
        let patience = if window <= least + 0.05 { LATE.1 } else { LATE.0 };
        let (gain, lost, error) = late.measured_from.gain(&late.recent);
        let reaches = late.measured_from.reaches(&late.recent, SAFELY * target) && gain > USEFUL * error;
        let useful = lost > 0.2 && (reaches || gain - USEFUL * error > BAR * lost);
        let soon = if useful { 2.0 } else { patience };
        if late.seconds < soon || late.recent.requests() < VERDICT_REQUESTS {
            return None;
        }
        let late = *late;
        if !useful && gain + VAIN * error > BAR * lost && late.seconds < LATE.2 {
            return None;
        }
        self.late = None;
        if lost < 0.2 || reaches || gain + VAIN * error > BAR * lost {
            self.extend(window);
            return None;
        }
        self.trial = Some(Trial {
            from: late.from,
            low: window,
            measured_from: late.measured_from,
            measured_low: late.recent,
            again: Some(Measured::default()),
            is_late: true,
            seconds: 0.0,
        });
        Some(late.from)
    }

    /// Begins to try a lower window. Returns the window to put into force.
    pub(super) fn begin(&mut self, from: f64, low: f64, measured: Measured) -> f64 {
        self.origin = self.origin.max(from);
        self.trial = Some(Trial {
            from,
            low,
            measured_from: measured,
            measured_low: Measured::default(),
            again: None,
            is_late: false,
            seconds: 0.0,
        });
        low
    }

    /// Compares the smallest window, under which the latency stays above the goal all the same, with the one
    /// that the descent began from. Returns that, or `None` if it is too early to do so again.
    pub(super) fn review(&mut self, low: f64, measured: Measured, seconds: f64) -> Option<f64> {
        self.until_review -= seconds;
        if self.until_review > 0.0 || self.origin <= low || measured.requests() < LOW_MOST.0 / 2.0 {
            return None;
        }
        self.between_reviews = (2.0 * self.between_reviews).min(BELIEVED.1);
        self.until_review = self.between_reviews;
        self.trial = Some(Trial {
            from: self.origin,
            low,
            measured_from: measured,
            measured_low: measured,
            again: Some(Measured::default()),
            is_late: false,
            seconds: 0.0,
        });
        Some(self.origin)
    }

    /// Gives up the trial under way.
    pub(super) fn abandon(&mut self) {
        self.trial = None;
    }

    /// Takes an epoch of the trial into account. Where protected consumers' reads are judged, `promise` is
    /// the smallest window: a promise is out of reach only if even that does not keep it.
    pub(super) fn learn(
        &mut self,
        load: &Measurement,
        latency: f64,
        target: f64,
        promise: Option<f64>,
    ) -> TrialStep {
        let Some(trial) = &mut self.trial else { return TrialStep::Changed };
        let (from, low) = (trial.from, trial.low);
        let Some(again) = &mut trial.again else {
            let at_least = promise.is_some_and(|least| low <= least + 0.1);
            if at_least {
                // What a device has buffered is worked off first.
                trial.measured_low.fade((-load.seconds / AT_LEAST.1).exp());
                trial.seconds += load.seconds;
            }
            trial.measured_low.add(load, latency);
            let waits = at_least && trial.seconds < AT_LEAST.0;
            let measured_low = trial.measured_low;
            let (gain, lost, error) = trial.measured_from.gain(&measured_low);
            if gain < -USEFUL * error - 0.1 {
                self.trial = None;
                return TrialStep::Changed;
            }
            let reaches = trial.measured_from.latency_at_zero(&measured_low) < 0.9 * target
                || trial.measured_from.reaches(&measured_low, PROMISED * target);
            if gain - USEFUL * error > BAR * lost || (gain > USEFUL * error && reaches) {
                return self.useful(low);
            }
            let vain = measured_low.requests() >= VERDICT_REQUESTS && gain + VAIN * error < BAR * lost;
            let seconds = measured_low.load.seconds.max(trial.seconds);
            let long = measured_low.requests() >= LOW_MOST.0 || seconds >= LOW_MOST.1;
            if let Some(least) = promise.filter(|least| (vain || long) && !trial.is_late && low > least + 0.1)
            {
                (trial.low, trial.measured_low) = (least, Measured::default());
                return TrialStep::Continue(least);
            }
            if (vain || long) && !waits {
                (trial.again, trial.seconds) = (Some(Measured::default()), 0.0);
                return TrialStep::Continue(from);
            }
            return TrialStep::Continue(low);
        };
        if trial.is_late {
            again.fade((-load.seconds / LATE.1).exp());
            trial.seconds += load.seconds;
        }
        again.add(load, latency);
        let (again, is_late, seconds) = (*again, trial.is_late, trial.seconds);
        let measured_low = trial.measured_low;
        let (gain, lost, error) = again.gain(&measured_low);
        if is_late && seconds < LATE.0 {
            let enough = seconds >= 2.0 && again.requests() >= VERDICT_REQUESTS;
            let reaches = again.reaches(&measured_low, SAFELY * target) && gain > USEFUL * error;
            if enough && (reaches || gain - USEFUL * error > BAR * lost) {
                return self.useful(low);
            }
            return TrialStep::Continue(from);
        }
        let ends = is_late || again.requests() >= UP_MOST.0 || again.load.seconds >= UP_MOST.1;
        if gain - USEFUL * error > BAR * lost || (ends && gain >= BAR * lost) {
            return self.useful(low);
        }
        let enough = again.requests() >= VERDICT_REQUESTS;
        if !(ends || enough && gain + error < BAR * lost) {
            return TrialStep::Continue(from);
        }
        let mut both = again;
        both.load.add(&measured_low.load);
        both.total += measured_low.total;
        let floor = if promise.is_some_and(|least| low <= least + 0.1) {
            // Nothing is below the smallest window.
            measured_low.latency_of()
        } else if gain > USEFUL * error {
            again.latency_at_zero(&measured_low)
        } else {
            both.latency_of()
        };
        let needed = gain > USEFUL * error || again.latency_of() > PROMISED * target;
        if promise.is_some() && floor <= PROMISED * target && needed {
            // The promise can be kept, and what it costs is for the administrator to say.
            return self.useful(low);
        }
        let used = again.outstanding();
        // Where the target can be kept, a larger window might miss it.
        let most = if floor <= PROMISED * target { used } else { 4.0 * used };
        let knee = (self.most_iops * floor).clamp(used, most);
        let at_edge = again.latency_of();
        self.futile = Some(Futility { floor, edge: knee.ln(), at_edge, left: self.believed });
        self.believed = (2.0 * self.believed).min(BELIEVED.1);
        self.trial = None;
        TrialStep::Futile(from.max(knee.ln()))
    }

    fn useful(&mut self, low: f64) -> TrialStep {
        self.proven = self.proven.min(low);
        self.trial = None;
        TrialStep::Useful(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: f64 = 0.012;

    /// So many requests outstanding for a second, with this latency.
    fn load(outstanding: f64, latency: f64) -> Measurement {
        let count = outstanding / latency;
        Measurement {
            seconds: 1.0,
            count,
            total: outstanding,
            eligible: count,
            busy: outstanding,
            waited: 1.0,
            ..Measurement::default()
        }
    }

    /// Tries half of a window of 64 on storage of this latency.
    fn tried(latency: impl Fn(f64) -> f64, promise: Option<f64>) -> (FutilityGate, TrialStep) {
        let mut gate = FutilityGate::default();
        let mut from = Measured::default();
        from.add(&load(64.0, latency(64.0)), latency(64.0));
        gate.pass(1.0, 64.0 / latency(64.0));
        let mut window = gate.begin(64.0f64.ln(), 32.0f64.ln(), from);
        loop {
            let at = latency(window.exp());
            match gate.learn(&load(window.exp(), at), at, TARGET, promise) {
                TrialStep::Continue(next) => window = next,
                step => return (gate, step),
            }
        }
    }

    #[test]
    fn half_the_window_of_a_saturated_server_is_useful() {
        let (gate, step) = tried(|outstanding| outstanding / 1_000.0, None);
        assert_eq!(step, TrialStep::Useful(32.0f64.ln()));
        assert!(gate.is_proven(32.0f64.ln()) && !gate.is_proven(16.0f64.ln()) && gate.futility().is_none());
    }

    #[test]
    fn half_the_window_of_idle_servers_is_vain_and_the_window_goes_back() {
        let (gate, step) = tried(|_| 0.02, None);
        assert!(matches!(step, TrialStep::Futile(window) if window >= 64.0f64.ln() - 1e-9), "{step:?}");
        let floor = gate.futility().unwrap().floor;
        assert!((floor - 0.02).abs() < 1e-6);
        assert!(gate.goal(0.01, TARGET, 0.0) > 0.02, "the goal is what the storage can do");
    }

    #[test]
    fn a_promise_is_given_up_only_if_the_smallest_window_does_not_keep_it() {
        let least = 0.25f64.ln();
        let flat_to_one = |outstanding: f64| if outstanding > 1.0 { 0.02 } else { 0.005 };
        let (gate, step) = tried(flat_to_one, Some(least));
        assert_eq!(step, TrialStep::Useful(least));
        assert!(gate.futility().is_none());
        let (_, step) = tried(|_| 0.02, Some(least));
        assert!(matches!(step, TrialStep::Futile(_)), "{step:?}");
    }

    #[test]
    fn a_verdict_is_forgotten_in_two_minutes() {
        let (mut gate, _) = tried(|_| 0.02, None);
        gate.pass(119.0, 3_200.0);
        assert!(gate.futility().is_some());
        gate.pass(2.0, 3_200.0);
        assert!(gate.futility().is_none() && !gate.is_proven(64.0f64.ln()));
    }
}
