//! Explanations in plain words.

use std::fmt;

use tidegate_control::{LawKind, SignalRequests};
use tidegate_journal::ThrottleMechanism;
use tidegate_service::explain::{
    ConsumerExplanation, InForceFigures, ResourceExplanation, ThrottleEffect, ThrottleEpisode,
    ThrottleFigures,
};
use tidegate_units::{ByteRate, Iops, Latency, Window};

/// The most actions that a short explanation tells.
const ACTIONS: usize = 5;

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
            let told = if self.tells_all { usize::MAX } else { ACTIONS };
            for action in resource.actions.iter().skip(resource.actions.len().saturating_sub(told)) {
                writeln!(f, "  action    {} {}: {}", action.at, action.actor, action.text)?;
            }
            for consumer in &resource.consumers {
                write_consumer(f, resource, consumer, self.tells_all)?;
            }
        }
        Ok(())
    }
}

fn summary(resource: &ResourceExplanation) -> String {
    // The consumers below may be a part of all.
    let verb = match (resource.released, resource.dry_run) {
        (true, _) => "would be throttled (released)",
        (false, true) => "would be throttled (dry run)",
        (false, false) => "throttled",
    };
    match resource.held {
        0 => format!("nothing {verb}"),
        held => format!("{held} of {} {verb}", resource.eligible),
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
    format!("{what}: {latency}, target {target}, set point {set_point} of the law {}{floor}", resource.law)
}

fn write_consumer(
    f: &mut fmt::Formatter<'_>,
    resource: &ResourceExplanation,
    consumer: &ConsumerExplanation,
    tells_all: bool,
) -> fmt::Result {
    let name = match &consumer.selected_as {
        Some(selected_as) => format!("{selected_as} ({})", consumer.name),
        None => consumer.name.clone(),
    };
    let gets = format!(
        "{}{}",
        Iops::new(consumer.iops),
        consumer.latency_seconds.map_or_else(String::new, |each| format!(", {} at the storage", time(each)))
    );
    if consumer.protected {
        return writeln!(f, "\n{name}: protected, never throttled; {gets}");
    }
    let last = consumer.episodes.last();
    match (consumer.throttled, last) {
        (true, Some(episode)) => {
            let verb = match episode.effect {
                ThrottleEffect::Throttled => "throttled",
                ThrottleEffect::DryRun => "on a dry run; would be throttled",
                ThrottleEffect::Released => "released; would be throttled",
            };
            writeln!(f, "\n{name}: {verb} since {}, {}", episode.from, share(episode))?;
            writeln!(f, "  by        {}", by(resource, &consumer.throttle))?;
            if let Some(in_force) = in_force(resource, consumer) {
                writeln!(f, "  in force  {in_force}")?;
            }
            writeln!(f, "  for       {}", protects(resource))?;
            writeln!(f, "  gets      {gets}; {}", before(episode))?;
            writeln!(f, "  ends      {}", ends(resource))?;
            writeln!(f, "  change    {}", changes(resource))?;
        }
        (_, Some(episode)) => {
            let now = if consumer.present { gets } else { "it is away, or not eligible".to_owned() };
            writeln!(f, "\n{name}: {} {}; {now}", ended(episode.effect), episode.until)?;
        }
        (_, None) => writeln!(f, "\n{name}: not throttled in that time; {gets}")?,
    }
    if tells_all {
        for episode in &consumer.episodes {
            let effect = match episode.effect {
                ThrottleEffect::Throttled => "",
                ThrottleEffect::DryRun => "not throttled, on a dry run; ",
                ThrottleEffect::Released => "not throttled, released; ",
            };
            writeln!(f, "  {} to {}: {effect}{}", episode.from, episode.until, told(episode))?;
        }
    }
    Ok(())
}

/// Says that a consumer is not throttled; the end of its last span follows.
const fn ended(effect: ThrottleEffect) -> &'static str {
    match effect {
        ThrottleEffect::Throttled => "not throttled since",
        ThrottleEffect::DryRun => "not throttled; without the dry run it would have been until",
        ThrottleEffect::Released => "not throttled; without the release it would have been until",
    }
}

fn share(episode: &ThrottleEpisode) -> String {
    format!("for {} in all", time(episode.throttled_seconds))
}

fn by(resource: &ResourceExplanation, throttle: &ThrottleFigures) -> String {
    let window = throttle.window_requests.map(|window| {
        format!("a window of {} requests for all consumers that are not protected", Window::new(window))
    });
    let delayed = match resource.mechanism {
        ThrottleMechanism::Queue | ThrottleMechanism::CgroupLimit => "for each request",
        ThrottleMechanism::PacketDelay => "for each packet to it",
        ThrottleMechanism::DeviceLimit => "for each write",
    };
    let delay = throttle.delay_seconds.map(|delay| format!("a delay of {} {delayed}", time(delay)));
    let rate = throttle.rate_iops.map(|rate| format!("a rate of {}", Iops::new(rate)));
    let told: Vec<String> = [rate, delay, window].into_iter().flatten().collect();
    let told = if told.is_empty() { format!("the law {}", resource.law) } else { told.join(", ") };
    match resource.mechanism {
        ThrottleMechanism::Queue => told,
        // What a delay is of has been said.
        ThrottleMechanism::PacketDelay if throttle.delay_seconds.is_some() => told,
        ThrottleMechanism::PacketDelay => format!("{told}, carried out by delays of packets"),
        ThrottleMechanism::DeviceLimit => format!("{told}, carried out by limits of writes to its devices"),
        ThrottleMechanism::CgroupLimit => format!("{told}, carried out by limits of cgroups"),
    }
}

/// The limits that were read back from the throttle. A queue needs no reading: it is the gateway itself.
fn in_force(resource: &ResourceExplanation, consumer: &ConsumerExplanation) -> Option<String> {
    if resource.mechanism == ThrottleMechanism::Queue {
        return None;
    }
    let in_force = consumer.in_force.as_ref()?;
    let told = limits(in_force);
    let told = if told.is_empty() { "nothing".to_owned() } else { told.join(", ") };
    Some(format!("{told}, as read back just before"))
}

fn limits(in_force: &InForceFigures) -> Vec<String> {
    let iops = |what, iops: Option<f64>| iops.map(|iops| format!("{} {what}", Iops::new(iops)));
    let bytes = |what, bytes: Option<f64>| bytes.map(|bytes| format!("{} {what}", ByteRate::new(bytes)));
    let figures = [
        in_force.delay_seconds.map(|delay| format!("a delay of {} for each packet", time(delay))),
        iops("read", in_force.read_iops),
        bytes("read", in_force.read_bytes_per_second),
        iops("written", in_force.write_iops),
        bytes("written", in_force.write_bytes_per_second),
    ];
    figures.into_iter().flatten().collect()
}

fn protects(resource: &ResourceExplanation) -> String {
    if resource.signal.requests == SignalRequests::Reads {
        "all reads, which are promised the target".to_owned()
    } else if resource.protects.is_empty() {
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
    let own = match resource.mechanism {
        ThrottleMechanism::Queue => "more `shares` for it",
        ThrottleMechanism::PacketDelay | ThrottleMechanism::DeviceLimit => "its name in `exempt`",
        ThrottleMechanism::CgroupLimit => "`cgroups` that do not mean it",
    };
    format!("a target above {target}, {own}, or less load of the others")
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
    use tidegate_service::explain::{ExplainedAction, SignalExplanation};

    use super::*;

    fn explanation() -> ResourceExplanation {
        let at = |second: u64| WallTime::from_nanos(second * 1_000_000_000);
        let throttle = ThrottleFigures { window_requests: Some(2.0), ..ThrottleFigures::default() };
        let episode = ThrottleEpisode {
            effect: ThrottleEffect::Throttled,
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
            selected_as: None,
            protected,
            present: true,
            throttled: !episodes.is_empty(),
            throttle,
            in_force: None,
            iops: 143.0,
            latency_seconds: Some(0.0098),
            episodes,
        };
        ResourceExplanation {
            resource: "array".to_owned(),
            at: at(100),
            law: LawKind::Auto,
            mechanism: ThrottleMechanism::Queue,
            dry_run: false,
            released: false,
            held: 1,
            eligible: 2,
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
            actions: vec![ExplainedAction {
                at: at(90),
                actor: "storage".to_owned(),
                text: "requests of backup fail: 1 no space left so far".to_owned(),
            }],
            consumers: vec![
                consumer("database", true, Vec::new()),
                consumer("backup", false, vec![episode]),
                consumer("batch", false, Vec::new()),
            ],
        }
    }

    #[test]
    fn a_cgroup_has_its_name_and_its_path() {
        let mut explanation = explanation();
        explanation.consumers[2].selected_as = Some("pod:shop/db-0".to_owned());
        let explanations = [explanation];
        let text = ExplanationText { explanations: &explanations, tells_all: false }.to_string();
        assert!(text.contains("\npod:shop/db-0 (batch): not throttled in that time; 143 IO/s"), "{text}");
    }

    #[test]
    fn the_whole_of_it() {
        let explanations = [explanation()];
        let text = ExplanationText { explanations: &explanations, tells_all: true }.to_string();
        assert_eq!(
            text,
            "array at 1970-01-01T00:01:40.000Z: 1 of 2 throttled\n  \
             signal    reads of database: 12.3ms, target 10.0ms, set point 9.10ms of the law auto\n  \
             decided   array: protected reads 12.3ms against 9.10ms\n  \
             action    1970-01-01T00:01:30.000Z storage: requests of backup fail: 1 no space left so far\n\n\
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

    #[test]
    fn an_explanation_of_one_consumer_counts_those_of_the_resource() {
        let mut explanation = explanation();
        explanation.consumers.retain(|consumer| consumer.name == "batch");
        let text = ExplanationText { explanations: &[explanation], tells_all: false }.to_string();
        assert!(text.contains(": 1 of 2 throttled\n") && text.contains("\nbatch: not throttled"), "{text}");
    }

    #[test]
    fn a_release_is_no_dry_run_and_neither_of_them_throttles() {
        let of = |effect: ThrottleEffect| {
            let mut explanation = explanation();
            explanation.dry_run = effect != ThrottleEffect::Throttled;
            explanation.released = effect == ThrottleEffect::Released;
            explanation.consumers[1].episodes[0].effect = effect;
            ExplanationText { explanations: &[explanation], tells_all: true }.to_string()
        };
        let released = of(ThrottleEffect::Released);
        assert!(released.contains("1 of 2 would be throttled (released)"), "{released}");
        assert!(released.contains("\nbackup: released; would be throttled since "), "{released}");
        assert!(released.contains(": not throttled, released; window down to 2.00"), "{released}");
        assert!(!released.contains("dry run"), "{released}");
        let dry = of(ThrottleEffect::DryRun);
        assert!(dry.contains("1 of 2 would be throttled (dry run)"), "{dry}");
        assert!(dry.contains(": not throttled, on a dry run; window down to 2.00"), "{dry}");
    }

    #[test]
    fn an_agents_throttle_is_named_with_what_was_read_back() {
        let mut told = explanation();
        told.throttle = ThrottleFigures { delay_seconds: Some(0.012), ..ThrottleFigures::default() };
        told.signal.requests = SignalRequests::Reads;
        told.law = LawKind::Pid;
        told.consumers.retain(|consumer| consumer.name == "backup");
        told.consumers[0].throttle = told.throttle;
        let line = |told: &ResourceExplanation, beginning: &str| {
            let text = ExplanationText { explanations: std::slice::from_ref(told), tells_all: false };
            let text = text.to_string();
            let found = text.lines().find(|line| line.trim_start().starts_with(beginning));
            found.map(|line| line.trim_start()[beginning.len()..].trim_start().to_owned())
        };
        assert_eq!(line(&told, "in force"), None, "a queue is not read back");
        told.mechanism = ThrottleMechanism::PacketDelay;
        let delay = InForceFigures { delay_seconds: Some(0.011), ..InForceFigures::default() };
        told.consumers[0].in_force = Some(delay);
        assert_eq!(line(&told, "by").unwrap(), "a delay of 12.0ms for each packet to it");
        let expected = "a delay of 11.0ms for each packet, as read back just before";
        assert_eq!(line(&told, "in force").unwrap(), expected);
        assert_eq!(line(&told, "for").unwrap(), "all reads, which are promised the target");
        let expected = "a target above 10.0ms, its name in `exempt`, or less load of the others";
        assert_eq!(line(&told, "change").unwrap(), expected);
        told.mechanism = ThrottleMechanism::CgroupLimit;
        let limits = InForceFigures {
            read_iops: Some(120.0),
            write_bytes_per_second: Some(4_000_000.0),
            ..InForceFigures::default()
        };
        told.consumers[0].in_force = Some(limits);
        let expected = "a delay of 12.0ms for each request, carried out by limits of cgroups";
        assert_eq!(line(&told, "by").unwrap(), expected);
        let expected = "120 IO/s read, 3.8 MiB/s written, as read back just before";
        assert_eq!(line(&told, "in force").unwrap(), expected);
        told.consumers[0].in_force = Some(InForceFigures::default());
        assert_eq!(line(&told, "in force").unwrap(), "nothing, as read back just before");
    }
}
