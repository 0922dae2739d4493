//! The documents that journal, `explain` and replay are made of. What these tests pin, others have written to
//! disk: a change here needs a new version.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

use tidegate_control::{
    Action, Bound, ConsumerObservation, Decision, Input, LawKind, Observation, Operations, Output,
    Outstanding, Signal,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, ResourceName, Shares, Window};

const OBSERVATION_1: &str = concat!(
    r#"{"version":1,"resource":"sata","at":1500000000,"consumers":[{"name":"database","shares":100,"#,
    r#""protected":true,"reads":{"count":16,"bytes":65536,"total_latency":192000000,"in_flight":1,"#,
    r#""oldest_in_flight":4000000},"writes":{"count":0,"bytes":0,"total_latency":0,"in_flight":0,"#,
    r#""oldest_in_flight":null},"mean_outstanding":0.75,"queued":2}]}"#
);

const DECISION_1: &str = concat!(
    r#"{"version":1,"resource":"sata","at":1500000000,"elapsed":250000000,"law":"window","#,
    r#""signal":"protected_reads","input":{"samples":{"count":16}},"measured":25000000,"#,
    r#""estimate":23100000,"set_point":12000000,"action":"regulate","raw":{"window":0.125},"#,
    r#""bounded":{"window":0.25},"bound":"least","held":12,"throttled":12,"dry_run":false}"#
);

fn observation() -> Observation {
    let consumer = ConsumerObservation {
        reads: Operations {
            count: 16,
            bytes: Bytes::from_kib(64),
            total_latency: Latency::from_millis(192),
            in_flight: 1,
            oldest_in_flight: Some(Latency::from_millis(4)),
        },
        mean_outstanding: Outstanding::new(0.75),
        queued: 2,
        ..ConsumerObservation::idle(ConsumerName::new("database").unwrap(), Shares::DEFAULT, true)
    };
    Observation::new(ResourceName::new("sata").unwrap(), Instant::from_nanos(1_500_000_000), vec![consumer])
}

fn decision() -> Decision {
    Decision {
        version: Decision::VERSION,
        resource: ResourceName::new("sata").unwrap(),
        at: Instant::from_nanos(1_500_000_000),
        elapsed: Latency::from_millis(250),
        law: LawKind::Window,
        signal: Signal::ProtectedReads,
        input: Input::Samples { count: 16 },
        measured: Some(Latency::from_millis(25)),
        estimate: Some(Latency::from_micros(23_100)),
        set_point: Latency::from_millis(12),
        action: Action::Regulate,
        raw: Output::Window(Window::new(0.125)),
        bounded: Output::Window(Window::new(0.25)),
        bound: Some(Bound::Least),
        held: 12,
        throttled: 12,
        dry_run: false,
    }
}

#[test]
fn version_1_of_an_observation() {
    assert_eq!(serde_json::to_string(&observation()).unwrap(), OBSERVATION_1);
    assert_eq!(serde_json::from_str::<Observation>(OBSERVATION_1).unwrap(), observation());
}

#[test]
fn version_1_of_a_decision() {
    assert_eq!(serde_json::to_string(&decision()).unwrap(), DECISION_1);
    assert_eq!(serde_json::from_str::<Decision>(DECISION_1).unwrap(), decision());
    let spelled = [
        (serde_json::to_string(&Output::Delay(Latency::from_millis(8))).unwrap(), r#"{"delay":8000000}"#),
        (
            serde_json::to_string(&Input::Overload { oldest: Latency::from_millis(900) }).unwrap(),
            r#"{"overload":{"oldest":900000000}}"#,
        ),
        (
            serde_json::to_string(&[Input::Unknown, Input::Idle, Input::NoTime]).unwrap(),
            r#"["unknown","idle","no_time"]"#,
        ),
        (serde_json::to_string(&[Action::Hold, Action::Relax]).unwrap(), r#"["hold","relax"]"#),
        (
            serde_json::to_string(&[Bound::Greatest, Bound::FloorRate]).unwrap(),
            r#"["greatest","floor_rate"]"#,
        ),
        (serde_json::to_string(&Signal::Everything).unwrap(), r#""everything""#),
        (serde_json::to_string(&LawKind::Pid).unwrap(), r#""pid""#),
    ];
    for (written, pinned) in spelled {
        assert_eq!(written, pinned);
    }
}

#[test]
fn another_version_or_an_unknown_field_is_refused() {
    let error = |text: &str| serde_json::from_str::<Observation>(text).unwrap_err().to_string();
    let newer = OBSERVATION_1.replacen("\"version\":1", "\"version\":2", 1);
    assert!(error(&newer).contains("version 2 is not known here"), "{}", error(&newer));
    let more = OBSERVATION_1.replacen("\"queued\"", "\"mood\":1,\"queued\"", 1);
    assert!(error(&more).contains("mood"), "{}", error(&more));
    let newer = DECISION_1.replacen("\"version\":1", "\"version\":2", 1);
    assert!(serde_json::from_str::<Decision>(&newer).is_err());
}

#[test]
fn a_decision_reads_as_a_sentence() {
    let window = Output::Window(Window::new(2.3));
    let delay = Output::Delay(Latency::from_millis(180));
    let cases = [
        (
            decision(),
            "sata: protected reads 23.1ms against 12.0ms: the others held to a window of 0.25 \
             (12 of 12 held), the least that is allowed",
        ),
        (
            Decision { bounded: window, bound: None, dry_run: true, held: 7, ..decision() },
            "sata (dry run): protected reads 23.1ms against 12.0ms: the others would be held to a window of \
             2.30 (7 of 12 held)",
        ),
        (
            Decision { bounded: delay, bound: Some(Bound::FloorRate), ..decision() },
            "sata: protected reads 23.1ms against 12.0ms: the others held by up to 180ms per request \
             (12 of 12 held), down to their floor rate",
        ),
        (
            Decision {
                input: Input::Overload { oldest: Latency::from_millis(1_200) },
                bounded: delay,
                bound: None,
                ..decision()
            },
            "sata: no protected read completes, the oldest waits 1.20s against 12.0ms: the others held by up to \
             180ms per request (12 of 12 held)",
        ),
        (
            Decision {
                input: Input::Unknown,
                action: Action::Hold,
                bounded: window,
                bound: None,
                ..decision()
            },
            "sata: no protected read completed yet: the others still held to a window of 2.30 (12 of 12 held)",
        ),
        (
            Decision {
                input: Input::Idle,
                action: Action::Relax,
                bounded: window,
                bound: None,
                ..decision()
            },
            "sata: no protected read to judge by: the others let go by degrees, held to a window of 2.30 \
             (12 of 12 held)",
        ),
        (
            Decision { signal: Signal::Everything, held: 0, ..decision() },
            "sata: response time 23.1ms against 12.0ms: nothing held",
        ),
        (
            Decision { input: Input::NoTime, throttled: 0, held: 0, ..decision() },
            "sata: the clock did not advance: nobody to hold",
        ),
    ];
    for (decision, sentence) in cases {
        assert_eq!(decision.to_string(), sentence);
    }
}
