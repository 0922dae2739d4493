//! Explanations in plain words.

use std::fmt;

use tidegate_control::{LawKind, SignalRequests};
use tidegate_service::explain::{ConsumerExplanation, ResourceExplanation, ThrottleEpisode, ThrottleFigures};
use tidegate_units::{Iops, Latency, Window};

/// The text of explanations.
pub(super) struct ExplanationText<'a> {
    pub(super) explanations: &'a [ResourceExplanation],
    /// True if all throttled spans are told, and not the last one only.
    pub(super) tells_all: bool,
}

impl fmt::Display for ExplanationText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, resource) in self.explanations.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            writeln!(f, "{} at {}: {}", resource.resource, resource.at, summary(resource))?;
            writeln!(f, "  signal    {}", signal(resource))?;
            writeln!(f, "  decided   {}", resource.said)?;
            for consumer in &resource.consumers {
                write_consumer(f, resource, consumer, self.tells_all)?;
            }
        }
        Ok(())
    }
}

fn summary(resource: &ResourceExplanation) -> String {
    let throttled = resource.consumers.iter().filter(|consumer| consumer.throttled).count();
    let verb = if resource.dry_run { "would be throttled (dry run)" } else { "throttled" };
    match throttled {
        0 => format!("nothing {verb}"),
        count => format!("{count} of {} {verb}", resource.consumers.len()),
    }
}

fn signal(resource: &ResourceExplanation) -> String {
    let signal = &resource.signal;
    let what = match signal.requests {
        SignalRequests::ProtectedReads => format!("reads of {}", resource.protects.join(", ")),
        SignalRequests::Reads => "all reads".to_owned(),
        SignalRequests::Everything => "all requests".to_owned(),
    };
    let (set_point, target) = (time(signal.set_point_seconds), time(signal.target_seconds));
    let latency = match signal.latency_seconds {
        Some(latency) if signal.overload => format!("none completes, the oldest waits {}", time(latency)),
        Some(latency) => time(latency),
        None => "unknown".to_owned(),
    };
    let floor = signal.floor_seconds.map_or_else(String::new, |floor| {
        format!("; the storage cannot go below {}, whatever is throttled", time(floor))
    });
    format!("{what}: {latency}, target {target}, law {} steers to {set_point}{floor}", resource.law)
}

fn write_consumer(
    f: &mut fmt::Formatter<'_>,
    resource: &ResourceExplanation,
    consumer: &ConsumerExplanation,
    tells_all: bool,
) -> fmt::Result {
    let gets = format!(
        "{}{}",
        Iops::new(consumer.iops),
        consumer.latency_seconds.map_or_else(String::new, |each| format!(", {} at the storage", time(each)))
    );
    if consumer.protected {
        return writeln!(f, "\n{}: protected, never throttled; {gets}", consumer.name);
    }
    let last = consumer.episodes.last();
    match (consumer.throttled, last) {
        (true, Some(episode)) => {
            let verb = if resource.dry_run { "would be throttled" } else { "throttled" };
            writeln!(f, "\n{}: {verb} since {}, {}", consumer.name, episode.from, share(episode))?;
            writeln!(f, "  by        {}", by(resource, &consumer.throttle))?;
            writeln!(f, "  for       {}", protects(resource))?;
            writeln!(f, "  gets      {gets}; {}", before(episode))?;
            writeln!(f, "  ends      {}", ends(resource))?;
            writeln!(f, "  change    {}", changes(resource))?;
        }
        (_, Some(episode)) => {
            writeln!(f, "\n{}: not throttled since {}; {gets}", consumer.name, episode.until)?;
        }
        (_, None) => writeln!(f, "\n{}: not throttled in that time; {gets}", consumer.name)?,
    }
    if tells_all {
        for episode in &consumer.episodes {
            writeln!(f, "  {} to {}: {}", episode.from, episode.until, told(episode))?;
        }
    }
    Ok(())
}

fn share(episode: &ThrottleEpisode) -> String {
    format!("for {} in all", time(episode.throttled_seconds))
}

fn by(resource: &ResourceExplanation, throttle: &ThrottleFigures) -> String {
    let window = throttle.window_requests.map(|window| {
        format!("a window of {} requests for all consumers that are not protected", Window::new(window))
    });
    let delay = throttle.delay_seconds.map(|delay| format!("a delay of {} for each request", time(delay)));
    let rate = throttle.rate_iops.map(|rate| format!("a rate of {}", Iops::new(rate)));
    let told: Vec<String> = [rate, delay, window].into_iter().flatten().collect();
    if told.is_empty() { format!("the law {}", resource.law) } else { told.join(", ") }
}

fn protects(resource: &ResourceExplanation) -> String {
    if resource.protects.is_empty() {
        "the latency of all consumers, which is above the set point without it".to_owned()
    } else {
        format!("{}, whose reads are promised the target", resource.protects.join(", "))
    }
}

fn before(episode: &ThrottleEpisode) -> String {
    episode.iops_before.map_or_else(
        || "its rate before is not known".to_owned(),
        |before| format!("{} in the ten seconds before", Iops::new(before)),
    )
}

fn ends(resource: &ResourceExplanation) -> String {
    let set_point = time(resource.signal.set_point_seconds);
    match resource.law {
        LawKind::Integral => "when its contract and those of the others leave more".to_owned(),
        LawKind::SelfTuning | LawKind::QueueingModel => {
            format!(
                "when every consumer stays below its goal, here {set_point}: the operating point then grows"
            )
        }
        LawKind::Auto | LawKind::Window => {
            format!("when the signal stays below {set_point}: the window then grows until no request waits")
        }
        LawKind::Pid => format!("when the signal stays below {set_point}: the delay then falls to nothing"),
    }
}

fn changes(resource: &ResourceExplanation) -> String {
    let target = time(resource.signal.target_seconds);
    format!("a target above {target}, more `shares` for it, or less load of the others")
}

fn told(episode: &ThrottleEpisode) -> String {
    let strongest = &episode.strongest;
    let figures = [
        strongest.window_requests.map(|window| format!("window down to {}", Window::new(window))),
        strongest.delay_seconds.map(|delay| format!("delay up to {}", time(delay))),
        strongest.rate_iops.map(|rate| format!("rate down to {}", Iops::new(rate))),
        episode.worst_signal_seconds.map(|worst| format!("signal up to {}", time(worst))),
        Some(format!("{} on average", Iops::new(episode.iops))),
    ];
    figures.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn time(seconds: f64) -> String {
    Latency::from_secs_f64(seconds).to_string()
}

#[cfg(test)]
mod tests {
    use tidegate_journal::WallTime;
    use tidegate_service::explain::SignalExplanation;

    use super::*;

    fn explanation() -> ResourceExplanation {
        let at = |second: u64| WallTime::from_nanos(second * 1_000_000_000);
        let throttle = ThrottleFigures { window_requests: Some(2.0), ..ThrottleFigures::default() };
        let episode = ThrottleEpisode {
            from: at(60),
            until: at(100),
            throttled_seconds: 38.0,
            iops_before: Some(412.0),
            iops: 150.0,
            strongest: throttle,
            worst_signal_seconds: Some(0.031),
        };
        let consumer = |name: &str, protected: bool, episodes: Vec<ThrottleEpisode>| ConsumerExplanation {
            name: name.to_owned(),
            protected,
            throttled: !episodes.is_empty(),
            throttle,
            iops: 143.0,
            latency_seconds: Some(0.0098),
            episodes,
        };
        ResourceExplanation {
            resource: "array".to_owned(),
            at: at(100),
            law: LawKind::Auto,
            dry_run: false,
            said: "array: protected reads 12.3ms against 9.10ms".to_owned(),
            signal: SignalExplanation {
                requests: SignalRequests::ProtectedReads,
                latency_seconds: Some(0.0123),
                set_point_seconds: 0.0091,
                target_seconds: 0.01,
                floor_seconds: None,
                overload: false,
            },
            throttle,
            protects: vec!["database".to_owned()],
            consumers: vec![
                consumer("database", true, Vec::new()),
                consumer("backup", false, vec![episode]),
                consumer("batch", false, Vec::new()),
            ],
        }
    }

    #[test]
    fn the_whole_of_it() {
        let explanations = [explanation()];
        let text = ExplanationText { explanations: &explanations, tells_all: true }.to_string();
        assert_eq!(
            text,
            "array at 1970-01-01T00:01:40.000Z: 1 of 3 throttled\n  \
             signal    reads of database: 12.3ms, target 10.0ms, law auto steers to 9.10ms\n  \
             decided   array: protected reads 12.3ms against 9.10ms\n\n\
             database: protected, never throttled; 143 IO/s, 9.80ms at the storage\n\n\
             backup: throttled since 1970-01-01T00:01:00.000Z, for 38.0s in all\n  \
             by        a window of 2.00 requests for all consumers that are not protected\n  \
             for       database, whose reads are promised the target\n  \
             gets      143 IO/s, 9.80ms at the storage; 412 IO/s in the ten seconds before\n  \
             ends      when the signal stays below 9.10ms: the window then grows until no request waits\n  \
             change    a target above 10.0ms, more `shares` for it, or less load of the others\n  \
             1970-01-01T00:01:00.000Z to 1970-01-01T00:01:40.000Z: window down to 2.00, signal up to \
             31.0ms, 150 IO/s on average\n\n\
             batch: not throttled in that time; 143 IO/s, 9.80ms at the storage\n"
        );
    }
}
