//! The documents that journal, `explain` and replay are made of. What these tests pin, others have written to
//! disk: a change here needs a new version.

use tidegate_control::{
    BandPosition, ClusterSignal, ConsumerObservation, Contract, Decision, GaveWay, LawAction, LawKind,
    LawOutput, LearningOutcome, LinearModel, MeanOutstanding, Observation, OperationTotals, OutputBound,
    PointAllotment, PointDecision, RateDecision, RegulatorDecision, ReservationDecision, ReservationShortage,
    SetPointChoice, SetPointReason, SignalRequests, SignalState, SignalStatistic, StepDirection,
    WaitingConsumers,
};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares, Window};

const OBSERVATION_5: &str = concat!(
    r#"{"version":5,"resource":"sata","at":1500000000,"consumers":[{"name":"database","shares":100,"reservation":200.0,"#,
    r#""contract":{"iops":40.0,"response_time":35000000,"expected":29000000},"goal":null,"#,
    r#""protected":true,"reads":{"count":16,"bytes":65536,"total_latency":192000000,"in_flight":1,"#,
    r#""oldest_in_flight":4000000},"writes":{"count":0,"bytes":0,"total_latency":0,"in_flight":0,"#,
    r#""oldest_in_flight":null},"mean_outstanding":0.75,"queued":2,"short_of_tokens":500000,"scheduler_wait":8000000,"release_to_completion":null}],"cluster":{"hosts":3,"stale":1,"#,
    r#""adjusted":0,"signal":"protected_reads","completed":64,"mean":25000000,"iops":256.0,"#,
    r#""reserved":350.0,"outstanding":true,"oldest":null,"leader":"a","leads":false,"set_point":null},"percentile":null}"#
);

const DECISION_7: &str = concat!(
    r#"{"version":7,"resource":"sata","at":1500000000,"elapsed":250000000,"law":"window","#,
    r#""signal":"protected_reads","statistic":"mean","cluster":null,"input":{"samples":{"count":16}},"measured":25000000,"#,
    r#""estimate":23100000,"set_point":12000000,"choice":null,"action":"regulate","beta":0.1,"compensation":null,"raw":{"window":0.125},"#,
    r#""bounded":{"window":0.25},"bound":"least","reserved":null,"rates":[],"gave_way":null,"point":null,"held":12,"throttled":12,"dry_run":false}"#
);

const RATE_7: &str = concat!(
    r#"{"name":"w1","contract":{"iops":40.0,"response_time":35000000,"expected":29000000},"#,
    r#""input":{"samples":{"count":50}},"measured":31000000,"reference":29000000,"held":true,"#,
    r#""action":"regulate","raw":52.0,"rate":52.0,"bound":null}"#
);

const POINT_7: &str = concat!(
    r#"{"operating_point":500.0,"applied":480.0,"position":{"in":{"band":2,"part":0.2}},"decided_by":"w1","#,
    r#""regulators":[{"name":"w1","goal":4000000,"input":{"samples":{"count":350}},"measured":4100000,"may_trigger":true,"#,
    r#""exempt":false,"learnt":"updated","wish":500.0,"bound":null,"model":{"s1":0.05,"r1":0.01,"r2":0.0}}],"#,
    r#""allotments":[{"name":"w1","entitled":350.0,"rate":350.0,"held":true}]}"#
);

const CHOICE_2: &str = concat!(
    r#"{"reason":"knee","ceiling":100000000,"fraction":0.95,"knee":26000000,"most":3180.0,"#,
    r#""most_at":41000000}"#
);

fn choice(reason: SetPointReason) -> SetPointChoice {
    SetPointChoice {
        reason,
        ceiling: Latency::from_millis(100),
        fraction: 0.95,
        knee: Some(Latency::from_millis(26)),
        most: Some(Iops::new(3_180.0)),
        most_at: Some(Latency::from_millis(41)),
    }
}

fn observation() -> Observation {
    let consumer = ConsumerObservation {
        reads: OperationTotals {
            count: 16,
            bytes: Bytes::from_kib(64),
            total_latency: Latency::from_millis(192),
            in_flight: 1,
            oldest_in_flight: Some(Latency::from_millis(4)),
        },
        reservation: Some(Iops::new(200.0)),
        mean_outstanding: MeanOutstanding::new(0.75),
        queued: 2,
        contract: Some(contract()),
        short_of_tokens: Latency::from_micros(500),
        scheduler_wait: Latency::from_millis(8),
        ..ConsumerObservation::idle(ConsumerName::new("database").unwrap(), Shares::DEFAULT, true)
    };
    let resource = ResourceName::new("sata").unwrap();
    let alone = Observation::new(resource, Instant::from_nanos(1_500_000_000), vec![consumer]);
    Observation { cluster: Some(cluster()), ..alone }
}

fn contract() -> Contract {
    Contract::new(Iops::new(40.0), Latency::from_millis(35), Latency::from_millis(29)).unwrap()
}

fn rate(name: &str, millis: u64) -> RateDecision {
    RateDecision {
        name: ConsumerName::new(name).unwrap(),
        contract: Some(contract()),
        input: SignalState::Samples { count: 50 },
        measured: Some(Latency::from_millis(millis)),
        reference: Latency::from_millis(29),
        held: true,
        action: LawAction::Regulate,
        raw: Iops::new(52.0),
        rate: Iops::new(52.0),
        bound: None,
    }
}

/// A decision of the integral law.
fn of_rates(rates: Vec<RateDecision>) -> Decision {
    let sum = LawOutput::Rate(Iops::new(rates.iter().map(|rate| rate.rate.per_second()).sum()));
    Decision {
        law: LawKind::Integral,
        signal: SignalRequests::Everything,
        beta: None,
        raw: sum,
        bounded: sum,
        bound: None,
        held: rates.iter().filter(|rate| rate.held).count() as u32,
        throttled: rates.len() as u32,
        rates,
        ..decision()
    }
}

fn point() -> PointDecision {
    let w1 = ConsumerName::new("w1").unwrap();
    PointDecision {
        operating_point: Iops::new(500.0),
        applied: Iops::new(480.0),
        position: Some(BandPosition::In { band: 2, part: 0.2 }),
        decided_by: Some(w1.clone()),
        host: None,
        doubted: false,
        regulators: vec![RegulatorDecision {
            name: w1.clone(),
            goal: Latency::from_millis(4),
            input: SignalState::Samples { count: 350 },
            measured: Some(Latency::from_micros(4_100)),
            may_trigger: true,
            exempt: false,
            learnt: Some(LearningOutcome::Updated),
            wish: Some(Iops::new(500.0)),
            bound: None,
            model: Some(LinearModel { s1: 0.05, r1: 0.01, r2: 0.0 }),
            queue: None,
        }],
        allotments: vec![PointAllotment {
            name: w1,
            entitled: Iops::new(350.0),
            rate: Iops::new(350.0),
            held: true,
        }],
        window: None,
    }
}

/// A decision of the self-tuning law.
fn of_a_point(point: PointDecision) -> Decision {
    let output = LawOutput::Rate(point.operating_point);
    Decision {
        law: LawKind::SelfTuning,
        signal: SignalRequests::Everything,
        beta: None,
        raw: output,
        bounded: output,
        bound: None,
        held: 1,
        throttled: 2,
        waiting: WaitingConsumers::default(),
        point: Some(point),
        ..decision()
    }
}

#[test]
fn a_decision_about_an_operating_point_says_who_decided() {
    let of = |change: fn(&mut PointDecision)| {
        let mut point = point();
        change(&mut point);
        of_a_point(point).to_string()
    };
    let cases = [
        (
            of(|_| ()),
            "sata: operating at 500 IO/s, band 2 at 20 %: w1 4.10ms against 4.00ms (1 of 2 throttled)",
        ),
        (
            of(|point| point.regulators[0].learnt = Some(LearningOutcome::Reset)),
            "sata: operating at 500 IO/s, band 2 at 20 %: w1 4.10ms against 4.00ms, by a new model (1 of 2 \
                throttled)",
        ),
        (
            of(|point| {
                let one = &mut point.regulators[0];
                (one.input, one.bound) =
                    (SignalState::Overload { oldest: Latency::from_millis(900) }, Some(OutputBound::Least));
            }),
            "sata: operating at 500 IO/s, band 2 at 20 %: w1 completes nothing, its oldest waits 900ms \
                against 4.00ms, \
             the least that is allowed (1 of 2 throttled)",
        ),
        (
            of(|point| (point.decided_by, point.position) = (None, None)),
            "sata: operating at 500 IO/s: no consumer asks for less (1 of 2 throttled)",
        ),
        (
            of(|point| {
                point.operating_point = tidegate_control::SelfTuningConfig::UNBOUNDED;
                point.position = Some(BandPosition::Beyond { bands: 3, by: Iops::new(1e9 - 900.0) });
                point.decided_by = None;
            }),
            "sata: operating without a limit, throttles nothing: no consumer asks for less (1 of 2 \
                throttled)",
        ),
        (
            of(|point| point.window = Some(Window::new(4.5))),
            "sata: operating at 500 IO/s, band 2 at 20 %, a window of 4.50: w1 4.10ms against 4.00ms (1 of 2 \
                throttled)",
        ),
        (
            Decision { dry_run: true, ..of_a_point(point()) }.to_string(),
            "sata (dry run): operating at 500 IO/s, band 2 at 20 %: w1 4.10ms against 4.00ms (1 of 2 would \
                be throttled)",
        ),
        (
            Decision { input: SignalState::NoTime, ..of_a_point(point()) }.to_string(),
            "sata: the clock did not advance: rates as before",
        ),
        (Decision { throttled: 0, ..of_a_point(point()) }.to_string(), "sata: no consumer to throttle"),
    ];
    for (said, sentence) in cases {
        assert_eq!(said, sentence);
    }
}

fn gave_way() -> GaveWay {
    GaveWay {
        to: ConsumerName::new("w2").unwrap(),
        returned: 1,
        sustained: Iops::new(72.0),
        given_back: Iops::new(18.0),
    }
}

fn cluster() -> ClusterSignal {
    ClusterSignal {
        hosts: 3,
        stale: 1,
        adjusted: 0,
        signal: SignalRequests::ProtectedReads,
        completed: 64,
        mean: Some(Latency::from_millis(25)),
        iops: Iops::new(256.0),
        reserved: Iops::new(350.0),
        outstanding: true,
        oldest: None,
        leader: HostName::new("a").unwrap(),
        leads: false,
        set_point: None,
        points: Vec::new(),
        load: None,
    }
}

fn reserved(missed: Option<ReservationShortage>) -> ReservationDecision {
    ReservationDecision {
        rate: Iops::new(200.0),
        everywhere: Iops::new(350.0),
        latency: Latency::from_millis(20),
        window: Window::new(4.2),
        missed,
    }
}

fn decision() -> Decision {
    Decision {
        version: Decision::VERSION,
        resource: ResourceName::new("sata").unwrap(),
        at: Instant::from_nanos(1_500_000_000),
        elapsed: Latency::from_millis(250),
        law: LawKind::Window,
        signal: SignalRequests::ProtectedReads,
        statistic: SignalStatistic::Mean,
        cluster: None,
        input: SignalState::Samples { count: 16 },
        measured: Some(Latency::from_millis(25)),
        estimate: Some(Latency::from_micros(23_100)),
        set_point: Latency::from_millis(12),
        choice: None,
        action: LawAction::Regulate,
        beta: Some(0.1),
        compensation: None,
        raw: LawOutput::Window(Window::new(0.125)),
        bounded: LawOutput::Window(Window::new(0.25)),
        bound: Some(OutputBound::Least),
        delay: None,
        reserved: None,
        rates: Vec::new(),
        gave_way: None,
        point: None,
        auto: None,
        held: 12,
        throttled: 12,
        waiting: WaitingConsumers::default(),
        dry_run: false,
        released: false,
    }
}

#[test]
fn version_5_of_an_observation() {
    assert_eq!(serde_json::to_string(&observation()).unwrap(), OBSERVATION_5);
    assert_eq!(serde_json::from_str::<Observation>(OBSERVATION_5).unwrap(), observation());
}

#[test]
fn version_7_of_a_decision() {
    assert_eq!(serde_json::to_string(&decision()).unwrap(), DECISION_7);
    assert_eq!(serde_json::from_str::<Decision>(DECISION_7).unwrap(), decision());
    let spelled = [
        (serde_json::to_string(&LawOutput::Delay(Latency::from_millis(8))).unwrap(), r#"{"delay":8000000}"#),
        (
            serde_json::to_string(&SignalState::Overload { oldest: Latency::from_millis(900) }).unwrap(),
            r#"{"overload":{"oldest":900000000}}"#,
        ),
        (
            serde_json::to_string(&[SignalState::Unknown, SignalState::Idle, SignalState::NoTime]).unwrap(),
            r#"["unknown","idle","no_time"]"#,
        ),
        (serde_json::to_string(&[LawAction::Hold, LawAction::Relax]).unwrap(), r#"["hold","relax"]"#),
        (
            serde_json::to_string(&[OutputBound::Greatest, OutputBound::FloorRate, OutputBound::Reservation])
                .unwrap(),
            r#"["greatest","floor_rate","reservation"]"#,
        ),
        (
            serde_json::to_string(&reserved(Some(ReservationShortage::Window))).unwrap(),
            r#"{"rate":200.0,"everywhere":350.0,"latency":20000000,"window":4.2,"missed":"window"}"#,
        ),
        (serde_json::to_string(&ReservationShortage::Storage).unwrap(), r#""storage""#),
        (serde_json::to_string(&SignalRequests::Everything).unwrap(), r#""everything""#),
        (
            serde_json::to_string(&[
                LawKind::Pid,
                LawKind::Integral,
                LawKind::SelfTuning,
                LawKind::QueueingModel,
            ])
            .unwrap(),
            r#"["pid","integral","self_tuning","queueing_model"]"#,
        ),
        (serde_json::to_string(&point()).unwrap(), POINT_7),
        (serde_json::to_string(&LawOutput::Rate(Iops::new(72.0))).unwrap(), r#"{"rate":72.0}"#),
        (
            serde_json::to_string(&[OutputBound::Demand, OutputBound::Return]).unwrap(),
            r#"["demand","return"]"#,
        ),
        (serde_json::to_string(&rate("w1", 31)).unwrap(), RATE_7),
        (
            serde_json::to_string(&gave_way()).unwrap(),
            r#"{"to":"w2","returned":1,"sustained":72.0,"given_back":18.0}"#,
        ),
        (serde_json::to_string(&choice(SetPointReason::Knee)).unwrap(), CHOICE_2),
        (
            serde_json::to_string(&[
                SetPointReason::Unknown,
                SetPointReason::Promise,
                SetPointReason::Ceiling,
                SetPointReason::Floor,
                SetPointReason::Exploring(StepDirection::Down),
                SetPointReason::Following { host: HostName::new("a").unwrap() },
                SetPointReason::NoChoice { host: HostName::new("a").unwrap() },
                SetPointReason::Kept,
            ])
            .unwrap(),
            r#"["unknown","promise","ceiling","floor",{"exploring":"down"},{"following":{"host":"a"}},{"no_choice":{"host":"a"}},"kept"]"#,
        ),
    ];
    for (written, pinned) in spelled {
        assert_eq!(written, pinned);
    }
}

#[test]
fn another_version_or_an_unknown_field_is_refused() {
    let error = |text: &str| serde_json::from_str::<Observation>(text).unwrap_err().to_string();
    let newer = OBSERVATION_5.replacen("\"version\":5", "\"version\":6", 1);
    assert!(error(&newer).contains("version 6 is not known here"), "{}", error(&newer));
    let more = OBSERVATION_5.replacen("\"queued\"", "\"mood\":1,\"queued\"", 1);
    assert!(error(&more).contains("mood"), "{}", error(&more));
    let newer = DECISION_7.replacen("\"version\":7", "\"version\":8", 1);
    assert!(serde_json::from_str::<Decision>(&newer).is_err());
}

#[test]
fn a_decision_reads_as_a_sentence() {
    let window = LawOutput::Window(Window::new(2.3));
    let delay = LawOutput::Delay(Latency::from_millis(180));
    let cases = [
        (
            decision(),
            "sata: protected reads 23.1ms against 12.0ms: the others throttled to a window of 0.25 \
             (12 of 12 throttled), the least that is allowed",
        ),
        (
            Decision { bounded: window, bound: None, dry_run: true, held: 7, ..decision() },
            "sata (dry run): protected reads 23.1ms against 12.0ms: the others would be throttled to a \
                window of \
             2.30 (7 of 12 throttled)",
        ),
        (
            Decision { delay: Some(Latency::from_millis(43)), held: 7, ..decision() },
            "sata: protected reads 23.1ms against 12.0ms: the others throttled by up to 43.0ms per request \
             (7 of 12 throttled)",
        ),
        (
            Decision { bounded: delay, bound: Some(OutputBound::FloorRate), ..decision() },
            "sata: protected reads 23.1ms against 12.0ms: the others throttled by up to 180ms per request \
             (12 of 12 throttled), down to their floor rate",
        ),
        (
            Decision {
                input: SignalState::Overload { oldest: Latency::from_millis(1_200) },
                bounded: delay,
                bound: None,
                ..decision()
            },
            "sata: no protected read completes, the oldest waits 1.20s against 12.0ms: the others throttled \
                by up \
                to \
             180ms per request (12 of 12 throttled)",
        ),
        (
            Decision {
                bounded: LawOutput::Window(Window::new(4.2)),
                bound: Some(OutputBound::Reservation),
                reserved: Some(reserved(None)),
                ..decision()
            },
            "sata: protected reads 23.1ms against 12.0ms: the others throttled to a window of 4.20 (12 of 12 \
                throttled), the least \
             that keeps reservations (200 IO/s at 20.0ms)",
        ),
        (
            Decision {
                bounded: window,
                bound: Some(OutputBound::Greatest),
                reserved: Some(reserved(Some(ReservationShortage::Window))),
                ..decision()
            },
            "sata: protected reads 23.1ms against 12.0ms: the others throttled to a window of 2.30 (12 of 12 \
                throttled); \
             reservations are missed: 200 IO/s at 20.0ms take a window of 4.20, more than is allowed",
        ),
        (
            Decision {
                bounded: window,
                bound: None,
                reserved: Some(reserved(Some(ReservationShortage::Storage))),
                ..decision()
            },
            "sata: protected reads 23.1ms against 12.0ms: the others throttled to a window of 2.30 (12 of 12 \
                throttled); \
             reservations are missed: the storage completes less than 350 IO/s for all hosts",
        ),
        (
            Decision {
                input: SignalState::Unknown,
                action: LawAction::Hold,
                bounded: window,
                bound: None,
                ..decision()
            },
            "sata: no protected read completed yet: the others still throttled to a window of 2.30 (12 of 12 \
                throttled)",
        ),
        (
            Decision {
                input: SignalState::Idle,
                action: LawAction::Relax,
                bounded: window,
                bound: None,
                ..decision()
            },
            "sata: no protected read to judge by: the others released by degrees, throttled to a window of \
                2.30 \
             (12 of 12 throttled)",
        ),
        (
            Decision {
                signal: SignalRequests::Everything,
                cluster: Some(ClusterSignal { adjusted: 1, ..cluster() }),
                bound: None,
                bounded: window,
                ..decision()
            },
            "sata: response time (of 3 hosts, 1 silent, 1 beyond belief) 23.1ms against 12.0ms: all \
                throttled to \
                a window \
             of 2.30 (12 of 12 throttled)",
        ),
        (
            Decision {
                signal: SignalRequests::Everything,
                cluster: Some(cluster()),
                compensation: Some(1.25),
                bound: None,
                bounded: window,
                ..decision()
            },
            "sata: response time (of 3 hosts, 1 silent) 23.1ms against 12.0ms: all throttled to a window of \
                2.30 \
             (12 of 12 throttled), 1.25 times its share of the queue, for its share of requests",
        ),
        (
            Decision {
                cluster: Some(ClusterSignal { hosts: 1, stale: 0, ..cluster() }),
                held: 0,
                ..decision()
            },
            "sata: protected reads (of this host alone) 23.1ms against 12.0ms: nothing throttled",
        ),
        (
            Decision { signal: SignalRequests::Everything, held: 0, ..decision() },
            "sata: response time 23.1ms against 12.0ms: nothing throttled",
        ),
        (
            Decision {
                signal: SignalRequests::Everything,
                choice: Some(choice(SetPointReason::Knee)),
                held: 0,
                ..decision()
            },
            "sata: response time 23.1ms against 12.0ms (the knee: 95 % of the most seen (3180 IO/s at \
                41.0ms) is \
             reached at 26.0ms): nothing throttled",
        ),
        (
            Decision { input: SignalState::NoTime, throttled: 0, held: 0, ..decision() },
            "sata: the clock did not advance: no consumer to throttle",
        ),
    ];
    for (decision, sentence) in cases {
        assert_eq!(decision.to_string(), sentence);
    }
}

#[test]
fn a_decision_about_rates_names_the_most_affected() {
    let idle = RateDecision {
        contract: None,
        input: SignalState::Idle,
        measured: None,
        held: false,
        action: LawAction::Relax,
        rate: Iops::new(2.0),
        bound: Some(OutputBound::Least),
        ..rate("w3", 0)
    };
    let promised = RateDecision { rate: Iops::new(40.0), bound: Some(OutputBound::Least), ..rate("w2", 40) };
    let late = RateDecision {
        input: SignalState::Overload { oldest: Latency::from_millis(90) },
        measured: None,
        ..rate("w4", 0)
    };
    let cases = [
        (
            of_rates(vec![rate("w1", 31), promised.clone(), idle.clone()]),
            "sata: 94 IO/s in all (2 of 3 throttled): w2 40.0ms against 29.0ms: 40 IO/s, as promised; w1 \
                31.0ms \
                against \
             29.0ms: 52 IO/s; w3 idle: 2.0 IO/s, the least that is allowed",
        ),
        (
            Decision { dry_run: true, gave_way: Some(gave_way()), ..of_rates(vec![rate("w1", 20)]) },
            "sata (dry run): 52 IO/s in all (1 of 1 would be throttled): w1 20.0ms against 29.0ms: 52 IO/s; \
                w2 is \
                back: \
             18 IO/s of surplus given back, for 72 IO/s that the storage sustains",
        ),
        (
            of_rates((0..300).map(|at| rate(&format!("c{at}"), 20)).chain([late, promised]).collect()),
            "sata: 15.7 kIO/s in all (302 of 302 throttled): w4 completes nothing, its oldest waits 90.0ms \
                against 29.0ms: \
             52 IO/s; w2 40.0ms against 29.0ms: 40 IO/s, as promised; c0 20.0ms against 29.0ms: 52 IO/s; and \
             299 more",
        ),
        (of_rates(Vec::new()), "sata: no consumer to throttle"),
        (
            Decision { input: SignalState::NoTime, ..of_rates(vec![rate("w1", 31)]) },
            "sata: the clock did not advance: rates as before",
        ),
    ];
    for (decision, sentence) in cases {
        assert_eq!(decision.to_string(), sentence);
    }
}

#[test]
fn a_choice_reads_as_a_clause() {
    let host = HostName::new("a").unwrap();
    let unknown = SetPointChoice { knee: None, ..choice(SetPointReason::Exploring(StepDirection::Up)) };
    let cases = [
        (choice(SetPointReason::Unknown), "the ceiling, because the knee is not known yet"),
        (choice(SetPointReason::Promise), "the ceiling, because a promise is not chosen"),
        (choice(SetPointReason::Following { host: host.clone() }), "chosen by a"),
        (choice(SetPointReason::NoChoice { host }), "the ceiling, because a chooses none"),
        (choice(SetPointReason::Kept), "as the host that led before chose"),
        (
            choice(SetPointReason::Ceiling),
            "the ceiling: 95 % of the most seen (3180 IO/s at 41.0ms) is reached at 26.0ms",
        ),
        (
            choice(SetPointReason::Exploring(StepDirection::Down)),
            "to see whether less will do: 95 % of the most seen (3180 IO/s at 41.0ms) is reached at 26.0ms \
                or sooner",
        ),
        (unknown, "to see whether more gives more"),
    ];
    for (choice, clause) in cases {
        assert_eq!(choice.to_string(), clause);
    }
}
