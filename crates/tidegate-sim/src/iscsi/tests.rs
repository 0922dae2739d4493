//! Properties of requests for any sizes, windows and delays.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::{BulkConfig, LawConfig, LoopConfig, PidConfig, SignalChoice};
use tidegate_units::{ByteRate, Bytes, ConsumerName, Latency, ResourceName};

use super::*;

const CLASSES: [PacketClasses; 4] =
    [PacketClasses::All, PacketClasses::Acks, PacketClasses::Small, PacketClasses::Responses];

fn load(write: bool, kib: u64, depth: u32, requests: u64) -> MachineLoad {
    MachineLoad {
        machine: 0,
        write,
        block: Bytes::from_kib(kib),
        depth,
        sequential: true,
        start: Bytes::ZERO,
        size: Bytes::from_gib(1),
        think: Latency::ZERO,
        every: Latency::ZERO,
        when: LoadTimes::From(Duration::ZERO),
        amount: Some(Bytes::from_kib(kib * requests)),
    }
}

fn plan(load: MachineLoad, packets: PacketClasses, delay: Latency) -> IscsiPlan {
    IscsiPlan {
        name: "test".to_owned(),
        duration: Duration::from_secs(3_600),
        sample: Duration::from_secs(1),
        store: StoreModel::Servers {
            servers: 4,
            service: Latency::from_millis(8),
            stripe: Bytes::from_kib(64),
        },
        network: TcpNetwork {
            window_up: Bytes::from_kib(64),
            window_down: Bytes::from_kib(208),
            rate_up: ByteRate::new(1e9),
            rate_down: ByteRate::new(1e9),
            latency: Latency::from_micros(10),
        },
        protocol: IscsiProtocol::LIO,
        machines: vec![ConsumerName::new("initiator").unwrap()],
        loads: vec![load],
        throttle: ThrottleRule::Timetable { packets, steps: vec![(Duration::ZERO, 0, delay)] },
    }
}

/// Milliseconds per request.
fn took(plan: &IscsiPlan) -> f64 {
    let load = simulate(plan, 1).unwrap().loads[0];
    load.took_s.unwrap() * 1e3 / load.requests as f64
}

fn slope(load: &MachineLoad, packets: PacketClasses, window: Bytes) -> f64 {
    let at = |millis| {
        let mut plan = plan(load.clone(), packets, Latency::from_millis(millis));
        plan.network.window_up = window;
        took(&plan)
    };
    (at(20) - at(0)) / 20.0
}

/// lab/README.md: milliseconds per request for each millisecond of delay, one request at a time. By counting:
/// an R2T, an answer, and with the small window one for each time that it is full.
#[test]
fn a_delay_is_felt_once_for_every_wait_in_a_request() {
    let (large, small) = (Bytes::from_mib(3), Bytes::from_kib(64));
    for (kib, packets, window, waits) in [
        (64, PacketClasses::All, large, 1.0),
        (64, PacketClasses::Acks, large, 0.0),
        (64, PacketClasses::Responses, large, 1.0),
        (256, PacketClasses::All, large, 2.0),
        (256, PacketClasses::Small, large, 2.0),
        (64, PacketClasses::All, small, 2.0),
        (64, PacketClasses::Acks, small, 1.0),
        (256, PacketClasses::All, small, 6.0),
        (256, PacketClasses::Acks, small, 4.0),
    ] {
        let found = slope(&load(true, kib, 1, 16), packets, window);
        assert!((found - waits).abs() < 0.02, "{kib} KiB, {packets:?}, {window}: {found} instead of {waits}");
    }
    for (kib, packets, waits) in [
        (64, PacketClasses::All, 1.0),
        (64, PacketClasses::Acks, 0.0),
        (64, PacketClasses::Responses, 0.0),
        (64, PacketClasses::Small, 1.0),
        (256, PacketClasses::All, 2.0),
    ] {
        let found = slope(&load(false, kib, 1, 16), packets, large);
        assert!((found - waits).abs() < 0.05, "reads of {kib} KiB, {packets:?}: {found} instead of {waits}");
    }
}

#[test]
fn a_queue_hides_a_delay() {
    let free = took(&plan(load(false, 16, 32, 256), PacketClasses::All, Latency::ZERO));
    let held = took(&plan(load(false, 16, 32, 256), PacketClasses::All, Latency::from_millis(2)));
    assert!(held < 1.05 * free, "{held} after {free}");
}

#[test]
fn what_is_beyond_the_sessions_depth_waits_at_the_initiator() {
    let mut plan = plan(load(false, 4, 64, 640), PacketClasses::All, Latency::ZERO);
    plan.protocol.queue_depth = 1;
    let found = simulate(&plan, 1).unwrap();
    assert_eq!(found.loads[0].requests, 640);
    assert!((took(&plan) - 8.0).abs() < 0.1, "one at a time: {}", took(&plan));
    assert!(
        (found.series[0][1].1.outstanding - 64.0).abs() < 0.01,
        "all of them are outstanding to who asked"
    );
}

#[test]
fn bursts_pause_and_others_begin_when_one_is_done() {
    let seconds = Duration::from_secs;
    let burst = MachineLoad {
        when: LoadTimes::Bursts { from: seconds(2), on: seconds(3), off: seconds(2) },
        amount: None,
        ..load(true, 64, 1, 0)
    };
    let mut bursts = plan(burst, PacketClasses::All, Latency::ZERO);
    bursts.duration = seconds(10);
    let series = simulate(&bursts, 1).unwrap().series.remove(0);
    let busy: Vec<bool> = series.iter().map(|(_, sample)| sample.iops > 1.0).collect();
    assert_eq!(busy, [false, false, true, true, true, false, false, true, true, true]);

    let mut one_after_the_other = plan(load(true, 64, 1, 10), PacketClasses::All, Latency::ZERO);
    let second = MachineLoad { when: LoadTimes::After(0), ..load(false, 64, 1, 10) };
    one_after_the_other.loads.push(second);
    let found = simulate(&one_after_the_other, 1).unwrap();
    let times: f64 = found.loads.iter().map(|load| load.took_s.unwrap()).sum();
    assert!((found.ended_s - times).abs() < 1e-6, "{} is not {times}", found.ended_s);
}

/// A reader beside a burst of writers, under the agent's loop. The writers are found and throttled, the
/// reader is not. When the burst is over, no machine is throttled.
#[test]
fn the_loop_throttles_writers_while_reads_are_slow() {
    let seconds = Duration::from_secs;
    let reader = MachineLoad {
        every: Latency::from_millis(16),
        amount: None,
        sequential: false,
        ..load(false, 4, 1, 0)
    };
    let burst = LoadTimes::Bursts { from: seconds(10), on: seconds(20), off: seconds(20) };
    let writer = |machine| MachineLoad { machine, when: burst, amount: None, ..load(true, 64, 8, 0) };
    let mut free = plan(reader, PacketClasses::All, Latency::ZERO);
    free.duration = seconds(40);
    free.machines = ["reader", "w1", "w2"].map(|name| ConsumerName::new(name).unwrap()).to_vec();
    free.loads.extend([writer(1), writer(2)]);
    let resource = ResourceName::new("vg0").unwrap();
    let law = LoopConfig {
        interval: Duration::from_millis(100),
        signal: SignalChoice::Reads,
        ..LoopConfig::new(resource, Latency::from_millis(15), LawConfig::Pid(PidConfig::default()))
    };
    let mut held = free.clone();
    held.throttle = ThrottleRule::Regulated {
        packets: PacketClasses::All,
        law: Box::new(law),
        members: MemberRule::Automatic(BulkConfig::default()),
    };
    let (free, held) = (simulate(&free, 1).unwrap(), simulate(&held, 1).unwrap());
    let mean = |found: &IscsiFindings, machine: usize, number: fn(&crate::SeriesSample) -> f64| {
        found.series[machine][15..30].iter().map(|(_, sample)| number(sample)).sum::<f64>() / 15.0
    };
    let wait = |found| mean(found, 0, |sample| sample.latency_ms.unwrap_or(f64::NAN));
    assert!(wait(&free) > 25.0 && wait(&held) < 15.0, "{} and {} ms", wait(&free), wait(&held));
    for writer in [1, 2] {
        let rate = |found| mean(found, writer, |sample| sample.bytes_per_s);
        assert!(
            rate(&held) > 0.2 * rate(&free) && rate(&held) < 0.9 * rate(&free),
            "throttled, and not stopped"
        );
    }
    // The reader's packets would show a delay of 15 ms and more at once: it waits for its disk and nothing
    // else.
    let extra = mean(&held, 0, |sample| {
        sample.latency_ms.unwrap_or(f64::NAN) - sample.device_latency_ms.unwrap_or(f64::NAN)
    });
    assert!(extra < 0.1, "{extra} ms");
    assert!(held.delays[..10].iter().all(|(_, delay)| *delay <= 0.0), "no consumer was there to throttle");
    assert!(held.delays[15..30].iter().all(|(_, delay)| *delay > 0.0));
    assert!(held.delays[35..].iter().all(|(_, delay)| *delay <= 0.0), "released");
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let with = |change: fn(&mut IscsiPlan)| {
        let mut plan = plan(load(true, 64, 1, 1), PacketClasses::All, Latency::ZERO);
        change(&mut plan);
        simulate(&plan, 1).map(drop)
    };
    assert_eq!(with(|plan| plan.network.window_up = Bytes::ZERO), Err(InvalidPlan::Nothing));
    assert_eq!(with(|plan| plan.duration = Duration::ZERO), Err(InvalidPlan::Nothing));
    assert_eq!(with(|plan| plan.machines.clear()), Err(InvalidPlan::Many { machines: 0, loads: 1 }));
    assert_eq!(with(|plan| plan.loads[0].machine = 1), Err(InvalidPlan::Load(0)));
    assert_eq!(with(|plan| plan.sample = Duration::from_nanos(1)), Err(InvalidPlan::Rows));
    assert_eq!(with(|plan| plan.loads[0].depth = 0), Err(InvalidPlan::Load(0)));
    assert_eq!(with(|plan| plan.loads[0].depth = u32::MAX), Err(InvalidPlan::Load(0)));
    assert_eq!(with(|plan| plan.loads[0].when = LoadTimes::After(0)), Err(InvalidPlan::Load(0)));
    assert_eq!(with(|plan| plan.loads[0].block = Bytes::from_gib(2)), Err(InvalidPlan::Load(0)));
    assert_eq!(
        with(|plan| plan.throttle = ThrottleRule::Timetable {
            packets: PacketClasses::All,
            steps: vec![(Duration::ZERO, 1, Latency::ZERO)]
        }),
        Err(InvalidPlan::Timetable)
    );
}

prop_compose! {
    fn any_load()(
        write: bool,
        kib in prop::sample::select(vec![4u64, 8, 48, 64, 65, 128, 256, 300, 1024]),
        depth in 1u32..12,
        requests in 1u64..40,
        sequential: bool,
        think in 0u64..3,
    ) -> MachineLoad {
        MachineLoad { sequential, think: Latency::from_millis(think), ..load(write, kib, depth, requests) }
    }
}

prop_compose! {
    fn any_protocol()(
        immediate_data: bool,
        first in 1u64..128,
        burst in 1u64..512,
        to_target in 1u64..256,
        to_initiator in 1u64..256,
        queue_depth in 1u32..16,
        header_alone: bool,
    ) -> IscsiProtocol {
        IscsiProtocol {
            immediate_data,
            first_burst: Bytes::from_kib(first),
            max_burst: Bytes::from_kib(burst),
            to_target: Bytes::from_kib(to_target),
            to_initiator: Bytes::from_kib(to_initiator),
            queue_depth,
            header_alone,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every request is answered once, whatever both sides agree on, however small the windows, and while
    /// delays change.
    #[test]
    fn every_request_is_answered_once(
        load in any_load(),
        protocol in any_protocol(),
        up in 1u64..300_000,
        down in 1_000u64..300_000,
        class in 0usize..4,
        delays in prop::collection::vec((0u64..2_000, 0u64..30), 0..8),
    ) {
        let mut plan = plan(load.clone(), CLASSES[class], Latency::ZERO);
        plan.protocol = protocol;
        // A window of less than a packet takes a round trip for every few bytes.
        plan.network.window_up = Bytes::new(up.max(load.block.get() / 64 + 1));
        plan.network.window_down = Bytes::new(down);
        let steps = delays.into_iter()
            .map(|(at, delay)| (Duration::from_millis(at), 0, Latency::from_millis(delay)));
        plan.throttle = ThrottleRule::Timetable { packets: CLASSES[class], steps: steps.collect() };
        let found = simulate(&plan, 1).unwrap();
        let requests = load.amount.unwrap().get() / load.block.get();
        prop_assert_eq!(found.loads[0].requests, requests);
        prop_assert!(found.loads[0].took_s.is_some());
    }

    /// A delay of nothing is none, whatever consumer it is for.
    #[test]
    fn no_delay_has_no_effect(load in any_load(), class in 0usize..4) {
        let none = plan(load.clone(), CLASSES[class], Latency::ZERO);
        let mut nobody = none.clone();
        nobody.throttle = ThrottleRule::Timetable { packets: PacketClasses::Acks, steps: Vec::new() };
        // The step of the timetable is an event, too.
        let found = |plan| IscsiFindings { events: 0, ..simulate(plan, 1).unwrap() };
        prop_assert_eq!(found(&none), found(&nobody));
    }

    /// One request at a time: a longer delay never makes it quicker, and the delay of every packet takes
    /// longest.
    #[test]
    fn time_does_not_fall_with_the_delay(write: bool, kib in 1u64..600, class in 0usize..4,
        window in 5_000u64..300_000) {
        let at = |packets, millis| {
            let mut plan = plan(load(write, kib, 1, 6), packets, Latency::from_millis(millis));
            plan.network.window_up = Bytes::new(window);
            took(&plan)
        };
        let mut before = at(CLASSES[class], 0);
        for millis in [1, 2, 5, 10, 20] {
            let now = at(CLASSES[class], millis);
            prop_assert!(now >= before - 1e-6, "{} ms after {} at {} ms", now, before, millis);
            prop_assert!(at(PacketClasses::All, millis) >= now - 1e-6, "all packets are no less than some");
            before = now;
        }
    }

    /// Same plan, same seed: same findings.
    #[test]
    fn nothing_depends_on_chance_but_by_the_seed(load in any_load(), seed: u64) {
        let plan = plan(load, PacketClasses::All, Latency::from_millis(1));
        prop_assert_eq!(simulate(&plan, seed), simulate(&plan, seed));
    }
}
