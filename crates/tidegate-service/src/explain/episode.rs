//! Spans of time in which a consumer is throttled.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tidegate_control::Decision;
use tidegate_journal::WallTime;

use super::{ThrottleFigures, time_text};

/// A shorter release does not end an episode: laws near their set point release for moments.
const PAUSE_S: f64 = 10.0;

/// More episodes of a consumer are counted, and not told of.
const MOST: usize = 200;

/// Effect of what a law decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleEffect {
    /// Consumers were throttled.
    #[default]
    Throttled,
    /// None on a dry run: consumers would have been throttled.
    DryRun,
    /// None while an operator had released all consumers: they would have been throttled.
    Released,
}

impl ThrottleEffect {
    pub(super) const fn of(decision: &Decision) -> Self {
        match (decision.released, decision.dry_run) {
            (true, _) => Self::Released,
            (false, true) => Self::DryRun,
            (false, false) => Self::Throttled,
        }
    }
}

/// A span in which a consumer was throttled, with short releases, or would have been.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThrottleEpisode {
    /// Effect in the whole span: a dry run, a release, or the end of one of them ends the span.
    #[serde(default)]
    pub effect: ThrottleEffect,
    /// Time of the first decision that throttled it.
    #[serde(with = "time_text")]
    pub from: WallTime,
    /// Time of the last one so far.
    #[serde(with = "time_text")]
    pub until: WallTime,
    /// Seconds for which it was throttled: less than the whole span if it was released for moments.
    pub throttled_seconds: f64,
    /// Requests per second in the ten seconds before. `null`: they are not known.
    pub iops_before: Option<f64>,
    /// Mean requests per second in the span.
    pub iops: f64,
    /// The strongest throttle: the smallest window and rate, the longest delay.
    pub strongest: ThrottleFigures,
    /// The greatest latency of the signal in the span. `null`: nothing was known.
    pub worst_signal_seconds: Option<f64>,
}

/// One decision, as far as a consumer's throttling is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThrottleMoment {
    pub(super) time: WallTime,
    /// The time that the decision judges.
    pub(super) seconds: f64,
    /// True if the law throttled the consumer, whatever the effect.
    pub(super) throttled: bool,
    pub(super) effect: ThrottleEffect,
    /// Requests per second, in the last ten seconds.
    pub(super) iops: f64,
    pub(super) throttle: ThrottleFigures,
    pub(super) signal: Option<f64>,
}

/// Finds episodes while decisions pass by.
#[derive(Debug, Default)]
pub(super) struct EpisodeTracker {
    ended: VecDeque<ThrottleEpisode>,
    current: Option<OpenEpisode>,
    /// Requests per second before the present decision.
    before: Option<f64>,
}

#[derive(Debug)]
struct OpenEpisode {
    episode: ThrottleEpisode,
    /// Requests and seconds since its beginning.
    requests: f64,
    seconds: f64,
    /// Seconds since the last decision that throttled.
    released: f64,
}

impl EpisodeTracker {
    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.current.is_none()
    }

    pub(super) fn take(&mut self, moment: &ThrottleMoment) {
        if self.current.as_ref().is_some_and(|current| current.episode.effect != moment.effect) {
            self.end();
        }
        if let Some(current) = &mut self.current {
            current.requests += moment.iops * moment.seconds;
            current.seconds += moment.seconds;
            if moment.throttled {
                current.released = 0.0;
                current.episode.extend(moment);
            } else {
                current.released += moment.seconds;
            }
            if current.seconds > 0.0 {
                current.episode.iops = current.requests / current.seconds;
            }
            if current.released >= PAUSE_S {
                self.end();
            }
        } else if moment.throttled {
            self.current = Some(OpenEpisode::begin(moment, self.before));
        }
        self.before = Some(moment.iops);
    }

    /// Returns the episodes, the oldest first.
    pub(super) fn all(&self) -> Vec<ThrottleEpisode> {
        let current = self.current.iter().map(|current| current.episode.clone());
        self.ended.iter().cloned().chain(current).collect()
    }

    fn end(&mut self) {
        self.ended.extend(self.current.take().map(|current| current.episode));
        if self.ended.len() > MOST {
            self.ended.pop_front();
        }
    }
}

impl OpenEpisode {
    fn begin(moment: &ThrottleMoment, before: Option<f64>) -> Self {
        let mut episode = ThrottleEpisode {
            effect: moment.effect,
            from: moment.time,
            until: moment.time,
            throttled_seconds: 0.0,
            iops_before: before,
            iops: moment.iops,
            strongest: moment.throttle,
            worst_signal_seconds: None,
        };
        episode.extend(moment);
        Self { episode, requests: 0.0, seconds: 0.0, released: 0.0 }
    }
}

impl ThrottleEpisode {
    fn extend(&mut self, moment: &ThrottleMoment) {
        let least =
            |one: Option<f64>, other: Option<f64>| [one, other].into_iter().flatten().reduce(f64::min);
        let most = |one: Option<f64>, other: Option<f64>| [one, other].into_iter().flatten().reduce(f64::max);
        self.until = moment.time;
        self.throttled_seconds += moment.seconds;
        self.strongest = ThrottleFigures {
            window_requests: least(self.strongest.window_requests, moment.throttle.window_requests),
            delay_seconds: most(self.strongest.delay_seconds, moment.throttle.delay_seconds),
            rate_iops: least(self.strongest.rate_iops, moment.throttle.rate_iops),
        };
        self.worst_signal_seconds = most(self.worst_signal_seconds, moment.signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(second: u64, throttled: bool, window: f64) -> ThrottleMoment {
        ThrottleMoment {
            time: WallTime::from_nanos(second * 1_000_000_000),
            seconds: 1.0,
            throttled,
            effect: ThrottleEffect::Throttled,
            iops: if throttled { 50.0 } else { 400.0 },
            throttle: ThrottleFigures { window_requests: Some(window), ..ThrottleFigures::default() },
            signal: Some(window / 1_000.0),
        }
    }

    #[test]
    fn moments_of_release_do_not_end_an_episode_and_ten_seconds_do() {
        let mut tracker = EpisodeTracker::default();
        let throttled = |second: u64| matches!(second, 5..=9 | 12..=20 | 40..=41);
        (0..45)
            .for_each(|second| tracker.take(&moment(second, throttled(second), 20.0 - second as f64 / 4.0)));
        let all = tracker.all();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].from, all[0].until), (moment(5, true, 0.0).time, moment(20, true, 0.0).time));
        assert!((all[0].throttled_seconds - 14.0).abs() < 1e-9 && all[0].iops_before == Some(400.0));
        assert_eq!(all[0].strongest.window_requests, Some(15.0));
        assert!((all[1].throttled_seconds - 2.0).abs() < 1e-9, "it goes on");
    }

    #[test]
    fn the_time_of_a_dry_run_and_of_a_release_is_in_no_span_of_throttling() {
        let mut tracker = EpisodeTracker::default();
        let effect = |second: u64| match second {
            0..=9 => ThrottleEffect::DryRun,
            15..=17 => ThrottleEffect::Released,
            _ => ThrottleEffect::Throttled,
        };
        (0..20).for_each(|second| {
            tracker.take(&ThrottleMoment { effect: effect(second), ..moment(second, true, 3.0) });
        });
        let spans: Vec<_> =
            tracker.all().iter().map(|one| (one.effect, one.throttled_seconds.round() as u64)).collect();
        assert_eq!(
            spans,
            [
                (ThrottleEffect::DryRun, 10),
                (ThrottleEffect::Throttled, 5),
                (ThrottleEffect::Released, 3),
                (ThrottleEffect::Throttled, 2),
            ]
        );
    }

    #[test]
    fn episodes_are_bounded() {
        let mut tracker = EpisodeTracker::default();
        (0..12_000).for_each(|second| tracker.take(&moment(second, second % 20 == 0, 3.0)));
        assert!(tracker.all().len() <= MOST + 1);
    }
}
