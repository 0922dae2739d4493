//! The exposition against its specification (`docs/reference/metrics.md`) and the rules of the text format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::metrics::{AgentExposition, AgentMetric, BridgeStatus, ResourceStatus};
use tidegate_agent::{NfsdStatus, ReportUse, Reporter, SourceReading};
use tidegate_cluster::{CarrierKind, ClusterName, ClusterStatus, PeerStatus, RejectionCounts};
use tidegate_control::{
    BandPosition, Contract, ControlLoop, Decision, LawConfig, LawKind, LoopConfig, Observation,
    OperationTotals, PointDecision, ReservationDecision, ReservationShortage, SetPointChoice, SetPointReason,
    SignalState, WaitReason, WindowConfig, combine,
};
use tidegate_gateway::{
    ConsumerSnapshot, ContractSnapshot, FineHistogram, GatewaySnapshot, IoErrors, OpSnapshot, PoolSnapshot,
    ReservedSnapshot, TenantSnapshot, TimeHistogram, UpstreamSnapshot,
};
use tidegate_host::sense::latency::ReadsAndWrites;
use tidegate_host::sense::nfsd_threads::ThreadWaits;
use tidegate_host::sense::session::TargetKind;
use tidegate_host::throttle::WriteLimit;
use tidegate_journal::{ConsumerReading, LimitReading, ThrottleReading};
use tidegate_serve::admission::ContractsStatus;
use tidegate_serve::metrics::{MetricsExposition, ServeMetric};
use tidegate_service::log::LogCounts;
use tidegate_service::metrics::{InputCounts, MetricKind, MetricSpec, ReloadCounts};
use tidegate_service::status::{
    ByLaw, ConsumerStatus, JudgedBy, MOST_CONSUMERS, PromiseStatus, SignalOrigin,
};
use tidegate_units::{
    ByteRate, Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares, Window,
};

const DOCUMENT: &str = include_str!("../../../../docs/reference/metrics.md");

fn operation(millis: &[u64]) -> OpSnapshot {
    let mut times = TimeHistogram::default();
    for millis in millis {
        times.record(Latency::from_millis(*millis));
    }
    OpSnapshot {
        count: millis.len() as u64,
        bytes: 4096 * millis.len() as u64,
        backend: times.clone(),
        total: times,
    }
}

/// One of its two requests was late.
fn tenant() -> TenantSnapshot {
    let contract =
        Contract::new(Iops::new(40.0), Latency::from_millis(35), Latency::from_millis(29)).unwrap();
    let mut released = FineHistogram::default();
    released.record(Latency::from_millis(20));
    released.record(Latency::from_millis(40));
    let active = Duration::from_millis(500);
    TenantSnapshot {
        rate: Some(Iops::new(72.5)),
        released,
        contract: Some(ContractSnapshot { contract: Some(contract), requests: 2, late: 1, active }),
    }
}

fn consumer(name: &str, protected: bool, queued: usize) -> ConsumerSnapshot {
    ConsumerSnapshot {
        upstream: Some(UpstreamSnapshot {
            connections: 3,
            wanted: 4,
            reconnects: 5,
            replayed: 6,
            failed: 7,
            unflushed_losses: 1,
        }),
        reserved: Some(ReservedSnapshot {
            rate: Iops::new(200.0),
            backlogged: Duration::from_secs(8),
            served_ios: 1_500.5,
            missed: Duration::from_secs(2),
        }),
        tenant: Some(tenant()),
        name: ConsumerName::new(name).unwrap(),
        shares: Shares::DEFAULT,
        protected,
        released: false,
        removed: false,
        sessions: 1,
        disks: 1,
        queued,
        waits_for: (queued > 0 && !protected).then_some(WaitReason::Law),
        in_flight: 1,
        delay: Latency::ZERO,
        window: None,
        reads: operation(&[3, 5, 40_000]),
        writes: operation(&[]),
        flushes: operation(&[7, 9]),
        trims: 0,
        block_statuses: 0,
        caches: 0,
        hung: false,
        replaced: false,
        errors: IoErrors::default(),
        poisoned: false,
    }
}

/// What the self-tuning law says.
fn point(position: Option<BandPosition>) -> PointDecision {
    PointDecision {
        operating_point: Iops::new(500.0),
        applied: Iops::new(480.0),
        position,
        decided_by: None,
        host: None,
        doubted: false,
        regulators: Vec::new(),
        allotments: Vec::new(),
        window: None,
    }
}

#[test]
fn a_band_is_its_number_and_the_part_of_it() {
    let said = |position: Option<Option<BandPosition>>| {
        let mut exposition = exposition(false);
        let decision = exposition.gateway.pools[0].decision.as_mut().unwrap();
        decision.point = position.map(point);
        exposition.to_text()
    };
    let in_force = said(Some(Some(BandPosition::In { band: 2, part: 0.2 })));
    assert!(in_force.contains("tidegate_pool_band{pool=\"vg0\"} 2.2"), "{in_force}");
    assert!(in_force.contains("tidegate_pool_law_info{pool=\"vg0\",law=\"window\"} 1"), "{in_force}");
    assert!(in_force.contains("tidegate_pool_operating_point_requests_per_second{pool=\"vg0\"} 500.0"));
    let beyond = said(Some(Some(BandPosition::Beyond { bands: 3, by: Iops::new(70.0) })));
    assert!(beyond.contains("tidegate_pool_band{pool=\"vg0\"} 3.0"), "{beyond}");
    assert!(!said(Some(None)).contains("tidegate_pool_band{"), "without bands");
    assert!(!said(None).contains("tidegate_pool_operating_point_requests_per_second{"), "another law");
}

/// A decision that holds one of two.
fn decision(dry_run: bool) -> Decision {
    let resource = ResourceName::new("vg0").unwrap();
    let law = LawConfig::Window(WindowConfig::default());
    let config = LoopConfig { dry_run, ..LoopConfig::new(resource.clone(), Latency::from_millis(15), law) };
    let mut control = ControlLoop::new(config).unwrap();
    let mut observation = Observation::new(resource, Instant::ZERO, Vec::new());
    let report = control.report(&observation);
    let host = HostName::new("host-1").unwrap();
    observation.cluster = Some(combine(&host, &report, &[], control.config().interval));
    let (_, mut decision) = control.step(Instant::ZERO, &observation);
    (decision.beta, decision.compensation) = (Some(0.1), Some(1.2));
    decision.choice = Some(SetPointChoice {
        reason: SetPointReason::Knee,
        ceiling: Latency::from_millis(15),
        fraction: 0.95,
        knee: Some(Latency::from_millis(9)),
        most: Some(Iops::new(3_180.0)),
        most_at: Some(Latency::from_millis(41)),
    });
    decision.reserved = Some(ReservationDecision {
        rate: Iops::new(200.0),
        everywhere: Iops::new(300.0),
        latency: Latency::from_millis(20),
        window: Window::new(4.2),
        missed: Some(ReservationShortage::Storage),
    });
    decision.point = Some(point(Some(BandPosition::In { band: 2, part: 0.2 })));
    (decision.estimate, decision.held, decision.throttled) = (Some(Latency::from_millis(20)), 1, 2);
    decision
}

/// A name with everything that must be escaped, and a pool that a law holds.
fn exposition(dry_run: bool) -> MetricsExposition {
    let name = ResourceName::new("vg0").unwrap();
    let mut counts = InputCounts::default();
    counts.add(SignalState::Idle);
    MetricsExposition {
        gateway: GatewaySnapshot {
            pools: vec![PoolSnapshot {
                name: name.clone(),
                at: Instant::ZERO,
                consumers: vec![
                    consumer("database", true, 5),
                    consumer("back\"up\\1", false, 5),
                    consumer("quiet", false, 0),
                ],
                awaited: Vec::new(),
                sessions: 3,
                bytes_in_use: Bytes::from_kib(4),
                bytes_in_use_peak: Bytes::from_kib(8),
                in_flight: 3,
                window: Window::new(2.5),
                decision: Some(decision(dry_run)),
                recent_decisions: Vec::new(),
                decisions: 1,
            }],
            silent: vec![ResourceName::new("vg1").unwrap()],
            handshakes: 0,
            handshakes_ended: 7,
            guest_memory: 1 << 30,
            refused: vec![(tidegate_gateway::RefusalReason::ExportSessions, 3)],
        },
        decisions: BTreeMap::from([(name, counts)]),
        reloads: ReloadCounts { applied: 1, refused: 2 },
        http_refused: Some(Arc::default()),
        log: LogCounts { dropped: 3, repeated: 4 },
        cluster: Some(cluster()),
        contracts: BTreeMap::from([(
            ResourceName::new("vg0").unwrap(),
            ContractsStatus { admitted: Some(false), overdue: true, begun: 2, refused: 1 },
        )]),
        promises: BTreeMap::from([(
            (ResourceName::new("vg0").unwrap(), ConsumerName::new("database").unwrap()),
            PromiseStatus {
                response_time_seconds: 0.015,
                judged_by: JudgedBy::Seconds,
                minute: Some(0.95),
                hour: Some(1.0),
                day: None,
            },
        )]),
    }
}

/// What the self-tuning law says of one who may be held.
fn divided() -> PointDecision {
    let name = ConsumerName::new("batch.slice").unwrap();
    let (entitled, rate) = (Iops::new(350.0), Iops::new(350.0));
    let allotments = vec![tidegate_control::PointAllotment { name, entitled, rate, held: true }];
    let window = Some(Window::new(4.5));
    PointDecision { allotments, window, ..point(Some(BandPosition::In { band: 2, part: 0.2 })) }
}

/// A resource that holds one of two, one of them with a name that must be escaped.
fn agents_exposition() -> AgentExposition {
    let name = ResourceName::new("vg0").unwrap();
    let mut counts = InputCounts::default();
    counts.add(SignalState::Idle);
    let reads = OperationTotals {
        count: 4,
        bytes: Bytes::from_kib(16),
        total_latency: Latency::from_millis(50),
        ..OperationTotals::default()
    };
    let promise = PromiseStatus {
        response_time_seconds: 0.015,
        judged_by: JudgedBy::Seconds,
        minute: Some(0.75),
        hour: None,
        day: Some(1.0),
    };
    AgentExposition {
        reloads: ReloadCounts { applied: 1, refused: 2 },
        http_refused: Some(Arc::default()),
        log: LogCounts { dropped: 3, repeated: 4 },
        sees: true,
        acts: Some(true),
        targets: BTreeMap::from([(TargetKind::Iscsi, (true, 3)), (TargetKind::Nfs, (false, 0))]),
        throttle_errors: 5,
        guardian_starts: 1,
        bridge: Some(BridgeStatus { doubtful: 7, ..BridgeStatus::default() }),
        nfsd: Some(NfsdStatus { threads: 8, waits: 9, recent: ThreadWaits { requests: 200, waited: 150 } }),
        resources: vec![ResourceStatus {
            name: name.clone(),
            present: true,
            dry_run: false,
            delay: Latency::from_micros(8_500),
            divided: BTreeMap::new(),
            limits: [("dm-1".to_owned(), WriteLimit::new(Iops::new(300.0), ByteRate::new(19_660_800.0)))]
                .into(),
            decision: Some(Decision {
                law: LawKind::QueueingModel,
                point: Some(divided()),
                ..decision(false)
            }),
            reads,
            writes: OperationTotals::default(),
            protected: BTreeMap::new(),
            members: ["iqn.2026-01.lab:b\"1", "iqn.2026-01.lab:b2"]
                .map(|name| (ConsumerName::new(name).unwrap(), Default::default()))
                .into(),
            reporters: vec![Reporter {
                host: HostName::new("iqn.2026-01.lab:db1").unwrap(),
                consumer: None,
                age: Latency::from_millis(125),
                mean: None,
                reading: ReportUse::NoConsumer,
            }],
            signal_origin: SignalOrigin::Source,
            uncounted: Vec::new(),
            names: BTreeMap::new(),
            source: Some(SourceReading {
                place: "an array".to_owned(),
                latest: Some((Latency::from_millis(1_500), Some(Latency::from_millis(7)))),
                counts: true,
                trouble: None,
            }),
        }],
        decisions: BTreeMap::from([(name.clone(), counts)]),
        promises: BTreeMap::from([(name.clone(), promise)]),
        consumers: BTreeMap::from([(name.clone(), agents_consumers())]),
        in_force: BTreeMap::from([(name.clone(), agents_reading())]),
        request_times: BTreeMap::from([(name, ReadsAndWrites::default())]),
    }
}

/// One consumer that is throttled and judged by itself, and more than are shown.
fn agents_consumers() -> Vec<ConsumerStatus> {
    let one = |number: usize| {
        let name = ConsumerName::new(&format!("writer-{number}")).unwrap();
        let measured_seconds = (number == 0).then_some(0.004);
        ConsumerStatus { held: Some(number == 0), measured_seconds, ..ByLaw::default().status(&name, false) }
    };
    (0..MOST_CONSUMERS + 3).map(one).collect()
}

fn agents_reading() -> ThrottleReading {
    let unlimited = ConsumerReading::unlimited(ConsumerName::new("writer-0").unwrap());
    let writes = LimitReading { rate: Some(Iops::new(120.0)), bytes: Some(ByteRate::new(4e6)) };
    let delayed = ConsumerReading::unlimited(ConsumerName::new("writer-1").unwrap());
    let delay = Some(Latency::from_millis(8));
    let consumers = vec![ConsumerReading { writes, ..unlimited }, ConsumerReading { delay, ..delayed }];
    ThrottleReading { window: None, consumers }
}

#[test]
fn an_agent_shows_each_consumer_with_what_throttles_it_and_no_more_than_the_bound() {
    let text = agents_exposition().to_text();
    for line in [
        "tidegate_held{resource=\"vg0\",consumer=\"writer-0\"} 1.0",
        "tidegate_held{resource=\"vg0\",consumer=\"writer-1\"} 0.0",
        "tidegate_resource_limit_requests_per_second{resource=\"vg0\",consumer=\"writer-0\",op=\"write\"} 120.0",
        "tidegate_resource_limit_bytes_per_second{resource=\"vg0\",consumer=\"writer-0\",op=\"write\"} 4000000.0",
        "tidegate_resource_packet_delay_seconds{resource=\"vg0\",consumer=\"writer-1\"} 0.008",
        "tidegate_resource_consumer_latency_seconds{resource=\"vg0\",consumer=\"writer-0\"} 0.004",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
    let series = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
    assert_eq!(series("tidegate_held"), MOST_CONSUMERS);
    assert_eq!(series("tidegate_resource_limit_requests_per_second"), 1, "no series without a limit");
    assert_eq!(series("tidegate_resource_packet_delay_seconds"), 1);
}

#[test]
fn the_agents_exposition_says_what_is_so() {
    let text = agents_exposition().to_text();
    for line in [
        "tidegate_resource_law_info{resource=\"vg0\",law=\"queueing-model\"} 1",
        "tidegate_resource_window_requests{resource=\"vg0\"} 4.5",
        "tidegate_resource_delay_seconds{resource=\"vg0\"} 0.0085",
        "tidegate_resource_promised_seconds{resource=\"vg0\"} 0.015",
        "tidegate_resource_promise_kept_ratios{resource=\"vg0\",over=\"minute\"} 0.75",
        "tidegate_resource_write_limit_requests_per_second{resource=\"vg0\",device=\"dm-1\"} 300.0",
        "tidegate_resource_write_limit_bytes_per_second{resource=\"vg0\",device=\"dm-1\"} 19660800.0",
        "tidegate_resource_throttled_consumers{resource=\"vg0\"} 2.0",
        "tidegate_resource_member{resource=\"vg0\",consumer=\"iqn.2026-01.lab:b\\\"1\"} 1.0",
        "tidegate_resource_completed_requests_total{resource=\"vg0\",op=\"read\"} 4",
        "tidegate_resource_response_time_seconds_total{resource=\"vg0\",op=\"read\"} 0.05",
        "tidegate_agent_target_up{target=\"nfs\"} 0.0",
        "tidegate_agent_sessions{target=\"iscsi\"} 3.0",
        "tidegate_agent_bridge_doubtful_connections 7.0",
        "tidegate_agent_nfsd_thread_waits_total 9",
        "tidegate_agent_nfsd_short_of_threads 1.0",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
}

/// One peer that lives, one that is silent.
fn cluster() -> ClusterStatus {
    let peer = |name: &str, stale| PeerStatus {
        host: HostName::new(name).unwrap(),
        age: Latency::from_millis(7),
        report_age: Some(Latency::from_millis(7)),
        stale,
        resources: Vec::new(),
    };
    ClusterStatus {
        cluster: ClusterName::new("san-a").unwrap(),
        host: HostName::new("host-1").unwrap(),
        carrier: CarrierKind::Udp,
        up: true,
        reason: None,
        slot: None,
        peers: vec![peer("host-2", false), peer("host-3", true)],
        duplicates: Vec::new(),
        sent: 9,
        taken: 8,
        rejected: RejectionCounts { bad_key: 5, ..RejectionCounts::default() },
        unpublished: 0,
    }
}

struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    value: f64,
}

/// Reads one line of the text format, as strictly as `promtool check metrics` does.
fn sample(line: &str) -> Sample<'_> {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, mut rest) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').unwrap()),
        None => (series, ""),
    };
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").unwrap();
        let mut escaped = false;
        let end = after
            .find(|c| {
                let closes = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                closes
            })
            .unwrap();
        labels.push((label, &after[..end]));
        rest = after[end + 1..].strip_prefix(',').unwrap_or(&after[end + 1..]);
    }
    Sample { name, labels, value: value.parse().unwrap() }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn gateways() -> Vec<MetricSpec> {
    ServeMetric::ALL.map(ServeMetric::spec).into()
}

fn agents() -> Vec<MetricSpec> {
    AgentMetric::ALL.map(AgentMetric::spec).into()
}

#[test]
fn the_document_and_the_code_agree() {
    let (gateway, agent) = DOCUMENT.split_once("\n## The agent\n").unwrap();
    agree(gateway, &gateways());
    agree(agent, &agents());
}

fn agree(document: &str, specs: &[MetricSpec]) {
    let mut documented = BTreeMap::new();
    for row in document.lines().filter(|line| line.starts_with("| `tidegate_")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, labels, meaning] = cells[..] else { panic!("five columns: {row}") };
        assert!(!meaning.is_empty(), "{row}");
        documented.insert(name.trim_matches('`').to_owned(), (kind, unit, labels));
    }
    for spec in specs {
        let name = spec.name();
        let (kind, unit, labels) =
            documented.remove(&name).unwrap_or_else(|| panic!("{name} is not documented"));
        assert_eq!((kind, labels), (spec.kind.name(), spec.labels.join(", ").as_str()), "{name}");
        assert!(unit.is_empty() || name.contains(unit), "{name} does not name its unit, {unit}");
        let has_unit = ["seconds", "bytes", "requests"]
            .iter()
            .find(|unit| name.trim_end_matches("_total").ends_with(&format!("_{unit}")));
        assert!(
            has_unit.is_none_or(|has| *has == unit || name == "tidegate_requests_total"),
            "{name}: {unit}"
        );
    }
    assert!(documented.is_empty(), "documented, not in the code: {documented:?}");
}

#[test]
fn the_expositions_keep_the_rules_of_the_format() {
    keeps_the_rules(&exposition(false).to_text(), &gateways());
    keeps_the_rules(&agents_exposition().to_text(), &agents());
}

fn keeps_the_rules(text: &str, specs: &[MetricSpec]) {
    assert!(text.ends_with("# EOF\n"));
    let mut seen = BTreeSet::new();
    let mut families = BTreeSet::new();
    let mut family = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let (keyword, rest) = comment.split_once(' ').unwrap();
            let name = rest.split(' ').next().unwrap();
            assert!(["HELP", "TYPE", "UNIT"].contains(&keyword), "{line}");
            if keyword == "HELP" {
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                family = name.to_owned();
            }
            assert_eq!(name, family, "{line}");
            continue;
        }
        let sample = sample(line);
        assert!(is_name(sample.name) && sample.labels.iter().all(|(label, _)| is_name(label)), "{line}");
        let spec = specs
            .iter()
            .find(|spec| {
                let name = spec.name();
                let suffix = sample.name.strip_prefix(&name);
                suffix == Some("")
                    || (spec.kind == MetricKind::Histogram
                        && matches!(suffix, Some("_bucket" | "_sum" | "_count")))
            })
            .unwrap_or_else(|| panic!("unknown series: {line}"));
        let mut labels: Vec<_> = sample.labels.iter().map(|(label, _)| *label).collect();
        labels.retain(|label| *label != "le");
        let (mut labels, mut specified) = (labels, spec.labels.to_vec());
        labels.sort_unstable();
        specified.sort_unstable();
        assert_eq!(labels, specified, "{line}");
        assert!(sample.value.is_finite() && sample.value >= 0.0, "{line}");
        assert!(seen.insert(line.rsplit_once(' ').unwrap().0.to_owned()), "twice: {line}");
    }
    for spec in specs {
        let name = spec.name();
        assert!(seen.iter().any(|series| series.starts_with(&name)), "{name} has no sample");
    }
}

#[test]
fn histograms_are_cumulative_and_end_at_the_count() {
    let text = exposition(false).to_text();
    let of_database = |suffix: &str| -> Vec<f64> {
        let name = format!("tidegate_response_time_seconds{suffix}");
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(sample)
            .filter(|sample| {
                sample.name == name
                    && sample.labels.contains(&("consumer", "database"))
                    && sample.labels.contains(&("op", "read"))
            })
            .map(|sample| sample.value)
            .collect()
    };
    let buckets = of_database("_bucket");
    assert!(buckets.is_sorted(), "{buckets:?}");
    assert_eq!((buckets.last(), of_database("_count")[0]), (Some(&3.0), 3.0));
    let within_bounds = buckets[buckets.len() - 2];
    assert!((within_bounds - 2.0).abs() < 1e-9, "40 s are beyond the last bound");
    assert!((of_database("_sum")[0] - 40.008).abs() < 1e-9);
}

#[test]
fn held_is_whoever_waits_for_the_window_and_is_not_protected() {
    let held = |dry_run| -> Vec<(String, f64)> {
        let text = exposition(dry_run).to_text();
        let lines = text.lines().filter(|line| line.starts_with("tidegate_held{")).map(sample);
        lines
            .map(|sample| {
                let consumer = sample.labels.iter().find(|(label, _)| *label == "consumer").unwrap();
                (consumer.1.to_owned(), sample.value)
            })
            .collect()
    };
    let waiting = r#"back\"up\\1"#.to_owned();
    assert_eq!(
        held(false),
        [("database".to_owned(), 0.0), (waiting.clone(), 1.0), ("quiet".to_owned(), 0.0)]
    );
    assert_eq!(held(true), [("database".to_owned(), 0.0), (waiting, 0.0), ("quiet".to_owned(), 0.0)]);
}

#[test]
fn what_is_later_than_promised_is_exposed() {
    let text = exposition(false).to_text();
    for line in [
        "tidegate_rate_requests_per_second{pool=\"vg0\",consumer=\"quiet\"} 72.5",
        "tidegate_release_time_seconds_sum{pool=\"vg0\",consumer=\"quiet\"} 0.06",
        "tidegate_contract_requests_per_second{pool=\"vg0\",consumer=\"quiet\"} 40.0",
        "tidegate_contract_response_time_seconds{pool=\"vg0\",consumer=\"quiet\"} 0.035",
        "tidegate_contract_requests_total{pool=\"vg0\",consumer=\"quiet\"} 2",
        "tidegate_contract_late_requests_total{pool=\"vg0\",consumer=\"quiet\"} 1",
        "tidegate_contract_active_seconds_total{pool=\"vg0\",consumer=\"quiet\"} 0.5",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
}
