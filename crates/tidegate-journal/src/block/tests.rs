use proptest::prelude::*;
use tidegate_control::{
    ClusterLoad, ClusterSignal, ConsumerCommand, ConsumerObservation, Contract, MeanOutstanding,
    OperationTotals, PeerPoint, PointReport, SignalPercentile, SignalRequests, SignalStatistic,
};
use tidegate_units::{
    ByteRate, Bytes as Size, ConsumerName, HostName, Iops, Latency, ResourceName, Shares, Window,
};

use super::*;
use crate::record::{ConsumerReading, GapCause, LimitReading, ThrottleMechanism, ThrottleReading};
use crate::segment::FRAME;

/// Anything, with a preference for what is plausible and for the edges.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 0u64..100, 0u64..2_000_000_000, any::<u64>(), Just(u64::MAX)]
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(-0.0), 0.0..100.0, any::<f64>()]
}

fn maybe<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(of)
}

fn latency() -> impl Strategy<Value = Latency> {
    number().prop_map(Latency::from_nanos)
}

fn operations() -> impl Strategy<Value = OperationTotals> {
    let busy = (number(), number(), latency(), any::<u32>(), maybe(latency())).prop_map(
        |(count, bytes, total_latency, in_flight, oldest_in_flight)| OperationTotals {
            count,
            bytes: Size::new(bytes),
            total_latency,
            in_flight,
            oldest_in_flight,
        },
    );
    prop_oneof![Just(OperationTotals::default()), busy]
}

fn contract() -> impl Strategy<Value = Contract> {
    (0.1..1e4, 1..u64::MAX).prop_map(|(iops, nanos)| {
        let promised = Latency::from_nanos(nanos);
        Contract::new(Iops::new(iops), promised, promised).unwrap()
    })
}

prop_compose! {
    fn consumer()(
        name in 0u32..5,
        shares in 1u32..=1_000_000,
        reservation in maybe(real()),
        contract in maybe(contract()),
        goal in maybe(latency()),
        protected: bool,
        [reads, writes] in [operations(), operations()],
        outstanding in real(),
        queued: u32,
        [short_of_tokens, scheduler_wait] in [latency(), latency()],
        late in number(),
        [release_to_completion, oldest_released] in [maybe(latency()), maybe(latency())],
    ) -> ConsumerObservation {
        ConsumerObservation {
            name: ConsumerName::new(&format!("consumer-{name}")).unwrap(),
            shares: Shares::new(shares).unwrap(),
            reservation: reservation.map(Iops::new),
            contract,
            goal,
            protected,
            reads,
            writes,
            mean_outstanding: MeanOutstanding::new(outstanding),
            queued,
            short_of_tokens,
            late,
            scheduler_wait,
            release_to_completion,
            oldest_released,
        }
    }
}

prop_compose! {
    fn load()(
        rates in any::<[f64; 2]>(),
        means in any::<[f64; 2]>(),
        [waiting, worst, active_shares] in [0.0..1e9, 1.0..1e9, 0.0..1e9],
        late: bool,
        mean in maybe(latency()),
        total_window in maybe(real()),
    ) -> ClusterLoad {
        let [iops, writes] = rates.map(Iops::new);
        let [outstanding, writing] = means.map(MeanOutstanding::new);
        let total_window = total_window.map(Window::new);
        ClusterLoad {
            iops, writes, outstanding, writing, waiting, late, mean, worst, total_window, active_shares,
        }
    }
}

prop_compose! {
    fn cluster()(
        [hosts, stale, adjusted] in any::<[u32; 3]>(),
        signal in prop_oneof![
            Just(SignalRequests::ProtectedReads),
            Just(SignalRequests::Reads),
            Just(SignalRequests::Everything),
        ],
        completed in number(),
        [mean, oldest, set_point] in [maybe(latency()), maybe(latency()), maybe(latency())],
        [iops, reserved] in [real(), real()],
        [outstanding, leads] in any::<[bool; 2]>(),
        leader in 0u32..3,
        points in prop::collection::vec(real(), 0..3),
        load in maybe(load()),
    ) -> ClusterSignal {
        let host = |number: u32| HostName::new(&format!("host-{number}")).unwrap();
        let point = |done: f64| PointReport {
            done: Iops::new(done), outstanding: None, wish: None, has_say: true, enough: false, active: true,
            claims: Vec::new(), rest: None, content: None,
        };
        ClusterSignal {
            hosts, stale, adjusted, signal, completed, mean, iops: Iops::new(iops),
            reserved: Iops::new(reserved), outstanding, oldest, leader: host(leader), leads, set_point,
            points: points.into_iter().map(|done| PeerPoint { host: host(9), point: point(done) }).collect(),
            load,
        }
    }
}

fn percentile() -> impl Strategy<Value = SignalPercentile> {
    let stretch = prop::option::of(latency());
    (0..SignalStatistic::NAMED.len(), number(), latency(), stretch).prop_map(
        |(place, count, latency, stretch)| SignalPercentile {
            statistic: SignalStatistic::NAMED[place].1,
            count,
            latency,
            stretch,
        },
    )
}

prop_compose! {
    /// Commands and a reading, mostly of all eligible consumers.
    fn body()(
        consumers in prop::collection::vec(consumer(), 0..5),
        cluster in prop_oneof![3 => Just(None), 1 => cluster().prop_map(Some)],
        percentile in maybe(percentile()),
        limits in prop::collection::vec((maybe(latency()), maybe(real())), 5),
        [window, spacing] in [maybe(real()), maybe(real())],
        (is_regular, is_read, held, lag) in (any::<[bool; 2]>(), any::<bool>(), any::<u32>(), any::<i64>()),
    ) -> DecisionBody {
        let eligible = consumers.iter().filter(|consumer| !consumer.protected).zip(&limits);
        let command = |(consumer, (delay, rate)): (&ConsumerObservation, &(Option<Latency>, Option<f64>))| {
            ConsumerCommand { name: consumer.name.clone(), delay: *delay, rate: rate.map(Iops::new) }
        };
        let mut commands: Vec<_> = eligible.clone().map(command).collect();
        let reading = |(consumer, (delay, rate)): (&ConsumerObservation, &(Option<Latency>, Option<f64>))| {
            let name = consumer.name.clone();
            let bytes = rate.map(|rate| ByteRate::new(rate * 4096.0));
            let writes = LimitReading { rate: rate.map(Iops::new), bytes };
            ConsumerReading { delay: *delay, writes, ..ConsumerReading::unlimited(name) }
        };
        let mut readings: Vec<_> = eligible.map(reading).collect();
        if !is_regular[0] { commands.pop(); }
        if !is_regular[1] { readings.reverse(); }
        let window = window.map(Window::new);
        let name = ResourceName::new("r").unwrap();
        DecisionBody {
            observation: Observation {
                cluster, percentile, ..Observation::new(name, Instant::ZERO, consumers)
            },
            reading: is_read.then_some(ThrottleReading { window, consumers: readings }),
            commands: Commands { window, spacing: spacing.map(Latency::from_secs_f64), consumers: commands },
            held,
            lag,
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A decision of a resource, this long after the one before.
    Changed {
        resource: u32,
        after: u64,
        body: Arc<DecisionBody>,
    },
    Unchanged {
        resource: u32,
        times: u32,
        after: u64,
    },
    Opening {
        resource: u32,
        at: u64,
        state: Vec<u8>,
    },
    Event(u64),
    EndOfBlock,
}

fn step() -> impl Strategy<Value = Step> {
    let after = || prop_oneof![3 => Just(100_000_000), 1 => 90_000_000u64..110_000_000, 1 => number()];
    prop_oneof![
        6 => (0u32..3, after(), body()).prop_map(|(resource, after, body)| {
            Step::Changed { resource, after, body: Arc::new(body) }
        }),
        4 => (0u32..3, 1u32..20, after()).prop_map(|(resource, times, after)| {
            Step::Unchanged { resource, times, after }
        }),
        1 => (0u32..3, number(), prop::collection::vec(any::<u8>(), 0..50)).prop_map(
            |(resource, at, state)| Step::Opening { resource, at, state }),
        1 => number().prop_map(Step::Event),
        2 => Just(Step::EndOfBlock),
    ]
}

fn opening(at: u64, state: Vec<u8>) -> ResourceOpening {
    let (resource, at) = (ResourceName::new("r").unwrap(), Instant::from_nanos(at));
    ResourceOpening { resource, at, interval: 100_000_000, mechanism: ThrottleMechanism::CgroupLimit, state }
}

/// A text of everything in an entry, with every bit of its numbers.
fn text(entry: &EntryContent) -> String {
    let EntryContent::Decision(decision) = entry else { return format!("{entry:?}") };
    let bytes = rmp_serde::to_vec_named(&(
        decision.observation(),
        decision.commands(),
        decision.reading(),
        decision.held(),
        decision.now(),
    ));
    format!("{:?}", bytes.unwrap())
}

proptest! {
    #[test]
    fn entries_come_back_bit_for_bit(steps in prop::collection::vec(step(), 1..60)) {
        let clock = ClockAnchor { at: Instant::ZERO, wall: WallTime::MIN };
        let mut writer = BlockWriter::new().unwrap();
        let mut reader = BlockReader::new("b".to_owned(), clock).unwrap();
        let mut last: [Option<(u64, Option<Arc<DecisionBody>>)>; 3] = Default::default();
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        for step in steps.into_iter().chain([Step::EndOfBlock]) {
            match step {
                Step::Opening { resource, at, state } => {
                    let known = &mut last[resource as usize];
                    *known = Some((at, known.take().and_then(|(_, body)| body)));
                    let opening = opening(at, state.clone());
                    writer.opening(resource, &opening).unwrap();
                    let checkpoint =
                        CheckpointRecord {
                            resource: opening.resource,
                            build: "b".to_owned(),
                            mechanism: opening.mechanism,
                            state,
                        };
                    expected.push(text(&EntryContent::Checkpoint(checkpoint)));
                }
                Step::Changed { resource, after, body } => {
                    let known = &mut last[resource as usize];
                    let at = known.as_ref().map_or(0, |(at, _)| at.wrapping_add(after));
                    let at = Instant::from_nanos(at);
                    let is_known = writer.decision(resource, at, Some(&body)).unwrap();
                    prop_assert_eq!(is_known, known.is_some());
                    if is_known {
                        *known = Some((at.as_nanos(), Some(Arc::clone(&body))));
                        expected.push(text(&EntryContent::Decision(DecisionRecord { at, body })));
                    }
                }
                Step::Unchanged { resource, times, after } => {
                    let Some((at, Some(body))) = &mut last[resource as usize] else { continue };
                    for _ in 0..times {
                        *at = at.wrapping_add(after);
                        let (at, body) = (Instant::from_nanos(*at), Arc::clone(body));
                        writer.decision(resource, at, None).unwrap();
                        expected.push(text(&EntryContent::Decision(DecisionRecord { at, body })));
                    }
                }
                Step::Event(entries) => {
                    let gap = GapRecord { from: WallTime::MIN, entries, cause: GapCause::Queue };
                    writer.event(JournalEvent::Gap(WallTime::from_nanos(entries), gap));
                    expected.push(text(&EntryContent::Gap(gap)));
                }
                Step::EndOfBlock => {
                    let block = writer.finish().unwrap();
                    let entries = reader.read(&block[FRAME..]).unwrap();
                    found.extend(entries.iter().map(|entry| text(&entry.content)));
                    // Times of several resources are mixed within a block.
                    expected.sort();
                    found.sort();
                    prop_assert_eq!(&expected, &found);
                    expected.clear();
                    found.clear();
                }
            }
        }
    }
}

#[test]
fn unchanged_decisions_of_many_resources_take_hardly_any_room() {
    let mut writer = BlockWriter::new().unwrap();
    let name = ResourceName::new("r").unwrap();
    let idle = |number: u32| {
        let name = ConsumerName::new(&format!("consumer-{number}")).unwrap();
        ConsumerObservation::idle(name, Shares::DEFAULT, false)
    };
    let body = DecisionBody {
        observation: Observation::new(name, Instant::ZERO, (0..8).map(idle).collect()),
        reading: None,
        commands: Commands::default(),
        held: 0,
        lag: 0,
    };
    let at = |tick: u64| Instant::from_nanos(tick * 100_000_000 + tick * tick % 7 * 1_000);
    for id in 0..1_000 {
        writer.opening(id, &opening(0, Vec::new())).unwrap();
        assert!(!writer.decision(id, at(1), None).unwrap(), "there is nothing to repeat");
        assert!(writer.decision(id, at(1), Some(&body)).unwrap());
    }
    writer.finish().unwrap();
    for id in 0..1_000 {
        for tick in 2..7 {
            assert!(writer.decision(id, at(tick), None).unwrap());
        }
    }
    let bytes = writer.finish().unwrap().len();
    assert!(bytes < 500, "{bytes} bytes for 5,000 decisions");
}

#[test]
fn blocks_that_claim_too_much_are_refused() {
    let clock = ClockAnchor { at: Instant::ZERO, wall: WallTime::MIN };
    let mut reader = BlockReader::new(String::new(), clock).unwrap();
    let mut many = Vec::new();
    push_length(&mut many, MOST_ENTRIES + 1);
    assert_eq!(reader.read(&many).unwrap_err(), DamagedBlock("a block has too many entries"));
    let mut huge = vec![0];
    push_length(&mut huge, LARGEST_PLAIN + 1);
    assert_eq!(reader.read(&huge).unwrap_err(), DamagedBlock("a block is too large"));
    assert!(reader.read(&[]).is_err());
}
